//! What all ways to open a database have in common.

use crate::durable::database::Place;
use crate::durable::known::Seen;
use crate::durable::member_register::MemberRegister;
use crate::durable::named;
use crate::durable::recovery::LeftRecords;
use crate::durable::register::Register;
use crate::durable::storage_log::StorageLog;
use crate::remote::kept::Kept;
use crate::remote::members::Places;
use crate::remote::offloading::Offloading;
use crate::remote::owner::Owner;
use crate::remote::segment::Node;
use crate::terms::recovery::Recovery;
use crate::terms::routing::Routing;
use crate::terms::{CompactionPlace, Error, Options, Result};
use crate::tree::cut::Cut;
use crate::work::shard::Shard;
use forebay_memory_client::{MemoryClient, ShardId};
use forebay_table::CopiedDatabase;
use std::sync::Arc;

/// The parts of an open database.
pub(crate) struct Opened {
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) shards: Arc<[Arc<Shard>]>,
    pub(crate) routing: Routing,
    /// For each shard of a named database, what its log holds that no table does.
    pub(crate) logs: Vec<LeftRecords>,
    /// What was found of a named database.
    pub(crate) recovery: Option<Recovery>,
    pub(crate) cut: Arc<Cut>,
    /// The log in storage, if there is one.
    pub(crate) log: Option<Arc<StorageLog>>,
    /// Where the copies are, if there are several.
    pub(crate) copied: Option<Arc<Copied>>,
    /// What else there is of a database in storage.
    pub(crate) stored: Option<Stored>,
}

/// What is known of a database in storage.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) place: Place,
    pub(crate) register: Arc<Register>,
    pub(crate) kept: Arc<Kept>,
}

/// What a database with several copies in memory is, and where they may be placed.
#[derive(Debug)]
pub(crate) struct Copied {
    pub(crate) database: CopiedDatabase,
    pub(crate) places: Arc<Places>,
    pub(crate) register: Arc<MemberRegister>,
}

impl Copied {
    /// Adds a memory node, on which copies may be placed from now on. If the node is part of the register, it counts
    /// there through this session, once its earlier session has ended.
    ///
    /// # Errors
    /// `Invalid` when its extents are shorter than those of the others; `AlreadyExists` when it has another database of
    /// this name; `Unavailable`.
    pub(crate) fn add_node(&self, name: &str, client: &Arc<MemoryClient>, options: &Options) -> Result<()> {
        let nodes = self.places.nodes();
        if nodes.iter().any(|node| node.client().extent_bytes() > client.extent_bytes()) {
            return Err(Error::invalid(
                "a memory node with shorter extents than the others cannot hold all that they do",
            ));
        }
        let part = named::open_copy(client, name, &self.database, None)?;
        self.register.returned(&part);
        // Nodes that were lost get no tables any more.
        let others = nodes.iter().filter(|node| node.lost().is_none()).count();
        let options = of_each(options, others + 1);
        self.places.add(Node::new(nodes.len(), Arc::clone(client), &options, None), part.store);
        Ok(())
    }
}

/// The options of one of so many memory nodes. Each has the same share of the budget for indexes.
fn of_each(options: &Options, nodes: usize) -> Options {
    let cached_index_bytes = options.cached_index_bytes.map(|bytes| bytes / nodes.max(1) as u64);
    Options { cached_index_bytes, ..options.clone() }
}

/// The memory nodes, each with the same share of the budget for indexes.
pub(super) fn nodes<'a>(
    clients: impl ExactSizeIterator<Item = &'a Arc<MemoryClient>>,
    options: &Options,
) -> Vec<Arc<Node>> {
    let of_node = of_each(options, clients.len());
    let clients: Vec<_> = clients.collect();
    let is_placed = options.compaction_place == CompactionPlace::Pool;
    let offloading = clients.first().filter(|_| is_placed).map(|first| {
        let (scheduler, clock) = (options.scheduler.clone(), Arc::clone(&options.clock));
        Offloading::new(scheduler, first, options.background_threads, clock)
    });
    let node = |(number, client): (usize, &&Arc<MemoryClient>)| {
        Node::new(number, Arc::clone(client), &of_node, offloading.clone())
    };
    clients.iter().enumerate().map(node).collect()
}

/// Acquires all shards, or none. `seen` has the roots of them that were seen.
pub(super) fn acquire(parts: &[named::Part], seen: &Seen, options: &Options) -> Result<Vec<Arc<Owner>>> {
    let mut owners: Vec<Arc<Owner>> = Vec::with_capacity(options.shards);
    for (part, id) in parts.iter().cycle().zip(0..).take(options.shards) {
        match seen.acquire(&part.store, ShardId(id), options) {
            Ok(owner) => owners.push(owner),
            Err(error) => {
                owners.iter().for_each(|owner| owner.release());
                return Err(error);
            }
        }
    }
    Ok(owners)
}

/// The bounds the database was created with, updated by later moves.
pub(super) fn recorded_routing(shards: &[Arc<Shard>], created: &[Vec<u8>], options: &Options) -> Result<Routing> {
    let mut created = created.iter();
    let mut bounds = Vec::new();
    for shard in shards.iter().skip(1) {
        let (created, view) = (created.next(), shard.tree.view.load());
        let moved = view.version.version.first_key().map(<[u8]>::to_vec);
        match moved.or_else(|| created.cloned()) {
            Some(bound) => bounds.push(bound),
            None => break,
        }
    }
    let routing = Routing::new(options.key_order, options.shards, bounds);
    routing.map_err(|error| Error::corrupt(format!("the bounds between shards do not fit each other: {error}")))
}
