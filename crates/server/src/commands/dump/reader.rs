//! Lengths and strings of a dump.
//!
//! Described in `docs/formats/redis-dump.md`.
//!
//! ```text
//!   length  00nnnnnn            up to 63
//!           01nnnnnn n          up to 16,383, the high bits first
//!           80 │ n 4, 81 │ n 8  big-endian
//!   string  length │ bytes
//!           c0 │ 1, c1 │ 2, c2 │ 4   an integer, little-endian, which stands for its decimal form
//!           c3 │ length │ length │ bytes compressed by LZF, with the lengths before and after
//! ```

use crate::keyspace::failure::{Failure, Outcome};
use crate::text::number;
use bytes::Bytes;

/// The value is inconsistent, or of a kind that is not known here.
pub(in crate::commands) const BAD: Failure = Failure::text("ERR Bad data format");
/// The compressed strings of a value are too long.
const TOO_LONG: Failure =
    Failure::text("ERR the value is too long: its compressed strings may unpack to at most 512 MiB together");
/// The value has too many strings and numbers.
const TOO_MANY: Failure = Failure::text("ERR the value is too long: it may have at most 33554432 strings and numbers");
/// The longest string: no value of the engine is longer.
const MAX_BYTES: usize = 64 << 20;
/// Most bytes that the compressed strings of a value unpack to: they may be 88 times as long as they are compressed,
/// and all of a value is held.
const MAX_UNPACKED_BYTES: usize = 512 << 20;
/// Most strings and numbers of a value: each takes dozens of bytes of memory, and may be two bytes of what is unpacked.
pub(in crate::commands) const MAX_PARTS: usize = 32 << 20;

/// Reads a value from the front: the bytes that are left, how many bytes may still be unpacked, and how many strings and
/// numbers may still come.
#[derive(Debug, Clone, Copy)]
pub(in crate::commands) struct Reader<'a>(pub(in crate::commands) &'a [u8], usize, usize);

impl<'a> Reader<'a> {
    /// Begins at the front of a value.
    pub(in crate::commands) const fn new(value: &'a [u8]) -> Self {
        Self(value, MAX_UNPACKED_BYTES, MAX_PARTS)
    }

    /// Counts strings and numbers, and refuses more than a value may have.
    pub(in crate::commands) fn count_parts(&mut self, parts: usize) -> Outcome {
        self.2 = self.2.checked_sub(parts).ok_or(TOO_MANY)?;
        Ok(())
    }

    /// The next bytes.
    pub(in crate::commands) fn take(&mut self, count: usize) -> Outcome<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(BAD)?;
        self.0 = rest;
        Ok(taken)
    }

    /// The next bytes, of a fixed number.
    pub(in crate::commands) fn array<const N: usize>(&mut self) -> Outcome<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(BAD)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// The next byte.
    pub(in crate::commands) fn byte(&mut self) -> Outcome<u8> {
        self.array().map(|[byte]| byte)
    }

    /// Reads a length, or the kind of a string that has none.
    fn length_or_kind(&mut self) -> Outcome<Result<u64, u8>> {
        let first = self.byte()?;
        let low = u64::from(first & 0x3f);
        Ok(match first >> 6 {
            0 => Ok(low),
            1 => Ok(low << 8 | u64::from(self.byte()?)),
            2 if first == 0x80 => Ok(u64::from(u32::from_be_bytes(self.array()?))),
            2 if first == 0x81 => Ok(u64::from_be_bytes(self.array()?)),
            2 => return Err(BAD),
            _ => Err(first & 0x3f),
        })
    }

    /// A length, or another number.
    pub(in crate::commands) fn length(&mut self) -> Outcome<u64> {
        self.length_or_kind()?.map_err(|_| BAD)
    }

    /// Reads a count of things of at least one byte each, and refuses a count that the rest cannot hold, so that it
    /// takes no memory.
    pub(in crate::commands) fn count(&mut self) -> Outcome<usize> {
        let count = usize::try_from(self.length()?).map_err(|_| BAD)?;
        if count > self.0.len() { Err(BAD) } else { Ok(count) }
    }

    /// A string.
    pub(in crate::commands) fn string(&mut self) -> Outcome<Bytes> {
        let integer = |number: i64| Ok(Bytes::from(number::integer_text(number)));
        self.count_parts(1)?;
        match self.length_or_kind()? {
            Ok(length) => Ok(Bytes::copy_from_slice(self.take(usize::try_from(length).map_err(|_| BAD)?)?)),
            Err(0) => integer(i64::from(i8::from_le_bytes(self.array()?))),
            Err(1) => integer(i64::from(i16::from_le_bytes(self.array()?))),
            Err(2) => integer(i64::from(i32::from_le_bytes(self.array()?))),
            Err(3) => {
                let (packed, length) = (self.count()?, usize::try_from(self.length()?).map_err(|_| BAD)?);
                let bytes = unpacked(self.take(packed)?, length)?;
                self.1 = self.1.checked_sub(bytes.len()).ok_or(TOO_LONG)?;
                Ok(Bytes::from(bytes))
            }
            Err(_) => Err(BAD),
        }
    }
}

/// Decompresses LZF: runs of literal bytes, and copies of earlier output.
fn unpacked(packed: &[u8], length: usize) -> Outcome<Vec<u8>> {
    if length > MAX_BYTES {
        return Err(BAD);
    }
    let (mut reader, mut bytes) = (Reader::new(packed), Vec::new());
    while !reader.0.is_empty() {
        let control = usize::from(reader.byte()?);
        if control < 32 {
            bytes.extend_from_slice(reader.take(control + 1)?);
        } else {
            let mut count = (control >> 5) + 2;
            if count == 9 {
                count += usize::from(reader.byte()?);
            }
            let back = ((control & 31) << 8 | usize::from(reader.byte()?)) + 1;
            let from = bytes.len().checked_sub(back).ok_or(BAD)?;
            // A copy may overlap the bytes that it writes.
            for at in from..from + count {
                bytes.push(*bytes.get(at).ok_or(BAD)?);
            }
        }
        if bytes.len() > length {
            return Err(BAD);
        }
    }
    if bytes.len() == length { Ok(bytes) } else { Err(BAD) }
}

/// Writes a length, or another number.
pub(in crate::commands) fn put_length(bytes: &mut Vec<u8>, length: u64) {
    match length {
        0..64 => bytes.push(length as u8),
        64..0x4000 => bytes.extend_from_slice(&(0x4000 | length as u16).to_be_bytes()),
        0x4000..=0xffff_ffff => {
            bytes.push(0x80);
            bytes.extend_from_slice(&(length as u32).to_be_bytes());
        }
        _ => {
            bytes.push(0x81);
            bytes.extend_from_slice(&length.to_be_bytes());
        }
    }
}

/// Writes a string.
pub(in crate::commands) fn put_string(bytes: &mut Vec<u8>, string: &[u8]) {
    put_length(bytes, string.len() as u64);
    bytes.extend_from_slice(string);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn strings_come_in_several_forms() {
        for (bytes, expected) in [
            (&b"\x02ab"[..], Some(&b"ab"[..])),
            (b"\x40\x02ab", Some(b"ab")),
            (b"\x80\0\0\0\x02ab", Some(b"ab")),
            (b"\xc0\xfb", Some(b"-5")),
            (b"\xc1\x39\x30", Some(b"12345")),
            (b"\xc2\xff\xff\xff\x7f", Some(b"2147483647")),
            (b"\xc3\x05\x0a\x01ab\xe0\x00\x01", None),
            (b"\xc3\x06\x0b\x01ab\xe0\x00\x01", Some(b"abababababa")),
            (b"\x03ab", None),
            (b"\xc4", None),
            (b"\x82", None),
            (b"", None),
        ] {
            assert_eq!(Reader::new(bytes).string().ok().as_deref(), expected, "{bytes:?}");
        }
    }

    #[test]
    fn what_the_strings_of_a_value_unpack_to_is_bounded() {
        let bytes = b"\xc3\x06\x0b\x01ab\xe0\x00\x01".repeat(3);
        let mut reader = Reader(&bytes, 2 * 11, MAX_PARTS);
        (0..2).for_each(|_| assert_eq!(reader.string().unwrap(), "abababababa"));
        assert_eq!(reader.string().unwrap_err(), TOO_LONG);
        // Other strings are no longer than their bytes.
        assert_eq!(Reader(b"\x02ab", 0, 1).string().unwrap(), "ab");
    }

    #[test]
    fn the_strings_of_a_value_are_counted() {
        let mut reader = Reader(b"\x01a\xc0\x05\x01b", 0, 2);
        assert_eq!((reader.string().unwrap(), reader.string().unwrap()), (Bytes::from("a"), Bytes::from("5")));
        assert_eq!(reader.string().unwrap_err(), TOO_MANY);
    }

    proptest! {
        #[test]
        fn lengths_survive(length: u64, shift in 0_u32..64) {
            let mut bytes = Vec::new();
            put_length(&mut bytes, length >> shift);
            prop_assert_eq!(Reader::new(&bytes).length().unwrap(), length >> shift);
        }

        #[test]
        fn any_bytes_are_unpacked_or_refused(packed in prop::collection::vec(any::<u8>(), 0..60), length in 0_usize..200) {
            if let Ok(bytes) = unpacked(&packed, length) {
                prop_assert_eq!(bytes.len(), length);
            }
        }
    }
}
