//! `cargo xtask compare`: db_bench's workloads on Forebay and on RocksDB.
//!
//! Both get 20 B keys, 64 MB memtables and tables, no compression and no log, and the same
//! triggers, jobs and memtables. Forebay runs as two processes over shared memory; RocksDB on tmpfs,
//! each workload through a block cache that holds everything and through mapped files, and the
//! better of both counts. Read workloads run on compacted tables, twice, and the second pass counts.
//! Neither verifies what it reads, and neither reads the clock in every call.

mod best;
mod forebay;
mod groups;
mod rocksdb;
mod table;

use crate::machine::Machine;
use crate::processes::Forebay;
use crate::{Outcome, machine};
use best::{Figures, best_of};
use groups::{Figure, GROUPS, Group};
use rocksdb::Mode;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use table::{Comparison, Measured};

/// Where the comparison is kept that the documents cite.
const KEPT: &str = "docs/reference";

/// What is compared, and how long.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A fifth of the records, for a first look.
    #[arg(long)]
    quick: bool,
    /// Groups of rows, separated by commas; by default all.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    rows: Vec<String>,
    /// Print the groups of rows, and do nothing.
    #[arg(long)]
    list: bool,
    /// How often each row is measured; the median counts.
    #[arg(long, default_value_t = 1, value_name = "TIMES")]
    repeat: u32,
    /// How RocksDB reads blocks; of several the better counts.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Mode::Cache, Mode::Mmap], value_name = "MODES")]
    rocksdb: Vec<Mode>,
    /// Only Forebay.
    #[arg(long)]
    forebay_only: bool,
    /// More flags of every `forebay bench`, separated by spaces: for measuring an option against its default.
    #[arg(long, value_delimiter = ' ', allow_hyphen_values = true, value_name = "FLAGS")]
    forebay_flags: Vec<String>,
    /// Folder that gets `comparison.md` and `comparison.json`; by default `docs/reference` for all rows of both, and
    /// nothing is written of a part.
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Where randomness begins.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Arguments {
    /// Flags that every run of Forebay has.
    fn all_flags(&self) -> Vec<String> {
        forebay::usual_flags().into_iter().chain(self.forebay_flags.iter().cloned()).collect()
    }

    /// Where the results are written, if anywhere: neither a part nor other flags replace the whole that is kept.
    fn folder(&self) -> Option<&Path> {
        let whole = self.rows.is_empty() && !self.forebay_only && !self.quick && self.forebay_flags.is_empty();
        self.output.as_deref().or_else(|| whole.then(|| Path::new(KEPT)))
    }
}

/// Measures and prints the table.
///
/// # Errors
/// When a program is missing or a name is wrong. A row that fails is told in the table.
pub fn execute(arguments: &Arguments) -> Outcome {
    let groups = chosen(arguments)?;
    if arguments.list {
        for group in &groups {
            group.rows.iter().for_each(|row| println!("{:<10} {}", group.name, group.label(row)));
        }
        return Ok(());
    }
    let rocksdb_version = if arguments.forebay_only { String::new() } else { rocksdb::version()? };
    let forebay = Forebay::build()?;
    let mut comparison = Comparison {
        machine: Machine::this(),
        rocksdb: rocksdb_version,
        forebay_flags: arguments.all_flags(),
        rocksdb_flags: rocksdb::usual_flags(),
        repeat: arguments.repeat.max(1),
        rows: Vec::new(),
    };
    eprintln!("{}", comparison.machine.line());
    for group in &groups {
        let (ours, theirs) = measure(arguments, &forebay, group);
        for row in group.rows {
            let measured = Measured::new(group, row, &ours, &theirs);
            eprintln!("{}", measured.line());
            comparison.rows.push(measured);
        }
        // After each group: what a long run has measured outlives its being stopped.
        if let Some(folder) = arguments.folder() {
            comparison.write(folder)?;
        }
    }
    println!("{}", comparison.table());
    Ok(())
}

fn chosen(arguments: &Arguments) -> Outcome<Vec<Group>> {
    if let Some(wrong) = arguments.rows.iter().find(|name| GROUPS.iter().all(|group| group.name != **name)) {
        let names: Vec<_> = GROUPS.iter().map(|group| group.name).collect();
        return Err(format!("there are no rows `{wrong}`; there are {}", names.join(", ")));
    }
    let wanted =
        GROUPS.iter().filter(|group| arguments.rows.is_empty() || arguments.rows.iter().any(|n| n == group.name));
    let smaller = if arguments.quick { 5 } else { 1 };
    Ok(wanted.map(|group| Group { records: group.records / smaller, ..group.clone() }).collect())
}

/// The medians of a group's figures: ours, and RocksDB's by mode. What fails is told.
fn measure(
    arguments: &Arguments,
    forebay: &Forebay,
    group: &Group,
) -> (Outcome<Figures>, Outcome<BTreeMap<Mode, Figures>>) {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for time in 0..u64::from(arguments.repeat.max(1)) {
        let seed = arguments.seed + time;
        let free_gib = machine::available_bytes().unwrap_or(0) >> 30;
        eprintln!("{}, time {} of {}, {free_gib} GiB free", group.name, time + 1, arguments.repeat.max(1));
        ours.push(forebay::measure(forebay, group, seed, &arguments.all_flags()));
        if !arguments.forebay_only {
            theirs.push(rocksdb::measure(group, &arguments.rocksdb, seed));
        }
    }
    let ours = ours.into_iter().collect::<Outcome<Vec<_>>>().map(|runs| medians(&runs));
    let theirs = theirs.into_iter().collect::<Outcome<Vec<_>>>().map(|runs| {
        let modes = arguments.rocksdb.iter();
        modes
            .map(|mode| (*mode, medians(&runs.iter().filter_map(|run| run.get(mode)).cloned().collect::<Vec<_>>())))
            .collect()
    });
    for failure in [ours.as_ref().err(), theirs.as_ref().err()].into_iter().flatten() {
        eprintln!("{}: {failure}", group.name);
    }
    (ours, theirs)
}

/// The median of each figure over runs; of an even number the lower middle.
fn medians(runs: &[Figures]) -> Figures {
    let mut values: BTreeMap<Figure, Vec<f64>> = BTreeMap::new();
    for (figure, value) in runs.iter().flatten() {
        values.entry(*figure).or_default().push(*value);
    }
    values
        .into_iter()
        .filter_map(|(figure, mut values)| {
            values.sort_by(f64::total_cmp);
            values.get((values.len() - 1) / 2).map(|&median| (figure, median))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_does_not_replace_what_is_kept() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            arguments: Arguments,
        }
        let folder = |line: &str| {
            let line = <Line as clap::Parser>::parse_from(line.split_whitespace());
            line.arguments.folder().map(Path::to_path_buf)
        };
        assert_eq!(folder("compare --repeat 3"), Some(PathBuf::from(KEPT)));
        for part in ["--rows bulk", "--forebay-only", "--quick", "--forebay-flags --flush-order=by-key"] {
            assert_eq!(folder(&format!("compare {part}")), None, "{part}");
            assert_eq!(
                folder(&format!("compare {part} --output elsewhere")),
                Some(PathBuf::from("elsewhere")),
                "{part}"
            );
        }
    }

    #[test]
    fn medians_and_the_better_of_two() {
        let run = |fill: f64| Figures::from([(Figure::Fill, fill)]);
        assert_eq!(medians(&[run(3.0), run(1.0), run(2.0)]), run(2.0));
        assert_eq!(medians(&[run(3.0), run(1.0)]), run(1.0));
        assert_eq!(medians(&[]), Figures::new());
        let mut best = run(2.0);
        best_of(&mut best, &run(1.0));
        assert_eq!(best, run(2.0));
        best_of(&mut best, &Figures::from([(Figure::Read, 1.0), (Figure::Fill, 4.0)]));
        assert_eq!(best, Figures::from([(Figure::Read, 1.0), (Figure::Fill, 4.0)]));
    }
}
