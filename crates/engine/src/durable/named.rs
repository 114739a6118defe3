//! Named databases in the directories of memory nodes: creating, opening, listing, dropping.
//!
//! A database has a store of its name on each of its nodes. If there are several, each store says which part it is: the
//! number of the database, the place of the node, and the number of nodes. So the nodes may be given in any order on
//! opening, and a missing, foreign or empty node is noticed before anything changes.
//!
//! All given nodes are asked first. If any has a part, the database is opened on the nodes that have parts. Only if
//! none has, a database is created on the first of them, on as many as it has shards. The rest are no part of it, and
//! may be given again.
//!
//! Creation goes node by node, in an order that does not depend on how they are named: processes that create the
//! database at the same time begin at the same node, and all continue what the first one has begun there. If it was
//! interrupted, the next process that opens the database completes it, provided
//! that none of its shards was ever acquired. Otherwise a node without its part has lost it. With several copies, its
//! register says whether the database was created ([`crate::sharding`]).
//!
//! A database that is to be finished ([`Options::unfinished`]) says so in its stores' configuration. The process that
//! finishes it sets the root of a shard that no database has in each of them. Until then nobody opens it, and the next
//! process that begins it drops it first.

use crate::durable::database::UNFINISHED;
use crate::terms::{Durability, Error, Options, Result};
use forebay_base::ErrorKind;
use forebay_env::Random;
use forebay_fabric::NodeIdentity;
use forebay_memory_client::{MemoryClient, ShardId, StoreHandle};
use forebay_table::{CopiedDatabase, MembersRecord, StoreConfig, StorePart};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The shard of a store whose root says that a database that was to be finished is finished. It holds nothing.
const FINISHED: ShardId = ShardId(u32::MAX - 1);

/// The shard of a store whose root is a cell of a register in memory nodes (see `node_register`).
pub(crate) const CELL: ShardId = ShardId(u32::MAX);

/// A database's store on one of its nodes.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) store: StoreHandle,
    pub(crate) config: StoreConfig,
}

/// Opens or creates the stores of the database `name`, as the options say, and returns them in the order of their
/// places. `config` is the configuration that they must have been created with. Nothing is created before `admit`, which is
/// told the nodes of the database, and whether it is new, has let it pass.
///
/// # Errors
/// Those of `admit`; `NotFound`, `AlreadyExists`, and `Invalid` when it was created with another configuration or on
/// other nodes, or when the nodes have several databases of the name; `Busy` when it is unfinished, or, if it is to be
/// begun anew, while a process has it open, or when another process creates another one meanwhile.
pub(crate) fn open(
    clients: &[Arc<MemoryClient>],
    name: &str,
    config: &StoreConfig,
    options: &Options,
    admit: impl FnOnce(&[Arc<MemoryClient>], bool) -> Result<()>,
) -> Result<Vec<Part>> {
    let (mut parts, mut free) = (Vec::new(), Vec::new());
    for client in clients {
        match find(client, name)? {
            Some(part) => parts.push(part),
            None => free.push(client),
        }
    }
    check_are_one(name, &parts)?;
    match (is_unfinished(parts.iter())?, options.unfinished) {
        (true, true) => {
            destroy(clients, name, None)?;
            parts.clear();
            free = clients.iter().collect();
        }
        (true, false) => return Err(Error::new(ErrorKind::Busy, format!("{name:?}: {UNFINISHED}"))),
        (false, _) => {}
    }
    let is_new = parts.is_empty();
    if !is_new && (options.error_if_exists || options.unfinished) {
        return Err(Error::new(ErrorKind::AlreadyExists, format!("there is a database {name:?} already")));
    }
    parts.iter().try_for_each(|part| check(name, &part.config, config))?;
    // There is a shard for each node of a database.
    let nodes = options.shards.min(clients.len());
    let database = match parts.first() {
        Some(first) => first.number(),
        None if !options.create_if_missing => {
            let message = format!("there is no database {name:?} on these memory nodes");
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        None if nodes == 1 => None,
        None => Some(new_number()?),
    };
    let mut taken = places(name, &parts, nodes)?;
    if !is_new && parts.len() < nodes {
        check_untouched(name, &parts, nodes, options)?;
    }
    let others = free.split_off(free.len().min(nodes.saturating_sub(parts.len())));
    parts.sort_by_key(Part::place);
    let used: Vec<_> = parts.iter().map(|part| part.store.client()).chain(free.iter().copied()).cloned().collect();
    admit(&used, is_new)?;
    let places_left = (0..).filter(|place| !taken.contains(place));
    let mut to_create: Vec<_> = free.into_iter().zip(places_left).collect();
    to_create.sort_by_key(|(client, _)| common_order(client));
    for (client, wished) in to_create {
        // Another process may have created the part at the node before meanwhile.
        let database = parts.first().map_or(database, Part::number);
        let place = std::iter::once(wished).chain(0..).find(|place| !taken.contains(place));
        let part = database.zip(place).map(|(database, place)| {
            let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
            StorePart { database, place, nodes }
        });
        let part = create(client, name, StoreConfig { part, ..config.clone() }, options)?;
        check(name, &part.config, config)?;
        if part.config.to_finish != config.to_finish {
            return Err(created_meanwhile(name));
        }
        parts.push(part);
        check_are_one(name, &parts)?;
        taken = places(name, &parts, nodes)?;
    }
    parts.sort_by_key(Part::place);
    // Another process may have created one on the other nodes meanwhile.
    if is_new {
        for client in others {
            if let Some(other) = find(client, name)? {
                parts.push(other);
                check_are_one(name, &parts)?;
            }
        }
    }
    Ok(parts)
}

/// Checks that these are all different memory nodes.
///
/// # Errors
/// `Invalid`.
pub(crate) fn check_differ(clients: &[Arc<MemoryClient>]) -> Result<()> {
    let mut nodes = BTreeSet::new();
    let is_twice = |client: &&Arc<MemoryClient>| !nodes.insert(common_order(client));
    match clients.iter().find(is_twice) {
        Some(client) => Err(Error::invalid(format!("two of the memory nodes are one: {}", client.described()))),
        None => Ok(()),
    }
}

/// Orders memory nodes alike for all processes, however they name them.
pub(crate) fn common_order(client: &MemoryClient) -> (u32, u64) {
    let NodeIdentity { node, incarnation } = client.node();
    (node, incarnation)
}

/// Checks that parts at different nodes belong to one database.
fn check_are_one(name: &str, parts: &[Part]) -> Result<()> {
    let Some((first, others)) = parts.split_first() else { return Ok(()) };
    // A database on a single node has no number.
    if others.iter().all(|part| part.number().is_some() && part.number() == first.number()) {
        return Ok(());
    }
    let told = parts.iter().map(|part| match part.config.part {
        None => format!("{} has all of one", part.store.client().described()),
        Some(StorePart { database, .. }) => {
            format!("{} has a part of that of number {database:016x}", part.store.client().described())
        }
    });
    Err(Error::invalid(format!(
        "these memory nodes have different databases of the name {name:?}: {}. Name only the nodes of one of them, to open or to drop it",
        told.collect::<Vec<_>>().join("; ")
    )))
}

/// Whether the database of these stores is to be finished, and was not.
fn is_unfinished<'p>(mut parts: impl Iterator<Item = &'p Part> + Clone) -> Result<bool> {
    if !parts.clone().any(|part| part.config.to_finish) {
        return Ok(false);
    }
    // All of the database existed before the first store said so.
    parts.try_fold(true, |so_far, part| match part.store.root(FINISHED) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(so_far),
        root => Ok(so_far && root?.is_none()),
    })
}

/// Says in a store that all of its database exists.
///
/// # Errors
/// `NotFound` when it was dropped; `Unavailable`.
pub(crate) fn finish(store: &StoreHandle) -> Result<()> {
    let shard = store.acquire_shard(FINISHED, true)?;
    shard.set_root(&[])?;
    Ok(shard.release()?)
}

/// The place of a store on a node that founded a database with several copies, and on one that came later. The register
/// says what is there.
const FOUNDER: u32 = 0;
const LATER: u32 = 1;

/// The store of a database with several copies at one of its nodes, if it exists.
///
/// # Errors
/// `AlreadyExists` when there is a store of the name that is not of this database; `Unavailable`.
pub(crate) fn find_copy(client: &Arc<MemoryClient>, name: &str, database: &CopiedDatabase) -> Result<Option<Part>> {
    find(client, name)?.map(|found| check_copy(found, name, database)).transpose()
}

/// Creates such a store: at one of `founders` nodes, if the database is new.
///
/// # Errors
/// `Busy` when another process creates a database of the name there at the same time; `Unavailable`.
pub(crate) fn create_copy(
    client: &Arc<MemoryClient>,
    name: &str,
    database: &CopiedDatabase,
    founders: Option<usize>,
) -> Result<Part> {
    let nodes = founders.map_or(database.copies, |founders| u32::try_from(founders).unwrap_or(u32::MAX));
    let place = if founders.is_some() { FOUNDER } else { LATER };
    let part = Some(StorePart { database: database.database, place, nodes });
    let config = StoreConfig { part, ..database.config.clone() };
    let created = create(client, name, config, &Options::default())?;
    // If it belongs to another database, it was not there before.
    check_copy(created, name, database).map_err(|_| created_meanwhile(name))
}

/// The same, if it does not exist already.
pub(crate) fn open_copy(
    client: &Arc<MemoryClient>,
    name: &str,
    database: &CopiedDatabase,
    founders: Option<usize>,
) -> Result<Part> {
    find_copy(client, name, database)?.map_or_else(|| create_copy(client, name, database, founders), Ok)
}

/// Passes a store that was found, if it belongs to this database.
fn check_copy(found: Part, name: &str, database: &CopiedDatabase) -> Result<Part> {
    if found.config.copies == database.copies && found.number() == Some(database.database) {
        return Ok(found);
    }
    let message = format!(
        "{} has another database {name:?}, not that of number {:016x}: name the right register, choose another name, or \
         drop it there",
        found.store.client().described(),
        database.database
    );
    Err(Error::new(ErrorKind::AlreadyExists, message))
}

/// The stores of a database on storage: what memory nodes hold of it is a copy, and can be thrown away.
pub(crate) struct Copies {
    /// The name of the stores.
    pub(crate) store: String,
    /// In the order of their places.
    pub(crate) parts: Vec<Part>,
    /// Whether these are the stores that the database's commits name.
    pub(crate) are_known: bool,
}

impl Copies {
    /// No stores of a name.
    pub(crate) const fn none() -> Self {
        Self { store: String::new(), parts: Vec::new(), are_known: false }
    }

    /// Drops stores that were created for an opening that failed. Without them the next opening loads from storage.
    pub(crate) fn drop_new(&self) {
        for part in self.parts.iter().filter(|_| !self.are_known) {
            if let Err(error) = part.store.client().drop_store(part.store.id()) {
                tracing::debug!(%error, "dropping a store that was created in vain: the next owner does");
            }
        }
    }
}

/// What the names of all stores of a database on storage begin with.
fn prefix((name, database): (&str, u128)) -> String {
    format!("{name}.{:016x}.", database as u64)
}

/// Opens the stores that `recorded` names, if these nodes have all of them, and creates others if not. They are on as
/// many nodes as there are shards for.
///
/// # Errors
/// `Busy` when another process has the database open, unless it is to be taken over; `Invalid`; `Unavailable`.
pub(crate) fn open_copies(
    clients: &[Arc<MemoryClient>],
    of: (&str, u128),
    recorded: &str,
    config: &StoreConfig,
    options: &Options,
) -> Result<Copies> {
    let nodes = options.shards.min(clients.len());
    if !recorded.is_empty() {
        let mut parts = Vec::with_capacity(nodes);
        for client in clients {
            parts.extend(find(client, recorded)?);
        }
        parts.sort_by_key(Part::place);
        if parts.len() == nodes && places(of.0, &parts, nodes).is_ok() {
            return Ok(Copies { store: recorded.to_owned(), parts, are_known: true });
        }
        for part in parts {
            match part.store.client().drop_store(part.store.id()) {
                Err(error) if error.kind() != ErrorKind::Busy => return Err(error.into()),
                Err(error) if !options.takeover => {
                    let message = format!("the database {:?} is open in another process: {error}", of.0);
                    return Err(Error::new(ErrorKind::Busy, message));
                }
                _ => {}
            }
        }
    }
    let number = new_number()?;
    let store = format!("{}{:08x}", prefix(of), number as u32);
    let mut copies = Copies { store, parts: Vec::with_capacity(nodes), are_known: false };
    for (client, place) in clients.iter().take(nodes).zip(0..) {
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
        let part = (nodes > 1).then_some(StorePart { database: number, place, nodes });
        let config = StoreConfig { part, ..config.clone() }.encode()?;
        let created = client.create_store(&copies.store, &config).map_err(Error::from).and_then(Part::new);
        let created = created.inspect_err(|_| copies.drop_new())?;
        copies.parts.push(created);
    }
    Ok(copies)
}

/// Drops stores that nobody needs: those of the database except `kept`. Stores that a deposed process still has open
/// stay until the database is opened again.
pub(crate) fn drop_other_copies(clients: &[Arc<MemoryClient>], of: (&str, u128), kept: &str) {
    for client in clients {
        let dropped = drop_stores(client, |name| name.starts_with(&prefix(of)) && name != kept);
        if let Err(error) = dropped {
            tracing::debug!(%error, "dropping what memory holds of an earlier time");
        }
    }
}

/// Drops all stores of a database on storage.
///
/// # Errors
/// `Busy` while a process has it open; `Unavailable`.
pub(crate) fn drop_copies(clients: &[Arc<MemoryClient>], of: (&str, u128)) -> Result<()> {
    clients.iter().try_for_each(|client| drop_stores(client, |name| name.starts_with(&prefix(of))))
}

/// Drops stores, which this session need not have opened before.
fn drop_stores(client: &Arc<MemoryClient>, is_meant: impl Fn(&str) -> bool) -> Result<()> {
    for (name, _) in client.list_stores()?.into_iter().filter(|(name, _)| is_meant(name)) {
        match client.open_store(&name) {
            Ok(store) => client.drop_store(store.id())?,
            // Somebody else was faster.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

pub(crate) fn new_number() -> Result<u64> {
    let secret = Random::secret().map_err(|error| Error::new(ErrorKind::Io, format!("a random number: {error}")))?;
    Ok(secret as u64)
}

/// Finds the stores of a database with several copies, at the nodes that founded it and at others.
///
/// # Errors
/// Those of opening a store.
pub(crate) fn copies_of(clients: &[Arc<MemoryClient>], name: &str) -> Result<Vec<Part>> {
    let mut found = Vec::new();
    for client in clients {
        match find(client, name) {
            Err(error) if error.is_out_of_reach() => {}
            part => found.extend(part?),
        }
    }
    found.retain(|part| part.config.copies > 1);
    Ok(found)
}

/// The parts that memory nodes have of the database `name`, in the order of the nodes.
///
/// # Errors
/// `NotFound` when there is none; `Invalid` when they are of several databases; `Unavailable`.
pub(crate) fn parts(clients: &[Arc<MemoryClient>], name: &str) -> Result<Vec<Part>> {
    let found = clients.iter().map(|client| find(client, name)).collect::<Result<Vec<_>>>()?;
    let parts: Vec<_> = found.into_iter().flatten().collect();
    if parts.is_empty() {
        let message = format!("there is no database {name:?} on these memory nodes");
        return Err(Error::new(ErrorKind::NotFound, message));
    }
    check_are_one(name, &parts).map(|()| parts)
}

fn find(client: &Arc<MemoryClient>, name: &str) -> Result<Option<Part>> {
    match client.open_store(name) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        store => Part::new(store?).map(Some),
    }
}

impl Part {
    /// The number of the part's database; `None` when that has no other part.
    fn number(&self) -> Option<u64> {
        self.config.part.map(|part| part.database)
    }

    /// The part's place among the parts.
    fn place(&self) -> u32 {
        self.config.part.map_or(0, |part| part.place)
    }

    fn new(store: StoreHandle) -> Result<Self> {
        if !StoreConfig::may_be(store.config()) {
            return Err(Error::invalid(format!(
                "{:?} at {} is no database, but perhaps a shared tree (--engine tree)",
                store.name(),
                store.client().described()
            )));
        }
        let config = StoreConfig::decode(store.config());
        Ok(Self { config: config.map_err(|error| Error::from(error).during("opening a store"))?, store })
    }

    /// Whether a process ever acquired a shard of the part, or its cell. Where that cannot be told, one may have.
    fn was_acquired(&self) -> bool {
        let is_unused = |id| self.store.root(id).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        !self.shards().chain([CELL]).all(is_unused)
    }

    /// The shards of the database: no more than there can be, whatever the configuration says.
    pub(crate) fn shards(&self) -> impl Iterator<Item = ShardId> + use<> {
        (0..self.config.shards.min(Options::MAX_SHARDS as u64)).map(|shard| ShardId(shard as u32))
    }

    /// On how many nodes a database with several copies was created, as far as this part knows.
    pub(crate) fn founders(&self) -> usize {
        self.config.part.map_or(0, |part| part.nodes as usize)
    }

    /// Whether the part is at a node that founded the database, which has several copies.
    pub(crate) fn is_founder(&self) -> bool {
        self.config.part.is_some_and(|part| part.place == FOUNDER)
    }
}

fn create(client: &Arc<MemoryClient>, name: &str, config: StoreConfig, options: &Options) -> Result<Part> {
    match client.create_store(name, &config.encode()?) {
        // Another process was faster.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && !options.error_if_exists => {
            Part::new(client.open_store(name)?)
        }
        created => Part::new(created?),
    }
}

fn created_meanwhile(name: &str) -> Error {
    let message = format!("another process creates a database {name:?} at the same time: try again");
    Error::new(ErrorKind::Busy, message)
}

pub(crate) fn check(name: &str, found: &StoreConfig, wanted: &StoreConfig) -> Result<()> {
    let differ = |what: &str, found: &dyn std::fmt::Display, wanted: &dyn std::fmt::Display| {
        Err(Error::invalid(format!("the database {name:?} was created with {what} {found}, not {wanted}")))
    };
    if found.key_order != wanted.key_order {
        return differ("the key order", &found.key_order.name(), &wanted.key_order.name());
    }
    if found.shards != wanted.shards {
        return differ("a number of shards of", &found.shards, &wanted.shards);
    }
    if found.copies != wanted.copies {
        let durability = Durability::Memory { copies: usize::try_from(found.copies).unwrap_or(usize::MAX) };
        return Err(Error::invalid(format!(
            "the database {name:?} was created with a number of copies of {}, not {}: open it with that number \
             (--durability={durability})",
            found.copies, wanted.copies
        )));
    }
    if !wanted.merge_operator.is_empty() && found.merge_operator != wanted.merge_operator {
        return differ("the merge operator", &found.merge_operator, &wanted.merge_operator);
    }
    Ok(())
}

/// The places of the parts of one database, which must be on `nodes` nodes.
fn places(name: &str, parts: &[Part], nodes: usize) -> Result<BTreeSet<u32>> {
    let mut places = BTreeSet::new();
    for part in parts {
        let wanted = part.config.part.map_or(1, |part| part.nodes);
        if wanted as usize != nodes {
            let what = format!(
                "the database {name:?} lies on {wanted} memory nodes, not on {nodes}: name those. Of these it has a part on {}",
                described(parts)
            );
            return Err(Error::invalid(what));
        }
        if !places.insert(part.place()) {
            return Err(Error::invalid(format!(
                "two of the memory nodes have the same part of {name:?}: {}",
                described(parts)
            )));
        }
    }
    Ok(places)
}

/// The nodes of parts, as text for people.
fn described(parts: &[Part]) -> String {
    parts.iter().map(|part| part.store.client().described()).collect::<Vec<_>>().join(", ")
}

/// Checks that nodes without a part never had one: no shard of the other parts was ever used.
fn check_untouched(name: &str, there: &[Part], nodes: usize, options: &Options) -> Result<()> {
    for part in there {
        for id in part.shards() {
            match part.store.root(id) {
                Err(error) if error.kind() == ErrorKind::NotFound && options.create_if_missing => {}
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                _ => {
                    let what = format!(
                        "the database {name:?} lies on {nodes} memory nodes, of which {} of these has a part: {}. Name the others, too; \
                         one that was restarted has lost its part",
                        there.len(),
                        described(there)
                    );
                    return Err(Error::new(ErrorKind::NotFound, what));
                }
            }
        }
    }
    Ok(())
}

/// Options that open the database `name`: those it was created with, and defaults for the rest.
///
/// # Errors
/// `NotFound` when no node has a part of it.
pub(crate) fn options_of(clients: &[Arc<MemoryClient>], name: &str) -> Result<Options> {
    for client in clients {
        if let Some(part) = find(client, name)? {
            let shards = usize::try_from(part.config.shards).unwrap_or(usize::MAX);
            let (name, key_order) = (Some(name.to_owned()), part.config.key_order);
            let merge_operator = Some(part.config.merge_operator).filter(|name| !name.is_empty());
            let durability = match usize::try_from(part.config.copies).unwrap_or(usize::MAX) {
                ..=1 => Durability::None,
                copies => Durability::Memory { copies },
            };
            let options = Options { name, key_order, merge_operator, shards, durability, ..Options::default() };
            return Ok(Options { create_if_missing: false, ..options });
        }
    }
    Err(Error::new(ErrorKind::NotFound, format!("there is no database {name:?} on these memory nodes")))
}

/// Names of the databases in memory nodes, in ascending order.
///
/// # Errors
/// `Unavailable` when a node is gone.
pub(crate) fn list(clients: &[Arc<MemoryClient>]) -> Result<Vec<String>> {
    let mut names = BTreeSet::new();
    for client in clients {
        names.extend(client.list_stores()?.into_iter().map(|(name, _)| name));
    }
    Ok(names.into_iter().collect())
}

/// Drops the database `name` and all its data, at all nodes that answer. If a register knows the database, drops only
/// the one that the register `said` there is.
///
/// # Errors
/// `NotFound` when no node has a part of it; `Invalid`, before anything is dropped, when the nodes have several of the
/// name and no register knows it; `Busy` while a process has it open; `Unavailable`, naming the nodes that do not answer
/// and may still have it; if none answers, why.
pub(crate) fn destroy(clients: &[Arc<MemoryClient>], name: &str, said: Option<&MembersRecord>) -> Result<()> {
    let (mut parts, mut left) = (Vec::with_capacity(clients.len()), Vec::new());
    // One node may be named twice.
    let mut nodes = BTreeSet::new();
    for client in clients.iter().filter(|client| nodes.insert(common_order(client))) {
        match find(client, name) {
            Err(error) if error.is_out_of_reach() => left.push((client, error)),
            part => parts.extend(part?),
        }
    }
    match said.and_then(|said| said.database.as_ref()) {
        Some(of) => parts.retain(|part| part.number() == Some(of.database)),
        None => check_are_one(name, &parts)?,
    }
    let is_there = !parts.is_empty();
    // Of copies, an owner may have nothing at some nodes, and needs the stores there when it loses others. Nodes where
    // it has something refuse: those that the register names, or else some that were used.
    let named = said.into_iter().flat_map(|said| said.shards.iter().flatten());
    let members: BTreeSet<_> = named.map(|of| (of.node, of.incarnation)).collect();
    parts.sort_by_cached_key(|part| (!members.contains(&common_order(part.store.client())), !part.was_acquired()));
    for part in &parts {
        let client = part.store.client();
        match client.drop_store(part.store.id()).map_err(Error::from) {
            Err(error) if error.is_out_of_reach() => left.push((client, error)),
            Err(error) if error.kind() == ErrorKind::Busy => {
                let message = format!(
                    "the database {name:?} is open in another process, or a job of it still runs: end that process first, and \
                     try again"
                );
                return Err(Error::new(ErrorKind::Busy, message));
            }
            dropped => dropped?,
        }
    }
    match left.as_slice() {
        [] if is_there => Ok(()),
        [] => Err(Error::new(ErrorKind::NotFound, format!("there is no database {name:?} on these memory nodes"))),
        [(client, error), ..] if left.len() == nodes.len() => {
            Err(error.clone().during(&format!("dropping at {}", client.described())))
        }
        left => {
            let left: Vec<_> = left.iter().map(|(client, error)| format!("{} ({error})", client.described())).collect();
            let message = format!(
                "memory nodes do not answer that may still have a part of the database {name:?}: {}. The others have nothing of it any \
                 more. Drop it again when those are back, or without them when they are gone for good",
                left.join(", ")
            );
            Err(Error::new(ErrorKind::Unavailable, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_fabric::inprocess::{self, Connector};
    use forebay_memory_client::ClientOptions;
    use forebay_memory_node::{Handle, MemoryNode};

    const NODES: [u32; 3] = [1, 2, 3];

    fn start(node: u32) -> (Handle, Connector) {
        let (listener, connector) = inprocess::listen(node).unwrap();
        let options = forebay_memory_node::Options::with_memory(64 << 20);
        (MemoryNode::start(Box::new(listener), options).unwrap(), connector)
    }

    fn connect(nodes: &[(Handle, Connector)]) -> Vec<Arc<MemoryClient>> {
        let client = |(_, connector): &(Handle, Connector)| {
            MemoryClient::connect(connector.connect().unwrap(), "process", ClientOptions::default()).unwrap()
        };
        nodes.iter().map(client).collect()
    }

    fn config(to_finish: bool) -> StoreConfig {
        let (key_order, merge_operator) = (forebay_base::KeyOrder::default(), String::new());
        StoreConfig { key_order, shards: 3, merge_operator, bounds: Vec::new(), part: None, copies: 1, to_finish }
    }

    /// Numbers and places of the parts, in the order of the nodes.
    fn numbered(parts: &[Part]) -> Vec<(u64, u32)> {
        let mut parts: Vec<_> = parts.iter().collect();
        parts.sort_by_key(|part| common_order(part.store.client()));
        parts.into_iter().map(|part| (part.number().unwrap(), part.place())).collect()
    }

    /// Another process names the nodes in another order, and has come to any of them.
    #[test]
    fn who_creates_a_database_at_the_same_time_continues_what_is_there() {
        let options = Options { name: Some("db".to_owned()), shards: 3, ..Options::default() };
        for (begun, wanted) in [(0, [1, 2, 0]), (1, [2, 0, 1]), (2, [2, 0, 1]), (3, [2, 0, 1])] {
            let nodes = NODES.map(start);
            let theirs = connect(&nodes);
            let mut ours = connect(&nodes);
            ours.rotate_right(1);
            let admit = |_: &[Arc<MemoryClient>], is_new: bool| -> Result<()> {
                assert!(is_new);
                for (client, place) in theirs.iter().zip([2, 0, 1]).take(begun) {
                    let part = Some(StorePart { database: 7, place, nodes: 3 });
                    client.create_store("db", &StoreConfig { part, ..config(false) }.encode()?)?;
                }
                Ok(())
            };
            let parts = open(&ours, "db", &config(false), &options, admit).unwrap();
            assert_eq!(parts.iter().map(Part::place).collect::<Vec<_>>(), [0, 1, 2]);
            let numbered_parts = numbered(&parts);
            assert_eq!(numbered_parts.iter().map(|(_, place)| *place).collect::<Vec<_>>(), wanted, "{begun}");
            assert!(begun == 0 || numbered_parts.iter().all(|(number, _)| *number == 7), "{begun}");
            let found = open(&theirs, "db", &config(false), &options, |_, _| Ok(())).unwrap();
            assert_eq!(numbered(&found), numbered_parts, "{begun}");
        }
    }

    #[test]
    fn what_is_to_be_finished_and_what_is_not_are_not_created_as_one() {
        for to_finish in [false, true] {
            let nodes = NODES.map(start);
            let clients = connect(&nodes);
            let options = Options { shards: 3, unfinished: to_finish, ..Options::default() };
            let admit = |_: &[Arc<MemoryClient>], _: bool| -> Result<()> {
                let part = Some(StorePart { database: 7, place: 0, nodes: 3 });
                clients[0].create_store("db", &StoreConfig { part, ..config(!to_finish) }.encode()?)?;
                Ok(())
            };
            let refused = open(&clients, "db", &config(to_finish), &options, admit).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
        }
    }
}
