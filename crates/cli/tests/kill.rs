//! The memory node is killed under load, over each back end between processes. The compute side reports it within
//! seconds, with the documented exit code and without a panic.

use crate::common::{places, start, start_node};
use forebay_env::Random;
use rustix::process::Signal;
use std::time::Duration;

#[test]
fn the_node_is_killed_in_the_middle_of_a_load() {
    for place in places() {
        let (node, address) = start_node(&place, "--memory=1GiB");
        let mut load = start(&format!(
            "bench --num=100000000 --value_size=100 --benchmarks=overwrite --write_buffer_size=2MiB --memory={address}"
        ));
        load.until_open();
        load.pause(Duration::from_millis(700));
        node.signal(Signal::KILL);
        let killed = load.age();
        let ended = load.wait().expect(4);
        assert!(ended.took - killed < Duration::from_secs(10), "{ended:?}");
        assert!(ended.error.contains("lost") || ended.error.contains("gone"), "{ended:?}");
    }
}

#[test]
fn the_node_is_killed_in_the_middle_of_reads() {
    for place in places() {
        let (node, address) = start_node(&place, "--memory=1GiB");
        let flags = "--num=20000 --reads=1000000000 --threads=2 --write_buffer_size=1MiB";
        let mut load = start(&format!("bench --benchmarks=fillrandom,compact,readrandom {flags} --memory={address}"));
        load.until(|out| out.contains("compact  "));
        load.pause(Duration::from_millis(300));
        node.signal(Signal::KILL);
        let killed = load.age();
        let ended = load.wait().expect(4);
        assert!(ended.took - killed < Duration::from_secs(10), "{ended:?}");
    }
}

/// Kills the node at a random moment of a load that writes, reads, scans and compacts.
fn kill_at_random(seed: u64) {
    let mut random = Random::seeded(seed);
    let workload = ["fillrandom", "overwrite", "fillrandom,readrandomwriterandom", "fillrandom,compact,seekrandom"];
    let workload = workload[random.below(workload.len() as u64) as usize];
    let place = places()[random.below(2) as usize].clone();
    let threads = 1 + random.below(3);
    println!("seed {seed}: {workload} with {threads} threads over {place}");
    let (node, address) = start_node(&place, "--memory=1GiB");
    let flags = "--num=3000000 --value_size=60 --write_buffer_size=256KiB --seek_nexts=10";
    let mut load = start(&format!("bench --benchmarks={workload} --threads={threads} {flags} --memory={address}"));
    load.until_open();
    load.pause(Duration::from_micros(random.below(1_500_000)));
    node.signal(Signal::KILL);
    let killed = load.age();
    let ended = load.wait().expect(4);
    assert!(ended.took - killed < Duration::from_secs(10), "{ended:?}");
}

#[test]
fn killed_at_random_moments() {
    (0..4).for_each(kill_at_random);
}

#[test]
#[ignore = "takes minutes: cargo xtask kill"]
fn killed_at_many_random_moments() {
    (100..160).for_each(kill_at_random);
}
