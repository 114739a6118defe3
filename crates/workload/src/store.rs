//! The interface between a workload and a store, and the figures that a store reports.

use crate::durable::{LogFigures, RecoveryFigures, StorageFigures};
use forebay_base::ErrorKind;
use forebay_fabric::Counts;

/// A failure of a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    /// The action that the caller must take.
    pub kind: ErrorKind,
    /// The error's text.
    pub message: String,
}

impl StoreError {
    /// An error of the given kind and text.
    pub fn new(kind: ErrorKind, message: impl std::fmt::Display) -> Self {
        Self { kind, message: message.to_string() }
    }
}

/// An ordered key-value store under test. A clone is another handle to the same store.
pub trait Store: Clone + Send + Sync + 'static {
    /// A position in the store's keys.
    type Cursor<'a>: Cursor
    where
        Self: 'a;

    /// Writes one record.
    ///
    /// # Errors
    /// Errors of the store.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError>;
    /// Deletes a record, which need not exist.
    ///
    /// # Errors
    /// Errors of the store.
    fn delete(&self, key: &[u8]) -> Result<(), StoreError>;
    /// Writes records that become visible together.
    ///
    /// # Errors
    /// Errors of the store.
    fn put_batch(&self, records: &[(&[u8], &[u8])]) -> Result<(), StoreError>;
    /// The value of a key.
    ///
    /// # Errors
    /// Errors of the store.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
    /// Passes the value of a key to `found`, without a copy where the store can. Returns the result
    /// of `found`.
    ///
    /// # Errors
    /// Errors of the store.
    fn get_with<T>(&self, key: &[u8], found: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
        Ok(self.get(key)?.map(|value| found(&value)))
    }
    /// The values of several keys, in their order.
    ///
    /// # Errors
    /// Errors of the store.
    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError>;
    /// A cursor over the current store, not at a record yet.
    ///
    /// # Errors
    /// Errors of the store.
    fn cursor(&self) -> Result<Self::Cursor<'_>, StoreError>;
    /// Passes at most `limit` records, starting at `from`, to `visit` in key order, until `visit`
    /// returns false.
    ///
    /// # Errors
    /// Errors of the store.
    fn scan(&self, from: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StoreError> {
        let mut cursor = self.cursor()?;
        cursor.seek(from)?;
        for number in 1..=limit {
            let more = cursor.entry().is_some_and(|(key, value)| visit(key, value));
            if !more || number == limit {
                break;
            }
            cursor.next()?;
        }
        Ok(())
    }
    /// Merges all tables of all levels. Returns when this is done.
    ///
    /// # Errors
    /// Errors of the store.
    fn compact(&self) -> Result<(), StoreError>;
    /// Returns when no flush and no compaction is due.
    ///
    /// # Errors
    /// Errors of the store.
    fn wait_for_compactions(&self) -> Result<(), StoreError>;
    /// The store's counts since it was opened, and its current sizes.
    ///
    /// # Errors
    /// Errors of the store.
    fn figures(&self) -> Result<Figures, StoreError>;
    /// The store's own statistics, for people.
    ///
    /// # Errors
    /// Errors of the store.
    fn describe(&self) -> Result<String, StoreError>;
    /// Closes the store for all its handles, after writing buffered data that must outlive it.
    ///
    /// # Errors
    /// Errors of the store, when some of that data is lost.
    fn close(&self) -> Result<(), StoreError>;
}

/// A position in a store's keys.
pub trait Cursor {
    /// Goes to the first record.
    ///
    /// # Errors
    /// Errors of the store.
    fn seek_to_first(&mut self) -> Result<(), StoreError>;
    /// Goes to the first record whose key is not below `key`.
    ///
    /// # Errors
    /// Errors of the store.
    fn seek(&mut self, key: &[u8]) -> Result<(), StoreError>;
    /// Goes to the next record.
    ///
    /// # Errors
    /// Errors of the store.
    fn next(&mut self) -> Result<(), StoreError>;
    /// Key and value of the current record, if there is one.
    fn entry(&self) -> Option<(&[u8], &[u8])>;
}

/// A store's counts since it was opened, and its current sizes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Figures {
    /// Fabric operations that callers waited for.
    pub foreground: Counts,
    /// Fabric operations of flushes, compactions and upkeep.
    pub background: Counts,
    /// Current size of the cached indexes in bytes.
    pub cached_index_bytes: u64,
    /// Current size of the memtables in bytes.
    pub memtable_bytes: u64,
    /// The memory nodes' figures.
    pub memory_node: MemoryNodeFigures,
    /// The LSM engine's figures, if it is one.
    pub lsm: Option<LsmFigures>,
    /// What was done to storage, if the store has one.
    pub storage: Option<StorageFigures>,
    /// The log of writes, if the store has one.
    pub log: Option<LogFigures>,
    /// What opening the store found, if it outlives processes.
    pub recovery: Option<RecoveryFigures>,
}

/// Figures of the memory nodes, summed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MemoryNodeFigures {
    /// Processor time since their start in seconds.
    pub cpu_seconds: f64,
    /// Memory allocated now in bytes.
    pub allocated_bytes: u64,
    /// The part of it that is in use, in bytes: what a version names, or the nodes and values of a tree.
    pub live_bytes: u64,
}

/// An LSM engine's counts since it was opened, and its current levels.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LsmFigures {
    /// Seconds that writers waited for a flush or a compaction.
    pub stall_seconds: f64,
    /// Number of waits.
    pub stalls: u64,
    /// Memtables flushed.
    pub flushes: u64,
    /// Compactions done.
    pub compactions: u64,
    /// Index entries that compactions read.
    pub compaction_entries: u64,
    /// Bytes that compactions read.
    pub compaction_bytes_read: u64,
    /// Bytes that compactions wrote.
    pub compaction_bytes_written: u64,
    /// Bytes of records known to be dead now.
    pub dead_bytes_known: u64,
    /// Lookups of keys in tables whose point indexes were not held.
    pub lookups: LookupFigures,
    /// The levels now, from level 0.
    pub levels: Vec<LevelFigures>,
}

/// Lookups of keys in tables whose point indexes were not held, and who did them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LookupFigures {
    /// Messages to memory nodes that asked for lookups.
    pub messages: u64,
    /// Keys that memory nodes looked up.
    pub delegated: u64,
    /// Keys that were looked up by reading because that was judged to cost less.
    pub read: u64,
    /// Records read at addresses that earlier lookups had learnt.
    pub learnt: u64,
}

/// A level of an LSM tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LevelFigures {
    /// Number of tables.
    pub tables: u64,
    /// Number of runs: records in key order in one segment.
    pub runs: u64,
    /// Bytes of its tables and the records they name.
    pub bytes: u64,
}
