//! A log in storage that is synced at intervals: what it gets between two syncs, and what it never loses.

use crate::common::model::{contents, key};
use crate::common::process::Process;
use crate::common::stored::{four_shards, of_disk, of_objects, options};
use forebay_base::ErrorKind;
use forebay_engine::{Durability, Options, Storage, StorageOptions, Syncing, WriteOptions};
use forebay_env::Random;
use forebay_storage::{DiskFault, MemoryObjects, ObjectFault, ObjectStorage, SimDisk};
use std::sync::Arc;
use std::time::Duration;

/// An hour between syncs, and steps that the test takes.
fn hourly(storage: &Storage) -> Options {
    let hour = Syncing::Interval(Duration::from_secs(3600));
    Options { background_threads: 0, ..options(storage, hour) }
}

#[test]
fn between_syncs_a_log_in_files_gets_what_was_written() {
    for is_power_lost in [false, true] {
        let disk = SimDisk::new();
        let handle = disk.handle();
        let process = Process::with_empty_memory();
        // A file of the log is long enough for all of them: making it longer takes a sync.
        let storage = Storage::of_disk(Arc::new(handle.clone()), 1, StorageOptions::default());
        let db = process.open(four_shards(hourly(&storage)));
        db.put(b"a", b"").unwrap();
        db.sync().unwrap();
        let (syncs, before) = (handle.file_syncs(), db.statistics().log);
        // The first shipment is due, and finds everything synced.
        while db.run_background_step() {}
        assert_eq!((handle.file_syncs() - syncs, db.statistics().log.records), (0, before.records));
        for number in 0..100 {
            db.put(&key(number * 19), &[7; 20]).unwrap();
            assert!(db.run_background_step() && !db.run_background_step());
        }
        let after = db.statistics().log;
        assert_eq!((handle.file_syncs() - syncs, after.groups - before.groups), (0, 1));
        assert_eq!(after.records - before.records, 100);
        handle.end_at(handle.steps());
        process.kill(db);
        if is_power_lost {
            disk.lose_power(&mut Random::seeded(1));
        }
        let process = Process::with_empty_memory();
        let db = process.open(four_shards(hourly(&of_disk(&disk.handle(), 2))));
        let found = (0..100).take_while(|number| db.get(&key(number * 19)).unwrap().is_some()).count();
        assert!(found == 100 || is_power_lost, "{found}: {:?}", db.recovery());
        assert_eq!(contents(&db).len(), 1 + found, "a hole");
        db.close().unwrap();
    }
}

#[test]
fn a_log_in_objects_gets_nothing_between_syncs() {
    let process = Process::with_empty_memory();
    let objects = MemoryObjects::new();
    let db = process.open(hourly(&of_objects(&objects)));
    while db.run_background_step() {}
    db.put(b"a", b"").unwrap();
    let steps = objects.steps();
    assert!(!db.run_background_step());
    assert_eq!((objects.steps() - steps, db.statistics().log.records), (0, 0));
    db.sync().unwrap();
    assert_eq!(db.statistics().log.records, 1);
    db.close().unwrap();
}

/// A put of the log whose reply was lost is made again, and not another one.
#[test]
fn a_log_in_objects_that_was_begun_twice_is_there_once() {
    for fault in [ObjectFault::ReplyLost, ObjectFault::Late(1), ObjectFault::Refused(ErrorKind::Unavailable)] {
        let process = Process::with_empty_memory();
        let objects = MemoryObjects::new();
        let db = process.open(hourly(&of_objects(&objects)));
        db.put(b"a", b"").unwrap();
        objects.fail_at(objects.steps(), fault);
        assert!(db.sync().is_err());
        db.resume().unwrap();
        db.put(b"b", b"").unwrap();
        db.sync().unwrap();
        let logs = |objects: &MemoryObjects| {
            let listed = objects.list(None).unwrap().into_iter().map(|object| object.name.as_str().to_owned());
            listed.filter(|name| name.contains("/log/")).collect::<Vec<_>>()
        };
        // Its first object, and one for each sync.
        assert_eq!(logs(&objects).len(), 3, "{fault:?}: {:?}", logs(&objects));
        db.close().unwrap();
        assert!(logs(&objects).is_empty(), "{fault:?}: {:?}", logs(&objects));
    }
}

/// When the sync after it fails, what was appended is not taken for durable.
#[test]
fn what_was_appended_before_a_failed_sync_is_in_the_next_log() {
    let disk = SimDisk::new();
    let handle = disk.handle();
    let process = Process::with_empty_memory();
    let storage = of_disk(&handle, 1);
    let db = process.open(hourly(&storage));
    while db.run_background_step() {}
    db.put(b"a", b"").unwrap();
    db.sync().unwrap();
    db.put(b"b", b"").unwrap();
    assert!(db.run_background_step());
    handle.fail_at(handle.steps(), DiskFault::Lost);
    assert_eq!(db.sync().unwrap_err().kind(), ErrorKind::Io);
    // Nor does anything go to a log of no use.
    let appended = db.statistics().log.records;
    db.put_with(b"c", b"", &WriteOptions { durability: Some(Durability::None) }).unwrap();
    assert!(!db.run_background_step());
    assert_eq!(db.statistics().log.records, appended);
    db.resume().unwrap();
    handle.end_at(handle.steps());
    process.kill(db);
    disk.lose_power(&mut Random::seeded(1));
    let process = Process::with_empty_memory();
    let db = process.open(hourly(&of_disk(&disk.handle(), 2)));
    assert_eq!(contents(&db).len(), 3, "{:?}", db.recovery());
    db.close().unwrap();
}

/// A failed append is reported to the next writer, and not tried every few milliseconds.
#[test]
fn writes_are_told_that_the_log_could_not_be_appended_to() {
    let disk = SimDisk::new();
    let process = Process::with_empty_memory();
    let db = process.open(hourly(&of_disk(&disk, 1)));
    while db.run_background_step() {}
    db.put(b"a", b"").unwrap();
    db.sync().unwrap();
    db.put(b"b", b"").unwrap();
    disk.fail_at(disk.steps(), DiskFault::Refused(ErrorKind::Full));
    assert!(db.run_background_step());
    assert_eq!(db.put(b"c", b"").unwrap_err().kind(), ErrorKind::Full);
    let steps = disk.steps();
    assert!(!db.run_background_step());
    assert_eq!(disk.steps(), steps);
    // There is room again.
    db.sync().unwrap();
    db.put(b"c", b"").unwrap();
    db.close().unwrap();
}
