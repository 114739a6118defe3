//! Results of a compaction.
//!
//! ```text
//!  frame "FBcr" (see `frame`), fields:
//!  1      identity   of the job
//!  2  *   table      image (varint segment, varint length, varint offset of the tail), properties
//!                    after their length (varint), tail after its length (varint; empty: read it)
//!  3  *   segment    varint id, segment (see `segments`)
//!  4  *   dead       varint segment, varint dropped bytes, varint moved bytes
//!  5      counters   varints: entries in, entries out, bytes read, bytes written, batches gathered
//!  6  *   checksum   u32 CRC32C of a segment, in the order of the segments; only of a job that other nodes run too
//! ```
//!
//! Purpose and golden test: `docs/formats/compaction-job.md`.

use super::JobIdentity;
use crate::error::{Context, Error, Result};
use crate::frame::{FrameKind, Need, for_each_field, put_field};
use crate::properties::TableProperties;
use crate::segments::SegmentInfo;
use crate::version_edit::{
    ImageAddress, TableId, TableMetadata, decode_image, decode_segment, encode_image, encode_segment,
};
use forebay_base::{DecodeError, Reader, SegmentId, Writer};
use std::sync::Arc;

const FRAME: FrameKind = FrameKind { what: "a compaction's result", magic: *b"FBcr", version: 1 };

/// A table that a job made. The owner gives it a number when it installs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputTable {
    /// The place of its image.
    pub image: ImageAddress,
    /// Its properties.
    pub properties: Arc<TableProperties>,
    /// Its tail, for [`CachedTable::parse`](crate::CachedTable::parse); empty if the owner must
    /// read it from the image.
    pub tail: Vec<u8>,
}

impl OutputTable {
    /// The table with the number that its owner gives it.
    #[must_use]
    pub fn metadata(&self, id: TableId) -> TableMetadata {
        TableMetadata { id, image: self.image, properties: Arc::clone(&self.properties) }
    }
}

/// Bytes of a segment that a job found dead or made dead: hints for picking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadBytes {
    /// The segment.
    pub segment: SegmentId,
    /// Bytes of records that no snapshot sees any more, with padding.
    pub dropped_bytes: u64,
    /// Bytes of records that were gathered elsewhere, with padding.
    pub moved_bytes: u64,
}

/// Counters of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JobCounters {
    /// Entries read from the inputs.
    pub entries_in: u64,
    /// Entries written to the outputs.
    pub entries_out: u64,
    /// Bytes read, index and records.
    pub bytes_read: u64,
    /// Bytes written, index and records.
    pub bytes_written: u64,
    /// Batches of records gathered: doorbells.
    pub gathers: u64,
}

impl JobCounters {
    /// Adds the counters of another part of the job.
    pub(crate) const fn add(&mut self, other: Self) {
        self.entries_in += other.entries_in;
        self.entries_out += other.entries_out;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.gathers += other.gathers;
    }
}

/// The result of a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionResult {
    /// The job, its attempt, and its owner.
    pub identity: JobIdentity,
    /// The output tables in key order. None when nothing survived.
    pub tables: Vec<OutputTable>,
    /// The segments that were allocated and completely written.
    pub segments: Vec<(SegmentId, SegmentInfo)>,
    /// Dead bytes by segment.
    pub dead: Vec<DeadBytes>,
    /// Counters of the job.
    pub counters: JobCounters,
    /// The CRC32C of each segment's bytes, if other nodes run the same job; otherwise empty.
    pub checksums: Vec<u32>,
}

impl CompactionResult {
    /// Whether another node, which ran the same job, made the same bytes. The places of the outputs, and the tails in the
    /// results, may differ.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        let tables = |result: &Self| {
            let tables = result.tables.iter().map(|table| (table.image, Arc::clone(&table.properties)));
            tables.collect::<Vec<_>>()
        };
        let segments = |result: &Self| {
            let segments = result.segments.iter().map(|(id, info)| (*id, info.kind, info.length, info.record_format));
            segments.collect::<Vec<_>>()
        };
        self.checksums.len() == self.segments.len()
            && self.checksums == other.checksums
            && segments(self) == segments(other)
            && tables(self) == tables(other)
            && self.dead == other.dead
    }

    /// Appends the result to `out`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is larger than 4 GiB.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        let mut tables = Vec::with_capacity(self.tables.len());
        for table in &self.tables {
            let (mut bytes, mut properties) = (Vec::new(), Vec::new());
            table.properties.encode(&mut properties)?;
            encode_image(&mut bytes, table.image);
            bytes.put_prefixed(&properties);
            bytes.put_prefixed(&table.tail);
            tables.push(bytes);
        }
        FRAME.encode(out, |body| self.encode_fields(body, &tables))
    }

    fn encode_fields(&self, body: &mut Vec<u8>, tables: &[Vec<u8>]) {
        let mut put = |number, value: &dyn Fn(&mut Vec<u8>)| put_field(body, number, Need::Mandatory, value);
        put(1, &|out| self.identity.encode(out));
        for table in tables {
            put(2, &|out| out.extend_from_slice(table));
        }
        for (id, info) in &self.segments {
            put(3, &|out| encode_segment(out, *id, info));
        }
        for dead in &self.dead {
            put(4, &|out| {
                [dead.segment.0, dead.dropped_bytes, dead.moved_bytes]
                    .iter()
                    .for_each(|number| out.put_varint(*number));
            });
        }
        let JobCounters { entries_in, entries_out, bytes_read, bytes_written, gathers } = self.counters;
        put(5, &|out| {
            [entries_in, entries_out, bytes_read, bytes_written, gathers]
                .iter()
                .for_each(|number| out.put_varint(*number));
        });
        for checksum in &self.checksums {
            put(6, &|out| out.put_u32(*checksum));
        }
    }

    /// Decodes a result.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Inconsistent`] or [`Error::Unknown`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let body = FRAME.decode(bytes)?;
        let mut identity = None;
        let (mut tables, mut segments, mut dead, mut checksums) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut counters = JobCounters::default();
        for_each_field(body, FRAME.what, |number, value| {
            match number {
                1 => identity = Some(JobIdentity::decode(value).context(FRAME.what)?),
                2 => tables.push(decode_table(value)?),
                3 => segments.push(decode_segment(value).context(FRAME.what)?),
                4 => dead.push(decode_dead(value).context(FRAME.what)?),
                5 => counters = decode_counters(value).context(FRAME.what)?,
                6 => checksums.push(value.u32().context(FRAME.what)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let missing = Error::Inconsistent { what: FRAME.what, detail: "its identity is missing" };
        Ok(Self { identity: identity.ok_or(missing)?, tables, segments, dead, counters, checksums })
    }
}

fn decode_table(value: &mut Reader<'_>) -> Result<OutputTable> {
    let image = decode_image(value).context(FRAME.what)?;
    let properties = Arc::new(TableProperties::decode(value.prefixed().context(FRAME.what)?)?);
    let tail = value.prefixed().context(FRAME.what)?.to_vec();
    Ok(OutputTable { image, properties, tail })
}

fn decode_dead(value: &mut Reader<'_>) -> std::result::Result<DeadBytes, DecodeError> {
    let segment = SegmentId(value.varint64()?);
    Ok(DeadBytes { segment, dropped_bytes: value.varint64()?, moved_bytes: value.varint64()? })
}

fn decode_counters(value: &mut Reader<'_>) -> std::result::Result<JobCounters, DecodeError> {
    Ok(JobCounters {
        entries_in: value.varint64()?,
        entries_out: value.varint64()?,
        bytes_read: value.varint64()?,
        bytes_written: value.varint64()?,
        gathers: value.varint64()?,
    })
}
