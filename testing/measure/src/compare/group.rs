//! Groups of rows that are measured together, and what they are measured with.

use super::db_bench::Mode;
use super::findings::Findings;
use crate::processes::Forebay;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What groups are about; a table of its own each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// Nothing survives: RocksDB without its log on tmpfs.
    Memory,
    /// Writes survive, and tables lie in storage: RocksDB in the same directory.
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
    /// What it is about.
    pub section: Section,
    /// Its rows, for people.
    pub about: String,
    /// Measures them once.
    pub measure: Box<dyn Fn(&Bench) -> Findings>,
}

impl Group {
    /// A group whose findings `measure` adds to; they say so when it fails.
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

/// What groups are measured with.
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
    /// By how much numbers of records are divided.
    pub divisor: u64,
    /// Where randomness begins.
    pub seed: u64,
    /// A folder on a disk.
    pub folder: PathBuf,
}

impl Bench {
    /// So many records or operations, or fewer when it is only tried out.
    pub fn scaled(&self, number: u64) -> u64 {
        (number / self.divisor.max(1)).max(1)
    }

    /// The result of a run of something else, unless only Forebay is measured.
    pub fn other<T>(&self, findings: &mut Findings, run: impl FnOnce() -> crate::Outcome<T>) -> Option<T> {
        if self.forebay_only { None } else { findings.note(run()) }
    }
}
