//! A figure, and what it is measured with.

use crate::Outcome;
use crate::processes::Forebay;
use forebay_workload::plot::Plot;
use std::path::PathBuf;

/// A figure's number in the paper or its name, and what draws it.
pub(super) type Named = (&'static str, fn(&Bench) -> Figure);

/// A figure: plots, a table, and what there is to say.
#[derive(Debug, Default)]
pub(super) struct Figure {
    /// Its heading.
    pub(super) title: &'static str,
    /// What the paper's figure shows; empty if it has none.
    pub(super) paper: &'static str,
    /// What is the same or not, and why.
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

    /// The result of a run, or nothing and a note.
    pub(super) fn note<T>(&mut self, result: Outcome<T>) -> Option<T> {
        result.map_err(|failure| self.failures.push(failure)).ok()
    }
}

/// What figures are measured with.
#[derive(Debug, Clone)]
pub(super) struct Bench {
    pub(super) forebay: Forebay,
    /// Records of a usual run.
    pub(super) records: u64,
    /// The folder of recorded traces and their statistics.
    pub(super) traces: PathBuf,
}
