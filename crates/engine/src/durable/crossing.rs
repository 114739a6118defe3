//! Which records of the shards' logs count where batches cross shards (`docs/decisions/0040`). Pure.
//!
//! ```text
//!   log of shard 0   [ … ][ X, part 1 of 2 ][ … ]     cut before X, as shard 1 lacks its part
//!   log of shard 1   [ … ]                            so was all that followed X in shard 0 never acknowledged
//! ```
//!
//! Each part of a batch begins with a mark that names all parts ([`CrossingMark`]). A batch counts if each shard holds
//! its part, in its log or in tables. If one shard does not, each shard is cut before its part. That may take parts of
//! other batches away, so the check is repeated.

use crate::terms::planted::{Bug, planted};
use forebay_base::{CrossingMark, SequenceNumber};

/// What a shard holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    /// The last number.
    pub(crate) last: SequenceNumber,
    /// The marks of batches that cross shards, ascending, each with its number.
    pub(crate) marks: Vec<(SequenceNumber, CrossingMark)>,
}

/// The last number of each shard that counts.
pub(crate) fn agree(shards: &[Reached]) -> Vec<SequenceNumber> {
    let mut ends: Vec<_> = shards.iter().map(|shard| shard.last).collect();
    while let Some((shard, end)) = first_cut(shards, &ends).filter(|_| !planted(Bug::HalfCrossings)) {
        tracing::info!(shard, end = end.0, "a batch that crosses shards is not whole: it was never acknowledged");
        if let Some(of_shard) = ends.get_mut(shard) {
            *of_shard = end;
        }
    }
    ends
}

/// A shard with a part of a batch that another shard does not hold, and the number before it.
fn first_cut(shards: &[Reached], ends: &[SequenceNumber]) -> Option<(usize, SequenceNumber)> {
    let is_held = |&(shard, last): &(u32, SequenceNumber)| {
        usize::try_from(shard).ok().and_then(|shard| ends.get(shard)).is_some_and(|end| *end >= last)
    };
    shards.iter().zip(ends).enumerate().find_map(|(at, (shard, end))| {
        let mut counted = shard.marks.iter().take_while(|(number, _)| number <= end);
        let (number, _) = counted.find(|(_, mark)| !mark.parts.iter().all(is_held))?;
        Some((at, SequenceNumber(number.0.saturating_sub(1))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of a batch: shards, with the last number in each.
    type Parts = [(u32, u64)];

    fn number(number: u64) -> SequenceNumber {
        SequenceNumber(number)
    }

    /// A shard that holds numbers up to `last`, and a part of each of these batches, which begins at a number.
    fn shard(last: u64, marks: &[(u64, &Parts)]) -> Reached {
        let parts = |parts: &Parts| parts.iter().map(|(shard, last)| (*shard, number(*last))).collect();
        let marks = marks.iter().map(|(first, of)| (number(*first), CrossingMark { parts: parts(of) })).collect();
        Reached { last: number(last), marks }
    }

    fn ends(shards: &[Reached]) -> Vec<u64> {
        agree(shards).iter().map(|end| end.0).collect()
    }

    #[test]
    fn a_batch_counts_if_each_shard_holds_its_part() {
        let x: &Parts = &[(0, 12), (1, 7)];
        assert_eq!(ends(&[shard(15, &[(10, x)]), shard(7, &[(6, x)])]), [15, 7]);
        // Tables hold the other part, so its mark is not looked at.
        assert_eq!(ends(&[shard(15, &[(10, x)]), shard(30, &[])]), [15, 30]);
        // The shard that shipped first is cut, with all that follows.
        assert_eq!(ends(&[shard(15, &[(10, x)]), shard(5, &[])]), [9, 5]);
        assert_eq!(ends(&[shard(9, &[]), shard(8, &[(6, x)])]), [9, 5]);
        // A part exists up to its last record, or not at all.
        assert_eq!(ends(&[shard(11, &[(10, x)]), shard(7, &[(6, x)])]), [9, 5]);
    }

    #[test]
    fn a_cut_takes_what_follows_from_other_shards_too() {
        let (x, y): (&Parts, &Parts) = (&[(0, 4), (1, 4)], &[(1, 8), (2, 3)]);
        let shards = [shard(2, &[]), shard(9, &[(3, x), (6, y)]), shard(5, &[(2, y)])];
        assert_eq!(ends(&shards), [2, 2, 1]);
        // In whatever order the shards are.
        let (x, y): (&Parts, &Parts) = (&[(2, 4), (1, 4)], &[(1, 8), (0, 3)]);
        let shards = [shard(5, &[(2, y)]), shard(9, &[(3, x), (6, y)]), shard(2, &[])];
        assert_eq!(ends(&shards), [1, 2, 2]);
    }

    #[test]
    fn a_mark_of_a_shard_that_is_not_there_is_no_whole_batch() {
        assert_eq!(ends(&[shard(9, &[(3, &[(0, 4), (7, 1)])])]), [2]);
    }
}
