//! A log in numbered objects, for storage that has no append.
//!
//! ```text
//!  prefix/00000000000000000007    a segment
//!  prefix/00000000000000000008    the next one, put once the previous one exists
//!  prefix/00000000000000000009    the seal
//! ```
//!
//! The first segment is put when the log begins, without frames. Frames are collected in memory. A step of a group puts all
//! of them as the next number, if absent, so a segment is as large as what came while the previous put was under way. A
//! frame that was not acknowledged does not survive the process.
//!
//! One put is under way at a time. If it fails, its bytes are put again under the same number by the next step, so a lost
//! reply is recognised, and a put that arrives late brings the right bytes. If other bytes have the number, they are the
//! seal of a new owner.
//!
//! Layout of the bytes: `docs/formats/log.md`.

use super::frame::{FRAME_HEADER_BYTES, FrameHeader, Position, SEGMENT_HEADER_BYTES, Scan, SegmentHeader};
use super::group::Group;
use super::reader::{LogReader, Part, Recovery, damage_after};
use super::source::{Source, objects as numbers};
use super::writer::{Log, LogCounts, check_appended, check_payload};
use crate::error::{Error, Result};
use crate::name::ObjectName;
use crate::objects::{ObjectStorage, PutMode, listed_and_not_found, taken_by_nothing};
use crate::planted::{Bug, planted};
use bytes::Bytes;
use forebay_base::ErrorKind;
use forebay_env::sync::{Mutex, MutexGuard, lock};
use std::sync::Arc;

/// How a log in objects is laid out.
#[derive(Debug, Clone, Copy)]
pub struct ObjectLogOptions {
    /// When this many bytes wait, the next append puts them first.
    pub buffer_bytes: usize,
}

impl Default for ObjectLogOptions {
    fn default() -> Self {
        Self { buffer_bytes: 16 << 20 }
    }
}

/// A log in objects of an [`ObjectStorage`].
#[derive(Debug)]
pub struct ObjectLog {
    storage: Arc<dyn ObjectStorage>,
    prefix: ObjectName,
    log: u64,
    options: ObjectLogOptions,
    writer: Mutex<Writer>,
    group: Group,
}

#[derive(Debug)]
struct Writer {
    /// The next segment: a header and frames.
    buffer: Vec<u8>,
    end: Position,
    number: u64,
    pending: Option<Pending>,
    /// Existing segments, the oldest first: number and end.
    put: Vec<(u64, Position)>,
    counts: LogCounts,
    broken: Option<Error>,
}

/// A segment that is being put, or whose put failed.
#[derive(Debug, Clone)]
struct Pending {
    number: u64,
    bytes: Bytes,
    end: Position,
}

impl ObjectLog {
    /// Begins a log whose objects' names begin with `prefix`, where no log may exist. `log` is a random number. When this
    /// has returned, the log survives.
    ///
    /// # Errors
    /// `AlreadyExists` when there is a log, or its seal; those of the storage.
    pub fn create(
        storage: Arc<dyn ObjectStorage>,
        prefix: &ObjectName,
        log: u64,
        options: ObjectLogOptions,
    ) -> Result<Self> {
        let header = |number| SegmentHeader { is_seal: false, log, number, start: 0 }.encode();
        storage.put_once(&prefix.numbered(1)?, header(1).into())?;
        let writer = Writer {
            buffer: header(2),
            end: 0,
            number: 2,
            pending: None,
            put: vec![(1, 0)],
            counts: LogCounts::default(),
            broken: None,
        };
        let prefix = prefix.clone();
        Ok(Self { storage, prefix, log, options, writer: Mutex::new(writer), group: Group::default() })
    }

    fn usable(&self) -> Result<MutexGuard<'_, Writer>> {
        let writer = lock(&self.writer);
        match writer.broken.clone().or_else(|| self.group.failure()) {
            Some(error) => Err(error),
            None => Ok(writer),
        }
    }

    fn step(&self) -> Result<Position> {
        let pending = self.usable()?.take(self.log);
        let name = self.prefix.numbered(pending.number)?;
        match self.storage.put_once(&name, pending.bytes.clone()) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && !planted(Bug::SealIsNotSeen) => {
                return Err(self.taken(&name, pending.number, error));
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            put => put?,
        }
        let mut writer = lock(&self.writer);
        writer.pending = None;
        writer.put.push((pending.number, pending.end));
        Ok(pending.end)
    }

    /// Why a segment cannot be put, whose name has other bytes: those of a seal, or of this segment and damaged.
    fn taken(&self, name: &ObjectName, number: u64, taken: Error) -> Error {
        match read_header(&*self.storage, &self.prefix, number) {
            Err(error) => return error,
            Ok(None) => return taken_by_nothing(taken),
            Ok(Some((header, _))) if header.log == self.log && !header.is_seal => {
                return Error::corrupt(name.as_str(), "it is not what was put");
            }
            Ok(Some(_)) => {}
        }
        let detail = "another writer has recovered the log: stop writing";
        let error = Error::new(ErrorKind::Fenced, "sync", self.prefix.as_str(), detail);
        lock(&self.writer).broken.get_or_insert(error.clone());
        error
    }
}

impl Writer {
    /// Takes what has to be put now: an earlier put that failed, or all that waits.
    fn take(&mut self, log: u64) -> Pending {
        let (buffer, number, end) = (&mut self.buffer, &mut self.number, self.end);
        let take = || {
            let pending = Pending { number: *number, bytes: std::mem::take(buffer).into(), end };
            *number += 1;
            *buffer = SegmentHeader { is_seal: false, log, number: *number, start: end }.encode();
            pending
        };
        self.pending.get_or_insert_with(take).clone()
    }
}

impl Log for ObjectLog {
    fn append(&self, stream: u32, mark: u64, payload: &[u8]) -> Result<Position> {
        check_payload(self.prefix.as_str(), payload)?;
        let mut writer = self.usable()?;
        while writer.buffer.len() > SEGMENT_HEADER_BYTES
            && writer.buffer.len() + FRAME_HEADER_BYTES + payload.len() > self.options.buffer_bytes
        {
            let end = writer.end;
            drop(writer);
            self.sync(end)?;
            writer = self.usable()?;
        }
        let before = writer.buffer.len();
        let header = FrameHeader { log: self.log, position: writer.end, durable: self.group.durable(), mark, stream };
        header.encode(payload, &mut writer.buffer);
        let bytes = (writer.buffer.len() - before) as u64;
        writer.end = writer.end.saturating_add(bytes);
        writer.counts.frames += 1;
        writer.counts.bytes += bytes;
        Ok(writer.end)
    }

    fn sync(&self, position: Position) -> Result<()> {
        check_appended(self.prefix.as_str(), position, self.end())?;
        self.group.reach(position, || self.step())
    }

    fn end(&self) -> Position {
        lock(&self.writer).end
    }

    fn durable(&self) -> Position {
        self.group.durable()
    }

    fn segments(&self) -> usize {
        lock(&self.writer).put.len()
    }

    fn failure(&self) -> Option<Error> {
        self.usable().err()
    }

    fn trim(&self, position: Position) -> Result<u64> {
        let old: Vec<u64> = {
            let writer = lock(&self.writer);
            // The last segment says which number is next.
            let older = writer.put.split_last().map_or(&[][..], |(_, older)| older);
            older.iter().take_while(|(_, end)| *end <= position).map(|(number, _)| *number).collect()
        };
        for number in &old {
            self.storage.delete(&self.prefix.numbered(*number)?)?;
        }
        lock(&self.writer).put.retain(|(number, _)| !old.contains(number));
        Ok(old.len() as u64)
    }

    fn discard(&self) -> Result<()> {
        let closed = Error::new(ErrorKind::Closed, "use", self.prefix.as_str(), "the log was discarded");
        lock(&self.writer).broken.get_or_insert(closed);
        delete(&*self.storage, &self.prefix, None)
    }

    fn counts(&self) -> LogCounts {
        let (groups, waits) = self.group.counts();
        LogCounts { groups, waits, ..lock(&self.writer).counts }
    }
}

/// Names of the log's objects, ascending.
pub(super) fn segments(storage: &dyn ObjectStorage, prefix: &ObjectName) -> Result<Vec<String>> {
    let name = |(number, _)| prefix.numbered(number).map(|name| name.as_str().to_owned());
    numbers(storage, prefix)?.into_iter().map(name).collect()
}

/// Deletes the objects of a log, the oldest first, except the number `but`.
pub(super) fn delete(storage: &dyn ObjectStorage, prefix: &ObjectName, but: Option<u64>) -> Result<()> {
    for (number, _) in numbers(storage, prefix)? {
        if Some(number) != but {
            storage.delete(&prefix.numbered(number)?)?;
        }
    }
    Ok(())
}

/// A log that is sealed.
pub(super) struct Sealed {
    /// The seal's number.
    pub number: u64,
    /// Numbers of the objects before it, ascending, with their sizes. Some may have been trimmed meanwhile.
    before: Vec<(u64, u64)>,
}

/// Puts the log's seal after its last segment, if the log has none.
///
/// No frames are read. A seal, like a log without frames, is no longer than a header. So a longer object is a segment, and
/// the seal belongs after it, or after what was put since.
pub(super) fn seal(storage: &dyn ObjectStorage, prefix: &ObjectName) -> Result<Sealed> {
    let mut before = numbers(storage, prefix)?;
    if let Some((number, size)) = before.last().copied()
        && size <= SEGMENT_HEADER_BYTES as u64
    {
        let name = prefix.numbered(number)?;
        let (header, _) = read_header(storage, prefix, number)?.ok_or_else(|| listed_and_not_found(&name))?;
        if header.is_seal {
            before.pop();
            return Ok(Sealed { number, before });
        }
    }
    loop {
        let none_left = || Error::corrupt(prefix.as_str(), "no number is left for the seal");
        let number = before.last().map_or(Some(1), |(number, _)| number.checked_add(1)).ok_or_else(none_left)?;
        let seal = SegmentHeader { is_seal: true, log: 0, number, start: 0 }.encode();
        match storage.put(&prefix.numbered(number)?, seal.into(), PutMode::IfAbsent) {
            Ok(()) => return Ok(Sealed { number, before }),
            Err(taken) if taken.kind() == ErrorKind::AlreadyExists => {
                let found = read_header(storage, prefix, number)?;
                let (header, size) = found.ok_or_else(|| taken_by_nothing(taken))?;
                if header.is_seal {
                    return Ok(Sealed { number, before });
                }
                before.push((number, size));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Reads the header of a segment or the seal, and the object's size; `None` when it is not found.
fn read_header(storage: &dyn ObjectStorage, prefix: &ObjectName, number: u64) -> Result<Option<(SegmentHeader, u64)>> {
    let name = prefix.numbered(number)?;
    let found = match storage.get(&name) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    let header = SegmentHeader::decode(&found).map_err(|cause| Error::decode(name.as_str(), &cause))?;
    check_number(&name, &header, number)?;
    Ok(Some((header, found.len() as u64)))
}

/// The segments of a log, ascending, with their sizes: those that were `listed`, up to the seal if one was found or put. A
/// list does not show one moment, so a segment counts as missing only if two lists lack it.
fn listed_again(
    storage: &dyn ObjectStorage,
    prefix: &ObjectName,
    listed: Vec<(u64, u64)>,
    seal: Option<u64>,
) -> Result<Vec<(u64, u64)>> {
    let all = listed.iter().map(|(number, _)| *number).chain(seal);
    if all.clone().zip(all.skip(1)).all(|(number, next)| number.checked_add(1) == Some(next)) {
        return Ok(listed);
    }
    let mut again = numbers(storage, prefix)?;
    again.retain(|(number, _)| seal.is_none_or(|seal| *number < seal));
    Ok(again)
}

/// Checks that the segment before a seal exists: the last one is never trimmed, and is deleted last.
fn check_before(prefix: &ObjectName, seal: u64, before: &[(u64, u64)]) -> Result<()> {
    let last = seal.saturating_sub(1);
    if before.last().is_some_and(|(number, _)| *number != last) {
        return Err(Error::corrupt(prefix.numbered(last)?.as_str(), "the last segment is missing"));
    }
    Ok(())
}

/// Checks that a segment has the number that its name says.
fn check_number(name: &ObjectName, header: &SegmentHeader, number: u64) -> Result<()> {
    if header.number == number {
        return Ok(());
    }
    Err(Error::corrupt(name.as_str(), format!("it is segment {}", header.number)))
}

/// Opens the log of `prefix` for reading.
pub(super) fn open(storage: Arc<dyn ObjectStorage>, prefix: &ObjectName, recovery: Recovery) -> Result<LogReader> {
    let source = Source::Objects(Arc::clone(&storage), prefix.clone());
    let (listed, seal) = match recovery {
        Recovery::Look => (numbers(&*storage, prefix)?, None),
        Recovery::Seal | Recovery::SealUnlessTorn => {
            let Sealed { number, before } = seal(&*storage, prefix)?;
            (before, Some(number))
        }
    };
    let mut listed = listed_again(&*storage, prefix, listed, seal)?;
    if let Some(seal) = seal {
        check_before(prefix, seal, &listed)?;
    }
    let mut parts: Vec<Part> = Vec::new();
    let mut last: Option<(String, Scan)> = None;
    let mut expected = None;
    while let Some((number, size)) = listed.pop() {
        if expected.is_some_and(|expected| expected != number) {
            // Segments before a gap were trimmed, and this one came back: its put was requested twice, and the first request
            // arrived late.
            break;
        }
        let name = prefix.numbered(number)?;
        match &last {
            None => {
                let Some(bytes) = source.read(number, name.as_str())? else {
                    // All listed segments are deleted.
                    return open(storage, prefix, recovery);
                };
                let scan = Scan::new(&bytes).map_err(|cause| Error::decode(name.as_str(), &cause))?;
                check_number(&name, &scan.header, number)?;
                if scan.header.is_seal {
                    check_before(prefix, number, &listed)?;
                } else {
                    // An object exists as a whole.
                    let length = size.saturating_sub(SEGMENT_HEADER_BYTES as u64);
                    if scan.end.saturating_sub(scan.header.start) != length {
                        return Err(scan.damage(name.as_str()));
                    }
                    last = Some((name.as_str().to_owned(), scan));
                }
            }
            Some((_, scan)) => {
                let end = parts.last().map_or(scan.header.start, |part| part.start);
                // An object exists as a whole, so its size says where it begins. Its reader checks that.
                let start = size.checked_sub(SEGMENT_HEADER_BYTES as u64).and_then(|bytes| end.checked_sub(bytes));
                let start = start.ok_or_else(|| {
                    let detail = format!("it has {size} bytes, and the next one begins at position {end}");
                    let own = || Error::corrupt(name.as_str(), detail);
                    damage_after(parts.iter(), &source, scan.header.log).unwrap_or_else(own)
                })?;
                parts.push(Part { number, start, end, object: name.as_str().to_owned() });
            }
        }
        expected = number.checked_sub(1);
    }
    parts.reverse();
    Ok(LogReader::new(source, parts, last, None))
}
