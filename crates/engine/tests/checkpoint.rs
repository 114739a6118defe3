//! Checkpoints are consistent while others write, equal after loading, and refused when damaged.

use crate::common::model::walk;
use crate::common::process::Process;
use crate::common::stored::{of_objects, options};
use crate::common::{Cluster, small_options};
use forebay_base::{ErrorKind, KeyOrder};
use forebay_engine::{Db, Options, OutputFile, Syncing, WriteBatch};
use forebay_env::Random;
use forebay_storage::{MemoryObjects, ObjectStorage};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("forebay-checkpoint-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn contents(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    walk(db.iter().unwrap())
}

#[test]
fn no_database_has_so_many_shards() {
    for shards in [0, Options::MAX_SHARDS + 1, 1 << 32, usize::MAX] {
        let refused = Db::checkpoint_layout("/nowhere", shards).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    }
}

#[test]
fn a_checkpoint_is_consistent_while_others_write() {
    let folder = Folder::new("consistent");
    let cluster = Cluster::start(128 << 20);
    let db = cluster.open(small_options());
    let pair = |i: u32| [format!("a{i:04}").into_bytes(), format!("b{i:04}").into_bytes()];
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    let writer = {
        let (db, stop) = (db.clone(), std::sync::Arc::clone(&stop));
        forebay_env::thread::spawn("writer", move || {
            let mut round = 0u32;
            while !stop.load(Ordering::Relaxed) {
                let [a, b] = pair(round % 500);
                let mut batch = WriteBatch::new();
                batch.put(&a, &round.to_le_bytes()).put(&b, &round.to_le_bytes());
                db.write(&batch).unwrap();
                round += 1;
            }
        })
        .unwrap()
    };
    for round in 0..5 {
        let file = folder.file(&format!("{round}"));
        let written = db.checkpoint(&file).unwrap();
        let loaded = cluster.open(small_options());
        assert_eq!(loaded.load(&file).unwrap(), written);
        assert_eq!(contents(&loaded).len() as u64, written.entries);
        for i in 0..500 {
            let [a, b] = pair(i).map(|key| loaded.get(&key).unwrap());
            assert_eq!(a, b, "half of a batch");
        }
    }
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    assert!(std::fs::read_dir(&folder.0).unwrap().all(|entry| entry.unwrap().path().extension().is_none()));
}

#[test]
fn what_is_loaded_is_what_was_there() {
    let folder = Folder::new("same");
    let cluster = Cluster::start(512 << 20);
    let options = Options { write_buffer_bytes: 4 << 20, target_table_bytes: 4 << 20, ..Options::default() };
    let db = cluster.open(options.clone());
    let mut random = Random::seeded(1);
    // More than one section, and entries longer than a block.
    for i in 0..900u32 {
        let mut value = vec![0; random.below(160 << 10) as usize];
        random.fill(&mut value);
        db.put(&i.to_be_bytes(), &value).unwrap();
    }
    db.put(b"", b"").unwrap();
    db.put(b"large", &vec![7; 1 << 20]).unwrap();
    db.delete(&5u32.to_be_bytes()).unwrap();
    let file = folder.file("db");
    let written = db.checkpoint(&file).unwrap();
    assert!(written.sections > 1, "{written:?}");
    let before = contents(&db);
    assert_eq!((written.entries, written.file_bytes), (before.len() as u64, std::fs::metadata(&file).unwrap().len()));
    db.close().unwrap();
    drop(db);
    let named = Options { name: Some("restored".to_owned()), ..options.clone() };
    let client = cluster.client();
    let restored = Db::restore(std::slice::from_ref(&client), named.clone(), &file).unwrap();
    assert!(contents(&restored) == before);
    assert_eq!(
        Db::restore(std::slice::from_ref(&client), named.clone(), &file).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    restored.close().unwrap();
    drop(restored);
    assert!(contents(&Db::open(&[client], named).unwrap()) == before);
    // With another key order, the database holds the same.
    let reverse = cluster.open(Options { key_order: KeyOrder::ReverseBytewise, ..options });
    reverse.load(&file).unwrap();
    let mut found = contents(&reverse);
    found.reverse();
    assert!(found == before);
}

/// Each of them fits into one write, and not both.
#[test]
fn long_values_are_loaded_where_extents_are_short() {
    let folder = Folder::new("short");
    let node = forebay_memory_node::Options::with_memory(64 << 20);
    let cluster = Cluster::start_with(forebay_memory_node::Options { extent_bytes: Some(512 << 10), ..node });
    let db = cluster.open(small_options());
    db.put(b"a", &vec![1; 40 << 10]).unwrap();
    db.put(b"b", &vec![2; 240 << 10]).unwrap();
    assert!(db.max_write_bytes() < 280 << 10);
    let file = folder.file("db");
    db.checkpoint(&file).unwrap();
    let loaded = cluster.open(small_options());
    assert_eq!(loaded.load(&file).unwrap().entries, 2);
    assert!(contents(&loaded) == contents(&db));
}

#[test]
fn an_empty_database_has_a_checkpoint() {
    let folder = Folder::new("empty");
    let cluster = Cluster::start(64 << 20);
    let db = cluster.open(small_options());
    let file = folder.file("db");
    assert_eq!(db.checkpoint(&file).unwrap().entries, 0);
    assert_eq!(db.load(&file).unwrap().sections, 0);
    assert_eq!(contents(&db), []);
    // A database that fails to load is dropped, so this is for new ones only.
    assert_eq!(db.load_whole(&file).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_damaged_checkpoint_is_refused() {
    let folder = Folder::new("damaged");
    let cluster = Cluster::start(64 << 20);
    let db = cluster.open(small_options());
    for i in 0..50u32 {
        db.put(&i.to_be_bytes(), b"value").unwrap();
    }
    let file = folder.file("db");
    db.checkpoint(&file).unwrap();
    assert_eq!(db.load(folder.file("none")).unwrap_err().kind(), ErrorKind::NotFound);
    let bytes = std::fs::read(&file).unwrap();
    let damaged = folder.file("damaged");
    let target = cluster.open(small_options());
    for length in 0..bytes.len() {
        std::fs::write(&damaged, &bytes[..length]).unwrap();
        assert_eq!(target.load(&damaged).unwrap_err().kind(), ErrorKind::Corrupt, "cut to {length} bytes");
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        std::fs::write(&damaged, &changed).unwrap();
        let error = target.load(&damaged).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}: {error}");
    }
    std::fs::write(&damaged, [&bytes[..], b"x"].concat()).unwrap();
    assert_eq!(target.load(&damaged).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(contents(&target), []);
    let named = Options { name: Some("db".to_owned()), ..small_options() };
    let client = cluster.client();
    assert!(Db::restore(std::slice::from_ref(&client), named, &damaged).is_err());
    assert!(Db::list(std::slice::from_ref(&client)).unwrap().is_empty());
}

/// What is written can be loaded.
#[test]
fn a_value_that_cannot_be_loaded_is_refused_by_its_key() {
    let folder = Folder::new("merged");
    let cluster = Cluster::start(4 << 30);
    let options = Options { merge_operator: Some("append".to_owned()), ..Options::default() };
    let db = cluster.open(Options { write_buffer_bytes: 8 << 20, ..options });
    let operand = vec![b'.'; 1 << 20];
    (0..64).for_each(|_| db.merge(b"long\xff", &operand).unwrap());
    let file = folder.file("db");
    db.checkpoint(&file).unwrap();
    db.load(&file).unwrap();
    db.merge(b"long\xff", b".").unwrap();
    assert_eq!(db.get(b"long\xff").unwrap().map(|value| value.len()), Some((64 << 20) + 1));
    let before = std::fs::metadata(&file).unwrap().len();
    let refused = db.checkpoint(&file).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("long\\xff"), "{refused}");
    // The previous file stays.
    assert_eq!(std::fs::metadata(&file).unwrap().len(), before);
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
}

#[test]
fn a_file_has_one_writer_at_a_time() {
    let folder = Folder::new("alone");
    let cluster = Cluster::start(64 << 20);
    let db = cluster.open(small_options());
    db.put(b"key", b"value").unwrap();
    let file = folder.file("db");
    let first = OutputFile::create(&file, "checkpoint").unwrap();
    let refused = db.checkpoint(&file).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
    db.checkpoint_to(first).unwrap();
    // What a killed process has left is no obstacle, even if it is longer.
    std::fs::write(folder.file("db.partial"), [1_u8; 1000]).unwrap();
    let written = db.checkpoint(&file).unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().len(), written.file_bytes);
    assert_eq!(db.load(&file).unwrap().entries, 1);
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
}

/// A name of 248 to 255 bytes leaves no room for an ending, and two of them may differ in their last byte alone.
#[test]
fn a_file_may_have_the_longest_name() {
    let folder = Folder::new("longest");
    let files = [("a", 247), ("a", 254), ("b", 254)];
    let files = files.map(|(last, before)| folder.file(&format!("{}{last}", "n".repeat(before))));
    let begun = files.each_ref().map(|file| OutputFile::create(file, "checkpoint").unwrap());
    assert_eq!(OutputFile::create(&files[1], "checkpoint").unwrap_err().kind(), ErrorKind::Busy);
    begun.into_iter().for_each(|file| file.finish().unwrap());
    assert!(files.iter().all(|file| file.is_file()));
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), files.len());
}

/// What has become whole or was given up is not removed again: another process may write under its earlier name.
#[test]
fn a_file_that_has_ended_leaves_alone_what_another_process_begins() {
    let folder = Folder::new("ended");
    let file = folder.file("db");
    for is_whole in [true, false] {
        let first = OutputFile::create(&file, "checkpoint").unwrap();
        let partial = first.partial().unwrap().clone();
        if is_whole {
            first.finish().unwrap();
        } else {
            assert!(first.abandon().is_some());
        }
        let second = OutputFile::create(&file, "checkpoint").unwrap();
        assert_eq!(partial.remove(), None);
        second.finish().unwrap();
    }
    // Nor does it get the name.
    let first = OutputFile::create(&file, "checkpoint").unwrap();
    assert!(first.partial().unwrap().remove().is_some());
    let second = OutputFile::create(&file, "checkpoint").unwrap();
    assert_eq!(first.finish().unwrap_err().kind(), ErrorKind::NotFound);
    second.finish().unwrap();
}

#[test]
fn a_checkpoint_names_the_merge_operator() {
    let folder = Folder::new("operator");
    let cluster = Cluster::start(64 << 20);
    for operator in [Some("append:,"), None] {
        let merge_operator = operator.map(str::to_owned);
        let db = cluster.open(Options { merge_operator: merge_operator.clone(), ..small_options() });
        assert_eq!(db.merge_operator(), operator);
        let file = folder.file("db");
        db.checkpoint(&file).unwrap();
        assert_eq!(Db::checkpoint_layout(&file, 1).unwrap().merge_operator, merge_operator);
    }
}

/// In storage, a restored database is there as a whole, or nobody can open it.
#[test]
fn a_restored_database_in_storage_is_whole() {
    let folder = Folder::new("stored");
    let cluster = Cluster::start(64 << 20);
    let db = cluster.open(small_options());
    // In two blocks, the second of which is damaged.
    (0..20u32).for_each(|i| db.put(&i.to_be_bytes(), &[i as u8; 20 << 10]).unwrap());
    let (file, damaged) = (folder.file("db"), folder.file("damaged"));
    db.checkpoint(&file).unwrap();
    let expected = contents(&db);
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[300 << 10] ^= 1;
    std::fs::write(&damaged, &bytes).unwrap();
    let stored = |objects: &MemoryObjects| options(&of_objects(objects), Syncing::Flush);
    let opened = |objects: &MemoryObjects| {
        let options = Options { create_if_missing: false, ..stored(&objects.handle()) };
        let process = Process::with_empty_memory();
        process.try_open(options).map(|db| contents(&db))
    };
    let restored = |objects: &MemoryObjects, file| {
        let process = Process::with_empty_memory();
        let options = Options { background_threads: 0, ..stored(&objects.handle()) };
        let restored = Db::restore(&process.clients, options, file).map(|db| contents(&db));
        process.lose_links();
        restored
    };
    let objects = MemoryObjects::new();
    assert_eq!(restored(&objects, &damaged).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(opened(&objects).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(restored(&objects, &file).unwrap() == expected);
    assert!(opened(&objects).unwrap() == expected);
    assert_eq!(restored(&objects, &file).unwrap_err().kind(), ErrorKind::AlreadyExists);
    // The process ends after each step.
    for step in 0.. {
        let objects = MemoryObjects::new();
        let handle = objects.handle();
        handle.end_at(handle.steps() + step);
        let process = Process::with_empty_memory();
        let quiet = Options { background_threads: 0, ..stored(&handle) };
        let made = Db::restore(&process.clients, quiet, &file).map(|db| process.kill(db));
        if made.is_ok() {
            assert!(step > 5);
            break;
        }
        let kind = if objects.list(None).unwrap().is_empty() { ErrorKind::NotFound } else { ErrorKind::Busy };
        match opened(&objects) {
            Err(error) => assert_eq!(error.kind(), kind, "step {step}"),
            // The process ended after the commit that says that all is there.
            Ok(found) => {
                assert!(found == expected, "step {step}");
                continue;
            }
        }
        assert!(restored(&objects, &file).unwrap() == expected, "step {step}");
        assert!(opened(&objects).unwrap() == expected, "step {step}");
    }
}

/// The same on memory nodes alone: a killed restore leaves nothing that anybody can open, and the next one begins anew.
#[test]
fn a_restored_database_in_memory_is_whole() {
    let folder = Folder::new("unfinished");
    let of_file = Cluster::start(64 << 20);
    let db = of_file.open(small_options());
    (0..500u32).for_each(|i| db.put(&i.to_be_bytes(), &[i as u8; 200]).unwrap());
    let file = folder.file("db");
    db.checkpoint(&file).unwrap();
    let expected = contents(&db);
    for nodes in [1, 2] {
        let clusters: Vec<_> = (0..nodes).map(|_| Cluster::start(64 << 20)).collect();
        let named = || Options { name: Some("db".to_owned()), shards: 2 * nodes, ..small_options() };
        let unfinished = || Options { unfinished: true, ..named() };
        let refused = |options| {
            let opened = Process::start(&clusters).try_open(options).map(drop);
            opened.unwrap_err().kind()
        };
        for is_flushed in [false, true] {
            let process = Process::start(&clusters);
            let db = process.open(unfinished());
            db.put(b"half", b"of it").unwrap();
            if is_flushed {
                db.flush().unwrap();
            }
            assert_eq!(refused(Options { takeover: true, ..named() }), ErrorKind::Busy);
            assert_eq!(refused(unfinished()), ErrorKind::Busy, "somebody restores it");
            process.kill(db);
            for create_if_missing in [false, true] {
                assert_eq!(refused(Options { create_if_missing, ..named() }), ErrorKind::Busy);
            }
        }
        let process = Process::start(&clusters);
        let restored = Db::restore(&process.clients, named(), &file).unwrap();
        assert!(contents(&restored) == expected, "{nodes}");
        restored.finish().unwrap();
        process.kill(restored);
        let process = Process::start(clusters.iter().rev());
        let db = process.open(Options { create_if_missing: false, ..named() });
        assert!(contents(&db) == expected, "{nodes}");
        assert_eq!(db.finish().unwrap_err().kind(), ErrorKind::Invalid);
        db.close().unwrap();
        assert_eq!(refused(unfinished()), ErrorKind::AlreadyExists);
        Db::destroy(&process.clients, "db").unwrap();
        assert!(Db::list(&process.clients).unwrap().is_empty());
        clusters.iter().for_each(Cluster::expect_nothing_leased);
    }
    let nameless = of_file.client();
    let opened = Db::open(&[nameless], Options { unfinished: true, ..small_options() });
    assert_eq!(opened.map(drop).unwrap_err().kind(), ErrorKind::Invalid);
}
