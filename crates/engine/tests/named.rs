//! Named databases: they outlive their process.

mod common;

use common::{Cluster, eventually, small_options};
use forebay_base::{ErrorKind, KeyOrder};
use forebay_engine::{CompactionPlace, Db, Options};
use forebay_fabric::Link;
use forebay_memory_client::{ClientOptions, MemoryClient};
use std::sync::Arc;

fn named(name: &str) -> Options {
    Options { name: Some(name.to_owned()), ..small_options() }
}

/// A process: what ends when it is killed.
struct Process {
    link: Arc<dyn Link>,
    client: Arc<MemoryClient>,
}

impl Process {
    fn start(cluster: &Cluster) -> Self {
        let link = cluster.connect();
        let client = MemoryClient::connect(Arc::clone(&link), "process", ClientOptions::default()).unwrap();
        Self { link, client }
    }

    fn open(&self, options: Options) -> Result<Db, forebay_engine::Error> {
        Db::open(std::slice::from_ref(&self.client), options)
    }

    fn kill(self, db: Db) {
        self.link.close();
        drop(db);
    }
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
            let process = Process::start(&cluster);
            let db = process.open(options.clone()).unwrap();
            check(&db, 0..round * 1000);
            fill(&db, round * 1000..(round + 1) * 1000);
            db.close().unwrap();
            drop(db);
            assert_eq!(Db::list(&process.client).unwrap(), ["db"]);
        }
        let process = Process::start(&cluster);
        Db::destroy(&process.client, "db").unwrap();
        assert!(Db::list(&process.client).unwrap().is_empty());
        drop(process);
        cluster.expect_nothing_leased();
    }
}

#[test]
fn what_was_flushed_is_there_after_a_kill() {
    for place in [CompactionPlace::ComputeNode, CompactionPlace::MemoryNode] {
        let cluster = Cluster::start(64 << 20);
        let options = Options { compaction_place: place, ..named("db") };
        for round in 0..4 {
            let process = Process::start(&cluster);
            let db = process.open(options.clone()).unwrap();
            check(&db, 0..round * 1000);
            assert_eq!(db.get(&key(1_000_000 + round)).unwrap(), None);
            fill(&db, round * 1000..(round + 1) * 1000);
            db.flush().unwrap();
            db.put(&key(1_000_001 + round), b"lost").unwrap();
            process.kill(db);
        }
        let process = Process::start(&cluster);
        let db = process.open(options).unwrap();
        check(&db, 0..4000);
        db.compact_range(None, None).unwrap();
        check(&db, 0..4000);
        let node = process.client.node_statistics().unwrap();
        println!("{node:#?} {:#?}", db.statistics());
        eventually("nothing but what the database knows is held", || {
            let node = process.client.node_statistics().unwrap();
            let known = db.statistics().remote_bytes;
            node.job_bytes <= known && node.leased_extents == 0
        });
    }
}

#[test]
fn options_say_what_is_opened() {
    let cluster = Cluster::start(64 << 20);
    let process = Process::start(&cluster);
    let kind = |options: Options| process.open(options).unwrap_err().kind();
    assert_eq!(kind(Options { create_if_missing: false, ..named("db") }), ErrorKind::NotFound);
    process.open(Options { error_if_exists: true, ..named("db") }).unwrap().close().unwrap();
    assert_eq!(kind(Options { error_if_exists: true, ..named("db") }), ErrorKind::AlreadyExists);
    assert_eq!(kind(Options { key_order: KeyOrder::ReverseBytewise, ..named("db") }), ErrorKind::Invalid);
    assert_eq!(kind(named("no slash/")), ErrorKind::Invalid);
    assert_eq!(Db::destroy(&process.client, "other").unwrap_err().kind(), ErrorKind::NotFound);
    process.open(Options { create_if_missing: false, ..named("db") }).unwrap().close().unwrap();
}

#[test]
fn an_open_database_is_opened_again_only_to_take_it_over() {
    let cluster = Cluster::start(64 << 20);
    let (first, second) = (Process::start(&cluster), Process::start(&cluster));
    let old = first.open(named("db")).unwrap();
    fill(&old, 0..2000);
    old.flush().unwrap();
    fill(&old, 5000..5001);
    assert_eq!(second.open(named("db")).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(Db::destroy(&second.client, "db").unwrap_err().kind(), ErrorKind::Busy);
    let new = second.open(Options { takeover: true, ..named("db") }).unwrap();
    check(&new, 0..2000);
    assert_eq!(new.get(&key(5000)).unwrap(), None);
    fill(&new, 2000..4000);
    // The first one learns of it, and does nothing any more.
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
    let third = Process::start(&cluster);
    check(&third.open(named("db")).unwrap(), 0..4000);
}

#[test]
fn an_idle_owner_notices_that_it_was_taken_over() {
    let cluster = Cluster::start(64 << 20);
    let (first, second) = (Process::start(&cluster), Process::start(&cluster));
    let old = first.open(named("db")).unwrap();
    fill(&old, 0..100);
    let _new = second.open(Options { takeover: true, ..named("db") }).unwrap();
    eventually("reads are refused", || matches!(old.get(&key(1)), Err(error) if error.kind() == ErrorKind::Fenced));
}
