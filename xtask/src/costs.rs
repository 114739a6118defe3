//! How long each step of a run took, and each program of tests.

use crate::Outcome;
use std::time::{Duration, Instant};

/// The steps so far.
#[derive(Debug, Default)]
pub(crate) struct Costs(Vec<(&'static str, Duration)>);

impl Costs {
    /// Runs a step and notes its time, also when it fails.
    pub(crate) fn note(&mut self, name: &'static str, step: impl FnOnce() -> Outcome) -> Outcome {
        let start = Instant::now();
        let outcome = step();
        self.0.push((name, start.elapsed()));
        outcome
    }

    /// Seconds of each step, the longest first, and of all.
    pub(crate) fn table(&self) -> String {
        let mut steps = self.0.clone();
        steps.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        steps.push(("total", steps.iter().map(|(_, time)| *time).sum()));
        table("step", steps.iter().map(|(name, time)| (*name, *time)))
    }
}

fn table<'a>(heading: &str, rows: impl Iterator<Item = (&'a str, Duration)>) -> String {
    let rows = rows.map(|(name, time)| format!("{name:<48} {:>9.1}\n", time.as_secs_f64()));
    format!("{heading:<48} {:>9}\n{}", "seconds", rows.collect::<String>())
}

/// Programs of tests that the table shows.
const SHOWN: usize = 20;

/// How long each program of tests ran: from the line in which cargo says that it starts to the next one.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    ended: Vec<(String, Duration)>,
    running: Option<(String, Instant)>,
}

impl Programs {
    /// Takes a line of cargo's into account.
    pub(crate) fn note(&mut self, line: &str) {
        if let Some(name) = program(line) {
            self.end();
            self.running = Some((name, Instant::now()));
        }
    }

    /// Nothing runs any more.
    pub(crate) fn end(&mut self) {
        if let Some((name, start)) = self.running.take() {
            self.ended.push((name, start.elapsed()));
        }
    }

    /// Seconds of those that ran the longest.
    pub(crate) fn table(&self) -> String {
        let mut programs = self.ended.clone();
        programs.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        table("program of tests", programs.iter().take(SHOWN).map(|(name, time)| (name.as_str(), *time)))
    }
}

/// The package and the target of the program that a line of cargo's announces.
fn program(line: &str) -> Option<String> {
    let line = line.trim_start();
    if let Some(package) = line.strip_prefix("Doc-tests ") {
        return Some(format!("{package}, documentation"));
    }
    let (source, path) = line.strip_prefix("Running ")?.strip_suffix(')')?.split_once(" (")?;
    // A program's file has its target's name, and a hash; that of a library or binary its package's, nearly.
    let file = path.rsplit('/').next()?;
    let target = file.rsplit_once('-').map_or(file, |(target, _)| target);
    Some(format!("{target}, {}", source.strip_prefix("unittests ").map_or("integration", |_| "unit")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Failure;

    #[test]
    fn the_longest_step_is_first_and_the_total_last() {
        let costs = Costs(vec![("short", Duration::from_millis(1500)), ("long", Duration::from_secs(100))]);
        let table = costs.table();
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows, [["step", "seconds"], ["long", "100.0"], ["short", "1.5"], ["total", "101.5"]]);
    }

    #[test]
    fn programs_are_told_apart_by_what_cargo_says() {
        let unit = "     Running unittests src/lib.rs (target/debug/deps/forebay_tree-0123456789abcdef)";
        assert_eq!(program(unit).as_deref(), Some("forebay_tree, unit"));
        let other = "     Running tests/counts.rs (target/debug/deps/counts-0123456789abcdef)";
        assert_eq!(program(other).as_deref(), Some("counts, integration"));
        assert_eq!(program("   Doc-tests forebay").as_deref(), Some("forebay, documentation"));
        assert_eq!(program("   Compiling forebay-tree v0.1.0 (/a/b)"), None);
        let mut programs = Programs::default();
        [unit, "test result: ok", other].iter().for_each(|line| programs.note(line));
        assert_eq!(programs.ended.len(), 1);
        programs.end();
        assert_eq!(programs.table().lines().count(), 3);
    }

    #[test]
    fn a_step_that_fails_is_noted() {
        let mut costs = Costs::default();
        assert!(costs.note("fails", || Err(Failure::Failed("why".into()))).is_err());
        assert!(costs.note("passes", || Ok(())).is_ok());
        assert_eq!(costs.0.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["fails", "passes"]);
    }
}
