//! What a workload needs of a store, and what a store tells about itself.

use forebay_base::ErrorKind;
use forebay_fabric::Counts;

/// A failure of a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    /// What the caller must do.
    pub kind: ErrorKind,
    /// The error's text.
    pub message: String,
}

impl StoreError {
    /// An error of this kind and text.
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
    /// The store's.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError>;
    /// Deletes one record, whether or not it is there.
    ///
    /// # Errors
    /// The store's.
    fn delete(&self, key: &[u8]) -> Result<(), StoreError>;
    /// Writes records that become visible together.
    ///
    /// # Errors
    /// The store's.
    fn put_batch(&self, records: &[(&[u8], &[u8])]) -> Result<(), StoreError>;
    /// The value of a key.
    ///
    /// # Errors
    /// The store's.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
    /// Hands the value of a key to `found`, without a copy where the store can. Returns what that
    /// gave.
    ///
    /// # Errors
    /// The store's.
    fn get_with<T>(&self, key: &[u8], found: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
        Ok(self.get(key)?.map(|value| found(&value)))
    }
    /// The values of several keys, in their order.
    ///
    /// # Errors
    /// The store's.
    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError>;
    /// A cursor over the store as it is now, at no record yet.
    ///
    /// # Errors
    /// The store's.
    fn cursor(&self) -> Result<Self::Cursor<'_>, StoreError>;
    /// Hands at most `limit` records from `from` on to `visit`, in key order, until that says no.
    ///
    /// # Errors
    /// The store's.
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
    /// Merges all tables of all levels, and returns when it is done.
    ///
    /// # Errors
    /// The store's.
    fn compact(&self) -> Result<(), StoreError>;
    /// Returns when no flush and no compaction is due.
    ///
    /// # Errors
    /// The store's.
    fn wait_for_compactions(&self) -> Result<(), StoreError>;
    /// What the store has counted since it was opened, and how large it is.
    ///
    /// # Errors
    /// The store's.
    fn figures(&self) -> Result<Figures, StoreError>;
    /// The store's own account of itself, for people.
    ///
    /// # Errors
    /// The store's.
    fn describe(&self) -> Result<String, StoreError>;
    /// Ends the store for all its handles, after writing what it holds back and is to outlive it.
    ///
    /// # Errors
    /// The store's, when something of that is lost.
    fn close(&self) -> Result<(), StoreError>;
}

/// A position in a store's keys.
pub trait Cursor {
    /// Goes to the first record.
    ///
    /// # Errors
    /// The store's.
    fn seek_to_first(&mut self) -> Result<(), StoreError>;
    /// Goes to the first record whose key is not below `key`.
    ///
    /// # Errors
    /// The store's.
    fn seek(&mut self, key: &[u8]) -> Result<(), StoreError>;
    /// Goes to the next record.
    ///
    /// # Errors
    /// The store's.
    fn next(&mut self) -> Result<(), StoreError>;
    /// Key and value of the record it is at, if it is at one.
    fn entry(&self) -> Option<(&[u8], &[u8])>;
}

/// What a store has counted since it was opened, and its sizes now.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Figures {
    /// Fabric operations that callers waited for.
    pub foreground: Counts,
    /// Fabric operations of flushes, compactions and upkeep.
    pub background: Counts,
    /// Size of the cached indexes now, bytes.
    pub cached_index_bytes: u64,
    /// Size of the memtables now, bytes.
    pub memtable_bytes: u64,
    /// The memory nodes' figures.
    pub memory_node: MemoryNodeFigures,
    /// The LSM engine's figures, if it is one.
    pub lsm: Option<LsmFigures>,
}

/// What memory nodes tell, summed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MemoryNodeFigures {
    /// Processor time since their start, seconds.
    pub cpu_seconds: f64,
    /// Memory handed out now, bytes.
    pub allocated_bytes: u64,
    /// The part of it that a version names, bytes.
    pub live_bytes: u64,
}

/// What an LSM engine has counted since it was opened, and its levels now.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LsmFigures {
    /// Time that writers waited for a flush or a compaction, seconds.
    pub stall_seconds: f64,
    /// How often they did.
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
    /// Bytes of records known to be dead, now.
    pub dead_bytes_known: u64,
    /// The levels now, from level 0.
    pub levels: Vec<LevelFigures>,
}

/// A level of an LSM tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LevelFigures {
    /// Its tables.
    pub tables: u64,
    /// Its runs: records in key order in one segment.
    pub runs: u64,
    /// Bytes of its tables and the records they name.
    pub bytes: u64,
}
