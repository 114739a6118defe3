//! Bugs planted in the engine that show between threads: readers find batches that are not whole. The simulation
//! (`testing/simulation/tests/planted.rs`) finds the bugs that show on one thread.

use crate::alone;
use crate::common::{Cluster, SetWhenDropped, small_options};
use forebay_engine::planted::{Bug, plant};
use forebay_engine::{Db, Options, ShardBounds, WriteBatch};
use forebay_env::{Clock, SystemClock};
use std::sync::atomic::{AtomicBool, Ordering};

/// How long to look for a bug.
const PATIENCE_NANOS: u64 = 60_000_000_000;
/// How long to check that nothing is found without one.
const TRIAL_NANOS: u64 = 2_000_000_000;
const WRITERS: u32 = 2;
/// Pairs that are written together: both in the first shard, and one in each.
const PAIRS: [[&[u8]; 2]; 2] = [[b"a", b"b"], [b"c", b"x"]];

fn finds_half_a_batch(db: &Db, for_nanos: u64) -> bool {
    let clock = SystemClock::new();
    let (done, found) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _ends = SetWhenDropped(&done);
        for writer in 0..WRITERS {
            let done = &done;
            scope.spawn(move || {
                for round in 0u32.. {
                    let value = [&round.to_be_bytes()[..], &[writer as u8; 30]].concat();
                    for pair in PAIRS {
                        let mut batch = WriteBatch::new();
                        pair.iter().for_each(|key| {
                            batch.put(key, &value);
                        });
                        db.write(&batch).unwrap();
                    }
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        while clock.now() < for_nanos && !found.load(Ordering::Relaxed) {
            for pair in PAIRS {
                let snapshot = db.snapshot();
                let [one, other] = pair.map(|key| db.get_at(key, &snapshot).unwrap());
                if one != other {
                    found.store(true, Ordering::Relaxed);
                }
            }
        }
    });
    found.into_inner()
}

#[test]
fn planted_bugs_are_found() {
    let _alone = alone();
    for bug in [None].into_iter().chain(Bug::OF_THREADS.map(Some)) {
        let cluster = Cluster::start(256 << 20);
        let bounds = ShardBounds::Given(vec![b"m".to_vec()]);
        let db = cluster.open(Options { shards: 2, shard_bounds: bounds, ..small_options() });
        plant(bug);
        let found = finds_half_a_batch(&db, if bug.is_some() { PATIENCE_NANOS } else { TRIAL_NANOS });
        plant(None);
        assert_eq!(found, bug.is_some(), "{bug:?}");
    }
}
