//! Who schedules, as the directory of a memory node knows it.
//!
//! The register is a store with one shard. The owner of the shard schedules, and the shard's epoch is the term. The
//! node gives the shard to nobody else before the owner's session has ended, and refuses calls at earlier epochs. The
//! root says where the scheduler is.

use crate::Error;
use forebay_base::ErrorKind;
use forebay_memory_client::{MemoryClient, Reach, ShardHandle, ShardId, StoreHandle};
use forebay_offload::{Register, Term};
use std::sync::Arc;

/// The store's name.
const NAME: &str = "forebay.scheduler";
const SHARD: ShardId = ShardId(0);

/// See the module.
#[derive(Debug)]
pub struct NodeRegister {
    node: Reach,
    address: String,
    held: Option<ShardHandle>,
}

impl NodeRegister {
    /// Makes the register at a memory node, for a scheduler that is reached at `address`.
    #[must_use]
    pub fn new(node: Reach, address: String) -> Self {
        Self { node, address, held: None }
    }

    fn store(client: &Arc<MemoryClient>) -> Result<StoreHandle, Error> {
        match client.open_store(NAME) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            opened => return Ok(opened?),
        }
        match client.create_store(NAME, &[]) {
            // Another candidate was faster.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(client.open_store(NAME)?),
            created => Ok(created?),
        }
    }
}

impl Register for NodeRegister {
    type Error = Error;

    fn claim(&mut self) -> Result<Option<Term>, Error> {
        let client = self.node.client()?;
        match Self::store(&client)?.acquire_shard(SHARD, false) {
            Ok(shard) => {
                shard.set_root(self.address.as_bytes())?;
                let term = Term(u32::try_from(shard.epoch().0).unwrap_or(u32::MAX));
                self.held = Some(shard);
                Ok(Some(term))
            }
            Err(error) if error.kind() == ErrorKind::Busy => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn renew(&mut self, term: Term) -> Result<Option<Term>, Error> {
        let Some(shard) = &self.held else { return Ok(None) };
        match shard.set_root(self.address.as_bytes()) {
            Ok(()) => Ok(Some(term)),
            Err(error) if error.kind() == ErrorKind::Fenced => {
                self.held = None;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}
