//! What opening a database found.

use forebay_base::SequenceNumber;

/// What opening a named database found of what earlier processes left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// The epoch of this owner in storage; zero without storage.
    pub epoch: u64,
    /// The shards in order.
    pub shards: Vec<ShardRecovery>,
    /// Number of logs in storage that were read. Logs in memory are not counted here, nor below.
    pub logs: u64,
    /// Bytes of records in them, also of those that tables hold.
    pub log_bytes: u64,
    /// Groups of them that were whole.
    pub log_groups: u64,
    /// What was cut from the ends of logs in storage: bytes that were never acknowledged, and why the first of them do not
    /// count.
    pub cuts: Vec<LogCut>,
    /// Segments that the memory nodes still held, and those that were read from storage, with their bytes.
    pub segments_held: u64,
    /// See `segments_held`.
    pub segments_loaded: u64,
    /// See `segments_held`.
    pub bytes_loaded: u64,
    /// Objects in storage that no version named.
    pub objects_swept: u64,
}

/// What opening found of a shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardRecovery {
    /// Tables held everything up to this number.
    pub flushed: SequenceNumber,
    /// Tables and log held everything up to this number. What was written after it is lost.
    pub last: SequenceNumber,
}

/// The end of a log in storage that does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogCut {
    /// The file or object.
    pub object: String,
    /// Bytes that do not count.
    pub bytes: u64,
    /// What is wrong with them.
    pub cause: String,
}

impl Recovery {
    /// Number of records that are in the logs only, and were written to memtables again.
    #[must_use]
    pub fn replayed(&self) -> u64 {
        self.shards.iter().map(|shard| shard.last.0.saturating_sub(shard.flushed.0)).sum()
    }
}
