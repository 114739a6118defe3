//! Owners, their successors, and commits that say which of them is the owner.

use crate::common::Cluster;
use crate::common::model::key;
use crate::common::process::Process;
use crate::common::stored::{four_shards, make_log_newer, of_disk, of_objects, options};
use forebay_base::ErrorKind;
use forebay_engine::{Db, Durability, Error, Options, Storage, Syncing, WriteBatch, WriteOptions};
use forebay_env::sync::{Mutex, lock};
use forebay_storage::{MemoryObjects, ObjectFault, ObjectName, ObjectStorage, PutMode, SimDisk};
use std::sync::Arc;
use std::time::Duration;

/// A process that writes nothing makes no commit and no sync that would tell of another owner.
#[test]
fn an_owner_that_only_reads_can_look_whether_it_was_taken_over() {
    let objects = MemoryObjects::new();
    let handle = objects.handle();
    let [process, other] = [Process::with_empty_memory(), Process::with_empty_memory()];
    let options = |storage: &Storage| Options { takeover: true, ..options(storage, Syncing::Sync) };
    let db = process.open(options(&of_objects(&handle)));
    db.put(b"key", b"value").unwrap();
    let commits = || objects.list(Some(&ObjectName::new("db/commit").unwrap())).unwrap();
    let before = commits();
    db.check_owner().unwrap();
    assert_eq!(commits(), before);
    // An error of storage is no answer.
    handle.fail_at(handle.steps(), ObjectFault::Refused(ErrorKind::Unavailable));
    assert_eq!(db.check_owner().unwrap_err().kind(), ErrorKind::Unavailable);
    db.put(b"key", b"value").unwrap();
    let owner = other.open(options(&of_objects(&objects.handle())));
    assert!(db.failure().is_none());
    assert_eq!(db.check_owner().unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(db.failure().unwrap().kind(), ErrorKind::Fenced);
    assert_eq!(db.get(b"key").unwrap_err().kind(), ErrorKind::Fenced);
    owner.check_owner().unwrap();
    process.kill(db);
    owner.close().unwrap();
}

/// With memory nodes of its own, the successor is seen in storage only.
#[test]
fn verifying_takes_what_a_successor_deleted_for_no_damage() {
    let objects = MemoryObjects::new();
    let [process, other] = [Process::with_empty_memory(), Process::with_empty_memory()];
    // Tables lie in storage, and nothing that was read stays.
    let alone = |objects: &MemoryObjects| Options {
        background_threads: 0,
        storage_from_level: Some(1),
        block_cache_bytes: 0,
        memory_cache_bytes: 0,
        ..options(&of_objects(objects), Syncing::Flush)
    };
    let fill = |db: &Db, value: u8| {
        (0..100).for_each(|number| db.put(&key(number), &[value; 500]).unwrap());
        db.compact_range(None, None).unwrap();
        while db.run_background_step() {}
    };
    let db = process.open(alone(&objects.handle()));
    fill(&db, 1);
    assert!(db.verify(&mut |_| ()).unwrap().problems.is_empty());
    let next = other.open(alone(&objects.handle()));
    fill(&next, 2);
    assert!(next.verify(&mut |_| ()).unwrap().problems.is_empty());
    next.close().unwrap();
    assert_eq!(db.verify(&mut |_| ()).unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(db.failure().unwrap().kind(), ErrorKind::Fenced);
    process.kill(db);
}

/// Nothing that the owner acknowledges would be found again.
#[test]
fn an_owner_whose_commits_are_gone_acknowledges_nothing() {
    let interval = Syncing::Interval(Duration::from_secs(3600));
    for syncing in [Syncing::Sync, interval, Syncing::Flush] {
        let objects = MemoryObjects::new();
        let process = Process::with_empty_memory();
        let usual = |objects: &MemoryObjects| four_shards(options(&of_objects(objects), syncing));
        let db = process.open(usual(&objects.handle()));
        db.put(&key(3), b"value").unwrap();
        db.flush().unwrap();
        db.put(&key(4), b"last").unwrap();
        db.check_owner().unwrap();
        let listed = objects.list(None).unwrap();
        let names = listed.into_iter().map(|object| object.name).filter(|name| name.as_str().contains("/commit/"));
        let commits: Vec<_> = names.map(|name| (objects.get(&name).unwrap(), name)).collect();
        assert!(!commits.is_empty());
        commits.iter().for_each(|(_, name)| objects.delete(name).unwrap());
        let gone = db.check_owner().unwrap_err();
        assert!(gone.kind() == ErrorKind::Corrupt && gone.to_string().contains("open the database again"), "{gone}");
        let lowered = WriteOptions { durability: Some(Durability::None) };
        let writes_nothing = || {
            let refused = |written: Result<(), Error>| {
                assert_eq!(written.unwrap_err().to_string(), gone.to_string(), "{syncing:?}");
            };
            for number in [3, 700, 1700] {
                refused(db.put(&key(number), b"other"));
                refused(db.put_with(&key(number), b"other", &lowered));
            }
            let mut batch = WriteBatch::new();
            batch.put(&key(3), b"other").put(&key(1700), b"other");
            refused(db.write_with(&batch, &lowered));
            assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::Corrupt);
        };
        // Also when the server retries writing the log.
        for _ in 0..2 {
            writes_nothing();
            assert_eq!(db.resume().unwrap_err().kind(), ErrorKind::Corrupt);
        }
        assert_eq!(db.get(&key(3)).unwrap(), Some(b"value".to_vec()));
        // Once they are back, the log gets what it lacks. Everything else is left to the next process that opens the
        // database.
        commits.iter().for_each(|(bytes, name)| objects.put(name, bytes.clone(), PutMode::IfAbsent).unwrap());
        db.resume().unwrap();
        writes_nothing();
        assert_eq!(db.failure().unwrap().to_string(), gone.to_string());
        process.kill(db);
        let process = Process::with_empty_memory();
        let db = process.open(usual(&objects.handle()));
        assert_eq!(db.get(&key(3)).unwrap(), Some(b"value".to_vec()));
        assert_eq!(db.get(&key(4)).unwrap(), Some(b"last".to_vec()), "{syncing:?}");
        db.put(&key(3), b"other").unwrap();
        db.close().unwrap();
    }
}

/// Somebody deletes some or all of the commits, and only the maker of the next one looks for them.
#[test]
fn an_owner_misses_deleted_commits_when_it_makes_the_next_one() {
    for (syncing, newest_alone) in [(Syncing::Sync, true), (Syncing::Sync, false), (Syncing::Flush, true)] {
        let objects = MemoryObjects::new();
        let process = Process::with_empty_memory();
        let usual = |objects: &MemoryObjects| Options {
            background_threads: 0,
            ..four_shards(options(&of_objects(objects), syncing))
        };
        let db = process.open(usual(&objects.handle()));
        db.put(&key(3), b"value").unwrap();
        db.flush().unwrap();
        let listed = objects.list(Some(&ObjectName::new("db/commit").unwrap())).unwrap();
        assert!(listed.len() > 1);
        let from = if newest_alone { listed.len() - 1 } else { 0 };
        let commits: Vec<_> =
            listed[from..].iter().map(|of| (of.name.clone(), objects.get(&of.name).unwrap())).collect();
        commits.iter().for_each(|(name, _)| objects.delete(name).unwrap());
        db.put(&key(4), b"last").unwrap();
        let gone = db.flush().unwrap_err();
        assert!(gone.kind() == ErrorKind::Corrupt && gone.to_string().contains("open the database again"), "{gone}");
        // Nor is anything acknowledged by a shard that has committed nothing since.
        for number in [5, 1700] {
            let written = db.put(&key(number), b"other");
            assert_eq!(written.is_ok(), syncing == Syncing::Flush, "{written:?}");
            assert_eq!(written.and_then(|()| db.flush()).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        // What is there can be saved.
        assert!(db.checkpoint("/dev/null").unwrap().entries >= 2);
        assert_eq!(db.get(&key(4)).unwrap(), Some(b"last".to_vec()));
        for (name, bytes) in &commits {
            objects.put(name, bytes.clone(), PutMode::IfAbsent).unwrap();
        }
        process.kill(db);
        let process = Process::with_empty_memory();
        let db = process.open(usual(&objects.handle()));
        assert_eq!(db.get(&key(3)).unwrap(), Some(b"value".to_vec()));
        assert_eq!(db.get(&key(4)).unwrap(), Some(b"last".to_vec()), "{syncing:?}");
        db.close().unwrap();
    }
}

#[test]
fn a_commit_whose_reply_is_lost_is_recognised() {
    for step in 0..12 {
        let lost = [ObjectFault::ReplyLost, ObjectFault::Late(3)];
        // A bucket that is missing for a moment, and a name that another put has for a moment.
        let refused = [ErrorKind::Unavailable, ErrorKind::NotFound, ErrorKind::AlreadyExists].map(ObjectFault::Refused);
        for fault in lost.into_iter().chain(refused) {
            let objects = MemoryObjects::new();
            let handle = objects.handle();
            let cluster = Cluster::start(64 << 20);
            let process = Process::start([&cluster]);
            let storage = of_objects(&handle);
            let db = process.open(options(&storage, Syncing::Flush));
            db.put(b"a", b"1").unwrap();
            handle.fail_at(handle.steps() + step, fault);
            crate::common::eventually("the flush succeeds", || db.flush().is_ok());
            db.put(b"b", b"2").unwrap();
            crate::common::eventually("the next one does, too", || db.flush().is_ok());
            process.kill(db);
            let process = Process::with_empty_memory();
            let storage = of_objects(&objects.handle());
            let db = process.open(options(&storage, Syncing::Flush));
            let found = [b"a", b"b"].map(|key| db.get(key).unwrap());
            assert_eq!(found, [Some(b"1".to_vec()), Some(b"2".to_vec())], "{fault:?} at {step}");
        }
    }
}

#[test]
fn who_was_taken_over_is_fenced_by_storage_alone() {
    for syncing in [Syncing::Sync, Syncing::Flush] {
        for on_disk in [true, false] {
            let (disk, objects) = (SimDisk::new(), MemoryObjects::new());
            let storage = |nonce| match on_disk {
                true => of_disk(&disk.handle(), nonce),
                false => of_objects(&objects.handle()),
            };
            // The nodes know nothing of each other.
            let (first, second) = (Cluster::start(64 << 20), Cluster::start(64 << 20));
            let (old, new) = (Process::start([&first]), Process::start([&second]));
            let db = old.open(options(&storage(1), syncing));
            db.put(b"a", b"old").unwrap();
            db.flush().unwrap();
            let next = new.open(options(&storage(2), syncing));
            next.put(b"a", b"new").unwrap();
            let late = db.put(b"a", b"late").and_then(|()| db.flush());
            assert_eq!(late.unwrap_err().kind(), ErrorKind::Fenced);
            assert_eq!(db.put(b"a", b"late").unwrap_err().kind(), ErrorKind::Fenced);
            assert_eq!(db.close().unwrap_err().kind(), ErrorKind::Fenced);
            assert_eq!(next.get(b"a").unwrap().as_deref(), Some(&b"new"[..]));
            next.flush().unwrap();
            next.close().unwrap();
            let db = old.open(options(&storage(3), syncing));
            assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"new"[..]));
        }
    }
}

/// Another process takes over before any one operation of a flush on the storage. It may name what the flush has made.
#[test]
fn who_stood_still_in_a_commit_takes_nothing_away_from_its_successor() {
    let (mut step, mut found) = (0, 0);
    loop {
        let objects = MemoryObjects::new();
        let handle = objects.handle();
        let (old, new) = (Process::with_empty_memory(), Process::with_empty_memory());
        let alone = |objects: &MemoryObjects| {
            let storage = of_objects(objects);
            Options { background_threads: 0, ..options(&storage, Syncing::Flush) }
        };
        let db = old.open(alone(&handle));
        db.put(b"a", &[1; 500]).unwrap();
        let next = Arc::new(Mutex::new(None));
        handle.interrupt_at(handle.steps() + step, {
            let (next, options) = (Arc::clone(&next), alone(&objects.handle()));
            move || *lock(&next) = Some(new.open(options))
        });
        let flushed = db.flush();
        let taken = lock(&next).take();
        let Some(next) = taken else { break };
        while db.run_background_step() {}
        drop((db, next));
        let third = Process::with_empty_memory();
        let db = third.open(alone(&objects.handle()));
        let value = db.get(b"a").unwrap();
        assert!(value.is_some() || flushed.is_err(), "taken over before operation {step}");
        found += usize::from(value.is_some() && flushed.is_err());
        step += 1;
    }
    assert!(found > 0, "no commit counted whose writer did not hear of it, in {step} operations");
}

/// A process that takes a database over, and cannot read its log, takes nothing: the owner continues.
#[test]
fn an_owner_of_a_newer_build_is_not_disturbed() {
    let objects = MemoryObjects::new();
    let storage = of_objects(&objects.handle());
    let cluster = Cluster::start(64 << 20);
    let (owner, other) = (Process::start([&cluster]), Process::start([&cluster]));
    let options = |takeover| Options { takeover, background_threads: 0, ..options(&storage, Syncing::Sync) };
    let db = owner.open(options(false));
    db.put(b"key", b"before").unwrap();
    let (segment, known) = make_log_newer(&objects);
    let before = objects.list(None).unwrap();
    assert_eq!(other.try_open(options(true)).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(objects.list(None).unwrap(), before);
    db.put(b"key", b"after").unwrap();
    db.flush().unwrap();
    db.put(b"log", b"after").unwrap();
    objects.put(&segment, known, PutMode::Replace).unwrap();
    let taken = other.open(options(true));
    for key in [&b"key"[..], b"log"] {
        assert_eq!(taken.get(key).unwrap().as_deref(), Some(&b"after"[..]));
    }
    owner.kill(db);
}
