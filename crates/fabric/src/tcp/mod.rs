//! The TCP back end: nodes and clients on machines that have nothing but a network.
//!
//! A link is a *control connection*, which lives as long as it does, and one connection an
//! endpoint. On an endpoint's connection travel frames (`frame`): a doorbell is one send of all
//! that was posted, and the node's I/O thread (`server`) executes what it finds in one receive and
//! answers with one send. Operations of an endpoint are executed in the order posted. The target
//! checks each against its grants, so a revocation is enforced at once.
//!
//! What the node does to a client's memory travels over the same connection the other way, and is
//! carried out by the client's endpoint when it polls or waits: such operations, RPC replies among
//! them, make progress only then. A write of the node that the client refuses ends the connection.
//!
//! ```text
//!   client process                                    node
//!   Link ─────────── control connection ──────────── NodeLink (a Peer)
//!   Endpoint ─ Transport ──── connection ─── Connection ─┤ turn: receive, execute, send
//!                              └──────────── Outlet ─────┘ the node's sending side
//! ```
//!
//! Who loses what: when the control connection ends, the link ends at both sides. When an endpoint's
//! connection ends, its operations end with [`Error::PeerLost`]. Keepalive finds silent peers within
//! some five seconds on a control connection, and whoever waits on an endpoint waits on both.
//!
//! Nothing is encrypted: a node listens on loopback addresses only, unless told otherwise. TLS would
//! go into `stream`.
//!
//! Bounds, whatever the peer sends: a frame is at most 64 KiB and its head; a connection buffers a
//! few hundred KiB each way; see `connection` and `events` for who is made to wait.

mod buffer;
mod connection;
mod events;
mod frame;
mod link;
mod listener;
mod outlet;
mod peer;
mod server;
mod stream;
mod transport;

pub use link::connect;
pub use listener::{TcpListener, listen};

#[cfg(doc)]
use crate::Error;
use crate::{Atomics, Capabilities, NodeIdentity, RevocationMode};
use std::time::Duration;

/// Largest read or write, bytes.
const MAX_OPERATION_BYTES: usize = 64 << 20;

const CAPABILITIES: Capabilities = Capabilities {
    name: "tcp",
    atomics: Atomics::ByTargetCpu,
    ordered: true,
    revocation: RevocationMode::Enforced,
    max_operation_bytes: MAX_OPERATION_BYTES,
    max_message_bytes: 64 << 10,
};

/// How a node or a client behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// Nodes: whether an address that is not loopback is allowed, although nothing is encrypted.
    pub allow_remote: bool,
    /// Clients: how long connecting may take.
    pub connect_timeout: Duration,
    /// Nodes: how long an operation on a client's memory may take. It waits for the client to poll.
    pub peer_timeout: Duration,
    /// Nodes: connections at a time, links and endpoints together.
    pub max_connections: usize,
    /// Size of the system's buffers of a connection, bytes each way; `None` lets it choose.
    pub socket_bytes: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            allow_remote: false,
            connect_timeout: Duration::from_secs(5),
            peer_timeout: Duration::from_secs(10),
            max_connections: 1024,
            socket_bytes: None,
        }
    }
}
