//! What to compact next: a pure function of a version.
//!
//! Leveled compaction. Level 0 is compacted when it has too many tables; a further level, when its
//! record bytes exceed its target, which grows by a factor from level to level. Beside that, when
//! segments hold too many dead bytes, the table that pins the deadest segment goes down a level:
//! memtable segments die whole once all of their records that live have been gathered below.
//!
//! Tables with range deletions go down too, once nothing else is due.
//!
//! | output level | records |
//! |---|---|
//! | something below it overlaps | stay where they are: only indexes are merged |
//! | the last one for the range | are gathered into key order, so that scans stream |

use crate::Options;
use crate::shard::ManualCompaction;
use forebay_base::KeyOrder;
use forebay_table::job::{Clustering, Residents};
use forebay_table::{SegmentKind, TableMetadata, Version};
use std::collections::HashMap;
use std::sync::Arc;

/// Dead bytes may be this part of the live ones, as `live / DEAD_SHARE`.
const DEAD_SHARE: u64 = 4;
/// The same when the memory node is full: collecting less would free too little for its work.
const FULL_DEAD_SHARE: u64 = 16;

/// A compaction to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pick {
    /// Tables with their levels, newest first.
    pub(crate) inputs: Vec<(u8, Arc<TableMetadata>)>,
    pub(crate) output_level: u8,
    pub(crate) work: Work,
}

/// How a compaction is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// The tables change their level as they stand.
    Move,
    /// The tables are merged.
    Merge { is_bottommost: bool, clustering: Clustering },
}

/// Where each level's compactions go on: behind the last table that was compacted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cursors(Vec<Vec<u8>>);

impl Cursors {
    fn get(&self, level: usize) -> &[u8] {
        self.0.get(level).map_or(&[], Vec::as_slice)
    }

    fn set(&mut self, level: usize, key: &[u8]) {
        while self.0.len() <= level {
            self.0.push(Vec::new());
        }
        if let Some(cursor) = self.0.get_mut(level) {
            key.clone_into(cursor);
        }
    }
}

/// Record bytes at which `level`, from 1 on, is compacted.
fn target_bytes(options: &Options, level: usize) -> u64 {
    let factor =
        options.level_size_multiplier.saturating_pow(u32::try_from(level).unwrap_or(u32::MAX).saturating_sub(1));
    options.level1_bytes.saturating_mul(factor)
}

fn level_bytes(version: &Version, level: usize) -> u64 {
    version.level(level).iter().map(|table| table.properties.record_bytes).sum()
}

/// The most urgent compaction, if any is due. When the memory node is full, what may free memory is
/// due earlier.
pub(crate) fn pick(version: &Version, options: &Options, cursors: &mut Cursors, is_full: bool) -> Option<Pick> {
    let last = options.levels - 1;
    let level0 = version.level(0).len() as f64 / options.level0_compaction_trigger as f64;
    let scored =
        (1..last).map(|level| (level, level_bytes(version, level) as f64 / target_bytes(options, level) as f64));
    let (level, score) = std::iter::once((0, level0)).chain(scored).max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    if score >= 1.0 || is_full && level == 0 && score > 0.0 {
        if level == 0 {
            return Some(build(version, options, 0, version.level(0).to_vec()));
        }
        let table = after_cursor(version, level, cursors.get(level))?;
        cursors.set(level, &table.properties.largest.user_key);
        return Some(build(version, options, level, vec![table]));
    }
    pick_range_deletions(version, options).or_else(|| pick_garbage(version, options, is_full))
}

/// A table with range deletions over something further down: what they hide is freed when they get
/// there. Each gets a level further down, so this ends.
fn pick_range_deletions(version: &Version, options: &Options) -> Option<Pick> {
    let order = version.identity().key_order;
    let is_above_some = |level: usize, table: &&Arc<TableMetadata>| {
        let hidden = range(order, std::iter::once(*table));
        let mut deeper = level + 1..version.levels().len();
        table.properties.range_deletions > 0 && deeper.any(|level| !overlapping(version, level, &hidden).is_empty())
    };
    (1..version.levels().len()).find_map(|level| {
        let table = version.level(level).iter().find(|table| is_above_some(level, table))?;
        Some(build(version, options, level, vec![Arc::clone(table)]))
    })
}

/// The part of a manual compaction that is next; `None` when it is done.
pub(crate) fn pick_manual(version: &Version, options: &Options, manual: &mut ManualCompaction) -> Option<Pick> {
    let deepest = (0..version.levels().len()).rev().find(|&level| !version.level(level).is_empty())?.max(1);
    while manual.level < deepest.min(options.levels - 1) {
        let level = manual.level;
        let tables: Vec<_> = if level == 0 && overlaps(version, 0, manual) {
            // Tables of level 0 overlap: an older one must not stay above a newer one.
            version.level(0).to_vec()
        } else {
            version.level(level).iter().filter(|table| in_range(table, manual)).cloned().collect()
        };
        manual.level += 1;
        if !tables.is_empty() {
            return Some(build(version, options, level, tables));
        }
    }
    None
}

fn in_range(table: &TableMetadata, manual: &ManualCompaction) -> bool {
    table.properties.overlaps(manual.lower.as_deref(), manual.upper.as_deref())
}

fn overlaps(version: &Version, level: usize, manual: &ManualCompaction) -> bool {
    version.level(level).iter().any(|table| in_range(table, manual))
}

/// The first table of a level behind `cursor`, or the level's first.
fn after_cursor(version: &Version, level: usize, cursor: &[u8]) -> Option<Arc<TableMetadata>> {
    let order = version.identity().key_order;
    let tables = version.level(level);
    let behind = tables.iter().find(|table| order.compare(&table.properties.smallest.user_key, cursor).is_gt());
    behind.or_else(|| tables.first()).cloned()
}

/// When dead bytes exceed their share: the tables, in the highest level that has any above its last,
/// that name the segment with the most dead bytes.
fn pick_garbage(version: &Version, options: &Options, is_full: bool) -> Option<Pick> {
    let mut live: HashMap<_, u64> = HashMap::new();
    for used in version.levels().iter().flatten().flat_map(|table| &table.properties.segments) {
        *live.entry(used.id).or_default() += used.live_bytes;
    }
    let records = version.segments().iter().filter(|(_, segment)| segment.info.kind != SegmentKind::TableImage);
    let dead =
        records.map(|(id, segment)| (*id, segment.info.length.saturating_sub(live.get(id).copied().unwrap_or(0))));
    let dead: Vec<_> = dead.collect();
    let live_bytes: u64 = live.values().sum();
    let dead_bytes: u64 = dead.iter().map(|(_, bytes)| bytes).sum();
    let allowed = match is_full {
        true => live_bytes / FULL_DEAD_SHARE,
        false => live_bytes / DEAD_SHARE + 4 * options.write_buffer_bytes as u64,
    };
    if dead_bytes <= allowed {
        return None;
    }
    let (deadest, _) = dead.into_iter().max_by_key(|(_, bytes)| *bytes)?;
    let names = |table: &&Arc<TableMetadata>| table.properties.segments.iter().any(|used| used.id == deadest);
    let level = (0..version.levels().len()).find(|&level| version.level(level).iter().any(|table| names(&table)))?;
    let deepest = (0..version.levels().len()).rev().find(|&level| !version.level(level).is_empty())?;
    let tables = match level {
        0 => version.level(0).to_vec(),
        _ => version.level(level).iter().filter(names).take(1).cloned().collect(),
    };
    if level > 0 && level == deepest {
        return Some(rewrite(level, tables));
    }
    Some(build(version, options, level, tables))
}

/// A compaction of tables of the last level into itself: drops what is dead in their segments.
fn rewrite(level: usize, tables: Vec<Arc<TableMetadata>>) -> Pick {
    let level = level as u8;
    Pick {
        inputs: tables.into_iter().map(|table| (level, table)).collect(),
        output_level: level,
        work: Work::Merge { is_bottommost: true, clustering: Clustering::Gather(Residents::Rewrite) },
    }
}

/// A compaction of `tables` of `level` with what they overlap one level down.
fn build(version: &Version, options: &Options, level: usize, tables: Vec<Arc<TableMetadata>>) -> Pick {
    let order = version.identity().key_order;
    let output = (level + 1).min(options.levels - 1);
    let below = overlapping(version, output, &range(order, tables.iter()));
    // The tables below reach beyond those above, and so may their deletions hide what lies deeper.
    let whole = range(order, tables.iter().chain(&below));
    let is_bottommost =
        (output + 1..version.levels().len()).all(|level| overlapping(version, level, &whole).is_empty());
    let is_clustered = tables.iter().all(|table| table.properties.segments.iter().all(|used| used.is_run));
    // At the bottom range deletions have done their work: a merge drops them.
    let is_done = is_clustered && tables.iter().all(|table| table.properties.range_deletions == 0);
    let can_move = level > 0 && below.is_empty() && (is_done || !is_bottommost);
    let work = if can_move {
        Work::Move
    } else {
        let clustering = if is_bottommost { Clustering::Gather(Residents::Rewrite) } else { Clustering::None };
        Work::Merge { is_bottommost, clustering }
    };
    let with_level = |level: usize| move |table| (level as u8, table);
    let inputs = tables.into_iter().map(with_level(level)).chain(below.into_iter().map(with_level(output))).collect();
    Pick { inputs, output_level: output as u8, work }
}

/// The smallest and the largest user key of tables.
fn range<'t>(order: KeyOrder, tables: impl Iterator<Item = &'t Arc<TableMetadata>>) -> Option<(&'t [u8], &'t [u8])> {
    let bounds = |table: &'t Arc<TableMetadata>| {
        (&table.properties.smallest.user_key[..], &table.properties.largest.user_key[..])
    };
    tables.map(bounds).reduce(|(smallest, largest), (first, last)| {
        let smallest = if order.compare(first, smallest).is_lt() { first } else { smallest };
        (smallest, if order.compare(last, largest).is_gt() { last } else { largest })
    })
}

/// The tables of a level that share keys with a range.
fn overlapping(version: &Version, level: usize, range: &Option<(&[u8], &[u8])>) -> Vec<Arc<TableMetadata>> {
    let order = version.identity().key_order;
    let Some((smallest, largest)) = *range else { return Vec::new() };
    let shares = |table: &&Arc<TableMetadata>| {
        order.compare(&table.properties.smallest.user_key, largest).is_le()
            && order.compare(&table.properties.largest.user_key, smallest).is_ge()
    };
    version.level(level).iter().filter(shares).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::{SegmentId, SequenceNumber, Tag};
    use forebay_table::{
        Creation, ImageAddress, OwnedKey, Placement, SegmentInfo, SegmentUse, ShardIdentity, TableId, TableProperties,
        VersionEdit,
    };

    fn options() -> Options {
        Options {
            write_buffer_bytes: 4096,
            level0_compaction_trigger: 2,
            level0_slowdown_trigger: 4,
            level0_stop_trigger: 8,
            level1_bytes: 1000,
            level_size_multiplier: 10,
            levels: 4,
            ..Options::default()
        }
    }

    #[test]
    fn range_deletions_go_down_until_nothing_lies_under_them() {
        let tables = [(1, 1, "a", "f", 10, true), (2, 2, "c", "d", 10, true), (3, 3, "a", "b", 10, true)];
        let deleting = |version: Version, id: u64| {
            let mut edit = VersionEdit::default();
            let (level, table) = version
                .levels()
                .iter()
                .zip(0u8..)
                .find_map(|(tables, level)| Some((level, tables.iter().find(|table| table.id.0 == id)?)))
                .unwrap();
            let mut table = table.as_ref().clone();
            edit.removed_tables.push((level, table.id));
            let mut properties = table.properties.as_ref().clone();
            properties.range_deletions = 1;
            table.id = TableId(id + 50);
            table.properties = properties.into();
            edit.added_tables.push((level, table));
            version.apply(&edit).unwrap()
        };
        let found = |id| pick(&deleting(version(&tables, 10), id), &options(), &mut Cursors::default(), false);
        assert_eq!(ids(&found(1).unwrap()), [(1, 51), (2, 2)]);
        assert_eq!(found(2), None);
        assert_eq!(found(3), None);
    }

    /// A version of tables given as (level, id, smallest, largest, live bytes, is a run). Each has a
    /// segment of its own, of `segment_bytes`.
    fn version(tables: &[(u8, u64, &str, &str, u64, bool)], segment_bytes: u64) -> Version {
        let identity = ShardIdentity {
            store: 1,
            shard: 0,
            key_order: KeyOrder::Bytewise,
            merge_operator: String::new(),
            lower: None,
            upper: None,
        };
        let mut edit = VersionEdit {
            next_table: Some(100),
            next_segment: Some(200),
            next_job: Some(100),
            last_sequence: Some(SequenceNumber(100)),
            ..VersionEdit::default()
        };
        let placement = || vec![Placement::Memory { node: 1, incarnation: 1, extent: 0, offset: 0 }];
        for &(level, id, smallest, largest, live_bytes, is_run) in tables {
            let (records, image) = (SegmentId(id * 2), SegmentId(id * 2 + 1));
            let kind = if is_run { SegmentKind::Run } else { SegmentKind::MemtableBlock };
            edit.added_segments.push((records, SegmentInfo::new(kind, segment_bytes, placement())));
            edit.added_segments.push((image, SegmentInfo::new(SegmentKind::TableImage, 100, placement())));
            let bound = |key: &str| OwnedKey { user_key: key.into(), tag: Tag::seek(SequenceNumber(1)) };
            let mut used = SegmentUse::new(records, is_run);
            used.live_bytes = live_bytes;
            used.entries = 1;
            let properties = TableProperties {
                key_order: KeyOrder::Bytewise,
                creation: Creation { job: id, attempt: 1, level },
                smallest: bound(smallest),
                largest: bound(largest),
                smallest_sequence: SequenceNumber(id),
                largest_sequence: SequenceNumber(id),
                deletions: 0,
                puts: 1,
                range_deletions: 0,
                merges: 0,
                key_bytes: 1,
                value_bytes: 1,
                record_bytes: live_bytes,
                oldest_expiry_ms: None,
                segments: vec![used],
            };
            let image = ImageAddress { segment: image, length: 100, tail_offset: 10 };
            let table = TableMetadata { id: TableId(id), image, properties: properties.into() };
            edit.added_tables.push((level, table));
        }
        Version::empty(identity).apply(&edit).unwrap()
    }

    fn ids(pick: &Pick) -> Vec<(u8, u64)> {
        pick.inputs.iter().map(|(level, table)| (*level, table.id.0)).collect()
    }

    const GATHER: Clustering = Clustering::Gather(Residents::Rewrite);

    #[test]
    fn a_quiet_tree_needs_nothing() {
        let version = version(&[(0, 3, "a", "z", 100, false), (1, 2, "a", "z", 900, true)], 1000);
        assert_eq!(pick(&version, &options(), &mut Cursors::default(), false), None);
    }

    #[test]
    fn level_0_goes_down_with_what_it_overlaps() {
        let tables = [
            (0, 5, "c", "e", 10, false),
            (0, 4, "d", "f", 10, false),
            (1, 1, "a", "b", 10, true),
            (1, 2, "e", "g", 10, true),
        ];
        let found = pick(&version(&tables, 10), &options(), &mut Cursors::default(), false).unwrap();
        assert_eq!(ids(&found), [(0, 5), (0, 4), (1, 2)]);
        assert_eq!(found.work, Work::Merge { is_bottommost: true, clustering: GATHER });
        // Below level 1, beyond the tables of level 0, but under what they overlap there.
        let deeper = [&tables[..], &[(2, 9, "g", "z", 10, true)]].concat();
        let found = pick(&version(&deeper, 10), &options(), &mut Cursors::default(), false).unwrap();
        assert_eq!(found.work, Work::Merge { is_bottommost: false, clustering: Clustering::None });
    }

    #[test]
    fn a_large_level_goes_down_table_by_table() {
        let tables = [
            (1, 1, "a", "b", 700, true),
            (1, 2, "c", "d", 700, true),
            (1, 3, "e", "f", 700, false),
            (2, 4, "c", "c", 10, true),
        ];
        let version = version(&tables, 700);
        let (options, mut cursors) = (options(), Cursors::default());
        let mut next = || pick(&version, &options, &mut cursors, false).unwrap();
        let first = next();
        assert_eq!((ids(&first), first.work), (vec![(1, 1)], Work::Move));
        let second = next();
        assert_eq!(ids(&second), [(1, 2), (2, 4)]);
        let third = next();
        assert_eq!((ids(&third), third.work), (vec![(1, 3)], Work::Merge { is_bottommost: true, clustering: GATHER }));
        assert_eq!(ids(&next()), [(1, 1)]);
    }

    #[test]
    fn dead_bytes_are_collected() {
        let tables = [(1, 1, "a", "b", 10, false), (2, 2, "c", "d", 10, true)];
        assert_eq!(pick(&version(&tables, 8000), &options(), &mut Cursors::default(), false), None);
        let found = pick(&version(&tables, 10_000), &options(), &mut Cursors::default(), false).unwrap();
        assert_eq!(found.output_level, 2);
        let found = pick(&version(&tables[1..], 20_000), &options(), &mut Cursors::default(), false).unwrap();
        assert_eq!((ids(&found), found.output_level), (vec![(2, 2)], 2));
        assert!(pick(&version(&tables[1..], 20), &options(), &mut Cursors::default(), true).is_some());
    }

    #[test]
    fn a_manual_compaction_ends_at_the_last_level() {
        let tables = [(0, 3, "a", "c", 10, false), (1, 2, "b", "d", 10, false), (2, 1, "a", "z", 10, true)];
        let version = version(&tables, 10);
        let mut manual = ManualCompaction { lower: None, upper: None, level: 0 };
        assert_eq!(ids(&pick_manual(&version, &options(), &mut manual).unwrap()), [(0, 3), (1, 2)]);
        assert_eq!(ids(&pick_manual(&version, &options(), &mut manual).unwrap()), [(1, 2), (2, 1)]);
        assert_eq!(pick_manual(&version, &options(), &mut manual), None);
        let mut elsewhere = ManualCompaction { lower: Some(b"x".to_vec()), upper: None, level: 0 };
        assert_eq!(pick_manual(&version, &options(), &mut elsewhere), None);
    }
}
