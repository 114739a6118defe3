//! Memory for finding the records of a memtable: the log, and an ordered index that is filled on demand. Successive
//! memtables reuse the same memory, because committing fresh pages costs more than clearing used ones.

use crate::error::IndexError;
use crate::index::{Index, nodes_for};
use crate::log::Log;
use forebay_base::KeyOrder;

#[cfg(not(any(loom, shuttle)))]
use forebay_env::sync::{Mutex, lock};
#[cfg(not(any(loom, shuttle)))]
use std::sync::Arc;

/// Maximum number of idle entries in a pool.
#[cfg(not(any(loom, shuttle)))]
const MAX_IDLE: usize = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct Lookup {
    pub(crate) log: Log,
    pub(crate) ordered: Index,
}

impl Lookup {
    /// Memory for the records of a block of `capacity_bytes`.
    pub(crate) fn new(order: KeyOrder, capacity_bytes: usize) -> Result<Self, IndexError> {
        Ok(Self { log: Log::new(capacity_bytes), ordered: Index::new(order, nodes_for(capacity_bytes))? })
    }

    /// A placeholder without memory, for a memtable that gives its own back.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn without_memory(order: KeyOrder) -> Self {
        Self { log: Log::default(), ordered: Index::without_memory(order) }
    }
}

/// A pool of such memory for blocks of one size and one key order.
#[cfg(not(any(loom, shuttle)))]
#[derive(Debug)]
pub struct LookupPool {
    block_bytes: usize,
    idle: Mutex<Vec<Lookup>>,
}

#[cfg(not(any(loom, shuttle)))]
impl LookupPool {
    /// A pool for blocks of `block_bytes`.
    #[must_use]
    pub fn new(block_bytes: usize) -> Arc<Self> {
        Arc::new(Self { block_bytes, idle: Mutex::default() })
    }

    /// Empty memory for a block. Only blocks of the pool's own size have used memory.
    pub(crate) fn take(&self, order: KeyOrder, capacity_bytes: usize) -> Result<Lookup, IndexError> {
        let idle = if capacity_bytes == self.block_bytes { lock(&self.idle).pop() } else { None };
        match idle {
            Some(lookup) if lookup.ordered.order() == order => Ok(lookup),
            _ => Lookup::new(order, capacity_bytes),
        }
    }

    /// Takes memory back. At most `count` records were listed in it.
    pub(crate) fn give_back(&self, mut lookup: Lookup, capacity_bytes: usize, count: usize) {
        if capacity_bytes != self.block_bytes || lock(&self.idle).len() >= MAX_IDLE {
            return;
        }
        lookup.log.clear(count);
        if lookup.ordered.clear().is_ok() {
            lock(&self.idle).push(lookup);
        }
    }
}
