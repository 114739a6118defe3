//! Bugs planted in what records may ask for: each is found by a short sequence of calls.

use crate::alone;
use crate::common::{Cluster, SetClock, SetWhenDropped, small_options};
use forebay_base::ErrorKind;
use forebay_engine::planted::{Bug, plant};
use forebay_engine::{Db, Keyspaces, Options, ShardBounds, WriteBatch};
use forebay_env::{Clock, SystemClock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn opened(cluster: &Cluster, clock: &Arc<SetClock>) -> Db {
    cluster.open(Options { clock: Arc::clone(clock) as Arc<dyn Clock>, ..small_options() })
}

/// Whether an expired key is seen again, or a snapshot loses one that had not expired.
fn finds_wrong_expiry() -> bool {
    let (cluster, clock) = (Cluster::start(256 << 20), Arc::new(SetClock::default()));
    let db = opened(&cluster, &clock);
    clock.set(1000);
    db.put_expiring(b"key", b"value", 1500).unwrap();
    let snapshot = db.snapshot();
    clock.set(2000);
    assert_eq!(db.get(b"key").unwrap(), None);
    db.compact_range(None, None).unwrap();
    let is_lost = db.get_at(b"key", &snapshot).unwrap().is_none();
    clock.set(1200);
    is_lost || db.get(b"key").unwrap().is_some()
}

/// Whether two keyspaces have keys in common.
fn finds_mixed_keyspaces() -> bool {
    let cluster = Cluster::start(64 << 20);
    let keyspaces = Keyspaces::open(&cluster.open(small_options())).unwrap();
    let [one, other] = ["one", "other"].map(|name| keyspaces.create(name).unwrap());
    one.put(b"key", b"value").unwrap();
    other.get(b"key").unwrap().is_some()
}

/// How long to look for a bug that shows between threads, and to check that nothing is found without one.
const PATIENCE_NANOS: u64 = 60_000_000_000;
const TRIAL_NANOS: u64 = 2_000_000_000;

/// Whether a batch is written on the strength of a value that another write had replaced by then. One thread writes the
/// first key without conditions. Others write to the second key what they found in the first, if it is still there.
fn finds_stale_condition(for_nanos: u64) -> bool {
    let cluster = Cluster::start(256 << 20);
    let shard_bounds = ShardBounds::Given(vec![b"m".to_vec()]);
    let db = cluster.open(Options { shards: 2, shard_bounds, ..small_options() });
    let (clock, done) = (SystemClock::new(), AtomicBool::new(false));
    let mut found = false;
    for key in [b"a", b"b", b"z"] {
        db.put(key, &0u64.to_le_bytes()).unwrap();
    }
    std::thread::scope(|scope| {
        let _ends = SetWhenDropped(&done);
        for target in [b"b", b"z"] {
            let (db, done) = (&db, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let entry = db.get_entry(b"a").unwrap().unwrap();
                    let mut batch = WriteBatch::new();
                    if let Err(error) = db.write(batch.put(target, &entry.value).require_stamp(b"a", entry.stamp)) {
                        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                    }
                }
            });
        }
        let read = || db.multi_get(&[b"b", b"z"]).unwrap();
        for round in 1u64.. {
            let value = round.to_le_bytes().to_vec();
            db.put(b"a", &value).unwrap();
            let before = read();
            for _ in 0..3 {
                let now = read();
                // A writer that writes after the put has seen it.
                found |= now.iter().zip(&before).any(|(now, before)| now != before && now.as_ref() != Some(&value));
            }
            if found || clock.now() > for_nanos {
                return;
            }
        }
    });
    found
}

#[test]
fn planted_bugs_are_found() {
    let _alone = alone();
    assert!(!finds_wrong_expiry());
    for bug in Bug::OF_EXPIRY {
        plant(Some(bug));
        let found = finds_wrong_expiry();
        plant(None);
        assert!(found, "{bug:?}");
    }
    assert!(!finds_mixed_keyspaces());
    plant(Some(Bug::ReuseKeyspaces));
    let found = finds_mixed_keyspaces();
    plant(None);
    assert!(found, "a number of a keyspace that is used twice");
    assert!(!finds_stale_condition(TRIAL_NANOS));
    plant(Some(Bug::JudgeBeforeReserved));
    let found = finds_stale_condition(PATIENCE_NANOS);
    plant(None);
    assert!(found, "a condition that is judged too early");
}
