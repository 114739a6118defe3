//! A database whose compactions run in worker processes, which are killed, or stopped and continued, meanwhile. Every
//! write is there, and nothing is left on the memory node.

use crate::admin::{self, admin_of, get};
use crate::common::{Running, fresh_path, places, run, start, start_node};
use forebay::{CompactionPlace, NodeAddress, Options, Reach, Statistics, Storage, StorageOptions, Store};
use forebay_env::{Clock, Random, SystemClock};
use forebay_storage_conformance::Place;
use rustix::process::Signal;
use std::sync::Arc;
use std::time::Duration;

fn worker(address: &str) -> Running {
    let mut worker = start(&format!("worker --memory {address}"));
    worker.until(|out| out == "ready\n");
    worker
}

/// Memtables and tables that are small, so that there are many compactions.
fn small_options() -> Options {
    Options {
        write_buffer_bytes: 128 << 10,
        target_table_bytes: 128 << 10,
        level1_bytes: 512 << 10,
        shards: 2,
        compaction_place: CompactionPlace::Pool,
        ..Options::default()
    }
}

fn open(address: &str) -> Store {
    open_with(address, None)
}

fn open_with(address: &str, scheduler: Option<Arc<Reach>>) -> Store {
    let options = Options { scheduler, ..small_options() };
    Store::connect(&address.parse::<NodeAddress>().unwrap(), options).unwrap()
}

fn key(i: u32) -> [u8; 4] {
    i.wrapping_mul(2_654_435_761).to_be_bytes()
}

fn value(i: u32, round: u32) -> Vec<u8> {
    let text = format!("{i}-{round}-");
    text.repeat(1 + (i as usize % 20)).into_bytes()
}

fn load_round(store: &Store, keys: u32, round: u32) {
    for i in 0..keys {
        store.put(&key(i), &value(i, round)).unwrap();
    }
}

/// Overwrites all keys again and again, with `meanwhile` now and then; then reads everything back.
fn load(store: &Store, keys: u32, rounds: u32, mut meanwhile: impl FnMut(u32)) -> Statistics {
    for round in 0..rounds {
        load_round(store, keys, round);
        meanwhile(round);
    }
    store.flush().unwrap();
    store.wait_for_compactions().unwrap();
    for i in 0..keys {
        assert_eq!(store.get(&key(i)).unwrap().as_deref(), Some(&value(i, rounds - 1)[..]), "key {i}");
    }
    assert_eq!(store.entries().unwrap().count(), keys as usize);
    store.statistics()
}

/// Writes the last round again, undisturbed, until workers have compacted more often than `before`. Killed workers may
/// have lived too short a time for that, or a scheduler that did not answer may still be avoided.
fn load_until_offloaded(store: &Store, keys: u32, rounds: u32, before: u64) {
    let clock = SystemClock::new();
    for _ in 0..100 {
        if store.statistics().offloaded_compactions > before {
            return;
        }
        clock.sleep(Duration::from_millis(300));
        load_round(store, keys, rounds - 1);
        store.flush().unwrap();
        store.wait_for_compactions().unwrap();
    }
    panic!("no compaction was offloaded: {:?}", store.statistics());
}

fn expect_swept(address: &str) {
    expect_swept_but(address, 0);
}

/// Checks that nothing of databases is left, except `stores` stores without memory, which say who schedules.
fn expect_swept_but(address: &str, stores: u64) {
    let clock = SystemClock::new();
    let mut last = String::new();
    for _ in 0..500 {
        let used = run(&format!("tenants --memory {address} --format json")).expect(0).json();
        let tenant = &used["tenants"][0];
        let figures = ["memory_bytes", "ranges", "keys", "jobs"];
        if figures.iter().all(|figure| tenant[figure] == 0) && tenant["stores"] == stores {
            return;
        }
        last = tenant.to_string();
        clock.sleep(Duration::from_millis(20));
    }
    panic!("something is left: {last}");
}

#[test]
fn workers_are_killed() {
    for place in places() {
        let (_node, address) = start_node(&place, "--memory=256MiB --threads=0");
        let mut workers = vec![worker(&address), worker(&address)];
        let store = open(&address);
        let mut random = Random::seeded(7);
        load(&store, 4000, 12, |_| {
            // At any moment of its work.
            SystemClock::new().sleep(Duration::from_millis(random.below(20)));
            workers.remove(0).signal(Signal::KILL);
            workers.push(worker(&address));
        });
        load_until_offloaded(&store, 4000, 12, 0);
        store.close().unwrap();
        drop(store);
        drop(workers);
        expect_swept(&address);
    }
}

#[test]
fn workers_are_stopped_and_go_on() {
    for place in places() {
        // The lease is so short that a stopped worker loses its session.
        let (_node, address) = start_node(&place, "--memory=256MiB --threads=0 --lease=400ms");
        let workers = [worker(&address), worker(&address)];
        let store = open(&address);
        let counted = load(&store, 4000, 12, |round| match round {
            2 | 5 => workers[0].signal(Signal::STOP),
            3 | 8 => {
                SystemClock::new().sleep(Duration::from_millis(600));
                workers[0].signal(Signal::CONT);
            }
            _ => SystemClock::new().sleep(Duration::from_millis(50)),
        });
        assert!(counted.offloaded_compactions > 0, "{counted:?}");
        store.close().unwrap();
        drop(store);
        for worker in workers {
            worker.signal(Signal::TERM);
            worker.wait_stopped();
        }
        expect_swept(&address);
    }
}

/// The same with levels in storage, whose objects workers write.
#[test]
fn workers_that_write_to_storage_are_killed() {
    let folder = fresh_path("-storage");
    let url = folder.display().to_string();
    let open = |address: &str| {
        let options = Options {
            name: Some("db".into()),
            storage: Some(Storage::open(&url, StorageOptions::default()).unwrap()),
            storage_from_level: Some(1),
            ..small_options()
        };
        Store::connect(&address.parse::<NodeAddress>().unwrap(), options).unwrap()
    };
    let (node, address) = start_node("tcp://127.0.0.1:0", "--memory=256MiB --threads=0");
    let worker = || {
        let mut worker = start(&format!("worker --memory {address} --storage {url}"));
        worker.until(|out| out == "ready\n");
        worker
    };
    let mut workers = vec![worker(), worker()];
    let store = open(&address);
    let mut random = Random::seeded(11);
    load(&store, 4000, 12, |_| {
        SystemClock::new().sleep(Duration::from_millis(random.below(20)));
        workers.remove(0).signal(Signal::KILL);
        workers.push(worker());
    });
    load_until_offloaded(&store, 4000, 12, 0);
    store.close().unwrap();
    drop((store, workers, node));
    // All of it is in storage. What attempts left there is swept.
    let (_node, address) = start_node("tcp://127.0.0.1:0", "--memory=256MiB");
    let store = open(&address);
    for i in 0..4000 {
        assert_eq!(store.get(&key(i)).unwrap().as_deref(), Some(&value(i, 11)[..]), "key {i}");
    }
    drop(store);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The worker has no key for the storage, which requires one with each request: the names that the database signs are
/// enough.
#[test]
fn a_worker_without_rights_goes_by_signed_names() {
    let place = Place::seaweedfs_with_a_key();
    let (_node, address) = start_node("tcp://127.0.0.1:0", "--memory=256MiB --threads=0 --placement=away");
    let options = Options {
        name: Some("db".into()),
        storage: Some(place.open("prefix")),
        storage_from_level: Some(1),
        ..small_options()
    };
    let store = Store::connect(&address.parse::<NodeAddress>().unwrap(), options).unwrap();
    let worker = |flags: &str| {
        let mut worker = start(&format!("worker --memory {address} {flags}"));
        worker.until(|out| out == "ready\n");
        worker
    };
    let offloaded = |counted: &Statistics| (counted.offloaded_compactions, counted.offloaded_copies);
    // A worker that takes no unencrypted names, and one that takes none: jobs run at home.
    let others = [worker(""), worker("--signed-names=none")];
    assert_eq!(offloaded(&load(&store, 1000, 3, |_| ())), (0, 0));
    drop(others);
    let worker = worker("--signed-names=http");
    let counted = load(&store, 4000, 6, |_| ());
    load_until_offloaded(&store, 4000, 6, 0);
    assert!(counted.offloaded_copies > 0, "{counted:?}");
    let said = worker.problem();
    assert!(!said.contains("Signature"), "{said}");
    store.close().unwrap();
    drop((store, worker));
}

/// There is no worker, and the memory node has no thread.
#[test]
fn a_server_lends_threads_that_have_nothing_to_do() {
    let (_node, address) = start_node("tcp://127.0.0.1:0", "--memory=256MiB --threads=0");
    let lender = "serve --listen=127.0.0.1:0 --admin=127.0.0.1:0 --lend-threads";
    let mut server = start(&format!("{lender} --durability=none --memory={address}"));
    let page = admin_of(&mut server);
    let store = open(&address);
    load(&store, 4000, 4, |_| {});
    load_until_offloaded(&store, 4000, 4, 0);
    assert!(admin::value(&get(&page, "/metrics"), "forebay_worker_completed_attempts_total") >= 1.0);
    drop(store);
    server.signal(Signal::TERM);
    server.wait_stopped();
    expect_swept(&address);
    for nobody in ["", &format!("--max-background-jobs=0 --memory={address}")] {
        let refused = run(&format!("{lender} {nobody}")).expect(2);
        assert!(refused.error.contains("--lend-threads"), "{refused:?}");
    }
}

fn scheduler(memory: &str) -> (Running, String) {
    let mut scheduler = start(&format!("scheduler --listen tcp://127.0.0.1:0 --memory {memory}"));
    let out = scheduler.until(|out| out.ends_with('\n'));
    (scheduler, out.trim_start_matches("ready ").trim().to_owned())
}

/// A separate scheduler schedules, not a memory node, and there is no worker.
#[test]
fn a_scheduler_sends_jobs_to_memory_nodes_that_are_idle() {
    let nodes: Vec<_> = (0..2).map(|_| start_node("tcp://127.0.0.1:0", "--memory=256MiB --threads=1")).collect();
    let addresses: Vec<_> = nodes.iter().map(|(_, address)| address.parse::<NodeAddress>().unwrap()).collect();
    let (_scheduler, address) = scheduler(&format!("{},{}", nodes[0].1, nodes[1].1));
    let candidates = [address.parse::<NodeAddress>().unwrap()];
    let options = Options { scheduler: Some(forebay::reach_scheduler(&candidates, "test")), ..small_options() };
    let store = Store::connect_all(&addresses, options).unwrap();
    for round in 0..40 {
        let done = load(&store, 4000, 4, |_| {});
        if done.near_data_compactions > 0 {
            return;
        }
        assert!(round < 39, "no compaction was near its data: {done:?}");
    }
}

/// Two candidates, elected by a memory node or by a directory. The scheduler is killed, or sleeps until the other one
/// has been elected, and then continues.
#[test]
fn another_scheduler_takes_over() {
    let by_directory = format!(" --register={}", fresh_path("-register").display());
    for (signal, register) in [(Signal::KILL, ""), (Signal::STOP, ""), (Signal::STOP, &by_directory)] {
        let (_node, address) = start_node("tcp://127.0.0.1:0", "--memory=256MiB --threads=0 --lease=400ms");
        let scheduler = || scheduler(&format!("{address}{register}"));
        let (first, first_address) = scheduler();
        // The first one is elected before there is another.
        let addresses = [first_address.parse::<NodeAddress>().unwrap()];
        let clock = SystemClock::new();
        while forebay::reach_scheduler(&addresses, "test").client().is_err() {
            clock.sleep(Duration::from_millis(10));
        }
        let (second, second_address) = scheduler();
        let mut worker = start(&format!("worker --memory {address} --scheduler {first_address},{second_address}"));
        worker.until(|out| out == "ready\n");
        let both = [first_address, second_address].map(|address| address.parse::<NodeAddress>().unwrap());
        let store = open_with(&address, Some(forebay::reach_scheduler(&both, "test")));
        load_until_offloaded(&store, 4000, 1, 0);
        let mut before = 0;
        load(&store, 4000, 14, |round| match round {
            4 => {
                store.flush().unwrap();
                store.wait_for_compactions().unwrap();
                before = store.statistics().offloaded_compactions;
                first.signal(signal);
                while forebay::reach_scheduler(&both[1..], "test").client().is_err() {
                    clock.sleep(Duration::from_millis(10));
                }
            }
            8 if signal == Signal::STOP => first.signal(Signal::CONT),
            _ => {}
        });
        load_until_offloaded(&store, 4000, 14, before);
        drop((store, worker, first, second));
    }
}

#[test]
fn a_directory_elects_a_scheduler_where_no_memory_node_is() {
    let register = fresh_path("-register");
    let (_scheduler, address) = scheduler(&format!("tcp://127.0.0.1:1 --register={}", register.display()));
    let addresses = [address.parse::<NodeAddress>().unwrap()];
    let clock = SystemClock::new();
    while forebay::reach_scheduler(&addresses, "test").client().is_err() {
        clock.sleep(Duration::from_millis(10));
    }
}

/// The only scheduler is killed, or does not answer, while jobs run, and its memory node continues. The database
/// compacts by itself, and uses the scheduler again when there is one.
#[test]
fn without_a_scheduler_databases_help_themselves() {
    for signal in [Signal::KILL, Signal::STOP] {
        // No session lapses here while the machine is busy. A scheduler that was killed is succeeded after a lease.
        let (_node, address) = start_node("tcp://127.0.0.1:0", "--memory=256MiB --threads=0 --lease=5s");
        let (mut only, listens) = scheduler(&address);
        let at = [listens.parse::<NodeAddress>().unwrap()];
        let mut worker = start(&format!("worker --memory {address} --scheduler {listens}"));
        worker.until(|out| out == "ready\n");
        let store = open_with(&address, Some(forebay::reach_scheduler(&at, "test")));
        load_until_offloaded(&store, 4000, 1, 0);
        let rested = || {
            store.flush().unwrap();
            store.wait_for_compactions().unwrap();
            store.statistics()
        };
        let mut alone = Statistics::default();
        load(&store, 4000, 10, |round| match round {
            // Between any two messages: the round has left compactions to do.
            2 => only.signal(signal),
            3 => alone = rested(),
            6 => {
                let counted = rested();
                assert!(counted.compactions > alone.compactions, "{signal:?}: {alone:?}, then {counted:?}");
                assert_eq!(counted.offloaded_compactions, alone.offloaded_compactions, "{signal:?}");
                if signal == Signal::STOP {
                    only.signal(Signal::CONT);
                } else {
                    only = start(&format!("scheduler --listen {listens} --memory {address}"));
                }
            }
            _ => {}
        });
        load_until_offloaded(&store, 4000, 10, alone.offloaded_compactions);
        store.close().unwrap();
        drop((store, worker, only));
        expect_swept_but(&address, 1);
    }
}

/// Two databases on two memory nodes, with two schedulers and three workers, which are killed, or stopped for a while,
/// one after the other, at random.
fn many_of_everything(seed: u64, rounds: u32) {
    let mut random = Random::seeded(seed);
    let clock = SystemClock::new();
    let nodes = [(); 2].map(|()| start_node("tcp://127.0.0.1:0", "--memory=256MiB --threads=1 --lease=1s"));
    let memory = nodes.each_ref().map(|(_, address)| address.clone());
    let mut schedulers = [(); 2].map(|()| scheduler(&memory[0]));
    let addresses = schedulers.each_ref().map(|(_, address)| address.clone());
    let both = addresses.each_ref().map(|address| address.parse::<NodeAddress>().unwrap());
    let worker_line = format!("worker --threads 2 --memory {} --scheduler {}", memory.join(","), addresses.join(","));
    // A worker is ready as soon as a scheduler is elected.
    let worker = || start(&worker_line);
    let mut workers = [(); 3].map(|()| worker());
    let all = memory.each_ref().map(|address| address.parse::<NodeAddress>().unwrap());
    let databases = [1, 2].map(|number: u32| {
        let options = Options { scheduler: Some(forebay::reach_scheduler(&both, "test")), ..small_options() };
        let store = Store::connect_all(&all, options).unwrap();
        forebay_env::thread::spawn(format!("database-{number}"), move || {
            let pause = |_| SystemClock::new().sleep(Duration::from_millis(30));
            let counted = load(&store, 3000, rounds * 6, pause);
            store.close().unwrap();
            counted
        })
        .unwrap()
    });
    while !databases.iter().all(|database| database.is_finished()) {
        let victim = random.below(8) as usize;
        let stops = random.below(2) == 0;
        match (victim, stops) {
            (0..=5, true) => {
                workers[victim % 3].signal(Signal::STOP);
                clock.sleep(Duration::from_millis(random.below(1500)));
                workers[victim % 3].signal(Signal::CONT);
            }
            (0..=5, false) => {
                workers[victim % 3].signal(Signal::KILL);
                workers[victim % 3] = worker();
            }
            (victim, true) => {
                schedulers[victim - 6].0.signal(Signal::STOP);
                clock.sleep(Duration::from_millis(random.below(1500)));
                schedulers[victim - 6].0.signal(Signal::CONT);
            }
            (victim, false) => {
                let (running, address) = &mut schedulers[victim - 6];
                running.signal(Signal::KILL);
                while !running.has_ended() {
                    clock.sleep(Duration::from_millis(1));
                }
                *running = start(&format!("scheduler --listen {address} --memory {}", memory[0]));
            }
        }
        clock.sleep(Duration::from_millis(random.below(300)));
    }
    let counted = databases.map(|database| database.join().unwrap());
    let offloaded: u64 = counted.iter().map(|counted| counted.offloaded_compactions).sum();
    println!("seed {seed}: {offloaded} compactions were offloaded");
    drop((workers, schedulers));
    expect_swept_but(&memory[0], 1);
    expect_swept(&memory[1]);
}

#[test]
fn anything_is_killed_or_stopped() {
    many_of_everything(1, 4);
}

#[test]
fn a_worker_says_what_is_wrong() {
    run("worker --memory tcp://127.0.0.1:1").expect(3);
    run("worker").expect(2);
    run("worker --memory local").expect(2);
    run("scheduler --listen tcp://127.0.0.1:0 --memory tcp://127.0.0.1:1 --register memory:").expect(2);
}
