//! What the shards of a database share in their background work.

use crate::plan::ledger::Ledger;
use crate::work::bell::Bell;
use forebay_env::sync::{Mutex, MutexGuard, lock};
use std::sync::Arc;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Common {
    /// Wakes the background threads.
    pub(crate) bell: Bell,
    /// Wakes the thread that tends the logs.
    pub(crate) log_bell: Bell,
    /// Rings when a memtable was sealed that the log in storage lacks, if that log is written at intervals.
    pub(crate) sealed: Arc<Bell>,
    ledger: Mutex<Ledger>,
}

impl Common {
    /// The ledger of the database's remote memory.
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }
}
