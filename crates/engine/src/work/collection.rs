//! Garbage collection as others see it: what is dead, and whether it grows faster than it is collected.
//!
//! Collection happens inside compactions, never through the write path (see `picker`). A writer notices only that it
//! waits when too much is dead, as it does for level 0.

use crate::tree::version::LiveVersion;
use crate::work::shard::Shard;

/// Memtables' worth of dead bytes beyond their share before writers wait.
const SLACK_BUFFERS: u64 = 4;
/// Most steps that a writer is slowed down by.
const MOST_STEPS: u64 = 32;

impl Shard {
    /// How far collection lags behind, in steps by which a writer that switches memtables is to be slowed down; zero
    /// when it does not lag.
    pub(crate) fn collection_lag(&self, version: &LiveVersion) -> u32 {
        let buffer = self.tree.options.write_buffer_bytes as u64;
        let allowed = version.live_bytes() / 100 * self.tree.options.dead_percent + SLACK_BUFFERS * buffer;
        match version.dead_bytes().checked_sub(allowed) {
            None | Some(0) => 0,
            Some(excess) => (1 + excess / buffer.max(1)).min(MOST_STEPS) as u32,
        }
    }
}
