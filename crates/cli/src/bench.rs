//! `forebay bench`: db_bench's workloads.

use crate::arguments::{CheckArguments, MemoryArguments, ReportArguments};
use crate::failure::{Failure, Stage};
use crate::output::{self, Format};
use crate::progress::PhaseProgress;
use crate::stores::{self, EngineArguments, Existing};
use crate::{nodes, units};
use clap::builder::BoolishValueParser;
use forebay_env::SystemClock;
use forebay_workload::bench::{self, Outcome, Planned, Settings};
use forebay_workload::{PhaseReport, Report, Run, render_header, render_page, render_phase, render_summary};
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The workloads, their sizes, and their place.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Workloads and steps, in order: fillseq, fillrandom, overwrite, readrandom, multireadrandom,
    /// readmissing, readseq, seekrandom, readrandomwriterandom, readwhilewriting, readwhilescanning,
    /// deleterandom; compact, waitforcompaction, stats. A workload followed by @NUMBER runs with that many threads.
    #[arg(long, value_delimiter = ',', default_value = "fillrandom,readrandom", value_name = "NAMES")]
    benchmarks: Vec<Planned>,
    /// Number of keys.
    #[arg(long, default_value_t = 1_000_000)]
    num: u64,
    /// Writes of each thread, in workloads that only write; negative: as many as --num.
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    writes: i64,
    /// Reads of each thread; negative: as many as --num.
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    reads: i64,
    /// Number of threads.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Length of a key.
    #[arg(long, default_value = "20", value_parser = units::length, value_name = "SIZE")]
    key_size: usize,
    /// Length of a value.
    #[arg(long, default_value = "400", value_parser = units::length, value_name = "SIZE")]
    value_size: usize,
    /// Seed; the same seed gives the same operations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keys per call of multireadrandom.
    #[arg(long, default_value_t = 16)]
    batch_size: usize,
    /// Whether multireadrandom reads its keys in one call; if not, one by one.
    #[arg(long, default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = BoolishValueParser::new())]
    multiread_batched: bool,
    /// Distance between the keys of such a call; 0: each is drawn independently.
    #[arg(long, default_value_t = 0)]
    multiread_stride: u64,
    /// Steps after each seek of seekrandom.
    #[arg(long, default_value_t = 0)]
    seek_nexts: u64,
    /// Reads per 100 operations of readrandomwriterandom.
    #[arg(long, default_value_t = 90)]
    readwritepercent: u32,
    /// Most writes a second of each thread, of workloads that only write; by default no limit.
    #[arg(long, value_parser = units::rate, value_name = "RATE")]
    write_rate: Option<f64>,
    /// Keep the contents of the store, also for fillseq and fillrandom. Without, an empty database replaces what bench left there
    /// before, and on memory nodes alone whatever has the name of --db.
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = BoolishValueParser::new())]
    use_existing_db: bool,
    /// Replace the database even if something other than bench has made it, or opened it since: all that it holds is
    /// deleted.
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = BoolishValueParser::new(), conflicts_with = "use_existing_db")]
    replace: bool,
    #[command(flatten)]
    checks: CheckArguments,
    #[command(flatten)]
    pub memory: MemoryArguments,
    #[command(flatten)]
    engine: EngineArguments,
    #[command(flatten)]
    report: ReportArguments,
    /// Also write the results with plots to this file, as a page of HTML.
    #[arg(long = "report", value_name = "FILE")]
    page: Option<PathBuf>,
}

impl Arguments {
    /// The workloads' settings.
    ///
    /// # Errors
    /// Usage, when they are invalid.
    pub fn settings(&self) -> Result<Settings, Failure> {
        let settings = Settings {
            num: self.num,
            writes: u64::try_from(self.writes).ok(),
            reads: u64::try_from(self.reads).ok(),
            threads: self.threads,
            key_size: self.key_size,
            value_size: self.value_size,
            seed: self.seed,
            batch_size: self.batch_size,
            multiread_batched: self.multiread_batched,
            multiread_stride: self.multiread_stride,
            seek_nexts: self.seek_nexts,
            read_write_percent: self.readwritepercent,
            write_rate: self.write_rate,
            verify: self.checks.verify,
            timing: self.checks.timing(),
        };
        settings.check().map_err(Failure::workload(Stage::Arguments))?;
        Ok(settings)
    }
}

/// Runs the workloads and prints their results.
///
/// # Errors
/// The first error.
pub fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let settings = arguments.settings()?;
    let unwritten = |path: &Path| Failure::io(format!("--report {}", path.display()));
    if let Some(path) = &arguments.page {
        // Find out now whether the file can be written, not at the end.
        try_to_write(path).map_err(unwritten(path))?;
    }
    let model = arguments.report.model();
    let table = arguments.report.format == Format::Table;
    let existing = match (arguments.use_existing_db, arguments.replace) {
        (true, _) => Existing::Required,
        (false, true) => Existing::Dropped,
        (false, false) => Existing::Replaced,
    };
    let opener = stores::Opener::new(&arguments.memory, &arguments.engine, existing)?
        .with_recorded_shards()
        .map_err(Failure::workload(Stage::Start))?
        .with_numbered_keys(arguments.key_size, arguments.num)
        .map_err(Failure::workload(Stage::Arguments))?;
    let place = nodes::describe(&arguments.memory.memory);
    let progress = RefCell::new(PhaseProgress::new());
    let printed = RefCell::new(Ok(()));
    let stage = Cell::new(Stage::Start);
    let mut tell = |outcome: Outcome<'_>| {
        progress.borrow_mut().clear();
        let text = match outcome {
            Outcome::Phase(report) => render_phase(report),
            Outcome::Stats(text) => text.trim_end().to_owned(),
        };
        if table && printed.borrow().is_ok() {
            *printed.borrow_mut() = output::line(&text);
        }
    };
    let mut open = || {
        let store = opener.open_for_benchmark()?;
        if stage.replace(Stage::Running) == Stage::Start && table {
            let heading = format!("{}\n{}", introduction(arguments, &place), render_header(model.is_some()));
            *printed.borrow_mut() = output::line(&heading);
        }
        Ok(store)
    };
    let mut show = |now: forebay_workload::Progress<'_>| progress.borrow_mut().show(&now);
    let mut run = Run { clock: SystemClock::shared(), model, progress: &mut show };
    let result =
        bench::run(&arguments.benchmarks, &settings, &mut run, arguments.use_existing_db, &mut open, &mut tell);
    progress.borrow_mut().clear();
    let phases = result.map_err(|error| Failure::workload(stage.get())(error))?;
    let written = arguments.page.as_deref().map_or(Ok(()), |path| {
        let page = render_page(introduction(arguments, &place).trim(), &phases);
        std::fs::write(path, page).map_err(unwritten(path))
    });
    // The page and what is printed do not depend on each other. A reader who is gone has no message, so the page comes
    // first.
    let told = printed.into_inner().and_then(|()| match table {
        true => output::line(&format!("\n{}{}", render_summary(&phases), explanation(arguments, &phases))),
        false => output::json(&Report { benchmarks: phases }),
    });
    written.and(told)
}

/// Fails if a file cannot be written. It keeps its contents, and is not there afterwards if it was not there before: the run
/// may end without results.
fn try_to_write(path: &Path) -> std::io::Result<()> {
    match File::options().create_new(true).write(true).open(path) {
        Ok(_) => std::fs::remove_file(path),
        // A link may lead to a file that is not there.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            File::options().create(true).truncate(false).write(true).open(path).map(drop)
        }
        Err(error) => Err(error),
    }
}

fn introduction(arguments: &Arguments, place: &str) -> String {
    format!(
        "{} keys of {} B, values of {} B, {} {}, memory: {place}\n",
        arguments.num,
        arguments.key_size,
        arguments.value_size,
        arguments.threads,
        if arguments.threads == 1 { "thread" } else { "threads" },
    )
}

/// The meaning of the figures, for new users.
fn explanation(arguments: &Arguments, phases: &[PhaseReport]) -> String {
    let mut text = String::new();
    if arguments.checks.verify && phases.iter().any(|phase| phase.found.is_some_and(|found| found > 0)) {
        text += "every value that was read was checked, byte by byte\n";
    }
    if phases.iter().any(|phase| phase.name == "fillrandom") {
        text += "fillrandom draws keys with replacement, so about 63 % of them exist and can be found\n";
    }
    text += "trips/op: waits for the fabric per operation; B read/op: bytes they brought\n";
    text
}
