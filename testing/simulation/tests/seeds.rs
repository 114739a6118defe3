//! Some seeds, and images of some. More of them: `cargo xtask simulation`, `cargo xtask crash-images`.

use forebay_seeds::Seeds;
use forebay_simulation::{RunOptions, run_images, run_seed};

const SEEDS: Seeds = Seeds { count: 20, first: 0, threads: 1, all: true, patience: 300 };
const OPERATIONS: u64 = 20_000;
const IMAGES: u64 = 20;

/// Expects all seeds to pass.
fn expect<R>(suite: &str, run: impl Fn(u64) -> Result<R, String> + Sync) {
    let again = |seed| format!("cargo xtask {suite} --seeds 1 --first {seed}");
    let (_, failed) = SEEDS.run(run, |(): &mut (), _| (), again);
    assert_eq!(failed, 0, "seeds that failed");
}

#[test]
fn seeds_pass() {
    expect("simulation", |seed| run_seed(seed, &RunOptions { operations: OPERATIONS }));
}

/// Seeds that failed once, with this many calls. An owner that was taken over took a member back. A write went in
/// circles while the register was lost. Nodes were lost faster than anything noticed. Numbers of moved records were
/// taken for those of a write. A database whose creation had ended before its register knew of it could no longer be
/// created. A batch longer than a memtable waited for ever for memory. A log whose sync had failed was named no more
/// before another one was. A node without threads for jobs was full of their outputs, and neither deletions nor the
/// arguments of a compaction found room among them.
const FAILED_ONCE: [(u64, u64); 9] = [
    (226, 5000),
    (398, 5000),
    (96, 5000),
    (980, 1000),
    (1109, 1000),
    (1672, 20_000),
    (1800, 20_000),
    (421_123, 5000),
    (444_080, 5000),
];

#[test]
fn seeds_that_failed_once_pass() {
    for (seed, operations) in FAILED_ONCE {
        run_seed(seed, &RunOptions { operations }).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

/// Seeds that run twice: with and without workers, storage and copies.
const REPEATED: u64 = 16;
const REPEATED_OPERATIONS: u64 = 1000;

#[test]
fn a_seed_always_does_the_same() {
    for seed in 0..REPEATED {
        let run = || run_seed(seed, &RunOptions { operations: REPEATED_OPERATIONS });
        assert_eq!(run(), run(), "seed {seed}");
    }
}

#[test]
fn images_open_and_hold_what_they_must() {
    expect("crash-images", |seed| run_images(seed, IMAGES));
}
