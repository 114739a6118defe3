//! A memory node in this process, for tests.

#![allow(dead_code)]

use forebay_engine::{Db, Options};
use forebay_fabric::inprocess::{self, Connector};
use forebay_memory_client::{ClientOptions, MemoryClient};
use forebay_memory_node::{Handle, MemoryNode};
use std::sync::Arc;
use std::time::Duration;

pub struct Cluster {
    node: Option<Handle>,
    connector: Connector,
}

impl Cluster {
    pub fn start(memory_bytes: u64) -> Self {
        let (listener, connector) = inprocess::listen(1).unwrap();
        let options = forebay_memory_node::Options::with_memory(memory_bytes);
        let node = MemoryNode::start(Box::new(listener), options).unwrap();
        Self { node: Some(node), connector }
    }

    pub fn client(&self) -> Arc<MemoryClient> {
        MemoryClient::connect(self.connector.connect().unwrap(), "test", ClientOptions::default()).unwrap()
    }

    pub fn open(&self, options: Options) -> Db {
        Db::open(self.client(), options).unwrap()
    }

    /// Ends the node, as far as its clients can tell.
    pub fn stop(&mut self) {
        self.node = None;
    }

    pub fn expect_nothing_leased(&self) {
        let client = self.client();
        for _ in 0..100 {
            if client.node_statistics().unwrap().leased_extents == 0 {
                return;
            }
            #[allow(clippy::disallowed_methods)]
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("extents are leased though nobody is left: {:?}", client.node_statistics());
    }
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
