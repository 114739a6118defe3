//! Named databases in the directories of memory nodes: created, opened, listed, dropped.
//!
//! On each of its nodes, a database has a store of its name. Where there are several, each store says
//! which part it is: the number of the database, the place of the node, and how many there are. So
//! the nodes may be named in any order when it is opened, and one that is missing, strange or empty is
//! noticed before anything is changed.
//!
//! Creation goes node by node. One that was interrupted is completed by whoever opens the database
//! next, if no shard of it was ever acquired; otherwise a node without its part has lost it.

use crate::{Error, Options, Result};
use forebay_base::ErrorKind;
use forebay_env::Random;
use forebay_memory_client::{MemoryClient, ShardId, StoreHandle};
use forebay_table::{StoreConfig, StorePart};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A database's store on one of its nodes.
pub(crate) struct Part {
    pub(crate) store: StoreHandle,
    pub(crate) config: StoreConfig,
}

/// Opens the stores of the database `name`, or creates them, as the options say, and returns them in the
/// order of their places. `config` is what they must have been created with.
///
/// # Errors
/// `NotFound`, `AlreadyExists`, and `Invalid` when it was created with something else, or on other nodes.
pub(crate) fn open(
    clients: &[Arc<MemoryClient>],
    name: &str,
    config: &StoreConfig,
    options: &Options,
) -> Result<Vec<Part>> {
    let found = clients.iter().map(|client| find(client, name)).collect::<Result<Vec<_>>>()?;
    let found: Vec<_> = clients.iter().zip(found).collect();
    let there: Vec<_> = found.iter().filter_map(|(_, part)| part.as_ref()).collect();
    if !there.is_empty() && options.error_if_exists {
        return Err(Error::new(ErrorKind::AlreadyExists, format!("there is a database {name:?} already")));
    }
    there.iter().try_for_each(|part| check(name, &part.config, config))?;
    let database = match there.first() {
        Some(first) => first.config.part.map(|part| part.database),
        None if !options.create_if_missing => {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no database {name:?}")));
        }
        None if clients.len() == 1 => None,
        None => Some(new_number()?),
    };
    let taken = places(name, &there, clients.len())?;
    if !there.is_empty() && there.len() < clients.len() {
        check_untouched(name, &there, clients.len(), options)?;
    }
    let mut free = (0..).filter(|place| !taken.contains(place));
    let mut parts = Vec::with_capacity(clients.len());
    for (client, part) in found {
        let part = match part {
            Some(part) => part,
            None => {
                let part = database.zip(free.next()).map(|(database, place)| {
                    let nodes = u32::try_from(clients.len()).unwrap_or(u32::MAX);
                    StorePart { database, place, nodes }
                });
                create(client, name, StoreConfig { part, ..config.clone() }, options)?
            }
        };
        parts.push(part);
    }
    parts.sort_by_key(|part| part.config.part.map(|part| part.place));
    // Somebody else may have created one of them meanwhile.
    parts.iter().try_for_each(|part| check(name, &part.config, config))?;
    places(name, &parts.iter().collect::<Vec<_>>(), clients.len())?;
    Ok(parts)
}

fn new_number() -> Result<u64> {
    let secret = Random::secret().map_err(|error| Error::new(ErrorKind::Io, format!("a random number: {error}")))?;
    Ok(secret as u64)
}

fn find(client: &Arc<MemoryClient>, name: &str) -> Result<Option<Part>> {
    match client.open_store(name) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        store => Part::new(store?).map(Some),
    }
}

impl Part {
    fn new(store: StoreHandle) -> Result<Self> {
        let config = StoreConfig::decode(store.config());
        Ok(Self { config: config.map_err(|error| Error::from(error).during("opening a store"))?, store })
    }
}

fn create(client: &Arc<MemoryClient>, name: &str, config: StoreConfig, options: &Options) -> Result<Part> {
    match client.create_store(name, &config.encode()?) {
        // Somebody else was faster.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && !options.error_if_exists => {
            Part::new(client.open_store(name)?)
        }
        created => Part::new(created?),
    }
}

fn check(name: &str, found: &StoreConfig, wanted: &StoreConfig) -> Result<()> {
    let differ = |what: &str, found: &dyn std::fmt::Display, wanted: &dyn std::fmt::Display| {
        Err(Error::invalid(format!("the database {name:?} was created with {what} {found}, not {wanted}")))
    };
    if found.key_order != wanted.key_order {
        return differ("the key order", &found.key_order.name(), &wanted.key_order.name());
    }
    if found.shards != wanted.shards {
        return differ("a number of shards of", &found.shards, &wanted.shards);
    }
    if found.merge_operator != wanted.merge_operator {
        return differ("the merge operator", &found.merge_operator, &wanted.merge_operator);
    }
    Ok(())
}

/// The places of parts, which are to be those of one database on so many nodes.
fn places(name: &str, parts: &[&Part], nodes: usize) -> Result<BTreeSet<u32>> {
    let mut places = BTreeSet::new();
    let first = parts.first().and_then(|part| part.config.part);
    for part in parts {
        let part = part.config.part;
        let wanted = part.map_or(1, |part| part.nodes);
        if wanted as usize != nodes {
            let what = format!("the database {name:?} lies on {wanted} memory nodes, not on {nodes}: name those");
            return Err(Error::invalid(what));
        }
        if part.map(|part| part.database) != first.map(|part| part.database) {
            return Err(Error::invalid(format!("the memory nodes have different databases of the name {name:?}")));
        }
        if !places.insert(part.map_or(0, |part| part.place)) {
            return Err(Error::invalid(format!(
                "two of the memory nodes have the same part of {name:?}: are they one?"
            )));
        }
    }
    Ok(places)
}

/// Checks that nodes without a part never had one: no shard of the others was ever used.
fn check_untouched(name: &str, there: &[&Part], nodes: usize, options: &Options) -> Result<()> {
    for part in there {
        for shard in 0..part.config.shards {
            let id = ShardId(u32::try_from(shard).unwrap_or(u32::MAX));
            match part.store.root(id) {
                Err(error) if error.kind() == ErrorKind::NotFound && options.create_if_missing => {}
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                _ => {
                    let missing = nodes - there.len();
                    let what = format!(
                        "{missing} of {nodes} memory nodes have no part of the database {name:?}: they were restarted, \
                         or are other ones"
                    );
                    return Err(Error::new(ErrorKind::NotFound, what));
                }
            }
        }
    }
    Ok(())
}

/// Options to open the database `name` with: what it was created with, and the usual ones.
///
/// # Errors
/// `NotFound` when no node has a part of it.
pub(crate) fn options_of(clients: &[Arc<MemoryClient>], name: &str) -> Result<Options> {
    for client in clients {
        if let Some(part) = find(client, name)? {
            let shards = usize::try_from(part.config.shards).unwrap_or(usize::MAX);
            let (name, key_order) = (Some(name.to_owned()), part.config.key_order);
            return Ok(Options { name, key_order, shards, create_if_missing: false, ..Options::default() });
        }
    }
    Err(Error::new(ErrorKind::NotFound, format!("there is no database {name:?}")))
}

/// Names of the databases in memory nodes, in ascending order.
///
/// # Errors
/// `Unavailable` when one is gone.
pub(crate) fn list(clients: &[Arc<MemoryClient>]) -> Result<Vec<String>> {
    let mut names = BTreeSet::new();
    for client in clients {
        names.extend(client.list_stores()?.into_iter().map(|(name, _)| name));
    }
    Ok(names.into_iter().collect())
}

/// Drops the database `name` with all that is in it.
///
/// # Errors
/// `NotFound` when no node has a part of it; `Busy` while a process has it open.
pub(crate) fn destroy(clients: &[Arc<MemoryClient>], name: &str) -> Result<()> {
    let mut dropped = Err(Error::new(ErrorKind::NotFound, format!("there is no database {name:?}")));
    for client in clients {
        match client.open_store(name) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            store => {
                client.drop_store(store?.id())?;
                dropped = Ok(());
            }
        }
    }
    dropped
}
