//! Keys that go to another server.
//!
//! ```text
//!   MIGRATE ─► a job of a few threads; the connection waits. Portion by portion:
//!     dump    keys are reserved: what they hold becomes requests to the target, and a mark is left at each of them
//!     send    nothing is locked, and the network may wait
//!     remove  keys are reserved: those are removed that the target took, unless their marks are broken
//! ```
//!
//! A change of a key breaks the marks at it, as for `WATCH`. So only the client that asked waits for the network, and
//! only keys that the target has are removed. A key that has changed meanwhile stays, and the client is told.

use super::target::{Answer, Broken, Target};
use super::{Executor, Stopped};
use crate::commands::arguments::Arguments;
use crate::commands::command::Context;
use crate::commands::dump::commands::dumped;
use crate::commands::migrate::Migration;
use crate::keyspace::events::Class;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::locks::{Locked, Reservation};
use crate::keyspace::transaction::{Name, Transaction};
use crate::protocol::reply::{Protocol, Reply};
use crate::state::config::{NO_TLS_TO_OTHERS, TLS_CLUSTER};
use crate::state::session::Session;
use crate::state::watches::{Mark, Watches};
use bytes::Bytes;
use rustls::ClientConfig;
use std::sync::Arc;

/// Most keys of a portion: the replies to this many fit into the buffers of a connection.
const PORTION_KEYS: usize = 256;
/// A portion ends after the key with which it has more bytes than this.
const PORTION_BYTES: usize = 1 << 20;

const TOO_LONG: Failure = Failure::text("ERR what a key holds is too long to be sent: at most 512 MiB");
const CHANGED: Failure = Failure::text(
    "ERR a key changed while it was sent, so it stays here: the target has what it held before. Migrate it again with REPLACE",
);

/// Existing keys that the target is asked to take.
struct Portion<'s> {
    /// A request for each key.
    requests: Reply,
    keys: Vec<Sent>,
    watches: &'s Watches,
}

/// A key, and the mark at it.
type Sent = (Name, Arc<Mark>);

impl Drop for Portion<'_> {
    fn drop(&mut self) {
        self.keys.iter().for_each(|(name, mark)| self.watches.unwatch(std::iter::once(name), mark));
    }
}

impl<'s> Executor<'s> {
    /// Carries `MIGRATE` out, in a thread that may wait.
    pub(super) fn migrate(
        &self,
        session: &mut Session,
        arguments: Arguments<'_>,
        out: &mut Reply,
    ) -> Result<(), Stopped> {
        let migration = Migration::read(arguments)?;
        if let Some(busy) = self.shared.scripts.progress.busy() {
            return Err(Failure::text(busy.busy()).into());
        }
        let client = Arc::clone(&session.client);
        let is_given_up = || self.shared.is_stopping() || client.is_killed();
        let (mut target, mut keys) = (None, migration.keys);
        let (mut refusal, mut has_changed) = (None, false);
        while !keys.is_empty() {
            let (portion, looked_at) = self.dump(session, &migration, keys)?;
            keys = keys.get(looked_at..).unwrap_or_default();
            if portion.keys.is_empty() {
                continue;
            }
            let target = match &mut target {
                Some(target) => target,
                None => {
                    let clock = &*self.shared.clock;
                    let address = (migration.host, migration.port);
                    let tls = self.tls_to_target()?;
                    let reached = Target::connect(address, tls, migration.timeout, clock, &is_given_up);
                    target.insert(begin(reached.map_err(Failure::from)?, &migration)?)
                }
            };
            let (answers, broken) = send(target, &portion);
            if !migration.copies {
                has_changed |= self.remove_taken(session, &portion, &answers)?;
            }
            refusal = refusal.or_else(|| answers.into_iter().find_map(Result::err));
            match (broken, &refusal) {
                (Some(broken), None) => return Err(Failure::from(broken).into()),
                (Some(_), Some(_)) => break,
                (None, _) => {}
            }
        }
        match (refusal, target) {
            (Some(text), _) => Err(refused(&text).into()),
            _ if has_changed => Err(CHANGED.into()),
            (None, None) => {
                out.simple("NOKEY");
                Ok(())
            }
            (None, Some(_)) => {
                out.ok();
                Ok(())
            }
        }
    }

    /// How the target is spoken to within TLS, if it is.
    fn tls_to_target(&self) -> Outcome<Option<Arc<ClientConfig>>> {
        if self.shared.config.get(TLS_CLUSTER) != "yes" {
            return Ok(None);
        }
        let tls = self.shared.tls_to_others();
        tls.map(Some).ok_or_else(|| Failure::new(format!("ERR {NO_TLS_TO_OTHERS}")))
    }

    /// Returns a portion of the first of these keys, and how many keys it has looked at.
    fn dump(
        &self,
        session: &mut Session,
        migration: &Migration<'_>,
        keys: &[&[u8]],
    ) -> Result<(Portion<'s>, usize), Stopped> {
        let keys = keys.get(..PORTION_KEYS).unwrap_or(keys);
        let mut requests = Reply::new(Protocol::Two);
        requests.begin(self.shared.max_reply_bytes);
        let mut portion = Portion { requests, keys: Vec::new(), watches: &self.shared.watches };
        self.in_turn(|| {
            let _locked = self.reserve(keys.iter().copied(), false)?;
            let mut transaction = self.transaction();
            let mut looked_at = 0;
            for key in keys {
                if portion.requests.len() > PORTION_BYTES {
                    break;
                }
                looked_at += 1;
                self.add(&mut portion, session, &mut transaction, migration, key)?;
            }
            self.finish(None, None, &mut transaction)?;
            Ok((portion, looked_at))
        })
    }

    /// Adds a key to a portion, if the key exists.
    fn add(
        &self,
        portion: &mut Portion<'_>,
        session: &mut Session,
        keys: &mut Transaction<'s>,
        migration: &Migration<'_>,
        key: &[u8],
    ) -> Outcome {
        let Self { shared, registry, counters } = *self;
        let now_ms = keys.now_ms();
        let requests = &mut portion.requests;
        let mut context = Context { shared, registry, counters, session, keys, out: requests, wait: None };
        let Some(header) = context.look_up(key)? else { return Ok(()) };
        let too_long = |failure: Failure| if failure == Failure::REPLY_TOO_LONG { TOO_LONG } else { failure };
        let dump = dumped(&mut context, &header).map_err(too_long)?;
        // Zero would mean forever.
        let left_ms = header.expires_ms.map_or(0, |expires| expires.saturating_sub(now_ms).max(1));
        requests.array(if migration.replaces { 5 } else { 4 });
        requests.bulk("RESTORE");
        requests.bulk(key);
        requests.bulk(left_ms.to_string());
        requests.bulk(dump);
        if migration.replaces {
            requests.bulk("REPLACE");
        }
        if requests.is_full() {
            return Err(TOO_LONG);
        }
        let (name, mark) = ((session.database, Bytes::copy_from_slice(key)), Arc::default());
        shared.watches.watch(name.clone(), &mark);
        portion.keys.push((name, mark));
        Ok(())
    }

    /// Removes the keys of a portion that the target took. Returns true when a key stays because it has changed.
    fn remove_taken(&self, session: &mut Session, portion: &Portion<'_>, answers: &[Answer]) -> Result<bool, Stopped> {
        let answered = portion.keys.iter().zip(answers);
        let taken: Vec<&Sent> = answered.filter(|(_, answer)| answer.is_ok()).map(|(sent, _)| sent).collect();
        if taken.is_empty() {
            return Ok(false);
        }
        self.in_turn(|| {
            let locked = self.reserve(taken.iter().map(|((_, key), _)| &key[..]), true)?;
            let mut keys = self.transaction();
            let space = keys.space_of(session.database);
            let mut has_changed = false;
            for ((_, key), mark) in taken {
                if mark.is_broken() {
                    has_changed |= keys.header(space, key)?.is_some();
                } else if keys.remove(space, key)? {
                    keys.notify(Class::GENERIC, "del", space, key);
                }
            }
            let doubt = self.finish(Some(session), None, &mut keys)?;
            drop(locked);
            self.serve_waiters(&keys);
            doubt.map_or(Ok(has_changed), |doubt| Err(doubt.into()))
        })
    }

    /// Reserves keys. The caller has the turn, so no other thread has reserved any.
    fn reserve<'k>(&self, keys: impl Iterator<Item = &'k [u8]>, writes: bool) -> Result<Locked<'s>, Stopped> {
        let layout = self.shared.spaces.layout();
        let reservation = Reservation { keys: keys.map(|key| layout.hash(key)).collect(), writes, reads_others: false };
        self.until(|| self.shared.locks.try_reserve(reservation.clone()))
    }
}

/// Logs in at the target, and selects the database.
fn begin<'t>(mut target: Target<'t>, migration: &Migration<'_>) -> Outcome<Target<'t>> {
    let mut requests = Reply::new(Protocol::Two);
    let mut count = 1;
    if !migration.login.is_empty() {
        count += 1;
        requests.array(1 + migration.login.len());
        requests.bulk("AUTH");
        migration.login.iter().for_each(|word| requests.bulk(word));
    }
    requests.array(2);
    requests.bulk("SELECT");
    requests.bulk(migration.database.to_string());
    target.send(requests.bytes())?;
    for _ in 0..count {
        target.answer()?.map_err(|text| refused(&text))?;
    }
    Ok(target)
}

/// Sends a portion to the target. Returns its answers, and where the exchange broke off, if it did.
fn send(target: &mut Target<'_>, portion: &Portion<'_>) -> (Vec<Answer>, Option<Broken>) {
    let mut answers = Vec::with_capacity(portion.keys.len());
    if let Err(broken) = target.send(portion.requests.bytes()) {
        return (answers, Some(broken));
    }
    while answers.len() < portion.keys.len() {
        match target.answer() {
            Ok(answer) => answers.push(answer),
            Err(broken) => return (answers, Some(broken)),
        }
    }
    (answers, None)
}

fn refused(text: &str) -> Failure {
    Failure::new(format!("ERR Target instance replied with error: {text}"))
}
