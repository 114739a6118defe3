//! A memory node in this process, and trees on it.

#![allow(dead_code, reason = "each test uses a part")]

pub mod cuts;
pub mod dying;
pub mod halves;
pub mod history;

use forebay_fabric::inprocess::{Connector, listen};
use forebay_fabric::sim::{Order, SimNetwork, SimOptions};
use forebay_memory_client::{ClientOptions, MemoryClient};
use forebay_memory_node::{Handle, MemoryNode, Options};
use forebay_tree::{Tree, TreeClient, TreeOptions, Verb};
use std::sync::{Arc, Mutex};

/// Memory nodes, and how sessions are opened.
pub struct Nodes {
    nodes: Vec<(Handle, Connector)>,
}

impl Nodes {
    pub fn start(count: u32, memory_bytes: u64) -> Self {
        Self::with_extents(count, memory_bytes, 1 << 20)
    }

    pub fn with_extents(count: u32, memory_bytes: u64, extent_bytes: u64) -> Self {
        let start = |number| {
            let (listener, connector) = listen(number).unwrap();
            let options =
                Options { extent_bytes: Some(extent_bytes), threads: 0, ..Options::with_memory(memory_bytes) };
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

/// A simulated node that waiting callers serve, and sessions at it.
pub struct SimNode {
    network: SimNetwork,
}

impl SimNode {
    pub fn start(seed: u64) -> Self {
        let mut random = forebay_env::Random::seeded(seed);
        let options = SimOptions {
            order: [Order::Total, Order::Writes, Order::None][random.below(3) as usize],
            line_bytes: [8, 64][random.below(2) as usize],
            steps_per_poll: [1, 4, 16][random.below(3) as usize],
            ..SimOptions::default()
        };
        let network = SimNetwork::new(seed, options);
        let listener = network.listen(1).unwrap();
        let clock = network.clock();
        let lease = std::time::Duration::from_secs(100_000);
        let memory =
            Options { extent_bytes: Some(1 << 20), threads: 0, clock, lease, ..Options::with_memory(16 << 20) };
        let node = Mutex::new(MemoryNode::new(Box::new(listener), memory).unwrap());
        network.set_progress_hook(move || {
            if let Ok(mut node) = node.try_lock() {
                node.step(std::time::Duration::ZERO).expect("the node serves");
            }
        });
        Self { network }
    }

    pub fn sessions(&self) -> Vec<Arc<MemoryClient>> {
        let clock = self.network.clock();
        let options = ClientOptions { foreign_reads: true, renew: false, clock, ..ClientOptions::default() };
        vec![MemoryClient::connect(self.network.connect(1).unwrap(), "test", options).unwrap()]
    }
}

/// Small leaves: structure changes come soon.
pub fn small() -> TreeOptions {
    TreeOptions { slots: 3, most_buckets: 3, fill_percent: 60, ..TreeOptions::default() }
}

pub fn word(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}
