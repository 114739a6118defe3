//! Sessions: who is there, until when, and from when they read.

use super::Refusal;
use forebay_env::HashMap;
use forebay_env::Nanos;
use forebay_proto::{SessionId, StoreId, Text};
use std::collections::{BTreeMap, BTreeSet};

/// Most sessions of a node.
pub const MAX_SESSIONS: usize = 1024;
/// Most stores that a session has open.
const MAX_OPEN_STORES: usize = 1024;

#[derive(Debug)]
struct Session {
    peer: u64,
    tenant: Text,
    name: Text,
    deadline: Nanos,
    /// Reading epoch of the oldest read.
    reading_epoch: u64,
    opened: BTreeSet<StoreId>,
}

/// All sessions of a node.
#[derive(Debug)]
pub struct Sessions {
    all: BTreeMap<SessionId, Session>,
    by_peer: HashMap<u64, SessionId>,
    next: u64,
}

impl Sessions {
    /// No sessions.
    pub fn new() -> Self {
        Self { all: BTreeMap::new(), by_peer: HashMap::default(), next: 1 }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Opens the session of a link.
    pub fn open(&mut self, peer: u64, tenant: Text, name: Text, deadline: Nanos) -> Result<SessionId, Refusal> {
        if self.by_peer.contains_key(&peer) {
            return Err(Refusal::SecondSession);
        }
        if self.all.len() >= MAX_SESSIONS {
            return Err(Refusal::TooMany("sessions"));
        }
        let id = SessionId(self.next);
        self.next += 1;
        self.by_peer.insert(peer, id);
        let session = Session { peer, tenant, name, deadline, reading_epoch: u64::MAX, opened: BTreeSet::new() };
        self.all.insert(id, session);
        Ok(id)
    }

    /// Checks that the session is the link's, and keeps it until `deadline`.
    pub fn touch(&mut self, peer: u64, id: SessionId, deadline: Nanos) -> Result<(), Refusal> {
        match self.all.get_mut(&id) {
            Some(session) if session.peer == peer => {
                session.deadline = session.deadline.max(deadline);
                Ok(())
            }
            _ => Err(Refusal::NoSession(id)),
        }
    }

    /// Sets where the session's oldest read began.
    pub fn announce(&mut self, id: SessionId, reading_epoch: u64) {
        if let Some(session) = self.all.get_mut(&id) {
            session.reading_epoch = reading_epoch;
        }
    }

    /// Whether the session may still read what was freed in `epoch`.
    pub fn may_read(&self, id: SessionId, epoch: u64) -> bool {
        self.all.get(&id).is_some_and(|session| session.reading_epoch <= epoch)
    }

    /// Whether the session is open.
    pub fn contains(&self, id: SessionId) -> bool {
        self.all.contains_key(&id)
    }

    /// The oldest reading epoch that a session announced; `u64::MAX` when none reads.
    pub fn oldest_reading_epoch(&self) -> u64 {
        self.all.values().map(|session| session.reading_epoch).min().unwrap_or(u64::MAX)
    }

    /// The session of a link.
    pub fn of_peer(&self, peer: u64) -> Option<SessionId> {
        self.by_peer.get(&peer).copied()
    }

    /// Whose session it is.
    pub fn tenant(&self, id: SessionId) -> Option<&Text> {
        self.all.get(&id).map(|session| &session.tenant)
    }

    /// Remembers that the session opened a store.
    pub fn opened(&mut self, id: SessionId, store: StoreId) -> Result<(), Refusal> {
        let session = self.all.get_mut(&id).ok_or(Refusal::NoSession(id))?;
        if session.opened.len() >= MAX_OPEN_STORES && !session.opened.contains(&store) {
            return Err(Refusal::TooMany("open stores in a session"));
        }
        session.opened.insert(store);
        Ok(())
    }

    /// Whether the session opened the store.
    pub fn has_opened(&self, id: SessionId, store: StoreId) -> bool {
        self.all.get(&id).is_some_and(|session| session.opened.contains(&store))
    }

    /// A store is no more.
    pub fn forget_store(&mut self, store: StoreId) {
        for session in self.all.values_mut() {
            session.opened.remove(&store);
        }
    }

    /// Lets every session live longer.
    pub fn postpone(&mut self, by: Nanos) {
        for session in self.all.values_mut() {
            session.deadline = session.deadline.saturating_add(by);
        }
    }

    /// Sessions whose lease has run out.
    pub fn expired(&self, now: Nanos) -> Vec<SessionId> {
        self.all.iter().filter(|(_, session)| session.deadline <= now).map(|(&id, _)| id).collect()
    }

    /// Forgets a session. Returns what it called itself.
    pub fn remove(&mut self, id: SessionId) -> Option<Text> {
        let session = self.all.remove(&id)?;
        self.by_peer.remove(&session.peer);
        Some(session.name)
    }
}
