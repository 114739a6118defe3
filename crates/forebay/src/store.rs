//! A database with the memory node behind it.

use crate::{Error, NodeAddress, connect};
use forebay_engine::{Db, Options};
use forebay_fabric::{Link, inprocess};
use forebay_memory_client::{ClientOptions, MemoryClient};
use forebay_memory_node::{Handle, MemoryNode};
use std::ops::Deref;
use std::sync::Arc;

/// What a memory node tells of itself.
pub type NodeStatistics = forebay_proto::replies::Statistics;

/// A database and the session, or the embedded node, that its memory is in. Derefs to [`Db`].
#[derive(Debug)]
pub struct Store {
    // In the order in which they must be dropped.
    db: Db,
    clients: Vec<Arc<MemoryClient>>,
    node: Option<Handle>,
}

impl Store {
    /// A database in this process: its memory node is a thread that offers `memory_bytes`.
    ///
    /// # Errors
    /// `Invalid` for options or sizes that do not fit each other, `Io` when there is no memory.
    pub fn embedded(memory_bytes: u64, options: Options) -> Result<Self, Error> {
        let (listener, connector) = inprocess::listen(0)?;
        let node_options = forebay_memory_node::Options {
            clock: Arc::clone(&options.clock),
            ..forebay_memory_node::Options::with_memory(memory_bytes)
        };
        let node = MemoryNode::start(Box::new(listener), node_options)?;
        Self::over(&[connector.connect()?], options, Some(node))
    }

    /// A database in the memory of a node of another process.
    ///
    /// # Errors
    /// `Unavailable` when nobody serves at the address; as [`Store::embedded`].
    pub fn connect(address: &NodeAddress, options: Options) -> Result<Self, Error> {
        Self::connect_all(std::slice::from_ref(address), options)
    }

    /// Options to open the named database `name` with, whatever it was created with: it must exist.
    ///
    /// # Errors
    /// `NotFound` when there is none; `Unavailable` when nobody serves at an address.
    pub fn options_of(addresses: &[NodeAddress], name: &str) -> Result<Options, Error> {
        Ok(Db::options_of(&clients(addresses)?, name)?)
    }

    /// Drops the named database `name` with all that is in it, of the memory of these nodes.
    ///
    /// # Errors
    /// `NotFound` when there is none; `Busy` while a process has it open; `Unavailable`.
    pub fn destroy(addresses: &[NodeAddress], name: &str) -> Result<(), Error> {
        Ok(Db::destroy(&clients(addresses)?, name)?)
    }

    /// Names of the databases in the memory of nodes.
    ///
    /// # Errors
    /// `Unavailable` when nobody serves at an address.
    pub fn list(addresses: &[NodeAddress]) -> Result<Vec<String>, Error> {
        Ok(Db::list(&clients(addresses)?)?)
    }

    /// A database in the memory of several nodes of other processes: shard `i` lies on node `i` modulo
    /// their number. One with a name is opened on the nodes that it was created on, in any order.
    ///
    /// # Errors
    /// As [`Store::connect`].
    pub fn connect_all(addresses: &[NodeAddress], options: Options) -> Result<Self, Error> {
        let links = addresses.iter().map(connect).collect::<Result<Vec<_>, _>>()?;
        Self::over(&links, options, None)
    }

    fn over(links: &[Arc<dyn Link>], options: Options, node: Option<Handle>) -> Result<Self, Error> {
        let client = |link: &Arc<dyn Link>| {
            let client_options = ClientOptions {
                timeout: options.fabric_timeout,
                clock: Arc::clone(&options.clock),
                ..ClientOptions::default()
            };
            MemoryClient::connect(Arc::clone(link), "forebay", client_options)
        };
        let clients = links.iter().map(client).collect::<Result<Vec<_>, _>>()?;
        let db = Db::open(&clients, options)?;
        Ok(Self { db, clients, node })
    }

    /// The database.
    #[must_use]
    pub const fn db(&self) -> &Db {
        &self.db
    }

    /// Whether the memory node is part of this process.
    #[must_use]
    pub const fn is_embedded(&self) -> bool {
        self.node.is_some()
    }

    /// What each memory node tells of itself.
    ///
    /// # Errors
    /// `Unavailable` when one is gone.
    pub fn node_statistics(&self) -> Result<Vec<NodeStatistics>, Error> {
        self.clients.iter().map(|client| Ok(client.node_statistics()?)).collect()
    }
}

fn clients(addresses: &[NodeAddress]) -> Result<Vec<Arc<MemoryClient>>, Error> {
    let client = |address| Ok(MemoryClient::connect(connect(address)?, "forebay", ClientOptions::default())?);
    addresses.iter().map(client).collect()
}

impl Deref for Store {
    type Target = Db;

    fn deref(&self) -> &Db {
        &self.db
    }
}
