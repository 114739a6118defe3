//! Measurements: rows, each a figure of Forebay beside others of the same run, and their medians.

use crate::Outcome;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Operations a second.
    PerSecond,
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// A multiple of something else.
    Times,
}

impl Unit {
    /// The figure for people.
    pub fn show(self, figure: f64) -> String {
        match self {
            Self::PerSecond if figure >= 1e5 => format!("{:.3} M/s", figure / 1e6),
            Self::PerSecond if figure >= 1e3 => format!("{:.2} k/s", figure / 1e3),
            Self::PerSecond => format!("{figure:.1} /s"),
            Self::Seconds => format!("{figure:.2} s"),
            Self::Milliseconds => format!("{figure:.3} ms"),
            Self::Times => format!("{figure:.2}"),
        }
    }

    /// The better one of two figures.
    const fn better(self, one: f64, other: f64) -> f64 {
        match self {
            Self::PerSecond => one.max(other),
            Self::Seconds | Self::Milliseconds | Self::Times => one.min(other),
        }
    }
}

/// The goal of a row.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// At least this many times the other figure.
    TimesAtLeast(f64),
    /// At most this many times the other figure.
    TimesAtMost(f64),
    /// At least this much, whatever others have.
    AtLeast(f64),
    /// At most this much, whatever others have.
    AtMost(f64),
}

/// A figure, and what it is compared with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What it is, for people.
    pub workload: String,
    /// What the figures count.
    pub unit: Unit,
    /// Forebay's figure; `None` when it could not be measured.
    pub forebay: Option<f64>,
    /// Other figures, by their source; the best one counts.
    pub others: BTreeMap<String, f64>,
    /// The goal.
    pub goal: Option<Goal>,
}

impl Row {
    /// A row without a comparison yet.
    pub fn new(workload: impl Into<String>, unit: Unit, forebay: impl Into<Option<f64>>) -> Self {
        Self { workload: workload.into(), unit, forebay: forebay.into(), others: BTreeMap::new(), goal: None }
    }

    /// The same row, also compared with a figure, if there is one.
    pub fn beside(mut self, of: impl Into<String>, figure: impl Into<Option<f64>>) -> Self {
        self.others.extend(figure.into().map(|figure| (of.into(), figure)));
        self
    }

    /// The same row with a goal.
    pub fn with_goal(mut self, goal: impl Into<Option<Goal>>) -> Self {
        self.goal = goal.into();
        self
    }

    /// The best one of the others.
    pub fn other(&self) -> Option<(&str, f64)> {
        let better = |one: f64, other: f64| self.unit.better(one, other).total_cmp(&one).is_eq();
        let others = self.others.iter().map(|(of, &figure)| (of.as_str(), figure));
        others.reduce(|one, other| if better(one.1, other.1) { one } else { other })
    }

    /// Forebay's figure divided by the other one.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.forebay? / self.other()?.1)
    }

    /// Whether the goal is reached; `None` without a goal or without the figures that it needs.
    pub fn is_met(&self) -> Option<bool> {
        match self.goal? {
            Goal::TimesAtLeast(goal) => Some(self.ratio()? >= goal),
            Goal::TimesAtMost(goal) => Some(self.ratio()? <= goal),
            Goal::AtLeast(goal) => Some(self.forebay? >= goal),
            Goal::AtMost(goal) => Some(self.forebay? <= goal),
        }
    }

    /// Cells for people: Forebay's figure, the other one and its source, ratio, goal, and whether the goal is
    /// met.
    pub fn cells(&self) -> [String; 5] {
        let nothing = || "–".to_owned();
        let times = |times: f64| if times < 2.0 { format!("{times:.2}x") } else { format!("{times:.1}x") };
        let other = self.other().map(|(of, figure)| format!("{} ({of})", self.unit.show(figure)));
        let goal = self.goal.map(|goal| match goal {
            Goal::TimesAtLeast(goal) => format!("≥ {}", times(goal)),
            Goal::TimesAtMost(goal) => format!("≤ {}", times(goal)),
            Goal::AtLeast(goal) => format!("≥ {}", self.unit.show(goal)),
            Goal::AtMost(goal) => format!("≤ {}", self.unit.show(goal)),
        });
        let met = self.is_met().map(|met| if met { "yes" } else { "**no**" }.to_owned());
        [
            self.forebay.map_or_else(nothing, |figure| self.unit.show(figure)),
            other.unwrap_or_else(nothing),
            self.ratio().map_or_else(nothing, times),
            goal.unwrap_or_else(nothing),
            met.unwrap_or_else(nothing),
        ]
    }

    /// A line to print while measuring.
    pub fn line(&self) -> String {
        let [forebay, other, ratio, goal, met] = self.cells();
        format!("  {:<56} {forebay}, {other}: {ratio}, goal {goal}, {met}", self.workload)
    }
}

/// Rows of a group, and why some have no figure.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Findings {
    /// The rows.
    pub rows: Vec<Row>,
    /// What failed.
    pub failures: Vec<String>,
}

impl Findings {
    /// The result of a run; on failure `None`, and a note of the failure.
    pub fn note<T>(&mut self, result: Outcome<T>) -> Option<T> {
        result.map_err(|failure| self.failures.push(failure)).ok()
    }

    /// The medians of the same rows over several measurements.
    pub fn median(times: &[Self]) -> Self {
        let mut rows: Vec<Row> = Vec::new();
        for row in times.iter().flat_map(|time| &time.rows) {
            if rows.iter().all(|known| known.workload != row.workload) {
                rows.push(row.clone());
            }
        }
        for row in &mut rows {
            let same = || times.iter().flat_map(|time| &time.rows).filter(|other| other.workload == row.workload);
            row.forebay = median(same().filter_map(|row| row.forebay).collect());
            let others: Vec<String> = same().flat_map(|row| row.others.keys().cloned()).collect();
            let of = |of: String| {
                Some((of.clone(), median(same().filter_map(|row| row.others.get(&of)).copied().collect())?))
            };
            row.others = others.into_iter().filter_map(of).collect();
        }
        let mut failures: Vec<String> = times.iter().flat_map(|time| time.failures.iter().cloned()).collect();
        failures.dedup();
        Self { rows, failures }
    }
}

/// The median; for an even number, the lower middle.
fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_other_counts_and_goals_are_of_ratio_or_figure() {
        let rate = Row::new("fill", Unit::PerSecond, 6.0).beside("cache", 1.0).beside("mmap", 2.0);
        assert_eq!(rate.other(), Some(("mmap", 2.0)));
        assert_eq!(rate.ratio(), Some(3.0));
        let met = |row: &Row, goal| row.clone().with_goal(goal).is_met();
        assert_eq!(met(&rate, Goal::TimesAtLeast(3.0)), Some(true));
        assert_eq!(met(&rate, Goal::TimesAtLeast(3.1)), Some(false));
        let time = Row::new("open", Unit::Seconds, 6.0).beside("one", 3.0).beside("two", 4.0);
        assert_eq!(time.ratio(), Some(2.0));
        assert_eq!(met(&time, Goal::TimesAtMost(1.9)), Some(false));
        assert_eq!(met(&time, Goal::AtMost(6.0)), Some(true));
        assert_eq!(met(&time, Goal::AtLeast(7.0)), Some(false));
        let alone = Row::new("open", Unit::Seconds, 6.0);
        assert_eq!((alone.ratio(), met(&alone, Goal::TimesAtMost(1.0))), (None, None));
        assert_eq!(met(&Row::new("open", Unit::Seconds, None), Goal::AtMost(1.0)), None);
    }

    #[test]
    fn medians_are_of_each_figure() {
        let time = |forebay: Option<f64>, other: f64| Findings {
            rows: vec![Row::new("fill", Unit::PerSecond, forebay).beside("cache", other)],
            failures: forebay.is_none().then(|| "it ended".to_owned()).into_iter().collect(),
        };
        let median = Findings::median(&[time(Some(3.0), 1.0), time(Some(1.0), 9.0), time(Some(2.0), 5.0)]);
        assert_eq!(median, time(Some(2.0), 5.0));
        let median = Findings::median(&[time(Some(3.0), 1.0), time(None, 2.0)]);
        assert_eq!(median.rows, time(Some(3.0), 1.0).rows);
        assert_eq!(median.failures, ["it ended"]);
        assert_eq!(Findings::median(&[]), Findings::default());
    }

    #[test]
    fn figures_are_readable() {
        let shown = [2_254_000.0, 345_000.0, 4_560.0, 78.9].map(|rate| Unit::PerSecond.show(rate));
        assert_eq!(shown, ["2.254 M/s", "0.345 M/s", "4.56 k/s", "78.9 /s"]);
        let row = Row::new("x", Unit::Times, 1.04).with_goal(Goal::AtMost(1.05));
        assert_eq!(row.cells(), ["1.04", "–", "–", "≤ 1.05", "yes"]);
    }
}
