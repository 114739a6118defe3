//! Bounds how long written data stays where it is, even if nothing is written after it.
//!
//! A memtable that is not full keeps the log that has its records, and the next process that opens the database reads
//! that log again, however old the records are. So a memtable that has held something for
//! [`Options::flush_after`](crate::terms::Options::flush_after) is flushed (the flush by age of O3-LSM 4.1). Where
//! tables reach storage later than memory, tables that have waited this long are brought to storage, and need no log.

use crate::terms::Options;
use forebay_base::SequenceNumber;

/// How long something has waited, as far as it was looked at.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Age {
    /// What waits, by a number that changes with it, and since when it has been seen.
    seen: Option<(SequenceNumber, u64)>,
}

impl Age {
    /// Looks at what waits now, and how many bytes it has. Returns whether it has waited too long. If so, its age
    /// begins anew, so that what could not be done is tried again later.
    pub(crate) fn is_over(&mut self, options: &Options, (what, bytes): (SequenceNumber, u64), now: u64) -> bool {
        let Some(after) = options.flush_after.filter(|_| bytes > 0) else {
            self.seen = None;
            return false;
        };
        let since = match self.seen {
            Some((seen, since)) if seen == what => since,
            _ => now,
        };
        let is_over = u128::from(now.saturating_sub(since)) >= after.as_nanos() && self.seen.is_some();
        self.seen = Some((what, if is_over { now } else { since }));
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_holds_something_for_long_is_over() {
        let options = Options { flush_after: Some(Duration::from_nanos(10)), ..Options::default() };
        let mut age = Age::default();
        let mut is_over = |what, bytes, now| age.is_over(&options, (SequenceNumber(what), bytes), now);
        assert!(!is_over(1, 0, 5) && !is_over(1, 0, 100), "it holds nothing");
        assert!(!is_over(1, 8, 100) && !is_over(1, 16, 109), "more comes");
        assert!(is_over(1, 16, 110));
        assert!(!is_over(1, 16, 111) && is_over(1, 16, 120), "it is tried again");
        // Another one.
        assert!(!is_over(2, 8, 125) && !is_over(2, 8, 134) && is_over(2, 8, 135));
        assert!(!is_over(3, 8, 500) && !is_over(3, 0, 505) && !is_over(3, 8, 515));
        let never = Options { flush_after: None, ..Options::default() };
        assert!(!Age::default().is_over(&never, (SequenceNumber(1), 8), u64::MAX));
    }
}
