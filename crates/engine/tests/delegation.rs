//! Lookups that the memory node does: what they cost, and that they answer as reads would.

use crate::common::{Cluster, SetClock, small_options};
use forebay_base::KeyOrder;
use forebay_engine::{Db, Delegation, Durability, IterOptions, Options, ShardBounds, Storage, StorageOptions, Syncing};
use forebay_env::Random;
use forebay_fabric::Counts;
use forebay_storage::MemoryObjects;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Keys of the larger databases: more than the index of their table may take.
const KEYS: u64 = 20_000;
/// A budget that holds addresses of records, and no index of this many keys.
const NO_INDEX: u64 = 64 << 10;

fn key(i: u64) -> Vec<u8> {
    format!("{i:020}").into_bytes()
}

fn options(delegation: Delegation, cached_index_bytes: u64) -> Options {
    Options {
        write_buffer_bytes: 4 << 20,
        target_table_bytes: 4 << 20,
        cached_index_bytes: Some(cached_index_bytes),
        delegation,
        ..Options::default()
    }
}

/// Even keys, in one table of the last level.
fn filled(cluster: &Cluster, options: Options) -> Db {
    let db = cluster.open(options);
    for i in 0..KEYS {
        db.put(&key(2 * i), &[i as u8; 16]).unwrap();
    }
    db.compact_range(None, None).unwrap();
    db
}

/// Flushes, with so many other keys that the index of their table exceeds the budget.
fn flush_with_others(db: &Db) {
    put_others(db);
    db.flush().unwrap();
}

fn put_others(db: &Db) {
    for i in 0..KEYS {
        db.put(&key(4 * i + 1), b"other").unwrap();
    }
}

fn cost<T>(db: &Db, work: impl FnOnce() -> T) -> (T, Counts) {
    let before = db.statistics().foreground;
    let made = work();
    (made, db.statistics().foreground - before)
}

#[test]
fn a_lookup_without_an_index_takes_one_round_trip_instead_of_two() {
    let cluster = Cluster::start(256 << 20);
    for (delegation, found_takes) in [(Delegation::Always, 1), (Delegation::Never, 2)] {
        let db = filled(&cluster, options(delegation, 0));
        let (value, found) = cost(&db, || db.get(&key(2000)).unwrap());
        assert_eq!((value.unwrap(), found.round_trips), (vec![1000u64 as u8; 16], found_takes), "{delegation:?}");
        let (value, absent) = cost(&db, || db.get(&key(2001)).unwrap());
        assert_eq!((value, absent.round_trips), (None, 1), "{delegation:?}");
        let keys: Vec<_> = (0..100).map(|i| key(i * 301)).collect();
        let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
        let (values, batch) = cost(&db, || db.multi_get(&keys).unwrap());
        assert!(values.iter().enumerate().all(|(i, value)| value.is_some() == (i % 2 == 0)));
        assert_eq!(batch.round_trips, found_takes, "{delegation:?}");
        let counts = db.statistics().delegation;
        if delegation == Delegation::Always {
            assert_eq!((counts.searches, counts.searched_keys, counts.refusals), (3, 102, 0), "{counts:?}");
            assert!(found.reads == 0 && found.bytes_read + found.bytes_written < 300, "{found:?}");
        } else {
            assert!(counts.searches == 0 && found.bytes_read > 4000, "{counts:?}, {found:?}");
        }
        db.close().unwrap();
    }
}

#[test]
fn by_itself_a_lookup_is_delegated_where_that_costs_less() {
    // In this process, a read is far cheaper than a message, but not than thousands of reads.
    let cluster = Cluster::start(256 << 20);
    let db = filled(&cluster, options(Delegation::Automatic, 0));
    db.get(&key(2000)).unwrap().unwrap();
    let counts = db.statistics().delegation;
    assert_eq!((counts.searched_keys, counts.read_keys), (0, 1));
    let keys: Vec<_> = (0..200).map(|i| key(i * 100)).collect();
    let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
    assert!(db.multi_get(&keys).unwrap().iter().all(Option::is_some));
    let counts = db.statistics().delegation;
    assert_eq!((counts.searches, counts.searched_keys, counts.read_keys), (1, 200, 1));
}

#[test]
fn all_kinds_of_answers_in_several_levels() {
    let cluster = Cluster::start(256 << 20);
    let clock = Arc::new(SetClock::default());
    clock.set(1_000);
    let db = filled(&cluster, Options { clock: clock.clone(), ..options(Delegation::Always, 0) });
    db.put(&key(0), b"first").unwrap();
    db.flush().unwrap();
    db.delete(&key(2)).unwrap();
    db.put(&key(4), &[7; 100_000]).unwrap();
    db.put_expiring(&key(6), b"for a second", 2_000).unwrap();
    let snapshot = db.snapshot();
    db.flush().unwrap();
    db.put(&key(0), b"second").unwrap();
    db.delete_range(&key(100), &key(200)).unwrap();
    db.put(&key(150), b"after the range").unwrap();
    db.flush().unwrap();
    assert_eq!(db.statistics().levels[0].tables, 3);
    let costs = |number: u64, expected: Option<&[u8]>, round_trips| {
        let (found, cost) = cost(&db, || db.get(&key(number)).unwrap());
        assert_eq!((found.as_deref(), cost.round_trips), (expected, round_trips), "key {number}");
    };
    costs(0, Some(b"second"), 1);
    costs(2, None, 1);
    costs(4, Some(&[7; 100_000]), 2);
    costs(6, Some(b"for a second"), 1);
    costs(120, None, 1);
    costs(150, Some(b"after the range"), 1);
    costs(1000, Some(&[500u64 as u8; 16]), 1);
    costs(1001, None, 1);
    let before = |number: u64| db.get_at(&key(number), &snapshot).unwrap();
    assert_eq!((before(0), before(120)), (Some(b"first".to_vec()), Some(vec![60; 16])));
    assert_eq!((before(150), before(6)), (Some(vec![75; 16]), Some(b"for a second".to_vec())));
    // What is in a memtable is not asked for.
    db.put(&key(2), b"newest").unwrap();
    costs(2, Some(b"newest"), 0);
    clock.set(3_000);
    costs(6, None, 1);
    // What a snapshot names stays searchable, whatever has become of the tables.
    db.compact_range(None, None).unwrap();
    assert_eq!((before(0), before(120)), (Some(b"first".to_vec()), Some(vec![60; 16])));
    costs(0, Some(b"second"), 1);
    let counts = db.statistics().delegation;
    assert!(counts.long_records == 1 && counts.refusals == 0, "{counts:?}");
}

#[test]
fn shards_at_a_node_share_a_message() {
    let cluster = Cluster::start(256 << 20);
    for compacted in [false, true] {
        let bounds = ShardBounds::Given(vec![key(100), key(200)]);
        let db = cluster.open(Options { shards: 3, shard_bounds: bounds, ..options(Delegation::Always, 0) });
        (0..300).for_each(|i| db.put(&key(i), b"value").unwrap());
        db.flush().unwrap();
        if compacted {
            // Outputs of jobs of each shard.
            db.compact_range(None, None).unwrap();
        }
        let keys: Vec<_> = (0..300).map(key).collect();
        let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
        let (values, batch) = cost(&db, || db.multi_get(&keys).unwrap());
        assert!(values.iter().all(Option::is_some));
        assert_eq!(batch.round_trips, 1);
        assert_eq!(db.statistics().delegation.searches, 1);
        db.close().unwrap();
    }
}

#[test]
fn what_was_found_once_is_read_at_once() {
    let cluster = Cluster::start(256 << 20);
    for delegation in [Delegation::Always, Delegation::Never] {
        let db = filled(&cluster, options(delegation, NO_INDEX));
        let costs = |number: u64, expected: &[u8]| {
            let (found, cost) = cost(&db, || db.get(&key(number)).unwrap());
            assert_eq!(found.as_deref(), Some(expected), "key {number}");
            (cost.round_trips, cost.reads)
        };
        let first = if delegation == Delegation::Always { (1, 0) } else { (2, 2) };
        assert_eq!(costs(2000, &[1000u64 as u8; 16]), first);
        assert_eq!(costs(2000, &[1000u64 as u8; 16]), (1, 1));
        // Newer in a memtable, then in a table, then moved by a compaction.
        let snapshot = db.snapshot();
        db.put(&key(2000), b"newer").unwrap();
        assert_eq!(costs(2000, b"newer"), (0, 0));
        flush_with_others(&db);
        costs(2000, b"newer");
        assert_eq!(costs(2000, b"newer"), (1, 1));
        assert_eq!(db.get_at(&key(2000), &snapshot).unwrap().unwrap(), [1000u64 as u8; 16]);
        db.compact_range(None, None).unwrap();
        costs(2000, b"newer");
        assert_eq!(costs(2000, b"newer"), (1, 1));
        // A flush of other keys hides it until it is looked up again.
        flush_with_others(&db);
        costs(2000, b"newer");
        assert_eq!(costs(2000, b"newer"), (1, 1));
        db.delete(&key(2000)).unwrap();
        flush_with_others(&db);
        assert_eq!((db.get(&key(2000)).unwrap(), db.get(&key(2000)).unwrap()), (None, None));
        let counts = db.statistics().delegation;
        assert!(counts.learnt_uses >= 5 && counts.learnt_stale >= 2, "{counts:?}");
        assert!(db.statistics().cached_index_bytes < NO_INDEX + 2 * KEYS);
        db.close().unwrap();
    }
}

#[test]
fn an_operand_in_a_memtable_is_newer_than_what_was_found_below_it() {
    let cluster = Cluster::start(256 << 20);
    let merge_operator = Some("append".to_owned());
    let db = filled(&cluster, Options { merge_operator, ..options(Delegation::Always, NO_INDEX) });
    db.put(&key(2000), b"a").unwrap();
    db.compact_range(None, None).unwrap();
    put_others(&db);
    db.merge(&key(2000), b"b").unwrap();
    let found = || (db.get(&key(2000)).unwrap().unwrap(), db.multi_get(&[&key(2000)]).unwrap());
    let expected = (b"ab".to_vec(), vec![Some(b"ab".to_vec())]);
    assert_eq!(found(), expected);
    // No number is given away from the read to the flush.
    db.flush().unwrap();
    db.put(b"another key", b"").unwrap();
    assert_eq!(found(), expected);
}

#[test]
fn a_long_record_is_read_at_once_when_it_was_found_once() {
    let cluster = Cluster::start(256 << 20);
    let db = filled(&cluster, options(Delegation::Always, NO_INDEX));
    db.put(&key(2000), &[9; 50_000]).unwrap();
    db.compact_range(None, None).unwrap();
    for round_trips in [2, 1, 1] {
        let (found, cost) = cost(&db, || db.get(&key(2000)).unwrap().unwrap());
        assert_eq!((found.len(), cost.round_trips), (50_000, round_trips));
    }
}

#[test]
fn what_lies_in_storage_is_not_delegated() {
    let cluster = Cluster::start(64 << 20);
    let objects = MemoryObjects::new();
    let db = cluster.open(Options {
        name: Some("db".to_owned()),
        storage: Some(Storage::of_objects(Arc::new(objects), StorageOptions::default())),
        durability: Durability::Storage(Syncing::Flush),
        storage_from_level: Some(1),
        ..options(Delegation::Always, 0)
    });
    for i in 0..2000 {
        db.put(&key(i), b"in storage").unwrap();
    }
    db.compact_range(None, None).unwrap();
    for i in (0..2000).step_by(100) {
        db.put(&key(i), b"in memory").unwrap();
    }
    db.flush().unwrap();
    let requests = |number: u64, expected: &[u8]| {
        let before = (db.statistics().delegation.searched_keys, db.statistics().block_cache);
        assert_eq!(db.get(&key(number)).unwrap().unwrap(), expected);
        let after = (db.statistics().delegation.searched_keys, db.statistics().block_cache);
        let blocks = |counts: forebay_engine::BlockCacheCounts| counts.hits + counts.misses;
        (after.0 - before.0, blocks(after.1) > blocks(before.1))
    };
    assert_eq!(requests(300, b"in memory"), (1, false));
    assert_eq!(requests(301, b"in storage"), (1, true));
    let keys: Vec<_> = (0..2000).step_by(7).map(key).collect();
    let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
    assert!(db.multi_get(&keys).unwrap().iter().all(Option::is_some));
}

#[test]
fn a_node_that_runs_no_jobs_is_not_asked() {
    let cluster = Cluster::start_with(forebay_memory_node::Options {
        threads: 0,
        jobs: forebay_memory_node::JobRegistry::default(),
        ..forebay_memory_node::Options::with_memory(256 << 20)
    });
    let db = filled(&cluster, options(Delegation::Always, 0));
    for _ in 0..3 {
        assert!(db.get(&key(2000)).unwrap().is_some());
    }
    let counts = db.statistics().delegation;
    assert!(counts.searches == 0 && counts.refusals <= 1, "{counts:?}");
}

/// Random operations against a model, with budgets that hold some indexes and some addresses.
#[test]
fn answers_do_not_depend_on_who_gives_them() {
    for (seed, budget) in [(1, 0), (2, 2_000), (3, 20_000), (4, 200_000)] {
        let cluster = Cluster::start(64 << 20);
        let (delegation, bounds) = (Delegation::Always, ShardBounds::Given(vec![key(250)]));
        let cached_index_bytes = Some(budget);
        let options = Options { delegation, cached_index_bytes, shards: 2, shard_bounds: bounds, ..small_options() };
        let db = cluster.open(options);
        let mut random = Random::seeded(seed);
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut snapshot = None;
        for i in 0..4000u64 {
            let number = random.below(500);
            match random.below(100) {
                0..40 => {
                    let longest = if random.one_in(1, 20) { 6000 } else { 200 };
                    let value = vec![i as u8; random.below(longest) as usize];
                    db.put(&key(number), &value).unwrap();
                    model.insert(key(number), value);
                }
                40..48 => {
                    db.delete(&key(number)).unwrap();
                    model.remove(&key(number));
                }
                48 => {
                    let end = number + random.below(20);
                    db.delete_range(&key(number), &key(end)).unwrap();
                    (number..end).for_each(|i| drop(model.remove(&key(i))));
                }
                49 => snapshot = Some((db.snapshot(), model.clone())),
                50 => db.flush().unwrap(),
                51 if random.one_in(1, 8) => db.compact_range(None, None).unwrap(),
                52..60 => {
                    let keys: Vec<_> = (0..random.below(20)).map(|_| key(random.below(500))).collect();
                    let expected: Vec<_> = keys.iter().map(|key| model.get(key).cloned()).collect();
                    let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
                    assert_eq!(db.multi_get(&keys).unwrap(), expected, "seed {seed}");
                }
                60..70 => {
                    if let Some((snapshot, model)) = &snapshot {
                        let found = db.get_at(&key(number), snapshot).unwrap();
                        assert_eq!(found.as_ref(), model.get(&key(number)), "seed {seed}, operation {i}");
                    }
                }
                _ => {
                    let found = db.get(&key(number)).unwrap();
                    assert_eq!(found.as_ref(), model.get(&key(number)), "seed {seed}, operation {i}");
                }
            }
        }
        assert_eq!(db.statistics().delegation.refusals, 0, "seed {seed}");
    }
}

/// Levels with tables: three of level 0, and the last one. Returns what they show, which a memtable changes.
fn layered(cluster: &Cluster, options: Options) -> (Db, BTreeMap<Vec<u8>, Vec<u8>>) {
    let db = filled(cluster, options);
    let mut model: BTreeMap<_, _> = (0..KEYS).map(|i| (key(2 * i), vec![i as u8; 16])).collect();
    let mut put = |i: u64, value: &[u8]| {
        db.put(&key(i), value).unwrap();
        model.insert(key(i), value.to_vec());
    };
    for i in (0..200).step_by(3) {
        put(i, b"first");
    }
    put(KEYS, b"far away");
    db.flush().unwrap();
    for i in (0..200).step_by(7) {
        put(i, &[i as u8; 2000]);
    }
    db.flush().unwrap();
    for i in (0..200).step_by(11) {
        db.delete(&key(i)).unwrap();
        model.remove(&key(i));
    }
    db.delete_range(&key(100), &key(110)).unwrap();
    (100..110).for_each(|i| drop(model.remove(&key(i))));
    db.flush().unwrap();
    for i in (0..200).step_by(13) {
        db.put(&key(i), b"in a memtable").unwrap();
        model.insert(key(i), b"in a memtable".to_vec());
    }
    assert_eq!(db.statistics().levels[0].tables, 3);
    (db, model)
}

/// This many entries from a key on.
fn scanned(db: &Db, from: u64, entries: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut scan = db.iter().unwrap();
    scan.seek(&key(from)).unwrap();
    let mut found = Vec::new();
    while scan.valid() && found.len() < entries {
        found.push((scan.key().to_vec(), scan.value().to_vec()));
        scan.next().unwrap();
    }
    found
}

#[test]
fn a_short_scan_takes_one_round_trip() {
    let cluster = Cluster::start(256 << 20);
    let (delegated, model) = layered(&cluster, options(Delegation::Always, u64::MAX));
    let (read, _) = layered(&cluster, options(Delegation::Never, u64::MAX));
    for (from, entries) in [(0, 3), (1, 12), (90, 8), (100, 2), (150, 4), (2 * KEYS - 4, 100), (2 * KEYS, 3)] {
        let expected = model.range(key(from)..).take(entries).map(|(key, value)| (key.clone(), value.clone()));
        let expected: Vec<_> = expected.collect();
        let (found, one) = cost(&delegated, || scanned(&delegated, from, entries));
        assert_eq!(found, expected, "from {from}");
        let (found, several) = cost(&read, || scanned(&read, from, entries));
        assert_eq!(found, expected, "from {from}");
        // Long values are read from their addresses: each batch takes one round trip.
        let has_long = model.range(key(from)..).take(16).any(|(_, value)| value.len() > 1024);
        let most = if has_long { 4 } else { 1 };
        assert!(one.round_trips <= most, "from {from}: {one:?}");
        assert!(from >= 2 * KEYS - 4 || several.round_trips > one.round_trips, "from {from}: {several:?}");
    }
    let counts = delegated.statistics().delegation;
    // After the last key there is nothing to ask for.
    assert_eq!((counts.scans, counts.refusals), (6, 0), "{counts:?}");
    assert_eq!(read.statistics().delegation.scans, 0);
}

#[test]
fn a_scan_goes_on_where_the_answer_ends() {
    let cluster = Cluster::start(256 << 20);
    let (db, model) = layered(&cluster, options(Delegation::Always, u64::MAX));
    let all = scanned(&db, 0, usize::MAX);
    assert!(all.iter().map(|(key, value)| (key, value)).eq(model.iter()));
    // Back and forth, with a bound, as of a snapshot, and while everything changes.
    let snapshot = db.snapshot();
    (0..200).for_each(|i| db.put(&key(i), b"later").unwrap());
    db.compact_range(None, None).unwrap();
    let (lower, upper) = (key(20), key(90));
    let options =
        IterOptions { lower: Some(&lower), upper: Some(&upper), snapshot: Some(&snapshot), ..Default::default() };
    let mut scan = db.iter_with(&options).unwrap();
    let within: Vec<_> = model.range(lower.clone()..upper.clone()).collect();
    for from in [0, 20, 31, 60, 89] {
        let from = key(from);
        scan.seek(&from).unwrap();
        let mut at = within.partition_point(|(key, _)| **key < from);
        for steps in [1i64, 6, -3, 20, -20, 40, -5] {
            for _ in 0..steps.abs() {
                let Some((key, value)) = within.get(at) else { break };
                assert_eq!((scan.key(), scan.value()), (key.as_slice(), value.as_slice()));
                if steps > 0 {
                    scan.next().unwrap()
                } else {
                    scan.prev().unwrap()
                }
                at = if steps > 0 { at + 1 } else { at.wrapping_sub(1) };
            }
            assert_eq!(scan.valid(), at < within.len());
        }
    }
    assert!(db.statistics().delegation.scans >= 6);
}

#[test]
fn scans_do_not_depend_on_who_begins_them() {
    for seed in 0..3 {
        let cluster = Cluster::start(64 << 20);
        let bounds = ShardBounds::Given(vec![key(250)]);
        let sizes = Options { shards: 2, shard_bounds: bounds, ..small_options() };
        let db = cluster.open(Options { delegation: Delegation::Always, ..sizes });
        let mut random = Random::seeded(seed);
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for i in 0..3000u64 {
            let number = random.below(500);
            match random.below(100) {
                0..60 => {
                    let longest = if random.one_in(1, 20) { 6000 } else { 200 };
                    let value = vec![i as u8; random.below(longest) as usize];
                    db.put(&key(number), &value).unwrap();
                    model.insert(key(number), value);
                }
                60..75 => {
                    db.delete(&key(number)).unwrap();
                    model.remove(&key(number));
                }
                75 => {
                    let end = number + random.below(30);
                    db.delete_range(&key(number), &key(end)).unwrap();
                    (number..end).for_each(|i| drop(model.remove(&key(i))));
                }
                76 => db.flush().unwrap(),
                _ => {
                    let entries = random.below(60) as usize;
                    let found = scanned(&db, number, entries);
                    let expected = model.range(key(number)..).take(entries);
                    assert!(found.iter().map(|(key, value)| (key, value)).eq(expected), "seed {seed}, operation {i}");
                }
            }
        }
        let counts = db.statistics().delegation;
        assert!(counts.scans > 100 && counts.refusals == 0, "{counts:?}");
    }
}

#[test]
fn a_scan_of_a_prefix_in_descending_order_begins_behind_the_next_prefix() {
    let cluster = Cluster::start(64 << 20);
    let db = cluster.open(Options { key_order: KeyOrder::ReverseBytewise, ..options(Delegation::Always, 0) });
    for key in ["b", "ba", "bb", "c", "ca"] {
        db.put(key.as_bytes(), key.as_bytes()).unwrap();
    }
    db.flush().unwrap();
    let mut iterator = db.iter_with(&IterOptions { prefix: Some(b"b"), ..Default::default() }).unwrap();
    let mut found = Vec::new();
    iterator.seek(b"d").unwrap();
    while iterator.valid() {
        found.push(iterator.key().to_vec());
        iterator.next().unwrap();
    }
    assert_eq!(found, [&b"bb"[..], b"ba", b"b"]);
    assert!(db.statistics().delegation.scans > 0);
}
