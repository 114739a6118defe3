//! Range deletions: races, snapshots, the memory they free, and their cost.

use crate::common::{Cluster, SetWhenDropped, small_options};
use forebay_base::ErrorKind;
use forebay_engine::{Db, IterOptions, Options, Snapshot, WriteBatch};
use forebay_env::Random;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

const GROUPS: u64 = 20;
const MEMBERS: u64 = 8;

fn member(group: u64, member: u64) -> Vec<u8> {
    format!("{group:04}/{member:04}").into_bytes()
}

fn delete_groups(db: &Db, from: u64, to: u64) {
    db.delete_range(&member(from, 0), &member(to, 0)).unwrap();
}

/// The contents of a snapshot, forward and backward. Each group must be present as a whole or not
/// at all.
fn contents(db: &Db, snapshot: &Snapshot) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut iterator = db.iter_at(snapshot).unwrap();
    let mut entries = Vec::new();
    iterator.seek_to_first().unwrap();
    while iterator.valid() {
        entries.push((iterator.key().to_vec(), iterator.value().to_vec()));
        iterator.next().unwrap();
    }
    iterator.seek_to_last().unwrap();
    for (key, value) in entries.iter().rev() {
        assert_eq!((iterator.key(), iterator.value()), (&key[..], &value[..]));
        iterator.prev().unwrap();
    }
    assert!(!iterator.valid());
    for group in entries.chunk_by(|a, b| a.0[..4] == b.0[..4]) {
        assert_eq!(group.len() as u64, MEMBERS, "half a group: {:?}", String::from_utf8_lossy(&group[0].0));
        assert!(group.iter().all(|(_, value)| *value == group[0].1), "a group of two rounds");
    }
    entries
}

#[test]
fn groups_are_whole_while_ranges_are_deleted() {
    let cluster = Cluster::start(512 << 20);
    let db = cluster.open(small_options());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (db, done, ends) = (&db, &done, SetWhenDropped(&done));
        let writers: Vec<_> = (0..2u64)
            .map(|seed| {
                scope.spawn(move || {
                    let mut random = Random::seeded(seed);
                    for round in 0..4000u64 {
                        if random.one_in(1, 4) {
                            let from = random.below(GROUPS);
                            delete_groups(db, from, from + 1 + random.below(3));
                            continue;
                        }
                        let (group, mut batch) = (random.below(GROUPS), WriteBatch::new());
                        let value = [&seed.to_le_bytes()[..], &round.to_le_bytes(), &[7; 40]].concat();
                        for i in 0..MEMBERS {
                            batch.put(&member(group, i), &value);
                        }
                        db.write(&batch).unwrap();
                    }
                })
            })
            .collect();
        // No other thread uses this one's groups, so it sees its own effects.
        let owner = scope.spawn(move || {
            for round in 0..1500u64 {
                let (key, end) = (member(5000, round % 7), member(5000, 9999));
                let mut batch = WriteBatch::new();
                for i in 0..MEMBERS {
                    batch.put(&member(5000, i), &round.to_le_bytes());
                }
                db.write(&batch).unwrap();
                assert_eq!(db.get(&key).unwrap().as_deref(), Some(&round.to_le_bytes()[..]));
                db.delete_range(&member(5000, 0), &end).unwrap();
                assert_eq!(db.get(&key).unwrap(), None);
                let keys: Vec<_> = (0..MEMBERS).map(|i| member(5000, i)).collect();
                let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
                assert_eq!(db.multi_get(&keys).unwrap(), vec![None; keys.len()]);
            }
        });
        let reader = scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let snapshot = db.snapshot();
                let before = contents(db, &snapshot);
                for (key, value) in before.iter().step_by(3) {
                    assert_eq!(db.get_at(key, &snapshot).unwrap().as_ref(), Some(value));
                }
                assert_eq!(contents(db, &snapshot), before);
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        owner.join().unwrap();
        drop(ends);
        reader.join().unwrap();
    });
    let statistics = db.statistics();
    assert!(statistics.flushes > 10 && statistics.compactions > 2, "{statistics:?}");
}

#[test]
fn what_is_hidden_is_freed_unless_a_snapshot_sees_it() {
    let cluster = Cluster::start(256 << 20);
    let db = cluster.open(small_options());
    for group in 0..200 {
        (0..MEMBERS).for_each(|i| db.put(&member(group, i), &[group as u8; 100]).unwrap());
    }
    db.compact_range(None, None).unwrap();
    let snapshot = db.snapshot();
    delete_groups(&db, 0, 10_000);
    assert_eq!(db.get(&member(7, 1)).unwrap(), None);
    db.put(&member(7, 1), b"again").unwrap();
    // One memtable with only a range deletion, and later writes in the next.
    db.flush().unwrap();
    for _ in 0..2 {
        assert_eq!(db.get(&member(7, 1)).unwrap().as_deref(), Some(&b"again"[..]));
        assert_eq!(db.get(&member(8, 1)).unwrap(), None);
        assert_eq!(db.get_at(&member(8, 1), &snapshot).unwrap().unwrap(), [8; 100]);
        assert_eq!(contents_of(&db, IterOptions::default()), [member(7, 1)]);
        let past = IterOptions { snapshot: Some(&snapshot), ..IterOptions::default() };
        assert_eq!(contents_of(&db, past).len() as u64, 200 * MEMBERS);
        db.compact_range(None, None).unwrap();
    }
    drop(snapshot);
    db.put(&member(0, 0), b"new").unwrap();
    db.put(&member(9000, 0), b"new").unwrap();
    db.compact_range(None, None).unwrap();
    let statistics = db.statistics();
    assert!(statistics.live_bytes < 1000, "{statistics:?}");
    assert_eq!(contents_of(&db, IterOptions::default()).len(), 3);
}

#[test]
fn tables_under_a_range_deletion_go_without_being_read_once_nobody_sees_them() {
    let cluster = Cluster::start(256 << 20);
    let db = cluster.open(Options { settle_after: None, background_threads: 0, ..small_options() });
    let settle = || while db.run_background_step() {};
    for group in 0..200 {
        (0..MEMBERS).for_each(|i| db.put(&member(group, i), &[group as u8; 100]).unwrap());
    }
    db.compact_range(None, None).unwrap();
    let tables: u64 = db.statistics().levels.iter().map(|level| level.tables).sum();
    let snapshot = db.snapshot();
    // A group is left at each end, so the first and the last table are hidden only in part.
    delete_groups(&db, 1, 199);
    db.flush().unwrap();
    settle();
    let before = db.statistics();
    assert!(tables > 4 && before.hidden_tables == 0, "the snapshot sees them: {before:?}");
    assert_eq!(db.get_at(&member(8, 1), &snapshot).unwrap().unwrap(), [8; 100]);
    drop(snapshot);
    db.run_background_step();
    let after = db.statistics();
    assert_eq!((after.hidden_tables, after.compactions), (tables - 2, before.compactions), "{after:?}");
    assert!(after.live_bytes < before.live_bytes / 2, "{after:?}");
    settle();
    let left: Vec<_> = [0, 199].iter().flat_map(|group| (0..MEMBERS).map(|i| member(*group, i))).collect();
    assert_eq!(contents_of(&db, IterOptions::default()), left);
}

#[test]
fn what_was_dropped_is_gone_for_the_next_process_and_what_is_hidden_in_part_stays_hidden() {
    let cluster = Cluster::start(256 << 20);
    let options = Options { name: Some("db".to_owned()), settle_after: None, background_threads: 0, ..small_options() };
    let db = cluster.open(options.clone());
    for group in 0..200 {
        (0..MEMBERS).for_each(|i| db.put(&member(group, i), &[group as u8; 100]).unwrap());
    }
    db.compact_range(None, None).unwrap();
    delete_groups(&db, 1, 199);
    db.put(&member(7, 0), b"later").unwrap();
    db.flush().unwrap();
    db.run_background_step();
    assert!(db.statistics().hidden_tables > 2, "{:?}", db.statistics());
    db.close().unwrap();
    let db = cluster.open(options);
    let of_group = |group| (0..MEMBERS).map(move |i| member(group, i));
    let left: Vec<_> = of_group(0).chain([member(7, 0)]).chain(of_group(199)).collect();
    assert_eq!(contents_of(&db, IterOptions::default()), left);
    db.compact_range(None, None).unwrap();
    assert_eq!(contents_of(&db, IterOptions::default()), left);
}

/// The range deletion is cut where tables begin, so each table ends at the key at which the next one begins.
#[test]
fn what_only_a_snapshot_needed_is_freed_in_every_table() {
    let cluster = Cluster::start(256 << 20);
    let db = cluster.open(Options { settle_after: None, ..small_options() });
    for group in 0..200 {
        (0..MEMBERS).for_each(|i| db.put(&member(group, i), &[group as u8; 100]).unwrap());
    }
    db.compact_range(None, None).unwrap();
    let snapshot = db.snapshot();
    delete_groups(&db, 0, 10_000);
    db.compact_range(None, None).unwrap();
    let tables = || db.statistics().levels.iter().map(|level| level.tables).sum::<u64>();
    assert!(tables() > 4, "{:?}", db.statistics());
    assert_eq!(db.get_at(&member(8, 1), &snapshot).unwrap().unwrap(), [8; 100]);
    drop(snapshot);
    db.compact_range(None, None).unwrap();
    assert_eq!((tables(), db.statistics().live_bytes), (0, 0), "{:?}", db.statistics());
}

fn contents_of(db: &Db, options: IterOptions<'_>) -> Vec<Vec<u8>> {
    let mut iterator = db.iter_with(&options).unwrap();
    let mut keys = Vec::new();
    iterator.seek_to_first().unwrap();
    while iterator.valid() {
        keys.push(iterator.key().to_vec());
        iterator.next().unwrap();
    }
    keys
}

#[test]
fn a_hidden_key_costs_no_round_trip() {
    let cluster = Cluster::start(256 << 20);
    let db = cluster.open(Options::default());
    for group in 0..1000 {
        db.put(&member(group, 0), &[1; 400]).unwrap();
    }
    db.compact_range(None, None).unwrap();
    delete_groups(&db, 100, 200);
    for is_flushed in [false, true] {
        let before = db.statistics().foreground;
        for group in 100..200 {
            assert_eq!(db.get(&member(group, 0)).unwrap(), None);
        }
        assert_eq!((db.statistics().foreground - before).round_trips, 0, "flushed: {is_flushed}");
        assert!(db.get(&member(200, 0)).unwrap().is_some());
        db.flush().unwrap();
    }
}

#[test]
fn bad_ranges_and_many() {
    let cluster = Cluster::start(256 << 20);
    // No table holds several memtables, however late they are flushed.
    let db = cluster.open(Options { target_table_bytes: 4 << 10, ..Options::default() });
    db.put(b"a", b"1").unwrap();
    db.delete_range(b"a", b"a").unwrap();
    assert_eq!(db.delete_range(b"b", b"a").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(db.delete_range(b"a", &[9; 65_537]).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(db.get(b"a").unwrap().is_some());
    // More than a memtable takes: it ends early.
    for group in 0..3000 {
        (0..2).for_each(|i| db.put(&member(group, i), b"2").unwrap());
        db.delete_range(&member(group, 0), &member(group, 1)).unwrap();
    }
    db.flush().unwrap();
    assert_eq!(db.statistics().levels[0].tables, 3, "{:?}", db.statistics());
    assert_eq!(contents_of(&db, IterOptions::default()).len(), 3001);
    for group in 0..3000 {
        assert_eq!(db.get(&member(group, 0)).unwrap(), None);
        assert!(db.get(&member(group, 1)).unwrap().is_some());
    }
}

/// Tables in levels that the options no longer know go down as before.
#[test]
fn a_database_opens_with_fewer_levels_than_it_has() {
    for levels in [2, 3] {
        let cluster = Cluster::start(256 << 20);
        let options = Options { name: Some("db".to_owned()), level1_bytes: 16 << 10, levels: 7, ..small_options() };
        let options = Options { level_size_multiplier: 2, ..options };
        let mut random = Random::seeded(levels as u64);
        let mut model = BTreeMap::new();
        for levels in [7, levels, 7, levels] {
            let db = cluster.open(Options { levels, ..options.clone() });
            for _ in 0..3000 {
                let group = random.below(200);
                if random.one_in(1, 20) {
                    delete_groups(&db, group, group + 3);
                    model.retain(|key: &Vec<u8>, _| *key < member(group, 0) || *key >= member(group + 3, 0));
                    continue;
                }
                let (key, value) = (member(group, random.below(MEMBERS)), random.word().to_le_bytes().repeat(8));
                db.put(&key, &value).unwrap();
                model.insert(key, value);
            }
            db.wait_for_compactions().unwrap();
            let deepest = db.statistics().levels.iter().rposition(|level| level.tables > 0).unwrap();
            assert!(deepest >= levels || levels == 7, "{deepest}");
            for group in 0..200 {
                for i in 0..MEMBERS {
                    let key = member(group, i);
                    assert_eq!(db.get(&key).unwrap(), model.get(&key).cloned());
                }
            }
            let property = format!("forebay.num-files-at-level{deepest}");
            assert!(db.property(&property).is_some_and(|tables| tables != "0"), "{property}");
            db.close().unwrap();
        }
        let db = cluster.open(Options { levels, ..options });
        db.compact_range(None, None).unwrap();
        let mut iterator = db.iter().unwrap();
        iterator.seek_to_first().unwrap();
        for (key, value) in &model {
            assert_eq!((iterator.key(), iterator.value()), (&key[..], &value[..]));
            iterator.next().unwrap();
        }
        assert!(!iterator.valid());
        db.close().unwrap();
    }
}
