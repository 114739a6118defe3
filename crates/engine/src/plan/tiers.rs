//! Which levels are in storage, and what leaves memory for that.
//!
//! From one level on, all tables are in storage: their records and their images. A compaction into such a level leaves
//! nothing of its tables in memory. It *vacates* their segments there, so their records are gathered into a run in key
//! order. What is in storage already stays, as residents of the last level do. A table cannot be moved into such a
//! level as it is, unless all that it names is in storage.
//!
//! The first such level may change from one opening of the database to the next. A table of a level in storage that has
//! something in memory is *misplaced*, and rewritten where it is. A table in storage that belongs to a level in memory
//! stays until it is compacted.
//!
//! When memory gets short, the coldest level that has something in memory also goes to storage, table by table, with
//! what comes to it meanwhile. This takes no memory. Once there is room again, compactions bring back what they work
//! on.

use forebay_base::SegmentId;
use forebay_table::{Placement, TableMetadata, Version};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Where the outputs of a compaction go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Tier {
    /// To remote memory.
    #[default]
    Memory,
    /// To storage, as objects.
    Storage,
}

/// The tier of each level.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tiers {
    /// The first level in storage.
    storage_from: Option<usize>,
}

impl Tiers {
    /// Levels from this one on are in storage.
    pub(crate) const fn new(storage_from: Option<usize>) -> Self {
        Self { storage_from }
    }

    /// The same, with the deepest level that has something in memory also in storage; level 0 never is. For when memory
    /// gets full.
    pub(crate) fn lowered(self, version: &Version) -> Self {
        let has_memory = |tables: &Vec<Arc<TableMetadata>>| tables.iter().any(|table| !is_stored(version, table));
        let coldest = version.levels().iter().rposition(has_memory).unwrap_or(0).max(1);
        Self { storage_from: Some(self.storage_from.map_or(coldest, |first| first.min(coldest))) }
    }

    pub(crate) fn of(self, level: usize) -> Tier {
        match self.storage_from {
            Some(first) if level >= first => Tier::Storage,
            _ => Tier::Memory,
        }
    }

    /// The levels in storage, out of `levels`.
    pub(crate) fn in_storage(self, levels: usize) -> std::ops::Range<usize> {
        self.storage_from.unwrap_or(levels).min(levels)..levels
    }
}

/// Whether a segment is in memory.
pub(crate) fn is_in_memory(version: &Version, segment: SegmentId) -> bool {
    let info = version.segment(segment);
    info.is_some_and(|info| info.placements.iter().any(|place| matches!(place, Placement::Memory { .. })))
}

/// The segments of a table's records that are in memory.
pub(crate) fn records_in_memory(version: &Version, table: &TableMetadata) -> BTreeSet<SegmentId> {
    let named = table.properties.segments.iter().map(|used| used.id);
    named.filter(|id| is_in_memory(version, *id)).collect()
}

/// Whether nothing that a table names is in memory.
pub(crate) fn is_stored(version: &Version, table: &TableMetadata) -> bool {
    !table.segments().any(|id| is_in_memory(version, id))
}
