//! Counts of connections, and log lines about those that were turned away.
//!
//! A line is cheap to provoke, so at most one a second is written for each cause; it says how many were left out.

use super::Source;
use forebay_env::sync::lock;
use forebay_env::{Clock, SystemClock, Throttle};
use std::fmt::Display;
use std::sync::Mutex;

/// How many connections were let in and turned away since the node began to listen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AdmissionCounts {
    /// Let in.
    pub admitted: u64,
    /// Turned away because what they showed was wrong or missing.
    pub refused: u64,
    /// Shown out before they had proven themselves, to make room for others.
    pub shown_out: u64,
    /// Shown out because they took too long to prove themselves.
    pub late: u64,
    /// Turned away, although proven, because there are too many connections already.
    pub crowded: u64,
    /// Ended because their proof was withdrawn.
    pub withdrawn: u64,
}

/// Why a connection was turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turned {
    Refused,
    ShownOut,
    Late,
    Crowded,
    Withdrawn,
}

/// Counts, and when a line was last written.
#[derive(Debug)]
pub(crate) struct Tally {
    clock: SystemClock,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    counts: AdmissionCounts,
    lines: [Throttle; 5],
}

impl Default for Tally {
    fn default() -> Self {
        Self { clock: SystemClock::new(), inner: Mutex::default() }
    }
}

impl Tally {
    /// The counts.
    pub(crate) fn counts(&self) -> AdmissionCounts {
        lock(&self.inner).counts
    }

    /// Counts one that was let in.
    pub(crate) fn admitted(&self) {
        lock(&self.inner).counts.admitted += 1;
    }

    /// Counts and logs one that was turned away. `cause` must hold nothing that a peer chose.
    pub(crate) fn turned(&self, how: Turned, source: Source, cause: impl Display) {
        let now = self.clock.now();
        let left_out = {
            let Inner { counts, lines } = &mut *lock(&self.inner);
            let [refused, shown_out, late, crowded, withdrawn] = lines;
            let (count, line) = match how {
                Turned::Refused => (&mut counts.refused, refused),
                Turned::ShownOut => (&mut counts.shown_out, shown_out),
                Turned::Late => (&mut counts.late, late),
                Turned::Crowded => (&mut counts.crowded, crowded),
                Turned::Withdrawn => (&mut counts.withdrawn, withdrawn),
            };
            *count += 1;
            line.take(now)
        };
        if let Some(left_out) = left_out {
            tracing::warn!(%source, why = ?how, %cause, left_out, "a connection is turned away");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_count() {
        let tally = Tally::default();
        for how in [Turned::Refused, Turned::ShownOut, Turned::Late, Turned::Crowded, Turned::Withdrawn] {
            tally.turned(how, Source::Here, "a test");
        }
        tally.admitted();
        let counts = AdmissionCounts { admitted: 1, refused: 1, shown_out: 1, late: 1, crowded: 1, withdrawn: 1 };
        assert_eq!(tally.counts(), counts);
    }
}
