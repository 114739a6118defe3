//! Reads of several keys within a budget of bytes.

use crate::common::copied::{register, sharded, start};
use crate::common::model::{Model, key};
use crate::common::process::Process;
use crate::common::{Cluster, small_options};
use forebay_engine::{Db, Delegation, Durability, Options, ShardBounds, Storage, StorageOptions, Syncing};
use forebay_env::Random;
use forebay_env::thread::set_turn;
use forebay_fabric::Counts;
use forebay_storage::MemoryObjects;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a value where all have the same length.
const LENGTH: usize = 10_000;
/// Most bytes of such a value's record, and of what is read for it.
const RECORD: usize = LENGTH + LENGTH / 32 + 100;

/// A database that does nothing by itself, and is long enough for a memtable.
fn quiet() -> Options {
    Options { background_threads: 0, settle_after: None, write_buffer_bytes: 16 << 20, ..Options::default() }
}

fn read(db: &Db, keys: &[Vec<u8>], budget_bytes: usize) -> (Vec<Option<Vec<u8>>>, Counts) {
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let before = db.statistics().foreground;
    let found = db.multi_get_within(&keys, budget_bytes).unwrap();
    (found, db.statistics().foreground - before)
}

/// Puts 64 values of the same length.
fn filled(cluster: &Cluster, options: Options) -> (Db, Vec<Vec<u8>>) {
    let db = cluster.open(options);
    let keys: Vec<_> = (0..64).map(key).collect();
    keys.iter().for_each(|key| db.put(key, &[7; LENGTH]).unwrap());
    (db, keys)
}

/// The first values.
fn sevens(count: usize) -> Vec<Option<Vec<u8>>> {
    vec![Some(vec![7; LENGTH]); count]
}

#[test]
fn no_record_is_read_that_exceeds_the_budget() {
    let cluster = Cluster::start(256 << 20);
    let (db, keys) = filled(&cluster, quiet());
    db.flush().unwrap();
    for (budget, count) in [(usize::MAX, 64), (10 * RECORD, 10), (3 * RECORD, 3), (LENGTH, 1), (0, 1)] {
        let (found, cost) = read(&db, &keys, budget);
        assert_eq!(found, sevens(count), "{budget}");
        // A key may look like another one of the table, which is read first.
        let count = count as u64;
        assert!((count..=count + 2).contains(&cost.reads), "{budget}: {cost:?}");
        assert!(cost.bytes_read <= cost.reads * RECORD as u64, "{budget}: {cost:?}");
        assert!((1..=2).contains(&cost.round_trips), "{budget}: {cost:?}");
    }
    assert!(db.multi_get_within(&[], 0).unwrap().is_empty());
}

/// Whoever says how long the records are.
#[test]
fn no_record_is_read_that_exceeds_the_budget_without_an_index() {
    for delegation in [Delegation::Never, Delegation::Always] {
        let cluster = Cluster::start(256 << 20);
        let (db, keys) = filled(&cluster, Options { cached_index_bytes: Some(0), delegation, ..quiet() });
        db.flush().unwrap();
        for (budget, count) in [(usize::MAX, 64), (10 * RECORD, 10), (3 * RECORD, 3), (0, 1)] {
            let (found, cost) = read(&db, &keys, budget);
            assert_eq!(found, sevens(count), "{delegation:?}, {budget}");
            // One round trip for all lengths, and another one for the records.
            assert!((1..=2).contains(&cost.round_trips), "{delegation:?}, {budget}: {cost:?}");
        }
        let (_, all) = read(&db, &keys, usize::MAX);
        let (_, first) = read(&db, &keys, 0);
        assert!(all.bytes_read - first.bytes_read >= 63 * LENGTH as u64, "{delegation:?}: {all:?}, {first:?}");
    }
}

#[test]
fn values_of_memtables_count_as_well() {
    let cluster = Cluster::start(256 << 20);
    let (db, keys) = filled(&cluster, quiet());
    for (budget, count) in [(usize::MAX, 64), (3 * LENGTH, 3), (3 * LENGTH - 1, 2), (LENGTH - 1, 1), (0, 1)] {
        let (found, cost) = read(&db, &keys, budget);
        assert_eq!((found, cost.reads), (sevens(count), 0), "{budget}");
    }
    // Values of memtables and tables share the budget.
    db.flush().unwrap();
    keys.iter().step_by(2).for_each(|key| db.put(key, &[9; LENGTH]).unwrap());
    let (found, cost) = read(&db, &keys, 5 * RECORD);
    let expected: Vec<_> = (0..5).map(|number| Some(vec![if number % 2 == 0 { 9_u8 } else { 7 }; LENGTH])).collect();
    assert_eq!(found, expected);
    assert!((2..=3).contains(&cost.reads), "{cost:?}");
    // Keys that memtables know to be deleted take nothing.
    keys.iter().skip(1).for_each(|key| db.delete(key).unwrap());
    let (found, cost) = read(&db, &keys, LENGTH);
    assert_eq!((found.len(), found.iter().flatten().count(), cost.reads), (64, 1, 0));
}

/// Reads all keys, a prefix at a time, and checks each.
fn check(db: &Db, model: &Model, keys: &[Vec<u8>], budget_bytes: usize, context: &str) {
    let mut left = keys;
    while !left.is_empty() {
        let (found, _) = read(db, left, budget_bytes);
        assert!((1..=left.len()).contains(&found.len()), "{context}");
        let (answered, rest) = left.split_at(found.len());
        let bytes: usize = found.iter().flatten().map(Vec::len).sum();
        assert!(bytes <= budget_bytes || found.len() == 1, "{context}: {bytes} bytes of {budget_bytes}");
        let expected: Vec<_> = answered.iter().map(|key| model.get(key).cloned()).collect();
        assert_eq!(found, expected, "{context}");
        left = rest;
    }
}

/// Values in memtables and in tables, in memory and in storage, in one shard or two.
#[test]
fn a_prefix_is_right_wherever_its_values_are() {
    for (seed, shards, cached_index_bytes, delegation) in [
        (1, 1, None, Delegation::Never),
        (2, 2, None, Delegation::Never),
        (3, 1, Some(0), Delegation::Never),
        (4, 1, Some(0), Delegation::Always),
        (5, 2, Some(0), Delegation::Always),
    ] {
        let (cluster, objects) = (Cluster::start(64 << 20), MemoryObjects::new());
        let db = cluster.open(Options {
            name: Some("db".to_owned()),
            storage: Some(Storage::of_objects(Arc::new(objects), StorageOptions::default())),
            durability: Durability::Storage(Syncing::Flush),
            storage_from_level: Some(1),
            memory_cache_after: Duration::ZERO,
            shards,
            shard_bounds: ShardBounds::Given((1..shards as u64).map(|_| key(200)).collect()),
            cached_index_bytes,
            delegation,
            ..small_options()
        });
        let (mut model, mut random) = (Model::new(), Random::seeded(seed));
        let put = |number: u64, random: &mut Random, model: &mut Model| {
            let longest = if random.one_in(1, 10) { 6000 } else { 300 };
            let mut value = vec![0; random.below(longest) as usize];
            random.fill(&mut value);
            db.put(&key(number), &value).unwrap();
            model.insert(key(number), value);
        };
        (0..400).for_each(|number| put(number, &mut random, &mut model));
        db.compact_range(None, None).unwrap();
        (0..400).step_by(3).for_each(|number| put(number, &mut random, &mut model));
        db.flush().unwrap();
        (0..400).step_by(7).for_each(|number| put(number, &mut random, &mut model));
        for number in (0..400).step_by(11) {
            db.delete(&key(number)).unwrap();
            model.remove(&key(number));
        }
        let mut keys: Vec<_> = (0..420).map(key).collect();
        for (budget, count) in [(0, 40), (1000, 100), (10_000, 420), (100_000, 420), (usize::MAX, 420)] {
            random.shuffle(&mut keys);
            check(&db, &model, &keys[..count], budget, &format!("seed {seed}"));
        }
        db.close().unwrap();
    }
}

/// Shards are read one by one then.
#[test]
fn a_prefix_is_right_although_a_copy_is_damaged() {
    let (nodes, register) = (start(2), register());
    let process = Process::start(&nodes);
    let usual = sharded(&register, 2);
    let db = process.open(Options { background_threads: 0, settle_after: None, write_buffer_bytes: 1 << 20, ..usual });
    let keys: Vec<_> = (0..40).map(|number| key(50 * number)).collect();
    let model: Model = keys.iter().map(|key| (key.clone(), vec![7; LENGTH])).collect();
    model.iter().for_each(|(key, value)| db.put(key, value).unwrap());
    db.flush().unwrap();
    let mut damaged = 0;
    for extent in 0.. {
        let bytes = nodes[0].bytes_of(extent);
        if bytes.is_empty() {
            break;
        }
        for (at, _) in bytes.chunks(LENGTH / 2).enumerate().filter(|(_, part)| part.iter().all(|byte| *byte == 7)) {
            nodes[0].rot(extent, at * LENGTH / 2, 1);
            damaged += 1;
        }
    }
    assert!(damaged >= keys.len());
    for turn in 0..2 {
        set_turn(turn);
        for budget in [0, 3 * RECORD, 20 * RECORD, usize::MAX] {
            check(&db, &model, &keys, budget, &format!("turn {turn}"));
        }
    }
}
