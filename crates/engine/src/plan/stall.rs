//! Why writers wait, and for how long.
//!
//! A writer that switches memtables waits while there is no room for another one: sealed memtables wait for their
//! flush, or level 0 has as many tables as it may have. Before that, each switch makes a short pause, so that level 0
//! does not fill up before one compaction of it is done. All pauses from the slowdown trigger to the stop trigger
//! together take as long as one such compaction. They are short at first and longer towards the stop.

use crate::terms::Options;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Longest pause of one switch.
const MAX_PAUSE: Duration = Duration::from_millis(400);
/// The assumed duration of a compaction of level 0 before the first one, in nanoseconds.
const FIRST_GUESS: u64 = 100_000_000;

/// How fast level 0 is compacted.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Nanoseconds that the last compaction of level 0 took.
    compaction: AtomicU64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { compaction: AtomicU64::new(FIRST_GUESS) }
    }
}

impl Pace {
    /// Notes how long a compaction of level 0 took.
    pub(crate) fn compacted(&self, nanos: u64) {
        self.compaction.store(nanos, Relaxed);
    }

    /// How long the writer that switches memtables pauses when level 0 has `level0` tables.
    pub(crate) fn pause(&self, options: &Options, level0: usize) -> Duration {
        let (slowdown, stop) = (options.level0_slowdown_trigger, options.level0_stop_trigger);
        if options.bulk_load || level0 < slowdown {
            return Duration::ZERO;
        }
        // Step i of n: (2i - 1) / n² of the whole, which add up to it.
        let steps = (stop - slowdown).max(1) as f64;
        let step = ((level0 - slowdown + 1) as f64).min(steps);
        let share = (2.0 * step - 1.0) / (steps * steps);
        Duration::from_nanos((self.compaction.load(Relaxed) as f64 * share) as u64).min(MAX_PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_add_up_to_a_compaction() {
        let options = Options::default();
        let pace = Pace::default();
        pace.compacted(1_600_000_000);
        assert_eq!(pace.pause(&options, options.level0_slowdown_trigger - 1), Duration::ZERO);
        let steps = options.level0_slowdown_trigger..options.level0_stop_trigger;
        let pauses: Vec<_> = steps.map(|level0| pace.pause(&options, level0)).collect();
        assert!(pauses.is_sorted() && pauses[0] < Duration::from_millis(10));
        let sum: Duration = pauses.iter().sum();
        assert!(sum.abs_diff(Duration::from_millis(1600)) < Duration::from_micros(1), "{sum:?}");
        pace.compacted(u64::MAX);
        assert_eq!(pace.pause(&options, options.level0_stop_trigger - 1), MAX_PAUSE);
        let options = Options { bulk_load: true, ..options };
        assert_eq!(pace.pause(&options, 1_000), Duration::ZERO);
    }
}
