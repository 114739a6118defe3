use crate::Db;
use crate::terms::Options;
use crate::tree::buffer::Buffer;
use forebay_fabric::inprocess;
use forebay_memory_client::{ClientOptions, MemoryClient};
use forebay_memory_node::MemoryNode;
use forebay_memtable::KeyHash;
use std::sync::Arc;

#[test]
fn a_view_shows_what_the_number_beside_it_covers() {
    let (listener, connector) = inprocess::listen(1).unwrap();
    let _node = MemoryNode::start(Box::new(listener), forebay_memory_node::Options::with_memory(64 << 20)).unwrap();
    let client = MemoryClient::connect(connector.connect().unwrap(), "test", ClientOptions::default()).unwrap();
    let options = Options { write_buffer_bytes: 64 << 10, background_threads: 0, ..Options::default() };
    let db = Db::open(&[client], options).unwrap();
    let [shard] = db.shards() else { panic!("one shard") };
    db.put(b"key", b"old").unwrap();
    let mut rounds = 0;
    let (view, number) = shard.tree.present_with(|| {
        rounds += 1;
        if rounds == 1 {
            // Goes to the next memtable, which an earlier view does not show.
            shard.seal_active().unwrap();
            db.put(b"key", b"new").unwrap();
        }
    });
    let newest = |buffer: &Arc<Buffer>| {
        let found = buffer.memtable.get_hashed(b"key", KeyHash::of(b"key"), number).unwrap();
        found.map(|found| found.record.value.to_vec())
    };
    assert_eq!((view.buffers().find_map(newest), rounds), (Some(b"new".to_vec()), 2));
}
