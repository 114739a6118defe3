//! What is counted of a run.
//!
//! A run that turns out to be too large, or to take long, changes nothing, and its commands are carried out again. So
//! they are counted when it is known that this is not so, and each is counted once.

use super::admission::Refused;
use crate::commands::arguments::Arguments;
use crate::commands::command::Command;
use crate::keyspace::failure::Outcome;
use forebay_env::Nanos;

/// The calls of a run that are not counted yet.
#[derive(Debug)]
pub(super) struct Tally<'a> {
    /// When the next call begins.
    pub(super) at: Nanos,
    /// The calls so far.
    pub(super) done: Vec<Done<'a>>,
    /// The calls of a transaction that were refused.
    pub(super) refused: Vec<Refused>,
}

/// A call that was carried out.
#[derive(Debug)]
pub(super) struct Done<'a> {
    pub(super) call: (&'static Command, Arguments<'a>),
    pub(super) took: Nanos,
    pub(super) outcome: Outcome,
    /// Whether it waits for a key.
    pub(super) waits: bool,
}

impl Tally<'_> {
    /// No calls so far, of a run of at most `most` calls that begins at this time.
    pub(super) fn new(at: Nanos, most: usize) -> Self {
        Self { at, done: Vec::with_capacity(most), refused: Vec::new() }
    }
}
