//! Transactions: what they depend on, their queued commands, and their end.

use super::tally::Tally;
use super::{Executor, Place, Stopped, admission};
use crate::commands::arguments::Arguments;
use crate::keyspace::failure::{Failure, Outcome};
use crate::protocol::reply::Reply;
use crate::state::channels::Topic;
use crate::state::session::{Session, Subscriptions, Watched};
use crate::state::watches::Mark;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most bytes that may wait in a transaction.
const MAX_QUEUE_BYTES: usize = 256 << 20;

impl Executor<'_> {
    pub(super) fn watch(&self, session: &mut Session, arguments: Arguments<'_>) -> Result<(), Stopped> {
        let layout = self.shared.spaces.layout();
        let hashes = arguments.from(1).iter().map(|key| layout.hash(key));
        let locked = self.until(|| self.shared.locks.try_lock(hashes.clone(), false));
        let _locked = self.or_hold(session, locked)?;
        let mut keys = self.transaction();
        let space = keys.space_of(session.database);
        keys.fetch(space, arguments.from(1).iter().map(|key| (layout.hash(key), *key, false)))?;
        for key in arguments.from(1) {
            let expires_ms = keys.header(space, key)?.and_then(|header| header.expires_ms);
            let watched = session
                .watched
                .get_or_insert_with(|| Watched { mark: Arc::new(Mark::default()), names: BTreeMap::new() });
            let name = (session.database, Bytes::copy_from_slice(key));
            if !watched.names.contains_key(&name) {
                self.shared.watches.watch(name.clone(), &watched.mark);
                watched.names.insert(name, expires_ms);
            }
        }
        Ok(())
    }

    pub(super) fn exec(&self, session: &mut Session, out: &mut Reply, place: Place) -> Result<(), Stopped> {
        let Some(queue) = session.queue.take() else { return Err(Failure::text("ERR EXEC without MULTI").into()) };
        if queue.is_refused {
            self.unwatch(session);
            return Err(Failure::text("EXECABORT Transaction discarded because of previous errors.").into());
        }
        let words: Vec<Vec<&[u8]>> =
            queue.requests.iter().map(|request| request.iter().map(|argument| &argument[..]).collect()).collect();
        let mut calls = Vec::with_capacity(words.len());
        for arguments in &words {
            let arguments = Arguments::new(arguments);
            calls.push((self.registry.resolve(arguments)?, arguments));
        }
        let begun = self.shared.clock.now();
        let named = self.named(&calls);
        // What the transaction's commands do with the connection must be done in this thread.
        let can_be_left = place == Place::Here && calls.iter().all(|(command, _)| command.can_be_left());
        let locked = match self.lock(&calls, &named, place) {
            Err(Stopped::Failed(busy)) => {
                self.unwatch(session);
                return Err(Self::aborted(busy.message()).into());
            }
            Err(Stopped::Held) if session.was_held && can_be_left => Err(Stopped::Long),
            locked => self.or_hold(session, locked),
        };
        let locked = match locked {
            Ok(locked) => locked,
            Err(stopped) => {
                session.queue = Some(queue);
                return Err(stopped);
            }
        };
        session.was_held = false;
        let mut keys = self.transaction();
        let is_stale = session.watched.as_ref().is_some_and(|watched| {
            let has_expired = |expires: &Option<u64>| expires.is_some_and(|expires| keys.now_ms() > expires);
            watched.mark.is_broken() || watched.names.values().any(has_expired)
        });
        let start = out.len();
        if is_stale {
            self.unwatch(session);
            out.null_array();
            Self::hold_back(session, out, start);
            return Ok(());
        }
        let mut failed = self.fetch(session, &calls, &named, &mut keys).err();
        let changes_connection = !calls.iter().all(|(command, _)| command.can_be_left());
        let before = changes_connection.then(|| (session.database, session.subscriptions.clone()));
        // The commands may change which replies are wanted, so each part of the reply is held back by itself.
        out.array(calls.len());
        Self::hold_back(session, out, start);
        session.is_in_transaction = true;
        // Calls that are not repeated are counted one by one.
        let most = if can_be_left { calls.len() } else { 1 };
        let mut tally = Tally::new(self.shared.clock.now(), most);
        let mut carried = 0;
        for (command, arguments) in &calls {
            if failed.is_some() {
                break;
            }
            if let Err(refused) = admission::admit(self.shared, session, command, *arguments) {
                let start = out.len();
                out.error(refused.failure.message());
                failed = out.is_full().then_some(Failure::REPLY_TOO_LONG);
                Self::hold_back(session, out, start);
                tally.refused.push(refused);
            } else {
                // No command waits in a transaction: what the command has replied is its reply.
                Self::describe(session, command, keys.now_ms());
                keys.reads().allow(if can_be_left { self.shared.max_steps } else { u64::MAX });
                carried += 1;
                failed = self.call(session, (command, *arguments), &mut keys, out, &mut tally).err();
            }
            if !can_be_left {
                // It is not repeated, and INFO may be among its commands.
                self.count(session, &mut tally, keys.now_ms());
            }
        }
        session.is_in_transaction = false;
        if failed.as_ref().is_some_and(Failure::is_of_length) {
            if keys.changes_libraries() {
                self.shared.scripts.doubt();
            }
            out.truncate(start);
            session.shown = carried;
            session.queue = Some(queue);
            return Err(Stopped::Long);
        }
        self.unwatch(session);
        self.count(session, &mut tally, keys.now_ms());
        let finished = self.finish_run(session, &calls, failed, &mut keys);
        if !matches!(finished, Ok(None)) {
            before.into_iter().for_each(|before| self.take_back(session, before));
        }
        drop(locked);
        self.time(&calls, calls.len(), begun);
        // One of the commands may have been a script.
        self.serve_missed();
        let doubt = finished?;
        self.serve_waiters(&keys);
        doubt.map_or(Ok(()), |doubt| Err(doubt.into()))
    }

    /// Takes back the database and the subscriptions that a transaction has chosen, after it got an error in place of
    /// its replies: otherwise a client would write to a database, or get messages, without knowing.
    fn take_back(&self, session: &mut Session, (database, mut before): (usize, Subscriptions)) {
        let channels = &self.shared.channels;
        for topic in [Topic::Channel, Topic::Pattern, Topic::Shard] {
            let (before, now) = (before.of(topic), session.subscriptions.of(topic));
            now.difference(before).for_each(|name| channels.unsubscribe(topic, name, session.client.id));
            before.difference(now).for_each(|name| channels.subscribe(topic, name, &session.client));
        }
        let counts = (before.channels.len(), before.patterns.len(), before.shards.len());
        (session.database, session.subscriptions) = (database, before);
        session.client.describe(|described| (described.database, described.subscriptions) = (database, counts));
    }

    /// Returns the reply of an EXEC that is refused because of `cause`.
    pub(super) fn aborted(cause: &str) -> Failure {
        Failure::new(format!(
            "EXECABORT Transaction discarded because of: {}",
            cause.strip_prefix("ERR ").unwrap_or(cause)
        ))
    }

    pub(super) fn enqueue(session: &mut Session, arguments: Arguments<'_>) -> Outcome {
        let Some(queue) = &mut session.queue else { return Ok(()) };
        queue.size_bytes += arguments.from(0).iter().map(|argument| argument.len() + 32).sum::<usize>();
        if queue.size_bytes > MAX_QUEUE_BYTES {
            queue.is_refused = true;
            queue.requests.clear();
            return Err(Failure::text("ERR the transaction is too large: at most 256 MiB"));
        }
        queue.requests.push(arguments.from(0).iter().map(|argument| Bytes::copy_from_slice(argument)).collect());
        Ok(())
    }
}
