//! Several values in one string, as Redis keeps small collections: a listpack, or a set of integers.
//!
//! Described in `docs/formats/redis-dump.md`.
//!
//! ```text
//!   listpack  bytes 4 │ values 2 │ values │ ff                  little-endian; 65,535 values are that many or more
//!   value     0nnnnnnn                       0 to 127
//!             10nnnnnn │ bytes               a string of up to 63 bytes
//!             110nnnnn n                     an integer of 13 bits
//!             1110nnnn n │ bytes             a string of up to 4,095 bytes
//!             f0 │ length 4 │ bytes          a longer string
//!             f1 2, f2 3, f3 4, f4 8         an integer, little-endian
//!             each followed by its own length, seven bits a byte, to be read backwards
//!   integers  bytes of one 4 │ count 4 │ integers            little-endian
//! ```

use super::reader::{BAD, Reader};
use crate::keyspace::failure::Outcome;
use crate::text::number::{integer, integer_text};
use bytes::Bytes;

const END: u8 = 0xff;
const HEADER_BYTES: usize = 6;

/// A value of a listpack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// An integer.
    Integer(i64),
    /// Bytes.
    Text(Bytes),
}

impl Value {
    /// As bytes.
    pub(super) fn into_bytes(self) -> Bytes {
        match self {
            Self::Integer(number) => Bytes::from(integer_text(number)),
            Self::Text(bytes) => bytes,
        }
    }

    /// As an integer.
    pub(super) fn number(&self) -> Outcome<i64> {
        match self {
            Self::Integer(number) => Ok(*number),
            Self::Text(bytes) => integer(bytes).ok_or(BAD),
        }
    }
}

/// Returns how many bytes the length after a value of this many bytes takes.
const fn tail_bytes(value_bytes: usize) -> usize {
    match value_bytes {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        0x20_0000..0x1000_0000 => 4,
        _ => 5,
    }
}

fn signed(bits: u64, width: u32) -> i64 {
    (bits << (64 - width)) as i64 >> (64 - width)
}

/// The values of a listpack.
pub(super) fn values(bytes: &[u8]) -> Outcome<Vec<Value>> {
    let mut reader = Reader::new(bytes);
    if u32::from_le_bytes(reader.array()?) as usize != bytes.len() {
        return Err(BAD);
    }
    reader.take(2)?;
    let mut values = Vec::new();
    loop {
        let before = reader.0.len();
        let first = reader.byte()?;
        let low = usize::from(first & 0x3f);
        let value = match first {
            0..0x80 => Value::Integer(i64::from(first)),
            0x80..0xc0 => Value::Text(Bytes::copy_from_slice(reader.take(low)?)),
            0xc0..0xe0 => Value::Integer(signed(u64::from(first & 0x1f) << 8 | u64::from(reader.byte()?), 13)),
            0xe0..0xf0 => {
                let length = usize::from(first & 0xf) << 8 | usize::from(reader.byte()?);
                Value::Text(Bytes::copy_from_slice(reader.take(length)?))
            }
            0xf0 => {
                let length = u32::from_le_bytes(reader.array()?) as usize;
                Value::Text(Bytes::copy_from_slice(reader.take(length)?))
            }
            0xf1 => Value::Integer(i64::from(i16::from_le_bytes(reader.array()?))),
            0xf2 => {
                let [a, b, c] = reader.array()?;
                Value::Integer(signed(u64::from(u32::from_le_bytes([a, b, c, 0])), 24))
            }
            0xf3 => Value::Integer(i64::from(i32::from_le_bytes(reader.array()?))),
            0xf4 => Value::Integer(i64::from_le_bytes(reader.array()?)),
            END if reader.0.is_empty() => return Ok(values),
            _ => return Err(BAD),
        };
        reader.take(tail_bytes(before - reader.0.len()))?;
        values.push(value);
    }
}

/// Writes a listpack.
#[derive(Debug)]
pub(super) struct Listpack {
    bytes: Vec<u8>,
    count: usize,
}

impl Listpack {
    /// Makes an empty listpack.
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; HEADER_BYTES], count: 0 }
    }

    /// Adds an integer.
    pub(super) fn integer(&mut self, number: i64) {
        let from = self.bytes.len();
        match u8::try_from(number) {
            Ok(small) if small < 0x80 => self.bytes.push(small),
            _ => {
                self.bytes.push(0xf4);
                self.bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        self.end(from);
    }

    /// Adds bytes.
    pub(super) fn text(&mut self, text: &[u8]) {
        let from = self.bytes.len();
        match text.len() {
            0..64 => self.bytes.push(0x80 | text.len() as u8),
            64..4096 => self.bytes.extend_from_slice(&(0xe000 | text.len() as u16).to_be_bytes()),
            _ => {
                self.bytes.push(0xf0);
                self.bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(text);
        self.end(from);
    }

    /// Ends a value that began at a place.
    fn end(&mut self, from: usize) {
        let length = self.bytes.len() - from;
        let tail = tail_bytes(length);
        // The length is read from the end: a set bit says that more bytes follow.
        for at in 0..tail {
            let seven = (length >> (7 * (tail - 1 - at))) as u8 & 0x7f;
            self.bytes.push(if at == 0 { seven } else { seven | 0x80 });
        }
        self.count += 1;
    }

    /// The bytes.
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.push(END);
        let (length, count) = (self.bytes.len() as u32, u16::try_from(self.count).unwrap_or(u16::MAX));
        let head = [&length.to_le_bytes()[..], &count.to_le_bytes()].concat();
        self.bytes.splice(..HEADER_BYTES, head);
        self.bytes
    }
}

/// The members of a set of integers.
pub(super) fn integers(bytes: &[u8]) -> Outcome<Vec<Bytes>> {
    let mut reader = Reader::new(bytes);
    let (width, count) = (u32::from_le_bytes(reader.array()?), u32::from_le_bytes(reader.array()?));
    if !matches!(width, 2 | 4 | 8) || u64::from(width) * u64::from(count) != reader.0.len() as u64 {
        return Err(BAD);
    }
    let number = |bytes: &[u8]| {
        let bits = bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
        Bytes::from(integer_text(signed(bits, 8 * width)))
    };
    Ok(reader.0.chunks_exact(width as usize).map(number).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes_of_a_listpack() {
        let mut pack = Listpack::new();
        pack.text(b"a");
        pack.integer(1);
        pack.integer(-1);
        let bytes = pack.into_bytes();
        assert_eq!(bytes, b"\x16\0\0\0\x03\0\x81a\x02\x01\x01\xf4\xff\xff\xff\xff\xff\xff\xff\xff\x09\xff");
    }

    #[test]
    fn integers_have_several_widths() {
        let numbers =
            |bytes: &[u8]| values(bytes).unwrap().iter().map(|value| value.number().unwrap()).collect::<Vec<_>>();
        assert_eq!(numbers(b"\x0a\0\0\0\x01\0\xdf\xff\x02\xff"), [-1]);
        assert_eq!(numbers(b"\x0b\0\0\0\x01\0\xf1\x00\x80\x03\xff"), [-32768]);
        assert_eq!(numbers(b"\x0c\0\0\0\x01\0\xf2\xff\xff\x7f\x04\xff"), [0x7f_ffff]);
        assert_eq!(numbers(b"\x0d\0\0\0\x01\0\xf3\0\0\0\x80\x05\xff"), [-0x8000_0000]);
        assert_eq!(integers(b"\x02\0\0\0\x02\0\0\0\xff\xff\x05\0").unwrap(), ["-1", "5"]);
        assert!(integers(b"\x03\0\0\0\0\0\0\0").is_err() && integers(b"\x02\0\0\0\x02\0\0\0\xff\xff").is_err());
    }

    proptest! {
        #[test]
        fn values_survive(texts in prop::collection::vec((any::<i64>(), 0_usize..20_000), 0..5)) {
            let mut pack = Listpack::new();
            let mut expected = Vec::new();
            for (number, length) in texts {
                pack.integer(number);
                pack.text(&vec![b'x'; length]);
                expected.push(Value::Integer(number));
                expected.push(Value::Text(Bytes::from(vec![b'x'; length])));
            }
            prop_assert_eq!(values(&pack.into_bytes()).unwrap(), expected);
        }

        #[test]
        fn any_bytes_are_values_or_refused(body in prop::collection::vec(any::<u8>(), 0..60)) {
            let bytes = [&(body.len() as u32 + 7).to_le_bytes()[..], &[0, 0], &body, &[END]].concat();
            let _ = values(&bytes);
            let _ = integers(&body);
        }
    }
}
