//! Everything that connections share.

use crate::acl::denials::Denial;
use crate::acl::users::Users;
use crate::keyspace::failure::Outcome;
use crate::keyspace::locks::Locks;
use crate::keyspace::spaces::Spaces;
use crate::keyspace::transaction::{MAX_WRITTEN_BYTES, Transaction};
use crate::protocol::reply::MAX_BYTES;
use crate::records::store::Records;
use crate::state::channels::{Channels, Topic};
use crate::state::clients::{Client, Clients};
use crate::state::config::Config;
use crate::state::counters::{Counters, Counts};
use crate::state::jobs::Jobs;
use crate::state::latencies::Latencies;
use crate::state::monitors::Monitors;
use crate::state::pause::Pause;
use crate::state::scripts::Scripts;
use crate::state::slow_log::SlowLog;
use crate::state::tracking::Tracking;
use crate::state::waiting::{Early, NoClaim, Waiter, Waiting};
use crate::state::watches::Watches;
use bytes::Bytes;
use forebay::admission::Admission;
use forebay_env::sync::{Mutex, lock};
use forebay_env::{Clock, ForwardTime, Random};
use rustls::ClientConfig;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Most steps of a command in a thread that serves connections, where other clients wait: about two milliseconds. A
/// step is an element that a scan passes.
pub const MAX_STEPS: u64 = 10_000;

/// The error of a wait that a client has ended with an error.
const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";

/// Everything that connections share.
#[derive(Debug)]
pub struct Shared {
    /// The database.
    pub store: Records,
    /// What the store knows about itself.
    pub spaces: Spaces,
    /// Who may touch which keys.
    pub locks: Locks,
    /// Users, and what they may do.
    pub users: Arc<Users>,
    /// Who is connected.
    pub clients: Clients,
    /// Parameters.
    pub config: Arc<Config>,
    /// Counts.
    pub counts: Counts,
    /// Keys that transactions depend on.
    pub watches: Watches,
    /// Keys that clients cache.
    pub tracking: Tracking,
    /// Subscriptions.
    pub channels: Channels,
    /// Clients that wait.
    pub waiting: Waiting,
    /// Whether commands wait.
    pub pause: Pause,
    /// Clients that are shown all commands.
    pub monitors: Monitors,
    /// Scripts.
    pub scripts: Scripts,
    /// Jobs that move keys to other servers.
    pub migrations: Jobs,
    /// Commands that took long.
    pub slow_log: SlowLog,
    /// Events that took long.
    pub latencies: Latencies,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The time by which keys expire.
    pub time: ForwardTime,
    /// When the server started: milliseconds since 1970.
    pub started_ms: u64,
    /// When a client last saved, or the server started: milliseconds since 1970.
    pub saved_ms: AtomicU64,
    /// How long the last save took, in seconds; -1 when there was none.
    pub save_took_s: AtomicI64,
    /// Bytes on memory nodes when the server started.
    pub started_bytes: u64,
    /// The most bytes on memory nodes that [`Shared::memory`] has seen.
    peak_bytes: AtomicU64,
    /// How it speaks TLS, if it does.
    pub tls: Option<Arc<Admission>>,
    /// Where it listens.
    pub address: SocketAddr,
    /// A random name of this run of the server, in hexadecimal digits.
    pub run_id: String,
    /// Number of threads that serve connections.
    pub threads: usize,
    /// Most bytes of the replies to a run of commands.
    pub max_reply_bytes: usize,
    /// Most bytes that a run of commands writes.
    pub max_written_bytes: usize,
    /// Most steps of a command in a thread that serves connections.
    pub max_steps: u64,
    /// The allocator of the process, if it is known.
    pub allocator: Option<&'static str>,
    random: Mutex<Random>,
    stopping: AtomicBool,
}

impl Shared {
    /// Makes what connections to this address share.
    ///
    /// # Errors
    /// Those of the database.
    pub fn new(
        store: Records,
        users: Arc<Users>,
        address: SocketAddr,
        threads: usize,
        clock: Arc<dyn Clock>,
    ) -> Outcome<Self> {
        let secret = || {
            Random::secret().map_err(|error| crate::keyspace::failure::Failure::new(format!("ERR randomness: {error}")))
        };
        let (seed, run) = (secret()?, secret()?);
        Ok(Self {
            spaces: Spaces::open(&store)?,
            started_bytes: store.remote_bytes(),
            peak_bytes: AtomicU64::new(0),
            save_took_s: AtomicI64::new(-1),
            store,
            locks: Locks::new(threads),
            users,
            clients: Clients::default(),
            config: Arc::default(),
            counts: Counts::default(),
            watches: Watches::default(),
            tracking: Tracking::default(),
            channels: Channels::default(),
            waiting: Waiting::default(),
            pause: Pause::default(),
            monitors: Monitors::default(),
            scripts: Scripts::new(Arc::clone(&clock)),
            migrations: Jobs::default(),
            slow_log: SlowLog::default(),
            latencies: Latencies::default(),
            started_ms: clock.wall_ms(),
            saved_ms: AtomicU64::new(clock.wall_ms()),
            time: ForwardTime::new(Arc::clone(&clock)),
            clock,
            tls: None,
            address,
            run_id: format!("{run:032x}{:08x}", seed as u32),
            threads,
            max_reply_bytes: MAX_BYTES,
            max_written_bytes: MAX_WRITTEN_BYTES,
            max_steps: MAX_STEPS,
            allocator: None,
            random: Mutex::new(Random::seeded(seed as u64)),
            stopping: AtomicBool::new(false),
        })
    }

    /// Returns how the server speaks TLS to others: with its own certificate, where it knows the authority of theirs.
    #[must_use]
    pub fn tls_to_others(&self) -> Option<Arc<ClientConfig>> {
        self.tls.as_ref()?.as_client()
    }

    /// Begins a run on keys, now. The caller has them locked.
    pub fn transaction(&self, now_ms: u64) -> Transaction<'_> {
        // Marks and waiters are left at a locked key, so later runs on the key see them.
        let is_awaited = !self.watches.is_empty() || self.waiting.count() > 0 || !self.tracking.is_empty();
        let keys = Transaction::new(&self.store, &self.spaces, now_ms, self.config.events(), is_awaited);
        keys.within(self.max_written_bytes)
    }

    /// Returns the bytes on memory nodes: now, and the most that any call of this has seen. It is called ten times a
    /// second.
    pub fn memory(&self) -> (u64, u64) {
        let now = self.store.remote_bytes();
        (now, self.peak_bytes.fetch_max(now, Ordering::Relaxed).max(now))
    }

    /// Describes what a client is denied now.
    pub fn denial(
        &self,
        client: &Client,
        reason: &'static str,
        context: &'static str,
        object: &[u8],
        user: Bytes,
    ) -> Denial {
        let at_ms = self.clock.wall_ms();
        let object = Bytes::copy_from_slice(object);
        Denial { count: 1, reason, context, object, user, at_ms, client: client.line(at_ms) }
    }

    /// Remembers that a client was denied something.
    pub fn deny(&self, denial: Denial) {
        self.users.denials.add(denial, usize::try_from(self.config.number("acllog-max-len")).unwrap_or(0));
    }

    /// Tells clients that cache keys that a client's run has changed them; the change is in the store now. Returns the
    /// messages for the client itself.
    #[must_use]
    pub fn tell_trackers(&self, by: Option<u64>, keys: &Transaction<'_>) -> Vec<u8> {
        if self.tracking.is_empty() {
            return Vec::new();
        }
        let mut own = if keys.is_of_all() { self.tracking.all_changed(by, &self.clients) } else { Vec::new() };
        let touched = keys.touched();
        // Most runs only read.
        if !touched.is_empty() {
            let names: Vec<&Bytes> = touched.iter().map(|(_, key)| key).collect();
            own.extend(self.tracking.changed(by, &names, &self.clients));
        }
        own
    }

    /// Publishes what happened to keys; the changes are in the store now.
    pub fn tell(&self, keys: &Transaction<'_>) {
        let wanted = self.config.events();
        for event in keys.events() {
            let database = event.database;
            if wanted.by_key() {
                let channel = [format!("__keyspace@{database}__:").as_bytes(), &event.key].concat();
                self.channels.publish(Topic::Channel, &channel, event.name.as_bytes());
            }
            if wanted.by_event() {
                let channel = format!("__keyevent@{database}__:{}", event.name);
                self.channels.publish(Topic::Channel, channel.as_bytes(), &event.key);
            }
        }
    }

    /// Ends a client's connection, and the command in which it waits.
    pub fn end(&self, client: &Client) {
        client.kill();
        let waiter = self.waiting.of_client(client.id);
        // A thread that carries its command out now checks the client once the keys are locked.
        if let Some((waiter, claim)) = waiter.as_ref().and_then(|waiter| Some((waiter, waiter.try_claim().ok()?))) {
            claim.end();
            self.waiting.remove(waiter);
        }
    }

    /// Ends a client's wait before its time, if somebody has asked for that.
    ///
    /// # Errors
    /// When the wait has ended before; or another thread has the claim, which then does this.
    pub fn end_early(&self, waiter: &Arc<Waiter>, counters: &Counters) -> Result<(), NoClaim> {
        let Some(early) = waiter.asked() else { return Ok(()) };
        waiter.try_claim()?.end();
        self.waiting.remove(waiter);
        waiter.fail(counters);
        let is_error = early == Early::Error;
        if is_error {
            counters.add_error(UNBLOCKED);
        }
        waiter.client.unblock(match is_error && waiter.wants_reply() {
            true => format!("-{UNBLOCKED}\r\n").into_bytes(),
            false => waiter.nothing.clone(),
        });
        Ok(())
    }

    /// A random word that need not be secret.
    pub fn random(&self) -> u64 {
        lock(&self.random).word()
    }

    /// A random number below `limit`.
    pub fn random_below(&self, limit: u64) -> u64 {
        lock(&self.random).below(limit)
    }

    /// Records that the server must stop: a client or its operator asked for it.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.scripts.stop();
        self.migrations.stop();
    }

    /// Whether the server must stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}
