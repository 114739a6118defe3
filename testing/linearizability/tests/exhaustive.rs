//! All schedules of two and three clients with few switches between them. `cargo xtask tree-exhaustive` tries
//! more switches, and takes longer.

use forebay_linearizability::exhaustive::{Coverage, all, explore};

#[test]
fn all_schedules_with_one_switch_are_explained() {
    let mut total = Coverage::default();
    for scenario in all(1) {
        match explore(&scenario) {
            Ok(coverage) => total.add(&coverage),
            Err(why) => panic!("{why}"),
        }
    }
    println!("{total}");
    assert!(total.states > 10_000 && total.ends > 1000, "{total}");
}
