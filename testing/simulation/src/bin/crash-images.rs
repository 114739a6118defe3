//! Takes images of the storage of simulated databases, opens each, and checks what it holds.
//!
//! Exit codes: 0 every image held what it must, 1 a seed failed (the output says how to run it again), 2 the command line
//! is invalid.

#![forbid(unsafe_code)]

use clap::Parser;
use forebay_env::{Clock, SystemClock};
use forebay_seeds::Seeds;
use forebay_simulation::{ImageReport, run_images};
use std::process::ExitCode;

/// Opens images of the storage of simulated databases.
#[derive(Debug, Parser)]
#[command(name = "crash-images")]
struct Arguments {
    #[command(flatten)]
    seeds: Seeds,
    /// Images of each seed.
    #[arg(long, default_value_t = 100)]
    images: u64,
}

fn main() -> ExitCode {
    let Arguments { seeds, images } = Arguments::parse();
    let clock = SystemClock::new();
    let again = |seed| format!("cargo xtask crash-images --seeds 1 --first {seed} --images {images}");
    let run = |seed| run_images(seed, images);
    let (each, failed) = seeds.run(run, |total: &mut ImageReport, report| total.add(&report), again);
    let mut total = ImageReport::default();
    each.iter().for_each(|one| total.add(one));
    let ImageReport { images, calls, replayed, cut } = total;
    println!(
        "{images} images of {calls} calls: {replayed} had a log to be replayed, {cut} with a torn end; {failed} seeds \
         failed, in {:.1} s",
        clock.now() as f64 / 1e9
    );
    if failed > 0 { ExitCode::from(1) } else { ExitCode::SUCCESS }
}
