//! A memory node in this process, for tests.

#![allow(dead_code)]

use forebay_engine::{Db, Options};
use forebay_env::{Clock, Nanos, SystemClock};
use forebay_fabric::Link;
use forebay_fabric::inprocess::{self, Connector};
use forebay_memory_client::{ClientOptions, ExtentId, MemoryClient};
use forebay_memory_node::{Handle, MemoryNode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub mod copied;
pub mod crossed;
pub mod flips;
pub mod model;
pub mod process;
pub mod stored;

pub struct Cluster {
    node: Option<Handle>,
    connector: Connector,
}

impl Cluster {
    pub fn start(memory_bytes: u64) -> Self {
        Self::start_with(forebay_memory_node::Options::with_memory(memory_bytes))
    }

    pub fn start_with(options: forebay_memory_node::Options) -> Self {
        let (listener, connector) = inprocess::listen(1).unwrap();
        let node = MemoryNode::start(Box::new(listener), options).unwrap();
        Self { node: Some(node), connector }
    }

    pub fn connect(&self) -> Arc<dyn Link> {
        self.connector.connect().unwrap()
    }

    pub fn client(&self) -> Arc<MemoryClient> {
        MemoryClient::connect(self.connect(), "test", ClientOptions::default()).unwrap()
    }

    pub fn open(&self, options: Options) -> Db {
        Db::open(&[self.client()], options).unwrap()
    }

    /// Flips bits of a byte of the node's memory.
    pub fn rot(&self, extent: u32, offset: usize, mask: u8) {
        self.node.as_ref().unwrap().rot(ExtentId(extent), offset as u64, mask).unwrap();
    }

    /// The bytes of an extent; none when there is no such extent.
    pub fn bytes_of(&self, extent: u32) -> Vec<u8> {
        self.node.as_ref().unwrap().bytes_of(ExtentId(extent))
    }

    /// Ends the node, as far as its clients can tell.
    pub fn stop(&mut self) {
        self.node = None;
    }

    /// Waits until nothing of the node's memory or directory is in use.
    pub fn expect_nothing_leased(&self) {
        let client = self.client();
        eventually("nothing is held when nobody is left", || {
            let node = client.node_statistics().unwrap();
            node.leased_extents + node.adopted_extents + node.job_extents + node.job_bytes + node.stores == 0
        });
    }
}

/// The machine's clock, except for the time since 1970, which is set at will.
#[derive(Debug, Default)]
pub struct SetClock {
    machine: SystemClock,
    wall_ms: AtomicU64,
}

impl SetClock {
    pub fn set(&self, wall_ms: u64) {
        self.wall_ms.store(wall_ms, Ordering::Relaxed);
    }
}

impl Clock for SetClock {
    fn now(&self) -> Nanos {
        self.machine.now()
    }

    fn wall_ms(&self) -> u64 {
        self.wall_ms.load(Ordering::Relaxed)
    }

    fn sleep(&self, duration: Duration) {
        self.machine.sleep(duration);
    }
}

/// Waits for a condition that other threads are about to make true.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..200 {
        if holds() {
            return;
        }
        #[allow(clippy::disallowed_methods)]
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("it never came true that {what}");
}

/// Waits until the database takes at most this many bytes at the node. A background thread that was looking at a
/// version when it was replaced, and has not run since, still holds that version.
pub fn expect_remote_bytes(db: &Db, most: u64) {
    eventually("what compactions replaced is given back", || {
        db.wait_for_compactions().unwrap();
        db.statistics().remote_bytes <= most
    });
}

/// Options that flush and compact all the time.
pub fn small_options() -> Options {
    Options {
        write_buffer_bytes: 16 << 10,
        target_table_bytes: 16 << 10,
        level1_bytes: 64 << 10,
        level_size_multiplier: 4,
        levels: 5,
        fabric_timeout: Duration::from_secs(5),
        ..Options::default()
    }
}

/// Ends the other threads of a test, even when it fails.
pub struct SetWhenDropped<'a>(pub &'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
