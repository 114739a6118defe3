//! Logical addresses: the place of a record within a shard.

use std::fmt;

/// A segment of a shard: contiguous remote memory that holds records or a table's index. Its number
/// is never reused within a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u64);

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {}", self.0)
    }
}

/// The place of a record: a segment and an offset in it. The segment map of a version resolves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogicalAddress {
    /// The segment.
    pub segment: SegmentId,
    /// Bytes from the segment's start; a multiple of [`crate::record::ALIGNMENT`].
    pub offset: u64,
}

impl fmt::Display for LogicalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.segment, self.offset)
    }
}
