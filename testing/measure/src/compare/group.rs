//! Groups of rows that are measured together, and the settings of measurements.

use super::db_bench::Mode;
use super::findings::Findings;
use crate::processes::Forebay;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The topic of groups; each has a table of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// Nothing survives: RocksDB without its log on tmpfs.
    Memory,
    /// Writes survive, and tables are in storage: RocksDB in the same directory.
    Durable,
    /// The Redis protocol: redis-server.
    Served,
}

impl Section {
    /// All, in the order of the page.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Durable, Self::Served];
}

/// Rows that are measured together.
pub struct Group {
    /// The name for `--rows`.
    pub name: &'static str,
    /// Its topic.
    pub section: Section,
    /// Its rows, for people.
    pub about: String,
    /// Measures the rows once.
    pub measure: Box<dyn Fn(&Bench) -> Findings>,
}

impl Group {
    /// A group to whose findings `measure` adds rows; a failure is noted there.
    pub fn new(
        section: Section,
        name: &'static str,
        about: &str,
        measure: fn(&Bench, &mut Findings) -> crate::Outcome,
    ) -> Self {
        let measured = move |bench: &Bench| {
            let mut findings = Findings::default();
            let ended = measure(bench, &mut findings);
            findings.note(ended);
            findings
        };
        Self { name, section, about: about.to_owned(), measure: Box::new(measured) }
    }
}

/// The settings of measurements.
#[derive(Debug, Clone)]
pub struct Bench {
    /// The command.
    pub forebay: Forebay,
    /// How RocksDB reads blocks where it has the choice.
    pub modes: Vec<Mode>,
    /// Whether nothing else is measured.
    pub forebay_only: bool,
    /// More flags of every `forebay bench`.
    pub flags: Vec<String>,
    /// Divisor of numbers of records.
    pub divisor: u64,
    /// The seed of random numbers.
    pub seed: u64,
    /// A folder on a disk.
    pub folder: PathBuf,
}

impl Bench {
    /// `number` records or operations, or fewer in a quick run.
    pub fn scaled(&self, number: u64) -> u64 {
        (number / self.divisor.max(1)).max(1)
    }

    /// The result of a run of another program, unless only Forebay is measured.
    pub fn other<T>(&self, findings: &mut Findings, run: impl FnOnce() -> crate::Outcome<T>) -> Option<T> {
        if self.forebay_only { None } else { findings.note(run()) }
    }
}
