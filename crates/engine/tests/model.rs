//! Random operations against a `BTreeMap`, with memtables and tables so small that a run of a second
//! flushes and compacts hundreds of times.

use crate::common::{Cluster, SetClock, small_options};
use forebay_base::{ErrorKind, KeyOrder};
use forebay_engine::{
    CompactionPlace, CompactionStyle, Db, DbIterator, FlushOrder, FlushPlace, IterOptions, Options, ShardBounds,
    Snapshot, WriteBatch,
};
use forebay_env::{Clock, Random};
use std::collections::BTreeMap;
use std::sync::Arc;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

struct Run {
    random: Random,
    clock: Arc<SetClock>,
    db: Db,
    model: Model,
    /// When keys of the model expire.
    expiries: BTreeMap<Vec<u8>, u64>,
    /// What was appended to those keys since they were set: it stays.
    appended: Model,
    snapshots: Vec<(Snapshot, Model)>,
    order: KeyOrder,
    keys: u64,
    max_value_bytes: u64,
}

/// The contents of a model, in the database's order.
fn entries(model: &Model, order: KeyOrder) -> Vec<(&[u8], &[u8])> {
    let mut entries: Vec<_> = model.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    if order == KeyOrder::ReverseBytewise {
        entries.reverse();
    }
    entries
}

impl Run {
    fn key(&mut self) -> Vec<u8> {
        let number = self.random.below(self.keys);
        match number {
            0 => Vec::new(),
            _ => format!("{:0width$}", number, width = 1 + (number % 23) as usize).into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let length = if self.random.one_in(1, 50) { self.max_value_bytes } else { self.random.below(100) };
        let mut value = vec![0; length as usize];
        self.random.fill(&mut value);
        value
    }

    fn set(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.expiries.remove(&key);
        self.appended.remove(&key);
        self.model.insert(key, value);
    }

    fn set_expiring(&mut self, key: Vec<u8>, value: Vec<u8>, expiry_ms: u64) {
        self.expiries.insert(key.clone(), expiry_ms);
        self.appended.remove(&key);
        self.model.insert(key, value);
        self.expire();
    }

    /// An operand for a key.
    fn operand(&mut self) -> (Vec<u8>, Vec<u8>) {
        let (key, mut operand) = (self.key(), self.value());
        operand.truncate(40);
        (key, operand)
    }

    fn append(&mut self, key: Vec<u8>, operand: &[u8]) {
        if self.expiries.contains_key(&key) {
            self.appended.entry(key.clone()).or_default().extend_from_slice(operand);
        }
        self.model.entry(key).or_default().extend_from_slice(operand);
    }

    fn remove(&mut self, key: &[u8]) {
        self.expiries.remove(key);
        self.appended.remove(key);
        self.model.remove(key);
    }

    /// Removes what has expired.
    fn expire(&mut self) {
        let now = self.db.time_ms();
        for (key, _) in self.expiries.extract_if(.., |_, expiry_ms| *expiry_ms < now) {
            match self.appended.remove(&key) {
                Some(appended) => self.model.insert(key, appended),
                None => self.model.remove(&key),
            };
        }
    }

    /// An expiry that comes soon, or has passed.
    fn expiry_ms(&mut self) -> u64 {
        (self.db.time_ms() + self.random.below(40)).saturating_sub(1)
    }

    /// Sets the clock, mostly forward.
    fn pass_time(&mut self) {
        let now = self.clock.wall_ms();
        let step = self.random.below(20);
        self.clock.set(if self.random.one_in(1, 5) { now.saturating_sub(step) } else { now + step });
        self.expire();
    }

    /// When a key expires as a whole.
    fn expires(&self, key: &[u8]) -> Option<u64> {
        self.expiries.get(key).copied().filter(|_| !self.appended.contains_key(key))
    }

    fn step(&mut self) {
        match self.random.below(126) {
            116..126 => {
                let (key, operand) = self.operand();
                self.db.merge(&key, &operand).unwrap();
                self.append(key, &operand);
            }
            100..108 => {
                let (key, value, expiry_ms) = (self.key(), self.value(), self.expiry_ms());
                self.db.put_expiring(&key, &value, expiry_ms).unwrap();
                self.set_expiring(key, value, expiry_ms);
            }
            108..110 => self.pass_time(),
            110..116 => self.write_if(),
            0..40 => {
                let (key, value) = (self.key(), self.value());
                self.db.put(&key, &value).unwrap();
                self.set(key, value);
            }
            40..52 => {
                let key = self.key();
                self.db.delete(&key).unwrap();
                self.remove(&key);
            }
            52..60 => self.batch(),
            60..80 => {
                let key = self.key();
                assert_eq!(self.db.get(&key).unwrap(), self.model.get(&key).cloned());
                let entry = self.db.get_entry(&key).unwrap();
                assert_eq!(entry.as_ref().map(|entry| &entry.value), self.model.get(&key));
                assert_eq!(entry.and_then(|entry| entry.expiry_ms), self.expires(&key));
            }
            80..85 => {
                let keys: Vec<Vec<u8>> = (0..self.random.below(20)).map(|_| self.key()).collect();
                let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                let expected: Vec<_> = keys.iter().map(|key| self.model.get(key).cloned()).collect();
                assert_eq!(self.db.multi_get(&borrowed).unwrap(), expected);
            }
            85..88 => self.scan(),
            88..90 => self.walk(),
            90..92 => self.snapshots.push((self.db.snapshot(), self.model.clone())),
            92..94 => self.read_snapshot(),
            94 => self.delete_range(),
            95..97 if !self.snapshots.is_empty() => {
                let at = self.random.below(self.snapshots.len() as u64) as usize;
                self.snapshots.swap_remove(at);
            }
            97 => self.db.flush().unwrap(),
            99 if self.random.one_in(1, 8) => self.move_bound(),
            98 if self.random.one_in(1, 10) => {
                let (lower, upper) = (self.key(), self.key());
                let bounds = if self.order.compare(&lower, &upper).is_lt() {
                    (Some(&lower[..]), Some(&upper[..]))
                } else {
                    (None, None)
                };
                self.db.compact_range(bounds.0, bounds.1).unwrap();
            }
            _ => {}
        }
        if self.snapshots.len() > 5 {
            self.snapshots.remove(0);
        }
    }

    fn batch(&mut self) {
        let mut batch = WriteBatch::new();
        for _ in 0..self.random.below(10) {
            let key = self.key();
            if self.random.one_in(1, 5) {
                let (key, operand) = self.operand();
                batch.merge(&key, &operand);
                self.append(key, &operand);
            } else if self.random.one_in(1, 3) {
                batch.delete(&key);
                self.remove(&key);
            } else if self.random.one_in(1, 5) {
                let (value, expiry_ms) = (self.value(), self.expiry_ms());
                batch.put_expiring(&key, &value, expiry_ms);
                self.set_expiring(key, value, expiry_ms);
            } else {
                let value = self.value();
                batch.put(&key, &value);
                self.set(key, value);
            }
        }
        self.db.write(&batch).unwrap();
    }

    /// Writes under conditions on another key.
    fn write_if(&mut self) {
        let (key, value, other) = (self.key(), self.value(), self.key());
        let now = self.model.get(&other);
        let mut batch = WriteBatch::new();
        batch.put(&key, &value);
        // What follows from the condition: whether it holds, if the model knows that.
        let expected = match self.random.below(4) {
            0 => {
                batch.require_present(&other);
                Some(now.is_some())
            }
            1 => {
                batch.require_absent(&other).require_absent(&other);
                Some(now.is_none())
            }
            2 => match self.db.get_entry(&other).unwrap() {
                Some(entry) => {
                    batch.require_stamp(&other, entry.stamp);
                    if self.random.one_in(1, 2) {
                        self.db.put(&other, &entry.value).unwrap();
                        self.set(other, entry.value);
                        Some(false)
                    } else {
                        Some(true)
                    }
                }
                None => return,
            },
            _ => {
                let Some((snapshot, past)) = self.snapshots.last() else { return };
                batch.require_unchanged(&other, snapshot);
                // Another write may have set the same value.
                (past.get(&other) != now).then_some(false)
            }
        };
        match self.db.write(&batch) {
            Ok(()) => {
                assert_ne!(expected, Some(false));
                self.set(key, value);
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                assert_ne!(expected, Some(true));
            }
        }
    }

    /// Moves a bound between shards, if there are several, to an allowed key.
    fn move_bound(&mut self) {
        let (bounds, to) = (self.db.shard_bounds(), self.key());
        if bounds.is_empty() {
            return;
        }
        let at = self.random.below(bounds.len() as u64) as usize;
        let fits = |beside: Option<&Vec<u8>>, is_before: bool| {
            beside.is_none_or(|beside| self.order.compare(beside, &to).is_lt() == is_before && *beside != to)
        };
        if fits(at.checked_sub(1).and_then(|before| bounds.get(before)), true) && fits(bounds.get(at + 1), false) {
            self.db.move_bound(at, &to).unwrap();
        }
    }

    /// Two keys in order, near each other or not.
    fn range(&mut self) -> (Vec<u8>, Vec<u8>) {
        let (a, b) = (self.key(), self.key());
        let b = match self.random.below(40) {
            0..20 => [&a[..], b"5"].concat(),
            20..39 => [&a[..a.len() - a.len() / 8], b"6"].concat(),
            _ => b,
        };
        if self.order.compare(&a, &b).is_le() { (a, b) } else { (b, a) }
    }

    fn delete_range(&mut self) {
        let (from, to) = self.range();
        if self.random.one_in(1, 2) {
            self.db.delete_range(&from, &to).unwrap();
            self.remove_range(&from, &to);
        } else {
            let (key, value) = (from.clone(), self.value());
            let mut batch = WriteBatch::new();
            self.db.write(batch.put(&to, &value).delete_range(&from, &to).put(&key, &value)).unwrap();
            self.set(to.clone(), value.clone());
            self.remove_range(&from, &to);
            self.set(key, value);
        }
        if from != to {
            assert_eq!(self.db.delete_range(&to, &from).unwrap_err().kind(), ErrorKind::Invalid);
        }
    }

    fn remove_range(&mut self, from: &[u8], to: &[u8]) {
        let order = self.order;
        let stays = |key: &[u8]| order.compare(key, from).is_lt() || order.compare(key, to).is_ge();
        self.model.retain(|key, _| stays(key));
        self.expiries.retain(|key, _| stays(key));
        self.appended.retain(|key, _| stays(key));
    }

    fn scan(&mut self) {
        let start = self.key();
        let limit = self.random.below(200) as usize;
        let mut iterator = self.db.iter().unwrap();
        iterator.seek(&start).unwrap();
        let entries = entries(&self.model, self.order);
        let first = entries.partition_point(|(key, _)| self.order.compare(key, &start).is_lt());
        for (key, value) in entries[first..].iter().take(limit) {
            assert!(iterator.valid());
            assert_eq!((iterator.key(), iterator.value()), (*key, *value));
            assert_eq!(iterator.expiry_ms(), self.expires(key));
            iterator.next().unwrap();
        }
    }

    /// A key or none.
    fn maybe_key(&mut self) -> Option<Vec<u8>> {
        self.random.one_in(1, 3).then(|| self.key())
    }

    /// Moves back and forth within random bounds, now or as of a snapshot.
    fn walk(&mut self) {
        let (lower, upper) = (self.maybe_key(), self.maybe_key());
        let prefix = self.maybe_key().map(|key| key[..key.len().min(2)].to_vec());
        let in_past = self.random.one_in(1, 2);
        let targets: Vec<_> = (0..8).map(|_| self.key()).collect();
        let (snapshot, model) = match self.snapshots.first() {
            Some((snapshot, model)) if in_past => (Some(snapshot), model),
            _ => (None, &self.model),
        };
        let options =
            IterOptions { lower: lower.as_deref(), upper: upper.as_deref(), prefix: prefix.as_deref(), snapshot };
        let order = self.order;
        let within = |key: &[u8]| {
            options.lower.is_none_or(|lower| order.compare(lower, key).is_le())
                && options.upper.is_none_or(|upper| order.compare(key, upper).is_lt())
                && options.prefix.is_none_or(|prefix| key.starts_with(prefix))
        };
        let mut entries = entries(model, order);
        entries.retain(|(key, _)| within(key));
        let mut iterator = self.db.iter_with(&options).unwrap();
        let mut at = None;
        for target in targets {
            at = match self.random.below(4) {
                0 => {
                    iterator.seek_to_first().unwrap();
                    Some(0)
                }
                1 => {
                    iterator.seek_to_last().unwrap();
                    entries.len().checked_sub(1)
                }
                2 => {
                    iterator.seek(&target).unwrap();
                    Some(entries.partition_point(|(key, _)| order.compare(key, &target).is_lt()))
                }
                _ => {
                    iterator.seek_for_prev(&target).unwrap();
                    entries.partition_point(|(key, _)| order.compare(key, &target).is_le()).checked_sub(1)
                }
            };
            expect(&iterator, &entries, &mut at);
            for _ in 0..4 {
                let forward = self.random.one_in(1, 2);
                for _ in 0..self.random.below(20) {
                    if forward {
                        iterator.next().unwrap();
                        at = at.map(|at| at + 1);
                    } else {
                        iterator.prev().unwrap();
                        at = at.and_then(|at| at.checked_sub(1));
                    }
                    expect(&iterator, &entries, &mut at);
                }
            }
        }
        assert!(at.is_none_or(|at| at < entries.len()));
    }

    fn read_snapshot(&mut self) {
        let key = self.key();
        if let Some((snapshot, model)) = self.snapshots.first() {
            assert_eq!(self.db.get_at(&key, snapshot).unwrap(), model.get(&key).cloned());
            check_all(&mut self.db.iter_at(snapshot).unwrap(), model, self.order);
        }
    }
}

/// Checks that the iterator is at the entry at `at`, or has no position if there is none.
fn expect(iterator: &DbIterator, entries: &[(&[u8], &[u8])], at: &mut Option<usize>) {
    let expected = at.and_then(|at| entries.get(at));
    if expected.is_none() {
        *at = None;
    }
    assert_eq!(iterator.valid().then(|| (iterator.key(), iterator.value())), expected.copied());
}

fn check_all(iterator: &mut DbIterator, model: &Model, order: KeyOrder) {
    let entries = entries(model, order);
    iterator.seek_to_first().unwrap();
    for entry in &entries {
        assert_eq!(iterator.valid().then(|| (iterator.key(), iterator.value())), Some(*entry));
        iterator.next().unwrap();
    }
    assert!(!iterator.valid());
    iterator.seek_to_last().unwrap();
    for entry in entries.iter().rev() {
        assert_eq!(iterator.valid().then(|| (iterator.key(), iterator.value())), Some(*entry));
        iterator.prev().unwrap();
    }
    assert!(!iterator.valid());
}

fn run(seed: u64, steps: u32, options: Options, keys: u64, max_value_bytes: u64) {
    run_on(1, seed, steps, options, keys, max_value_bytes);
}

fn run_on(nodes: usize, seed: u64, steps: u32, options: Options, keys: u64, max_value_bytes: u64) {
    let clock = Arc::new(SetClock::default());
    let merge_operator = Some("append".to_owned());
    let options = Options { clock: Arc::clone(&clock) as Arc<dyn Clock>, merge_operator, ..options };
    println!("seed {seed}, {} shards on {nodes} nodes", options.shards);
    let clusters: Vec<_> = (0..nodes).map(|_| Cluster::start(512 << 20)).collect();
    let order = options.key_order;
    let has_many_shards = options.shards > 1;
    let is_near_data = options.compaction_place == CompactionPlace::MemoryNode;
    let clients: Vec<_> = clusters.iter().map(Cluster::client).collect();
    let db = Db::open(&clients, options).unwrap();
    drop(clients);
    let random = Random::seeded(seed);
    let (model, expiries, snapshots) = (Model::new(), BTreeMap::new(), Vec::new());
    let appended = Model::new();
    let mut run = Run { random, clock, db, model, expiries, appended, snapshots, order, keys, max_value_bytes };
    for _ in 0..steps {
        run.step();
    }
    run.db.wait_for_compactions().unwrap();
    let statistics = run.db.statistics();
    assert!(statistics.flushes > 2 && statistics.compactions > 0, "{statistics:?}");
    // The outputs of each shard are in its own extents, and a small node may run out of them.
    assert!(has_many_shards || statistics.refused_compactions == 0, "{statistics:?}");
    let near_data = statistics.compactions - statistics.refused_compactions;
    assert_eq!(statistics.near_data_compactions, if is_near_data { near_data } else { 0 });
    check_all(&mut run.db.iter().unwrap(), &run.model, order);
    run.snapshots.clear();
    run.db.compact_range(None, None).unwrap();
    check_all(&mut run.db.iter().unwrap(), &run.model, order);
    run.db.close().unwrap();
    drop(run);
    clusters.iter().for_each(Cluster::expect_nothing_leased);
}

fn run_at_both_places(seed: u64, steps: u32, keys: u64, max_value_bytes: u64) {
    for compaction_place in [CompactionPlace::ComputeNode, CompactionPlace::MemoryNode] {
        println!("{compaction_place:?}");
        // At the compute node where compactions run there.
        let flush_place = FlushPlace::AsCompactions;
        run(seed, steps, Options { compaction_place, flush_place, ..small_options() }, keys, max_value_bytes);
    }
}

#[test]
fn few_keys_much_overwriting() {
    run_at_both_places(1, 20_000, 100, 3000);
}

#[test]
fn many_keys() {
    run_at_both_places(2, 20_000, 20_000, 3000);
}

#[test]
fn values_larger_than_a_memtable() {
    run_at_both_places(3, 4_000, 500, 100_000);
}

#[test]
fn styles_and_orders() {
    let styles = [CompactionStyle::Classic, CompactionStyle::Unclustered];
    for (i, compaction_style) in styles.into_iter().enumerate() {
        for flush_order in [FlushOrder::AsWritten, FlushOrder::ByKey] {
            println!("{compaction_style:?}, {flush_order:?}");
            run(30 + i as u64, 4_000, Options { compaction_style, flush_order, ..small_options() }, 300, 3000);
        }
    }
}

/// Bounds that divide the keys of the model, which begin with a digit or a zero.
fn digit_bounds(shards: usize) -> Vec<Vec<u8>> {
    let mut bounds: Vec<Vec<u8>> = [&b"1"[..], b"05", b"3", b"001", b"7", b"00004", b"0"].map(<[u8]>::to_vec).into();
    bounds.truncate(shards - 1);
    bounds.sort();
    bounds
}

#[test]
fn shards_on_nodes() {
    let shapes = [1, 3, 8].into_iter().flat_map(|shards| [1, 2, 4].map(|nodes| (shards, nodes)));
    for (i, (shards, nodes)) in shapes.enumerate() {
        let shard_bounds = ShardBounds::Given(digit_bounds(shards));
        let options = Options { shards, shard_bounds, ..small_options() };
        run_on(nodes, 10 + i as u64, 3_000, options, if i % 2 == 0 { 200 } else { 10_000 }, 3000);
    }
}

#[test]
fn shards_in_reverse_order() {
    let mut bounds = digit_bounds(8);
    bounds.reverse();
    let options = Options {
        shards: 8,
        shard_bounds: ShardBounds::Given(bounds),
        key_order: KeyOrder::ReverseBytewise,
        ..small_options()
    };
    run_on(2, 20, 4_000, options, 1_000, 3000);
}

#[test]
fn reverse_order() {
    let options = Options { key_order: KeyOrder::ReverseBytewise, ..small_options() };
    run(4, 10_000, options.clone(), 100, 3000);
    run(5, 10_000, options, 5_000, 3000);
}
