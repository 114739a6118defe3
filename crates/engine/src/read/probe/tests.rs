use crate::{Db, Delegation, Options};
use forebay_fabric::inprocess;
use forebay_memory_client::{ClientOptions, MemoryClient};
use forebay_memory_node::MemoryNode;
use forebay_table::key_hash;

/// A table of this many keys has a longer index than the budget allows.
const MANY: u32 = 20_000;
const BUDGET: u64 = 64 << 10;

fn key(i: u32) -> [u8; 4] {
    i.to_be_bytes()
}

#[test]
fn an_address_of_another_key_with_the_same_hash_hides_nothing() {
    let (listener, connector) = inprocess::listen(1).unwrap();
    let _node = MemoryNode::start(Box::new(listener), forebay_memory_node::Options::with_memory(256 << 20)).unwrap();
    let client = MemoryClient::connect(connector.connect().unwrap(), "test", ClientOptions::default()).unwrap();
    let options = Options {
        write_buffer_bytes: 4 << 20,
        cached_index_bytes: Some(BUDGET),
        delegation: Delegation::Never,
        level0_compaction_trigger: 20,
        background_threads: 0,
        settle_after: None,
        ..Options::default()
    };
    let db = Db::open(&[client], options).unwrap();
    // The indexes of the oldest and of the newest table are not held. That of the table between them is.
    (0..MANY).for_each(|i| db.put(&key(4 * i), b"oldest").unwrap());
    db.flush().unwrap();
    db.put(&key(2001), b"older").unwrap();
    db.delete_range(&key(2005), &key(2007)).unwrap();
    db.flush().unwrap();
    (0..MANY).for_each(|i| db.put(&key(4 * i + 3), b"other").unwrap());
    db.put(&key(2001), b"newest").unwrap();
    db.put(&key(2006), b"newest").unwrap();
    db.flush().unwrap();
    let [shard] = db.shards() else { panic!("one shard") };
    let view = shard.tree.view.load();
    let tables = view.version.levels().first().unwrap();
    assert_eq!(tables.iter().map(|table| table.has_places()).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(db.get(&key(2000)).unwrap().unwrap(), b"oldest");
    let number = shard.tree.publication.published();
    let tables = tables.iter().map(|table| &**table);
    let address = shard.tree.learnt.find(key_hash(&key(2000)), number, tables).unwrap();
    // The table in between has an older record of the one key, and a range deletion over the other.
    for wanted in [2001, 2006] {
        let mislead = || shard.tree.learnt.learn(key_hash(&key(wanted)), address);
        mislead();
        assert_eq!(db.get(&key(wanted)).unwrap().unwrap(), b"newest", "key {wanted}");
        mislead();
        assert_eq!(db.multi_get(&[&key(wanted)]).unwrap(), [Some(b"newest".to_vec())], "key {wanted}");
    }
}
