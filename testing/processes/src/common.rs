//! Definitions shared by the driver and the processes that it starts.

use forebay::{ClientOptions, MemoryClient, NodeAddress};
use std::io::Read;
use std::sync::Arc;

/// What went wrong, for people.
pub type Outcome<T = ()> = Result<T, String>;

/// The name of the tree.
pub const TREE: &str = "tree-kill";
/// What a process prints once it can be used.
pub const READY: &str = "ready";

/// Returns when the driver closes standard input, or is gone.
pub fn wait_for_the_end() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// A session at the memory node.
pub fn session(memory: &NodeAddress, name: &str) -> Outcome<[Arc<MemoryClient>; 1]> {
    let link = forebay::connect(memory).map_err(|error| format!("{memory}: {error}"))?;
    let options = ClientOptions { foreign_reads: true, ..ClientOptions::default() };
    MemoryClient::connect(link, name, options).map(|client| [client]).map_err(|error| error.to_string())
}
