//! Databases whose jobs run in a pool of workers: all of it in this process, over the in-process fabric.

use crate::common::{Cluster, Folder, Stored, check, fill, key, open_stored, value};
use forebay_engine::{CompactionPlace, Durability, Statistics, Syncing};
use forebay_offload::{Policy, Weights};
use std::time::Duration;

#[test]
fn a_worker_does_compactions_where_the_memory_node_does_none() {
    let cluster = Cluster::start(0);
    let worker = cluster.worker();
    let db = cluster.open(CompactionPlace::Pool);
    fill(&db, 10_000, |_| ());
    let counted = check(&db, 10_000);
    assert!(counted.offloaded_compactions > 0, "{counted:?}");
    assert_eq!(counted.near_data_compactions, 0, "{counted:?}");
    assert!(counted.offloaded_flushes > 0, "{counted:?}");
    assert!(worker.statistics().completed >= counted.offloaded_compactions + counted.offloaded_flushes);
    assert!(worker.statistics().written_bytes > 0);
    db.close().unwrap();
    drop(db);
    cluster.expect_nothing_left();
}

/// Returns the bytes of objects that went between the compute node and the storage.
fn moved(statistics: &Statistics) -> u64 {
    statistics.storage.bytes_read + statistics.storage.bytes_written
}

/// A policy where jobs run at home only when nobody else takes them, and time decides nothing.
fn away() -> Policy {
    const DAY: u64 = 86_400_000_000_000;
    Policy { weights: Weights::AWAY, accept: DAY, silence: DAY, patience: DAY, ..Policy::default() }
}

/// Random writes with tables in storage: the worker moves the bytes of flushes, compactions and commits.
#[test]
fn next_to_nothing_moves_between_the_compute_node_and_the_storage() {
    const KEYS: u32 = 20_000;
    let cluster = Cluster::placing(0, away());
    let measure = |name: &str, stored: Stored| {
        let folder = Folder::new(name);
        let worker = (stored.place == CompactionPlace::Pool).then(|| cluster.worker_on(8, Some(folder.storage())));
        let db = open_stored(&cluster, &folder, stored);
        for round in 0..3 {
            for i in 0..KEYS {
                db.put(&key(i), &value(i, round)).unwrap();
            }
        }
        db.flush().unwrap();
        db.wait_for_compactions().unwrap();
        let counted = db.statistics();
        check(&db, KEYS);
        db.close().unwrap();
        drop(db);
        // All of it opens from storage, with a memory node that has nothing.
        let elsewhere = Cluster::start(1);
        let again = Stored { place: CompactionPlace::MemoryNode, compacts: false, ..stored };
        check(&open_stored(&elsewhere, &folder, again), KEYS);
        drop(worker);
        println!("{name}: {} bytes and {} of the log; {counted:?}", moved(&counted), counted.log.bytes);
        counted
    };
    let (home, pool) = (Stored::at(CompactionPlace::ComputeNode), Stored::at(CompactionPlace::Pool));
    let at_home = measure("at-home", home);
    let offloaded = measure("offloaded", pool);
    assert_eq!((at_home.offloaded_compactions, at_home.offloaded_copies, at_home.log.bytes), (0, 0, 0));
    assert!(offloaded.offloaded_compactions > 0 && offloaded.offloaded_copies >= offloaded.flushes, "{offloaded:?}");
    let (off, on) = (moved(&at_home), moved(&offloaded));
    assert!(10 * on <= off, "{off} bytes at home, {on} with a worker");
    // The same with flushes alone.
    let flushes = |stored| Stored { compacts: false, ..stored };
    let (off, on) = (measure("flushed", flushes(home)), measure("flushed-offloaded", flushes(pool)));
    assert_eq!((off.compactions, on.compactions), (0, 0));
    assert!(10 * moved(&on) <= moved(&off), "{} bytes at home, {} with a worker", moved(&off), moved(&on));
    // The compute node always ships the log of writes itself, once, whoever does the rest.
    let durability = Durability::Storage(Syncing::Interval(Duration::from_millis(20)));
    let logged = measure("logged", Stored { durability, ..pool });
    assert!(logged.log.bytes > 0 && logged.log.records == u64::from(3 * KEYS), "{logged:?}");
    assert!(10 * moved(&logged) <= moved(&at_home), "{} bytes beside the log", moved(&logged));
}

#[test]
fn without_workers_it_goes_on_at_home_or_at_the_memory_node() {
    for threads in [0, 1] {
        let cluster = Cluster::start(threads);
        let db = cluster.open(CompactionPlace::Pool);
        fill(&db, 3000, |_| ());
        let counted = check(&db, 3000);
        assert!(counted.compactions > 0 && counted.offloaded_compactions == 0, "{counted:?}");
        assert_eq!(counted.near_data_compactions > 0, threads > 0, "{counted:?}");
        drop(db);
        cluster.expect_nothing_left();
    }
}

#[test]
fn workers_come_and_go() {
    let cluster = Cluster::start(0);
    let db = cluster.open(CompactionPlace::Pool);
    let workers = std::cell::RefCell::new(vec![cluster.worker(), cluster.worker()]);
    fill(&db, 10_000, |written| {
        if written % 4000 == 3999 {
            let mut workers = workers.borrow_mut();
            workers.remove(0);
            workers.push(cluster.worker());
        }
    });
    let counted = check(&db, 10_000);
    assert!(counted.offloaded_compactions > 0, "{counted:?}");
    drop(db);
    drop(workers);
    cluster.expect_nothing_left();
}

#[test]
fn several_databases_share_a_worker() {
    let cluster = Cluster::start(0);
    // With this many threads, none of them is ever busier than the databases' own.
    let _worker = cluster.worker_with(16);
    let databases = [cluster.open(CompactionPlace::Pool), cluster.open(CompactionPlace::Pool)];
    let threads = databases.map(|db| {
        forebay_env::thread::spawn("writer", move || {
            fill(&db, 5000, |_| ());
            check(&db, 5000).offloaded_compactions
        })
        .unwrap()
    });
    let offloaded = threads.map(|thread| thread.join().unwrap());
    assert!(offloaded.iter().all(|&count| count > 0), "{offloaded:?}");
    cluster.expect_nothing_left();
}
