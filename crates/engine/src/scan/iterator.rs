//! Iteration over a shard in both directions.
//!
//! The entries of memtables and tables are merged by key. What is shadowed, deleted or too new is left out without
//! reading its value. The values of the next entries are then read together with one doorbell, neighbours in one read.
//! The batches grow while the scan continues: a short scan reads little, a long one streams.
//!
//! ```text
//!                 batch, in the direction of the merge
//!   ◄── turns ── [ first … position … last ] ── refills ──► merge
//! ```
//!
//! The merge stands after the batch's last entry. A step that leaves the batch there reads the next batch. A step that
//! leaves it at the other side turns the merge round at the first entry. Steps within the batch cost nothing, in either
//! direction.

use crate::read::merged::Chain;
use crate::remote::members::Tried;
use crate::remote::segment::Remote;
use crate::scan::cursor::{MemtableCursor, Source};
use crate::scan::delegated::{DelegatedCursor, End};
use crate::scan::found::{Filled, MAX_STREAMED};
use crate::scan::level_cursor::LevelCursor;
use crate::scan::read_ahead::{LEAST_PIECE_BYTES, MAX_PIECE_BYTES};
use crate::scan::scan_batch::ScanBatch;
use crate::scan::scan_endpoint::{ScanEndpoint, SharedEndpoint};
use crate::scan::visibility::{Verdict, Visibility, judge};
use crate::terms::bounds::{Bounds, after, before};
use crate::terms::planted::{Bug, instead_when_planted};
use crate::terms::time::{Horizon, ReadTime};
use crate::terms::{Error, Result};
use crate::tree::range_deletions::RangeDeletions;
use crate::tree::shared::{Tree, View};
use forebay_base::{InternalKey, SequenceNumber, Tag};
use forebay_env::sync::{Mutex, lock};
use forebay_memtable::OwnedCursor;
use forebay_table::{Direction, Merge, RangeTombstone, SortedStream};
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// Entries of the first batch after a seek.
const FIRST_BATCH: usize = 4;
/// Maximum entries of a batch. Those of a run are one read, and a table of the last level has records in a dozen runs.
/// The fixed cost of a read is small only when it brings dozens of kilobytes.
const MAX_BATCH: usize = 2048;
/// Maximum total bytes of one read of a run by each source.
const PIECES_BYTES: u64 = 1 << 20;

/// Iterates over the keys and values of a shard in key order, forward and backward, as of a moment.
///
/// A new iterator stands nowhere: seek first. Past either end it stands nowhere again.
pub(crate) struct ShardIterator {
    tree: Arc<Tree>,
    view: Arc<View>,
    merge: Merge<Source>,
    bounds: Arc<Bounds>,
    /// The member where the iterator reads, until the member fails or is left out.
    at: Arc<Remote>,
    endpoint: SharedEndpoint,
    horizon: Horizon,
    deletions: RangeDeletions,
    /// Where the entries end that a memory node brought from all tables, while the scan is in them.
    brought: Option<End>,
    direction: Direction,
    /// A key that was passed: its further entries are older or newer.
    passed: Option<Vec<u8>>,
    batch: ScanBatch,
    /// The current entry of the batch.
    position: usize,
    next_batch: usize,
}

impl std::fmt::Debug for ShardIterator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardIterator").field("horizon", &self.horizon).finish_non_exhaustive()
    }
}

impl ShardIterator {
    /// Returns an iterator over what `horizon` covers in `view`, within the bounds.
    ///
    /// # Errors
    /// `Unavailable` when the memory node is gone; `Closed`.
    pub(crate) fn new(tree: Arc<Tree>, view: Arc<View>, horizon: Horizon, bounds: Arc<Bounds>) -> Result<Self> {
        tree.check_open()?;
        let (at, endpoint) = endpoint(&tree, &mut Tried::default())?;
        let sources = sources(&view, &bounds, (&endpoint, at.member()));
        let merge = Merge::new(sources, tree.options.key_order, Direction::Forward);
        Ok(Self {
            deletions: deletions(&view, horizon.number, &bounds),
            tree,
            view,
            merge,
            bounds,
            at,
            endpoint,
            horizon,
            brought: None,
            direction: Direction::Forward,
            passed: None,
            batch: ScanBatch::default(),
            position: 0,
            next_batch: FIRST_BATCH,
        })
    }

    /// Goes to the first key.
    ///
    /// # Errors
    /// `Unavailable` when the memory node is gone, `Corrupt` when a checksum does not match.
    pub(crate) fn seek_to_first(&mut self) -> Result<()> {
        self.start(Direction::Forward, None, Tables::Delegated)
    }

    /// Goes to the last key.
    ///
    /// # Errors
    /// See [`ShardIterator::seek_to_first`].
    pub(crate) fn seek_to_last(&mut self) -> Result<()> {
        self.start(Direction::Backward, None, Tables::Read)
    }

    /// Goes to the first key that is not before `key`.
    ///
    /// # Errors
    /// See [`ShardIterator::seek_to_first`].
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<()> {
        let target = InternalKey { user_key: key, tag: Tag::seek(self.horizon.number) };
        self.start(Direction::Forward, Some(target), Tables::Delegated)
    }

    /// Goes to the last key that is not after `key`.
    ///
    /// # Errors
    /// See [`ShardIterator::seek_to_first`].
    pub(crate) fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.start(Direction::Backward, Some(after(key)), Tables::Read)
    }

    /// Whether the iterator stands on a key.
    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.position < self.batch.len()
    }

    /// The current key; empty when the iterator stands nowhere.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.batch.key(self.position).unwrap_or_default()
    }

    /// The current value; empty when the iterator stands nowhere.
    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        self.batch.value(self.position).unwrap_or_default()
    }

    /// Returns what the current value is merged from; `None` when it is a value that was put.
    ///
    /// # Errors
    /// As for reads.
    pub(crate) fn chain(&self) -> Result<Option<Chain>> {
        instead_when_planted!(Bug::MoveMergedValues, Ok(None));
        if !self.batch.is_merged(self.position) {
            return Ok(None);
        }
        let at = (self.horizon.number, ReadTime::At(self.horizon.time_ms));
        self.tree.chain(&self.view, self.key(), at).map(Some)
    }

    /// When the current key expires.
    pub(crate) fn expiry_ms(&self) -> Option<u64> {
        self.batch.expiry_ms(self.position)
    }

    /// Goes to the next key. From the last key, and from nowhere, it goes nowhere.
    ///
    /// # Errors
    /// See [`ShardIterator::seek_to_first`].
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub(crate) fn next(&mut self) -> Result<()> {
        self.step(Direction::Forward)
    }

    /// Goes to the key before. From the first key, and from nowhere, it goes nowhere.
    ///
    /// # Errors
    /// See [`ShardIterator::seek_to_first`].
    #[inline]
    pub(crate) fn prev(&mut self) -> Result<()> {
        self.step(Direction::Backward)
    }

    #[inline]
    fn step(&mut self, direction: Direction) -> Result<()> {
        if !self.valid() {
            return Ok(());
        }
        if direction == self.direction {
            self.position += 1;
            return if self.valid() { self.arrive() } else { self.go_on() };
        }
        match self.position.checked_sub(1) {
            Some(position) => {
                self.position = position;
                self.arrive()
            }
            None => self.turn(direction),
        }
    }

    /// Continues from the batch's first entry in the other direction.
    fn turn(&mut self, direction: Direction) -> Result<()> {
        let key = self.key().to_vec();
        let target = match direction {
            Direction::Forward => after(&key),
            Direction::Backward => before(&key),
        };
        self.start(direction, Some(target), Tables::Read)
    }

    /// Continues after the batch's last entry.
    fn go_on(&mut self) -> Result<()> {
        if !self.tree.remote.are_several() {
            return self.refill().map_err(|error| self.tree.why_failed(error));
        }
        let direction = self.direction;
        let mut tried = Tried::default();
        let last = self.batch.key(self.batch.len().saturating_sub(1)).unwrap_or_default().to_vec();
        // While the iterator rested, the member may have been left out.
        if self.tree.remote.reads_at(self.at.member()) {
            match self.refill() {
                Err(failure) => self.goes_on(failure, &mut tried)?,
                Ok(()) => return Ok(()),
            }
        }
        self.reopen(&mut tried)?;
        let target = match direction {
            Direction::Forward => after(&last),
            Direction::Backward => before(&last),
        };
        self.start_after(tried, direction, Some(target), Tables::Read)
    }

    /// Returns `Ok` if what failed at the member where the iterator reads may succeed at another one. If not, returns
    /// what the failure means.
    #[cold]
    fn goes_on(&self, failure: Error, tried: &mut Tried) -> Result<()> {
        let failure = self.tree.why_failed_at(&self.at, failure);
        match self.tree.remote.goes_on(&failure, self.at.member(), tried) {
            true => Ok(()),
            // The database may be closed by now, or another process may have taken over since.
            false => Err(self.tree.why_failed_at(&self.at, tried.told(failure))),
        }
    }

    /// Switches to another member.
    fn reopen(&mut self, tried: &mut Tried) -> Result<()> {
        self.clear();
        (self.at, self.endpoint) = endpoint(&self.tree, tried)?;
        let sources = sources(&self.view, &self.bounds, (&self.endpoint, self.at.member()));
        self.merge = Merge::new(sources, self.tree.options.key_order, self.direction);
        Ok(())
    }

    /// Goes to the first key from `target` on, in `direction`.
    fn start(&mut self, direction: Direction, target: Option<InternalKey<'_>>, tables: Tables) -> Result<()> {
        self.start_after(Tried::default(), direction, target, tables)
    }

    /// Does the same for a call that has already tried some members.
    fn start_after(
        &mut self,
        mut tried: Tried,
        direction: Direction,
        target: Option<InternalKey<'_>>,
        tables: Tables,
    ) -> Result<()> {
        if !self.tree.remote.reads_at(self.at.member()) {
            self.reopen(&mut tried)?;
        }
        while let Err(failure) = self.try_start(direction, target, tables) {
            self.goes_on(failure, &mut tried)?;
            self.reopen(&mut tried)?;
        }
        Ok(())
    }

    fn try_start(&mut self, direction: Direction, target: Option<InternalKey<'_>>, tables: Tables) -> Result<()> {
        self.tree.check_open()?;
        self.passed = None;
        self.next_batch = FIRST_BATCH;
        self.direction = direction;
        self.clear();
        self.place(direction, target, tables)?;
        self.refill()
    }

    /// Places the sources at `target`. If the memory node brings the first entries of all tables, the tables' own sources
    /// stand nowhere.
    fn place(&mut self, direction: Direction, target: Option<InternalKey<'_>>, tables: Tables) -> Result<()> {
        let Self { tree, at, view, bounds, horizon, .. } = self;
        let target = bounds.start(direction, target);
        let mut brought = None;
        self.merge.reposition(direction, |source| match source {
            Source::Delegated(source) => {
                let first = target.filter(|_| tables == Tables::Delegated);
                brought =
                    first.and_then(|first| source.begin((tree, at), &view.version, bounds, first, horizon.number));
                if brought.is_none() {
                    source.clear();
                }
                Ok(())
            }
            Source::Level(source) if brought.is_some() => {
                source.leave();
                Ok(())
            }
            Source::Memtable(_) | Source::Level(_) => source.seek(direction, target),
        })?;
        self.brought = brought;
        Ok(())
    }

    /// The last key that the memory node brought, if the scan is past it and the tables have more.
    fn passed_brought(&self) -> Option<&Vec<u8>> {
        let Some(End::Behind(last)) = &self.brought else { return None };
        let order = self.bounds.order();
        let is_within = |key: InternalKey<'_>| order.compare(key.user_key, last) != Ordering::Greater;
        (!self.merge.key().is_some_and(is_within)).then_some(last)
    }

    fn clear(&mut self) {
        self.batch.clear(&mut lock(&self.endpoint));
        self.position = 0;
    }

    /// Collects the next entries and their values.
    fn refill(&mut self) -> Result<()> {
        self.clear();
        self.tree.check_open()?;
        let collected = match self.direction {
            Direction::Forward => self.collect_forward(),
            Direction::Backward => self.collect_backward(),
        };
        self.next_batch = (self.next_batch * 2).min(MAX_BATCH);
        let read = collected.and_then(|()| self.batch.read(&mut lock(&self.endpoint), self.direction));
        if read.is_err() {
            self.clear();
            return read;
        }
        self.arrive()
    }

    /// Makes the current entry's value, if it is merged.
    #[inline]
    fn arrive(&mut self) -> Result<()> {
        if self.batch.is_merged(self.position) { self.merge() } else { Ok(()) }
    }

    #[cold]
    fn merge(&mut self) -> Result<()> {
        let at = (self.horizon.number, ReadTime::At(self.horizon.time_ms));
        match self.tree.get_merged(&self.view, self.key(), at, |record| Some(record.value.to_vec())) {
            Ok(Some(value)) => {
                self.batch.set_merged(self.position, value);
                Ok(())
            }
            failed => {
                self.clear();
                let failure = failed.err().unwrap_or_else(|| Error::corrupt("an operand of a merge is gone"));
                Err(self.tree.why_failed(failure))
            }
        }
    }

    /// Of each key, the newest visible entry comes first.
    fn collect_forward(&mut self) -> Result<()> {
        let mut limit = self.next_batch;
        while self.batch.has_room(limit) {
            if let Some(last) = self.passed_brought().cloned() {
                // A scan that wants no more than the node brought causes no read.
                if self.batch.len() > 0 {
                    break;
                }
                self.place(Direction::Forward, Some(after(&last)), Tables::Read)?;
            }
            let Self { merge, batch, bounds, deletions, passed, .. } = self;
            let mut visibility = Visibility { bounds, deletions, horizon: self.horizon, passed };
            match merge.with_first(|source, rival| source.fill(batch, &mut visibility, limit, rival))? {
                Some(Filled::Some) => {}
                Some(Filled::Streamed) => limit = limit.min(MAX_STREAMED),
                Some(Filled::End) | None => break,
            }
        }
        Ok(())
    }

    /// Of each key, the newest visible entry comes last: it takes the place of the older ones.
    fn collect_backward(&mut self) -> Result<()> {
        while self.batch.has_room(self.next_batch) {
            let Some(first) = self.merge.key() else { break };
            if self.bounds.is_left(Direction::Backward, first) {
                break;
            }
            let passed = self.passed.get_or_insert_default();
            passed.clear();
            passed.extend_from_slice(first.user_key);
            let mut has_value = false;
            while let Some((_, source)) = self.merge.current()
                && let Some(key) = source.key()
                && key.user_key == passed
            {
                if key.tag.sequence() <= self.horizon.number {
                    if has_value {
                        self.batch.remove_last();
                    }
                    let expiry_ms = if key.tag.has_expiry() { source.expiry_ms()? } else { None };
                    let verdict = judge(key, expiry_ms, &self.deletions, self.horizon);
                    has_value = verdict != Verdict::Hidden;
                    match verdict {
                        Verdict::Shown => {
                            self.batch.add(key.user_key, source.location()?)?;
                            self.batch.expires(expiry_ms);
                        }
                        Verdict::Merged => self.batch.add_merged(key.user_key),
                        Verdict::Hidden | Verdict::Outside => {}
                    }
                }
                self.merge.advance()?;
            }
        }
        Ok(())
    }
}

/// What finds the first entries of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tables {
    /// Their own sources, which read.
    Read,
    /// The memory node, if that costs less.
    Delegated,
}

/// Returns a member to read at, one not tried yet if possible, and an endpoint to it.
fn endpoint(tree: &Tree, tried: &mut Tried) -> Result<(Arc<Remote>, SharedEndpoint)> {
    tree.remote.wherever_else(tried, |at| {
        let endpoint = ScanEndpoint::new(Arc::clone(&tree.remote), Arc::clone(at))?;
        Ok((Arc::clone(at), Arc::new(Mutex::new(endpoint))))
    })
}

/// The range deletions of a view that `number` covers and that may hide keys within the bounds.
fn deletions(view: &View, number: SequenceNumber, bounds: &Bounds) -> RangeDeletions {
    let is_wanted = |deletion: &&Arc<RangeTombstone>| {
        deletion.tag.sequence() <= number && bounds.overlap(before(&deletion.start), before(&deletion.end))
    };
    let mut all = Vec::new();
    for buffer in view.buffers().filter(|buffer| !buffer.range_deletions.is_empty()) {
        all.extend(buffer.range_deletions.all().iter().filter(is_wanted).cloned());
    }
    if view.version.has_range_deletions() {
        let tables = view.version.levels().iter().flatten().filter(|table| table.overlaps(bounds));
        all.extend(tables.flat_map(|table| table.range_deletions().iter()).filter(is_wanted).cloned());
    }
    RangeDeletions::new(view.version.version.identity().key_order, all)
}

/// The memtables and tables of a view that may hold keys within the bounds, with the endpoint to a member where they are read.
fn sources(view: &View, bounds: &Arc<Bounds>, (endpoint, member): (&SharedEndpoint, usize)) -> Vec<Source> {
    let memtables = view.buffers().map(|buffer| OwnedCursor::new(Arc::clone(&buffer.memtable)));
    // This source is placed first, as the levels' sources depend on what it has.
    let mut sources = vec![Source::Delegated(DelegatedCursor::default())];
    sources.extend(memtables.map(|cursor| Source::Memtable(MemtableCursor::new(cursor))));
    let levels = view.version.levels();
    let most =
        levels.iter().enumerate().map(|(level, tables)| if level == 0 { tables.len() } else { 1 }).sum::<usize>();
    let share = PIECES_BYTES / (most as u64).max(1);
    let piece_bytes = share.next_power_of_two().clamp(LEAST_PIECE_BYTES, MAX_PIECE_BYTES);
    for (level, tables) in levels.iter().enumerate() {
        let mut add = |tables: Range<usize>| {
            let (version, bounds) = (Arc::clone(&view.version), Arc::clone(bounds));
            let cursor = LevelCursor::new(version, bounds, (Arc::clone(endpoint), member), level, tables, piece_bytes);
            sources.push(Source::Level(Box::new(cursor)));
        };
        let mut within = (0..tables.len()).filter(|&i| tables.get(i).is_some_and(|table| table.overlaps(bounds)));
        if level == 0 {
            within.for_each(|i| add(i..i + 1));
        } else if let Some(first) = within.next() {
            add(first..within.next_back().unwrap_or(first) + 1);
        }
    }
    sources
}
