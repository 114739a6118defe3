//! Opening a database in storage (see `durable::restore`), and dropping one.

use crate::durable::checkpoints;
use crate::durable::database::{Committed, Place, Tombstone, UNFINISHED};
use crate::durable::dropping::{self, Remains};
use crate::durable::groups::Replay;
use crate::durable::known::{Known, Purpose, Seen};
use crate::durable::named::{self, Copies};
use crate::durable::recovery::LeftRecords;
use crate::durable::register::{Claimed, Register};
use crate::durable::restore::{self, Logs, Restored, Restorer};
use crate::durable::storage_log::StorageLog;
use crate::durable::unnamed;
use crate::remote::kept::Kept;
use crate::remote::memory_floor::MemoryFloor;
use crate::remote::objects::Objects;
use crate::remote::owner::Owner;
use crate::remote::private_store::PrivateStore;
use crate::remote::segment::Node;
use crate::sharding::fitting;
use crate::sharding::opened::{Opened, Stored, acquire, nodes, recorded_routing};
use crate::terms::recovery::{Recovery, ShardRecovery};
use crate::terms::time::ExpiryClock;
use crate::terms::{Error, Options, Result};
use crate::tree::cut::Cut;
use crate::tree::version::identity;
use crate::work::common::Common;
use crate::work::shard::Shard;
use forebay_base::ErrorKind;
use forebay_env::Random;
use forebay_memory_client::{MemoryClient, ShardId};
use forebay_storage::{BlockCache, History, LowerFloor, Recovery as LogRecovery, Storage};
use forebay_table::{DatabaseIdentity, LogName, StorageRoot, StoreConfig, Version};
use std::sync::Arc;

/// Opens the database `name` in `storage`, with the memory of these nodes. If it is opened `to_read`, they hold nothing
/// that outlives this.
///
/// # Errors
/// See [`crate::Db::open`].
pub(super) fn open(
    (storage, name): (&Storage, &str),
    clients: &[Arc<MemoryClient>],
    (options, to_read): (&Options, bool),
    time: &Arc<ExpiryClock>,
    common: &Arc<Common>,
) -> Result<Opened> {
    let place = Place::new(storage, name)?;
    let config = StoreConfig {
        key_order: options.key_order,
        shards: options.shards as u64,
        merge_operator: options.operator_name(),
        bounds: options.routing()?.bounds().to_vec(),
        part: None,
        copies: 1,
        to_finish: options.unfinished,
    };
    let mut history = place.history()?;
    let mut found = Committed::of(&history)?;
    if place.is_unfinished(found.as_ref())? {
        if !options.unfinished {
            return Err(Error::new(ErrorKind::Busy, format!("{name:?}: {UNFINISHED}")));
        }
        drop_unfinished(&place, clients, name, &history)?;
        history = place.history()?;
        found = Committed::of(&history)?;
    }
    let identity = match &found {
        Some(_) if options.error_if_exists || options.unfinished => {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("there is a database {name:?} already")));
        }
        None if !options.create_if_missing => return Err(missing(&place, &history)?),
        None if checkpoints::are_at(&place)? => {
            let message =
                format!("there are backups of a database {name:?}: choose another name, or clone one of them");
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        }
        Some(found) => {
            named::check(name, &found.identity.config, &config)?;
            found.identity.clone()
        }
        None if place.lacks_commits(&history)? => return Err(missing(&place, &history)?),
        None => DatabaseIdentity { database: random()?, config },
    };
    fitting::check(clients.get(..options.shards).unwrap_or(clients), options, found.is_none())?;
    let options = &options.merging_by(&identity.config.merge_operator)?;
    let purpose = Purpose::Open { has_threads: options.background_threads > 0 };
    let known = found.map(|found| Known::new(&place, found, history.epoch(), purpose)).transpose()?;
    // An owner deletes what no commit names.
    known.iter().try_for_each(|known| unnamed::check(&place, &history, &known.committed))?;
    let recorded = known.as_ref().map_or("", |known| known.committed.memory_store.as_str());
    // Storage alone says whether the database is whole.
    let config = StoreConfig { to_finish: false, ..identity.config.clone() };
    let (copies, owners) = match to_read {
        true => (Copies::none(), own_private(clients, options)?),
        false => {
            let copies = named::open_copies(clients, (name, identity.database), recorded, &config, options)?;
            let owners = acquire(&copies.parts, &Seen::default(), options).inspect_err(|_| copies.drop_new())?;
            (copies, owners)
        }
    };
    // Each node has one of the first shards.
    let nodes = nodes(owners.iter().take(clients.len()).map(|owner| owner.store().client()), options);
    let taker =
        Taker { place, options, time, common, nodes: &nodes, owners: &owners, copies: &copies, known, identity };
    let taken = taker.take_over().inspect_err(|_| {
        owners.iter().for_each(|owner| owner.release());
        copies.drop_new();
    })?;
    let Taken { shards, records, recovery, cut, log, stored } = taken;
    let bounds = taker.identity.config.bounds.as_slice();
    let routing = recorded_routing(&shards, bounds, options).inspect_err(|_| {
        shards.iter().for_each(|shard| shard.close());
        shards.iter().for_each(|shard| shard.clear());
    })?;
    named::drop_other_copies(clients, (name, taker.identity.database), &copies.store);
    let (shards, logs, recovery, log, stored) = (shards.into(), records, Some(recovery), Some(log), Some(stored));
    Ok(Opened { nodes, shards, routing, logs, recovery, cut, log, copied: None, stored })
}

/// Acquires all shards in stores that end with this process.
fn own_private(clients: &[Arc<MemoryClient>], options: &Options) -> Result<Vec<Arc<Owner>>> {
    let used = clients.iter().take(options.shards);
    let stores = used.map(PrivateStore::create).collect::<Result<Vec<_>>>()?;
    let shards = stores.iter().cycle().zip(0..).take(options.shards);
    shards.map(|(store, id)| Ok(Arc::new(Owner::of_private(store, ShardId(id))?))).collect()
}

struct Taker<'a> {
    place: Place,
    options: &'a Options,
    time: &'a Arc<ExpiryClock>,
    common: &'a Arc<Common>,
    nodes: &'a [Arc<Node>],
    owners: &'a [Arc<Owner>],
    copies: &'a Copies,
    known: Option<Known>,
    identity: DatabaseIdentity,
}

/// What a database consists of once it is this process's.
struct Taken {
    shards: Vec<Arc<Shard>>,
    /// By shard, what is to be written again.
    records: Vec<LeftRecords>,
    recovery: Recovery,
    cut: Arc<Cut>,
    log: Arc<StorageLog>,
    stored: Stored,
}

impl Taker<'_> {
    fn take_over(&self) -> Result<Taken> {
        let options = self.options;
        let empty: Vec<_> = (0..options.shards as u64)
            .map(|shard| Version::empty(identity(options, self.identity.database, shard)))
            .collect();
        let claimed = Claimed::claim(&self.place, self.known.as_ref(), &self.identity, &empty)?;
        let mut committed = claimed.committed.clone();
        let epoch = claimed.epoch();
        self.place.sweep();
        // Before anything that they name is taken for garbage.
        let kept = Arc::<Kept>::default();
        checkpoints::keep_all(&self.place, &mut committed, &kept)?;
        let mut recovery = Recovery { epoch, ..Recovery::default() };
        let mut logs = restore::read_logs(&self.place, &committed, options, &mut recovery)?;
        let restored = self.restore(&committed, epoch, &kept, &mut recovery)?;
        committed.memory_store.clone_from(&self.copies.store);
        committed.versions = restored.iter().map(|restored| restored.version.version.clone()).collect();
        // No earlier owner can name another log, whatever it creates.
        let unneeded = self.place.unneeded_logs(|log| !committed.logs.contains(log))?;
        let register = Arc::new(claimed.begin(committed)?);
        restored.iter().for_each(Restored::take_charge);
        let records = logs.take_records();
        let flushed = restored.iter().map(|restored| restored.version.version.last_sequence());
        let shards = flushed.zip(&logs.replay.shards);
        recovery.shards = shards.map(|(flushed, shard)| ShardRecovery { flushed, last: shard.last }).collect();
        let cut = Arc::<Cut>::default();
        let (shards, log) = self.shards(restored, &register, epoch, (logs, unneeded), &cut)?;
        let stored = Stored { place: self.place.clone(), register, kept };
        Ok(Taken { shards, records, recovery, cut, log, stored })
    }

    fn restore(
        &self,
        committed: &Committed,
        epoch: u64,
        kept: &Arc<Kept>,
        recovery: &mut Recovery,
    ) -> Result<Vec<Restored>> {
        let root = StorageRoot { database: self.identity.database, epoch };
        let mut restorer = Restorer { root, knows_memory: self.copies.are_known, options: self.options, recovery };
        let below = MemoryFloor::new(self.nodes, self.options)?;
        let below = below.map(|floor| floor as Arc<dyn LowerFloor>);
        let cache = Arc::new(BlockCache::over(self.options.block_cache(), below)?);
        let mut restored = Vec::with_capacity(committed.versions.len());
        let places = self.owners.iter().zip(self.nodes.iter().cycle());
        for (((owner, node), version), shard) in places.zip(&committed.versions).zip(0..) {
            if *version.identity() != identity(self.options, self.identity.database, shard) {
                return Err(Error::corrupt(format!("the version of shard {shard} is another shard's")));
            }
            let (storage, names) = (&self.place.storage, (self.place.segments(shard)?, self.place.commits()?));
            let (cache, kept) = (Arc::clone(&cache), Arc::clone(kept));
            let objects = Objects::new(storage, names, epoch, cache, self.options.layout(), kept);
            restored.push(restorer.shard(node, owner, version, objects)?);
        }
        Ok(restored)
    }

    fn shards(
        &self,
        restored: Vec<Restored>,
        register: &Arc<Register>,
        epoch: u64,
        (logs, unneeded): (Logs, Vec<LogName>),
        cut: &Arc<Cut>,
    ) -> Result<(Vec<Arc<Shard>>, Arc<StorageLog>)> {
        let reached: Vec<_> = logs.replay.shards.iter().map(|shard| shard.last).collect();
        let (place, register_of_log) = (self.place.clone(), Arc::clone(register));
        let left = (logs.left, unneeded);
        let log = StorageLog::new(place, epoch, register_of_log, Arc::clone(cut), &reached, left, self.options);
        let log = Arc::new(log);
        let of = |((restored, last), number)| {
            let (time, common) = (Arc::clone(self.time), Arc::clone(self.common));
            Ok(Arc::new(Shard::restored(self.options.clone(), restored, last, (register, &log, number), time, common)?))
        };
        let shards = restored.into_iter().zip(reached).zip(0..).map(of).collect::<Result<Vec<_>>>()?;
        log.begin(shards.iter().map(|shard| Arc::clone(&shard.tree)).collect());
        Ok((shards, log))
    }
}

/// What a database holds that is read and not owned: what was committed, and what its logs hold beside that.
///
/// # Errors
/// `NotFound`; `Busy` when it is not finished; `Corrupt`; those of the storage.
pub(crate) fn look(place: &Place, name: &str) -> Result<(Committed, Replay)> {
    let history = place.history()?;
    let Some(found) = Committed::of(&history)? else { return Err(missing(place, &history)?) };
    if place.is_unfinished(Some(&found))? {
        return Err(Error::new(ErrorKind::Busy, format!("{name:?}: {UNFINISHED}")));
    }
    unnamed::check(place, &history, &found)?;
    let mut replay = Replay::new(&found.flushed());
    found.logs.iter().try_for_each(|log| unnamed::read_log(place, *log, &mut replay))?;
    unnamed::check_end(place, &found, &replay)?;
    Ok((found, replay))
}

/// Options that open the database `name` in `storage`: those it was created with, and defaults for the rest.
///
/// # Errors
/// `NotFound` when it is not there; those of the storage.
pub(crate) fn options_of(storage: &Storage, name: &str) -> Result<Options> {
    let place = Place::new(storage, name)?;
    let (Committed { identity: DatabaseIdentity { config, .. }, .. }, _) = committed(&place)?;
    Ok(Options {
        name: Some(name.to_owned()),
        storage: Some(storage.clone()),
        key_order: config.key_order,
        merge_operator: Some(config.merge_operator).filter(|name| !name.is_empty()),
        shards: usize::try_from(config.shards).unwrap_or(usize::MAX),
        create_if_missing: false,
        ..Options::default()
    })
}

/// Drops the database `name` in `storage`, and what these memory nodes hold of it. An owner that is still alive is
/// fenced. What an earlier call has left is deleted.
///
/// # Errors
/// `NotFound` when nothing of it exists; `Busy` while a process has it open on one of the nodes, or it has checkpoints;
/// those of the storage: call again.
pub(crate) fn destroy(storage: &Storage, clients: &[Arc<MemoryClient>], name: &str) -> Result<()> {
    let place = Place::new(storage, name)?;
    destroy_known(&place, clients, name, &place.history()?)
}

/// As [`destroy`], if what lies there is what the commits have said.
fn destroy_known(place: &Place, clients: &[Arc<MemoryClient>], name: &str, history: &History) -> Result<()> {
    if let (Some(found), Some(last)) = (Committed::of(history)?, history.last()) {
        let drop = |found: Committed| drop_found(place, clients, name, (found, last.epoch));
        let tombstone = match drop(found.clone()) {
            Err(full) if full.kind() == ErrorKind::Full && full.is_of_storage() => {
                tracing::info!(error = %full, "there is no room to say that a database is dropped: its data goes first");
                let last = Tombstone { epoch: last.epoch, commit: last.number };
                Remains::of_undropped(place, last)
                    .and_then(|remains| remains.delete(place))
                    .map_err(|error| error.during("making room to drop the database"))?;
                drop(found)
            }
            dropped => dropped,
        }?;
        return Remains::of(place, tombstone)?.delete(place);
    }
    match dropping::left(place, history)? {
        Some(remains) => remains.delete(place),
        None => Err(missing(place, history)?),
    }
}

/// Records that the database no longer exists. What it held is left.
fn drop_found(
    place: &Place,
    clients: &[Arc<MemoryClient>],
    name: &str,
    (found, epoch): (Committed, u64),
) -> Result<Tombstone> {
    dropping::check_unneeded(place)?;
    let known = Known::new(place, found, epoch, Purpose::Drop)?;
    let found = &known.committed;
    named::drop_copies(clients, (name, found.identity.database))?;
    let claimed = Claimed::claim(place, Some(&known), &found.identity, &found.versions)?;
    // The earlier owner may have made one until the claim.
    dropping::check_unneeded(place)?;
    for log in &claimed.committed.logs {
        match place.storage.open_log(&place.log(*log)?, LogRecovery::Seal) {
            // The log's writer is stopped, and nobody needs what the log lacks.
            Err(error) if error.kind() == ErrorKind::Corrupt => {}
            sealed => drop(sealed?),
        }
    }
    claimed.drop_database()
}

/// Drops what was begun and, according to the commits, not finished. An owner that is alive is fenced, unless it
/// finishes first.
fn drop_unfinished(place: &Place, clients: &[Arc<MemoryClient>], name: &str, history: &History) -> Result<()> {
    match destroy_known(place, clients, name, history) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        dropped => dropped?,
    }
    // Only if it exists: a late request to delete it would hit what another process has begun since.
    let unfinished = place.unfinished()?;
    if place.is_there(&unfinished)? {
        place.storage.objects().delete(&unfinished)?;
    }
    Ok(())
}

/// What the commits of a database that must exist say, and its owner's epoch.
///
/// # Errors
/// `NotFound`; `Corrupt`; those of the storage.
pub(crate) fn committed(place: &Place) -> Result<(Committed, u64)> {
    let history = place.history()?;
    match Committed::of(&history)? {
        Some(committed) => Ok((committed, history.epoch())),
        None => Err(missing(place, &history)?),
    }
}

/// The error for a place whose commits tell of no database.
fn missing(place: &Place, history: &History) -> Result<Error> {
    let (name, storage) = (place.root().as_str(), place.storage.objects().describe());
    if !checkpoints::are_at(place)? && place.lacks_commits(history)? {
        return Ok(Error::corrupt(format!(
            "the commits of the database {name:?} are missing in {storage}: others of its objects are there. \
             `forebay repair` saves what they hold in another database. If nobody needs that, delete them"
        )));
    }
    Ok(Error::new(ErrorKind::NotFound, format!("there is no database {name:?} in {storage}")))
}

fn random() -> Result<u128> {
    Random::secret().map_err(|error| Error::new(ErrorKind::Io, format!("a random number: {error}")))
}
