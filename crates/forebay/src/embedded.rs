//! A memory node in this process, and sessions at memory nodes.

use crate::Error;
use forebay_engine::Options;
use forebay_env::Clock;
use forebay_fabric::inprocess::{self, Connector};
use forebay_memory_client::{ClientOptions, MemoryClient, Reach};
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
    pub(crate) fn start(memory_bytes: u64, clock: &Arc<dyn Clock>) -> Result<Self, Error> {
        let (listener, connector) = inprocess::listen(0)?;
        let node_options = forebay_memory_node::Options {
            clock: Arc::clone(clock),
            ..forebay_memory_node::Options::with_memory(memory_bytes)
        };
        let handle = MemoryNode::start(Box::new(listener), node_options)?;
        Ok(Self { connector, _handle: Arc::new(handle) })
    }

    /// A session at the node.
    pub(crate) fn session(&self, options: ClientOptions) -> Result<Arc<MemoryClient>, Error> {
        Ok(MemoryClient::connect(self.connector.connect()?, NAME, options)?)
    }

    /// A session at the node, for a database with these options.
    pub(crate) fn reach(&self, options: &Options) -> Arc<Reach> {
        let (connector, options) = (self.connector.clone(), client_options(options));
        Arc::new(Reach::new(move || MemoryClient::connect(connector.connect()?, NAME, options.clone())))
    }
}

/// The name that databases give to memory nodes as their own.
pub(crate) const NAME: &str = "forebay";

/// How the sessions of a database with these options behave.
pub(crate) fn client_options(options: &Options) -> ClientOptions {
    let (timeout, clock) = (options.fabric_timeout, Arc::clone(&options.clock));
    ClientOptions { timeout, clock, ..ClientOptions::default() }
}
