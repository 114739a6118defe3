//! Runs seeds of the simulated database and checks each against a model.
//!
//! Exit codes: 0 every seed passed, 1 one failed (and how to run it again), 2 the command line is
//! wrong.

#![forbid(unsafe_code)]

use clap::Parser;
use forebay_env::{Clock, SystemClock};
use forebay_simulation::{Report, RunOptions, run_seed};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Runs seeds of the simulated database.
#[derive(Debug, Parser)]
#[command(name = "engine-seeds")]
struct Arguments {
    /// Seeds to run.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// Calls that each makes at least.
    #[arg(long, default_value_t = 20_000)]
    operations: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Seeds that run side by side.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let clock = SystemClock::new();
    let Ok(total) = run_all(&arguments) else { return ExitCode::from(1) };
    let seconds = clock.now() as f64 / 1e9;
    println!(
        "{} seeds: {} calls ({} failed, {} of them for want of memory), {} flushes, {} compactions ({} near the data)",
        arguments.seeds,
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

fn run_all(arguments: &Arguments) -> Result<Report, ()> {
    let (next, failed) = (AtomicU64::new(arguments.first), AtomicBool::new(false));
    let end = arguments.first.saturating_add(arguments.seeds);
    let work = || {
        let mut total = Report::default();
        while !failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                break;
            }
            match run_seed(seed, &RunOptions { operations: arguments.operations }) {
                Ok(report) => total.add(&report),
                Err(why) => {
                    failed.store(true, Ordering::Relaxed);
                    eprintln!("seed {seed}: {why}");
                    eprintln!(
                        "again: cargo run --release --package forebay-simulation --bin engine-seeds -- \
                         --seeds 1 --first {seed} --operations {}",
                        arguments.operations
                    );
                }
            }
        }
        total
    };
    let mut total = Report::default();
    forebay_env::thread::side_by_side(arguments.threads.into(), work).iter().for_each(|report| total.add(report));
    if failed.load(Ordering::Relaxed) { Err(()) } else { Ok(total) }
}
