//! Which numbers of a shard's writes were found. Each write has one, and none is left out: what is lost had one of the others.

use forebay_base::SequenceNumber;

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
