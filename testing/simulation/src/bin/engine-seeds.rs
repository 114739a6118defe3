//! Runs seeds of the simulated database and checks each against a model.
//!
//! Exit codes: 0 every seed passed, 1 one failed (and how to run it again), 2 the command line is
//! wrong.

#![forbid(unsafe_code)]

use forebay_env::{Clock, SystemClock};
use forebay_simulation::{Report, RunOptions, run_seed};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const USAGE: &str = "Usage: engine-seeds [--seeds N] [--operations M] [--first S] [--threads T]

  --seeds N        seeds to run (default 100)
  --operations M   calls that each makes at least (default 20000)
  --first S        the first seed (default 0)
  --threads T      seeds that run side by side (default 2)";

struct Arguments {
    seeds: u64,
    operations: u64,
    first: u64,
    threads: u64,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut parsed = Arguments { seeds: 100, operations: 20_000, first: 0, threads: 2 };
    while let Some(flag) = arguments.next() {
        if matches!(flag.as_str(), "--help" | "-h") {
            return Err(String::new());
        }
        let value = arguments.next().ok_or_else(|| format!("`{flag}` needs a value"))?;
        let number: u64 = value.parse().map_err(|_| format!("`{flag} {value}`: not a number"))?;
        match flag.as_str() {
            "--seeds" => parsed.seeds = number,
            "--operations" => parsed.operations = number,
            "--first" => parsed.first = number,
            "--threads" => parsed.threads = number.clamp(1, 64),
            _ => return Err(format!("there is no flag `{flag}`")),
        }
    }
    Ok(parsed)
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(why) if why.is_empty() => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("engine-seeds: {why}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let clock = SystemClock::new();
    let Ok(total) = run_all(&arguments) else { return ExitCode::from(1) };
    let seconds = clock.now() as f64 / 1e9;
    println!(
        "{} seeds: {} calls ({} failed), {} flushes, {} compactions ({} near the data), {} databases lost; \
         {} steps inside of calls, {} calls inside of steps; {seconds:.1} s",
        arguments.seeds,
        total.operations,
        total.failed,
        total.flushes,
        total.compactions,
        total.near_data_compactions,
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
    forebay_env::thread::side_by_side(arguments.threads as usize, work).iter().for_each(|report| total.add(report));
    if failed.load(Ordering::Relaxed) { Err(()) } else { Ok(total) }
}
