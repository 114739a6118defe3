//! An endpoint: carries out operations on mapped memory, in the order posted.
//!
//! The caller's own thread does the work at the doorbell. Operations are taken in windows: first
//! the processor is asked to load every target of the window, then they are carried out. Only a
//! message can wait: for room in its socket. What is posted behind it waits with it.

use super::channel::{Received, decode};
use super::frame::Frame;
use super::link::{Attached, Shared};
use crate::grants::Granted;
use crate::inprocess::{awaited, outcome, perform};
use crate::transport::{Completion, Incoming, Operation, Transport, Work};
use crate::{AccessKey, Error};
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
    queue: VecDeque<Work>,
    arrivals: VecDeque<Incoming>,
    buffer: Vec<u8>,
    failed: Option<Error>,
    /// The socket has ended: nothing arrives any more.
    ended: bool,
}

impl ShmTransport {
    pub(super) fn new(link: Arc<Shared>, attached: Arc<Attached>) -> Self {
        Self {
            link,
            attached,
            queue: VecDeque::new(),
            arrivals: VecDeque::new(),
            buffer: Vec::new(),
            failed: None,
            ended: false,
        }
    }

    fn is_alive(&self) -> bool {
        !self.ended && self.link.is_alive()
    }

    /// Carries out what is queued, up to a message that finds no room.
    fn run(&mut self, ready: &mut VecDeque<Completion>) {
        while !self.queue.is_empty() {
            if self.failed.is_none() && !self.is_alive() {
                self.failed = Some(self.link.lost());
            }
            if let Some(cause) = &self.failed {
                let cause = if matches!(cause, Error::PeerLost { .. }) { cause.clone() } else { Error::Flushed };
                ready.extend(self.queue.drain(..).map(|work| Completion { id: work.id, result: Err(cause.clone()) }));
                return;
            }
            if !self.run_window(ready) {
                return;
            }
        }
    }

    /// Carries out the next operations, until one fails. False when a message finds no room.
    #[inline]
    fn run_window(&mut self, ready: &mut VecDeque<Completion>) -> bool {
        let Self { link, attached, queue, failed, .. } = self;
        let window = queue.len().min(WINDOW);
        let granted = approach(link, attached, queue.iter().take(window));
        for _ in 0..window {
            let Some(work) = queue.front_mut() else { break };
            let result = match &mut work.operation {
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
            // The end of a link takes its grants back, after it is marked dead: this tells a lost node
            // from a refused key.
            let result = match result {
                Err(Error::AccessDenied) if !link.is_alive() => Err(link.lost()),
                result => result,
            };
            if let Err(cause) = &result {
                *failed = Some(cause.clone());
            }
            if let Some(Work { id, operation, .. }) = queue.pop_front() {
                ready.push_back(Completion { id, result: result.map(|before| outcome(operation, before)) });
            }
            if failed.is_some() {
                break;
            }
        }
        true
    }

    /// Takes in what arrived at the socket.
    fn take_in(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = vec![0; super::frame::MAX_FRAME_BYTES];
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
                // The node is gone, or is none.
                None => self.ended = true,
            }
        }
    }
}

/// Holds the grants that `works` need, having asked for those that the endpoint did not know, and
/// asks the processor to load the targets.
#[inline]
fn approach<'a, 'w>(
    link: &Shared,
    attached: &'a Attached,
    works: impl ExactSizeIterator<Item = &'w Work>,
) -> Granted<'a> {
    let ahead = works.len() > 1;
    let mut granted = attached.known.hold();
    for work in works {
        if let Some(key) = key_of(&work.operation)
            && !granted.knows(key)
        {
            drop(granted);
            link.learn(*key, attached);
            granted = attached.known.hold();
        }
        if ahead && let Some((address, length)) = awaited(&work.operation) {
            granted.prefetch(address, length);
        }
    }
    granted
}

/// The grant that an operation is under.
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
    fn post(&mut self, work: Work) {
        self.queue.push_back(work);
    }

    fn flush(&mut self, ready: &mut VecDeque<Completion>) {
        self.run(ready);
    }

    fn poll(&mut self, ready: &mut VecDeque<Completion>) {
        if !self.queue.is_empty() {
            // The node may be waiting for room as well.
            self.take_in();
            self.run(ready);
        }
    }

    fn block(&mut self, limit: Duration) {
        if self.is_alive() && self.arrivals.is_empty() {
            let room = if self.queue.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
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
