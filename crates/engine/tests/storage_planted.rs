//! Planted bugs of durability `storage` are found.

use crate::alone;
use crate::common::stored::torture;
use forebay_engine::planted::{Bug, plant};
use std::panic::catch_unwind;

/// Seeds within which each bug shows.
const SEEDS: u64 = 60;

#[test]
fn each_bug_of_storage_is_found() {
    let _alone = alone();
    for bug in Bug::OF_STORAGE.into_iter().chain([Bug::AcknowledgeBeforeShipped]) {
        plant(Some(bug));
        let found = (0..SEEDS).find(|seed| catch_unwind(|| torture(*seed)).is_err());
        plant(None);
        println!("{bug:?}: seed {found:?}");
        assert!(found.is_some(), "{bug:?} is not found by {SEEDS} seeds");
    }
}
