//! What `INFO` counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the server started, or since `CONFIG RESETSTAT`.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections that were accepted.
    pub connections: AtomicU64,
    /// Connections that were turned away because there were too many.
    pub rejected: AtomicU64,
    /// Commands.
    pub commands: AtomicU64,
    /// Bytes of requests.
    pub received_bytes: AtomicU64,
    /// Bytes of replies.
    pub sent_bytes: AtomicU64,
    /// Keys that were looked up and found.
    pub hits: AtomicU64,
    /// Keys that were looked up and not found.
    pub misses: AtomicU64,
    /// Keys that expired and were removed.
    pub expired: AtomicU64,
    /// Error replies.
    pub errors: AtomicU64,
}

impl Counters {
    /// Adds to a count.
    pub fn add(counter: &AtomicU64, number: u64) {
        if number > 0 {
            counter.fetch_add(number, Ordering::Relaxed);
        }
    }

    /// A count.
    pub fn of(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    /// All counts become zero.
    pub fn reset(&self) {
        let all = [
            &self.connections,
            &self.rejected,
            &self.commands,
            &self.received_bytes,
            &self.sent_bytes,
            &self.hits,
            &self.misses,
            &self.expired,
            &self.errors,
        ];
        all.into_iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }
}
