//! Compaction near the data (dLSM V): the job function of `table`, over the node's own memory.
//!
//! The arguments come from another process. Before their sizes are used, every segment that they name is checked: it must
//! be in this life of this node, in memory that the job may read, with the stated length. Outputs go into the node's own
//! part (dLSM V-A) under the numbers that the shard's owner reserved for them. The reply carries the tables' tails, so the
//! owner needs no read before it installs them. If the tails do not fit, those of the last tables are left out.
//!
//! A job is cut by key range into as many parts as there are threads without another job, and the parts run in
//! parallel. They share the budget, and each has a share of the numbers. When one fails, the others stop. A job that other
//! nodes also run ([`Replica`]) is cut as its arguments say, and as many parts run at a time as there are threads.
//!
//! # The node's own memory
//!
//! What a job holds besides its inputs and outputs is memory of the node's process, which no limit of a tenant covers.
//! Each part may hold [`MOST_HELD_BYTES`], including the arguments and what earlier parts made. A job that needs more is
//! refused, so its owner runs it. A job of ordinary tables stays far below.
//!
//! [`Replica`]: forebay_table::job::Replica

use crate::job::{JobError, JobMemory, JobRunner};
use crate::state::Job;
use forebay_base::{ErrorKind, SegmentId};
use forebay_env::thread::run_all;
use forebay_fabric::NodeIdentity;
use forebay_proto::{ExtentId, ExtentRange};
use forebay_table::job::{
    AllocatedSegment, CompactionJob, CompactionResult, GatherRead, Held, JobIo, JobPart, join_results, run_compaction,
    split_compaction,
};
use forebay_table::{Placement, SegmentInfo, SegmentKind};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of the node's own memory that a part of a job may hold.
const MOST_HELD_BYTES: u64 = 64 << 20;
/// Bytes of the longest arguments.
const MOST_ARGUMENT_BYTES: usize = 2 << 20;
/// Bytes that arguments take once they are decoded, for each byte of them: a segment that a table names has at least 6.
const DECODED_FACTOR: u64 = 10;
/// Bytes of tails in a result. The owner reads tails that are left out.
const MOST_TAIL_BYTES: usize = 8 << 20;

/// Runs compactions.
#[derive(Debug)]
pub(crate) struct Compaction;

impl JobRunner for Compaction {
    fn run(&self, job: &Job, memory: &dyn JobMemory) -> Result<Vec<u8>, JobError> {
        if job.arguments.len() > MOST_ARGUMENT_BYTES {
            let message = format!("the arguments of a job have at most {MOST_ARGUMENT_BYTES} bytes here");
            return Err(JobError::new(ErrorKind::Unsupported, message));
        }
        let arguments = CompactionJob::decode(&job.arguments)?;
        check_identity(job, &arguments)?;
        let shared = Shared::new(job, &arguments, memory)?;
        let threads = memory.threads().max(1);
        let most = arguments.replica.map_or(threads, |replica| replica.parts.into());
        let parts = split_compaction(&arguments, &mut LocalIo::new(&shared, 0..0), most)?;
        let rows: Vec<_> = parts.chunks(parts.len().div_ceil(threads).max(1)).collect();
        let run_row =
            |row: &[JobPart]| row.iter().map(|part| run_part(&part.of(&arguments), &shared)).collect::<Vec<_>>();
        let made = all_or_cause(run_all(rows, run_row))?;
        let mut whole = join_results(made).ok_or_else(|| JobError::new(ErrorKind::Invalid, "the job has no parts"))?;
        if arguments.replica.is_some_and(|replica| !replica.has_tails) {
            whole.tables.iter_mut().for_each(|table| table.tail = Vec::new());
        }
        Ok(encode(whole, job.most_result_bytes)?)
    }
}

/// Runs a part of the job. If it fails, the other parts are told to stop.
fn run_part(part: &CompactionJob, shared: &Shared<'_>) -> forebay_table::Result<CompactionResult> {
    let mut io = LocalIo::new(shared, part.output_segments.clone());
    let result = run_compaction(part, &mut io);
    shared.kept_bytes.fetch_add(io.result_bytes, Ordering::Relaxed);
    if result.is_err() {
        shared.has_failed.store(true, Ordering::Relaxed);
    }
    result
}

/// The results of all parts, or the cause of a failure: parts that were told to stop do not count as the cause. Each row
/// holds the results of one thread; `None` for one that panicked.
fn all_or_cause(
    rows: Vec<Option<Vec<forebay_table::Result<CompactionResult>>>>,
) -> Result<Vec<CompactionResult>, JobError> {
    let results = rows.into_iter().flat_map(|row| match row {
        Some(results) => results.into_iter().map(Some).collect(),
        None => vec![None],
    });
    let is_told =
        |result: &Option<forebay_table::Result<_>>| matches!(result, Some(Err(forebay_table::Error::Cancelled)));
    let (told, others): (Vec<_>, Vec<_>) = results.partition(is_told);
    let panicked = || JobError::new(ErrorKind::Io, "a part of the job panicked");
    others.into_iter().chain(told).map(|result| Ok(result.ok_or_else(panicked)??)).collect()
}

impl From<forebay_table::Error> for JobError {
    fn from(error: forebay_table::Error) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}

/// Checks that the arguments are for the shard and the epoch that the call was checked for.
fn check_identity(job: &Job, arguments: &CompactionJob) -> Result<(), JobError> {
    let named = &arguments.identity;
    let is_same = named.store == u128::from(job.shard.store.0)
        && named.shard == u64::from(job.shard.shard.0)
        && named.epoch == job.epoch.0;
    if is_same {
        Ok(())
    } else {
        Err(JobError::new(ErrorKind::Invalid, "the arguments are for another shard or epoch"))
    }
}

/// Encodes a result into at most `most_bytes`, if leaving out tails makes that possible.
fn encode(mut result: CompactionResult, most_bytes: usize) -> forebay_table::Result<Vec<u8>> {
    loop {
        let mut bytes = Vec::new();
        result.encode(&mut bytes)?;
        let mut excess = bytes.len().saturating_sub(most_bytes);
        if excess == 0 {
            return Ok(bytes);
        }
        let mut shortened = false;
        for table in result.tables.iter_mut().rev().filter(|table| !table.tail.is_empty()) {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(table.tail.len());
            table.tail = Vec::new();
            shortened = true;
        }
        if !shortened {
            // The caller learns that it does not fit.
            return Ok(bytes);
        }
    }
}

/// The state that the parts of a job share.
struct Shared<'a> {
    memory: &'a dyn JobMemory,
    node: NodeIdentity,
    inputs: BTreeMap<SegmentId, ExtentRange>,
    /// Bytes that all outputs together may still take.
    budget_bytes: AtomicU64,
    /// Bytes of the node's own memory that the arguments take, and the results of parts that have ended.
    kept_bytes: AtomicU64,
    /// Bytes that tails in the result may still take.
    tail_bytes: AtomicU64,
    has_failed: AtomicBool,
}

impl<'a> Shared<'a> {
    fn new(job: &Job, arguments: &CompactionJob, memory: &'a dyn JobMemory) -> Result<Self, JobError> {
        let node = memory.node();
        let mut inputs = BTreeMap::new();
        for (&id, info) in &arguments.segments {
            let range = place(info, node)
                .ok_or_else(|| JobError::new(ErrorKind::Unsupported, format!("{id} does not lie in this node")))?;
            memory.check(range)?;
            inputs.insert(id, range);
        }
        let numbers = &arguments.output_segments;
        if inputs.keys().any(|id| numbers.contains(&id.0)) {
            return Err(JobError::new(ErrorKind::Invalid, "an input has a number that is kept for outputs"));
        }
        Ok(Self {
            memory,
            node,
            inputs,
            budget_bytes: AtomicU64::new(arguments.limits.output_bytes),
            kept_bytes: AtomicU64::new(job.arguments.len() as u64 * DECODED_FACTOR),
            tail_bytes: AtomicU64::new(job.most_result_bytes.min(MOST_TAIL_BYTES) as u64),
            has_failed: AtomicBool::new(false),
        })
    }

    fn read_into(&self, segment: SegmentId, offset: u64, into: &mut [u8]) -> Result<(), JobError> {
        let outside =
            || JobError::new(ErrorKind::Corrupt, format!("a read at {offset} leaves the inputs at {segment}"));
        let range = self.inputs.get(&segment).ok_or_else(outside)?;
        let end = offset.checked_add(into.len() as u64);
        if end.is_none_or(|end| end > range.length) {
            return Err(outside());
        }
        // Within an extent, because the range is.
        self.memory.read(range.extent, range.offset + offset, into)
    }

    /// Takes from the budget.
    fn spend(&self, needed: u64) -> forebay_table::Result<()> {
        take(&self.budget_bytes, needed).map(drop).map_err(|budget| forebay_table::Error::OverBudget { needed, budget })
    }
}

/// Takes `bytes` from what is left, or returns what is left as an error. Relaxed: it orders nothing
/// else.
fn take(left: &AtomicU64, bytes: u64) -> Result<u64, u64> {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes))
}

/// A part's reads and writes, as copies within the node.
struct LocalIo<'a> {
    shared: &'a Shared<'a>,
    /// Remaining numbers for outputs.
    numbers: Range<u64>,
    outputs: BTreeMap<SegmentId, ExtentRange>,
    /// Bytes of its result so far.
    result_bytes: u64,
}

impl<'a> LocalIo<'a> {
    fn new(shared: &'a Shared<'a>, numbers: Range<u64>) -> Self {
        Self { shared, numbers, outputs: BTreeMap::new(), result_bytes: 0 }
    }
}

/// The place of a segment in this life of this node.
fn place(info: &SegmentInfo, here: NodeIdentity) -> Option<ExtentRange> {
    info.placements.iter().find_map(|placement| match *placement {
        Placement::Memory { node, incarnation, extent, offset } if (NodeIdentity { node, incarnation }) == here => {
            Some(ExtentRange { extent: ExtentId(extent), offset, length: info.length })
        }
        _ => None,
    })
}

fn as_table_error(error: JobError) -> forebay_table::Error {
    forebay_table::Error::Io { kind: error.kind, message: error.message }
}

impl JobIo for LocalIo<'_> {
    fn read(&mut self, segment: SegmentId, offset: u64, into: &mut [u8]) -> forebay_table::Result<()> {
        self.shared.read_into(segment, offset, into).map_err(as_table_error)
    }

    fn gather(&mut self, reads: &[GatherRead], into: &mut [u8]) -> forebay_table::Result<()> {
        for read in reads {
            let end = read.destination.checked_add(read.length);
            let part = end.and_then(|end| into.get_mut(read.destination..end));
            let part = part.ok_or(forebay_table::Error::Invalid("a read leaves the job's buffer"))?;
            self.shared.read_into(read.address.segment, read.address.offset, part).map_err(as_table_error)?;
        }
        Ok(())
    }

    fn longest_piece(&mut self, wanted: u64) -> u64 {
        self.shared.memory.longest_piece(wanted)
    }

    fn allocate(&mut self, _kind: SegmentKind, length: u64) -> forebay_table::Result<AllocatedSegment> {
        self.shared.spend(length)?;
        let number = self.numbers.next();
        let id = SegmentId(number.ok_or(forebay_table::Error::Invalid("no number is left for an output"))?);
        let range = self.shared.memory.allocate(length).map_err(as_table_error)?;
        self.outputs.insert(id, range);
        let NodeIdentity { node, incarnation } = self.shared.node;
        let placement = Placement::Memory { node, incarnation, extent: range.extent.0, offset: range.offset };
        Ok(AllocatedSegment { id, placements: vec![placement] })
    }

    fn write(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) -> forebay_table::Result<()> {
        let range = self.outputs.get(&segment);
        let range = range.ok_or(forebay_table::Error::Invalid("a job writes to a segment that it did not allocate"))?;
        self.shared.memory.write(*range, offset, bytes).map_err(as_table_error)
    }

    fn hold(&mut self, held: Held) -> forebay_table::Result<()> {
        self.result_bytes = held.result_bytes;
        let bytes = held.bytes().saturating_add(self.shared.kept_bytes.load(Ordering::Relaxed));
        if bytes <= MOST_HELD_BYTES {
            return Ok(());
        }
        let message =
            format!("the job needs {bytes} bytes of the node's own memory, of which it may have {MOST_HELD_BYTES}");
        Err(forebay_table::Error::Io { kind: ErrorKind::Unsupported, message })
    }

    fn takes_tail(&mut self, bytes: u64) -> bool {
        take(&self.shared.tail_bytes, bytes).is_ok()
    }

    fn cancelled(&self) -> bool {
        self.shared.has_failed.load(Ordering::Relaxed) || !self.shared.memory.may_go_on()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_table::Error;

    #[test]
    fn a_job_of_several_parts_fails_for_the_reason_that_one_has() {
        let full = || Err(Error::Io { kind: ErrorKind::Full, message: "no memory is left".into() });
        let told = || Err(Error::Cancelled);
        for row in [vec![told(), full()], vec![full(), told()], vec![told(), full(), told()]] {
            assert_eq!(all_or_cause(vec![Some(row)]).unwrap_err().kind, ErrorKind::Full);
        }
        let rows = vec![Some(vec![told()]), Some(vec![told()])];
        assert_eq!(all_or_cause(rows).unwrap_err().message, Error::Cancelled.to_string());
        assert_eq!(all_or_cause(vec![Some(vec![told()]), None]).unwrap_err().kind, ErrorKind::Io);
        assert_eq!(all_or_cause(Vec::new()).unwrap(), Vec::new());
    }
}
