//! Finding places in the index without latches.

use crate::error::IndexError;
use crate::index::Index;
use crate::node::{Snapshot, lower};
use crate::records::Records;
use crate::target::{Edge, Stop, Target, Visit, retry};
use forebay_base::InternalKey;

/// The goal of a descent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal<'t, 'k> {
    First,
    Last,
    Key(&'t Target<'k>),
}

/// A slot of a leaf at the time of a snapshot.
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
    /// The place of slot `slot` of a leaf.
    #[inline]
    pub(crate) fn place(&self, slot: usize) -> Result<Place, Stop> {
        let payload = self.node.payload(slot);
        self.check()?;
        Ok(Place { leaf: self.number, slot: slot as u32, snapshot: self.snapshot, payload })
    }
}

impl Index {
    /// Offset, divided by 8, of the first record whose key is not before `key`.
    ///
    /// # Errors
    /// Only if memory was overwritten.
    #[inline]
    pub fn seek<R: Records>(&self, records: R, key: InternalKey<'_>) -> Result<Option<u32>, IndexError> {
        let target = Target::new(self.order(), key);
        Ok(self.walk(records).at_or_after(Goal::Key(&target))?.map(|place| place.record()))
    }

    pub(crate) const fn walk<R: Records>(&self, records: R) -> Walk<'_, R> {
        Walk { index: self, records }
    }
}

/// An index to search.
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
    /// The lowest inner node that has a child before the one on the path to the leaf, and that
    /// child.
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

    /// Descends from `at` to the gap that `goal` and `edge` determine.
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

    /// The place of a slot, or the first place of the next leaf if the slot is one too far.
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

    /// The last place before the goal; with [`Edge::After`], a place equal to the goal counts too.
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

    /// The place after `place`.
    #[inline]
    pub(crate) fn after(&self, place: &Place) -> Result<Option<Place>, IndexError> {
        let leaf = self.index.visit(place.leaf, place.snapshot)?;
        match self.slot_or_next(leaf, place.slot as usize + 1) {
            Ok(next) => Ok(next),
            Err(Stop::Failed(error)) => Err(error),
            Err(Stop::Changed) => self.after_record(place.record()),
        }
    }

    /// The record some slots after `place` in its leaf. It may be wrong when the leaf has changed.
    #[inline]
    pub(crate) fn record_ahead(&self, place: &Place, steps: u32) -> Option<u32> {
        let slot = (place.slot + steps) as usize;
        let leaf = self.index.visit(place.leaf, place.snapshot).ok()?;
        (slot < place.snapshot.count()).then(|| lower(leaf.node.payload(slot)))
    }

    /// The place after a record whose leaf has changed.
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
