//! Tries all schedules of a few clients of the shared tree, and checks each history.
//!
//! Exit codes: 0 all are explained, 1 one is not (and the schedule), 2 the command line is wrong.

#![forbid(unsafe_code)]

use clap::Parser;
use forebay_env::sync::{Mutex, lock};
use forebay_env::{Clock, SystemClock};
use forebay_linearizability::exhaustive::{Coverage, all, explore};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Tries all schedules of a few clients of the shared tree, and checks each history.
#[derive(Debug, Parser)]
struct Arguments {
    /// How often a client that could go on with its call has to wait for another, at most.
    #[arg(long, default_value_t = 2)]
    switches: usize,
    /// Only scenarios whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Scenarios side by side.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let clock = SystemClock::new();
    let scenarios = all(arguments.switches);
    let scenarios: Vec<_> = scenarios.iter().filter(|scenario| scenario.name.contains(&arguments.only)).collect();
    let (next, failed, total) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Coverage::default()));
    forebay_env::thread::run_all((0..arguments.threads).collect(), |_| {
        while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
            match explore(scenario) {
                Ok(coverage) => {
                    println!("{}: {coverage}", scenario.name);
                    lock(&total).add(&coverage);
                }
                Err(why) => {
                    println!("FAILED {why}");
                    failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    });
    let (total, failed) = (lock(&total), failed.into_inner());
    let seconds = clock.now() as f64 / 1e9;
    println!("{} scenarios, {failed} failed: {total}; {seconds:.1} s", scenarios.len());
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
