//! Stores and shards of a node's directory.

use crate::{Error, MemoryClient};
use forebay_base::Reader;
use forebay_fabric::rpc::MAX_ARGUMENT_BYTES;
use forebay_proto::calls::{
    AcquireShard, AdoptExtents, AdoptRanges, FreeBatch, GetRoot, ListExtents, ListRanges, MAX_RANGES, ReleaseExtents,
    ReleaseShard, SetRoot, ShareExtents, SubmitJob,
};
use forebay_proto::field::Field;
use forebay_proto::replies::StoreOpened;
use forebay_proto::{Blob, Epoch, ExtentId, ExtentRange, MAX_LIST, Rest, ShardId, ShardKey, StoreId, gather, job_kind};
use std::sync::Arc;
use std::time::Duration;

/// Most bytes that a [store](ShardHandle::store) takes: what a request has room for, beside its other fields.
pub const MAX_STORED_BYTES: usize = MAX_ARGUMENT_BYTES - 256;

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

    /// What it was created with.
    #[must_use]
    pub fn config(&self) -> &[u8] {
        &self.config
    }

    /// Becomes the owner of a shard, with the next epoch. With `takeover`, also when another
    /// session is: that one is fenced.
    ///
    /// # Errors
    /// Of kind [`Busy`](forebay_base::ErrorKind::Busy) when another session is and is not to be
    /// fenced.
    pub fn acquire_shard(&self, shard: ShardId, takeover: bool) -> Result<ShardHandle, Error> {
        let key = ShardKey { store: self.id, shard };
        let acquired = self.client.call(&AcquireShard { session: self.client.session(), shard: key, takeover })?;
        Ok(ShardHandle { client: Arc::clone(&self.client), key, epoch: acquired.epoch })
    }

    /// Passes leased extents to a shard that nobody owns: every session that opened the store may map
    /// them and write them, and they live as long as the store.
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

    /// What recovery of a shard starts from, and the epoch that set it; `None` if none did.
    ///
    /// # Errors
    /// Of kind [`NotFound`](forebay_base::ErrorKind::NotFound) when nobody ever acquired it.
    pub fn root(&self, shard: ShardId) -> Result<Option<(Epoch, Vec<u8>)>, Error> {
        let shard = ShardKey { store: self.id, shard };
        let root = self.client.call(&GetRoot { session: self.client.session(), shard })?;
        Ok((root.epoch > Epoch(0)).then(|| (root.epoch, root.root.into_bytes())))
    }

    /// The extents of a shard: adopted ones and those with outputs of jobs, in ascending order.
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

/// A shard that this session owns, at an epoch. Dropping it does not give the shard up.
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

    /// Which shard.
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

    /// Passes leased extents to the shard: they outlive the session. Doing it again does no harm.
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

    /// Frees extents that the shard adopted.
    ///
    /// # Errors
    /// [`Error`].
    pub fn release_extents(&self, extents: &[ExtentId]) -> Result<(), Error> {
        for page in extents.chunks(MAX_LIST) {
            let (session, shard, epoch) = self.names();
            let call = ReleaseExtents { session, shard, epoch, extents: page.to_vec() };
            self.client.giving_up(page, || self.client.call(&call).map(drop))?;
        }
        Ok(())
    }

    /// Passes outputs of jobs to the shard: they outlive the session.
    ///
    /// # Errors
    /// [`Error`].
    pub fn adopt_ranges(&self, ranges: &[ExtentRange]) -> Result<(), Error> {
        for page in ranges.chunks(MAX_RANGES) {
            let (session, shard, epoch) = self.names();
            self.client.call(&AdoptRanges { session, shard, epoch, ranges: page.to_vec() })?;
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

    /// Sets what recovery of the shard starts from, at most 4 KiB.
    ///
    /// # Errors
    /// [`Error`].
    pub fn set_root(&self, root: &[u8]) -> Result<(), Error> {
        let too_long = || Error::Invalid(format!("a root of {} bytes: use 4096 at most", root.len()));
        let root = Blob::new(root).ok_or_else(too_long)?;
        let (session, shard, epoch) = self.names();
        self.client.call(&SetRoot { session, shard, epoch, root }).map(drop)
    }

    /// Runs a job at the node and sleeps until it has ended (dLSM X-D2), at most `limit`.
    ///
    /// # Errors
    /// The job's own; of kind [`Busy`](forebay_base::ErrorKind::Busy) when the node's queue is full,
    /// [`Fenced`](forebay_base::ErrorKind::Fenced) when the shard was taken over meanwhile.
    pub fn submit_job(&self, attempt: u64, kind: u16, arguments: &[u8], limit: Duration) -> Result<Vec<u8>, Error> {
        let (session, shard, epoch) = self.names();
        let arguments = Rest(arguments.to_vec());
        let call = SubmitJob { session, shard, epoch, attempt, kind, arguments };
        Ok(self.client.call_slowly(&call, limit)?.result.0)
    }

    /// Has the node bring ranges of the shard's memory in one piece, one behind the other: at most
    /// [`gather::MAX_RANGES`] of [`gather::MAX_BYTES`] bytes. No two attempts of one epoch that run
    /// at the same time may have the same number.
    ///
    /// # Errors
    /// As [`ShardHandle::submit_job`].
    pub fn gather(&self, attempt: u64, ranges: &[ExtentRange]) -> Result<Vec<u8>, Error> {
        let (session, shard, epoch) = self.names();
        let arguments = Rest(gather::encode(ranges));
        let call = SubmitJob { session, shard, epoch, attempt, kind: job_kind::GATHER, arguments };
        Ok(self.client.call_to_read(&call)?.result.0)
    }

    /// Has the node keep `bytes` among the outputs of jobs, where they are pending until they are
    /// [adopted](ShardHandle::adopt_ranges). `attempt` as for [`ShardHandle::gather`].
    ///
    /// # Errors
    /// As [`ShardHandle::submit_job`], for more than [`MAX_STORED_BYTES`] too; [`Error::Full`] when no free piece is
    /// long enough.
    pub fn store(&self, attempt: u64, bytes: &[u8], limit: Duration) -> Result<ExtentRange, Error> {
        let result = self.submit_job(attempt, job_kind::STORE, bytes, limit)?;
        Ok(ExtentRange::take(&mut Reader::new(&result))?)
    }

    /// Gives the shard up. Its memory can be mapped again, to read.
    ///
    /// # Errors
    /// [`Error`].
    pub fn release(self) -> Result<(), Error> {
        let (session, shard, epoch) = self.names();
        self.client.call(&ReleaseShard { session, shard, epoch }).map(drop)
    }

    fn names(&self) -> (forebay_proto::SessionId, ShardKey, Epoch) {
        (self.client.session(), self.key, self.epoch)
    }
}
