//! Cursors: walks over an index in both directions.
//!
//! A step goes to the next slot of the leaf, or to the next leaf. A backward step from the first
//! slot of a leaf is a search by the key of the current record, O(log n). So is any step after the
//! leaf has changed since the cursor came to it. No step allocates. A cursor over a live index sees
//! records that are present when it steps there.

use crate::error::IndexError;
use crate::index::Index;
use crate::records::Records;
use crate::target::{Edge, Target};
use crate::walk::{Goal, Place, Walk};
use forebay_base::InternalKey;

impl Index {
    /// A cursor without a position.
    #[must_use]
    pub const fn cursor<R: Records>(&self, records: R) -> Cursor<'_, R> {
        Cursor::new(self.walk(records))
    }
}

/// A place in an index, or no position.
#[derive(Debug, Clone)]
pub struct Cursor<'a, R> {
    walk: Walk<'a, R>,
    place: Option<Place>,
}

impl<'a, R: Records> Cursor<'a, R> {
    pub(crate) const fn new(walk: Walk<'a, R>) -> Self {
        Self { walk, place: None }
    }

    fn go(&mut self, place: Result<Option<Place>, IndexError>) -> Result<(), IndexError> {
        self.place = None;
        self.place = place?;
        Ok(())
    }

    /// Goes to the first record.
    ///
    /// # Errors
    /// [`IndexError`] on a damaged index, as for all moves; the cursor then has no position.
    pub fn seek_to_first(&mut self) -> Result<(), IndexError> {
        self.go(self.walk.at_or_after(Goal::First))
    }

    /// Goes to the last record.
    ///
    /// # Errors
    /// [`IndexError`].
    pub fn seek_to_last(&mut self) -> Result<(), IndexError> {
        self.go(self.walk.before(Goal::Last, Edge::After))
    }

    /// Goes to the first record whose key is not before `key`.
    ///
    /// # Errors
    /// [`IndexError`].
    pub fn seek(&mut self, key: InternalKey<'_>) -> Result<(), IndexError> {
        let target = Target::new(self.walk.index.order(), key);
        self.go(self.walk.at_or_after(Goal::Key(&target)))
    }

    /// Goes to the last record whose key is not after `key`.
    ///
    /// # Errors
    /// [`IndexError`].
    pub fn seek_for_prev(&mut self, key: InternalKey<'_>) -> Result<(), IndexError> {
        let target = Target::new(self.walk.index.order(), key);
        self.go(self.walk.before(Goal::Key(&target), Edge::After))
    }

    /// Goes one record forward. There is no position after the last record; without a position,
    /// nothing happens.
    ///
    /// # Errors
    /// [`IndexError`].
    #[inline]
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<(), IndexError> {
        match self.place.take() {
            Some(place) => self.go(self.walk.after(&place)),
            None => Ok(()),
        }
    }

    /// Goes one record back. There is no position before the first record; without a position,
    /// nothing happens.
    ///
    /// # Errors
    /// [`IndexError`].
    pub fn prev(&mut self) -> Result<(), IndexError> {
        match self.place.take() {
            Some(place) => self.go(self.walk.back(&place)),
            None => Ok(()),
        }
    }

    /// Offset, divided by 8, of the current record; `None` without a position.
    #[inline]
    #[must_use]
    pub fn record(&self) -> Option<u32> {
        self.place.as_ref().map(Place::record)
    }

    /// A record some steps ahead, if it is in the same leaf and the leaf is unchanged: a hint.
    #[inline]
    pub(crate) fn record_ahead(&self, steps: u32) -> Option<u32> {
        let place = self.place.as_ref()?;
        self.walk.record_ahead(place, steps)
    }
}
