//! Two databases on storage, two memory nodes, three workers and a scheduler. All of them are processes that are killed,
//! or stopped and continued, at random. Every acknowledged write is there, storage is whole, and nothing is left over.
//! `FOREBAY_SECONDS=N` and `FOREBAY_SEED=N` say for how long and how.
//!
//! A database is this test's own program. It overwrites the same keys again and again, each batch over all shards with
//! the next number, and prints a line for each acknowledged batch. So the last number says what each key holds. The next
//! process that opens the database first checks all of it.

use crate::common::{Running, run_with, start_node, start_with};
use forebay::{
    CompactionPlace, Durability, ErrorKind, NodeAddress, Options, ShardBounds, Storage, StorageOptions, Store, Syncing,
    WriteBatch,
};
use forebay_env::sync::{Mutex, lock};
use forebay_env::thread::{JoinHandle, spawn};
use forebay_env::{Clock, Nanos, Random, SystemClock};
use forebay_storage_conformance::Place;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const PLAN: &str = "FOREBAY_POOL_PLAN";
const SECOND: Nanos = 1_000_000_000;
const SHARDS: u64 = 4;
/// Keys of a shard.
const SLOTS: u64 = 3000;
/// How long a database may take to open again, although the other processes are killed meanwhile.
const TO_OPEN: Nanos = 90 * SECOND;

fn addresses(list: &str) -> Vec<NodeAddress> {
    list.split(',').map(|address| address.parse().unwrap()).collect()
}

fn open(storage: &Storage, name: &str, memory: &str, scheduler: &str) -> Result<Store, forebay::Error> {
    let options = Options {
        name: Some(name.to_owned()),
        storage: Some(storage.clone()),
        storage_from_level: Some(1),
        durability: Durability::Storage(Syncing::Sync),
        shards: SHARDS as usize,
        shard_bounds: ShardBounds::Given((1..SHARDS).map(|shard| shard.to_be_bytes().to_vec()).collect()),
        // Flushes and compactions all the time.
        write_buffer_bytes: 64 << 10,
        target_table_bytes: 128 << 10,
        level1_bytes: 256 << 10,
        level_size_multiplier: 4,
        compaction_place: CompactionPlace::Pool,
        scheduler: Some(forebay::reach_scheduler(&addresses(scheduler), "database")),
        takeover: true,
        ..Options::default()
    };
    Store::connect_all(&addresses(memory), options)
}

fn key(shard: u64, number: u64) -> Vec<u8> {
    [shard.to_be_bytes(), (number % SLOTS).to_be_bytes()].concat()
}

fn value(number: u64) -> Vec<u8> {
    number.to_be_bytes().repeat(8 + (number % 24) as usize)
}

/// Checks that all shards hold the state of the same number, and returns the number.
fn check(store: &Store) -> Result<u64, forebay::Error> {
    let mut held = vec![vec![0; SLOTS as usize]; SHARDS as usize];
    let mut entries = store.iter()?;
    entries.seek_to_first()?;
    while entries.valid() {
        let (shard, slot) = entries.key().split_at(8);
        let [shard, slot] = [shard, slot].map(|part| u64::from_be_bytes(part.try_into().unwrap()));
        let number = u64::from_be_bytes(entries.value()[..8].try_into().unwrap());
        assert_eq!((number % SLOTS, entries.value()), (slot, &value(number)[..]), "shard {shard}, number {number}");
        held[shard as usize][slot as usize] = number;
        entries.next()?;
    }
    let last = held[0].iter().copied().max().unwrap();
    for (shard, held) in held.iter().enumerate() {
        for (slot, &number) in held.iter().enumerate() {
            let age = (last + SLOTS - slot as u64) % SLOTS;
            assert_eq!(number, last.saturating_sub(age), "shard {shard} of {last} numbers, slot {slot}");
        }
    }
    Ok(last)
}

/// Follows the plan until it is killed, told to end, or has lost its memory nodes.
fn child(plan: &str) -> Result<(), forebay::Error> {
    let [what, storage, name, memory, scheduler] = plan.split(' ').collect::<Vec<_>>()[..] else { panic!("{plan}") };
    let storage = Storage::open(storage, StorageOptions::default()).unwrap();
    if what == "destroy" {
        return Store::destroy_stored(&storage, &addresses(memory), name);
    }
    let store = open(&storage, name, memory, scheduler)?;
    let last = check(&store)?;
    println!("found {last}");
    // The parent closes the other end to end the child, or is gone.
    let is_to_end = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_to_end);
    let waits = spawn("waits", move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        told.store(true, Ordering::Relaxed);
    });
    waits.unwrap();
    let clock = SystemClock::new();
    for number in last + 1.. {
        if is_to_end.load(Ordering::Relaxed) {
            break;
        }
        if what == "sweep" {
            clock.sleep(Duration::from_millis(10));
            continue;
        }
        let mut batch = WriteBatch::new();
        for shard in 0..SHARDS {
            batch.put(&key(shard, number), &value(number));
        }
        store.write(&batch)?;
        println!("durable {number}");
    }
    store.flush()?;
    store.wait_for_compactions()?;
    check(&store)?;
    let counted = store.statistics();
    let offloaded = counted.offloaded_compactions + counted.offloaded_copies;
    store.close()?;
    println!("closed {offloaded}");
    Ok(())
}

/// Not a test of its own: the other tests start it.
#[test]
fn runs_as_a_child() {
    if let Ok(plan) = std::env::var(PLAN) {
        match child(&plan) {
            Ok(()) => println!("done"),
            Err(error) => println!("ended {:?} {error}", error.kind()),
        }
        std::process::exit(0);
    }
}

/// What a child has said.
#[derive(Debug, Default)]
struct Said {
    found: Option<u64>,
    durable: u64,
    closed: Option<u64>,
    is_done: bool,
    ended: Option<String>,
}

/// A child that runs, and the thread that hears it.
struct Life {
    child: Child,
    said: Arc<Mutex<Said>>,
    listener: Option<JoinHandle<()>>,
}

impl Life {
    fn start(plan: &str, variables: &[(String, String)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "pool::runs_as_a_child", "--nocapture"]).env(PLAN, plan);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = Arc::<Mutex<Said>>::default();
        let (out, heard) = (BufReader::new(child.stdout.take().unwrap()), Arc::clone(&said));
        let listener = spawn("listener", move || {
            for line in out.lines().map_while(Result::ok) {
                let number = |word: &str| line.strip_prefix(word).and_then(|text| text.trim().parse().ok());
                let mut said = lock(&heard);
                said.found = said.found.or_else(|| number("found"));
                said.durable = number("durable").unwrap_or(said.durable);
                said.closed = said.closed.or_else(|| number("closed"));
                said.is_done |= line == "done";
                said.ended = said.ended.take().or_else(|| line.strip_prefix("ended ").map(str::to_owned));
            }
        });
        Self { child, said, listener: Some(listener.unwrap()) }
    }

    fn signal(&self, signal: Signal) {
        // The child may have ended by itself.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end, and returns what it said.
    fn wait(&mut self) -> Said {
        drop(self.child.stdin.take());
        let status = self.child.wait().unwrap();
        assert!(status.code().is_none_or(|code| code == 0), "{status}: see above");
        if let Some(listener) = self.listener.take() {
            listener.join().unwrap();
        }
        std::mem::take(&mut lock(&self.said))
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A database, through all of its lives.
struct Database {
    plan: String,
    life: Option<Life>,
    durable: u64,
    lives: u64,
    offloaded: u64,
    /// When it was last seen open, and how it tried to open since.
    open_at: Nanos,
    tries: Vec<String>,
    /// When its life began.
    begun_at: Nanos,
}

impl Database {
    /// Records how a life ended.
    fn ended(&mut self, said: Said) {
        if let Some(found) = said.found {
            assert!(found >= self.durable, "{}: {} was acknowledged, {found} is there", self.plan, self.durable);
            self.lives += 1;
        }
        self.durable = self.durable.max(said.durable);
        self.offloaded += said.closed.unwrap_or(0);
        // The errors that a process may meet when its memory nodes or its storage's owner change.
        let lost = [ErrorKind::Unavailable, ErrorKind::TimedOut, ErrorKind::Busy, ErrorKind::Fenced, ErrorKind::Full];
        let is_explained = |text: &str| lost.iter().any(|kind| text.starts_with(&format!("{kind:?}")));
        assert!(said.ended.as_deref().is_none_or(is_explained), "{}: {:?}", self.plan, said.ended);
    }

    /// Starts it again if it has ended.
    fn look(&mut self, world: &World) {
        let now = world.clock.now();
        if self.life.as_ref().is_some_and(|life| lock(&life.said).found.is_some()) {
            self.open_at = now;
            self.tries.clear();
        }
        assert!(now - self.open_at < TO_OPEN, "{} has not opened for long: {:#?}", self.plan, self.tries);
        if self.life.as_mut().is_some_and(Life::has_ended)
            && let Some(mut life) = self.life.take()
        {
            let said = life.wait();
            let milliseconds = (now - self.begun_at) / 1_000_000;
            let end = said.ended.as_deref().unwrap_or("killed");
            self.tries.push(format!("within {milliseconds} ms: {end}"));
            self.ended(said);
        }
        if self.life.is_none() {
            self.life = Some(Life::start(&self.plan, &world.variables));
            self.begun_at = now;
        }
    }
}

struct World {
    clock: SystemClock,
    random: Random,
    storage: String,
    variables: Vec<(String, String)>,
    nodes: Vec<(Running, String)>,
    scheduler: (Running, String),
    workers: Vec<Running>,
}

const NODE: &str = "--memory=192MiB --threads=1 --lease=1s --lazy";

impl World {
    fn start(seed: u64, place: &Place) -> Self {
        let nodes: Vec<_> = (0..2).map(|_| start_node("tcp://127.0.0.1:0", NODE)).collect();
        let mut scheduler = start_with(&scheduler_line("tcp://127.0.0.1:0", &nodes[0].1), &[]);
        let address = scheduler.until(|out| out.ends_with('\n')).trim_start_matches("ready ").trim().to_owned();
        let (clock, random, workers) = (SystemClock::new(), Random::seeded(seed), Vec::new());
        let storage = place.url("pool");
        let variables = place.variables().map(|(name, value)| (name, value.to_owned())).collect();
        let mut world = Self { clock, random, storage, variables, nodes, scheduler: (scheduler, address), workers };
        world.workers = (0..3).map(|_| world.worker()).collect();
        world
    }

    fn memory(&self) -> String {
        self.nodes.iter().map(|(_, address)| address.as_str()).collect::<Vec<_>>().join(",")
    }

    fn plan(&self, what: &str, name: &str) -> String {
        format!("{what} {} {name} {} {}", self.storage, self.memory(), self.scheduler.1)
    }

    fn forebay(&self, line: &str) -> Running {
        let variables: Vec<_> = self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        start_with(line, &variables)
    }

    /// A worker ends at once while a node is being started: then another one is started soon.
    fn worker(&self) -> Running {
        let line = "worker --threads 2 --memory";
        self.forebay(&format!("{line} {} --scheduler {} --storage {}", self.memory(), self.scheduler.1, self.storage))
    }

    /// Starts again whatever has ended.
    fn look(&mut self) {
        for at in 0..self.workers.len() {
            if self.workers[at].has_ended() {
                self.workers[at] = self.worker();
            }
        }
    }

    /// Kills or stops a process.
    fn strike(&mut self, databases: &mut [Database]) {
        let nap = Duration::from_millis(self.random.below(1500));
        let is_stop = self.random.one_in(1, 2);
        match self.random.below(20) {
            at @ 0..=8 => {
                let worker = &self.workers[at as usize % 3];
                if is_stop {
                    worker.signal(Signal::STOP);
                    self.clock.sleep(nap);
                    worker.signal(Signal::CONT);
                } else {
                    worker.signal(Signal::KILL);
                }
            }
            9..=11 => {
                if is_stop {
                    self.scheduler.0.signal(Signal::STOP);
                    self.clock.sleep(nap);
                    self.scheduler.0.signal(Signal::CONT);
                } else {
                    end(&mut self.scheduler.0);
                    self.scheduler.0 = start_with(&scheduler_line(&self.scheduler.1, &self.nodes[0].1), &[]);
                }
            }
            at @ 12..=17 => {
                let Some(life) = &databases[at as usize % 2].life else { return };
                if is_stop {
                    life.signal(Signal::STOP);
                    self.clock.sleep(nap);
                    life.signal(Signal::CONT);
                } else {
                    life.signal(Signal::KILL);
                }
            }
            at => {
                let (node, address) = &mut self.nodes[at as usize % 2];
                if is_stop {
                    node.signal(Signal::STOP);
                    self.clock.sleep(nap);
                    node.signal(Signal::CONT);
                } else {
                    // The node comes back empty.
                    end(node);
                    *node = start_node(address, NODE).0;
                }
            }
        }
    }

    /// What `verify` finds in a database.
    fn verify(&self, name: &str) -> serde_json::Value {
        let variables: Vec<_> = self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let line = format!("verify --storage {} --db {name} --format json", self.storage);
        run_with(&line, &variables).expect(0).json()
    }

    /// Opens a database until nothing is left that no version names, and returns its last number. An owner deletes such
    /// objects when it opens. Objects that a stopped or slow worker writes after that are left to the next owner.
    fn sweep(&self, name: &str) -> u64 {
        let mut report = serde_json::Value::Null;
        for _ in 0..5 {
            let mut life = Life::start(&self.plan("sweep", name), &self.variables);
            for _ in 0..150 {
                self.clock.sleep(Duration::from_millis(20));
                report = self.verify(name);
                if lock(&life.said).found.is_some() && report["checked"][0]["orphans"] == 0 {
                    break;
                }
            }
            let said = life.wait();
            let (Some(_), Some(found)) = (said.closed, said.found) else { panic!("{said:?}") };
            if report["checked"][0]["orphans"] == 0 {
                return found;
            }
        }
        panic!("something is left in {name}: {report}");
    }

    /// Drops a database. The session that had it open may not have ended yet.
    fn destroy(&self, name: &str) {
        let mut said = Said::default();
        for _ in 0..100 {
            said = Life::start(&self.plan("destroy", name), &self.variables).wait();
            if said.is_done {
                return;
            }
            self.clock.sleep(Duration::from_millis(100));
        }
        panic!("{name} cannot be dropped: {said:?}");
    }

    /// Waits until nothing of databases is left on a node; `stores` are those of schedulers.
    fn expect_swept(&self, address: &str, stores: u64) {
        let mut last = String::new();
        for _ in 0..500 {
            let used = crate::common::run(&format!("tenants --memory {address} --format json")).expect(0).json();
            let tenant = &used["tenants"][0];
            let figures = ["memory_bytes", "ranges", "keys", "jobs"];
            if figures.iter().all(|figure| tenant[figure] == 0) && tenant["stores"] == stores {
                return;
            }
            last = tenant.to_string();
            self.clock.sleep(Duration::from_millis(20));
        }
        panic!("something is left at {address}: {last}");
    }
}

fn scheduler_line(listen: &str, memory: &str) -> String {
    format!("scheduler --listen {listen} --memory {memory} --placement away")
}

fn end(running: &mut Running) {
    running.signal(Signal::KILL);
    while !running.has_ended() {
        running.pause(Duration::from_millis(1));
    }
}

fn number_in(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

fn kills(place: &Place, seconds: u64) {
    let seed = number_in("FOREBAY_SEED", 1);
    println!("seed {seed}, {seconds} seconds, {place:?}");
    let mut world = World::start(seed, place);
    let names = ["first", "second"];
    let now = world.clock.now();
    let mut databases = names.map(|name| Database {
        plan: world.plan("write", name),
        life: None,
        durable: 0,
        lives: 0,
        offloaded: 0,
        open_at: now,
        tries: Vec::new(),
        begun_at: now,
    });
    databases.iter_mut().for_each(|database| database.look(&world));
    let (until, mut strikes) = (now + seconds * SECOND, 0);
    // A storage server takes seconds to return a database's log.
    let longest_pause = if place.is_served() { 6000 } else { 600 };
    while world.clock.now() < until {
        let pause = Duration::from_millis(world.random.below(longest_pause));
        world.clock.sleep(pause);
        world.strike(&mut databases);
        strikes += 1;
        world.look();
        databases.iter_mut().for_each(|database| database.look(&world));
    }
    // From here on no process is disturbed. All data is there, and the processes end in good order.
    for (database, name) in databases.iter_mut().zip(names) {
        while database.offloaded == 0 {
            database.look(&world);
            world.look();
            world.clock.sleep(Duration::from_millis(20));
            let is_open = database.life.as_ref().is_some_and(|life| lock(&life.said).durable > 0);
            if is_open && let Some(mut life) = database.life.take() {
                let said = life.wait();
                database.ended(said);
            }
        }
        println!("{name}: {} acknowledged in {} lives, {strikes} strikes", database.durable, database.lives);
        let found = world.sweep(name);
        assert!(found >= database.durable, "{name}: {} was acknowledged, {found} is there", database.durable);
        let report = world.verify(name);
        assert_eq!(
            (&report["checked"][0]["orphans"], &report["checked"][0]["shards"]),
            (&0.into(), &SHARDS.into()),
            "{report}"
        );
        world.destroy(name);
    }
    world.workers.clear();
    world.expect_swept(&world.nodes[0].1, 1);
    world.expect_swept(&world.nodes[1].1, 0);
}

fn on_a_directory(seconds: u64) {
    kills(&Place::folder(), number_in("FOREBAY_SECONDS", seconds));
}

#[test]
fn everybody_is_killed_or_stopped() {
    on_a_directory(8);
}

#[test]
#[ignore = "takes twenty minutes: cargo xtask pool-kill"]
fn everybody_is_killed_or_stopped_for_long() {
    on_a_directory(1200);
}

#[test]
#[ignore = "takes five minutes: cargo xtask pool-kill"]
fn everybody_is_killed_or_stopped_beside_s3() {
    kills(&Place::moto(), number_in("FOREBAY_SECONDS", 300));
}
