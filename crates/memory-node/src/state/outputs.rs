//! Outputs of jobs: ranges of extents that the node divides by itself (dLSM V-A).
//!
//! Each shard has extents of its own for them, so that a key to an extent opens one shard's memory
//! only. A range is *pending* from its allocation until the shard's owner adopts it; a pending
//! range is freed with its session, with its shard's epoch, or when its job fails, but never while
//! its job runs, because the job may still write it.

use forebay_proto::{ExtentId, ExtentRange, RangeAllocator, SessionId, ShardKey};
use std::collections::BTreeMap;

/// Number of a job in a node's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// A range that no version names yet.
#[derive(Debug, Clone, Copy)]
struct Pending {
    range: ExtentRange,
    session: SessionId,
    /// The job that writes it, while that runs.
    job: Option<JobId>,
}

/// Outputs of all shards' jobs.
#[derive(Debug)]
pub struct Outputs {
    extent_bytes: u64,
    shards: BTreeMap<ShardKey, RangeAllocator>,
    pending: BTreeMap<(ExtentId, u64), (ShardKey, Pending)>,
    bytes: u64,
    pending_bytes: u64,
}

impl Outputs {
    /// No outputs.
    pub fn new(extent_bytes: u64) -> Self {
        Self { extent_bytes, shards: BTreeMap::new(), pending: BTreeMap::new(), bytes: 0, pending_bytes: 0 }
    }

    /// Longest possible range, bytes.
    pub fn extent_bytes(&self) -> u64 {
        self.extent_bytes
    }

    /// Bytes of outputs, and of those that are pending.
    pub fn bytes(&self) -> (u64, u64) {
        (self.bytes, self.pending_bytes)
    }

    /// Gives the shard another extent for outputs.
    pub fn add_extent(&mut self, shard: ShardKey, extent: ExtentId) {
        let ranges = self.shards.entry(shard).or_insert_with(|| RangeAllocator::new(self.extent_bytes));
        // An extent comes here once, from `Kept` or `Free`: it cannot be there already.
        let _ = ranges.add(extent);
    }

    /// Allocates an output of `job`; `None` when the shard needs another extent.
    pub fn allocate(&mut self, shard: ShardKey, session: SessionId, job: JobId, length: u64) -> Option<ExtentRange> {
        let range = self.shards.get_mut(&shard)?.allocate(length)?;
        self.pending.insert((range.extent, range.offset), (shard, Pending { range, session, job: Some(job) }));
        self.bytes += range.length;
        self.pending_bytes += range.length;
        Some(range)
    }

    /// Bytes of the longest free piece of the shard's extents.
    pub fn longest_piece(&self, shard: ShardKey) -> u64 {
        self.shards.get(&shard).map_or(0, |ranges| ranges.statistics().largest_free_bytes)
    }

    /// Whether `job` writes `range`, or part of it is `range`.
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
        self.shards.get(&shard).is_some_and(|ranges| ranges.is_allocated(range))
    }

    /// Whether a job that runs writes `range`.
    pub fn is_being_written(&self, range: ExtentRange) -> bool {
        self.pending.get(&(range.extent, range.offset)).is_some_and(|(_, pending)| pending.job.is_some())
    }

    /// The shard's outputs that are not pending, in ascending order.
    pub fn adopted(&self, shard: ShardKey) -> impl Iterator<Item = ExtentRange> + '_ {
        let ranges = self.shards.get(&shard).into_iter().flat_map(RangeAllocator::allocated);
        ranges.filter(|range| !self.pending.contains_key(&(range.extent, range.offset)))
    }

    /// Passes an output to the shard.
    pub fn adopt(&mut self, range: ExtentRange) {
        if self.pending.remove(&(range.extent, range.offset)).is_some() {
            self.pending_bytes -= range.length;
        }
    }

    /// The job ended: nobody writes its outputs any more.
    pub fn settle(&mut self, job: JobId) {
        for (_, pending) in self.pending.values_mut() {
            if pending.job == Some(job) {
                pending.job = None;
            }
        }
    }

    /// Pending ranges that `chosen` (shard, session, job) names and that nobody writes.
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

    /// Frees an output. Returns its extent if nothing is left in it; the extent has then left.
    pub fn free(&mut self, shard: ShardKey, range: ExtentRange) -> Option<ExtentId> {
        self.adopt(range);
        let ranges = self.shards.get_mut(&shard)?;
        ranges.free(range).ok()?;
        self.bytes -= range.length;
        let emptied = ranges.remove(range.extent).is_ok().then_some(range.extent);
        if ranges.extents().next().is_none() {
            self.shards.remove(&shard);
        }
        emptied
    }

    /// Forgets all of a shard's outputs.
    pub fn forget(&mut self, shard: ShardKey) {
        self.pending.retain(|_, (of, pending)| {
            if *of == shard {
                self.pending_bytes -= pending.range.length;
            }
            *of != shard
        });
        if let Some(ranges) = self.shards.remove(&shard) {
            self.bytes -= ranges.statistics().allocated_bytes;
        }
    }
}
