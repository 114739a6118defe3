//! Carries out the requests of connections.
//!
//! ```text
//!   requests ─► plan ─┬─ commands that may go together ─► one run: lock all keys, fetch them, carry all out,
//!                     │                                   write one batch, say what changed, unlock
//!                     ├─ a command that goes alone ─────► a run of one
//!                     ├─ one that takes many steps ─────► nothing of it is kept; a job of the thread of scripts, which has its
//!                     │                                   keys reserved meanwhile
//!                     ├─ MIGRATE ───────────────────────► a job of threads that wait for other servers (see `migrations`)
//!                     ├─ a command in a transaction ────► the queue; EXEC makes one run of it
//!                     ├─ a refusal ─────────────────────► its error
//!                     └─ a request of HTTP ─────────────► the connection ends
//! ```
//!
//! A command that has found nothing waits for a key to change (see `waiters`).
//!
//! So a pipeline shares round trips to the memory node, and a transaction is atomic because it is a batch. Replies are
//! held back until the batch is written. If the write fails, the reply to every command of the run is the error. When
//! one batch cannot hold the run, its replies are too long, or a key in it is, the run's first command goes alone. A
//! batch that is written but not durable is also an error, but everybody sees the batch, so its consequences happen as
//! for any other.

mod admission;
mod jobs;
mod migrations;
mod tally;
mod target;
mod transactions;
mod waiters;

use crate::commands::arguments::Arguments;
use crate::commands::command::{Command, Context, Flow, Registry, Run, Wait, flags, places as places_of};
use crate::commands::monitored;
use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::header::Kind;
use crate::keyspace::locks::{Locked, NotLocked, Reservation};
use crate::keyspace::transaction::Transaction;
use crate::keyspace::writes::{FIRST_PORTION, PORTION_BYTES, Writes};
use crate::protocol::reply::{Protocol, Reply};
use crate::protocol::request::Requests;
use crate::state::channels::Topic;
use crate::state::clients::DescribedTracking;
use crate::state::counters::{Count, Counters};
use crate::state::session::{Queue, Replies, Session};
use crate::state::shared::Shared;
use crate::state::slow_log::{SlowCommand, kept};
use crate::state::waiting::Begun;
use admission::Refused;
use bytes::Bytes;
use forebay_env::Nanos;
use tally::{Done, Tally};
use tracing::{debug_span, trace_span};

/// A run ends, and its connection is not read further, when this many bytes wait to be sent.
pub const MAX_REPLY_BYTES: usize = 1 << 20;
/// Most commands of a run.
const MAX_RUN: usize = 256;
/// A run ends before a command with which it would write more bytes than this: a short command may write much, and all of
/// a run is one batch.
const WRITE_BYTES: usize = 4 << 20;

/// How many commands a connection's runs have, and how many keys they fetch together at first. Both begin low, because
/// nothing is known about the sizes of values.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    commands: usize,
    keys: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self { commands: 16, keys: FIRST_PORTION }
    }
}

impl Pace {
    /// Learns from what a run of `commands` commands has fetched.
    fn learn(&mut self, commands: usize, fetched: &Writes<'_>) {
        let bytes = fetched.fetched_bytes();
        if bytes > PORTION_BYTES {
            self.commands = commands.saturating_mul(PORTION_BYTES) / bytes;
        } else if commands >= self.commands {
            self.commands = self.commands.saturating_mul(2);
        }
        self.commands = self.commands.clamp(1, MAX_RUN);
        self.keys = fetched.portion().min(MAX_RUN);
    }
}

/// Carries commands out. See the module.
#[derive(Debug, Clone, Copy)]
pub struct Executor<'s> {
    /// What connections share.
    pub shared: &'s Shared,
    /// All commands.
    pub registry: &'s Registry,
    /// What this thread counts.
    pub counters: &'s Counters,
}

/// A command, and its arguments.
type Call<'a> = (&'static Command, Arguments<'a>);

/// A key that a call names.
#[derive(Debug, Clone, Copy)]
struct Named<'a> {
    key: &'a [u8],
    hash: u64,
    /// Whether its outline is enough.
    is_overwritten: bool,
}

/// Where commands are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In a thread that serves connections. A command that takes long is left to the thread of jobs.
    Here,
    /// In the thread of jobs.
    There,
}

/// Why commands are not carried out now.
#[derive(Debug)]
enum Stopped {
    /// Keys that they need are reserved. They are tried again.
    Held,
    /// They take long, and the thread of jobs carries them out.
    Long,
    /// They get an error.
    Failed(Failure),
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// What will happen to a request.
enum Planned {
    /// It may go with others.
    Together(&'static Command),
    /// It goes alone.
    Alone(&'static Command),
    /// It waits for EXEC.
    Queued(&'static Command),
    /// It gets an error.
    Refused(Refused),
    /// It ends the connection.
    Foreign,
}

impl<'s> Executor<'s> {
    /// Carries requests out from the first one on, and returns how many. Stops early when the connection must end, or
    /// much waits to be sent.
    pub fn serve(&self, session: &mut Session, requests: &Requests, out: &mut Reply, pace: &mut Pace) -> usize {
        let mut words: Vec<&[u8]> = Vec::new();
        let mut last = None;
        let mut done = 0;
        while done < requests.len() && session.may_go_on() && out.len() < MAX_REPLY_BYTES {
            if session.replies == Replies::SkipNext {
                session.replies = Replies::Skip;
            }
            words.clear();
            let mut run: Vec<(&'static Command, usize)> = Vec::new();
            let mut end = None;
            while done + run.len() < requests.len() && run.len() < pace.commands {
                let from = words.len();
                words.extend(requests.arguments(done + run.len()));
                let arguments = Arguments::new(words.get(from..).unwrap_or_default());
                let planned = self.plan(session, arguments, &mut last);
                // What is refused need not wait for the end of a pause.
                let is_refused = matches!(planned, Planned::Refused(_) | Planned::Foreign);
                session.held_until = if is_refused { None } else { self.held_until(session, arguments) };
                if session.held_until.is_some() {
                    break;
                }
                match planned {
                    Planned::Together(command) => run.push((command, words.len())),
                    other => {
                        end = Some((other, from));
                        break;
                    }
                }
            }
            // Commands before one that a pause holds go on, even if they take several runs.
            let held_until = session.held_until.take();
            if !run.is_empty() {
                let carried = self.together(session, &words, &run, out, pace);
                session.push(out);
                done += carried;
                // Commands after one that was left to the thread of jobs wait for its reply.
                if carried < run.len() || !session.may_go_on() {
                    continue;
                }
            }
            session.held_until = held_until;
            if let Some((planned, from)) = end {
                let arguments = Arguments::new(words.get(from..).unwrap_or_default());
                done += usize::from(self.by_itself(session, planned, arguments, out, Place::Here));
                session.push(out);
            }
        }
        self.counters.add(Count::Commands, done as u64);
        done
    }

    /// Returns until when a command must wait, if there is a pause.
    fn held_until(&self, session: &Session, arguments: Arguments<'_>) -> Option<Nanos> {
        if !self.shared.pause.is_on() {
            return None;
        }
        let writes = |arguments: Arguments<'_>| {
            self.registry.resolve(arguments).is_ok_and(|command| command.has(flags::WRITE | flags::MAY_REPLICATE))
        };
        let is_queued = |request: &Vec<Bytes>| {
            let words: Vec<&[u8]> = request.iter().map(|word| &word[..]).collect();
            writes(Arguments::new(&words))
        };
        let is_write = match &session.queue {
            Some(queue) if arguments.is(0, "EXEC") => queue.requests.iter().any(is_queued),
            _ => writes(arguments),
        };
        self.shared.pause.hold(&session.client, is_write, self.shared.clock.now())
    }

    /// Decides what happens to a request. It often calls the same command as the `last` one, which then need not be
    /// looked up.
    fn plan(&self, session: &Session, arguments: Arguments<'_>, last: &mut Option<&'static Command>) -> Planned {
        let same = last.filter(|last| last.is_called_by(arguments));
        let command = match same.map_or_else(|| self.registry.resolve(arguments), Ok) {
            Ok(command) => command,
            Err(_) if is_http(arguments) => return Planned::Foreign,
            Err(failure) => return Planned::Refused(failure.into()),
        };
        *last = Some(command);
        if let Err(refused) = admission::admit(self.shared, session, command, arguments) {
            return Planned::Refused(refused);
        }
        if !session.subscriptions.is_empty()
            && is_for_no_subscriber(command)
            && session.client.described().protocol == 2
        {
            let failure = Failure::new(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
                 context",
                command.name
            ));
            return Planned::Refused(failure.into());
        }
        if session.queue.is_some() {
            return match command.run {
                Run::Flow(Flow::Multi | Flow::Exec | Flow::Discard | Flow::Watch | Flow::Reset | Flow::Quit) => {
                    Planned::Alone(command)
                }
                _ if command.has(flags::NO_MULTI) || matches!(command.run, Run::Flow(Flow::Migrate)) => {
                    Planned::Refused(Failure::text("ERR Command not allowed inside a transaction").into())
                }
                _ => Planned::Queued(command),
            };
        }
        match command.run {
            Run::Together(_) => Planned::Together(command),
            Run::Alone(_) | Run::Exclusive(_) | Run::Steady(_) | Run::Script(_) | Run::Flow(_) => {
                Planned::Alone(command)
            }
        }
    }

    /// Carries out a request that goes alone. Returns false when it is held.
    fn by_itself(
        &self,
        session: &mut Session,
        planned: Planned,
        arguments: Arguments<'_>,
        out: &mut Reply,
        place: Place,
    ) -> bool {
        let start = out.len();
        out.begin(self.shared.max_reply_bytes);
        let result = match planned {
            // EXEC ends the transaction, even if EXEC itself is wrong.
            Planned::Refused(refused)
                if arguments.from(0).first().is_some_and(|name| name.eq_ignore_ascii_case(b"exec")) =>
            {
                session.queue = None;
                session.client.describe(|described| described.queued = None);
                self.unwatch(session);
                Err(Self::aborted(admission::refuse(self.shared, refused).message()))
            }
            Planned::Refused(why) => {
                let refused = self.registry.look_up(arguments);
                if let Some(counters) = refused.and_then(|command| self.counters.of_command(command.number)) {
                    counters.reject();
                }
                if let Some(queue) = &mut session.queue {
                    queue.is_refused = true;
                }
                Err(admission::refuse(self.shared, why))
            }
            Planned::Foreign => {
                tracing::warn!(client = session.client.id, address = %session.client.address, "a client speaks HTTP");
                session.is_closing = true;
                Ok(())
            }
            Planned::Queued(command) => {
                let queued = Self::enqueue(session, arguments).map(|()| out.simple("QUEUED"));
                Self::describe(session, command, self.shared.clock.wall_ms());
                queued
            }
            Planned::Together(command) | Planned::Alone(command) => match command.run {
                Run::Flow(Flow::Migrate) if place == Place::Here => {
                    Self::describe(session, command, self.shared.clock.wall_ms());
                    Self::leave_to(&self.shared.migrations, session, arguments, out, None);
                    return true;
                }
                Run::Flow(flow) => {
                    let begun = self.shared.clock.now();
                    // Clients that watch see the commands of a transaction before its end.
                    let result = match self.flow(session, flow, arguments, out, place) {
                        Err(Stopped::Held) => return false,
                        Err(Stopped::Long) => {
                            let transaction = session.queue.take().map(|queue| (queue, session.watched.take()));
                            Self::describe(session, command, self.shared.clock.wall_ms());
                            self.leave(session, arguments, out, transaction);
                            return true;
                        }
                        Err(Stopped::Failed(failure)) => Err(failure),
                        Ok(()) => Ok(()),
                    };
                    let (now_ms, took) = (self.shared.clock.wall_ms(), self.shared.clock.now().saturating_sub(begun));
                    command.count(self.shared, self.counters, None, took, result.is_err(), now_ms);
                    Self::describe(session, command, now_ms);
                    monitored::show(self.shared, session, command, arguments, now_ms);
                    if session.queue.is_none() {
                        session.end_choice(command.name);
                    }
                    // A transaction has held back what is not wanted.
                    if flow == Flow::Exec && result.is_ok() {
                        return true;
                    }
                    result
                }
                Run::Script(_) if place == Place::Here => {
                    self.leave(session, arguments, out, None);
                    return true;
                }
                _ => {
                    return self.run(session, &[(command, arguments)], out, &mut Pace::default(), place) > 0;
                }
            },
        };
        if let Err(failure) = result {
            self.fail(out, start, &failure);
        }
        Self::hold_back(session, out, start);
        true
    }

    /// Carries out a run of commands of a pipeline. Returns how many were carried out.
    fn together(
        &self,
        session: &mut Session,
        words: &[&[u8]],
        run: &[(&'static Command, usize)],
        out: &mut Reply,
        pace: &mut Pace,
    ) -> usize {
        let mut from = 0;
        let mut calls = Vec::with_capacity(run.len());
        for (command, to) in run {
            calls.push((*command, Arguments::new(words.get(from..*to).unwrap_or_default())));
            from = *to;
        }
        self.run(session, &calls, out, pace, Place::Here)
    }

    /// The keys that these commands name.
    fn named<'a>(&self, calls: &[Call<'a>]) -> Vec<Named<'a>> {
        let layout = self.shared.spaces.layout();
        let (mut named, mut places) = (Vec::with_capacity(calls.len()), Vec::new());
        for (command, arguments) in calls {
            command.add_key_places(*arguments, &mut places);
            let is_overwritten = !places.is_empty() && command.is_overwriting(*arguments);
            named.extend(places.drain(..).map(|place| {
                let key = arguments.at(place);
                Named { key, hash: layout.hash(key), is_overwritten }
            }));
        }
        named
    }

    /// Locks the keys that these commands touch, or reserves them for the thread of jobs. Fails when a script keeps
    /// them for long.
    fn lock(&self, calls: &[Call<'_>], named: &[Named<'_>], place: Place) -> Result<Locked<'s>, Stopped> {
        if calls.iter().all(|(command, _)| command.has(flags::ALLOW_BUSY)) {
            return Ok(Locked::nothing());
        }
        let locks = &self.shared.locks;
        // Without a snapshot, a command that looks for keys would find half of what others are writing.
        let is_steady = self.shared.store.has_snapshots();
        let reads_others =
            |(command, arguments): &Call<'_>| command.reads_others(*arguments) || command.looks_around && !is_steady;
        let reads_others = calls.iter().any(reads_others);
        let is_of_all = |(command, _): &Call<'_>| matches!(command.run, Run::Exclusive(_) | Run::Script(_));
        if calls.iter().any(is_of_all) || (reads_others && place == Place::Here) {
            return self.until(|| locks.try_lock_all());
        }
        let hashes = named.iter().map(|named| named.hash);
        let writes = calls.iter().any(|(command, _)| command.has(flags::WRITE | flags::MAY_REPLICATE));
        if place == Place::Here {
            return self.until(|| locks.try_lock(hashes.clone(), writes));
        }
        let reservation = Reservation { keys: hashes.collect(), writes, reads_others };
        self.until(|| locks.try_reserve(reservation.clone()))
    }

    /// Tries until an attempt succeeds, or keys are reserved, or a script is busy.
    fn until<T>(&self, mut attempt: impl FnMut() -> Result<T, NotLocked>) -> Result<T, Stopped> {
        loop {
            match attempt() {
                Ok(found) => return Ok(found),
                Err(NotLocked::Reserved) => return Err(Stopped::Held),
                Err(NotLocked::Whole) => {}
            }
            if let Some(busy) = self.shared.scripts.progress.wait() {
                return Err(Stopped::Failed(Failure::text(busy.busy())));
            }
        }
    }

    /// Carries commands out together, and returns how many: zero when the first one is held; one when it is left to the
    /// thread of jobs.
    fn run(
        &self,
        session: &mut Session,
        mut calls: &[Call<'_>],
        out: &mut Reply,
        pace: &mut Pace,
        place: Place,
    ) -> usize {
        if place == Place::Here {
            // Each word is a key or an element.
            let is_long = |(command, arguments): &Call<'_>| {
                command.can_be_left() && arguments.len() as u64 > self.shared.max_steps
            };
            match calls.iter().position(is_long) {
                Some(0) => {
                    calls.iter().take(1).for_each(|(_, arguments)| self.leave(session, *arguments, out, None));
                    return 1;
                }
                Some(first) => calls = calls.get(..first).unwrap_or_default(),
                None => {}
            }
        }
        let first = calls.first().map_or("", |(command, _)| command.name);
        let _traced = debug_span!(target: "forebay_trace", "commands", first, count = calls.len() as i64).entered();
        let begun = self.shared.clock.now();
        let named = self.named(calls);
        let locked = match self.lock(calls, &named, place) {
            Ok(locked) => Ok(locked),
            Err(Stopped::Failed(failure)) => Err(failure),
            Err(Stopped::Held | Stopped::Long) => {
                let first = calls.first().filter(|(command, _)| session.was_held && command.can_be_left());
                let Some((_, arguments)) = first else {
                    self.hold(session);
                    return 0;
                };
                // Only one job at a time may reserve keys, so the command becomes a job and takes its turn.
                self.leave(session, *arguments, out, None);
                return 1;
            }
        };
        session.was_held = false;
        let mut keys = self.transaction();
        keys.writes().set_portion(pace.keys.max(calls.len()));
        let (start, replies, tracked) = (out.len(), session.replies, session.tracked);
        out.begin(self.shared.max_reply_bytes);
        let (mut carried, mut waits) = (0, None);
        if let Some((command, _)) = calls.last() {
            Self::describe(session, command, keys.now_ms());
        }
        let mut failed = match &locked {
            Ok(_) => self.fetch(session, calls, &named, &mut keys).err(),
            Err(failure) => Some(failure.clone()),
        };
        let mut tally = Tally::new(self.shared.clock.now(), calls.len());
        for (command, arguments) in calls {
            let is_long =
                || out.len() - start > MAX_REPLY_BYTES || keys.held_bytes() + arguments.size_bytes() > WRITE_BYTES;
            if failed.is_some() || (carried > 0 && is_long()) {
                break;
            }
            let is_bounded = place == Place::Here && command.can_be_left();
            keys.reads().allow(if is_bounded { self.shared.max_steps } else { u64::MAX });
            carried += 1;
            match self.call(session, (command, *arguments), &mut keys, out, &mut tally) {
                // No command waits within a run of several: commands that wait go alone.
                Ok(wait) => waits = wait.map(|wait| (wait, *arguments)),
                Err(failure) => failed = Some(failure),
            }
            // Waiting clients come before the commands that follow. So do the messages to this client about its own
            // changes.
            let is_told = session.tracked.is_some() && command.has(flags::WRITE);
            if is_told || self.may_wake(session, (command, *arguments)) {
                break;
            }
        }
        let finished = self.finish_run(session, calls.get(..carried).unwrap_or_default(), failed, &mut keys);
        let is_repeated = |failure: &Failure| failure.is_of_length() || (failure.is_of_batch() && calls.len() > 1);
        if !finished.as_ref().is_err_and(is_repeated) {
            self.count(session, &mut tally, keys.now_ms());
            self.time(calls, carried, begun);
        }
        if let (Ok(None), Some((wait, arguments))) = (&finished, waits) {
            self.leave_waiter(session, arguments, &wait, start, out);
        }
        drop(locked);
        if let (Err(failure), [first, _, ..]) = (&finished, calls)
            && failure.is_of_batch()
        {
            out.truncate(start);
            (session.replies, session.tracked) = (replies, tracked);
            drop(keys);
            session.shown = carried;
            return self.run(session, std::slice::from_ref(first), out, pace, place);
        }
        if let (Err(failure), Some(before)) = (&finished, carried.checked_sub(1))
            && failure.is_of_length()
        {
            out.truncate(start);
            (session.replies, session.tracked) = (replies, tracked);
            drop(keys);
            session.shown = carried;
            return match (calls.get(..before), calls.first()) {
                (Some(others), _) if before > 0 => self.run(session, others, out, pace, place),
                (_, first) => {
                    first.into_iter().for_each(|(_, arguments)| self.leave(session, *arguments, out, None));
                    1
                }
            };
        }
        if finished.is_ok() {
            self.serve_waiters(&keys);
        }
        if let Some(failure) = finished.unwrap_or_else(Some) {
            out.truncate(start);
            session.replies = replies;
            session.shown = 0;
            // Continue with the commands that were not carried out, unless none was.
            carried = if carried == 0 { calls.len() } else { carried };
            for _ in 0..carried {
                let start = out.len();
                self.fail(out, start, &failure);
                Self::hold_back(session, out, start);
            }
        }
        pace.learn(carried, keys.reads());
        carried
    }

    fn transaction(&self) -> Transaction<'s> {
        self.shared.transaction(self.shared.time.now_ms())
    }

    fn fetch(&self, session: &Session, calls: &[Call<'_>], named: &[Named<'_>], keys: &mut Transaction<'_>) -> Outcome {
        let _traced = trace_span!(target: "forebay_trace", "fetch", keys = named.len() as i64).entered();
        let space = keys.space_of(session.database);
        keys.fetch(space, named.iter().map(|named| (named.hash, named.key, named.is_overwritten)))?;
        if calls.len() == 1 {
            // A command fetches its own elements.
            return Ok(());
        }
        let mut elements = Vec::new();
        for (command, arguments) in calls {
            let Some(named) = command.elements else { continue };
            // The command itself reports what is wrong with the key.
            let Ok(Some(collection)) = keys.collection(space, arguments.at(1), named.kind) else { continue };
            let (first, last, step) = named.places;
            let (layout, id) = (keys.layout(), collection.id);
            elements.extend(places_of(*arguments, first, last, step).map(|place| match named.kind {
                Kind::SortedSet => layout.member(space, id, arguments.at(place)),
                _ => layout.hashed_element(space, id, arguments.at(place)),
            }));
        }
        keys.writes().fetch(elements)
    }

    /// Notes the last command of a client.
    fn describe(session: &Session, command: &Command, now_ms: u64) {
        session.client.describe(|described| {
            described.command = command.name;
            described.at_ms = now_ms;
            described.queued = session.queue.as_ref().map(|queue| (queue.requests.len(), queue.held_bytes()));
        });
    }

    /// Carries a command out, and returns what it waits for. Fails when the store failed; the command's own failure is
    /// its reply.
    fn call<'a>(
        &self,
        session: &mut Session,
        (command, arguments): Call<'a>,
        keys: &mut Transaction<'s>,
        out: &mut Reply,
        tally: &mut Tally<'a>,
    ) -> Outcome<Option<(Wait, Begun)>> {
        let start = out.len();
        let now_ms = keys.now_ms();
        let (Run::Together(handler)
        | Run::Alone(handler)
        | Run::Exclusive(handler)
        | Run::Steady(handler)
        | Run::Script(handler)) = command.run
        else {
            return Err(Failure::text("ERR the command is not possible here"));
        };
        let Self { shared, registry, counters } = *self;
        // A command that was woken was already shown when it began to wait.
        if session.shown > 0 {
            session.shown -= 1;
        } else if session.woken_by.is_none() {
            monitored::show(shared, session, command, arguments, now_ms);
        }
        let mut context = Context { shared, registry, counters, session, keys, out, wait: None };
        let result = handler(&mut context, arguments);
        // No command waits in a transaction.
        let wait = context.wait.take().filter(|_| !session.is_in_transaction);
        command.track(shared, session, arguments);
        if !session.is_in_transaction {
            session.end_choice(command.name);
        }
        let begun = std::mem::replace(&mut tally.at, shared.clock.now());
        if let Err(failure) = &result
            && failure.is_of_length()
        {
            return Err(failure.clone());
        }
        let took = tally.at.saturating_sub(begun);
        tally.done.push(Done { call: (command, arguments), took, outcome: result.clone(), waits: wait.is_some() });
        let wait = wait.map(|wait| (wait, Begun { command: command.number, took }));
        match result {
            Err(failure) if failure.is_of_store() => return Err(failure),
            Err(failure) => {
                out.truncate(start);
                out.error(failure.message());
            }
            Ok(()) => {}
        }
        keys.check_size()?;
        if out.is_full() {
            return Err(Failure::REPLY_TOO_LONG);
        }
        // A confirmation is a message, which a client gets even if it wants no replies.
        let held_from = if is_of_subscriptions(command) { out.len() } else { start };
        Self::hold_back(session, out, held_from);
        Ok(wait)
    }

    /// Counts the commands of a run by how long the run took.
    fn time(&self, calls: &[Call<'_>], carried: usize, begun: Nanos) {
        let writes = calls.iter().any(|(command, _)| command.has(flags::WRITE));
        let durations = if writes { &self.counters.writes } else { &self.counters.reads };
        durations.add(carried as u64, self.shared.clock.now().saturating_sub(begun));
    }

    /// Counts the calls of a run that are not counted yet, and notes those that took long.
    fn count(&self, session: &Session, tally: &mut Tally<'_>, now_ms: u64) {
        for refused in tally.refused.drain(..) {
            self.counters.add_error(admission::refuse(self.shared, refused).message());
        }
        for Done { call: (command, arguments), took, outcome, waits } in tally.done.drain(..) {
            if !waits {
                command.count(self.shared, self.counters, session.spent, took, outcome.is_err(), now_ms);
            } else if session.spent.is_none()
                && let Some(counters) = self.counters.of_command(command.number)
            {
                counters.begin_wait(took);
            }
            self.measure(session, command, arguments, now_ms, took / 1000);
            // A failure of the whole run is counted with its replies.
            if let Err(failure) = outcome
                && !failure.is_of_store()
            {
                self.counters.add_error(failure.message());
            }
        }
    }

    /// Adds a command that took long to the slow log.
    fn measure(&self, session: &Session, command: &Command, arguments: Arguments<'_>, now_ms: u64, took_us: u64) {
        let config = &self.shared.config;
        // Secrets are not logged.
        if i64::try_from(took_us).is_ok_and(|took| took < config.slow_us())
            || config.slow_us() < 0
            || has_secrets(command)
        {
            return;
        }
        let slow = SlowCommand {
            id: 0,
            at_s: now_ms / 1000,
            took_us,
            arguments: kept(arguments.from(0)),
            address: session.client.address.to_string(),
            name: session.client.described().name,
        };
        self.shared.slow_log.add(slow, usize::try_from(config.number("slowlog-max-len")).unwrap_or(0));
    }

    /// Finishes a run of these calls, as [`Executor::finish`]. Commands that only read can do without what they would
    /// keep for later, such as an estimate.
    fn finish_run(
        &self,
        session: &mut Session,
        calls: &[Call<'_>],
        failed: Option<Failure>,
        keys: &mut Transaction<'_>,
    ) -> Outcome<Option<Failure>> {
        let only_reads = failed.is_none() && calls.iter().all(|(command, _)| command.has(flags::READONLY));
        let finished = self.finish(Some(session), failed, keys);
        if only_reads { Ok(None) } else { finished }
    }

    /// Writes what a client's run changed and tells others of it, unless the run failed. Returns why the changes are
    /// not durable, if they are not.
    ///
    /// # Errors
    /// The run's own; those of the database. Then nothing was written.
    pub fn finish(
        &self,
        by: Option<&mut Session>,
        failed: Option<Failure>,
        keys: &mut Transaction<'_>,
    ) -> Outcome<Option<Failure>> {
        let _traced = trace_span!(target: "forebay_trace", "commit").entered();
        let committed = failed.map_or(Ok(()), Err).and_then(|()| keys.commit());
        if committed.is_err() && keys.changes_libraries() {
            self.shared.scripts.doubt();
        }
        let doubt = committed?;
        self.counters.add(Count::Expired, keys.expired());
        let (hits, misses) = keys.looked_up();
        self.counters.add(Count::Hits, hits);
        self.counters.add(Count::Misses, misses);
        if !self.shared.watches.is_empty() {
            self.shared.watches.changed(&keys.seen());
            self.shared.watches.changed(keys.changed_watched());
        }
        let own = self.shared.tell_trackers(by.as_ref().map(|session| session.client.id), keys);
        by.into_iter().for_each(|session| session.pushed.extend(&own));
        self.shared.tell(keys);
        Ok(doubt)
    }

    fn fail(&self, out: &mut Reply, start: usize, failure: &Failure) {
        out.truncate(start);
        out.error(failure.message());
        self.counters.add_error(failure.message());
    }

    /// Removes a reply that the client does not want.
    fn hold_back(session: &mut Session, out: &mut Reply, start: usize) {
        match session.replies {
            Replies::On | Replies::SkipNext => {}
            Replies::Off => out.truncate(start),
            Replies::Skip => {
                out.truncate(start);
                session.replies = Replies::On;
            }
        }
    }

    fn flow(
        &self,
        session: &mut Session,
        flow: Flow,
        arguments: Arguments<'_>,
        out: &mut Reply,
        place: Place,
    ) -> Result<(), Stopped> {
        let failed = |text| Err(Stopped::Failed(Failure::text(text)));
        match flow {
            Flow::Multi if session.queue.is_some() => failed("ERR MULTI calls can not be nested"),
            Flow::Multi => {
                session.queue = Some(Queue::default());
                out.ok();
                Ok(())
            }
            Flow::Discard if session.queue.is_none() => failed("ERR DISCARD without MULTI"),
            Flow::Discard => {
                session.queue = None;
                self.unwatch(session);
                out.ok();
                Ok(())
            }
            Flow::Exec => self.exec(session, out, place),
            Flow::Migrate => self.migrate(session, arguments, out),
            Flow::Watch if session.queue.is_some() => failed("ERR WATCH inside MULTI is not allowed"),
            Flow::Watch => {
                self.watch(session, arguments)?;
                out.ok();
                Ok(())
            }
            Flow::Reset => {
                self.reset(session, out);
                out.simple("RESET");
                Ok(())
            }
            Flow::Quit => {
                session.is_closing = true;
                out.ok();
                Ok(())
            }
        }
    }

    /// Returns the connection to its first state.
    fn reset(&self, session: &mut Session, out: &mut Reply) {
        session.queue = None;
        self.unwatch(session);
        self.unsubscribe(session);
        self.shared.monitors.remove(session.client.id);
        self.shared.tracking.end(session.client.id);
        session.tracked = None;
        session.database = 0;
        // The reply to RESET itself may be the one that is skipped.
        if session.replies == Replies::Off {
            session.replies = Replies::On;
        }
        session.log_in(self.shared.users.anonymous());
        out.set_protocol(Protocol::Two);
        session.client.describe(|described| {
            described.name = Bytes::new();
            described.protocol = 2;
            described.database = 0;
            described.is_kept = false;
            described.is_monitor = false;
            described.subscriptions = (0, 0, 0);
            described.tracking = DescribedTracking::default();
        });
    }

    /// Forgets everything about a connection that has ended.
    pub fn forget(&self, session: &mut Session) {
        self.unwatch(session);
        self.unsubscribe(session);
        self.shared.monitors.remove(session.client.id);
        self.shared.tracking.end(session.client.id);
        if let Some(waiter) = session.blocked.take() {
            if let Some(claim) = waiter.claim() {
                claim.end();
            }
            self.shared.waiting.remove(&waiter);
        }
        self.shared.clients.remove(session.client.id);
    }

    fn unsubscribe(&self, session: &mut Session) {
        for topic in [Topic::Channel, Topic::Pattern, Topic::Shard] {
            for name in std::mem::take(session.subscriptions.of(topic)) {
                self.shared.channels.unsubscribe(topic, &name, session.client.id);
            }
        }
    }

    /// Removes all that the connection's next transaction depends on.
    fn unwatch(&self, session: &mut Session) {
        session.unwatch(&self.shared.watches);
    }
}

/// Whether the arguments of a command may contain secrets.
fn has_secrets(command: &Command) -> bool {
    command.has(flags::NO_AUTH) || matches!(command.name, "config|set" | "acl|setuser")
}

/// Whether this is a line of HTTP. A page in a browser on this machine can send such a request, whose body holds commands.
fn is_http(arguments: Arguments<'_>) -> bool {
    arguments.is(0, "POST") || arguments.is(0, "HOST:")
}

/// Whether a subscriber that speaks RESP2 cannot tell this command's reply from messages.
fn is_for_no_subscriber(command: &Command) -> bool {
    !matches!(command.run, Run::Flow(Flow::Reset | Flow::Quit))
        && !is_of_subscriptions(command)
        && command.name != "ping"
}

/// Whether a command changes what the client has subscribed to.
fn is_of_subscriptions(command: &Command) -> bool {
    command.name.ends_with("subscribe")
}
