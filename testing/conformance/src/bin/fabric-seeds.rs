//! Runs seeds of the simulated fabric and checks each against a model.
//!
//! Exit codes: 0 every seed passed, 1 one failed (and how to run it again), 2 the command line is
//! wrong.

#![forbid(unsafe_code)]

use clap::Parser;
use forebay_conformance::seeds::{SeedOptions, run_seed};
use forebay_env::{Clock, SystemClock};
use std::process::ExitCode;

/// Runs seeds of the simulated fabric.
#[derive(Debug, Parser)]
#[command(name = "fabric-seeds")]
struct Arguments {
    /// Seeds to run.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// Operations that each posts at least.
    #[arg(long, default_value_t = 20_000)]
    operations: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Bytes that land at once, 8 or 64 [default: 64 for even seeds, 8 for odd ones].
    #[arg(long, value_parser = line_bytes)]
    line: Option<usize>,
}

fn line_bytes(text: &str) -> Result<usize, String> {
    match text {
        "8" => Ok(8),
        "64" => Ok(64),
        _ => Err("lines are of 8 or 64 bytes".to_owned()),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let clock = SystemClock::new();
    let (mut operations, mut failed, mut revocations, mut restarts, mut steps) = (0, 0, 0, 0, 0);
    for seed in arguments.first..arguments.first.saturating_add(arguments.seeds) {
        let line_bytes = arguments.line.unwrap_or(if seed % 2 == 0 { 64 } else { 8 });
        let options = SeedOptions { operations: arguments.operations, line_bytes, plant: None };
        match run_seed(seed, &options) {
            Ok(report) => {
                operations += report.operations;
                failed += report.failed;
                revocations += report.revocations;
                restarts += report.restarts;
                steps += report.steps;
            }
            Err(why) => {
                let wanted = arguments.operations;
                eprintln!("seed {seed}, lines of {line_bytes} bytes: {why}");
                eprintln!(
                    "again: cargo run --profile seeds --package forebay-conformance --bin fabric-seeds -- \
                     --seeds 1 --first {seed} --operations {wanted} --line {line_bytes}"
                );
                return ExitCode::from(1);
            }
        }
    }
    let seconds = clock.now() as f64 / 1e9;
    println!(
        "{} seeds: {operations} operations ({failed} failed), {steps} steps, {revocations} revocations, \
         {restarts} restarts; {seconds:.1} s, {:.0} operations a second",
        arguments.seeds,
        operations as f64 / seconds
    );
    ExitCode::SUCCESS
}
