//! Caches of clients: who is told that a key has changed.
//!
//! ```text
//!   a client reads a key ────────► the table: key ─► who has read it        `tracking-table-max-keys` bounds it
//!   a client asks for prefixes ──► prefix ─► who is told of its keys        (BCAST)
//!   a key has changed ───────────► all of these are told, and the table forgets the key
//! ```
//!
//! A command that reads a key has it locked until the table has the read, and a command that changes it has it locked
//! until the change is in the store. So no change after a read is missed. Keys have the same name in all databases, as
//! in Redis.

use crate::protocol::reply::{Protocol, Reply};
use crate::state::clients::{Client, Clients};
use crate::state::mailbox::Reason;
use bytes::Bytes;
use forebay_env::sync::{Mutex, lock};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Which of the keys that it reads a client wants to be told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// All keys.
    #[default]
    Default,
    /// Keys that it reads after `CLIENT CACHING YES`.
    OptIn,
    /// All keys except those that it reads after `CLIENT CACHING NO`.
    OptOut,
    /// None of them: it is told of all keys with its prefixes.
    Broadcast,
}

/// What a connection knows about its tracking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tracked {
    /// Which keys it wants to be told of.
    pub mode: Mode,
    /// Whether it has said so, or the contrary, for the next command.
    pub has_chosen: bool,
}

impl Tracked {
    /// Whether the client wants to be told of the keys that its command reads.
    #[must_use]
    pub const fn reads(self) -> bool {
        match self.mode {
            Mode::Default => true,
            Mode::OptIn => self.has_chosen,
            Mode::OptOut => !self.has_chosen,
            Mode::Broadcast => false,
        }
    }
}

/// How a client is told.
#[derive(Debug, Clone)]
pub struct Tracker {
    client: Arc<Client>,
    /// Which keys it is told of.
    pub mode: Mode,
    /// Whether it is not told of its own changes.
    pub skips_own: bool,
    /// The client that is told instead of it.
    pub redirect: Option<u64>,
    /// Whether that client was found to be gone.
    pub is_broken: bool,
}

/// Numbers of what is tracked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Clients that track keys.
    pub clients: usize,
    /// Keys in the table.
    pub keys: usize,
    /// Clients of all keys in the table, added up.
    pub items: usize,
    /// Prefixes.
    pub prefixes: usize,
}

#[derive(Debug, Default)]
struct Table {
    readers: BTreeMap<Bytes, BTreeSet<u64>>,
    items: usize,
    /// The key that was last pushed out.
    pushed_out: Bytes,
    prefixes: BTreeMap<Bytes, BTreeSet<u64>>,
    trackers: BTreeMap<u64, Tracker>,
}

/// Who tracks what.
#[derive(Debug, Default)]
pub struct Tracking {
    table: Mutex<Table>,
    clients: AtomicUsize,
}

impl Tracking {
    /// Whether nobody tracks keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clients.load(Ordering::Relaxed) == 0
    }

    /// Begins to track keys for a client, or changes how. These prefixes are added to those that it has.
    pub fn begin(&self, client: &Arc<Client>, mode: Mode, skips_own: bool, redirect: Option<u64>, prefixes: &[&[u8]]) {
        let mut table = lock(&self.table);
        let tracker = Tracker { client: Arc::clone(client), mode, skips_own, redirect, is_broken: false };
        table.trackers.insert(client.id, tracker);
        self.clients.store(table.trackers.len(), Ordering::Relaxed);
        let all: &[&[u8]] = if mode == Mode::Broadcast && prefixes.is_empty() { &[b""] } else { prefixes };
        for prefix in all {
            table.prefixes.entry(Bytes::copy_from_slice(prefix)).or_default().insert(client.id);
        }
    }

    /// Ends the tracking for a client. Its entries in the table are removed when their keys change.
    pub fn end(&self, client: u64) {
        if self.is_empty() {
            return;
        }
        let mut table = lock(&self.table);
        table.trackers.remove(&client);
        self.clients.store(table.trackers.len(), Ordering::Relaxed);
        table.prefixes.retain(|_, clients| {
            clients.remove(&client);
            !clients.is_empty()
        });
        // Nobody would be told of the keys, so forget them.
        if table.trackers.is_empty() {
            *table = Table::default();
        }
    }

    /// Returns how a client is told, and its prefixes, if it tracks keys.
    pub fn of(&self, client: u64) -> Option<(Tracker, Vec<Bytes>)> {
        let table = lock(&self.table);
        let tracker = table.trackers.get(&client)?.clone();
        let own = table.prefixes.iter().filter(|(_, clients)| clients.contains(&client));
        Some((tracker, own.map(|(prefix, _)| prefix.clone()).collect()))
    }

    /// Numbers of what is tracked.
    pub fn totals(&self) -> Totals {
        let table = lock(&self.table);
        let (keys, prefixes, clients) = (table.readers.len(), table.prefixes.len(), table.trackers.len());
        Totals { clients, keys, items: table.items, prefixes }
    }

    /// Records that a client has read these keys, which it has locked. The table keeps at most `most` keys; zero means
    /// no limit.
    pub fn remember<'k>(&self, client: u64, keys: impl Iterator<Item = &'k [u8]>, most: usize, clients: &Clients) {
        let mut tell = Telling { by: None, clients, own: Vec::new() };
        let mut table = lock(&self.table);
        for key in keys {
            let is_new = table.readers.entry(Bytes::copy_from_slice(key)).or_default().insert(client);
            table.items += usize::from(is_new);
        }
        // Keys are pushed out one after the other in the order of their names, so that each has its turn.
        while most > 0 && table.readers.len() > most {
            let after = (Bound::Excluded(table.pushed_out.clone()), Bound::Unbounded);
            let next = table.readers.range(after).next().or_else(|| table.readers.iter().next());
            let Some(key) = next.map(|(key, _)| key.clone()) else { break };
            table.forget(&key, &mut tell);
            table.pushed_out = key;
        }
    }

    /// Tells the clients that track these keys that a client has changed them. Returns the messages for that client
    /// itself.
    pub fn changed(&self, by: Option<u64>, keys: &[&Bytes], clients: &Clients) -> Vec<u8> {
        let mut tell = Telling { by, clients, own: Vec::new() };
        let mut table = lock(&self.table);
        keys.iter().for_each(|key| table.forget(key, &mut tell));
        let Table { prefixes, trackers, .. } = &mut *table;
        for (prefix, of_prefix) in &*prefixes {
            let found: Vec<&[u8]> = keys.iter().filter(|key| key.starts_with(prefix)).map(|key| &key[..]).collect();
            if found.is_empty() {
                continue;
            }
            for client in of_prefix {
                if let Some(tracker) = trackers.get_mut(client).filter(|tracker| !tell.skips(tracker)) {
                    tell.tell(tracker, Some(&found));
                }
            }
        }
        tell.own
    }

    /// Tells all clients that track keys that a client may have changed all keys. Returns the messages for that client
    /// itself.
    pub fn all_changed(&self, by: Option<u64>, clients: &Clients) -> Vec<u8> {
        let mut tell = Telling { by, clients, own: Vec::new() };
        let mut table = lock(&self.table);
        (table.readers, table.items) = (BTreeMap::new(), 0);
        table.trackers.values_mut().for_each(|tracker| tell.tell(tracker, None));
        tell.own
    }
}

impl Table {
    /// Tells the clients that have read a key, and removes the key from the table.
    fn forget(&mut self, key: &Bytes, tell: &mut Telling<'_>) {
        let Some(readers) = self.readers.remove(key) else { return };
        self.items -= readers.len();
        for client in readers {
            let tracker = self.trackers.get_mut(&client);
            if let Some(tracker) = tracker.filter(|tracker| tracker.mode != Mode::Broadcast && !tell.skips(tracker)) {
                tell.tell(tracker, Some(&[key]));
            }
        }
    }
}

/// Messages about changes.
struct Telling<'c> {
    /// The client that made the changes.
    by: Option<u64>,
    clients: &'c Clients,
    /// The messages for that client, which come after its reply.
    own: Vec<u8>,
}

impl Telling<'_> {
    fn skips(&self, tracker: &Tracker) -> bool {
        tracker.skips_own && self.by == Some(tracker.client.id)
    }

    fn send(&mut self, to: &Client, mut reply: Reply) {
        if self.by == Some(to.id) {
            self.own.extend(reply.take());
        } else {
            to.send(reply.take().into(), Reason::Invalidated(reply.protocol()));
        }
    }

    /// Tells a client that these keys have changed, or all keys.
    fn tell(&mut self, tracker: &mut Tracker, keys: Option<&[&[u8]]>) {
        let to = match tracker.redirect.map(|id| (id, self.clients.get(id))) {
            None => Arc::clone(&tracker.client),
            Some((_, Some(other))) => other,
            Some((id, None)) => {
                tracker.is_broken = true;
                tracker.client.describe(|described| described.tracking.is_broken = true);
                if tracker.client.described().protocol == 3 {
                    let mut reply = Reply::new(Protocol::Three);
                    reply.push(2);
                    reply.bulk("tracking-redir-broken");
                    reply.count(id);
                    self.send(&tracker.client, reply);
                }
                return;
            }
        };
        let described = to.described();
        let mut reply = if described.protocol == 3 {
            let mut reply = Reply::new(Protocol::Three);
            reply.push(2);
            reply.bulk("invalidate");
            reply
        } else if tracker.redirect.is_some() && described.subscriptions != (0, 0, 0) {
            let mut reply = Reply::new(Protocol::Two);
            reply.array(3);
            reply.bulk("message");
            reply.bulk("__redis__:invalidate");
            reply
        } else {
            // There is no way to tell this client.
            return;
        };
        match keys {
            Some(keys) => {
                reply.array(keys.len());
                keys.iter().for_each(|key| reply.bulk(key));
            }
            None => reply.null(),
        }
        self.send(&to, reply);
    }
}
