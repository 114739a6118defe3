//! The flips of bits find a planted bug: damage in the middle of a log that is taken for a torn end.

use crate::alone;
use crate::common::flips::flip_on_a_disk;
use forebay_storage::planted::{Bug, plant};
use std::panic::catch_unwind;

#[test]
fn damage_that_is_taken_for_a_torn_end_is_found() {
    let _alone = alone();
    plant(Some(Bug::DamageIsTorn));
    let found = catch_unwind(flip_on_a_disk).is_err();
    plant(None);
    assert!(found);
}
