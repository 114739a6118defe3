//! Requests: writes that are retried take effect once, and get the answer of the try that was written.

use crate::common::copied::{self, register};
use crate::common::crossed::{self, connect};
use crate::common::model::walk;
use crate::common::process::Process;
use crate::common::stored::{self, of_objects};
use crate::common::{Cluster, SetClock, SetWhenDropped, eventually, small_options};
use forebay_base::ErrorKind;
use forebay_engine::{
    Answer, Db, Durability, Error, Keyspaces, Options, Request, Requests, ShardBounds, Storage, Syncing, WriteBatch,
    WriteOptions,
};
use forebay_env::Clock;
use forebay_fabric::sim::{SimNetwork, SimOptions, Time};
use forebay_storage::{MemoryObjects, ObjectFault};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

/// The bound between two shards, a counter in each of them, and the table between the counters.
const BOUND: &[u8] = b"m";
const COUNTERS: [&[u8]; 2] = [b"a", b"z"];
const TABLE: &[u8] = b"l/";

fn counting(shards: usize) -> Options {
    let bounds = if shards == 1 { vec![] } else { vec![BOUND.to_vec()] };
    let merge_operator = Some("counter".to_owned());
    Options { shards, shard_bounds: ShardBounds::Given(bounds), merge_operator, ..small_options() }
}

/// Adds one to both counters.
fn addition() -> WriteBatch {
    let mut batch = WriteBatch::new();
    COUNTERS.iter().for_each(|counter| _ = batch.merge(counter, &1_i64.to_le_bytes()));
    batch
}

/// The value of a counter, which is zero at first.
fn value_of(value: Option<Vec<u8>>) -> i64 {
    value.map_or(0, |value| i64::from_le_bytes(value.try_into().unwrap()))
}

/// The value of two counters, which must be the same.
fn counted_in(db: &Db, counters: [&[u8]; 2]) -> i64 {
    let values: Vec<_> = db.multi_get(&counters).unwrap().into_iter().map(value_of).collect();
    assert_eq!(values[0], values[1], "half of a batch");
    values[0]
}

fn counted(db: &Db) -> i64 {
    counted_in(db, COUNTERS)
}

fn request(number: u64) -> Request<'static> {
    Request { client: b"client", number }
}

fn first(result: &[u8]) -> Answer {
    Answer { result: result.to_vec(), is_repeated: false }
}

fn repeated(result: &[u8]) -> Answer {
    Answer { result: result.to_vec(), is_repeated: true }
}

/// Makes a request that adds. Its answer is its number.
fn add(requests: &Requests, number: u64) -> Result<Answer, Error> {
    let answer = requests.write(request(number), &addition(), &number.to_le_bytes())?;
    assert_eq!(answer.result, number.to_le_bytes());
    Ok(answer)
}

#[test]
fn a_request_that_is_tried_again_changes_nothing_and_gets_the_first_answer() {
    for shards in [1, 2] {
        let cluster = Cluster::start(256 << 20);
        let db = cluster.open(counting(shards));
        let requests = Requests::under(&db, TABLE);
        for number in 1..4 {
            let result = [number as u8];
            assert_eq!(requests.write(request(number), &addition(), &result).unwrap(), first(&result));
            // The entry is in a memtable, in a table, in a table of the last level.
            match number {
                1 => {}
                2 => db.flush().unwrap(),
                _ => db.compact_range(None, None).unwrap(),
            }
            let before = db.snapshot().sequence_numbers().to_vec();
            for result in [&b"another result"[..], b""] {
                let again = requests.write(request(number), &addition(), result).unwrap();
                assert_eq!(again, repeated(&[number as u8]), "{shards} shards");
            }
            // Nor does another batch count.
            let mut other = WriteBatch::new();
            other.put(b"other", b"").require_present(b"nothing has this");
            assert_eq!(requests.write(request(number), &other, b"").unwrap(), repeated(&[number as u8]));
            assert_eq!(db.snapshot().sequence_numbers(), before, "nothing was written");
            assert_eq!(counted(&db), number as i64);
        }
        // A clone of the table, and another one at the same place, are the same table.
        assert!(add(&requests.clone(), 4).is_ok_and(|answer| !answer.is_repeated));
        assert!(add(&Requests::under(&db, TABLE), 4).unwrap().is_repeated);
        assert!(!add(&Requests::under(&db, b"elsewhere/"), 4).unwrap().is_repeated);
    }
}

#[test]
fn a_request_before_the_last_one_is_refused_and_clients_do_not_meet() {
    let cluster = Cluster::start(64 << 20);
    let db = cluster.open(counting(1));
    let requests = Requests::under(&db, TABLE);
    add(&requests, 3).unwrap();
    // Numbers may be left out.
    add(&requests, 7).unwrap();
    for number in [0, 3, 6] {
        let refused = requests.write(request(number), &addition(), b"").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        assert!(refused.to_string().contains("\"client\" comes after its request 7"), "{refused}");
    }
    for client in [&b"clien"[..], b"client2", &[0xff; 255]] {
        let answer = requests.write(Request { client, number: 3 }, &addition(), b"").unwrap();
        assert!(!answer.is_repeated, "{client:?}");
    }
    add(&requests, u64::MAX).unwrap();
    assert!(add(&requests, u64::MAX).unwrap().is_repeated);
    assert_eq!(counted(&db), 6);
}

#[test]
fn bad_identities_and_what_is_no_entry_are_errors() {
    let cluster = Cluster::start(64 << 20);
    let db = cluster.open(counting(1));
    let requests = Requests::under(&db, TABLE);
    for client in [&b""[..], &[1; 256]] {
        let refused = requests.write(Request { client, number: 1 }, &addition(), b"").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    }
    let long = Requests::under(&db, &vec![b'l'; 64 << 10]);
    assert_eq!(long.write(request(1), &addition(), b"").unwrap_err().kind(), ErrorKind::Invalid);
    for (value, kind) in
        [(&b""[..], ErrorKind::Corrupt), (b"\x01short", ErrorKind::Corrupt), (b"\x09", ErrorKind::Unsupported)]
    {
        db.put(b"l/client", value).unwrap();
        assert_eq!(requests.write(request(1), &addition(), b"").unwrap_err().kind(), kind, "{value:?}");
    }
    // A write that asks for more than the database can do is refused, even where nothing is to be written.
    db.delete(b"l/client").unwrap();
    add(&requests, 1).unwrap();
    let durable = WriteOptions { durability: Some(Durability::Storage(Syncing::Sync)) };
    for number in [1, 2] {
        let refused = requests.write_with(request(number), &addition(), b"", &durable).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    }
    assert_eq!(counted(&db), 1);
}

#[test]
fn a_request_whose_condition_fails_stays_open() {
    for shards in [1, 2] {
        let cluster = Cluster::start(64 << 20);
        let db = cluster.open(counting(shards));
        let requests = Requests::under(&db, TABLE);
        let mut batch = addition();
        batch.require_present(b"b");
        for number in [5, 5, 6] {
            let refused = requests.write(request(number), &batch, b"").unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
            assert!(refused.to_string().contains("\"b\""), "it says whose condition: {refused}");
        }
        assert_eq!(counted(&db), 0);
        db.put(b"b", b"").unwrap();
        // The condition holds when the request is tried again, and no longer at the next try.
        batch.delete(b"b");
        assert_eq!(requests.write(request(5), &batch, b"done").unwrap(), first(b"done"));
        assert_eq!(requests.write(request(5), &batch, b"").unwrap(), repeated(b"done"));
        assert_eq!(counted(&db), 1);
    }
}

/// Two threads make each request at once. In two shards, the bound between them meanwhile moves over the table.
#[test]
fn of_two_threads_with_the_same_request_one_writes() {
    const ROUNDS: u64 = 300;
    for shards in [1, 2] {
        let cluster = Cluster::start(256 << 20);
        let db = cluster.open(counting(shards));
        let requests = Requests::under(&db, TABLE);
        let (barrier, done) = (Barrier::new(2), AtomicBool::new(false));
        let written = std::thread::scope(|scope| {
            let _ends = SetWhenDropped(&done);
            if shards > 1 {
                let (db, done) = (&db, &done);
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        [&b"k"[..], BOUND].into_iter().for_each(|to| db.move_bound(0, to).unwrap());
                    }
                });
            }
            let (db, requests, barrier) = (&db, &requests, &barrier);
            let threads = [0, 1].map(|_| {
                scope.spawn(move || {
                    // What is wrong is reported at the end, because the other thread waits for this one.
                    let round = |number| {
                        barrier.wait();
                        let answer = requests.write(request(number), &addition(), &number.to_le_bytes());
                        // A thread that has the answer sees the whole batch.
                        let seen = COUNTERS.map(|counter| db.get(counter).map(value_of));
                        barrier.wait();
                        (answer, seen)
                    };
                    (0..ROUNDS).map(round).collect::<Vec<_>>()
                })
            });
            let found = threads.map(|thread| thread.join().unwrap());
            found.map(|rounds| {
                let mut written = 0;
                for (number, (answer, seen)) in (0..ROUNDS).zip(rounds) {
                    let answer = answer.unwrap();
                    assert_eq!(answer.result, number.to_le_bytes());
                    written += u64::from(!answer.is_repeated);
                    assert_eq!(seen.map(Result::unwrap), [number as i64 + 1; 2], "request {number}");
                }
                written
            })
        });
        assert_eq!(written.iter().sum::<u64>(), ROUNDS, "{written:?}");
        assert_eq!(counted(&db), ROUNDS as i64);
    }
}

#[test]
fn entries_expire() {
    let (cluster, clock) = (Cluster::start(64 << 20), Arc::new(SetClock::default()));
    let db = cluster.open(Options { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..counting(1) });
    clock.set(1000);
    let requests = Requests::under(&db, TABLE).with_lifetime(Duration::from_millis(500));
    let for_ever = Requests::under(&db, b"for ever/").with_lifetime(Duration::MAX);
    add(&requests, 1).unwrap();
    add(&for_ever, 1).unwrap();
    clock.set(1500);
    assert!(add(&requests, 1).unwrap().is_repeated);
    // A later request keeps the client known.
    add(&requests, 2).unwrap();
    clock.set(2000);
    assert!(add(&requests, 2).unwrap().is_repeated);
    assert_eq!(counted(&db), 3);
    clock.set(2001);
    assert!(!add(&requests, 1).unwrap().is_repeated, "nobody remembers the client");
    clock.set(100_000);
    assert!(add(&for_ever, 1).unwrap().is_repeated);
    let by_default = Requests::under(&db, b"by default/");
    add(&by_default, 1).unwrap();
    db.compact_range(None, None).unwrap();
    let entries = || db.statistics().levels.iter().map(|level| level.entries).sum::<u64>();
    assert_eq!(entries(), 4, "two counters, and two entries that have not expired");
    clock.set(100_000 + Requests::LIFETIME.as_millis() as u64 + 1);
    db.compact_range(None, None).unwrap();
    assert_eq!(entries(), 3);
}

#[test]
fn no_keyspace_shows_the_table_and_copies_of_the_database_have_it() {
    let cluster = Cluster::start(64 << 20);
    let named = |name: &str| Options { name: Some(name.to_owned()), ..small_options() };
    let db = cluster.open(named("db"));
    let keyspaces = Keyspaces::open(&db).unwrap();
    let orders = keyspaces.create("orders").unwrap();
    let mut batch = WriteBatch::new();
    batch.within(&orders).put(b"1", b"a compass");
    assert_eq!(keyspaces.requests().write(request(1), &batch, b"1").unwrap(), first(b"1"));
    let mut shown = orders.iter().unwrap();
    shown.seek_to_first().unwrap();
    assert_eq!((shown.key(), shown.value()), (&b"1"[..], &b"a compass"[..]));
    shown.next().unwrap();
    assert!(!shown.valid());
    assert_eq!(keyspaces.list().unwrap(), ["orders"]);
    // A dump has the table, as it has the names.
    let all = walk(db.iter().unwrap());
    assert!(all.iter().any(|(key, _)| key == b"\0\0\0\0rclient"), "{all:?}");
    let file = std::env::temp_dir().join(format!("forebay-requests-{}", std::process::id()));
    db.checkpoint(&file).unwrap();
    let restored = Db::restore(&[cluster.client()], named("restored"), &file);
    std::fs::remove_file(&file).unwrap();
    let restored = restored.unwrap();
    let keyspaces = Keyspaces::open(&restored).unwrap();
    assert_eq!(keyspaces.requests().write(request(1), &batch, b"2").unwrap(), repeated(b"1"));
}

/// A named database whose writes are durable in memory. A process that takes it over answers what the earlier process
/// wrote.
#[test]
fn a_request_is_answered_by_the_next_process_and_by_one_that_takes_over() {
    for shards in [1, 2] {
        let cluster = Cluster::start(64 << 20);
        let options = Options {
            name: Some("db".to_owned()),
            takeover: true,
            durability: Durability::Memory { copies: 1 },
            ..counting(shards)
        };
        let one = Process::start([&cluster]);
        let db = one.open(options.clone());
        add(&Requests::under(&db, TABLE), 1).unwrap();
        db.close().unwrap();
        drop(db);
        let old = one.open(options.clone());
        let of_old = Requests::under(&old, TABLE);
        assert!(add(&of_old, 1).unwrap().is_repeated);
        add(&of_old, 2).unwrap();
        let other = Process::start([&cluster]);
        let new = other.open(options.clone());
        assert_eq!(add(&of_old, 3).unwrap_err().kind(), ErrorKind::Fenced);
        assert_eq!(add(&of_old, 2).unwrap_err().kind(), ErrorKind::Fenced);
        let of_new = Requests::under(&new, TABLE);
        assert!(add(&of_new, 2).unwrap().is_repeated);
        assert!(!add(&of_new, 3).unwrap().is_repeated);
        assert_eq!(counted(&new), 3);
    }
}

/// The process is killed after each step of the network in turn. Each time the next process makes the request that was
/// not answered. Table and counters are in three shards.
fn killed_after_each_step(copies: usize) {
    let counters = [0, 2].map(|shard| crossed::key(shard, "counter"));
    let counters = [&counters[0][..], &counters[1]];
    let table = crossed::key(1, "table");
    let mut batch = WriteBatch::new();
    counters.iter().for_each(|counter| _ = batch.merge(counter, &1_i64.to_le_bytes()));
    let network = SimNetwork::new(copies as u64, SimOptions { time: Time::Real, ..SimOptions::default() });
    let nodes = copies as u32;
    let _nodes: Vec<_> = (1..=nodes).map(|node| crossed::start(&network, node)).collect();
    let register = register();
    let options = |register: &Storage| Options {
        merge_operator: Some("counter".to_owned()),
        ..crossed::options(copies, register)
    };
    let (mut steps, mut number, mut has_lived) = (0, 1_u64, false);
    while !has_lived {
        let context = format!("{copies} copies, killed after {steps} steps");
        let (links, clients) = connect(&network, nodes);
        let db = Db::open(&clients, options(&register)).unwrap();
        let requests = Requests::under(&db, &table);
        let (counted, answered) = (counted_in(&db, counters), number as i64 - 1);
        assert!((answered..=answered + 1).contains(&counted), "{context}: {counted} of {answered}");
        let (due, of) = (network.steps() + steps, network.clone());
        network.set_progress_hook(move || {
            if of.steps() >= due {
                links.iter().for_each(|link| link.close());
            }
        });
        has_lived = (0..3).all(|_| {
            let answer = requests.write(request(number), &batch, &number.to_le_bytes());
            assert!(answer.as_ref().map_or(true, |answer| answer.result == number.to_le_bytes()), "{context}");
            number += u64::from(answer.is_ok());
            answer.is_ok()
        });
        network.set_progress_hook(|| ());
        drop((db, requests, clients));
        steps += 1;
    }
    println!("{copies} copies: {steps} steps");
    assert!(steps > 20, "{steps} steps");
    // The last answer was given, and the process was killed before the client had it.
    let (_links, clients) = connect(&network, nodes);
    let db = Db::open(&clients, options(&register)).unwrap();
    let again = Requests::under(&db, &table).write(request(number - 1), &batch, b"").unwrap();
    assert_eq!(again, repeated(&(number - 1).to_le_bytes()));
    assert_eq!(counted_in(&db, counters), number as i64 - 1);
}

#[test]
fn a_request_takes_effect_once_whenever_the_process_is_killed() {
    killed_after_each_step(1);
}

#[test]
fn a_request_takes_effect_once_with_copies_too() {
    killed_after_each_step(2);
}

#[test]
fn a_request_takes_effect_once_when_a_copy_is_lost() {
    let (mut nodes, register) = (copied::start(3), register());
    let options = || Options {
        background_threads: 0,
        takeover: true,
        merge_operator: Some("counter".to_owned()),
        ..copied::options(&register, 2)
    };
    let process = Process::start(&nodes);
    let db = process.open(options());
    let requests = Requests::under(&db, TABLE);
    add(&requests, 1).unwrap();
    nodes.remove(0).stop();
    assert!(add(&requests, 1).unwrap().is_repeated);
    assert!(!add(&requests, 2).unwrap().is_repeated);
    eventually("both copies are there", || {
        db.run_background_step();
        db.missing_copies() == 0
    });
    drop(requests);
    process.kill(db);
    nodes.remove(0).stop();
    let process = Process::start(&nodes);
    let db = process.open(options());
    let requests = Requests::under(&db, TABLE);
    assert!(add(&requests, 2).unwrap().is_repeated);
    assert!(!add(&requests, 3).unwrap().is_repeated);
    assert_eq!(counted(&db), 3);
}

/// Each operation of the storage in turn fails, is done without a reply, is done late, or is the last one of the
/// process. The request is made again, first by the same process.
#[test]
fn a_request_takes_effect_once_wherever_storage_fails() {
    let faults = [
        Some(ObjectFault::Refused(ErrorKind::Unavailable)),
        Some(ObjectFault::ReplyLost),
        Some(ObjectFault::Late(3)),
        None,
    ];
    let mut repeats = 0;
    for (shards, fault) in [1, 2].into_iter().flat_map(|shards| faults.map(|fault| (shards, fault))) {
        for step in 0.. {
            let context = format!("{shards} shards, {fault:?} at step {step}");
            let objects = MemoryObjects::new();
            let handle = objects.handle();
            let options = |objects: &MemoryObjects| Options {
                takeover: true,
                background_threads: 0,
                durability: Durability::Storage(Syncing::Sync),
                name: Some("db".to_owned()),
                storage: Some(of_objects(objects)),
                ..counting(shards)
            };
            let process = Process::with_empty_memory();
            let db = process.open(options(&handle));
            let requests = Requests::under(&db, TABLE);
            add(&requests, 1).unwrap();
            let at = handle.steps() + step;
            match fault {
                Some(fault) => handle.fail_at(at, fault),
                None => handle.end_at(at),
            }
            let mut answer = add(&requests, 2);
            let has_failed = answer.is_err();
            for _ in 0..3 {
                if answer.is_err() {
                    let _ = db.resume();
                    answer = add(&requests, 2);
                }
            }
            drop(requests);
            process.kill(db);
            let process = Process::with_empty_memory();
            let db = process.open(options(&objects.handle()));
            let requests = Requests::under(&db, TABLE);
            let next = add(&requests, 2).unwrap();
            assert!(next.is_repeated || answer.is_err(), "{context}: what was answered is lost");
            repeats += u64::from(next.is_repeated && has_failed);
            assert!(add(&requests, 2).unwrap().is_repeated, "{context}");
            assert_eq!(counted(&db), 2, "{context}");
            if handle.steps() <= at {
                break;
            }
        }
    }
    assert!(repeats > 0, "no try was written without an answer");
}

/// A first try that was not to be durable becomes durable by a later try that asks for it.
#[test]
fn an_answer_is_as_durable_as_its_try_asks_for() {
    let objects = MemoryObjects::new();
    let options = |objects: &MemoryObjects| Options {
        merge_operator: Some("counter".to_owned()),
        takeover: true,
        ..stored::options(&of_objects(objects), Syncing::Sync)
    };
    let process = Process::with_empty_memory();
    let db = process.open(options(&objects.handle()));
    let requests = Requests::under(&db, TABLE);
    let lowered = WriteOptions { durability: Some(Durability::None) };
    let groups = || db.statistics().log.groups;
    let before = groups();
    requests.write_with(request(1), &addition(), b"", &lowered).unwrap();
    assert!(requests.write_with(request(1), &addition(), b"", &lowered).unwrap().is_repeated);
    assert_eq!(groups(), before);
    assert!(requests.write(request(1), &addition(), b"").unwrap().is_repeated);
    assert_eq!(groups(), before + 1);
    drop(requests);
    process.kill(db);
    let process = Process::with_empty_memory();
    let db = process.open(options(&objects.handle()));
    assert!(Requests::under(&db, TABLE).write(request(1), &addition(), b"").unwrap().is_repeated);
    assert_eq!(counted(&db), 1);
}

#[test]
fn only_writes_that_name_a_request_cost_more() {
    let cluster = Cluster::start(64 << 20);
    let options = Options {
        name: Some("db".to_owned()),
        durability: Durability::Memory { copies: 1 },
        background_threads: 0,
        write_buffer_bytes: 1 << 20,
        ..counting(1)
    };
    let db = cluster.open(options);
    let requests = Requests::under(&db, TABLE);
    // Groups and records of the log, and round trips.
    let costs = |work: &dyn Fn()| {
        let counts = || {
            let statistics = db.statistics();
            (statistics.log.groups, statistics.log.records, statistics.foreground.round_trips)
        };
        let before = counts();
        work();
        let after = counts();
        (after.0 - before.0, after.1 - before.1, after.2 - before.2)
    };
    let plain = || db.write(&addition()).unwrap();
    plain();
    let (groups, records, trips) = costs(&plain);
    assert_eq!((groups, records), (1, 2));
    // There is one record more, and the entry is read where it is: in the memtable.
    add(&requests, 1).unwrap();
    assert_eq!(costs(&|| _ = add(&requests, 2).unwrap()), (1, 3, trips));
    assert_eq!(costs(&|| _ = add(&requests, 2).unwrap()), (0, 0, 0));
    assert_eq!(costs(&plain), (groups, records, trips));
    // The entry is in a table: it is read, and read again as a condition.
    db.flush().unwrap();
    plain();
    assert_eq!(costs(&|| _ = add(&requests, 3).unwrap()), (1, 3, trips + 2));
    assert_eq!(costs(&plain), (groups, records, trips));
    // A client that no table knows.
    db.flush().unwrap();
    plain();
    let new = Request { client: b"new", number: 1 };
    assert_eq!(costs(&|| _ = requests.write(new, &addition(), b"").unwrap()), (1, 3, trips));
}
