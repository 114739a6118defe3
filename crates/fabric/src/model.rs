//! The link model: what the counted operations would have cost on a given network.

use crate::Counts;
use std::time::Duration;

/// A network: round-trip time, and the bandwidth and operation rate of a node's adapter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkModel {
    /// Time of one round trip.
    pub round_trip: Duration,
    /// Bits a second, each way.
    pub bits_per_second: f64,
    /// Operations a second.
    pub operations_per_second: f64,
}

impl Default for LinkModel {
    /// 2 microseconds, 100 Gb/s, 30 million operations a second.
    fn default() -> Self {
        Self { round_trip: Duration::from_micros(2), bits_per_second: 100e9, operations_per_second: 30e6 }
    }
}

impl LinkModel {
    /// Seconds that `threads` closed-loop threads need on this network for work whose fabric
    /// operations were `counts` and that took `cpu_seconds` of processor time in all.
    ///
    /// Each thread alternates between computing and waiting for its round trips; the adapter is
    /// shared. The work cannot be faster than its slowest part: the threads' own time, the
    /// adapter's operation rate, or the wire in either direction.
    #[must_use]
    pub fn seconds(&self, counts: &Counts, cpu_seconds: f64, threads: usize) -> f64 {
        let waiting = counts.round_trips as f64 * self.round_trip.as_secs_f64();
        let own = (cpu_seconds + waiting) / threads.max(1) as f64;
        let adapter = counts.operations() as f64 / self.operations_per_second;
        let wire = counts.bytes_read.max(counts.bytes_written) as f64 * 8.0 / self.bits_per_second;
        own.max(adapter).max(wire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_part_decides() {
        let model = LinkModel::default();
        let reads = |n, bytes| Counts { round_trips: n, reads: n, bytes_read: n * bytes, ..Counts::default() };
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(close(model.seconds(&reads(1_000_000, 64), 0.5, 1), 2.5));
        assert!(close(model.seconds(&reads(1_000_000, 64), 0.5, 10), 0.25));
        assert!(close(model.seconds(&reads(1_000_000, 64), 0.0, 1000), 1.0 / 30.0));
        assert!(close(model.seconds(&reads(1_000_000, 1_000_000), 0.0, 1000), 80.0));
    }
}
