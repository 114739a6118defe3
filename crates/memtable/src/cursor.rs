//! Walking over an index in both directions.
//!
//! Forward steps follow level 0; backward steps search again, O(log n), since nodes have no links
//! back. No step allocates. A cursor over a live index sees what was inserted when it steps there.

use crate::error::IndexError;
use crate::index::Records;
use crate::search::{END, HEAD, List, Words};
use forebay_base::InternalKey;

/// A place in an index, or nowhere.
#[derive(Debug, Clone)]
pub struct Cursor<W, R> {
    list: List<W, R>,
    /// [`END`] when nowhere.
    node: u32,
    /// Steps forward that can still meet new nodes; more would be a loop.
    steps_left: usize,
}

impl<W: Words, R: Records> Cursor<W, R> {
    pub(crate) const fn new(list: List<W, R>) -> Self {
        Self { list, node: END, steps_left: 0 }
    }

    fn place(&mut self, node: Result<u32, IndexError>) -> Result<(), IndexError> {
        self.node = END;
        self.node = node?;
        self.steps_left = self.list.most_steps();
        Ok(())
    }

    /// Goes to the first record.
    ///
    /// # Errors
    /// [`IndexError`] on a damaged index, as for all moves; the cursor is nowhere then.
    pub fn seek_to_first(&mut self) -> Result<(), IndexError> {
        self.place(self.list.next(HEAD, 0))
    }

    /// Goes to the last record.
    ///
    /// # Errors
    /// [`IndexError`].
    pub fn seek_to_last(&mut self) -> Result<(), IndexError> {
        self.place(self.list.last())
    }

    /// Goes to the first record whose key is not before `key`.
    ///
    /// # Errors
    /// [`IndexError`].
    pub fn seek(&mut self, key: InternalKey<'_>) -> Result<(), IndexError> {
        self.place(self.list.seek(key))
    }

    /// Goes to the last record whose key is not after `key`.
    ///
    /// # Errors
    /// [`IndexError`].
    pub fn seek_for_prev(&mut self, key: InternalKey<'_>) -> Result<(), IndexError> {
        self.place(self.list.seek_back(key, true))
    }

    /// Goes one record forward; nowhere after the last, and from nowhere.
    ///
    /// # Errors
    /// [`IndexError`].
    #[inline]
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<(), IndexError> {
        let node = std::mem::replace(&mut self.node, END);
        if node == END {
            return Ok(());
        }
        self.steps_left = self.steps_left.checked_sub(1).ok_or(IndexError::Loop)?;
        self.node = self.list.next(node, 0)?;
        Ok(())
    }

    /// Goes one record back; nowhere before the first, and from nowhere.
    ///
    /// # Errors
    /// [`IndexError`].
    pub fn prev(&mut self) -> Result<(), IndexError> {
        let node = std::mem::replace(&mut self.node, END);
        if node == END {
            return Ok(());
        }
        let list = self.list;
        let record = list.record(node)?;
        let key = list.records.key_at(record)?;
        self.place(list.seek_back(key, false))
    }

    /// Offset, divided by 8, of the record here; `None` when nowhere.
    ///
    /// # Errors
    /// [`IndexError`].
    #[inline]
    pub fn record(&self) -> Result<Option<u32>, IndexError> {
        if self.node == END { Ok(None) } else { self.list.record(self.node).map(Some) }
    }
}
