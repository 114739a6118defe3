//! The envelope, and the fields of every extensible structure of this crate.
//!
//! ```text
//!  offset  size  field
//!  0       4     magic: which structure this is
//!  4       2     format version of the structure
//!  6       2     flags, zero: an unknown flag is refused
//!  8       4     length of the body in bytes
//!  12            body
//!  …       4     CRC32C of all that precedes
//! ```
//!
//! Frames can follow each other. A log of frames is read up to the first bad one. Zeros are not a
//! frame. The body of most structures is a sequence of fields:
//!
//! ```text
//!  varint   number << 1 | optional
//!  varint   length of the value in bytes
//!           value
//! ```
//!
//! A reader skips an unknown optional field and refuses an unknown mandatory one. A field may be
//! repeated where its structure says so. The value of a known field is consumed exactly.
//!
//! Purpose and golden test: `docs/formats/table.md`.

use crate::error::{Context, Error, Result};
use forebay_base::{DecodeError, Reader, Writer, checksum};

/// Bytes before a frame's body.
pub(crate) const HEADER_BYTES: usize = 12;
/// Bytes after a frame's body.
pub(crate) const TRAILER_BYTES: usize = 4;

/// One kind of frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameKind {
    /// Its name in errors.
    pub what: &'static str,
    /// Its magic.
    pub magic: [u8; 4],
    /// The format version written, and the only one read.
    pub version: u16,
}

impl FrameKind {
    /// Appends a frame whose body `body` writes.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the body reaches 4 GiB.
    pub fn encode(self, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let start = out.len();
        out.extend_from_slice(&self.magic);
        out.put_u16(self.version);
        out.put_u16(0);
        out.put_u32(0);
        body(out);
        let length = u32::try_from(out.len() - start - HEADER_BYTES)
            .map_err(|_| Error::Invalid("a structure of 4 GiB or more cannot be stored"))?;
        out[start + 8..start + HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
        let crc = checksum(&out[start..]);
        out.put_u32(crc);
        Ok(())
    }

    /// Verifies the frame at the front of `bytes`. Returns its body and the frame's length.
    ///
    /// # Errors
    /// [`Error::Damaged`], or [`Error::Unknown`] for a newer version or an unknown flag.
    pub fn decode_first(self, bytes: &[u8]) -> Result<(&[u8], usize)> {
        let (body, version, flags) = self.split(bytes).context(self.what)?;
        if version != self.version {
            return Err(Error::Unknown { what: self.what, feature: "format version", number: version.into() });
        }
        if flags != 0 {
            return Err(Error::Unknown { what: self.what, feature: "flags", number: flags.into() });
        }
        Ok((body, HEADER_BYTES + body.len() + TRAILER_BYTES))
    }

    /// Verifies that `bytes` are exactly one frame. Returns its body.
    ///
    /// # Errors
    /// As [`FrameKind::decode_first`], and when bytes are left.
    pub fn decode(self, bytes: &[u8]) -> Result<&[u8]> {
        let (body, length) = self.decode_first(bytes)?;
        match bytes.len() - length {
            0 => Ok(body),
            left => Err(DecodeError::Trailing(left)).context(self.what),
        }
    }

    fn split(self, bytes: &[u8]) -> std::result::Result<(&[u8], u16, u16), DecodeError> {
        let mut reader = Reader::new(bytes);
        let magic = reader.u32()?;
        if magic != u32::from_le_bytes(self.magic) {
            return Err(DecodeError::BadValue { what: "magic", found: magic.into() });
        }
        let (version, flags) = (reader.u16()?, reader.u16()?);
        let length = reader.u32()? as usize;
        let body = reader.bytes(length)?;
        let covered = reader.offset();
        let expected = reader.u32()?;
        let found = checksum(bytes.get(..covered).unwrap_or_default());
        if found != expected {
            return Err(DecodeError::BadChecksum { what: self.what, expected, found });
        }
        Ok((body, version, flags))
    }
}

/// Whether a reader may continue without a field that it does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Mandatory,
    Optional,
}

/// Appends a field whose value `value` writes.
pub(crate) fn put_field(out: &mut Vec<u8>, number: u32, need: Need, value: impl FnOnce(&mut Vec<u8>)) {
    out.put_varint(u64::from(number) << 1 | u64::from(need == Need::Optional));
    let mut bytes = Vec::new();
    value(&mut bytes);
    out.put_prefixed(&bytes);
}

/// A field that was read.
pub(crate) struct Field<'a> {
    pub number: u64,
    pub value: Reader<'a>,
    optional: bool,
}

impl Field<'_> {
    /// Handles an unknown field.
    pub fn unknown(&self, what: &'static str) -> Result<()> {
        if self.optional { Ok(()) } else { Err(Error::Unknown { what, feature: "field", number: self.number }) }
    }
}

/// Calls `each` for every field of `body`. For a known field, `each` returns true and must consume
/// the whole value, which is checked.
pub(crate) fn for_each_field<'a>(
    body: &'a [u8],
    what: &'static str,
    mut each: impl FnMut(u64, &mut Reader<'a>) -> Result<bool>,
) -> Result<()> {
    let mut reader = Reader::new(body);
    while !reader.is_empty() {
        let head = reader.varint64().context(what)?;
        let value = Reader::new(reader.prefixed().context(what)?);
        let mut field = Field { number: head >> 1, optional: head & 1 != 0, value };
        if each(field.number, &mut field.value)? {
            field.value.finish().context(what)?;
        } else {
            field.unknown(what)?;
        }
    }
    Ok(())
}

/// Reads a count of elements of at least `least_bytes` each. Refuses a count larger than can
/// follow.
pub(crate) fn read_count(reader: &mut Reader<'_>, least_bytes: usize) -> std::result::Result<usize, DecodeError> {
    let count = reader.varint64()?;
    match usize::try_from(count) {
        Ok(small) if small <= reader.remaining() / least_bytes.max(1) => Ok(small),
        _ => Err(DecodeError::BadValue { what: "count", found: count }),
    }
}

/// Reads a byte that must be zero or one.
pub(crate) fn read_flag(reader: &mut Reader<'_>, what: &'static str) -> std::result::Result<bool, DecodeError> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        found => Err(DecodeError::BadValue { what, found: found.into() }),
    }
}

/// Reads UTF-8 text that follows its length.
pub(crate) fn read_text(reader: &mut Reader<'_>, what: &'static str) -> std::result::Result<String, DecodeError> {
    let bytes = reader.prefixed()?;
    let text = std::str::from_utf8(bytes)
        .map_err(|error| DecodeError::BadValue { what, found: error.valid_up_to() as u64 })?;
    Ok(text.to_owned())
}

/// Writes optional bytes: a flag, then the length and the bytes.
pub(crate) fn put_optional(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    out.put_u8(u8::from(bytes.is_some()));
    if let Some(bytes) = bytes {
        out.put_prefixed(bytes);
    }
}

/// Reads the output of [`put_optional`].
pub(crate) fn read_optional(
    reader: &mut Reader<'_>,
    what: &'static str,
) -> std::result::Result<Option<Vec<u8>>, DecodeError> {
    Ok(if read_flag(reader, what)? { Some(reader.prefixed()?.to_vec()) } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KIND: FrameKind = FrameKind { what: "test frame", magic: *b"TEST", version: 3 };

    fn sample() -> Vec<u8> {
        let mut out = Vec::new();
        KIND.encode(&mut out, |body| {
            put_field(body, 1, Need::Mandatory, |value| value.put_varint(300));
            put_field(body, 99, Need::Optional, |value| value.put_u8(7));
        })
        .unwrap();
        out
    }

    #[test]
    fn golden_bytes() {
        assert_eq!(
            sample(),
            [b'T', b'E', b'S', b'T', 3, 0, 0, 0, 8, 0, 0, 0, 2, 2, 0xac, 2, 0xc7, 1, 1, 7, 0xb5, 0x0e, 0xf8, 0x1d]
        );
    }

    #[test]
    fn unknown_fields_are_skipped_or_refused_by_their_flag() {
        let bytes = sample();
        let body = KIND.decode(&bytes).unwrap();
        let mut seen = Vec::new();
        for_each_field(body, "test", |number, value| {
            Ok(if number == 1 {
                seen.push(value.varint64().unwrap());
                true
            } else {
                false
            })
        })
        .unwrap();
        assert_eq!(seen, [300]);
        let error = for_each_field(body, "test", |_, _| Ok(false)).unwrap_err();
        assert_eq!(error, Error::Unknown { what: "test", feature: "field", number: 1 });
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let good = sample();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(KIND.decode(&bad).is_err(), "bit {bit}");
        }
        for cut in 0..good.len() {
            assert!(KIND.decode(&good[..cut]).is_err(), "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_without_panic(bytes: Vec<u8>) {
            let _ = KIND.decode(&bytes);
            let _ = for_each_field(&bytes, "test", |number, _| Ok(number % 2 == 0));
        }
    }
}
