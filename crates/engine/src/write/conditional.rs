//! Conditional writes: a batch that is written only if conditions hold at its place in the order of writes
//! (`docs/decisions/0038`).
//!
//! ```text
//!   look       the keys of the conditions, as of the present: a condition that fails ends the call
//!   reserve    numbers f … l, in each shard that the batch writes or asks about
//!   wait       until f − 1 is published: everything before f is inserted, and nothing can come before f any more
//!   judge      the conditions at f − 1, from memtables and what the look found in tables
//!   insert     the batch if they hold, or records that do nothing, which take the same numbers and bytes
//!   publish    f … l
//! ```
//!
//! Others write as usual, without a lock. A writer that reserves later numbers waits for these to be published, as it
//! does for any slow writer. Nothing waits for the fabric between reservation and publication.
//!
//! # Invariants
//!
//! 1. The judgement is that of the state just before `f`. Every record with a smaller number was inserted, and no later
//!    one is looked at.
//! 2. What the look found in tables counts only while the version is the same: whatever was written meanwhile is then in
//!    memtables of the view. Otherwise nothing is written, and the call begins again.
//! 3. Whatever happens after the reservation, the numbers are filled and published.

use crate::read::found::{Found, KeyState};
use crate::read::get::in_memtables;
use crate::read::multi_get::{Source, fetch};
use crate::terms::planted::{Bug, planted};
use crate::terms::time::ReadTime;
use crate::terms::{Error, Result};
use crate::tree::shared::View;
use crate::tree::version::LiveVersion;
use crate::work::shard::Shard;
use crate::write::batch::Writes;
use crate::write::condition::{Condition, Demand};
use crate::write::put::{Fill, Tried};
use forebay_base::SequenceNumber;
use forebay_memtable::Reserved;
use std::sync::Arc;

/// Conditions on keys of one shard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Conditions<'a> {
    /// The shard's number.
    pub(crate) shard: u32,
    pub(crate) all: &'a [&'a Condition],
}

/// What was known of the conditions' keys before anything was reserved.
#[derive(Debug)]
pub(crate) struct Known {
    version: Arc<LiveVersion>,
    states: Vec<KeyState>,
}

/// Whether a batch may be written at its numbers.
#[derive(Debug)]
pub(crate) enum Verdict {
    Holds,
    /// It cannot be told without the fabric: begin again.
    Unknown,
    /// A condition does not hold, or memory was overwritten.
    Refused(Error),
}

impl Shard {
    /// Reads the keys of conditions, and checks the conditions.
    ///
    /// # Errors
    /// `Conflict`; as for reads.
    pub(crate) fn look(&self, source: &Source<'_>, conditions: Conditions<'_>) -> Result<Known> {
        let keys: Vec<_> = conditions.all.iter().map(|condition| &condition.key[..]).collect();
        let state = |found: Found<'_>| found.state();
        let mut states = fetch(std::slice::from_ref(source), &keys, |_| 0, usize::MAX, &state)?;
        for (condition, state) in conditions.all.iter().zip(&mut states) {
            if let (true, Demand::Unchanged(past)) = (state.merges, condition.demand) {
                // A merged value changes when the value expires that its operands apply to.
                state.expiry_ms = source.base_expiry_ms(&condition.key, ReadTime::At(past.time_ms))?;
            }
            condition.check(conditions.shard, *state, ReadTime::Now(&self.tree.time))?;
        }
        Ok(Known { version: Arc::clone(&source.view().version), states })
    }

    /// Judges conditions at `number`, up to which everything is published, in a view that was taken before a later
    /// number was reserved in it.
    pub(crate) fn judge(
        &self,
        view: &View,
        number: SequenceNumber,
        conditions: Conditions<'_>,
        known: &Known,
    ) -> Verdict {
        if planted(Bug::JudgeBeforeReserved) {
            return Verdict::Holds;
        }
        for (condition, state) in conditions.all.iter().zip(&known.states) {
            let state = match in_memtables(view, &condition.key, number) {
                // A merged value was looked up as a whole.
                Ok(Some(found)) => Some(found.state()).filter(|now| now.newest != state.newest).unwrap_or(*state),
                Ok(None) if Arc::ptr_eq(&view.version, &known.version) => *state,
                Ok(None) => return Verdict::Unknown,
                Err(error) => return Verdict::Refused(error),
            };
            if let Err(error) = condition.check(conditions.shard, state, ReadTime::Now(&self.tree.time)) {
                return Verdict::Refused(error);
            }
        }
        Verdict::Holds
    }

    /// Writes a checked batch if the conditions, all on keys of this shard, hold, and if the active memtable has room
    /// for it. Without writes, it only checks the conditions, as of the present.
    ///
    /// # Errors
    /// `Conflict`; as [`Shard::write`] and for reads.
    pub(crate) fn try_write_if(&self, writes: &impl Writes, conditions: Conditions<'_>) -> Result<Tried> {
        loop {
            let source = Source::of(&self.tree, None)?;
            let known = self.look(&source, conditions)?;
            let (count, bytes, view) = (writes.count(), writes.record_bytes(), source.view());
            if count == 0 {
                return Ok(Tried::Written(SequenceNumber::ZERO));
            }
            if view.active.is_reserve && !writes.frees() {
                let reserve = Arc::clone(&view.active);
                drop(source);
                self.leave_reserve(&reserve)?;
                return Ok(Tried::Ended(reserve));
            }
            let Reserved::Fits(reservation) = view.active.memtable.reserve(count, bytes)? else {
                return Ok(Tried::Ended(Arc::clone(&view.active)));
            };
            let before = SequenceNumber(reservation.next_sequence().0 - 1);
            self.tree.publication.wait_published(before);
            let verdict = self.judge(view, before, conditions, &known);
            let fill = if matches!(verdict, Verdict::Holds) { Fill::Records } else { Fill::Nothing };
            let placed = self.fill(&view.active, reservation, writes, fill)?;
            self.tree.publication.publish(placed.first, placed.last);
            self.tree.publication.wait_published(placed.last);
            match verdict {
                Verdict::Holds => return Ok(Tried::Written(placed.last)),
                Verdict::Refused(error) => return Err(error),
                Verdict::Unknown => {}
            }
        }
    }
}
