//! A back end under test.

use forebay_fabric::{Error, Link, Listener};
use std::sync::Arc;

/// Opens a link to a node.
pub type Connect = Arc<dyn Fn() -> Result<Arc<dyn Link>, Error> + Send + Sync>;

/// Starts a node.
pub type Start = Arc<dyn Fn(Option<&str>) -> Node + Send + Sync>;

/// A node that has just started.
pub struct Node {
    /// The node's side. Dropping it is how a node dies.
    pub listener: Box<dyn Listener>,
    /// The clients' side.
    pub connect: Connect,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("address", &self.listener.address()).finish_non_exhaustive()
    }
}

/// A back end under test.
#[derive(Clone)]
pub struct Target {
    /// The back end's name.
    pub name: &'static str,
    /// Starts a node. Given the address of a node that has died, it uses that address if the back end
    /// can.
    pub start: Start,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("name", &self.name).finish_non_exhaustive()
    }
}
