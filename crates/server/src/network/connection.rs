//! One connection: bytes in, bytes out.
//!
//! A turn of a connection reads and carries out requests until there is nothing to do, and sends the replies. While much
//! waits to be sent, nothing is read. So a client that does not take its replies costs a bounded amount of memory, and
//! holds up only itself. A turn with little to send may be ended later, together with those of other connections.

use crate::dialogue::Dialogue;
use crate::execute::{Executor, MAX_REPLY_BYTES};
use crate::state::clients::MAX_UNASKED_BYTES;
use crate::state::counters::Count;
use crate::state::mailbox::Letter;
use crate::state::session::Session;
use crate::stream::Stream;
use forebay_env::Nanos;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;

/// Most reads in a turn: other connections are waiting.
const READS_A_TURN: usize = 8;
/// More bytes than this are sent at once.
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
    /// The client's requests and replies.
    pub dialogue: Dialogue,
    stream: Stream,
    /// How many bytes of the first part of the replies were sent.
    sent: usize,
    /// How many of the unsent bytes the client did not ask for, or a little more.
    unasked: usize,
    /// What comes after they are sent.
    next: Turn,
    can_read: bool,
    can_write: bool,
    has_hung_up: bool,
    /// When the connection last had its turn.
    active_at: Nanos,
    /// When the handshake of TLS must be over.
    handshake_until: Option<Nanos>,
    /// Why the handshake failed, if it did.
    refusal: Option<std::io::Error>,
}

impl Connection {
    /// Makes a new connection. A handshake must end by `handshake_until`.
    #[must_use]
    pub fn new(stream: Stream, session: Session, now: Nanos, handshake_until: Option<Nanos>) -> Self {
        Self {
            dialogue: Dialogue::new(session),
            stream,
            sent: 0,
            unasked: 0,
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

    /// Ends the session properly, if the socket takes it.
    pub fn close(&mut self) {
        self.stream.close();
    }

    /// Whether the handshake should have ended by this time, and has not.
    #[must_use]
    pub fn is_late(&self, now: Nanos) -> bool {
        self.stream.is_handshaking() && self.handshake_until.is_some_and(|until| until <= now)
    }

    /// Notes that the socket has data, or takes data, or was hung up.
    pub fn is_ready(&mut self, readable: bool, writable: bool, hung_up: bool) {
        self.can_read |= readable;
        self.can_write |= writable;
        self.has_hung_up |= hung_up;
    }

    /// Whether the client has closed the connection while it waits in a command. A client that has sent a script may
    /// only have nothing more to send.
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

    /// Returns when the client's wait ends, or that of a held command, or the time for its handshake.
    #[must_use]
    pub fn waits_until(&self) -> Option<Nanos> {
        if self.stream.is_handshaking() {
            return self.handshake_until;
        }
        self.dialogue.session.held_until.or(self.dialogue.session.blocked.as_ref().and_then(|waiter| waiter.until))
    }

    /// Adds what the client did not ask for, if it still wants it. Returns false when the client does not take what it
    /// is sent.
    #[must_use]
    pub fn push(&mut self, letter: &Letter) -> bool {
        if !self.dialogue.session.wants(letter) {
            return true;
        }
        let bytes = letter.bytes();
        let has_room = self.unasked + bytes.len() <= MAX_UNASKED_BYTES;
        if has_room {
            self.dialogue.out.raw(bytes);
            self.unasked += bytes.len();
        }
        has_room
    }

    /// When the connection last had its turn.
    #[must_use]
    pub const fn active_at(&self) -> Nanos {
        self.active_at
    }

    /// Does the work of a turn up to its end. Returns true when the end may come later, because little waits to be
    /// sent.
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
        let (request_bytes, reply_bytes) = (self.dialogue.requests.size_bytes(), self.dialogue.out.size_bytes());
        self.dialogue.session.client.describe(|described| {
            described.request_bytes = request_bytes;
            described.reply_bytes = reply_bytes;
        });
        let is_over = self.dialogue.session.is_closing && self.unsent_bytes() == 0 && !self.stream.is_pending();
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
            // The executor carries nothing out then.
            if self.dialogue.out.len() >= MAX_REPLY_BYTES || !self.dialogue.session.may_go_on() {
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
                    // A socket that filled less than it could has nothing left, and reports when it has more. A socket
                    // that was hung up has reported already, and its end is still to be read.
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
        while self.can_write && (self.unsent_bytes() > 0 || self.stream.is_pending()) {
            match self.stream.write(self.dialogue.out.first_part().get(self.sent..).unwrap_or_default()) {
                Ok(0) if self.unsent_bytes() > 0 => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => {
                    self.sent = self.dialogue.out.forget_parts(self.sent + sent);
                    executor.counters.add(Count::Writes, 1);
                    executor.counters.add(Count::SentBytes, sent as u64);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.can_write = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // Requests are read only while little is unsent. So when a long reply comes, this counts little of it.
        self.unasked = self.unasked.min(self.unsent_bytes());
        // A client may never have taken everything, so what it has taken is not kept until then. The rest of a long
        // part is not moved while it is long.
        let unsent = self.unsent_bytes();
        if self.sent >= unsent && unsent <= MAX_UNASKED_BYTES {
            self.sent = self.dialogue.out.forget_first(self.sent);
        }
        Ok(())
    }
}
