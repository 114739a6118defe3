//! Finding places in the index without latches.

use crate::error::IndexError;
use crate::index::{Index, Records, Stop, Visit, retry};
use crate::node::{Snapshot, lower, upper};
use forebay_base::{InternalKey, KeyOrder};
use std::cmp::Ordering;

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

    /// How a record's key compares with the target.
    fn compare<R: Records>(&self, records: R, record: u32) -> Result<Ordering, IndexError> {
        Ok(self.order.compare_internal(records.key_at(record)?, self.key))
    }
}

/// Which slots come before a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edge {
    /// Those whose key is before the target.
    Before,
    /// Those too whose key is the target.
    After,
}

/// What a descent looks for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal<'t, 'k> {
    First,
    Last,
    Key(&'t Target<'k>),
}

/// A slot of a leaf, as it was at the time of a snapshot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) leaf: u32,
    pub(crate) slot: u32,
    pub(crate) snapshot: Snapshot,
    pub(crate) payload: u64,
}

impl Place {
    #[inline]
    pub(crate) const fn record(&self) -> u32 {
        lower(self.payload)
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
            // Before the record is looked at.
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

/// An index to be searched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walk<'a, R> {
    pub(crate) index: &'a Index,
    pub(crate) records: R,
}

/// A place between two slots of a leaf.
struct Gap<'a> {
    leaf: Visit<'a>,
    /// Slots of the leaf before the gap.
    before: usize,
    /// The lowest inner node that has a child before the one on the way to the leaf, and which.
    left: Option<(Visit<'a>, usize)>,
}

impl<'a, R: Records> Walk<'a, R> {
    fn rank(&self, visit: &Visit<'_>, goal: Goal<'_, '_>, edge: Edge) -> Result<usize, Stop> {
        match goal {
            Goal::First => Ok(0),
            Goal::Last => Ok(visit.snapshot.count()),
            Goal::Key(target) => visit.rank(self.records, target, edge),
        }
    }

    /// Descends from `at` to the gap that `goal` and `edge` name.
    #[inline]
    fn descend(&self, mut at: Visit<'a>, goal: Goal<'_, '_>, edge: Edge) -> Result<Gap<'a>, Stop> {
        let mut left = None;
        while at.level > 0 {
            let child = self.rank(&at, goal, Edge::After)?;
            if let Some(before) = child.checked_sub(1) {
                left = Some((at, before));
            }
            at = self.index.child(at, child)?;
        }
        Ok(Gap { leaf: at, before: self.rank(&at, goal, edge)?, left })
    }

    /// The first place whose key is not before the goal.
    #[inline]
    pub(crate) fn at_or_after(&self, goal: Goal<'_, '_>) -> Result<Option<Place>, IndexError> {
        retry(|| self.try_at_or_after(goal))
    }

    #[inline]
    fn try_at_or_after(&self, goal: Goal<'_, '_>) -> Result<Option<Place>, Stop> {
        let gap = self.descend(self.index.root()?, goal, Edge::Before)?;
        self.slot_or_next(gap.leaf, gap.before)
    }

    /// The place of a slot, or the first of the next leaf if that is one too many.
    #[inline]
    fn slot_or_next(&self, leaf: Visit<'a>, slot: usize) -> Result<Option<Place>, Stop> {
        if slot < leaf.snapshot.count() {
            return leaf.place(slot).map(Some);
        }
        match self.index.next_leaf(leaf)? {
            Some(next) => next.place(0).map(Some),
            None => Ok(None),
        }
    }

    /// The last place before the goal; with [`Edge::After`], one equal to it counts too.
    pub(crate) fn before(&self, goal: Goal<'_, '_>, edge: Edge) -> Result<Option<Place>, IndexError> {
        retry(|| {
            let gap = self.descend(self.index.root()?, goal, edge)?;
            if let Some(slot) = gap.before.checked_sub(1) {
                return gap.leaf.place(slot).map(Some);
            }
            let Some((above, child)) = gap.left else { return Ok(None) };
            let gap = self.descend(self.index.child(above, child)?, Goal::Last, edge)?;
            gap.before.checked_sub(1).map(|slot| gap.leaf.place(slot)).transpose()
        })
    }

    /// The place behind `place`.
    #[inline]
    pub(crate) fn after(&self, place: &Place) -> Result<Option<Place>, IndexError> {
        let leaf = self.index.visit(place.leaf, place.snapshot)?;
        match self.slot_or_next(leaf, place.slot as usize + 1) {
            Ok(next) => Ok(next),
            Err(Stop::Failed(error)) => Err(error),
            Err(Stop::Changed) => self.after_record(place.record()),
        }
    }

    /// The record some slots behind `place` in its leaf. It may be wrong when the leaf has changed.
    #[inline]
    pub(crate) fn record_ahead(&self, place: &Place, steps: u32) -> Option<u32> {
        let slot = (place.slot + steps) as usize;
        let leaf = self.index.visit(place.leaf, place.snapshot).ok()?;
        (slot < place.snapshot.count()).then(|| lower(leaf.node.payload(slot)))
    }

    /// The place behind a record whose leaf has changed.
    #[cold]
    fn after_record(&self, record: u32) -> Result<Option<Place>, IndexError> {
        let target = Target::new(self.index.order(), self.records.key_at(record)?);
        retry(|| {
            let gap = self.descend(self.index.root()?, Goal::Key(&target), Edge::After)?;
            self.slot_or_next(gap.leaf, gap.before)
        })
    }

    /// The place before `place`.
    pub(crate) fn back(&self, place: &Place) -> Result<Option<Place>, IndexError> {
        if let Some(slot) = place.slot.checked_sub(1) {
            match self.index.visit(place.leaf, place.snapshot)?.place(slot as usize) {
                Ok(before) => return Ok(Some(before)),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Changed) => {}
            }
        }
        let target = Target::new(self.index.order(), self.records.key_at(place.record())?);
        self.before(Goal::Key(&target), Edge::Before)
    }
}
