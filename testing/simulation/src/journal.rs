//! Maps each shard's sequence numbers to writes of the model, and records which writes must outlive the process. This
//! determines what a reopened database must hold.
//!
//! A shard is recovered to its state after one of the writes, at the earliest the last one that a flush, a sync or a durable
//! write covers. Each shard has its own end, unless a log of all shards leads the tables: then all shards are recovered
//! to one moment. If each shard has a log in memory, a durable batch that crosses shards is in all of them or in none.
//! Keys passed on by a moved bound are in the tables of the receiving shard before the bound is recorded.

use crate::model::{Model, Moment};
use forebay_base::KeyOrder;
use forebay_engine::Db;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal {
    shards: Vec<Shard>,
    /// All shards are recovered to the same moment.
    has_one_end: bool,
    /// Batches that cross shards and must be recovered whole or not at all: the last number of each in each of its
    /// shards.
    crossings: Vec<Vec<(usize, u64)>>,
}

#[derive(Debug, Clone, Default)]
struct Shard {
    /// Published numbers after writes, ascending.
    written: Vec<Written>,
    /// The number up to which everything outlives the process.
    durable: u64,
    /// The same, before the last group.
    durable_before: u64,
}

/// A published number, with the first and the last moment at which it was current.
#[derive(Debug, Clone, Copy)]
struct Written {
    number: u64,
    since: Moment,
    until: Moment,
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
    /// A journal of a database that was just opened, at a moment of the model.
    pub(crate) fn begin(numbers: &[u64], moment: Moment, has_one_end: bool) -> Self {
        let begun = |&number: &u64| Written { number, since: moment, until: moment };
        let shard = |number: &u64| Shard { written: vec![begun(number)], durable: *number, durable_before: *number };
        Self { shards: numbers.iter().map(shard).collect(), has_one_end, crossings: Vec::new() }
    }

    /// Records that what was written between `before` and `after` is in all shards that it changed, or in none.
    pub(crate) fn crossed(&mut self, before: &[u64], after: &[u64]) {
        let changed = before.iter().zip(after).enumerate().filter(|(_, (before, after))| before != after);
        let parts: Vec<_> = changed.map(|(shard, (_, after))| (shard, *after)).collect();
        if parts.len() > 1 {
            self.crossings.push(parts);
        }
    }

    /// Records a write, or something that took numbers and changed nothing.
    pub(crate) fn wrote(&mut self, numbers: &[u64], moment: Moment) {
        for (shard, &number) in self.shards.iter_mut().zip(numbers) {
            match shard.written.last_mut() {
                // The writes went to other shards, so this one is unchanged at the later moment.
                Some(last) if last.number == number => last.until = moment,
                _ => shard.written.push(Written { number, since: moment, until: moment }),
            }
        }
    }

    /// Records that everything up to `numbers` outlives the process.
    pub(crate) fn survives(&mut self, numbers: &[u64]) {
        let is_group = self.shards.iter().zip(numbers).any(|(shard, number)| shard.durable < *number);
        for (shard, &number) in self.shards.iter_mut().zip(numbers) {
            shard.durable_before = if is_group { shard.durable } else { shard.durable_before };
            shard.durable = shard.durable.max(number);
            let passed = shard.written.partition_point(|entry| entry.number <= shard.durable_before).saturating_sub(1);
            shard.written.drain(..passed);
        }
        let is_durable = |(shard, number): &(usize, u64)| self.shards[*shard].durable >= *number;
        self.crossings.retain(|parts| !parts.iter().all(is_durable));
    }

    /// Whether shards that were recovered to `numbers` lack durable writes.
    pub(crate) fn lacks(&self, numbers: &[u64]) -> bool {
        self.shards.iter().zip(numbers).any(|(shard, number)| *number < shard.durable)
    }

    /// The earliest moment to which a shard may be recovered.
    pub(crate) fn oldest(&self) -> Moment {
        self.shards
            .iter()
            .filter_map(|shard| shard.written.first())
            .map(|entry| entry.until)
            .min()
            .unwrap_or(Moment::MAX)
    }

    /// Returns the contents of a database whose shards were recovered to `numbers`. With `may_lack_a_group`, they may
    /// lack the last group.
    pub(crate) fn recovered(
        &self,
        model: &Model,
        order: KeyOrder,
        bounds: &[Vec<u8>],
        numbers: &[u64],
        may_lack_a_group: bool,
    ) -> Model {
        assert_eq!(self.shards.len(), numbers.len());
        let found: Vec<Written> =
            self.shards.iter().zip(numbers).map(|(shard, &number)| shard.at(number, may_lack_a_group)).collect();
        if self.has_one_end {
            let since = found.iter().map(|entry| entry.since).max();
            let until = found.iter().map(|entry| entry.until).min();
            assert!(since <= until, "no moment at which all shards were as they were found: {found:?}, {numbers:?}");
        }
        for parts in &self.crossings {
            let there = parts.iter().filter(|(shard, number)| numbers[*shard] >= *number).count();
            assert!([0, parts.len()].contains(&there), "{there} of a batch's parts are there: {parts:?}, {numbers:?}");
        }
        model.cut(|key| found[bounds.partition_point(|bound| order.compare(bound, key).is_le())].until)
    }
}

impl Shard {
    fn at(&self, number: u64, may_lack_a_group: bool) -> Written {
        let durable = if may_lack_a_group { self.durable_before } else { self.durable };
        assert!(number >= durable, "everything up to {durable} was durable, and {number} is the last that is there");
        // Records that move between shards have numbers but change nothing, so a shard may end in the middle of them.
        let passed = self.written.partition_point(|entry| entry.number <= number);
        let last = passed.checked_sub(1).and_then(|at| self.written.get(at));
        *last.unwrap_or_else(|| panic!("{number} is before the first number that may be found"))
    }
}
