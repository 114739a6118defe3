//! The comparison as a table, a page and JSON.

use super::Figures;
use super::groups::{Group, Row};
use super::rocksdb::Mode;
use crate::Outcome;
use crate::machine::Machine;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// A measured row.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// Name of its group.
    pub group: &'static str,
    /// What it is, for people.
    pub workload: String,
    /// Forebay's operations a second.
    pub forebay: Option<f64>,
    /// RocksDB's, the better.
    pub rocksdb: Option<f64>,
    /// RocksDB's by mode.
    pub rocksdb_modes: BTreeMap<Mode, f64>,
    /// How many times as fast Forebay is.
    pub ratio: Option<f64>,
    /// How many times it is to be.
    pub goal: Option<f64>,
    /// Whether it is.
    pub met: Option<bool>,
    /// Why there is no figure.
    pub failures: Vec<String>,
}

impl Measured {
    /// The row from the figures of its group.
    pub fn new(group: &Group, row: &Row, ours: &Outcome<Figures>, theirs: &Outcome<BTreeMap<Mode, Figures>>) -> Self {
        let forebay = ours.as_ref().ok().and_then(|figures| figures.get(&row.figure)).copied();
        let modes = theirs.as_ref().ok().into_iter().flatten();
        let rocksdb_modes: BTreeMap<_, _> =
            modes.filter_map(|(mode, figures)| Some((*mode, *figures.get(&row.figure)?))).collect();
        let rocksdb = rocksdb_modes.values().copied().reduce(f64::max);
        let ratio = forebay.zip(rocksdb).map(|(ours, theirs)| ours / theirs);
        Self {
            group: group.name,
            workload: group.label(row),
            forebay,
            rocksdb,
            rocksdb_modes,
            ratio,
            goal: row.goal,
            met: ratio.zip(row.goal).map(|(ratio, goal)| ratio >= goal),
            failures: [ours.as_ref().err(), theirs.as_ref().err()].into_iter().flatten().cloned().collect(),
        }
    }

    /// A line while it is measured.
    pub fn line(&self) -> String {
        let [rocksdb, forebay, ratio, goal, met] = self.cells();
        format!("  {:<50} RocksDB {rocksdb}, Forebay {forebay}: {ratio}, goal {goal}, {met}", self.workload)
    }

    fn cells(&self) -> [String; 5] {
        let millions = |rate: Option<f64>| rate.map_or("–".into(), |rate| format!("{:.3}", rate / 1e6));
        let times = |times: Option<f64>| times.map_or("–".into(), |times| format!("{times:.1}x"));
        let better = self.rocksdb_modes.iter().max_by(|a, b| a.1.total_cmp(b.1));
        let by = match better {
            Some((Mode::Mmap, _)) => " (mmap)",
            Some((Mode::Cache, _)) => " (cache)",
            None => "",
        };
        let met = match self.met {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "–",
        };
        [millions(self.rocksdb) + by, millions(self.forebay), times(self.ratio), times(self.goal), met.into()]
    }
}

/// All that was measured, and on what.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// The machine.
    pub machine: Machine,
    /// RocksDB's version.
    pub rocksdb: String,
    /// Flags of every run of `forebay bench`.
    pub forebay_flags: Vec<String>,
    /// Flags of every run of `db_bench`.
    pub rocksdb_flags: Vec<String>,
    /// How often each row was measured.
    pub repeat: u32,
    /// The rows.
    pub rows: Vec<Measured>,
}

impl Comparison {
    /// The table, in Markdown.
    pub fn table(&self) -> String {
        let mut text = "| workload | RocksDB, million/s | Forebay, million/s | ratio | goal | met |\n\
                        |---|---|---|---|---|---|\n"
            .to_owned();
        for row in &self.rows {
            let _ = writeln!(text, "| {} | {} |", row.workload, row.cells().join(" | "));
        }
        text
    }

    /// Writes the page and the JSON.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, folder: &Path) -> Outcome {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
            eprintln!("written: {}", path.display());
            Ok::<(), String>(())
        };
        let json = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        write("comparison.json", &(json + "\n"))?;
        write("comparison.md", &self.page())
    }

    fn page(&self) -> String {
        let failures: Vec<_> = self
            .rows
            .iter()
            .flat_map(|row| row.failures.iter().map(move |why| format!("- {}: {why}\n", row.group)))
            .collect();
        let failures =
            if failures.is_empty() { String::new() } else { format!("\n## What failed\n\n{}", failures.concat()) };
        format!(
            "# Forebay and RocksDB\n\n\
             Made by `cargo xtask compare`; the same as JSON, with the machine: [comparison.json](comparison.json).\n\n\
             Machine: {}. Commit {}. {}. Median of {}.\n\n{}\n\
             Rates are of all threads together. Both have 20 B keys, 64 MB memtables and tables, no compression and no\n\
             log. Forebay runs as two processes, memory node and compute node, over shared memory; the memory node has\n\
             two threads for jobs. RocksDB runs on tmpfs with 10-bit Bloom filters; each row ran through a block cache that\n\
             holds everything and through mapped files, and the better counts. Bulk load of RocksDB: no triggers, no\n\
             compactions, the better of the skip list and the vector memtable. Reads come after `compact`, and the second\n\
             pass counts; scans right after the fill and once quiet come without it. \"Until quiet\" stops the clock when the\n\
             last flush or compaction is done; RocksDB's is read from its log, because db_bench's own wait sleeps. Threads of a fill share the records. Neither side verifies values\n\
             or reads the clock in every call.\n\n\
             Flags of every `forebay bench`: `{}`.\n\n\
             Flags of every `db_bench`: `{}`.\n{failures}",
            self.machine.line(),
            self.machine.commit,
            self.rocksdb,
            self.repeat,
            self.table(),
            self.forebay_flags.join(" "),
            self.rocksdb_flags.join(" "),
        )
    }
}
