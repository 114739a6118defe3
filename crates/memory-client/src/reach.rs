//! Connects to a memory node again when a session has ended; or to one of several nodes that serve the same
//! purpose.

use crate::{Error, MemoryClient};
use forebay_env::sync::{Mutex, lock};
use std::fmt;
use std::sync::Arc;

type Connect = dyn Fn() -> Result<Arc<MemoryClient>, Error> + Send + Sync;

/// See the module.
pub struct Reach {
    connect: Box<Connect>,
    client: Mutex<Option<Arc<MemoryClient>>>,
}

impl Reach {
    /// A node at which `connect` opens a session.
    pub fn new(connect: impl Fn() -> Result<Arc<MemoryClient>, Error> + Send + Sync + 'static) -> Self {
        Self { connect: Box::new(connect), client: Mutex::new(None) }
    }

    /// The session, or a new one if it has ended.
    ///
    /// # Errors
    /// When the node cannot be reached.
    pub fn client(&self) -> Result<Arc<MemoryClient>, Error> {
        if let Some(client) = self.known().filter(|client| client.is_there()) {
            return Ok(client);
        }
        // Not under the lock: a caller that asks meanwhile also connects, and one of the sessions is closed
        // again.
        let client = (self.connect)()?;
        *lock(&self.client) = Some(Arc::clone(&client));
        Ok(client)
    }

    /// The session that was opened last, unless it was forgotten. It may have ended.
    pub fn known(&self) -> Option<Arc<MemoryClient>> {
        lock(&self.client).clone()
    }

    /// Forgets a session that is no longer usable: the next caller connects anew.
    pub fn forget(&self, client: &Arc<MemoryClient>) {
        let mut known = lock(&self.client);
        if known.as_ref().is_some_and(|known| Arc::ptr_eq(known, client)) {
            *known = None;
        }
    }
}

impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reach").field("client", &*lock(&self.client)).finish_non_exhaustive()
    }
}
