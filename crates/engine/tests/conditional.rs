//! Batches that are written only if conditions hold.

use crate::common::{Cluster, SetClock, SetWhenDropped, small_options};
use forebay_base::ErrorKind;
use forebay_engine::{Db, Durability, Entry, Options, ShardBounds, WriteBatch};
use forebay_env::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Writes a value under a condition. Returns whether the condition held.
fn writes_if(db: &Db, condition: impl FnOnce(&mut WriteBatch)) -> bool {
    let mut batch = WriteBatch::new();
    batch.put(b"written", b"by the batch");
    condition(&mut batch);
    db.delete(b"written").unwrap();
    let result = db.write(&batch);
    let is_written = db.get(b"written").unwrap().is_some();
    match result {
        Ok(()) => assert!(is_written),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            assert!(!is_written, "{error}");
        }
    }
    is_written
}

fn entry(db: &Db, key: &[u8]) -> Entry {
    db.get_entry(key).unwrap().unwrap()
}

/// One shard, and two shards between which the written key and the others are divided.
fn with_shards(each: impl Fn(&Db, &SetClock)) {
    for shards in [1, 2] {
        println!("{shards} shards");
        let (cluster, clock) = (Cluster::start(256 << 20), Arc::new(SetClock::default()));
        clock.set(1000);
        let shard_bounds = ShardBounds::Given(if shards == 1 { vec![] } else { vec![b"m".to_vec()] });
        let db_clock = Arc::clone(&clock) as Arc<dyn Clock>;
        let db = cluster.open(Options { shards, shard_bounds, clock: db_clock, ..small_options() });
        each(&db, &clock);
        db.close().unwrap();
        drop(db);
        cluster.expect_nothing_leased();
    }
}

#[test]
fn conditions_hold_or_nothing_is_written() {
    with_shards(|db, clock| {
        // The state of the keys is in memtables, in tables, and in tables of the last level.
        for round in 0..3 {
            println!("round {round}");
            for key in [b"key", b"gap", b"old"] {
                db.put(key, b"value").unwrap();
            }
            db.put_expiring(b"end", b"value", 2000 + round).unwrap();
            db.delete(b"gap").unwrap();
            let snapshot = db.snapshot();
            match round {
                0 => {}
                1 => db.flush().unwrap(),
                _ => db.compact_range(None, None).unwrap(),
            }
            assert!(writes_if(db, |batch| {
                batch.require_absent(b"gap").require_absent(b"never").require_present(b"key").require_present(b"end");
            }));
            assert!(!writes_if(db, |batch| {
                batch.require_absent(b"gap").require_absent(b"key");
            }));
            assert!(!writes_if(db, |batch| {
                batch.require_present(b"gap");
            }));
            let stamp = entry(db, b"key").stamp;
            assert!(writes_if(db, |batch| {
                batch.require_stamp(b"key", stamp);
            }));
            assert!(!writes_if(db, |batch| {
                batch.require_stamp(b"old", stamp);
            }));
            for key in [&b"key"[..], b"gap", b"never", b"end"] {
                assert!(writes_if(db, |batch| {
                    batch.require_unchanged(key, &snapshot);
                }));
            }
            // The same value, written again, is another write.
            db.put(b"key", b"value").unwrap();
            db.put(b"never", b"").unwrap();
            db.delete_range(b"nev", b"nevs").unwrap();
            assert!(!writes_if(db, |batch| {
                batch.require_stamp(b"key", stamp);
            }));
            for key in [b"key".as_slice(), b"never"] {
                if round == 2 {
                    db.compact_range(None, None).unwrap();
                }
                assert!(!writes_if(db, |batch| {
                    batch.require_unchanged(key, &snapshot);
                }));
            }
            // Time passes.
            clock.set(2001 + round);
            assert!(!writes_if(db, |batch| {
                batch.require_unchanged(b"end", &snapshot);
            }));
            assert!(writes_if(db, |batch| {
                batch.require_absent(b"end");
            }));
        }
    });
}

#[test]
fn a_batch_without_writes_only_asks() {
    with_shards(|db, _| {
        db.put(b"a", b"").unwrap();
        let mut batch = WriteBatch::new();
        assert!(!batch.is_conditional());
        batch.require_present(b"a").require_absent(b"z");
        assert!(batch.is_conditional() && batch.is_empty());
        db.write(&batch).unwrap();
        db.put(b"z", b"").unwrap();
        assert_eq!(db.write(&batch).unwrap_err().kind(), ErrorKind::Conflict);
        batch.clear();
        assert!(!batch.is_conditional());
        db.write(&batch).unwrap();
    });
}

#[test]
fn a_snapshot_of_another_database_is_refused() {
    with_shards(|db, _| {
        let cluster = Cluster::start(64 << 20);
        let other = cluster.open(small_options());
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"").require_unchanged(b"a", &other.snapshot());
        assert_eq!(db.write(&batch).unwrap_err().kind(), ErrorKind::Invalid);
        other.write(&batch).unwrap();
    });
}

#[test]
fn a_moved_bound_is_a_conflict_and_the_next_try_goes_through() {
    with_shards(|db, _| {
        if db.shard_bounds().is_empty() {
            return;
        }
        db.put(b"key", b"value").unwrap();
        let (stamp, snapshot) = (entry(db, b"key").stamp, db.snapshot());
        db.move_bound(0, b"a").unwrap();
        assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        assert!(!writes_if(db, |batch| {
            batch.require_stamp(b"key", stamp);
        }));
        assert!(!writes_if(db, |batch| {
            batch.require_unchanged(b"key", &snapshot);
        }));
        let (stamp, snapshot) = (entry(db, b"key").stamp, db.snapshot());
        assert!(writes_if(db, |batch| {
            batch.require_stamp(b"key", stamp).require_unchanged(b"key", &snapshot);
        }));
    });
}

/// A batch whose conditions fail late has numbers of its own. They leave no trace in reads, tables and logs.
#[test]
fn numbers_without_writes_survive_flushes_and_logs() {
    let cluster = Cluster::start(256 << 20);
    let shard_bounds = ShardBounds::Given(vec![b"m".to_vec()]);
    let (name, durability) = (Some("conditional".to_owned()), Durability::Memory { copies: 1 });
    let options = Options { name, durability, shards: 2, shard_bounds, takeover: true, ..small_options() };
    let db = cluster.open(options.clone());
    // Each batch asks in one shard and writes in the other, so each leaves a record without effect. Each part begins
    // with a mark, which also has a number.
    for round in 0..200u32 {
        let mut batch = WriteBatch::new();
        db.write(batch.put(b"z", &round.to_le_bytes()).require_absent(b"a")).unwrap();
        if round % 50 == 49 {
            db.flush().unwrap();
        }
    }
    let mut batch = WriteBatch::new();
    db.write(batch.put(b"a", b"value").require_present(b"z")).unwrap();
    let numbers = db.snapshot().sequence_numbers().to_vec();
    // There are more if a batch met the end of a memtable: it left its numbers there without effect, and began anew.
    assert!(numbers.iter().all(|number| number.0 >= 402), "{numbers:?}");
    let mut iterator = db.iter().unwrap();
    iterator.seek_to_first().unwrap();
    assert_eq!((iterator.key(), iterator.value()), (&b"a"[..], &b"value"[..]));
    let next = cluster.open(options);
    assert_eq!(next.snapshot().sequence_numbers(), numbers, "the log has them all");
    assert_eq!(next.get(b"z").unwrap(), Some(199u32.to_le_bytes().to_vec()));
    next.compact_range(None, None).unwrap();
    assert_eq!(next.statistics().levels.iter().map(|level| level.entries).sum::<u64>(), 2);
    next.close().unwrap();
}

const THREADS: u32 = 4;
const ROUNDS: u32 = 300;

/// Threads add to counters in both shards, each time in one transaction, while others write and bounds move.
#[test]
fn no_update_is_lost() {
    with_shards(|db, _| {
        let done = AtomicBool::new(false);
        let counters: [&[u8]; 3] = [b"a", b"b", b"z"];
        std::thread::scope(|scope| {
            let _ends = SetWhenDropped(&done);
            scope.spawn(|| {
                for round in 0u32.. {
                    db.put(b"noise", &[round as u8; 200]).unwrap();
                    if round % 500 == 499 && !db.shard_bounds().is_empty() {
                        db.move_bound(0, if round % 1000 == 999 { b"m" } else { b"aa" }).unwrap();
                    }
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
            let adds = |thread: u32| {
                for round in 0..ROUNDS {
                    let keys = [counters[(round % 3) as usize], counters[((round + thread) % 3) as usize]];
                    loop {
                        let snapshot = db.snapshot();
                        let mut batch = WriteBatch::new();
                        for (at, key) in keys.into_iter().enumerate() {
                            if at == 1 && key == keys[0] {
                                continue;
                            }
                            let before = db.get_at(key, &snapshot).unwrap();
                            let before = before.map_or(0, |value| u32::from_le_bytes(value.try_into().unwrap()));
                            let after = before + if keys[0] == keys[1] { 2 } else { 1 };
                            batch.put(key, &after.to_le_bytes()).require_unchanged(key, &snapshot);
                        }
                        match db.write(&batch) {
                            Ok(()) => break,
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
                        }
                    }
                }
            };
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || adds(thread))).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        let values = db.multi_get(&counters).unwrap().into_iter().flatten();
        let sum: u32 = values.map(|value| u32::from_le_bytes(value.try_into().unwrap())).sum();
        assert_eq!(sum, THREADS * ROUNDS * 2);
    });
}
