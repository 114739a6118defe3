//! Clients that wait in commands that block.
//!
//! ```text
//!   a command finds nothing ─► a waiter is left at each of its keys, while they are locked
//!   a key is changed ────────► its thread carries the waiters' commands out again for the key, the oldest first
//!   time is over, or CLIENT UNBLOCK, or the connection ends ─► the waiter has ended
//! ```
//!
//! Exactly one of these events ends a waiter: the thread claims the waiter first ([`Waiter::claim`]), and a waiter that
//! has ended cannot be claimed. Because the waiter is left while the keys are locked, no change is missed. A thread that
//! carries a waiter's command out again has the claim meanwhile. Who wants to end the wait then asks for it
//! ([`Waiter::ask`]), and that thread does it if the command finds nothing.
//!
//! Many clients may wait at a key, and most changes serve few of them. So the serving thread takes waiters from a
//! [`Line`] one by one, and passes over those that cannot find anything.

use crate::keyspace::header::Kind;
use crate::keyspace::transaction::Name;
use crate::protocol::reply::Protocol;
use crate::state::clients::Client;
use crate::state::counters::Counters;
use bytes::Bytes;
use forebay_env::Nanos;
use forebay_env::sync::{Mutex, MutexGuard, lock};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A call that has begun and waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    /// The number of its command.
    pub command: usize,
    /// How long it took until it waited, nanoseconds.
    pub took: Nanos,
}

/// How a wait ends before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Early {
    /// As when the time runs out.
    TimeOut,
    /// With an error.
    Error,
}

/// Why a waiter is not claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoClaim {
    /// It has ended.
    Ended,
    /// Another thread has the claim.
    Elsewhere,
}

/// A client that waits.
#[derive(Debug)]
pub struct Waiter {
    /// The client.
    pub client: Arc<Client>,
    /// The database that it uses.
    pub database: usize,
    /// The version of the protocol.
    pub protocol: Protocol,
    /// Its request; empty when the thread of scripts has it.
    pub request: Vec<Bytes>,
    /// The type of keys that it waits for; `None` when it waits for any change.
    pub kind: Option<Kind>,
    /// The reply if the time runs out; empty when the client wants none.
    pub nothing: Vec<u8>,
    /// When the time runs out.
    pub until: Option<Nanos>,
    /// Its call; `None` when the thread of scripts has it.
    pub begun: Option<Begun>,
    /// Whether it has ended.
    has_ended: Mutex<bool>,
    /// How somebody has asked for its end.
    asked: Mutex<Option<Early>>,
    left: Mutex<Left>,
}

/// Where a waiter was left.
#[derive(Debug, Default)]
struct Left {
    /// Its place in the order in which waiters came.
    turn: u64,
    names: Vec<Name>,
}

/// The right to end a waiter.
#[derive(Debug)]
pub struct Claim<'a>(MutexGuard<'a, bool>);

impl Claim<'_> {
    /// Ends the waiter.
    pub fn end(mut self) {
        *self.0 = true;
    }
}

impl Waiter {
    /// Makes a waiter for the thread of scripts.
    #[must_use]
    pub fn new(client: Arc<Client>, database: usize, protocol: Protocol) -> Self {
        Self {
            client,
            database,
            protocol,
            request: Vec::new(),
            kind: None,
            nothing: Vec::new(),
            until: None,
            begun: None,
            has_ended: Mutex::new(false),
            asked: Mutex::new(None),
            left: Mutex::default(),
        }
    }

    /// Turns it into a waiter for keys that is at no key yet, with its request, the type of the keys, the reply if the
    /// time runs out, and when that is.
    #[must_use]
    pub fn for_keys(
        self,
        begun: Begun,
        request: Vec<Bytes>,
        kind: Option<Kind>,
        nothing: Vec<u8>,
        until: Option<Nanos>,
    ) -> Self {
        Self { begun: Some(begun), request, kind, nothing, until, ..self }
    }

    /// Whether its client wants the reply. A wait has a reply for its end, unless the client wants none.
    #[must_use]
    pub const fn wants_reply(&self) -> bool {
        !self.nothing.is_empty()
    }

    /// Counts the call as failed, because somebody has ended the wait.
    pub fn fail(&self, counters: &Counters) {
        if let Some(Begun { command, took }) = self.begun
            && let Some(counters) = counters.of_command(command)
        {
            counters.end_wait(took, 0, true);
        }
    }

    /// Whether it waits for a script, which is carried out even if nobody waits.
    #[must_use]
    pub const fn is_of_script(&self) -> bool {
        self.request.is_empty()
    }

    /// As [`Waiter::claim`], for a caller that has keys locked. It does not wait for another thread that has the claim,
    /// because that thread may wait for keys.
    ///
    /// # Errors
    /// Why there is no claim.
    pub fn try_claim(&self) -> Result<Claim<'_>, NoClaim> {
        let ended = self.has_ended.try_lock().map_err(|_| NoClaim::Elsewhere)?;
        if *ended { Err(NoClaim::Ended) } else { Ok(Claim(ended)) }
    }

    /// Asks for the end of the wait. Whoever gives a claim up looks at this afterwards, so who asks before it tries to
    /// claim the waiter does not ask in vain.
    pub fn ask(&self, early: Early) {
        *lock(&self.asked) = Some(early);
    }

    /// How somebody has asked for the end of the wait.
    pub fn asked(&self) -> Option<Early> {
        *lock(&self.asked)
    }

    /// Takes the right to end the waiter; `None` when it has ended. Keeps others from ending it meanwhile. The caller
    /// has no key locked.
    pub fn claim(&self) -> Option<Claim<'_>> {
        let ended = lock(&self.has_ended);
        (!*ended).then_some(Claim(ended))
    }
}

/// Who waits at a key, by the type that they wait for and by their turns.
type Queues = BTreeMap<Option<Kind>, BTreeMap<u64, Arc<Waiter>>>;

/// Who waits where.
#[derive(Debug, Default)]
struct Places {
    queues: BTreeMap<Name, Queues>,
    /// The turn of the next waiter.
    next_turn: u64,
}

/// All clients that wait.
#[derive(Debug, Default)]
pub struct Waiting {
    places: Mutex<Places>,
    by_client: Mutex<BTreeMap<u64, Arc<Waiter>>>,
    count: AtomicUsize,
}

impl Waiting {
    /// Number of clients that wait.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the number of clients that do not wait forever.
    pub fn with_time(&self) -> usize {
        lock(&self.by_client).values().filter(|waiter| waiter.until.is_some()).count()
    }

    /// Leaves a waiter at keys, which the caller has locked.
    pub fn add(&self, waiter: &Arc<Waiter>, names: Vec<Name>) {
        let mut places = lock(&self.places);
        let turn = places.next_turn;
        places.next_turn = turn.saturating_add(1);
        for name in &names {
            let queue = places.queues.entry(name.clone()).or_default().entry(waiter.kind).or_default();
            queue.insert(turn, Arc::clone(waiter));
        }
        *lock(&waiter.left) = Left { turn, names };
        lock(&self.by_client).insert(waiter.client.id, Arc::clone(waiter));
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a waiter.
    pub fn remove(&self, waiter: &Arc<Waiter>) {
        let mut places = lock(&self.places);
        let Left { turn, names } = std::mem::take(&mut *lock(&waiter.left));
        for name in names {
            let Some(queues) = places.queues.get_mut(&name) else { continue };
            if let Some(queue) = queues.get_mut(&waiter.kind) {
                queue.remove(&turn);
                if queue.is_empty() {
                    queues.remove(&waiter.kind);
                }
            }
            if queues.is_empty() {
                places.queues.remove(&name);
            }
        }
        if lock(&self.by_client).remove(&waiter.client.id).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether there is a waiter at a key.
    #[must_use]
    pub fn is_at(&self, name: &Name) -> bool {
        lock(&self.places).queues.contains_key(name)
    }

    /// The waiters at a key, the oldest first.
    #[must_use]
    pub fn line<'w>(&'w self, name: &'w Name) -> Line<'w> {
        let turns = 0..lock(&self.places).next_turn;
        Line { waiting: self, name, turns, passed: Vec::new() }
    }

    /// The names at which clients wait.
    pub fn names(&self) -> Vec<Name> {
        lock(&self.places).queues.keys().cloned().collect()
    }

    /// The waiter of a client.
    pub fn of_client(&self, client: u64) -> Option<Arc<Waiter>> {
        lock(&self.by_client).get(&client).cloned()
    }
}

/// The waiters at a key, the oldest first, without waiters that come later: these have seen the key as it is now.
#[derive(Debug)]
pub struct Line<'w> {
    waiting: &'w Waiting,
    name: &'w Name,
    /// The turns of the remaining waiters.
    turns: Range<u64>,
    passed: Vec<Option<Kind>>,
}

impl Line<'_> {
    /// Passes over the waiters for this type.
    pub fn pass(&mut self, kind: Kind) {
        self.passed.push(Some(kind));
    }
}

impl Iterator for Line<'_> {
    type Item = Arc<Waiter>;

    fn next(&mut self) -> Option<Arc<Waiter>> {
        let places = lock(&self.waiting.places);
        let queues = places.queues.get(self.name)?.iter().filter(|(kind, _)| !self.passed.contains(kind));
        let firsts = queues.filter_map(|(_, queue)| queue.range(self.turns.clone()).next());
        let (turn, waiter) = firsts.min_by_key(|(turn, _)| **turn)?;
        self.turns.start = turn.saturating_add(1);
        Some(Arc::clone(waiter))
    }
}
