//! Maps each shard's sequence numbers to writes of the model, and records which writes must outlive the process. This
//! determines what a reopened database must hold.
//!
//! A shard is recovered to its state after one of the writes, at the earliest the last successful flush or sync. Each shard has its own end. Keys passed on by a moved bound are in the tables of
//! the receiving shard before the bound is recorded.

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
    /// Published numbers after writes, ascending, each with the last moment at which it was current.
    written: Vec<(u64, Moment)>,
    /// The number that a successful flush or sync covers.
    durable: u64,
}

/// Each shard's published number.
pub(crate) fn published(db: &Db) -> Vec<u64> {
    db.snapshot().sequence_numbers().iter().map(|number| number.0).collect()
}

/// The number at which each shard was opened.
pub(crate) fn opened_at(db: &Db) -> Vec<u64> {
    db.opened_at().iter().map(|number| number.0).collect()
}

impl Journal {
    /// A journal of a database that was just opened, at the model's moment 0.
    pub(crate) fn begin(numbers: &[u64]) -> Self {
        let shard = |&number: &u64| Shard { written: vec![(number, 0)], durable: number };
        Self { shards: numbers.iter().map(shard).collect() }
    }

    /// Records a successful write.
    pub(crate) fn wrote(&mut self, numbers: &[u64], moment: Moment) {
        for (shard, &number) in self.shards.iter_mut().zip(numbers) {
            match shard.written.last_mut() {
                // The writes went to other shards, so this one is unchanged at the later moment.
                Some(last) if last.0 == number => last.1 = moment,
                _ => shard.written.push((number, moment)),
            }
        }
    }

    /// Records a successful flush or sync. Before it, the shards had published `numbers`.
    pub(crate) fn survives(&mut self, numbers: &[u64]) {
        for (shard, &number) in self.shards.iter_mut().zip(numbers) {
            shard.durable = shard.durable.max(number);
            let passed = shard.written.partition_point(|entry| entry.0 <= shard.durable).saturating_sub(1);
            shard.written.drain(..passed);
        }
    }

    /// The earliest moment to which a shard may be recovered.
    pub(crate) fn oldest(&self) -> Moment {
        self.shards.iter().filter_map(|shard| shard.written.first()).map(|entry| entry.1).min().unwrap_or(Moment::MAX)
    }

    /// Whether there are writes that no successful flush or sync covers.
    pub(crate) fn has_more_than_durable(&self) -> bool {
        self.shards.iter().any(|shard| shard.written.last().is_some_and(|last| last.0 > shard.durable))
    }

    /// The contents of a database whose shards were recovered to `numbers`.
    pub(crate) fn recovered(&self, model: &Model, order: KeyOrder, bounds: &[Vec<u8>], numbers: &[u64]) -> Model {
        assert_eq!(self.shards.len(), numbers.len());
        let moments: Vec<Moment> = self.shards.iter().zip(numbers).map(|(shard, &number)| shard.at(number)).collect();
        model.cut(|key| moments[bounds.partition_point(|bound| order.compare(bound, key).is_le())])
    }
}

impl Shard {
    fn at(&self, number: u64) -> Moment {
        let durable = self.durable;
        assert!(
            number >= durable,
            "a flush or sync up to {durable} was answered, and {number} is the last that is there"
        );
        // Records that move between shards have numbers but change nothing, so a shard may end in the middle of them.
        let passed = self.written.partition_point(|entry| entry.0 <= number);
        let last = passed.checked_sub(1).and_then(|at| self.written.get(at));
        last.map_or_else(|| panic!("{number} is before the first number that may be found"), |entry| entry.1)
    }
}
