//! Bugs planted in the engine and in its storage. Some seed, or some image of the storage, finds each of those that can show on
//! one thread. `crates/engine/tests/planted_threads.rs` finds those that show only between threads.

use forebay_engine::planted::{Bug, plant};
use forebay_simulation::{RunOptions, run_images, run_seed};
use forebay_storage::planted as storage;
use std::fmt::Debug;

/// Number of seeds to try.
const SEEDS: u64 = 400;
const OPERATIONS: u64 = 5000;
const IMAGES: u64 = 30;

/// The bugs of the storage that a whole database soon shows: not those that rot or holes show, nor those of two that commit or
/// recover at the same moment. `testing/storage` finds all of them.
const OF_STORAGE: [storage::Bug; 6] = [
    storage::Bug::LostReplyFences,
    storage::Bug::AcknowledgedBeforeSync,
    storage::Bug::SealIsNotSeen,
    storage::Bug::FolderIsNotSynced,
    storage::Bug::ObjectIsNotSynced,
    storage::Bug::NameIsNotSynced,
];

/// The bugs of copies, but for the one that only a node shows that makes other bytes of a job than others.
const OF_COPIES: [Bug; 5] =
    [Bug::OneCopy, Bug::AcknowledgeAtFirstCopy, Bug::LeaveOutUnrecorded, Bug::ReadLeftOut, Bug::JoinWithoutLog];

/// One test for all bugs, in sequence: a bug is planted for the whole process.
#[test]
fn planted_bugs_are_found() {
    for seed in 0..4 {
        find(seed).unwrap_or_else(|why| panic!("seed {seed}, without a bug: {why}"));
    }
    let others = Bug::OF_STORAGE.into_iter().chain(Bug::OF_EXPIRY).chain(Bug::OF_MERGES).chain(Bug::OF_SPACE);
    for bug in Bug::OF_ORDER.into_iter().chain(others).chain(OF_COPIES) {
        plant(Some(bug));
        let found = found();
        plant(None);
        expect(bug, found);
    }
    for bug in OF_STORAGE {
        storage::plant(Some(bug));
        let found = found();
        storage::plant(None);
        expect(bug, found);
    }
}

/// What a seed finds.
fn find(seed: u64) -> Result<(), String> {
    run_seed(seed, &RunOptions { operations: OPERATIONS })?;
    run_images(seed, IMAGES).map(|_| ())
}

/// The first seed that finds something, and what.
fn found() -> Option<(u64, String)> {
    (0..SEEDS).find_map(|seed| Some((seed, find(seed).err()?)))
}

fn expect(bug: impl Debug, found: Option<(u64, String)>) {
    let (seed, why) = found.unwrap_or_else(|| panic!("{bug:?} was not found in {SEEDS} seeds"));
    println!("{bug:?}: seed {seed}: {why}");
}
