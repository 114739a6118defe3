//! Flips bits of a small database in storage, one at a time, and checks what is read then.

use super::model::{Model, scanned};
use super::process::Process;
use super::stored::{of_disk, of_objects, options};
use forebay_base::ErrorKind;
use forebay_engine::{Db, Error, Options, SalvagedEntry, Storage, StoredDatabase, Syncing, WriteBatch};
use forebay_env::thread::run_all;
use forebay_storage::{MemoryObjects, ObjectInfo, ObjectName, SimDisk};

/// Bits of each database that are tried, unless all are.
const SAMPLE: usize = 150;
/// Threads that try them.
const THREADS: usize = 8;
/// Databases that are opened with one memory node. It keeps what it held of those that could not be opened.
const OPENED_BY_ONE: usize = 4;

fn key(number: u64) -> Vec<u8> {
    format!("k{number}").into_bytes()
}

/// One shard without background work.
fn quiet(storage: &Storage) -> Options {
    Options { background_threads: 0, ..options(storage, Syncing::Sync) }
}

/// A database with a table, another one over it, and a log with records that no table has. Returns its contents with
/// the last write and without it.
fn build(storage: &Storage) -> (Model, Model) {
    let process = Process::with_empty_memory();
    let db = process.open(quiet(storage));
    let mut model = Model::new();
    let mut put = |number: u64, value: &[u8]| {
        db.put(&key(number), value).unwrap();
        model.insert(key(number), value.to_vec());
    };
    (0..6).for_each(|number| put(number, &[number as u8; 12]));
    db.flush().unwrap();
    (3..8).for_each(|number| put(number, b"newer"));
    db.delete(&key(0)).unwrap();
    db.delete_range(&key(6), &key(7)).unwrap();
    model.remove(&key(0));
    model.remove(&key(6));
    db.flush().unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&key(1), b"logged").put(&key(8), b"logged too");
    db.write(&batch).unwrap();
    model.insert(key(1), b"logged".to_vec());
    model.insert(key(8), b"logged too".to_vec());
    let before = model.clone();
    db.put(&key(9), b"last").unwrap();
    model.insert(key(9), b"last".to_vec());
    process.kill(db);
    (model, before)
}

/// All that the database shows, by a scan and by point reads.
fn contents(db: &Db) -> Result<Model, Error> {
    let scanned = scanned(db)?;
    for number in 0..12 {
        let found = db.get(&key(number))?;
        assert_eq!(found.as_ref(), scanned.get(&key(number)), "a scan and a read differ");
    }
    Ok(scanned)
}

/// Checks that what is saved without a problem is what was written.
fn check_salvage(looked: &StoredDatabase, with_last: &Model) -> Result<(), String> {
    let mut saved = Model::new();
    let salvage = looked.salvage(&mut |_| ()).map_err(|error| format!("salvage: {error}"))?;
    let report = salvage.save(|SalvagedEntry { key, value, .. }| {
        saved.insert(key.to_vec(), value.to_vec());
        Ok::<(), Error>(())
    });
    let report = report.map_err(|error| format!("salvage: {error}"))?;
    if report.problems.is_empty() && saved != *with_last {
        return Err(format!("saved {saved:?} without a problem"));
    }
    // Objects and their indexes lead to no wrong value. A damaged log or register may hide a newer value.
    let is_of_objects =
        report.problems.iter().all(|problem| problem.object.contains("/segment/") || problem.object.contains("shard"));
    let is_right = |(key, value): (&Vec<u8>, &Vec<u8>)| with_last.get(key) == Some(value);
    if is_of_objects && !saved.iter().all(is_right) {
        return Err(format!("saved {saved:?}, which is not what was written"));
    }
    Ok(())
}

fn is_allowed(process: &Process, storage: &Storage, with_last: &Model, without_last: &Model) -> Result<(), String> {
    let looked = StoredDatabase::new(storage, "db").map_err(|error| error.to_string())?;
    let verified = looked.verify(&mut |_| ());
    check_salvage(&looked, with_last)?;
    let opened = process.try_open(quiet(storage));
    let (cuts, read) = match &opened {
        Ok(db) => (db.recovery().map_or(0, |recovery| recovery.cuts.len()), contents(db)),
        Err(error) => (0, Err(error.clone())),
    };
    match read {
        Ok(found) if found == *with_last => Ok(()),
        Ok(found) if found == *without_last && cuts > 0 => Ok(()),
        Ok(found) => Err(format!("read {found:?} with {cuts} cuts")),
        Err(error) if !matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::NotFound) => {
            Err(format!("{:?}: {error}", error.kind()))
        }
        Err(error) => match verified {
            Ok(report) if report.problems.is_empty() => Err(format!("verified, and: {error}")),
            _ => Ok(()),
        },
    }
}

/// Tries bits: `flipped` returns the storage with a bit of an object flipped.
fn try_bits(what: &str, storage: &Storage, flipped: impl Fn(&ObjectName, u64, u8) -> Storage + Sync) {
    let (with_last, without_last) = build(storage);
    let objects = storage.objects().list(None).unwrap();
    let of_object = |object: ObjectInfo| (0..object.size_bytes * 8).map(move |bit| (object.name.clone(), bit));
    let all: Vec<_> = objects.into_iter().flat_map(of_object).collect();
    let tries_all = std::env::var("FOREBAY_BITS").is_ok_and(|value| value == "all");
    let step = if tries_all { 1 } else { (all.len() / SAMPLE).max(1) | 1 };
    let tried: Vec<_> = all.iter().step_by(step).collect();
    // Opening waits more than it computes.
    let rows = tried.chunks(tried.len().div_ceil(THREADS)).collect();
    let wrong = run_all(rows, |row| {
        let mut wrong = Vec::new();
        for some in row.chunks(OPENED_BY_ONE) {
            let process = Process::with_empty_memory();
            for (name, bit) in some {
                let storage = flipped(name, bit / 8, 1 << (bit % 8));
                if let Err(found) = is_allowed(&process, &storage, &with_last, &without_last) {
                    wrong.push(format!("{what}: bit {bit} of {name}: {found}"));
                }
            }
        }
        wrong
    });
    let wrong: Vec<_> = wrong.into_iter().flat_map(|row| row.expect("a thread panicked")).collect();
    println!("{what}: {} of {} bits", tried.len(), all.len());
    assert!(wrong.is_empty(), "{} wrong, such as {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    assert!(is_allowed(&Process::with_empty_memory(), storage, &with_last, &with_last).is_ok());
}

/// Flips bits of a database on a disk: its log is in files.
///
/// # Panics
/// When something is read that was not written.
pub fn flip_on_a_disk() {
    let disk = SimDisk::new();
    try_bits("disk", &of_disk(&disk.handle(), 1), |name, offset, mask| {
        let copy = disk.duplicate();
        copy.flip(name.as_str(), offset, mask).unwrap();
        of_disk(&copy, 2)
    });
}

/// Flips bits of a database in objects.
///
/// # Panics
/// When something is read that was not written.
pub fn flip_in_objects() {
    let objects = MemoryObjects::new();
    try_bits("objects", &of_objects(&objects.handle()), |name, offset, mask| {
        let copy = objects.duplicate();
        copy.flip(name, offset as usize, mask).unwrap();
        of_objects(&copy)
    });
}
