//! Planner and ledger go on, on random trees in nodes of random size: what was begun has its memory, and while something
//! is dead there is a step that frees some. No reader pins anything.

use super::*;
use crate::plan::picker::progress::Tree;
use crate::plan::space::{Space, allocated};
use forebay_base::SegmentId;
use std::collections::BTreeSet;

const SEEDS: u64 = 16;
const MEMTABLES: usize = 100;
/// No flush of a tree takes more for its records and their index.
const MEMTABLE_BYTES: u64 = 40 << 10;
const EXTENT_BYTES: u64 = 64 << 10;
/// What the shard holds while memory is short.
const HELD_BYTES: u64 = MEMTABLE_BYTES + 2 * 4096;
/// Far more than any tree of these sizes needs.
const MOST_STEPS: usize = 1500;

/// A tree whose segments lie in a node of so many extents, all of them in extents that the shard has alone.
struct Run {
    seed: u64,
    tree: Tree,
    planner: Planner,
    ledger: Ledger,
    holder: Holder,
    extents: u64,
    now: u64,
    puts: usize,
    refused: usize,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut tree = Tree::new(seed);
        tree.options.storage_from_level = None;
        tree.options.write_buffer_bytes = MEMTABLE_BYTES as usize / 5 * 4;
        let mut ledger = Ledger::default();
        let holder = ledger.join(&[0]);
        let extents = 16 + tree.random.below(32);
        let planner = Planner::default();
        let mut run = Self { seed, tree, planner, ledger, holder, extents, now: 0, puts: 0, refused: 0 };
        run.report();
        run
    }

    fn segments(&self) -> BTreeSet<SegmentId> {
        self.tree.version.segments().keys().copied().collect()
    }

    /// Memory of these segments.
    fn taken(&self, segments: &BTreeSet<SegmentId>) -> u64 {
        let length = |id: &SegmentId| self.tree.version.segment(*id).map_or(0, |info| info.length);
        segments.iter().map(|id| allocated(length(id))).sum()
    }

    fn free(&self) -> u64 {
        (self.extents * EXTENT_BYTES).saturating_sub(self.taken(&self.segments()))
    }

    /// What is held for a flush and for neighbours is not granted.
    fn report(&mut self) {
        let free = self.free().saturating_sub(HELD_BYTES);
        let granted = Granted {
            extent_bytes: EXTENT_BYTES,
            extents: free / EXTENT_BYTES,
            reserve_bytes: 4 * EXTENT_BYTES,
            leased_bytes: 0,
            is_shared: true,
            outputs_bytes: free % EXTENT_BYTES,
        };
        self.ledger.report(self.holder, 0, &granted, self.now);
    }

    fn with<R>(&mut self, decide: impl FnOnce(&mut Planner, &Scene<'_>, &mut Ledger) -> R) -> R {
        let scene = Scene {
            holder: self.holder,
            options: &self.tree.options,
            version: &self.tree.version,
            crossings: &|_| 0,
            sealed: &[],
            active: 0,
            near: Near::MemoryNode,
            now: self.now,
        };
        decide(&mut self.planner, &scene, &mut self.ledger)
    }

    fn admit(&mut self, frees: bool) -> Admission {
        self.with(|planner, scene, ledger| planner.admit(scene, ledger, Need { bytes: 1, frees }))
    }

    /// Flushes a memtable that was let in.
    fn flush(&mut self, most: [u64; 3]) {
        let before = self.segments();
        let free = self.free();
        self.tree.flush_at_most(most);
        let made = self.segments().difference(&before).copied().collect();
        let taken = self.taken(&made);
        assert!(taken <= free, "seed {}: a flush takes {taken} bytes, and {free} are free", self.seed);
        self.planner.committed(true);
        self.report();
    }

    /// Does the next step, if there is one.
    fn step(&mut self) -> bool {
        let Some(Command::Compact(compaction)) =
            self.with(|planner, scene, ledger| planner.next_compaction(scene, ledger))
        else {
            return false;
        };
        let (before, free) = (self.segments(), self.free());
        self.tree.room = self.planner.room();
        let fits = |run: &Self, taken: u64| {
            taken <= compaction.reservation.bytes && taken <= free || {
                // It was begun with less than its bound, because nothing else could be begun.
                let bound = compaction.pick.output_bytes(&run.tree.options);
                assert!(compaction.reservation.bytes < bound, "seed {}: {taken} bytes of {compaction:?}", run.seed);
                false
            }
        };
        let kept = self.tree.version.clone();
        self.tree.compact(&compaction.pick);
        let made = self.segments().difference(&before).copied().collect();
        let taken = self.taken(&made);
        let failed = (!fits(self, taken)).then_some(ErrorKind::Full);
        if failed.is_some() {
            self.tree.version = kept;
        } else {
            self.planner.committed(false);
        }
        self.report();
        self.ledger.end(self.holder, compaction.reservation, 0);
        self.planner.compacted(compaction, failed, KeyOrder::Bytewise);
        if let Some(kind) = failed {
            self.planner.failed(error(kind), false, self.now);
        }
        true
    }

    fn settle(&mut self) {
        let steps = (0..MOST_STEPS).take_while(|_| self.step()).count();
        assert!(steps < MOST_STEPS, "seed {}: it goes on and on", self.seed);
    }

    /// Puts a memtable, if not refused.
    fn put(&mut self) -> bool {
        for _ in 0..MOST_STEPS {
            match self.admit(false) {
                Admission::Install { is_reserve } => {
                    assert!(!is_reserve);
                    self.flush([40, 40, 5]);
                    self.puts += 1;
                    return true;
                }
                Admission::Wait(_) if self.step() => {}
                Admission::Wait(_) => self.now += PATIENCE_NANOS / 4,
                Admission::Refuse(error) => {
                    assert_eq!(error.kind(), ErrorKind::Full);
                    self.refused += 1;
                    return false;
                }
            }
        }
        panic!("seed {}: a put waits and waits", self.seed);
    }
}

#[test]
fn what_was_begun_has_its_memory_and_what_is_dead_is_freed() {
    let (mut puts, mut refused) = (0, 0);
    for seed in 0..SEEDS {
        let mut run = Run::new(seed);
        for _ in 0..MEMTABLES {
            if !run.put() {
                // Whatever is known to be dead was freed.
                let space = Space::of(&run.tree.version);
                let (dead, live) = (space.dead_bytes(), space.live_bytes());
                assert!(dead <= live / 10 + MEMTABLE_BYTES, "seed {seed}: {dead} bytes are dead, and {live} live");
                // Deletions are never refused, and what they free comes back.
                run.tree.dying_percent = 100;
                for _ in 0..5 {
                    assert!(matches!(run.admit(true), Admission::Install { .. }), "seed {seed}");
                    run.flush([5, 0, 0]);
                    run.settle();
                }
                run.tree.dying_percent = 20;
            }
        }
        puts += run.puts;
        refused += run.refused;
    }
    assert!(puts > 500 && refused > 5, "{puts} memtables, {refused} refused");
}
