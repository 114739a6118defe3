//! db_bench's workloads on Forebay in memory and on RocksDB on tmpfs.
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

use super::findings::{Findings, Goal, Row, Unit};
use super::forebay_bench::flags_with;
use super::group::{Bench, Group, Section};

/// All groups: the table of goals.
pub fn groups() -> Vec<Group> {
    let group = |group: &'static groups::Group| Group {
        name: group.name,
        section: Section::Memory,
        about: group.rows.iter().map(|row| row.figure.label()).collect::<Vec<_>>().join("; "),
        measure: Box::new(|bench| measure(bench, group)),
    };
    groups::GROUPS.iter().map(group).collect()
}

fn measure(bench: &Bench, group: &groups::Group) -> Findings {
    let mut findings = Findings::default();
    let group = &groups::Group { records: bench.scaled(group.records), ..group.clone() };
    let flags = flags_with(&bench.flags);
    let ours = findings.note(forebay::measure(&bench.forebay, group, bench.seed, &flags)).unwrap_or_default();
    let theirs = bench.other(&mut findings, || rocksdb::measure(group, &bench.modes, bench.seed)).unwrap_or_default();
    for row in group.rows {
        let mut found = Row::new(group.label(row), Unit::PerSecond, ours.get(&row.figure).copied());
        for (mode, figures) in &theirs {
            found = found.beside(mode.label(), figures.get(&row.figure).copied());
        }
        findings.rows.push(found.with_goal(row.goal.map(Goal::TimesAtLeast)));
    }
    findings
}
