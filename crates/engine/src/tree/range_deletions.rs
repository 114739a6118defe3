//! What range deletions hide.
//!
//! A range deletion hides every entry of its range that has a smaller number, wherever the entry
//! is. Sequence numbers order a shard's writes, and sources get older from memtable to memtable and
//! from level to level. So a range deletion in one source may hide entries of this source and of
//! older ones.
//!
//! The deletions of one source are kept in order of their starts, each with the largest end so far.
//! A search walks back from the last deletion that starts in time, and stops where all have ended.

use forebay_base::{KeyOrder, SequenceNumber};
use forebay_env::sync::RwLock;
use forebay_table::RangeTombstone;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

/// A memtable ends at this many range deletions. A longer list would slow down reads and each
/// further range deletion.
const MAX_IN_MEMTABLE: usize = 1024;

/// Range deletions, ready for searches. See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct RangeDeletions {
    order: KeyOrder,
    /// In order of their starts.
    sorted: Vec<Arc<RangeTombstone>>,
    /// For each place, the deletion up to there that ends last.
    furthest: Vec<usize>,
}

impl RangeDeletions {
    pub(crate) fn new(order: KeyOrder, deletions: impl IntoIterator<Item = Arc<RangeTombstone>>) -> Self {
        let mut sorted: Vec<_> = deletions.into_iter().collect();
        sorted.sort_by(|a, b| order.compare(&a.start, &b.start));
        let mut deletions = Self { order, sorted, furthest: Vec::new() };
        deletions.find_furthest(0);
        deletions
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<RangeTombstone>> {
        self.sorted.iter()
    }

    /// Adds deletions: one in its place, several in one pass over all.
    fn add(&mut self, deletions: Vec<Arc<RangeTombstone>>) {
        if let [only] = &deletions[..] {
            let at = self.started_by(&only.start);
            self.sorted.insert(at, Arc::clone(only));
            self.find_furthest(at);
        } else {
            let all = std::mem::take(&mut self.sorted).into_iter().chain(deletions);
            *self = Self::new(self.order, all);
        }
    }

    /// Updates `furthest` from a place on.
    fn find_furthest(&mut self, from: usize) {
        self.furthest.truncate(from);
        let mut furthest = self.furthest.last().copied();
        for (at, deletion) in self.sorted.iter().enumerate().skip(from) {
            let before = furthest.and_then(|before| self.sorted.get(before).map(|deletion| (before, deletion)));
            let last = match before {
                Some((before, longest)) if self.order.compare(&longest.end, &deletion.end).is_ge() => before,
                _ => at,
            };
            self.furthest.push(last);
            furthest = Some(last);
        }
    }

    /// Number of deletions that start at `user_key` or before.
    fn started_by(&self, user_key: &[u8]) -> usize {
        self.sorted.partition_point(|deletion| self.order.compare(&deletion.start, user_key).is_le())
    }

    /// The number of the newest deletion of `user_key` that `number` covers.
    #[inline]
    pub(crate) fn newest_over(&self, user_key: &[u8], number: SequenceNumber) -> Option<SequenceNumber> {
        if self.is_empty() { None } else { self.search(user_key, number) }
    }

    fn search(&self, user_key: &[u8], number: SequenceNumber) -> Option<SequenceNumber> {
        let ends_behind = |deletion: &RangeTombstone| self.order.compare(user_key, &deletion.end).is_lt();
        let started = self.started_by(user_key);
        let candidates = self.sorted.iter().zip(&self.furthest).take(started).rev();
        candidates
            .take_while(|(_, furthest)| self.sorted.get(**furthest).is_some_and(|deletion| ends_behind(deletion)))
            .filter(|(deletion, _)| ends_behind(deletion))
            .map(|(deletion, _)| deletion.tag.sequence())
            .filter(|deleted| *deleted <= number)
            .max()
    }
}

/// The range deletions of a memtable. A writer adds a deletion before it publishes its number, so a
/// reader that sees the number sees the deletion.
#[derive(Debug)]
pub(crate) struct MemtableDeletions {
    count: AtomicUsize,
    list: RwLock<Arc<RangeDeletions>>,
}

impl MemtableDeletions {
    pub(crate) fn new(order: KeyOrder) -> Self {
        Self { count: AtomicUsize::new(0), list: RwLock::new(Arc::new(RangeDeletions::new(order, []))) }
    }

    /// Adds the range deletions of a write.
    pub(crate) fn add(&self, deletions: Vec<Arc<RangeTombstone>>) {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        let count = deletions.len();
        // Copied if an iterator or a flush holds it.
        Arc::make_mut(&mut list).add(deletions);
        self.count.fetch_add(count, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Whether the memtable should end.
    pub(crate) fn is_full(&self) -> bool {
        self.count.load(Ordering::Relaxed) >= MAX_IN_MEMTABLE
    }

    /// The current range deletions.
    pub(crate) fn all(&self) -> Arc<RangeDeletions> {
        Arc::clone(&self.list.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`RangeDeletions::newest_over`]; `number` is a published one.
    #[inline]
    pub(crate) fn newest_over(&self, user_key: &[u8], number: SequenceNumber) -> Option<SequenceNumber> {
        // Relaxed: the count was raised before publication of any number that covers the deletion,
        // and the caller has seen the number.
        if self.is_empty() {
            return None;
        }
        self.list.read().unwrap_or_else(PoisonError::into_inner).newest_over(user_key, number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::{Kind, Tag};
    use proptest::prelude::*;

    fn deletion(start: u8, end: u8, number: u64) -> RangeTombstone {
        let tag = Tag::new(SequenceNumber(number), Kind::RangeDelete, false);
        RangeTombstone { start: vec![start], end: vec![end], tag }
    }

    proptest! {
        #[test]
        fn the_newest_is_found(
            ranges in prop::collection::vec((0u8..30, 1u8..30), 0..40), key in 0u8..62, number in 0u64..45, reverse: bool,
        ) {
            let order = if reverse { KeyOrder::ReverseBytewise } else { KeyOrder::Bytewise };
            let deletions: Vec<_> = ranges.iter().zip(1..).map(|((start, length), number)| {
                let (low, high) = (*start, start + length);
                if reverse { deletion(high, low, number) } else { deletion(low, high, number) }
            }).collect();
            let number = SequenceNumber(number);
            let expected = deletions.iter()
                .filter(|deletion| deletion.contains(order, &[key]) && deletion.tag.sequence() <= number)
                .map(|deletion| deletion.tag.sequence())
                .max();
            let whole = RangeDeletions::new(order, deletions.iter().cloned().map(Arc::new));
            prop_assert_eq!(whole.newest_over(&[key], number), expected);
            let deletions: Vec<_> = deletions.into_iter().map(Arc::new).collect();
            for at_once in [1, 3, 40] {
                let grown = MemtableDeletions::new(order);
                deletions.chunks(at_once).for_each(|write| grown.add(write.to_vec()));
                prop_assert_eq!(grown.newest_over(&[key], number), expected);
                prop_assert_eq!(grown.all().iter().count(), ranges.len());
            }
        }
    }

    #[test]
    fn a_memtable_takes_so_many() {
        let deletions = MemtableDeletions::new(KeyOrder::Bytewise);
        for number in 1..=MAX_IN_MEMTABLE as u64 {
            assert!(!deletions.is_full());
            deletions.add(vec![Arc::new(deletion(1, 2, number))]);
        }
        assert!(deletions.is_full());
    }
}
