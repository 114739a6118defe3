//! Runs seeds of the shared tree in the simulated fabric and checks each history.
//!
//! Exit codes: 0 every seed passed, 1 one failed (and how to run it again), 2 the command line is
//! wrong.

#![forbid(unsafe_code)]

use clap::Parser;
use forebay_env::{Clock, SystemClock};
use forebay_linearizability::{Report, run_seed};
use forebay_seeds::Seeds;
use std::process::ExitCode;

/// Runs seeds of the shared tree in the simulated fabric and checks each history.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    seeds: Seeds,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let clock = SystemClock::new();
    let again = |seed| format!("cargo xtask tree-seeds --seeds 1 --first {seed}");
    let (totals, failed) = arguments.seeds.run(run_seed, |total: &mut Report, report| total.add(&report), again);
    let mut total = Report::default();
    totals.iter().for_each(|report| total.add(report));
    let seconds = clock.now() as f64 / 1e9;
    let Report { operations, lost, stopped, leaves, inner_nodes, keys, steps, .. } = total;
    println!(
        "{} seeds, {failed} failed: {operations} operations ({lost} lost), {stopped} clients stopped; {keys} keys in \
         {leaves} leaves under {inner_nodes} inner nodes at the ends; {steps} steps; {seconds:.1} s",
        arguments.seeds.count,
    );
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
