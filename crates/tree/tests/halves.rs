//! An inner node is frozen for long, and its right half is in use.

use crate::common::Nodes;
use crate::common::halves::HalfSplit;

#[test]
fn a_split_is_completed_although_separators_of_its_right_half_were_freed() {
    let nodes = Nodes::start(1, 64 << 20);
    let mut split = HalfSplit::new(&nodes);
    split.use_again();
    split.read().unwrap();
    split.verify().unwrap();
}

#[test]
fn a_half_done_split_is_verified() {
    for uses_again in [false, true] {
        let nodes = Nodes::start(1, 64 << 20);
        let mut split = HalfSplit::new(&nodes);
        if uses_again {
            split.use_again();
        }
        split.verify().unwrap();
        split.read().unwrap();
    }
}

/// What the first client marked in the old node is not taken for what the second one marks in a copy.
#[test]
fn a_split_that_was_not_entered_leaves_nothing_in_the_halves() {
    let nodes = Nodes::start(1, 64 << 20);
    let mut split = HalfSplit::loaded(&nodes);
    split.split(&nodes, false);
    split.read().unwrap();
    split.split(&nodes, true);
    split.use_again();
    split.read().unwrap();
    split.verify().unwrap();
}
