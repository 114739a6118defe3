//! A frozen inner node's separators are used again while others still read them.

use crate::alone;
use crate::common::Nodes;
use crate::common::halves::HalfSplit;
use forebay_tree::planted::{Bug, plant};

/// Reads a split that was left half done after separators of its right half were used again.
fn read() -> Result<(), String> {
    let nodes = Nodes::start(1, 64 << 20);
    let mut split = HalfSplit::new(&nodes);
    split.use_again();
    split.read()
}

#[test]
fn separators_that_are_kept_are_found() {
    let _alone = alone();
    plant(Some(Bug::KeepSeparators));
    let found = read();
    plant(None);
    println!("{found:?}");
    assert!(found.is_err(), "the planted bug is not found");
    read().unwrap();
}
