//! What is written while a node joins.

use super::*;
use crate::durable::log::tests::{VALUE, all_there, connect, keys, open, shard, start};
use crate::read::multi_get::{Source, values};
use crate::remote::pipeline::read_range;
use crate::terms::time::ReadTime;
use forebay_env::thread::set_turn;
use forebay_fabric::Traffic;
use forebay_fabric::sim::SimNetwork;
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes of all segments of the version, as a member has them.
fn segments_at(tree: &Tree, member: usize) -> BTreeMap<SegmentId, Vec<u8>> {
    let version = Arc::clone(&tree.view.load().version);
    let read = |segment: &Arc<Segment>| {
        let copy = segment.at_member(member).unwrap();
        let mut endpoint = copy.remote().background().unwrap();
        (segment.id(), read_range(&mut endpoint, copy.at(0).unwrap(), segment.info().length).unwrap())
    };
    version.segments().map(read).collect()
}

/// Parts of the log that are made while a node joins are written at the other members alone, until it has joined.
#[test]
fn a_node_has_what_was_written_while_it_joined() {
    // Whether parts are made ahead, before the last moment.
    for ahead in [false, true] {
        let nodes = [1, 2, 3];
        let network = start(&nodes);
        let db = open(&network, &nodes[..2]);
        db.add_memory_node(&connect(&network, nodes[2])).unwrap();
        let (shard, log, commits) = shard(&db);
        let tree = &shard.tree;
        let mut left = keys();
        let mut write = |some| left.by_ref().take(some).for_each(|key| db.put(&key, &VALUE).unwrap());
        write(40);
        network.partition(nodes[1]);
        write(1);
        assert_eq!(db.missing_copies(), 1);

        let (node, store, number) = tree.remote.candidate(2).unwrap();
        let member = Joining::begin(tree, &node, &store, number).unwrap();
        write(60);
        while ahead && log.prepare(tree, commits).unwrap() {}
        member.copy(tree, log).unwrap();
        write(40);
        db.flush().unwrap();
        write(19);
        member.join(tree, commits, log).unwrap();
        assert_eq!(db.missing_copies(), 0);
        let (one, other) = (segments_at(tree, 0), segments_at(tree, number));
        let differing: Vec<_> =
            one.iter().filter(|(id, bytes)| other.get(id) != Some(bytes)).map(|(id, _)| id).collect();
        assert!(differing.is_empty(), "{differing:?} of {}", one.len());

        // The other member is also lost.
        network.partition(nodes[0]);
        write(40);
        db.flush().unwrap();
        assert!(all_there(&db));
    }
}

/// Reads begin at a node when it becomes a member. A read of what the node has no copy of, because that was replaced
/// while it joined, goes elsewhere.
#[test]
fn a_node_that_joins_is_read_once_it_is_a_member() {
    let nodes = [1, 2, 3];
    let network = start(&nodes);
    let db = open(&network, &nodes[..2]);
    db.add_memory_node(&connect(&network, nodes[2])).unwrap();
    let (shard, log, commits) = shard(&db);
    let tree = &shard.tree;
    let written: Vec<_> = keys().take(100).collect();
    written.iter().for_each(|key| db.put(key, &VALUE).unwrap());
    db.flush().unwrap();
    let before = Source::of(tree, None).unwrap();
    db.compact_range(None, None).unwrap();
    network.crash(nodes[1]);
    db.put(&written[0], &VALUE).unwrap();
    assert_eq!(db.missing_copies(), 1);

    let (node, store, number) = tree.remote.candidate(2).unwrap();
    let member = Joining::begin(tree, &node, &store, number).unwrap();
    let reads = || node.link().counts(Traffic::Foreground).reads;
    let read = || {
        for turn in 0..4 {
            set_turn(turn);
            assert!(written.iter().all(|key| db.get(key).unwrap().as_deref() == Some(&VALUE[..])));
        }
    };
    member.copy(tree, log).unwrap();
    read();
    assert_eq!(reads(), 0, "it has everything, and is no member");
    let rest = |open: &[SegmentId]| member.copy_rest(tree, open);
    log.at_rest(|open| commits.admit(tree, number, || rest(open), |version| member.manifest(version))).unwrap();
    read();
    assert_eq!(reads(), 2 * (written.len() as u64 - 1), "half of all that tables hold");

    // What the version before named lies at the other member.
    assert!(before.view().version.segments().any(|segment| member.lacks(segment)));
    let wanted: Vec<_> = written.iter().skip(1).map(Vec::as_slice).collect();
    for turn in 0..2 {
        set_turn(turn);
        let time = ReadTime::Now(&tree.time);
        let found = values(std::slice::from_ref(&before), &wanted, |_| 0, usize::MAX, time).unwrap();
        assert!(found.iter().all(|found| found.as_deref() == Some(&VALUE[..])));
    }
    assert_eq!(tree.remote.active().count(), 2);
}

/// The member that is read hangs while another node joins: before the last moment, and in it. That node continues where
/// it was.
#[test]
fn a_node_joins_although_the_one_that_is_read_hung() {
    for in_the_last_moment in [false, true] {
        let nodes = [1, 2, 3];
        let network = start(&nodes);
        let db = open(&network, &nodes[..2]);
        db.add_memory_node(&connect(&network, nodes[2])).unwrap();
        let (shard, log, commits) = shard(&db);
        let tree = &shard.tree;
        let mut left = keys();
        let mut write = |some| left.by_ref().take(some).for_each(|key| db.put(&key, &VALUE).unwrap());
        write(40);
        db.flush().unwrap();
        network.crash(nodes[1]);
        write(1);
        assert_eq!(db.missing_copies(), 1);

        let (node, store, number) = tree.remote.candidate(2).unwrap();
        if in_the_last_moment {
            let member = Joining::begin(tree, &node, &store, number).unwrap();
            member.copy(tree, log).unwrap();
            let copied_last = |open: &[SegmentId]| {
                let rest = member.copy_rest(tree, open);
                network.partition(nodes[0]);
                rest
            };
            let joined = log
                .at_rest(|open| commits.admit(tree, number, || copied_last(open), |version| member.manifest(version)));
            assert!(matches!(joined, Err(NotHeld::Another(_))), "{joined:?}");
        } else {
            network.partition(nodes[0]);
            mend(tree, commits, log).unwrap_err();
        }
        assert_eq!(db.missing_copies(), 1);
        network.heal(nodes[0]);
        // The log continues where the node has got nothing of it.
        write(100);
        // A commit that got no reply may have counted.
        assert!((0..3).any(|_| mend(tree, commits, log).unwrap_or(false)));
        assert_eq!(db.missing_copies(), 0);
        assert!(segments_at(tree, 0) == segments_at(tree, number));

        network.crash(nodes[0]);
        write(59);
        assert!(all_there(&db));
    }
}

/// Lets a node hang until its session here has lapsed, while the other nodes' sessions live on.
fn hang_past_the_lease(network: &SimNetwork, node: u32, tree: &Tree) {
    network.partition(node);
    for _ in 0..4 {
        network.clock().sleep(Duration::from_secs(3));
        let others = tree.remote.active().map(|remote| remote.memory_node().client());
        others.filter(|client| client.node().node != node).for_each(|client| client.renew().unwrap());
    }
}

/// Nobody reads or writes meanwhile. The node comes back: its link exists, and its session does not.
#[test]
fn a_copy_behind_a_session_that_has_ended_is_made_again_by_another_session() {
    // Whether this process notices the end while the node hangs, or is told by the node.
    for notices in [false, true] {
        let nodes = [1, 2];
        let network = start(&nodes);
        let db = open(&network, &nodes);
        let tree = &shard(&db).0.tree;
        let mut left = keys();
        let mut write = |some| left.by_ref().take(some).for_each(|key| db.put(&key, &VALUE).unwrap());
        write(100);
        db.flush().unwrap();
        let second = Arc::clone(tree.remote.active().nth(1).unwrap());
        hang_past_the_lease(&network, nodes[1], tree);
        if notices {
            second.memory_node().client().renew().unwrap_err();
        }
        network.heal(nodes[1]);
        assert!(second.memory_node().link().is_alive());

        // The other node does not answer just now: then this is no takeover, and nobody is left out.
        network.partition(nodes[0]);
        tree.remote.check_owner().unwrap();
        assert_eq!(db.missing_copies(), 0);
        network.heal(nodes[0]);

        network.clock().sleep(Duration::from_secs(2));
        while db.run_background_step() && db.missing_copies() == 0 {}
        assert_eq!(db.missing_copies(), 1);

        db.add_memory_node(&connect(&network, nodes[1])).unwrap();
        while db.run_background_step() && db.missing_copies() > 0 {}
        assert_eq!(db.missing_copies(), 0);
        let number = tree.remote.active().last().unwrap().member();
        assert!(segments_at(tree, 0) == segments_at(tree, number));
        network.crash(nodes[0]);
        write(100);
        db.flush().unwrap();
        assert!(all_there(&db));
    }
}
