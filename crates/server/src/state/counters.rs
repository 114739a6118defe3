//! What `INFO` counts.

use forebay_env::Nanos;
use forebay_env::sync::{Mutex, lock};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// Samples of the number of commands that are kept: those of a second and a half.
const SAMPLES: usize = 16;

/// Counts since the server started, or since `CONFIG RESETSTAT`.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections that were accepted.
    pub connections: AtomicU64,
    /// Connections that were turned away because there were too many.
    pub rejected: AtomicU64,
    /// Commands.
    pub commands: AtomicU64,
    /// Bytes of requests.
    pub received_bytes: AtomicU64,
    /// Bytes of replies.
    pub sent_bytes: AtomicU64,
    /// Keys that were looked up and found.
    pub hits: AtomicU64,
    /// Keys that were looked up and not found.
    pub misses: AtomicU64,
    /// Keys that expired and were removed.
    pub expired: AtomicU64,
    /// Error replies.
    pub errors: AtomicU64,
    /// When there had been how many commands, the earliest first.
    samples: Mutex<VecDeque<(Nanos, u64)>>,
}

impl Counters {
    /// Adds to a count.
    pub fn add(counter: &AtomicU64, number: u64) {
        if number > 0 {
            counter.fetch_add(number, Ordering::Relaxed);
        }
    }

    /// A count.
    pub fn of(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    /// Notes how many commands there have been until now, for [`Counters::commands_per_second`]. Called ten times a second.
    pub fn sample(&self, now: Nanos) {
        let mut samples = lock(&self.samples);
        if samples.len() >= SAMPLES {
            samples.pop_front();
        }
        samples.push_back((now, Self::of(&self.commands)));
    }

    /// Commands in a second, between the earliest sample and the latest one.
    pub fn commands_per_second(&self) -> u64 {
        let samples = lock(&self.samples);
        let (Some((from, before)), Some((until, after))) = (samples.front(), samples.back()) else { return 0 };
        let commands = u128::from(after.saturating_sub(*before)) * 1_000_000_000;
        let rate = commands.checked_div(u128::from(until.saturating_sub(*from))).unwrap_or(0);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// All counts become zero.
    pub fn reset(&self) {
        lock(&self.samples).clear();
        let all = [
            &self.connections,
            &self.rejected,
            &self.commands,
            &self.received_bytes,
            &self.sent_bytes,
            &self.hits,
            &self.misses,
            &self.expired,
            &self.errors,
        ];
        all.into_iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_latest_samples() {
        let counters = Counters::default();
        let mut now = 0;
        let mut tick = |commands: u64| {
            Counters::add(&counters.commands, commands);
            now += 100_000_000;
            counters.sample(now);
            counters.commands_per_second()
        };
        assert_eq!((tick(0), tick(7), tick(7)), (0, 70, 70));
        // What came before is forgotten.
        assert_eq!((0..16).map(|_| tick(20)).last(), Some(200));
        assert_eq!((0..16).map(|_| tick(0)).last(), Some(0));
        counters.reset();
        assert_eq!(counters.commands_per_second(), 0);
    }
}
