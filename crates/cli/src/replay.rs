//! `forebay replay`: recorded traces.

use crate::arguments::{MemoryArguments, ReportArguments};
use crate::failure::{Failure, Stage};
use crate::output::{self, Format};
use crate::progress::PhaseProgress;
use crate::stores::{self, EngineArguments};
use crate::{nodes, units};
use forebay_base::ErrorKind;
use forebay_env::SystemClock;
use forebay_workload::{Error, Report, Run, Store, render_header, render_phase, render_summary, replay};
use std::path::PathBuf;

/// The trace, its settings, and the place.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A block trace (first line `version,time,op,size,lbn`) or a page trace (lines `start count
    /// ignore request`), plain or compressed with zstd.
    trace: PathBuf,
    /// End after this many requests.
    #[arg(long, value_name = "REQUESTS")]
    limit: Option<u64>,
    /// Length of a key.
    #[arg(long, default_value = "16", value_parser = units::length, value_name = "SIZE")]
    key_size: usize,
    /// Length of a page of a page trace.
    #[arg(long, default_value = "4096", value_parser = units::length, value_name = "SIZE")]
    page_size: usize,
    /// Of 100 references to known pages, the number that write.
    #[arg(long, default_value_t = 30)]
    write_percent: u32,
    #[command(flatten)]
    pub memory: MemoryArguments,
    #[command(flatten)]
    engine: EngineArguments,
    #[command(flatten)]
    report: ReportArguments,
}

/// Replays the trace and prints the result.
///
/// # Errors
/// The first error.
pub fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let settings = replay::Settings {
        path: arguments.trace.clone(),
        limit: arguments.limit,
        key_size: arguments.key_size,
        page_size: arguments.page_size,
        write_percent: arguments.write_percent,
    };
    let trace = settings.open().map_err(Failure::workload(Stage::Arguments))?;
    let model = arguments.report.model();
    let opener = stores::Opener::new(&arguments.memory, &arguments.engine, stores::Existing::Kept)?
        .with_recorded_shards()
        .map_err(Failure::workload(Stage::Start))?;
    let place = nodes::describe(&arguments.memory.memory);
    let store = opener.open_for_benchmark().map_err(Failure::workload(Stage::Start))?;
    let mut progress = PhaseProgress::new();
    let mut show = |now: forebay_workload::Progress<'_>| progress.show(&now);
    let mut run = Run { clock: SystemClock::shared(), model, progress: &mut show };
    let result = replay::replay(trace, &store, &mut run);
    progress.clear();
    let report = result.map_err(failure)?;
    store.close().map_err(Failure::closing)?;
    if arguments.report.format == Format::Json {
        return output::json(&Report { benchmarks: vec![report] });
    }
    output::line(&format!(
        "memory: {place}\n\n{}\n{}\n\n{}every value that was read is the one written last",
        render_header(model.is_some()),
        render_phase(&report),
        render_summary(&[report]),
    ))
}

/// An invalid trace is a fault of the command line, however late it is found.
fn failure(error: Error) -> Failure {
    let stage = if error.kind() == ErrorKind::Invalid && matches!(error, Error::Trace { .. }) {
        Stage::Arguments
    } else {
        Stage::Running
    };
    Failure::workload(stage)(error)
}
