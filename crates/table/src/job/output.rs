//! A compaction's outputs: tables of a bounded size, and the runs that their records are gathered into.
//!
//! While a table is built, a record that is to be gathered is only noted: its address in the run
//! follows from the lengths of those before it. When the table ends, its run is allocated in its exact
//! size and filled batch by batch, and each record is verified on the way.

use super::input::Io;
use super::result::{DeadBytes, OutputTable};
use super::{CompactionJob, GatherRead};
use crate::builder::{BuiltTable, TableBuilder};
use crate::entry::{IndexEntry, RangeTombstone};
use crate::error::{Error, RecordMismatch, Result};
use crate::point_index::key_hash;
use crate::properties::{Creation, SegmentUse};
use crate::segments::{SegmentInfo, SegmentKind};
use crate::version_edit::ImageAddress;
use forebay_base::record::pad;
use forebay_base::{LogicalAddress, Record, SegmentId, Tag};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A record that is to be gathered.
#[derive(Debug, Clone, Copy)]
struct Noted {
    address: LogicalAddress,
    length: u32,
    tag: Tag,
    hash: u64,
}

/// Writes output tables one after the other.
pub(super) struct Output<'a> {
    job: &'a CompactionJob,
    /// Range deletions that are to be written, clipped to each table.
    tombstones: Vec<RangeTombstone>,
    builder: TableBuilder,
    noted: Vec<Noted>,
    /// Where the current table's range starts.
    lower: Option<Vec<u8>>,
    pub tables: Vec<OutputTable>,
    pub segments: Vec<(SegmentId, SegmentInfo)>,
    dead: BTreeMap<SegmentId, DeadBytes>,
}

impl<'a> Output<'a> {
    pub fn new(job: &'a CompactionJob, tombstones: Vec<RangeTombstone>) -> Self {
        Self {
            job,
            tombstones,
            builder: new_builder(job),
            noted: Vec::new(),
            lower: job.lower.clone(),
            tables: Vec::new(),
            segments: Vec::new(),
            dead: BTreeMap::new(),
        }
    }

    /// The dead bytes found, by segment.
    pub fn dead(&self) -> Vec<DeadBytes> {
        self.dead.values().copied().collect()
    }

    /// Counts an entry that nobody sees any more.
    pub fn drop_entry(&mut self, entry: &IndexEntry<'_>, segment: &SegmentUse) {
        self.dead_in(segment.id).dropped_bytes += entry.padded_length();
    }

    /// Adds an entry whose record stays where it is.
    pub fn keep(&mut self, io: &mut Io<'_>, entry: &IndexEntry<'_>, segment: &SegmentUse) -> Result<()> {
        self.split_before(io, entry)?;
        let mut entry = *entry;
        entry.address.ordinal = self.builder.segment(segment.id, segment.is_run)?;
        self.builder.add(&entry).map_err(blame_input)
    }

    /// Adds an entry whose record, at `address`, is to be gathered into the table's run.
    pub fn gather(&mut self, io: &mut Io<'_>, entry: &IndexEntry<'_>, address: LogicalAddress) -> Result<()> {
        self.split_before(io, entry)?;
        let hash = key_hash(entry.key.user_key);
        self.builder.add_to_run(entry, hash).map_err(blame_input)?;
        self.noted.push(Noted { address, length: entry.length, tag: entry.key.tag, hash });
        self.dead_in(address.segment).moved_bytes += entry.padded_length();
        Ok(())
    }

    fn dead_in(&mut self, segment: SegmentId) -> &mut DeadBytes {
        self.dead.entry(segment).or_insert(DeadBytes { segment, dropped_bytes: 0, moved_bytes: 0 })
    }

    /// Ends the table before `entry` if it is full and the entry has another user key.
    fn split_before(&mut self, io: &mut Io<'_>, entry: &IndexEntry<'_>) -> Result<()> {
        let limits = &self.job.limits;
        let user_key = entry.key.user_key;
        if self.builder.last_key().is_none_or(|last| last.user_key == user_key) {
            return Ok(());
        }
        let bytes = self.builder.record_bytes() + entry.padded_length();
        if bytes <= limits.table_bytes && self.builder.entries() < limits.table_entries {
            return Ok(());
        }
        self.finish_table(io, Some(user_key))?;
        self.lower = Some(user_key.to_vec());
        Ok(())
    }

    /// Ends the last table.
    pub fn finish(&mut self, io: &mut Io<'_>) -> Result<()> {
        let upper = self.job.upper.clone();
        self.finish_table(io, upper.as_deref())
    }

    fn finish_table(&mut self, io: &mut Io<'_>, upper: Option<&[u8]>) -> Result<()> {
        let mut builder = std::mem::replace(&mut self.builder, new_builder(self.job));
        let order = self.job.key_order();
        for tombstone in &self.tombstones {
            if let Some(part) = tombstone.clipped(order, self.lower.as_deref(), upper) {
                builder.add_range_deletion(part)?;
            }
        }
        if builder.is_empty() {
            return Ok(());
        }
        let run = self.write_run(io, builder.run_bytes())?;
        io.counters.entries_out += builder.entries();
        let table = builder.finish(run)?;
        self.write_image(io, table)
    }

    fn write_image(&mut self, io: &mut Io<'_>, table: BuiltTable) -> Result<()> {
        let length = table.image.len() as u64;
        let segment = self.allocate(io, SegmentKind::TableImage, length)?;
        io.write(segment, 0, &table.image)?;
        let image = ImageAddress { segment, length, tail_offset: table.tail_offset };
        let tail = table.tail().to_vec();
        self.tables.push(OutputTable { image, properties: Arc::new(table.properties), tail });
        Ok(())
    }

    fn allocate(&mut self, io: &mut Io<'_>, kind: SegmentKind, length: u64) -> Result<SegmentId> {
        let allocated = io.allocate(kind, length)?;
        self.segments.push((allocated.id, SegmentInfo::new(kind, length, allocated.placements)));
        Ok(allocated.id)
    }

    /// Gathers the records noted into a run; `None` if there are none.
    fn write_run(&mut self, io: &mut Io<'_>, run_bytes: u64) -> Result<Option<SegmentId>> {
        if self.noted.is_empty() {
            return Ok(None);
        }
        let run = self.allocate(io, SegmentKind::Run, run_bytes)?;
        let noted = std::mem::take(&mut self.noted);
        let (mut rest, mut offset) = (noted.as_slice(), 0);
        let (mut reads, mut buffer) = (Vec::new(), Vec::new());
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(batch_length(rest, self.job.limits.read_bytes as usize));
            plan_reads(batch, &mut reads);
            buffer.clear();
            buffer.resize(batch.iter().map(|noted| pad(noted.length as usize)).sum(), 0);
            io.gather(&reads, &mut buffer)?;
            verify(batch, &mut buffer)?;
            io.write(run, offset, &buffer)?;
            offset += buffer.len() as u64;
            rest = after;
        }
        self.noted = noted;
        self.noted.clear();
        Ok(Some(run))
    }
}

/// An entry that a builder refuses came from an input: the input is wrong, not the call.
fn blame_input(error: Error) -> Error {
    match error {
        Error::Invalid(detail) => Error::Inconsistent { what: "an index entry", detail },
        other => other,
    }
}

fn new_builder(job: &CompactionJob) -> TableBuilder {
    let (number, attempt) = (job.identity.job, job.identity.attempt);
    TableBuilder::new(job.options, Creation { job: number, attempt, level: job.output_level })
}

/// Number of records that are gathered at once: at least one, else as many as fit `bytes`.
fn batch_length(noted: &[Noted], bytes: usize) -> usize {
    let mut total = 0;
    let fits = noted.iter().take_while(|noted| {
        total += pad(noted.length as usize);
        total <= bytes
    });
    fits.count().max(1)
}

/// One read for each record, or for several that follow each other where they lie.
fn plan_reads(batch: &[Noted], reads: &mut Vec<GatherRead>) {
    reads.clear();
    let mut destination = 0;
    for noted in batch {
        let length = pad(noted.length as usize);
        match reads.last_mut() {
            Some(last)
                if last.address.segment == noted.address.segment
                    && last.address.offset + last.length as u64 == noted.address.offset =>
            {
                last.length += length;
            }
            _ => reads.push(GatherRead { address: noted.address, length, destination }),
        }
        destination += length;
    }
}

/// Verifies that each record is the one that its entry names, and clears its padding.
fn verify(batch: &[Noted], buffer: &mut [u8]) -> Result<()> {
    let mut rest = buffer;
    for noted in batch {
        let bad = |cause| Error::BadRecord { address: noted.address, cause };
        let length = noted.length as usize;
        let Some((bytes, after)) = std::mem::take(&mut rest).split_at_mut_checked(pad(length)) else {
            return Err(bad(RecordMismatch::Length));
        };
        check_record(noted, bytes).map_err(bad)?;
        if let Some(padding) = bytes.get_mut(length..) {
            padding.fill(0);
        }
        rest = after;
    }
    Ok(())
}

fn check_record(noted: &Noted, bytes: &[u8]) -> std::result::Result<(), RecordMismatch> {
    let record = Record::decode(bytes)?;
    let (_, header) = Record::decode_unverified(bytes)?;
    if header.length() != noted.length as usize {
        return Err(RecordMismatch::Length);
    }
    if record.tag != noted.tag {
        return Err(RecordMismatch::Tag);
    }
    if key_hash(record.key) != noted.hash {
        return Err(RecordMismatch::Key);
    }
    Ok(())
}
