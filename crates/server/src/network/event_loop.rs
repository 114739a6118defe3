//! A thread, and the connections that it serves.
//!
//! The first thread also accepts connections, which it gives to all threads in turn, removes expired keys, and answers
//! clients that wait for a busy script.
//!
//! In each pass, all ready connections have their turns, in the order in which they became ready. In an order of their own,
//! those at its end would again and again come just too late for a pass, and wait for two of them.
//!
//! Short replies wait until all ready connections had their turns, but not for long. Then a client that has many
//! connections in one thread, as most clients do, is woken once for all of them. To wake it for each takes as long as to
//! serve it.

use crate::commands::command::Registry;
use crate::execute::Executor;
use crate::network::connection::{Connection, Turn};
use crate::network::expiry;
use crate::network::farewell::{self, Farewell};
use crate::network::refusals::Refusals;
use crate::state::clients::Client;
use crate::state::counters::{Count, Counters};
use crate::state::mailbox::{Mailbox, Message};
use crate::state::session::Session;
use crate::state::shared::Shared;
use crate::stream::{self, Stream};
use forebay::admission::Admission;
use forebay_env::{HashSet, Nanos};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use rustls::ServerConfig;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The token with which the thread's mailbox wakes it.
pub const MAIL: Token = Token(0);
const LISTENER: Token = Token(1);
const TLS_LISTENER: Token = Token(2);
/// Tokens of connections are their clients' numbers plus this.
const CONNECTIONS: usize = 3;
/// How long a client may take to prove that it speaks TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often the first thread looks for expired keys, for a busy script, and for connections that the system refused to
/// accept.
const SWEEP: Duration = Duration::from_millis(100);
/// How long a short reply waits for the turns of other connections, in addition to the current turn.
const LINGER: Duration = Duration::from_micros(500);
/// How often a thread looks for clients that do nothing.
const LOOK: Duration = Duration::from_secs(1);
/// How many events are taken at a time.
pub const EVENTS: usize = 1024;
/// How many connections are accepted at a time.
const ACCEPTS: usize = 128;

const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";
const PROTECTED: &[u8] =
    b"-DENIED Forebay is running in protected mode: no password is set, and the connection does not \
come from this machine. Set a password, or turn protected mode off.\r\n";

/// A thread that serves connections.
pub struct EventLoop {
    shared: Arc<Shared>,
    registry: Arc<Registry>,
    counters: Arc<Counters>,
    poll: Poll,
    mailbox: Arc<Mailbox>,
    connections: BTreeMap<u64, Connection>,
    /// Clients that are refused within TLS.
    farewells: BTreeMap<u64, Farewell>,
    /// When the waits of clients end.
    deadlines: BTreeSet<(Nanos, u64)>,
    /// Connections that have more to do. They may have ended since.
    going_on: Ready,
    /// Connections whose turns have to be ended, and when the first of these turns began.
    answered: Vec<u64>,
    answered_since: Nanos,
    spare: Vec<u8>,
    door: Option<Door>,
    refusals: Refusals,
    /// When to try again to accept connections, which the system refused.
    refused_until: Option<Nanos>,
}

impl std::fmt::Debug for EventLoop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventLoop").field("connections", &self.connections.len()).finish_non_exhaustive()
    }
}

/// Connections that are ready: each once, in the order in which they came.
#[derive(Debug, Default)]
struct Ready {
    order: Vec<u64>,
    ids: HashSet<u64>,
}

impl Ready {
    fn insert(&mut self, id: u64) {
        if self.ids.insert(id) {
            self.order.push(id);
        }
    }
}

/// Where connections come in.
#[derive(Debug)]
pub struct Door {
    /// The socket, unless all connections are within TLS.
    pub plain: Option<TcpListener>,
    /// The socket of connections within TLS, and what clients must prove.
    pub tls: Option<(TcpListener, Arc<Admission>)>,
    /// The threads that serve connections.
    pub threads: Vec<Arc<Mailbox>>,
    /// The thread that gets the next one.
    pub next: usize,
}

impl EventLoop {
    /// Makes a thread with this mailbox, whose waker belongs to `poll`.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn new(
        shared: Arc<Shared>,
        registry: Arc<Registry>,
        poll: Poll,
        mailbox: Arc<Mailbox>,
        mut door: Option<Door>,
    ) -> std::io::Result<Self> {
        if let Some(Door { plain, tls, .. }) = &mut door {
            let tls = tls.as_mut().map(|(listener, _)| (listener, TLS_LISTENER));
            for (listener, token) in plain.as_mut().map(|listener| (listener, LISTENER)).into_iter().chain(tls) {
                poll.registry().register(listener, token, Interest::READABLE)?;
            }
        }
        let (connections, deadlines, going_on) = (BTreeMap::new(), BTreeSet::new(), Ready::default());
        let counters = shared.counts.of_thread(registry.numbers());
        let (answered, answered_since, spare, refused_until) = (Vec::new(), 0, Vec::new(), None);
        Ok(Self {
            shared,
            registry,
            counters,
            poll,
            mailbox,
            connections,
            farewells: BTreeMap::new(),
            deadlines,
            going_on,
            answered,
            answered_since,
            spare,
            door,
            refusals: Refusals::default(),
            refused_until,
        })
    }

    /// Serves until it is told to stop. It takes this many events at a time.
    ///
    /// # Errors
    /// Those of waiting for events. Then the server stops.
    pub fn run(mut self, events_at_a_time: usize) -> std::io::Result<()> {
        let mut events = Events::with_capacity(events_at_a_time);
        let mut swept_at = self.shared.clock.now();
        let mut looked_at = swept_at;
        let (mut may_accept, mut may_sweep) = (false, false);
        loop {
            let timeout = self.timeout(may_accept || may_sweep);
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != ErrorKind::Interrupted
            {
                tracing::error!(%error, "waiting for connections");
                self.shared.stop();
                return Err(error);
            }
            let mut ready = std::mem::take(&mut self.going_on);
            for event in &events {
                match event.token() {
                    MAIL => {}
                    LISTENER | TLS_LISTENER => may_accept = true,
                    Token(token) => {
                        let id = token.saturating_sub(CONNECTIONS) as u64;
                        if let Some(connection) = self.connections.get_mut(&id) {
                            let readable = event.is_readable() || event.is_error();
                            connection.is_ready(readable, event.is_writable(), event.is_read_closed());
                            ready.insert(id);
                        } else {
                            self.say_farewell(id);
                        }
                    }
                }
            }
            for message in self.mailbox.take() {
                match message {
                    Message::Serve(socket, tls) => self.admit(socket, tls, &mut ready),
                    Message::Send { client, letter } => {
                        let connection = self.connections.get_mut(&client);
                        if connection.is_some_and(|connection| !connection.push(&letter)) {
                            tracing::info!(client, "a client does not take what it has subscribed to");
                            self.end(client);
                        } else {
                            ready.insert(client);
                        }
                    }
                    Message::Unblock { client, bytes } => {
                        self.forget_deadline(client);
                        if let Some(connection) = self.connections.get_mut(&client) {
                            connection.dialogue.unblock(bytes);
                            ready.insert(client);
                        }
                    }
                    Message::Release(client) => {
                        self.forget_deadline(client);
                        if let Some(connection) = self.connections.get_mut(&client) {
                            connection.dialogue.release();
                            ready.insert(client);
                        }
                    }
                    Message::Kill(client) => self.end(client),
                    Message::Stop => {
                        self.end_all();
                        return Ok(());
                    }
                }
            }
            if may_accept || self.refused_until.is_some_and(|until| until <= self.shared.clock.now()) {
                may_accept = self.accept(&mut ready);
            }
            self.end_waits(&mut ready);
            for id in ready.order {
                self.turn(id);
            }
            self.end_turns();
            let now = self.shared.clock.now();
            if self.door.is_some() && (may_sweep || now.saturating_sub(swept_at) >= SWEEP.as_nanos() as u64) {
                // When there are more expired keys, the next sweep follows as soon as connections were served.
                may_sweep = self.sweep();
                swept_at = now;
            }
            if now.saturating_sub(looked_at) >= LOOK.as_nanos() as u64 {
                self.end_idle(now);
                looked_at = now;
            }
        }
    }

    /// How long to wait for events.
    fn timeout(&self, has_more: bool) -> Option<Duration> {
        if has_more || !self.going_on.order.is_empty() {
            return Some(Duration::ZERO);
        }
        let now = self.shared.clock.now();
        let next = self.deadlines.first().map(|(until, _)| *until).into_iter().chain(self.refused_until).min();
        let next = next.map(|until| Duration::from_nanos(until.saturating_sub(now)));
        let look = if self.door.is_some() { SWEEP } else { LOOK };
        // The system counts in milliseconds, and rounds up.
        Some(next.map_or(look, |next| next.min(look)))
    }

    fn forget_deadline(&mut self, id: u64) {
        if let Some(until) = self.connections.get(&id).and_then(Connection::waits_until) {
            self.deadlines.remove(&(until, id));
        }
    }

    /// Lets connections continue whose time to wait is over.
    fn end_waits(&mut self, ready: &mut Ready) {
        let now = self.shared.clock.now();
        while let Some((until, id)) = self.deadlines.first().copied().filter(|(until, _)| *until <= now) {
            self.deadlines.pop_first();
            let Some(connection) = self.connections.get_mut(&id) else {
                self.farewells.remove(&id);
                continue;
            };
            if connection.is_late(now) {
                self.refusals.tell(now, connection.address(), "it has not finished its handshake in time");
                self.end(id);
                continue;
            }
            if connection.dialogue.session.held_until == Some(until) {
                connection.dialogue.release();
                ready.insert(id);
                continue;
            }
            let Some(waiter) = connection.dialogue.session.blocked.clone().filter(|waiter| waiter.until == Some(until))
            else {
                continue;
            };
            // Otherwise another thread has ended the wait, and its reply is on its way.
            if let Some(claim) = waiter.claim() {
                claim.end();
                self.shared.waiting.remove(&waiter);
                connection.dialogue.unblock(waiter.nothing.clone());
                ready.insert(id);
            }
        }
    }

    fn sweep(&self) -> bool {
        let executor = Executor { shared: &self.shared, registry: &self.registry, counters: &self.counters };
        executor.turn_jobs_away();
        self.shared.memory();
        let begun = self.shared.clock.now();
        self.shared.counts.sample(begun);
        let has_more = expiry::remove_some(&executor).unwrap_or_else(|failure| {
            tracing::warn!(reason = failure.message(), "removing keys that have expired");
            false
        });
        self.counters.add(Count::ExpiryNanos, self.shared.clock.now().saturating_sub(begun));
        has_more
    }

    /// Ends connections whose clients have done nothing for as long as `timeout` says.
    fn end_idle(&mut self, now: Nanos) {
        let timeout_s = u64::try_from(self.shared.config.number("timeout")).unwrap_or(0);
        let Some(since) = now.checked_sub(timeout_s.saturating_mul(1_000_000_000)).filter(|_| timeout_s > 0) else {
            return;
        };
        let idle = self.connections.iter().filter(|(_, connection)| connection.is_idle_since(since));
        for id in idle.map(|(id, _)| *id).collect::<Vec<_>>() {
            tracing::debug!(client = id, "a client has done nothing for too long");
            self.end(id);
        }
    }

    fn turn(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let executor = Executor { shared: &self.shared, registry: &self.registry, counters: &self.counters };
        if !connection.turn(&executor, &mut self.spare) {
            return self.end_turn(id);
        }
        let began_at = connection.active_at();
        if self.answered.is_empty() {
            self.answered_since = began_at;
        }
        self.answered.push(id);
        if began_at.saturating_sub(self.answered_since) > LINGER.as_nanos() as u64 {
            self.end_turns();
        }
    }

    fn end_turns(&mut self) {
        let mut answered = std::mem::take(&mut self.answered);
        answered.drain(..).for_each(|id| self.end_turn(id));
        self.answered = answered;
    }

    fn end_turn(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let executor = Executor { shared: &self.shared, registry: &self.registry, counters: &self.counters };
        match connection.end_turn(&executor) {
            Turn::Waits if connection.is_given_up() => self.end(id),
            Turn::Waits => self.deadlines.extend(connection.waits_until().map(|until| (until, id))),
            Turn::GoesOn => {
                self.going_on.insert(id);
            }
            Turn::Ends => {
                if let Some(why) = connection.refusal() {
                    self.refusals.tell(self.shared.clock.now(), connection.address(), &format!("TLS: {why}"));
                }
                self.end(id);
            }
        }
    }

    /// Accepts connections. Returns true when there may be more.
    fn accept(&mut self, ready: &mut Ready) -> bool {
        for _ in 0..ACCEPTS {
            let Some(door) = &mut self.door else { return false };
            match door.accept() {
                Ok((socket, address, admission)) => {
                    if let Some((reply, why)) = refusal(&self.shared, &self.counters, address, admission.as_deref()) {
                        self.refusals.tell(self.shared.clock.now(), address, why);
                        match admission {
                            Some(admission) => self.turn_away_within(socket, admission.tls(), reply),
                            None => turn_away(socket, reply),
                        }
                        continue;
                    }
                    let tls = admission.and_then(|admission| admission.tls());
                    let thread = door.next;
                    door.next = (door.next + 1) % door.threads.len().max(1);
                    match door.threads.get(thread) {
                        Some(other) if thread > 0 => other.send(Message::Serve(socket, tls)),
                        _ => self.admit(socket, tls, ready),
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.refused_until = None;
                    return false;
                }
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) => {
                    // Out of descriptors, for example. The system does not report the waiting connections again.
                    if self.refused_until.is_none() {
                        tracing::warn!(%error, "accepting a connection");
                    }
                    self.refused_until = Some(self.shared.clock.now().saturating_add(SWEEP.as_nanos() as u64));
                    return false;
                }
            }
        }
        true
    }

    fn admit(&mut self, socket: TcpStream, tls: Option<Arc<ServerConfig>>, ready: &mut Ready) {
        let (Ok(address), Ok(local)) = (socket.peer_addr(), socket.local_addr()) else { return };
        let client = self.shared.clients.add(Arc::clone(&self.mailbox), address, local, self.shared.clock.wall_ms());
        let id = client.id;
        let now = self.shared.clock.now();
        let until = tls.is_some().then(|| now.saturating_add(HANDSHAKE.as_nanos() as u64));
        match self.open(socket, tls, &client) {
            Ok(stream) => {
                let session = Session::new(client, self.shared.users.anonymous());
                self.connections.insert(id, Connection::new(stream, session, now, until));
                ready.insert(id);
            }
            Err(error) => {
                tracing::warn!(%error, "serving a connection");
                self.shared.clients.remove(id);
            }
        }
    }

    fn open(&self, socket: TcpStream, tls: Option<Arc<ServerConfig>>, client: &Client) -> std::io::Result<Stream> {
        stream::prepare(&socket, u64::try_from(self.shared.config.number("tcp-keepalive")).unwrap_or(0))?;
        let socket = self.watch(socket, client.id)?;
        client.is_behind(&socket);
        Stream::new(socket, tls)
    }

    /// Makes the system report events of a socket under this number.
    fn watch(&self, mut socket: TcpStream, id: u64) -> std::io::Result<Arc<TcpStream>> {
        let token = Token(usize::try_from(id).unwrap_or(usize::MAX).saturating_add(CONNECTIONS));
        self.poll.registry().register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Arc::new(socket))
    }

    /// Ends a connection within TLS with this reply, which comes after its handshake. When there are many such
    /// connections, it ends at once.
    fn turn_away_within(&mut self, socket: TcpStream, tls: Option<Arc<ServerConfig>>, reply: &'static [u8]) {
        if tls.is_none() || self.farewells.len() >= farewell::MOST {
            return;
        }
        let id = self.shared.clients.next_id();
        let until = self.shared.clock.now().saturating_add(HANDSHAKE.as_nanos() as u64);
        if let Ok(stream) = self.watch(socket, id).and_then(|socket| Stream::new(socket, tls)) {
            self.farewells.insert(id, Farewell::new(stream, reply, until));
            self.deadlines.insert((until, id));
            self.say_farewell(id);
        }
    }

    fn say_farewell(&mut self, id: u64) {
        if let Some(until) = self.farewells.get_mut(&id).and_then(|farewell| farewell.go_on().then_some(farewell.until))
        {
            self.farewells.remove(&id);
            self.deadlines.remove(&(until, id));
        }
    }

    fn end(&mut self, id: u64) {
        self.forget_deadline(id);
        let Some(mut connection) = self.connections.remove(&id) else { return };
        // Another connection may be waiting for its descriptor.
        self.refused_until = self.refused_until.map(|_| 0);
        connection.close();
        let executor = Executor { shared: &self.shared, registry: &self.registry, counters: &self.counters };
        executor.forget(&mut connection.dialogue.session);
    }

    fn end_all(&mut self) {
        let all: Vec<u64> = self.connections.keys().copied().collect();
        all.into_iter().for_each(|id| self.end(id));
    }
}

impl Door {
    /// Accepts a connection. Returns it with its address, and what it must prove within TLS.
    fn accept(&self) -> std::io::Result<(TcpStream, SocketAddr, Option<Arc<Admission>>)> {
        if let Some(plain) = &self.plain {
            match plain.accept() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                accepted => return accepted.map(|(socket, address)| (socket, address, None)),
            }
        }
        let Some((listener, admission)) = &self.tls else { return Err(ErrorKind::WouldBlock.into()) };
        let (socket, address) = listener.accept()?;
        Ok((socket, address, Some(Arc::clone(admission))))
    }
}

/// Returns the reply to a client from this address that may not be served, and why. Counts the refusal.
fn refusal(
    shared: &Shared,
    counters: &Counters,
    address: SocketAddr,
    admission: Option<&Admission>,
) -> Option<(&'static [u8], &'static str)> {
    counters.add(Count::Connections, 1);
    let most = usize::try_from(shared.config.number("maxclients")).unwrap_or(usize::MAX);
    let refusal = if shared.clients.count() >= most {
        (TOO_MANY, "there are as many clients as maxclients allows")
    } else if !address.ip().to_canonical().is_loopback()
        && shared.config.get("protected-mode") == "yes"
        && shared.users.anonymous().is_some()
        && !admission.is_some_and(Admission::asks)
    {
        (PROTECTED, "protected mode: no password is set, and it does not come from this machine")
    } else {
        return None;
    };
    counters.add(Count::Rejected, 1);
    Some(refusal)
}

/// Ends a connection with this reply.
fn turn_away(mut socket: TcpStream, reply: &[u8]) {
    // The socket's buffer is empty, so it takes this; if not, the client is gone.
    let _ = socket.write(reply);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_have_their_turns_in_the_order_in_which_they_became_ready() {
        let mut ready = Ready::default();
        [7, 3, 7, 5, 3, 1].into_iter().for_each(|id| ready.insert(id));
        assert_eq!(ready.order, [7, 3, 5, 1]);
    }
}
