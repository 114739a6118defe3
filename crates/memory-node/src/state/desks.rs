//! The schedulers of all tenants, and the letters that wait for sessions: see [`scheduling`](super::scheduling).

use super::resources::TenantId;
use forebay_env::{HashMap, Nanos};
use forebay_offload::{Letter, Life, Load, Message, Party, Policy, Scheduler, Term};
use forebay_proto::SessionId;
use std::collections::{BTreeMap, VecDeque};

/// Letters that wait for one session; the oldest go first. A session that misses one finds out by its own time
/// limits.
const MOST_WAITING: usize = 256;
/// Most letters in a reply: this many fit into a caller's buffer.
const MOST_AT_ONCE: usize = 64;

/// The scheduler and the letters of one tenant.
#[derive(Debug)]
struct Desk {
    scheduler: Scheduler,
    letters: BTreeMap<SessionId, VecDeque<Message>>,
}

/// The desks of all tenants.
#[derive(Debug)]
pub struct Desks {
    of: HashMap<TenantId, Desk>,
    policy: Policy,
    /// The term in which this node schedules; without one it does not schedule.
    term: Option<Term>,
    /// How busy the memory nodes' own threads are, including this node's.
    near: BTreeMap<Life, Load>,
}

impl Desk {
    fn new(term: Term, policy: Policy) -> Self {
        Self { scheduler: Scheduler::new(term, policy), letters: BTreeMap::new() }
    }

    /// Moves the scheduler's messages to the sessions' queues.
    fn sort(&mut self) {
        for (Party(session), said) in self.scheduler.take_messages() {
            let waiting = self.letters.entry(SessionId(session)).or_default();
            if waiting.len() >= MOST_WAITING {
                waiting.pop_front();
            }
            waiting.push_back(said);
        }
    }

    fn is_idle(&self) -> bool {
        self.scheduler.executors() + self.scheduler.jobs() + self.letters.len() == 0
    }
}

impl Desks {
    /// Makes desks that know nobody yet.
    pub fn new(term: Option<Term>, policy: Policy) -> Self {
        Self { of: HashMap::default(), policy, term, near: BTreeMap::new() }
    }

    /// The term in which this node schedules.
    pub fn term(&self) -> Option<Term> {
        self.term
    }

    /// Notes how busy a memory node's own threads are, or that this is unknown.
    pub fn know(&mut self, node: Life, load: Option<Load>) {
        match load {
            Some(load) => drop(self.near.insert(node, load)),
            None => drop(self.near.remove(&node)),
        }
    }

    /// Gives the tenant's scheduler what a session says.
    pub fn receive(&mut self, now: Nanos, tenant: TenantId, from: SessionId, letters: &[Letter]) {
        let Self { of, policy, term: Some(term), near } = self else { return };
        let desk = of.entry(tenant).or_insert_with(|| Desk::new(*term, *policy));
        desk.scheduler.near(near);
        desk.scheduler.receive(now, Party(from.0), letters);
        desk.sort();
    }

    /// Takes letters that wait for a session, encoded.
    pub fn take(&mut self, tenant: TenantId, session: SessionId) -> Vec<u8> {
        let mut out = Vec::new();
        let Some(desk) = self.of.get_mut(&tenant) else { return out };
        if let Some(waiting) = desk.letters.get_mut(&session) {
            for said in waiting.drain(..waiting.len().min(MOST_AT_ONCE)) {
                Letter::Message(said).encode(&mut out);
            }
            if waiting.is_empty() {
                desk.letters.remove(&session);
            }
        }
        out
    }

    /// Lets time pass.
    pub fn tick(&mut self, now: Nanos) {
        for desk in self.of.values_mut() {
            desk.scheduler.tick(now);
            desk.sort();
        }
        self.of.retain(|_, desk| !desk.is_idle());
    }

    /// Handles the end of a session: what it ran or wanted is placed anew or dropped.
    pub fn left(&mut self, now: Nanos, tenant: TenantId, session: SessionId) {
        if let Some(desk) = self.of.get_mut(&tenant) {
            desk.scheduler.left(now, Party(session.0));
            desk.sort();
            desk.letters.remove(&session);
        }
    }
}
