//! Versions, with open tables and segments.
//!
//! A [`Version`] is pure data. A [`LiveVersion`] adds the tables with their cached indexes and the
//! segments, by number. Dropping the last version that names a segment frees it.

use crate::remote::segment::Segment;
use crate::terms::planted::{Bug, planted};
use crate::terms::statistics::LevelStatistics;
use crate::terms::{Error, Options, Result};
use crate::tree::fences::{Fences, Tables};
use crate::tree::hidden::{HiddenTable, hidden};
use crate::tree::table::Table;
use forebay_base::{KeyOrder, SegmentId, SequenceNumber};
use forebay_env::HashMap;
use forebay_table::{ShardIdentity, TableId, Version, VersionEdit};
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(crate) struct LiveVersion {
    pub(crate) version: Version,
    /// Level 0 newest first, other levels in key order.
    levels: Vec<Vec<Arc<Table>>>,
    /// One for each level above 0.
    fences: Vec<Fences>,
    /// The tables of levels above 0, by number. A pick asks about each of them.
    numbered: HashMap<TableId, Arc<Table>>,
    segments: HashMap<SegmentId, Arc<Segment>>,
    has_range_deletions: bool,
    /// The tables that range deletions hide as a whole from readers of the present. They are found when the version is
    /// made: whoever asks holds locks that others wait for.
    hidden: Vec<HiddenTable>,
}

/// A version edit with the open tables and segments that it adds.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) edit: VersionEdit,
    pub(crate) tables: Vec<Arc<Table>>,
    pub(crate) segments: Vec<Arc<Segment>>,
}

impl LiveVersion {
    /// A version without tables.
    pub(crate) fn empty(options: &Options) -> Self {
        Self {
            version: Version::empty(identity(options, 0, 0)),
            levels: Vec::new(),
            fences: Vec::new(),
            numbered: HashMap::default(),
            segments: HashMap::default(),
            has_range_deletions: false,
            hidden: Vec::new(),
        }
    }

    /// A version that an earlier owner left, with its reopened tables.
    ///
    /// # Errors
    /// When a table or a segment is missing.
    pub(crate) fn restore(
        version: Version,
        tables: &[Arc<Table>],
        segments: &HashMap<SegmentId, Arc<Segment>>,
    ) -> Result<Self> {
        let tables = tables.iter().map(|table| (table.id(), table)).collect();
        let segments = segments.iter().map(|(id, segment)| (*id, segment)).collect();
        Self::hold(version, &tables, &segments)
    }

    /// The version after a change.
    ///
    /// # Errors
    /// When the edit does not fit the version, or names tables or segments that neither has.
    pub(crate) fn apply(&self, change: &mut Change) -> Result<Self> {
        self.version.remove_unreferenced(&mut change.edit).map_err(forebay_table::Error::from)?;
        let version = self.version.apply(&change.edit).map_err(forebay_table::Error::from)?;
        let tables: HashMap<TableId, &Arc<Table>> =
            self.levels.iter().flatten().chain(&change.tables).map(|table| (table.id(), table)).collect();
        let held = change.segments.iter().map(|segment| (segment.id(), segment));
        let held = self.segments.iter().map(|(id, segment)| (*id, segment)).chain(held).collect();
        Self::hold(version, &tables, &held)
    }

    fn hold(
        version: Version,
        tables: &HashMap<TableId, &Arc<Table>>,
        held: &HashMap<SegmentId, &Arc<Segment>>,
    ) -> Result<Self> {
        let levels: Vec<Vec<Arc<Table>>> = version
            .levels()
            .iter()
            .map(|level| {
                let find = |id| tables.get(&id).map(|&table| Arc::clone(table)).ok_or_else(|| missing("table", id));
                level.iter().map(|table| find(table.id)).collect::<Result<_>>()
            })
            .collect::<Result<_>>()?;
        let segments = version
            .segments()
            .keys()
            .map(|id| {
                let segment = held.get(id).ok_or_else(|| missing("segment", id))?;
                Ok((*id, Arc::clone(segment)))
            })
            .collect::<Result<_>>()?;
        let has_range_deletions = levels.iter().flatten().any(|table| !table.range_deletions().is_empty());
        let order = version.identity().key_order;
        let fences = levels.iter().skip(1).map(|tables| fences_of(order, tables)).collect();
        let numbered = levels.iter().skip(1).flatten().map(|table| (table.id(), Arc::clone(table))).collect();
        let deletions = || levels.iter().flatten().flat_map(|table| table.cached().range_deletions());
        let hidden = if has_range_deletions { hidden(&version, deletions()) } else { Vec::new() };
        Ok(Self { version, levels, fences, numbered, segments, has_range_deletions, hidden })
    }

    /// All segments.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.segments.values()
    }

    pub(crate) fn segment(&self, id: SegmentId) -> Option<&Arc<Segment>> {
        self.segments.get(&id)
    }

    pub(crate) fn level0_tables(&self) -> usize {
        self.levels.first().map_or(0, Vec::len)
    }

    /// The levels: level 0 newest first, the others in key order.
    pub(crate) fn levels(&self) -> &[Vec<Arc<Table>>] {
        &self.levels
    }

    /// Whether any table has range deletions.
    #[inline]
    pub(crate) fn has_range_deletions(&self) -> bool {
        self.has_range_deletions
    }

    /// The tables that range deletions hide as a whole, from everybody who reads, also at the `pinned` numbers, which
    /// ascend.
    pub(crate) fn hidden(&self, pinned: impl FnOnce() -> Vec<SequenceNumber>) -> Vec<&HiddenTable> {
        if self.hidden.is_empty() {
            return Vec::new();
        }
        let pinned = pinned();
        self.hidden.iter().filter(|hidden| planted(Bug::HideFromSnapshots) || !hidden.is_seen(&pinned)).collect()
    }

    /// The table of a level above 0 that may hold `user_key`.
    #[inline]
    pub(crate) fn find(&self, level: usize, user_key: &[u8]) -> Option<&Arc<Table>> {
        let tables = self.levels.get(level)?;
        tables.get(self.fences.get(level.checked_sub(1)?)?.find(tables, user_key)?)
    }

    /// Bytes of cached indexes.
    pub(crate) fn cached_index_bytes(&self) -> u64 {
        self.levels.iter().flatten().map(|table| table.cached_bytes()).sum()
    }

    /// Bytes of records that tables reference.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.levels.iter().flatten().map(|table| table.properties().record_bytes).sum()
    }

    /// About how many bytes of records in segments no table references. What the log needs is not dead, however little
    /// of it is in tables.
    pub(crate) fn dead_bytes(&self) -> u64 {
        let of_records = |segment: &Arc<Segment>| match segment.info().kind {
            forebay_table::SegmentKind::TableImage => 0,
            _ => segment.info().length,
        };
        let logged = self.version.log_parts().filter_map(|part| self.segments.get(&part.segment)).map(of_records);
        let all = self.segments.values().map(of_records).sum::<u64>();
        all.saturating_sub(logged.sum()).saturating_sub(self.live_bytes())
    }

    /// Bytes of all segments.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.allocated_bytes()).sum()
    }

    /// How often scans crossed the whole table.
    pub(crate) fn crossings(&self, id: TableId) -> u32 {
        self.numbered.get(&id).map_or(0, |table| table.crossings())
    }

    /// The shape of the tree.
    pub(crate) fn level_statistics(&self) -> Vec<LevelStatistics> {
        let of_level = |tables: &Vec<Arc<Table>>| {
            let mut level = LevelStatistics { tables: tables.len() as u64, ..LevelStatistics::default() };
            for table in tables {
                let properties = table.properties();
                level.bytes += properties.record_bytes;
                level.entries += properties.entries();
                level.runs += properties.segments.iter().filter(|used| used.is_run).count() as u64;
            }
            level
        };
        self.levels.iter().map(of_level).collect()
    }
}

impl Tables for Vec<Arc<Table>> {
    fn ends_behind(&self, at: usize, user_key: &[u8]) -> bool {
        self.get(at).is_some_and(|table| table.properties().ends_behind(user_key))
    }

    fn may_contain(&self, at: usize, user_key: &[u8]) -> bool {
        self.get(at).is_some_and(|table| table.properties().may_contain(user_key))
    }
}

fn fences_of(order: KeyOrder, tables: &[Arc<Table>]) -> Fences {
    let ends: Vec<_> = tables
        .iter()
        .map(|table| table.properties())
        .map(|of| [of.smallest.user_key.as_slice(), of.largest.user_key.as_slice()])
        .collect();
    Fences::of(order, &ends)
}

/// The shard and the store that a version belongs to.
pub(crate) fn identity(options: &Options, store: u128, shard: u64) -> ShardIdentity {
    ShardIdentity {
        store,
        shard,
        key_order: options.key_order,
        merge_operator: options.operator_name(),
        lower: None,
        upper: None,
    }
}

fn missing(what: &str, id: impl std::fmt::Debug) -> Error {
    Error::corrupt(format!("a version names {what} {id:?}, which is not open"))
}
