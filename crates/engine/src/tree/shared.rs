//! A tree: one LSM-tree over a key range, as readers and writers share it.
//!
//! ```text
//!   view ──► active memtable, sealed memtables (newest first), version
//! ```
//!
//! A reader takes the view first and the published number second. The number then covers everything that the view's
//! tables hold, so no compaction can have dropped an entry that the reader should see. The view is replaced as a whole:
//!
//! | change | by | view before → after |
//! |---|---|---|
//! | switch | a writer that finds the active memtable ended | active A, sealed S → active N, sealed A·S |
//! | flush | background work, oldest sealed memtables first | sealed S·A, version V → sealed S, version V + table of A |
//! | compaction | background work | version V → V − inputs + outputs |
//!
//! Each change derives from the current view under one lock, so no change is lost. No lock is held while a record is
//! copied or while a thread waits for the fabric.

use crate::remote::members::Members;
use crate::remote::segment::{Remote, Segment};
use crate::terms::planted::{Bug, planted};
use crate::terms::segment_numbers::NUMBERS_OF_A_JOB;
use crate::terms::statistics::Counters;
use crate::terms::time::{ExpiryClock, Horizon};
use crate::terms::{Error, Options, Result};
use crate::tree::buffer::Buffer;
use crate::tree::learnt::Learnt;
use crate::tree::version::LiveVersion;
use forebay_base::record::MIN_RECORD_BYTES;
use forebay_base::{ErrorKind, SegmentId, SequenceNumber};
use forebay_env::sync::{Mutex, lock};
use forebay_memtable::{BlockPool, Guard, Publication, Switch};
use forebay_table::TableId;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// What a reader sees of a tree.
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

    /// The memtable of this age: 0 for the active one, 1 for the newest that is sealed.
    pub(crate) fn buffer(&self, age: usize) -> Option<&Arc<Buffer>> {
        match age.checked_sub(1) {
            None => Some(&self.active),
            Some(sealed) => self.sealed.get(sealed),
        }
    }
}

/// Readers of a number.
#[derive(Debug)]
struct Pin {
    readers: usize,
    /// No reader's time is earlier.
    time_ms: u64,
}

/// What a compaction that starts now must keep.
#[derive(Debug)]
pub(crate) struct Pinned {
    /// The numbers that somebody reads at, ascending.
    pub(crate) numbers: Vec<SequenceNumber>,
    /// Records that expired before this time are hidden from everybody.
    pub(crate) expire_before_ms: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) options: Options,
    pub(crate) remote: Arc<Members>,
    pub(crate) view: Switch<View>,
    pub(crate) publication: Publication,
    pub(crate) counters: Counters,
    /// Addresses of records that lookups have found.
    pub(crate) learnt: Learnt,
    /// The database's time.
    pub(crate) time: Arc<ExpiryClock>,
    /// The published number when the tree was opened.
    pub(crate) opened_at: SequenceNumber,
    blocks: Arc<BlockPool>,
    /// Held while the view is replaced by one derived from it.
    changing: Mutex<()>,
    /// Versions that were replaced, and that readers may hold.
    replaced: Mutex<Vec<Weak<LiveVersion>>>,
    /// Published numbers that somebody reads at.
    snapshots: Mutex<BTreeMap<u64, Pin>>,
    next_segment: AtomicU64,
    next_table: AtomicU64,
    /// Set when a writer has begun a memtable: it will need the next one.
    wants_memtable: AtomicBool,
    /// No memtable is installed any more: the database is about to be closed, and flushes what was written.
    writes_ended: AtomicBool,
    closed: AtomicBool,
    /// Set when another process took over.
    fenced: OnceLock<Error>,
}

impl Tree {
    /// A tree with the given version.
    ///
    /// # Errors
    /// When there is no memory for the first memtable.
    pub(crate) fn new(
        options: Options,
        remote: Arc<Members>,
        version: LiveVersion,
        opened_at: SequenceNumber,
        time: Arc<ExpiryClock>,
    ) -> Result<Self> {
        time.begin_at(version.version.expired_before_ms());
        let last = version.version.last_sequence();
        let (next_segment, next_table) = (version.version.next_segment(), version.version.next_table());
        let blocks = BlockPool::new(options.write_buffer_bytes.next_multiple_of(8));
        let active = Buffer::allocate(&blocks, &options, last, options.write_buffer_bytes, false)?;
        let view = View { active, sealed: Vec::new(), version: Arc::new(version) };
        Ok(Self {
            view: Switch::new(Arc::new(view)),
            publication: Publication::new(last, Publication::DEFAULT_SLOTS),
            counters: Counters::default(),
            learnt: Learnt::new(&options),
            time,
            opened_at,
            blocks,
            changing: Mutex::default(),
            replaced: Mutex::default(),
            snapshots: Mutex::default(),
            next_segment: AtomicU64::new(next_segment),
            next_table: AtomicU64::new(next_table),
            wants_memtable: AtomicBool::new(false),
            writes_ended: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            fenced: OnceLock::new(),
            options,
            remote,
        })
    }

    /// The view and the published number. The view shows everything that the number covers: a reader of several trees
    /// must see each of them as of its number, and an address that a lookup learns is said to be the newest up to it.
    #[inline]
    pub(crate) fn present(&self) -> (Guard<'_, View>, SequenceNumber) {
        self.present_with(|| ())
    }

    /// The same. Tests do `meanwhile` between taking the view and taking the number.
    #[inline]
    fn present_with(&self, mut meanwhile: impl FnMut()) -> (Guard<'_, View>, SequenceNumber) {
        loop {
            let view = self.view.load();
            meanwhile();
            let number = self.publication.published();
            // The writer of a later memtable had seen it installed. As we have seen the writer's number, we see that
            // too.
            if !view.is_replaced() {
                return (view, number);
            }
        }
    }

    /// Installs the memtable that follows `ended`, the active one, whose numbers end at `last`. The new one takes
    /// `capacity_bytes`. Returns false when `ended` is no longer the active one.
    ///
    /// # Errors
    /// `Io` when there is no memory; `Closed` once [writes have ended](Tree::end_writes).
    pub(crate) fn install_next(
        &self,
        ended: &Arc<Buffer>,
        last: SequenceNumber,
        capacity_bytes: u64,
        is_reserve: bool,
    ) -> Result<bool> {
        let _changing = lock(&self.changing);
        let view = Arc::clone(&self.view.load());
        if !Arc::ptr_eq(&view.active, ended) {
            return Ok(false);
        }
        self.check_writable()?;
        let capacity = usize::try_from(capacity_bytes).unwrap_or(usize::MAX);
        let next = Buffer::allocate(&self.blocks, &self.options, last, capacity, is_reserve)?;
        self.follow(&view, next);
        Ok(true)
    }

    /// Ends the active memtable, and lets nobody write any more. Returns the number up to which there are records.
    ///
    /// # Errors
    /// `Io` when there is no memory.
    pub(crate) fn end_writes(&self) -> Result<SequenceNumber> {
        let _changing = lock(&self.changing);
        // Relaxed: a thread that installs a memtable later takes the same lock.
        self.writes_ended.store(true, Ordering::Relaxed);
        let view = Arc::clone(&self.view.load());
        let _ = view.active.memtable.end_early();
        let last = view.active.memtable.wait_last_sequence();
        if view.active.memtable.reserved_bytes() > 0 {
            self.follow(&view, self.ended_memtable(last)?);
        }
        Ok(last)
    }

    /// Replaces a view by one in which its active memtable is sealed. The caller holds the lock of changes.
    fn follow(&self, view: &View, next: Arc<Buffer>) {
        let mut sealed = Vec::with_capacity(view.sealed.len() + 1);
        sealed.push(Arc::clone(&view.active));
        sealed.extend(view.sealed.iter().cloned());
        self.view.replace(Arc::new(View { active: next, sealed, version: Arc::clone(&view.version) }));
    }

    /// Returns a memtable after number `last` into which nothing fits.
    fn ended_memtable(&self, last: SequenceNumber) -> Result<Arc<Buffer>> {
        let buffer = Buffer::allocate(&self.blocks, &self.options, last, MIN_RECORD_BYTES, false)?;
        let _ = buffer.memtable.end_early();
        Ok(buffer)
    }

    /// Installs a version, and drops the memtables `flushed` from the view.
    pub(crate) fn install(&self, version: Arc<LiveVersion>, flushed: &[Arc<Buffer>]) {
        let _changing = lock(&self.changing);
        let view = Arc::clone(&self.view.load());
        let is_left = |buffer: &&Arc<Buffer>| !flushed.iter().any(|flushed| Arc::ptr_eq(buffer, flushed));
        let sealed = view.sealed.iter().filter(is_left).cloned().collect();
        {
            let mut replaced = lock(&self.replaced);
            replaced.retain(|version| version.strong_count() > 0);
            replaced.push(Arc::downgrade(&view.version));
        }
        self.view.replace(Arc::new(View { active: Arc::clone(&view.active), sealed, version }));
    }

    /// The earlier versions that readers need.
    pub(crate) fn versions_read(&self) -> Vec<Arc<LiveVersion>> {
        lock(&self.replaced).iter().filter_map(Weak::upgrade).collect()
    }

    /// The segments that readers of earlier versions need and `version` no longer names.
    pub(crate) fn segments_read(&self, version: &LiveVersion) -> Vec<Arc<Segment>> {
        let replaced = self.versions_read();
        let mut read = BTreeMap::new();
        for segment in replaced.iter().flat_map(|replaced| replaced.segments()) {
            if version.segment(segment.id()).is_none() {
                read.insert(segment.id(), Arc::clone(segment));
            }
        }
        read.into_values().collect()
    }

    /// Releases all memtables and tables of a closed tree.
    pub(crate) fn clear(&self) {
        let changing = lock(&self.changing);
        let version = Arc::new(LiveVersion::empty(&self.options));
        match self.ended_memtable(self.publication.published()) {
            Ok(active) => drop(self.view.replace(Arc::new(View { active, sealed: Vec::new(), version }))),
            Err(error) => tracing::warn!(%error, "the memory is kept until the database is dropped"),
        }
        drop(changing);
        self.view.reclaim();
    }

    /// Notes that a writer has begun a memtable, and will need the next one.
    pub(crate) fn want_memtable(&self) {
        self.wants_memtable.store(true, Ordering::Relaxed);
    }

    /// Allocates the next memtable before a writer needs it, if one will, and before a bulk load. Returns false when there
    /// are enough.
    pub(crate) fn prepare_memtable(&self) -> bool {
        let is_wanted = self.options.bulk_load || self.wants_memtable.swap(false, Ordering::Relaxed);
        // If there is no memory now, the memtable is allocated when it is needed, or the write fails then.
        is_wanted && self.blocks.prepare(self.options.max_immutable_memtables + 1).unwrap_or(false)
    }

    /// Refuses later calls.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.remote.close();
    }

    /// Refuses later calls: another process took the tree over.
    pub(crate) fn fence(&self, error: Error) {
        self.fenced.get_or_init(|| error);
        self.close();
    }

    /// The error of a takeover by another process, if there was one.
    pub(crate) fn fenced(&self) -> Option<&Error> {
        self.fenced.get()
    }

    /// Whether calls are refused.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Refuses a call on a closed database. A call that has found nothing asks again, because the view may have been
    /// the empty one that [`Tree::clear`] leaves.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closed() { Err(self.why_closed()) } else { Ok(()) }
    }

    /// Refuses a write on a database that is closed or about to be.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.writes_ended.load(Ordering::Relaxed) { Err(self.why_closed()) } else { self.check_open() }
    }

    /// Why calls are refused.
    #[cold]
    pub(crate) fn why_closed(&self) -> Error {
        self.fenced.get().cloned().unwrap_or_else(Error::closed)
    }

    /// The meaning of a failed read, or of failed background work. A closed tree has given back what they need, and no
    /// longer asks anybody.
    #[cold]
    pub(crate) fn why_failed(&self, error: Error) -> Error {
        self.why_failed_at(self.remote.pinned(), error)
    }

    /// The same of what failed at a member.
    #[cold]
    pub(crate) fn why_failed_at(&self, at: &Remote, error: Error) -> Error {
        if self.is_closed() { self.why_closed() } else { self.judged_at(at, error) }
    }

    /// The meaning of a failure: if another process took over, that is the cause.
    #[cold]
    pub(crate) fn judged(&self, error: Error) -> Error {
        self.judged_at(self.remote.pinned(), error)
    }

    fn judged_at(&self, at: &Remote, error: Error) -> Error {
        let error = self.remote.judged_at(at, error);
        if error.kind() == ErrorKind::Fenced && self.remote.is_named() {
            self.fence(error.clone());
        }
        error
    }

    /// The number for a new segment.
    pub(crate) fn next_segment(&self) -> SegmentId {
        SegmentId(self.next_segment.fetch_add(1, Ordering::Relaxed))
    }

    /// Numbers for the segments of one job; no other job gets any of them.
    pub(crate) fn next_segments(&self) -> Range<u64> {
        let behind = |number: u64| number.next_multiple_of(NUMBERS_OF_A_JOB) + NUMBERS_OF_A_JOB;
        let update = |number| Some(behind(number));
        let before = self.next_segment.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
        let end = behind(before.unwrap_or_else(|number| number));
        end - NUMBERS_OF_A_JOB..end
    }

    /// The number for a new table.
    pub(crate) fn next_table(&self) -> TableId {
        TableId(self.next_table.fetch_add(1, Ordering::Relaxed))
    }

    /// Lower bounds of the numbers of the next segment and the next table.
    pub(crate) fn numbers(&self) -> (u64, u64) {
        (self.next_segment.load(Ordering::Relaxed), self.next_table.load(Ordering::Relaxed))
    }

    /// The numbers that somebody reads at, ascending. What starts now must keep them visible.
    pub(crate) fn pinned_numbers(&self) -> Vec<SequenceNumber> {
        lock(&self.snapshots).keys().map(|&number| SequenceNumber(number)).collect()
    }

    /// What a compaction that starts now must keep.
    pub(crate) fn pinned(&self) -> Pinned {
        let snapshots = lock(&self.snapshots);
        let numbers = snapshots.keys().map(|&number| SequenceNumber(number)).collect();
        // Read under the lock. A reader that pins later reads the time later, so its time is not earlier than this.
        let now = self.time.now_ms();
        let oldest = snapshots.values().map(|pin| pin.time_ms).min().unwrap_or(now);
        let expire_before_ms = if planted(Bug::ExpireUnderSnapshots) { now } else { oldest };
        Pinned { numbers, expire_before_ms }
    }

    /// Number of pins.
    pub(crate) fn snapshots(&self) -> usize {
        lock(&self.snapshots).values().map(|pin| pin.readers).sum()
    }

    /// Pins the published number and the time.
    pub(crate) fn pin(&self) -> Horizon {
        let mut snapshots = lock(&self.snapshots);
        // Read under the lock. A compaction that lists the pins later sees this one. A compaction that listed them
        // earlier keeps the newest entries of its inputs, and this number covers those.
        let number = self.publication.published();
        let time_ms = self.time.now_ms();
        snapshots.entry(number.0).or_insert(Pin { readers: 0, time_ms }).readers += 1;
        Horizon { number, time_ms }
    }

    /// Ends a pin.
    pub(crate) fn unpin(&self, number: SequenceNumber) {
        let mut snapshots = lock(&self.snapshots);
        if let Some(pin) = snapshots.get_mut(&number.0) {
            pin.readers -= 1;
            if pin.readers == 0 {
                snapshots.remove(&number.0);
            }
        }
    }
}

#[cfg(test)]
mod tests;
