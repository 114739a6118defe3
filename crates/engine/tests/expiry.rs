//! Keys that expire: what snapshots and later processes see, and what compactions drop.

use crate::common::{Cluster, SetClock, small_options};
use forebay_engine::{CompactionPlace, Db, Options, ShardBounds, WriteBatch};
use forebay_env::Clock;
use std::sync::Arc;

fn clocked(clock: &Arc<SetClock>, options: Options) -> Options {
    Options { clock: Arc::clone(clock) as Arc<dyn Clock>, ..options }
}

fn keys(db: &Db) -> Vec<Vec<u8>> {
    let mut iterator = db.iter().unwrap();
    iterator.seek_to_first().unwrap();
    let mut keys = Vec::new();
    while iterator.valid() {
        keys.push(iterator.key().to_vec());
        iterator.next().unwrap();
    }
    keys
}

#[test]
fn an_expired_key_is_deleted_for_every_read() {
    for place in [CompactionPlace::ComputeNode, CompactionPlace::MemoryNode] {
        let (cluster, clock) = (Cluster::start(256 << 20), Arc::new(SetClock::default()));
        let db = cluster.open(clocked(&clock, Options { compaction_place: place, ..small_options() }));
        clock.set(1000);
        db.put(b"a", b"before").unwrap();
        db.compact_range(None, None).unwrap();
        db.put_expiring(b"a", b"short", 1500).unwrap();
        let mut batch = WriteBatch::new();
        db.write(batch.put_expiring(b"b", b"long", 9000).put(b"c", b"for ever")).unwrap();
        let snapshot = db.snapshot();
        let mut iterator = db.iter().unwrap();
        iterator.seek(b"a").unwrap();
        assert_eq!((iterator.value(), iterator.expiry_ms()), (&b"short"[..], Some(1500)));
        clock.set(1500);
        assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"short"[..]));
        let entry = db.get_entry(b"a").unwrap().unwrap();
        assert_eq!((entry.expiry_ms, entry.stamp.sequence().0), (Some(1500), 2));
        clock.set(1501);
        for round in 0..3 {
            assert_eq!(db.get(b"a").unwrap(), None, "round {round}");
            assert_eq!(db.multi_get(&[b"a", b"b"]).unwrap(), [None, Some(b"long".to_vec())]);
            assert_eq!(keys(&db), [b"b", b"c"]);
            assert_eq!(db.get_at(b"a", &snapshot).unwrap().as_deref(), Some(&b"short"[..]), "round {round}");
            match round {
                0 => db.flush().unwrap(),
                _ => db.compact_range(None, None).unwrap(),
            }
        }
        // The clock is set back: what was hidden stays hidden.
        clock.set(1000);
        assert_eq!((db.get(b"a").unwrap(), db.time_ms()), (None, 1501));
        drop((snapshot, iterator));
        db.compact_range(None, None).unwrap();
        assert_eq!(db.statistics().levels.iter().map(|level| level.entries).sum::<u64>(), 2, "it is dropped");
        // And an older value below an expired one never comes back.
        assert_eq!(db.get(b"a").unwrap(), None);
        db.close().unwrap();
    }
}

#[test]
fn the_next_process_begins_no_earlier_than_what_was_dropped() {
    let (cluster, clock) = (Cluster::start(256 << 20), Arc::new(SetClock::default()));
    let named = || clocked(&clock, Options { name: Some("expiring".to_owned()), shards: 2, ..small_options() });
    let db = cluster.open(named());
    clock.set(1000);
    for key in [b"a", b"\xf0"] {
        db.put_expiring(key, b"value", 1100).unwrap();
    }
    clock.set(2000);
    db.compact_range(None, None).unwrap();
    assert_eq!(keys(&db), [[0u8; 0]; 0]);
    db.close().unwrap();
    drop(db);
    clock.set(500);
    let db = cluster.open(named());
    assert_eq!(db.time_ms(), 2000, "a compaction has dropped by this time");
    db.put_expiring(b"a", b"too late", 1999).unwrap();
    assert_eq!(db.get(b"a").unwrap(), None);
    db.close().unwrap();
}

#[test]
fn the_next_process_begins_at_its_clock_even_if_that_is_set_back_before_its_first_read() {
    let (cluster, clock) = (Cluster::start(256 << 20), Arc::new(SetClock::default()));
    let named = || {
        let name = Some("expiring".to_owned());
        clocked(&clock, Options { name, shards: 2, takeover: true, ..small_options() })
    };
    let db = cluster.open(named());
    clock.set(1000);
    for key in [b"a", b"\xf0"] {
        db.put_expiring(key, b"value", 1500).unwrap();
    }
    db.flush().unwrap();
    clock.set(2000);
    assert_eq!(keys(&db), [[0u8; 0]; 0]);
    let next = cluster.open(named());
    clock.set(1200);
    assert_eq!((next.get(b"a").unwrap(), next.get(b"\xf0").unwrap()), (None, None));
    assert_eq!((keys(&next), next.time_ms()), (Vec::new(), 2000));
    next.close().unwrap();
}

#[test]
fn a_moved_bound_drops_nothing_that_has_expired() {
    let (cluster, clock) = (Cluster::start(256 << 20), Arc::new(SetClock::default()));
    let named = || {
        let (name, merge_operator) = (Some("expiring".to_owned()), Some("append".to_owned()));
        let shard_bounds = ShardBounds::Given(vec![b"m".to_vec()]);
        clocked(&clock, Options { name, merge_operator, shards: 2, shard_bounds, ..small_options() })
    };
    let db = cluster.open(named());
    clock.set(1000);
    let mut batch = WriteBatch::new();
    for key in [b"a", b"b", b"z"] {
        batch.put_expiring(key, b"value", 1100);
    }
    db.write(batch.merge(b"b", b", and more")).unwrap();
    // No compaction drops by a later time.
    let snapshot = db.snapshot();
    clock.set(2000);
    db.move_bound(0, b"A").unwrap();
    assert_eq!(keys(&db), [b"b"]);
    assert_eq!(db.get(b"b").unwrap().as_deref(), Some(&b", and more"[..]));
    db.close().unwrap();
    drop((snapshot, db));
    // The clock was set back: the next process sees the batch as a whole.
    clock.set(1050);
    let db = cluster.open(named());
    assert_eq!((db.time_ms(), keys(&db)), (1050, vec![b"a".to_vec(), b"b".to_vec(), b"z".to_vec()]));
    assert_eq!(db.get(b"b").unwrap().as_deref(), Some(&b"value, and more"[..]));
    db.close().unwrap();
}

#[test]
fn expiries_survive_moves_logs_and_checkpoints() {
    let (cluster, clock) = (Cluster::start(256 << 20), Arc::new(SetClock::default()));
    let named = || {
        let name = Some("expiring".to_owned());
        let durability = forebay_engine::Durability::Memory { copies: 1 };
        clocked(&clock, Options { name, durability, shards: 2, takeover: true, ..small_options() })
    };
    let db = cluster.open(named());
    clock.set(1000);
    let key = |number: u32| format!("key {number:03}").into_bytes();
    for number in 0..100 {
        db.put_expiring(&key(number), &[7; 100], 2000 + u64::from(number)).unwrap();
    }
    // Keys move to the other shard, and back in part.
    db.move_bound(0, &key(0)).unwrap();
    db.move_bound(0, &key(50)).unwrap();
    db.put_expiring(&key(100), b"in the log", 2100).unwrap();
    let check = |db: &Db, what: &str| {
        for number in [0, 49, 50, 99, 100] {
            let entry = db.get_entry(&key(number)).unwrap().unwrap_or_else(|| panic!("{what}: {number}"));
            assert_eq!(entry.expiry_ms, Some(2000 + u64::from(number)), "{what}");
        }
    };
    check(&db, "moved");
    // Another process takes over: the earlier one's memtables are lost, not its log.
    let next = cluster.open(named());
    check(&next, "taken over");
    let folder = std::env::temp_dir().join(format!("forebay-expiry-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("checkpoint");
    next.checkpoint(&path).unwrap();
    let restored = Db::restore(&[cluster.client()], clocked(&clock, small_options()), &path).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    check(&restored, "restored");
    clock.set(2050);
    for db in [&next, &restored] {
        assert_eq!(keys(db).len(), 51);
    }
}
