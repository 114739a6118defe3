//! How one thread of the node wakes another, or tells it to end.

use crate::Error;
use crate::admission::Watcher;
use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// A thread that waits for sockets, as others see it.
#[derive(Debug)]
pub(super) struct Waker {
    event: OwnedFd,
    stop: AtomicBool,
    rules: AtomicBool,
}

impl Waker {
    pub(super) fn new() -> Result<Self, Error> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Error::io("creating an event counter", e))?;
        Ok(Self { event, stop: AtomicBool::new(false), rules: AtomicBool::new(false) })
    }

    /// There is something to do.
    pub(super) fn wake(&self) {
        // It fails only when the counter is at its maximum: then the thread is being woken.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// The thread has woken.
    pub(super) fn clear(&self) {
        // Empty already, if it was read after the event was made.
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
    }

    /// The thread is to end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Whether there are new rules since this was last asked.
    pub(super) fn has_new_rules(&self) -> bool {
        // Pairs with the store in `notify`; the rules themselves are behind a lock.
        self.rules.swap(false, Ordering::AcqRel)
    }
}

impl Watcher for Waker {
    fn notify(&self) {
        self.rules.store(true, Ordering::Release);
        self.wake();
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
