//! Bugs of batches that cross shards in memory are found.

use crate::alone;
use crate::common::crossed::{flushed_with_half_a_batch, killed_after_each_step, written_behind_half_a_batch};
use forebay_engine::planted::{Bug, plant};
use std::panic::catch_unwind;

#[test]
fn each_bug_of_crossing_batches_is_found() {
    let _alone = alone();
    for bug in Bug::OF_CROSSINGS {
        plant(Some(bug));
        let runs: [fn(); 3] = [written_behind_half_a_batch, flushed_with_half_a_batch, || killed_after_each_step(1)];
        let is_found = runs.into_iter().any(|run| catch_unwind(run).is_err());
        plant(None);
        assert!(is_found, "{bug:?} is not found");
    }
}
