//! Sessions: which exist, until when, and the epoch from which they read.

use super::refusal::Refusal;
use super::resources::TenantId;
use forebay_env::HashMap;
use forebay_env::Nanos;
use forebay_proto::{SessionId, StoreId, Text};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Maximum number of sessions of a node.
pub const MAX_SESSIONS: usize = 1024;
/// Maximum number of stores that a session has open.
const MAX_OPEN_STORES: usize = 1024;

/// What a session has declared about its database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// The database's name; empty when it has none.
    pub database: Text,
    /// The weight of its share.
    pub weight: u32,
}

/// A session.
#[derive(Debug)]
pub struct Session {
    peer: u64,
    /// The tenant that it belongs to.
    pub tenant: TenantId,
    /// The name that it gave for itself.
    pub name: Text,
    deadline: Nanos,
    /// Reading epoch of the oldest read.
    reading_epoch: u64,
    opened: BTreeSet<StoreId>,
    /// Its database, if it has declared one.
    declared: Option<Declared>,
}

impl Session {
    /// The epochs whose freed memory it may still read.
    pub fn reads(&self) -> Range<u64> {
        self.reading_epoch..u64::MAX
    }
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

    /// The number of sessions.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// All of them.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.all.iter().map(|(&id, session)| (id, session))
    }

    /// Opens the session of a link.
    pub fn open(&mut self, peer: u64, tenant: TenantId, name: Text, deadline: Nanos) -> Result<SessionId, Refusal> {
        if self.by_peer.contains_key(&peer) {
            return Err(Refusal::SecondSession);
        }
        if self.all.len() >= MAX_SESSIONS {
            return Err(Refusal::TooMany { what: "sessions of the node", most: MAX_SESSIONS });
        }
        let id = SessionId(self.next);
        self.next += 1;
        self.by_peer.insert(peer, id);
        let (reading_epoch, opened) = (u64::MAX, BTreeSet::new());
        let session = Session { peer, tenant, name, deadline, reading_epoch, opened, declared: None };
        self.all.insert(id, session);
        Ok(id)
    }

    /// Checks that the session belongs to the link, and extends it to `deadline`.
    pub fn touch(&mut self, peer: u64, id: SessionId, deadline: Nanos) -> Result<(), Refusal> {
        match self.all.get_mut(&id) {
            Some(session) if session.peer == peer => {
                session.deadline = session.deadline.max(deadline);
                Ok(())
            }
            _ => Err(Refusal::NoSession(id)),
        }
    }

    /// Sets the epoch in which the session's oldest read began. Returns the epochs that it passes by
    /// this.
    pub fn announce(&mut self, id: SessionId, reading_epoch: u64) -> Range<u64> {
        let session = self.all.get_mut(&id);
        session.map_or(0..0, |session| std::mem::replace(&mut session.reading_epoch, reading_epoch)..reading_epoch)
    }

    /// The oldest epoch in which the session may read; `u64::MAX` when it reads nothing or has ended.
    pub fn reads_from(&self, id: SessionId) -> u64 {
        self.all.get(&id).map_or(u64::MAX, |session| session.reading_epoch)
    }

    /// Whether the session is open.
    pub fn contains(&self, id: SessionId) -> bool {
        self.all.contains_key(&id)
    }

    /// The oldest reading epoch that a session of the tenant announced; `u64::MAX` when none reads.
    pub fn oldest_reading_epoch(&self, tenant: TenantId) -> u64 {
        let mine = self.all.values().filter(|session| session.tenant == tenant);
        mine.map(|session| session.reading_epoch).min().unwrap_or(u64::MAX)
    }

    /// Notes the session's database.
    pub fn declare(&mut self, id: SessionId, declared: Declared) {
        if let Some(session) = self.all.get_mut(&id) {
            session.declared = Some(declared);
        }
    }

    /// The session's database, if it has declared one.
    pub fn of_database(&self, id: SessionId) -> Option<&Declared> {
        self.all.get(&id)?.declared.as_ref()
    }

    /// The sessions of a tenant that have declared a database, the oldest first.
    pub fn declared(&self, tenant: TenantId) -> impl Iterator<Item = (SessionId, &Declared)> {
        let mine = self.all.iter().filter(move |(_, session)| session.tenant == tenant);
        mine.filter_map(|(&id, session)| Some((id, session.declared.as_ref()?)))
    }

    /// The name that the session gave for itself.
    pub fn name(&self, id: SessionId) -> Text {
        self.all.get(&id).map(|session| session.name.clone()).unwrap_or_default()
    }

    /// The session of a link.
    pub fn of_peer(&self, peer: u64) -> Option<SessionId> {
        self.by_peer.get(&peer).copied()
    }

    /// Remembers that the session opened a store.
    pub fn opened(&mut self, id: SessionId, store: StoreId) -> Result<(), Refusal> {
        let session = self.all.get_mut(&id).ok_or(Refusal::NoSession(id))?;
        if session.opened.len() >= MAX_OPEN_STORES && !session.opened.contains(&store) {
            return Err(Refusal::TooMany { what: "open stores of the session", most: MAX_OPEN_STORES });
        }
        session.opened.insert(store);
        Ok(())
    }

    /// Whether the session opened the store.
    pub fn has_opened(&self, id: SessionId, store: StoreId) -> bool {
        self.all.get(&id).is_some_and(|session| session.opened.contains(&store))
    }

    /// Forgets a store that no longer exists.
    pub fn forget_store(&mut self, store: StoreId) {
        for session in self.all.values_mut() {
            session.opened.remove(&store);
        }
    }

    /// Extends every session.
    pub fn postpone(&mut self, by: Nanos) {
        for session in self.all.values_mut() {
            session.deadline = session.deadline.saturating_add(by);
        }
    }

    /// Sessions whose lease has run out.
    pub fn expired(&self, now: Nanos) -> Vec<SessionId> {
        self.all.iter().filter(|(_, session)| session.deadline <= now).map(|(&id, _)| id).collect()
    }

    /// Forgets a session.
    pub fn remove(&mut self, id: SessionId) -> Option<Session> {
        let session = self.all.remove(&id)?;
        self.by_peer.remove(&session.peer);
        Some(session)
    }
}
