//! Reads of a database with several copies in memory are spread over all copies: what that costs, and what it survives.

use crate::common::copied::{options, register, sharded, start};
use crate::common::model::{Model, contents, key, write};
use crate::common::process::Process;
use crate::common::{SetWhenDropped, eventually};
use forebay_engine::{Db, Options, Storage};
use forebay_env::Random;
use forebay_env::thread::{set_turn, side_by_side};
use forebay_fabric::{Counts, Traffic};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

const KEYS: u64 = 400;
/// Number of keys in a read of several.
const AT_ONCE: usize = 16;

/// The options of one shard that does nothing by itself.
fn quiet(register: &Storage, copies: usize) -> Options {
    Options { background_threads: 0, settle_after: None, write_buffer_bytes: 1 << 20, ..options(register, copies) }
}

fn value(number: u64) -> Vec<u8> {
    vec![number as u8; 200]
}

/// Puts all keys into tables.
fn fill(db: &Db) {
    (0..KEYS).for_each(|number| db.put(&key(number), &value(number)).unwrap());
    db.flush().unwrap();
}

fn get_all(db: &Db) {
    (0..KEYS).for_each(|number| assert_eq!(db.get(&key(number)).unwrap(), Some(value(number))));
}

fn multi_get_all(db: &Db) {
    let keys: Vec<_> = (0..KEYS).map(|number| (key(number), value(number))).collect();
    for some in keys.chunks(AT_ONCE) {
        let wanted: Vec<_> = some.iter().map(|(key, _)| key.as_slice()).collect();
        let found = db.multi_get(&wanted).unwrap();
        assert!(found.iter().zip(some).all(|(found, (_, value))| found.as_ref() == Some(value)));
    }
}

fn scan_all(db: &Db) {
    assert_eq!(contents(db), (0..KEYS).map(|number| (key(number), value(number))).collect::<Model>());
}

fn at_each(process: &Process) -> Vec<Counts> {
    process.links.iter().map(|link| link.counts(Traffic::Foreground)).collect()
}

/// Returns what it costs each node if `threads` threads read everything in this way.
fn cost(process: &Process, threads: usize, read: impl Fn() + Sync) -> Vec<Counts> {
    let before = at_each(process);
    let turns = AtomicUsize::new(0);
    side_by_side(threads, || {
        set_turn(turns.fetch_add(1, Ordering::Relaxed));
        read();
    });
    at_each(process).into_iter().zip(before).map(|(after, before)| after - before).collect()
}

#[test]
fn threads_read_at_all_copies() {
    for copies in [2, 3] {
        let (nodes, register) = (start(copies), register());
        let process = Process::start(&nodes);
        let db = process.open(quiet(&register, copies));
        fill(&db);
        let threads = 2 * copies;
        let gets = cost(&process, threads, || get_all(&db));
        let multi_gets = cost(&process, threads, || multi_get_all(&db));
        let scans = cost(&process, threads, || scan_all(&db));
        for (way, costs) in [("gets", &gets), ("reads of several", &multi_gets), ("scans", &scans)] {
            assert!(costs[0].reads > 0 && costs.iter().all(|cost| *cost == costs[0]), "{way}: {costs:?}");
        }
        // A read of one key takes one round trip, and so does a read of several keys, at each member. A key may look
        // like one of another table.
        let (reads, batches) = (2 * KEYS..2 * KEYS * 101 / 100, 2 * KEYS / AT_ONCE as u64);
        assert!(reads.contains(&gets[0].reads) && gets[0].round_trips == gets[0].reads, "{gets:?}");
        assert!(reads.contains(&multi_gets[0].reads), "{multi_gets:?}");
        assert!((batches..=batches + 2).contains(&multi_gets[0].round_trips), "{multi_gets:?}");
    }
}

/// All members hold the same bytes, and a thread reads at one of them.
#[test]
fn reads_cost_the_same_with_any_number_of_copies() {
    let nodes = start(3);
    let costs = [1, 2, 3].map(|copies| {
        let register = register();
        let process = Process::start(&nodes);
        let several = quiet(&register, copies);
        let register = several.register.clone().filter(|_| copies > 1);
        let db = process.open(Options { name: Some(format!("db{copies}")), register, ..several });
        fill(&db);
        let of = |read: fn(&Db)| {
            cost(&process, 1, || read(&db)).into_iter().fold(Counts::default(), |mut sum, cost| {
                sum += cost;
                sum
            })
        };
        [of(get_all), of(multi_get_all), of(scan_all)]
    });
    assert!(costs[0][0].reads >= KEYS && costs[0] == costs[1] && costs[1] == costs[2], "{costs:?}");
}

/// Whichever thread reads, it asks as few nodes as if each shard were read at its first member.
#[test]
fn a_read_of_several_shards_takes_as_few_round_trips_for_each_thread() {
    for count in [2, 3] {
        let (nodes, register) = (start(count), register());
        let process = Process::start(&nodes);
        let db = process.open(Options { background_threads: 0, settle_after: None, ..sharded(&register, 2) });
        for number in (0..2000).step_by(100) {
            db.put(&key(number), &value(number)).unwrap();
        }
        db.flush().unwrap();
        let keys: Vec<_> = (0..2000).step_by(100).map(key).collect();
        let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
        let mut reads = vec![0; count];
        for turn in 0..6 {
            let before = at_each(&process);
            set_turn(turn);
            assert!(db.multi_get(&keys).unwrap().iter().all(Option::is_some));
            let costs: Vec<_> = at_each(&process).into_iter().zip(before).map(|(now, before)| now - before).collect();
            let trips: u64 = costs.iter().map(|cost| cost.round_trips).sum();
            assert_eq!(trips, count as u64, "turn {turn}, {costs:?}");
            reads.iter_mut().zip(&costs).for_each(|(reads, cost)| *reads += cost.reads);
        }
        // Of three nodes, two are the first or second of two shards.
        assert!(reads.iter().sum::<u64>() == 6 * 20 && reads.iter().all(|reads| *reads >= 6 * 20 / 4), "{reads:?}");
    }
}

/// Threads read in every way while either of two nodes is lost. No thread reads anything wrong, and all of them
/// continue at the other node.
#[test]
fn either_of_two_nodes_is_lost_under_reading_threads() {
    for lost in 0..2 {
        let (mut nodes, register) = (start(2), register());
        let process = Process::start(&nodes);
        let db = process.open(quiet(&register, 2));
        fill(&db);
        let (is_over, turns) = (AtomicBool::new(false), AtomicUsize::new(0));
        let rounds: [AtomicU64; 6] = Default::default();
        let read = || {
            let turn = turns.fetch_add(1, Ordering::Relaxed);
            set_turn(turn);
            while !is_over.load(Ordering::Relaxed) {
                match turn / 2 {
                    0 => get_all(&db),
                    1 => multi_get_all(&db),
                    _ => scan_all(&db),
                }
                rounds[turn].fetch_add(1, Ordering::Relaxed);
            }
        };
        let go_on = || {
            let before: Vec<_> = rounds.iter().map(|done| done.load(Ordering::Relaxed)).collect();
            eventually("all threads have read everything again", || {
                rounds.iter().zip(&before).all(|(done, before)| done.load(Ordering::Relaxed) > before + 1)
            });
        };
        let watch = || {
            let _over = SetWhenDropped(&is_over);
            go_on();
            nodes[lost].stop();
            go_on();
            let before = at_each(&process);
            go_on();
            let after = at_each(&process);
            assert_eq!(after[lost].reads, before[lost].reads, "nobody reads at a node that is lost");
            assert!(after[1 - lost].reads > before[1 - lost].reads);
        };
        forebay_env::thread::beside(watch, || side_by_side(rounds.len(), read));
        assert_eq!(db.missing_copies(), 1);
    }
}

/// Copies are lost and made again while threads check what they read and the database is written.
#[test]
fn copies_are_made_again_under_reading_threads() {
    let (mut nodes, register) = (start(2), register());
    let process = Process::start(&nodes);
    let db = process.open(sharded(&register, 2));
    let mut model = Model::new();
    let mut random = Random::seeded(87);
    // Keys that do not change: they come after all that are written.
    let fixed: Vec<_> = (0..200).map(|number| (format!("x{number:03}").into_bytes(), value(number))).collect();
    fixed.iter().for_each(|(key, value)| db.put(key, value).unwrap());
    db.flush().unwrap();
    let (is_over, turns) = (AtomicBool::new(false), AtomicUsize::new(0));
    let read = || {
        set_turn(turns.fetch_add(1, Ordering::Relaxed));
        while !is_over.load(Ordering::Relaxed) {
            let mut entries = db.iter().unwrap();
            entries.seek(b"x").unwrap();
            for (key, value) in &fixed {
                assert_eq!((entries.key(), entries.value()), (&key[..], &value[..]));
                assert_eq!(db.get(key).unwrap().as_ref(), Some(value));
                entries.next().unwrap();
            }
            assert!(!entries.valid());
        }
    };
    let watch = || {
        let _over = SetWhenDropped(&is_over);
        for round in 0..4 {
            nodes.remove(0).stop();
            write(&db, &mut model, &mut random, 300);
            nodes.push(crate::common::Cluster::start(64 << 20));
            db.add_memory_node(&nodes[1].client()).unwrap();
            eventually("all copies are there again", || {
                write(&db, &mut model, &mut random, 10);
                db.missing_copies() == 0
            });
            db.compact_range(None, None).unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
    };
    forebay_env::thread::beside(watch, || side_by_side(2, read));
    model.extend(fixed);
    for turn in 0..2 {
        set_turn(turn);
        assert!(contents(&db) == model, "turn {turn}");
    }
}
