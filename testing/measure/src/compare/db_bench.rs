//! RocksDB's `db_bench`: runs it and reads its results.

use crate::Outcome;
use crate::processes::{Ran, output, run};
use crate::scratch::Scratch;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// Where Debian puts the program, and any system with a search path finds it.
const PROGRAM: &str = "db_bench";
/// Length of the keys, bytes.
pub const KEY_BYTES: u64 = 20;

/// How blocks are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Through a block cache that holds everything.
    Cache,
    /// Through mapped files.
    Mmap,
}

impl Mode {
    /// The name for people.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Cache => "RocksDB, cache",
            Self::Mmap => "RocksDB, mmap",
        }
    }
}

/// The program's version.
///
/// # Errors
/// When the program is missing.
pub fn version() -> Outcome<String> {
    let text = output(Path::new(PROGRAM), &["--version".into()])
        .map_err(|error| format!("{error}; install Debian's package rocksdb-tools: `apt-get install rocksdb-tools`"))?;
    Ok(text.trim().to_owned())
}

/// Flags of all runs, so that they can be repeated by hand.
pub fn usual_flags() -> Vec<String> {
    [
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

/// A database in a temporary folder of its own.
#[derive(Debug)]
pub struct Database {
    folder: Scratch,
}

impl Database {
    /// An empty database below a folder.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn below(folder: &Path) -> Outcome<Self> {
        Ok(Self { folder: Scratch::below(folder, "rocksdb")? })
    }

    /// Bytes that its files take on the disk.
    pub fn taken_bytes(&self) -> u64 {
        self.folder.taken_bytes()
    }

    /// Runs benchmarks with the usual flags and these.
    ///
    /// # Errors
    /// When the program fails.
    pub fn run(&self, benchmarks: &str, flags: &[String]) -> Outcome<Results> {
        let mut all = usual_flags();
        all.extend([
            format!("--benchmarks={benchmarks}"),
            format!("--db={}", self.folder.path().display()),
            format!("--key_size={KEY_BYTES}"),
        ]);
        all.extend_from_slice(flags);
        let Ran { text, written_bytes } = run(Path::new(PROGRAM), &all)?;
        Ok(Results { lines: text.lines().filter_map(Line::parse).collect(), written_bytes })
    }

    /// Time from the moment that the database was open to the end of its last flush or compaction
    /// before it was closed, seconds. db_bench's own wait sleeps for seconds at a time.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn quiet_after_seconds(&self) -> Outcome<f64> {
        let path = self.folder.path().join("LOG");
        let log = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        quiet_after_seconds(&log).ok_or_else(|| "RocksDB's log does not say when it was opened".into())
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

/// The time at the start of a line of the log: `2026/11/22-01:27:58.035883 …`.
fn time_of_day_seconds(line: &str) -> Option<f64> {
    let time = line.split_whitespace().next()?.split_once('-')?.1;
    let mut parts = time.split(':').map(str::parse::<f64>);
    Some(parts.next()?.ok()? * 3600.0 + parts.next()?.ok()? * 60.0 + parts.next()?.ok()?)
}

/// The results of a run.
#[derive(Debug)]
pub struct Results {
    /// The results that were printed, in order.
    pub lines: Vec<Line>,
    /// Bytes that the process wrote, mostly to files.
    pub written_bytes: u64,
}

impl Results {
    /// The result of this name; the last of several.
    ///
    /// # Errors
    /// When there is none.
    pub fn last(&self, name: &str) -> Outcome<&Line> {
        let found = self.lines.iter().rfind(|line| line.name == name);
        found.ok_or_else(|| format!("{PROGRAM} printed no result of {name}"))
    }
}

/// A result that was printed.
#[derive(Debug, PartialEq)]
pub struct Line {
    /// The benchmark.
    pub name: String,
    /// Operations a second.
    pub ops_per_second: f64,
    /// How long it took.
    pub seconds: f64,
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
