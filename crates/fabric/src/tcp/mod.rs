//! The TCP back end: nodes and clients on machines that share only an ordinary network.
//!
//! A link is a *control connection*, which lives as long as the link, and one connection per endpoint. An endpoint's
//! connection carries frames (`frame`): a doorbell is one send of all that was posted, and the node's I/O thread
//! (`server`) executes what it finds in one receive and answers with one send. Operations of an endpoint are executed in
//! the order posted. The target checks each against its grants, so a revocation is enforced at once.
//!
//! The node's operations on a client's memory travel over the same connection the other way. The client's endpoint carries
//! them out when it polls or waits, so such operations, RPC replies among them, make progress only then. A write of the
//! node that the client refuses ends the connection.
//!
//! ```text
//!   client process                                    node
//!   Link ─────────── control connection ──────────── NodeLink (a Peer)
//!   Endpoint ─ Transport ──── connection ─── Connection ─┤ turn: receive, execute, send
//!                              └──────────── Outlet ─────┘ the node's sending side
//! ```
//!
//! What is lost with a connection: when the control connection ends, the link ends at both sides. When an endpoint's
//! connection ends, its operations end with [`Error::PeerLost`]. Keepalive finds silent peers within some five seconds on
//! a control connection, and a thread that waits on an endpoint waits on both connections.
//!
//! A client that connects is a stranger until it has proven who it is (`door`, which has a thread of its own): with a
//! certificate, within TLS (`tls`), or with a shared secret. Later traffic goes through TLS or in plain (`stream`); no
//! other module knows which. A node that neither encrypts nor asks for proof listens on loopback addresses only, unless
//! told otherwise.
//!
//! Bounds, whatever the peer sends: a stranger costs what `door` says; a frame is at most 64 KiB and its head; a
//! connection buffers a few hundred KiB each way, and has room for few messages (`inbox`). A client that sends more, or
//! does not take its answers, makes only itself wait: identities, and the links of each, take turns (`server`, `events`).

mod buffer;
mod connection;
#[cfg(feature = "decoders")]
pub(crate) mod decoders;
mod door;
mod events;
mod frame;
mod gate;
mod handle;
mod inbox;
mod link;
mod listener;
mod outlet;
mod peer;
mod porter;
mod server;
mod socket;
mod stream;
mod tls;
mod transport;
mod wakers;

pub use handle::connect;
pub use listener::{TcpListener, listen};

use crate::admission::{Access, Admission};
use crate::{Atomics, Capabilities, Error, NodeIdentity, RevocationMode};
use std::sync::Arc;
use std::time::Duration;

/// Largest read or write, bytes. What can be written in pieces must be readable at once, and values of 64 MiB are
/// written, with more around them. No peer can make the other side hold this much: operations are carried out in pieces,
/// and the results go into the memory of the poster.
const MAX_OPERATION_BYTES: usize = 128 << 20;

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
    /// Nodes: whether an address that is not loopback is allowed, although connections are not encrypted or
    /// clients do not prove who they are.
    pub allow_remote: bool,
    /// Nodes: what is asked of those who connect, and how the node proves itself. `None` asks nobody.
    pub admission: Option<Arc<Admission>>,
    /// Clients: how this process proves itself, and what it asks of nodes.
    pub access: Access,
    /// Clients: how long connecting may take.
    pub connect_timeout: Duration,
    /// Nodes: how long an operation on a client's memory may take, because it waits for the client to poll. Also how
    /// long a client may take nothing of what waits for it before its endpoint's connection ends.
    pub peer_timeout: Duration,
    /// Nodes: connections at a time, links and endpoints together.
    pub max_connections: usize,
    /// Nodes: how many of these may be of one identity; of one address, where nobody is asked.
    pub max_connections_of_one: usize,
    /// Size of the system's buffers of a connection, bytes each way; `None` lets it choose.
    pub socket_bytes: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            allow_remote: false,
            admission: None,
            access: Access::default(),
            connect_timeout: Duration::from_secs(5),
            peer_timeout: Duration::from_secs(10),
            max_connections: 1024,
            max_connections_of_one: 768,
            socket_bytes: None,
        }
    }
}

/// The error for a client's connection that carries nothing any more.
fn lost_client(cause: socket::Broken) -> Error {
    Error::lost("the client", cause)
}
