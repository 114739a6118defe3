use super::*;
use crate::plan::manual::{self, ManualCompaction, Step};
use crate::plan::room::PLENTY;
use crate::terms::segment_numbers::NUMBERS_OF_A_JOB;
use forebay_base::{SegmentId, SequenceNumber, Tag};
use forebay_proto::ranges::GRANULARITY_BYTES;
use forebay_table::{
    Creation, ImageAddress, OwnedKey, Placement, SegmentInfo, SegmentKind, SegmentUse, TableId, TableMetadata,
    TableProperties, VersionEdit,
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

fn pick(version: &Version, options: &Options, cursors: &mut Cursors, is_full: bool) -> Option<Pick> {
    let room = if is_full { Room::NONE } else { Room::default() };
    Picker::new(version, options, &BTreeSet::new(), &|_| 0, room).pick(cursors)
}

fn pick_manual(version: &Version, options: &Options, manual: &mut ManualCompaction) -> Option<Pick> {
    let busy = BTreeSet::new();
    match manual::next(&Picker::new(version, options, &busy, &|_| 0, Room::default()), manual) {
        Step::Do(pick) => Some(pick),
        Step::Wait => panic!("nothing is busy"),
        Step::Done => None,
    }
}

fn merge(is_bottommost: bool, clustering: Clustering) -> Work {
    Work::Merge { is_bottommost, clustering, vacated: BTreeSet::new() }
}

/// The same version, in which the table with this number has a range deletion and another number.
fn deleting(version: &Version, id: u64) -> Version {
    changed(version, id, |properties| properties.range_deletions = 1)
}

/// The same, with a range deletion that ends at a key. The next table may begin there.
fn deleting_until(version: &Version, id: u64, end: &str) -> Version {
    changed(version, id, |properties| {
        properties.range_deletions = 1;
        properties.largest = OwnedKey { user_key: end.into(), tag: Tag::MAX };
    })
}

/// The same version, in which the table with this number has other properties and another number.
fn changed(version: &Version, id: u64, change: impl FnOnce(&mut TableProperties)) -> Version {
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
    change(&mut properties);
    table.id = TableId(id + 50);
    table.properties = properties.into();
    edit.added_tables.push((level, table));
    version.apply(&edit).unwrap()
}

#[test]
fn what_drops_tables_of_level_0_tells_nothing_about_merging_them() {
    let version = version(&[(0, 1, "a", "f", 10, true), (0, 2, "a", "f", 10, true)], 10);
    let merge = pick(&version, &options(), &mut Cursors::default(), false).unwrap();
    assert!(merge.merges_level0());
    let dropped = Pick::drop_all(merge.inputs);
    assert_eq!((dropped.merges_level0(), dropped.output_bytes(&options())), (false, 0));
}

#[test]
fn range_deletions_go_down_until_nothing_lies_under_them() {
    let tables = [(1, 1, "a", "f", 10, true), (2, 2, "c", "d", 10, true), (3, 3, "a", "b", 10, true)];
    let found = |id| pick(&deleting(&version(&tables, 10), id), &options(), &mut Cursors::default(), false);
    assert_eq!(ids(&found(1).unwrap()), [(1, 51), (2, 2)]);
    assert_eq!(found(2), None);
    assert_eq!(found(3), None);
}

/// A version of tables given as (level, id, smallest, largest, live bytes, is a run). Each has a
/// segment of its own, of `segment_bytes`.
pub(crate) fn version(tables: &[(u8, u64, &str, &str, u64, bool)], segment_bytes: u64) -> Version {
    let identity = crate::tree::version::identity(&options(), 1, 0);
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
            shadowed: 0,
            segments: vec![used],
        };
        let image = ImageAddress { segment: image, length: 100, tail_offset: 10 };
        let table = TableMetadata { id: TableId(id), image, properties: properties.into() };
        edit.added_tables.push((level, table));
    }
    Version::empty(identity).apply(&edit).unwrap()
}

/// A version of one table of level 1 with runs of these lengths, all of them live.
fn version_of_runs(lengths: &[u64]) -> Version {
    version_of_parts(&lengths.iter().map(|&length| (length, length)).collect::<Vec<_>>())
}

/// A version of one table of level 1 with runs, each given as its live bytes and its length.
fn version_of_parts(runs: &[(u64, u64)]) -> Version {
    let base = version(&[(1, 1, "a", "z", 10, true)], 10);
    let mut edit = VersionEdit::default();
    let mut table = base.level(1)[0].as_ref().clone();
    edit.removed_tables.push((1, table.id));
    table.id = TableId(50);
    let mut properties = table.properties.as_ref().clone();
    for (&(live_bytes, length), job) in runs.iter().zip(1..) {
        let id = job * NUMBERS_OF_A_JOB;
        edit.next_segment = Some(id + 1);
        let placements = vec![Placement::Memory { node: 1, incarnation: 1, extent: 0, offset: 0 }];
        edit.added_segments.push((SegmentId(id), SegmentInfo::new(SegmentKind::Run, length, placements)));
        properties.segments.push(SegmentUse { live_bytes, entries: 1, ..SegmentUse::new(SegmentId(id), true) });
    }
    properties.segments.remove(0);
    table.properties = properties.into();
    edit.added_tables.push((1, table));
    base.remove_unreferenced(&mut edit).unwrap();
    base.apply(&edit).unwrap()
}

fn ids(pick: &Pick) -> Vec<(u8, u64)> {
    pick.inputs.iter().map(|(level, table)| (*level, table.id.0)).collect()
}

const GATHER: Clustering = Clustering::Gather(Residents::Keep);

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
    assert_eq!(found.work, merge(true, GATHER));
    // Below level 1, beyond the tables of level 0, but under what they overlap there.
    let deeper = [&tables[..], &[(2, 9, "g", "z", 10, true)]].concat();
    let found = pick(&version(&deeper, 10), &options(), &mut Cursors::default(), false).unwrap();
    assert_eq!(found.work, merge(false, Clustering::None));
}

/// A table of level 0 over all of level 1, and memory for the indexes of it and of two tables there.
#[test]
fn a_table_goes_down_in_parts_where_memory_is_short() {
    let (options, mut cursors) = (options(), Cursors::default());
    let tables = [
        (0, 9, "a", "z", 10, false),
        (1, 1, "b", "c", 10, true),
        (1, 2, "f", "g", 10, true),
        (1, 3, "k", "m", 10, true),
    ];
    let whole = version(&tables, 10);
    let pick_with = |version: &Version, scratch_bytes, cursors: &mut Cursors| {
        let room = Room { scratch_bytes, ..Room::NONE };
        Picker::new(version, &options, &BTreeSet::new(), &|_| 0, room).pick(cursors).unwrap()
    };
    let part = |lower: Option<&str>, upper: Option<&str>| Part {
        lower: lower.map(|key| key.as_bytes().to_vec()),
        upper: upper.map(|key| key.as_bytes().to_vec()),
    };
    let all = pick_with(&whole, u64::MAX, &mut cursors);
    assert_eq!((ids(&all), &all.part), (vec![(0, 9), (1, 1), (1, 2), (1, 3)], &part(None, None)));
    assert_eq!(all.replaced().count(), 4);
    let least = pick_with(&whole, 0, &mut cursors);
    assert_eq!((ids(&least), &least.part), (vec![(0, 9), (1, 1)], &part(None, Some("f"))));
    let first = pick_with(&whole, all.output_bytes(&options) - 1, &mut cursors);
    assert_eq!((ids(&first), &first.part), (vec![(0, 9), (1, 1), (1, 2)], &part(None, Some("k"))));
    // The table stays for the next part.
    assert_eq!(first.replaced().collect::<Vec<_>>(), [(1, TableId(1)), (1, TableId(2))]);
    cursors.done(&first);
    for scratch_bytes in [0, u64::MAX] {
        let last = pick_with(&whole, scratch_bytes, &mut cursors);
        assert_eq!((ids(&last), &last.part), (vec![(0, 9), (1, 3)], &part(Some("k"), None)));
        assert_eq!(last.replaced().count(), 2);
    }
    // Something reaches beyond the part that is done, or there is nothing left below.
    let across = version(&[tables[0], tables[1], (1, 4, "g", "m", 10, true)], 10);
    assert_eq!(pick_with(&across, 0, &mut cursors).part, part(None, Some("g")));
    let nothing = pick_with(&version(&tables[..3], 10), 0, &mut cursors);
    assert_eq!((ids(&nothing), nothing.part), (vec![(0, 9)], part(Some("k"), None)));
    // Operands that exist twice would count twice.
    let mut edit = VersionEdit { removed_tables: vec![(0, TableId(9))], ..VersionEdit::default() };
    let mut table = whole.level(0)[0].as_ref().clone();
    table.id = TableId(59);
    table.properties = TableProperties { merges: 1, ..table.properties.as_ref().clone() }.into();
    edit.added_tables.push((0, table));
    assert_eq!(ids(&pick_with(&whole.apply(&edit).unwrap(), 0, &mut cursors)).len(), 4);
}

/// Tables of a level go down in turn, and each continues where its last part ended.
#[test]
fn tables_of_any_level_go_down_in_parts() {
    let (options, mut cursors) = (options(), Cursors::default());
    let tables = [
        (1, 8, "a", "l", 10, true),
        (1, 9, "n", "z", 10, true),
        (2, 1, "b", "c", 10, true),
        (2, 2, "f", "g", 10, true),
        (2, 3, "p", "q", 10, true),
        (2, 4, "v", "w", 10, true),
    ];
    let version = version(&tables, 10);
    let mut next = || {
        let room = Room { scratch_bytes: 0, ..Room::NONE };
        let pick = Picker::new(&version, &options, &BTreeSet::new(), &|_| 0, room).pick(&mut cursors).unwrap();
        cursors.done(&pick);
        (ids(&pick), pick.replaced().count())
    };
    assert_eq!(next(), (vec![(1, 8), (2, 1)], 1));
    assert_eq!(next(), (vec![(1, 9), (2, 3)], 1));
    assert_eq!(next(), (vec![(1, 8), (2, 2)], 2));
    assert_eq!(next(), (vec![(1, 9), (2, 4)], 2));
}

/// A range deletion over several tables ends in each of them where the next one begins.
#[test]
fn a_part_ends_where_a_range_deletion_was_cut() {
    let tables = [
        (0, 9, "a", "z", 10, false),
        (1, 1, "b", "c", 10, true),
        (1, 2, "f", "g", 10, true),
        (1, 3, "k", "m", 10, true),
    ];
    let version = deleting_until(&deleting_until(&version(&tables, 10), 1, "f"), 2, "k");
    let (options, mut cursors) = (options(), Cursors::default());
    let mut next = || {
        let room = Room { scratch_bytes: 0, ..Room::NONE };
        let pick = Picker::new(&version, &options, &BTreeSet::new(), &|_| 0, room).pick(&mut cursors).unwrap();
        cursors.done(&pick);
        (ids(&pick), pick.part.upper)
    };
    let end = |key: &str| Some(key.as_bytes().to_vec());
    assert_eq!(next(), (vec![(0, 9), (1, 51)], end("f")));
    assert_eq!(next(), (vec![(0, 9), (1, 52)], end("k")));
    assert_eq!(next(), (vec![(0, 9), (1, 3)], None));
}

/// Moving them would write them anew, and their segments would stay for the records of other tables.
#[test]
fn without_room_small_records_stay_where_they_are() {
    let tables = [(0, 3, "a", "c", 10, false), (1, 2, "a", "c", 10, true), (2, 1, "a", "c", 10, true)];
    let version = version(&tables, 10);
    for (room, is_moved) in [(Room::default(), true), (Room::NONE, false)] {
        let options = Options { level0_compaction_trigger: 1, ..options() };
        let pick = Picker::new(&version, &options, &BTreeSet::new(), &|_| 0, room).pick(&mut Cursors::default());
        let pick = pick.unwrap();
        assert_eq!((ids(&pick), pick.size_classes(&options) != SizeClasses::NONE), (vec![(0, 3), (1, 2)], is_moved));
    }
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
    assert_eq!((ids(&third), third.work), (vec![(1, 3)], merge(true, GATHER)));
    assert_eq!(ids(&next()), [(1, 1)]);
}

#[test]
fn dead_bytes_are_collected() {
    let tables = [(1, 1, "a", "b", 900, false), (3, 2, "c", "d", 20_000, true), (2, 3, "e", "f", 1000, true)];
    let options = Options { unclustered_percent: 100, ..options() };
    let found = |tables: &[_], segment_bytes, is_full| {
        pick(&version(tables, segment_bytes), &options, &mut Cursors::default(), is_full)
    };
    assert_eq!(found(&tables[..1], 4900, false), None);
    // All records leave the segment.
    let pick = found(&tables[..1], 6000, false).unwrap();
    assert_eq!((ids(&pick), pick.output_level), (vec![(1, 1)], 1));
    let Work::Merge { vacated, .. } = pick.work else { panic!("{pick:?}") };
    assert_eq!(vacated, [SegmentId(2)].into());
    // What is dead may come to 22 % of what lives, and a memtable.
    assert_eq!(found(&tables[1..2], 28_400, false), None);
    let pick = found(&tables[1..2], 28_600, false).unwrap();
    assert_eq!((ids(&pick), pick.output_level), (vec![(3, 2)], 3));
    assert!(found(&tables[2..], 1050, true).is_none());
    assert!(found(&tables[2..], 1100, true).is_some());
}

#[test]
fn the_segments_of_which_least_lives_are_left() {
    // Of 20,000 bytes, 5,000 are dead. When the first and the second segment are left, no more than 3,000 are.
    let tables = [
        (2, 1, "a", "b", 2000, true),
        (2, 2, "c", "d", 3000, true),
        (2, 3, "e", "f", 3500, true),
        (2, 4, "g", "h", 3500, true),
        (2, 5, "i", "j", 3000, false),
    ];
    let version = version(&tables, 4000);
    let percent = |most| Space::of(&version).percent_to(most);
    assert_eq!([5000, 4999, 3000, 2999, 0].map(percent), [100, 49, 49, 24, 11]);
}

#[test]
fn records_are_brought_into_order_where_they_come_to_rest() {
    let tables = [(1, 1, "a", "b", 250, false), (1, 2, "a", "b", 750, true)];
    let gathers = |tables: &[_], percent: u64| {
        let options = Options { unclustered_percent: percent, level0_compaction_trigger: 1, ..options() };
        let pick = pick(&version(tables, 1000), &options, &mut Cursors::default(), false);
        pick.map(|pick| matches!(pick.work, Work::Merge { clustering: GATHER, .. }))
    };
    let arriving = |bytes| [(0, 3, "a", "b", bytes, false), (1, 2, "a", "b", 700, true)];
    assert_eq!(gathers(&arriving(200), 25), Some(false));
    assert_eq!(gathers(&arriving(300), 25), Some(true));
    assert_eq!(gathers(&arriving(300), 50), Some(false));
    // The level is then compacted itself.
    assert_eq!(gathers(&arriving(301), 25), Some(false));
    // By themselves.
    assert_eq!(gathers(&tables[..1], 25), Some(true));
    assert_eq!(gathers(&tables[1..], 25), None);
}

#[test]
fn runs_are_merged_smallest_first() {
    let version = version_of_runs(&[300, 9, 8, 7, 6, 5, 100, 90]);
    let options = Options { last_level_runs: 8, ..options() };
    let table = &version.level(1)[0];
    let runs = |crossings: u32, more| {
        let (busy, crossings) = (BTreeSet::new(), |_| crossings);
        let vacated = Picker::new(&version, &options, &busy, &crossings, Room::default()).too_much(table, more);
        let runs = table.properties.segments.iter().filter(|used| vacated.contains(&used.id));
        runs.map(|used| used.live_bytes).collect::<Vec<_>>()
    };
    assert!(runs(0, 0).is_empty());
    assert_eq!(runs(0, 1), [9, 8, 7, 6, 5]);
    assert_eq!(runs(3, 0), [9, 8, 7, 6, 5, 100, 90]);
    assert_eq!(runs(7, 0).len(), 8);
}

#[test]
fn short_segments_of_a_table_are_joined_where_room_is_short() {
    let joined = |lengths: &[u64], memtables| {
        let version = version_of_runs(lengths);
        let room = Room { memtables, ..Room::NONE };
        let found = Picker::new(&version, &options(), &BTreeSet::new(), &|_| 0, room).pick(&mut Cursors::default());
        found.map(|pick| match pick.work {
            Work::Merge { vacated, .. } => vacated.len(),
            Work::Move | Work::Drop => panic!("{pick:?}"),
        })
    };
    assert_eq!(joined(&[40, 600, 3000], 0), Some(3));
    assert_eq!(joined(&[40, 600, 3000], PLENTY - 1), Some(3));
    assert_eq!(joined(&[40, 600, 3000], PLENTY), None);
    // One page less is taken, but not for moving what would be longer than a piece of memory that there always is.
    assert_eq!(joined(&[40, 12_000, 8000], 0), Some(2));
    assert_eq!(joined(&[40, 4096], 0), None);
    assert_eq!(joined(&[40], 0), None);
}

#[test]
fn what_is_collected_without_room_fills_its_last_page_with_short_segments() {
    let moved = |runs: &[(u64, u64)]| {
        let found = pick(&version_of_parts(runs), &options(), &mut Cursors::default(), true).unwrap();
        let Work::Merge { clustering: Clustering::None, vacated, .. } = found.work else { panic!("{found:?}") };
        vacated.into_iter().map(|id| id.0 / NUMBERS_OF_A_JOB).collect::<Vec<_>>()
    };
    // The first segment is collected; of the others 3796 bytes fill its page.
    assert_eq!(moved(&[(300, 6000), (900, 900), (3000, 3000), (600, 600)]), [1, 2, 4]);
    assert_eq!(moved(&[(300, 6000), (3796, 3796)]), [1, 2]);
    assert_eq!(moved(&[(300, 6000), (3797, 3797)]), [1]);
    // Its second page, where it has one.
    assert_eq!(moved(&[(4097, 9000), (4000, 4000), (4096, 4096)]), [1, 2]);
    // A run of several pieces is rounded up more than once.
    assert_eq!(moved(&[(17_000, 90_000), (40, 40)]), [1]);
}

/// A version of tables of the last level each of which names a part of the same segment, and one of its own.
fn version_of_shared(tables: u64, live_bytes: u64, length: u64) -> Version {
    let keys: Vec<_> = (0..tables).map(|at| [format!("{at:03}"), format!("{at:03}~")]).collect();
    let all: Vec<_> = keys.iter().zip(1..).map(|([from, to], id)| (3, id, &from[..], &to[..], 8000, true)).collect();
    let base = version(&all, 8000);
    let shared = SegmentId(150);
    let placements = vec![Placement::Memory { node: 1, incarnation: 1, extent: 0, offset: 0 }];
    let mut edit = VersionEdit {
        added_segments: vec![(shared, SegmentInfo::new(SegmentKind::MemtableBlock, length, placements))],
        ..VersionEdit::default()
    };
    for table in base.level(3) {
        let mut properties = table.properties.as_ref().clone();
        properties.segments.push(SegmentUse { live_bytes, entries: 1, ..SegmentUse::new(shared, false) });
        edit.removed_tables.push((3, table.id));
        edit.added_tables.push((3, TableMetadata { properties: properties.into(), ..table.as_ref().clone() }));
    }
    base.apply(&edit).unwrap()
}

/// Each table takes a page for what lives in a segment, however little.
#[test]
fn nothing_is_collected_without_room_that_takes_more_than_it_gives_back() {
    let found = |tables, live_bytes, pages| {
        let version = version_of_shared(tables, live_bytes, pages * GRANULARITY_BYTES);
        pick(&version, &options(), &mut Cursors::default(), true).map(|found| ids(&found))
    };
    let first = Some(vec![(3, 1)]);
    assert_eq!(found(8, 2000, 8), first);
    assert_eq!(found(9, 2000, 8), None);
    assert_eq!(found(4, 5000, 8), first, "two pages each");
    assert_eq!(found(5, 5000, 8), None);
}

#[test]
fn a_sparse_extent_is_emptied_for_another_shard_that_has_no_room() {
    let version = version(&[(1, 2, "a", "z", 900, true)], 1000);
    let found = |is_wanted, scratch_bytes| {
        let room = Room { memtables: PLENTY, scratch_bytes, extent_bytes: 64 << 10, is_wanted };
        let mut cursors = Cursors::default();
        let mut pick = || Picker::new(&version, &options(), &BTreeSet::new(), &|_| 0, room).pick(&mut cursors);
        let first = pick();
        assert_eq!(pick(), None, "once for each extent");
        first.map(|pick| ids(&pick))
    };
    assert_eq!(found(false, 1 << 20), None);
    assert_eq!(found(true, 1 << 20), Some(vec![(1, 2)]));
    // The table and its records take a page each: no more than a quarter of what is free.
    assert_eq!(found(true, 4 * 8192), Some(vec![(1, 2)]));
    assert_eq!(found(true, 4 * 8192 - 1), None);
}

/// A range deletion over several tables ends in each of them where the next one begins.
#[test]
fn every_table_of_a_range_deletion_leaves_a_sparse_extent() {
    let tables = [(1, 1, "a", "b", 300, true), (1, 2, "c", "d", 300, true), (1, 3, "e", "f", 300, true)];
    let version = deleting_until(&deleting_until(&version(&tables, 300), 1, "c"), 2, "e");
    let room = Room { memtables: PLENTY, scratch_bytes: 1 << 20, extent_bytes: 64 << 10, is_wanted: true };
    let (options, busy, mut cursors) = (options(), BTreeSet::new(), Cursors::default());
    let picks = std::iter::from_fn(|| Picker::new(&version, &options, &busy, &|_| 0, room).pick(&mut cursors));
    assert_eq!(picks.take(9).map(|pick| ids(&pick)).collect::<Vec<_>>(), [[(1, 51)], [(1, 52)], [(1, 3)]]);
}

#[test]
fn a_sparse_extent_under_level_0_stays() {
    let version = version(&[(0, 9, "a", "z", 10, false), (0, 8, "a", "z", 10, false)], 10);
    let options = Options { level0_compaction_trigger: 4, ..options() };
    for (memtables, busy) in [(PLENTY, None), (0, Some(TableId(8)))] {
        let room = Room { memtables, scratch_bytes: 1 << 20, extent_bytes: 64 << 10, is_wanted: true };
        let busy = busy.into_iter().collect();
        let pick = Picker::new(&version, &options, &busy, &|_| 0, room).pick(&mut Cursors::default());
        // The deletions of the newer table hide what is in the older one.
        assert_eq!(pick, None, "{memtables} memtables");
    }
}

#[test]
fn busy_tables_are_left_alone() {
    let tables = [
        (0, 9, "a", "z", 10, false),
        (0, 8, "a", "z", 10, false),
        (1, 1, "a", "b", 700, true),
        (1, 2, "c", "d", 700, true),
        (1, 4, "e", "f", 700, true),
        (2, 3, "c", "d", 700, true),
    ];
    let version = version(&tables, 700);
    let options = options();
    let found = |busy: &[u64]| {
        let busy = busy.iter().map(|id| TableId(*id)).collect();
        let picker = Picker::new(&version, &options, &busy, &|_| 0, Room::default());
        picker.pick(&mut Cursors::default()).map(|pick| ids(&pick))
    };
    assert_eq!(found(&[]), Some(vec![(1, 1)]));
    assert_eq!(found(&[8, 9]), Some(vec![(1, 1)]));
    assert_eq!(found(&[1]), Some(vec![(1, 2), (2, 3)]));
}

#[test]
fn neighbours_of_level_0_are_merged_where_nothing_else_finds_room() {
    let found = |tables: std::ops::RangeInclusive<u64>, busy: &[u64], room: Room| {
        let tables: Vec<_> = tables.rev().map(|id| (0, id, "a", "z", 10, false)).collect();
        let busy = busy.iter().map(|id| TableId(*id)).collect();
        let pick = Picker::new(&version(&tables, 10), &options(), &busy, &|_| 0, room).pick(&mut Cursors::default())?;
        assert_eq!(pick.output_level, 0);
        let Work::Merge { is_bottommost: false, clustering: Clustering::None, vacated } = &pick.work else {
            panic!("{pick:?}")
        };
        // Also their records, as one run.
        assert_eq!(*vacated, pick.inputs.iter().map(|(_, table)| SegmentId(table.id.0 * 2)).collect());
        Some(pick.inputs.iter().map(|(_, table)| table.id.0).collect::<Vec<_>>())
    };
    assert_eq!(found(3..=5, &[3], Room::NONE), Some(vec![5, 4]));
    assert_eq!(found(3..=5, &[3], Room { memtables: 1, ..Room::NONE }), None);
    // No busy table stays between them, and none is merged alone.
    assert_eq!(found(3..=5, &[4], Room::NONE), None);
    assert_eq!(found(2..=6, &[4], Room::NONE).map(|ids| ids.len()), Some(2));
    // As many as have an index of one page.
    assert_eq!(found(1..=44, &[1], Room::NONE).map(|ids| ids.len()), Some(40));
}

#[test]
fn nothing_is_rewritten_for_its_order_without_room() {
    let tables = [(0, 3, "a", "b", 300, false), (1, 2, "a", "b", 700, true)];
    let clustering = |style, memtables| {
        let options = Options { compaction_style: style, level0_compaction_trigger: 1, ..options() };
        let room = Room { memtables, ..Room::NONE };
        let version = version(&tables, 1000);
        match Picker::new(&version, &options, &BTreeSet::new(), &|_| 0, room).build(0, version.level(0).to_vec()).work {
            Work::Merge { clustering, .. } => clustering,
            Work::Move | Work::Drop => panic!("it overlaps"),
        }
    };
    assert_eq!(clustering(CompactionStyle::Clustered, 1), GATHER);
    assert_eq!(clustering(CompactionStyle::Classic, 1), Clustering::Gather(Residents::Rewrite));
    assert_eq!(clustering(CompactionStyle::Clustered, 0), Clustering::None);
    assert_eq!(clustering(CompactionStyle::Classic, 0), Clustering::None);
}

#[test]
fn a_manual_compaction_leaves_no_table_of_range_deletions_alone() {
    let base = version(&[(1, 1, "a", "z", 10, true)], 10);
    let mut table = base.level(1)[0].as_ref().clone();
    let mut edit = VersionEdit { removed_tables: vec![(1, table.id)], ..VersionEdit::default() };
    let properties = TableProperties {
        puts: 0,
        record_bytes: 0,
        range_deletions: 1,
        segments: Vec::new(),
        ..table.properties.as_ref().clone()
    };
    (table.id, table.properties) = (TableId(50), properties.into());
    edit.added_tables.push((1, table));
    base.remove_unreferenced(&mut edit).unwrap();
    let version = base.apply(&edit).unwrap();
    for compaction_style in [CompactionStyle::Clustered, CompactionStyle::Unclustered, CompactionStyle::Classic] {
        let (options, mut manual) = (Options { compaction_style, ..options() }, ManualCompaction::default());
        assert_eq!(ids(&pick_manual(&version, &options, &mut manual).unwrap()), [(1, 50)]);
        assert_eq!(pick_manual(&version, &options, &mut manual), None);
    }
}

#[test]
fn a_step_of_a_manual_compaction_that_failed_is_taken_again() {
    let at = |level, cursor: Option<&[u8]>| ManualCompaction {
        level,
        cursor: cursor.map(|key| OwnedKey { user_key: key.to_vec(), tag: Tag::MAX }),
        ..ManualCompaction::default()
    };
    // Level 0 has no keys to go by, only whether it was done.
    let ascending = [at(0, None), at(0, Some(b"")), at(1, None), at(1, Some(b"a")), at(1, Some(b"b")), at(2, None)];
    for (now, before) in ascending.iter().flat_map(|now| ascending.iter().map(move |before| (now, before))) {
        let mut manual = now.clone();
        manual.go_back(KeyOrder::Bytewise, before.clone());
        let position = |of: &ManualCompaction| (of.level, of.cursor.as_ref().map(|end| end.user_key.clone()));
        assert_eq!(position(&manual), position(now).min(position(before)));
    }
    let mut manual = at(1, Some(b"b"));
    manual.go_back(KeyOrder::ReverseBytewise, at(1, Some(b"a")));
    assert_eq!(manual.cursor, at(1, Some(b"b")).cursor);
}

/// A range deletion over several tables ends in each of them where the next one begins.
#[test]
fn a_manual_compaction_takes_every_table_of_a_range_deletion() {
    let tables = [
        (1, 1, "a", "b", 10, true),
        (1, 2, "c", "d", 10, true),
        (1, 3, "e", "f", 10, true),
        (2, 4, "a", "f", 10, true),
    ];
    let taken = |tables: &[_]| {
        let (version, mut manual) = (version(tables, 10), ManualCompaction::default());
        let version = deleting_until(&deleting_until(&version, 1, "c"), 2, "e");
        let picks = std::iter::from_fn(|| pick_manual(&version, &options(), &mut manual));
        picks.take(9).map(|pick| ids(&pick)).collect::<Vec<_>>()
    };
    assert_eq!(taken(&tables), [[(1, 51), (2, 4)], [(1, 52), (2, 4)], [(1, 3), (2, 4)]]);
    // In the last level, the third one is finished.
    assert_eq!(taken(&tables[..3]), [[(1, 51)], [(1, 52)]]);
}

/// A snapshot may still need the shadowed entries: then the rewritten table has them again.
#[test]
fn a_manual_compaction_takes_a_table_with_shadowed_entries_once() {
    let version = version(&[(1, 1, "a", "b", 10, true), (1, 2, "c", "d", 10, true)], 10);
    let shadowing = changed(&version, 1, |properties| properties.shadowed = 1);
    let styles = [
        (CompactionStyle::Clustered, Clustering::Gather(Residents::Rewrite)),
        (CompactionStyle::Unclustered, Clustering::None),
        (CompactionStyle::Classic, Clustering::Gather(Residents::Rewrite)),
    ];
    for (compaction_style, clustering) in styles {
        let (options, mut manual) = (Options { compaction_style, ..options() }, ManualCompaction::default());
        let pick = pick_manual(&shadowing, &options, &mut manual).unwrap();
        assert_eq!((ids(&pick), pick.work), (vec![(1, 51)], merge(true, clustering)));
        assert_eq!(pick_manual(&shadowing, &options, &mut manual), None);
        assert_eq!(pick_manual(&version, &options, &mut ManualCompaction::default()), None);
    }
}

#[test]
fn a_manual_compaction_ends_at_the_last_level() {
    let tables = [(0, 3, "a", "c", 10, false), (1, 2, "b", "d", 10, false), (2, 1, "a", "z", 10, true)];
    let version = version(&tables, 10);
    let mut manual = ManualCompaction::default();
    assert_eq!(ids(&pick_manual(&version, &options(), &mut manual).unwrap()), [(0, 3), (1, 2)]);
    assert_eq!(ids(&pick_manual(&version, &options(), &mut manual).unwrap()), [(1, 2), (2, 1)]);
    assert_eq!(pick_manual(&version, &options(), &mut manual), None);
    let mut elsewhere = ManualCompaction { lower: Some(b"x".to_vec()), ..ManualCompaction::default() };
    assert_eq!(pick_manual(&version, &options(), &mut elsewhere), None);
}

#[test]
fn levels_that_the_options_know_no_more_are_gone_on_with() {
    let options = Options { levels: 2, ..options() };
    let tables = [
        (1, 4, "a", "f", 10, true),
        (3, 3, "a", "f", 10, true),
        (4, 2, "a", "b", 10, true),
        (5, 1, "a", "f", 10, true),
    ];
    let with_deletion = |id: u64| deleting(&version(&tables, 10), id);
    let found = |id| {
        pick(&with_deletion(id), &options, &mut Cursors::default(), false).map(|pick| (ids(&pick), pick.output_level))
    };
    assert_eq!(found(4), Some((vec![(1, 54)], 2)));
    assert_eq!(found(3), Some((vec![(3, 53), (4, 2)], 4)));
    assert_eq!(found(2), Some((vec![(4, 52), (5, 1)], 5)));
    assert_eq!(found(1), None);
    // A level that is too large also goes down, and the last one does not.
    let large = [(1, 2, "a", "f", 2000, true), (2, 1, "a", "f", 50_000, true)];
    assert_eq!(
        ids(&pick(&version(&large, 50_000), &options, &mut Cursors::default(), false).unwrap()),
        [(1, 2), (2, 1)]
    );
    assert_eq!(pick(&version(&large[1..], 50_000), &options, &mut Cursors::default(), false), None);
    let mut manual = ManualCompaction::default();
    let mut picks = std::iter::from_fn(|| pick_manual(&version(&tables, 10), &options, &mut manual));
    let taken: Vec<_> = picks.by_ref().take(9).map(|pick| (ids(&pick), pick.output_level)).collect();
    assert_eq!(taken, [(vec![(1, 4)], 2), (vec![(3, 3), (4, 2)], 4), (vec![(4, 2), (5, 1)], 5)]);
}

/// The version with the segments of these tables in storage.
fn stored(version: &Version, tables: &[u64]) -> Version {
    let mut edit = VersionEdit { last_sequence: Some(version.last_sequence()), ..VersionEdit::default() };
    for (level, table) in
        version.levels().iter().zip(0u8..).flat_map(|(tables, level)| tables.iter().map(move |table| (level, table)))
    {
        if !tables.contains(&table.id.0) {
            continue;
        }
        // The same table under other numbers.
        let mut table = table.as_ref().clone();
        edit.removed_tables.push((level, table.id));
        table.id = TableId(table.id.0 + 50);
        let place = |id: SegmentId, edit: &mut VersionEdit| {
            let mut info = version.segment(id).unwrap().as_ref().clone();
            info.placements = vec![Placement::Storage { object: format!("{}", id.0) }];
            edit.added_segments.push((SegmentId(id.0 + 100), info));
            SegmentId(id.0 + 100)
        };
        table.image.segment = place(table.image.segment, &mut edit);
        let mut properties = table.properties.as_ref().clone();
        properties.segments.iter_mut().for_each(|used| used.id = place(used.id, &mut edit));
        table.properties = properties.into();
        edit.added_tables.push((level, table));
    }
    version.remove_unreferenced(&mut edit).unwrap();
    version.apply(&edit).unwrap()
}

fn vacated(pick: &Pick) -> Vec<u64> {
    match &pick.work {
        Work::Merge { vacated, .. } => vacated.iter().map(|id| id.0).collect(),
        Work::Move | Work::Drop => panic!("the tables are moved"),
    }
}

#[test]
fn what_goes_to_storage_leaves_memory() {
    let options = Options { storage_from_level: Some(2), ..options() };
    let tables = [(1, 1, "a", "b", 1200, true), (2, 4, "b", "c", 10, true), (2, 5, "x", "z", 10, true)];
    let in_memory = version(&tables, 1200);
    // What is in storage already stays where it is.
    let half = stored(&in_memory, &[4, 5]);
    let found = pick(&half, &options, &mut Cursors::default(), false).unwrap();
    assert_eq!((ids(&found), found.tier, vacated(&found)), (vec![(1, 1), (2, 54)], Tier::Storage, vec![2]));
    assert_eq!(found.output_bytes(&options), 0);
    // A table alone is not moved as it is, unless it is in storage.
    let alone = version(&[(1, 1, "a", "b", 1200, true)], 1200);
    let found = pick(&alone, &options, &mut Cursors::default(), false).unwrap();
    assert_eq!((ids(&found), vacated(&found)), (vec![(1, 1)], vec![2]));
    let found = pick(&stored(&alone, &[1]), &options, &mut Cursors::default(), false).unwrap();
    assert_eq!((ids(&found), found.work), (vec![(1, 51)], Work::Move));
    // Level 1 is compacted as usual.
    let level0 = version(&[(0, 2, "a", "b", 10, false), (0, 1, "a", "b", 10, false)], 10);
    assert_eq!(pick(&level0, &options, &mut Cursors::default(), false).unwrap().tier, Tier::Memory);
}

#[test]
fn what_lies_in_memory_of_a_level_in_storage_is_rewritten() {
    let version = version(&[(2, 4, "b", "c", 10, true), (2, 5, "x", "z", 10, true)], 10);
    let options = Options { storage_from_level: Some(2), ..options() };
    let half = stored(&version, &[4]);
    let found = pick(&half, &options, &mut Cursors::default(), false).unwrap();
    assert_eq!((ids(&found), found.tier, vacated(&found)), (vec![(2, 5)], Tier::Storage, vec![10]));
    let all = stored(&version, &[4, 5]);
    assert_eq!(pick(&all, &options, &mut Cursors::default(), false), None);
    // The other way round nothing is due.
    let options = Options { storage_from_level: Some(3), ..options };
    assert_eq!(pick(&all, &options, &mut Cursors::default(), false), None);
}

#[test]
fn short_of_memory_what_is_dead_in_storage_is_no_concern() {
    // Nine tenths are dead.
    let version = version(&[(1, 1, "a", "b", 10_000, true)], 100_000);
    let room = Room { memtables: 3, scratch_bytes: 1 << 20, ..Room::default() };
    let due = |version: &Version| {
        Picker::new(version, &Options { storage_from_level: Some(1), ..options() }, &BTreeSet::new(), &|_| 0, room)
            .pick_garbage()
            .is_some()
    };
    assert!(due(&version) && !due(&stored(&version, &[1])));
}

#[test]
fn short_of_memory_the_coldest_level_goes_to_storage() {
    let options = Options { storage_from_level: Some(3), ..options() };
    let tables = [(1, 1, "a", "b", 10, true), (2, 4, "b", "c", 10, true), (3, 5, "x", "z", 10, true)];
    let version = stored(&version(&tables, 10), &[5]);
    let room = Room { memtables: 3, scratch_bytes: 0, ..Room::default() };
    let next = |version: &Version| {
        Picker::new(version, &options, &BTreeSet::new(), &|_| 0, room).pick(&mut Cursors::default())
    };
    assert_eq!(pick(&version, &options, &mut Cursors::default(), false), None);
    let found = next(&version).unwrap();
    assert_eq!((ids(&found), found.tier, found.output_bytes(&options)), (vec![(2, 4)], Tier::Storage, 0));
    let found = next(&stored(&version, &[4])).unwrap();
    assert_eq!((ids(&found), found.tier, found.output_bytes(&options)), (vec![(1, 1)], Tier::Storage, 0));
    assert_eq!(next(&stored(&version, &[1, 4])), None);
}
