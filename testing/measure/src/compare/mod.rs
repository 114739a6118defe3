//! `cargo xtask compare`: Forebay beside RocksDB and Redis, measured in the same run.
//!
//! | module | what |
//! |---|---|
//! | `memory` | nothing survives: db_bench's workloads, RocksDB on tmpfs |
//! | `durable` | writes survive, and tables are in storage: RocksDB in the same directory |
//! | `served` | the Redis protocol: redis-benchmark on redis-server and `forebay serve` |
//! | `group`, `findings` | groups of rows, and their figures |
//! | `kept` | the page and the JSON: a measured group replaces only itself |
//! | `db_bench`, `forebay_bench` | the programs |

mod db_bench;
mod durable;
mod findings;
mod forebay_bench;
mod group;
mod kept;
mod memory;
mod served;

use crate::machine::Machine;
use crate::processes::Forebay;
use crate::{Outcome, machine};
use db_bench::Mode;
use findings::Findings;
use group::{Bench, Group, Section};
use kept::{Comparison, Measured};
use std::path::{Path, PathBuf};

/// The folder of the comparison that the documents cite.
const KEPT: &str = "docs/reference";

/// What is compared, and how long.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A fifth of the records, for a first look; with a number, that part of them.
    #[arg(long, default_value_t = 1, default_missing_value = "5", num_args = 0..=1, require_equals = true, value_name = "DIVISOR")]
    quick: u64,
    /// Groups of rows, separated by commas; by default all.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    rows: Vec<String>,
    /// Only the groups of these sections.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SECTIONS")]
    section: Vec<Section>,
    /// Print the groups of rows, and do nothing.
    #[arg(long)]
    list: bool,
    /// How often each group is measured; the medians count.
    #[arg(long, default_value_t = 1, value_name = "TIMES")]
    repeat: u32,
    /// How RocksDB reads blocks in memory; of several the better counts.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Mode::Cache, Mode::Mmap], value_name = "MODES")]
    rocksdb: Vec<Mode>,
    /// Only Forebay.
    #[arg(long)]
    forebay_only: bool,
    /// More flags of every `forebay bench`, separated by spaces: for measuring an option against its default.
    #[arg(long, value_delimiter = ' ', allow_hyphen_values = true, value_name = "FLAGS")]
    forebay_flags: Vec<String>,
    /// Folder whose `comparison.md` and `comparison.json` get the groups; by default `docs/reference`, unless it is only a
    /// first look, Forebay alone, or with other flags.
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// A folder on a disk, for databases that survive; it needs room for 60 GB.
    #[arg(long, default_value = "target/compare", value_name = "FOLDER")]
    folder: PathBuf,
    /// Where randomness begins.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Arguments {
    /// Where the results are written, if anywhere: results that are not comparable replace nothing that is kept.
    fn kept_in(&self) -> Option<&Path> {
        let whole = self.quick <= 1 && !self.forebay_only && self.forebay_flags.is_empty();
        self.output.as_deref().or_else(|| whole.then(|| Path::new(KEPT)))
    }
}

/// Measures and prints the table.
///
/// # Errors
/// When a program is missing or a name is wrong. The table reports a row that fails.
pub fn execute(arguments: &Arguments) -> Outcome {
    let all = all();
    let order: Vec<&str> = all.iter().map(|group| group.name).collect();
    let chosen = chosen(arguments, &all)?;
    if arguments.list {
        chosen.iter().for_each(|group| println!("{:<16} {}", group.name, group.about));
        return Ok(());
    }
    std::fs::create_dir_all(&arguments.folder).map_err(|error| format!("{}: {error}", arguments.folder.display()))?;
    let bench = Bench {
        forebay: Forebay::build()?,
        modes: arguments.rocksdb.clone(),
        forebay_only: arguments.forebay_only,
        flags: arguments.forebay_flags.clone(),
        divisor: arguments.quick,
        seed: arguments.seed,
        folder: arguments.folder.clone(),
    };
    let machine = Machine::this();
    let repeat = arguments.repeat.max(1);
    let mut kept = arguments.kept_in().map(Comparison::read).transpose()?;
    let mut measured = Vec::new();
    eprintln!("{}", machine.line());
    for group in chosen {
        let beside = if arguments.forebay_only { String::new() } else { version(group.section)? };
        let findings = measure(&bench, group, repeat);
        findings.failures.iter().for_each(|failure| eprintln!("{}: {failure}", group.name));
        findings.rows.iter().for_each(|row| eprintln!("{}", row.line()));
        let found = Measured::new(group, findings, machine.clone(), beside, &arguments.forebay_flags, repeat);
        // After each group, so that a long run that is stopped keeps its measurements.
        if let Some((kept, folder)) = kept.as_mut().zip(arguments.kept_in()) {
            kept.take(found.clone(), &order);
            kept.write(folder)?;
        }
        measured.push(found);
    }
    println!("{}", kept::table(&measured.iter().collect::<Vec<_>>()));
    Ok(())
}

/// All groups, in the order of the page.
fn all() -> Vec<Group> {
    memory::groups().into_iter().chain(durable::groups()).chain(served::groups()).collect()
}

fn chosen<'a>(arguments: &Arguments, all: &'a [Group]) -> Outcome<Vec<&'a Group>> {
    if let Some(wrong) = arguments.rows.iter().find(|name| all.iter().all(|group| group.name != **name)) {
        let names: Vec<_> = all.iter().map(|group| group.name).collect();
        return Err(format!("there are no rows `{wrong}`; there are {}", names.join(", ")));
    }
    let by_name = |group: &&Group| arguments.rows.is_empty() || arguments.rows.iter().any(|name| name == group.name);
    let by_section = |group: &&Group| arguments.section.is_empty() || arguments.section.contains(&group.section);
    Ok(all.iter().filter(by_name).filter(by_section).collect())
}

/// The version of the program that a section's groups are compared with.
fn version(section: Section) -> Outcome<String> {
    match section {
        Section::Memory | Section::Durable => db_bench::version(),
        Section::Served => served::version(),
    }
}

/// The medians of a group.
fn measure(bench: &Bench, group: &Group, repeat: u32) -> Findings {
    let once = |time: u32| {
        let free_gib = machine::available_bytes().unwrap_or(0) >> 30;
        eprintln!("{}, time {} of {repeat}, {free_gib} GiB free", group.name, time + 1);
        (group.measure)(&Bench { seed: bench.seed + u64::from(time), ..bench.clone() })
    };
    Findings::median(&(0..repeat).map(once).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parsed(line: &str) -> Arguments {
        <Line as clap::Parser>::parse_from(line.split_whitespace()).arguments
    }

    #[test]
    fn what_is_not_comparable_does_not_replace_what_is_kept() {
        let folder = |line: &str| parsed(line).kept_in().map(Path::to_path_buf);
        assert_eq!(folder("compare --repeat 3 --rows bulk"), Some(PathBuf::from(KEPT)));
        for part in ["--forebay-only", "--quick", "--quick=50", "--forebay-flags --flush-order=by-key"] {
            assert_eq!(folder(&format!("compare {part}")), None, "{part}");
            assert_eq!(
                folder(&format!("compare {part} --output elsewhere")),
                Some(PathBuf::from("elsewhere")),
                "{part}"
            );
        }
    }

    #[test]
    fn names_are_unique() {
        let groups = all();
        for (place, group) in groups.iter().enumerate() {
            assert!(groups[..place].iter().all(|other| other.name != group.name), "{}", group.name);
        }
    }

    #[test]
    fn groups_are_chosen_by_name_and_section() {
        let all = all();
        let names = |line: &str| {
            let chosen = chosen(&parsed(line), &all);
            chosen.map(|groups| groups.iter().map(|group| group.name).collect::<Vec<_>>())
        };
        assert_eq!(names("compare --rows bulk,reads"), Ok(vec!["bulk", "reads"]));
        assert_eq!(names("compare").map(|names| names.len()), Ok(all.len()));
        assert!(names("compare --section served").is_ok_and(|names| !names.is_empty() && names.len() < all.len()));
        assert!(names("compare --rows bulks").is_err_and(|message| message.contains("bulk")));
    }
}
