//! Outputs that were freed and may still be read: they can be found by range, and by the reading epoch in which
//! each was freed.

use forebay_proto::{ExtentId, ExtentRange, ShardKey};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};

/// An output, the reading epoch in which it was freed, and its shard.
pub type RetiredRange = (ExtentRange, u64, ShardKey);

/// The retired outputs of one tenant.
#[derive(Debug, Default)]
pub struct Retired {
    all: BTreeMap<ExtentRange, (u64, ShardKey)>,
    by_epoch: BTreeSet<(u64, ExtentRange)>,
}

impl Retired {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether the range is among them.
    pub fn contains(&self, range: ExtentRange) -> bool {
        self.all.contains_key(&range)
    }

    /// Adds a range that is freed.
    pub fn insert(&mut self, (range, epoch, shard): RetiredRange) {
        self.remove(range);
        self.all.insert(range, (epoch, shard));
        self.by_epoch.insert((epoch, range));
    }

    /// Removes a range that nobody reads any more.
    pub fn remove(&mut self, range: ExtentRange) {
        if let Some((epoch, _)) = self.all.remove(&range) {
            self.by_epoch.remove(&(epoch, range));
        }
    }

    /// Removes all ranges in an extent that is freed as a whole.
    pub fn forget(&mut self, extent: ExtentId) {
        for (range, (epoch, _)) in self.all.extract_if(within(extent), |_, _| true) {
            self.by_epoch.remove(&(epoch, range));
        }
    }

    /// The ranges that were freed in these epochs.
    pub fn of_epochs(&self, epochs: Range<u64>) -> Vec<RetiredRange> {
        let first = |epoch| (epoch, ExtentRange { extent: ExtentId(0), offset: 0, length: 0 });
        // A reader that goes back has passed nothing.
        let end = epochs.end.max(epochs.start);
        let found = self.by_epoch.range(first(epochs.start)..first(end));
        #[cfg(test)]
        let found = found.inspect(|_| VISITED.set(VISITED.get() + 1));
        found.filter_map(|&(epoch, range)| Some((range, epoch, self.all.get(&range)?.1))).collect()
    }

    /// The ranges in the extent that were freed before this epoch.
    pub fn before(&self, epoch: u64, extent: ExtentId) -> Vec<RetiredRange> {
        // Before the first epoch nothing was freed.
        let found = (epoch > 0).then(|| self.all.range(within(extent))).into_iter().flatten();
        let earlier = found.filter(|(_, (freed, _))| *freed < epoch);
        earlier.map(|(&range, &(freed, shard))| (range, freed, shard)).collect()
    }
}

/// All ranges that begin in the extent.
fn within(extent: ExtentId) -> RangeInclusive<ExtentRange> {
    let (first, last) = ((0, 0), (u64::MAX, u64::MAX));
    let [first, last] = [first, last].map(|(offset, length)| ExtentRange { extent, offset, length });
    first..=last
}

#[cfg(test)]
thread_local! {
    /// Ranges that were examined because readers passed.
    pub static VISITED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::super::tests::{World, settings};
    use super::super::{Answer, LOOKED};
    use forebay_proto::calls::{AdoptRanges, CloseSession, FreeBatch, MapExtents, Renew, SubmitJob};
    use forebay_proto::{Rest, ShardId, ShardKey};

    /// An extent may have tens of thousands of outputs that may still be read, and hundreds of sessions a key to it.
    #[test]
    fn holders_are_looked_at_once_for_all_outputs_of_an_extent() {
        const OUTPUTS: usize = 16;
        const READERS: u64 = 20;
        let mut world = World::new(settings(8, 1, 1));
        let session = world.open(1);
        let shard = ShardKey { store: world.store(1, "db"), shard: ShardId(0) };
        let epoch = world.acquire(1, shard, false).unwrap();
        let submit = SubmitJob { session, shard, epoch, attempt: 1, kind: 1, arguments: Rest(Vec::new()) };
        let Ok(Answer::Job(job)) = world.call(1, submit) else { panic!("no job") };
        let ranges: Vec<_> = (0..OUTPUTS).map(|_| world.state.job_allocate(job.id, 4096).unwrap()).collect();
        world.state.job_ended(job.id, true);
        world.call(1, AdoptRanges { session, shard, epoch, ranges: ranges.clone() }).unwrap();
        let readers: Vec<_> = (2..2 + READERS).map(|peer| (peer, world.open(peer))).collect();
        for &(peer, session) in &readers {
            world.store(peer, "db");
            let extents = vec![ranges[0].extent];
            world.call(peer, MapExtents { session, shard, write: false, extents }).unwrap();
        }
        // The last one reads, and the others do not.
        let (last, reader) = readers[readers.len() - 1];
        world.call(last, Renew { session: reader, reading_epoch: 0 }).unwrap();
        world.call(1, FreeBatch { session, shard, epoch, ranges }).unwrap();
        LOOKED.set(0);
        let (peer, session) = readers[0];
        world.call(peer, CloseSession { session }).unwrap();
        world.settle();
        assert_eq!((LOOKED.get(), world.state.outputs.count(shard)), (readers.len() - 1, OUTPUTS));
        LOOKED.set(0);
        world.call(last, Renew { session: reader, reading_epoch: u64::MAX }).unwrap();
        assert_eq!((LOOKED.get(), world.state.outputs.count(shard)), (readers.len() - 1, 0));
    }
}
