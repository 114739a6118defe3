//! How the other members of a shard get what a compaction makes (Tebis 3.3): it runs there too, or this node sends it.
//!
//! | | a member costs, in bytes of this node's link |
//! |---|---|
//! | *send* | twice what the job writes: read where it ran, and written at the member |
//! | *build* | what the job copies, and [`BYTES_OF_AN_ENTRY`] for each entry that it merges, at a member that is idle; as much again for each job and call that is known to run or to wait there |
//!
//! What a job writes is not known before it has run. The estimate is what it reads: the indexes of its inputs, and the
//! records that it gathers. So an index over records that stay is sent, and large records that are gathered anyway are
//! gathered at each member, unless the member is busy.

use crate::terms::Replication;
use forebay_table::job::{Clustering, CompactionJob, Residents};

/// Bytes that a link of 25 Gb/s carries while a core merges an entry, which takes some 130 ns (`merge_cost` in crate `table`).
const BYTES_OF_AN_ENTRY: u64 = 400;

/// What a job has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effort {
    entries: u64,
    written_bytes: u64,
}

impl Effort {
    pub(crate) fn of(job: &CompactionJob) -> Self {
        let is_gathered = |level| match job.clustering {
            Clustering::None => false,
            Clustering::Gather(Residents::Keep) => level != job.output_level,
            Clustering::Gather(Residents::Rewrite) => true,
        };
        let (mut entries, mut written_bytes) = (0u64, 0u64);
        for input in &job.inputs {
            let properties = &input.table.properties;
            let records = if is_gathered(input.level) { properties.record_bytes } else { 0 };
            entries = entries.saturating_add(properties.entries());
            written_bytes = written_bytes.saturating_add(input.table.image.length).saturating_add(records);
        }
        Self { entries, written_bytes }
    }

    /// Whether a member also runs the job, when this many jobs and calls run or wait there.
    pub(crate) fn is_built(self, replication: Replication, busy: u32) -> bool {
        match replication {
            Replication::SendIndex => false,
            Replication::BuildIndex => true,
            Replication::Automatic => {
                let send = self.written_bytes.saturating_mul(2);
                let idle = self.entries.saturating_mul(BYTES_OF_AN_ENTRY).saturating_add(self.written_bytes);
                idle.saturating_mul(u64::from(busy).saturating_add(1)) < send
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheaper_way_is_taken() {
        let built = |record_bytes: u64, busy| {
            let effort = Effort { entries: 1000, written_bytes: 1000 * (12 + record_bytes) };
            effort.is_built(Replication::Automatic, busy)
        };
        // An index alone, and small records, are sent.
        assert!(!built(0, 0) && !built(100, 0));
        // Large ones are gathered at each member, unless it has something else to do.
        assert!(built(1000, 0) && !built(1000, 1));
        // Another job of the same kind there makes it as expensive as sending.
        assert!(!built(1 << 20, 1));
        let small = Effort { entries: 1000, written_bytes: 0 };
        assert!(small.is_built(Replication::BuildIndex, 9) && !small.is_built(Replication::SendIndex, 0));
    }
}
