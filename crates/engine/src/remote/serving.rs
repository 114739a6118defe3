//! Which member of a shard serves (see `members`), and whether damage was found in what a member holds.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// See the module. All members of a shard share it.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    member: AtomicUsize,
    is_suspected: AtomicBool,
}

impl Serving {
    #[inline]
    pub(crate) fn get(&self) -> usize {
        // Acquire: pairs with the release in `set`. A thread that learns that a member serves sees the copies there.
        self.member.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, member: usize) {
        self.member.store(member, Ordering::Release);
    }

    /// Notes that a copy seems to be damaged: all copies should be checked (`durable::mending`).
    pub(crate) fn suspect(&self) {
        self.is_suspected.store(true, Ordering::Relaxed);
    }

    /// Whether a copy seems to be damaged.
    pub(crate) fn is_suspected(&self) -> bool {
        self.is_suspected.load(Ordering::Relaxed)
    }

    /// Takes the suspicion, as the copies are checked from now on. Returns whether there was one.
    pub(crate) fn take_suspicion(&self) -> bool {
        self.is_suspected.swap(false, Ordering::Relaxed)
    }
}
