//! Sub-compactions: a job cut by key range into parts that run in parallel (dLSM V).
//!
//! A part is a separate job with bounds. Together, the parts make what the whole job would have made, except for the
//! places where tables end.

use super::input::{Io, read_tail};
use super::{CompactionJob, CompactionResult, DeadBytes, JobIo};
use crate::error::Result;
use std::collections::BTreeMap;
use std::ops::Range;

/// Minimum bytes of records of a part: less is not worth a thread.
const LEAST_PART_BYTES: u64 = 4 << 20;

/// A part of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobPart {
    /// The first key; `None` for no bound.
    pub lower: Option<Vec<u8>>,
    /// The first key after the part; `None` for no bound.
    pub upper: Option<Vec<u8>>,
    /// Its numbers for the segments that it makes.
    pub output_segments: Range<u64>,
}

impl JobPart {
    /// This part of `job`, as a job.
    #[must_use]
    pub fn of(&self, job: &CompactionJob) -> CompactionJob {
        let Self { lower, upper, output_segments } = self.clone();
        CompactionJob { lower, upper, output_segments, ..job.clone() }
    }
}

/// Cuts a job into at most `most` parts of about the same size, in key order, according to the share of its largest
/// input. A job that is small, whose range already has bounds, or whose output is one table of level 0, is one part. The
/// parts share the numbers for outputs.
///
/// # Errors
/// As [`run_compaction`](super::run_compaction).
pub fn split_compaction(job: &CompactionJob, io: &mut dyn JobIo, most: usize) -> Result<Vec<JobPart>> {
    job.validate()?;
    let bytes = job.inputs.iter().map(|input| input.table.properties.record_bytes).fold(0, u64::saturating_add);
    let parts = usize::try_from(bytes / LEAST_PART_BYTES).unwrap_or(most).min(most);
    let is_one = job.output_level == 0 || job.lower.is_some() || job.upper.is_some();
    if parts < 2 || is_one {
        let CompactionJob { lower, upper, output_segments, .. } = job;
        let (lower, upper, output_segments) = (lower.clone(), upper.clone(), output_segments.clone());
        return Ok(vec![JobPart { lower, upper, output_segments }]);
    }
    let mut cuts = cuts(job, io, parts)?;
    cuts.sort_by(|a, b| job.key_order().compare(a, b));
    cuts.dedup();
    let lowers = std::iter::once(None).chain(cuts.iter().cloned().map(Some));
    let uppers = cuts.iter().cloned().map(Some).chain(std::iter::once(None));
    let numbers = shares(&job.output_segments, cuts.len() as u64 + 1);
    let bounds = lowers.zip(uppers).zip(numbers);
    let part = |((lower, upper), output_segments)| JobPart { lower, upper, output_segments };
    Ok(bounds.map(part).collect())
}

/// Divides numbers into `count` consecutive shares of the same length.
fn shares(numbers: &Range<u64>, count: u64) -> impl Iterator<Item = Range<u64>> {
    let (start, length) = (numbers.start, numbers.end.saturating_sub(numbers.start) / count);
    (0..count).map(move |share| start + share * length..start + (share + 1) * length)
}

/// Keys between parts: bounds of the tables of the output level, so that outputs end where tables ended. If there are
/// too few of them, keys of the largest table's sparse index.
fn cuts(job: &CompactionJob, io: &mut dyn JobIo, parts: usize) -> Result<Vec<Vec<u8>>> {
    let residents = job.inputs.iter().filter(|input| input.level == job.output_level);
    let residents: Vec<_> = residents.map(|input| &input.table.properties).collect();
    let nth = |count: usize, part: usize| count * part / parts;
    if residents.len() >= 2 * parts {
        let keys = (1..parts).filter_map(|part| residents.get(nth(residents.len(), part)));
        return Ok(keys.map(|properties| properties.smallest.user_key.clone()).collect());
    }
    let Some(largest) = job.inputs.iter().max_by_key(|input| input.table.properties.entries()) else {
        return Ok(Vec::new());
    };
    let (index, _) = read_tail(&mut Io::new(io, 0), &largest.table)?;
    let keys = (1..parts).filter_map(|part| index.last_key(nth(index.block_count(), part)));
    Ok(keys.map(|key| key.user_key.to_vec()).collect())
}

/// The combined results of a job's parts, in the order given by [`split_compaction`].
#[must_use]
pub fn join_results(parts: Vec<CompactionResult>) -> Option<CompactionResult> {
    let mut parts = parts.into_iter();
    let mut whole = parts.next()?;
    let mut dead: BTreeMap<_, DeadBytes> = whole.dead.drain(..).map(|dead| (dead.segment, dead)).collect();
    for part in parts {
        whole.tables.extend(part.tables);
        whole.segments.extend(part.segments);
        whole.checksums.extend(part.checksums);
        for DeadBytes { segment, dropped_bytes, moved_bytes } in part.dead {
            let sum = dead.entry(segment).or_insert(DeadBytes { segment, dropped_bytes: 0, moved_bytes: 0 });
            sum.dropped_bytes += dropped_bytes;
            sum.moved_bytes += moved_bytes;
        }
        whole.counters.add(part.counters);
    }
    whole.dead = dead.into_values().collect();
    Some(whole)
}
