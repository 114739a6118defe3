//! Compaction by the executor that the scheduler finds: the compute node picks, commands and installs, the executor
//! does the work (see [`errand`](crate::work::errand)).

use crate::plan::tiers::Tier;
use crate::remote::node_part::NodePart;
use crate::remote::objects::{is_stored, need_of, object_of};
use crate::remote::offloading::Offloading;
use crate::remote::pipeline::read_range;
use crate::remote::segment::Remote;
use crate::terms::statistics;
use crate::terms::{Error, Result};
use crate::work::errand::Errand;
use crate::work::near_data::{Made, NotThere, outputs, patience};
use crate::work::shard::Shard;
use forebay_base::{ErrorKind, SegmentId, checksum};
use forebay_memory_client::{ExtentId, ExtentRange, ShardHandle};
use forebay_offload::{Attempt, Outcome, Span, StorageNeed, StoredPlace};
use forebay_proto::job_kind;
use forebay_table::SegmentKind;
use forebay_table::job::{CompactionJob, CompactionResult, JobInput};
use std::sync::Arc;
use std::time::Duration;

impl Shard {
    /// Lets an executor run a compaction.
    pub(crate) fn compact_offloaded(
        &self,
        offloading: &Offloading,
        remote: &Arc<Remote>,
        part: &NodePart,
        job: &mut CompactionJob,
        tier: Tier,
    ) -> Result<Made, NotThere> {
        let shard = part.shard();
        self.tree.check_open()?;
        job.output_segments = self.tree.next_segments();
        Self::address(&shard, job);
        let patience = patience(job.segments.values());
        let stored = self.stored_place(job, tier, patience);
        let mut arguments = Vec::new();
        stored.iter().for_each(|stored| stored.encode(&mut arguments));
        job.encode(&mut arguments).map_err(Error::from)?;
        let lies_in_storage = |input: &&JobInput| job.segments.get(&input.table.image.segment).is_some_and(is_stored);
        let bytes = |stored| {
            let inputs = job.inputs.iter().filter(|input| lies_in_storage(input) == stored);
            inputs.map(|input| input.table.properties.record_bytes).sum()
        };
        let errand = Errand {
            kind: job_kind::COMPACTION,
            job: job.identity.job,
            arguments,
            storage: stored.as_ref().map_or(StorageNeed::None, need_of),
            memory_bytes: bytes(false) + job.stretches.iter().map(|stretch| stretch.length).sum::<u64>(),
            storage_bytes: bytes(true),
            patience,
            // Writers wait for flushes.
            must_not_wait: !job.stretches.is_empty(),
        };
        let take = |outcome: &Outcome| self.take_over(remote, part, &shard, job, outcome);
        let made = self.offload(offloading, (remote, &shard), &errand, take);
        // An attempt may have left objects, and may still put some.
        let is_left = matches!(&made, Err(NotThere::Refused(error)) if error.kind() == ErrorKind::Unavailable);
        if let (true, Some(objects)) = (is_left && stored.is_some(), self.tree.remote.objects())
            && let Err(error) = objects.sweep_job(&job.output_segments)
        {
            tracing::debug!(%error, "objects of an attempt are deleted later, or left to the next owner");
        }
        if let (Ok(Some((result, _))), Tier::Storage, Some(objects)) = (&made, tier, self.tree.remote.objects()) {
            // Earlier attempts have numbers of their own.
            objects.expect_late(&job.output_segments, result.segments.iter().map(|(id, _)| *id));
        }
        match made? {
            Some(made) => {
                self.count_elsewhere(job, &self.tree.counters.offloaded_compactions);
                Ok(made)
            }
            None => self.compact_near_data(remote, part, job),
        }
    }

    /// Where the job's objects are, if it has any, and what an attempt may do with them within `patience`.
    fn stored_place(&self, job: &CompactionJob, tier: Tier, patience: Duration) -> Option<StoredPlace> {
        let has_outputs = tier == Tier::Storage;
        let inputs = job.segments.values().filter(|info| is_stored(info));
        let reads: Vec<_> = inputs.filter_map(|info| object_of(&info.placements)).collect();
        let objects = self.tree.remote.objects().filter(|_| has_outputs || !reads.is_empty())?;
        let most_outputs = if has_outputs { job.most_outputs() } else { 0 };
        let writes = Attempt::all_numbers(&job.output_segments, most_outputs).map(SegmentId);
        Some(objects.place(has_outputs, &reads, writes, patience))
    }

    /// Adopts what an attempt made, and reads what it says of it.
    fn take_over(
        &self,
        remote: &Arc<Remote>,
        part: &NodePart,
        shard: &ShardHandle,
        job: &CompactionJob,
        outcome: &Outcome,
    ) -> Result<Made> {
        let Span { extent, offset, length, checksum: expected } = outcome.result;
        let range = ExtentRange { extent: ExtentId(extent), offset, length };
        let info = remote.info_of(SegmentKind::Run, length, range);
        let outside = || Error::corrupt(format!("an executor's result lies at {range}"));
        let whole = remote.place_of(&info).ok_or_else(outside)?;
        part.adopt_attempt(shard, &[whole])?;
        let mut held = remote.hold_outputs(part, &[(self.tree.next_segment(), info)], &[whole])?;
        let result = held.pop().ok_or_else(outside)?;
        let bytes = read_range(&mut *remote.background()?, result.at(0)?, length)?;
        statistics::add(&self.tree.counters.compaction_fabric_bytes, length);
        if checksum(&bytes) != expected {
            return Err(Error::corrupt("an executor's result is not what it wrote"));
        }
        let result = CompactionResult::decode(&bytes)?;
        let ranges = outputs(remote, job, &result)?;
        part.adopt_attempt(shard, &ranges)?;
        let (stored, in_memory): (Vec<_>, Vec<_>) =
            result.segments.iter().cloned().partition(|(_, info)| is_stored(info));
        let mut segments = remote.hold_outputs(part, &in_memory, &ranges)?;
        for (id, info) in &stored {
            segments.push(remote.take_stored(*id, info)?);
        }
        Ok((result, segments))
    }
}
