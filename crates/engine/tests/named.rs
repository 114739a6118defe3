//! Named databases: they outlive their process.

use crate::common::process::Process;
use crate::common::{Cluster, eventually, small_options};
use forebay_base::{ErrorKind, KeyOrder};
use forebay_engine::{CompactionPlace, Db, Error, Options, ShardBounds, Storage, StorageOptions, WriteBatch};
use forebay_memory_client::{ClientOptions, MemoryClient};
use forebay_table::{StoreConfig, StorePart};

fn named(name: &str) -> Options {
    Options { name: Some(name.to_owned()), ..small_options() }
}

fn key(i: u32) -> Vec<u8> {
    format!("key {i:06}").into_bytes()
}

fn value(i: u32) -> Vec<u8> {
    format!("value {i} {}", "x".repeat(i as usize % 200)).into_bytes()
}

fn fill(db: &Db, keys: std::ops::Range<u32>) {
    keys.for_each(|i| db.put(&key(i), &value(i)).unwrap());
}

fn check(db: &Db, keys: std::ops::Range<u32>) {
    keys.for_each(|i| assert_eq!(db.get(&key(i)).unwrap(), Some(value(i)), "key {i}"));
}

#[test]
fn a_database_is_there_after_it_was_closed() {
    for place in [CompactionPlace::ComputeNode, CompactionPlace::MemoryNode] {
        let cluster = Cluster::start(64 << 20);
        let options = Options { compaction_place: place, ..named("db") };
        for round in 0..4 {
            let process = Process::start([&cluster]);
            let db = process.open(options.clone());
            check(&db, 0..round * 1000);
            fill(&db, round * 1000..(round + 1) * 1000);
            db.close().unwrap();
            drop(db);
            assert_eq!(Db::list(&process.clients).unwrap(), ["db"]);
        }
        let process = Process::start([&cluster]);
        Db::destroy(&process.clients, "db").unwrap();
        assert!(Db::list(&process.clients).unwrap().is_empty());
        drop(process);
        cluster.expect_nothing_leased();
    }
}

/// A node of 16 extents of 4 MiB has room for an extent for each of 14 shards, and for what is left to compactions.
#[test]
fn a_new_database_has_no_more_shards_than_there_is_memory_for() {
    const MOST: usize = 14;
    let cluster = Cluster::start(64 << 20);
    let process = Process::start([&cluster]);
    let shards = |shards: usize| Options { shards, write_buffer_bytes: 256 << 10, ..named("db") };
    let refused = Db::open(&process.clients, shards(MOST + 1)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let told = refused.to_string();
    assert!(told.contains("It has room for 14 shards") && told.contains("fewer shards"), "{told}");
    assert!(Db::list(&process.clients).unwrap().is_empty(), "nothing of it is left");
    // As many as fit take more than a memtable each.
    let db = process.open(shards(MOST));
    for at in 0..MOST {
        let first = u8::try_from(at * 256 / MOST).unwrap() + 1;
        let number = db.statistics().flushes;
        for i in 0..60u32 {
            db.put(&[&[first], &i.to_be_bytes()[..]].concat(), &[7; 10 << 10]).unwrap();
        }
        eventually("its memtables are flushed", || db.statistics().flushes > number);
    }
    db.close().unwrap();
    drop(db);
    // An existing database is opened, even with memtables that it could not be created with.
    let larger = Options { write_buffer_bytes: 2 << 20, ..shards(MOST) };
    let refused = Db::open(&process.clients, Options { name: Some("other".into()), ..larger.clone() }).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let db = process.open(larger);
    assert_eq!(db.get(&[&[1], &59u32.to_be_bytes()[..]].concat()).unwrap(), Some(vec![7; 10 << 10]));
}

#[test]
fn a_database_without_a_name_has_no_more_memtables_than_there_is_memory_for() {
    let cluster = Cluster::start(64 << 20);
    let clients = [cluster.client()];
    let options = |shards: usize, write_buffer_bytes: usize| Options { shards, write_buffer_bytes, ..small_options() };
    let refused = Db::open(&clients, options(256, 256 << 10)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("It has room for 198 shards"), "{refused}");
    Db::open(&clients, options(198, 256 << 10)).unwrap();
    Db::open(&clients, options(256, 128 << 10)).unwrap();
    cluster.expect_nothing_leased();
}

#[test]
fn what_is_no_name_is_refused_as_it_was_given() {
    let cluster = Cluster::start(64 << 20);
    let process = Process::start([&cluster]);
    let long = "x".repeat(103);
    for name in ["", "a/b", "a b", ".a", "\u{e4}", &long] {
        let refused = Db::open(&process.clients, named(name)).unwrap_err();
        assert!(
            refused.kind() == ErrorKind::Invalid && refused.to_string().contains(&format!("{name:?}")),
            "{refused}"
        );
    }
    // There is room for what is added to the name of a database in storage.
    let storage = Some(Storage::open("memory:", StorageOptions::default()).unwrap());
    drop(process.open(Options { storage, ..named(&long[..102]) }));
}

/// When the memory node cannot be reached, writes since the last flush are lost. The process must not end as if they
/// were not.
#[test]
fn closing_says_what_could_not_be_flushed() {
    let options = named("db");
    for (lost, flushed_first) in [(false, true), (true, false)] {
        let cluster = Cluster::start(64 << 20);
        let process = Process::start([&cluster]);
        let db = process.open(options.clone());
        fill(&db, 0..100);
        if flushed_first {
            db.flush().unwrap();
        }
        process.lose_links();
        let closed = db.close();
        assert_eq!(closed.as_ref().err().map(Error::kind), lost.then_some(ErrorKind::Unavailable), "{closed:?}");
        db.close().unwrap();
        drop((db, process));
        let process = Process::start([&cluster]);
        let db = process.open(Options { takeover: true, ..options.clone() });
        assert_eq!(db.get(&key(99)).unwrap().is_none(), lost);
    }
}

#[test]
fn what_was_flushed_is_there_after_a_kill() {
    for place in [CompactionPlace::ComputeNode, CompactionPlace::MemoryNode] {
        let cluster = Cluster::start(64 << 20);
        let options = Options { compaction_place: place, ..named("db") };
        for round in 0..4 {
            let process = Process::start([&cluster]);
            let db = process.open(options.clone());
            check(&db, 0..round * 1000);
            assert_eq!(db.get(&key(1_000_000 + round)).unwrap(), None);
            fill(&db, round * 1000..(round + 1) * 1000);
            db.flush().unwrap();
            db.put(&key(1_000_001 + round), b"lost").unwrap();
            process.kill(db);
        }
        let process = Process::start([&cluster]);
        let db = process.open(options);
        check(&db, 0..4000);
        db.compact_range(None, None).unwrap();
        check(&db, 0..4000);
        let node = process.clients[0].node_statistics().unwrap();
        println!("{node:#?} {:#?}", db.statistics());
        eventually("nothing but what the database knows is held", || {
            let node = process.clients[0].node_statistics().unwrap();
            let known = db.statistics().remote_bytes;
            node.job_bytes <= known && node.leased_extents == 0
        });
    }
}

#[test]
fn options_say_what_is_opened() {
    let cluster = Cluster::start(64 << 20);
    let process = Process::start([&cluster]);
    let kind = |options: Options| process.try_open(options).unwrap_err().kind();
    assert_eq!(kind(Options { create_if_missing: false, ..named("db") }), ErrorKind::NotFound);
    process.open(Options { error_if_exists: true, ..named("db") }).close().unwrap();
    assert_eq!(kind(Options { error_if_exists: true, ..named("db") }), ErrorKind::AlreadyExists);
    assert_eq!(kind(Options { key_order: KeyOrder::ReverseBytewise, ..named("db") }), ErrorKind::Invalid);
    assert_eq!(kind(named("no slash/")), ErrorKind::Invalid);
    assert_eq!(Db::destroy(&process.clients, "other").unwrap_err().kind(), ErrorKind::NotFound);
    process.open(Options { create_if_missing: false, ..named("db") }).close().unwrap();
}

#[test]
fn an_open_database_is_opened_again_only_to_take_it_over() {
    let cluster = Cluster::start(64 << 20);
    let (first, second) = (Process::start([&cluster]), Process::start([&cluster]));
    let old = first.open(named("db"));
    fill(&old, 0..2000);
    old.flush().unwrap();
    fill(&old, 5000..5001);
    assert_eq!(second.try_open(named("db")).unwrap_err().kind(), ErrorKind::Busy);
    let kept = Db::destroy(&second.clients, "db").unwrap_err();
    assert_eq!(kept.kind(), ErrorKind::Busy);
    assert!(kept.to_string().contains("the database \"db\" is open in another process"), "{kept}");
    let new = second.open(Options { takeover: true, ..named("db") });
    check(&new, 0..2000);
    assert_eq!(new.get(&key(5000)).unwrap(), None);
    fill(&new, 2000..4000);
    // The first one learns of the takeover and stops acting.
    let error = old.flush().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    for error in [
        old.put(b"a", b"b").unwrap_err(),
        old.get(&key(1)).unwrap_err(),
        old.multi_get(&[&key(1)]).unwrap_err(),
        old.iter().unwrap_err(),
        old.flush().unwrap_err(),
        old.compact_range(None, None).unwrap_err(),
        old.close().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    }
    drop(old);
    check(&new, 0..4000);
    new.close().unwrap();
    drop(new);
    let third = Process::start([&cluster]);
    check(&third.open(named("db")), 0..4000);
}

#[test]
fn an_idle_owner_notices_that_it_was_taken_over() {
    let cluster = Cluster::start(64 << 20);
    let (first, second) = (Process::start([&cluster]), Process::start([&cluster]));
    let old = first.open(named("db"));
    fill(&old, 0..100);
    let _new = second.open(Options { takeover: true, ..named("db") });
    eventually("reads are refused", || matches!(old.get(&key(1)), Err(error) if error.kind() == ErrorKind::Fenced));
}

/// Five shards; the last one owns nothing at first.
fn wide() -> Options {
    let bounds = (1..4).map(|shard| key(shard * 1000)).collect();
    Options { shards: 5, shard_bounds: ShardBounds::Given(bounds), ..named("db") }
}

fn clusters(count: usize) -> Vec<Cluster> {
    (0..count).map(|_| Cluster::start(64 << 20)).collect()
}

#[test]
fn a_database_lies_on_several_nodes() {
    for place in [CompactionPlace::ComputeNode, CompactionPlace::MemoryNode] {
        let clusters = clusters(3);
        let options = Options { compaction_place: place, ..wide() };
        for round in 0..4 {
            // In any order.
            let order = [[0, 1, 2], [2, 0, 1], [1, 0, 2], [2, 1, 0]][round as usize];
            let process = Process::start(order.map(|at| &clusters[at]));
            let db = process.open(options.clone());
            check(&db, 0..round * 1100);
            fill(&db, round * 1100..(round + 1) * 1100);
            db.move_bound(3, &key(3100 + round * 200)).unwrap();
            db.move_bound(0, &key(500 + round * 200)).unwrap();
            assert_eq!(Db::list(&process.clients).unwrap(), ["db"]);
            if round % 2 == 0 {
                db.flush().unwrap();
                process.kill(db);
            } else {
                db.close().unwrap();
            }
        }
        let process = Process::start(&clusters);
        let db = process.open(options.clone());
        check(&db, 0..4400);
        db.compact_range(None, None).unwrap();
        check(&db, 0..4400);
        db.close().unwrap();
        drop(db);
        Db::destroy(&process.clients, "db").unwrap();
        assert!(Db::list(&process.clients).unwrap().is_empty());
        drop(process);
        clusters.iter().for_each(Cluster::expect_nothing_leased);
    }
}

#[test]
fn a_node_that_is_missing_is_named() {
    let clusters = clusters(3);
    let both = Process::start(&clusters[..2]);
    both.open(wide()).close().unwrap();
    let error = |clusters: &[&Cluster], options: Options| {
        let error = Process::start(clusters.iter().copied()).try_open(options).unwrap_err();
        (error.kind(), error.to_string())
    };
    let (a, b, c) = (&clusters[0], &clusters[1], &clusters[2]);
    for nodes in [&[a][..], &[b], &[a, b, c]] {
        let (kind, text) = error(nodes, wide());
        assert!(kind == ErrorKind::Invalid && text.contains("lies on 2 memory nodes"), "{text}");
    }
    for nodes in [[a, c], [c, b]] {
        let (kind, text) = error(&nodes, wide());
        assert!(kind == ErrorKind::NotFound && text.contains("lies on 2 memory nodes, of which 1"), "{text}");
    }
    assert_eq!(error(&[a, b], Options { error_if_exists: true, ..wide() }).0, ErrorKind::AlreadyExists);
    // Another database of the same name.
    let other = Process::start([c]);
    other.open(wide()).close().unwrap();
    assert_eq!(error(&[a, c], wide()).0, ErrorKind::Invalid);
    Db::destroy(&other.clients, "db").unwrap();
    assert_eq!(Db::list(&Process::start(&clusters).clients).unwrap(), ["db"]);
}

/// A database with fewer shards than nodes is on the first of them, and is found wherever these are named.
#[test]
fn no_order_of_nodes_hides_a_database() {
    for shards in [1, 2] {
        let clusters = clusters(3);
        let in_order = |order: [usize; 3]| Process::start(order.map(|at| &clusters[at]));
        let options = |shards: usize| Options { shards, ..named("db") };
        let stores = || {
            let process = in_order([0, 1, 2]);
            process.clients.iter().map(|client| client.list_stores().unwrap().len()).collect::<Vec<_>>()
        };
        in_order([2, 1, 0]).open(options(shards)).put(b"key", b"value").unwrap();
        let made = if shards == 1 { [0, 0, 1] } else { [0, 1, 1] };
        assert_eq!(stores(), made);
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let process = in_order(order);
            let db = process.open(options(shards));
            assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"value"[..]), "{order:?}");
            db.close().unwrap();
            drop(db);
            for taken in [Options { error_if_exists: true, ..options(shards) }, options(shards).restoring()] {
                assert_eq!(process.try_open(taken).unwrap_err().kind(), ErrorKind::AlreadyExists, "{order:?}");
            }
            let others = process.try_open(options(3 - shards)).unwrap_err();
            assert!(others.to_string().contains("a number of shards"), "{others}");
            assert_eq!(Db::options_of(&process.clients, "db").unwrap().shards, shards);
        }
        // Nodes that have no part of it are not enough.
        let rest = Process::start(&clusters[..shards.min(2)]);
        let missing = rest.try_open(Options { create_if_missing: false, ..options(shards) }).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
        assert_eq!(stores(), made);
        Db::destroy(&in_order([1, 0, 2]).clients, "db").unwrap();
        assert_eq!(stores(), [0; 3]);
    }
}

#[test]
fn of_two_databases_of_one_name_none_is_taken_for_the_other() {
    let clusters = clusters(4);
    let one = || named("db");
    let two = || Options { shards: 2, ..named("db") };
    Process::start([&clusters[0]]).open(one()).put(b"at", b"0").unwrap();
    Process::start([&clusters[1]]).open(one()).put(b"at", b"1").unwrap();
    Process::start(&clusters[2..]).open(two()).put(b"at", b"2, 3").unwrap();
    for nodes in [&[0, 1][..], &[1, 0], &[2, 0], &[0, 3, 2], &[3, 1]] {
        let process = Process::start(nodes.iter().map(|&at| &clusters[at]));
        for options in [one(), two(), one().restoring(), Options { create_if_missing: false, ..two() }] {
            let refused = process.try_open(options).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
            let is_named = |client: &MemoryClient| refused.to_string().contains(&client.node().to_string());
            assert!(process.clients.iter().all(|client| is_named(client)), "{refused}");
        }
        assert_eq!(Db::destroy(&process.clients, "db").unwrap_err().kind(), ErrorKind::Invalid);
    }
    let found = |nodes: &[usize], options: Options| {
        let process = Process::start(nodes.iter().map(|&at| &clusters[at]));
        process.open(Options { create_if_missing: false, ..options }).get(b"at").unwrap().unwrap()
    };
    assert_eq!([found(&[0], one()), found(&[1], one()), found(&[3, 2], two())], [&b"0"[..], b"1", b"2, 3"]);
    Db::destroy(&Process::start([&clusters[0]]).clients, "db").unwrap();
    assert_eq!(found(&[0, 1], one()), b"1");
    // One node does not count as two.
    let twice = Process::start([&clusters[0], &clusters[0]]).try_open(named("twice")).unwrap_err();
    assert!(twice.kind() == ErrorKind::Invalid && twice.to_string().contains("are one"), "{twice}");
    assert!(!Db::list(&Process::start(&clusters).clients).unwrap().contains(&"twice".to_owned()));
}

#[test]
fn a_database_on_several_nodes_is_taken_over() {
    let clusters = clusters(2);
    let (first, second) = (Process::start(&clusters), Process::start(&clusters));
    let old = first.open(wide());
    fill(&old, 0..2000);
    old.flush().unwrap();
    assert_eq!(second.try_open(wide()).unwrap_err().kind(), ErrorKind::Busy);
    let new = second.open(Options { takeover: true, ..wide() });
    check(&new, 0..2000);
    fill(&new, 2000..4000);
    let written = old.put(&key(5000), b"lost").and_then(|()| old.flush());
    assert_eq!(written.unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(old.move_bound(0, &key(1500)).unwrap_err().kind(), ErrorKind::Fenced);
    drop(old);
    check(&new, 0..4000);
}

/// Bounds move back and forth, and the process ends in the middle of a move, or properly.
#[test]
fn moved_bounds_outlive_the_process() {
    let clusters = clusters(2);
    let mut bounds = None;
    for round in 0..12u32 {
        let process = Process::start(&clusters);
        let db = process.open(wide());
        assert!(bounds.is_none_or(|bounds| bounds == db.shard_bounds()), "round {round}");
        check(&db, 0..round * 400);
        assert_eq!(db.get(&key(1_000_000)).unwrap(), None);
        fill(&db, round * 400..(round + 1) * 400);
        let deleted: Vec<_> = (0..round * 400).step_by(97).map(key).collect();
        deleted.iter().for_each(|key| db.delete(key).unwrap());
        deleted.iter().for_each(|key| assert_eq!(db.get(key).unwrap(), None));
        fill(&db, 0..round * 400);
        db.flush().unwrap();
        let step = |move_: u32| {
            let at = move_ % 4;
            db.move_bound(at as usize, &key(1000 * (at + 1) + [500, 20, 700, 300][(move_ / 4 + round) as usize % 4]))
        };
        bounds = None;
        if round % 3 == 0 {
            (0..8).for_each(|move_| step(move_).unwrap());
            check(&db, 0..(round + 1) * 400);
            bounds = Some(db.shard_bounds());
            db.close().unwrap();
        } else {
            std::thread::scope(|scope| {
                scope.spawn(|| (0..40).take_while(|&move_| step(move_).is_ok()).count());
                #[allow(clippy::disallowed_methods)]
                std::thread::sleep(std::time::Duration::from_millis(u64::from(5 + round * 3)));
                process.lose_links();
            });
            process.kill(db);
        }
    }
}

#[test]
fn an_interrupted_creation_is_completed() {
    let clusters = clusters(2);
    let process = Process::start(&clusters);
    let part = StorePart { database: 7, place: 1, nodes: 2 };
    let config = StoreConfig {
        key_order: KeyOrder::Bytewise,
        shards: 5,
        merge_operator: String::new(),
        bounds: (1..4).map(|shard| key(shard * 1000)).collect(),
        part: Some(part),
        copies: 1,
        to_finish: false,
    };
    process.clients[0].create_store("db", &config.encode().unwrap()).unwrap();
    let found = process.try_open(Options { create_if_missing: false, ..wide() }).unwrap_err();
    assert_eq!(found.kind(), ErrorKind::NotFound, "{found}");
    let db = process.open(wide());
    fill(&db, 0..100);
    db.close().unwrap();
    drop(db);
    check(&Process::start([&clusters[1], &clusters[0]]).open(wide()), 0..100);
}

/// Only a shared tree's is no database, and it is shorter.
#[test]
fn a_store_whose_first_bytes_are_damaged_is_damaged() {
    let cluster = Cluster::start(64 << 20);
    let process = Process::start([&cluster]);
    let config = StoreConfig {
        key_order: KeyOrder::Bytewise,
        shards: 1,
        merge_operator: String::new(),
        bounds: Vec::new(),
        part: None,
        copies: 1,
        to_finish: false,
    };
    let mut bytes = config.encode().unwrap();
    bytes[0] ^= 1;
    process.clients[0].create_store("db", &bytes).unwrap();
    process.clients[0].create_store("tree", b"owner\x01").unwrap();
    let cases = [("db", ErrorKind::Corrupt, "configuration of a store"), ("tree", ErrorKind::Invalid, "shared tree")];
    for (name, kind, told) in cases {
        let refused = process.try_open(named(name)).unwrap_err();
        assert_eq!(refused.kind(), kind, "{refused}");
        assert!(refused.to_string().contains(told), "{refused}");
        assert_eq!(Db::destroy(&process.clients, name).unwrap_err().kind(), kind);
    }
}

/// A session that was not renewed has lost its keys, and perhaps its memory.
#[test]
fn a_session_that_lapsed_is_fenced() {
    let lease = std::time::Duration::from_millis(300);
    for name in [None, Some("db".to_owned())] {
        let options = forebay_memory_node::Options { lease, ..forebay_memory_node::Options::with_memory(64 << 20) };
        let cluster = Cluster::start_with(options);
        let client = ClientOptions { renew: false, ..ClientOptions::default() };
        let client = MemoryClient::connect(cluster.connect(), "process", client).unwrap();
        let db = Db::open(std::slice::from_ref(&client), Options { name, ..small_options() }).unwrap();
        fill(&db, 0..500);
        client.renew().unwrap();
        db.compact_range(None, None).unwrap();
        client.renew().unwrap();
        let mut iterator = db.iter().unwrap();
        iterator.seek_to_first().unwrap();
        eventually("the keys are gone", || db.get(&key(1)).is_err());
        let keys: Vec<_> = (0..40).map(|i| key(i * 10)).collect();
        let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
        for error in [
            db.get(&key(2)).unwrap_err(),
            db.multi_get(&keys).unwrap_err(),
            (0..500).find_map(|_| iterator.next().err()).unwrap(),
            db.flush().and_then(|()| db.put(&key(1), b"")).and_then(|()| db.flush()).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        }
    }
}

/// Memory that a process still finds in its indexes after a takeover may have been freed and belong to another process.
#[test]
fn who_was_taken_over_reads_nothing() {
    for round in 0..3 {
        let cluster = Cluster::start(64 << 20);
        let (first, second) = (Process::start([&cluster]), Process::start([&cluster]));
        let old = first.open(named("db"));
        fill(&old, 0..2000);
        old.compact_range(None, None).unwrap();
        let mut iterator = old.iter().unwrap();
        iterator.seek_to_first().unwrap();
        let new = second.open(Options { takeover: true, ..named("db") });
        fill(&new, 0..2000);
        new.compact_range(None, None).unwrap();
        let keys: Vec<_> = (0..40).map(|i| key(i * 50)).collect();
        let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
        let error = match round {
            0 => (0..2000).find_map(|i| old.get(&key(i)).err()).unwrap(),
            1 => old.multi_get(&keys).unwrap_err(),
            _ => (0..2000).find_map(|_| iterator.next().err()).unwrap(),
        };
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    }
}

#[test]
fn a_batch_over_nodes_is_there_after_a_flush() {
    let clusters = clusters(2);
    let process = Process::start(&clusters);
    let db = process.open(wide());
    let mut batch = WriteBatch::new();
    for shard in 0..4 {
        batch.put(&key(shard * 1000), b"whole");
    }
    db.write(&batch).unwrap();
    db.flush().unwrap();
    process.kill(db);
    let db = Process::start(&clusters).open(wide());
    (0..4).for_each(|shard| assert_eq!(db.get(&key(shard * 1000)).unwrap().unwrap(), b"whole"));
}

#[test]
fn an_iterator_of_a_fenced_owner_says_so() {
    let cluster = Cluster::start(64 << 20);
    let (first, second) = (Process::start([&cluster]), Process::start([&cluster]));
    let old = first.open(named("db"));
    fill(&old, 0..2000);
    old.flush().unwrap();
    let mut iterator = old.iter().unwrap();
    let _new = second.open(Options { takeover: true, ..named("db") });
    match iterator.seek(&key(1000)) {
        Ok(()) => assert_eq!(iterator.key(), key(1000)),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Fenced, "{error}"),
    }
}

#[test]
fn verifying_takes_a_takeover_for_no_damage() {
    let cluster = Cluster::start(64 << 20);
    let (first, second) = (Process::start([&cluster]), Process::start([&cluster]));
    let old = first.open(Options { background_threads: 0, ..named("db") });
    fill(&old, 0..2000);
    old.compact_range(None, None).unwrap();
    assert!(old.verify(&mut |_| ()).unwrap().problems.is_empty());
    let new = second.open(Options { takeover: true, ..named("db") });
    fill(&new, 0..2000);
    new.compact_range(None, None).unwrap();
    assert_eq!(old.verify(&mut |_| ()).unwrap_err().kind(), ErrorKind::Fenced);
    assert!(new.verify(&mut |_| ()).unwrap().problems.is_empty());
}
