//! The database.

use crate::background::{Background, Bell, Idle};
use crate::batch::{One, WriteBatch};
use crate::bounds::IterOptions;
use crate::db_iterator::DbIterator;
use crate::open::{self, Opened};
use crate::rebalance::Rebalancer;
use crate::router::{Moment, Pins, Router};
use crate::routing::KeyRange;
use crate::segment::Node;
use crate::shard::{ManualCompaction, Shard, State};
use crate::{Error, Options, Result, Statistics, named};
use forebay_base::{ErrorKind, KeyOrder, Kind, SequenceNumber};
use forebay_memory_client::MemoryClient;
use std::sync::Arc;

/// An ordered key-value database over memory nodes. Cheap to clone; all clones are the same
/// database, and any thread may use any of them.
///
/// Durability is `none`: a database ends with its memory nodes; what is not flushed ends with the process,
/// and so does all of a database without a name.
#[derive(Clone)]
pub struct Db {
    inner: Arc<Inner>,
}

struct Inner {
    router: Arc<Router>,
    nodes: Vec<Arc<Node>>,
    background: Background,
    rebalancer: Option<Rebalancer>,
}

/// A moment of the database. Reads through it see exactly what had been written then: of a batch,
/// all or nothing.
pub struct Snapshot {
    pins: Pins,
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let published: Vec<_> = self.shards().iter().map(|shard| shard.publication.published()).collect();
        f.debug_struct("Db").field("published", &published).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Snapshot").field(&self.sequence_numbers()).finish()
    }
}

impl Snapshot {
    /// The published sequence number that the snapshot reads at in each shard.
    #[must_use]
    pub fn sequence_numbers(&self) -> &[SequenceNumber] {
        &self.pins.moment.numbers
    }

    /// The moment, for reads of the database of `router`.
    pub(crate) fn moment_of(&self, router: &Arc<Router>) -> Result<&Moment> {
        if self.pins.are_of(router) {
            Ok(&self.pins.moment)
        } else {
            Err(Error::invalid("the snapshot is of another database"))
        }
    }
}

impl Db {
    /// Opens a database in the memory of the nodes of `clients`, each another one: an empty one, unless
    /// it has a name and is there. Shard `i` lies on node `i` modulo their number (dLSM IX). The nodes of
    /// a named database may come in any order, but have to be those that it was created on.
    ///
    /// # Errors
    /// `Invalid` for options that do not fit each other or the database, or no client, or too few or too
    /// many; `NotFound` when there is no database of the name, or a node has lost its part of it;
    /// `AlreadyExists`; `Busy` when another process has it open; `Unavailable` when a node is gone;
    /// `Corrupt`; `Io` when there is no memory or no thread.
    pub fn open(clients: &[Arc<MemoryClient>], options: Options) -> Result<Self> {
        let bell = Arc::new(Bell::default());
        let Opened { nodes, shards, routing } = open::open(clients, &options, &bell)?;
        let background = Background::start(Arc::clone(&shards), bell, options.background_threads)?;
        let router = Arc::new(Router::new(shards, routing));
        let mut inner = Inner { router, nodes, background, rebalancer: None };
        if let Some(interval) = options.rebalance_interval
            && inner.router.shards().len() > 1
        {
            inner.rebalancer = Some(Rebalancer::start(Arc::clone(&inner.router), interval)?);
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Names of the databases in memory nodes, in ascending order: also of those of which a node has a
    /// part only.
    ///
    /// # Errors
    /// `Unavailable` when one is gone.
    pub fn list(clients: &[Arc<MemoryClient>]) -> Result<Vec<String>> {
        named::list(clients)
    }

    /// Options to open a named database of these memory nodes with, whatever it was created with: it must exist.
    ///
    /// # Errors
    /// `NotFound` when no node has a part of it.
    pub fn options_of(clients: &[Arc<MemoryClient>], name: &str) -> Result<Options> {
        named::options_of(clients, name)
    }

    /// Drops a named database with all that is in it, of these memory nodes.
    ///
    /// # Errors
    /// `NotFound` when none has a part of it; `Busy` while a process has it open.
    pub fn destroy(clients: &[Arc<MemoryClient>], name: &str) -> Result<()> {
        named::destroy(clients, name)
    }

    /// Order of the keys.
    pub(crate) fn key_order(&self) -> KeyOrder {
        self.router().order()
    }

    fn router(&self) -> &Arc<Router> {
        &self.inner.router
    }

    pub(crate) fn shards(&self) -> &[Arc<Shard>] {
        self.inner.router.shards()
    }

    /// Sets `key` to `value`. When this returns, every later read sees it.
    ///
    /// # Errors
    /// `Invalid` for a key beyond 64 KiB or a value beyond 64 MiB; `Full` when the memory node has
    /// no memory left; `Unavailable` when it is gone; `Closed`.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.router().write_one(key, &One { kind: Kind::Put, key, value })
    }

    /// Removes `key`, whether or not it has a value.
    ///
    /// # Errors
    /// See [`Db::put`].
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.router().write_one(key, &One { kind: Kind::Delete, key, value: &[] })
    }

    /// Removes all keys from `from` up to (not with) `to`, in the database's order. Costs one record,
    /// however many keys there are. With equal ends nothing is done.
    ///
    /// # Errors
    /// See [`Db::put`]; `Invalid` when `to` is before `from`.
    pub fn delete_range(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::new();
        self.router().write(batch.delete_range(from, to))
    }

    /// Writes a batch: all of it becomes visible at once.
    ///
    /// # Errors
    /// See [`Db::put`]; `Invalid` for more than 256 MiB together. Then nothing was written.
    pub fn write(&self, batch: &WriteBatch) -> Result<()> {
        self.router().write(batch)
    }

    /// The value of `key`; `None` when it has none.
    ///
    /// # Errors
    /// `Unavailable` when the memory node is gone; `Corrupt` when a checksum does not match; `Closed`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_with(key, None, <[u8]>::to_vec)
    }

    /// The value of `key` as of a snapshot.
    ///
    /// # Errors
    /// See [`Db::get`].
    pub fn get_at(&self, key: &[u8], snapshot: &Snapshot) -> Result<Option<Vec<u8>>> {
        self.get_with(key, Some(snapshot), <[u8]>::to_vec)
    }

    /// Hands the value of `key`, as of a snapshot or now, to `found`, without a copy.
    ///
    /// # Errors
    /// See [`Db::get`].
    pub fn get_with<T>(
        &self,
        key: &[u8],
        snapshot: Option<&Snapshot>,
        found: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        let moment = snapshot.map(|snapshot| snapshot.moment_of(self.router())).transpose()?;
        self.router().get(key, moment, found)
    }

    /// The values of `keys`, all as of the same moment, in few round trips.
    ///
    /// # Errors
    /// See [`Db::get`].
    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.router().multi_get(keys, None)
    }

    /// The values of `keys` as of a snapshot.
    ///
    /// # Errors
    /// See [`Db::get`].
    pub fn multi_get_at(&self, keys: &[&[u8]], snapshot: &Snapshot) -> Result<Vec<Option<Vec<u8>>>> {
        self.router().multi_get(keys, Some(snapshot.moment_of(self.router())?))
    }

    /// Pins this moment.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { pins: self.router().pin() }
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

    /// An iterator over some of the keys, as of a snapshot or now. What lies outside of the bounds is
    /// not read.
    ///
    /// # Errors
    /// See [`Db::iter`].
    pub fn iter_with(&self, options: &IterOptions<'_>) -> Result<DbIterator> {
        DbIterator::new(self.router(), options)
    }

    /// The bounds between the shards: the first shard owns the keys before the first bound, the next
    /// those from there on, and so on.
    #[must_use]
    pub fn shard_bounds(&self) -> Vec<Vec<u8>> {
        self.router().routing().bounds().to_vec()
    }

    /// Moves the bound between shard `shard` and the next one to the key `to`, and with it the keys on
    /// its way, while reads and writes go on; writers of the few keys that are being copied wait a
    /// little. The next shard may have owned nothing before. Snapshots and iterators read on as they were.
    ///
    /// When it fails, the bound may have moved a part of the way ([`Db::shard_bounds`]); nothing is lost.
    ///
    /// # Errors
    /// `Invalid` when there is no such bound, or `to` is not between the bounds beside it; as [`Db::get`]
    /// and [`Db::put`].
    pub fn move_bound(&self, shard: usize, to: &[u8]) -> Result<()> {
        self.router().move_bound(shard, to)
    }

    /// Moves bounds between neighbouring shards of which one has more than twice as much as the other,
    /// and says how many were moved. What is in memtables does not count.
    ///
    /// # Errors
    /// As [`Db::move_bound`].
    pub fn rebalance(&self) -> Result<usize> {
        self.router().rebalance()
    }

    /// Bytes of the records in each of the ranges (from a key up to, not with, another one), about: by
    /// the cached indexes, without a round trip. Shadowed and deleted records count until a compaction
    /// drops them.
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
            shard.check_open()?;
            if let Some(part) = routing.range(at).and_then(|owned| owned.intersection(order, range)) {
                sum += shard.weight(part)?;
            }
        }
        Ok(sum)
    }

    /// The sequence number that each shard was found at when the database was opened: what processes before
    /// wrote there after it is lost.
    #[must_use]
    pub fn opened_at(&self) -> Vec<SequenceNumber> {
        self.shards().iter().map(|shard| shard.opened_at).collect()
    }

    /// Flushes what was written so far to the memory nodes, and waits for it.
    ///
    /// # Errors
    /// See [`Db::put`].
    pub fn flush(&self) -> Result<()> {
        let seal = |shard: &Arc<Shard>| {
            shard.seal_active()?;
            Ok(shard.view.load().active.memtable.base())
        };
        let ends = self.shards().iter().map(seal).collect::<Result<Vec<_>>>()?;
        self.shards().iter().zip(ends).try_for_each(|(shard, end)| shard.wait_idle(Idle::FlushedUpTo(end)))
    }

    /// Compacts everything from `lower` up to (not with) `upper` down to the last level, so that
    /// nothing shadowed is left there and records lie in key order; an absent bound is none.
    ///
    /// # Errors
    /// See [`Db::put`].
    pub fn compact_range(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Result<()> {
        self.flush()?;
        // All shards, whoever owns what: one may hold what it no longer owns.
        let begun =
            self.shards().iter().map(|shard| shard.begin_compaction(lower, upper)).collect::<Result<Vec<_>>>()?;
        self.shards().iter().zip(begun).try_for_each(|(shard, number)| shard.wait_compacted(number))
    }

    /// Waits until nothing is left to be flushed or compacted.
    ///
    /// # Errors
    /// See [`Db::put`].
    pub fn wait_for_compactions(&self) -> Result<()> {
        self.shards().iter().try_for_each(|shard| shard.wait_idle(Idle::Quiet))
    }

    /// Flushes a memtable, or runs a compaction, if there is work: for databases without background
    /// threads. False when there was nothing to do. What fails is reported by later calls.
    pub fn run_background_step(&self) -> bool {
        self.shards().iter().any(|shard| shard.background_step())
    }

    /// What background work of a shard has failed with for good, if it has: every later write to that
    /// shard fails with it.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.shards().iter().find_map(|shard| shard.lock().failure.clone())
    }

    /// What was done and what there is.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let mut statistics = Statistics::default();
        self.shards().iter().for_each(|shard| statistics.add_shard(shard));
        self.inner.nodes.iter().for_each(|node| statistics.add_node(node));
        statistics.add_moves(&self.router().moves);
        statistics.dead_bytes_pinned = statistics.remote_bytes.saturating_sub(statistics.named_bytes);
        statistics
    }

    /// Ends the database: what a named one has in memtables is flushed, background work stops, later
    /// calls on any clone fail with `Closed`, and its memory is given back, but for what iterators still
    /// hold. All of it is done even if a part fails. A database that is dropped ends the same way, but
    /// can only log what is lost.
    ///
    /// # Errors
    /// What background work had failed with, or the last flush: then what memtables held is lost.
    pub fn close(&self) -> Result<()> {
        self.inner.stop()
    }
}

impl Inner {
    /// A second call finds all done and no error.
    fn stop(&self) -> Result<()> {
        let shards = self.router.shards();
        let left = shards.iter().map(|shard| shard.leave_tidy()).fold(Ok(()), Result::and);
        shards.iter().for_each(|shard| shard.close());
        shards.iter().for_each(|shard| shard.stop_near_data());
        self.rebalancer.iter().for_each(Rebalancer::stop);
        // Nothing is recorded any more when the shards are cleared.
        self.router.wait_moved();
        self.background.stop();
        shards.iter().for_each(|shard| shard.clear());
        let own = |failure: &mut Error| failure.kind() != ErrorKind::Closed;
        let failures = shards.iter().filter_map(|shard| shard.lock().failure.take_if(own));
        // All are taken.
        failures.reduce(|first, _| first).map_or(left, Err)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::warn!(%error, "nobody closed the database; what memtables held may be lost");
        }
    }
}

impl Shard {
    /// Flushes what was written so far, and waits for it.
    pub(crate) fn flush_all(&self) -> Result<()> {
        self.seal_active()?;
        let end = self.view.load().active.memtable.base();
        self.wait_idle(Idle::FlushedUpTo(end))
    }

    /// Asks for a compaction of a range, after waiting for the one before that somebody asked for.
    /// Returns its number.
    fn begin_compaction(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Result<u64> {
        let mut state = self.lock();
        loop {
            self.check_compacting(&state)?;
            if state.manual.is_none() {
                state.manual = Some(ManualCompaction {
                    lower: lower.map(<[u8]>::to_vec),
                    upper: upper.map(<[u8]>::to_vec),
                    ..ManualCompaction::default()
                });
                state.manuals += 1;
                self.notify();
                return Ok(state.manuals);
            }
            state = self.wait(state);
        }
    }

    /// Flushes, and asks for a compaction of a range, unless somebody else asked for one that goes on.
    pub(crate) fn suggest_compaction(&self, range: KeyRange<'_>) {
        if let Err(error) = self.flush_all() {
            tracing::debug!(%error, "flushing before a compaction");
            return;
        }
        let mut state = self.lock();
        if state.manual.is_none() && self.check_running(&state).is_ok() {
            let bound = |key: Option<&[u8]>| key.map(<[u8]>::to_vec);
            let (lower, upper) = (bound(range.lower), bound(range.upper));
            state.manual = Some(ManualCompaction { lower, upper, ..ManualCompaction::default() });
            state.manuals += 1;
            drop(state);
            self.notify();
        }
    }

    /// Waits for the end of a compaction that was asked for.
    fn wait_compacted(&self, number: u64) -> Result<()> {
        let mut state = self.lock();
        loop {
            // It is taken away when its last step is done: no two compactions run at once.
            if state.manual.is_none() || state.manuals > number {
                self.view.reclaim();
                return Ok(());
            }
            if let Err(error) = self.check_compacting(&state) {
                state.manual = None;
                return Err(error);
            }
            state = self.wait(state);
        }
    }

    /// Fails when compactions do not go on: one waits for room that only other compactions could make.
    pub(crate) fn check_compacting(&self, state: &State) -> Result<()> {
        self.check_running(state)?;
        self.given_up(state, false).map_or(Ok(()), Err)
    }

    /// Fails when background work does not go on.
    pub(crate) fn check_running(&self, state: &State) -> Result<()> {
        match state.failure.clone().or_else(|| self.given_up(state, true)) {
            Some(failure) => Err(failure),
            None if state.closing => Err(Error::closed()),
            None => Ok(()),
        }
    }
}
