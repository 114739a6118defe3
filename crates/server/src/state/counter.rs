//! A count of one thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that one thread changes and any thread reads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the count. Only its own thread may do this: if two threads add at the same time, an addition may be
    /// lost.
    pub fn add(&self, number: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(number), Ordering::Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
