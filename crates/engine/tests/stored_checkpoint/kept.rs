//! Checkpoints, clones and backups stay as they were made.

use super::{at, change, dies_everywhere, object_of, problems, segments, with_checkpoint};
use crate::common::model::{Model, contents, key};
use crate::common::process::Process;
use crate::common::stored::{four_shards, of_objects, options};
use crate::common::{Cluster, SetWhenDropped, eventually};
use forebay_base::ErrorKind;
use forebay_engine::{BackupSummary, Db, Keyspaces, Options, Storage, Syncing, WriteBatch};
use forebay_storage::{MemoryObjects, ObjectFault, ObjectName, ObjectStorage, PutMode};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

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

        // The next owner sweeps what nothing needs. What they name is needed.
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
        // Only what the database needs is left: a run and an image for each table.
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

/// A checkpoint may have names that no database can have, and the longest name of a database leaves no room for more.
#[test]
fn what_has_any_name_can_be_read() {
    let objects = MemoryObjects::new();
    let storage = of_objects(&objects.handle());
    let longest = "x".repeat(234);
    let (_process, db, model) = with_checkpoint(&storage, &longest);
    db.create_checkpoint("a=b").unwrap();
    for name in [longest.as_str(), "a=b"] {
        assert_eq!(at(&storage, name).unwrap(), model, "{name}");
    }
    db.close().unwrap();

    let named = || Options { name: Some("n".repeat(102)), ..options(&storage, Syncing::Sync) };
    let [process, reader] = [Process::with_empty_memory(), Process::with_empty_memory()];
    let db = process.open(named());
    db.put(b"key", b"value").unwrap();
    let read = Db::open_to_read(&reader.clients, named()).unwrap();
    assert_eq!(read.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    read.close().unwrap();
    db.close().unwrap();
}

/// Options of a clone. Without compactions of its own accord, it continues to read what it shares.
fn of_clone(storage: &Storage, name: &str) -> Options {
    Options { name: Some(name.to_owned()), bulk_load: true, ..options(storage, Syncing::Sync) }
}

#[test]
fn a_clone_shares_what_it_began_with_and_goes_its_own_way() {
    let objects = MemoryObjects::new();
    let storage = of_objects(&objects.handle());
    let (_process, db, model) = with_checkpoint(&storage, "moment");
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
        let copy = process.open(of_clone(&storage, "copy"));
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
    // The clone no longer needs what it has rewritten, but its checkpoint does.
    let process = Process::with_empty_memory();
    let copy = process.open(of_clone(&storage, "copy"));
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

/// A clone of a clone may read nothing but objects of the first database. They stay, although the clone in between is to
/// go.
#[test]
fn a_clone_of_a_clone_holds_what_it_reads_of_the_first_database() {
    let objects = MemoryObjects::new();
    let storage = of_objects(&objects.handle());
    let (_process, db, model) = with_checkpoint(&storage, "moment");
    Db::clone_checkpoint(&storage, "db", "moment", "between").unwrap();
    let process = Process::with_empty_memory();
    let between = process.open(of_clone(&storage, "between"));
    between.create_checkpoint("of-between").unwrap();
    Db::clone_checkpoint(&storage, "between", "of-between", "copy").unwrap();
    assert_eq!(segments(&objects, "between"), 0, "all of it is the first database's");
    assert_eq!(between.drop_checkpoint("of-between").unwrap_err().kind(), ErrorKind::Busy);
    between.close().unwrap();
    assert_eq!(Db::destroy_stored(&storage, &[], "between").unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(db.drop_checkpoint("moment").unwrap_err().kind(), ErrorKind::Busy);
    // So that only the checkpoint needs what it names.
    db.compact_range(None, None).unwrap();
    let process = Process::with_empty_memory();
    let copy = process.open(of_clone(&storage, "copy"));
    assert_eq!(contents(&copy), model);
    copy.close().unwrap();
    // All of them go in the order in which they hold each other.
    Db::destroy_stored(&storage, &[], "copy").unwrap();
    let process = Process::with_empty_memory();
    let between = process.open(of_clone(&storage, "between"));
    between.drop_checkpoint("of-between").unwrap();
    between.close().unwrap();
    Db::destroy_stored(&storage, &[], "between").unwrap();
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

    // A backup of this name is refused where a database lives, or where another one was backed up.
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

#[test]
fn a_process_may_die_while_it_makes_a_checkpoint() {
    dies_everywhere(false, |db, _, _| db.create_checkpoint("new"));
}

/// An owner that sleeps while another process takes the database over does no harm to that process's checkpoints.
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

/// Earlier builds gave the object of a checkpoint the checkpoint's name.
#[test]
fn a_checkpoint_of_a_build_before_is_used_and_dropped() {
    let objects = MemoryObjects::new();
    let storage = of_objects(&objects.handle());
    let (process, db, model) = with_checkpoint(&storage, "one");
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
    // The backup of the other checkpoint gives way.
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

/// A client of a service that gets no reply sends the request again, and gets the answer to the second one.
#[test]
fn a_backup_is_copied_although_a_request_is_sent_twice() {
    let objects = MemoryObjects::new();
    let storage = of_objects(&objects.handle());
    let (_process, db, model) = with_checkpoint(&storage, "one");
    for step in 0.. {
        let other = MemoryObjects::new();
        let handle = other.handle();
        handle.fail_at(step, ObjectFault::Repeated);
        let copied = Db::back_up(&storage, "db", "one", &of_objects(&handle));
        assert!(copied.is_ok(), "operation {step}: {copied:?}");
        assert_eq!(at(&of_objects(&other.handle()), "one").unwrap(), model, "operation {step}");
        if step >= handle.steps() {
            break;
        }
    }
    db.close().unwrap();
}

/// The backup of a clone has objects of the first database, under their names. Backups of the first database may come
/// and go beside it, and nothing of another database of that name is touched.
#[test]
fn a_backup_of_a_clone_shares_names_with_the_first_database_only() {
    let objects = MemoryObjects::new();
    let storage = of_objects(&objects.handle());
    let (_process, db, model) = with_checkpoint(&storage, "one");
    Db::clone_checkpoint(&storage, "db", "one", "copy").unwrap();
    let process = Process::with_empty_memory();
    let copy = process.open(of_clone(&storage, "copy"));
    copy.create_checkpoint("of-copy").unwrap();
    copy.close().unwrap();
    assert_eq!(segments(&objects, "copy"), 0, "all of it is the first database's");

    let [strange, strange_backup] = [(); 2].map(|()| of_objects(&MemoryObjects::new().handle()));
    let (_other_process, other, mut of_other) = with_checkpoint(&strange, "one");
    change(&other, &mut of_other, 9);
    other.create_checkpoint("two").unwrap();
    Db::back_up(&strange, "db", "two", &strange_backup).unwrap();
    for to in [&strange, &strange_backup] {
        assert_eq!(Db::back_up(&storage, "copy", "of-copy", to).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(Db::stored_checkpoints(to, "copy").unwrap(), [""; 0]);
        assert_eq!(at(to, "two").unwrap(), of_other);
    }

    for is_first in [true, false] {
        let backup = of_objects(&MemoryObjects::new().handle());
        let back_up = |name: &str, checkpoint: &str| Db::back_up(&storage, name, checkpoint, &backup).map(drop);
        if is_first {
            back_up("copy", "of-copy").unwrap();
        }
        back_up("db", "one").unwrap();
        back_up("copy", "of-copy").unwrap();
        assert_eq!(Db::back_up(&strange, "db", "two", &backup).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(at(&backup, "one").unwrap(), model);
        Db::drop_backup(&backup, "db", "one").unwrap();
        let reader = Process::with_empty_memory();
        let found = Db::open_checkpoint(&reader.clients, of_clone(&backup, "copy"), "of-copy").unwrap();
        assert_eq!(contents(&found), model);
        found.close().unwrap();
        assert_eq!(problems(&backup, "copy"), (Vec::new(), 1));
        Db::drop_backup(&backup, "copy", "of-copy").unwrap();
    }
    other.close().unwrap();
    db.close().unwrap();
}

/// A checkpoint is dropped while it is cloned, and another one gets its name.
#[test]
fn a_clone_gives_way_to_another_checkpoint_of_the_name() {
    let objects = MemoryObjects::new();
    let (process, db, mut model) = with_checkpoint(&of_objects(&objects.handle()), "one");
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

/// A checkpoint is dropped at each step of its backup, and another one gets its name: the backup lacks nothing.
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

/// What is in tables, and what only the log has.
#[test]
fn a_database_is_read_beside_its_owner() {
    for shards in [1, 4] {
        let with_shards = |options: Options| if shards == 1 { options } else { four_shards(options) };
        let objects = MemoryObjects::new();
        let storage = of_objects(&objects.handle());
        let owner = Process::with_empty_memory();
        let db = owner.open(with_shards(Options { background_threads: 0, ..options(&storage, Syncing::Sync) }));
        let mut model = Model::new();
        for round in 1..=4 {
            change(&db, &mut model, round);
            if round == 2 {
                db.flush().unwrap();
                while db.run_background_step() {}
            }
            let listed = objects.list(None).unwrap();
            let reader = Process::with_empty_memory();
            let read = Db::open_to_read(&reader.clients, options(&storage, Syncing::Sync)).unwrap();
            assert_eq!(contents(&read), model, "round {round}");
            assert_eq!(read.put(b"key", b"value").unwrap_err().kind(), ErrorKind::Invalid);
            read.close().unwrap();
            assert_eq!(objects.list(None).unwrap(), listed, "round {round}");
        }
        // The owner continues.
        db.put(b"key", b"value").unwrap();
        db.check_owner().unwrap();
        db.close().unwrap();
        let other = Options { name: Some("other".to_owned()), ..options(&storage, Syncing::Sync) };
        let missing = Db::open_to_read(&Process::with_empty_memory().clients, other).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }
}

/// A memory node that others use too holds nothing of a database that was open to be read, whether or not it was closed.
#[test]
fn readers_leave_nothing_on_a_memory_node() {
    let storage = of_objects(&MemoryObjects::new().handle());
    let (_process, db, mut model) = with_checkpoint(&storage, "one");
    let at_checkpoint = model.clone();
    // Records that only the log has.
    change(&db, &mut model, 2);
    let node = Cluster::start(64 << 20);
    for (is_closed, is_checkpoint) in [(true, true), (true, false), (false, true), (false, false)] {
        let reader = Process::start([&node]);
        let (clients, options) = (&reader.clients, options(&storage, Syncing::Sync));
        let (found, expected) = match is_checkpoint {
            true => (Db::open_checkpoint(clients, options, "one").unwrap(), &at_checkpoint),
            false => (Db::open_to_read(clients, options).unwrap(), &model),
        };
        assert_eq!(contents(&found), *expected);
        assert!(clients[0].list_stores().unwrap().is_empty(), "others could open it");
        if is_closed {
            found.close().unwrap();
            drop(found);
            // The session lives on.
            node.expect_nothing_leased();
        } else {
            reader.kill(found);
        }
    }
    node.expect_nothing_leased();
    db.close().unwrap();
}
