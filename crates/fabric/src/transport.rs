//! What a back end implements.
//!
//! [`Endpoint`](crate::Endpoint) does all that is common (buffers, counting, deadlines, breaking);
//! a back end moves bytes. The object-safe traits here are also how the layers above hold links and
//! peers without naming a back end.

use crate::{
    AccessKey, Capabilities, Counts, Endpoint, EndpointId, EndpointOptions, Error, NodeIdentity, PeerId, Region,
    RemoteAddress, Rights, Slot, Traffic, WorkQueue,
};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Number of a posted operation: ascending within an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkId(pub u64);

/// The local side of a write.
#[derive(Debug)]
pub enum Payload {
    /// A slot of the arena; the completion gives it back.
    Slot(Slot),
    /// A range of a registered region that nobody writes until the completion.
    Sealed {
        /// The region.
        region: Region,
        /// Start of the range, bytes.
        offset: u64,
        /// Length of the range, bytes.
        length: usize,
    },
}

impl Payload {
    /// Length in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        match self {
            Self::Slot(slot) => slot.len(),
            Self::Sealed { length, .. } => *length,
        }
    }

    /// The slot, if it is one.
    #[must_use]
    pub fn into_slot(self) -> Option<Slot> {
        match self {
            Self::Slot(slot) => Some(slot),
            Self::Sealed { .. } => None,
        }
    }

    /// A copy of the bytes.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] for a range outside its region.
    pub fn to_vec(&self) -> Result<Vec<u8>, Error> {
        match self {
            Self::Slot(slot) => Ok(slot.to_vec()),
            Self::Sealed { region, offset, length } => {
                let mut bytes = vec![0; *length];
                region.read(*offset, &mut bytes).map(|()| bytes)
            }
        }
    }

    /// Copies the bytes to `at` of `region`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] for a range outside its region.
    #[inline]
    pub fn write_to(&self, region: &Region, at: u64) -> Result<(), Error> {
        match self {
            Self::Slot(slot) => region.write(at, slot),
            Self::Sealed { region: source, offset, length } => region.copy_from(at, source, *offset, *length),
        }
    }
}

/// An operation.
#[derive(Debug)]
pub enum Operation {
    /// Reads `into.len()` bytes.
    Read {
        /// Where from.
        from: RemoteAddress,
        /// Where to.
        into: Slot,
    },
    /// Writes; with an immediate, the target's endpoint is woken by it after the bytes are there.
    Write {
        /// Where to.
        to: RemoteAddress,
        /// What.
        payload: Payload,
        /// Delivered behind the bytes.
        immediate: Option<u32>,
    },
    /// Swaps the word for `new` if it is `expected`; completes with the word before.
    CompareSwap {
        /// The word.
        at: RemoteAddress,
        /// What it must be.
        expected: u64,
        /// What it becomes.
        new: u64,
    },
    /// Adds to the word, wrapping; completes with the word before.
    FetchAdd {
        /// The word.
        at: RemoteAddress,
        /// What is added.
        delta: u64,
    },
    /// A message to the node.
    Message(Slot),
}

/// An operation that a back end takes away from its endpoint's queue.
#[derive(Debug)]
pub struct Work {
    /// Its number.
    pub id: WorkId,
    /// It starts only when all earlier operations of the endpoint are complete.
    pub fenced: bool,
    /// What is to be done.
    pub operation: Operation,
}

/// What a completed operation gives.
#[derive(Debug)]
pub enum Outcome {
    /// A read: the slot with the bytes.
    Read(Slot),
    /// A write or a message: the slot, if it was one.
    Done(Option<Slot>),
    /// An atomic operation: the word before.
    Word(u64),
}

/// The end of an operation.
#[derive(Debug)]
pub struct Completion {
    /// Which operation.
    pub id: WorkId,
    /// What it gives, or why it failed.
    pub result: Result<Outcome, Error>,
}

/// What arrives at an endpoint without being asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// The immediate of a write to this side.
    Immediate(u32),
    /// A message.
    Message(Vec<u8>),
}

/// An endpoint's connection. Owned by one thread.
///
/// After an operation fails, the transport ends what is rung behind it, then and later, with
/// [`Error::Flushed`]; when the node is lost, everything with [`Error::PeerLost`].
pub trait Transport: Send {
    /// The doorbell was rung for what is in the queue. Some of it may end at once.
    fn flush(&mut self, queue: &mut WorkQueue);
    /// A read of `length` bytes at `from` is about to be posted. A back end whose reads are loads may have
    /// the processor begin with them; nothing is counted, and nothing fails.
    fn approach(&mut self, _from: RemoteAddress, _length: usize) {}
    /// Makes progress without waiting: with what was rung, and with what the peer asks of this side.
    fn poll(&mut self, queue: &mut WorkQueue);
    /// Sleeps until something may have happened, for at most `limit`.
    fn block(&mut self, limit: Duration);
    /// The next unasked-for arrival.
    ///
    /// # Errors
    /// [`Error::PeerLost`] when nothing can arrive any more.
    fn receive(&mut self) -> Result<Option<Incoming>, Error>;
}

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
    /// Memory that can be granted over this link: shareable where the back end needs it.
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
    /// Whether the node is there, as far as is known.
    fn is_alive(&self) -> bool;
    /// Ends the link: its endpoints break, its grants end.
    fn close(&self);
}

/// The other end of a link, at the node.
pub trait Peer: Send + Sync + Debug {
    /// The link's number at this node.
    fn id(&self) -> PeerId;
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
    /// One-sided read of the peer's memory; returns when the bytes are there.
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
    /// A message to one of the peer's endpoints.
    ///
    /// # Errors
    /// As for endpoints.
    fn send(&self, endpoint: EndpointId, bytes: &[u8]) -> Result<(), Error>;
    /// Whether the peer is there, as far as is known.
    fn is_alive(&self) -> bool;
    /// Ends the link from this side.
    fn close(&self);
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
    },
    /// A link ended. Its grants have ended with it.
    Left {
        /// Which link.
        peer: PeerId,
        /// Why.
        cause: Error,
    },
}

/// A node that offers memory.
pub trait Listener: Send {
    /// The address that a link is opened with, such as `tcp://127.0.0.1:4000`.
    fn address(&self) -> String;
    /// Which node this is.
    fn identity(&self) -> NodeIdentity;
    /// What the back end promises.
    fn capabilities(&self) -> Capabilities;
    /// Memory that can be granted to peers.
    ///
    /// # Errors
    /// As [`Region::allocate`].
    fn allocate(&self, length: usize) -> Result<Region, Error>;
    /// The next event; `None` when none came within `limit`.
    ///
    /// # Errors
    /// [`Error::Io`] when the node can serve no more.
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

    /// Whether the peer can touch the memory no more.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        // Pairs with the store in `finish`: who sees it complete may reuse the memory.
        self.0.load(Ordering::Acquire)
    }
}
