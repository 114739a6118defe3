//! The log of writes of a database on storage: one for all shards (`docs/decisions/0035`).
//!
//! The first thread that waits for a number ships what all shards have published, for all that wait: it appends one
//! group (see [`groups`](crate::durable::groups)) and waits for one sync. The published numbers of the shards are read
//! under one cut, so a batch that crosses shards is in one group.
//!
//! Between syncs what is published is also appended without a sync, if the log is in files
//! ([`StorageLog::append_now`]). It then survives the end of this process, though not that of the machine
//! (`docs/decisions/0066`).
//!
//! A log begins when something is first shipped: it is created, then a commit names it, then something is appended. So
//! a log that is named and not there is missing. Several logs can be needed at the same time: those of earlier owners,
//! until tables hold what they hold, and one whose sync failed.
//!
//! # Invariants
//!
//! 1. The durable numbers only grow. All records up to them are in logs that a commit names and that were synced, or in
//!    tables.
//! 2. While the log leads the tables ([`Syncing::Sync`], [`Syncing::Interval`]), no commit names a table with a number above
//!    the durable one. So tables and log together hold what all shards held at one moment.
//! 3. What a sync that failed covered is not durable, whatever a later sync says, until it was shipped again to another log.
//! 4. A log, or a segment of it, is deleted when tables that a commit names hold all that it holds, and no commit names
//!    the log any more. An owner that ends before it has deleted all of it leaves the rest to the next one.

use crate::durable::database::Place;
use crate::durable::groups;
use crate::durable::lead::Lead;
use crate::durable::register::Register;
use crate::durable::shipping::{Progress, whole_records};
use crate::terms::planted::{Bug, instead_when_planted, planted};
use crate::terms::statistics::{LogStatistics, add, get};
use crate::terms::{Durability, Error, Options, Result, Syncing, Undeleted};
use crate::tree::buffer::Buffer;
use crate::tree::cut::Cut;
use crate::tree::shared::Tree;
use forebay_base::{ErrorKind, RecordHeader, SequenceNumber};
use forebay_env::Random;
use forebay_env::sync::{Mutex, lock};
use forebay_storage::{Log, Position};
use forebay_table::LogName;
use std::collections::VecDeque;
use std::ops::{Range, RangeInclusive};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How often what was published is appended to a log in files, between its syncs. A killed process loses what it wrote
/// since. An append is a write into the page cache, of a frame with some dozens of bytes beside the records. At this
/// pace that is little compared with what a busy writer writes, and a database at rest looks at a few numbers each
/// time.
pub(crate) const APPEND_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum bytes of a frame, unless one record needs more.
const FRAME_BYTES: u64 = 1 << 20;
/// Least distance in bytes between two places from which the log can be trimmed: a quarter of a memtable, within these
/// bounds.
const MARK_BYTES: RangeInclusive<u64> = 4 << 10..=1 << 20;
/// The log keeps this many times what all memtables hold, beside what storage lags by, before a shard that writes
/// little has to flush for it.
const KEPT_MEMTABLES: u64 = 2;
/// But always at least this much.
const LEAST_KEPT_BYTES: u64 = 4 << 20;
/// The same for the number of files or objects. If each sync puts an object, little data takes many, and a recovery has
/// to get all of them.
const MOST_KEPT_SEGMENTS: usize = 256;
/// Logs that are no longer written to, above which shards flush what these hold. A process that is killed leaves one,
/// however little it wrote, and the next one has to read all of them.
const MOST_LEFT_LOGS: usize = 16;
/// At most this many groups between two places from which the log can be trimmed.
const MARK_GROUPS: u64 = 32;

/// See the module.
#[derive(Debug)]
pub(crate) struct StorageLog {
    place: Place,
    epoch: u64,
    register: Arc<Register>,
    /// No table is committed before the log holds what it holds.
    leads_tables: bool,
    most_kept_bytes: u64,
    mark_bytes: u64,
    trees: OnceLock<Vec<Arc<Tree>>>,
    cut: Arc<Cut>,
    lead: Lead,
    /// For each shard, the number up to which all records are durable.
    durable: Vec<AtomicU64>,
    /// For each shard, what was appended. Locked before the moment to be appended is read: so later moments follow
    /// earlier ones.
    appended: Mutex<Vec<Progress>>,
    shipping: Mutex<Shipping>,
    /// Logs that no commit names any more, to be deleted.
    unneeded: Mutex<Vec<LogName>>,
    undeleted: Undeleted,
    /// Why the last shipment failed, if it did.
    failure: Mutex<Option<Error>>,
    /// Whether the last shipment failed, and whether nothing can be shipped any more.
    is_failing: AtomicBool,
    is_broken: AtomicBool,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    groups: AtomicU64,
    bytes: AtomicU64,
    records: AtomicU64,
    waits: AtomicU64,
}

#[derive(Debug)]
struct Shipping {
    open: Option<Open>,
    /// A log that may exist in part: its name, and its random number.
    begun: Option<(LogName, u64)>,
    /// A log that was created, and that a commit may not name.
    unnamed: Option<(LogName, Arc<dyn Log>)>,
    /// For each shard, how much of what was appended was synced.
    synced: Vec<Progress>,
    /// The next group, and the next log.
    group: u64,
    serial: u64,
    /// Logs that are no longer appended to.
    left: Vec<LeftLog>,
}

/// The log that is written.
#[derive(Debug)]
struct Open {
    name: LogName,
    log: Arc<dyn Log>,
    end: Position,
    trimmed: Position,
    /// Places from which the log can be trimmed.
    marks: VecDeque<Mark>,
}

/// A place from which the log can be trimmed, once tables hold everything up to these numbers.
#[derive(Debug)]
struct Mark {
    end: Position,
    numbers: Vec<SequenceNumber>,
    /// Groups between this place and the one before.
    groups: u64,
}

/// A log that is needed until tables hold everything up to these numbers.
#[derive(Debug, Clone)]
pub(crate) struct LeftLog {
    pub(crate) name: LogName,
    pub(crate) numbers: Vec<SequenceNumber>,
    /// Whether it may hold writes after these numbers: it was left because a sync of it failed.
    pub(crate) may_hold_more: bool,
}

/// How far the log was appended to at a moment, and what of each shard it has up to there.
struct Appended {
    log: Arc<dyn Log>,
    end: Position,
    progress: Vec<Progress>,
}

/// Records of a memtable's block on their way to the log.
struct Piece {
    shard: u32,
    buffer: Arc<Buffer>,
    range: Range<usize>,
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        self.buffer.memtable.inserted_prefix().get(self.range.clone()).unwrap_or_default()
    }
}

impl StorageLog {
    /// The log of a database whose earlier owners left these logs, which end, in each shard, at `reached`, and others that
    /// are not needed.
    pub(crate) fn new(
        place: Place,
        epoch: u64,
        register: Arc<Register>,
        cut: Arc<Cut>,
        reached: &[SequenceNumber],
        (left, unneeded): (Vec<LeftLog>, Vec<LogName>),
        options: &Options,
    ) -> Self {
        let progress: Vec<_> = reached.iter().map(|number| Progress::new(*number)).collect();
        let memtables = (options.write_buffer_bytes as u64).saturating_mul(options.max_immutable_memtables as u64 + 1);
        let kept = memtables.saturating_mul(KEPT_MEMTABLES).saturating_add(options.storage_lag_bytes());
        let all = kept.saturating_mul(options.shards as u64);
        Self {
            place,
            epoch,
            register,
            leads_tables: matches!(options.durability, Durability::Storage(Syncing::Sync | Syncing::Interval(_))),
            most_kept_bytes: all.max(LEAST_KEPT_BYTES),
            mark_bytes: (options.write_buffer_bytes as u64 / 4).clamp(*MARK_BYTES.start(), *MARK_BYTES.end()),
            trees: OnceLock::new(),
            cut,
            lead: Lead::default(),
            durable: reached.iter().map(|number| AtomicU64::new(number.0)).collect(),
            appended: Mutex::new(progress.clone()),
            shipping: Mutex::new(Shipping {
                open: None,
                begun: None,
                unnamed: None,
                synced: progress,
                group: 1,
                serial: 1,
                left,
            }),
            unneeded: Mutex::new(unneeded),
            undeleted: Undeleted::of("logs"),
            failure: Mutex::default(),
            is_failing: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            counters: Counters::default(),
        }
    }

    /// Whether the log holds a table's records before the table is installed.
    pub(crate) const fn leads_tables(&self) -> bool {
        self.leads_tables
    }

    /// Whether what was appended survives the end of this process before it is synced.
    pub(crate) const fn keeps_appended(&self) -> bool {
        self.place.storage.has_log_files()
    }

    /// Says whose records the log takes: those of all shards in order. Nothing is shipped before.
    pub(crate) fn begin(&self, trees: Vec<Arc<Tree>>) {
        self.trees.get_or_init(|| trees);
    }

    fn trees(&self) -> &[Arc<Tree>] {
        self.trees.get().map_or(&[], Vec::as_slice)
    }

    fn durable(&self, shard: usize) -> SequenceNumber {
        // Acquire: pairs with the release in `ship`.
        self.durable.get(shard).map_or(SequenceNumber::ZERO, |number| SequenceNumber(number.load(Ordering::Acquire)))
    }

    /// Fails if the log can no longer be written.
    ///
    /// # Errors
    /// `Closed` after a failed sync, until [`StorageLog::resume`]; `Fenced`.
    #[inline]
    pub(crate) fn check_usable(&self) -> Result<()> {
        if self.is_broken.load(Ordering::Relaxed) { self.check(Ok(())) } else { Ok(()) }
    }

    /// Refuses a write that is to be durable while shipments fail: what the log holds already is shipped first.
    /// Otherwise the write would be visible and not durable, and so would all that follow. The log needs room for those
    /// before it continues.
    ///
    /// # Errors
    /// As [`StorageLog::check_usable`] and [`StorageLog::make_durable`].
    #[inline]
    pub(crate) fn check_shipped(&self) -> Result<()> {
        if self.is_failing.load(Ordering::Relaxed) { self.ship_what_failed() } else { Ok(()) }
    }

    #[cold]
    fn ship_what_failed(&self) -> Result<()> {
        self.lead.reach(|| !self.is_failing.load(Ordering::Relaxed), || (), || self.ship())
    }

    /// Refuses a write that nobody waits for while shipments fail.
    ///
    /// # Errors
    /// As [`StorageLog::check_usable`]; why the last shipment failed.
    #[inline]
    pub(crate) fn check_shipping(&self) -> Result<()> {
        if self.is_failing.load(Ordering::Relaxed) { self.check(Ok(())) } else { Ok(()) }
    }

    /// Why the last shipment failed, if it did.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.check_shipping().err()
    }

    #[cold]
    fn check(&self, otherwise: Result<()>) -> Result<()> {
        lock(&self.failure).as_ref().map_or(otherwise, |error| Err(error.clone()))
    }

    /// Returns when all records of a shard up to `number`, which is published, are durable.
    ///
    /// # Errors
    /// Those of the storage. The records may be durable all the same.
    pub(crate) fn make_durable(&self, shard: usize, number: SequenceNumber) -> Result<()> {
        instead_when_planted!(Bug::AcknowledgeBeforeShipped, Ok(()));
        let waits = || add(&self.counters.waits, 1);
        self.lead.reach(|| self.durable(shard) >= number, waits, || self.ship())
    }

    /// Returns when the log holds the records of a table that is to be committed, up to `number`.
    ///
    /// # Errors
    /// As [`StorageLog::make_durable`].
    pub(crate) fn lead_table(&self, shard: usize, number: SequenceNumber) -> Result<()> {
        if self.leads_tables && !planted(Bug::TablesAheadOfLog) { self.make_durable(shard, number) } else { Ok(()) }
    }

    /// Ships what is published now.
    ///
    /// # Errors
    /// As [`StorageLog::make_durable`].
    pub(crate) fn ship_now(&self) -> Result<()> {
        self.lead.alone(|| self.ship())
    }

    /// Refuses writes with `error`, until [`StorageLog::resume`] succeeds.
    pub(crate) fn refuse(&self, error: &Error) {
        // A shipment that succeeds says that nothing fails.
        self.lead.alone(|| {
            *lock(&self.failure) = Some(error.clone());
            self.is_failing.store(true, Ordering::Relaxed);
            self.is_broken.store(true, Ordering::Relaxed);
        });
    }

    /// Begins another log in place of one whose sync failed, with all that is not durable.
    ///
    /// # Errors
    /// `Fenced`; `Corrupt` while the commits that would name it are gone; those of the storage.
    pub(crate) fn resume(&self) -> Result<()> {
        if self.is_failing.load(Ordering::Relaxed) {
            self.register.check()?;
        }
        self.lead.alone(|| {
            let mut appended = lock(&self.appended);
            let mut shipping = lock(&self.shipping);
            if let Some(open) = shipping.open.take_if(|open| open.log.failure().is_some()) {
                if let Some(fenced) = open.log.failure().filter(|error| error.kind() == ErrorKind::Fenced) {
                    shipping.open = Some(open);
                    return Err(fenced.into());
                }
                let numbers = shipping.synced.iter().map(Progress::reached).collect();
                shipping.left.push(LeftLog { name: open.name, numbers, may_hold_more: true });
                appended.clone_from(&shipping.synced);
            }
            drop((shipping, appended));
            self.is_broken.store(false, Ordering::Relaxed);
            self.ship()
        })
    }

    /// Appends what is published now, and leaves the sync to the next shipment. Returns whether there was anything.
    /// While shipments fail, only they try again.
    pub(crate) fn append_now(&self) -> bool {
        let is_new = |(tree, progress): (&Arc<Tree>, &Progress)| tree.publication.published() > progress.reached();
        if self.is_failing.load(Ordering::Relaxed) || !self.trees().iter().zip(&*lock(&self.appended)).any(is_new) {
            return false;
        }
        if let Err(failure) = self.append_published() {
            self.note_failure(failure);
        }
        true
    }

    /// Ships all that is published. The next shipment makes up for one that failed.
    fn ship(&self) -> Result<()> {
        self.check_usable()?;
        // Nobody would find what is shipped.
        let lost = self.register.lost().map_or(Ok(()), |lost| Err((lost, false)));
        match lost.and_then(|()| self.try_ship()) {
            Ok(()) => {
                self.note_success();
                Ok(())
            }
            Err(failure) => Err(self.note_failure(failure)),
        }
    }

    fn note_success(&self) {
        if self.is_failing.load(Ordering::Relaxed) {
            let mut failure = lock(&self.failure);
            // What was appended meanwhile may have found that the log is no longer of use.
            if !self.is_broken.load(Ordering::Relaxed) {
                *failure = None;
                self.is_failing.store(false, Ordering::Relaxed);
            }
        }
    }

    fn note_failure(&self, (error, is_broken): (Error, bool)) -> Error {
        let error = if is_broken { error.during("the log is lost until another one has begun") } else { error };
        tracing::warn!(%error, "writing the log");
        let mut failure = lock(&self.failure);
        *failure = Some(error.clone());
        self.is_failing.store(true, Ordering::Relaxed);
        if is_broken {
            self.is_broken.store(true, Ordering::Relaxed);
        }
        error
    }

    fn try_ship(&self) -> std::result::Result<(), (Error, bool)> {
        let Appended { log, end, progress: appended } = self.append_published()?;
        lock(&self.shipping).open.iter_mut().for_each(|open| open.mark(end, &appended, self.mark_bytes));
        match log.sync(end) {
            Err(_) if planted(Bug::FailedSyncForgotten) => {}
            synced => synced.map_err(|error| failed(&*log, error))?,
        }
        add(&self.counters.groups, 1);
        for (durable, progress) in self.durable.iter().zip(&appended) {
            // Release: a thread that learns of the number may tell it to others.
            durable.fetch_max(progress.reached().0, Ordering::Release);
        }
        lock(&self.shipping).synced = appended;
        Ok(())
    }

    /// Appends what is published and was not appended yet.
    fn append_published(&self) -> std::result::Result<Appended, (Error, bool)> {
        let mut appended = lock(&self.appended);
        let moment = self.moment();
        let mut shipping = lock(&self.shipping);
        let mut reached = appended.clone();
        let (pieces, records) = pieces(&moment, &mut reached).map_err(|error| (error, false))?;
        let log = self.open(&mut shipping).map_err(|error| (error, false))?;
        let mut end = shipping.open.as_ref().map_or(0, |open| open.end);
        if !pieces.is_empty() {
            let ended = append(&*log, groups::mark(shipping.group, self.leads_tables), &pieces);
            shipping.group += 1;
            end = ended.map_err(|error| failed(&*log, error))?;
            add(&self.counters.bytes, pieces.iter().map(|piece| piece.range.len() as u64).sum());
            add(&self.counters.records, records);
            shipping.open.iter_mut().for_each(|open| open.end = end);
        }
        appended.clone_from(&reached);
        Ok(Appended { log, end, progress: reached })
    }

    /// What all shards hold at one moment: their memtables, oldest first, and their published numbers.
    fn moment(&self) -> Vec<(Vec<Arc<Buffer>>, SequenceNumber)> {
        let of_tree = |tree: &Arc<Tree>| {
            let (view, number) = tree.present();
            let mut buffers: Vec<_> = view.buffers().cloned().collect();
            buffers.reverse();
            (buffers, number)
        };
        self.cut.through(|| self.trees().iter().map(of_tree).collect())
    }

    /// The log that is written. Begins one if there is none.
    fn open(&self, shipping: &mut Shipping) -> Result<Arc<dyn Log>> {
        if let Some(open) = &shipping.open {
            return Ok(Arc::clone(&open.log));
        }
        let (name, log) = match &shipping.unnamed {
            Some((name, log)) => (*name, Arc::clone(log)),
            None => self.create(shipping)?,
        };
        let left = shipping.left.iter().map(|left| left.name);
        self.register.record_logs(left.chain([name]).collect())?;
        shipping.unnamed = None;
        let open = Open { name, log: Arc::clone(&log), end: 0, trimmed: 0, marks: VecDeque::new() };
        shipping.open = Some(open);
        Ok(log)
    }

    /// Creates a log, which counts once a commit names it.
    fn create(&self, shipping: &mut Shipping) -> Result<(LogName, Arc<dyn Log>)> {
        // So owners that each end before they come to this do not fill the storage.
        self.delete_unneeded();
        let begun = shipping.begun.take();
        let (name, number) = begun.map_or_else(|| self.next_log(shipping), Ok)?;
        let log = self.place.storage.create_log(&self.place.log(name)?, number);
        let log = log.inspect_err(|error| {
            // The log may exist in part. Objects are put again, which finds what a lost reply had said. Files are left.
            if self.place.storage.has_log_files() || error.kind() == ErrorKind::AlreadyExists {
                lock(&self.unneeded).push(name);
            } else {
                shipping.begun = Some((name, number));
            }
        })?;
        shipping.unnamed = Some((name, Arc::clone(&log)));
        Ok((name, log))
    }

    /// The name of a log that nobody has begun, and a random number for it.
    fn next_log(&self, shipping: &mut Shipping) -> Result<(LogName, u64)> {
        let name = LogName { epoch: self.epoch, serial: shipping.serial };
        shipping.serial += 1;
        let number =
            Random::secret().map_err(|error| Error::new(ErrorKind::Io, format!("a random number: {error}")))?;
        Ok((name, number as u64))
    }

    /// Deletes the part of the log that tables hold.
    pub(crate) fn tidy(&self) {
        if let Err(error) = self.let_go() {
            tracing::debug!(%error, "recording which logs are not needed: later");
        }
        self.delete_unneeded();
    }

    /// Deletes logs that are not needed. Returns whether there were any. What cannot be deleted now is left to the next
    /// owner.
    pub(crate) fn delete_unneeded(&self) -> bool {
        let unneeded = std::mem::take(&mut *lock(&self.unneeded));
        for name in &unneeded {
            let deleted = self.place.log(*name).and_then(|log| Ok(self.place.storage.delete_log(&log)?));
            if let Err(error) = deleted {
                self.undeleted.note(&error);
            }
        }
        !unneeded.is_empty()
    }

    fn let_go(&self) -> Result<()> {
        let flushed = self.register.flushed();
        let is_held =
            |numbers: &[SequenceNumber]| numbers.iter().zip(&flushed).all(|(number, flushed)| number <= flushed);
        let mut shipping = lock(&self.shipping);
        let trimmed = shipping.open.as_mut().and_then(|open| open.pass(is_held));
        // While no later log is named, writes after its numbers would look like those of a log whose commit is lost.
        let is_needed = |left: &LeftLog| left.may_hold_more && shipping.open.is_none();
        let is_gone = |left: &LeftLog| is_held(&left.numbers) && !is_needed(left);
        let (gone, left): (Vec<_>, Vec<_>) = shipping.left.iter().cloned().partition(is_gone);
        if !gone.is_empty() {
            let open = shipping.open.as_ref().map(|open| open.name);
            self.register.record_logs(left.iter().map(|left| left.name).chain(open).collect())?;
            shipping.left = left;
            lock(&self.unneeded).extend(gone.iter().map(|gone| gone.name));
        }
        drop(shipping);
        // Trimming takes a request for each object. No thread that ships waits for that.
        if let Some((log, position)) = trimmed
            && let Err(error) = log.trim(position)
        {
            self.undeleted.note(&error);
        }
        Ok(())
    }

    /// Whether the log, which has become long, cannot be trimmed, or one of many logs cannot be deleted, because a
    /// shard has not flushed what it wrote long ago.
    pub(crate) fn is_held_by(&self, shard: usize) -> bool {
        let Some(tree) = self.trees().get(shard) else { return false };
        let flushed = tree.view.load().version.version.last_sequence();
        self.needs_tables(shard).is_some_and(|number| number > flushed)
    }

    /// The same because storage does not have what the shard has flushed, up to this number.
    pub(crate) fn waits_for_record(&self, shard: usize, flushed: SequenceNumber) -> bool {
        let is_recorded = |number| self.register.flushed().get(shard).is_none_or(|recorded| number <= *recorded);
        self.needs_tables(shard).is_some_and(|number| number <= flushed && !is_recorded(number))
    }

    /// If the log has become long, or there are many logs that are no longer written to: the number up to which tables
    /// of a shard must hold everything, so that the log can be trimmed, or these can be deleted.
    fn needs_tables(&self, shard: usize) -> Option<SequenceNumber> {
        let shipping = lock(&self.shipping);
        let of_open = shipping.open.as_ref().filter(|open| open.is_long(self.most_kept_bytes));
        let of_open = of_open.and_then(|open| Some(&open.marks.front()?.numbers));
        let of_left = shipping.left.last().filter(|_| shipping.left.len() > MOST_LEFT_LOGS);
        let of_left = of_left.map(|left| &left.numbers);
        of_open.into_iter().chain(of_left).filter_map(|numbers| numbers.get(shard).copied()).max()
    }

    /// Deletes the log of a database that is closed, if tables hold everything.
    pub(crate) fn close(&self) {
        let trees = self.trees();
        // If opening failed, a shard may not have published what earlier logs hold of it.
        let is_flushed = |(shard, (tree, flushed)): (usize, (&Arc<Tree>, SequenceNumber))| {
            tree.fenced().is_none() && flushed >= tree.publication.published().max(self.durable(shard))
        };
        if trees.is_empty() || !trees.iter().zip(self.register.flushed()).enumerate().all(is_flushed) {
            return;
        }
        let begun = lock(&self.shipping).begun.take();
        lock(&self.unneeded).extend(begun.map(|(name, _)| name));
        self.tidy();
        let mut shipping = lock(&self.shipping);
        let unnamed = shipping.unnamed.take().map(|(_, log)| log);
        let Some(log) = shipping.open.take().map(|open| open.log).or(unnamed) else { return };
        // Tables hold what earlier logs have, too: none is named, also if it could not be let go of.
        if let Err(error) = self.register.record_logs(Vec::new()) {
            tracing::debug!(%error, "recording that the log is not needed: the next owner does");
        } else if let Err(error) = log.discard() {
            self.undeleted.note(&error);
        }
    }

    /// What was shipped.
    pub(crate) fn add_to(&self, statistics: &mut LogStatistics) {
        statistics.groups += get(&self.counters.groups);
        statistics.bytes += get(&self.counters.bytes);
        statistics.records += get(&self.counters.records);
        statistics.waits += get(&self.counters.waits);
    }
}

impl Open {
    /// Whether it has more than is kept for a shard that writes little.
    fn is_long(&self, most_kept_bytes: u64) -> bool {
        self.end.saturating_sub(self.trimmed) > most_kept_bytes || self.log.segments() > MOST_KEPT_SEGMENTS
    }

    /// Makes `end` a place from which the log can be trimmed, in place of the last one if that is near. `appended` is
    /// what the log has of each shard before it.
    fn mark(&mut self, end: Position, appended: &[Progress], mark_bytes: u64) {
        let marks = &mut self.marks;
        if marks.back().map_or(self.trimmed, |last| last.end) == end {
            return;
        }
        let before = marks.len().checked_sub(2).and_then(|at| marks.get(at));
        let begin = before.map_or(self.trimmed, |mark| mark.end);
        let numbers = appended.iter().map(Progress::reached).collect();
        match marks.back_mut() {
            Some(last) if end.saturating_sub(begin) < mark_bytes && last.groups < MARK_GROUPS => {
                *last = Mark { end, numbers, groups: last.groups + 1 };
            }
            _ => marks.push_back(Mark { end, numbers, groups: 1 }),
        }
    }

    /// Passes the places up to which all that the log holds `is_held`. The log can be trimmed from the last of them.
    fn pass(&mut self, is_held: impl Fn(&[SequenceNumber]) -> bool) -> Option<(Arc<dyn Log>, Position)> {
        let mut passed = None;
        while let Some(mark) = self.marks.pop_front_if(|mark| is_held(&mark.numbers) || planted(Bug::TrimEarly)) {
            passed = Some(mark.end);
        }
        self.trimmed = passed?;
        Some((Arc::clone(&self.log), self.trimmed))
    }
}

/// What is to be shipped of all shards, and the number of records; notes it as appended.
fn pieces(moment: &[(Vec<Arc<Buffer>>, SequenceNumber)], appended: &mut [Progress]) -> Result<(Vec<Piece>, u64)> {
    let mut pieces = Vec::new();
    let mut records = 0;
    for (((buffers, number), progress), shard) in moment.iter().zip(appended).zip(0..) {
        for buffer in buffers {
            let base = buffer.memtable.base();
            if base >= *number || buffer.memtable.last_sequence().is_some_and(|last| last <= progress.reached()) {
                continue;
            }
            let inserted = buffer.memtable.inserted(*number)?;
            let end = inserted.bytes as usize;
            let bytes = buffer.memtable.inserted_prefix().get(..end).unwrap_or_default();
            let mut begin = progress.begin(base, bytes)?;
            let last = base.0.saturating_add(inserted.count);
            records += last.saturating_sub(base.0.max(progress.reached().0));
            while let Some(rest) = bytes.get(begin..).filter(|rest| !rest.is_empty()) {
                let length = frame_length(rest)?;
                pieces.push(Piece { shard, buffer: Arc::clone(buffer), range: begin..begin + length });
                begin += length;
            }
            progress.ship(base, end);
            progress.reach(SequenceNumber(last));
        }
        // What is not in memtables was flushed, or the database is closed: then nobody is told that it is durable.
        progress.reach(*number);
    }
    Ok((pieces, records))
}

/// How many of these bytes of records go into one frame.
fn frame_length(bytes: &[u8]) -> Result<usize> {
    if bytes.len() as u64 <= FRAME_BYTES {
        return Ok(bytes.len());
    }
    match whole_records(bytes, FRAME_BYTES)? {
        Some((length, _)) => Ok(length as usize),
        None => Ok(RecordHeader::decode(bytes)?.padded_length().min(bytes.len())),
    }
}

/// What an error of a log means, and whether nothing can be shipped to it any more.
fn failed(log: &dyn Log, error: forebay_storage::Error) -> (Error, bool) {
    (Error::from(error).during("writing the log"), log.failure().is_some())
}

/// Appends a group, whose frames have this mark. Returns where the log ends then.
fn append(log: &dyn Log, mark: u64, pieces: &[Piece]) -> forebay_storage::Result<Position> {
    let mut end = 0;
    for (at, piece) in pieces.iter().enumerate() {
        let goes_on = at + 1 < pieces.len();
        end = log.append(groups::stream(piece.shard, goes_on), mark, piece.bytes())?;
    }
    Ok(end)
}
