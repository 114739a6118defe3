//! Arguments of a compaction.
//!
//! ```text
//!  frame "FBcj" (see `frame`), fields, each once unless marked:
//!   1          identity     u128 store, u64 shard, u64 epoch, u64 job, u32 attempt
//!   2          operators    names of key order and merge operator after their lengths (varint)
//!   3  0 or +  input        u8 level, table (see `version_edit`)
//!   4  0 or +  segment      varint id, segment (see `segments`)
//!   5          output       u8 level, u8 1 if no older data of the range is elsewhere
//!   6          snapshots    varint count, u64 each, ascending
//!   7  0 or +  tombstone    range deletion of a table that is not an input: start and end after their
//!                           lengths (varint), u64 tag
//!   8          limits       u64 table bytes, u64 table entries, u64 output bytes, u32 read bytes
//!   9          format       u32 block bytes, u32 restart interval, u8 fingerprint bits, u8 load
//!  10          clustering   u8 0 none, 1 gather; u8 residents 0 keep, 1 rewrite
//!  11          bounds       lower and upper: u8 0, or u8 1 and the key after its length (varint)
//!  12          expiry       u64 milliseconds since 1970: records that expired before may be dropped
//!  13  0 or 1  numbers      varints: first number for segments that the job makes, number after the last
//!  14          classes      u32 bytes of key and value from which a record is medium, u32 from which large
//!  15  0 or +  vacated      varint segment
//!  16  0 or 1  replica      u8 parts, u8 1 if the result is to have the tables' tails
//!  17  0 or +  records      varints: segment, offset, bytes: whole records as they were written
//! ```
//!
//! All fields are mandatory. A job has inputs or records, not both; with records its output is a table of level 0.
//!
//! Purpose and golden test: `docs/formats/compaction-job.md`.

use super::JobIdentity;
use crate::builder::TableOptions;
use crate::entry::{IndexEntry, RangeTombstone, UNIT_BYTES};
use crate::error::{Context, Error, Result};
use crate::frame::{
    FrameKind, Need, for_each_field, put_field, put_optional, read_count, read_flag, read_optional, read_text,
};
use crate::point_index::PointIndexOptions;
use crate::properties::read_sequence;
use crate::segments::SegmentInfo;
use crate::version_edit::{TableMetadata, decode_segment, encode_segment, read_key_order_name};
use forebay_base::{DecodeError, KeyOrder, Reader, SegmentId, SequenceNumber, Writer};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

const FRAME: FrameKind = FrameKind { what: "a compaction job", magic: *b"FBcj", version: 2 };
/// Largest index block that a job may ask for, in bytes.
const MAX_BLOCK_BYTES: u32 = 16 << 20;
/// Largest single read of index blocks or batch of records that a job may ask for, in bytes.
const MAX_READ_BYTES: u32 = 64 << 20;
/// Fields that every job has.
const ALWAYS: u32 = 1 << 1 | 1 << 2 | 1 << 5 | 1 << 6 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12 | 1 << 14;

/// An input table of a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobInput {
    /// The level of the table.
    pub level: u8,
    /// The table.
    pub table: TableMetadata,
}

/// Records as they were written: a part of a memtable's block, in remote memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordStretch {
    /// Their segment.
    pub segment: SegmentId,
    /// Where the first record begins, in bytes from the segment's start.
    pub offset: u64,
    /// Bytes of all records, with padding.
    pub length: u64,
}

/// Limits of a compaction, at one time and in total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobLimits {
    /// An output table ends at this many bytes of records, at the next user key.
    pub table_bytes: u64,
    /// An output table ends at this many entries, at the next user key.
    pub table_entries: u64,
    /// Maximum bytes of all allocated segments together.
    pub output_bytes: u64,
    /// Bytes of index blocks or records to read at once (64 MiB at most).
    pub read_bytes: u32,
}

impl Default for JobLimits {
    fn default() -> Self {
        Self { table_bytes: 64 << 20, table_entries: 4 << 20, output_bytes: u64::MAX, read_bytes: 1 << 20 }
    }
}

/// Whether records are brought back into key order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Clustering {
    /// Medium records stay in place; only their indexes are written.
    #[default]
    None,
    /// Medium records that survive are gathered into a run of their output table.
    Gather(Residents),
}

/// The treatment of records by the size of key and value together (Tebis 3.1, Parallax).
///
/// Every compaction gathers small records, except residents that are to be kept: those live in their table's run.
/// [`Clustering`] decides about medium records. A large record stays where it was written until its segment is vacated
/// or everything is rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeClasses {
    /// Bytes of key and value from which a record is no longer small; zero for no small records.
    pub medium_from_bytes: u32,
    /// Bytes of key and value from which a record is large.
    pub large_from_bytes: u32,
}

/// The size class of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SizeClass {
    Small,
    Medium,
    Large,
}

impl SizeClasses {
    /// Every record is medium.
    pub const NONE: Self = Self { medium_from_bytes: 0, large_from_bytes: u32::MAX };

    #[inline]
    pub(super) fn of(self, entry: &IndexEntry<'_>) -> SizeClass {
        if self == Self::NONE {
            return SizeClass::Medium;
        }
        let bytes = entry.value_length().unwrap_or(0).saturating_add(entry.key.user_key.len() as u32);
        if bytes < self.medium_from_bytes {
            SizeClass::Small
        } else if bytes < self.large_from_bytes {
            SizeClass::Medium
        } else {
            SizeClass::Large
        }
    }
}

impl Default for SizeClasses {
    fn default() -> Self {
        Self { medium_from_bytes: 100, large_from_bytes: 1000 }
    }
}

/// What a clustering compaction does with records that are in runs already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residents {
    /// They stay there.
    Keep,
    /// They are gathered like the others, and so are records of every size.
    Rewrite,
}

/// How a job runs that other nodes also run, on copies of its inputs. Its outputs depend only on the arguments, so they are
/// the same bytes everywhere (Tebis 3.3). The job ignores free threads and the pieces of free memory: where no piece is long
/// enough, it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replica {
    /// Most parts into which the job is cut.
    pub parts: u8,
    /// Whether the result includes the tables' tails.
    pub has_tails: bool,
}

/// The arguments of a compaction: everything that it depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionJob {
    /// The job, its attempt, and its owner.
    pub identity: JobIdentity,
    /// Name of the merge operator; empty for none.
    pub merge_operator: String,
    /// The tables, newest first. None in a flush.
    pub inputs: Vec<JobInput>,
    /// In a flush, the records of sealed memtables, in any order. None in a compaction.
    pub stretches: Vec<RecordStretch>,
    /// Every segment that tables or stretches name.
    pub segments: BTreeMap<SegmentId, SegmentInfo>,
    /// The level of the outputs.
    pub output_level: u8,
    /// Whether no table other than the inputs holds older data of the range, so that deletions may be dropped.
    pub is_bottommost: bool,
    /// The snapshots in use, ascending.
    pub snapshots: Vec<SequenceNumber>,
    /// Range deletions of tables that are not inputs. Entries that they cover are dropped. They are not written.
    pub tombstones: Vec<RangeTombstone>,
    /// Limits.
    pub limits: JobLimits,
    /// Parameters of the outputs, including the order of the keys.
    pub options: TableOptions,
    /// Whether records are brought back into key order.
    pub clustering: Clustering,
    /// The limits of small and large records.
    pub size_classes: SizeClasses,
    /// Segments in which no record of the inputs may stay: all are gathered.
    pub vacated: BTreeSet<SegmentId>,
    /// The first key of the part of the inputs that this job merges; `None` for no bound.
    pub lower: Option<Vec<u8>>,
    /// The first key after that part; `None` for no bound.
    pub upper: Option<Vec<u8>>,
    /// Records that expired before this time, in milliseconds since 1970, may be dropped where a deletion may. Zero for
    /// none.
    pub expire_before_ms: u64,
    /// Numbers for the segments that the job makes, if its runner has no others; reserved by the shard's owner. Empty
    /// for none.
    pub output_segments: Range<u64>,
    /// Set when other nodes run the same job.
    pub replica: Option<Replica>,
}

impl CompactionJob {
    /// Checks that the arguments are consistent.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the cause.
    pub fn validate(&self) -> Result<()> {
        let require = |condition, reason| if condition { Ok(()) } else { Err(Error::Invalid(reason)) };
        let order = self.options.key_order;
        require(
            self.inputs.is_empty() != self.stretches.is_empty(),
            "a job has tables or records as its input, and not both",
        )?;
        let is_whole = self.output_level == 0 && self.lower.is_none() && self.upper.is_none();
        require(self.stretches.is_empty() || is_whole, "records are flushed as a whole, to level 0")?;
        for &RecordStretch { segment, offset, length } in &self.stretches {
            let end = offset.checked_add(length).filter(|_| offset.is_multiple_of(UNIT_BYTES));
            let within = |info: &SegmentInfo| end.is_some_and(|end| end <= info.length);
            require(self.segments.get(&segment).is_some_and(within), "records lie outside of the job's segments")?;
        }
        require(self.snapshots.is_sorted(), "the snapshots are not ascending")?;
        require((1..=MAX_BLOCK_BYTES).contains(&self.options.block_bytes), "the block size is not 1 B to 16 MiB")?;
        require((1..=MAX_READ_BYTES).contains(&self.limits.read_bytes), "the read size is not 1 B to 64 MiB")?;
        if let (Some(lower), Some(upper)) = (&self.lower, &self.upper) {
            require(order.compare(lower, upper) == Ordering::Less, "the bounds are empty")?;
        }
        for JobInput { table, .. } in &self.inputs {
            require(table.properties.key_order == order, "an input has another key order")?;
            require(table.segments().all(|id| self.segments.contains_key(&id)), "an input's segment is missing")?;
            let image = self.segments.get(&table.image.segment);
            require(
                image.is_some_and(|info| table.image.length <= info.length),
                "an image is longer than its segment",
            )?;
        }
        Ok(())
    }

    /// Appends the arguments to `out`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when they are larger than 4 GiB.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            let mut bytes = vec![input.level];
            input.table.encode(&mut bytes)?;
            inputs.push(bytes);
        }
        FRAME.encode(out, |body| self.encode_fields(body, &inputs))
    }

    fn encode_fields(&self, body: &mut Vec<u8>, inputs: &[Vec<u8>]) {
        let mut put = |number, value: &dyn Fn(&mut Vec<u8>)| put_field(body, number, Need::Mandatory, value);
        put(1, &|out| self.identity.encode(out));
        put(2, &|out| {
            out.put_prefixed(self.options.key_order.name().as_bytes());
            out.put_prefixed(self.merge_operator.as_bytes());
        });
        for input in inputs {
            put(3, &|out| out.extend_from_slice(input));
        }
        for (id, info) in &self.segments {
            put(4, &|out| encode_segment(out, *id, info));
        }
        put(5, &|out| out.extend_from_slice(&[self.output_level, u8::from(self.is_bottommost)]));
        put(6, &|out| {
            out.put_varint(self.snapshots.len() as u64);
            self.snapshots.iter().for_each(|snapshot| out.put_u64(snapshot.0));
        });
        for tombstone in &self.tombstones {
            put(7, &|out| tombstone.encode(out));
        }
        put(8, &|out| {
            out.put_u64(self.limits.table_bytes);
            out.put_u64(self.limits.table_entries);
            out.put_u64(self.limits.output_bytes);
            out.put_u32(self.limits.read_bytes);
        });
        put(9, &|out| {
            out.put_u32(self.options.block_bytes);
            out.put_u32(self.options.restart_interval);
            out.put_u8(self.options.point_index.fingerprint_bits.min(255) as u8);
            out.put_u8(self.options.point_index.load.min(255) as u8);
        });
        put(10, &|out| {
            out.extend_from_slice(&match self.clustering {
                Clustering::None => [0, 0],
                Clustering::Gather(Residents::Keep) => [1, 0],
                Clustering::Gather(Residents::Rewrite) => [1, 1],
            });
        });
        put(11, &|out| {
            put_optional(out, self.lower.as_deref());
            put_optional(out, self.upper.as_deref());
        });
        put(12, &|out| out.put_u64(self.expire_before_ms));
        if !self.output_segments.is_empty() {
            put(13, &|out| {
                out.put_varint(self.output_segments.start);
                out.put_varint(self.output_segments.end);
            });
        }
        put(14, &|out| {
            out.put_u32(self.size_classes.medium_from_bytes);
            out.put_u32(self.size_classes.large_from_bytes);
        });
        for segment in &self.vacated {
            put(15, &|out| out.put_varint(segment.0));
        }
        if let Some(Replica { parts, has_tails }) = self.replica {
            put(16, &|out| {
                out.put_u8(parts);
                out.put_u8(has_tails.into());
            });
        }
        for RecordStretch { segment, offset, length } in &self.stretches {
            put(17, &|out| [segment.0, *offset, *length].into_iter().for_each(|word| out.put_varint(word)));
        }
    }

    /// Decodes and validates arguments.
    ///
    /// # Errors
    /// [`Error`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let body = FRAME.decode(bytes)?;
        let mut job = Self {
            identity: JobIdentity { store: 0, shard: 0, epoch: 0, job: 0, attempt: 0 },
            merge_operator: String::new(),
            inputs: Vec::new(),
            stretches: Vec::new(),
            segments: BTreeMap::new(),
            output_level: 0,
            is_bottommost: false,
            snapshots: Vec::new(),
            tombstones: Vec::new(),
            limits: JobLimits::default(),
            options: TableOptions::default(),
            clustering: Clustering::None,
            size_classes: SizeClasses::NONE,
            vacated: BTreeSet::new(),
            lower: None,
            upper: None,
            expire_before_ms: 0,
            output_segments: 0..0,
            replica: None,
        };
        let mut seen = 0u32;
        for_each_field(body, FRAME.what, |number, value| {
            if !(1..=17).contains(&number) {
                return Ok(false);
            }
            seen |= 1 << number;
            if number == 3 {
                let level = value.u8().context(FRAME.what)?;
                job.inputs.push(JobInput { level, table: TableMetadata::decode(value, FRAME.what)? });
                return Ok(true);
            }
            job.decode_field(number, value).context(FRAME.what).map(|()| true)
        })?;
        if seen & ALWAYS != ALWAYS {
            return Err(Error::Inconsistent { what: FRAME.what, detail: "a field is missing" });
        }
        job.validate()?;
        Ok(job)
    }

    fn decode_field(&mut self, number: u64, value: &mut Reader<'_>) -> std::result::Result<(), DecodeError> {
        match number {
            1 => self.identity = JobIdentity::decode(value)?,
            2 => {
                self.options.key_order = read_key_order_name(value)?;
                self.merge_operator = read_text(value, "name of the merge operator")?;
            }
            4 => {
                let (id, info) = decode_segment(value)?;
                self.segments.insert(id, info);
            }
            5 => {
                self.output_level = value.u8()?;
                self.is_bottommost = read_flag(value, "bottommost")?;
            }
            6 => {
                let count = read_count(value, 8)?;
                self.snapshots = (0..count).map(|_| read_sequence(value)).collect::<std::result::Result<_, _>>()?;
            }
            7 => self.tombstones.push(RangeTombstone::decode(value)?),
            8 => {
                let (table_bytes, table_entries) = (value.u64()?, value.u64()?);
                let (output_bytes, read_bytes) = (value.u64()?, value.u32()?);
                self.limits = JobLimits { table_bytes, table_entries, output_bytes, read_bytes };
            }
            9 => {
                self.options.block_bytes = value.u32()?;
                self.options.restart_interval = value.u32()?;
                let (fingerprint_bits, load) = (value.u8()?.into(), value.u8()?.into());
                self.options.point_index = PointIndexOptions { fingerprint_bits, load };
            }
            10 => {
                let (gather, rewrite) = (read_flag(value, "clustering")?, read_flag(value, "residents")?);
                self.clustering = match (gather, rewrite) {
                    (false, _) => Clustering::None,
                    (true, false) => Clustering::Gather(Residents::Keep),
                    (true, true) => Clustering::Gather(Residents::Rewrite),
                };
            }
            11 => {
                self.lower = read_optional(value, "lower bound")?;
                self.upper = read_optional(value, "upper bound")?;
            }
            12 => self.expire_before_ms = value.u64()?,
            13 => {
                self.output_segments = value.varint64()?..value.varint64()?;
                if self.output_segments.is_empty() {
                    let found = self.output_segments.end;
                    return Err(DecodeError::BadValue { what: "end of the numbers for outputs", found });
                }
            }
            14 => {
                let (medium_from_bytes, large_from_bytes) = (value.u32()?, value.u32()?);
                self.size_classes = SizeClasses { medium_from_bytes, large_from_bytes };
            }
            15 => {
                self.vacated.insert(SegmentId(value.varint64()?));
            }
            16 => {
                let (parts, has_tails) = (value.u8()?, read_flag(value, "tails")?);
                self.replica = Some(Replica { parts, has_tails });
            }
            _ => {
                let (segment, offset) = (SegmentId(value.varint64()?), value.varint64()?);
                self.stretches.push(RecordStretch { segment, offset, length: value.varint64()? });
            }
        }
        Ok(())
    }

    /// Order of the user keys.
    #[must_use]
    pub const fn key_order(&self) -> KeyOrder {
        self.options.key_order
    }
}
