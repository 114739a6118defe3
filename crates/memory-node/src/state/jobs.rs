//! Jobs that wait or run, as far as the state is concerned: what they may touch, and until when.

use super::outputs::JobId;
use super::{Place, Refusal, State};
use forebay_proto::{Epoch, ExtentId, ExtentRange, SessionId, ShardKey};
use std::collections::{BTreeMap, BTreeSet};

/// A job to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// Who wants it.
    pub session: SessionId,
    /// Whose memory it works on.
    pub shard: ShardKey,
    /// The shard's epoch.
    pub epoch: Epoch,
    /// Tells attempts of the same work apart.
    pub attempt: u64,
    /// What kind of job.
    pub kind: u16,
    /// Its arguments.
    pub arguments: Vec<u8>,
    /// Longest result that its caller can take, bytes.
    pub most_result_bytes: usize,
}

/// A job that waits or runs.
#[derive(Debug)]
pub struct ActiveJob {
    /// Who wants it.
    pub session: SessionId,
    /// Whose memory it works on.
    pub shard: ShardKey,
    attempt: u64,
    /// Its session or its shard's epoch ended: it must stop, and its outputs are void.
    fenced: bool,
    /// Extents that it touches.
    pins: BTreeSet<ExtentId>,
}

/// All jobs that wait or run.
#[derive(Debug)]
pub struct Jobs {
    active: BTreeMap<JobId, ActiveJob>,
    next: u64,
}

impl Jobs {
    /// No jobs.
    pub fn new() -> Self {
        Self { active: BTreeMap::new(), next: 1 }
    }

    /// Tells the jobs that `chosen` names to stop.
    pub fn fence(&mut self, chosen: impl Fn(&ActiveJob) -> bool) {
        for job in self.active.values_mut().filter(|job| chosen(job)) {
            job.fenced = true;
        }
    }

    /// Whether a job works on the store.
    pub fn use_store(&self, store: forebay_proto::StoreId) -> bool {
        self.active.values().any(|job| job.shard.store == store)
    }
}

impl State {
    /// Starts a job; the owner and the epoch are checked already.
    pub(super) fn start_job(&mut self, mut start: Job) -> Result<Job, Refusal> {
        let same = |job: &ActiveJob| job.shard == start.shard && job.attempt == start.attempt && !job.fenced;
        if self.jobs.active.values().any(same) {
            return Err(Refusal::AttemptRuns(start.attempt));
        }
        start.id = JobId(self.jobs.next);
        self.jobs.next += 1;
        let job = ActiveJob {
            session: start.session,
            shard: start.shard,
            attempt: start.attempt,
            fenced: false,
            pins: BTreeSet::new(),
        };
        self.jobs.active.insert(start.id, job);
        Ok(start)
    }

    fn live_job(&self, id: JobId) -> Result<&ActiveJob, Refusal> {
        self.jobs.active.get(&id).filter(|job| !job.fenced).ok_or(Refusal::JobFenced)
    }

    /// Tells all jobs to stop, because the node does.
    pub fn stop_jobs(&mut self) {
        self.jobs.fence(|_| true);
    }

    /// Whether the job may go on.
    #[must_use]
    pub fn job_may_go_on(&self, id: JobId) -> bool {
        self.live_job(id).is_ok()
    }

    /// Allocates an output of the job, at most an extent long. Jobs may use the headroom.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn job_allocate(&mut self, id: JobId, length: u64) -> Result<ExtentRange, Refusal> {
        let (session, shard) = self.live_job(id).map(|job| (job.session, job.shard))?;
        let extent_bytes = self.outputs.extent_bytes();
        if length > extent_bytes {
            return Err(Refusal::TooLong { length, extent_bytes });
        }
        if let Some(range) = self.outputs.allocate(shard, session, id, length) {
            self.pin(id, range.extent);
            return Ok(range);
        }
        if let Some(quota) = self.settings.quota_extents
            && self.used_by_tenant_of(session) >= quota
        {
            return Err(Refusal::Quota(quota));
        }
        let counts = self.extents.counts();
        let Some(extent) = self.extents.first_kept().or_else(|| self.extents.first_free()) else {
            return Err(match counts.recycling {
                0 => Refusal::Full { free: counts.free, headroom: u64::from(self.settings.headroom_extents) },
                recycling => Refusal::Recycling(recycling),
            });
        };
        self.extents.set(extent, Place::Jobs(shard));
        if let Some(found) = self.extents.get_mut(extent) {
            found.touched = true;
        }
        self.outputs.add_extent(shard, extent);
        let range = self.outputs.allocate(shard, session, id, length);
        let range = range.ok_or(Refusal::TooLong { length, extent_bytes })?;
        self.pin(id, range.extent);
        Ok(range)
    }

    /// Bytes of the longest output that the job could allocate now, at most `wanted`; zero for a job that is to stop.
    #[must_use]
    pub fn job_longest_piece(&self, id: JobId, wanted: u64) -> u64 {
        let Ok(job) = self.live_job(id) else { return 0 };
        let own = self.outputs.longest_piece(job.shard);
        let is_within = self.settings.quota_extents.is_none_or(|quota| self.used_by_tenant_of(job.session) < quota);
        let has_another = self.extents.first_kept().or_else(|| self.extents.first_free()).is_some();
        if is_within && has_another { wanted.min(self.outputs.extent_bytes()) } else { wanted.min(own) }
    }

    /// Frees an output that the job allocated.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn job_free(&mut self, id: JobId, range: ExtentRange) -> Result<(), Refusal> {
        let shard = self.live_job(id)?.shard;
        if !self.outputs.contains(shard, range) || !self.outputs.is_written_by(range, id) {
            return Err(Refusal::Range(range));
        }
        self.free_range(shard, range);
        Ok(())
    }

    /// Checks that the job may read the range, and keeps its extent in place until the job ends.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn job_reads(&mut self, id: JobId, range: ExtentRange) -> Result<(), Refusal> {
        let (session, shard) = self.live_job(id).map(|job| (job.session, job.shard))?;
        let place = self.extents.place(range.extent);
        let allowed = place == Some(Place::Leased(session)) || place.and_then(Place::shard) == Some(shard);
        let end = range.offset.checked_add(range.length);
        if !allowed || end.is_none_or(|end| end > self.settings.extent_bytes) {
            return Err(Refusal::OutOfBounds(range));
        }
        self.pin(id, range.extent);
        Ok(())
    }

    /// A job ended. Its outputs wait for adoption if it ended well and was not fenced, else they
    /// are freed. Returns whether its result counts.
    pub fn job_ended(&mut self, id: JobId, well: bool) -> bool {
        let Some(job) = self.jobs.active.remove(&id) else { return false };
        let counts = well && !job.fenced;
        let outputs = self.outputs.of_job(id);
        self.outputs.settle(id);
        if !counts {
            for (shard, range) in outputs {
                self.free_range(shard, range);
            }
        }
        for extent in job.pins {
            if let Some(found) = self.extents.get_mut(extent) {
                found.pins -= 1;
            }
            self.advance(extent);
        }
        counts
    }

    fn pin(&mut self, id: JobId, extent: ExtentId) {
        if let Some(job) = self.jobs.active.get_mut(&id)
            && job.pins.insert(extent)
            && let Some(found) = self.extents.get_mut(extent)
        {
            found.pins += 1;
        }
    }
}
