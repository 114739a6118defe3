//! State that the threads of a node share: the state machine behind one lock, the memory, and the
//! keys.
//!
//! Every event goes through [`Core::with_state`] or [`Core::call`], which carry out the state's
//! commands before they return. Keys are revoked at once (where that takes time, [`Core::tick`]
//! checks again); zeroing is queued for [`Core::zero_slice`]. The lock is never held while an
//! extent is zeroed, or while memory is pulled or read by a job. Only a short range is zeroed under
//! it.

use crate::accounts::EndpointAccount;
use crate::state::tenants::Tenant;
use crate::state::{
    Answer, Command, EndedSession, Figures, Job, JobId, Place, Refusal, Settings, State, TenantId, Waiting,
};
use crate::telling::is_told;
use crate::tenants::{Identity, TenantsOptions};
use forebay_base::ErrorKind;
use forebay_env::sync::lock;
use forebay_env::{Clock, HashMap, Nanos};
use forebay_fabric::admission::AdmissionCounts;
use forebay_fabric::{AccessKey, Listener, NodeIdentity, Peer, PeerId, Region, Revocation, Rights};
use forebay_proto::replies::{
    Done, DoorFigures, ExtentsGranted, OutputGranted, RangesGranted, Statistics, TenantFigures, TenantPage,
};
use forebay_proto::{ExtentId, ExtentRange, GrantedExtent, Message, Request, SessionId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes to zero before other work gets a turn.
const ZERO_SLICE_BYTES: u64 = 512 << 10;
/// Keys of sessions that a tick looks at, in turn, because they are being revoked. A client that releases none must not
/// hold up other work.
const MOST_LOOKED_AT: usize = 1024;
/// Before all names of keys: sessions are numbered from one.
const BEFORE_ALL: (SessionId, ExtentId) = (SessionId(0), ExtentId(0));

#[cfg(test)]
thread_local! {
    /// Lent keys that were looked at because they are being revoked.
    static LOOKED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The outcome of a call: a reply or a job.
pub(crate) enum Called {
    Reply(Vec<u8>),
    Job(Job),
}

/// Why a call failed, as reported to the caller.
#[derive(Debug)]
pub(crate) struct CallError {
    pub kind: ErrorKind,
    pub message: String,
}

impl From<Refusal> for CallError {
    fn from(refusal: Refusal) -> Self {
        Self { kind: refusal.kind(), message: refusal.to_string() }
    }
}

/// Arguments or a result that are kept for a tenant, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Kept {
    core: Arc<Core>,
    tenant: TenantId,
    bytes: u64,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.core.with_state(|state| state.bytes_gone(self.tenant, self.bytes));
    }
}

/// A key that a session has.
struct Key {
    key: AccessKey,
    rights: Rights,
    peer: Arc<dyn Peer>,
}

/// Keys that are lent for a job. The session that runs it has all of them, over its link.
struct Lent {
    peer: Arc<dyn Peer>,
    keys: Vec<AccessKey>,
}

/// Lent keys of a job that has ended, until they are revoked.
struct Ending {
    job: JobId,
    peer: PeerId,
    revocations: Vec<Revocation>,
}

impl Ending {
    /// Whether no key opens anything any more. Looks at keys up to the first that does, so keys that are not released
    /// cost no more than one.
    fn is_over(&mut self) -> bool {
        let is_gone = |revocation: &mut Revocation| {
            #[cfg(test)]
            LOOKED.set(LOOKED.get() + 1);
            revocation.is_complete()
        };
        while self.revocations.pop_if(is_gone).is_some() {}
        self.revocations.is_empty()
    }
}

/// Keys of a session to an extent that are being revoked.
struct Revoking {
    peer: PeerId,
    revocations: Vec<Revocation>,
}

struct Inner {
    state: State,
    links: HashMap<u64, Arc<dyn Peer>>,
    /// Links that were closed on arrival.
    refused_links: u64,
    /// Counts of connections to the node, as of the last tick.
    door: DoorFigures,
    /// Keys of sessions, which have none left when they have ended.
    keys: BTreeMap<(SessionId, ExtentId), Key>,
    /// Besides one of these, a session may already have a key with other rights.
    revoking: BTreeMap<(SessionId, ExtentId), Revoking>,
    /// Their names by link, so that the end of a link passes over none of other links.
    revoking_of: BTreeSet<(PeerId, SessionId, ExtentId)>,
    /// The last of them that was looked at.
    looked_at: (SessionId, ExtentId),
    /// Keys lent for jobs that other sessions run.
    lent: HashMap<JobId, Lent>,
    /// Jobs that have ended and whose lent keys are being revoked.
    ending: Vec<Ending>,
    /// Extents to be zeroed, and the progress of each in bytes.
    zeroing: VecDeque<(ExtentId, u64)>,
}

/// What the threads of a node share.
pub(crate) struct Core {
    inner: Mutex<Inner>,
    regions: Vec<Region>,
    settings: Settings,
    clock: Arc<dyn Clock>,
    started: u64,
    whole_process: bool,
    /// Processor time that the node's threads have reported, nanoseconds.
    pub cpu_nanos: AtomicU64,
}

impl Core {
    /// Registers the memory and starts with all of it free.
    pub fn new(
        listener: &dyn Listener,
        settings: Settings,
        tenants: &TenantsOptions,
        clock: Arc<dyn Clock>,
        whole_process: bool,
    ) -> Result<Self, forebay_fabric::Error> {
        let length = usize::try_from(settings.extent_bytes).unwrap_or(usize::MAX);
        let regions = (0..settings.extents).map(|_| listener.allocate(length)).collect::<Result<_, _>>()?;
        let door = door_figures(listener.admission_counts());
        let inner = Inner {
            state: State::new(settings, tenants),
            links: HashMap::default(),
            refused_links: 0,
            door,
            keys: BTreeMap::new(),
            revoking: BTreeMap::new(),
            revoking_of: BTreeSet::new(),
            looked_at: BEFORE_ALL,
            lent: HashMap::default(),
            ending: Vec::new(),
            zeroing: VecDeque::new(),
        };
        let started = clock.now();
        let cpu_nanos = AtomicU64::new(0);
        Ok(Self { inner: Mutex::new(inner), regions, settings, clock, started, whole_process, cpu_nanos })
    }

    /// The time now.
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// How long a session lives without a call.
    pub fn lease(&self) -> Nanos {
        self.settings.lease
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

    /// Passes an event to the state, and carries out the resulting commands.
    pub fn with_state<T>(&self, event: impl FnOnce(&mut State) -> T) -> T {
        let mut inner = lock(&self.inner);
        let result = event(&mut inner.state);
        inner.carry_out();
        result
    }

    /// Decides a call, and carries out the resulting commands.
    pub fn call(&self, peer: &Arc<dyn Peer>, request: Request) -> Result<Called, CallError> {
        let now = self.clock.now();
        let mut inner = lock(&self.inner);
        let answer = inner.state.call(now, peer.id(), request);
        inner.carry_out();
        let answer = answer.inspect_err(|refusal| inner.report(peer.id(), refusal))?;
        match answer {
            Answer::Statistics { figures, node_time: true } => Ok(Called::Reply(self.complete(*figures).encode())),
            Answer::Statistics { figures, node_time: false } => {
                Ok(Called::Reply(Statistics { uptime_ms: self.uptime_ms(), ..*figures }.encode()))
            }
            Answer::Tenants { tenants, more } => {
                let door = inner.door.clone();
                Ok(Called::Reply(TenantPage { tenants, more, door }.encode()))
            }
            Answer::Reply(bytes) => Ok(Called::Reply(bytes)),
            Answer::Job(job) => Ok(Called::Job(job)),
            // Both under the lock, so that the range is still the caller's. The range is short.
            Answer::Zero(range) => self.changed(range.extent, |region| region.zero(range.offset, range.length)),
            Answer::Write(range, bytes) => {
                self.changed(range.extent, |region| region.write(range.offset, bytes.bytes()))
            }
            Answer::Lend { job, wanted, longest_bytes } => {
                let lent = inner.lend(peer, job, &wanted, &self.regions);
                let keys = lent.map_err(|error| CallError { kind: error.kind(), message: error.to_string() })?;
                let output = longest_bytes.zip(wanted.first()).zip(keys.first());
                Ok(Called::Reply(match output {
                    Some(((longest_bytes, &(range, _)), &key)) => OutputGranted { range, key, longest_bytes }.encode(),
                    None => RangesGranted { keys }.encode(),
                }))
            }
            Answer::Grant(session, wanted) => {
                let granted = inner.make_keys(peer, session, &wanted, &self.regions);
                inner.carry_out();
                granted.map(|extents| Called::Reply(ExtentsGranted { extents }.encode()))
            }
        }
    }

    /// Changes memory of an extent for a call.
    fn changed(
        &self,
        extent: ExtentId,
        change: impl FnOnce(&Region) -> Result<(), forebay_fabric::Error>,
    ) -> Result<Called, CallError> {
        let missing = || forebay_fabric::Error::Invalid(format!("{extent} has no memory"));
        let changed = self.region(extent).ok_or_else(missing).and_then(change);
        let failed = |error: forebay_fabric::Error| CallError { kind: error.kind(), message: error.to_string() };
        changed.map(|()| Called::Reply(Done {}.encode())).map_err(failed)
    }

    /// Registers a call that must wait for its turn.
    pub fn call_waits(&self, peer: PeerId) -> Result<Waiting, CallError> {
        let mut inner = lock(&self.inner);
        let waits = inner.state.call_waits(peer.0);
        Ok(waits.inspect_err(|refusal| inner.report(peer, refusal))?)
    }

    /// Registers a new link, and returns its tenant. Its endpoints are counted for that tenant from
    /// then on.
    ///
    /// # Errors
    /// Why there is no room for it. The link is not registered then.
    pub fn link_opened(&self, peer: &Arc<dyn Peer>, identity: &Identity) -> Result<TenantId, CallError> {
        let mut inner = lock(&self.inner);
        let opened = inner.state.link_opened(peer.id().0, identity);
        match &opened {
            Ok(_) => drop(inner.links.insert(peer.id().0, Arc::clone(peer))),
            Err(refusal) => {
                inner.refused_links += 1;
                let refused = inner.refused_links;
                if is_told(refused) {
                    tracing::warn!(peer = peer.id().0, %identity, %refusal, refused, "a link is refused");
                }
            }
        }
        inner.carry_out();
        let endpoints = opened
            .as_ref()
            .ok()
            .and_then(|tenant| inner.state.tenant(*tenant))
            .map(|tenant| Arc::clone(&tenant.endpoints));
        drop(inner);
        if let Some(endpoints) = endpoints {
            peer.count_endpoints(Arc::new(EndpointAccount(endpoints)));
        }
        Ok(opened?)
    }

    /// Closes a link from the node's side.
    pub fn close_link(&self, peer: &dyn Peer, why: &str) {
        let mut inner = lock(&self.inner);
        if let Some(tenant) = inner.state.tenant_of(peer.id().0) {
            inner.state.count(tenant, |figures| figures.closed_links += 1);
            if let Some(tenant) = inner.state.tenant(tenant) {
                closed(peer.id().0, tenant, why);
            }
        }
        drop(inner);
        peer.close();
    }

    /// Handles the end of a link. Returns the tenant that it belonged to, unless it has lost its place to another link.
    pub fn link_ended(&self, peer: PeerId) -> Option<TenantId> {
        let mut inner = lock(&self.inner);
        let tenant = inner.state.tenant_of(peer.0);
        inner.links.remove(&peer.0);
        if let Some(session) = inner.state.session_of(peer.0) {
            let all = (session, ExtentId(0))..=(session, ExtentId(u32::MAX));
            inner.keys.extract_if(all, |_, _| true).for_each(drop);
        }
        let all = (peer, SessionId(0), ExtentId(0))..=(peer, SessionId(u64::MAX), ExtentId(u32::MAX));
        let gone: Vec<_> = inner.revoking_of.range(all).copied().collect();
        for (_, session, extent) in gone {
            inner.forget_revoking(session, extent);
            inner.let_go(session, extent);
        }
        let Inner { lent, ending, .. } = &mut *inner;
        lent.retain(|_, lent| lent.peer.id() != peer);
        ending.iter_mut().filter(|ending| ending.peer == peer).for_each(|ending| ending.revocations.clear());
        inner.poll_ending();
        let Inner { state, .. } = &mut *inner;
        if let Some(ended) = state.link_ended(peer.0) {
            lapsed(state, &ended, "its link ended");
        }
        inner.carry_out();
        tenant
    }

    /// Counts something for the tenant of a link.
    pub fn count(&self, peer: PeerId, add: impl FnOnce(&mut Figures)) {
        let mut inner = lock(&self.inner);
        if let Some(tenant) = inner.state.tenant_of(peer.0) {
            inner.state.count(tenant, add);
        }
    }

    /// Accounts for `bytes` of arguments that are kept for a tenant.
    pub fn keep_arguments(self: &Arc<Self>, tenant: TenantId, bytes: u64) -> Result<Kept, CallError> {
        self.with_state(|state| state.keep_bytes(tenant, bytes))?;
        Ok(Kept { core: Arc::clone(self), tenant, bytes })
    }

    /// Accounts for `bytes` of a result that is kept for a tenant. This may exceed the tenant's limit.
    pub fn keep_result(self: &Arc<Self>, tenant: TenantId, bytes: u64) -> Kept {
        self.with_state(|state| state.bytes_kept(tenant, bytes));
        Kept { core: Arc::clone(self), tenant, bytes }
    }

    /// Applies other tenants or limits from now on.
    pub fn configure(&self, tenants: &TenantsOptions) {
        self.with_state(|state| {
            for ended in state.configure(tenants) {
                lapsed(state, &ended, "its link's identity is of another tenant now");
            }
        });
    }

    /// The figures of all tenants.
    pub fn tenants(&self) -> Vec<TenantFigures> {
        lock(&self.inner).state.all_tenants()
    }

    /// The counts of connections to the node.
    pub fn door(&self) -> DoorFigures {
        lock(&self.inner).door.clone()
    }

    /// Whether keys are being revoked.
    pub fn is_revoking(&self) -> bool {
        let inner = lock(&self.inner);
        !inner.revoking.is_empty() || !inner.ending.is_empty()
    }

    /// Lets time pass, and checks whether keys that were being revoked are gone. `counts` are the fabric's counts of
    /// connections.
    pub fn tick(&self, counts: AdmissionCounts) {
        let now = self.clock.now();
        let mut inner = lock(&self.inner);
        inner.door = door_figures(counts);
        inner.poll_revoking();
        inner.poll_ending();
        let Inner { state, .. } = &mut *inner;
        for ended in state.tick(now) {
            lapsed(state, &ended, "its lease ran out");
        }
        inner.carry_out();
    }

    /// Zeroes a slice of an extent. Returns false when there is none to zero.
    pub fn zero_slice(&self) -> bool {
        let Some((extent, done)) = lock(&self.inner).zeroing.pop_front() else { return false };
        let slice = ZERO_SLICE_BYTES.min(self.settings.extent_bytes.saturating_sub(done));
        let zeroed = self.region(extent).is_some_and(|region| region.zero(done, slice).is_ok());
        let done = done + slice;
        let mut inner = lock(&self.inner);
        if !zeroed {
            // This cannot happen within the node's own memory. Losing an extent is better than
            // leaking a byte.
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

    pub fn statistics(&self) -> Statistics {
        self.complete(lock(&self.inner).state.statistics())
    }

    fn complete(&self, mut statistics: Statistics) -> Statistics {
        let cpu_nanos = match self.whole_process {
            true => forebay_env::cpu::process_nanos(),
            false => self.cpu_nanos.load(Ordering::Relaxed),
        };
        statistics.cpu_us = cpu_nanos / 1000;
        statistics.uptime_ms = self.uptime_ms();
        statistics
    }

    fn uptime_ms(&self) -> u64 {
        self.clock.now().saturating_sub(self.started) / 1_000_000
    }
}

fn door_figures(counts: AdmissionCounts) -> DoorFigures {
    let AdmissionCounts { admitted, refused, shown_out, late, crowded, withdrawn } = counts;
    DoorFigures { admitted, refused, shown_out, late, crowded, withdrawn }
}

/// Counts a session that lapsed, and logs it: each of a tenant's first ones, then ever fewer.
fn lapsed(state: &mut State, ended: &EndedSession, why: &str) {
    let mut lapsed = 0;
    state.count(ended.tenant, |figures| {
        figures.lapsed_sessions += 1;
        lapsed = figures.lapsed_sessions;
    });
    if is_told(lapsed) {
        let tenant = state.tenant(ended.tenant).map_or("", |tenant| tenant.name.as_str());
        let name = ended.name.as_str();
        tracing::warn!(tenant, session = ended.session.0, ?name, why, lapsed, "a session lapsed");
    }
}

/// Logs that the node has closed a link, which is counted already: each of a tenant's first ones, then ever fewer.
fn closed(peer: u64, tenant: &Tenant, why: &str) {
    let closed = tenant.figures.closed_links;
    if is_told(closed) {
        tracing::warn!(tenant = tenant.name.as_str(), peer, why, closed, "a link is closed");
    }
}

impl Inner {
    /// Logs that a limit was reached, or something denied.
    fn report(&self, peer: PeerId, refusal: &Refusal) {
        let tenant = self.state.tenant_of(peer.0).and_then(|tenant| self.state.tenant(tenant));
        let Some(tenant) = tenant else { return };
        let figures = &tenant.figures;
        let (count, what) = match refusal {
            refusal if refusal.is_limit() => (figures.limited, "a limit was reached"),
            refusal if refusal.is_denial() => (figures.denied, "a call was denied"),
            _ => return,
        };
        if is_told(count) {
            tracing::warn!(tenant = tenant.name.as_str(), peer = peer.0, count, %refusal, what);
        }
    }

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
                    Command::EndKeys { job } => self.end_keys(job),
                    Command::Close { peer, tenant, why } => {
                        if let Some(tenant) = self.state.tenant(tenant) {
                            closed(peer, tenant, why);
                        }
                        if let Some(link) = self.links.remove(&peer) {
                            link.close();
                        }
                    }
                }
            }
        }
    }

    fn revoke(&mut self, session: SessionId, extent: ExtentId) {
        if let Some(key) = self.keys.remove(&(session, extent)) {
            self.take_back(session, extent, &key);
        }
        self.let_go(session, extent);
    }

    /// Revokes a key that the session had.
    fn take_back(&mut self, session: SessionId, extent: ExtentId, key: &Key) {
        // A refusal means that there is no such grant: the link has ended, and its keys with it.
        if let Ok(revocation) = key.peer.revoke(key.key)
            && !revocation.is_complete()
        {
            let peer = key.peer.id();
            let none = || Revoking { peer, revocations: Vec::new() };
            self.revoking.entry((session, extent)).or_insert_with(none).revocations.push(revocation);
            self.revoking_of.insert((peer, session, extent));
        }
    }

    /// Forgets the keys of a session to an extent that were being revoked.
    fn forget_revoking(&mut self, session: SessionId, extent: ExtentId) {
        if let Some(Revoking { peer, .. }) = self.revoking.remove(&(session, extent)) {
            self.revoking_of.remove(&(peer, session, extent));
        }
    }

    /// Tells the state if no key of the session opens the extent any more.
    fn let_go(&mut self, session: SessionId, extent: ExtentId) {
        let name = (session, extent);
        if !self.keys.contains_key(&name) && !self.revoking.contains_key(&name) {
            self.state.revoked(session, extent);
        }
    }

    /// Checks which keys of sessions that are being revoked are gone: some of them, in turn.
    fn poll_revoking(&mut self) {
        let after = (Bound::Excluded(self.looked_at), Bound::Unbounded);
        let next = self.revoking.range(after).take(MOST_LOOKED_AT);
        let looked: Vec<_> =
            next.map(|(&name, it)| (name, it.revocations.iter().all(Revocation::is_complete))).collect();
        // After the last one it begins anew.
        let last = looked.last().filter(|_| looked.len() == MOST_LOOKED_AT);
        self.looked_at = last.map_or(BEFORE_ALL, |&(name, _)| name);
        for ((session, extent), _) in looked.into_iter().filter(|&(_, is_gone)| is_gone) {
            self.forget_revoking(session, extent);
            self.let_go(session, extent);
        }
    }

    /// Revokes the keys that were lent for a job.
    fn end_keys(&mut self, job: JobId) {
        if let Some(Lent { peer, keys }) = self.lent.remove(&job) {
            // A refusal means that the link has ended, and its keys with it.
            let revocations = keys.into_iter().filter_map(|key| peer.revoke(key).ok()).collect();
            let mut ending = Ending { job, peer: peer.id(), revocations };
            if !ending.is_over() {
                return self.ending.push(ending);
            }
        }
        self.state.keys_ended(job);
    }

    /// Tells the state for which jobs all lent keys are gone by now.
    fn poll_ending(&mut self) {
        for Ending { job, .. } in self.ending.extract_if(.., Ending::is_over) {
            self.state.keys_ended(job);
        }
    }

    /// Makes keys of ranges for a job that the link's session runs.
    fn lend(
        &mut self,
        peer: &Arc<dyn Peer>,
        job: JobId,
        wanted: &[(ExtentRange, Rights)],
        regions: &[Region],
    ) -> Result<Vec<AccessKey>, forebay_fabric::Error> {
        let mut keys = Vec::with_capacity(wanted.len());
        for &(range, rights) in wanted {
            let missing = || forebay_fabric::Error::Invalid(format!("{} has no memory", range.extent));
            let region = regions.get(range.extent.0 as usize).ok_or_else(missing)?;
            let key = peer.grant(region, range.offset, range.length, rights)?;
            let none = || Lent { peer: Arc::clone(peer), keys: Vec::new() };
            self.lent.entry(job).or_insert_with(none).keys.push(key);
            keys.push(key);
        }
        Ok(keys)
    }

    fn make_keys(
        &mut self,
        peer: &Arc<dyn Peer>,
        session: SessionId,
        wanted: &[(ExtentId, Rights)],
        regions: &[Region],
    ) -> Result<Vec<GrantedExtent>, CallError> {
        let mut granted = Vec::with_capacity(wanted.len());
        for &(extent, rights) in wanted {
            match self.make_key(peer, session, extent, rights, regions) {
                Ok(key) => granted.push(GrantedExtent { extent, rights, key }),
                Err(error) => {
                    for &(extent, _) in wanted {
                        // The caller learns of none of what was leased for it, so all of that goes back.
                        let is_new = self.state.place(extent) == Some(Place::Leased(session));
                        let kept = self.keys.get(&(session, extent)).map(|key| key.rights).filter(|_| !is_new);
                        self.state.grant_failed(session, extent, kept);
                    }
                    return Err(CallError { kind: error.kind(), message: error.to_string() });
                }
            }
        }
        Ok(granted)
    }

    /// The session's key to an extent; makes one if it has none with these rights. A key with more rights also serves: if
    /// it were replaced, it would stay valid until it is released.
    fn make_key(
        &mut self,
        peer: &Arc<dyn Peer>,
        session: SessionId,
        extent: ExtentId,
        rights: Rights,
        regions: &[Region],
    ) -> Result<AccessKey, forebay_fabric::Error> {
        if let Some(known) = self.keys.get(&(session, extent)).filter(|known| known.rights.contain(rights)) {
            return Ok(known.key);
        }
        let missing = || forebay_fabric::Error::Invalid(format!("{extent} has no memory"));
        let region = regions.get(extent.0 as usize).ok_or_else(missing)?;
        let key = peer.grant(region, 0, region.length(), rights)?;
        let made = Key { key, rights, peer: Arc::clone(peer) };
        // The memory belongs to the same session, which need not release the old key before it gets more rights.
        if let Some(before) = self.keys.insert((session, extent), made) {
            self.take_back(session, extent, &before);
        }
        Ok(key)
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
