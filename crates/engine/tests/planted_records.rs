//! Bugs planted in what records may ask for: each is found by a short sequence of calls.

use crate::alone;
use crate::common::{Cluster, SetClock, small_options};
use forebay_base::ErrorKind;
use forebay_engine::planted::{Bug, plant};
use forebay_engine::{Db, Keyspaces, Options, ShardBounds, WriteBatch};
use forebay_env::sync::{Mutex, lock};
use forebay_env::{Clock, Nanos, SystemClock};
use std::fmt;
use std::sync::Arc;
use std::thread::{ThreadId, current};
use std::time::Duration;

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

type Interrupt = Box<dyn FnOnce() + Send>;

/// The machine's clock, except for the time since 1970, which is zero. A thread that asks for it may be stopped there
/// once, while something else is done.
#[derive(Default)]
struct StoppingClock {
    machine: SystemClock,
    interrupt: Mutex<Option<(ThreadId, Interrupt)>>,
}

impl StoppingClock {
    /// The next time that this thread asks, another thread does this first.
    fn stop_here(&self, meanwhile: impl FnOnce() + Send + 'static) {
        *lock(&self.interrupt) = Some((current().id(), Box::new(meanwhile)));
    }
}

impl fmt::Debug for StoppingClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoppingClock").finish_non_exhaustive()
    }
}

impl Clock for StoppingClock {
    fn now(&self) -> Nanos {
        self.machine.now()
    }

    fn wall_ms(&self) -> u64 {
        let interrupt = lock(&self.interrupt).take_if(|(thread, _)| *thread == current().id());
        if let Some((_, meanwhile)) = interrupt {
            std::thread::scope(|scope| scope.spawn(meanwhile).join().unwrap());
        }
        0
    }

    fn sleep(&self, duration: Duration) {
        self.machine.sleep(duration);
    }
}

/// Whether a batch is written to `target` on the strength of a value that another write has replaced by then. The writer
/// stands still while it looks at the value, which may expire, so that it asks for the time. Then the value is replaced.
fn finds_stale_condition(target: &[u8]) -> bool {
    let (cluster, clock) = (Cluster::start(256 << 20), Arc::new(StoppingClock::default()));
    let shard_bounds = ShardBounds::Given(vec![b"m".to_vec()]);
    let options = Options { clock: Arc::clone(&clock) as Arc<dyn Clock>, shards: 2, shard_bounds, ..small_options() };
    let db = cluster.open(options);
    db.put_expiring(b"a", b"old", 1000).unwrap();
    let entry = db.get_entry(b"a").unwrap().unwrap();
    let other = db.clone();
    clock.stop_here(move || other.put(b"a", b"new").unwrap());
    let mut batch = WriteBatch::new();
    let written = db.write(batch.put(target, &entry.value).require_stamp(b"a", entry.stamp));
    assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"new"[..]), "the writer asked for no time");
    let is_there = db.get(target).unwrap().is_some();
    if let Err(error) = &written {
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    }
    assert_eq!(is_there, written.is_ok());
    is_there
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
    // In the shard of the condition, and in another one.
    for target in [b"b", b"z"] {
        assert!(!finds_stale_condition(target));
        plant(Some(Bug::JudgeBeforeReserved));
        let found = finds_stale_condition(target);
        plant(None);
        assert!(found, "a condition that is judged too early");
    }
}
