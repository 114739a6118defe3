//! The common ground of all other crates of Forebay: the record format, sequence numbers, logical addresses, key order,
//! coding of bytes, and the kinds of errors. No I/O, no unsafe code.

#![forbid(unsafe_code)]

pub mod address;
pub mod coding;
pub mod crossing;
pub mod error;
pub mod order;
pub mod record;
pub mod sequence;

pub use address::{LogicalAddress, SegmentId};
pub use coding::{DecodeError, Reader, Writer};
pub use crossing::CrossingMark;
pub use error::ErrorKind;
pub use order::{InternalKey, KeyOrder};
pub use record::{Record, RecordError, RecordHeader};
pub use sequence::{Kind, SequenceNumber, Tag};

const CRC32C: crc_fast::CrcAlgorithm = crc_fast::CrcAlgorithm::Crc32Iscsi;

// None of these functions is inlined. Otherwise each crate would compile the code for all kinds of processors again.

/// CRC32C (Castagnoli) of `bytes`.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CRC32C, bytes) as u32
}

/// CRC-32 (ISO-HDLC) of `bytes`, for an envelope whose content may end in its own CRC32C. A CRC32C over such content
/// depends only on its length, so it could not distinguish one whole content from another.
#[must_use]
pub fn envelope_checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}

/// CRC32C of the bytes that `checksum` covers followed by `bytes`.
#[must_use]
pub fn checksum_append(checksum: u32, bytes: &[u8]) -> u32 {
    // A digest's state is the complement of the checksum so far.
    let mut digest = crc_fast::Digest::new_with_init_state(CRC32C, u64::from(!checksum));
    digest.update(bytes);
    digest.finalize() as u32
}

/// Largest key, in bytes.
pub const MAX_KEY_BYTES: usize = 64 << 10;
/// Largest value, in bytes.
pub const MAX_VALUE_BYTES: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_tells_contents_apart_that_end_in_their_own_checksum() {
        let content = |byte: u8| {
            let mut bytes = vec![byte; 40];
            bytes.extend_from_slice(&checksum(&bytes).to_le_bytes());
            bytes
        };
        let within = |checksum: fn(&[u8]) -> u32, byte| checksum(&[&b"header"[..], &content(byte)].concat());
        assert_eq!(within(checksum, 1), within(checksum, 2));
        assert_ne!(within(envelope_checksum, 1), within(envelope_checksum, 2));
        assert_eq!(envelope_checksum(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn checksums_are_those_of_castagnoli() {
        // RFC 3720, B.4, and the check value of the CRC catalogue.
        assert_eq!(checksum(b"123456789"), 0xe306_9283);
        assert_eq!(checksum(&[0; 32]), 0x8a91_36aa);
        assert_eq!(checksum(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(checksum(b""), 0);
    }

    #[test]
    fn checksums_of_parts_make_that_of_the_whole() {
        let bytes: Vec<u8> = (0..1500u32).map(|i| ((i * i) >> 3) as u8).collect();
        for length in [0, 1, 7, 8, 31, 255, 256, 419, 1024, 1500] {
            for cut in [0, length / 3, length / 2, length] {
                let (head, tail) = bytes[..length].split_at(cut);
                assert_eq!(checksum_append(checksum(head), tail), checksum(&bytes[..length]), "{length} cut at {cut}");
            }
        }
    }
}
