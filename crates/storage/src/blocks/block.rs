//! One block of a block object.
//!
//! ```text
//!  offset  size  field
//!  0       8     identity of the object
//!  8       4     number of the block in the object, from 0
//!  12      4     length in bytes before compression
//!  16      4     length of the payload in bytes
//!  20      1     codec: 0 stored, 1 LZ4 block, 2 Zstandard frame
//!  21      3     zero
//!  24            payload
//!  …       4     CRC-32 (ISO-HDLC) of all that precedes
//! ```
//!
//! A block can be read without any other, and says where it belongs. Its checksum uses another polynomial than
//! those of records and tables, because a stored block may end in one of those.
//!
//! Purpose and golden test: `docs/formats/block-object.md`.

use super::compression::{Codec, Compressor, decompress};
use forebay_base::{DecodeError, Reader, Writer, envelope_checksum};
use std::borrow::Cow;

const WHAT: &str = "a block of an object";
const HEADER_BYTES: usize = 24;
const TRAILER_BYTES: usize = 4;

/// A block's number and the identity of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub identity: u64,
    pub number: u32,
}

/// Appends the block that has these bytes. Returns its length.
pub(super) fn encode(place: Place, bytes: &[u8], compressor: &mut Compressor, out: &mut Vec<u8>) -> u32 {
    let start = out.len();
    let (codec, payload) = compressor.compress(bytes);
    out.reserve(stored_bytes(payload.len()));
    out.put_u64(place.identity);
    out.put_u32(place.number);
    out.put_u32(bytes.len() as u32);
    out.put_u32(payload.len() as u32);
    out.put_u8(codec as u8);
    out.extend_from_slice(&[0; 3]);
    out.extend_from_slice(payload);
    let crc = envelope_checksum(&out[start..]);
    out.put_u32(crc);
    (out.len() - start) as u32
}

/// Length of a block with a payload of this length.
pub(super) const fn stored_bytes(payload: usize) -> usize {
    HEADER_BYTES + payload + TRAILER_BYTES
}

/// Decodes the `length` bytes of the block at `place` from its stored form. Borrows them from `stored` if they are
/// stored uncompressed.
pub(super) fn decode(place: Place, length: usize, stored: &[u8]) -> Result<Cow<'_, [u8]>, DecodeError> {
    let (covered, crc) = stored.split_last_chunk::<TRAILER_BYTES>().ok_or(DecodeError::Truncated {
        offset: 0,
        needed: stored_bytes(0),
        left: stored.len(),
    })?;
    let (expected, found) = (u32::from_le_bytes(*crc), envelope_checksum(covered));
    if found != expected {
        return Err(DecodeError::BadChecksum { what: WHAT, expected, found });
    }
    let mut reader = Reader::new(covered);
    let bad = |what, found| Err(DecodeError::BadValue { what, found });
    let identity = reader.u64()?;
    if identity != place.identity {
        return bad("identity of the object that the block is of", identity);
    }
    let number = reader.u32()?;
    if number != place.number {
        return bad("number of a block", number.into());
    }
    let whole = reader.u32()?;
    if whole as usize != length {
        return bad("length of a block", whole.into());
    }
    let payload = reader.u32()?;
    let codec = reader.u8()?;
    let unknown = |feature, number| Err(DecodeError::Unknown { what: WHAT, feature, number });
    if reader.bytes(3)? != [0; 3] {
        return unknown("flags", 1);
    }
    if payload as usize != reader.remaining() {
        return bad("length of a block's payload", payload.into());
    }
    let Some(codec) = Codec::from_number(codec) else { return unknown("codec", codec.into()) };
    let bytes = decompress(codec, reader.rest(), length);
    bytes.ok_or(DecodeError::BadValue { what: "a byte count that does not come out of a block", found: whole.into() })
}

#[cfg(test)]
mod tests {
    use super::super::compression::Compression;
    use super::*;
    use proptest::prelude::*;

    const PLACE: Place = Place { identity: 0x0102_0304, number: 5 };
    const ALL: [Compression; 4] =
        [Compression::None, Compression::Lz4, Compression::Zstd { level: 1 }, Compression::Zstd { level: 9 }];

    fn block(compression: Compression, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let length = encode(PLACE, bytes, &mut Compressor::new(compression).unwrap(), &mut out);
        assert_eq!(length as usize, out.len());
        out
    }

    #[test]
    fn golden_bytes() {
        let header = |whole: u8, payload: u8, codec: u8| {
            [4, 3, 2, 1, 0, 0, 0, 0, 5, 0, 0, 0, whole, 0, 0, 0, payload, 0, 0, 0, codec, 0, 0, 0]
        };
        let stored = [&header(3, 3, 0)[..], b"abc", &[0x66, 0x8e, 0x5f, 0xe4]].concat();
        assert_eq!(block(Compression::Lz4, b"abc"), stored);
        // Sixty-four times the same byte.
        let lz4 = [&header(64, 12, 1)[..], &[0x1f, b'a', 1, 0, 38, 0x60], b"aaaaaa"].concat();
        let found = block(Compression::Lz4, &[b'a'; 64]);
        assert_eq!(found[..found.len() - 4], lz4);
        // Bytes of Zstandard may differ between its versions; what they decode to may not.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x40, 0x45, 0, 0, 0x10, b'a', b'a', 1, 0, 0x93, 0, 0x16];
        let zstd = [&header(64, frame.len() as u8, 2)[..], &frame, &[0x9e, 0x6f, 0x53, 0x5d]].concat();
        assert_eq!(*decode(PLACE, 64, &zstd).unwrap(), [b'a'; 64]);
    }

    #[test]
    fn what_does_not_shrink_is_stored() {
        let noise = |i: u64| {
            let mixed = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            ((mixed ^ mixed >> 32).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56) as u8
        };
        let noise: Vec<u8> = (0..4096).map(noise).collect();
        for compression in ALL {
            assert_eq!(block(compression, &noise)[20], 0, "{compression}");
            assert_eq!(block(compression, &noise).len(), stored_bytes(noise.len()));
        }
        assert!(block(Compression::Lz4, &[7; 4096]).len() < 100);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let text = b"to be or not to be, to be or not to be, to be or not to be".as_slice();
        for compression in ALL {
            let good = block(compression, text);
            assert_eq!(*decode(PLACE, text.len(), &good).unwrap(), *text);
            for bit in 0..good.len() * 8 {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(decode(PLACE, text.len(), &bad).is_err(), "{compression}, bit {bit}");
            }
            for cut in 0..good.len() {
                assert!(decode(PLACE, text.len(), &good[..cut]).is_err(), "{compression}, cut at {cut}");
            }
            for other in [Place { identity: 1, ..PLACE }, Place { number: 4, ..PLACE }] {
                assert!(decode(other, text.len(), &good).is_err());
            }
            assert!(decode(PLACE, text.len() + 1, &good).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_back(bytes in prop::collection::vec(0u8..4, 0..3000), noise: Vec<u8>) {
            for compression in ALL {
                for bytes in [&bytes, &noise] {
                    let stored = block(compression, bytes);
                    prop_assert_eq!(&*decode(PLACE, bytes.len(), &stored).unwrap(), &bytes[..]);
                }
            }
        }

        #[test]
        fn any_payload_with_a_right_checksum_is_decoded_without_panic(
            payload: Vec<u8>, codec in 0u8..4, length in 0usize..5000, whole in 0u32..5000,
        ) {
            let mut out = Vec::new();
            out.put_u64(PLACE.identity);
            out.put_u32(PLACE.number);
            out.put_u32(whole);
            out.put_u32(payload.len() as u32);
            out.put_u8(codec);
            out.extend_from_slice(&[0; 3]);
            out.extend_from_slice(&payload);
            let crc = envelope_checksum(&out);
            out.put_u32(crc);
            let _ = decode(PLACE, length, &out);
            if let Ok(bytes) = decode(PLACE, whole as usize, &out) {
                prop_assert_eq!(bytes.len(), whole as usize);
            }
            let _ = decode(PLACE, length, &payload);
        }
    }
}
