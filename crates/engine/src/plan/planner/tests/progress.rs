//! Planner and ledger make progress, on random trees in nodes of random size:
//!
//! - What was begun has its memory: each flush, and each compaction except one that was begun alone with less than its
//!   bound.
//! - While something is dead and no reader pins it, a step is possible. So a put is refused only when next to nothing
//!   is dead.
//! - Live data that fits is never refused. What fits is a part of the node, because memory is taken in pages, and some is kept.
//! - Deletions are never refused, and what they free comes back.
//! - A shard at rest settles, and moves no record twice for it.
//! - All of this holds beside other databases, which lend memory and call it back, in what they leave to this one. A
//!   writer that waits for them is admitted or refused within a bound, however often they call.
//!
//! Compactions run beside each other and fail now and then; readers pin versions, and release them.

use super::*;
use crate::plan::model::Tree;
use crate::plan::picker::Work;
use crate::plan::space::{Space, allocated};
use forebay_base::SegmentId;
use forebay_table::job::Clustering;
use forebay_table::{SegmentInfo, SegmentKind};
use std::collections::BTreeMap;
use std::sync::Arc;

const SEEDS: u64 = 48;
const MEMTABLES: usize = 100;
/// At most this many records of each size are put into a memtable, and one more.
const RECORDS: [u64; 3] = [40, 60, 8];
/// No flush of a memtable takes more for its records and their index.
const MEMTABLE_BYTES: u64 = 40 << 10;
const EXTENT_BYTES: u64 = 64 << 10;
/// Memory that memtables leave to compactions.
const RESERVE_BYTES: u64 = 4 * EXTENT_BYTES;
/// What the shard holds while memory is short.
const HELD_BYTES: u64 = MEMTABLE_BYTES + 2 * 4096;
/// Percent of the rest that may live.
const FITS_PERCENT: u64 = 60;
/// Far more than any tree of these sizes needs.
const MOST_STEPS: usize = 3000;
/// The longest call for memory that was lent: a lease.
const CALL_NANOS: u64 = 10_000_000_000;
/// Deletions that make a full database usable again, in memtables.
const MOST_DELETIONS: usize = 300;

/// A tree whose segments are in a node of this many extents, all of them in extents that only this shard has.
struct Run {
    seed: u64,
    tree: Tree,
    planner: Planner,
    ledger: Ledger,
    holder: Holder,
    extents: u64,
    others: Option<Others>,
    now: u64,
    under_way: Vec<Compaction>,
    /// What readers pin.
    pinned: Vec<Version>,
    /// Bytes of records that settling has moved, without small ones that went down a level with their index.
    moved: u64,
    counts: Counts,
}

/// Other databases of the node.
#[derive(Debug, Default, Clone, Copy)]
struct Others {
    /// Extents that are left to them.
    withheld: u64,
    /// Extents that this one owes them until this time.
    owed: u64,
    called_until: u64,
}

/// How often something happened.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    puts: usize,
    refused: usize,
    beside: usize,
    failed: usize,
    unpinned: usize,
    settled: usize,
    /// Puts that waited while something was called, and were let in, or refused.
    called: usize,
    called_in_vain: usize,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.puts, other.puts),
            (&mut self.refused, other.refused),
            (&mut self.beside, other.beside),
            (&mut self.failed, other.failed),
            (&mut self.unpinned, other.unpinned),
            (&mut self.settled, other.settled),
            (&mut self.called, other.called),
            (&mut self.called_in_vain, other.called_in_vain),
        ];
        pairs.into_iter().for_each(|(sum, more)| *sum += more);
    }
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut tree = Tree::new(seed);
        tree.options.storage_from_level = None;
        tree.options.write_buffer_bytes = MEMTABLE_BYTES as usize / 5 * 4;
        // Each table takes up to two pages that it does not fill: this test ignores what does not fit because of that.
        tree.options.target_table_bytes *= 4;
        let mut ledger = Ledger::default();
        let holder = ledger.join(&[0]);
        let extents = 16 + tree.random.below(32);
        // From a few keys, written again and again, to more than there is room for.
        tree.keys = 100 + tree.random.below(extents * EXTENT_BYTES / 200);
        let mut run = Self {
            seed,
            tree,
            planner: Planner::default(),
            ledger,
            holder,
            extents,
            others: (seed % 2 == 1).then(Others::default),
            now: 0,
            under_way: Vec::new(),
            pinned: Vec::new(),
            moved: 0,
            counts: Counts::default(),
        };
        run.report();
        run
    }

    /// Another process opens the database, with another number of levels.
    fn reopen(&mut self) {
        self.tree.reopen();
        self.planner = Planner::default();
        self.report();
    }

    /// The segments that somebody names, and what they take.
    fn segments(&self) -> BTreeMap<SegmentId, u64> {
        let versions = std::iter::once(&self.tree.version).chain(&self.pinned);
        versions.flat_map(|version| version.segments()).map(|(id, entry)| (*id, allocated(entry.info.length))).collect()
    }

    fn free(&self) -> u64 {
        let taken = self.segments().values().sum::<u64>();
        (self.extents * EXTENT_BYTES).checked_sub(taken).unwrap_or_else(|| panic!("seed {}: {taken}", self.seed))
    }

    /// What the other databases keep from this one now: what is left to them, and what is owed.
    fn kept_by_others(&self) -> (u64, u64) {
        let others = self.others.unwrap_or_default();
        (others.withheld, if self.is_called() { others.owed } else { 0 })
    }

    fn is_called(&self) -> bool {
        self.others.is_some_and(|others| self.now < others.called_until)
    }

    /// The other databases take, give back, or call.
    fn let_others_act(&mut self) {
        if self.others.is_some() {
            let (most, random) = (self.extents / 4 + 1, &mut self.tree.random);
            let until = if random.one_in(1, 2) { self.now + random.below(CALL_NANOS) } else { 0 };
            let (withheld, owed) = (random.below(most), random.below(most));
            self.others = Some(Others { withheld, owed, called_until: until });
            self.report();
        }
    }

    /// Reports what is granted: all but what is held for a flush and for neighbours.
    fn report(&mut self) {
        let free = self.free().saturating_sub(HELD_BYTES);
        let (withheld, owed) = self.kept_by_others();
        let granted = Granted {
            extent_bytes: EXTENT_BYTES,
            extents: free / EXTENT_BYTES,
            withheld,
            step_bytes: MEMTABLE_BYTES,
            reserve_bytes: RESERVE_BYTES,
            owed_bytes: owed * EXTENT_BYTES,
            leased_bytes: 0,
            is_shared: true,
            outputs_bytes: free % EXTENT_BYTES,
            pool: Pool { is_shared: self.others.is_some(), is_called: self.is_called() },
        };
        self.ledger.report(self.holder, 0, &granted, self.now);
    }

    fn with<R>(&mut self, decide: impl FnOnce(&mut Planner, &Scene<'_>, &mut Ledger) -> R) -> R {
        let scene = Scene {
            holder: self.holder,
            options: &self.tree.options,
            version: &self.tree.version,
            crossings: &|_| 0,
            hidden: &Vec::new,
            sealed: &[],
            logged: 0,
            active: 0,
            written: 0,
            unrecorded: 0,
            near: Near::MemoryNode,
            now: self.now,
        };
        decide(&mut self.planner, &scene, &mut self.ledger)
    }

    fn admit(&mut self, frees: bool) -> Admission {
        self.with(|planner, scene, ledger| planner.admit(scene, ledger, Need { bytes: 1, frees }))
    }

    /// Changes the tree, if that takes at most `most` bytes and they are free. Returns the segments made.
    fn change(&mut self, most: u64, change: impl FnOnce(&mut Tree)) -> Option<Vec<Arc<SegmentInfo>>> {
        let (before, free, kept) = (self.segments(), self.free(), self.tree.clone());
        change(&mut self.tree);
        let made = self.tree.version.segments().iter().filter(|(id, _)| !before.contains_key(id));
        let made: Vec<_> = made.map(|(_, entry)| Arc::clone(&entry.info)).collect();
        if taken(&made) > most.min(free) {
            self.tree = kept;
            return None;
        }
        Some(made)
    }

    /// Flushes a memtable that was let in.
    fn flush(&mut self, most: [u64; 3]) {
        let flushed = self.change(MEMTABLE_BYTES, |tree| tree.flush_at_most(most));
        assert!(flushed.is_some(), "seed {}: a flush finds {} bytes free", self.seed, self.free());
        self.planner.committed(true);
        self.report();
    }

    /// Begins a compaction, or ends one. False when there is none.
    fn step(&mut self) -> bool {
        let may_begin = self.under_way.is_empty() || self.under_way.len() < 3 && self.tree.random.one_in(1, 2);
        let next =
            |planner: &mut Planner, scene: &Scene<'_>, ledger: &mut Ledger| planner.next_compaction(scene, ledger);
        if may_begin && let Some(Command::Compact(compaction)) = self.with(next) {
            self.counts.beside += usize::from(!self.under_way.is_empty());
            self.under_way.push(compaction);
            return true;
        }
        if self.under_way.is_empty() {
            return false;
        }
        let one = self.tree.random.below(self.under_way.len() as u64) as usize;
        let compaction = self.under_way.swap_remove(one);
        if self.tree.random.one_in(1, 40) {
            self.counts.failed += 1;
            // Free memory may be in pieces that are too short.
            let kind = if self.tree.random.one_in(1, 2) { ErrorKind::Full } else { ErrorKind::Unavailable };
            self.fail(compaction, kind);
        } else {
            self.end(compaction);
        }
        true
    }

    fn end(&mut self, compaction: Compaction) {
        self.tree.room = self.planner.room();
        let made = self.change(compaction.reservation.bytes, |tree| tree.compact(&compaction.pick));
        let Some(made) = made else {
            // It was begun with less than its bound, because nothing else could be begun.
            let bound = compaction.pick.output_bytes(&self.tree.options);
            assert!(compaction.reservation.bytes < bound, "seed {}: {compaction:?}", self.seed);
            return self.fail(compaction, ErrorKind::Full);
        };
        let gathers = matches!(compaction.pick.work, Work::Merge { clustering: Clustering::Gather(_), .. });
        if compaction.settles() && gathers {
            let runs = made.iter().filter(|segment| segment.kind == SegmentKind::Run);
            self.moved += runs.map(|segment| segment.length).sum::<u64>();
        }
        self.planner.committed(false);
        self.ledger.end(self.holder, compaction.reservation, taken(&made));
        self.planner.compacted(compaction, None, KeyOrder::Bytewise);
        self.report();
    }

    fn fail(&mut self, compaction: Compaction, kind: ErrorKind) {
        self.ledger.end(self.holder, compaction.reservation, 0);
        self.planner.compacted(compaction, Some(&error(kind)), KeyOrder::Bytewise);
        self.planner.failed(error(kind), true, self.now);
        self.report();
        self.now += RETRY_PAUSE;
    }

    fn settle(&mut self) {
        let steps = (0..MOST_STEPS).take_while(|_| self.step()).count();
        assert!(steps < MOST_STEPS, "seed {}: it goes on and on", self.seed);
    }

    fn let_go(&mut self) {
        self.counts.unpinned += self.pinned.len();
        self.pinned.clear();
        self.report();
    }

    /// Puts a memtable, if not refused.
    fn put(&mut self) -> bool {
        let (mut was_called, mut waits_since) = (false, None);
        for _ in 0..MOST_STEPS {
            // Time has passed, which may have ended a call.
            self.report();
            match self.admit(false) {
                Admission::Install { is_reserve } => {
                    assert!(!is_reserve);
                    self.flush(RECORDS);
                    self.counts.puts += 1;
                    self.counts.called += usize::from(was_called);
                    return true;
                }
                Admission::Wait(_) if self.step() => waits_since = None,
                Admission::Wait(_) if !self.pinned.is_empty() => {
                    self.let_go();
                    waits_since = None;
                }
                Admission::Wait(_) => {
                    was_called |= self.is_called();
                    let since = *waits_since.get_or_insert(self.now);
                    let waited = self.now - since;
                    assert!(waited <= PATIENCE_WHEN_CALLED_NANOS + PATIENCE_NANOS, "seed {}: a put waits", self.seed);
                    self.now += PATIENCE_NANOS / 4;
                    if self.tree.random.one_in(1, 8) {
                        self.let_others_act();
                    }
                }
                Admission::Refuse(error) => {
                    assert_eq!(error.kind(), ErrorKind::Full);
                    self.expect_full();
                    self.counts.called_in_vain += usize::from(was_called);
                    self.counts.refused += 1;
                    return false;
                }
            }
        }
        panic!("seed {}: a put waits and waits", self.seed);
    }

    /// Nothing is left that a compaction could free, and what lives does not fit.
    fn expect_full(&self) {
        assert!(self.under_way.is_empty() && self.pinned.is_empty(), "seed {}", self.seed);
        let space = Space::of(&self.tree.version);
        let (dead, live) = (space.dead_bytes(), self.tree.live_bytes());
        assert!(dead <= live / 10 + MEMTABLE_BYTES, "seed {}: {dead} bytes are dead, and {live} live", self.seed);
        let (withheld, owed) = self.kept_by_others();
        let usable = (self.extents - withheld - owed) * EXTENT_BYTES - RESERVE_BYTES - HELD_BYTES;
        let fits = usable * FITS_PERCENT / 100;
        let what = || format!("{:?} free, {:?}: {:#?}", self.free(), self.planner, self.tree.options);
        assert!(live + MEMTABLE_BYTES > fits, "seed {}: {live} bytes live of {usable}: {}", self.seed, what());
    }

    /// Deletes until there is room.
    fn delete(&mut self) {
        let before = std::mem::replace(&mut self.tree.deletions_percent, 100);
        for _ in 0..MOST_DELETIONS {
            assert!(matches!(self.admit(true), Admission::Install { .. }), "seed {}", self.seed);
            self.flush([60, 0, 0]);
            self.settle();
            if matches!(self.admit(false), Admission::Install { .. }) {
                self.tree.deletions_percent = before;
                return;
            }
        }
        panic!("seed {}: what was deleted does not come back", self.seed);
    }

    /// The shard rests until it has nothing to do.
    fn rest(&mut self) {
        self.let_go();
        self.settle();
        self.now += 1_000_000_000;
        self.moved = 0;
        let tables = self.tree.version.levels().iter().flatten();
        let all: u64 = tables.map(|table| table.properties.record_bytes).sum();
        self.settle();
        assert!(self.moved <= all, "seed {}: {} bytes are moved of {all}", self.seed, self.moved);
        self.counts.settled += usize::from(self.moved > 0);
        // When memory is short, something may be due that finds none.
        let is_quiet = self.with(|planner, scene, _| planner.is_quiet(scene) || planner.is_short());
        assert!(is_quiet, "seed {}: {:?}", self.seed, self.planner);
    }
}

/// The memory of segments.
fn taken(segments: &[Arc<SegmentInfo>]) -> u64 {
    segments.iter().map(|segment| allocated(segment.length)).sum()
}

#[test]
fn what_was_begun_has_its_memory_and_what_is_dead_is_freed() {
    let mut all = Counts::default();
    for seed in 0..SEEDS {
        let mut run = Run::new(seed);
        for _ in 0..MEMTABLES {
            if !run.put() {
                run.delete();
            }
            if run.tree.random.one_in(1, 8) {
                run.pinned.push(run.tree.version.clone());
            }
            if run.tree.random.one_in(1, 16) {
                run.rest();
                run.reopen();
            }
            if run.tree.random.one_in(1, 4) {
                run.let_others_act();
            }
        }
        all.add(&run.counts);
    }
    println!("{all:?}");
    let Counts { puts, refused, beside, failed, unpinned, settled, called, called_in_vain } = all;
    assert!(
        [puts > 1500, refused > 20, beside > 500, failed > 30, unpinned > 100, settled > 20] == [true; 6],
        "{all:?}"
    );
    assert!(called > 5 && called_in_vain > 5, "{all:?}");
}
