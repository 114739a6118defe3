//! A client is stopped, or held up, before each of its verbs, and others continue: see
//! `common/cuts.rs`.

use crate::common::cuts::all_cuts;
use crate::common::{Nodes, SimNode};

fn seeds(count: u64) -> u64 {
    std::env::var("FOREBAY_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(count)
}

#[test]
fn others_go_on_wherever_a_client_stops() {
    let nodes = Nodes::start(1, 64 << 20);
    let mut cuts = 0;
    for seed in 0..seeds(30) {
        match all_cuts(&|| nodes.sessions(), seed) {
            Ok(count) => cuts += count,
            Err(what) => panic!("{what}"),
        }
    }
    println!("{cuts} verbs were cut");
    assert!(cuts > 100);
}

/// The same where lines of 8 or 64 bytes land in any order, and A's posted operations are still
/// under way.
#[test]
fn others_go_on_in_the_adversarial_fabric() {
    let mut cuts = 0;
    for seed in 0..seeds(8) {
        println!("seed {seed}");
        let node = SimNode::start(seed);
        match all_cuts(&|| node.sessions(), seed) {
            Ok(count) => cuts += count,
            Err(what) => panic!("{what}"),
        }
    }
    println!("{cuts} verbs were cut");
    assert!(cuts > 10);
}
