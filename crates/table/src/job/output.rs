//! Outputs of a compaction: tables of limited size, and the runs into which their records are gathered.
//!
//! While a table is built, a record to be gathered is only noted: its address in the run follows from the lengths of
//! the records before it. When the table ends, its run is allocated with its exact size and filled batch by batch. Each
//! record is verified on the way.
//!
//! If no free piece of memory is long enough for a table's run, its records go to several runs, one after another. If
//! none is long enough for its index, the table ends early.
//!
//! # Where a table ends
//!
//! A run serves one table as long as possible. When a table of the output level, a **resident**, is merged with entries
//! from above, its output ends where it ended. It is cut in two only once it has grown by half. With `t` bytes wanted,
//! a table ends before an entry
//!
//! | when the entry | from this size on |
//! |---|---|
//! | starts a resident | `t / 2` |
//! | is in a resident with more than `t / 2` left | `t` |
//! | is in a resident with less left | `2 t` |
//! | is not in a resident | `t` |
//!
//! The same holds for the bytes that building the table takes if all its records are noted, with [`BUILDING_BYTES`] or
//! three quarters of `t` wanted. Records that stay count as well, so that no table outgrows what one run may have. So
//! tables of tiny records are shorter, and the job's owner cannot make a runner hold as much as it likes. No index and no
//! run is longer than `2 t`, which is at most an extent, even where keys are long and values are short.
//!
//! What is gathered for a table is one run, except where memory is short or one key has very many versions: scans stream
//! a table only if it is one run.
//!
//! A merge within level 0 gives one table, however large, because the tables are in order of their sequence numbers.
//!
//! So [`CompactionJob::most_outputs`] can tell in advance the maximum number of segments, where each finds a long enough
//! piece, as in storage.

use super::input::Io;
use super::result::OutputTable;
use super::sources::Source;
use super::{CompactionJob, GatherRead, JobInput, JobLimits};
use crate::builder::{BuiltTable, TableBuilder};
use crate::entry::{IndexEntry, RangeTombstone, RecordAddress, UNIT_BYTES};
use crate::error::{Error, RecordMismatch, Result};
use crate::point_index::{PointEntry, key_hash};
use crate::properties::{Creation, TableProperties};
use crate::segments::{SegmentInfo, SegmentKind};
use crate::version_edit::ImageAddress;
use forebay_base::record::pad;
use forebay_base::{InternalKey, LogicalAddress, MAX_VALUE_BYTES, Record, SegmentId, Tag, checksum, checksum_append};
use std::cell::RefCell;
use std::sync::Arc;

/// Shortest run or index, in bytes, at which a table ends because memory is short.
pub const LEAST_PIECE_BYTES: u64 = 16 << 10;
/// Where memory is fragmented, a table's run is written in about this many pieces of equal length, so that one fits
/// where another was freed. Pieces that shrink with the free memory would fragment it further, without end.
pub const PIECES_OF_RUN: u64 = 16;

/// Bytes that building a table should take: as for 64 MiB of gathered records of 320 bytes.
pub const BUILDING_BYTES: u64 = 16 << 20;

/// A run ends once the records that were made for it have as many bytes as this many reads.
const MADE_READS: usize = 16;
/// A run ends after this many records, which are noted until then, even in the middle of a key. Of several keys, fewer are
/// noted when the table ends.
const MOST_NOTED: usize = 1 << 19;
/// The job tells its runner what it holds each time that this many bytes were added.
const HOLD_STEP_BYTES: u64 = 1 << 20;
/// Approximate bytes that the result holds for each output table and segment, without keys, segments of the table and its
/// tail.
const RESULT_PART_BYTES: u64 = 512;

/// A record to be gathered, or one that was made.
#[derive(Debug, Clone, Copy)]
struct Noted {
    origin: Origin,
    length: u32,
    tag: Tag,
    hash: u64,
}

/// Where a record comes from.
#[derive(Debug, Clone, Copy)]
enum Origin {
    /// From an input.
    Address(LogicalAddress),
    /// From the records made for the current run, at this offset.
    Made(usize),
}

/// Writes output tables, one after another.
pub(super) struct Output<'a> {
    job: &'a CompactionJob,
    /// Range deletions to be written, clipped to each table.
    tombstones: Vec<RangeTombstone>,
    builder: TableBuilder,
    noted: Vec<Noted>,
    /// Records that were made for the current run.
    made: Vec<u8>,
    /// The current run ends at this many bytes, if the table does not end before.
    most_run_bytes: u64,
    /// The table ends at this many bytes of index, for lack of a longer piece of memory.
    most_image_bytes: u64,
    /// The start of the current table's range.
    lower: Option<Vec<u8>>,
    pub tables: Vec<OutputTable>,
    pub segments: Vec<(SegmentId, SegmentInfo)>,
    /// Checksums of the segments, where other nodes make the same.
    pub checksums: Vec<u32>,
    /// For each input, the remaining bytes of its records; `None` if it is not a resident.
    residents: Vec<Option<u64>>,
    /// The resident whose range the merge has reached.
    resident: Option<usize>,
    /// Bytes of its records from the current entry on, including it.
    resident_bytes_left: u64,
    /// Whether the current entry starts it.
    starts_resident: bool,
    /// Memory for gathering.
    reads: Vec<GatherRead>,
    buffer: Vec<u8>,
    /// Number of held bytes at which the runner is told again.
    hold_from: u64,
}

impl<'a> Output<'a> {
    pub fn new(job: &'a CompactionJob, tombstones: Vec<RangeTombstone>) -> Self {
        Self {
            job,
            tombstones,
            builder: new_builder(job),
            noted: Vec::new(),
            made: Vec::new(),
            most_run_bytes: 0,
            most_image_bytes: 0,
            lower: job.lower.clone(),
            tables: Vec::new(),
            segments: Vec::new(),
            checksums: Vec::new(),
            residents: job.inputs.iter().map(|input| resident_bytes(job, input)).collect(),
            resident: None,
            resident_bytes_left: 0,
            starts_resident: false,
            reads: Vec::new(),
            buffer: Vec::new(),
            hold_from: HOLD_STEP_BYTES,
        }
    }

    /// Bytes that it holds, without the tables that are complete.
    #[inline]
    fn held_bytes(&self) -> u64 {
        let noted = self.noted.len() * size_of::<Noted>();
        let gathering = self.reads.capacity() * size_of::<GatherRead>() + self.buffer.len();
        self.builder.held_bytes() + (noted + self.made.len() + gathering) as u64
    }

    /// Bytes that building the current table would take if all its records were noted.
    #[inline]
    const fn building_bytes(&self) -> u64 {
        self.builder.held_bytes() + self.builder.entries() * size_of::<Noted>() as u64
    }

    /// Tells the runner what the job holds, and `more` that it is about to hold.
    pub fn hold(&mut self, io: &mut Io<'_>, more: u64) -> Result<()> {
        let held = self.held_bytes().saturating_add(more);
        self.hold_from = held.saturating_add(HOLD_STEP_BYTES);
        io.hold(held)
    }

    /// Records that the next entry comes from this input.
    #[inline]
    pub fn enter(&mut self, input: usize, entry: &IndexEntry<'_>) {
        if let Some(Some(left)) = self.residents.get_mut(input) {
            self.resident_bytes_left = *left;
            *left = left.saturating_sub(entry.padded_length());
            self.starts_resident |= self.resident != Some(input);
            self.resident = Some(input);
        } else {
            self.resident_bytes_left = self.resident.and_then(|resident| *self.residents.get(resident)?).unwrap_or(0);
        }
    }

    /// Adds an entry whose record stays in place.
    #[inline]
    pub fn keep(&mut self, io: &RefCell<Io<'_>>, entry: &IndexEntry<'_>, source: &mut Source) -> Result<()> {
        self.split_before(io, entry)?;
        let mut entry = *entry;
        let (segment, is_run, builder) = (source.segment, source.is_run, &mut self.builder);
        entry.address.ordinal = source.ordinal_in(self.tables.len(), || builder.segment(segment, is_run))?;
        self.builder.add(&entry).map_err(blame_input)
    }

    /// Adds an entry whose record, at `address`, will be gathered into the table's run.
    #[inline]
    pub fn gather(&mut self, io: &RefCell<Io<'_>>, entry: &IndexEntry<'_>, address: LogicalAddress) -> Result<()> {
        self.enter_run(io, entry)?;
        self.note(entry, Origin::Address(address))
    }

    /// Adds a record that comes from no input to the table's run.
    pub fn put(&mut self, io: &RefCell<Io<'_>>, record: &Record<'_>) -> Result<()> {
        let length = u32::try_from(record.length()).map_err(|_| Error::Invalid("a record is longer than 4 GiB"))?;
        let key = InternalKey { user_key: record.key, tag: record.tag };
        let address = RecordAddress { ordinal: 0, offset_units: 0 };
        let entry = IndexEntry { key, address, length, expiry_ms: record.expiry_ms };
        self.enter_run(io, &entry)?;
        let offset = self.made.len();
        self.hold(&mut io.borrow_mut(), length.into())?;
        record.encode(&mut self.made);
        self.note(&entry, Origin::Made(offset))
    }

    /// Ends table and run before `entry` if they are full.
    #[inline]
    fn enter_run(&mut self, io: &RefCell<Io<'_>>, entry: &IndexEntry<'_>) -> Result<()> {
        self.split_before(io, entry)?;
        if self.noted.is_empty() || self.is_run_full(entry) {
            self.begin_run(&mut io.borrow_mut())?;
        }
        Ok(())
    }

    #[inline]
    fn note(&mut self, entry: &IndexEntry<'_>, origin: Origin) -> Result<()> {
        let hash = key_hash(entry.key.user_key);
        self.builder.add_to_run(entry, hash).map_err(blame_input)?;
        self.noted.push(Noted { origin, length: entry.length, tag: entry.key.tag, hash });
        Ok(())
    }

    /// Whether the run ends before `entry`: because no longer piece of memory is free, or because made or noted records are
    /// held until the run ends.
    #[inline]
    fn is_run_full(&self, entry: &IndexEntry<'_>) -> bool {
        self.builder.run_bytes() + entry.padded_length() > self.most_run_bytes
            || self.made.len() >= most_made(&self.job.limits)
            || self.noted.len() >= MOST_NOTED
    }

    /// Begins a run.
    fn begin_run(&mut self, io: &mut Io<'_>) -> Result<()> {
        self.write_run(io)?;
        let wanted = self.job.limits.table_bytes;
        let longest = self.longest_piece(io, wanted.saturating_mul(2));
        self.most_image_bytes = self.most_image_bytes.min(image_bytes(longest));
        self.most_run_bytes = match longest {
            // Also for one key with many versions.
            u64::MAX => wanted.saturating_mul(2),
            _ => longest.min(wanted / PIECES_OF_RUN).max(LEAST_PIECE_BYTES),
        };
        Ok(())
    }

    /// Bytes of the longest free piece; no limit if it is longer than any `wanted` length, or if other nodes make the same
    /// output, because their pieces differ.
    fn longest_piece(&self, io: &mut Io<'_>, wanted: u64) -> u64 {
        if self.job.replica.is_some() {
            return u64::MAX;
        }
        let longest = io.longest_piece(wanted);
        if longest < wanted { longest } else { u64::MAX }
    }

    /// Ends the table before `entry` if it is full and the entry has another user key, and begins the next one.
    #[inline]
    fn split_before(&mut self, io: &RefCell<Io<'_>>, entry: &IndexEntry<'_>) -> Result<()> {
        if self.held_bytes() >= self.hold_from {
            self.hold(&mut io.borrow_mut(), 0)?;
        }
        let bytes = self.builder.record_bytes() + entry.padded_length();
        let is_full = self.builder.entries() >= self.job.limits.table_entries
            || self.builder.image_bytes() > self.most_image_bytes
            || bytes > self.most_bytes(self.job.limits.table_bytes)
            || self.building_bytes() > self.most_bytes(wanted_building_bytes(&self.job.limits));
        if is_full && self.job.output_level > 0 || self.builder.entries() == 0 {
            self.begin_table(&mut io.borrow_mut(), entry)?;
        }
        self.starts_resident = false;
        Ok(())
    }

    /// Bytes at which the table ends before the current entry, if `wanted` bytes are wanted.
    #[inline]
    fn most_bytes(&self, wanted: u64) -> u64 {
        if self.starts_resident {
            return wanted / 2;
        }
        let left = self.resident_bytes_left;
        if left > 0 && left <= self.job.limits.table_bytes / 2 { wanted.saturating_mul(2) } else { wanted }
    }

    /// Begins a table with `entry`, unless the previous table ends with the same user key.
    fn begin_table(&mut self, io: &mut Io<'_>, entry: &IndexEntry<'_>) -> Result<()> {
        let user_key = entry.key.user_key;
        match self.builder.last_key() {
            Some(last) if last.user_key == user_key => return Ok(()),
            Some(_) => {
                self.finish_table(io, Some(user_key))?;
                self.lower = Some(user_key.to_vec());
            }
            None => {}
        }
        self.most_image_bytes = image_bytes(self.longest_piece(io, self.job.limits.table_bytes));
        Ok(())
    }

    /// Ends the last table.
    pub fn finish(&mut self, io: &mut Io<'_>) -> Result<()> {
        let upper = self.job.upper.clone();
        self.finish_table(io, upper.as_deref())
    }

    fn finish_table(&mut self, io: &mut Io<'_>, upper: Option<&[u8]>) -> Result<()> {
        let order = self.job.key_order();
        for tombstone in &self.tombstones {
            if let Some(part) = tombstone.clipped(order, self.lower.as_deref(), upper) {
                self.builder.add_range_deletion(part)?;
            }
        }
        if self.builder.is_empty() {
            return Ok(());
        }
        self.write_run(io)?;
        self.hold(io, self.builder.finishing_bytes())?;
        let builder = std::mem::replace(&mut self.builder, new_builder(self.job));
        io.counters.entries_out += builder.entries();
        self.write_image(io, builder.finish()?)
    }

    fn write_image(&mut self, io: &mut Io<'_>, table: BuiltTable) -> Result<()> {
        let length = table.image.len() as u64;
        let segment = self.allocate(io, SegmentKind::TableImage, length)?;
        io.write(segment, 0, &table.image)?;
        self.sum(|| checksum(&table.image));
        let image = ImageAddress { segment, length, tail_offset: table.tail_offset };
        let tail = table.tail();
        let tail = if io.takes_tail(tail.len() as u64) { tail.to_vec() } else { Vec::new() };
        let TableProperties { segments, smallest, largest, .. } = &table.properties;
        let (keys, segments) = (smallest.user_key.len() + largest.user_key.len(), size_of_val(segments.as_slice()));
        io.result_bytes += RESULT_PART_BYTES + (tail.len() + keys + segments) as u64;
        self.hold_from = HOLD_STEP_BYTES;
        io.hold(table.image.len() as u64)?;
        self.tables.push(OutputTable { image, properties: Arc::new(table.properties), tail });
        Ok(())
    }

    fn allocate(&mut self, io: &mut Io<'_>, kind: SegmentKind, length: u64) -> Result<SegmentId> {
        let allocated = io.allocate(kind, length)?;
        io.result_bytes += RESULT_PART_BYTES;
        self.segments.push((allocated.id, SegmentInfo::new(kind, length, allocated.placements)));
        Ok(allocated.id)
    }

    /// Notes the checksum of the segment that was allocated last.
    fn sum(&mut self, checksum: impl FnOnce() -> u32) {
        if self.job.replica.is_some() {
            self.checksums.push(checksum());
        }
    }

    /// Gathers the noted records, if any, into a run, and ends the run.
    fn write_run(&mut self, io: &mut Io<'_>) -> Result<()> {
        if self.noted.is_empty() {
            return Ok(());
        }
        let run = self.allocate(io, SegmentKind::Run, self.builder.run_bytes())?;
        let noted = std::mem::take(&mut self.noted);
        let (mut rest, mut offset, mut crc) = (noted.as_slice(), 0, checksum(&[]));
        let (mut reads, mut whole) = (std::mem::take(&mut self.reads), std::mem::take(&mut self.buffer));
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(batch_length(rest, self.job.limits.read_bytes as usize));
            let length = batch.iter().map(|noted| pad(noted.length as usize)).sum();
            if whole.len() < length {
                self.hold(io, (length + size_of_val(noted.as_slice()) + batch.len() * size_of::<GatherRead>()) as u64)?;
                whole.resize(length, 0);
            }
            plan_reads(batch, &mut reads);
            let buffer = whole.get_mut(..length).unwrap_or_default();
            if !reads.is_empty() {
                io.gather(&reads, buffer)?;
            }
            copy_made(batch, &self.made, buffer);
            verify(batch, buffer)?;
            io.write(run, offset, buffer)?;
            if self.job.replica.is_some() {
                crc = checksum_append(crc, buffer);
            }
            offset += buffer.len() as u64;
            rest = after;
        }
        self.sum(|| crc);
        self.made.clear();
        (self.reads, self.buffer) = (reads, whole);
        self.builder.end_run(run);
        Ok(())
    }
}

impl CompactionJob {
    /// Maximum number of segments of the outputs, if each can have its wanted length. Each table except the last is full, or
    /// ends where a resident starts. A table is full before the record that would exceed its length: with that record, which
    /// may be long, it has the length. Each run except a table's last is full. A merge operator whose results are longer
    /// than its operands may cause more runs.
    #[must_use]
    pub fn most_outputs(&self) -> u64 {
        let properties = || self.inputs.iter().map(|input| &input.table.properties);
        let stretches = self.stretches.iter().map(|stretch| stretch.length).fold(0, u64::saturating_add);
        let bytes = properties().map(|table| table.record_bytes).fold(stretches, u64::saturating_add);
        let entries = properties().map(|table| table.entries()).fold(stretches / UNIT_BYTES, u64::saturating_add);
        let images = self.inputs.iter().map(|input| input.table.image.length).fold(0, u64::saturating_add);
        let an_entry = (size_of::<PointEntry>() + size_of::<Noted>()) as u64;
        let building = images.saturating_add(entries.saturating_mul(an_entry));
        let fill = |all: u64, one: u64| all / one.max(1);
        // Each table's records and the first of the next one's are longer than a table, and each record counts twice.
        let full_tables = fill(bytes.saturating_mul(2), self.limits.table_bytes)
            .saturating_add(fill(entries, self.limits.table_entries))
            .saturating_add(fill(building, wanted_building_bytes(&self.limits)));
        let residents = self.inputs.iter().filter(|input| resident_bytes(self, input).is_some()).count() as u64;
        let tables = if self.output_level > 0 { full_tables.saturating_add(residents) } else { 0 }.saturating_add(1);
        let made = if self.merge_operator.is_empty() { 0 } else { fill(bytes, most_made(&self.limits) as u64) };
        let full_runs = fill(bytes, self.limits.table_bytes).saturating_add(fill(entries, MOST_NOTED as u64));
        tables.saturating_mul(2).saturating_add(full_runs).saturating_add(made)
    }
}

/// Bytes that building a table should take. The finished index is not longer, except for a key in each of its levels.
fn wanted_building_bytes(limits: &JobLimits) -> u64 {
    BUILDING_BYTES.min((limits.table_bytes / 4 * 3).max(LEAST_PIECE_BYTES))
}

/// Bytes of made records at which a run ends.
fn most_made(limits: &JobLimits) -> usize {
    (limits.read_bytes as usize).saturating_mul(MADE_READS).min(MAX_VALUE_BYTES)
}

/// Maximum bytes of an index: the index needs another piece once a run or another job has taken the longest.
fn image_bytes(longest: u64) -> u64 {
    match longest {
        u64::MAX => longest,
        _ => (longest / 2).max(LEAST_PIECE_BYTES),
    }
}

/// Bytes of records of an input of the output level; `None` for an input of another level.
fn resident_bytes(job: &CompactionJob, input: &JobInput) -> Option<u64> {
    let is_resident = input.level == job.output_level && job.output_level > 0;
    is_resident.then_some(input.table.properties.record_bytes)
}

/// Turns a builder's refusal of an entry into an error of the input, because the entry came from there.
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

/// Number of records to gather at once: as many as fit `bytes`, but at least one.
fn batch_length(noted: &[Noted], bytes: usize) -> usize {
    let mut total = 0;
    let fits = noted.iter().take_while(|noted| {
        total += pad(noted.length as usize);
        total <= bytes
    });
    fits.count().max(1)
}

/// One read for each record, or for several that are adjacent.
fn plan_reads(batch: &[Noted], reads: &mut Vec<GatherRead>) {
    reads.clear();
    let mut destination = 0;
    for noted in batch {
        let length = pad(noted.length as usize);
        if let Origin::Address(address) = noted.origin {
            match reads.last_mut() {
                Some(last)
                    if last.address.segment == address.segment
                        && last.address.offset + last.length as u64 == address.offset
                        && last.destination + last.length == destination =>
                {
                    last.length += length;
                }
                _ => reads.push(GatherRead { address, length, destination }),
            }
        }
        destination += length;
    }
}

/// Copies the records of a batch that were made to their places.
fn copy_made(batch: &[Noted], made: &[u8], buffer: &mut [u8]) {
    let mut at = 0;
    for noted in batch {
        let length = pad(noted.length as usize);
        if let Origin::Made(offset) = noted.origin
            && let (Some(place), Some(record)) = (buffer.get_mut(at..at + length), made.get(offset..offset + length))
        {
            place.copy_from_slice(record);
        }
        at += length;
    }
}

/// Verifies that each record is the one that its entry names, and clears its padding.
fn verify(batch: &[Noted], buffer: &mut [u8]) -> Result<()> {
    let mut rest = buffer;
    for noted in batch {
        let bad = |cause| match noted.origin {
            Origin::Address(address) => Error::BadRecord { address, cause },
            Origin::Made(_) => Error::Invalid("a record was made wrongly"),
        };
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
    if record.length() != noted.length as usize {
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
