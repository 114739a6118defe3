//! A serving node, as the cases see it.

use crate::{Connect, Node, Target};
use forebay_base::ErrorKind;
use forebay_env::sync::lock;
use forebay_env::thread::JoinHandle;
use forebay_env::{Clock, SystemClock};
use forebay_fabric::rpc::Request;
use forebay_fabric::{
    AccessKey, Capabilities, Endpoint, EndpointId, EndpointOptions, Error, Event, Link, Listener, NodeIdentity, Peer,
    PeerId, Region, Rights,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// How long the fixture waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// Procedures that the node serves.
pub mod procedure {
    /// Returns the arguments in reverse.
    pub const REVERSE: u16 = 1;
    /// Fails with [`forebay_base::ErrorKind::Full`] and the text "no more".
    pub const FAIL: u16 = 2;
    /// Returns the number of bytes that its argument (u32) says; byte `i` is `i` modulo 251.
    pub const PRODUCE: u16 = 3;
    /// Never answers.
    pub const IGNORE: u16 = 4;
    /// Takes 20 ms.
    pub const SLOW: u16 = 5;
}

/// A message that the node received and that was not an RPC.
#[derive(Debug, Clone)]
pub struct Message {
    /// From which link.
    pub peer: PeerId,
    /// From which endpoint of it.
    pub endpoint: EndpointId,
    /// What.
    pub bytes: Vec<u8>,
}

/// Both ends of a link.
#[derive(Debug, Clone)]
pub struct Connection {
    /// The client's.
    pub link: Arc<dyn Link>,
    /// The node's.
    pub peer: Arc<dyn Peer>,
}

impl Connection {
    /// An endpoint with the default options.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.link.endpoint(EndpointOptions::default()).expect("an endpoint on a link that is alive")
    }
}

type OnMessage = Box<dyn FnMut(&Message) + Send>;

#[derive(Default)]
struct Seen {
    /// Number of links opened.
    opened: usize,
    joined: Vec<Arc<dyn Peer>>,
    messages: Vec<Message>,
    left: Vec<(PeerId, Error)>,
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Seen>,
    changed: Condvar,
    on_message: Mutex<Option<OnMessage>>,
    stop: AtomicBool,
}

enum Command {
    Allocate(usize, mpsc::Sender<Region>),
}

/// A node with its server thread, and how to connect to it. The node dies when this is dropped.
pub struct Fixture {
    target: Target,
    running: Mutex<Running>,
    shared: Arc<Shared>,
}

struct Running {
    connect: Connect,
    address: String,
    identity: NodeIdentity,
    capabilities: Capabilities,
    commands: mpsc::Sender<Command>,
    server: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Fixture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fixture").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Fixture {
    /// Starts a node.
    #[must_use]
    pub fn start(target: &Target) -> Self {
        let shared = Arc::new(Shared::default());
        let running = Mutex::new(serve((target.start)(None), &shared));
        Self { target: target.clone(), running, shared }
    }

    /// What the back end promises.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        lock(&self.running).capabilities
    }

    /// The node's present identity.
    #[must_use]
    pub fn identity(&self) -> NodeIdentity {
        lock(&self.running).identity
    }

    /// Kills the node. Returns when it is dead.
    pub fn kill(&self) {
        let server = lock(&self.running).server.take();
        self.shared.stop.store(true, Ordering::Release);
        if let Some(server) = server {
            let ended = server.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the node panicked");
        }
    }

    /// Kills the node and starts it again.
    pub fn restart(&self) {
        self.kill();
        self.shared.stop.store(false, Ordering::Release);
        let address = lock(&self.running).address.clone();
        *lock(&self.running) = serve((self.target.start)(Some(&address)), &self.shared);
    }

    /// Memory of the node.
    #[must_use]
    pub fn allocate(&self, length: usize) -> Region {
        let (reply, region) = mpsc::channel();
        lock(&self.running).commands.send(Command::Allocate(length, reply)).expect("a node that lives");
        region.recv_timeout(PATIENCE).expect("memory from the node")
    }

    /// Opens a link without waiting for the node to notice.
    ///
    /// # Errors
    /// The back end's.
    pub fn try_connect(&self) -> Result<Arc<dyn Link>, Error> {
        let connect = Arc::clone(&lock(&self.running).connect);
        let link = connect()?;
        lock(&self.shared.seen).opened += 1;
        Ok(link)
    }

    /// Opens a link. Not for several threads at once: the next link that the node sees is taken
    /// to be this one.
    #[must_use]
    pub fn connect(&self) -> Connection {
        let before = self.wait_seen("earlier links", |seen| (seen.joined.len() >= seen.opened).then_some(seen.opened));
        let link = self.try_connect().expect("a link to a node that lives");
        let peer = self.wait_seen("a link", |seen| seen.joined.get(before).cloned());
        Connection { link, peer }
    }

    /// A link, a region of the node of `length` bytes, and a grant of all of it.
    #[must_use]
    pub fn granted(&self, length: usize, rights: Rights) -> (Connection, Region, AccessKey) {
        let connection = self.connect();
        let region = self.allocate(length);
        let key = connection.peer.grant(&region, 0, length as u64, rights).expect("a grant");
        (connection, region, key)
    }

    /// Makes the node's thread call `handler` for every message that is not an RPC.
    pub fn on_message(&self, handler: impl FnMut(&Message) + Send + 'static) {
        *lock(&self.shared.on_message) = Some(Box::new(handler));
    }

    /// Waits until the node has received `count` messages, and takes them.
    #[must_use]
    pub fn messages(&self, count: usize) -> Vec<Message> {
        self.wait_seen("messages", |seen| (seen.messages.len() >= count).then(|| std::mem::take(&mut seen.messages)))
    }

    /// Waits until the node has seen a link end.
    #[must_use]
    pub fn wait_left(&self, peer: PeerId) -> Error {
        self.wait_seen("the end of a link", |seen| seen.left.iter().find(|(id, _)| *id == peer).map(|(_, e)| e.clone()))
    }

    fn wait_seen<T>(&self, what: &str, mut take: impl FnMut(&mut Seen) -> Option<T>) -> T {
        let clock = SystemClock::new();
        let mut seen = lock(&self.shared.seen);
        loop {
            if let Some(found) = take(&mut seen) {
                return found;
            }
            assert!(clock.now() < PATIENCE.as_nanos() as u64, "the node did not see {what} within {PATIENCE:?}");
            let step = Duration::from_millis(50);
            seen = self.shared.changed.wait_timeout(seen, step).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Calls `done` until it is true.
///
/// # Panics
/// After a while.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    while !done() {
        assert!(clock.now() < PATIENCE.as_nanos() as u64, "not within {PATIENCE:?}: {what}");
        clock.sleep(Duration::from_micros(200));
    }
}

fn serve(node: Node, shared: &Arc<Shared>) -> Running {
    let Node { listener, connect } = node;
    let (address, identity, capabilities) = (listener.address(), listener.identity(), listener.capabilities());
    let (commands, inbox) = mpsc::channel();
    let shared = Arc::clone(shared);
    let server = forebay_env::thread::spawn("node", move || serve_loop(listener, &shared, &inbox)).expect("a thread");
    Running { connect, address, identity, capabilities, commands, server: Some(server) }
}

fn serve_loop(mut listener: Box<dyn Listener>, shared: &Shared, commands: &mpsc::Receiver<Command>) {
    while !shared.stop.load(Ordering::Acquire) {
        if let Ok(Command::Allocate(length, reply)) = commands.try_recv() {
            // A test that has given up no longer listens.
            let _ = reply.send(listener.allocate(length).expect("memory"));
        }
        match listener.next(Duration::from_millis(1)) {
            Ok(Some(event)) => take(event, shared),
            Ok(None) => {}
            Err(cause) => panic!("the node can serve no more: {cause}"),
        }
    }
}

fn take(event: Event, shared: &Shared) {
    match event {
        Event::Joined(peer) => lock(&shared.seen).joined.push(peer),
        Event::Left { peer, cause } => lock(&shared.seen).left.push((peer, cause)),
        Event::Message { peer, endpoint, bytes, .. } => match Request::decode(&bytes) {
            Ok(request) => answer(&request, &*peer, endpoint),
            Err(_) => {
                let message = Message { peer: peer.id(), endpoint, bytes };
                if let Some(handler) = &mut *lock(&shared.on_message) {
                    handler(&message);
                }
                lock(&shared.seen).messages.push(message);
            }
        },
    }
    shared.changed.notify_all();
}

/// Serves a call. The node ignores a caller that has gone meanwhile.
fn answer(request: &Request, peer: &dyn Peer, endpoint: EndpointId) {
    let Ok(mut arguments) = request.arguments(peer, endpoint) else { return };
    let result = match request.procedure {
        procedure::REVERSE => {
            arguments.reverse();
            Ok(arguments)
        }
        procedure::PRODUCE => {
            let length = arguments.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
            Ok((0..length).map(|i| (i % 251) as u8).collect())
        }
        procedure::IGNORE => return,
        procedure::SLOW => {
            SystemClock::new().sleep(Duration::from_millis(20));
            Ok(arguments)
        }
        _ => Err((ErrorKind::Full, "no more")),
    };
    let _ = request.reply(peer, endpoint, result.as_deref().map_err(|(kind, text)| (*kind, *text)));
}
