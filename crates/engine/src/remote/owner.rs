//! Ownership of a shard: the epoch in which this process acts, and whether it still may.
//!
//! The node refuses a call that carries a past epoch. A refusal need not mean that another process took over: the reply
//! to a call that ended the epoch may have been lost, or a thread of this process ended it on purpose
//! ([`Owner::advance`]). So a refusal is checked. The shard is fenced when another session owns it, or when somebody
//! else has set its root since this owner did. Nobody sets a root without having read the previous one, and no owner
//! changes anything before its first root.
//!
//! Once fenced, a shard stays fenced in this process.

use crate::remote::private_store::PrivateStore;
use crate::terms::{Error, Result};
use forebay_base::ErrorKind;
use forebay_env::sync::atomic::{AtomicU64, Ordering};
use forebay_env::sync::{Mutex, lock};
use forebay_memory_client::{Epoch, ShardHandle, ShardId, StoreHandle};
use std::sync::{Arc, OnceLock};

/// See the module.
#[derive(Debug)]
pub(crate) struct Owner {
    store: StoreHandle,
    /// Keeps a private store alive.
    _private: Option<Arc<PrivateStore>>,
    shard: Mutex<ShardHandle>,
    /// If a root has a later epoch than this, somebody else set it.
    root_epoch: AtomicU64,
    fenced: OnceLock<Error>,
}

impl Owner {
    /// The owner of a shard that was just acquired.
    pub(crate) fn new(store: StoreHandle, shard: ShardHandle) -> Self {
        // This owner begins from the roots of earlier epochs.
        let root_epoch = AtomicU64::new(shard.epoch().0);
        Self { store, _private: None, shard: Mutex::new(shard), root_epoch, fenced: OnceLock::new() }
    }

    /// Becomes the owner of a shard of a private store.
    ///
    /// # Errors
    /// `Unavailable` when the node is gone.
    pub(crate) fn of_private(store: &Arc<PrivateStore>, id: ShardId) -> Result<Self> {
        let shard = store.handle().acquire_shard(id, false)?;
        Ok(Self { _private: Some(Arc::clone(store)), ..Self::new(store.handle().clone(), shard) })
    }

    pub(crate) fn store(&self) -> &StoreHandle {
        &self.store
    }

    /// The shard at its current epoch.
    pub(crate) fn shard(&self) -> ShardHandle {
        lock(&self.shard).clone()
    }

    /// Ends the epoch and continues in the next one. Calls of the old epoch that have not arrived will be refused,
    /// running jobs are told to stop, and outputs that nobody adopted are freed.
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
            // The shard has no owner again.
            if let Err(error) = next.release() {
                tracing::debug!(%error, "releasing a shard");
            }
            return Err(self.fenced.get_or_init(|| error).clone());
        }
        // A root that this owner sets from now on carries the new epoch.
        self.root_epoch.fetch_max(next.epoch().0, Ordering::AcqRel);
        // No call is awaited under the lock, so another thread may have advanced further meanwhile.
        let mut shard = lock(&self.shard);
        if next.epoch() > shard.epoch() {
            *shard = next;
        }
        Ok(shard.clone())
    }

    /// Sets the root, from which recovery starts.
    ///
    /// # Errors
    /// `Fenced`; after other errors it is unknown whether the root was set.
    pub(crate) fn set_root(&self, root: &[u8]) -> Result<()> {
        self.check_fenced()?;
        Ok(self.shard().set_root(root)?)
    }

    /// Asks the node whether this process still owns the shard.
    ///
    /// # Errors
    /// `Fenced` when it does not; after other errors it is unknown.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_fenced()?;
        Ok(self.shard().check()?)
    }

    /// Releases the shard.
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
