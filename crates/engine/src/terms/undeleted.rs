//! Failed deletions: reported in the log, ever more rarely.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};

/// Failed deletions of one kind of thing that nobody needs any more. The next process that opens the database tries
/// them again, so a single failure does no harm. If all fail, storage grows.
#[derive(Debug)]
pub(crate) struct Undeleted {
    what: &'static str,
    failures: AtomicU64,
}

impl Undeleted {
    /// None so far. `what` is the kind, as the log names it.
    pub(crate) const fn of(what: &'static str) -> Self {
        Self { what, failures: AtomicU64::new(0) }
    }

    /// Notes a failure. The first gets a line in the log, and then each that doubles their number. Returns whether it
    /// got a line.
    pub(crate) fn note(&self, error: &dyn Display) -> bool {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let is_told = failures.is_power_of_two();
        if is_told {
            tracing::warn!(%error, what = self.what, failures, "what nobody needs cannot be deleted: storage grows");
        } else {
            tracing::debug!(%error, what = self.what, "deleting what nobody needs: the next owner does");
        }
        is_told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_that_goes_on_is_told_ever_more_seldom() {
        let undeleted = Undeleted::of("things");
        let told: Vec<u64> = (1..=1000).filter(|_| undeleted.note(&"no")).collect();
        assert_eq!(told, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
    }
}
