//! RocksDB's side: `db_bench` on tmpfs, at its best.

use super::groups::{Figure, Group, KEY_BYTES, SCANS, SEEK_NEXTS, Work};
use super::{Figures, best_of};
use crate::Outcome;
use crate::processes::{output, require_memory};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where Debian puts the program, and any system with a search path finds it.
const PROGRAM: &str = "db_bench";
/// A file system in memory.
const TMPFS: &str = "/dev/shm";

/// How blocks are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Through a block cache that holds everything.
    Cache,
    /// Through mapped files.
    Mmap,
}

/// The memtable of bulk loads.
const BULK_MEMTABLES: [&str; 2] = ["skip_list", "vector"];

/// The program's version.
///
/// # Errors
/// When it is not there.
pub fn version() -> Outcome<String> {
    let text = output(Path::new(PROGRAM), &["--version".into()])
        .map_err(|error| format!("{error}; install Debian's package rocksdb-tools: `apt-get install rocksdb-tools`"))?;
    Ok(text.trim().to_owned())
}

/// All flags of all runs, for who wants to repeat them by hand.
pub fn usual_flags() -> Vec<String> {
    [
        "--disable_wal=1",
        "--compression_type=none",
        "--bloom_bits=10",
        "--max_background_jobs=4",
        "--subcompactions=2",
        "--level0_slowdown_writes_trigger=20",
        "--level0_stop_writes_trigger=36",
        "--write_buffer_size=67108864",
        "--max_write_buffer_number=5",
        "--target_file_size_base=67108864",
    ]
    .map(String::from)
    .to_vec()
}

/// Measures a group: every figure by every mode.
///
/// # Errors
/// When db_bench fails or says what cannot be understood.
pub fn measure(group: &Group, modes: &[Mode], seed: u64) -> Outcome<BTreeMap<Mode, Figures>> {
    // Files and, in the other mode, a cache beside them.
    require_memory(group.data_bytes() * 2)?;
    match group.work {
        Work::Fill { .. } => modes.iter().map(|&mode| Ok((mode, fill(group, mode, seed)?))).collect(),
        Work::Bulk => modes.iter().map(|&mode| Ok((mode, bulk(group, mode, seed)?))).collect(),
        Work::Reads => reads(group, modes, seed),
        Work::Scans { .. } => modes.iter().map(|&mode| Ok((mode, scans(group, mode, seed)?))).collect(),
    }
}

fn fill(group: &Group, mode: Mode, seed: u64) -> Outcome<Figures> {
    let database = Database::new()?;
    let threads = group.fill_threads();
    let lines = database.run("fillrandom,waitforcompaction", group, mode, seed, &[format!("--threads={threads}")])?;
    let fill = lines.first().ok_or("db_bench printed no result of fillrandom")?;
    let operations = group.records as f64;
    let quiet_seconds = database.quiet_after_seconds()?.max(fill.seconds);
    Ok(Figures::from([(Figure::Fill, fill.ops_per_second), (Figure::Quiet, operations / quiet_seconds)]))
}

fn bulk(group: &Group, mode: Mode, seed: u64) -> Outcome<Figures> {
    let mut best = Figures::new();
    for memtable in BULK_MEMTABLES {
        let database = Database::new()?;
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
        let lines = database.run("fillrandom", group, mode, seed, &flags)?;
        let fill = lines.first().ok_or("db_bench printed no result of fillrandom")?;
        best_of(&mut best, &Figures::from([(Figure::Bulk, fill.ops_per_second)]));
    }
    Ok(best)
}

fn reads(group: &Group, modes: &[Mode], seed: u64) -> Outcome<BTreeMap<Mode, Figures>> {
    let database = Database::new()?;
    let first = modes.first().copied().unwrap_or(Mode::Cache);
    database.run("fillrandom,compact", group, first, seed, &[])?;
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
        second_of_each(&mut figures, &database.run(twice, group, mode, seed, &flags(1))?);
        let by_two = database.run("readrandom,readrandom", group, mode, seed + 100, &flags(2))?;
        figures.extend(by_two.last().map(|line| (Figure::ReadTwo, line.ops_per_second)));
        measured.insert(mode, figures);
    }
    if !group.rows.iter().any(|row| row.figure == Figure::Mixed) {
        return Ok(measured);
    }
    // Writes change the tables: last, and each mode after a compaction and on a warm cache.
    for (number, &mode) in modes.iter().enumerate() {
        let flags =
            ["--use_existing_db=1".to_owned(), "--readwritepercent=50".into(), format!("--reads={}", group.reads())];
        let seed = seed + 1000 * (number as u64 + 1) + 200;
        let lines = database.run("compact,readrandom,readrandomwriterandom", group, mode, seed, &flags)?;
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
        let lines = Database::new()?.run(&scans.names(), group, mode, seed, &flags)?;
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

/// A database on tmpfs, removed when this is dropped.
#[derive(Debug)]
struct Database {
    folder: PathBuf,
}

impl Database {
    fn new() -> Outcome<Self> {
        let folder = Path::new(TMPFS).join(format!("forebay-compare-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self { folder })
    }

    fn run(&self, benchmarks: &str, group: &Group, mode: Mode, seed: u64, more: &[String]) -> Outcome<Vec<Line>> {
        let mut flags = usual_flags();
        flags.extend([
            format!("--benchmarks={benchmarks}"),
            format!("--db={}", self.folder.display()),
            format!("--num={}", group.writes_per_thread()),
            format!("--key_size={KEY_BYTES}"),
            format!("--value_size={}", group.value_bytes),
            format!("--seed={seed}"),
        ]);
        flags.push(match mode {
            Mode::Cache => format!("--cache_size={}", group.data_bytes() * 2),
            Mode::Mmap => "--mmap_read=1".into(),
        });
        flags.extend_from_slice(more);
        let text = output(Path::new(PROGRAM), &flags)?;
        Ok(text.lines().filter_map(Line::parse).collect())
    }

    /// Time from the moment that the database was open to the end of its last flush or compaction
    /// before it was closed, seconds. db_bench's own wait sleeps for seconds at a time.
    fn quiet_after_seconds(&self) -> Outcome<f64> {
        let path = self.folder.join("LOG");
        let log = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        quiet_after_seconds(&log).ok_or_else(|| "RocksDB's log does not say when it was opened".into())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// See [`Database::quiet_after_seconds`].
fn quiet_after_seconds(log: &str) -> Option<f64> {
    let mut opened = None;
    let mut last = 0.0_f64;
    for line in log.lines() {
        if line.contains("Shutdown: canceling all background work") {
            break;
        }
        if line.contains(" DB pointer 0x") {
            opened = opened.or(time_of_day_seconds(line));
        } else if line.contains("\"event\": \"flush_finished\"") || line.contains("\"event\": \"compaction_finished\"")
        {
            let since = time_of_day_seconds(line)? - opened?;
            // A run may go beyond midnight.
            last = last.max(if since < 0.0 { since + 86_400.0 } else { since });
        }
    }
    opened.map(|_| last)
}

/// The time in front of a line of the log: `2026/11/22-01:27:58.035883 …`.
fn time_of_day_seconds(line: &str) -> Option<f64> {
    let time = line.split_whitespace().next()?.split_once('-')?.1;
    let mut parts = time.split(':').map(str::parse::<f64>);
    Some(parts.next()?.ok()? * 3600.0 + parts.next()?.ok()? * 60.0 + parts.next()?.ok()?)
}

/// A result that db_bench printed.
#[derive(Debug, PartialEq)]
struct Line {
    name: String,
    ops_per_second: f64,
    seconds: f64,
}

impl Line {
    /// `readrandom   :       3.519 micros/op 283292 ops/sec 0.706 seconds 200000 operations; …`
    fn parse(line: &str) -> Option<Self> {
        let (name, rest) = line.split_once(':')?;
        let words: Vec<_> = rest.split_whitespace().collect();
        let before = |unit: &str| {
            let place = words.iter().position(|word| *word == unit)?;
            words.get(place.checked_sub(1)?)?.parse::<f64>().ok()
        };
        let (ops_per_second, seconds) = (before("ops/sec")?, before("seconds")?);
        Some(Self { name: name.trim().into(), ops_per_second, seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read() {
        let line = "readrandom   :       3.519 micros/op 283292 ops/sec 0.706 seconds 200000 operations;   71.7 MB/s (1 of 2 found)";
        let read = Line { name: "readrandom".into(), ops_per_second: 283_292.0, seconds: 0.706 };
        assert_eq!(Line::parse(line), Some(read));
        for other in ["", "DB path: [/dev/shm/x]", "waitforcompaction(/dev/shm/x): finished", "Entries:    200000"] {
            assert_eq!(Line::parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_log_says_when_it_was_quiet() {
        let log = "2026/11/22-01:27:58.000000 31421 DB pointer 0x563e1d4b7980\n\
            2026/11/22-01:27:58.659845 31425 EVENT_LOG_v1 {\"time_micros\": 1, \"job\": 2, \"event\": \"flush_started\"}\n\
            2026/11/22-01:28:01.500000 31425 (Original Log Time 2026/11/22-01:27:59.011658) EVENT_LOG_v1 {\"event\": \"compaction_finished\"}\n\
            2026/11/22-01:29:01.000000 31425 [x] Shutdown: canceling all background work\n\
            2026/11/22-01:29:02.000000 31425 EVENT_LOG_v1 {\"event\": \"flush_finished\"}\n";
        assert!((quiet_after_seconds(log).unwrap() - 3.5).abs() < 1e-6);
        assert_eq!(quiet_after_seconds(""), None);
        let midnight = log.replace("01:28:01", "00:00:01").replace("01:27:58.000000", "23:59:59.000000");
        assert!((quiet_after_seconds(&midnight.replace("01:27:58.6", "23:59:59.6")).unwrap() - 2.5).abs() < 1e-6);
    }
}
