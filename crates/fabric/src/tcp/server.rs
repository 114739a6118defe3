//! The node's I/O thread: it plays the network adapter.
//!
//! It waits for sockets (edge-triggered, both directions, registered once), and gives each connection that may do
//! something its turn: by identity (by address, where nobody is asked), by link, and by what turns cost (`turns`). After
//! work it looks for more for [`SPIN`] without sleeping, because waking up costs more than most operations. It looks at
//! the connection that had work last more often than at all connections, because that is cheaper.
//!
//! A link that has the node for itself has long turns. As soon as two links have work within [`CROWDED_TURNS`] turns of
//! each other, turns are short, and after every few turns the thread looks who else is ready. So a flood costs others
//! some tens of microseconds, and a link that is alone pays nothing for that.

use super::buffer::Buffer;
use super::connection::{Allowance, Connection, Role, Turn};
use super::door::{Guest, Hall, network_of};
use super::events::Events;
use super::frame::{Failure, Frame, Hello, MAX_PIECE_BYTES, Welcome};
use super::inbox::{Inbox, Resumed};
use super::outlet::{Outlet, QUEUE_BYTES};
use super::peer::NodeLink;
use super::stream::timespec;
use super::wakers::Waker;
use super::{NodeIdentity, Options};
use crate::Error;
use crate::admission::{FEW_CONNECTIONS, Identity, Origin, Source, Standing, Tally, Turned};
use crate::transport::{Event, Peer};
use crate::turns::{self, QUANTUM, Turns};
use forebay_base::ErrorKind;
use forebay_env::HashMap;
use forebay_env::{Clock, Nanos, SystemClock};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustls::pki_types::UnixTime;
use std::fmt::Display;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// How long the thread looks for more work before it sleeps, nanoseconds.
const SPIN: Nanos = 30_000;
/// While it looks at one connection for more, it looks at all connections every this many rounds.
const ROUNDS_PER_WAIT: u32 = 16;
/// Rounds without work before each gives way to other threads.
const IDLE_ROUNDS: u32 = 16;
/// Turns that are short after two links had work.
const CROWDED_TURNS: u32 = 1024;
/// What accepting a link or an endpoint costs, in the unit of turns.
const INTRODUCTION_COST: u64 = 64 << 10;
/// Longest time between two looks for connections that take nothing; there are at least four looks in the time
/// that a client may take nothing.
const LONGEST_LOOK: Duration = Duration::from_secs(2);
/// Bytes of answers that wait in the queues of all connections together.
const MOST_QUEUED_BYTES: usize = 64 << 20;
/// The longest sleep while proofs may expire.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);
/// Names of what is waited for; connections are numbered from `FIRST_CONNECTION`.
const WAKER: u64 = 0;
const FIRST_CONNECTION: u64 = 1;

#[derive(Debug)]
pub(super) struct Server {
    identity: NodeIdentity,
    options: Options,
    waker: Arc<Waker>,
    events: Arc<Events>,
    /// Where admitted connections wait.
    hall: Arc<Hall>,
    tally: Arc<Tally>,
    epoll: OwnedFd,
    clock: SystemClock,
    connections: HashMap<u64, Connection>,
    next_connection: u64,
    links: HashMap<u64, Arc<NodeLink>>,
    next_link: u64,
    /// Connections that have something to do, by their owners.
    turns: Turns<u64, u64>,
    /// The connection that had work last, while it may soon have more.
    hot: Option<u64>,
    /// The link that had work last, and how many more turns are short.
    last_link: u64,
    crowded: u32,
    /// Whether admitted connections wait in the hall.
    has_guests: bool,
    /// Connections whose messages have room again.
    resumed: Arc<Resumed>,
    /// When it looks next for connections that take nothing.
    next_look: Nanos,
    /// Connections of each identity; of each address, where nobody is asked.
    of_one: HashMap<Holder, usize>,
    /// When the first proof expires that a link was let in for.
    expiry: Option<UnixTime>,
    scratch: Buffer,
}

impl Server {
    pub(super) fn new(
        identity: NodeIdentity,
        options: Options,
        waker: Arc<Waker>,
        events: Arc<Events>,
        (hall, tally): (Arc<Hall>, Arc<Tally>),
    ) -> Result<Self, Error> {
        let io = |e| Error::io("waiting for connections", e);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io)?;
        let resumed = Arc::new(Resumed::new(Arc::clone(&waker)));
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &*waker, epoll::EventData::new_u64(WAKER), edge).map_err(io)?;
        Ok(Self {
            identity,
            options,
            waker,
            events,
            hall,
            tally,
            epoll,
            clock: SystemClock::new(),
            connections: HashMap::default(),
            next_connection: FIRST_CONNECTION,
            links: HashMap::default(),
            next_link: 1,
            turns: Turns::default(),
            hot: None,
            last_link: 0,
            crowded: 0,
            has_guests: false,
            resumed,
            next_look: 0,
            of_one: HashMap::default(),
            expiry: None,
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
        let mut idle_rounds = 0u32;
        let mut rounds = 0u32;
        while !self.waker.is_stopped() {
            rounds = rounds.wrapping_add(1);
            let worked = match self.hot {
                // The next batch most likely comes from where the last one came: look there. But others also get
                // their turn, however busy this connection is.
                Some(id) if self.is_at_ease() && !rounds.is_multiple_of(ROUNDS_PER_WAIT) => self.look_at(id),
                _ => {
                    self.wait(&mut ready, last_work)?;
                    self.take_turns()
                }
            };
            let now = self.clock.now();
            if worked {
                (last_work, idle_rounds) = (now, 0);
            } else {
                idle_rounds = idle_rounds.wrapping_add(1);
                if now.saturating_sub(last_work) >= SPIN {
                    self.hot = None;
                } else if idle_rounds > IDLE_ROUNDS {
                    // With few cores, the thread that makes the next work may wait for this core.
                    forebay_env::sync::thread::yield_now();
                }
            }
            if now >= self.next_look {
                self.next_look = now.saturating_add(self.look().as_nanos() as Nanos);
                self.end_stuck(now);
            }
        }
        Ok(())
    }

    /// Gives a turn to a connection that may have something to do. Nobody waits, so the cost does not count.
    fn look_at(&mut self, id: u64) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        connection.readable = true;
        let link = connection.role.link().turn.link;
        let (worked, _) = self.turn(id);
        if worked {
            self.had_work(link);
        }
        worked
    }

    /// Notes that a link had work. If another link had work before, turns are short for a while.
    const fn had_work(&mut self, link: u64) {
        if std::mem::replace(&mut self.last_link, link) != link {
            self.crowded = CROWDED_TURNS;
        }
    }

    /// Whether nobody waits, and only one link had work lately.
    fn is_at_ease(&self) -> bool {
        self.turns.is_empty() && self.crowded == 0 && !self.has_guests
    }

    /// Gives turns to connections that have something to do. With several links, it does so only as long as
    /// others may have to wait before it looks for them. Returns whether there was anything to do.
    fn take_turns(&mut self) -> bool {
        let (mut worked, mut cost) = (false, 0);
        for _ in 0..self.turns.len() {
            let Some((turn, id)) = self.turns.next(|_, _| true) else { break };
            let (did, its) = self.turn(id);
            self.turns.charge(turn, its);
            worked |= did;
            cost += its;
            if did {
                self.had_work(turn.link);
            }
            self.crowded = self.crowded.saturating_sub(1);
            if self.crowded > 0 && cost >= QUANTUM {
                break;
            }
        }
        if self.has_guests {
            self.take_one_in();
        }
        worked
    }

    /// Waits for sockets that are ready: not at all while there is work or may soon be.
    fn wait(&mut self, ready: &mut Vec<epoll::Event>, last_work: Nanos) -> Result<(), Error> {
        let is_busy = !self.turns.is_empty() || self.has_guests || self.clock.now().saturating_sub(last_work) < SPIN;
        let limit = if is_busy { Some(Duration::ZERO) } else { self.longest_sleep() };
        ready.clear();
        match epoll::wait(&self.epoll, spare_capacity(ready), limit.map(timespec).as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Error::io("waiting for connections", errno)),
        }
        for event in ready {
            let flags = event.flags;
            self.take_event(event.data.u64(), flags);
        }
        if has_passed(self.expiry) {
            self.end_expired();
        }
        Ok(())
    }

    /// The time between two looks for connections that take nothing.
    fn look(&self) -> Duration {
        (self.options.peer_timeout / 4).clamp(Duration::from_millis(1), LONGEST_LOOK)
    }

    /// How long it may sleep when nothing happens.
    fn longest_sleep(&self) -> Option<Duration> {
        let look = if self.connections.is_empty() { None } else { Some(self.look()) };
        [self.expiry.map(until), look].into_iter().flatten().min()
    }

    fn take_event(&mut self, data: u64, flags: epoll::EventFlags) {
        match data {
            WAKER => {
                self.waker.clear();
                if self.waker.has_new_rules() {
                    self.judge_again();
                }
                self.has_guests = true;
                for id in self.resumed.take() {
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
                self.turns.push(connection.role.link().turn, 1, id);
            }
        }
    }

    /// Accepts one admitted connection, if there is room for its event.
    fn take_one_in(&mut self) {
        let guest = if self.events.has_room_for_link() { self.hall.next() } else { None };
        let Some(guest) = guest else {
            self.has_guests = false;
            return;
        };
        let source = guest.origin.source;
        if let Err(cause) = self.introduce(guest) {
            tracing::debug!(%source, %cause, "a connection ends before it began");
        }
    }

    /// Ends connections that have taken nothing of what waits for them for as long as a peer may take.
    fn end_stuck(&mut self, now: Nanos) {
        let patience = Nanos::try_from(self.options.peer_timeout.as_nanos()).unwrap_or(Nanos::MAX);
        let mut ended = Vec::new();
        for (id, connection) in &mut self.connections {
            // A thread that appends also sends: that is progress, or the next look will find it.
            let Some(out) = connection.outlet.try_lock() else { continue };
            connection.stuck = match connection.stuck {
                _ if out.queue.is_empty() => None,
                Some((taken, since)) if taken == out.taken => {
                    if now.saturating_sub(since) > patience {
                        ended.push(*id);
                    }
                    Some((taken, since))
                }
                _ => Some((out.taken, now)),
            };
        }
        for id in ended {
            self.close(id, Error::TimedOut(self.options.peer_timeout));
        }
    }

    /// Ends the links of those who would no longer be admitted.
    fn judge_again(&mut self) {
        let Some(admission) = &self.options.admission else { return };
        let rules = admission.rules();
        self.withdraw(|link| !rules.still_admit(&link.standing), "its proof is not taken any more");
    }

    /// Ends the links of those whose certificate has expired.
    fn end_expired(&mut self) {
        self.withdraw(|link| has_passed(link.standing.expiry()), "its certificate has expired");
        let left = self.links.values().map(|link| link.standing.expiry()).filter(|expiry| !has_passed(*expiry));
        self.expiry = left.flatten().min();
    }

    fn withdraw(&self, from: impl Fn(&NodeLink) -> bool, why: &'static str) {
        for link in self.links.values().filter(|link| from(link)) {
            self.tally.turned(
                Turned::Withdrawn,
                link.origin().source,
                format_args!("{}: {why}", link.origin().identity),
            );
            link.end(Error::lost(format_args!("link {}", link.id.0), why));
        }
    }

    /// Gives a connection its turn. Returns whether there was anything to do, and what that cost.
    fn turn(&mut self, id: u64) -> (bool, u64) {
        let queued_bytes = queue_share(self.connections.len());
        let is_crowded = self.crowded > 0;
        let Some(connection) = self.connections.get_mut(&id) else { return (false, 0) };
        connection.queued = false;
        let allowance = if is_crowded { Allowance::crowded(queued_bytes) } else { Allowance::alone(queued_bytes) };
        let turn = connection.turn(&mut self.scratch, &self.events, allowance);
        let (worked, cost) = (connection.worked, connection.cost as u64);
        match turn {
            Ok(Turn::Idle) if worked => self.hot = Some(id),
            // The socket's readiness continues the second, and room for messages the third.
            Ok(Turn::Idle | Turn::Full | Turn::Stalled) => {}
            Ok(Turn::Again) => self.enqueue(id, false),
            Err(cause) => self.close(id, cause),
        }
        (worked, cost)
    }

    /// Gives a connection its role, or refuses the connection and tells it so.
    fn introduce(&mut self, guest: Guest) -> Result<(), Error> {
        let Guest { stream, origin, standing, rules, hello, proof, received } = guest;
        let outlet = Arc::new(Outlet::new(stream, origin.source.to_string(), self.options.peer_timeout));
        let (holder, source) = (Holder::of(&origin), origin.source);
        let party = self.of_one.hasher().hash_one(&holder);
        // It may have been judged by rules that no longer hold.
        let now = self.options.admission.as_ref().map(|admission| admission.rules());
        let role = match now {
            Some(now) if !Arc::ptr_eq(&now, &rules) && !now.still_admit(&standing) => {
                Err(Error::denied(source, standing.denial()))
            }
            _ => self.role(&outlet, (origin, standing), hello, (&holder, party)),
        };
        match &role {
            Ok(_) => self.tally.admitted(),
            Err(cause) if cause.kind() == ErrorKind::Busy => self.tally.turned(Turned::Crowded, source, cause),
            Err(cause) => self.tally.turned(Turned::Refused, source, cause),
        }
        let mut out = outlet.lock();
        if let Some(proof) = proof {
            Frame::Proven(proof).encode(0, &mut out.queue);
        }
        match &role {
            Ok((_, welcome)) => Frame::Welcome(*welcome).encode(0, &mut out.queue),
            Err(Error::Remote { kind, message }) => {
                Frame::Refused { kind: *kind, text: message }.encode(0, &mut out.queue);
            }
            Err(cause) => Frame::Failed(Failure::of(cause)).encode(0, &mut out.queue),
        }
        let sent = outlet.send(&mut out);
        drop(out);
        let (role, _) = role?;
        let id = self.next_connection;
        self.next_connection += 1;
        // A party that reconnects again and again pays for it.
        self.turns.charge(role.link().turn, INTRODUCTION_COST);
        let inbox = Arc::new(Inbox::new(id, Arc::clone(&self.resumed)));
        let connection = Connection::new(outlet, role, inbox, received);
        *self.of_one.entry(holder).or_default() += 1;
        let both = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let watched = epoll::add(&self.epoll, &connection.outlet.stream, epoll::EventData::new_u64(id), both)
            .map_err(|errno| Error::io("watching a connection", errno));
        self.connections.insert(id, connection);
        // The link knows of the connection, so only `close` may end it.
        match sent.and(watched) {
            Ok(()) => self.enqueue(id, true),
            Err(cause) => self.close(id, cause),
        }
        Ok(())
    }

    /// What a connection becomes, and the answer to its hello.
    fn role(
        &mut self,
        outlet: &Arc<Outlet>,
        (origin, standing): (Origin, Standing),
        hello: Hello,
        (holder, party): (&Holder, u64),
    ) -> Result<(Role, Welcome), Error> {
        let Options { max_connections: most, max_connections_of_one: most_of_one, .. } = self.options;
        if self.connections.len() >= most {
            return Err(crowded("the node", most));
        }
        match self.of_one.get(holder).copied().unwrap_or_default() {
            count if count >= most_of_one => return Err(crowded(holder, most_of_one)),
            FEW_CONNECTIONS.. if self.connections.len() >= most_of_one => return Err(short_of_connections()),
            _ => {}
        }
        let NodeIdentity { node, incarnation } = self.identity;
        match hello {
            Hello::Control => {
                let link = self.next_link;
                self.next_link += 1;
                let who = (origin, standing);
                let turn = turns::Turn { party, link };
                let shared = Arc::new(NodeLink::new(turn, who, Arc::clone(outlet), Arc::clone(&self.events))?);
                self.expiry = [self.expiry, shared.standing.expiry()].into_iter().flatten().min();
                self.links.insert(link, Arc::clone(&shared));
                let token = shared.token;
                self.events.push(turn, Event::Joined(Arc::clone(&shared) as Arc<dyn Peer>));
                Ok((Role::Control(shared), Welcome { node, incarnation, link, token, endpoint: 0 }))
            }
            Hello::Endpoint { link, .. } => {
                let shared = self.links.get(&link).filter(|link| link.admits(hello, &origin.identity));
                let shared = shared.ok_or(Error::AccessDenied)?;
                let endpoint = shared.attach(outlet)?;
                let welcome = Welcome { node, incarnation, link, token: 0, endpoint: endpoint.0 };
                Ok((Role::Endpoint(Arc::clone(shared), endpoint), welcome))
            }
        }
    }

    fn close(&mut self, id: u64, cause: Error) {
        let Some(connection) = self.connections.remove(&id) else { return };
        tracing::debug!(connection = id, %cause, "a connection ends");
        // The peer may hold on to the socket for a while.
        let _ = epoll::delete(&self.epoll, &connection.outlet.stream);
        connection.outlet.end(cause.clone());
        let link = Arc::clone(connection.role.link());
        self.give_back(&link);
        match connection.role {
            Role::Endpoint(_, endpoint) => link.detach(endpoint),
            Role::Control(_) => {
                self.links.remove(&link.id.0);
                link.end(cause);
            }
        }
    }

    /// Counts one connection less for the owner of the link.
    fn give_back(&mut self, link: &NodeLink) {
        let holder = Holder::of(&link.origin());
        if let Some(count) = self.of_one.get_mut(&holder) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.of_one.remove(&holder);
            }
        }
    }
}

/// Bytes of answers that may wait in the queue of each of `connections` connections before it makes no more. The
/// last answer may exceed this by a piece.
fn queue_share(connections: usize) -> usize {
    (MOST_QUEUED_BYTES / connections.max(1)).saturating_sub(MAX_PIECE_BYTES).clamp(1, QUEUE_BYTES)
}

/// How long to sleep until then. Bounded, because the system's clock may be set meanwhile.
fn until(expiry: UnixTime) -> Duration {
    // The proof is still valid in its last second.
    let left = (expiry.as_secs() + 1).saturating_sub(UnixTime::now().as_secs());
    Duration::from_secs(left).min(LONGEST_SLEEP)
}

fn has_passed(expiry: Option<UnixTime>) -> bool {
    expiry.is_some_and(|expiry| expiry < UnixTime::now())
}

/// The error when somebody has as many connections as allowed.
fn crowded(who: impl Display, most: usize) -> Error {
    Error::Remote { kind: ErrorKind::Busy, message: format!("{who} has its most connections: {most}") }
}

/// The error when the remaining connections are for those who have fewer.
fn short_of_connections() -> Error {
    let message = format!("the node is short of connections, and nobody gets more than {FEW_CONNECTIONS} now");
    Error::Remote { kind: ErrorKind::Busy, message }
}

/// By whom connections are counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Holder {
    Known(Identity),
    From(IpAddr),
    Unknown,
}

impl Holder {
    fn of(origin: &Origin) -> Self {
        match (&origin.identity, origin.source) {
            (Identity::Anonymous, Source::Network(address)) => Self::From(network_of(address.ip())),
            (Identity::Anonymous, _) => Self::Unknown,
            (identity, _) => Self::Known(identity.clone()),
        }
    }
}

impl Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Known(identity) => write!(f, "{identity}"),
            Self::From(network) => write!(f, "whoever comes from {network}"),
            Self::Unknown => f.write_str("this process"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::socket::Socket;
    use super::super::stream::Stream;
    use super::*;
    use std::net::{TcpListener, TcpStream};

    /// A server that no thread runs, and its events.
    fn server() -> (Server, Arc<Events>) {
        let identity = NodeIdentity { node: 1, incarnation: 2 };
        let waker = Arc::new(Waker::new().unwrap());
        let events = Arc::new(Events::default());
        let shared = (Arc::new(Hall::new(Arc::clone(&waker))), Arc::new(Tally::default()));
        (Server::new(identity, Options::default(), waker, Arc::clone(&events), shared).unwrap(), events)
    }

    /// A guest who says this, and the other end of its connection.
    fn guest(hello: Hello) -> (Guest, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, from) = listener.accept().unwrap();
        let stream = Stream::plain(Socket::adopt(socket, None).unwrap());
        let origin = Origin { identity: Identity::Anonymous, source: Source::Network(from) };
        let (standing, rules, received) = (Standing::Nothing, Arc::default(), Vec::new());
        (Guest { stream, origin, standing, rules, hello, proof: None, received }, other)
    }

    /// As [`guest`], but it has reset the connection.
    fn gone_guest(hello: Hello) -> Guest {
        let (guest, other) = guest(hello);
        rustix::net::sockopt::set_socket_linger(&other, Some(Duration::ZERO)).unwrap();
        drop(other);
        guest
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no sockets")]
    fn a_guest_that_is_gone_before_its_welcome_leaves_nothing_behind() {
        let (mut server, events) = server();
        for _ in 0..3 {
            server.introduce(gone_guest(Hello::Control)).unwrap();
            let told = [(); 3].map(|()| events.next(Duration::ZERO).unwrap().0);
            assert!(matches!(told, [Some(Event::Joined(_)), Some(Event::Left { .. }), None]), "{told:?}");
        }
        assert!(server.links.is_empty() && server.connections.is_empty() && server.of_one.is_empty());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no sockets")]
    fn an_endpoint_that_is_gone_before_its_welcome_leaves_its_link() {
        let (mut server, _events) = server();
        let (first, _open) = guest(Hello::Control);
        server.introduce(first).unwrap();
        let link = Arc::clone(server.links.values().next().unwrap());
        server.introduce(gone_guest(Hello::Endpoint { link: link.id.0, token: link.token })).unwrap();
        assert_eq!((server.connections.len(), server.of_one.values().sum::<usize>()), (1, 1));
        let sent = [1, 99].map(|endpoint| link.send(crate::EndpointId(endpoint), b"there"));
        assert!(link.is_alive() && sent[0].is_err());
        assert_eq!(sent[0], sent[1], "it is as if it had never been");
    }

    #[test]
    fn queues_of_all_connections_are_bounded_together() {
        for connections in 1..=2000 {
            let share = queue_share(connections);
            assert!((1..=QUEUE_BYTES).contains(&share));
            let most = connections.min(1024) * (share + MAX_PIECE_BYTES);
            assert!(most <= MOST_QUEUED_BYTES + 1024, "{most} bytes with {connections}");
        }
        assert_eq!((queue_share(1), queue_share(200), queue_share(1024)), (QUEUE_BYTES, QUEUE_BYTES, 1));
    }
}
