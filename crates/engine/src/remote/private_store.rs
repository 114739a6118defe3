//! A store without a name at a memory node. Nobody else can open it, and the node drops it with the session, so nothing
//! is left behind however this process ends.

use crate::terms::Result;
use forebay_base::ErrorKind;
use forebay_memory_client::{MemoryClient, StoreHandle};
use std::sync::Arc;

/// See the module. Dropped when no shard uses it any more.
#[derive(Debug)]
pub(crate) struct PrivateStore(StoreHandle);

impl PrivateStore {
    /// A store without shards.
    ///
    /// # Errors
    /// `Full` when the node has no room in its directory; `Unavailable` when the node is gone.
    pub(crate) fn create(client: &Arc<MemoryClient>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self(client.create_private_store()?)))
    }

    /// A store for jobs, without shards; `None` when the node has no room in its directory.
    ///
    /// # Errors
    /// `Unavailable` when the node is gone.
    pub(crate) fn for_jobs(client: &Arc<MemoryClient>) -> Result<Option<Arc<Self>>> {
        match Self::create(client) {
            Err(error) if matches!(error.kind(), ErrorKind::Full | ErrorKind::Busy | ErrorKind::Unsupported) => {
                tracing::warn!(%error, "compactions run at the compute node");
                Ok(None)
            }
            created => created.map(Some),
        }
    }

    pub(crate) fn handle(&self) -> &StoreHandle {
        &self.0
    }
}

impl Drop for PrivateStore {
    fn drop(&mut self) {
        if let Err(error) = self.0.client().drop_store(self.0.id()) {
            tracing::debug!(%error, "the node drops the store with the session");
        }
    }
}
