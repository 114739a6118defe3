//! A memory node, sessions and trees for the tests of this crate.

#[path = "../tests/common/dying.rs"]
pub mod dying;

use crate::{Tree, TreeClient, TreeOptions, Verb};
use forebay_fabric::inprocess::Connector;
use forebay_memory_client::{ClientOptions, MemoryClient};
use forebay_memory_node::{Handle, MemoryNode, Options};
use std::sync::Arc;

/// Starts a memory node with extents of a MiB.
pub fn start(memory_bytes: u64) -> (Handle, Connector) {
    let (listener, connector) = forebay_fabric::inprocess::listen(1).unwrap();
    let options = Options { extent_bytes: Some(1 << 20), threads: 0, ..Options::with_memory(memory_bytes) };
    (MemoryNode::start(Box::new(listener), options).unwrap(), connector)
}

/// Opens a session that a tree may use.
pub fn session(connector: &Connector) -> Arc<MemoryClient> {
    session_with(connector, ClientOptions::default())
}

/// Opens a session with these options that a tree may use.
pub fn session_with(connector: &Connector, options: ClientOptions) -> Arc<MemoryClient> {
    let options = ClientOptions { foreign_reads: true, ..options };
    MemoryClient::connect(connector.connect().unwrap(), "test", options).unwrap()
}

/// Creates a tree at a node of 16 extents.
pub fn tree() -> (Handle, Arc<MemoryClient>, Arc<Tree>) {
    let (node, connector) = start(16 << 20);
    let session = session(&connector);
    let tree = Tree::create(&[Arc::clone(&session)], "tree", TreeOptions::default()).unwrap();
    (node, session, tree)
}
