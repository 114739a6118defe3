//! Bugs that are planted in the tree are found: a checker counts only once it has failed.
//!
//! They are planted for the whole process, one after the other, so this is the only test of its file.

use forebay_linearizability::run_seed;
use forebay_tree::planted::{Bug, plant};

/// Seeds that are tried for each bug; the highest that was needed is 325.
const SEEDS: u64 = 500;
/// Bugs that these seeds do not find: their windows are a few steps of the network, between two clients
/// that do the same thing to neighbouring slots, or to one stack. `planted_schedules.rs` finds them, and the
/// tree's own tests `rounds.rs` and `halves_planted.rs` the last two.
const TOO_RARE: [Bug; 5] =
    [Bug::TrustTorn, Bug::MergePastPending, Bug::RoundBeforeTops, Bug::AdvanceTooEarly, Bug::KeepSeparators];

#[test]
#[ignore = "takes a minute: cargo xtask tree-planted"]
fn planted_bugs_are_found() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for bug in Bug::ALL.into_iter().filter(|bug| !TOO_RARE.contains(bug)) {
        plant(Some(bug));
        let found = (0..SEEDS).find_map(|seed| Some((seed, run_seed(seed).err()?)));
        plant(None);
        match found {
            Some((seed, why)) => println!("{bug:?}: seed {seed}, {}", why.lines().next().unwrap_or_default()),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}
