//! Memory for measurements: extents leased from a memory node, as a compute node leases them.

use super::measure::{Ping, Target};
use crate::failure::{Failure, Stage};
use crate::nodes::Reached;
use forebay_memory_client::{ClientOptions, MemoryClient, Purpose};
use forebay_memory_node::Handle;
use std::sync::Arc;

/// Bytes of memory for measurements: more than a core's caches hold.
pub const BYTES: u64 = 64 << 20;

/// A target, and everything that must live as long. The session ends before the node of this
/// process.
pub struct Leased {
    /// The target.
    pub target: Target,
    _client: Arc<MemoryClient>,
    _node: Option<Handle>,
}

/// Leases memory from a node.
///
/// # Errors
/// When no memory is available.
pub fn lease(Reached { link, node }: Reached) -> Result<Leased, Failure> {
    let failed = |error: forebay_memory_client::Error| Failure::new(error.kind(), Stage::Start, error);
    let client = MemoryClient::connect(Arc::clone(&link), "fabric-test", ClientOptions::default()).map_err(failed)?;
    let length = client.extent_bytes();
    let wanted = u32::try_from(BYTES.div_ceil(length)).unwrap_or(u32::MAX);
    let extents = client.lease(wanted, Purpose::Flush).map_err(failed)?;
    let starts = extents.iter().map(|&extent| client.resolve(extent, 0)).collect::<Result<Vec<_>, _>>();
    let caller = Arc::clone(&client);
    let ping: Ping = Box::new(move || {
        caller.renew().map_err(|error| match error {
            forebay_memory_client::Error::Fabric(cause) => cause,
            other => forebay_fabric::Error::lost("the memory node", other),
        })
    });
    let target = Target { link, starts: starts.map_err(failed)?, length, ping };
    Ok(Leased { target, _client: client, _node: node })
}
