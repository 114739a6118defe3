//! A peer and a listener that a test controls.

use forebay_base::{Writer, envelope_checksum};
use forebay_env::ManualClock;
use forebay_env::sync::lock;
use forebay_fabric::admission::Origin;
use forebay_fabric::{
    AccessKey, Backing, Capabilities, EndpointId, Error, Event, Listener, NodeIdentity, Peer, PeerId, Place, Pull,
    Region, RemoteAddress, Revocation, Rights, rpc,
};
use forebay_proto::Procedure;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

pub(crate) const ENDPOINT: EndpointId = EndpointId(1);
/// An endpoint that may leave its replies untaken.
pub(crate) const OTHER: EndpointId = EndpointId(2);

/// A peer that records what it is told, and answers nothing but the pulls that a test chooses.
#[derive(Debug)]
pub(crate) struct FakePeer {
    pub id: u64,
    /// How often it was asked for its number.
    pub asked: AtomicUsize,
    pub next_key: AtomicU32,
    /// Grants fail from the key of this number on.
    pub end_of_keys: AtomicU32,
    /// Keys that are being revoked, until [`FakePeer::let_go`].
    pub revoked: Mutex<Vec<(AccessKey, Revocation)>>,
    /// Answers to the next pulls. Further pulls never end.
    pub arguments: Mutex<VecDeque<Vec<u8>>>,
    /// Pulls that have begun and were not dropped.
    pub pulls: Arc<AtomicUsize>,
    /// How often a pull was polled.
    pub polls: Arc<AtomicUsize>,
    /// Replies, perhaps to other peers also: the peer, the number of the request, the status.
    pub replies: Arc<Mutex<Vec<(u64, u64, u8)>>>,
    pub is_closed: AtomicBool,
    /// Bytes that its endpoint [`OTHER`] has not taken.
    pub unsent: AtomicUsize,
    /// How long each of its calls takes from now on.
    pub slow: OnceLock<(Arc<ManualClock>, Duration)>,
}

impl FakePeer {
    pub fn new(id: u64) -> Self {
        Self {
            id,
            asked: AtomicUsize::new(0),
            next_key: AtomicU32::new(1),
            end_of_keys: AtomicU32::new(u32::MAX),
            revoked: Mutex::default(),
            arguments: Mutex::default(),
            pulls: Arc::default(),
            polls: Arc::default(),
            replies: Arc::default(),
            is_closed: AtomicBool::new(false),
            unsent: AtomicUsize::new(0),
            slow: OnceLock::new(),
        }
    }

    /// Releases the key that was revoked first.
    pub fn let_go(&self) {
        lock(&self.revoked).remove(0).1.finish();
    }
}

/// A pull that ends at once, or never.
#[derive(Debug)]
struct FakePull {
    answer: Option<Vec<u8>>,
    pulls: Arc<AtomicUsize>,
    polls: Arc<AtomicUsize>,
}

impl Pull for FakePull {
    fn poll(&mut self) -> Option<Result<Vec<u8>, Error>> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        self.answer.take().map(Ok)
    }
}

impl Drop for FakePull {
    fn drop(&mut self) {
        self.pulls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Peer for FakePeer {
    fn id(&self) -> PeerId {
        self.asked.fetch_add(1, Ordering::Relaxed);
        PeerId(self.id)
    }

    fn origin(&self) -> Origin {
        Origin::here()
    }

    fn grant(&self, _: &Region, _: u64, _: u64, _: Rights) -> Result<AccessKey, Error> {
        if self.next_key.load(Ordering::Relaxed) >= self.end_of_keys.load(Ordering::Relaxed) {
            return Err(Error::Invalid("no more grants".into()));
        }
        Ok(AccessKey::new(self.next_key.fetch_add(1, Ordering::Relaxed), 1))
    }

    fn revoke(&self, key: AccessKey) -> Result<Revocation, Error> {
        let revocation = Revocation::pending();
        lock(&self.revoked).push((key, revocation.clone()));
        Ok(revocation)
    }

    fn read(&self, _: EndpointId, _: RemoteAddress, _: &mut [u8]) -> Result<(), Error> {
        unreachable!("the node waits for a client")
    }

    fn write(&self, _: EndpointId, _: RemoteAddress, bytes: &[u8], _: Option<u32>) -> Result<(), Error> {
        let number = bytes.get(8..16).and_then(|number| number.try_into().ok()).map_or(0, u64::from_le_bytes);
        lock(&self.replies).push((self.id, number, bytes.get(16).copied().unwrap_or(u8::MAX)));
        if let Some((clock, long)) = self.slow.get() {
            clock.advance(*long);
        }
        Ok(())
    }

    fn unsent(&self, endpoint: EndpointId) -> usize {
        if endpoint == OTHER { self.unsent.load(Ordering::Relaxed) } else { 0 }
    }

    fn pull(&self, _: EndpointId, _: RemoteAddress, _: usize) -> Result<Box<dyn Pull>, Error> {
        self.pulls.fetch_add(1, Ordering::Relaxed);
        let answer = lock(&self.arguments).pop_front();
        Ok(Box::new(FakePull { answer, pulls: Arc::clone(&self.pulls), polls: Arc::clone(&self.polls) }))
    }

    fn send(&self, _: EndpointId, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }

    fn is_alive(&self) -> bool {
        !self.is_closed.load(Ordering::Relaxed)
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }
}

/// A listener whose events a test chooses.
#[derive(Debug, Default, Clone)]
pub(crate) struct FakeListener(Arc<Mutex<VecDeque<Event>>>);

impl FakeListener {
    pub fn joined(&self, peer: &Arc<FakePeer>) {
        let peer = Arc::clone(peer);
        lock(&self.0).push_back(Event::Joined(peer));
    }

    pub fn left(&self, peer: &FakePeer) {
        let cause = Error::Invalid("it left".into());
        lock(&self.0).push_back(Event::Left { peer: peer.id(), cause });
    }

    /// Delivers a request, with arguments inside it or of this length elsewhere.
    pub fn request(&self, peer: &Arc<FakePeer>, procedure: Procedure, number: u64, arguments: Result<&[u8], u32>) {
        self.deliver((peer, ENDPOINT), procedure, number, arguments.map_err(|length| (length, 0)));
    }

    /// Delivers a request of the endpoint [`OTHER`].
    pub fn request_of_other(&self, peer: &Arc<FakePeer>, procedure: Procedure, number: u64, arguments: &[u8]) {
        self.deliver((peer, OTHER), procedure, number, Ok(arguments));
    }

    /// Delivers a request whose arguments the peer answers to its next pull.
    pub fn request_to_pull(&self, peer: &Arc<FakePeer>, procedure: Procedure, number: u64, arguments: Vec<u8>) {
        let reference = (arguments.len() as u32, envelope_checksum(&arguments));
        lock(&peer.arguments).push_back(arguments);
        self.deliver((peer, ENDPOINT), procedure, number, Err(reference));
    }

    /// Delivers a request, with arguments inside it or elsewhere: their length and checksum.
    fn deliver(
        &self,
        (peer, endpoint): (&Arc<FakePeer>, EndpointId),
        procedure: Procedure,
        number: u64,
        arguments: Result<&[u8], (u32, u32)>,
    ) {
        let mut body = Vec::new();
        body.put_u8(2);
        body.put_u8(if arguments.is_ok() { 0 } else { 2 });
        body.put_u16(procedure as u16);
        body.put_u64(number);
        rpc::put_key(&mut body, AccessKey::new(0, 0));
        body.put_u64(0);
        body.put_u32(4096);
        body.put_u32(0);
        match arguments {
            Ok(bytes) => body.extend_from_slice(bytes),
            Err((length, checksum)) => {
                rpc::put_key(&mut body, AccessKey::new(0, 0));
                body.put_u64(0);
                body.put_u32(length);
                body.put_u32(checksum);
            }
        }
        let bytes = [&envelope_checksum(&body).to_le_bytes()[..], &body].concat();
        let peer = Arc::clone(peer);
        lock(&self.0).push_back(Event::Message { peer, endpoint, bytes, place: Place::default() });
    }

    /// Whether all events were taken.
    pub fn is_idle(&self) -> bool {
        lock(&self.0).is_empty()
    }
}

impl Listener for FakeListener {
    fn address(&self) -> String {
        "fake".into()
    }

    fn identity(&self) -> NodeIdentity {
        NodeIdentity { node: 1, incarnation: 1 }
    }

    fn capabilities(&self) -> Capabilities {
        unreachable!("the node asks for none")
    }

    fn allocate(&self, length: usize) -> Result<Region, Error> {
        Region::allocate(length, Backing::Private)
    }

    fn next(&mut self, _: Duration) -> Result<Option<Event>, Error> {
        Ok(lock(&self.0).pop_front())
    }
}
