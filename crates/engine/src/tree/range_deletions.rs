//! What range deletions hide.
//!
//! A range deletion hides every entry of its range that has a smaller number, wherever the entry
//! is. Sequence numbers order a shard's writes, and sources get older from memtable to memtable and
//! from level to level. So a range deletion in one source may hide entries of this source and of
//! older ones.
//!
//! The deletions of one source are kept in order of their starts, under a binary tree. Each node of the tree has the
//! deletion below it that ends last. A search goes only into the parts that start in time and have not ended. So its
//! cost depends on what it finds, and not on what is in between: many short deletions under a long one, such as that of
//! a keyspace, are passed over.
//!
//! ```text
//!  node     1                  all
//!           2, 3               halves            node n has the children 2n and 2n + 1
//!           …
//!           width + at         the deletion `at`, in order of starts
//! ```

use forebay_base::{KeyOrder, SequenceNumber};
use forebay_env::sync::RwLock;
use forebay_table::RangeTombstone;
use std::ops::Range;
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
    /// For each node of the tree, the deletion under it that ends last: its place in `sorted`; `None` where there is none.
    furthest: Vec<Option<usize>>,
}

/// The root of the tree.
const ROOT: usize = 1;

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

    /// The number of leaves of the tree.
    const fn width(&self) -> usize {
        self.furthest.len() / 2
    }

    /// Updates the tree for the deletions from a place on.
    fn find_furthest(&mut self, mut from: usize) {
        let wanted = 2 * self.sorted.len().next_power_of_two();
        if self.furthest.len() != wanted {
            self.furthest = vec![None; wanted];
            from = 0;
        }
        let (width, count) = (self.width(), self.sorted.len());
        for (at, leaf) in self.furthest.iter_mut().skip(width).enumerate().skip(from) {
            *leaf = Some(at).filter(|at| *at < count);
        }
        let (mut first, mut last) = (width + from, width + count.saturating_sub(1));
        while first > ROOT {
            (first, last) = (first / 2, last / 2);
            for node in first..=last {
                let furthest = self.later(self.furthest_of(2 * node), self.furthest_of(2 * node + 1));
                self.furthest.iter_mut().skip(node).take(1).for_each(|of_node| *of_node = furthest);
            }
        }
    }

    fn furthest_of(&self, node: usize) -> Option<usize> {
        self.furthest.get(node).copied().flatten()
    }

    /// Which of two deletions ends later.
    fn later(&self, a: Option<usize>, b: Option<usize>) -> Option<usize> {
        let end = |at: Option<usize>| at.and_then(|at| self.sorted.get(at)).map(|deletion| &deletion.end);
        match (end(a), end(b)) {
            (Some(first), Some(second)) if self.order.compare(first, second).is_lt() => b,
            (None, _) => b,
            _ => a,
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
        self.newest_under(ROOT, 0..self.width(), self.started_by(user_key), (user_key, number))
    }

    /// The same of the deletions `below` a node, of which those before `started` count.
    fn newest_under(
        &self,
        node: usize,
        below: Range<usize>,
        started: usize,
        wanted @ (user_key, number): (&[u8], SequenceNumber),
    ) -> Option<SequenceNumber> {
        let furthest = self.furthest_of(node).and_then(|at| self.sorted.get(at))?;
        if below.start >= started || self.order.compare(user_key, &furthest.end).is_ge() {
            return None;
        }
        if below.len() <= 1 {
            return Some(furthest.tag.sequence()).filter(|deleted| *deleted <= number);
        }
        let middle = below.start.midpoint(below.end);
        let left = self.newest_under(2 * node, below.start..middle, started, wanted);
        left.max(self.newest_under(2 * node + 1, middle..below.end, started, wanted))
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
        self.count() == 0
    }

    /// How many there are: one for each record of a range deletion.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether the memtable should end.
    pub(crate) fn is_full(&self) -> bool {
        self.count() >= MAX_IN_MEMTABLE
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
    fn short_ones_under_a_long_one_are_passed_over() {
        let key = |number: u32| number.to_be_bytes().to_vec();
        let tag = |number| Tag::new(SequenceNumber(number), Kind::RangeDelete, false);
        let short = |at: u32| RangeTombstone { start: key(10 * at), end: key(10 * at + 5), tag: tag(u64::from(at)) };
        let long = RangeTombstone { start: key(0), end: key(u32::MAX), tag: tag(7) };
        let all = RangeDeletions::new(KeyOrder::Bytewise, (1..4000).map(short).chain([long]).map(Arc::new));
        for (at, expected) in [(39_987, 7), (39_984, 3998), (3, 7), (10, 7), (80, 8)] {
            assert_eq!(all.newest_over(&key(at), SequenceNumber::MAX), Some(SequenceNumber(expected)), "{at}");
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
