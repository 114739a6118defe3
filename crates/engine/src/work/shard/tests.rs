//! Shards that are closed while others use them, numbers of batches that fail, writers that meet a reserve, and flushes
//! to a full node.

use crate::Db;
use crate::terms::options::FlushOrder;
use crate::terms::{CompactionPlace, Durability, Error, Options, Syncing, WriteOptions};
use crate::tree::version::Change;
use crate::write::batch::WriteBatch;
use crate::write::put::Fill;
use forebay_base::ErrorKind;
use forebay_base::record::MIN_RECORD_BYTES;
use forebay_env::ManualClock;
use forebay_fabric::inprocess;
use forebay_memory_client::{ClientOptions, MemoryClient, Purpose};
use forebay_memory_node::MemoryNode;
use forebay_memtable::Reserved;
use forebay_proto::ranges::GRANULARITY_BYTES;
use forebay_storage::{MemoryObjects, ObjectFault, ObjectStorage, Storage, StorageOptions};
use forebay_table::SegmentKind;
use std::sync::Arc;
use std::time::Duration;

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

/// A batch that crosses shards gets its numbers in one shard before it learns that there is no memory in the next one.
#[test]
fn numbers_of_a_batch_that_another_shard_has_no_memory_for_hold_nobody_up() {
    let (listener, connector) = inprocess::listen(1).unwrap();
    let _node = MemoryNode::start(Box::new(listener), forebay_memory_node::Options::with_memory(64 << 20)).unwrap();
    let client = MemoryClient::connect(connector.connect().unwrap(), "owner", ClientOptions::default()).unwrap();
    let db = Db::open(&[client], Options::default()).unwrap();
    let [shard] = db.shards() else { panic!("one shard") };
    let before = shard.tree.publication.published();
    let mut batch = WriteBatch::new();
    batch.put(b"a", b"").put(b"b", b"");
    let no_memory = || Error::new(ErrorKind::Io, "no memory");
    let placed = shard.place(&batch, &mut |_, _| Err(no_memory()));
    assert_eq!(placed.unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(shard.tree.publication.published().0, before.0 + 2, "a later writer would wait for ever");
    db.put(b"c", b"").unwrap();
    let found = [b"a", b"b", b"c"].map(|key| db.get(key).unwrap().is_some());
    assert_eq!(found, [false, false, true]);
    db.flush().unwrap();
}

/// What is acknowledged before the last flush begins is in a table afterwards, and then nothing is acknowledged.
#[test]
fn nobody_writes_after_the_last_flush_has_begun() {
    let (listener, connector) = inprocess::listen(1).unwrap();
    let _node = MemoryNode::start(Box::new(listener), forebay_memory_node::Options::with_memory(64 << 20)).unwrap();
    let client = MemoryClient::connect(connector.connect().unwrap(), "owner", ClientOptions::default()).unwrap();
    let db = Db::open(&[client], Options { name: Some("db".to_owned()), ..Options::default() }).unwrap();
    let [shard] = db.shards() else { panic!("one shard") };
    let mut batch = WriteBatch::new();
    batch.put(b"b", b"");
    // A batch that crosses shards may have been let in before, and place its part only now.
    let refused = || {
        let placed = shard.place(&batch, &mut |_, _| Ok(Fill::Records)).map(|_| ());
        [placed, db.put(b"", b""), db.write(&batch)].map(|written| written.unwrap_err().kind())
    };
    db.put(b"a", b"").unwrap();
    let begun = shard.begin_leaving();
    assert_eq!(refused(), [ErrorKind::Closed; 3]);
    assert!(db.get(b"a").unwrap().is_some());
    shard.leave(begun).unwrap();
    assert_eq!(db.statistics().levels.iter().map(|level| level.entries).sum::<u64>(), 1);
    db.close().unwrap();
    assert_eq!(refused(), [ErrorKind::Closed; 3]);
    // Not even the shortest record fits into what a closed shard shows.
    let view = shard.tree.view.load();
    let reserved = view.active.memtable.reserve(1, MIN_RECORD_BYTES as u64).unwrap();
    assert!(matches!(reserved, Reserved::Full));
}

/// A view keeps the memory of its version, and a writer may wait long for a thread that decides about memory.
#[test]
fn a_writer_that_leaves_a_reserve_memtable_holds_no_view() {
    let (listener, connector) = inprocess::listen(1).unwrap();
    let _node = MemoryNode::start(Box::new(listener), forebay_memory_node::Options::with_memory(64 << 20)).unwrap();
    let client = MemoryClient::connect(connector.connect().unwrap(), "owner", ClientOptions::default()).unwrap();
    // Without background threads, only the writer can hold a view.
    let options = Options { write_buffer_bytes: 64 << 10, background_threads: 0, ..Options::default() };
    let db = Db::open(&[client], options).unwrap();
    let [shard] = db.shards() else { panic!("one shard") };
    let put = || db.put(b"b", b"").unwrap();
    let put_if_absent = || {
        let mut batch = WriteBatch::new();
        batch.require_absent(b"c").put(b"c", b"");
        db.write(&batch).unwrap();
    };
    let writers: [&(dyn Fn() + Sync); 2] = [&put, &put_if_absent];
    for write in writers {
        // A flush that ends later would change how many hold the memtable.
        db.flush().unwrap();
        db.put(b"a", b"").unwrap();
        let ended = Arc::clone(&shard.tree.view.load().active);
        let _ = ended.memtable.end_early();
        let (last, bytes) = (ended.memtable.wait_last_sequence(), ended.memtable.options().capacity_bytes as u64);
        assert!(shard.tree.install_next(&ended, last, bytes, true).unwrap());
        db.delete(b"a").unwrap();
        let reserve = Arc::clone(&shard.tree.view.load().active);
        let known = Arc::strong_count(&reserve);
        let view = Arc::downgrade(&shard.tree.view.load());
        let planner = shard.lock();
        forebay_env::thread::beside(write, || {
            // The writer keeps the memtable, and waits for the planner.
            while Arc::strong_count(&reserve) == known {
                std::thread::yield_now();
            }
            shard.tree.install(Arc::clone(&shard.tree.view.load().version), &[]);
            while view.strong_count() > 0 {
                shard.tree.view.reclaim();
                std::thread::yield_now();
            }
            drop(planner);
        });
        assert!(!shard.tree.view.load().active.is_reserve);
    }
    let found = [b"a", b"b", b"c"].map(|key| db.get(key).unwrap().is_some());
    assert_eq!(found, [false, true, true]);
}

/// Nothing else may free any memory.
#[test]
fn a_range_deletion_is_flushed_into_the_last_page() {
    for flush_order in [FlushOrder::AsWritten, FlushOrder::ByKey] {
        let (listener, connector) = inprocess::listen(1).unwrap();
        let _node = MemoryNode::start(Box::new(listener), forebay_memory_node::Options::with_memory(64 << 20)).unwrap();
        let client = MemoryClient::connect(connector.connect().unwrap(), "owner", ClientOptions::default()).unwrap();
        let options = Options {
            write_buffer_bytes: 64 << 10,
            background_threads: 0,
            compaction_place: CompactionPlace::ComputeNode,
            settle_after: None,
            flush_order,
            ..Options::default()
        };
        let db = Db::open(&[client], options).unwrap();
        let [shard] = db.shards() else { panic!("one shard") };
        db.put(b"a", &[7; 1000]).unwrap();
        db.compact_range(None, None).unwrap();
        let mut taken = Vec::new();
        for bytes in [1 << 20, GRANULARITY_BYTES] {
            let take = || {
                let id = shard.tree.next_segment();
                shard.tree.remote.allocate(id, SegmentKind::Run, bytes, Purpose::Collection)
            };
            taken.extend(std::iter::from_fn(|| take().ok()));
        }
        drop(taken.pop());
        db.delete_range(b"", b"b").unwrap();
        db.flush().unwrap();
        while db.run_background_step() {}
        let statistics = db.statistics();
        assert_eq!((statistics.hidden_tables, statistics.live_bytes), (1, 0), "{flush_order:?}: {statistics:?}");
        assert_eq!(db.get(b"a").unwrap(), None);
    }
}

/// Otherwise a shard that is not written to any more would keep the log, which other shards make longer.
#[test]
fn a_memtable_is_flushed_although_it_ended_without_a_next_writer() {
    let (listener, connector) = inprocess::listen(1).unwrap();
    let _node = MemoryNode::start(Box::new(listener), forebay_memory_node::Options::with_memory(64 << 20)).unwrap();
    let client = MemoryClient::connect(connector.connect().unwrap(), "owner", ClientOptions::default()).unwrap();
    let (clock, age) = (Arc::new(ManualClock::new()), Duration::from_secs(1));
    let options = Options {
        flush_after: Some(age),
        background_threads: 0,
        clock: Arc::<ManualClock>::clone(&clock),
        ..Options::default()
    };
    let db = Db::open(&[client], options).unwrap();
    let [shard] = db.shards() else { panic!("one shard") };
    db.put(b"a", b"").unwrap();
    // As a write does whose range deletions are the last ones that the memtable takes.
    let _ = shard.tree.view.load().active.memtable.end_early();
    let flushes = || {
        while db.run_background_step() {}
        db.statistics().flushes
    };
    assert_eq!(flushes(), 0);
    clock.advance(age);
    assert_eq!(flushes(), 1);
    assert!(db.get(b"a").unwrap().is_some());
}

/// Another commit may settle that the first one counts while its work is done again. Then the work does not fit.
#[test]
fn no_work_begins_while_it_is_unknown_whether_a_commit_counts() {
    let mut settled = 0;
    for step in 0..30 {
        let (listener, connector) = inprocess::listen(1).unwrap();
        let _node = MemoryNode::start(Box::new(listener), forebay_memory_node::Options::with_memory(64 << 20)).unwrap();
        let client = MemoryClient::connect(connector.connect().unwrap(), "owner", ClientOptions::default()).unwrap();
        let objects = MemoryObjects::new();
        let storage = Storage::of_objects(Arc::new(objects.clone()), StorageOptions::default());
        let options = Options {
            name: Some("db".to_owned()),
            durability: Durability::Storage(Syncing::Flush),
            storage: Some(storage),
            background_threads: 0,
            ..Options::default()
        };
        let db = Db::open(&[client], options).unwrap();
        let [shard] = db.shards() else { panic!("one shard") };
        db.put(b"a", b"").unwrap();
        objects.fail_at(objects.steps() + step, ObjectFault::ReplyLost);
        if db.flush().is_ok() {
            continue;
        }
        let sealed = shard.tree.view.load().sealed.clone();
        let count = || objects.list(None).unwrap().len();
        let before = count();
        if shard.flush(&sealed).is_err_and(|error| error.kind() == ErrorKind::Busy) {
            assert_eq!(count(), before, "step {step}: it was flushed again");
            let view = Arc::clone(&shard.tree.view.load());
            assert_eq!((view.sealed.len(), view.version.level0_tables()), (0, 1), "step {step}");
            // Another thread may have settled it, after the same work was chosen again.
            let again = shard.flush(&sealed).unwrap_err();
            assert_eq!((again.kind(), count()), (ErrorKind::Busy, before), "step {step}: {again}");
            settled += 1;
        }
        assert!(db.get(b"a").unwrap().is_some(), "step {step}");
    }
    assert!(settled > 0);
}
