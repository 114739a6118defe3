//! Iteration over all shards.
//!
//! Shards own key ranges, so their iterators follow one another. One is open at a time; a shard that
//! is not reached is not opened. What all of them show was fixed when the iterator was made: their
//! views are held, and their numbers read under one cut.

use crate::Result;
use crate::bounds::{Bounds, IterOptions};
use crate::iterator::ShardIterator;
use crate::router::{Router, ShardView};
use crate::routing::Routing;
use forebay_table::Direction;
use std::sync::Arc;

/// Iterates over the keys and values of a database in key order, forward and backward, as of a
/// moment.
///
/// A new iterator stands nowhere: seek first. Past either end it stands nowhere again. It keeps the
/// memory of what it iterates over.
pub struct DbIterator {
    /// The iterator of the shard where this one stands.
    current: Option<ShardIterator>,
    /// Which of `shards` that is.
    at: usize,
    /// The shards within the bounds, in the order of their keys.
    shards: Vec<ShardView>,
    routing: Arc<Routing>,
    bounds: Arc<Bounds>,
}

impl std::fmt::Debug for DbIterator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DbIterator").field("shards", &self.shards.len()).finish_non_exhaustive()
    }
}

impl DbIterator {
    pub(crate) fn new(router: &Arc<Router>, options: &IterOptions<'_>) -> Result<Self> {
        let moment = options.snapshot.map(|snapshot| snapshot.moment_of(router)).transpose()?;
        let bounds = Arc::new(Bounds::new(router.order(), options));
        let (routing, shards) = router.views(moment, |routing| bounds.shards(routing))?;
        Ok(Self { current: None, at: 0, shards, routing, bounds })
    }

    /// Goes to the first key.
    ///
    /// # Errors
    /// `Unavailable` when a memory node is gone, `Corrupt` when a checksum does not match.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.open(0)?.seek_to_first()?;
        self.go_on(Direction::Forward)
    }

    /// Goes to the last key.
    ///
    /// # Errors
    /// See [`DbIterator::seek_to_first`].
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.open(self.shards.len().saturating_sub(1))?.seek_to_last()?;
        self.go_on(Direction::Backward)
    }

    /// Goes to the first key that is not before `key`.
    ///
    /// # Errors
    /// See [`DbIterator::seek_to_first`].
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.open(self.nearest(key))?.seek(key)?;
        self.go_on(Direction::Forward)
    }

    /// Goes to the last key that is not after `key`.
    ///
    /// # Errors
    /// See [`DbIterator::seek_to_first`].
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.open(self.nearest(key))?.seek_for_prev(key)?;
        self.go_on(Direction::Backward)
    }

    /// Whether the iterator stands on a key.
    #[inline]
    #[must_use]
    pub fn valid(&self) -> bool {
        self.current.as_ref().is_some_and(ShardIterator::valid)
    }

    /// The current key; empty when the iterator stands nowhere.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], ShardIterator::key)
    }

    /// The current value; empty when the iterator stands nowhere.
    #[inline]
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], ShardIterator::value)
    }

    /// Goes to the next key; nowhere behind the last, and from nowhere.
    ///
    /// # Errors
    /// See [`DbIterator::seek_to_first`].
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        match &mut self.current {
            Some(current) if current.valid() => {
                current.next()?;
                if current.valid() { Ok(()) } else { self.go_on(Direction::Forward) }
            }
            _ => Ok(()),
        }
    }

    /// Goes to the key before; nowhere before the first, and from nowhere.
    ///
    /// # Errors
    /// See [`DbIterator::seek_to_first`].
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        match &mut self.current {
            Some(current) if current.valid() => {
                current.prev()?;
                if current.valid() { Ok(()) } else { self.go_on(Direction::Backward) }
            }
            _ => Ok(()),
        }
    }

    /// The place in `shards` of the shard that owns `key`, or of the nearest.
    fn nearest(&self, key: &[u8]) -> usize {
        let owner = self.routing.owner(key);
        let first = self.shards.first().map_or(0, |first| first.at);
        owner.saturating_sub(first).min(self.shards.len().saturating_sub(1))
    }

    /// Opens the iterator of a shard, unless it is the one that is open.
    fn open(&mut self, at: usize) -> Result<&mut ShardIterator> {
        if self.at != at {
            self.current = None;
        }
        if self.current.is_none() {
            self.current = Some(self.opened(at)?);
            self.at = at;
        }
        self.current.as_mut().ok_or_else(crate::Error::closed)
    }

    fn opened(&self, at: usize) -> Result<ShardIterator> {
        let ShardView { at, shard, view, number } = self.shards.get(at).ok_or_else(crate::Error::closed)?;
        let bounds = match self.routing.range(*at) {
            // A shard may hold what it no longer owns.
            Some(range) if !range.is_everything() => Arc::new(self.bounds.within(range)),
            _ => Arc::clone(&self.bounds),
        };
        ShardIterator::new(Arc::clone(shard), view, *number, bounds)
    }

    /// From the end of a shard, goes on to the next one that holds something.
    #[cold]
    fn go_on(&mut self, direction: Direction) -> Result<()> {
        while !self.valid() {
            let next = match direction {
                Direction::Forward => Some(self.at + 1).filter(|&next| next < self.shards.len()),
                Direction::Backward => self.at.checked_sub(1),
            };
            let Some(next) = next else { return Ok(()) };
            match direction {
                Direction::Forward => self.open(next)?.seek_to_first()?,
                Direction::Backward => self.open(next)?.seek_to_last()?,
            }
        }
        Ok(())
    }
}
