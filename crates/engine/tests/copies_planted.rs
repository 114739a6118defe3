//! Planted bugs of several copies in memory are found.

use crate::alone;
use crate::common::copied::{joined, left_out, made_wrongly, torture};
use forebay_engine::planted::{Bug, plant};
use std::panic::catch_unwind;

/// Seeds within which each bug shows.
const SEEDS: u64 = 4;

#[test]
fn each_bug_of_copies_is_found() {
    let _alone = alone();
    for bug in Bug::OF_COPIES {
        plant(Some(bug));
        let mut runs = [left_out, joined, made_wrongly].into_iter();
        let is_found = runs.any(|run| catch_unwind(run).is_err())
            || (0..SEEDS).any(|seed| catch_unwind(|| torture(seed)).is_err());
        plant(None);
        assert!(is_found, "{bug:?} is not found by {SEEDS} seeds");
    }
}
