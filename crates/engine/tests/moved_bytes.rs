//! The bytes that compactions move, compared with the baseline that rewrites every record, and the dead bytes that
//! stay.

use crate::common::Cluster;
use forebay_engine::{CompactionStyle, Db, FlushOrder, Options, Statistics};
use forebay_env::ManualClock;
use std::sync::Arc;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const RECORDS: u64 = 60_000;
/// Records of 20 million in 64 MiB, scaled to memtables of 256 KiB.
const SCALED_RECORDS: u64 = 20_000_000 / 256;

/// The same levels, and as many tables, as 20 million records have with memtables of 64 MiB.
fn options(compaction_style: CompactionStyle) -> Options {
    Options {
        write_buffer_bytes: 256 << 10,
        target_table_bytes: 256 << 10,
        level1_bytes: 1 << 20,
        level_size_multiplier: 10,
        compaction_style,
        // Measures what is moved while somebody writes.
        settle_after: None,
        ..Options::default()
    }
}

fn key(i: u64) -> Vec<u8> {
    let mut key = (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % RECORDS).to_be_bytes().to_vec();
    key.resize(20, b'0');
    key
}

/// Writes at random until the database is quiet.
fn fill(db: &Db) -> Statistics {
    for i in 0..RECORDS {
        db.put(&key(i), &[i as u8; 400]).unwrap();
    }
    settled(db)
}

/// Returns once everything is flushed and no compaction is due.
fn settled(db: &Db) -> Statistics {
    db.flush().unwrap();
    db.wait_for_compactions().unwrap();
    db.statistics()
}

/// The same with more records and always in the same steps: one flush or compaction for each `pace` records, the rest
/// at the end. So runs are comparable, whatever else the machine does.
fn fill_in_step(style: CompactionStyle, dead_percent: u64, pace: u64) -> Statistics {
    fill_with(Options { dead_percent, ..options(style) }, pace)
}

fn fill_with(options: Options, pace: u64) -> Statistics {
    let cluster = Cluster::start(512 * MIB);
    // The shard rests only where this thread waits.
    let db = cluster.open(Options { background_threads: 0, clock: Arc::new(ManualClock::new()), ..options });
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for i in 0..SCALED_RECORDS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut key = (random % SCALED_RECORDS).to_be_bytes().to_vec();
        key.resize(20, b'0');
        db.put(&key, &[i as u8; 400]).unwrap();
        if i % pace == 0 {
            db.run_background_step();
        }
    }
    settled(&db)
}

fn moved_bytes(statistics: &Statistics) -> u64 {
    statistics.compaction_bytes_read + statistics.compaction_bytes_written
}

fn check_moved(pace: u64) {
    let classic = fill_in_step(CompactionStyle::Classic, 25, pace);
    let clustered = fill_in_step(CompactionStyle::Clustered, 25, pace);
    let unclustered = fill_in_step(CompactionStyle::Unclustered, 25, pace);
    // Without collection: indexes alone.
    let indexes = fill_in_step(CompactionStyle::Unclustered, 1000, pace);
    let [all, default, collected, least] = [&classic, &clustered, &unclustered, &indexes].map(moved_bytes);
    println!("moved: classic {all}, clustered {default}, unclustered {collected}, without collection {least}");
    assert!(2 * default <= all, "{clustered:?} against {classic:?}");
    assert!(10 * least <= all, "{indexes:?} against {classic:?}");
    for statistics in [&clustered, &unclustered, &indexes] {
        assert!(statistics.compaction_fabric_bytes <= 12 * statistics.compaction_entries, "{statistics:?}");
        assert_eq!(statistics.levels.iter().rposition(|level| level.tables > 0), Some(3), "{statistics:?}");
    }
    for statistics in [&clustered, &unclustered] {
        assert!(statistics.dead_bytes_known <= statistics.live_bytes / 4 + MIB, "{statistics:?}");
    }
    for level in &clustered.levels {
        assert!(level.runs <= 8 * level.tables, "{clustered:?}");
    }
}

#[test]
fn compactions_move_half_of_what_classic_ones_do() {
    check_moved(300);
}

#[test]
fn compactions_that_lag_behind_move_half_of_what_classic_ones_do() {
    check_moved(1200);
}

#[test]
fn compactions_move_the_same_when_flushes_write_by_key() {
    for pace in [300, 1200] {
        let [as_written, by_key] = [FlushOrder::AsWritten, FlushOrder::ByKey].map(|flush_order| {
            let options = Options { flush_order, ..options(CompactionStyle::Clustered) };
            moved_bytes(&fill_with(options, pace))
        });
        println!("moved: as written {as_written}, by key {by_key}");
        assert!(by_key * 20 <= as_written * 21, "{by_key} against {as_written}");
    }
}

#[test]
fn a_shard_at_rest_moves_each_record_once() {
    let [left_alone, settled] = [None, Some(Duration::from_millis(500))]
        .map(|settle_after| fill_with(Options { settle_after, ..options(CompactionStyle::Clustered) }, 300));
    let moved = moved_bytes(&settled) - moved_bytes(&left_alone);
    println!("settling moves {moved} bytes of {}", settled.live_bytes);
    // Records are read and written once. An entry's place in an index is read and written with each merge.
    let merged = settled.compaction_entries - left_alone.compaction_entries;
    let indexes = merged * 80;
    assert!(moved <= 2 * settled.live_bytes + indexes, "{moved}: {settled:?}");
    assert_eq!(settled.dead_bytes_known, 0, "{settled:?}");
    let levels = settled.levels.iter().filter(|level| level.tables > 0);
    assert!(levels.clone().count() == 1 && levels.clone().all(|level| level.runs == level.tables), "{settled:?}");
}

#[test]
fn an_explicit_compaction_leaves_one_run_a_table() {
    for style in [CompactionStyle::Clustered, CompactionStyle::Classic] {
        let cluster = Cluster::start(512 * MIB);
        let db = cluster.open(options(style));
        fill(&db);
        db.compact_range(None, None).unwrap();
        let statistics = db.statistics();
        let records: u64 = statistics.levels.iter().map(|level| level.entries).sum();
        let most = records * (420 * 11 / 10 + 48);
        assert!(statistics.remote_bytes <= most, "{records} records: {statistics:?}");
        assert_eq!(statistics.dead_bytes_known, 0, "{statistics:?}");
        for level in &statistics.levels {
            assert_eq!(level.runs, level.tables, "{statistics:?}");
        }
    }
}

#[test]
fn overwriting_keeps_dead_bytes_under_their_share() {
    let cluster = Cluster::start(512 * MIB);
    let db = cluster.open(options(CompactionStyle::Clustered));
    let mut most = 0;
    for i in 0..2 * RECORDS {
        // Half of the writes go to a tenth of the keys; some records are small, some large.
        let number = if i % 2 == 0 { i % (RECORDS / 10) } else { i % RECORDS };
        let length = [40, 400, 400, 1500][(i % 4) as usize];
        db.put(&key(number), &vec![i as u8; length]).unwrap();
        if i % 10_000 == 0 {
            db.wait_for_compactions().unwrap();
            let statistics = db.statistics();
            let share = statistics.live_bytes / 4 + 4 * (256 << 10);
            assert!(statistics.dead_bytes_known <= share, "{statistics:?}");
            most = most.max(statistics.dead_bytes_known);
        }
    }
    assert!(most > 0);
    db.wait_for_compactions().unwrap();
    let statistics = db.statistics();
    assert!(statistics.dead_bytes_undiscovered <= statistics.live_bytes, "{statistics:?}");
    for i in (1..RECORDS).step_by(98) {
        assert!(db.get(&key(i)).unwrap().is_some());
    }
}

#[test]
fn several_threads_of_the_node_share_a_compaction() {
    let cluster = Cluster::start_with(forebay_memory_node::Options {
        threads: 3,
        ..forebay_memory_node::Options::with_memory(512 * MIB)
    });
    let larger =
        Options { write_buffer_bytes: 4 << 20, target_table_bytes: 4 << 20, ..options(CompactionStyle::default()) };
    let db = cluster.open(larger);
    let statistics = fill(&db);
    assert!(statistics.near_data_compactions > 0, "{statistics:?}");
    assert_eq!(statistics.near_data_compactions, statistics.compactions, "{statistics:?}");
    let mut seen = 0;
    let mut iterator = db.iter().unwrap();
    iterator.seek_to_first().unwrap();
    let mut last = None;
    while iterator.valid() {
        let key = iterator.key().to_vec();
        assert!(last.as_ref().is_none_or(|last| *last < key));
        last = Some(key);
        seen += 1;
        iterator.next().unwrap();
    }
    let expected: std::collections::BTreeSet<_> = (0..RECORDS).map(key).collect();
    assert_eq!(seen, expected.len());
}
