//! Real processes that are killed (SIGKILL), or lose their memory node, under each durability. What they had acknowledged is
//! read by another process, with an empty memory node where storage is to have it all. `FOREBAY_ROUNDS=N` does it more
//! often.
//!
//! The child is this test's own program. It writes numbers in batches over several shards, and prints a line for what was
//! acknowledged as durable.

mod common;

use common::{fresh_path, places, run, start_node};
use forebay::{
    Durability, NodeAddress, Options, ShardBounds, Storage, StorageOptions, Store, Syncing, WriteBatch, WriteOptions,
};
use forebay_env::Random;
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PLAN: &str = "FOREBAY_DURABLE_PLAN";
const ROUNDS: u64 = 3;
const KEYS: u64 = 4;

fn durability(mode: &str) -> Durability {
    match mode {
        "memory" => Durability::Memory { copies: 1 },
        "sync" => Durability::Storage(Syncing::Sync),
        "interval" => Durability::Storage(Syncing::Interval(Duration::from_millis(20))),
        "flush" => Durability::Storage(Syncing::Flush),
        _ => panic!("{mode}"),
    }
}

fn open(mode: &str, folder: &str, memory: &str) -> Store {
    let storage = Storage::open(folder, StorageOptions::default()).unwrap();
    let bounds = (1..KEYS).map(|shard| shard.to_be_bytes().to_vec()).collect();
    let options = Options {
        name: Some("db".to_owned()),
        storage: (mode != "memory").then_some(storage),
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
        "local" => Store::embedded(256 << 20, options).unwrap(),
        address => Store::connect(&address.parse::<NodeAddress>().unwrap(), options).unwrap(),
    }
}

/// The key of a number in a shard: those of one number are written by one batch.
fn key(shard: u64, number: u64) -> Vec<u8> {
    [shard.to_be_bytes(), number.to_be_bytes()].concat()
}

/// Writes until it is killed, or loses its memory node.
fn child(plan: &str) -> Result<(), forebay::Error> {
    let [mode, folder, memory, first] = plan.split(' ').collect::<Vec<_>>()[..] else { panic!("{plan}") };
    let store = open(mode, folder, memory);
    println!("open");
    let value = [7; 100];
    for number in first.parse::<u64>().unwrap().. {
        let mut batch = WriteBatch::new();
        for shard in 0..KEYS {
            batch.put(&key(shard, number), &value);
        }
        // Some that are raised say so for all before them.
        let is_raised = mode == "interval" && number % 50 == 0;
        let raised = is_raised.then_some(Durability::Storage(Syncing::Sync));
        store.write_with(&batch, &WriteOptions { durability: raised })?;
        match mode {
            "flush" if number % 400 == 0 => store.flush()?,
            "interval" if !is_raised => continue,
            "flush" => continue,
            _ => {}
        }
        println!("durable {number}");
    }
    Ok(())
}

/// Not a test of its own: what the others start.
#[test]
fn runs_as_a_child() {
    if let Ok(plan) = std::env::var(PLAN) {
        // It ends when its memory node is gone.
        println!("ended {:?}", child(&plan).map_err(|error| error.kind()));
        std::process::exit(0);
    }
}

struct Writer {
    child: Child,
    durable: u64,
}

impl Writer {
    fn start(plan: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "runs_as_a_child", "--nocapture"]).env(PLAN, plan);
        Self { child: command.stdout(Stdio::piped()).spawn().unwrap(), durable: 0 }
    }

    /// Reads so many lines, calls `end`, and reads what was said before it took effect.
    fn until_ended(mut self, mut lines: u64, end: impl FnOnce(&mut Child)) -> u64 {
        let mut end = Some(end);
        let out = BufReader::new(self.child.stdout.take().unwrap());
        for line in out.lines().map_while(Result::ok) {
            if let Some(number) = line.split("durable ").nth(1).and_then(|text| text.trim().parse().ok()) {
                self.durable = number;
            }
            lines = lines.saturating_sub(1);
            if lines == 0
                && let Some(end) = end.take()
            {
                end(&mut self.child);
            }
        }
        assert!(end.is_none(), "the writer ended by itself");
        self.child.wait().unwrap();
        self.durable
    }
}

/// Checks that all numbers up to one that is not below `durable` are there, each in all shards, and none behind; the
/// number.
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
    // Where batches over shards are not atomic, the next writer fills up what is there in part.
    least
}

fn rounds() -> u64 {
    std::env::var("FOREBAY_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap())
}

/// A folder that is removed.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Self {
        Self(fresh_path(".storage").to_path_buf())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Kills writers, and reads in another process what they had acknowledged.
fn kills(mode: &str, is_whole: bool) {
    let folder = Folder::new();
    let mut random = Random::seeded(mode.len() as u64);
    let mut next = 1;
    for round in 0..rounds() {
        // Memory that ends with the process, or a node that lives on, or that is killed in place of the process.
        let kind = if mode == "memory" { 1 } else { random.below(3) };
        let node = (kind > 0).then(|| start_node(&places()[0], "--memory=512MiB"));
        let memory = node.as_ref().map_or("local".to_owned(), |(_, address)| address.clone());
        let what = format!("{mode}, round {round}, kind {kind}");
        let plan = format!("{mode} {} {memory} {next}", text(&folder.0));
        let lines = 1 + random.below(if mode == "sync" { 800 } else { 60 });
        let durable = Writer::start(&plan).until_ended(lines, |child| match (kind, &node) {
            (2, Some((node, _))) => node.signal(Signal::KILL),
            _ => child.kill().unwrap(),
        });
        let reads_from = if mode == "memory" { memory.as_str() } else { "local" };
        let store = open(mode, text(&folder.0), reads_from);
        println!("{what}: {durable} durable, {:?}", store.recovery());
        let found = check(&store, durable.max(next - 1), is_whole, &what);
        next = if mode == "memory" { 1 } else { found + 1 };
        store.close().unwrap();
    }
}

#[test]
fn killed_with_durability_memory() {
    // Batches over shards are not atomic there.
    kills("memory", false);
}

#[test]
fn killed_with_durability_storage_sync() {
    kills("sync", true);
}

#[test]
fn killed_with_durability_storage_interval() {
    kills("interval", true);
}

#[test]
fn killed_with_durability_storage_flush() {
    kills("flush", false);
}

#[test]
fn the_command_keeps_databases_in_storage() {
    let folder = Folder::new();
    let flags = format!(
        "--num=20000 --value_size=100 --write_buffer_size=256KiB --verify=true --format=json --storage={}",
        text(&folder.0)
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
        run(&format!("bench --num=2000 --storage={} --db=other --durability=storage=interval:1s", text(&folder.0)));
    assert!(table.expect(0).out.contains("storage: "));
    for wrong in ["--durability=storage=sync", "--durability=storage=never --storage=memory:", "--storage=ftp://x"] {
        let ended = run(&format!("bench --num=10 {wrong}"));
        assert!(matches!(ended.code, Some(2 | 3)), "{ended:?}");
    }
}
