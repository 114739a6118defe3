//! The connected clients.

use crate::acl::users::DEFAULT;
use crate::state::mailbox::{Letter, Mailbox, Message, Reason};
use bytes::Bytes;
use forebay_env::process;
use forebay_env::sync::{Mutex, lock};
use mio::net::TcpStream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// A client is given up when more bytes than this, which it did not ask for, wait for it.
pub const MAX_UNASKED_BYTES: usize = 32 << 20;

/// Files and sockets that are reserved for storage, memory nodes and the server itself. If there are few, half of them
/// are reserved.
const RESERVED_FILES: u64 = 256;

/// Returns how many of the wanted clients can be connected at once, by the system's limit on open files. The limit is
/// raised if necessary.
#[must_use]
pub fn possible(wanted: u64) -> u64 {
    let files = process::allow_open_files(wanted.saturating_add(RESERVED_FILES));
    wanted.min(files - RESERVED_FILES.min(files / 2))
}

/// What is known about a connected client.
#[derive(Debug)]
pub struct Client {
    /// The client's number. Numbers are never used again.
    pub id: u64,
    /// Where it is.
    pub address: SocketAddr,
    /// Where it connected to.
    pub local: SocketAddr,
    /// When it connected: milliseconds since 1970.
    pub since_ms: u64,
    mailbox: Arc<Mailbox>,
    /// The socket, which its connection holds.
    socket: OnceLock<Weak<TcpStream>>,
    /// Bytes that wait for it in the mailbox.
    waiting: Arc<AtomicUsize>,
    is_given_up: AtomicBool,
    is_killed: AtomicBool,
    described: Mutex<Described>,
}

/// What else a client's line in `CLIENT LIST` says.
#[derive(Debug, Clone, Default)]
pub struct Described {
    /// The name that it gave itself.
    pub name: Bytes,
    /// The user that it is.
    pub user: Bytes,
    /// The database that it uses.
    pub database: usize,
    /// Its latest command.
    pub command: &'static str,
    /// When that command came: milliseconds since 1970.
    pub at_ms: u64,
    /// The version of the protocol.
    pub protocol: u8,
    /// Requests that wait in a transaction, and the memory that they take; `None` outside of one.
    pub queued: Option<(usize, usize)>,
    /// Channels that it subscribed to, patterns, and channels of shards.
    pub subscriptions: (usize, usize, usize),
    /// Memory that is held for requests.
    pub request_bytes: usize,
    /// Memory that is held for replies.
    pub reply_bytes: usize,
    /// Whether it waits in a command that blocks.
    pub is_blocked: bool,
    /// Whether it watches all commands.
    pub is_monitor: bool,
    /// Whether it asked not to be ended to free memory.
    pub is_kept: bool,
    /// Whether it caches keys, and how it is told of changes.
    pub tracking: DescribedTracking,
}

/// What a client's line says of the keys that it caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DescribedTracking {
    /// Whether it caches keys.
    pub is_on: bool,
    /// Whether it is told of all keys with its prefixes.
    pub is_broadcast: bool,
    /// Whether the client that is told instead of it is gone.
    pub is_broken: bool,
    /// The client that is told instead of it; zero when it is told itself.
    pub redirect: u64,
}

impl Described {
    /// Memory that is held for requests and replies.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.request_bytes + self.reply_bytes + self.queued.map_or(0, |(_, bytes)| bytes)
    }
}

impl Client {
    /// Sets the socket of the client.
    pub fn is_behind(&self, socket: &Arc<TcpStream>) {
        self.socket.get_or_init(|| Arc::downgrade(socket));
    }

    /// Whether its connection must end, or the client has closed it, even if the thread that serves it does not know
    /// yet.
    pub fn has_hung_up(&self) -> bool {
        if self.is_killed() {
            return true;
        }
        let Some(socket) = self.socket.get() else { return false };
        let Some(socket) = socket.upgrade() else { return true };
        // An end and an error are always reported.
        let mut ends = [PollFd::new(&*socket, PollFlags::RDHUP)];
        poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count > 0)
    }

    /// Changes what is shown.
    pub fn describe(&self, change: impl FnOnce(&mut Described)) {
        change(&mut lock(&self.described));
    }

    /// What is shown.
    pub fn described(&self) -> Described {
        lock(&self.described).clone()
    }

    /// Sends bytes that the client did not ask for, after earlier bytes. When too many wait, the connection ends.
    pub fn send(&self, bytes: Bytes, reason: Reason) {
        match Letter::new(bytes, reason, &self.waiting, MAX_UNASKED_BYTES) {
            Some(letter) => self.mailbox.send(Message::Send { client: self.id, letter }),
            None if !self.is_given_up.swap(true, Ordering::Relaxed) => {
                tracing::info!(client = self.id, "a client is sent more than it takes");
                self.kill();
            }
            None => {}
        }
    }

    /// Takes what the client was sent and its thread has not looked at. For this thread.
    pub fn take_letters(&self) -> Vec<Letter> {
        // The mailbox may have many letters to others.
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        self.mailbox.take_letters(self.id)
    }

    /// Lets the client continue, with the reply to the command in which it waited.
    pub fn unblock(&self, bytes: Vec<u8>) {
        self.mailbox.send(Message::Unblock { client: self.id, bytes });
    }

    /// Lets the client, whose command was held, continue.
    pub fn release(&self) {
        self.mailbox.send(Message::Release(self.id));
    }

    /// Whether its connection must end.
    pub fn is_killed(&self) -> bool {
        self.is_killed.load(Ordering::Acquire)
    }

    /// Ends the connection. When this returns, nothing more begins for the client.
    pub fn kill(&self) {
        // Release: a thread that has seen what follows this call also sees the flag.
        self.is_killed.store(true, Ordering::Release);
        self.mailbox.send(Message::Kill(self.id));
    }

    /// The kind of the client in `CLIENT LIST TYPE`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        let described = lock(&self.described);
        if described.subscriptions != (0, 0, 0) { "pubsub" } else { "normal" }
    }

    /// The line of `CLIENT LIST`. The name has no spaces or line ends: `CLIENT SETNAME` refuses them.
    #[must_use]
    pub fn line(&self, now_ms: u64) -> String {
        let described = self.described();
        let mut flags = String::new();
        for (is_set, flag) in [
            (described.is_monitor, 'O'),
            (described.subscriptions != (0, 0, 0), 'P'),
            (described.queued.is_some(), 'x'),
            (described.is_blocked, 'b'),
            (described.tracking.is_on, 't'),
            (described.tracking.is_broken, 'R'),
            (described.tracking.is_broadcast, 'B'),
            (described.is_kept, 'e'),
        ] {
            if is_set {
                flags.push(flag);
            }
        }
        if flags.is_empty() {
            flags.push('N');
        }
        let seconds = |since: u64| now_ms.saturating_sub(since) / 1000;
        let mut line = String::new();
        let _ = write!(
            line,
            "id={} addr={} laddr={} fd=0 name={} age={} idle={} flags={flags} db={} sub={} psub={} ssub={} multi={} \
             qbuf={} qbuf-free=0 argv-mem=0 multi-mem={} rbs=0 rbp=0 obl=0 oll=0 omem={} tot-mem={} events=r cmd={} \
             user={} redir={} resp={}",
            self.id,
            self.address,
            self.local,
            crate::text::shown::short(&described.name, usize::MAX),
            seconds(self.since_ms),
            seconds(described.at_ms),
            described.database,
            described.subscriptions.0,
            described.subscriptions.1,
            described.subscriptions.2,
            described.queued.map_or(-1, |(requests, _)| requests as i64),
            described.request_bytes,
            described.queued.map_or(0, |(_, bytes)| bytes),
            described.reply_bytes,
            described.held_bytes(),
            described.command,
            crate::text::shown::short(&described.user, usize::MAX),
            described.tracking.is_on.then_some(described.tracking.redirect).map_or(-1, |redirect| redirect as i64),
            described.protocol,
        );
        line
    }
}

/// All connected clients.
#[derive(Debug, Default)]
pub struct Clients {
    connected: Mutex<BTreeMap<u64, Arc<Client>>>,
    last: AtomicU64,
}

impl Clients {
    /// Returns a number that no client has had.
    pub fn next_id(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Adds a client.
    pub fn add(&self, mailbox: Arc<Mailbox>, address: SocketAddr, local: SocketAddr, now_ms: u64) -> Arc<Client> {
        let id = self.next_id();
        let user = Bytes::from_static(DEFAULT);
        let described = Described { user, command: "NULL", at_ms: now_ms, protocol: 2, ..Described::default() };
        let client = Arc::new(Client {
            id,
            address,
            local,
            since_ms: now_ms,
            mailbox,
            socket: OnceLock::new(),
            waiting: Arc::default(),
            is_given_up: AtomicBool::new(false),
            is_killed: AtomicBool::new(false),
            described: Mutex::new(described),
        });
        lock(&self.connected).insert(id, Arc::clone(&client));
        client
    }

    /// Removes a client.
    pub fn remove(&self, id: u64) {
        lock(&self.connected).remove(&id);
    }

    /// A client.
    pub fn get(&self, id: u64) -> Option<Arc<Client>> {
        lock(&self.connected).get(&id).cloned()
    }

    /// All clients, by their numbers.
    pub fn all(&self) -> Vec<Arc<Client>> {
        lock(&self.connected).values().cloned().collect()
    }

    /// Memory that is held for requests and replies.
    pub fn held_bytes(&self) -> usize {
        let described = self.all().into_iter().map(|client| client.described());
        described.map(|described| described.held_bytes()).sum()
    }

    /// Number of clients.
    pub fn count(&self) -> usize {
        lock(&self.connected).len()
    }
}
