//! The in-process back end: node and clients are threads of one process.
//!
//! Operations take effect at the doorbell, in order, after the same checks as on any other back
//! end. It is the embedded default and the reference for the others.

use crate::admission::Origin;
use crate::counters::CountsRegistry;
use crate::grants::Granted;
use crate::transport::{Event, Incoming, Link, Listener, Operation, Peer, Place, Revocation, Transport};
use crate::{
    AccessKey, Atomics, Backing, Capabilities, Counts, Endpoint, EndpointId, EndpointOptions, Error, GrantTable,
    NodeIdentity, PeerId, Region, RemoteAddress, RevocationMode, Rights, Traffic, Word, WorkQueue,
};
use forebay_env::HashMap;
use forebay_env::Random;
use forebay_env::sync::lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

const CAPABILITIES: Capabilities = Capabilities {
    name: "inprocess",
    atomics: Atomics::Coherent,
    ordered: true,
    revocation: RevocationMode::Enforced,
    max_operation_bytes: 1 << 30,
    max_message_bytes: 1 << 20,
};

/// Starts a node and returns its listener and a connector to it.
///
/// # Errors
/// [`Error::Io`] without entropy.
pub fn listen(node: u32) -> Result<(InProcessListener, Connector), Error> {
    let incarnation = Random::secret().map_err(|e| Error::io("drawing an incarnation", e))? as u64;
    let node = Arc::new(Node {
        identity: NodeIdentity { node, incarnation },
        alive: AtomicBool::new(true),
        next_peer: AtomicU64::new(1),
        events: Queue::default(),
        links: Mutex::default(),
    });
    Ok((InProcessListener { node: Arc::clone(&node) }, Connector { node }))
}

/// A queue that can be slept on.
#[derive(Debug)]
struct Queue<T> {
    items: Mutex<VecDeque<T>>,
    arrived: Condvar,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { items: Mutex::default(), arrived: Condvar::new() }
    }
}

impl<T> Queue<T> {
    fn push(&self, item: T) {
        lock(&self.items).push_back(item);
        self.arrived.notify_one();
    }

    fn pop(&self) -> Option<T> {
        lock(&self.items).pop_front()
    }

    /// Takes the first item; waits for it for at most `limit`. A notification may come for an item that was taken
    /// already: then the queue is empty, and the wait continues.
    fn pop_within(&self, limit: Duration) -> Option<T> {
        if limit.is_zero() {
            return self.pop();
        }
        let waited = self.arrived.wait_timeout_while(lock(&self.items), limit, |items| items.is_empty());
        waited.unwrap_or_else(PoisonError::into_inner).0.pop_front()
    }

    /// Sleeps until the queue has an item or [`Queue::wake`] is called.
    fn sleep(&self, limit: Duration) {
        let items = lock(&self.items);
        if items.is_empty() {
            drop(self.arrived.wait_timeout(items, limit).unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn wake(&self) {
        // Taking the lock orders this after a sleeper's check: it cannot miss the wake-up.
        drop(lock(&self.items));
        self.arrived.notify_all();
    }
}

#[derive(Debug)]
struct Node {
    identity: NodeIdentity,
    alive: AtomicBool,
    next_peer: AtomicU64,
    events: Queue<Event>,
    links: Mutex<Vec<Weak<Shared>>>,
}

/// What the two ends of a link share.
#[derive(Debug)]
struct Shared {
    node: Arc<Node>,
    id: PeerId,
    alive: AtomicBool,
    /// Grants of the node to the client.
    offered: GrantTable,
    /// Grants of the client to the node.
    exposed: GrantTable,
    next_endpoint: AtomicU32,
    inboxes: Mutex<HashMap<EndpointId, Arc<Queue<Incoming>>>>,
    counts: CountsRegistry,
}

impl Shared {
    fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire) && self.node.alive.load(Ordering::Acquire)
    }

    fn lost(&self) -> Error {
        Error::lost(self.node.identity, "the other side closed the link")
    }

    fn end(&self) {
        if self.alive.swap(false, Ordering::AcqRel) {
            self.offered.revoke_all();
            self.exposed.revoke_all();
            for inbox in lock(&self.inboxes).values() {
                inbox.wake();
            }
            self.node.events.push(Event::Left { peer: self.id, cause: self.lost() });
        }
    }
}

/// Opens links to an in-process node.
#[derive(Debug, Clone)]
pub struct Connector {
    node: Arc<Node>,
}

impl Connector {
    /// Opens a link.
    ///
    /// # Errors
    /// [`Error::PeerLost`] when the node has stopped.
    pub fn connect(&self) -> Result<Arc<dyn Link>, Error> {
        if !self.node.alive.load(Ordering::Acquire) {
            return Err(Error::lost(self.node.identity, "the node has stopped"));
        }
        let shared = Arc::new(Shared {
            node: Arc::clone(&self.node),
            id: PeerId(self.node.next_peer.fetch_add(1, Ordering::Relaxed)),
            alive: AtomicBool::new(true),
            offered: GrantTable::new(),
            exposed: GrantTable::new(),
            next_endpoint: AtomicU32::new(1),
            inboxes: Mutex::default(),
            counts: CountsRegistry::default(),
        });
        let mut links = lock(&self.node.links);
        links.retain(|link| link.strong_count() > 0);
        links.push(Arc::downgrade(&shared));
        drop(links);
        self.node.events.push(Event::Joined(Arc::new(InProcessPeer(Arc::clone(&shared)))));
        Ok(Arc::new(InProcessLink(shared)))
    }
}

#[derive(Debug)]
struct InProcessLink(Arc<Shared>);

impl Drop for InProcessLink {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Link for InProcessLink {
    fn node(&self) -> NodeIdentity {
        self.0.node.identity
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn endpoint(&self, options: EndpointOptions) -> Result<Endpoint, Error> {
        if !self.0.is_alive() {
            return Err(self.0.lost());
        }
        let id = EndpointId(self.0.next_endpoint.fetch_add(1, Ordering::Relaxed));
        let inbox = Arc::new(Queue::default());
        lock(&self.0.inboxes).insert(id, Arc::clone(&inbox));
        let counts = self.0.counts.register(options.traffic);
        let transport = InProcessTransport { shared: Arc::clone(&self.0), id, inbox, failed: None };
        Ok(Endpoint::new(Box::new(transport), CAPABILITIES, options, counts))
    }

    fn allocate(&self, length: usize) -> Result<Region, Error> {
        Region::allocate(length, Backing::Private)
    }

    fn grant(&self, region: &Region, offset: u64, length: u64, rights: Rights) -> Result<AccessKey, Error> {
        if !self.0.is_alive() {
            return Err(self.0.lost());
        }
        self.0.exposed.grant(region, offset, length, rights)
    }

    fn revoke(&self, key: AccessKey) -> Result<Revocation, Error> {
        if self.0.exposed.revoke(key) { Ok(Revocation::complete()) } else { Err(Error::AccessDenied) }
    }

    fn counts(&self, traffic: Traffic) -> Counts {
        self.0.counts.sum(traffic)
    }

    fn is_alive(&self) -> bool {
        self.0.is_alive()
    }

    fn close(&self) {
        self.0.end();
    }
}

#[derive(Debug)]
struct InProcessPeer(Arc<Shared>);

impl InProcessPeer {
    fn inbox(&self, endpoint: EndpointId) -> Result<Arc<Queue<Incoming>>, Error> {
        if !self.0.is_alive() {
            return Err(self.0.lost());
        }
        lock(&self.0.inboxes).get(&endpoint).cloned().ok_or_else(|| self.0.lost())
    }
}

impl Peer for InProcessPeer {
    fn id(&self) -> PeerId {
        self.0.id
    }

    fn origin(&self) -> Origin {
        Origin::here()
    }

    fn grant(&self, region: &Region, offset: u64, length: u64, rights: Rights) -> Result<AccessKey, Error> {
        if !self.0.is_alive() {
            return Err(self.0.lost());
        }
        self.0.offered.grant(region, offset, length, rights)
    }

    fn revoke(&self, key: AccessKey) -> Result<Revocation, Error> {
        if self.0.offered.revoke(key) { Ok(Revocation::complete()) } else { Err(Error::AccessDenied) }
    }

    fn read(&self, endpoint: EndpointId, from: RemoteAddress, into: &mut [u8]) -> Result<(), Error> {
        self.inbox(endpoint)?;
        let granted = self.0.exposed.hold();
        let (region, offset) = granted.check(from, into.len() as u64, Rights::READ)?;
        region.read(offset, into)
    }

    fn write(
        &self,
        endpoint: EndpointId,
        to: RemoteAddress,
        bytes: &[u8],
        immediate: Option<u32>,
    ) -> Result<(), Error> {
        let inbox = self.inbox(endpoint)?;
        let granted = self.0.exposed.hold();
        let (region, offset) = granted.check(to, bytes.len() as u64, Rights::WRITE)?;
        region.write(offset, bytes)?;
        match immediate {
            Some(immediate) => inbox.push(Incoming::Immediate(immediate)),
            // A client that polls the memory may have gone to sleep.
            None => inbox.wake(),
        }
        Ok(())
    }

    fn send(&self, endpoint: EndpointId, bytes: &[u8]) -> Result<(), Error> {
        self.inbox(endpoint)?.push(Incoming::Message(bytes.to_vec()));
        Ok(())
    }

    fn is_alive(&self) -> bool {
        self.0.is_alive()
    }

    fn close(&self) {
        self.0.end();
    }
}

struct InProcessTransport {
    shared: Arc<Shared>,
    id: EndpointId,
    inbox: Arc<Queue<Incoming>>,
    failed: Option<Error>,
}

impl Drop for InProcessTransport {
    fn drop(&mut self) {
        lock(&self.shared.inboxes).remove(&self.id);
    }
}

impl InProcessTransport {
    fn execute(&self, granted: &Granted<'_>, operation: &mut Operation) -> Result<u64, Error> {
        match operation {
            Operation::Message(slot) => {
                let peer = Arc::new(InProcessPeer(Arc::clone(&self.shared)));
                let (bytes, place) = (slot.to_vec(), Place::default());
                self.shared.node.events.push(Event::Message { peer, endpoint: self.id, bytes, place });
                Ok(0)
            }
            Operation::Write { immediate: Some(_), .. } => Err(Error::Unsupported("an immediate to a node")),
            operation => perform(operation, |address, length, needs| granted.check(address, length, needs)),
        }
    }
}

/// Carries out a one-sided operation in place in the queue, on the memory that `check` allows. For an
/// atomic operation, returns the word before.
#[inline]
pub(crate) fn perform<'g>(
    operation: &mut Operation,
    check: impl Fn(RemoteAddress, u64, Rights) -> Result<(&'g Region, u64), Error>,
) -> Result<u64, Error> {
    match operation {
        Operation::Read { from, into } => {
            let (region, offset) = check(*from, into.len() as u64, Rights::READ)?;
            region.read(offset, into)?;
            Ok(0)
        }
        Operation::Write { to, payload, .. } => {
            let (region, offset) = check(*to, payload.length() as u64, Rights::WRITE)?;
            payload.write_to(region, offset)?;
            Ok(0)
        }
        Operation::CompareSwap { at, expected, new } => {
            let (region, offset) = check(*at, 8, Rights::ATOMIC)?;
            region.compare_swap(offset, *expected, *new)
        }
        Operation::FetchAdd { at, delta } => {
            let (region, offset) = check(*at, 8, Rights::ATOMIC)?;
            region.fetch_add(offset, *delta)
        }
        Operation::Message(_) => Err(Error::Protocol("a message is no one-sided operation".into())),
    }
}

/// Asks the processor to load what an operation needs from granted memory. A write does not wait for it.
#[inline]
pub(crate) fn prefetch(granted: &Granted<'_>, operation: &Operation) {
    match operation {
        Operation::Read { from, into } => granted.prefetch(*from, into.len()),
        Operation::CompareSwap { at, .. } | Operation::FetchAdd { at, .. } => granted.prefetch(*at, 8),
        Operation::Write { .. } | Operation::Message(_) => {}
    }
}

impl Transport for InProcessTransport {
    fn flush(&mut self, queue: &mut WorkQueue) {
        let shared = Arc::clone(&self.shared);
        let granted = shared.offered.hold();
        if queue.pending() > 1 {
            let all = (0..queue.pending()).filter_map(|skipped| queue.peek(skipped));
            all.for_each(|(_, operation)| prefetch(&granted, operation));
        }
        while let Some((_, operation)) = queue.current() {
            let result = match &self.failed {
                Some(Error::PeerLost { .. }) => Err(shared.lost()),
                Some(_) => Err(Error::Flushed),
                None if !shared.is_alive() => Err(shared.lost()),
                None => self.execute(&granted, operation),
            };
            match result {
                Ok(before) => queue.finish(before),
                Err(cause) => {
                    self.failed.get_or_insert_with(|| cause.clone());
                    queue.fail(cause);
                }
            }
        }
    }

    fn write_at_once(
        &mut self,
        to: RemoteAddress,
        from: &Region,
        offset: u64,
        length: usize,
        then: Option<Word>,
    ) -> Option<Result<(), Error>> {
        if self.failed.is_some() || !self.shared.is_alive() {
            return None;
        }
        let granted = self.shared.offered.hold();
        let written = granted.check(to, length as u64, Rights::WRITE).and_then(|(region, at)| {
            region.copy_from(at, from, offset, length)?;
            if let Some(Word { at, value }) = then {
                let (region, at) = granted.check(at, 8, Rights::WRITE)?;
                region.store(at, value.to_le())?;
            }
            granted.prefetch(to.add(length as u64), length);
            Ok(())
        });
        if let Err(cause) = &written {
            self.failed = Some(cause.clone());
        }
        Some(written)
    }

    fn poll(&mut self, _queue: &mut WorkQueue) {}

    fn block(&mut self, limit: Duration) {
        if self.shared.is_alive() {
            self.inbox.sleep(limit);
        }
    }

    fn receive(&mut self) -> Result<Option<Incoming>, Error> {
        match self.inbox.pop() {
            None if !self.shared.is_alive() => Err(self.shared.lost()),
            incoming => Ok(incoming),
        }
    }
}

/// The node's side.
#[derive(Debug)]
pub struct InProcessListener {
    node: Arc<Node>,
}

impl Drop for InProcessListener {
    fn drop(&mut self) {
        self.node.alive.store(false, Ordering::Release);
        let links = std::mem::take(&mut *lock(&self.node.links));
        for shared in links.iter().filter_map(Weak::upgrade) {
            shared.end();
        }
        // Events hold peers, which hold the node: break the cycle.
        lock(&self.node.events.items).clear();
    }
}

impl Listener for InProcessListener {
    fn address(&self) -> String {
        "local".into()
    }

    fn identity(&self) -> NodeIdentity {
        self.node.identity
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn allocate(&self, length: usize) -> Result<Region, Error> {
        Region::allocate(length, Backing::Private)
    }

    fn next(&mut self, limit: Duration) -> Result<Option<Event>, Error> {
        Ok(self.node.events.pop_within(limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outcome;

    #[test]
    fn reads_writes_atomics_and_counts() {
        let (mut listener, connector) = listen(1).unwrap();
        let link = connector.connect().unwrap();
        let Some(Event::Joined(peer)) = listener.next(Duration::from_secs(1)).unwrap() else { panic!("no link") };
        let region = listener.allocate(4096).unwrap();
        let key = peer.grant(&region, 0, 4096, Rights::ALL).unwrap();
        let mut endpoint = link.endpoint(EndpointOptions::default()).unwrap();
        endpoint.write(key.at(10), b"hello").unwrap();
        let mut back = [0; 5];
        endpoint.read(key.at(10), &mut back).unwrap();
        assert_eq!(&back, b"hello");
        assert_eq!(endpoint.fetch_add(key.at(64), 3).unwrap(), 0);
        assert_eq!(endpoint.compare_swap(key.at(64), 3, 9).unwrap(), 3);
        for i in 0..16 {
            let slot = endpoint.slot(8).unwrap();
            endpoint.post_read(key.at(8 * i), slot).unwrap();
        }
        for _ in 0..16 {
            let completion = endpoint.wait().unwrap();
            assert!(matches!(completion.result, Ok(Outcome::Read(_))));
        }
        let counts = link.counts(Traffic::Foreground);
        assert_eq!(
            counts,
            Counts {
                round_trips: 5,
                doorbells: 5,
                reads: 17,
                writes: 1,
                atomics: 2,
                messages: 0,
                bytes_read: 5 + 16 + 128,
                bytes_written: 5 + 16,
            }
        );
    }

    #[test]
    fn all_that_is_outstanding_is_waited_for() {
        let (mut listener, connector) = listen(1).unwrap();
        let link = connector.connect().unwrap();
        let Some(Event::Joined(peer)) = listener.next(Duration::ZERO).unwrap() else { panic!("nobody joined") };
        let region = listener.allocate(4096).unwrap();
        let key = peer.grant(&region, 0, 4096, Rights::ALL).unwrap();
        let mut endpoint = link.endpoint(EndpointOptions::default()).unwrap();
        let mut words = Vec::new();
        for _ in 0..40 {
            endpoint.post_fetch_add(key.at(8), 1).unwrap();
        }
        let mut keep = |_, outcome| {
            words.extend(if let Outcome::Word(word) = outcome { Some(word) } else { None });
            None
        };
        endpoint.wait_all(&mut keep).unwrap();
        endpoint.post_fetch_add(key.at(8), 1).unwrap();
        endpoint.post_fetch_add(key.at(4096), 1).unwrap();
        endpoint.post_fetch_add(key.at(8), 1).unwrap();
        assert_eq!(endpoint.wait_all(keep), Err(Error::OutOfBounds { offset: 4096, length: 8 }));
        assert_eq!((words, endpoint.outstanding()), ((0..41).collect(), 0));
        assert!(endpoint.failure().is_some());
        let counts = link.counts(Traffic::Foreground);
        assert_eq!((counts.atomics, counts.doorbells, counts.round_trips), (43, 2, 2));
    }

    #[test]
    fn a_stopped_node_fails_everything() {
        let (listener, connector) = listen(1).unwrap();
        let link = connector.connect().unwrap();
        let mut endpoint = link.endpoint(EndpointOptions::default()).unwrap();
        drop(listener);
        let error = endpoint.write(AccessKey::new(0, 0).at(0), &[0; 8]).unwrap_err();
        assert!(matches!(error, Error::PeerLost { .. }));
        assert!(!link.is_alive());
        assert!(connector.connect().is_err());
        assert!(endpoint.receive().is_err());
    }
}
