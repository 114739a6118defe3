//! Planted bugs of the tree are found in the schedules of few clients, each in a scenario in which it shows. The
//! three that are missing need reuse of memory, which these scenarios do not have: seeds find them.
//!
//! They are planted for the whole process, one after the other, so this is the only test of its file.

use forebay_linearizability::exhaustive::{all, explore};
use forebay_tree::planted::{Bug, plant};

const SHOWN: [(Bug, &str); 16] = [
    (Bug::EnterPastPending, "a full leaf: put 3 | put 0"),
    (Bug::InsertPastPending, "an empty leaf: insert 0 | insert 0"),
    (Bug::TrustFrozen, "a full leaf: insert 3 | insert 3"),
    (Bug::CopyWithoutFreezing, "a full leaf: put 3 | put 0"),
    (Bug::StageTooLate, "a full leaf: put 3 | put 0"),
    (Bug::SwingBeforeEntering, "a full leaf: put 3 | put 0"),
    (Bug::LostTombstone, "a leaf that has the key: put 0 | delete 0"),
    (Bug::LostUpdate, "a leaf that has the key: put 0 | swap 0"),
    (Bug::ScanStaleLeaf, "a full leaf: put 3 | scan"),
    (Bug::ValueBeforeKey, "an empty leaf: insert 0 | insert 0"),
    (Bug::TrustTorn, "an empty leaf: insert 0 | insert 0"),
    (Bug::MergePastPending, "two leaves: delete 0 | put 5"),
    (Bug::RoundBeforeTops, "a stack of three: take | round, give"),
    (Bug::ListUsedAtOnce, "a stack of three: take | take, take, round, give, give"),
    (Bug::ListAfterTop, "a stack of three: give | give"),
    (Bug::PushToGiving, "a stack of three: take | give, give"),
];

#[test]
fn planted_bugs_are_found() {
    let scenarios = all(2);
    let mut missed = Vec::new();
    for (bug, name) in SHOWN {
        let scenario = scenarios.iter().find(|scenario| scenario.name == name).expect(name);
        plant(Some(bug));
        let found = explore(scenario);
        plant(None);
        match found {
            Err(why) => println!("{bug:?}: {}", why.lines().next().unwrap_or_default()),
            Ok(coverage) => missed.push((bug, name, coverage.states)),
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}
