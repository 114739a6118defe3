//! How often a command was called, and how long it took.
//!
//! ```text
//!   bucket   0 … 3: 0 to 3 ns      4 × (e + 1) + s: from (4 + s) << e ns on, four for each power of two, up to a minute
//! ```

use forebay_env::Nanos;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets for a power of two, as a power of two.
const FINE: u32 = 2;
/// Longer ones count as the longest: it is more than a minute.
const BUCKETS: usize = 4 * 35;
/// The shortest time that is told apart in [`CommandCounters::up_to`], nanoseconds.
const COARSE: Nanos = 1024;

/// What is counted of a command.
#[derive(Debug, Default)]
pub struct CommandCounters {
    /// There once the command was called: most of them never are.
    times: OnceLock<Box<Times>>,
    failed: AtomicU64,
    rejected: AtomicU64,
}

#[derive(Debug)]
struct Times {
    counts: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

/// Numbers of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// Calls that were carried out.
    pub calls: u64,
    /// How long all took together, nanoseconds.
    pub nanos: Nanos,
    /// Those of the calls that failed.
    pub failed: u64,
    /// Calls that were refused before anything was done.
    pub rejected: u64,
}

fn bucket(nanos: Nanos) -> usize {
    let exponent = nanos.checked_ilog2().unwrap_or(0).saturating_sub(FINE);
    // Its leading digit is the one of the power of two.
    let place = u64::from(exponent << FINE) + (nanos >> exponent);
    usize::try_from(place).unwrap_or(usize::MAX).min(BUCKETS - 1)
}

/// The first time that is not in the bucket any more.
fn end(bucket: usize) -> Nanos {
    let next = bucket as u64 + 1;
    let exponent = (next >> FINE).saturating_sub(1);
    (next - (exponent << FINE)) << exponent
}

impl CommandCounters {
    /// It was carried out.
    pub fn add(&self, took: Nanos, has_failed: bool) {
        let times = self.times.get_or_init(Box::default);
        if let Some(count) = times.counts.get(bucket(took)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        times.nanos.fetch_add(took, Ordering::Relaxed);
        if has_failed {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// It was refused before anything was done.
    pub fn reject(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    fn counts(&self) -> Vec<u64> {
        let times = self.times.get().into_iter().flat_map(|times| &times.counts);
        times.map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// What was counted.
    pub fn counted(&self) -> Counted {
        Counted {
            calls: self.counts().iter().sum(),
            nanos: self.times.get().map_or(0, |times| times.nanos.load(Ordering::Relaxed)),
            failed: self.failed.load(Ordering::Relaxed),
            rejected: self.rejected.load(Ordering::Relaxed),
        }
    }

    /// The time below which these shares of the calls took, in thousandths and nanoseconds; `None` without a call.
    pub fn percentiles<const N: usize>(&self, thousandths: [u64; N]) -> Option<[Nanos; N]> {
        let counts = self.counts();
        let calls: u64 = counts.iter().sum();
        let below = |thousandths: u64| {
            let wanted = u128::from(calls) * u128::from(thousandths);
            let mut sum = 0u128;
            let found = counts.iter().position(|count| {
                sum += u128::from(*count) * 1000;
                sum >= wanted
            });
            end(found.unwrap_or(BUCKETS - 1))
        };
        (calls > 0).then(|| thousandths.map(below))
    }

    /// How many calls took at most so many nanoseconds, of each power of two from 1,024 on to the first that all took at most; only those that
    /// are more than at the one before.
    pub fn up_to(&self) -> Vec<(Nanos, u64)> {
        let counts = self.counts();
        let calls: u64 = counts.iter().sum();
        let (mut bound, mut before, mut found) = (COARSE, 0, Vec::new());
        while before < calls {
            let are_in = |(at, _): &(usize, &u64)| end(*at) <= bound;
            let sum = counts.iter().enumerate().filter(are_in).map(|(_, count)| count).sum();
            if sum > before {
                found.push((bound, sum));
                before = sum;
            }
            bound *= 2;
        }
        found
    }

    /// All counts become zero.
    pub fn reset(&self) {
        let times = self.times.get().into_iter().flat_map(|times| times.counts.iter().chain([&times.nanos]));
        times.chain([&self.failed, &self.rejected]).for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

impl Default for Times {
    fn default() -> Self {
        Self { counts: std::array::from_fn(|_| AtomicU64::new(0)), nanos: AtomicU64::new(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_one_another() {
        for bucket_of in 0..BUCKETS - 1 {
            assert_eq!((bucket(end(bucket_of) - 1), bucket(end(bucket_of))), (bucket_of, bucket_of + 1));
        }
        assert!(end(BUCKETS - 1) > 60_000_000_000 && bucket(u64::MAX) == BUCKETS - 1 && bucket(0) == 0);
        for nanos in [5, 1_000, 123_456, 1 << 33] {
            assert!(end(bucket(nanos)) > nanos && end(bucket(nanos)) <= nanos + nanos / 4 + 1, "{nanos}");
        }
    }

    #[test]
    fn shares_of_calls() {
        let counters = CommandCounters::default();
        assert_eq!(
            (counters.counted(), counters.percentiles([500]), counters.up_to()),
            (Counted::default(), None, vec![])
        );
        (0..98).for_each(|_| counters.add(1_000, false));
        counters.add(3_000, true);
        counters.add(1_000_000, false);
        counters.reject();
        let counted = Counted { calls: 100, nanos: 98_000 + 3_000 + 1_000_000, failed: 1, rejected: 1 };
        assert_eq!(counters.counted(), counted);
        let [half, most, all] = counters.percentiles([500, 990, 999]).unwrap();
        assert!(
            (1_000..1_250).contains(&half) && (3_000..3_750).contains(&most) && (1_000_000..1_250_000).contains(&all)
        );
        assert_eq!(counters.up_to(), [(1_024, 98), (4_096, 99), (1_048_576, 100)]);
        counters.add(u64::MAX >> 20, false);
        assert_eq!(counters.up_to().last().map(|(_, calls)| *calls), Some(101));
        counters.reset();
        assert_eq!(counters.counted(), Counted::default());
    }
}
