//! Stores over memory nodes that come and go.

use super::*;
use crate::{ListenOptions, MemoryNodeOptions, listen};
use forebay_engine::StorageOptions;
use forebay_env::{Clock, SystemClock};
use forebay_memory_node::{Handle, MemoryNode};
use std::time::Duration;

/// Memory nodes at addresses of this machine.
struct Nodes {
    addresses: Vec<NodeAddress>,
    running: Vec<Option<Handle>>,
    _folder: tempfile::TempDir,
}

impl Nodes {
    fn start(nodes: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let addresses =
            (0..nodes).map(|at| NodeAddress::SharedMemory(folder.path().join(format!("node-{at}")))).collect();
        let mut nodes = Self { addresses, running: (0..nodes).map(|_| None).collect(), _folder: folder };
        (0..nodes.running.len()).for_each(|at| nodes.start_one(at));
        nodes
    }

    fn start_one(&mut self, at: usize) {
        let listener = listen(&self.addresses[at], ListenOptions::default()).unwrap();
        self.running[at] = Some(MemoryNode::start(listener, MemoryNodeOptions::with_memory(64 << 20)).unwrap());
    }

    fn stop_one(&mut self, at: usize) {
        self.running[at] = None;
    }
}

fn register() -> Storage {
    Storage::open("memory:", StorageOptions::default()).unwrap()
}

fn options(register: Option<&Storage>) -> Options {
    let (name, durability) = (Some("db".to_owned()), Durability::Memory { copies: 2 });
    Options { name, durability, register: register.cloned(), write_buffer_bytes: 64 << 10, ..Options::default() }
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    for _ in 0..3000 {
        if is_so() {
            return;
        }
        clock.sleep(Duration::from_millis(10));
    }
    panic!("{what}: waited too long");
}

#[test]
fn nodes_that_are_started_again_are_used_again() {
    let mut nodes = Nodes::start(3);
    // One node is not running yet when the database is opened.
    nodes.stop_one(2);
    let register = register();
    let store = Store::connect_all(&nodes.addresses, options(Some(&register))).unwrap();
    let shown = |store: &Store| store.placed_statistics().iter().map(|(place, _)| *place).collect::<Vec<_>>();
    assert_eq!(shown(&store), [0, 1]);
    for lost in [0, 1, 2, 0] {
        store.put(b"key", &[lost as u8]).unwrap();
        nodes.stop_one(lost);
        for at in 0..3 {
            if nodes.running[at].is_none() {
                nodes.start_one(at);
            }
        }
        eventually("all nodes are there, and all copies", || shown(&store) == [0, 1, 2] && store.missing_copies() == 0);
        assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&[lost as u8][..]));
    }
    store.close().unwrap();
}

#[test]
fn a_database_is_found_with_its_copies() {
    let nodes = Nodes::start(2);
    assert!(Store::found_on(&nodes.addresses, "db").unwrap().is_none());
    drop(Store::connect_all(&nodes.addresses, options(None)).unwrap());
    let found = Store::found_on(&nodes.addresses, "db").unwrap().unwrap();
    assert_eq!((found.shards, found.durability), (1, Durability::Memory { copies: 2 }));
    // What was found opens it.
    let store = Store::connect_all(&nodes.addresses, Options { write_buffer_bytes: 64 << 10, ..found }).unwrap();
    assert_eq!(store.missing_copies(), 0);
}

/// Without copies, what was on a node that is gone is lost, and the other nodes still answer.
#[test]
fn nodes_that_answer_are_shown_beside_one_that_does_not() {
    let mut nodes = Nodes::start(3);
    let store = Store::connect_all(&nodes.addresses, Options { shards: 3, ..Options::default() }).unwrap();
    nodes.stop_one(1);
    let told: Vec<_> = store.placed_statistics().into_iter().map(|(place, told)| (place, told.is_ok())).collect();
    assert_eq!(told, [(0, true), (1, false), (2, true)]);
    assert!(store.node_statistics().is_err());
}

/// The owner has no copy at the node that is named first, and may need it when it loses another one.
#[test]
fn a_drop_that_is_refused_drops_nothing() {
    let (nodes, register) = (Nodes::start(3), register());
    let store = Store::connect_all(&nodes.addresses, options(Some(&register))).unwrap();
    let mut addresses = nodes.addresses.clone();
    addresses.rotate_right(1);
    assert_eq!(Store::destroy_copied(&register, &addresses, "db").unwrap_err().kind(), ErrorKind::Busy);
    for address in addresses {
        assert_eq!(Store::list(&[address]).unwrap(), ["db"]);
    }
    store.close().unwrap();
}

#[test]
fn dropping_says_which_nodes_may_hold_something_still() {
    for register in [Some(register()), None] {
        let mut nodes = Nodes::start(2);
        let store = Store::connect_all(&nodes.addresses, options(register.as_ref())).unwrap();
        store.put(b"key", b"value").unwrap();
        let dropped = |nodes: &Nodes| match &register {
            Some(register) => Store::destroy_copied(register, &nodes.addresses, "db"),
            None => Store::destroy(&nodes.addresses, "db"),
        };
        assert_eq!(dropped(&nodes).unwrap_err().kind(), ErrorKind::Busy);
        store.close().unwrap();
        drop(store);
        nodes.stop_one(1);
        let left = dropped(&nodes).unwrap_err();
        assert_eq!(left.kind(), ErrorKind::Unavailable);
        assert!(matches!(&left, Error::Left(text) if text.contains("node-1") && !text.contains("node-0")), "{left}");
        assert_eq!(Store::list(&nodes.addresses[..1]).unwrap(), Vec::<String>::new());
        nodes.start_one(1);
        // Where a register knows the database, there was something to drop until now.
        let again = dropped(&nodes);
        assert_eq!(again.is_ok(), register.is_some(), "{again:?}");
        assert_eq!(dropped(&nodes).unwrap_err().kind(), ErrorKind::NotFound);
        // No node is running.
        nodes.stop_one(0);
        nodes.stop_one(1);
        if register.is_none() {
            let nobody = dropped(&nodes).unwrap_err();
            assert!(!matches!(nobody, Error::Left(_)) && nobody.kind() == ErrorKind::Unavailable, "{nobody}");
        }
    }
}
