//! The log of a database on storage: what its frames are, and what of it counts. Pure.
//!
//! ```text
//!   group 7                               group 8
//!   [ shard 0 ▸ ][ shard 2 ▸ ][ shard 2 ]   [ shard 0 ▸ ][ shard 1    the rest is missing: all of group 8 is cut
//! ```
//!
//! A *group* is what was published in all shards at one moment, and not shipped before. A batch that crosses shards is
//! in a group as a whole. A frame holds whole records of one shard, as they are in a memtable's block. Its stream is
//! the shard, with a flag in all frames of a group but the last: the group continues. Its mark is the group's number.
//! The mark's highest bit says that the log leads the tables: none was committed before the log held what it holds.
//! If a frame of a group could not be appended, the group is begun anew, under the next number.
//!
//! The layout of a frame: `docs/formats/log.md`; what its payload is: `docs/formats/database-commit.md`.
//!
//! A log counts up to its last whole group. So what survives is what all shards held at one moment.
//!
//! A damaged last group looks like one that was torn. But if tables hold some of what was in it, it was durable: see
//! [`Replay::check_end`].

use crate::durable::recovery::LeftRecords;
use crate::terms::planted::{Bug, planted};
use crate::terms::recovery::LogCut;
use crate::terms::{Error, Result};
use forebay_base::{SequenceNumber, record};
use forebay_storage::{Cut, Frame};
use forebay_table::Version;
use std::collections::BTreeMap;

/// The flag in a frame's stream: the group continues with the next frame.
const GOES_ON: u32 = 1 << 31;
/// The flag in a frame's mark: the log leads the tables. Earlier builds did not say so.
const LEADS_TABLES: u64 = 1 << 63;

/// The stream of a frame.
pub(crate) const fn stream(shard: u32, goes_on: bool) -> u32 {
    if goes_on { shard | GOES_ON } else { shard }
}

/// The mark of a group's frames.
pub(crate) const fn mark(group: u64, leads_tables: bool) -> u64 {
    if leads_tables { group | LEADS_TABLES } else { group }
}

/// The number of a frame's group.
pub(crate) const fn group_of(mark: u64) -> u64 {
    mark & !LEADS_TABLES
}

/// The shard of a frame's records.
pub(crate) const fn shard_of(stream: u32) -> u32 {
    stream & !GOES_ON
}

/// Whether a frame's group continues with the next frame.
pub(crate) const fn goes_on(stream: u32) -> bool {
    stream & GOES_ON != 0
}

/// What the logs of a database hold that its tables do not.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    pub(crate) shards: Vec<ShardReplay>,
    /// Whole groups.
    pub(crate) groups: u64,
    /// Bytes of records in them.
    pub(crate) bytes: u64,
    /// What does not count at the ends of the logs.
    pub(crate) cuts: Vec<LogCut>,
    /// The frames of the group that is not whole yet.
    open: Vec<Frame>,
    /// What was found of the log that is read.
    log: Span,
    /// The same of the log that was read before.
    ended: Span,
}

/// How far a log goes.
#[derive(Debug, Default)]
struct Span {
    leads_tables: bool,
    /// Whether the segment before had no frames: it was trimmed while the log was read. What it had is not known then, and
    /// only segments after it say where the log ends.
    is_trimmed: bool,
    /// By shard, where the log ends: the last number in its whole groups. Without one, the number before those in a group
    /// that is not whole.
    ends: BTreeMap<u32, SequenceNumber>,
    /// What does not count at its end.
    cut: Option<String>,
}

/// The part of a shard.
#[derive(Debug)]
pub(crate) struct ShardReplay {
    /// The records to be written again, in order.
    pub(crate) records: LeftRecords,
    /// Number of these records.
    pub(crate) count: u64,
    /// The last number that counts.
    pub(crate) last: SequenceNumber,
    goes_on: bool,
}

impl Replay {
    /// Holds nothing yet. Tables hold all records of each shard up to these numbers.
    pub(crate) fn new(flushed: &[SequenceNumber]) -> Self {
        let of = |last: &SequenceNumber| ShardReplay { records: Vec::new(), count: 0, last: *last, goes_on: false };
        Self { shards: flushed.iter().map(of).collect(), ..Self::default() }
    }

    /// Adds the next segment of a log, which has this name.
    ///
    /// # Errors
    /// `Corrupt`, naming the segment, when records are missing or damaged: frames have been verified.
    pub(crate) fn add_segment(&mut self, object: &str, frames: Vec<Frame>) -> Result<()> {
        if std::mem::replace(&mut self.log.is_trimmed, frames.is_empty()) {
            self.log.ends.clear();
        }
        let added = frames.into_iter().try_for_each(|frame| self.add(frame));
        added.map_err(|error| error.during(&format!("reading {object}")))
    }

    fn add(&mut self, frame: Frame) -> Result<()> {
        if self.open.first().is_some_and(|first| first.mark != frame.mark) {
            self.open.clear();
        }
        self.log.leads_tables |= frame.mark & LEADS_TABLES != 0;
        let goes_on = goes_on(frame.stream) && !planted(Bug::HalfGroups);
        self.open.push(frame);
        if goes_on {
            return Ok(());
        }
        self.groups += 1;
        for frame in std::mem::take(&mut self.open) {
            self.bytes += frame.payload.len() as u64;
            self.take(frame)?;
        }
        match self.shards.iter().position(|shard| shard.goes_on) {
            Some(shard) if !planted(Bug::HalfGroups) => {
                Err(Error::corrupt(format!("a group of the log holds a part of a batch of shard {shard}")))
            }
            _ => Ok(()),
        }
    }

    /// Ends a log, of which this does not count. The next one begins with a group of its own.
    pub(crate) fn end_log(&mut self, cut: Option<&Cut>) {
        for frame in std::mem::take(&mut self.open) {
            if let Some(Ok((_, header))) = record::headers(&frame.payload).next() {
                let before = SequenceNumber(header.tag.sequence().0.saturating_sub(1));
                self.log.ends.entry(shard_of(frame.stream)).or_insert(before);
            }
        }
        self.log.cut = cut.map(|Cut { object, cause, .. }| format!("{object} ({cause})"));
        self.ended = std::mem::take(&mut self.log);
        self.cuts.extend(cut.map(|Cut { object, bytes, cause, .. }| LogCut {
            object: object.clone(),
            bytes: *bytes,
            cause: cause.clone(),
        }));
    }

    /// Checks the end of the log that was read last, the newest of all, by these versions. Its owner had this epoch.
    ///
    /// If the log leads the tables, it held what its owner's tables hold. It holds a shard's records in order, and only
    /// its beginning is trimmed. So if tables hold more than its end says, more was there, and is damaged. That may have
    /// been a part of a batch of which no table holds the rest. Tables of a later owner say nothing about this log. An
    /// owner's versions have its epoch from its first commit on.
    ///
    /// # Errors
    /// `Corrupt` when something that was durable is missing at the end.
    pub(crate) fn check_end(&self, epoch: u64, versions: &[Version]) -> Result<()> {
        let Span { leads_tables, ends, cut, .. } = &self.ended;
        let of_owner = |(version, _): &(&Version, u32)| *leads_tables && version.epoch() == epoch;
        for (version, shard) in versions.iter().zip(0..).filter(of_owner) {
            let (flushed, end) = (version.last_sequence(), ends.get(&shard));
            let Some(end) = end.filter(|end| flushed > **end) else { continue };
            let place = cut.as_ref().map_or_else(String::new, |cut| format!(": it is damaged at the end of {cut}"));
            return Err(Error::corrupt(format!(
                "the log of shard {shard} ends with {}, and had writes up to {}, which tables hold, and perhaps others, \
                 which no table holds{place}",
                end.0, flushed.0
            )));
        }
        Ok(())
    }

    /// The error for records between two numbers of a shard that are in no log.
    fn gap(&self, shard: u32, last: SequenceNumber, found: SequenceNumber) -> Error {
        let cuts: Vec<_> = self.cuts.iter().map(|cut| format!("{} ({})", cut.object, cut.cause)).collect();
        // An end that was never durable is torn as well, and then the next log has what was there.
        let cut = match &cuts[..] {
            [] => String::new(),
            cuts => format!("is damaged at the end of {}, or ", cuts.join(" or ")),
        };
        // An object that a service says is not there looks like one that was trimmed.
        Error::corrupt(format!(
            "the log of shard {shard} goes on from {} with {}: what is between {cut}was in segments before, which are gone, or \
             were not found by mistake: try again first",
            last.0, found.0
        ))
    }

    fn take(&mut self, frame: Frame) -> Result<()> {
        let number = shard_of(frame.stream);
        let shard = usize::try_from(number).ok().and_then(|shard| self.shards.get_mut(shard));
        let shard = shard.ok_or_else(|| Error::corrupt(format!("the log holds records of shard {number}")))?;
        let (mut begin, mut end) = (None, SequenceNumber::ZERO);
        for found in record::headers(&frame.payload) {
            let (at, header) = found?;
            header.verify(frame.payload.get(at..).unwrap_or_default())?;
            let found = header.tag.sequence();
            end = end.max(found);
            if found > shard.last {
                if shard.last.checked_add(1) != Some(found) {
                    let last = shard.last;
                    return Err(self.gap(number, last, found));
                }
                begin.get_or_insert(at);
                shard.last = found;
                shard.count += 1;
                shard.goes_on = header.tag.goes_on();
            }
        }
        if let Some(begin) = begin {
            shard.records.push(frame.payload.slice(begin..));
        }
        let known = self.log.ends.entry(number).or_default();
        *known = end.max(*known);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terms::Options;
    use crate::tree::version::identity;
    use forebay_base::{ErrorKind, Kind, Record, Tag};
    use forebay_table::VersionEdit;

    fn frame(shard: u32, goes_on: bool, group: u64, numbers: std::ops::RangeInclusive<u64>) -> Frame {
        let mut bytes = Vec::new();
        for number in numbers {
            let tag = Tag::new(SequenceNumber(number), Kind::Put, false);
            Record { tag, expiry_ms: None, key: b"k", value: b"" }.encode(&mut bytes);
        }
        Frame { position: 0, stream: stream(shard, goes_on), mark: group, payload: bytes.into() }
    }

    fn replay(flushed: [u64; 2], frames: Vec<Frame>) -> Result<Vec<(u64, u64)>> {
        let mut replay = Replay::new(&flushed.map(SequenceNumber));
        replay.add_segment("db/log/1/1/7", frames)?;
        Ok(replay.shards.iter().map(|shard| (shard.last.0, shard.count)).collect())
    }

    #[test]
    fn a_log_counts_up_to_its_last_whole_group() {
        let whole = || vec![frame(0, true, 1, 1..=3), frame(1, false, 1, 1..=2), frame(1, false, 2, 3..=3)];
        assert_eq!(replay([0, 0], whole()).unwrap(), [(3, 3), (3, 3)]);
        let mut cut = whole();
        cut.push(frame(0, true, 3, 4..=9));
        assert_eq!(replay([0, 0], cut).unwrap(), [(3, 3), (3, 3)]);
    }

    #[test]
    fn a_group_that_was_begun_anew_is_taken_once() {
        let frames = vec![frame(0, true, 1, 1..=3), frame(0, true, 2, 1..=4), frame(1, false, 2, 1..=1)];
        assert_eq!(replay([0, 0], frames).unwrap(), [(4, 4), (1, 1)]);
    }

    #[test]
    fn what_tables_hold_and_what_is_there_twice_is_skipped() {
        let frames = vec![frame(0, false, 1, 1..=5), frame(0, false, 1, 3..=8), frame(1, false, 2, 1..=3)];
        assert_eq!(replay([4, 7], frames).unwrap(), [(8, 4), (7, 0)]);
    }

    #[test]
    fn an_end_before_what_tables_hold_is_damaged() {
        let version = |epoch, last| {
            let (epoch, last_sequence) = (Some(epoch), Some(SequenceNumber(last)));
            let edit = VersionEdit { epoch, last_sequence, ..VersionEdit::default() };
            Version::empty(identity(&Options::default(), 7, 0)).apply(&edit).unwrap()
        };
        let of_log = |mark: fn(u64) -> u64, frames: Vec<Frame>, flushed: [u64; 2]| {
            let mut replay = Replay::new(&flushed.map(SequenceNumber));
            let marked = frames.into_iter().map(|frame| Frame { mark: mark(frame.mark), ..frame });
            replay.add_segment("db/log/1/1/7", marked.collect()).unwrap();
            let (object, cause) = ("db/log/1/1/7".to_owned(), "the checksum is 1".to_owned());
            replay.end_log(Some(&Cut { object, position: 8, bytes: 100, cause }));
            let checked = |epoch| replay.check_end(epoch, &flushed.map(|last| version(5, last)));
            assert!(checked(4).is_ok(), "a later owner made the tables");
            checked(5).map_err(|error| error.to_string())
        };
        let leads: fn(u64) -> u64 = |group| mark(group, true);
        let whole = || vec![frame(0, false, 1, 1..=3), frame(1, false, 2, 1..=2)];
        let torn = || [whole(), vec![frame(0, true, 3, 4..=6)]].concat();
        for flushed in [[0, 0], [3, 0], [0, 2], [3, 2]] {
            assert_eq!(of_log(leads, torn(), flushed), Ok(()));
        }
        // Tables hold what is in the group that is not whole, some of it, and what is in none.
        for (frames, flushed) in [(torn(), [6, 2]), (torn(), [4, 0]), (whole(), [3, 3]), (torn(), [3, 4])] {
            let text = of_log(leads, frames, flushed).unwrap_err();
            assert!(text.contains("db/log/1/1/7 (the checksum is 1)"), "{text}");
        }
        // What the log had before it was trimmed is not known.
        assert_eq!(of_log(leads, vec![frame(0, false, 1, 1..=3)], [3, 9]), Ok(()));
        let alone = || vec![frame(0, true, 3, 4..=6)];
        assert_eq!(of_log(leads, alone(), [3, 9]), Ok(()));
        assert!(of_log(leads, alone(), [4, 9]).is_err());
        // Nor is what it had where an owner trims it while it is read. What comes after that is.
        let mut replay = Replay::new(&[SequenceNumber(9)]);
        let marked = |numbers| vec![Frame { mark: leads(1), ..frame(0, false, 1, numbers) }];
        for frames in [marked(1..=3), Vec::new()] {
            replay.add_segment("db/log/1/1/7", frames).unwrap();
        }
        let damaged = |mut replay: Replay, frames| {
            replay.add_segment("db/log/1/1/9", frames).unwrap();
            replay.end_log(None);
            replay.check_end(5, &[version(5, 9)]).is_err()
        };
        assert!(!damaged(replay, Vec::new()));
        let begun = || {
            let mut replay = Replay::new(&[SequenceNumber(9)]);
            replay.add_segment("db/log/1/1/7", marked(1..=3)).unwrap();
            replay
        };
        assert!(damaged(begun(), Vec::new()) && damaged(begun(), marked(4..=6)) && !damaged(begun(), marked(4..=9)));
        // Tables may be ahead of such a log.
        let trails: fn(u64) -> u64 = |group| mark(group, false);
        assert_eq!(of_log(trails, torn(), [6, 4]), Ok(()));
        assert_eq!([mark(7, true), mark(7, false)], [(1 << 63) + 7, 7]);
        assert_eq!([mark(7, true), mark(7, false)].map(group_of), [7, 7]);
    }

    #[test]
    fn a_gap_is_damage() {
        let gap = replay([0, 0], vec![frame(0, false, 1, 1..=2), frame(0, false, 2, 4..=5)]);
        let gap = gap.unwrap_err();
        assert_eq!(gap.kind(), ErrorKind::Corrupt);
        let text = gap.to_string();
        assert!(text.contains("reading db/log/1/1/7: the log of shard 0 goes on from 2 with 4"), "{text}");
        assert!(text.contains("try again"), "{text}");
        let mut replayed = Replay::new(&[SequenceNumber(0)]);
        replayed.add_segment("db/log/1/1/7", vec![frame(0, false, 1, 1..=2)]).unwrap();
        let (object, cause) = ("db/log/1/1/7".to_owned(), "the checksum is 1".to_owned());
        replayed.end_log(Some(&Cut { object, position: 8, bytes: 100, cause }));
        let text = replayed.add_segment("db/log/1/2/1", vec![frame(0, false, 3, 4..=5)]).unwrap_err().to_string();
        assert!(text.contains("is damaged at the end of db/log/1/1/7 (the checksum is 1)"), "{text}");
        assert!(replay([0, 0], vec![frame(2, false, 1, 1..=2)]).is_err());
        let mut torn = frame(0, false, 1, 1..=1);
        torn.payload = torn.payload.slice(..torn.payload.len() - 8);
        assert!(replay([0, 0], vec![torn]).is_err());
    }
}
