//! Logs, files that are missing from them, and what is left over.

use crate::common::Cluster;
use crate::common::model::key;
use crate::common::process::Process;
use crate::common::stored::{four_shards, of_disk, of_objects, options};
use forebay_base::{ErrorKind, Record, SequenceNumber};
use forebay_engine::{Db, Error, Options, SalvagedEntry, Storage, StoredDatabase, Syncing, WriteBatch};
use forebay_storage::{Disk, DiskFault, MemoryObjects, ObjectFault, ObjectName, ObjectStorage, PutMode, SimDisk};
use std::sync::{Arc, Mutex};

#[test]
fn a_shard_that_writes_little_does_not_hold_the_log() {
    let objects = MemoryObjects::new();
    let process = Process::with_empty_memory();
    let db = process.open(four_shards(options(&of_objects(&objects.handle()), Syncing::Sync)));
    db.put(b"01999", b"little").unwrap();
    // More than the log keeps for it.
    for number in 0..300 {
        let mut batch = WriteBatch::new();
        batch.put(&key(number % 400), &vec![number as u8; 30 << 10]);
        db.write(&batch).unwrap();
    }
    let log_bytes = || {
        let listed = objects.list(None).unwrap();
        let segments = listed.iter().filter(|object| object.name.as_str().contains("/log/"));
        segments.map(|segment| segment.size_bytes).sum::<u64>()
    };
    crate::common::eventually("the log is trimmed", || {
        db.put(&key(1), &[1; 8 << 10]).unwrap();
        log_bytes() < 6 << 20
    });
    process.kill(db);
    let process = Process::with_empty_memory();
    let db = process.open(four_shards(options(&of_objects(&objects.handle()), Syncing::Sync)));
    assert_eq!(db.get(b"01999").unwrap().as_deref(), Some(&b"little"[..]));
}

/// If each sync puts an object, a memtable that is far from full has thousands of them in the log.
#[test]
fn a_log_of_small_objects_does_not_become_many() {
    let objects = MemoryObjects::new();
    let large =
        |storage: &Storage| Options { write_buffer_bytes: 4 << 20, ..four_shards(options(storage, Syncing::Sync)) };
    let process = Process::with_empty_memory();
    let db = process.open(large(&of_objects(&objects.handle())));
    let in_log = || {
        let listed = objects.list(None).unwrap();
        listed.iter().filter(|object| object.name.as_str().contains("/log/")).count()
    };
    for number in 0..3000 {
        db.put(&key(number % 400), b"little").unwrap();
    }
    let mut writes = 3000;
    crate::common::eventually("the log is trimmed", || {
        db.put(&key(writes % 400), b"little").unwrap();
        writes += 1;
        in_log() <= 256 + 2
    });
    process.kill(db);
    let (left, process) = (in_log(), Process::with_empty_memory());
    let storage = of_objects(&objects.handle());
    let db = process.open(large(&storage));
    for number in 0..400 {
        assert_eq!(db.get(&key(number)).unwrap().as_deref(), Some(&b"little"[..]));
    }
    // Each object of the log was asked for once.
    let read = storage.counts().objects_read;
    assert!((left as u64..left as u64 + 60).contains(&read), "{read} requests for {left} objects");
}

/// A process that is killed leaves a log to the next one, however little it wrote.
#[test]
fn logs_of_processes_that_wrote_little_do_not_become_many() {
    let objects = MemoryObjects::new();
    let mut most = 0;
    for life in 0..40 {
        let handle = objects.handle();
        let process = Process::with_empty_memory();
        let db = process.open(Options { background_threads: 0, ..options(&of_objects(&handle), Syncing::Sync) });
        most = most.max(db.recovery().unwrap().logs);
        assert!((0..life).all(|number| db.get(&key(number)).unwrap().is_some()), "life {life}");
        db.put(&key(life), b"little").unwrap();
        while db.run_background_step() {}
        handle.end_at(handle.steps());
        process.kill(db);
    }
    assert!(most <= 17, "{most}");
}

/// An owner is killed after the commit that releases a log, and before all of the log is deleted.
#[test]
fn what_is_left_of_a_log_that_no_commit_names_is_deleted() {
    for on_disk in [true, false] {
        let (disk, objects) = (SimDisk::new(), MemoryObjects::new());
        let storage = |nonce| match on_disk {
            true => of_disk(&disk.handle(), nonce),
            false => of_objects(&objects.handle()),
        };
        let cluster = Cluster::start(64 << 20);
        let process = Process::start([&cluster]);
        let db = process.open(options(&storage(1), Syncing::Sync));
        db.put(b"a", b"value").unwrap();
        db.close().unwrap();
        process.kill(db);
        let left = |number: u64| {
            let name = forebay_storage::ObjectName::new(format!("db/log/{:020}/{number:020}", 1)).unwrap();
            let log = storage(2).create_log(&name, number).unwrap();
            // Tables have it.
            let mut record = Vec::new();
            Record::put(SequenceNumber(1), b"a", &[7; 1000]).encode(&mut record);
            log.sync(log.append(0, 1, &record).unwrap()).unwrap();
        };
        let bytes_left = || {
            let listed = storage(3).objects().list(None).unwrap();
            let logs = listed.iter().filter(|object| object.name.as_str().contains("/log/"));
            logs.map(|object| object.size_bytes).sum::<u64>()
        };
        (7..9).for_each(left);
        assert!(bytes_left() > 2000);
        let process = Process::start([&cluster]);
        let db = process.open(Options { background_threads: 0, ..options(&storage(4), Syncing::Sync) });
        assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"value"[..]));
        while db.run_background_step() {}
        assert!(bytes_left() < 200, "on disk: {on_disk}, {} bytes", bytes_left());
        db.close().unwrap();
        drop(db);
        left(9);
        Db::destroy_stored(&storage(5), &process.clients, "db").unwrap();
        assert!(bytes_left() < 200, "on disk: {on_disk}, {} bytes", bytes_left());
    }
}

/// Tables have all of a log that no commit names any more. But where it is damaged, nobody knows, and whoever opens the database is told of
/// the damage.
#[test]
fn damage_to_a_log_that_no_commit_names_is_told() {
    let objects = MemoryObjects::new();
    let storage = of_objects(&objects.handle());
    let process = Process::with_empty_memory();
    let db = process.open(options(&storage, Syncing::Sync));
    db.put(b"a", b"value").unwrap();
    db.close().unwrap();
    process.kill(db);
    let name = ObjectName::new(format!("db/log/{:020}/{:020}", 1, 7)).unwrap();
    let log = storage.create_log(&name, 7).unwrap();
    for number in 1..3 {
        let mut record = Vec::new();
        Record::put(SequenceNumber(1), b"a", &[7; 100]).encode(&mut record);
        log.sync(log.append(0, number, &record).unwrap()).unwrap();
    }
    let damaged = name.numbered(2).unwrap();
    objects.flip(&damaged, 120, 1).unwrap();
    let process = Process::with_empty_memory();
    let refused = process.try_open(options(&storage, Syncing::Sync)).unwrap_err();
    assert!(refused.kind() == ErrorKind::Corrupt && refused.to_string().contains(damaged.as_str()), "{refused}");
    assert!(!refused.to_string().contains("holds writes"), "{refused}");
    let report = StoredDatabase::new(&storage, "db").unwrap().verify(&mut |_| ()).unwrap();
    let told = format!("{:?}", report.problems);
    assert!(report.problems.len() == 1 && told.contains(damaged.as_str()), "{told}");
    objects.flip(&damaged, 120, 1).unwrap();
    assert_eq!(process.open(options(&storage, Syncing::Sync)).get(b"a").unwrap().as_deref(), Some(&b"value"[..]));
}

/// Nothing continues the newest commit, so nothing but the log that it named says that there was one.
#[test]
fn a_log_whose_commit_is_gone_is_not_deleted() {
    for (on_disk, lives) in [(true, 1), (true, 2), (false, 1), (false, 2)] {
        let (disk, objects) = (SimDisk::new(), MemoryObjects::new());
        let storage = |nonce| match on_disk {
            true => of_disk(&disk.handle(), nonce),
            false => of_objects(&objects.handle()),
        };
        for life in 1..=lives {
            let process = Process::with_empty_memory();
            let db = process.open(Options { background_threads: 0, ..options(&storage(life), Syncing::Sync) });
            (0..10).for_each(|number| db.put(&key(10 * life + number), b"value").unwrap());
            if life < lives {
                db.close().unwrap();
            }
            process.kill(db);
        }
        let commits = ObjectName::new("db/commit").unwrap();
        let kept = storage(3);
        let newest = kept.objects().list(Some(&commits)).unwrap().pop().unwrap().name;
        let commit = kept.objects().get(&newest).unwrap();
        kept.objects().delete(&newest).unwrap();
        let before = kept.objects().list(None).unwrap();
        let expected = (Some(ErrorKind::Corrupt), vec![ErrorKind::Corrupt], (10 * lives as usize, true));
        assert_eq!(said(&kept), expected, "on disk: {on_disk}, {lives} lives");
        assert_eq!(kept.objects().list(None).unwrap(), before, "opening has changed something");
        kept.objects().put(&newest, commit, PutMode::IfAbsent).unwrap();
        assert_eq!(said(&kept), (None, vec![], (10 * lives as usize, false)));
    }
}

/// What is reported of a database in damaged storage: by opening it, by verifying it (kinds), and by saving what is
/// left (the number of keys, and whether there are problems).
fn said(storage: &Storage) -> (Option<ErrorKind>, Vec<ErrorKind>, (usize, bool)) {
    let looked = StoredDatabase::new(storage, "db").unwrap();
    let verified = looked.verify(&mut |_| ()).unwrap();
    let mut saved = 0;
    let salvaged = looked.salvage(&mut |_| ()).unwrap().save(|_: SalvagedEntry<'_>| {
        saved += 1;
        Ok::<_, Error>(())
    });
    let process = Process::with_empty_memory();
    let opened = process.try_open(options(storage, Syncing::Sync)).map(|db| process.kill(db));
    let problems = verified.problems.iter().map(|problem| problem.kind).collect();
    (opened.err().map(|error| error.kind()), problems, (saved, !salvaged.unwrap().problems.is_empty()))
}

/// All that was written is in the log, which has several files.
#[test]
fn files_that_are_missing_from_a_log_are_found() {
    let disk = SimDisk::new();
    let process = Process::with_empty_memory();
    let options = options(&of_disk(&disk.handle(), 1), Syncing::Sync);
    let db = process.open(Options { write_buffer_bytes: 1 << 20, ..options });
    (0..400).for_each(|number| db.put(&key(number), &[7; 200]).unwrap());
    process.kill(db);
    let folder = format!("db/log/{:020}/{:020}", 1, 1);
    let files: Vec<_> =
        disk.list(&folder).unwrap().into_iter().map(|entry| format!("{folder}/{}", entry.name)).collect();
    assert!(files.len() > 4, "{files:?}");
    let said_after = |harm: &dyn Fn(&SimDisk)| {
        let disk = disk.duplicate();
        harm(&disk);
        said(&of_disk(&disk, 2))
    };
    assert_eq!(said_after(&|_| ()), (None, vec![], (400, false)));
    let count = files.len();
    let remove = |disk: &SimDisk, which: std::ops::Range<usize>| {
        files[which].iter().for_each(|path| disk.remove(path).unwrap());
    };
    for which in [0..count, count - 1..count, count - 2..count, 0..1, 1..2] {
        let (opened, problems, (saved, has_problems)) = said_after(&|disk| remove(disk, which.clone()));
        assert_eq!((opened, problems), (Some(ErrorKind::Corrupt), vec![ErrorKind::Corrupt]), "{which:?} of {count}");
        assert!(has_problems && saved < 400, "{saved} without {which:?} of {count}");
        assert_eq!(saved == 0, which == (0..count), "{saved} without {which:?} of {count}");
    }
    let length = disk.open(&files[count - 1], false).unwrap().length().unwrap();
    for length in [0, 40, 1000, length / 4] {
        let cut = |disk: &SimDisk| disk.open(&files[count - 1], true).unwrap().truncate(length).unwrap();
        let (opened, problems, (saved, has_problems)) = said_after(&cut);
        assert_eq!((opened, problems), (Some(ErrorKind::Corrupt), vec![ErrorKind::Corrupt]), "cut to {length} bytes");
        assert!(has_problems && (1..400).contains(&saved), "{saved}, cut to {length} bytes");
    }
}

/// A log has failed, and another one continues it. The last group of the first one is damaged, which looks like a torn end,
/// and the second one shows that it was durable. Openings that fail cut nothing: once the damage is repaired, all is there.
#[test]
fn the_end_of_a_log_that_another_one_continues_is_not_cut() {
    let disk = SimDisk::new();
    let handle = disk.handle();
    let quiet = |storage: &Storage| Options { background_threads: 0, ..options(storage, Syncing::Sync) };
    let process = Process::with_empty_memory();
    let db = process.open(quiet(&of_disk(&handle, 1)));
    (0..3).for_each(|number| db.put(&key(number), b"value").unwrap());
    handle.fail_at(handle.steps(), DiskFault::Refused(ErrorKind::Io));
    db.put(&key(3), b"value").unwrap_err();
    db.resume().unwrap();
    db.put(&key(4), b"value").unwrap();
    process.kill(db);
    let log = |serial: u64| format!("db/log/{:020}/{serial:020}/{:020}.log", 1, 1);
    let file = disk.open(&log(1), false).unwrap();
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    let written = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    let flip = || disk.flip(&log(1), written as u64, 1).unwrap();
    flip();
    for nonce in 2..4 {
        let storage = of_disk(&disk, nonce);
        let refused = Process::with_empty_memory().try_open(quiet(&storage)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
        let report = StoredDatabase::new(&storage, "db").unwrap().verify(&mut |_| ()).unwrap();
        assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
        for told in [refused.to_string(), report.problems[0].detail.clone()] {
            assert!([1, 2].iter().all(|serial| told.contains(&log(*serial))), "{told}");
        }
        assert!(report.notes.iter().all(|note| note.object != log(1)), "{:?}", report.notes);
    }
    flip();
    let process = Process::with_empty_memory();
    let db = process.open(quiet(&of_disk(&disk, 4)));
    assert!((0..5).all(|number| db.get(&key(number)).unwrap().is_some()));
    assert_eq!(db.recovery().unwrap().cuts, []);
    process.kill(db);
}

/// The last group has a batch over two shards, and the process ends at each step of flushing them. Then the part that was
/// written last is damaged, which looks like a torn end. Where the other part is in a table, that shows that the group
/// was durable: nobody reads half of the batch. The opening that fails cuts nothing.
#[test]
fn tables_show_that_the_end_of_a_log_was_durable() {
    let quiet = |storage: &Storage| Options {
        background_threads: 0,
        storage_lag_memtables: 0,
        ..four_shards(options(storage, Syncing::Sync))
    };
    let keys = [3, 700].map(key);
    let log = format!("db/log/{:020}/{:020}/{:020}.log", 1, 1, 1);
    let (mut cut, mut refused) = (0, 0);
    for step in 0.. {
        let (disk, image) = (SimDisk::new(), Arc::new(Mutex::new(None)));
        let (handle, all, taken) = (disk.handle(), disk.handle(), Arc::clone(&image));
        let process = Process::with_empty_memory();
        let db = process.open(quiet(&of_disk(&handle, 1)));
        keys.iter().for_each(|key| db.put(key, b"before").unwrap());
        let mut batch = WriteBatch::new();
        batch.put(&keys[0], b"batch").put(&keys[1], b"batch");
        db.write(&batch).unwrap();
        handle.interrupt_at(handle.steps() + step, move || *taken.lock().unwrap() = Some(all.duplicate()));
        db.flush().unwrap();
        let image = image.lock().unwrap().take();
        process.kill(db);
        let Some(disk) = image else { break };
        let file = disk.open(&log, false).unwrap();
        let mut bytes = vec![0; file.length().unwrap() as usize];
        file.read_at(0, &mut bytes).unwrap();
        let written = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        let flip = || disk.flip(&log, written as u64, 1).unwrap();
        flip();
        let process = Process::with_empty_memory();
        let found = |db: &Db| keys.each_ref().map(|key| db.get(key).unwrap().unwrap() == b"batch");
        match process.try_open(quiet(&of_disk(&disk, 2))) {
            Ok(db) => {
                assert_eq!((found(&db), db.recovery().unwrap().cuts.len()), ([false; 2], 1), "step {step}");
                cut += 1;
                process.kill(db);
            }
            Err(error) => {
                let looked = StoredDatabase::new(&of_disk(&disk, 3), "db").unwrap();
                let report = looked.verify(&mut |_| ()).unwrap();
                assert_eq!((error.kind(), report.problems.len()), (ErrorKind::Corrupt, 1), "step {step}");
                for told in [error.to_string(), report.problems[0].detail.clone()] {
                    assert!(told.contains("which tables hold") && told.contains(&log), "step {step}: {told}");
                }
                // A repair says that something is lost.
                let salvage = looked.salvage(&mut |_| ()).unwrap();
                let saved = salvage.save(|_: SalvagedEntry<'_>| Ok::<_, Error>(())).unwrap();
                let is_told = saved.problems.iter().any(|problem| problem.detail.contains("lost writes"));
                assert!(is_told, "step {step}: {:?}", saved.problems);
                refused += 1;
                flip();
                let process = Process::with_empty_memory();
                let db = process.open(quiet(&of_disk(&disk, 4)));
                assert_eq!((found(&db), db.recovery().unwrap().cuts.len()), ([true; 2], 0), "step {step}");
                process.kill(db);
            }
        }
    }
    assert!(cut > 0 && refused > 0, "{cut} cut, {refused} refused");
}

/// The frames of a log were lost to a power failure, and its header is damaged: the log seems never to have begun. The commit
/// that names it shows that it had, and the error names the file. Once that is repaired, the database opens.
#[test]
fn a_log_that_a_commit_names_is_damaged_where_it_seems_never_to_have_begun() {
    type Harm<'h> = &'h dyn Fn(&SimDisk);
    let disk = SimDisk::new();
    let process = Process::with_empty_memory();
    let db = process.open(options(&of_disk(&disk.handle(), 1), Syncing::Sync));
    db.put(b"a", b"value").unwrap();
    process.kill(db);
    let path = format!("db/log/{:020}/{:020}/{:020}.log", 1, 1, 1);
    // What the power failure leaves: a header (40 bytes), and room.
    let file = disk.open(&path, true).unwrap();
    file.write_at(40, &vec![0; file.length().unwrap() as usize - 40]).unwrap();
    let harms: [(Harm<'_>, [&str; 2]); 4] = [
        (&|disk| disk.flip(&path, 1, 1).unwrap(), [&path, "it had begun, as a commit names the log"]),
        (&|disk| disk.open(&path, true).unwrap().truncate(40).unwrap(), [&path, "it ends after its header"]),
        (
            &|disk| disk.open(&path, true).unwrap().truncate(0).unwrap(),
            [&path, "it had begun, as a commit names the log"],
        ),
        (&|disk| disk.remove(&path).unwrap(), ["the log db/log/", "is missing"]),
    ];
    for (harm, said) in harms {
        let disk = disk.duplicate();
        harm(&disk);
        let storage = of_disk(&disk, 2);
        let report = StoredDatabase::new(&storage, "db").unwrap().verify(&mut |_| ()).unwrap();
        assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
        let refused = Process::with_empty_memory().try_open(options(&storage, Syncing::Sync)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
        for told in [refused.to_string(), format!("{:?}", report.problems)] {
            assert!(said.iter().all(|part| told.contains(part)), "{told}");
        }
        // It can be dropped all the same.
        Db::destroy_stored(&storage, &[], "db").unwrap();
    }
    let storage = of_disk(&disk, 2);
    disk.flip(&path, 1, 1).unwrap();
    Process::with_empty_memory().try_open(options(&storage, Syncing::Sync)).unwrap_err();
    disk.flip(&path, 1, 1).unwrap();
    let process = Process::with_empty_memory();
    let db = process.open(options(&storage, Syncing::Sync));
    assert_eq!(db.recovery().unwrap().cuts, []);
    process.kill(db);
}

#[test]
fn a_log_in_objects_that_is_missing_is_found() {
    let objects = MemoryObjects::new();
    let process = Process::with_empty_memory();
    let db = process.open(options(&of_objects(&objects.handle()), Syncing::Sync));
    (0..20).for_each(|number| db.put(&key(number), b"value").unwrap());
    process.kill(db);
    let log = ObjectName::new("db/log").unwrap();
    for object in objects.list(Some(&log)).unwrap() {
        objects.delete(&object.name).unwrap();
    }
    let (opened, problems, (saved, has_problems)) = said(&of_objects(&objects.handle()));
    assert_eq!((opened, problems), (Some(ErrorKind::Corrupt), vec![ErrorKind::Corrupt]));
    assert_eq!((saved, has_problems), (0, true));
    // It can be dropped all the same.
    Db::destroy_stored(&of_objects(&objects.handle()), &[], "db").unwrap();
}

/// At some step, and at some after it, a service says that what is asked for is not there. What was acknowledged is in
/// a table, in a checkpoint, and in objects of the log that are followed only by records of other shards.
#[test]
fn what_is_not_found_by_mistake_is_not_lost() {
    let sound = MemoryObjects::of_service();
    let quiet = |storage: &Storage| Options { background_threads: 0, ..four_shards(options(storage, Syncing::Sync)) };
    let process = Process::with_empty_memory();
    let db = process.open(quiet(&of_objects(&sound.handle())));
    let keys = [3, 700, 1100, 1700].map(key);
    db.put(&keys[0], b"table").unwrap();
    db.create_checkpoint("checkpoint").unwrap();
    db.compact_range(None, None).unwrap();
    keys.iter().for_each(|key| db.put(key, b"log").unwrap());
    process.kill(db);
    let check = |db: &Db, what: &str| {
        for key in &keys {
            assert_eq!(db.get(key).unwrap().as_deref(), Some(&b"log"[..]), "{what}");
        }
    };
    let mut refused = 0;
    for answers in 1..=4_usize {
        for step in (0..).step_by(answers.div_ceil(2)) {
            let what = format!("{answers} times not found at step {step}");
            let objects = sound.duplicate();
            let handle = objects.handle();
            (step..step + answers as u64).for_each(|at| handle.fail_at(at, ObjectFault::Refused(ErrorKind::NotFound)));
            let process = Process::with_empty_memory();
            match process.try_open(quiet(&of_objects(&handle))) {
                Ok(db) => {
                    check(&db, &what);
                    let _flushed = db.flush();
                    while db.run_background_step() {}
                    process.kill(db);
                }
                Err(error) => {
                    assert_ne!(error.kind(), ErrorKind::NotFound, "{what}: {error}");
                    refused += 1;
                }
            }
            let process = Process::with_empty_memory();
            let storage = of_objects(&objects.handle());
            let db = process.open(quiet(&storage));
            check(&db, &what);
            process.kill(db);
            let process = Process::with_empty_memory();
            let db = Db::open_checkpoint(&process.clients, quiet(&storage), "checkpoint").unwrap();
            assert_eq!(db.get(&keys[0]).unwrap().as_deref(), Some(&b"table"[..]), "{what}");
            db.close().unwrap();
            if handle.steps() <= step {
                break;
            }
        }
    }
    assert!(refused > 20, "{refused}");
}

/// A database of which no commit is left is not taken for a new one, and nothing of it is deleted.
#[test]
fn commits_that_are_missing_are_found() {
    for is_flushed in [false, true] {
        let objects = MemoryObjects::new();
        let storage = of_objects(&objects.handle());
        let process = Process::with_empty_memory();
        let db = process.open(options(&storage, Syncing::Sync));
        (0..200).for_each(|number| db.put(&key(number), &[7; 200]).unwrap());
        if is_flushed {
            db.flush().unwrap();
        }
        process.kill(db);
        let listed = |folder: &str| objects.list(Some(&ObjectName::new(folder).unwrap())).unwrap();
        listed("db/commit").iter().for_each(|commit| objects.delete(&commit.name).unwrap());
        let left = listed("db");
        for create_if_missing in [true, false] {
            let process = Process::with_empty_memory();
            let refused =
                process.try_open(Options { create_if_missing, ..options(&storage, Syncing::Sync) }).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
            assert!(refused.to_string().contains("forebay repair"), "{refused}");
        }
        assert_eq!(Db::options_of_stored(&storage, "db").unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(Db::destroy_stored(&storage, &[], "db").unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(listed("db"), left);
        let (_, _, (saved, _)) = said(&storage);
        assert_eq!(saved, 200);
        // If nobody needs what is left, deleting it makes room.
        left.iter().for_each(|object| objects.delete(&object.name).unwrap());
        let process = Process::with_empty_memory();
        let db = process.open(options(&storage, Syncing::Sync));
        db.put(b"key", b"value").unwrap();
        db.close().unwrap();
        Db::destroy_stored(&storage, &[], "db").unwrap();
        assert_eq!(Db::options_of_stored(&storage, "db").unwrap_err().kind(), ErrorKind::NotFound);
        process.open(options(&storage, Syncing::Sync)).close().unwrap();
    }
}

/// A commit that names a new log fails: the same log is named by the next one, and no other one is created.
#[test]
fn a_log_is_there_before_a_commit_names_it() {
    let (objects, process) = (MemoryObjects::new(), Process::with_empty_memory());
    let handle = objects.handle();
    let db = process.open(Options { background_threads: 0, ..options(&of_objects(&handle), Syncing::Sync) });
    let log = ObjectName::new("db/log").unwrap();
    // The log's first object, and then the commit.
    handle.fail_at(handle.steps() + 1, ObjectFault::Refused(ErrorKind::Unavailable));
    assert_eq!(db.put(b"a", b"1").unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(objects.list(Some(&log)).unwrap().len(), 1);
    assert_eq!(said(&of_objects(&objects.duplicate())).1, []);
    // What failed is shipped first.
    db.put(b"b", b"2").unwrap();
    assert_eq!(objects.list(Some(&log)).unwrap().len(), 3);
    process.kill(db);
}

/// What a killed process was writing is noted, and is removed when a database is opened in the same storage. What a
/// living process writes stays.
#[test]
fn what_interrupted_writes_left_is_removed_by_the_next_owner() {
    let disk = SimDisk::new();
    let storage = |nonce| of_disk(&disk.handle(), nonce);
    let process = Process::with_empty_memory();
    let db = process.open(options(&storage(1), Syncing::Sync));
    db.put(b"a", b"1").unwrap();
    process.kill(db);
    let (killed, name) = (disk.handle(), ObjectName::new("other/object").unwrap());
    let begin = |storage: &Storage| {
        let mut writer = storage.objects().writer(&name).unwrap();
        writer.write(bytes::Bytes::from_static(b"some of it")).unwrap();
        writer
    };
    let left = begin(&of_disk(&killed, 2));
    killed.end_at(0);
    let lives = begin(&storage(3));
    let temporary = || disk.list(".tmp").unwrap().len();
    assert_eq!(temporary(), 2);
    let notes = StoredDatabase::new(&storage(4), "db").unwrap().verify(&mut |_| ()).unwrap().notes;
    assert_eq!(notes.iter().filter(|note| note.object.starts_with(".tmp/")).count(), 1, "{notes:?}");
    let process = Process::with_empty_memory();
    let db = process.open(options(&storage(5), Syncing::Sync));
    assert_eq!(temporary(), 1);
    lives.finish().unwrap();
    drop(left);
    assert_eq!(storage(6).objects().get(&name).unwrap(), &b"some of it"[..]);
    process.kill(db);
}

/// Owners end at each step of beginning a log. The next process that opens the database deletes what they leave, as
/// `verify` says.
#[test]
fn a_log_without_records_that_nothing_names_is_deleted() {
    let mut noted = [0; 2];
    for on_disk in [false, true] {
        for step in 0.. {
            let (disk, objects) = (SimDisk::new(), MemoryObjects::new());
            let (first, all) = match on_disk {
                true => (of_disk(&disk, 1), of_disk(&disk.handle(), 2)),
                false => (of_objects(&objects), of_objects(&objects.handle())),
            };
            let quiet = |storage: &Storage| Options { background_threads: 0, ..options(storage, Syncing::Sync) };
            let process = Process::with_empty_memory();
            let db = process.open(quiet(&first));
            match on_disk {
                true => disk.end_at(disk.steps() + step),
                false => objects.end_at(objects.steps() + step),
            }
            let written = db.put(b"key", b"value");
            process.kill(db);
            let orphans = || {
                let report = StoredDatabase::new(&all, "db").unwrap().verify(&mut |_| ()).unwrap();
                report.notes.iter().filter(|note| note.detail.contains("a log of")).count()
            };
            noted[usize::from(on_disk)] += orphans();
            let process = Process::with_empty_memory();
            let db = process.open(quiet(&all));
            db.flush().unwrap();
            db.close().unwrap();
            assert_eq!(orphans(), 0, "on disk {on_disk}, step {step}");
            if written.is_ok() {
                break;
            }
        }
    }
    assert!(noted.iter().all(|noted| *noted > 0), "{noted:?}");
}
