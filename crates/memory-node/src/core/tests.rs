//! Keys that cannot be made, or are released late: no extent goes to another session while a key to it is valid.

use super::*;
use crate::Options;
use crate::fakes::{FakeListener, FakePeer};
use forebay_env::ManualClock;
use forebay_proto::calls::*;
use forebay_proto::replies::{SessionOpened, ShardAcquired, StoreOpened, TicketJoined, TicketOpened};
use forebay_proto::{Blob, Epoch, PROTOCOL_VERSION, Purpose, ShardId, ShardKey, StoreId, Text};

/// A node of 16 extents, and the owner of a shard that has keys to read two of them. The owner took over from another
/// session.
struct World {
    core: Core,
    fake: Arc<FakePeer>,
    peer: Arc<dyn Peer>,
    session: SessionId,
    shard: ShardKey,
    epoch: Epoch,
    extents: Vec<ExtentId>,
}

impl World {
    fn new() -> Self {
        let listener = FakeListener::default();
        let options = Options { extent_bytes: Some(64 << 10), ..Options::with_memory(1 << 20) };
        let settings = options.settings(listener.identity()).unwrap();
        let clock = Arc::new(ManualClock::new());
        let core = Core::new(&listener, settings, &TenantsOptions::default(), clock, false).unwrap();
        let fake = Arc::new(FakePeer::new(1));
        let shard = ShardKey { store: StoreId(0), shard: ShardId(0) };
        let (peer, session, epoch, extents) = (fake.clone(), SessionId(0), Epoch(0), Vec::new());
        let mut world = Self { core, fake, peer, session, shard, epoch, extents };
        let before = Arc::clone(&world.fake);
        world.open(before.clone());
        let session = world.session;
        let create = CreateStore { session, name: Text::new("db").unwrap(), config: Blob::default() };
        world.shard.store = world.reply::<StoreOpened>(create).store;
        world.acquire();
        let leased: ExtentsGranted = world.reply(LeaseExtents { session, count: 2, purpose: Purpose::Flush });
        world.extents = leased.extents.iter().map(|granted| granted.extent).collect();
        let extents = world.extents.clone();
        world.reply::<Done>(AdoptExtents { session, shard: world.shard, epoch: world.epoch, extents });
        // A session that asks for less keeps the keys to write.
        assert!(world.map(false).is_ok() && lock(&before.revoked).is_empty());

        world.open(Arc::new(FakePeer::new(2)));
        let open = OpenStore { session: world.session, name: Text::new("db").unwrap() };
        world.reply::<StoreOpened>(open);
        assert!(world.map(false).is_ok());
        world.acquire();
        assert!(world.map(true).is_err(), "the owner before has not let go");
        (0..2).for_each(|_| before.let_go());
        world.tick();
        world
    }

    fn open(&mut self, fake: Arc<FakePeer>) {
        (self.fake, self.peer) = (fake.clone(), fake);
        self.core.link_opened(&self.peer, &Identity::anonymous()).unwrap();
        let none = || Text::new("").unwrap();
        let open = OpenSession { protocol: PROTOCOL_VERSION, tenant: none(), name: none(), capabilities: 0 };
        self.session = self.reply::<SessionOpened>(open).session;
    }

    fn acquire(&mut self) {
        let acquire = AcquireShard { session: self.session, shard: self.shard, takeover: true };
        self.epoch = self.reply::<ShardAcquired>(acquire).epoch;
    }

    fn call(&self, request: impl Into<Request>) -> Result<Vec<u8>, CallError> {
        match self.core.call(&self.peer, request.into())? {
            Called::Reply(bytes) => Ok(bytes),
            Called::Job(_) => panic!("a job"),
        }
    }

    fn reply<M: Message>(&self, request: impl Into<Request>) -> M {
        let reply = self.call(request).unwrap_or_else(|error| panic!("{}", error.message));
        M::decode(&reply).unwrap()
    }

    fn map(&self, write: bool) -> Result<Vec<u8>, CallError> {
        self.call(MapExtents { session: self.session, shard: self.shard, write, extents: self.extents.clone() })
    }

    fn release(&self, at: usize) {
        let extents = vec![self.extents[at]];
        let (session, shard, epoch) = (self.session, self.shard, self.epoch);
        self.reply::<Done>(ReleaseExtents { session, shard, epoch, extents });
    }

    fn tick(&self) {
        self.core.tick(AdmissionCounts::default());
    }

    /// Extents that are zeroed now.
    fn zeroed(&self) -> u64 {
        let free = || self.core.statistics().free_extents;
        let before = free();
        while self.core.zero_slice() {}
        free() - before
    }
}

#[test]
fn a_grant_that_fails_forgets_no_key_that_is_valid() {
    let world = World::new();
    world.fake.end_of_keys.store(0, Ordering::Relaxed);
    assert!(world.map(true).is_err());
    // The keys to read are unchanged, and nobody has revoked them.
    assert_eq!(lock(&world.fake.revoked).len(), 0);
    assert!(world.map(false).is_ok());
    for at in [1, 0] {
        world.release(at);
        world.tick();
        assert_eq!((world.zeroed(), lock(&world.fake.revoked).len()), (0, 1), "{at}");
        world.fake.let_go();
        world.tick();
        assert_eq!(world.zeroed(), 1, "{at}");
    }
    assert!(!world.core.is_revoking());
}

#[test]
fn what_was_leased_but_got_no_key_comes_back() {
    let world = World::new();
    let free = world.core.statistics().free_extents;
    world.fake.end_of_keys.store(0, Ordering::Relaxed);
    let lease = LeaseExtents { session: world.session, count: 3, purpose: Purpose::Flush };
    assert!(world.call(lease).is_err());
    assert_eq!((world.zeroed(), world.core.statistics().free_extents), (3, free));
}

#[test]
fn what_was_leased_comes_back_if_only_some_of_it_got_keys() {
    let world = World::new();
    let free = world.core.statistics().free_extents;
    let next = world.fake.next_key.load(Ordering::Relaxed);
    world.fake.end_of_keys.store(next + 1, Ordering::Relaxed);
    let lease = LeaseExtents { session: world.session, count: 3, purpose: Purpose::Flush };
    assert!(world.call(lease).is_err());
    assert_eq!((world.zeroed(), lock(&world.fake.revoked).len()), (2, 1));
    world.fake.let_go();
    world.tick();
    assert_eq!((world.zeroed(), world.core.statistics().free_extents), (1, free));
}

#[test]
fn a_key_with_other_rights_does_not_hide_the_one_before() {
    let world = World::new();
    assert!(world.map(true).is_ok());
    world.release(0);
    assert_eq!(lock(&world.fake.revoked).len(), 3, "two to read, and the one to write the extent");
    // The key to write is released before the one to read.
    lock(&world.fake.revoked).pop().unwrap().1.finish();
    world.tick();
    assert_eq!(world.zeroed(), 0);
    (0..2).for_each(|_| world.fake.let_go());
    world.tick();
    assert_eq!(world.zeroed(), 1);
    assert!(!world.core.is_revoking());
}

#[test]
fn the_end_of_a_link_costs_nothing_for_the_keys_of_others() {
    let mut world = World::new();
    assert!(world.map(true).is_ok());
    let owner = Arc::clone(&world.fake);
    world.open(Arc::new(FakePeer::new(3)));
    owner.asked.store(0, Ordering::Relaxed);
    world.core.link_ended(PeerId(3));
    assert_eq!(owner.asked.load(Ordering::Relaxed), 0, "each key was looked at");
    // Its own keys end with it, and only they.
    let keys = || lock(&world.core.inner).keys.len();
    let revoking = || {
        let inner = lock(&world.core.inner);
        (inner.revoking.len(), inner.revoking_of.len())
    };
    assert_eq!((keys(), revoking()), (2, (2, 2)));
    world.core.link_ended(PeerId(2));
    assert_eq!((keys(), revoking()), (0, (0, 0)));
}

#[test]
fn a_tick_looks_at_one_of_the_lent_keys_that_are_not_released() {
    let world = World::new();
    let (session, shard, epoch) = (world.session, world.shard, world.epoch);
    let ticket = world.reply::<TicketOpened>(OpenTicket { session, shard, epoch, secret: 1 }).ticket;
    world.reply::<TicketJoined>(JoinTicket { session, ticket, secret: 1, attempt: 1 });
    let range = ExtentRange { extent: world.extents[0], offset: 0, length: 4096 };
    for _ in 0..2 {
        let ranges = vec![range; MAX_RANGES];
        world.reply::<RangesGranted>(ReadForTicket { session, ticket, attempt: 1, ranges });
    }
    world.reply::<Done>(FinishTicket { session, ticket, attempt: 1, well: true });
    let keys = 2 * MAX_RANGES;
    assert_eq!(lock(&world.fake.revoked).len(), keys);
    let looked = || {
        LOOKED.set(0);
        world.tick();
        LOOKED.get()
    };
    assert_eq!(looked(), 1);
    (1..keys).for_each(|_| world.fake.let_go());
    assert_eq!(looked(), 1);
    assert!(world.core.is_revoking(), "a key is not released");
    world.fake.let_go();
    assert_eq!(looked(), keys);
    assert!(!world.core.is_revoking());
}

#[test]
fn a_tick_looks_at_some_of_the_keys_of_sessions_in_turn() {
    let world = World::new();
    let (peer, name) = (PeerId(2), |number: usize| (SessionId(100 + number as u64), ExtentId(0)));
    let all: Vec<_> = (0..2 * MOST_LOOKED_AT).map(|number| (name(number), Revocation::pending())).collect();
    for (name, revocation) in &all {
        let revoking = Revoking { peer, revocations: vec![revocation.clone()] };
        lock(&world.core.inner).revoking.insert(*name, revoking);
    }
    let left_after_tick = || {
        world.tick();
        lock(&world.core.inner).revoking.len()
    };
    let (first, others) = all.split_at(MOST_LOOKED_AT);
    others.iter().for_each(|(_, revocation)| revocation.finish());
    // The first ones are not gone, and do not keep the others from their turn.
    assert_eq!([left_after_tick(), left_after_tick()], [2 * MOST_LOOKED_AT, MOST_LOOKED_AT]);
    first.iter().for_each(|(_, revocation)| revocation.finish());
    // There is nothing after the last one, and then it begins anew.
    assert_eq!([left_after_tick(), left_after_tick()], [MOST_LOOKED_AT, 0]);
}
