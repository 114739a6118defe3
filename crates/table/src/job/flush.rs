//! Flush: builds an index over the records of memtables, which stay in place.

use super::JobIdentity;
use super::result::{DeadBytes, JobCounters};
use super::retention::Retention;
use crate::builder::{BuiltTable, TableBuilder, TableOptions};
use crate::entry::{IndexEntry, RangeTombstone, RecordAddress, UNIT_BYTES};
use crate::error::{Error, Result};
use crate::properties::Creation;
use forebay_base::{InternalKey, LogicalAddress, SegmentId, SequenceNumber};
use std::collections::BTreeMap;

/// Arguments of a flush.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlushJob {
    /// The job, its attempt, and its owner.
    pub identity: JobIdentity,
    /// The snapshots in use, ascending. Entries that none of them and no later reader sees are left out.
    pub snapshots: Vec<SequenceNumber>,
    /// Parameters of the table, including the order of the keys.
    pub options: TableOptions,
}

/// An entry of a memtable: its key, and the place of its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocatedEntry<'a> {
    /// User key, sequence number and kind.
    pub key: InternalKey<'a>,
    /// The place of the record.
    pub address: LogicalAddress,
    /// Length of the record in bytes, without padding.
    pub length: u32,
    /// The record's expiry.
    pub expiry_ms: Option<u64>,
}

/// The result of a flush.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlushResult {
    /// The table, to be written unchanged; `None` when the memtables were empty.
    pub table: Option<BuiltTable>,
    /// Bytes of records that were left out, by segment.
    pub dead: Vec<DeadBytes>,
    /// Counters of the job.
    pub counters: JobCounters,
}

/// A running flush. Entries are added in order of their internal keys.
#[derive(Debug)]
pub struct Flush {
    retention: Retention,
    builder: TableBuilder,
    dead: BTreeMap<SegmentId, DeadBytes>,
    counters: JobCounters,
}

impl Flush {
    /// Starts a flush. `tombstones` are the memtables' range deletions.
    ///
    /// # Errors
    /// [`Error::Invalid`] for bad arguments.
    pub fn new(job: &FlushJob, tombstones: Vec<RangeTombstone>) -> Result<Self> {
        if !job.snapshots.is_sorted() {
            return Err(Error::Invalid("the snapshots are not ascending"));
        }
        let creation = Creation { job: job.identity.job, attempt: job.identity.attempt, level: 0 };
        let mut builder = TableBuilder::new(job.options, creation);
        for tombstone in &tombstones {
            builder.add_range_deletion(tombstone.clone())?;
        }
        let retention = Retention::new(job.options.key_order, job.snapshots.clone(), false, 0, tombstones);
        Ok(Self { retention, builder, dead: BTreeMap::new(), counters: JobCounters::default() })
    }

    /// Adds the next entry. Returns whether it is kept: an entry that nobody sees is left out.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an entry out of order or one that no record can have.
    pub fn add(&mut self, located: &LocatedEntry<'_>) -> Result<bool> {
        let LocatedEntry { key, address, length, expiry_ms } = *located;
        if !address.offset.is_multiple_of(UNIT_BYTES) {
            return Err(Error::Invalid("the record is not aligned"));
        }
        let record = RecordAddress { ordinal: 0, offset_units: address.offset / UNIT_BYTES };
        let mut entry = IndexEntry { key, address: record, length, expiry_ms };
        self.counters.entries_in += 1;
        if !self.retention.judge(&entry).is_kept {
            let segment = address.segment;
            let dead = DeadBytes { segment, dropped_bytes: 0, moved_bytes: 0 };
            self.dead.entry(segment).or_insert(dead).dropped_bytes += entry.padded_length();
            return Ok(false);
        }
        entry.address.ordinal = self.builder.segment(address.segment, false)?;
        self.builder.add(&entry)?;
        self.counters.entries_out += 1;
        Ok(true)
    }

    /// Completes the table.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the table is too large.
    pub fn finish(self) -> Result<FlushResult> {
        let Self { builder, dead, mut counters, .. } = self;
        let table = if builder.is_empty() { None } else { Some(builder.finish()?) };
        counters.bytes_written = table.as_ref().map_or(0, |table| table.image.len() as u64);
        Ok(FlushResult { table, dead: dead.into_values().collect(), counters })
    }
}
