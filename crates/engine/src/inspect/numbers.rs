//! Which numbers of a shard's writes were found. Each write has one, and none is left out: what is lost had one of the others.

use forebay_base::SequenceNumber;
use forebay_table::TableProperties;
use std::sync::Arc;

/// Numbers of records that were found, ascending.
#[derive(Debug, Default)]
pub(crate) struct Numbers(Vec<SequenceNumber>);

impl FromIterator<SequenceNumber> for Numbers {
    fn from_iter<I: IntoIterator<Item = SequenceNumber>>(numbers: I) -> Self {
        let mut numbers: Vec<_> = numbers.into_iter().collect();
        numbers.sort_unstable();
        numbers.dedup();
        Self(numbers)
    }
}

impl Numbers {
    /// The last number of which no record was found, at most `up_to`; zero, which no write has, if there is none.
    pub(crate) fn last_missing(&self, up_to: SequenceNumber) -> SequenceNumber {
        let below = self.0.partition_point(|number| *number <= up_to);
        let found = self.0.iter().take(below).rev();
        let dense = found.zip((0..=up_to.0).rev()).take_while(|(found, number)| found.0 == *number).count();
        SequenceNumber(up_to.0.saturating_sub(dense as u64))
    }
}

/// Numbers that writes had of which no record was found: what overwrote or deleted a key, and is lost, had one of them.
pub(crate) struct Missing {
    /// The last up to which tables hold everything.
    pub(crate) last: SequenceNumber,
    /// The last of each table that lacks something.
    pub(crate) tables: Vec<(Arc<TableProperties>, SequenceNumber)>,
}

impl Missing {
    /// Whether something newer of the key than `number` may be missing in a table.
    pub(crate) fn may_replace(&self, key: &[u8], number: SequenceNumber) -> bool {
        self.tables.iter().any(|(table, last)| *last > number && table.may_contain(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_that_is_missing() {
        let numbers: Numbers = [9, 2, 8, 1, 5, 8, 4].map(SequenceNumber).into_iter().collect();
        let missing = |up_to| numbers.last_missing(SequenceNumber(up_to)).0;
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map(missing), [0, 0, 0, 3, 3, 3, 6, 7, 7, 7, 10]);
        assert_eq!(missing(u64::MAX), u64::MAX);
        assert_eq!(Numbers::default().last_missing(SequenceNumber(7)).0, 7);
    }
}
