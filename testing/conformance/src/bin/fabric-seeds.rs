//! Runs seeds of the simulated fabric and checks each against a model.
//!
//! Exit codes: 0 every seed passed, 1 one failed (and how to run it again), 2 the command line is
//! wrong.

#![forbid(unsafe_code)]

use forebay_conformance::seeds::{SeedOptions, run_seed};
use forebay_env::{Clock, SystemClock};
use std::process::ExitCode;

const USAGE: &str = "Usage: fabric-seeds [--seeds N] [--operations M] [--first S] [--line 8|64]

  --seeds N        seeds to run (default 100)
  --operations M   operations that each posts at least (default 20000)
  --first S        the first seed (default 0)
  --line 8|64      bytes that land at once (default: 64 for even seeds, 8 for odd ones)";

struct Arguments {
    seeds: u64,
    operations: u64,
    first: u64,
    line_bytes: Option<usize>,
}

fn parse(arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut parsed = Arguments { seeds: 100, operations: 20_000, first: 0, line_bytes: None };
    let mut arguments = arguments;
    while let Some(flag) = arguments.next() {
        if matches!(flag.as_str(), "--help" | "-h") {
            return Err(String::new());
        }
        let (flag, value) = match flag.split_once('=') {
            Some((flag, value)) => (flag.to_owned(), value.to_owned()),
            None => {
                let value = arguments.next().ok_or_else(|| format!("`{flag}` needs a value"))?;
                (flag, value)
            }
        };
        let number: u64 = value.parse().map_err(|_| format!("`{flag} {value}`: not a number"))?;
        match flag.as_str() {
            "--seeds" => parsed.seeds = number,
            "--operations" => parsed.operations = number,
            "--first" => parsed.first = number,
            "--line" if matches!(number, 8 | 64) => parsed.line_bytes = Some(number as usize),
            "--line" => return Err(format!("`--line {number}`: lines are of 8 or 64 bytes")),
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
            eprintln!("fabric-seeds: {why}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let clock = SystemClock::new();
    let (mut operations, mut failed, mut revocations, mut restarts, mut steps) = (0, 0, 0, 0, 0);
    for seed in arguments.first..arguments.first.saturating_add(arguments.seeds) {
        let line_bytes = arguments.line_bytes.unwrap_or(if seed % 2 == 0 { 64 } else { 8 });
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
                    "again: cargo run --release --package forebay-conformance --bin fabric-seeds -- \
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
