//! Which write of the model each shard's sequence numbers stand for, and which of them are known to
//! outlive the process: what a database must hold when it is opened again.
//!
//! A shard is found again as it was at the end of one of its memtables, so as it was after one of the
//! writes; not before the last flush that was answered. Each shard has an end of its own. What a moved
//! bound passed on is in the tables of the shard that got it before the bound is recorded.

use crate::model::{Model, Moment};
use forebay_base::KeyOrder;
use forebay_engine::Db;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal {
    shards: Vec<Shard>,
}

#[derive(Debug, Clone, Default)]
struct Shard {
    /// Published numbers after writes, each with the last moment at which it was that, ascending.
    written: Vec<(u64, Moment)>,
    /// What a flush that was answered covers.
    durable: u64,
}

/// Each shard's published number.
pub(crate) fn published(db: &Db) -> Vec<u64> {
    db.snapshot().sequence_numbers().iter().map(|number| number.0).collect()
}

/// The number that each shard was found at.
pub(crate) fn opened_at(db: &Db) -> Vec<u64> {
    db.opened_at().iter().map(|number| number.0).collect()
}

impl Journal {
    /// Of a database that was just opened, and is at the model's moment 0.
    pub(crate) fn begin(numbers: &[u64]) -> Self {
        let shard = |&number: &u64| Shard { written: vec![(number, 0)], durable: number };
        Self { shards: numbers.iter().map(shard).collect() }
    }

    /// A write was answered.
    pub(crate) fn wrote(&mut self, numbers: &[u64], moment: Moment) {
        for (shard, &number) in self.shards.iter_mut().zip(numbers) {
            match shard.written.last_mut() {
                // What was written went to other shards: this one is the same at the later moment.
                Some(last) if last.0 == number => last.1 = moment,
                _ => shard.written.push((number, moment)),
            }
        }
    }

    /// A flush was answered, before which the shards had published `numbers`.
    pub(crate) fn flushed(&mut self, numbers: &[u64]) {
        for (shard, &number) in self.shards.iter_mut().zip(numbers) {
            shard.durable = shard.durable.max(number);
            let passed = shard.written.partition_point(|entry| entry.0 <= shard.durable).saturating_sub(1);
            shard.written.drain(..passed);
        }
    }

    /// The first moment that a shard may be found at.
    pub(crate) fn oldest(&self) -> Moment {
        self.shards.iter().filter_map(|shard| shard.written.first()).map(|entry| entry.1).min().unwrap_or(Moment::MAX)
    }

    /// Whether something was written that no flush that was answered covers.
    pub(crate) fn has_more_than_durable(&self) -> bool {
        self.shards.iter().any(|shard| shard.written.last().is_some_and(|last| last.0 > shard.durable))
    }

    /// What a database holds whose shards were found at `numbers`.
    pub(crate) fn recovered(&self, model: &Model, order: KeyOrder, bounds: &[Vec<u8>], numbers: &[u64]) -> Model {
        assert_eq!(self.shards.len(), numbers.len());
        let moments: Vec<Moment> = self.shards.iter().zip(numbers).map(|(shard, &number)| shard.at(number)).collect();
        model.cut(|key| moments[bounds.partition_point(|bound| order.compare(bound, key).is_le())])
    }
}

impl Shard {
    fn at(&self, number: u64) -> Moment {
        let durable = self.durable;
        assert!(number >= durable, "a flush up to {durable} was answered, and {number} is the last that is there");
        // Records that move between shards have numbers and change nothing, so a shard may end in their midst.
        let passed = self.written.partition_point(|entry| entry.0 <= number);
        let last = passed.checked_sub(1).and_then(|at| self.written.get(at));
        last.map_or_else(|| panic!("{number} is before the first number that may be found"), |entry| entry.1)
    }
}
