//! Merge operators: what reads make of operands, and what flushes, compactions and later processes leave of them.

use crate::common::process::Process;
use crate::common::stored::{of_disk, options as stored_options};
use crate::common::{Cluster, SetClock, small_options};
use forebay_base::ErrorKind;
use forebay_engine::{
    CompactionPlace, CompactionStyle, Db, Durability, FlushOrder, Keyspaces, MergeOperator, MergeOperators, Options,
    ShardBounds, Snapshot, Syncing, WriteBatch,
};
use forebay_env::{Clock, Random};
use forebay_storage::SimDisk;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Appends operands between brackets, and cannot combine operands by themselves.
#[derive(Debug)]
struct Bracket;

impl MergeOperator for Bracket {
    fn full(&self, _key: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let mut all = value.unwrap_or(b"nothing").to_vec();
        operands.iter().for_each(|operand| all.extend_from_slice(&[b"[", *operand, b"]"].concat()));
        Some(all)
    }

    fn partial(&self, _key: &[u8], _older: &[u8], _newer: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

const BRACKET: &str = "test.bracket";

fn merging(name: &str) -> Options {
    let mut merge_operators = MergeOperators::default();
    merge_operators.register(BRACKET, Arc::new(Bracket)).unwrap();
    Options { merge_operator: Some(name.to_owned()), merge_operators, ..small_options() }
}

fn number(value: Option<Vec<u8>>) -> Option<i64> {
    value.map(|value| i64::from_le_bytes(value.try_into().unwrap()))
}

fn entries(db: &Db) -> u64 {
    db.statistics().levels.iter().map(|level| level.entries).sum()
}

#[test]
fn counters_add_up_and_compactions_leave_one_record() {
    for place in [CompactionPlace::ComputeNode, CompactionPlace::MemoryNode] {
        let cluster = Cluster::start(256 << 20);
        let db = cluster.open(Options { compaction_place: place, ..merging("counter") });
        let get = |key: &[u8]| number(db.get(key).unwrap());
        let add = |key: &[u8], number: i64| db.merge(key, &number.to_le_bytes()).unwrap();
        db.put(b"b", &100i64.to_le_bytes()).unwrap();
        for round in 0..20 {
            for key in [b"a", b"b"] {
                add(key, round);
            }
            if round % 5 == 4 {
                db.flush().unwrap();
            }
        }
        assert_eq!((get(b"a"), get(b"b")), (Some(190), Some(290)));
        let snapshot = db.snapshot();
        add(b"a", -1000);
        for _ in 0..2 {
            db.compact_range(None, None).unwrap();
            assert_eq!((get(b"a"), get(b"b")), (Some(-810), Some(290)));
            assert_eq!(number(db.get_at(b"a", &snapshot).unwrap()), Some(190));
        }
        assert_eq!(entries(&db), 3, "the snapshot keeps the last operand apart: {:?}", db.statistics().levels);
        drop(snapshot);
        db.put(b"c", b"").unwrap();
        db.compact_range(None, None).unwrap();
        assert_eq!(entries(&db), 3);
        let before = db.statistics().foreground.round_trips;
        assert_eq!((get(b"a"), get(b"b")), (Some(-810), Some(290)));
        assert_eq!(db.statistics().foreground.round_trips - before, 2, "values, each read at once");
        let refused = db.statistics().refused_compactions;
        assert_eq!(refused, 0, "a memory node knows the built-in operators");
        db.close().unwrap();
    }
}

#[test]
fn an_operator_is_known_by_its_name() {
    let cluster = Cluster::start(256 << 20);
    let named = |options: Options| Options { name: Some("merged".to_owned()), ..options };
    let open = |options: Options| Db::open(&[cluster.client()], named(options));
    let db = open(merging(BRACKET)).unwrap();
    for operand in [b"1", b"2", b"3"] {
        db.merge(b"key", operand).unwrap();
        db.flush().unwrap();
    }
    db.compact_range(None, None).unwrap();
    let statistics = db.statistics();
    assert!(statistics.refused_compactions > 0, "the memory node does not know it: {statistics:?}");
    assert_eq!((db.get(b"key").unwrap().as_deref(), entries(&db)), (Some(&b"nothing[1][2][3]"[..]), 1));
    db.merge(b"key", b"4").unwrap();
    db.close().unwrap();
    drop(db);

    let error = open(small_options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("\"test.bracket\""), "{error}");
    let error = open(merging("counter")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("test.bracket"), "{error}");
    assert_eq!(open(merging("test.other")).unwrap_err().kind(), ErrorKind::Unsupported);
    let found = Db::options_of(&[cluster.client()], "merged").unwrap();
    assert_eq!(found.merge_operator.as_deref(), Some(BRACKET));
    // Options that name no operator get the one that the database was created with.
    let db = open(Options { merge_operator: None, ..merging(BRACKET) }).unwrap();
    db.merge(b"key", b"5").unwrap();
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"nothing[1][2][3][4][5]"[..]));
    db.close().unwrap();
}

#[test]
fn what_is_no_operand_is_refused() {
    let cluster = Cluster::start(256 << 20);
    let db = cluster.open(small_options());
    let mut batch = WriteBatch::new();
    batch.put(b"other", b"value").merge(b"key", b"operand");
    assert_eq!(db.merge(b"key", b"operand").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(db.write(&batch).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(db.get(b"other").unwrap(), None);
    db.close().unwrap();

    let db = cluster.open(merging("counter"));
    let error = db.write(&batch).unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("\"counter\""), "{error}");
    // A value that is not a counter stays in the way until another value is set.
    db.put(b"key", b"text").unwrap();
    db.merge(b"key", &1i64.to_le_bytes()).unwrap();
    for _ in 0..2 {
        let error = db.get(b"key").unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("\"counter\""), "{error}");
        assert_eq!(db.multi_get(&[b"key"]).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(db.iter().unwrap().seek_to_first().unwrap_err().kind(), ErrorKind::Invalid);
        db.compact_range(None, None).unwrap();
    }
    db.put(b"key", &7i64.to_le_bytes()).unwrap();
    assert_eq!(number(db.get(b"key").unwrap()), Some(7));
    db.close().unwrap();
}

#[test]
fn operands_outlive_the_value_that_expires() {
    let (cluster, clock) = (Cluster::start(256 << 20), Arc::new(SetClock::default()));
    let clocked = || Options {
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        name: Some("expiring".to_owned()),
        ..merging("append")
    };
    let db = cluster.open(clocked());
    clock.set(1000);
    db.put_expiring(b"key", b"base", 1100).unwrap();
    db.merge(b"key", b"-1").unwrap();
    db.merge(b"key", b"-2").unwrap();
    let entry = db.get_entry(b"key").unwrap().unwrap();
    assert_eq!((&entry.value[..], entry.expiry_ms, entry.stamp.sequence().0), (&b"base-1-2"[..], None, 3));
    db.compact_range(None, None).unwrap();
    assert_eq!(entries(&db), 2, "one operand, and the value that will expire");
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"base-1-2"[..]));
    clock.set(1101);
    for _ in 0..2 {
        assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"-1-2"[..]));
        db.put(b"other", b"").unwrap();
        db.compact_range(None, None).unwrap();
    }
    assert_eq!(entries(&db), 2);
    db.close().unwrap();
    drop(db);
    // A clock that was set back does not bring the expired value back.
    clock.set(1000);
    let db = cluster.open(clocked());
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"-1-2"[..]));
    db.close().unwrap();
}

#[test]
fn operands_outlive_the_value_that_expires_where_a_bound_has_moved() {
    let (cluster, clock) = (Cluster::start(256 << 20), Arc::new(SetClock::default()));
    let options = Options { clock: Arc::clone(&clock) as Arc<dyn Clock>, shards: 2, ..merging(BRACKET) };
    let db = cluster.open(Options { shard_bounds: ShardBounds::Given(vec![b"m".to_vec()]), ..options });
    clock.set(1000);
    for key in [b"a", b"b"] {
        db.put_expiring(key, b"base", 1100).unwrap();
        db.merge(key, b"1").unwrap();
        db.merge(key, b"2").unwrap();
    }
    db.put(b"b", b"lasts").unwrap();
    db.merge(b"b", b"3").unwrap();
    db.move_bound(0, b"A").unwrap();
    let get = |key: &[u8]| String::from_utf8(db.get(key).unwrap().unwrap()).unwrap();
    assert_eq!([get(b"a"), get(b"b")], ["base[1][2]", "lasts[3]"]);
    clock.set(1101);
    assert_eq!([get(b"a"), get(b"b")], ["nothing[1][2]", "lasts[3]"]);
    db.compact_range(None, None).unwrap();
    db.move_bound(0, b"z").unwrap();
    assert_eq!([get(b"a"), get(b"b")], ["nothing[1][2]", "lasts[3]"]);
}

#[test]
fn conditions_see_operands_as_writes_that_set_a_value() {
    let cluster = Cluster::start(256 << 20);
    let db = cluster.open(merging("counter"));
    let one = 1i64.to_le_bytes();
    let write = |condition: &dyn for<'b> Fn(&'b mut WriteBatch) -> &'b mut WriteBatch| {
        let mut batch = WriteBatch::new();
        condition(batch.merge(b"key", &one));
        db.write(&batch).map_err(|error| error.kind())
    };
    assert_eq!(write(&|batch| batch.require_present(b"key")), Err(ErrorKind::Conflict));
    assert_eq!(write(&|batch| batch.require_absent(b"key")), Ok(()));
    assert_eq!(write(&|batch| batch.require_absent(b"key")), Err(ErrorKind::Conflict));
    let (entry, snapshot) = (db.get_entry(b"key").unwrap().unwrap(), db.snapshot());
    assert_eq!(write(&|batch| batch.require_stamp(b"key", entry.stamp)), Ok(()));
    assert_eq!(write(&|batch| batch.require_stamp(b"key", entry.stamp)), Err(ErrorKind::Conflict));
    assert_eq!(write(&|batch| batch.require_unchanged(b"key", &snapshot)), Err(ErrorKind::Conflict));
    assert_eq!(number(db.get(b"key").unwrap()), Some(2));
    db.close().unwrap();
}

#[test]
fn keyspaces_take_operands() {
    let cluster = Cluster::start(256 << 20);
    let db = cluster.open(merging("append:,"));
    let keyspaces = Keyspaces::open(&db).unwrap();
    let (one, other) = (keyspaces.create("one").unwrap(), keyspaces.create("other").unwrap());
    one.merge(b"key", b"1").unwrap();
    let mut batch = WriteBatch::new();
    batch.within(&one).merge(b"key", b"2");
    batch.within(&other).merge(b"key", b"3");
    db.write(&batch).unwrap();
    assert_eq!(one.get(b"key").unwrap().as_deref(), Some(&b"1,2"[..]));
    let mut iterator = other.iter().unwrap();
    iterator.seek_to_first().unwrap();
    assert_eq!((iterator.key(), iterator.value()), (&b"key"[..], &b"3"[..]));
    drop((one, other, iterator));
    db.close().unwrap();
}

#[test]
fn logs_keep_operands_once() {
    let one = 1i64.to_le_bytes();
    let count = |db: &Db, name: &str| {
        for _ in 0..30 {
            db.merge(name.as_bytes(), &one).unwrap();
        }
    };
    // In memory: the process is killed, and its memory node is not.
    let cluster = Cluster::start(64 << 20);
    let options =
        || Options { name: Some("db".to_owned()), durability: Durability::Memory { copies: 1 }, ..merging("counter") };
    for round in 1..4 {
        let process = Process::start([&cluster]);
        let db = process.open(Options { takeover: true, ..options() });
        count(&db, "key");
        assert_eq!(number(db.get(b"key").unwrap()), Some(30 * round));
        process.kill(db);
    }
    // In storage: everything but the disk goes.
    let disk = SimDisk::new();
    for round in 1..4 {
        let process = Process::with_empty_memory();
        let storage = of_disk(&disk, round as u64);
        let options = Options { merge_operator: Some("counter".to_owned()), ..stored_options(&storage, Syncing::Sync) };
        let db = process.open(options);
        count(&db, "key");
        if round == 2 {
            db.compact_range(None, None).unwrap();
        }
        assert_eq!(number(db.get(b"key").unwrap()), Some(30 * round));
        process.kill(db);
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A database of few keys beside its model.
struct Run {
    random: Random,
    db: Db,
    operator: Arc<dyn MergeOperator>,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
}

impl Run {
    fn key(&mut self) -> Vec<u8> {
        format!("key-{:02}", self.random.below(12)).into_bytes()
    }

    fn merge(&mut self, key: &[u8], operand: &[u8]) {
        let value = self.operator.full(key, self.model.get(key).map(Vec::as_slice), &[operand]).unwrap();
        self.model.insert(key.to_vec(), value);
    }

    fn step(&mut self, count: u32) {
        let (key, operand) = (self.key(), count.to_le_bytes().repeat(2));
        match self.random.below(40) {
            0..24 => {
                self.db.merge(&key, &operand).unwrap();
                self.merge(&key, &operand);
            }
            24..27 => {
                self.db.put(&key, &operand).unwrap();
                self.model.insert(key, operand);
            }
            27..29 => {
                self.db.delete(&key).unwrap();
                self.model.remove(&key);
            }
            29 => {
                let other = self.key();
                let (from, to) = if key < other { (key, other) } else { (other, key) };
                let mut batch = WriteBatch::new();
                self.db.write(batch.merge(&from, &operand).delete_range(&from, &to).merge(&to, &operand)).unwrap();
                self.model.retain(|key, _| *key < from || *key >= to);
                // Both are one key when the range is empty.
                if from == to {
                    self.merge(&from, &operand);
                }
                self.merge(&to, &operand);
            }
            30..32 => self.snapshots.push((self.db.snapshot(), self.model.clone())),
            32..34 if !self.snapshots.is_empty() => drop(self.snapshots.remove(0)),
            34..37 => self.db.flush().unwrap(),
            37 => self.db.compact_range(None, None).unwrap(),
            _ => self.check(),
        }
    }

    fn check(&self) {
        let keys: Vec<Vec<u8>> = (0..12).map(|number| format!("key-{number:02}").into_bytes()).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let of = |model: &Model| keys.iter().map(|key| model.get(*key).cloned()).collect::<Vec<_>>();
        let one_by_one: Vec<_> = keys.iter().map(|key| self.db.get(key).unwrap()).collect();
        assert_eq!(one_by_one, of(&self.model));
        assert_eq!(self.db.multi_get(&keys).unwrap(), of(&self.model));
        for budget in [0, 30] {
            let found = self.db.multi_get_within(&keys, budget).unwrap();
            assert!(!found.is_empty() && found[..] == of(&self.model)[..found.len()], "{found:?}");
            assert!(found.len() == 1 || found.iter().flatten().map(Vec::len).sum::<usize>() <= budget, "{found:?}");
        }
        for (snapshot, model) in &self.snapshots {
            assert_eq!(self.db.multi_get_at(&keys, snapshot).unwrap(), of(model));
            let mut iterator = self.db.iter_at(snapshot).unwrap();
            let mut found = Vec::new();
            iterator.seek_to_last().unwrap();
            while iterator.valid() {
                found.push((iterator.key().to_vec(), iterator.value().to_vec()));
                iterator.prev().unwrap();
            }
            found.reverse();
            iterator.seek_to_first().unwrap();
            for (key, value) in &found {
                assert_eq!((iterator.key(), iterator.value()), (&key[..], &value[..]));
                iterator.next().unwrap();
            }
            assert!(!iterator.valid());
            assert_eq!(found, model.clone().into_iter().collect::<Vec<_>>());
        }
    }
}

/// The same operations give the same values, wherever and however operands are merged.
#[test]
fn options_change_nothing() {
    let at_home = CompactionPlace::ComputeNode;
    for (case, (operator, options)) in [
        ("counter", Options { compaction_place: at_home, ..small_options() }),
        ("counter", Options { cached_index_bytes: Some(1), ..small_options() }),
        ("append", Options { compaction_style: CompactionStyle::Unclustered, ..small_options() }),
        ("append", Options { compaction_style: CompactionStyle::Classic, ..small_options() }),
        ("append", Options { flush_order: FlushOrder::ByKey, cached_index_bytes: Some(1), ..small_options() }),
        ("last", Options { background_threads: 0, ..small_options() }),
        (BRACKET, Options { compaction_place: at_home, ..small_options() }),
        (BRACKET, small_options()),
    ]
    .into_iter()
    .enumerate()
    {
        let seed = 7 + case as u64;
        println!("seed {seed}, {operator}");
        let cluster = Cluster::start(256 << 20);
        let Options { merge_operator, merge_operators, .. } = merging(operator);
        let known = merge_operators.get(operator).unwrap();
        let db = cluster.open(Options { merge_operator, merge_operators, ..options });
        let mut run =
            Run { random: Random::seeded(seed), db, operator: known, model: Model::new(), snapshots: Vec::new() };
        for count in 0..1500 {
            run.step(count);
        }
        run.snapshots.clear();
        run.db.compact_range(None, None).unwrap();
        run.check();
        run.db.flush().unwrap();
        run.db.compact_range(None, None).unwrap();
        assert_eq!(entries(&run.db), run.model.len() as u64, "nothing is left to merge");
        run.db.close().unwrap();
    }
}

/// The memory node knows the built-in operators by name. Nobody can register another one under such a name, and the
/// node refuses names that it does not know.
#[test]
fn a_memory_node_runs_no_other_operator_than_is_meant() {
    let registered = MergeOperators::default().register("last", Arc::new(Bracket)).map(|_| ());
    assert_eq!(registered.unwrap_err().kind(), ErrorKind::Invalid);
    for (name, runs_there) in [("append", true), (BRACKET, false)] {
        let cluster = Cluster::start(256 << 20);
        let db = cluster.open(merging(name));
        for operand in [b"1", b"2", b"3"] {
            db.merge(b"key", operand).unwrap();
            db.flush().unwrap();
        }
        db.compact_range(None, None).unwrap();
        let expected = if runs_there { &b"123"[..] } else { b"nothing[1][2][3]" };
        assert_eq!(db.get(b"key").unwrap().as_deref(), Some(expected));
        let statistics = db.statistics();
        assert_eq!(statistics.levels.iter().map(|level| level.entries).sum::<u64>(), 1, "it is merged");
        let counts = [statistics.near_data_compactions > 0, statistics.refused_compactions > 0];
        assert_eq!(counts, [runs_there, !runs_there], "{name}");
        db.close().unwrap();
    }
}

/// Makes a long value of any operand, and counts how often.
#[derive(Debug, Default)]
struct Swell(AtomicUsize);

const SWOLLEN: usize = 1 << 20;

impl MergeOperator for Swell {
    fn full(&self, key: &[u8], _value: Option<&[u8]>, _operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Some([key, &vec![b'.'; SWOLLEN]].concat())
    }

    fn partial(&self, _key: &[u8], _older: &[u8], _newer: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

#[test]
fn a_scan_merges_a_value_when_it_comes_to_it() {
    let cluster = Cluster::start(256 << 20);
    let swell = Arc::new(Swell::default());
    let mut merge_operators = MergeOperators::default();
    merge_operators.register("test.swell", Arc::clone(&swell) as Arc<dyn MergeOperator>).unwrap();
    let db =
        cluster.open(Options { merge_operator: Some("test.swell".to_owned()), merge_operators, ..small_options() });
    let keys: Vec<_> = (0..20).map(|i| format!("{i:03}").into_bytes()).collect();
    keys.iter().for_each(|key| db.merge(key, b"").unwrap());
    let merged = || swell.0.swap(0, Ordering::Relaxed);
    merged();
    let mut entries = db.iter().unwrap();
    let check = |entries: &forebay_engine::DbIterator, key: &[u8]| {
        assert_eq!((entries.key(), entries.value().len()), (key, key.len() + SWOLLEN));
        assert!(entries.value().starts_with(key));
        assert_eq!(merged(), 1, "one value is made at a time");
    };
    entries.seek_to_first().unwrap();
    for key in &keys {
        check(&entries, key);
        entries.next().unwrap();
    }
    assert!(!entries.valid());
    entries.seek_to_last().unwrap();
    for key in keys.iter().rev() {
        check(&entries, key);
        entries.prev().unwrap();
    }
    assert!(!entries.valid());
    entries.seek(&keys[3]).unwrap();
    check(&entries, &keys[3]);
    entries.next().unwrap();
    check(&entries, &keys[4]);
    entries.prev().unwrap();
    check(&entries, &keys[3]);
    drop(entries);
    db.close().unwrap();
}

#[test]
fn a_bound_moves_past_a_merged_value_that_is_too_long_for_a_record() {
    let options = forebay_memory_node::Options {
        extent_bytes: Some(1 << 20),
        ..forebay_memory_node::Options::with_memory(64 << 20)
    };
    let cluster = Cluster::start_with(options);
    let options = Options { shards: 2, shard_bounds: ShardBounds::Given(vec![b"m".to_vec()]), ..merging("append") };
    let db = cluster.open(options);
    db.put(b"a", b"base").unwrap();
    let mut expected = b"base".to_vec();
    for i in 0..6 {
        let operand = vec![b'0' + i; 100 << 10];
        db.merge(b"a", &operand).unwrap();
        expected.extend_from_slice(&operand);
    }
    assert_eq!(db.put(b"b", &expected).unwrap_err().kind(), ErrorKind::Invalid, "longer than a record may be");
    for bound in [b"A", b"z"] {
        db.move_bound(0, bound).unwrap();
        assert!(db.get(b"a").unwrap().unwrap() == expected);
    }
    db.close().unwrap();
}

#[test]
fn a_merged_value_has_changed_when_the_value_under_it_has_expired() {
    let (cluster, clock) = (Cluster::start(256 << 20), Arc::new(SetClock::default()));
    let db = cluster.open(Options { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..merging("counter") });
    clock.set(1000);
    for is_flushed in [false, true] {
        let expiry = clock.wall_ms() + 100;
        db.put_expiring(b"key", &100i64.to_le_bytes(), expiry).unwrap();
        db.merge(b"key", &5i64.to_le_bytes()).unwrap();
        if is_flushed {
            db.flush().unwrap();
        }
        let snapshot = db.snapshot();
        let replace = || {
            let mut batch = WriteBatch::new();
            batch.put(b"other", b"").require_unchanged(b"key", &snapshot);
            db.write(&batch).map_err(|error| error.kind())
        };
        assert_eq!((number(db.get(b"key").unwrap()), replace()), (Some(105), Ok(())));
        clock.set(expiry + 1);
        assert_eq!((number(db.get(b"key").unwrap()), replace()), (Some(5), Err(ErrorKind::Conflict)));
    }
    db.close().unwrap();
}

/// Panics when it is to make a value.
#[derive(Debug)]
struct Panics;

impl MergeOperator for Panics {
    fn full(&self, _key: &[u8], _value: Option<&[u8]>, _operands: &[&[u8]]) -> Option<Vec<u8>> {
        panic!("as a program's operator may")
    }

    fn partial(&self, _key: &[u8], _older: &[u8], _newer: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

#[test]
fn an_operator_that_panics_ends_the_work_of_its_shard_alone() {
    let cluster = Cluster::start(256 << 20);
    let mut merge_operators = MergeOperators::default();
    merge_operators.register("test.panics", Arc::new(Panics)).unwrap();
    let db = cluster.open(Options {
        merge_operator: Some("test.panics".to_owned()),
        merge_operators,
        shards: 2,
        shard_bounds: ShardBounds::Given(vec![b"m".to_vec()]),
        background_threads: 1,
        level0_compaction_trigger: 1,
        level0_slowdown_trigger: 2,
        level0_stop_trigger: 2,
        ..small_options()
    });
    db.merge(b"a", b"operand").unwrap();
    let failed = db.compact_range(None, None).unwrap_err().to_string();
    assert!(failed.contains("panicked"), "{failed}");
    // The other shard would not take so much if nobody flushed and compacted it.
    let key = |i: u32| format!("z{i:04}").into_bytes();
    (0..500).for_each(|i| db.put(&key(i), &[7; 400]).unwrap());
    assert_eq!(db.get(&key(499)).unwrap(), Some(vec![7; 400]));
}
