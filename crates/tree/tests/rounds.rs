//! A round of the stacks of free blocks waits for the readers.

use crate::alone;
use crate::common::{Nodes, small};
use forebay_tree::Tree;
use forebay_tree::planted::{Bug, plant};
use std::collections::BTreeSet;

/// The class of inner nodes.
const CLASS: u64 = 32;

/// Hands over a batch of blocks, tries to begin `rounds` rounds while the readers give this answer (the reading epoch
/// that ended, and the oldest in which anybody reads), and takes a batch. Returns whether blocks came back.
fn comes_back(nodes: &Nodes, readers: (u64, u64), rounds: usize) -> bool {
    let tree = Tree::create(&nodes.sessions(), "rounds", small()).unwrap().with_readers(readers);
    let mut client = tree.client().unwrap();
    // With a batch of lists, handing over takes no blocks from the stacks.
    client.stock_up().unwrap();
    client.take_batch(CLASS).unwrap();
    let before: BTreeSet<_> = tree.stock().into_iter().collect();
    client.give_batch(CLASS).unwrap();
    let kept: BTreeSet<_> = tree.stock().into_iter().collect();
    let given: BTreeSet<_> = before.difference(&kept).filter(|(class, _)| *class == CLASS).copied().collect();
    assert!(!given.is_empty());
    for _ in 0..rounds {
        client.begin_round().unwrap();
    }
    client.take_batch(CLASS).unwrap();
    let comes_back = tree.stock().iter().any(|block| given.contains(block));
    drop(client);
    tree.drop_tree().unwrap();
    comes_back
}

#[test]
fn what_somebody_may_read_is_not_used_again() {
    let _alone = alone();
    let nodes = Nodes::start(1, 64 << 20);
    // The first call notes the epoch that ends, and each further one begins a round. The blocks wait for two rounds.
    let passed = |rounds| comes_back(&nodes, (5, 6), rounds);
    assert_eq!([passed(0), passed(1), passed(2), passed(3)], [false, false, false, true]);
    // Somebody reads in the epoch that ended.
    let pinned = |rounds| comes_back(&nodes, (5, 5), rounds);
    assert_eq!([pinned(3), pinned(6)], [false, false]);
    plant(Some(Bug::AdvanceTooEarly));
    let found = pinned(3);
    plant(None);
    assert!(found, "the planted bug is not found");
}
