//! Compactions at the memory node: their cost on the fabric, and what happens when the node does not run them.

use crate::common::model::walk;
use crate::common::{Cluster, small_options};
use forebay_base::ErrorKind;
use forebay_engine::{CompactionPlace, Db, Durability, FlushOrder, FlushPlace, Options, Statistics};
use forebay_memory_client::{ClientOptions, MemoryClient};

const MIB: u64 = 1 << 20;

fn node(change: impl FnOnce(&mut forebay_memory_node::Options)) -> Cluster {
    let mut options = forebay_memory_node::Options::with_memory(256 * MIB);
    change(&mut options);
    Cluster::start_with(options)
}

fn key(i: u32) -> Vec<u8> {
    format!("{:020}", i.wrapping_mul(2_654_435_761)).into_bytes()
}

/// Writes and overwrites, reads everything back, and returns the counts.
fn fill(db: &Db, keys: u32, value_bytes: usize) -> Statistics {
    for round in 0..2u8 {
        for i in 0..keys {
            db.put(&key(i), &vec![round ^ i as u8; value_bytes]).unwrap();
        }
    }
    db.flush().unwrap();
    db.wait_for_compactions().unwrap();
    let statistics = db.statistics();
    for i in (0..keys).step_by(13) {
        assert_eq!(db.get(&key(i)).unwrap().unwrap(), vec![1 ^ i as u8; value_bytes]);
    }
    statistics
}

/// Memtables and tables of 2 MiB, so that the entries are most of each table.
fn medium_options() -> Options {
    Options {
        write_buffer_bytes: 2 << 20,
        target_table_bytes: 2 << 20,
        level1_bytes: 8 << 20,
        level_size_multiplier: 4,
        ..Options::default()
    }
}

#[test]
fn a_compaction_near_the_data_moves_few_bytes_an_entry() {
    let cluster = node(|_| {});
    let db = cluster.open(medium_options());
    let there = fill(&db, 150_000, 100);
    assert!(there.compactions >= 3 && there.near_data_compactions == there.compactions, "{there:?}");
    let moved = there.compaction_fabric_bytes;
    assert!(moved <= 12 * there.compaction_entries, "{there:?}");
    assert_eq!(there.background.reads, 0, "nothing is read one-sidedly: {there:?}");
    db.close().unwrap();
    drop(db);
    cluster.expect_nothing_leased();

    let db = cluster.open(Options { compaction_place: CompactionPlace::ComputeNode, ..medium_options() });
    let here = fill(&db, 150_000, 100);
    assert_eq!(here.near_data_compactions, 0);
    let moved_here = here.compaction_fabric_bytes;
    assert!(moved_here / here.compaction_entries > 4 * (moved / there.compaction_entries), "{here:?}");
}

#[test]
fn a_refused_compaction_runs_at_the_compute_node() {
    let cluster = node(|options| options.tenants.others.jobs = Some(0));
    let db = cluster.open(small_options());
    let statistics = fill(&db, 3000, 100);
    assert!(statistics.compactions > 0 && statistics.near_data_compactions == 0, "{statistics:?}");
    assert_eq!(statistics.refused_compactions, statistics.compactions);
}

#[test]
fn a_node_without_threads_for_jobs_is_not_asked() {
    let cluster = node(|options| options.threads = 0);
    let db = cluster.open(small_options());
    let statistics = fill(&db, 3000, 100);
    assert!(statistics.compactions > 0, "{statistics:?}");
    assert_eq!((statistics.near_data_compactions, statistics.refused_compactions), (0, 0));
}

#[test]
fn a_node_that_does_not_know_compactions_is_no_trouble() {
    let cluster = node(|options| options.jobs = forebay_memory_node::JobRegistry::diagnostic());
    let db = cluster.open(small_options());
    let statistics = fill(&db, 3000, 100);
    assert!(statistics.compactions > 0 && statistics.near_data_compactions == 0, "{statistics:?}");
}

#[test]
fn what_does_not_fit_into_the_reply_is_read() {
    let cluster = node(|_| {});
    let options = ClientOptions { job_reply_bytes: 8 << 10, ..ClientOptions::default() };
    let client = MemoryClient::connect(cluster.connect(), "test", options).unwrap();
    let db = Db::open(&[client], medium_options()).unwrap();
    let statistics = fill(&db, 40_000, 100);
    assert!(statistics.compactions > 0, "{statistics:?}");
    assert_eq!(statistics.near_data_compactions, statistics.compactions);
    assert!(statistics.background.reads > 0, "{statistics:?}");
}

#[test]
fn outputs_come_back_while_the_database_is_open() {
    let cluster = node(|options| (options.extent_bytes, options.job_bytes) = (Some(256 << 10), Some(1)));
    let client = cluster.client();
    assert_eq!(client.node_statistics().unwrap().kept_extents, 1);
    let db = Db::open(std::slice::from_ref(&client), small_options()).unwrap();
    let statistics = fill(&db, 5000, 100);
    assert!(statistics.near_data_compactions > 0 && statistics.refused_compactions == 0, "{statistics:?}");
    assert!(client.node_statistics().unwrap().job_extents > 2, "the node's part grows");
    for i in 0..5000 {
        db.delete(&key(i)).unwrap();
    }
    db.compact_range(None, None).unwrap();
    crate::common::expect_remote_bytes(&db, 0);
    // Background threads send frees in batches.
    crate::common::eventually("the node has its part back", || {
        let node = client.node_statistics().unwrap();
        (node.job_bytes, node.job_extents, node.kept_extents) == (0, 0, 1)
    });
}

#[test]
fn a_database_closes_while_the_node_compacts_for_it() {
    let cluster = node(|_| {});
    for puts in (5_000..50_000u32).step_by(7_500) {
        let db = cluster.open(Options { level0_compaction_trigger: 2, ..medium_options() });
        for i in 0..puts {
            db.put(&key(i), &[1; 400]).unwrap();
        }
        let snapshot = db.snapshot();
        db.close().unwrap();
        assert_eq!(db.get_at(&key(0), &snapshot).map_err(|error| error.kind()), Err(ErrorKind::Closed));
        drop((db, snapshot));
        cluster.expect_nothing_leased();
    }
}

#[test]
fn a_node_lost_during_a_compaction_is_an_error() {
    let mut cluster = node(|_| {});
    let db = cluster.open(medium_options());
    for i in 0..60_000 {
        db.put(&key(i), &[1; 400]).unwrap();
    }
    cluster.stop();
    // About once in a hundred runs nothing is in progress. Then the flush finds the node gone.
    let result = db.wait_for_compactions().and_then(|()| db.flush());
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(db.close().is_err());
}

/// The memory node builds the index of a flush from the records that are there. The compute node reads none of them.
#[test]
fn a_flush_near_the_data_sends_the_records_alone() {
    let cluster = node(|_| {});
    // No compaction, for which a flush would not wait.
    let quiet = || Options {
        level0_compaction_trigger: 1000,
        level0_slowdown_trigger: 1000,
        level0_stop_trigger: 1000,
        settle_after: None,
        ..medium_options()
    };
    let fill = |options: Options| {
        let db = cluster.open(options);
        for i in 0..40_000 {
            db.put(&key(i), &[i as u8; 100]).unwrap();
            if i % 10 == 0 {
                db.delete(&key(i / 2)).unwrap();
            }
        }
        db.delete_range(&key(2), &key(1)).unwrap();
        db.flush().unwrap();
        let made = (db.statistics(), walk(db.iter().unwrap()));
        db.close().unwrap();
        made
    };
    let (here, expected) = fill(quiet());
    assert_eq!(here.offloaded_flushes, 0);
    let (there, found) = fill(Options { flush_place: FlushPlace::AsCompactions, ..quiet() });
    // A flush that begins while the node runs another one has its index built here.
    assert!(there.offloaded_flushes > 1, "{there:?}");
    assert_eq!((there.near_data_compactions, there.background.reads), (0, 0), "{there:?}");
    assert!(found == expected);
    // The index is not sent.
    assert!(there.background.bytes_written * 100 < here.background.bytes_written * 95, "{here:?} {there:?}");
    for options in [
        Options { flush_order: FlushOrder::ByKey, ..quiet() },
        Options { compaction_place: CompactionPlace::ComputeNode, ..quiet() },
    ] {
        let (at_home, found) = fill(Options { flush_place: FlushPlace::AsCompactions, ..options });
        assert_eq!(at_home.offloaded_flushes, 0);
        assert!(found == expected);
    }
    cluster.expect_nothing_leased();
}

#[test]
fn a_refused_flush_runs_at_the_compute_node() {
    let cluster = node(|options| options.tenants.others.jobs = Some(0));
    let db = cluster.open(Options { flush_place: FlushPlace::AsCompactions, ..small_options() });
    let statistics = fill(&db, 3000, 100);
    assert!(statistics.flushes > 0 && statistics.offloaded_flushes == 0, "{statistics:?}");
}

/// The index is built where the log in memory has the records.
#[test]
fn a_flush_near_the_data_names_the_log() {
    let cluster = node(|_| {});
    let (name, durability) = (Some("logged".to_owned()), Durability::Memory { copies: 1 });
    let options = Options { name, durability, flush_place: FlushPlace::AsCompactions, ..medium_options() };
    let db = cluster.open(options.clone());
    let statistics = fill(&db, 30_000, 100);
    assert!(statistics.offloaded_flushes > 0, "{statistics:?}");
    let expected = walk(db.iter().unwrap());
    db.close().unwrap();
    drop(db);
    assert!(walk(cluster.open(options).iter().unwrap()) == expected);
}
