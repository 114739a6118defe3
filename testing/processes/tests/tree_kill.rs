//! Clients that are killed, over each back end between processes. For longer: `cargo xtask tree-kill`.

use std::process::Command;

#[test]
fn clients_that_are_killed_lose_nothing() {
    let arguments = ["--operations", "100000", "--kill-every-ms", "400"];
    let output = Command::new(env!("CARGO_BIN_EXE_tree-kill")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
