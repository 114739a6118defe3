//! Values that verify themselves.
//!
//! A value is a function of its key's number, a version and its length:
//!
//! ```text
//!  0  8  key number (u64, little-endian)
//!  8  8  version (u64, little-endian)
//! 16  8  hash of both (u64, little-endian)
//! 24     bytes of a fixed pseudo-random pool, from an offset that the hash gives
//! ```
//!
//! A value of 8 to 23 bytes is the low 32 bits of the version (little-endian) and a hash of key number and these bits,
//! cut to the remaining length. A shorter value is the first bytes of a hash of the key number, without a version. The
//! pool is made once, so making a value costs a copy and checking one costs a comparison. Both cover every byte, so any
//! changed bit is found.

use crate::Error;
use crate::mix::{mix, mix_two};
use forebay_base::MAX_VALUE_BYTES;

const HEADER_BYTES: usize = 24;
/// Shorter values have no version.
const VERSIONED_BYTES: usize = 8;
/// Number of offsets at which a value may start in the pool. A power of two, small enough that the pool stays in the
/// processor's first cache while values are checked.
const OFFSETS: usize = 8 << 10;

/// Generates and checks values of one length.
#[derive(Debug)]
pub struct Values {
    length: usize,
    pool: Vec<u8>,
}

impl Values {
    /// Values of `length` bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] when values of that length are not possible.
    pub fn new(length: usize) -> Result<Self, Error> {
        if length > MAX_VALUE_BYTES {
            return Err(Error::Invalid(format!("value size {length}: at most {MAX_VALUE_BYTES} bytes are possible")));
        }
        let pool_bytes = OFFSETS + length;
        let mut pool = Vec::with_capacity(pool_bytes + 8);
        for word in 0..pool_bytes.div_ceil(8) as u64 {
            pool.extend_from_slice(&mix(word).to_le_bytes());
        }
        Ok(Self { length, pool })
    }

    /// Length of the values in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// A buffer for [`fill`](Self::fill).
    #[must_use]
    pub fn buffer(&self) -> Vec<u8> {
        vec![0; self.length]
    }

    /// Fills `buffer` with the value of this key number and version.
    #[inline]
    pub fn fill(&self, number: u64, version: u64, buffer: &mut Vec<u8>) {
        buffer.clear();
        if self.length < HEADER_BYTES {
            buffer.extend_from_slice(&short(number, version as u32, self.length)[..self.length]);
        } else {
            buffer.extend_from_slice(&number.to_le_bytes());
            buffer.extend_from_slice(&version.to_le_bytes());
            let hash = mix_two(number, version);
            buffer.extend_from_slice(&hash.to_le_bytes());
            buffer.extend_from_slice(self.body(hash));
        }
    }

    /// Bytes of the right length that verify nothing and cost nothing to make: successive parts of the pool, as in
    /// `db_bench`.
    #[inline]
    #[must_use]
    pub fn unverified(&self, operation: u64) -> &[u8] {
        let offset = operation.wrapping_mul(self.length as u64) as usize % OFFSETS;
        // The pool is longer than any offset and the length together.
        &self.pool[offset..offset + self.length]
    }

    /// Checks that `value` is a value of this key number. Returns its version, or zero for values too short to have
    /// one.
    ///
    /// # Errors
    /// A description of the fault.
    #[inline]
    pub fn check(&self, number: u64, value: &[u8]) -> Result<u64, String> {
        if value.len() != self.length {
            return Err(format!("a value of {} bytes where {} were written", value.len(), self.length));
        }
        if self.length < HEADER_BYTES {
            let version = value.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
            let expected = short(number, version, self.length);
            let whole = value == &expected[..self.length];
            let version = if self.length < VERSIONED_BYTES { 0 } else { version };
            return if whole { Ok(u64::from(version)) } else { Err("bytes that differ".into()) };
        }
        let (Some(of), Some(version), Some(hash)) = (word_at(value, 0), word_at(value, 8), word_at(value, 16)) else {
            return Err("a value without a header".into());
        };
        if of != number {
            return Err(format!("a value of key number {of}"));
        }
        if hash != mix_two(number, version) || value.get(HEADER_BYTES..) != Some(self.body(hash)) {
            return Err(format!("bytes that differ from those of version {version}"));
        }
        Ok(version)
    }

    /// Checks that `value` is the value of this key number and version.
    ///
    /// # Errors
    /// A description of the fault.
    pub fn check_version(&self, number: u64, version: u64, value: &[u8]) -> Result<(), String> {
        let found = self.check(number, value)?;
        let version = match self.length {
            0..VERSIONED_BYTES => 0,
            VERSIONED_BYTES..HEADER_BYTES => u64::from(version as u32),
            _ => version,
        };
        if found != version {
            return Err(format!("version {found} where {version} was written last"));
        }
        Ok(())
    }

    #[inline]
    fn body(&self, hash: u64) -> &[u8] {
        let offset = hash as usize % OFFSETS;
        // The pool is longer than any offset and the length together.
        &self.pool[offset..offset + self.length - HEADER_BYTES]
    }
}

fn word_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..)?.first_chunk().copied().map(u64::from_le_bytes)
}

/// A value shorter than the header, followed by further bytes.
fn short(number: u64, version: u32, length: usize) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    let versioned = length >= VERSIONED_BYTES;
    let seed = if versioned { mix_two(number, u64::from(version)) } else { number };
    let (head, hashed) = bytes.split_at_mut(if versioned { 4 } else { 0 });
    head.copy_from_slice(&version.to_le_bytes()[..head.len()]);
    for (part, chunk) in hashed.chunks_mut(8).enumerate() {
        chunk.copy_from_slice(&mix_two(seed, part as u64).to_le_bytes()[..chunk.len()]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_value() {
        let values = Values::new(32).unwrap();
        let mut value = values.buffer();
        values.fill(3, 5, &mut value);
        assert_eq!(&value[..16], [3, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        let offset = mix_two(3, 5) as usize % OFFSETS;
        assert_eq!(&value[16..24], mix_two(3, 5).to_le_bytes());
        assert_eq!(&value[24..], &values.pool[offset..offset + 8]);
        assert_eq!(values.pool[..8], 0xe220_a839_7b1d_cdaf_u64.to_le_bytes());
    }

    #[test]
    fn unverified_values_have_their_length() {
        for length in [0, 1, 24, 400, OFFSETS + 1] {
            let values = Values::new(length).unwrap();
            assert!((0..1000).chain([u64::MAX]).all(|operation| values.unverified(operation).len() == length));
        }
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        assert!(Values::new(MAX_VALUE_BYTES + 1).is_err());
        assert_eq!(Values::new(0).unwrap().check(7, b""), Ok(0));
    }

    proptest! {
        #[test]
        fn every_flipped_bit_is_found(number: u64, version: u64, length in 1usize..600, at: usize) {
            let values = Values::new(length).unwrap();
            let mut value = values.buffer();
            values.fill(number, version, &mut value);
            prop_assert_eq!(value.len(), length);
            prop_assert!(values.check_version(number, version, &value).is_ok());
            let bit = at % (length * 8);
            value[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(values.check(number, &value).is_err());
        }

        #[test]
        fn an_older_version_is_found(number: u64, version in 1u64..1 << 32, length in VERSIONED_BYTES..100) {
            let values = Values::new(length).unwrap();
            let mut value = values.buffer();
            values.fill(number, version - 1, &mut value);
            prop_assert_eq!(values.check(number, &value), Ok(version - 1));
            prop_assert!(values.check_version(number, version, &value).is_err());
        }

        #[test]
        fn any_bytes_are_checked(number: u64, value: Vec<u8>, length in 0usize..64) {
            let _ = Values::new(length).unwrap().check(number, &value);
        }
    }
}
