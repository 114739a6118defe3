//! Reconnects a database with several copies to memory nodes that were lost (`docs/decisions/0036`).
//!
//! ```text
//!   there is no session, or a copy was left out that it holds      connect, at once, and then after longer and longer pauses
//!   connected                                                      copies may lie there: those that are missing are made
//!                                                                  (`durable::joining`), and its part of the register counts
//! ```
//!
//! A session at a node is a member of a shard at most once. So where a copy was left out and the session lives on, as
//! at a node that was slow or full, another session takes its place, or runs beside it if other shards use it. Such a
//! node is tried less often, since each try copies what is missing.
//!
//! A process that has lost all members of a shard no longer writes there, so it would not learn that another process
//! took over. It asks the register, after the same pauses. If nobody took over, the process regains what has come back
//! (`durable::regaining`).

use crate::remote::members::Membership;
use crate::sharding::opened::Copied;
use crate::terms::Options;
use crate::work::shard::Shard;
use forebay_base::ErrorKind;
use forebay_env::sync::Mutex;
use forebay_memory_client::{MemoryClient, Reach};
use std::sync::Arc;
use std::time::Duration;

/// How often to check whether something is due.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The first pause between two tries, in nanoseconds, and the longest ones: where there is no session, and where there is one.
const LEAST_PAUSE: u64 = 1_000_000_000;
const MOST_PAUSE: u64 = 30_000_000_000;
const MOST_PAUSE_BESIDE: u64 = 300_000_000_000;

/// When something is tried the next time, in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// When it was tried (clock of the options); `None` if it was not.
    last: Option<u64>,
    pause: u64,
}

impl Pace {
    const NEW: Self = Self { last: None, pause: LEAST_PAUSE };

    fn has_passed(self, pause: u64, now: u64) -> bool {
        self.last.is_none_or(|last| now >= last.saturating_add(pause))
    }

    /// Whether a try is due, after a pause of at most `most`. If so, the next pause is longer.
    fn is_due(&mut self, now: u64, most: u64) -> bool {
        let is_due = self.has_passed(self.pause.min(most), now);
        if is_due {
            let pause = self.last.map_or(LEAST_PAUSE, |_| self.pause.saturating_mul(2).min(MOST_PAUSE_BESIDE));
            *self = Self { last: Some(now), pause };
        }
        is_due
    }

    /// Notes that there is no need to try. Once this has lasted long enough, the pauses begin anew.
    fn rests(&mut self, now: u64) {
        if self.has_passed(self.pause.saturating_add(MOST_PAUSE), now) {
            *self = Self::NEW;
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Rejoining {
    copied: Arc<Copied>,
    shards: Arc<[Arc<Shard>]>,
    name: String,
    options: Options,
    known: Mutex<Known>,
}

/// What is known of the memory nodes, in their order, and of the register.
#[derive(Debug)]
struct Known {
    nodes: Vec<KnownNode>,
    register: Pace,
}

#[derive(Debug)]
struct KnownNode {
    pace: Pace,
    /// Sessions before the last one, which other shards may use.
    before: Vec<Arc<MemoryClient>>,
}

impl KnownNode {
    /// Ends sessions that no shard uses: what they have leased is no longer of use.
    fn end_unused(&mut self, shards: &[Arc<Shard>]) {
        let is_used = |session: &Arc<MemoryClient>| shards.iter().any(|shard| shard.tree.remote.uses(session));
        self.before.extract_if(.., |session| !is_used(session)).for_each(|session| session.end());
    }
}

impl Rejoining {
    pub(crate) fn new(copied: &Arc<Copied>, shards: &Arc<[Arc<Shard>]>, name: &str, options: &Options) -> Self {
        let node = |_| KnownNode { pace: Pace::NEW, before: Vec::new() };
        let known = Known { nodes: options.memory_nodes.iter().map(node).collect(), register: Pace::NEW };
        let (copied, shards, options) = (Arc::clone(copied), Arc::clone(shards), options.clone());
        Self { copied, shards, name: name.to_owned(), options, known: Mutex::new(known) }
    }

    /// Does what is due. Returns whether a node was connected to.
    pub(crate) fn step(&self) -> bool {
        // A thread that waits for a node may do background work meanwhile, and come here again.
        let Ok(mut known) = self.known.try_lock() else { return false };
        if self.is_closed() {
            return false;
        }
        let Known { nodes, register } = &mut *known;
        let now = || self.options.clock.now();
        let is_whole = self.shards.iter().all(|shard| shard.tree.remote.copies() >= self.options.copies());
        let mut has_connected = false;
        for (reach, node) in self.options.memory_nodes.iter().zip(nodes) {
            let session = reach.known().filter(|client| client.is_there());
            if session.is_some() {
                node.end_unused(&self.shards);
            }
            let left_out = session.as_ref().filter(|client| self.is_left_out(client));
            if left_out.is_none() && session.as_ref().is_some_and(|client| self.copied.places.have(client)) {
                if is_whole {
                    node.pace.rests(now());
                }
            } else if node.pace.is_due(now(), left_out.map_or(MOST_PAUSE, |_| MOST_PAUSE_BESIDE)) {
                if let Some(session) = left_out {
                    reach.forget(session);
                    node.before.push(Arc::clone(session));
                }
                has_connected |= self.connect(reach);
            }
        }
        let is_lost = self.shards.iter().any(|shard| shard.tree.remote.are_all_lost());
        if !is_lost {
            register.rests(now());
        }
        if has_connected || is_lost && register.is_due(now(), MOST_PAUSE) {
            self.ask(is_lost);
            self.shards.iter().for_each(|shard| shard.regain());
        }
        has_connected
    }

    /// Asks the register who owns the database. If this process has not lost all members of a shard, it lets nodes that
    /// are back count in the register. Otherwise the process that gets the shard does that.
    fn ask(&self, is_lost: bool) {
        let register = &self.copied.register;
        match if is_lost { register.check() } else { register.confirm() } {
            Err(error) if error.kind() == ErrorKind::Fenced => {
                self.shards.iter().for_each(|shard| shard.taken_over(&error));
            }
            Err(error) => tracing::debug!(%error, "asking the register"),
            Ok(()) => {}
        }
    }

    fn is_closed(&self) -> bool {
        self.shards.iter().any(|shard| shard.tree.is_closed())
    }

    /// Whether a copy that this session holds was left out, and is missing.
    fn is_left_out(&self, client: &Arc<MemoryClient>) -> bool {
        let copies = self.options.copies();
        self.shards.iter().any(|shard| shard.tree.remote.lacks(copies, client))
    }

    /// Connects to a node. Returns whether it could.
    fn connect(&self, reach: &Reach) -> bool {
        let client = match reach.client() {
            Ok(client) => client,
            Err(error) => {
                tracing::debug!(%error, "a memory node cannot be reached");
                return false;
            }
        };
        if self.is_closed() {
            return false;
        }
        match self.copied.add_node(&self.name, &client, &self.options) {
            Ok(()) => {
                tracing::info!(node = %client.node(), "a memory node is back");
                true
            }
            Err(error) => {
                tracing::warn!(node = %client.node(), %error, "a memory node is back, and of no use");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests;
