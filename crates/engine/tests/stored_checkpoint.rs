//! Checkpoints in storage: that they stay as they were, and what is made of them.

use crate::common::model::{Model, contents, key};
use crate::common::process::Process;
use crate::common::stored::{four_shards, make_newer, of_disk, of_objects, options};
use crate::common::{SetWhenDropped, eventually};
use bytes::Bytes;
use forebay_base::ErrorKind;
use forebay_engine::{
    BackupSummary, Cell, Db, Error, Keyspaces, Options, Storage, StoredDatabase, Syncing, WriteBatch,
};
use forebay_env::Random;
use forebay_storage::{MemoryObjects, ObjectFault, ObjectName, ObjectStorage, PutMode, SimDisk};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

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

/// What a checkpoint holds for a process that has nothing but the storage.
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

#[test]
fn a_checkpoint_stays_as_it_was_until_it_is_dropped() {
    for shards in [1, 4] {
        let with_shards = |options: Options| if shards == 1 { options } else { four_shards(options) };
        let objects = MemoryObjects::new();
        let storage = of_objects(&objects.handle());
        let process = Process::with_empty_memory();
        let db = process.open(with_shards(options(&storage, Syncing::Sync)));
        let mut model = Model::new();
        let mut moments = BTreeMap::new();
        for round in 1..4 {
            change(&db, &mut model, round);
            let name = format!("after-{round}");
            db.create_checkpoint(&name).unwrap();
            assert_eq!(db.create_checkpoint(&name).unwrap_err().kind(), ErrorKind::AlreadyExists);
            moments.insert(name, model.clone());
        }
        change(&db, &mut model, 9);
        db.compact_range(None, None).unwrap();
        let check = |db: &Db, moments: &BTreeMap<String, Model>| {
            let names: Vec<_> = moments.keys().cloned().collect();
            assert_eq!(db.checkpoints().unwrap(), names);
            assert_eq!(Db::stored_checkpoints(&storage, "db").unwrap(), names);
            moments.iter().for_each(|(name, model)| assert_eq!(at(&storage, name).unwrap(), *model, "{name}"));
        };
        check(&db, &moments);
        assert_eq!(contents(&db), model);
        process.kill(db);
        assert_eq!(Db::destroy_stored(&storage, &[], "db").unwrap_err().kind(), ErrorKind::Busy);

        // The next owner sweeps what nothing needs, and that is not what they name.
        let process = Process::with_empty_memory();
        let db = process.open(with_shards(options(&storage, Syncing::Sync)));
        db.compact_range(None, None).unwrap();
        check(&db, &moments);
        for name in ["after-2", "after-1", "after-3"] {
            db.drop_checkpoint(name).unwrap();
            assert_eq!(db.drop_checkpoint(name).unwrap_err().kind(), ErrorKind::NotFound);
            moments.remove(name);
            db.wait_for_compactions().unwrap();
            check(&db, &moments);
        }
        assert_eq!(at(&storage, "after-1").unwrap_err().kind(), ErrorKind::NotFound);
        // Nothing is left but what the database needs: a run and an image for each table.
        eventually("what the checkpoints named is deleted", || {
            db.flush().unwrap();
            let tables: usize = db.statistics().levels.iter().map(|level| level.tables as usize).sum();
            segments(&objects, "db") <= 2 * tables
        });
        assert_eq!(contents(&db), model);
        db.close().unwrap();
        Db::destroy_stored(&storage, &[], "db").unwrap();
        assert_eq!(segments(&objects, "db"), 0);
    }
}

#[test]
fn a_clone_shares_what_it_began_with_and_goes_its_own_way() {
    let objects = MemoryObjects::new();
    let storage = of_objects(&objects.handle());
    let process = Process::with_empty_memory();
    let db = process.open(options(&storage, Syncing::Sync));
    let mut model = Model::new();
    change(&db, &mut model, 1);
    db.create_checkpoint("moment").unwrap();
    // Without compactions of its own accord, a clone goes on reading what it shares.
    let named =
        |name: &str| Options { name: Some(name.to_owned()), bulk_load: true, ..options(&storage, Syncing::Sync) };
    let clone = |name: &str| Db::clone_checkpoint(&storage, "db", "moment", name);
    assert_eq!(Db::clone_checkpoint(&storage, "db", "none", "copy").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(clone("db").unwrap_err().kind(), ErrorKind::AlreadyExists);
    let before = objects.list(None).unwrap().len();
    clone("copy").unwrap();
    assert!(objects.list(None).unwrap().len() <= before + 2, "a commit, and a note at the checkpoint");
    assert_eq!(clone("copy").unwrap_err().kind(), ErrorKind::AlreadyExists);
    let (mut of_copy, mut of_db) = (model.clone(), model.clone());
    for round in 2..4 {
        let process = Process::with_empty_memory();
        let copy = process.open(named("copy"));
        change(&copy, &mut of_copy, round * 10);
        change(&db, &mut of_db, round * 20);
        assert_eq!(contents(&copy), of_copy);
        assert_eq!(db.drop_checkpoint("moment").unwrap_err().kind(), ErrorKind::Busy);
        if round == 3 {
            copy.create_checkpoint("of-copy").unwrap();
        }
        copy.flush().unwrap();
        process.kill(copy);
    }
    db.compact_range(None, None).unwrap();
    assert_eq!((contents(&db), at(&storage, "moment").unwrap()), (of_db, model.clone()));
    // What the clone has rewritten it needs no more, but its checkpoint does.
    let process = Process::with_empty_memory();
    let copy = process.open(named("copy"));
    copy.compact_range(None, None).unwrap();
    assert_eq!(contents(&copy), of_copy);
    assert_eq!(db.drop_checkpoint("moment").unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(at(&storage, "moment").unwrap(), model);
    copy.drop_checkpoint("of-copy").unwrap();
    copy.close().unwrap();
    Db::destroy_stored(&storage, &[], "copy").unwrap();
    db.drop_checkpoint("moment").unwrap();
    db.close().unwrap();
}

#[test]
fn a_backup_copies_what_is_missing_and_is_restored_by_a_clone() {
    let (objects, other) = (MemoryObjects::new(), MemoryObjects::new());
    let (storage, backup) = (of_objects(&objects.handle()), of_objects(&other.handle()));
    let process = Process::with_empty_memory();
    let db = process.open(options(&storage, Syncing::Sync));
    let mut model = Model::new();
    change(&db, &mut model, 1);
    db.compact_range(None, None).unwrap();
    db.create_checkpoint("one").unwrap();
    let one = model.clone();
    let first = Db::back_up(&storage, "db", "one", &backup).unwrap();
    assert!(first.objects > 0 && first.objects_copied == first.objects && first.bytes_copied > 0, "{first:?}");
    let again = Db::back_up(&storage, "db", "one", &backup).unwrap();
    assert_eq!(again, BackupSummary { objects: first.objects, ..BackupSummary::default() });
    db.put(&key(5000), b"more").unwrap();
    model.insert(key(5000), b"more".to_vec());
    db.create_checkpoint("two").unwrap();
    let second = Db::back_up(&storage, "db", "two", &backup).unwrap();
    assert!(second.objects > first.objects && second.objects_copied < second.objects, "{second:?}");
    assert_eq!(Db::stored_checkpoints(&backup, "db").unwrap(), ["one", "two"]);

    // The first storage is lost.
    process.kill(db);
    assert_eq!((at(&backup, "one").unwrap(), at(&backup, "two").unwrap()), (one.clone(), model.clone()));
    let process = Process::with_empty_memory();
    let in_backup = || options(&backup, Syncing::Sync);
    assert_eq!(process.try_open(in_backup()).map(|_| ()).unwrap_err().kind(), ErrorKind::AlreadyExists);
    Db::clone_checkpoint(&backup, "db", "two", "restored").unwrap();
    let restored = process.open(Options { name: Some("restored".to_owned()), ..in_backup() });
    assert_eq!(contents(&restored), model);
    change(&restored, &mut model, 2);
    assert_eq!(contents(&restored), model);
    assert_eq!(Db::drop_backup(&backup, "db", "two").unwrap_err().kind(), ErrorKind::Busy);
    restored.close().unwrap();
    Db::destroy_stored(&backup, &[], "restored").unwrap();
    Db::drop_backup(&backup, "db", "two").unwrap();
    assert_eq!(at(&backup, "one").unwrap(), one);
    Db::drop_backup(&backup, "db", "one").unwrap();
    assert_eq!(segments(&other, "db"), 0);

    // Where a database lives, or another one was backed up, none of this name is.
    let elsewhere = of_objects(&MemoryObjects::new());
    let process = Process::with_empty_memory();
    let stranger = process.open(options(&elsewhere, Syncing::Sync));
    stranger.create_checkpoint("three").unwrap();
    assert_eq!(Db::back_up(&elsewhere, "db", "three", &backup).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(Db::back_up(&storage, "db", "two", &elsewhere).unwrap_err().kind(), ErrorKind::Invalid);
    stranger.close().unwrap();
}

/// A batch over four shards is in a checkpoint as a whole or not at all.
#[test]
fn a_checkpoint_has_no_part_of_a_batch() {
    let objects = MemoryObjects::new();
    let storage = of_objects(&objects.handle());
    let process = Process::with_empty_memory();
    let db = process.open(four_shards(options(&storage, Syncing::Flush)));
    let keys = [0, 700, 1200, 1900].map(key);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ended = SetWhenDropped(&ended);
        for _ in 0..2 {
            scope.spawn(|| {
                for round in 0u64.. {
                    if ended.load(Ordering::Relaxed) {
                        break;
                    }
                    let mut batch = WriteBatch::new();
                    for key in &keys {
                        batch.put(key, &round.to_le_bytes());
                    }
                    db.write(&batch).unwrap();
                }
            });
        }
        eventually("something is written", || db.get(&keys[0]).unwrap().is_some());
        for number in 0..8 {
            db.create_checkpoint(&format!("moment-{number}")).unwrap();
        }
    });
    for name in db.checkpoints().unwrap() {
        let found = at(&storage, &name).unwrap();
        let values: Vec<_> = keys.iter().map(|key| &found[key]).collect();
        assert!(values.iter().all(|value| *value == values[0]), "{name}: {values:?}");
    }
    db.close().unwrap();
}

/// Ends the process at each operation on storage of `work`, until it gets through. Whatever is there afterwards is
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

#[test]
fn a_process_may_die_while_it_makes_a_checkpoint() {
    dies_everywhere(false, |db, _, _| db.create_checkpoint("new"));
}

#[test]
fn a_process_may_die_while_it_drops_a_checkpoint() {
    dies_everywhere(false, |db, _, _| {
        db.drop_checkpoint("one")?;
        while db.run_background_step() {}
        Ok(())
    });
}

#[test]
fn a_process_may_die_while_it_is_refused_to_drop_a_checkpoint() {
    dies_everywhere(true, |db, _, _| match db.drop_checkpoint("one") {
        Ok(()) => panic!("a clone needs it"),
        Err(error) if error.kind() == ErrorKind::Busy => Ok(()),
        dropped => dropped,
    });
}

/// A request of a drop fails at each step. Either the checkpoint is as it was, or the next drop ends what was begun.
#[test]
fn a_drop_that_fails_leaves_a_checkpoint_that_can_be_used_or_dropped() {
    let objects = MemoryObjects::new();
    let process = Process::with_empty_memory();
    let db = process.open(options(&of_objects(&objects.handle()), Syncing::Sync));
    let mut model = Model::new();
    change(&db, &mut model, 1);
    db.create_checkpoint("one").unwrap();
    process.kill(db);
    let mut half_dropped = 0;
    for step in 0.. {
        let objects = objects.duplicate();
        let (handle, storage) = (objects.handle(), of_objects(&objects.handle()));
        let quiet = Options { background_threads: 0, ..options(&of_objects(&handle), Syncing::Sync) };
        let process = Process::with_empty_memory();
        let db = process.open(quiet);
        handle.fail_at(handle.steps() + step, ObjectFault::Refused(ErrorKind::Io));
        let dropped = db.drop_checkpoint("one");
        if dropped.is_ok() {
            assert!(step > 3);
            process.kill(db);
            break;
        }
        match Db::clone_checkpoint(&storage, "db", "one", "copy") {
            Ok(()) => assert_eq!(db.drop_checkpoint("one").unwrap_err().kind(), ErrorKind::Busy),
            Err(error) => {
                let is_there = Db::stored_checkpoints(&storage, "db").unwrap() == ["one"];
                let expected = if is_there { ErrorKind::Busy } else { ErrorKind::NotFound };
                assert_eq!(error.kind(), expected, "step {step}: {error}");
                half_dropped += u32::from(is_there);
                db.drop_checkpoint("one").unwrap();
                assert_eq!(marks(&objects), 0);
            }
        }
        process.kill(db);
    }
    // Where deleting it was refused.
    assert_eq!(half_dropped, 1);
}

/// How many objects say that a checkpoint is being dropped.
fn marks(objects: &MemoryObjects) -> usize {
    let listed = objects.list(None).unwrap();
    listed.iter().filter(|object| object.name.as_str().starts_with("db/dropping/")).count()
}

/// Whatever is left of a backup that was being dropped when the process ended goes with the next drop, or the next
/// backup.
#[test]
fn a_drop_of_a_backup_that_was_interrupted_is_ended() {
    let (objects, other) = (MemoryObjects::new(), MemoryObjects::new());
    let (storage, backup) = (of_objects(&objects.handle()), of_objects(&other.handle()));
    let process = Process::with_empty_memory();
    let db = process.open(options(&storage, Syncing::Sync));
    let mut model = Model::new();
    let (mut expected, mut held) = (Vec::new(), Vec::new());
    for (name, round) in [("one", 1), ("two", 2)] {
        change(&db, &mut model, round);
        db.compact_range(None, None).unwrap();
        db.create_checkpoint(name).unwrap();
        let alone = MemoryObjects::new();
        Db::back_up(&storage, "db", name, &of_objects(&alone.handle())).unwrap();
        Db::back_up(&storage, "db", name, &backup).unwrap();
        held.push(segments(&alone, "db"));
        expected.push(model.clone());
    }
    process.kill(db);
    for step in 0.. {
        let drops_one = |objects: &MemoryObjects| {
            let handle = objects.handle();
            handle.end_at(step);
            Db::drop_backup(&of_objects(&handle), "db", "one").is_ok()
        };
        // The same once more.
        let objects = other.duplicate();
        let is_done = drops_one(&objects);
        let again = Db::drop_backup(&of_objects(&objects), "db", "one");
        assert_eq!(again.is_err_and(|error| error.kind() == ErrorKind::NotFound), is_done, "step {step}");
        assert_eq!((segments(&objects, "db"), marks(&objects)), (held[1], 0), "step {step}");
        assert_eq!(at(&of_objects(&objects), "two").unwrap(), expected[1]);

        // Another drop.
        let objects = other.duplicate();
        drops_one(&objects);
        Db::drop_backup(&of_objects(&objects), "db", "two").unwrap();
        let left = Db::stored_checkpoints(&of_objects(&objects), "db").unwrap();
        assert_eq!((segments(&objects, "db"), marks(&objects)), (left.len() * held[0], 0), "step {step}");

        // A backup of the same name.
        let objects = other.duplicate();
        drops_one(&objects);
        let backup = of_objects(&objects);
        Db::back_up(&storage, "db", "one", &backup).unwrap();
        Db::clone_checkpoint(&backup, "db", "one", "copy").unwrap();
        assert_eq!((at(&backup, "one").unwrap(), marks(&objects)), (expected[0].clone(), 0), "step {step}");
        if is_done {
            assert!(step > 8);
            break;
        }
    }
}

/// Who sleeps while another process takes the database over does no harm to the checkpoints of that one.
#[test]
fn a_fenced_owner_leaves_checkpoints_alone() {
    let objects = MemoryObjects::new();
    let storage = of_objects(&objects.handle());
    let [process, other] = [Process::with_empty_memory(), Process::with_empty_memory()];
    let options = || Options { takeover: true, ..options(&storage, Syncing::Sync) };
    let fenced = process.open(options());
    fenced.put(b"key", b"before").unwrap();
    fenced.create_checkpoint("before").unwrap();
    let owner = other.open(options());
    owner.put(b"key", b"after").unwrap();
    owner.create_checkpoint("after").unwrap();
    let expected = contents(&owner);
    fenced.create_checkpoint("after").unwrap_err();
    assert_eq!(at(&storage, "after").unwrap(), expected);
    assert_eq!(fenced.drop_checkpoint("before").unwrap_err().kind(), ErrorKind::Fenced);
    at(&storage, "before").unwrap();
    Db::clone_checkpoint(&storage, "db", "before", "copy").unwrap();
    assert_eq!(owner.checkpoints().unwrap(), ["after", "before"]);
    process.kill(fenced);
    owner.close().unwrap();
}

/// What a drop asks for arrives when its owner was deposed. A checkpoint that is there then can be cloned.
#[test]
fn a_request_of_a_drop_may_arrive_after_a_takeover() {
    const LATE: u64 = 1000;
    let objects = MemoryObjects::new();
    let process = Process::with_empty_memory();
    let db = process.open(options(&of_objects(&objects.handle()), Syncing::Sync));
    let mut model = Model::new();
    change(&db, &mut model, 1);
    db.create_checkpoint("one").unwrap();
    process.kill(db);
    let (mut stayed, mut dropped) = (0, 0);
    for step in 0.. {
        let objects = objects.duplicate();
        let (handle, storage) = (objects.handle(), of_objects(&objects.handle()));
        let quiet =
            |storage: &Storage| Options { background_threads: 0, takeover: true, ..options(storage, Syncing::Sync) };
        let [process, other] = [Process::with_empty_memory(), Process::with_empty_memory()];
        let deposed = process.open(quiet(&of_objects(&handle)));
        handle.fail_at(handle.steps() + step, ObjectFault::Late(LATE));
        let is_done = deposed.drop_checkpoint("one").is_ok();
        let owner = other.open(quiet(&storage));
        deposed.drop_checkpoint("one").unwrap_err();
        for _ in 0..LATE {
            objects.list(None).unwrap();
        }
        let is_there = Db::stored_checkpoints(&storage, "db").unwrap() == ["one"];
        let cloned = Db::clone_checkpoint(&storage, "db", "one", "copy");
        if is_there {
            assert_eq!(cloned.map_err(|error| error.to_string()), Ok(()), "step {step}");
            assert_eq!(owner.drop_checkpoint("one").unwrap_err().kind(), ErrorKind::Busy, "step {step}");
            stayed += 1;
        } else {
            assert_eq!(cloned.unwrap_err().kind(), ErrorKind::NotFound, "step {step}");
            dropped += 1;
        }
        assert_eq!(contents(&owner), model, "step {step}");
        process.kill(deposed);
        other.kill(owner);
        if is_done {
            break;
        }
    }
    assert!(stayed > 3 && dropped > 1, "{stayed} {dropped}");
}

/// Another process takes over at each step of a drop, and the checkpoint is cloned there. The drop goes on, of a process that is
/// not the owner any more: the clone gave way, or lacks nothing.
#[test]
fn an_owner_may_be_deposed_while_it_drops_a_checkpoint() {
    let objects = MemoryObjects::new();
    let process = Process::with_empty_memory();
    let quiet =
        |storage: &Storage| Options { background_threads: 0, takeover: true, ..options(storage, Syncing::Sync) };
    let db = process.open(quiet(&of_objects(&objects.handle())));
    let (mut model, mut now) = (Model::new(), Model::new());
    change(&db, &mut model, 1);
    db.create_checkpoint("one").unwrap();
    now.extend(model.clone());
    change(&db, &mut now, 2);
    db.compact_range(None, None).unwrap();
    process.kill(db);
    let (mut clones, mut drops) = (0, 0);
    for step in 0.. {
        let objects = objects.duplicate();
        let (handle, storage) = (objects.handle(), of_objects(&objects.handle()));
        let process = Process::with_empty_memory();
        let deposed = process.open(quiet(&of_objects(&handle)));
        let taken = Arc::new(Mutex::new(None));
        let (inner, of_owner) = (Arc::clone(&taken), of_objects(&objects.handle()));
        handle.interrupt_at(handle.steps() + step, move || {
            let process = Process::with_empty_memory();
            let owner = process.open(quiet(&of_owner));
            let cloned = Db::clone_checkpoint(&of_owner, "db", "one", "copy");
            *inner.lock().unwrap() = Some((process, owner, cloned.is_ok()));
        });
        let dropped = deposed.drop_checkpoint("one");
        process.kill(deposed);
        let Some((process, owner, is_cloned)) = taken.lock().unwrap().take() else {
            dropped.unwrap();
            break;
        };
        process.kill(owner);

        // The next owner deletes what nothing names.
        let process = Process::with_empty_memory();
        let owner = process.open(quiet(&storage));
        assert_eq!(contents(&owner), now, "step {step}");
        let is_there = owner.checkpoints().unwrap() == ["one"];
        assert_eq!(is_there, is_cloned, "step {step}: it is there, or was dropped and has no clone");
        if is_cloned {
            let process = Process::with_empty_memory();
            let copy = process.open(Options { name: Some("copy".to_owned()), ..quiet(&storage) });
            assert_eq!(contents(&copy), model, "step {step}");
            process.kill(copy);
            assert_eq!(owner.drop_checkpoint("one").unwrap_err().kind(), ErrorKind::Busy, "step {step}");
        }
        process.kill(owner);
        clones += u32::from(is_cloned);
        drops += u32::from(!is_there);
    }
    assert!(clones > 3 && drops > 1, "{clones} {drops}");
}

/// What an owner that was deposed does of a drop, or asked for before, arrives when another checkpoint has the name: that one stays,
/// and so does what tells of its clone.
#[test]
fn a_drop_that_arrives_late_leaves_another_checkpoint_of_the_name_alone() {
    const LATE: u64 = 1000;
    let objects = MemoryObjects::new();
    let quiet =
        |storage: &Storage| Options { background_threads: 0, takeover: true, ..options(storage, Syncing::Sync) };
    let process = Process::with_empty_memory();
    let db = process.open(quiet(&of_objects(&objects.handle())));
    let mut model = Model::new();
    change(&db, &mut model, 1);
    db.create_checkpoint("one").unwrap();
    Db::clone_checkpoint(&of_objects(&objects.handle()), "db", "one", "other").unwrap();
    process.kill(db);
    // A clone that has rewritten all it shares leaves a note, which is deleted with the checkpoint.
    let process = Process::with_empty_memory();
    let other = process.open(Options { name: Some("other".to_owned()), ..quiet(&of_objects(&objects.handle())) });
    other.compact_range(None, None).unwrap();
    other.close().unwrap();
    for is_late in [false, true] {
        let mut steps = 0;
        for step in 0.. {
            let objects = objects.duplicate();
            let (handle, storage) = (objects.handle(), of_objects(&objects.handle()));
            let after = Arc::new(Mutex::new(model.clone()));
            let renew = {
                let (storage, after) = (storage.clone(), Arc::clone(&after));
                move || {
                    let process = Process::with_empty_memory();
                    let owner = process.open(quiet(&storage));
                    if let Err(error) = owner.drop_checkpoint("one") {
                        assert_eq!(error.kind(), ErrorKind::NotFound);
                    }
                    change(&owner, &mut after.lock().unwrap(), 2);
                    owner.create_checkpoint("one").unwrap();
                    Db::clone_checkpoint(&storage, "db", "one", "other-2").unwrap();
                    process.kill(owner);
                }
            };
            let process = Process::with_empty_memory();
            let deposed = process.open(quiet(&of_objects(&handle)));
            let is_done = if is_late {
                handle.fail_at(handle.steps() + step, ObjectFault::Late(LATE));
                let is_done = deposed.drop_checkpoint("one").is_ok();
                renew();
                for _ in 0..LATE {
                    objects.list(None).unwrap();
                }
                is_done
            } else {
                let renewed = Arc::new(AtomicBool::new(false));
                let inner = Arc::clone(&renewed);
                handle.interrupt_at(handle.steps() + step, move || {
                    renew();
                    inner.store(true, Ordering::Relaxed);
                });
                let _ = deposed.drop_checkpoint("one");
                !renewed.load(Ordering::Relaxed)
            };
            process.kill(deposed);
            if is_done {
                break;
            }
            steps += 1;
            let process = Process::with_empty_memory();
            let owner = process.open(quiet(&storage));
            assert_eq!(owner.checkpoints().unwrap(), ["one"], "step {step}, late: {is_late}");
            owner.compact_range(None, None).unwrap();
            while owner.run_background_step() {}
            assert_eq!(at(&storage, "one").unwrap(), *after.lock().unwrap(), "step {step}, late: {is_late}");
            let dropped = owner.drop_checkpoint("one");
            assert_eq!(dropped.unwrap_err().kind(), ErrorKind::Busy, "step {step}, late: {is_late}");
            process.kill(owner);
        }
        assert!(steps > 6, "{steps}");
    }
}

/// A checkpoint that was dropped, or a backup of one, does not come back when the machine loses its power: what it named is gone.
#[test]
fn a_checkpoint_that_was_dropped_is_away_after_a_power_failure() {
    for seed in 0..8 {
        let (disk, other) = (SimDisk::new(), SimDisk::new());
        let quiet =
            |nonce| Options { background_threads: 0, ..options(&of_disk(&disk.handle(), nonce), Syncing::Sync) };
        let process = Process::with_empty_memory();
        let db = process.open(quiet(1));
        let mut model = Model::new();
        change(&db, &mut model, 1);
        db.create_checkpoint("one").unwrap();
        let (storage, backup) = (of_disk(&disk.handle(), 2), of_disk(&other.handle(), 2));
        Db::back_up(&storage, "db", "one", &backup).unwrap();
        db.compact_range(None, None).unwrap();
        db.drop_checkpoint("one").unwrap();
        while db.run_background_step() {}
        Db::drop_backup(&backup, "db", "one").unwrap();
        process.kill(db);
        let mut random = Random::seeded(seed);
        disk.lose_power(&mut random);
        other.lose_power(&mut random);
        let process = Process::with_empty_memory();
        let db = process.open(quiet(3));
        assert_eq!(db.checkpoints().unwrap(), [""; 0], "seed {seed}");
        let backup = of_disk(&other.handle(), 4);
        assert_eq!(Db::stored_checkpoints(&backup, "db").unwrap(), [""; 0], "seed {seed}");
        assert_eq!(contents(&db), model);
        process.kill(db);
    }
}

/// Builds before gave the object of a checkpoint the checkpoint's name.
#[test]
fn a_checkpoint_of_a_build_before_is_used_and_dropped() {
    let objects = MemoryObjects::new();
    let storage = of_objects(&objects.handle());
    let process = Process::with_empty_memory();
    let db = process.open(options(&storage, Syncing::Sync));
    let mut model = Model::new();
    change(&db, &mut model, 1);
    db.create_checkpoint("one").unwrap();
    process.kill(db);
    let [made, before] = [object_of(&objects, "one"), ObjectName::new("db/checkpoint/one").unwrap()];
    objects.put(&before, objects.get(&made).unwrap(), PutMode::IfAbsent).unwrap();
    objects.delete(&made).unwrap();
    let mut now = model.clone();
    let process = Process::with_empty_memory();
    let db = process.open(options(&storage, Syncing::Sync));
    change(&db, &mut now, 2);
    db.compact_range(None, None).unwrap();
    assert_eq!(db.checkpoints().unwrap(), ["one"]);
    assert_eq!(db.create_checkpoint("one").unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(at(&storage, "one").unwrap(), model);
    let backup = of_objects(&MemoryObjects::new().handle());
    Db::back_up(&storage, "db", "one", &backup).unwrap();
    Db::clone_checkpoint(&storage, "db", "one", "copy").unwrap();
    assert_eq!(db.drop_checkpoint("one").unwrap_err().kind(), ErrorKind::Busy);
    Db::destroy_stored(&storage, &[], "copy").unwrap();
    db.drop_checkpoint("one").unwrap();
    assert_eq!(at(&storage, "one").unwrap_err().kind(), ErrorKind::NotFound);
    db.create_checkpoint("one").unwrap();
    assert_eq!(at(&storage, "one").unwrap(), now);
    // The backup of the other one gives way.
    assert_eq!(at(&backup, "one").unwrap(), model);
    Db::back_up(&storage, "db", "one", &backup).unwrap();
    assert_eq!((at(&backup, "one").unwrap(), problems(&backup, "db")), (now, (Vec::new(), 1)));
    db.close().unwrap();
}

/// A clone of a backup keeps what it reads when another checkpoint of the name is copied.
#[test]
fn a_backup_that_a_clone_needs_stays_when_another_gets_its_name() {
    let (objects, other) = (MemoryObjects::new(), MemoryObjects::new());
    let (storage, backup) = (of_objects(&objects.handle()), of_objects(&other.handle()));
    let process = Process::with_empty_memory();
    let db = process.open(options(&storage, Syncing::Sync));
    let (mut model, mut moments) = (Model::new(), Vec::new());
    for round in 1..4 {
        change(&db, &mut model, round);
        db.compact_range(None, None).unwrap();
        db.create_checkpoint("one").unwrap();
        Db::back_up(&storage, "db", "one", &backup).unwrap();
        assert_eq!(Db::stored_checkpoints(&backup, "db").unwrap(), ["one"]);
        assert_eq!(at(&backup, "one").unwrap(), model);
        moments.push(model.clone());
        if round == 1 {
            Db::clone_checkpoint(&backup, "db", "one", "copy").unwrap();
        }
        db.drop_checkpoint("one").unwrap();
    }
    // Those of the first, which the clone reads, and of the last.
    assert_eq!(problems(&backup, "db"), (Vec::new(), 2));
    let reader = Process::with_empty_memory();
    let copy = reader.open(Options { name: Some("copy".to_owned()), ..options(&backup, Syncing::Sync) });
    assert_eq!(contents(&copy), moments[0]);
    assert_eq!(Db::drop_backup(&backup, "db", "one").unwrap_err().kind(), ErrorKind::Busy);
    copy.close().unwrap();
    Db::destroy_stored(&backup, &[], "copy").unwrap();
    assert_eq!(at(&backup, "one").unwrap(), model);
    Db::drop_backup(&backup, "db", "one").unwrap();
    assert_eq!((segments(&other, "db"), Db::stored_checkpoints(&backup, "db").unwrap()), (0, Vec::new()));
    db.close().unwrap();
}

/// A checkpoint is dropped while it is cloned, and another one gets its name.
#[test]
fn a_clone_gives_way_to_another_checkpoint_of_the_name() {
    let objects = MemoryObjects::new();
    let process = Process::with_empty_memory();
    let db = process.open(options(&of_objects(&objects.handle()), Syncing::Sync));
    let mut model = Model::new();
    change(&db, &mut model, 1);
    db.create_checkpoint("one").unwrap();
    change(&db, &mut model, 2);
    let handle = objects.handle();
    // After it has read the checkpoint.
    handle.interrupt_at(1, move || {
        db.drop_checkpoint("one").unwrap();
        db.compact_range(None, None).unwrap();
        db.create_checkpoint("one").unwrap();
        process.kill(db);
    });
    let cloned = Db::clone_checkpoint(&of_objects(&handle), "db", "one", "copy");
    assert_eq!(cloned.unwrap_err().kind(), ErrorKind::Busy);
    Db::clone_checkpoint(&of_objects(&handle), "db", "one", "copy").unwrap();
}

/// A checkpoint is dropped at each step of its backup, and another one gets its name: a backup lacks nothing.
#[test]
fn a_backup_gives_way_to_another_checkpoint_of_the_name() {
    let objects = MemoryObjects::new();
    let process = Process::with_empty_memory();
    let quiet = |storage: &Storage| Options { background_threads: 0, ..options(storage, Syncing::Sync) };
    let db = process.open(quiet(&of_objects(&objects.handle())));
    let mut model = Model::new();
    change(&db, &mut model, 1);
    db.create_checkpoint("one").unwrap();
    process.kill(db);
    let mut gave_way = 0;
    for step in 0.. {
        let objects = objects.duplicate();
        let (handle, backup) = (objects.handle(), of_objects(&MemoryObjects::new()));
        let process = Process::with_empty_memory();
        let db = process.open(quiet(&of_objects(&objects.handle())));
        let other = Arc::new(Mutex::new(None));
        let (inner, mut changed) = (Arc::clone(&other), model.clone());
        handle.interrupt_at(step, move || {
            change(&db, &mut changed, 2);
            db.compact_range(None, None).unwrap();
            db.drop_checkpoint("one").unwrap();
            while db.run_background_step() {}
            db.create_checkpoint("one").unwrap();
            process.kill(db);
            *inner.lock().unwrap() = Some(changed);
        });
        let backed_up = Db::back_up(&of_objects(&handle), "db", "one", &backup);
        let other = other.lock().unwrap().take();
        match backed_up {
            Ok(_) => {
                let found = at(&backup, "one").unwrap();
                assert!(found == model || Some(&found) == other.as_ref(), "step {step}");
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Busy, "step {step}: {error}");
                assert_eq!(Db::stored_checkpoints(&backup, "db").unwrap(), [""; 0]);
                gave_way += 1;
            }
        }
        if other.is_none() {
            break;
        }
    }
    assert!(gave_way > 3, "{gave_way}");
}

#[test]
fn a_process_may_die_while_it_clones_a_checkpoint() {
    dies_everywhere(false, |_, storage, _| Db::clone_checkpoint(storage, "db", "one", "copy"));
}

#[test]
fn a_process_may_die_while_it_backs_up() {
    dies_everywhere(false, |_, storage, backup| Db::back_up(storage, "db", "two", backup).map(drop));
}

#[test]
fn keyspaces_of_a_checkpoint_are_read_though_one_was_dropped() {
    let storage = of_objects(&MemoryObjects::new().handle());
    let process = Process::with_empty_memory();
    let db = process.open(options(&storage, Syncing::Sync));
    db.create_checkpoint("empty").unwrap();
    let keyspaces = Keyspaces::open(&db).unwrap();
    keyspaces.create("dropped").unwrap();
    keyspaces.create("kept").unwrap().put(b"key", b"value").unwrap();
    keyspaces.drop("dropped").unwrap();
    db.create_checkpoint("full").unwrap();
    for (checkpoint, names) in [("empty", &[][..]), ("full", &["kept".to_owned()])] {
        let reader = Process::with_empty_memory();
        let db = Db::open_checkpoint(&reader.clients, options(&storage, Syncing::Sync), checkpoint).unwrap();
        assert!(db.is_read_only());
        let keyspaces = Keyspaces::open(&db).unwrap();
        assert_eq!(keyspaces.list().unwrap(), names, "{checkpoint}");
        if let [name] = names {
            assert_eq!(keyspaces.get(name).unwrap().get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        }
        assert_eq!(keyspaces.create("new").unwrap_err().kind(), ErrorKind::Invalid);
        db.close().unwrap();
    }
    db.close().unwrap();
}

/// What `verify` finds: the problems, and how many checkpoints it read.
fn problems(storage: &Storage, name: &str) -> (Vec<String>, u64) {
    let report = StoredDatabase::new(storage, name).unwrap().verify(&mut |_| ()).unwrap();
    let section = &report.sections[0];
    let at = section.columns.iter().position(|column| *column == "checkpoints").unwrap();
    let Cell::Number(checkpoints) = section.rows[0][at] else { panic!("{section:?}") };
    (report.problems.iter().map(|problem| format!("{}: {}", problem.object, problem.detail)).collect(), checkpoints)
}

/// A database whose first checkpoint names objects that it has no use for any more, and those objects.
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

fn segment_names(objects: &MemoryObjects) -> Vec<ObjectName> {
    let listed = objects.list(Some(&ObjectName::new("db/segment").unwrap())).unwrap();
    listed.into_iter().map(|object| object.name).collect()
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

/// A checkpoint that cannot be read may name anything: nothing is deleted until it is dropped, and all else goes on.
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

/// The same of a backup. Nothing of the others is lost, and what it named is deleted once all that is left can be read.
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

/// Whether a checkpoint stays is said by commits. Who cannot read them begins no clone.
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

/// A database that is being made is none: nobody opens it, and whoever makes it again begins anew.
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
    // Whoever makes it ends at each step.
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
            // It ended when the commit that says that all is there had been made.
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
    // One that is whole is not replaced.
    let again = Process::with_empty_memory().try_open(unfinished(&storage)).map(|_| ());
    assert_eq!(again.unwrap_err().kind(), ErrorKind::AlreadyExists);
}

/// What a maker asked for and was not told of arrives after the database was finished, and says nothing of it.
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

/// The note of a build before counts as it did.
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

/// Who begins anew drops nothing that its maker has finished meanwhile.
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
