//! The decisions of a memory node, as a pure state machine.
//!
//! Events go in: calls, passing time, ended links, ended jobs, completed work. Answers and [`Command`]s come out. There
//! are no threads, sockets or memory in here, and time is an argument. [`crate::server`] carries the commands out.
//!
//! # Rules
//! - A session is bound to a link, lapses when its lease runs out or its link ends, and then gives
//!   back everything that no shard adopted. Its private stores, those without a name, end with it.
//! - Memory that is freed passes through [`Place::Retired`] (until every session that may still
//!   read it announced a later reading epoch), [`Place::Revoking`] (until no key to it is valid and
//!   no job touches it) and [`Place::Dirty`] (until it is zeroed) before anybody gets it again.
//! - A shard's calls carry its epoch. Taking a shard over revokes the keys with which the earlier
//!   owner can write its memory; nobody gets a key to write an extent before that is done. A shared shard has no owner:
//!   a session that lapsed there blocks nobody, and counts as a reader until its keys are revoked.
//! - [`Purpose::Flush`] leaves the headroom alone; garbage collection and jobs may use it, because
//!   they free more than they take.
//! - A session belongs to its link's tenant, and a tenant sees no other tenant's stores, shards, extents, sessions or
//!   reading epochs. What a peer can create is counted by tenant and bounded ([`tenants`]).
//! - Databases of a tenant have shares of its memory and are told what they may take and owe (`credits`).
//! - Safety never rests on time: a session that sleeps through its lease finds its keys revoked.

mod active;
mod calls;
mod credits;
mod desks;
mod directory;
mod endpoints;
mod extents;
mod figures;
#[cfg(test)]
mod hostile_tests;
mod jobs;
mod outputs;
mod pool;
mod refusal;
mod resources;
mod retired;
mod scheduling;
mod sessions;
pub mod tenants;
#[cfg(test)]
mod tests;
mod ticket;
#[cfg(test)]
mod ticket_tests;
mod tickets;

pub use active::Job;
pub use endpoints::Endpoints;
pub use extents::{Counts, Place};
pub use outputs::JobId;
pub use refusal::Refusal;
pub use resources::{Amounts, Resource, TenantId};
pub use tenants::Figures;

use crate::tenants::{Identity, TenantsOptions};
use active::Jobs;
use credits::Recall;
use desks::Desks;
use directory::Directory;
use extents::{Extents, Holder};
use forebay_env::Nanos;
use forebay_fabric::Rights;
use forebay_offload::{Policy, Term};
use forebay_proto::replies::{Statistics, TenantFigures};
use forebay_proto::{Blob, Epoch, ExtentId, ExtentRange, Purpose, SessionId, ShardKey, StoreId, Text};
use outputs::Outputs;
use retired::RetiredRange;
use sessions::Sessions;
use std::collections::BTreeMap;
use std::ops::Range;
use tenants::{Tenant, Tenants};
use ticket::Tickets;

/// How often it looks at the time limits of jobs and loans, which are seconds. A look takes as long as tenants have jobs
/// that wait, and shards, and nobody is charged for it.
const LOOK: Nanos = 100_000_000;

/// Most keys to an extent. Each session of the node may have one, and as many may be waiting to be released. The end of
/// each key takes a look at the others.
const MOST_HOLDERS: usize = 2 * sessions::MAX_SESSIONS;

#[cfg(test)]
thread_local! {
    /// Holders of keys that were looked at because they may read what was freed.
    static LOOKED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Settings that do not change while a node runs.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The node's number.
    pub node: u32,
    /// Its incarnation.
    pub incarnation: u64,
    /// Length of an extent in bytes.
    pub extent_bytes: u64,
    /// Number of extents.
    pub extents: u32,
    /// Free extents that only garbage collection and jobs get.
    pub headroom_extents: u32,
    /// Extents kept for jobs.
    pub kept_extents: u32,
    /// How long a session lives without a call, nanoseconds.
    pub lease: Nanos,
    /// Threads for jobs; without any, no job can run.
    pub job_threads: u32,
    /// Whether it schedules without being elected.
    pub schedules: bool,
    /// How it places jobs when it schedules.
    pub placement: Policy,
}

/// An action that the node must take to carry out a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Revoke the session's key to the extent, then call [`State::revoked`].
    Revoke {
        /// The session; it may have ended.
        session: SessionId,
        /// The extent.
        extent: ExtentId,
    },
    /// Fill the extent with zeros, then call [`State::zeroed`].
    Zero {
        /// The extent.
        extent: ExtentId,
    },
    /// Revoke all keys that were lent for the job, then call [`State::keys_ended`].
    EndKeys {
        /// The job.
        job: JobId,
    },
    /// End the link, which the state has forgotten.
    Close {
        /// The link.
        peer: u64,
        /// The tenant that it belonged to.
        tenant: TenantId,
        /// Why it ends.
        why: &'static str,
    },
}

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// This reply.
    Reply(Vec<u8>),
    /// Keys to these extents, for the session.
    Grant(SessionId, Vec<(ExtentId, Rights)>),
    /// Keys to these ranges, lent to the asking session for as long as the job runs.
    Lend {
        /// The job.
        job: JobId,
        /// The ranges.
        wanted: Vec<(ExtentRange, Rights)>,
        /// For an output: bytes of the longest further output.
        longest_bytes: Option<u64>,
    },
    /// A reply, once the range is filled with zeros. Nothing else changes the state before that.
    Zero(ExtentRange),
    /// Done, once these bytes are written to this range.
    Write(ExtentRange, Blob),
    /// The result of a job, once it has run.
    Job(Job),
    /// These tenants, with the counts of connections to the node.
    Tenants {
        /// Their figures.
        tenants: Vec<TenantFigures>,
        /// Whether there are more.
        more: bool,
    },
    /// These figures, of the whole node or of a tenant.
    Statistics {
        /// The figures, except time.
        figures: Box<Statistics>,
        /// Whether the time is the whole node's, and not only that of the tenant's calls and jobs.
        node_time: bool,
    },
}

/// A waiting call's tenant, and the weight of its turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// The tenant.
    pub tenant: TenantId,
    /// Its weight.
    pub weight: u32,
}

/// A session that ended without being closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedSession {
    /// The session.
    pub session: SessionId,
    /// The name that it gave for itself.
    pub name: Text,
    /// Whose it was.
    pub tenant: TenantId,
}

/// The owner of a link.
#[derive(Debug)]
struct LinkOwner {
    identity: Identity,
    tenant: TenantId,
}

/// Why a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Its link has ended, and its keys with it.
    LinkGone,
    /// Its link still exists: its keys must be revoked.
    LinkThere,
}

/// A memory node.
#[derive(Debug)]
pub struct State {
    settings: Settings,
    extents: Extents,
    sessions: Sessions,
    directory: Directory,
    jobs: Jobs,
    outputs: Outputs,
    tickets: Tickets,
    desks: Desks,
    tenants: Tenants,
    /// Numbers of links ascend, so the oldest comes first.
    links: BTreeMap<u64, LinkOwner>,
    /// Tenants with databases that lack memory because others have borrowed it.
    recalls: BTreeMap<TenantId, Recall>,
    last_tick: Nanos,
    /// When it last looked at time limits of jobs and loans.
    last_look: Nanos,
    commands: Vec<Command>,
}

impl State {
    /// A node at its start: all extents are free or kept, and zero.
    #[must_use]
    pub fn new(settings: Settings, tenants: &TenantsOptions) -> Self {
        Self {
            settings,
            extents: Extents::new(settings.extents, settings.kept_extents),
            sessions: Sessions::new(),
            directory: Directory::new(),
            jobs: Jobs::new(),
            outputs: Outputs::new(settings.extent_bytes),
            tickets: Tickets::default(),
            desks: Desks::new(settings.schedules.then(Term::default), settings.placement),
            tenants: Tenants::new(tenants, settings.extents.into(), settings.extent_bytes),
            links: BTreeMap::new(),
            recalls: BTreeMap::new(),
            last_tick: 0,
            last_look: 0,
            commands: Vec::new(),
        }
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Commands issued since the last call.
    pub fn take_commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    /// The place of an extent.
    #[must_use]
    pub fn place(&self, extent: ExtentId) -> Option<Place> {
        self.extents.place(extent)
    }

    /// Lets time pass: sessions whose lease has run out lapse. Returns them. If the node itself slept, leases are
    /// extended by that time.
    pub fn tick(&mut self, now: Nanos) -> Vec<EndedSession> {
        let slept = now.saturating_sub(self.last_tick);
        self.last_tick = now;
        if slept > self.settings.lease / 2 {
            self.sessions.postpone(slept);
        }
        if now.saturating_sub(self.last_look) >= LOOK {
            self.last_look = now;
            self.desks.tick(now);
            self.look_at_loans(now);
        }
        let lapsed = self.sessions.expired(now);
        lapsed.into_iter().filter_map(|session| self.end_session(session, End::LinkThere)).collect()
    }

    /// Applies other tenants or limits from now on. A tenant that has more than it may keeps what it has. Links end
    /// whose identities now belong to another tenant; returns the sessions that end with them.
    pub fn configure(&mut self, tenants: &TenantsOptions) -> Vec<EndedSession> {
        self.tenants.configure(tenants);
        let moved = |link: &LinkOwner| !self.tenants.is_of(link.tenant, &link.identity);
        let moved: Vec<u64> = self.links.iter().filter(|(_, link)| moved(link)).map(|(&peer, _)| peer).collect();
        moved.into_iter().filter_map(|peer| self.close_link(peer, "its identity is of another tenant now")).collect()
    }

    /// Registers a link that `identity` opened. If the tenant has its most links, its oldest link without a session
    /// is closed to make room.
    ///
    /// # Errors
    /// [`Refusal`], when there is no room for the link.
    pub fn link_opened(&mut self, peer: u64, identity: &Identity) -> Result<TenantId, Refusal> {
        let has_memory = |tenant| self.extents.of_tenant(tenant) != Counts::default();
        let tenant = self.tenants.of(identity, has_memory)?;
        if self.tenants.left(tenant, Resource::Links) == 0 {
            let is_idle =
                |(peer, link): &(&u64, &LinkOwner)| link.tenant == tenant && self.sessions.of_peer(**peer).is_none();
            let Some((&idle, _)) = self.links.iter().find(is_idle) else {
                self.count(tenant, |figures| figures.limited += 1);
                return Err(self.tenants.limit(tenant, Resource::Links, 1));
            };
            self.close_link(idle, "it has no session, and another one of its tenant comes");
        }
        self.links.insert(peer, LinkOwner { identity: identity.clone(), tenant });
        self.tenants.take(tenant, Resource::Links, 1);
        Ok(tenant)
    }

    /// Ends an existing link, and with it its session, which is returned.
    fn close_link(&mut self, peer: u64, why: &'static str) -> Option<EndedSession> {
        let session = self.sessions.of_peer(peer);
        let ended = session.and_then(|session| self.end_session(session, End::LinkThere));
        if let Some(LinkOwner { tenant, .. }) = self.links.remove(&peer) {
            self.tenants.give(tenant, Resource::Links, 1);
            self.count(tenant, |figures| figures.closed_links += 1);
            self.commands.push(Command::Close { peer, tenant, why });
        }
        ended
    }

    /// Handles the end of a link and its keys. Returns the session that ended with it.
    pub fn link_ended(&mut self, peer: u64) -> Option<EndedSession> {
        let session = self.sessions.of_peer(peer);
        let ended = session.and_then(|session| self.end_session(session, End::LinkGone));
        if let Some(LinkOwner { tenant, .. }) = self.links.remove(&peer) {
            self.tenants.give(tenant, Resource::Links, 1);
        }
        ended
    }

    /// The tenant of a link.
    #[must_use]
    pub fn tenant_of(&self, peer: u64) -> Option<TenantId> {
        self.links.get(&peer).map(|link| link.tenant)
    }

    /// The session of a link.
    #[must_use]
    pub fn session_of(&self, peer: u64) -> Option<SessionId> {
        self.sessions.of_peer(peer)
    }

    /// A tenant, while anything is left of it.
    #[must_use]
    pub fn tenant(&self, id: TenantId) -> Option<&Tenant> {
        self.tenants.get(id)
    }

    /// Counts something for a tenant.
    pub fn count(&mut self, tenant: TenantId, add: impl FnOnce(&mut Figures)) {
        if let Some(tenant) = self.tenants.get_mut(tenant) {
            add(&mut tenant.figures);
        }
    }

    /// Registers a call that must wait for its turn.
    ///
    /// # Errors
    /// [`Refusal`], when the tenant's most calls wait already.
    pub fn call_waits(&mut self, peer: u64) -> Result<Waiting, Refusal> {
        let tenant = self.tenant_of(peer).ok_or(Refusal::NoLink)?;
        let checked = self.tenants.check(tenant, Resource::Calls, 1);
        if checked.is_err() {
            self.count(tenant, |figures| {
                figures.calls += 1;
                figures.refused_calls += 1;
                figures.limited += 1;
            });
        }
        checked?;
        self.tenants.take(tenant, Resource::Calls, 1);
        Ok(Waiting { tenant, weight: self.tenants.get(tenant).map_or(1, |tenant| tenant.weight) })
    }

    /// Notes that a call waits no longer: it is decided, or its link has ended.
    pub fn call_taken(&mut self, tenant: TenantId) {
        self.tenants.give(tenant, Resource::Calls, 1);
    }

    /// Reserves `bytes` of a call that are about to be kept for the tenant. The keeper later calls
    /// [`State::bytes_gone`].
    ///
    /// # Errors
    /// [`Refusal`], when too many are kept for it already.
    pub fn keep_bytes(&mut self, tenant: TenantId, bytes: u64) -> Result<(), Refusal> {
        if !self.may_keep_bytes(tenant, bytes) {
            return Err(self.tenants.limit(tenant, Resource::Bytes, bytes));
        }
        self.tenants.take(tenant, Resource::Bytes, bytes);
        Ok(())
    }

    /// Counts `bytes` of a result that are kept for the tenant, whatever its limit: they exist
    /// already.
    pub fn bytes_kept(&mut self, tenant: TenantId, bytes: u64) {
        self.tenants.take(tenant, Resource::Bytes, bytes);
    }

    /// Whether `bytes` more may be kept for the tenant. If nothing is kept, any number may.
    #[must_use]
    pub fn may_keep_bytes(&self, tenant: TenantId, bytes: u64) -> bool {
        let used = self.tenants.get(tenant).map_or(0, |tenant| tenant.used.of(Resource::Bytes));
        used == 0 || self.tenants.left(tenant, Resource::Bytes) >= bytes
    }

    /// Whether no more bytes are kept for the tenant than may be. Only results can exceed its limit, so a job that waits
    /// for this waits for clients to take them, and never for the arguments of jobs, its own among them.
    #[must_use]
    pub fn keeps_no_excess(&self, tenant: TenantId) -> bool {
        let is_within = |tenant: &Tenant| tenant.used.of(Resource::Bytes) <= tenant.limits.of(Resource::Bytes);
        self.tenants.get(tenant).is_none_or(is_within)
    }

    /// Notes that `bytes` of the tenant are no longer kept.
    pub fn bytes_gone(&mut self, tenant: TenantId, bytes: u64) {
        self.tenants.give(tenant, Resource::Bytes, bytes);
    }

    /// Notes that no key of the session opens the extent any more.
    pub fn revoked(&mut self, session: SessionId, extent: ExtentId) {
        if self.extents.remove_holder(extent, session)
            && let Some(tenant) = self.extents.get(extent).and_then(extents::Extent::tenant)
        {
            self.tenants.give(tenant, Resource::Keys, 1);
            let oldest = self.oldest_reader(extent);
            let unread = self.tenants.get(tenant).map(|tenant| tenant.retired.before(oldest, extent));
            for retired in unread.unwrap_or_default() {
                self.free_retired(tenant, retired);
            }
        }
        self.advance(extent);
    }

    /// Notes that a promised key could not be made. An earlier key that the session keeps has the rights `kept`.
    pub fn grant_failed(&mut self, session: SessionId, extent: ExtentId, kept: Option<Rights>) {
        if let Some(rights) = kept {
            if let Some(holder) = self.extents.get_mut(extent).and_then(|found| found.holder(session)) {
                holder.rights = rights;
            }
            return;
        }
        self.revoke(session, extent);
        if self.extents.place(extent) == Some(Place::Leased(session)) {
            self.retire(extent);
        }
    }

    /// Notes that the extent is filled with zeros.
    pub fn zeroed(&mut self, extent: ExtentId) {
        if self.extents.place(extent) == Some(Place::Dirty) {
            if let Some(found) = self.extents.get_mut(extent) {
                found.touched = false;
            }
            self.make_available(extent);
        }
    }

    fn make_available(&mut self, extent: ExtentId) {
        let counts = self.extents.counts();
        let for_jobs = counts.kept + counts.jobs;
        let place = if for_jobs < u64::from(self.settings.kept_extents) { Place::Kept } else { Place::Free };
        if let Some(tenant) = self.extents.take_back(extent, place)
            && self.owed(tenant) > 0
        {
            self.tenants.give(tenant, Resource::Reserve, 1);
        }
    }

    /// Gives an extent that is free or kept to a tenant. The tenant owes one if the extent is from the reserve, or if
    /// the tenant has all that it may have of its own.
    fn give_out(&mut self, extent: ExtentId, place: Place, tenant: TenantId) {
        let is_kept = self.extents.place(extent) == Some(Place::Kept);
        let is_headroom = self.extents.counts().free <= self.headroom();
        if is_kept || is_headroom || self.left_of_memory(tenant) == 0 {
            self.tenants.take(tenant, Resource::Reserve, 1);
        }
        self.extents.give_out(extent, place, tenant);
    }

    /// Frees an extent.
    fn retire(&mut self, extent: ExtentId) {
        let untouched = self.extents.get(extent).is_some_and(|found| !found.touched && found.holders.is_empty());
        if untouched {
            self.make_available(extent);
            return;
        }
        let tenant = self.extents.get(extent).and_then(extents::Extent::tenant);
        let epoch = tenant.map_or(0, |tenant| self.next_reading_epoch(tenant));
        self.extents.set(extent, Place::Retired(epoch));
        self.advance(extent);
    }

    /// Ends the tenant's reading epoch, and returns it.
    fn next_reading_epoch(&mut self, tenant: TenantId) -> u64 {
        self.tenants.get_mut(tenant).map_or(0, |tenant| {
            tenant.reading_epoch += 1;
            tenant.reading_epoch - 1
        })
    }

    fn reading_epoch(&self, tenant: TenantId) -> u64 {
        self.tenants.get(tenant).map_or(0, |tenant| tenant.reading_epoch)
    }

    /// Moves a freed extent as far as it can go.
    fn advance(&mut self, extent: ExtentId) {
        let Some(found) = self.extents.get_mut(extent) else { return };
        if let Place::Retired(epoch) = found.place() {
            let reads = |holder: &Holder| !holder.revoking && self.sessions.reads_from(holder.session) <= epoch;
            if found.holders.iter().any(reads) {
                return;
            }
            for holder in found.holders.iter_mut().filter(|holder| !holder.revoking) {
                holder.revoking = true;
                self.commands.push(Command::Revoke { session: holder.session, extent });
            }
            self.extents.set(extent, Place::Revoking);
        }
        let Some(found) = self.extents.get(extent) else { return };
        if found.place() == Place::Revoking && found.holders.is_empty() && found.pins == 0 {
            self.extents.set(extent, Place::Dirty);
            self.commands.push(Command::Zero { extent });
        }
    }

    /// Frees an output of jobs once its last reader has passed. Until then an output that nobody adopted no longer ends
    /// with its session, its epoch or its ticket: it is freed once.
    fn retire_range(&mut self, tenant: TenantId, shard: ShardKey, range: ExtentRange) {
        let epoch = self.next_reading_epoch(tenant);
        if epoch < self.oldest_reader(range.extent) {
            return self.free_range(shard, range);
        }
        self.outputs.adopt(range);
        self.tickets.forget(range);
        if let Some(tenant) = self.tenants.get_mut(tenant) {
            tenant.retired.insert((range, epoch, shard));
        }
    }

    /// The oldest epoch in which somebody with a key to the extent may read: nobody reads what was freed before it. Who
    /// has yet to release a key that is being revoked may be in the middle of any read, even if its session has ended.
    fn oldest_reader(&self, extent: ExtentId) -> u64 {
        let holders = self.extents.get(extent).map_or(&[][..], |found| &found.holders);
        #[cfg(test)]
        LOOKED.set(LOOKED.get() + holders.len());
        let reads = |holder: &Holder| if holder.revoking { 0 } else { self.sessions.reads_from(holder.session) };
        holders.iter().map(reads).min().unwrap_or(u64::MAX)
    }

    /// Frees what nobody reads any more, after a session of the tenant has passed these reading epochs. Examines only
    /// what was freed in them, so a session that passes nothing costs nothing.
    fn readers_passed(&mut self, tenant: TenantId, epochs: Range<u64>) {
        if epochs.is_empty() {
            return;
        }
        let passed = self.tenants.get(tenant).map(|tenant| tenant.retired.of_epochs(epochs));
        self.free_unread(tenant, passed.unwrap_or_default());
        for extent in self.extents.recycling(tenant) {
            self.advance(extent);
        }
    }

    /// Frees those of the tenant's retired outputs that nobody reads. Looks at the holders of each extent once: it may
    /// have very many outputs.
    fn free_unread(&mut self, tenant: TenantId, retired: Vec<RetiredRange>) {
        let mut oldest: BTreeMap<ExtentId, u64> = BTreeMap::new();
        for retired in retired {
            let (range, epoch, _) = retired;
            if epoch < *oldest.entry(range.extent).or_insert_with(|| self.oldest_reader(range.extent)) {
                self.free_retired(tenant, retired);
            }
        }
    }

    fn free_retired(&mut self, tenant: TenantId, (range, _, shard): RetiredRange) {
        if let Some(tenant) = self.tenants.get_mut(tenant) {
            tenant.retired.remove(range);
        }
        self.free_range(shard, range);
    }

    fn free_range(&mut self, shard: ShardKey, range: ExtentRange) {
        self.tickets.forget(range);
        let Some(emptied) = self.outputs.free(shard, range) else { return };
        if let Some(tenant) = self.extents.get(range.extent).and_then(extents::Extent::tenant) {
            self.tenants.give(tenant, Resource::Ranges, 1);
        }
        if let Some(emptied) = emptied {
            self.retire(emptied);
        }
    }

    /// Revokes the session's key to an extent, if it has one.
    fn revoke(&mut self, session: SessionId, extent: ExtentId) {
        if let Some(holder) = self.extents.get_mut(extent).and_then(|found| found.holder(session))
            && !holder.revoking
        {
            holder.revoking = true;
            self.commands.push(Command::Revoke { session, extent });
        }
    }

    /// Ends the rights of a shard's earlier epoch: keys to write, all keys of the owner `before`, jobs, and outputs
    /// that nobody adopted. The session `keep` keeps its keys.
    fn fence(&mut self, shard: ShardKey, before: Option<SessionId>, keep: Option<SessionId>) {
        for extent in self.extents.in_store(shard.store) {
            if self.extents.place(extent).and_then(Place::shard) != Some(shard) {
                continue;
            }
            let ended = |holder: &&Holder| {
                let had_owned = before == Some(holder.session) || holder.rights.contain(Rights::WRITE);
                had_owned && keep != Some(holder.session)
            };
            let holders: Vec<_> = self
                .extents
                .get(extent)
                .into_iter()
                .flat_map(|found| &found.holders)
                .filter(ended)
                .map(|holder| holder.session)
                .collect();
            for session in holders {
                self.revoke(session, extent);
            }
        }
        self.jobs.fence(|job| job.shard == shard);
        self.end_tickets(|of, _| of == shard);
        for range in self.outputs.settled_of_shard(shard) {
            self.free_range(shard, range);
        }
    }

    fn end_session(&mut self, session: SessionId, end: End) -> Option<EndedSession> {
        let ended = self.sessions.remove(session)?;
        let (tenant, passed) = (ended.tenant, ended.reads());
        self.tenants.give(tenant, Resource::Sessions, 1);
        for extent in self.extents.held_by(session) {
            match end {
                End::LinkThere => self.revoke(session, extent),
                End::LinkGone => self.revoked(session, extent),
            }
        }
        for extent in self.extents.leased_by(session) {
            self.retire(extent);
        }
        self.jobs.fence(|job| job.session == session);
        self.end_tickets(|_, owner| owner == session);
        self.end_attempts_of(session);
        self.desks.left(self.last_tick, tenant, session);
        for (shard, range) in self.outputs.settled_of_session(session) {
            self.free_range(shard, range);
        }
        for key in self.directory.owned_by(tenant, session) {
            if let Some(shard) = self.directory.shard_mut(key) {
                shard.owner = None;
            }
        }
        for store in self.directory.private_to(session) {
            self.remove_store(store);
        }
        self.readers_passed(tenant, passed);
        Some(EndedSession { session, name: ended.name, tenant })
    }

    /// Removes a store and frees its memory. Fences jobs that still run in it. What they touch stays in place until they
    /// end, and their outputs are void. Its tickets end. Sessions may still have it open.
    fn remove_store(&mut self, store: StoreId) {
        let shards = self.directory.shards_of(store);
        let Some((owner, count)) = self.directory.remove(store) else { return };
        self.tenants.give(owner, Resource::Stores, 1);
        self.tenants.give(owner, Resource::Shards, count as u64);
        self.end_tickets(|shard, _| shard.store == store);
        let extents = self.extents.in_store(store);
        if let Some(tenant) = self.tenants.get_mut(owner) {
            extents.iter().for_each(|&extent| tenant.retired.forget(extent));
        }
        for shard in shards {
            let ranges = self.outputs.forget(shard);
            self.tenants.give(owner, Resource::Ranges, ranges);
        }
        extents.into_iter().for_each(|extent| self.retire(extent));
    }

    /// Checks that the session may get a key to an extent now: neither a key of its own nor a writing key of an earlier
    /// owner is being revoked, nor very many others. In a shared shard many write, even a session that has lapsed and
    /// has not released its keys. Nothing that it may reach is used again before it does
    /// ([`State::oldest_reading_epoch`]).
    fn check_grant(&self, session: SessionId, extent: ExtentId, rights: Rights) -> Result<(), Refusal> {
        let found = self.extents.get(extent).ok_or(Refusal::Extent { extent, what: "does not exist" })?;
        let shard = found.place().shard().and_then(|shard| self.directory.shard(shard));
        let writes_alone = rights.contain(Rights::WRITE) && shard.is_none_or(|shard| !shard.shared);
        let is_crowded = found.holders.len() >= MOST_HOLDERS && !found.is_held_by(session);
        let in_the_way = |holder: &&Holder| {
            let is_writer = writes_alone && holder.rights.contain(Rights::WRITE);
            holder.revoking && (is_crowded || is_writer || holder.session == session)
        };
        match found.holders.iter().find(in_the_way) {
            Some(holder) => Err(Refusal::Held { extent, by: holder.session }),
            None => Ok(()),
        }
    }

    /// Records that the session gets a key to an extent. A session that asks for less than it has keeps what it has.
    fn grant(&mut self, session: SessionId, extent: ExtentId, rights: Rights) {
        let Some(found) = self.extents.get_mut(extent) else { return };
        found.touched = true;
        if let Some(holder) = found.holder(session) {
            holder.rights = holder.rights.and(rights);
            return;
        }
        let tenant = found.tenant();
        self.extents.add_holder(extent, Holder { session, rights, revoking: false });
        if let Some(tenant) = tenant {
            self.tenants.take(tenant, Resource::Keys, 1);
        }
    }

    /// Extents that the tenant owes the reserve.
    fn owed(&self, tenant: TenantId) -> u64 {
        self.tenants.get(tenant).map_or(0, |tenant| tenant.used.of(Resource::Reserve))
    }

    /// Extents that can be lent: the headroom and what is kept for jobs.
    fn reserve(&self) -> u64 {
        u64::from(self.settings.headroom_extents) + u64::from(self.settings.kept_extents)
    }

    /// Free extents that belong to the reserve; lent ones no longer count.
    fn headroom(&self) -> u64 {
        let there = self.reserve().saturating_sub(self.tenants.owed());
        there.saturating_sub(self.extents.counts().kept).min(self.settings.headroom_extents.into())
    }

    /// Extents of the reserve that the tenant may owe: its share, and no more than it may have otherwise.
    fn share_of_reserve(&self, tenant: TenantId) -> u64 {
        self.tenants.share_of(self.reserve(), tenant).min(self.most_memory(tenant))
    }

    /// How much more the tenant may owe the reserve now.
    fn left_of_reserve(&self, tenant: TenantId) -> u64 {
        let there = self.reserve().saturating_sub(self.tenants.owed());
        self.share_of_reserve(tenant).saturating_sub(self.owed(tenant)).min(there)
    }

    /// Most extents that the tenant may have, apart from those that it owes the reserve.
    fn most_memory(&self, tenant: TenantId) -> u64 {
        self.tenants.get(tenant).map_or(0, |tenant| tenant.limits.of(Resource::Extents))
    }

    /// Extents that the tenant has, apart from those that it owes the reserve.
    fn own_memory(&self, tenant: TenantId) -> u64 {
        self.extents.of_tenant(tenant).given_out().saturating_sub(self.owed(tenant))
    }

    /// How many more extents of its own the tenant may have.
    fn left_of_memory(&self, tenant: TenantId) -> u64 {
        self.most_memory(tenant).saturating_sub(self.own_memory(tenant))
    }

    /// Why the tenant gets none of the `wanted` extents; `wants_reserve` when it could also have used the reserve.
    fn no_memory(&self, tenant: TenantId, wanted: u64, wants_reserve: bool) -> Refusal {
        let counts = self.extents.counts();
        let own = self.extents.of_tenant(tenant);
        let is_at_limit = self.left_of_memory(tenant) == 0;
        let is_owing = wants_reserve && self.left_of_reserve(tenant) == 0 && counts.free + counts.kept > 0;
        match if is_at_limit { own.recycling } else { counts.recycling } {
            0 if is_owing && self.share_of_reserve(tenant) > 0 => {
                let name = self.tenants.get(tenant).map(|tenant| tenant.name.clone()).unwrap_or_default();
                Refusal::Reserve { tenant: name, share: self.share_of_reserve(tenant) }
            }
            0 if is_at_limit => self.tenants.limit(tenant, Resource::Extents, wanted),
            0 => Refusal::Full { free: counts.free, headroom: self.headroom() },
            recycling => Refusal::Recycling(recycling),
        }
    }

    /// How many of `wanted` extents the tenant may have now.
    fn affordable(&self, tenant: TenantId, wanted: u64, purpose: Purpose) -> Result<u64, Refusal> {
        let Counts { free, kept, .. } = self.extents.counts();
        let beyond = free.saturating_sub(self.headroom());
        let own = wanted.min(beyond).min(self.left_of_memory(tenant));
        let lent = match purpose {
            Purpose::Flush => 0,
            // A tenant owes no more than it has otherwise, because that is what it may collect. Extents kept for jobs
            // are left to jobs, except as many as others may have taken from the headroom.
            Purpose::Collection => {
                let owed = self.owed(tenant);
                let may_collect = (self.own_memory(tenant) + own).saturating_sub(owed);
                let there = free - own + kept.min(self.tenants.owed() - owed);
                self.left_of_reserve(tenant).min(may_collect).min(there)
            }
        };
        if own + lent == 0 {
            return Err(self.no_memory(tenant, wanted, purpose == Purpose::Collection));
        }
        let keys = self.tenants.left(tenant, Resource::Keys);
        if keys == 0 {
            return Err(self.tenants.limit(tenant, Resource::Keys, wanted));
        }
        Ok(wanted.min(own + lent).min(keys))
    }

    /// Checks that the session opened the store and that the store exists.
    fn check_open(&self, session: SessionId, store: StoreId) -> Result<(), Refusal> {
        match self.directory.get(store) {
            Some(_) if self.sessions.has_opened(session, store) => Ok(()),
            _ => Err(Refusal::NotOpen(store)),
        }
    }

    fn check_owner(&mut self, shard: ShardKey, session: SessionId, epoch: Epoch) -> Result<(), Refusal> {
        self.check_open(session, shard.store)?;
        self.directory.check(shard, session, epoch).map(|_| ())
    }
}
