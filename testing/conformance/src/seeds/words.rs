//! Words that several endpoints write and read.
//!
//! Every word ever written is different, so a value names its write. For each word the model keeps
//! the values that it may hold, each with bounds on the time when it may hold it. A value is *over*
//! when a write that began after the value was complete has certainly landed. A read that began
//! after that must not return the value. A write whose completion was lost may land at any time,
//! until its key is revoked or everything has come to rest.

use super::{Moment, Origin};

const NEVER: Moment = Moment::MAX;

/// A value that a word may hold.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    value: u64,
    origin: Origin,
    grant: u32,
    /// The value cannot have landed before this.
    posted: Moment,
    /// If the value has landed at all, it had landed by then.
    landed_by: Moment,
    /// Whether the value has certainly landed.
    certain: bool,
    /// From then on the value is overwritten.
    over: Moment,
}

/// A read by an endpoint, or by the node itself.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// When it began.
    pub from: Moment,
    /// When it was complete.
    pub to: Moment,
    /// The endpoint that read; `None` for the node itself.
    pub origin: Option<Origin>,
}

/// How operations of one endpoint are ordered.
#[derive(Debug, Clone, Copy)]
pub struct Ordering {
    /// Whether reads and atomics take effect after all that was posted before.
    pub sees_own_past: bool,
    /// Whether reads take effect before all that is posted later.
    pub blind_to_own_future: bool,
}

/// The words.
#[derive(Debug)]
pub struct Words {
    words: Vec<Vec<Candidate>>,
    ordering: Ordering,
}

impl Words {
    /// Words that are zero.
    #[must_use]
    pub fn new(count: usize, ordering: Ordering) -> Self {
        let zero = Candidate {
            value: 0,
            origin: Origin { endpoint: u32::MAX, sequence: 0 },
            grant: u32::MAX,
            posted: 0,
            landed_by: 0,
            certain: true,
            over: NEVER,
        };
        Self { words: vec![vec![zero]; count], ordering }
    }

    /// How many words there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.words.len()
    }

    /// Notes that a write of `value` was posted. `oldest` is when the oldest operation in flight
    /// was posted.
    pub fn posted(&mut self, word: usize, value: u64, origin: Origin, grant: u32, at: Moment, oldest: Moment) {
        let candidates = &mut self.words[word];
        if candidates.len() > 4 {
            candidates.retain(|candidate| candidate.over >= oldest);
        }
        candidates.push(Candidate { value, origin, grant, posted: at, landed_by: NEVER, certain: false, over: NEVER });
    }

    /// Notes that a write of `value` completed.
    pub fn completed(&mut self, word: usize, value: u64, at: Moment) {
        if let Some(index) = self.words[word].iter().position(|candidate| candidate.value == value) {
            self.landed(word, index, at);
        }
    }

    /// Notes that a value has landed: values that were complete before its write began are over.
    fn landed(&mut self, word: usize, index: usize, at: Moment) {
        let candidates = &mut self.words[word];
        let landed = &mut candidates[index];
        landed.certain = true;
        landed.landed_by = landed.landed_by.min(at);
        let (posted, value, at) = (landed.posted, landed.value, landed.landed_by);
        for candidate in candidates.iter_mut().filter(|candidate| candidate.value != value) {
            if candidate.landed_by < posted {
                candidate.over = candidate.over.min(at);
            }
        }
    }

    /// Notes that no write under this grant lands any more.
    pub fn revoked(&mut self, grant: u32, at: Moment) {
        for candidate in self.words.iter_mut().flatten().filter(|candidate| candidate.grant == grant) {
            candidate.landed_by = candidate.landed_by.min(at);
        }
    }

    /// Notes that somebody read `value`.
    ///
    /// # Errors
    /// When the word cannot have held it then.
    pub fn seen(&mut self, word: usize, value: u64, look: Look) -> Result<(), String> {
        let candidates = &mut self.words[word];
        let Some(index) = candidates.iter().position(|candidate| candidate.value == value) else {
            return Err(format!("word {word} holds {value:016x}, which nobody wrote or which is long over"));
        };
        let seen = candidates[index];
        if seen.over < look.from {
            return Err(format!("word {word} holds {value:016x} at {look:?}, overwritten for certain: {seen:?}"));
        }
        if let Some(origin) = look.origin {
            self.check_own(word, seen, origin)?;
        }
        // A value that was complete before the read began, and was not seen, is older than what was
        // seen.
        for candidate in self.words[word].iter_mut().filter(|candidate| candidate.value != value) {
            if candidate.landed_by < look.from {
                candidate.over = candidate.over.min(look.to);
            }
        }
        self.landed(word, index, look.to);
        Ok(())
    }

    /// What an endpoint sees of its own writes.
    fn check_own(&self, word: usize, seen: Candidate, reader: Origin) -> Result<(), String> {
        let mine = |candidate: &Candidate| candidate.origin.endpoint == reader.endpoint;
        if self.ordering.blind_to_own_future && mine(&seen) && seen.origin.sequence > reader.sequence {
            return Err(format!("word {word}: {reader:?} sees its own later write {seen:?}"));
        }
        let past = |candidate: &Candidate| mine(candidate) && candidate.origin.sequence < reader.sequence;
        let hidden_by = |own: &&Candidate| {
            past(own)
                && own.value != seen.value
                && (seen.landed_by < own.posted || (mine(&seen) && seen.origin.sequence < own.origin.sequence))
        };
        match self.words[word].iter().find(hidden_by).filter(|_| self.ordering.sees_own_past) {
            Some(own) => Err(format!("word {word}: {reader:?} sees {seen:?} and not its own later {own:?}")),
            None => Ok(()),
        }
    }

    /// Checks a word when everything has come to rest and it holds `value`.
    ///
    /// # Errors
    /// When it cannot.
    pub fn settled(&mut self, word: usize, value: u64, at: Moment) -> Result<(), String> {
        self.seen(word, value, Look { from: at, to: at, origin: None })?;
        let candidates = &mut self.words[word];
        candidates.retain(|candidate| candidate.value == value);
        for candidate in candidates {
            candidate.certain = true;
            candidate.landed_by = candidate.landed_by.min(at);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(endpoint: u32, sequence: u64) -> Origin {
        Origin { endpoint, sequence }
    }

    fn look(from: Moment, to: Moment) -> Look {
        Look { from, to, origin: None }
    }

    fn one_word() -> Words {
        Words::new(1, Ordering { sees_own_past: true, blind_to_own_future: true })
    }

    #[test]
    fn what_is_overwritten_is_over_only_for_later_reads() {
        let mut words = one_word();
        words.posted(0, 7, origin(1, 1), 0, 10, 0);
        words.completed(0, 7, 20);
        assert!(words.seen(0, 0, look(15, 30)).is_ok());
        assert!(words.seen(0, 7, look(21, 30)).is_ok());
        assert!(words.seen(0, 0, look(31, 32)).is_err());
        assert!(words.seen(0, 5, look(31, 32)).is_err());
    }

    #[test]
    fn a_lost_write_may_land_late_but_not_after_its_revocation() {
        let mut words = one_word();
        words.posted(0, 7, origin(1, 1), 3, 10, 0);
        words.posted(0, 8, origin(2, 1), 4, 20, 0);
        words.completed(0, 8, 30);
        assert!(words.seen(0, 8, look(31, 32)).is_ok());
        let mut revoked = one_word();
        revoked.posted(0, 7, origin(1, 1), 3, 10, 0);
        revoked.revoked(3, 15);
        assert!(revoked.seen(0, 0, look(16, 16)).is_ok());
        assert!(revoked.seen(0, 7, look(17, 18)).is_err());
        assert!(words.seen(0, 7, look(33, 34)).is_ok());
        assert!(words.seen(0, 8, look(35, 36)).is_err(), "new, old, new again");
    }

    #[test]
    fn an_endpoint_sees_its_own_past_and_not_its_future() {
        let mut words = one_word();
        words.posted(0, 7, origin(1, 1), 0, 10, 0);
        let by = |sequence| Look { from: 11, to: 12, origin: Some(origin(1, sequence)) };
        assert!(words.seen(0, 0, by(2)).is_err());
        assert!(words.seen(0, 7, by(0)).is_err());
        assert!(words.seen(0, 7, by(2)).is_ok());
    }
}
