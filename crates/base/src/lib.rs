//! What every other crate of Forebay agrees on: the record format, sequence numbers, logical
//! addresses, key order, coding of bytes, and the kinds of errors. No I/O, no unsafe code.

#![forbid(unsafe_code)]

pub mod address;
pub mod coding;
pub mod error;
pub mod order;
pub mod record;
pub mod sequence;

pub use address::{LogicalAddress, SegmentId};
pub use coding::{DecodeError, Reader, Writer};
pub use error::ErrorKind;
pub use order::{InternalKey, KeyOrder};
pub use record::{Record, RecordError, RecordHeader};
pub use sequence::{Kind, SequenceNumber, Tag};

/// CRC32C (Castagnoli) of `bytes`.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// CRC32C of the concatenation of what `checksum` already covers and `bytes`.
#[must_use]
pub fn checksum_append(checksum: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(checksum, bytes)
}

/// Largest key, in bytes.
pub const MAX_KEY_BYTES: usize = 64 << 10;
/// Largest value, in bytes.
pub const MAX_VALUE_BYTES: usize = 64 << 20;
