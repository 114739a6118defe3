//! Opening a database: its memory nodes and the shards on each of them.

use crate::durable::known::Seen;
use crate::durable::named;
use crate::durable::recovery::{self, LeftRecords, Recovered, Wanted};
use crate::remote::members::Members;
use crate::remote::owner::Owner;
use crate::remote::private_store::PrivateStore;
use crate::remote::segment;
use crate::remote::segment::{Node, Remote};
use crate::sharding::fitting;
use crate::sharding::opened::{Opened, acquire, nodes, recorded_routing};
use crate::sharding::{open_copied, open_stored};
use crate::terms::recovery::{Recovery, ShardRecovery};
use crate::terms::routing::{KeyRange, Routing};
use crate::terms::time::ExpiryClock;
use crate::terms::{Error, Options, Result};
use crate::tree::version::identity;
use crate::work::common::Common;
use crate::work::shard::Shard;
use forebay_base::ErrorKind;
use forebay_env::thread::spawn;
use forebay_memory_client::{MemoryClient, ShardId};
use forebay_table::StoreConfig;
use std::num::NonZeroU64;
use std::sync::Arc;

/// Opens the shards of a database, shard `i` on node `i` modulo the number of nodes (dLSM IX), or on the nodes that
/// have parts of it if it exists already. They share `common`. If it is opened `to_read`, it is in storage, and the nodes
/// hold nothing that outlives this.
///
/// # Errors
/// See [`crate::Db::open`].
pub(crate) fn open(
    clients: &[Arc<MemoryClient>],
    options: &Options,
    common: &Arc<Common>,
    to_read: bool,
) -> Result<Opened> {
    options.check()?;
    let smallest = clients.iter().map(|client| client.extent_bytes()).min();
    let smallest = smallest.ok_or_else(|| Error::invalid("a database needs at least one memory node"))?;
    let options = options.clone().fitted_to(smallest);
    if options.name.is_some() {
        named::check_differ(clients)?;
    }
    if let (Some(storage), Some(rate)) = (&options.storage, NonZeroU64::new(options.storage_bytes_per_second)) {
        storage.limit(Some(rate));
    }
    let time = Arc::new(ExpiryClock::new(Arc::clone(&options.clock)));
    let (used, unused) = clients.split_at(options.shards.min(clients.len()));
    if !unused.is_empty() && options.copies() == 1 {
        let shards = options.shards;
        tracing::warn!(
            shards,
            unused = unused.len(),
            "memory nodes are not used: there is a shard for each of the others"
        );
    }
    let opened = match (&options.name, &options.storage) {
        (Some(name), Some(storage)) => open_stored::open((storage, name), clients, (&options, to_read), &time, common),
        (Some(name), None) if options.copies() > 1 => open_copied::open(name, clients, &options, &time, common),
        (Some(name), None) => open_named(name, clients, &options, &time, common),
        (None, _) => fitting::check(used, &options, true)
            .and_then(|()| open_private(nodes(used.iter(), &options), &options, &time, common)),
    };
    opened.map_err(|error| judged(clients, error))
}

/// The meaning of a failure to open, as [`Remote::judged`] gives it for later failures: the session ended, or another
/// process interfered.
fn judged(clients: &[Arc<MemoryClient>], error: Error) -> Error {
    if error.is_of_storage() {
        return error;
    }
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

fn open_private(
    nodes: Vec<Arc<Node>>,
    options: &Options,
    time: &Arc<ExpiryClock>,
    common: &Arc<Common>,
) -> Result<Opened> {
    let store = |node: &Arc<Node>| if node.has_part() { PrivateStore::for_jobs(node.client()) } else { Ok(None) };
    let stores = nodes.iter().map(store).collect::<Result<Vec<_>>>()?;
    let places = nodes.iter().zip(&stores).cycle().zip(0..).take(options.shards);
    let shards = places.map(|((node, store), id)| {
        let remote = Members::only(Arc::new(Remote::new(node, store.as_ref(), ShardId(id))?));
        Ok(Arc::new(Shard::new(options.clone(), remote, Arc::clone(time), Arc::clone(common))?))
    });
    let shards = shards.collect::<Result<Vec<_>>>()?.into();
    let (routing, cut) = (options.routing()?, Arc::default());
    let logs = Vec::new();
    Ok(Opened { nodes, shards, routing, logs, recovery: None, cut, log: None, copied: None, stored: None })
}

fn open_named(
    name: &str,
    clients: &[Arc<MemoryClient>],
    options: &Options,
    time: &Arc<ExpiryClock>,
    common: &Arc<Common>,
) -> Result<Opened> {
    let config = StoreConfig {
        key_order: options.key_order,
        shards: options.shards as u64,
        merge_operator: options.operator_name(),
        bounds: options.routing()?.bounds().to_vec(),
        part: None,
        copies: 1,
        to_finish: options.unfinished,
    };
    let parts = named::open(clients, name, &config, options, |used, is_new| fitting::check(used, options, is_new))?;
    let recorded = parts.first().map(|part| part.config.merge_operator.as_str());
    let options = &options.merging_by(recorded.unwrap_or_default())?;
    let nodes = nodes(parts.iter().map(|part| part.store.client()), options);
    let of_shards = parts.iter().map(|part| &part.store).cycle().zip((0..).map(ShardId));
    let seen = Seen::look(&of_shards.take(options.shards).collect::<Vec<_>>(), options)?;
    let owners = acquire(&parts, &seen, options)?;
    let mut shards: Vec<Arc<Shard>> = Vec::with_capacity(options.shards);
    let mut logs = Vec::with_capacity(options.shards);
    let mut recovery = Recovery::default();
    let result = recover(&owners, &nodes, options).and_then(|recovered| {
        for mut recovered in recovered {
            recovered.take_charge();
            logs.push(std::mem::take(&mut recovered.log.records));
            let flushed = recovered.version.version.last_sequence();
            recovery.shards.push(ShardRecovery { flushed, last: recovered.log.last });
            recovery.segments_held += recovered.version.segments().count() as u64;
            let shard = Shard::recovered(options.clone(), recovered, Arc::clone(time), Arc::clone(common))?;
            shards.push(Arc::new(shard));
        }
        Ok(())
    });
    if result.is_err() {
        owners.iter().for_each(|owner| owner.release());
    }
    let bounds = parts.first().map(|part| part.config.bounds.as_slice()).unwrap_or_default();
    let routing = result.and_then(|()| recorded_routing(&shards, bounds, options));
    if routing.is_err() {
        shards.iter().for_each(|shard| shard.close());
        shards.iter().for_each(|shard| shard.clear());
    }
    let cut = Arc::default();
    let (shards, recovery) = (shards.into(), Some(recovery));
    Ok(Opened { nodes, routing: routing?, shards, logs, recovery, cut, log: None, copied: None, stored: None })
}

/// Recovers all shards, each with its owner. Shard `i` is on node `i` modulo the number of nodes.
fn recover(owners: &[Arc<Owner>], nodes: &[Arc<Node>], options: &Options) -> Result<Vec<Recovered>> {
    let shards = owners.iter().zip(nodes.iter().cycle()).zip(0..).map(|((owner, node), id)| {
        Wanted::new(vec![(node, owner)], identity(options, owner.store().id().0.into(), id))
    });
    recovery::recover(shards.collect(), options, |_| None)
}

/// Continues where the earlier owner of a named database ended: writes again what its logs hold, several shards at a
/// time, and deletes keys in shards that do not own them. Background work must run meanwhile.
///
/// # Errors
/// As for writes; `Corrupt` when a log is damaged.
pub(crate) fn resume(shards: &[Arc<Shard>], logs: Vec<LeftRecords>, routing: &Arc<Routing>) -> Result<()> {
    let mut result = Ok(());
    let mut threads = Vec::new();
    for ((at, shard), records) in shards.iter().enumerate().zip(logs) {
        if shard.tree.options.background_threads == 0 || shards.len() == 1 {
            result = result.and_then(|()| go_on(shard, records, routing.range(at)));
            continue;
        }
        let (shard, routing) = (Arc::clone(shard), Arc::clone(routing));
        let thread = spawn("forebay-replay", move || go_on(&shard, records, routing.range(at)));
        threads.push(thread.map_err(|error| Error::no_thread(&error)));
    }
    for thread in threads {
        let panicked = |_| Err(Error::panicked("replays a log"));
        result = result.and(thread.and_then(|thread| thread.join().unwrap_or_else(panicked)));
    }
    result
}

/// Writes again what a shard's log holds, and deletes the keys that it does not own, left by an interrupted move of a bound.
fn go_on(shard: &Shard, records: LeftRecords, owned: Option<KeyRange<'_>>) -> Result<()> {
    let Some(owned) = owned else {
        shard.replay(records, KeyRange::default())?;
        return shard.clear_range(KeyRange::default());
    };
    // A search for keys in a memtable first puts all of it in order.
    let memtables_are_clean = shard.replay(records, owned)?;
    let below = owned.lower.map(|lower| KeyRange { lower: None, upper: Some(lower) });
    let above = owned.upper.map(|upper| KeyRange { lower: Some(upper), upper: None });
    for others in below.into_iter().chain(above) {
        if !memtables_are_clean || shard.tree.tables_overlap(others) {
            shard.clear_range(others)?;
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
        // As when the session lapses: the client is not told.
        let [_, second] = &clients;
        second.call(&CloseSession { session: second.session() }).unwrap();
        assert_eq!(judged(ErrorKind::AccessDenied), ErrorKind::Fenced);
        assert_eq!(judged(ErrorKind::Corrupt), ErrorKind::Fenced);
        assert_eq!(judged(ErrorKind::Full), ErrorKind::Full);
    }
}
