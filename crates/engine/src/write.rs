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
use crate::shard::Shard;
use crate::{Error, Result};
use forebay_base::{Kind, Tag};
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
        self.check_open()?;
        writes.check(self.options.key_order, self.remote.max_record_bytes())?;
        let (count, bytes) = (writes.count(), writes.record_bytes());
        if count == 0 {
            return Ok(());
        }
        loop {
            let view = self.view.load();
            match view.active.memtable.reserve(count, bytes)? {
                Reserved::Fits(reservation) => return self.fill(&view.active, reservation, writes),
                Reserved::Crossed(_) => {}
                Reserved::Full => {
                    let mut round = 0;
                    while round < SPINS && !view.is_replaced() {
                        forebay_env::sync::relax(&mut round);
                    }
                }
            }
            let ended = Arc::clone(&view.active);
            drop(view);
            self.switch(&ended, bytes)?;
        }
    }

    fn fill(&self, active: &Buffer, mut reservation: Reservation<'_>, writes: &impl Writes) -> Result<()> {
        let (first, last) = (reservation.next_sequence(), reservation.last_sequence());
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
        self.publication.publish(first, last);
        self.publication.wait_published(last);
        Ok(())
    }
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
