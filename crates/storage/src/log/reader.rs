//! Reading a log, after its writer has ended or while it writes.

use super::frame::{Frame, Position, Scan, SegmentHeader};
use super::source::Source;
use crate::error::{Error, Result};
use forebay_base::ErrorKind;
use std::ops::Range;

/// What opening a log for reading does to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// For a writer that takes over: the log's writer acknowledges nothing any more, and what is read
    /// survives.
    Seal,
    /// As [`Recovery::Seal`], but a torn end of a log in files is not cut yet ([`LogReader::cut`] tells of it). The caller
    /// finds out whether it was durable, and then opens the log with [`Recovery::Seal`].
    SealUnlessTorn,
    /// For inspection: changes nothing. The log's writer may continue.
    Look,
}

/// What was cut from the end of a log: never durable, and not whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The segment.
    pub object: String,
    /// Where the log ends now.
    pub position: Position,
    /// Bytes of the segment after that, zeros included.
    pub bytes: u64,
    /// What is wrong with the first frame that was cut.
    pub cause: String,
}

/// The frames of a log, segment by segment. Segments can be read by several threads at once.
#[derive(Debug)]
pub struct LogReader {
    source: Source,
    log: u64,
    /// All segments except the last.
    parts: Vec<Part>,
    /// Name and frames of the last segment; `None` when the log seems never to have begun.
    last: Option<(String, Vec<Frame>)>,
    bad_begin: Option<Error>,
    begin: Position,
    end: Position,
    cut: Option<Cut>,
}

/// A complete segment: it ends where the next one begins.
#[derive(Debug)]
pub(super) struct Part {
    pub number: u64,
    pub start: Position,
    pub end: Position,
    pub object: String,
}

impl LogReader {
    /// Makes a reader. `last` is the last segment with its name; without it, the log never began.
    pub(super) fn new(source: Source, parts: Vec<Part>, last: Option<(String, Scan)>, cut: Option<Cut>) -> Self {
        let span = |(_, last): &(String, Scan)| (last.header.log, last.header.start, last.end);
        let (log, start, end) = last.as_ref().map_or((0, 0, 0), span);
        let begin = parts.first().map_or(start, |part| part.start);
        let last = last.map(|(object, last)| (object, last.frames));
        Self { source, log, parts, last, bad_begin: None, begin, end, cut }
    }

    /// Makes a reader of a log that seems never to have begun.
    pub(super) fn of_nothing(source: Source, bad_begin: Option<Error>) -> Self {
        Self { bad_begin, ..Self::new(source, Vec::new(), None, None) }
    }

    /// Where the log began when it was opened: everything before was trimmed. A caller that needs more has lost it.
    #[must_use]
    pub const fn begin(&self) -> Position {
        self.begin
    }

    /// Where it ends: everything acknowledged is before this.
    #[must_use]
    pub const fn end(&self) -> Position {
        self.end
    }

    /// What was cut from its end, if anything.
    #[must_use]
    pub const fn cut(&self) -> Option<&Cut> {
        self.cut.as_ref()
    }

    /// Number of segments; none when the log seems never to have begun.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.parts.len() + usize::from(self.last.is_some())
    }

    /// Why the first segment does not count, when that is all there is of the log: its file has no header, or no room. What
    /// a power failure leaves of a log that was about to begin looks like that. If the caller knows that the log had
    /// begun, this `Corrupt` error is what is wrong with it.
    #[must_use]
    pub const fn bad_begin(&self) -> Option<&Error> {
        self.bad_begin.as_ref()
    }

    /// Where a segment, counted from zero, begins and ends.
    #[must_use]
    pub fn span(&self, index: usize) -> Range<Position> {
        let last_start = self.parts.last().map_or(self.begin, |part| part.end);
        self.parts.get(index).map_or(last_start..self.end, |part| part.start..part.end)
    }

    /// The name of a segment's file or object, counted from zero; empty for one that does not exist.
    #[must_use]
    pub fn object(&self, index: usize) -> &str {
        let last = self.last.as_ref().filter(|_| index == self.parts.len());
        let object = self.parts.get(index).map(|part| &part.object).or(last.map(|(object, _)| object));
        object.map_or("", String::as_str)
    }

    /// The frames of a segment, counted from zero; none for one that does not exist, or was trimmed since the log was
    /// opened.
    ///
    /// # Errors
    /// `Corrupt`, naming the place; those of the storage.
    pub fn segment(&self, index: usize) -> Result<Vec<Frame>> {
        let Some(part) = self.parts.get(index) else {
            let last = self.last.as_ref().filter(|_| index == self.parts.len());
            return Ok(last.map(|(_, frames)| frames.clone()).unwrap_or_default());
        };
        part.frames(&self.source, self.log).map_err(|error| {
            let after = self.parts.get(index + 1..).unwrap_or_default();
            damage_after(after.iter().rev(), &self.source, self.log).unwrap_or(error)
        })
    }

    /// All frames in order.
    ///
    /// # Errors
    /// As for [`LogReader::segment`].
    pub fn frames(&self) -> Result<Vec<Frame>> {
        let mut frames = Vec::new();
        for index in 0..self.segments() {
            frames.extend(self.segment(index)?);
        }
        Ok(frames)
    }
}

/// The damage of these segments, the newest first. The positions of segments in objects follow from the sizes of later
/// ones. So of several segments that do not fit, the newest is the one that was changed.
pub(super) fn damage_after<'p>(
    mut newest_first: impl Iterator<Item = &'p Part>,
    source: &Source,
    log: u64,
) -> Option<Error> {
    let damage = |part: &Part| part.frames(source, log).err();
    newest_first.find_map(|part| damage(part).filter(|error| error.kind() == ErrorKind::Corrupt))
}

impl Part {
    /// Its frames; none if it was trimmed since the log was opened.
    fn frames(&self, source: &Source, log: u64) -> Result<Vec<Frame>> {
        let Some(bytes) = source.read(self.number, &self.object)? else { return Ok(Vec::new()) };
        let mut scan = Scan::new(&bytes).map_err(|cause| Error::decode(&self.object, &cause))?;
        scan.end_at(self.end);
        if self.is_of(&scan.header, log) && scan.end != self.end {
            return Err(scan.damage(&self.object));
        }
        self.check(&scan.header, log)?;
        Ok(scan.frames)
    }

    fn is_of(&self, header: &SegmentHeader, log: u64) -> bool {
        header.log == log && header.number == self.number && !header.is_seal
    }

    /// Checks that the segment found is this one.
    pub fn check(&self, header: &SegmentHeader, log: u64) -> Result<()> {
        let Self { number, start, object, .. } = self;
        if self.is_of(header, log) && header.start == *start {
            return Ok(());
        }
        let belongs = format!("segment {number} of log {log:#x}, from position {start}, belongs there");
        let SegmentHeader { number, log, start, .. } = header;
        let detail = format!("{belongs}, and segment {number} of log {log:#x}, from position {start}, is there");
        Err(Error::new(ErrorKind::Corrupt, "read", object, detail))
    }
}
