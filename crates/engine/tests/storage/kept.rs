//! What was acknowledged survives, and what that costs.

use crate::common::Cluster;
use crate::common::model::{Model, contents, key, write};
use crate::common::process::Process;
use crate::common::stored::{four_shards, of_disk, of_objects, options, torture};
use forebay_engine::{
    Db, Durability, LogStatistics, Options, Storage, StorageOptions, Syncing, WriteBatch, WriteOptions,
};
use forebay_env::Random;
use forebay_storage::{MemoryObjects, ObjectStorage, SimDisk};
use std::sync::Arc;
use std::time::Duration;

/// Rounds of writing, killing and opening again, with the memory node as it was or an empty one.
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
    // A file of the log is long enough for all of them: making it longer takes a sync.
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

/// Storage gets tables when as much was flushed as four memtables hold, without what was compacted away by then. What
/// storage names stays in memory meanwhile.
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
    // Until this many memtables are flushed.
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
