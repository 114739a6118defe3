//! An endpoint: carries out operations on mapped memory, in the order posted.
//!
//! The caller's own thread does the work at the doorbell. Operations are taken in windows: first
//! the processor is asked to load every target of the window, then the operations are carried out.
//! Only a message can wait, for room in its socket. Operations posted after it wait with it.

use super::channel::{Received, decode};
use super::frame::Frame;
use super::link::{Attached, Shared};
use crate::grants::Granted;
use crate::inprocess::{perform, prefetch};
use crate::transport::{Incoming, Operation, Transport};
use crate::{AccessKey, Error, Region, RemoteAddress, Rights, Word, WorkQueue};
use rustix::event::PollFlags;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Operations whose targets are loaded together.
const WINDOW: usize = 32;
/// Arrivals that are kept before the socket is left to fill.
const MAX_ARRIVALS: usize = 256;

/// An endpoint's connection.
pub(super) struct ShmTransport {
    link: Arc<Shared>,
    attached: Arc<Attached>,
    arrivals: VecDeque<Incoming>,
    buffer: Vec<u8>,
    failed: Option<Error>,
    /// Whether a message waits for room in the socket.
    waits: bool,
    /// Whether the socket has ended: then nothing arrives any more.
    ended: bool,
}

impl ShmTransport {
    pub(super) fn new(link: Arc<Shared>, attached: Arc<Attached>) -> Self {
        Self { link, attached, arrivals: VecDeque::new(), buffer: Vec::new(), failed: None, waits: false, ended: false }
    }

    fn is_alive(&self) -> bool {
        !self.ended && self.link.is_alive()
    }

    /// Carries out what is pending, up to a message that finds no room.
    fn run(&mut self, queue: &mut WorkQueue) {
        while queue.pending() > 0 {
            if self.failed.is_none() && !self.is_alive() {
                self.failed = Some(self.link.lost());
            }
            if let Some(cause) = &self.failed {
                let is_lost = matches!(cause, Error::PeerLost { .. });
                return queue.fail_pending(if is_lost { cause } else { &Error::Flushed });
            }
            if !self.run_window(queue) {
                self.waits = true;
                return;
            }
        }
        self.waits = false;
    }

    /// Carries out the next operations, until one fails. False when a message finds no room.
    #[inline]
    fn run_window(&mut self, queue: &mut WorkQueue) -> bool {
        let Self { link, attached, failed, .. } = self;
        let window = queue.pending().min(WINDOW);
        let granted = approach(link, attached, queue, window);
        for _ in 0..window {
            let Some((_, operation)) = queue.current() else { break };
            let result = match operation {
                Operation::Message(slot) => {
                    match attached.channel.try_send(&[&Frame::message_header(slot.len()), slot], None) {
                        Ok(true) => Ok(0),
                        Ok(false) => return false,
                        Err(Error::PeerLost { .. }) => Err(link.lost()),
                        Err(cause) => Err(cause),
                    }
                }
                Operation::Write { immediate: Some(_), .. } => Err(Error::Unsupported("an immediate to a node")),
                operation => perform(operation, |at, length, needs| granted.check_own(at, length, needs)),
            };
            match result {
                Ok(before) => queue.finish(before),
                Err(cause) => {
                    let cause = told(cause, link);
                    queue.fail(cause.clone());
                    *failed = Some(cause);
                    break;
                }
            }
        }
        true
    }

    /// Writes a range of a region and then a word, confirms both, and prefetches the lines after the
    /// range.
    #[inline]
    fn write_now(
        &self,
        to: RemoteAddress,
        from: &Region,
        offset: u64,
        length: usize,
        then: Option<Word>,
    ) -> Result<(), Error> {
        let Self { link, attached, .. } = self;
        let mut granted = attached.known.hold();
        if !granted.knows(&to.key) {
            drop(granted);
            link.learn(to.key, attached);
            granted = attached.known.hold();
        }
        let (region, at) = granted.check_own(to, length as u64, Rights::WRITE)?;
        region.copy_from(at, from, offset, length)?;
        if let Some(Word { at, value }) = then {
            let (region, at) = granted.check_own(at, 8, Rights::WRITE)?;
            region.store(at, value.to_le())?;
        }
        granted.prefetch(to.add(length as u64), length);
        if link.is_as_known() {
            return Ok(());
        }
        drop(granted);
        link.ask(&to.key)
    }

    /// Reads what arrived at the socket.
    fn take_in(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = vec![0; super::frame::BUFFER_BYTES];
        }
        while !self.ended && self.arrivals.len() < MAX_ARRIVALS {
            let arrival = match self.attached.channel.receive(&mut self.buffer) {
                Received::Nothing => return,
                Received::Ended(_) => None,
                Received::Packet(length, _) => match decode(self.buffer.get(..length).unwrap_or_default()) {
                    Ok(Frame::Immediate(value)) => Some(Incoming::Immediate(value)),
                    Ok(Frame::Message(bytes)) => Some(Incoming::Message(bytes.to_vec())),
                    Ok(_) | Err(_) => None,
                },
            };
            match arrival {
                Some(arrival) => self.arrivals.push_back(arrival),
                // The node is gone, or what sent this is no node.
                None => self.ended = true,
            }
        }
    }
}

/// The cause of a failure. The end of a link revokes its grants after it is marked dead, so this distinguishes a lost node
/// from a refused key.
#[cold]
fn told(cause: Error, link: &Shared) -> Error {
    if cause == Error::AccessDenied && !link.is_alive() { link.lost() } else { cause }
}

/// Holds the grants that the next `count` operations need, after asking for those that the endpoint did not know, and asks
/// the processor to load the targets.
#[inline]
fn approach<'a>(link: &Shared, attached: &'a Attached, queue: &WorkQueue, count: usize) -> Granted<'a> {
    let mut granted = attached.known.hold();
    for skipped in 0..count {
        let Some((_, operation)) = queue.peek(skipped) else { break };
        if let Some(key) = key_of(operation)
            && !granted.knows(key)
        {
            drop(granted);
            link.learn(*key, attached);
            granted = attached.known.hold();
        }
        // A single operation gains nothing from that.
        if count > 1 {
            prefetch(&granted, operation);
        }
    }
    granted
}

/// The key that an operation uses.
#[inline]
const fn key_of(operation: &Operation) -> Option<&AccessKey> {
    match operation {
        Operation::Read { from: address, .. }
        | Operation::Write { to: address, .. }
        | Operation::CompareSwap { at: address, .. }
        | Operation::FetchAdd { at: address, .. } => Some(&address.key),
        Operation::Message(_) => None,
    }
}

impl Transport for ShmTransport {
    fn flush(&mut self, queue: &mut WorkQueue) {
        self.run(queue);
    }

    fn approach(&mut self, target: RemoteAddress, length: usize) {
        let granted = self.attached.known.hold();
        if granted.knows(&target.key) {
            granted.prefetch(target, length);
        }
    }

    fn confirm(&mut self, key: &AccessKey) -> Result<(), Error> {
        self.link.confirm(key, &self.attached)
    }

    fn write_at_once(
        &mut self,
        to: RemoteAddress,
        from: &Region,
        offset: u64,
        length: usize,
        then: Option<Word>,
    ) -> Option<Result<(), Error>> {
        if self.failed.is_some() || !self.is_alive() {
            return None;
        }
        let written = self.write_now(to, from, offset, length, then).map_err(|cause| told(cause, &self.link));
        if let Err(cause) = &written {
            self.failed = Some(cause.clone());
        }
        Some(written)
    }

    fn poll(&mut self, queue: &mut WorkQueue) {
        if queue.pending() > 0 {
            // The node may also be waiting for room.
            self.take_in();
            self.run(queue);
        }
    }

    fn block(&mut self, limit: Duration) {
        if self.is_alive() && self.arrivals.is_empty() {
            let room = if self.waits { PollFlags::OUT } else { PollFlags::empty() };
            self.attached.channel.wait(PollFlags::IN | room, limit);
        }
    }

    fn receive(&mut self) -> Result<Option<Incoming>, Error> {
        if self.arrivals.is_empty() {
            self.take_in();
        }
        match self.arrivals.pop_front() {
            None if !self.is_alive() => Err(self.link.lost()),
            arrival => Ok(arrival),
        }
    }
}

impl Drop for ShmTransport {
    fn drop(&mut self) {
        self.attached.channel.shutdown();
    }
}
