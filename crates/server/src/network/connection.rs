//! One connection: bytes in, bytes out.
//!
//! A turn of a connection reads and carries out what was asked, until there is nothing to do, and sends. While much waits
//! to be sent nothing is read, so that a client that does not take its replies costs a bounded amount of memory: it
//! waits for itself. A turn with little to send may be ended later, together with those of others.

use crate::dialogue::Dialogue;
use crate::execute::{Executor, MAX_REPLY_BYTES};
use crate::network::stream::Stream;
use crate::state::clients::MAX_UNASKED_BYTES;
use crate::state::counters::Count;
use crate::state::session::Session;
use forebay_env::Nanos;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;

/// Reads in a turn, at most: others are waiting.
const READS_A_TURN: usize = 8;
/// More than this is sent at once.
const PROMPT_BYTES: usize = 16 << 10;

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
    /// What the client asks and is answered.
    pub dialogue: Dialogue,
    stream: Stream,
    /// How much of what it is answered was sent.
    sent: usize,
    /// What comes when that is sent.
    next: Turn,
    can_read: bool,
    can_write: bool,
    has_hung_up: bool,
    /// When it was last the connection's turn.
    active_at: Nanos,
    /// When the handshake of TLS must be over.
    handshake_until: Option<Nanos>,
    /// Why the handshake failed, if it did.
    refusal: Option<std::io::Error>,
}

impl Connection {
    /// A connection that is new now. A handshake must be over at this time.
    #[must_use]
    pub fn new(stream: Stream, session: Session, now: Nanos, handshake_until: Option<Nanos>) -> Self {
        Self {
            dialogue: Dialogue::new(session),
            stream,
            sent: 0,
            next: Turn::Waits,
            can_read: false,
            can_write: true,
            has_hung_up: false,
            active_at: now,
            handshake_until,
            refusal: None,
        }
    }

    /// Where the client is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.dialogue.session.client.address
    }

    /// Why the handshake failed, if it did.
    #[must_use]
    pub const fn refusal(&self) -> Option<&std::io::Error> {
        self.refusal.as_ref()
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

    /// The client has let go of the connection while it waits in a command. Who has sent a script may only have nothing more to
    /// send.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.has_hung_up && self.dialogue.session.blocked.as_ref().is_some_and(|waiter| !waiter.is_of_script())
    }

    /// Whether the client has done nothing since this time, and waits for nothing.
    #[must_use]
    pub fn is_idle_since(&self, at: Nanos) -> bool {
        let session = &self.dialogue.session;
        let waits = session.blocked.is_some() || session.held_until.is_some() || !session.subscriptions.is_empty();
        self.active_at <= at && !waits && !session.client.described().is_monitor
    }

    /// When the client's time to wait is over, or that of a command that is held, or that for its handshake.
    #[must_use]
    pub fn waits_until(&self) -> Option<Nanos> {
        if self.stream.is_handshaking() {
            return self.handshake_until;
        }
        self.dialogue.session.held_until.or(self.dialogue.session.blocked.as_ref().and_then(|waiter| waiter.until))
    }

    /// Adds what the client is sent without having asked. False when it does not take what it is sent.
    #[must_use]
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let has_room = self.unsent_bytes() + bytes.len() <= MAX_UNASKED_BYTES;
        if has_room {
            self.dialogue.out.raw(bytes);
        }
        has_room
    }

    /// When it was last the connection's turn.
    #[must_use]
    pub const fn active_at(&self) -> Nanos {
        self.active_at
    }

    /// Does what there is to do, until the end of the turn. True when that may come later: little waits to be sent.
    #[must_use]
    pub fn turn(&mut self, executor: &Executor<'_>, spare: &mut Vec<u8>) -> bool {
        self.active_at = executor.shared.clock.now();
        self.dialogue.requests.borrow_memory(spare);
        self.next = self.rounds(executor).unwrap_or_else(|error| {
            self.refusal = (self.stream.is_handshaking() && error.kind() == ErrorKind::InvalidData).then_some(error);
            Turn::Ends
        });
        self.dialogue.requests.return_memory(spare);
        (1..=PROMPT_BYTES).contains(&self.unsent_bytes())
    }

    /// Ends the turn: sends what is left.
    pub fn end_turn(&mut self, executor: &Executor<'_>) -> Turn {
        let is_open = self.send(executor).is_ok();
        let (request_bytes, reply_bytes) = (self.dialogue.requests.size_bytes(), self.unsent_bytes());
        self.dialogue.session.client.describe(|described| {
            described.request_bytes = request_bytes;
            described.reply_bytes = reply_bytes;
        });
        let is_over = self.dialogue.session.is_closing && reply_bytes == 0 && !self.stream.is_pending();
        if is_open && !is_over { self.next } else { Turn::Ends }
    }

    fn unsent_bytes(&self) -> usize {
        self.dialogue.out.len() - self.sent
    }

    fn rounds(&mut self, executor: &Executor<'_>) -> std::io::Result<Turn> {
        for _ in 0..READS_A_TURN {
            if self.unsent_bytes() > PROMPT_BYTES || self.stream.is_pending() {
                self.send(executor)?;
            }
            if self.unsent_bytes() > MAX_REPLY_BYTES || !self.dialogue.session.may_go_on() {
                return Ok(Turn::Waits);
            }
            if self.dialogue.carry_out(executor) {
                continue;
            }
            if !self.can_read {
                return Ok(Turn::Waits);
            }
            match self.dialogue.requests.fill(&mut self.stream) {
                Ok((0, _)) => return Ok(Turn::Ends),
                Ok((read, may_have_more)) => {
                    // A socket that filled less than it could has nothing left, and tells when it has. One that was hung up
                    // has told already, and has its end left.
                    self.can_read = may_have_more || self.has_hung_up;
                    executor.counters.add(Count::Reads, 1);
                    executor.counters.add(Count::ReceivedBytes, read as u64);
                    self.dialogue.carry_out(executor);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.can_read = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Turn::GoesOn)
    }

    fn send(&mut self, executor: &Executor<'_>) -> std::io::Result<()> {
        while self.can_write && (self.sent < self.dialogue.out.len() || self.stream.is_pending()) {
            match self.stream.write(self.dialogue.out.bytes().get(self.sent..).unwrap_or_default()) {
                Ok(0) if self.sent < self.dialogue.out.len() => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => {
                    self.sent += sent;
                    executor.counters.add(Count::Writes, 1);
                    executor.counters.add(Count::SentBytes, sent as u64);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.can_write = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.sent == self.dialogue.out.len() {
            self.dialogue.out.forget();
            self.sent = 0;
        }
        Ok(())
    }
}
