//! Memory nodes, workers and databases of one process, over the in-process fabric.

#![allow(dead_code, reason = "not every test uses all of it")]

use forebay_engine::{
    CompactionPlace, Compression, Db, Durability, FlushPlace, Options, Statistics, Storage, StorageOptions,
};
use forebay_env::{Clock, SystemClock};
use forebay_fabric::inprocess::{self, Connector};
use forebay_memory_client::{ClientOptions, MemoryClient, Reach};
use forebay_memory_node::{Handle, MemoryNode};
use forebay_offload::Policy;
use forebay_worker::Worker;
use std::sync::Arc;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// A memory node with a number of threads for jobs of its own.
pub struct Cluster {
    node: Handle,
    connector: Connector,
}

impl Cluster {
    pub fn start(threads: usize) -> Self {
        Self::placing(threads, Policy::default())
    }

    /// A cluster that places jobs by this policy.
    pub fn placing(threads: usize, placement: Policy) -> Self {
        let (listener, connector) = inprocess::listen(1).unwrap();
        let options =
            forebay_memory_node::Options { threads, placement, ..forebay_memory_node::Options::with_memory(128 * MIB) };
        Self { node: MemoryNode::start(Box::new(listener), options).unwrap(), connector }
    }

    fn client(&self, name: &str) -> Arc<MemoryClient> {
        MemoryClient::connect(self.connector.connect().unwrap(), name, ClientOptions::default()).unwrap()
    }

    fn reach(&self) -> Reach {
        let connector = self.connector.clone();
        Reach::new(move || MemoryClient::connect(connector.connect()?, "worker", ClientOptions::default()))
    }

    pub fn worker(&self) -> Worker {
        self.worker_with(1)
    }

    /// A worker that the scheduler knows.
    pub fn worker_with(&self, threads: u32) -> Worker {
        self.worker_on(threads, None)
    }

    pub fn worker_on(&self, threads: u32, storage: Option<Storage>) -> Worker {
        let options = forebay_worker::Options { threads, storage, ..forebay_worker::Options::default() };
        let worker = Worker::start(vec![self.reach()], Arc::new(self.reach()), options).unwrap();
        while !worker.is_known() {
            SystemClock::new().sleep(Duration::from_millis(1));
        }
        worker
    }

    pub fn open(&self, place: CompactionPlace) -> Db {
        let options = Options {
            write_buffer_bytes: 128 << 10,
            target_table_bytes: 128 << 10,
            level1_bytes: 512 << 10,
            level_size_multiplier: 4,
            shards: 2,
            compaction_place: place,
            flush_place: FlushPlace::AsCompactions,
            ..Options::default()
        };
        Db::open(&[self.client("database")], options).unwrap()
    }

    pub fn expect_nothing_left(&self) {
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

pub fn key(i: u32) -> Vec<u8> {
    i.wrapping_mul(2_654_435_761).to_be_bytes().to_vec()
}

pub fn value(i: u32, round: u8) -> Vec<u8> {
    vec![round ^ i as u8; 60 + (i % 90) as usize]
}

pub fn fill(db: &Db, keys: u32, meanwhile: impl Fn(u32)) {
    for round in 0..3 {
        for i in 0..keys {
            db.put(&key(i), &value(i, round)).unwrap();
            meanwhile(u32::from(round) * keys + i);
        }
    }
    db.flush().unwrap();
    db.wait_for_compactions().unwrap();
}

pub fn check(db: &Db, keys: u32) -> Statistics {
    for i in 0..keys {
        assert_eq!(db.get(&key(i)).unwrap().as_deref(), Some(&value(i, 2)[..]), "key {i}");
    }
    db.statistics()
}

/// A folder that is removed when this is dropped.
pub struct Folder(std::path::PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&folder));
        Self(folder)
    }

    /// Returns the storage in the folder, with counts of its own.
    pub fn storage(&self) -> Storage {
        Storage::open(self.0.to_str().unwrap(), StorageOptions::default()).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// The options of a database in a folder that differ from test to test.
#[derive(Debug, Clone, Copy)]
pub struct Stored {
    pub place: CompactionPlace,
    pub durability: Durability,
    pub compacts: bool,
}

impl Stored {
    /// A database that compacts, and whose writes are durable with their flush.
    pub fn at(place: CompactionPlace) -> Self {
        Self { place, durability: Durability::None, compacts: true }
    }
}

pub fn open_stored(cluster: &Cluster, folder: &Folder, stored: Stored) -> Db {
    let options = Options {
        name: Some("db".into()),
        storage: Some(folder.storage()),
        storage_from_level: Some(1),
        compression: Compression::None,
        durability: stored.durability,
        write_buffer_bytes: 128 << 10,
        target_table_bytes: 512 << 10,
        level1_bytes: 512 << 10,
        level_size_multiplier: 4,
        level0_compaction_trigger: if stored.compacts { 4 } else { 1000 },
        level0_slowdown_trigger: 1000,
        level0_stop_trigger: 1000,
        compaction_place: stored.place,
        ..Options::default()
    };
    Db::open(&[cluster.client("database")], options).unwrap()
}
