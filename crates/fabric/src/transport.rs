//! What a back end implements.
//!
//! [`Endpoint`](crate::Endpoint) does what all back ends share (buffers, counting, deadlines,
//! breaking); a back end moves bytes. The object-safe traits here are also how the layers above
//! hold links and peers without naming a back end.

pub use crate::connection::{Incoming, Transport};
pub use crate::operation::{Completion, Operation, Outcome, Payload, Work, WorkId};

use crate::admission::{AdmissionCounts, Origin};
use crate::{
    AccessKey, Capabilities, Counts, Endpoint, EndpointId, EndpointOptions, Error, NodeIdentity, PeerId, Region,
    RemoteAddress, Rights, Traffic,
};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A process's connection to a node.
pub trait Link: Send + Sync + Debug {
    /// The node at the other end.
    fn node(&self) -> NodeIdentity;
    /// What the back end promises.
    fn capabilities(&self) -> Capabilities;
    /// A queue of operations for one thread.
    ///
    /// # Errors
    /// [`Error::PeerLost`] when the node is gone, [`Error::Io`].
    fn endpoint(&self, options: EndpointOptions) -> Result<Endpoint, Error>;
    /// Allocates memory that can be granted over this link: shareable where the back end needs
    /// that.
    ///
    /// # Errors
    /// As [`Region::allocate`].
    fn allocate(&self, length: usize) -> Result<Region, Error>;
    /// Lets the node touch a range of a region of this process.
    ///
    /// # Errors
    /// As [`GrantTable::grant`](crate::GrantTable::grant); [`Error::PeerLost`].
    fn grant(&self, region: &Region, offset: u64, length: u64, rights: Rights) -> Result<AccessKey, Error>;
    /// Takes a grant back.
    ///
    /// # Errors
    /// [`Error::AccessDenied`] when there is no such grant.
    fn revoke(&self, key: AccessKey) -> Result<Revocation, Error>;
    /// Counts of all endpoints of the link.
    fn counts(&self, traffic: Traffic) -> Counts;
    /// Whether the node is alive, as far as is known.
    fn is_alive(&self) -> bool;
    /// Ends the link: its endpoints break, its grants end.
    fn close(&self);
}

/// The other end of a link, at the node.
pub trait Peer: Send + Sync + Debug {
    /// The link's number at this node.
    fn id(&self) -> PeerId;
    /// The peer's identity, as proven before the link was opened, and its place.
    fn origin(&self) -> Origin;
    /// Lets the peer touch a range of a region of this node.
    ///
    /// # Errors
    /// As [`GrantTable::grant`](crate::GrantTable::grant); [`Error::PeerLost`].
    fn grant(&self, region: &Region, offset: u64, length: u64, rights: Rights) -> Result<AccessKey, Error>;
    /// Takes a grant back.
    ///
    /// # Errors
    /// [`Error::AccessDenied`] when there is no such grant.
    fn revoke(&self, key: AccessKey) -> Result<Revocation, Error>;
    /// One-sided read of the peer's memory; returns when the bytes have arrived.
    ///
    /// # Errors
    /// As for endpoints.
    fn read(&self, endpoint: EndpointId, from: RemoteAddress, into: &mut [u8]) -> Result<(), Error>;
    /// One-sided write to the peer's memory, in order with other writes to the same endpoint; with
    /// an immediate, the endpoint is woken.
    ///
    /// # Errors
    /// As for endpoints.
    fn write(&self, endpoint: EndpointId, to: RemoteAddress, bytes: &[u8], immediate: Option<u32>)
    -> Result<(), Error>;
    /// As [`Peer::write`], but never waits for the peer to take earlier writes: what the peer does not take now is kept
    /// until it does. [`Peer::unsent`] says how much that is.
    ///
    /// # Errors
    /// As for endpoints.
    fn post(&self, endpoint: EndpointId, to: RemoteAddress, bytes: &[u8], immediate: Option<u32>) -> Result<(), Error> {
        self.write(endpoint, to, bytes, immediate)
    }
    /// Bytes that an endpoint has yet to take.
    fn unsent(&self, _endpoint: EndpointId) -> usize {
        0
    }
    /// As [`Peer::read`], but does not wait for the bytes.
    ///
    /// # Errors
    /// As for endpoints.
    fn pull(&self, endpoint: EndpointId, from: RemoteAddress, length: usize) -> Result<Box<dyn Pull>, Error> {
        let mut bytes = vec![0; length];
        let result = self.read(endpoint, from, &mut bytes).map(|()| bytes);
        Ok(Box::new(Pulled(Some(result))))
    }
    /// Sends a message to one of the peer's endpoints.
    ///
    /// # Errors
    /// As for endpoints.
    fn send(&self, endpoint: EndpointId, bytes: &[u8]) -> Result<(), Error>;
    /// Whether the peer is alive, as far as is known.
    fn is_alive(&self) -> bool;
    /// Counts the link's endpoints on this account, those that exist and those to come. Existing endpoints for which there
    /// is no room end. To be called once. Back ends within one process count nothing.
    fn count_endpoints(&self, _account: Arc<dyn Account>) {}
    /// Ends the link from this side.
    fn close(&self);
}

/// A holder of endpoints at a node, as the layer above counts them: links may share an account. The link calls it under a
/// lock, so it must not call the link.
pub trait Account: Send + Sync + Debug {
    /// Counts another endpoint.
    ///
    /// # Errors
    /// Why there is no room for the endpoint. Its client is told the reason, and the endpoint is not counted.
    fn take(&self) -> Result<(), Error>;
    /// Gives back the seat of a counted endpoint that is gone.
    fn give_back(&self);
}

/// A read of the peer's memory that is under way. Drop it to abandon it.
pub trait Pull: Send + Debug {
    /// Returns the result, once; `None` before it exists.
    fn poll(&mut self) -> Option<Result<Vec<u8>, Error>>;
}

/// A read that was done at once.
#[derive(Debug)]
struct Pulled(Option<Result<Vec<u8>, Error>>);

impl Pull for Pulled {
    fn poll(&mut self) -> Option<Result<Vec<u8>, Error>> {
        self.0.take()
    }
}

/// What happens at a node.
#[derive(Debug)]
pub enum Event {
    /// A process opened a link.
    Joined(Arc<dyn Peer>),
    /// A message came in.
    Message {
        /// From which link.
        peer: Arc<dyn Peer>,
        /// From which endpoint of it.
        endpoint: EndpointId,
        /// The message.
        bytes: Vec<u8>,
        /// Its share of its sender's room at the node.
        place: Place,
    },
    /// A link ended. Its grants have ended with it.
    Left {
        /// Which link.
        peer: PeerId,
        /// Why.
        cause: Error,
    },
}

/// What a message takes up at the node, from its receipt until this is dropped. A sender has little room there: messages
/// for which there is none stay with the sender, unread. So the server keeps the place as long as the message waits, and a
/// flood waits at its source.
#[derive(Debug, Default)]
pub struct Place(Option<Taken>);

#[derive(Debug)]
struct Taken {
    of: Arc<dyn Room>,
    bytes: usize,
}

/// Room for the messages of one sender.
pub trait Room: Send + Sync + Debug {
    /// Frees the `bytes` that a message took.
    fn give_back(&self, bytes: usize);
}

impl Place {
    /// A message's place in a room. A message without a room takes up nothing: [`Place::default`].
    #[must_use]
    pub fn new(of: Arc<dyn Room>, bytes: usize) -> Self {
        Self(Some(Taken { of, bytes }))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(Taken { of, bytes }) = self.0.take() {
            of.give_back(bytes);
        }
    }
}

/// A node that offers memory.
pub trait Listener: Send {
    /// The address that a link is opened with, such as `tcp://127.0.0.1:4000`.
    fn address(&self) -> String;
    /// Which node this is.
    fn identity(&self) -> NodeIdentity;
    /// What the back end promises.
    fn capabilities(&self) -> Capabilities;
    /// How many links were admitted and refused. Back ends that admit everyone count nothing.
    fn admission_counts(&self) -> AdmissionCounts {
        AdmissionCounts::default()
    }
    /// Memory that can be granted to peers.
    ///
    /// # Errors
    /// As [`Region::allocate`].
    fn allocate(&self, length: usize) -> Result<Region, Error>;
    /// Waits for the next event; `None` when none came within `limit`.
    ///
    /// # Errors
    /// [`Error::Io`] when the node cannot serve any longer.
    fn next(&mut self, limit: Duration) -> Result<Option<Event>, Error>;
}

/// A revocation that may take time.
#[derive(Debug, Clone)]
pub struct Revocation(Arc<AtomicBool>);

impl Revocation {
    /// A revocation that is already complete.
    #[must_use]
    pub fn complete() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    /// A revocation that [`Revocation::finish`] completes.
    #[must_use]
    pub fn pending() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    /// Completes it.
    pub fn finish(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether the peer can no longer touch the memory.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        // Pairs with the store in `finish`: a thread that sees it complete may reuse the memory.
        self.0.load(Ordering::Acquire)
    }
}
