//! Opening a database: its memory nodes, and on each of them its shards.

use crate::background::Bell;
use crate::node_part::PrivateStore;
use crate::routing::Routing;
use crate::segment::{Node, Remote};
use crate::shard::Shard;
use crate::version::identity;
use crate::{Error, Options, Result, named, recovery};
use forebay_base::ErrorKind;
use forebay_memory_client::{MemoryClient, ShardId};
use forebay_table::StoreConfig;
use std::sync::Arc;

/// A database's parts.
pub(crate) struct Opened {
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) shards: Arc<[Arc<Shard>]>,
    pub(crate) routing: Routing,
}

/// Opens the shards of a database, shard `i` on node `i` modulo their number (dLSM IX). They ring
/// `bell` when there is work.
///
/// # Errors
/// See [`crate::Db::open`].
pub(crate) fn open(clients: &[Arc<MemoryClient>], options: &Options, bell: &Arc<Bell>) -> Result<Opened> {
    options.check()?;
    let smallest = clients.iter().map(|client| client.extent_bytes()).min();
    let smallest = smallest.ok_or_else(|| Error::invalid("a database needs at least one memory node"))?;
    let options = options.clone().fitted_to(smallest);
    // Nodes without a shard are not used; the others have the same share of the budget for indexes.
    let used = clients.iter().take(options.shards).enumerate();
    let mut of_node = options.clone();
    of_node.cached_index_bytes = options.cached_index_bytes.map(|bytes| bytes / used.len().max(1) as u64);
    let nodes: Vec<_> = used.map(|(number, client)| Node::new(number, Arc::clone(client), &of_node)).collect();
    match &options.name {
        Some(name) => open_named(name, nodes, &options, bell),
        None => open_private(nodes, &options, bell),
    }
}

fn open_private(nodes: Vec<Arc<Node>>, options: &Options, bell: &Arc<Bell>) -> Result<Opened> {
    let store = |node: &Arc<Node>| if node.runs_jobs() { PrivateStore::create(node.client()) } else { Ok(None) };
    let stores = nodes.iter().map(store).collect::<Result<Vec<_>>>()?;
    let places = nodes.iter().zip(&stores).cycle().zip(0..).take(options.shards);
    let shards = places.map(|((node, store), id)| {
        let remote = Arc::new(Remote::new(node, store.as_ref(), ShardId(id))?);
        Ok(Arc::new(Shard::new(options.clone(), remote, Arc::clone(bell))?))
    });
    let shards = shards.collect::<Result<Vec<_>>>()?.into();
    Ok(Opened { nodes, shards, routing: options.routing()? })
}

fn open_named(name: &str, nodes: Vec<Arc<Node>>, options: &Options, bell: &Arc<Bell>) -> Result<Opened> {
    let [node] = &nodes[..] else {
        return Err(Error::new(ErrorKind::Unsupported, "a database with a name lies on one memory node"));
    };
    let config = StoreConfig {
        key_order: options.key_order,
        shards: options.shards as u64,
        merge_operator: String::new(),
        bounds: options.routing()?.bounds().to_vec(),
    };
    let store = named::open(node.client(), name, &config, options)?;
    let config = StoreConfig::decode(store.config()).map_err(|error| Error::from(error).during("opening a store"))?;
    let routing = Routing::new(config.key_order, options.shards, config.bounds)?;
    let open = |id: u32| {
        let identity = identity(options, store.id().0.into(), id.into());
        let recovered = recovery::open(node, store.clone(), ShardId(id), identity, options)?;
        Ok(Arc::new(Shard::recovered(options.clone(), recovered, Arc::clone(bell))?))
    };
    let mut shards: Vec<Arc<Shard>> = Vec::with_capacity(options.shards);
    for id in (0..).take(options.shards) {
        match open(id) {
            Ok(shard) => shards.push(shard),
            Err(error) => {
                shards.iter().for_each(|shard| shard.close());
                shards.iter().for_each(|shard| shard.clear());
                return Err(error);
            }
        }
    }
    Ok(Opened { nodes, shards: shards.into(), routing })
}
