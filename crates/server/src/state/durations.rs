//! How long runs of commands took, by what they do.

use crate::state::counter::Counter;
use forebay_env::Nanos;

/// Upper bounds of the buckets, microseconds. One more bucket has no bound.
const BOUNDS_US: [u64; 22] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000, 10_000_000,
];

/// Numbers of commands by how long they took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durations {
    /// For each bucket its upper bound in nanoseconds, `None` for the last, and the number of commands in it.
    pub counts: Vec<(Option<Nanos>, u64)>,
    /// How long all took together, nanoseconds.
    pub nanos: u64,
}

impl Default for Durations {
    fn default() -> Self {
        let bounds = BOUNDS_US.iter().map(|bound| Some(bound * 1000)).chain([None]);
        Self { counts: bounds.map(|bound| (bound, 0)).collect(), nanos: 0 }
    }
}

impl Durations {
    /// Adds what one thread has counted.
    pub(crate) fn add(&mut self, counters: &DurationCounters) {
        self.counts.iter_mut().zip(&counters.counts).for_each(|((_, sum), counter)| *sum += counter.get());
        self.nanos = self.nanos.saturating_add(counters.nanos.get());
    }
}

/// The durations that one thread counts.
#[derive(Debug, Default)]
pub struct DurationCounters {
    counts: [Counter; BOUNDS_US.len() + 1],
    nanos: Counter,
}

impl DurationCounters {
    /// Counts commands of one run, and how long it took.
    pub fn add(&self, commands: u64, nanos: Nanos) {
        let bucket = BOUNDS_US.partition_point(|bound| bound * 1000 < nanos);
        if let Some(count) = self.counts.get(bucket) {
            count.add(commands);
        }
        self.nanos.add(nanos.saturating_mul(commands));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let counters = DurationCounters::default();
        for nanos in [0, 1_000, 1_001, 10_000_000_000, 10_000_000_001] {
            counters.add(2, nanos);
        }
        let mut counted = Durations::default();
        counted.add(&counters);
        let Durations { counts, nanos } = counted;
        let found: Vec<_> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(found, [(Some(1_000), 4), (Some(2_000), 2), (Some(10_000_000_000), 2), (None, 2)]);
        assert_eq!(nanos, 2 * 20_000_002_002);
    }
}
