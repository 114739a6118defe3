//! Where a database's statistics come from.

use crate::remote::segment::Node;
use crate::terms::Statistics;
use crate::terms::statistics::{LevelStatistics, MoveCounters, get};
use crate::tree::shared::Tree;
use crate::tree::version::LiveVersion;
use forebay_fabric::Traffic;
use std::sync::Arc;

impl Statistics {
    /// Adds a tree's counts and contents.
    pub(crate) fn add_tree(&mut self, tree: &Tree) {
        let view = Arc::clone(&tree.view.load());
        let counters = &tree.counters;
        counters.stalls.add_to(&mut self.stalls_by_cause);
        let stalls = self.stalls_by_cause.all();
        (self.stalls, self.stall_nanos) = (stalls.count, stalls.nanos);
        self.flushes += get(&counters.flushes);
        self.log.groups += get(&counters.log_groups);
        self.log.bytes += get(&counters.log_bytes);
        self.log.records += get(&counters.log_records);
        self.log.waits += get(&counters.log_waits);
        self.replicated_bytes += get(&counters.replicated_bytes);
        self.rebuilt_bytes += get(&counters.rebuilt_bytes);
        self.copies.damaged += get(&counters.damaged_copies);
        self.copies.mended += get(&counters.mended_copies);
        self.copies.scrubbed_bytes += get(&counters.scrubbed_bytes);
        self.copies.scrubs += get(&counters.scrubs);
        counters.add_compactions(self);
        self.offloaded_copies += get(&counters.offloaded_copies);
        self.offloaded_flushes += get(&counters.offloaded_flushes);
        self.refused_compactions += get(&counters.refused_compactions);
        self.hidden_tables += get(&counters.hidden_tables);
        self.compaction_entries += get(&counters.compaction_entries);
        self.compaction_bytes_read += get(&counters.compaction_bytes_read);
        self.compaction_bytes_written += get(&counters.compaction_bytes_written);
        self.compaction_fabric_bytes += get(&counters.compaction_fabric_bytes);
        self.dead_bytes_known += view.version.dead_bytes();
        self.dead_bytes_undiscovered += undiscovered_bytes(tree, &view.version);
        self.named_bytes += view.version.segment_bytes();
        self.cached_index_bytes += view.version.cached_index_bytes();
        counters.delegation.add_to(&mut self.delegation);
        let (used, stale) = tree.learnt.counts();
        self.delegation.learnt_uses += used;
        self.delegation.learnt_stale += stale;
        self.cached_index_bytes += tree.learnt.held_bytes();
        self.memtable_bytes += view.buffers().map(|buffer| buffer.memtable.reserved_bytes()).sum::<u64>();
        self.live_bytes += view.version.live_bytes();
        let levels = view.version.level_statistics();
        self.levels.resize(self.levels.len().max(levels.len()), LevelStatistics::default());
        self.levels.iter_mut().zip(&levels).for_each(|(sum, level)| sum.add(level));
    }

    /// Adds the counts of keys that moved between shards.
    pub(crate) fn add_moves(&mut self, moves: &MoveCounters) {
        self.bound_moves += get(&moves.moves);
        self.bound_moved_bytes += get(&moves.bytes);
    }

    /// Adds the traffic to a memory node.
    pub(crate) fn add_node(&mut self, node: &Node) {
        self.foreground += node.link().counts(Traffic::Foreground);
        self.background += node.link().counts(Traffic::Background);
        if let Some(cache) = node.index_cache() {
            self.index_cache.add(cache.statistics());
        }
    }
}

/// Estimates the shadowed bytes above the last level, by the share of arriving bytes that compactions have dropped so
/// far.
fn undiscovered_bytes(tree: &Tree, version: &LiveVersion) -> u64 {
    let counters = &tree.counters;
    let (arrived, dropped) = (get(&counters.compaction_bytes_arrived), get(&counters.compaction_bytes_dropped));
    let levels = version.levels();
    let deepest = levels.iter().rposition(|level| !level.is_empty()).unwrap_or(0);
    let above: u64 = levels.iter().take(deepest).flatten().map(|table| table.properties().record_bytes).sum();
    let share = u128::from(dropped.min(arrived)) * u128::from(above) / u128::from(arrived.max(1));
    u64::try_from(share).unwrap_or(above)
}
