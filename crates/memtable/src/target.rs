//! A key to find, and its rank among the slots of a node that other threads may change.

use crate::error::IndexError;
use crate::node::{Node, Snapshot, lower, upper};
use crate::records::Records;
use forebay_base::{InternalKey, KeyOrder};
use forebay_env::sync::relax;
use std::cmp::Ordering;

/// Why an attempt ended without an answer.
pub(crate) enum Stop {
    /// The node changed meanwhile: try again.
    Changed,
    Failed(IndexError),
}

impl From<IndexError> for Stop {
    fn from(error: IndexError) -> Self {
        Self::Failed(error)
    }
}

/// Retries until no node changes meanwhile.
#[inline]
pub(crate) fn retry<T>(mut attempt: impl FnMut() -> Result<T, Stop>) -> Result<T, IndexError> {
    let mut round = 0;
    loop {
        match attempt() {
            Ok(answer) => return Ok(answer),
            Err(Stop::Failed(error)) => return Err(error),
            Err(Stop::Changed) => relax(&mut round),
        }
    }
}

/// A key to compare slots with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'k> {
    /// Key bytes 0 … 7 as a number in the index's order.
    pub(crate) prefix: u64,
    /// Key bytes 8 … 11 likewise.
    pub(crate) tail: u32,
    key: InternalKey<'k>,
    order: KeyOrder,
}

impl<'k> Target<'k> {
    #[inline]
    pub(crate) fn new(order: KeyOrder, key: InternalKey<'k>) -> Self {
        let rest = key.user_key.get(8..).unwrap_or_default();
        Self { prefix: order.prefix(key.user_key), tail: (order.prefix(rest) >> 32) as u32, key, order }
    }

    /// Compares a record's key with the target.
    fn compare<R: Records>(&self, records: R, record: u32) -> Result<Ordering, IndexError> {
        Ok(self.order.compare_internal(records.key_at(record)?, self.key))
    }
}

/// Which slots count as before a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edge {
    /// Slots whose key is before the target.
    Before,
    /// Also slots whose key equals the target.
    After,
}

/// A node at the time of a snapshot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visit<'a> {
    pub(crate) number: u32,
    pub(crate) node: &'a Node,
    pub(crate) snapshot: Snapshot,
    /// Number of levels below.
    pub(crate) level: u32,
}

impl Visit<'_> {
    /// Stops unless the words read from the node belong together.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Stop> {
        if self.node.is_unchanged(self.snapshot) { Ok(()) } else { Err(Stop::Changed) }
    }
}

impl Visit<'_> {
    /// Number of slots before the place of `target`, on the given side of an equal key.
    #[inline]
    pub(crate) fn rank<R: Records>(&self, records: R, target: &Target<'_>, edge: Edge) -> Result<usize, Stop> {
        let count = self.snapshot.count();
        let below = self.node.prefixes_below(count, target.prefix);
        if below < count && self.node.prefix(below) == target.prefix {
            return self.rank_of_equals(below, records, target, edge);
        }
        self.check()?;
        Ok(below)
    }

    /// The rank when slots from `first` on have the target's prefix.
    fn rank_of_equals<R: Records>(
        &self,
        first: usize,
        records: R,
        target: &Target<'_>,
        edge: Edge,
    ) -> Result<usize, Stop> {
        let count = self.snapshot.count();
        let end = target.prefix.checked_add(1).map_or(count, |next| self.node.prefixes_below(count, next));
        let (mut low, mut high) = (first, end);
        while low < high {
            let middle = low.midpoint(high);
            let payload = self.node.payload(middle);
            // Before the record is read.
            self.check()?;
            let order = match self.level {
                0 if upper(payload) != target.tail => upper(payload).cmp(&target.tail),
                0 => target.compare(records, lower(payload))?,
                _ => target.compare(records, upper(payload))?,
            };
            if order == Ordering::Less || order == Ordering::Equal && edge == Edge::After {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.check()?;
        Ok(low)
    }
}
