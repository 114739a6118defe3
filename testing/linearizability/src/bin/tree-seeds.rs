//! Runs seeds of the shared tree in the simulated fabric and checks each history.
//!
//! Exit codes: 0 every seed passed, 1 one failed (and how to run it again), 2 the command line is
//! wrong.

#![forbid(unsafe_code)]

use clap::Parser;
use forebay_env::{Clock, SystemClock};
use forebay_linearizability::{Report, run_seed};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Runs seeds of the shared tree in the simulated fabric and checks each history.
#[derive(Debug, Parser)]
struct Arguments {
    /// Seeds to run.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Seeds that run side by side.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=64))]
    threads: u64,
    /// Go on after a seed that failed.
    #[arg(long)]
    all: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let clock = SystemClock::new();
    let (total, failed) = run_all(&arguments);
    let seconds = clock.now() as f64 / 1e9;
    let Report { operations, lost, stopped, leaves, inner_nodes, keys, steps, .. } = total;
    println!(
        "{} seeds, {failed} failed: {operations} operations ({lost} lost), {stopped} clients stopped; {keys} keys in \
         {leaves} leaves under {inner_nodes} inner nodes at the ends; {steps} steps; {seconds:.1} s",
        arguments.seeds,
    );
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn run_all(arguments: &Arguments) -> (Report, u64) {
    let (next, failed, stop) = (AtomicU64::new(arguments.first), AtomicU64::new(0), AtomicBool::new(false));
    let end = arguments.first.saturating_add(arguments.seeds);
    let work = || {
        let mut total = Report::default();
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                break;
            }
            match run_seed(seed) {
                Ok(report) => total.add(&report),
                Err(why) => {
                    failed.fetch_add(1, Ordering::Relaxed);
                    stop.store(!arguments.all, Ordering::Relaxed);
                    eprintln!("seed {seed}: {why}");
                    eprintln!("again: cargo xtask tree-seeds --seeds 1 --first {seed}");
                }
            }
        }
        total
    };
    let mut total = Report::default();
    forebay_env::thread::side_by_side(arguments.threads as usize, work).iter().for_each(|report| total.add(report));
    (total, failed.into_inner())
}
