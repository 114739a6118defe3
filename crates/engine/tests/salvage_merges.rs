//! Values made of operands are saved from a database that is not opened.

use crate::common::process::Process;
use crate::common::stored::{of_objects, options};
use crate::salvage::images;
use forebay_engine::{Db, Error, Options, SalvagedEntry, Storage, StorageOptions, StoredDatabase, Syncing};
use forebay_storage::{MemoryObjects, ObjectStorage, PutMode};
use std::collections::BTreeMap;

fn saved(storage: &Storage) -> (BTreeMap<Vec<u8>, i64>, u64) {
    let looked = StoredDatabase::new(storage, "db").unwrap();
    let salvage = looked.salvage(&mut |_| ()).unwrap();
    assert_eq!(salvage.merge_operator(), Some("counter"));
    let mut found = BTreeMap::new();
    let report = salvage
        .save(|SalvagedEntry { key, value, .. }| {
            found.insert(key.to_vec(), i64::from_le_bytes(value.try_into().unwrap()));
            Ok::<_, Error>(())
        })
        .unwrap();
    (found, report.problems.len() as u64)
}

#[test]
fn operands_are_saved_as_the_values_that_they_make() {
    let storage = Storage::open("memory:", StorageOptions::default()).unwrap();
    let process = Process::with_empty_memory();
    let counting = Options {
        merge_operator: Some("counter".to_owned()),
        background_threads: 0,
        ..options(&storage, Syncing::Sync)
    };
    let db = process.open(counting);
    let mut model = BTreeMap::new();
    let mut add = |db: &Db, keys: std::ops::Range<i64>, by: i64| {
        for key in keys {
            let key = format!("{key:03}").into_bytes();
            db.merge(&key, &by.to_le_bytes()).unwrap();
            *model.entry(key).or_insert(0) += by;
        }
    };
    add(&db, 0..50, 1);
    db.flush().unwrap();
    add(&db, 20..60, 10);
    db.flush().unwrap();
    // Tables of level 0 are merged, and the log still has what they were made of.
    db.compact_range(None, None).unwrap();
    add(&db, 10..40, 100);
    db.flush().unwrap();
    add(&db, 0..70, 1000);
    // A deletion ends a chain, and a value begins one.
    db.delete(b"005").unwrap();
    db.put(b"006", &5_i64.to_le_bytes()).unwrap();
    db.delete_range(b"007", b"009").unwrap();
    add(&db, 5..6, 7);
    add(&db, 6..7, 7);
    add(&db, 8..9, 7);
    process.kill(db);
    for (key, value) in [(&b"005"[..], Some(7)), (b"006", Some(12)), (b"007", None), (b"008", Some(7))] {
        match value {
            Some(value) => drop(model.insert(key.to_vec(), value)),
            None => drop(model.remove(key)),
        }
    }
    assert_eq!(saved(&storage), (model, 0));
}

/// The deletion between a value and an operand is in a table whose index is damaged, and is found by searching its segment.
#[test]
fn a_deletion_that_was_found_by_search_ends_the_operands_above_it() {
    let objects = MemoryObjects::new();
    let process = Process::with_empty_memory();
    let counting = Options {
        merge_operator: Some("counter".to_owned()),
        background_threads: 0,
        ..options(&of_objects(&objects.handle()), Syncing::Flush)
    };
    let db = process.open(counting);
    db.put(b"key", &1_i64.to_le_bytes()).unwrap();
    db.flush().unwrap();
    db.delete(b"key").unwrap();
    // The first of these is dead, so a search does not prove what the index had.
    db.put(b"other", &2_i64.to_le_bytes()).unwrap();
    db.put(b"other", &3_i64.to_le_bytes()).unwrap();
    db.flush().unwrap();
    db.merge(b"key", &10_i64.to_le_bytes()).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let damaged = &images(&objects)[1];
    let mut bytes = objects.get(damaged).unwrap().to_vec();
    bytes[0] ^= 1;
    objects.put(damaged, bytes.into(), PutMode::Replace).unwrap();
    let (found, problems) = saved(&of_objects(&objects.handle()));
    assert!(problems > 0);
    assert_eq!(found.get(&b"key"[..]), Some(&10));
}
