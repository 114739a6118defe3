//! The owner's side: the jobs that it waits for, and what it does about them.
//!
//! ```text
//!             PREPARE sent           COMMIT                 installed
//!   (none) ─────────────► waiting ───────────► installing ────────────► (none): keys end, ACK, inputs are freed
//!                            │ ABORT, too late     │ refused
//!                            ▼                     ▼
//!                          (none): keys end, the job runs at home or at the memory node
//! ```
//!
//! A job is decided once. Later messages for it are refused.

use crate::job::{Attempt, JobName, Outcome, Package, Reason, Term};
use crate::load::Load;
use crate::message::{Body, Message};
use crate::planted::{Bug, Planted};
use forebay_env::Nanos;
use std::collections::BTreeMap;

/// What an owner has to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Order {
    /// Send this to the scheduler.
    Send(Message),
    /// Adopt what the attempt made, and install it. Then call [`Owner::installed`].
    Install {
        /// The job.
        name: JobName,
        /// The attempt.
        attempt: Attempt,
        /// What it made.
        outcome: Outcome,
    },
    /// End the job's ticket: from then on nobody else has keys to what it touches, and what was made for it is freed
    /// unless it was adopted.
    EndKeys(JobName),
    /// Free what the job replaced, once nobody reads it.
    FreeInputs(JobName),
    /// Run the job without the pool: at the memory node for [`Reason::Near`], else at home.
    RunElsewhere(JobName, Reason),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Wanted {
    package: Package,
    home: Load,
    until: Nanos,
    /// Whether the owner asked more than once. Who answers then may not know of earlier attempts.
    asked_again: bool,
    /// The attempt that the owner is installing.
    installing: Option<Attempt>,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    term: Term,
    jobs: BTreeMap<JobName, Wanted>,
    orders: Vec<Order>,
    refused_commits: u64,
    planted: Planted,
}

impl Owner {
    /// Makes an owner that waits for nothing.
    #[must_use]
    pub fn new() -> Self {
        let (term, planted) = (Term::default(), Planted::default());
        Self { term, jobs: BTreeMap::new(), orders: Vec::new(), refused_commits: 0, planted }
    }

    /// Makes an owner with a bug.
    #[cfg(feature = "planted")]
    #[must_use]
    pub fn with(planted: Planted) -> Self {
        Self { planted, ..Self::new() }
    }

    /// Takes the orders to carry out, in this order.
    pub fn take_orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    /// Returns how many jobs the owner waits for.
    #[must_use]
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// Returns how many COMMITs were refused.
    #[must_use]
    pub const fn refused_commits(&self) -> u64 {
        self.refused_commits
    }

    /// Asks for a job with an open ticket to be placed. The job is decided at `until` at the latest.
    pub fn prepare(&mut self, name: JobName, package: Package, home: Load, until: Nanos) {
        self.jobs.insert(name, Wanted { package, home, until, asked_again: false, installing: None });
        self.send(name, Attempt::default(), Body::Prepare { package, home });
    }

    /// Handles a message.
    pub fn receive(&mut self, message: &Message) {
        let Message { term, name, attempt, body } = *message;
        if term > self.term {
            self.meet(term);
        }
        match body {
            Body::Commit(outcome) => match self.jobs.get_mut(&name) {
                Some(wanted) if wanted.installing.is_none() => {
                    wanted.installing = Some(attempt);
                    self.orders.push(Order::Install { name, attempt, outcome });
                }
                // The same COMMIT once more.
                Some(wanted) if wanted.installing == Some(attempt) => {}
                _ if self.planted.has(Bug::InstallsLate) => {
                    self.orders.push(Order::Install { name, attempt, outcome });
                }
                _ => {
                    self.refused_commits += 1;
                    self.send(name, attempt, Body::Abort(Reason::Ended));
                }
            },
            Body::Abort(reason) => {
                if let Some(wanted) = self.jobs.get(&name).filter(|wanted| wanted.installing.is_none()) {
                    let may_have_run = wanted.asked_again && matches!(reason, Reason::Home | Reason::Busy);
                    self.give_up(name, if may_have_run { Reason::Lost } else { reason });
                }
            }
            Body::Prepare { .. } | Body::Assign { .. } | Body::Accept | Body::Ack => {}
        }
    }

    /// Takes the term of the scheduler that the owner talks to. If the term is another one, the owner sends its
    /// requests again. Terms begin again where the register was lost with its memory node.
    pub fn meet(&mut self, term: Term) {
        if term != self.term {
            self.term = term;
            self.ask_again();
        }
    }

    /// Sends the requests of waiting jobs again: the scheduler is reached over another connection, and may have
    /// forgotten this owner.
    pub fn ask_again(&mut self) {
        let mut waiting = Vec::new();
        for (&name, wanted) in self.jobs.iter_mut().filter(|(_, wanted)| wanted.installing.is_none()) {
            wanted.asked_again = true;
            waiting.push((name, wanted.package, wanted.home));
        }
        for (name, package, home) in waiting {
            self.send(name, Attempt::default(), Body::Prepare { package, home });
        }
    }

    /// Records that what an attempt made is installed. Its inputs are freed when nobody has keys to them any more.
    pub fn installed(&mut self, name: JobName) {
        let Some(Wanted { installing, .. }) = self.jobs.remove(&name) else { return };
        if self.planted.has(Bug::FreesInputsEarly) {
            self.orders.push(Order::FreeInputs(name));
        }
        self.end_keys(name);
        self.send(name, installing.unwrap_or_default(), Body::Ack);
        if !self.planted.has(Bug::FreesInputsEarly) {
            self.orders.push(Order::FreeInputs(name));
        }
    }

    /// Records that what an attempt made could not be adopted, because a later attempt has superseded it. The job runs
    /// without the pool.
    pub fn refused(&mut self, name: JobName) {
        self.give_up(name, Reason::Lost);
        self.send(name, Attempt::default(), Body::Abort(Reason::Ended));
    }

    /// Tells the time: jobs that were not decided in time run without the pool.
    pub fn tick(&mut self, now: Nanos) {
        let is_late = |wanted: &Wanted| wanted.installing.is_none() && wanted.until <= now;
        let late: Vec<_> = self.jobs.iter().filter(|(_, it)| is_late(it)).map(|(&name, _)| name).collect();
        for name in late {
            self.give_up(name, Reason::Lost);
            self.send(name, Attempt::default(), Body::Abort(Reason::Ended));
        }
    }

    /// Records that nobody schedules any more: jobs that are not being installed run without the pool.
    pub fn scheduler_lost(&mut self) {
        let waiting = self.jobs.iter().filter(|(_, wanted)| wanted.installing.is_none());
        let waiting: Vec<_> = waiting.map(|(&name, _)| name).collect();
        waiting.into_iter().for_each(|name| self.give_up(name, Reason::Lost));
    }

    /// Records that the epoch of a shard has ended: its jobs are no longer waited for.
    pub fn epoch_ended(&mut self, database: u128, shard: u32, epoch: u64) {
        let is_of = |name: &JobName| (name.database, name.shard) == (database, shard) && name.epoch <= epoch;
        let ended: Vec<_> = self.jobs.keys().filter(|name| is_of(name)).copied().collect();
        for name in ended {
            self.jobs.remove(&name);
            self.end_keys(name);
            self.send(name, Attempt::default(), Body::Abort(Reason::Ended));
        }
    }

    fn give_up(&mut self, name: JobName, reason: Reason) {
        if self.jobs.remove(&name).is_some() {
            self.end_keys(name);
            self.orders.push(Order::RunElsewhere(name, reason));
        }
    }

    fn end_keys(&mut self, name: JobName) {
        if !self.planted.has(Bug::GrantsOutlive) {
            self.orders.push(Order::EndKeys(name));
        }
    }

    fn send(&mut self, name: JobName, attempt: Attempt, body: Body) {
        self.orders.push(Order::Send(Message { term: self.term, name, attempt, body }));
    }
}

impl Default for Owner {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::package;

    /// The owner looks for what an attempt has left in storage, unless there was none.
    #[test]
    fn who_is_asked_again_may_not_know_of_attempts() {
        use Reason::{Busy, Failed, Home, Lost, Near};
        let name = JobName { database: 1, shard: 0, epoch: 1, job: 1 };
        let package = package(1, 1);
        let cases = [
            (false, Home, Home),
            (false, Busy, Busy),
            (true, Home, Lost),
            (true, Busy, Lost),
            (true, Near, Near),
            (true, Failed, Failed),
        ];
        for (again, said, told) in cases {
            let mut owner = Owner::new();
            owner.prepare(name, package, Load::default(), 10);
            if again {
                owner.ask_again();
            }
            let (term, attempt) = (Term::default(), Attempt::default());
            owner.receive(&Message { term, name, attempt, body: Body::Abort(said) });
            let last = owner.take_orders().pop();
            assert_eq!(last, Some(Order::RunElsewhere(name, told)), "asked again: {again}, {said:?}");
        }
    }
}
