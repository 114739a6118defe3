//! The ordered index of a memtable: a lock-free skip list from internal keys to records.
//!
//! Nodes live in an array of 32-bit words and link to each other by word offset. Nodes are only
//! ever added. A node at word `n`:
//!
//! ```text
//!  word      holds
//!  n         upper half of the key's prefix (`KeyOrder::prefix`)
//!  n + 1     lower half
//!  n + 2     offset of the record in the block, divided by 8
//!  n + 3     next node on level 0, 0 at the end
//!  n + 3 + l next node on level l, for l below the node's height
//!  …         up to a multiple of 4 words
//! ```
//!
//! The head is at word 0, with 13 levels and no key. The prefix decides most comparisons without a
//! look at the record, that is without a cache miss.
//!
//! # States of a node
//!
//! | state | words of the node | who writes | becomes the next by |
//! |---|---|---|---|
//! | allocated | private to the inserting thread | inserter, relaxed | compare-and-swap (release) of the level-0 link before it |
//! | linked on levels 0 … l | header immutable; links up to l shared | inserters, by compare-and-swap | compare-and-swap (release) of the level-l+1 link before it |
//! | linked on all levels | as above | inserters, by compare-and-swap | – |
//!
//! # Invariants
//!
//! 1. Level 0 holds every linked node in order; level l + 1 a subset of level l.
//! 2. Whoever reaches a node through a link (acquire) sees its header, its record, and its own
//!    links (written before the release that made it reachable). Links from other levels release
//!    too, since a search may come from above.
//! 3. A link, once it leads to a node after some key, leads to a node before that key only if that
//!    node was inserted in between: compare-and-swap notices, and the inserter walks on from the
//!    node it knows to be before.
//! 4. No two nodes have the same internal key (sequence numbers are unique).

use crate::arena::Arena;
use crate::error::IndexError;
use crate::height::MAX_HEIGHT;
use crate::planted::{Bug, planted};
use crate::search::{END, HEAD, List, Place};
use forebay_base::{InternalKey, KeyOrder};
use forebay_env::sync::atomic::Ordering::{Relaxed, Release};
use std::cmp::Ordering;

pub use crate::cursor::Cursor;
pub use crate::search::Words;

/// Where an index finds the keys of its records.
pub trait Records: Copy {
    /// The key of the record at `record` times 8 bytes.
    ///
    /// # Errors
    /// [`IndexError::BadRecord`].
    fn key_at(&self, record: u32) -> Result<InternalKey<'_>, IndexError>;
}

/// See the module.
#[derive(Debug)]
pub struct Index {
    arena: Arena,
    order: KeyOrder,
}

impl Index {
    /// An empty index with room for `words` words, the head's 16 included.
    #[must_use]
    pub fn new(order: KeyOrder, words: usize) -> Self {
        Self { arena: Arena::new(words), order }
    }

    /// Order of the keys.
    #[must_use]
    pub const fn order(&self) -> KeyOrder {
        self.order
    }

    /// Bytes that the nodes take.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.arena.used() * size_of::<u32>()
    }

    /// Links a node of `height` levels (1 to 13) for the record at `record` times 8 bytes, whose
    /// internal key is `key`. The record's bytes must be written.
    ///
    /// # Errors
    /// [`IndexError::Full`]; the others only if memory was overwritten.
    #[inline]
    pub fn insert<R: Records>(
        &self,
        records: R,
        key: InternalKey<'_>,
        record: u32,
        height: usize,
    ) -> Result<(), IndexError> {
        let list = self.list(records);
        let height = height.clamp(1, MAX_HEIGHT);
        let target = list.target(key);
        let node = self.arena.allocate(height)?;
        let header = [(target.prefix >> 32) as u32, target.prefix as u32, record];
        for (i, value) in header.into_iter().enumerate() {
            if let Some(word) = self.arena.get(node as usize + i) {
                word.store(value, Relaxed);
            }
        }
        self.arena.raise(height);
        let mut places = [Place { before: HEAD, after: END }; MAX_HEIGHT];
        let is_before = |other| Ok(list.compare(other, &target)? == Ordering::Less);
        list.descend(list.words.height().max(height), is_before, |level, place| {
            if let Some(slot) = places.get_mut(level) {
                *slot = place;
            }
        })?;
        for (level, place) in places.iter().enumerate().take(height) {
            self.link(&list, node, level, *place, is_before)?;
        }
        Ok(())
    }

    /// Links `node` on `level` at `place`, or further on if nodes came in between.
    #[inline]
    fn link<R: Records>(
        &self,
        list: &List<&Arena, R>,
        node: u32,
        level: usize,
        mut place: Place,
        is_before: impl Fn(u32) -> Result<bool, IndexError>,
    ) -> Result<(), IndexError> {
        // Release: whoever acquires the link sees the node (`Words::next` of the arena).
        let release = if planted(Bug::RelaxedLink) { Relaxed } else { Release };
        let own = self.arena.link(node, level)?;
        loop {
            own.store(place.after, Relaxed);
            let link = self.arena.link(place.before, level)?;
            // A failure decides nothing by itself; the loads below acquire.
            if link.compare_exchange(place.after, node, release, Relaxed).is_ok() {
                return Ok(());
            }
            place.after = list.next(place.before, level)?;
            while place.after != END && !planted(Bug::StaleSplice) && is_before(place.after)? {
                place.before = place.after;
                place.after = list.next(place.before, level)?;
            }
        }
    }

    /// Offset, divided by 8, of the first record whose key is not before `key`.
    ///
    /// # Errors
    /// Only if memory was overwritten.
    #[inline]
    pub fn seek<R: Records>(&self, records: R, key: InternalKey<'_>) -> Result<Option<u32>, IndexError> {
        let list = self.list(records);
        match list.seek(key)? {
            END => Ok(None),
            node => list.record(node).map(Some),
        }
    }

    /// A cursor, nowhere at first.
    #[must_use]
    pub fn cursor<R: Records>(&self, records: R) -> Cursor<impl Words + '_, R> {
        Cursor::new(self.list(records))
    }

    pub(crate) const fn arena(&self) -> &Arena {
        &self.arena
    }

    pub(crate) const fn list<R: Records>(&self, records: R) -> List<&Arena, R> {
        List { words: &self.arena, records, order: self.order }
    }
}
