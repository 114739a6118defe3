//! Storage fails, or cannot do what it should: what is reported, and how work continues.

use crate::common::Cluster;
use crate::common::model::{contents, key};
use crate::common::process::Process;
use crate::common::stored::{four_shards, of_disk, of_objects, options};
use crate::rot::Rot;
use forebay_base::ErrorKind;
use forebay_engine::{
    Db, Durability, Error, Options, Storage, StorageOptions, StoredDatabase, Syncing, WriteBatch, WriteOptions,
};
use forebay_env::{ManualClock, Random};
use forebay_storage::{
    DiskFault, FileLogOptions, MemoryObjects, ObjectFault, ObjectName, ObjectStorage, PutMode, SimDisk,
};
use std::sync::Arc;
use std::time::Duration;

/// A server may be started again and again while its storage fails, with memory nodes that hold nothing of the database.
#[test]
fn openings_that_fail_do_not_fill_the_memory_node_with_stores() {
    let objects = MemoryObjects::new();
    let options = |objects: &MemoryObjects| {
        let options = options(&of_objects(objects), Syncing::Sync);
        Options { background_threads: 0, ..options }
    };
    let first = Process::with_empty_memory();
    let db = first.open(options(&objects.handle()));
    db.put(b"a", b"1").unwrap();
    first.kill(db);
    let cluster = Cluster::start(64 << 20);
    for step in 0.. {
        let handle = objects.handle();
        handle.end_at(step);
        let process = Process::start([&cluster]);
        let opened = process.try_open(options(&handle));
        let stores = process.clients[0].list_stores().unwrap();
        assert!(stores.len() <= 1, "ended before operation {step}: {stores:?}");
        if let Ok(db) = opened {
            process.kill(db);
            break;
        }
    }
}

/// Work that fails for good ends flushes. So closing leaves the log as it is, with all of its last interval.
#[test]
fn what_cannot_be_flushed_any_more_is_in_the_log_when_a_database_was_closed() {
    let objects = MemoryObjects::new();
    let options = |objects: &MemoryObjects| {
        let options = options(&of_objects(&objects.handle()), Syncing::Interval(Duration::from_secs(3600)));
        Options { background_threads: 0, ..options }
    };
    let process = Process::with_empty_memory();
    let db = process.open(options(&objects));
    for _ in 0..3 {
        (0..300).for_each(|number| db.put(&key(number), &[7; 100]).unwrap());
        db.flush().unwrap();
    }
    let compacted = |db: &Db| db.compact_range(None, None);
    Rot::new(&process.clients[0], 1).flip(20_000, 256 << 10, || {
        assert_eq!(compacted(&db).unwrap_err().kind(), ErrorKind::Corrupt);
    });
    let shipped = db.statistics().log.records;
    db.put(b"last", b"value").unwrap();
    assert_eq!(db.statistics().log.records, shipped);
    assert_eq!(db.close().unwrap_err().kind(), ErrorKind::Corrupt);
    process.kill(db);
    let process = Process::with_empty_memory();
    let db = process.open(options(&objects));
    assert_eq!(db.get(b"last").unwrap().as_deref(), Some(&b"value"[..]), "{:?}", db.recovery());
    assert!((0..300).all(|number| db.get(&key(number)).unwrap().is_some()));
    compacted(&db).unwrap();
}

#[test]
fn a_failed_sync_is_not_believed_until_the_log_is_begun_anew() {
    for syncing in [Syncing::Sync, Syncing::Interval(Duration::from_nanos(1))] {
        let disk = SimDisk::new();
        let handle = disk.handle();
        let cluster = Cluster::start(64 << 20);
        let process = Process::start([&cluster]);
        let storage = of_disk(&handle, 1);
        let db = process.open(Options { background_threads: 0, ..options(&storage, syncing) });
        db.put(b"a", b"").unwrap();
        db.sync().unwrap();
        // The next frame is written, and then synced.
        handle.fail_at(handle.steps() + 1, DiskFault::Lost);
        let failed = db.put(b"b", b"").and_then(|()| db.sync());
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Io);
        for _ in 0..3 {
            assert_eq!(db.put(b"c", b"").unwrap_err().kind(), ErrorKind::Io);
            assert_eq!(db.sync().unwrap_err().kind(), ErrorKind::Io);
        }
        // Nothing of the failed sync is believed, reads continue, and a flush would be ahead of the log.
        assert!(db.get(b"b").unwrap().is_some() && db.get(b"c").unwrap().is_none());
        assert!(db.flush().is_err());
        db.put_with(b"d", b"", &WriteOptions { durability: Some(Durability::None) }).unwrap();
        db.resume().unwrap();
        db.put(b"e", b"").unwrap();
        db.sync().unwrap();
        handle.end_at(handle.steps());
        process.kill(db);
        disk.lose_power(&mut Random::seeded(1));
        let (cluster, storage) = (Cluster::start(64 << 20), of_disk(&disk.handle(), 2));
        let process = Process::start([&cluster]);
        let db = process.open(options(&storage, syncing));
        let found = [b"a", b"b", b"c", b"d", b"e"].map(|key| db.get(key).unwrap().is_some());
        assert_eq!(found, [true, true, false, true, true], "{:?}", db.recovery());
        db.close().unwrap();
    }
}

/// A writer learns whether a write that failed can be read.
#[test]
fn an_error_tells_whether_the_write_is_visible() {
    let fails_to = |syncing, shards: fn(Options) -> Options, fault, write: &dyn Fn(&Db) -> Result<(), Error>| {
        let disk = SimDisk::new();
        let handle = disk.handle();
        let cluster = Cluster::start(64 << 20);
        let process = Process::start([&cluster]);
        let usual = Options { background_threads: 0, ..options(&of_disk(&handle, 1), syncing) };
        let db = process.open(shards(usual));
        db.put(&key(3), b"").unwrap();
        db.sync().unwrap();
        (0..20).for_each(|step| handle.fail_at(handle.steps() + step, fault));
        let found = [(); 2].map(|()| {
            let error = write(&db).unwrap_err();
            (error.kind(), error.is_of_storage(), error.is_published(), db.get(&key(7)).unwrap().is_some())
        });
        process.kill(db);
        found
    };
    let put = |db: &Db| db.put(&key(7), b"value");
    let across = |db: &Db| {
        let mut batch = WriteBatch::new();
        batch.put(&key(7), b"value").put(&key(1700), b"value");
        db.write(&batch)
    };
    let one_shard = |options| options;
    let full = DiskFault::Refused(ErrorKind::Full);
    // The second write is not published: what is there goes first.
    let visible_then_refused = [(ErrorKind::Full, true, true, true), (ErrorKind::Full, true, false, true)];
    assert_eq!(fails_to(Syncing::Sync, one_shard, full, &put), visible_then_refused);
    assert_eq!(fails_to(Syncing::Sync, four_shards, full, &put), visible_then_refused);
    assert_eq!(fails_to(Syncing::Sync, four_shards, full, &across), visible_then_refused);
    // Once the log is lost, nothing can be written any more.
    let lost = [(ErrorKind::Io, true, true, true), (ErrorKind::Io, true, false, true)];
    assert_eq!(fails_to(Syncing::Sync, one_shard, DiskFault::Lost, &put), lost);
    // A sync that nobody waited for failed.
    let after_a_sync = |db: &Db| {
        let _failed = db.sync();
        db.put(&key(7), b"value")
    };
    let interval = Syncing::Interval(Duration::from_secs(3600));
    let refused = (ErrorKind::Full, true, false, false);
    let write_first = |db: &Db| {
        let _first = db.put(&key(9), b"value");
        after_a_sync(db)
    };
    assert_eq!(fails_to(interval, one_shard, full, &write_first), [refused; 2]);
}

/// However many writes a full disk refuses, only the first is there, and the log needs room for only that one.
#[test]
fn refused_writes_do_not_pile_up() {
    let disk = SimDisk::new();
    let handle = disk.handle();
    let process = Process::with_empty_memory();
    let db = process.open(Options { background_threads: 0, ..options(&of_disk(&handle, 1), Syncing::Sync) });
    db.put(&key(0), b"before").unwrap();
    (0..1000).for_each(|step| handle.fail_at(handle.steps() + step, DiskFault::Refused(ErrorKind::Full)));
    let published = |i| db.put(&key(i), &[7; 1000]).is_err_and(|error| error.is_published());
    assert_eq!((1..100).filter(|i| published(*i)).collect::<Vec<_>>(), [1]);
    handle.mend();
    let bytes = db.statistics().log.bytes;
    db.put(&key(100), b"after").unwrap();
    assert!(db.statistics().log.bytes - bytes < 4000);
    process.kill(db);
    let db =
        Process::with_empty_memory().open(Options { takeover: true, ..options(&of_disk(&disk, 1), Syncing::Sync) });
    let found: Vec<_> = (0..=100).filter(|i| db.get(&key(*i)).unwrap().is_some()).collect();
    assert_eq!(found, [0, 1, 100]);
}

/// A supervisor starts a process again and again, which each time gets as far as some operation on the storage. Not all
/// of these are tried: an opening has a few hundred.
#[test]
fn starts_that_fail_do_not_fill_the_storage() {
    let quiet = |storage: &Storage| Options { background_threads: 0, ..options(storage, Syncing::Sync) };
    let process = Process::with_empty_memory;
    for on_disk in [true, false] {
        let (sound_disk, sound_objects) = (SimDisk::new(), MemoryObjects::new());
        let storage = |disk: &SimDisk, objects: &MemoryObjects, nonce| match on_disk {
            true => of_disk(disk, nonce),
            false => of_objects(objects),
        };
        let first = process();
        let db = first.open(quiet(&storage(&sound_disk.handle(), &sound_objects.handle(), 1)));
        (0..50).for_each(|number| db.put(&key(number), &[7; 100]).unwrap());
        first.kill(db);
        let mut most = 0;
        for step in (0..).step_by(7) {
            let (disk, objects) = (sound_disk.duplicate(), sound_objects.duplicate());
            let start = |ends_at, nonce| {
                let (disk, objects) = (disk.handle(), objects.handle());
                disk.end_at(ends_at);
                objects.end_at(ends_at);
                let process = process();
                let opened = process.try_open(quiet(&storage(&disk, &objects, nonce)));
                opened.map(|db| process.kill(db)).is_ok()
            };
            // Seals of logs stay.
            let listed = || {
                let listed = storage(&disk.handle(), &objects.handle(), 2).objects().list(None).unwrap();
                listed.iter().filter(|object| object.size_bytes > 40).count()
            };
            let before = listed();
            if (0..24).any(|count| start(step, 100 + count)) {
                break;
            }
            most = most.max(listed().saturating_sub(before));
            assert!(most < 20, "on disk {on_disk}, step {step}: {most} objects more");
            let process = process();
            let db = process.open(quiet(&storage(&disk.handle(), &objects.handle(), 3)));
            assert!((0..50).all(|number| db.get(&key(number)).unwrap().as_deref() == Some(&[7; 100][..])));
            db.close().unwrap();
        }
        assert!(most > 5, "{most}");
    }
}

/// A disk on which a killed database has left no room. The database opens, and needs room only for the records of its
/// last group.
#[test]
fn a_killed_database_opens_on_a_disk_that_is_nearly_full() {
    let disk = SimDisk::new();
    let process = Process::with_empty_memory();
    let storage = |nonce| {
        let file_log = FileLogOptions { segment_bytes: 8 << 20, reserve_bytes: 1 << 20 };
        let options = StorageOptions { file_log, ..StorageOptions::default() };
        Storage::of_disk(std::sync::Arc::new(disk.handle()), nonce, options)
    };
    let roomy = |storage: &Storage| Options {
        write_buffer_bytes: 4 << 20,
        background_threads: 0,
        ..options(storage, Syncing::Sync)
    };
    let db = process.open(roomy(&storage(1)));
    (0..1000).for_each(|number| db.put(&key(number), &[7; 1000]).unwrap());
    process.kill(db);
    disk.leave_room(Some(64 << 10));
    let process = Process::with_empty_memory();
    let db = process.open(roomy(&storage(2)));
    assert!((0..1000).all(|number| db.get(&key(number)).unwrap().as_deref() == Some(&[7; 1000][..])));
    disk.leave_room(None);
    db.put(b"more", b"value").unwrap();
    process.kill(db);
    let process = Process::with_empty_memory();
    let db = process.open(roomy(&storage(3)));
    assert_eq!(db.get(b"more").unwrap().as_deref(), Some(&b"value"[..]));
    assert!((0..1000).all(|number| db.get(&key(number)).unwrap().as_deref() == Some(&[7; 1000][..])));
}

#[test]
fn closing_writes_what_a_log_lacks_whose_sync_failed() {
    let disk = SimDisk::new();
    let handle = disk.handle();
    let process = Process::with_empty_memory();
    let syncing = Syncing::Interval(Duration::from_secs(3600));
    let db = process.open(Options { background_threads: 0, ..options(&of_disk(&handle, 1), syncing) });
    db.put(b"a", b"").unwrap();
    db.sync().unwrap();
    assert!(db.log_failure().is_none());
    db.put(b"b", b"").unwrap();
    handle.fail_at(handle.steps() + 1, DiskFault::Lost);
    db.sync().unwrap_err();
    assert_eq!(db.log_failure().unwrap().kind(), ErrorKind::Io);
    db.close().unwrap();
    db.close().unwrap();
    let process = Process::with_empty_memory();
    let db = process.open(options(&of_disk(&disk.handle(), 2), syncing));
    assert!([b"a", b"b"].iter().all(|key| db.get(*key).unwrap().is_some()), "{:?}", db.recovery());
}

#[test]
fn background_work_waits_for_storage_and_goes_on() {
    let disk = SimDisk::new();
    let handle = disk.handle();
    let cluster = Cluster::start(64 << 20);
    let process = Process::start([&cluster]);
    let storage = of_disk(&handle, 1);
    let db = process.open(options(&storage, Syncing::Flush));
    (0..8).for_each(|step| handle.fail_at(handle.steps() + step, DiskFault::Refused(ErrorKind::Full)));
    let mut written = 0;
    let refused = loop {
        match db.put(&key(written), &[1; 500]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::Full);
    (0..written).for_each(|number| assert!(db.get(&key(number)).unwrap().is_some()));
    // The cause is gone some steps later.
    crate::common::eventually("writes go on", || db.put(&key(written), &[1; 500]).is_ok());
    crate::common::eventually("flushes go on", || db.flush().is_ok());
    process.kill(db);
    let cluster = Cluster::start(64 << 20);
    let process = Process::start([&cluster]);
    let storage = of_disk(&disk.handle(), 2);
    let db = process.open(options(&storage, Syncing::Flush));
    (0..=written).for_each(|number| assert!(db.get(&key(number)).unwrap().is_some(), "{number}"));
}

fn rest(db: &Db) {
    while db.run_background_step() {}
}

/// Tables that storage refused reach it soon after it takes them, even if they would not be due any more. Flushes tell
/// of the refusal no longer than that.
#[test]
fn tables_that_storage_refused_are_tried_again() {
    const AGE: Duration = Duration::from_secs(3600);
    let disk = SimDisk::new();
    let handle = disk.handle();
    let clock = Arc::new(ManualClock::new());
    let process = Process::with_empty_memory();
    let db = process.open(Options {
        background_threads: 0,
        flush_after: Some(AGE),
        settle_after: None,
        clock: Arc::<ManualClock>::clone(&clock),
        ..options(&of_disk(&handle, 1), Syncing::Sync)
    });
    db.put(b"key", b"value").unwrap();
    rest(&db);
    // The memtable is old, and then its table.
    clock.advance(AGE);
    rest(&db);
    assert!(db.statistics().log.lag_bytes > 0);
    (0..50).for_each(|step| handle.fail_at(handle.steps() + step, DiskFault::Refused(ErrorKind::Io)));
    clock.advance(AGE);
    rest(&db);
    assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::Io);
    handle.mend();
    clock.advance(Duration::from_secs(1));
    rest(&db);
    db.flush().unwrap();
    assert_eq!(db.statistics().log.lag_bytes, 0);
    db.close().unwrap();
}

/// The object may be there. It goes with the segment that it was to hold.
#[test]
fn an_object_whose_put_got_no_reply_is_deleted() {
    let objects = MemoryObjects::new();
    let handle = objects.handle();
    let process = Process::with_empty_memory();
    let usual = options(&of_objects(&handle), Syncing::Sync);
    let db = process.open(Options { storage_lag_memtables: 0, background_threads: 0, ..usual });
    db.put(b"key", b"value").unwrap();
    // The flush begins with an object.
    handle.fail_at(handle.steps(), ObjectFault::ReplyLost);
    assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(objects.list(Some(&ObjectName::new("db/segment").unwrap())).unwrap().is_empty());
    process.kill(db);
}

/// Storage refuses everything from some step of a move of a bound on, and serves again later. Then all keys can be
/// written, and the next process finds what was written.
#[test]
fn keys_that_move_while_storage_fails_can_be_written_afterwards() {
    const REFUSED: u64 = 60;
    let numbers = || (0..2000).step_by(50);
    let mut undecided = 0;
    for step in 0.. {
        let objects = MemoryObjects::new();
        let handle = objects.handle();
        let clock = Arc::new(ManualClock::new());
        let usual = |objects: &MemoryObjects| {
            let clock = Arc::<ManualClock>::clone(&clock);
            Options { background_threads: 0, clock, ..four_shards(options(&of_objects(objects), Syncing::Sync)) }
        };
        let process = Process::with_empty_memory();
        let db = process.open(usual(&handle));
        numbers().for_each(|number| db.put(&key(number), b"before").unwrap());
        db.flush().unwrap();
        let begin = handle.steps() + step;
        (begin..begin + REFUSED).for_each(|at| handle.fail_at(at, ObjectFault::Refused(ErrorKind::Unavailable)));
        let moved = db.move_bound(0, &key(300));
        undecided += u64::from(moved.as_ref().is_err_and(|error| error.to_string().contains("unknown whether")));
        while handle.steps() < begin + REFUSED {
            let _refused = handle.list(None);
        }
        clock.advance(Duration::from_secs(1));
        rest(&db);
        for number in numbers() {
            assert!(db.get(&key(number)).unwrap().is_some(), "{number} after step {step}");
            let put = db.put(&key(number), b"after");
            assert!(put.is_ok(), "{number} after step {step}, where the move gave {moved:?}: {put:?}");
        }
        process.kill(db);
        let process = Process::with_empty_memory();
        let db = process.open(usual(&objects.handle()));
        for number in numbers() {
            let found = db.get(&key(number)).unwrap();
            assert_eq!(found.as_deref(), Some(&b"after"[..]), "{number} after step {step}");
        }
        process.kill(db);
        if moved.is_ok() {
            break;
        }
    }
    assert!(undecided > 0);
}

#[test]
fn what_cannot_be_is_refused() {
    let cluster = Cluster::start(64 << 20);
    let process = Process::start([&cluster]);
    let objects = MemoryObjects::new();
    let storage = of_objects(&objects.handle());
    let kind = |options| process.try_open(options).map(|_| ()).unwrap_err().kind();
    let usual = || options(&storage, Syncing::Sync);
    assert_eq!(kind(Options { storage: None, ..usual() }), ErrorKind::Invalid);
    assert_eq!(kind(Options { name: None, ..usual() }), ErrorKind::Invalid);
    assert_eq!(kind(Options { name: Some(".x".to_owned()), ..usual() }), ErrorKind::Invalid);
    assert_eq!(kind(options(&storage, Syncing::Interval(Duration::ZERO))), ErrorKind::Invalid);
    assert_eq!(kind(Options { create_if_missing: false, ..usual() }), ErrorKind::NotFound);
    assert_eq!(Db::options_of_stored(&storage, "db").unwrap_err().kind(), ErrorKind::NotFound);
    let db = process.open(usual());
    assert_eq!(kind(Options { error_if_exists: true, ..usual() }), ErrorKind::AlreadyExists);
    assert_eq!(kind(Options { shards: 3, ..usual() }), ErrorKind::Invalid);
    let second = Process::start([&cluster]);
    assert_eq!(second.try_open(usual()).map(|_| ()).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(Db::options_of_stored(&storage, "db").unwrap().shards, 1);
    let clients = &second.clients;
    assert_eq!(Db::destroy_stored(&storage, clients, "db").unwrap_err().kind(), ErrorKind::Busy);
    db.close().unwrap();
    Db::destroy_stored(&storage, clients, "db").unwrap();
    assert_eq!(Db::destroy_stored(&storage, clients, "db").unwrap_err().kind(), ErrorKind::NotFound);
    // A process that drops a database need not have had it open.
    process.open(usual()).close().unwrap();
    let third = Process::start([&cluster]);
    Db::destroy_stored(&storage, &third.clients, "db").unwrap();
    let db = process.open(usual());
    assert!(contents(&db).is_empty());
    // A database of the same name without storage is another one.
    let other = process.open(Options { storage: None, durability: Durability::None, ..usual() });
    assert!(other.recovery().is_some());
}

/// If conditions are ignored, nobody is fenced and logs are overwritten. So nobody gets as far as a log.
#[test]
fn a_service_that_ignores_conditions_takes_no_database() {
    let cluster = Cluster::start(64 << 20);
    let process = Process::start([&cluster]);
    let objects = MemoryObjects::of_careless_service();
    // One process creates the database, and one finds it.
    for commits in 1..=2 {
        let error = process.try_open(options(&of_objects(&objects.handle()), Syncing::Sync)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("If-None-Match"), "{error}");
        let listed = objects.list(None).unwrap();
        assert!(listed.iter().all(|object| object.name.as_str().starts_with("db/commit/")), "{listed:?}");
        assert_eq!(listed.len(), commits);
    }
    // A database that was written elsewhere is left as it is, except for the claim, and can be looked at.
    let objects = MemoryObjects::of_service();
    let db = process.open(options(&of_objects(&objects.handle()), Syncing::Sync));
    db.put(b"a", b"1").unwrap();
    process.kill(db);
    let careless = MemoryObjects::of_careless_service();
    for object in objects.list(None).unwrap() {
        careless.put(&object.name, objects.get(&object.name).unwrap(), PutMode::Replace).unwrap();
    }
    let logs = || careless.list(Some(&ObjectName::new("db/log").unwrap())).unwrap();
    let before = logs();
    let process = Process::start([&cluster]);
    let error = process.try_open(options(&of_objects(&careless.handle()), Syncing::Sync)).unwrap_err();
    assert_eq!((error.kind(), logs()), (ErrorKind::Unsupported, before));
    let report = StoredDatabase::new(&of_objects(&careless), "db").unwrap().verify(&mut |_| ()).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

/// Nobody may delete, as with credentials that only allow reading and writing. The failures are counted, and the
/// deletions are made up for later.
#[test]
fn deletions_that_are_refused_are_counted() {
    let cluster = Cluster::start(64 << 20);
    let objects = MemoryObjects::new();
    let there = || objects.list(None).unwrap().len();
    objects.refuse_deletions(Some(ErrorKind::AccessDenied));
    for _ in 0..3 {
        let process = Process::start([&cluster]);
        let db = process.open(options(&of_objects(&objects.handle()), Syncing::Sync));
        for round in 0..4 {
            (0..50).for_each(|count| db.put(&key(count), &[round; 100]).unwrap());
            db.flush().unwrap();
        }
        db.compact_range(None, None).unwrap();
        db.close().unwrap();
        let counts = db.statistics().storage;
        assert!(counts.failed_deletions > 0 && counts.objects_deleted == 0, "{counts:?}");
    }
    let before = there();
    objects.refuse_deletions(None);
    let process = Process::start([&cluster]);
    let db = process.open(options(&of_objects(&objects.handle()), Syncing::Sync));
    assert_eq!(db.get(&key(49)).unwrap().as_deref(), Some(&[3; 100][..]));
    db.close().unwrap();
    let counts = db.statistics().storage;
    assert!(counts.failed_deletions == 0 && there() < before / 4, "{counts:?}, {before} objects, now {}", there());
}
