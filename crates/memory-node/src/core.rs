//! What the threads of a node share: the state behind one lock, the memory, and the keys.
//!
//! Every event goes through [`Core::with_state`] or [`Core::call`], which carry out the state's
//! commands before they return: keys are revoked at once (where that takes time, [`Core::tick`]
//! asks again), zeroing is queued for [`Core::zero_slice`]. The lock is never held while memory is
//! zeroed, pulled or read by a job.

use crate::state::{Answer, Command, Job, JobId, Refusal, Settings, State};
use forebay_base::ErrorKind;
use forebay_env::Clock;
use forebay_env::HashMap;
use forebay_env::sync::lock;
use forebay_fabric::{AccessKey, Listener, NodeIdentity, Peer, PeerId, Region, Revocation, Rights};
use forebay_proto::replies::{ExtentsGranted, Statistics};
use forebay_proto::{ExtentId, GrantedExtent, Message, Request, SessionId};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes zeroed before something else gets a turn.
const ZERO_SLICE_BYTES: u64 = 2 << 20;

/// What a call leads to: a reply, or a job.
pub(crate) enum Called {
    Reply(Vec<u8>),
    Job(Job),
}

/// Why a call failed, as the caller is told.
pub(crate) struct CallError {
    pub kind: ErrorKind,
    pub message: String,
}

impl From<Refusal> for CallError {
    fn from(refusal: Refusal) -> Self {
        Self { kind: refusal.kind(), message: refusal.to_string() }
    }
}

/// A key that a session has.
struct Key {
    key: AccessKey,
    rights: Rights,
    peer: Arc<dyn Peer>,
}

struct Revoking {
    session: SessionId,
    extent: ExtentId,
    peer: PeerId,
    revocation: Revocation,
}

struct Inner {
    state: State,
    keys: HashMap<(SessionId, ExtentId), Key>,
    revoking: Vec<Revoking>,
    /// Extents to be zeroed, and how far each is, bytes.
    zeroing: VecDeque<(ExtentId, u64)>,
}

/// Counts that any thread adds to.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub calls: AtomicU64,
    pub refused_calls: AtomicU64,
    pub malformed_messages: AtomicU64,
    pub lapsed_sessions: AtomicU64,
    pub queued_jobs: AtomicU64,
    pub running_jobs: AtomicU64,
    pub completed_jobs: AtomicU64,
    pub failed_jobs: AtomicU64,
    /// Processor time of the node's threads that have said so, nanoseconds.
    pub cpu_nanos: AtomicU64,
}

/// Adds one. The counts are figures: nothing is ordered by them.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What the threads of a node share.
pub(crate) struct Core {
    inner: Mutex<Inner>,
    regions: Vec<Region>,
    settings: Settings,
    clock: Arc<dyn Clock>,
    started: u64,
    whole_process: bool,
    pub counters: Counters,
}

impl Core {
    /// Registers the memory and starts with all of it free.
    pub fn new(
        listener: &dyn Listener,
        settings: Settings,
        clock: Arc<dyn Clock>,
        whole_process: bool,
    ) -> Result<Self, forebay_fabric::Error> {
        let length = usize::try_from(settings.extent_bytes).unwrap_or(usize::MAX);
        let regions = (0..settings.extents).map(|_| listener.allocate(length)).collect::<Result<_, _>>()?;
        let inner = Inner {
            state: State::new(settings),
            keys: HashMap::default(),
            revoking: Vec::new(),
            zeroing: VecDeque::new(),
        };
        let started = clock.now();
        let counters = Counters::default();
        Ok(Self { inner: Mutex::new(inner), regions, settings, clock, started, whole_process, counters })
    }

    pub fn extent_bytes(&self) -> u64 {
        self.settings.extent_bytes
    }

    pub fn node(&self) -> NodeIdentity {
        NodeIdentity { node: self.settings.node, incarnation: self.settings.incarnation }
    }

    /// Number of extents.
    pub fn extents(&self) -> usize {
        self.regions.len()
    }

    pub fn region(&self, extent: ExtentId) -> Option<&Region> {
        self.regions.get(extent.0 as usize)
    }

    /// Commits all memory.
    pub fn commit(&self) -> Result<(), forebay_fabric::Error> {
        self.regions.iter().try_for_each(Region::commit)
    }

    /// Tells the state something and carries out what follows.
    pub fn with_state<T>(&self, event: impl FnOnce(&mut State) -> T) -> T {
        let mut inner = lock(&self.inner);
        let result = event(&mut inner.state);
        inner.carry_out();
        result
    }

    /// Decides a call and carries out what follows.
    pub fn call(&self, peer: &Arc<dyn Peer>, request: Request) -> Result<Called, CallError> {
        let statistics = matches!(request, Request::GetStatistics(_));
        let now = self.clock.now();
        let mut inner = lock(&self.inner);
        let answer = inner.state.call(now, peer.id(), request);
        inner.carry_out();
        match answer? {
            Answer::Reply(_) if statistics => Ok(Called::Reply(self.complete(inner.state.statistics()).encode())),
            Answer::Reply(bytes) => Ok(Called::Reply(bytes)),
            Answer::Job(job) => Ok(Called::Job(job)),
            Answer::Grant(session, wanted) => {
                let granted = inner.make_keys(peer, session, &wanted, &self.regions);
                inner.carry_out();
                granted.map(|extents| Called::Reply(ExtentsGranted { extents }.encode()))
            }
        }
    }

    /// A link ended.
    pub fn link_ended(&self, peer: PeerId) {
        let mut inner = lock(&self.inner);
        inner.keys.retain(|_, key| key.peer.id() != peer);
        let Inner { state, revoking, .. } = &mut *inner;
        revoking.retain(|entry| {
            if entry.peer == peer {
                state.revoked(entry.session, entry.extent);
            }
            entry.peer != peer
        });
        if let Some(ended) = state.link_ended(peer.0) {
            tracing::info!(session = ended.session.0, name = %ended.name, "a session lapsed: its link ended");
            count(&self.counters.lapsed_sessions);
        }
        inner.carry_out();
    }

    /// Whether keys are being revoked.
    pub fn is_revoking(&self) -> bool {
        !lock(&self.inner).revoking.is_empty()
    }

    /// Lets time pass, and asks whether keys that were being revoked are gone.
    pub fn tick(&self) {
        let now = self.clock.now();
        let mut inner = lock(&self.inner);
        let Inner { state, revoking, .. } = &mut *inner;
        revoking.retain(|entry| {
            let complete = entry.revocation.is_complete();
            if complete {
                state.revoked(entry.session, entry.extent);
            }
            !complete
        });
        for ended in state.tick(now) {
            tracing::warn!(session = ended.session.0, name = %ended.name, "a session lapsed: its lease ran out");
            count(&self.counters.lapsed_sessions);
        }
        inner.carry_out();
    }

    /// Zeroes a slice of an extent that is to be zeroed. False when there is none.
    pub fn zero_slice(&self) -> bool {
        let Some((extent, done)) = lock(&self.inner).zeroing.pop_front() else { return false };
        let slice = ZERO_SLICE_BYTES.min(self.settings.extent_bytes.saturating_sub(done));
        let zeroed = self.region(extent).is_some_and(|region| region.zero(done, slice).is_ok());
        let done = done + slice;
        let mut inner = lock(&self.inner);
        if !zeroed {
            // Cannot be within the node's own memory. Better a lost extent than a leaked byte.
            tracing::error!(extent = extent.0, "an extent could not be zeroed and is not used again");
        } else if done < self.settings.extent_bytes {
            inner.zeroing.push_back((extent, done));
        } else {
            inner.state.zeroed(extent);
            inner.carry_out();
        }
        true
    }

    /// Whether memory waits to be zeroed.
    pub fn has_zeroing(&self) -> bool {
        !lock(&self.inner).zeroing.is_empty()
    }

    /// A job ended. Whether its result counts.
    pub fn job_ended(&self, job: JobId, well: bool) -> bool {
        self.with_state(|state| state.job_ended(job, well))
    }

    pub fn statistics(&self) -> Statistics {
        self.complete(lock(&self.inner).state.statistics())
    }

    fn complete(&self, mut statistics: Statistics) -> Statistics {
        let counters = &self.counters;
        for (field, counter) in [
            (&mut statistics.calls, &counters.calls),
            (&mut statistics.refused_calls, &counters.refused_calls),
            (&mut statistics.malformed_messages, &counters.malformed_messages),
            (&mut statistics.lapsed_sessions, &counters.lapsed_sessions),
            (&mut statistics.queued_jobs, &counters.queued_jobs),
            (&mut statistics.running_jobs, &counters.running_jobs),
            (&mut statistics.completed_jobs, &counters.completed_jobs),
            (&mut statistics.failed_jobs, &counters.failed_jobs),
        ] {
            *field = counter.load(Ordering::Relaxed);
        }
        let cpu_nanos = match self.whole_process {
            true => forebay_env::cpu::process_nanos(),
            false => counters.cpu_nanos.load(Ordering::Relaxed),
        };
        statistics.cpu_us = cpu_nanos / 1000;
        statistics.uptime_ms = self.clock.now().saturating_sub(self.started) / 1_000_000;
        statistics
    }
}

impl Inner {
    fn carry_out(&mut self) {
        loop {
            let commands = self.state.take_commands();
            if commands.is_empty() {
                return;
            }
            for command in commands {
                match command {
                    Command::Zero { extent } => self.zeroing.push_back((extent, 0)),
                    Command::Revoke { session, extent } => self.revoke(session, extent),
                }
            }
        }
    }

    fn revoke(&mut self, session: SessionId, extent: ExtentId) {
        let Some(key) = self.keys.remove(&(session, extent)) else {
            self.state.revoked(session, extent);
            return;
        };
        match key.peer.revoke(key.key) {
            Ok(revocation) if !revocation.is_complete() => {
                self.revoking.push(Revoking { session, extent, peer: key.peer.id(), revocation });
            }
            // Refused means that there is no such grant: the link has ended, and its keys with it.
            Ok(_) | Err(_) => self.state.revoked(session, extent),
        }
    }

    fn make_keys(
        &mut self,
        peer: &Arc<dyn Peer>,
        session: SessionId,
        wanted: &[(ExtentId, Rights)],
        regions: &[Region],
    ) -> Result<Vec<GrantedExtent>, CallError> {
        let mut granted = Vec::with_capacity(wanted.len());
        for (made, &(extent, rights)) in wanted.iter().enumerate() {
            match self.make_key(peer, session, extent, rights, regions) {
                Ok(key) => granted.push(GrantedExtent { extent, rights, key }),
                Err(error) => {
                    for &(extent, _) in wanted.get(made..).unwrap_or_default() {
                        self.state.grant_failed(session, extent);
                    }
                    return Err(CallError { kind: error.kind(), message: error.to_string() });
                }
            }
        }
        Ok(granted)
    }

    /// The session's key to an extent, made if there is none with these rights.
    fn make_key(
        &mut self,
        peer: &Arc<dyn Peer>,
        session: SessionId,
        extent: ExtentId,
        rights: Rights,
        regions: &[Region],
    ) -> Result<AccessKey, forebay_fabric::Error> {
        match self.keys.get(&(session, extent)) {
            Some(known) if known.rights == rights => return Ok(known.key),
            // The same session's own memory: it need not have let go before it gets more rights.
            Some(known) => drop(known.peer.revoke(known.key)),
            None => {}
        }
        let missing = || forebay_fabric::Error::Invalid(format!("{extent} has no memory"));
        let region = regions.get(extent.0 as usize).ok_or_else(missing)?;
        let key = peer.grant(region, 0, region.length(), rights)?;
        self.keys.insert((session, extent), Key { key, rights, peer: Arc::clone(peer) });
        Ok(key)
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("settings", &self.settings).finish_non_exhaustive()
    }
}
