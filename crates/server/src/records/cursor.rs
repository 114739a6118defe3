//! A place among the records.

use crate::records::direction::Direction;
use crate::records::tree::TreeCursor;
use forebay::{DbIterator, Error};

/// A place among the records of a range, or its end. In an LSM database, a cursor sees the records as they were when it
/// began. In a shared tree, it sees each page as it is when it gets there. A caller that must not see half of a batch
/// has locked what batches of others would change.
#[derive(Debug)]
pub struct Cursor<'s> {
    place: Place<'s>,
    direction: Direction,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "the large one is the usual one")]
enum Place<'s> {
    Lsm(DbIterator),
    Tree(TreeCursor<'s>),
}

impl<'s> Cursor<'s> {
    /// Makes a cursor at the first record in this direction.
    pub(super) fn of_lsm(mut place: DbIterator, direction: Direction) -> Result<Self, Error> {
        match direction {
            Direction::Forward => place.seek_to_first()?,
            Direction::Backward => place.seek_to_last()?,
        }
        Ok(Self { place: Place::Lsm(place), direction })
    }

    /// The same.
    pub(super) fn of_tree(mut place: TreeCursor<'s>, direction: Direction) -> Result<Self, Error> {
        place.step()?;
        Ok(Self { place: Place::Tree(place), direction })
    }

    /// Whether there is a record here.
    #[inline]
    #[must_use]
    pub fn valid(&self) -> bool {
        match &self.place {
            Place::Lsm(place) => place.valid(),
            Place::Tree(place) => place.entry().is_some(),
        }
    }

    /// Returns the record's key; empty at the end.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &[u8] {
        match &self.place {
            Place::Lsm(place) => place.key(),
            Place::Tree(place) => place.entry().map_or(&[], |(key, _)| key),
        }
    }

    /// Returns the record's value; empty at the end.
    #[inline]
    #[must_use]
    pub fn value(&self) -> &[u8] {
        match &self.place {
            Place::Lsm(place) => place.value(),
            Place::Tree(place) => place.entry().map_or(&[], |(_, value)| value),
        }
    }

    /// Goes to the next record.
    ///
    /// # Errors
    /// Those of the engine.
    #[inline]
    pub fn step(&mut self) -> Result<(), Error> {
        match (&mut self.place, self.direction) {
            (Place::Lsm(place), Direction::Forward) => place.next()?,
            (Place::Lsm(place), Direction::Backward) => place.prev()?,
            (Place::Tree(place), _) => place.step()?,
        }
        Ok(())
    }
}
