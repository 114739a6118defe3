//! Levels in storage: a database larger than its memory, and what reading it takes.

use crate::common::{Cluster, small_options};
use forebay_base::ErrorKind;
use forebay_engine::{BlockCacheCounts, Compression, Db, Durability, Options, Storage, StorageOptions, Syncing};
use forebay_env::{ManualClock, Random};
use forebay_storage::{MemoryObjects, ObjectFault, ObjectStorage, PutMode};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const MEMORY_BYTES: u64 = 8 << 20;

fn options(objects: &MemoryObjects) -> Options {
    Options {
        name: Some("db".to_owned()),
        storage: Some(Storage::of_objects(Arc::new(objects.clone()), StorageOptions::default())),
        durability: Durability::Storage(Syncing::Flush),
        storage_from_level: Some(1),
        // Storage takes no time here.
        memory_cache_after: Duration::ZERO,
        ..small_options()
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:09}").into_bytes()
}

/// A value that compression does not shrink, made from its key and `version`.
fn value(number: u64, version: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::seeded(number << 8 | version);
    let mut value = vec![0; bytes];
    random.fill(&mut value);
    value
}

fn scanned(db: &Db, backward: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries = db.iter().unwrap();
    let mut found = Vec::new();
    if backward {
        entries.seek_to_last().unwrap()
    } else {
        entries.seek_to_first().unwrap()
    }
    while entries.valid() {
        found.push((entries.key().to_vec(), entries.value().to_vec()));
        if backward { entries.prev().unwrap() } else { entries.next().unwrap() }
    }
    if backward {
        found.reverse();
    }
    found
}

/// What the cache did meanwhile.
fn counted<T>(db: &Db, work: impl FnOnce() -> T) -> (T, BlockCacheCounts) {
    let before = db.statistics().block_cache;
    let made = work();
    let after = db.statistics().block_cache;
    let counts = BlockCacheCounts {
        hits: after.hits - before.hits,
        misses: after.misses - before.misses,
        joined: after.joined - before.joined,
        below_hits: after.below_hits - before.below_hits,
        below_misses: after.below_misses - before.below_misses,
        requests: after.requests - before.requests,
        requested_bytes: after.requested_bytes - before.requested_bytes,
        directory_requests: after.directory_requests - before.directory_requests,
        held_bytes: after.held_bytes,
        below_bytes: after.below_bytes,
    };
    (made, counts)
}

#[test]
fn a_database_is_ten_times_as_large_as_its_memory() {
    let start = || {
        let node = forebay_memory_node::Options::with_memory(MEMORY_BYTES);
        Cluster::start_with(forebay_memory_node::Options { extent_bytes: Some(512 << 10), ..node })
    };
    let cluster = start();
    let objects = MemoryObjects::new();
    let options = Options {
        write_buffer_bytes: 64 << 10,
        target_table_bytes: 512 << 10,
        level1_bytes: 512 << 10,
        level_size_multiplier: 10,
        storage_from_level: Some(2),
        block_cache_bytes: 2 << 20,
        ..options(&objects)
    };
    let db = cluster.open(options.clone());
    let (records, bytes) = (22_000u64, 4000);
    let mut random = Random::seeded(1);
    let mut order: Vec<u64> = (0..records).collect();
    random.shuffle(&mut order);
    for &number in &order {
        db.put(&key(number), &value(number, 0, bytes)).unwrap();
    }
    for number in (0..records).step_by(10) {
        db.put(&key(number), &value(number, 1, bytes)).unwrap();
    }
    let version = |number: u64| u64::from(number.is_multiple_of(10));
    let check = |db: &Db| {
        db.wait_for_compactions().unwrap();
        let statistics = db.statistics();
        assert!(statistics.live_bytes > 10 * MEMORY_BYTES, "{statistics:?}");
        assert!(statistics.remote_bytes <= MEMORY_BYTES);
        for number in (0..records).step_by(37) {
            assert_eq!(db.get(&key(number)).unwrap(), Some(value(number, version(number), bytes)), "{number}");
        }
        assert_eq!(db.get(b"key").unwrap(), None);
        for backward in [false, true] {
            let found = scanned(db, backward);
            assert_eq!(found.len() as u64, records);
            for ((found, number), backward) in found.into_iter().zip(0..).zip(std::iter::repeat(backward)) {
                assert_eq!(found, (key(number), value(number, version(number), bytes)), "backward {backward}");
            }
        }
        assert!(db.statistics().block_cache.held_bytes <= 2 << 20);
    };
    check(&db);
    db.close().unwrap();
    let db = cluster.open(options.clone());
    check(&db);
    db.close().unwrap();
    // And with another memory node, which is empty.
    check(&start().open(options));
}

#[test]
fn when_memory_gets_full_the_coldest_level_moves_down() {
    let node = forebay_memory_node::Options::with_memory(4 << 20);
    let cluster = Cluster::start_with(forebay_memory_node::Options { extent_bytes: Some(256 << 10), ..node });
    let objects = MemoryObjects::new();
    let db = cluster.open(Options { storage_from_level: None, write_buffer_bytes: 64 << 10, ..options(&objects) });
    let records = 4000;
    for number in 0..records {
        db.put(&key(number * 7919 % records), &value(number * 7919 % records, 0, 2000)).unwrap();
    }
    let statistics = db.statistics();
    assert!(statistics.live_bytes > 7 << 20 && statistics.remote_bytes <= 4 << 20, "{statistics:?}");
    for number in 0..records {
        assert_eq!(db.get(&key(number)).unwrap(), Some(value(number, 0, 2000)));
    }
    assert_eq!(scanned(&db, false).len() as u64, records);
}

/// Otherwise level 0 would stay as it is, and writers that wait for room in it would wait for ever.
#[test]
fn what_full_storage_did_not_take_goes_down_once_there_is_room() {
    const STOP: usize = 4;
    let cluster = Cluster::start(MEMORY_BYTES);
    let objects = MemoryObjects::new();
    let clock = Arc::new(ManualClock::new());
    let db = cluster.open(Options {
        level0_compaction_trigger: STOP,
        level0_slowdown_trigger: STOP,
        level0_stop_trigger: STOP,
        background_threads: 0,
        clock: Arc::<ManualClock>::clone(&clock),
        ..options(&objects)
    });
    for number in 0..STOP as u64 {
        db.put(&key(number), &value(number, 0, 100)).unwrap();
        db.flush().unwrap();
    }
    assert_eq!(db.statistics().compactions, 0);
    objects.fail_at(objects.steps(), ObjectFault::Refused(ErrorKind::Full));
    assert!(db.run_background_step());
    assert_eq!(db.statistics().compactions, 0);
    clock.advance(Duration::from_secs(1));
    while db.run_background_step() {}
    assert_eq!(db.statistics().compactions, 1);
    let records = 3 * STOP as u64;
    for number in 0..records {
        db.put(&key(number), &value(number, 1, 100)).unwrap();
        db.flush().unwrap();
    }
    assert!((0..records).all(|number| db.get(&key(number)).unwrap() == Some(value(number, 1, 100))));
}

/// A database comes back with less memory than it had, and smaller extents: what does not fit is read from storage.
#[test]
fn a_database_opens_with_less_memory() {
    let objects = MemoryObjects::new();
    let options = || Options {
        storage_from_level: None,
        durability: Durability::Storage(Syncing::Sync),
        write_buffer_bytes: 1 << 20,
        target_table_bytes: 1 << 20,
        ..options(&objects)
    };
    let records = 4000;
    let mut random = Random::seeded(1);
    let mut versions = vec![0; 4000];
    for memory_bytes in [64 << 20, 8 << 20, 4 << 20, 32 << 20] {
        let node = forebay_memory_node::Options::with_memory(memory_bytes);
        let cluster =
            Cluster::start_with(forebay_memory_node::Options { extent_bytes: Some(memory_bytes / 16), ..node });
        let db = cluster.open(options());
        let is_first = memory_bytes == 64 << 20;
        for step in 0..records {
            let number = if is_first { step } else { random.below(records) };
            let version = &mut versions[number as usize];
            assert_eq!(db.get(&key(number)).unwrap(), (!is_first).then(|| value(number, *version, 2000)));
            *version += 1;
            db.put(&key(number), &value(number, *version, 2000)).unwrap();
        }
        db.flush().unwrap();
        let statistics = db.statistics();
        assert!(statistics.live_bytes > 6 << 20 && statistics.remote_bytes <= memory_bytes, "{statistics:?}");
        let expected =
            (0..records).zip(&versions).map(|(number, &version)| (key(number), value(number, version, 2000)));
        assert!(scanned(&db, false).into_iter().eq(expected), "with {memory_bytes} bytes");
        db.close().unwrap();
    }
}

/// A database that is all in storage, in one level. It was opened again, so nothing is in the cache.
fn in_storage(cluster: &Cluster, objects: &MemoryObjects, records: u64, adapt: impl Fn(Options) -> Options) -> Db {
    let options = adapt(Options {
        write_buffer_bytes: 1 << 20,
        target_table_bytes: 32 << 20,
        level1_bytes: 256 << 20,
        ..options(objects)
    });
    let db = cluster.open(options.clone());
    for number in 0..records {
        db.put(&key(number), &value(number, 0, 400)).unwrap();
    }
    db.compact_range(None, None).unwrap();
    db.close().unwrap();
    let db = cluster.open(options);
    assert_eq!(db.statistics().named_bytes, 0, "nothing is in memory");
    db
}

#[test]
fn a_point_read_takes_one_request_and_a_cached_one_none() {
    let (cluster, objects) = (Cluster::start(64 << 20), MemoryObjects::new());
    let db = in_storage(&cluster, &objects, 10_000, |options| options);
    let (found, counts) = counted(&db, || db.get(&key(5000)).unwrap());
    assert_eq!(found, Some(value(5000, 0, 400)));
    assert_eq!(counts.requests, 1);
    // A block, or two where the record lies across.
    assert!(counts.requested_bytes <= 2 * ((16 << 10) + 28), "{counts:?}");
    let (found, counts) = counted(&db, || db.get(&key(5000)).unwrap());
    assert_eq!((found, counts.requests), (Some(value(5000, 0, 400)), 0));
    // A key that is not there takes no request: its point index is here.
    let (found, counts) = counted(&db, || db.get(b"key00000500x").unwrap());
    assert_eq!((found, counts.requests), (None, 0));
    // Several keys of one block are one request, others one each at most.
    let keys: Vec<Vec<u8>> = (0..20).map(|i| key(i * 2 + 100)).chain((0..30).map(|i| key(i * 300 + 501))).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let (found, counts) = counted(&db, || db.multi_get(&keys).unwrap());
    assert!(found.iter().all(Option::is_some));
    assert!(counts.requests <= 2 + 2 * 30 && counts.requests >= 25, "{counts:?}");
}

#[test]
fn a_point_read_brings_a_block_of_the_length_that_was_chosen() {
    let (cluster, objects) = (Cluster::start(64 << 20), MemoryObjects::new());
    for (block_bytes, name) in [(1 << 10, "short"), (64 << 10, "long")] {
        let db = in_storage(&cluster, &objects, 5000, |options| Options {
            block_bytes,
            compression: Compression::None,
            name: Some(name.to_owned()),
            ..options
        });
        let (found, counts) = counted(&db, || db.get(&key(2500)).unwrap());
        assert_eq!((found, counts.requests), (Some(value(2500, 0, 400)), 1));
        let blocks = 1..=2;
        assert!(blocks.map(|blocks| blocks * u64::from(block_bytes + 28)).any(|bytes| bytes == counts.requested_bytes));
    }
    for block_bytes in [0, 512, 3000, 2 << 20] {
        let error = Db::open(&[cluster.client()], Options { block_bytes, ..options(&objects) }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{block_bytes}");
    }
}

#[test]
fn what_the_cache_lets_go_comes_from_memory_nodes() {
    let (cluster, objects) = (Cluster::start(64 << 20), MemoryObjects::new());
    let db = in_storage(&cluster, &objects, 10_000, |options| Options { block_cache_bytes: 256 << 10, ..options });
    let read_all = || {
        for number in (0..10_000).step_by(7) {
            assert_eq!(db.get(&key(number)).unwrap(), Some(value(number, 0, 400)));
        }
    };
    let ((), first) = counted(&db, read_all);
    assert!(first.requests > 200 && first.below_bytes > 3 << 20, "{first:?}");
    let ((), second) = counted(&db, read_all);
    assert_eq!(second.requests, 0, "{second:?}");
    assert!(second.below_hits > 200, "{second:?}");
    // A scan neither asks the cache nor fills it.
    let (found, scan) = counted(&db, || scanned(&db, false));
    assert_eq!(found.len(), 10_000);
    assert!(
        scan.below_misses + scan.below_hits <= 16 && scan.below_bytes <= second.below_bytes + (128 << 10),
        "{scan:?}"
    );
    db.close().unwrap();
    drop(db);
    crate::common::eventually("its memory goes with the session", || {
        cluster.client().node_statistics().unwrap().leased_extents == 0
    });
}

#[test]
fn what_storage_brings_at_once_is_not_kept_in_memory_nodes() {
    let (cluster, objects) = (Cluster::start(64 << 20), MemoryObjects::new());
    let slow = Duration::from_secs(3600);
    let db = in_storage(&cluster, &objects, 1000, |options| Options {
        block_cache_bytes: 64 << 10,
        memory_cache_after: slow,
        ..options
    });
    let read_all =
        || (0..1000).for_each(|number| assert_eq!(db.get(&key(number)).unwrap(), Some(value(number, 0, 400))));
    let ((), counts) = counted(&db, read_all);
    assert!(counts.requests > 0 && counts.below_misses > 0 && counts.below_bytes == 0, "{counts:?}");
}

#[test]
fn memory_that_others_need_is_not_kept_for_reads() {
    let node = forebay_memory_node::Options::with_memory(8 << 20);
    let cluster = Cluster::start_with(forebay_memory_node::Options { extent_bytes: Some(256 << 10), ..node });
    let objects = MemoryObjects::new();
    let db = cluster.open(Options {
        storage_from_level: Some(2),
        write_buffer_bytes: 64 << 10,
        block_cache_bytes: 64 << 10,
        memory_cache_bytes: 64 << 20,
        ..options(&objects)
    });
    let records = 20_000;
    let mut random = Random::seeded(1);
    for number in 0..records {
        db.put(&key(number), &value(number, 0, 1000)).unwrap();
        let other = random.below(number + 1);
        assert_eq!(db.get(&key(other)).unwrap(), Some(value(other, 0, 1000)));
    }
    let counts = db.statistics().block_cache;
    assert!(counts.below_hits > 0, "{counts:?}");
    // A quarter is left alone.
    assert!(counts.below_bytes <= 6 << 20, "{counts:?}");
}

#[test]
fn a_scan_reads_ahead_in_long_requests() {
    let (cluster, objects) = (Cluster::start(64 << 20), MemoryObjects::new());
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd { level: 3 }] {
        for (backward, records) in [(false, 20_000), (true, 20_000)] {
            let name = format!("{compression}-{backward}").replace('=', "-");
            let db = in_storage(&cluster, &objects, records, |options| Options {
                compression,
                block_cache_bytes: 4 << 20,
                name: Some(name.clone()),
                ..options
            });
            let (found, counts) = counted(&db, || scanned(&db, backward));
            assert_eq!(found.len() as u64, records);
            let scanned_bytes: u64 = found.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum();
            // The first requests are shorter; backward, the index is also read.
            let most = scanned_bytes / (1 << 20) + if backward { 12 } else { 8 };
            assert!(counts.requests <= most, "{name}: {scanned_bytes}, {counts:?}");
            assert!(counts.requested_bytes <= scanned_bytes * 13 / 10, "{name}: {scanned_bytes}, {counts:?}");
        }
    }
}

#[test]
fn levels_of_memory_and_storage_are_one_tree() {
    for (seed, from) in [(1, Some(1)), (2, Some(2)), (3, Some(4)), (4, None)] {
        let cluster = Cluster::start(64 << 20);
        let objects = MemoryObjects::new();
        let mut random = Random::seeded(seed);
        let mut model = BTreeMap::new();
        // The first level in storage changes from one opening to the next.
        for from in [from, Some(2), from] {
            let options = Options { storage_from_level: from, block_cache_bytes: 100 << 10, ..options(&objects) };
            let db = cluster.open(options);
            let mut snapshot = None;
            for write in 0..6000 {
                let number = random.below(3000);
                if random.one_in(1, 5) {
                    db.delete(&key(number)).unwrap();
                    model.remove(&key(number));
                } else {
                    let value = value(number, random.below(200), random.below(300) as usize);
                    db.put(&key(number), &value).unwrap();
                    model.insert(key(number), value);
                }
                if write == 3000 {
                    snapshot = Some((db.snapshot(), model.clone()));
                }
            }
            db.wait_for_compactions().unwrap();
            for backward in [false, true] {
                let expected: Vec<_> = model.clone().into_iter().collect();
                assert!(scanned(&db, backward) == expected, "seed {seed}");
            }
            let (snapshot, then) = snapshot.unwrap();
            for number in 0..3000 {
                assert_eq!(db.get(&key(number)).unwrap(), model.get(&key(number)).cloned(), "seed {seed}");
                let found = db.get_at(&key(number), &snapshot).unwrap();
                assert_eq!(found, then.get(&key(number)).cloned(), "seed {seed}");
            }
            drop(snapshot);
            db.close().unwrap();
        }
    }
}

#[test]
fn damage_and_loss_of_objects_are_errors_that_name_them() {
    let (cluster, objects) = (Cluster::start(64 << 20), MemoryObjects::new());
    let records = 5000;
    drop(in_storage(&cluster, &objects, records, |options| options));
    let names: Vec<_> = objects.list(None).unwrap().into_iter().filter(|object| object.size_bytes > 1 << 20).collect();
    let [run] = &names[..] else { panic!("one run, and not {names:?}") };
    let good = objects.get(&run.name).unwrap();
    let replaced = |bytes: Vec<u8>| objects.put(&run.name, bytes.into(), PutMode::Replace).unwrap();
    // Damage of a block is found when the block is read; other blocks are read all the same.
    let mut bad = good.to_vec();
    bad[good.len() / 2] ^= 4;
    replaced(bad);
    let db = cluster.open(options(&objects));
    let (mut found, mut damaged) = (0, 0);
    for number in 0..records {
        match db.get(&key(number)) {
            Ok(read) => {
                assert_eq!(read, Some(value(number, 0, 400)));
                found += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt);
                assert!(error.to_string().contains(run.name.as_str()), "{error}");
                damaged += 1;
            }
        }
    }
    assert!(found > records * 9 / 10 && damaged > 0, "{found}, {damaged}");
    drop(db);
    // A storage that fails is not damage, and reads continue when it is back.
    replaced(good.to_vec());
    let db = cluster.open(options(&objects));
    objects.fail_at(objects.steps(), ObjectFault::Refused(ErrorKind::AccessDenied));
    assert_eq!(db.get(&key(1)).unwrap_err().kind(), ErrorKind::AccessDenied);
    assert_eq!(db.get(&key(1)).unwrap(), Some(value(1, 0, 400)));
    drop(db);
    objects.delete(&run.name).unwrap();
    let error = Db::open(&[cluster.client()], options(&objects)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains(run.name.as_str()), "{error}");
}

#[test]
fn objects_that_no_version_names_are_deleted() {
    let (cluster, objects) = (Cluster::start(64 << 20), MemoryObjects::new());
    let db = cluster.open(options(&objects));
    for version in 0..5 {
        for number in 0..3000 {
            db.put(&key(number), &value(number, version, 100)).unwrap();
        }
        db.compact_range(None, None).unwrap();
    }
    let bytes = |db: &Db| {
        db.wait_for_compactions().unwrap();
        objects.list(None).unwrap().iter().map(|object| object.size_bytes).sum::<u64>()
    };
    // Records of 100 bytes that do not shrink, their keys, indexes, and what commits and logs take.
    crate::common::eventually("what compactions replaced is deleted", || bytes(&db) < 3000 * 220);
}

#[test]
fn an_object_that_is_gone_is_a_successors_doing_or_damage() {
    let objects = MemoryObjects::new();
    // Nothing that was read stays, and the two owners' memory nodes know nothing of each other.
    let options =
        || Options { block_cache_bytes: 0, memory_cache_bytes: 0, background_threads: 0, ..options(&objects.handle()) };
    let (first, second) = (Cluster::start(16 << 20), Cluster::start(16 << 20));
    let fill = |db: &Db, version| {
        (0..100).for_each(|number| db.put(&key(number), &value(number, version, 500)).unwrap());
        db.compact_range(None, None).unwrap();
        while db.run_background_step() {}
    };
    let old = Db::open(&[first.client()], options()).unwrap();
    fill(&old, 1);
    let next = Db::open(&[second.client()], options()).unwrap();
    fill(&next, 2);
    next.close().unwrap();
    // The successor replaced all, so nothing of what the old one's version names is left.
    assert_eq!(old.get(&key(7)).unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(old.put(&key(7), b"late").unwrap_err().kind(), ErrorKind::Fenced);
    let db = Db::open(&[second.client()], options()).unwrap();
    for object in objects.list(None).unwrap() {
        if object.name.as_str().contains("/segment/") {
            objects.delete(&object.name).unwrap();
        }
    }
    assert_eq!(db.get(&key(7)).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(db.multi_get(&[&key(7), &key(8)]).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(db.iter().and_then(|mut entries| entries.seek_to_first()).unwrap_err().kind(), ErrorKind::Corrupt);
}
