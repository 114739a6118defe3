//! Picking comes to an end: what makes a compaction due is gone once that compaction is done.
//!
//! The picker works on random trees, some with more levels than the options. Without room, some compactions find no
//! memory.

use super::*;
use crate::plan::model::Tree;
use forebay_env::HashMap;

const SEEDS: u64 = 30;
const FLUSHES: u64 = 60;
/// Far more than any tree of these sizes needs.
const MOST_PICKS: usize = 1500;

struct Run {
    seed: u64,
    tree: Tree,
    cursors: Cursors,
    crossings: HashMap<TableId, u32>,
    /// Tables whose compaction found no room.
    too_large: BTreeSet<TableId>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let (cursors, crossings, too_large) = (Cursors::default(), HashMap::default(), BTreeSet::new());
        Self { seed, tree: Tree::new(seed), cursors, crossings, too_large }
    }

    fn pick(&mut self) -> Option<Pick> {
        let crossings = |table| self.crossings.get(&table).copied().unwrap_or(0);
        let tree = &self.tree;
        Picker::new(&tree.version, &tree.options, &self.too_large, &crossings, tree.room).pick(&mut self.cursors)
    }

    /// Compacts until nothing is due.
    fn settle(&mut self) -> usize {
        for picks in 0..MOST_PICKS {
            let Some(pick) = self.pick() else { return picks };
            // A compaction that merges neighbours has its memory held for it.
            if self.tree.room.is_none() && pick.output_level > 0 && self.tree.random.one_in(1, 4) {
                self.too_large.extend(pick.chosen());
            } else {
                self.tree.compact(&pick);
                self.cursors.done(&pick);
                self.too_large.clear();
            }
        }
        let next = self.pick();
        panic!("seed {}: {next:?} with room {:?} goes on and on", self.seed, self.tree.room);
    }
}

#[test]
fn picking_comes_to_an_end() {
    let mut most = 0;
    for seed in 0..SEEDS {
        let mut run = Run::new(seed);
        for _ in 0..FLUSHES {
            run.tree.flush();
            run.cursors.begin_moves();
            if run.tree.random.one_in(1, 10) {
                run.tree.reopen();
            }
            let random = &mut run.tree.random;
            let memtables = if random.one_in(1, 2) { 100 } else { random.below(10) };
            let (scratch_bytes, is_wanted) = (random.below(1 << 20), random.one_in(1, 2));
            run.tree.room = Room { memtables, scratch_bytes, extent_bytes: 64 << 10, is_wanted };
            for table in run.tree.version.levels().iter().skip(1).flatten() {
                *run.crossings.entry(table.id).or_default() += run.tree.random.below(4) as u32 / 3;
            }
            most = most.max(run.settle());
        }
    }
    assert!(most > 10, "{most}");
}
