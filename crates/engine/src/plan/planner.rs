//! What a shard does next in the background, and why its writers wait: events in, commands out.
//!
//! ```text
//!   events     flushed ▪ compacted ▪ committed ▪ recorded ▪ failed ▪ asked to compact
//!                                     │
//!                                  Planner ◄── Scene: the tree as it stands, and the time
//!                                     │    ◄─► Ledger: what memory there is, and who has reserved it
//!   commands   flush these memtables ▪ compact this ▪ a writer waits, pauses, or is refused
//! ```
//!
//! Memtables are flushed by one flush at a time, oldest first, so level 0 stays in order. Compactions that share no
//! table run beside that and beside each other. Tables of which nobody sees anything go first, without memory
//! (`docs/decisions/0092`). A compaction begins when the ledger has memory for what it may write. If it has not, the
//! next due compaction is tried. If none fits and no other one is under way, the first of them gets all the memory that
//! there is: it may take less than its bound.

use crate::plan::age::Age;
use crate::plan::lag::is_too_long;
use crate::plan::ledger::{Holder, Ledger, Reservation, Returns};
use crate::plan::manual::{self, ManualCompaction, Step};
use crate::plan::picker::{Cursors, Pick, Picker, Work};
use crate::plan::room::Room;
use crate::plan::settling::{Rest, may_settle};
use crate::plan::tiers::{Tier, is_in_memory};
use crate::terms::routing::KeyRange;
use crate::terms::statistics::StallCause;
use crate::terms::{Error, Options};
use forebay_base::{ErrorKind, KeyOrder, SequenceNumber};
use forebay_memtable::MAX_CAPACITY_BYTES;
use forebay_table::{TableId, TableMetadata, Version};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How often background work is tried again before it has failed for good.
const MAX_RETRIES: u32 = 5;
/// Nanoseconds before background work is tried again.
const RETRY_PAUSE: u64 = 50_000_000;
/// The assumed share of a flush's index before the first flush.
const FIRST_INDEX_SHARE: u64 = 128;
/// Bytes of records that a flush must have written for the share of its index to say something.
const LEAST_SAMPLE: u64 = 4096;
/// Nanoseconds before background work that storage refused is tried again.
const STORAGE_PAUSE: u64 = 200_000_000;

/// How long a writer waits while nothing known here returns memory: readers release what they pin, and the node cleans
/// what was freed.
const PATIENCE_NANOS: u64 = 500_000_000;
/// The same while databases are to give memory back to others: by default the node's lease, after which a database that
/// has not done so cannot.
const PATIENCE_WHEN_CALLED_NANOS: u64 = 10_000_000_000;
/// Tables that go in one step because they are hidden: the step's edit names each of them.
const MOST_DROPPED: usize = 256;
/// Compactions that are tried before it is clear that none fits.
const MOST_ASKED: usize = 16;

/// What decisions depend on, beside what the planner knows.
pub(crate) struct Scene<'a> {
    /// The shard in the ledger.
    pub(crate) holder: Holder,
    pub(crate) options: &'a Options,
    pub(crate) version: &'a Version,
    /// How often scans crossed a table.
    pub(crate) crossings: &'a dyn Fn(TableId) -> u32,
    /// The tables, with their levels, of which nobody sees anything: range deletions hide them.
    pub(crate) hidden: &'a dyn Fn() -> Vec<(u8, Arc<TableMetadata>)>,
    /// Bytes of each sealed memtable, newest first.
    pub(crate) sealed: &'a [u64],
    /// Bytes of the sealed memtables that the log in memory has: flushes do not write them again.
    pub(crate) logged: u64,
    /// Bytes that the active memtable may take, or has taken when it has ended.
    pub(crate) active: u64,
    /// Bytes of the active memtable that are written, or about to be.
    pub(crate) written: u64,
    /// Bytes of flushed memtables whose tables storage does not have, where it lags.
    pub(crate) unrecorded: u64,
    /// Where else compactions may run.
    pub(crate) near: Near,
    /// Clock of the options, nanoseconds.
    pub(crate) now: u64,
}

/// Where else compactions may run, with their outputs in the node's own part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Near {
    Nowhere,
    /// At the memory node, which does not reach the storage.
    MemoryNode,
    /// At executors, which reach the storage.
    Executors,
}

/// Something to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// The oldest `memtables` sealed memtables become a table.
    Flush {
        memtables: usize,
    },
    Compact(Compaction),
}

/// A compaction to be done.
#[derive(Debug)]
pub(crate) struct Compaction {
    pub(crate) pick: Pick,
    pub(crate) reservation: Reservation,
    step_of: Option<Box<StepOf>>,
}

impl Compaction {
    /// Whether this step settles the shard: nobody asked, and nothing is due. So it does not matter if it finds no
    /// memory.
    pub(crate) fn settles(&self) -> bool {
        settles(self.step_of.as_deref())
    }
}

/// The requested compaction that another one is a step of: its number, and its state before and after the step.
#[derive(Debug)]
struct StepOf {
    number: u64,
    before: ManualCompaction,
    after: ManualCompaction,
}

/// What a flush took, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Took {
    /// For records of its table.
    pub(crate) records: u64,
    /// For its index.
    pub(crate) index: u64,
    /// Of memory: none for records that the log has.
    pub(crate) memory: u64,
}

/// What a writer needs from the memtable that it waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    /// Bytes of records.
    pub(crate) bytes: u64,
    /// The write only deletes.
    pub(crate) frees: bool,
}

impl Need {
    /// Nothing: a memtable is only to be ended.
    pub(crate) const NOTHING: Self = Self { bytes: 0, frees: true };

    /// Capacity in bytes of a memtable for this need, where a memtable has `usual_bytes`. Others may come first and
    /// take half of those. Otherwise a write that fits only into an empty memtable would begin one memtable after
    /// another, and end each with hardly a record.
    pub(crate) fn capacity(self, usual_bytes: usize) -> u64 {
        let usual = usual_bytes as u64;
        let roomy = self.bytes.saturating_add(usual / 2).min(MAX_CAPACITY_BYTES);
        usual.max(self.bytes).max(roomy)
    }
}

/// Whether a writer that needs a memtable gets one.
#[derive(Debug)]
pub(crate) enum Admission {
    /// It gets one. A reserve memtable takes only deletions.
    Install { is_reserve: bool },
    /// It waits, for this cause.
    Wait(StallCause),
    /// It waited for memory in vain, or would wait for storage that refuses requests.
    Refuse(Error),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Planner {
    /// Background work failed for good: every later write fails with this.
    pub(crate) failure: Option<Error>,
    /// Background work found the memory node full, and none has succeeded since.
    full: Option<Error>,
    /// Storage refused requests of background work, which is to be tried again, and none has succeeded since.
    storage: Option<Error>,
    /// Storage refuses the tables that it lacks, and has not got them since.
    unrecorded: Option<Error>,
    /// When that is tried again.
    record_again_at: u64,
    /// Storage is getting them now. Memory comes back when it has them.
    recording: bool,
    /// When the flush that found no memory is tried again, if one did.
    flush_again_at: Option<u64>,
    /// What room the ledger left the shard when it was last asked.
    room: Room,
    /// Bytes of index that the last flush took for 1,024 bytes of records. If records get smaller, the first index over
    /// them takes more than was reserved, and takes it from the reserve.
    index_share: Option<u64>,
    /// Since when memory is short and nothing was found that may return some.
    stuck_since: Option<u64>,
    /// Memory that one database has lent to another is called back, as of the last look.
    is_called: bool,
    /// Tables whose compaction the ledger has no memory for, until some is returned.
    denied: BTreeSet<TableId>,
    /// Tables whose compaction found less memory than the ledger held, until background work succeeds.
    failed: BTreeSet<TableId>,
    /// There was no memory to record that hidden tables go, until background work succeeds. They can still be merged.
    cannot_drop: bool,
    /// The most bytes that a picked compaction may take: half of what the last one found no memory for although the
    /// ledger held it, and twice as many after each success. Free memory may be in pieces that are too short. This
    /// bound holds until nothing is due that takes so little: collecting many segments together may give back memory,
    /// where collecting each of them would take some.
    found_bytes: Option<u64>,
    /// What has come back to the ledger, as of the last look.
    returns: Returns,
    /// No compaction is under way here, and none that is due could begin when it was last asked for.
    found_none: bool,
    flushing: bool,
    /// Compactions under way, and the tables that they work on.
    compactions: usize,
    busy: BTreeSet<TableId>,
    /// The compaction that was asked for, or that settles the shard, if one is under way.
    manual: Option<ManualCompaction>,
    /// How many such compactions there were.
    manuals: u64,
    rest: Rest,
    /// How long the active memtable has held something, and storage has lacked tables.
    active_age: Age,
    unrecorded_age: Age,
    cursors: Cursors,
    /// Nothing is to be tried again before this time.
    retry_at: u64,
    /// Failures since background work last succeeded that another try may overcome.
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

    /// The room that the ledger left when it was last asked.
    pub(crate) const fn room(&self) -> Room {
        self.room
    }

    /// Why background work waits for storage, if it does.
    pub(crate) fn storage_failure(&self) -> Option<&Error> {
        self.storage.as_ref().or(self.unrecorded.as_ref())
    }

    /// Whether storage may be given the tables that it lacks, after it refused them.
    pub(crate) const fn may_record(&self, now: u64) -> bool {
        self.failure.is_none() && now >= self.record_again_at
    }

    /// Whether storage refused the tables that it lacks, and has not got them since.
    pub(crate) const fn is_unrecorded(&self) -> bool {
        self.unrecorded.is_some()
    }

    /// Whether work that may free memory is due, whatever it costs.
    fn is_short(&self) -> bool {
        self.full.is_some() || self.room.is_none() || !self.denied.is_empty()
    }

    /// Whether memory is short, and for a while nothing was found that may return some.
    fn is_stuck(&self, now: u64) -> bool {
        let patience = if self.is_called { PATIENCE_WHEN_CALLED_NANOS } else { PATIENCE_NANOS };
        self.is_short()
            && !self.recording
            && self.stuck_since.is_some_and(|since| now.saturating_sub(since) >= patience)
    }

    /// Why a writer is refused: for a while nothing was found that may return memory, and nothing that does is under
    /// way. Deletions are refused only when their flush has also failed, and nothing has come back since.
    pub(crate) fn given_up(&self, frees: bool, now: u64) -> Option<Error> {
        let is_refused = self.is_stuck(now) && (!frees || self.flush_again_at.is_some() && self.found_none);
        is_refused.then(|| {
            let why = self.full.as_ref().map(|full| format!(" ({full})")).unwrap_or_default();
            let advice = "delete something, which is still accepted, or use a memory node with more memory";
            Error::new(ErrorKind::Full, format!("the memory node is full{why}: {advice}"))
        })
    }

    /// Whether nothing is left to be flushed or compacted, and the shard is settled.
    pub(crate) fn is_quiet(&self, scene: &Scene<'_>) -> bool {
        let is_idle = scene.sealed.is_empty() && !self.flushing && self.compactions == 0 && self.manual.is_none();
        let picker = self.picker(scene, &self.busy);
        is_idle
            && self.hidden(scene).is_none()
            && pick(&picker, &mut self.cursors.clone()).is_none()
            && !self.rest.is_due(&picker)
    }

    /// The hidden tables that nothing works on. Those whose compaction found too little memory are among them: they go
    /// without any.
    fn hidden(&self, scene: &Scene<'_>) -> Option<Pick> {
        if self.cannot_drop {
            return None;
        }
        let mut tables = (scene.hidden)();
        tables.retain(|(_, table)| !self.busy.contains(&table.id));
        tables.truncate(MOST_DROPPED);
        (!tables.is_empty()).then(|| Pick::drop_all(tables))
    }

    fn picker<'a>(&self, scene: &Scene<'a>, busy: &'a BTreeSet<TableId>) -> Picker<'a> {
        let memtables = if self.full.is_some() { 0 } else { self.room.memtables };
        let scratch_bytes = self.room.scratch_bytes.min(self.found_bytes.unwrap_or(u64::MAX));
        Picker::new(scene.version, scene.options, busy, scene.crossings, Room { memtables, scratch_bytes, ..self.room })
    }
}

/// Events.
impl Planner {
    /// Looks at the shard's memory: the scene shows what its memtables need, and memory may have been returned.
    pub(crate) fn look(&mut self, scene: &Scene<'_>, ledger: &mut Ledger) {
        let installed = scene.sealed.iter().fold(scene.active, |sum, bytes| sum.saturating_add(*bytes));
        ledger.installed(scene.holder, self.with_index(installed).saturating_sub(scene.logged));
        let was_none = self.room.is_none();
        self.room = ledger.room(scene.holder, self.memtable_bytes(scene.options));
        self.is_called = ledger.is_called(scene.holder);
        let returns = ledger.returns(scene.holder);
        if returns != self.returns {
            self.denied.clear();
            self.found_none = false;
        }
        // While others run, what comes back may be what a failed compaction had taken.
        if returns.memory != self.returns.memory && !ledger.is_at_work(scene.holder) {
            self.failed.clear();
            self.cannot_drop = false;
        }
        self.returns = returns;
        if ledger.is_at_work(scene.holder) || was_none && !self.room.is_none() {
            self.stuck_since = None;
        }
    }

    /// What the flush of this many bytes of records takes.
    fn with_index(&self, bytes: u64) -> u64 {
        bytes.saturating_add(bytes / 1024 * self.index_share.unwrap_or(FIRST_INDEX_SHARE))
    }

    /// What the flush of a shard's first memtable is assumed to take.
    pub(crate) fn first_memtable_bytes(options: &Options) -> u64 {
        Self::default().memtable_bytes(options)
    }

    /// What the flush of a full memtable takes.
    fn memtable_bytes(&self, options: &Options) -> u64 {
        self.with_index(options.write_buffer_bytes as u64)
    }

    /// Notes that a memtable replaced a sealed one. Returns how long its writer pauses because room is short.
    pub(crate) fn sealed(&mut self, scene: &Scene<'_>, ledger: &mut Ledger, need: Need) -> Duration {
        self.rests_no_more();
        let pause = ledger.pause(scene.holder, self.memtable_bytes(scene.options), scene.now);
        if need.frees { Duration::ZERO } else { pause }
    }

    /// Notes that a flush has made a table.
    pub(crate) fn wrote(&mut self, holder: Holder, ledger: &mut Ledger, took: Took) {
        let Took { records, index, memory } = took;
        if records >= LEAST_SAMPLE {
            self.index_share = Some(index.saturating_mul(1024) / records);
        }
        ledger.flushed(holder, memory, records.saturating_add(index));
    }

    /// Notes that a flush has ended; `is_full` when memory nodes had no memory for it.
    pub(crate) fn flushed(&mut self, is_full: bool, now: u64) {
        self.flushing = false;
        if is_full {
            self.flush_again_at = Some(now.saturating_add(RETRY_PAUSE));
        }
    }

    /// Notes that a compaction has ended: well, or with this error.
    pub(crate) fn compacted(&mut self, compaction: Compaction, failed: Option<&Error>, order: KeyOrder) {
        let settles = compaction.settles();
        let Compaction { pick, step_of, reservation } = compaction;
        self.compactions -= 1;
        for (_, table) in &pick.inputs {
            self.busy.remove(&table.id);
        }
        let half = reservation.bytes / 2;
        match failed {
            Some(error) if settles && error.kind() == ErrorKind::Full => self.gives_up_settling(),
            // A smaller part is tried next, if there is one. If nothing was reserved, nobody knows how much memory
            // there is.
            Some(error)
                if error.is_of_full_memory()
                    && step_of.is_none()
                    && pick.has_parts()
                    && half > 0
                    && self.found_bytes.is_none_or(|found| half < found) =>
            {
                self.found_bytes = Some(half);
            }
            Some(error) => {
                if error.is_of_full_memory() && pick.work == Work::Drop {
                    self.cannot_drop = true;
                } else if error.is_of_full_memory() {
                    self.failed.extend(pick.chosen());
                }
                self.take_again(order, step_of.as_deref());
            }
            None => {
                self.found_bytes = self.found_bytes.and_then(|bytes| bytes.checked_mul(2));
                self.cursors.done(&pick);
            }
        }
    }

    /// Notes that a change of the version was committed, by a flush or not.
    pub(crate) fn committed(&mut self, by_flush: bool) {
        self.storage = None;
        self.full = None;
        self.flush_again_at = None;
        self.stuck_since = None;
        self.found_none = false;
        self.failed.clear();
        self.cannot_drop = false;
        self.denied.clear();
        self.retries = 0;
        if by_flush {
            self.cursors.begin_moves();
            self.rests_no_more();
        }
    }

    /// Notes that the shard was written to: it does not settle until it has rested again.
    fn rests_no_more(&mut self) {
        self.rest = Rest::default();
        self.pauses_settling();
    }

    /// Stops settling until the shard has rested again.
    fn pauses_settling(&mut self) {
        self.manual.take_if(|manual| manual.is_unasked);
    }

    /// Leaves the shard as it is until it is written to again.
    fn gives_up_settling(&mut self) {
        self.rest.end();
        self.pauses_settling();
    }

    /// Whether background work that fails now fails for good, whatever the cause.
    pub(crate) const fn has_tried_enough(&self) -> bool {
        self.retries >= MAX_RETRIES
    }

    /// Notes that background work is done elsewhere from now on: earlier failures do not count.
    pub(crate) const fn goes_elsewhere(&mut self) {
        self.retries = 0;
    }

    /// Notes that background work failed. A full memory node is not for good, and what another try may overcome is
    /// tried again.
    pub(crate) fn failed(&mut self, error: Error, may_retry: bool, now: u64) {
        if error.kind() == ErrorKind::Full {
            tracing::warn!(%error, "the memory node is full; background work waits");
            // It waits for memory now, whatever storage refused before.
            self.storage = None;
            self.full = Some(error);
        } else if !self.has_tried_enough() && may_retry {
            tracing::warn!(%error, "background work is tried again");
            self.retries += 1;
            self.retry_at = now.saturating_add(RETRY_PAUSE);
        } else if self.failure.is_none() {
            self.failure = Some(error);
        }
    }

    /// Notes that storage, or the register of copies, refused a request of background work. Reads continue, and writes
    /// do until memtables are full. When the cause is gone, everything else continues.
    pub(crate) fn storage_failed(&mut self, error: Error, now: u64) {
        tracing::warn!(%error, "background work waits for storage, or for the register of copies");
        self.retry_at = now.saturating_add(STORAGE_PAUSE);
        // Busy: the same request may succeed at the next try.
        self.storage = (error.kind() != ErrorKind::Busy).then_some(error);
    }

    /// Notes that storage is given the tables that it lacks.
    pub(crate) fn records(&mut self) {
        self.recording = true;
    }

    /// Notes that storage refused the tables. Work in memory continues until the log holds too much.
    pub(crate) fn not_recorded(&mut self, error: Error, now: u64) {
        tracing::warn!(%error, "tables reach storage later");
        self.record_again_at = now.saturating_add(STORAGE_PAUSE);
        // Busy: the same request may succeed at the next try.
        self.unrecorded = (error.kind() != ErrorKind::Busy).then_some(error);
    }

    /// Notes that storage has the tables, or that the attempt has ended.
    pub(crate) fn recorded(&mut self, has_them: bool) {
        self.recording = false;
        if has_them {
            self.unrecorded = None;
            self.record_again_at = 0;
            self.stuck_since = None;
        }
    }

    /// Takes a request to compact a range, and to drop what expired before a time, in milliseconds since 1970. Returns
    /// its number; `None` while another one is under way.
    pub(crate) fn asked_to_compact(&mut self, range: KeyRange<'_>, expire_before_ms: u64) -> Option<u64> {
        if self.manual.as_ref().is_some_and(|manual| !manual.is_unasked) {
            return None;
        }
        let (lower, upper) = (range.lower.map(<[u8]>::to_vec), range.upper.map(<[u8]>::to_vec));
        self.manual = Some(ManualCompaction { lower, upper, expire_before_ms, ..ManualCompaction::default() });
        self.manuals += 1;
        Some(self.manuals)
    }

    /// Ends the requested compaction, as nobody waits for it any more.
    pub(crate) fn asked_no_more(&mut self) {
        self.manual = None;
    }

    /// Whether a requested compaction is under way, or the shard settles.
    pub(crate) const fn is_asked(&self) -> bool {
        self.manual.is_some()
    }

    /// Whether the requested compaction of this number is under way. No two run at once.
    pub(crate) fn goes_on(&self, number: u64) -> bool {
        self.manual.is_some() && self.manuals <= number
    }
}

/// Commands.
impl Planner {
    /// Whether nothing may begin: work has failed, or failed a moment ago.
    fn rests(&self, now: u64) -> bool {
        self.failure.is_some() || now < self.retry_at
    }

    /// Whether the active memtable, which begins after `base`, is to be flushed although it is not full. Earlier ones
    /// come first.
    pub(crate) fn ends_active(&mut self, scene: &Scene<'_>, base: SequenceNumber) -> bool {
        self.active_age.is_over(scene.options, (base, scene.written), scene.now)
            && scene.sealed.is_empty()
            && self.failure.is_none()
            && self.full.is_none()
            && self.storage_failure().is_none()
    }

    /// Whether tables have waited long enough to reach storage, which lacks this many bytes of them up to this number.
    pub(crate) fn is_unrecorded_for_long(&mut self, options: &Options, lacks: (SequenceNumber, u64), now: u64) -> bool {
        self.unrecorded_age.is_over(options, lacks, now)
    }

    /// Which memtables to flush now. When the memory node is full, compactions come first, as they may make the room
    /// that a flush needs.
    pub(crate) fn next_flush(&mut self, scene: &Scene<'_>, is_behind_compactions: bool) -> Option<Command> {
        let is_early = self.flush_again_at.is_some_and(|at| scene.now < at);
        let is_its_turn = self.full.is_some() == is_behind_compactions;
        let waits = is_early || is_too_long(scene.options, scene.unrecorded);
        if self.rests(scene.now) || self.flushing || waits || !is_its_turn || scene.sealed.is_empty() {
            return None;
        }
        // When memory is short, each is flushed by itself.
        let is_plenty = self.room.is_plenty() && self.full.is_none();
        let most_bytes = if is_plenty { scene.options.target_table_bytes } else { 0 };
        self.flushing = true;
        Some(Command::Flush { memtables: joined(scene.sealed, most_bytes) })
    }

    /// What to compact now.
    pub(crate) fn next_compaction(&mut self, scene: &Scene<'_>, ledger: &mut Ledger) -> Option<Command> {
        if self.rests(scene.now) {
            return None;
        }
        self.look(scene, ledger);
        if !self.rest.look(scene.options, scene.now, scene.written) {
            self.pauses_settling();
        }
        // It takes no memory, moves nothing, and makes the compactions after it smaller.
        if let Some(pick) = self.hidden(scene)
            && let Some(reservation) = ledger.begin(scene.holder, 0, false)
        {
            return Some(self.begun(Compaction { pick, reservation, step_of: None }));
        }
        let mut denied = None;
        for _ in 0..MOST_ASKED {
            let Some((pick, step_of)) = self.next_pick(scene) else { break };
            let can_be_near = can_be_near(scene, &pick);
            if let Some(reservation) = ledger.begin(scene.holder, pick.output_bytes(scene.options), can_be_near) {
                return Some(self.begun(Compaction { pick, reservation, step_of }));
            }
            if settles(step_of.as_deref()) {
                self.gives_up_settling();
                continue;
            }
            self.denied.extend(pick.chosen());
            self.take_again(scene.options.key_order, step_of.as_deref());
            denied = denied.or(Some((pick, step_of)));
        }
        if ledger.is_at_work(scene.holder) {
            self.found_none = self.compactions == 0;
            return None;
        }
        if denied.is_none() && self.found_bytes.take().is_some() {
            return self.next_compaction(scene, ledger);
        }
        if let Some((pick, step_of)) = denied {
            let reservation = ledger.begin_with_all(scene.holder, can_be_near(scene, &pick));
            self.take_after_all(step_of.as_deref());
            return Some(self.begun(Compaction { pick, reservation, step_of }));
        }
        self.found_none = true;
        if scene.sealed.is_empty() {
            // Nothing is tried again, so nothing would show that storage serves again.
            self.storage = None;
        }
        self.found_nothing(scene.now);
        None
    }

    /// What is to be compacted, if there is memory for it.
    fn next_pick(&mut self, scene: &Scene<'_>) -> Option<(Pick, Option<Box<StepOf>>)> {
        let busy = [&self.denied, &self.failed].into_iter().flatten().chain(&self.busy).copied().collect();
        let picker = self.picker(scene, &busy);
        let unasked = |pick| (pick, None);
        // A requested compaction comes first. Without room, what may make room does: a step of the other may need a
        // lot.
        match picker.room.is_none() {
            true => pick(&picker, &mut self.cursors).map(unasked).or_else(|| self.next_step(&picker)),
            false => self
                .next_step(&picker)
                .or_else(|| pick(&picker, &mut self.cursors).map(unasked))
                .or_else(|| if self.begins_to_settle(&picker, scene.now) { self.next_step(&picker) } else { None }),
        }
    }

    /// Begins to settle, if that is due and nothing else is.
    fn begins_to_settle(&mut self, picker: &Picker<'_>, now: u64) -> bool {
        let is_idle =
            self.manual.is_none() && self.compactions == 0 && self.denied.is_empty() && self.failed.is_empty();
        let begins = is_idle && self.rest.is_due_at(picker, now);
        if begins {
            self.manual = Some(ManualCompaction { is_unasked: true, ..ManualCompaction::default() });
            self.manuals += 1;
        }
        begins
    }

    fn begun(&mut self, compaction: Compaction) -> Command {
        self.found_none = false;
        self.compactions += 1;
        self.busy.extend(compaction.pick.inputs.iter().map(|(_, table)| table.id));
        Command::Compact(compaction)
    }

    /// Whether a writer gets another memtable, which has then reserved its flush.
    pub(crate) fn admit(&mut self, scene: &Scene<'_>, ledger: &mut Ledger, need: Need) -> Admission {
        self.look(scene, ledger);
        let level0 = scene.version.level(0).len();
        let cause = if scene.sealed.len() >= scene.options.max_immutable_memtables {
            StallCause::Memtables
        } else if level0 >= scene.options.level0_stop_trigger
            && !scene.options.bulk_load
            // There is no memory to make level 0 smaller: a write that only deletes is let in, and its flush tells.
            && !(need.frees && self.is_stuck(scene.now))
        {
            StallCause::Level0Stop
        } else {
            let bytes = self.with_index(need.capacity(scene.options.write_buffer_bytes));
            let is_admitted = ledger.admit(scene.holder, bytes);
            if is_admitted || need.frees && !self.has_writes_on_their_way(scene) {
                return Admission::Install { is_reserve: !is_admitted };
            }
            if !need.frees {
                ledger.waits(scene.holder, bytes);
            }
            StallCause::MemoryFull
        };
        let waits_for_storage = self.is_short() || is_too_long(scene.options, scene.unrecorded);
        let unrecorded = || self.unrecorded.clone().filter(|_| waits_for_storage);
        let given_up = || if self.awaits_flush(scene) { None } else { self.given_up(need.frees, scene.now) };
        let refused = self.storage.clone().or_else(unrecorded).or_else(given_up);
        refused.map_or(Admission::Wait(cause), Admission::Refuse)
    }

    /// Whether a flush is under way or due, and none has found memory short since one succeeded. It has reserved its
    /// memory, so it makes progress, however long it takes.
    const fn awaits_flush(&self, scene: &Scene<'_>) -> bool {
        !scene.sealed.is_empty() && self.flush_again_at.is_none()
    }

    /// Whether earlier writes wait for their flush, or are on their way to the last level, where deletions free
    /// something. What memtables leave to compactions holds one memtable of deletions and the next part of a
    /// compaction. More deletions would leave nothing for that part, and nothing would be freed any more. Nobody waits
    /// for what cannot begin, or for storage.
    fn has_writes_on_their_way(&self, scene: &Scene<'_>) -> bool {
        let cannot_be_flushed = self.flush_again_at.is_some() && self.is_stuck(scene.now);
        let is_to_flush = !scene.sealed.is_empty() && !cannot_be_flushed;
        let with_tables = scene.version.levels().iter().filter(|tables| !tables.is_empty()).count();
        let are_above_last = with_tables > 1 || !scene.version.level(0).is_empty();
        (is_to_flush || are_above_last && !self.found_none) && self.storage_failure().is_none()
    }

    /// The next step of the compaction that was asked for, or that settles the shard, if one is under way and can
    /// proceed.
    fn next_step(&mut self, picker: &Picker<'_>) -> Option<(Pick, Option<Box<StepOf>>)> {
        let manual = self.manual.as_mut()?;
        if manual.is_unasked && !may_settle(picker) {
            self.gives_up_settling();
            return None;
        }
        let before = manual.clone();
        match manual::next(picker, manual) {
            Step::Do(pick) => {
                let after = manual.clone();
                Some((pick, Some(Box::new(StepOf { number: self.manuals, before, after }))))
            }
            Step::Wait => None,
            Step::Done => {
                if manual.is_unasked {
                    self.rest.end();
                }
                self.manual = None;
                None
            }
        }
    }

    /// Takes back a step that was not done, so that it is done again, if its compaction is still under way.
    fn take_again(&mut self, order: KeyOrder, step_of: Option<&StepOf>) {
        if let Some((manual, step)) = self.manual_of(step_of) {
            manual.go_back(order, step.before.clone());
        }
    }

    /// Moves a compaction past a step that was to be taken again, and is taken now after all. Otherwise it would ask
    /// again and again for a table that is never finished, because a snapshot needs what has expired there.
    fn take_after_all(&mut self, step_of: Option<&StepOf>) {
        if let Some((manual, step)) = self.manual_of(step_of) {
            *manual = step.after.clone();
        }
    }

    /// The compaction that a step belongs to, if it is still under way.
    fn manual_of<'s>(&mut self, step_of: Option<&'s StepOf>) -> Option<(&mut ManualCompaction, &'s StepOf)> {
        let step = step_of.filter(|step| step.number == self.manuals)?;
        Some((self.manual.as_mut()?, step))
    }

    fn found_nothing(&mut self, now: u64) {
        if self.is_short() {
            self.stuck_since.get_or_insert(now);
        }
    }
}

/// Whether a step settles the shard.
fn settles(step_of: Option<&StepOf>) -> bool {
    step_of.is_some_and(|step| step.before.is_unasked)
}

/// Whether a compaction may run near the data. One that merges neighbours of level 0 has its memory held here.
fn can_be_near(scene: &Scene<'_>, pick: &Pick) -> bool {
    let lies_in_memory = || {
        let mut segments = pick.inputs.iter().flat_map(|(_, table)| table.segments());
        pick.tier == Tier::Memory && segments.all(|id| is_in_memory(scene.version, id))
    };
    match scene.near {
        Near::Nowhere => false,
        Near::MemoryNode => pick.output_level > 0 && lies_in_memory(),
        Near::Executors => pick.output_level > 0,
    }
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
