//! Clients that wait in commands that block.
//!
//! ```text
//!   a command finds nothing ─► a waiter is left at each of its keys, while they are locked
//!   a key is changed ────────► whoever changed it carries the waiters' commands out again for it, the oldest first
//!   time is over, or CLIENT UNBLOCK, or the connection ends ─► the waiter has ended
//! ```
//!
//! Exactly one of these ends a waiter: it claims it first ([`Waiter::claim`]), and nobody claims one that has ended. As
//! the waiter is left while the keys are locked, no change is missed.

use crate::keyspace::header::Kind;
use crate::keyspace::transaction::Name;
use crate::protocol::reply::Protocol;
use crate::state::clients::Client;
use bytes::Bytes;
use forebay_env::Nanos;
use forebay_env::sync::{Mutex, MutexGuard, lock};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    /// The reply when time is over.
    pub nothing: Vec<u8>,
    /// When time is over.
    pub until: Option<Nanos>,
    /// Whether it has ended.
    has_ended: Mutex<bool>,
    names: Mutex<Vec<Name>>,
}

/// The right to end a waiter.
#[derive(Debug)]
pub struct Claim<'a>(MutexGuard<'a, bool>);

impl Claim<'_> {
    /// The waiter has ended.
    pub fn end(mut self) {
        *self.0 = true;
    }
}

impl Waiter {
    /// A waiter that is nowhere yet.
    #[must_use]
    pub fn new(
        client: Arc<Client>,
        database: usize,
        protocol: Protocol,
        request: Vec<Bytes>,
        kind: Option<Kind>,
        nothing: Vec<u8>,
        until: Option<Nanos>,
    ) -> Self {
        let (has_ended, names) = (Mutex::new(false), Mutex::new(Vec::new()));
        Self { client, database, protocol, request, kind, nothing, until, has_ended, names }
    }

    /// Whether it waits for a script, which is carried out whether somebody waits or not.
    #[must_use]
    pub const fn is_of_script(&self) -> bool {
        self.request.is_empty()
    }

    /// As [`Waiter::claim`], for who has keys locked: `None` also while somebody else has the claim, who may wait for
    /// keys.
    pub fn try_claim(&self) -> Option<Claim<'_>> {
        let ended = self.has_ended.try_lock().ok()?;
        (!*ended).then_some(Claim(ended))
    }

    /// The right to end it; `None` when it has ended. Keeps others from ending it meanwhile. The caller has no key
    /// locked.
    pub fn claim(&self) -> Option<Claim<'_>> {
        let ended = lock(&self.has_ended);
        (!*ended).then_some(Claim(ended))
    }
}

/// All clients that wait.
#[derive(Debug, Default)]
pub struct Waiting {
    by_name: Mutex<BTreeMap<Name, VecDeque<Arc<Waiter>>>>,
    by_client: Mutex<BTreeMap<u64, Arc<Waiter>>>,
    count: AtomicUsize,
}

impl Waiting {
    /// Number of clients that wait.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Leaves a waiter at keys, which the caller has locked.
    pub fn add(&self, waiter: &Arc<Waiter>, names: Vec<Name>) {
        let mut by_name = lock(&self.by_name);
        for name in &names {
            by_name.entry(name.clone()).or_default().push_back(Arc::clone(waiter));
        }
        *lock(&waiter.names) = names;
        lock(&self.by_client).insert(waiter.client.id, Arc::clone(waiter));
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a waiter away.
    pub fn remove(&self, waiter: &Arc<Waiter>) {
        let mut by_name = lock(&self.by_name);
        for name in lock(&waiter.names).drain(..) {
            if let Some(waiters) = by_name.get_mut(&name) {
                waiters.retain(|other| !Arc::ptr_eq(other, waiter));
                if waiters.is_empty() {
                    by_name.remove(&name);
                }
            }
        }
        if lock(&self.by_client).remove(&waiter.client.id).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether there is a waiter at a key.
    #[must_use]
    pub fn is_at(&self, name: &Name) -> bool {
        lock(&self.by_name).contains_key(name)
    }

    /// The waiters at a key, the oldest first.
    pub fn at(&self, name: &Name) -> Vec<Arc<Waiter>> {
        lock(&self.by_name).get(name).map(|waiters| waiters.iter().cloned().collect()).unwrap_or_default()
    }

    /// The names at which somebody waits.
    pub fn names(&self) -> Vec<Name> {
        lock(&self.by_name).keys().cloned().collect()
    }

    /// The waiter of a client.
    pub fn of_client(&self, client: u64) -> Option<Arc<Waiter>> {
        lock(&self.by_client).get(&client).cloned()
    }
}
