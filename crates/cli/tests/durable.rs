//! Real processes that are killed (SIGKILL), or lose their memory node, under each durability. Another process reads what
//! they had acknowledged, with an empty memory node if storage must have all of it. Other processes are stopped while the
//! next owner takes over, and then continued. `FOREBAY_ROUNDS=N` does it more often.
//!
//! The child is this test's own program. It writes numbers in batches over several shards, and prints a line for what was
//! acknowledged as durable.

use crate::admin::{admin_of, get, redis, value};
use crate::common::{Running, places, run, signal, start, start_node};
use forebay::{
    Durability, NodeAddress, Options, ShardBounds, Storage, StorageOptions, Store, Syncing, WriteBatch, WriteOptions,
};
use forebay_env::{Clock, Random, SystemClock};
use forebay_storage_conformance::Place;
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const PLAN: &str = "FOREBAY_DURABLE_PLAN";
const ROUNDS: u64 = 3;
/// The part of a place that these tests use.
const PART: &str = "store";
const KEYS: u64 = 4;
/// This many rounds use the same database. Each reads all of it, so it must not grow without end.
const ROUNDS_OF_ONE: u64 = 20;

fn durability(mode: &str) -> Durability {
    match mode {
        "memory" => Durability::Memory { copies: 1 },
        "copies" => Durability::Memory { copies: 2 },
        "sync" => Durability::Storage(Syncing::Sync),
        "interval" => Durability::Storage(Syncing::Interval(Duration::from_millis(20))),
        // Nothing is synced while it runs, unless memtables are full.
        "appended" => Durability::Storage(Syncing::Interval(Duration::from_secs(3600))),
        "flush" => Durability::Storage(Syncing::Flush),
        _ => panic!("{mode}"),
    }
}

fn open(mode: &str, storage: Storage, memory: &str) -> Store {
    let bounds = (1..KEYS).map(|shard| shard.to_be_bytes().to_vec()).collect();
    let options = Options {
        name: Some("db".to_owned()),
        storage: (!matches!(mode, "memory" | "copies")).then(|| storage.clone()),
        register: (mode == "copies").then_some(storage),
        durability: durability(mode),
        shards: KEYS as usize,
        shard_bounds: ShardBounds::Given(bounds),
        // Flushes and compactions all the time.
        write_buffer_bytes: 64 << 10,
        target_table_bytes: 64 << 10,
        level1_bytes: 256 << 10,
        takeover: true,
        ..Options::default()
    };
    match memory {
        "local" => Store::embedded(128 << 20, options).unwrap(),
        addresses => {
            let addresses = addresses.split(',').map(|address| address.parse::<NodeAddress>().unwrap());
            Store::connect_all(&addresses.collect::<Vec<_>>(), options).unwrap()
        }
    }
}

/// The key of a number in a shard. One batch writes all keys of a number.
fn key(shard: u64, number: u64) -> Vec<u8> {
    [shard.to_be_bytes(), number.to_be_bytes()].concat()
}

/// Writes until it is killed, or loses its memory node.
fn child(plan: &str) -> Result<(), forebay::Error> {
    let [mode, url, memory, first] = plan.split(' ').collect::<Vec<_>>()[..] else { panic!("{plan}") };
    // Everything else that the storage needs is in the environment.
    let store = open(mode, Storage::open(url, StorageOptions::default()).unwrap(), memory);
    println!("open");
    let value = [7; 100];
    for number in first.parse::<u64>().unwrap().. {
        let mut batch = WriteBatch::new();
        for shard in 0..KEYS {
            batch.put(&key(shard, number), &value);
        }
        // Some raised writes acknowledge all writes before them.
        let is_raised = mode == "interval" && number % 50 == 0;
        let raised = is_raised.then_some(Durability::Storage(Syncing::Sync));
        store.write_with(&batch, &WriteOptions { durability: raised })?;
        match mode {
            "flush" if number % 400 == 0 => store.flush()?,
            "interval" if !is_raised => continue,
            "appended" if number % 10 > 0 => continue,
            "appended" => wait_appended(&store, KEYS * number),
            "flush" => continue,
            _ => {}
        }
        println!("durable {number}");
    }
    Ok(())
}

/// Waits until the log has been given this many records.
fn wait_appended(store: &Store, records: u64) {
    let clock = SystemClock::new();
    while store.statistics().log.records < records {
        assert!(clock.now() < 60_000_000_000, "{:?}", store.statistics().log);
        clock.sleep(Duration::from_millis(1));
    }
}

/// Not a test of its own: the other tests start it.
#[test]
fn runs_as_a_child() {
    if let Ok(plan) = std::env::var(PLAN) {
        // The child ends when its memory node is gone.
        println!("ended {:?}", child(&plan).map_err(|error| error.kind()));
        std::process::exit(0);
    }
}

/// What is done to a writer after this many further lines.
type Step<'s> = (u64, Box<dyn FnOnce(&mut Child) + 's>);

struct Writer {
    child: Child,
    durable: u64,
    /// Whether the writer has opened the database, so that its lines count.
    is_open: bool,
    /// The error that the writer met.
    ended: Option<String>,
}

impl Writer {
    /// Starts a writer under a durability, from this number on.
    fn start(mode: &str, place: &Place, part: &str, memory: &str, first: u64) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "durable::runs_as_a_child", "--nocapture"]).envs(place.variables());
        command.env(PLAN, format!("{mode} {} {memory} {first}", place.url(part)));
        Self { child: command.stdout(Stdio::piped()).spawn().unwrap(), durable: 0, is_open: false, ended: None }
    }

    /// Reads this many lines, calls `end`, and reads the lines until it took effect. The writer may still be opening the
    /// database then.
    fn until_ended(mut self, lines: u64, end: impl FnOnce(&mut Child)) -> u64 {
        self.is_open = true;
        self.through(vec![(lines, Box::new(end))]).durable
    }

    /// Once the database is open: calls each of `steps` after its number of further lines, and reads the lines until the
    /// last one took effect. (A writer that is stopped before it has opened the database takes it over when it
    /// continues.)
    fn through(mut self, steps: Vec<Step<'_>>) -> Self {
        let mut steps = steps.into_iter();
        let mut step = steps.next();
        let out = BufReader::new(self.child.stdout.take().unwrap());
        for line in out.lines().map_while(Result::ok) {
            if let Some(number) = line.split("durable ").nth(1).and_then(|text| text.trim().parse().ok()) {
                self.durable = number;
            }
            self.ended = self.ended.or_else(|| line.split("ended ").nth(1).map(str::to_owned));
            self.is_open |= line.ends_with("open");
            if let Some((lines, _)) = step.as_mut().filter(|_| self.is_open) {
                *lines = lines.saturating_sub(1);
            }
            if let Some((_, step)) = step.take_if(|(lines, _)| *lines == 0) {
                step(&mut self.child);
            }
            step = step.or_else(|| steps.next());
        }
        assert!(step.is_none(), "the writer ended by itself");
        self.child.wait().unwrap();
        self
    }
}

/// Checks that all numbers up to some number not below `durable` are there, each in all shards, and none after it;
/// returns that number.
fn check(store: &Store, durable: u64, is_whole: bool, what: &str) -> u64 {
    let mut last = [0; KEYS as usize];
    let mut entries = store.iter().unwrap();
    entries.seek_to_first().unwrap();
    while entries.valid() {
        let (shard, number) = entries.key().split_at(8);
        let shard = u64::from_be_bytes(shard.try_into().unwrap()) as usize;
        let number = u64::from_be_bytes(number.try_into().unwrap());
        assert_eq!(number, last[shard] + 1, "{what}: a hole in shard {shard}");
        assert_eq!(entries.value(), [7; 100]);
        last[shard] = number;
        entries.next().unwrap();
    }
    let (least, most) = (*last.iter().min().unwrap(), *last.iter().max().unwrap());
    assert!(least >= durable, "{what}: {durable} was durable, and {last:?} are there");
    assert!(!is_whole || least == most, "{what}: a part of a batch is there: {last:?}");
    // Where batches over shards are not atomic, the next writer completes partial batches.
    least
}

fn rounds() -> u64 {
    std::env::var("FOREBAY_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap())
}

/// Most lines of a writer in one round. A server takes longer for each than a folder does.
fn most_lines(mode: &str, place: &Place) -> u64 {
    let lines = if mode == "sync" { 800 } else { 60 };
    if place.is_served() { lines / 20 } else { lines }
}

/// Kills writers, and reads what they had acknowledged in another process.
fn kills(mode: &str, is_whole: bool, place: &Place, rounds: u64) {
    let mut random = Random::seeded(mode.len() as u64);
    let mut next = 1;
    for round in 0..rounds {
        // The records in the log are counted from the first one on.
        let rounds_of_one = if mode == "appended" { 1 } else { ROUNDS_OF_ONE };
        let part = format!("{PART}/{mode}/{}", round / rounds_of_one);
        if mode == "memory" || round % rounds_of_one == 0 {
            next = 1;
        }
        // Memory that ends with the process, a node that survives, or a node that is killed instead of the process.
        let kind = if mode == "memory" { 1 } else { random.below(3) };
        let node = (kind > 0).then(|| start_node(&places()[0], "--memory=128MiB"));
        let memory = node.as_ref().map_or("local".to_owned(), |(_, address)| address.clone());
        let what = format!("{mode}, round {round}, kind {kind}");
        let lines = 1 + random.below(most_lines(mode, place));
        let writer = Writer::start(mode, place, &part, &memory, next);
        let durable = writer.until_ended(lines, |child| match (kind, &node) {
            (2, Some((node, _))) => node.signal(Signal::KILL),
            _ => child.kill().unwrap(),
        });
        let reads_from = if mode == "memory" { memory.as_str() } else { "local" };
        let store = open(mode, place.open(&part), reads_from);
        println!("{what}: {durable} durable, {:?}", store.recovery());
        let found = check(&store, durable.max(next - 1), is_whole, &what);
        next = found + 1;
        store.close().unwrap();
    }
}

#[test]
fn killed_with_durability_memory() {
    // In this mode batches over shards are not atomic.
    kills("memory", false, &Place::folder(), rounds());
}

#[test]
fn killed_with_durability_storage_sync() {
    kills("sync", true, &Place::folder(), rounds());
}

#[test]
fn killed_with_durability_storage_interval() {
    kills("interval", true, &Place::folder(), rounds());
}

/// A process that is killed loses what it wrote in the last milliseconds, though the next sync may be an hour away.
#[test]
fn killed_between_syncs_of_an_interval() {
    kills("appended", true, &Place::folder(), rounds());
}

#[test]
fn killed_with_durability_storage_flush() {
    kills("flush", false, &Place::folder(), rounds());
}

/// A writer is stopped at any moment, another process opens its database, and the first one continues. Everything that
/// the first one acknowledged is there. It changes nothing any more, and is told so, and the other process continues.
fn stops(place: &Place, rounds: u64) {
    let mut random = Random::seeded(15);
    for round in 0..rounds {
        let mode = ["sync", "sync", "interval", "flush"][random.below(4) as usize];
        let is_whole = mode != "flush";
        // Each with its own memory, or both with a node's.
        let node = random.one_in(1, 2).then(|| start_node(&places()[0], "--memory=128MiB"));
        let memory = node.as_ref().map_or("local", |(_, address)| address);
        let what = format!("round {round}, {mode}, memory {memory}");
        let part = format!("stopped/{round}");
        let (mut found, mut store) = (0, None);
        let steps: Vec<Step<'_>> = vec![(
            1 + random.below(most_lines(mode, place)),
            Box::new(|child| {
                assert!(signal(child, Signal::STOP), "it has ended by itself");
                let opened = store.insert(open(mode, place.open(&part), memory));
                found = check(opened, 0, is_whole, &what);
                signal(child, Signal::CONT);
            }),
        )];
        let Writer { durable, ended, .. } = Writer::start(mode, place, &part, memory, 1).through(steps);
        assert!(durable <= found, "{what}: {durable} acknowledged, {found} found");
        assert_eq!(ended.as_deref(), Some("Err(Fenced)"), "{what}");
        let store = store.unwrap();
        assert_eq!(check(&store, durable, is_whole, &what), found, "{what}");
        for number in found + 1..found + 20 {
            let mut batch = WriteBatch::new();
            for shard in 0..KEYS {
                batch.put(&key(shard, number), &[7; 100]);
            }
            store.write(&batch).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        store.sync().unwrap();
        // With `flush`, a shard may have been ahead by more than this.
        assert_eq!(check(&store, found + 19, is_whole, &what), found + 19, "{what}");
        store.close().unwrap();
    }
}

#[test]
fn a_stopped_owner_of_a_folder_continues() {
    stops(&Place::folder(), rounds());
}

/// Kills under each durability of storage. A server takes longer for each write than a folder does.
fn kills_beside(place: &Place, rounds: u64) {
    for (mode, is_whole) in [("sync", true), ("interval", true), ("flush", false)] {
        kills(mode, is_whole, place, rounds);
    }
}

/// A server takes seconds to start, so one serves both.
fn kills_and_stops_beside(place: &Place, rounds: u64) {
    kills_beside(place, rounds);
    stops(place, rounds);
}

#[test]
fn killed_and_stopped_beside_s3() {
    kills_and_stops_beside(&Place::moto(), rounds().div_ceil(3));
}

#[test]
fn killed_and_stopped_beside_hdfs() {
    kills_and_stops_beside(&Place::hdfs(), rounds().div_ceil(10));
}

#[test]
fn killed_beside_s3_of_seaweedfs() {
    kills_beside(&Place::seaweedfs(), rounds().div_ceil(10));
}

/// Of the servers, this one takes the least time for a write. So there is one round here for each in a folder.
#[test]
fn a_stopped_owner_beside_s3_of_seaweedfs_continues() {
    stops(&Place::seaweedfs(), rounds());
}

/// Two memory nodes that have copies, and the place of the register.
struct Copies {
    register: Place,
    nodes: Vec<(Running, String)>,
}

impl Copies {
    fn start() -> Self {
        let nodes = (0..2).map(|at| start_node(&places()[at], "--memory=128MiB")).collect();
        Self { register: Place::folder(), nodes }
    }

    fn writer(&self) -> Writer {
        Writer::start("copies", &self.register, PART, &self.addresses(), 1)
    }

    fn addresses(&self) -> String {
        self.nodes.iter().map(|(_, address)| address.as_str()).collect::<Vec<_>>().join(",")
    }

    /// Opens the database in this process. It also names nodes that were killed.
    fn open(&self) -> Store {
        open("copies", self.register.open(PART), &self.addresses())
    }
}

#[test]
fn killed_with_two_copies() {
    let mut random = Random::seeded(11);
    for round in 0..rounds() {
        let copies = Copies::start();
        let durable = copies.writer().until_ended(1 + random.below(100), |child| child.kill().unwrap());
        check(&copies.open(), durable, false, &format!("round {round}"));
    }
}

#[test]
fn one_memory_node_of_two_is_killed_and_service_goes_on() {
    let mut random = Random::seeded(12);
    for round in 0..rounds() {
        let copies = Copies::start();
        let lost = random.below(2) as usize;
        let kill_node = |_: &mut Child| copies.nodes[lost].0.signal(Signal::KILL);
        let kill_process = |child: &mut Child| child.kill().unwrap();
        let steps: Vec<Step<'_>> = vec![(1 + random.below(60), Box::new(kill_node)), (200, Box::new(kill_process))];
        let durable = copies.writer().through(steps).durable;
        assert!(durable >= 200);
        check(&copies.open(), durable, false, &format!("round {round}, node {lost}"));
    }
}

#[test]
fn the_process_and_one_memory_node_of_two_are_killed() {
    let mut random = Random::seeded(13);
    for round in 0..rounds() {
        let copies = Copies::start();
        let lost = random.below(2) as usize;
        let is_node_first = random.one_in(1, 2);
        // Before the database is there, both nodes are needed to create it.
        let kill_both = |child: &mut Child| {
            if !is_node_first {
                child.kill().unwrap();
            }
            copies.nodes[lost].0.signal(Signal::KILL);
            child.kill().unwrap();
        };
        let durable = copies.writer().through(vec![(1 + random.below(100), Box::new(kill_both))]).durable;
        check(&copies.open(), durable, false, &format!("round {round}, node {lost}"));
    }
}

/// Memory of a dead node stays mapped here and takes writes. Once anybody can know that the node is dead, no write is
/// acknowledged there any more, whether or not this process has noticed.
#[test]
fn nothing_is_acknowledged_at_a_memory_node_that_is_dead() {
    for round in 0..rounds() {
        let folder = Place::folder();
        let (node, address) = start_node(&places()[0], "--memory=256MiB");
        let store = open("memory", folder.open(PART), &address);
        let acknowledged = AtomicU64::new(0);
        let (when_dead, last) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for number in 0.. {
                    if store.put(&key(0, number), &[7; 100]).is_err() {
                        return acknowledged.load(Ordering::Relaxed);
                    }
                    acknowledged.store(number + 1, Ordering::Release);
                }
                0
            });
            while acknowledged.load(Ordering::Acquire) < 100 * (round % 10 + 1) {
                std::thread::yield_now();
            }
            // Returns when the node is gone.
            drop(node);
            (acknowledged.load(Ordering::Acquire), writer.join().unwrap())
        });
        // One write may have been confirmed before the node died, and counted after.
        assert!(last <= when_dead + 1, "round {round}: {last} acknowledged, {when_dead} when the node was dead");
    }
}

#[test]
fn a_stopped_owner_of_copies_continues() {
    let mut random = Random::seeded(14);
    for round in 0..rounds() {
        let what = format!("round {round}");
        let copies = Copies::start();
        // The next owner may know one of the nodes only.
        let known = ["both", "first", "second"][random.below(3) as usize];
        let mut found = 0;
        let mut store = None;
        // After its first lines, the writer owns the database.
        let durable = copies.writer().until_ended(3 + random.below(58), |child| {
            assert!(signal(child, Signal::STOP), "it has ended by itself");
            let addresses = match known {
                "first" => copies.nodes[0].1.clone(),
                "second" => copies.nodes[1].1.clone(),
                _ => copies.addresses(),
            };
            let opened = store.insert(open("copies", copies.register.open(PART), &addresses));
            found = check(opened, 0, false, &what);
            signal(child, Signal::CONT);
        });
        // The writer has acknowledged nothing that the next owner does not have, and changes nothing any more.
        assert!(durable <= found, "{what}, {known} known: {durable} acknowledged, {found} found");
        let store = store.unwrap();
        assert_eq!(check(&store, durable, false, &what), found, "{what}");
        store.put(&key(0, found + 1), &[7; 100]).unwrap();
    }
}

#[test]
fn the_command_keeps_copies() {
    let copies = Copies::start();
    let flags = format!(
        "--db=copies --num=5000 --value_size=100 --write_buffer_size=256KiB --verify=true --format=json --durability=memory=2 \
         --register={}",
        copies.register.url(PART)
    );
    let bench = |memory: &str, rest: &str| run(&format!("bench {flags} --memory={memory} {rest}"));
    let filled = bench(&copies.addresses(), "--benchmarks=fillseq,compact").expect(0).json();
    assert_eq!(filled["benchmarks"][0]["log"]["records"], 5000, "{filled}");
    copies.nodes[0].0.signal(Signal::KILL);
    let read = bench(&copies.addresses(), "--use_existing_db --benchmarks=readrandom").expect(0).json();
    assert_eq!(read["benchmarks"][0]["found"], 5000, "{read}");
    // Other commands also work, and find the database by its register.
    let place = format!("--memory={} --db=copies --register={}", copies.addresses(), copies.register.url(PART));
    let (file, dumped) = (crate::common::fresh_path(".checkpoint"), crate::common::fresh_path(".tsv"));
    let told = run(&format!("dump {place} {}", dumped.display())).expect(0).out;
    assert!(told.contains("5000 keys"), "{told}");
    run(&format!("verify {place}")).expect(0);
    run(&format!("checkpoint {place} {}", file.display())).expect(0);
    run(&format!("load {place} --durability=memory=2 {}", dumped.display())).expect(0);
    // One node cannot have two copies.
    let wrong = run("bench --num=10 --db=x --durability=memory=2");
    assert!(matches!(wrong.code, Some(2 | 3)), "{wrong:?}");
}

#[test]
fn copies_without_a_register_need_most_of_their_nodes() {
    let copies = Copies::start();
    let flags = format!("--memory={} --db=frail --num=100 --durability=memory=2", copies.addresses());
    let created = run(&format!("bench {flags} --benchmarks=fillseq")).expect(0);
    let warning = "survives the loss of 0 of its 2 memory nodes, not of 1";
    assert_eq!(created.error.matches(warning).count(), 1, "{created:?}");
    let opened = run(&format!("bench {flags} --benchmarks=readseq --use_existing_db")).expect(0);
    assert!(!opened.error.contains("warning"), "{opened:?}");
    let few = run(&format!("load --memory={} --db=few --durability=memory=2 /dev/null", copies.nodes[0].1)).expect(2);
    let right = "2 copies need as many memory nodes, not 1";
    assert!(few.error.contains(right) && !few.error.contains("warning"), "{few:?}");
    let refused = run(&format!("load --memory={} --db=frail /dev/null", copies.addresses())).expect(2);
    let right = "copies of 2, not 1: open it with that number (--durability=memory=2)";
    assert!(refused.error.contains(right), "{refused:?}");
    copies.nodes[0].0.signal(Signal::KILL);
    let place = format!("--memory={} --db=frail", copies.addresses());
    let refused = run(&format!("dump {place}")).expect(3);
    assert!(refused.error.contains("more than half") && !refused.error.contains("running"), "{refused:?}");
    // Three nodes keep the promise of two copies.
    let nodes: Vec<_> = (0..3).map(|_| start_node(&places()[0], "--memory=256MiB")).collect();
    let addresses = nodes.iter().map(|(_, address)| address.as_str()).collect::<Vec<_>>().join(",");
    let created = run(&format!("bench --memory={addresses} --db=firm --num=100 --durability=memory=2")).expect(0);
    assert!(!created.error.contains("warning"), "{created:?}");
    // A node that hangs is not waited for.
    nodes[0].0.signal(Signal::STOP);
    run(&format!("dump --memory={addresses} --db=firm")).expect(0);
    nodes[0].0.signal(Signal::CONT);
}

/// Each of three memory nodes hangs past its lease, or is killed and started again, and nobody tells the server. More
/// than half of the nodes decide which copies count.
#[test]
fn a_server_takes_memory_nodes_back() {
    let flags = "--memory=256MiB --lease=3s";
    let started = (0..3).map(|at| start_node(&places()[at % 2], flags));
    let (mut nodes, addresses): (Vec<_>, Vec<_>) = started.map(|(node, address)| (Some(node), address)).unzip();
    let mut server = start(&format!(
        "serve --listen=127.0.0.1:0 --admin=127.0.0.1:0 --db=served --shards=1 --durability=memory=3 --memory={}",
        addresses.join(",")
    ));
    let admin = admin_of(&mut server);
    let port = server.out().lines().next().unwrap().rsplit(':').next().unwrap().to_owned();
    let set = |number: &str| assert_eq!(redis(&port, &["set", number, number]), "OK");
    let until_missing = |copies: f64| {
        for _ in 0..600 {
            let metrics = get(&admin, "/metrics");
            if value(&metrics, "forebay_missing_copies") == copies {
                return metrics;
            }
            server.pause(Duration::from_millis(100));
        }
        panic!("waited too long for {copies} missing copies: {}", server.problem());
    };
    set("first");
    for (at, kept) in ["0", "1", "2"].into_iter().enumerate() {
        nodes[at].as_ref().unwrap().signal(Signal::STOP);
        until_missing(1.0);
        set(kept);
        nodes[at].as_ref().unwrap().signal(Signal::CONT);
        until_missing(0.0);
        set("whole");
    }
    // The node is gone with its socket and its vote. Each node votes again after its restart.
    for (at, killed) in [(1, "killed"), (0, "next"), (2, "last"), (1, "again")] {
        drop(nodes[at].take());
        until_missing(1.0);
        set(killed);
        nodes[at] = Some(start_node(&addresses[at], flags).0);
        let metrics = until_missing(0.0);
        assert!(value(&metrics, "forebay_memory_node_memory_bytes{node=\"1\"}") > 0.0);
        set("back");
    }
    for key in ["first", "0", "1", "2", "killed", "next", "last", "again", "back"] {
        assert_eq!(redis(&port, &["get", key]), key);
    }
    server.signal(Signal::TERM);
    server.wait_stopped();
}

/// The server has one copy of everything in memory. A node is killed and started again; then one is gone for good.
#[test]
fn a_server_opens_its_database_again_when_memory_is_lost() {
    let folder = Place::folder();
    let started = (0..2).map(|at| start_node(&places()[at], "--memory=128MiB"));
    let (mut nodes, addresses): (Vec<_>, Vec<_>) = started.map(|(node, address)| (Some(node), address)).unzip();
    let mut server = start(&format!(
        "serve --listen=127.0.0.1:0 --admin=127.0.0.1:0 --db=served --durability=storage=interval:1s --storage={} --memory={}",
        folder.url(PART),
        addresses.join(",")
    ));
    let admin = admin_of(&mut server);
    let port = server.out().lines().next().unwrap().rsplit(':').next().unwrap().to_owned();
    let fill = |first: u64| {
        let pairs: Vec<_> = (first..first + 200).flat_map(|key| [key.to_string(), "a".repeat(1000)]).collect();
        let words: Vec<_> = std::iter::once("mset").chain(pairs.iter().map(String::as_str)).collect();
        assert_eq!(redis(&port, &words), "OK");
    };
    let until = |is_there: &dyn Fn() -> bool| {
        while !is_there() {
            assert!(server.age() < Duration::from_secs(120), "waited too long: {}", server.problem());
            server.pause(Duration::from_millis(50));
        }
    };
    let until_ready = |ready: f64| until(&|| value(&get(&admin, "/metrics"), "forebay_ready") == ready);
    fill(0);
    assert_eq!(redis(&port, &["config", "set", "slowlog-max-len", "7"]), "OK");
    drop(nodes[0].take());
    until_ready(0.0);
    nodes[0] = Some(start_node(&addresses[0], "--memory=256MiB").0);
    until_ready(1.0);
    assert_eq!(redis(&port, &["config", "get", "slowlog-max-len"]), "slowlog-max-len\n7");
    fill(200);
    drop(nodes[1].take());
    until_ready(0.0);
    until_ready(1.0);
    let log = server.problem();
    assert!(log.contains("the others are left out until the next start"), "{log}");
    assert!(log.matches("cannot be opened again yet").count() < 20, "{log}");
    fill(400);
    assert_eq!(redis(&port, &["dbsize"]), "600");
    assert_eq!(redis(&port, &["strlen", "7"]), "1000");
    // No node is left.
    drop(nodes[0].take());
    until(&|| get(&admin, "/api/status").contains("it opens its database again"));
    // Certificates that are renewed meanwhile are read, where there are some.
    server.signal(Signal::HUP);
    until(&|| server.problem().contains("there is nothing to read again"));
    // Nothing is open, so it need not wait until an attempt has failed.
    server.signal(Signal::TERM);
    let ended = server.wait();
    assert_eq!(ended.code, None, "{ended:?}");
}

#[test]
fn dropping_says_which_memory_node_may_hold_a_copy_still() {
    let copies = Copies::start();
    let place = format!("--memory={} --db=dropped --register={}", copies.addresses(), copies.register.url(PART));
    run(&format!("bench {place} --num=100 --durability=memory=2 --benchmarks=fillseq")).expect(0);
    copies.nodes[0].0.signal(Signal::KILL);
    let left = run(&format!("drop {place} --yes")).expect(3);
    assert!(left.error.contains(&copies.nodes[0].1) && !left.error.contains(&copies.nodes[1].1), "{left:?}");
    assert!(left.error.contains("Drop it again"), "{left:?}");
    // The remaining node has nothing of the database.
    let rest = format!("--memory={} --db=dropped --register={}", copies.nodes[1].1, copies.register.url(PART));
    assert_eq!(run(&format!("drop {rest} --yes")).expect(0).out, "dropped: dropped\n");
    run(&format!("drop {rest} --yes")).expect(1);
}

#[test]
fn the_command_keeps_databases_in_storage() {
    let folder = Place::folder();
    let flags = format!(
        "--num=20000 --value_size=100 --write_buffer_size=256KiB --verify=true --format=json --storage={}",
        folder.url(PART)
    );
    let bench = |rest: &str| run(&format!("bench {flags} {rest}"));
    assert_eq!(bench("--use_existing_db --benchmarks=readrandom").code, Some(1));
    let filled = bench("--durability=storage=flush --benchmarks=fillseq,compact").expect(0).json();
    let phase = &filled["benchmarks"][0];
    assert!(phase["storage"]["objects_written"].as_u64() > Some(0), "{phase}");
    assert!(phase["storage"]["bytes_written"].as_u64() > Some(0) && phase["storage"]["syncs"].as_u64() > Some(0));
    assert!(phase["log"].is_null(), "{phase}");
    let read = bench("--use_existing_db --benchmarks=readrandom,overwrite@1 --reads=2000").expect(0).json();
    let (reads, writes) = (&read["benchmarks"][0], &read["benchmarks"][1]);
    assert_eq!(reads["found"], 2000, "{read}");
    assert!(reads["recovery"]["segments_loaded"].as_u64() > Some(0), "{read}");
    // By default each write is synced.
    assert_eq!(writes["log"]["groups"], 20000, "{writes}");
    assert_eq!(writes["log"]["records_per_group"], 1.0, "{writes}");
    let table =
        run(&format!("bench --num=2000 --storage={} --db=other --durability=storage=interval:1s", folder.url(PART)));
    assert!(table.expect(0).out.contains("storage: "));
    for wrong in ["--durability=storage=sync", "--durability=storage=never --storage=memory:", "--storage=ftp://x"] {
        let ended = run(&format!("bench --num=10 {wrong}"));
        assert!(matches!(ended.code, Some(2 | 3)), "{ended:?}");
    }
}
