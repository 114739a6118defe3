//! A budget for cached indexes changes the cost of reads, never their answers.

use crate::common::{Cluster, small_options};
use forebay_engine::{Db, Options};
use forebay_env::Random;
use std::collections::BTreeMap;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(i: u64) -> Vec<u8> {
    format!("{i:020}").into_bytes()
}

/// Even keys of `keys` records of 400 bytes, compacted into tables of a megabyte each.
fn filled(cluster: &Cluster, keys: u64, cached_index_bytes: Option<u64>) -> Db {
    let db = cluster.open(Options {
        target_table_bytes: 1 << 20,
        write_buffer_bytes: 1 << 20,
        cached_index_bytes,
        ..Options::default()
    });
    for i in 0..keys {
        db.put(&key(i * 2), &[i as u8; 400]).unwrap();
    }
    db.compact_range(None, None).unwrap();
    db
}

fn cost(db: &Db, work: impl FnOnce()) -> (u64, u64) {
    let before = db.statistics().foreground;
    work();
    let cost = db.statistics().foreground - before;
    (cost.round_trips, cost.bytes_read)
}

#[test]
fn what_is_held_costs_one_round_trip_and_what_is_not_two() {
    const KEYS: u64 = 20_000;
    let cluster = Cluster::start(256 << 20);
    for (budget, found_most, absent_most) in [(None, 1.01, 0.01), (Some(u64::MAX), 1.01, 0.01), (Some(0), 2.0, 1.0)] {
        let db = filled(&cluster, KEYS, budget);
        let of = |round_trips: u64, keys: u64| round_trips as f64 / keys as f64;
        let (found, bytes) = cost(&db, || {
            for i in 0..KEYS {
                assert_eq!(db.get(&key(i * 2)).unwrap().unwrap(), [i as u8; 400]);
            }
        });
        assert!(of(found, KEYS) <= found_most, "{budget:?}: {found}");
        let (absent, _) = cost(&db, || {
            for i in 0..KEYS {
                assert_eq!(db.get(&key(i * 2 + 1)).unwrap(), None);
            }
        });
        assert!(of(absent, KEYS) <= absent_most, "{budget:?}: {absent}");
        let (batch, _) = cost(&db, || {
            let keys: Vec<_> = (0..16).map(|i| key(i * 1000)).collect();
            let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
            assert!(db.multi_get(&keys).unwrap().iter().all(Option::is_some));
        });
        assert!(batch as f64 <= found_most.ceil(), "{budget:?}: {batch}");
        let statistics = db.statistics();
        if budget == Some(0) {
            assert!(statistics.cached_index_bytes <= KEYS / 2, "{}", statistics.cached_index_bytes);
            assert!(statistics.index_cache.hits == 0 && statistics.index_cache.misses >= 2 * KEYS);
        } else {
            assert!(bytes as f64 <= KEYS as f64 * (1.1 * 420.0 + 16.0), "{bytes}");
            assert!(statistics.cached_index_bytes <= KEYS * 8, "{}", statistics.cached_index_bytes);
            assert_eq!(statistics.index_cache.misses, 0);
        }
        db.close().unwrap();
    }
}

#[test]
fn all_levels_are_looked_up_at_once() {
    let cluster = Cluster::start(256 << 20);
    let db = filled(&cluster, 5000, Some(0));
    // Three tables of level 0 around all keys.
    for table in 0..3u64 {
        for i in [0, 1, 4999, 9998, 9999] {
            db.put(&key(i), &[table as u8]).unwrap();
        }
        db.flush().unwrap();
    }
    assert_eq!(db.statistics().levels[0].tables, 3);
    let (found, _) = cost(&db, || assert_eq!(db.get(&key(2000)).unwrap().unwrap(), [1000u64 as u8; 400]));
    let (absent, _) = cost(&db, || assert_eq!(db.get(&key(2001)).unwrap(), None));
    let (newest, _) = cost(&db, || assert_eq!(db.get(&key(4999)).unwrap().unwrap(), [2]));
    assert_eq!((found, absent, newest), (2, 1, 2));
}

#[test]
fn what_is_used_comes_back() {
    let cluster = Cluster::start(256 << 20);
    let whole = filled(&cluster, 20_000, None).statistics().cached_index_bytes;
    let db = filled(&cluster, 20_000, Some(whole / 2));
    let held = db.statistics();
    assert!(held.cached_index_bytes <= whole / 2 && held.index_cache.evictions > 0, "{held:?}");
    // Keys of about a quarter of the tables, wherever they are.
    let read = |rounds| {
        for _ in 0..rounds {
            for i in 0..5000 {
                db.get(&key(i * 2)).unwrap().unwrap();
            }
        }
    };
    read(2);
    let (warm, _) = cost(&db, || read(1));
    assert!(warm <= 5050, "{warm} round trips for 5000 keys");
    let after = db.statistics();
    assert!(after.cached_index_bytes <= whole / 2, "{after:?}");
}

/// Random operations, the same for each budget. Returns what was read.
fn run(seed: u64, cached_index_bytes: Option<u64>) -> Vec<Option<Vec<u8>>> {
    let cluster = Cluster::start(64 << 20);
    let db = cluster.open(Options { cached_index_bytes, ..small_options() });
    let mut random = Random::seeded(seed);
    let (mut model, mut seen) = (Model::new(), Vec::new());
    let mut snapshot = None;
    for i in 0..4000u64 {
        let number = random.below(500);
        match random.below(100) {
            0..45 => {
                let value = vec![i as u8; random.below(200) as usize];
                db.put(&key(number), &value).unwrap();
                model.insert(key(number), value);
            }
            45..60 => {
                db.delete(&key(number)).unwrap();
                model.remove(&key(number));
            }
            60 => {
                let end = number + random.below(20);
                db.delete_range(&key(number), &key(end)).unwrap();
                (number..end).for_each(|i| drop(model.remove(&key(i))));
            }
            61 => snapshot = Some((db.snapshot(), model.clone())),
            62 if random.one_in(1, 8) => db.compact_range(None, None).unwrap(),
            63 => db.flush().unwrap(),
            64..70 => {
                let keys: Vec<_> = (0..random.below(20)).map(|_| key(random.below(500))).collect();
                let expected: Vec<_> = keys.iter().map(|key| model.get(key).cloned()).collect();
                let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
                assert_eq!(db.multi_get(&keys).unwrap(), expected, "seed {seed}, budget {cached_index_bytes:?}");
                seen.extend(expected);
            }
            70..80 => {
                if let Some((snapshot, model)) = &snapshot {
                    let found = db.get_at(&key(number), snapshot).unwrap();
                    assert_eq!(found.as_ref(), model.get(&key(number)), "seed {seed}, budget {cached_index_bytes:?}");
                    seen.push(found);
                }
            }
            _ => {
                let found = db.get(&key(number)).unwrap();
                assert_eq!(found.as_ref(), model.get(&key(number)), "seed {seed}, budget {cached_index_bytes:?}");
                seen.push(found);
            }
        }
    }
    seen
}

#[test]
fn answers_do_not_depend_on_the_budget() {
    for seed in 0..3 {
        let expected = run(seed, None);
        for budget in [0, 500, 2000, 10_000, u64::MAX] {
            assert!(run(seed, Some(budget)) == expected, "seed {seed}, budget {budget}");
        }
    }
}
