//! A pinned moment of a database.

use crate::sharding::router::{Moment, Pins, Router};
use crate::terms::{Error, Result};
use crate::write::batch::WriteBatch;
use crate::write::condition::{Demand, Past};
use forebay_base::SequenceNumber;
use std::sync::Arc;

/// A moment of the database. Reads through it see exactly what had been written by then; of a
/// batch, all or nothing.
pub struct Snapshot {
    pins: Arc<Pins>,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Snapshot").field(&self.sequence_numbers()).finish()
    }
}

impl Snapshot {
    /// Pins the present moment of the database of `router`.
    pub(crate) fn new(router: &Arc<Router>) -> Self {
        Self { pins: Arc::new(router.pin()) }
    }

    /// The published sequence number that the snapshot reads at in each shard.
    #[must_use]
    pub fn sequence_numbers(&self) -> &[SequenceNumber] {
        &self.pins.moment.numbers
    }

    /// The moment, for reads of the database of `router`.
    pub(crate) fn moment_of(&self, router: &Arc<Router>) -> Result<&Moment> {
        if self.pins.are_of(router) {
            Ok(&self.pins.moment)
        } else {
            Err(Error::invalid("the snapshot is of another database"))
        }
    }
}

impl WriteBatch {
    /// The batch is written only if nobody has written `key` since the snapshot, and its value, if it had one, has not
    /// expired. So a batch that requires this of all keys that were read through a snapshot is a transaction. Deletions and
    /// range deletions count as writes. When a bound between shards has moved, the condition may fail although nobody
    /// wrote the key. See [`WriteBatch::require_absent`].
    ///
    /// The batch keeps the snapshot's moment until it is cleared or dropped.
    pub fn require_unchanged(&mut self, key: &[u8], snapshot: &Snapshot) -> &mut Self {
        let moment = &snapshot.pins.moment;
        let shard = moment.routing.owner(key);
        let past = Past { shard: shard as u32, number: moment.number(shard), time_ms: moment.time_ms };
        self.hold(snapshot.pins.database(), Arc::clone(&snapshot.pins) as _);
        self.require(key, Demand::Unchanged(past))
    }
}
