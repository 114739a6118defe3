//! Tests the state against a model of the clients, the fabric and the zeroing that act on its
//! decisions.
//!
//! The model carries commands out late and in any order. It remembers which keys are valid and what
//! was written where. After every event it checks that
//! - every extent is in one place and the counts are right,
//! - memory that is given out is zero, and nobody else can write it,
//! - ordinary leases leave the headroom alone,
//! - adopted memory stays until its shard frees it, and all other memory comes back in the end.

use super::outputs::OutputBytes;
use super::*;
use forebay_base::ErrorKind;
use forebay_fabric::PeerId;
use forebay_proto::calls::*;
use forebay_proto::replies::{Credit, ReadersPassed, SessionOpened, ShardAcquired, StoreOpened};
use forebay_proto::{Blob, Message, PROTOCOL_VERSION, Request, Rest, ShardId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const SECOND: Nanos = 1_000_000_000;
pub(super) const LEASE: Nanos = 10 * SECOND;
/// The tenant of all who have not proven who they are. It is the first one here.
const TENANT: TenantId = TenantId(1);
pub(super) const EXTENT_BYTES: u64 = 64 << 10;

pub(super) fn settings(extents: u32, headroom_extents: u32, kept_extents: u32) -> Settings {
    Settings {
        node: 1,
        incarnation: 2,
        extent_bytes: EXTENT_BYTES,
        extents,
        headroom_extents,
        kept_extents,
        lease: LEASE,
        job_threads: 1,
        schedules: true,
        placement: Policy::default(),
    }
}

pub(super) fn text(text: &str) -> Text {
    Text::new(text).unwrap()
}

/// Checks that the counts by tenant match what exists, and are within the limits.
pub(super) fn check_tenants(state: &State) {
    for (id, tenant) in state.tenants.iter() {
        let is_own = |store: StoreId| state.directory.get(store).is_some_and(|store| store.tenant == id);
        let extents = || state.extents.iter().filter(|(_, found)| found.tenant() == Some(id));
        let ranges = |shard: &ShardKey| state.outputs.count(*shard);
        let shards: Vec<_> = state.directory.iter().map(|(key, _)| key).filter(|key| is_own(key.store)).collect();
        let there = |resource| match resource {
            Resource::Extents => extents().count(),
            Resource::Links => state.links.values().filter(|link| link.tenant == id).count(),
            Resource::Sessions => state.sessions.iter().filter(|(_, session)| session.tenant == id).count(),
            Resource::Stores => state.directory.stores().filter(|store| is_own(*store)).count(),
            Resource::Shards => shards.len(),
            Resource::Keys => {
                extents().map(|(_, found)| found.holders.len()).sum::<usize>() + state.tickets.of_tenant(id).1
            }
            Resource::Ranges => shards.iter().map(ranges).sum(),
            Resource::Jobs => state.jobs.of_tenant(id) + state.tickets.of_tenant(id).0,
            // The fabric counts endpoints.
            Resource::Endpoints => 0,
            Resource::Reserve | Resource::Calls | Resource::Bytes => tenant.used.of(resource) as usize,
        } as u64;
        for resource in Resource::ALL {
            let used = match resource {
                Resource::Extents => state.extents.of_tenant(id).given_out(),
                _ => tenant.used.of(resource),
            };
            let name = resource.name();
            assert_eq!(used, there(resource), "{name} of {}", tenant.name);
            // What it owes the reserve comes on top of what it may have.
            let own = if resource == Resource::Extents { state.own_memory(id) } else { used };
            assert!(own <= tenant.limits.of(resource), "{name} of {}", tenant.name);
        }
        let whole = u64::from(state.settings.headroom_extents + state.settings.kept_extents);
        assert!(tenant.used.of(Resource::Reserve) <= whole, "{} owes more than the reserve", tenant.name);
    }
}

/// A state and its surroundings.
pub(super) struct World {
    pub(super) state: State,
    pub(super) now: Nanos,
    /// Valid keys, and whether each allows writing.
    keys: BTreeMap<(SessionId, ExtentId), bool>,
    revoking: Vec<(SessionId, ExtentId)>,
    zeroing: Vec<ExtentId>,
    /// Extents that are not zero.
    written: BTreeSet<ExtentId>,
    /// Sessions by link.
    pub(super) sessions: BTreeMap<u64, SessionId>,
    shards: BTreeMap<ShardKey, (SessionId, Epoch)>,
    adopted: BTreeMap<ExtentId, ShardKey>,
    jobs: Vec<(JobId, Vec<ExtentRange>)>,
    outputs: Vec<(ShardKey, ExtentRange)>,
    planted: Option<Plant>,
}

/// A bug in the execution of commands, which the model must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plant {
    /// A key is reported as revoked but still valid.
    KeyStaysValid,
    /// An extent is reported as zeroed but is not.
    NotZeroed,
    /// A command gets lost.
    CommandLost,
}

impl World {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            state: State::new(settings, &TenantsOptions::default()),
            now: 0,
            keys: BTreeMap::new(),
            revoking: Vec::new(),
            zeroing: Vec::new(),
            written: BTreeSet::new(),
            sessions: BTreeMap::new(),
            shards: BTreeMap::new(),
            adopted: BTreeMap::new(),
            jobs: Vec::new(),
            outputs: Vec::new(),
            planted: None,
        }
    }

    fn reading_epoch(&self) -> u64 {
        self.state.reading_epoch(TENANT)
    }

    /// Makes a call over a link and notes what follows from it.
    pub(super) fn call(&mut self, peer: u64, request: impl Into<Request>) -> Result<Answer, Refusal> {
        let answer = self.state.call(self.now, PeerId(peer), request.into());
        self.collect();
        if let Ok(Answer::Grant(session, granted)) = &answer {
            for &(extent, rights) in granted {
                let writes = rights.contain(Rights::WRITE);
                let leased = self.state.place(extent) == Some(Place::Leased(*session));
                if leased {
                    assert!(!self.written.contains(&extent), "{extent} was leased with somebody's bytes in it");
                    assert!(!self.keys.keys().any(|&(_, of)| of == extent), "{extent} was leased under an old key");
                }
                let shard = self.state.place(extent).and_then(|place| place.shard());
                if writes
                    && !shard.and_then(|shard| self.state.directory.shard(shard)).is_some_and(|shard| shard.shared)
                {
                    let other = |(&(holder, of), &writes): (&(SessionId, ExtentId), &bool)| {
                        of == extent && holder != *session && writes
                    };
                    assert!(!self.keys.iter().any(other), "{extent} has two writers");
                }
                // A session that asks for less keeps the key that it has.
                *self.keys.entry((*session, extent)).or_default() |= writes;
            }
        }
        answer
    }

    fn collect(&mut self) {
        let mut commands = self.state.take_commands();
        if self.planted == Some(Plant::CommandLost) {
            commands.truncate(1);
        }
        for command in commands {
            match command {
                Command::Revoke { session, extent } => self.revoking.push((session, extent)),
                Command::Zero { extent } => self.zeroing.push(extent),
                Command::EndKeys { job } => self.state.keys_ended(job),
                Command::Close { peer, .. } => panic!("link {peer} was closed"),
            }
        }
    }

    fn revoke_one(&mut self, which: usize) {
        if !self.revoking.is_empty() {
            let (session, extent) = self.revoking.swap_remove(which % self.revoking.len());
            if self.planted != Some(Plant::KeyStaysValid) {
                self.keys.remove(&(session, extent));
            }
            self.state.revoked(session, extent);
            self.collect();
        }
    }

    fn zero_one(&mut self, which: usize) {
        if !self.zeroing.is_empty() {
            let extent = self.zeroing.swap_remove(which % self.zeroing.len());
            assert!(!self.keys.keys().any(|&(_, of)| of == extent), "{extent} is zeroed while a key is valid");
            if self.planted != Some(Plant::NotZeroed) {
                self.written.remove(&extent);
            }
            self.state.zeroed(extent);
            self.collect();
        }
    }

    /// Carries out all outstanding commands.
    pub(super) fn settle(&mut self) {
        while !self.revoking.is_empty() || !self.zeroing.is_empty() {
            self.revoke_one(0);
            self.zero_one(0);
        }
    }

    pub(super) fn open(&mut self, peer: u64) -> SessionId {
        if self.state.tenant_of(peer).is_none() {
            self.state.link_opened(peer, &Identity::anonymous()).unwrap();
        }
        let call = OpenSession { protocol: PROTOCOL_VERSION, tenant: text(""), name: text("test"), capabilities: 0 };
        let Ok(Answer::Reply(bytes)) = self.call(peer, call) else { panic!("no session") };
        let session = SessionOpened::decode(&bytes).unwrap().session;
        self.sessions.insert(peer, session);
        session
    }

    /// Ends the link, and its keys with it.
    pub(super) fn cut(&mut self, peer: u64) {
        let gone = self.sessions.remove(&peer);
        self.keys.retain(|(session, _), _| Some(*session) != gone);
        self.state.link_ended(peer);
        let (mine, others) = self.revoking.drain(..).partition(|(session, _)| Some(*session) == gone);
        self.revoking = others;
        for (session, extent) in Vec::from_iter::<Vec<_>>(mine) {
            self.state.revoked(session, extent);
        }
        self.collect();
        self.shards.retain(|_, (owner, _)| Some(*owner) != gone);
    }

    pub(super) fn store(&mut self, peer: u64, name: &str) -> StoreId {
        let session = self.sessions[&peer];
        let open = OpenStore { session, name: text(name) };
        let create = CreateStore { session, name: text(name), config: Blob::default() };
        let opened = self.call(peer, open).or_else(|_| self.call(peer, create));
        let Ok(Answer::Reply(bytes)) = opened else { panic!("no store") };
        StoreOpened::decode(&bytes).unwrap().store
    }

    pub(super) fn acquire(&mut self, peer: u64, shard: ShardKey, takeover: bool) -> Result<Epoch, Refusal> {
        let session = self.sessions[&peer];
        match self.call(peer, AcquireShard { session, shard, takeover })? {
            Answer::Reply(bytes) => {
                let epoch = ShardAcquired::decode(&bytes).unwrap().epoch;
                self.shards.insert(shard, (session, epoch));
                Ok(epoch)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Acquires the first shard of a store, which nobody owns.
    fn own_shard(&mut self, peer: u64, store: StoreId) -> (ShardKey, Epoch) {
        let shard = ShardKey { store, shard: ShardId(0) };
        (shard, self.acquire(peer, shard, false).unwrap())
    }

    pub(super) fn lease(&mut self, peer: u64, count: u32, purpose: Purpose) -> Result<Vec<ExtentId>, Refusal> {
        let session = self.sessions[&peer];
        match self.call(peer, LeaseExtents { session, count, purpose })? {
            Answer::Grant(_, granted) => Ok(granted.into_iter().map(|(extent, _)| extent).collect()),
            other => panic!("{other:?}"),
        }
    }

    /// Checks that everybody holds exactly what is counted for it, and a database what its sessions and
    /// stores hold.
    fn check_holders(&self) {
        let held = |is_held: &dyn Fn(Place) -> bool| {
            self.state.extents.iter().filter(|(_, found)| is_held(found.place())).count() as u64
        };
        for &session in self.sessions.values() {
            assert_eq!(self.state.extents.of_session(session), held(&|place| place == Place::Leased(session)));
        }
        for store in self.state.directory.stores() {
            let is_held = |place: Place| place.shard().is_some_and(|shard| shard.store == store);
            assert_eq!(self.state.extents.of_store(store), held(&is_held));
        }
        let databases = self.state.databases(TENANT);
        let counts = self.state.extents.counts();
        assert!(databases.len() <= self.sessions.len());
        let all: u64 = databases.values().map(|database| database.held).sum();
        assert!(all <= counts.leased + counts.adopted + counts.jobs, "credits leak: {all} of {counts:?}");
    }

    /// Checks the invariants of [`extents`] and the counts.
    fn check(&self) {
        let mut counts = Counts::default();
        for (id, extent) in self.state.extents.iter() {
            let clean = extent.holders.is_empty() && extent.pins == 0;
            match extent.place() {
                Place::Free => counts.free += 1,
                Place::Leased(session) => {
                    counts.leased += 1;
                    assert!(self.state.sessions.contains(session), "{id} is leased to nobody");
                }
                Place::Adopted(shard) => {
                    counts.adopted += 1;
                    assert_eq!(self.adopted.get(&id), Some(&shard));
                }
                Place::Kept => counts.kept += 1,
                Place::Jobs(_) => counts.jobs += 1,
                Place::Retired(_) | Place::Revoking | Place::Dirty => counts.recycling += 1,
            }
            if matches!(extent.place(), Place::Free | Place::Kept) {
                assert!(clean && !extent.touched && !self.written.contains(&id), "{id} is free but not clean");
            }
            if extent.place() == Place::Dirty {
                assert!(clean, "{id} is zeroed under somebody's key");
            }
        }
        assert_eq!(counts, self.state.extents.counts());
        self.check_holders();
        check_tenants(&self.state);
        assert_eq!(counts.adopted, self.adopted.len() as u64);
    }
}

/// Sessions of the links 1 and 2 that have opened a store. The first one owns a shard of it.
fn shared_shard() -> (World, [SessionId; 2], ShardKey, Epoch) {
    let mut world = World::new(settings(8, 1, 1));
    let sessions = [1, 2].map(|peer| world.open(peer));
    let store = world.store(1, "db");
    world.store(2, "db");
    let (shard, epoch) = world.own_shard(1, store);
    (world, sessions, shard, epoch)
}

#[test]
fn another_version_is_refused_and_told_so() {
    let mut world = World::new(settings(8, 1, 1));
    world.state.link_opened(1, &Identity::anonymous()).unwrap();
    for protocol in [1, PROTOCOL_VERSION + 1] {
        let call = OpenSession { protocol, tenant: text(""), name: text("test"), capabilities: 0 };
        let refused = world.call(1, call).unwrap_err();
        assert_eq!((&refused, refused.kind()), (&Refusal::Protocol(protocol), ErrorKind::Unsupported));
        let said = refused.to_string();
        assert!(
            said.contains(&format!("version {protocol} ")) && said.contains(&format!("{PROTOCOL_VERSION}")),
            "{said}"
        );
    }
    world.open(1);
}

#[test]
fn a_session_lapses_with_its_lease_and_not_before() {
    let mut world = World::new(settings(8, 1, 1));
    let session = world.open(1);
    world.lease(1, 2, Purpose::Flush).unwrap();
    for second in 1..=30 {
        world.now = second * SECOND;
        if second % 3 == 0 && second <= 15 {
            world.call(1, Renew { session, reading_epoch: u64::MAX }).unwrap();
        }
        let lapsed = world.state.tick(world.now);
        assert_eq!(lapsed.len(), usize::from(second == 25), "second {second}");
    }
    world.collect();
    assert_eq!(world.revoking.len(), 2, "the link is there: its keys must be revoked");
    assert_eq!(world.state.extents.counts().free, 5);
    let refused = world.call(1, Renew { session, reading_epoch: u64::MAX }).unwrap_err();
    assert_eq!((refused.clone(), refused.kind()), (Refusal::NoSession(session), ErrorKind::Fenced));
    world.settle();
    assert_eq!(world.state.extents.counts().free, 7);
}

#[test]
fn a_node_that_slept_blames_nobody() {
    let mut world = World::new(settings(8, 1, 1));
    world.open(1);
    assert!(world.state.tick(3600 * SECOND).is_empty());
    assert!(world.state.tick(3604 * SECOND).is_empty());
    assert!(world.state.tick(3608 * SECOND).is_empty());
    assert_eq!(world.state.tick(3612 * SECOND).len(), 1);
}

#[test]
fn freed_memory_waits_for_its_readers() {
    let (mut world, [writer, reader], shard, epoch) = shared_shard();
    let extents = world.lease(1, 1, Purpose::Flush).unwrap();
    world.call(1, AdoptExtents { session: writer, shard, epoch, extents: extents.clone() }).unwrap();
    world.call(2, MapExtents { session: reader, shard, write: true, extents: extents.clone() }).unwrap();
    let began = world.reading_epoch();
    world.call(2, Renew { session: reader, reading_epoch: began }).unwrap();
    world.call(1, ReleaseExtents { session: writer, shard, epoch, extents: extents.clone() }).unwrap();
    assert_eq!(world.state.place(extents[0]), Some(Place::Retired(began)));
    assert!(world.revoking.is_empty(), "the reader still reads");
    world.call(2, Renew { session: reader, reading_epoch: began }).unwrap();
    assert!(world.revoking.is_empty());
    world.call(2, Renew { session: reader, reading_epoch: world.reading_epoch() }).unwrap();
    assert_eq!(world.revoking.len(), 2);
    world.settle();
    assert_eq!(world.state.place(extents[0]), Some(Place::Free));
    // A dead reader holds up nobody.
    let extents = world.lease(1, 1, Purpose::Flush).unwrap();
    world.call(1, AdoptExtents { session: writer, shard, epoch, extents: extents.clone() }).unwrap();
    world.call(2, MapExtents { session: reader, shard, write: true, extents: extents.clone() }).unwrap();
    world.call(2, Renew { session: reader, reading_epoch: 0 }).unwrap();
    world.call(1, ReleaseExtents { session: writer, shard, epoch, extents: extents.clone() }).unwrap();
    world.cut(2);
    world.settle();
    assert_eq!(world.state.place(extents[0]), Some(Place::Free));
}

#[test]
fn freed_outputs_are_looked_at_when_a_reader_passes_them() {
    const OUTPUTS: u64 = 10;
    let visited = |look: &mut dyn FnMut()| {
        retired::VISITED.set(0);
        look();
        retired::VISITED.get() as u64
    };
    let (mut world, [writer, reader], shard, epoch) = shared_shard();
    // Outputs that the reader may still read.
    let park = |world: &mut World, attempt| {
        let submit = SubmitJob { session: writer, shard, epoch, attempt, kind: 1, arguments: Rest(Vec::new()) };
        let Ok(Answer::Job(job)) = world.call(1, submit) else { panic!("no job") };
        let ranges: Vec<_> = (0..OUTPUTS).map(|_| world.state.job_allocate(job.id, 4096).unwrap()).collect();
        world.state.job_ended(job.id, true);
        world.call(1, AdoptRanges { session: writer, shard, epoch, ranges: ranges.clone() }).unwrap();
        let extents = vec![ranges[0].extent];
        world.call(2, MapExtents { session: reader, shard, write: false, extents }).unwrap();
        let reading_epoch = world.reading_epoch();
        world.call(2, Renew { session: reader, reading_epoch }).unwrap();
        world.call(1, FreeBatch { session: writer, shard, epoch, ranges }).unwrap();
        assert_eq!(world.state.outputs.count(shard) as u64, OUTPUTS);
        reading_epoch
    };
    let renew = |world: &mut World, peer, session, reading_epoch| {
        world.call(peer, Renew { session, reading_epoch }).unwrap();
    };
    let began = park(&mut world, 1);
    // A session that passes no epoch examines nothing; one that passes some examines what was freed
    // meanwhile.
    let idle = visited(&mut || {
        (0..9).for_each(|_| renew(&mut world, 2, reader, began));
        (0..9).for_each(|_| renew(&mut world, 2, reader, 0));
        (0..9).for_each(|_| renew(&mut world, 1, writer, u64::MAX));
    });
    assert_eq!((idle, world.state.outputs.count(shard) as u64), (0, OUTPUTS));
    assert_eq!(visited(&mut || renew(&mut world, 2, reader, began + 1)), 1);
    assert_eq!(world.state.outputs.count(shard) as u64, OUTPUTS - 1);
    assert_eq!(visited(&mut || renew(&mut world, 2, reader, u64::MAX)), OUTPUTS - 1);
    assert_eq!(world.state.outputs.count(shard), 0);
    // A reader whose session has ended reads until its key is gone.
    park(&mut world, 2);
    world.call(1, AcquireShard { session: writer, shard, takeover: true }).unwrap();
    world.call(2, CloseSession { session: reader }).unwrap();
    assert_eq!(world.state.outputs.count(shard) as u64, OUTPUTS);
    let extent = world.state.extents.select(|found| found.is_held_by(reader))[0];
    world.state.revoked(reader, extent);
    assert_eq!(world.state.outputs.count(shard), 0);
}

#[test]
fn nobody_writes_before_the_owner_before_has_let_go() {
    let (mut world, [old, new], shard, epoch) = shared_shard();
    let extents = world.lease(1, 1, Purpose::Flush).unwrap();
    world.call(1, AdoptExtents { session: old, shard, epoch, extents: extents.clone() }).unwrap();
    let map = MapExtents { session: old, shard, write: false, extents: extents.clone() };
    world.call(1, map).unwrap();
    assert_eq!(world.acquire(2, shard, false), Err(Refusal::Owned(shard)));
    let taken = world.acquire(2, shard, true).unwrap();
    assert_eq!(taken, Epoch(epoch.0 + 1));
    let map = MapExtents { session: new, shard, write: true, extents: extents.clone() };
    assert_eq!(world.call(2, map.clone()), Err(Refusal::Held { extent: extents[0], by: old }));
    let late = SetRoot { session: old, shard, epoch, root: Blob::default() };
    assert_eq!(world.call(1, late), Err(Refusal::Fenced { shard, epoch, present: taken }));
    world.revoke_one(0);
    assert_eq!(world.call(2, map), Ok(Answer::Grant(new, vec![(extents[0], Rights::ALL)])));
}

#[test]
fn who_lapsed_in_a_shared_shard_is_a_reader_and_in_nobodys_way() {
    let mut world = World::new(settings(8, 1, 1));
    let [stopped, new] = [1, 2].map(|peer| world.open(peer));
    let store = world.store(1, "tree");
    world.store(2, "tree");
    let shard = ShardKey { store, shard: ShardId(0) };
    let extents = world.lease(1, 2, Purpose::Flush).unwrap();
    world.call(1, ShareExtents { session: stopped, shard, extents: extents.clone() }).unwrap();
    world.now += LEASE / 2;
    world.state.tick(world.now);
    world.call(2, Renew { session: new, reading_epoch: u64::MAX }).unwrap();
    world.now += LEASE / 2;
    assert_eq!(world.state.tick(world.now).len(), 1);
    world.collect();
    let map = MapExtents { session: new, shard, write: true, extents: extents.clone() };
    let all = extents.iter().map(|&extent| (extent, Rights::ALL)).collect();
    assert_eq!(world.call(2, map), Ok(Answer::Grant(new, all)));
    // Retired memory is not used again before it releases its key.
    let oldest = |world: &mut World| {
        let Ok(Answer::Reply(bytes)) = world.call(2, PassReaders { session: new, reading_epoch: u64::MAX }) else {
            panic!("no epoch")
        };
        ReadersPassed::decode(&bytes).unwrap().oldest_epoch
    };
    assert_eq!(oldest(&mut world), 0);
    world.settle();
    assert_eq!(oldest(&mut world), u64::MAX);
}

#[test]
fn a_fenced_job_keeps_its_memory_until_it_ends() {
    let mut world = World::new(settings(8, 1, 1));
    let session = world.open(1);
    let store = world.store(1, "db");
    let (shard, epoch) = world.own_shard(1, store);
    let submit = SubmitJob { session, shard, epoch, attempt: 5, kind: 1, arguments: Rest(Vec::new()) };
    let Ok(Answer::Job(job)) = world.call(1, submit.clone()) else { panic!("no job") };
    assert_eq!(world.call(1, submit), Err(Refusal::AttemptRuns(5)));
    let first = world.state.job_allocate(job.id, 5000).unwrap();
    assert_eq!((first.offset, first.length), (0, 8192));
    let second = world.state.job_allocate(job.id, 4096).unwrap();
    world.state.job_free(job.id, second).unwrap();
    assert!(world.state.job_free(job.id, second).is_err());
    assert_eq!(
        world.state.job_allocate(job.id, EXTENT_BYTES + 1),
        Err(Refusal::TooLong { length: EXTENT_BYTES + 1, extent_bytes: EXTENT_BYTES })
    );
    assert_eq!(world.call(1, DropStore { session, store }), Err(Refusal::StoreInUse(store)));
    let foreign = ExtentRange { extent: ExtentId(0), offset: 0, length: 8 };
    assert_eq!(world.state.job_reads(job.id, foreign), Err(Refusal::OutOfBounds(foreign)));
    world.cut(1);
    assert!(!world.state.job_may_go_on(job.id));
    assert_eq!(world.state.job_allocate(job.id, 1), Err(Refusal::JobFenced));
    world.settle();
    assert_eq!(world.state.place(first.extent), Some(Place::Jobs(shard)));
    assert!(!world.state.job_ended(job.id, true), "the result of a fenced job does not count");
    world.collect();
    world.settle();
    assert_eq!(world.state.place(first.extent), Some(Place::Kept));
    assert_eq!(world.state.outputs.bytes(), OutputBytes::default());
}

#[test]
fn a_private_store_ends_with_its_session() {
    let mut world = World::new(settings(8, 1, 1));
    let session = world.open(1);
    world.open(2);
    let store = world.store(1, "");
    assert_ne!(world.store(2, ""), store, "nobody else can open it");
    let (shard, epoch) = world.own_shard(1, store);
    let mut ranges = Vec::new();
    let mut jobs = Vec::new();
    for attempt in 0..3 {
        let submit = SubmitJob { session, shard, epoch, attempt, kind: 1, arguments: Rest(Vec::new()) };
        let Ok(Answer::Job(job)) = world.call(1, submit) else { panic!("no job") };
        ranges.push(world.state.job_allocate(job.id, EXTENT_BYTES).unwrap());
        jobs.push(job.id);
    }
    // One output belongs to the shard, one is pending, one is still being written.
    assert!(world.state.job_ended(jobs[0], true) && world.state.job_ended(jobs[1], true));
    world.call(1, AdoptRanges { session, shard, epoch, ranges: vec![ranges[0]] }).unwrap();
    world.cut(1);
    world.collect();
    world.settle();
    let is_back =
        |world: &World, range: ExtentRange| matches!(world.state.place(range.extent), Some(Place::Free | Place::Kept));
    assert!(is_back(&world, ranges[0]) && is_back(&world, ranges[1]));
    assert_eq!(world.state.place(ranges[2].extent), Some(Place::Revoking), "a job writes it");
    assert!(!world.state.job_ended(jobs[2], true));
    world.collect();
    world.settle();
    assert!(is_back(&world, ranges[2]));
    assert_eq!(world.state.outputs.bytes(), OutputBytes::default());
    assert!(world.state.directory.get(store).is_none());
    world.check();
}

#[derive(Debug, Clone)]
enum Step {
    Open(u64),
    Cut(u64),
    Close(u64),
    Wait(u64),
    Renew(u64, Option<u64>),
    Lease(u64, u32, Purpose),
    Return(u64, usize),
    Write(usize),
    Acquire(u64, u32, bool),
    GiveUp(u32),
    Adopt(u64, u32, usize),
    Release(u32, usize),
    Map(u64, u32, u32),
    Drop(u64),
    Job(u32),
    Allocate(usize, u64),
    EndJob(usize, bool),
    AdoptOutput(usize),
    FreeOutput(usize),
    Revoked(usize),
    Zeroed(usize),
    Credit(u64, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let peer = || 0..3u64;
    let shard = || 0..2u32;
    let purpose = || prop_oneof![4 => Just(Purpose::Flush), 1 => Just(Purpose::Collection)];
    prop_oneof![
        3 => peer().prop_map(Step::Open),
        1 => peer().prop_map(Step::Cut),
        1 => peer().prop_map(Step::Close),
        1 => (1..5u64).prop_map(Step::Wait),
        2 => (peer(), proptest::option::of(0..3u64)).prop_map(|(peer, ago)| Step::Renew(peer, ago)),
        6 => (peer(), 1..4u32, purpose()).prop_map(|(peer, count, purpose)| Step::Lease(peer, count, purpose)),
        3 => (peer(), any::<usize>()).prop_map(|(peer, which)| Step::Return(peer, which)),
        6 => any::<usize>().prop_map(Step::Write),
        4 => (peer(), shard(), any::<bool>()).prop_map(|(peer, shard, takeover)| Step::Acquire(peer, shard, takeover)),
        1 => shard().prop_map(Step::GiveUp),
        4 => (peer(), shard(), any::<usize>()).prop_map(|(peer, shard, which)| Step::Adopt(peer, shard, which)),
        3 => (shard(), any::<usize>()).prop_map(|(shard, which)| Step::Release(shard, which)),
        4 => (peer(), shard(), 0..12u32).prop_map(|(peer, shard, extent)| Step::Map(peer, shard, extent)),
        1 => peer().prop_map(Step::Drop),
        2 => shard().prop_map(Step::Job),
        5 => (any::<usize>(), 1..EXTENT_BYTES).prop_map(|(which, length)| Step::Allocate(which, length)),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(which, well)| Step::EndJob(which, well)),
        2 => any::<usize>().prop_map(Step::AdoptOutput),
        2 => any::<usize>().prop_map(Step::FreeOutput),
        6 => any::<usize>().prop_map(Step::Revoked),
        6 => any::<usize>().prop_map(Step::Zeroed),
        2 => (peer(), any::<bool>()).prop_map(|(peer, has_name)| Step::Credit(peer, has_name)),
    ]
}

impl World {
    fn shard_key(&self, shard: u32) -> Option<ShardKey> {
        let (store, _) = self.state.directory.find(TENANT, &text("db")).ok()?;
        Some(ShardKey { store, shard: ShardId(shard) })
    }

    fn owner(&self, shard: u32) -> Option<(u64, ShardKey, SessionId, Epoch)> {
        let key = self.shard_key(shard)?;
        let &(session, epoch) = self.shards.get(&key)?;
        let peer = self.sessions.iter().find(|(_, of)| **of == session).map(|(&peer, _)| peer)?;
        Some((peer, key, session, epoch))
    }

    fn end_session(&mut self, peer: u64) {
        if let Some(gone) = self.sessions.remove(&peer) {
            self.shards.retain(|_, (owner, _)| *owner != gone);
        }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Open(peer) => {
                if !self.sessions.contains_key(&peer) {
                    self.open(peer);
                    self.store(peer, "db");
                }
            }
            Step::Cut(peer) => self.cut(peer),
            Step::Close(peer) => {
                if let Some(&session) = self.sessions.get(&peer) {
                    self.call(peer, CloseSession { session }).unwrap();
                    self.end_session(peer);
                }
            }
            Step::Wait(seconds) => {
                self.now += seconds * SECOND;
                let lapsed = self.state.tick(self.now);
                self.collect();
                for ended in lapsed {
                    let peer = self.sessions.iter().find(|(_, of)| **of == ended.session).map(|(&peer, _)| peer);
                    self.end_session(peer.expect("a session that the model knows"));
                }
            }
            Step::Renew(peer, ago) => {
                if let Some(&session) = self.sessions.get(&peer) {
                    let epoch = ago.map_or(u64::MAX, |ago| self.reading_epoch().saturating_sub(ago));
                    self.call(peer, Renew { session, reading_epoch: epoch }).unwrap();
                }
            }
            Step::Lease(peer, count, purpose) => {
                if self.sessions.contains_key(&peer) {
                    let free = self.state.extents.counts().free;
                    let headroom = if purpose == Purpose::Flush { 2 } else { 0 };
                    match self.lease(peer, count, purpose) {
                        Ok(leased) if purpose == Purpose::Flush => {
                            assert_eq!(leased.len() as u64, u64::from(count).min(free - headroom));
                        }
                        Ok(leased) => assert!(leased.len() as u64 <= u64::from(count).min(free)),
                        Err(refusal) => {
                            assert!(free <= 2 || free <= headroom, "{refusal}");
                            assert!(matches!(refusal.kind(), ErrorKind::Full | ErrorKind::Busy));
                        }
                    }
                }
            }
            Step::Return(peer, which) => {
                if let Some(&session) = self.sessions.get(&peer) {
                    let leased = self.state.extents.select(|found| found.place() == Place::Leased(session));
                    if let Some(&extent) = leased.get(which % leased.len().max(1)) {
                        self.call(peer, ReturnExtents { session, extents: vec![extent] }).unwrap();
                    }
                }
            }
            Step::Write(which) => {
                let writable: Vec<ExtentId> =
                    self.keys.iter().filter(|(_, writes)| **writes).map(|(&(_, extent), _)| extent).collect();
                if let Some(&extent) = writable.get(which % writable.len().max(1)) {
                    let place = self.state.place(extent).unwrap();
                    assert!(!matches!(place, Place::Free | Place::Kept | Place::Jobs(_) | Place::Dirty));
                    self.written.insert(extent);
                }
            }
            Step::Acquire(peer, shard, takeover) => {
                if let (true, Some(key)) = (self.sessions.contains_key(&peer), self.shard_key(shard)) {
                    self.store(peer, "db");
                    let owned = self.shards.get(&key).copied();
                    let before = self.state.directory.shard(key).map_or(Epoch(0), |shard| shard.epoch);
                    let foreign = owned.is_some_and(|(owner, _)| owner != self.sessions[&peer]);
                    let acquired = self.acquire(peer, key, takeover);
                    assert_eq!(acquired.is_ok(), takeover || !foreign);
                    assert!(acquired.is_ok_and(|epoch| epoch > before) || foreign);
                }
            }
            Step::GiveUp(shard) => {
                if let Some((peer, shard, session, epoch)) = self.owner(shard) {
                    self.call(peer, ReleaseShard { session, shard, epoch }).unwrap();
                    self.shards.remove(&shard);
                }
            }
            Step::Adopt(peer, shard, which) => {
                if let (Some(&session), Some(key)) = (self.sessions.get(&peer), self.shard_key(shard)) {
                    let leased = self.state.extents.select(|found| found.place() == Place::Leased(session));
                    let Some(&extent) = leased.get(which % leased.len().max(1)) else { return };
                    let owned = self.shards.get(&key).copied();
                    let epoch = owned.map_or(Epoch(1), |(_, epoch)| epoch);
                    let call = AdoptExtents { session, shard: key, epoch, extents: vec![extent] };
                    let adopted = self.call(peer, call);
                    assert_eq!(adopted.is_ok(), owned.is_some_and(|(owner, _)| owner == session));
                    if adopted.is_ok() {
                        self.adopted.insert(extent, key);
                    }
                }
            }
            Step::Release(shard, which) => {
                if let Some((peer, shard, session, epoch)) = self.owner(shard) {
                    let of_shard = |(_, of): &(&ExtentId, &ShardKey)| **of == shard;
                    let adopted: Vec<ExtentId> = self.adopted.iter().filter(of_shard).map(|(&e, _)| e).collect();
                    if let Some(&extent) = adopted.get(which % adopted.len().max(1)) {
                        self.call(peer, ReleaseExtents { session, shard, epoch, extents: vec![extent] }).unwrap();
                        self.adopted.remove(&extent);
                    }
                }
            }
            Step::Map(peer, shard, extent) => {
                if let (Some(&session), Some(shard)) = (self.sessions.get(&peer), self.shard_key(shard)) {
                    let extent = ExtentId(extent);
                    let mine = self.state.place(extent).and_then(Place::shard) == Some(shard);
                    self.store(peer, "db");
                    let mapped = self.call(peer, MapExtents { session, shard, write: true, extents: vec![extent] });
                    assert!(mine || mapped.is_err(), "{extent} is not memory of {shard}");
                }
            }
            Step::Drop(peer) => {
                if let (Some(&session), Some(key)) = (self.sessions.get(&peer), self.shard_key(0)) {
                    self.store(peer, "db");
                    let foreign = self.shards.iter().any(|(of, (owner, _))| of.store == key.store && *owner != session);
                    let dropped = self.call(peer, DropStore { session, store: key.store });
                    assert_eq!(dropped.is_ok(), !foreign && self.jobs.is_empty());
                    if dropped.is_ok() {
                        self.adopted.clear();
                        self.shards.clear();
                        self.outputs.clear();
                        for (peer, _) in self.sessions.clone() {
                            self.store(peer, "db");
                        }
                    }
                }
            }
            Step::Job(shard) => {
                if let Some((peer, shard, session, epoch)) = self.owner(shard) {
                    let attempt = self.now + self.jobs.len() as u64;
                    let call = SubmitJob { session, shard, epoch, attempt, kind: 1, arguments: Rest(Vec::new()) };
                    if let Ok(Answer::Job(job)) = self.call(peer, call) {
                        self.jobs.push((job.id, Vec::new()));
                    }
                }
            }
            Step::Allocate(which, length) => {
                let count = self.jobs.len().max(1);
                let Some((id, outputs)) = self.jobs.get_mut(which % count) else { return };
                if let Ok(range) = self.state.job_allocate(*id, length) {
                    outputs.push(range);
                    self.written.insert(range.extent);
                }
            }
            Step::EndJob(which, well) => {
                if !self.jobs.is_empty() {
                    let (id, outputs) = self.jobs.swap_remove(which % self.jobs.len());
                    let shard = outputs.first().and_then(|range| self.state.place(range.extent)).and_then(Place::shard);
                    let counts = self.state.job_ended(id, well);
                    self.collect();
                    if let (true, Some(shard)) = (counts, shard) {
                        self.outputs.extend(outputs.into_iter().map(|range| (shard, range)));
                    }
                }
            }
            Step::AdoptOutput(which) | Step::FreeOutput(which) => {
                let Some(&(shard, range)) = self.outputs.get(which % self.outputs.len().max(1)) else { return };
                let Some((peer, shard, session, epoch)) = self.owner(shard.shard.0).filter(|owner| owner.1 == shard)
                else {
                    return;
                };
                let ranges = vec![range];
                if matches!(step, Step::AdoptOutput(_)) {
                    let _ = self.call(peer, AdoptRanges { session, shard, epoch, ranges });
                } else {
                    let _ = self.call(peer, FreeBatch { session, shard, epoch, ranges });
                    self.outputs.retain(|output| *output != (shard, range));
                }
            }
            Step::Revoked(which) => self.revoke_one(which),
            Step::Zeroed(which) => self.zero_one(which),
            Step::Credit(peer, has_name) => {
                if let Some(&session) = self.sessions.get(&peer) {
                    let database = text(if has_name { "db" } else { "" });
                    let answer = self.call(peer, GetCredit { session, database, share: 1 + peer as u32 });
                    let Ok(Answer::Reply(bytes)) = answer else { panic!("{answer:?}") };
                    let credit = Credit::decode(&bytes).unwrap();
                    assert!(
                        credit.owed_extents <= credit.held_extents && credit.withheld_extents <= credit.free_extents
                    );
                    let may_take = credit.free_extents - credit.withheld_extents;
                    let is_within = credit.held_extents < credit.share_extents;
                    assert!(!is_within || may_take > 0 || credit.free_extents <= 2, "{credit:?}");
                    assert!(credit.databases > 1 || credit.withheld_extents + credit.owed_extents == 0, "{credit:?}");
                }
            }
        }
    }
}

/// Applies the steps, lets every client leave, and checks what is left.
fn run(steps: Vec<Step>, planted: Option<Plant>) {
    let mut world = World::new(settings(12, 2, 2));
    world.planted = planted;
    world.apply(Step::Open(0));
    for step in steps {
        world.apply(step);
        world.check();
    }
    // Memory of shards stays, all other memory comes back.
    for (job, _) in std::mem::take(&mut world.jobs) {
        world.state.job_ended(job, true);
    }
    for peer in 0..3 {
        world.cut(peer);
    }
    world.collect();
    world.settle();
    world.check();
    let counts = world.state.extents.counts();
    assert_eq!((counts.leased, counts.recycling), (0, 0));
    assert_eq!(counts.adopted, world.adopted.len() as u64);
    let OutputBytes { all: bytes, pending } = world.state.outputs.bytes();
    assert_eq!(pending, 0);
    assert_eq!(counts.jobs > 0, bytes > 0);
    assert_eq!(world.state.statistics().live_bytes, counts.adopted * EXTENT_BYTES + bytes);
    assert_eq!(counts.free + counts.kept + counts.adopted + counts.jobs, 12);
    // The store's memory comes back with the store.
    world.open(9);
    let store = world.store(9, "db");
    world.call(9, DropStore { session: world.sessions[&9], store }).unwrap();
    world.adopted.clear();
    world.settle();
    assert_eq!(world.state.extents.counts(), Counts { free: 10, kept: 2, ..Counts::default() });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn nothing_leaks_and_nothing_is_given_twice(steps in proptest::collection::vec(step(), 1..250)) {
        run(steps, None);
    }
}

#[test]
fn planted_bugs_are_found() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    for plant in [Plant::KeyStaysValid, Plant::NotZeroed, Plant::CommandLost] {
        let mut runner = TestRunner::deterministic();
        let found = (0..50).any(|_| {
            let steps = proptest::collection::vec(step(), 250).new_tree(&mut runner).unwrap().current();
            std::panic::catch_unwind(|| run(steps, Some(plant))).is_err()
        });
        assert!(found, "{plant:?} was not found");
    }
}
