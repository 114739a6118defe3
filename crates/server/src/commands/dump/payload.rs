//! The bytes around a value.
//!
//! Described in `docs/formats/redis-dump.md`. It is Redis's format.
//!
//! ```text
//!   offset from the end  size
//!   …                          type 1 │ the value (see `values`)
//!   10                   2     version, little-endian: 10 is that of Redis 7.0
//!   8                    8     CRC-64 of all before it, with Redis's polynomial, little-endian
//! ```

use crc_fast::{CrcAlgorithm, checksum};

/// The version of Redis 7.0, which is written. Earlier ones are read.
const VERSION: u16 = 10;
const CHECKSUM: CrcAlgorithm = CrcAlgorithm::Crc64Redis;

/// Adds version and checksum to a value.
pub(in crate::commands) fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    let checksum = checksum(CHECKSUM, &bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Returns the value, if version and checksum are right.
pub(in crate::commands) fn open(bytes: &[u8]) -> Option<&[u8]> {
    let (rest, sum) = bytes.split_last_chunk::<8>()?;
    let (value, version) = rest.split_last_chunk::<2>()?;
    let is_right = u16::from_le_bytes(*version) <= VERSION && u64::from_le_bytes(*sum) == checksum(CHECKSUM, rest);
    is_right.then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_a_dump() {
        let bytes = seal(b"\x00\x03abc".to_vec());
        assert_eq!(bytes, b"\x00\x03abc\n\x00\xd9\xac0=Ar\xa2\xe2");
        assert_eq!(open(&bytes), Some(&b"\x00\x03abc"[..]));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(open(&damaged), None);
            assert_eq!(open(&bytes[..at]), None);
        }
    }
}
