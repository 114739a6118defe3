//! A memory node that is connected to again when a session has ended, or one of several that do the same.

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
    /// A node that `connect` opens a session at.
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
        // Not under the lock: who asks meanwhile connects as well, and one of the sessions is closed again.
        let client = (self.connect)()?;
        *lock(&self.client) = Some(Arc::clone(&client));
        Ok(client)
    }

    /// The session that was opened last, if it is not forgotten. It may have ended.
    pub fn known(&self) -> Option<Arc<MemoryClient>> {
        lock(&self.client).clone()
    }

    /// Connects anew when somebody asks next: this session is of no use.
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
