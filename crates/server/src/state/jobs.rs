//! Requests that a thread other than their connection's carries out.

use crate::acl::user::User;
use crate::protocol::reply::Protocol;
use crate::state::clients::Client;
use crate::state::session::{Queue, Replies, Session, Watched};
use crate::state::tracking::Tracked;
use bytes::Bytes;
use forebay_env::sync::{Condvar, Mutex, lock};
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

/// A request that another thread carries out.
#[derive(Debug)]
pub struct Job {
    /// The client, which waits.
    pub client: Arc<Client>,
    /// The user that it is.
    pub user: Option<Arc<User>>,
    /// The database that it uses.
    pub database: usize,
    /// The version of the protocol.
    pub protocol: Protocol,
    /// Which replies it wants.
    pub replies: Replies,
    /// Its request.
    pub request: Vec<Bytes>,
    /// The transaction that it ends.
    pub transaction: Option<Transacted>,
    /// How many of its commands were shown to clients that watch all commands.
    pub shown: usize,
    /// Whether the client caches keys that it reads.
    pub tracked: Option<Tracked>,
}

/// A transaction, and what it depends on.
pub type Transacted = (Queue, Option<Watched>);

impl Job {
    /// Returns the session of the job's connection, and moves the transaction into it.
    pub fn take_session(&mut self) -> Session {
        let mut session = Session::new(Arc::clone(&self.client), self.user.take());
        (session.database, session.replies, session.shown) = (self.database, self.replies, self.shown);
        session.tracked = self.tracked;
        if let Some((queue, watched)) = self.transaction.take() {
            (session.queue, session.watched) = (Some(queue), watched);
        }
        session
    }
}

/// Jobs that wait for one of the threads that carry them out.
#[derive(Debug, Default)]
pub struct Jobs {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    is_stopping: bool,
}

impl Jobs {
    /// Adds a job.
    pub fn submit(&self, job: Job) {
        lock(&self.waiting).jobs.push_back(job);
        self.changed.notify_one();
    }

    /// Waits for a job; `None` when there will be no more.
    pub fn next(&self) -> Option<Job> {
        let mut waiting = lock(&self.waiting);
        loop {
            if waiting.is_stopping {
                return None;
            }
            if let Some(job) = waiting.jobs.pop_front() {
                return Some(job);
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes a job, if one waits.
    pub fn take(&self) -> Option<Job> {
        lock(&self.waiting).jobs.pop_front()
    }

    /// Takes all jobs that wait.
    pub fn take_all(&self) -> VecDeque<Job> {
        std::mem::take(&mut lock(&self.waiting).jobs)
    }

    /// Says that there are no more jobs.
    pub fn stop(&self) {
        lock(&self.waiting).is_stopping = true;
        self.changed.notify_all();
    }
}
