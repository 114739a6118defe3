//! Nodes hang: their links are there, and nothing is answered.

use super::*;
use crate::durable::log::tests::{VALUE, nodes_of, open, shard, start, step};
use forebay_fabric::sim::{SimNetwork, SimOptions};
use forebay_table::SegmentKind;

const NODES: [u32; 2] = [1, 2];
const BYTES: u64 = 16 << 10;

/// What a flush has just made, where the shard is served.
fn made(tree: &Tree) -> Change {
    let segment = tree.remote.allocate(tree.next_segment(), SegmentKind::Run, BYTES, Purpose::Flush).unwrap();
    let mut change = Change { segments: vec![Arc::clone(&segment)], ..Change::default() };
    change.edit.added_segments = vec![(segment.id(), segment.info().clone())];
    change
}

fn active(tree: &Tree) -> Vec<usize> {
    tree.remote.active().map(|remote| remote.member()).collect()
}

#[test]
fn a_member_is_left_out_for_its_own_failure_only() {
    // Which node hangs, and which members are left then.
    for (hung, left) in [(0, vec![0, 1]), (1, vec![0])] {
        let network = start(&NODES);
        let db = open(&network, &NODES);
        let tree = &shard(&db).0.tree;
        let mut change = made(tree);
        network.partition(NODES[hung]);
        let copied = spread(tree, &mut change);
        assert_eq!(active(tree), left, "node {hung} hangs: {copied:?}");
        // What cannot be read is to be made again, elsewhere.
        assert_eq!(copied.is_err(), hung == 0);
        network.heal(NODES[hung]);
        spread(tree, &mut change).unwrap();
        db.put(b"a", &VALUE).unwrap();
        assert_eq!(active(tree), left, "node {hung} came back");
    }
}

#[test]
fn nobody_is_left_out_while_no_other_member_answers() {
    // Both hang for a while; one hangs, and the link to the other one is lost.
    for is_lost in [false, true] {
        let network = start(&NODES);
        let db = open(&network, &NODES);
        let tree = &shard(&db).0.tree;
        db.put(b"a", &VALUE).unwrap();
        db.flush().unwrap();
        network.partition(NODES[0]);
        match is_lost {
            true => network.crash(NODES[1]),
            false => network.partition(NODES[1]),
        }
        assert_eq!(db.get(b"a").unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(matches!(db.put(b"b", &VALUE).unwrap_err().kind(), ErrorKind::TimedOut | ErrorKind::Unavailable));
        let cause = Error::new(ErrorKind::TimedOut, "no reply");
        assert_eq!(tree.remote.leave_out(0, &cause).unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(active(tree), [0, 1]);

        // The one that comes back has everything.
        network.heal(NODES[0]);
        network.crash(NODES[1]);
        assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&VALUE[..]));
        db.put(b"c", &VALUE).unwrap();
        assert_eq!(active(tree), [0]);
    }
}

#[test]
fn another_member_serves_when_the_one_that_does_hangs() {
    let network = start(&NODES);
    let db = open(&network, &NODES);
    let tree = &shard(&db).0.tree;
    db.put(b"a", &VALUE).unwrap();
    db.flush().unwrap();
    network.partition(NODES[0]);
    assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&VALUE[..]));
    db.put(b"b", &VALUE).unwrap();
    assert_eq!(active(tree), [1]);
}

#[test]
fn members_may_change_while_another_one_is_asked_whether_it_answers() {
    let network = SimNetwork::new(1, SimOptions::default());
    let nodes = Arc::new(nodes_of(&network, &NODES));
    let served = Arc::clone(&nodes);
    network.set_progress_hook(move || step(&served));
    let db = Arc::new(open(&network, &NODES));
    db.put(b"a", &VALUE).unwrap();
    db.flush().unwrap();
    // Whoever waits for a node has members named meanwhile.
    let named = Arc::downgrade(&db);
    network.set_progress_hook(move || {
        step(&nodes);
        if let Some(db) = named.upgrade() {
            shard(&db).0.tree.remote.name_joined().unwrap();
        }
    });
    network.partition(NODES[0]);
    assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&VALUE[..]));
    assert_eq!(active(&shard(&db).0.tree), [1]);
}
