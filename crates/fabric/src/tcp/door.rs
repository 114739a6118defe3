//! The node's door: a new connection is a stranger here until it has proven who it is.
//!
//! The door has a thread of its own, so that what strangers cost (above all the arithmetic of a handshake) does not
//! hold up those who are in. Their cost in memory is also bounded: there are at most [`MAX_STRANGERS`], and at most
//! [`MAX_OF_SOURCE`] from one source; each holds some tens of KiB, and after [`PATIENCE`] it is shown out. When there are
//! too many, the oldest stranger of the source with the most makes room for the newcomer, so a source that sends thousands
//! shows out its own. That stranger has a last turn first: if its proof has come it is admitted, however many newcomers
//! press.
//!
//! ```text
//!                 first byte             handshake done          hello
//!   Silent ──────────────────► Handshake ───────────────► Hello ──────────► let in
//!      │ (plain)                                            ▲ │ secrets: challenge
//!      └────────────────────────────────────────────────────┘ ▼          proof
//!                                                          Challenged ─────► let in
//!   refused: Leaving, until the stranger has read why and closes
//! ```
//!
//! Admitted connections go to the I/O thread through the [`Hall`].

use super::buffer::Buffer;
use super::connection::malformed;
use super::frame::{Decoded, Failure, Frame, Hello, MAGIC, MAX_FIRST_FRAME_BYTES, decode};
use super::porter::{Admitted, Porter};
use super::socket::{Broken, Received, Socket};
use super::stream::{Stream, timespec};
use super::tls::Tls;
use super::wakers::Waker;
use super::{Options, lost_client};
use crate::admission::{Bytes32, Origin, Rules, Source, Standing, Tally, Turned};
use crate::{Denial, Error};
use forebay_env::sync::lock;
use forebay_env::{Clock, HashMap, Nanos, SystemClock};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Strangers at a time.
pub(super) const MAX_STRANGERS: usize = 256;
/// Strangers of one source at a time.
pub(super) const MAX_OF_SOURCE: usize = 64;
/// How long a stranger has to prove itself, nanoseconds.
const PATIENCE: Nanos = 5_000_000_000;
/// How often deadlines are checked while there are any.
const TICK: Duration = Duration::from_millis(100);
/// Connections that are accepted before the strangers have their turn.
const BURST: usize = 32;
/// Bytes received from a stranger at a time.
const RECEIVE_BYTES: usize = 1024;
/// Most bytes that a stranger may send within TLS, handshake included; one receive may exceed it.
const MAX_TLS_BYTES: u64 = 64 << 10;
/// Most bytes that are read and dropped from a stranger who leaves.
const LAST_BYTES: usize = 64 << 10;
/// Names of what is waited for; strangers are numbered from `FIRST_STRANGER`.
const LISTENER: u64 = 0;
const WAKER: u64 = 1;
const FIRST_STRANGER: u64 = 2;
/// First byte of a client's TLS record.
const TLS_HANDSHAKE: u8 = 0x16;

/// A connection that was let in.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) stream: Stream,
    pub(super) origin: Origin,
    pub(super) standing: Standing,
    /// The rules that it was judged by, which may be old by now.
    pub(super) rules: Arc<Rules>,
    pub(super) hello: Hello,
    /// What the node proves in return.
    pub(super) proof: Option<Bytes32>,
    /// What came after the introduction.
    pub(super) received: Vec<u8>,
}

/// Where guests wait for the I/O thread.
#[derive(Debug)]
pub(super) struct Hall {
    guests: Mutex<VecDeque<Guest>>,
    server: Arc<Waker>,
}

impl Hall {
    pub(super) fn new(server: Arc<Waker>) -> Self {
        Self { guests: Mutex::default(), server }
    }

    /// Makes a guest wait. False, and the guest is dropped, when too many wait.
    fn enter(&self, guest: Guest) -> bool {
        let mut guests = lock(&self.guests);
        let has_room = guests.len() < MAX_STRANGERS;
        if has_room {
            guests.push_back(guest);
            self.server.wake();
        }
        has_room
    }

    pub(super) fn next(&self) -> Option<Guest> {
        lock(&self.guests).pop_front()
    }
}

/// The thread's state.
#[derive(Debug)]
pub(super) struct Door {
    options: Options,
    listener: TcpListener,
    waker: Arc<Waker>,
    hall: Arc<Hall>,
    tally: Arc<Tally>,
    epoll: OwnedFd,
    clock: SystemClock,
    strangers: HashMap<u64, Stranger>,
    crowd: Crowd,
    next_stranger: u64,
    /// Whether the thread waits for the listener.
    listening: bool,
    /// When it does so again, if it does not.
    listens_again: Nanos,
}

#[derive(Debug)]
struct Stranger {
    stream: Stream,
    from: SocketAddr,
    deadline: Nanos,
    stage: Stage,
    porter: Porter,
    input: Buffer,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// It has sent nothing.
    Silent,
    Handshake,
    /// It must say what it wants, and perhaps prove that it has a secret.
    Frames,
    /// It must read why it is not admitted. Holds the number of its bytes that were dropped.
    Leaving(usize),
}

/// The result of a stranger's turn.
enum Verdict {
    /// Nothing can be done before more comes.
    Waits,
    /// Something was done.
    GoesOn,
    LetIn(Box<Admitted>),
    /// It is gone; nothing is counted for one that leaves by itself.
    Gone,
    Refused(Error),
}

impl Door {
    pub(super) fn new(
        options: Options,
        listener: TcpListener,
        waker: Arc<Waker>,
        hall: Arc<Hall>,
        tally: Arc<Tally>,
    ) -> Result<Self, Error> {
        let io = |e| Error::io("waiting for connections", e);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN).map_err(io)?;
        epoll::add(&epoll, &*waker, epoll::EventData::new_u64(WAKER), epoll::EventFlags::IN).map_err(io)?;
        Ok(Self {
            options,
            listener,
            waker,
            hall,
            tally,
            epoll,
            clock: SystemClock::new(),
            strangers: HashMap::default(),
            crowd: Crowd::default(),
            next_stranger: FIRST_STRANGER,
            listening: true,
            listens_again: 0,
        })
    }

    /// Admits connections until told to stop.
    pub(super) fn run(mut self) {
        let mut ready: Vec<epoll::Event> = Vec::with_capacity(64);
        while !self.waker.is_stopped() {
            let limit = (!self.strangers.is_empty() || !self.listening).then_some(TICK);
            ready.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut ready), limit.map(timespec).as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(cause) => {
                    tracing::error!(%cause, "the node takes in no more connections");
                    return;
                }
            }
            for event in &ready {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    WAKER => self.waker.clear(),
                    id => self.turn(id),
                }
            }
            self.tick(self.clock.now());
        }
    }

    fn accept(&mut self) {
        for _ in 0..BURST {
            match self.listener.accept() {
                Ok((socket, from)) => {
                    if let Err(cause) = self.take_in(socket, from) {
                        self.tally.turned(Turned::Refused, Source::Network(from), cause);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection");
                    // Perhaps descriptors are short: a stranger has one.
                    if let Some(oldest) = self.crowd.oldest() {
                        self.close(oldest, Some((Turned::ShownOut, "the system has no room")));
                    }
                    return self.rest(self.clock.now());
                }
            }
        }
    }

    /// Does not wait for the listener for a while. It would be ready all that time.
    fn rest(&mut self, now: Nanos) {
        self.listens_again = now.saturating_add(TICK.as_nanos() as Nanos);
        self.set_listening(false);
    }

    fn set_listening(&mut self, listening: bool) {
        let done = match listening {
            true => epoll::add(&self.epoll, &self.listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN),
            false => epoll::delete(&self.epoll, &self.listener),
        };
        if done.is_ok() {
            self.listening = listening;
        }
    }

    fn take_in(&mut self, socket: std::net::TcpStream, from: SocketAddr) -> std::io::Result<()> {
        let stream = Stream::plain(Socket::adopt(socket, self.options.socket_bytes)?);
        let id = self.next_stranger;
        self.next_stranger += 1;
        if let Some(other) = self.crowd.enter(id, from.ip()) {
            self.show_out(other);
        }
        let both = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        if let Err(error) = epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(id), both) {
            self.crowd.leave(id);
            return Err(error.into());
        }
        let deadline = self.clock.now().saturating_add(PATIENCE);
        let rules = self.options.admission.as_ref().map(|admission| admission.rules()).unwrap_or_default();
        let (stage, porter, input) = (Stage::Silent, Porter::new(rules), Buffer::default());
        self.strangers.insert(id, Stranger { stream, from, deadline, stage, porter, input });
        Ok(())
    }

    fn turn(&mut self, id: u64) {
        let Some(stranger) = self.strangers.get_mut(&id) else { return };
        match stranger.turn() {
            Verdict::Waits | Verdict::GoesOn => {}
            Verdict::Gone => self.close(id, None),
            Verdict::LetIn(what) => self.let_in(id, *what),
            Verdict::Refused(cause) => {
                self.tally.turned(Turned::Refused, Source::Network(stranger.from), stranger.porter.account(&cause));
                if !stranger.leave(&cause) {
                    self.close(id, None);
                }
            }
        }
    }

    /// Makes a stranger leave room for others, unless all of its proof has come.
    fn show_out(&mut self, id: u64) {
        match self.strangers.get_mut(&id).map(Stranger::turn) {
            Some(Verdict::LetIn(what)) => self.let_in(id, *what),
            _ => self.close(id, Some((Turned::ShownOut, "others want to come in"))),
        }
    }

    fn let_in(&mut self, id: u64, admitted: Admitted) {
        self.crowd.leave(id);
        let Some(Stranger { stream, from, input, porter, .. }) = self.strangers.remove(&id) else { return };
        if epoll::delete(&self.epoll, &stream).is_err() {
            return;
        }
        let Admitted { identity, standing, hello, proof } = admitted;
        let origin = Origin { identity, source: Source::Network(from) };
        let (rules, received) = (porter.rules, input.filled().to_vec());
        let guest = Guest { stream, origin, standing, rules, hello, proof, received };
        if !self.hall.enter(guest) {
            self.tally.turned(Turned::Crowded, Source::Network(from), "the node does not keep up");
        }
    }

    /// Ends a connection, and counts it if it was `turned` away.
    fn close(&mut self, id: u64, turned: Option<(Turned, &'static str)>) {
        self.crowd.leave(id);
        let Some(stranger) = self.strangers.remove(&id) else { return };
        // A stranger that leaves was counted when it was refused.
        if let (Some((how, cause)), false) = (turned, matches!(stranger.stage, Stage::Leaving(_))) {
            self.tally.turned(how, Source::Network(stranger.from), cause);
        }
        // The socket closes with its last descriptor, which removes it from the epoll.
        stranger.stream.shutdown();
    }

    /// Shows out strangers that are late, and waits for the listener again if it is time.
    fn tick(&mut self, now: Nanos) {
        let late: Vec<u64> = self.strangers.iter().filter(|(_, s)| s.deadline <= now).map(|(id, _)| *id).collect();
        for id in late {
            self.close(id, Some((Turned::Late, "it did not say who it is in time")));
        }
        if !self.listening && self.listens_again <= now {
            self.set_listening(true);
        }
    }
}

impl Stranger {
    fn turn(&mut self) -> Verdict {
        match self.go_on() {
            Ok(verdict) => verdict,
            Err(cause) => Verdict::Refused(cause),
        }
    }

    /// Continues until it must wait for something.
    fn go_on(&mut self) -> Result<Verdict, Error> {
        loop {
            if !self.send()? {
                return Ok(Verdict::Waits);
            }
            match self.stage {
                Stage::Silent => match self.stream.first_byte() {
                    Ok(None) => return Ok(Verdict::Waits),
                    Err(_) => return Ok(Verdict::Gone),
                    Ok(Some(first)) => self.begin(first)?,
                },
                Stage::Handshake => match self.stream.shake_hands() {
                    Ok(false) => return Ok(Verdict::Waits),
                    Ok(true) => self.stage = Stage::Frames,
                    Err(Broken::System(_)) => return Ok(Verdict::Gone),
                    Err(broken) => return Err(Error::Protocol(format!("TLS: {broken}"))),
                },
                Stage::Frames => match self.frame()? {
                    Verdict::Waits => {
                        match self.stream.receive(self.input.space(RECEIVE_BYTES)).map_err(lost_client)? {
                            Received::Bytes(count, _) => self.input.commit(count),
                            Received::Nothing => return Ok(Verdict::Waits),
                            Received::End => return Ok(Verdict::Gone),
                        }
                        // Records may be empty: without this limit, a stranger that sends such records
                        // would occupy the door.
                        if self.stream.tls_bytes() > MAX_TLS_BYTES {
                            return Err(Error::Protocol("a connection that begins with too many bytes".into()));
                        }
                    }
                    Verdict::GoesOn => {}
                    verdict => return Ok(verdict),
                },
                Stage::Leaving(dropped) => match self.stream.drain(self.input.space(RECEIVE_BYTES)) {
                    Ok(Received::Bytes(count, _)) if dropped < LAST_BYTES => {
                        self.stage = Stage::Leaving(dropped + count.max(1));
                    }
                    Ok(Received::Nothing) => return Ok(Verdict::Waits),
                    _ => return Ok(Verdict::Gone),
                },
            }
        }
    }

    /// The first byte tells whether it speaks TLS.
    fn begin(&mut self, first: u8) -> Result<(), Error> {
        match (&self.porter.rules.tls, first) {
            (Some(_), MAGIC) => Err(Error::denied("the node", Denial::Plain)),
            (None, TLS_HANDSHAKE) => Err(Error::denied("the node", Denial::Tls)),
            (None, _) => {
                self.stage = Stage::Frames;
                Ok(())
            }
            (Some((config, _)), _) => {
                self.stream.begin_tls(Tls::server(config).map_err(lost_client)?);
                self.stage = Stage::Handshake;
                Ok(())
            }
        }
    }

    /// Handles the frame at the front of what came, if it is complete.
    fn frame(&mut self) -> Result<Verdict, Error> {
        let Some(Decoded { frame, length, .. }) = decode(self.input.filled()).map_err(malformed)? else {
            if self.input.len() >= MAX_FIRST_FRAME_BYTES {
                return Err(Error::Protocol("a connection that begins with too large a frame".into()));
            }
            return Ok(Verdict::Waits);
        };
        let shown = self.stream.peer_certificates();
        let admitted = self.porter.take(frame, shown.as_deref())?;
        self.input.consume(length);
        Ok(admitted.map_or(Verdict::GoesOn, |admitted| Verdict::LetIn(Box::new(admitted))))
    }

    /// Sends the waiting bytes. False when the socket does not take all of them.
    fn send(&mut self) -> Result<bool, Error> {
        let out = &mut self.porter.out;
        while !out.is_empty() {
            match self.stream.send(out.filled()).map_err(lost_client)? {
                0 => return Ok(false),
                count => out.consume(count),
            }
        }
        Ok(true)
    }

    /// Tells the stranger why it is not admitted. False when there is nothing to tell, or nobody to hear
    /// it.
    fn leave(&mut self, cause: &Error) -> bool {
        let told = match cause {
            Error::NotAdmitted { .. } | Error::OtherVersion { .. } => {
                self.porter.out.clear();
                Frame::Failed(Failure::of(cause)).encode(0, &mut self.porter.out);
                matches!(self.send(), Ok(true))
            }
            // TLS has said it already.
            Error::Protocol(_) => matches!(self.stage, Stage::Handshake),
            _ => false,
        };
        // A socket that is closed with unread bytes may take back what was sent, so the stranger closes
        // first.
        self.stage = Stage::Leaving(0);
        if told {
            self.stream.shutdown_sending();
        }
        told
    }
}

/// The strangers at the door, and where they come from.
#[derive(Debug, Default)]
struct Crowd {
    /// Older strangers have smaller numbers.
    sources: BTreeMap<u64, IpAddr>,
}

impl Crowd {
    /// Adds a newcomer. Returns the stranger that must make room.
    fn enter(&mut self, id: u64, from: IpAddr) -> Option<u64> {
        let source = network_of(from);
        let of = |source: IpAddr| self.sources.values().filter(|other| **other == source).count();
        let crowded = if of(source) >= MAX_OF_SOURCE {
            Some(source)
        } else if self.sources.len() >= MAX_STRANGERS {
            let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
            self.sources.values().for_each(|source| *counts.entry(*source).or_default() += 1);
            counts.into_iter().max_by_key(|(_, count)| *count).map(|(source, _)| source)
        } else {
            None
        };
        let out =
            crowded.and_then(|crowded| self.sources.iter().find(|(_, source)| **source == crowded).map(|(id, _)| *id));
        self.sources.insert(id, source);
        out
    }

    fn leave(&mut self, id: u64) {
        self.sources.remove(&id);
    }

    fn oldest(&self) -> Option<u64> {
        self.sources.keys().next().copied()
    }
}

/// What counts as one source: an address, or a network of 64 bits, because one machine may have a whole
/// one.
pub(super) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no sockets")]
    fn a_door_that_the_system_refuses_a_connection_rests() {
        let waker = || Arc::new(Waker::new().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let hall = Arc::new(Hall::new(waker()));
        let mut door = Door::new(Options::default(), listener, waker(), hall, Arc::default()).unwrap();
        let tick = TICK.as_nanos() as Nanos;
        door.rest(5);
        let listens = |now| {
            door.tick(now);
            door.listening
        };
        assert_eq!([5, 4 + tick, 5 + tick].map(listens), [false, false, true]);
    }

    #[test]
    fn a_source_shows_out_its_own() {
        let mut crowd = Crowd::default();
        assert_eq!(crowd.enter(0, address(1)), None);
        for id in 1..=MAX_OF_SOURCE as u64 {
            assert_eq!(crowd.enter(id, address(2)), None);
        }
        for id in 0..3 {
            assert_eq!(crowd.enter(1000 + id, address(2)), Some(1 + id));
            crowd.leave(1 + id);
        }
        assert_eq!(crowd.oldest(), Some(0));
    }

    #[test]
    fn the_source_that_has_the_most_makes_room() {
        let mut crowd = Crowd::default();
        let mut id = 0;
        let mut enter = |crowd: &mut Crowd, from| {
            id += 1;
            let out = crowd.enter(id, address(from));
            out.inspect(|out| crowd.leave(*out))
        };
        assert_eq!(enter(&mut crowd, 1), None);
        for from in 2..=5 {
            for _ in 0..MAX_OF_SOURCE - usize::from(from == 5) {
                assert_eq!(enter(&mut crowd, from), None);
            }
        }
        assert_eq!(crowd.sources.len(), MAX_STRANGERS);
        let out = enter(&mut crowd, 9).unwrap();
        assert_ne!(out, 1, "the one of another source stays");
        assert_eq!(crowd.sources.len(), MAX_STRANGERS);
    }

    #[test]
    fn networks() {
        let of = |text: &str| network_of(text.parse().unwrap()).to_string();
        assert_eq!(of("10.1.2.3"), "10.1.2.3");
        assert_eq!(of("::ffff:10.1.2.3"), "10.1.2.3");
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), of("2001:db8:1:2::"));
    }
}
