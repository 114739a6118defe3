//! The node's I/O thread: it plays the network adapter.
//!
//! It waits for sockets (edge-triggered, both directions, registered once), and gives each
//! connection that may do something one turn after the other. After work it keeps looking for more
//! without sleeping for [`SPIN`], because waking up costs more than most operations; it looks at the
//! connection that had work last more often than at all, because that is cheaper.

use super::buffer::Buffer;
use super::connection::{Connection, Role, Turn};
use super::events::Events;
use super::frame::{Failure, Frame, Hello, Welcome};
use super::outlet::Outlet;
use super::peer::NodeLink;
use super::stream::{Stream, timespec};
use super::{NodeIdentity, Options};
use crate::transport::{Event, Peer};
use crate::{Error, PeerId};
use forebay_env::HashMap;
use forebay_env::{Clock, Nanos, SystemClock};
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, epoll};
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long it looks for more before it sleeps, nanoseconds.
const SPIN: Nanos = 30_000;
/// While it looks at one connection for more, every so many rounds it looks at all.
const ROUNDS_PER_WAIT: u32 = 16;
/// Rounds without work before each gives way to other threads.
const IDLE_ROUNDS: u32 = 16;
/// How often it looks after what no socket announces.
const UPKEEP: Duration = Duration::from_secs(1);
/// How long a connection may take to say who it is, nanoseconds.
const INTRODUCTION: Nanos = 5_000_000_000;
/// Names of what is waited for; connections are numbered from `FIRST_CONNECTION`.
const LISTENER: u64 = 0;
const WAKER: u64 = 1;
const FIRST_CONNECTION: u64 = 2;

/// How the rest of the node tells the I/O thread something.
#[derive(Debug)]
pub(super) struct Waker {
    event: OwnedFd,
    stop: AtomicBool,
}

impl Waker {
    pub(super) fn new() -> Result<Self, Error> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Error::io("creating an event counter", e))?;
        Ok(Self { event, stop: AtomicBool::new(false) })
    }

    /// There is room in the event queue.
    pub(super) fn wake(&self) {
        // It fails only when the counter is at its end: the thread is being woken then.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// The thread is to end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }
}

#[derive(Debug)]
pub(super) struct Server {
    identity: NodeIdentity,
    options: Options,
    listener: TcpListener,
    waker: Arc<Waker>,
    events: Arc<Events>,
    epoll: OwnedFd,
    clock: SystemClock,
    connections: HashMap<u64, Connection>,
    next_connection: u64,
    links: HashMap<u64, Arc<NodeLink>>,
    next_link: u64,
    /// Connections that have something to do.
    turns: VecDeque<u64>,
    /// The connection that had work last, while it may soon have more.
    hot: Option<u64>,
    /// Connections that wait for room in the event queue.
    stalled: Vec<u64>,
    /// Connections that have not said who they are.
    strangers: usize,
    /// Accepting failed, for want of descriptors perhaps.
    accept_again: bool,
    scratch: Buffer,
}

impl Server {
    pub(super) fn new(
        identity: NodeIdentity,
        options: Options,
        listener: TcpListener,
        waker: Arc<Waker>,
        events: Arc<Events>,
    ) -> Result<Self, Error> {
        let io = |e| Error::io("waiting for connections", e);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io)?;
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), edge).map_err(io)?;
        epoll::add(&epoll, &waker.event, epoll::EventData::new_u64(WAKER), edge).map_err(io)?;
        Ok(Self {
            identity,
            options,
            listener,
            waker,
            events,
            epoll,
            clock: SystemClock::new(),
            connections: HashMap::default(),
            next_connection: FIRST_CONNECTION,
            links: HashMap::default(),
            next_link: 1,
            turns: VecDeque::new(),
            hot: None,
            stalled: Vec::new(),
            strangers: 0,
            accept_again: false,
            scratch: Buffer::default(),
        })
    }

    /// Serves until told to stop; then all connections end.
    pub(super) fn run(mut self) {
        if let Err(cause) = self.serve() {
            tracing::error!(%cause, "the fabric's I/O thread ends");
            self.events.end(cause);
        }
        for link in self.links.values() {
            link.end(Error::lost(self.identity, "the node stops"));
        }
    }

    fn serve(&mut self) -> Result<(), Error> {
        let mut ready: Vec<epoll::Event> = Vec::with_capacity(256);
        let mut last_work = self.clock.now();
        let mut last_upkeep = last_work;
        let mut idle_rounds = 0u32;
        let mut rounds = 0u32;
        while !self.waker.stop.load(Ordering::Acquire) {
            rounds = rounds.wrapping_add(1);
            match self.hot {
                // The next batch most likely comes where the last one came from: look there. But others
                // get their turn, too, however busy this one is.
                Some(id) if !rounds.is_multiple_of(ROUNDS_PER_WAIT) => self.enqueue(id, true),
                _ => self.wait(&mut ready, last_work)?,
            }
            let mut worked = false;
            for _ in 0..self.turns.len() {
                if let Some(id) = self.turns.pop_front() {
                    worked |= self.turn(id);
                }
            }
            let now = self.clock.now();
            if worked {
                (last_work, idle_rounds) = (now, 0);
            } else {
                idle_rounds = idle_rounds.wrapping_add(1);
                if now.saturating_sub(last_work) >= SPIN {
                    self.hot = None;
                } else if idle_rounds > IDLE_ROUNDS {
                    // With few cores, whoever makes the next work may wait for this one.
                    forebay_env::sync::thread::yield_now();
                }
            }
            if now.saturating_sub(last_upkeep) > UPKEEP.as_nanos() as Nanos {
                last_upkeep = now;
                self.upkeep(now);
            }
        }
        Ok(())
    }

    /// Waits for sockets that are ready: not at all while there is work or may soon be.
    fn wait(&mut self, ready: &mut Vec<epoll::Event>, last_work: Nanos) -> Result<(), Error> {
        let limit = if !self.turns.is_empty() || self.clock.now().saturating_sub(last_work) < SPIN {
            Some(Duration::ZERO)
        } else {
            (self.strangers > 0 || self.accept_again).then_some(UPKEEP)
        };
        ready.clear();
        match epoll::wait(&self.epoll, spare_capacity(ready), limit.map(timespec).as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Error::io("waiting for connections", errno)),
        }
        for event in ready {
            let flags = event.flags;
            self.take_event(event.data.u64(), flags);
        }
        Ok(())
    }

    fn take_event(&mut self, data: u64, flags: epoll::EventFlags) {
        match data {
            LISTENER => self.accept(),
            WAKER => {
                // Empty already, if it was read after the event was made.
                let _ = rustix::io::read(&self.waker.event, &mut [0u8; 8]);
                for id in std::mem::take(&mut self.stalled) {
                    self.enqueue(id, false);
                }
            }
            id => self.enqueue(id, flags.intersects(!epoll::EventFlags::OUT)),
        }
    }

    /// Gives a connection a turn.
    fn enqueue(&mut self, id: u64, readable: bool) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.readable |= readable;
            if !std::mem::replace(&mut connection.queued, true) {
                self.turns.push_back(id);
            }
        }
    }

    fn accept(&mut self) {
        self.accept_again = false;
        loop {
            match self.listener.accept() {
                Ok(_) if self.connections.len() >= self.options.max_connections => {
                    tracing::warn!(limit = self.options.max_connections, "too many connections: one is refused");
                }
                Ok((socket, from)) => {
                    if let Err(cause) = self.admit(socket, from.to_string()) {
                        tracing::warn!(%from, %cause, "a connection is refused");
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection");
                    self.accept_again = true;
                    return;
                }
            }
        }
    }

    fn admit(&mut self, socket: std::net::TcpStream, name: String) -> std::io::Result<()> {
        let stream = Stream::adopt(socket, self.options.socket_bytes)?;
        let id = self.next_connection;
        self.next_connection += 1;
        let both = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(id), both)?;
        let outlet = Outlet::new(stream, name, self.options.peer_timeout);
        self.connections.insert(id, Connection::new(outlet, self.clock.now()));
        self.strangers += 1;
        Ok(())
    }

    /// Gives a connection its turn. False when there was nothing to do.
    fn turn(&mut self, id: u64) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        connection.queued = false;
        let done = match connection.turn(&mut self.scratch, &self.events) {
            Ok(Turn::Idle) => {
                let worked = connection.worked;
                if worked {
                    self.hot = Some(id);
                }
                return worked;
            }
            Ok(Turn::Full) => return connection.worked,
            Ok(Turn::Stalled) => {
                if !self.stalled.contains(&id) {
                    self.stalled.push(id);
                }
                return false;
            }
            Ok(Turn::Again) => Ok(()),
            Ok(Turn::Introduced(hello)) => self.introduce(id, hello),
            Err(cause) => Err(cause),
        };
        match done {
            Ok(()) => self.enqueue(id, false),
            Err(cause) => self.close(id, cause),
        }
        true
    }

    /// Gives a stranger its role, or refuses it.
    fn introduce(&mut self, id: u64, hello: Hello) -> Result<(), Error> {
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        let NodeIdentity { node, incarnation } = self.identity;
        let outlet = Arc::clone(&connection.outlet);
        let answer = match hello {
            Hello::Control => {
                let link = self.next_link;
                self.next_link += 1;
                let shared = NodeLink::new(PeerId(link), Arc::clone(&outlet), Arc::clone(&self.events))?;
                let shared = Arc::new(shared);
                connection.role = Role::Control(Arc::clone(&shared));
                self.links.insert(link, Arc::clone(&shared));
                let token = shared.token;
                self.events.push(Event::Joined(shared as Arc<dyn Peer>));
                Ok(Welcome { node, incarnation, link, token, endpoint: 0 })
            }
            Hello::Endpoint { link, .. } => match self.links.get(&link).filter(|link| link.admits(hello)) {
                Some(shared) => {
                    let endpoint = shared.attach(&outlet)?;
                    connection.role = Role::Endpoint(Arc::clone(shared), endpoint);
                    Ok(Welcome { node, incarnation, link, token: 0, endpoint: endpoint.0 })
                }
                None => Err(Error::AccessDenied),
            },
        };
        let mut out = outlet.lock();
        match answer {
            Ok(welcome) => Frame::Welcome(welcome).encode(0, &mut out.queue),
            Err(ref cause) => Frame::Failed(Failure::of(cause)).encode(0, &mut out.queue),
        }
        outlet.send(&mut out)?;
        drop(out);
        answer?;
        self.strangers = self.strangers.saturating_sub(1);
        Ok(())
    }

    fn close(&mut self, id: u64, cause: Error) {
        let Some(connection) = self.connections.remove(&id) else { return };
        tracing::debug!(connection = id, %cause, "a connection ends");
        // The peer may hold on to the socket for a while.
        let _ = epoll::delete(&self.epoll, &connection.outlet.stream);
        connection.outlet.end(cause.clone());
        match connection.role {
            Role::Stranger => self.strangers = self.strangers.saturating_sub(1),
            Role::Endpoint(link, endpoint) => link.detach(endpoint),
            Role::Control(link) => {
                self.links.remove(&link.id.0);
                link.end(cause);
            }
        }
        if self.accept_again {
            self.accept();
        }
    }

    fn upkeep(&mut self, now: Nanos) {
        if self.accept_again {
            self.accept();
        }
        if self.strangers > 0 {
            let late = |c: &Connection| matches!(c.role, Role::Stranger) && now.saturating_sub(c.opened) > INTRODUCTION;
            let late: Vec<u64> = self.connections.iter().filter(|(_, c)| late(c)).map(|(id, _)| *id).collect();
            for id in late {
                self.close(id, Error::Protocol("a connection that does not say who it is".into()));
            }
        }
    }
}
