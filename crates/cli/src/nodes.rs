//! Memory nodes: starting one in this process, and reaching others.

use crate::arguments::NodeAddresses;
use crate::failure::{Failure, Stage};
use forebay::{MemoryNode, MemoryNodeOptions, NodeAddress};
use forebay_base::ErrorKind;
use forebay_fabric::{Link, inprocess};
use forebay_memory_client::{ClientOptions, MemoryClient};
use forebay_memory_node::Handle;
use std::fmt::Display;
use std::sync::Arc;

/// A link to a memory node, and the node if it is in this process.
#[derive(Debug)]
pub struct Reached {
    /// The link.
    pub link: Arc<dyn Link>,
    /// The node of this process, which ends when this is dropped.
    pub node: Option<Handle>,
}

/// Opens a link. First starts a node of `local_bytes` if the address is `local`.
///
/// # Errors
/// When the node cannot be started or reached.
pub fn reach(memory: &NodeAddress, local_bytes: u64) -> Result<Reached, Failure> {
    if *memory != NodeAddress::Local {
        return Ok(Reached { link: link(memory)?, node: None });
    }
    let fabric = Failure::fabric(Stage::Start);
    let (listener, connector) = inprocess::listen(0).map_err(&fabric)?;
    let node = MemoryNode::start(Box::new(listener), MemoryNodeOptions::with_memory(local_bytes))
        .map_err(|error| Failure::new(error.kind(), Stage::Start, error))?;
    Ok(Reached { link: connector.connect().map_err(&fabric)?, node: Some(node) })
}

fn link(memory: &NodeAddress) -> Result<Arc<dyn Link>, Failure> {
    forebay::connect(memory)
        .map_err(|error| Failure::new(error.kind(), Stage::Start, with_hint(error.kind(), &error, memory)))
}

/// Opens a session at a memory node of another process. This process calls itself `process`.
///
/// # Errors
/// When the node cannot be reached, or does not let this process in.
pub fn session(memory: &NodeAddress, process: &str) -> Result<Arc<MemoryClient>, Failure> {
    let options = ClientOptions { address: memory.to_string(), ..ClientOptions::default() };
    let client = MemoryClient::connect(link(memory)?, process, options);
    client.map_err(|error| Failure::new(error.kind(), Stage::Start, error))
}

/// A memory node for several links, or one in this process.
#[derive(Debug)]
pub struct Nodes {
    address: NodeAddress,
    local: Option<(inprocess::Connector, Handle)>,
}

impl Nodes {
    /// Starts a node of `local_bytes` if the address is `local`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn new(address: &NodeAddress, local_bytes: u64) -> Result<Self, Failure> {
        let mut nodes = Self { address: address.clone(), local: None };
        if *address == NodeAddress::Local {
            let (listener, connector) = inprocess::listen(0).map_err(Failure::fabric(Stage::Start))?;
            let node = MemoryNode::start(Box::new(listener), MemoryNodeOptions::with_memory(local_bytes))
                .map_err(|error| Failure::new(error.kind(), Stage::Start, error))?;
            nodes.local = Some((connector, node));
        }
        Ok(nodes)
    }

    /// Opens one more link.
    ///
    /// # Errors
    /// When the node cannot be reached.
    pub fn link(&self) -> Result<Arc<dyn Link>, Failure> {
        match &self.local {
            Some((connector, _)) => connector.connect().map_err(Failure::fabric(Stage::Start)),
            None => forebay::connect(&self.address).map_err(|error| {
                Failure::new(error.kind(), Stage::Start, with_hint(error.kind(), &error, &self.address))
            }),
        }
    }
}

/// An error of reaching a memory node, with its likely cause.
pub fn with_hint(kind: ErrorKind, error: &impl Display, memory: &impl Display) -> String {
    match kind {
        ErrorKind::Unavailable | ErrorKind::TimedOut => format!("{error}; is a memory node running at {memory}?"),
        _ => error.to_string(),
    }
}

/// Describes an error of opening a database, with its likely cause. If the memory nodes were reached, the error itself
/// says what is wrong.
pub fn of_opening(error: &forebay::Error, memory: &impl Display) -> String {
    match error {
        forebay::Error::Engine(_) | forebay::Error::Left(_) => error.to_string(),
        _ => with_hint(error.kind(), error, memory),
    }
}

/// The place of the memory, for people.
pub fn describe(memory: &NodeAddresses) -> String {
    if memory.is_local() { "in this process".into() } else { memory.to_string() }
}
