//! Databases whose compactions run in a pool of workers: all of it in this process, over the in-process fabric.

use forebay_engine::{CompactionPlace, Compression, Db, Options, Statistics, Storage, StorageOptions};
use forebay_env::{Clock, SystemClock};
use forebay_fabric::inprocess::{self, Connector};
use forebay_memory_client::{ClientOptions, MemoryClient, Reach};
use forebay_memory_node::{Handle, MemoryNode};
use forebay_worker::Worker;
use std::sync::Arc;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// A memory node with so many threads for jobs of its own.
struct Cluster {
    node: Handle,
    connector: Connector,
}

impl Cluster {
    fn start(threads: usize) -> Self {
        let (listener, connector) = inprocess::listen(1).unwrap();
        let options = forebay_memory_node::Options { threads, ..forebay_memory_node::Options::with_memory(128 * MIB) };
        Self { node: MemoryNode::start(Box::new(listener), options).unwrap(), connector }
    }

    fn client(&self, name: &str) -> Arc<MemoryClient> {
        MemoryClient::connect(self.connector.connect().unwrap(), name, ClientOptions::default()).unwrap()
    }

    fn reach(&self) -> Reach {
        let connector = self.connector.clone();
        Reach::new(move || MemoryClient::connect(connector.connect()?, "worker", ClientOptions::default()))
    }

    fn worker(&self) -> Worker {
        self.worker_with(1)
    }

    /// A worker that the scheduler knows.
    fn worker_with(&self, threads: u32) -> Worker {
        self.worker_on(threads, None)
    }

    fn worker_on(&self, threads: u32, storage: Option<Storage>) -> Worker {
        let options = forebay_worker::Options { threads, storage, ..forebay_worker::Options::default() };
        let worker = Worker::start(vec![self.reach()], Arc::new(self.reach()), options).unwrap();
        while !worker.is_known() {
            SystemClock::new().sleep(Duration::from_millis(1));
        }
        worker
    }

    fn open(&self, place: CompactionPlace) -> Db {
        let options = Options {
            write_buffer_bytes: 128 << 10,
            target_table_bytes: 128 << 10,
            level1_bytes: 512 << 10,
            level_size_multiplier: 4,
            shards: 2,
            compaction_place: place,
            ..Options::default()
        };
        Db::open(&[self.client("database")], options).unwrap()
    }

    fn expect_nothing_left(&self) {
        let clock = SystemClock::new();
        for _ in 0..500 {
            let left = self.node.statistics();
            if left.leased_extents + left.adopted_extents + left.job_extents + left.job_bytes + left.stores == 0 {
                return;
            }
            clock.sleep(Duration::from_millis(10));
        }
        panic!("something is left: {:?}", self.node.statistics());
    }
}

fn key(i: u32) -> Vec<u8> {
    i.wrapping_mul(2_654_435_761).to_be_bytes().to_vec()
}

fn value(i: u32, round: u8) -> Vec<u8> {
    vec![round ^ i as u8; 60 + (i % 90) as usize]
}

fn fill(db: &Db, keys: u32, meanwhile: impl Fn(u32)) {
    for round in 0..3 {
        for i in 0..keys {
            db.put(&key(i), &value(i, round)).unwrap();
            meanwhile(u32::from(round) * keys + i);
        }
    }
    db.flush().unwrap();
    db.wait_for_compactions().unwrap();
}

fn check(db: &Db, keys: u32) -> Statistics {
    for i in 0..keys {
        assert_eq!(db.get(&key(i)).unwrap().as_deref(), Some(&value(i, 2)[..]), "key {i}");
    }
    db.statistics()
}

#[test]
fn a_worker_does_compactions_where_the_memory_node_does_none() {
    let cluster = Cluster::start(0);
    let worker = cluster.worker();
    let db = cluster.open(CompactionPlace::Pool);
    fill(&db, 10_000, |_| ());
    let counted = check(&db, 10_000);
    assert!(counted.offloaded_compactions > 0, "{counted:?}");
    assert_eq!(counted.near_data_compactions, 0, "{counted:?}");
    assert!(worker.statistics().completed >= counted.offloaded_compactions);
    assert!(worker.statistics().written_bytes > 0);
    db.close().unwrap();
    drop(db);
    cluster.expect_nothing_left();
}

/// A folder that is removed.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&folder));
        Self(folder)
    }

    /// The storage there, counted by itself.
    fn storage(&self) -> Storage {
        Storage::open(self.0.to_str().unwrap(), StorageOptions::default()).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn open_stored(cluster: &Cluster, folder: &Folder, place: CompactionPlace, compacts: bool) -> Db {
    let options = Options {
        name: Some("db".into()),
        storage: Some(folder.storage()),
        storage_from_level: Some(1),
        compression: Compression::None,
        write_buffer_bytes: 128 << 10,
        target_table_bytes: 512 << 10,
        level1_bytes: 512 << 10,
        level_size_multiplier: 4,
        level0_compaction_trigger: if compacts { 4 } else { 1000 },
        level0_slowdown_trigger: 1000,
        level0_stop_trigger: 1000,
        compaction_place: place,
        ..Options::default()
    };
    Db::open(&[cluster.client("database")], options).unwrap()
}

/// Bytes that went between the compute node and the storage.
fn moved(statistics: &Statistics) -> u64 {
    statistics.storage.bytes_read + statistics.storage.bytes_written
}

#[test]
fn compactions_into_storage_move_next_to_nothing_over_the_compute_node() {
    const KEYS: u32 = 20_000;
    let cluster = Cluster::start(0);
    let measure = |name: &str, place, compacts, with_worker: bool| {
        let folder = Folder::new(name);
        let storage = with_worker.then(|| folder.storage());
        let worker = storage.map(|storage| cluster.worker_on(8, Some(storage)));
        let db = open_stored(&cluster, &folder, place, compacts);
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
        // All of it is in storage, with a memory node that has nothing.
        let elsewhere = Cluster::start(1);
        let again = open_stored(&elsewhere, &folder, CompactionPlace::MemoryNode, false);
        check(&again, KEYS);
        drop(worker);
        counted
    };
    let flushed = measure("flushed", CompactionPlace::ComputeNode, false, false);
    let at_home = measure("at-home", CompactionPlace::ComputeNode, true, false);
    // Where threads do not run for seconds, a job may come home.
    let is_whole = |counted: &Statistics| counted.offloaded_compactions == counted.compactions;
    let mut offloaded = (0..5).map(|_| measure("offloaded", CompactionPlace::Pool, true, true));
    let offloaded = offloaded.find(is_whole).expect("a run in which no compaction came home");
    assert_eq!((flushed.compactions, at_home.offloaded_compactions), (0, 0));
    assert!(offloaded.offloaded_compactions > 0, "{offloaded:?}");
    // What a flush puts is the same in all of them.
    let beside = |statistics: &Statistics| moved(statistics).saturating_sub(moved(&flushed));
    let (home, pool) = (beside(&at_home), beside(&offloaded));
    assert!(10 * pool <= home, "{home} bytes at home, {pool} in the pool");
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
    // So many threads that none of them is ever busier than the databases' own.
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
