//! What a log holds that no table does, once an owner is gone (`docs/decisions/0034`).
//!
//! ```text
//!   parts by their first numbers   [ 1 … 60 ][ 61 … 80 ✗ ][ 95 … ]
//!   in tables up to 40                  41 ──────────► 80          then a gap: nothing behind it was acknowledged
//!   cut behind the last whole batch     41 ──────► 78
//! ```
//!
//! A part counts as far as its records verify and their numbers follow each other. An owner who takes over records how
//! far that is. A part that holds less than was recorded is damaged.

use crate::terms::{Error, Result};
use forebay_base::{CrossingMark, Kind, Record, RecordHeader, SegmentId, SequenceNumber};
use std::ops::Range;

/// A part of a log as it was read.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) segment: SegmentId,
    pub(crate) bytes: Vec<u8>,
    /// The last number that counts, if an owner recorded it.
    pub(crate) last: Option<SequenceNumber>,
}

/// See the module.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Replay {
    /// The records to be written again, in order: which part they lie in, and where.
    pub(crate) records: Vec<(usize, Range<usize>)>,
    /// The parts that hold them, each with the last number that counts in it, oldest first.
    pub(crate) parts: Vec<(SegmentId, SequenceNumber)>,
    /// Parts that nobody needs.
    pub(crate) ended: Vec<SegmentId>,
    /// The last number that counts.
    pub(crate) last: SequenceNumber,
    /// The marks among the records, each with its number, ascending.
    pub(crate) marks: Vec<(SequenceNumber, CrossingMark)>,
}

/// The records of a part that verify and follow each other.
#[derive(Debug, Clone, Copy)]
struct Chain {
    first: SequenceNumber,
    last: SequenceNumber,
}

/// A record in a part.
#[derive(Debug, Clone, Copy)]
struct Found {
    number: SequenceNumber,
    start: usize,
    end: usize,
    goes_on: bool,
    is_mark: bool,
}

/// Finds what of a log counts, where tables hold all records up to `flushed`, and nothing behind `end` counts.
///
/// # Errors
/// `Corrupt` when a part holds less than was recorded, or a mark is none.
pub(crate) fn replay(parts: &[Part], flushed: SequenceNumber, end: SequenceNumber) -> Result<Replay> {
    let mut chains = Vec::with_capacity(parts.len());
    let mut replay = Replay { last: flushed, ..Replay::default() };
    for (at, part) in parts.iter().enumerate() {
        match chain(part)? {
            Some(chain) if chain.last > flushed && chain.first <= end => {
                chains.push((at, Chain { last: chain.last.min(end), ..chain }));
            }
            _ => replay.ended.push(part.segment),
        }
    }
    chains.sort_by_key(|(_, chain)| chain.first);
    let mut expected = flushed.0 + 1;
    // Behind the last whole batch: how many ranges there are, where the last one ends, and the number.
    let mut whole = (0, 0, flushed);
    let mut taken = Vec::new();
    for (at, chain) in chains {
        let Some(part) = parts.get(at) else { continue };
        if chain.first.0 > expected || chain.last.0 < expected {
            replay.ended.push(part.segment);
            continue;
        }
        let mut range: Option<Range<usize>> = None;
        let counted = records(part).take_while(|found| found.number <= end);
        for found in counted.filter(|found| found.number.0 >= expected) {
            if found.is_mark {
                let record = Record::decode(part.bytes.get(found.start..).unwrap_or_default())?;
                let mark = CrossingMark::decode(record.value);
                let mark = mark.map_err(|error| Error::corrupt(format!("the log at {}: {error}", found.number.0)))?;
                replay.marks.push((found.number, mark));
            }
            range = Some(range.map_or(found.start, |range| range.start)..found.end);
            if !found.goes_on {
                whole = (taken.len() + 1, found.end, found.number);
            }
        }
        taken.extend(range.map(|range| (at, range)));
        expected = chain.last.0 + 1;
    }
    let (ranges, end, last) = whole;
    for (number, (at, range)) in taken.into_iter().enumerate() {
        let Some(part) = parts.get(at) else { continue };
        let end = if number + 1 == ranges { end } else { range.end };
        if number >= ranges {
            replay.ended.push(part.segment);
            continue;
        }
        let counted = records(part).take_while(|found| found.end <= end).last().map_or(last, |found| found.number);
        replay.parts.push((part.segment, counted));
        replay.records.push((at, range.start..end));
    }
    replay.last = last;
    replay.marks.retain(|(number, _)| *number <= last);
    Ok(replay)
}

fn chain(part: &Part) -> Result<Option<Chain>> {
    let mut chain: Option<Chain> = None;
    for found in records(part) {
        let first = chain.map_or(found.number, |chain| chain.first);
        chain = Some(Chain { first, last: found.number });
    }
    match (part.last, chain) {
        (Some(recorded), Some(chain)) if chain.last < recorded => Err(Error::corrupt(format!(
            "{} holds the log up to number {}, and {} was recorded",
            part.segment, chain.last.0, recorded.0
        ))),
        (Some(recorded), None) => {
            Err(Error::corrupt(format!("{} holds no log, and number {} was recorded", part.segment, recorded.0)))
        }
        (_, chain) => Ok(chain),
    }
}

/// The records of a part as far as they verify, their numbers follow each other, and they count.
fn records(part: &Part) -> impl Iterator<Item = Found> {
    let mut start = 0;
    let mut before: Option<SequenceNumber> = None;
    std::iter::from_fn(move || {
        let rest = part.bytes.get(start..)?;
        let header = RecordHeader::decode(rest).ok()?;
        header.verify(rest).ok()?;
        let number = header.tag.sequence();
        let follows = before.is_none_or(|before| before.checked_add(1) == Some(number));
        if !follows || part.last.is_some_and(|last| number > last) {
            return None;
        }
        let end = start.checked_add(header.padded_length()).filter(|end| *end <= part.bytes.len())?;
        let is_mark = header.tag.kind() == Kind::Crossing;
        let found = Found { number, start, end, goes_on: header.tag.goes_on(), is_mark };
        (start, before) = (end, Some(number));
        Some(found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::Tag;

    const LENGTH: usize = 16;

    /// A part with records of these numbers; those of `goes_on` are followed by another one of their batch.
    fn part(id: u64, numbers: std::ops::RangeInclusive<u64>, goes_on: &[u64]) -> Part {
        let mut bytes = Vec::new();
        for number in numbers {
            let tag = Tag::new(SequenceNumber(number), Kind::Put, false);
            let tag = if goes_on.contains(&number) { tag.going_on() } else { tag };
            Record { tag, expiry_ms: None, key: b"k", value: b"" }.encode(&mut bytes);
        }
        bytes.resize(bytes.len() + 64, 0);
        Part { segment: SegmentId(id), bytes, last: None }
    }

    /// Records by part and place, parts with their last numbers, ended parts, the last number.
    type Found = (Vec<(usize, Range<usize>)>, Vec<(u64, u64)>, Vec<u64>, u64);

    fn of(parts: &[Part], flushed: u64) -> Found {
        let Replay { records, parts, ended, last, .. } =
            replay(parts, SequenceNumber(flushed), SequenceNumber::MAX).unwrap();
        let records = records.into_iter().map(|(at, range)| (at, range.start / LENGTH..range.end / LENGTH));
        let parts = parts.into_iter().map(|(segment, last)| (segment.0, last.0)).collect();
        (records.collect(), parts, ended.into_iter().map(|segment| segment.0).collect(), last.0)
    }

    #[test]
    fn parts_follow_each_other_by_their_numbers() {
        let parts = [part(7, 31..=40, &[]), part(8, 1..=10, &[]), part(9, 11..=30, &[]), part(6, 50..=60, &[])];
        let all = vec![(2, 5..20), (0, 0..10)];
        assert_eq!(of(&parts, 15), (all, vec![(9, 30), (7, 40)], vec![8, 6], 40));
        assert_eq!(of(&parts, 40), (vec![], vec![], vec![7, 8, 9, 6], 40));
        assert_eq!(of(&parts, 49), (vec![(3, 0..11)], vec![(6, 60)], vec![7, 8, 9], 60));
        assert_eq!(of(&[], 3), (vec![], vec![], vec![], 3));
    }

    #[test]
    fn the_same_numbers_in_two_parts_are_taken_once() {
        let parts = [part(1, 1..=8, &[]), part(2, 5..=12, &[]), part(3, 6..=7, &[])];
        assert_eq!(of(&parts, 0), (vec![(0, 0..8), (1, 4..8)], vec![(1, 8), (2, 12)], vec![3], 12));
    }

    #[test]
    fn a_batch_that_is_not_whole_is_cut_off() {
        let first = part(1, 1..=4, &[3, 4]);
        assert_eq!(
            of(&[first, part(2, 5..=6, &[5])], 0),
            (vec![(0, 0..4), (1, 0..2)], vec![(1, 4), (2, 6)], vec![], 6)
        );
        let first = part(1, 1..=4, &[3, 4]);
        assert_eq!(of(&[first, part(2, 5..=6, &[5, 6])], 0), (vec![(0, 0..2)], vec![(1, 2)], vec![2], 2));
        assert_eq!(of(&[part(1, 1..=2, &[1, 2])], 0), (vec![], vec![], vec![1], 0));
    }

    #[test]
    fn a_part_counts_up_to_its_first_bad_record() {
        let mut torn = part(1, 1..=10, &[]);
        torn.bytes[4 * LENGTH + 13] ^= 1;
        assert_eq!(of(&[torn], 0), (vec![(0, 0..4)], vec![(1, 4)], vec![], 4));
        let mut stale = part(1, 1..=4, &[]);
        stale.bytes.truncate(4 * LENGTH);
        stale.bytes.extend(part(2, 6..=9, &[]).bytes);
        assert_eq!(of(&[stale], 0).3, 4);
    }

    #[test]
    fn what_an_owner_recorded_counts_and_no_more() {
        let recorded = |last| Part { last: Some(SequenceNumber(last)), ..part(1, 1..=10, &[]) };
        assert_eq!(of(&[recorded(6), part(2, 7..=8, &[])], 0).1, [(1, 6), (2, 8)]);
        assert!(replay(&[recorded(11)], SequenceNumber::ZERO, SequenceNumber::MAX).is_err());
        let empty = Part { segment: SegmentId(1), bytes: vec![0; 64], last: Some(SequenceNumber(1)) };
        assert!(replay(&[empty], SequenceNumber::ZERO, SequenceNumber::MAX).is_err());
    }

    #[test]
    fn nothing_behind_the_end_counts() {
        let parts = [part(1, 1..=8, &[]), part(2, 5..=12, &[]), part(3, 13..=14, &[])];
        let until = |end| {
            let Replay { records, parts, ended, last, .. } =
                replay(&parts, SequenceNumber::ZERO, SequenceNumber(end)).unwrap();
            let parts: Vec<_> = parts.into_iter().map(|(segment, last)| (segment.0, last.0)).collect();
            (records.len(), parts, ended.into_iter().map(|segment| segment.0).collect::<Vec<_>>(), last.0)
        };
        assert_eq!(until(14), (3, vec![(1, 8), (2, 12), (3, 14)], vec![], 14));
        assert_eq!(until(10), (2, vec![(1, 8), (2, 10)], vec![3], 10));
        assert_eq!(until(7), (1, vec![(1, 7)], vec![3, 2], 7));
        assert_eq!(until(0), (0, vec![], vec![1, 2, 3], 0));
    }

    #[test]
    fn marks_are_found_as_far_as_the_log_counts() {
        let mark = CrossingMark { parts: vec![(0, SequenceNumber(2)), (1, SequenceNumber(9))] };
        let mut bytes = Vec::new();
        for (number, goes_on) in [(1, true), (2, false), (3, true)] {
            let kind = if goes_on { Kind::Crossing } else { Kind::Put };
            let tag = Tag::new(SequenceNumber(number), kind, false);
            let tag = if goes_on { tag.going_on() } else { tag };
            Record { tag, expiry_ms: None, key: b"", value: &mark.encode() }.encode(&mut bytes);
        }
        let part = Part { segment: SegmentId(1), bytes, last: None };
        let found = replay(&[part], SequenceNumber::ZERO, SequenceNumber::MAX).unwrap();
        assert_eq!((found.last.0, found.marks), (2, vec![(SequenceNumber(1), mark)]));
    }
}
