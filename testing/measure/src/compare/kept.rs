//! The measurements that the documents cite: each group as last measured, as JSON and as a page.

use super::findings::{Findings, Row};
use super::group::{Group, Section};
use super::{db_bench, forebay_bench, served};
use crate::Outcome;
use crate::machine::Machine;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// All groups that were measured.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// In the order of the page.
    groups: Vec<Measured>,
}

/// A group, and the circumstances of its measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    /// Its name.
    pub group: String,
    /// Its topic.
    pub section: Section,
    /// The machine.
    pub machine: Machine,
    /// The version of the program that Forebay is compared with.
    pub beside: String,
    /// More flags of every `forebay bench`.
    pub flags: Vec<String>,
    /// How often it was measured; medians count.
    pub repeat: u32,
    /// The rows.
    pub rows: Vec<Row>,
    /// Why figures are missing.
    pub failures: Vec<String>,
}

impl Measured {
    /// A group's findings.
    pub fn new(group: &Group, of: Findings, machine: Machine, beside: String, flags: &[String], repeat: u32) -> Self {
        let Findings { rows, failures } = of;
        let (name, section) = (group.name.to_owned(), group.section);
        Self { group: name, section, machine, beside, flags: flags.to_vec(), repeat, rows, failures }
    }

    /// The circumstances of its measurement.
    fn circumstances(&self) -> String {
        let times = if self.repeat == 1 { "once".to_owned() } else { format!("median of {}", self.repeat) };
        let beside = if self.beside.is_empty() { String::new() } else { format!("; {}", self.beside) };
        let flags = if self.flags.is_empty() { String::new() } else { format!("; with `{}`", self.flags.join(" ")) };
        format!("{}; commit {}{beside}; {times}{flags}", self.machine.line(), self.machine.commit)
    }
}

impl Comparison {
    /// Reads the comparison in a folder; empty if there is none.
    ///
    /// # Errors
    /// When the file holds something else.
    pub fn read(folder: &Path) -> Outcome<Self> {
        let path = json(folder);
        match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    /// Adds a group, and replaces an earlier measurement of it. `order` has the names of all groups.
    pub fn take(&mut self, measured: Measured, order: &[&str]) {
        let place = |name: &str| order.iter().position(|known| *known == name);
        self.groups.retain(|group| group.group != measured.group && place(&group.group).is_some());
        self.groups.push(measured);
        self.groups.sort_by_key(|group| place(&group.group));
    }

    /// Writes the page and the JSON.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, folder: &Path) -> Outcome {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let write = |path: PathBuf, text: &str| {
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
            eprintln!("written: {}", path.display());
            Ok::<(), String>(())
        };
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        write(json(folder), &(text + "\n"))?;
        write(folder.join("comparison.md"), &self.page())
    }

    /// The tables, each with its topic.
    pub fn page(&self) -> String {
        let mut page = "# Forebay and others\n\n\
                        Made by `cargo xtask compare`, which measures groups of rows (`--list`) and keeps the others as they were; \
                        the same as JSON, with the machine: [comparison.json](comparison.json). Rates are of all threads together.\n"
            .to_owned();
        for section in Section::ALL {
            let groups: Vec<_> = self.groups.iter().filter(|group| group.section == section).collect();
            if groups.is_empty() {
                continue;
            }
            let _ = write!(page, "\n## {}\n\n{}\n\n{}", title(section), about(section), table(&groups));
            let _ = write!(page, "\n{}", measured_on(&groups));
            for (group, why) in groups.iter().flat_map(|group| group.failures.iter().map(move |why| (group, why))) {
                let _ = writeln!(page, "- not measured, {}: {why}", group.group);
            }
        }
        page
    }
}

fn json(folder: &Path) -> PathBuf {
    folder.join("comparison.json")
}

/// The rows of groups, in Markdown.
pub fn table(groups: &[&Measured]) -> String {
    let mut text =
        "| group | workload | Forebay | beside | ratio | goal | met |\n|---|---|---|---|---|---|---|\n".to_owned();
    for group in groups {
        for row in &group.rows {
            let _ = writeln!(text, "| {} | {} | {} |", group.group, row.workload, row.cells().join(" | "));
        }
    }
    text
}

/// Circumstances, each with the groups that were measured in them.
fn measured_on(groups: &[&Measured]) -> String {
    let mut all: Vec<(String, Vec<&str>)> = Vec::new();
    for group in groups {
        let circumstances = group.circumstances();
        match all.iter_mut().find(|(known, _)| *known == circumstances) {
            Some((_, names)) => names.push(&group.group),
            None => all.push((circumstances, vec![&group.group])),
        }
    }
    all.iter().map(|(circumstances, names)| format!("- {}: {circumstances}\n", names.join(", "))).collect()
}

const fn title(section: Section) -> &'static str {
    match section {
        Section::Memory => "In memory, beside RocksDB on tmpfs",
        Section::Durable => "Durable and in storage, beside RocksDB in the same directory",
        Section::Served => "Served, beside Redis",
    }
}

fn about(section: Section) -> String {
    match section {
        Section::Memory => format!(
            "Both have 20 B keys, 64 MB memtables and tables, no compression and no log. Forebay runs as two processes, memory\n\
             node and compute node, over shared memory; the memory node has two threads for jobs. RocksDB runs on tmpfs with\n\
             10-bit Bloom filters; each row ran through a block cache that holds everything and through mapped files, and the\n\
             better counts. Bulk load of RocksDB: no triggers, no compactions, the better of the skip list and the vector\n\
             memtable. Reads come after `compact`, and the second pass counts; scans right after the fill and once quiet come\n\
             without it. \"Until quiet\" stops the clock when the last flush or compaction is done; RocksDB's is read from its log,\n\
             because db_bench's own wait sleeps. Threads of a fill share the records. Neither side verifies values or reads the\n\
             clock in every call.\n\n\
             Flags of every `forebay bench`: `{}`.\n\n\
             Flags of every `db_bench`: `--disable_wal=1 {}`.",
            forebay_bench::usual_flags().join(" "),
            db_bench::usual_flags().join(" "),
        ),
        Section::Durable => format!(
            "The same keys, sizes and flags, in a directory on a disk: for Forebay `--storage`, with memory nodes in processes of\n\
             their own, and for RocksDB `--db`, with its log on (`--disable_wal=0`), without compression, and with reads through\n\
             the system's page cache on both sides. A process writes what the system counts as written by it (`wchar`), log\n\
             included. Space is that of the files after the process has closed the database. Recovery: a process is killed\n\
             (SIGKILL) with that much log and nothing flushed; counted is what the next one needs to open the database and to read\n\
             a key.\n\n\
             Flags of `forebay bench` beside those above: `{}`.",
            super::durable::STORAGE_FLAGS.join(" "),
        ),
        Section::Served => served::ABOUT.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::findings::Unit;

    fn measured(group: &str, rate: f64) -> Measured {
        Measured {
            group: group.to_owned(),
            section: Section::Memory,
            machine: Machine::this(),
            beside: String::new(),
            flags: Vec::new(),
            repeat: 1,
            rows: vec![Row::new("fill", Unit::PerSecond, rate)],
            failures: Vec::new(),
        }
    }

    #[test]
    fn a_group_replaces_itself_alone_and_is_read_again() {
        let order = ["first", "second", "third"];
        let mut kept = Comparison::default();
        for (group, rate) in [("gone", 1.0), ("third", 2.0), ("first", 3.0), ("third", 4.0)] {
            let order = if group == "gone" { &["gone"][..] } else { &order };
            kept.take(measured(group, rate), order);
        }
        let found: Vec<_> = kept.groups.iter().map(|group| (group.group.as_str(), group.rows[0].forebay)).collect();
        assert_eq!(found, [("first", Some(3.0)), ("third", Some(4.0))]);
        let again: Comparison = serde_json::from_str(&serde_json::to_string(&kept).unwrap()).unwrap();
        assert_eq!(again.page(), kept.page());
        assert!(kept.page().contains("| third | fill | 4.0 /s | – | – | – | – |"), "{}", kept.page());
    }
}
