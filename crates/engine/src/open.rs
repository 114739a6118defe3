//! Opening a database: its memory nodes, and on each of them its shards.

use crate::background::Bell;
use crate::node_part::PrivateStore;
use crate::owner::Owner;
use crate::routing::{KeyRange, Routing};
use crate::segment::{Node, Remote};
use crate::shard::Shard;
use crate::version::identity;
use crate::{Error, Options, Result, named, recovery, segment};
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
    // Nodes without a shard are not used.
    let used = clients.get(..options.shards).unwrap_or(clients);
    let opened = match &options.name {
        Some(name) => open_named(name, used, &options, bell),
        None => open_private(nodes(used.iter(), &options), &options, bell),
    };
    opened.map_err(|error| judged(used, error))
}

/// What a failure to open means, as [`Remote::judged`] says of later ones: the end of a session, or another process's
/// doing.
fn judged(clients: &[Arc<MemoryClient>], error: Error) -> Error {
    match error.kind() {
        kind @ (ErrorKind::Corrupt | ErrorKind::Invalid | ErrorKind::Fenced | ErrorKind::AccessDenied) => {
            let ended = clients.iter().find_map(|client| segment::ended(client));
            ended.unwrap_or_else(|| match kind {
                ErrorKind::AccessDenied => Error::new(
                    ErrorKind::Unavailable,
                    format!("the memory node withdrew its memory, try again: {error}"),
                ),
                _ => error,
            })
        }
        _ => error,
    }
}

/// The memory nodes; each has the same share of the budget for indexes.
fn nodes<'a>(clients: impl ExactSizeIterator<Item = &'a Arc<MemoryClient>>, options: &Options) -> Vec<Arc<Node>> {
    let mut of_node = options.clone();
    of_node.cached_index_bytes = options.cached_index_bytes.map(|bytes| bytes / clients.len().max(1) as u64);
    clients.enumerate().map(|(number, client)| Node::new(number, Arc::clone(client), &of_node)).collect()
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

fn open_named(name: &str, clients: &[Arc<MemoryClient>], options: &Options, bell: &Arc<Bell>) -> Result<Opened> {
    let config = StoreConfig {
        key_order: options.key_order,
        shards: options.shards as u64,
        merge_operator: String::new(),
        bounds: options.routing()?.bounds().to_vec(),
        part: None,
    };
    let parts = named::open(clients, name, &config, options)?;
    let nodes = nodes(parts.iter().map(|part| part.store.client()), options);
    let owners = acquire(&parts, options)?;
    let mut shards: Vec<Arc<Shard>> = Vec::with_capacity(options.shards);
    let mut result: Result<()> = Ok(());
    for ((owner, node), id) in owners.iter().zip(nodes.iter().cycle()).zip(0..) {
        let opened = result.and_then(|()| {
            let identity = identity(options, owner.store().id().0.into(), id);
            let recovered = recovery::take_up(node, owner, identity, options)?;
            Ok(Arc::new(Shard::recovered(options.clone(), recovered, Arc::clone(bell))?))
        });
        result = opened.map(|shard| shards.push(shard));
        if result.is_err() {
            owner.release();
        }
    }
    let bounds = parts.first().map(|part| part.config.bounds.as_slice()).unwrap_or_default();
    let routing = result.and_then(|()| {
        let routing = recorded_routing(&shards, bounds, options)?;
        tidy(&shards, &routing)?;
        Ok(routing)
    });
    if routing.is_err() {
        shards.iter().for_each(|shard| shard.close());
        shards.iter().for_each(|shard| shard.clear());
    }
    Ok(Opened { nodes, routing: routing?, shards: shards.into() })
}

/// Becomes the owner of all shards, or of none.
fn acquire(parts: &[named::Part], options: &Options) -> Result<Vec<Arc<Owner>>> {
    let mut owners: Vec<Arc<Owner>> = Vec::with_capacity(options.shards);
    for (part, id) in parts.iter().cycle().zip(0..).take(options.shards) {
        match recovery::acquire(&part.store, ShardId(id), options) {
            Ok(owner) => owners.push(owner),
            Err(error) => {
                owners.iter().for_each(|owner| owner.release());
                return Err(error);
            }
        }
    }
    Ok(owners)
}

/// The bounds with which the database was created, and where they were moved since.
fn recorded_routing(shards: &[Arc<Shard>], created: &[Vec<u8>], options: &Options) -> Result<Routing> {
    let mut created = created.iter();
    let mut bounds = Vec::new();
    for shard in shards.iter().skip(1) {
        let (created, view) = (created.next(), shard.view.load());
        let moved = view.version.version.first_key().map(<[u8]>::to_vec);
        match moved.or_else(|| created.cloned()) {
            Some(bound) => bounds.push(bound),
            None => break,
        }
    }
    let routing = Routing::new(options.key_order, options.shards, bounds);
    routing.map_err(|error| Error::corrupt(format!("the bounds between shards do not fit each other: {error}")))
}

/// Deletes what shards hold of others' keys: what a move of a bound left that was interrupted.
fn tidy(shards: &[Arc<Shard>], routing: &Routing) -> Result<()> {
    for (at, shard) in shards.iter().enumerate() {
        let Some(range) = routing.range(at) else {
            shard.clear_range(KeyRange::default())?;
            continue;
        };
        if let Some(lower) = range.lower {
            shard.clear_range(KeyRange { lower: None, upper: Some(lower) })?;
        }
        if let Some(upper) = range.upper {
            shard.clear_range(KeyRange { lower: Some(upper), upper: None })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_fabric::inprocess;
    use forebay_memory_client::ClientOptions;
    use forebay_memory_node::MemoryNode;
    use forebay_proto::calls::CloseSession;

    #[test]
    fn keys_are_refused_because_a_session_ended_or_for_somebody_else() {
        let (listener, connector) = inprocess::listen(1).unwrap();
        let options = forebay_memory_node::Options::with_memory(64 << 20);
        let _node = MemoryNode::start(Box::new(listener), options).unwrap();
        let options = ClientOptions { renew: false, ..ClientOptions::default() };
        let connect = || MemoryClient::connect(connector.connect().unwrap(), "process", options.clone()).unwrap();
        let clients = [connect(), connect()];
        let judged = |kind| judged(&clients, Error::new(kind, "a key")).kind();
        assert_eq!(judged(ErrorKind::AccessDenied), ErrorKind::Unavailable);
        assert_eq!(judged(ErrorKind::Corrupt), ErrorKind::Corrupt);
        // As when it lapses: the client is not told.
        let [_, second] = &clients;
        second.call(&CloseSession { session: second.session() }).unwrap();
        assert_eq!(judged(ErrorKind::AccessDenied), ErrorKind::Fenced);
        assert_eq!(judged(ErrorKind::Corrupt), ErrorKind::Fenced);
        assert_eq!(judged(ErrorKind::Full), ErrorKind::Full);
    }
}
