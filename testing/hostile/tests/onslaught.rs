//! All continuous attacks at once, for a second. For longer, and with goals: `cargo xtask hostile`.

use std::process::Command;

#[test]
fn a_node_under_all_attacks_serves_the_honest_one() {
    let output = Command::new(env!("CARGO_BIN_EXE_hostile")).args(["--seconds", "1"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
