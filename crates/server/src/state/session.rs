//! What one connection has said about itself.

use crate::acl::user::User;
use crate::acl::users::DEFAULT;
use crate::keyspace::transaction::Name;
use crate::protocol::reply::{Protocol, Reply};
use crate::state::channels::Topic;
use crate::state::clients::Client;
use crate::state::mailbox::{Letter, Reason};
use crate::state::tracking::Tracked;
use crate::state::waiting::Waiter;
use crate::state::watches::{Mark, Watches};
use bytes::Bytes;
use forebay_env::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Which replies a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replies {
    /// All.
    #[default]
    On,
    /// None.
    Off,
    /// None to the next command.
    SkipNext,
    /// None to this command.
    Skip,
}

/// A transaction that has begun.
#[derive(Debug, Default)]
pub struct Queue {
    /// Requests, each with its arguments.
    pub requests: Vec<Vec<Bytes>>,
    /// Bytes of them.
    pub size_bytes: usize,
    /// Whether one was refused.
    pub is_refused: bool,
}

impl Queue {
    /// Memory that the requests take. What was refused for its size is not held.
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        if self.requests.is_empty() { 0 } else { self.size_bytes }
    }
}

/// Keys that the next transaction depends on.
#[derive(Debug)]
pub struct Watched {
    /// Broken when one of them changes.
    pub mark: Arc<Mark>,
    /// The keys, and when they were to expire.
    pub names: BTreeMap<Name, Option<u64>>,
}

impl Watched {
    /// Removes the mark at the keys, on which nothing depends any more.
    pub fn end(self, watches: &Watches) {
        watches.unwatch(self.names.keys(), &self.mark);
    }
}

/// What a connection has subscribed to.
#[derive(Debug, Clone, Default)]
pub struct Subscriptions {
    /// Channels.
    pub channels: BTreeSet<Bytes>,
    /// Patterns.
    pub patterns: BTreeSet<Bytes>,
    /// Channels of shards.
    pub shards: BTreeSet<Bytes>,
}

impl Subscriptions {
    /// Returns the subscriptions to a topic.
    pub const fn of(&mut self, topic: Topic) -> &mut BTreeSet<Bytes> {
        match topic {
            Topic::Channel => &mut self.channels,
            Topic::Pattern => &mut self.patterns,
            Topic::Shard => &mut self.shards,
        }
    }

    /// Returns the number that a confirmation gives: shards are counted separately.
    #[must_use]
    pub fn count(&self, topic: Topic) -> usize {
        match topic {
            Topic::Channel | Topic::Pattern => self.channels.len() + self.patterns.len(),
            Topic::Shard => self.shards.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.patterns.is_empty() && self.shards.is_empty()
    }
}

/// What one connection has said about itself.
#[derive(Debug)]
pub struct Session {
    /// The client as others see it.
    pub client: Arc<Client>,
    /// The database that it uses.
    pub database: usize,
    /// The user that it is; `None` before it has logged in.
    pub user: Option<Arc<User>>,
    /// Which replies it wants.
    pub replies: Replies,
    /// The transaction that has begun.
    pub queue: Option<Queue>,
    /// What the transaction depends on.
    pub watched: Option<Watched>,
    /// What it has subscribed to.
    pub subscriptions: Subscriptions,
    /// Whether it caches keys that it has read, and which.
    pub tracked: Option<Tracked>,
    /// Messages about its own changes, which come after its reply.
    pub pushed: Vec<u8>,
    /// Whether its transaction is being carried out.
    pub is_in_transaction: bool,
    /// Whether it is the session of a script's calls, so that no call waits.
    pub is_in_script: bool,
    /// The waiter, while it waits in a command that blocks.
    pub blocked: Option<Arc<Waiter>>,
    /// Its next command is held until this time, or until it is released.
    pub held_until: Option<Nanos>,
    /// Whether its next command was held before.
    pub was_held: bool,
    /// How many of its next commands were begun before, and shown to clients that watch all commands.
    pub shown: usize,
    /// The key that has changed, when the command in which the client waits is carried out again.
    pub woken_by: Option<Bytes>,
    /// How long that command took before it waited, nanoseconds.
    pub spent: Option<Nanos>,
    /// Whether the connection ends when everything written has been sent.
    pub is_closing: bool,
}

impl Session {
    /// Whether its requests are carried out: it does not wait, and does not have to end.
    #[must_use]
    pub fn may_go_on(&self) -> bool {
        !self.is_closing && self.blocked.is_none() && self.held_until.is_none() && !self.client.is_killed()
    }

    /// Whether the client still wants what it is sent. A letter may have been on its way when the client ended its
    /// subscription, and would then come where the client expects a reply; or when the connection was about to end.
    pub fn wants(&self, letter: &Letter) -> bool {
        let is_wanted = match letter.reason() {
            Reason::Channel(name) => self.subscriptions.channels.contains(name),
            Reason::Pattern(name) => self.subscriptions.patterns.contains(name),
            Reason::Shard(name) => self.subscriptions.shards.contains(name),
            // RESP3 tells such a message from a reply. With RESP2, only a subscriber does.
            Reason::Invalidated(Protocol::Three) => self.client.described().protocol == 3,
            Reason::Invalidated(Protocol::Two) => {
                self.client.described().protocol == 2 && !self.subscriptions.is_empty()
            }
            Reason::Monitors => self.client.described().is_monitor,
        };
        is_wanted && !self.is_closing
    }

    /// Ends the client's choice for the keys that it reads, after a command that was not one of `CLIENT`.
    pub fn end_choice(&mut self, command: &str) {
        if let Some(tracked) = self.tracked.as_mut().filter(|_| !command.starts_with("client|")) {
            tracked.has_chosen = false;
        }
    }

    /// Adds the messages about the client's own changes.
    pub fn push(&mut self, out: &mut Reply) {
        if !self.pushed.is_empty() {
            out.raw(&std::mem::take(&mut self.pushed));
        }
    }

    /// Changes the user of the connection.
    pub fn log_in(&mut self, user: Option<Arc<User>>) {
        let name = user.as_ref().map_or(Bytes::from_static(DEFAULT), |user| user.name().clone());
        self.client.describe(|described| described.user = name);
        self.user = user;
    }

    /// Removes all that the next transaction depends on.
    pub fn unwatch(&mut self, watches: &Watches) {
        if let Some(watched) = self.watched.take() {
            watched.end(watches);
        }
    }

    /// Makes the session of a client that has said nothing.
    #[must_use]
    pub fn new(client: Arc<Client>, user: Option<Arc<User>>) -> Self {
        Self {
            client,
            database: 0,
            user,
            replies: Replies::On,
            queue: None,
            watched: None,
            subscriptions: Subscriptions::default(),
            tracked: None,
            pushed: Vec::new(),
            is_in_transaction: false,
            is_in_script: false,
            blocked: None,
            held_until: None,
            was_held: false,
            shown: 0,
            woken_by: None,
            spent: None,
            is_closing: false,
        }
    }
}
