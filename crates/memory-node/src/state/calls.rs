//! Calls of compute nodes.

use super::{Answer, End, Place, Refusal, Resource, State, TenantId};
use crate::state::active::Job;
use crate::state::outputs::JobId;
use forebay_env::Nanos;
use forebay_fabric::{PeerId, Rights};
use forebay_proto::calls::*;
use forebay_proto::replies::*;
use forebay_proto::{
    Blob, Epoch, ExtentId, ExtentRange, MAX_LIST, Message, PROTOCOL_VERSION, Request, SessionId, ShardKey, StoreId,
    Text,
};

/// Names per page of the directory; this many fit into a reply buffer of 64 KiB.
const STORES_IN_PAGE: usize = 64;

fn done() -> Answer {
    reply(&Done {})
}

fn reply(message: &impl Message) -> Answer {
    Answer::Reply(message.encode())
}

impl State {
    /// Decides a call that came over the link `peer`, and counts it for the link's tenant.
    ///
    /// # Errors
    /// [`Refusal`]; then nothing was done.
    pub fn call(&mut self, now: Nanos, peer: PeerId, request: Request) -> Result<Answer, Refusal> {
        let tenant = self.tenant_of(peer.0).ok_or(Refusal::NoLink)?;
        let result = self.decide(now, peer, tenant, request);
        self.count(tenant, |figures| {
            figures.calls += 1;
            if let Err(refusal) = &result {
                figures.refused_calls += 1;
                figures.limited += u64::from(refusal.is_limit());
                figures.denied += u64::from(refusal.is_denial());
            }
        });
        result
    }

    fn decide(&mut self, now: Nanos, peer: PeerId, tenant: TenantId, request: Request) -> Result<Answer, Refusal> {
        let request = match request {
            Request::OpenSession(call) => return self.open_session(now, peer, tenant, call),
            request => request,
        };
        self.sessions.touch(peer.0, session_of(&request), now.saturating_add(self.settings.lease))?;
        self.check_rights(tenant, &request)?;
        match request {
            Request::OpenSession(_) => Err(Refusal::SecondSession),
            Request::Renew(call) => {
                let passed = self.sessions.announce(call.session, call.reading_epoch);
                self.readers_passed(tenant, passed);
                let lease_ms = self.lease_ms();
                Ok(reply(&Renewed { lease_ms, reading_epoch: self.reading_epoch(tenant) }))
            }
            Request::PassReaders(call) => {
                let passed = self.sessions.announce(call.session, call.reading_epoch);
                let ended_epoch = self.next_reading_epoch(tenant);
                self.readers_passed(tenant, passed);
                let oldest_epoch = self.oldest_reading_epoch(tenant);
                let reading_epoch = self.reading_epoch(tenant);
                Ok(reply(&ReadersPassed { ended_epoch, oldest_epoch, reading_epoch }))
            }
            Request::CloseSession(call) => {
                self.end_session(call.session, End::LinkThere);
                Ok(done())
            }
            Request::LeaseExtents(call) => self.lease_extents(tenant, &call),
            Request::ReturnExtents(call) => {
                self.check_places(&call.extents, Place::Leased(call.session), "is not leased to this session")?;
                call.extents.into_iter().for_each(|extent| self.retire(extent));
                Ok(done())
            }
            Request::MapExtents(call) => self.map_extents(tenant, &call),
            Request::AdoptExtents(call) => self.adopt_extents(call),
            Request::ReleaseExtents(call) => {
                self.check_owner(call.shard, call.session, call.epoch)?;
                self.check_places(&call.extents, Place::Adopted(call.shard), "is not adopted by this shard")?;
                call.extents.into_iter().for_each(|extent| self.retire(extent));
                Ok(done())
            }
            Request::ListExtents(call) => self.list_extents(&call),
            Request::ListRanges(call) => self.list_ranges(tenant, &call),
            Request::AdoptRanges(call) => {
                self.check_owner(call.shard, call.session, call.epoch)?;
                self.check_ranges(tenant, call.shard, &call.ranges)?;
                for range in call.ranges {
                    self.outputs.adopt(range);
                    self.tickets.forget(range);
                }
                Ok(done())
            }
            Request::FreeBatch(call) => {
                self.check_owner(call.shard, call.session, call.epoch)?;
                self.check_ranges(tenant, call.shard, &call.ranges)?;
                for range in call.ranges {
                    self.retire_range(tenant, call.shard, range);
                }
                Ok(done())
            }
            Request::ShareExtents(call) => self.share_extents(tenant, call),
            Request::ZeroRange(call) => self.zero_range(&call),
            Request::WriteRange(call) => self.write_range(call),
            Request::GetCredit(call) => self.get_credit(now, tenant, call),
            Request::CreateStore(call) => self.create_store(tenant, call.session, call.name, call.config),
            Request::OpenStore(call) => self.open_store(tenant, call.session, &call.name),
            Request::ListStores(call) => self.list_stores(tenant, &call.after),
            Request::DropStore(call) => self.drop_store(call.session, call.store),
            Request::AcquireShard(call) => self.acquire_shard(tenant, call.session, call.shard, call.takeover, None),
            Request::AcquireSeen(call) => {
                let seen = Some((call.epoch, call.root));
                self.acquire_shard(tenant, call.session, call.shard, call.takeover, seen)
            }
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
                    tenant,
                    shard: call.shard,
                    epoch: call.epoch,
                    attempt: call.attempt,
                    kind: call.kind,
                    arguments: call.arguments.0,
                    most_result_bytes: usize::MAX,
                };
                self.start_job(start).map(Answer::Job)
            }
            Request::OpenTicket(call) => self.open_ticket(tenant, &call),
            Request::CloseTicket(call) => self.close_ticket(&call),
            Request::JoinTicket(call) => self.join_ticket(tenant, &call),
            Request::ReadForTicket(call) => self.read_for_ticket(&call),
            Request::AllocateForTicket(call) => self.allocate_for_ticket(&call),
            Request::FinishTicket(call) => self.finish_ticket(&call),
            Request::Exchange(call) => self.exchange(now, tenant, &call),
            Request::GetStatistics(_) => Ok(self.statistics_for(tenant)),
            Request::GetLoad(_) => Ok(Answer::Reply(self.load_for(tenant).encode())),
            Request::ListTenants(call) => self.list_tenants(tenant, &call.after),
            Request::ListPool(call) => Ok(self.list_pool(now, tenant, &call)),
        }
    }

    fn check_rights(&self, tenant: TenantId, request: &Request) -> Result<(), Refusal> {
        let is_of_all = matches!(
            request,
            Request::Renew(_)
                | Request::CloseSession(_)
                | Request::GetStatistics(_)
                | Request::GetLoad(_)
                | Request::ListTenants(_)
                | Request::ListPool(_)
        );
        match self.tenants.get(tenant) {
            Some(tenant) if !tenant.rights.data && !is_of_all => Err(Refusal::NoData(tenant.name.clone())),
            _ => Ok(()),
        }
    }

    fn lease_ms(&self) -> u32 {
        u32::try_from(self.settings.lease / 1_000_000).unwrap_or(u32::MAX)
    }

    fn open_session(
        &mut self,
        now: Nanos,
        peer: PeerId,
        tenant: TenantId,
        call: OpenSession,
    ) -> Result<Answer, Refusal> {
        if call.protocol != PROTOCOL_VERSION {
            return Err(Refusal::Protocol(call.protocol));
        }
        let is = self.tenants.get(tenant).map(|tenant| tenant.name.clone()).unwrap_or_default();
        if !call.tenant.as_str().is_empty() && call.tenant != is {
            return Err(Refusal::OtherTenant { is });
        }
        self.tenants.check(tenant, Resource::Sessions, 1)?;
        let deadline = now.saturating_add(self.settings.lease);
        let session = self.sessions.open(peer.0, tenant, call.name, deadline)?;
        self.tenants.take(tenant, Resource::Sessions, 1);
        Ok(reply(&SessionOpened {
            session,
            lease_ms: self.lease_ms(),
            node: self.settings.node,
            incarnation: self.settings.incarnation,
            extent_bytes: self.settings.extent_bytes,
            extents: self.settings.extents,
            headroom_extents: self.settings.headroom_extents,
            reading_epoch: self.reading_epoch(tenant),
            capabilities: if self.settings.job_threads > 0 { capabilities::JOBS } else { 0 },
        }))
    }

    fn lease_extents(&mut self, tenant: TenantId, call: &LeaseExtents) -> Result<Answer, Refusal> {
        let wanted = u64::from(call.count).min(MAX_LIST as u64);
        let affordable = self.affordable(tenant, wanted, call.purpose)?;
        let mut granted = Vec::new();
        for _ in 0..affordable {
            let Some(extent) = self.extents.first_free().or_else(|| self.extents.first_kept()) else { break };
            self.give_out(extent, Place::Leased(call.session), tenant);
            self.grant(call.session, extent, Rights::ALL);
            granted.push((extent, Rights::ALL));
        }
        Ok(Answer::Grant(call.session, granted))
    }

    fn map_extents(&mut self, tenant: TenantId, call: &MapExtents) -> Result<Answer, Refusal> {
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
        let has = |extent| self.extents.get(extent).is_some_and(|found| found.is_held_by(call.session));
        let more = granted.iter().filter(|(extent, _)| !has(*extent)).count();
        self.tenants.check(tenant, Resource::Keys, more as u64)?;
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

    fn share_extents(&mut self, tenant: TenantId, call: ShareExtents) -> Result<Answer, Refusal> {
        self.check_open(call.session, call.shard.store)?;
        self.check_places(&call.extents, Place::Leased(call.session), "is not leased to this session")?;
        if self.directory.shard(call.shard).is_none() {
            self.tenants.check(tenant, Resource::Shards, 1)?;
            self.directory.share(call.shard)?;
            self.tenants.take(tenant, Resource::Shards, 1);
        }
        self.directory.share(call.shard)?;
        for extent in call.extents {
            self.extents.set(extent, Place::Adopted(call.shard));
        }
        Ok(done())
    }

    /// The oldest reading epoch that some session of the tenant may still read in. A session that has ended
    /// may read in any epoch while its keys are being revoked.
    fn oldest_reading_epoch(&self, tenant: TenantId) -> u64 {
        let ended = |holder: &super::extents::Holder| holder.revoking && !self.sessions.contains(holder.session);
        let mut mine = self.extents.iter().filter(|(_, found)| found.tenant() == Some(tenant));
        if mine.any(|(_, found)| found.holders.iter().any(ended)) {
            return 0;
        }
        self.sessions.oldest_reading_epoch(tenant)
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

    fn list_ranges(&self, tenant: TenantId, call: &ListRanges) -> Result<Answer, Refusal> {
        self.check_open(call.session, call.shard.store)?;
        let adopted = self.outputs.adopted(call.shard, (call.from, call.offset));
        let mut ranges: Vec<ExtentRange> =
            adopted.filter(|&range| !self.is_retired(tenant, range)).take(MAX_LIST + 1).collect();
        let more = ranges.len() > MAX_LIST;
        ranges.truncate(MAX_LIST);
        Ok(reply(&RangePage { ranges, more }))
    }

    fn create_store(
        &mut self,
        tenant: TenantId,
        session: SessionId,
        name: Text,
        config: Blob,
    ) -> Result<Answer, Refusal> {
        self.tenants.check(tenant, Resource::Stores, 1)?;
        let store = self.directory.create(tenant, name, config.clone(), session)?;
        if let Err(refusal) = self.sessions.opened(session, store) {
            self.directory.remove(store);
            return Err(refusal);
        }
        self.tenants.take(tenant, Resource::Stores, 1);
        Ok(reply(&StoreOpened { store, config }))
    }

    fn open_store(&mut self, tenant: TenantId, session: SessionId, name: &Text) -> Result<Answer, Refusal> {
        let (store, found) = self.directory.find(tenant, name)?;
        let config = found.config.clone();
        self.sessions.opened(session, store)?;
        Ok(reply(&StoreOpened { store, config }))
    }

    fn list_stores(&self, tenant: TenantId, after: &Text) -> Result<Answer, Refusal> {
        let mut listed = self.directory.list(tenant, after);
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
        self.sessions.forget_store(store);
        Ok(done())
    }

    fn acquire_shard(
        &mut self,
        tenant: TenantId,
        session: SessionId,
        key: ShardKey,
        takeover: bool,
        seen: Option<(Epoch, Blob)>,
    ) -> Result<Answer, Refusal> {
        self.check_open(session, key.store)?;
        let root = self.directory.shard(key).and_then(|shard| shard.root.as_ref());
        if seen.is_some_and(|seen| root.cloned().unwrap_or_default() != seen) {
            return Err(Refusal::Replaced(key));
        }
        let is_new = self.directory.shard(key).is_none();
        if is_new {
            self.tenants.check(tenant, Resource::Shards, 1)?;
        }
        let before = self.directory.shard(key).and_then(|shard| shard.owner);
        let epoch = self.directory.acquire(key, session, takeover)?;
        self.tenants.take(tenant, Resource::Shards, u64::from(is_new));
        self.fence(key, before, Some(session));
        Ok(reply(&ShardAcquired { epoch }))
    }

    fn zero_range(&mut self, call: &ZeroRange) -> Result<Answer, Refusal> {
        self.check_owner(call.shard, call.session, call.epoch)?;
        let range = call.range;
        let place = self.extents.place(range.extent);
        if place != Some(Place::Adopted(call.shard)) && place != Some(Place::Leased(call.session)) {
            let what = "is neither adopted by this shard nor leased by its owner";
            return Err(Refusal::Extent { extent: range.extent, what });
        }
        if !self.is_within_extent(range) || range.length > MAX_ZEROED_BYTES {
            return Err(Refusal::Range(range));
        }
        Ok(Answer::Zero(range))
    }

    fn write_range(&mut self, call: WriteRange) -> Result<Answer, Refusal> {
        let WriteRange { session, shard, epoch, extent, offset, bytes } = call;
        self.check_owner(shard, session, epoch)?;
        match self.extents.place(extent) {
            Some(Place::Adopted(of) | Place::Jobs(of)) if of == shard => {}
            Some(Place::Leased(by)) if by == session => {}
            _ => {
                return Err(Refusal::Extent {
                    extent,
                    what: "is neither memory of this shard nor leased by its owner",
                });
            }
        }
        let range = ExtentRange { extent, offset, length: bytes.bytes().len() as u64 };
        if !self.is_within_extent(range) {
            return Err(Refusal::Range(range));
        }
        Ok(Answer::Write(range, bytes))
    }

    fn is_within_extent(&self, range: ExtentRange) -> bool {
        range.offset.checked_add(range.length).is_some_and(|end| end <= self.settings.extent_bytes)
    }

    fn check_places(&self, extents: &[ExtentId], expected: Place, what: &'static str) -> Result<(), Refusal> {
        match extents.iter().find(|&&extent| self.extents.place(extent) != Some(expected)) {
            Some(&extent) => Err(Refusal::Extent { extent, what }),
            None => no_doubles(extents).map_err(|extent| Refusal::Extent { extent, what: "is named twice" }),
        }
    }

    fn check_ranges(&self, tenant: TenantId, shard: ShardKey, ranges: &[ExtentRange]) -> Result<(), Refusal> {
        for &range in ranges {
            let writer = self.outputs.written_by(range);
            if writer.is_some_and(|job| self.tickets.is_ending(job)) {
                return Err(Refusal::Written(range));
            }
            if !self.outputs.contains(shard, range) || writer.is_some() || self.is_retired(tenant, range) {
                return Err(Refusal::Range(range));
            }
        }
        no_doubles(ranges).map_err(Refusal::Range)
    }

    fn is_retired(&self, tenant: TenantId, range: ExtentRange) -> bool {
        self.tenants.get(tenant).is_some_and(|tenant| tenant.retired.contains(range))
    }
}

/// Returns the first item that occurs twice as an error.
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
        Request::ZeroRange(call) => call.session,
        Request::WriteRange(call) => call.session,
        Request::GetCredit(call) => call.session,
        Request::CreateStore(call) => call.session,
        Request::OpenStore(call) => call.session,
        Request::ListStores(call) => call.session,
        Request::DropStore(call) => call.session,
        Request::AcquireShard(call) => call.session,
        Request::ReleaseShard(call) => call.session,
        Request::SetRoot(call) => call.session,
        Request::GetRoot(call) => call.session,
        Request::AcquireSeen(call) => call.session,
        Request::SubmitJob(call) => call.session,
        Request::OpenTicket(call) => call.session,
        Request::CloseTicket(call) => call.session,
        Request::JoinTicket(call) => call.session,
        Request::ReadForTicket(call) => call.session,
        Request::AllocateForTicket(call) => call.session,
        Request::FinishTicket(call) => call.session,
        Request::Exchange(call) => call.session,
        Request::GetStatistics(call) => call.session,
        Request::GetLoad(call) => call.session,
        Request::ListTenants(call) => call.session,
        Request::ListPool(call) => call.session,
    }
}
