//! Runs seeds of the simulated database and checks each against a model.
//!
//! Exit codes: 0 every seed passed, 1 a seed failed (the output says how to run it again), 2 the
//! command line is invalid.

#![forbid(unsafe_code)]

use clap::Parser;
use forebay_env::{Clock, SystemClock};
use forebay_seeds::Seeds;
use forebay_simulation::{RunOptions, Totals, run_seed};
use std::process::ExitCode;

/// Runs seeds of the simulated database.
#[derive(Debug, Parser)]
#[command(name = "engine-seeds")]
struct Arguments {
    #[command(flatten)]
    seeds: Seeds,
    /// Minimum number of calls of each seed.
    #[arg(long, default_value_t = 20_000)]
    operations: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let clock = SystemClock::new();
    let options = RunOptions { operations: arguments.operations };
    let again = |seed| format!("cargo xtask simulation --seeds 1 --first {seed} --operations {}", options.operations);
    let run = |seed| run_seed(seed, &options);
    let (each, failed) = arguments.seeds.run(run, |totals: &mut Totals, report| totals.add(&report), again);
    let mut totals = Totals::default();
    each.into_iter().for_each(|one| totals.merge(one));
    println!("{} seeds passed, {failed} failed, in {:.1} s", totals.seeds(), clock.now() as f64 / 1e9);
    println!("{totals}");
    if failed > 0 {
        return ExitCode::from(1);
    }
    ExitCode::SUCCESS
}
