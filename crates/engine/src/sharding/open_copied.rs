//! Opening a database with several copies in memory, and dropping one (`docs/decisions/0036`).
//!
//! ```text
//!  register is read          which nodes hold which shards
//!  shards are looked at      there; what a newer build wrote is refused (see `durable::known`)
//!  shards are acquired       there, as far as these nodes can be reached: an earlier owner acknowledges nothing any
//!                            more; if a shard cannot be reached at all, this ends here
//!  register is claimed       an earlier owner cannot leave anybody out any more; what it says now counts
//!                            then, for each shard:
//!    recovery                from the members that it names (see `durable::recovery`)
//!  register is written       with the members that have everything: from here on the database is this process's
//! ```
//!
//! A creation that was interrupted is completed if nobody has claimed the register: the nodes without a store get one.
//! If the memory nodes are the register, exactly those on which the creation began must be there. The stores know how
//! many they are.
//!
//! Every member that the register names has all that was acknowledged, so one reachable member is enough. A member that
//! is lost before the end is left out, and recovery begins anew with the others.

use crate::durable::database::Place;
use crate::durable::known::Seen;
use crate::durable::member_register::{MemberRegister, Register, StoredRegister, member};
use crate::durable::named::{self, Part};
use crate::durable::node_register::Cells;
use crate::durable::recovery::{self, LeftRecords, Recovered, Wanted};
use crate::remote::members::{Places, Several};
use crate::remote::owner::Owner;
use crate::remote::segment::Node;
use crate::sharding::fitting;
use crate::sharding::opened::{Copied, Opened, nodes, recorded_routing};
use crate::terms::recovery::{Recovery, ShardRecovery};
use crate::terms::time::ExpiryClock;
use crate::terms::{Error, Options, Result};
use crate::tree::version::identity;
use crate::work::common::Common;
use crate::work::shard::Shard;
use forebay_base::ErrorKind;
use forebay_fabric::NodeIdentity;
use forebay_memory_client::{MemoryClient, ShardId};
use forebay_storage::Storage;
use forebay_table::{CopiedDatabase, MemberNode, MembersRecord, StoreConfig};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A shard's part of a node that holds a copy of it.
struct Copy<'a> {
    node: &'a Arc<Node>,
    owner: Arc<Owner>,
}

/// Opens the database `name`, of which these nodes hold copies, or are to hold them.
///
/// # Errors
/// See [`crate::Db::open`].
pub(super) fn open(
    name: &str,
    clients: &[Arc<MemoryClient>],
    options: &Options,
    time: &Arc<ExpiryClock>,
    common: &Arc<Common>,
) -> Result<Opened> {
    let (unclaimed, found, seen) = Unclaimed::read(name, clients, options)?;
    let is_unclaimed = found.database.is_none();
    let database = match found.database {
        Some(_) if options.error_if_exists => {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("there is a database {name:?} already")));
        }
        Some(database) => {
            named::check(name, &database.config, &config(options)?)?;
            database
        }
        None if options.create_if_missing => {
            let config = config(options)?;
            match unclaimed.begun(name, clients, options, &config)? {
                Some(begun) => begun,
                None => CopiedDatabase { database: named::new_number()?, copies: config.copies, config },
            }
        }
        None => {
            let begun = if unclaimed.has_begun() { ": its creation was interrupted" } else { "" };
            let message = format!("there is no database {name:?} on these memory nodes{begun}");
            return Err(Error::new(ErrorKind::NotFound, message));
        }
    };
    let options = &options.merging_by(&database.config.merge_operator)?;
    let is_new = found.shards.is_empty();
    if options.all_copies_named {
        check_all_named(name, &found.shards, clients, options)?;
    }
    fitting::check(clients, options, is_new)?;
    if is_new && clients.len() < options.copies() {
        let (has, wants) = (clients.len(), options.copies());
        return Err(Error::invalid(format!("{wants} copies need as many memory nodes, not {has}: name more of them")));
    }
    let mut parts = Vec::with_capacity(clients.len());
    let mut stores = Vec::with_capacity(clients.len());
    // Errors at any of them are known before anything is created at another.
    for (at, client) in clients.iter().enumerate() {
        match named::find_copy(client, name, &database) {
            Err(error) if error.is_out_of_reach() && !is_new => {
                tracing::warn!(node = %client.described(), %error, "a memory node cannot be reached");
            }
            part => stores.push((at, client, part?)),
        }
    }
    // Of the processes that create the database at the same time, only one gets further than the first node.
    stores.sort_by_key(|(_, client, _)| named::common_order(client));
    for (at, client, part) in stores {
        // A node whose store is made later may have forgotten what it said.
        let founders = is_unclaimed.then_some(clients.len());
        match part.map_or_else(|| named::create_copy(client, name, &database, founders), Ok) {
            Err(error) if error.is_out_of_reach() && !is_new => {
                tracing::warn!(node = %client.described(), %error, "a memory node cannot be reached");
            }
            part => parts.push((at, part?)),
        }
    }
    parts.sort_by_key(|(at, _)| *at);
    let parts: Vec<_> = parts.into_iter().map(|(_, part)| part).collect();
    let unclaimed = unclaimed.with(&parts, options)?;
    let nodes = nodes(parts.iter().map(|part| part.store.client()), options);
    let wanted = match found.shards.as_slice() {
        [] => first_members(clients, options),
        members => members.to_vec(),
    };
    let copies = acquire(&parts, &nodes, &wanted, &seen, options)?;
    let stores = parts.iter().map(|part| part.store.clone());
    let places = Arc::new(Places::new(nodes.iter().cloned().zip(stores).collect()));
    let opened = take_over(unclaimed, &database, &copies, &wanted, &places, options, (time, common));
    if opened.is_err() {
        copies.iter().flatten().for_each(|copy| copy.owner.release());
    }
    let Taken { shards, logs, recovery, register } = opened?;
    let routing = recorded_routing(&shards, &database.config.bounds, options).inspect_err(|_| {
        shards.iter().for_each(|shard| shard.close());
        shards.iter().for_each(|shard| shard.clear());
    })?;
    let cut = Arc::default();
    let copied = Some(Arc::new(Copied { database, places, register }));
    let (shards, recovery) = (shards.into(), Some(recovery));
    Ok(Opened { nodes, shards, routing, logs, recovery, cut, log: None, copied, stored: None })
}

/// Checks that as many nodes are named as hold copies. An unreachable node is also named, though nobody knows which it
/// is.
///
/// # Errors
/// `Invalid`.
fn check_all_named(
    name: &str,
    shards: &[Vec<MemberNode>],
    clients: &[Arc<MemoryClient>],
    options: &Options,
) -> Result<()> {
    let members: BTreeSet<_> = shards.iter().flatten().map(|of| (of.node, of.incarnation)).collect();
    let named = clients.len().max(options.memory_nodes.len());
    if members.len() <= named {
        return Ok(());
    }
    let is_reached = |of: &MemberNode| clients.iter().any(|client| member(client.node()) == *of);
    let members = members.into_iter().map(|(node, incarnation)| MemberNode { node, incarnation });
    let missing = nodes_told(members.filter(|of| !is_reached(of)));
    let reached = clients.iter().map(|client| client.described()).collect::<Vec<_>>().join(", ");
    Err(Error::invalid(format!(
        "copies of the database {name:?} lie on more than the {named} memory nodes that are named: also on {missing}. Opened so, it \
         would leave those copies out. Reached were {reached}. Name the others, too; if they are gone for good, leave them out \
         (--leave-out)"
    )))
}

/// Nodes that the register names, as text for people.
fn nodes_told(nodes: impl Iterator<Item = MemberNode>) -> String {
    let nodes = nodes.map(|of| NodeIdentity { node: of.node, incarnation: of.incarnation }.to_string());
    nodes.collect::<Vec<_>>().join(", ")
}

/// A register before it is claimed.
enum Unclaimed {
    Stored(Place),
    /// The memory nodes are the register. These are its cells.
    Nodes(Cells),
    /// The memory nodes are the register, and nobody has claimed it. These are the stores that exist.
    Begun(Vec<Part>),
}

impl Unclaimed {
    /// Reads what the register says of the database, and looks at its shards.
    ///
    /// # Errors
    /// `AlreadyExists` when the nodes hold a database of the name that another register knows; `Busy`; `Unsupported` when a newer build
    /// wrote what they hold; `Unavailable`; those of the storage.
    fn read(name: &str, clients: &[Arc<MemoryClient>], options: &Options) -> Result<(Self, MembersRecord, Seen)> {
        if let Some(storage) = &options.register {
            let place = Place::new(storage, name)?;
            let found = StoredRegister::read(&place)?;
            let parts = named::copies_of(clients, name)?;
            if found.database.is_none() {
                check_unowned(name, &parts, || StoredRegister::read(&place))?;
            }
            let seen = look(&found, &parts, options)?;
            return Ok((Self::Stored(place), found, seen));
        }
        let parts = named::copies_of(clients, name)?;
        // Unused cells stay so until all of them exist. A used one that is lost may have said something.
        if Cells::are_used(&parts)? {
            let seen = look(&Cells::look(parts.iter())?, &parts, options)?;
            let cells = Cells::acquire(parts.iter(), options)?;
            let said = cells.said.clone();
            if said.database.is_some() {
                return Ok((Self::Nodes(cells), said, seen));
            }
        }
        check_unowned(name, &parts, || Cells::look(parts.iter()))?;
        Ok((Self::Begun(parts), MembersRecord::default(), Seen::default()))
    }

    /// A database whose creation began, but ended before the register knew of it. `wanted` is what is to be created.
    ///
    /// # Errors
    /// `Invalid` when it began as another one; `Unavailable` when it began on more or fewer nodes.
    fn begun(
        &self,
        name: &str,
        clients: &[Arc<MemoryClient>],
        options: &Options,
        wanted: &StoreConfig,
    ) -> Result<Option<CopiedDatabase>> {
        let of_founder = |parts: &[Part]| parts.iter().find(|part| part.is_founder()).map(|part| part.config.clone());
        let (begun, config) = match self {
            Self::Nodes(_) => return Ok(None),
            Self::Stored(_) => (of_founder(&named::copies_of(clients, name)?), wanted.clone()),
            Self::Begun(parts) => {
                // A node that cannot be reached may have been one of them.
                let nodes = clients.len().max(options.memory_nodes.len());
                for part in parts.iter().filter(|part| part.is_founder()) {
                    named::check(name, &part.config, wanted)?;
                    if part.founders() != nodes || clients.len() != nodes {
                        return Err(interrupted(name, part, (clients.len(), nodes)));
                    }
                }
                // Tools ask these stores what the database is.
                let begun = of_founder(parts);
                let config =
                    begun.as_ref().map_or_else(|| wanted.clone(), |of| StoreConfig { part: None, ..of.clone() });
                (begun, config)
            }
        };
        let part = begun.and_then(|of| of.part);
        Ok(part.map(|part| CopiedDatabase { database: part.database, copies: config.copies, config }))
    }

    fn has_begun(&self) -> bool {
        matches!(self, Self::Begun(parts) if !parts.is_empty())
    }

    /// The register of a database whose stores exist.
    ///
    /// # Errors
    /// `Busy` when another process has created the database meanwhile; those of acquiring the cells.
    fn with(self, parts: &[Part], options: &Options) -> Result<Self> {
        match self {
            Self::Begun(_) => {
                let cells = Cells::acquire(parts.iter(), options)?;
                if cells.said.database.is_some() {
                    return Err(created_meanwhile());
                }
                cells.check_founders()?;
                Ok(Self::Nodes(cells))
            }
            Self::Nodes(mut cells) => {
                cells.add(parts.iter());
                Ok(Self::Nodes(cells))
            }
            Self::Stored(place) => Ok(Self::Stored(place)),
        }
    }

    /// As [`StoredRegister::claim`].
    fn claim(self, first: &MembersRecord) -> Result<(Box<dyn Register>, MembersRecord)> {
        match self {
            Self::Stored(place) => StoredRegister::claim(&place, first),
            Self::Nodes(cells) => cells.claim(first),
            Self::Begun(_) => Err(Error::invalid("the cells of the register were not acquired")),
        }
    }
}

fn created_meanwhile() -> Error {
    Error::new(ErrorKind::Busy, "another process has created the database at the same time: try again")
}

/// Why a creation that was interrupted cannot be completed on these nodes.
fn interrupted(name: &str, begun: &Part, (reached, named): (usize, usize)) -> Error {
    let message = format!(
        "the creation of the database {name:?} was interrupted, after it had begun at {} and on {} memory nodes in all. It is completed \
         when just those are named and can be reached: {named} are named, of which {reached} can be reached. Otherwise drop it",
        begun.store.client().described(),
        begun.founders()
    );
    Error::new(ErrorKind::Unavailable, message)
}

/// Checks that this build knows what the owner of a database wrote at those of these nodes that its register names.
///
/// # Errors
/// `Unsupported` when a newer build wrote it.
fn look(said: &MembersRecord, parts: &[Part], options: &Options) -> Result<Seen> {
    let mut shards = Vec::new();
    for (members, id) in said.shards.iter().zip((0..).map(ShardId)) {
        let is_member = |part: &&Part| members.contains(&member(part.store.client().node()));
        shards.extend(parts.iter().filter(is_member).map(|part| (&part.store, id)));
    }
    Seen::look(&shards, options)
}

/// Checks that nobody has ever owned the database of these parts, when a register knew no such database. An owner
/// claims its register before it begins a shard. `look` reads the register again.
///
/// # Errors
/// `AlreadyExists` when somebody has: another register knows it. `Busy` when it was created meanwhile.
fn check_unowned(name: &str, parts: &[Part], look: impl Fn() -> Result<MembersRecord>) -> Result<()> {
    for part in parts {
        if has_roots(part)? {
            // Another process may have claimed the register since it was read, and begun a shard.
            if look()?.database.is_some() {
                return Err(created_meanwhile());
            }
            let message = format!(
                "{} has copies of a database {name:?}, and this register knows none: the database was created with another \
                 register, or with one where none is named now. Name that, or drop the copies",
                part.store.client().described()
            );
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        }
    }
    Ok(())
}

/// Whether an owner ever began a shard there.
fn has_roots(part: &Part) -> Result<bool> {
    for shard in part.shards() {
        match part.store.root(shard) {
            Ok(None) => {}
            Ok(Some(_)) => return Ok(true),
            // Nobody ever acquired it.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// What all owners of the database agree on.
fn config(options: &Options) -> Result<StoreConfig> {
    Ok(StoreConfig {
        key_order: options.key_order,
        shards: options.shards as u64,
        merge_operator: options.operator_name(),
        bounds: options.routing()?.bounds().to_vec(),
        part: None,
        copies: u32::try_from(options.copies()).unwrap_or(u32::MAX),
        to_finish: false,
    })
}

/// The members of the shards of a new database: shard `i` on nodes `i`, `i + 1`, … modulo their number.
fn first_members(clients: &[Arc<MemoryClient>], options: &Options) -> Vec<Vec<MemberNode>> {
    let of_shard = |shard: usize| {
        let nodes = clients.iter().cycle().skip(shard % clients.len().max(1)).take(options.copies());
        nodes.map(|client| member(client.node())).collect()
    };
    (0..options.shards).map(of_shard).collect()
}

/// Acquires all shards at those of these nodes that are to have copies, or none.
fn acquire<'a>(
    parts: &[Part],
    nodes: &'a [Arc<Node>],
    wanted: &[Vec<MemberNode>],
    seen: &Seen,
    options: &Options,
) -> Result<Vec<Vec<Copy<'a>>>> {
    let mut copies: Vec<Vec<Copy<'a>>> = Vec::with_capacity(wanted.len());
    for (members, id) in wanted.iter().zip(0..) {
        let mut of_shard = Vec::with_capacity(members.len());
        for named in members {
            let at = nodes.iter().zip(parts).find(|(node, _)| member(node.client().node()) == *named);
            let Some((node, part)) = at else {
                tracing::warn!(shard = id, node = named.node, "a memory node that has a copy is not among these");
                continue;
            };
            match seen.acquire(&part.store, ShardId(id), options) {
                Ok(owner) => of_shard.push(Copy { node, owner }),
                Err(error) if error.is_out_of_reach() => {
                    tracing::warn!(node = %node.client().node(), %error, "a copy cannot be reached");
                }
                Err(error) => {
                    copies.iter().chain([&of_shard]).flatten().for_each(|copy| copy.owner.release());
                    return Err(error);
                }
            }
        }
        copies.push(of_shard);
    }
    Ok(copies)
}

/// A database once it is this process's.
struct Taken {
    shards: Vec<Arc<Shard>>,
    logs: Vec<LeftRecords>,
    recovery: Recovery,
    register: Arc<MemberRegister>,
}

fn take_over(
    unclaimed: Unclaimed,
    database: &CopiedDatabase,
    copies: &[Vec<Copy<'_>>],
    wanted: &[Vec<MemberNode>],
    places: &Arc<Places>,
    options: &Options,
    (time, common): (&Arc<ExpiryClock>, &Arc<Common>),
) -> Result<Taken> {
    // Otherwise an owner that this process does not reach would be fenced by one that cannot open the database.
    for ((copies, named), shard) in copies.iter().zip(wanted).zip(0..) {
        if copies.is_empty() {
            return Err(unreached(shard, named, places));
        }
    }
    let first = MembersRecord { database: Some(database.clone()), ..MembersRecord::default() };
    let (register, said) = unclaimed.claim(&first)?;
    let named = if said.shards.is_empty() { wanted } else { said.shards.as_slice() };
    let register = Arc::new(MemberRegister::new(register, said.clone()));
    let mut recovery = Recovery::default();
    let mut reached = Vec::with_capacity(copies.len());
    for ((copies, named), shard) in copies.iter().zip(named).zip(0..) {
        // An earlier owner may have left some members out before this process claimed the register: they lack
        // something.
        let is_named = |copy: &&Copy<'_>| named.contains(&member(copy.node.client().node()));
        let members: Vec<_> = copies.iter().filter(is_named).map(|copy| (copy.node, &copy.owner)).collect();
        if members.is_empty() {
            return Err(unreached(shard, named, places));
        }
        reached.push(Wanted::new(members, identity(options, database.database.into(), shard)));
    }
    let several = |shard| Some(Several { shard, register: Arc::clone(&register) as _, places: Arc::clone(places) });
    let recovered = recovery::recover(reached, options, several)?;
    let members =
        |recovered: &Recovered| recovered.remote.active().map(|of| of.memory_node().client().node()).collect();
    register.name_all(recovered.iter().map(members).collect())?;
    let mut logs = Vec::with_capacity(recovered.len());
    let mut shards = Vec::with_capacity(recovered.len());
    for mut recovered in recovered {
        recovered.take_charge();
        logs.push(std::mem::take(&mut recovered.log.records));
        let flushed = recovered.version.version.last_sequence();
        recovery.shards.push(ShardRecovery { flushed, last: recovered.log.last });
        recovery.segments_held += recovered.version.segments().count() as u64;
        shards.push(Arc::new(Shard::recovered(options.clone(), recovered, Arc::clone(time), Arc::clone(common))?));
    }
    Ok(Taken { shards, logs, recovery, register })
}

/// The error for a shard of which no named member can be reached.
fn unreached(shard: u64, named: &[MemberNode], places: &Places) -> Error {
    let reached = places.nodes().iter().map(|node| node.client().described()).collect::<Vec<_>>().join(", ");
    let message = format!(
        "no memory node that has shard {shard} can be reached: it lies on {}. Reached were {reached}",
        nodes_told(named.iter().copied())
    );
    Error::new(ErrorKind::Unavailable, message)
}

/// Drops the database `name`, which a register in `storage` knows, from these memory nodes and from the register.
///
/// # Errors
/// As [`destroy_copies`].
pub(crate) fn destroy(storage: &Storage, clients: &[Arc<MemoryClient>], name: &str) -> Result<()> {
    let (place, found) = destroy_copies(storage, clients, name)?;
    let (register, said) = StoredRegister::claim(&place, &found)?;
    MemberRegister::new(register, said).drop_database()
}

/// Drops the database `name`, which a register in `storage` knows, from these memory nodes. If a node has another
/// database of this name, that one stays. Returns what the register says.
///
/// # Errors
/// `NotFound` when the register does not know it; `Busy` while a process has it open on one of the nodes; those of the storage.
pub(crate) fn destroy_copies(
    storage: &Storage,
    clients: &[Arc<MemoryClient>],
    name: &str,
) -> Result<(Place, MembersRecord)> {
    let place = Place::new(storage, name)?;
    let found = StoredRegister::read(&place)?;
    if found.database.is_none() {
        return Err(Error::new(ErrorKind::NotFound, format!("there is no database {name:?}")));
    }
    match named::destroy(clients, name, Some(&found)) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        dropped => dropped?,
    }
    Ok((place, found))
}
