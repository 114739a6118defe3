//! Histories of operations, and whether there is an order that explains them.
//!
//! Linearizability is local: a history is linearizable if the operations of each key are. A key's state
//! is its value; the search (after Wing and Gong, with Lowe's memory of what was tried) looks for an
//! order that agrees with real time and with every result.

use forebay_env::HashSet;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use forebay_tree::{Error, TreeClient};

pub type Value = Option<Vec<u8>>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Get,
    Put(Vec<u8>),
    Insert(Vec<u8>),
    Update(Vec<u8>),
    Swap(Vec<u8>, Vec<u8>),
    Delete,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Value(Value),
    Done(bool),
    /// The client died meanwhile: the action may have been done, may be done later, or not at all.
    Unknown,
}

#[derive(Debug, Clone)]
pub struct Event {
    pub key: Vec<u8>,
    pub action: Action,
    pub outcome: Outcome,
    pub begin: u64,
    pub end: u64,
}

/// Events of several clients.
#[derive(Debug, Clone, Default)]
pub struct History {
    events: Arc<Mutex<Vec<Event>>>,
    clock: Arc<AtomicU64>,
}

impl History {
    pub fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    pub fn push(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }

    /// Runs an action and records it.
    pub fn run(&self, client: &mut TreeClient, key: &[u8], action: Action) -> Result<(), Error> {
        let begin = self.now();
        let result = perform(client, key, &action);
        let end = if result.is_ok() { self.now() } else { u64::MAX };
        let outcome = result.clone().unwrap_or(Outcome::Unknown);
        self.push(Event { key: key.to_vec(), action, outcome, begin, end });
        result.map(drop)
    }

    /// Records what a scan found: a get of each key that it should have seen.
    pub fn scanned(&self, keys: &[Vec<u8>], found: &[(Vec<u8>, Vec<u8>)], begin: u64) {
        let end = self.now();
        assert!(found.is_sorted_by(|a, b| a.0 < b.0), "a scan out of order: {found:?}");
        let found: BTreeMap<_, _> = found.iter().cloned().collect();
        for key in keys {
            let outcome = Outcome::Value(found.get(key).cloned());
            self.push(Event { key: key.clone(), action: Action::Get, outcome, begin, end });
        }
    }

    /// The key whose events no order explains, if there is one.
    pub fn unexplained(&self) -> Option<String> {
        let mut by_key: BTreeMap<Vec<u8>, Vec<Event>> = BTreeMap::new();
        for event in self.events.lock().unwrap().iter() {
            by_key.entry(event.key.clone()).or_default().push(event.clone());
        }
        by_key.into_iter().find_map(|(key, mut events)| {
            events.sort_by_key(|event| event.begin);
            (!explained(&events)).then(|| format!("no order explains the events of {key:?}: {events:#?}"))
        })
    }
}

pub fn perform(client: &mut TreeClient, key: &[u8], action: &Action) -> Result<Outcome, Error> {
    Ok(match action {
        Action::Get => Outcome::Value(client.get(key)?),
        Action::Put(value) => Outcome::Done(client.put(key, value)?),
        Action::Insert(value) => Outcome::Done(client.insert(key, value)?),
        Action::Update(value) => Outcome::Done(client.update(key, value)?),
        Action::Swap(expected, new) => Outcome::Done(client.compare_and_set(key, expected, new)?),
        Action::Delete => Outcome::Done(client.delete(key)?),
    })
}

/// Applies an action to a state. Returns the new state and the outcome.
pub fn apply(action: &Action, state: &Value) -> (Value, Outcome) {
    let was = state.is_some();
    match action {
        Action::Get => (state.clone(), Outcome::Value(state.clone())),
        Action::Put(value) => (Some(value.clone()), Outcome::Done(was)),
        Action::Insert(value) => (if was { state.clone() } else { Some(value.clone()) }, Outcome::Done(!was)),
        Action::Update(value) => (was.then(|| value.clone()), Outcome::Done(was)),
        Action::Swap(expected, new) if state.as_ref() == Some(expected) => (Some(new.clone()), Outcome::Done(true)),
        Action::Swap(..) => (state.clone(), Outcome::Done(false)),
        Action::Delete => (None, Outcome::Done(was)),
    }
}

fn explained(events: &[Event]) -> bool {
    let words = events.len().div_ceil(64);
    let mut tried = HashSet::default();
    search(events, &mut vec![0u64; words], &None, &mut tried)
}

fn search(events: &[Event], done: &mut Vec<u64>, state: &Value, tried: &mut HashSet<(Vec<u64>, Value)>) -> bool {
    let is_done = |done: &[u64], at: usize| done[at / 64] >> (at % 64) & 1 == 1;
    let open = || (0..events.len()).filter(|&at| !is_done(done, at));
    if open().all(|at| events[at].outcome == Outcome::Unknown) {
        return true;
    }
    if !tried.insert((done.clone(), state.clone())) {
        return false;
    }
    // The next event began before any open one ended.
    let first_end = open().map(|at| events[at].end).min().unwrap_or(u64::MAX);
    let candidates: Vec<usize> = open().filter(|&at| events[at].begin <= first_end).collect();
    for at in candidates {
        let (next, outcome) = apply(&events[at].action, state);
        if outcome == events[at].outcome || events[at].outcome == Outcome::Unknown {
            done[at / 64] |= 1 << (at % 64);
            if search(events, done, &next, tried) {
                return true;
            }
            done[at / 64] &= !(1 << (at % 64));
        }
    }
    false
}
