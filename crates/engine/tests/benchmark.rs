//! Notes that a database in storage is a benchmark's.

use crate::common::process::Process;
use crate::common::small_options;
use crate::common::stored::{of_objects, options};
use forebay_base::ErrorKind;
use forebay_engine::{Db, Storage, StoredDatabase, Syncing};
use forebay_storage::{MemoryObjects, ObjectName, ObjectStorage, PutMode};

/// The database, and the process that has it open.
fn opened(storage: &Storage) -> (Process, Db) {
    let process = Process::with_empty_memory();
    let db = process.open(options(storage, Syncing::Sync));
    (process, db)
}

fn note() -> ObjectName {
    ObjectName::new("db/bench").unwrap()
}

#[test]
fn a_database_is_a_benchmarks_until_somebody_else_opens_it() {
    let objects = MemoryObjects::new();
    let storage = of_objects(&objects);
    let is_benchmarks = || Db::is_benchmark_stored(&storage, "db");
    assert_eq!(is_benchmarks().unwrap_err().kind(), ErrorKind::NotFound);
    let (_process, db) = opened(&storage);
    assert!(!is_benchmarks().unwrap());
    db.note_benchmark().unwrap();
    db.put(b"key", b"value").unwrap();
    db.flush().unwrap();
    assert!(is_benchmarks().unwrap());
    db.close().unwrap();
    assert!(is_benchmarks().unwrap());
    // The note is a known part of the database, and what copies the database leaves it out.
    let report = StoredDatabase::new(&storage, "db").unwrap().verify(&mut |_| {}).unwrap();
    assert!(report.problems.is_empty() && report.notes.is_empty(), "{report:?}");
    // A process that opens the database may write what is worth keeping.
    let (_process, db) = opened(&storage);
    assert!(!is_benchmarks().unwrap());
    db.create_checkpoint("now").unwrap();
    db.note_benchmark().unwrap();
    db.close().unwrap();
    Db::clone_checkpoint(&storage, "db", "now", "clone").unwrap();
    assert!(!Db::is_benchmark_stored(&storage, "clone").unwrap());
    // A note says nothing of another database that has the name later.
    let bytes = storage.objects().get(&note()).unwrap();
    let other = of_objects(&MemoryObjects::new());
    let (process, db) = opened(&other);
    process.kill(db);
    other.objects().put(&note(), bytes, PutMode::Replace).unwrap();
    assert!(!Db::is_benchmark_stored(&other, "db").unwrap());
}

#[test]
fn the_note_goes_with_its_database() {
    let objects = MemoryObjects::new();
    let storage = of_objects(&objects);
    let (_process, db) = opened(&storage);
    db.note_benchmark().unwrap();
    db.close().unwrap();
    drop(db);
    Db::destroy_stored(&storage, &[], "db").unwrap();
    let left = objects.list(None).unwrap();
    assert!(left.iter().all(|object| object.name != note()), "{left:?}");
    let process = Process::with_empty_memory();
    let of_memory = process.open(small_options());
    assert_eq!(of_memory.note_benchmark().unwrap_err().kind(), ErrorKind::Invalid);
}
