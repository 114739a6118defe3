//! A client's endpoint: posts operations, and carries out what the node asks of this side.
//!
//! ```text
//!  posted:   ┌ answered ┬──── sent or in `out` ────┬── rung ──┬── queued ──┐
//!            (gone)     0                          encoded    rung        len
//! ```
//!
//! Operations are answered in the order posted, so answers belong to the front of `posted`. Nothing
//! here blocks but [`Transport::block`]: what the socket does not take now stays in `out`, and is
//! sent on by every poll, which also receives. So two sides with full buffers never wait for each
//! other. Large writes are encoded piece by piece as `out` drains.

use super::buffer::Buffer;
use super::connection::{malformed, write};
use super::frame::{Decoded, Failure, Frame, MAX_PIECE_BYTES, Target, decode, put_data, put_write};
use super::link::Shared;
use super::stream::{Received, Stream, wait};
use crate::transport::{Completion, Incoming, Operation, Outcome, Payload, Transport, Work, WorkId};
use crate::{Error, RemoteAddress, Rights};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Bytes received at a time.
const RECEIVE_BYTES: usize = 256 << 10;
/// Bytes on their way out above which nothing is encoded (by less than a frame it may be more).
const OUT_BYTES: usize = 256 << 10;
/// Polls that find nothing before each gives way to other threads: about as long as an answer takes.
const IDLE_POLLS: u32 = 16;
/// Reads by the node that wait for their answer, and arrivals that nobody took: a node that goes
/// beyond breaks the protocol.
const MAX_WAITING: usize = 64 << 10;

pub(super) struct TcpTransport {
    link: Arc<Shared>,
    stream: Arc<Stream>,
    out: Buffer,
    input: Buffer,
    /// Operations that are not complete.
    posted: VecDeque<Posted>,
    /// Of them, those whose doorbell was rung.
    rung: usize,
    /// Of those, the ones that are encoded to the end.
    encoded: usize,
    /// Bytes of the next one's payload that are encoded.
    encoded_bytes: usize,
    /// Reads by the node: their number and what is left of them.
    pulls: VecDeque<(u64, Target)>,
    incoming: VecDeque<Incoming>,
    /// Polls in a row that found nothing.
    idle_polls: u32,
    /// An operation failed: those behind it are flushed.
    failed: bool,
    /// Why nothing works any more.
    lost: Option<Error>,
}

struct Posted {
    id: WorkId,
    operation: Operation,
    /// Bytes of a read that have come.
    filled: usize,
}

impl TcpTransport {
    /// A transport on a connection that was welcomed; `input` came behind the welcome.
    pub(super) fn new(link: Arc<Shared>, stream: Arc<Stream>, input: Buffer) -> Self {
        Self {
            link,
            stream,
            out: Buffer::default(),
            input,
            posted: VecDeque::new(),
            rung: 0,
            encoded: 0,
            encoded_bytes: 0,
            pulls: VecDeque::new(),
            incoming: VecDeque::new(),
            idle_polls: 0,
            failed: false,
            lost: None,
        }
    }

    /// Sends and receives what can be sent and received now.
    fn exchange(&mut self, ready: &mut VecDeque<Completion>) {
        let done = self.send().and_then(|()| self.receive(ready)).and_then(|()| {
            // What the node asked for just now is answered before anybody sleeps.
            if self.pulls.is_empty() { Ok(()) } else { self.send() }
        });
        if let Err(cause) = done {
            self.lose(cause);
        } else if !self.link.stands() {
            self.lose(self.link.lost("the link is closed"));
        }
        if self.failed || self.lost.is_some() {
            self.give_up(ready);
        }
    }

    fn send(&mut self) -> Result<(), Error> {
        loop {
            self.encode()?;
            if self.out.is_empty() {
                return Ok(());
            }
            match self.stream.send(self.out.filled()).map_err(|e| self.link.lost(std::io::Error::from(e)))? {
                0 => return Ok(()),
                count => self.out.consume(count),
            }
        }
    }

    /// Encodes what was rung, and answers to the node's reads, as far as there is room.
    #[inline]
    fn encode(&mut self) -> Result<(), Error> {
        while self.out.len() < OUT_BYTES && self.encoded < self.rung && !self.failed {
            let Some(Posted { id, operation, .. }) = self.posted.get(self.encoded) else { break };
            let done = encode_operation(&mut self.out, id.0, operation, self.encoded_bytes)?;
            match done {
                Some(done) => self.encoded_bytes = done,
                None => (self.encoded, self.encoded_bytes) = (self.encoded + 1, 0),
            }
        }
        while self.out.len() < OUT_BYTES
            && let Some((number, target)) = self.pulls.pop_front()
        {
            self.answer(number, target);
        }
        Ok(())
    }

    /// Appends a piece of the answer to a read by the node.
    fn answer(&mut self, number: u64, Target { at, length }: Target) {
        let piece = (length as usize).min(MAX_PIECE_BYTES);
        let granted = self.link.exposed.hold();
        let done = granted
            .check(at, length.into(), Rights::READ)
            .and_then(|(region, offset)| put_data(&mut self.out, number, piece, |into| region.read(offset, into)));
        match done {
            Ok(()) if piece < length as usize => {
                let rest = Target { at: at.add(piece as u64), length: length - piece as u32 };
                self.pulls.push_front((number, rest));
            }
            Ok(()) => {}
            Err(cause) => Frame::Failed(Failure::of(&cause)).encode(number, &mut self.out),
        }
    }

    fn receive(&mut self, ready: &mut VecDeque<Completion>) -> Result<(), Error> {
        loop {
            let received = self.stream.receive(self.input.space(RECEIVE_BYTES));
            match received.map_err(|e| self.link.lost(std::io::Error::from(e)))? {
                Received::Nothing => {
                    self.idle_polls = self.idle_polls.saturating_add(1);
                    return Ok(());
                }
                Received::End => return Err(self.link.lost("it closed the connection")),
                Received::Bytes(count) => {
                    self.idle_polls = 0;
                    self.input.commit(count);
                    // What comes behind may be a large answer: completions go first.
                    let mut input = std::mem::take(&mut self.input);
                    let taken = self.take_frames(&mut input, ready);
                    self.input = input;
                    taken?;
                    if count < RECEIVE_BYTES || !ready.is_empty() {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn take_frames(&mut self, input: &mut Buffer, ready: &mut VecDeque<Completion>) -> Result<(), Error> {
        while let Some(Decoded { number, frame, length }) = decode(input.filled()).map_err(malformed)? {
            match frame {
                Frame::Data(bytes) => self.take_data(number, bytes, ready)?,
                Frame::Done => {
                    let outcome = match self.answered(number)? {
                        Operation::Write { payload, .. } => payload.into_slot(),
                        Operation::Message(slot) => Some(slot),
                        _ => return Err(unasked(number)),
                    };
                    ready.push_back(Completion { id: WorkId(number), result: Ok(Outcome::Done(outcome)) });
                }
                Frame::Word(word) => match self.answered(number)? {
                    Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => {
                        ready.push_back(Completion { id: WorkId(number), result: Ok(Outcome::Word(word)) });
                    }
                    _ => return Err(unasked(number)),
                },
                Frame::Failed(failure) => {
                    self.take_failure(number, failure, ready)?;
                }
                frame => self.take_request(number, frame)?,
            }
            input.consume(length);
        }
        Ok(())
    }

    /// Takes in bytes for the read at the front.
    #[inline]
    fn take_data(&mut self, number: u64, bytes: &[u8], ready: &mut VecDeque<Completion>) -> Result<(), Error> {
        let left = match self.posted.front_mut() {
            Some(Posted { id, operation: Operation::Read { into, .. }, filled })
                if id.0 == number && self.encoded > 0 =>
            {
                let length = into.len();
                let room = into.get_mut(*filled..*filled + bytes.len()).ok_or_else(|| unasked(number))?;
                if bytes.is_empty() && *filled < length {
                    return Err(unasked(number));
                }
                room.copy_from_slice(bytes);
                *filled += bytes.len();
                length - *filled
            }
            _ => return Err(unasked(number)),
        };
        if left == 0
            && let Operation::Read { into, .. } = self.answered(number)?
        {
            ready.push_back(Completion { id: WorkId(number), result: Ok(Outcome::Read(into)) });
        }
        Ok(())
    }

    /// Takes the operation at the front, which must be the one that was answered and all sent.
    #[inline]
    fn answered(&mut self, number: u64) -> Result<Operation, Error> {
        match self.posted.pop_front() {
            Some(posted) if posted.id.0 == number && self.encoded > 0 => {
                self.encoded -= 1;
                self.rung -= 1;
                Ok(posted.operation)
            }
            Some(posted) => {
                self.posted.push_front(posted);
                Err(unasked(number))
            }
            None => Err(unasked(number)),
        }
    }

    /// Takes in the failure of the operation at the front, which may be in the middle of its sending.
    fn take_failure(&mut self, number: u64, failure: Failure, ready: &mut VecDeque<Completion>) -> Result<(), Error> {
        match self.posted.front() {
            Some(posted) if posted.id.0 == number && !self.failed && (self.encoded > 0 || self.encoded_bytes > 0) => {
                ready.push_back(Completion { id: posted.id, result: Err(failure.error()) });
                self.posted.pop_front();
                self.failed = true;
                Ok(())
            }
            _ => Err(unasked(number)),
        }
    }

    /// Takes in what the node asks of this side.
    fn take_request(&mut self, number: u64, frame: Frame<'_>) -> Result<(), Error> {
        if self.incoming.len().max(self.pulls.len()) >= MAX_WAITING {
            return Err(Error::Protocol(format!("{MAX_WAITING} requests of the node wait at this endpoint")));
        }
        match frame {
            Frame::Read(target) => self.pulls.push_back((number, target)),
            Frame::Message(bytes) => self.incoming.push_back(Incoming::Message(bytes.to_vec())),
            Frame::Write { to, immediate, bytes } => {
                let done = write(&self.link.exposed.hold(), to, bytes);
                if let Err(cause) = &done {
                    // The node ends the connection: it cannot go on after a write that was refused.
                    Frame::Failed(Failure::of(cause)).encode(number, &mut self.out);
                }
                if let (Ok(Some(_)), Some(immediate)) = (done, immediate) {
                    self.incoming.push_back(Incoming::Immediate(immediate));
                }
            }
            _ => return Err(Error::Protocol("a frame that a node must not send".into())),
        }
        Ok(())
    }

    fn lose(&mut self, cause: Error) {
        if self.lost.is_none() {
            self.stream.shutdown();
            self.lost = Some(cause);
        }
    }

    /// Completes what can succeed no more.
    fn give_up(&mut self, ready: &mut VecDeque<Completion>) {
        let cause = if self.failed { Error::Flushed } else { self.lost.clone().unwrap_or(Error::Flushed) };
        for posted in self.posted.drain(..) {
            ready.push_back(Completion { id: posted.id, result: Err(cause.clone()) });
        }
        (self.rung, self.encoded, self.encoded_bytes) = (0, 0, 0);
    }
}

fn unasked(number: u64) -> Error {
    Error::Protocol(format!("an answer to operation {number}, which does not await it"))
}

/// Appends an operation, or the next piece of it when `done` bytes of its payload are encoded. Returns
/// how many are then, or `None` when it is complete.
#[inline]
fn encode_operation(out: &mut Buffer, number: u64, operation: &Operation, done: usize) -> Result<Option<usize>, Error> {
    match operation {
        Operation::Read { from, into } => {
            Frame::Read(Target { at: *from, length: into.len() as u32 }).encode(number, out);
        }
        Operation::Write { to, payload, immediate } => {
            return encode_write(out, number, *to, payload, *immediate, done);
        }
        Operation::CompareSwap { at, expected, new } => {
            Frame::CompareSwap { at: *at, expected: *expected, new: *new }.encode(number, out);
        }
        Operation::FetchAdd { at, delta } => Frame::FetchAdd { at: *at, delta: *delta }.encode(number, out),
        Operation::Message(slot) => Frame::Message(slot).encode(number, out),
    }
    Ok(None)
}

fn encode_write(
    out: &mut Buffer,
    number: u64,
    to: RemoteAddress,
    payload: &Payload,
    immediate: Option<u32>,
    done: usize,
) -> Result<Option<usize>, Error> {
    let left = payload.length().saturating_sub(done);
    let piece = left.min(MAX_PIECE_BYTES);
    let target = Target { at: to.add(done as u64), length: left as u32 };
    put_write(out, number, target, immediate, piece, |into| match payload {
        Payload::Slot(slot) => {
            into.copy_from_slice(slot.get(done..done + piece).unwrap_or_default());
            Ok(())
        }
        Payload::Sealed { region, offset, .. } => region.read(offset + done as u64, into),
    })?;
    Ok((piece < left).then_some(done + piece))
}

impl Transport for TcpTransport {
    #[inline]
    fn post(&mut self, work: Work) {
        // A fence needs nothing: the node finishes each operation before it begins the next.
        self.posted.push_back(Posted { id: work.id, operation: work.operation, filled: 0 });
    }

    fn flush(&mut self, ready: &mut VecDeque<Completion>) {
        self.rung = self.posted.len();
        if self.failed || self.lost.is_some() {
            return self.give_up(ready);
        }
        if let Err(cause) = self.send() {
            // What was answered before the connection ended still counts.
            self.exchange(ready);
            self.lose(cause);
            self.give_up(ready);
        }
    }

    fn poll(&mut self, ready: &mut VecDeque<Completion>) {
        if self.lost.is_none() {
            self.exchange(ready);
            // With few cores, the node's thread may wait for this one.
            if self.idle_polls > IDLE_POLLS {
                forebay_env::sync::thread::yield_now();
            }
        }
    }

    fn block(&mut self, limit: Duration) {
        if self.lost.is_none() {
            wait([(&self.stream, !self.out.is_empty()), (&self.link.control, false)], limit);
            self.link.check();
        }
    }

    fn receive(&mut self) -> Result<Option<Incoming>, Error> {
        match (self.incoming.pop_front(), &self.lost) {
            (None, Some(cause)) => Err(cause.clone()),
            (None, None) if !self.link.stands() => Err(self.link.lost("the link is closed")),
            (incoming, _) => Ok(incoming),
        }
    }
}
