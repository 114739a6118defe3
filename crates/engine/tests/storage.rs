//! Durability `storage`: a database survives the loss of everything but its storage.

use crate::common::Cluster;
use crate::common::model::{Model, contents, key, write};
use crate::common::process::Process;
use crate::common::stored::{four_shards, make_log_newer, of_disk, of_objects, options, torture};
use crate::rot::Rot;
use forebay_base::ErrorKind;
use forebay_engine::{
    Db, Durability, Error, LogStatistics, Options, SalvagedEntry, Storage, StorageOptions, StoredDatabase, Syncing,
    WriteBatch, WriteOptions,
};
use forebay_env::Random;
use forebay_env::sync::{Mutex, lock};
use forebay_storage::{Disk, DiskFault, MemoryObjects, ObjectFault, ObjectName, ObjectStorage, PutMode, SimDisk};
use std::sync::Arc;
use std::time::Duration;

/// Rounds of writing, killing and opening again: with the memory node as it was, or an empty one.
fn survives(open: impl Fn(u64) -> Storage, seed: u64, adapt: impl Fn(Options) -> Options) {
    let mut cluster = Cluster::start(64 << 20);
    let mut random = Random::seeded(seed);
    let mut model = Model::new();
    for round in 0..12 {
        if random.one_in(1, 3) {
            cluster = Cluster::start(64 << 20);
        }
        let process = Process::start([&cluster]);
        let db = process.open(adapt(options(&open(round), Syncing::Sync)));
        assert_eq!(contents(&db), model, "seed {seed}, round {round}, {:?}", db.recovery());
        let writes = [0, 1, 30, 2000][random.below(4) as usize];
        write(&db, &mut model, &mut random, writes);
        if random.one_in(1, 4) {
            db.flush().unwrap();
        }
        if random.one_in(1, 4) {
            db.close().unwrap();
        }
        process.kill(db);
    }
    let cluster = Cluster::start(64 << 20);
    let process = Process::start([&cluster]);
    let storage = open(100);
    let db = process.open(adapt(options(&storage, Syncing::Sync)));
    db.compact_range(None, None).unwrap();
    assert_eq!(contents(&db), model);
    db.close().unwrap();
    drop(db);
    // Nothing is left but what the version names, the register, and seals.
    let listed = storage.objects().list(None).unwrap();
    let segments = listed.iter().filter(|object| object.name.as_str().contains("/segment/")).count();
    assert!((1..100).contains(&segments), "{segments}");
    Db::destroy_stored(&storage, &process.clients, "db").unwrap();
    let segments = storage.objects().list(None).unwrap();
    assert!(segments.iter().all(|object| !object.name.as_str().contains("/segment/")), "{segments:?}");
    drop(process);
    cluster.expect_nothing_leased();
}

#[test]
fn acknowledged_writes_survive_kills_on_a_disk() {
    for (seed, background_threads) in [(1, 0), (2, 2)] {
        let disk = SimDisk::new();
        survives(|nonce| of_disk(&disk.handle(), nonce), seed, |options| Options { background_threads, ..options });
    }
}

#[test]
fn acknowledged_writes_survive_kills_on_objects() {
    for (seed, background_threads) in [(3, 0), (4, 2)] {
        let objects = MemoryObjects::new();
        survives(|_| of_objects(&objects.handle()), seed, |options| Options { background_threads, ..options });
    }
}

#[test]
fn acknowledged_writes_of_several_shards_survive_kills() {
    let disk = SimDisk::new();
    survives(|nonce| of_disk(&disk.handle(), nonce), 5, four_shards);
}

#[test]
fn what_survives_is_what_was_written_up_to_some_moment() {
    (0..12).for_each(torture);
}

#[test]
fn memory_that_lives_on_is_used_and_storage_fills_in_for_the_rest() {
    let disk = SimDisk::new();
    let (first, second) = (Cluster::start(64 << 20), Cluster::start(64 << 20));
    let storage = of_disk(&disk.handle(), 1);
    let (mut random, mut model) = (Random::seeded(7), Model::new());
    let process = Process::start([&first]);
    let db = process.open(options(&storage, Syncing::Sync));
    write(&db, &mut model, &mut random, 2000);
    process.kill(db);
    let open = |cluster: &Cluster, nonce| {
        let process = Process::start([cluster]);
        let db = process.open(options(&of_disk(&disk.handle(), nonce), Syncing::Sync));
        assert_eq!(contents(&db), model);
        let found = db.recovery().unwrap().clone();
        process.kill(db);
        (found.segments_held > 0, found.segments_loaded > 0)
    };
    assert_eq!(open(&first, 2), (true, false));
    assert_eq!(open(&second, 3), (false, true));
    assert_eq!(open(&second, 4), (true, false));
    // The other node's copies are of an earlier time.
    assert_eq!(open(&first, 5), (false, true));
}

#[test]
fn a_group_of_writes_costs_one_sync() {
    let disk = SimDisk::new();
    let handle = disk.handle();
    let cluster = Cluster::start(64 << 20);
    let process = Process::start([&cluster]);
    // A file of the log is long enough for all of them: to make it longer takes a sync.
    let storage = Storage::of_disk(Arc::new(handle.clone()), 1, StorageOptions::default());
    let db = process.open(four_shards(options(&storage, Syncing::Sync)));
    db.put(b"00000", b"").unwrap();
    let (syncs, before) = (handle.file_syncs(), db.statistics());
    for number in 0..100 {
        db.put(&key(number * 19), &[7; 20]).unwrap();
    }
    let mut batch = WriteBatch::new();
    for number in 0..100 {
        batch.put(&key(number * 19), &[8; 20]);
    }
    db.write(&batch).unwrap();
    let after = db.statistics();
    // One for each put, and one for a batch over four shards.
    assert_eq!((handle.file_syncs() - syncs, after.log.groups - before.log.groups), (101, 101));
    assert_eq!(after.log.records - before.log.records, 200);
    assert_eq!(after.storage.objects_written, before.storage.objects_written);
    // Lowered, it costs none.
    db.put_with(b"00000", b"", &WriteOptions { durability: Some(Durability::None) }).unwrap();
    assert_eq!(handle.file_syncs() - syncs, 101);
    db.sync().unwrap();
    assert_eq!(handle.file_syncs() - syncs, 102);
}

#[test]
fn with_flush_what_was_flushed_survives_and_a_write_can_ask_for_more() {
    let objects = MemoryObjects::new();
    let open = || {
        let process = Process::with_empty_memory();
        let db = process.open(options(&of_objects(&objects.handle()), Syncing::Flush));
        (process, db)
    };
    let found = |db: &Db| [b"a", b"b", b"c", b"d"].map(|key| db.get(key).unwrap().is_some());
    let (process, db) = open();
    db.put(b"a", b"").unwrap();
    db.flush().unwrap();
    assert_eq!(db.statistics().log.groups, 0);
    db.put(b"b", b"").unwrap();
    process.kill(db);
    let (process, db) = open();
    assert_eq!(found(&db), [true, false, false, false]);
    db.put(b"b", b"").unwrap();
    let sync = WriteOptions { durability: Some(Durability::Storage(Syncing::Sync)) };
    db.put_with(b"c", b"", &sync).unwrap();
    db.put(b"d", b"").unwrap();
    process.kill(db);
    let (_process, db) = open();
    assert_eq!(found(&db), [true, true, true, false]);
}

#[test]
fn an_interval_passes_and_a_write_is_durable() {
    let objects = MemoryObjects::new();
    let cluster = Cluster::start(64 << 20);
    let process = Process::start([&cluster]);
    let interval = Syncing::Interval(Duration::from_millis(5));
    let db = process.open(options(&of_objects(&objects.handle()), interval));
    db.put(b"a", b"").unwrap();
    crate::common::eventually("the log is shipped", || db.statistics().log.records > 0);
    process.kill(db);
    let process = Process::start([&cluster]);
    let db = process.open(options(&of_objects(&objects.handle()), interval));
    assert!(db.get(b"a").unwrap().is_some());
}

/// Work that fails for good ends flushes, so closing leaves the log as it stands, with all of its last interval.
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
        // Nothing of it is believed, reads go on, and a flush would be ahead of the log.
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

/// Who writes learns whether a write that failed can be read.
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
    let visible = (ErrorKind::Full, true, true, true);
    assert_eq!(fails_to(Syncing::Sync, one_shard, full, &put), [visible; 2]);
    assert_eq!(fails_to(Syncing::Sync, four_shards, full, &put), [visible; 2]);
    assert_eq!(fails_to(Syncing::Sync, four_shards, full, &across), [visible; 2]);
    // Once the log is lost, nothing is written any more.
    let lost = [(ErrorKind::Io, true, true, true), (ErrorKind::Io, true, false, true)];
    assert_eq!(fails_to(Syncing::Sync, one_shard, DiskFault::Lost, &put), lost);
    // A sync failed that nobody waited for.
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

/// Who writes nothing makes no commit and no sync that would tell of another owner.
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
    // What storage does not say is no answer.
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

/// Nothing that it acknowledges would be found again.
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
        // Also when the server tries to write the log again.
        for _ in 0..2 {
            writes_nothing();
            assert_eq!(db.resume().unwrap_err().kind(), ErrorKind::Corrupt);
        }
        assert_eq!(db.get(&key(3)).unwrap(), Some(b"value".to_vec()));
        // Once they are back, the log gets what it lacks. All else is for who opens the database next.
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

/// Storage gets tables when as much was flushed as four memtables hold, and not what was compacted away by then. What it names
/// stays in memory meanwhile.
#[test]
fn storage_lags_behind_and_memory_keeps_what_it_names() {
    let objects = MemoryObjects::new();
    let cluster = Cluster::start(64 << 20);
    let usual = || {
        let storage = of_objects(&objects.handle());
        Options { storage_lag_memtables: 4, background_threads: 0, takeover: true, ..options(&storage, Syncing::Sync) }
    };
    let of_segments = || {
        let listed = objects.list(None).unwrap();
        listed.iter().filter(|object| object.name.as_str().contains("/segment/")).count()
    };
    let process = Process::start([&cluster]);
    let db = process.open(usual());
    let (mut random, mut model) = (Random::seeded(1), Model::new());
    // Until so many memtables are flushed.
    let mut fill = |db: &Db, model: &mut Model, flushes: u64| {
        while db.statistics().flushes < flushes {
            write(db, model, &mut random, 1);
            while db.run_background_step() {}
        }
    };
    fill(&db, &mut model, 3);
    assert_eq!(of_segments(), 0, "the log has it");
    assert!(db.statistics().log.lag_bytes > 0);
    fill(&db, &mut model, 5);
    let first = of_segments();
    assert!(first > 0);
    // Compactions replace what storage names.
    fill(&db, &mut model, 7);
    db.run_background_step();
    assert_eq!(of_segments(), first);
    process.kill(db);

    let process = Process::start([&cluster]);
    let db = process.open(usual());
    let recovery = db.recovery().unwrap();
    assert!(recovery.segments_held > 0 && recovery.segments_loaded == 0, "memory has what storage names: {recovery:?}");
    assert_eq!(contents(&db), model);
    fill(&db, &mut model, 3);
    process.kill(db);

    let process = Process::with_empty_memory();
    let db = process.open(usual());
    assert_eq!(contents(&db), model);
    db.flush().unwrap();
    let LogStatistics { bytes: log_bytes, lag_bytes, .. } = db.statistics().log;
    assert_eq!(lag_bytes, 0);
    process.kill(db);
    let process = Process::with_empty_memory();
    let db = process.open(usual());
    assert_eq!(db.recovery().unwrap().log_bytes, 0, "{log_bytes} bytes were shipped, and all of it flushed");
    assert_eq!(contents(&db), model);
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

#[test]
fn bounds_that_moved_and_checkpoints_work_on_storage() {
    let objects = MemoryObjects::new();
    let (mut random, mut model) = (Random::seeded(3), Model::new());
    for _ in 0..4 {
        let process = Process::with_empty_memory();
        let db = process.open(four_shards(options(&of_objects(&objects.handle()), Syncing::Sync)));
        assert_eq!(contents(&db), model);
        write(&db, &mut model, &mut random, 700);
        db.move_bound(1, format!("{:05}", 900 + random.below(200)).as_bytes()).unwrap();
        process.kill(db);
    }
    let process = Process::with_empty_memory();
    let db = process.open(four_shards(options(&of_objects(&objects.handle()), Syncing::Sync)));
    let file = std::env::temp_dir().join(format!("forebay-checkpoint-{}", std::process::id()));
    db.checkpoint(&file).unwrap();
    let copy = Options { name: Some("copy".to_owned()), ..options(&of_objects(&objects.handle()), Syncing::Sync) };
    let restored = process.open(copy.clone());
    restored.load(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(contents(&restored), model);
    restored.close().unwrap();
    let process = Process::with_empty_memory();
    assert_eq!(contents(&process.open(copy)), model);
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
    // Whoever drops it need not have had it open.
    process.open(usual()).close().unwrap();
    let third = Process::start([&cluster]);
    Db::destroy_stored(&storage, &third.clients, "db").unwrap();
    let db = process.open(usual());
    assert!(contents(&db).is_empty());
    // A database of the same name without storage is another one.
    let other = process.open(Options { storage: None, durability: Durability::None, ..usual() });
    assert!(other.recovery().is_some());
}

#[test]
fn a_shard_that_writes_little_does_not_hold_the_log() {
    let objects = MemoryObjects::new();
    let process = Process::with_empty_memory();
    let db = process.open(four_shards(options(&of_objects(&objects.handle()), Syncing::Sync)));
    db.put(b"01999", b"little").unwrap();
    // More than the log keeps for it.
    for number in 0..300 {
        let mut batch = WriteBatch::new();
        batch.put(&key(number % 400), &vec![number as u8; 30 << 10]);
        db.write(&batch).unwrap();
    }
    let log_bytes = || {
        let listed = objects.list(None).unwrap();
        let segments = listed.iter().filter(|object| object.name.as_str().contains("/log/"));
        segments.map(|segment| segment.size_bytes).sum::<u64>()
    };
    crate::common::eventually("the log is trimmed", || {
        db.put(&key(1), &[1; 8 << 10]).unwrap();
        log_bytes() < 6 << 20
    });
    process.kill(db);
    let process = Process::with_empty_memory();
    let db = process.open(four_shards(options(&of_objects(&objects.handle()), Syncing::Sync)));
    assert_eq!(db.get(b"01999").unwrap().as_deref(), Some(&b"little"[..]));
}

/// Where each sync puts an object, a memtable that is far from full has thousands of them in the log.
#[test]
fn a_log_of_small_objects_does_not_become_many() {
    let objects = MemoryObjects::new();
    let large =
        |storage: &Storage| Options { write_buffer_bytes: 4 << 20, ..four_shards(options(storage, Syncing::Sync)) };
    let process = Process::with_empty_memory();
    let db = process.open(large(&of_objects(&objects.handle())));
    let in_log = || {
        let listed = objects.list(None).unwrap();
        listed.iter().filter(|object| object.name.as_str().contains("/log/")).count()
    };
    for number in 0..3000 {
        db.put(&key(number % 400), b"little").unwrap();
    }
    let mut writes = 3000;
    crate::common::eventually("the log is trimmed", || {
        db.put(&key(writes % 400), b"little").unwrap();
        writes += 1;
        in_log() <= 256 + 2
    });
    process.kill(db);
    let (left, process) = (in_log(), Process::with_empty_memory());
    let storage = of_objects(&objects.handle());
    let db = process.open(large(&storage));
    for number in 0..400 {
        assert_eq!(db.get(&key(number)).unwrap().as_deref(), Some(&b"little"[..]));
    }
    // Each object of the log was asked for once.
    let read = storage.counts().objects_read;
    assert!((left as u64..left as u64 + 60).contains(&read), "{read} requests for {left} objects");
}

/// An owner is killed after the commit that lets go of a log, and before all of the log is deleted.
#[test]
fn what_is_left_of_a_log_that_no_commit_names_is_deleted() {
    for on_disk in [true, false] {
        let (disk, objects) = (SimDisk::new(), MemoryObjects::new());
        let storage = |nonce| match on_disk {
            true => of_disk(&disk.handle(), nonce),
            false => of_objects(&objects.handle()),
        };
        let cluster = Cluster::start(64 << 20);
        let process = Process::start([&cluster]);
        let db = process.open(options(&storage(1), Syncing::Sync));
        db.put(b"a", b"value").unwrap();
        db.close().unwrap();
        process.kill(db);
        let left = |number: u64| {
            let name = forebay_storage::ObjectName::new(format!("db/log/{:020}/{number:020}", 1)).unwrap();
            let log = storage(2).create_log(&name, number).unwrap();
            log.sync(log.append(0, 1, &[7; 1000]).unwrap()).unwrap();
        };
        let bytes_left = || {
            let listed = storage(3).objects().list(None).unwrap();
            let logs = listed.iter().filter(|object| object.name.as_str().contains("/log/"));
            logs.map(|object| object.size_bytes).sum::<u64>()
        };
        (7..9).for_each(left);
        assert!(bytes_left() > 2000);
        let process = Process::start([&cluster]);
        let db = process.open(Options { background_threads: 0, ..options(&storage(4), Syncing::Sync) });
        assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"value"[..]));
        while db.run_background_step() {}
        assert!(bytes_left() < 200, "on disk: {on_disk}, {} bytes", bytes_left());
        db.close().unwrap();
        drop(db);
        left(9);
        Db::destroy_stored(&storage(5), &process.clients, "db").unwrap();
        assert!(bytes_left() < 200, "on disk: {on_disk}, {} bytes", bytes_left());
    }
}

/// What is said of a database in damaged storage: by opening it, by verifying it (kinds), and by saving what is left (the
/// number of keys, and whether there are problems).
fn said(storage: &Storage) -> (Option<ErrorKind>, Vec<ErrorKind>, (usize, bool)) {
    let looked = StoredDatabase::new(storage, "db").unwrap();
    let verified = looked.verify(&mut |_| ()).unwrap();
    let mut saved = 0;
    let salvaged = looked.salvage(&mut |_| ()).unwrap().save(|_: SalvagedEntry<'_>| {
        saved += 1;
        Ok::<_, Error>(())
    });
    let process = Process::with_empty_memory();
    let opened = process.try_open(options(storage, Syncing::Sync)).map(|db| process.kill(db));
    let problems = verified.problems.iter().map(|problem| problem.kind).collect();
    (opened.err().map(|error| error.kind()), problems, (saved, !salvaged.unwrap().problems.is_empty()))
}

/// All that was written is in the log, which has several files.
#[test]
fn files_that_are_missing_from_a_log_are_found() {
    let disk = SimDisk::new();
    let process = Process::with_empty_memory();
    let options = options(&of_disk(&disk.handle(), 1), Syncing::Sync);
    let db = process.open(Options { write_buffer_bytes: 1 << 20, ..options });
    (0..400).for_each(|number| db.put(&key(number), &[7; 200]).unwrap());
    process.kill(db);
    let folder = format!("db/log/{:020}/{:020}", 1, 1);
    let files: Vec<_> =
        disk.list(&folder).unwrap().into_iter().map(|entry| format!("{folder}/{}", entry.name)).collect();
    assert!(files.len() > 4, "{files:?}");
    let said_after = |harm: &dyn Fn(&SimDisk)| {
        let disk = disk.duplicate();
        harm(&disk);
        said(&of_disk(&disk, 2))
    };
    assert_eq!(said_after(&|_| ()), (None, vec![], (400, false)));
    let count = files.len();
    let remove = |disk: &SimDisk, which: std::ops::Range<usize>| {
        files[which].iter().for_each(|path| disk.remove(path).unwrap());
    };
    for which in [0..count, count - 1..count, count - 2..count, 0..1, 1..2] {
        let (opened, problems, (saved, has_problems)) = said_after(&|disk| remove(disk, which.clone()));
        assert_eq!((opened, problems), (Some(ErrorKind::Corrupt), vec![ErrorKind::Corrupt]), "{which:?} of {count}");
        assert!(has_problems && saved < 400, "{saved} without {which:?} of {count}");
        assert_eq!(saved == 0, which == (0..count), "{saved} without {which:?} of {count}");
    }
    let length = disk.open(&files[count - 1], false).unwrap().length().unwrap();
    for length in [0, 40, 1000, length / 4] {
        let cut = |disk: &SimDisk| disk.open(&files[count - 1], true).unwrap().truncate(length).unwrap();
        let (opened, problems, (saved, has_problems)) = said_after(&cut);
        assert_eq!((opened, problems), (Some(ErrorKind::Corrupt), vec![ErrorKind::Corrupt]), "cut to {length} bytes");
        assert!(has_problems && (1..400).contains(&saved), "{saved}, cut to {length} bytes");
    }
}

#[test]
fn a_log_in_objects_that_is_missing_is_found() {
    let objects = MemoryObjects::new();
    let process = Process::with_empty_memory();
    let db = process.open(options(&of_objects(&objects.handle()), Syncing::Sync));
    (0..20).for_each(|number| db.put(&key(number), b"value").unwrap());
    process.kill(db);
    let log = ObjectName::new("db/log").unwrap();
    for object in objects.list(Some(&log)).unwrap() {
        objects.delete(&object.name).unwrap();
    }
    let (opened, problems, (saved, has_problems)) = said(&of_objects(&objects.handle()));
    assert_eq!((opened, problems), (Some(ErrorKind::Corrupt), vec![ErrorKind::Corrupt]));
    assert_eq!((saved, has_problems), (0, true));
    // It can be dropped all the same.
    Db::destroy_stored(&of_objects(&objects.handle()), &[], "db").unwrap();
}

/// A database of which no commit is left is no new one, and nothing of it is deleted.
#[test]
fn commits_that_are_missing_are_found() {
    for is_flushed in [false, true] {
        let objects = MemoryObjects::new();
        let storage = of_objects(&objects.handle());
        let process = Process::with_empty_memory();
        let db = process.open(options(&storage, Syncing::Sync));
        (0..200).for_each(|number| db.put(&key(number), &[7; 200]).unwrap());
        if is_flushed {
            db.flush().unwrap();
        }
        process.kill(db);
        let listed = |folder: &str| objects.list(Some(&ObjectName::new(folder).unwrap())).unwrap();
        listed("db/commit").iter().for_each(|commit| objects.delete(&commit.name).unwrap());
        let left = listed("db");
        for create_if_missing in [true, false] {
            let process = Process::with_empty_memory();
            let refused =
                process.try_open(Options { create_if_missing, ..options(&storage, Syncing::Sync) }).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
            assert!(refused.to_string().contains("forebay repair"), "{refused}");
        }
        assert_eq!(Db::options_of_stored(&storage, "db").unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(Db::destroy_stored(&storage, &[], "db").unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(listed("db"), left);
        let (_, _, (saved, _)) = said(&storage);
        assert_eq!(saved, 200);
        // Where nobody needs it, it makes room.
        left.iter().for_each(|object| objects.delete(&object.name).unwrap());
        let process = Process::with_empty_memory();
        let db = process.open(options(&storage, Syncing::Sync));
        db.put(b"key", b"value").unwrap();
        db.close().unwrap();
        Db::destroy_stored(&storage, &[], "db").unwrap();
        assert_eq!(Db::options_of_stored(&storage, "db").unwrap_err().kind(), ErrorKind::NotFound);
        process.open(options(&storage, Syncing::Sync)).close().unwrap();
    }
}

/// A commit that names a new log fails: the same log is named by the next one, and no other one is created.
#[test]
fn a_log_is_there_before_a_commit_names_it() {
    let (objects, process) = (MemoryObjects::new(), Process::with_empty_memory());
    let handle = objects.handle();
    let db = process.open(Options { background_threads: 0, ..options(&of_objects(&handle), Syncing::Sync) });
    let log = ObjectName::new("db/log").unwrap();
    // The log's first object, and then the commit.
    handle.fail_at(handle.steps() + 1, ObjectFault::Refused(ErrorKind::Unavailable));
    assert_eq!(db.put(b"a", b"1").unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(objects.list(Some(&log)).unwrap().len(), 1);
    assert_eq!(said(&of_objects(&objects.duplicate())).1, []);
    db.put(b"b", b"2").unwrap();
    assert_eq!(objects.list(Some(&log)).unwrap().len(), 2);
    process.kill(db);
}

/// What a killed process was writing is noted, and goes when a database is opened in the same storage. What a living one writes stays.
#[test]
fn what_interrupted_writes_left_is_removed_by_the_next_owner() {
    let disk = SimDisk::new();
    let storage = |nonce| of_disk(&disk.handle(), nonce);
    let process = Process::with_empty_memory();
    let db = process.open(options(&storage(1), Syncing::Sync));
    db.put(b"a", b"1").unwrap();
    process.kill(db);
    let (killed, name) = (disk.handle(), ObjectName::new("other/object").unwrap());
    let begin = |storage: &Storage| {
        let mut writer = storage.objects().writer(&name).unwrap();
        writer.write(bytes::Bytes::from_static(b"some of it")).unwrap();
        writer
    };
    let left = begin(&of_disk(&killed, 2));
    killed.end_at(0);
    let lives = begin(&storage(3));
    let temporary = || disk.list(".tmp").unwrap().len();
    assert_eq!(temporary(), 2);
    let notes = StoredDatabase::new(&storage(4), "db").unwrap().verify(&mut |_| ()).unwrap().notes;
    assert_eq!(notes.iter().filter(|note| note.object.starts_with(".tmp/")).count(), 1, "{notes:?}");
    let process = Process::with_empty_memory();
    let db = process.open(options(&storage(5), Syncing::Sync));
    assert_eq!(temporary(), 1);
    lives.finish().unwrap();
    drop(left);
    assert_eq!(storage(6).objects().get(&name).unwrap(), &b"some of it"[..]);
    process.kill(db);
}

/// Owners end at each step of beginning a log. Whoever opens the database deletes what they leave, as `verify` says.
#[test]
fn a_log_without_records_that_nothing_names_is_deleted() {
    let mut noted = [0; 2];
    for on_disk in [false, true] {
        for step in 0.. {
            let (disk, objects) = (SimDisk::new(), MemoryObjects::new());
            let (first, all) = match on_disk {
                true => (of_disk(&disk, 1), of_disk(&disk.handle(), 2)),
                false => (of_objects(&objects), of_objects(&objects.handle())),
            };
            let quiet = |storage: &Storage| Options { background_threads: 0, ..options(storage, Syncing::Sync) };
            let process = Process::with_empty_memory();
            let db = process.open(quiet(&first));
            match on_disk {
                true => disk.end_at(disk.steps() + step),
                false => objects.end_at(objects.steps() + step),
            }
            let written = db.put(b"key", b"value");
            process.kill(db);
            let orphans = || {
                let report = StoredDatabase::new(&all, "db").unwrap().verify(&mut |_| ()).unwrap();
                report.notes.iter().filter(|note| note.detail.contains("a log of")).count()
            };
            noted[usize::from(on_disk)] += orphans();
            let process = Process::with_empty_memory();
            let db = process.open(quiet(&all));
            db.flush().unwrap();
            db.close().unwrap();
            assert_eq!(orphans(), 0, "on disk {on_disk}, step {step}");
            if written.is_ok() {
                break;
            }
        }
    }
    assert!(noted.iter().all(|noted| *noted > 0), "{noted:?}");
}

/// Whoever takes a database over, and cannot read its log, takes nothing: the owner goes on.
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

/// Where conditions are ignored, nobody is fenced and logs are overwritten. So nobody gets as far as a log.
#[test]
fn a_service_that_ignores_conditions_takes_no_database() {
    let cluster = Cluster::start(64 << 20);
    let process = Process::start([&cluster]);
    let objects = MemoryObjects::of_careless_service();
    // One that creates the database, and one that finds it.
    for commits in 1..=2 {
        let error = process.try_open(options(&of_objects(&objects.handle()), Syncing::Sync)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("If-None-Match"), "{error}");
        let listed = objects.list(None).unwrap();
        assert!(listed.iter().all(|object| object.name.as_str().starts_with("db/commit/")), "{listed:?}");
        assert_eq!(listed.len(), commits);
    }
    // One that was written elsewhere is left as it is, but for the claim, and can be looked at.
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

/// Nobody may delete, as with credentials that allow to read and to write only: it is counted, and made up for later.
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
