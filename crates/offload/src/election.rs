//! Who schedules: the candidate to which the register gave the highest term.
//!
//! A candidate claims the next term when nobody holds one, and renews it before its lease has run out. It schedules only
//! while the lease lasts, counted from when it asked. If it sleeps past the end of the lease, it may still send messages
//! before it notices. They do no harm: executors and owners follow the highest term, and memory nodes the highest
//! attempt, which begins with the term.

use crate::job::Term;
use crate::planted::{Bug, Planted};
use forebay_env::Nanos;

/// The register of who schedules, which all candidates share. It gives each term to one of them, and terms ascend.
pub trait Register {
    /// Why the register did not answer.
    type Error;

    /// Claims the next term. Returns `None` while another candidate holds the last one.
    ///
    /// # Errors
    /// When it does not answer.
    fn claim(&mut self) -> Result<Option<Term>, Self::Error>;

    /// Renews a term; `None` when it has passed.
    ///
    /// # Errors
    /// When it does not answer.
    fn renew(&mut self, term: Term) -> Result<Option<Term>, Self::Error>;
}

/// What a candidate asks the register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Question {
    /// To get the next term, if nobody holds the last one.
    Claim,
    /// To renew its term.
    Renew(Term),
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Election {
    lease: Nanos,
    term: Option<Term>,
    /// When the right to schedule ends.
    until: Nanos,
    planted: Planted,
}

impl Election {
    /// Makes a candidate. A term lasts for `lease` unless it is renewed.
    #[must_use]
    pub fn new(lease: Nanos) -> Self {
        Self { lease, term: None, until: 0, planted: Planted::default() }
    }

    /// Returns the same candidate with a bug.
    #[cfg(feature = "planted")]
    #[must_use]
    pub fn with(self, planted: Planted) -> Self {
        Self { planted, ..self }
    }

    /// Returns the term in which the candidate may schedule now.
    #[must_use]
    pub fn leads(&self, now: Nanos) -> Option<Term> {
        self.term.filter(|_| now < self.until || self.planted.has(Bug::TwoSchedulers))
    }

    /// Returns what to ask the register now; `None` when nothing is due.
    #[must_use]
    pub fn question(&self, now: Nanos) -> Option<Question> {
        match self.leads(now) {
            None => Some(Question::Claim),
            Some(term) if self.until.saturating_sub(now) < self.lease / 3 * 2 => Some(Question::Renew(term)),
            Some(_) => None,
        }
    }

    /// Asks the register what is due now, if anything.
    ///
    /// # Errors
    /// When the register does not answer. Then a term that is held runs out in the end.
    pub fn ask<R: Register + ?Sized>(&mut self, now: Nanos, register: &mut R) -> Result<(), R::Error> {
        let held = match self.question(now) {
            None => return Ok(()),
            Some(Question::Claim) => register.claim()?,
            Some(Question::Renew(term)) => register.renew(term)?,
        };
        self.answered(now, held);
        Ok(())
    }

    /// Takes the register's answer to a question asked at `asked`: the term that this candidate holds, or none.
    pub fn answered(&mut self, asked: Nanos, held: Option<Term>) {
        match held {
            Some(term) => {
                self.term = Some(term);
                self.until = asked.saturating_add(self.lease);
            }
            None if self.planted.has(Bug::TwoSchedulers) => {}
            None => self.term = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_leads_while_its_lease_lasts() {
        let mut election = Election::new(300);
        assert_eq!((election.leads(0), election.question(0)), (None, Some(Question::Claim)));
        election.answered(0, Some(Term(4)));
        assert_eq!((election.leads(50), election.question(50)), (Some(Term(4)), None));
        assert_eq!(election.question(150), Some(Question::Renew(Term(4))));
        election.answered(150, Some(Term(4)));
        assert_eq!(election.leads(449), Some(Term(4)));
        assert_eq!((election.leads(450), election.question(450)), (None, Some(Question::Claim)));
        election.answered(460, Some(Term(6)));
        assert_eq!(election.leads(460), Some(Term(6)));
        election.answered(500, None);
        assert_eq!(election.leads(500), None);
    }
}
