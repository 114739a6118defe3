//! The state's part of jobs that wait or run: what they may touch, and until when.

use super::active::{ActiveJob, Job};
use super::outputs::JobId;
use super::resources::{Resource, TenantId};
use super::{Place, Refusal, State};
use forebay_proto::{ExtentId, ExtentRange};
use std::collections::BTreeSet;

impl State {
    /// Starts a job. The owner and the epoch were checked already.
    pub(super) fn start_job(&mut self, mut start: Job) -> Result<Job, Refusal> {
        let same = |job: &ActiveJob| job.shard == start.shard && job.attempt == Some(start.attempt) && !job.fenced;
        if self.jobs.active.values().any(same) {
            return Err(Refusal::AttemptRuns(start.attempt));
        }
        self.tenants.check(start.tenant, Resource::Jobs, 1)?;
        self.tenants.take(start.tenant, Resource::Jobs, 1);
        let job = ActiveJob {
            session: start.session,
            tenant: start.tenant,
            shard: start.shard,
            attempt: Some(start.attempt),
            fenced: false,
            keeps_to_pieces: self.leaves_all(start.tenant, start.session),
            pins: BTreeSet::new(),
        };
        start.id = self.jobs.activate(job);
        Ok(start)
    }

    fn live_job(&self, id: JobId) -> Result<&ActiveJob, Refusal> {
        self.jobs.active.get(&id).filter(|job| !job.fenced).ok_or(Refusal::JobFenced)
    }

    /// Tells all jobs to stop, because the node stops.
    pub fn stop_jobs(&mut self) {
        self.jobs.fence(|_| true);
        self.end_tickets(|_, _| true);
    }

    /// Whether the job may continue.
    #[must_use]
    pub fn job_may_go_on(&self, id: JobId) -> bool {
        self.live_job(id).is_ok()
    }

    /// Allocates an output of the job, at most one extent long. Jobs may use the headroom.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn job_allocate(&mut self, id: JobId, length: u64) -> Result<ExtentRange, Refusal> {
        let (session, tenant, shard) = self.live_job(id).map(|job| (job.session, job.tenant, job.shard))?;
        let extent_bytes = self.outputs.extent_bytes();
        if length > extent_bytes {
            return Err(Refusal::TooLong { length, extent_bytes });
        }
        self.tenants.check(tenant, Resource::Ranges, 1)?;
        let range = match self.outputs.allocate(shard, session, id, length) {
            Some(range) => range,
            None => {
                let extent = self.extent_for_jobs(tenant)?;
                self.give_out(extent, Place::Jobs(shard), tenant);
                if let Some(found) = self.extents.get_mut(extent) {
                    found.touched = true;
                }
                self.outputs.add_extent(shard, extent);
                let range = self.outputs.allocate(shard, session, id, length);
                range.ok_or(Refusal::TooLong { length, extent_bytes })?
            }
        };
        self.tenants.take(tenant, Resource::Ranges, 1);
        self.pin(id, range.extent);
        Ok(range)
    }

    /// An extent that the tenant's jobs may have: from the reserve while the tenant may owe more, then any.
    fn extent_for_jobs(&self, tenant: TenantId) -> Result<ExtentId, Refusal> {
        let may_owe = self.left_of_reserve(tenant) > 0;
        let is_beyond = self.extents.counts().free > self.headroom();
        let may_have = is_beyond && self.left_of_memory(tenant) > 0;
        let free = || self.extents.first_free().filter(|_| may_owe || may_have);
        let found = self.extents.first_kept().filter(|_| may_owe).or_else(free);
        found.ok_or_else(|| self.no_memory(tenant, 1, true))
    }

    /// Bytes of the longest output that the job should allocate now, at most `wanted`; zero for a job that must stop.
    #[must_use]
    pub fn job_longest_piece(&self, id: JobId, wanted: u64) -> u64 {
        let Ok(job) = self.live_job(id) else { return 0 };
        let own = self.outputs.longest_piece(job.shard);
        let has_another = !job.keeps_to_pieces && self.extent_for_jobs(job.tenant).is_ok();
        if has_another { wanted.min(self.outputs.extent_bytes()) } else { wanted.min(own) }
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
        // A job for readers may work on all shards of its session.
        let owns = |shard| self.directory.shard(shard).is_some_and(|shard| shard.owner == Some(session));
        let of_shard = |found| found == shard || owns(found);
        let allowed = place == Some(Place::Leased(session)) || place.and_then(Place::shard).is_some_and(of_shard);
        let end = range.offset.checked_add(range.length);
        if !allowed || end.is_none_or(|end| end > self.settings.extent_bytes) {
            return Err(Refusal::OutOfBounds(range));
        }
        self.pin(id, range.extent);
        Ok(())
    }

    /// Ends a job. If it succeeded and was not fenced, its outputs wait for adoption; otherwise they are freed. Returns
    /// whether its result counts.
    pub fn job_ended(&mut self, id: JobId, well: bool) -> bool {
        let Some(job) = self.jobs.active.remove(&id) else { return false };
        self.tenants.give(job.tenant, Resource::Jobs, 1);
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
