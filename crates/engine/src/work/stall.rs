//! Times writers' waits (see `plan::stall`).

use crate::terms::Options;
use crate::terms::statistics::{Counters, StallCause, add};
use std::time::Duration;

/// The waits of a writer during one write, counted as one stall when this is dropped. What the writer does between its
/// waits does not count.
pub(crate) struct Stall<'a> {
    counters: &'a Counters,
    options: &'a Options,
    cause: Option<StallCause>,
    nanos: u64,
}

impl<'a> Stall<'a> {
    pub(crate) const fn new(counters: &'a Counters, options: &'a Options) -> Self {
        Self { counters, options, cause: None, nanos: 0 }
    }

    /// Counts the time that `wait` takes. Of several causes, the first one counts.
    pub(crate) fn during<T>(&mut self, cause: StallCause, wait: impl FnOnce() -> T) -> T {
        self.cause.get_or_insert(cause);
        let since = self.options.clock.now();
        let waited = wait();
        self.nanos = self.nanos.saturating_add(self.options.clock.now().saturating_sub(since));
        waited
    }

    /// Changes the cause of what the writer has waited for, if it has waited.
    pub(crate) const fn blame(&mut self, cause: StallCause) {
        self.cause = Some(cause);
    }
}

/// A pause that a writer owes, and makes when this is dropped.
#[derive(Default)]
pub(crate) struct Pause<'a>(Option<(Stall<'a>, StallCause, Duration)>);

impl<'a> Pause<'a> {
    /// A pause of this length, as part of what the writer has waited already.
    pub(crate) const fn new(stalled: Stall<'a>, cause: StallCause, length: Duration) -> Self {
        Self(Some((stalled, cause, length)))
    }

    /// Makes the pause now.
    pub(crate) fn pay(&mut self) {
        if let Some((mut stalled, cause, length)) = self.0.take() {
            let options = stalled.options;
            stalled.during(cause, || options.clock.sleep(length));
        }
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.pay();
    }
}

impl Drop for Stall<'_> {
    fn drop(&mut self) {
        if let Some(cause) = self.cause {
            let stalls = self.counters.stalls.of(cause);
            add(&stalls.count, 1);
            add(&stalls.nanos, self.nanos);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_env::{Clock, ManualClock};
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn only_waits_count() {
        let clock = Arc::new(ManualClock::new());
        let options = Options { clock: Arc::<ManualClock>::clone(&clock), ..Options::default() };
        let counters = Counters::default();
        let wait = |nanos| clock.sleep(Duration::from_nanos(nanos));

        let mut stalled = Stall::new(&counters, &options);
        stalled.during(StallCause::MemoryFull, || wait(5));
        wait(1000);
        stalled.during(StallCause::Level0Stop, || wait(20));
        let pause = Pause::new(stalled, StallCause::Level0Slowdown, Duration::from_nanos(300));
        // The write, and its sync.
        wait(4000);
        drop(pause);
        let stalls = counters.stalls.of(StallCause::MemoryFull);
        assert_eq!((stalls.count.load(Relaxed), stalls.nanos.load(Relaxed)), (1, 325));
        drop(Stall::new(&counters, &options));
        assert_eq!(counters.stalls.of(StallCause::Level0Slowdown).count.load(Relaxed), 0);
    }
}
