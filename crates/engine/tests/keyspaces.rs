//! Named keyspaces of one database.

use crate::common::process::Process;
use crate::common::stored::of_objects;
use crate::common::{Cluster, small_options};
use forebay_base::{ErrorKind, KeyOrder};
use forebay_engine::{Db, Durability, IterOptions, Keyspace, Keyspaces, Options, ShardBounds, Syncing, WriteBatch};
use forebay_env::Random;
use forebay_storage::MemoryObjects;
use std::collections::BTreeMap;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn contents(keyspace: &Keyspace) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut iterator = keyspace.iter().unwrap();
    iterator.seek_to_first().unwrap();
    let mut entries = Vec::new();
    while iterator.valid() {
        entries.push((iterator.key().to_vec(), iterator.value().to_vec()));
        iterator.next().unwrap();
    }
    entries
}

#[test]
fn keyspaces_are_created_listed_and_dropped() {
    let cluster = Cluster::start(256 << 20);
    let options = Options { name: Some("keyspaces".to_owned()), shards: 2, ..small_options() };
    let db = cluster.open(options.clone());
    let keyspaces = Keyspaces::open(&db).unwrap();
    assert_eq!(keyspaces.list().unwrap(), [""; 0]);
    let (a, b) = (keyspaces.create("a").unwrap(), keyspaces.create("b").unwrap());
    assert_eq!(keyspaces.create("a").unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(keyspaces.create("a b").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(keyspaces.get("c").unwrap_err().kind(), ErrorKind::NotFound);
    let mut batch = WriteBatch::new();
    batch.within(&a).put(b"key", b"of a").put(b"", b"empty");
    batch.within(&b).put(b"key", b"of b").require_absent(b"key");
    db.write(&batch).unwrap();
    assert_eq!(db.write(&batch).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!((a.get(b"key").unwrap().unwrap(), b.get(b"key").unwrap().unwrap()), (b"of a".into(), b"of b".into()));
    let snapshot = db.snapshot();
    keyspaces.drop("a").unwrap();
    assert_eq!(keyspaces.drop("a").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(keyspaces.list().unwrap(), ["b"]);
    assert_eq!(a.get_at(b"key", &snapshot).unwrap().as_deref(), Some(&b"of a"[..]));
    drop(snapshot);
    // A new keyspace of the same name is another one, and a late writer does not reach it.
    a.put(b"late", b"").unwrap();
    let again = keyspaces.create("a").unwrap();
    assert_eq!(contents(&again), []);
    again.put(b"new", b"value").unwrap();
    db.close().unwrap();
    drop((db, keyspaces, a, b, again));
    let db = cluster.open(options);
    let keyspaces = Keyspaces::open(&db).unwrap();
    assert_eq!(keyspaces.list().unwrap(), ["a", "b"]);
    assert_eq!(contents(&keyspaces.get("a").unwrap()), [(b"new".to_vec(), b"value".to_vec())]);
    db.compact_range(None, None).unwrap();
    // Format, next number, two names, two values: nothing is left of what was dropped.
    assert_eq!(db.statistics().levels.iter().map(|level| level.entries).sum::<u64>(), 6);
    db.close().unwrap();
}

#[test]
fn a_database_with_other_keys_is_refused() {
    let cluster = Cluster::start(64 << 20);
    let db = cluster.open(small_options());
    db.put(b"key", b"").unwrap();
    assert_eq!(Keyspaces::open(&db).unwrap_err().kind(), ErrorKind::Invalid);
    db.delete(b"key").unwrap();
    Keyspaces::open(&db).unwrap().create("a").unwrap();
    db.put(b"\0\0\0\0f", &[9]).unwrap();
    assert_eq!(Keyspaces::open(&db).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn threads_that_create_get_keyspaces_of_their_own() {
    let cluster = Cluster::start(256 << 20);
    let db = cluster.open(small_options());
    let keyspaces = Keyspaces::open(&db).unwrap();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let keyspaces = keyspaces.clone();
                scope.spawn(move || {
                    for round in 0..20 {
                        let name = format!("{thread}-{round}");
                        keyspaces.create(&name).unwrap().put(b"name", name.as_bytes()).unwrap();
                        // All threads try for this one.
                        let shared = keyspaces.create(&format!("shared-{round}"));
                        assert!(shared.is_ok() || shared.unwrap_err().kind() == ErrorKind::AlreadyExists);
                        if round % 3 == 0 {
                            keyspaces.drop(&name).unwrap();
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let names = keyspaces.list().unwrap();
    assert_eq!(names.len(), 20 + 4 * 13);
    for name in names.iter().filter(|name| !name.starts_with("shared")) {
        assert_eq!(contents(&keyspaces.get(name).unwrap()), [(b"name".to_vec(), name.as_bytes().to_vec())]);
    }
}

/// A database of two shards that another process opens each time, and that has lost what was not flushed or logged.
/// `bound` is the bound between the shards. Runs once on a memory node, and once in storage, without a log.
fn where_writes_get_lost(bound: &[u8], test: impl Fn(&dyn Fn() -> (Process, Db))) {
    let shard_bounds = ShardBounds::Given(vec![bound.to_vec()]);
    let options = Options { name: Some("db".to_owned()), shards: 2, shard_bounds, ..small_options() };
    let cluster = Cluster::start(64 << 20);
    test(&|| {
        let process = Process::start([&cluster]);
        let db = process.open(options.clone());
        (process, db)
    });
    let objects = MemoryObjects::new();
    test(&|| {
        let process = Process::with_empty_memory();
        let storage = Some(of_objects(&objects.handle()));
        let db = process.open(Options { storage, durability: Durability::Storage(Syncing::Flush), ..options.clone() });
        (process, db)
    });
}

/// Writes more than memtables hold.
fn fill(keyspace: &Keyspace) {
    (0..1000).for_each(|i| keyspace.put(format!("key {i:06}").as_bytes(), &[7; 100]).unwrap());
    keyspace.db().wait_for_compactions().unwrap();
}

#[test]
fn a_keyspace_is_there_when_its_keys_are() {
    // Either the catalogue is in one shard and the keys in the other, or the names are where the keys are.
    for bound in [&b"\0\0\x01"[..], b"\0\0\0\0n"] {
        where_writes_get_lost(bound, |open| {
            let (process, db) = open();
            fill(&Keyspaces::open(&db).unwrap().create("customers").unwrap());
            process.kill(db);
            let (_process, db) = open();
            let keyspaces = Keyspaces::open(&db).unwrap();
            assert_eq!(keyspaces.list().unwrap(), ["customers"], "{bound:?}");
            assert_eq!(contents(&keyspaces.create("orders").unwrap()), [], "{bound:?}");
            assert!(!contents(&keyspaces.get("customers").unwrap()).is_empty(), "{bound:?}");
        });
    }
}

#[test]
fn a_new_keyspace_is_empty_though_its_number_was_used() {
    where_writes_get_lost(b"\0\0\x01", |open| {
        let (process, db) = open();
        let keyspaces = Keyspaces::open(&db).unwrap();
        db.put(b"\0\0\x01\0left", b"by a build that lost the number").unwrap();
        db.flush().unwrap();
        keyspaces.create("a").unwrap();
        drop(keyspaces);
        process.kill(db);
        let (_process, db) = open();
        assert_eq!(contents(&Keyspaces::open(&db).unwrap().get("a").unwrap()), []);
    });
}

/// For example, a raw copy of another database's keys took the number for the next keyspace back.
#[test]
fn a_number_with_a_name_is_not_taken_again() {
    let cluster = Cluster::start(64 << 20);
    let db = cluster.open(small_options());
    assert!(!Keyspaces::exist_in(&db).unwrap());
    let keyspaces = Keyspaces::open(&db).unwrap();
    assert!(Keyspaces::exist_in(&db).unwrap());
    for name in ["a", "b", "c"] {
        keyspaces.create(name).unwrap().put(b"key", name.as_bytes()).unwrap();
    }
    db.put(b"\0\0\0\0i", &2_u32.to_le_bytes()).unwrap();
    assert_eq!(contents(&keyspaces.create("d").unwrap()), []);
    for name in ["a", "b", "c"] {
        assert_eq!(keyspaces.get(name).unwrap().get(b"key").unwrap().unwrap(), name.as_bytes());
    }
}

#[test]
fn a_drop_is_finished_before_it_is_forgotten() {
    where_writes_get_lost(b"\0\0\x02", |open| {
        let (process, db) = open();
        let keyspaces = Keyspaces::open(&db).unwrap();
        let [_first, second] = ["first", "second"].map(|name| keyspaces.create(name).unwrap());
        keyspaces.drop("second").unwrap();
        second.put(b"late", b"").unwrap();
        db.flush().unwrap();
        drop((keyspaces, second, _first));
        process.kill(db);
        let (process, db) = open();
        // The entry that says that the second one was dropped is deleted, and flushed with what is written to the
        // first.
        fill(&Keyspaces::open(&db).unwrap().get("first").unwrap());
        process.kill(db);
        let (_process, db) = open();
        let keyspaces = Keyspaces::open(&db).unwrap();
        assert_eq!(keyspaces.list().unwrap(), ["first"]);
        let mut keys = db.iter().unwrap();
        keys.seek(b"\0\0\x02").unwrap();
        assert!(!keys.valid(), "{:?}", keys.key());
    });
}

#[test]
fn what_is_written_to_a_dropped_keyspace_goes_with_the_process() {
    let cluster = Cluster::start(64 << 20);
    let options = Options { name: Some("db".to_owned()), ..small_options() };
    let db = cluster.open(options.clone());
    let keyspaces = Keyspaces::open(&db).unwrap();
    let dropped = keyspaces.create("dropped").unwrap();
    keyspaces.drop("dropped").unwrap();
    Keyspaces::open(&db).unwrap();
    fill(&dropped);
    db.close().unwrap();
    drop((db, keyspaces, dropped));
    let db = cluster.open(options);
    Keyspaces::open(&db).unwrap();
    db.compact_range(None, None).unwrap();
    // Format and next number.
    assert_eq!(db.statistics().levels.iter().map(|level| level.entries).sum::<u64>(), 2);
    db.close().unwrap();
}

struct Run {
    random: Random,
    order: KeyOrder,
    db: Db,
    keyspaces: Keyspaces,
    spaces: Vec<(Keyspace, Model)>,
    created: u32,
}

impl Run {
    fn key(&mut self) -> Vec<u8> {
        match self.random.below(300) {
            0 => Vec::new(),
            1 => vec![0xff; 3],
            number => format!("{number:0width$}", width = 1 + (number % 5) as usize).into_bytes(),
        }
    }

    fn step(&mut self) {
        let at = self.random.below(self.spaces.len() as u64) as usize;
        let (key, other) = (self.key(), self.key());
        let value = vec![at as u8; self.random.below(100) as usize];
        match self.random.below(100) {
            0..50 => {
                let next = (at + 1) % self.spaces.len();
                let mut batch = WriteBatch::new();
                batch.within(&self.spaces[at].0).put(&key, &value);
                batch.within(&self.spaces[next].0).delete(&other);
                self.db.write(&batch).unwrap();
                self.spaces[at].1.insert(key, value);
                self.spaces[next].1.remove(&other);
            }
            50..70 => {
                let (keyspace, model) = &self.spaces[at];
                assert_eq!(keyspace.get(&key).unwrap(), model.get(&key).cloned());
                let found = keyspace.multi_get(&[&key, &other]).unwrap();
                assert_eq!(found, [model.get(&key).cloned(), model.get(&other).cloned()]);
            }
            70..74 => {
                let (from, to) = if self.order.compare(&key, &other).is_le() { (key, other) } else { (other, key) };
                let (keyspace, model) = &mut self.spaces[at];
                keyspace.delete_range(&from, &to).unwrap();
                let order = self.order;
                model.retain(|key, _| order.compare(key, &from).is_lt() || order.compare(key, &to).is_ge());
            }
            74..76 => {
                let name = self.spaces[at].0.name().to_owned();
                self.keyspaces.drop(&name).unwrap();
                self.created += 1;
                let keyspace = self.keyspaces.create(&format!("keyspace-{}", self.created)).unwrap();
                self.spaces[at] = (keyspace, Model::new());
            }
            76 if self.random.one_in(1, 4) && !self.db.shard_bounds().is_empty() => {
                let bound = self.spaces[at].0.key(&key);
                self.db.move_bound(0, &bound).unwrap();
            }
            _ => self.walk(at, &key, &other),
        }
    }

    /// Walks forward and backward, within bounds of the keyspace and of the iterator.
    fn walk(&self, at: usize, key: &[u8], upper: &[u8]) {
        let (keyspace, model) = &self.spaces[at];
        let options = IterOptions { upper: Some(upper), ..IterOptions::default() };
        let mut entries: Vec<_> = model.iter().filter(|(key, _)| self.order.compare(key, upper).is_lt()).collect();
        entries.sort_by(|a, b| self.order.compare(a.0, b.0));
        let mut iterator = keyspace.iter_with(&options).unwrap();
        iterator.seek(key).unwrap();
        let first = entries.partition_point(|entry| self.order.compare(entry.0, key).is_lt());
        for entry in &entries[first..] {
            assert!(iterator.valid());
            assert_eq!((iterator.key(), iterator.value()), (&entry.0[..], &entry.1[..]));
            iterator.next().unwrap();
        }
        assert!(!iterator.valid());
        iterator.seek_for_prev(key).unwrap();
        let last = entries.partition_point(|entry| self.order.compare(entry.0, key).is_le());
        for entry in entries[..last].iter().rev() {
            assert!(iterator.valid());
            assert_eq!((iterator.key(), iterator.value()), (&entry.0[..], &entry.1[..]));
            iterator.prev().unwrap();
        }
        assert!(!iterator.valid());
    }
}

#[test]
fn each_keyspace_is_a_map() {
    for (seed, key_order, shards) in
        [(1, KeyOrder::Bytewise, 1), (2, KeyOrder::Bytewise, 2), (3, KeyOrder::ReverseBytewise, 2)]
    {
        println!("seed {seed}, {shards} shards, {}", key_order.name());
        let cluster = Cluster::start(512 << 20);
        let shard_bounds = ShardBounds::Given(if shards == 1 { vec![] } else { vec![b"\0\0\x02\0".to_vec()] });
        let db = cluster.open(Options { key_order, shards, shard_bounds, ..small_options() });
        let keyspaces = Keyspaces::open(&db).unwrap();
        let spaces = ["x", "y", "z"].map(|name| (keyspaces.create(name).unwrap(), Model::new())).into();
        let random = Random::seeded(seed);
        let mut run = Run { random, order: key_order, db, keyspaces, spaces, created: 0 };
        for _ in 0..2 {
            for _ in 0..2_000 {
                run.step();
            }
            run.db.compact_range(None, None).unwrap();
        }
        assert!(run.db.statistics().compactions > 0);
        let mut names: Vec<_> = run.spaces.iter().map(|(keyspace, _)| keyspace.name().to_owned()).collect();
        names.sort();
        assert_eq!(run.keyspaces.list().unwrap(), names);
        let left: usize = run.spaces.iter().map(|(_, model)| model.len()).sum();
        let entries = run.db.statistics().levels.iter().map(|level| level.entries).sum::<u64>();
        // Format, next number, names, and one entry for each drop.
        assert_eq!(entries, left as u64 + 2 + 3 + u64::from(run.created));
        run.db.close().unwrap();
    }
}
