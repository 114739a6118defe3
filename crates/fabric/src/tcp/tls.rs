//! A TLS session on a socket: first the handshake, then records in and out.
//!
//! rustls makes and opens records; this module moves bytes. Both directions have a buffer of bounded size:
//!
//! ```text
//!   send:     bytes ── encrypt, at most CHUNK_BYTES ──► output ──► socket
//!   receive:  socket ──► input, at most INPUT_BYTES ── decrypt ──► caller's space
//!                                                             └──► spare: what did not fit, at most INPUT_BYTES
//!                                                                  and a record
//! ```
//!
//! Bytes count as sent when their records are with the system, so a caller that waits until all is sent need not
//! know of `output`. Until then the caller offers the same bytes again: they are not encrypted twice.
//!
//! A session ends with its connection, without a farewell. It carries frames, which include their length, so
//! truncation is detected.

use super::buffer::Buffer;
use super::socket::{Broken, Received, Socket};
use crate::admission::RECORD_BYTES;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus};
use rustls::{ClientConfig, Error, ServerConfig};
use std::sync::Arc;

/// Bytes that are encrypted at a time: whole records.
const CHUNK_BYTES: usize = 6 * RECORD_BYTES;
/// Encrypted bytes that are held at a time.
const INPUT_BYTES: usize = 64 << 10;
/// The same before the handshake is complete.
const FIRST_INPUT_BYTES: usize = 20 << 10;
/// Most bytes that the peer may send before the handshake is complete.
const MAX_HANDSHAKE_BYTES: u64 = 64 << 10;

pub(super) struct Tls {
    side: Side,
    /// Bytes received and not yet opened.
    input: Buffer,
    /// Bytes encrypted and not yet sent.
    output: Buffer,
    /// How many of the caller's bytes `output` ends with.
    owed: usize,
    /// Bytes opened and not yet taken.
    spare: Buffer,
    /// Bytes that were taken off the socket.
    received_bytes: u64,
    /// Whether the handshake is complete.
    open: bool,
    /// Whether the caller's space was full: then there may be more to open.
    full: bool,
    /// Whether the peer has ended its sending side.
    ended: bool,
    /// Why the session does nothing any more.
    failed: Option<Error>,
}

enum Side {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// The result of a step of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Something was done, and there may be more.
    Done,
    /// Nothing more to do with the available bytes.
    Idle,
    /// The peer has ended the session.
    Closed,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("open", &self.open).field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Tls {
    /// A client's session with the node of this name.
    pub(super) fn client(config: &Arc<ClientConfig>, node: ServerName<'static>) -> Result<Self, Broken> {
        let connection = UnbufferedClientConnection::new(Arc::clone(config), node).map_err(Broken::Tls)?;
        Ok(Self::new(Side::Client(Box::new(connection))))
    }

    /// A node's session with a client.
    pub(super) fn server(config: &Arc<ServerConfig>) -> Result<Self, Broken> {
        let connection = UnbufferedServerConnection::new(Arc::clone(config)).map_err(Broken::Tls)?;
        Ok(Self::new(Side::Server(Box::new(connection))))
    }

    fn new(side: Side) -> Self {
        Self {
            side,
            input: Buffer::default(),
            output: Buffer::default(),
            owed: 0,
            spare: Buffer::default(),
            received_bytes: 0,
            open: false,
            full: false,
            ended: false,
            failed: None,
        }
    }

    pub(super) fn peer_certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        let shown = match &self.side {
            Side::Client(connection) => connection.peer_certificates(),
            Side::Server(connection) => connection.peer_certificates(),
        };
        shown.map(<[_]>::to_vec)
    }

    /// Bytes that were taken off the socket, whatever they carried.
    pub(super) const fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Whether there are bytes that the socket no longer announces.
    pub(super) fn holds_bytes(&self) -> bool {
        self.full || !self.spare.is_empty()
    }

    /// Continues the handshake. True once it is complete and none of it waits to be sent.
    pub(super) fn shake_hands(&mut self, socket: &Socket) -> Result<bool, Broken> {
        let done = self.go_on(socket);
        if done.is_err() {
            // Sends what the session has to say about the failure; the peer may be gone.
            let _ = self.push(socket);
        }
        done
    }

    fn go_on(&mut self, socket: &Socket) -> Result<bool, Broken> {
        while !self.open {
            self.run(&mut [], 0)?;
            self.push(socket)?;
            if self.open {
                break;
            }
            if self.received_bytes > MAX_HANDSHAKE_BYTES || self.input.len() >= FIRST_INPUT_BYTES {
                return Err(self.fail(Error::General("the handshake is too long".into())));
            }
            let (count, _) = self.fill(socket, FIRST_INPUT_BYTES)?;
            if count == 0 {
                return if self.ended { Err(rustix::io::Errno::CONNRESET.into()) } else { Ok(false) };
            }
        }
        self.push(socket)
    }

    /// Sends what the socket takes now, and says how many of `bytes` are sent with it.
    pub(super) fn send(&mut self, socket: &Socket, bytes: &[u8]) -> Result<usize, Broken> {
        let mut sent = 0;
        loop {
            if !self.push(socket)? {
                return Ok(sent);
            }
            sent += std::mem::take(&mut self.owed);
            let rest = bytes.get(sent..).unwrap_or_default();
            if rest.is_empty() || !self.open {
                return Ok(sent);
            }
            let chunk = rest.get(..CHUNK_BYTES).unwrap_or(rest);
            self.encrypt(chunk)?;
            self.owed = chunk.len();
        }
    }

    /// Receives what is available now.
    pub(super) fn receive(&mut self, socket: &Socket, into: &mut [u8]) -> Result<Received, Broken> {
        let mut taken = self.spare.len().min(into.len());
        into[..taken].copy_from_slice(&self.spare.filled()[..taken]);
        self.spare.consume(taken);
        let mut more = taken == into.len();
        if !more {
            more = self.fill(socket, INPUT_BYTES)?.1;
            taken = self.run(into, taken)?;
            // The answer to what the peer asked of the session.
            self.push(socket)?;
            // No record is this long: it is a message in many records, which would never fit.
            if taken < into.len() && self.input.len() >= INPUT_BYTES {
                return Err(self.fail(Error::General("a message of the session is too long".into())));
            }
        }
        self.full = taken == into.len();
        more |= self.holds_bytes();
        match taken {
            0 if self.ended => Ok(Received::End),
            0 if !more => Ok(Received::Nothing),
            _ => Ok(Received::Bytes(taken, more || self.ended)),
        }
    }

    /// Takes bytes off the socket, until `input` holds `limit`. Returns how many, and whether there may be more.
    fn fill(&mut self, socket: &Socket, limit: usize) -> Result<(usize, bool), Broken> {
        let room = limit.saturating_sub(self.input.len());
        if self.ended || room == 0 {
            return Ok((0, false));
        }
        match socket.receive(self.input.space(room))? {
            Received::Bytes(count, more) => {
                self.input.commit(count);
                self.received_bytes = self.received_bytes.saturating_add(count as u64);
                Ok((count, more))
            }
            Received::Nothing => Ok((0, false)),
            Received::End => {
                self.ended = true;
                Ok((0, false))
            }
        }
    }

    /// Opens records until `into` is full. `taken` of its bytes are already filled. Returns how many are filled
    /// afterwards.
    fn run(&mut self, into: &mut [u8], mut taken: usize) -> Result<usize, Broken> {
        self.check()?;
        loop {
            let Self { side, input, output, spare, .. } = self;
            let mut take = |payload: &[u8]| {
                let (now, later) = payload.split_at(payload.len().min(into.len() - taken));
                into[taken..taken + now.len()].copy_from_slice(now);
                taken += now.len();
                spare.extend(later);
            };
            let (discard, step) = match side {
                Side::Client(session) => step(session.process_tls_records(input.filled_mut()), output, &mut take),
                Side::Server(session) => step(session.process_tls_records(input.filled_mut()), output, &mut take),
            };
            input.consume(discard);
            match step {
                Ok(Step::Done) if taken < into.len() || into.is_empty() && spare.is_empty() => {}
                Ok(Step::Closed) => {
                    self.ended = true;
                    return Ok(taken);
                }
                Ok(Step::Done | Step::Idle) => {
                    self.open |= match &self.side {
                        Side::Client(session) => !session.is_handshaking(),
                        Side::Server(session) => !session.is_handshaking(),
                    };
                    return Ok(taken);
                }
                Err(error) => return Err(self.fail(error)),
            }
        }
    }

    /// Marks the session as failed. It is asked only for its last words, which follow what is to be sent.
    fn fail(&mut self, error: Error) -> Broken {
        let Self { side, input, output, .. } = self;
        loop {
            // Always all of the input: the session remembers places in it.
            let (discard, step) = match side {
                Side::Client(session) if session.wants_write() => {
                    step(session.process_tls_records(input.filled_mut()), output, &mut |_| {})
                }
                Side::Server(session) if session.wants_write() => {
                    step(session.process_tls_records(input.filled_mut()), output, &mut |_| {})
                }
                _ => break,
            };
            input.consume(discard);
            if step.is_err() {
                break;
            }
        }
        self.failed = Some(error.clone());
        Broken::Tls(error)
    }

    fn check(&self) -> Result<(), Broken> {
        self.failed.clone().map_or(Ok(()), |error| Err(Broken::Tls(error)))
    }

    /// Encrypts `bytes` into `output`.
    fn encrypt(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        self.check()?;
        loop {
            let Self { side, input, output, spare, .. } = self;
            let mut take = |payload: &[u8]| spare.extend(payload);
            let (discard, done) = match side {
                Side::Client(session) => {
                    encrypt(session.process_tls_records(input.filled_mut()), bytes, output, &mut take)
                }
                Side::Server(session) => {
                    encrypt(session.process_tls_records(input.filled_mut()), bytes, output, &mut take)
                }
            };
            input.consume(discard);
            match done {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => return Err(self.fail(error)),
            }
        }
    }

    /// Sends `output`. True when the socket took all of it.
    fn push(&mut self, socket: &Socket) -> Result<bool, Broken> {
        while !self.output.is_empty() {
            match socket.send(self.output.filled())? {
                0 => return Ok(false),
                count => self.output.consume(count),
            }
        }
        Ok(true)
    }
}

/// Does what the session's state asks for. Also returns how many bytes of the input are used up.
fn step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    output: &mut Buffer,
    take: &mut impl FnMut(&[u8]),
) -> (usize, Result<Step, Error>) {
    let UnbufferedStatus { mut discard, state, .. } = status;
    let step = state.and_then(|state| match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record?;
                discard += record.discard;
                take(record.payload);
            }
            Ok(Step::Done)
        }
        ConnectionState::EncodeTlsData(mut data) => {
            // The first call says how much room is needed.
            let room = match data.encode(&mut []) {
                Ok(count) => count,
                Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) => required_size,
                Err(EncodeError::AlreadyEncoded) => 0,
            };
            let made = data.encode(output.space(room)).map_err(|e| Error::General(e.to_string()))?;
            output.commit(made);
            Ok(Step::Done)
        }
        // It precedes all that is sent from now on.
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok(Step::Done)
        }
        ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => Ok(Step::Idle),
        ConnectionState::PeerClosed | ConnectionState::Closed => Ok(Step::Closed),
        other => Err(Error::General(format!("a state that is not expected: {other:?}"))),
    });
    (discard, step)
}

/// Encrypts `bytes` if the session is ready for it; else does what it asks for, and returns false.
fn encrypt<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    bytes: &[u8],
    output: &mut Buffer,
    take: &mut impl FnMut(&[u8]),
) -> (usize, Result<bool, Error>) {
    match status {
        UnbufferedStatus { discard, state: Ok(ConnectionState::WriteTraffic(mut traffic)), .. } => {
            let mut room = bytes.len() + OVERHEAD_BYTES * (1 + bytes.len() / RECORD_BYTES);
            let done = loop {
                match traffic.encrypt(bytes, output.space(room)) {
                    Ok(made) => {
                        output.commit(made);
                        break Ok(true);
                    }
                    Err(EncryptError::InsufficientSize(size)) if size.required_size > room => room = size.required_size,
                    Err(error) => break Err(Error::General(error.to_string())),
                }
            };
            (discard, done)
        }
        status => {
            let (discard, step) = step(status, output, take);
            (
                discard,
                step.and_then(|step| match step {
                    Step::Done => Ok(false),
                    Step::Idle => Err(Error::HandshakeNotComplete),
                    Step::Closed => Err(Error::General("the peer has ended the session".into())),
                }),
            )
        }
    }
}

/// What a record has besides its bytes: header, kind and tag.
const OVERHEAD_BYTES: usize = 5 + 1 + 16;

#[cfg(all(test, not(miri)))]
mod tests;
