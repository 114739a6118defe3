//! Access to remote memory, with the guarantees that the hardware gives.
//!
//! This crate is the interface between Forebay and the network. It promises only what RDMA also guarantees, so code that is
//! correct on this crate is correct on RDMA.
//!
//! # Nodes, links, endpoints
//!
//! A node that offers memory opens a [`Listener`]. A process that wants to use the memory opens one [`Link`] per node, and
//! on the link one [`Endpoint`] per thread (dLSM X-B: one queue pair per thread). At the node, the other end of a link is a
//! [`Peer`].
//!
//! Module [`admission`] says who may open links, and how both sides prove who they are.
//!
//! # Memory
//!
//! A [`Region`] is registered memory. Either side gives the other a *grant* to a range of a region
//! with some [`Rights`]; the grant's name is an [`AccessKey`]: an index and 128 random bits. Keys
//! are valid for one link and one direction, until revoked or until the link ends. A node that
//! restarts has a new [`NodeIdentity::incarnation`] and honours no earlier key.
//!
//! Where [`Capabilities::revocation`] is enforced, [`Peer::revoke`] returns when no operation under
//! the key is in progress and none can begin. Where it is cooperative (shared memory), the peer is asked to release the
//! memory, which must not be used for anything else until [`Revocation::is_complete`]. There an operation may complete after
//! the revocation has begun, or after the node died: [`Endpoint::confirm`] finds out.
//!
//! # Operations
//!
//! `post_*` queues an operation, [`Endpoint::flush`] rings one doorbell for all that is queued,
//! [`Endpoint::poll`] and [`Endpoint::wait`] return [`Completion`]s. A post takes a [`Slot`] of the endpoint's arena, or a
//! sealed range of a region, and the completion gives it back. So nobody can touch a buffer in flight.
//!
//! Where a write is a copy by the caller's thread, [`Endpoint::write_at_once`] carries out a write of a sealed range without
//! the queue, and confirms it.
//!
//! * Aligned 8-byte words are never torn. Larger data may be torn in any way, so it carries a checksum or a version that the
//!   reader verifies.
//! * Operations of one endpoint take effect in the order posted only if [`Capabilities::ordered`]; otherwise, order needs
//!   [`Endpoint::fence`]. Completions of one endpoint may come in any order. Across endpoints there is no order.
//! * Atomics act on aligned 8-byte words; [`Capabilities::atomics`] says what else they are atomic with.
//! * A completed write is visible to every later one-sided operation, and to the target's CPU after a message posted after
//!   it.
//! * A failed operation breaks its endpoint, as it breaks a queue pair: operations queued after it complete with
//!   [`Error::Flushed`], later posts fail with [`Error::Broken`], and a new endpoint must be opened. Arguments that are
//!   wrong on their face (misaligned atomics, too large) are refused at the post and break nothing.
//! * When a link's node is lost, every operation ends with [`Error::PeerLost`] in bounded time.
//!   A back end whose operations need no process at the node ([`RevocationMode::Cooperative`]) may still complete some on
//!   lost memory until the client notices. The node counts as lost when its links notice, and a later life of the node has
//!   other memory and keys. Whether an operation that ended with an error took effect is unknown.
//!
//! # Counting
//!
//! Each endpoint counts operations, bytes, doorbells and *round trips waited for*: a wait for a
//! completion counts one when no completion of the same doorbell, or of a later one, was waited
//! for before. An RPC counts one. The counts are equal on all back ends for equal calls.

mod address;
pub mod admission;
mod capability;
mod connection;
mod counters;
#[cfg(feature = "decoders")]
pub mod decoders;
mod endpoint;
mod error;
mod grants;
pub mod inprocess;
mod memory;
mod model;
mod operation;
#[cfg(not(miri))]
mod pages;
#[cfg(miri)]
#[path = "interpreted_pages.rs"]
mod pages;
mod prefetch;
mod queue;
mod region;
pub mod rpc;
mod seats;
pub mod shm;
pub mod sim;
mod slot;
mod stream;
pub mod tcp;
mod transport;
pub mod turns;
mod words;

pub use address::{AccessKey, EndpointId, NodeIdentity, PeerId, RemoteAddress, Rights, Word};
pub use capability::{Atomics, Capabilities, RevocationMode};
pub use connection::{Incoming, Transport};
pub use counters::{Counts, CountsCell, CountsRegistry, Traffic};
pub use endpoint::{Endpoint, EndpointOptions};
pub use error::{Denial, Error};
pub use grants::{GrantTable, Granted};
pub use model::LinkModel;
pub use operation::{Completion, Operation, Outcome, Payload, Work, WorkId};
pub use prefetch::{prefetch, prefetch_line};
pub use queue::WorkQueue;
pub use region::{Backing, Region};
pub use slot::{Arena, Slot};
pub use transport::{Account, Event, Link, Listener, Peer, Place, Pull, Revocation, Room};
