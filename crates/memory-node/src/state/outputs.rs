//! Outputs of jobs: ranges of extents that the node itself divides (dLSM V-A).
//!
//! Each shard has its own extents for outputs, so a key to an extent opens only one shard's memory.
//! A range is *pending* from its allocation until the shard's owner adopts it. A pending range is
//! freed with its session, with its shard's epoch, or when its job fails. It is never freed while
//! its job runs, because the job may still write it.

use forebay_proto::{ExtentId, ExtentRange, RangeAllocator, SessionId, ShardKey};
use std::collections::BTreeMap;

/// Number of a job, unique within a node's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// A range that no version names yet.
#[derive(Debug, Clone, Copy)]
struct Pending {
    range: ExtentRange,
    session: SessionId,
    /// The job that writes it, while the job runs.
    job: Option<JobId>,
}

/// Outputs of all shards' jobs.
#[derive(Debug)]
pub struct Outputs {
    extent_bytes: u64,
    shards: BTreeMap<ShardKey, Shard>,
    pending: BTreeMap<(ExtentId, u64), (ShardKey, Pending)>,
    total: OutputBytes,
}

/// Outputs of a shard's jobs.
#[derive(Debug)]
struct Shard {
    ranges: RangeAllocator,
    bytes: OutputBytes,
}

/// How long outputs are together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputBytes {
    /// Bytes of outputs.
    pub all: u64,
    /// Those of outputs that are pending.
    pub pending: u64,
}

impl Outputs {
    /// No outputs.
    pub fn new(extent_bytes: u64) -> Self {
        Self { extent_bytes, shards: BTreeMap::new(), pending: BTreeMap::new(), total: OutputBytes::default() }
    }

    /// Length of the longest possible range in bytes.
    pub fn extent_bytes(&self) -> u64 {
        self.extent_bytes
    }

    /// Bytes of all outputs.
    pub fn bytes(&self) -> OutputBytes {
        self.total
    }

    /// Bytes of the outputs of those shards that `chosen` names.
    pub fn bytes_of(&self, chosen: impl Fn(ShardKey) -> bool) -> OutputBytes {
        let chosen = self.shards.iter().filter(|(key, _)| chosen(**key));
        chosen.fold(OutputBytes::default(), |sum, (_, shard)| OutputBytes {
            all: sum.all + shard.bytes.all,
            pending: sum.pending + shard.bytes.pending,
        })
    }

    /// Gives the shard another extent for outputs.
    pub fn add_extent(&mut self, shard: ShardKey, extent: ExtentId) {
        let empty = || Shard { ranges: RangeAllocator::new(self.extent_bytes), bytes: OutputBytes::default() };
        // An extent comes here once, from `Kept` or `Free`: it cannot be there already.
        let _ = self.shards.entry(shard).or_insert_with(empty).ranges.add(extent);
    }

    /// Allocates an output of `job`; `None` when the shard needs another extent.
    pub fn allocate(&mut self, shard: ShardKey, session: SessionId, job: JobId, length: u64) -> Option<ExtentRange> {
        let outputs = self.shards.get_mut(&shard)?;
        let range = outputs.ranges.allocate(length)?;
        self.pending.insert((range.extent, range.offset), (shard, Pending { range, session, job: Some(job) }));
        for bytes in [&mut outputs.bytes, &mut self.total] {
            bytes.all += range.length;
            bytes.pending += range.length;
        }
        Some(range)
    }

    /// How many outputs the shard has.
    #[cfg(test)]
    pub fn count(&self, shard: ShardKey) -> usize {
        self.shards.get(&shard).map_or(0, |outputs| outputs.ranges.allocated().count())
    }

    /// Bytes of the longest free piece of the shard's extents.
    pub fn longest_piece(&self, shard: ShardKey) -> u64 {
        self.shards.get(&shard).map_or(0, |outputs| outputs.ranges.statistics().largest_free_bytes)
    }

    /// Whether `job` writes an output that contains `range`.
    pub fn is_written_by(&self, range: ExtentRange, job: JobId) -> bool {
        let Some((_, (_, pending))) = self.pending.range(..=(range.extent, range.offset)).next_back() else {
            return false;
        };
        let end = range.offset.checked_add(range.length);
        pending.job == Some(job)
            && pending.range.extent == range.extent
            && end.is_some_and(|end| end <= pending.range.offset + pending.range.length)
    }

    /// Whether `range` is an output of the shard.
    pub fn contains(&self, shard: ShardKey, range: ExtentRange) -> bool {
        self.shards.get(&shard).is_some_and(|outputs| outputs.ranges.is_allocated(range))
    }

    /// The job that writes `range`.
    pub fn written_by(&self, range: ExtentRange) -> Option<JobId> {
        self.pending.get(&(range.extent, range.offset)).and_then(|(_, pending)| pending.job)
    }

    /// The shard's outputs that are not pending, in ascending order.
    pub fn adopted(&self, shard: ShardKey) -> impl Iterator<Item = ExtentRange> + '_ {
        let ranges = self.shards.get(&shard).into_iter().flat_map(|outputs| outputs.ranges.allocated());
        ranges.filter(|range| !self.pending.contains_key(&(range.extent, range.offset)))
    }

    /// Passes an output to the shard.
    pub fn adopt(&mut self, range: ExtentRange) {
        if let Some((shard, _)) = self.pending.remove(&(range.extent, range.offset)) {
            self.total.pending -= range.length;
            if let Some(outputs) = self.shards.get_mut(&shard) {
                outputs.bytes.pending -= range.length;
            }
        }
    }

    /// Ends a job: nobody writes its outputs any more.
    pub fn settle(&mut self, job: JobId) {
        for (_, pending) in self.pending.values_mut() {
            if pending.job == Some(job) {
                pending.job = None;
            }
        }
    }

    /// Pending ranges that `chosen` (shard, session) selects and that nobody writes.
    pub fn settled(&self, chosen: impl Fn(ShardKey, SessionId) -> bool) -> Vec<(ShardKey, ExtentRange)> {
        let settled =
            |(shard, pending): &&(ShardKey, Pending)| pending.job.is_none() && chosen(*shard, pending.session);
        self.pending.values().filter(settled).map(|(shard, pending)| (*shard, pending.range)).collect()
    }

    /// Pending ranges that `job` writes.
    pub fn of_job(&self, job: JobId) -> Vec<(ShardKey, ExtentRange)> {
        let mine = |(_, pending): &&(ShardKey, Pending)| pending.job == Some(job);
        self.pending.values().filter(mine).map(|(shard, pending)| (*shard, pending.range)).collect()
    }

    /// Frees an output. Returns its extent if nothing is left in it (the extent has then left), and `None` when there
    /// is no such output.
    pub fn free(&mut self, shard: ShardKey, range: ExtentRange) -> Option<Option<ExtentId>> {
        self.adopt(range);
        let outputs = self.shards.get_mut(&shard)?;
        outputs.ranges.free(range).ok()?;
        outputs.bytes.all -= range.length;
        self.total.all -= range.length;
        let emptied = outputs.ranges.remove(range.extent).is_ok().then_some(range.extent);
        if outputs.ranges.extents().next().is_none() {
            self.shards.remove(&shard);
        }
        Some(emptied)
    }

    /// Forgets all of a shard's outputs. Returns how many there were.
    pub fn forget(&mut self, shard: ShardKey) -> u64 {
        self.pending.retain(|_, (of, _)| *of != shard);
        let Some(outputs) = self.shards.remove(&shard) else { return 0 };
        self.total.all -= outputs.bytes.all;
        self.total.pending -= outputs.bytes.pending;
        outputs.ranges.statistics().ranges
    }
}
