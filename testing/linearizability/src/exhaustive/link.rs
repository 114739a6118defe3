//! A link whose one-sided operations take effect when the test says, and whose messages go to a real node.

use super::memory::{Verb, Words};
use forebay_env::HashMap;
use forebay_env::sync::{Mutex, lock};
use forebay_fabric::{
    AccessKey, Capabilities, Completion, Counts, CountsRegistry, Endpoint, EndpointOptions, Error, Incoming, Link,
    NodeIdentity, Operation, Outcome, Region, RemoteAddress, Revocation, Rights, Traffic, Transport, Work, WorkQueue,
};
use forebay_memory_client::{ExtentId, MemoryClient};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Bytes of an extent.
pub(crate) const EXTENT_BYTES: u64 = 4 << 20;
/// Extents of the node.
pub(crate) const EXTENTS: u32 = 4;
/// Endpoints with this timeout belong to the tree; others carry messages.
pub(crate) const TREES: Duration = Duration::from_secs(77_777);

/// What a posted operation does with the queue of its endpoint.
#[derive(Debug)]
pub(crate) enum Mode {
    /// It takes effect at once.
    Direct,
    /// It gets the next of these answers; once they end, it and later operations are `wanted`.
    Fed { answers: Vec<Arc<[u64]>>, next: usize, wanted: Vec<Wanted> },
    /// It fails.
    Closed,
}

/// An operation that has not taken effect.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) verb: Verb,
    /// Whether it takes effect after all earlier ones of its batch.
    pub(crate) is_fenced: bool,
}

/// A process's place at the memory.
#[derive(Debug)]
pub(crate) struct Seat {
    memory: Arc<Mutex<Words>>,
    mode: Mutex<Mode>,
    session: OnceLock<Weak<MemoryClient>>,
    keys: Mutex<HashMap<AccessKey, u32>>,
    is_ordered: bool,
}

impl Seat {
    pub(crate) fn new(memory: &Arc<Mutex<Words>>, is_ordered: bool) -> Arc<Self> {
        Arc::new(Self {
            memory: Arc::clone(memory),
            mode: Mutex::new(Mode::Direct),
            session: OnceLock::new(),
            keys: Mutex::default(),
            is_ordered,
        })
    }

    pub(crate) fn take(&self, session: &Arc<MemoryClient>) {
        let _ = self.session.set(Arc::downgrade(session));
    }

    /// Changes the mode, and returns the previous one.
    pub(crate) fn set(&self, mode: Mode) -> Mode {
        std::mem::replace(&mut lock(&self.mode), mode)
    }

    /// The number of the word at an address.
    fn word(&self, address: RemoteAddress) -> u32 {
        let extent = *lock(&self.keys).entry(address.key).or_insert_with(|| {
            let session = self.session.get().and_then(Weak::upgrade).expect("a session");
            let is_it =
                |extent: &u32| session.resolve(ExtentId(*extent), 0).is_ok_and(|remote| remote.key == address.key);
            (0..EXTENTS).find(is_it).expect("a key of an extent")
        });
        assert!(address.offset.is_multiple_of(8), "an operation at {}", address.offset);
        ((u64::from(extent) * EXTENT_BYTES + address.offset) / 8) as u32
    }

    fn verb(&self, operation: &Operation) -> Verb {
        match operation {
            Operation::Read { from, into } => Verb::Read { at: self.word(*from), words: into.len().div_ceil(8) as u32 },
            Operation::Write { to, payload, .. } => {
                Verb::Write { at: self.word(*to), bytes: payload.to_vec().expect("a payload within its region") }
            }
            &Operation::CompareSwap { at, expected, new } => Verb::Swap { at: self.word(at), expected, new },
            &Operation::FetchAdd { at, delta } => Verb::Add { at: self.word(at), delta },
            Operation::Message(_) => unreachable!("the tree sends no messages"),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct SeatLink {
    pub(crate) inner: Arc<dyn Link>,
    pub(crate) seat: Arc<Seat>,
}

impl Link for SeatLink {
    fn node(&self) -> NodeIdentity {
        self.inner.node()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn endpoint(&self, options: EndpointOptions) -> Result<Endpoint, Error> {
        if options.timeout != TREES {
            return self.inner.endpoint(options);
        }
        let counts = CountsRegistry::default().register(options.traffic);
        let capabilities = Capabilities { ordered: self.seat.is_ordered, ..self.inner.capabilities() };
        Ok(Endpoint::new(Box::new(SeatTransport(Arc::clone(&self.seat))), capabilities, options, counts))
    }

    fn allocate(&self, length: usize) -> Result<Region, Error> {
        self.inner.allocate(length)
    }

    fn grant(&self, region: &Region, offset: u64, length: u64, rights: Rights) -> Result<AccessKey, Error> {
        self.inner.grant(region, offset, length, rights)
    }

    fn revoke(&self, key: AccessKey) -> Result<Revocation, Error> {
        self.inner.revoke(key)
    }

    fn counts(&self, traffic: Traffic) -> Counts {
        self.inner.counts(traffic)
    }

    fn is_alive(&self) -> bool {
        self.inner.is_alive()
    }

    fn close(&self) {
        self.inner.close();
    }
}

struct SeatTransport(Arc<Seat>);

/// The outcome of an operation that found these words.
fn outcome(operation: Operation, found: &[u64]) -> Outcome {
    match operation {
        Operation::Read { mut into, .. } => {
            for (piece, word) in into.chunks_mut(8).zip(found) {
                piece.copy_from_slice(&word.to_le_bytes()[..piece.len()]);
            }
            Outcome::Read(into)
        }
        Operation::Write { payload, .. } => Outcome::Done(payload.into_slot()),
        Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => {
            Outcome::Word(found.first().copied().unwrap_or_default())
        }
        Operation::Message(slot) => Outcome::Done(Some(slot)),
    }
}

impl Transport for SeatTransport {
    fn flush(&mut self, queue: &mut WorkQueue) {
        let mut mode = lock(&self.0.mode);
        while let Some(Work { id, fenced, operation }) = queue.take_away() {
            let result = match &mut *mode {
                Mode::Direct => {
                    let found = lock(&self.0.memory).perform(&self.0.verb(&operation));
                    Ok(outcome(operation, &found))
                }
                Mode::Fed { answers, next, wanted } => match answers.get(*next).filter(|_| wanted.is_empty()) {
                    Some(answer) => {
                        *next += 1;
                        Ok(outcome(operation, answer))
                    }
                    None => {
                        wanted.push(Wanted { verb: self.0.verb(&operation), is_fenced: fenced });
                        Err(Error::Flushed)
                    }
                },
                Mode::Closed => Err(Error::Flushed),
            };
            queue.conclude(Completion { id, result });
        }
    }

    fn poll(&mut self, _queue: &mut WorkQueue) {}

    fn block(&mut self, _limit: Duration) {}

    fn receive(&mut self) -> Result<Option<Incoming>, Error> {
        Ok(None)
    }
}
