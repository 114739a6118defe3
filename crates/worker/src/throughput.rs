//! How much a worker writes a second, and how much it could write (O3-LSM 4.3's calibrated bandwidth). How much it
//! could write is the larger of two numbers: what it wrote in its best second, and what all its threads would write at
//! the speed of the fastest attempt.
//!
//! The best second alone would be no measure: a worker with a steady load would seem to do all that it can.

use forebay_env::Nanos;

const SECOND: Nanos = 1_000_000_000;

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Throughput {
    /// When the second that is being measured began, and how much had been written by then.
    began: Nanos,
    written: u64,
    /// Bytes of the last whole second.
    pub per_second: u64,
    /// Bytes of the best second.
    best_per_second: u64,
}

/// Returns bytes a second, from bytes and the time they took.
pub(crate) fn rate(bytes: u64, took: Nanos) -> u64 {
    let per_second = u128::from(bytes) * u128::from(SECOND) / u128::from(took.max(1));
    u64::try_from(per_second).unwrap_or(u64::MAX)
}

impl Throughput {
    /// Records that `written` bytes have been written in all by `now`.
    pub fn look(&mut self, now: Nanos, written: u64) {
        let took = now.saturating_sub(self.began);
        if took < SECOND {
            return;
        }
        let bytes = written.saturating_sub(self.written);
        self.per_second = rate(bytes, took);
        self.best_per_second = self.best_per_second.max(self.per_second);
        (self.began, self.written) = (now, written);
    }

    /// Returns what the worker can write a second with this many threads, whose fastest attempt wrote at this rate.
    pub fn bandwidth(&self, threads: u32, fastest: u64) -> u64 {
        self.best_per_second.max(fastest.saturating_mul(threads.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_second_is_what_it_can_do() {
        let mut throughput = Throughput::default();
        let mut told = Vec::new();
        for (now, written) in [(SECOND, 100), (SECOND + 1, 200), (3 * SECOND, 1100), (4 * SECOND, 1100)] {
            throughput.look(now, written);
            told.push((throughput.per_second, throughput.bandwidth(1, 0)));
        }
        assert_eq!(told, [(100, 100), (100, 100), (500, 500), (0, 500)]);
    }

    #[test]
    fn one_thread_of_four_is_not_all_that_it_can_do() {
        let mut throughput = Throughput::default();
        throughput.look(SECOND, 100);
        // One attempt was running for half of the time.
        let bandwidth = throughput.bandwidth(4, rate(100, SECOND / 2));
        assert_eq!((throughput.per_second, bandwidth), (100, 800));
        assert_eq!(throughput.bandwidth(4, 0), 100);
        assert_eq!((rate(1, 0), rate(u64::MAX, 1)), (SECOND, u64::MAX));
    }
}
