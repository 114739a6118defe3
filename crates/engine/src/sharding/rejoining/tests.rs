//! Memory nodes that are lost in every way come back, and the database finds out by itself.

use super::*;
use crate::Db;
use crate::durable::log::tests::{VALUE, World, all_there, connect, keys};
use crate::terms::options::ShardBounds;
use crate::terms::{Durability, Result, WriteOptions};
use forebay_fabric::sim::SimNetwork;
use forebay_memory_client::ClientOptions;
use forebay_proto::calls::CloseSession;
use forebay_storage::{Storage, StorageOptions};
use std::sync::atomic::{AtomicU64, Ordering};

const TIMEOUT: Duration = Duration::from_millis(50);

impl World {
    /// A process with a database on the nodes, on one thread.
    fn open(&self, copies: usize, register: Option<&Storage>) -> Process {
        self.open_once(copies, register, || ())
    }

    /// The same, once something has happened after all nodes were connected.
    fn open_once(&self, copies: usize, register: Option<&Storage>, something: impl FnOnce()) -> Process {
        self.open_as(copies, register, false, something)
    }

    fn open_as(&self, copies: usize, register: Option<&Storage>, takeover: bool, something: impl FnOnce()) -> Process {
        let options = Options { takeover, ..options(copies, register) };
        self.try_open(options, something).unwrap()
    }

    fn try_open(&self, options: Options, something: impl FnOnce()) -> Result<Process> {
        let tries = Arc::new(AtomicU64::new(0));
        let reach = |node: u32| {
            let (network, tries) = (self.network.clone(), Arc::clone(&tries));
            Arc::new(Reach::new(move || {
                tries.fetch_add(1, Ordering::Relaxed);
                let options =
                    ClientOptions { timeout: TIMEOUT, renew: false, clock: network.clock(), ..Default::default() };
                MemoryClient::connect(network.connect(node)?, "owner", options)
            }))
        };
        let nodes: Vec<_> = self.numbers().into_iter().map(reach).collect();
        let clients: Vec<_> = nodes.iter().map(|node| node.client().unwrap()).collect();
        let options = Options { memory_nodes: nodes.clone(), clock: self.network.clock(), ..options };
        something();
        Ok(Process { db: Db::open(&clients, options)?, nodes, tries, network: self.network.clone() })
    }
}

fn options(copies: usize, register: Option<&Storage>) -> Options {
    Options {
        name: Some("db".to_owned()),
        durability: Durability::Memory { copies },
        register: register.cloned(),
        write_buffer_bytes: 64 << 10,
        background_threads: 0,
        fabric_timeout: TIMEOUT,
        ..Options::default()
    }
}

struct Process {
    db: Db,
    nodes: Vec<Arc<Reach>>,
    /// How often it has connected to a node, or tried to.
    tries: Arc<AtomicU64>,
    network: SimNetwork,
}

impl Process {
    /// Lets time pass, in which the process renews its sessions and does what is due in the background.
    fn pass(&self, seconds: u64) {
        for _ in 0..seconds {
            self.network.clock().sleep(Duration::from_secs(1));
            for client in self.nodes.iter().filter_map(|node| node.known()) {
                // A failure that ends the session is remembered.
                let _ = client.renew();
            }
            (0..100).take_while(|_| self.db.run_background_step()).count();
        }
    }

    /// Lets time pass until no copy is missing.
    fn pass_until_whole(&self) {
        let is_whole = || self.db.missing_copies() == 0;
        assert!(
            (0..60).any(|_| is_whole() || {
                self.pass(1);
                is_whole()
            }),
            "copies are missing"
        );
    }

    /// Checks that the process knows that another one took over, and writes nothing.
    fn expect_fenced(&self) {
        assert_eq!(self.db.failure().map(|error| error.kind()), Some(ErrorKind::Fenced));
        assert_eq!(self.db.put(b"000", &VALUE).unwrap_err().kind(), ErrorKind::Fenced);
    }

    /// The process has stood still past its leases.
    fn lapse(&self) {
        for client in self.nodes.iter().filter_map(|node| node.known()) {
            client.call(&CloseSession { session: client.session() }).unwrap();
        }
    }

    fn kill(self) {
        self.nodes.iter().filter_map(|node| node.known()).for_each(|client| client.link().close());
    }

    fn write(&self, some: usize) {
        keys().take(some).for_each(|key| self.db.put(&key, &VALUE).unwrap());
    }
}

fn register() -> Storage {
    Storage::open("memory:", StorageOptions::default()).unwrap()
}

#[test]
fn a_node_that_is_started_again_gets_the_copies_that_are_missing() {
    for (nodes, register) in [(2, Some(register())), (3, None)] {
        let world = World::new(nodes);
        let process = world.open(nodes as usize, register.as_ref());
        process.write(100);
        world.network.crash(2);
        process.write(101);
        assert_eq!(process.db.missing_copies(), 1);
        // The node is tried less and less often.
        let before = process.tries.load(Ordering::Relaxed);
        process.pass(60);
        let tries = process.tries.load(Ordering::Relaxed) - before;
        assert!((4..=7).contains(&tries), "{tries} tries within a minute");
        assert_eq!(process.db.missing_copies(), 1);
        world.start(2);
        process.pass_until_whole();
        process.write(200);
        // All that is needed is there.
        world.network.crash(1);
        if nodes == 2 {
            process.write(100);
        }
        assert!(all_there(&process.db));
    }
}

/// The node's session lives on, and was a member before.
#[test]
fn a_node_that_was_slow_gets_the_copies_that_are_missing() {
    let world = World::new(2);
    let process = world.open(2, Some(&register()));
    process.write(100);
    world.network.partition(2);
    process.write(101);
    world.network.heal(2);
    assert_eq!(process.db.missing_copies(), 1);
    let session = process.nodes[1].known().unwrap();
    process.pass_until_whole();
    session.renew().expect_err("nobody needs it");
    assert_eq!(process.tries.load(Ordering::Relaxed), 3);
    process.write(200);
    world.network.crash(1);
    process.write(100);
    assert!(all_there(&process.db));
}

#[test]
fn all_nodes_hang_past_their_leases_one_after_the_other() {
    let world = World::new(3);
    let process = world.open(2, None);
    for node in [1, 2, 3, 1, 2] {
        world.network.partition(node);
        process.pass(12);
        process.write(150);
        world.network.heal(node);
        process.pass(31);
        process.pass_until_whole();
        process.write(200);
        assert!(all_there(&process.db));
    }
}

/// More than half of the nodes say which copies count, and each node votes again in its next life.
#[test]
fn all_nodes_are_started_again_one_after_the_other() {
    for copies in [2, 3] {
        let world = World::new(3);
        let mut process = world.open(copies, None);
        for (round, node) in [1, 2, 3, 1, 2, 3].into_iter().enumerate() {
            world.network.crash(node);
            process.write(150);
            world.start(node);
            process.write(160);
            process.pass_until_whole();
            // The vote of a node that holds nothing also counts.
            process.pass(31);
            process.write(200);
            assert!(all_there(&process.db));
            if round == 3 {
                // It also counts when the database is opened again.
                process.db.close().unwrap();
                process = world.open(copies, None);
                assert!(all_there(&process.db));
            }
        }
    }
}

/// One of them is connected, and does not answer.
#[test]
fn a_database_opens_beside_a_node_that_hangs() {
    for register in [Some(register()), None] {
        let world = World::new(3);
        let process = world.open(3, register.as_ref());
        process.write(200);
        process.db.close().unwrap();
        for hung in 1..=3 {
            let process = world.open_once(3, register.as_ref(), || world.network.partition(hung));
            assert!(all_there(&process.db));
            process.write(200);
            assert_eq!(process.db.missing_copies(), 1);
            world.network.heal(hung);
            process.pass_until_whole();
            process.write(200);
            assert!(all_there(&process.db));
            process.db.close().unwrap();
        }
    }
}

/// A node answers, and hangs from some step of opening on: each time from a later one.
#[test]
fn a_database_opens_while_a_node_begins_to_hang() {
    for (nodes, register) in [(2, Some(register())), (3, None)] {
        let world = World::new(nodes);
        // When which node begins to hang.
        let hangs = Arc::new((AtomicU64::new(u64::MAX), AtomicU64::new(0)));
        let (network, at) = (world.network.clone(), Arc::clone(&hangs));
        world.before_steps(move || {
            if network.steps() >= at.0.load(Ordering::Relaxed) {
                network.partition(at.1.load(Ordering::Relaxed) as u32);
            }
        });
        let options = || Options {
            shards: 2,
            shard_bounds: ShardBounds::Given(vec![b"100".to_vec()]),
            takeover: true,
            ..options(2, register.as_ref())
        };
        let mut process = world.try_open(options(), || ()).unwrap();
        process.write(200);
        let mut left_out = 0;
        for round in 0.. {
            let (steps, hung) = (round * 97, 1 + round % 2);
            process.pass_until_whole();
            process.write(100);
            process.kill();
            hangs.1.store(hung, Ordering::Relaxed);
            let hang = || hangs.0.store(world.network.steps() + steps, Ordering::Relaxed);
            process = world.try_open(options(), hang).unwrap();
            let has_hung = world.network.steps() >= hangs.0.load(Ordering::Relaxed);
            hangs.0.store(u64::MAX, Ordering::Relaxed);
            left_out += usize::from(process.db.missing_copies() > 0);
            assert!(all_there(&process.db), "{nodes} nodes, after {steps} steps");
            process.write(150);
            world.network.heal(hung as u32);
            if !has_hung {
                break;
            }
        }
        println!("{nodes} nodes: left out {left_out} times");
        assert!(left_out > 20, "{left_out}");
        process.pass_until_whole();
        assert!(all_there(&process.db));
        world.network.clear_progress_hook();
    }
}

/// The node has the only copy that can be read.
#[test]
fn a_node_that_alone_has_a_copy_and_hangs_is_named() {
    let (world, register) = (World::new(2), register());
    let process = world.open(2, Some(&register));
    process.write(200);
    process.db.close().unwrap();
    drop(process);
    world.network.crash(1);
    world.start(1);
    let hangs = Arc::new(AtomicU64::new(u64::MAX));
    let (network, at) = (world.network.clone(), Arc::clone(&hangs));
    world.before_steps(move || {
        if network.steps() >= at.load(Ordering::Relaxed) {
            network.partition(2);
        }
    });
    let alone = world.network.running(2).unwrap();
    let mut refused = 0;
    for round in 0.. {
        let hang = || hangs.store(world.network.steps() + 53 * round, Ordering::Relaxed);
        let opened = world.try_open(options(2, Some(&register)), hang);
        hangs.store(u64::MAX, Ordering::Relaxed);
        world.network.heal(2);
        let Err(error) = opened else { break };
        assert!(error.is_out_of_reach(), "{error}");
        let alone = format!("{} (incarnation {:016x})", alone.node, alone.incarnation);
        assert!(error.to_string().contains(&alone), "{error}");
        refused += 1;
        // Its shards are released with its sessions.
        world.network.clock().sleep(Duration::from_secs(30));
    }
    assert!(refused > 5, "{refused}");
    world.network.clear_progress_hook();
}

/// The others are dropped although one does not answer.
#[test]
fn a_database_is_dropped_at_all_nodes_that_answer() {
    for register in [Some(register()), None] {
        let world = World::new(3);
        let process = world.open(3, register.as_ref());
        process.write(10);
        process.db.close().unwrap();
        drop(process);
        let sessions = || [1, 2, 3].map(|node| connect(&world.network, node));
        let destroy = |clients: &[Arc<MemoryClient>]| match &register {
            Some(register) => Db::destroy_copied(register, clients, "db"),
            None => Db::destroy(clients, "db"),
        };
        let clients = sessions();
        world.network.partition(1);
        let error = destroy(&clients).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let named = |client: &Arc<MemoryClient>| error.to_string().contains(&client.node().to_string());
        assert_eq!([true, false, false], [&clients[0], &clients[1], &clients[2]].map(named), "{error}");
        world.network.heal(1);
        let clients = sessions();
        let stores = |client: &Arc<MemoryClient>| client.list_stores().unwrap().len();
        assert_eq!([0, 0], [stores(&clients[1]), stores(&clients[2])]);
        // As it was to be told.
        let again = destroy(&clients);
        assert!(again.is_ok() || again.unwrap_err().kind() == ErrorKind::NotFound, "the late call may have come");
        assert_eq!(stores(&clients[0]), 0);
        assert_eq!(destroy(&clients).unwrap_err().kind(), ErrorKind::NotFound);
    }
}

/// The next process that opens the database lets the node vote.
#[test]
fn a_node_that_came_back_while_nobody_had_the_database_votes() {
    let world = World::new(3);
    for node in [1, 2, 3, 2] {
        let process = world.open(3, None);
        process.write(200);
        process.pass_until_whole();
        process.db.close().unwrap();
        drop(process);
        world.restart(node);
    }
    assert!(all_there(&world.open(3, None).db));
}

/// Two of the three nodes that decide are away while tables are to be written.
#[test]
fn background_work_waits_for_the_register() {
    let world = World::new(3);
    let process = world.open(2, None);
    process.write(200);
    world.network.crash(3);
    world.network.partition(2);
    let unshipped = WriteOptions { durability: Some(Durability::None) };
    keys().take(70).for_each(|key| process.db.put_with(&key, &VALUE, &unshipped).unwrap());
    process.pass(12);
    assert!(process.db.failure().is_none(), "{:?}", process.db.failure());
    assert_eq!(process.db.put(b"000", &VALUE).unwrap_err().kind(), ErrorKind::Unavailable);
    world.network.heal(2);
    process.pass(31);
    process.write(200);
    process.pass_until_whole();
    assert!(all_there(&process.db));
}

#[test]
fn a_process_that_has_lost_all_sessions_learns_that_it_was_taken_over() {
    for register in [Some(register()), None] {
        let world = World::new(3);
        let process = world.open(2, register.as_ref());
        process.write(100);
        process.lapse();
        let other = world.open(2, register.as_ref());
        other.write(200);
        (0..15).for_each(|_| [&process, &other].into_iter().for_each(|process| process.pass(1)));
        process.expect_fenced();
        assert!(all_there(&other.db));
        other.write(200);
    }
}

#[test]
fn a_process_that_has_lost_all_sessions_and_was_not_taken_over_goes_on() {
    for (copies, register) in [(2, Some(register())), (2, None), (3, Some(register())), (3, None)] {
        let world = World::new(3);
        let process = world.open(copies, register.as_ref());
        let unshipped = WriteOptions { durability: Some(Durability::None) };
        for round in 0..3 {
            process.write(200);
            process.db.put_with(b"unshipped", &VALUE, &unshipped).unwrap();
            if round == 1 {
                // The process finds out by a write.
                process.lapse();
                assert_eq!(process.db.put(b"000", &VALUE).unwrap_err().kind(), ErrorKind::Unavailable);
            } else {
                process.lapse();
            }
            process.pass(5);
            assert_eq!(process.db.get(b"unshipped").unwrap().as_deref(), Some(&VALUE[..]));
            process.write(150);
            process.pass_until_whole();
            assert!(all_there(&process.db));
            process.db.compact_range(None, None).unwrap();
            assert!(all_there(&process.db));
        }
        process.write(200);
        // Whatever the process held before it lost its sessions.
        drop(process);
        let next = world.open_as(copies, register.as_ref(), true, || ());
        assert!(all_there(&next.db));
        assert_eq!(next.db.get(b"unshipped").unwrap().as_deref(), Some(&VALUE[..]));
        // The database continues with one of the nodes alone, if that one has a copy.
        if copies == 3 {
            next.lapse();
            world.network.partition(1);
            if register.is_some() {
                world.network.partition(2);
            }
            next.pass(40);
            next.write(150);
            assert!(all_there(&next.db));
        }
    }
}

/// The other process has ended since, and left the database in order.
#[test]
fn a_process_does_not_get_back_what_another_one_had_meanwhile() {
    for register in [Some(register()), None] {
        let world = World::new(3);
        let process = world.open(3, register.as_ref());
        process.write(200);
        process.lapse();
        let other = world.open(3, register.as_ref());
        other.db.put(b"other", &VALUE).unwrap();
        other.db.close().unwrap();
        drop(other);
        process.pass(40);
        process.expect_fenced();
        let next = world.open(3, register.as_ref());
        assert!(all_there(&next.db));
        assert_eq!(next.db.get(b"other").unwrap().as_deref(), Some(&VALUE[..]));
    }
}

/// An iterator whose version has been replaced since it began, and which has not read much of it.
fn begun(process: &Process) -> crate::DbIterator {
    let db = &process.db;
    process.write(200);
    db.flush().unwrap();
    let mut iterator = db.iter().unwrap();
    iterator.seek_to_first().unwrap();
    keys().take(200).for_each(|key| db.put(&key, b"later").unwrap());
    db.flush().unwrap();
    db.compact_range(None, None).unwrap();
    iterator
}

/// Reads on to the end.
fn finish(mut iterator: crate::DbIterator) {
    let mut read = 0;
    while iterator.valid() {
        assert_eq!(iterator.value(), VALUE, "{:?}", iterator.key());
        read += 1;
        iterator.next().unwrap();
    }
    assert_eq!(read, 200);
}

/// By the time the iterators read on, another node serves. Their own node is back, or gone.
#[test]
fn iterators_go_on_where_another_node_serves() {
    for is_there in [true, false] {
        let world = World::new(2);
        let process = world.open(2, Some(&register()));
        let iterator = begun(&process);
        world.network.partition(1);
        process.write(1);
        assert_eq!(process.db.missing_copies(), 1);
        if is_there {
            world.network.heal(1);
        }
        finish(iterator);
    }
}

/// What they read is where it was, and nothing else is put there.
#[test]
fn iterators_go_on_after_all_sessions_were_regained() {
    for copies in [2, 3] {
        let world = World::new(3);
        let process = world.open(copies, Some(&register()));
        let iterators = [(begun(&process), false), (begun(&process), true)];
        for (mut iterator, reads_meanwhile) in iterators {
            process.lapse();
            if reads_meanwhile {
                let failed = (0..200).find_map(|_| iterator.next().err()).unwrap();
                assert_eq!(failed.kind(), ErrorKind::Unavailable, "{failed}");
            }
            process.pass(3);
            if reads_meanwhile {
                iterator.seek_to_first().unwrap();
            }
            keys().take(200).for_each(|key| process.db.put(&key, b"latest").unwrap());
            process.db.flush().unwrap();
            process.db.compact_range(None, None).unwrap();
            process.pass_until_whole();
            finish(iterator);
        }
    }
}

/// All nodes that had what they read when they began are lost, one after the other.
#[test]
fn iterators_go_on_at_nodes_that_have_joined() {
    let world = World::new(3);
    let process = world.open(2, Some(&register()));
    let iterator = begun(&process);
    for lost in [1, 2] {
        world.network.crash(lost);
        process.write(1);
        world.start(lost);
        process.pass_until_whole();
    }
    finish(iterator);
}

/// How long the first user of a database waits when a node begins to hang: for the node once, and a part of that once
/// more.
#[test]
fn a_node_that_begins_to_hang_is_waited_for_once() {
    for (copies, nodes, has_register) in [(2, 2, true), (2, 3, false), (3, 3, false)] {
        for hung in 1..=nodes {
            for writes in [true, false] {
                let world = World::new(nodes);
                let register = has_register.then(register);
                let process = world.open(copies, register.as_ref());
                process.write(100);
                process.db.flush().unwrap();
                world.network.partition(hung);
                let clock = world.network.clock();
                let before = clock.now();
                match writes {
                    true => process.write(1),
                    false => assert!(process.db.get(b"001").unwrap().is_some()),
                }
                let waits = (clock.now() - before) as f64 / TIMEOUT.as_nanos() as f64;
                assert!(
                    waits < 1.5,
                    "{copies} copies on {nodes} nodes, {hung} hangs, writes {writes}: {waits} timeouts"
                );
            }
        }
    }
}
