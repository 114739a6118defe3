//! Trees that one process has, and another one wants.

use super::*;
use crate::{ListenOptions, MemoryNode, MemoryNodeOptions, listen};
use forebay_memory_node::Handle;
use forebay_proto::calls::CloseSession;

/// A memory node at an address of this machine.
struct Served {
    addresses: Vec<NodeAddress>,
    _nodes: Vec<Handle>,
    _folder: tempfile::TempDir,
}

fn serve(nodes: usize) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let address = |at| NodeAddress::SharedMemory(folder.path().join(format!("node-{at}")));
    let addresses: Vec<_> = (0..nodes).map(address).collect();
    let start = |address: &NodeAddress| {
        let listener = listen(address, ListenOptions::default()).unwrap();
        MemoryNode::start(listener, MemoryNodeOptions::with_memory(64 << 20)).unwrap()
    };
    Served { _nodes: addresses.iter().map(start).collect(), addresses, _folder: folder }
}

impl Served {
    fn open(&self) -> Result<OwnedTree, Error> {
        OwnedTree::connect(&self.addresses, "shop", TreeOptions::default())
    }
}

#[test]
fn a_tree_has_one_owner_and_outlives_it() {
    let served = serve(2);
    let first = served.open().unwrap();
    first.client().unwrap().put(b"key", b"value").unwrap();
    first.check_owner().unwrap();
    let refused = served.open().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy);
    assert!(refused.to_string().contains("stop that process, or name another tree"), "{refused}");
    OwnedTree::connect(&served.addresses, "other", TreeOptions::default()).unwrap();
    assert_eq!(OwnedTree::destroy(&served.addresses, "shop").unwrap_err().kind(), ErrorKind::Busy);
    // The first process ends, or says that it does.
    drop(first);
    let second = served.open().unwrap();
    assert_eq!(second.client().unwrap().get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    second.close();
    assert!(second.client().unwrap().get(b"key").is_err() && second.failure().is_some());
    let third = served.open().unwrap();
    assert_eq!(third.client().unwrap().get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
}

/// The node takes the first owner for dead, and the owner does not know.
#[test]
fn who_has_lost_its_session_writes_nothing_into_the_tree_of_the_next_owner() {
    let served = serve(1);
    let first = served.open().unwrap();
    let mut sleeper = first.client().unwrap();
    sleeper.put(b"key", b"first").unwrap();
    let session = &first.sessions[0];
    session.call(&CloseSession { session: session.session() }).unwrap();
    let second = served.open().unwrap();
    second.client().unwrap().put(b"key", b"second").unwrap();
    assert_eq!(sleeper.put(b"key", b"late").unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(first.failure().unwrap().kind(), ErrorKind::Fenced);
    assert!(first.check_owner().is_err() && second.failure().is_none());
    assert_eq!(second.client().unwrap().get(b"key").unwrap().as_deref(), Some(&b"second"[..]));
}

#[test]
fn a_tree_that_was_begun_by_somebody_who_died_is_begun_again() {
    let served = serve(1);
    let options = TreeOptions::default();
    let session = sessions(&served.addresses, &options).unwrap().remove(0);
    // Builds what exists before a tree has its first node.
    let first = served.open().unwrap();
    let config = session.open_store("shop").unwrap().config().to_vec();
    drop(first);
    OwnedTree::destroy(&served.addresses, "shop").unwrap();
    let extent = session.lease(1, forebay_memory_client::Purpose::Flush).unwrap()[0];
    let mut config = config;
    config[8..12].copy_from_slice(&extent.0.to_le_bytes());
    session.create_store("shop", &config).unwrap().share(SHARD, &[extent]).unwrap();
    assert!(matches!(Tree::open(std::slice::from_ref(&session), "shop", options), Err(TreeError::Unfinished(_))));
    drop(session);
    served.open().unwrap().client().unwrap().put(b"key", b"value").unwrap();
}

#[test]
fn what_is_no_tree_is_refused_and_a_dropped_tree_is_gone() {
    let served = serve(1);
    let named = |name: &str| crate::Options { name: Some(name.to_owned()), ..crate::Options::default() };
    let database = crate::Store::connect_all(&served.addresses, named("shop")).unwrap();
    drop(database);
    assert_eq!(served.open().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(OwnedTree::destroy(&served.addresses, "shop").unwrap_err().kind(), ErrorKind::Invalid);
    crate::Store::destroy(&served.addresses, "shop").unwrap();
    assert_eq!(OwnedTree::destroy(&served.addresses, "shop").unwrap_err().kind(), ErrorKind::NotFound);
    let tree = served.open().unwrap();
    tree.client().unwrap().put(b"key", b"value").unwrap();
    drop(tree);
    OwnedTree::destroy(&served.addresses, "shop").unwrap();
    assert_eq!(crate::Store::list(&served.addresses).unwrap(), Vec::<String>::new());
}

#[test]
fn a_tree_of_which_some_nodes_have_nothing_is_refused() {
    let served = serve(2);
    let on_one = || OwnedTree::connect(&served.addresses[..1], "shop", TreeOptions::default());
    on_one().unwrap().client().unwrap().put(b"key", b"value").unwrap();
    let other_first: Vec<_> = served.addresses.iter().rev().cloned().collect();
    let refused = OwnedTree::connect(&other_first, "shop", TreeOptions::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("only some of the nodes have the tree \"shop\""), "{refused}");
    assert_eq!(on_one().unwrap().client().unwrap().get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
}
