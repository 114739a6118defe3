//! Candidates for scheduling, elected by the directory of a memory node or by a storage.

use forebay_base::ErrorKind;
use forebay_engine::{Storage, StorageOptions};
use forebay_env::{Clock, ManualClock, Nanos};
use forebay_fabric::inprocess;
use forebay_memory_client::{ClientOptions, MemoryClient, Reach, ShardId};
use forebay_memory_node::{MemoryNode, Options};
use forebay_offload::{Election, Register, Term};
use forebay_storage::{MemoryObjects, ObjectFault, ObjectStorage};
use forebay_worker::{NodeRegister, StoredRegister};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Client = Arc<Mutex<Option<Arc<MemoryClient>>>>;

/// A candidate's register, and its session.
fn candidate(connector: &inprocess::Connector, address: &str) -> (NodeRegister, Client) {
    let (connector, client) = (connector.clone(), Client::default());
    let kept = Arc::clone(&client);
    let reach = Reach::new(move || {
        let client = MemoryClient::connect(connector.connect()?, "candidate", ClientOptions::default())?;
        *kept.lock().unwrap() = Some(Arc::clone(&client));
        Ok(client)
    });
    (NodeRegister::new(reach, address.into()), client)
}

#[test]
fn one_at_a_time_and_each_with_a_later_term() {
    let (listener, connector) = inprocess::listen(1).unwrap();
    let _node = MemoryNode::start(Box::new(listener), Options::with_memory(16 << 20)).unwrap();
    let (mut first, client) = candidate(&connector, "first");
    let (mut second, _) = candidate(&connector, "second");
    let mut elections = [Election::new(300), Election::new(300)];
    elections[0].ask(0, &mut first).unwrap();
    elections[1].ask(0, &mut second).unwrap();
    assert_eq!(elections.each_ref().map(|election| election.leads(1)), [Some(Term(1)), None]);
    elections[0].ask(250, &mut first).unwrap();
    elections[1].ask(250, &mut second).unwrap();
    assert_eq!(elections.each_ref().map(|election| election.leads(500)), [Some(Term(1)), None]);
    // The link of the first candidate ends without its knowledge.
    client.lock().unwrap().take().unwrap().link().close();
    while second.claim().unwrap() != Some(Term(2)) {}
    assert!(first.renew(Term(1)).is_err());
    // The first one is a candidate again, with a new session.
    assert_eq!(first.claim().unwrap(), None);
    assert_eq!(second.renew(Term(2)).unwrap(), Some(Term(2)));
    // A process that looks for the scheduler finds it.
    let client = MemoryClient::connect(connector.connect().unwrap(), "reader", ClientOptions::default()).unwrap();
    let root = client.open_store("forebay.scheduler").unwrap().root(ShardId(0)).unwrap();
    assert_eq!(root.map(|(_, address)| address).as_deref(), Some(&b"second"[..]));
}

/// How long a term lasts in storage, nanoseconds.
const LEASE: Nanos = 600;

/// A candidate's register in storage, which it reaches by a handle of its own.
fn stored(objects: &MemoryObjects, clock: &Arc<ManualClock>, address: &str) -> (StoredRegister, MemoryObjects) {
    let handle = objects.handle();
    let storage = Storage::of_objects(Arc::new(handle.clone()), StorageOptions::default());
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    (StoredRegister::new(storage, address.into(), LEASE, clock).unwrap(), handle)
}

#[test]
fn a_term_in_storage_lasts_while_it_is_renewed() {
    let (objects, clock) = (MemoryObjects::new(), Arc::new(ManualClock::default()));
    let (mut first, _) = stored(&objects, &clock, "first");
    let (mut second, _) = stored(&objects, &clock, "second");
    assert_eq!(first.claim().unwrap(), Some(Term(1)));
    for _ in 0..20 {
        clock.advance(Duration::from_nanos(LEASE / 3));
        assert_eq!(first.renew(Term(1)).unwrap(), Some(Term(1)));
        assert_eq!(second.claim().unwrap(), None);
    }
    // Earlier commits are deleted.
    assert!(objects.list(None).unwrap().len() <= 2);
    // Nobody renews the term any more. The second candidate counts from when it saw the last renewal.
    clock.advance(Duration::from_nanos(LEASE - 1));
    assert_eq!(second.claim().unwrap(), None);
    clock.advance(Duration::from_nanos(LEASE / 3));
    assert_eq!(second.claim().unwrap(), Some(Term(2)));
    // The candidate that slept through that holds no term, and is a candidate again.
    assert_eq!(first.renew(Term(1)).unwrap(), None);
    assert_eq!(first.renew(Term(1)).unwrap(), None);
    assert_eq!(first.claim().unwrap(), None);
    assert_eq!(second.renew(Term(2)).unwrap(), Some(Term(2)));
}

#[test]
fn candidates_do_not_ask_the_storage_at_every_turn() {
    let (objects, clock) = (MemoryObjects::new(), Arc::new(ManualClock::default()));
    let (mut first, _) = stored(&objects, &clock, "first");
    let (mut second, asked) = stored(&objects, &clock, "second");
    first.claim().unwrap();
    for _ in 0..LEASE {
        assert_eq!(second.claim().unwrap(), None);
        clock.advance(Duration::from_nanos(1));
    }
    // A list and a read each time it looks.
    assert!(asked.steps() <= 12, "{} operations within a term", asked.steps());
}

#[test]
fn storage_that_fails_ends_no_term_before_its_time() {
    let (objects, clock) = (MemoryObjects::new(), Arc::new(ManualClock::default()));
    let (mut first, storage) = stored(&objects, &clock, "first");
    let mut election = Election::new(LEASE);
    election.ask(0, &mut first).unwrap();
    // First the renewal is refused. Then it is made, but its reply is lost: the candidate recognises its own commit.
    for fault in [ObjectFault::Refused(ErrorKind::Unavailable), ObjectFault::ReplyLost] {
        storage.fail_at(storage.steps(), fault);
        clock.advance(Duration::from_nanos(LEASE / 2));
        assert!(election.ask(clock.now(), &mut first).is_err(), "{fault:?}");
        election.ask(clock.now(), &mut first).unwrap();
        assert_eq!(election.leads(clock.now()), Some(Term(1)));
    }
    let (mut second, storage) = stored(&objects, &clock, "second");
    assert_eq!(second.claim().unwrap(), None);
    clock.advance(Duration::from_nanos(LEASE));
    storage.fail_at(storage.steps(), ObjectFault::Refused(ErrorKind::Unavailable));
    assert_eq!(second.claim().unwrap_err().kind(), ErrorKind::Unavailable);
    clock.advance(Duration::from_nanos(LEASE));
    assert_eq!(second.claim().unwrap(), Some(Term(2)));
}
