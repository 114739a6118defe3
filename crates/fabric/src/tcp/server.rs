//! The node's I/O thread: it plays the network adapter.
//!
//! It waits for sockets (edge-triggered, both directions, registered once), and gives each
//! connection that may do something one turn after the other. After work it keeps looking for more
//! without sleeping for [`SPIN`], because waking up costs more than most operations; it looks at the
//! connection that had work last more often than at all, because that is cheaper.

use super::buffer::Buffer;
use super::connection::{Connection, Role, Turn};
use super::door::{Guest, Hall, network_of};
use super::events::Events;
use super::frame::{Failure, Frame, Hello, MAX_PIECE_BYTES, Welcome};
use super::outlet::{Outlet, QUEUE_BYTES};
use super::peer::NodeLink;
use super::stream::timespec;
use super::wakers::Waker;
use super::{NodeIdentity, Options};
use crate::admission::{Identity, Origin, Source, Standing, Tally, Turned};
use crate::transport::{Event, Peer};
use crate::{Denial, Error, PeerId};
use forebay_env::HashMap;
use forebay_env::{Clock, Nanos, SystemClock};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustls::pki_types::UnixTime;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// How long it looks for more before it sleeps, nanoseconds.
const SPIN: Nanos = 30_000;
/// While it looks at one connection for more, every so many rounds it looks at all.
const ROUNDS_PER_WAIT: u32 = 16;
/// Rounds without work before each gives way to other threads.
const IDLE_ROUNDS: u32 = 16;
/// Bytes of answers that wait in the queues of all connections together.
const MOST_QUEUED_BYTES: usize = 64 << 20;
/// How long it sleeps at most while proofs may expire.
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
    /// Where those who were let in wait.
    hall: Arc<Hall>,
    tally: Arc<Tally>,
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
            turns: VecDeque::new(),
            hot: None,
            stalled: Vec::new(),
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
            match self.hot {
                // The next batch most likely comes where the last one came from: look there. But others
                // get their turn, too, however busy this one is.
                Some(id) if self.turns.is_empty() && !rounds.is_multiple_of(ROUNDS_PER_WAIT) => self.enqueue(id, true),
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
        }
        Ok(())
    }

    /// Waits for sockets that are ready: not at all while there is work or may soon be.
    fn wait(&mut self, ready: &mut Vec<epoll::Event>, last_work: Nanos) -> Result<(), Error> {
        let is_busy = !self.turns.is_empty() || self.clock.now().saturating_sub(last_work) < SPIN;
        let limit = if is_busy { Some(Duration::ZERO) } else { self.expiry.map(until) };
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

    fn take_event(&mut self, data: u64, flags: epoll::EventFlags) {
        match data {
            WAKER => {
                self.waker.clear();
                if self.waker.has_new_rules() {
                    self.judge_again();
                }
                self.take_in();
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

    /// Takes in those who were let in, while there is room for the events that they are.
    fn take_in(&mut self) {
        while self.events.has_room_for_link()
            && let Some(guest) = self.hall.next()
        {
            let source = guest.origin.source;
            if let Err(cause) = self.introduce(guest) {
                tracing::debug!(%source, %cause, "a connection ends before it began");
            }
        }
    }

    /// Ends the links of those who would not be let in any more.
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

    /// Gives a connection its turn. False when there was nothing to do.
    fn turn(&mut self, id: u64) -> bool {
        let most_queued = queue_share(self.connections.len());
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        connection.queued = false;
        let done = match connection.turn(&mut self.scratch, &self.events, most_queued) {
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
            Err(cause) => Err(cause),
        };
        match done {
            Ok(()) => self.enqueue(id, false),
            Err(cause) => self.close(id, cause),
        }
        true
    }

    /// Gives a connection its role, or refuses it, and says so.
    fn introduce(&mut self, guest: Guest) -> Result<(), Error> {
        let Guest { stream, origin, standing, rules, hello, proof, received } = guest;
        let outlet = Arc::new(Outlet::new(stream, origin.source.to_string(), self.options.peer_timeout));
        let (holder, source) = (Holder::of(&origin), origin.source);
        // It may have been judged by rules that are no more.
        let now = self.options.admission.as_ref().map(|admission| admission.rules());
        let role = match now {
            Some(now) if !Arc::ptr_eq(&now, &rules) && !now.still_admit(&standing) => {
                Err(Error::denied(source, standing.denial()))
            }
            _ => self.role(&outlet, (origin, standing), hello, &holder),
        };
        match &role {
            Ok(_) => self.tally.admitted(),
            Err(cause @ Error::NotAdmitted { cause: Denial::Crowded, .. }) => {
                self.tally.turned(Turned::Crowded, source, cause)
            }
            Err(cause) => self.tally.turned(Turned::Refused, source, cause),
        }
        let mut out = outlet.lock();
        if let Some(proof) = proof {
            Frame::Proven(proof).encode(0, &mut out.queue);
        }
        match &role {
            Ok((_, welcome)) => Frame::Welcome(*welcome).encode(0, &mut out.queue),
            Err(cause) => Frame::Failed(Failure::of(cause)).encode(0, &mut out.queue),
        }
        outlet.send(&mut out)?;
        drop(out);
        let (role, _) = role?;
        let id = self.next_connection;
        self.next_connection += 1;
        let connection = Connection::new(outlet, role, received);
        *self.of_one.entry(holder).or_default() += 1;
        let both = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let watched = epoll::add(&self.epoll, &connection.outlet.stream, epoll::EventData::new_u64(id), both);
        self.connections.insert(id, connection);
        match watched {
            Ok(()) => self.enqueue(id, true),
            Err(errno) => self.close(id, Error::io("watching a connection", errno)),
        }
        Ok(())
    }

    /// What a connection becomes, and the answer to its hello.
    fn role(
        &mut self,
        outlet: &Arc<Outlet>,
        (origin, standing): (Origin, Standing),
        hello: Hello,
        holder: &Holder,
    ) -> Result<(Role, Welcome), Error> {
        let of_one = self.of_one.get(holder).copied().unwrap_or_default();
        if self.connections.len() >= self.options.max_connections || of_one >= self.options.max_connections_of_one {
            return Err(Error::denied(origin.source, Denial::Crowded));
        }
        let NodeIdentity { node, incarnation } = self.identity;
        match hello {
            Hello::Control => {
                let link = self.next_link;
                self.next_link += 1;
                let who = (origin, standing);
                let shared = Arc::new(NodeLink::new(PeerId(link), who, Arc::clone(outlet), Arc::clone(&self.events))?);
                self.expiry = [self.expiry, shared.standing.expiry()].into_iter().flatten().min();
                self.links.insert(link, Arc::clone(&shared));
                let token = shared.token;
                self.events.push(Event::Joined(Arc::clone(&shared) as Arc<dyn Peer>));
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
        match connection.role {
            Role::Endpoint(link, endpoint) => {
                self.give_back(&link);
                link.detach(endpoint);
            }
            Role::Control(link) => {
                self.give_back(&link);
                self.links.remove(&link.id.0);
                link.end(cause);
            }
        }
    }

    /// One connection less of whoever has the link.
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

/// Bytes of answers that wait in the queue of each of so many connections before it makes no more. The last of them
/// may be a piece longer.
fn queue_share(connections: usize) -> usize {
    (MOST_QUEUED_BYTES / connections.max(1)).saturating_sub(MAX_PIECE_BYTES).clamp(1, QUEUE_BYTES)
}

/// How long to sleep until then, at most: the system's clock may be set meanwhile.
fn until(expiry: UnixTime) -> Duration {
    // It still holds in its last second.
    let left = (expiry.as_secs() + 1).saturating_sub(UnixTime::now().as_secs());
    Duration::from_secs(left).min(LONGEST_SLEEP)
}

fn has_passed(expiry: Option<UnixTime>) -> bool {
    expiry.is_some_and(|expiry| expiry < UnixTime::now())
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

#[cfg(test)]
mod tests {
    use super::*;

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
