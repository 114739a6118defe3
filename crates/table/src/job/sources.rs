//! The segments that hold a compaction's records: which records leave them, and how many bytes that makes.

use super::records::record_segments;
use super::request::SizeClass;
use super::result::DeadBytes;
use super::{Clustering, CompactionJob, JobInput, Residents};
use crate::error::{Error, Result};
use crate::properties::SegmentUse;
use forebay_base::SegmentId;
use std::collections::BTreeMap;

/// A segment as one input names it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    pub segment: SegmentId,
    pub is_run: bool,
    /// Whether records of every size, small ones, or medium ones are gathered.
    gathers_all: bool,
    gathers_small: bool,
    gathers_medium: bool,
    /// Its ordinal in the output table with this number.
    ordinal: u32,
    ordinal_in: usize,
    pub dropped_bytes: u64,
    pub moved_bytes: u64,
}

impl Source {
    fn new(job: &CompactionJob, segment: SegmentId, is_run: bool) -> Self {
        let rewrites = job.clustering == Clustering::Gather(Residents::Rewrite);
        Self {
            segment,
            is_run,
            gathers_all: rewrites || job.vacated.contains(&segment),
            gathers_small: job.clustering != Clustering::Gather(Residents::Keep) || !is_run,
            gathers_medium: job.clustering == Clustering::Gather(Residents::Keep) && !is_run,
            ordinal: 0,
            ordinal_in: usize::MAX,
            dropped_bytes: 0,
            moved_bytes: 0,
        }
    }

    /// Whether a record of this size is gathered.
    #[inline]
    pub fn is_gathered(&self, class: SizeClass) -> bool {
        self.gathers_all
            || match class {
                SizeClass::Small => self.gathers_small,
                SizeClass::Medium => self.gathers_medium,
                SizeClass::Large => false,
            }
    }

    /// The segment's ordinal in output table number `table`; `list` assigns it at the first call.
    #[inline]
    pub fn ordinal_in(&mut self, table: usize, list: impl FnOnce() -> Result<u32>) -> Result<u32> {
        if self.ordinal_in != table {
            self.ordinal = list()?;
            self.ordinal_in = table;
        }
        Ok(self.ordinal)
    }
}

/// All source segments, by input and by ordinal there.
#[derive(Debug)]
pub(super) struct Sources(Vec<Vec<Source>>);

impl Sources {
    pub fn new(job: &CompactionJob) -> Self {
        let of_segment = |used: &SegmentUse| Source::new(job, used.id, used.is_run);
        let of_table = |input: &JobInput| input.table.properties.segments.iter().map(of_segment).collect();
        if job.stretches.is_empty() {
            return Self(job.inputs.iter().map(of_table).collect());
        }
        let of_records = |segment| Source::new(job, segment, false);
        Self(vec![record_segments(job).into_iter().map(of_records).collect()])
    }

    #[inline]
    pub fn get_mut(&mut self, input: usize, ordinal: u32) -> Result<&mut Source> {
        let missing = Error::Inconsistent { what: "an index entry", detail: "its segment is not in the table's list" };
        self.0.get_mut(input).and_then(|sources| sources.get_mut(ordinal as usize)).ok_or(missing)
    }

    /// The dead bytes found or made, by segment.
    pub fn dead(&self) -> Vec<DeadBytes> {
        let mut dead = BTreeMap::new();
        for source in self.0.iter().flatten().filter(|source| source.dropped_bytes + source.moved_bytes > 0) {
            let segment = source.segment;
            let sum = dead.entry(segment).or_insert(DeadBytes { segment, dropped_bytes: 0, moved_bytes: 0 });
            sum.dropped_bytes += source.dropped_bytes;
            sum.moved_bytes += source.moved_bytes;
        }
        dead.into_values().collect()
    }
}
