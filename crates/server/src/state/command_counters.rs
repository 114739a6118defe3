//! How often a command was called, and how long it took.
//!
//! ```text
//!   row 0: 0 … 127 ns, a bucket each      row r: 128 buckets of 2^(r-1) ns each, from 2^(6+r) ns on      up to two minutes
//! ```
//!
//! So a time is known to one part in 128, as in a histogram of two significant digits, and rows end at powers of two.

use crate::state::counter::Counter;
use forebay_env::Nanos;
use std::sync::OnceLock;

/// Buckets of a row, as a power of two.
const FINE: u32 = 7;
const ROW: usize = 1 << FINE;
/// Longer times count as the longest.
const ROWS: usize = 31;
/// The first row that [`Counted::up_to`] distinguishes: it ends at 1,024 ns.
const COARSE: usize = 3;

/// What one thread counts of a command.
#[derive(Debug, Default)]
pub struct CommandCounters {
    /// Set once the command was called: most commands never are.
    times: OnceLock<Box<Times>>,
    failed: Counter,
    rejected: Counter,
    /// Calls that have begun to wait, and the number of them that were carried out later, or ended by another client.
    waits: Counter,
    ended: Counter,
}

#[derive(Debug, Default)]
struct Times {
    /// Each set once a call took this long: most never are.
    rows: [OnceLock<Box<Row>>; ROWS],
    nanos: Counter,
}

#[derive(Debug)]
struct Row([Counter; ROW]);

impl Default for Row {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

/// Returns the row of a time, and its bucket in the row.
fn place(nanos: Nanos) -> (usize, usize) {
    let row = (nanos | 1).ilog2().saturating_sub(FINE - 1) as usize;
    if row >= ROWS {
        return (ROWS - 1, ROW - 1);
    }
    // Above row 0, the leading digit of the bucket's number is that of the row.
    let bucket = (nanos >> row.saturating_sub(1)) as usize;
    (row, bucket % ROW)
}

/// The longest time of a bucket, by its number among those of all rows.
fn longest(number: usize) -> Nanos {
    let (row, bucket) = (number / ROW, number % ROW);
    match row.checked_sub(1) {
        None => bucket as u64,
        Some(width) => (((ROW + bucket + 1) as u64) << width) - 1,
    }
}

impl CommandCounters {
    /// Counts a call that was carried out.
    pub fn add(&self, took: Nanos, has_failed: bool) {
        self.note(took, took, has_failed);
    }

    /// Counts a call that was carried out as far as possible, and waits.
    pub fn begin_wait(&self, took: Nanos) {
        self.waits.add(1);
        self.times.get_or_init(Box::default).nanos.add(took);
    }

    /// Ends a wait that has not timed out. `before` is how long the call took before the wait, `now` how long now.
    pub fn end_wait(&self, before: Nanos, now: Nanos, has_failed: bool) {
        self.ended.add(1);
        self.note(before.saturating_add(now), now, has_failed);
    }

    /// Notes how long a call took in all, and how much of that is new.
    fn note(&self, took: Nanos, new: Nanos, has_failed: bool) {
        let times = self.times.get_or_init(Box::default);
        let (row, bucket) = place(took);
        if let Some(counter) = times.rows.get(row).and_then(|row| row.get_or_init(Box::default).0.get(bucket)) {
            counter.add(1);
        }
        times.nanos.add(new);
        if has_failed {
            self.failed.add(1);
        }
    }

    /// Counts a call that was refused before anything was done.
    pub fn reject(&self) {
        self.rejected.add(1);
    }
}

/// What was counted of a command, by all threads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counted {
    /// Calls by how long they took, a number for each bucket of all rows; empty without a call. It has no calls that
    /// still wait or whose wait timed out.
    counts: Vec<u64>,
    waits: u64,
    ended: u64,
    /// How long all calls took together, nanoseconds.
    pub nanos: Nanos,
    /// Calls that failed.
    pub failed: u64,
    /// Calls that were refused before anything was done.
    pub rejected: u64,
}

impl Counted {
    /// Adds what one thread has counted.
    pub fn add(&mut self, counters: &CommandCounters) {
        self.failed += counters.failed.get();
        self.rejected += counters.rejected.get();
        self.waits += counters.waits.get();
        self.ended += counters.ended.get();
        let Some(times) = counters.times.get() else { return };
        self.nanos = self.nanos.saturating_add(times.nanos.get());
        self.counts.resize(ROWS * ROW, 0);
        for (sums, row) in self.counts.chunks_exact_mut(ROW).zip(&times.rows) {
            let Some(row) = row.get() else { continue };
            sums.iter_mut().zip(&row.0).for_each(|(sum, counter)| *sum += counter.get());
        }
    }

    /// Subtracts what was counted before.
    pub fn subtract(&mut self, before: &Self) {
        let counts = self.counts.iter_mut().zip(&before.counts);
        let all = counts.chain([
            (&mut self.nanos, &before.nanos),
            (&mut self.failed, &before.failed),
            (&mut self.rejected, &before.rejected),
            (&mut self.waits, &before.waits),
            (&mut self.ended, &before.ended),
        ]);
        all.for_each(|(count, before)| *count = count.saturating_sub(*before));
    }

    /// Calls that were carried out, or have begun to wait.
    #[must_use]
    pub fn calls(&self) -> u64 {
        (self.measured() + self.waits).saturating_sub(self.ended)
    }

    fn measured(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the times, in nanoseconds, within which these shares of the calls, in thousandths, were done; `None`
    /// without a call.
    #[must_use]
    pub fn percentiles<const N: usize>(&self, thousandths: [u64; N]) -> Option<[Nanos; N]> {
        let calls = self.measured();
        let within = |thousandths: u64| {
            let wanted = u128::from(calls) * u128::from(thousandths);
            let mut sum = 0u128;
            let found = self.counts.iter().position(|count| {
                sum += u128::from(*count) * 1000;
                *count > 0 && sum >= wanted
            });
            longest(found.unwrap_or(ROWS * ROW - 1))
        };
        (calls > 0).then(|| thousandths.map(within))
    }

    /// Returns how many calls took less than each power of two of nanoseconds, from 1,024 to the first that all calls
    /// stay below. It leaves out numbers that equal the one before.
    #[must_use]
    pub fn up_to(&self) -> Vec<(Nanos, u64)> {
        let (mut sum, mut told, mut found) = (0, 0, Vec::new());
        for (row, counts) in self.counts.chunks_exact(ROW).enumerate() {
            sum += counts.iter().sum::<u64>();
            if row >= COARSE && sum > told {
                found.push((longest(row * ROW + ROW - 1) + 1, sum));
                told = sum;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(nanos: Nanos) -> usize {
        let (row, bucket) = place(nanos);
        row * ROW + bucket
    }

    fn counted(counters: &CommandCounters) -> Counted {
        let mut counted = Counted::default();
        counted.add(counters);
        counted
    }

    #[test]
    fn buckets_follow_one_another() {
        for of in 0..ROWS * ROW - 1 {
            assert_eq!((number(longest(of)), number(longest(of) + 1)), (of, of + 1));
        }
        assert!(longest(ROWS * ROW - 1) > 120_000_000_000 && number(u64::MAX) == ROWS * ROW - 1 && number(0) == 0);
        for nanos in [5, 1_000, 123_456, 1 << 33] {
            let longest = longest(number(nanos));
            assert!(longest >= nanos && longest - nanos <= nanos / 128, "{nanos}");
        }
    }

    #[test]
    fn shares_of_calls() {
        let counters = CommandCounters::default();
        let none = counted(&counters);
        assert_eq!((none.calls(), none.percentiles([500]), none.up_to()), (0, None, vec![]));
        (0..98).for_each(|_| counters.add(1_000, false));
        counters.add(3_000, true);
        counters.add(1_000_000, false);
        counters.reject();
        let mut all = counted(&counters);
        assert_eq!((all.calls(), all.nanos, all.failed, all.rejected), (100, 98_000 + 3_000 + 1_000_000, 1, 1));
        let [half, most, longest] = all.percentiles([500, 990, 999]).unwrap();
        assert_eq!((half, most), (1_003, 3_007));
        assert!((1_000_000..1_008_000).contains(&longest), "{longest}");
        assert_eq!(all.up_to(), [(1_024, 98), (4_096, 99), (1_048_576, 100)]);
        let before = all.clone();
        counters.add(u64::MAX >> 20, false);
        all.add(&counters);
        assert_eq!(all.up_to().last().map(|(_, calls)| *calls), Some(201));
        // One call waits for ever, and one is served.
        counters.begin_wait(10);
        counters.begin_wait(20);
        counters.end_wait(20, 5_000, false);
        let waited = counted(&counters);
        assert_eq!((waited.calls(), waited.measured()), (103, 102));
        assert_eq!(waited.nanos - before.nanos, (u64::MAX >> 20) + 10 + 20 + 5_000);
        let mut since = counted(&counters);
        since.subtract(&waited);
        assert_eq!((since.calls(), since.nanos), (0, 0));
        since = counted(&counters);
        since.subtract(&before);
        assert_eq!((since.calls(), since.failed, since.rejected), (3, 0, 0));
    }
}
