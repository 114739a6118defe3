//! `cargo xtask figures`: what a paper's figures show, measured on Forebay, as plots and a table.
//!
//! Up to two threads run in real time, as two processes over shared memory. More threads, and a
//! network, come from the link model over what was counted: 2 microseconds, 100 Gb/s, 30 million
//! operations a second. A run that fails is told in the page in place of its points.

mod dlsm;
mod dolphin;

use crate::Outcome;
use crate::machine::Machine;
use crate::processes::Forebay;
use forebay::{Counts, LinkModel};
use forebay_workload::PhaseReport;
use forebay_workload::plot::Plot;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Which paper, and how much.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The paper.
    #[arg(value_enum)]
    paper: Paper,
    /// Ten times the records.
    #[arg(long)]
    full: bool,
    /// A fifth of the records, to try it out.
    #[arg(long)]
    quick: bool,
    /// Only these figures, by their numbers in the paper.
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS")]
    only: Vec<u32>,
    /// Folder for the plots and the page; by default `docs/figures/PAPER`.
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Paper {
    Dlsm,
    Dolphin,
}

/// A figure's number in the paper, and what draws it.
type Numbered = (u32, fn(&Bench) -> Figure);

/// A figure: plots, a table, and what there is to say.
#[derive(Debug, Default)]
struct Figure {
    number: u32,
    title: &'static str,
    /// What the paper's figure shows.
    paper: &'static str,
    /// What is the same or not, and why.
    remarks: &'static str,
    plots: Vec<Plot>,
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    failures: Vec<String>,
}

impl Figure {
    fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The result of a run, or nothing and a note.
    fn note<T>(&mut self, result: Outcome<T>) -> Option<T> {
        result.map_err(|failure| self.failures.push(failure)).ok()
    }
}

/// What figures are measured with.
struct Bench {
    forebay: Forebay,
    /// Records of a usual run.
    records: u64,
}

/// Measures and writes the figures.
///
/// # Errors
/// When the command cannot be built or a file cannot be written.
pub fn execute(arguments: &Arguments) -> Outcome {
    let scale = if arguments.full { 10.0 } else { 1.0 } * if arguments.quick { 0.2 } else { 1.0 };
    let bench =
        |records: u64| Ok::<_, String>(Bench { forebay: Forebay::build()?, records: (records as f64 * scale) as u64 });
    let (name, title, bench, figures): (_, _, _, &[Numbered]) = match arguments.paper {
        Paper::Dlsm => ("dlsm", "Figures of dLSM", bench(dlsm::RECORDS)?, dlsm::FIGURES),
        Paper::Dolphin => ("dolphin", "Figures of Dolphin", bench(dolphin::RECORDS)?, dolphin::FIGURES),
    };
    let wanted = |number: &u32| arguments.only.is_empty() || arguments.only.contains(number);
    let folder = arguments.output.clone().unwrap_or_else(|| Path::new("docs/figures").join(name));
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut page = format!(
        "# {title}\n\nMade by `cargo xtask figures {name}`. Machine: {}. Commit {}.\n\n{}\n",
        Machine::this().line(),
        Machine::this().commit,
        if name == "dlsm" { dlsm::ABOUT } else { dolphin::ABOUT }
    );
    for (number, measure) in figures.iter().filter(|(number, _)| wanted(number)) {
        eprintln!("figure {number}");
        let figure = measure(&bench);
        figure.failures.iter().for_each(|failure| eprintln!("figure {number}: {failure}"));
        page += &section(&figure, &folder)?;
    }
    write(&folder.join("README.md"), &page)
}

fn section(figure: &Figure, folder: &Path) -> Outcome<String> {
    let mut text = format!("\n## Figure {}: {}\n\nIn the paper: {}\n\n", figure.number, figure.title, figure.paper);
    let plots = figure.plots.iter().filter(|plot| plot.series.iter().any(|series| !series.points.is_empty()));
    for (plot, part) in plots.zip('a'..) {
        let name = format!("figure-{}{part}.svg", figure.number);
        write(&folder.join(&name), &plot.svg())?;
        let _ = writeln!(text, "![{}]({name})", plot.title);
    }
    if !figure.rows.is_empty() {
        let _ = write!(text, "\n| {} |\n|{}\n", figure.header.join(" | "), "---|".repeat(figure.header.len()));
        figure.rows.iter().for_each(|row| {
            let _ = writeln!(text, "| {} |", row.join(" | "));
        });
    }
    let _ = writeln!(text, "\n{}", figure.remarks);
    figure.failures.iter().for_each(|failure| {
        let _ = writeln!(text, "\nNot measured: {failure}.");
    });
    Ok(text)
}

fn write(path: &Path, text: &str) -> Outcome {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Operations a second of a phase with so many threads on the usual network: what was counted is
/// charged with round trips, bytes and operations. `cpu_seconds` is what the callers computed.
fn modelled(phase: &PhaseReport, cpu_seconds: f64, threads: usize) -> f64 {
    let fabric = &phase.fabric;
    let counts = Counts {
        round_trips: fabric.round_trips,
        reads: fabric.reads,
        writes: fabric.writes,
        atomics: fabric.atomics,
        messages: fabric.messages,
        bytes_read: fabric.bytes_read,
        bytes_written: fabric.bytes_written,
        ..Counts::default()
    };
    phase.operations as f64 / LinkModel::default().seconds(&counts, cpu_seconds, threads).max(1e-9)
}

/// What the callers of a phase that was run with the link model computed, seconds: the model's time
/// of one thread without its round trips.
fn own_cpu_seconds(phase: &PhaseReport) -> f64 {
    let waiting = phase.fabric.round_trips as f64 * LinkModel::default().round_trip.as_secs_f64();
    phase.model.map_or(phase.compute.cpu_seconds, |model| (model.seconds - waiting).max(0.0))
}

/// The phase of this name; of several the last.
fn named<'a>(phases: &'a [PhaseReport], name: &str) -> Outcome<&'a PhaseReport> {
    phases.iter().rfind(|phase| phase.name == name).ok_or_else(|| format!("the report has no phase {name}"))
}

fn millions(rate: f64) -> String {
    format!("{:.3}", rate / 1e6)
}
