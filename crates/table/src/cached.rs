//! The part of a table that a compute node keeps.

use crate::entry::RangeTombstone;
use crate::error::{Error, Result};
use crate::image::{TailLayout, decode_tombstones};
use crate::point_index::PointIndex;
use crate::properties::TableProperties;
use crate::sparse_index::SparseIndex;
use std::sync::Arc;

/// A verified tail of a table: everything that a read needs except index blocks and records.
#[derive(Debug, Clone)]
pub struct CachedTable {
    properties: Arc<TableProperties>,
    sparse_index: SparseIndex,
    /// `None` once it is held elsewhere.
    point_index: Option<PointIndex>,
    range_deletions: Vec<RangeTombstone>,
}

impl CachedTable {
    /// Verifies a tail (see [`crate::image`]).
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Inconsistent`] or [`Error::Unknown`].
    pub fn parse(tail: &[u8]) -> Result<Self> {
        let layout = TailLayout::parse(tail)?;
        let section = |range: &std::ops::Range<usize>| tail.get(range.clone()).unwrap_or_default();
        let properties = TableProperties::decode(section(&layout.properties))?;
        let sparse_index = SparseIndex::parse(section(&layout.sparse_index).into())?;
        let point_index = PointIndex::parse(section(&layout.point_index))?;
        let range_deletions = match &layout.range_deletions {
            Some(range) => decode_tombstones(section(range))?,
            None => Vec::new(),
        };
        let inconsistent = |detail| Err(Error::Inconsistent { what: "a table", detail });
        if sparse_index.blocks_bytes() != layout.blocks_bytes {
            return inconsistent("its index blocks have another length than its sparse index says");
        }
        if u64::from(point_index.entry_count()) != properties.entries() {
            return inconsistent("its point index has another number of entries than its properties say");
        }
        if range_deletions.len() as u64 != properties.range_deletions {
            return inconsistent("it has another number of range deletions than its properties say");
        }
        let point_index = Some(point_index);
        Ok(Self { properties: Arc::new(properties), sparse_index, point_index, range_deletions })
    }

    /// The table's properties.
    #[must_use]
    pub const fn properties(&self) -> &Arc<TableProperties> {
        &self.properties
    }

    /// The sparse index, for scans.
    #[must_use]
    pub const fn sparse_index(&self) -> &SparseIndex {
        &self.sparse_index
    }

    /// The point index, unless it was taken out.
    #[inline]
    #[must_use]
    pub const fn point_index(&self) -> Option<&PointIndex> {
        self.point_index.as_ref()
    }

    /// Takes the point index out, for a holder that keeps it only while it is used.
    pub const fn take_point_index(&mut self) -> Option<PointIndex> {
        self.point_index.take()
    }

    /// The range deletions.
    #[must_use]
    pub fn range_deletions(&self) -> &[RangeTombstone] {
        &self.range_deletions
    }

    /// Bytes that the cached indexes take in memory.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.sparse_index.size_bytes() + self.point_index.as_ref().map_or(0, PointIndex::size_bytes)
    }
}
