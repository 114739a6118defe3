//! The link to storage. It carries as many bytes a second as it is told to, in each direction, so that a database leaves room
//! on a network that others share.

use forebay_env::sync::{Mutex, lock};
use forebay_env::{Clock, Nanos, SystemClock};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Shorter than this nobody waits: a sleep is not exact to less.
const SHORTEST_WAIT: Duration = Duration::from_micros(100);

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    ToStorage,
    FromStorage,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Link {
    clock: Arc<dyn Clock>,
    /// Zero without a limit.
    bytes_per_second: AtomicU64,
    /// When all that was given to it will have arrived, for each direction.
    free_at: [Mutex<Nanos>; 2],
}

impl Link {
    /// One without a limit.
    pub(crate) fn new() -> Self {
        Self::of_clock(SystemClock::shared())
    }

    pub(crate) fn of_clock(clock: Arc<dyn Clock>) -> Self {
        Self { clock, bytes_per_second: AtomicU64::new(0), free_at: Default::default() }
    }

    /// From now on it carries so many bytes a second in each direction.
    pub(crate) fn limit(&self, bytes_per_second: Option<NonZeroU64>) {
        self.bytes_per_second.store(bytes_per_second.map_or(0, NonZeroU64::get), Ordering::Relaxed);
    }

    /// Waits until so many bytes have arrived, behind those that were given to it before.
    pub(crate) fn carry(&self, direction: Direction, bytes: usize) {
        let Some(rate) = NonZeroU64::new(self.bytes_per_second.load(Ordering::Relaxed)) else { return };
        let takes = (bytes as u128 * 1_000_000_000).div_ceil(u128::from(rate.get()));
        let now = self.clock.now();
        let arrives = {
            let mut free_at = lock(&self.free_at[direction as usize]);
            *free_at = (*free_at).max(now).saturating_add(u64::try_from(takes).unwrap_or(u64::MAX));
            *free_at
        };
        let wait = Duration::from_nanos(arrives.saturating_sub(now));
        if wait >= SHORTEST_WAIT {
            self.clock.sleep(wait);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_env::ManualClock;

    #[test]
    fn bytes_wait_for_those_before_them() {
        let clock = Arc::new(ManualClock::new());
        let link = Link::of_clock(Arc::clone(&clock) as _);
        link.carry(Direction::ToStorage, usize::MAX);
        assert_eq!(clock.now(), 0);
        link.limit(NonZeroU64::new(1_000_000));
        // Nobody waits for 60 us, but whoever comes next waits for both.
        link.carry(Direction::ToStorage, 60);
        assert_eq!(clock.now(), 0);
        link.carry(Direction::ToStorage, 60);
        assert_eq!(clock.now(), 120_000);
        // The other direction is free, and time that has passed is not made up for.
        clock.advance(Duration::from_secs(1));
        link.carry(Direction::FromStorage, 1000);
        assert_eq!(clock.now(), 1_001_120_000);
        link.carry(Direction::ToStorage, 1000);
        assert_eq!(clock.now(), 1_002_120_000);
    }
}
