//! Seeded runs pass, repeat, and find every planted bug: a checker counts only once it has failed.

use forebay_conformance::seeds::{SeedOptions, run_seed};
use forebay_fabric::sim::Plant;

const SEEDS: u64 = 20;
/// Seeds within which each planted bug is found.
const PLANTED_SEEDS: u64 = 12;

fn options(seed: u64, plant: Option<Plant>) -> SeedOptions {
    SeedOptions { operations: 20_000, line_bytes: if seed.is_multiple_of(2) { 64 } else { 8 }, plant }
}

#[test]
fn some_seeds_pass() {
    for seed in 0..SEEDS {
        let report = run_seed(seed, &options(seed, None)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert!(report.failed > 100 && report.revocations > 10 && report.restarts > 0, "seed {seed}: {report:?}");
    }
}

#[test]
fn a_seed_gives_the_same_run() {
    let reports = || (100..103).map(|seed| run_seed(seed, &options(seed, None)).unwrap()).collect::<Vec<_>>();
    assert_eq!(reports(), reports());
}

#[test]
fn every_planted_bug_is_found() {
    for plant in Plant::ALL {
        let found = (0..PLANTED_SEEDS)
            .find_map(|seed| run_seed(seed, &options(seed, Some(plant))).err().map(|why| (seed, why)));
        let (seed, why) = found.unwrap_or_else(|| panic!("{plant:?} is not found by {PLANTED_SEEDS} seeds"));
        println!("{plant:?}: seed {seed}: {why}");
    }
}
