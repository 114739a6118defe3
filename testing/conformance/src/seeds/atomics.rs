//! Words that only atomics change.
//!
//! Every successful atomic takes the word from one value to another, and all values are different:
//! added numbers and swapped-in words are random. So between two moments of rest the atomics of a
//! word form one chain from the value at the first to the value at the second. An atomic whose
//! completion was lost may or may not be a link of the chain.

use super::words::{Look, Ordering};
use super::{Moment, Origin};

/// What an atomic would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Fetch-and-add.
    Add(u64),
    /// Compare-and-swap.
    Swap {
        /// What the word must be.
        expected: u64,
        /// What it becomes.
        new: u64,
    },
}

impl Change {
    /// The word after, if the atomic changes the word `before`.
    fn after(self, before: u64) -> Option<u64> {
        match self {
            Self::Add(delta) => Some(before.wrapping_add(delta)),
            Self::Swap { expected, new } => (expected == before).then_some(new),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Applied {
    before: u64,
    after: u64,
    from: Moment,
    to: Moment,
    origin: Origin,
}

/// A word and what happened to it since it was last at rest.
#[derive(Debug, Default)]
pub struct AtomicWord {
    start: u64,
    applied: Vec<Applied>,
    uncertain: Vec<(Change, Moment)>,
    seen: Vec<(u64, Look)>,
}

impl AtomicWord {
    /// Notes that an atomic completed and returned `before`.
    pub fn completed(&mut self, change: Change, before: u64, look: Look) {
        match (change.after(before), look.origin) {
            (Some(after), Some(origin)) => {
                self.applied.push(Applied { before, after, from: look.from, to: look.to, origin });
            }
            _ => self.seen(before, look),
        }
    }

    /// The last value that a client knows.
    #[must_use]
    pub fn last_seen(&self) -> u64 {
        self.applied.last().map_or(self.start, |applied| applied.after)
    }

    /// Notes that an atomic ended with an error, or not at all.
    pub fn lost(&mut self, change: Change, posted: Moment) {
        self.uncertain.push((change, posted));
    }

    /// Notes that somebody read `value`.
    pub fn seen(&mut self, value: u64, look: Look) {
        self.seen.push((value, look));
    }

    /// Checks the word when everything has come to rest and it holds `value`.
    ///
    /// # Errors
    /// When no order of the atomics explains what was seen.
    pub fn settled(&mut self, value: u64, ordering: Ordering) -> Result<(), String> {
        // Lost atomics rarely follow one another, so short stretches of them are tried first.
        let explained = (0..=self.uncertain.len().min(64)).any(|stretch| {
            let chain = Vec::with_capacity(self.applied.len());
            let mut search = Search { word: self, end: value, ordering, stretch, chain, used: 0, budget: 200_000 };
            search.extend(self.start, 0, 0)
        });
        if !explained {
            return Err(format!("no order of its atomics takes the word to {value:016x}: {self:x?}"));
        }
        *self = Self { start: value, ..Self::default() };
        Ok(())
    }
}

/// Depth-first search for the chain.
struct Search<'a> {
    word: &'a AtomicWord,
    end: u64,
    ordering: Ordering,
    /// How many uncertain atomics may follow one another.
    stretch: usize,
    /// The links so far: atomics that were certainly applied, or when an uncertain one was posted.
    chain: Vec<Link>,
    /// Uncertain atomics in the chain, one bit each.
    used: u64,
    budget: u32,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    after: u64,
    from: Moment,
    to: Moment,
    origin: Option<Origin>,
}

impl Search<'_> {
    /// Continues from `value`, after `certain` certain links and a stretch of `uncertain` ones.
    fn extend(&mut self, value: u64, certain: usize, uncertain: usize) -> bool {
        if certain == self.word.applied.len() && value == self.end && self.is_explained() {
            return true;
        }
        if self.budget == 0 {
            return false;
        }
        self.budget -= 1;
        // The word never has a value twice, so the atomic that was certainly applied to this value
        // comes next.
        if let Some(applied) = self.word.applied.iter().find(|applied| applied.before == value) {
            let Applied { after, from, to, origin, .. } = *applied;
            self.chain.push(Link { after, from, to, origin: Some(origin) });
            let found = self.extend(after, certain + 1, 0);
            if !found {
                self.chain.pop();
            }
            return found;
        }
        if uncertain == self.stretch {
            return false;
        }
        for (i, (change, posted)) in self.word.uncertain.iter().enumerate().take(64) {
            let Some(after) = change.after(value).filter(|_| self.used & 1 << i == 0) else { continue };
            self.used |= 1 << i;
            self.chain.push(Link { after, from: *posted, to: Moment::MAX, origin: None });
            if self.extend(after, certain, uncertain + 1) {
                return true;
            }
            self.chain.pop();
            self.used &= !(1 << i);
        }
        false
    }

    /// Whether the chain agrees with time, with the order of each endpoint, and with reads.
    fn is_explained(&self) -> bool {
        let mut latest_post = 0;
        for (i, link) in self.chain.iter().enumerate() {
            latest_post = latest_post.max(link.from);
            let earlier = self.chain.iter().take(i).filter_map(|earlier| earlier.origin);
            let out_of_order = |earlier: Origin| {
                link.origin.is_some_and(|own| earlier.endpoint == own.endpoint && earlier.sequence > own.sequence)
            };
            if link.to < latest_post || (self.ordering.sees_own_past && earlier.into_iter().any(out_of_order)) {
                return false;
            }
        }
        self.word.seen.iter().all(|(value, look)| self.shows(*value, *look))
    }

    fn shows(&self, value: u64, look: Look) -> bool {
        (0..=self.chain.len()).any(|position| {
            let (before, after) = self.chain.split_at(position);
            let held = before.last().map_or(self.word.start, |link| link.after);
            held == value
                && before.iter().all(|link| link.from <= look.to)
                && after.iter().all(|link| link.to >= look.from)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDERED: Ordering = Ordering { sees_own_past: true, blind_to_own_future: true };

    fn by(endpoint: u32, sequence: u64, from: Moment, to: Moment) -> Look {
        Look { from, to, origin: Some(Origin { endpoint, sequence }) }
    }

    #[test]
    fn a_chain_is_found_and_a_break_is_too() {
        let mut word = AtomicWord::default();
        word.completed(Change::Add(5), 7, by(2, 1, 2, 9));
        word.completed(Change::Add(7), 0, by(1, 1, 1, 8));
        word.completed(Change::Swap { expected: 3, new: 4 }, 12, by(1, 2, 3, 9));
        assert_eq!(word.settled(12, ORDERED), Ok(()));
        word.completed(Change::Add(1), 12, by(1, 3, 10, 11));
        assert!(word.settled(12, ORDERED).is_err(), "an addition was lost");
    }

    #[test]
    fn a_lost_atomic_explains_what_it_may() {
        let mut word = AtomicWord::default();
        word.lost(Change::Add(100), 1);
        word.completed(Change::Add(1), 100, by(1, 1, 2, 3));
        assert_eq!(word.settled(101, ORDERED), Ok(()));
        word.lost(Change::Add(100), 4);
        assert!(word.settled(301, ORDERED).is_err(), "applied twice");
    }

    #[test]
    fn time_and_reads_are_kept() {
        let mut word = AtomicWord::default();
        word.completed(Change::Add(1), 10, by(1, 1, 1, 2));
        word.completed(Change::Add(10), 0, by(2, 1, 3, 4));
        assert!(word.settled(11, ORDERED).is_err(), "the second began after the first had completed");
        let mut word = AtomicWord::default();
        word.completed(Change::Add(1), 0, by(1, 1, 1, 2));
        word.seen(0, by(2, 1, 3, 4));
        assert!(word.settled(1, ORDERED).is_err(), "a read of what was over");
    }
}
