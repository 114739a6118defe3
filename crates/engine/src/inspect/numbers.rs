//! Which numbers of a shard's writes were found. Each write has one, and none is left out: lost writes had the others.

use crate::durable::groups;
use crate::inspect::records;
use forebay_base::SequenceNumber;
use forebay_storage::Rescued;
use forebay_table::TableProperties;
use std::collections::BTreeMap;
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

/// Numbers that writes had and of which no record was found. A lost write that overwrote or deleted a key had one of
/// them.
pub(crate) struct Missing {
    /// The last number up to which tables hold everything.
    pub(crate) last: SequenceNumber,
    /// The last number that logs lack.
    pub(crate) in_logs: SequenceNumber,
    /// The last number of each table that lacks something.
    pub(crate) tables: Vec<(Arc<TableProperties>, SequenceNumber)>,
}

impl Missing {
    /// Whether something of the key that is newer than `number` may be missing in a table, or in a log.
    pub(crate) fn may_replace(&self, key: &[u8], number: SequenceNumber) -> bool {
        self.in_logs > number || self.tables.iter().any(|(table, last)| *last > number && table.may_contain(key))
    }
}

/// The numbers of writes that logs have lost. A log holds a shard's writes in the order of their numbers: what a hole
/// in it held had lower numbers than the shard's next write after the hole. After the last write, nobody knows.
#[derive(Debug, Default)]
pub(crate) struct LostWrites {
    shards: BTreeMap<u64, Logged>,
    /// Holes so far.
    holes: u64,
}

/// What logs have of a shard.
#[derive(Debug, Default)]
struct Logged {
    /// The last number that was found.
    last: SequenceNumber,
    /// The last earlier number that was not found.
    missing: SequenceNumber,
    /// Holes before the last number that was found.
    holes: u64,
}

impl LostWrites {
    /// None yet. Tables hold all writes of each shard up to these numbers.
    pub(crate) fn new(flushed: &[SequenceNumber]) -> Self {
        let of = |last: &SequenceNumber| Logged { last: *last, ..Logged::default() };
        Self { shards: (0..).zip(flushed.iter().map(of)).collect(), holes: 0 }
    }

    /// Takes in the next log. A log that is not whole has lost something: at its end, if nothing else is damaged or
    /// missing.
    pub(crate) fn take_log(&mut self, parts: &[Rescued], is_whole: bool) {
        let (before, hole) = (self.holes, u64::from(!is_whole));
        let mut expected = None;
        let (mut ends_torn, mut is_damaged) = (false, false);
        for part in parts.iter().filter(|part| !part.is_seal) {
            // Only the header and the frames of a part say where it begins.
            let is_unknown = part.frames.is_empty() && part.damage.is_some();
            if is_unknown || expected.is_some_and(|expected| expected != part.start) {
                self.holes += hole;
            }
            expected = (!is_unknown).then_some(part.start);
            for frame in &part.frames {
                if expected != Some(frame.position) {
                    self.holes += hole;
                }
                expected = Some(frame.end());
                for (_, record) in records::find(&frame.payload) {
                    self.found(groups::shard_of(frame.stream).into(), record.tag.sequence());
                }
            }
            ends_torn = part.ends_torn;
            is_damaged |= part.damage.is_some();
        }
        if ends_torn || self.holes == before && !is_damaged {
            self.holes += hole;
        }
    }

    fn found(&mut self, shard: u64, number: SequenceNumber) {
        let logged = self.shards.entry(shard).or_default();
        // A group that was begun anew has the same numbers again.
        if number > logged.last {
            let before = SequenceNumber(number.0.saturating_sub(1));
            if self.holes > logged.holes && before > logged.last {
                logged.missing = before;
            }
            (logged.last, logged.holes) = (number, self.holes);
        }
    }

    /// The last number that a lost write of the shard may have had; zero, which no write has, if none is lost.
    pub(crate) fn last_of(&self, shard: u64) -> SequenceNumber {
        match self.shards.get(&shard) {
            Some(logged) if logged.holes == self.holes => logged.missing,
            None if self.holes == 0 => SequenceNumber::default(),
            _ => SequenceNumber::MAX,
        }
    }

    /// Whether any writes are lost.
    pub(crate) fn is_any(&self) -> bool {
        let is_none_known = self.shards.is_empty() && self.holes > 0;
        is_none_known || self.shards.keys().any(|shard| self.last_of(*shard) > SequenceNumber::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::{ErrorKind, Record};
    use forebay_storage::Frame;

    const NONE: u64 = 0;
    const ALL: u64 = SequenceNumber::MAX.0;

    /// A part of a log that begins at a position: frames, one after the other, each of a shard with some numbers.
    fn part(start: u64, frames: &[(u32, &[u64])]) -> Rescued {
        let mut found: Vec<Frame> = Vec::new();
        for (shard, numbers) in frames {
            let mut payload = Vec::new();
            numbers.iter().for_each(|number| Record::put(SequenceNumber(*number), b"k", b"").encode(&mut payload));
            let position = found.last().map_or(start, Frame::end);
            found.push(Frame { position, stream: groups::stream(*shard, false), mark: 0, payload: payload.into() });
        }
        Rescued {
            object: "log".into(),
            bytes: 1000,
            log: 7,
            start,
            is_seal: false,
            frames: found,
            ends_torn: false,
            damage: None,
        }
    }

    /// The last numbers of lost writes of two shards. Tables hold those up to 4 and 9.
    fn lost(parts: &[Rescued], is_whole: bool) -> [u64; 2] {
        let mut lost = LostWrites::new(&[4, 9].map(SequenceNumber));
        lost.take_log(parts, is_whole);
        let last = [0, 1].map(|shard| lost.last_of(shard).0);
        assert_eq!(lost.is_any(), last != [NONE; 2]);
        last
    }

    #[test]
    fn what_a_hole_held_has_lower_numbers_than_what_is_behind_it() {
        let begin = || part(0, &[(0, &[5, 6])]);
        let end = begin().frames[0].end();
        let behind = |position: u64| part(position, &[(0, &[9]), (1, &[10])]);
        let nothing = || {
            let error = forebay_storage::Error::new(ErrorKind::Corrupt, "read", "log", "it is damaged");
            Rescued { damage: Some(error), ..part(0, &[]) }
        };
        assert_eq!(lost(&[part(0, &[(0, &[5, 6]), (1, &[10]), (0, &[7])])], true), [NONE; 2]);
        // At its end, as nothing else is missing.
        assert_eq!(lost(&[begin()], false), [ALL; 2]);
        // Shard 1 continues with its next number, so the hole held nothing of it.
        assert_eq!(lost(&[begin(), behind(end + 64)], false), [8, NONE]);
        assert_eq!(lost(&[nothing(), behind(end)], false), [8, NONE]);
        // Nothing of shard 1 is after it.
        assert_eq!(lost(&[begin(), part(end + 64, &[(0, &[8])])], false), [7, ALL]);
        // A second hole.
        assert_eq!(lost(&[begin(), behind(end + 64), nothing()], false), [ALL; 2]);
        assert_eq!(
            lost(&[Rescued { ends_torn: true, ..nothing() }, Rescued { ends_torn: true, ..behind(end) }], false),
            [ALL; 2]
        );
        assert_eq!(lost(&[], false), [ALL; 2]);
        // A header is damaged, and all frames exist.
        let damage = nothing().damage;
        assert_eq!(lost(&[Rescued { damage: damage.clone(), ..begin() }, behind(end + 64)], false), [8, NONE]);
        let whole = || part(0, &[(0, &[5, 6]), (1, &[10])]);
        assert_eq!(lost(&[Rescued { damage: damage.clone(), ..whole() }], false), [NONE; 2]);
        assert_eq!(lost(&[Rescued { damage, ends_torn: true, ..whole() }], false), [ALL; 2]);
    }

    #[test]
    fn a_later_log_shows_what_an_earlier_one_lost_at_its_end() {
        let mut lost = LostWrites::new(&[4, 9].map(SequenceNumber));
        lost.take_log(&[part(0, &[(0, &[5])])], false);
        lost.take_log(&[part(0, &[(0, &[8]), (1, &[10])])], true);
        assert_eq!([0, 1].map(|shard| lost.last_of(shard).0), [7, NONE]);
    }

    #[test]
    fn the_last_number_that_is_missing() {
        let numbers: Numbers = [9, 2, 8, 1, 5, 8, 4].map(SequenceNumber).into_iter().collect();
        let missing = |up_to| numbers.last_missing(SequenceNumber(up_to)).0;
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map(missing), [0, 0, 0, 3, 3, 3, 6, 7, 7, 7, 10]);
        assert_eq!(missing(u64::MAX), u64::MAX);
        assert_eq!(Numbers::default().last_missing(SequenceNumber(7)).0, 7);
    }
}
