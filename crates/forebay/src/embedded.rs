//! A memory node in this process, and sessions at memory nodes.

use crate::Error;
use forebay_engine::Options;
use forebay_fabric::Link;
use forebay_fabric::inprocess::{self, Connector};
use forebay_memory_client::{ClientOptions, MemoryClient};
use forebay_memory_node::{Handle, MemoryNode};
use std::sync::Arc;

/// A memory node that is a thread of this process. It ends with its last clone.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    connector: Connector,
    /// Keeps the node running.
    _handle: Arc<Handle>,
}

impl Node {
    /// Starts a node that offers `memory_bytes`.
    pub(crate) fn start(memory_bytes: u64, options: &Options) -> Result<Self, Error> {
        let (listener, connector) = inprocess::listen(0)?;
        let node_options = forebay_memory_node::Options {
            clock: Arc::clone(&options.clock),
            ..forebay_memory_node::Options::with_memory(memory_bytes)
        };
        let handle = MemoryNode::start(Box::new(listener), node_options)?;
        Ok(Self { connector, _handle: Arc::new(handle) })
    }

    /// A session at the node, for a database with these options.
    pub(crate) fn client(&self, options: &Options) -> Result<Arc<MemoryClient>, Error> {
        client(self.connector.connect()?, options)
    }
}

/// A session over `link`, for a database with these options.
pub(crate) fn client(link: Arc<dyn Link>, options: &Options) -> Result<Arc<MemoryClient>, Error> {
    let client_options = ClientOptions {
        timeout: options.fabric_timeout,
        clock: Arc::clone(&options.clock),
        ..ClientOptions::default()
    };
    Ok(MemoryClient::connect(link, "forebay", client_options)?)
}
