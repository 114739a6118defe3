//! What a memory node decides, as a pure state machine.
//!
//! Events go in (calls, passing time, links that end, jobs that end, work that was carried out);
//! answers and [`Command`]s come out. There are no threads, sockets or memory in here, and time is
//! an argument. [`crate::server`] carries the commands out.
//!
//! # Rules
//! - A session is bound to a link, lapses when its lease runs out or its link ends, and then gives
//!   back everything that no shard adopted. Its private stores, those without a name, end with it.
//! - Memory that is freed passes through [`Place::Retired`] (until every session that may still
//!   read it announced a later reading epoch), [`Place::Revoking`] (until no key to it is valid and
//!   no job touches it) and [`Place::Dirty`] (until it is zeroed) before anybody gets it again.
//! - A shard's calls carry its epoch. Taking a shard over revokes the keys with which the earlier
//!   owner can write its memory; nobody gets a key to write an extent before that is done.
//! - [`Purpose::Flush`] leaves the headroom alone; garbage collection and jobs may use it, because
//!   they free more than they take.
//! - Safety never rests on time: a session that sleeps through its lease finds its keys revoked.

mod calls;
mod directory;
mod extents;
mod jobs;
mod outputs;
mod refusal;
mod sessions;
#[cfg(test)]
mod tests;

pub use extents::{Counts, Place};
pub use jobs::Job;
pub use outputs::JobId;
pub use refusal::Refusal;

use directory::Directory;
use extents::{Extents, Holder};
use forebay_env::Nanos;
use forebay_fabric::Rights;
use forebay_proto::{Epoch, ExtentId, ExtentRange, Purpose, SessionId, ShardKey, StoreId, Text};
use jobs::Jobs;
use outputs::Outputs;
use sessions::Sessions;

/// What does not change while a node runs.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The node's number.
    pub node: u32,
    /// Its incarnation.
    pub incarnation: u64,
    /// Length of an extent, bytes.
    pub extent_bytes: u64,
    /// Extents in all.
    pub extents: u32,
    /// Free extents that only garbage collection and jobs get.
    pub headroom_extents: u32,
    /// Extents kept for jobs.
    pub kept_extents: u32,
    /// Most extents of a tenant.
    pub quota_extents: Option<u64>,
    /// How long a session lives without a call, nanoseconds.
    pub lease: Nanos,
    /// Whether jobs can be run.
    pub jobs: bool,
}

/// What is to be done for a decision to be true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Revoke the session's key to the extent, then say [`State::revoked`].
    Revoke {
        /// The session; it may have ended.
        session: SessionId,
        /// The extent.
        extent: ExtentId,
    },
    /// Fill the extent with zeros, then say [`State::zeroed`].
    Zero {
        /// The extent.
        extent: ExtentId,
    },
}

/// What a call leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// This reply.
    Reply(Vec<u8>),
    /// Keys of these extents, given to the session.
    Grant(SessionId, Vec<(ExtentId, Rights)>),
    /// The result of a job, when it has run.
    Job(Job),
}

/// A session that ended otherwise than by closing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedSession {
    /// The session.
    pub session: SessionId,
    /// What it called itself.
    pub name: Text,
}

/// Why a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Its link has ended, and its keys with it.
    LinkGone,
    /// Its link is there: its keys must be revoked.
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
    /// Outputs that were freed in this reading epoch and may still be read.
    retired_ranges: Vec<(u64, ShardKey, ExtentRange)>,
    reading_epoch: u64,
    last_tick: Nanos,
    commands: Vec<Command>,
}

impl State {
    /// A node at its start: all extents free or kept, and zero.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            extents: Extents::new(settings.extents, settings.kept_extents),
            sessions: Sessions::new(),
            directory: Directory::new(),
            jobs: Jobs::new(),
            outputs: Outputs::new(settings.extent_bytes),
            retired_ranges: Vec::new(),
            reading_epoch: 1,
            last_tick: 0,
            commands: Vec::new(),
        }
    }

    /// What does not change.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What is to be done since this was last asked.
    pub fn take_commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    /// Where an extent is.
    #[must_use]
    pub fn place(&self, extent: ExtentId) -> Option<Place> {
        self.extents.place(extent)
    }

    /// Lets time pass: sessions whose lease has run out lapse. Returns which did. When the node itself
    /// slept, leases are longer by that time.
    pub fn tick(&mut self, now: Nanos) -> Vec<EndedSession> {
        let slept = now.saturating_sub(self.last_tick);
        self.last_tick = now;
        if slept > self.settings.lease / 2 {
            self.sessions.postpone(slept);
        }
        let lapsed = self.sessions.expired(now);
        lapsed.into_iter().map(|session| self.end_session(session, End::LinkThere)).collect()
    }

    /// A link ended, and its keys with it. Returns the session that this ended.
    pub fn link_ended(&mut self, peer: u64) -> Option<EndedSession> {
        let session = self.sessions.of_peer(peer)?;
        Some(self.end_session(session, End::LinkGone))
    }

    /// No key of the session opens the extent any more.
    pub fn revoked(&mut self, session: SessionId, extent: ExtentId) {
        if let Some(found) = self.extents.get_mut(extent) {
            found.holders.retain(|holder| holder.session != session);
        }
        self.advance(extent);
    }

    /// A key that was promised could not be made.
    pub fn grant_failed(&mut self, session: SessionId, extent: ExtentId) {
        self.revoked(session, extent);
        if self.extents.place(extent) == Some(Place::Leased(session)) {
            self.retire(extent);
        }
    }

    /// The extent is filled with zeros.
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
        self.extents.set(extent, place);
    }

    /// Frees an extent.
    fn retire(&mut self, extent: ExtentId) {
        let untouched = self.extents.get(extent).is_some_and(|found| !found.touched && found.holders.is_empty());
        if untouched {
            self.make_available(extent);
            return;
        }
        self.extents.set(extent, Place::Retired(self.reading_epoch));
        self.reading_epoch += 1;
        self.advance(extent);
    }

    /// Moves a freed extent as far as it can go.
    fn advance(&mut self, extent: ExtentId) {
        let Some(found) = self.extents.get_mut(extent) else { return };
        if let Place::Retired(epoch) = found.place() {
            let reads = |holder: &Holder| !holder.revoking && self.sessions.may_read(holder.session, epoch);
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

    /// Frees an output of jobs, when its last reader has passed.
    fn retire_range(&mut self, shard: ShardKey, range: ExtentRange) {
        self.retired_ranges.push((self.reading_epoch, shard, range));
        self.reading_epoch += 1;
    }

    /// Readers have passed, perhaps: frees what nobody reads any more.
    fn readers_passed(&mut self) {
        let mut retired = std::mem::take(&mut self.retired_ranges);
        retired.retain(|&(epoch, shard, range)| {
            let holders = self.extents.get(range.extent).map_or(&[][..], |found| &found.holders);
            if holders.iter().any(|holder| self.sessions.may_read(holder.session, epoch)) {
                return true;
            }
            self.free_range(shard, range);
            false
        });
        self.retired_ranges.append(&mut retired);
        for extent in self.extents.recycling() {
            self.advance(extent);
        }
    }

    fn free_range(&mut self, shard: ShardKey, range: ExtentRange) {
        if let Some(emptied) = self.outputs.free(shard, range) {
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

    /// Ends what an earlier epoch of a shard allowed: keys to write, all keys of the owner `before`,
    /// jobs, outputs that nobody adopted. The session `keep` keeps its keys.
    fn fence(&mut self, shard: ShardKey, before: Option<SessionId>, keep: Option<SessionId>) {
        for extent in self.extents.select(|found| found.place().shard() == Some(shard)) {
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
        for (shard, range) in self.outputs.settled(|of, _| of == shard) {
            self.free_range(shard, range);
        }
    }

    fn end_session(&mut self, session: SessionId, end: End) -> EndedSession {
        let name = self.sessions.remove(session).unwrap_or_default();
        for extent in self.extents.select(|found| found.holders.iter().any(|holder| holder.session == session)) {
            match end {
                End::LinkThere => self.revoke(session, extent),
                End::LinkGone => self.revoked(session, extent),
            }
        }
        for extent in self.extents.select(|found| found.place() == Place::Leased(session)) {
            self.retire(extent);
        }
        self.jobs.fence(|job| job.session == session);
        for (shard, range) in self.outputs.settled(|_, of| of == session) {
            self.free_range(shard, range);
        }
        for key in self.directory.owned_by(session) {
            if let Some(shard) = self.directory.shard_mut(key) {
                shard.owner = None;
            }
        }
        for store in self.directory.private_to(session) {
            self.remove_store(store);
        }
        self.readers_passed();
        EndedSession { session, name }
    }

    /// Removes a store and frees its memory. Jobs that still run in it are fenced: they keep what they
    /// touch in place until they end, and their outputs are void.
    fn remove_store(&mut self, store: StoreId) {
        self.retired_ranges.retain(|(_, shard, _)| shard.store != store);
        for shard in self.directory.shards_of(store) {
            self.outputs.forget(shard);
            for extent in self.extents.select(|found| found.place().shard() == Some(shard)) {
                self.retire(extent);
            }
        }
        self.directory.remove(store);
        self.sessions.forget_store(store);
    }

    /// Checks that the session may get a key to an extent now.
    fn check_grant(&self, session: SessionId, extent: ExtentId, rights: Rights) -> Result<(), Refusal> {
        let writes = rights.contain(Rights::WRITE);
        let in_the_way = |holder: &Holder| {
            holder.revoking && (holder.session == session || writes && holder.rights.contain(Rights::WRITE))
        };
        match self.extents.get(extent) {
            Some(found) if found.holders.iter().any(in_the_way) => Err(Refusal::Held(extent)),
            Some(_) => Ok(()),
            None => Err(Refusal::Extent { extent, what: "does not exist" }),
        }
    }

    /// Notes that the session gets a key to an extent.
    fn grant(&mut self, session: SessionId, extent: ExtentId, rights: Rights) {
        if let Some(found) = self.extents.get_mut(extent) {
            match found.holder(session) {
                Some(holder) => holder.rights = rights,
                None => found.holders.push(Holder { session, rights, revoking: false }),
            }
            found.touched = true;
        }
    }

    /// Extents that the tenant of a session uses.
    fn used_by_tenant_of(&self, session: SessionId) -> u64 {
        let tenant = self.sessions.tenant(session);
        let uses = |place: Place| match place {
            Place::Leased(of) => self.sessions.tenant(of) == tenant,
            Place::Adopted(shard) | Place::Jobs(shard) => {
                self.directory.get(shard.store).map(|store| &store.tenant) == tenant
            }
            _ => false,
        };
        self.extents.iter().filter(|(_, found)| uses(found.place())).count() as u64
    }

    /// How many of `wanted` extents the session may have now.
    fn affordable(&self, session: SessionId, wanted: u64, purpose: Purpose) -> Result<u64, Refusal> {
        let counts = self.extents.counts();
        let headroom = u64::from(self.settings.headroom_extents);
        let available = match purpose {
            Purpose::Flush => counts.free.saturating_sub(headroom),
            Purpose::Collection => counts.free,
        };
        if available == 0 {
            return Err(match counts.recycling {
                0 => Refusal::Full { free: counts.free, headroom },
                recycling => Refusal::Recycling(recycling),
            });
        }
        let allowed = match self.settings.quota_extents {
            Some(quota) => match quota.saturating_sub(self.used_by_tenant_of(session)) {
                0 => return Err(Refusal::Quota(quota)),
                left => left,
            },
            None => wanted,
        };
        Ok(wanted.min(available).min(allowed))
    }

    /// Checks that the session opened the store, and that it is there.
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
