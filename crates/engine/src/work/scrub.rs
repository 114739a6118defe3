//! Checks all copies in memory, little by little, whether somebody reads them or not (`durable::mending`).
//!
//! ```text
//!   shard 0: manifests, segments by their numbers ─► shard 1 … ─► again from the first
//! ```
//!
//! After each segment the scrub rests for as long as the bytes of its copies take at the allowed rate.

use crate::terms::Result;
use crate::work::shard::Shard;
use forebay_base::{ErrorKind, SegmentId};
use forebay_env::sync::{Mutex, lock};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

/// How often to look whether something is due.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The pause before a failed check is tried again, and after the last segment of a shard, nanoseconds.
const PAUSE: u64 = 1_000_000_000;

/// Where a scrub is. Events in, commands out: it reads no clock.
#[derive(Debug)]
pub(crate) struct Pace {
    bytes_per_second: NonZeroU64,
    shard: usize,
    after: Option<SegmentId>,
    next_at: u64,
}

impl Pace {
    const fn new(bytes_per_second: NonZeroU64) -> Self {
        Self { bytes_per_second, shard: 0, after: None, next_at: 0 }
    }

    /// The shard that is due, out of `shards`, and the segment to continue after.
    fn next(&self, shards: usize, now: u64) -> Option<(usize, Option<SegmentId>)> {
        Some((self.shard.checked_rem(shards)?, self.after)).filter(|_| now >= self.next_at)
    }

    /// Notes that a segment was checked; `None` if none is left in the shard.
    fn looked(&mut self, segment: Option<(SegmentId, u64)>, now: u64) {
        let nanos = match segment {
            Some((id, bytes)) => {
                self.after = Some(id);
                u128::from(bytes) * u128::from(PAUSE) / u128::from(self.bytes_per_second.get())
            }
            None => {
                (self.shard, self.after) = (self.shard.wrapping_add(1), None);
                // Even if no shard holds anything.
                u128::from(PAUSE)
            }
        };
        self.next_at = now.saturating_add(u64::try_from(nanos).unwrap_or(u64::MAX));
    }

    /// Notes that a segment could not be checked.
    const fn failed(&mut self, now: u64) {
        self.next_at = now.saturating_add(PAUSE);
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Scrub {
    shards: Arc<[Arc<Shard>]>,
    pace: Mutex<Pace>,
}

impl Scrub {
    pub(crate) fn new(shards: &Arc<[Arc<Shard>]>, bytes_per_second: NonZeroU64) -> Self {
        Self { shards: Arc::clone(shards), pace: Mutex::new(Pace::new(bytes_per_second)) }
    }

    /// Checks the next segment if it is due. Returns whether it was.
    pub(crate) fn step(&self) -> bool {
        let mut pace = lock(&self.pace);
        let Some(shard) = self.shards.first() else { return false };
        let clock = Arc::clone(&shard.tree.options.clock);
        let Some((number, after)) = pace.next(self.shards.len(), clock.now()) else { return false };
        let Some(shard) = self.shards.get(number) else { return false };
        let looked: Result<_> = shard.scrub(after);
        match looked {
            Ok(segment) => pace.looked(segment, clock.now()),
            Err(error) => {
                if error.kind() != ErrorKind::Closed {
                    tracing::debug!(%error, "copies are looked at later");
                }
                pace.failed(clock.now());
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shards_are_looked_at_at_the_rate_that_is_allowed() {
        let mut pace = Pace::new(NonZeroU64::new(1000).unwrap());
        assert_eq!(pace.next(0, 5), None);
        assert_eq!(pace.next(2, 5), Some((0, None)));
        pace.looked(Some((SegmentId(7), 500)), 5);
        assert_eq!((pace.next(2, 500_000_004), pace.next(2, 500_000_005)), (None, Some((0, Some(SegmentId(7))))));
        pace.failed(500_000_005);
        assert_eq!((pace.next(2, 1_500_000_004), pace.next(2, 1_500_000_005)), (None, Some((0, Some(SegmentId(7))))));
        pace.looked(None, 1_500_000_005);
        assert_eq!(pace.next(2, 3_000_000_000), Some((1, None)));
        pace.looked(None, 3_000_000_000);
        assert_eq!(pace.next(2, 4_000_000_000), Some((0, None)));
    }
}
