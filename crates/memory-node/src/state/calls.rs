//! Calls of compute nodes.

use super::{Answer, End, Place, Refusal, State};
use crate::state::jobs::Job;
use crate::state::outputs::JobId;
use forebay_env::Nanos;
use forebay_fabric::{PeerId, Rights};
use forebay_proto::calls::*;
use forebay_proto::replies::*;
use forebay_proto::{
    Blob, ExtentId, ExtentRange, MAX_LIST, Message, PROTOCOL_VERSION, Request, SessionId, ShardKey, StoreId, Text,
};

/// Names of a page of the directory: so many that a reply buffer of 64 KiB holds them.
const STORES_IN_PAGE: usize = 64;

fn done() -> Answer {
    reply(&Done {})
}

fn reply(message: &impl Message) -> Answer {
    Answer::Reply(message.encode())
}

impl State {
    /// Decides a call that came over the link `peer`.
    ///
    /// # Errors
    /// [`Refusal`]; nothing was done then.
    pub fn call(&mut self, now: Nanos, peer: PeerId, request: Request) -> Result<Answer, Refusal> {
        let request = match request {
            Request::OpenSession(call) => return self.open_session(now, peer, call),
            request => request,
        };
        self.sessions.touch(peer.0, session_of(&request), now.saturating_add(self.settings.lease))?;
        match request {
            Request::OpenSession(_) => Err(Refusal::SecondSession),
            Request::Renew(call) => {
                self.sessions.announce(call.session, call.reading_epoch);
                self.readers_passed();
                let lease_ms = self.lease_ms();
                Ok(reply(&Renewed { lease_ms, reading_epoch: self.reading_epoch }))
            }
            Request::PassReaders(call) => {
                self.sessions.announce(call.session, call.reading_epoch);
                let ended_epoch = self.reading_epoch;
                self.reading_epoch += 1;
                self.readers_passed();
                let oldest_epoch = self.oldest_reading_epoch();
                Ok(reply(&ReadersPassed { ended_epoch, oldest_epoch, reading_epoch: self.reading_epoch }))
            }
            Request::CloseSession(call) => {
                self.end_session(call.session, End::LinkThere);
                Ok(done())
            }
            Request::LeaseExtents(call) => self.lease_extents(&call),
            Request::ReturnExtents(call) => {
                self.check_places(&call.extents, Place::Leased(call.session), "is not leased to this session")?;
                call.extents.into_iter().for_each(|extent| self.retire(extent));
                Ok(done())
            }
            Request::MapExtents(call) => self.map_extents(&call),
            Request::AdoptExtents(call) => self.adopt_extents(call),
            Request::ReleaseExtents(call) => {
                self.check_owner(call.shard, call.session, call.epoch)?;
                self.check_places(&call.extents, Place::Adopted(call.shard), "is not adopted by this shard")?;
                call.extents.into_iter().for_each(|extent| self.retire(extent));
                Ok(done())
            }
            Request::ListExtents(call) => self.list_extents(&call),
            Request::ListRanges(call) => self.list_ranges(&call),
            Request::AdoptRanges(call) => {
                self.check_owner(call.shard, call.session, call.epoch)?;
                self.check_ranges(call.shard, &call.ranges)?;
                call.ranges.into_iter().for_each(|range| self.outputs.adopt(range));
                Ok(done())
            }
            Request::FreeBatch(call) => {
                self.check_owner(call.shard, call.session, call.epoch)?;
                self.check_ranges(call.shard, &call.ranges)?;
                for range in call.ranges {
                    self.retire_range(call.shard, range);
                }
                self.readers_passed();
                Ok(done())
            }
            Request::ShareExtents(call) => self.share_extents(call),
            Request::CreateStore(call) => self.create_store(call.session, call.name, call.config),
            Request::OpenStore(call) => self.open_store(call.session, &call.name),
            Request::ListStores(call) => self.list_stores(call.session, &call.after),
            Request::DropStore(call) => self.drop_store(call.session, call.store),
            Request::AcquireShard(call) => self.acquire_shard(call.session, call.shard, call.takeover),
            Request::ReleaseShard(call) => {
                self.check_owner(call.shard, call.session, call.epoch)?;
                if let Some(shard) = self.directory.shard_mut(call.shard) {
                    shard.owner = None;
                }
                self.fence(call.shard, None, None);
                Ok(done())
            }
            Request::SetRoot(call) => {
                self.check_open(call.session, call.shard.store)?;
                self.directory.check(call.shard, call.session, call.epoch)?.root = Some((call.epoch, call.root));
                Ok(done())
            }
            Request::GetRoot(call) => {
                self.check_open(call.session, call.shard.store)?;
                let shard = self.directory.shard(call.shard).ok_or(Refusal::NoShard(call.shard))?;
                let (epoch, root) = shard.root.clone().unwrap_or_default();
                Ok(reply(&Root { epoch, root }))
            }
            Request::SubmitJob(call) => {
                self.check_owner(call.shard, call.session, call.epoch)?;
                let start = Job {
                    id: JobId(0),
                    session: call.session,
                    shard: call.shard,
                    epoch: call.epoch,
                    attempt: call.attempt,
                    kind: call.kind,
                    arguments: call.arguments.0,
                    most_result_bytes: usize::MAX,
                };
                self.start_job(start).map(Answer::Job)
            }
            Request::GetStatistics(_) => Ok(reply(&self.statistics())),
        }
    }

    fn lease_ms(&self) -> u32 {
        u32::try_from(self.settings.lease / 1_000_000).unwrap_or(u32::MAX)
    }

    fn open_session(&mut self, now: Nanos, peer: PeerId, call: OpenSession) -> Result<Answer, Refusal> {
        if call.protocol != PROTOCOL_VERSION {
            return Err(Refusal::Protocol(call.protocol));
        }
        let deadline = now.saturating_add(self.settings.lease);
        let session = self.sessions.open(peer.0, call.tenant, call.name, deadline)?;
        Ok(reply(&SessionOpened {
            session,
            lease_ms: self.lease_ms(),
            node: self.settings.node,
            incarnation: self.settings.incarnation,
            extent_bytes: self.settings.extent_bytes,
            extents: self.settings.extents,
            headroom_extents: self.settings.headroom_extents,
            reading_epoch: self.reading_epoch,
            capabilities: if self.settings.jobs { capabilities::JOBS } else { 0 },
        }))
    }

    fn lease_extents(&mut self, call: &LeaseExtents) -> Result<Answer, Refusal> {
        let wanted = u64::from(call.count).min(MAX_LIST as u64);
        let affordable = self.affordable(call.session, wanted, call.purpose)?;
        let mut granted = Vec::new();
        for _ in 0..affordable {
            let Some(extent) = self.extents.first_free() else { break };
            self.extents.set(extent, Place::Leased(call.session));
            self.grant(call.session, extent, Rights::ALL);
            granted.push((extent, Rights::ALL));
        }
        Ok(Answer::Grant(call.session, granted))
    }

    fn map_extents(&mut self, call: &MapExtents) -> Result<Answer, Refusal> {
        self.check_open(call.session, call.shard.store)?;
        let shard = self.directory.shard(call.shard).ok_or(Refusal::NoShard(call.shard))?;
        let owned = shard.shared || shard.owner == Some(call.session);
        let mut granted = Vec::new();
        for &extent in &call.extents {
            let rights = match self.extents.place(extent) {
                Some(Place::Adopted(shard)) if shard == call.shard && owned && call.write => Rights::ALL,
                Some(Place::Adopted(shard) | Place::Jobs(shard)) if shard == call.shard => Rights::READ,
                _ => return Err(Refusal::Extent { extent, what: "is not memory of this shard" }),
            };
            granted.push((extent, rights));
        }
        for &(extent, rights) in &granted {
            self.check_grant(call.session, extent, rights)?;
        }
        for &(extent, rights) in &granted {
            self.grant(call.session, extent, rights);
        }
        Ok(Answer::Grant(call.session, granted))
    }

    fn adopt_extents(&mut self, call: AdoptExtents) -> Result<Answer, Refusal> {
        self.check_owner(call.shard, call.session, call.epoch)?;
        for &extent in &call.extents {
            match self.extents.place(extent) {
                Some(Place::Leased(session)) if session == call.session => {}
                Some(Place::Adopted(shard)) if shard == call.shard => {}
                _ => return Err(Refusal::Extent { extent, what: "is neither this session's nor this shard's" }),
            }
        }
        for extent in call.extents {
            self.extents.set(extent, Place::Adopted(call.shard));
        }
        Ok(done())
    }

    fn share_extents(&mut self, call: ShareExtents) -> Result<Answer, Refusal> {
        self.check_open(call.session, call.shard.store)?;
        self.check_places(&call.extents, Place::Leased(call.session), "is not leased to this session")?;
        self.directory.share(call.shard)?;
        for extent in call.extents {
            self.extents.set(extent, Place::Adopted(call.shard));
        }
        Ok(done())
    }

    /// The oldest reading epoch that some session may still read in. A session that has ended while
    /// keys of it are being revoked may read in any.
    fn oldest_reading_epoch(&self) -> u64 {
        let ended = |holder: &super::extents::Holder| holder.revoking && !self.sessions.contains(holder.session);
        if self.extents.iter().any(|(_, found)| found.holders.iter().any(ended)) {
            return 0;
        }
        self.sessions.oldest_reading_epoch()
    }

    fn list_extents(&self, call: &ListExtents) -> Result<Answer, Refusal> {
        self.check_open(call.session, call.shard.store)?;
        let mut extents: Vec<ExtentId> = self
            .extents
            .iter()
            .filter(|(id, found)| *id >= call.from && found.place().shard() == Some(call.shard))
            .map(|(id, _)| id)
            .take(MAX_LIST + 1)
            .collect();
        let more = extents.len() > MAX_LIST;
        extents.truncate(MAX_LIST);
        Ok(reply(&ExtentPage { extents, more }))
    }

    fn list_ranges(&self, call: &ListRanges) -> Result<Answer, Refusal> {
        self.check_open(call.session, call.shard.store)?;
        let retired = |range| self.retired_ranges.iter().any(|&(_, _, other)| other == range);
        let from = (call.from, call.offset);
        let mut ranges: Vec<ExtentRange> = self
            .outputs
            .adopted(call.shard)
            .filter(|&range| (range.extent, range.offset) >= from && !retired(range))
            .take(MAX_LIST + 1)
            .collect();
        let more = ranges.len() > MAX_LIST;
        ranges.truncate(MAX_LIST);
        Ok(reply(&RangePage { ranges, more }))
    }

    fn create_store(&mut self, session: SessionId, name: Text, config: Blob) -> Result<Answer, Refusal> {
        let tenant = self.sessions.tenant(session).cloned().unwrap_or_default();
        let store = self.directory.create(&tenant, name, config.clone(), session)?;
        if let Err(refusal) = self.sessions.opened(session, store) {
            self.directory.remove(store);
            return Err(refusal);
        }
        Ok(reply(&StoreOpened { store, config }))
    }

    fn open_store(&mut self, session: SessionId, name: &Text) -> Result<Answer, Refusal> {
        let tenant = self.sessions.tenant(session).cloned().unwrap_or_default();
        let (store, found) = self.directory.find(&tenant, name)?;
        let config = found.config.clone();
        self.sessions.opened(session, store)?;
        Ok(reply(&StoreOpened { store, config }))
    }

    fn list_stores(&self, session: SessionId, after: &Text) -> Result<Answer, Refusal> {
        let tenant = self.sessions.tenant(session).cloned().unwrap_or_default();
        let mut listed = self.directory.list(&tenant, after);
        let stores = listed
            .by_ref()
            .take(STORES_IN_PAGE)
            .map(|(store, name)| StoreEntry { store, name: name.clone() })
            .collect();
        let more = listed.next().is_some();
        Ok(reply(&StorePage { stores, more }))
    }

    fn drop_store(&mut self, session: SessionId, store: StoreId) -> Result<Answer, Refusal> {
        self.check_open(session, store)?;
        let foreign = |&key: &ShardKey| {
            let owner = self.directory.shard(key).and_then(|shard| shard.owner);
            owner.is_some_and(|owner| owner != session)
        };
        if self.directory.shards_of(store).iter().any(foreign) || self.jobs.use_store(store) {
            return Err(Refusal::StoreInUse(store));
        }
        self.remove_store(store);
        Ok(done())
    }

    fn acquire_shard(&mut self, session: SessionId, key: ShardKey, takeover: bool) -> Result<Answer, Refusal> {
        self.check_open(session, key.store)?;
        let before = self.directory.shard(key).and_then(|shard| shard.owner);
        let epoch = self.directory.acquire(key, session, takeover)?;
        self.fence(key, before, Some(session));
        Ok(reply(&ShardAcquired { epoch }))
    }

    fn check_places(&self, extents: &[ExtentId], expected: Place, what: &'static str) -> Result<(), Refusal> {
        match extents.iter().find(|&&extent| self.extents.place(extent) != Some(expected)) {
            Some(&extent) => Err(Refusal::Extent { extent, what }),
            None => no_doubles(extents).map_err(|extent| Refusal::Extent { extent, what: "is named twice" }),
        }
    }

    fn check_ranges(&self, shard: ShardKey, ranges: &[ExtentRange]) -> Result<(), Refusal> {
        let retired = |range| self.retired_ranges.iter().any(|&(_, _, other)| other == range);
        for &range in ranges {
            if !self.outputs.contains(shard, range) || self.outputs.is_being_written(range) || retired(range) {
                return Err(Refusal::Range(range));
            }
        }
        no_doubles(ranges).map_err(Refusal::Range)
    }

    /// The node's figures, as far as the state knows them.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let counts = self.extents.counts();
        let (job_bytes, pending_bytes) = self.outputs.bytes();
        let (stores, shards) = self.directory.len();
        let extent_bytes = self.settings.extent_bytes;
        Statistics {
            extents: u64::from(self.extents.len()),
            extent_bytes,
            free_extents: counts.free,
            headroom_extents: u64::from(self.settings.headroom_extents),
            leased_extents: counts.leased,
            adopted_extents: counts.adopted,
            kept_extents: counts.kept,
            job_extents: counts.jobs,
            recycling_extents: counts.recycling,
            allocated_bytes: (counts.leased + counts.adopted) * extent_bytes + job_bytes,
            live_bytes: counts.adopted * extent_bytes + job_bytes - pending_bytes,
            job_bytes,
            sessions: self.sessions.len() as u64,
            stores: stores as u64,
            shards: shards as u64,
            owned_shards: self.directory.iter().filter(|(_, shard)| shard.owner.is_some()).count() as u64,
            reading_epoch: self.reading_epoch,
            calls: 0,
            refused_calls: 0,
            malformed_messages: 0,
            lapsed_sessions: 0,
            queued_jobs: 0,
            running_jobs: 0,
            completed_jobs: 0,
            failed_jobs: 0,
            cpu_us: 0,
            uptime_ms: 0,
        }
    }
}

/// The first item that comes twice, as an error.
fn no_doubles<T: Copy + Ord>(items: &[T]) -> Result<(), T> {
    let mut sorted = items.to_vec();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(pair[0]),
        None => Ok(()),
    }
}

fn session_of(request: &Request) -> SessionId {
    match request {
        Request::OpenSession(_) => SessionId(0),
        Request::Renew(call) => call.session,
        Request::CloseSession(call) => call.session,
        Request::PassReaders(call) => call.session,
        Request::ShareExtents(call) => call.session,
        Request::LeaseExtents(call) => call.session,
        Request::ReturnExtents(call) => call.session,
        Request::MapExtents(call) => call.session,
        Request::AdoptExtents(call) => call.session,
        Request::ReleaseExtents(call) => call.session,
        Request::ListExtents(call) => call.session,
        Request::ListRanges(call) => call.session,
        Request::AdoptRanges(call) => call.session,
        Request::FreeBatch(call) => call.session,
        Request::CreateStore(call) => call.session,
        Request::OpenStore(call) => call.session,
        Request::ListStores(call) => call.session,
        Request::DropStore(call) => call.session,
        Request::AcquireShard(call) => call.session,
        Request::ReleaseShard(call) => call.session,
        Request::SetRoot(call) => call.session,
        Request::GetRoot(call) => call.session,
        Request::SubmitJob(call) => call.session,
        Request::GetStatistics(call) => call.session,
    }
}
