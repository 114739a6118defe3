//! The node's sending side of a connection.
//!
//! Two parties send: the I/O thread, which answers operations, and callers of a [`Peer`](crate::Peer). Each appends whole
//! frames to one queue under its lock, and then sends as much as the socket takes. The I/O thread sends the rest when the
//! socket takes bytes again. The I/O thread never waits here, not even for the lock: others have work for it meanwhile. It
//! stops making answers while the queue is over [`QUEUE_BYTES`]. Callers of a `Peer` wait for room.

use super::buffer::Buffer;
use super::frame::{Frame, MAX_PIECE_BYTES, Target};
use super::stream::{Stream, lost};
use crate::{Error, RemoteAddress};
use forebay_env::HashMap;
use forebay_env::sync::lock;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Bytes in the queue above which nothing is appended (it may exceed this by less than a frame). With many connections,
/// each one's limit for answers is lower.
pub(super) const QUEUE_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) stream: Stream,
    /// Whose connection it is, for errors.
    name: String,
    out: Mutex<Out>,
    /// Signalled when there is room, an answer came, or the connection ended.
    changed: Condvar,
    /// How long a caller of a `Peer` waits.
    patience: Duration,
}

/// What is on its way out, and which answers are awaited.
#[derive(Debug, Default)]
pub(super) struct Out {
    pub(super) queue: Buffer,
    /// Bytes that the socket has taken in total.
    pub(super) taken: u64,
    /// Why nothing can be sent any more.
    ended: Option<Error>,
    /// Number of the last operation on the peer's memory.
    last_number: u64,
    pulls: HashMap<u64, Pull>,
    /// Threads that wait for `changed`.
    waiting: usize,
}

/// A read of the peer's memory that is being answered.
#[derive(Debug)]
struct Pull {
    bytes: Vec<u8>,
    expected: usize,
    refused: Option<Error>,
}

impl Outlet {
    pub(super) fn new(stream: Stream, name: String, patience: Duration) -> Self {
        Self { stream, name, out: Mutex::default(), changed: Condvar::new(), patience }
    }

    /// The queue, for appending to it.
    pub(super) fn lock(&self) -> MutexGuard<'_, Out> {
        lock(&self.out)
    }

    /// As [`Outlet::lock`], unless another thread holds the queue.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Out>> {
        match self.out.try_lock() {
            Ok(out) => Some(out),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Sends what the socket takes now.
    pub(super) fn send(&self, out: &mut Out) -> Result<(), Error> {
        self.send_some(out, usize::MAX).map(drop)
    }

    /// Sends what the socket takes now, but at most `most` bytes. Returns how many.
    pub(super) fn send_some(&self, out: &mut Out, most: usize) -> Result<usize, Error> {
        let mut sent = 0;
        while !out.queue.is_empty() && sent < most {
            let filled = out.queue.filled();
            match self.stream.send(filled.get(..most - sent).unwrap_or(filled)) {
                Ok(0) => break,
                Ok(count) => {
                    out.queue.consume(count);
                    sent += count;
                }
                Err(broken) => {
                    let cause = lost(&self.name, broken);
                    self.end_locked(out, cause.clone());
                    return Err(cause);
                }
            }
        }
        out.taken += sent as u64;
        out.queue.trim(2 * QUEUE_BYTES);
        if out.waiting > 0 && out.queue.len() < QUEUE_BYTES {
            self.changed.notify_all();
        }
        Ok(sent)
    }

    /// Ends the connection: callers that wait get `cause`, as do those that come later.
    pub(super) fn end(&self, cause: Error) {
        self.end_locked(&mut self.lock(), cause);
    }

    fn end_locked(&self, out: &mut Out, cause: Error) {
        out.ended.get_or_insert(cause);
        self.stream.shutdown();
        self.changed.notify_all();
    }

    /// Appends a message and sends.
    pub(super) fn message(&self, bytes: &[u8]) -> Result<(), Error> {
        let mut out = self.with_room(self.lock())?;
        let number = out.next_number();
        Frame::Message(bytes).encode(number, &mut out.queue);
        self.send(&mut out)
    }

    /// Writes to the peer's memory: appends the frames and sends. If the peer refuses the write, the
    /// connection ends.
    pub(super) fn write(&self, to: RemoteAddress, bytes: &[u8], immediate: Option<u32>) -> Result<(), Error> {
        let out = self.with_room(self.lock())?;
        self.put(out, to, bytes, immediate, true)
    }

    /// As [`Outlet::write`], but does not wait: the queue takes all that the socket does not take now.
    pub(super) fn post(&self, to: RemoteAddress, bytes: &[u8], immediate: Option<u32>) -> Result<(), Error> {
        self.put(self.standing()?, to, bytes, immediate, false)
    }

    /// The queue, while the connection stands.
    fn standing(&self) -> Result<MutexGuard<'_, Out>, Error> {
        let out = self.lock();
        match &out.ended {
            Some(cause) => Err(cause.clone()),
            None => Ok(out),
        }
    }

    /// Appends a write, piece by piece. Others may append between two pieces, because each piece is a write
    /// of its own.
    fn put<'a>(
        &'a self,
        mut out: MutexGuard<'a, Out>,
        to: RemoteAddress,
        bytes: &[u8],
        immediate: Option<u32>,
        waits: bool,
    ) -> Result<(), Error> {
        let number = out.next_number();
        let mut done = 0;
        loop {
            let rest = bytes.get(done..).unwrap_or_default();
            let (piece, more) = rest.split_at(rest.len().min(MAX_PIECE_BYTES));
            let target = Target { at: to.add(done as u64), length: rest.len() as u32 };
            let last = more.is_empty();
            let frame = Frame::Write { to: target, immediate: immediate.filter(|_| last), bytes: piece };
            frame.encode(number, &mut out.queue);
            done += piece.len();
            if last {
                return self.send(&mut out);
            }
            if out.queue.len() >= QUEUE_BYTES {
                self.send(&mut out)?;
            }
            drop(out);
            out = self.standing()?;
            if waits {
                out = self.with_room(out)?;
            }
        }
    }

    /// Bytes that the socket has not taken.
    pub(super) fn unsent(&self) -> usize {
        self.lock().queue.len()
    }

    /// Asks for at least one byte of the peer's memory. The answer is for [`Outlet::take_read`].
    pub(super) fn start_read(&self, from: RemoteAddress, length: usize) -> Result<u64, Error> {
        let mut out = self.standing()?;
        let number = out.next_number();
        Frame::Read(Target { at: from, length: length as u32 }).encode(number, &mut out.queue);
        out.pulls.insert(number, Pull { bytes: Vec::new(), expected: length, refused: None });
        self.send(&mut out)?;
        Ok(number)
    }

    /// Returns the answer to a read, if it has come.
    pub(super) fn take_read(&self, number: u64) -> Option<Result<Vec<u8>, Error>> {
        let mut out = self.lock();
        if out.pulls.get(&number).is_some_and(Pull::is_answered) {
            let Pull { bytes, refused, .. } = out.pulls.remove(&number)?;
            return Some(refused.map_or(Ok(bytes), Err));
        }
        out.ended.clone().map(Err)
    }

    /// Abandons a read. An answer that comes later could not be told from one that was never asked for, so if it has
    /// not come yet, the connection ends.
    pub(super) fn drop_read(&self, number: u64) {
        let mut out = self.lock();
        if out.pulls.remove(&number).is_some_and(|pull| !pull.is_answered()) {
            self.end_locked(&mut out, unasked(number));
        }
    }

    /// Reads from the peer's memory, at least one byte, and waits for the answer.
    pub(super) fn read(&self, from: RemoteAddress, into: &mut [u8]) -> Result<(), Error> {
        let mut out = self.with_room(self.lock())?;
        let number = out.next_number();
        let target = Target { at: from, length: into.len() as u32 };
        Frame::Read(target).encode(number, &mut out.queue);
        out.pulls.insert(number, Pull { bytes: Vec::with_capacity(into.len()), expected: into.len(), refused: None });
        self.send(&mut out)?;
        let answered = |out: &Out| out.pulls.get(&number).is_none_or(Pull::is_answered);
        let mut out = self.wait(out, answered);
        let pull = out.pulls.remove(&number);
        if let Some(cause) = &out.ended {
            return Err(cause.clone());
        }
        match pull {
            Some(Pull { refused: Some(cause), .. }) => Err(cause),
            Some(Pull { bytes, expected, .. }) if bytes.len() == expected => {
                into.copy_from_slice(&bytes);
                Ok(())
            }
            _ => {
                let cause = Error::TimedOut(self.patience);
                self.end_locked(&mut out, cause.clone());
                Err(cause)
            }
        }
    }

    /// Waits until the queue takes more. A peer that takes nothing for too long loses the connection.
    fn with_room<'a>(&'a self, out: MutexGuard<'a, Out>) -> Result<MutexGuard<'a, Out>, Error> {
        let mut out = self.wait(out, |out| out.queue.len() < QUEUE_BYTES);
        if out.queue.len() >= QUEUE_BYTES {
            self.end_locked(&mut out, Error::TimedOut(self.patience));
        }
        match &out.ended {
            Some(cause) => Err(cause.clone()),
            None => Ok(out),
        }
    }

    fn wait<'a>(&'a self, mut out: MutexGuard<'a, Out>, done: impl Fn(&Out) -> bool) -> MutexGuard<'a, Out> {
        if done(&out) || out.ended.is_some() {
            return out;
        }
        out.waiting += 1;
        let waits = |out: &mut Out| !done(out) && out.ended.is_none();
        let woken = self.changed.wait_timeout_while(out, self.patience, waits);
        let mut out = woken.unwrap_or_else(PoisonError::into_inner).0;
        out.waiting -= 1;
        out
    }

    /// Accepts a piece of the answer to a read.
    pub(super) fn answer(&self, out: &mut Out, number: u64, bytes: &[u8]) -> Result<(), Error> {
        let pull = out.pulls.get_mut(&number).ok_or_else(|| unasked(number))?;
        if bytes.len() > pull.expected - pull.bytes.len() || bytes.is_empty() && pull.expected > 0 {
            return Err(unasked(number));
        }
        pull.bytes.extend_from_slice(bytes);
        if pull.is_answered() {
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Accepts the refusal of a read; that of a write is an error of the connection.
    pub(super) fn refuse(&self, out: &mut Out, number: u64, cause: Error) -> Result<(), Error> {
        let pull = out.pulls.get_mut(&number).ok_or_else(|| Error::Broken(Box::new(cause.clone())))?;
        pull.refused = Some(cause);
        self.changed.notify_all();
        Ok(())
    }
}

impl Out {
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

impl Pull {
    fn is_answered(&self) -> bool {
        self.refused.is_some() || self.bytes.len() == self.expected
    }
}

fn unasked(number: u64) -> Error {
    Error::Protocol(format!("an answer to operation {number}, which does not await it"))
}
