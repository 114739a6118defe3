//! What a shard does next in the background, and why its writers wait: events in, commands out.
//!
//! ```text
//!   events     sealed ▪ flushed ▪ compacted ▪ committed ▪ failed ▪ room reported ▪ asked to compact
//!                                     │
//!                                  Planner ◄── Scene: the tree as it stands, and the time
//!                                     │
//!   commands   flush these memtables ▪ compact this ▪ a writer waits, pauses, or is refused
//! ```
//!
//! Memtables are flushed by one flush at a time, oldest first, so level 0 stays in order. Compactions that share no
//! table run beside that and beside each other.

use crate::plan::manual::{self, ManualCompaction, Step};
use crate::plan::picker::{Cursors, Pick, Picker};
use crate::plan::room::{PATIENCE_NANOS, Room, RoomPace};
use crate::terms::routing::KeyRange;
use crate::terms::statistics::StallCause;
use crate::terms::{Error, Options};
use forebay_base::{ErrorKind, KeyOrder};
use forebay_table::{TableId, Version};
use std::collections::BTreeSet;
use std::time::Duration;

/// How often background work is tried again before it has failed for good.
const MAX_RETRIES: u32 = 5;
/// Nanoseconds before background work is tried again.
const RETRY_PAUSE: u64 = 50_000_000;
/// Nanoseconds before background work that storage refused is tried again.
const STORAGE_PAUSE: u64 = 200_000_000;

/// What decisions are made by, beside what the planner knows.
pub(crate) struct Scene<'a> {
    pub(crate) options: &'a Options,
    pub(crate) version: &'a Version,
    /// How often scans crossed a table.
    pub(crate) crossings: &'a dyn Fn(TableId) -> u32,
    /// Bytes of each sealed memtable, newest first.
    pub(crate) sealed: &'a [u64],
    /// Clock of the options, nanoseconds.
    pub(crate) now: u64,
}

/// Something to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// The oldest so many sealed memtables become a table.
    Flush {
        memtables: usize,
    },
    Compact(Compaction),
}

/// A compaction to be done.
#[derive(Debug)]
pub(crate) struct Compaction {
    pub(crate) pick: Pick,
    step_of: Option<StepOf>,
}

/// The compaction that somebody asked for and that another one is a step of: its number, and how it stood before.
#[derive(Debug)]
struct StepOf {
    number: u64,
    before: ManualCompaction,
}

/// What a writer needs of the memtable that it waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    /// Bytes of records.
    pub(crate) bytes: u64,
    /// It only deletes.
    pub(crate) frees: bool,
}

impl Need {
    /// Nothing: a memtable is only to be ended.
    pub(crate) const NOTHING: Self = Self { bytes: 0, frees: true };
}

/// Whether a writer that needs a memtable gets one.
#[derive(Debug)]
pub(crate) enum Admission {
    /// It does. A reserve memtable takes only deletions.
    Install { is_reserve: bool },
    /// It waits, for this cause.
    Wait(StallCause),
    /// It waited for memory in vain, or would wait for storage that refuses what it is asked.
    Refuse(Error),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Planner {
    /// Background work failed for good: every later write fails with this.
    pub(crate) failure: Option<Error>,
    /// Background work found the memory node full, and none has succeeded since.
    full: Option<Error>,
    /// Storage refuses what background work asks of it, and none has succeeded since.
    storage: Option<Error>,
    /// When the flush that did is tried again, if one did.
    flush_again_at: Option<u64>,
    /// What room the memory node has left.
    room: Room,
    room_pace: RoomPace,
    /// Since when memory is short, and nothing was found that may free some, or has failed since.
    hopeless_since: Option<u64>,
    /// Tables whose compaction found no room since background work last succeeded.
    too_large: BTreeSet<TableId>,
    /// When these are tried again at the earliest.
    large_from: u64,
    /// What the compactions under way may write.
    output_bytes: u64,
    flushing: bool,
    /// Compactions under way, and the tables that they work on.
    compactions: usize,
    busy: BTreeSet<TableId>,
    /// The compaction that somebody asked for, if one goes on.
    manual: Option<ManualCompaction>,
    /// How many were asked for.
    manuals: u64,
    cursors: Cursors,
    /// Nothing is to be tried again before this time.
    retry_at: u64,
    /// Failures since background work last succeeded that another try may mend.
    retries: u32,
}

/// What is known.
impl Planner {
    /// Whether a flush is under way.
    pub(crate) const fn is_flushing(&self) -> bool {
        self.flushing
    }

    /// How many compactions are under way.
    pub(crate) const fn compactions(&self) -> usize {
        self.compactions
    }

    /// The room that was reported, less what was given out since.
    pub(crate) const fn room(&self) -> Room {
        self.room
    }

    /// Why background work waits for storage, if it does.
    pub(crate) const fn storage_failure(&self) -> Option<&Error> {
        self.storage.as_ref()
    }

    /// Whether what may free memory is due, whatever it costs.
    pub(crate) fn is_short(&self) -> bool {
        self.full.is_some() || self.room.is_none()
    }

    /// Whether memory is short, and for a while nothing was found that may free some.
    fn is_hopeless(&self, now: u64) -> bool {
        self.is_short() && self.hopeless_since.is_some_and(|since| now.saturating_sub(since) >= PATIENCE_NANOS)
    }

    /// Why a writer is refused: memory is short, and for a while nothing was found that may free some, nor is it
    /// tried just now. Deletions are refused only when their flush failed too.
    pub(crate) fn given_up(&self, frees: bool, now: u64) -> Option<Error> {
        let is_refused = self.is_hopeless(now) && self.compactions == 0 && (!frees || self.flush_again_at.is_some());
        is_refused.then(|| {
            let why = self.full.as_ref().map(|full| format!(" ({full})")).unwrap_or_default();
            let advice = "delete something, which is still accepted, or use a memory node with more memory";
            Error::new(ErrorKind::Full, format!("the memory node is full{why}: {advice}"))
        })
    }

    /// Whether nothing is left to be flushed or compacted.
    pub(crate) fn is_quiet(&self, scene: &Scene<'_>) -> bool {
        let is_idle = scene.sealed.is_empty() && !self.flushing && self.compactions == 0 && self.manual.is_none();
        is_idle && pick(&self.picker(scene, &self.busy), &mut self.cursors.clone()).is_none()
    }

    fn picker<'a>(&self, scene: &Scene<'a>, busy: &'a BTreeSet<TableId>) -> Picker<'a> {
        let memtables = if self.full.is_some() { 0 } else { self.room.memtables };
        Picker::new(scene.version, scene.options, busy, scene.crossings, Room { memtables, ..self.room })
    }
}

/// Events.
impl Planner {
    /// A memtable took the place of one that was sealed. Returns how long its writer pauses for want of room.
    pub(crate) fn sealed(&mut self, need: Need, options: &Options) -> Duration {
        let room = self.room;
        self.room.take_memtable(options.write_buffer_bytes as u64);
        if need.frees { Duration::ZERO } else { self.room_pace.pause(room) }
    }

    /// A flush has ended; `is_full` when it found no memory.
    pub(crate) fn flushed(&mut self, is_full: bool, now: u64) {
        self.flushing = false;
        if is_full {
            self.flush_again_at = Some(now.saturating_add(RETRY_PAUSE));
        }
    }

    /// A compaction has ended: well, or with an error of this kind.
    pub(crate) fn compacted(&mut self, compaction: Compaction, failed: Option<ErrorKind>, order: KeyOrder) {
        let Compaction { pick, step_of } = compaction;
        self.compactions -= 1;
        self.output_bytes -= pick.output_bytes();
        for (_, table) in &pick.inputs {
            self.busy.remove(&table.id);
        }
        if failed == Some(ErrorKind::Full) {
            self.too_large.extend(pick.chosen());
        }
        if failed.is_some() {
            self.take_again(order, step_of);
        }
    }

    /// A change of the version was committed, by a flush or not.
    pub(crate) fn committed(&mut self, by_flush: bool) {
        self.storage = None;
        self.full = None;
        self.flush_again_at = None;
        self.hopeless_since = None;
        self.too_large.clear();
        self.retries = 0;
        if by_flush {
            self.cursors.begin_moves();
        }
    }

    /// Background work failed. A full memory node is not for good, and what another try may mend is tried again.
    pub(crate) fn failed(&mut self, error: Error, may_retry: bool, now: u64) {
        if error.kind() == ErrorKind::Full {
            tracing::warn!(%error, "the memory node is full; background work waits");
            self.full = Some(error);
        } else if self.retries < MAX_RETRIES && may_retry {
            tracing::warn!(%error, "background work is tried again");
            self.retries += 1;
            self.retry_at = now.saturating_add(RETRY_PAUSE);
        } else if self.failure.is_none() {
            self.failure = Some(error);
        }
    }

    /// Storage refused what background work asked of it. Reads go on, and writes until memtables are full. When the cause is
    /// gone, so does everything else.
    pub(crate) fn storage_failed(&mut self, error: Error, now: u64) {
        tracing::warn!(%error, "background work waits for storage");
        self.retry_at = now.saturating_add(STORAGE_PAUSE);
        // Busy: the same may go at the next try.
        self.storage = (error.kind() != ErrorKind::Busy).then_some(error);
    }

    /// The memory node has so much room, of which `installed` memtables have theirs. Returns whether there is some
    /// again where there was none.
    pub(crate) fn room_reported(&mut self, room: Room, installed: u64) -> bool {
        let was_none = self.room.is_none();
        self.room = Room { memtables: room.memtables.saturating_sub(installed), ..room };
        let is_back = was_none && !self.room.is_none();
        if is_back {
            self.hopeless_since = None;
        }
        is_back
    }

    /// Somebody asks for a compaction of a range, which is to drop what expired before a time, in milliseconds since 1970.
    /// Returns its number; `None` while another one goes on.
    pub(crate) fn asked_to_compact(&mut self, range: KeyRange<'_>, expire_before_ms: u64) -> Option<u64> {
        if self.manual.is_some() {
            return None;
        }
        let (lower, upper) = (range.lower.map(<[u8]>::to_vec), range.upper.map(<[u8]>::to_vec));
        self.manual = Some(ManualCompaction { lower, upper, expire_before_ms, ..ManualCompaction::default() });
        self.manuals += 1;
        Some(self.manuals)
    }

    /// Nobody waits for the compaction that was asked for any more: it does not go on.
    pub(crate) fn asked_no_more(&mut self) {
        self.manual = None;
    }

    /// Whether a compaction that was asked for goes on.
    pub(crate) const fn is_asked(&self) -> bool {
        self.manual.is_some()
    }

    /// Whether the compaction of this number, which was asked for, goes on. No two run at once.
    pub(crate) fn goes_on(&self, number: u64) -> bool {
        self.manual.is_some() && self.manuals <= number
    }
}

/// Commands.
impl Planner {
    /// Whether nothing is to be begun: work has failed, or failed a moment ago.
    fn rests(&self, now: u64) -> bool {
        self.failure.is_some() || now < self.retry_at
    }

    /// Which memtables to flush now. Where the memory node is full, compactions come first, as they may make the room
    /// that a flush needs.
    pub(crate) fn next_flush(&mut self, scene: &Scene<'_>, is_behind_compactions: bool) -> Option<Command> {
        let is_early = self.flush_again_at.is_some_and(|at| scene.now < at);
        let is_its_turn = self.full.is_some() == is_behind_compactions;
        if self.rests(scene.now) || self.flushing || is_early || !is_its_turn || scene.sealed.is_empty() {
            return None;
        }
        // Short of memory each is flushed by itself.
        let is_plenty = self.room.is_plenty() && self.full.is_none();
        let most_bytes = if is_plenty { scene.options.target_table_bytes } else { 0 };
        self.flushing = true;
        Some(Command::Flush { memtables: joined(scene.sealed, most_bytes) })
    }

    /// What to compact now.
    pub(crate) fn next_compaction(&mut self, scene: &Scene<'_>) -> Option<Command> {
        if self.rests(scene.now) {
            return None;
        }
        let busy = self.busy.union(&self.too_large).copied().collect();
        let picker = self.picker(scene, &busy);
        // What somebody asked for comes first, but without room what may make some: a step of the other may need a lot.
        let picked = match picker.room.is_none() {
            true => pick(&picker, &mut self.cursors).map(unasked).or_else(|| self.next_step(&picker)),
            false => self.next_step(&picker).or_else(|| pick(&picker, &mut self.cursors).map(unasked)),
        };
        let Some(compaction) = picked else {
            self.found_nothing(scene.now);
            return None;
        };
        // Beside others only what there is room for; alone it may try.
        let bytes = compaction.pick.output_bytes();
        if self.compactions > 0 && self.output_bytes.saturating_add(bytes) > picker.room.scratch_bytes {
            self.take_again(scene.options.key_order, compaction.step_of);
            return None;
        }
        self.room.take_outputs(bytes, scene.options.write_buffer_bytes as u64);
        self.compactions += 1;
        self.output_bytes += bytes;
        self.busy.extend(compaction.pick.inputs.iter().map(|(_, table)| table.id));
        Some(Command::Compact(compaction))
    }

    /// Whether a writer gets another memtable.
    pub(crate) fn admit(&self, scene: &Scene<'_>, need: Need) -> Admission {
        let level0 = scene.version.level(0).len();
        let cause = if scene.sealed.len() >= scene.options.max_immutable_memtables {
            StallCause::Memtables
        } else if level0 >= scene.options.level0_stop_trigger
            && !scene.options.bulk_load
            // What would make level 0 smaller has no memory: what only deletes is let in, and its flush tells.
            && !(need.frees && self.is_hopeless(scene.now))
        {
            StallCause::Level0Stop
        } else if self.room.is_none() && !need.frees {
            StallCause::MemoryFull
        } else {
            return Admission::Install { is_reserve: self.room.is_none() };
        };
        let refused = self.storage.clone().or_else(|| self.given_up(need.frees, scene.now));
        refused.map_or(Admission::Wait(cause), Admission::Refuse)
    }

    /// The next step of the compaction that somebody asked for, if one goes on and can.
    fn next_step(&mut self, picker: &Picker<'_>) -> Option<Compaction> {
        let manual = self.manual.as_mut()?;
        let before = manual.clone();
        match manual::next(picker, manual) {
            Step::Do(pick) => Some(Compaction { pick, step_of: Some(StepOf { number: self.manuals, before }) }),
            Step::Wait => None,
            Step::Done => {
                self.manual = None;
                None
            }
        }
    }

    /// Has a step that was not done be taken again, if the compaction that it belongs to still goes on.
    fn take_again(&mut self, order: KeyOrder, step_of: Option<StepOf>) {
        if let (Some(manual), Some(StepOf { number, before })) = (&mut self.manual, step_of)
            && number == self.manuals
        {
            manual.go_back(order, before);
        }
    }

    fn found_nothing(&mut self, now: u64) {
        if self.is_short() && self.compactions == 0 {
            let since = *self.hopeless_since.get_or_insert(now);
            // What found no room may find some now: readers have let go of theirs, perhaps. It is hopeless still,
            // until something has succeeded.
            if now.saturating_sub(since) >= PATIENCE_NANOS && now >= self.large_from {
                self.too_large.clear();
                self.large_from = now.saturating_add(PATIENCE_NANOS);
            }
        }
    }
}

const fn unasked(pick: Pick) -> Compaction {
    Compaction { pick, step_of: None }
}

/// What to compact without being asked: nothing during a bulk load, unless memory is short.
fn pick(picker: &Picker<'_>, cursors: &mut Cursors) -> Option<Pick> {
    if picker.options.bulk_load && !picker.room.is_none() { None } else { picker.pick(cursors) }
}

/// How many memtables a flush takes: the oldest, and as many more as its table holds.
fn joined(sealed: &[u64], target_table_bytes: u64) -> usize {
    let mut sum = 0u64;
    let fits = |bytes: &&u64| {
        sum = sum.saturating_add(**bytes);
        sum <= target_table_bytes
    };
    sealed.iter().rev().take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests;
