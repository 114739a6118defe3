//! Requests that other threads carry out, and requests that are held because of one.

use super::{Executor, Place, Planned, Stopped};
use crate::commands::arguments::Arguments;
use crate::keyspace::failure::Failure;
use crate::protocol::reply::Reply;
use crate::state::jobs::{Job, Jobs, Transacted};
use crate::state::session::{Replies, Session};
use crate::state::waiting::Waiter;
use bytes::Bytes;
use forebay_env::Nanos;
use std::sync::Arc;

impl Executor<'_> {
    /// Returns the result unchanged, but holds the next command if it needs reserved keys.
    pub(super) fn or_hold<T>(&self, session: &mut Session, locked: Result<T, Stopped>) -> Result<T, Stopped> {
        if matches!(locked, Err(Stopped::Held)) {
            self.hold(session);
        }
        locked
    }

    /// Holds the next command until the keys that a job has reserved are free.
    pub(super) fn hold(&self, session: &mut Session) {
        // Otherwise the keys are free by now.
        if self.shared.scripts.hold(&session.client, &self.shared.locks) {
            session.held_until = Some(Nanos::MAX);
            session.was_held = true;
        }
    }

    /// Leaves a request to the thread of jobs. The connection waits for it.
    pub(super) fn leave(
        &self,
        session: &mut Session,
        arguments: Arguments<'_>,
        out: &Reply,
        transaction: Option<Transacted>,
    ) {
        Self::leave_to(&self.shared.scripts.jobs, session, arguments, out, transaction);
    }

    /// Leaves a request to the threads that take these jobs. The connection waits for it.
    pub(super) fn leave_to(
        jobs: &Jobs,
        session: &mut Session,
        arguments: Arguments<'_>,
        out: &Reply,
        transaction: Option<Transacted>,
    ) {
        let request: Vec<Bytes> = arguments.from(0).iter().map(|argument| Bytes::copy_from_slice(argument)).collect();
        let (client, database, protocol) = (Arc::clone(&session.client), session.database, out.protocol());
        let waiter = Waiter::new(Arc::clone(&client), database, protocol);
        session.blocked = Some(Arc::new(waiter));
        let (user, replies) = (session.user.clone(), session.replies);
        if session.replies == Replies::Skip {
            session.replies = Replies::On;
        }
        session.was_held = false;
        let shown = std::mem::take(&mut session.shown);
        let tracked = session.tracked;
        session.end_choice("");
        jobs.submit(Job { client, user, database, protocol, replies, request, transaction, shown, tracked });
    }

    /// Does work that reserves keys or runs a script. No other thread does so meanwhile. Afterwards the commands that the
    /// work has held continue.
    pub(super) fn in_turn<T>(&self, work: impl FnOnce() -> T) -> T {
        let turn = self.shared.scripts.turn();
        let done = work();
        drop(turn);
        self.shared.scripts.release();
        self.serve_missed();
        done
    }

    /// Carries jobs out until there are no more. For the single thread of jobs.
    pub fn carry_out_jobs(&self) {
        while let Some(job) = self.shared.scripts.jobs.next() {
            self.carry_out(job);
        }
    }

    /// Carries migrations out until there are no more. For threads that may wait for other servers.
    pub fn carry_out_migrations(&self) {
        while let Some(job) = self.shared.migrations.next() {
            self.answer(job);
        }
    }

    /// Carries out a request in the thread of jobs.
    pub fn carry_out(&self, job: Job) {
        self.in_turn(|| self.answer(job));
    }

    /// Carries out a request in a thread that serves no connections.
    pub fn answer(&self, mut job: Job) {
        let mut session = job.take_session();
        // The connection was ended before the job began.
        if job.client.is_killed() {
            self.unwatch(&mut session);
            return;
        }
        let words: Vec<&[u8]> = job.request.iter().map(|word| &word[..]).collect();
        let arguments = Arguments::new(&words);
        let mut out = Reply::new(job.protocol);
        match self.registry.resolve(arguments) {
            Ok(command) => {
                self.by_itself(&mut session, Planned::Alone(command), arguments, &mut out, Place::There);
                session.push(&mut out);
            }
            Err(failure) => self.fail(&mut out, 0, &failure),
        }
        job.client.unblock(out.take());
    }

    /// Answers the clients whose jobs wait for a busy script.
    pub fn turn_jobs_away(&self) {
        let Some(busy) = self.shared.scripts.progress.busy() else { return };
        for job in self.shared.scripts.jobs.take_all() {
            let mut out = Reply::new(job.protocol);
            let mut failure = Failure::text(busy.busy());
            if let Some((_, watched)) = job.transaction {
                failure = Self::aborted(failure.message());
                watched.into_iter().for_each(|watched| watched.end(&self.shared.watches));
            }
            if job.replies == Replies::On {
                self.fail(&mut out, 0, &failure);
            }
            job.client.unblock(out.take());
        }
    }
}
