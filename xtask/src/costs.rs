//! How long each step of a run took, and each program of tests.

use crate::Outcome;
use crate::programs::Ended;
use std::time::{Duration, Instant};

/// The steps so far.
#[derive(Debug)]
pub(crate) struct Costs {
    begin: Instant,
    steps: Vec<(&'static str, Duration)>,
}

impl Costs {
    /// Begins a run now, with no steps yet.
    pub(crate) fn beginning() -> Self {
        Self { begin: Instant::now(), steps: Vec::new() }
    }

    /// Runs a step and notes its time, even if it fails.
    pub(crate) fn note(&mut self, name: &'static str, step: impl FnOnce() -> Outcome) -> Outcome {
        let start = Instant::now();
        let outcome = step();
        self.steps.push((name, start.elapsed()));
        outcome
    }

    /// Seconds of each step, the longest first, and of the run so far.
    pub(crate) fn table(&self) -> String {
        self.table_with(self.begin.elapsed())
    }

    fn table_with(&self, total: Duration) -> String {
        let mut steps = self.steps.clone();
        steps.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        steps.push(("total", total));
        table("step", steps.into_iter())
    }
}

fn table<'a>(heading: &str, rows: impl Iterator<Item = (&'a str, Duration)>) -> String {
    let rows = rows.map(|(name, time)| format!("{name:<48} {:>9.1}\n", time.as_secs_f64()));
    format!("{heading:<48} {:>9}\n{}", "seconds", rows.collect::<String>())
}

/// Programs of tests that the table shows.
const SHOWN: usize = 20;

/// Seconds of the programs of tests that ran the longest.
pub(crate) fn of_programs(ended: &[Ended]) -> String {
    let mut ended = ended.to_vec();
    ended.sort_by_key(|program| std::cmp::Reverse(program.time));
    table("program of tests", ended.iter().take(SHOWN).map(|program| (program.name.as_str(), program.time)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Failure;

    #[test]
    fn the_longest_step_is_first_and_the_total_last() {
        let steps = vec![("short", Duration::from_millis(1500)), ("long", Duration::from_secs(100))];
        let costs = Costs { begin: Instant::now(), steps };
        let table = costs.table_with(Duration::from_secs(102));
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows, [["step", "seconds"], ["long", "100.0"], ["short", "1.5"], ["total", "102.0"]]);
    }

    #[test]
    fn a_step_that_fails_is_noted() {
        let mut costs = Costs::beginning();
        assert!(costs.note("fails", || Err(Failure::Failed("why".into()))).is_err());
        assert!(costs.note("passes", || Ok(())).is_ok());
        assert_eq!(costs.steps.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["fails", "passes"]);
    }
}
