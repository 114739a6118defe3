//! Version edits: the differences between successive versions. One codec for every sink.
//!
//! ```text
//!  frame "FBve" (see `frame`), fields, each at most once unless marked *:
//!   1   identity           u128 store, u64 shard, names of key order and merge operator after their
//!                          lengths (varint), lower and upper bound of the shard's keys (each: u8 0,
//!                          or u8 1 and the key after its length)
//!   2   epoch              u64
//!   3   next table         u64
//!   4   next segment       u64
//!   5   next job           u64
//!   6   last sequence      u64
//!   7   durable sequence   u64
//!   8 * added segment      varint id, then the segment (see `segments`)
//!   9 * moved segment      as 8: the placements of an existing segment change
//!  10 * removed segment    varint id
//!  11 * added table        u8 level, then the table:
//!                          varint id, varint segment of the image, varint length of the image,
//!                          varint offset of its tail, properties after their length (varint)
//!  12 * removed table      u8 level, varint id
//!  13   first key          the shard's first key, as the database divides its keys since a bound moved
//!  14 * log part           varint segment; u8 0, or u8 1 and u64: the last number that counts in it
//!  15 * ended log part     varint segment
//!  16   expired before     u64 milliseconds since 1970: a compaction dropped what had expired before
//! ```
//!
//! All fields are mandatory. An edit is applied as a whole. A log of edits is a sequence of frames, and is cut at the
//! first bad one ([`EditLog`]).
//!
//! Purpose and golden test: `docs/formats/version-edit.md`.

use crate::error::{Context, Error, Result};
use crate::frame::{FrameKind, Need, for_each_field, put_field, put_optional, read_optional, read_text};
use crate::properties::{TableProperties, read_sequence};
use crate::segments::SegmentInfo;
use forebay_base::{DecodeError, KeyOrder, Reader, SegmentId, SequenceNumber, Writer};
use std::fmt;
use std::sync::Arc;

const FRAME: FrameKind = FrameKind { what: "a version edit", magic: *b"FBve", version: 1 };

/// A table of a shard. Numbers are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u64);

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {}", self.0)
    }
}

/// The place of a table's image: at the start of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageAddress {
    /// The segment.
    pub segment: SegmentId,
    /// Length of the image in bytes.
    pub length: u64,
    /// Offset of the image's tail in bytes.
    pub tail_offset: u64,
}

/// A table in a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableMetadata {
    /// The table.
    pub id: TableId,
    /// The place of its image.
    pub image: ImageAddress,
    /// Its properties.
    pub properties: Arc<TableProperties>,
}

impl TableMetadata {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        out.put_varint(self.id.0);
        encode_image(out, self.image);
        let mut properties = Vec::new();
        self.properties.encode(&mut properties)?;
        out.put_prefixed(&properties);
        Ok(())
    }

    pub(crate) fn decode(reader: &mut Reader<'_>, what: &'static str) -> Result<Self> {
        let id = TableId(reader.varint64().context(what)?);
        let image = decode_image(reader).context(what)?;
        let properties = Arc::new(TableProperties::decode(reader.prefixed().context(what)?)?);
        Ok(Self { id, image, properties })
    }

    /// All segments that the table needs: its image's and its records', each once.
    pub fn segments(&self) -> impl Iterator<Item = SegmentId> {
        std::iter::once(self.image.segment).chain(self.properties.segments.iter().map(|segment| segment.id))
    }
}

pub(crate) fn encode_image(out: &mut Vec<u8>, image: ImageAddress) {
    out.put_varint(image.segment.0);
    out.put_varint(image.length);
    out.put_varint(image.tail_offset);
}

pub(crate) fn decode_image(reader: &mut Reader<'_>) -> std::result::Result<ImageAddress, DecodeError> {
    let segment = SegmentId(reader.varint64()?);
    let (length, tail_offset) = (reader.varint64()?, reader.varint64()?);
    if tail_offset > length {
        return Err(DecodeError::BadValue { what: "offset of a tail", found: tail_offset });
    }
    Ok(ImageAddress { segment, length, tail_offset })
}

/// The shard of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardIdentity {
    /// The store.
    pub store: u128,
    /// The shard within the store.
    pub shard: u64,
    /// Order of the user keys; stored by name.
    pub key_order: KeyOrder,
    /// Name of the merge operator; empty for none.
    pub merge_operator: String,
    /// The shard's first key; `None` for no bound.
    pub lower: Option<Vec<u8>>,
    /// The first key after the shard; `None` for no bound.
    pub upper: Option<Vec<u8>>,
}

impl ShardIdentity {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u128(self.store);
        out.put_u64(self.shard);
        out.put_prefixed(self.key_order.name().as_bytes());
        out.put_prefixed(self.merge_operator.as_bytes());
        put_optional(out, self.lower.as_deref());
        put_optional(out, self.upper.as_deref());
    }

    fn decode(reader: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        Ok(Self {
            store: reader.u128()?,
            shard: reader.u64()?,
            key_order: read_key_order_name(reader)?,
            merge_operator: read_text(reader, "name of the merge operator")?,
            lower: read_optional(reader, "lower bound")?,
            upper: read_optional(reader, "upper bound")?,
        })
    }
}

pub(crate) fn read_key_order_name(reader: &mut Reader<'_>) -> std::result::Result<KeyOrder, DecodeError> {
    let name = read_text(reader, "name of the key order")?;
    KeyOrder::from_name(&name).ok_or(DecodeError::BadValue { what: "name of the key order", found: 0 })
}

/// The difference between two versions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VersionEdit {
    /// The shard; set by a shard's first edit.
    pub identity: Option<ShardIdentity>,
    /// The owner's epoch; it never decreases.
    pub epoch: Option<u64>,
    /// The next table's number.
    pub next_table: Option<u64>,
    /// The next segment's number.
    pub next_segment: Option<u64>,
    /// The next job's number.
    pub next_job: Option<u64>,
    /// The largest sequence number in the tables.
    pub last_sequence: Option<SequenceNumber>,
    /// The sequence number up to which everything is as durable as the shard promises.
    pub durable_sequence: Option<SequenceNumber>,
    /// New segments.
    pub added_segments: Vec<(SegmentId, SegmentInfo)>,
    /// Segments whose placements change.
    pub moved_segments: Vec<(SegmentId, SegmentInfo)>,
    /// Segments that no table names any more.
    pub removed_segments: Vec<SegmentId>,
    /// New tables, with their levels.
    pub added_tables: Vec<(u8, TableMetadata)>,
    /// Removed tables, with their levels.
    pub removed_tables: Vec<(u8, TableId)>,
    /// The first key that the shard owns, when its bound moves. The identity's bounds limit what the tables may hold.
    /// This key says which keys belong to the shard; tables may reach beyond it.
    pub first_key: Option<Vec<u8>>,
    /// Segments that hold parts of the log of writes, new or with another end.
    pub log_parts: Vec<LogPart>,
    /// Segments that hold no part of the log any more.
    pub ended_log_parts: Vec<SegmentId>,
    /// A compaction dropped records that had expired before this time, in milliseconds since 1970. No reader's time is
    /// earlier from now on.
    pub expired_before_ms: Option<u64>,
}

/// A segment that holds a part of the log of writes: what was written to one memtable.
///
/// The parts are in the order of their records' numbers. A part's records say which numbers it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPart {
    /// The segment, of kind [`MemtableBlock`](crate::SegmentKind::MemtableBlock).
    pub segment: SegmentId,
    /// The last number that counts, set by an owner who took over; `None` while the part may grow.
    pub last: Option<SequenceNumber>,
}

impl VersionEdit {
    /// The edit's entry for a segment that it adds.
    pub fn added_segment(&mut self, id: SegmentId) -> Option<&mut SegmentInfo> {
        self.added_segments.iter_mut().find(|(added, _)| *added == id).map(|(_, info)| info)
    }

    /// Appends the edit to `out`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is larger than 4 GiB.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        let mut tables = Vec::with_capacity(self.added_tables.len());
        for (level, table) in &self.added_tables {
            let mut bytes = vec![*level];
            table.encode(&mut bytes)?;
            tables.push(bytes);
        }
        FRAME.encode(out, |body| self.encode_fields(body, &tables))
    }

    fn encode_fields(&self, body: &mut Vec<u8>, tables: &[Vec<u8>]) {
        let mut put = |number, value: &dyn Fn(&mut Vec<u8>)| put_field(body, number, Need::Mandatory, value);
        if let Some(identity) = &self.identity {
            put(1, &|out| identity.encode(out));
        }
        let numbers = [
            (2, self.epoch),
            (3, self.next_table),
            (4, self.next_segment),
            (5, self.next_job),
            (6, self.last_sequence.map(|sequence| sequence.0)),
            (7, self.durable_sequence.map(|sequence| sequence.0)),
        ];
        for (field, number) in numbers {
            if let Some(number) = number {
                put(field, &|out| out.put_u64(number));
            }
        }
        for (field, segments) in [(8, &self.added_segments), (9, &self.moved_segments)] {
            for (id, info) in segments {
                put(field, &|out| encode_segment(out, *id, info));
            }
        }
        for id in &self.removed_segments {
            put(10, &|out| out.put_varint(id.0));
        }
        for table in tables {
            put(11, &|out| out.extend_from_slice(table));
        }
        for (level, id) in &self.removed_tables {
            put(12, &|out| {
                out.put_u8(*level);
                out.put_varint(id.0);
            });
        }
        if let Some(key) = &self.first_key {
            put(13, &|out| out.put_prefixed(key));
        }
        for part in &self.log_parts {
            put(14, &|out| encode_log_part(out, *part));
        }
        for id in &self.ended_log_parts {
            put(15, &|out| out.put_varint(id.0));
        }
        if let Some(time_ms) = self.expired_before_ms {
            put(16, &|out| out.put_u64(time_ms));
        }
    }

    /// Decodes exactly one edit.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Inconsistent`] or [`Error::Unknown`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        Self::decode_body(FRAME.decode(bytes)?)
    }

    /// Decodes the edit at the front of `bytes`. Returns it with its length in bytes.
    ///
    /// # Errors
    /// As [`VersionEdit::decode`].
    pub fn decode_first(bytes: &[u8]) -> Result<(Self, usize)> {
        let (body, length) = FRAME.decode_first(bytes)?;
        Ok((Self::decode_body(body)?, length))
    }

    fn decode_body(body: &[u8]) -> Result<Self> {
        let mut edit = Self::default();
        for_each_field(body, FRAME.what, |number, value| {
            if number == 11 {
                let level = value.u8().context(FRAME.what)?;
                edit.added_tables.push((level, TableMetadata::decode(value, FRAME.what)?));
                return Ok(true);
            }
            edit.decode_field(number, value).context(FRAME.what)
        })?;
        Ok(edit)
    }

    fn decode_field(&mut self, number: u64, value: &mut Reader<'_>) -> std::result::Result<bool, DecodeError> {
        match number {
            1 => self.identity = Some(ShardIdentity::decode(value)?),
            2 => self.epoch = Some(value.u64()?),
            3 => self.next_table = Some(value.u64()?),
            4 => self.next_segment = Some(value.u64()?),
            5 => self.next_job = Some(value.u64()?),
            6 => self.last_sequence = Some(read_sequence(value)?),
            7 => self.durable_sequence = Some(read_sequence(value)?),
            8 => self.added_segments.push(decode_segment(value)?),
            9 => self.moved_segments.push(decode_segment(value)?),
            10 => self.removed_segments.push(SegmentId(value.varint64()?)),
            12 => self.removed_tables.push((value.u8()?, TableId(value.varint64()?))),
            13 => self.first_key = Some(value.prefixed()?.to_vec()),
            14 => self.log_parts.push(decode_log_part(value)?),
            15 => self.ended_log_parts.push(SegmentId(value.varint64()?)),
            16 => self.expired_before_ms = Some(value.u64()?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn encode_log_part(out: &mut Vec<u8>, part: LogPart) {
    out.put_varint(part.segment.0);
    out.put_u8(part.last.is_some().into());
    if let Some(last) = part.last {
        out.put_u64(last.0);
    }
}

fn decode_log_part(reader: &mut Reader<'_>) -> std::result::Result<LogPart, DecodeError> {
    let segment = SegmentId(reader.varint64()?);
    let last = match reader.u8()? {
        0 => None,
        1 => Some(read_sequence(reader)?),
        found => return Err(DecodeError::BadValue { what: "end of a log part", found: found.into() }),
    };
    Ok(LogPart { segment, last })
}

pub(crate) fn encode_segment(out: &mut Vec<u8>, id: SegmentId, info: &SegmentInfo) {
    out.put_varint(id.0);
    info.encode(out);
}

pub(crate) fn decode_segment(reader: &mut Reader<'_>) -> std::result::Result<(SegmentId, SegmentInfo), DecodeError> {
    Ok((SegmentId(reader.varint64()?), SegmentInfo::decode(reader)?))
}

/// Reads a log of edits up to its first bad one.
#[derive(Debug, Clone)]
pub struct EditLog<'a> {
    bytes: &'a [u8],
    offset: usize,
    end: Option<Error>,
}

impl<'a> EditLog<'a> {
    /// A reader at the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0, end: None }
    }

    /// Bytes of the edits read so far: where the log must be cut and continued.
    #[must_use]
    pub const fn valid_bytes(&self) -> usize {
        self.offset
    }

    /// Why the log ended before its last byte, if it did. An error of kind `Unsupported` means that a newer build wrote
    /// the log: do not cut it.
    #[must_use]
    pub const fn end(&self) -> Option<&Error> {
        self.end.as_ref()
    }
}

impl Iterator for EditLog<'_> {
    type Item = VersionEdit;

    fn next(&mut self) -> Option<VersionEdit> {
        let rest = self.bytes.get(self.offset..).unwrap_or_default();
        if rest.is_empty() || self.end.is_some() {
            return None;
        }
        match VersionEdit::decode_first(rest) {
            Ok((edit, length)) => {
                self.offset += length;
                Some(edit)
            }
            Err(error) => {
                self.end = Some(error);
                None
            }
        }
    }
}
