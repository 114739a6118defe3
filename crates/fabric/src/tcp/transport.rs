//! A client's endpoint: posts operations, and carries out the node's operations on this side.
//!
//! ```text
//!  queue:  ┌─ answered ─┬── sent or in `out` ──┬── to be encoded ──┬─ posted ─┐
//!                       next            next + encoded            rung
//! ```
//!
//! Operations are answered in the order posted, so an answer belongs to the queue's current operation. Only
//! [`Transport::block`] blocks. What the socket does not take now stays in `out`, and every poll sends more of
//! it and receives. So two sides with full buffers never wait for each other. Large writes are encoded piece
//! by piece as `out` drains.

use super::buffer::Buffer;
use super::connection::{malformed, write};
use super::frame::{Decoded, Failure, Frame, MAX_PIECE_BYTES, Target, decode, put_data, put_write};
use super::link::Shared;
use super::socket::Received;
use super::stream::{Stream, wait};
use crate::transport::{Incoming, Operation, Payload, Transport};
use crate::{Error, RemoteAddress, Rights, WorkQueue};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Bytes received at a time.
const RECEIVE_BYTES: usize = 256 << 10;
/// Bytes on their way out above which nothing is encoded (it may exceed this by less than a frame).
const OUT_BYTES: usize = 256 << 10;
/// Polls that find nothing before each further one yields to other threads: about as long as an answer takes.
const IDLE_POLLS: u32 = 16;
/// Most reads by the node that wait for their answer, and most arrivals that nobody took: a node that exceeds
/// this breaks the protocol.
const MAX_WAITING: usize = 64 << 10;

pub(super) struct TcpTransport {
    link: Arc<Shared>,
    stream: Arc<Stream>,
    out: Buffer,
    input: Buffer,
    /// Number of pending operations that are fully encoded.
    encoded: usize,
    /// Bytes of the next operation's payload that are encoded.
    encoded_bytes: usize,
    /// Bytes of the current operation, a read, that have come.
    filled: usize,
    /// Reads by the node: their number and what is left of them.
    pulls: VecDeque<(u64, Target)>,
    incoming: VecDeque<Incoming>,
    /// Polls in a row that found nothing.
    idle_polls: u32,
    /// Whether an operation failed: later ones are flushed.
    failed: bool,
    /// Why nothing works any more.
    lost: Option<Error>,
}

impl TcpTransport {
    /// A transport on a connection that was welcomed; `input` came after the welcome.
    pub(super) fn new(link: Arc<Shared>, stream: Arc<Stream>, input: Buffer) -> Self {
        Self {
            link,
            stream,
            out: Buffer::default(),
            input,
            encoded: 0,
            encoded_bytes: 0,
            filled: 0,
            pulls: VecDeque::new(),
            incoming: VecDeque::new(),
            idle_polls: 0,
            failed: false,
            lost: None,
        }
    }

    /// Sends and receives what can be sent and received now.
    fn exchange(&mut self, queue: &mut WorkQueue) {
        let done = self.send(queue).and_then(|()| self.receive(queue)).and_then(|()| {
            // What the node just asked for is answered before the thread sleeps.
            if self.pulls.is_empty() { Ok(()) } else { self.send(queue) }
        });
        if let Err(cause) = done {
            self.lose(cause);
        } else if !self.link.stands() {
            self.lose(self.link.lost("the link is closed"));
        }
        if self.failed || self.lost.is_some() {
            self.give_up(queue);
        }
    }

    fn send(&mut self, queue: &WorkQueue) -> Result<(), Error> {
        loop {
            self.encode(queue)?;
            if self.out.is_empty() {
                return Ok(());
            }
            match self.stream.send(self.out.filled()).map_err(|e| self.link.lost(e))? {
                0 => return Ok(()),
                count => self.out.consume(count),
            }
        }
    }

    /// Encodes what was rung, and answers to the node's reads, as far as there is room.
    #[inline]
    fn encode(&mut self, queue: &WorkQueue) -> Result<(), Error> {
        while self.out.len() < OUT_BYTES && !self.failed {
            let Some((id, operation)) = queue.peek(self.encoded) else { break };
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

    fn receive(&mut self, queue: &mut WorkQueue) -> Result<(), Error> {
        loop {
            let received = self.stream.receive(self.input.space(RECEIVE_BYTES));
            match received.map_err(|e| self.link.lost(e))? {
                Received::Nothing => {
                    self.idle_polls = self.idle_polls.saturating_add(1);
                    return Ok(());
                }
                Received::End => return Err(self.link.lost("it closed the connection")),
                Received::Bytes(count, more) => {
                    self.idle_polls = 0;
                    self.input.commit(count);
                    // What follows may be a large answer: completions go first.
                    let mut input = std::mem::take(&mut self.input);
                    let taken = self.take_frames(&mut input, queue);
                    self.input = input;
                    taken?;
                    if !more || queue.first_ended().is_some() {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn take_frames(&mut self, input: &mut Buffer, queue: &mut WorkQueue) -> Result<(), Error> {
        while let Some(Decoded { number, frame, length }) = decode(input.filled()).map_err(malformed)? {
            match frame {
                Frame::Data(bytes) => self.take_data(number, bytes, queue)?,
                Frame::Done => match self.answered(number, queue)? {
                    Operation::Write { .. } | Operation::Message(_) => self.finish(queue, 0),
                    _ => return Err(unasked(number)),
                },
                Frame::Word(word) => match self.answered(number, queue)? {
                    Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => self.finish(queue, word),
                    _ => return Err(unasked(number)),
                },
                Frame::Failed(failure) => self.take_failure(number, failure, queue)?,
                frame => self.take_request(number, frame)?,
            }
            input.consume(length);
        }
        Ok(())
    }

    /// Accepts bytes for the current operation, a read.
    #[inline]
    fn take_data(&mut self, number: u64, bytes: &[u8], queue: &mut WorkQueue) -> Result<(), Error> {
        let Operation::Read { into, .. } = self.answered(number, queue)? else { return Err(unasked(number)) };
        let length = into.len();
        let filled = self.filled + bytes.len();
        let room = into.get_mut(self.filled..filled).ok_or_else(|| unasked(number))?;
        if bytes.is_empty() && filled < length {
            return Err(unasked(number));
        }
        room.copy_from_slice(bytes);
        if filled < length {
            self.filled = filled;
        } else {
            self.finish(queue, 0);
        }
        Ok(())
    }

    /// The current operation, which must be the one that was answered, and fully encoded.
    #[inline]
    fn answered<'q>(&self, number: u64, queue: &'q mut WorkQueue) -> Result<&'q mut Operation, Error> {
        match queue.current() {
            Some((id, operation)) if id.0 == number && self.encoded > 0 => Ok(operation),
            _ => Err(unasked(number)),
        }
    }

    #[inline]
    fn finish(&mut self, queue: &mut WorkQueue, word: u64) {
        self.encoded -= 1;
        self.filled = 0;
        queue.finish(word);
    }

    /// Accepts the failure of the current operation, which may be in the middle of its encoding.
    fn take_failure(&mut self, number: u64, failure: Failure, queue: &mut WorkQueue) -> Result<(), Error> {
        match queue.current() {
            Some((id, _)) if id.0 == number && !self.failed && (self.encoded > 0 || self.encoded_bytes > 0) => {
                queue.fail(failure.error());
                self.failed = true;
                Ok(())
            }
            _ => Err(unasked(number)),
        }
    }

    /// Accepts an operation of the node on this side.
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
                    // The node ends the connection: it cannot continue after a write that was refused.
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

    /// Ends operations that can no longer succeed.
    fn give_up(&mut self, queue: &mut WorkQueue) {
        match &self.lost {
            Some(cause) if !self.failed => queue.fail_pending(cause),
            _ => queue.fail_pending(&Error::Flushed),
        }
        (self.encoded, self.encoded_bytes, self.filled) = (0, 0, 0);
    }
}

fn unasked(number: u64) -> Error {
    Error::Protocol(format!("an answer to operation {number}, which does not await it"))
}

/// Appends an operation, or its next piece when `done` bytes of its payload are encoded. Returns how
/// many are encoded afterwards, or `None` when the operation is complete.
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
    // A fence needs nothing: the node finishes each operation before it begins the next.
    fn flush(&mut self, queue: &mut WorkQueue) {
        if self.failed || self.lost.is_some() {
            return self.give_up(queue);
        }
        if let Err(cause) = self.send(queue) {
            // What was answered before the connection ended still counts.
            self.exchange(queue);
            self.lose(cause);
            self.give_up(queue);
        }
    }

    fn poll(&mut self, queue: &mut WorkQueue) {
        if self.lost.is_none() {
            self.exchange(queue);
            // With few cores, the node's thread may wait for this core.
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
