//! Conditional batches, in one shard or in several (`docs/decisions/0038`).
//!
//! A batch whose writes and conditions concern one shard is judged there (`write::conditional`). Otherwise it is a
//! batch that crosses shards, even if it only asks. Each shard concerned reserves numbers for it, in its turn, so that
//! the batch has one place in the order of each. It is judged when everything before these places is inserted. In a
//! shard where it only asks, it writes a record that does nothing.
//!
//! # Invariants
//!
//! 1. A batch that waits at its places waits for writers with smaller numbers, which wait for none with larger ones.
//!    Batches that cross reserve one at a time, so two of them come in the same order in every shard, and no cycle
//!    forms.
//! 2. The gate of the [`Cut`](crate::tree::cut::Cut) is held meanwhile, for as long as such writers take to insert.

use crate::read::multi_get::Source;
use crate::sharding::router::{Router, make_all_durable, make_durable};
use crate::sharding::split::{Part, set_empty_marks, set_marks, split};
use crate::terms::{Error, Result};
use crate::tree::cut::Turn;
use crate::tree::shared::View;
use crate::work::shard::Shard;
use crate::work::stall::Pause;
use crate::write::batch::{WriteBatch, Writes};
use crate::write::conditional::{Conditions, Known, Verdict};
use crate::write::put::{Fill, Placed, Tried};
use forebay_base::SequenceNumber;
use std::sync::Arc;

impl Router {
    /// Writes a batch if its conditions hold. All of it becomes visible at once.
    ///
    /// # Errors
    /// `Conflict` when a condition does not hold: nothing was written. As for writes and reads.
    pub(crate) fn write_if(&self, batch: &WriteBatch, is_durable: bool) -> Result<()> {
        batch.check(self.order(), u64::MAX)?;
        if batch.databases().any(|database| database != self.address()) {
            return Err(Error::invalid("a condition names a snapshot of another database"));
        }
        let mut pause = Pause::default();
        loop {
            let assignment = self.assignment.load();
            if let Some(held) = &assignment.held
                && held.holds_any(self.order(), batch)?
            {
                self.wait_let_go(assignment)?;
                continue;
            }
            let (number, routing) = (assignment.number, Arc::clone(&assignment.routing));
            let mut parts = split(batch, &routing)?;
            if let [part] = &parts[..] {
                let shard = self.shard(part.shard)?;
                part.check_bytes(shard.tree.remote.max_record_bytes())?;
                let tried = shard.try_write_if(part, conditions(part))?;
                drop(assignment);
                match tried {
                    Tried::Written(last) if is_durable => return make_durable(shard, last),
                    Tried::Written(_) => return Ok(()),
                    Tried::Ended(ended) => shard.switch(&ended, part.need(), &mut pause)?,
                }
                continue;
            }
            drop(assignment);
            parts.iter_mut().for_each(Part::write_something);
            self.mark(&mut parts, is_durable);
            if parts.is_empty() || self.write_across_if(&parts, number, is_durable)? {
                return Ok(());
            }
        }
    }

    /// Identifies the database.
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Writes the parts of a conditional batch according to assignment `number`. Returns whether it did; it does not if
    /// the assignment was replaced meanwhile, or if it cannot tell whether the conditions hold.
    fn write_across_if(&self, parts: &[Part<'_>], number: u64, is_durable: bool) -> Result<bool> {
        let mut pause = Pause::default();
        self.make_room_for(parts, &mut pause)?;
        let assignment = self.assignment.load();
        if assignment.number != number {
            return Ok(false);
        }
        let look = |part: &Part<'_>| {
            let shard = self.shard(part.shard)?;
            shard.look(&Source::of(&shard.tree, None)?, conditions(part))
        };
        let known = parts.iter().map(look).collect::<Result<Vec<_>>>()?;
        let attempt = Attempt { router: self, parts, known: &known, reserved: Vec::new(), placed: Vec::new() };
        let (verdict, placed) = attempt.run()?;
        drop(assignment);
        match verdict {
            Verdict::Holds if is_durable => make_all_durable(&placed)?,
            Verdict::Holds => {}
            Verdict::Unknown => return Ok(false),
            Verdict::Refused(error) => return Err(error),
        }
        Ok(true)
    }
}

fn conditions<'p>(part: &'p Part<'_>) -> Conditions<'p> {
    Conditions { shard: part.shard as u32, all: &part.conditions }
}

/// A try to write the parts of a conditional batch.
struct Attempt<'r, 'p> {
    router: &'r Router,
    parts: &'p [Part<'p>],
    known: &'p [Known],
    /// For each part that has its numbers: the view in which it got them, and the first one.
    reserved: Vec<(Arc<View>, SequenceNumber)>,
    placed: Vec<(&'r Shard, Placed)>,
}

impl<'r> Attempt<'r, '_> {
    fn run(mut self) -> Result<(Verdict, Vec<(&'r Shard, Placed)>)> {
        let crossing = self.router.cut.cross();
        let mut turn = Some(crossing.take_turn());
        let verdict = self.place(0, &mut turn).map_err(|error| Router::cannot_publish(&self.placed, error))?;
        drop(turn);
        self.placed.reverse();
        self.router.publish(crossing, self.parts, &self.placed);
        Ok((verdict, self.placed))
    }

    /// Reserves for the parts from `at` on, ends the turn, judges, and inserts, the last part first.
    fn place(&mut self, at: usize, turn: &mut Option<Turn<'_>>) -> Result<Verdict> {
        let Some(part) = self.parts.get(at) else {
            drop(turn.take());
            let first: Vec<_> = self.reserved.iter().map(|(_, first)| *first).collect();
            set_marks(self.parts, &first);
            return self.judge();
        };
        let shard = self.router.shard(part.shard)?;
        let mut verdict = Verdict::Unknown;
        let numbers = shard.place(part, &mut |view, first| {
            self.reserved.push((Arc::clone(view), first));
            verdict = self.place(at + 1, turn).inspect_err(|_| set_empty_marks(self.parts))?;
            Ok(if matches!(verdict, Verdict::Holds) { Fill::Records } else { Fill::Nothing })
        })?;
        self.placed.push((shard, numbers));
        Ok(verdict)
    }

    fn judge(&self) -> Result<Verdict> {
        for ((part, known), (view, first)) in self.parts.iter().zip(self.known).zip(&self.reserved) {
            let (shard, before) = (self.router.shard(part.shard)?, SequenceNumber(first.0 - 1));
            shard.tree.publication.wait_published(before);
            match shard.judge(view, before, conditions(part), known) {
                Verdict::Holds => {}
                other => return Ok(other),
            }
        }
        Ok(Verdict::Holds)
    }
}
