//! Range deletions over keys that come in order, as in a merge.
//!
//! ```text
//!            last key asked for
//!                   ▼
//!  ├──── 9 ────┤         started, newest first: 7, then 9, which goes when it is met, as it has ended
//!      ├──── 7 ──────────────┤
//!                       ├─ 8 ─┤     waiting
//! ```
//!
//! Each deletion is examined a few times in total, no matter how many keys and deletions there are.

use crate::entry::RangeTombstone;
use forebay_base::{KeyOrder, SequenceNumber};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// See the module.
#[derive(Debug)]
pub struct DeletionSweep {
    order: KeyOrder,
    /// Deletions that start after the last key; the next one is at the end.
    waiting: Vec<RangeTombstone>,
    /// The other deletions, except those that are known to have ended.
    started: BinaryHeap<Started>,
}

/// A deletion that has started: the newest is the greatest.
#[derive(Debug, PartialEq, Eq)]
struct Started {
    number: SequenceNumber,
    end: Vec<u8>,
}

impl Ord for Started {
    fn cmp(&self, other: &Self) -> Ordering {
        self.number.cmp(&other.number).then_with(|| self.end.cmp(&other.end))
    }
}

impl PartialOrd for Started {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl DeletionSweep {
    /// A sweep over these range deletions.
    #[must_use]
    pub fn new(order: KeyOrder, mut deletions: Vec<RangeTombstone>) -> Self {
        deletions.sort_by(|a, b| order.compare(&b.start, &a.start));
        Self { order, waiting: deletions, started: BinaryHeap::new() }
    }

    /// The number of the newest range deletion that has `key` in its range. Keys come in order; one may come again.
    pub fn newest_over(&mut self, key: &[u8]) -> Option<SequenceNumber> {
        let order = self.order;
        while let Some(next) = self.waiting.pop_if(|next| order.compare(&next.start, key).is_le()) {
            self.started.push(Started { number: next.tag.sequence(), end: next.end });
        }
        while self.started.peek().is_some_and(|newest| order.compare(&newest.end, key).is_le()) {
            self.started.pop();
        }
        self.started.peek().map(|newest| newest.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::{Kind, Tag};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_look_at_all(
            ranges in prop::collection::vec((0u8..30, 0u8..30), 0..40), keys in prop::collection::vec(0u8..62, 0..60), reverse: bool,
        ) {
            let order = if reverse { KeyOrder::ReverseBytewise } else { KeyOrder::Bytewise };
            let deletions: Vec<_> = ranges.iter().zip(1..).map(|(&(start, length), number)| {
                let (low, high) = (vec![start], vec![start + length]);
                let (start, end) = if reverse { (high, low) } else { (low, high) };
                RangeTombstone { start, end, tag: Tag::new(SequenceNumber(number), Kind::RangeDelete, false) }
            }).collect();
            let mut keys: Vec<_> = keys.into_iter().map(|key| [key]).collect();
            keys.sort_by(|a, b| order.compare(a, b));
            let mut sweep = DeletionSweep::new(order, deletions.clone());
            for key in keys {
                let over = deletions.iter().filter(|deletion| deletion.contains(order, &key));
                prop_assert_eq!(sweep.newest_over(&key), over.map(|deletion| deletion.tag.sequence()).max());
            }
        }
    }
}
