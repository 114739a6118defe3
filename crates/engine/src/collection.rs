//! Garbage collection as others see it: what is dead, and whether it gets ahead of its collection.
//!
//! Collection happens inside compactions, never through the write path (see `picker`). What a writer
//! notices of it is that it waits when more is dead than is to be, as it does for level 0.

use crate::shard::Shard;
use crate::statistics::get;
use crate::version::LiveVersion;

/// Memtables' worth of dead bytes beyond their share before writers wait.
const SLACK_BUFFERS: u64 = 4;
/// Most steps that a writer is slowed down by.
const MOST_STEPS: u64 = 32;

impl Shard {
    /// How far collection lags behind, in steps by which a writer that switches memtables is to be slowed
    /// down; zero when it does not.
    pub(crate) fn collection_lag(&self, version: &LiveVersion) -> u32 {
        let buffer = self.options.write_buffer_bytes as u64;
        let allowed = version.live_bytes() / 100 * self.options.dead_percent + SLACK_BUFFERS * buffer;
        match version.dead_bytes().checked_sub(allowed) {
            None | Some(0) => 0,
            Some(excess) => (1 + excess / buffer.max(1)).min(MOST_STEPS) as u32,
        }
    }

    /// Bytes above the last level that are likely shadowed: as many in a hundred as compactions dropped of
    /// what came to them so far.
    pub(crate) fn undiscovered_bytes(&self, version: &LiveVersion) -> u64 {
        let counters = &self.counters;
        let (arrived, dropped) = (get(&counters.compaction_bytes_arrived), get(&counters.compaction_bytes_dropped));
        let levels = version.levels();
        let deepest = levels.iter().rposition(|level| !level.is_empty()).unwrap_or(0);
        let above: u64 = levels.iter().take(deepest).flatten().map(|table| table.properties().record_bytes).sum();
        let share = u128::from(dropped.min(arrived)) * u128::from(above) / u128::from(arrived.max(1));
        u64::try_from(share).unwrap_or(above)
    }
}
