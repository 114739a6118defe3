//! Stores and shards of a node's directory.

use crate::client::Kept;
use crate::{Error, MemoryClient};
use forebay_base::Reader;
use forebay_fabric::rpc::MAX_ARGUMENT_BYTES;
use forebay_proto::calls::{
    AcquireSeen, AcquireShard, AdoptExtents, AdoptRanges, CreateStore, FreeBatch, GetRoot, ListExtents, ListRanges,
    MAX_RANGES, MAX_ZEROED_BYTES, OpenStore, ReleaseExtents, ReleaseShard, SetRoot, ShareExtents, SubmitJob,
    WriteRange, ZeroRange,
};
use forebay_proto::field::Field;
use forebay_proto::replies::StoreOpened;
use forebay_proto::{
    Blob, Epoch, ExtentId, ExtentRange, MAX_BLOB_BYTES, MAX_LIST, Rest, ShardId, ShardKey, StoreId, Text, gather,
    job_kind,
};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of bytes that a [store](ShardHandle::store) takes: the room in a request after its other fields.
pub const MAX_STORED_BYTES: usize = MAX_ARGUMENT_BYTES - 256;

impl MemoryClient {
    /// Creates a store of this name and opens it. `config` is the configuration that its users must agree on, at most 4
    /// KiB.
    ///
    /// # Errors
    /// Of kind [`AlreadyExists`](forebay_base::ErrorKind::AlreadyExists) when the store exists.
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
    /// Of kind [`NotFound`](forebay_base::ErrorKind::NotFound) when it does not exist.
    pub fn open_store(self: &Arc<Self>, name: &str) -> Result<StoreHandle, Error> {
        let opened = self.call(&OpenStore { session: self.session(), name: store_name(name)? })?;
        Ok(StoreHandle::new(Arc::clone(self), name, &opened))
    }
}

fn store_name(name: &str) -> Result<Text, Error> {
    Text::new(name).ok_or_else(|| Error::Invalid("a store's name has 128 bytes at most".into()))
}

fn root_blob(root: &[u8]) -> Result<Blob, Error> {
    Blob::new(root).ok_or_else(|| Error::Invalid(format!("a root of {} bytes: use 4096 at most", root.len())))
}

/// An open store.
#[derive(Debug, Clone)]
pub struct StoreHandle {
    client: Arc<MemoryClient>,
    name: String,
    id: StoreId,
    config: Vec<u8>,
}

impl StoreHandle {
    pub(crate) fn new(client: Arc<MemoryClient>, name: &str, opened: &StoreOpened) -> Self {
        Self { client, name: name.into(), id: opened.store, config: opened.config.bytes().to_vec() }
    }

    /// The session.
    #[must_use]
    pub fn client(&self) -> &Arc<MemoryClient> {
        &self.client
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number at the node.
    #[must_use]
    pub fn id(&self) -> StoreId {
        self.id
    }

    /// The configuration that it was created with.
    #[must_use]
    pub fn config(&self) -> &[u8] {
        &self.config
    }

    /// Becomes the owner of a shard, with the next epoch. With `takeover`, fences another session that owns it.
    ///
    /// # Errors
    /// Of kind [`Busy`](forebay_base::ErrorKind::Busy) when another session owns it and `takeover` is not set.
    pub fn acquire_shard(&self, shard: ShardId, takeover: bool) -> Result<ShardHandle, Error> {
        let key = ShardKey { store: self.id, shard };
        let acquired = self.client.call(&AcquireShard { session: self.client.session(), shard: key, takeover })?;
        Ok(ShardHandle { client: Arc::clone(&self.client), key, epoch: acquired.epoch })
    }

    /// Becomes the owner of a shard, as [`acquire_shard`](Self::acquire_shard) does, if its root is still what
    /// [`root`](Self::root) has returned.
    ///
    /// # Errors
    /// As for `acquire_shard`; of kind [`Conflict`](forebay_base::ErrorKind::Conflict) when the root was replaced (then
    /// nothing was done); [`Unsupported`](forebay_base::ErrorKind::Unsupported) when the node does not know conditions.
    pub fn acquire_seen(
        &self,
        shard: ShardId,
        seen: Option<&(Epoch, Vec<u8>)>,
        takeover: bool,
    ) -> Result<ShardHandle, Error> {
        let key = ShardKey { store: self.id, shard };
        let (epoch, root) = seen.map_or((Epoch(0), &[][..]), |(epoch, root)| (*epoch, root));
        let root = root_blob(root)?;
        let call = AcquireSeen { session: self.client.session(), shard: key, takeover, epoch, root };
        let acquired = self.client.call(&call)?;
        Ok(ShardHandle { client: Arc::clone(&self.client), key, epoch: acquired.epoch })
    }

    /// Passes leased extents to a shard that nobody owns. Every session that opened the store may map and write them,
    /// and they live as long as the store.
    ///
    /// # Errors
    /// Of kind [`Busy`](forebay_base::ErrorKind::Busy) when the shard has, or had, an owner.
    pub fn share(&self, shard: ShardId, extents: &[ExtentId]) -> Result<(), Error> {
        let shard = ShardKey { store: self.id, shard };
        for page in extents.chunks(MAX_LIST) {
            self.client.call(&ShareExtents { session: self.client.session(), shard, extents: page.to_vec() })?;
        }
        Ok(())
    }

    /// The root of a shard, from which recovery starts, and the epoch that set it; `None` if none was set.
    ///
    /// # Errors
    /// Of kind [`NotFound`](forebay_base::ErrorKind::NotFound) when the shard was never acquired.
    pub fn root(&self, shard: ShardId) -> Result<Option<(Epoch, Vec<u8>)>, Error> {
        let shard = ShardKey { store: self.id, shard };
        let root = self.client.call(&GetRoot { session: self.client.session(), shard })?;
        Ok((root.epoch > Epoch(0)).then(|| (root.epoch, root.root.into_bytes())))
    }

    /// The extents of a shard, both adopted ones and those with outputs of jobs, in ascending order.
    ///
    /// # Errors
    /// [`Error`].
    pub fn extents(&self, shard: ShardId) -> Result<Vec<ExtentId>, Error> {
        let shard = ShardKey { store: self.id, shard };
        let mut extents = Vec::new();
        let mut from = ExtentId(0);
        loop {
            let page = self.client.call(&ListExtents { session: self.client.session(), shard, from })?;
            extents.extend_from_slice(&page.extents);
            match page.extents.last().and_then(|last| last.0.checked_add(1)) {
                Some(next) if page.more && next > from.0 => from = ExtentId(next),
                _ => return Ok(extents),
            }
        }
    }

    /// The outputs of a shard's jobs that its owners adopted, in ascending order.
    ///
    /// # Errors
    /// [`Error`].
    pub fn output_ranges(&self, shard: ShardId) -> Result<Vec<ExtentRange>, Error> {
        let shard = ShardKey { store: self.id, shard };
        let mut ranges: Vec<ExtentRange> = Vec::new();
        let (mut from, mut offset) = (ExtentId(0), 0);
        loop {
            let page = self.client.call(&ListRanges { session: self.client.session(), shard, from, offset })?;
            ranges.extend_from_slice(&page.ranges);
            match page.ranges.last().and_then(|last| Some((last.extent, last.offset.checked_add(1)?))) {
                Some(next) if page.more && next > (from, offset) => (from, offset) = next,
                _ => return Ok(ranges),
            }
        }
    }
}

/// A shard that this session owns, at an epoch. Dropping the handle does not release the shard.
///
/// Every call fails with [`Fenced`](forebay_base::ErrorKind::Fenced) once the epoch has passed.
#[derive(Debug, Clone)]
pub struct ShardHandle {
    client: Arc<MemoryClient>,
    key: ShardKey,
    epoch: Epoch,
}

impl ShardHandle {
    /// The session.
    #[must_use]
    pub fn client(&self) -> &Arc<MemoryClient> {
        &self.client
    }

    /// The shard's number.
    #[must_use]
    pub fn key(&self) -> ShardKey {
        self.key
    }

    /// The epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Gets keys to extents of the shard.
    ///
    /// # Errors
    /// As [`MemoryClient::map`].
    pub fn map(&self, extents: &[ExtentId]) -> Result<(), Error> {
        self.client.map(self.key, extents)
    }

    /// Checks that this session still owns the shard at this epoch.
    ///
    /// # Errors
    /// Of kind [`Fenced`](forebay_base::ErrorKind::Fenced) when it does not.
    pub fn check(&self) -> Result<(), Error> {
        let (session, shard, epoch) = self.names();
        self.client.call(&AdoptExtents { session, shard, epoch, extents: Vec::new() }).map(drop)
    }

    /// Passes leased extents to the shard, so that they outlive the session. Repeating the call does no harm.
    ///
    /// # Errors
    /// [`Error`].
    pub fn adopt(&self, extents: &[ExtentId]) -> Result<(), Error> {
        for page in extents.chunks(MAX_LIST) {
            let (session, shard, epoch) = self.names();
            self.client.call(&AdoptExtents { session, shard, epoch, extents: page.to_vec() })?;
        }
        Ok(())
    }

    /// Frees extents that the shard adopted. If the call gets no reply, they may be freed at any time: the next owner of
    /// the shard learns whether they were.
    ///
    /// # Errors
    /// [`Error`].
    pub fn release_extents(&self, extents: &[ExtentId]) -> Result<(), Error> {
        self.release_adopted(extents).map_err(|kept| kept.cause)
    }

    pub(crate) fn release_adopted(&self, extents: &[ExtentId]) -> Result<(), Kept> {
        self.client.give_up(extents, |page| {
            let (session, shard, epoch) = self.names();
            self.client.call(&ReleaseExtents { session, shard, epoch, extents: page.to_vec() }).map(drop)
        })
    }

    /// Passes outputs of jobs to the shard, so that they outlive the session. Waits at most
    /// [`ClientOptions::timeout`](crate::ClientOptions::timeout) until those who wrote them have released them.
    ///
    /// # Errors
    /// [`Error`].
    pub fn adopt_ranges(&self, ranges: &[ExtentRange]) -> Result<(), Error> {
        for page in ranges.chunks(MAX_RANGES) {
            let (session, shard, epoch) = self.names();
            let call = AdoptRanges { session, shard, epoch, ranges: page.to_vec() };
            self.client.patiently(self.client.timeout(), || self.client.call(&call))?;
        }
        Ok(())
    }

    /// Frees outputs of jobs, in batches (dLSM V-B).
    ///
    /// # Errors
    /// [`Error`].
    pub fn free_ranges(&self, ranges: &[ExtentRange]) -> Result<(), Error> {
        for page in ranges.chunks(MAX_RANGES) {
            let (session, shard, epoch) = self.names();
            self.client.call(&FreeBatch { session, shard, epoch, ranges: page.to_vec() })?;
        }
        Ok(())
    }

    /// Fills a range that the shard has adopted, or that this session has leased, with zeros. Nobody may read or write the
    /// range meanwhile. Makes one call for each [`MAX_ZEROED_BYTES`].
    ///
    /// # Errors
    /// [`Error`].
    pub fn zero_range(&self, range: ExtentRange) -> Result<(), Error> {
        let (session, shard, epoch) = self.names();
        let mut done = 0;
        while done < range.length {
            let length = (range.length - done).min(MAX_ZEROED_BYTES);
            let range = ExtentRange { extent: range.extent, offset: range.offset + done, length };
            self.client.call_asleep(&ZeroRange { session, shard, epoch, range })?;
            done += length;
        }
        Ok(())
    }

    /// Writes bytes, `offset` bytes from the start of an extent, to memory that belongs to the shard or that this session
    /// has leased. Outputs of jobs are included.
    ///
    /// # Errors
    /// [`Error`]. Some of the bytes may be written then.
    pub fn write_range(&self, extent: ExtentId, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let (session, shard, epoch) = self.names();
        let mut offset = offset;
        for piece in bytes.chunks(MAX_BLOB_BYTES) {
            let bytes = Blob::new(piece).unwrap_or_default();
            self.client.call(&WriteRange { session, shard, epoch, extent, offset, bytes })?;
            offset = offset.saturating_add(piece.len() as u64);
        }
        Ok(())
    }

    /// Sets the root of the shard, from which recovery starts, at most 4 KiB.
    ///
    /// # Errors
    /// [`Error`].
    pub fn set_root(&self, root: &[u8]) -> Result<(), Error> {
        let root = root_blob(root)?;
        let (session, shard, epoch) = self.names();
        self.client.call(&SetRoot { session, shard, epoch, root }).map(drop)
    }

    /// Runs a job at the node, and sleeps until it has ended (dLSM X-D2), for at most `limit`.
    ///
    /// # Errors
    /// The job's own errors; of kind [`Busy`](forebay_base::ErrorKind::Busy) when the node's queue is full,
    /// [`Fenced`](forebay_base::ErrorKind::Fenced) when the shard was taken over meanwhile.
    pub fn submit_job(&self, attempt: u64, kind: u16, arguments: &[u8], limit: Duration) -> Result<Vec<u8>, Error> {
        let (session, shard, epoch) = self.names();
        let arguments = Rest(arguments.to_vec());
        let call = SubmitJob { session, shard, epoch, attempt, kind, arguments };
        Ok(self.client.call_slowly(&call, limit)?.result.0)
    }

    /// Asks the node to return ranges of the shard's memory in one piece, one after another: at most [`gather::MAX_RANGES`]
    /// of [`gather::MAX_BYTES`] bytes. Concurrent attempts of one epoch must have different numbers.
    ///
    /// # Errors
    /// As [`ShardHandle::submit_job`].
    pub fn gather(&self, attempt: u64, ranges: &[ExtentRange]) -> Result<Vec<u8>, Error> {
        let (session, shard, epoch) = self.names();
        let arguments = Rest(gather::encode(ranges));
        let call = SubmitJob { session, shard, epoch, attempt, kind: job_kind::GATHER, arguments };
        Ok(self.client.call_to_read(&call)?.result.0)
    }

    /// Asks the node to search tables of the shards that this session owns (O3-LSM 4.5). `kind` is [`job_kind::SEARCH`] or
    /// [`job_kind::SHORT_SCAN`], and determines what `arguments` and the result are. `attempt` is as for
    /// [`ShardHandle::gather`].
    ///
    /// # Errors
    /// As [`ShardHandle::submit_job`].
    pub fn search(&self, attempt: u64, kind: u16, arguments: Vec<u8>) -> Result<Vec<u8>, Error> {
        let (session, shard, epoch) = self.names();
        let arguments = Rest(arguments);
        let call = SubmitJob { session, shard, epoch, attempt, kind, arguments };
        Ok(self.client.call_to_read(&call)?.result.0)
    }

    /// Asks the node to store `bytes` among the outputs of jobs, where they are pending until they are
    /// [adopted](ShardHandle::adopt_ranges). `attempt` is as for [`ShardHandle::gather`].
    ///
    /// # Errors
    /// As [`ShardHandle::submit_job`], also for more than [`MAX_STORED_BYTES`]; [`Error::Full`] when no free piece is
    /// long enough.
    pub fn store(&self, attempt: u64, bytes: &[u8], limit: Duration) -> Result<ExtentRange, Error> {
        let result = self.submit_job(attempt, job_kind::STORE, bytes, limit)?;
        Ok(ExtentRange::take(&mut Reader::new(&result))?)
    }

    /// Releases the shard. Its memory can still be mapped for reading.
    ///
    /// # Errors
    /// [`Error`].
    pub fn release(self) -> Result<(), Error> {
        let (session, shard, epoch) = self.names();
        self.client.call(&ReleaseShard { session, shard, epoch }).map(drop)
    }

    pub(crate) fn names(&self) -> (forebay_proto::SessionId, ShardKey, Epoch) {
        (self.client.session(), self.key, self.epoch)
    }
}
