//! A memtable with the registered memory behind it.

use crate::terms::{Error, Options, Result};
use crate::tree::range_deletions::MemtableDeletions;
use forebay_base::{ErrorKind, SequenceNumber};
use forebay_memtable::{BlockPool, Memtable, MemtableOptions, SealedBlock, SortedRecords};
use std::sync::Arc;

/// A memtable and the means to send its block over the fabric.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) memtable: Arc<Memtable>,
    pub(crate) block: SealedBlock,
    pub(crate) range_deletions: MemtableDeletions,
    /// Takes only deletions, because its flush has only what memtables leave to compactions.
    pub(crate) is_reserve: bool,
}

impl Buffer {
    /// An empty memtable based at `base`.
    ///
    /// # Errors
    /// `Io` when there is no memory.
    pub(crate) fn allocate(
        pool: &Arc<BlockPool>,
        options: &Options,
        base: SequenceNumber,
        capacity_bytes: usize,
        is_reserve: bool,
    ) -> Result<Arc<Self>> {
        let capacity_bytes = capacity_bytes.next_multiple_of(8);
        let range_deletions = MemtableDeletions::new(options.key_order);
        let (memory, block) = pool.take(capacity_bytes)?;
        let options = MemtableOptions {
            order: options.key_order,
            base,
            capacity_bytes,
            piece_bytes: MemtableOptions::DEFAULT_PIECE_BYTES,
        };
        let memtable = Arc::new(Memtable::of_pool(options, Box::new(memory), pool.lookups())?);
        Ok(Arc::new(Self { memtable, block, range_deletions, is_reserve }))
    }

    /// Whether each number of a complete memtable is that of a range deletion.
    pub(crate) fn only_deletes_ranges(&self) -> bool {
        let (base, last) = (self.memtable.base(), self.memtable.last_sequence());
        last.is_some_and(|last| last.0 - base.0 == self.range_deletions.count() as u64)
    }

    /// The records of a complete memtable in key order, range deletions included.
    ///
    /// # Errors
    /// `Invalid` when it is not complete.
    pub(crate) fn sorted(&self) -> Result<SortedRecords<'_>> {
        let incomplete = || Error::new(ErrorKind::Invalid, "a memtable is flushed before it is complete");
        self.memtable.sorted()?.ok_or_else(incomplete)
    }
}
