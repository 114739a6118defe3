//! Compaction: a pick becomes a job, which runs at the memory node or here, and is installed.
//!
//! Here, the job function of `table` is driven over the fabric. In `near_data` the memory node drives it, in
//! `offloaded` an executor.

use crate::plan::ledger::{Reservation, Use};
use crate::plan::picker::{Pick, Work};
use crate::plan::tiers::Tier;
use crate::remote::pipeline::Pipeline;
use crate::remote::segment::{Remote, Segment};
use crate::remote::spot::Posted;
use crate::remote::stored::StoredWriter;
use crate::terms::statistics;
use crate::terms::{Error, Result};
use crate::tree::shared::View;
use crate::tree::table::Table;
use crate::tree::version::{Change, LiveVersion};
use crate::work::near_data::{Made, NotThere};
use crate::work::shard::Shard;
use forebay_base::record::is_expired;
use forebay_base::{ErrorKind, SegmentId};
use forebay_env::HashMap;
use forebay_memory_client::Purpose;
use forebay_table::job::{
    AllocatedSegment, Clustering, CompactionJob, CompactionResult, GatherRead, JobInput, JobIo, JobLimits, SizeClasses,
    run_compaction_with,
};
use forebay_table::{CachedTable, RangeTombstone, SegmentInfo, SegmentKind, TableMetadata};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Reads in flight while records are gathered.
const GATHER_DEPTH: usize = 256;

impl Shard {
    /// Carries out a pick, in the memory that was reserved for it, and installs the outputs. Returns how much it took.
    ///
    /// # Errors
    /// `Full` when the memory node has less room for the outputs than was reserved: nothing changed; others.
    pub(crate) fn compact(&self, version: Arc<LiveVersion>, pick: &Pick, reservation: &mut Reservation) -> Result<u64> {
        let has_inputs = |view: &View| {
            let there = |level: u8| view.version.version.level(usize::from(level));
            pick.inputs.iter().all(|(level, input)| there(*level).iter().any(|table| table.id == input.id))
        };
        self.settle_commits(has_inputs)?;
        let (tables, into) = (pick.inputs.len(), pick.output_level);
        let from = pick.inputs.first().map(|(level, _)| *level);
        tracing::debug!(from, into, tables, work = pick.work.name(), "compacting");
        let mut change = match &pick.work {
            Work::Drop => Change::default(),
            Work::Move => self.moved(pick),
            Work::Merge { is_bottommost, clustering, vacated } => {
                let inputs = input_segments(&version, pick);
                let mut job = self.job(&version, &inputs, pick, *is_bottommost, *clustering);
                let expired_before_ms = drops_expired(&job).then_some(job.expire_before_ms);
                job.vacated.clone_from(vacated);
                job.lower.clone_from(&pick.part.lower);
                job.upper.clone_from(&pick.part.upper);
                // Only the inputs have to stay: what others replace meanwhile is freed.
                drop(version);
                let (result, segments) = self.run(&inputs, &mut job, pick.tier, reservation)?;
                self.count(pick, &result);
                let mut change = self.merged(&inputs, pick.output_level, result, segments)?;
                change.edit.expired_before_ms = expired_before_ms;
                change
            }
        };
        change.edit.removed_tables.extend(pick.replaced());
        let taken = change.segments.iter().map(|segment| segment.allocated_bytes()).sum();
        self.commit(change, &[])?;
        if pick.work == Work::Drop {
            statistics::add(&self.tree.counters.hidden_tables, tables as u64);
        }
        Ok(taken)
    }

    /// Runs a job where its outputs have memory: near the data, or here. If it is refused near the data, it runs here,
    /// if there is memory for it. A merge of neighbours of level 0 has memory that was held for it.
    fn run(
        &self,
        inputs: &InputSegments,
        job: &mut CompactionJob,
        tier: Tier,
        reservation: &mut Reservation,
    ) -> Result<(CompactionResult, Vec<Arc<Segment>>)> {
        if job.output_level == 0 {
            self.release_for_join();
        }
        // If another member of the shard serves meanwhile, this one's job fails.
        let remote = self.tree.remote.pinned();
        if reservation.place == Use::Near
            && let Some(made) = self.run_elsewhere(remote, inputs, job, tier)
        {
            match made {
                Ok(made) => return Ok(made),
                Err(NotThere::Refused(error)) => {
                    statistics::add(&self.tree.counters.refused_compactions, 1);
                    tracing::debug!(%error, "a compaction is refused elsewhere: it runs at the compute node");
                    if !self.common.ledger().bring_here(self.holder, reservation) {
                        return Err(Error::new(ErrorKind::Full, format!("there is no memory for it here: {error}")));
                    }
                }
                // The job of a database that is being closed is told to stop.
                Err(NotThere::Failed(error)) => return Err(self.tree.check_open().err().unwrap_or(error)),
            }
        }
        let _at_home = remote.memory_node().offloading().map(|offloading| offloading.at_home());
        let mut io = FabricIo::new(self, inputs, tier)?;
        let made = run_compaction_with(job, &self.tree.options.merge_operators, &mut io);
        let result = made.map_err(|error| io.failure.take().unwrap_or_else(|| error.into()))?;
        io.pipeline.drain()?;
        statistics::add(&self.tree.counters.compaction_fabric_bytes, io.read_bytes + io.pipeline.written_bytes());
        statistics::add(&self.tree.counters.home_compactions, 1);
        Ok((result, io.created.into_values().collect()))
    }

    /// Lets an executor or the memory node run a job, if one exists.
    pub(crate) fn run_elsewhere(
        &self,
        remote: &Arc<Remote>,
        inputs: &InputSegments,
        job: &mut CompactionJob,
        tier: Tier,
    ) -> Option<Result<Made, NotThere>> {
        let part = remote.node_part()?;
        job.segments = placed_at(inputs, remote);
        let others = self.builders(remote, job);
        Some(match remote.memory_node().offloading() {
            Some(offloading) => self.compact_offloaded(offloading, remote, part, job, tier),
            None if others.is_empty() => self.compact_near_data(remote, part, job),
            None => self.compact_at_members(remote, others, inputs, job),
        })
    }

    /// Counts a job that ran elsewhere: as a flush, or as one of those that `compactions` counts.
    pub(crate) fn count_elsewhere(&self, job: &CompactionJob, compactions: &AtomicU64) {
        let is_flush = !job.stretches.is_empty();
        statistics::add(if is_flush { &self.tree.counters.offloaded_flushes } else { compactions }, 1);
    }

    fn count(&self, pick: &Pick, result: &CompactionResult) {
        let counters = &self.tree.counters;
        statistics::add(&counters.compaction_entries, result.counters.entries_in);
        statistics::add(&counters.compaction_bytes_read, result.counters.bytes_read);
        statistics::add(&counters.compaction_bytes_written, result.counters.bytes_written);
        let newcomers = pick.inputs.iter().filter(|(level, _)| *level != pick.output_level);
        let arrived = newcomers.map(|(_, table)| table.properties.record_bytes).sum();
        statistics::add(&counters.compaction_bytes_arrived, arrived);
        statistics::add(&counters.compaction_bytes_dropped, result.dead.iter().map(|dead| dead.dropped_bytes).sum());
    }

    /// Moves tables to another level as they are.
    fn moved(&self, pick: &Pick) -> Change {
        let mut change = Change::default();
        change.edit.added_tables =
            pick.inputs.iter().map(|(_, table)| (pick.output_level, table.as_ref().clone())).collect();
        change
    }

    fn job(
        &self,
        version: &LiveVersion,
        inputs: &InputSegments,
        pick: &Pick,
        is_bottommost: bool,
        clustering: Clustering,
    ) -> CompactionJob {
        let pinned = self.tree.pinned();
        CompactionJob {
            inputs: pick
                .inputs
                .iter()
                .map(|(level, table)| JobInput { level: *level, table: table.as_ref().clone() })
                .collect(),
            output_level: pick.output_level,
            is_bottommost,
            snapshots: pinned.numbers,
            tombstones: deletions_above(version, pick),
            clustering,
            size_classes: pick.size_classes(&self.tree.options),
            expire_before_ms: pinned.expire_before_ms,
            ..self.job_over(inputs)
        }
    }

    /// A job over these segments that has no input yet. As in a flush, no reader sees anything to drop.
    pub(crate) fn job_over(&self, inputs: &InputSegments) -> CompactionJob {
        CompactionJob {
            identity: self.job_identity(self.tree.next_table().0),
            merge_operator: self.tree.options.operator_name(),
            inputs: Vec::new(),
            stretches: Vec::new(),
            segments: inputs.iter().map(|(id, segment)| (*id, segment.info().clone())).collect(),
            output_level: 0,
            is_bottommost: false,
            snapshots: Vec::new(),
            tombstones: Vec::new(),
            limits: JobLimits { table_bytes: self.tree.options.target_table_bytes, ..JobLimits::default() },
            options: self.table_options(),
            clustering: Clustering::None,
            size_classes: SizeClasses::NONE,
            vacated: BTreeSet::new(),
            lower: None,
            upper: None,
            expire_before_ms: 0,
            output_segments: 0..0,
            replica: None,
        }
    }

    /// What a job made, as tables of a level.
    pub(crate) fn merged(
        &self,
        inputs: &InputSegments,
        level: u8,
        result: CompactionResult,
        segments: Vec<Arc<Segment>>,
    ) -> Result<Change> {
        let mut change = Change { segments, ..Change::default() };
        change.edit.added_segments =
            change.segments.iter().map(|segment| (segment.id(), segment.info().clone())).collect();
        for output in result.tables {
            let id = self.tree.next_table();
            let find = |id| {
                let new = change.segments.iter().find(|segment| segment.id() == id);
                new.or_else(|| inputs.get(&id)).cloned()
            };
            let cached = CachedTable::parse(&output.tail)?;
            change.tables.push(Arc::new(Table::new(id, cached, output.image, find)?));
            change.edit.added_tables.push((level, output.metadata(id)));
        }
        Ok(change)
    }
}

/// Whether the job may drop records because they have expired, or merge without them.
fn drops_expired(job: &CompactionJob) -> bool {
    (job.is_bottommost || !job.merge_operator.is_empty())
        && job.inputs.iter().any(|input| is_expired(input.table.properties.oldest_expiry_ms, job.expire_before_ms))
}

/// Range deletions of newer tables over the inputs: what they hide need not be written again.
fn deletions_above(version: &LiveVersion, pick: &Pick) -> Vec<RangeTombstone> {
    if !version.has_range_deletions() {
        return Vec::new();
    }
    let is_input = |id| pick.inputs.iter().any(|(_, table)| table.id == id);
    let is_over_inputs = |deletion: &&RangeTombstone| {
        let overlaps = |table: &TableMetadata| table.properties.overlaps(Some(&deletion.start), Some(&deletion.end));
        pick.inputs.iter().any(|(_, table)| overlaps(table))
    };
    let above = version.levels().iter().take(pick.output_level.into()).flatten().filter(|table| !is_input(table.id()));
    above.flat_map(|table| table.cached().range_deletions()).filter(is_over_inputs).cloned().collect()
}

/// The inputs with their places at a member.
pub(crate) fn placed_at(inputs: &InputSegments, remote: &Remote) -> BTreeMap<SegmentId, SegmentInfo> {
    let placed = |(id, segment): (&SegmentId, &Arc<Segment>)| {
        (*id, segment.at_member(remote.member()).unwrap_or(segment).info().clone())
    };
    inputs.iter().map(placed).collect()
}

/// The segments that a job reads, held so that they stay.
pub(crate) type InputSegments = HashMap<SegmentId, Arc<Segment>>;

fn input_segments(version: &LiveVersion, pick: &Pick) -> InputSegments {
    let named = pick.inputs.iter().flat_map(|(_, table)| table.segments());
    named.filter_map(|id| Some((id, Arc::clone(version.segment(id)?)))).collect()
}

/// A job's reads and writes: one-sided operations, and those of storage.
struct FabricIo<'s> {
    shard: &'s Shard,
    pipeline: Pipeline,
    inputs: &'s InputSegments,
    /// Where the job's outputs go.
    tier: Tier,
    /// Numbers that are left for outputs.
    numbers: Range<u64>,
    created: BTreeMap<SegmentId, Arc<Segment>>,
    /// Outputs on their way to storage.
    writing: BTreeMap<SegmentId, StoredWriter>,
    /// What the job's last error came from.
    failure: Option<Error>,
    read_bytes: u64,
}

impl<'s> FabricIo<'s> {
    fn new(shard: &'s Shard, inputs: &'s InputSegments, tier: Tier) -> Result<Self> {
        let (pipeline, numbers) = (Pipeline::new(shard.tree.remote.background()?), shard.tree.next_segments());
        let (created, writing) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { shard, pipeline, inputs, tier, numbers, created, writing, failure: None, read_bytes: 0 })
    }

    /// The job's error for `error`, which is kept.
    fn failed(&mut self, error: Error) -> forebay_table::Error {
        let job_error = forebay_table::Error::Io { kind: error.kind(), message: error.to_string() };
        self.failure = Some(error);
        job_error
    }

    fn begin(&mut self, id: SegmentId, kind: SegmentKind, length: u64) -> Result<AllocatedSegment> {
        let remote = &self.shard.tree.remote;
        if self.tier == Tier::Storage {
            let writer = remote.create_stored(id, kind, length)?;
            let placements = writer.placements();
            self.writing.insert(id, writer);
            return Ok(AllocatedSegment { id, placements });
        }
        let segment = remote.allocate(id, kind, length, Purpose::Collection)?;
        let placements = segment.info().placements.clone();
        self.created.insert(id, segment);
        Ok(AllocatedSegment { id, placements })
    }

    fn put(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) -> Result<()> {
        if let Some(created) = self.created.get(&segment) {
            return self.pipeline.write(created, offset, bytes);
        }
        let writer = self.writing.get_mut(&segment);
        let writer = writer.ok_or_else(|| Error::invalid("a job writes to a segment that it did not allocate"))?;
        writer.write(offset, bytes)?;
        if writer.is_whole()
            && let Some(writer) = self.writing.remove(&segment)
        {
            self.created.insert(segment, self.shard.tree.remote.finish_stored(writer)?);
        }
        Ok(())
    }

    fn read_batch(&mut self, reads: &[GatherRead], into: &mut [u8]) -> Result<()> {
        // Completions of writes in flight would mix with those of the reads.
        self.pipeline.drain()?;
        for batch in reads.chunks(GATHER_DEPTH) {
            let mut posted = Vec::with_capacity(batch.len());
            for read in batch {
                let id = read.address.segment;
                let segment = self.inputs.get(&id).ok_or_else(|| Error::corrupt(format!("{id} is no input")))?;
                posted.push(segment.spot(read.address.offset).post_read(self.pipeline.endpoint(), read.length)?);
                self.read_bytes += read.length as u64;
            }
            posted.iter_mut().skip(1).for_each(Posted::begin);
            for (read, posted) in batch.iter().zip(posted) {
                let endpoint = self.pipeline.endpoint();
                let slot = posted.wait(endpoint)?;
                let part =
                    read.destination.checked_add(read.length).and_then(|end| into.get_mut(read.destination..end));
                part.ok_or_else(|| Error::invalid("a read leaves the job's buffer"))?.copy_from_slice(&slot);
                endpoint.release(slot);
            }
        }
        Ok(())
    }
}

impl JobIo for FabricIo<'_> {
    fn read(&mut self, segment: SegmentId, offset: u64, into: &mut [u8]) -> forebay_table::Result<()> {
        let address = forebay_base::LogicalAddress { segment, offset };
        let length = into.len();
        self.read_batch(&[GatherRead { address, length, destination: 0 }], into).map_err(|error| self.failed(error))
    }

    fn gather(&mut self, reads: &[GatherRead], into: &mut [u8]) -> forebay_table::Result<()> {
        self.read_batch(reads, into).map_err(|error| self.failed(error))
    }

    fn longest_piece(&mut self, wanted: u64) -> u64 {
        if self.tier == Tier::Storage {
            return wanted;
        }
        self.shard.tree.remote.longest_piece(wanted)
    }

    fn allocate(&mut self, kind: SegmentKind, length: u64) -> forebay_table::Result<AllocatedSegment> {
        let number = self.numbers.next();
        let id = SegmentId(number.ok_or(forebay_table::Error::Invalid("no number is left for an output"))?);
        self.begin(id, kind, length).map_err(|error| self.failed(error))
    }

    fn write(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) -> forebay_table::Result<()> {
        self.put(segment, offset, bytes).map_err(|error| self.failed(error))
    }

    fn cancelled(&self) -> bool {
        self.shard.tree.check_open().is_err()
    }
}
