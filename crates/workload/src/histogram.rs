//! Latencies.

use crate::Error;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest distinguishable latency in nanoseconds: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Significant decimal digits.
const DIGITS: u8 = 3;

/// A histogram of latencies, exact to three decimal digits.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// An empty histogram.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it cannot be made.
    pub fn new() -> Result<Self, Error> {
        Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).map(Self).map_err(|e| Error::Invalid(e.to_string()))
    }

    /// Counts one latency.
    #[inline]
    pub fn record(&mut self, latency_ns: u64) {
        self.0.saturating_record(latency_ns);
    }

    /// Counts one latency `times` times.
    pub fn record_many(&mut self, latency_ns: u64, times: u64) {
        self.0.saturating_record_n(latency_ns, times);
    }

    /// Adds the counts of `other`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the histograms do not match.
    pub fn merge(&mut self, other: &Self) -> Result<(), Error> {
        self.0.add(&other.0).map_err(|e| Error::Invalid(e.to_string()))
    }

    /// Number of recorded latencies.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency in microseconds that this share (0 to 1) of all latencies does not exceed.
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> f64 {
        self.0.value_at_quantile(share) as f64 / 1e3
    }

    /// The usual summary.
    #[must_use]
    pub fn summary(&self) -> LatencyMicros {
        LatencyMicros {
            p50: self.quantile_us(0.5),
            p99: self.quantile_us(0.99),
            p999: self.quantile_us(0.999),
            max: self.0.max() as f64 / 1e3,
        }
    }
}

/// Latencies in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LatencyMicros {
    /// Half of all latencies are not above this.
    pub p50: f64,
    /// 99 % are not above this.
    pub p99: f64,
    /// 99.9 % are not above this.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_merged_threads() {
        let (mut first, mut second) = (Latencies::new().unwrap(), Latencies::new().unwrap());
        for us in 1..=500 {
            first.record(us * 1000);
            second.record((us + 500) * 1000);
        }
        first.merge(&second).unwrap();
        let summary = first.summary();
        let near = |found: f64, expected: f64| (found - expected).abs() / expected < 0.002;
        assert_eq!(first.count(), 1000);
        assert!(near(summary.p50, 500.0) && near(summary.p99, 990.0) && near(summary.max, 1000.0), "{summary:?}");
    }

    #[test]
    fn a_latency_beyond_the_longest_is_counted() {
        let mut latencies = Latencies::new().unwrap();
        latencies.record(u64::MAX);
        latencies.record(0);
        assert_eq!(latencies.count(), 2);
    }
}
