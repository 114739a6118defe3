//! Peers that answer nothing take up the node's loop.

use super::*;
use crate::fakes::{FakeListener, FakePeer};
use crate::tenants::{Identity, Limits};
use forebay_env::ManualClock;
use forebay_proto::calls::{AcquireShard, CreateStore, LeaseExtents, OpenSession, PassReaders, Renew, SubmitJob};
use forebay_proto::{
    Blob, Epoch, Message, PROTOCOL_VERSION, Purpose, Rest, SessionId, ShardId, ShardKey, StoreId, Text, job_kind,
};
use std::sync::atomic::Ordering::Relaxed;

/// A node for which each link is a tenant, and its clock.
fn node() -> (FakeListener, MemoryNode, Arc<ManualClock>) {
    let (listener, clock) = (FakeListener::default(), Arc::new(ManualClock::new()));
    let options = Options {
        extent_bytes: Some(64 << 10),
        identify: Identify::new(|peer| Identity::new(&format!("secret:{}", peer.id().0)).unwrap()),
        clock: clock.clone(),
        ..Options::with_memory(1 << 20)
    };
    let node = MemoryNode::new(Box::new(listener.clone()), options).unwrap();
    (listener, node, clock)
}

/// Peers with sessions whose numbers equal their own. Calls of the first one take 4 ms.
fn peers<const COUNT: usize>(
    listener: &FakeListener,
    node: &mut MemoryNode,
    clock: &Arc<ManualClock>,
) -> [Arc<FakePeer>; COUNT] {
    let replies = Arc::default();
    let peer = |at| FakePeer { replies: Arc::clone(&replies), ..FakePeer::new(at as u64 + 1) };
    let peers = std::array::from_fn(|at| Arc::new(peer(at)));
    for peer in &peers {
        listener.joined(peer);
        let none = || Text::new("").unwrap();
        let open = OpenSession { protocol: PROTOCOL_VERSION, tenant: none(), name: none(), capabilities: 0 };
        listener.request(peer, Procedure::OpenSession, 0, Ok(&open.encode()));
        while node.step(Duration::ZERO).unwrap() {}
    }
    lock(&replies).clear();
    peers[0].slow.set((Arc::clone(clock), Duration::from_millis(4))).unwrap();
    peers
}

fn renew(listener: &FakeListener, peer: &Arc<FakePeer>, number: u64) {
    let call = Renew { session: SessionId(peer.id().0), reading_epoch: 0 };
    listener.request(peer, Procedure::Renew, number, Ok(&call.encode()));
}

fn call(listener: &FakeListener, peer: &Arc<FakePeer>, number: u64) {
    let call = PassReaders { session: SessionId(peer.id().0), reading_epoch: 0 };
    listener.request(peer, Procedure::PassReaders, number, Ok(&call.encode()));
}

/// Who was replied to, and the number of the call, when all is done.
fn replied(node: &mut MemoryNode, peer: &FakePeer) -> Vec<(u64, u64)> {
    while node.step(Duration::ZERO).unwrap() {}
    let replies = lock(&peer.replies);
    assert!(replies.iter().all(|(.., status)| *status == 0), "{replies:?}");
    replies.iter().map(|&(peer, number, _)| (peer, number)).collect()
}

#[test]
fn control_calls_are_charged_like_others() {
    let (listener, mut node, clock) = node();
    let [slow, other] = peers(&listener, &mut node, &clock);
    for number in 0..64 {
        renew(&listener, &slow, number);
        call(&listener, &other, number);
    }
    let replies = replied(&mut node, &slow);
    assert_eq!(replies.len(), 128);
    let before = replies.iter().position(|reply| *reply == (2, 63)).unwrap() - 63;
    assert!(before <= 2, "{before} renewals of 4 ms each before 64 calls of another tenant: {replies:?}");
}

/// Who opens and ends links again and again pays for it.
#[test]
fn the_end_of_a_link_is_charged_to_its_tenant() {
    let listener = FakeListener::default();
    let options = Options {
        extent_bytes: Some(64 << 10),
        // All links but the first belong to one tenant.
        identify: Identify::new(|peer| Identity::new(&format!("secret:{}", peer.id().0.min(2))).unwrap()),
        clock: Arc::new(ManualClock::new()),
        ..Options::with_memory(1 << 20)
    };
    let mut node = MemoryNode::new(Box::new(listener.clone()), options).unwrap();
    let replies = Arc::default();
    let peer = |id| Arc::new(FakePeer { replies: Arc::clone(&replies), ..FakePeer::new(id) });
    let [first, second] = [1, 2].map(peer);
    for peer in [&first, &second] {
        listener.joined(peer);
        let none = || Text::new("").unwrap();
        let open = OpenSession { protocol: PROTOCOL_VERSION, tenant: none(), name: none(), capabilities: 0 };
        listener.request(peer, Procedure::OpenSession, 0, Ok(&open.encode()));
        while node.step(Duration::ZERO).unwrap() {}
    }
    for gone in (3..131).map(peer) {
        listener.joined(&gone);
        listener.left(&gone);
    }
    while node.step(Duration::ZERO).unwrap() {}
    lock(&replies).clear();
    for number in 0..64 {
        call(&listener, &first, number);
        call(&listener, &second, number);
    }
    let replies = replied(&mut node, &first);
    assert_eq!(replies.len(), 128);
    assert!(replies[..64].iter().all(|(peer, _)| *peer == 1), "{replies:?}");
}

/// Twice the longest arguments is the most that is kept for a tenant.
#[test]
fn arguments_that_have_come_do_not_wait_behind_calls_that_wait_for_their_room() {
    let (listener, mut node, clock) = node();
    let [peer] = peers(&listener, &mut node, &clock);
    for number in 0..5 {
        listener.request_to_pull(&peer, Procedure::SubmitJob, number, vec![0; rpc::MAX_ARGUMENT_BYTES]);
    }
    while node.step(Duration::ZERO).unwrap() {}
    let answered: Vec<u64> = lock(&peer.replies).iter().map(|&(_, number, _)| number).collect();
    assert_eq!(answered, [0, 1, 2, 3, 4]);
    assert_eq!((peer.pulls.load(Relaxed), node.tenants()[0].waiting_calls), (0, 0));
}

#[test]
fn jobs_run_whose_arguments_are_the_most_that_is_kept() {
    let (listener, mut node, clock) = node();
    let [peer] = peers(&listener, &mut node, &clock);
    let (session, epoch) = (SessionId(peer.id().0), Epoch(1));
    let shard = ShardKey { store: StoreId(1), shard: ShardId(0) };
    let create = CreateStore { session, name: Text::new("db").unwrap(), config: Blob::default() };
    listener.request(&peer, Procedure::CreateStore, 0, Ok(&create.encode()));
    let acquire = AcquireShard { session, shard, takeover: false };
    listener.request(&peer, Procedure::AcquireShard, 1, Ok(&acquire.encode()));
    for attempt in 2..4 {
        let job = |bytes| {
            let (kind, arguments) = (job_kind::CHECKSUM, Rest(vec![0; bytes]));
            SubmitJob { session, shard, epoch, attempt, kind, arguments }.encode()
        };
        let arguments = job(rpc::MAX_ARGUMENT_BYTES - job(0).len());
        listener.request_to_pull(&peer, Procedure::SubmitJob, attempt, arguments);
    }
    assert_eq!(replied(&mut node, &peer), [(1, 0), (1, 1), (1, 2), (1, 3)]);
}

#[test]
fn a_renewal_waits_for_few_of_the_calls_before_it() {
    let (listener, mut node, clock) = node();
    let [peer] = peers(&listener, &mut node, &clock);
    (0..64).for_each(|number| call(&listener, &peer, number));
    renew(&listener, &peer, 64);
    let replies = replied(&mut node, &peer);
    // Those that were served before it was accepted, and one that was served already.
    let at = replies.iter().position(|reply| *reply == (1, 64)).unwrap();
    assert!(at <= 64 / MOST_EVENTS as usize + 1, "{at} of 65 calls came first");
}

#[test]
fn a_link_is_closed_if_one_endpoint_takes_no_replies_while_others_do() {
    let (listener, mut node, clock) = node();
    let [peer] = peers(&listener, &mut node, &clock);
    let finish = |node: &mut MemoryNode| while node.step(Duration::ZERO).unwrap() {};
    let waits = PassReaders { session: SessionId(peer.id().0), reading_epoch: 0 }.encode();
    // As long as it takes them in the end, nothing happens.
    for round in 0..2 {
        peer.unsent.store(1 << 20, Relaxed);
        listener.request_of_other(&peer, Procedure::PassReaders, 1000 + round, &waits);
        for number in 0..4 {
            renew(&listener, &peer, number);
            finish(&mut node);
            clock.advance(Duration::from_secs(2));
        }
        peer.unsent.store(0, Relaxed);
        finish(&mut node);
    }
    assert_eq!(lock(&peer.replies).iter().filter(|(_, number, _)| *number >= 1000).count(), 2);
    assert!(!peer.is_closed.load(Relaxed));
    peer.unsent.store(1 << 20, Relaxed);
    listener.request_of_other(&peer, Procedure::PassReaders, 2000, &waits);
    for number in 0..6 {
        renew(&listener, &peer, number);
        finish(&mut node);
        clock.advance(Duration::from_secs(2));
    }
    finish(&mut node);
    assert!(peer.is_closed.load(Relaxed));
}

#[test]
fn calls_whose_arguments_do_not_come_are_counted_until_they_do() {
    let (listener, mut node, _) = node();
    let peer = Arc::new(FakePeer::new(1));
    listener.joined(&peer);
    let length = rpc::MAX_INLINE_BYTES as u32 + 1;
    for number in 0..u64::from(MOST_WAITING) {
        listener.request(&peer, Procedure::SubmitJob, number, Err(length));
    }
    while peer.pulls.load(Relaxed) < MOST_WAITING as usize {
        node.step(Duration::ZERO).unwrap();
    }
    // Each step looks at some of them only, however many there are.
    peer.polls.store(0, Relaxed);
    node.step(Duration::ZERO).unwrap();
    assert_eq!(peer.polls.load(Relaxed), MOST_POLLED);
    // The link has its most waiting calls, so no more are pulled.
    let refused = u64::from(MOST_CROWDING);
    for number in 0..refused {
        listener.request(&peer, Procedure::SubmitJob, 1000 + number, Err(length));
    }
    while !listener.is_idle() {
        node.step(Duration::ZERO).unwrap();
    }
    assert_eq!(peer.pulls.load(Relaxed), MOST_WAITING as usize);
    let busy = |&(_, number, status): &(u64, u64, u8)| number >= 1000 && status == ErrorKind::Busy.code();
    assert_eq!(lock(&peer.replies).iter().filter(|it| busy(it)).count() as u64, refused);
    assert_eq!(node.tenants()[0].waiting_calls, u64::from(MOST_WAITING));
    // One more is a flood. Nothing remains of the link when it is closed.
    listener.request(&peer, Procedure::SubmitJob, 2000, Err(length));
    node.step(Duration::ZERO).unwrap();
    assert!(peer.is_closed.load(Relaxed));
    assert_eq!((peer.pulls.load(Relaxed), node.tenants()[0].waiting_calls), (0, 0));
}

#[test]
fn memory_of_a_link_that_is_closed_for_a_flood_is_its_own_until_it_has_left() {
    let (listener, mut node, clock) = node();
    let [flood] = peers(&listener, &mut node, &clock);
    let finish = |node: &mut MemoryNode| while node.step(Duration::ZERO).unwrap() {};
    let free = node.statistics().free_extents;
    let lease = LeaseExtents { session: SessionId(flood.id().0), count: 2, purpose: Purpose::Flush };
    listener.request(&flood, Procedure::LeaseExtents, 0, Ok(&lease.encode()));
    finish(&mut node);
    let held = |node: &MemoryNode| (node.statistics().sessions, free - node.statistics().free_extents);
    assert_eq!(held(&node), (1, 2));
    let length = rpc::MAX_INLINE_BYTES as u32 + 1;
    for number in 1..=u64::from(MOST_WAITING + MOST_CROWDING) {
        listener.request(&flood, Procedure::SubmitJob, number, Err(length));
    }
    finish(&mut node);
    assert!(listener.is_idle() && !flood.is_closed.load(Relaxed));
    let replies = || lock(&flood.replies).len();
    let before = replies();
    // The first is too many, and what follows is not examined.
    for number in 0..10 {
        listener.request(&flood, Procedure::SubmitJob, 1000 + number, Err(length));
        renew(&listener, &flood, 2000 + number);
    }
    finish(&mut node);
    let figures = &node.tenants()[0];
    assert!(flood.is_closed.load(Relaxed));
    assert_eq!((figures.closed_links, figures.waiting_calls, replies() - before), (1, 0, 0));
    // It may be in the middle of a copy.
    assert_eq!(held(&node), (1, 2));
    assert!(lock(&flood.revoked).is_empty());
    listener.left(&flood);
    finish(&mut node);
    assert_eq!(held(&node), (0, 0));
}

#[test]
fn a_link_without_room_learns_why_from_its_first_call() {
    let listener = FakeListener::default();
    let limits = Limits { links: Some(1), ..Limits::default() };
    let options = Options {
        extent_bytes: Some(64 << 10),
        identify: Identify::new(|_| Identity::new("secret:one").unwrap()),
        tenants: TenantsOptions { others: limits, ..TenantsOptions::default() },
        clock: Arc::new(ManualClock::new()),
        ..Options::with_memory(1 << 20)
    };
    let mut node = MemoryNode::new(Box::new(listener.clone()), options).unwrap();
    let finish = |node: &mut MemoryNode| while node.step(Duration::ZERO).unwrap() {};
    let none = || Text::new("").unwrap();
    let open = OpenSession { protocol: PROTOCOL_VERSION, tenant: none(), name: none(), capabilities: 0 };
    let peers: [Arc<FakePeer>; MOST_REFUSED + 2] = std::array::from_fn(|at| Arc::new(FakePeer::new(at as u64 + 1)));
    let [has_room, first, second, rest @ ..] = &peers;
    for peer in [has_room, first] {
        listener.joined(peer);
        listener.request(peer, Procedure::OpenSession, 7, Ok(&open.encode()));
        finish(&mut node);
    }
    assert_eq!(*lock(&has_room.replies), [(1, 7, 0)]);
    assert_eq!(*lock(&first.replies), [(2, 7, ErrorKind::Full.code())]);
    assert!(!first.is_closed.load(Relaxed), "a reply may be under way still");
    // A link that sends more after the answer is closed, and so is the oldest of many.
    listener.request(first, Procedure::OpenSession, 8, Ok(&open.encode()));
    listener.joined(second);
    finish(&mut node);
    assert!(first.is_closed.load(Relaxed) && lock(&first.replies).len() == 1);
    listener.left(first);
    rest.iter().for_each(|peer| listener.joined(peer));
    finish(&mut node);
    assert!(!second.is_closed.load(Relaxed));
    let last = Arc::new(FakePeer::new(1000));
    listener.joined(&last);
    finish(&mut node);
    assert!(second.is_closed.load(Relaxed) && !rest.iter().any(|peer| peer.is_closed.load(Relaxed)));
    assert_eq!((node.tenants()[0].links, node.tenants()[0].sessions), (1, 1));
}
