//! An executor: takes jobs as long as it has room, and reports what became of them.

use crate::job::{Attempt, JobName, Outcome, Package, Reason, StorageAccess, Term};
use crate::load::Load;
use crate::message::{Beat, Body, MAX_RUNNING, Message};
use crate::planted::{Bug, Planted};
use std::collections::BTreeMap;

/// What an executor has to do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Task {
    /// Send this to the scheduler.
    Send(Message),
    /// Join the ticket as this attempt and run the job. Then call [`Executor::done`].
    Run {
        /// The job.
        name: JobName,
        /// The attempt.
        attempt: Attempt,
        /// What to run.
        package: Package,
    },
    /// Stop the attempt. [`Executor::done`] need not be called for it.
    Stop(JobName, Attempt),
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Executor {
    term: Term,
    threads: u32,
    queue_limit: u32,
    /// How many of the threads do something else.
    occupied: u32,
    running: BTreeMap<JobName, Attempt>,
    tasks: Vec<Task>,
    planted: Planted,
}

impl Executor {
    /// Makes an executor that runs `threads` jobs at once and lets `queue_limit` wait.
    #[must_use]
    pub fn new(threads: u32, queue_limit: u32) -> Self {
        let (term, planted) = (Term::default(), Planted::default());
        Self { term, threads, queue_limit, occupied: 0, running: BTreeMap::new(), tasks: Vec::new(), planted }
    }

    /// Records that this many of the threads do something else from now on: they are lent, and have work of their own.
    /// Running jobs continue.
    pub fn occupy(&mut self, threads: u32) {
        self.occupied = threads.min(self.threads);
    }

    /// Returns the same executor with a bug.
    #[cfg(feature = "planted")]
    #[must_use]
    pub fn with(self, planted: Planted) -> Self {
        Self { planted, ..self }
    }

    /// Takes the tasks to do.
    pub fn take_tasks(&mut self) -> Vec<Task> {
        std::mem::take(&mut self.tasks)
    }

    /// Returns the term that the executor follows.
    #[must_use]
    pub const fn term(&self) -> Term {
        self.term
    }

    /// Returns what the executor says of itself. The caller gives the throughput.
    #[must_use]
    pub fn beat(&self, written_per_second: u64, bandwidth_per_second: u64, storage: StorageAccess) -> Beat {
        let jobs = (self.running.len() as u32).saturating_add(self.occupied);
        let load = Load {
            active_threads: jobs.min(self.threads),
            threads: self.threads,
            written_per_second,
            bandwidth_per_second,
            pending: jobs.saturating_sub(self.threads),
            queue_limit: self.queue_limit,
        };
        let running = self.running.iter().take(MAX_RUNNING).map(|(&name, &attempt)| (name, attempt)).collect();
        Beat { term: self.term, load, storage, running }
    }

    /// Handles a message.
    pub fn receive(&mut self, message: &Message) {
        let Message { term, name, attempt, body } = *message;
        if term < self.term && !self.planted.has(Bug::TwoSchedulers) {
            return;
        }
        self.term = self.term.max(term);
        match body {
            Body::Assign { package } => self.assigned(name, attempt, package),
            Body::Abort(_) if self.running.get(&name) == Some(&attempt) => self.stop(name, attempt),
            _ => {}
        }
    }

    /// Takes the term of the scheduler that the executor talks to. The term may be lower than one that was heard
    /// before: terms begin again where the register was lost with its memory node. A scheduler that was deposed and
    /// does not know yet is also believed. That costs work, but the order of attempts keeps jobs safe.
    pub fn meet(&mut self, term: Term) {
        self.term = term;
    }

    fn assigned(&mut self, name: JobName, attempt: Attempt, package: Package) {
        match self.running.get(&name).copied() {
            // The same attempt once more, or one that was superseded.
            Some(running) if running >= attempt => return,
            Some(running) => self.stop(name, running),
            None => {}
        }
        let free = self.threads.saturating_sub(self.occupied);
        let most = (free.saturating_add(self.queue_limit) as usize).min(MAX_RUNNING);
        if self.running.len() >= most {
            return self.send(name, attempt, Body::Abort(Reason::Busy));
        }
        self.running.insert(name, attempt);
        self.send(name, attempt, Body::Accept);
        self.tasks.push(Task::Run { name, attempt, package });
    }

    /// Takes the end of an attempt: what it made, or why it failed. An attempt that was stopped meanwhile is ignored.
    pub fn done(&mut self, name: JobName, attempt: Attempt, made: Result<Outcome, Reason>) {
        if self.running.get(&name) != Some(&attempt) {
            return;
        }
        self.running.remove(&name);
        self.send(name, attempt, made.map_or_else(Body::Abort, Body::Commit));
    }

    fn stop(&mut self, name: JobName, attempt: Attempt) {
        self.running.remove(&name);
        self.tasks.push(Task::Stop(name, attempt));
    }

    fn send(&mut self, name: JobName, attempt: Attempt, body: Body) {
        self.tasks.push(Task::Send(Message { term: self.term, name, attempt, body }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::package;

    /// Gives the executor a job. Returns whether it takes the job.
    fn assign(executor: &mut Executor, term: Term, job: u64) -> bool {
        let package = package(1, 0);
        let (name, attempt) = (JobName { database: 1, shard: 0, epoch: 1, job }, Attempt { term, number: 1 });
        executor.receive(&Message { term, name, attempt, body: Body::Assign { package } });
        executor.take_tasks().iter().any(|task| matches!(task, Task::Run { .. }))
    }

    #[test]
    fn lent_threads_take_jobs_while_they_are_idle() {
        let mut executor = Executor::new(2, 0);
        let load = |executor: &Executor| executor.beat(0, 0, StorageAccess::default()).load;
        assert!(!load(&executor).is_busy());
        executor.occupy(1);
        assert!(assign(&mut executor, Term(1), 1) && load(&executor).is_full());
        assert!(!assign(&mut executor, Term(1), 2), "the other one has work of its own");
        executor.occupy(9);
        assert!(load(&executor).is_full() && !assign(&mut executor, Term(1), 3));
        let name = JobName { database: 1, shard: 0, epoch: 1, job: 1 };
        assert_eq!(
            executor.beat(0, 0, StorageAccess::default()).running,
            [(name, Attempt { term: Term(1), number: 1 })],
            "it goes on"
        );
        executor.occupy(0);
        assert!(assign(&mut executor, Term(1), 4));
    }

    #[test]
    fn terms_may_begin_again_where_the_register_was_lost() {
        let mut executor = Executor::new(2, 2);
        executor.meet(Term(5));
        assert!(assign(&mut executor, Term(5), 1) && !assign(&mut executor, Term(1), 2));
        executor.meet(Term(1));
        assert!(assign(&mut executor, Term(1), 2), "nobody works for a scheduler whose terms began again");
    }
}
