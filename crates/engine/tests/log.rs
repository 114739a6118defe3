//! The log of writes: what it promises survives the process.

use crate::common::model::{Model, contents, write};
use crate::common::process::Process;
use crate::common::stored::{self, of_objects};
use crate::common::{Cluster, small_options};
use forebay_base::ErrorKind;
use forebay_engine::{Db, Durability, Options, ShardBounds, Syncing, WriteOptions};
use forebay_env::Random;
use forebay_storage::MemoryObjects;
use std::time::Duration;

fn durable() -> Options {
    Options { name: Some("db".to_owned()), durability: Durability::Memory { copies: 1 }, ..small_options() }
}

#[test]
fn acknowledged_writes_survive_kills() {
    for (seed, background_threads) in [(1, 0), (2, 2)] {
        let cluster = Cluster::start(64 << 20);
        let mut random = Random::seeded(seed);
        let mut model = Model::new();
        for round in 0..12 {
            let process = Process::start([&cluster]);
            let db = process.open(Options { background_threads, ..durable() });
            assert_eq!(contents(&db), model, "round {round}");
            let writes = [0, 1, 30, 3000][random.below(4) as usize];
            write(&db, &mut model, &mut random, writes);
            if random.one_in(1, 4) {
                db.flush().unwrap();
            }
            if random.one_in(1, 4) {
                db.close().unwrap();
            }
            process.kill(db);
        }
        let process = Process::start([&cluster]);
        let db = process.open(durable());
        db.compact_range(None, None).unwrap();
        assert_eq!(contents(&db), model);
        db.close().unwrap();
        drop(db);
        Db::destroy(&process.clients, "db").unwrap();
        drop(process);
        cluster.expect_nothing_leased();
    }
}

#[test]
fn a_write_says_what_it_survives() {
    let cluster = Cluster::start(64 << 20);
    let of = |durability| WriteOptions { durability: Some(durability) };
    for (options, expected) in [
        (durable(), [true, true, false, true]),
        (Options { durability: Durability::None, ..durable() }, [true, true, true, true]),
    ] {
        let process = Process::start([&cluster]);
        let db = process.open(options.clone());
        db.put_with(b"a", b"", &of(Durability::None)).unwrap();
        db.put(b"b", b"").unwrap();
        if options.durability == Durability::None {
            db.put_with(b"c", b"", &of(Durability::Memory { copies: 1 })).unwrap();
            db.put(b"d", b"").unwrap();
            db.sync().unwrap();
        } else {
            db.put_with(b"c", b"", &of(Durability::None)).unwrap();
        }
        process.kill(db);
        let process = Process::start([&cluster]);
        let db = process.open(options);
        let found = [b"a", b"b", b"c", b"d"].map(|key| db.get(key).unwrap().is_some());
        assert_eq!(found[..3], expected[..3]);
        assert_eq!(found[3], expected[3] && expected[2]);
        db.delete_range(b"a", b"z").unwrap();
        db.close().unwrap();
    }
    let process = Process::start([&cluster]);
    let db = process.open(small_options());
    assert_eq!(db.put_with(b"a", b"", &of(Durability::Memory { copies: 1 })).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(db.sync().unwrap_err().kind(), ErrorKind::Invalid);
    let nameless = Options { name: None, ..durable() };
    assert_eq!(Db::open(&process.clients, nameless).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn several_shards_write_their_logs_again() {
    let cluster = Cluster::start(64 << 20);
    let bounds = ["00500", "01000", "01500"].map(|key| key.as_bytes().to_vec());
    let options = Options { shards: 4, shard_bounds: ShardBounds::Given(bounds.to_vec()), ..durable() };
    let mut random = Random::seeded(3);
    let mut model = Model::new();
    for _ in 0..4 {
        let process = Process::start([&cluster]);
        let db = process.open(options.clone());
        assert_eq!(contents(&db), model);
        write(&db, &mut model, &mut random, 1000);
        db.move_bound(1, format!("{:05}", 900 + random.below(200)).as_bytes()).unwrap();
        process.kill(db);
    }
}

#[test]
fn the_log_of_a_shard_that_is_left_alone_is_let_go() {
    let objects = MemoryObjects::new();
    let storage = of_objects(&objects.handle());
    let interval = Syncing::Interval(Duration::from_secs(3600));
    for options in [durable(), stored::options(&storage, Syncing::Sync), stored::options(&storage, interval)] {
        let cluster = Cluster::start(64 << 20);
        let quiet = || Options { background_threads: 0, write_buffer_bytes: 1 << 20, ..options.clone() };
        for (flush_after, flushes) in [(None, 0), (Some(Duration::from_nanos(1)), 1)] {
            let process = Process::start([&cluster]);
            let db = process.open(Options { flush_after, ..quiet() });
            let before = db.statistics().flushes;
            (0..10).for_each(|number| db.put(&[number], b"value").unwrap());
            db.sync().unwrap();
            (0..10).for_each(|_| _ = db.run_background_step());
            assert_eq!(db.statistics().flushes - before, flushes, "{options:?}");
            process.kill(db);
            let process = Process::start([&cluster]);
            let db = process.open(quiet());
            let recovered: Vec<_> =
                db.recovery().unwrap().shards.iter().map(|shard| (shard.flushed, shard.last)).collect();
            assert_eq!(recovered.iter().all(|(flushed, last)| flushed == last), flush_after.is_some(), "{recovered:?}");
            process.kill(db);
        }
    }
}
