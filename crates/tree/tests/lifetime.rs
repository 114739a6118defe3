//! Trees and processes begin and end.

use crate::common::{Nodes, small, word};
use forebay_base::ErrorKind;
use forebay_memory_client::{MemoryClient, Purpose, ShardId};
use forebay_proto::calls::CloseSession;
use forebay_tree::{Error, Range, Tree, TreeClient, TreeOptions, Verb};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn a_tree_that_cannot_be_created_leaves_nothing() {
    let nodes = Nodes::start(2, 64 << 20);
    let sessions = nodes.sessions();
    let allocated = || sessions[0].node_statistics().unwrap().allocated_bytes;
    let before = allocated();
    sessions[1].create_store("t", b"").unwrap();
    let refused = Tree::create(&sessions, "t", TreeOptions::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    assert!(sessions[0].open_store("t").is_err_and(|error| error.kind() == ErrorKind::NotFound));
    assert_eq!(allocated(), before);
    let tree = Tree::create(&sessions[..1], "t", TreeOptions::default()).unwrap();
    assert!(tree.client().unwrap().insert(&word(1), b"one").unwrap());
}

#[test]
fn a_tree_needs_extents_of_two_chunks() {
    let nodes = Nodes::with_extents(1, 4 << 20, 64 << 10);
    let refused = Tree::create(&nodes.sessions(), "tree", TreeOptions::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("131072 bytes at least"), "{refused}");
}

/// Fails to open and to create a tree, destroys it, and creates it.
fn destroy(sessions: &[Arc<MemoryClient>], name: &str, kind: ErrorKind) {
    assert_eq!(Tree::open(sessions, name, TreeOptions::default()).unwrap_err().kind(), kind);
    assert_eq!(Tree::create(sessions, name, TreeOptions::default()).unwrap_err().kind(), ErrorKind::AlreadyExists);
    Tree::destroy(sessions, name).unwrap();
    Tree::create(sessions, name, TreeOptions::default()).unwrap().drop_tree().unwrap();
    assert_eq!(Tree::destroy(sessions, name).unwrap_err().kind(), ErrorKind::NotFound);
}

/// A creator that died leaves a store at each of the first nodes, or a store at all nodes but no
/// superblock.
#[test]
fn a_tree_that_is_not_complete_is_destroyed() {
    let nodes = Nodes::start(2, 64 << 20);
    let sessions = nodes.sessions();
    nodes.create(TreeOptions::default());
    let stores: Vec<_> = sessions.iter().map(|session| session.open_store("tree").unwrap()).collect();
    for (session, store) in sessions.iter().zip(&stores) {
        let superblock = session.lease(1, Purpose::Flush).unwrap()[0];
        let config = [&store.config()[..8], &superblock.0.to_le_bytes()].concat();
        session.create_store("begun", &config).unwrap().share(ShardId(0), &[superblock]).unwrap();
    }
    destroy(&sessions, "begun", ErrorKind::Busy);
    sessions[1].drop_store(stores[1].id()).unwrap();
    destroy(&sessions, "tree", ErrorKind::NotFound);
    // Another store is left alone.
    sessions[1].create_store("other", b"").unwrap();
    assert_eq!(Tree::destroy(&sessions, "other").unwrap_err().kind(), ErrorKind::Invalid);
    sessions[1].open_store("other").unwrap();
}

#[test]
fn a_process_that_ends_keeps_no_blocks() {
    let nodes = Nodes::start(1, 64 << 20);
    let tree = nodes.create(TreeOptions::default());
    let mut client = tree.client().unwrap();
    for number in 0..200 {
        assert!(client.insert(&word(number), &[7; 40]).unwrap());
    }
    drop(client);
    assert!(tree.stock().len() <= 1, "{:?}", tree.stock());
}

/// The node revokes the keys before the client hears that its session ended.
#[test]
fn a_client_whose_session_ended_is_fenced_whatever_it_does() {
    type Operation = fn(&mut TreeClient) -> Result<(), Error>;
    let nodes = Nodes::start(1, 64 << 20);
    let mut writer = nodes.create(TreeOptions::default()).client().unwrap();
    assert!(writer.insert(&word(1), b"one").unwrap());
    let operations: [Operation; 4] = [
        |client| client.get(&word(1)).map(drop),
        |client| client.put(&word(1), b"two").map(drop),
        |client| client.scan(Range::all()).map(drop),
        TreeClient::reclaim,
    ];
    for operation in operations {
        let sessions = nodes.sessions();
        let tree = Tree::open(&sessions, "tree", TreeOptions::default()).unwrap();
        let mut client = tree.client().unwrap();
        operation(&mut client).unwrap();
        sessions[0].call(&CloseSession { session: sessions[0].session() }).unwrap();
        for _ in 0..2 {
            let error = operation(&mut client).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        }
    }
}

/// A client dies while it freezes the root. The load of another one completes that, and is refused.
#[test]
fn a_load_that_is_refused_gives_back_no_node_of_the_tree() {
    let nodes = Nodes::start(1, 64 << 20);
    let mut dying = nodes.create(small()).client().unwrap();
    let swaps = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&swaps);
    // Only an inner node has so many words to freeze, and the root is the first one that is full.
    dying
        .set_hook(Some(Box::new(move |verb| verb != Verb::CompareSwap || count.fetch_add(1, Ordering::Relaxed) < 100)));
    let mut keys = 0;
    while dying.insert(&word(keys), b"12345678").is_ok() {
        swaps.store(0, Ordering::Relaxed);
        keys += 1;
    }
    let tree = nodes.open();
    let mut client = tree.client().unwrap();
    assert_eq!(client.bulk_load([(b"a", b"b")]).unwrap_err().kind(), ErrorKind::Invalid);
    let reachable = client.reachable().unwrap();
    assert!(tree.stock().iter().all(|block| reachable.binary_search(block).is_err()), "the tree's nodes are free");
    // Inner nodes are made of what the load gave back.
    for number in keys..keys + 3_000 {
        assert!(client.insert(&word(number), b"12345678").unwrap());
    }
    let verified = client.verify().unwrap();
    assert!(verified.keys == keys + 3_000 && verified.inner_nodes > 3, "{verified:?}");
}

/// The next load is refused, and gives back only what it took itself.
#[test]
fn a_load_whose_input_panics_takes_nothing_from_later_writes() {
    let nodes = Nodes::start(1, 64 << 20);
    let mut client = nodes.create(TreeOptions::default()).client().unwrap();
    let input = std::iter::once((word(1), [7_u8; 40])).chain(std::iter::from_fn(|| panic!("by hand")));
    assert!(catch_unwind(AssertUnwindSafe(|| client.bulk_load(input))).is_err());
    assert!(client.insert(&word(2), &[8; 40]).unwrap());
    assert_eq!(client.bulk_load([(b"a", b"b")]).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(client.insert(&word(3), &[9; 40]).unwrap());
    assert_eq!(client.get(&word(2)).unwrap(), Some(vec![8; 40]));
}

#[test]
fn a_write_that_fails_before_its_value_is_there_keeps_no_block() {
    let nodes = Nodes::start(1, 64 << 20);
    let tree = nodes.create(TreeOptions::default());
    let mut client = tree.client().unwrap();
    assert!(client.insert(&word(1), &[7; 40]).unwrap());
    let before = tree.stock();
    client.set_hook(Some(Box::new(|verb| verb != Verb::Write)));
    assert_eq!(client.put(&word(1), &[8; 40]), Err(Error::Stopped));
    assert_eq!(tree.stock(), before);
}
