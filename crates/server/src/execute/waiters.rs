//! Carries out again commands that wait for keys.
//!
//! A command that has found nothing leaves a waiter at its keys. A run that changes one of these keys carries the command
//! out again for the waiter, after it has released its own keys. The command then looks at this key alone: the other keys
//! have changed before, or come next. When the key is not of the type that a waiter waits for, other waiters for that
//! type are not tried there. The run that gives the key that type serves them. A waiter whose client has hung up gets
//! nothing, and neither does one that another client ends meanwhile.

use super::tally::Tally;
use super::{Call, Executor, Place};
use crate::commands::arguments::Arguments;
use crate::commands::command::{Wait, flags};
use crate::keyspace::header::Kind;
use crate::keyspace::transaction::{Name, Transaction};
use crate::protocol::reply::Reply;
use crate::state::session::{Replies, Session};
use crate::state::waiting::{Begun, Waiter};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;

/// What became of a waiter when its command was carried out again.
enum Attempt {
    /// The command found nothing, or could not be carried out. Other waiters may still succeed.
    Waits,
    /// The key is not of this type, which the command waits for: other waiters for this type find nothing either.
    NothingOf(Kind),
    /// The client is gone.
    HasGone,
    /// The reply, and the keys that the command has changed.
    Served(Vec<u8>, Vec<Name>),
}

impl Executor<'_> {
    /// Whether a client waits at a key that a call may have changed. The keys are locked.
    pub(super) fn may_wake(&self, session: &Session, (command, arguments): Call<'_>) -> bool {
        let waiting = &self.shared.waiting;
        let is_awaited = |place| waiting.is_at(&(session.database, Bytes::copy_from_slice(arguments.at(place))));
        waiting.count() > 0 && command.has(flags::WRITE) && command.key_places(arguments).into_iter().any(is_awaited)
    }

    /// Leaves a waiter for a command that has found nothing, and takes the command's reply back. Its keys are locked.
    pub(super) fn leave_waiter(
        &self,
        session: &mut Session,
        arguments: Arguments<'_>,
        (wait, begun): &(Wait, Begun),
        start: usize,
        out: &mut Reply,
    ) {
        let nothing = out.copied_from(start);
        out.truncate(start);
        let timeout_ns = (wait.timeout_ms > 0).then(|| wait.timeout_ms.saturating_mul(1_000_000));
        let until = timeout_ns.map(|timeout| self.shared.clock.now().saturating_add(timeout));
        let sent = || arguments.from(0).iter().map(|argument| Bytes::copy_from_slice(argument)).collect();
        let request = wait.request.clone().unwrap_or_else(sent);
        let client = Arc::clone(&session.client);
        let (database, protocol) = (session.database, out.protocol());
        let waiter = Waiter::new(client, database, protocol);
        let waiter = Arc::new(waiter.for_keys(*begun, request, wait.kind, nothing, until));
        self.shared.waiting.add(&waiter, wait.keys.iter().map(|key| (database, key.clone())).collect());
        session.client.describe(|described| described.is_blocked = true);
        session.blocked = Some(waiter);
    }

    /// Carries out again the commands that wait for a changed key. The caller holds no lock.
    pub fn serve_waiters(&self, keys: &Transaction<'_>) {
        let waiting = &self.shared.waiting;
        if waiting.count() == 0 {
            return;
        }
        let mut changed: VecDeque<Name> = keys.touched().into();
        if keys.is_of_all() {
            changed.extend(waiting.names());
        }
        self.serve_at(changed);
    }

    /// The same for the commands that wait at these keys.
    fn serve_at(&self, mut changed: VecDeque<Name>) {
        while let Some(name) = changed.pop_front() {
            let mut line = self.shared.waiting.line(&name);
            while let Some(waiter) = line.next() {
                let Some(claim) = waiter.claim() else { continue };
                let attempt = self.try_again(&waiter, &name.1);
                if let Attempt::NothingOf(kind) = attempt {
                    line.pass(kind);
                }
                let served = match attempt {
                    Attempt::Waits | Attempt::NothingOf(_) => {
                        drop(claim);
                        // Who asked for the end meanwhile left it to this thread.
                        let _ = self.shared.end_early(&waiter, self.counters);
                        continue;
                    }
                    Attempt::HasGone => None,
                    Attempt::Served(bytes, touched) => Some((bytes, touched)),
                };
                claim.end();
                self.shared.waiting.remove(&waiter);
                if let Some((bytes, touched)) = served {
                    waiter.client.unblock(bytes);
                    changed.extend(touched);
                }
            }
        }
    }

    /// Carries a waiter's command out for a key that has changed.
    fn try_again(&self, waiter: &Waiter, key: &Bytes) -> Attempt {
        let words: Vec<&[u8]> = waiter.request.iter().map(|word| &word[..]).collect();
        let arguments = Arguments::new(&words);
        let Ok(command) = self.registry.resolve(arguments) else { return Attempt::Waits };
        let mut session = Session::new(Arc::clone(&waiter.client), None);
        session.database = waiter.database;
        session.replies = if waiter.wants_reply() { Replies::On } else { Replies::Off };
        session.woken_by = Some(key.clone());
        session.spent = waiter.begun.map(|begun| begun.took);
        let mut out = Reply::new(waiter.protocol);
        out.begin(self.shared.max_reply_bytes);
        let calls = [(command, arguments)];
        let named = self.named(&calls);
        let _locked = loop {
            match self.lock(&calls, &named, Place::Here) {
                Ok(locked) => break locked,
                Err(_) if self.shared.scripts.miss(&self.shared.locks) => return Attempt::Waits,
                // The job has just ended.
                Err(_) => {}
            }
        };
        // What came into the key after the client was reported gone is not for this client.
        if waiter.client.has_hung_up() {
            return Attempt::HasGone;
        }
        if waiter.asked().is_some() {
            return Attempt::Waits;
        }
        let mut keys = self.transaction();
        // A key of another type does not wake the waiter.
        if let Some(kind) = waiter.kind {
            let space = keys.space_of(waiter.database);
            if keys.header(space, key).is_ok_and(|header| header.is_none_or(|header| header.kind() != kind)) {
                return Attempt::NothingOf(kind);
            }
        }
        Self::describe(&session, command, keys.now_ms());
        let mut tally = Tally::new(self.shared.clock.now(), 1);
        let result = self.call(&mut session, (command, arguments), &mut keys, &mut out, &mut tally);
        self.count(&session, &mut tally, keys.now_ms());
        let result =
            result.and_then(|wait| self.finish(Some(&mut session), None, &mut keys).map(|doubt| (wait, doubt)));
        let touched = match result {
            Ok((Some(_), _)) => return Attempt::Waits,
            Ok((None, None)) => keys.touched(),
            Ok((None, Some(failure))) => {
                self.fail(&mut out, 0, &failure);
                keys.touched()
            }
            Err(failure) => {
                self.fail(&mut out, 0, &failure);
                Vec::new()
            }
        };
        Self::hold_back(&mut session, &mut out, 0);
        session.push(&mut out);
        Attempt::Served(out.take(), touched)
    }

    /// After a job has ended, carries out the commands that could not be carried out because of it.
    pub(super) fn serve_missed(&self) {
        if self.shared.scripts.take_missed() {
            self.serve_at(self.shared.waiting.names().into());
        }
    }
}
