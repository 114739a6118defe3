//! Compaction by whoever the scheduler finds (O3-LSM 4.3): the compute node picks, commands and installs, an executor
//! does it.
//!
//! ```text
//!  compute node               memory node             scheduler            executor
//!   arguments ── one-sided ──► leased memory
//!   open ticket ─────────────►
//!   PREPARE ────────────────────────────────────────────► ASSIGN ───────────►
//!                                            keys ◄────── join, read, allocate
//!                              outputs and result ◄────── one-sided
//!   ◄──────────────────────────────────────── COMMIT ◄────────────── COMMIT
//!   adopt outputs, map them, read the result
//!   close ticket, ACK, install
//! ```
//!
//! Whatever goes wrong, the ticket is closed first, so that no executor can do any harm; then the job runs at the memory
//! node, if that is what the scheduler found, or here.

use crate::plan::tiers::Tier;
use crate::remote::node_part::NodePart;
use crate::remote::objects::is_stored;
use crate::remote::offloading::Offloading;
use crate::remote::pipeline::{Pipeline, read_range};
use crate::remote::segment::{Remote, Segment};
use crate::terms::statistics;
use crate::terms::{Error, Result};
use crate::work::near_data::{NotThere, outputs, patience};
use crate::work::shard::Shard;
use forebay_base::{ErrorKind, checksum};
use forebay_env::Random;
use forebay_memory_client::{ExtentId, ExtentRange, Purpose, ShardHandle};
use forebay_offload::{JobName, Order, Outcome, Package, Reason, Span, StoredPlace, Ticket};
use forebay_proto::job_kind;
use forebay_table::SegmentKind;
use forebay_table::job::{CompactionJob, CompactionResult, JobInput};
use std::sync::Arc;

/// What a job made, with its segments held.
type Made = (CompactionResult, Vec<Arc<Segment>>);

impl Shard {
    /// Has an executor run a compaction.
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
        self.address(&shard, job);
        let stored = self.stored_place(job, tier);
        let arguments = self.write_arguments(remote, job, stored.as_ref())?;
        let secret =
            Random::secret().map_err(|error| Error::new(ErrorKind::Io, format!("drawing a secret: {error}")))?;
        let opened = shard.open_ticket(secret).map_err(Error::from);
        let number = opened.map_err(|error| self.refused(remote, &shard, error))?;
        let name = JobName {
            database: offloading.database(),
            shard: shard.key().shard.0,
            epoch: shard.epoch().0,
            job: job.identity.job,
        };
        let package = package(remote, job, &arguments, stored.is_some(), number, secret);
        let prepared = package.and_then(|package| offloading.prepare(name, package, patience(job)));
        let made = match prepared {
            Ok(()) => self.await_offloaded(offloading, (remote, part), &shard, job, name, number),
            Err(error) => {
                close_ticket(remote, &shard, number);
                Err(NotThere::Refused(error))
            }
        };
        // An attempt may have left objects. What cannot be swept now is left to the next owner.
        let is_left = matches!(&made, Err(NotThere::Refused(error)) if error.kind() == ErrorKind::Unavailable);
        if let (true, Some(objects)) = (is_left && stored.is_some(), self.tree.remote.objects())
            && let Err(error) = objects.sweep_job(&job.output_segments)
        {
            tracing::debug!(%error, "objects of an attempt are left to the next owner");
        }
        made
    }

    /// Does what is to be done about the job until it is decided.
    fn await_offloaded(
        &self,
        offloading: &Offloading,
        (remote, part): (&Arc<Remote>, &NodePart),
        shard: &ShardHandle,
        job: &mut CompactionJob,
        name: JobName,
        number: u64,
    ) -> Result<Made, NotThere> {
        let mut made = None;
        loop {
            match offloading.next(name) {
                Order::Install { outcome, .. } => match self.take_over(remote, part, shard, job, &outcome) {
                    Ok(taken) => {
                        made = Some(taken);
                        statistics::add(&self.tree.counters.offloaded_compactions, 1);
                        offloading.installed(name);
                    }
                    Err(error) => {
                        tracing::debug!(%error, "what an executor made is refused");
                        offloading.refused(name);
                    }
                },
                Order::EndKeys(_) => close_ticket(remote, shard, number),
                Order::FreeInputs(_) => {
                    return made
                        .ok_or_else(|| NotThere::Failed(Error::corrupt("a job was decided before it was done")));
                }
                Order::RunElsewhere(_, Reason::Near) => return self.compact_near_data(remote, part, job),
                Order::RunElsewhere(_, reason) => {
                    let kind = match reason {
                        Reason::Home | Reason::Near | Reason::Busy => ErrorKind::Busy,
                        Reason::Failed | Reason::Lost | Reason::Ended => ErrorKind::Unavailable,
                    };
                    let cause = format!("no executor did it: {reason:?}");
                    return Err(NotThere::Refused(Error::new(kind, cause)));
                }
                // The letters have gone already.
                Order::Send(_) => {}
            }
        }
    }

    /// Where the job's objects lie, if it has any.
    fn stored_place(&self, job: &CompactionJob, tier: Tier) -> Option<StoredPlace> {
        let has_outputs = tier == Tier::Storage;
        let needs_storage = has_outputs || job.segments.values().any(is_stored);
        self.tree.remote.objects().filter(|_| needs_storage).map(|objects| objects.place(has_outputs))
    }

    /// Writes the arguments to memory of this session, where executors read them.
    fn write_arguments(
        &self,
        remote: &Arc<Remote>,
        job: &CompactionJob,
        stored: Option<&StoredPlace>,
    ) -> Result<(Arc<Segment>, u32), NotThere> {
        let mut bytes = Vec::new();
        stored.iter().for_each(|stored| stored.encode(&mut bytes));
        job.encode(&mut bytes).map_err(Error::from)?;
        let length = bytes.len() as u64;
        let segment = remote.allocate(self.tree.next_segment(), SegmentKind::Run, length, Purpose::Collection);
        let segment = segment.map_err(|error| match error.kind() {
            ErrorKind::Full | ErrorKind::Busy | ErrorKind::Invalid => NotThere::Refused(error),
            _ => NotThere::Failed(error),
        })?;
        let mut pipeline = Pipeline::new(remote.background()?);
        pipeline.write(&segment, 0, &bytes)?;
        pipeline.drain()?;
        statistics::add(&self.tree.counters.compaction_fabric_bytes, length);
        Ok((segment, checksum(&bytes)))
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

/// What an executor must know of the job.
fn package(
    remote: &Remote,
    job: &CompactionJob,
    (segment, checksum): &(Arc<Segment>, u32),
    needs_storage: bool,
    number: u64,
    secret: u128,
) -> Result<Package> {
    let here = remote.memory_node().client().node();
    let length = segment.info().length;
    let place = remote.place_of(segment.info());
    let place = place.ok_or_else(|| Error::corrupt("the arguments of a job are nowhere"))?;
    let lies_in_storage = |input: &&JobInput| job.segments.get(&input.table.image.segment).is_some_and(is_stored);
    let bytes = |stored| {
        let inputs = job.inputs.iter().filter(|input| lies_in_storage(input) == stored);
        inputs.map(|input| input.table.properties.record_bytes).sum()
    };
    Ok(Package {
        kind: job_kind::COMPACTION,
        needs_storage,
        ticket: Ticket { node: here.node, incarnation: here.incarnation, job: number, secret },
        arguments: Span { extent: place.extent.0, offset: place.offset, length, checksum: *checksum },
        memory_bytes: bytes(false),
        storage_bytes: bytes(true),
    })
}

/// Ends the ticket. If the node is not reached, it ends with the session or the epoch, and nobody adopts what was
/// made for it.
fn close_ticket(remote: &Remote, shard: &ShardHandle, number: u64) {
    if let Err(error) = shard.close_ticket(number) {
        tracing::debug!(%error, "a ticket could not be closed: the epoch ends");
        if let Err(error) = remote.end_epoch() {
            tracing::debug!(%error, "the epoch could not be ended");
        }
    }
}
