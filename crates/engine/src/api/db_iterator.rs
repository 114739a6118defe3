//! Iteration over all shards.
//!
//! Shards own key ranges, so their iterators follow one another. Only one is open at a time, and a shard that is not
//! reached is not opened. What they all show is fixed when the iterator is made: it holds their views, and their
//! numbers were read under one cut.

use crate::api::snapshot::Snapshot;
use crate::scan::iterator::ShardIterator;
use crate::sharding::router::{Router, TreeView};
use crate::terms::Result;
use crate::terms::bounds::Bounds;
use crate::terms::routing::{KeyRange, Routing};
use crate::terms::time::Horizon;
use forebay_table::Direction;
use std::sync::Arc;

/// What an iterator shows. By default: all keys, as of now.
#[derive(Debug, Clone, Copy, Default)]
pub struct IterOptions<'a> {
    /// The first key, in the database's order.
    pub lower: Option<&'a [u8]>,
    /// The first key that is no longer shown, in the database's order.
    pub upper: Option<&'a [u8]>,
    /// Only keys that start with this.
    pub prefix: Option<&'a [u8]>,
    /// The moment to read at; `None` for now.
    pub snapshot: Option<&'a Snapshot>,
}

/// Iterates over the keys and values of a database in key order, forward and backward, as of one moment.
///
/// A new iterator has no position: seek first. Past either end it has no position again. It keeps the memory of
/// everything it iterates over.
pub struct DbIterator {
    /// The iterator of the current shard.
    current: Option<ShardIterator>,
    /// Its place in `shards`.
    at: usize,
    /// The shards within the bounds, in the order of their keys.
    shards: Vec<TreeView>,
    routing: Arc<Routing>,
    bounds: Arc<Bounds>,
    /// The time by which keys expire.
    time_ms: u64,
}

impl std::fmt::Debug for DbIterator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DbIterator").field("shards", &self.shards.len()).finish_non_exhaustive()
    }
}

impl DbIterator {
    pub(crate) fn new(router: &Arc<Router>, options: &IterOptions<'_>) -> Result<Self> {
        let moment = options.snapshot.map(|snapshot| snapshot.moment_of(router)).transpose()?;
        let keys = KeyRange { lower: options.lower, upper: options.upper };
        let bounds = Arc::new(Bounds::new(router.order(), keys, options.prefix));
        let (routing, shards, time_ms) = router.views(moment, |routing| bounds.shards(routing))?;
        Ok(Self { current: None, at: 0, shards, routing, bounds, time_ms })
    }

    /// Goes to the first key.
    ///
    /// # Errors
    /// `Unavailable` when a memory node is gone, `Corrupt` when a checksum does not match, `Closed` when the database was closed
    /// meanwhile.
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

    /// Whether the iterator is at a key.
    #[inline]
    #[must_use]
    pub fn valid(&self) -> bool {
        self.current.as_ref().is_some_and(ShardIterator::valid)
    }

    /// The current key; empty when there is no position.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], ShardIterator::key)
    }

    /// The current value; empty when there is no position.
    #[inline]
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], ShardIterator::value)
    }

    /// When the current key expires, in milliseconds since 1970; `None` if it does not, or when there is no position.
    #[must_use]
    pub fn expiry_ms(&self) -> Option<u64> {
        self.current.as_ref().and_then(ShardIterator::expiry_ms)
    }

    /// Goes to the next key. There is no position after the last key; without a position, nothing happens.
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

    /// Goes to the previous key. There is no position before the first key; without a position, nothing happens.
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

    /// The place in `shards` of the shard that owns `key`, or of the nearest one.
    fn nearest(&self, key: &[u8]) -> usize {
        let owner = self.routing.owner(key);
        let first = self.shards.first().map_or(0, |first| first.at);
        owner.saturating_sub(first).min(self.shards.len().saturating_sub(1))
    }

    /// Opens the iterator of a shard, unless it is open already.
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
        let TreeView { at, tree, view, number } = self.shards.get(at).ok_or_else(crate::Error::closed)?;
        let bounds = match self.routing.range(*at) {
            // A shard may hold keys that it no longer owns.
            Some(range) if !range.is_everything() => Arc::new(self.bounds.within(range)),
            _ => Arc::clone(&self.bounds),
        };
        let horizon = Horizon { number: *number, time_ms: self.time_ms };
        ShardIterator::new(Arc::clone(tree), Arc::clone(view), horizon, bounds)
    }

    /// At the end of a shard, moves to the next shard that has an entry.
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
