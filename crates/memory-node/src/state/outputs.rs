//! Outputs of jobs: ranges of extents that the node itself divides (dLSM V-A).
//!
//! Each shard has its own extents for outputs, so a key to an extent opens only one shard's memory.
//! A range is *pending* from its allocation until the shard's owner adopts it. A pending range is
//! freed with its session, with its shard's epoch, or when its job fails. It is never freed while
//! its job runs, because the job may still write it.

use forebay_proto::{ExtentId, ExtentRange, RangeAllocator, SessionId, ShardKey};
use std::collections::{BTreeMap, BTreeSet};

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

/// The party whose end decides about a pending range: the job while it writes the range, then the
/// session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Maker {
    Job(JobId),
    Session(SessionId),
}

impl Pending {
    fn maker(&self) -> Maker {
        self.job.map_or(Maker::Session(self.session), Maker::Job)
    }
}

/// Where a range begins.
type Start = (ExtentId, u64);

/// Outputs of all shards' jobs.
#[derive(Debug)]
pub struct Outputs {
    extent_bytes: u64,
    shards: BTreeMap<ShardKey, Shard>,
    pending: BTreeMap<Start, (ShardKey, Pending)>,
    /// Pending ranges by their makers, so that nobody spends time on what others have pending.
    made: BTreeSet<(Maker, Start)>,
    total: OutputBytes,
}

/// Outputs of a shard's jobs.
#[derive(Debug)]
struct Shard {
    ranges: RangeAllocator,
    bytes: OutputBytes,
}

/// The total length of outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputBytes {
    /// Bytes of outputs.
    pub all: u64,
    /// Bytes of pending outputs.
    pub pending: u64,
}

impl Outputs {
    /// No outputs.
    pub fn new(extent_bytes: u64) -> Self {
        let (shards, pending, made) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { extent_bytes, shards, pending, made, total: OutputBytes::default() }
    }

    /// Length of the longest possible range in bytes.
    pub fn extent_bytes(&self) -> u64 {
        self.extent_bytes
    }

    /// Bytes of all outputs.
    pub fn bytes(&self) -> OutputBytes {
        self.total
    }

    /// Bytes of the outputs of the shards that `chosen` selects.
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
        // An extent comes here once, from `Kept` or `Free`, so it cannot be present already.
        let _ = self.shards.entry(shard).or_insert_with(empty).ranges.add(extent);
    }

    /// Allocates an output of `job`; `None` when the shard needs another extent.
    pub fn allocate(&mut self, shard: ShardKey, session: SessionId, job: JobId, length: u64) -> Option<ExtentRange> {
        let outputs = self.shards.get_mut(&shard)?;
        let range = outputs.ranges.allocate(length)?;
        let start = (range.extent, range.offset);
        self.pending.insert(start, (shard, Pending { range, session, job: Some(job) }));
        self.made.insert((Maker::Job(job), start));
        for bytes in [&mut outputs.bytes, &mut self.total] {
            bytes.all += range.length;
            bytes.pending += range.length;
        }
        Some(range)
    }

    /// How many outputs the shard has.
    #[cfg(test)]
    pub fn count(&self, shard: ShardKey) -> usize {
        self.shards.get(&shard).map_or(0, |outputs| outputs.ranges.allocated_from((ExtentId(0), 0)).count())
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

    /// The shard's outputs from `from` on that are not pending, in ascending order.
    pub fn adopted(&self, shard: ShardKey, from: Start) -> impl Iterator<Item = ExtentRange> + '_ {
        let ranges = self.shards.get(&shard).into_iter().flat_map(move |outputs| outputs.ranges.allocated_from(from));
        ranges.filter(|range| !self.pending.contains_key(&(range.extent, range.offset)))
    }

    /// Passes an output to the shard.
    pub fn adopt(&mut self, range: ExtentRange) {
        let start = (range.extent, range.offset);
        if let Some((shard, pending)) = self.pending.remove(&start) {
            self.made.remove(&(pending.maker(), start));
            self.total.pending -= range.length;
            if let Some(outputs) = self.shards.get_mut(&shard) {
                outputs.bytes.pending -= range.length;
            }
        }
    }

    /// Ends a job: nobody writes its outputs any more.
    pub fn settle(&mut self, job: JobId) {
        let written: Vec<Start> = self.starts_of(Maker::Job(job)).collect();
        for start in written {
            self.made.remove(&(Maker::Job(job), start));
            if let Some((_, pending)) = self.pending.get_mut(&start) {
                pending.job = None;
                self.made.insert((pending.maker(), start));
            }
        }
    }

    fn starts_of(&self, maker: Maker) -> impl Iterator<Item = Start> + '_ {
        let (first, last) = ((ExtentId(0), 0), (ExtentId(u32::MAX), u64::MAX));
        let starts = self.made.range((maker, first)..=(maker, last)).map(|&(_, start)| start);
        #[cfg(test)]
        let starts = starts.inspect(|_| tests::VISITED.set(tests::VISITED.get() + 1));
        starts
    }

    fn of(&self, maker: Maker) -> Vec<(ShardKey, ExtentRange)> {
        let found = self.starts_of(maker).filter_map(|start| self.pending.get(&start));
        found.map(|(shard, pending)| (*shard, pending.range)).collect()
    }

    /// Pending ranges of the session that nobody writes.
    pub fn settled_of_session(&self, session: SessionId) -> Vec<(ShardKey, ExtentRange)> {
        self.of(Maker::Session(session))
    }

    /// Pending ranges of the shard that nobody writes.
    pub fn settled_of_shard(&self, shard: ShardKey) -> Vec<ExtentRange> {
        let settled = |(_, pending): &&(ShardKey, Pending)| pending.job.is_none();
        let pending = self.extents_of(shard).into_iter().flat_map(|extent| self.pending.range(within(extent)));
        pending.map(|(_, pending)| pending).filter(settled).map(|(_, pending)| pending.range).collect()
    }

    /// Extents in which only the shard has outputs.
    fn extents_of(&self, shard: ShardKey) -> Vec<ExtentId> {
        self.shards.get(&shard).map(|outputs| outputs.ranges.extents().collect()).unwrap_or_default()
    }

    /// Pending ranges that `job` writes.
    pub fn of_job(&self, job: JobId) -> Vec<(ShardKey, ExtentRange)> {
        self.of(Maker::Job(job))
    }

    /// Frees an output. Returns its extent if nothing is left in it (the extent is then removed from here), and
    /// `None` when there is no such output.
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
        for extent in self.extents_of(shard) {
            for (start, (_, pending)) in self.pending.extract_if(within(extent), |_, _| true) {
                self.made.remove(&(pending.maker(), start));
            }
        }
        let Some(outputs) = self.shards.remove(&shard) else { return 0 };
        self.total.all -= outputs.bytes.all;
        self.total.pending -= outputs.bytes.pending;
        outputs.ranges.statistics().ranges
    }
}

/// The starts of all ranges that begin in the extent.
fn within(extent: ExtentId) -> std::ops::RangeInclusive<Start> {
    (extent, 0)..=(extent, u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_proto::{ShardId, StoreId};
    use std::cell::Cell;

    thread_local! {
        /// Pending ranges that were examined because of their maker.
        pub(super) static VISITED: Cell<usize> = const { Cell::new(0) };
    }

    fn shard(store: u64) -> ShardKey {
        ShardKey { store: StoreId(store), shard: ShardId(0) }
    }

    #[test]
    fn the_end_of_a_job_or_session_looks_at_nothing_of_others() {
        const PENDING: usize = 100_000;
        let mut outputs = Outputs::new(PENDING as u64 * 4096);
        outputs.add_extent(shard(1), ExtentId(0));
        outputs.add_extent(shard(2), ExtentId(1));
        for _ in 0..PENDING {
            outputs.allocate(shard(1), SessionId(1), JobId(1), 1).unwrap();
        }
        let visited = |look: &mut dyn FnMut()| {
            VISITED.set(0);
            look();
            VISITED.get()
        };
        let none = visited(&mut || {
            assert_eq!(outputs.of_job(JobId(2)), []);
            outputs.settle(JobId(2));
            assert_eq!(outputs.settled_of_session(SessionId(2)), []);
            assert_eq!(outputs.settled_of_session(SessionId(1)), [], "the job still writes");
        });
        assert_eq!(none, 0);
        let range = outputs.allocate(shard(2), SessionId(2), JobId(2), 1).unwrap();
        let own = visited(&mut || {
            assert_eq!(outputs.of_job(JobId(2)), [(shard(2), range)]);
            outputs.settle(JobId(2));
            assert_eq!(outputs.of_job(JobId(2)), []);
            assert_eq!(outputs.settled_of_session(SessionId(2)), [(shard(2), range)]);
            assert_eq!(outputs.settled_of_shard(shard(2)), [range]);
        });
        assert_eq!(own, 3);
        // Whatever happens to them, nothing is left.
        outputs.adopt(range);
        assert_eq!(outputs.made.len(), PENDING);
        outputs.settle(JobId(1));
        assert_eq!(outputs.settled_of_shard(shard(1)).len(), PENDING);
        assert_eq!(outputs.forget(shard(1)), PENDING as u64);
        assert_eq!((outputs.pending.len(), outputs.made.len()), (0, 0));
    }
}
