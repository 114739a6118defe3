//! Bugs planted in the engine. Some seed finds each of those that can show on one thread.
//! `crates/engine/tests/planted.rs` finds those that show only between threads.

use forebay_engine::planted::{Bug, plant};
use forebay_simulation::{RunOptions, run_seed};

/// Number of seeds to try.
const SEEDS: u64 = 400;
const OPERATIONS: u64 = 5000;

/// One test for all bugs, in sequence: a bug is planted for the whole process.
#[test]
fn planted_bugs_are_found() {
    let options = RunOptions { operations: OPERATIONS };
    for seed in 0..4 {
        run_seed(seed, &options).unwrap_or_else(|why| panic!("seed {seed}, without a bug: {why}"));
    }
    for bug in Bug::OF_ORDER {
        plant(Some(bug));
        let found = (0..SEEDS).find_map(|seed| Some((seed, run_seed(seed, &options).err()?)));
        plant(None);
        let (seed, why) = found.unwrap_or_else(|| panic!("{bug:?} was not found in {SEEDS} seeds"));
        println!("{bug:?}: seed {seed}: {why}");
    }
}
