//! `forebay ycsb`: YCSB's workloads and profiles from published statistics.

use crate::arguments::{CheckArguments, Engine, MemoryArguments, NodeAddresses, ReportArguments, TREE_CACHE_BYTES};
use crate::failure::{Failure, Stage};
use crate::given::Given;
use crate::output::{self, Format};
use crate::progress::PhaseProgress;
use crate::stores::{self, EngineArguments};
use crate::{nodes, signals, tree_store, units};
use clap::builder::RangedU64ValueParser;
use forebay::TreeOptions;
use forebay_env::{Random, SystemClock};
use forebay_workload::ycsb::{self, Distribution, Profile, Settings, Workload, YCSB_THETA};
use forebay_workload::{PhaseReport, Report, Run, Store, render_header, render_phase, render_summary};
use std::cell::RefCell;
use std::path::PathBuf;

/// The workloads, their sizes, and their place.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Engine to measure.
    #[arg(long, value_enum, default_value_t = Engine::Lsm)]
    engine: Engine,
    /// Workloads, in order: a, b, c, d, e, f, range-only, range-write, update-only.
    #[arg(long, value_delimiter = ',', default_value = "a", value_name = "NAMES")]
    workload: Vec<Workload>,
    /// A table of statistics of clusters; --cluster then replaces --workload.
    #[arg(long, value_name = "FILE", requires = "cluster")]
    profile: Option<PathBuf>,
    /// The cluster: a number or a name.
    #[arg(long, value_name = "CLUSTER", requires = "profile")]
    cluster: Option<String>,
    /// Number of records to load.
    #[arg(long, default_value_t = 1_000_000)]
    records: u64,
    /// Operations of each workload, over all threads.
    #[arg(long, default_value_t = 1_000_000)]
    operations: u64,
    /// Operations before the first workload, reported separately.
    #[arg(long, default_value_t = 100_000, value_name = "OPERATIONS")]
    warm_up: u64,
    /// Distribution of records: uniform, zipfian, latest; by default the workload's.
    #[arg(long, value_name = "NAME")]
    distribution: Option<Distribution>,
    /// Skew of zipfian and latest; by default 0.99 or the profile's.
    #[arg(long)]
    theta: Option<f64>,
    /// Threads of each client.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Number of clients, each with its own session and cache.
    #[arg(long, default_value_t = 1, value_parser = RangedU64ValueParser::<usize>::new().range(1..=ycsb::MAX_THREADS as u64))]
    clients: usize,
    /// Length of a key; by default 8 B or the profile's.
    #[arg(long, value_parser = units::length, value_name = "SIZE")]
    key_size: Option<usize>,
    /// Length of a value; by default 8 B or the profile's.
    #[arg(long, value_parser = units::length, value_name = "SIZE")]
    value_size: Option<usize>,
    /// Longest scan.
    #[arg(long, default_value_t = 100, value_name = "RECORDS")]
    scan_length: u64,
    /// Give all scans this length.
    #[arg(long)]
    fixed_scans: bool,
    /// Memory for the inner nodes of a tree that each client caches; by default 256 MiB.
    #[arg(long, value_parser = units::length, value_name = "SIZE")]
    tree_cache_size: Option<usize>,
    /// Seed; the same seed gives the same operations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    checks: CheckArguments,
    #[command(flatten)]
    pub memory: MemoryArguments,
    #[command(flatten)]
    engine_options: Given<EngineArguments>,
    #[command(flatten)]
    report: ReportArguments,
}

impl Arguments {
    fn plan(&self) -> Result<(Vec<Workload>, Settings), Failure> {
        let usual = Settings::default();
        let profile = self.read_profile()?;
        let of_profile = profile.as_ref();
        let settings = Settings {
            records: self.records,
            operations: self.operations,
            warm_up: self.warm_up,
            distribution: self.distribution,
            theta: self.theta.or(of_profile.map(|profile| profile.theta)).unwrap_or(YCSB_THETA),
            threads: self.threads,
            key_size: self.key_size.or(of_profile.map(|profile| profile.key_size)).unwrap_or(usual.key_size),
            value_size: self.value_size.or(of_profile.map(|profile| profile.value_size)).unwrap_or(usual.value_size),
            scan_length: self.scan_length,
            fixed_scans: self.fixed_scans,
            seed: self.seed,
            verify: self.checks.verify,
            timing: self.checks.timing(),
        };
        settings.check().map_err(Failure::workload(Stage::Arguments))?;
        let workloads = match profile {
            Some(Profile { name, mix, .. }) => vec![Workload { name, mix, distribution: Distribution::Zipfian }],
            None => self.workload.clone(),
        };
        Ok((workloads, settings))
    }

    /// Checks that the engine can do what the flags ask for.
    fn check_engine(&self) -> Result<(), Failure> {
        match (self.engine, self.engine_options.first()) {
            (Engine::Lsm, _) if self.clients > 1 => {
                Err(Failure::usage("--clients: an LSM database has one client, who writes; use --threads"))
            }
            (Engine::Lsm, _) if self.tree_cache_size.is_some() => {
                Err(Failure::usage("--tree-cache-size is for --engine=tree; an LSM database has --cached-index-size"))
            }
            (Engine::Tree, Some(flag)) => Err(Failure::usage(format_args!(
                "{flag} is for --engine=lsm: the shared tree lies in memory nodes alone, which --memory names. Leave {flag} out, or \
                 measure the LSM engine"
            ))),
            _ => Ok(()),
        }
    }

    fn read_profile(&self) -> Result<Option<Profile>, Failure> {
        let (Some(path), Some(cluster)) = (&self.profile, &self.cluster) else { return Ok(None) };
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::usage(format_args!("--profile {}: {error}", path.display())))?;
        let profile = Profile::parse(&path.display().to_string(), &text, cluster);
        profile.map(Some).map_err(Failure::workload(Stage::Arguments))
    }
}

/// Runs the workloads and prints their results.
///
/// # Errors
/// The first error.
pub fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let (workloads, settings) = arguments.plan()?;
    arguments.check_engine()?;
    match arguments.engine {
        Engine::Lsm => {
            // Keys begin with words that are spread over the whole range.
            let opener =
                stores::Opener::new(&arguments.memory, &arguments.engine_options.flags, stores::Existing::Kept)?
                    .with_recorded_shards()
                    .map_err(Failure::workload(Stage::Start))?
                    .with_numbered_keys(settings.key_size, u64::MAX)
                    .map_err(Failure::workload(Stage::Arguments))?;
            let store = opener.open_for_benchmark().map_err(Failure::workload(Stage::Start))?;
            measure(arguments, &[store], &workloads, &settings)
        }
        Engine::Tree => {
            let memory = &arguments.memory;
            let nodes = memory.memory.all().iter().map(|address| nodes::Nodes::new(address, memory.local_memory_size));
            let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
            let name = tree_name()?;
            let usual = TreeOptions::default();
            let options = TreeOptions { cache_bytes: arguments.tree_cache_size.unwrap_or(TREE_CACHE_BYTES), ..usual };
            let asked = signals::note("the tree is dropped first", left(&memory.memory, &name))?;
            let clients = tree_store::open(memory, &nodes, &name, arguments.clients, &options, &asked)
                .map_err(Failure::workload(Stage::Start))?;
            let measured = measure(arguments, &clients, &workloads, &settings);
            let dropped = tree_store::drop_tree(clients).map_err(Failure::workload(Stage::Running));
            match asked.get() {
                Some(&signal) => dropped.map(|()| signals::end_by(signal)),
                None => measured.and(dropped),
            }
        }
    }
}

/// What is left of a run whose tree is not dropped.
fn left(memory: &NodeAddresses, name: &str) -> String {
    if memory.is_local() {
        return "the tree is gone with this process".to_owned();
    }
    format!("the tree stays until: forebay drop --engine tree --memory {memory} --db {name} --yes")
}

/// A name that the tree of no other run has. Processes in containers often have the same number.
fn tree_name() -> Result<String, Failure> {
    let number = Random::secret().map_err(Failure::io("drawing the name of the tree"))?;
    Ok(format!("ycsb-{number:032x}"))
}

fn measure<S: Store>(
    arguments: &Arguments,
    clients: &[S],
    workloads: &[Workload],
    settings: &Settings,
) -> Result<(), Failure> {
    let table = arguments.report.format == Format::Table;
    let model = arguments.report.model();
    if table {
        output::line(&format!("{}\n\n{}", introduction(arguments, settings), render_header(model.is_some())))?;
    }
    let progress = RefCell::new(PhaseProgress::new());
    let mut printed = Ok(());
    let mut tell = |report: &PhaseReport| {
        progress.borrow_mut().clear();
        if table && printed.is_ok() {
            printed = output::line(&render_phase(report));
        }
    };
    let mut show = |now: forebay_workload::Progress<'_>| progress.borrow_mut().show(&now);
    let mut run = Run { clock: SystemClock::shared(), model, progress: &mut show };
    let result = ycsb::run(clients, workloads, settings, &mut run, &mut tell);
    progress.borrow_mut().clear();
    let phases = result.map_err(Failure::workload(Stage::Running))?;
    clients.iter().try_for_each(Store::close).map_err(Failure::closing)?;
    printed?;
    if table {
        return output::line(&format!("\n{}", render_summary(&phases)));
    }
    output::json(&Report { benchmarks: phases })
}

fn introduction(arguments: &Arguments, settings: &Settings) -> String {
    format!(
        "{} records of {} + {} B, {} operations a workload, clients: {}, threads of each: {}, memory: {}",
        settings.records,
        settings.key_size,
        settings.value_size,
        settings.operations,
        arguments.clients,
        settings.threads,
        nodes::describe(&arguments.memory.memory),
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_run_has_a_tree_of_its_own() {
        assert_ne!(super::tree_name(), super::tree_name());
    }
}
