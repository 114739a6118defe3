//! The link to storage. It carries a set number of bytes a second in each direction, so that a database leaves room on a
//! network that others share. Transfers to a log go first, because writers wait for them. Other transfers share what is
//! left.

use forebay_env::sync::{Mutex, lock};
use forebay_env::{Clock, Nanos, SystemClock};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Nobody waits for a shorter time than this: a sleep is not exact enough.
const SHORTEST_WAIT: Duration = Duration::from_micros(100);

/// Bytes of a transfer after which other transfers have their turn.
const TURN_BYTES: usize = 1 << 20;

/// The direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    ToStorage,
    FromStorage,
}

/// The priority of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rank {
    /// Transfers that others wait for.
    First,
    /// All other transfers.
    Bulk,
}

/// When a direction will be free.
#[derive(Debug, Default)]
struct Queue {
    /// When transfers of rank [`Rank::First`] are done.
    first: Nanos,
    /// When all transfers are done.
    all: Nanos,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Link {
    clock: Arc<dyn Clock>,
    /// Zero without a limit.
    bytes_per_second: AtomicU64,
    queues: [Mutex<Queue>; 2],
}

impl Link {
    /// A link without a limit.
    pub(crate) fn new() -> Self {
        Self::of_clock(SystemClock::shared())
    }

    pub(crate) fn of_clock(clock: Arc<dyn Clock>) -> Self {
        Self { clock, bytes_per_second: AtomicU64::new(0), queues: Default::default() }
    }

    /// Sets the number of bytes a second that the link carries in each direction.
    pub(crate) fn limit(&self, bytes_per_second: Option<NonZeroU64>) {
        self.bytes_per_second.store(bytes_per_second.map_or(0, NonZeroU64::get), Ordering::Relaxed);
    }

    /// Waits until `bytes` have arrived, after earlier transfers of the same rank.
    pub(crate) fn carry(&self, direction: Direction, rank: Rank, bytes: usize) {
        let mut left = bytes;
        while left > 0 {
            let Some(rate) = NonZeroU64::new(self.bytes_per_second.load(Ordering::Relaxed)) else { return };
            let turn = if rank == Rank::First { left } else { left.min(TURN_BYTES) };
            left -= turn;
            let takes = (turn as u128 * 1_000_000_000).div_ceil(u128::from(rate.get()));
            let takes = u64::try_from(takes).unwrap_or(u64::MAX);
            let now = self.clock.now();
            let arrives = {
                let mut queue = lock(&self.queues[direction as usize]);
                queue.all = queue.all.max(now).saturating_add(takes);
                if rank == Rank::First {
                    queue.first = queue.first.max(now).saturating_add(takes);
                    queue.first
                } else {
                    queue.all
                }
            };
            let wait = Duration::from_nanos(arrives.saturating_sub(now));
            if wait >= SHORTEST_WAIT {
                self.clock.sleep(wait);
            }
        }
    }
}

#[cfg(test)]
impl Link {
    /// Makes the link busy until then, as with a transfer that another thread waits for.
    pub(crate) fn be_busy(&self, direction: Direction, until: Nanos) {
        lock(&self.queues[direction as usize]).all = until;
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
        link.carry(Direction::ToStorage, Rank::Bulk, usize::MAX);
        assert_eq!(clock.now(), 0);
        link.limit(NonZeroU64::new(1_000_000));
        // Nobody waits for 60 us, but the next caller waits for both.
        link.carry(Direction::ToStorage, Rank::Bulk, 60);
        assert_eq!(clock.now(), 0);
        link.carry(Direction::ToStorage, Rank::Bulk, 60);
        assert_eq!(clock.now(), 120_000);
        // The other direction is free, and time that has passed is not made up for.
        clock.advance(Duration::from_secs(1));
        link.carry(Direction::FromStorage, Rank::Bulk, 1000);
        assert_eq!(clock.now(), 1_001_120_000);
        link.carry(Direction::ToStorage, Rank::Bulk, 1000);
        assert_eq!(clock.now(), 1_002_120_000);
    }

    #[test]
    fn a_log_goes_before_what_came_earlier() {
        let clock = Arc::new(ManualClock::new());
        let link = Arc::new(Link::of_clock(Arc::clone(&clock) as _));
        link.limit(NonZeroU64::new(1_000_000));
        link.be_busy(Direction::ToStorage, 10_000_000_000);
        link.carry(Direction::ToStorage, Rank::First, 1_000_000);
        assert_eq!(clock.now(), 1_000_000_000);
        // The others have waited for that transfer.
        link.carry(Direction::ToStorage, Rank::Bulk, 1_000_000);
        assert_eq!(clock.now(), 12_000_000_000);
    }
}
