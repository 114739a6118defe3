//! The cost of durable writes and of tables in storage: Forebay's durabilities compared with `none`, and Forebay compared
//! with RocksDB in the same directory of a disk.

use super::db_bench::{Database, KEY_BYTES, Results};
use super::findings::{Findings, Goal, Row, Unit};
use super::forebay_bench::flags_with;
use super::group::{Bench, Group, Section};
use crate::Outcome;
use crate::processes::{MemoryNode, Running, memory_flag};
use crate::scratch::Scratch;
use forebay_env::{Clock, SystemClock};
use forebay_workload::PhaseReport;
use std::time::Duration;

/// Flags of every run with tables in storage: RocksDB also has no compression.
pub const STORAGE_FLAGS: [&str; 1] = ["--compression=none"];

const MILLION: u64 = 1_000_000;
const VALUE_BYTES: u64 = 400;
/// Key and value, bytes.
const RECORD_BYTES: u64 = KEY_BYTES + VALUE_BYTES;
/// Most bytes of a record in a log or a table, with its header and its share of an index.
const STORED_BYTES: u64 = RECORD_BYTES + 40;
/// Memory of the smallest memory node, bytes.
const SMALLEST_NODE: u64 = 2 << 30;
/// Threads for jobs at the memory node, as RocksDB's sub-compactions.
const NODE_THREADS: usize = 2;
/// How many of a hundred keys drawn with replacement exist in the end.
const LIVE_PERCENT: u64 = 63;
const SYNCED_EACH_SECOND: &str = "--durability=storage=interval:1s";
const ROCKSDB: &str = "RocksDB";

/// All groups.
pub fn groups() -> Vec<Group> {
    let group = |name, about, measure| Group::new(Section::Durable, name, about, measure);
    vec![
        group("durable-fill", "fillrandom by durability, against none; bytes sent for the log", fills),
        group(
            "durable-sync",
            "fillrandom with a log, against RocksDB: unsynced, synced, and 64 threads against one",
            syncs,
        ),
        group(
            "storage-reads",
            "readrandom and readseq from storage, by cache, against RocksDB; space once compacted",
            reads,
        ),
        group("storage-bytes", "bytes written to storage by 20 million records until quiet, against RocksDB", bytes),
        group("recovery", "the first read after a process was killed with a gigabyte of log", recoveries),
    ]
}

/// A run of `forebay bench`.
struct Run<'a> {
    bench: &'a Bench,
    /// Number of keys, and of writes of each thread.
    number: u64,
    threads: u64,
}

impl<'a> Run<'a> {
    fn of(bench: &'a Bench, number: u64) -> Self {
        Self { bench, number, threads: 1 }
    }

    fn flags(&self, benchmarks: &str, more: &[String]) -> Vec<String> {
        let mut flags = vec![
            format!("--benchmarks={benchmarks}"),
            format!("--num={}", self.number),
            format!("--threads={}", self.threads),
            format!("--key_size={KEY_BYTES}"),
            format!("--value_size={VALUE_BYTES}"),
            format!("--seed={}", self.bench.seed),
        ];
        flags.extend(more.iter().cloned().chain(self.bench.flags.iter().cloned()));
        flags_with(&flags)
    }

    /// A memory node that has room for all of the run.
    fn node(&self, number: u32) -> Outcome<MemoryNode> {
        let bytes = self.number * self.threads * STORED_BYTES * 3 / 2 + (1 << 30);
        self.bench.forebay.memory_node(number, bytes.max(SMALLEST_NODE), NODE_THREADS)
    }

    fn phases(&self, benchmarks: &str, nodes: &[&MemoryNode], more: &[String]) -> Outcome<Vec<PhaseReport>> {
        self.bench.forebay.report("bench", nodes, &self.flags(benchmarks, more))
    }

    /// The last phase of a run in a memory node of its own, and in a folder of its own.
    fn in_storage(&self, benchmarks: &str, durability: &str) -> Outcome<PhaseReport> {
        let (node, storage) = (self.node(1)?, Scratch::below(&self.bench.folder, "storage")?);
        let flags = [storage_flags(&storage), vec![durability.to_owned()]].concat();
        last(&self.phases(benchmarks, &[&node], &flags)?).cloned()
    }

    /// RocksDB's run of the same.
    fn rocksdb(&self, database: &Database, benchmarks: &str, more: &[&str]) -> Outcome<Results> {
        let mut flags = vec![
            format!("--num={}", self.number),
            format!("--threads={}", self.threads),
            format!("--value_size={VALUE_BYTES}"),
            format!("--seed={}", self.bench.seed),
        ];
        flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        database.run(benchmarks, &flags)
    }
}

fn last(phases: &[PhaseReport]) -> Outcome<&PhaseReport> {
    phases.last().ok_or_else(|| "a report without a phase".to_owned())
}

fn named<'a>(phases: &'a [PhaseReport], name: &str) -> Outcome<&'a PhaseReport> {
    phases.iter().rfind(|phase| phase.name == name).ok_or_else(|| format!("the report has no phase {name}"))
}

fn storage_flags(storage: &Scratch) -> Vec<String> {
    let flags = STORAGE_FLAGS.iter().map(|&flag| flag.to_owned());
    flags.chain([format!("--storage={}", storage.path().display())]).collect()
}

fn threads(number: u64) -> String {
    format!("{number} thread{}", if number == 1 { "" } else { "s" })
}

fn millions(records: u64) -> String {
    format!("{} million", records as f64 / MILLION as f64)
}

/// Fills by durability, each compared with a fill of the same run without durability.
fn fills(bench: &Bench, findings: &mut Findings) -> Outcome {
    let records = bench.scaled(5 * MILLION);
    for number in [1, 2] {
        let run = Run { threads: number, ..Run::of(bench, records / number) };
        let none = last(&run.phases("fillrandom", &[&run.node(1)?], &[])?)?.ops_per_second;
        let of = |what: &str| format!("{what}, {}, {}", threads(number), millions(records));
        let mut row = |durability: &str, fill: &PhaseReport, goal: f64| {
            let row = Row::new(of(&format!("fillrandom, {durability}")), Unit::PerSecond, fill.ops_per_second);
            findings.rows.push(row.beside("none", none).with_goal(Goal::TimesAtLeast(goal)));
        };
        row("storage=interval:1s", &run.in_storage("fillrandom", SYNCED_EACH_SECOND)?, 0.75);
        let register = Scratch::below(&bench.folder, "register")?;
        let mut sent = Vec::new();
        for (copies, goal) in [(1, 0.8), (2, 0.6)] {
            let nodes: Vec<MemoryNode> = (1..=copies).map(|node| run.node(node)).collect::<Outcome<_>>()?;
            let mut flags = ["--db=compare", "--shards=1"].map(str::to_owned).to_vec();
            flags.push(format!("--durability=memory={copies}"));
            if copies > 1 {
                flags.push(format!("--register={}", register.path().display()));
            }
            let fill = last(&run.phases("fillrandom", &nodes.iter().collect::<Vec<_>>(), &flags)?)?.clone();
            row(&format!("memory={copies}"), &fill, goal);
            let each = fill.fabric.bytes_written as f64 / (fill.operations * u64::from(copies)) as f64;
            sent.push((copies, each / RECORD_BYTES as f64));
        }
        for (copies, times) in sent {
            let label = of(&format!("bytes sent to each copy for the log, times keys and values, memory={copies}"));
            findings.rows.push(Row::new(label, Unit::Times, times).with_goal(Goal::AtMost(1.05)));
        }
    }
    Ok(())
}

/// Fills with a log, compared with RocksDB's: unsynced, synced, and many threads that share syncs.
fn syncs(bench: &Bench, findings: &mut Findings) -> Outcome {
    const MANY: u64 = 64;
    let fill = |findings: &mut Findings, run: &Run<'_>, durability: &str, sync: bool| {
        let ours = findings.note(run.in_storage("fillrandom", durability)).map(|fill| fill.ops_per_second);
        let theirs = bench.other(findings, || {
            let database = Database::below(&bench.folder)?;
            let results =
                run.rocksdb(&database, "fillrandom", &["--disable_wal=0", &format!("--sync={}", u8::from(sync))])?;
            Ok(results.last("fillrandom")?.ops_per_second)
        });
        let label = if sync { "fillrandom, synced" } else { "fillrandom, log unsynced (interval:1s)" };
        let label = format!("{label}, {}, {} writes", threads(run.threads), run.number * run.threads);
        Row::new(label, Unit::PerSecond, ours).beside(ROCKSDB, theirs)
    };
    let unsynced = Run::of(bench, bench.scaled(5 * MILLION));
    let row = fill(findings, &unsynced, SYNCED_EACH_SECOND, false);
    findings.rows.push(row.with_goal(Goal::TimesAtLeast(4.0)));
    let sync = "--durability=storage=sync";
    let one = fill(findings, &Run::of(bench, bench.scaled(20_000)), sync, true);
    let of_one = one.forebay;
    findings.rows.push(one.with_goal(Goal::TimesAtLeast(1.0)));
    let many = fill(findings, &Run { threads: MANY, ..Run::of(bench, bench.scaled(5_000)) }, sync, true);
    let shared = Row::new(format!("group commit: {MANY} threads against one"), Unit::PerSecond, many.forebay);
    findings.rows.extend([many, shared.beside("1 thread", of_one).with_goal(Goal::TimesAtLeast(20.0))]);
    Ok(())
}

/// Reads of compacted tables in storage, by the size of the cache, and the space that the tables
/// take.
fn reads(bench: &Bench, findings: &mut Findings) -> Outcome {
    let run = Run::of(bench, bench.scaled(5 * MILLION));
    let live_bytes = run.number * LIVE_PERCENT / 100 * RECORD_BYTES;
    let reads = format!("--reads={}", run.number.min(2 * MILLION));
    let caches = [("all", live_bytes * 3, 3.0, None), ("a tenth", live_bytes / 10, 1.2, Some(1.5))];
    let benchmarks = "readrandom,readrandom,readseq,readseq";

    let (node, storage) = (run.node(1)?, Scratch::below(&bench.folder, "storage")?);
    let flags =
        [storage_flags(&storage), vec!["--storage-from-level=1".to_owned(), "--durability=storage=flush".to_owned()]]
            .concat();
    let all = run.phases("fillrandom,compact,readseq", &[&node], &flags)?;
    let live = named(&all, "readseq")?.found.unwrap_or(0) * RECORD_BYTES;
    let taken = storage.taken_bytes();
    let ours = caches.map(|(_, bytes, ..)| {
        let more = ["--use_existing_db".to_owned(), format!("--block-cache={bytes}"), reads.clone()];
        findings.note(run.phases(benchmarks, &[&node], &[flags.as_slice(), &more].concat()))
    });
    drop((node, storage));

    let theirs = bench.other(findings, || {
        let database = Database::below(&bench.folder)?;
        run.rocksdb(&database, "fillrandom,compact", &["--disable_wal=1"])?;
        let taken = database.taken_bytes();
        let existing = ["--disable_wal=1", "--use_existing_db=1", reads.as_str()];
        let of = |bytes: u64| {
            run.rocksdb(&database, benchmarks, &[&existing[..], &[&format!("--cache_size={bytes}")]].concat())
        };
        Ok((caches.iter().map(|(_, bytes, ..)| of(*bytes)).collect::<Outcome<Vec<_>>>()?, taken))
    });
    for (place, (holds, _, random_goal, sequential_goal)) in caches.into_iter().enumerate() {
        for (name, goal) in [("readrandom", Some(random_goal)), ("readseq", sequential_goal)] {
            let rate = ours[place].as_ref().and_then(|phases| Some(named(phases, name).ok()?.ops_per_second));
            let label = format!("{name}, tables in storage, cache holds {holds}, {}", millions(run.number));
            let other =
                theirs.as_ref().and_then(|(results, _)| Some(results.get(place)?.last(name).ok()?.ops_per_second));
            let row = Row::new(label, Unit::PerSecond, rate).beside(ROCKSDB, other);
            findings.rows.push(row.with_goal(goal.map(Goal::TimesAtLeast)));
        }
    }
    let times = |bytes: u64| bytes as f64 / live.max(1) as f64;
    let row = Row::new("space in storage once compacted, times live keys and values", Unit::Times, times(taken));
    let row = row.beside(ROCKSDB, theirs.map(|(_, taken)| times(taken)));
    findings.rows.push(row.with_goal(Goal::AtMost(1.1)));
    Ok(())
}

/// Bytes that are written until all background work is done, log included.
fn bytes(bench: &Bench, findings: &mut Findings) -> Outcome {
    let run = Run::of(bench, bench.scaled(20 * MILLION));
    let benchmarks = "fillrandom,waitforcompaction";
    let times = |bytes: u64| bytes as f64 / (run.number * RECORD_BYTES) as f64;
    let (node, storage) = (run.node(1)?, Scratch::below(&bench.folder, "storage")?);
    let flags =
        [storage_flags(&storage), vec![SYNCED_EACH_SECOND.to_owned(), "--storage-from-level=2".to_owned()]].concat();
    let (phases, written) = bench.forebay.counted("bench", &[&node], &run.flags(benchmarks, &flags))?;
    let logged: u64 = phases.iter().filter_map(|phase| phase.log).map(|log| log.bytes).sum();
    let rate = named(&phases, "fillrandom")?.ops_per_second;
    drop((node, storage));
    let theirs = bench.other(findings, || {
        let database = Database::below(&bench.folder)?;
        let results = run.rocksdb(&database, benchmarks, &["--disable_wal=0"])?;
        Ok((results.last("fillrandom")?.ops_per_second, results.written_bytes))
    });
    let label = |what: &str| format!("{what}, {}", millions(run.number));
    let row = Row::new(label("bytes written until quiet for a byte of keys and values"), Unit::Times, times(written));
    let row = row.beside(ROCKSDB, theirs.map(|(_, written)| times(written)));
    findings.rows.push(row.with_goal(Goal::TimesAtMost(0.6)));
    findings.rows.push(Row::new(label("of these, the log's"), Unit::Times, times(logged)));
    let row = Row::new(label("fillrandom meanwhile, log unsynced (interval:1s)"), Unit::PerSecond, rate);
    findings.rows.push(row.beside(ROCKSDB, theirs.map(|(rate, _)| rate)));
    Ok(())
}

/// Opening and one read, after the kill of a process that had flushed nothing.
fn recoveries(bench: &Bench, findings: &mut Findings) -> Outcome {
    let log_bytes = bench.scaled(1_000_000_000);
    let in_memory = vec!["--db=compare".to_owned(), "--durability=memory=1".to_owned()];
    let row = findings.note(recovery(bench, log_bytes, &in_memory)).map(|seconds| ("memory nodes", seconds, 2.0));
    let storage = Scratch::below(&bench.folder, "storage")?;
    let on_disk = [storage_flags(&storage), vec!["--durability=storage=interval:100ms".to_owned()]].concat();
    let other = findings.note(recovery(bench, log_bytes, &on_disk)).map(|seconds| ("a local directory", seconds, 5.0));
    for (place, seconds, goal) in row.into_iter().chain(other) {
        let label = format!("first read after a kill with {:.2} GB of log, from {place}", log_bytes as f64 / 1e9);
        findings.rows.push(Row::new(label, Unit::Seconds, seconds).with_goal(Goal::AtMost(goal)));
    }
    Ok(())
}

/// Seconds until the next process has opened the database and read a key.
fn recovery(bench: &Bench, log_bytes: u64, place: &[String]) -> Outcome<f64> {
    /// A record in the log, with its header, bytes.
    const LOGGED_BYTES: u64 = RECORD_BYTES + 16;
    /// Time after which all that was written is synced.
    const SYNCED: Duration = Duration::from_secs(1);
    let run = Run::of(bench, log_bytes / LOGGED_BYTES);
    // No flush because memory is short: there is room for the memtables of all shards, their flushes and the
    // log.
    let node = bench.forebay.memory_node(1, log_bytes * 4 + (6 << 30), NODE_THREADS)?;
    // Memtables that together hold all the data; none is larger than half an extent.
    let shards = (log_bytes / (90 << 20)).max(1);
    let mut flags = vec![format!("--shards={shards}"), "--write_buffer_size=128MiB".to_owned()];
    flags.extend_from_slice(place);
    let reads = [flags.as_slice(), &["--reads=1000000000".to_owned()]].concat();
    let arguments = [
        vec!["bench".to_owned()],
        memory_flag(&[&node]).into_iter().collect(),
        run.flags("fillrandom,readrandom", &reads),
    ]
    .concat();
    let (writer, _) = Running::start(bench.forebay.program(), &arguments, |line| line.starts_with("fillrandom "))?;
    SystemClock::new().sleep(SYNCED);
    writer.kill()?;
    flags.extend(["--use_existing_db".to_owned(), "--takeover".to_owned(), "--reads=1".to_owned()]);
    let phases = run.phases("readrandom", &[&node], &flags)?;
    let read = last(&phases)?;
    let found = read.recovery.as_ref().ok_or("the report does not say what opening found")?;
    let replayed = found.records_replayed * LOGGED_BYTES;
    if replayed < log_bytes * 9 / 10 {
        return Err(format!("only {replayed} bytes of the log were left to be replayed"));
    }
    Ok(found.open_us as f64 / 1e6 + read.seconds)
}
