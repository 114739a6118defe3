//! A compute node's connection to a memory node.

use crate::session::{ReadGuard, Reader, Session};
use crate::{Error, StoreHandle};
use forebay_base::ErrorKind;
use forebay_env::sync::{Mutex, lock};
use forebay_env::thread::{JoinHandle, spawn};
use forebay_env::{Clock, SystemClock};
use forebay_fabric::{Link, NodeIdentity, RemoteAddress, Rights};
use forebay_proto::calls::{
    Call, CreateStore, DropStore, GetStatistics, LeaseExtents, ListStores, MapExtents, OpenStore, ReturnExtents,
};
use forebay_proto::replies::{ExtentsGranted, Statistics, capabilities};
use forebay_proto::{Blob, ExtentId, GrantedExtent, MAX_LIST, Purpose, SessionId, ShardKey, StoreId, Text};
use std::sync::Arc;
use std::time::Duration;

/// How long to wait before what the node was not ready for is tried again.
const PAUSE: Duration = Duration::from_millis(1);

/// How a client behaves.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Whose stores and quota.
    pub tenant: String,
    /// How long a call may take, but for jobs.
    pub timeout: Duration,
    /// Longest result of a job, bytes.
    pub job_reply_bytes: usize,
    /// The session reads memory that other sessions may free; see [`MemoryClient::begin_read`].
    pub foreign_reads: bool,
    /// Renew the session on a thread. Without it, whoever uses the client calls
    /// [`MemoryClient::renew`], for simulation.
    pub renew: bool,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            tenant: String::new(),
            timeout: Duration::from_secs(5),
            job_reply_bytes: 16 << 20,
            foreign_reads: false,
            renew: true,
            clock: SystemClock::shared(),
        }
    }
}

/// A session at a memory node. Dropping it closes the session.
#[derive(Debug)]
pub struct MemoryClient {
    session: Arc<Session>,
    renewing: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for MemoryClient {
    fn drop(&mut self) {
        self.session.stop();
        if let Some(thread) = lock(&self.renewing).take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that renews the session ended by a panic");
        }
        self.session.close();
    }
}

impl MemoryClient {
    /// Opens a session on `link`; `name` is for the node's logs. A link has one session at a time.
    ///
    /// # Errors
    /// [`Error`].
    pub fn connect(link: Arc<dyn Link>, name: &str, options: ClientOptions) -> Result<Arc<Self>, Error> {
        let renew = options.renew;
        let session = Arc::new(Session::open(link, name, options)?);
        let client = Self { session: Arc::clone(&session), renewing: Mutex::new(None) };
        if renew {
            let thread = spawn("renew-session", move || session.keep()).map_err(|e| Error::Thread(e.to_string()))?;
            *lock(&client.renewing) = Some(thread);
        }
        Ok(Arc::new(client))
    }

    /// The link, for endpoints.
    #[must_use]
    pub fn link(&self) -> &Arc<dyn Link> {
        self.session.link()
    }

    /// Which node, and which life of it.
    #[must_use]
    pub fn node(&self) -> NodeIdentity {
        self.session.link().node()
    }

    /// The session.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session.id()
    }

    /// Length of an extent and so of the longest allocation, bytes.
    #[must_use]
    pub fn extent_bytes(&self) -> u64 {
        self.session.opened().extent_bytes
    }

    /// Extents of the node.
    #[must_use]
    pub fn extents(&self) -> u32 {
        self.session.opened().extents
    }

    /// Whether the node runs jobs.
    #[must_use]
    pub fn runs_jobs(&self) -> bool {
        self.session.opened().capabilities & capabilities::JOBS != 0
    }

    /// Why the session ended, if it did.
    ///
    /// # Errors
    /// [`Error::Lapsed`], [`Error::Lost`].
    pub fn check(&self) -> Result<(), Error> {
        self.session.check()
    }

    /// Renews the session now.
    ///
    /// # Errors
    /// [`Error::Lapsed`] and [`Error::Lost`] when it has ended; other errors may pass.
    pub fn renew(&self) -> Result<(), Error> {
        self.session.renew()
    }

    /// Makes any call.
    ///
    /// # Errors
    /// [`Error`]; what the node refuses is a [`Remote`](forebay_fabric::Error::Remote) error.
    pub fn call<C: Call>(&self, call: &C) -> Result<C::Reply, Error> {
        self.session.call(call)
    }

    pub(crate) fn call_to_read<C: Call>(&self, call: &C) -> Result<C::Reply, Error> {
        self.session.call_to_read(call)
    }

    pub(crate) fn call_slowly<C: Call>(&self, call: &C, limit: Duration) -> Result<C::Reply, Error> {
        self.session.call_slowly(call, limit)
    }

    /// The remote address of `offset` in an extent. Takes no lock.
    ///
    /// # Errors
    /// [`Error::NotMapped`]; why the session ended, if it did.
    #[inline]
    pub fn resolve(&self, extent: ExtentId, offset: u64) -> Result<RemoteAddress, Error> {
        match self.session.keys.resolve(extent, offset) {
            Some((address, _)) => Ok(address),
            None => Err(self.session.check().err().unwrap_or(Error::NotMapped(extent))),
        }
    }

    /// What the session's key to an extent allows; `None` without one.
    #[must_use]
    pub fn rights(&self, extent: ExtentId) -> Option<Rights> {
        self.session.keys.resolve(extent, 0).map(|(_, rights)| rights)
    }

    /// Begins a read of memory that other sessions may free (with
    /// [`ClientOptions::foreign_reads`]): what is not freed yet is not used again while the guard
    /// lives.
    #[must_use]
    pub fn begin_read(&self) -> ReadGuard {
        self.session.begin_read()
    }

    /// Whether the session announces its reads ([`ClientOptions::foreign_reads`]).
    #[must_use]
    pub fn reads_foreign(&self) -> bool {
        self.session.options().foreign_reads
    }

    /// A reader that begins and ends reads without a lock, as [`MemoryClient::begin_read`] does.
    #[must_use]
    pub fn reader(&self) -> Reader {
        self.session.reader()
    }

    /// Begins a new reading epoch. Returns the one that this ended and the oldest in which any session
    /// of the node may still read: what nobody could reach when the first ended may be used again when
    /// the second, of a later call, is behind it.
    ///
    /// # Errors
    /// [`Error`].
    pub fn pass_readers(&self) -> Result<(u64, u64), Error> {
        self.session.pass_readers()
    }

    /// Leases up to `count` extents and remembers their keys. They belong to the session until they
    /// are returned or adopted. If the call times out, what was leased comes back with the session's
    /// end.
    ///
    /// # Errors
    /// Of kind [`Full`](forebay_base::ErrorKind::Full) when there is none,
    /// [`Busy`](forebay_base::ErrorKind::Busy) when some will be free soon.
    pub fn lease(&self, count: u32, purpose: Purpose) -> Result<Vec<ExtentId>, Error> {
        let call = LeaseExtents { session: self.session(), count, purpose };
        Ok(self.remember(&self.call(&call)?))
    }

    /// Returns leased extents.
    ///
    /// # Errors
    /// [`Error`].
    pub fn return_extents(&self, extents: &[ExtentId]) -> Result<(), Error> {
        for page in extents.chunks(MAX_LIST) {
            let call = ReturnExtents { session: self.session(), extents: page.to_vec() };
            self.giving_up(page, || self.call(&call).map(drop))?;
        }
        Ok(())
    }

    /// Gets and remembers keys to a shard's extents, to write if this session owns the shard, else
    /// to read. Waits for an earlier owner to let go, at most [`ClientOptions::timeout`].
    ///
    /// # Errors
    /// Of kind [`Busy`](forebay_base::ErrorKind::Busy) when an earlier owner does not let go.
    pub fn map(&self, shard: ShardKey, extents: &[ExtentId]) -> Result<(), Error> {
        self.map_for(shard, extents, true, self.session.options().timeout)
    }

    /// As [`MemoryClient::map`], but to read only, which no earlier owner stands in the way of.
    ///
    /// # Errors
    /// [`Error`].
    pub fn map_to_read(&self, shard: ShardKey, extents: &[ExtentId]) -> Result<(), Error> {
        self.map_for(shard, extents, false, self.session.options().timeout)
    }

    pub(crate) fn map_for(
        &self,
        shard: ShardKey,
        extents: &[ExtentId],
        write: bool,
        patience: Duration,
    ) -> Result<(), Error> {
        for page in extents.chunks(MAX_LIST) {
            let call = MapExtents { session: self.session(), shard, write, extents: page.to_vec() };
            let granted = self.patiently(patience, || self.call(&call))?;
            self.remember(&granted);
        }
        Ok(())
    }

    /// Repeats what the node is not ready for, at most for `patience`.
    pub(crate) fn patiently<T>(
        &self,
        patience: Duration,
        mut attempt: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let clock = &self.session.options().clock;
        let start = clock.now();
        loop {
            match attempt() {
                Err(error)
                    if error.kind() == ErrorKind::Busy
                        && u128::from(clock.now().saturating_sub(start)) < patience.as_nanos() =>
                {
                    clock.sleep(PAUSE);
                }
                result => return result,
            }
        }
    }

    fn remember(&self, granted: &ExtentsGranted) -> Vec<ExtentId> {
        let known = |granted: &&GrantedExtent| self.session.keys.set(granted);
        granted.extents.iter().filter(known).map(|granted| granted.extent).collect()
    }

    /// Forgets the keys to extents that `call` gives up; if it fails, they are remembered again.
    /// They are forgotten before, because the same extents may be leased again at once.
    pub(crate) fn giving_up(
        &self,
        extents: &[ExtentId],
        call: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let keys: Vec<_> = extents.iter().filter_map(|&extent| self.session.keys.take(extent)).collect();
        let result = call();
        if result.is_err() && self.check().is_ok() {
            for granted in &keys {
                self.session.keys.set(granted);
            }
        }
        result
    }

    /// Creates a store of this name and opens it. `config` is what its users must agree on, at most
    /// 4 KiB.
    ///
    /// # Errors
    /// Of kind [`AlreadyExists`](forebay_base::ErrorKind::AlreadyExists) when there is one.
    pub fn create_store(self: &Arc<Self>, name: &str, config: &[u8]) -> Result<StoreHandle, Error> {
        let too_long = || Error::Invalid(format!("a configuration of {} bytes: use 4096 at most", config.len()));
        let config = Blob::new(config).ok_or_else(too_long)?;
        if name.is_empty() {
            return Err(Error::Invalid("a store's name has at least one byte".into()));
        }
        let opened = self.call(&CreateStore { session: self.session(), name: store_name(name)?, config })?;
        Ok(StoreHandle::new(Arc::clone(self), name, &opened))
    }

    /// Creates a store that nobody else can open and that is dropped with the session.
    ///
    /// # Errors
    /// [`Error`].
    pub fn create_private_store(self: &Arc<Self>) -> Result<StoreHandle, Error> {
        let call = CreateStore { session: self.session(), name: Text::default(), config: Blob::default() };
        Ok(StoreHandle::new(Arc::clone(self), "", &self.call(&call)?))
    }

    /// Opens the store of this name.
    ///
    /// # Errors
    /// Of kind [`NotFound`](forebay_base::ErrorKind::NotFound) when there is none.
    pub fn open_store(self: &Arc<Self>, name: &str) -> Result<StoreHandle, Error> {
        let opened = self.call(&OpenStore { session: self.session(), name: store_name(name)? })?;
        Ok(StoreHandle::new(Arc::clone(self), name, &opened))
    }

    /// The tenant's stores by name.
    ///
    /// # Errors
    /// [`Error`].
    pub fn list_stores(&self) -> Result<Vec<(String, StoreId)>, Error> {
        let mut stores = Vec::new();
        let mut after = Text::default();
        loop {
            let page = self.call(&ListStores { session: self.session(), after })?;
            let Some(last) = page.stores.last() else { return Ok(stores) };
            after = last.name.clone();
            stores.extend(page.stores.iter().map(|entry| (entry.name.to_string(), entry.store)));
            if !page.more {
                return Ok(stores);
            }
        }
    }

    /// Drops a store that this session opened, and frees its memory.
    ///
    /// # Errors
    /// Of kind [`Busy`](forebay_base::ErrorKind::Busy) while another session or a job uses it.
    pub fn drop_store(&self, store: StoreId) -> Result<(), Error> {
        self.call(&DropStore { session: self.session(), store }).map(drop)
    }

    /// The node's figures.
    ///
    /// # Errors
    /// [`Error`].
    pub fn node_statistics(&self) -> Result<Statistics, Error> {
        self.call(&GetStatistics { session: self.session() })
    }
}

fn store_name(name: &str) -> Result<Text, Error> {
    Text::new(name).ok_or_else(|| Error::Invalid("a store's name has 128 bytes at most".into()))
}
