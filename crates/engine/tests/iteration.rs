//! The cost of iteration, and changes of direction.

use crate::common::{Cluster, small_options};
use forebay_engine::{CompactionPlace, CompactionStyle, Db, DbIterator, FlushOrder, Gathering, IterOptions, Options};
use forebay_fabric::Counts;
use forebay_table::Direction;
use std::ops::Range;
use std::time::Duration;

const KEYS: u32 = 20_000;
/// Bytes of that many records of 200 bytes.
const RECORD_BYTES: u64 = 232 * KEYS as u64;

fn key(i: u32) -> Vec<u8> {
    format!("{i:08}").into_bytes()
}

fn filled(cluster: &Cluster) -> Db {
    let db = cluster.open(Options { target_table_bytes: 1 << 20, write_buffer_bytes: 1 << 20, ..Options::default() });
    for i in 0..KEYS {
        db.put(&key(i * 2), &[i as u8; 200]).unwrap();
    }
    db.compact_range(None, None).unwrap();
    db
}

fn round_trips(db: &Db, work: impl FnOnce()) -> u64 {
    let before = db.statistics().foreground;
    work();
    (db.statistics().foreground - before).round_trips
}

/// The cost of an iteration over `keys` from the first or from the last. Checks that each exists with its value.
fn cost(db: &Db, direction: Direction, mut keys: impl DoubleEndedIterator<Item = u32>) -> Counts {
    let before = db.statistics().foreground;
    let mut iterator = db.iter().unwrap();
    let expect = |iterator: &DbIterator, i: u32| {
        assert_eq!((iterator.key(), iterator.value()), (&key(i)[..], &[(i / 2) as u8; 200][..]), "{direction:?}");
    };
    match direction {
        Direction::Forward => {
            iterator.seek(&key(keys.next().unwrap())).unwrap();
            for i in keys {
                iterator.next().unwrap();
                expect(&iterator, i);
            }
        }
        Direction::Backward => {
            iterator.seek_for_prev(&key(keys.next_back().unwrap())).unwrap();
            while let Some(i) = keys.next_back() {
                iterator.prev().unwrap();
                expect(&iterator, i);
            }
        }
    }
    db.statistics().foreground - before
}

/// A database with the keys of [`filled`] in tables of the same size and the given style; with `again`, a share of them
/// is written again.
fn shaped(cluster: &Cluster, compaction_style: CompactionStyle, again: bool, flush_order: FlushOrder) -> Db {
    let sizes = Options { target_table_bytes: 1 << 20, write_buffer_bytes: 1 << 20, ..Options::default() };
    let db = cluster.open(Options { compaction_style, flush_order, gathering: Gathering::Never, ..sizes });
    // Neighbours are written far from each other.
    for i in (0..KEYS).map(|i| i * 7919 % KEYS) {
        db.put(&key(i * 2), &[i as u8; 200]).unwrap();
    }
    db.compact_range(None, None).unwrap();
    for i in (0..KEYS).step_by(7).filter(|_| again) {
        db.put(&key(i * 2), &[i as u8; 200]).unwrap();
    }
    db.flush().unwrap();
    db
}

#[test]
fn both_directions_stream() {
    let shapes = [
        (CompactionStyle::Clustered, false),
        (CompactionStyle::Clustered, true),
        (CompactionStyle::Unclustered, false),
    ];
    let orders = [FlushOrder::AsWritten, FlushOrder::ByKey];
    for (shape, order) in shapes.into_iter().flat_map(|shape| orders.map(|order| (shape, order))) {
        let cluster = Cluster::start(256 << 20);
        let db = shaped(&cluster, shape.0, shape.1, order);
        let both = |span: &Range<u32>| {
            [Direction::Forward, Direction::Backward].map(|way| cost(&db, way, span.clone().map(|i| i * 2)))
        };
        // 5000..5100 crosses a table's end.
        for span in [0..KEYS, 1000..1010, 5000..5100, 5500..5600, 7000..8000] {
            let [forward, backward] = both(&span);
            let context = format!("{shape:?} {order:?}, {span:?}: {forward:?} {backward:?}");
            // Backward, index blocks are read beside the records, even beside a flush's run, which a forward scan reads
            // without its index.
            let most = if order == FlushOrder::ByKey { forward.round_trips * 2 } else { forward.round_trips * 3 / 2 };
            assert!(backward.round_trips <= most + 1, "{context}");
            assert!(backward.bytes_read <= forward.bytes_read * 9 / 8 + 4096, "{context}");
            let records = 230 * u64::from(span.end - span.start);
            assert!(forward.bytes_read <= records * 5 / 4 + (48 << 10), "{context}");
            // Large reads, or batches of 2,048 entries; growing at first, and by table.
            assert!(forward.round_trips <= 20 + records / (100 << 10), "{context}");
        }
        // Wherever tables end, a scan across an end is as cheap as one within a table. One direction may be cheaper
        // than the other, because a read stops at an end. So each is compared with the scan within a table.
        let [inside, _] = both(&(1000..1100));
        // If records do not form one run, both directions need index blocks, which come in twos after the first.
        let blocks = if shape == (CompactionStyle::Clustered, false) { 0 } else { 2 };
        for start in (0..KEYS - 100).step_by(50) {
            for way in both(&(start..start + 100)) {
                let context = format!("{shape:?} {order:?}, from {start}: {way:?}, inside: {inside:?}");
                assert!(way.round_trips <= inside.round_trips * 3 / 2 + 1, "{context}");
                assert!(way.bytes_read <= inside.bytes_read * 9 / 8 + 4096 + blocks * (4 << 10), "{context}");
            }
        }
    }
}

#[test]
fn what_lies_outside_of_the_bounds_is_not_read() {
    let cluster = Cluster::start(256 << 20);
    let db = filled(&cluster);
    let absent = IterOptions { lower: Some(b"9"), ..IterOptions::default() };
    let beyond = round_trips(&db, || {
        let mut iterator = db.iter_with(&absent).unwrap();
        iterator.seek_to_first().unwrap();
        assert!(!iterator.valid());
        iterator.seek_to_last().unwrap();
        assert!(!iterator.valid());
    });
    assert_eq!(beyond, 0);
    let few = IterOptions { prefix: Some(b"0001000"), ..IterOptions::default() };
    let narrow = round_trips(&db, || {
        let mut iterator = db.iter_with(&few).unwrap();
        iterator.seek_to_last().unwrap();
        let mut seen = Vec::new();
        while iterator.valid() {
            seen.push(iterator.key().to_vec());
            iterator.prev().unwrap();
        }
        assert_eq!(seen, [key(10_008), key(10_006), key(10_004), key(10_002), key(10_000)]);
    });
    // One for index blocks, one for each of two batches.
    assert!(narrow <= 4, "{narrow}");
}

#[test]
fn a_turn_sees_the_same_moment() {
    let cluster = Cluster::start(256 << 20);
    let db = cluster.open(small_options());
    for i in 0..100 {
        db.put(&key(i), b"old").unwrap();
    }
    let mut iterator = db.iter().unwrap();
    iterator.seek(&key(50)).unwrap();
    for i in 0..100 {
        db.delete(&key(i)).unwrap();
        db.put(&key(i + 100), b"new").unwrap();
    }
    db.compact_range(None, None).unwrap();
    for i in (0..50).rev() {
        iterator.prev().unwrap();
        assert_eq!((iterator.key(), iterator.value()), (&key(i)[..], &b"old"[..]));
    }
    for i in 1..100 {
        iterator.next().unwrap();
        assert_eq!(iterator.key(), key(i));
    }
    iterator.next().unwrap();
    assert!(!iterator.valid());
    iterator.prev().unwrap();
    assert!(!iterator.valid());
}

#[test]
fn records_of_any_size_stream_and_are_found_in_the_middle() {
    let cluster = Cluster::start(256 << 20);
    let db = cluster.open(Options { write_buffer_bytes: 4 << 20, target_table_bytes: 8 << 20, ..Options::default() });
    // Shorter than a header's limit, around a page, longer than a read.
    let length = |i: u32| [0, 1, 9, 4096, 8180, 100_000, 700_000][i as usize % 7] + i as usize / 7;
    const COUNT: u32 = 140;
    for i in 0..COUNT {
        db.put(&key(i * 2), &vec![i as u8; length(i)]).unwrap();
    }
    db.compact_range(None, None).unwrap();
    let mut iterator = db.iter().unwrap();
    let mut from = |start: u32| {
        iterator.seek(&key((start * 2).saturating_sub(1))).unwrap();
        for i in start..COUNT {
            assert_eq!(iterator.key(), key(i * 2), "from {start}");
            assert!(iterator.value() == vec![i as u8; length(i)], "from {start}, at {i}");
            iterator.next().unwrap();
        }
        assert!(!iterator.valid());
    };
    (0..COUNT).step_by(13).for_each(&mut from);
    let mut back_from = |start: u32| {
        iterator.seek_for_prev(&key(start * 2 + 1)).unwrap();
        for i in (0..=start).rev() {
            assert_eq!(iterator.key(), key(i * 2), "back from {start}");
            assert!(iterator.value() == vec![i as u8; length(i)], "back from {start}, at {i}");
            iterator.prev().unwrap();
        }
        assert!(!iterator.valid());
    };
    (0..COUNT).step_by(13).for_each(&mut back_from);
    back_from(COUNT - 1);
    // Changes direction in the middle of the stream.
    iterator.seek(&key(100)).unwrap();
    for i in 50..60 {
        iterator.next().unwrap();
        iterator.prev().unwrap();
        assert!(iterator.key() == key(i * 2) && iterator.value().len() == length(i));
        iterator.next().unwrap();
    }
    iterator.seek_to_last().unwrap();
    for i in (60..COUNT).rev() {
        iterator.prev().unwrap();
        iterator.next().unwrap();
        assert!(iterator.key() == key(i * 2) && iterator.value().len() == length(i));
        iterator.prev().unwrap();
    }
}

#[test]
fn what_lies_apart_is_gathered_by_the_memory_node() {
    let cluster = Cluster::start(256 << 20);
    let scan = |gathering| {
        let style = CompactionStyle::Unclustered;
        let sizes = Options { target_table_bytes: 1 << 20, write_buffer_bytes: 1 << 20, ..Options::default() };
        let db = cluster.open(Options { gathering, compaction_style: style, ..sizes });
        // Neighbours are written far from each other.
        for i in 0..KEYS {
            let i = i * 7919 % KEYS;
            db.put(&key(i), &[i as u8; 200]).unwrap();
        }
        db.flush().unwrap();
        db.wait_for_compactions().unwrap();
        let before = db.statistics().foreground;
        let mut iterator = db.iter().unwrap();
        iterator.seek_to_first().unwrap();
        for i in 0..KEYS {
            assert_eq!((iterator.key(), iterator.value()), (&key(i)[..], &[i as u8; 200][..]));
            iterator.next().unwrap();
        }
        iterator.seek_to_last().unwrap();
        for i in (0..KEYS).rev() {
            assert_eq!((iterator.key(), iterator.value()), (&key(i)[..], &[i as u8; 200][..]));
            iterator.prev().unwrap();
        }
        db.statistics().foreground - before
    };
    let (one_by_one, gathered) = (scan(Gathering::Never), scan(Gathering::From(64)));
    // A batch of 2,048 records is as many reads, or two messages and their replies.
    assert!(one_by_one.reads > u64::from(KEYS) * 2 * 9 / 10, "{one_by_one:?}");
    assert!(gathered.reads < one_by_one.reads / 10, "{gathered:?}");
    assert!(gathered.round_trips <= one_by_one.round_trips * 2, "{gathered:?} {one_by_one:?}");
}

/// What it costs to scan everything, each way. Checks that each key is there, with its value.
fn costs_of_all(db: &Db, number_of: impl Fn(u32) -> u32) -> [Counts; 2] {
    let expect = |iterator: &DbIterator, i: u32| {
        assert_eq!((iterator.key(), iterator.value()), (&key(i)[..], &[number_of(i) as u8; 200][..]));
    };
    let mut iterator = db.iter().unwrap();
    let before = db.statistics().foreground;
    iterator.seek_to_first().unwrap();
    for i in 0..KEYS {
        expect(&iterator, i);
        iterator.next().unwrap();
    }
    assert!(!iterator.valid());
    let between = db.statistics().foreground;
    iterator.seek_to_last().unwrap();
    for i in (0..KEYS).rev() {
        expect(&iterator, i);
        iterator.prev().unwrap();
    }
    assert!(!iterator.valid());
    [between - before, db.statistics().foreground - between]
}

/// Which key's value a key has after [`fill_with_some_twice`].
fn written_last(i: u32) -> u32 {
    if i.is_multiple_of(5) { i + 1 } else { i }
}

/// Writes all keys, neighbours far from each other, and a part of them twice; then waits until the database is quiet.
fn fill_with_some_twice(db: &Db) {
    for i in (0..KEYS).map(|i| i * 7919 % KEYS) {
        db.put(&key(i), &[i as u8; 200]).unwrap();
        let before = (i + 3) * 7919 % KEYS;
        db.put(&key(before), &[before as u8; 200]).unwrap();
    }
    for i in (0..KEYS).step_by(5) {
        db.put(&key(i), &[written_last(i) as u8; 200]).unwrap();
    }
    db.flush().unwrap();
    db.wait_for_compactions().unwrap();
}

/// What each shape of a store that nobody compacted on request costs, each way: only flushed; and levels in the state
/// in which compactions leave them, of each style and near the data or here. Some records were written twice.
fn costs_of_scans(flush_order: FlushOrder) -> Vec<(String, [Counts; 2])> {
    let places = [CompactionPlace::MemoryNode, CompactionPlace::ComputeNode];
    let styles = [CompactionStyle::Clustered, CompactionStyle::Unclustered, CompactionStyle::Classic];
    let shapes = styles.iter().flat_map(|style| places.map(|place| (*style, place, 4)));
    let cost = |(compaction_style, compaction_place, level0_trigger)| {
        let cluster = Cluster::start(256 << 20);
        let db = cluster.open(Options {
            flush_order,
            compaction_style,
            compaction_place,
            level0_compaction_trigger: level0_trigger,
            write_buffer_bytes: 512 << 10,
            target_table_bytes: 512 << 10,
            level1_bytes: 1 << 20,
            gathering: Gathering::Never,
            settle_after: None,
            ..Options::default()
        });
        fill_with_some_twice(&db);
        let context =
            format!("{compaction_style:?} {compaction_place:?} {level0_trigger}: {:?}", db.statistics().levels);
        (context, costs_of_all(&db, written_last))
    };
    shapes.chain([(styles[0], places[0], 20)]).map(cost).collect()
}

#[test]
fn a_scan_streams_from_a_store_at_rest() {
    for flush_order in [FlushOrder::AsWritten, FlushOrder::ByKey] {
        let cluster = Cluster::start(256 << 20);
        let sizes = Options { target_table_bytes: 1 << 20, write_buffer_bytes: 512 << 10, ..Options::default() };
        // Nothing runs beside the fill, so the shape does not depend on time, and more than an eighth is scattered: it settles.
        let stepped =
            Options { background_threads: 0, max_immutable_memtables: 100, level0_stop_trigger: 100, ..sizes };
        let at_once = Options { settle_after: Some(Duration::ZERO), ..stepped };
        let db = cluster.open(Options { flush_order, level1_bytes: 1 << 20, gathering: Gathering::Never, ..at_once });
        fill_with_some_twice(&db);
        let levels = db.statistics().levels;
        let [forward, backward] = costs_of_all(&db, written_last);
        // Large reads, and nothing but what is shown.
        assert!(forward.reads * 200 <= u64::from(KEYS), "{flush_order:?}: {forward:?} {levels:?}");
        assert!(forward.bytes_read <= RECORD_BYTES * 11 / 10, "{flush_order:?}: {forward:?} {levels:?}");
        assert!(backward.reads * 100 <= u64::from(KEYS), "{flush_order:?}: {backward:?} {levels:?}");
    }
}

#[test]
fn a_scan_streams_from_a_store_that_was_flushed_by_key() {
    for (context, costs) in costs_of_scans(FlushOrder::ByKey) {
        for cost in costs {
            // Large reads of a few runs side by side, not one for each record.
            assert!(cost.reads * 12 <= u64::from(KEYS), "{context}: {cost:?}");
            assert!(cost.bytes_read <= RECORD_BYTES * 9 / 4, "{context}: {cost:?}");
        }
    }
}

#[test]
fn a_scan_of_records_as_they_were_written_takes_few_round_trips() {
    let all = costs_of_scans(FlushOrder::AsWritten);
    for (context, costs) in &all {
        for cost in costs {
            // A batch is one round trip, however many reads it takes, and no record takes more than one.
            assert!(cost.round_trips * 150 <= u64::from(KEYS), "{context}: {cost:?}");
            assert!(cost.reads <= u64::from(KEYS), "{context}: {cost:?}");
        }
    }
    // Runs of compactions are streamed with what newer tables shadow. Where there are none, little is read in vain.
    let (context, only_flushed) = all.last().unwrap();
    for cost in only_flushed {
        assert!(cost.bytes_read <= RECORD_BYTES * 5 / 4, "{context}: {cost:?}");
    }
}

#[test]
fn a_flush_takes_no_more_memory_than_what_was_written() {
    [FlushOrder::AsWritten, FlushOrder::ByKey].into_iter().for_each(a_flush_takes_no_more_memory);
}

fn a_flush_takes_no_more_memory(flush_order: FlushOrder) {
    let cluster = Cluster::start(256 << 20);
    let name = Some("flushed".into());
    let options = Options { name, flush_order, level0_compaction_trigger: 20, ..Options::default() };
    let db = cluster.open(options.clone());
    for i in (0..KEYS).map(|i| i * 7919 % KEYS) {
        db.put(&key(i), &[i as u8; 200]).unwrap();
    }
    db.flush().unwrap();
    let statistics = db.statistics();
    assert_eq!(statistics.levels[0].tables, 1, "{statistics:?}");
    let record_bytes = forebay_base::Record::encoded_length(8, 200, false) as u64;
    assert_eq!(statistics.live_bytes, record_bytes * u64::from(KEYS), "{statistics:?}");
    assert_eq!(statistics.dead_bytes_known, 0, "{statistics:?}");
    // Nothing is between the records of a run, so no index is read. A process that opens the database next also knows
    // that.
    let streams = |db: &Db| {
        let [forward, _] = costs_of_all(db, |i| i);
        let reads_index = forward.bytes_read > statistics.live_bytes;
        assert_eq!(reads_index, flush_order == FlushOrder::AsWritten, "{forward:?} {statistics:?}");
    };
    streams(&db);
    db.close().unwrap();
    drop(db);
    streams(&cluster.open(options));
}
