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
//! If a frame of a group could not be appended, the group is begun anew, under the next number.
//!
//! The layout of a frame: `docs/formats/log.md`; what its payload is: `docs/formats/database-commit.md`.
//!
//! A log counts up to its last whole group. So what survives is what all shards held at one moment.

use crate::durable::recovery::LeftRecords;
use crate::terms::planted::{Bug, planted};
use crate::terms::recovery::LogCut;
use crate::terms::{Error, Result};
use forebay_base::{SequenceNumber, record};
use forebay_storage::{Cut, Frame};

/// The flag in a frame's stream: the group continues with the next frame.
const GOES_ON: u32 = 1 << 31;

/// The stream of a frame.
pub(crate) const fn stream(shard: u32, goes_on: bool) -> u32 {
    if goes_on { shard | GOES_ON } else { shard }
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
        let added = frames.into_iter().try_for_each(|frame| self.add(frame));
        added.map_err(|error| error.during(&format!("reading {object}")))
    }

    fn add(&mut self, frame: Frame) -> Result<()> {
        if self.open.first().is_some_and(|first| first.mark != frame.mark) {
            self.open.clear();
        }
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
        self.open.clear();
        self.cuts.extend(cut.map(|Cut { object, bytes, cause, .. }| LogCut {
            object: object.clone(),
            bytes: *bytes,
            cause: cause.clone(),
        }));
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
        let mut begin = None;
        for found in record::headers(&frame.payload) {
            let (at, header) = found?;
            header.verify(frame.payload.get(at..).unwrap_or_default())?;
            let found = header.tag.sequence();
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
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::{ErrorKind, Kind, Record, Tag};

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
