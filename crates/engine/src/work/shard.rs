//! A shard: a tree with its background work.
//!
//! Readers know only the [`Tree`]. Writers ask the shard for the next memtable, and background threads ask it for work.
//! Its lock guards the bookkeeping of background work and why writers wait. It is never held during a wait for the
//! fabric, or while indexes are merged.

use crate::durable::commit::{Commits, Record};
use crate::durable::findings::{Looked, Mend};
use crate::durable::joining;
use crate::durable::log::{Log, Stretch};
use crate::durable::mending::{self, Looking};
use crate::durable::recorded::Recorded;
use crate::durable::recovery::Recovered;
use crate::durable::regaining;
use crate::durable::register::Register;
use crate::durable::restore::Restored;
use crate::durable::storage_log::StorageLog;
use crate::plan::ledger::{Holder, Ledger};
use crate::plan::planner::{Admission, Near, Need, Planner, Scene};
use crate::plan::stall::Pace;
use crate::remote::members::Members;
use crate::terms::options::FlushOrder;
use crate::terms::planted::{Bug, planted};
use crate::terms::statistics::{self, StallCause};
use crate::terms::time::ExpiryClock;
use crate::terms::{Error, Options, Result};
use crate::tree::buffer::Buffer;
use crate::tree::cut::Cut;
use crate::tree::shared::{Tree, View};
use crate::tree::version::{Change, LiveVersion};
use crate::work::common::Common;
use crate::work::crossings::{Crossings, Ships};
use crate::work::reserve::Reserve;
use crate::work::stall::{Pause, Stall};
use forebay_base::{ErrorKind, SegmentId, SequenceNumber};
use forebay_env::sync::{Condvar, Mutex, MutexGuard, lock};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// How often a named database asks whether another process took it over, nanoseconds.
const WATCH_INTERVAL: u64 = 1_000_000_000;

/// How long damage that nobody can repair is not looked for again, nanoseconds.
const MENDING_PAUSE: u64 = 10_000_000_000;

/// How much longer a writer that switches memtables pauses for each step that collection lags behind.
const LAG_STEP: Duration = Duration::from_millis(2);

/// Longest sleep without a look at the state.
const NAP: Duration = Duration::from_millis(100);

/// The log of a shard's writes.
#[derive(Debug)]
enum ShardLog {
    /// None: the database has no name.
    None,
    /// In the memory of its node.
    Memory(Box<Log>),
    /// In storage, with the logs of all shards; this is the shard's number.
    Storage(Arc<StorageLog>, usize),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) tree: Arc<Tree>,
    commits: Commits,
    log: ShardLog,
    /// Batches that cross shards, and the shard's number, where the logs of several shards are in memory.
    crossings: OnceLock<(Arc<Crossings>, usize)>,
    pub(crate) pace: Pace,
    /// Held while memory is short.
    pub(crate) reserve: Mutex<Reserve>,
    /// When to ask next whether another process took over (clock of the options, nanoseconds).
    next_watch: AtomicU64,
    /// When to look next at copies that seem to be damaged (the same).
    next_mending: AtomicU64,
    state: Mutex<Planner>,
    changed: Condvar,
    pub(crate) common: Arc<Common>,
    /// The shard in the ledger of the database's memory.
    pub(crate) holder: Holder,
    /// The account of the node that served first, which is kept whichever node serves.
    pub(crate) account: usize,
}

impl Ships for Shard {
    fn published(&self) -> SequenceNumber {
        self.tree.publication.published()
    }

    fn ship(&self, number: SequenceNumber) -> Result<()> {
        self.log_up_to(number)
    }
}

/// A writer's turn to get memory, which ends with its wait. Where several wait, the others take turns anew.
struct Turn<'a>(&'a Shard);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.common.ledger().waits_no_more(self.0.holder);
    }
}

impl Shard {
    /// An empty shard.
    ///
    /// # Errors
    /// As for memory of the first memtable.
    pub(crate) fn new(
        options: Options,
        remote: Arc<Members>,
        time: Arc<ExpiryClock>,
        common: Arc<Common>,
    ) -> Result<Self> {
        let version = LiveVersion::empty(&options);
        let tree = Tree::new(options, remote, version, SequenceNumber::ZERO, time)?;
        Ok(Self::with(tree, Commits::new(Record::Nowhere), ShardLog::None, common))
    }

    /// A shard that continues where an earlier owner's versions end. Nothing new may be written to it before what the
    /// log holds is written again.
    ///
    /// # Errors
    /// As for memory of the first memtable.
    pub(crate) fn recovered(
        options: Options,
        recovered: Recovered,
        time: Arc<ExpiryClock>,
        common: Arc<Common>,
    ) -> Result<Self> {
        let Recovered { remote, version, manifest, log, .. } = recovered;
        let tree = Tree::new(options, remote, version, log.last, time)?;
        let (commits, log) = (Commits::new(Record::Memory(manifest)), Log::new(log.last, log.parts));
        Ok(Self::with(tree, commits, ShardLog::Memory(Box::new(log)), common))
    }

    /// A shard, of this number, of a database on storage. As [`Shard::recovered`].
    ///
    /// # Errors
    /// As for memory of the first memtable.
    pub(crate) fn restored(
        options: Options,
        restored: Restored,
        last: SequenceNumber,
        (register, log, number): (&Arc<Register>, &Arc<StorageLog>, usize),
        time: Arc<ExpiryClock>,
        common: Arc<Common>,
    ) -> Result<Self> {
        let tree = Tree::new(options, restored.remote, restored.version, last, time)?;
        let lags = log.leads_tables() && tree.options.storage_lag_memtables > 0;
        let version = Arc::clone(&tree.view.load().version);
        let commits = Commits::new(Record::Storage(Recorded::new(Arc::clone(register), number, version, lags)));
        Ok(Self::with(tree, commits, ShardLog::Storage(Arc::clone(log), number), common))
    }

    fn with(tree: Tree, commits: Commits, log: ShardLog, common: Arc<Common>) -> Self {
        let account = tree.remote.memory_node().number();
        let holder = common.ledger().join(&[account]);
        Self {
            tree: Arc::new(tree),
            commits,
            log,
            crossings: OnceLock::new(),
            pace: Pace::default(),
            reserve: Mutex::default(),
            next_watch: AtomicU64::new(0),
            next_mending: AtomicU64::new(0),
            state: Mutex::default(),
            changed: Condvar::new(),
            common,
            holder,
            account,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Planner> {
        lock(&self.state)
    }

    /// Sleeps until something changes, or for a while; does background work when nobody else does.
    pub(crate) fn wait<'a>(&'a self, state: MutexGuard<'a, Planner>) -> MutexGuard<'a, Planner> {
        if self.tree.options.background_threads == 0 {
            drop(state);
            if !self.background_step() {
                if self.common.bell.is_stepping() {
                    // This call may be made within the step that is being taken.
                    self.ask_for_room();
                }
                self.tree.options.clock.sleep(NAP);
            }
            return self.lock();
        }
        self.changed.wait_timeout(state, NAP).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Says that something changed.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
        self.common.bell.ring();
    }

    /// Says that a memtable was sealed, and another one installed for the next writes. The sealed one's records go to
    /// the log while its table is made.
    fn notify_sealed(&self, need: Need) {
        if need.bytes > 0 {
            self.tree.want_memtable();
        }
        self.notify();
        if matches!(self.log, ShardLog::Storage(..)) {
            self.common.sealed.ring();
        }
    }

    /// Why background work of the shard has ended, if it has: another process took over, or it failed for good.
    pub(crate) fn failure(&self, state: &Planner) -> Option<Error> {
        self.tree.fenced().or(state.failure.as_ref()).cloned()
    }

    /// Connects these shards, all of a database, so that they know of batches that cross them, if their logs are in
    /// memory. Returns where to report such a batch.
    pub(crate) fn join_crossings(shards: &[Arc<Self>], cut: &Arc<Cut>) -> Option<Arc<Crossings>> {
        if shards.len() < 2 || !shards.iter().all(|shard| matches!(shard.log, ShardLog::Memory(_))) {
            return None;
        }
        let logs = shards.iter().map(|shard| Arc::downgrade(shard) as Weak<dyn Ships>);
        let crossings = Crossings::new(logs, Arc::clone(cut));
        for (at, shard) in shards.iter().enumerate() {
            shard.crossings.get_or_init(|| (Arc::clone(&crossings), at));
        }
        Some(crossings)
    }

    /// Returns when all records up to `number`, which is published, survive what the log survives, and cannot be cut
    /// off by a batch that crosses shards.
    ///
    /// # Errors
    /// `Invalid` when the database has no name, and so no log; `Closed`; as [`Log::make_durable`].
    pub(crate) fn make_durable(&self, number: SequenceNumber) -> Result<()> {
        match self.crossings.get() {
            Some((crossings, at)) if crossings.is_open(*at) && !planted(Bug::AcknowledgeBeforeCrossings) => {
                crossings.close(*at, number)
            }
            _ => self.log_up_to(number),
        }
    }

    /// Returns when all records up to `number`, which is published, are in the log or in tables.
    ///
    /// # Errors
    /// As [`Shard::make_durable`].
    fn log_up_to(&self, number: SequenceNumber) -> Result<()> {
        let made = match &self.log {
            ShardLog::None => return Err(Error::invalid("a database without a name ends with its process")),
            ShardLog::Memory(log) => loop {
                let server = self.tree.remote.server();
                let made = log.make_durable(&self.tree, &self.commits, number);
                self.tell_ledger(log);
                if log.wants_parts() {
                    self.common.log_bell.ring();
                }
                match made {
                    // A part of the log was to be made at a member that is gone.
                    Err(error) if self.tree.remote.serves_again(&error, server) => {}
                    made => break made,
                }
            },
            ShardLog::Storage(log, shard) => log.make_durable(*shard, number),
        };
        made.map_err(|error| self.tree.judged(error))?;
        // A closed shard drops its memtables. A thread that ships then finds nothing to ship.
        self.tree.check_open()
    }

    /// Deletes logs in storage that are not needed. Returns whether there were any.
    pub(crate) fn delete_logs(&self) -> bool {
        matches!(&self.log, ShardLog::Storage(log, _) if log.delete_unneeded())
    }

    /// Maintains the log, if that is due: makes a part of it ahead, or brings to storage the tables that the log still
    /// holds. Returns whether it did.
    pub(crate) fn tend_log(&self) -> bool {
        match &self.log {
            ShardLog::None => false,
            ShardLog::Memory(log) => self.prepare_log(log),
            ShardLog::Storage(log, shard) => self.record_when_due(log, *shard),
        }
    }

    fn prepare_log(&self, log: &Log) -> bool {
        let has_made = !self.tree.is_closed()
            && log.prepare(&self.tree, &self.commits).unwrap_or_else(|error| {
                // A writer that needs the part makes it, or fails then.
                tracing::debug!(%error, "making a part of the log ahead");
                false
            });
        self.tell_ledger(log);
        has_made
    }

    /// Tells the ledger what memory the log has taken.
    fn tell_ledger(&self, log: &Log) {
        let bytes = log.take_made_bytes();
        if bytes > 0 {
            self.common.ledger().logged(self.holder, bytes);
        }
    }

    /// Regains the shard at memory nodes that have come back, if this process has lost all of its members.
    pub(crate) fn regain(&self) {
        let ShardLog::Memory(log) = &self.log else { return };
        if self.tree.is_closed() {
            return;
        }
        if let Err(error) = regaining::regain(&self.tree, &self.commits, log) {
            tracing::debug!(%error, "the shard is not had back yet");
        }
    }

    /// Ends the active memtable if it has held something for long, or if the log has become long for it. Returns whether it did.
    pub(crate) fn shorten_log(&self) -> bool {
        if self.end_old() {
            return true;
        }
        let ShardLog::Storage(log, shard) = &self.log else { return false };
        self.let_go_of_log(log, *shard).unwrap_or_else(|error| {
            tracing::debug!(%error, "ending a memtable for the log");
            false
        })
    }

    /// Makes a copy that is missing on a memory node, if there is one. Returns whether it did.
    pub(crate) fn mend(&self) -> bool {
        let ShardLog::Memory(log) = &self.log else { return false };
        if self.tree.is_closed() {
            return false;
        }
        let has_joined = joining::mend(&self.tree, &self.commits, log).unwrap_or_else(|error| {
            tracing::warn!(error = %self.tree.judged(error), "a copy is still missing");
            false
        });
        has_joined || self.mend_damaged(log)
    }

    /// Checks the copies if somebody has found damage in one of them, and repairs them. Returns whether it did.
    fn mend_damaged(&self, log: &Log) -> bool {
        let now = self.tree.options.clock.now();
        if !self.tree.remote.are_suspected() || now < self.next_mending.load(Ordering::Relaxed) {
            return false;
        }
        self.tree.remote.serving().take_suspicion();
        let looked = mending::look(&self.tree, &self.commits, log, Mend::Repair, |_| ());
        let has_mended = looked.as_ref().is_ok_and(|looked| looked.damaged.iter().any(|damaged| damaged.is_mended));
        if !has_mended {
            // Readers report damage that nobody can repair again and again.
            let behind = self.tree.options.clock.now().saturating_add(MENDING_PAUSE);
            self.next_mending.store(behind, Ordering::Relaxed);
        }
        if let Err(error) = looked {
            tracing::warn!(%error, "damaged copies are not mended yet");
            self.tree.remote.serving().suspect();
        }
        true
    }

    /// Checks the copies of all that the shard has in memory; `None` if there is no log in memory, and so no copy that
    /// this process could repair.
    ///
    /// # Errors
    /// As [`mending::look`].
    pub(crate) fn look_at_copies(&self, mend: Mend, told: impl FnMut(u64)) -> Result<Option<Looked>> {
        match &self.log {
            ShardLog::Memory(log) => mending::look(&self.tree, &self.commits, log, mend, told).map(Some),
            ShardLog::None | ShardLog::Storage(..) => Ok(None),
        }
    }

    /// Checks the copies of the next segment after `after`, in the order of their numbers, and first of all the
    /// manifests. Returns the segment and how many bytes were read; `None` if no segment is left.
    ///
    /// # Errors
    /// As [`mending::look`].
    pub(crate) fn scrub(&self, after: Option<SegmentId>) -> Result<Option<(SegmentId, u64)>> {
        let ShardLog::Memory(log) = &self.log else { return Ok(None) };
        self.tree.check_open()?;
        let mut looked = Looked::default();
        // Checks the versions of this moment. A round may take hours. Holding one version all the time would keep the
        // memory of what is replaced meanwhile, and miss what is added. Compared with the bytes of all copies of a
        // segment, this costs little.
        let looking = Looking::new(&self.tree, log, Mend::Repair);
        if after.is_none() {
            self.commits.look(&self.tree, Mend::Repair, &mut looked)?;
        }
        let next = looking.segments().into_iter().find(|segment| after.is_none_or(|after| segment.id() > after));
        if let Some(segment) = &next {
            looking.segment(segment, log, &mut looked)?;
        }
        if !looked.useless.is_empty() {
            // All copies are checked before the members are left out.
            self.tree.remote.serving().suspect();
        }
        let counters = &self.tree.counters;
        statistics::add(&counters.scrubbed_bytes, looked.bytes);
        statistics::add(&counters.scrubs, u64::from(next.is_none()));
        Ok(next.map(|segment| (segment.id(), looked.bytes)))
    }

    /// Whether background work that found damage may succeed now, at another member or because copies were repaired.
    fn goes_around_damage(&self, error: &Error) -> bool {
        let goes_on = self.tree.remote.serves_around_damage(error);
        if let (true, ShardLog::Memory(log)) = (goes_on, &self.log) {
            self.mend_damaged(log);
        }
        goes_on
    }

    /// Ends the active memtable if it has held something for long.
    fn end_old(&self) -> bool {
        if self.tree.options.flush_after.is_none() || self.tree.is_closed() {
            return false;
        }
        let view = Arc::clone(&self.tree.view.load());
        let memtable = &view.active.memtable;
        let mut state = self.lock();
        let is_old = self.with_scene(&view, |scene, _| state.ends_active(scene, memtable.base()));
        drop(state);
        if !is_old {
            return false;
        }
        let sealed = self.seal(&view.active);
        sealed.inspect_err(|error| tracing::debug!(%error, "ending a memtable that is old")).unwrap_or(false)
    }

    /// Ends the active memtable if the log has become long for it. Returns whether it did.
    fn let_go_of_log(&self, log: &StorageLog, shard: usize) -> Result<bool> {
        let active = Arc::clone(&self.tree.view.load().active);
        if active.memtable.reserved_bytes() == 0 || !log.is_held_by(shard) {
            return Ok(false);
        }
        self.seal(&active)
    }

    /// Ends the active memtable and installs the next one, so that it is flushed without a writer. If it has ended
    /// already, the next writer installs the next one, but nobody may write any more. So this does it, unless a writer
    /// would have to wait. Returns whether it did.
    fn seal(&self, active: &Arc<Buffer>) -> Result<bool> {
        if active.memtable.end_early().is_some() {
            return self.switch_now(active, Need::NOTHING).map(|()| true);
        }
        let last = active.memtable.wait_last_sequence();
        let mut state = self.lock();
        let view = Arc::clone(&self.tree.view.load());
        if !Arc::ptr_eq(&view.active, active) {
            return Ok(false);
        }
        let admission = self.with_scene(&view, |scene, ledger| state.admit(scene, ledger, Need::NOTHING));
        let Admission::Install { is_reserve } = admission else { return Ok(false) };
        let capacity = Need::NOTHING.capacity(self.tree.options.write_buffer_bytes);
        let has_sealed = self.tree.install_next(active, last, capacity, is_reserve)?;
        drop(state);
        if has_sealed {
            self.notify_sealed(Need::NOTHING);
        }
        Ok(has_sealed)
    }

    /// Records the first key that the shard owns.
    ///
    /// # Errors
    /// As [`Shard::commit`] and [`Shard::record`].
    pub(crate) fn set_first_key(&self, key: &[u8]) -> Result<()> {
        let mut change = Change::default();
        change.edit.first_key = Some(key.to_vec());
        self.commit(change, &[])?;
        self.record()
    }

    /// Begins to flush the memtables of a named database, if it is open and has not failed. Nobody writes to it any more:
    /// what is acknowledged is flushed. Returns the number up to which it flushes.
    ///
    /// # Errors
    /// As [`Tree::end_writes`].
    pub(crate) fn begin_leaving(&self) -> Result<Option<SequenceNumber>> {
        let is_well = !self.tree.is_closed() && self.failure(&self.lock()).is_none();
        if !self.tree.remote.is_named() || !is_well {
            return Ok(None);
        }
        let end = self.tree.end_writes()?;
        self.notify_sealed(Need::NOTHING);
        Ok(Some(end))
    }

    /// Waits for what [`Shard::begin_leaving`] began.
    ///
    /// # Errors
    /// Why memtables were not flushed, even if the work failed earlier.
    pub(crate) fn leave(&self, begun: Result<Option<SequenceNumber>>) -> Result<()> {
        begun.and_then(|end| end.map_or(Ok(()), |end| self.wait_flushed(end)))?;
        self.lock().failure.clone().map_or(Ok(()), Err)
    }

    /// Bytes of the manifest of a named database.
    #[cfg(test)]
    pub(crate) fn manifest_bytes(&self) -> u64 {
        self.commits.manifest_bytes()
    }

    /// The log in memory, if there is one, and the commits that name its parts.
    #[cfg(test)]
    pub(crate) fn log_in_memory(&self) -> Option<(&Log, &Commits)> {
        match &self.log {
            ShardLog::Memory(log) => Some((log, &self.commits)),
            _ => None,
        }
    }

    /// Stops background work and refuses later calls.
    pub(crate) fn close(&self) {
        self.tree.close();
        self.notify();
    }

    /// Tells a job that runs at the memory node for this closed shard to stop.
    pub(crate) fn stop_near_data(&self) {
        if self.lock().compactions() > 0
            && let Err(error) = self.tree.remote.end_epoch()
        {
            tracing::debug!(%error, "stopping a job at the memory node");
        }
    }

    /// Gives back the memory of a closed shard. What the last version of a named database names stays.
    pub(crate) fn clear(&self) {
        self.commits.leave(&self.tree);
        if let ShardLog::Memory(log) = &self.log {
            log.clear();
        }
        self.tree.clear();
        drop(std::mem::take(&mut *lock(&self.reserve)));
        self.tree.remote.give_back();
        self.tree.remote.release();
    }

    /// Whether it is time to ask whether another process took the shard over.
    pub(crate) fn watch_is_due(&self) -> bool {
        self.tree.remote.is_named()
            && self.tree.fenced().is_none()
            && self.tree.options.clock.now() >= self.next_watch.load(Ordering::Relaxed)
    }

    /// Asks whether another process took the shard over.
    pub(crate) fn watch_owner(&self) {
        let next = self.tree.options.clock.now().saturating_add(WATCH_INTERVAL);
        self.next_watch.store(next, Ordering::Relaxed);
        if let Err(fenced) = self.tree.remote.check_owner() {
            self.taken_over(&fenced);
        }
    }

    /// Notes that another process took the database over, as the register says.
    pub(crate) fn taken_over(&self, fenced: &Error) {
        self.tree.fence(fenced.clone());
        self.notify();
    }

    /// Makes sure that the active memtable is not `ended`, a memtable that has ended, without waiting
    /// for anything but local memory: for a caller that others wait for. Limits and failures of
    /// background work concern the next caller, so the number of memtables stays bounded as long as
    /// each such caller was let in by [`Shard::make_room`].
    ///
    /// # Errors
    /// As [`Tree::install_next`].
    pub(crate) fn switch_now(&self, ended: &Arc<Buffer>, need: Need) -> Result<()> {
        let last = ended.memtable.wait_last_sequence();
        let capacity = need.capacity(self.tree.options.write_buffer_bytes);
        if self.tree.install_next(ended, last, capacity, false)? {
            self.notify_sealed(need);
        }
        Ok(())
    }

    /// Waits, as back-pressure demands, until the active memtable has room for a write. Others may take it at once.
    /// `pause` is as for [`Shard::switch`].
    ///
    /// # Errors
    /// As [`Shard::switch`].
    pub(crate) fn make_room<'s>(&'s self, need: Need, pause: &mut Pause<'s>) -> Result<()> {
        loop {
            let active = Arc::clone(&self.tree.view.load().active);
            let memtable = &active.memtable;
            let is_for_it = memtable.end().is_none() && (need.frees || !active.is_reserve);
            let used = memtable.reserved_bytes().saturating_add(need.bytes);
            if is_for_it && used <= memtable.options().capacity_bytes as u64 {
                return Ok(());
            }
            let _ = memtable.end_early();
            self.switch(&active, need, pause)?;
        }
    }

    /// Makes sure that the active memtable is not `ended`, a memtable that has ended: waits until
    /// there is room for another one, and installs it, unless somebody else does. `need` is what
    /// the caller will write next. It pauses afterwards, when it drops `pause`: a writer that paused before it wrote
    /// would find the new memtable full of what others had written.
    ///
    /// # Errors
    /// The failure of background work; `Full`; `Closed`.
    pub(crate) fn switch<'s>(&'s self, ended: &Arc<Buffer>, need: Need, pause: &mut Pause<'s>) -> Result<()> {
        pause.pay();
        let last = ended.memtable.wait_last_sequence();
        let mut state = self.lock();
        let mut stalled = Stall::new(&self.tree.counters, &self.tree.options);
        let _turn = Turn(self);
        loop {
            let view = Arc::clone(&self.tree.view.load());
            if !Arc::ptr_eq(&view.active, ended) {
                return Ok(());
            }
            if let Some(failure) = self.failure(&state) {
                return Err(failure);
            }
            self.tree.check_writable()?;
            match self.with_scene(&view, |scene, ledger| state.admit(scene, ledger, need)) {
                Admission::Install { is_reserve } => {
                    let capacity = need.capacity(self.tree.options.write_buffer_bytes);
                    if self.tree.install_next(ended, last, capacity, is_reserve)? {
                        let short = self.with_scene(&view, |scene, ledger| state.sealed(scene, ledger, need));
                        drop(state);
                        self.notify_sealed(need);
                        *pause = self.pause(&view, short, stalled);
                    }
                    return Ok(());
                }
                Admission::Refuse(full) => {
                    stalled.blame(StallCause::MemoryFull);
                    return Err(full);
                }
                Admission::Wait(cause) => {
                    // Memory that only this version names may be what the writer waits for.
                    drop(view);
                    state = stalled.during(cause, || self.wait(state));
                }
            }
        }
    }

    /// The pause of a writer that switched memtables, for its most pressing cause. `short` is the pause because memory
    /// is short.
    fn pause<'s>(&'s self, view: &View, short: Duration, stalled: Stall<'s>) -> Pause<'s> {
        let causes = [
            (StallCause::Level0Slowdown, self.pace.pause(&self.tree.options, view.version.level0_tables())),
            (StallCause::Collection, LAG_STEP * self.collection_lag(&view.version)),
            (StallCause::MemoryFull, short),
        ];
        let most = causes.into_iter().max_by_key(|(_, pause)| *pause).filter(|(_, longest)| !longest.is_zero());
        most.map_or_else(Pause::default, |(cause, longest)| Pause::new(stalled, cause, longest))
    }

    /// Runs `decide` with the ledger and with what the planner decides by, as the view shows it.
    pub(crate) fn with_scene<R>(&self, view: &View, decide: impl FnOnce(&Scene<'_>, &mut Ledger) -> R) -> R {
        let sealed: Vec<_> = view.sealed.iter().map(|buffer| buffer.memtable.filled_prefix_bytes()).collect();
        let active = &view.active.memtable;
        let near = match self.tree.remote.node_part() {
            None => Near::Nowhere,
            Some(_) if self.tree.remote.memory_node().offloading().is_some() => Near::Executors,
            Some(_) => Near::MemoryNode,
        };
        let scene = Scene {
            holder: self.holder,
            options: &self.tree.options,
            version: &view.version.version,
            crossings: &|table| view.version.crossings(table),
            hidden: &|| {
                let hidden = view.version.hidden(|| self.tree.pinned_numbers());
                hidden.into_iter().map(|of| (of.level, Arc::clone(&of.table))).collect()
            },
            sealed: &sealed,
            logged: self.logged_bytes(view),
            active: active.end().map_or(active.options().capacity_bytes as u64, |_| active.reserved_bytes()),
            written: active.reserved_bytes(),
            unrecorded: self.lag_bytes(),
            near,
            now: self.tree.options.clock.now(),
        };
        decide(&scene, &mut self.common.ledger())
    }

    /// Bytes of sealed memtables that their flushes find in the log in memory.
    fn logged_bytes(&self, view: &View) -> u64 {
        let ShardLog::Memory(log) = &self.log else { return 0 };
        if self.tree.options.flush_order != FlushOrder::AsWritten {
            return 0;
        }
        let has = |buffer: &&Arc<Buffer>| {
            buffer.memtable.last_sequence().is_some_and(|last| log.has_all(buffer.memtable.base(), last))
        };
        view.sealed.iter().filter(has).map(|buffer| buffer.memtable.filled_prefix_bytes()).sum()
    }

    /// Where the log in memory has a sealed memtable's records, if it has most of them: the log then gets the rest.
    pub(crate) fn logged(&self, buffer: &Buffer) -> Option<Vec<Stretch>> {
        let ShardLog::Memory(log) = &self.log else { return None };
        let (base, bytes) = (buffer.memtable.base(), buffer.memtable.filled_prefix_bytes());
        let shipped = |block: &[Stretch]| block.last().map_or(0, |last| last.from + last.length);
        let mut block = log.block(base);
        if block.is_empty() || shipped(&block) < bytes / 2 {
            return None;
        }
        if shipped(&block) < bytes {
            if let Err(error) = self.log_up_to(buffer.memtable.last_sequence()?) {
                tracing::debug!(%error, "a flush writes what the log lacks");
                return None;
            }
            block = log.block(base);
        }
        (shipped(&block) == bytes).then_some(block)
    }

    /// Ends the active memtable if it holds anything, so that it is flushed.
    ///
    /// # Errors
    /// As [`Shard::switch`].
    pub(crate) fn seal_active(&self) -> Result<()> {
        let active = Arc::clone(&self.tree.view.load().active);
        if active.memtable.reserved_bytes() > 0 {
            // Another thread may have ended it: it is switched all the same.
            let _ = active.memtable.end_early();
            self.switch(&active, Need::NOTHING, &mut Pause::default())?;
        }
        Ok(())
    }

    /// Notes that nobody would find what is written from now on. Background work ends, and so does the active memtable,
    /// because the next writer then looks for a failure.
    pub(crate) fn lose(&self, error: &Error) {
        self.failed(error.clone());
        let _ = self.tree.view.load().active.memtable.end_early();
    }

    /// Before background work begins: makes sure that it does not do again what a commit has done, of which it is or
    /// was unknown whether it counts. `is_left` says whether a view still has what the work replaces.
    ///
    /// # Errors
    /// As [`Commits::settle`].
    pub(crate) fn settle_commits(&self, is_left: impl FnOnce(&View) -> bool) -> Result<()> {
        self.commits.settle(&self.tree, is_left)
    }

    /// Commits a change that background work, or the move of a bound, has made.
    ///
    /// # Errors
    /// As [`Commits::commit`].
    pub(crate) fn commit(&self, mut change: Change, flushed: &[Arc<Buffer>]) -> Result<()> {
        let ended = match (&self.log, change.edit.last_sequence) {
            (ShardLog::Memory(log), Some(flushed)) => {
                if let Some((crossings, at)) = self.crossings.get() {
                    crossings.lead_table(*at, flushed)?;
                }
                log.ended_by(flushed)
            }
            (ShardLog::Storage(log, shard), Some(flushed)) => {
                log.lead_table(*shard, flushed)?;
                Vec::new()
            }
            _ => Vec::new(),
        };
        change.edit.ended_log_parts.clone_from(&ended);
        let last_sequence = change.edit.last_sequence;
        let lagging = self.lagging();
        if lagging.is_none() {
            self.keep(change.segments.clone())?;
        }
        self.commits.commit(&self.tree, change, flushed)?;
        match (&self.log, lagging) {
            (ShardLog::Memory(log), _) => log.forget(&ended, last_sequence),
            (_, Some(recorded)) => {
                recorded.flushed(flushed.iter().map(|buffer| buffer.memtable.filled_prefix_bytes()).sum());
                self.common.log_bell.ring();
            }
            (ShardLog::Storage(log, _), None) if !flushed.is_empty() => log.tidy(),
            _ => {}
        }
        self.lock().committed(!flushed.is_empty());
        self.notify();
        Ok(())
    }

    /// Bytes of memtables that were flushed, and whose tables storage does not have yet.
    pub(crate) fn lag_bytes(&self) -> u64 {
        self.lagging().map_or(0, Recorded::flushed_bytes)
    }

    /// What storage has of the versions, if it lags behind.
    pub(super) fn lagging(&self) -> Option<&Recorded> {
        self.commits.lagging()
    }

    /// Whether there may be something to do for its log.
    pub(super) fn tends_log(&self) -> bool {
        matches!(self.log, ShardLog::Memory(_)) || self.lags()
    }

    /// Deletes the part of the log that storage has in tables.
    pub(super) fn tidy_log(&self) {
        if let ShardLog::Storage(log, _) = &self.log {
            log.tidy();
        }
    }

    /// Notes that storage did not get the tables that it lacks.
    pub(super) fn not_recorded(&self, error: Error) {
        let error = self.tree.judged(error);
        if error.kind() == ErrorKind::Fenced || !error.is_of_storage() {
            return self.failed(error);
        }
        self.lock().not_recorded(error, self.tree.options.clock.now());
        self.notify();
    }

    /// Notes that background work failed. A full memory node is not permanent, and a broken endpoint need not be: then
    /// the work is tried again.
    pub(crate) fn failed(&self, error: Error) {
        let error = self.tree.why_failed(error);
        let may_retry = self.tree.remote.may_retry(&error) || self.goes_around_damage(&error);
        let is_last = may_retry && self.lock().has_tried_enough();
        let goes_elsewhere = is_last && self.tree.remote.serves_elsewhere(&error);
        let mut state = self.lock();
        if goes_elsewhere {
            state.goes_elsewhere();
        }
        let had_failed = state.failure.is_some();
        if error.kind() != ErrorKind::Fenced && error.is_of_register() {
            state.storage_failed(error, self.tree.options.clock.now());
        } else {
            state.failed(error, may_retry, self.tree.options.clock.now());
        }
        if let Some(error) = state.failure.as_ref().filter(|_| !had_failed && !self.tree.is_closed()) {
            tracing::error!(%error, kind = %error.kind(), "background work failed");
        }
        drop(state);
        self.notify();
    }
}

#[cfg(test)]
mod tests;
