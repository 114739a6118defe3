//! The division of an extent: a best-fit allocator of ranges with coalescing (dLSM V-A).
//!
//! Both sides use it: a compute node for the extents that it leases, the node for outputs of jobs.
//! It only computes. The caller knows who owns the memory and when it may be reused.
//!
//! # Invariants
//! - In an extent, free and allocated ranges alternate without gap or overlap, and no two free
//!   ranges touch.
//! - `by_length` holds exactly the free ranges of all extents.
//!
//! An allocation takes the smallest free range that fits, at the lowest extent and offset. So whole
//! extents stay whole as long as possible and can be given back.

use crate::ids::{ExtentId, ExtentRange};
use std::collections::{BTreeMap, BTreeSet};

/// Offsets and lengths of ranges are multiples of this, in bytes.
pub const GRANULARITY_BYTES: u64 = 4096;

/// A range that cannot be freed or reserved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// No such range is allocated: freed twice, or never allocated.
    #[error("{0} is not allocated")]
    NotAllocated(ExtentRange),
    /// The extent does not belong to this allocator, or already does.
    #[error("{0} is unknown, or known already")]
    Extent(ExtentId),
    /// The range is outside its extent, misaligned, or overlaps another.
    #[error("{0} cannot be reserved")]
    Misplaced(ExtentRange),
    /// The extent holds allocations.
    #[error("{0} holds allocations")]
    InUse(ExtentId),
}

/// Statistics of an allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RangeStatistics {
    /// Number of extents.
    pub extents: u64,
    /// Number of extents without an allocation.
    pub empty_extents: u64,
    /// Bytes of all extents.
    pub total_bytes: u64,
    /// Bytes allocated.
    pub allocated_bytes: u64,
    /// Number of allocated ranges.
    pub ranges: u64,
    /// The longest free range in bytes.
    pub largest_free_bytes: u64,
}

impl RangeStatistics {
    /// Free bytes.
    #[must_use]
    pub const fn free_bytes(&self) -> u64 {
        self.total_bytes - self.allocated_bytes
    }

    /// Share of the free bytes that cannot be given back because their extents hold allocations. 0
    /// when nothing is free.
    #[must_use]
    pub fn fragmentation(&self, extent_bytes: u64) -> f64 {
        let free = self.free_bytes();
        let stuck = free.saturating_sub(self.empty_extents * extent_bytes);
        if free == 0 { 0.0 } else { stuck as f64 / free as f64 }
    }
}

#[derive(Debug, Default)]
struct Extent {
    /// Offset to length, bytes.
    free: BTreeMap<u64, u64>,
    used: BTreeMap<u64, u64>,
}

/// Divides extents into ranges.
#[derive(Debug)]
pub struct RangeAllocator {
    extent_bytes: u64,
    extents: BTreeMap<ExtentId, Extent>,
    /// Free ranges: length, extent, offset.
    by_length: BTreeSet<(u64, ExtentId, u64)>,
    empty: BTreeSet<ExtentId>,
    allocated_bytes: u64,
    ranges: u64,
}

impl RangeAllocator {
    /// An allocator without extents. `extent_bytes` is rounded down to the granularity.
    #[must_use]
    pub fn new(extent_bytes: u64) -> Self {
        Self {
            extent_bytes: extent_bytes - extent_bytes % GRANULARITY_BYTES,
            extents: BTreeMap::new(),
            by_length: BTreeSet::new(),
            empty: BTreeSet::new(),
            allocated_bytes: 0,
            ranges: 0,
        }
    }

    /// The longest possible range in bytes.
    #[must_use]
    pub const fn extent_bytes(&self) -> u64 {
        self.extent_bytes
    }

    /// Bytes that an allocation of `length` bytes takes; `None` when no extent can hold it.
    #[must_use]
    pub fn rounded(&self, length: u64) -> Option<u64> {
        let rounded = length.max(1).checked_next_multiple_of(GRANULARITY_BYTES)?;
        (rounded <= self.extent_bytes).then_some(rounded)
    }

    /// Adds an empty extent.
    ///
    /// # Errors
    /// [`RangeError::Extent`] when it is present already.
    pub fn add(&mut self, extent: ExtentId) -> Result<(), RangeError> {
        if self.extents.contains_key(&extent) {
            return Err(RangeError::Extent(extent));
        }
        self.extents.insert(extent, Extent::default());
        self.insert_free(extent, 0, self.extent_bytes);
        self.empty.insert(extent);
        Ok(())
    }

    /// Removes an empty extent.
    ///
    /// # Errors
    /// [`RangeError::Extent`] when it is not there, [`RangeError::InUse`].
    pub fn remove(&mut self, extent: ExtentId) -> Result<(), RangeError> {
        let Some(found) = self.extents.get(&extent) else { return Err(RangeError::Extent(extent)) };
        if !found.used.is_empty() {
            return Err(RangeError::InUse(extent));
        }
        self.extents.remove(&extent);
        self.by_length.remove(&(self.extent_bytes, extent, 0));
        self.empty.remove(&extent);
        Ok(())
    }

    /// Whether the extent belongs to this allocator.
    #[must_use]
    pub fn contains(&self, extent: ExtentId) -> bool {
        self.extents.contains_key(&extent)
    }

    /// Extents without an allocation, in ascending order.
    pub fn empty_extents(&self) -> impl Iterator<Item = ExtentId> + '_ {
        self.empty.iter().copied()
    }

    /// All extents, in ascending order.
    pub fn extents(&self) -> impl Iterator<Item = ExtentId> + '_ {
        self.extents.keys().copied()
    }

    /// Allocates `length` bytes, rounded up to the granularity; `None` when no free range fits.
    pub fn allocate(&mut self, length: u64) -> Option<ExtentRange> {
        let length = self.rounded(length)?;
        let &(_, extent, offset) = self.by_length.range((length, ExtentId(0), 0)..).next()?;
        let range = ExtentRange { extent, offset, length };
        self.reserve(range).ok()?;
        Some(range)
    }

    /// Free bytes in pieces of at least `least` bytes.
    #[must_use]
    pub fn free_in_pieces(&self, least: u64) -> u64 {
        self.by_length.range((least, ExtentId(0), 0)..).map(|(free, ..)| free).sum()
    }

    /// Marks a given range as allocated, for callers that learn an extent's contents from
    /// elsewhere.
    ///
    /// # Errors
    /// [`RangeError::Extent`], [`RangeError::Misplaced`] when it is not entirely free.
    pub fn reserve(&mut self, range: ExtentRange) -> Result<(), RangeError> {
        let misplaced = RangeError::Misplaced(range);
        let ExtentRange { extent, offset, length } = range;
        if length == 0 || !length.is_multiple_of(GRANULARITY_BYTES) || !offset.is_multiple_of(GRANULARITY_BYTES) {
            return Err(misplaced);
        }
        let Some(end) = offset.checked_add(length) else { return Err(misplaced) };
        let found = self.extents.get(&extent).ok_or(RangeError::Extent(extent))?;
        let Some((&free_offset, &free_length)) = found.free.range(..=offset).next_back() else {
            return Err(misplaced);
        };
        let free_end = free_offset + free_length;
        if end > free_end {
            return Err(misplaced);
        }
        self.remove_free(extent, free_offset, free_length);
        if offset > free_offset {
            self.insert_free(extent, free_offset, offset - free_offset);
        }
        if free_end > end {
            self.insert_free(extent, end, free_end - end);
        }
        if let Some(found) = self.extents.get_mut(&extent) {
            found.used.insert(offset, length);
        }
        self.empty.remove(&extent);
        self.allocated_bytes += length;
        self.ranges += 1;
        Ok(())
    }

    /// The allocated ranges that begin at this offset of this extent or later, in ascending order.
    pub fn allocated_from(&self, (first, offset): (ExtentId, u64)) -> impl Iterator<Item = ExtentRange> + '_ {
        self.extents.range(first..).flat_map(move |(&extent, found)| {
            let begin = if extent == first { offset } else { 0 };
            found.used.range(begin..).map(move |(&offset, &length)| ExtentRange { extent, offset, length })
        })
    }

    /// Whether exactly this range is allocated.
    #[must_use]
    pub fn is_allocated(&self, range: ExtentRange) -> bool {
        self.extents.get(&range.extent).and_then(|found| found.used.get(&range.offset)) == Some(&range.length)
    }

    /// Frees an allocated range.
    ///
    /// # Errors
    /// [`RangeError::NotAllocated`]; then nothing was freed.
    pub fn free(&mut self, range: ExtentRange) -> Result<(), RangeError> {
        if !self.is_allocated(range) {
            return Err(RangeError::NotAllocated(range));
        }
        let ExtentRange { extent, mut offset, mut length } = range;
        let Some(found) = self.extents.get_mut(&extent) else { return Err(RangeError::NotAllocated(range)) };
        found.used.remove(&offset);
        let emptied = found.used.is_empty();
        let before = found.free.range(..offset).next_back().map(|(&offset, &length)| (offset, length));
        let after = found.free.get(&(offset + length)).copied();
        if let Some(after_length) = after {
            self.remove_free(extent, offset + length, after_length);
            length += after_length;
        }
        if let Some((before_offset, before_length)) = before
            && before_offset + before_length == offset
        {
            self.remove_free(extent, before_offset, before_length);
            offset = before_offset;
            length += before_length;
        }
        self.insert_free(extent, offset, length);
        if emptied {
            self.empty.insert(extent);
        }
        self.allocated_bytes -= range.length;
        self.ranges -= 1;
        Ok(())
    }

    /// Statistics.
    #[must_use]
    pub fn statistics(&self) -> RangeStatistics {
        RangeStatistics {
            extents: self.extents.len() as u64,
            empty_extents: self.empty.len() as u64,
            total_bytes: self.extents.len() as u64 * self.extent_bytes,
            allocated_bytes: self.allocated_bytes,
            ranges: self.ranges,
            largest_free_bytes: self.by_length.last().map_or(0, |&(length, ..)| length),
        }
    }

    fn insert_free(&mut self, extent: ExtentId, offset: u64, length: u64) {
        if let Some(found) = self.extents.get_mut(&extent) {
            found.free.insert(offset, length);
            self.by_length.insert((length, extent, offset));
        }
    }

    fn remove_free(&mut self, extent: ExtentId, offset: u64, length: u64) {
        if let Some(found) = self.extents.get_mut(&extent) {
            found.free.remove(&offset);
            self.by_length.remove(&(length, extent, offset));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const K4: u64 = GRANULARITY_BYTES;

    fn range(extent: u32, offset: u64, length: u64) -> ExtentRange {
        ExtentRange { extent: ExtentId(extent), offset: offset * K4, length: length * K4 }
    }

    #[test]
    fn the_smallest_hole_is_filled_first() {
        let mut ranges = RangeAllocator::new(16 * K4);
        ranges.add(ExtentId(1)).unwrap();
        ranges.add(ExtentId(0)).unwrap();
        let taken: Vec<_> = [4, 2, 3, 7].map(|length| ranges.allocate(length * K4).unwrap()).into();
        assert_eq!(taken, [range(0, 0, 4), range(0, 4, 2), range(0, 6, 3), range(0, 9, 7)]);
        ranges.free(taken[0]).unwrap();
        ranges.free(taken[2]).unwrap();
        assert_eq!(ranges.allocate(2 * K4 + 1), Some(range(0, 6, 3)));
        assert_eq!(ranges.allocate(1), Some(range(0, 0, 1)));
        assert_eq!(ranges.empty_extents().collect::<Vec<_>>(), [ExtentId(1)]);
        assert_eq!(ranges.allocate(17 * K4), None);
        assert_eq!(ranges.rounded(17 * K4), None);
        assert_eq!(ranges.rounded(u64::MAX), None);
    }

    #[test]
    fn wrong_calls_change_nothing() {
        let mut ranges = RangeAllocator::new(8 * K4);
        ranges.add(ExtentId(0)).unwrap();
        let taken = ranges.allocate(2 * K4).unwrap();
        let before = ranges.statistics();
        assert!(ranges.free(range(0, 0, 1)).is_err());
        assert!(ranges.free(range(0, 1, 1)).is_err());
        assert!(ranges.free(range(7, 0, 1)).is_err());
        assert!(ranges.reserve(range(0, 1, 2)).is_err());
        assert!(ranges.reserve(range(0, 7, 2)).is_err());
        assert!(ranges.reserve(range(3, 0, 1)).is_err());
        assert!(ranges.reserve(ExtentRange { extent: ExtentId(0), offset: u64::MAX - 4095, length: K4 }).is_err());
        assert_eq!(ranges.remove(ExtentId(0)), Err(RangeError::InUse(ExtentId(0))));
        assert_eq!(ranges.add(ExtentId(0)), Err(RangeError::Extent(ExtentId(0))));
        assert_eq!(ranges.statistics(), before);
        ranges.free(taken).unwrap();
        assert_eq!(ranges.free(taken), Err(RangeError::NotAllocated(taken)));
        ranges.remove(ExtentId(0)).unwrap();
        assert_eq!(ranges.statistics(), RangeStatistics::default());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Add(u32),
        Remove(u32),
        Allocate(u64),
        Free(usize),
        Reserve(u32, u64, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            1 => (0..4u32).prop_map(Step::Add),
            1 => (0..4u32).prop_map(Step::Remove),
            6 => (0..17 * K4).prop_map(Step::Allocate),
            5 => any::<usize>().prop_map(Step::Free),
            2 => (0..5u32, 0..17u64, 0..5u64).prop_map(|(extent, offset, length)| Step::Reserve(extent, offset, length)),
        ]
    }

    proptest! {
        /// The model is a map of granules and their holders.
        #[test]
        fn agrees_with_a_map_of_granules(steps in proptest::collection::vec(step(), 1..200)) {
            let mut ranges = RangeAllocator::new(16 * K4);
            let mut model: BTreeMap<u32, [bool; 16]> = BTreeMap::new();
            let mut held: Vec<ExtentRange> = Vec::new();
            let granules = |range: ExtentRange| (range.offset / K4) as usize..((range.offset + range.length) / K4) as usize;
            for step in steps {
                match step {
                    Step::Add(extent) => {
                        prop_assert_eq!(ranges.add(ExtentId(extent)).is_ok(), !model.contains_key(&extent));
                        model.entry(extent).or_default();
                    }
                    Step::Remove(extent) => {
                        let may = model.get(&extent).is_some_and(|granules| !granules.contains(&true));
                        prop_assert_eq!(ranges.remove(ExtentId(extent)).is_ok(), may);
                        if may {
                            model.remove(&extent);
                        }
                    }
                    Step::Allocate(length) => {
                        let need = length.max(1).div_ceil(K4) as usize;
                        let fits = |granules: &[bool; 16]| granules.windows(need).any(|w| !w.contains(&true));
                        let possible = need <= 16 && model.values().any(fits);
                        let got = ranges.allocate(length);
                        prop_assert_eq!(got.is_some(), possible);
                        if let Some(range) = got {
                            prop_assert_eq!(range.length, need as u64 * K4);
                            for granule in &mut model.get_mut(&range.extent.0).unwrap()[granules(range)] {
                                prop_assert!(!std::mem::replace(granule, true));
                            }
                            held.push(range);
                        }
                    }
                    Step::Free(which) if !held.is_empty() => {
                        let range = held.swap_remove(which % held.len());
                        ranges.free(range).unwrap();
                        model.get_mut(&range.extent.0).unwrap()[granules(range)].fill(false);
                    }
                    Step::Free(_) => {}
                    Step::Reserve(extent, offset, length) => {
                        let range = range(extent, offset, length);
                        let free = model.get(&extent).and_then(|g| g.get(granules(range)));
                        let may = length > 0 && free.is_some_and(|granules| !granules.contains(&true));
                        prop_assert_eq!(ranges.reserve(range).is_ok(), may);
                        if may {
                            model.get_mut(&extent).unwrap()[granules(range)].fill(true);
                            held.push(range);
                        }
                    }
                }
                let statistics = ranges.statistics();
                prop_assert_eq!(statistics.allocated_bytes, held.iter().map(|range| range.length).sum::<u64>());
                prop_assert_eq!(statistics.ranges, held.len() as u64);
                let from = (ExtentId(1), 5 * K4);
                let mut listed: Vec<_> = held.iter().filter(|range| (range.extent, range.offset) >= from).copied().collect();
                listed.sort_unstable();
                prop_assert_eq!(ranges.allocated_from(from).collect::<Vec<_>>(), listed);
                let empty: Vec<_> = model.iter().filter(|(_, g)| !g.contains(&true)).map(|(&e, _)| ExtentId(e)).collect();
                prop_assert_eq!(ranges.empty_extents().collect::<Vec<_>>(), empty);
                let runs = model.values().flat_map(|g| g.split(|&used| used).map(<[bool]>::len)).max().unwrap_or(0);
                prop_assert_eq!(statistics.largest_free_bytes, runs as u64 * K4);
            }
        }
    }
}
