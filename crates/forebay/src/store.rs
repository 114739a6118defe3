//! A database with its memory node.

use crate::embedded::{NAME, Node};
use crate::lock::DirectoryLock;
use crate::reach::reach_for;
use crate::{Error, NodeAddress, connect};
use forebay_base::ErrorKind;
use forebay_engine::{Db, Durability, Error as EngineError, Options, Storage, Syncing, WriteOptions};
use forebay_memory_client::{ClientOptions, MemoryClient, Reach};
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

/// Statistics of a memory node.
pub type NodeStatistics = forebay_proto::replies::Statistics;

/// A database, and the session or embedded node that holds its memory. Derefs to [`Db`]. Dropping the store closes the
/// database, also for its clones and keyspaces, whose calls then fail with `Closed`.
#[derive(Debug)]
pub struct Store {
    // The fields are in the order in which they must be dropped.
    db: Db,
    nodes: Vec<Arc<Reach>>,
    has_copies: bool,
    node: Option<Node>,
    /// Until the database is closed.
    lock: Mutex<Option<DirectoryLock>>,
}

impl Store {
    /// Opens a database in this process. Its memory node is a thread that offers `memory_bytes`. With
    /// [`Options::storage`] the database outlives the process in that storage.
    ///
    /// # Errors
    /// `Invalid` for options or sizes that conflict; `Io` when memory is short; `Busy` when a process has the database
    /// in a directory of this machine open, unless it is to be taken over.
    pub fn embedded(memory_bytes: u64, options: Options) -> Result<Self, Error> {
        let lock = lock(&options)?;
        Self::embedded_on(Node::start(memory_bytes, &options.clock)?, options, lock)
    }

    /// As [`Store::embedded`], on a node that is running and under a lock that was taken.
    pub(crate) fn embedded_on(node: Node, options: Options, lock: Option<DirectoryLock>) -> Result<Self, Error> {
        let reach = node.reach(&options);
        let client = reach.client()?;
        Self::over((vec![reach], vec![client]), options, Some(node), lock)
    }

    /// Opens a database in the memory of a node in another process.
    ///
    /// # Errors
    /// `Unavailable` when no node serves at the address; as [`Store::embedded`].
    pub fn connect(address: &NodeAddress, options: Options) -> Result<Self, Error> {
        Self::connect_all(std::slice::from_ref(address), options)
    }

    /// Returns options that open the named database `name` with the settings it was created with. The database must
    /// exist. Each of its nodes knows the settings, so nodes that cannot be reached are left out.
    ///
    /// # Errors
    /// `NotFound` when the database does not exist; `Unavailable` when no node serves at an address, and no other node
    /// knows the database.
    pub fn options_of(addresses: &[NodeAddress], name: &str) -> Result<Options, Error> {
        let (mut reached, mut failure) = (Vec::with_capacity(addresses.len()), None);
        for address in addresses {
            match client(address) {
                Ok(client) => reached.push(client),
                Err(error) if is_out_of_reach(error.kind()) => failure = Some(error),
                Err(error) => return Err(error),
            }
        }
        match (Db::options_of(&reached, name), failure) {
            (Err(error), Some(failure)) if error.kind() == ErrorKind::NotFound => Err(failure),
            (found, _) => Ok(found?),
        }
    }

    /// As [`Store::options_of`], for a database in storage.
    ///
    /// # Errors
    /// `NotFound` when it does not exist; those of the storage.
    pub fn options_of_stored(storage: &Storage, name: &str) -> Result<Options, Error> {
        Ok(Db::options_of_stored(storage, name)?)
    }

    /// As [`Store::options_of`]; `None` when the database does not exist.
    ///
    /// # Errors
    /// As [`Store::options_of`], except `NotFound`.
    pub fn found_on(addresses: &[NodeAddress], name: &str) -> Result<Option<Options>, Error> {
        if_found(Self::options_of(addresses, name))
    }

    /// As [`Store::connect_all`], for the database `name` as it is: with the numbers of shards and copies that it has, unless
    /// others are given. A new database has the shards of the options and one copy. Writes to a database with one copy
    /// survive nothing by themselves ([`Durability::None`]).
    ///
    /// # Errors
    /// Those of [`Store::options_of`] and [`Store::connect_all`].
    pub fn connect_found(
        addresses: &[NodeAddress],
        name: String,
        shards: Option<usize>,
        copies: Option<usize>,
        options: Options,
    ) -> Result<Self, Error> {
        let alone = Durability::None;
        let found = Self::found_on(addresses, &name)?;
        let (found_shards, found_durability) =
            found.map_or((options.shards, alone), |found| (found.shards, found.durability));
        let durability = copies.map_or(found_durability, |copies| in_copies(copies, alone));
        let shards = shards.unwrap_or(found_shards);
        Self::connect_all(addresses, Options { name: Some(name), shards, durability, ..options })
    }

    /// Drops the named database `name` and all its data from these memory nodes.
    ///
    /// # Errors
    /// `NotFound` when it does not exist; `Invalid` when the nodes have several databases of the name, and then none is
    /// dropped; `Busy` while a process has it open; [`Error::Left`] when a node cannot be reached: the other nodes have
    /// nothing of the database any more, and the call can be made again.
    pub fn destroy(addresses: &[NodeAddress], name: &str) -> Result<(), Error> {
        let mut is_found = true;
        drop_at(addresses, name, |clients| match Db::destroy(clients, name) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                is_found = false;
                Ok(())
            }
            dropped => dropped,
        })?;
        let not_found = || Error::Below {
            kind: ErrorKind::NotFound,
            message: format!("there is no database {name:?} on these memory nodes"),
        };
        is_found.then_some(()).ok_or_else(not_found)
    }

    /// Drops the database `name` and all its data from storage and from these memory nodes, if there are any.
    ///
    /// # Errors
    /// `NotFound` when it is not in storage; `Busy` while a process has it open; `Unavailable`; those of the storage.
    pub fn destroy_stored(storage: &Storage, addresses: &[NodeAddress], name: &str) -> Result<(), Error> {
        let _lock = DirectoryLock::take_stored(storage, name, false)?;
        Ok(Db::destroy_stored(storage, &clients(addresses)?, name)?)
    }

    /// Drops the database `name` from these memory nodes and from `register`, which says where its copies in memory are.
    ///
    /// # Errors
    /// `NotFound` when the register does not know it; `Busy` while a process has it open; those of the storage;
    /// [`Error::Left`] when a node cannot be reached: the other nodes have nothing of the database any more, the register
    /// still knows it, and the call can be made again.
    pub fn destroy_copied(register: &Storage, addresses: &[NodeAddress], name: &str) -> Result<(), Error> {
        drop_at(addresses, name, |clients| Db::destroy_copies(register, clients, name))?;
        Ok(Db::destroy_copied(register, &[], name)?)
    }

    /// Returns the names of the databases on the memory nodes.
    ///
    /// # Errors
    /// `Unavailable` when no node serves at an address.
    pub fn list(addresses: &[NodeAddress]) -> Result<Vec<String>, Error> {
        Ok(Db::list(&clients(addresses)?)?)
    }

    /// Opens a database in the memory of several nodes in other processes. Shard `i` is on node `i` modulo the number of
    /// nodes. A named database opens on the nodes that it was created on, in any order. A database with several copies in
    /// memory opens if the nodes that can be reached have a copy of each shard. It connects to the other nodes, and to
    /// nodes that are lost later, when they are back, and gives them the missing copies ([`Options::memory_nodes`]).
    ///
    /// # Errors
    /// As [`Store::connect`].
    pub fn connect_all(addresses: &[NodeAddress], options: Options) -> Result<Self, Error> {
        let lock = lock(&options)?;
        let has_copies = has_copies(&options);
        let nodes: Vec<_> = addresses.iter().map(|address| reach_for(address, &options)).collect();
        let (mut clients, mut failure) = (Vec::with_capacity(nodes.len()), None);
        for node in &nodes {
            match node.client() {
                Ok(client) => clients.push(client),
                Err(error) if has_copies && is_out_of_reach(error.kind()) => {
                    failure = Some(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        match failure {
            Some(failure) if clients.is_empty() => Err(failure.into()),
            _ => {
                let options = Options { memory_nodes: nodes.clone(), ..options };
                Self::over((nodes, clients), options, None, lock)
            }
        }
    }

    /// Opens the database that the options name in a storage for reading, as it is now or as it was at a checkpoint.
    /// Nothing is written there, so a directory may be read-only. Writers of this machine are kept out of a directory as by
    /// [`Store::open_to_read`]. The memory node is a thread that offers `memory_bytes`.
    ///
    /// # Errors
    /// As [`Db::open_to_read`] and [`Db::open_checkpoint`]; `Busy`, without a checkpoint, for a database in a directory of this machine
    /// that a process has open to write.
    pub fn embedded_to_read(memory_bytes: u64, options: Options, checkpoint: Option<&str>) -> Result<Self, Error> {
        let lock = match (&options.storage, &options.name, checkpoint) {
            (Some(storage), Some(name), None) => DirectoryLock::share_stored(storage, name)?,
            _ => None,
        };
        let node = Node::start(memory_bytes, &options.clock)?;
        let reach = node.reach(&options);
        let clients = [reach.client()?];
        let db = match checkpoint {
            Some(checkpoint) => Db::open_checkpoint(&clients, options, checkpoint)?,
            None => Db::open_to_read(&clients, options)?,
        };
        Ok(Self { db, nodes: vec![reach], has_copies: false, node: Some(node), lock: Mutex::new(lock) })
    }

    fn over(
        (nodes, clients): (Vec<Arc<Reach>>, Vec<Arc<MemoryClient>>),
        options: Options,
        node: Option<Node>,
        lock: Option<DirectoryLock>,
    ) -> Result<Self, Error> {
        let has_copies = has_copies(&options);
        let db = Db::open(&clients, options)?;
        Ok(Self { db, nodes, has_copies, node, lock: Mutex::new(lock) })
    }

    /// The database.
    #[must_use]
    pub const fn db(&self) -> &Db {
        &self.db
    }

    /// As [`Db::close`]. Then a directory can be opened again, here and in other processes, even while this store and
    /// its clones, keyspaces, snapshots and iterators still exist.
    ///
    /// # Errors
    /// Those of [`Db::close`]; the database is closed all the same.
    pub fn close(&self) -> Result<(), EngineError> {
        let closed = self.db.close();
        // From here on nothing writes to this database.
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner).take());
        closed
    }

    /// Whether the memory node is part of this process.
    #[must_use]
    pub const fn is_embedded(&self) -> bool {
        self.node.is_some()
    }

    /// Returns options of a write. With `sync`, a write that has returned survives this process: it is in storage, or
    /// else in the memory of other processes' nodes. A database that has neither ends with the process, and there is
    /// nothing to sync to.
    #[must_use]
    pub fn write_options(&self, sync: bool) -> WriteOptions {
        let lasting = match (self.has_storage(), self.is_embedded()) {
            (true, _) => Some(Durability::Storage(Syncing::Sync)),
            (false, false) => Some(Durability::Memory { copies: 1 }),
            (false, true) => None,
        };
        WriteOptions { durability: lasting.filter(|_| sync) }
    }

    /// Returns why a part of the database's memory is lost to this process for good, if it is: a memory node that held
    /// the only copy of that part has ended, or the session at the node has. What durability `storage` has kept is
    /// there when the database is opened again, on any nodes.
    #[must_use]
    pub fn lost_memory(&self) -> Option<Error> {
        let lost = |node: &Arc<Reach>| {
            let client = node.known().filter(|client| !client.is_there())?;
            let cause = client.check().map_or_else(|ended| ended.to_string(), |()| "it is gone".to_owned());
            let message = format!("{}: {cause}", client.described());
            Some(Error::Below { kind: ErrorKind::Unavailable, message })
        };
        self.nodes.iter().filter(|_| !self.has_copies).find_map(lost)
    }

    /// Returns statistics of each memory node; where there are several copies, of the nodes that still answer.
    ///
    /// # Errors
    /// `Unavailable` when a node is gone.
    pub fn node_statistics(&self) -> Result<Vec<NodeStatistics>, Error> {
        self.placed_statistics().into_iter().map(|(_, statistics)| statistics).collect()
    }

    /// Returns the same, or why a node does not answer, each with the node's place among those that the database was
    /// opened with.
    #[must_use]
    pub fn placed_statistics(&self) -> Vec<(usize, Result<NodeStatistics, Error>)> {
        let known = self.nodes.iter().enumerate().filter_map(|(place, node)| Some((place, node.known()?)));
        let asked = known.filter(|(_, client)| !self.has_copies || client.link().is_alive());
        let told = asked.filter_map(|(place, client)| match client.node_statistics() {
            // The other nodes have what this one had.
            Err(_) if self.has_copies => None,
            told => Some((place, told.map_err(Error::from))),
        });
        told.collect()
    }
}

/// Clones of the database cannot continue: its sessions, its memory node and its lock end with the store.
impl Drop for Store {
    fn drop(&mut self) {
        self.db.close_unasked();
    }
}

/// What writes survive where there are this many copies in memory: what `alone` says, if there is one.
pub(crate) const fn in_copies(copies: usize, alone: Durability) -> Durability {
    match copies {
        1 => alone,
        copies => Durability::Memory { copies },
    }
}

/// The options of a database, if it was found.
pub(crate) fn if_found(options: Result<Options, Error>) -> Result<Option<Options>, Error> {
    match options {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        options => options.map(Some),
    }
}

/// Whether the database has copies on several memory nodes, so that one of them is enough.
const fn has_copies(options: &Options) -> bool {
    matches!(options.durability, Durability::Memory { copies } if copies > 1)
}

/// The lock of the database that the options name, if it has one.
fn lock(options: &Options) -> Result<Option<DirectoryLock>, Error> {
    match (&options.storage, &options.name) {
        (Some(storage), Some(name)) => DirectoryLock::take_stored(storage, name, options.takeover),
        _ => Ok(None),
    }
}

/// Calls `dropped` to drop what those of these memory nodes that are reached have of the database `name`.
///
/// # Errors
/// [`Error::Left`] when some of the nodes are not reached, or `Unavailable` when none is; any other error of `dropped`.
fn drop_at(
    addresses: &[NodeAddress],
    name: &str,
    dropped: impl FnOnce(&[Arc<MemoryClient>]) -> Result<(), EngineError>,
) -> Result<(), Error> {
    let (mut reached, mut left, mut none) = (Vec::with_capacity(addresses.len()), Vec::new(), None);
    for address in addresses {
        match client(address) {
            Ok(client) => reached.push(client),
            Err(error) if is_out_of_reach(error.kind()) => {
                left.push(format!("{address} ({error})"));
                none.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    if let Some(none) = none.filter(|_| reached.is_empty()) {
        return Err(none);
    }
    match dropped(&reached) {
        Err(error) if is_out_of_reach(error.kind()) && !left.is_empty() => left.push(error.to_string()),
        at_nodes => at_nodes?,
    }
    if left.is_empty() {
        return Ok(());
    }
    Err(Error::Left(format!(
        "memory nodes were not reached that may still have a part of the database {name:?}: {}. The others have nothing of it any more. \
         Drop it again when those are back, or without them when they are gone for good",
        left.join(", ")
    )))
}

/// Whether a memory node that failed with this kind is gone, or does not answer.
const fn is_out_of_reach(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable | ErrorKind::TimedOut)
}

fn clients(addresses: &[NodeAddress]) -> Result<Vec<Arc<MemoryClient>>, Error> {
    addresses.iter().map(client).collect()
}

fn client(address: &NodeAddress) -> Result<Arc<MemoryClient>, Error> {
    let options = ClientOptions { address: address.to_string(), ..ClientOptions::default() };
    Ok(MemoryClient::connect(connect(address)?, NAME, options)?)
}

impl Deref for Store {
    type Target = Db;

    fn deref(&self) -> &Db {
        &self.db
    }
}

#[cfg(test)]
mod tests;
