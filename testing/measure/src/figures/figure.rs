//! A figure, and the settings of its measurement.

use crate::Outcome;
use crate::processes::Forebay;
use forebay_workload::plot::Plot;
use std::path::PathBuf;

/// A figure's number in the paper or its name, and the function that draws it.
pub(super) type Named = (&'static str, fn(&Bench) -> Figure);

/// A figure: plots, a table, and remarks.
#[derive(Debug, Default)]
pub(super) struct Figure {
    /// Its heading.
    pub(super) title: &'static str,
    /// What the paper's figure shows; empty if it has none.
    pub(super) paper: &'static str,
    /// What is the same and what differs, and why.
    pub(super) remarks: &'static str,
    pub(super) plots: Vec<Plot>,
    pub(super) header: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
    pub(super) failures: Vec<String>,
}

impl Figure {
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The result of a run; on failure `None`, and a note of the failure.
    pub(super) fn note<T>(&mut self, result: Outcome<T>) -> Option<T> {
        result.map_err(|failure| self.failures.push(failure)).ok()
    }
}

/// The settings of measurements.
#[derive(Debug, Clone)]
pub(super) struct Bench {
    pub(super) forebay: Forebay,
    /// Records of a normal run.
    pub(super) records: u64,
    /// The folder of recorded traces and their statistics.
    pub(super) traces: PathBuf,
}
