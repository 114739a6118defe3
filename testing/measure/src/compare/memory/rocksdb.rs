//! RocksDB's side: `db_bench` on tmpfs, at its best.

use super::best::{Figures, best_of};
use super::groups::{Figure, Group, SCANS, SEEK_NEXTS, Work};
use crate::Outcome;
use crate::compare::db_bench::{Database, Line, Mode};
use crate::processes::require_memory;
use std::collections::BTreeMap;
use std::path::Path;

/// A file system in memory.
const TMPFS: &str = "/dev/shm";

/// The memtable of bulk loads.
const BULK_MEMTABLES: [&str; 2] = ["skip_list", "vector"];

/// Measures a group: every figure by every mode.
///
/// # Errors
/// When db_bench fails or its output cannot be understood.
pub fn measure(group: &Group, modes: &[Mode], seed: u64) -> Outcome<BTreeMap<Mode, Figures>> {
    // Files and, in the other mode, also a cache.
    require_memory(group.data_bytes() * 2)?;
    match group.work {
        Work::Fill { .. } => modes.iter().map(|&mode| Ok((mode, fill(group, mode, seed)?))).collect(),
        Work::Bulk => modes.iter().map(|&mode| Ok((mode, bulk(group, mode, seed)?))).collect(),
        Work::Reads => reads(group, modes, seed),
        Work::Scans { .. } => modes.iter().map(|&mode| Ok((mode, scans(group, mode, seed)?))).collect(),
    }
}

fn fill(group: &Group, mode: Mode, seed: u64) -> Outcome<Figures> {
    let database = OnTmpfs::new(group)?;
    let threads = group.fill_threads();
    let lines = database.run("fillrandom,waitforcompaction", mode, seed, &[format!("--threads={threads}")])?;
    let fill = lines.first().ok_or("db_bench printed no result of fillrandom")?;
    let operations = group.records as f64;
    let quiet_seconds = database.database.quiet_after_seconds()?.max(fill.seconds);
    Ok(Figures::from([(Figure::Fill, fill.ops_per_second), (Figure::Quiet, operations / quiet_seconds)]))
}

fn bulk(group: &Group, mode: Mode, seed: u64) -> Outcome<Figures> {
    let mut best = Figures::new();
    for memtable in BULK_MEMTABLES {
        let database = OnTmpfs::new(group)?;
        let flags = [
            "--disable_auto_compactions=1".to_owned(),
            "--level0_file_num_compaction_trigger=10000000".into(),
            "--level0_slowdown_writes_trigger=10000000".into(),
            "--level0_stop_writes_trigger=10000000".into(),
            "--soft_pending_compaction_bytes_limit=0".into(),
            "--hard_pending_compaction_bytes_limit=0".into(),
            format!("--memtablerep={memtable}"),
            format!("--allow_concurrent_memtable_write={}", u8::from(memtable == "skip_list")),
        ];
        let lines = database.run("fillrandom", mode, seed, &flags)?;
        let fill = lines.first().ok_or("db_bench printed no result of fillrandom")?;
        best_of(&mut best, &Figures::from([(Figure::Bulk, fill.ops_per_second)]));
    }
    Ok(best)
}

fn reads(group: &Group, modes: &[Mode], seed: u64) -> Outcome<BTreeMap<Mode, Figures>> {
    let database = OnTmpfs::new(group)?;
    let first = modes.first().copied().unwrap_or(Mode::Cache);
    database.run("fillrandom,compact", first, seed, &[])?;
    let mut measured = BTreeMap::new();
    for (number, &mode) in modes.iter().enumerate() {
        let seed = seed + 1000 * (number as u64 + 1);
        let flags = |threads: u64| {
            vec![
                "--use_existing_db=1".to_owned(),
                format!("--threads={threads}"),
                format!("--reads={}", group.reads()),
                "--batch_size=16".into(),
                "--multiread_batched=1".into(),
            ]
        };
        let mut figures = Figures::new();
        let twice = "readrandom,readrandom,multireadrandom,multireadrandom,readseq,readseq";
        second_of_each(&mut figures, &database.run(twice, mode, seed, &flags(1))?);
        let by_two = database.run("readrandom,readrandom", mode, seed + 100, &flags(2))?;
        figures.extend(by_two.last().map(|line| (Figure::ReadTwo, line.ops_per_second)));
        measured.insert(mode, figures);
    }
    if !group.rows.iter().any(|row| row.figure == Figure::Mixed) {
        return Ok(measured);
    }
    // Writes change the tables, so they come last, and each mode runs after a compaction and on a
    // warm cache.
    for (number, &mode) in modes.iter().enumerate() {
        let flags =
            ["--use_existing_db=1".to_owned(), "--readwritepercent=50".into(), format!("--reads={}", group.reads())];
        let seed = seed + 1000 * (number as u64 + 1) + 200;
        let lines = database.run("compact,readrandom,readrandomwriterandom", mode, seed, &flags)?;
        let mixed = lines.last().map(|line| (Figure::Mixed, line.ops_per_second));
        measured.entry(mode).or_default().extend(mixed);
    }
    Ok(measured)
}

fn scans(group: &Group, mode: Mode, seed: u64) -> Outcome<Figures> {
    let mut figures = Figures::new();
    for scans in SCANS {
        let flags = [
            format!("--threads={}", group.fill_threads()),
            format!("--reads={}", scans.reads(group)),
            format!("--seek_nexts={SEEK_NEXTS}"),
        ];
        let lines = OnTmpfs::new(group)?.run(&scans.names(), mode, seed, &flags)?;
        figures.extend(scans.figures(lines.into_iter().map(|line| (line.name, line.ops_per_second))));
    }
    Ok(figures)
}

fn second_of_each(figures: &mut Figures, lines: &[Line]) {
    for line in lines {
        let figure = match line.name.as_str() {
            "readrandom" => Figure::Read,
            "multireadrandom" => Figure::MultiRead,
            "readseq" => Figure::Sequential,
            _ => continue,
        };
        figures.insert(figure, line.ops_per_second);
    }
}

/// A group's database on tmpfs.
struct OnTmpfs<'a> {
    database: Database,
    group: &'a Group,
}

impl<'a> OnTmpfs<'a> {
    fn new(group: &'a Group) -> Outcome<Self> {
        Ok(Self { database: Database::below(Path::new(TMPFS))?, group })
    }

    fn run(&self, benchmarks: &str, mode: Mode, seed: u64, more: &[String]) -> Outcome<Vec<Line>> {
        let mut flags = vec![
            "--disable_wal=1".to_owned(),
            format!("--num={}", self.group.writes_per_thread()),
            format!("--value_size={}", self.group.value_bytes),
            format!("--seed={seed}"),
        ];
        flags.push(match mode {
            Mode::Cache => format!("--cache_size={}", self.group.data_bytes() * 2),
            Mode::Mmap => "--mmap_read=1".into(),
        });
        flags.extend_from_slice(more);
        Ok(self.database.run(benchmarks, &flags)?.lines)
    }
}
