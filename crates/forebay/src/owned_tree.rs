//! A shared tree that one process uses alone, with its sessions, or with a memory node of its own.
//!
//! Nobody owns a shared tree: any number of clients write it. A process that keeps related data in several keys must be
//! the only user of the tree. So each of the tree's nodes has a second store beside the tree's, and the process that
//! owns shard 0 of all these stores has the tree.
//!
//! ```text
//!   a node    store `NAME`          shard 0, shared         the tree
//!             store `NAME.owner`    shard 0, one owner      who may use it
//!                                        │
//!             a session ─────────────────┴── keys to the tree's extents
//! ```
//!
//! The shard is acquired in the session whose keys open the tree's memory, and nobody takes it from a live session.
//! When the session lapses, the node gives the shard to others and revokes the session's keys. So a process that slept
//! through its lease writes nothing any more. Over shared memory, the keys end only when that process runs again or
//! ends; until then the node counts the session as one that has read since the beginning. So before the next owner
//! looks at the tree, it waits until there is no such session.

use crate::embedded::Node;
use crate::reach::open;
use crate::{Error, NodeAddress};
use forebay_base::ErrorKind;
use forebay_env::{Clock, Nanos};
use forebay_fabric::{Counts, Traffic};
use forebay_memory_client::{ClientOptions, Error as ClientError, MemoryClient, ShardHandle, ShardId};
use forebay_tree::{Error as TreeError, Tree, TreeClient, TreeOptions};
use std::sync::Arc;
use std::time::Duration;

/// The suffix that makes a tree's name the name of the store that says who owns the tree.
const OWNER: &str = ".owner";
/// The configuration of such a store: what it is, and its version (`docs/formats/tree.md`).
const OWNER_CONFIG: &[u8] = b"owner\x01";
/// Its shard.
const SHARD: ShardId = ShardId(0);
/// How long an owner whose process has just ended may hold the shard: its node learns of the end soon.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a process whose session has lapsed may take to release the tree's memory.
const LETTING_GO: Duration = Duration::from_secs(5);
/// The reading epoch of a session that has lapsed, and whose process has not released the memory.
const BEGINNING: u64 = 0;
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(5);
/// The name of a tree in this process.
const EMBEDDED: &str = "tree";

/// A shared tree that this process uses alone, as long as other processes also ask for ownership. See the module.
#[derive(Debug)]
pub struct OwnedTree {
    // The fields are in the order in which they must be dropped.
    tree: Arc<Tree>,
    shards: Vec<ShardHandle>,
    sessions: Vec<Arc<MemoryClient>>,
    _node: Option<Node>,
}

impl OwnedTree {
    /// Creates a tree in this process, which ends with the process. Its memory node is a thread that offers
    /// `memory_bytes`.
    ///
    /// # Errors
    /// `Invalid` for options or sizes that conflict; `Io` when there is no memory.
    pub fn embedded(memory_bytes: u64, options: TreeOptions) -> Result<Self, Error> {
        let node = Node::start(memory_bytes, &options.clock)?;
        let session = node.session(session_options(&options))?;
        Self::over(vec![session], EMBEDDED, options, Some(node))
    }

    /// Opens the tree of this name in the memory of nodes in other processes, or creates it. The nodes come in the
    /// order in which the tree was created there.
    ///
    /// # Errors
    /// `Unavailable` when no node serves at an address; `Busy` while another process has the tree; `Invalid` when a node
    /// has something else of this name, or the tree is on other nodes, or only a part of it exists; `Full` when a node
    /// has no memory for a new tree.
    pub fn connect(addresses: &[NodeAddress], name: &str, options: TreeOptions) -> Result<Self, Error> {
        Self::over(sessions(addresses, &options)?, name, options, None)
    }

    /// Drops the tree of this name and all that it holds.
    ///
    /// # Errors
    /// `NotFound` when there is none; `Busy` while a process has it; `Invalid` when a node has something else of this name.
    pub fn destroy(addresses: &[NodeAddress], name: &str) -> Result<(), Error> {
        let options = TreeOptions::default();
        let sessions = sessions(addresses, &options)?;
        let shards = own(&sessions, name, &*options.clock)?;
        let destroyed = Tree::destroy(&sessions, name);
        for (session, shard) in sessions.iter().zip(shards) {
            let store = shard.key().store;
            shard.release()?;
            session.drop_store(store)?;
        }
        destroyed.map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                let message = format!("there is no shared tree {name:?} on these memory nodes");
                Error::Below { kind: ErrorKind::NotFound, message }
            }
            _ => error.into(),
        })
    }

    fn over(
        sessions: Vec<Arc<MemoryClient>>,
        name: &str,
        options: TreeOptions,
        node: Option<Node>,
    ) -> Result<Self, Error> {
        let shards = own(&sessions, name, &*options.clock)?;
        let tree = match Tree::open(&sessions, name, options.clone()) {
            Err(error) if error.kind() == ErrorKind::NotFound => match Tree::create(&sessions, name, options) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(in_part(name)),
                created => created,
            },
            // The process that had begun to create the tree owned it, and no longer does. Nobody has used the tree.
            Err(TreeError::Unfinished(_)) => {
                Tree::destroy(&sessions, name).and_then(|()| Tree::create(&sessions, name, options))
            }
            opened => opened,
        };
        Ok(Self { tree: tree?, shards, sessions, _node: node })
    }

    /// The tree.
    #[must_use]
    pub const fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// A client for one thread.
    ///
    /// # Errors
    /// `Unavailable` when a node is gone.
    pub fn client(&self) -> Result<TreeClient, Error> {
        Ok(self.tree.client()?)
    }

    /// Returns why this process no longer has the tree, as far as it knows: kind `Fenced` when a session has lapsed,
    /// `Unavailable` when a node, or the connection to it, is gone. The tree does not come back.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.sessions.iter().find_map(|session| session.check().err()).map(Error::from)
    }

    /// Asks the nodes whether this process still has the tree.
    ///
    /// # Errors
    /// Of kind `Fenced` when it no longer has the tree.
    pub fn check_owner(&self) -> Result<(), Error> {
        Ok(self.shards.iter().try_for_each(ShardHandle::check)?)
    }

    /// Counts what went over the fabric to the tree's nodes: first for operations that a caller waits for, then for
    /// background work.
    #[must_use]
    pub fn counts(&self) -> [Counts; 2] {
        [Traffic::Foreground, Traffic::Background].map(|traffic| {
            let mut sum = Counts::default();
            self.sessions.iter().for_each(|session| sum += session.link().counts(traffic));
            sum
        })
    }

    /// Statistics of each memory node, or why it does not answer.
    #[must_use]
    pub fn node_statistics(&self) -> Vec<Result<crate::NodeStatistics, Error>> {
        self.sessions.iter().map(|session| session.node_statistics().map_err(Error::from)).collect()
    }

    /// Ends the sessions: the tree is free for others, and all calls of this process fail.
    pub fn close(&self) {
        self.sessions.iter().for_each(|session| session.end());
    }
}

/// Some nodes have a store of the tree's name, and others have none.
fn in_part(name: &str) -> Error {
    let message = format!(
        "only some of the nodes have the tree {name:?}, or a part of it: name the nodes on which it was created, or \
         drop it if one of them has lost its memory, or its creation was not completed"
    );
    Error::Below { kind: ErrorKind::Invalid, message }
}

fn session_options(options: &TreeOptions) -> ClientOptions {
    ClientOptions { foreign_reads: true, clock: Arc::clone(&options.clock), ..ClientOptions::default() }
}

fn sessions(addresses: &[NodeAddress], options: &TreeOptions) -> Result<Vec<Arc<MemoryClient>>, Error> {
    let session = |address| open(address, crate::embedded::NAME, session_options(options));
    Ok(addresses.iter().map(session).collect::<Result<_, _>>()?)
}

/// Becomes the owner of the tree of this name at all its nodes. The tree need not exist.
fn own(sessions: &[Arc<MemoryClient>], name: &str, clock: &dyn Clock) -> Result<Vec<ShardHandle>, Error> {
    let shards = sessions.iter().map(|session| own_at(session, name, clock)).collect::<Result<Vec<_>, _>>()?;
    for shard in shards.iter().filter(|shard| shard.epoch().0 > 1) {
        pass_former_owner(shard.client(), name, clock)?;
    }
    Ok(shards)
}

fn own_at(session: &Arc<MemoryClient>, name: &str, clock: &dyn Clock) -> Result<ShardHandle, Error> {
    let owner = format!("{name}{OWNER}");
    let store = match session.create_store(&owner, OWNER_CONFIG) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => session.open_store(&owner)?,
        created => created?,
    };
    if store.config() != OWNER_CONFIG {
        let message =
            format!("{} has a store {owner:?} that says nothing of a tree: name another one", session.described());
        return Err(Error::Below { kind: ErrorKind::Invalid, message });
    }
    let busy = || {
        format!(
            "another process has the tree {name:?} at {}, and it is for one alone: stop that process, or name another tree",
            session.described()
        )
    };
    until(clock, PATIENCE, busy, || match store.acquire_shard(SHARD, false) {
        Err(error) if error.kind() == ErrorKind::Busy => Ok(None),
        acquired => acquired.map(Some),
    })
}

/// Waits until the keys of former owners' sessions open nothing any more.
fn pass_former_owner(session: &Arc<MemoryClient>, name: &str, clock: &dyn Clock) -> Result<(), Error> {
    let busy = || {
        let node = session.described();
        format!(
            "a former owner of the tree {name:?} at {node} has not let go of its memory: if its process is stopped, let it go on or kill it"
        )
    };
    until(clock, LETTING_GO, busy, || {
        let (_, oldest) = session.pass_readers()?;
        Ok((oldest > BEGINNING).then_some(()))
    })
}

/// Tries until an attempt returns something, or the time is over.
fn until<T>(
    clock: &dyn Clock,
    limit: Duration,
    busy: impl Fn() -> String,
    mut attempt: impl FnMut() -> Result<Option<T>, ClientError>,
) -> Result<T, Error> {
    let begun = clock.now();
    loop {
        if let Some(found) = attempt()? {
            return Ok(found);
        }
        let waited: Nanos = clock.now().saturating_sub(begun);
        if u128::from(waited) >= limit.as_nanos() {
            return Err(Error::Below { kind: ErrorKind::Busy, message: busy() });
        }
        clock.sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests;
