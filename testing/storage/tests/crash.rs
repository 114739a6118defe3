//! Crashes, faults and takeovers at every step, of a few seeds. `FOREBAY_SEEDS=N` runs more of them.

use forebay_storage_conformance::Finding;
use forebay_storage_conformance::crash::{self, DiskWorld, ObjectWorld};

fn run(seeds: u64, checker: impl Fn(u64) -> Result<u64, Finding>) {
    let seeds = std::env::var("FOREBAY_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(seeds);
    let mut runs = 0;
    for seed in 0..seeds {
        match checker(seed) {
            Ok(more) => runs += more,
            Err(finding) => panic!("{finding}"),
        }
    }
    println!("{runs} runs");
}

#[test]
fn logs_in_files_are_recovered() {
    run(12, crash::log::<DiskWorld>);
}

#[test]
fn logs_in_objects_are_recovered() {
    run(12, crash::log::<ObjectWorld>);
}

#[test]
fn damage_to_logs_in_files_is_found() {
    run(4, crash::damaged_log::<DiskWorld>);
}

#[test]
fn files_of_logs_that_are_cut_off_or_missing_are_missed() {
    run(4, crash::cut_log);
}

#[test]
fn damage_to_logs_in_objects_is_found() {
    run(4, crash::damaged_log::<ObjectWorld>);
}

#[test]
fn a_log_of_which_something_is_not_found_by_mistake_is_recovered() {
    run(12, crash::not_found_log);
}

#[test]
fn commits_that_are_not_found_by_mistake_are_read() {
    run(12, crash::not_found_commits);
}

#[test]
fn commits_on_a_disk_stay_and_fence() {
    run(12, crash::register::<DiskWorld>);
}

#[test]
fn commits_in_objects_stay_and_fence() {
    run(12, crash::register::<ObjectWorld>);
}

#[test]
fn objects_on_a_disk_are_whole() {
    run(12, crash::objects::<DiskWorld>);
}

#[test]
fn objects_in_memory_are_whole() {
    run(12, crash::objects::<ObjectWorld>);
}
