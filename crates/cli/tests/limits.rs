//! Commands that get fewer threads than they need: whichever thread cannot be started, the command says so and ends.

use crate::common::{start_node, start_with_threads};

#[test]
fn threads_that_cannot_be_started_are_errors() {
    let (_node, address) = start_node("tcp://127.0.0.1:0", "--memory 64MiB");
    for line in [
        "memory-node --listen tcp://127.0.0.1:0 --memory 16MiB --threads 24",
        &format!("worker --memory {address} --threads 24"),
        "serve --listen 127.0.0.1:0 --admin 127.0.0.1:0 --local-memory-size 64MiB --durability none --threads 24",
        "bench --num 1000 --local-memory-size 64MiB --threads 24",
    ] {
        // From the first of the command's threads to one of the last.
        for most in [1, 3, 6, 20] {
            let ended = start_with_threads(line, most).wait();
            assert_eq!(ended.code, Some(1), "{line} with {most}: {ended:?}");
            assert!(!ended.error.contains("panicked"), "{line} with {most}: {ended:?}");
            let said = ended.error.lines().last().unwrap_or_default();
            assert!(said.starts_with("forebay: ") && said.contains("thread"), "{line} with {most}: {ended:?}");
        }
    }
}
