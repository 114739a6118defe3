//! Records as they were written, as the input of a job: blocks of memtables over which there is no index yet (O3-LSM 4.2).
//!
//! ```text
//!   stretches  [ record ▸ record ▸ record ][ record ▸ … ]   read once, in pieces; each record is verified
//!   streams    keys of some thousand records, and a note of each: where its key is, and where the record is; sorted
//!   merge      of all streams
//! ```
//!
//! A note takes [`NOTE_BYTES`] and the key. No value is held longer than the piece that contains it. Range deletions are set
//! aside, and records that do nothing are left out: an index holds neither.

use super::input::{Input, Io};
use super::{CompactionJob, RecordStretch};
use crate::entry::{IndexEntry, RangeTombstone, RecordAddress, UNIT_BYTES};
use crate::error::{Error, Result};
use crate::merge::{Direction, Merge, SortedStream};
use forebay_base::record::MAX_HEADER_BYTES;
use forebay_base::{
    InternalKey, KeyOrder, Kind, LogicalAddress, MAX_KEY_BYTES, RecordError, RecordHeader, SegmentId, Tag,
};
use std::sync::Arc;

/// Bytes of a note.
const NOTE_BYTES: usize = size_of::<Note>();
/// Bytes of an expiry, which precedes the key of a record that expires.
const EXPIRY_BYTES: usize = 8;
/// A stream ends with this many notes, or bytes of keys.
const MOST_NOTES: usize = 32 << 10;
const MOST_KEY_BYTES: usize = 1 << 20;
/// Most bytes that the notes and keys of a stream take while they grow.
const GROWING_BYTES: usize = 3 * (MOST_NOTES * NOTE_BYTES + MOST_KEY_BYTES + MAX_KEY_BYTES);
/// Most bytes of a piece, unless one record is longer.
const MOST_PIECE_BYTES: usize = 4 << 20;
/// Bytes that a range deletion takes besides its keys; it is held three times.
const TOMBSTONE_BYTES: usize = 256;

/// The entries of an index over a job's records, in order.
#[derive(Debug)]
pub(super) struct Records(Merge<RecordStream>);

/// The entries over some of the records, in order.
#[derive(Debug)]
struct RecordStream {
    /// The segments of the job's records.
    segments: Arc<[SegmentId]>,
    keys: Vec<u8>,
    notes: Vec<Note>,
    next: usize,
}

/// What a stream knows of a record.
#[derive(Debug, Clone, Copy)]
struct Note {
    /// The part of the key that decides most comparisons.
    prefix: u64,
    tag: Tag,
    /// Where its key begins, and the key's length.
    key: u32,
    key_length: u32,
    /// Its place: the segment's position among the segments, and units of bytes from the segment's
    /// start.
    ordinal: u32,
    units: u32,
    /// Bytes of the record without padding.
    length: u32,
}

/// The segments of a job's records, each once. A segment's position here is its ordinal.
pub(super) fn record_segments(job: &CompactionJob) -> Vec<SegmentId> {
    let mut segments = Vec::new();
    for stretch in &job.stretches {
        if !segments.contains(&stretch.segment) {
            segments.push(stretch.segment);
        }
    }
    segments
}

/// Reads a job's records. Returns their entries and the range deletions.
pub(super) fn open(io: &mut Io<'_>, job: &CompactionJob) -> Result<(Records, Vec<RangeTombstone>)> {
    let segments: Arc<[SegmentId]> = record_segments(job).into();
    let (mut streams, mut tombstones) = (Vec::new(), Vec::new());
    let mut stream = RecordStream::new(&segments);
    let mut piece = Vec::new();
    for stretch in &job.stretches {
        piece.clear();
        let mut reader = StretchReader { stretch, piece: &mut piece, from: 0, at: 0 };
        loop {
            match reader.record()? {
                Found::Record(header) => {
                    if let Some(tombstone) = stream.note(&reader, header, job.key_order())? {
                        io.hold_input((3 * (tombstone.start.len() + tombstone.end.len() + TOMBSTONE_BYTES)) as u64)?;
                        tombstones.push(tombstone);
                    }
                    reader.at += header.padded_length();
                    if stream.is_full() {
                        let full = std::mem::replace(&mut stream, RecordStream::new(&segments));
                        streams.push(full.sorted(io, job.key_order())?);
                    }
                }
                Found::Needs(bytes) => {
                    let usual = MOST_PIECE_BYTES.min(job.limits.read_bytes as usize);
                    reader.read(io, bytes.max(usual))?;
                }
                Found::End => break,
            }
        }
    }
    streams.push(stream.sorted(io, job.key_order())?);
    // In the order that memtables use.
    tombstones.sort_by(|a: &RangeTombstone, b| {
        let starts = job.key_order().compare(&a.start, &b.start);
        starts.then_with(|| a.tag.sequence().cmp(&b.tag.sequence()))
    });
    Ok((Records(Merge::new(streams, job.key_order(), Direction::Forward)), tombstones))
}

impl RecordStream {
    fn new(segments: &Arc<[SegmentId]>) -> Self {
        Self { segments: Arc::clone(segments), keys: Vec::new(), notes: Vec::new(), next: 0 }
    }

    fn is_full(&self) -> bool {
        self.notes.len() >= MOST_NOTES || self.keys.len() >= MOST_KEY_BYTES
    }

    /// The stream, with its notes in order.
    fn sorted(mut self, io: &mut Io<'_>, order: KeyOrder) -> Result<Self> {
        self.keys.shrink_to_fit();
        self.notes.shrink_to_fit();
        io.hold_input((self.keys.capacity() + self.notes.capacity() * NOTE_BYTES) as u64)?;
        let keys = &self.keys;
        self.notes.sort_unstable_by(|a, b| {
            let whole = || order.compare_internal(a.internal_key(keys), b.internal_key(keys));
            a.prefix.cmp(&b.prefix).then_with(whole)
        });
        Ok(self)
    }

    /// Verifies and notes the record at the reader. Returns the range deletion if the record is one.
    fn note(
        &mut self,
        reader: &StretchReader<'_>,
        header: RecordHeader,
        order: KeyOrder,
    ) -> Result<Option<RangeTombstone>> {
        let bytes = reader.rest();
        header.verify(bytes).map_err(|error| reader.damaged(error))?;
        let kind = header.tag.kind();
        if kind.is_void() {
            return Ok(None);
        }
        let value = header.key_offset + header.key_length;
        let key = bytes.get(header.key_offset..value).unwrap_or_default();
        if kind == Kind::RangeDelete {
            let end = bytes.get(value..header.length()).filter(|end| end.len() <= MAX_KEY_BYTES);
            let end = end.ok_or(Error::Inconsistent { what: "a range deletion", detail: "its end is no key" })?;
            return Ok(Some(RangeTombstone { start: key.to_vec(), end: end.to_vec(), tag: header.tag }));
        }
        let ordinal = self.segments.iter().position(|segment| *segment == reader.stretch.segment).unwrap_or(0);
        if let Some(expiry_ms) = header.expiry_ms {
            self.keys.extend_from_slice(&expiry_ms.to_le_bytes());
        }
        let too_long =
            |_| Error::Invalid("the records of a job are too many, or lie too far behind the start of a segment");
        let note = Note {
            prefix: order.prefix(key),
            tag: header.tag,
            key: u32::try_from(self.keys.len()).map_err(too_long)?,
            key_length: u32::try_from(key.len()).map_err(too_long)?,
            ordinal: u32::try_from(ordinal).map_err(too_long)?,
            units: u32::try_from(reader.address().offset / UNIT_BYTES).map_err(too_long)?,
            length: u32::try_from(header.length()).map_err(too_long)?,
        };
        self.keys.extend_from_slice(key);
        self.notes.push(note);
        Ok(None)
    }
}

impl Note {
    fn internal_key<'k>(&self, keys: &'k [u8]) -> InternalKey<'k> {
        let start = self.key as usize;
        let user_key = keys.get(start..start + self.key_length as usize).unwrap_or_default();
        InternalKey { user_key, tag: self.tag }
    }

    fn expiry_ms(&self, keys: &[u8]) -> Option<u64> {
        let before = keys.get(..self.key as usize).filter(|_| self.tag.has_expiry())?;
        Some(u64::from_le_bytes(*before.last_chunk::<EXPIRY_BYTES>()?))
    }
}

/// What comes next in a stretch.
enum Found {
    /// A complete record.
    Record(RecordHeader),
    /// At least this many bytes must be read from here on.
    Needs(usize),
    End,
}

/// Reads a stretch piece by piece.
struct StretchReader<'s> {
    stretch: &'s RecordStretch,
    /// The last bytes read, and where they begin in the stretch.
    piece: &'s mut Vec<u8>,
    from: u64,
    /// How many of these bytes were examined.
    at: usize,
}

impl StretchReader<'_> {
    /// The bytes that were read but not yet examined.
    fn rest(&self) -> &[u8] {
        self.piece.get(self.at..).unwrap_or_default()
    }

    /// Bytes of the stretch from here on.
    fn left(&self) -> usize {
        self.stretch.length.saturating_sub(self.from + self.at as u64) as usize
    }

    fn address(&self) -> LogicalAddress {
        let Self { stretch, from, at, .. } = self;
        LogicalAddress { segment: stretch.segment, offset: stretch.offset + from + *at as u64 }
    }

    fn damaged(&self, cause: RecordError) -> Error {
        Error::BadRecord { address: self.address(), cause: cause.into() }
    }

    fn record(&self) -> Result<Found> {
        let (rest, left) = (self.rest(), self.left());
        if left == 0 {
            return Ok(Found::End);
        }
        let head = MAX_HEADER_BYTES.min(left);
        if rest.len() < head {
            return Ok(Found::Needs(head));
        }
        let header = RecordHeader::decode(rest).map_err(|error| self.damaged(error))?;
        match header.padded_length() {
            bytes if bytes > left => {
                Err(Error::Inconsistent { what: "a memtable's block", detail: "its last record is not whole" })
            }
            bytes if bytes > rest.len() => Ok(Found::Needs(bytes)),
            _ => Ok(Found::Record(header)),
        }
    }

    /// Reads `bytes` bytes from here on, or all that are left.
    fn read(&mut self, io: &mut Io<'_>, bytes: usize) -> Result<()> {
        let bytes = bytes.min(self.left());
        io.hold((GROWING_BYTES + self.piece.capacity() + bytes) as u64)?;
        let address = self.address();
        (self.from, self.at) = (self.from + self.at as u64, 0);
        self.piece.resize(bytes, 0);
        io.read(address.segment, address.offset, self.piece)
    }
}

impl SortedStream for RecordStream {
    type Error = Error;

    #[inline]
    fn key(&self) -> Option<InternalKey<'_>> {
        Some(self.notes.get(self.next)?.internal_key(&self.keys))
    }

    #[inline]
    fn advance(&mut self) -> Result<()> {
        self.next += 1;
        Ok(())
    }
}

impl RecordStream {
    #[inline]
    fn entry(&self) -> Option<IndexEntry<'_>> {
        let note = self.notes.get(self.next)?;
        let address = RecordAddress { ordinal: note.ordinal, offset_units: note.units.into() };
        let (key, expiry_ms) = (note.internal_key(&self.keys), note.expiry_ms(&self.keys));
        Some(IndexEntry { key, address, length: note.length, expiry_ms })
    }
}

impl SortedStream for Records {
    type Error = Error;

    #[inline]
    fn key(&self) -> Option<InternalKey<'_>> {
        self.0.key()
    }

    #[inline]
    fn advance(&mut self) -> Result<()> {
        self.0.advance()
    }
}

impl Input for Records {
    #[inline]
    fn entry(&self) -> Option<IndexEntry<'_>> {
        self.0.current()?.1.entry()
    }

    #[inline]
    fn locate(&self, entry: &IndexEntry<'_>) -> Result<LogicalAddress> {
        let RecordAddress { ordinal, offset_units } = entry.address;
        let missing = Error::Inconsistent { what: "an index entry", detail: "its segment is none of the job's" };
        let segments = self.0.current().map(|(_, stream)| &stream.segments);
        let segment = segments.and_then(|segments| segments.get(ordinal as usize)).ok_or(missing)?;
        Ok(LogicalAddress { segment: *segment, offset: offset_units * UNIT_BYTES })
    }
}

const _: () = assert!(NOTE_BYTES == 40);
