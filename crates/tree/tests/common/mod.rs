//! A memory node in this process, and trees on it.

#![allow(dead_code, reason = "each test uses a part")]

use forebay_fabric::inprocess::{Connector, listen};
use forebay_memory_client::{ClientOptions, MemoryClient};
use forebay_memory_node::{Handle, MemoryNode, Options};
use forebay_tree::{Tree, TreeOptions};
use std::sync::Arc;

/// Memory nodes, and how sessions are opened.
pub struct Nodes {
    nodes: Vec<(Handle, Connector)>,
}

impl Nodes {
    pub fn start(count: u32, memory_bytes: u64) -> Self {
        let start = |number| {
            let (listener, connector) = listen(number).unwrap();
            let options = Options { extent_bytes: Some(2 << 20), threads: 0, ..Options::with_memory(memory_bytes) };
            (MemoryNode::start(Box::new(listener), options).unwrap(), connector)
        };
        Self { nodes: (0..count).map(start).collect() }
    }

    /// A session at each node.
    pub fn sessions(&self) -> Vec<Arc<MemoryClient>> {
        let options = || ClientOptions { foreign_reads: true, ..ClientOptions::default() };
        let session = |(_, connector): &(Handle, Connector)| {
            MemoryClient::connect(connector.connect().unwrap(), "test", options()).unwrap()
        };
        self.nodes.iter().map(session).collect()
    }

    pub fn create(&self, options: TreeOptions) -> Arc<Tree> {
        Tree::create(&self.sessions(), "tree", options).unwrap()
    }

    pub fn open(&self) -> Arc<Tree> {
        Tree::open(&self.sessions(), "tree", TreeOptions::default()).unwrap()
    }
}

/// Small leaves: structure changes come soon.
pub fn small() -> TreeOptions {
    TreeOptions { slots: 3, most_buckets: 3, fill_percent: 60, ..TreeOptions::default() }
}

pub fn word(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}
