//! What a database counts.

use forebay_fabric::Counts;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of a database since it was opened, and its shape now.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Statistics {
    /// Fabric operations that callers waited for.
    pub foreground: Counts,
    /// Fabric operations of flushes, compactions and upkeep.
    pub background: Counts,
    /// Nanoseconds that writers waited for flushes and compactions, summed over writers.
    pub stall_nanos: u64,
    /// How often a writer waited.
    pub stalls: u64,
    /// Memtables flushed.
    pub flushes: u64,
    /// Compactions done, wherever.
    pub compactions: u64,
    /// Those of them that the memory node did.
    pub near_data_compactions: u64,
    /// How often the memory node refused one.
    pub refused_compactions: u64,
    /// Index entries that compactions read.
    pub compaction_entries: u64,
    /// Bytes that compactions read over the fabric. Of one that the memory node did: its reply.
    pub compaction_bytes_read: u64,
    /// Bytes that compactions wrote over the fabric. Of one that the memory node did: its arguments.
    pub compaction_bytes_written: u64,
    /// Bytes of records that are known to be dead and are not freed yet.
    pub dead_bytes_known: u64,
    /// Bytes of the cached indexes of tables.
    pub cached_index_bytes: u64,
    /// Bytes of memtables, sealed ones included.
    pub memtable_bytes: u64,
    /// Bytes that this database holds in memory nodes.
    pub remote_bytes: u64,
    /// Bytes of records that tables reference.
    pub live_bytes: u64,
    /// The levels, level 0 first.
    pub levels: Vec<LevelStatistics>,
}

/// One level of the tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LevelStatistics {
    /// Tables.
    pub tables: u64,
    /// Clustered runs.
    pub runs: u64,
    /// Bytes of records that the level's tables reference.
    pub bytes: u64,
    /// Index entries.
    pub entries: u64,
}

/// Counters that any thread adds to.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) stall_nanos: AtomicU64,
    pub(crate) stalls: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) near_data_compactions: AtomicU64,
    pub(crate) refused_compactions: AtomicU64,
    pub(crate) compaction_entries: AtomicU64,
    pub(crate) compaction_bytes_read: AtomicU64,
    pub(crate) compaction_bytes_written: AtomicU64,
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Reads a counter.
pub(crate) fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
