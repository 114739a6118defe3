//! One connection: bytes in, bytes out.
//!
//! A turn of a connection reads, carries out what was asked, and sends, until there is nothing to do. While much waits
//! to be sent nothing is read, so that a client that does not take its replies costs a bounded amount of memory: it
//! waits for itself.

use crate::execute::{Executor, MAX_REPLY_BYTES, Pace};
use crate::network::stream::Stream;
use crate::protocol::reply::{Protocol, Reply};
use crate::protocol::request::{ProtocolError, Requests};
use crate::state::counters::Counters;
use crate::state::session::Session;
use forebay_env::Nanos;
use mio::net::TcpStream;
use std::io::{ErrorKind, Write};

/// Reads in a turn, at most: others are waiting.
const READS_A_TURN: usize = 8;
/// A client that was sent more than this without asking, and does not take it, is given up.
const MAX_UNASKED_BYTES: usize = 32 << 20;
/// Requests that are understood at a time.
const REQUESTS_AT_A_TIME: usize = 1024;

/// What comes after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The client must do something.
    Waits,
    /// There is more to do.
    GoesOn,
    /// The connection has ended.
    Ends,
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    /// What the client has said about itself.
    pub session: Session,
    stream: Stream,
    requests: Requests,
    out: Reply,
    /// How much of `out` was sent.
    sent: usize,
    pace: Pace,
    can_read: bool,
    can_write: bool,
    has_hung_up: bool,
    broken: Option<ProtocolError>,
    /// When the handshake of TLS must be over.
    handshake_until: Option<Nanos>,
}

impl Connection {
    /// A new connection. A handshake must be over at this time.
    #[must_use]
    pub fn new(stream: Stream, session: Session, handshake_until: Option<Nanos>) -> Self {
        Self {
            session,
            stream,
            requests: Requests::default(),
            out: Reply::new(Protocol::Two),
            sent: 0,
            pace: Pace::default(),
            can_read: false,
            can_write: true,
            has_hung_up: false,
            broken: None,
            handshake_until,
        }
    }

    /// The socket.
    pub const fn socket(&mut self) -> &mut TcpStream {
        self.stream.socket()
    }

    /// Says farewell.
    pub fn close(&mut self) {
        self.stream.close();
    }

    /// Whether the handshake is not over and had to be at this time.
    #[must_use]
    pub fn is_late(&self, now: Nanos) -> bool {
        self.stream.is_handshaking() && self.handshake_until.is_some_and(|until| until <= now)
    }

    /// The socket has something, or takes something.
    pub fn is_ready(&mut self, readable: bool, writable: bool, hung_up: bool) {
        self.can_read |= readable;
        self.can_write |= writable;
        self.has_hung_up |= hung_up;
    }

    /// The client has let go of the connection while it waits in a command.
    #[must_use]
    pub const fn is_given_up(&self) -> bool {
        self.session.blocked.is_some() && self.has_hung_up
    }

    /// The client need not wait any longer, and gets this reply.
    pub fn unblock(&mut self, bytes: &[u8]) {
        self.session.blocked = None;
        self.session.client.describe(|described| described.is_blocked = false);
        self.out.raw(bytes);
    }

    /// A command that was held goes on.
    pub const fn release(&mut self) {
        self.session.held_until = None;
    }

    /// When the client's time to wait is over, or that of a command that is held, or that for its handshake.
    #[must_use]
    pub fn waits_until(&self) -> Option<Nanos> {
        if self.stream.is_handshaking() {
            return self.handshake_until;
        }
        self.session.held_until.or(self.session.blocked.as_ref().and_then(|waiter| waiter.until))
    }

    /// Adds what the client is sent without having asked. False when it does not take what it is sent.
    #[must_use]
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        self.out.raw(bytes);
        self.out.len() - self.sent <= MAX_UNASKED_BYTES
    }

    /// Does what there is to do.
    pub fn turn(&mut self, executor: &Executor<'_>, spare: &mut Vec<u8>) -> Turn {
        self.requests.borrow_memory(spare);
        let turn = self.rounds(executor).unwrap_or(Turn::Ends);
        let (request_bytes, reply_bytes) = (self.requests.size_bytes(), self.out.len() - self.sent);
        self.session.client.describe(|described| {
            described.request_bytes = request_bytes;
            described.reply_bytes = reply_bytes;
        });
        self.requests.return_memory(spare);
        turn
    }

    fn rounds(&mut self, executor: &Executor<'_>) -> std::io::Result<Turn> {
        for _ in 0..READS_A_TURN {
            self.send(executor)?;
            let unsent = self.out.len() - self.sent;
            if self.session.is_closing && unsent == 0 && !self.stream.is_pending() {
                return Ok(Turn::Ends);
            }
            if unsent > MAX_REPLY_BYTES || !self.session.may_go_on() {
                return Ok(Turn::Waits);
            }
            if self.carry_out(executor) {
                continue;
            }
            if !self.can_read {
                return Ok(Turn::Waits);
            }
            match self.requests.fill(&mut self.stream) {
                Ok((0, _)) => return Ok(Turn::Ends),
                Ok((read, may_have_more)) => {
                    // A socket that filled less than it could has nothing left, and tells when it has.
                    self.can_read = may_have_more;
                    Counters::add(&executor.shared.counters.received_bytes, read as u64);
                    self.carry_out(executor);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.can_read = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.send(executor)?;
        Ok(Turn::GoesOn)
    }

    /// Carries out what is whole. False when there was nothing.
    fn carry_out(&mut self, executor: &Executor<'_>) -> bool {
        if self.requests.is_empty() && self.broken.is_none() {
            let most = usize::try_from(executor.shared.config.max_bulk_bytes()).unwrap_or(0);
            self.broken = self.requests.parse(REQUESTS_AT_A_TIME, most, self.session.user.is_some()).err();
        }
        if self.requests.is_empty() {
            self.requests.consume(0);
            let Some(broken) = &self.broken else { return false };
            tracing::debug!(client = self.session.client.id, %broken, "a client broke the protocol");
            self.out.error(&format!("ERR {broken}"));
            self.session.is_closing = true;
            return true;
        }
        let done = executor.serve(&mut self.session, &self.requests, &mut self.out, &mut self.pace);
        self.requests.consume(done);
        true
    }

    fn send(&mut self, executor: &Executor<'_>) -> std::io::Result<()> {
        while self.can_write && (self.sent < self.out.len() || self.stream.is_pending()) {
            match self.stream.write(self.out.bytes().get(self.sent..).unwrap_or_default()) {
                Ok(0) if self.sent < self.out.len() => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => {
                    self.sent += sent;
                    Counters::add(&executor.shared.counters.sent_bytes, sent as u64);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.can_write = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.sent == self.out.len() {
            self.out.forget();
            self.sent = 0;
        }
        Ok(())
    }
}
