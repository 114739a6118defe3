//! A compute node's connection to a memory node.

use crate::session::{ReadGuard, Reader, Session};
use crate::{ClientOptions, Error};
use forebay_base::ErrorKind;
use forebay_env::sync::{Mutex, lock};
use forebay_env::thread::{JoinHandle, spawn};
use forebay_fabric::{Link, NodeIdentity, RemoteAddress, Rights};
use forebay_proto::calls::{
    Call, DropStore, GetCredit, GetLoad, GetStatistics, LeaseExtents, ListPool, ListStores, ListTenants, MapExtents,
    ReturnExtents,
};
use forebay_proto::replies::{
    Credit, ExtentsGranted, NodeLoad, PoolEntry, PoolPage, Statistics, TenantFigures, TenantPage, capabilities,
};
use forebay_proto::{ExtentId, GrantedExtent, MAX_LIST, Purpose, SessionId, ShardKey, StoreId, Text};
use std::sync::Arc;
use std::time::Duration;

/// Pause before retrying a call that the node was not ready for.
const PAUSE: Duration = Duration::from_millis(1);

/// A session at a memory node. Dropping it closes the session.
#[derive(Debug)]
pub struct MemoryClient {
    session: Arc<Session>,
    renewing: Mutex<Option<JoinHandle<()>>>,
}

/// Extents that were to be given up but that the session keeps, because the node refused to take them or was not asked to.
/// The node may still take others whose call got no reply.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) extents: Vec<ExtentId>,
    pub(crate) cause: Error,
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

    /// The node's identity and incarnation.
    #[must_use]
    pub fn node(&self) -> NodeIdentity {
        self.session.link().node()
    }

    /// The node's description for people: its identity, and its address where that is known
    /// ([`ClientOptions::address`]).
    #[must_use]
    pub fn described(&self) -> String {
        let (node, address) = (self.node(), &self.session.options().address);
        if address.is_empty() { node.to_string() } else { format!("{node} at {address}") }
    }

    /// The session.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session.id()
    }

    /// Length of an extent in bytes, and so of the longest allocation.
    #[must_use]
    pub fn extent_bytes(&self) -> u64 {
        self.session.opened().extent_bytes
    }

    /// Number of extents of the node.
    #[must_use]
    pub fn extents(&self) -> u32 {
        self.session.opened().extents
    }

    /// Free extents of the node that only garbage collection gets.
    #[must_use]
    pub fn headroom_extents(&self) -> u32 {
        self.session.opened().headroom_extents
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

    /// Whether the session and its link exist, as far as is known without a call.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.check().is_ok() && self.link().is_alive()
    }

    /// Ends the session before this is dropped: its leased extents go back to the node, and its keys open nothing any more.
    pub fn end(&self) {
        self.session.stop();
        self.session.close();
    }

    /// How many calls of this session the node has answered so far, refusals included. While a node hangs, this number does
    /// not change.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.session.answers()
    }

    /// Whether the last call of this session that has ended got no answer from the node.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.session.is_silent()
    }

    /// Whether the node answers a call made now within a quarter of a call's time ([`ClientOptions::timeout`]): for callers
    /// that have waited for the node already.
    #[must_use]
    pub fn answers_soon(&self) -> bool {
        self.session.renew_soon(self.timeout() / 4).is_ok()
    }

    /// Renews the session now.
    ///
    /// # Errors
    /// [`Error::Lapsed`] and [`Error::Lost`] when the session has ended; other errors may be temporary.
    pub fn renew(&self) -> Result<(), Error> {
        self.session.renew()
    }

    /// Makes any call.
    ///
    /// # Errors
    /// [`Error`]; a refusal by the node is a [`Remote`](forebay_fabric::Error::Remote) error.
    pub fn call<C: Call>(&self, call: &C) -> Result<C::Reply, Error> {
        self.session.call(call)
    }

    pub(crate) fn call_asleep<C: Call>(&self, call: &C) -> Result<C::Reply, Error> {
        self.session.call_asleep(call)
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
    /// [`Error::NotMapped`]; the reason why the session ended, if it did.
    #[inline]
    pub fn resolve(&self, extent: ExtentId, offset: u64) -> Result<RemoteAddress, Error> {
        match self.session.keys.resolve(extent, offset) {
            Some((address, _)) => Ok(address),
            None => Err(self.session.check().err().unwrap_or(Error::NotMapped(extent))),
        }
    }

    /// The rights of the session's key to an extent; `None` without one.
    #[must_use]
    pub fn rights(&self, extent: ExtentId) -> Option<Rights> {
        self.session.keys.resolve(extent, 0).map(|(_, rights)| rights)
    }

    /// Begins a read of memory that other sessions may free (with [`ClientOptions::foreign_reads`]). Memory that is not
    /// freed yet is not reused while the guard lives.
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

    /// Begins a new reading epoch. Returns the epoch that this ended and the oldest epoch in which any session of the
    /// node may still read. Memory that nobody could reach any more when the first epoch ended may be reused once the
    /// oldest epoch of a later call is past it.
    ///
    /// # Errors
    /// [`Error`].
    pub fn pass_readers(&self) -> Result<(u64, u64), Error> {
        self.session.pass_readers()
    }

    /// Leases up to `count` extents and remembers their keys. They belong to the session until they are returned or
    /// adopted. If the call times out, the leased extents come back when the session ends.
    ///
    /// # Errors
    /// Of kind [`Full`](forebay_base::ErrorKind::Full) when there are none, [`Busy`](forebay_base::ErrorKind::Busy)
    /// when some will be free soon.
    pub fn lease(&self, count: u32, purpose: Purpose) -> Result<Vec<ExtentId>, Error> {
        let call = LeaseExtents { session: self.session(), count, purpose };
        Ok(self.remember(&self.call(&call)?))
    }

    /// Returns leased extents. If the call gets no reply, the session cannot use them any more: they come back when it
    /// ends.
    ///
    /// # Errors
    /// [`Error`].
    pub fn return_extents(&self, extents: &[ExtentId]) -> Result<(), Error> {
        self.return_leased(extents).map_err(|kept| kept.cause)
    }

    pub(crate) fn return_leased(&self, extents: &[ExtentId]) -> Result<(), Kept> {
        self.give_up(extents, |page| {
            self.call(&ReturnExtents { session: self.session(), extents: page.to_vec() }).map(drop)
        })
    }

    /// Gets and remembers keys to a shard's extents: to write if this session owns the shard, otherwise to read. Waits
    /// at most [`ClientOptions::timeout`] for an earlier owner to release them.
    ///
    /// # Errors
    /// Of kind [`Busy`](forebay_base::ErrorKind::Busy) when an earlier owner does not release them.
    pub fn map(&self, shard: ShardKey, extents: &[ExtentId]) -> Result<(), Error> {
        self.map_for(shard, extents, true, self.session.options().timeout)
    }

    /// As [`MemoryClient::map`], but only to read, which no earlier owner can prevent.
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

    /// How long a call may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.session.options().timeout
    }

    /// Retries calls that the node is not ready for, for at most `patience`.
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

    /// Gives extents up with one call per page of them. Forgets their keys first, because the same extents may be leased
    /// again at once.
    pub(crate) fn give_up(
        &self,
        extents: &[ExtentId],
        call: impl Fn(&[ExtentId]) -> Result<(), Error>,
    ) -> Result<(), Kept> {
        let mut pages = extents.chunks(MAX_LIST);
        while let Some(page) = pages.next() {
            let keys: Vec<_> = page.iter().filter_map(|&extent| self.session.keys.take(extent)).collect();
            let Err(cause) = call(page) else { continue };
            let mut kept: Vec<_> = pages.flatten().copied().collect();
            if cause.is_refusal() && self.check().is_ok() {
                kept.extend(page);
                for granted in &keys {
                    self.session.keys.set(granted);
                }
            }
            return Err(Kept { extents: kept, cause });
        }
        Ok(())
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

    /// The node's statistics.
    ///
    /// # Errors
    /// [`Error`].
    pub fn node_statistics(&self) -> Result<Statistics, Error> {
        self.call(&GetStatistics { session: self.session() })
    }

    /// How busy the node's own threads are, for a scheduler elsewhere.
    ///
    /// # Errors
    /// [`Error`]; of kind [`Unsupported`](forebay_base::ErrorKind::Unsupported) at a node of an older build.
    pub fn node_load(&self) -> Result<NodeLoad, Error> {
        self.call(&GetLoad { session: self.session() })
    }

    /// Declares this session's database, and the weight of its share of the tenant's memory relative to the tenant's
    /// other databases. Returns what the database may take. A database without a name belongs to this session alone.
    ///
    /// # Errors
    /// Of kind [`Invalid`](forebay_base::ErrorKind::Invalid) when the name is not allowed for a store.
    pub fn credit(&self, database: &str, share: u32) -> Result<Credit, Error> {
        let too_long = || Error::Invalid("a database's name has 128 bytes at most".into());
        let database = Text::new(database).ok_or_else(too_long)?;
        self.call(&GetCredit { session: self.session(), database, share })
    }

    /// The databases that have declared a share of the node's memory: those of the session's tenant, or of all tenants
    /// if it administers the node.
    ///
    /// # Errors
    /// [`Error`].
    pub fn list_pool(&self) -> Result<PoolPage, Error> {
        let mut databases: Vec<PoolEntry> = Vec::new();
        loop {
            let skip = u32::try_from(databases.len()).unwrap_or(u32::MAX);
            let page = self.call(&ListPool { session: self.session(), skip })?;
            let more = page.more && !page.databases.is_empty();
            databases.extend(page.databases);
            if !more {
                return Ok(PoolPage { databases, more, ..page });
            }
        }
    }

    /// The figures of all the node's tenants, in the order of their names, and the counts of connections to the node.
    ///
    /// # Errors
    /// Of kind [`AccessDenied`](forebay_base::ErrorKind::AccessDenied) when the session's tenant does not administer
    /// the node.
    pub fn list_tenants(&self) -> Result<TenantPage, Error> {
        let mut tenants: Vec<TenantFigures> = Vec::new();
        loop {
            let after = tenants.last().map(|tenant| tenant.name.clone()).unwrap_or_default();
            let page = self.call(&ListTenants { session: self.session(), after })?;
            let more = page.more && !page.tenants.is_empty();
            tenants.extend(page.tenants);
            if !more {
                return Ok(TenantPage { tenants, more, door: page.door });
            }
        }
    }
}
