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

use crate::terms::planted::{Bug, instead_when_planted};
use crate::terms::routing::KeyRange;
use crate::terms::{Error, Result};
use crate::tree::buffer::Buffer;
use crate::tree::shared::View;
use crate::work::shard::Shard;
use crate::work::stall::Pause;
use crate::write::batch::{Write, WriteBatch, Writes};
use bytes::Bytes;
use forebay_base::{Kind, Record, SequenceNumber, Tag};
use forebay_memtable::{Reservation, Reserved};
use forebay_table::RangeTombstone;
use std::sync::Arc;

/// How often to look for a new memtable before asking for the lock.
const SPINS: u32 = 100;

impl Shard {
    /// Writes a batch. When this returns, every later read sees it. Returns its last number.
    ///
    /// # Errors
    /// `Invalid` for keys, values or batches beyond the limits; `Full`, `Unavailable`, `Closed`.
    pub(crate) fn write(&self, writes: &impl Writes) -> Result<SequenceNumber> {
        writes.check(self.tree.options.key_order, self.tree.remote.max_record_bytes())?;
        let mut pause = Pause::default();
        loop {
            match self.try_write(writes)? {
                Tried::Written(last) => return Ok(last),
                Tried::Ended(ended) => self.switch(&ended, writes.need(), &mut pause)?,
            }
        }
    }

    /// Writes what an earlier owner logged and no table holds, under the same numbers. Returns whether all of its keys
    /// are in a range.
    ///
    /// # Errors
    /// As [`Shard::write`]; `Corrupt` when the numbers differ.
    pub(crate) fn replay(&self, records: Vec<Bytes>, range: KeyRange<'_>) -> Result<bool> {
        let (order, mut all_in_range) = (self.tree.options.key_order, true);
        let mut batch = WriteBatch::new();
        // A piece's memory is given back before the next one is written.
        for piece in records {
            let mut rest = &piece[..];
            while !rest.is_empty() {
                let (record, header) = Record::decode_unverified(rest)?;
                rest = rest.get(header.padded_length()..).unwrap_or_default();
                all_in_range &= record.tag.kind().is_void() || range.contains(order, record.key);
                let goes_on = record.tag.goes_on();
                if goes_on || !batch.is_empty() {
                    batch.add(Write::of(&record));
                }
                if goes_on {
                    continue;
                }
                let last = if batch.is_empty() { self.write(&Write::of(&record)) } else { self.write(&batch) }?;
                if last != record.tag.sequence() {
                    let (found, number) = (last.0, record.tag.sequence().0);
                    return Err(Error::corrupt(format!("number {number} of the log became number {found}")));
                }
                batch.clear();
            }
        }
        Ok(all_in_range)
    }

    /// Writes a checked batch if the active memtable has room for it.
    ///
    /// # Errors
    /// As [`Shard::write`].
    #[inline]
    pub(crate) fn try_write(&self, writes: &impl Writes) -> Result<Tried> {
        self.tree.check_open()?;
        let (count, bytes) = (writes.count(), writes.record_bytes());
        if count == 0 {
            return Ok(Tried::Written(SequenceNumber::ZERO));
        }
        let view = self.tree.view.load();
        if view.active.is_reserve && !writes.frees() {
            let reserve = Arc::clone(&view.active);
            drop(view);
            self.leave_reserve(&reserve)?;
            return Ok(Tried::Ended(reserve));
        }
        match view.active.memtable.reserve(count, bytes)? {
            Reserved::Fits(reservation) => {
                instead_when_planted!(Bug::PublishBeforeInsert, self.publish_and_fill(&view, reservation, writes));
                let placed = self.fill(&view.active, reservation, writes, Fill::Records)?;
                self.tree.publication.publish(placed.first, placed.last);
                self.tree.publication.wait_published(placed.last);
                return Ok(Tried::Written(placed.last));
            }
            Reserved::Crossed(_) => {}
            Reserved::Full => {
                let mut round = 0;
                while round < SPINS && !view.is_replaced() {
                    forebay_env::sync::relax(&mut round);
                }
            }
        }
        Ok(Tried::Ended(Arc::clone(&view.active)))
    }

    /// Reserves numbers for a checked batch, runs `reserved` with the view and the first number, and inserts what
    /// `reserved` says. Neither publishes it nor waits for background work: later numbers wait for the caller.
    ///
    /// # Errors
    /// `Io` when there is no memory; `Closed`; the error of `reserved`. Then the numbers are published, with records that do
    /// nothing: later numbers wait for nobody.
    pub(crate) fn place(
        &self,
        writes: &impl Writes,
        reserved: &mut dyn FnMut(&Arc<View>, SequenceNumber) -> Result<Fill>,
    ) -> Result<Placed> {
        loop {
            let view = self.tree.view.load();
            if let Reserved::Fits(reservation) = view.active.memtable.reserve(writes.count(), writes.record_bytes())? {
                let fill = reserved(&view, reservation.next_sequence());
                let placed = self.fill(&view.active, reservation, writes, *fill.as_ref().unwrap_or(&Fill::Nothing))?;
                if let Err(error) = fill {
                    self.tree.publication.publish(placed.first, placed.last);
                    return Err(error);
                }
                return Ok(placed);
            }
            let ended = Arc::clone(&view.active);
            drop(view);
            self.switch_now(&ended, writes.need())?;
        }
    }

    /// A planted bug: publishes a write's numbers before its records are inserted.
    #[cold]
    fn publish_and_fill(&self, view: &View, reservation: Reservation<'_>, writes: &impl Writes) -> Result<Tried> {
        self.tree.publication.publish(reservation.next_sequence(), reservation.last_sequence());
        self.fill(&view.active, reservation, writes, Fill::Records).map(|placed| Tried::Written(placed.last))
    }

    /// Inserts a batch, or nothing, at reserved numbers.
    ///
    /// # Errors
    /// Only if memory was overwritten; nobody may write to this shard any more.
    pub(crate) fn fill(
        &self,
        active: &Buffer,
        mut reservation: Reservation<'_>,
        writes: &impl Writes,
        fill: Fill,
    ) -> Result<Placed> {
        let placed = Placed { first: reservation.next_sequence(), last: reservation.last_sequence() };
        let mut deletions = Vec::new();
        let filled = writes.for_each(|Write { kind, key, value, expiry_ms }| {
            let kind = if fill == Fill::Nothing { Kind::Nothing } else { kind };
            let inserted = reservation.insert(kind, key, value, expiry_ms)?;
            if kind == Kind::RangeDelete {
                let tag = Tag::new(inserted.sequence, kind, false);
                deletions.push(Arc::new(RangeTombstone { start: key.to_vec(), end: value.to_vec(), tag }));
            }
            Ok(())
        });
        if let Err(error) = filled {
            // Numbers without records can never be published, so nobody may write any more.
            let error: Error = error.during("writing to a memtable");
            self.failed(error.clone());
            return Err(error);
        }
        if !deletions.is_empty() {
            delete_ranges(active, deletions);
        }
        Ok(placed)
    }
}

/// What to do with reserved numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    /// Insert the batch.
    Records,
    /// Insert as many records, of the same lengths, that do nothing.
    Nothing,
}

/// What became of a write.
pub(crate) enum Tried {
    /// It is published; this is its last number.
    Written(SequenceNumber),
    /// The active memtable, this one, has ended: install the next one.
    Ended(Arc<Buffer>),
}

/// The numbers of records that are inserted but not published yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) first: SequenceNumber,
    pub(crate) last: SequenceNumber,
}

/// Adds range deletions before their numbers are published.
#[cold]
fn delete_ranges(active: &Buffer, deletions: Vec<Arc<RangeTombstone>>) {
    active.range_deletions.add(deletions);
    if active.range_deletions.is_full() {
        // The next writer finds that the memtable has ended, and switches.
        let _ = active.memtable.end_early();
    }
}
