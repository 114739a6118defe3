//! Nodes that are connected to again when a session has ended.

use crate::embedded::{NAME, client_options};
use crate::{NodeAddress, connect};
use forebay_engine::Options;
use forebay_memory_client::{ClientOptions, Error, MemoryClient, Reach};
use std::sync::Arc;
use std::time::Duration;

/// How long a scheduler may take to answer. An answer takes it little work, and jobs also run without a scheduler.
const SCHEDULER_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns a session at the node, which is opened when first asked for, and again when it has ended. `name` is for the
/// node's log.
#[must_use]
pub fn reach(address: &NodeAddress, name: &str) -> Reach {
    let (address, name) = (address.clone(), name.to_owned());
    Reach::new(move || open(&address, &name, ClientOptions::default()))
}

/// The same, for a database with these options.
pub(crate) fn reach_for(address: &NodeAddress, options: &Options) -> Arc<Reach> {
    let (address, options) = (address.clone(), client_options(options));
    Arc::new(Reach::new(move || open(&address, NAME, options.clone())))
}

/// Returns a session at the one of the nodes that schedules: for [`Options::scheduler`](crate::Options::scheduler).
#[must_use]
pub fn reach_scheduler(addresses: &[NodeAddress], name: &str) -> Arc<Reach> {
    let (addresses, name) = (addresses.to_vec(), name.to_owned());
    Arc::new(Reach::new(move || {
        let mut last = None;
        for address in &addresses {
            let options = ClientOptions { timeout: SCHEDULER_TIMEOUT, ..ClientOptions::default() };
            match open(address, &name, options).and_then(|client| client.exchange(&[]).map(|_| client)) {
                Ok(client) => return Ok(client),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::Invalid("there is no address of a scheduler".into())))
    }))
}

/// Opens a session at the node now.
pub(crate) fn open(address: &NodeAddress, name: &str, options: ClientOptions) -> Result<Arc<MemoryClient>, Error> {
    let link =
        connect(address).map_err(|error| Error::Unreachable { kind: error.kind(), message: error.to_string() })?;
    MemoryClient::connect(link, name, ClientOptions { address: address.to_string(), ..options })
}
