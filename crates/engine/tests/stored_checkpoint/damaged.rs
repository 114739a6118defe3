//! Checkpoints that are damaged, unfinished, or of another build.

use super::{at, change, object_of, problems, segment_names, segments};
use crate::common::model::{Model, contents, key};
use crate::common::process::Process;
use crate::common::stored::{make_newer, of_objects, options};
use bytes::Bytes;
use forebay_base::ErrorKind;
use forebay_engine::{Db, Options, Storage, Syncing};
use forebay_storage::{MemoryObjects, ObjectFault, ObjectName, ObjectStorage, PutMode};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// A database whose first checkpoint names objects that the database no longer uses, and those objects.
fn with_old_checkpoint(objects: &MemoryObjects) -> (Model, Vec<ObjectName>) {
    let process = Process::with_empty_memory();
    let quiet = Options { background_threads: 0, ..options(&of_objects(&objects.handle()), Syncing::Sync) };
    let db = process.open(quiet);
    let mut model = Model::new();
    change(&db, &mut model, 1);
    db.create_checkpoint("one").unwrap();
    let old = segment_names(objects);
    change(&db, &mut model, 2);
    db.compact_range(None, None).unwrap();
    while db.run_background_step() {}
    db.close().unwrap();
    let storage = of_objects(&objects.handle());
    let alone = MemoryObjects::new();
    Db::back_up(&storage, "db", "one", &of_objects(&alone.handle())).unwrap();
    let of_checkpoint = segment_names(&alone);
    (model, old.into_iter().filter(|name| of_checkpoint.contains(name)).collect())
}

#[test]
fn a_backup_is_verified_by_its_checkpoints() {
    let (objects, other) = (MemoryObjects::new(), MemoryObjects::new());
    with_old_checkpoint(&objects);
    let (storage, backup) = (of_objects(&objects.handle()), of_objects(&other.handle()));
    Db::back_up(&storage, "db", "one", &backup).unwrap();
    assert_eq!(problems(&backup, "db"), (Vec::new(), 1));
    assert_eq!(problems(&storage, "db"), (Vec::new(), 1));
    // Each copy is as the object is.
    for name in segment_names(&other) {
        assert!(other.get(&name).unwrap() == objects.get(&name).unwrap(), "{name}");
    }
    let name = segment_names(&other).remove(0);
    let whole = other.get(&name).unwrap();
    other.flip(&name, 50, 1).unwrap();
    let (found, _) = problems(&backup, "db");
    assert!(found[0].starts_with(&format!("{name}: checkpoint \"one\"")), "{found:?}");
    other.delete(&name).unwrap();
    let (found, _) = problems(&backup, "db");
    assert!(found[0].starts_with(name.as_str()), "{found:?}");
    // It is copied again.
    assert_eq!(Db::back_up(&storage, "db", "one", &backup).unwrap().objects_copied, 1);
    assert!(other.get(&name).unwrap() == whole);
    assert_eq!(problems(&backup, "db"), (Vec::new(), 1));
    let marker = ObjectName::new("db/backup").unwrap();
    other.flip(&marker, 9, 1).unwrap();
    let (found, checkpoints) = problems(&backup, "db");
    assert!(found.len() == 1 && found[0].starts_with("db/backup: ") && checkpoints == 1, "{found:?}");
}

#[test]
fn what_only_a_checkpoint_names_is_verified_before_it_is_copied() {
    let objects = MemoryObjects::new();
    let (_, named) = with_old_checkpoint(&objects);
    let storage = of_objects(&objects.handle());
    assert!(!named.is_empty());
    for name in named {
        let whole = objects.get(&name).unwrap();
        for damage in ["block", "directory", "gone"] {
            match damage {
                "block" => objects.flip(&name, 50, 1).unwrap(),
                "directory" => objects.flip(&name, whole.len() - 20, 1).unwrap(),
                _ => objects.delete(&name).unwrap(),
            }
            let (found, _) = problems(&storage, "db");
            assert!(found[0].starts_with(&format!("{name}: checkpoint \"one\"")), "{damage}: {found:?}");
            let other = MemoryObjects::new();
            let backup = of_objects(&other.handle());
            let error = Db::back_up(&storage, "db", "one", &backup).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{damage}: {error}");
            assert!(error.to_string().contains(name.as_str()), "{damage}: {error}");
            assert!(!segment_names(&other).contains(&name), "{damage}");
            assert!(Db::stored_checkpoints(&backup, "db").unwrap().is_empty());
            objects.put(&name, whole.clone(), PutMode::Replace).unwrap();
        }
    }
    assert_eq!(problems(&storage, "db"), (Vec::new(), 1));
}

/// A checkpoint that cannot be read may name anything: nothing is deleted until it is dropped, and everything else
/// continues.
#[test]
fn a_damaged_checkpoint_is_no_damage_of_the_database() {
    let sound = MemoryObjects::new();
    let (model, _) = with_old_checkpoint(&sound);
    let name = object_of(&sound, "one");
    let bytes = sound.get(&name).unwrap();
    let mutations = [
        Bytes::new(),
        bytes.slice(..8),
        bytes.slice(..bytes.len() / 2),
        bytes.slice(..bytes.len() - 1),
        Bytes::from([&bytes[..], b"more"].concat()),
        vec![0; bytes.len()].into(),
        Bytes::from([&bytes[..bytes.len() - 1], &[bytes[bytes.len() - 1] ^ 1]].concat()),
        Bytes::from([&[bytes[0] ^ 1], &bytes[1..]].concat()),
    ];
    for (number, mutation) in mutations.into_iter().enumerate() {
        let (objects, mut model) = (sound.duplicate(), model.clone());
        let storage = of_objects(&objects.handle());
        objects.put(&name, mutation, PutMode::Replace).unwrap();
        let (found, checkpoints) = problems(&storage, "db");
        assert!(found.len() == 1 && found[0].starts_with(&format!("{name}: ")), "{number}: {found:?}");
        assert_eq!(checkpoints, 0);
        let quiet = || Options { background_threads: 0, ..options(&storage, Syncing::Sync) };
        let process = Process::with_empty_memory();
        let db = process.open(quiet());
        assert_eq!(contents(&db), model);
        let before = segment_names(&objects);
        change(&db, &mut model, 3);
        db.compact_range(None, None).unwrap();
        while db.run_background_step() {}
        let after = segment_names(&objects);
        assert!(before.iter().all(|name| after.contains(name)), "{number}: something was deleted");
        db.create_checkpoint("two").unwrap();
        assert_eq!(db.checkpoints().unwrap(), ["one", "two"]);
        let backup = MemoryObjects::new();
        Db::back_up(&storage, "db", "two", &of_objects(&backup.handle())).unwrap();
        db.drop_checkpoint("one").unwrap();
        while db.run_background_step() {}
        // What it named goes with it.
        assert!(segment_names(&objects).len() < after.len(), "{number}");
        assert_eq!(problems(&storage, "db"), (Vec::new(), 1), "{number}");
        assert_eq!(contents(&db), model);
        assert_eq!(at(&storage, "two").unwrap(), model);
        db.close().unwrap();
    }
}

/// The same for a backup. Nothing of the others is lost, and what the backup named is deleted once all that is left can
/// be read.
#[test]
fn a_damaged_backup_can_be_dropped() {
    let (objects, sound) = (MemoryObjects::new(), MemoryObjects::new());
    let storage = of_objects(&objects.handle());
    let process = Process::with_empty_memory();
    let db = process.open(options(&storage, Syncing::Sync));
    let (mut model, mut expected, mut held) = (Model::new(), BTreeMap::new(), BTreeMap::new());
    for (name, round) in [("one", 1), ("two", 2), ("three", 3)] {
        change(&db, &mut model, round);
        db.compact_range(None, None).unwrap();
        db.create_checkpoint(name).unwrap();
        let alone = MemoryObjects::new();
        Db::back_up(&storage, "db", name, &of_objects(&alone.handle())).unwrap();
        Db::back_up(&storage, "db", name, &of_objects(&sound.handle())).unwrap();
        held.insert(name, segment_names(&alone));
        expected.insert(name, model.clone());
    }
    process.kill(db);
    let damaged = object_of(&sound, "one");
    sound.put(&damaged, Bytes::from_static(b"damaged"), PutMode::Replace).unwrap();
    for first in ["one", "two"] {
        let objects = sound.duplicate();
        let backup = of_objects(&objects.handle());
        Db::drop_backup(&backup, "db", first).unwrap();
        let left = if first == "one" { "two" } else { "one" };
        if first == "two" {
            assert_eq!(segments(&objects, "db"), segments(&sound, "db"), "the damaged one may name them");
        }
        assert_eq!(at(&backup, "three").unwrap(), expected["three"]);
        Db::drop_backup(&backup, "db", left).unwrap();
        assert_eq!(segment_names(&objects), held["three"]);
        assert_eq!(at(&backup, "three").unwrap(), expected["three"]);
        assert_eq!(problems(&backup, "db"), (Vec::new(), 1));
    }
}

/// A backup of a newer build stays, and so does what others name while one is there.
#[test]
fn a_backup_of_a_newer_build_is_not_dropped() {
    let (objects, sound) = (MemoryObjects::new(), MemoryObjects::new());
    let storage = of_objects(&objects.handle());
    let process = Process::with_empty_memory();
    let db = process.open(options(&storage, Syncing::Sync));
    let mut model = Model::new();
    for (name, round) in [("one", 1), ("two", 2)] {
        change(&db, &mut model, round);
        db.create_checkpoint(name).unwrap();
        Db::back_up(&storage, "db", name, &of_objects(&sound.handle())).unwrap();
    }
    process.kill(db);
    make_newer(&sound, &object_of(&sound, "one"), None, forebay_base::checksum);
    let before = sound.list(None).unwrap();
    for name in ["one", "two"] {
        let dropped = Db::drop_backup(&of_objects(&sound.handle()), "db", name);
        assert_eq!(dropped.unwrap_err().kind(), ErrorKind::Unsupported, "{name}");
        assert_eq!(sound.list(None).unwrap(), before, "{name}");
    }
    assert_eq!(at(&of_objects(&sound.handle()), "two").unwrap(), model);
}

/// Commits say whether a checkpoint stays. A build that cannot read them begins no clone.
#[test]
fn no_clone_begins_where_a_newer_build_commits() {
    let objects = MemoryObjects::new();
    let storage = of_objects(&objects.handle());
    let process = Process::with_empty_memory();
    let db = process.open(options(&storage, Syncing::Sync));
    change(&db, &mut Model::new(), 1);
    db.create_checkpoint("one").unwrap();
    db.close().unwrap();
    let last = objects.list(Some(&ObjectName::new("db/commit").unwrap())).unwrap().pop().unwrap().name;
    make_newer(&objects, &last, None, forebay_base::envelope_checksum);
    let before = objects.list(None).unwrap();
    let cloned = Db::clone_checkpoint(&storage, "db", "one", "copy");
    assert_eq!(cloned.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(objects.list(None).unwrap(), before);
}

/// A database that is being made does not count yet: nobody opens it, and a process that makes it again begins anew.
#[test]
fn what_was_not_finished_is_not_opened() {
    let objects = MemoryObjects::new();
    let storage = of_objects(&objects.handle());
    let unfinished = |storage: &Storage| Options { unfinished: true, ..options(storage, Syncing::Flush) };
    let is_refused = |objects: &MemoryObjects| {
        let storage = of_objects(&objects.handle());
        let opened = Process::with_empty_memory().try_open(options(&storage, Syncing::Flush)).map(|_| ());
        let (found, _) = problems(&storage, "db");
        assert!(found.iter().any(|problem| problem.starts_with("db/commit: ")), "{found:?}");
        opened.unwrap_err().kind() == ErrorKind::Busy
    };
    // The process that makes the database ends at each step.
    for step in 0.. {
        let objects = MemoryObjects::new();
        let handle = objects.handle();
        handle.end_at(handle.steps() + step);
        let process = Process::with_empty_memory();
        let quiet = Options { background_threads: 0, ..unfinished(&of_objects(&handle)) };
        let made = process.try_open(quiet).and_then(|db| {
            (0..50).try_for_each(|number| db.put(&key(number), b"value"))?;
            let finished = db.finish();
            process.kill(db);
            finished
        });
        if made.is_ok() {
            assert!(step > 5);
            assert_eq!(problems(&of_objects(&objects.handle()), "db").0, [""; 0]);
            break;
        }
        if objects.list(None).unwrap().is_empty() {
            continue;
        }
        if problems(&of_objects(&objects.handle()), "db").0.is_empty() {
            // The process ended after the commit that says that all is there.
            let process = Process::with_empty_memory();
            let db = process.open(options(&of_objects(&objects.handle()), Syncing::Flush));
            assert_eq!(contents(&db).len(), 50, "step {step}");
            continue;
        }
        assert!(is_refused(&objects), "step {step}");
        let process = Process::with_empty_memory();
        let storage = of_objects(&objects.handle());
        let db = process.open(unfinished(&storage));
        assert_eq!(contents(&db), Model::new(), "step {step}");
        db.put(b"key", b"value").unwrap();
        db.finish().unwrap();
        db.close().unwrap();
        assert_eq!(problems(&storage, "db").0, [""; 0], "step {step}");
    }
    let [process, other] = [Process::with_empty_memory(), Process::with_empty_memory()];
    let first = process.open(unfinished(&storage));
    first.put(b"first", b"1").unwrap();
    first.flush().unwrap();
    assert!(is_refused(&objects));
    // Somebody else begins anew, and the first one cannot finish.
    let second = other.open(unfinished(&storage));
    second.put(b"second", b"2").unwrap();
    assert_eq!(first.finish().unwrap_err().kind(), ErrorKind::Fenced);
    assert!(is_refused(&objects));
    second.finish().unwrap();
    let expected = contents(&second);
    second.close().unwrap();
    process.kill(first);
    let process = Process::with_empty_memory();
    let db = process.open(options(&storage, Syncing::Flush));
    assert_eq!(expected.len(), 1);
    assert_eq!(contents(&db), expected);
    db.close().unwrap();
    // A whole database is not replaced.
    let again = Process::with_empty_memory().try_open(unfinished(&storage)).map(|_| ());
    assert_eq!(again.unwrap_err().kind(), ErrorKind::AlreadyExists);
}

/// A request whose maker got no reply arrives after the database was finished, and has no effect on it.
#[test]
fn what_arrives_late_does_not_make_a_whole_database_unfinished() {
    for step in 0.. {
        let objects = MemoryObjects::new();
        let handle = objects.handle();
        handle.fail_at(step, ObjectFault::Late(1000));
        let unfinished = |objects: &MemoryObjects| Options {
            unfinished: true,
            background_threads: 0,
            ..options(&of_objects(objects), Syncing::Flush)
        };
        let process = Process::with_empty_memory();
        let make = |objects: &MemoryObjects| {
            let db = process.try_open(Options { takeover: true, ..unfinished(objects) })?;
            db.put(b"key", b"made")?;
            db.finish()?;
            db.close()
        };
        let made = make(&handle);
        if made.is_err() {
            match make(&objects.handle()) {
                // It was finished all the same.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                again => again.unwrap(),
            }
        }
        let is_over = handle.steps() <= step;
        let storage = of_objects(&objects.handle());
        let process = Process::with_empty_memory();
        let db = process.open(options(&storage, Syncing::Sync));
        db.put(b"newer", b"data").unwrap();
        db.close().unwrap();
        (0..1000).for_each(|_| drop(objects.list(None).unwrap()));
        let process = Process::with_empty_memory();
        let db = process.open(options(&storage, Syncing::Sync));
        assert_eq!(contents(&db).len(), 2, "step {step}");
        db.close().unwrap();
        assert_eq!(problems(&storage, "db").0, [""; 0], "step {step}");
        if is_over {
            assert!(step > 5);
            break;
        }
    }
}

/// The note of an earlier build counts as it did.
#[test]
fn a_note_of_an_earlier_build_says_that_a_database_is_not_whole() {
    let storage = of_objects(&MemoryObjects::new());
    let process = Process::with_empty_memory();
    let db = process.open(options(&storage, Syncing::Sync));
    db.put(b"key", b"value").unwrap();
    db.close().unwrap();
    let note = ObjectName::new("db/unfinished").unwrap();
    storage.objects().put(&note, Bytes::new(), PutMode::Replace).unwrap();
    let opened = process.try_open(options(&storage, Syncing::Sync)).map(|_| ());
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::Busy);
    assert!(problems(&storage, "db").0.iter().any(|problem| problem.starts_with("db/unfinished: ")));
    let db = process.open(Options { unfinished: true, ..options(&storage, Syncing::Sync) });
    assert_eq!(contents(&db), Model::new());
    db.finish().unwrap();
    db.close().unwrap();
    assert_eq!(problems(&storage, "db").0, [""; 0]);
    process.open(options(&storage, Syncing::Sync)).close().unwrap();
}

/// A process that begins anew drops nothing that the first maker has finished meanwhile.
#[test]
fn a_database_that_is_finished_meanwhile_is_not_begun_anew() {
    for step in 0.. {
        let objects = MemoryObjects::new();
        let unfinished = |objects: &MemoryObjects| Options {
            unfinished: true,
            background_threads: 0,
            ..options(&of_objects(objects), Syncing::Flush)
        };
        let maker = Process::with_empty_memory();
        let db = maker.open(unfinished(&objects.handle()));
        db.put(b"key", b"made").unwrap();
        let handle = objects.handle();
        let finished = Arc::new(Mutex::new(None));
        let outcome = Arc::clone(&finished);
        handle.interrupt_at(step, move || *outcome.lock().unwrap() = Some(db.finish()));
        let process = Process::with_empty_memory();
        let begun = process.try_open(unfinished(&handle)).map(|_| ());
        let Some(finished) = finished.lock().unwrap().take() else { break };
        let storage = of_objects(&objects.handle());
        assert!(finished.is_err() || begun.is_err(), "step {step}: {finished:?} {begun:?}");
        if finished.is_ok() {
            let process = Process::with_empty_memory();
            let db = process.open(options(&storage, Syncing::Flush));
            assert_eq!(contents(&db).len(), 1, "step {step}: {begun:?}");
        }
    }
}
