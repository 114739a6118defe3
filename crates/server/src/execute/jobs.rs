//! Requests that the thread of jobs carries out, and those that are held because of one.

use super::{Executor, Place, Planned, Stopped};
use crate::commands::arguments::Arguments;
use crate::keyspace::failure::Failure;
use crate::protocol::reply::Reply;
use crate::state::scripts::{Job, Transacted};
use crate::state::session::{Replies, Session};
use crate::state::waiting::Waiter;
use bytes::Bytes;
use forebay_env::Nanos;
use std::sync::Arc;

impl Executor<'_> {
    /// As it is; the command that comes next is held if it needs keys that are reserved.
    pub(super) fn or_hold<T>(&self, session: &mut Session, locked: Result<T, Stopped>) -> Result<T, Stopped> {
        if matches!(locked, Err(Stopped::Held)) {
            self.hold(session);
        }
        locked
    }

    /// Holds the command that comes next until the keys are free that a job has reserved.
    pub(super) fn hold(&self, session: &mut Session) {
        // Otherwise they are free by now.
        if self.shared.scripts.hold(&session.client, &self.shared.locks) {
            session.held_until = Some(Nanos::MAX);
            session.was_held = true;
        }
    }

    /// Lets the thread of jobs carry out a request, for which the connection waits.
    pub(super) fn leave(
        &self,
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
        self.shared.scripts.submit(Job {
            client,
            user,
            database,
            protocol,
            replies,
            request,
            transaction,
            shown,
            tracked,
        });
    }

    /// Carries out a request in the thread of jobs.
    pub fn carry_out(&self, job: Job) {
        // Its connection was ended before this has begun.
        if job.client.is_killed() {
            job.transaction
                .and_then(|(_, watched)| watched)
                .into_iter()
                .for_each(|watched| watched.end(&self.shared.watches));
            return;
        }
        let words: Vec<&[u8]> = job.request.iter().map(|word| &word[..]).collect();
        let arguments = Arguments::new(&words);
        let mut session = Session::new(Arc::clone(&job.client), job.user);
        (session.database, session.replies, session.shown) = (job.database, job.replies, job.shown);
        session.tracked = job.tracked;
        if let Some((queue, watched)) = job.transaction {
            (session.queue, session.watched) = (Some(queue), watched);
        }
        let mut out = Reply::new(job.protocol);
        match self.registry.resolve(arguments) {
            Ok(command) => {
                self.by_itself(&mut session, Planned::Alone(command), arguments, &mut out, Place::There);
                session.push(&mut out);
            }
            Err(failure) => self.fail(&mut out, 0, &failure),
        }
        self.shared.scripts.release();
        job.client.unblock(out.take());
        self.serve_missed();
    }

    /// Answers those whose jobs wait for a script that is busy.
    pub fn turn_jobs_away(&self) {
        let Some(busy) = self.shared.scripts.progress.busy() else { return };
        for job in self.shared.scripts.take_waiting() {
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
