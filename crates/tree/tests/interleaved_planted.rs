//! Bugs that show where a client is stopped or held up, and others continue.

use crate::alone;
use crate::common::Nodes;
use crate::common::cuts::all_cuts;
use forebay_tree::planted::{Bug, plant};

/// Seeds that are tried for each bug, after those that showed one before.
const SEEDS: u64 = 300;
const SHOWN_BY: [u64; 6] = [0, 2, 12, 18, 24, 84];

/// Bugs that no cut of one client shows in 1500 seeds: they need two clients within an operation at once, or memory that is
/// torn or used again at a certain step. `testing/linearizability` finds them, and `rounds.rs` and `halves_planted.rs` the last two.
const OF_SEVERAL: [Bug; 9] = [
    Bug::MissingGeneration,
    Bug::TrustTorn,
    Bug::MergePastPending,
    Bug::RoundBeforeTops,
    Bug::ListUsedAtOnce,
    Bug::ListAfterTop,
    Bug::PushToGiving,
    Bug::AdvanceTooEarly,
    Bug::KeepSeparators,
];

#[test]
fn planted_bugs_are_found() {
    let _alone = alone();
    let nodes = Nodes::start(1, 64 << 20);
    let mut missed = Vec::new();
    for bug in Bug::ALL.into_iter().filter(|bug| !OF_SEVERAL.contains(bug)) {
        plant(Some(bug));
        let mut seeds = SHOWN_BY.into_iter().chain(0..SEEDS);
        let found = seeds.find_map(|seed| all_cuts(&|| nodes.sessions(), seed).err());
        plant(None);
        println!("{bug:?}: {}", found.as_deref().and_then(|what| what.lines().next()).unwrap_or("MISSED"));
        missed.extend(found.is_none().then_some(bug));
    }
    assert!(missed.is_empty(), "{missed:?}");
    for seed in SHOWN_BY {
        all_cuts(&|| nodes.sessions(), seed).unwrap_or_else(|why| panic!("without a bug: {why}"));
    }
}
