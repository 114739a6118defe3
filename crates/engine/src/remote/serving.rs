//! Which member of a shard serves (see `members`).

use std::sync::atomic::{AtomicUsize, Ordering};

/// Which member of a shard serves.
#[derive(Debug, Default)]
pub(crate) struct Serving(AtomicUsize);

impl Serving {
    #[inline]
    pub(crate) fn get(&self) -> usize {
        // Acquire: pairs with the release in `set`. Who learns that a member serves sees the copies that lie there.
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, member: usize) {
        self.0.store(member, Ordering::Release);
    }
}
