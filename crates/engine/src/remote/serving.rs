//! Which member of a shard serves (see `members`), and whether somebody found damage in what a member holds.

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
        // Acquire: pairs with the release in `set`. Who learns that a member serves sees the copies that lie there.
        self.member.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, member: usize) {
        self.member.store(member, Ordering::Release);
    }

    /// Notes that a copy seems to be damaged: all of them are to be looked at (`durable::mending`).
    pub(crate) fn suspect(&self) {
        self.is_suspected.store(true, Ordering::Relaxed);
    }

    /// Whether a copy seems to be damaged.
    pub(crate) fn is_suspected(&self) -> bool {
        self.is_suspected.load(Ordering::Relaxed)
    }

    /// The copies are looked at from now on, because of all that was noted before.
    pub(crate) fn take_suspicion(&self) -> bool {
        self.is_suspected.swap(false, Ordering::Relaxed)
    }
}
