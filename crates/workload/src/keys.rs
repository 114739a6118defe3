//! Keys that represent numbers, as in db_bench.
//!
//! ```text
//! key size 8 or more: the number (u64, big-endian), then `0` characters up to the key size
//! key size below 8:   the number's low bytes, big-endian
//! ```
//!
//! The order of keys is the order of numbers.

use crate::Error;
use forebay_base::MAX_KEY_BYTES;

const PADDING: u8 = b'0';
const NUMBER_BYTES: usize = 8;

/// A buffer for one key at a time. Making a key allocates nothing.
#[derive(Debug, Clone)]
pub struct KeyBuffer {
    bytes: Vec<u8>,
}

impl KeyBuffer {
    /// A buffer for keys of `key_size` bytes that represent numbers below `count`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the size is out of range or too small for this many keys.
    pub fn new(key_size: usize, count: u64) -> Result<Self, Error> {
        if key_size == 0 || key_size > MAX_KEY_BYTES {
            return Err(Error::Invalid(format!("key size {key_size}: 1 to {MAX_KEY_BYTES} bytes are possible")));
        }
        if key_size < NUMBER_BYTES && count > 1 << (8 * key_size) {
            return Err(Error::Invalid(format!(
                "key size {key_size} is too small for {count} keys: make it larger, {NUMBER_BYTES} suffice for any"
            )));
        }
        Ok(Self { bytes: vec![PADDING; key_size] })
    }

    /// The key of `number`.
    #[inline]
    pub fn set(&mut self, number: u64) -> &[u8] {
        let digits = number.to_be_bytes();
        match self.bytes.first_chunk_mut() {
            Some(head) => *head = digits,
            None => {
                let skipped = NUMBER_BYTES - self.bytes.len();
                self.bytes.copy_from_slice(&digits[skipped..]);
            }
        }
        &self.bytes
    }

    /// The number that `key` represents, if it is a key of this size.
    #[must_use]
    pub fn number_of(&self, key: &[u8]) -> Option<u64> {
        if key.len() != self.bytes.len() {
            return None;
        }
        let (head, padding) = key.split_at(key.len().min(NUMBER_BYTES));
        let number = head.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        padding.iter().all(|&byte| byte == PADDING).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_keys() {
        assert_eq!(KeyBuffer::new(12, 1 << 40).unwrap().set(258), b"\0\0\0\0\0\0\x01\x020000");
        assert_eq!(KeyBuffer::new(2, 1 << 16).unwrap().set(258), b"\x01\x02");
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        for (size, count) in [(0, 1), (MAX_KEY_BYTES + 1, 1), (1, 257), (3, 1 << 25)] {
            assert!(KeyBuffer::new(size, count).is_err(), "{size} {count}");
        }
        assert!(KeyBuffer::new(1, 256).is_ok());
    }

    proptest! {
        #[test]
        fn order_is_numeric_and_numbers_come_back(a: u64, b: u64, size in 8usize..40) {
            let mut buffer = KeyBuffer::new(size, u64::MAX).unwrap();
            let (first, second) = (buffer.set(a).to_vec(), buffer.set(b).to_vec());
            prop_assert_eq!(first.cmp(&second), a.cmp(&b));
            prop_assert_eq!(buffer.number_of(&first), Some(a));
            prop_assert_eq!(buffer.number_of(&first[1..]), None);
        }

        #[test]
        fn any_bytes_decode(key: Vec<u8>) {
            let _ = KeyBuffer::new(16, 1).unwrap().number_of(&key);
        }
    }
}
