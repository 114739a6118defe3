//! The time by which keys expire (`docs/decisions/0037`).
//!
//! It comes from the options' clock, in milliseconds since 1970, and never goes back while the database is open: what
//! one read has found expired, no later read finds. A process that opens a database begins at what the clock says once
//! the database is its own, and, if that has a name, no earlier than the times by which compactions have dropped
//! something there. All shards of a database share one time.

use crate::terms::planted::{Bug, planted};
use forebay_base::SequenceNumber;
use forebay_base::record::is_expired;
use forebay_env::{Clock, ForwardTime};
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(crate) struct ExpiryClock {
    clock: Arc<dyn Clock>,
    time: ForwardTime,
}

impl ExpiryClock {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { time: ForwardTime::new(Arc::clone(&clock)), clock }
    }

    /// The time, not before any that was given out earlier.
    pub(crate) fn now_ms(&self) -> u64 {
        if planted(Bug::TimeGoesBack) { self.clock.wall_ms() } else { self.time.now_ms() }
    }

    /// Lets time begin at what the clock says now, or at `time_ms` if that is later.
    pub(crate) fn begin_at(&self, time_ms: u64) {
        self.time.begin_at(time_ms.max(self.clock.wall_ms()));
    }
}

/// What a read of a shard sees: what was written up to a number, and had not expired at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Horizon {
    pub(crate) number: SequenceNumber,
    pub(crate) time_ms: u64,
}

/// The time of a read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ReadTime<'a> {
    /// The time at which the read meets a record that expires. A read of others asks no clock.
    Now(&'a ExpiryClock),
    At(u64),
}

impl ReadTime<'_> {
    /// Whether a record with this expiry counts as deleted.
    #[inline]
    pub(crate) fn is_past(self, expiry_ms: Option<u64>) -> bool {
        expiry_ms.is_some() && self.is_past_expiry(expiry_ms)
    }

    #[cold]
    fn is_past_expiry(self, expiry_ms: Option<u64>) -> bool {
        let time_ms = match self {
            Self::Now(clock) => clock.now_ms(),
            Self::At(time_ms) => time_ms,
        };
        is_expired(expiry_ms, time_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_env::Nanos;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// A clock that is set at will.
    #[derive(Debug, Default)]
    struct SetClock(AtomicU64);

    impl Clock for SetClock {
        fn now(&self) -> Nanos {
            0
        }
        fn wall_ms(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
        fn sleep(&self, _: Duration) {}
    }

    #[test]
    fn time_never_goes_back() {
        let set = Arc::new(SetClock::default());
        let clock = ExpiryClock::new(Arc::clone(&set) as Arc<dyn Clock>);
        let at = |ms| {
            set.0.store(ms, Ordering::Relaxed);
            clock.now_ms()
        };
        assert_eq!([at(5), at(3), at(6)], [5, 5, 6]);
        clock.begin_at(9);
        assert_eq!([at(7), at(10)], [9, 10]);
        set.0.store(12, Ordering::Relaxed);
        clock.begin_at(11);
        assert_eq!(at(7), 12);
        let now = ReadTime::Now(&clock);
        assert!(now.is_past(Some(11)) && !now.is_past(Some(12)) && !now.is_past(None));
        assert!(ReadTime::At(8).is_past(Some(7)) && !ReadTime::At(8).is_past(Some(8)));
    }
}
