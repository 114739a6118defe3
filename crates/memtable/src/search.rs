//! Searching the skip list, the same for the live index and for an image that came from outside.
//!
//! A search never trusts a link: every offset is checked against the words there are, and the
//! number of steps is bounded by the number of nodes that fit, so a loop ends in an error.

use crate::error::IndexError;
use crate::height::{HEADER_WORDS, MAX_HEIGHT, NODE_WORDS};
use crate::index::Records;
use forebay_base::{InternalKey, KeyOrder};
use std::cmp::Ordering;

/// The head: a node of the largest height before all others. Never a target of a link, so a link
/// of zero is the end.
pub(crate) const HEAD: u32 = 0;
/// Says that there is no (further) node.
pub(crate) const END: u32 = 0;

/// Words of an index.
pub trait Words: Copy {
    /// The word at `at`: part of a node's header.
    fn word(&self, at: usize) -> Option<u32>;
    /// The word at `at`: a link.
    fn next(&self, at: usize) -> Option<u32>;
    /// Number of words.
    fn length(&self) -> usize;
    /// Number of levels in use, at most 13.
    fn height(&self) -> usize;
}

/// A key to compare nodes with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'k> {
    pub(crate) prefix: u64,
    pub(crate) key: InternalKey<'k>,
}

/// A skip list in words, over records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List<W, R> {
    pub(crate) words: W,
    pub(crate) records: R,
    pub(crate) order: KeyOrder,
}

/// Neighbours of a place in the list: `before`, and `after` or [`END`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) before: u32,
    pub(crate) after: u32,
}

impl<W: Words, R: Records> List<W, R> {
    pub(crate) fn target<'k>(&self, key: InternalKey<'k>) -> Target<'k> {
        Target { prefix: self.order.prefix(key.user_key), key }
    }

    /// Most nodes that a walk can meet without meeting one twice.
    pub(crate) fn most_steps(&self) -> usize {
        self.words.length() / NODE_WORDS + MAX_HEIGHT
    }

    #[inline]
    pub(crate) fn next(&self, node: u32, level: usize) -> Result<u32, IndexError> {
        self.words.next(node as usize + HEADER_WORDS + level).ok_or(IndexError::BadLink { node, level })
    }

    /// Offset of the node's record, divided by 8.
    #[inline]
    pub(crate) fn record(&self, node: u32) -> Result<u32, IndexError> {
        self.words.word(node as usize + 2).ok_or(IndexError::BadLink { node, level: 0 })
    }

    #[inline]
    fn prefix(&self, node: u32) -> Result<u64, IndexError> {
        let at = node as usize;
        match (self.words.word(at), self.words.word(at + 1)) {
            (Some(high), Some(low)) => Ok(u64::from(high) << 32 | u64::from(low)),
            _ => Err(IndexError::BadLink { node, level: 0 }),
        }
    }

    /// How `node` compares with `target`: by the prefix if that decides, else by the record.
    #[inline]
    pub(crate) fn compare(&self, node: u32, target: &Target<'_>) -> Result<Ordering, IndexError> {
        match self.prefix(node)?.cmp(&target.prefix) {
            Ordering::Equal => {
                let key = self.records.key_at(self.record(node)?)?;
                Ok(self.order.compare_internal(key, target.key))
            }
            decided => Ok(decided),
        }
    }

    /// Walks from the head down, from level `top - 1`, to the place behind the last node for which
    /// `is_before` holds (it must hold for a prefix of the list), and hands the place on each level
    /// to `visit`.
    #[inline]
    pub(crate) fn descend(
        &self,
        top: usize,
        mut is_before: impl FnMut(u32) -> Result<bool, IndexError>,
        mut visit: impl FnMut(usize, Place),
    ) -> Result<Place, IndexError> {
        let mut steps = self.most_steps();
        let mut before = HEAD;
        let mut after = END;
        for level in (0..top).rev() {
            // The node found not before on the level above need not be compared again.
            let known = after;
            after = self.next(before, level)?;
            while after != END && after != known && is_before(after)? {
                steps = steps.checked_sub(1).ok_or(IndexError::Loop)?;
                before = after;
                after = self.next(before, level)?;
            }
            visit(level, Place { before, after });
        }
        Ok(Place { before, after })
    }

    /// First node whose key is not before `key`.
    #[inline]
    pub(crate) fn seek(&self, key: InternalKey<'_>) -> Result<u32, IndexError> {
        let target = self.target(key);
        let is_before = |node| Ok(self.compare(node, &target)? == Ordering::Less);
        Ok(self.descend(self.words.height(), is_before, |_, _| ())?.after)
    }

    /// Last node whose key is before `key`, or not after it if `or_equal`; the head if none.
    pub(crate) fn seek_back(&self, key: InternalKey<'_>, or_equal: bool) -> Result<u32, IndexError> {
        let target = self.target(key);
        let is_before = |node| {
            let found = self.compare(node, &target)?;
            Ok(found == Ordering::Less || or_equal && found == Ordering::Equal)
        };
        Ok(self.descend(self.words.height(), is_before, |_, _| ())?.before)
    }

    /// Last node; the head if none.
    pub(crate) fn last(&self) -> Result<u32, IndexError> {
        Ok(self.descend(self.words.height(), |_| Ok(true), |_, _| ())?.before)
    }
}
