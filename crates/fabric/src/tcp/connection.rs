//! A connection at the node: executes the operations that came in, as a network adapter would.
//!
//! One turn of a connection receives once, executes every whole frame, and sends once. A turn ends early when it has used up
//! its [`Allowance`], when the outgoing queue is full (the socket's readiness continues the turn), or when messages find no
//! room (the code that serves messages makes room). Meanwhile nothing is received, so the sender's own socket fills. So the
//! memory of a connection is bounded whatever the peer does.
//!
//! After an operation failed, later ones are skipped without effect; the client completes them as flushed. Answers to the
//! node's own reads of the client's memory still count.

use super::buffer::Buffer;
use super::events::Events;
use super::frame::{
    Decoded, Failure, Frame, MAX_FRAME_BYTES, MAX_PIECE_BYTES, Target, decode, missing, peek_read, put_data, refused,
};
use super::inbox::Inbox;
use super::outlet::{Out, Outlet};
use super::peer::NodeLink;
use super::socket::Received;
use super::{MAX_OPERATION_BYTES, lost_client};
use crate::grants::Granted;
use crate::transport::{Event, Peer};
use crate::{EndpointId, Error, Rights};
use forebay_env::Nanos;
use std::sync::Arc;

/// Bytes that a connection holds in a turn when it is alone, or receives in a turn when it is not, unless a frame needs
/// more.
const RECEIVE_BYTES: usize = 256 << 10;
const CROWDED_RECEIVE_BYTES: usize = 16 << 10;
/// What a turn may cost, and how many bytes of earlier answers it may send besides, when others wait: some tens of
/// microseconds.
const CROWDED_COST: usize = 32 << 10;
const CROWDED_SEND_BYTES: usize = 64 << 10;
/// In bytes: what an operation costs besides its bytes, and what a turn costs besides its operations, with some and with
/// none.
const OPERATION_COST: usize = 256;
const TURN_COST: usize = 4 << 10;
const VAIN_COST: usize = 512;

/// What a connection may do in a turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowance {
    /// No answers are made while this many bytes of earlier ones wait; at least one.
    queued_bytes: usize,
    received_bytes: usize,
    sent_bytes: usize,
    /// No operation is begun once the turn has cost this much.
    cost: usize,
}

impl Allowance {
    /// The allowance of a connection that is alone: no limit but the queue.
    pub(super) const fn alone(queued_bytes: usize) -> Self {
        Self { queued_bytes, received_bytes: RECEIVE_BYTES, sent_bytes: usize::MAX, cost: usize::MAX }
    }

    /// The allowance of a connection while others wait for their turn.
    pub(super) const fn crowded(queued_bytes: usize) -> Self {
        let (received_bytes, sent_bytes) = (CROWDED_RECEIVE_BYTES, CROWDED_SEND_BYTES);
        Self { queued_bytes, received_bytes, sent_bytes, cost: CROWDED_COST }
    }
}

/// What a connection is to the node.
#[derive(Debug)]
pub(super) enum Role {
    /// The first connection of a link, which carries nothing more.
    Control(Arc<NodeLink>),
    /// An endpoint of a link.
    Endpoint(Arc<NodeLink>, EndpointId),
}

impl Role {
    pub(super) fn link(&self) -> &Arc<NodeLink> {
        match self {
            Self::Control(link) | Self::Endpoint(link, _) => link,
        }
    }
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing to do until the socket is ready.
    Idle,
    /// There is more to do.
    Again,
    /// The outgoing queue is full, and the socket takes nothing.
    Full,
    /// There is no room for its messages.
    Stalled,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) outlet: Arc<Outlet>,
    pub(super) role: Role,
    /// Whether the socket may have something to receive.
    pub(super) readable: bool,
    /// Whether there was something to do in its last turn.
    pub(super) worked: bool,
    /// What its last turn cost.
    pub(super) cost: usize,
    /// While more waits: bytes that the socket had taken, and when that count was first seen.
    pub(super) stuck: Option<(u64, Nanos)>,
    /// Whether it is queued for a turn.
    pub(super) queued: bool,
    /// Its waiting messages.
    inbox: Arc<Inbox>,
    /// Whether the peer has ended its sending side.
    ended: bool,
    /// Bytes received and not executed: less than a frame, unless the turn ended early.
    leftover: Vec<u8>,
    /// A read that is being answered in pieces: its number, and what is left of it.
    reading: Option<(u64, Target)>,
    /// Whether an operation failed.
    failed: bool,
}

impl Connection {
    /// A connection that was admitted; `received` came over it after its introduction.
    pub(super) const fn new(outlet: Arc<Outlet>, role: Role, inbox: Arc<Inbox>, received: Vec<u8>) -> Self {
        Self {
            outlet,
            role,
            readable: true,
            worked: false,
            cost: 0,
            stuck: None,
            queued: false,
            inbox,
            ended: false,
            leftover: received,
            reading: None,
            failed: false,
        }
    }

    /// Does what can be done now and is allowed. `input` is scratch space.
    ///
    /// # Errors
    /// Why the connection must be closed.
    pub(super) fn turn(&mut self, input: &mut Buffer, events: &Events, allowance: Allowance) -> Result<Turn, Error> {
        (self.cost, self.worked) = (VAIN_COST, false);
        input.clear();
        input.extend(&self.leftover);
        self.leftover.clear();
        let (held, was_reading) = (input.len(), self.reading.is_some());
        self.receive(input, allowance.received_bytes)?;
        // The front of a frame whose rest does not come is not work: it would never end.
        self.worked = input.len() > held || was_reading;
        let turn = match &self.role {
            Role::Control(_) if input.is_empty() => Turn::Idle,
            Role::Control(_) => return Err(Error::Protocol("bytes on a control connection".into())),
            Role::Endpoint(link, id) => {
                let (link, id) = (Arc::clone(link), *id);
                self.execute(&link, id, input, events, allowance)?
            }
        };
        self.leave(input.filled());
        match turn {
            Turn::Idle if self.readable => Ok(Turn::Again),
            Turn::Idle if self.ended => Err(Error::lost("the client", "it closed the connection")),
            turn => Ok(turn),
        }
    }

    /// Keeps what was received and not executed. Frees memory beyond that.
    fn leave(&mut self, bytes: &[u8]) {
        self.leftover.reserve_exact(bytes.len());
        self.leftover.extend_from_slice(bytes);
        if bytes.is_empty() && self.leftover.capacity() > MAX_FRAME_BYTES {
            self.leftover = Vec::new();
        }
    }

    fn receive(&mut self, input: &mut Buffer, most: usize) -> Result<(), Error> {
        if !self.readable || input.len() >= MAX_FRAME_BYTES {
            return Ok(());
        }
        let room = most.min(RECEIVE_BYTES - input.len()).max(missing(input.filled()));
        match self.outlet.stream.receive(input.space(room)).map_err(lost_client)? {
            Received::Bytes(count, more) => {
                input.commit(count);
                // Edge-triggered: what is left in the socket is not announced again.
                self.readable = more;
            }
            Received::Nothing => self.readable = false,
            Received::End => (self.readable, self.ended) = (false, true),
        }
        Ok(())
    }

    /// Executes what is in `input`, and sends the answers.
    fn execute(
        &mut self,
        link: &Arc<NodeLink>,
        id: EndpointId,
        input: &mut Buffer,
        events: &Events,
        allowance: Allowance,
    ) -> Result<Turn, Error> {
        let outlet = Arc::clone(&self.outlet);
        // A thread that is appending a long reply must not hold up the other connections.
        let Some(mut out) = outlet.try_lock() else { return Ok(Turn::Again) };
        let queued = out.queue.len();
        // What the turn has cost so far, apart from the answers made.
        let mut cost = 0;
        let most_cost = allowance.cost.saturating_add(queued);
        let turn = {
            let granted = link.offered.hold();
            prefetch(&granted, input.filled());
            loop {
                let waiting = out.queue.len();
                if waiting >= allowance.queued_bytes || waiting + cost >= most_cost {
                    break Turn::Again;
                }
                if let Some((number, target)) = self.reading {
                    cost += OPERATION_COST;
                    self.read_on(&granted, &mut out, number, target);
                    continue;
                }
                let Some(Decoded { number, frame, length }) = decode(input.filled()).map_err(malformed)? else {
                    break Turn::Idle;
                };
                match frame {
                    Frame::Data(bytes) => outlet.answer(&mut out, number, bytes)?,
                    Frame::Failed(failure) => outlet.refuse(&mut out, number, failure.error())?,
                    _ if self.failed => {}
                    Frame::Message(_) if !self.inbox.has_room() => break Turn::Stalled,
                    Frame::Message(bytes) => {
                        self.take_in(link, id, bytes, events);
                        Frame::Done.encode(number, &mut out.queue);
                    }
                    frame => self.operate(&granted, &mut out, number, frame)?,
                }
                cost += OPERATION_COST + length;
                input.consume(length);
            }
        };
        self.worked |= cost > 0;
        let made = out.queue.len() - queued;
        let sent = outlet.send_some(&mut out, allowance.sent_bytes)?;
        self.cost = cost + made + sent + if self.worked { TURN_COST } else { VAIN_COST };
        Ok(match turn {
            // There is more, and the socket may take it.
            _ if !out.queue.is_empty() && sent >= allowance.sent_bytes => Turn::Again,
            Turn::Again if out.queue.len() >= allowance.queued_bytes => Turn::Full,
            turn => turn,
        })
    }

    /// Accepts a message. A separate function, so that the path of reads and writes stays short.
    #[inline(never)]
    fn take_in(&self, link: &Arc<NodeLink>, endpoint: EndpointId, bytes: &[u8], events: &Events) {
        let peer = Arc::clone(link) as Arc<dyn Peer>;
        let (bytes, place) = (bytes.to_vec(), self.inbox.take(bytes.len()));
        events.push(link.turn, Event::Message { peer, endpoint, bytes, place });
    }

    /// Carries out a one-sided operation and appends its answer.
    fn operate(&mut self, granted: &Granted<'_>, out: &mut Out, number: u64, frame: Frame<'_>) -> Result<(), Error> {
        let answer = match frame {
            Frame::Read(target) => {
                self.read_on(granted, out, number, target);
                return Ok(());
            }
            Frame::Write { immediate: Some(_), .. } => Err(Error::Unsupported("an immediate to a node")),
            Frame::Write { to, bytes, .. } => write(granted, to, bytes),
            Frame::CompareSwap { at, expected, new } => granted
                .check(at, 8, Rights::ATOMIC)
                .and_then(|(region, offset)| region.compare_swap(offset, expected, new))
                .map(|word| Some(Frame::Word(word))),
            Frame::FetchAdd { at, delta } => granted
                .check(at, 8, Rights::ATOMIC)
                .and_then(|(region, offset)| region.fetch_add(offset, delta))
                .map(|word| Some(Frame::Word(word))),
            _ => return Err(Error::Protocol("a frame that a client must not send".into())),
        };
        match answer {
            Ok(Some(frame)) => frame.encode(number, &mut out.queue),
            Ok(None) => {}
            Err(cause) => self.fail(out, number, &cause),
        }
        Ok(())
    }

    /// Appends the next piece of a read's answer.
    #[inline]
    fn read_on(&mut self, granted: &Granted<'_>, out: &mut Out, number: u64, target: Target) {
        let Target { at, length } = target;
        let piece = (length as usize).min(MAX_PIECE_BYTES);
        // All that is left is checked with every piece: the key may be revoked between two.
        let done = limited(length)
            .and_then(|()| granted.check(at, length.into(), Rights::READ))
            .and_then(|(region, offset)| put_data(&mut out.queue, number, piece, |into| region.read(offset, into)));
        if let Err(cause) = done {
            return self.fail(out, number, &cause);
        }
        let left = length - piece as u32;
        self.reading = (left > 0).then(|| (number, Target { at: at.add(piece as u64), length: left }));
    }

    fn fail(&mut self, out: &mut Out, number: u64, cause: &Error) {
        self.failed = true;
        self.reading = None;
        Frame::Failed(Failure::of(cause)).encode(number, &mut out.queue);
    }
}

/// Writes a frame's bytes to granted memory; acknowledged when the operation is complete.
pub(super) fn write(granted: &Granted<'_>, to: Target, bytes: &[u8]) -> Result<Option<Frame<'static>>, Error> {
    limited(to.length)?;
    let (region, offset) = granted.check(to.at, to.length.into(), Rights::WRITE)?;
    region.write(offset, bytes)?;
    Ok((bytes.len() == to.length as usize).then_some(Frame::Done))
}

#[inline]
fn limited(length: u32) -> Result<(), Error> {
    if length as usize > MAX_OPERATION_BYTES {
        return Err(Error::TooLarge { length: length.into(), limit: MAX_OPERATION_BYTES as u64 });
    }
    Ok(())
}

/// Prefetches the memory that the reads at the front of `input` are about to touch.
fn prefetch(granted: &Granted<'_>, mut input: &[u8]) {
    while let Some((Target { at, length }, frame_bytes)) = peek_read(input) {
        granted.prefetch(at, length as usize);
        input = input.get(frame_bytes..).unwrap_or_default();
    }
}

pub(super) fn malformed(cause: forebay_base::DecodeError) -> Error {
    refused("the peer", "a malformed frame", cause)
}

// Miri has no such sockets.
#[cfg(all(test, not(miri)))]
mod tests;
