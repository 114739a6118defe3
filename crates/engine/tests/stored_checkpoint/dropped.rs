//! Checkpoints go when they are dropped, and nothing else does.

use super::{at, change, dies_everywhere, segments, with_checkpoint};
use crate::common::model::{Model, contents};
use crate::common::process::Process;
use crate::common::stored::{of_disk, of_objects, options};
use forebay_base::ErrorKind;
use forebay_engine::{Db, Options, Storage, Syncing};
use forebay_env::Random;
use forebay_storage::{MemoryObjects, ObjectFault, ObjectName, ObjectStorage, PutMode, SimDisk};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

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

/// A request of a drop fails at each step. Either the checkpoint is as it was, or the next drop finishes what was
/// begun.
#[test]
fn a_drop_that_fails_leaves_a_checkpoint_that_can_be_used_or_dropped() {
    let objects = MemoryObjects::new();
    let (process, db, _) = with_checkpoint(&of_objects(&objects.handle()), "one");
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

/// An object of the right name and length may be there that is not the right one.
#[test]
fn what_a_dropped_database_left_is_no_part_of_a_backup() {
    let (objects, other) = (MemoryObjects::new(), MemoryObjects::new());
    let (storage, backup) = (of_objects(&objects.handle()), of_objects(&other.handle()));
    let process = Process::with_empty_memory();
    process.open(options(&backup, Syncing::Sync)).close().unwrap();
    Db::destroy_stored(&backup, &process.clients, "db").unwrap();
    let (process, db, model) = with_checkpoint(&storage, "one");
    process.kill(db);
    for left in objects.list(Some(&ObjectName::new("db/segment").unwrap())).unwrap() {
        other.put(&left.name, objects.get(&left.name).unwrap(), PutMode::Replace).unwrap();
        other.flip(&left.name, 30, 1).unwrap();
    }
    let copied = Db::back_up(&storage, "db", "one", &backup).unwrap();
    assert_eq!(copied.objects_copied, copied.objects);
    assert_eq!(at(&backup, "one").unwrap(), model);
}

/// Whatever is left of a backup that was being dropped when the process ended is removed by the next drop, or the next
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

/// A client of a service that gets no reply sends the request again. A backup whose drop is refused can still be cloned.
#[test]
fn a_drop_that_is_refused_is_taken_back_although_a_request_is_sent_twice() {
    let (objects, other) = (MemoryObjects::new(), MemoryObjects::new());
    let (storage, backup) = (of_objects(&objects.handle()), of_objects(&other.handle()));
    let (_process, db, _) = with_checkpoint(&storage, "one");
    Db::back_up(&storage, "db", "one", &backup).unwrap();
    Db::clone_checkpoint(&backup, "db", "one", "copy").unwrap();
    for step in 0.. {
        let objects = other.duplicate();
        let handle = objects.handle();
        handle.fail_at(step, ObjectFault::Repeated);
        let dropped = Db::drop_backup(&of_objects(&handle), "db", "one");
        assert_eq!(dropped.unwrap_err().kind(), ErrorKind::Busy, "operation {step}");
        assert_eq!(marks(&objects), 0, "operation {step}");
        Db::clone_checkpoint(&of_objects(&objects.handle()), "db", "one", "other").unwrap();
        if step >= handle.steps() {
            assert!(step > 8);
            break;
        }
    }
    db.close().unwrap();
}

/// A request of a drop arrives after its owner was deposed. A checkpoint that is there then can be cloned.
#[test]
fn a_request_of_a_drop_may_arrive_after_a_takeover() {
    const LATE: u64 = 1000;
    let objects = MemoryObjects::new();
    let (process, db, model) = with_checkpoint(&of_objects(&objects.handle()), "one");
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

/// Another process takes over at each step of a drop, and the checkpoint is cloned there. The deposed process continues
/// its drop: the clone gave way, or lacks nothing.
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

/// The steps of a deposed owner's drop, or its earlier requests, arrive when another checkpoint has the name. That
/// checkpoint stays, and so does the note of its clone.
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

/// A dropped checkpoint, or backup of one, does not come back when the machine loses its power: what it named is gone.
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

/// A request of a checkpoint's maker gets no reply and arrives later, when what the checkpoint names is gone. No clone
/// begins with it, and the next owner deletes it.
#[test]
fn a_checkpoint_that_arrives_after_its_maker_gave_up_is_dropped() {
    const LATE: u64 = 10_000;
    let quiet = |storage: &Storage| Options { background_threads: 0, ..options(storage, Syncing::Sync) };
    let mut arrived = 0;
    for step in 0.. {
        let objects = MemoryObjects::new();
        let (handle, storage) = (objects.handle(), of_objects(&objects.handle()));
        let process = Process::with_empty_memory();
        let db = process.open(quiet(&of_objects(&handle)));
        let mut model = Model::new();
        change(&db, &mut model, 1);
        db.flush().unwrap();
        while db.run_background_step() {}
        let at = handle.steps() + step;
        handle.fail_at(at, ObjectFault::Late(LATE));
        let made = db.create_checkpoint("one").is_ok();
        if handle.steps() <= at {
            process.kill(db);
            break;
        }
        assert_eq!(db.checkpoints().unwrap().is_empty(), !made, "step {step}");
        change(&db, &mut model, 2);
        db.compact_range(None, None).unwrap();
        while db.run_background_step() {}
        for _ in 0..LATE {
            objects.list(None).unwrap();
        }
        if !made && Db::stored_checkpoints(&storage, "db").unwrap() == ["one"] {
            let cloned = Db::clone_checkpoint(&storage, "db", "one", "copy");
            assert_eq!(cloned.unwrap_err().kind(), ErrorKind::Busy, "step {step}");
            arrived += 1;
        }
        process.kill(db);
        let process = Process::with_empty_memory();
        let owner = process.open(quiet(&storage));
        assert_eq!(owner.checkpoints().unwrap().is_empty(), !made, "step {step}");
        assert_eq!(Db::stored_checkpoints(&storage, "db").unwrap().is_empty(), !made, "step {step}");
        assert_eq!(contents(&owner), model, "step {step}");
        process.kill(owner);
    }
    assert!(arrived > 0);
}
