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

    /// The ranges in the extent.
    pub fn of_extent(&self, extent: ExtentId) -> Vec<RetiredRange> {
        self.all.range(within(extent)).map(|(&range, &(epoch, shard))| (range, epoch, shard)).collect()
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
