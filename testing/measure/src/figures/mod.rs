//! `cargo xtask figures`: a paper's figures, measured on Forebay, as plots and a table.
//!
//! Up to two threads run in real time, as two processes over shared memory. More threads, and a network, come from the
//! link model over the counts: 2 microseconds, 100 Gb/s, 30 million operations a second. For a run that fails, the page
//! has the error in place of the points. The data of a plot are kept beside it, so that it can be drawn again
//! (`--redraw`).
//!
//! | module | what |
//! |---|---|
//! | `dlsm`, `dolphin`, `o3`, `tebis` | the figures of a paper |
//! | `pool` | several databases that share memory |
//! | `tiers` | databases in memory and a directory, for `o3` and `pool` |
//! | `frontier` | Dolphin's table II, and the options of the tree against each other |
//! | `ycsb` | YCSB's workloads on both engines |
//! | `run` | runs of the command, and the link model |

mod dlsm;
mod dolphin;
mod figure;
mod frontier;
mod o3;
mod pool;
mod run;
mod tebis;
mod tiers;
mod ycsb;

use crate::Outcome;
use crate::machine::Machine;
use crate::processes::Forebay;
use figure::{Bench, Figure, Named};
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
    /// Measure nothing: draw the plots anew from what is kept beside them.
    #[arg(long, conflicts_with_all = ["full", "quick", "only"])]
    redraw: bool,
    /// Only these figures, by their numbers in the paper, or table-2, frontier, ycsb, replication, pool, worker.
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS")]
    only: Vec<String>,
    /// The folder of recorded traces and their statistics.
    #[arg(long, default_value = "../shared/traces", value_name = "FOLDER")]
    traces: PathBuf,
    /// Folder for the plots and the page; by default `docs/figures/PAPER`.
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Paper {
    Dlsm,
    Dolphin,
    O3,
    Tebis,
}

/// Measures and writes the figures.
///
/// # Errors
/// When the command cannot be built or a file cannot be written.
pub fn execute(arguments: &Arguments) -> Outcome {
    let scale = if arguments.full { 10.0 } else { 1.0 } * if arguments.quick { 0.2 } else { 1.0 };
    let (name, title, about, records, figures): (_, _, _, u64, &[Named]) = match arguments.paper {
        Paper::Dlsm => ("dlsm", "Figures of dLSM", dlsm::ABOUT, dlsm::RECORDS, dlsm::FIGURES),
        Paper::Dolphin => ("dolphin", "Figures of Dolphin", dolphin::ABOUT, dolphin::RECORDS, dolphin::FIGURES),
        Paper::O3 => ("o3", "Figures of O3-LSM", o3::ABOUT, o3::RECORDS, o3::FIGURES),
        Paper::Tebis => ("tebis", "Figures of Tebis", tebis::ABOUT, tebis::RECORDS, tebis::FIGURES),
    };
    let folder = arguments.output.clone().unwrap_or_else(|| Path::new("docs/figures").join(name));
    if arguments.redraw {
        return redraw(&folder);
    }
    let bench = Bench {
        forebay: Forebay::build()?,
        records: (records as f64 * scale) as u64,
        traces: arguments.traces.clone(),
    };
    let known = |wanted: &String| figures.iter().any(|(number, _)| number == wanted);
    if let Some(wrong) = arguments.only.iter().find(|wanted| !known(wanted)) {
        return Err(format!("{name} has no figure `{wrong}`"));
    }
    let wanted = |number: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == number);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut page = format!(
        "# {title}\n\nMade by `cargo xtask figures {name}`. Machine: {}. Commit {}.\n\n{}\n",
        Machine::this().line(),
        Machine::this().commit,
        about.replace("RECORDS", &thousands(bench.records)),
    );
    for (number, measure) in figures.iter().filter(|(number, _)| wanted(number)) {
        eprintln!("figure {number}");
        let figure = measure(&bench);
        figure.failures.iter().for_each(|failure| eprintln!("figure {number}: {failure}"));
        page += &section(number, &figure, &folder)?;
    }
    write(&folder.join("README.md"), &page)
}

/// Draws the plots of a folder again.
fn redraw(folder: &Path) -> Outcome {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension() == Some("json".as_ref()) {
            let kept = fs::read_to_string(&path).map_err(failed)?;
            let plot: Plot = serde_json::from_str(&kept).map_err(|error| format!("{}: {error}", path.display()))?;
            write(&path.with_extension("svg"), &plot.svg())?;
        }
    }
    Ok(())
}

fn section(number: &str, figure: &Figure, folder: &Path) -> Outcome<String> {
    let mut text = match number.parse::<u32>() {
        Ok(number) => format!("\n## Figure {number}: {}\n\n", figure.title),
        Err(_) => format!("\n## {}\n\n", figure.title),
    };
    if !figure.paper.is_empty() {
        let _ = write!(text, "In the paper: {}.\n\n", figure.paper);
    }
    let stem = if number.parse::<u32>().is_ok() { format!("figure-{number}") } else { format!("{number}-") };
    let plots = figure.plots.iter().filter(|plot| plot.series.iter().any(|series| !series.points.is_empty()));
    for (plot, part) in plots.zip('a'..) {
        let name = format!("{stem}{part}");
        let kept = serde_json::to_string_pretty(plot).map_err(|error| format!("{name}: {error}"))?;
        write(&folder.join(format!("{name}.json")), &(kept + "\n"))?;
        write(&folder.join(format!("{name}.svg")), &plot.svg())?;
        let _ = writeln!(text, "![{}]({name}.svg)", plot.title);
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

/// A number with separated thousands.
fn thousands(number: u64) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", thousands(number / 1000), number % 1000),
    }
}
