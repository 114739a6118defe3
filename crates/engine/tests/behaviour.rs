//! Behaviour that users rely on, beyond the model.

use crate::common::model::contents;
use crate::common::process::Process;
use crate::common::stored::{self, of_objects};
use crate::common::{Cluster, SetWhenDropped, copied, expect_remote_bytes, small_options};
use forebay_base::ErrorKind;
use forebay_engine::{CompactionStyle, Db, Durability, Options, Syncing, WriteBatch};
use forebay_fabric::{Listener, tcp};
use forebay_memory_client::{ClientOptions, MemoryClient};
use forebay_memory_node::MemoryNode;
use forebay_storage::MemoryObjects;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn limits_are_said_and_kept() {
    let cluster = Cluster::start(4 << 30);
    let db = cluster.open(small_options());
    let key = vec![7; 64 << 10];
    let value = vec![9; 64 << 20];
    db.put(&key, &value).unwrap();
    db.put(b"", b"").unwrap();
    assert_eq!(db.get(&key).unwrap().as_deref(), Some(&value[..]));
    db.flush().unwrap();
    assert_eq!(db.get(&key).unwrap().as_deref(), Some(&value[..]));
    assert_eq!(db.get(b"").unwrap().as_deref(), Some(&b""[..]));
    let error = db.put(&vec![7; (64 << 10) + 1], b"").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("65536"), "{error}");
    assert_eq!(db.put(b"k", &vec![0; (64 << 20) + 1]).unwrap_err().kind(), ErrorKind::Invalid);
    let mut batch = WriteBatch::new();
    for i in 0..5 {
        batch.put(&[i], &value);
    }
    assert_eq!(db.write(&batch).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(db.get(&[0]).unwrap(), None);
    db.write(&WriteBatch::new()).unwrap();
    assert!(forebay_engine::Db::open(&[cluster.client()], Options { levels: 1, ..small_options() }).is_err());
}

/// Wherever the database is stored, and whatever the iterator has brought, the error says that the database is closed.
#[test]
fn an_iterator_of_a_closed_database_ends_with_an_error() {
    let stored = || stored::options(&of_objects(&MemoryObjects::new()), Syncing::Flush);
    let cases: [&dyn Fn() -> Options; 5] = [
        &small_options,
        &|| Options { name: Some("db".to_owned()), ..small_options() },
        &stored,
        &|| Options { storage_from_level: Some(1), ..stored() },
        &|| copied::options(&copied::register(), 2),
    ];
    for options in cases {
        for forward in [true, false] {
            let options = Options { merge_operator: Some("append".to_owned()), ..options() };
            let what = format!("{:?}, {:?}, forward {forward}", options.durability, options.storage_from_level);
            let nodes = copied::start(2);
            let has_copies = matches!(options.durability, Durability::Memory { .. });
            let process = Process::start(if has_copies { &nodes } else { &nodes[..1] });
            let db = process.open(options.clone());
            for i in 0..2000 {
                let key = format!("{i:05}").into_bytes();
                if i % 7 == 0 { db.merge(&key, &[7; 100]) } else { db.put(&key, &[7; 100]) }.unwrap();
            }
            db.flush().unwrap();
            let mut iterator = db.iter().unwrap();
            if forward { iterator.seek_to_first() } else { iterator.seek_to_last() }.unwrap();
            db.close().unwrap();
            let failed = loop {
                if let Err(error) = if forward { iterator.next() } else { iterator.prev() } {
                    break error;
                }
                assert!(iterator.valid(), "{what}: it ended as if there were no more");
            };
            assert_eq!(failed.kind(), ErrorKind::Closed, "{what}: {failed}");
            assert_eq!(iterator.seek(b"00100").unwrap_err().kind(), ErrorKind::Closed, "{what}");
            drop((iterator, db));
            if options.name.is_some() {
                let db = process.open(options);
                assert_eq!(db.missing_copies(), 0, "{what}: a copy was left out for it");
                assert_eq!(contents(&db).len(), 2000, "{what}");
                db.close().unwrap();
            }
        }
    }
}

#[test]
fn the_longest_record_is_read_over_a_network() {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = tcp::listen(any, 1, tcp::Options::default()).unwrap();
    let address = listener.address();
    let _node = MemoryNode::start(Box::new(listener), forebay_memory_node::Options::with_memory(4 << 30)).unwrap();
    let link = tcp::connect(&address, tcp::Options::default()).unwrap();
    let client = MemoryClient::connect(link, "test", ClientOptions::default()).unwrap();
    let db = Db::open(&[client], small_options()).unwrap();
    let (key, value) = (vec![7; 64 << 10], vec![9; 64 << 20]);
    db.put(&key, &value).unwrap();
    db.compact_range(None, None).unwrap();
    assert!(db.get(&key).unwrap().unwrap() == value);
    assert!(db.multi_get(&[&key[..]]).unwrap().remove(0).unwrap() == value);
    let mut entries = db.iter().unwrap();
    entries.seek_to_first().unwrap();
    assert!(entries.valid() && entries.value() == value);
    drop(entries);
    db.close().unwrap();
}

#[test]
fn a_found_key_costs_one_round_trip_and_an_absent_one_none() {
    let cluster = Cluster::start(512 << 20);
    let db = cluster.open(Options::default());
    let key = |i: u32| format!("{i:020}").into_bytes();
    let count = 50_000;
    for i in 0..count {
        db.put(&key(i * 2), &[i as u8; 400]).unwrap();
    }
    db.compact_range(None, None).unwrap();
    let before = db.statistics().foreground;
    for i in 0..count {
        assert_eq!(db.get(&key(i * 2)).unwrap().unwrap(), [i as u8; 400]);
    }
    let found = db.statistics().foreground - before;
    assert!(found.round_trips as f64 <= 1.01 * f64::from(count), "{found:?}");
    assert!(found.bytes_read as f64 / f64::from(count) <= 1.1 * 420.0 + 16.0, "{found:?}");
    let before = db.statistics().foreground;
    for i in 0..count {
        assert_eq!(db.get(&key(i * 2 + 1)).unwrap(), None);
    }
    let absent = db.statistics().foreground - before;
    assert!(absent.round_trips as f64 <= 0.01 * f64::from(count), "{absent:?}");
    let statistics = db.statistics();
    assert!(statistics.cached_index_bytes <= 8 * u64::from(count), "{statistics:?}");
    expect_remote_bytes(&db, u64::from(count) * (420 * 11 / 10 + 48));
    let keys: Vec<Vec<u8>> = (0..64).map(|i| key(i * 2)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let before = db.statistics().foreground;
    assert!(db.multi_get(&keys).unwrap().iter().all(Option::is_some));
    assert!((db.statistics().foreground - before).round_trips <= 2);
}

#[test]
fn batches_are_atomic_and_writers_see_their_writes() {
    let cluster = Cluster::start(512 << 20);
    let db = cluster.open(small_options());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = SetWhenDropped(&done);
        let writers: Vec<_> = (0..3u8)
            .map(|writer| {
                let db = &db;
                scope.spawn(move || {
                    let mut batch = WriteBatch::new();
                    for i in 0..4000u32 {
                        batch.clear();
                        batch.put(&[writer, 0], &i.to_le_bytes()).put(&[writer, 1], &i.to_le_bytes());
                        batch.put(format!("{writer}-{i}").as_bytes(), &[0; 100]);
                        db.write(&batch).unwrap();
                        assert_eq!(db.get(&[writer, 1]).unwrap().unwrap(), i.to_le_bytes());
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for writer in 0..3u8 {
                    let pair = db.multi_get(&[&[writer, 0], &[writer, 1]]).unwrap();
                    assert_eq!(pair[0], pair[1]);
                    let snapshot = db.snapshot();
                    let first = db.get_at(&[writer, 0], &snapshot).unwrap();
                    assert_eq!(first, db.get_at(&[writer, 1], &snapshot).unwrap());
                }
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        drop(ends);
    });
    db.wait_for_compactions().unwrap();
    for writer in 0..3u8 {
        for i in 0..4000u32 {
            assert_eq!(db.get(format!("{writer}-{i}").as_bytes()).unwrap().unwrap(), [0; 100]);
        }
    }
}

#[test]
fn space_of_overwritten_records_comes_back() {
    let cluster = Cluster::start(512 << 20);
    let db = cluster.open(Options { write_buffer_bytes: 256 << 10, ..small_options() });
    let mut most = 0;
    for round in 0..40u32 {
        for i in 0..2000u32 {
            db.put(&i.to_be_bytes(), &[round as u8; 400]).unwrap();
        }
        most = most.max(db.statistics().remote_bytes);
    }
    db.wait_for_compactions().unwrap();
    // 0.9 MB live; 36 MB written. Writers may be ahead by 9 MB, the contents of level 0 when it stops them.
    assert!(most < 20 << 20, "at most {most} bytes");
    let statistics = db.statistics();
    assert!(statistics.remote_bytes < 4 << 20, "{statistics:?}");
    db.compact_range(None, None).unwrap();
    for i in 0..2000u32 {
        assert_eq!(db.get(&i.to_be_bytes()).unwrap().unwrap(), [39; 400]);
        db.delete(&i.to_be_bytes()).unwrap();
    }
    db.compact_range(None, None).unwrap();
    expect_remote_bytes(&db, 0);
    assert_eq!(db.statistics().live_bytes, 0);
}

#[test]
fn a_full_memory_node_is_an_answer() {
    let cluster = Cluster::start(32 << 20);
    let db = cluster.open(Options { write_buffer_bytes: 1 << 20, ..small_options() });
    let mut written = 0u32;
    let error = loop {
        match db.put(&written.to_be_bytes(), &[1; 1000]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100_000, "32 MiB never fill up");
    };
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert!(written > 5_000, "{written}");
    for i in (0..written).step_by(7) {
        assert_eq!(db.get(&i.to_be_bytes()).unwrap().unwrap(), [1; 1000]);
    }
    db.close().unwrap();
    let again = cluster.open(small_options());
    again.put(b"room", b"again").unwrap();
    again.flush().unwrap();
}

#[test]
fn a_lost_memory_node_is_an_error_within_seconds() {
    let mut cluster = Cluster::start(256 << 20);
    let db = cluster.open(small_options());
    for i in 0..2000u32 {
        db.put(&i.to_be_bytes(), &[1; 100]).unwrap();
    }
    db.flush().unwrap();
    cluster.stop();
    let error = db.get(&1u32.to_be_bytes()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let error = loop {
        if let Err(error) = db.put(b"key", &[1; 1000]) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(db.wait_for_compactions().unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(db.close().is_err());
}

#[test]
fn closing_gives_the_memory_back() {
    let cluster = Cluster::start(256 << 20);
    let client = cluster.client();
    let db = forebay_engine::Db::open(&[client], small_options()).unwrap();
    for i in 0..5000u32 {
        db.put(&i.to_be_bytes(), &[1; 100]).unwrap();
    }
    let snapshot = db.snapshot();
    let mut iterator = db.iter().unwrap();
    db.close().unwrap();
    assert_eq!(db.put(b"", b"").unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::Closed);
    assert!(iterator.seek_to_first().is_err());
    drop((db, snapshot, iterator));
    cluster.expect_nothing_leased();
}

#[test]
fn memtables_that_wait_are_flushed_into_one_table() {
    let cluster = Cluster::start(256 << 20);
    let options = Options {
        background_threads: 0,
        max_immutable_memtables: 8,
        target_table_bytes: 100 << 10,
        level0_compaction_trigger: 8,
        ..small_options()
    };
    let db = cluster.open(options);
    // After the first flush the available room is known.
    db.put(b"", b"").unwrap();
    db.flush().unwrap();
    // Five memtables: keys up to three times, and in between deletions of single keys and of a range.
    let put = |round: u32, keys: std::ops::Range<u32>| {
        keys.for_each(|i| db.put(&i.to_be_bytes(), &[round as u8; 100]).unwrap());
    };
    put(0, 0..230);
    let snapshot = db.snapshot();
    put(1, 0..230);
    (0..230).step_by(5).for_each(|i: u32| db.delete(&i.to_be_bytes()).unwrap());
    db.delete_range(&50u32.to_be_bytes(), &60u32.to_be_bytes()).unwrap();
    put(2, 100..230);
    assert_eq!(db.property("forebay.num-immutable-mem-table").unwrap(), "4");
    assert_eq!(db.statistics().flushes, 1);
    assert!(db.run_background_step());
    let flushed = db.statistics();
    assert_eq!((flushed.flushes, flushed.levels[0].tables), (2, 2));
    assert_eq!(db.property("forebay.num-immutable-mem-table").unwrap(), "0");
    let value = |i: u32| match i {
        100.. => Some([2u8; 100]),
        50..60 => None,
        _ if i.is_multiple_of(5) => None,
        _ => Some([1; 100]),
    };
    for i in 0..230u32 {
        assert_eq!(db.get(&i.to_be_bytes()).unwrap().as_deref(), value(i).as_ref().map(|value| &value[..]), "{i}");
        let then = db.get_at(&i.to_be_bytes(), &snapshot).unwrap();
        assert_eq!(then.as_deref(), Some(&[0u8; 100][..]), "{i} at the snapshot");
    }
}

/// The table is one run each time, so only its shadowed entries make it unfinished.
#[test]
fn a_requested_compaction_drops_what_only_a_released_snapshot_needed() {
    let cluster = Cluster::start(256 << 20);
    for compaction_style in [CompactionStyle::Clustered, CompactionStyle::Unclustered, CompactionStyle::Classic] {
        let db = cluster.open(Options { compaction_style, settle_after: None, ..small_options() });
        let put = |value: u8| (0..500u32).for_each(|i| db.put(&i.to_be_bytes(), &[value; 100]).unwrap());
        let entries = || db.statistics().levels.iter().map(|level| level.entries).sum::<u64>();
        put(1);
        db.compact_range(None, None).unwrap();
        let snapshot = db.snapshot();
        put(2);
        for _ in 0..2 {
            db.compact_range(None, None).unwrap();
            assert_eq!(entries(), 1000, "{compaction_style:?}: {:?}", db.statistics());
            assert_eq!(db.get_at(&7u32.to_be_bytes(), &snapshot).unwrap().unwrap(), [1; 100]);
        }
        drop(snapshot);
        db.compact_range(None, None).unwrap();
        assert_eq!(entries(), 500, "{compaction_style:?}: {:?}", db.statistics());
        assert_eq!(db.get(&7u32.to_be_bytes()).unwrap().unwrap(), [2; 100]);
    }
}
