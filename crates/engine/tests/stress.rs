//! Everything at once, over memtables so small that a second flushes and compacts hundreds of times.
//!
//! Each writer owns its own keys and knows their contents, so it can check every read of them. Readers check that what
//! they see was written, in order, and that nothing appears and disappears. `FOREBAY_STRESS_SECONDS` makes the runs
//! longer, `FOREBAY_STRESS_SEED` picks their first seed.

use crate::common::{Cluster, SetWhenDropped, small_options};
use forebay_base::ErrorKind;
use forebay_engine::{Db, Error, Options, WriteBatch};
use forebay_env::{Random, SystemClock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// The contents of keys.
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn first_seed() -> u64 {
    setting("FOREBAY_STRESS_SEED", 1)
}

fn run_time() -> Duration {
    Duration::from_secs(setting("FOREBAY_STRESS_SECONDS", 2))
}

fn sleep(duration: Duration) {
    SystemClock::shared().sleep(duration);
}

fn random_options(random: &mut Random) -> Options {
    let mut pick = |choices: &[u64]| choices[random.below(choices.len() as u64) as usize];
    let compaction = pick(&[1, 2, 4]) as usize;
    let slowdown = compaction + pick(&[0, 2, 8]) as usize;
    Options {
        write_buffer_bytes: pick(&[4 << 10, 16 << 10, 64 << 10]) as usize,
        max_immutable_memtables: pick(&[1, 2, 4]) as usize,
        target_table_bytes: pick(&[4 << 10, 16 << 10, 256 << 10]),
        level0_compaction_trigger: compaction,
        level0_slowdown_trigger: slowdown,
        level0_stop_trigger: slowdown + pick(&[0, 1, 8]) as usize,
        level1_bytes: pick(&[1, 16 << 10, 256 << 10]),
        level_size_multiplier: pick(&[2, 4, 10]),
        levels: pick(&[2, 3, 7]) as usize,
        background_threads: pick(&[1, 1, 2, 4]) as usize,
        ..small_options()
    }
}

fn key(writer: u64, number: u64) -> Vec<u8> {
    format!("{:0width$}-{writer}", number, width = 1 + (number % 30) as usize).into_bytes()
}

/// A value that contains its key and version, and reveals any wrong byte.
fn value(key: &[u8], version: u64, length: usize) -> Vec<u8> {
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.extend_from_slice(key);
    let mut random = Random::seeded(version ^ (key.len() as u64) << 32);
    let start = bytes.len();
    bytes.resize(start + length, 0);
    random.fill(&mut bytes[start..]);
    bytes
}

fn version_of(key: &[u8], bytes: &[u8]) -> u64 {
    let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(bytes, value(key, version, bytes.len() - 8 - key.len()), "another value than was written");
    version
}

/// One writer: writes, and remembers what it wrote.
fn writer(db: &Db, seed: u64, number: u64, keys: u64, done: &AtomicBool) -> Result<Model, Error> {
    let mut random = Random::seeded(seed ^ number << 48);
    let mut model = Model::new();
    let mut version = 0;
    while !done.load(Ordering::Relaxed) {
        version += 1;
        let mut batch = WriteBatch::new();
        let mut changes = Vec::new();
        for _ in 0..1 + if random.one_in(1, 10) { random.below(30) } else { 0 } {
            let key = key(number, random.below(keys));
            if random.one_in(1, 4) {
                batch.delete(&key);
                changes.push((key, None));
            } else {
                let length = if random.one_in(1, 100) { random.below(20_000) } else { random.below(200) };
                let value = value(&key, version, length as usize);
                batch.put(&key, &value);
                changes.push((key, Some(value)));
            }
        }
        db.write(&batch)?;
        for (key, value) in changes {
            match value {
                Some(value) => model.insert(key, value),
                None => model.remove(&key),
            };
        }
        let key = key(number, random.below(keys));
        assert_eq!(db.get(&key)?, model.get(&key).cloned(), "seed {seed}");
    }
    Ok(model)
}

fn reader(db: &Db, seed: u64, writers: u64, keys: u64, done: &AtomicBool) -> Result<(), Error> {
    let mut random = Random::seeded(seed);
    let mut newest: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    while !done.load(Ordering::Relaxed) {
        let wanted: Vec<_> =
            (0..1 + random.below(20)).map(|_| key(random.below(writers), random.below(keys))).collect();
        let borrowed: Vec<&[u8]> = wanted.iter().map(Vec::as_slice).collect();
        match random.below(4) {
            0 => {
                let snapshot = db.snapshot();
                let first = db.multi_get_at(&borrowed, &snapshot)?;
                let mut iterator = db.iter_at(&snapshot)?;
                for (key, found) in wanted.iter().zip(&first) {
                    assert_eq!(&db.get_at(key, &snapshot)?, found, "seed {seed}");
                    iterator.seek(key)?;
                    let there = iterator.valid() && iterator.key() == key;
                    assert_eq!(there.then(|| iterator.value().to_vec()), *found, "seed {seed}");
                }
            }
            1 => {
                let mut iterator = db.iter()?;
                iterator.seek(&wanted[0])?;
                let mut last: Option<Vec<u8>> = None;
                for _ in 0..300 {
                    if !iterator.valid() {
                        break;
                    }
                    assert!(last.as_deref().is_none_or(|last| last < iterator.key()), "seed {seed}");
                    version_of(iterator.key(), iterator.value());
                    last = Some(iterator.key().to_vec());
                    iterator.next()?;
                }
            }
            _ => {
                for (key, found) in wanted.iter().zip(db.multi_get(&borrowed)?) {
                    let Some(found) = found else { continue };
                    let version = version_of(key, &found);
                    let before = newest.insert(key.clone(), version).unwrap_or(0);
                    assert!(before <= version, "seed {seed}: {before} came back as {version}");
                }
            }
        }
    }
    Ok(())
}

fn housekeeper(db: &Db, seed: u64, writers: u64, keys: u64, done: &AtomicBool) -> Result<(), Error> {
    let mut random = Random::seeded(seed);
    while !done.load(Ordering::Relaxed) {
        match random.below(4) {
            0 => db.flush()?,
            1 => {
                let (lower, upper) = (key(random.below(writers), random.below(keys)), key(0, random.below(keys)));
                db.compact_range(Some(&lower), Some(&upper))?;
            }
            2 => db.compact_range(None, None)?,
            _ => drop(db.statistics()),
        }
        sleep(Duration::from_millis(random.below(30)));
    }
    Ok(())
}

/// Runs everything until `end` returns. Returns the writers' models, or the first failure.
fn everything(db: &Db, seed: u64, keys: u64, end: impl FnOnce()) -> Result<Vec<Model>, Error> {
    const WRITERS: u64 = 3;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (done, ends) = (&done, SetWhenDropped(&done));
        let writers: Vec<_> =
            (0..WRITERS).map(|number| scope.spawn(move || writer(db, seed, number, keys, done))).collect();
        let others: Vec<_> = (0..2)
            .map(|number| scope.spawn(move || reader(db, seed + number, WRITERS, keys, done)))
            .chain((0..2).map(|number| scope.spawn(move || housekeeper(db, seed + number, WRITERS, keys, done))))
            .collect();
        end();
        drop(ends);
        let models: Vec<_> = writers.into_iter().map(|writer| writer.join().expect("a writer")).collect();
        let others: Vec<_> = others.into_iter().map(|other| other.join().expect("a reader")).collect();
        others.into_iter().collect::<Result<Vec<()>, Error>>()?;
        models.into_iter().collect()
    })
}

fn check(db: &Db, models: &[Model], seed: u64) {
    let all: BTreeMap<_, _> = models.iter().flatten().collect();
    let mut iterator = db.iter().unwrap();
    iterator.seek_to_first().unwrap();
    for (key, value) in all {
        assert!(iterator.valid(), "seed {seed}");
        assert_eq!((iterator.key(), iterator.value()), (&key[..], &value[..]), "seed {seed}");
        assert_eq!(db.get(key).unwrap().as_ref(), Some(value), "seed {seed}");
        iterator.next().unwrap();
    }
    assert!(!iterator.valid(), "seed {seed}");
}

#[test]
fn everything_at_once() {
    let clock = SystemClock::shared();
    let end = clock.now() + run_time().as_nanos() as u64;
    let mut seed = first_seed();
    while clock.now() < end {
        let mut random = Random::seeded(seed);
        let options = random_options(&mut random);
        println!("seed {seed}: {options:?}");
        let cluster = Cluster::start(256 << 20);
        let db = cluster.open(options);
        let keys = [10, 300, 5000][random.below(3) as usize];
        let models = everything(&db, seed, keys, || sleep(Duration::from_millis(500))).unwrap();
        check(&db, &models, seed);
        db.wait_for_compactions().unwrap();
        check(&db, &models, seed);
        db.compact_range(None, None).unwrap();
        check(&db, &models, seed);
        db.close().unwrap();
        drop(db);
        cluster.expect_nothing_leased();
        seed += 1;
    }
}

#[test]
fn closed_in_the_middle_of_everything() {
    for seed in first_seed()..first_seed() + run_time().as_secs() * 4 {
        let mut random = Random::seeded(seed);
        let options = random_options(&mut random);
        println!("seed {seed}: {options:?}");
        let cluster = Cluster::start(256 << 20);
        let db = cluster.open(options);
        let delay = Duration::from_millis(random.below(200));
        let result = everything(&db, seed, 300, || {
            sleep(delay);
            db.close().unwrap();
            sleep(Duration::from_millis(5));
        });
        if let Err(error) = result {
            assert_eq!(error.kind(), ErrorKind::Closed, "seed {seed}: {error}");
        }
        drop(db);
        cluster.expect_nothing_leased();
    }
}

#[test]
fn a_node_lost_in_the_middle_of_everything() {
    let clock = SystemClock::shared();
    for seed in first_seed()..first_seed() + run_time().as_secs() * 2 {
        let mut random = Random::seeded(seed);
        let options = random_options(&mut random);
        println!("seed {seed}: {options:?}");
        let mut cluster = Cluster::start(256 << 20);
        let db = cluster.open(options);
        let delay = Duration::from_millis(random.below(200));
        let mut since = 0;
        let result = everything(&db, seed, 300, || {
            sleep(delay);
            cluster.stop();
            since = clock.now();
            sleep(Duration::from_millis(200));
        });
        if let Err(error) = result {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "seed {seed}: {error}");
        }
        let _ = db.close();
        assert!(clock.now() - since < 5_000_000_000, "seed {seed}");
    }
}

#[test]
fn a_flush_ends_while_others_write() {
    let cluster = Cluster::start(256 << 20);
    // There is always something else to be flushed and compacted.
    let db = cluster.open(Options { background_threads: 1, level1_bytes: 1, levels: 7, ..small_options() });
    let done = AtomicBool::new(false);
    let written = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for writer in 0..3u32 {
            let (db, done, written) = (&db, &done, &written);
            scope.spawn(move || {
                for i in 0..u32::MAX {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    db.put(&[writer.to_be_bytes(), (i % 500).to_be_bytes()].concat(), &[1; 1000]).unwrap();
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _ends = SetWhenDropped(&done);
        sleep(Duration::from_millis(100));
        for _ in 0..10 {
            let before = written.load(Ordering::Relaxed);
            db.flush().unwrap();
            let flushed = written.load(Ordering::Relaxed) - before;
            db.compact_range(None, None).unwrap();
            let compacted = written.load(Ordering::Relaxed) - before - flushed;
            println!("{flushed} writes during a flush, {compacted} during a compaction");
            // Some dozens of memtables, because on a busy machine a waiting thread is not woken at once.
            assert!(flushed < 20_000 && compacted < 20_000, "{flushed} and {compacted} writes");
        }
    });
}

#[test]
fn more_threads_than_slots_read() {
    let cluster = Cluster::start(64 << 20);
    let db = cluster.open(small_options());
    for i in 0..2000u32 {
        db.put(&i.to_be_bytes(), &i.to_le_bytes()).unwrap();
    }
    db.flush().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..150u32 {
            let db = &db;
            scope.spawn(move || {
                let mut iterator = db.iter().unwrap();
                for i in 0..200u32 {
                    let i = (i * 7 + thread * 13) % 2000;
                    assert_eq!(db.get(&i.to_be_bytes()).unwrap().unwrap(), i.to_le_bytes());
                    iterator.seek(&i.to_be_bytes()).unwrap();
                    assert_eq!(iterator.value(), i.to_le_bytes());
                    if thread % 10 == 0 {
                        db.put(&i.to_be_bytes(), &i.to_le_bytes()).unwrap();
                    }
                }
            });
        }
    });
    db.close().unwrap();
}

/// Each write ends a memtable, and all the writers see it end. The second writer must not install the next memtable
/// before the first has stored the end, or numbers would be given out twice.
#[test]
fn numbers_are_dense_across_memtables() {
    const WRITERS: u64 = 8;
    const WRITES: u64 = 500;
    let cluster = Cluster::start(256 << 20);
    let db = cluster.open(Options { write_buffer_bytes: 4 << 10, ..small_options() });
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let db = &db;
            scope.spawn(move || {
                for i in 0..WRITES {
                    db.put(&key(writer, i % 7), &[writer as u8; 3000]).unwrap();
                }
            });
        }
    });
    assert_eq!(db.snapshot().sequence_numbers()[0].0, WRITERS * WRITES);
    db.close().unwrap();
}

/// Live records take part of the node's memory and are constantly overwritten. The node may be full for a moment, but
/// never for good.
#[test]
fn overwriting_goes_on_in_a_node_that_is_nearly_full() {
    for share in [20, 30] {
        let cluster = Cluster::start(32 << 20);
        let db = cluster.open(Options {
            write_buffer_bytes: 256 << 10,
            target_table_bytes: 256 << 10,
            level1_bytes: 1 << 20,
            ..small_options()
        });
        let keys = u64::from(24u32 << 20) * share / 100 / 1024;
        let mut random = Random::seeded(share);
        let mut refused = 0;
        for i in 0..25_000u32 {
            let key = random.below(keys).to_be_bytes();
            let mut tries = 0;
            while let Err(error) = db.put(&key, &[i as u8; 1000]) {
                assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                tries += 1;
                assert!(tries < 100, "{share} %: {error} {:?}", db.statistics());
                sleep(Duration::from_millis(50));
            }
            refused += tries;
        }
        println!("{share} %: {refused} writes were refused");
    }
}
