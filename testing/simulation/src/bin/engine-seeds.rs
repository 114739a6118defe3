//! Runs seeds of the simulated database and checks each against a model.
//!
//! Exit codes: 0 every seed passed, 1 one failed (and how to run it again), 2 the command line is
//! wrong.

#![forbid(unsafe_code)]

use clap::Parser;
use forebay_env::{Clock, SystemClock};
use forebay_seeds::Seeds;
use forebay_simulation::{Report, RunOptions, run_seed};
use std::process::ExitCode;

/// Runs seeds of the simulated database.
#[derive(Debug, Parser)]
#[command(name = "engine-seeds")]
struct Arguments {
    #[command(flatten)]
    seeds: Seeds,
    /// Calls that each makes at least.
    #[arg(long, default_value_t = 20_000)]
    operations: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let clock = SystemClock::new();
    let options = RunOptions { operations: arguments.operations };
    let again = |seed| {
        format!(
            "cargo run --release --package forebay-simulation --bin engine-seeds -- --seeds 1 --first {seed} \
             --operations {}",
            options.operations
        )
    };
    let run = |seed| run_seed(seed, &options);
    let (totals, failed) = arguments.seeds.run(run, |total: &mut Report, report| total.add(&report), again);
    if failed > 0 {
        return ExitCode::from(1);
    }
    let mut total = Report::default();
    totals.iter().for_each(|report| total.add(report));
    let seconds = clock.now() as f64 / 1e9;
    println!(
        "{} seeds: {} calls ({} failed, {} of them for want of memory), {} flushes, {} compactions ({} near the data)",
        arguments.seeds.count,
        total.operations,
        total.failed,
        total.full,
        total.flushes,
        total.compactions,
        total.near_data_compactions,
    );
    println!(
        "{} memory nodes crashed, {} compute nodes killed, {} taken over; {} databases found again, {} lost; \
         {} steps inside of calls, {} calls inside of steps; {seconds:.1} s",
        total.crashes,
        total.kills,
        total.takeovers,
        total.recoveries,
        total.losses,
        total.nested_steps,
        total.nested_calls,
    );
    ExitCode::SUCCESS
}
