//! Several copies in memory: what they survive, and what they cost.

use crate::common::copied::{joined, left_out, options, register, sharded, start, torture};
use crate::common::model::{Model, contents, key, write};
use crate::common::process::Process;
use crate::common::{Cluster, eventually};
use forebay_base::{ErrorKind, KeyOrder};
use forebay_engine::{Db, Options, ShardBounds, Storage, StorageOptions, WriteBatch};
use forebay_env::Random;
use forebay_memory_client::{ClientOptions, MemoryClient, Reach, ShardId};
use forebay_storage::{MemoryObjects, ObjectFault};
use forebay_table::{StoreConfig, StorePart};
use std::sync::Arc;

#[test]
fn acknowledged_writes_survive_the_process_and_all_nodes_but_one() {
    for seed in 0..2 {
        let (mut nodes, register) = (start(3), register());
        let mut random = Random::seeded(seed);
        let mut model = Model::new();
        let copies = 2 + (seed as usize) % 2;
        let process = Process::start(&nodes);
        // Without threads: while the process is killed, they would notice that one node after another is gone.
        let db = process.open(Options { background_threads: 0, ..sharded(&register, copies) });
        write(&db, &mut model, &mut random, 1500);
        process.kill(db);
        for _ in 1..copies {
            nodes.remove(random.below(nodes.len() as u64) as usize).stop();
        }
        let process = Process::start(&nodes);
        let db = process.open(Options { background_threads: 0, ..sharded(&register, copies) });
        assert!(contents(&db) == model, "seed {seed}");
        write(&db, &mut model, &mut random, 500);
        db.compact_range(None, None).unwrap();
        assert!(contents(&db) == model, "seed {seed}");
        process.kill(db);
        let process = Process::start(&nodes);
        assert!(contents(&process.open(sharded(&register, copies))) == model, "seed {seed}");
    }
}

#[test]
fn service_goes_on_when_a_node_is_lost() {
    for seed in 0..4 {
        let (mut nodes, register) = (start(2), register());
        let mut random = Random::seeded(seed);
        let mut model = Model::new();
        let process = Process::start(&nodes);
        let background_threads = if seed % 2 == 0 { 0 } else { 2 };
        let db = process.open(Options { background_threads, ..sharded(&register, 2) });
        write(&db, &mut model, &mut random, 1500);
        let before = contents(&db);
        let mut entries = db.iter().unwrap();
        entries.seek_to_first().unwrap();
        let snapshot = db.snapshot();
        nodes.remove(random.below(2) as usize).stop();
        match seed {
            0 => assert!(contents(&db) == model),
            1 => {
                let keys: Vec<_> = (0..2000).map(key).collect();
                let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
                let found = db.multi_get(&keys).unwrap();
                for (key, found) in keys.iter().zip(found) {
                    assert_eq!(found.as_ref(), model.get(*key));
                }
            }
            2 => (0..2000).for_each(|at| assert_eq!(db.get(&key(at)).unwrap().as_ref(), model.get(&key(at)))),
            _ => {}
        }
        // The same for iterators and snapshots.
        let mut found = Model::new();
        while entries.valid() {
            found.insert(entries.key().to_vec(), entries.value().to_vec());
            entries.next().unwrap();
        }
        assert!(found == before);
        write(&db, &mut model, &mut random, 1500);
        for (key, value) in &before {
            assert_eq!(db.get_at(key, &snapshot).unwrap().as_ref(), Some(value));
        }
        db.compact_range(None, None).unwrap();
        assert!(contents(&db) == model);
        process.kill(db);
        let process = Process::start(&nodes);
        let db = process.open(sharded(&register, 2));
        assert!(contents(&db) == model, "seed {seed}");
        db.close().unwrap();
    }
}

/// When closing ends something at one of the nodes, that does not count as the node's loss.
#[test]
fn closing_leaves_no_copy_out() {
    for round in 0..20 {
        let nodes = start(2);
        let process = Process::start(&nodes);
        let db = process.open(options(&register(), 2));
        write(&db, &mut Model::new(), &mut Random::seeded(round), 1000);
        db.close().unwrap();
        assert_eq!(db.missing_copies(), 0, "round {round}");
    }
}

#[test]
fn a_copy_that_was_left_out_is_not_opened() {
    left_out();
}

#[test]
fn a_node_that_joined_has_everything() {
    joined();
}

#[test]
fn a_deposed_writer_is_fenced() {
    let (nodes, register) = (start(2), register());
    let first = Process::start(&nodes);
    let db = first.open(options(&register, 2));
    db.put(b"a", b"1").unwrap();
    let second = Process::start(&nodes);
    let busy = second.try_open(options(&register, 2)).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    db.put(b"b", b"1").unwrap();
    // The third process reaches only one of the nodes. Without the register, the other one would be enough for the
    // first process.
    let third = Process::start(&nodes[1..]);
    let taken = third.open(Options { takeover: true, ..options(&register, 2) });
    assert_eq!(contents(&taken).len(), 2);
    assert_eq!(db.put(b"c", b"1").unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(db.put(b"d", b"1").unwrap_err().kind(), ErrorKind::Fenced);
    taken.put(b"e", b"1").unwrap();
    assert_eq!(taken.get(b"c").unwrap(), None);
    assert_eq!(contents(&taken).len(), 3);
}

#[test]
fn more_than_half_of_the_nodes_are_a_register() {
    let voted = || Options { register: None, ..sharded(&register(), 2) };
    for lost in [0, 2] {
        let mut nodes = start(3);
        let mut random = Random::seeded(lost);
        let mut model = Model::new();
        let process = Process::start(&nodes);
        let db = process.open(Options { background_threads: 0, ..voted() });
        write(&db, &mut model, &mut random, 500);
        process.kill(db);
        let process = Process::start(&nodes);
        let db = process.open(voted());
        assert!(contents(&db) == model);
        // One node is lost, and service continues. Then the process is lost.
        nodes.remove(lost as usize).stop();
        write(&db, &mut model, &mut random, 500);
        eventually("all copies are there again", || db.missing_copies() == 0);
        let busy = Process::start(&nodes).try_open(voted()).unwrap_err();
        assert_eq!(busy.kind(), ErrorKind::Busy, "{busy}");
        let next = Process::start(&nodes);
        let taken = next.open(Options { takeover: true, ..voted() });
        assert!(contents(&taken) == model);
        assert_eq!(db.put(b"a", b"1").unwrap_err().kind(), ErrorKind::Fenced);
        taken.close().unwrap();
        drop((db, process, taken, next));
        // One node of three decides nothing, although it has copies.
        nodes.remove(0).stop();
        let few = Process::start(&nodes).try_open(voted()).unwrap_err();
        assert_eq!(few.kind(), ErrorKind::Unavailable, "{few}");
    }
}

#[test]
fn one_of_two_nodes_decides_nothing() {
    let voted = || Options { register: None, background_threads: 0, ..options(&register(), 2) };
    let mut nodes = start(2);
    let process = Process::start(&nodes);
    let db = process.open(voted());
    db.put(b"a", b"1").unwrap();
    nodes.remove(0).stop();
    assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(db.put(b"b", b"1").unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn what_copies_cost() {
    let (nodes, register) = (start(3), register());
    for copies in [1, 2, 3] {
        let process = Process::start(&nodes);
        let mut options = Options { write_buffer_bytes: 4 << 20, background_threads: 0, ..options(&register, copies) };
        options.name = Some(format!("db{copies}"));
        if copies == 1 {
            options.register = None;
        }
        let db = process.open(options);
        db.put(b"first", b"").unwrap();
        let before = db.statistics();
        for number in 0..100 {
            db.put(&key(number), &[0; 1000]).unwrap();
        }
        let after = db.statistics();
        let (log, records) = (after.log.bytes - before.log.bytes, after.log.records - before.log.records);
        assert_eq!((records, after.log.groups - before.log.groups), (100, 100));
        let sent = after.foreground.bytes_written - before.foreground.bytes_written;
        let copies = copies as u64;
        assert!(log >= 100 * 1000 && sent * 100 <= copies * log * 105, "{sent} bytes for {log}, {copies} copies");
        // One for each link: they are under way together.
        let trips = after.foreground.round_trips - before.foreground.round_trips;
        assert!(trips <= 100 * copies, "{trips} round trips");
        db.close().unwrap();
    }
}

#[test]
fn databases_with_copies_are_dropped() {
    let (nodes, register) = (start(2), register());
    let process = Process::start(&nodes);
    let db = process.open(sharded(&register, 2));
    write(&db, &mut Model::new(), &mut Random::seeded(1), 2000);
    db.close().unwrap();
    drop(db);
    let few = process.try_open(Options { name: Some("other".into()), ..sharded(&register, 3) }).unwrap_err();
    assert_eq!(few.kind(), ErrorKind::Invalid);
    let other = process.try_open(sharded(&crate::common::copied::register(), 2)).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::AlreadyExists);
    // A database of this name that another register knows stays.
    Db::destroy_copies(&register, &process.clients[1..], "db").unwrap();
    let others = crate::common::copied::register();
    let single = Options { shards: 1, ..options(&others, 2) };
    let extra = start(1);
    let elsewhere = Process::start([&nodes[1], &extra[0]]);
    elsewhere.open(single.clone()).close().unwrap();
    Db::destroy_copied(&register, &process.clients, "db").unwrap();
    elsewhere.open(Options { create_if_missing: false, ..single }).close().unwrap();
    Db::destroy_copied(&others, &elsewhere.clients, "db").unwrap();
    drop(elsewhere);
    assert_eq!(Db::destroy_copied(&register, &process.clients, "db").unwrap_err().kind(), ErrorKind::NotFound);
    drop(process);
    nodes.iter().for_each(Cluster::expect_nothing_leased);
}

/// The owner has nothing at the third node, and makes the next copy there.
#[test]
fn a_drop_that_is_refused_takes_no_node_from_the_owner() {
    let (mut nodes, register) = (start(3), register());
    let process = Process::start(&nodes);
    let db = process.open(Options { shards: 1, ..options(&register, 2) });
    db.put(b"a", b"1").unwrap();
    let other = Process::start([2, 0, 1].map(|at| &nodes[at]));
    let refused = Db::destroy_copied(&register, &other.clients, "db").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
    assert!(other.clients.iter().all(|client| client.list_stores().unwrap().len() == 1));
    nodes.remove(0).stop();
    db.put(b"a", b"2").unwrap();
    eventually("there are two copies again", || db.missing_copies() == 0);
    db.close().unwrap();
}

/// A node that came back holds no copy any more. It is spare, like one that never held any.
#[test]
fn a_drop_that_is_refused_leaves_a_node_that_came_back() {
    let (nodes, register) = (start(3), register());
    let process = Process::start(&nodes);
    let db = process.open(Options { shards: 1, ..options(&register, 2) });
    process.links[1].close();
    db.put(b"a", b"1").unwrap();
    eventually("there are two copies again", || db.missing_copies() == 0);
    db.add_memory_node(&nodes[1].client()).unwrap();
    let other = Process::start([1, 0, 2].map(|at| &nodes[at]));
    let refused = Db::destroy_copied(&register, &other.clients, "db").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
    assert!(other.clients.iter().all(|client| client.list_stores().unwrap().len() == 1));
    db.close().unwrap();
}

/// A process that reaches no node with a copy cannot open the database, and takes it from nobody.
#[test]
fn who_reaches_no_copy_fences_nobody() {
    let (mut nodes, register) = (start(2), register());
    let process = Process::start(&nodes);
    let usual = || Options { shards: 1, ..options(&register, 2) };
    let db = process.open(usual());
    nodes.remove(1).stop();
    db.put(b"a", b"1").unwrap();
    assert_eq!(db.missing_copies(), 1);
    let another = Cluster::start(64 << 20);
    let refused = Process::start([&another]).try_open(usual()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    // The register is written.
    db.add_memory_node(&another.client()).unwrap();
    eventually("there are two copies again", || db.missing_copies() == 0);
    db.close().unwrap();
}

#[test]
fn missing_copies_are_made_while_service_goes_on() {
    for seed in 0..2 {
        let (mut nodes, register) = (start(3), register());
        let mut random = Random::seeded(seed);
        let mut model = Model::new();
        let process = Process::start(&nodes);
        let db = process.open(sharded(&register, 2));
        write(&db, &mut model, &mut random, 1500);
        // Another node of the database replaces the first, and a node that comes back empty replaces the second.
        for round in 0..4 {
            let at = random.below(nodes.len() as u64) as usize;
            nodes.remove(at).stop();
            write(&db, &mut model, &mut random, 300);
            if round % 2 == 1 {
                nodes.push(Cluster::start(64 << 20));
                nodes.push(Cluster::start(64 << 20));
                for node in &nodes[1..] {
                    let link = node.connect();
                    let client = MemoryClient::connect(link, "again", ClientOptions::default()).unwrap();
                    db.add_memory_node(&client).unwrap();
                }
            }
            eventually("all copies are there again", || {
                write(&db, &mut model, &mut random, 10);
                db.missing_copies() == 0
            });
            assert!(contents(&db) == model, "seed {seed}, round {round}");
        }
        db.compact_range(None, None).unwrap();
        assert!(contents(&db) == model);
        drop(db);
        drop(process);
        nodes.remove(0).stop();
        let process = Process::start(&nodes);
        assert!(contents(&process.open(sharded(&register, 2))) == model, "seed {seed}");
    }
}

#[test]
fn a_node_that_joined_has_its_share_of_the_budget_for_indexes() {
    const BUDGET: u64 = 32 << 10;
    let (mut nodes, register) = (start(2), register());
    let process = Process::start(&nodes);
    let db = process.open(Options { cached_index_bytes: Some(BUDGET), ..options(&register, 2) });
    // The indexes of all tables do not fit.
    let fill = || {
        for first in (0..10_000).step_by(100) {
            let mut batch = WriteBatch::new();
            for number in first..first + 100 {
                batch.put(&key(number), &[7; 20]);
            }
            db.write(&batch).unwrap();
        }
        db.compact_range(None, None).unwrap();
    };
    fill();
    nodes.remove(0).stop();
    db.put(&key(0), b"").unwrap();
    nodes.push(Cluster::start(64 << 20));
    db.add_memory_node(&nodes[1].client()).unwrap();
    eventually("all copies are there again", || {
        db.put(&key(0), b"").unwrap();
        db.missing_copies() == 0
    });
    // Now all tables are at the node that joined.
    nodes.remove(0).stop();
    fill();
    let held = db.statistics().cached_index_bytes;
    assert!(held <= BUDGET / 2, "{held}");
}

#[test]
fn a_register_whose_service_ignores_conditions_is_refused() {
    let (nodes, objects) = (start(2), MemoryObjects::of_careless_service());
    let process = Process::start(&nodes);
    let careless = Storage::of_objects(Arc::new(objects), StorageOptions::default());
    let error = process.try_open(options(&careless, 2)).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("If-None-Match"), "{error}");
    process.open(options(&register(), 2)).put(b"a", b"1").unwrap();
}

/// The register fails after the nodes have stores of the database. A register that knows nothing creates the database.
/// One that does not know a database that was in use does not.
#[test]
fn a_creation_that_the_register_did_not_hear_of_is_made_again() {
    let (nodes, objects) = (start(2), MemoryObjects::new());
    let handle = objects.handle();
    let failing = Storage::of_objects(Arc::new(handle.clone()), StorageOptions::default());
    let process = Process::start(&nodes);
    handle.fail_at(handle.steps() + 2, ObjectFault::Refused(ErrorKind::Unavailable));
    process.try_open(sharded(&failing, 2)).expect_err("the register fails");
    let db = process.open(sharded(&failing, 2));
    db.put(b"a", b"1").unwrap();
    db.close().unwrap();
    let other = process.try_open(sharded(&register(), 2)).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::AlreadyExists, "{other}");
    assert_eq!(process.open(sharded(&failing, 2)).get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
}

/// The memory nodes are the register, and `begun` of three have a store: the process that made them ended. Another
/// one may have used them, and left it at that.
#[test]
fn a_creation_that_the_nodes_did_not_see_the_end_of_is_completed() {
    let voted = || Options { register: None, ..sharded(&register(), 2) };
    let config = StoreConfig {
        key_order: KeyOrder::Bytewise,
        shards: 4,
        merge_operator: String::new(),
        bounds: [500, 1000, 1500].map(key).to_vec(),
        part: Some(StorePart { database: 7, place: 0, nodes: 3 }),
        copies: 2,
        to_finish: false,
    };
    for (begun, used) in [(1, 0), (2, 0), (3, 0), (2, 1), (2, 2), (3, 3), (1, 1)] {
        let mut nodes = start(3);
        let process = Process::start(&nodes);
        for (at, client) in process.clients.iter().take(begun).enumerate() {
            let store = client.create_store("db", &config.encode().unwrap()).unwrap();
            if at < used {
                store.acquire_shard(ShardId(u32::MAX), false).unwrap().release().unwrap();
            }
        }
        let few = Process::start(&nodes[..2]).try_open(voted()).unwrap_err();
        assert_eq!(few.kind(), ErrorKind::Unavailable, "{few}");
        nodes.push(Cluster::start(64 << 20));
        let many = Process::start(&nodes).try_open(voted()).unwrap_err();
        assert_eq!(many.kind(), ErrorKind::Unavailable, "{many}");
        nodes.pop();
        // Others are named that cannot be reached, and may be those.
        let gone = || Arc::new(Reach::new(|| Err(forebay_memory_client::Error::Invalid("gone".to_owned()))));
        let named = Options { memory_nodes: (0..4).map(|_| gone()).collect(), ..voted() };
        let hidden = process.try_open(named).unwrap_err();
        assert_eq!(hidden.kind(), ErrorKind::Unavailable, "{hidden}");
        if begun == 1 && used == 1 {
            // Two nodes may have forgotten what they said.
            let refused = process.try_open(voted()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
            Db::destroy(&process.clients, "db").unwrap();
        } else {
            let missing = process.try_open(Options { create_if_missing: false, ..voted() }).unwrap_err();
            assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
            let other = Options { shards: 3, shard_bounds: ShardBounds::Uniform, ..voted() };
            let other = process.try_open(other).unwrap_err();
            assert_eq!(other.kind(), ErrorKind::Invalid, "{other}");
        }
        let db = process.open(voted());
        db.put(b"a", b"1").unwrap();
        process.kill(db);
        nodes.remove(begun % 3).stop();
        let process = Process::start(&nodes);
        let db = process.open(voted());
        assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"1"[..]), "{begun} begun, {used} used");
        process.kill(db);
    }
}

/// Two processes create a database at the same time, and name the nodes in different orders. Either may be refused, and
/// what they leave is one database.
#[test]
fn a_creation_that_two_began_needs_no_drop() {
    for _ in 0..2 {
        let (nodes, register) = (start(3), register());
        let in_order = |order: [usize; 3]| Process::start(order.map(|at| &nodes[at]));
        let processes = [in_order([0, 1, 2]), in_order([2, 1, 0])];
        std::thread::scope(|scope| {
            for Process { clients, .. } in &processes {
                let options = sharded(&register, 2);
                scope.spawn(move || drop(Db::open(clients, options)));
            }
        });
        drop(processes);
        Process::start(&nodes).open(sharded(&register, 2));
    }
}

/// A node that cannot be reached looks like one that is not named, except where too few are named.
#[test]
fn whoever_wants_all_copies_named_leaves_none_out_that_is_not() {
    let (nodes, register) = (start(3), register());
    let all = Options { all_copies_named: true, ..sharded(&register, 2) };
    let mut model = Model::new();
    let db = Process::start(&nodes).open(all.clone());
    write(&db, &mut model, &mut Random::seeded(1), 500);
    db.close().unwrap();
    drop(db);
    let refused = Process::start(&nodes[..2]).try_open(all.clone()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    let third = Process::start(&nodes[2..]).clients[0].node().to_string();
    assert!(refused.to_string().contains(&format!("also on {third}.")), "{refused}");
    let db = Process::start(&nodes).open(all.clone());
    assert_eq!((contents(&db) == model, db.missing_copies()), (true, 0));
    db.close().unwrap();
    drop(db);
    // An empty node may be what has become of the third.
    let empty = Cluster::start(64 << 20);
    let process = Process::start([&nodes[0], &nodes[1], &empty]);
    let db = process.open(Options { background_threads: 0, ..all });
    assert!(contents(&db) == model && db.missing_copies() > 0);
}

/// A process that names no register, or names one where the nodes are the register, begins no second database on the
/// copies of the first.
#[test]
fn copies_are_opened_with_their_own_register_only() {
    let voted = |shards: usize| Options { register: None, shards, ..options(&register(), 2) };
    for (right, wrong) in [(options(&register(), 2), voted(1)), (voted(1), options(&register(), 2))] {
        let nodes = start(3);
        let process = Process::start(&nodes);
        let db = process.open(right.clone());
        db.put(b"a", b"1").unwrap();
        db.close().unwrap();
        drop(db);
        for create_if_missing in [true, false] {
            let refused = process.try_open(Options { create_if_missing, ..wrong.clone() }).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");
            assert!(refused.to_string().contains("register"), "{refused}");
        }
        assert_eq!(process.open(right.clone()).get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
        // Nothing is left on a node without a part, where another one has a part of another database.
        let empty = Cluster::start(64 << 20);
        let process = Process::start([&empty, &nodes[0], &nodes[1], &nodes[2]]);
        let refused = process.try_open(wrong.clone()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");
        assert!(process.clients[0].list_stores().unwrap().is_empty());
    }
}

/// Two members are left, and too few nodes to say so: a write is refused, and does not try one after the other for
/// ever.
#[test]
fn a_register_that_is_lost_ends_no_write_in_circles() {
    let voted = Options { register: None, background_threads: 0, ..options(&register(), 3) };
    let mut nodes = start(5);
    let process = Process::start(&nodes);
    let db = process.open(voted);
    db.put(b"a", b"1").unwrap();
    // Three of five are lost: the first member, which serves, and both nodes that hold nothing.
    nodes.drain(3..).for_each(|mut node| node.stop());
    nodes.remove(0).stop();
    assert_eq!(db.put(b"b", b"1").unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_database_opens_with_a_node_that_came_back_empty() {
    let (mut nodes, register) = (start(2), register());
    let mut model = Model::new();
    let process = Process::start(&nodes);
    let db = process.open(Options { background_threads: 0, ..sharded(&register, 2) });
    write(&db, &mut model, &mut Random::seeded(5), 1500);
    process.kill(db);
    nodes.remove(0).stop();
    nodes.push(Cluster::start(64 << 20));
    let process = Process::start(&nodes);
    let db = process.open(sharded(&register, 2));
    assert!(contents(&db) == model);
    eventually("all copies are there again", || db.missing_copies() == 0);
    drop(db);
    drop(process);
    nodes.remove(0).stop();
    let process = Process::start(&nodes);
    assert!(contents(&process.open(sharded(&register, 2))) == model);
}

/// The register fails when it is to name a node that has joined. The node has everything, and is named later.
#[test]
fn a_node_that_joined_is_named_when_the_register_is_back() {
    let (mut nodes, objects) = (start(3), MemoryObjects::new());
    let handle = objects.handle();
    let failing = Storage::of_objects(Arc::new(handle.clone()), StorageOptions::default());
    let options = || Options { background_threads: 0, ..options(&failing, 2) };
    let process = Process::start(&nodes);
    let db = process.open(options());
    db.put(b"a", b"1").unwrap();
    nodes.remove(1).stop();
    db.put(b"b", b"1").unwrap();
    assert_eq!(db.missing_copies(), 1);
    handle.fail_at(handle.steps() + 1, ObjectFault::Refused(ErrorKind::Unavailable));
    db.run_background_step();
    assert_eq!(db.missing_copies(), 1, "the register may not name it");
    db.put(b"c", b"1").unwrap();
    db.run_background_step();
    assert_eq!(db.missing_copies(), 0);
    process.kill(db);
    nodes.remove(0).stop();
    let process = Process::start(&nodes);
    assert_eq!(contents(&process.open(options())).len(), 3);
}

#[test]
fn whatever_is_lost() {
    (0..2).for_each(torture);
}
