//! A key's value with what the database knows of the write that set it.

use forebay_base::SequenceNumber;

/// Names the write that gave a key its value. Two reads of a key that find the same stamp find the same write, within
/// one process that has the database open: a bound that moves gives the keys that move new stamps, and a process that
/// ends may leave numbers to its successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp {
    pub(crate) shard: u32,
    pub(crate) sequence: SequenceNumber,
}

impl Stamp {
    /// The shard that the key belonged to.
    #[must_use]
    pub const fn shard(self) -> usize {
        self.shard as usize
    }

    /// The write's sequence number in that shard.
    #[must_use]
    pub const fn sequence(self) -> SequenceNumber {
        self.sequence
    }
}

/// A key's value, its stamp and its expiry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The value.
    pub value: Vec<u8>,
    /// Names the write that set the value.
    pub stamp: Stamp,
    /// Until when the key has the value, in milliseconds since 1970; `None` for no end.
    pub expiry_ms: Option<u64>,
}
