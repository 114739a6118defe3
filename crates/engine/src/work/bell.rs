//! A bell that wakes sleepers when there may be work.

use forebay_env::sync::{Condvar, Mutex, lock};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest sleep without a look for work.
const NAP: Duration = Duration::from_millis(100);

/// Rings when there may be work.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rings: Mutex<u64>,
    rung: Condvar,
    /// Without threads: a step is under way. What it waits for may make somebody ask for another step.
    pub(crate) stepping: AtomicBool,
}

impl Bell {
    /// Whether a step is under way, in a database without threads.
    pub(crate) fn is_stepping(&self) -> bool {
        self.stepping.load(Ordering::Relaxed)
    }

    /// Says that there may be work.
    pub(crate) fn ring(&self) {
        *lock(&self.rings) += 1;
        self.rung.notify_all();
    }

    /// How often the bell has rung. Ask before looking for work.
    pub(crate) fn rings(&self) -> u64 {
        *lock(&self.rings)
    }

    /// Sleeps, not for long, unless the bell has rung since `seen`.
    pub(crate) fn sleep(&self, seen: u64) {
        self.sleep_up_to(seen, NAP);
    }

    /// The same, for `longest` at most.
    pub(crate) fn sleep_up_to(&self, seen: u64, longest: Duration) {
        let rings = lock(&self.rings);
        drop(
            self.rung
                .wait_timeout_while(rings, longest, |rings| *rings == seen)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }
}
