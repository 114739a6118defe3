//! What is known of a memory node's readiness to look up keys for this database.

use crate::terms::Error;
use forebay_base::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// How many calls are assumed to wait at a node that refused one.
const WAITING_WHEN_REFUSED: u32 = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Searches {
    /// Whether the node runs jobs, and this kind of job.
    are_served: AtomicBool,
    /// Calls that waited at the node when it answered last.
    waiting: AtomicU32,
}

impl Searches {
    pub(crate) fn new(runs_jobs: bool) -> Self {
        Self { are_served: AtomicBool::new(runs_jobs), waiting: AtomicU32::new(0) }
    }

    /// Whether the node answers searches at all.
    pub(crate) fn are_served(&self) -> bool {
        self.are_served.load(Ordering::Relaxed)
    }

    /// Calls that wait at the node, as far as is known.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Notes how many calls wait at the node, as it has said.
    pub(crate) fn told(&self, waiting: u32) {
        // Stores only to change the value, because readers share the cache line.
        if self.waiting() != waiting {
            self.waiting.store(waiting, Ordering::Relaxed);
        }
    }

    /// Notes that a lookup was done without the node. What the node said fades, so that it is asked again some time.
    pub(crate) fn spared(&self) {
        let waiting = self.waiting();
        self.told(waiting.saturating_sub(1).min(WAITING_WHEN_REFUSED));
    }

    /// Notes that a search failed, and that the blocks are read instead.
    pub(crate) fn failed(&self, error: &Error) {
        tracing::debug!(%error, "reading what a memory node was to look up");
        match error.kind() {
            ErrorKind::Unsupported => self.are_served.store(false, Ordering::Relaxed),
            _ => self.told(WAITING_WHEN_REFUSED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_said_fades() {
        let searches = Searches::new(true);
        searches.told(1000);
        (0..WAITING_WHEN_REFUSED).for_each(|_| searches.spared());
        assert_eq!(searches.waiting(), 1);
        searches.spared();
        searches.spared();
        assert_eq!(searches.waiting(), 0);
        searches.failed(&Error::new(ErrorKind::Busy, "a test"));
        assert!(searches.waiting() == WAITING_WHEN_REFUSED && searches.are_served());
        searches.failed(&Error::new(ErrorKind::Unsupported, "an old node"));
        assert!(!searches.are_served());
    }
}
