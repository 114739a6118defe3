//! Reads of a database, checked against the model.

use crate::calls::Calls;
use crate::model::{Entries, Moment};
use crate::walker::Walker;
use forebay_engine::{Db, DbIterator, Error, IterOptions};

impl Calls {
    pub(crate) fn get(&mut self, db: &Db) {
        let key = self.key();
        if let Some(found) = self.answered(db.get(&key)) {
            assert_eq!(found.as_deref(), self.model.get(&key, self.model.now()), "key {key:?}");
        }
    }

    /// Reads several keys, now or in the past.
    pub(crate) fn multi_get(&mut self, db: &Db) {
        let keys: Vec<Vec<u8>> = (0..self.random.below(20)).map(|_| self.key()).collect();
        let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let in_past = self.random.one_in(1, 4);
        let (result, moment) = match self.snapshots.last() {
            Some((snapshot, moment)) if in_past => (db.multi_get_at(&borrowed, snapshot), *moment),
            _ => (db.multi_get(&borrowed), self.model.now()),
        };
        if let Some(found) = self.answered(result) {
            for (key, found) in keys.iter().zip(found) {
                assert_eq!(found.as_deref(), self.model.get(key, moment), "key {key:?}, one of several");
            }
        }
    }

    pub(crate) fn scan(&mut self, db: &Db) {
        let start = self.key();
        let limit = self.random.below(60) as usize;
        let result = db.iter().and_then(|mut iterator| {
            iterator.seek(&start)?;
            let entries = self.model.from(&start, self.habits.order, self.model.now());
            expect_forward(&mut iterator, Box::new(entries.take(limit)))
        });
        self.answered(result);
    }

    pub(crate) fn read_snapshot(&mut self, db: &Db) {
        let key = self.key();
        let Some((snapshot, moment)) = self.snapshots.first() else { return };
        let moment = *moment;
        let result = db.get_at(&key, snapshot);
        if let Some(found) = self.answered(result) {
            assert_eq!(found.as_deref(), self.model.get(&key, moment), "key {key:?} in a snapshot");
        }
    }

    /// Opens an iterator with any bounds, now or in the past, for later calls to move.
    pub(crate) fn open_walker(&mut self, db: &Db) {
        let (from, to) = self.range();
        let lower = self.random.one_in(1, 4).then_some(from);
        let upper = self.random.one_in(1, 4).then_some(to);
        let prefix = self.random.one_in(1, 8).then(|| self.key());
        let snapshot = self.snapshots.first().filter(|_| self.random.one_in(1, 2));
        let moment = snapshot.map_or(self.model.now(), |snapshot| snapshot.1);
        let options = IterOptions {
            lower: lower.as_deref(),
            upper: upper.as_deref(),
            prefix: prefix.as_deref(),
            snapshot: snapshot.map(|snapshot| &snapshot.0),
        };
        let opened = db.iter_with(&options);
        if let Some(iterator) = self.answered(opened) {
            self.hold(Walker::new(iterator, moment, self.habits.order, [lower, upper, prefix]));
            self.walk();
        }
    }

    /// Moves a held iterator.
    pub(crate) fn walk(&mut self) {
        let Some(mut walker) = self.walkers.pop() else { return };
        let steps = 1 + self.random.below(10);
        for _ in 0..steps {
            let target = self.key();
            let result = walker.step(&mut self.random, &target, &self.model);
            if self.answered(result).is_none() {
                return self.forget();
            }
        }
        if self.random.one_in(1, 4) {
            self.forget();
        } else {
            self.walkers.insert(0, walker);
        }
    }

    /// Reads everything, now and as of each snapshot.
    pub(crate) fn check_all(&mut self, db: &Db) {
        self.look_at_clock(db);
        let snapshots = std::mem::take(&mut self.snapshots);
        for (snapshot, moment) in &snapshots {
            let result = db.iter_at(snapshot).and_then(|iterator| self.expect_all(iterator, *moment));
            self.answered(result);
        }
        self.snapshots = snapshots;
        let result = db.iter().and_then(|iterator| self.expect_all(iterator, self.model.now()));
        self.answered(result);
    }

    fn expect_all(&self, mut iterator: DbIterator, moment: Moment) -> Result<(), Error> {
        let order = self.habits.order;
        iterator.seek_to_first()?;
        expect_forward(&mut iterator, self.model.entries(order, moment))?;
        assert!(!iterator.valid(), "more entries than there are: {:?}", iterator.key());
        iterator.seek_to_last()?;
        for entry in self.model.entries(crate::model::reverse(order), moment) {
            assert_eq!(iterator.valid().then(|| (iterator.key(), iterator.value())), Some(entry), "backwards");
            iterator.prev()?;
        }
        assert!(!iterator.valid(), "more entries than there are, backwards: {:?}", iterator.key());
        Ok(())
    }
}

fn expect_forward(iterator: &mut DbIterator, entries: Entries<'_>) -> Result<(), Error> {
    for entry in entries {
        assert_eq!(iterator.valid().then(|| (iterator.key(), iterator.value())), Some(entry));
        iterator.next()?;
    }
    Ok(())
}
