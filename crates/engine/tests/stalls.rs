//! The waits of writers, counted by cause, and the mode in which they never wait for level 0.

use crate::common::{Cluster, small_options};
use forebay_engine::{Db, Options};

fn load(db: &Db, records: u32) {
    for i in 0..records {
        // Neighbours go to different memtables.
        let key = i.wrapping_mul(2_654_435_761).to_be_bytes();
        db.put(&key, &[i as u8; 400]).unwrap();
    }
}

fn check(db: &Db, records: u32) {
    for i in 0..records {
        let key = i.wrapping_mul(2_654_435_761).to_be_bytes();
        assert_eq!(db.get(&key).unwrap().unwrap(), [i as u8; 400], "record {i}");
    }
}

#[test]
fn a_bulk_load_waits_for_no_compaction() {
    let cluster = Cluster::start(64 << 20);
    let db = cluster.open(Options { bulk_load: true, level0_stop_trigger: 20, ..small_options() });
    load(&db, 3_000);
    db.flush().unwrap();
    db.wait_for_compactions().unwrap();
    let statistics = db.statistics();
    assert_eq!(statistics.compactions, 0);
    assert!(statistics.levels[0].tables > 60, "{:?}", statistics.levels);
    let stalls = statistics.stalls_by_cause;
    assert_eq!((stalls.level0_slowdown.count, stalls.level0_stop.count), (0, 0));
    check(&db, 3_000);
    db.compact_range(None, None).unwrap();
    let levels = db.statistics().levels;
    assert_eq!(levels[0].tables, 0, "{levels:?}");
    assert_eq!(levels.iter().map(|level| level.entries).sum::<u64>(), 3_000);
    check(&db, 3_000);
}

fn check_sums(db: &Db) {
    let statistics = db.statistics();
    let stalls = statistics.stalls_by_cause;
    assert_eq!(stalls.memory_full.count, 0);
    assert_eq!(stalls.all().count, statistics.stalls);
    assert_eq!(stalls.all().nanos, statistics.stall_nanos);
}

#[test]
fn stalls_are_counted_by_cause() {
    let cluster = Cluster::start(64 << 20);
    let triggers = Options {
        level0_compaction_trigger: 1,
        level0_slowdown_trigger: 2,
        level0_stop_trigger: 2,
        max_immutable_memtables: 1,
        ..small_options()
    };
    let db = cluster.open(triggers);
    load(&db, 2_000);
    db.wait_for_compactions().unwrap();
    let stalls = db.statistics().stalls_by_cause;
    assert!(stalls.memtables.count + stalls.level0_stop.count > 0, "{stalls:?}");
    check_sums(&db);
    check(&db, 2_000);
}

#[test]
fn writers_are_slowed_down_while_level_0_has_tables() {
    let cluster = Cluster::start(64 << 20);
    let triggers = Options {
        background_threads: 0,
        level0_compaction_trigger: 1,
        level0_slowdown_trigger: 1,
        level0_stop_trigger: 1000,
        max_immutable_memtables: 1000,
        ..small_options()
    };
    let db = cluster.open(triggers);
    load(&db, 500);
    assert_eq!(db.statistics().stalls, 0);
    while db.statistics().levels.first().is_none_or(|level| level.tables == 0) {
        assert!(db.run_background_step());
    }
    load(&db, 500);
    let stalls = db.statistics().stalls_by_cause;
    assert!(stalls.level0_slowdown.count > 0, "{stalls:?}");
    check_sums(&db);
    check(&db, 500);
}
