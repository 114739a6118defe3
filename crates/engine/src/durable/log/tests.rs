//! The network fails while the log is written, and what failed may still have its effect.

use super::*;
use crate::Db;
use crate::terms::{Durability, Options, WriteOptions};
use crate::work::shard::Shard;
use forebay_fabric::sim::{SimNetwork, SimOptions};
use forebay_memory_client::{ClientOptions, MemoryClient};
use forebay_memory_node::MemoryNode;
use forebay_storage::{Storage, StorageOptions};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const NODE: u32 = 1;
const OTHER_NODE: u32 = 2;
pub(crate) const TIMEOUT: Duration = Duration::from_millis(50);
pub(crate) const VALUE: [u8; 1000] = [7; 1000];
/// What a record with this value takes.
const RECORD_BYTES: u64 = 1024;
const UNSHIPPED: WriteOptions = WriteOptions { durability: Some(Durability::None) };

/// Memory nodes that waiting threads run, and that can be started again.
pub(crate) struct World {
    pub(crate) network: SimNetwork,
    nodes: Arc<Mutex<BTreeMap<u32, MemoryNode>>>,
}

impl World {
    /// With nodes from 1 to `nodes`.
    pub(crate) fn new(nodes: u32) -> Self {
        Self::with(SimNetwork::new(1, SimOptions::default()), nodes)
    }

    pub(crate) fn with(network: SimNetwork, nodes: u32) -> Self {
        let world = Self { network, nodes: Arc::default() };
        (1..=nodes).for_each(|node| world.start(node));
        world.before_steps(|| ());
        world
    }

    /// Does something whenever the nodes are about to do something.
    pub(crate) fn before_steps(&self, something: impl Fn() + Send + Sync + 'static) {
        let nodes = Arc::clone(&self.nodes);
        self.network.set_progress_hook(move || {
            let Ok(mut nodes) = nodes.try_lock() else { return };
            something();
            for node in nodes.values_mut() {
                // A node that has crashed serves nobody any more.
                let _ = node.step(Duration::ZERO);
            }
        });
    }

    /// Starts a node, empty.
    pub(crate) fn start(&self, node: u32) {
        lock(&self.nodes).insert(node, start_node(&self.network, node));
    }

    /// Starts a node again, empty.
    pub(crate) fn restart(&self, node: u32) {
        self.network.crash(node);
        self.start(node);
    }

    /// The numbers of the nodes.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        lock(&self.nodes).keys().copied().collect()
    }
}

/// Starts a memory node, empty.
fn start_node(network: &SimNetwork, node: u32) -> MemoryNode {
    let options = forebay_memory_node::Options::with_memory(64 << 20);
    let options = forebay_memory_node::Options { clock: network.clock(), ..options };
    MemoryNode::new(Box::new(network.listen(node).unwrap()), options).unwrap()
}

/// Memory nodes that waiting threads run.
pub(crate) fn start(nodes: &[u32]) -> SimNetwork {
    let network = SimNetwork::new(1, SimOptions::default());
    let nodes = nodes_of(&network, nodes);
    network.set_progress_hook(move || step(&nodes));
    network
}

pub(crate) fn nodes_of(network: &SimNetwork, nodes: &[u32]) -> Vec<Mutex<MemoryNode>> {
    nodes.iter().map(|node| Mutex::new(start_node(network, *node))).collect()
}

pub(crate) fn step(nodes: &[Mutex<MemoryNode>]) {
    for node in nodes {
        // What a node does may also wait.
        if let Ok(mut node) = node.try_lock() {
            // A node that has crashed serves nobody any more.
            let _ = node.step(Duration::ZERO);
        }
    }
}

pub(crate) fn connect(network: &SimNetwork, node: u32) -> Arc<MemoryClient> {
    let options = ClientOptions { timeout: TIMEOUT, renew: false, clock: network.clock(), ..ClientOptions::default() };
    MemoryClient::connect(network.connect(node).unwrap(), "owner", options).unwrap()
}

/// A database of one shard with a copy on each of these nodes, on one thread.
pub(crate) fn open(network: &SimNetwork, nodes: &[u32]) -> Db {
    let register = (nodes.len() > 1).then(|| Storage::open("memory:", StorageOptions::default()).unwrap());
    open_with(network, nodes, register)
}

/// The same with a register.
pub(crate) fn open_with(network: &SimNetwork, nodes: &[u32], register: Option<Storage>) -> Db {
    open_copies(network, nodes, nodes.len(), register)
}

/// The same with this many copies, if there are as many nodes.
pub(crate) fn open_copies(network: &SimNetwork, nodes: &[u32], copies: usize, register: Option<Storage>) -> Db {
    let clients: Vec<_> = nodes.iter().map(|node| connect(network, *node)).collect();
    let options = Options {
        name: Some("db".to_owned()),
        durability: Durability::Memory { copies },
        register,
        write_buffer_bytes: 64 << 10,
        background_threads: 0,
        fabric_timeout: TIMEOUT,
        takeover: true,
        clock: network.clock(),
        ..Options::default()
    };
    Db::open(&clients, options).unwrap()
}

pub(crate) fn shard(db: &Db) -> (&Shard, &Log, &Commits) {
    let [shard] = db.shards() else { panic!("one shard") };
    let (log, commits) = shard.log_in_memory().unwrap();
    (shard, log, commits)
}

#[test]
fn memory_that_a_late_call_may_zero_is_not_used_again() {
    let network = start(&[NODE]);
    let db = open(&network, &[NODE]);
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
fn memory_that_a_late_call_may_pass_to_the_shard_is_not_used_again() {
    let network = SimNetwork::new(1, SimOptions::default());
    let nodes = nodes_of(&network, &[NODE]);
    let heals_at = Arc::new(AtomicU64::new(u64::MAX));
    let (partitioned, at) = (network.clone(), Arc::clone(&heals_at));
    network.set_progress_hook(move || {
        if partitioned.clock().now() >= at.load(Ordering::Relaxed) {
            partitioned.heal(NODE);
        }
        step(&nodes);
    });
    let db = open(&network, &[NODE]);
    let remote = shard(&db).0.tree.remote.pinned();
    let extent_bytes = remote.memory_node().client().extent_bytes();
    // In an extent that the shard has not adopted.
    let allocate =
        || remote.allocate(SegmentId(1 << 40), SegmentKind::MemtableBlock, extent_bytes, Purpose::Flush).unwrap();
    let place = |segment: &Arc<Segment>| segment.at(0).unwrap();
    let epoch = || remote.node_part().unwrap().shard().epoch();
    let first = epoch();

    // A call that gets no reply. The next one tells both sides whose the memory is, at an epoch that refuses the first.
    let segment = allocate();
    network.partition(NODE);
    // Once this call has timed out, and before another one does.
    heals_at.store(network.clock().now() + 3 * TIMEOUT.as_nanos() as u64 / 2, Ordering::Relaxed);
    remote.adopt(&[Arc::clone(&segment)]).unwrap();
    heals_at.store(u64::MAX, Ordering::Relaxed);
    assert!(epoch() > first && !segment.is_abandoned());
    let before = place(&segment);
    drop(segment);
    let segment = allocate();
    assert_eq!(place(&segment), before, "it is used again");

    // For this segment, nobody learns that.
    let other = allocate();
    network.partition(NODE);
    assert_eq!(remote.adopt(&[Arc::clone(&other)]).unwrap_err().kind(), ErrorKind::TimedOut);
    network.heal(NODE);
    assert!(other.is_abandoned() && !segment.is_abandoned());
    let before = place(&other);
    drop(other);
    assert_ne!(place(&allocate()), before);
    drop((segment, remote));
    drop(db);
    network.clear_progress_hook();
}

#[test]
fn a_part_that_a_lost_write_may_reach_is_not_written_again() {
    let network = start(&[NODE]);
    let db = open(&network, &[NODE]);
    let (shard, log, commits) = shard(&db);
    db.put(b"000", &VALUE).unwrap();
    while log.prepare(&shard.tree, commits).unwrap() {}
    let left = || {
        let shipping = lock(&log.shipping);
        shipping.open.as_ref().map(|open| room(open, shipping.at.used_bytes)).unwrap()
    };
    let mut keys = (1..).map(|number| format!("{number:03}").into_bytes());
    while left() >= 2 * RECORD_BYTES {
        db.put(&keys.next().unwrap(), &VALUE).unwrap();
    }
    let nearly_full = lock(&log.shipping).open.clone().unwrap();

    // What is shipped begins in this part and continues in the next one.
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
    let next = open(&network, &[NODE]);
    let behind = keys.next().unwrap();
    let expected: Vec<_> =
        (0..).map(|number| format!("{number:03}").into_bytes()).take_while(|key| *key != behind).collect();
    assert!(expected.len() > 10);
    assert!(expected.iter().all(|key| next.get(key).unwrap().as_deref() == Some(&VALUE[..])));
}

#[test]
fn memory_that_no_lost_write_may_reach_is_used_again() {
    let network = start(&[NODE, OTHER_NODE]);
    let db = open(&network, &[NODE, OTHER_NODE]);
    let (shard, log, commits) = shard(&db);
    db.put(b"before", &VALUE).unwrap();
    while log.prepare(&shard.tree, commits).unwrap() {}
    network.partition(OTHER_NODE);
    db.put(b"after", &VALUE).unwrap();
    assert_eq!(db.missing_copies(), 1);
    let part = lock(&log.shipping).open.clone().unwrap();
    let is_kept = |member| part.at_member(member).unwrap().is_abandoned();
    assert_eq!((is_kept(0), is_kept(1)), (false, true));
}

/// Keys of a few memtables.
pub(crate) fn keys() -> impl Iterator<Item = Vec<u8>> {
    (0..200).map(|number| format!("{number:03}").into_bytes())
}

pub(crate) fn all_there(db: &Db) -> bool {
    keys().all(|key| db.get(&key).unwrap().as_deref() == Some(&VALUE[..]))
}

#[test]
fn a_flush_leaves_records_where_the_log_has_them() {
    let network = start(&[NODE, OTHER_NODE]);
    let db = open(&network, &[NODE, OTHER_NODE]);
    let tree = &shard(&db).0.tree;
    for half in 0..2 {
        keys().skip(100 * half).take(100).for_each(|key| db.put(&key, &VALUE).unwrap());
        db.flush().unwrap();
    }
    let statistics = db.statistics();
    let records = 200 * VALUE.len() as u64;
    assert!(statistics.log.bytes > records);
    // What is copied from one node to the other are indexes.
    assert!(statistics.replicated_bytes < records / 10, "{statistics:?}");
    // A part with records of two tables is in both, and the log needs the last one.
    let version = &tree.view.load().version.version;
    let named: Vec<_> = version.levels().iter().flatten().flat_map(|table| &table.properties.segments).collect();
    let parts = named.iter().map(|used| used.id).collect::<std::collections::BTreeSet<_>>();
    assert!(parts.len() < named.len());
    let open = version.log_parts().map(|part| part.segment).filter(|part| parts.contains(part)).count();
    assert_eq!(open, 1);
    assert!(all_there(&db));
}

#[test]
fn the_next_owner_finds_records_where_the_log_had_them() {
    let network = start(&[NODE]);
    let db = open(&network, &[NODE]);
    keys().take(150).for_each(|key| db.put(&key, &VALUE).unwrap());
    db.flush().unwrap();
    keys().skip(150).for_each(|key| db.put(&key, &VALUE).unwrap());
    // As after a kill.
    let next = open(&network, &[NODE]);
    assert!(all_there(&next));
    next.flush().unwrap();
    assert!(all_there(&next));
    // What nobody needs is freed.
    let before = next.statistics().remote_bytes;
    keys().for_each(|key| next.delete(&key).unwrap());
    next.compact_range(None, None).unwrap();
    let after = next.statistics().remote_bytes;
    assert!(after < before / 2, "{before} and {after} bytes");
}

#[test]
fn a_flush_writes_what_was_not_shipped() {
    let network = start(&[NODE]);
    let db = open(&network, &[NODE]);
    let tree = &shard(&db).0.tree;
    // Less than half of the first memtable is shipped, and none of the others.
    keys().enumerate().for_each(|(number, key)| {
        let options = if number == 3 { WriteOptions::default() } else { UNSHIPPED };
        db.put_with(&key, &VALUE, &options).unwrap();
    });
    db.flush().unwrap();
    let version = &tree.view.load().version.version;
    let parts: Vec<_> = version.log_parts().map(|part| part.segment).collect();
    let named = version.levels().iter().flatten().flat_map(|table| &table.properties.segments);
    assert!(named.clone().count() > 2 && named.clone().all(|used| !parts.contains(&used.id)));
    assert!(all_there(&db));
}
