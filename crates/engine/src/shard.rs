//! A shard: one LSM-tree over a key range, with everything that its threads share.
//!
//! ```text
//!   view ──► active memtable, sealed memtables (newest first), version
//! ```
//!
//! A reader takes the view and then the published number: what the view's tables hold is then
//! covered by that number, so no compaction can have dropped what the reader is to see. The view is
//! replaced as a whole, under the lock of [`State`]:
//!
//! | change | by | view before → after |
//! |---|---|---|
//! | switch | a writer that finds the active memtable ended | active A, sealed S → active N, sealed A·S |
//! | flush | the background, oldest sealed memtables first | sealed S·A, version V → sealed S, version V + table of A |
//! | compaction | the background | version V → V − inputs + outputs |
//!
//! # What the lock guards
//!
//! The right to replace the view, and the bookkeeping of background work. No lock is held while a
//! record is copied, while anything is awaited from the fabric, or while indexes are merged. Changes of
//! the version follow one another: they hold a lock of their own while they are recorded.

use crate::background::Bell;
use crate::manifest::Manifest;
use crate::memory::Buffer;
use crate::picker::Cursors;
use crate::planted::{Bug, planted};
use crate::recovery::Recovered;
use crate::room::{Need, Reserve, Room, RoomPace};
use crate::segment::Remote;
use crate::stall::{Pace, Stall};
use crate::statistics::{Counters, StallCause};
use crate::version::{Change, LiveVersion};
use crate::{Error, Options, Result};
use forebay_base::record::MIN_RECORD_BYTES;
use forebay_base::{ErrorKind, KeyOrder, SegmentId, SequenceNumber};
use forebay_env::sync::{Condvar, Mutex, MutexGuard, lock};
use forebay_memtable::{BlockPool, Guard, Publication, Switch};
use forebay_table::TableId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

/// How often background work is tried again over another endpoint before it has failed for good.
const MAX_RETRIES: u32 = 5;
/// Nanoseconds before background work is tried again.
pub(crate) const RETRY_PAUSE: u64 = 50_000_000;

/// How often a named database asks whether another process took it over, nanoseconds.
const WATCH_INTERVAL: u64 = 1_000_000_000;

/// How much longer a writer that switches memtables pauses for each step that collection lags behind.
const LAG_STEP: Duration = Duration::from_millis(2);

/// Numbers kept free for the segments of one job, and where they begin a multiple: so a segment's number says whether
/// the same job made it as another.
pub(crate) const NUMBERS_OF_A_JOB: u64 = 1 << 16;

/// Longest sleep without a look at the state.
const NAP: Duration = Duration::from_millis(100);

/// What a reader sees of a shard.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) active: Arc<Buffer>,
    /// Newest first.
    pub(crate) sealed: Vec<Arc<Buffer>>,
    pub(crate) version: Arc<LiveVersion>,
}

impl View {
    /// The memtables, newest first.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = &Arc<Buffer>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }
}

/// Bookkeeping of background work, and why writers wait.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Background work failed for good: every later write fails with this.
    pub(crate) failure: Option<Error>,
    /// Background work found the memory node full, and none has succeeded since.
    pub(crate) full: Option<Error>,
    /// When the flush that did is tried again, if one did.
    pub(crate) flush_again_at: Option<u64>,
    /// What room the memory node has left.
    pub(crate) room: Room,
    pub(crate) room_pace: RoomPace,
    /// Since when (clock of the options, nanoseconds) memory is short, and nothing was found that may free some, or
    /// has failed since.
    pub(crate) hopeless_since: Option<u64>,
    /// Tables whose compaction found no room since background work last succeeded.
    pub(crate) too_large: BTreeSet<TableId>,
    /// When these are tried again at the earliest.
    pub(crate) large_from: u64,
    /// What the compactions under way may write.
    pub(crate) output_bytes: u64,
    pub(crate) closing: bool,
    pub(crate) flushing: bool,
    /// Compactions under way, and the tables that they work on.
    pub(crate) compactions: usize,
    pub(crate) busy: BTreeSet<TableId>,
    /// The compaction that somebody asked for, if one goes on.
    pub(crate) manual: Option<ManualCompaction>,
    /// How many were asked for.
    pub(crate) manuals: u64,
    pub(crate) cursors: Cursors,
    /// Nothing is to be tried again before this time (clock of the options, nanoseconds).
    pub(crate) retry_at: u64,
    /// Failures since background work last succeeded that another try may mend.
    retries: u32,
}

/// A compaction that somebody asked for: everything in the range goes down to the last level.
#[derive(Debug, Clone, Default)]
pub(crate) struct ManualCompaction {
    pub(crate) lower: Option<Vec<u8>>,
    pub(crate) upper: Option<Vec<u8>>,
    /// The level whose tables are next.
    pub(crate) level: usize,
    /// Where that level is done up to.
    pub(crate) cursor: Option<Vec<u8>>,
}

impl ManualCompaction {
    /// Has the step be taken again that was taken when the compaction stood as `before`, unless it stands before that.
    pub(crate) fn go_back(&mut self, order: KeyOrder, before: Self) {
        let cursor_is_earlier = || match (&before.cursor, &self.cursor) {
            (None, _) => true,
            (Some(before), Some(now)) => order.compare(before, now).is_lt(),
            (Some(_), None) => false,
        };
        if before.level < self.level || before.level == self.level && cursor_is_earlier() {
            *self = before;
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) options: Options,
    pub(crate) remote: Arc<Remote>,
    pub(crate) view: Switch<View>,
    pub(crate) publication: Publication,
    blocks: Arc<BlockPool>,
    pub(crate) counters: Counters,
    pub(crate) pace: Pace,
    /// Held while memory is short.
    pub(crate) reserve: Mutex<Reserve>,
    /// Held while a version is made, recorded and installed.
    commit: Mutex<()>,
    /// What the shard was found at when it was opened.
    pub(crate) opened_at: SequenceNumber,
    /// Where versions of a named database are recorded.
    manifest: Option<Manifest>,
    /// Another process took over.
    fenced: OnceLock<Error>,
    /// When to ask next whether one did (clock of the options, nanoseconds).
    next_watch: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
    /// Wakes the background threads.
    pub(crate) bell: Arc<Bell>,
    /// Published numbers that somebody reads at, with how many do.
    snapshots: Mutex<BTreeMap<u64, usize>>,
    next_segment: AtomicU64,
    next_table: AtomicU64,
    closed: AtomicBool,
}

impl Shard {
    /// An empty shard, whose work is announced by `bell`.
    ///
    /// # Errors
    /// As for memory of the first memtable.
    pub(crate) fn new(options: Options, remote: Arc<Remote>, bell: Arc<Bell>) -> Result<Self> {
        let version = LiveVersion::empty(&options);
        Self::with(options, remote, bell, version, None)
    }

    /// A shard that goes on where an earlier owner's versions end.
    ///
    /// # Errors
    /// As for memory of the first memtable.
    pub(crate) fn recovered(options: Options, recovered: Recovered, bell: Arc<Bell>) -> Result<Self> {
        let Recovered { remote, version, manifest } = recovered;
        Self::with(options, remote, bell, version, Some(manifest))
    }

    fn with(
        options: Options,
        remote: Arc<Remote>,
        bell: Arc<Bell>,
        version: LiveVersion,
        manifest: Option<Manifest>,
    ) -> Result<Self> {
        let last = version.version.last_sequence();
        let (next_segment, next_table) = (version.version.next_segment(), version.version.next_table());
        let blocks = BlockPool::new(options.write_buffer_bytes.next_multiple_of(8));
        let active = Buffer::allocate(&blocks, &options, last, options.write_buffer_bytes, false)?;
        let version = Arc::new(version);
        Ok(Self {
            view: Switch::new(Arc::new(View { active, sealed: Vec::new(), version })),
            publication: Publication::new(last, Publication::DEFAULT_SLOTS),
            reserve: Mutex::default(),
            commit: Mutex::default(),
            opened_at: last,
            manifest,
            fenced: OnceLock::new(),
            next_watch: AtomicU64::new(0),
            counters: Counters::default(),
            pace: Pace::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
            bell,
            snapshots: Mutex::default(),
            next_segment: AtomicU64::new(next_segment),
            next_table: AtomicU64::new(next_table),
            closed: AtomicBool::new(false),
            blocks,
            options,
            remote,
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Sleeps until something changed, or a while; does background work when nobody else does.
    pub(crate) fn wait<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if self.options.background_threads == 0 {
            drop(state);
            if !self.background_step() {
                if self.bell.is_stepping() {
                    // This call may be made within the step that is being taken.
                    self.ask_for_room();
                }
                self.options.clock.sleep(NAP);
            }
            return self.lock();
        }
        self.changed.wait_timeout(state, NAP).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Says that something changed.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
        self.bell.ring();
    }

    /// Whether versions are recorded, for another process to go on from.
    pub(crate) fn is_named(&self) -> bool {
        self.manifest.is_some()
    }

    /// Records the first key that the shard owns.
    ///
    /// # Errors
    /// As [`Shard::commit`].
    pub(crate) fn set_first_key(&self, key: &[u8]) -> Result<()> {
        let mut change = Change::default();
        change.edit.first_key = Some(key.to_vec());
        self.commit(change, &[])
    }

    /// Flushes what a named database has in memtables, if it is open and well.
    ///
    /// # Errors
    /// Those of flushing.
    pub(crate) fn leave_tidy(&self) -> Result<()> {
        let is_well = |state: &State| !state.closing && state.failure.is_none();
        if self.manifest.is_some() && is_well(&self.lock()) { self.flush_all() } else { Ok(()) }
    }

    /// Bytes of the manifest of a named database.
    #[cfg(test)]
    pub(crate) fn manifest_bytes(&self) -> u64 {
        self.manifest.as_ref().map_or(0, Manifest::size_bytes)
    }

    /// Stops background work and refuses later calls.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.closed.store(true, Ordering::Relaxed);
        self.notify();
    }

    /// Tells a job that runs at the memory node for this closed shard to stop.
    pub(crate) fn stop_near_data(&self) {
        if self.lock().compactions > 0
            && let Err(error) = self.remote.end_epoch()
        {
            tracing::debug!(%error, "stopping a job at the memory node");
        }
    }

    /// Gives back the memory of a closed shard. What the last version of a named database names stays.
    pub(crate) fn clear(&self) {
        if let Some(manifest) = &self.manifest {
            self.view.load().version.segments().for_each(|segment| segment.abandon());
            manifest.leave();
        }
        let version = Arc::new(LiveVersion::empty(&self.options));
        match Buffer::allocate(&self.blocks, &self.options, self.publication.published(), MIN_RECORD_BYTES, false) {
            Ok(active) => drop(self.view.replace(Arc::new(View { active, sealed: Vec::new(), version }))),
            Err(error) => tracing::warn!(%error, "the memory is kept until the database is dropped"),
        }
        self.view.reclaim();
        drop(std::mem::take(&mut *lock(&self.reserve)));
        self.remote.give_back();
        self.remote.release();
    }

    /// The view and the published number, such that the view shows all that the number covers. A reader
    /// of one shard can do without: what it takes in order, it sees as of the end of the view. A reader
    /// of several must see all of them as of their numbers.
    pub(crate) fn present(&self) -> (Guard<'_, View>, SequenceNumber) {
        loop {
            let view = self.view.load();
            let number = self.publication.published();
            // Whoever wrote to a later memtable had seen it installed: so had we, by the number.
            if !view.is_replaced() {
                return (view, number);
            }
        }
    }

    /// Refuses a call on a closed database. A call that has found nothing asks again: the view may
    /// have been the empty one that [`Shard::clear`] leaves.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) { Err(self.why_closed()) } else { Ok(()) }
    }

    /// Why calls are refused.
    #[cold]
    pub(crate) fn why_closed(&self) -> Error {
        self.fenced.get().cloned().unwrap_or_else(Error::closed)
    }

    /// Whether it is time to ask whether another process took the shard over.
    pub(crate) fn watch_is_due(&self) -> bool {
        self.manifest.is_some()
            && self.fenced.get().is_none()
            && self.options.clock.now() >= self.next_watch.load(Ordering::Relaxed)
    }

    /// Asks whether another process took the shard over.
    pub(crate) fn watch_owner(&self) {
        let next = self.options.clock.now().saturating_add(WATCH_INTERVAL);
        self.next_watch.store(next, Ordering::Relaxed);
        if let Err(fenced) = self.remote.check_owner() {
            self.fence(fenced);
        }
    }

    /// Refuses all later calls: another process took the shard over.
    fn fence(&self, error: Error) {
        let error = self.fenced.get_or_init(|| error).clone();
        self.closed.store(true, Ordering::Relaxed);
        self.lock().failure.get_or_insert(error);
        self.notify();
    }

    /// What the failure of a read means: when another process took over, that is the cause.
    #[cold]
    pub(crate) fn judged(&self, error: Error) -> Error {
        let error = self.remote.judged(error);
        if error.kind() == ErrorKind::Fenced && self.manifest.is_some() {
            self.fence(error.clone());
        }
        error
    }

    pub(crate) fn next_segment(&self) -> SegmentId {
        SegmentId(self.next_segment.fetch_add(1, Ordering::Relaxed))
    }

    /// Numbers for the segments of one job, which no other job has any of.
    pub(crate) fn next_segments(&self) -> Range<u64> {
        let behind = |number: u64| number.next_multiple_of(NUMBERS_OF_A_JOB) + NUMBERS_OF_A_JOB;
        let update = |number| Some(behind(number));
        let before = self.next_segment.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
        let end = behind(before.unwrap_or_else(|number| number));
        end - NUMBERS_OF_A_JOB..end
    }

    pub(crate) fn next_table(&self) -> TableId {
        TableId(self.next_table.fetch_add(1, Ordering::Relaxed))
    }

    /// The numbers that somebody reads at, ascending, the published one last: what a compaction
    /// that starts now must keep visible.
    pub(crate) fn pinned_numbers(&self) -> Vec<SequenceNumber> {
        let snapshots = lock(&self.snapshots);
        snapshots.keys().map(|&number| SequenceNumber(number)).collect()
    }

    /// How many pins there are.
    pub(crate) fn snapshots(&self) -> usize {
        lock(&self.snapshots).values().sum()
    }

    /// Pins the published number.
    pub(crate) fn pin(&self) -> SequenceNumber {
        let mut snapshots = lock(&self.snapshots);
        // Read under the lock: a compaction that lists the pins afterwards sees this one, and one
        // that listed them before keeps the newest entries of its inputs, which this number covers.
        let number = self.publication.published();
        *snapshots.entry(number.0).or_insert(0) += 1;
        number
    }

    /// Ends a pin.
    pub(crate) fn unpin(&self, number: SequenceNumber) {
        let mut snapshots = lock(&self.snapshots);
        if let Some(count) = snapshots.get_mut(&number.0) {
            *count -= 1;
            if *count == 0 {
                snapshots.remove(&number.0);
            }
        }
    }

    /// Makes sure that the active memtable is not `ended`, a memtable that has ended, without waiting
    /// for anything but local memory: for a caller that others wait for. Limits and failures of
    /// background work concern the next caller, so the number of memtables stays bounded as long as
    /// each such caller was let in by [`Shard::make_room`].
    ///
    /// # Errors
    /// `Io` when there is no memory.
    pub(crate) fn switch_now(&self, ended: &Arc<Buffer>, bytes: u64) -> Result<()> {
        let last = ended.memtable.wait_last_sequence();
        let state = self.lock();
        let view = Arc::clone(&self.view.load());
        if Arc::ptr_eq(&view.active, ended) {
            self.install_next(&view, last, bytes, false)?;
            drop(state);
            self.notify();
        }
        Ok(())
    }

    /// Waits, as back-pressure demands, until the active memtable has room for a write.
    /// Others may take it at once.
    ///
    /// # Errors
    /// As [`Shard::switch`].
    pub(crate) fn make_room(&self, need: Need) -> Result<()> {
        loop {
            let active = Arc::clone(&self.view.load().active);
            let memtable = &active.memtable;
            let is_for_it = memtable.end().is_none() && (need.frees || !active.is_reserve);
            let used = memtable.reserved_bytes().saturating_add(need.bytes);
            if is_for_it && used <= memtable.options().capacity_bytes as u64 {
                return Ok(());
            }
            let _ = memtable.end_early();
            self.switch(&active, need)?;
        }
    }

    /// Makes sure that the active memtable is not `ended`, a memtable that has ended: waits until
    /// there is room for another one, and installs it, unless somebody else does. `need` is what
    /// the caller will write next.
    ///
    /// # Errors
    /// The failure of background work; `Full`; `Closed`.
    pub(crate) fn switch(&self, ended: &Arc<Buffer>, need: Need) -> Result<()> {
        let last = ended.memtable.wait_last_sequence();
        let mut state = self.lock();
        let mut stalled = Stall::new(&self.counters, &self.options);
        loop {
            let view = Arc::clone(&self.view.load());
            if !Arc::ptr_eq(&view.active, ended) {
                return Ok(());
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if state.closing {
                return Err(Error::closed());
            }
            let level0 = view.version.level0_tables();
            let Some(cause) = self.no_room(&view, level0, &state, need) else {
                let room = state.room;
                self.install_next(&view, last, need.bytes, room.is_none())?;
                let memtable_bytes = self.options.write_buffer_bytes as u64;
                state.room.take_memtable(memtable_bytes);
                let short = if need.frees { Duration::ZERO } else { state.room_pace.pause(room) };
                drop(state);
                self.notify();
                let pause = self.pace.pause(&self.options, level0);
                let lag = LAG_STEP * self.collection_lag(&view.version);
                let causes = [
                    (StallCause::Level0Slowdown, pause),
                    (StallCause::Collection, lag),
                    (StallCause::MemoryFull, short),
                ];
                if let Some((cause, longest)) = causes.into_iter().max_by_key(|(_, pause)| *pause)
                    && !longest.is_zero()
                {
                    stalled.begin(cause);
                    self.options.clock.sleep(longest);
                }
                return Ok(());
            };
            if let Some(full) = self.given_up(&state, need.frees) {
                stalled.blame(StallCause::MemoryFull);
                return Err(full);
            }
            stalled.begin(cause);
            state = self.wait(state);
        }
    }

    /// Why no memtable may be installed now.
    fn no_room(&self, view: &View, level0: usize, state: &State, need: Need) -> Option<StallCause> {
        if view.sealed.len() >= self.options.max_immutable_memtables {
            Some(StallCause::Memtables)
        } else if level0 >= self.options.level0_stop_trigger
            && !self.options.bulk_load
            // What would make level 0 smaller has no memory: what only deletes is let in, and its flush tells.
            && !(need.frees && self.is_hopeless(state))
        {
            Some(StallCause::Level0Stop)
        } else if state.room.is_none() && !need.frees {
            Some(StallCause::MemoryFull)
        } else {
            None
        }
    }

    /// Installs the memtable that follows the active one, which ends at `last`. The caller holds the
    /// lock.
    fn install_next(&self, view: &View, last: SequenceNumber, bytes: u64, is_reserve: bool) -> Result<()> {
        let capacity = self.options.write_buffer_bytes.max(usize::try_from(bytes).unwrap_or(usize::MAX));
        let next = Buffer::allocate(&self.blocks, &self.options, last, capacity, is_reserve)?;
        let mut sealed = Vec::with_capacity(view.sealed.len() + 1);
        sealed.push(Arc::clone(&view.active));
        sealed.extend(view.sealed.iter().cloned());
        self.view.replace(Arc::new(View { active: next, sealed, version: Arc::clone(&view.version) }));
        Ok(())
    }

    /// Makes memory for a memtable that writers will want soon: while others wait for their flush, and before a bulk
    /// load begins. False when there is enough.
    pub(crate) fn prepare_memtable(&self) -> bool {
        let is_wanted = self.options.bulk_load || !self.view.load().sealed.is_empty();
        // What there is no memory for is allocated when it is needed, or the write fails then.
        is_wanted && self.blocks.prepare(self.options.max_immutable_memtables + 1).unwrap_or(false)
    }

    /// Ends the active memtable if it holds anything, so that it is flushed.
    ///
    /// # Errors
    /// As [`Shard::switch`].
    pub(crate) fn seal_active(&self) -> Result<()> {
        let active = Arc::clone(&self.view.load().active);
        if active.memtable.reserved_bytes() > 0 {
            // Somebody else may have ended it: then it is switched all the same.
            let _ = active.memtable.end_early();
            self.switch(&active, Need::NOTHING)?;
        }
        Ok(())
    }

    /// Makes the version that `change` leads to, records it if the database has a name, and installs
    /// it, and with it drops the memtables `flushed` from the view. All that the change adds is
    /// completely written.
    ///
    /// # Errors
    /// When the change does not fit the version, or cannot be recorded: then nothing changed here.
    pub(crate) fn commit(&self, mut change: Change, flushed: &[Arc<Buffer>]) -> Result<()> {
        let commit = lock(&self.commit);
        change.edit.next_table = Some(self.next_table.load(Ordering::Relaxed));
        change.edit.next_segment = Some(self.next_segment.load(Ordering::Relaxed));
        // Only commits change the version.
        let version = Arc::clone(&self.view.load().version);
        let before = version;
        let version = Arc::new(before.apply(&mut change)?);
        if planted(Bug::FreeBeforeRecorded) {
            free_replaced(&before, &version);
        }
        if let Some(manifest) = &self.manifest {
            manifest.recorder().record(&change, &version)?;
        }
        if planted(Bug::FreeBeforeUnpinned) {
            free_replaced(&before, &version);
        }
        let mut state = self.lock();
        self.install(version, flushed);
        state.full = None;
        state.flush_again_at = None;
        state.hopeless_since = None;
        state.too_large.clear();
        if !flushed.is_empty() {
            state.cursors.begin_moves();
        }
        state.retries = 0;
        drop(state);
        drop(commit);
        self.notify();
        Ok(())
    }

    /// Installs a version, and drops the memtables `flushed` from the view. The caller holds the lock.
    pub(crate) fn install(&self, version: Arc<LiveVersion>, flushed: &[Arc<Buffer>]) {
        let view = Arc::clone(&self.view.load());
        let is_left = |buffer: &&Arc<Buffer>| !flushed.iter().any(|flushed| Arc::ptr_eq(buffer, flushed));
        let sealed = view.sealed.iter().filter(is_left).cloned().collect();
        self.view.replace(Arc::new(View { active: Arc::clone(&view.active), sealed, version }));
    }

    /// Notes that background work failed. A full memory node is not for good, and an endpoint that
    /// broke need not be: it is tried again.
    pub(crate) fn failed(&self, error: Error) {
        let error = self.judged(error);
        let mut state = self.lock();
        if error.kind() == ErrorKind::Full {
            tracing::warn!(%error, "the memory node is full; background work waits");
            state.full = Some(error);
        } else if state.retries < MAX_RETRIES && self.remote.may_retry(&error) {
            tracing::warn!(%error, "background work is tried again");
            state.retries += 1;
            state.retry_at = self.options.clock.now() + RETRY_PAUSE;
        } else if state.failure.is_none() {
            if !state.closing {
                tracing::error!(%error, kind = %error.kind(), "background work failed");
            }
            state.failure = Some(error);
        }
        drop(state);
        self.notify();
    }
}

/// A planted bug: frees what `after` does not name any more, whoever reads it.
#[cold]
fn free_replaced(before: &LiveVersion, after: &LiveVersion) {
    before.segments().filter(|segment| after.segment(segment.id()).is_none()).for_each(|segment| {
        segment.free();
        segment.abandon();
    });
}
