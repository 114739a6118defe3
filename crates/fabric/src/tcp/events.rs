//! Events of the node, on their way from the I/O thread to the thread that serves.
//!
//! Events of one link are delivered in order. Links take turns, one event each, by the party that they belong to
//! (`turns`), so no link's messages wait behind those of another. The room of their connection bounds messages
//! (`inbox`). When many links come and go, newcomers wait until half of those changes have been delivered.

use crate::Error;
use crate::transport::Event;
use crate::turns::{QUANTUM, Turn, Turns};
use forebay_env::sync::lock;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Undelivered events of links that came or went.
const MAX_CHANGES: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Events {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    events: Turns<u64, Event>,
    /// Events among them that are not messages.
    changes: usize,
    /// Whether a thread sleeps until an event arrives.
    sleeping: bool,
    /// Whether the I/O thread waits for room for a link.
    stalled: bool,
    /// Why no more events will come.
    ended: Option<Error>,
}

impl Events {
    /// Whether a link may be pushed; if not, the taker of events says when to ask again.
    pub(super) fn has_room_for_link(&self) -> bool {
        let mut queue = lock(&self.queue);
        let is_full = queue.changes >= MAX_CHANGES;
        queue.stalled |= is_full;
        !is_full
    }

    pub(super) fn push(&self, turn: Turn<u64>, event: Event) {
        let mut queue = lock(&self.queue);
        if !matches!(event, Event::Message { .. }) {
            queue.changes += 1;
        }
        queue.events.push(turn, 1, event);
        if std::mem::take(&mut queue.sleeping) {
            drop(queue);
            self.arrived.notify_one();
        }
    }

    /// Ends the queue: no more events will come.
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
        let Some((turn, event)) = queue.events.next(|_, _| true) else {
            return queue.ended.clone().map_or(Ok((None, false)), Err);
        };
        queue.events.charge(turn, QUANTUM);
        if !matches!(event, Event::Message { .. }) {
            queue.changes -= 1;
        }
        // What the link sent after its end.
        let after = if matches!(event, Event::Left { .. }) { queue.events.forget(turn) } else { Vec::new() };
        let resume = queue.stalled && queue.changes <= MAX_CHANGES / 2;
        queue.stalled &= !resume;
        drop(queue);
        debug_assert!(after.iter().all(|event| matches!(event, Event::Message { .. })));
        Ok((Some(event), resume))
    }

    /// Drops all events: they hold links, which hold this queue.
    pub(super) fn clear(&self) {
        let events = std::mem::take(&mut lock(&self.queue).events);
        drop(events);
    }
}
