//! Ownership of a shard: the epoch that this process acts in, and whether it still may.
//!
//! A call that carries an epoch which has passed is refused. Not each refusal means that somebody
//! took over: the reply to a call that ended the epoch may have been lost, or a thread of this process
//! ended it on purpose ([`Owner::advance`]). So a refusal is looked into: the shard is fenced when
//! another session owns it, or when somebody else has set its root since this owner did. Nobody sets
//! a root without having read the one before, and no owner changes anything before its first root.
//!
//! Once fenced, a shard is fenced for good in this process.

use crate::{Error, Result};
use forebay_base::ErrorKind;
use forebay_env::sync::atomic::{AtomicU64, Ordering};
use forebay_env::sync::{Mutex, lock};
use forebay_memory_client::{Epoch, ShardHandle, StoreHandle};
use std::sync::OnceLock;

/// See the module.
#[derive(Debug)]
pub(crate) struct Owner {
    store: StoreHandle,
    shard: Mutex<ShardHandle>,
    /// The latest epoch in which this owner knows the root to be its own, or one before it.
    root_epoch: AtomicU64,
    fenced: OnceLock<Error>,
}

impl Owner {
    /// The owner of a shard that was just acquired.
    pub(crate) fn new(store: StoreHandle, shard: ShardHandle) -> Self {
        // Roots of earlier epochs are what this owner begins from.
        let root_epoch = AtomicU64::new(shard.epoch().0);
        Self { store, shard: Mutex::new(shard), root_epoch, fenced: OnceLock::new() }
    }

    pub(crate) fn store(&self) -> &StoreHandle {
        &self.store
    }

    /// The shard at its present epoch.
    pub(crate) fn shard(&self) -> ShardHandle {
        lock(&self.shard).clone()
    }

    /// Ends the epoch and goes on in the next one: what was sent in this one and has not arrived will
    /// be refused, jobs that run are told to stop, and outputs that nobody adopted are freed.
    ///
    /// # Errors
    /// `Fenced` when somebody took over; `Unavailable`.
    pub(crate) fn advance(&self) -> Result<ShardHandle> {
        self.check_fenced()?;
        let id = lock(&self.shard).key().shard;
        let next = match self.store.acquire_shard(id, false) {
            Ok(next) => next,
            Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::Invalid | ErrorKind::NotFound) => {
                return Err(self.fence(&error));
            }
            Err(error) if error.kind() == ErrorKind::Fenced => return Err(self.fence(&error)),
            Err(error) => return Err(error.into()),
        };
        let root = self.store.root(id)?;
        if root.is_some_and(|(epoch, _)| epoch > Epoch(self.root_epoch.load(Ordering::Acquire))) {
            let error = Error::new(ErrorKind::Fenced, "another process opened the database and has ended since");
            // It is nobody's again.
            if let Err(error) = next.release() {
                tracing::debug!(%error, "releasing a shard");
            }
            return Err(self.fenced.get_or_init(|| error).clone());
        }
        // A root that this owner sets from now on carries the new epoch.
        self.root_epoch.fetch_max(next.epoch().0, Ordering::AcqRel);
        // Nothing is awaited under the lock: meanwhile another thread may have come further.
        let mut shard = lock(&self.shard);
        if next.epoch() > shard.epoch() {
            *shard = next;
        }
        Ok(shard.clone())
    }

    /// Sets what recovery starts from.
    ///
    /// # Errors
    /// `Fenced`; others leave unknown whether it was set.
    pub(crate) fn set_root(&self, root: &[u8]) -> Result<()> {
        self.check_fenced()?;
        Ok(self.shard().set_root(root)?)
    }

    /// Whether this process still owns the shard, as the node says.
    ///
    /// # Errors
    /// `Fenced` when it does not; others leave it unknown.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_fenced()?;
        Ok(self.shard().check()?)
    }

    /// Gives the shard up.
    pub(crate) fn release(&self) {
        if self.check_fenced().is_ok()
            && let Err(error) = self.shard().release()
        {
            tracing::debug!(%error, "releasing a shard: it ends with the session");
        }
    }

    fn check_fenced(&self) -> Result<()> {
        self.fenced.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn fence(&self, cause: &dyn std::fmt::Display) -> Error {
        let message = format!("another process took the database over: {cause}");
        self.fenced.get_or_init(|| Error::new(ErrorKind::Fenced, message)).clone()
    }
}
