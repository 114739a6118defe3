//! What a log holds that no table does, once an owner is gone (`docs/decisions/0034`).
//!
//! ```text
//!   parts by their first numbers   [ 1 … 60 ][ 61 … 80 ✗ ][ 95 … ]
//!   in tables up to 40                  41 ──────────► 80          then a gap: nothing after it was acknowledged
//!   cut after the last whole batch      41 ──────► 78
//! ```
//!
//! A part counts as far as its records verify and their numbers follow each other. An owner who takes over records how
//! far that is. A part that holds less than was recorded is damaged. If nothing was recorded, the marks of the parts
//! say how far the log was shipped (see `mark`): a log that goes less far is damaged.

use crate::terms::{Error, Result};
use forebay_base::{
    CrossingMark, DecodeError, Kind, Record, RecordError, RecordHeader, SegmentId, SequenceNumber, record,
};
use std::ops::Range;

/// A part of a log, as far as it was read.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) segment: SegmentId,
    pub(crate) bytes: Vec<u8>,
    /// The last number that counts, if an owner recorded it.
    last: Option<SequenceNumber>,
    /// The last number that was shipped there, if its mark says so.
    marked: Option<SequenceNumber>,
    chain: Option<Chain>,
}

impl Part {
    /// A part of which only the mark was read. Of its records, those up to `last` count, if that is known.
    pub(crate) const fn new(segment: SegmentId, last: Option<SequenceNumber>, marked: Option<SequenceNumber>) -> Self {
        Self { segment, bytes: Vec::new(), last, marked, chain: None }
    }

    /// Adds the next bytes of the part. Returns whether the bytes after them may count: all records so far verify, and
    /// their numbers follow each other.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> bool {
        self.bytes.extend_from_slice(bytes);
        loop {
            let start = self.chain.map_or(0, |chain| chain.end);
            let rest = self.bytes.get(start..).unwrap_or_default();
            let header = match RecordHeader::decode(rest) {
                Ok(header) => header,
                Err(error) => return matches!(error, RecordError::Decode(DecodeError::Truncated { .. })),
            };
            if header.padded_length() > rest.len() {
                return true;
            }
            let number = header.tag.sequence();
            let follows = self.chain.is_none_or(|chain| chain.last.checked_add(1) == Some(number));
            let counts = follows && self.last.is_none_or(|last| number <= last);
            if !counts || header.verify(rest).is_err() {
                return false;
            }
            let first = self.chain.map_or(number, |chain| chain.first);
            self.chain = Some(Chain { first, last: number, end: start + header.padded_length() });
        }
    }

    /// The first and the last number of the records that verify and follow each other.
    pub(crate) fn numbers(&self) -> Option<(SequenceNumber, SequenceNumber)> {
        self.chain.map(|chain| (chain.first, chain.last))
    }

    /// The last number that was shipped there, if it is known.
    pub(crate) const fn shipped(&self) -> Option<SequenceNumber> {
        self.marked
    }

    /// The records that count, if those of the earlier parts do.
    ///
    /// # Errors
    /// `Corrupt` when there are fewer than were recorded.
    fn chain(&self) -> Result<Option<Chain>> {
        match (self.last, self.chain) {
            (Some(recorded), Some(chain)) if chain.last < recorded => Err(Error::corrupt(format!(
                "{} holds the log up to number {}, and {} was recorded",
                self.segment, chain.last.0, recorded.0
            ))),
            (Some(recorded), None) => {
                Err(Error::corrupt(format!("{} holds no log, and number {} was recorded", self.segment, recorded.0)))
            }
            (_, chain) => Ok(chain),
        }
    }

    /// The records of a chain.
    fn records(&self, chain: Chain) -> impl Iterator<Item = Found> {
        let whole = record::headers(self.bytes.get(..chain.end).unwrap_or_default()).map_while(Result::ok);
        let found = whole.map(|(start, header)| Found { header, start, end: start + header.padded_length() });
        found.take_while(move |found| found.number() <= chain.last)
    }
}

/// See the module.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Replay {
    /// The records to be written again, in order: which part they are in, and where.
    pub(crate) records: Vec<(usize, Range<usize>)>,
    /// The parts that hold them, each with the last number that counts in it, oldest first.
    pub(crate) parts: Vec<(SegmentId, SequenceNumber)>,
    /// Parts that nobody needs.
    pub(crate) ended: Vec<SegmentId>,
    /// The last number that counts.
    pub(crate) last: SequenceNumber,
    /// How far the records go, and how much further the parts say that they were shipped: some of them are damaged.
    pub(crate) lacks: Option<(SequenceNumber, SequenceNumber)>,
    /// The marks among the records, each with its number, ascending.
    pub(crate) marks: Vec<(SequenceNumber, CrossingMark)>,
}

/// The records of a part that verify and follow each other.
#[derive(Debug, Clone, Copy)]
struct Chain {
    first: SequenceNumber,
    last: SequenceNumber,
    /// Where they end in the part.
    end: usize,
}

/// What counts of a part, if the parts before it count: the records in `range`, the last of which has the number
/// `last`.
struct Taken {
    part: usize,
    range: Range<usize>,
    last: SequenceNumber,
}

/// A record in a part.
#[derive(Debug, Clone, Copy)]
struct Found {
    header: RecordHeader,
    start: usize,
    end: usize,
}

impl Found {
    fn number(&self) -> SequenceNumber {
        self.header.tag.sequence()
    }
}

/// Finds what counts of a log. Tables hold all records up to `flushed`, and nothing after `end` counts.
///
/// # Errors
/// `Corrupt` when a part holds less than was recorded, or a mark is invalid.
pub(crate) fn replay(parts: &[Part], flushed: SequenceNumber, end: SequenceNumber) -> Result<Replay> {
    let mut chains = Vec::with_capacity(parts.len());
    let mut replay = Replay { last: flushed, ..Replay::default() };
    for (at, part) in parts.iter().enumerate() {
        match part.chain()? {
            Some(chain) if chain.last > flushed && chain.first <= end => {
                chains.push((at, Chain { last: chain.last.min(end), ..chain }));
            }
            _ => replay.ended.push(part.segment),
        }
    }
    chains.sort_by_key(|(_, chain)| chain.first);
    let mut expected = flushed.0 + 1;
    // After the last whole batch: how many ranges there are, where the last one ends, and the number.
    let mut whole = (0, 0, flushed);
    let mut taken: Vec<Taken> = Vec::new();
    for (at, chain) in chains {
        let Some(part) = parts.get(at) else { continue };
        if chain.first.0 > expected || chain.last.0 < expected {
            replay.ended.push(part.segment);
            continue;
        }
        let mut range: Option<Range<usize>> = None;
        for found in part.records(chain).filter(|found| found.number().0 >= expected) {
            let number = found.number();
            if found.header.tag.kind() == Kind::Crossing {
                let record = Record::decode(part.bytes.get(found.start..).unwrap_or_default())?;
                let mark = CrossingMark::decode(record.value);
                let mark = mark.map_err(|error| Error::corrupt(format!("the log at {}: {error}", number.0)))?;
                replay.marks.push((number, mark));
            }
            range = Some(range.map_or(found.start, |range| range.start)..found.end);
            if !found.header.tag.goes_on() {
                whole = (taken.len() + 1, found.end, number);
            }
        }
        taken.extend(range.map(|range| Taken { part: at, range, last: chain.last }));
        expected = chain.last.0 + 1;
    }
    let reached = SequenceNumber(expected - 1);
    let marked = parts.iter().filter(|part| part.last.is_none()).filter_map(|part| part.marked).max();
    replay.lacks = marked.map(|marked| (reached, marked.min(end))).filter(|(reached, marked)| reached < marked);
    let (ranges, end, last) = whole;
    for (number, Taken { part: at, range, last: of_range }) in (1..).zip(taken) {
        let Some(part) = parts.get(at) else { continue };
        if number > ranges {
            replay.ended.push(part.segment);
            continue;
        }
        let (end, counted) = if number == ranges { (end, last) } else { (range.end, of_range) };
        replay.parts.push((part.segment, counted));
        replay.records.push((at, range.start..end));
    }
    replay.last = last;
    replay.marks.retain(|(number, _)| *number <= last);
    Ok(replay)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::Tag;

    const LENGTH: usize = 16;

    /// A part that holds these bytes, read in small pieces.
    fn read(id: u64, bytes: &[u8], last: Option<u64>) -> Part {
        marked(id, bytes, last, None)
    }

    fn marked(id: u64, bytes: &[u8], last: Option<u64>, marked: Option<u64>) -> Part {
        let mut part = Part::new(SegmentId(id), last.map(SequenceNumber), marked.map(SequenceNumber));
        for piece in bytes.chunks(7) {
            if !part.add(piece) {
                break;
            }
        }
        part
    }

    fn part(id: u64, numbers: std::ops::RangeInclusive<u64>, goes_on: &[u64]) -> Part {
        read(id, &block(numbers, goes_on), None)
    }

    /// Records of these numbers; those of `goes_on` are followed by another one of their batch.
    fn block(numbers: std::ops::RangeInclusive<u64>, goes_on: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in numbers {
            let tag = Tag::new(SequenceNumber(number), Kind::Put, false);
            let tag = if goes_on.contains(&number) { tag.going_on() } else { tag };
            Record { tag, expiry_ms: None, key: b"k", value: b"" }.encode(&mut bytes);
        }
        bytes.resize(bytes.len() + 64, 0);
        bytes
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
        let mut torn = block(1..=10, &[]);
        torn[4 * LENGTH + 13] ^= 1;
        assert_eq!(of(&[read(1, &torn, None)], 0), (vec![(0, 0..4)], vec![(1, 4)], vec![], 4));
        // Records of an earlier use of the memory: they verify, and would count elsewhere.
        for (numbers, counted) in [(6..=9, 4), (2..=4, 4), (5..=6, 6)] {
            let stale = [&block(1..=4, &[])[..4 * LENGTH], &block(numbers, &[])].concat();
            let counted_records = vec![(0, 0..counted as usize)];
            assert_eq!(of(&[read(1, &stale, None)], 0), (counted_records, vec![(1, counted)], vec![], counted));
        }
    }

    #[test]
    fn a_part_is_read_as_far_as_it_may_count() {
        let (bytes, mut part) = (block(1..=3, &[]), Part::new(SegmentId(1), None, None));
        assert!(part.add(&bytes[..LENGTH + 5]) && part.add(&bytes[LENGTH + 5..3 * LENGTH]));
        assert!(!part.add(&bytes[3 * LENGTH..]));
        let mut recorded = Part::new(SegmentId(1), Some(SequenceNumber(2)), None);
        assert!(recorded.add(&bytes[..2 * LENGTH]) && !recorded.add(&bytes[2 * LENGTH..]));
    }

    #[test]
    fn what_an_owner_recorded_counts_and_no_more() {
        let recorded = |last| read(1, &block(1..=10, &[]), Some(last));
        assert_eq!(of(&[recorded(6), part(2, 7..=8, &[])], 0).1, [(1, 6), (2, 8)]);
        assert!(replay(&[recorded(11)], SequenceNumber::ZERO, SequenceNumber::MAX).is_err());
        assert!(replay(&[read(1, &[0; 64], Some(1))], SequenceNumber::ZERO, SequenceNumber::MAX).is_err());
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
    fn a_log_that_goes_less_far_than_its_marks_is_damaged() {
        let lacks = |parts: &[Part], flushed, end| {
            let replay = replay(parts, SequenceNumber(flushed), SequenceNumber(end)).unwrap();
            replay.lacks.map(|(reached, marked)| (reached.0, marked.0))
        };
        let of = |numbers, mark| marked(1, &block(numbers, &[]), None, Some(mark));
        let all = u64::MAX;
        assert_eq!(lacks(&[of(1..=10, 10)], 0, all), None);
        // What was not marked yet also counts.
        assert_eq!(lacks(&[of(1..=10, 8)], 0, all), None);
        assert_eq!(lacks(&[of(1..=10, 11)], 0, all), Some((10, 11)));
        // Tables have it, or it is not to count.
        assert_eq!(lacks(&[of(1..=10, 11)], 11, all), None);
        assert_eq!(lacks(&[of(1..=10, 11)], 0, 10), None);
        // An earlier part no longer holds anything, and has no mark either.
        assert_eq!(lacks(&[read(1, &[0; 64], None), of(11..=20, 20)], 0, all), Some((0, 20)));
        // The end of a batch was not shipped.
        let cut = || marked(1, &block(1..=4, &[3, 4]), None, Some(4));
        assert_eq!(lacks(&[cut()], 0, all), None);
        assert_eq!(lacks(&[cut(), marked(2, &[0; 64], None, Some(6))], 0, all), Some((4, 6)));
        // What an owner recorded says more than a mark.
        assert_eq!(lacks(&[marked(1, &block(1..=10, &[]), Some(6), Some(9))], 0, all), None);
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
        let found = replay(&[read(1, &bytes, None)], SequenceNumber::ZERO, SequenceNumber::MAX).unwrap();
        assert_eq!((found.last.0, found.marks), (2, vec![(SequenceNumber(1), mark)]));
    }
}
