//! What happened at the node, on its way from the I/O thread to whoever serves.
//!
//! The queue is bounded: when it is full, the I/O thread leaves messages (and later new links) where they
//! are, stops receiving from the connections that they came over, and is woken when half the queue
//! has been taken. Links that leave are always let in: there are no more of them than joined.

use crate::Error;
use crate::transport::Event;
use forebay_env::sync::lock;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Events in the queue, which is one for all: behind those of one connection wait the others'. What is not in it waits in
/// the sockets of those who sent it.
const MAX_EVENTS: usize = 1024;
/// Bytes of messages in the queue.
const MAX_MESSAGE_BYTES: usize = 4 << 20;

#[derive(Debug, Default)]
pub(super) struct Events {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Event>,
    /// Bytes of the messages in it.
    message_bytes: usize,
    /// Somebody sleeps until an event arrives.
    sleeping: bool,
    /// The I/O thread waits for room.
    stalled: bool,
    /// Why no more events will come.
    ended: Option<Error>,
}

impl Queue {
    fn is_full(&self, share: usize) -> bool {
        self.events.len() >= MAX_EVENTS / share || self.message_bytes >= MAX_MESSAGE_BYTES / share
    }
}

impl Events {
    /// Whether a message may be pushed; if not, the taker of events says when to ask again.
    pub(super) fn has_room(&self) -> bool {
        let mut queue = lock(&self.queue);
        queue.stalled |= queue.is_full(1);
        !queue.is_full(1)
    }

    /// Whether a link may be pushed. There is room for links when messages find none: a flood keeps nobody out.
    pub(super) fn has_room_for_link(&self) -> bool {
        let mut queue = lock(&self.queue);
        let is_full = queue.events.len() >= 4 * MAX_EVENTS;
        queue.stalled |= is_full;
        !is_full
    }

    pub(super) fn push(&self, event: Event) {
        let mut queue = lock(&self.queue);
        if let Event::Message { bytes, .. } = &event {
            queue.message_bytes += bytes.len();
        }
        queue.events.push_back(event);
        if std::mem::take(&mut queue.sleeping) {
            drop(queue);
            self.arrived.notify_one();
        }
    }

    /// No more events will come.
    pub(super) fn end(&self, cause: Error) {
        lock(&self.queue).ended = Some(cause);
        self.arrived.notify_all();
    }

    /// The next event, and whether the I/O thread must be told that there is room again.
    pub(super) fn next(&self, limit: Duration) -> Result<(Option<Event>, bool), Error> {
        let mut queue = lock(&self.queue);
        if queue.events.is_empty() && queue.ended.is_none() && !limit.is_zero() {
            queue.sleeping = true;
            let nothing = |queue: &mut Queue| queue.events.is_empty() && queue.ended.is_none();
            let woken = self.arrived.wait_timeout_while(queue, limit, nothing);
            queue = woken.unwrap_or_else(PoisonError::into_inner).0;
            queue.sleeping = false;
        }
        let event = queue.events.pop_front();
        if let Some(Event::Message { bytes, .. }) = &event {
            queue.message_bytes = queue.message_bytes.saturating_sub(bytes.len());
        }
        if let (None, Some(cause)) = (&event, &queue.ended) {
            return Err(cause.clone());
        }
        let resume = queue.stalled && !queue.is_full(2);
        queue.stalled &= !resume;
        Ok((event, resume))
    }

    /// Drops all events: they hold links, which hold this queue.
    pub(super) fn clear(&self) {
        let events = std::mem::take(&mut lock(&self.queue).events);
        drop(events);
    }
}
