//! The node's socket thread: accepts connections, links, endpoints, grants and messages.
//!
//! It waits for all sockets at once and never blocks on one. Frames for a client go out at once or, when the client is
//! slow, when the socket has room ([`Outlet`]). A client that breaks the protocol loses its link; others are not
//! affected.
//!
//! ```text
//!                     open link                     
//!   newcomer ─────────────────────────► control: grant, revoke, released
//!       │             open endpoint
//!       └─────────────────────────────► endpoint: messages
//! ```

use super::channel::{Channel, Door, Received, decode};
use super::events::{Events, Item};
use super::frame::{BUFFER_BYTES, Frame};
use super::notice::{LINES, Page};
use super::offered::is_written;
use super::outlet::Outlet;
use super::peer::{MAX_CLIENT_GRANTS, ShmPeer};
use crate::admission::{FEW_CONNECTIONS, Identity, Origin, Tally, Turned, Users};
use crate::rpc::{MAX_ARGUMENT_BYTES, MAX_REPLY_BYTES};
use crate::transport::Peer;
use crate::{AccessKey, Denial, EndpointId, Error, NodeIdentity, PeerId, Region, Rights};
use forebay_base::ErrorKind;
use forebay_env::HashMap;
use forebay_env::{Clock, Nanos, Random, SystemClock, Throttle};
use rustix::event::{Timespec, epoll};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const DOOR: u64 = 0;
const WAKER: u64 = 1;
/// Sockets at one time.
const MAX_CONNECTIONS: usize = 8192;
/// Sockets of one user. Links that have ended and are never closed count, so they lock out nobody else.
pub(super) const MAX_CONNECTIONS_OF_ONE: usize = MAX_CONNECTIONS / 4 * 3;
/// Unread events beyond which no new connection is accepted.
const MAX_EVENTS: usize = 16 << 10;
/// Frames read from one socket before the others have their turn.
const BURST: usize = 32;
/// Frames read from each socket of a link that has ended: more than a socket holds.
const LAST_WORDS: usize = 1024;
/// How long a newcomer may take to say what it is.
const NEWCOMER_PATIENCE: Duration = Duration::from_secs(5);
/// How often deadlines are checked while there are any.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// How long nothing is accepted after that was not possible, nanoseconds.
const REST: Nanos = 100_000_000;
/// Largest grant of a client: the buffer of the longest reply, with its header. Arguments are shorter.
pub(super) const MAX_CLIENT_GRANT_BYTES: u64 = MAX_REPLY_BYTES as u64 + 4096;
/// All grants of a client together: what 256 callers need that ask for the longest replies.
pub(super) const MAX_CLIENT_BYTES: u64 = 256 * MAX_CLIENT_GRANT_BYTES;
/// Grants of all clients, and of one user's clients. Each is a mapping, of which the system usually gives a process 65,530.
/// A process that has none left cannot allocate memory.
const MAX_MAPPED: usize = 48 << 10;
const MAX_MAPPED_OF_ONE: usize = MAX_MAPPED / 2;
/// Grants that every user's clients can have when the node is short of mappings: what few connections need, each with a
/// buffer for replies and one for arguments.
const FEW_MAPPED: usize = 2 * FEW_CONNECTIONS;

const _: () = assert!(MAX_ARGUMENT_BYTES <= MAX_REPLY_BYTES);
const _: () = assert!(MAX_CONNECTIONS <= LINES as usize);

/// The socket thread's state.
pub(super) struct Server {
    door: Door,
    /// Whose processes are admitted.
    users: Users,
    tally: Arc<Tally>,
    identity: NodeIdentity,
    page: Page,
    epoll: OwnedFd,
    events: Arc<Events>,
    stopping: Arc<AtomicBool>,
    clock: SystemClock,
    connections: HashMap<u64, Connection>,
    users_connections: Shares,
    mapped: Mapped,
    /// How many of the connections are newcomers.
    newcomers: usize,
    links: HashMap<u64, Arc<ShmPeer>>,
    next_connection: u64,
    next_link: u64,
    accepting: bool,
    /// When it accepts again, if it does not.
    accepts_again: Nanos,
    /// When the log last had a line about a grant that was not taken, and about a client that broke the protocol.
    untaken: Throttle,
    broken: Throttle,
    buffer: Vec<u8>,
}

/// How many connections each user has.
#[derive(Debug)]
struct Shares {
    of_user: HashMap<u32, usize>,
    most_of_one: usize,
}

impl Shares {
    fn new(most_of_one: usize) -> Self {
        Self { of_user: HashMap::default(), most_of_one }
    }

    /// Counts another connection of a user, when there are `all` connections in total.
    ///
    /// # Errors
    /// Why the user gets no further connection.
    fn take(&mut self, user: u32, all: usize) -> Result<(), String> {
        let count = self.of_user.get(&user).copied().unwrap_or_default();
        if count >= self.most_of_one {
            return Err(format!("user {user} has its most connections to the node: {}", self.most_of_one));
        }
        if count >= FEW_CONNECTIONS && all >= self.most_of_one {
            return Err(format!("the node is short of connections, and no user gets more than {FEW_CONNECTIONS} now"));
        }
        self.of_user.insert(user, count + 1);
        Ok(())
    }

    /// Gives back a connection of a user.
    fn give(&mut self, user: u32) {
        if let Some(count) = self.of_user.get_mut(&user) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.of_user.remove(&user);
            }
        }
    }
}

/// How many grants of clients the node has mapped, by user.
#[derive(Debug)]
struct Mapped {
    all: usize,
    of_user: HashMap<Option<u32>, usize>,
    most: usize,
    most_of_one: usize,
}

impl Mapped {
    fn new(most: usize, most_of_one: usize) -> Self {
        Self { all: 0, of_user: HashMap::default(), most, most_of_one }
    }

    /// Checks that another grant of a user's client may be mapped. The last quarter is for users who have few, so a few
    /// users with very many lock out nobody else.
    ///
    /// # Errors
    /// [`Error::Remote`], when too many are.
    fn check(&self, user: Option<u32>) -> Result<(), Error> {
        let of_user = self.of_user.get(&user).copied().unwrap_or_default();
        let is_short = self.all >= self.most / 4 * 3;
        let most_of_one = if is_short { FEW_MAPPED.min(self.most_of_one) } else { self.most_of_one };
        if self.all < self.most && of_user < most_of_one {
            return Ok(());
        }
        let message = format!("the node has mapped {} grants of clients, {of_user} of them of this user", self.all);
        Err(Error::Remote { kind: ErrorKind::Busy, message })
    }

    /// Counts a grant that was mapped.
    fn add(&mut self, user: Option<u32>) {
        self.all += 1;
        *self.of_user.entry(user).or_default() += 1;
    }

    /// Counts grants that are not mapped any more.
    fn remove(&mut self, user: Option<u32>, count: usize) {
        self.all = self.all.saturating_sub(count);
        if let Some(of_user) = self.of_user.get_mut(&user) {
            *of_user = of_user.saturating_sub(count);
            if *of_user == 0 {
                self.of_user.remove(&user);
            }
        }
    }
}

struct Connection {
    channel: Arc<Channel>,
    /// The user that owns it. The group does not count: one user may have several.
    user: Option<u32>,
    /// Grants that came over it and were not revoked. If its link has ended, they count until the client closes it.
    mapped: usize,
    role: Role,
    /// What its socket is watched for; a socket with nothing to watch for is not watched.
    watched: epoll::EventFlags,
}

enum Role {
    Newcomer { deadline: Nanos, origin: Origin },
    Control(Arc<ShmPeer>),
    Endpoint { peer: Arc<ShmPeer>, id: EndpointId, outlet: Arc<Outlet>, paused: bool },
}

impl Role {
    fn outlet(&self) -> Option<&Outlet> {
        match self {
            Self::Newcomer { .. } => None,
            Self::Control(peer) => Some(&peer.control),
            Self::Endpoint { outlet, .. } => Some(outlet),
        }
    }

    /// What the socket must be watched for.
    fn interest(&self) -> epoll::EventFlags {
        let mut interest = epoll::EventFlags::empty();
        interest.set(epoll::EventFlags::IN, !matches!(self, Self::Endpoint { paused: true, .. }));
        interest.set(epoll::EventFlags::OUT, self.outlet().is_some_and(Outlet::has_unsaid));
        interest
    }
}

impl Server {
    pub(super) fn new(
        (door, users, tally): (Door, Users, Arc<Tally>),
        identity: NodeIdentity,
        events: Arc<Events>,
        stopping: Arc<AtomicBool>,
        most_of_one: usize,
    ) -> Result<Self, Error> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| Error::io("making an epoll", e))?;
        for (source, number) in [(rustix::fd::AsFd::as_fd(&door), DOOR), (events.waker(), WAKER)] {
            epoll::add(&epoll, source, epoll::EventData::new_u64(number), epoll::EventFlags::IN)
                .map_err(|e| Error::io("watching a socket", e))?;
        }
        Ok(Self {
            door,
            users,
            tally,
            identity,
            page: Page::new()?,
            epoll,
            events,
            stopping,
            clock: SystemClock::new(),
            connections: HashMap::default(),
            users_connections: Shares::new(most_of_one),
            mapped: Mapped::new(MAX_MAPPED, MAX_MAPPED_OF_ONE),
            newcomers: 0,
            links: HashMap::default(),
            next_connection: WAKER + 1,
            next_link: 1,
            accepting: true,
            accepts_again: 0,
            untaken: Throttle::default(),
            broken: Throttle::default(),
            buffer: vec![0; BUFFER_BYTES],
        })
    }

    /// Serves until told to stop; then ends all links.
    pub(super) fn run(mut self) {
        let living = self.page.live();
        let _living =
            living.inspect_err(|error| tracing::warn!(%error, "clients ask the node's sockets for what it takes back"));
        let mut happened = Vec::with_capacity(64);
        while !self.stopping.load(Ordering::Acquire) {
            let tick = (self.newcomers > 0 || !self.accepting).then_some(&TICK);
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut happened), tick) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "the node cannot watch its sockets any more");
                    break;
                }
            }
            for event in happened.drain(..) {
                let flags = event.flags;
                match event.data.u64() {
                    DOOR => self.accept(),
                    WAKER => self.resume(),
                    number => self.serve(number, flags),
                }
            }
            if tick.is_some() {
                self.tick(self.clock.now());
            }
        }
        for peer in self.links.values() {
            peer.gone(Error::lost(self.identity, "the node stopped"));
        }
    }

    fn accept(&mut self) {
        for _ in 0..BURST {
            if self.events.len() >= MAX_EVENTS {
                return self.rest(self.clock.now());
            }
            match self.door.accept() {
                Ok(Some(channel)) => self.admit(channel),
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken in");
                    return self.rest(self.clock.now());
                }
            }
        }
    }

    fn admit(&mut self, channel: Channel) {
        let origin = match channel.origin() {
            Ok(origin) => origin,
            Err(cause) => return tracing::warn!(%cause, "a connection could not be taken in"),
        };
        if let Identity::User { uid, gid } = origin.identity
            && !self.users.admit(uid, gid)
        {
            self.tally.turned(Turned::Refused, origin.source, format_args!("user {uid}, group {gid}"));
            let text = format!("the node does not let in user {uid}, group {gid}");
            return self.turn_away(&channel, ErrorKind::AccessDenied, &text);
        }
        if self.connections.len() >= MAX_CONNECTIONS {
            self.tally.turned(Turned::Crowded, origin.source, "the node");
            let text = format!("the node has its most connections: {MAX_CONNECTIONS}");
            return self.turn_away(&channel, ErrorKind::Busy, &text);
        }
        let user = user_of(&origin.identity);
        let all = self.connections.len();
        if let Some(Err(text)) = user.map(|uid| self.users_connections.take(uid, all)) {
            self.tally.turned(Turned::Crowded, origin.source, &text);
            return self.turn_away(&channel, ErrorKind::Busy, &text);
        }
        let number = self.next_connection;
        self.next_connection += 1;
        let deadline = self.clock.now().saturating_add(NEWCOMER_PATIENCE.as_nanos() as Nanos);
        let role = Role::Newcomer { deadline, origin };
        let (channel, watched) = (Arc::new(channel), epoll::EventFlags::empty());
        let connection = Connection { channel, user, mapped: 0, role, watched };
        self.connections.insert(number, connection);
        self.newcomers += 1;
        if let Err(error) = self.watch(number) {
            tracing::warn!(%error, "a connection cannot be watched");
            self.forget(number);
        }
    }

    fn turn_away(&mut self, channel: &Channel, why: ErrorKind, text: &str) {
        let refused = Frame::Refused { status: why.code(), text }.encode();
        // A socket that is closed with unread data takes back what was sent.
        let _ = channel.try_send(&[&refused], None);
        let _ = channel.receive(&mut self.buffer);
    }

    /// Watches a socket for what its role needs.
    fn watch(&mut self, number: u64) -> Result<(), Error> {
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(()) };
        let (interest, watched) = (connection.role.interest(), connection.watched);
        if interest == watched {
            return Ok(());
        }
        let (channel, data) = (&*connection.channel, epoll::EventData::new_u64(number));
        let done = match (watched.is_empty(), interest.is_empty()) {
            (true, _) => epoll::add(&self.epoll, channel, data, interest),
            (false, true) => epoll::delete(&self.epoll, channel),
            (false, false) => epoll::modify(&self.epoll, channel, data, interest),
        };
        connection.watched = interest;
        done.map_err(|e| Error::io("watching a socket", e))
    }

    /// Accepts nothing for a while. The door would be ready all that time.
    fn rest(&mut self, now: Nanos) {
        self.accepts_again = now.saturating_add(REST);
        self.set_accepting(false);
    }

    fn set_accepting(&mut self, accepting: bool) {
        let done = match accepting {
            true => epoll::add(&self.epoll, &self.door, epoll::EventData::new_u64(DOOR), epoll::EventFlags::IN),
            false => epoll::delete(&self.epoll, &self.door),
        };
        if done.is_ok() {
            self.accepting = accepting;
        }
    }

    /// Drops newcomers that say nothing, and tries again to accept others.
    fn tick(&mut self, now: Nanos) {
        let late = |c: &Connection| matches!(c.role, Role::Newcomer { deadline, .. } if deadline <= now);
        let late: Vec<u64> = self.connections.iter().filter(|(_, c)| late(c)).map(|(number, _)| *number).collect();
        for number in late {
            self.close(number, Error::Protocol("a newcomer said nothing".into()));
        }
        if !self.accepting && self.accepts_again <= now {
            self.set_accepting(true);
        }
    }

    /// Continues to read from links whose messages were taken, and looks for room in sockets for which frames wait.
    fn resume(&mut self) {
        self.events.woken();
        let mut changed = Vec::new();
        for (number, connection) in &mut self.connections {
            if let Role::Endpoint { peer, paused, .. } = &mut connection.role {
                *paused &= !peer.unread.may_resume();
            }
            if connection.role.interest() != connection.watched {
                changed.push(*number);
            }
        }
        for number in changed {
            if let Err(cause) = self.watch(number) {
                self.close(number, cause);
            }
        }
    }

    fn serve(&mut self, number: u64, flags: epoll::EventFlags) {
        let ended = epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        if flags.intersects(epoll::EventFlags::OUT | ended) {
            self.say_on(number);
        }
        if flags.intersects(epoll::EventFlags::IN | ended) {
            for _ in 0..BURST {
                if self.is_paused(number) || !self.read(number) {
                    break;
                }
            }
        }
    }

    /// Reads a frame. False when there is none, or the connection is gone.
    fn read(&mut self, number: u64) -> bool {
        let Some(connection) = self.connections.get(&number) else { return false };
        let mut buffer = std::mem::take(&mut self.buffer);
        let has_read = match connection.channel.receive(&mut buffer) {
            Received::Nothing => false,
            Received::Ended(cause) => {
                self.closed(number, Error::lost("the client", cause));
                false
            }
            Received::Packet(length, file) => {
                let packet = buffer.get(..length).unwrap_or_default();
                let handled = decode(packet).and_then(|frame| self.handle(number, frame, file));
                handled.map_err(|cause| self.close(number, cause)).is_ok()
            }
        };
        self.buffer = buffer;
        has_read
    }

    fn is_paused(&self, number: u64) -> bool {
        self.connections.get(&number).is_some_and(|c| matches!(c.role, Role::Endpoint { paused: true, .. }))
    }

    fn handle(&mut self, number: u64, frame: Frame<'_>, file: Option<OwnedFd>) -> Result<(), Error> {
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(()) };
        match (&mut connection.role, frame) {
            // Sent before the client found that the link has ended. A release of memory still
            // counts.
            (Role::Control(peer), frame) if !peer.is_alive() => {
                if let Frame::Released { key } = frame {
                    peer.offered.released(key);
                }
                Ok(())
            }
            (Role::Newcomer { .. }, Frame::OpenLink) => self.open_link(number),
            (Role::Newcomer { .. }, Frame::OpenEndpoint { link, token, endpoint }) => {
                self.open_endpoint(number, link, token, EndpointId(endpoint))
            }
            (Role::Control(peer), Frame::Grant { key, rights, offset, length }) => {
                let user = connection.user;
                let may_map = self.mapped.check(user);
                let status = match may_map.and_then(|()| take_grant(peer, key, rights, offset, length, file)) {
                    Ok(()) => {
                        connection.mapped += 1;
                        self.mapped.add(user);
                        0
                    }
                    Err(cause) => {
                        if let Some(left_out) = self.untaken.take(self.clock.now()) {
                            tracing::warn!(link = peer.id().0, %cause, left_out, "a client's grant was not taken");
                        }
                        cause.kind().code()
                    }
                };
                peer.answer(Frame::GrantTaken { key, status })
            }
            (Role::Control(peer), Frame::Revoke { key }) => {
                if peer.received.revoke(key) {
                    connection.mapped -= 1;
                    self.mapped.remove(connection.user, 1);
                }
                peer.answer(Frame::Released { key })
            }
            (Role::Control(peer), Frame::Released { key }) => match peer.offered.released(key) {
                true => Ok(()),
                false => Err(Error::Protocol(format!("grant {} was released without being revoked", key.index))),
            },
            (Role::Endpoint { peer, id, paused, .. }, Frame::Message(bytes)) => {
                peer.unread.add(bytes.len());
                let unread = Arc::clone(&peer.unread);
                let peer_of_event = Arc::clone(peer) as Arc<dyn Peer>;
                self.events.push(Item::Message { peer: peer_of_event, unread, endpoint: *id, bytes: bytes.to_vec() });
                // If the client ends meanwhile, its control socket shows that.
                *paused = *paused || peer.unread.pause();
                self.watch(number)
            }
            (_, frame) => Err(Error::Protocol(format!("frame type {} is out of place", frame.number()))),
        }
    }

    fn open_link(&mut self, number: u64) -> Result<(), Error> {
        let token = Random::secret().map_err(|e| Error::io("drawing a link's token", e))?;
        let link = self.next_link;
        self.next_link += 1;
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(()) };
        let Role::Newcomer { origin, .. } = &connection.role else { return Ok(()) };
        let (origin, control) = (origin.clone(), Arc::clone(&connection.channel));
        let line = self.page.line().ok_or_else(|| Error::denied(self.identity, Denial::Crowded))?;
        let NodeIdentity { node, incarnation } = self.identity;
        let opened = Frame::LinkOpened { node, incarnation, link, token, line: line.number };
        greet(&control, opened, Some(self.page.file()?))?;
        let (page, events) = ((self.page.clone(), line), Arc::clone(&self.events));
        let peer = Arc::new(ShmPeer::new((PeerId(link), token), origin, control, page, events));
        connection.role = Role::Control(Arc::clone(&peer));
        self.newcomers -= 1;
        self.tally.admitted();
        self.links.insert(link, Arc::clone(&peer));
        self.events.push(Item::Joined(peer));
        Ok(())
    }

    fn open_endpoint(&mut self, number: u64, link: u64, token: u128, id: EndpointId) -> Result<(), Error> {
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(()) };
        let user = connection.user;
        // Compared as keys are: in time that does not depend on the token. A token admits nobody but the link's user.
        let is_own = |peer: &&Arc<ShmPeer>| {
            let same_token = AccessKey::new(0, peer.token).same_secret(&AccessKey::new(0, token));
            same_token && user_of(&peer.origin().identity) == user
        };
        let joined = match self.links.get(&link).filter(is_own) {
            Some(peer) => peer.join(id, &connection.channel).map(|outlet| (Arc::clone(peer), outlet)),
            None => Err(Error::AccessDenied),
        };
        match joined {
            Ok((peer, outlet)) => {
                connection.role = Role::Endpoint { peer, id, outlet, paused: false };
                self.newcomers -= 1;
                self.tally.admitted();
                greet(&connection.channel, Frame::EndpointOpened, None)
            }
            Err(cause) => {
                let refused = Frame::Refused { status: cause.kind().code(), text: &cause.to_string() };
                greet(&connection.channel, refused, None)?;
                Err(cause)
            }
        }
    }

    /// Sends a client what waits for room.
    fn say_on(&mut self, number: u64) {
        let Some(role) = self.connections.get(&number).map(|connection| &connection.role) else { return };
        let said = role.outlet().map_or(Ok(()), Outlet::say_on);
        match (said, role) {
            // What the client sent before it ended is still to be read.
            (Ok(()), _) | (Err(Error::PeerLost { .. }), Role::Endpoint { .. }) => {}
            (Err(cause), _) => self.close(number, cause),
        }
        if let Err(cause) = self.watch(number) {
            self.close(number, cause);
        }
    }

    /// Ends a connection from this side. If it is a control socket, or the protocol was broken, also ends its link.
    /// The control socket stays until the client closes it.
    fn close(&mut self, number: u64, cause: Error) {
        let Some(connection) = self.connections.get(&number) else { return };
        match &connection.role {
            Role::Newcomer { .. } => self.forget(number),
            Role::Endpoint { peer, id, .. } => {
                peer.leave(*id);
                if matches!(cause, Error::Protocol(_)) {
                    if let Some(left_out) = self.broken.take(self.clock.now()) {
                        tracing::warn!(link = peer.id().0, %cause, left_out, "a client broke the protocol");
                    }
                    peer.end(cause);
                }
                self.forget(number);
            }
            Role::Control(peer) => {
                tracing::debug!(link = peer.id().0, %cause, "a link ends");
                peer.end(cause);
            }
        }
    }

    /// Handles a connection that the client has closed. If it is a control socket, the client is gone.
    fn closed(&mut self, number: u64, cause: Error) {
        match self.connections.get(&number).map(|connection| &connection.role) {
            Some(Role::Control(peer)) => {
                let peer = Arc::clone(peer);
                tracing::debug!(link = peer.id().0, %cause, "a client is gone");
                self.forget(number);
                self.end_link(&peer, cause);
            }
            _ => self.close(number, cause),
        }
    }

    /// Reads what the link's endpoints sent before it ended, and ends the link.
    fn end_link(&mut self, peer: &Arc<ShmPeer>, cause: Error) {
        let of_link = |c: &Connection| matches!(&c.role, Role::Endpoint { peer: of, .. } if Arc::ptr_eq(of, peer));
        let endpoints: Vec<u64> = self.connections.iter().filter(|(_, c)| of_link(c)).map(|(n, _)| *n).collect();
        for number in endpoints {
            for _ in 0..LAST_WORDS {
                if !peer.is_alive() || !self.read(number) {
                    break;
                }
            }
            self.forget(number);
        }
        self.links.remove(&peer.id().0);
        peer.gone(cause);
    }

    fn forget(&mut self, number: u64) {
        if let Some(connection) = self.connections.remove(&number) {
            if matches!(connection.role, Role::Newcomer { .. }) {
                self.newcomers -= 1;
            }
            connection.user.into_iter().for_each(|user| self.users_connections.give(user));
            self.mapped.remove(connection.user, connection.mapped);
            // A peer may hold the socket longer than this thread.
            let _ = epoll::delete(&self.epoll, &*connection.channel);
            connection.channel.shutdown();
        }
    }
}

/// The user whose process this is.
const fn user_of(identity: &Identity) -> Option<u32> {
    match identity {
        Identity::User { uid, .. } => Some(*uid),
        _ => None,
    }
}

/// Sends the first frame on a socket, which has room for it.
fn greet(channel: &Channel, frame: Frame<'_>, file: Option<BorrowedFd<'_>>) -> Result<(), Error> {
    match channel.try_send(&[&frame.encode()], file)? {
        true => Ok(()),
        false => Err(Error::Protocol("a newcomer's socket has no room".into())),
    }
}

/// Maps what a client grants. Touches no page before an operation does: that would commit pages that the client has not
/// written.
fn take_grant(
    peer: &ShmPeer,
    key: AccessKey,
    rights: Rights,
    offset: u64,
    length: u64,
    file: Option<OwnedFd>,
) -> Result<(), Error> {
    let file = file.ok_or_else(|| Error::Protocol("a grant came without its memory file".into()))?;
    if length > MAX_CLIENT_GRANT_BYTES {
        return Err(Error::TooLarge { length, limit: MAX_CLIENT_GRANT_BYTES });
    }
    if key.index >= MAX_CLIENT_GRANTS || peer.received.bytes() + length > MAX_CLIENT_BYTES {
        let message = format!("grant {} of {length} bytes is more than a client may make", key.index);
        return Err(Error::Remote { kind: ErrorKind::Full, message });
    }
    let region = Region::from_received(file, offset, length as usize, is_written(rights))?;
    peer.received.enter(key, region, rights)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A server that no thread runs, and the path of its socket.
    fn server(name: &str) -> (Server, PathBuf) {
        let path = std::env::temp_dir().join(format!("forebay-{}-{name}.socket", std::process::id()));
        let who = (Door::open(&path, false).unwrap(), Users::default(), Arc::default());
        let (identity, events) = (NodeIdentity { node: 1, incarnation: 2 }, Arc::new(Events::new().unwrap()));
        (Server::new(who, identity, events, Arc::default(), 8).unwrap(), path)
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no sockets")]
    fn a_token_lets_only_the_user_of_the_link_join() {
        let (mut server, path) = server("user-joins");
        let connected = |server: &mut Server| {
            let client = Channel::connect(&path, Duration::from_secs(10)).unwrap();
            server.accept();
            (client, server.next_connection - 1)
        };
        let (_control, number) = connected(&mut server);
        server.open_link(number).unwrap();
        let link = Arc::clone(server.links.values().next().unwrap());
        let me = server.connections.get(&number).unwrap().user;
        let other = me.map(|user| user ^ 1);
        for (user, joined) in [(other, Err(Error::AccessDenied)), (me, Ok(()))] {
            let (_endpoint, number) = connected(&mut server);
            server.connections.get_mut(&number).unwrap().user = user;
            assert_eq!(server.open_endpoint(number, link.id().0, link.token, EndpointId(1)), joined, "{user:?}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no sockets")]
    fn a_node_that_cannot_accept_rests() {
        let (mut server, _path) = server("rests");
        server.rest(5);
        let accepts = |now| {
            server.tick(now);
            server.accepting
        };
        assert_eq!([5, 4 + REST, 5 + REST].map(accepts), [false, false, true]);
    }

    #[test]
    fn a_user_takes_no_more_than_its_share() {
        let mut shares = Shares::new(2);
        assert_eq!([1, 1, 1, 2].map(|user| shares.take(user, 0).is_ok()), [true, true, false, true]);
        shares.give(1);
        assert_eq!([1, 1].map(|user| shares.take(user, 0).is_ok()), [true, false]);
        [1, 1, 2, 3].iter().for_each(|user| shares.give(*user));
        assert!(shares.of_user.is_empty());
    }

    #[test]
    fn mappings_are_bounded_for_a_user_and_for_all() {
        let mut mapped = Mapped::new(5, 3);
        let mut take = |user| {
            let may = mapped.check(Some(user));
            may.map(|()| mapped.add(Some(user))).map_err(|error| error.kind())
        };
        let busy = Err(ErrorKind::Busy);
        assert_eq!([1, 1, 1, 1, 2, 2, 2].map(&mut take), [Ok(()), Ok(()), Ok(()), busy, Ok(()), Ok(()), busy]);
        mapped.remove(Some(1), 3);
        mapped.remove(Some(2), 1);
        assert_eq!((mapped.all, mapped.of_user.len(), mapped.check(Some(1))), (1, 1, Ok(())));
    }

    #[test]
    fn the_last_mappings_are_for_those_who_have_few() {
        let most = 16 * FEW_MAPPED;
        let mut mapped = Mapped::new(most, most / 2);
        let mut taken = |user| (0..most).filter(|_| mapped.check(user).map(|()| mapped.add(user)).is_ok()).count();
        assert_eq!([1, 2, 3, 2].map(|user| taken(Some(user))), [most / 2, most / 4, FEW_MAPPED, 0]);
    }

    #[test]
    fn the_last_connections_are_for_those_who_have_few() {
        let most = 10 * FEW_CONNECTIONS;
        let mut shares = Shares::new(most);
        let mut taken = |user, all| (0..most).filter(|_| shares.take(user, all).is_ok()).count();
        assert_eq!([taken(1, 0), taken(2, most)], [most, FEW_CONNECTIONS]);
    }
}
