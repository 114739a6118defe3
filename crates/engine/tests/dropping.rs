//! Databases in storage that are dropped, and drops that end in the middle.

use crate::common::Cluster;
use crate::common::model::{contents, key};
use crate::common::process::Process;
use crate::common::stored::{make_log_newer, of_disk, of_objects, options};
use forebay_base::ErrorKind;
use forebay_engine::{Db, Options, StoredDatabase, Syncing};
use forebay_env::Random;
use forebay_storage::{MemoryObjects, ObjectStorage, PutMode, SimDisk};

/// Writes to the database, which then has tables, a log and a note, and whose process is killed.
fn write_and_be_killed(objects: &MemoryObjects, value: &[u8]) {
    let process = Process::with_empty_memory();
    let quiet = Options { background_threads: 0, ..options(&of_objects(&objects.handle()), Syncing::Sync) };
    let db = process.open(quiet);
    (0..20).for_each(|number| db.put(&key(number), value).unwrap());
    db.flush().unwrap();
    db.put(b"log", value).unwrap();
    db.note_benchmark().unwrap();
    process.kill(db);
}

/// What is left there, except commits and seals of logs, which stay.
fn left(objects: &MemoryObjects) -> Vec<String> {
    let listed = objects.list(None).unwrap().into_iter().map(|object| object.name.as_str().to_owned());
    let stays = |name: &String| name.starts_with("db/commit/") || name.starts_with("db/log/");
    listed.filter(|name| !stays(name)).collect()
}

fn verified(objects: &MemoryObjects) -> String {
    let report = StoredDatabase::new(&of_objects(&objects.handle()), "db").unwrap().verify(&mut |_| ());
    match report {
        Ok(report) => format!("{:?}", report.problems),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotFound);
            error.to_string()
        }
    }
}

/// The same, after somebody dropped the database and ended before all of it was deleted.
fn half_dropped(sound: &MemoryObjects) -> MemoryObjects {
    let ends_at = |step| {
        let objects = sound.duplicate();
        let handle = objects.handle();
        handle.end_at(step);
        Db::destroy_stored(&of_objects(&handle), &[], "db").unwrap_err();
        Some(objects).filter(|objects| left(objects).len() < left(sound).len())
    };
    (0..).find_map(ends_at).unwrap()
}

/// The dropping process ends at each step. The same call again finishes the drop.
#[test]
fn a_drop_that_was_interrupted_is_ended_by_the_next_one() {
    let sound = MemoryObjects::new();
    write_and_be_killed(&sound, b"first");
    let (mut alive, mut halves) = (0, 0);
    for step in 0.. {
        let objects = sound.duplicate();
        let handle = objects.handle();
        handle.end_at(step);
        let first = Db::destroy_stored(&of_objects(&handle), &[], "db");
        let storage = of_objects(&objects.handle());
        let verified_between = verified(&objects);
        let again = Db::destroy_stored(&storage, &[], "db");
        assert!(left(&objects).is_empty(), "step {step}: {:?}", left(&objects));
        assert!(verified(&objects).ends_with("was dropped"), "{}", verified(&objects));
        assert_eq!(Db::destroy_stored(&storage, &[], "db").unwrap_err().kind(), ErrorKind::NotFound);
        if first.is_ok() {
            assert_eq!(again.unwrap_err().kind(), ErrorKind::NotFound);
            break;
        }
        again.unwrap_or_else(|error| panic!("step {step}: {error}"));
        match verified_between.as_str() {
            "[]" => alive += 1,
            between if between.ends_with("drop it again") => halves += 1,
            between => panic!("step {step}: {between}"),
        }
        write_and_be_killed(&objects, b"second");
        assert_eq!(verified(&objects), "[]", "step {step}");
    }
    assert!(alive > 2 && halves > 4, "{alive} {halves}");
}

/// A database that gets the name while what is left of another one is being deleted.
#[test]
fn a_later_database_of_the_name_stays() {
    let sound = MemoryObjects::new();
    write_and_be_killed(&sound, b"first");
    let sound = half_dropped(&sound);
    for step in 0.. {
        let objects = sound.duplicate();
        let (handle, other) = (objects.handle(), objects.handle());
        handle.interrupt_at(step, move || write_and_be_killed(&other, b"second"));
        let dropped = Db::destroy_stored(&of_objects(&handle), &[], "db");
        if handle.steps() <= step {
            assert!(step > 6);
            dropped.unwrap();
            break;
        }
        // A process that reads the commits after the new database is there drops all of it.
        if step < 2 {
            continue;
        }
        let process = Process::with_empty_memory();
        let db = process.open(options(&of_objects(&objects.handle()), Syncing::Sync));
        let found = contents(&db);
        assert_eq!(found.len(), 21, "step {step}: {dropped:?}");
        assert!(found.values().all(|value| value == b"second"), "step {step}");
        db.close().unwrap();
        assert_eq!(verified(&objects), "[]", "step {step}");
    }
}

/// Backups of another database of this name that are stored where one was dropped in part.
#[test]
fn what_backups_need_stays() {
    let (lived, dropped) = (MemoryObjects::new(), MemoryObjects::new());
    // Its objects have other names.
    for _ in 0..3 {
        write_and_be_killed(&dropped, b"dropped");
        Db::destroy_stored(&of_objects(&dropped.handle()), &[], "db").unwrap();
    }
    write_and_be_killed(&dropped, b"dropped");
    (0..2).for_each(|_| write_and_be_killed(&lived, b"lived"));
    let dropped = half_dropped(&dropped);
    assert!(!left(&dropped).is_empty());
    let (storage, to) = (of_objects(&lived.handle()), of_objects(&dropped.handle()));
    let process = Process::with_empty_memory();
    let db = process.open(options(&storage, Syncing::Sync));
    let expected = contents(&db);
    db.create_checkpoint("now").unwrap();
    db.close().unwrap();
    Db::back_up(&storage, "db", "now", &to).unwrap();
    let there = left(&dropped);
    assert_eq!(Db::destroy_stored(&to, &[], "db").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(left(&dropped), there);
    Db::clone_checkpoint(&to, "db", "now", "clone").unwrap();
    let clone = Options { name: Some("clone".to_owned()), ..options(&to, Syncing::Sync) };
    assert_eq!(contents(&process.open(clone)), expected);
}

/// A process that cannot read a log drops nothing, not even in memory nodes.
#[test]
fn what_a_newer_build_wrote_keeps_its_copies() {
    let objects = MemoryObjects::new();
    let storage = of_objects(&objects.handle());
    let cluster = Cluster::start(64 << 20);
    let process = Process::start([&cluster]);
    let db = process.open(Options { background_threads: 0, ..options(&storage, Syncing::Sync) });
    (0..20).for_each(|number| db.put(&key(number), b"value").unwrap());
    db.flush().unwrap();
    db.put(b"log", b"value").unwrap();
    process.kill(db);
    let (segment, known) = make_log_newer(&objects);
    let process = Process::start([&cluster]);
    let state = || (process.clients[0].list_stores().unwrap(), objects.list(None).unwrap());
    let before = state();
    assert_eq!(before.0.len(), 1);
    let dropped = Db::destroy_stored(&storage, &process.clients, "db");
    assert_eq!(dropped.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(state(), before);
    objects.put(&segment, known, PutMode::Replace).unwrap();
    Db::destroy_stored(&storage, &process.clients, "db").unwrap();
    assert!(state().0.is_empty() && left(&objects).is_empty());
}

/// A disk without room for a commit. The process that drops the database ends at each step; the same call again
/// finishes the drop. Nobody opens in between what is not all there.
#[test]
fn a_database_on_a_full_disk_is_dropped() {
    for has_tables in [true, false] {
        let sound = SimDisk::new();
        let storage = |disk: &SimDisk| of_disk(disk, Random::secret().unwrap() as u64);
        let quiet = |disk: &SimDisk| Options { background_threads: 0, ..options(&storage(disk), Syncing::Sync) };
        let process = Process::with_empty_memory();
        let db = process.open(quiet(&sound.handle()));
        // Values that compression does not shrink.
        let (mut random, mut value) = (Random::seeded(1), [0; 1000]);
        for number in 0..60 {
            random.fill(&mut value);
            db.put(&key(number), &value).unwrap();
        }
        if has_tables {
            db.close().unwrap();
        }
        process.kill(db);
        sound.leave_room(Some(0));
        let (mut opened, mut refused) = (0, 0);
        for step in 0.. {
            let disk = sound.duplicate();
            let handle = disk.handle();
            handle.end_at(step);
            let first = Db::destroy_stored(&storage(&handle), &[], "db");
            if step % 4 == 0 {
                disk.lose_power(&mut Random::seeded(step));
            }
            let roomy = disk.duplicate();
            roomy.leave_room(None);
            let process = Process::with_empty_memory();
            match process.try_open(Options { create_if_missing: false, ..quiet(&roomy) }) {
                Ok(db) => {
                    assert_eq!(contents(&db).len(), 60, "step {step}");
                    opened += 1;
                }
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Busy | ErrorKind::NotFound), "step {step}: {error}");
                    refused += 1;
                }
            }
            let again = Db::destroy_stored(&storage(&disk.handle()), &[], "db");
            let is_dropped = first.is_ok() || again.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound);
            assert!(is_dropped || again.is_ok(), "step {step}: {again:?}");
            let left = storage(&disk).objects().list(None).unwrap();
            let is_data = |name: &str| !name.starts_with("db/commit/") && !name.ends_with("/seal");
            assert!(!left.iter().any(|object| is_data(object.name.as_str())), "step {step}: {left:?}");
            if first.is_ok() {
                break;
            }
            disk.leave_room(None);
            let process = Process::with_empty_memory();
            let db = process.open(quiet(&disk.handle()));
            assert!(contents(&db).is_empty());
        }
        assert!(opened > 3 && refused > 10, "tables {has_tables}: {opened} {refused}");
    }
}
