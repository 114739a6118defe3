//! The network fails while the log is written, and what failed may still have its effect.

use super::*;
use crate::Db;
use crate::terms::{Durability, Options, WriteOptions};
use crate::work::shard::Shard;
use forebay_fabric::sim::{SimNetwork, SimOptions};
use forebay_memory_client::{ClientOptions, MemoryClient};
use forebay_memory_node::MemoryNode;
use std::time::Duration;

const NODE: u32 = 1;
const VALUE: [u8; 1000] = [7; 1000];
const UNSHIPPED: WriteOptions = WriteOptions { durability: Some(Durability::None) };

/// A memory node that whoever waits runs.
fn start() -> SimNetwork {
    let network = SimNetwork::new(1, SimOptions::default());
    let options =
        forebay_memory_node::Options { clock: network.clock(), ..forebay_memory_node::Options::with_memory(64 << 20) };
    let node = Mutex::new(MemoryNode::new(Box::new(network.listen(NODE).unwrap()), options).unwrap());
    network.set_progress_hook(move || {
        // What the node does waits, too.
        if let Ok(mut node) = node.try_lock() {
            node.step(Duration::ZERO).unwrap();
        }
    });
    network
}

/// A database of one shard, on one thread.
fn open(network: &SimNetwork) -> Db {
    let timeout = Duration::from_millis(50);
    let options = ClientOptions { timeout, renew: false, clock: network.clock(), ..ClientOptions::default() };
    let client = MemoryClient::connect(network.connect(NODE).unwrap(), "owner", options).unwrap();
    let options = Options {
        name: Some("db".to_owned()),
        durability: Durability::Memory { copies: 1 },
        write_buffer_bytes: 64 << 10,
        background_threads: 0,
        fabric_timeout: timeout,
        takeover: true,
        clock: network.clock(),
        ..Options::default()
    };
    Db::open(&[client], options).unwrap()
}

fn shard(db: &Db) -> (&Shard, &Log, &Commits) {
    let [shard] = db.shards() else { panic!("one shard") };
    let (log, commits) = shard.log_in_memory().unwrap();
    (shard, log, commits)
}

#[test]
fn memory_that_a_late_call_may_zero_is_not_used_again() {
    let network = start();
    let db = open(&network);
    let remote = shard(&db).0.tree.remote.pinned();
    let allocate =
        || remote.allocate(SegmentId(1 << 40), SegmentKind::MemtableBlock, 16 << 10, Purpose::Flush).unwrap();
    let place = |segment: &Arc<Segment>| segment.at(0).unwrap();
    let zeroed = allocate();
    remote.zero(&zeroed).unwrap();
    let before = place(&zeroed);
    drop(zeroed);
    let segment = allocate();
    assert_eq!(place(&segment), before, "what is freed is used again");

    network.partition(NODE);
    assert_eq!(remote.zero(&segment).unwrap_err().kind(), ErrorKind::TimedOut);
    network.heal(NODE);
    drop(segment);
    assert_ne!(place(&allocate()), before);
}

#[test]
fn a_part_that_a_lost_write_may_reach_is_not_written_again() {
    let network = start();
    let db = open(&network);
    let (shard, log, commits) = shard(&db);
    db.put(b"000", &VALUE).unwrap();
    while log.prepare(&shard.tree, commits).unwrap() {}
    let left = || {
        let shipping = lock(&log.shipping);
        shipping.open.as_ref().map(|open| open.info().length - shipping.at.used_bytes).unwrap()
    };
    let mut keys = (1..).map(|number| format!("{number:03}").into_bytes());
    while left() > 2 * VALUE.len() as u64 {
        db.put(&keys.next().unwrap(), &VALUE).unwrap();
    }
    let nearly_full = lock(&log.shipping).open.clone().unwrap();

    // What is shipped begins in this part and goes on in the next one.
    network.partition(NODE);
    keys.by_ref().take(4).for_each(|key| db.put_with(&key, &VALUE, &UNSHIPPED).unwrap());
    let number = shard.tree.publication.published();
    assert_eq!(shard.make_durable(number).unwrap_err().kind(), ErrorKind::TimedOut);
    network.heal(NODE);
    let failed: Vec<_> = lock(&log.shipping).closed.iter().map(|(part, _)| Arc::clone(part)).collect();
    assert!(failed.len() == 2 && Arc::ptr_eq(&failed[0], &nearly_full));
    assert!(failed.iter().all(|part| part.is_abandoned()));

    shard.make_durable(number).unwrap();
    let open_part = lock(&log.shipping).open.clone().unwrap();
    assert!(!failed.iter().any(|part| Arc::ptr_eq(part, &open_part)) && !open_part.is_abandoned());

    // As after a kill.
    let next = open(&network);
    let behind = keys.next().unwrap();
    let expected: Vec<_> =
        (0..).map(|number| format!("{number:03}").into_bytes()).take_while(|key| *key != behind).collect();
    assert!(expected.len() > 10);
    assert!(expected.iter().all(|key| next.get(key).unwrap().as_deref() == Some(&VALUE[..])));
}
