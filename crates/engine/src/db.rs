//! The database.

use crate::background::{self, Idle};
use crate::batch::{One, WriteBatch};
use crate::bounds::IterOptions;
use crate::iterator::DbIterator;
use crate::named;
use crate::recovery;
use crate::segment::Remote;
use crate::shard::{ManualCompaction, Shard};
use crate::statistics::{Statistics, get};
use crate::version::identity;
use crate::{Error, Options, Result};
use forebay_base::{Kind, SequenceNumber};
use forebay_env::sync::{Mutex, lock};
use forebay_env::thread::JoinHandle;
use forebay_fabric::Traffic;
use forebay_memory_client::{MemoryClient, ShardId};
use forebay_table::StoreConfig;
use std::sync::Arc;

/// An ordered key-value database over a memory node. Cheap to clone; all clones are the same
/// database, and any thread may use any of them.
///
/// Durability is `none`: the memory of the database belongs to this process's session at the memory
/// node and ends with either.
#[derive(Clone)]
pub struct Db {
    inner: Arc<Inner>,
}

struct Inner {
    shard: Arc<Shard>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A moment of the database. Reads through it see exactly what had been written then.
pub struct Snapshot {
    shard: Arc<Shard>,
    number: SequenceNumber,
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Db").field("published", &self.shard().publication.published()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Snapshot").field(&self.number).finish()
    }
}

impl Snapshot {
    /// The published sequence number that the snapshot reads at.
    #[must_use]
    pub fn sequence_number(&self) -> SequenceNumber {
        self.number
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.shard.unpin(self.number);
    }
}

impl Db {
    /// Creates an empty database in the memory that `client` leases.
    ///
    /// # Errors
    /// `Invalid` for options that do not fit each other; `Unavailable` when the node is gone; `Io` when there is no memory or no thread.
    pub fn open(client: Arc<MemoryClient>, options: Options) -> Result<Self> {
        options.check()?;
        let options = options.fitted_to(client.extent_bytes());
        let shard = Arc::new(Shard::open(client, options)?);
        let threads = Mutex::new(background::start(&shard)?);
        Ok(Self { inner: Arc::new(Inner { shard, threads }) })
    }

    /// Names of the databases in a memory node, in ascending order.
    ///
    /// # Errors
    /// `Unavailable` when it is gone.
    pub fn list(client: &MemoryClient) -> Result<Vec<String>> {
        named::list(client)
    }

    /// Drops a named database with all that is in it.
    ///
    /// # Errors
    /// `NotFound` when there is none; `Busy` while a process has it open.
    pub fn destroy(client: &Arc<MemoryClient>, name: &str) -> Result<()> {
        named::destroy(client, name)
    }

    /// Order of the keys.
    pub(crate) fn key_order(&self) -> forebay_base::KeyOrder {
        self.shard().options.key_order
    }

    pub(crate) fn shard(&self) -> &Arc<Shard> {
        &self.inner.shard
    }

    /// Sets `key` to `value`. When this returns, every later read sees it.
    ///
    /// # Errors
    /// `Invalid` for a key beyond 64 KiB or a value beyond 64 MiB; `Full` when the memory node has
    /// no memory left; `Unavailable` when it is gone; `Closed`.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.shard().write(&One { kind: Kind::Put, key, value })
    }

    /// Removes `key`, whether or not it has a value.
    ///
    /// # Errors
    /// See [`Db::put`].
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.shard().write(&One { kind: Kind::Delete, key, value: &[] })
    }

    /// Removes all keys from `from` up to (not with) `to`, in the database's order. Costs one record,
    /// however many keys there are. With equal ends nothing is done.
    ///
    /// # Errors
    /// See [`Db::put`]; `Invalid` when `to` is before `from`.
    pub fn delete_range(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::new();
        self.shard().write(batch.delete_range(from, to))
    }

    /// Writes a batch: all of it becomes visible at once.
    ///
    /// # Errors
    /// See [`Db::put`]; `Invalid` for more than 256 MiB together. Then nothing was written.
    pub fn write(&self, batch: &WriteBatch) -> Result<()> {
        self.shard().write(batch)
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
        self.shard().get(key, snapshot.map(|snapshot| snapshot.number), found)
    }

    /// The values of `keys`, all as of the same moment, in few round trips.
    ///
    /// # Errors
    /// See [`Db::get`].
    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.shard().multi_get(keys, None)
    }

    /// The values of `keys` as of a snapshot.
    ///
    /// # Errors
    /// See [`Db::get`].
    pub fn multi_get_at(&self, keys: &[&[u8]], snapshot: &Snapshot) -> Result<Vec<Option<Vec<u8>>>> {
        self.shard().multi_get(keys, Some(snapshot.number))
    }

    /// Pins this moment.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { number: self.shard().pin(), shard: Arc::clone(self.shard()) }
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
        DbIterator::new(Arc::clone(self.shard()), options)
    }

    /// Flushes what was written so far to the memory node, and waits for it.
    ///
    /// # Errors
    /// See [`Db::put`].
    pub fn flush(&self) -> Result<()> {
        self.shard().flush_all()
    }

    /// Compacts everything from `lower` up to (not with) `upper` down to the last level, so that
    /// nothing shadowed is left there and records lie in key order; an absent bound is none.
    ///
    /// # Errors
    /// See [`Db::put`].
    pub fn compact_range(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Result<()> {
        self.flush()?;
        let manual = ManualCompaction { lower: lower.map(<[u8]>::to_vec), upper: upper.map(<[u8]>::to_vec), level: 0 };
        self.shard().compact_manually(manual)
    }

    /// Waits until nothing is left to be flushed or compacted.
    ///
    /// # Errors
    /// See [`Db::put`].
    pub fn wait_for_compactions(&self) -> Result<()> {
        self.shard().wait_idle(Idle::Quiet)
    }

    /// What was done and what there is.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let shard = self.shard();
        let view = Arc::clone(&shard.view.load());
        let counters = &shard.counters;
        let link = shard.remote.link();
        Statistics {
            foreground: link.counts(Traffic::Foreground),
            background: link.counts(Traffic::Background),
            stall_nanos: get(&counters.stall_nanos),
            stalls: get(&counters.stalls),
            flushes: get(&counters.flushes),
            compactions: get(&counters.compactions),
            near_data_compactions: get(&counters.near_data_compactions),
            refused_compactions: get(&counters.refused_compactions),
            compaction_entries: get(&counters.compaction_entries),
            compaction_bytes_read: get(&counters.compaction_bytes_read),
            compaction_bytes_written: get(&counters.compaction_bytes_written),
            dead_bytes_known: view.version.dead_bytes(),
            cached_index_bytes: view.version.cached_index_bytes(),
            memtable_bytes: view.buffers().map(|buffer| buffer.memtable.reserved_bytes()).sum(),
            remote_bytes: shard.remote.allocated_bytes(),
            live_bytes: view.version.live_bytes(),
            levels: view.version.level_statistics(),
        }
    }

    /// Ends the database: background work stops, later calls on any clone fail with `Closed`, and
    /// its memory is given back, but for what iterators still hold. Says what background work had
    /// failed with, if it had.
    ///
    /// # Errors
    /// The failure of background work.
    pub fn close(&self) -> Result<()> {
        self.inner.stop();
        match self.shard().lock().failure.take_if(|failure| failure.kind() != forebay_base::ErrorKind::Closed) {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}

impl Inner {
    fn stop(&self) {
        if let Err(error) = self.shard.leave_tidy() {
            tracing::warn!(%error, "what memtables hold is lost");
        }
        self.shard.close();
        self.shard.stop_near_data();
        for thread in lock(&self.threads).drain(..) {
            if thread.join().is_err() {
                tracing::error!("a background thread panicked");
            }
        }
        self.shard.clear();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shard {
    /// Opens the only shard of a database.
    fn open(client: Arc<MemoryClient>, options: Options) -> Result<Self> {
        let Some(name) = options.name.clone() else {
            let remote = Arc::new(Remote::new(client, &options)?);
            return Self::new(options, remote);
        };
        let config =
            StoreConfig { key_order: options.key_order, shards: 1, merge_operator: String::new(), bounds: Vec::new() };
        let store = named::open(&client, &name, &config, &options)?;
        let identity = identity(&options, store.id().0.into(), 0);
        let recovered = recovery::open(store, ShardId(0), identity, &options)?;
        Self::recovered(options, recovered)
    }

    /// Flushes what was written so far, and waits for it.
    pub(crate) fn flush_all(&self) -> Result<()> {
        self.seal_active()?;
        let end = self.view.load().active.memtable.base();
        self.wait_idle(Idle::FlushedUpTo(end))
    }

    /// Waits for the manual compaction before, if one runs, then carries this one out.
    fn compact_manually(&self, manual: ManualCompaction) -> Result<()> {
        let mut state = self.lock();
        let mut mine = Some(manual);
        loop {
            if let Some(failure) = state.failure.as_ref().or(state.full.as_ref()) {
                return Err(failure.clone());
            }
            if state.closing {
                return Err(Error::closed());
            }
            // It is taken away when its last step is done: no two compactions run at once.
            if state.manual.is_none() {
                match mine.take() {
                    Some(manual) => {
                        state.manual = Some(manual);
                        self.notify();
                    }
                    None => return Ok(()),
                }
            }
            state = self.wait(state);
        }
    }
}
