//! Shards that are closed while others use them.

use crate::Db;
use crate::terms::{Durability, Options, Syncing, WriteOptions};
use crate::tree::version::Change;
use forebay_base::ErrorKind;
use forebay_fabric::inprocess;
use forebay_memory_client::{ClientOptions, MemoryClient};
use forebay_memory_node::MemoryNode;
use forebay_storage::{Storage, StorageOptions};

/// A thread that waits for a number when the shard is cleared, as [`Db::close`] does it, must not learn that it is
/// durable.
#[test]
fn what_a_closed_shard_dropped_is_not_acknowledged() {
    let storage = || Storage::open("memory:", StorageOptions::default()).unwrap();
    for (durability, storage) in
        [(Durability::Memory { copies: 1 }, None), (Durability::Storage(Syncing::Sync), Some(storage()))]
    {
        let (listener, connector) = inprocess::listen(1).unwrap();
        let node_options = forebay_memory_node::Options::with_memory(64 << 20);
        let _node = MemoryNode::start(Box::new(listener), node_options).unwrap();
        let client = MemoryClient::connect(connector.connect().unwrap(), "owner", ClientOptions::default()).unwrap();
        let options = Options { name: Some("db".to_owned()), durability, storage, ..Options::default() };
        let db = Db::open(&[client], options).unwrap();
        let [shard] = db.shards() else { panic!("one shard") };
        db.put(b"durable", b"").unwrap();
        let written = WriteOptions { durability: Some(Durability::None) };
        db.put_with(b"dropped", b"", &written).unwrap();
        let number = shard.tree.publication.published();
        shard.close();
        shard.clear();
        assert_eq!(shard.make_durable(number).unwrap_err().kind(), ErrorKind::Closed, "{durability:?}");
        // Nor does a version follow the empty one that it shows now.
        let committed = shard.commits.commit(&shard.tree, Change::default(), &[]);
        assert_eq!(committed.unwrap_err().kind(), ErrorKind::Closed, "{durability:?}");
    }
}
