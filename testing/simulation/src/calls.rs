//! Random calls, each checked against a model. A call may fail as the faults of the run allow: then a
//! write has had no effect.

use crate::model::Model;
use forebay_base::{ErrorKind, KeyOrder};
use forebay_engine::{Db, DbIterator, Error, IterOptions, Snapshot, WriteBatch};
use forebay_env::Random;

/// Most snapshots held at a time.
const SNAPSHOTS: usize = 4;

/// See the module.
pub(crate) struct Calls {
    random: Random,
    order: KeyOrder,
    keys: u64,
    large_value_bytes: u64,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
    pub(crate) done: u64,
    pub(crate) failed: u64,
}

impl Calls {
    pub(crate) fn new(mut random: Random, order: KeyOrder) -> Self {
        let keys = [50, 500, 5000][random.below(3) as usize];
        let large_value_bytes = [200, 3000][random.below(2) as usize];
        Self {
            random,
            order,
            keys,
            large_value_bytes,
            model: Model::default(),
            snapshots: Vec::new(),
            done: 0,
            failed: 0,
        }
    }

    /// The database is gone with all that it held.
    pub(crate) fn lost_everything(&mut self) {
        self.snapshots.clear();
        self.model = Model::default();
    }

    /// Lets go of what is held of the database.
    pub(crate) fn release(&mut self) {
        self.snapshots.clear();
    }

    /// One call of any kind.
    pub(crate) fn any_call(&mut self, db: &Db) {
        match self.random.below(200) {
            0 => {
                let result = db.flush();
                self.answered(result);
            }
            1 if self.random.one_in(1, 8) => {
                let (lower, upper) = self.range();
                let all = self.random.one_in(1, 2);
                let bounds = if all { (None, None) } else { (Some(&lower[..]), Some(&upper[..])) };
                let result = db.compact_range(bounds.0, bounds.1);
                self.answered(result);
            }
            2..4 => self.walk(db),
            _ => self.short_call(db),
        }
    }

    /// A call that waits for no background work (unless it is stalled).
    pub(crate) fn short_call(&mut self, db: &Db) {
        self.done += 1;
        match self.random.below(100) {
            0..45 => self.put(db),
            45..55 => self.delete(db),
            55..62 => self.batch(db),
            62..80 => self.get(db),
            80..85 => self.multi_get(db),
            85..89 => self.scan(db),
            89 => self.delete_range(db),
            90..92 => self.take_snapshot(db),
            92..96 => self.read_snapshot(db),
            96..98 if !self.snapshots.is_empty() => {
                let at = self.random.below(self.snapshots.len() as u64) as usize;
                self.snapshots.swap_remove(at);
            }
            _ => self.get(db),
        }
    }

    /// The answer, if there was one. A failure must be one that the run's faults explain.
    fn answered<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(answer) => Some(answer),
            Err(error) => {
                let explained = [ErrorKind::Unavailable, ErrorKind::TimedOut, ErrorKind::Closed];
                assert!(explained.contains(&error.kind()), "{error}");
                self.failed += 1;
                None
            }
        }
    }

    fn key(&mut self) -> Vec<u8> {
        match self.random.below(self.keys) {
            0 => Vec::new(),
            number => format!("{number:0width$}", width = 1 + (number % 23) as usize).into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let length = if self.random.one_in(1, 50) { self.large_value_bytes } else { self.random.below(100) };
        let mut value = vec![0; length as usize];
        self.random.fill(&mut value);
        value
    }

    /// Two keys in order, near each other most of the time.
    fn range(&mut self) -> (Vec<u8>, Vec<u8>) {
        let (a, b) = (self.key(), self.key());
        let b = match self.random.below(40) {
            0..20 => [&a[..], b"5"].concat(),
            20..39 => [&a[..a.len() - a.len() / 8], b"6"].concat(),
            _ => b,
        };
        if self.order.compare(&a, &b).is_le() { (a, b) } else { (b, a) }
    }

    fn put(&mut self, db: &Db) {
        let (key, value) = (self.key(), self.value());
        if self.answered(db.put(&key, &value)).is_some() {
            self.model.put(&key, &value);
        }
    }

    fn delete(&mut self, db: &Db) {
        let key = self.key();
        if self.answered(db.delete(&key)).is_some() {
            self.model.delete(&key);
        }
    }

    fn delete_range(&mut self, db: &Db) {
        let (from, to) = self.range();
        if self.answered(db.delete_range(&from, &to)).is_some() {
            self.model.delete_range(&from, &to, self.order);
        }
    }

    fn batch(&mut self, db: &Db) {
        let mut batch = WriteBatch::new();
        let mut after = self.model.clone();
        for _ in 0..self.random.below(8) {
            let key = self.key();
            match self.random.below(10) {
                0..3 => {
                    batch.delete(&key);
                    after.delete(&key);
                }
                3 => {
                    let (from, to) = self.range();
                    batch.delete_range(&from, &to);
                    after.delete_range(&from, &to, self.order);
                }
                _ => {
                    let value = self.value();
                    batch.put(&key, &value);
                    after.put(&key, &value);
                }
            }
        }
        if self.answered(db.write(&batch)).is_some() {
            self.model = after;
        }
    }

    fn get(&mut self, db: &Db) {
        let key = self.key();
        if let Some(found) = self.answered(db.get(&key)) {
            assert_eq!(found.as_ref(), self.model.get(&key), "key {key:?}");
        }
    }

    fn multi_get(&mut self, db: &Db) {
        let keys: Vec<Vec<u8>> = (0..self.random.below(20)).map(|_| self.key()).collect();
        let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        if let Some(found) = self.answered(db.multi_get(&borrowed)) {
            let expected: Vec<_> = keys.iter().map(|key| self.model.get(key).cloned()).collect();
            assert_eq!(found, expected);
        }
    }

    fn scan(&mut self, db: &Db) {
        let start = self.key();
        let limit = self.random.below(60) as usize;
        let result = db.iter().and_then(|mut iterator| {
            iterator.seek(&start)?;
            expect_forward(&mut iterator, &self.model.from(&start, self.order, limit))
        });
        self.answered(result);
    }

    /// To and fro from a key, now or in the past.
    fn walk(&mut self, db: &Db) {
        self.done += 1;
        let target = self.key();
        let in_past = self.random.one_in(1, 2);
        let limit = self.random.below(100) as usize;
        let (snapshot, model) = match self.snapshots.first() {
            Some((snapshot, model)) if in_past => (Some(snapshot), model),
            _ => (None, &self.model),
        };
        let order = self.order;
        let result = db.iter_with(&IterOptions { snapshot, ..IterOptions::default() }).and_then(|mut iterator| {
            iterator.seek(&target)?;
            expect_forward(&mut iterator, &model.from(&target, order, limit))?;
            iterator.seek_for_prev(&target)?;
            expect_backward(&mut iterator, &model.back_from(&target, order, limit))
        });
        self.answered(result);
    }

    fn take_snapshot(&mut self, db: &Db) {
        if self.snapshots.len() == SNAPSHOTS {
            self.snapshots.remove(0);
        }
        self.snapshots.push((db.snapshot(), self.model.clone()));
    }

    fn read_snapshot(&mut self, db: &Db) {
        let key = self.key();
        let Some((snapshot, model)) = self.snapshots.first() else { return };
        let expected = model.get(&key).cloned();
        let result = db.get_at(&key, snapshot);
        if let Some(found) = self.answered(result) {
            assert_eq!(found, expected, "key {key:?} in a snapshot");
        }
    }

    /// Compacts everything down to the last level.
    pub(crate) fn compact_all(&mut self, db: &Db) {
        let result = db.compact_range(None, None);
        self.answered(result);
    }

    /// Reads everything, now and as of each snapshot.
    pub(crate) fn check_all(&mut self, db: &Db) {
        let snapshots = std::mem::take(&mut self.snapshots);
        for (snapshot, model) in &snapshots {
            self.answered(db.iter_at(snapshot).and_then(|iterator| expect_all(iterator, model, self.order)));
        }
        self.snapshots = snapshots;
        let result = db.iter().and_then(|iterator| expect_all(iterator, &self.model, self.order));
        self.answered(result);
    }
}

fn expect_all(mut iterator: DbIterator, model: &Model, order: KeyOrder) -> Result<(), Error> {
    let mut entries = model.entries(order);
    iterator.seek_to_first()?;
    expect_forward(&mut iterator, &entries)?;
    assert!(!iterator.valid(), "more entries than there are");
    iterator.seek_to_last()?;
    entries.reverse();
    expect_backward(&mut iterator, &entries)?;
    assert!(!iterator.valid(), "more entries than there are, backwards");
    Ok(())
}

fn expect_forward(iterator: &mut DbIterator, entries: &[(&[u8], &[u8])]) -> Result<(), Error> {
    for entry in entries {
        assert_eq!(iterator.valid().then(|| (iterator.key(), iterator.value())), Some(*entry));
        iterator.next()?;
    }
    Ok(())
}

fn expect_backward(iterator: &mut DbIterator, entries: &[(&[u8], &[u8])]) -> Result<(), Error> {
    for entry in entries {
        assert_eq!(iterator.valid().then(|| (iterator.key(), iterator.value())), Some(*entry));
        iterator.prev()?;
    }
    Ok(())
}
