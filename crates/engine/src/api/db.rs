//! The database.

use crate::api::db_iterator::{DbIterator, IterOptions};
use crate::api::snapshot::Snapshot;
use crate::durable::named;
use crate::durable::recovery::LeftRecords;
use crate::durable::storage_log::{APPEND_INTERVAL, StorageLog};
use crate::remote::segment::Node;
use crate::sharding::opened::{Copied, Opened, Stored};
use crate::sharding::rejoining::{LOOK_INTERVAL, Rejoining};
use crate::sharding::router::Router;
use crate::sharding::{open, open_copied, open_stored, rebalance};
use crate::terms::recovery::Recovery;
use crate::terms::routing::KeyRange;
use crate::terms::{Durability, Error, Options, Result, Statistics, Syncing, WriteOptions};
use crate::work::background::{Background, Idle};
use crate::work::common::Common;
use crate::work::scrub::{self, Scrub};
use crate::work::shard::Shard;
use crate::work::ticker::Ticker;
use crate::write::batch::{Write, WriteBatch, check_operand};
use forebay_base::{ErrorKind, KeyOrder, Kind, SequenceNumber};
use forebay_memory_client::MemoryClient;
use forebay_storage::Storage;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How often missing copies are looked for.
const MEND_INTERVAL: Duration = Duration::from_millis(200);

/// An ordered key-value database over memory nodes. Cheap to clone. All clones are the same database, and any thread
/// may use any of them.
///
/// [`Options::durability`] says what survives which failure. By default the data lives as long as its memory nodes, and
/// what is not flushed is lost when the process ends. A database without a name ends with its process.
#[derive(Clone)]
pub struct Db {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    router: Arc<Router>,
    nodes: Vec<Arc<Node>>,
    pub(super) background: Background,
    rebalancer: Option<Ticker>,
    stopped: AtomicBool,
    pub(super) options: Options,
    is_read_only: bool,
    recovery: Option<Recovery>,
    stored: Option<Stored>,
    /// The log in storage, what ships it at intervals, and what appends to it in between.
    pub(super) log: Option<Arc<StorageLog>>,
    ticker: Option<Ticker>,
    appender: Option<Ticker>,
    /// Where copies in memory may be placed, if there are several, and what makes missing ones.
    copied: Option<Arc<Copied>>,
    mender: Option<Ticker>,
    /// What reconnects to lost nodes, and the thread for it.
    rejoining: Option<Arc<Rejoining>>,
    rejoiner: Option<Ticker>,
    scrub: Option<Arc<Scrub>>,
    scrubber: Option<Ticker>,
    /// When the log is shipped next if there are no threads (clock of the options, nanoseconds).
    next_shipment: AtomicU64,
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let published: Vec<_> = self.shards().iter().map(|shard| shard.tree.publication.published()).collect();
        f.debug_struct("Db").field("published", &published).finish_non_exhaustive()
    }
}

impl Db {
    /// Opens a database in the memory of the nodes of `clients`, one client per node. The database is empty unless it
    /// has a name and exists already. Shard `i` is stored on node `i` modulo the number of nodes (dLSM IX). The nodes
    /// of a named database may come in any order, but they must be the ones it was created on.
    ///
    /// # Errors
    /// `Invalid` for options that conflict with each other or with the database, for no, too few or too many clients, or for
    /// a new database whose nodes cannot hold what the memtables of all its shards need at once; `NotFound` when no database
    /// has the name, or a node has lost its part; `AlreadyExists`; `Busy` when another process has it open; `Unsupported`
    /// when a newer build wrote it (it stays as it is); `Unavailable` when a node is gone; `Corrupt`; `Io` when there is no
    /// memory or thread.
    pub fn open(clients: &[Arc<MemoryClient>], options: Options) -> Result<Self> {
        Self::open_as(clients, options, None)
    }

    /// As [`Db::open`]. With `to_read`, the records of each shard that are in no table, it takes no writes but these.
    pub(crate) fn open_as(
        clients: &[Arc<MemoryClient>],
        options: Options,
        to_read: Option<Vec<LeftRecords>>,
    ) -> Result<Self> {
        let common = Arc::new(Common::default());
        let Opened { nodes, shards, routing, logs, recovery, cut, log, copied, stored } =
            open::open(clients, &options, &common, to_read.is_some())?;
        let background = Background::start(Arc::clone(&shards), Arc::clone(&common), options.background_threads)?;
        let of_shards = shards.first().map(|shard| shard.tree.options.merge_operator.clone());
        let options = Options { merge_operator: of_shards.flatten(), ..options };
        let router = Arc::new(Router::new(shards, routing, cut));
        let mut inner = Inner {
            router,
            nodes,
            background,
            rebalancer: None,
            stopped: AtomicBool::new(false),
            options: options.clone(),
            is_read_only: to_read.is_some(),
            recovery,
            stored,
            log,
            ticker: None,
            appender: None,
            copied,
            mender: None,
            rejoining: None,
            rejoiner: None,
            scrub: None,
            scrubber: None,
            next_shipment: AtomicU64::new(0),
        };
        open::resume(inner.router.shards(), to_read.unwrap_or(logs), &inner.router.routing())?;
        if let (Some(log), Some(interval)) = (&inner.log, inner.interval())
            && options.background_threads > 0
        {
            let shipped = Arc::clone(log);
            let ship = move || {
                // The next writer gets the error.
                if let Err(error) = shipped.ship_now() {
                    tracing::debug!(%error, "shipping the log");
                }
            };
            inner.ticker = Some(Ticker::start("forebay-log", interval, &common.sealed, ship)?);
            if log.keeps_appended() && interval > APPEND_INTERVAL {
                let log = Arc::clone(log);
                let append = move || {
                    log.append_now();
                };
                // A thread of its own, because the other one waits for syncs.
                inner.appender = Some(Ticker::start("forebay-append", APPEND_INTERVAL, &Arc::default(), append)?);
            }
        }
        if inner.copied.is_some() && options.background_threads > 0 {
            let shards = Arc::clone(inner.router.shards());
            let mend = move || {
                shards.iter().filter(|shard| shard.mend()).count();
            };
            inner.mender = Some(Ticker::start("forebay-mend", MEND_INTERVAL, &Arc::default(), mend)?);
        }
        if let (Some(copied), Some(name)) = (&inner.copied, &options.name) {
            let rejoining = Arc::new(Rejoining::new(copied, inner.router.shards(), name, &options));
            if options.background_threads > 0 {
                let rejoining = Arc::clone(&rejoining);
                let step = move || {
                    rejoining.step();
                };
                inner.rejoiner = Some(Ticker::start("forebay-rejoin", LOOK_INTERVAL, &Arc::default(), step)?);
            }
            inner.rejoining = Some(rejoining);
        }
        if let Some(rate) = NonZeroU64::new(options.scrub_bytes_per_second) {
            let scrub = Arc::new(Scrub::new(inner.router.shards(), rate));
            if options.background_threads > 0 {
                let scrub = Arc::clone(&scrub);
                let look = move || while scrub.step() {};
                inner.scrubber = Some(Ticker::start("forebay-scrub", scrub::LOOK_INTERVAL, &Arc::default(), look)?);
            }
            inner.scrub = Some(scrub);
        }
        if let Some(interval) = options.rebalance_interval
            && inner.router.shards().len() > 1
        {
            inner.rebalancer = Some(rebalance::start(Arc::clone(&inner.router), interval)?);
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Names of the databases on the memory nodes, in ascending order. Includes databases of which these nodes hold
    /// only a part.
    ///
    /// # Errors
    /// `Unavailable` when a node is gone.
    pub fn list(clients: &[Arc<MemoryClient>]) -> Result<Vec<String>> {
        named::list(clients)
    }

    /// Options that open a named database of these memory nodes with the settings it was created with. The database
    /// must exist.
    ///
    /// # Errors
    /// `NotFound` when no node has a part of it.
    pub fn options_of(clients: &[Arc<MemoryClient>], name: &str) -> Result<Options> {
        named::options_of(clients, name)
    }

    /// Drops a named database and all its data from these memory nodes.
    ///
    /// # Errors
    /// `NotFound` when no node has a part of it; `Invalid` when they have several of the name; `Busy` while a process
    /// has it open; `Unavailable`, naming the nodes that do not answer, once it is dropped at the others.
    pub fn destroy(clients: &[Arc<MemoryClient>], name: &str) -> Result<()> {
        named::destroy(clients, name, None)
    }

    /// As [`Db::options_of`], for a database in storage.
    ///
    /// # Errors
    /// `NotFound` when it is not there; those of the storage.
    pub fn options_of_stored(storage: &Storage, name: &str) -> Result<Options> {
        open_stored::options_of(storage, name)
    }

    /// Drops the database `name` and all its data from storage and from these memory nodes. A process that has it open
    /// on other nodes is fenced.
    ///
    /// # Errors
    /// `NotFound` when it is not in storage; `Busy` while a process has it open; those of the storage: call again.
    pub fn destroy_stored(storage: &Storage, clients: &[Arc<MemoryClient>], name: &str) -> Result<()> {
        open_stored::destroy(storage, clients, name)
    }

    /// Drops the database `name` from these memory nodes and from `register`, which says where its copies in memory are
    /// ([`Options::register`]).
    ///
    /// # Errors
    /// `NotFound` when the register does not know it; `Busy` while a process has it open; `Unavailable`, naming the nodes
    /// that do not answer, once it is dropped at the others (the register then still knows it); those of the storage.
    pub fn destroy_copied(register: &Storage, clients: &[Arc<MemoryClient>], name: &str) -> Result<()> {
        open_copied::destroy(register, clients, name)
    }

    /// The first part of [`Db::destroy_copied`]: drops the database `name` from these memory nodes. The register still
    /// knows it, for the sake of other nodes that hold parts of it.
    ///
    /// # Errors
    /// As [`Db::destroy_copied`].
    pub fn destroy_copies(register: &Storage, clients: &[Arc<MemoryClient>], name: &str) -> Result<()> {
        open_copied::destroy_copies(register, clients, name).map(drop)
    }

    /// The options that the database was opened with.
    pub(super) fn options(&self) -> &Options {
        &self.inner.options
    }

    /// The sessions that the database was opened with.
    pub(super) fn clients(&self) -> Vec<Arc<MemoryClient>> {
        self.inner.nodes.iter().map(|node| Arc::clone(node.client())).collect()
    }

    /// Whether the database has storage.
    #[must_use]
    pub fn has_storage(&self) -> bool {
        self.inner.options.storage.is_some()
    }

    /// Returns what is known of the database in its storage, if it may be written.
    ///
    /// # Errors
    /// `Invalid` when it has no storage, or is open for reading only.
    pub(crate) fn stored(&self) -> Result<&Stored> {
        self.check_writable()?;
        self.inner.stored.as_ref().ok_or_else(|| Error::invalid("a database without storage has no checkpoints there"))
    }

    /// Whether the database is open for reading only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.inner.is_read_only
    }

    fn check_writable(&self) -> Result<()> {
        if self.is_read_only() {
            return Err(Error::invalid(
                "the database is open to be read only: a clone of the checkpoint can be written",
            ));
        }
        Ok(())
    }

    /// What opening found of what earlier processes left; `None` for a database without a name.
    #[must_use]
    pub fn recovery(&self) -> Option<&Recovery> {
        self.inner.recovery.as_ref()
    }

    /// Order of the keys.
    #[must_use]
    pub fn key_order(&self) -> KeyOrder {
        self.router().order()
    }

    pub(crate) fn router(&self) -> &Arc<Router> {
        &self.inner.router
    }

    pub(crate) fn shards(&self) -> &[Arc<Shard>] {
        self.inner.router.shards()
    }

    /// Sets `key` to `value`. When this returns, every later read sees it.
    ///
    /// # Errors
    /// `Invalid` for a key longer than 64 KiB, a value longer than 64 MiB, or both longer than half an extent of the memory
    /// nodes; `Full` when the memory node has no memory left; `Unavailable` when it is gone; `Closed`.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_with(key, value, &WriteOptions::default())
    }

    /// As [`Db::put`], with options.
    ///
    /// # Errors
    /// See [`Db::put`]; `Invalid` when the write is to be more durable than a database without a name can be. When
    /// making it durable fails, the write is visible, and it is unknown what it survives ([`Error::is_published`]).
    pub fn put_with(&self, key: &[u8], value: &[u8], options: &WriteOptions) -> Result<()> {
        self.router().write_one(key, &Write { kind: Kind::Put, key, value, expiry_ms: None }, self.is_durable(options)?)
    }

    /// Sets `key` to `value` until `expiry_ms`, in milliseconds since 1970, by [`Db::time_ms`]. After that moment every
    /// read finds the key deleted, and its earlier values stay deleted. Snapshots and iterators see what had not
    /// expired when they were made.
    ///
    /// # Errors
    /// See [`Db::put`].
    pub fn put_expiring(&self, key: &[u8], value: &[u8], expiry_ms: u64) -> Result<()> {
        self.put_expiring_with(key, value, expiry_ms, &WriteOptions::default())
    }

    /// As [`Db::put_expiring`], with options.
    ///
    /// # Errors
    /// See [`Db::put_with`].
    pub fn put_expiring_with(&self, key: &[u8], value: &[u8], expiry_ms: u64, options: &WriteOptions) -> Result<()> {
        let write = Write { kind: Kind::Put, key, value, expiry_ms: Some(expiry_ms) };
        self.router().write_one(key, &write, self.is_durable(options)?)
    }

    /// The time by which keys expire: milliseconds since 1970, by the clock of the options. It never goes back while the
    /// database is open, even if the clock does.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.router().time_ms()
    }

    /// Adds an operand to `key`, without reading the key. The database's merge operator ([`Options::merge_operator`])
    /// computes the value from this operand and what came before it. Reads run the operator, and compactions do once no
    /// snapshot needs the parts separately. Operands apply to an expiring value until it expires, and from then on to
    /// no value. So an operand neither expires nor keeps its key from expiring.
    ///
    /// # Errors
    /// See [`Db::put`]; `Invalid` when the database has no merge operator, or the operator refuses the operand.
    pub fn merge(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        self.merge_with(key, operand, &WriteOptions::default())
    }

    /// As [`Db::merge`], with options.
    ///
    /// # Errors
    /// See [`Db::merge`] and [`Db::put_with`].
    pub fn merge_with(&self, key: &[u8], operand: &[u8], options: &WriteOptions) -> Result<()> {
        check_operand(&self.inner.options, operand)?;
        let write = Write { kind: Kind::Merge, key, value: operand, expiry_ms: None };
        self.router().write_one(key, &write, self.is_durable(options)?)
    }

    /// Removes `key`. It need not have a value.
    ///
    /// # Errors
    /// See [`Db::put`].
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.delete_with(key, &WriteOptions::default())
    }

    /// As [`Db::delete`], with options.
    ///
    /// # Errors
    /// See [`Db::put_with`].
    pub fn delete_with(&self, key: &[u8], options: &WriteOptions) -> Result<()> {
        self.router().write_one(
            key,
            &Write { kind: Kind::Delete, key, value: &[], expiry_ms: None },
            self.is_durable(options)?,
        )
    }

    /// Removes all keys from `from` (included) to `to` (excluded), in the database's order. Costs one record, however
    /// many keys there are. Does nothing when both are equal.
    ///
    /// # Errors
    /// See [`Db::put`]; `Invalid` when `to` is before `from`.
    pub fn delete_range(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::new();
        self.write(batch.delete_range(from, to))
    }

    /// Writes a batch. All of it becomes visible at once.
    ///
    /// # Errors
    /// See [`Db::put`]; `Invalid` for a batch of more than half an extent of the memory nodes, or than 256 MiB: then
    /// nothing was written.
    pub fn write(&self, batch: &WriteBatch) -> Result<()> {
        self.write_with(batch, &WriteOptions::default())
    }

    /// Maximum bytes of records ([`WriteBatch::record_bytes`]) in one write.
    #[must_use]
    pub fn max_write_bytes(&self) -> u64 {
        self.router().max_write_bytes()
    }

    /// As [`Db::write`], with options.
    ///
    /// # Errors
    /// See [`Db::write`] and [`Db::put_with`].
    pub fn write_with(&self, batch: &WriteBatch, options: &WriteOptions) -> Result<()> {
        batch.check_operands(&self.inner.options)?;
        self.router().write(batch, self.is_durable(options)?)
    }

    /// As [`Db::write`], and returns when the batch is as durable as the database can make it, whatever its options say. A
    /// database without a name ends with its process, and waits for nothing.
    pub(crate) fn write_durably(&self, batch: &WriteBatch) -> Result<()> {
        let Options { name, storage, .. } = &self.inner.options;
        let durability = match (storage, name) {
            (Some(_), _) => Durability::Storage(Syncing::Sync),
            (None, Some(_)) => Durability::Memory { copies: self.inner.options.copies() },
            (None, None) => Durability::None,
        };
        self.write_with(batch, &WriteOptions { durability: Some(durability) })
    }

    /// Makes all earlier writes durable. When this returns, they are in the log in storage, or, without storage, in the
    /// memory of the memory nodes ([`Durability::Memory`]).
    ///
    /// # Errors
    /// `Invalid` when the database has no name; `Full` when there is no room for the log; `Unavailable`; `Closed`; others of
    /// the storage.
    pub fn sync(&self) -> Result<()> {
        self.shards().iter().try_for_each(|shard| {
            shard.tree.check_open()?;
            shard.make_durable(shard.tree.publication.published())
        })
    }

    /// Makes writes durable again after a sync of the log in storage has failed.
    ///
    /// What such a sync covered may be lost, and no later sync would report that. So from then on, writes that were to be
    /// durable fail with `Closed`, even if nobody waits for them; reads continue. This call begins another log with all that
    /// was written and is not durable, and syncs it. Then writes continue. It does nothing if nothing has failed.
    ///
    /// # Errors
    /// Those of the storage: fix the cause, and call again. `Fenced`.
    pub fn resume(&self) -> Result<()> {
        self.shards().iter().try_for_each(|shard| shard.tree.check_open())?;
        let log = self.inner.log.as_ref();
        log.map_or(Ok(()), |log| log.resume()).map_err(|error| match self.shards().first() {
            Some(shard) => shard.tree.judged(error),
            None => error,
        })?;
        // A database that was closed meanwhile had nothing left to ship.
        self.shards().iter().try_for_each(|shard| shard.tree.check_open())
    }

    /// Whether a write has to wait until it is durable.
    #[inline]
    pub(super) fn is_durable(&self, options: &WriteOptions) -> Result<bool> {
        self.check_writable()?;
        let Inner { log, options: of_database, .. } = &*self.inner;
        let durability = match options.durability {
            Some(durability) => {
                of_database.check_durability(durability)?;
                durability
            }
            None => of_database.durability,
        };
        match (durability, log) {
            (Durability::None | Durability::Storage(Syncing::Flush), _) => Ok(false),
            (Durability::Storage(Syncing::Interval(_)), Some(log)) => log.check_shipping().map(|()| false),
            (_, Some(log)) => log.check_shipped().map(|()| true),
            (_, None) => Ok(true),
        }
    }

    /// Pins the present moment.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.router())
    }

    /// An iterator over all keys as of now.
    ///
    /// # Errors
    /// `Unavailable` when the memory node is gone.
    pub fn iter(&self) -> Result<DbIterator> {
        self.iter_with(&IterOptions::default())
    }

    /// An iterator over all keys as of a snapshot.
    ///
    /// # Errors
    /// See [`Db::iter`].
    pub fn iter_at(&self, snapshot: &Snapshot) -> Result<DbIterator> {
        self.iter_with(&IterOptions { snapshot: Some(snapshot), ..IterOptions::default() })
    }

    /// An iterator over some of the keys, as of a snapshot or now. Keys outside the bounds are not read.
    ///
    /// # Errors
    /// See [`Db::iter`].
    pub fn iter_with(&self, options: &IterOptions<'_>) -> Result<DbIterator> {
        DbIterator::new(self.router(), options)
    }

    /// The bounds between the shards. The first shard owns the keys before the first bound, the second shard those from
    /// there to the second bound, and so on.
    #[must_use]
    pub fn shard_bounds(&self) -> Vec<Vec<u8>> {
        self.router().routing().bounds().to_vec()
    }

    /// Moves the bound between shard `shard` and the next one to the key `to`, and with it the keys in between. Reads
    /// and writes continue; writers of the few keys being copied wait briefly. The next shard may have owned nothing
    /// before. Existing snapshots and iterators are not affected.
    ///
    /// If it fails, the bound may have moved part of the way ([`Db::shard_bounds`]). Nothing is lost.
    ///
    /// # Errors
    /// `Invalid` when there is no such bound, or `to` is not between the neighbouring bounds; as [`Db::get`] and
    /// [`Db::put`].
    pub fn move_bound(&self, shard: usize, to: &[u8]) -> Result<()> {
        self.check_writable()?;
        self.router().move_bound(shard, to)
    }

    /// Moves bounds between neighbouring shards where one holds more than twice as much as the other. Returns how many
    /// bounds were moved. Data in memtables does not count.
    ///
    /// # Errors
    /// As [`Db::move_bound`].
    pub fn rebalance(&self) -> Result<usize> {
        self.check_writable()?;
        self.router().rebalance()
    }

    /// Approximate bytes of the records in each range (first key included, last excluded). Uses the cached indexes,
    /// without a round trip. Shadowed and deleted records count until a compaction drops them.
    ///
    /// # Errors
    /// `Invalid` when a range ends before it starts; `Closed`.
    pub fn approximate_sizes(&self, ranges: &[(&[u8], &[u8])]) -> Result<Vec<u64>> {
        ranges.iter().map(|range| self.approximate_size(range.0, range.1)).collect()
    }

    fn approximate_size(&self, from: &[u8], to: &[u8]) -> Result<u64> {
        let (order, routing) = (self.key_order(), self.router().routing());
        if order.compare(from, to).is_gt() {
            return Err(Error::invalid(format!("a range ends before it starts in the {} order", order.name())));
        }
        let range = KeyRange { lower: Some(from), upper: Some(to) };
        let mut sum = 0;
        for at in routing.owners(range) {
            let shard = self.router().shard(at)?;
            shard.tree.check_open()?;
            if let Some(part) = routing.range(at).and_then(|owned| owned.intersection(order, range)) {
                sum += shard.tree.weight(part)?;
            }
        }
        Ok(sum)
    }

    /// The sequence number of each shard when the database was opened. Whatever earlier processes wrote after it is
    /// lost.
    #[must_use]
    pub fn opened_at(&self) -> Vec<SequenceNumber> {
        self.shards().iter().map(|shard| shard.tree.opened_at).collect()
    }

    /// Flushes all earlier writes to the memory nodes, and to storage where the database has one, and waits until that is
    /// done.
    ///
    /// # Errors
    /// See [`Db::put`].
    pub fn flush(&self) -> Result<()> {
        let ends = self.shards().iter().map(|shard| shard.begin_flush()).collect::<Result<Vec<_>>>()?;
        self.shards().iter().zip(ends).try_for_each(|(shard, end)| shard.wait_flushed(end))
    }

    /// Flushes a database created with [`Options::unfinished`], and says that it is whole: others may open it from now on.
    ///
    /// # Errors
    /// `Invalid` for a database created without it; as for [`Db::flush`]; `Fenced`; those of the storage: call again.
    pub fn finish(&self) -> Result<()> {
        self.check_writable()?;
        if !self.inner.options.unfinished {
            return Err(Error::invalid("a database that was not created to be finished is whole"));
        }
        self.flush()?;
        if let Some(stored) = &self.inner.stored {
            return stored.register.finish();
        }
        // Each node has one of the first shards.
        let owners = self.shards().iter().take(self.inner.nodes.len()).filter_map(|shard| shard.tree.remote.owner());
        owners.map(|owner| owner.store()).try_for_each(named::finish)
    }

    /// Compacts everything from `lower` (included) to `upper` (excluded) down to the last level, and waits until storage has
    /// the result. Then the range is in key order, and has only shadowed records that snapshots need. `None` means no bound.
    ///
    /// # Errors
    /// See [`Db::put`].
    pub fn compact_range(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Result<()> {
        self.check_writable()?;
        self.flush()?;
        // All shards, whatever they own: a shard may hold keys that it no longer owns.
        let begun =
            self.shards().iter().map(|shard| shard.begin_compaction(lower, upper)).collect::<Result<Vec<_>>>()?;
        self.shards().iter().zip(begun).try_for_each(|(shard, number)| {
            shard.wait_compacted(number)?;
            shard.record()
        })
    }

    /// Waits until no flush or compaction is left to do, those at rest ([`Options::settle_after`]) included, and storage has
    /// their results. While others write, this waits until they pause, or until little of what they wrote is out of order.
    ///
    /// # Errors
    /// See [`Db::put`].
    pub fn wait_for_compactions(&self) -> Result<()> {
        self.shards().iter().try_for_each(|shard| {
            shard.wait_idle(Idle::Quiet)?;
            shard.record()
        })
    }

    /// For databases without background threads: does a flush or a compaction if there is one, ships the log if that is due,
    /// and reconnects to lost memory nodes. Returns false when there was nothing to do. Later calls report failures.
    pub fn run_background_step(&self) -> bool {
        let has_shipped = self.inner.ship_when_due();
        let rejoining = self.inner.rejoining.as_ref().filter(|_| self.inner.rejoiner.is_none());
        let has_connected = rejoining.is_some_and(|rejoining| rejoining.step());
        let scrub = self.inner.scrub.as_ref().filter(|_| self.inner.scrubber.is_none());
        let has_looked = scrub.is_some_and(|scrub| scrub.step());
        self.shards().iter().any(|shard| shard.background_step()) || has_shipped || has_connected || has_looked
    }

    /// Adds a memory node on which copies may be placed from now on: a new one, or one that was restarted. Missing
    /// copies are made there, and on the others, while service continues ([`Db::missing_copies`]).
    ///
    /// # Errors
    /// `Invalid` for a database without several copies in memory, or a node with shorter extents than the others;
    /// `AlreadyExists` when the node has another database of this name; `Unavailable`.
    pub fn add_memory_node(&self, client: &Arc<MemoryClient>) -> Result<()> {
        let (Some(copied), Some(name)) = (&self.inner.copied, &self.inner.options.name) else {
            return Err(Error::invalid(
                "only a database with several copies in memory takes memory nodes while it is open",
            ));
        };
        copied.add_node(name, client, &self.inner.options)
    }

    /// Checks in storage whether this process still owns the database, and whether its commits exist. An owner that
    /// writes learns of another owner from its commits and syncs, and of missing commits from its commits. An owner
    /// that only reads learns of neither. A database without storage loses its memory instead.
    ///
    /// # Errors
    /// `Fenced`: from now on all calls fail with it; `Corrupt` when somebody deleted its commits: from now on writes of
    /// any durability fail with it, until the commits are back and the database is opened again; those of the storage,
    /// which say nothing about the owner.
    pub fn check_owner(&self) -> Result<()> {
        let Some(stored) = self.inner.stored.as_ref().filter(|_| !self.inner.is_read_only) else { return Ok(()) };
        stored.register.check().map_err(|error| {
            let judge = |error, shard: &Arc<Shard>| shard.tree.judged(error);
            let error = self.shards().iter().fold(error, judge);
            if error.kind() != ErrorKind::Corrupt {
                return error;
            }
            // Nothing that is written now would be found again.
            self.inner.log.iter().for_each(|log| log.refuse(&error));
            self.shards().iter().for_each(|shard| shard.lose(&error));
            error
        })
    }

    /// [`Statistics::remote_bytes`] alone, which is quick to compute.
    #[must_use]
    pub fn remote_bytes(&self) -> u64 {
        let own: u64 = self.shards().iter().map(|shard| shard.tree.remote.own_bytes()).sum();
        own + self.nodes().iter().map(|node| node.allocated_bytes()).sum::<u64>()
    }

    fn nodes(&self) -> Vec<Arc<Node>> {
        self.inner.copied.as_ref().map_or_else(|| self.inner.nodes.clone(), |copied| copied.places.nodes())
    }

    /// Counts of past work, and the current shape.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let mut statistics = Statistics { remote_bytes: self.remote_bytes(), ..Statistics::default() };
        for shard in self.shards() {
            statistics.add_tree(&shard.tree);
            statistics.log.lag_bytes += shard.lag_bytes();
        }
        self.nodes().iter().for_each(|node| statistics.add_node(node));
        statistics.add_moves(&self.router().moves);
        self.inner.log.iter().for_each(|log| log.add_to(&mut statistics.log));
        statistics.storage = self.inner.options.storage.as_ref().map(Storage::counts).unwrap_or_default();
        let objects = self.shards().iter().find_map(|shard| shard.tree.remote.objects());
        statistics.block_cache = objects.map(|objects| objects.cache().counts()).unwrap_or_default();
        statistics.dead_bytes_pinned = statistics.remote_bytes.saturating_sub(statistics.named_bytes);
        statistics
    }

    /// Closes the database: flushes the memtables of a named database, stops background work, and gives its memory back,
    /// except what iterators hold until they are dropped. Later calls on any clone fail with `Closed`, writes as soon as the
    /// flush begins, and iterators when they next have to read. All steps are carried out even if one fails. Dropping a
    /// database closes it the same way, but can only log what is lost.
    ///
    /// # Errors
    /// The error of background work or of the last flush. The contents of the memtables are then lost.
    pub fn close(&self) -> Result<()> {
        self.inner.stop()
    }

    /// Closes the database as dropping its last clone does. For holders of what it cannot do without; clones may be left.
    pub fn close_unasked(&self) {
        self.inner.stop_unasked();
    }
}

impl Inner {
    /// How often the log is shipped.
    fn interval(&self) -> Option<Duration> {
        match self.options.durability {
            Durability::Storage(Syncing::Interval(interval)) => Some(interval),
            _ => None,
        }
    }

    /// If no thread ships the log: ships it if that is due, or appends what is missing from it. Returns whether it did.
    fn ship_when_due(&self) -> bool {
        let (Some(log), Some(interval), None) = (&self.log, self.interval(), &self.ticker) else { return false };
        let now = self.options.clock.now();
        if now < self.next_shipment.load(Ordering::Relaxed) {
            return log.keeps_appended() && log.append_now();
        }
        let pause = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        self.next_shipment.store(now.saturating_add(pause), Ordering::Relaxed);
        if let Err(error) = log.ship_now() {
            // The next writer gets the error.
            tracing::debug!(%error, "shipping the log");
        }
        true
    }

    /// Closes the database. A second call finds everything done and returns no error.
    fn stop(&self) -> Result<()> {
        if self.stopped.load(Ordering::Acquire) {
            return Ok(());
        }
        let shards = self.router.shards();
        // A thread that is connecting to a node may wait for it a long time, and does no harm afterwards.
        self.rejoiner.iter().for_each(Ticker::leave);
        // What a log whose sync failed does not have is still in memory.
        if let Some(log) = &self.log
            && log.check_usable().is_err()
            && shards.iter().all(|shard| shard.tree.check_open().is_ok())
            && let Err(error) = log.resume()
        {
            tracing::warn!(%error, "what the log lacks may be lost");
        }
        let begun: Vec<_> = shards.iter().map(|shard| shard.begin_leaving()).collect();
        let left = shards.iter().zip(begun).map(|(shard, begun)| shard.leave(begun)).fold(Ok(()), Result::and);
        // What could not be flushed to tables does not wait for the end of the interval.
        if let (Err(_), Some(log), Some(_)) = (&left, &self.log, self.interval())
            && let Err(error) = log.ship_now()
        {
            tracing::warn!(%error, "the writes of the last interval may be lost");
        }
        shards.iter().for_each(|shard| shard.close());
        shards.iter().for_each(|shard| shard.stop_near_data());
        self.rebalancer.iter().for_each(Ticker::stop);
        // From here on nothing is recorded, so the shards can be cleared.
        self.router.wait_moved();
        self.background.stop();
        let tickers = self.ticker.iter().chain(&self.appender).chain(&self.mender).chain(&self.scrubber);
        tickers.for_each(Ticker::stop);
        if left.is_ok() {
            self.log.iter().for_each(|log| log.close());
        }
        shards.iter().for_each(|shard| shard.clear());
        self.copied.iter().for_each(|copied| copied.register.release());
        let own = |failure: &mut Error| failure.kind() != ErrorKind::Closed;
        let failures = shards.iter().filter_map(|shard| shard.lock().failure.take_if(own));
        // Consumes all of them, not only the first.
        let failure = failures.reduce(|first, _| first);
        // Another thread closed the database at the same time.
        if self.stopped.swap(true, Ordering::AcqRel) {
            return left;
        }
        let fenced = || shards.iter().find_map(|shard| shard.tree.fenced().cloned());
        failure.or_else(fenced).map_or(left, Err)
    }
}

impl Inner {
    fn stop_unasked(&self) {
        if let Err(error) = self.stop() {
            tracing::warn!(%error, "nobody closed the database; what memtables held may be lost");
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop_unasked();
    }
}
