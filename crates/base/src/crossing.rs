//! The mark of a batch that crosses shards. It names the shards that have a part of the batch, and the last sequence number
//! of each part. Each part begins with a record of kind [`Crossing`](crate::Kind::Crossing), whose value is the mark.
//!
//! ```text
//!  offset  size  field
//!  0       1     version, 1
//!  1       2     number of parts
//!  3       12    for each part: shard (u32), last sequence number (u64)
//! ```
//!
//! All integers are little-endian. The record carries the checksum. Purpose and golden test:
//! `docs/formats/crossing-mark.md`.

use crate::coding::{DecodeError, Reader, Writer};
use crate::sequence::SequenceNumber;

const VERSION: u8 = 1;
const PART_BYTES: usize = 12;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CrossingMark {
    /// The shards, and the last number of the batch in each.
    pub parts: Vec<(u32, SequenceNumber)>,
}

impl CrossingMark {
    /// Length in bytes of a mark of `parts` parts.
    #[must_use]
    pub const fn encoded_length(parts: usize) -> usize {
        3 + PART_BYTES * parts
    }

    /// The mark as bytes. There are at most 65,535 parts.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::encoded_length(self.parts.len()));
        out.put_u8(VERSION);
        out.put_u16(u16::try_from(self.parts.len()).unwrap_or(u16::MAX));
        for (shard, last) in &self.parts {
            out.put_u32(*shard);
            out.put_u64(last.0);
        }
        out
    }

    /// Decodes a mark.
    ///
    /// # Errors
    /// [`DecodeError`] for another version, and for bytes that are too few or too many.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8()?;
        if version != VERSION {
            return Err(DecodeError::BadValue { what: "version of a crossing mark", found: version.into() });
        }
        let count = u16::from_le_bytes([reader.u8()?, reader.u8()?]);
        let left = bytes.len().saturating_sub(Self::encoded_length(0));
        if left != usize::from(count) * PART_BYTES {
            return Err(DecodeError::BadValue { what: "number of parts of a crossing mark", found: count.into() });
        }
        let part = |_| Ok((reader.u32()?, SequenceNumber(reader.u64()?)));
        Ok(Self { parts: (0..count).map(part).collect::<Result<_, DecodeError>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_mark() {
        let mark = CrossingMark { parts: vec![(2, SequenceNumber(0x0102)), (300, SequenceNumber(7))] };
        let bytes = [1, 2, 0, 2, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 44, 1, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(mark.encode(), bytes);
        assert_eq!(bytes.len(), CrossingMark::encoded_length(2));
        assert_eq!(CrossingMark::decode(&bytes), Ok(mark));
        assert!(CrossingMark::decode(&bytes[..26]).is_err());
        assert!(CrossingMark::decode(&[2, 0, 0]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_mark_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(mark) = CrossingMark::decode(&bytes) {
                prop_assert_eq!(mark.encode(), bytes);
            }
        }
    }
}
