//! Random operations against a `BTreeMap`, with memtables and tables so small that a run of a second
//! flushes and compacts hundreds of times.

mod common;

use common::{Cluster, small_options};
use forebay_engine::{Db, Options, Snapshot, WriteBatch};
use forebay_env::Random;
use std::collections::BTreeMap;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

struct Run {
    random: Random,
    db: Db,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
    keys: u64,
    max_value_bytes: u64,
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

    fn step(&mut self) {
        match self.random.below(100) {
            0..40 => {
                let (key, value) = (self.key(), self.value());
                self.db.put(&key, &value).unwrap();
                self.model.insert(key, value);
            }
            40..52 => {
                let key = self.key();
                self.db.delete(&key).unwrap();
                self.model.remove(&key);
            }
            52..60 => self.batch(),
            60..80 => {
                let key = self.key();
                assert_eq!(self.db.get(&key).unwrap(), self.model.get(&key).cloned());
            }
            80..85 => {
                let keys: Vec<Vec<u8>> = (0..self.random.below(20)).map(|_| self.key()).collect();
                let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                let expected: Vec<_> = keys.iter().map(|key| self.model.get(key).cloned()).collect();
                assert_eq!(self.db.multi_get(&borrowed).unwrap(), expected);
            }
            85..90 => self.scan(),
            90..92 => self.snapshots.push((self.db.snapshot(), self.model.clone())),
            92..95 => self.read_snapshot(),
            95..97 if !self.snapshots.is_empty() => {
                let at = self.random.below(self.snapshots.len() as u64) as usize;
                self.snapshots.swap_remove(at);
            }
            97 => self.db.flush().unwrap(),
            98 if self.random.one_in(1, 10) => {
                let (lower, upper) = (self.key(), self.key());
                let bounds = if lower < upper { (Some(&lower[..]), Some(&upper[..])) } else { (None, None) };
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
            if self.random.one_in(1, 3) {
                batch.delete(&key);
                self.model.remove(&key);
            } else {
                let value = self.value();
                batch.put(&key, &value);
                self.model.insert(key, value);
            }
        }
        self.db.write(&batch).unwrap();
    }

    fn scan(&mut self) {
        let start = self.key();
        let limit = self.random.below(200) as usize;
        let mut iterator = self.db.iter().unwrap();
        iterator.seek(&start).unwrap();
        for (key, value) in self.model.range(start..).take(limit) {
            assert!(iterator.valid());
            assert_eq!((iterator.key(), iterator.value()), (&key[..], &value[..]));
            iterator.next().unwrap();
        }
    }

    fn read_snapshot(&mut self) {
        let key = self.key();
        if let Some((snapshot, model)) = self.snapshots.first() {
            assert_eq!(self.db.get_at(&key, snapshot).unwrap(), model.get(&key).cloned());
            let mut iterator = self.db.iter_at(snapshot).unwrap();
            iterator.seek_to_first().unwrap();
            check_all(&mut iterator, model);
        }
    }
}

fn check_all(iterator: &mut forebay_engine::DbIterator, model: &Model) {
    for (key, value) in model {
        assert!(iterator.valid());
        assert_eq!((iterator.key(), iterator.value()), (&key[..], &value[..]));
        iterator.next().unwrap();
    }
    assert!(!iterator.valid());
}

fn run(seed: u64, steps: u32, options: Options, keys: u64, max_value_bytes: u64) {
    println!("seed {seed}");
    let cluster = Cluster::start(512 << 20);
    let db = cluster.open(options);
    let mut run =
        Run { random: Random::seeded(seed), db, model: Model::new(), snapshots: Vec::new(), keys, max_value_bytes };
    for _ in 0..steps {
        run.step();
    }
    run.db.wait_for_compactions().unwrap();
    let statistics = run.db.statistics();
    assert!(statistics.flushes > 2 && statistics.compactions > 0, "{statistics:?}");
    let mut iterator = run.db.iter().unwrap();
    iterator.seek_to_first().unwrap();
    check_all(&mut iterator, &run.model);
    drop(iterator);
    run.snapshots.clear();
    run.db.compact_range(None, None).unwrap();
    let mut iterator = run.db.iter().unwrap();
    iterator.seek_to_first().unwrap();
    check_all(&mut iterator, &run.model);
    run.db.close().unwrap();
}

#[test]
fn few_keys_much_overwriting() {
    run(1, 20_000, small_options(), 100, 3000);
}

#[test]
fn many_keys() {
    run(2, 20_000, small_options(), 20_000, 3000);
}

#[test]
fn values_larger_than_a_memtable() {
    run(3, 4_000, small_options(), 500, 100_000);
}

#[test]
fn reverse_order_keeps_the_set() {
    let cluster = Cluster::start(256 << 20);
    let db = cluster.open(Options { key_order: forebay_base::KeyOrder::ReverseBytewise, ..small_options() });
    let mut model = Model::new();
    for i in 0..5000u32 {
        let key = (i.wrapping_mul(2_654_435_761)).to_be_bytes();
        db.put(&key, &i.to_le_bytes()).unwrap();
        model.insert(key.to_vec(), i.to_le_bytes().to_vec());
    }
    db.compact_range(None, None).unwrap();
    let mut iterator = db.iter().unwrap();
    iterator.seek_to_first().unwrap();
    for (key, value) in model.iter().rev() {
        assert_eq!((iterator.key(), iterator.value()), (&key[..], &value[..]));
        assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]));
        iterator.next().unwrap();
    }
    assert!(!iterator.valid());
}
