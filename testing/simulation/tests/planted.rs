//! Bugs planted in the engine and in its storage. Some seed, or some image of the storage, finds each bug that can show on
//! one thread. `crates/engine/tests/planted_threads.rs` finds those that show only between threads.

use forebay_engine::planted::{Bug, plant};
use forebay_env::sync::{Mutex, lock};
use forebay_simulation::{RunOptions, run_images, run_seed};
use forebay_storage::planted as storage;
use std::collections::BTreeSet;
use std::fmt::Debug;

/// Number of seeds to try.
const SEEDS: u64 = 400;
/// Seeds that together show all bugs. They are tried first, beginning with the seed that shows the most.
const SHOWN_BY: [u64; 13] = [61, 75, 42, 5, 52, 60, 9, 49, 14, 23, 1, 28, 27];
const OPERATIONS: u64 = 5000;
const IMAGES: u64 = 30;
const THREADS: usize = 2;

/// The bugs of the storage that a whole database soon shows: not those that holes show, nor those of two that commit or
/// recover at the same moment. `testing/storage` finds all of them.
const OF_STORAGE: [storage::Bug; 7] = [
    storage::Bug::DamageIsTorn,
    storage::Bug::LostReplyFences,
    storage::Bug::AcknowledgedBeforeSync,
    storage::Bug::SealIsNotSeen,
    storage::Bug::FolderIsNotSynced,
    storage::Bug::ObjectIsNotSynced,
    storage::Bug::NameIsNotSynced,
];

/// The bug of copies that soon shows here. The engine's own tests find the others (`crates/engine/tests/copies_planted.rs`).
const OF_COPIES: [Bug; 1] = [Bug::OneCopy];

/// What looks for bugs with a seed.
type Finder = fn(u64) -> Result<(), String>;

fn by_run(seed: u64) -> Result<(), String> {
    run_seed(seed, &RunOptions { operations: OPERATIONS }).map(|_| ())
}

/// Looks also with images, which only a database in storage has.
fn by_run_and_images(seed: u64) -> Result<(), String> {
    by_run(seed)?;
    run_images(seed, IMAGES).map(|_| ())
}

/// One test for all bugs, in sequence: a bug is planted for the whole process. A seed that finds a bug must find nothing
/// without it.
#[test]
fn planted_bugs_are_found() {
    let showing = Mutex::new(BTreeSet::new());
    let show = |seed| {
        lock(&showing).insert(seed);
    };
    let of_engine = |bug, find| show(expect(bug, || plant(Some(bug)), || plant(None), find));
    let in_memory = Bug::OF_ORDER.into_iter().chain(Bug::OF_EXPIRY).chain(Bug::OF_MERGES);
    in_memory.chain(Bug::OF_SPACE).chain(Bug::OF_DELETIONS).chain(OF_COPIES).for_each(|bug| of_engine(bug, by_run));
    Bug::OF_CHECKPOINTS.into_iter().for_each(|bug| of_engine(bug, by_run));
    Bug::OF_STORAGE.into_iter().for_each(|bug| of_engine(bug, by_run_and_images));
    for bug in OF_STORAGE {
        show(expect(bug, || storage::plant(Some(bug)), || storage::plant(None), by_run_and_images));
    }
    forebay_env::thread::side_by_side(THREADS, || {
        while let Some(seed) = { lock(&showing).pop_first() } {
            by_run_and_images(seed).unwrap_or_else(|why| panic!("seed {seed}, without a bug: {why}"));
        }
    });
}

/// Expects one of the seeds to find a bug while it is planted, and returns that seed. Seeds run side by side.
fn expect(bug: impl Debug, plant: impl Fn(), uproot: impl Fn(), find: Finder) -> u64 {
    let (seeds, found) = (Mutex::new(SHOWN_BY.into_iter().chain(0..SEEDS)), Mutex::new(None));
    plant();
    forebay_env::thread::side_by_side(THREADS, || {
        while lock(&found).is_none() {
            let Some(seed) = lock(&seeds).next() else { return };
            if let Err(why) = find(seed) {
                *lock(&found) = Some((seed, why));
            }
        }
    });
    uproot();
    let found = lock(&found).take();
    let (seed, why) = found.unwrap_or_else(|| panic!("{bug:?} was not found in {SEEDS} seeds"));
    println!("{bug:?}: seed {seed}: {why}");
    seed
}
