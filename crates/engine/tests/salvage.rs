//! What is saved of a database whose indexes are damaged: nothing that was deleted comes back unmarked.

use crate::common::model::{Model, contents};
use crate::common::process::Process;
use crate::common::stored::{of_objects, options};
use forebay_engine::{
    Cell, CompactionStyle, Db, Error, FlushOrder, Options, Report, SalvagedEntry, Shown, StoredDatabase, Syncing,
};
use forebay_storage::{MemoryObjects, ObjectName, ObjectStorage};
use std::collections::BTreeSet;

const KEYS: u64 = 600;

fn key(number: u64) -> Vec<u8> {
    format!("{number:05}").into_bytes()
}

/// A database without background work and without a log. Its records stay where they are, dead or alive, and its images
/// have several blocks.
fn build(objects: &MemoryObjects, flush_order: FlushOrder, write: impl FnOnce(&Db)) -> Model {
    let quiet = Options {
        background_threads: 0,
        compaction_style: CompactionStyle::Unclustered,
        settle_after: None,
        dead_percent: 1000,
        write_buffer_bytes: 1 << 20,
        target_table_bytes: 1 << 20,
        level1_bytes: 16 << 20,
        block_bytes: 1 << 10,
        flush_order,
        ..options(&of_objects(&objects.handle()), Syncing::Flush)
    };
    let process = Process::with_empty_memory();
    let db = process.open(quiet);
    (0..KEYS).for_each(|number| db.put(&key(number), &[7; 40]).unwrap());
    db.flush().unwrap();
    write(&db);
    let model = contents(&db);
    db.close().unwrap();
    model
}

/// Deletes some keys. A compaction then leaves no trace of them but the dead records.
fn delete_some(db: &Db) {
    (5..KEYS).step_by(10).for_each(|number| db.delete(&key(number)).unwrap());
    db.flush().unwrap();
    db.compact_range(None, None).unwrap();
}

/// The rows of a list of the manifest, with these columns.
fn rows<const N: usize>(objects: &MemoryObjects, list: &str, columns: [&str; N]) -> Vec<[Cell; N]> {
    let looked = StoredDatabase::new(&of_objects(&objects.handle()), "db").unwrap();
    let report = looked.show(&Shown::Manifest, 1000).unwrap();
    let section = report.sections.iter().find(|section| section.name == list).unwrap();
    let place = columns.map(|column| section.columns.iter().position(|name| *name == column).unwrap());
    section.rows.iter().map(|row| place.map(|at| row[at].clone())).collect()
}

/// The objects of the images of tables, from level 0 on.
pub(crate) fn images(objects: &MemoryObjects) -> Vec<ObjectName> {
    let tables = rows(objects, "tables", ["image"]);
    let segments = rows(objects, "segments", ["segment", "object"]);
    let object = |image: &Cell| {
        let [_, object] = segments.iter().find(|[segment, _]| segment == image).unwrap();
        let Cell::Text(name) = object else { panic!("{object:?} is no name") };
        ObjectName::new(name.as_str()).unwrap()
    };
    tables.iter().map(|[image]| object(image)).collect()
}

/// What is saved for certain, what is saved in doubt, and the report.
fn salvaged(objects: &MemoryObjects, leaves_out_doubt: bool) -> (Model, Model, Report) {
    let looked = StoredDatabase::new(&of_objects(&objects.handle()), "db").unwrap();
    let salvage = looked.salvage(&mut |_| ()).unwrap();
    let salvage = if leaves_out_doubt { salvage.without_doubt() } else { salvage };
    let (mut certain, mut in_doubt) = (Model::new(), Model::new());
    let report = salvage.save(|SalvagedEntry { key, value, is_in_doubt, .. }| {
        let model = if is_in_doubt { &mut in_doubt } else { &mut certain };
        model.insert(key.to_vec(), value.to_vec());
        Ok::<_, Error>(())
    });
    (certain, in_doubt, report.unwrap())
}

fn count(report: &Report, column: &str) -> u64 {
    let section = report.sections.iter().find(|section| section.name == "salvaged").unwrap();
    let at = section.columns.iter().position(|name| *name == column).unwrap();
    let Cell::Number(count) = section.rows[0][at] else { panic!("{column} is no number") };
    count
}

#[test]
fn what_a_compaction_deleted_does_not_come_back_where_the_point_index_is_whole() {
    let objects = MemoryObjects::new();
    let model = build(&objects, FlushOrder::AsWritten, delete_some);
    let [image] = &images(&objects)[..] else { panic!("one table") };
    // A byte of its first block.
    objects.flip(image, 50, 1).unwrap();
    let (certain, in_doubt, report) = salvaged(&objects, false);
    assert!(report.problems.iter().any(|problem| problem.detail.contains("all are found")), "{report:?}");
    assert!(certain == model && in_doubt.is_empty(), "{} and {} keys", certain.len(), in_doubt.len());
}

#[test]
fn what_a_compaction_may_have_deleted_is_in_doubt() {
    let objects = MemoryObjects::new();
    let model = build(&objects, FlushOrder::AsWritten, delete_some);
    let [image] = &images(&objects)[..] else { panic!("one table") };
    objects.delete(image).unwrap();
    let (certain, in_doubt, report) = salvaged(&objects, false);
    assert_eq!((certain.len(), in_doubt.len() as u64), (0, KEYS));
    assert!(model.iter().all(|(key, value)| in_doubt.get(key) == Some(value)));
    assert_eq!((count(&report, "keys_saved"), count(&report, "keys_in_doubt")), (KEYS, KEYS));
    let (certain, in_doubt, report) = salvaged(&objects, true);
    assert!(certain.is_empty() && in_doubt.is_empty());
    assert_eq!((count(&report, "keys_saved"), count(&report, "keys_in_doubt")), (0, KEYS));
}

#[test]
fn how_many_keys_are_lost_is_unknown_where_index_and_records_are() {
    let objects = MemoryObjects::new();
    build(&objects, FlushOrder::AsWritten, |_| ());
    let segments = objects.list(Some(&ObjectName::new("db/segment").unwrap())).unwrap();
    segments.iter().for_each(|object| objects.delete(&object.name).unwrap());
    let (certain, in_doubt, report) = salvaged(&objects, false);
    assert!(certain.is_empty() && in_doubt.is_empty() && !report.problems.is_empty());
    let section = report.sections.iter().find(|section| section.name == "salvaged").unwrap();
    let at = section.columns.iter().position(|name| *name == "keys_lost").unwrap();
    assert_eq!(section.rows[0][at], Cell::Unknown);
}

/// Deletes a range, by a table above the one that has the keys. No record of the deletion is among the others.
fn delete_range(db: &Db) {
    db.compact_range(None, None).unwrap();
    db.delete_range(&key(0), &key(100)).unwrap();
    (KEYS / 2..KEYS).for_each(|number| db.put(&key(number), &[8; 40]).unwrap());
    db.flush().unwrap();
}

#[test]
fn range_deletions_of_a_damaged_index_count() {
    let objects = MemoryObjects::new();
    let model = build(&objects, FlushOrder::ByKey, delete_range);
    let [image, _] = &images(&objects)[..] else { panic!("two tables") };
    objects.flip(image, 50, 1).unwrap();
    let (certain, in_doubt, report) = salvaged(&objects, false);
    assert!(!report.problems.is_empty());
    assert!(certain == model && in_doubt.is_empty(), "{} and {} keys", certain.len(), in_doubt.len());
}

#[test]
fn what_a_lost_range_deletion_may_have_deleted_is_in_doubt() {
    let objects = MemoryObjects::new();
    let model = build(&objects, FlushOrder::ByKey, delete_range);
    let [image, _] = &images(&objects)[..] else { panic!("two tables") };
    objects.delete(image).unwrap();
    let (certain, in_doubt, report) = salvaged(&objects, false);
    let names_it = |detail: &str| detail.contains("its 1 range deletions are lost");
    assert!(report.problems.iter().any(|problem| problem.object == image.as_str() && names_it(&problem.detail)));
    // Its number is the only one that no record has, so it deleted nothing that the table has.
    assert_eq!(certain.keys().cloned().collect::<Vec<_>>(), (KEYS / 2..KEYS).map(key).collect::<Vec<_>>());
    assert_eq!(in_doubt.len() as u64, KEYS / 2);
    assert!(model.iter().all(|(key, value)| [&certain, &in_doubt].iter().any(|saved| saved.get(key) == Some(value))));
}

/// Overwrites some keys. A compaction then leads to what is new, and the segment of the old records keeps them.
fn overwrite_some(db: &Db) {
    (0..KEYS).step_by(3).for_each(|number| db.put(&key(number), &[8; 40]).unwrap());
    db.flush().unwrap();
    db.compact_range(None, None).unwrap();
}

#[test]
fn no_key_is_in_doubt_where_each_write_is_found() {
    for flush_order in [FlushOrder::AsWritten, FlushOrder::ByKey] {
        let objects = MemoryObjects::new();
        let model = build(&objects, flush_order, overwrite_some);
        let [image] = &images(&objects)[..] else { panic!("one table") };
        objects.delete(image).unwrap();
        let (certain, in_doubt, report) = salvaged(&objects, false);
        assert!(certain == model && in_doubt.is_empty(), "{} and {} keys", certain.len(), in_doubt.len());
        assert_eq!(count(&report, "keys_in_doubt"), 0);
    }
}

/// The same, but a key is also deleted, and of that nothing is left. What was written later is not in doubt.
#[test]
fn what_was_written_after_the_last_write_that_is_lost_is_not_in_doubt() {
    let objects = MemoryObjects::new();
    let model = build(&objects, FlushOrder::AsWritten, |db| {
        db.delete(&key(5)).unwrap();
        db.flush().unwrap();
        overwrite_some(db);
    });
    let [image] = &images(&objects)[..] else { panic!("one table") };
    objects.delete(image).unwrap();
    let (certain, in_doubt, _) = salvaged(&objects, false);
    let expected: Model =
        model.iter().filter(|(_, value)| value[0] == 8).map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(expected.len() as u64, KEYS / 3);
    assert!(certain == expected, "{} keys", certain.len());
    assert_eq!(in_doubt.len() as u64, KEYS - KEYS / 3);
    assert!(in_doubt.contains_key(&key(5)));
}

/// A segment is lost together with the index. What was there has numbers that nothing else has.
#[test]
fn what_a_lost_segment_may_have_replaced_is_in_doubt() {
    let objects = MemoryObjects::new();
    let segments = || {
        let listed = objects.list(Some(&ObjectName::new("db/segment").unwrap())).unwrap();
        listed.into_iter().map(|object| object.name).collect::<BTreeSet<_>>()
    };
    let newest: Vec<_> = (50..60).map(key).collect();
    let mut before = BTreeSet::new();
    let mut model = build(&objects, FlushOrder::AsWritten, |db| {
        overwrite_some(db);
        db.flush().unwrap();
        before = segments();
        newest.iter().for_each(|key| db.put(key, &[9; 40]).unwrap());
        db.flush().unwrap();
    });
    let of_newest: Vec<_> = segments().difference(&before).cloned().collect();
    assert_eq!(of_newest.len(), 2, "records and an image");
    of_newest.iter().for_each(|name| objects.delete(name).unwrap());
    let (certain, in_doubt, _) = salvaged(&objects, false);
    assert_eq!(in_doubt.keys().cloned().collect::<Vec<_>>(), newest);
    newest.iter().for_each(|key| drop(model.remove(key)));
    assert!(certain == model, "{} keys", certain.len());
}
