//! Times writers' waits (see `plan::stall`).

use crate::terms::Options;
use crate::terms::statistics::{Counters, StallCause, add};
use std::time::Duration;

/// Times a writer's wait, from [`Stall::begin`] until dropped.
pub(crate) struct Stall<'a> {
    counters: &'a Counters,
    options: &'a Options,
    since: Option<(StallCause, u64)>,
}

impl<'a> Stall<'a> {
    pub(crate) fn new(counters: &'a Counters, options: &'a Options) -> Self {
        Self { counters, options, since: None }
    }

    /// The writer waits from now on. Of several causes, the first one counts.
    pub(crate) fn begin(&mut self, cause: StallCause) {
        self.since.get_or_insert_with(|| (cause, self.options.clock.now()));
    }

    /// What the writer has waited for turns out to be another cause, if it has waited.
    pub(crate) fn blame(&mut self, cause: StallCause) {
        let now = self.options.clock.now();
        self.since = Some((cause, self.since.map_or(now, |(_, since)| since)));
    }
}

/// A pause that a writer owes, and makes when this is dropped.
#[derive(Default)]
pub(crate) struct Pause<'a>(Option<(Stall<'a>, StallCause, Duration)>);

impl<'a> Pause<'a> {
    /// For so long, as part of what the writer has waited already.
    pub(crate) const fn new(stalled: Stall<'a>, cause: StallCause, length: Duration) -> Self {
        Self(Some((stalled, cause, length)))
    }

    /// Makes the pause now.
    pub(crate) fn pay(&mut self) {
        if let Some((mut stalled, cause, length)) = self.0.take() {
            stalled.begin(cause);
            stalled.options.clock.sleep(length);
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
        if let Some((cause, since)) = self.since {
            let stalls = self.counters.stalls.of(cause);
            add(&stalls.count, 1);
            add(&stalls.nanos, self.options.clock.now().saturating_sub(since));
        }
    }
}
