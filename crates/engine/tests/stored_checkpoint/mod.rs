//! Checkpoints in storage: that they stay as they were, and what is made of them.

mod damaged;
mod dropped;
mod kept;

use crate::common::model::{Model, contents, key};
use crate::common::process::Process;
use crate::common::stored::{of_objects, options};
use forebay_base::ErrorKind;
use forebay_engine::{Cell, Db, Error, Options, Storage, StoredDatabase, Syncing};
use forebay_storage::{MemoryObjects, ObjectName, ObjectStorage};
use std::collections::BTreeMap;

/// Sets some of the keys, and deletes others.
fn change(db: &Db, model: &mut Model, round: u8) {
    for number in 0..400 {
        let (key, value) = (key((number * 7 + u64::from(round)) % 2000), vec![round; 60]);
        if number % 5 == 0 {
            db.delete(&key).unwrap();
            model.remove(&key);
        } else {
            db.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
}

/// A database with a checkpoint of what it holds.
fn with_checkpoint(storage: &Storage, checkpoint: &str) -> (Process, Db, Model) {
    let process = Process::with_empty_memory();
    let db = process.open(options(storage, Syncing::Sync));
    let mut model = Model::new();
    change(&db, &mut model, 1);
    db.create_checkpoint(checkpoint).unwrap();
    (process, db, model)
}

/// What a checkpoint holds for a process that has only the storage.
fn at(storage: &Storage, checkpoint: &str) -> Result<Model, Error> {
    let process = Process::with_empty_memory();
    let clients = &process.clients;
    let db = Db::open_checkpoint(clients, options(storage, Syncing::Sync), checkpoint)?;
    let found = contents(&db);
    let some = found.keys().next_back().cloned().unwrap_or_default();
    assert_eq!(db.get(&some).unwrap().as_ref(), found.get(&some));
    assert_eq!(db.put(b"key", b"value").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(db.compact_range(None, None).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(db.create_checkpoint("other").unwrap_err().kind(), ErrorKind::Invalid);
    db.close().unwrap();
    Ok(found)
}

/// The object of a checkpoint.
fn object_of(objects: &MemoryObjects, checkpoint: &str) -> ObjectName {
    let listed = objects.list(None).unwrap();
    let start = format!("db/checkpoint/{checkpoint}=");
    let mut found = listed.into_iter().map(|object| object.name).filter(|name| name.as_str().starts_with(&start));
    let object = found.next().unwrap();
    assert_eq!(found.next(), None);
    object
}

fn segments(objects: &MemoryObjects, name: &str) -> usize {
    let listed = objects.list(None).unwrap();
    listed.iter().filter(|object| object.name.as_str().starts_with(&format!("{name}/segment/"))).count()
}

fn segment_names(objects: &MemoryObjects) -> Vec<ObjectName> {
    let listed = objects.list(Some(&ObjectName::new("db/segment").unwrap())).unwrap();
    listed.into_iter().map(|object| object.name).collect()
}

/// Ends the process at each operation of `work` on storage, until `work` gets through. Whatever is there afterwards is
/// what it should be. With `has_clone`, a clone shares what the first checkpoint names, and nothing else does.
fn dies_everywhere(has_clone: bool, work: impl Fn(&Db, &Storage, &Storage) -> Result<(), Error>) {
    let usual = |storage: &Storage| Options { background_threads: 0, ..options(storage, Syncing::Sync) };
    let objects = MemoryObjects::new();
    let (mut model, mut moments) = (Model::new(), BTreeMap::new());
    let process = Process::with_empty_memory();
    let db = process.open(usual(&of_objects(&objects.handle())));
    change(&db, &mut model, 1);
    db.create_checkpoint("one").unwrap();
    moments.insert("one".to_owned(), model.clone());
    change(&db, &mut model, 2);
    if has_clone {
        Db::clone_checkpoint(&of_objects(&objects.handle()), "db", "one", "copy").unwrap();
        db.compact_range(None, None).unwrap();
    }
    db.create_checkpoint("two").unwrap();
    moments.insert("two".to_owned(), model.clone());
    change(&db, &mut model, 3);
    moments.insert("new".to_owned(), model.clone());
    process.kill(db);

    for step in 0.. {
        let (objects, other) = (objects.duplicate(), MemoryObjects::new());
        let (handle, backup) = (objects.handle(), of_objects(&other.handle()));
        let process = Process::with_empty_memory();
        let db = process.open(usual(&of_objects(&handle)));
        // A flush that storage refuses would be tried again and again.
        db.flush().unwrap();
        while db.run_background_step() {}
        handle.end_at(handle.steps() + step);
        let done = work(&db, &of_objects(&handle), &backup);
        process.kill(db);

        let storage = of_objects(&objects.handle());
        let check = |storage: &Storage| {
            for name in Db::stored_checkpoints(storage, "db").unwrap() {
                assert_eq!(at(storage, &name).unwrap(), moments[&name], "{name} after step {step}");
            }
        };
        check(&storage);
        check(&backup);
        let process = Process::with_empty_memory();
        let db = process.open(usual(&storage));
        assert_eq!(contents(&db), model, "after step {step}");
        db.compact_range(None, None).unwrap();
        let made = Db::options_of_stored(&storage, "copy").is_ok();
        if made {
            let process = Process::with_empty_memory();
            let copy = process.open(Options { name: Some("copy".to_owned()), ..usual(&storage) });
            assert_eq!(contents(&copy), moments["one"], "after step {step}");
            process.kill(copy);
        }
        // The same call goes through now.
        if done.is_err() {
            match work(&db, &storage, &backup) {
                Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => {}
                again => again.unwrap(),
            }
        }
        check(&storage);
        check(&backup);
        db.close().unwrap();
        if done.is_ok() {
            assert!(step > 0);
            return;
        }
    }
}

/// What `verify` finds: the problems, and how many checkpoints it read.
fn problems(storage: &Storage, name: &str) -> (Vec<String>, u64) {
    let report = StoredDatabase::new(storage, name).unwrap().verify(&mut |_| ()).unwrap();
    let section = &report.sections[0];
    let at = section.columns.iter().position(|column| *column == "checkpoints").unwrap();
    let Cell::Number(checkpoints) = section.rows[0][at] else { panic!("{section:?}") };
    (report.problems.iter().map(|problem| format!("{}: {}", problem.object, problem.detail)).collect(), checkpoints)
}
