//! What is counted of a run.
//!
//! A run that turns out to be too large, or to take long, changes nothing, and its commands are carried out again. So
//! they are counted when it is known that this is not so, and each is counted once.

use super::{Call, Executor};
use crate::keyspace::failure::Outcome;
use crate::state::session::Session;
use forebay_env::Nanos;

/// The calls of a run that are not counted yet.
#[derive(Debug)]
pub(super) struct Tally<'a> {
    /// When the next call begins.
    pub(super) at: Nanos,
    /// The calls so far.
    pub(super) done: Vec<Done<'a>>,
}

/// A call that was carried out.
#[derive(Debug)]
pub(super) struct Done<'a> {
    pub(super) call: Call<'a>,
    pub(super) took: Nanos,
    pub(super) outcome: Outcome,
    /// Whether it waits for a key.
    pub(super) waits: bool,
}

impl Tally<'_> {
    /// No calls so far, of a run of at most `most` calls that begins at this time.
    pub(super) fn new(at: Nanos, most: usize) -> Self {
        Self { at, done: Vec::with_capacity(most) }
    }
}

impl Executor<'_> {
    /// Counts the calls of a run that are not counted yet, and notes those that took long.
    pub(super) fn count(&self, session: &Session, tally: &mut Tally<'_>, now_ms: u64) {
        for Done { call: (command, arguments), took, outcome, waits } in tally.done.drain(..) {
            if !waits {
                command.count(self.shared, self.counters, session.spent, took, outcome.is_err(), now_ms);
            } else if session.spent.is_none()
                && let Some(counters) = self.counters.of_command(command.number)
            {
                counters.begin_wait(took);
            }
            self.measure(session, command, arguments, now_ms, took / 1000);
            // A failure of the whole run is counted with its replies.
            if let Err(failure) = outcome
                && !failure.is_of_store()
            {
                self.counters.add_error(failure.message());
            }
        }
    }
}
