//! Little-endian coding with checked reads.
//!
//! A [`Reader`] never panics on any input. A [`Writer`] is a thin view of a `Vec<u8>`.
//! Variable-length integers are LEB128: seven bits per byte, least significant first, the high bit
//! set on all bytes except the last. Only the shortest form is accepted.

use crate::ErrorKind;
use thiserror::Error;

/// Why bytes could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The input ended early.
    #[error("{needed} more bytes were needed at offset {offset}, {left} are left")]
    Truncated {
        /// Where in the input the value starts.
        offset: usize,
        /// Bytes that the value needs.
        needed: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// A value is outside its range.
    #[error("{what} is {found}, which is not allowed")]
    BadValue {
        /// The field's name.
        what: &'static str,
        /// The value found.
        found: u64,
    },
    /// A checksum does not match.
    #[error("{what}: the checksum is {found:#010x}, expected {expected:#010x}")]
    BadChecksum {
        /// The checksummed item.
        what: &'static str,
        /// The checksum stored.
        expected: u32,
        /// The checksum computed.
        found: u32,
    },
    /// The bytes are sound, and a newer build wrote them: a format version, flag or codec that this build does not know.
    #[error("{what} uses {feature} {number}, which this build does not know")]
    Unknown {
        /// The decoded structure.
        what: &'static str,
        /// The kind of the unknown item.
        feature: &'static str,
        /// Its number.
        number: u64,
    },
    /// Bytes are left after the last field.
    #[error("{0} bytes are left after the last field")]
    Trailing(usize),
}

impl DecodeError {
    /// What the caller must do: use another build, or restore what is damaged.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Unknown { .. } => ErrorKind::Unsupported,
            Self::Truncated { .. } | Self::BadValue { .. } | Self::BadChecksum { .. } | Self::Trailing(_) => {
                ErrorKind::Corrupt
            }
        }
    }
}

/// Reads values from the front of a slice.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

macro_rules! read_integer {
    ($($name:ident: $type:ty),*) => {$(
        #[doc = concat!("Reads a little-endian `", stringify!($type), "`.")]
        ///
        /// # Errors
        /// [`DecodeError::Truncated`].
        #[inline]
        pub fn $name(&mut self) -> Result<$type, DecodeError> {
            let (head, tail) = self.bytes.split_first_chunk().ok_or_else(|| self.truncated(size_of::<$type>()))?;
            self.bytes = tail;
            self.offset += size_of::<$type>();
            Ok(<$type>::from_le_bytes(*head))
        }
    )*};
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    /// Bytes consumed so far.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes left.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing is left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn truncated(&self, needed: usize) -> DecodeError {
        DecodeError::Truncated { offset: self.offset, needed, left: self.bytes.len() }
    }

    read_integer!(u8: u8, u16: u16, u32: u32, u64: u64, u128: u128);

    /// Reads a variable-length integer of at most 32 bits.
    ///
    /// # Errors
    /// [`DecodeError`] when truncated, too large, or not in its shortest form.
    #[inline]
    pub fn varint32(&mut self) -> Result<u32, DecodeError> {
        let value = self.varint64()?;
        u32::try_from(value).map_err(|_| DecodeError::BadValue { what: "varint32", found: value })
    }

    /// Reads a variable-length integer of at most 64 bits.
    ///
    /// # Errors
    /// [`DecodeError`] when truncated, too large, or not in its shortest form.
    #[inline]
    pub fn varint64(&mut self) -> Result<u64, DecodeError> {
        match *self.bytes {
            [byte, ref rest @ ..] if byte < 0x80 => {
                self.bytes = rest;
                self.offset += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    /// A variable-length integer of several bytes. Up to eight of them are decoded as one word.
    fn long_varint(&mut self) -> Result<u64, DecodeError> {
        const LAST: u64 = 0x8080_8080_8080_8080;
        let Some((word, ends)) = self.bytes.first_chunk().and_then(|word| {
            let word = u64::from_le_bytes(*word);
            Some((word, !word & LAST)).filter(|(_, ends)| *ends != 0)
        }) else {
            return self.any_varint();
        };
        let bits = ends.trailing_zeros() + 1;
        let word = word & (u64::MAX >> (64 - bits));
        if word >> (bits - 8) == 0 {
            return self.any_varint();
        }
        let length = (bits / 8) as usize;
        self.bytes = self.bytes.get(length..).unwrap_or_default();
        self.offset += length;
        // Seven bits per byte, merged in steps: pairs of bytes, then of two bytes, then of four.
        let word = word & !LAST;
        let word = word & 0x007f_007f_007f_007f | (word & 0x7f00_7f00_7f00_7f00) >> 1;
        let word = word & 0x0000_3fff_0000_3fff | (word & 0x3fff_0000_3fff_0000) >> 2;
        Ok(word & 0x0fff_ffff | (word & 0x0fff_ffff_0000_0000) >> 4)
    }

    fn any_varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for i in 0..10u32 {
            let byte = self.u8()?;
            if i == 9 && byte > 1 || i > 0 && byte == 0 {
                return Err(DecodeError::BadValue { what: "varint", found: u64::from(byte) });
            }
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::BadValue { what: "varint", found: value })
    }

    /// Reads `length` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    #[inline]
    pub fn bytes(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self.bytes.split_at_checked(length).ok_or_else(|| self.truncated(length))?;
        self.bytes = tail;
        self.offset += length;
        Ok(head)
    }

    /// Reads bytes that follow their length (varint32).
    ///
    /// # Errors
    /// [`DecodeError`] when truncated.
    #[inline]
    pub fn prefixed(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.varint32()? as usize;
        self.bytes(length)
    }

    /// All remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = std::mem::take(&mut self.bytes);
        self.offset += rest.len();
        rest
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// [`DecodeError::Trailing`].
    pub const fn finish(&self) -> Result<(), DecodeError> {
        match self.bytes.len() {
            0 => Ok(()),
            left => Err(DecodeError::Trailing(left)),
        }
    }
}

/// Appends values to a `Vec<u8>`.
pub trait Writer {
    /// Appends one byte.
    fn put_u8(&mut self, value: u8);
    /// Appends a little-endian `u16`.
    fn put_u16(&mut self, value: u16);
    /// Appends a little-endian `u32`.
    fn put_u32(&mut self, value: u32);
    /// Appends a little-endian `u64`.
    fn put_u64(&mut self, value: u64);
    /// Appends a little-endian `u128`.
    fn put_u128(&mut self, value: u128);
    /// Appends a variable-length integer.
    fn put_varint(&mut self, value: u64);
    /// Appends bytes after their length (varint32). `bytes` must be shorter than 4 GiB.
    fn put_prefixed(&mut self, bytes: &[u8]);
}

impl Writer for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }
    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    fn put_u128(&mut self, value: u128) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    fn put_varint(&mut self, value: u64) {
        let mut scratch = [0; MAX_VARINT_BYTES];
        let length = encode_varint(value, &mut scratch);
        self.extend_from_slice(&scratch[..length]);
    }
    fn put_prefixed(&mut self, bytes: &[u8]) {
        self.put_varint(bytes.len() as u64);
        self.extend_from_slice(bytes);
    }
}

/// Longest variable-length integer, in bytes.
pub const MAX_VARINT_BYTES: usize = 10;

/// Length in bytes of `value` as a variable-length integer.
#[must_use]
pub const fn varint_length(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Encodes `value` at the front of `out` and returns its length.
pub fn encode_varint(mut value: u64, out: &mut [u8; MAX_VARINT_BYTES]) -> usize {
    let mut length = 0;
    while value >= 0x80 {
        out[length] = (value as u8) | 0x80;
        value >>= 7;
        length += 1;
    }
    out[length] = value as u8;
    length + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn varint_golden_bytes() {
        let mut out = Vec::new();
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            out.put_varint(value);
        }
        assert_eq!(
            out,
            [
                0, 1, 0x7f, 0x80, 1, 0xac, 2, 0xff, 0xff, 0xff, 0xff, 0x0f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                0xff, 0xff, 1
            ]
        );
    }

    #[test]
    fn longer_forms_are_refused() {
        assert!(Reader::new(&[0x80, 0]).varint64().is_err());
        assert!(Reader::new(&[0xff; 10]).varint64().is_err());
        assert!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x10]).varint32().is_err());
    }

    proptest! {
        #[test]
        fn varints_round_trip(value: u64, shift in 0u32..64, behind in prop::collection::vec(any::<u8>(), 0..12)) {
            let value = value >> shift;
            let mut out = Vec::new();
            out.put_varint(value);
            prop_assert_eq!(out.len(), varint_length(value));
            out.extend_from_slice(&behind);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.varint64(), Ok(value));
            prop_assert_eq!(reader.rest(), &behind[..]);
        }

        #[test]
        fn varints_are_refused_alike_at_the_end_and_before_it(bytes in prop::collection::vec(prop::sample::select(
            vec![0u8, 1, 0x7f, 0x80, 0x81, 0xff]), 0..12)) {
            let longer = [&bytes[..], &[0; 8]].concat();
            let (mut here, mut there) = (Reader::new(&bytes), Reader::new(&longer));
            let found = here.any_varint();
            if found.is_ok() {
                prop_assert_eq!(there.varint64(), found);
                prop_assert_eq!(there.offset(), here.offset());
            } else if !matches!(found, Err(DecodeError::Truncated { .. })) {
                prop_assert!(there.varint64().is_err());
            }
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let mut reader = Reader::new(&bytes);
            while reader.prefixed().is_ok() && !reader.is_empty() {}
            let _ = reader.u128();
        }
    }
}
