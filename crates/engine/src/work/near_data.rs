//! Near-data compaction (dLSM V): the compute node picks and commands, the memory node does it.
//!
//! ```text
//!  compute node                              memory node
//!   arguments ── submit, then sleep ────────► pulled by one-sided read (dLSM X-D2)
//!                                             merge, gather, write in the node's own part
//!   woken by immediate ◄── tables' metadata ─ and cached indexes
//!   adopt outputs, map them, install
//! ```
//!
//! The result counts only for the epoch and the job that it names. When the node refuses, the
//! compaction runs at the compute node; when its answer is lost or overdue, the epoch is ended first,
//! so that the attempt can do no more harm and what it made is freed.

use crate::remote::node_part::NodePart;
use crate::remote::objects::is_stored;
use crate::remote::pipeline::read_range;
use crate::remote::segment::{Remote, Segment};
use crate::terms::statistics;
use crate::terms::{Error, Result};
use crate::work::shard::Shard;
use forebay_base::{ErrorKind, SegmentId};
use forebay_memory_client::{ExtentRange, MAX_STORED_BYTES, ShardHandle};
use forebay_proto::job_kind;
use forebay_table::job::{CompactionJob, CompactionResult};
use forebay_table::{ImageAddress, SegmentInfo, SegmentKind};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long a job may take, and how much longer for each byte of its inputs: as if it were one of many.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_BYTES_PER_SECOND: u64 = 8 << 20;

/// Why a compaction is not done near the data.
pub(crate) enum NotThere {
    /// The memory node does not do it: do it here.
    Refused(Error),
    /// It went wrong.
    Failed(Error),
}

/// What a job made, with its segments held.
pub(crate) type Made = (CompactionResult, Vec<Arc<Segment>>);

impl From<Error> for NotThere {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Shard {
    /// Lets the memory node run a compaction. Returns what it made, with its segments held.
    pub(crate) fn compact_near_data(
        &self,
        remote: &Arc<Remote>,
        part: &NodePart,
        job: &mut CompactionJob,
    ) -> Result<Made, NotThere> {
        job.output_segments = self.tree.next_segments();
        let (mut result, segments) = self.run_near_data(remote, part, job)?;
        self.read_tails(remote, &mut result, &segments)?;
        self.count_elsewhere(job, &self.tree.counters.near_data_compactions);
        Ok((result, segments))
    }

    /// Lets a member run a compaction. The result lacks the tails that the answer had no room for.
    pub(crate) fn run_near_data(
        &self,
        remote: &Arc<Remote>,
        part: &NodePart,
        job: &mut CompactionJob,
    ) -> Result<Made, NotThere> {
        let shard = part.shard();
        // A thread that closes the database says so and then ends the epoch: no job starts in a later one.
        self.tree.check_open()?;
        Self::address(&shard, job);
        let _running = remote.memory_node().begin_compaction();
        let mut arguments = Vec::new();
        job.encode(&mut arguments).map_err(Error::from)?;
        let reply =
            shard.submit_job(job.identity.job, job_kind::COMPACTION, &arguments, patience(job.segments.values()));
        let reply = reply.map_err(|error| self.refused(remote, &shard, error.into()))?;
        let counters = &self.tree.counters;
        statistics::add(&counters.compaction_fabric_bytes, (arguments.len() + reply.len()) as u64);
        let result = CompactionResult::decode(&reply).map_err(Error::from)?;
        let ranges = outputs(remote, job, &result)?;
        if ranges.len() != result.segments.len() {
            return Err(Error::corrupt("the memory node names outputs that it cannot have made").into());
        }
        part.adopt(&shard, &ranges).map_err(|error| self.refused(remote, &shard, error))?;
        let segments = remote.hold_outputs(part, &result.segments, &ranges)?;
        Ok((result, segments))
    }

    /// Says whose job it is.
    pub(crate) fn address(shard: &ShardHandle, job: &mut CompactionJob) {
        job.identity.store = shard.key().store.0.into();
        job.identity.shard = shard.key().shard.0.into();
        job.identity.epoch = shard.epoch().0;
    }

    /// Lets the memory node store bytes where the outputs of the shard's jobs are. A node does this at once, also one
    /// that leaves jobs to executors.
    ///
    /// # Errors
    /// `Full` when the node does not; others.
    pub(crate) fn store_near_data(
        &self,
        remote: &Arc<Remote>,
        kind: SegmentKind,
        bytes: &[u8],
    ) -> Result<Arc<Segment>> {
        let full = |cause: String| Error::new(ErrorKind::Full, cause);
        let part = remote.node_part().filter(|_| remote.memory_node().has_part());
        let part = part.ok_or_else(|| full("no jobs leave outputs at the memory node".into()))?;
        if bytes.len() > MAX_STORED_BYTES {
            return Err(full(format!("a request has room for {MAX_STORED_BYTES} bytes, not {}", bytes.len())));
        }
        let shard = part.shard();
        self.tree.check_open()?;
        let range = part.store(&shard, bytes).map_err(|error| match self.refused(remote, &shard, error) {
            NotThere::Refused(error) => full(error.to_string()),
            NotThere::Failed(error) => error,
        })?;
        let info = remote.info_of(kind, bytes.len() as u64, range);
        let mut held = remote.hold_outputs(part, &[(self.tree.next_segment(), info)], &[range])?;
        held.pop().ok_or_else(|| Error::corrupt("an output was not held"))
    }

    /// Whether an error of the node is a refusal.
    pub(crate) fn refused(&self, remote: &Remote, shard: &ShardHandle, error: Error) -> NotThere {
        match error.kind() {
            // Another thread of this process ended the epoch, and may not know the next one yet: then this thread asks
            // for it, which fails when another process took over.
            ErrorKind::Fenced
                if remote.node_part().is_some_and(|part| part.shard().epoch() > shard.epoch())
                    || remote.end_epoch().is_ok() =>
            {
                NotThere::Refused(error)
            }
            ErrorKind::Busy | ErrorKind::Full | ErrorKind::Unsupported => NotThere::Refused(error),
            // Nobody knows what became of the job.
            ErrorKind::TimedOut | ErrorKind::Unavailable if remote.end_epoch().is_ok() => NotThere::Refused(error),
            _ => NotThere::Failed(error),
        }
    }

    /// Reads the tails that are not in a member's answer.
    pub(crate) fn read_tails(
        &self,
        remote: &Remote,
        result: &mut CompactionResult,
        segments: &[Arc<Segment>],
    ) -> Result<()> {
        for table in result.tables.iter_mut().filter(|table| table.tail.is_empty()) {
            table.tail = self.read_tail(remote, segments, table.image)?;
        }
        Ok(())
    }

    /// Reads the tail of an image that was too long for the reply.
    fn read_tail(&self, remote: &Remote, segments: &[Arc<Segment>], image: ImageAddress) -> Result<Vec<u8>> {
        let segment = segments.iter().find(|segment| segment.id() == image.segment);
        let segment = segment.filter(|segment| image.length <= segment.info().length);
        let segment = segment.ok_or_else(|| Error::corrupt("an output table's image is no output"))?;
        let length = image.length.saturating_sub(image.tail_offset);
        let tail = read_range(&mut *remote.background()?, segment.at(image.tail_offset)?, length)?;
        statistics::add(&self.tree.counters.compaction_fabric_bytes, tail.len() as u64);
        Ok(tail)
    }
}

/// Checks that a result is that of the job, and finds where its segments in memory are.
pub(crate) fn outputs(remote: &Remote, job: &CompactionJob, result: &CompactionResult) -> Result<Vec<ExtentRange>> {
    if result.identity != job.identity {
        let (asked, answered) = (&job.identity, &result.identity);
        return Err(Error::corrupt(format!("the memory node was asked {asked:?} and answered {answered:?}")));
    }
    let numbers: BTreeSet<SegmentId> = result.segments.iter().map(|(id, _)| *id).collect();
    let known = numbers.iter().all(|id| job.output_segments.contains(&id.0));
    let in_memory = result.segments.iter().filter(|(_, info)| !is_stored(info));
    let ranges: Option<Vec<_>> = in_memory.map(|(_, info)| remote.place_of(info)).collect();
    match ranges {
        Some(ranges) if known && numbers.len() == result.segments.len() => Ok(ranges),
        _ => Err(Error::corrupt("a job's result names outputs that it cannot have made")),
    }
}

/// How long a job with these inputs may take elsewhere.
pub(crate) fn patience<'s>(inputs: impl Iterator<Item = &'s SegmentInfo>) -> Duration {
    let bytes: u64 = inputs.map(|info| info.length).fold(0, u64::saturating_add);
    PATIENCE + Duration::from_secs(bytes / PATIENCE_BYTES_PER_SECOND)
}
