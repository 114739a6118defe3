//! `cargo xtask soak`: does space stay bounded, does nothing stall, does nothing leak?
//!
//! A memory node and this process. Keys are filled until their live data takes 60 % of the memory
//! node. Then, for the requested time:
//!
//! - one writer overwrites, deletes, deletes ranges and writes again what it deleted, so that the
//!   amount of live data stays the same; it owns a model (the version of every key) and checks its
//!   reads against the model;
//! - one reader takes snapshots, reads through them, keeps them for up to three seconds, and reads
//!   the same again: the results must be equal.
//!
//! Asserted: no call takes longer than a second; after a fifth of the time the space no longer
//! grows; at the end, with all snapshots released and everything deleted and compacted, the database
//! holds no byte of the memory node. After it is closed, its session holds none either.

use crate::Outcome;
use crate::processes::Forebay;
use forebay::{NodeAddress, Options, Store, WriteBatch};
use forebay_env::{Clock, Nanos, Random, SystemClock, thread};
use forebay_workload::keys::KeyBuffer;
use forebay_workload::values::Values;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How much of the memory node the live data takes, per cent.
const FILL_PERCENT: u64 = 60;
/// Bytes of a record besides key and value: its header and its share of the indexes.
const OVERHEAD_BYTES: u64 = 48;
/// Keys of a range delete.
const RANGE_KEYS: u64 = 500;
/// One operation in this many is a range delete.
const RANGE_INTERVAL: u64 = 20_000;
const KEY_BYTES: usize = 20;
/// Lengths of values by the last digit of the key's number: some of each size class.
const LENGTHS: [usize; 10] = [64, 64, 400, 400, 400, 400, 400, 400, 400, 2000];
/// Growth of the space between the middle and the end of the run that does not count as growth, per
/// cent.
const SLACK_PERCENT: u64 = 10;

/// How long, and how large.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Minutes.
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Memory of the memory node, MiB.
    #[arg(long, default_value_t = 1024)]
    memory_mib: u64,
    /// Longest call that is no stall, milliseconds: more on a busy machine.
    #[arg(long, default_value_t = 1000)]
    stall_ms: u64,
    /// Where randomness begins.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the soak.
///
/// # Errors
/// The first thing that is wrong, with the seed.
pub fn execute(arguments: &Arguments) -> Outcome {
    let forebay = Forebay::build()?;
    let memory_bytes = arguments.memory_mib << 20;
    let node = forebay.memory_node(1, memory_bytes, 2)?;
    let address: NodeAddress = node.address.parse().map_err(text)?;
    let buffer_bytes = (memory_bytes / 64).clamp(1 << 20, 64 << 20);
    let options = Options {
        write_buffer_bytes: buffer_bytes as usize,
        target_table_bytes: buffer_bytes,
        level1_bytes: buffer_bytes * 4,
        background_threads: 4,
        ..Options::default()
    };
    let store = Store::connect(&address, options).map_err(text)?;
    let shared = Arc::new(Soak::new(store, arguments, memory_bytes)?);
    println!("seed {}, {} keys, {} MiB", arguments.seed, shared.keys, arguments.memory_mib);
    let result = run(&shared, arguments).and_then(|()| empty(&shared));
    let shared = Arc::into_inner(shared).ok_or("a thread still has the database")?;
    result.map_err(|failure| format!("seed {}: {failure}", arguments.seed))?;
    closed(shared.store, &address, memory_bytes)?;
    drop(node);
    println!("1 passed, 0 failed");
    Ok(())
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The state that writer, reader and observer share.
struct Soak {
    store: Store,
    clock: Arc<dyn Clock>,
    seed: u64,
    keys: u64,
    memory_bytes: u64,
    stall_ns: Nanos,
    values: Vec<Values>,
    stop: AtomicBool,
    operations: AtomicU64,
    snapshots: AtomicU64,
    longest_ns: AtomicU64,
}

impl Soak {
    fn new(store: Store, arguments: &Arguments, memory_bytes: u64) -> Outcome<Self> {
        let of_ten: u64 = LENGTHS.iter().map(|&length| (length + KEY_BYTES) as u64 + OVERHEAD_BYTES).sum();
        let values = LENGTHS.iter().map(|&length| Values::new(length).map_err(text)).collect::<Outcome<_>>()?;
        Ok(Self {
            store,
            clock: SystemClock::shared(),
            seed: arguments.seed,
            keys: memory_bytes * FILL_PERCENT / 100 * 10 / of_ten,
            memory_bytes,
            stall_ns: arguments.stall_ms * 1_000_000,
            values,
            stop: AtomicBool::new(false),
            operations: AtomicU64::new(0),
            snapshots: AtomicU64::new(0),
            longest_ns: AtomicU64::new(0),
        })
    }

    fn values(&self, key: u64) -> &Values {
        &self.values[(key % 10) as usize]
    }

    /// Does `call`, and notes how long it took.
    fn timed<T>(&self, what: &str, call: impl FnOnce() -> Result<T, forebay::Error>) -> Outcome<T> {
        let began = self.clock.now();
        let result = call();
        let took = self.clock.now().saturating_sub(began);
        self.longest_ns.fetch_max(took, Ordering::Relaxed);
        if took > self.stall_ns {
            let shape = shape(self, &self.store.statistics()).unwrap_or_default();
            return Err(format!("{what} took {:.2} s: {shape}", took as f64 / 1e9));
        }
        result.map_err(|error| format!("{what}: {error}"))
    }
}

fn run(soak: &Arc<Soak>, arguments: &Arguments) -> Outcome {
    let until = soak.clock.now() + (arguments.minutes * 60e9) as Nanos;
    let spawn = |name: &str, body: fn(&Soak) -> Outcome| {
        let soak = Arc::clone(soak);
        let body = move || {
            let result = body(&soak);
            soak.stop.store(true, Ordering::Relaxed);
            result
        };
        thread::spawn(name, body).map_err(text)
    };
    let threads = [spawn("writer", write)?, spawn("reader", read)?];
    let observed = observe(soak, until);
    soak.stop.store(true, Ordering::Relaxed);
    let join = |thread: thread::JoinHandle<Outcome>| thread.join().unwrap_or_else(|_| Err("a thread panicked".into()));
    // The failure that ended a thread is why the rest is cut short.
    threads.map(join).into_iter().chain([observed]).collect()
}

/// The writer: fills, then changes, with a model of every key's version; 0 is no value.
fn write(soak: &Soak) -> Outcome {
    let mut writer = Writer {
        soak,
        random: Random::seeded(soak.seed),
        keys: KeyBuffer::new(KEY_BYTES, soak.keys).map_err(text)?,
        value: Vec::new(),
        versions: vec![0; soak.keys as usize],
        dead: Vec::new(),
        version: 0,
    };
    for key in 0..soak.keys {
        writer.put(key)?;
        if soak.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
    }
    while !soak.stop.load(Ordering::Relaxed) {
        writer.one()?;
        soak.operations.fetch_add(1, Ordering::Relaxed);
    }
    writer.check_all()
}

struct Writer<'a> {
    soak: &'a Soak,
    random: Random,
    keys: KeyBuffer,
    value: Vec<u8>,
    versions: Vec<u64>,
    /// Keys that were deleted, some more than once or written since.
    dead: Vec<u64>,
    version: u64,
}

impl Writer<'_> {
    fn one(&mut self) -> Outcome {
        let key = self.random.below(self.soak.keys);
        if self.random.one_in(1, RANGE_INTERVAL) {
            return self.delete_range(key);
        }
        // Deleted keys come back as fast as others go.
        if self.dead.len() as u64 > self.soak.keys / 50 {
            let place = self.random.below(self.dead.len() as u64) as usize;
            let dead = self.dead.swap_remove(place);
            return self.put(dead);
        }
        match self.random.below(10) {
            0 => self.check(key),
            1 => self.delete(key),
            _ => self.put(key),
        }
    }

    fn put(&mut self, key: u64) -> Outcome {
        self.version += 1;
        self.soak.values(key).fill(key, self.version, &mut self.value);
        let (soak, bytes) = (self.soak, self.keys.set(key));
        soak.timed("put", || Ok(soak.store.put(bytes, &self.value)?))?;
        self.versions[key as usize] = self.version;
        Ok(())
    }

    fn delete(&mut self, key: u64) -> Outcome {
        let (soak, bytes) = (self.soak, self.keys.set(key));
        soak.timed("delete", || Ok(soak.store.delete(bytes)?))?;
        self.versions[key as usize] = 0;
        self.dead.push(key);
        Ok(())
    }

    fn delete_range(&mut self, from: u64) -> Outcome {
        let to = (from + RANGE_KEYS).min(self.soak.keys - 1).max(from);
        let (first, soak) = (self.keys.set(from).to_vec(), self.soak);
        let mut batch = WriteBatch::new();
        batch.delete_range(&first, self.keys.set(to));
        soak.timed("range delete", || Ok(soak.store.write(&batch)?))?;
        for key in from..to {
            self.versions[key as usize] = 0;
            self.dead.push(key);
        }
        Ok(())
    }

    fn check(&mut self, key: u64) -> Outcome {
        let (soak, bytes, version) = (self.soak, self.keys.set(key), self.versions[key as usize]);
        let check = |value: &[u8]| soak.values(key).check_version(key, version, value);
        match soak.timed("get", || Ok(soak.store.get_with(bytes, None, check)?))? {
            Some(checked) if version != 0 => checked.map_err(|wrong| format!("key {key}: {wrong}")),
            Some(_) => Err(format!("key {key} was deleted and has a value")),
            None if version != 0 => Err(format!("key {key} has no value, and version {version} was written")),
            None => Ok(()),
        }
    }

    fn check_all(&mut self) -> Outcome {
        (0..self.soak.keys).try_for_each(|key| self.check(key))
    }
}

/// The reader: a snapshot returns the same again, however much was written meanwhile.
fn read(soak: &Soak) -> Outcome {
    let mut random = Random::seeded(soak.seed ^ 1);
    let mut keys = KeyBuffer::new(KEY_BYTES, soak.keys).map_err(text)?;
    while !soak.stop.load(Ordering::Relaxed) {
        let snapshot = soak.store.snapshot();
        let wanted: Vec<u64> = (0..100).map(|_| random.below(soak.keys)).collect();
        let mut look = || {
            let mut found = Vec::with_capacity(wanted.len());
            for &key in &wanted {
                let bytes = keys.set(key);
                found.push(soak.timed("get at a snapshot", || Ok(soak.store.get_at(bytes, &snapshot)?))?);
            }
            Ok::<_, String>(found)
        };
        let first = look()?;
        let scanned = scan(soak, &snapshot, random.below(soak.keys))?;
        let naps = random.below(30);
        for _ in 0..naps {
            if !soak.stop.load(Ordering::Relaxed) {
                soak.clock.sleep(Duration::from_millis(100));
            }
        }
        if look()? != first {
            return Err("a snapshot gave another value later".into());
        }
        if scan(soak, &snapshot, scanned.0)? != scanned {
            return Err("a snapshot gave other records later".into());
        }
        soak.snapshots.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Where a scan through a snapshot began, and the records that it returned.
type Scanned = (u64, Vec<(Vec<u8>, Vec<u8>)>);

fn scan(soak: &Soak, snapshot: &forebay::Snapshot, from: u64) -> Outcome<Scanned> {
    let mut keys = KeyBuffer::new(KEY_BYTES, soak.keys).map_err(text)?;
    let mut records = Vec::new();
    let mut iterator = soak.timed("opening an iterator", || Ok(soak.store.iter_at(snapshot)?))?;
    iterator.seek(keys.set(from)).map_err(text)?;
    while iterator.valid() && records.len() < 200 {
        records.push((iterator.key().to_vec(), iterator.value().to_vec()));
        iterator.next().map_err(text)?;
    }
    Ok((from, records))
}

/// Measures the space every second until the time is over, and checks its growth.
fn observe(soak: &Soak, until: Nanos) -> Outcome {
    let began = soak.clock.now();
    let mut spaces = Vec::new();
    while soak.clock.now() < until && !soak.stop.load(Ordering::Relaxed) {
        soak.clock.sleep(Duration::from_secs(1));
        let statistics = soak.store.statistics();
        spaces.push(statistics.remote_bytes);
        if spaces.len() % 10 == 0 {
            let share = |bytes: u64| bytes as f64 / soak.memory_bytes as f64 * 100.0;
            println!(
                "{:>6.0} s: {} operations, {} snapshots, held {:.1} %, live {:.1} %, dead {:.1} %, pinned {:.1} %, stalls {} of {:.1} s, longest call {:.1} ms",
                (soak.clock.now() - began) as f64 / 1e9,
                soak.operations.load(Ordering::Relaxed),
                soak.snapshots.load(Ordering::Relaxed),
                share(statistics.remote_bytes),
                share(statistics.live_bytes),
                share(statistics.dead_bytes_known),
                share(statistics.dead_bytes_pinned),
                statistics.stalls,
                statistics.stall_nanos as f64 / 1e9,
                soak.longest_ns.load(Ordering::Relaxed) as f64 / 1e6,
            );
            println!("         {}", shape(soak, &statistics)?);
        }
    }
    bounded(&spaces)
}

/// The use of the space: levels, and the node's extents.
fn shape(soak: &Soak, statistics: &forebay::Statistics) -> Outcome<String> {
    let levels: Vec<_> = statistics
        .levels
        .iter()
        .map(|level| format!("{} tables {} runs {} MiB", level.tables, level.runs, level.bytes >> 20))
        .collect();
    let nodes = soak.store.node_statistics().map_err(text)?;
    let extents: Vec<_> = nodes
        .iter()
        .map(|node| {
            format!(
                "extents of {} MiB: {} free, {} leased, {} kept, {} of jobs with {} MiB",
                node.extent_bytes >> 20,
                node.free_extents + node.recycling_extents,
                node.leased_extents + node.adopted_extents,
                node.kept_extents,
                node.job_extents,
                node.job_bytes >> 20,
            )
        })
        .collect();
    let stalls = statistics.stalls_by_cause;
    Ok(format!("[{}]; {}; {stalls:?}", levels.join("; "), extents.join("; ")))
}

/// Checks that the maximum of the last third is no more than the maximum before that, after the
/// first fifth.
fn bounded(spaces: &[u64]) -> Outcome {
    let (fifth, thirds) = (spaces.len() / 5, spaces.len() * 2 / 3);
    let most = |part: Option<&[u64]>| part.and_then(|part| part.iter().copied().max()).unwrap_or(0);
    let (before, after) = (most(spaces.get(fifth..thirds)), most(spaces.get(thirds..)));
    if before > 0 && after > before + before * SLACK_PERCENT / 100 {
        return Err(format!("space grew: {before} bytes at most until two thirds of the time, {after} since"));
    }
    Ok(())
}

/// Deletes everything; then the database may hold nothing.
fn empty(soak: &Soak) -> Outcome {
    let mut keys = KeyBuffer::new(KEY_BYTES, soak.keys).map_err(text)?;
    soak.store.wait_for_compactions().map_err(text)?;
    let full = soak.store.statistics();
    println!(
        "at the end {} bytes held, {} live, {} dead, {} memtables",
        full.remote_bytes, full.live_bytes, full.dead_bytes_known, full.memtable_bytes
    );
    let first = keys.set(0).to_vec();
    let mut beyond = keys.set(soak.keys.saturating_sub(1)).to_vec();
    beyond.push(0);
    soak.store.delete_range(&first, &beyond).map_err(text)?;
    soak.store.compact_range(None, None).map_err(text)?;
    soak.store.wait_for_compactions().map_err(text)?;
    let mut iterator = soak.store.iter().map_err(text)?;
    iterator.seek_to_first().map_err(text)?;
    if iterator.valid() {
        return Err("everything was deleted and a key is left".into());
    }
    drop(iterator);
    // Memory is given back in the background.
    for _ in 0..100 {
        if soak.store.statistics().remote_bytes == 0 {
            return Ok(());
        }
        soak.clock.sleep(Duration::from_millis(100));
    }
    let left = soak.store.statistics();
    Err(format!("everything was deleted and compacted, and {} bytes are held: {left:?}", left.remote_bytes))
}

/// Closes the database; then nobody may hold memory of the node.
fn closed(store: Store, address: &NodeAddress, memory_bytes: u64) -> Outcome {
    store.close().map_err(text)?;
    drop(store);
    let other = Store::connect(address, Options { write_buffer_bytes: 1 << 20, ..Options::default() }).map_err(text)?;
    let before: u64 = other.node_statistics().map_err(text)?.iter().map(|node| node.allocated_bytes).sum();
    let own = other.statistics().remote_bytes;
    println!("after closing: {before} bytes leased from the node, of which a new empty database holds {own}");
    // Leases are in extents: extents that the new database leased ahead are not a leak.
    if before > memory_bytes / 4 {
        Err(format!("{before} bytes are leased after the database was closed"))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_told_from_going_up_and_down() {
        let steady: Vec<u64> = (0..300).map(|second| 1000 + second % 50).collect();
        let growing: Vec<u64> = (0..300).map(|second| 1000 + second * 2).collect();
        assert!(bounded(&steady).is_ok() && bounded(&[]).is_ok() && bounded(&[5]).is_ok());
        assert!(bounded(&growing).is_err());
    }
}
