//! The write path (dLSM IV).
//!
//! ```text
//!   loop   view = load
//!          reserve in the active memtable: one fetch-and-add for bytes and sequence numbers
//!            Fits      write the records, link them, publish; return when published covers them
//!            Crossed   this memtable has ended: switch, again
//!            Full      the same; somebody else may switch first
//! ```
//!
//! No lock is taken unless the memtable has ended.

use crate::batch::Writes;
use crate::memory::Buffer;
use crate::planted::{Bug, planted};
use crate::shard::Shard;
use crate::{Error, Result};
use forebay_base::{Kind, SequenceNumber, Tag};
use forebay_memtable::{Reservation, Reserved};
use forebay_table::RangeTombstone;
use std::sync::Arc;

/// Looks for a new memtable before the lock is asked for.
const SPINS: u32 = 100;

impl Shard {
    /// Writes a batch. When this returns, every later read sees it.
    ///
    /// # Errors
    /// `Invalid` for keys, values or batches beyond the limits; `Full`, `Unavailable`, `Closed`.
    pub(crate) fn write(&self, writes: &impl Writes) -> Result<()> {
        writes.check(self.options.key_order, self.remote.max_record_bytes())?;
        while let Some(ended) = self.try_write(writes)? {
            self.switch(&ended, writes.need())?;
        }
        Ok(())
    }

    /// Writes a batch that was checked, if the active memtable has room for it; else returns that
    /// memtable, which has ended.
    ///
    /// # Errors
    /// As [`Shard::write`].
    #[inline]
    pub(crate) fn try_write(&self, writes: &impl Writes) -> Result<Option<Arc<Buffer>>> {
        self.check_open()?;
        let (count, bytes) = (writes.count(), writes.record_bytes());
        if count == 0 {
            return Ok(None);
        }
        let view = self.view.load();
        if view.active.is_reserve && !writes.frees() {
            self.leave_reserve(&view.active)?;
            return Ok(Some(Arc::clone(&view.active)));
        }
        match view.active.memtable.reserve(count, bytes)? {
            Reserved::Fits(reservation) => {
                if planted(Bug::PublishBeforeInsert) {
                    self.publication.publish(reservation.next_sequence(), reservation.last_sequence());
                    return self.fill(&view.active, reservation, writes).map(|_| None);
                }
                let placed = self.fill(&view.active, reservation, writes)?;
                self.publication.publish(placed.first, placed.last);
                self.publication.wait_published(placed.last);
                return Ok(None);
            }
            Reserved::Crossed(_) => {}
            Reserved::Full => {
                let mut round = 0;
                while round < SPINS && !view.is_replaced() {
                    forebay_env::sync::relax(&mut round);
                }
            }
        }
        Ok(Some(Arc::clone(&view.active)))
    }

    /// Reserves numbers for a batch that was checked, runs `reserved`, and inserts the batch, without
    /// publishing it and without waiting for background work: the numbers behind it wait for the
    /// caller.
    ///
    /// # Errors
    /// `Io` when there is no memory; what `reserved` gives: then nobody writes to this shard any more.
    pub(crate) fn place(&self, writes: &impl Writes, reserved: &mut dyn FnMut() -> Result<()>) -> Result<Placed> {
        loop {
            let view = self.view.load();
            if let Reserved::Fits(reservation) = view.active.memtable.reserve(writes.count(), writes.record_bytes())? {
                reserved().inspect_err(|error| self.failed(error.clone()))?;
                return self.fill(&view.active, reservation, writes);
            }
            let ended = Arc::clone(&view.active);
            drop(view);
            self.switch_now(&ended, writes.record_bytes())?;
        }
    }

    fn fill(&self, active: &Buffer, mut reservation: Reservation<'_>, writes: &impl Writes) -> Result<Placed> {
        let placed = Placed { first: reservation.next_sequence(), last: reservation.last_sequence() };
        let filled = writes.for_each(|kind, key, value| {
            let inserted = reservation.insert(kind, key, value, None)?;
            if kind == Kind::RangeDelete {
                let tag = Tag::new(inserted.sequence, kind, false);
                delete_range(active, RangeTombstone { start: key.to_vec(), end: value.to_vec(), tag });
            }
            Ok(())
        });
        if let Err(error) = filled {
            // Numbers without records can never be published: nobody may write any more.
            let error: Error = error.during("writing to a memtable");
            self.failed(error.clone());
            return Err(error);
        }
        Ok(placed)
    }
}

/// The numbers of records that are inserted and not published yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) first: SequenceNumber,
    pub(crate) last: SequenceNumber,
}

/// Notes a range deletion, before its number is published.
#[cold]
fn delete_range(active: &Buffer, deletion: RangeTombstone) {
    active.range_deletions.add(deletion);
    if active.range_deletions.is_full() {
        // The next writer finds that it has ended, and switches.
        let _ = active.memtable.end_early();
    }
}
