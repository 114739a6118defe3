//! What a node's socket thread hands to the caller of `Listener::next`.
//!
//! The queue is bounded by back-pressure: a link with too many unread messages here, in number or
//! in bytes, is *paused* (its sockets are not read) until half of them are taken.

use crate::transport::{Event, Peer, Place};
use crate::{EndpointId, Error, PeerId};
use forebay_env::sync::{lock, relax};
use forebay_env::{Clock, Nanos, SystemClock};
use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Messages of one link that may wait unread.
const MAX_MESSAGES: u64 = 256;
/// Bytes of one link's messages that may wait unread.
const MAX_BYTES: u64 = 1 << 20;
/// How often the reader looks at the queue before it sleeps.
const SPINS: u32 = 128;

/// The queue.
#[derive(Debug)]
pub(super) struct Events {
    items: Mutex<VecDeque<Item>>,
    arrived: Condvar,
    waker: OwnedFd,
    clock: SystemClock,
}

/// An event before it is handed out.
#[derive(Debug)]
pub(super) enum Item {
    Joined(Arc<dyn Peer>),
    /// `unread` counts the message.
    Message {
        peer: Arc<dyn Peer>,
        unread: Arc<Unread>,
        endpoint: EndpointId,
        bytes: Vec<u8>,
    },
    Left {
        peer: PeerId,
        cause: Error,
    },
}

impl Events {
    pub(super) fn new() -> Result<Self, Error> {
        let waker = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Error::io("making an event descriptor", e))?;
        Ok(Self { items: Mutex::default(), arrived: Condvar::new(), waker, clock: SystemClock::new() })
    }

    pub(super) fn push(&self, item: Item) {
        lock(&self.items).push_back(item);
        self.arrived.notify_one();
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.items).len()
    }

    /// Forgets everything: events hold peers, which hold this queue.
    pub(super) fn clear(&self) {
        let items = std::mem::take(&mut *lock(&self.items));
        drop(items);
    }

    /// The next event, or `None` when there was none within `limit`.
    pub(super) fn next(&self, limit: Duration) -> Option<Event> {
        let start = self.clock.now();
        let deadline = start.saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(Nanos::MAX));
        let mut round = 0;
        loop {
            let now = self.clock.now();
            let mut items = lock(&self.items);
            if items.is_empty() && now < deadline && round >= SPINS {
                let left = Duration::from_nanos(deadline - now);
                items = self.arrived.wait_timeout(items, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            let item = items.pop_front();
            drop(items);
            match item {
                Some(item) => return Some(self.hand_out(item)),
                None if now >= deadline => return None,
                None => relax(&mut round),
            }
        }
    }

    fn hand_out(&self, item: Item) -> Event {
        match item {
            Item::Joined(peer) => Event::Joined(peer),
            Item::Message { peer, unread, endpoint, bytes } => {
                if unread.take(bytes.len()) {
                    self.wake_reader();
                }
                Event::Message { peer, endpoint, bytes, place: Place::default() }
            }
            Item::Left { peer, cause } => Event::Left { peer, cause },
        }
    }

    /// Wakes the socket thread.
    pub(super) fn wake_reader(&self) {
        // If the counter is full, the reader is awake.
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }

    /// Makes the waker silent again.
    pub(super) fn woken(&self) {
        let _ = rustix::io::read(&self.waker, &mut [0; 8]);
    }

    pub(super) fn waker(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

/// Messages of one link that are in the queue.
#[derive(Debug, Default)]
pub(super) struct Unread {
    messages: AtomicU64,
    bytes: AtomicU64,
    paused: AtomicBool,
}

impl Unread {
    /// Counts a message that goes into the queue.
    pub(super) fn add(&self, bytes: usize) {
        self.messages.fetch_add(1, Ordering::SeqCst);
        self.bytes.fetch_add(bytes as u64, Ordering::SeqCst);
    }

    /// Counts a message that leaves the queue. True when the link was paused and may continue.
    fn take(&self, bytes: usize) -> bool {
        self.messages.fetch_sub(1, Ordering::SeqCst);
        self.bytes.fetch_sub(bytes as u64, Ordering::SeqCst);
        // All SeqCst: at least one of this and `pause` sees the other's change.
        !self.exceeds(2) && self.paused.swap(false, Ordering::SeqCst)
    }

    fn exceeds(&self, share: u64) -> bool {
        self.messages.load(Ordering::SeqCst) > MAX_MESSAGES / share
            || self.bytes.load(Ordering::SeqCst) > MAX_BYTES / share
    }

    /// Whether no more should be read. If so, [`Unread::take`] says when to continue.
    pub(super) fn pause(&self) -> bool {
        if !self.exceeds(1) {
            return false;
        }
        self.paused.store(true, Ordering::SeqCst);
        // The reader may have taken everything before it could see that.
        self.exceeds(2)
    }

    /// Whether enough was taken to continue after a pause.
    pub(super) fn may_resume(&self) -> bool {
        !self.exceeds(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_pauses_when_full_and_resumes_when_half_is_taken() {
        let unread = Unread::default();
        for _ in 0..MAX_MESSAGES {
            unread.add(1);
        }
        assert!(!unread.pause());
        unread.add(1);
        assert!(unread.pause() && !unread.may_resume());
        let resumed_after = (0..=MAX_MESSAGES).position(|_| unread.take(1)).unwrap();
        assert_eq!(resumed_after as u64, MAX_MESSAGES / 2);
        assert!(unread.may_resume() && !unread.pause());
        unread.add(MAX_BYTES as usize + 1);
        assert!(unread.pause());
        assert!(unread.take(MAX_BYTES as usize + 1));
    }
}
