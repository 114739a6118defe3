//! Jobs that wait or run.

use super::outputs::JobId;
use super::resources::TenantId;
use forebay_proto::{Epoch, ExtentId, SessionId, ShardKey, StoreId};
use std::collections::{BTreeMap, BTreeSet};

/// A job to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// The session that wants it.
    pub session: SessionId,
    /// The session's tenant.
    pub tenant: TenantId,
    /// The shard whose memory it works on.
    pub shard: ShardKey,
    /// The shard's epoch.
    pub epoch: Epoch,
    /// Distinguishes attempts of the same work.
    pub attempt: u64,
    /// The kind of job.
    pub kind: u16,
    /// Its arguments.
    pub arguments: Vec<u8>,
    /// Length in bytes of the longest result that its caller can take.
    pub most_result_bytes: usize,
}

/// A job that waits or runs.
#[derive(Debug)]
pub struct ActiveJob {
    /// The session that wants it.
    pub session: SessionId,
    /// The session's tenant.
    pub tenant: TenantId,
    /// The shard whose memory it works on.
    pub shard: ShardKey,
    /// The number of the attempt, as its owner gave it; `None` for one that other sessions run.
    pub attempt: Option<u64>,
    /// Whether its session or its shard's epoch ended: then it must stop, and its outputs are void.
    pub fenced: bool,
    /// Whether its database, when the job was submitted, had to leave all free memory to others: then the job uses
    /// only free pieces that the shard has.
    pub keeps_to_pieces: bool,
    /// Extents that it touches.
    pub pins: BTreeSet<ExtentId>,
}

/// All jobs that wait or run.
#[derive(Debug)]
pub struct Jobs {
    pub active: BTreeMap<JobId, ActiveJob>,
    pub next: u64,
}

impl ActiveJob {
    /// An attempt at a job of `session` that other sessions run.
    pub fn of_ticket(session: SessionId, tenant: TenantId, shard: ShardKey) -> Self {
        let (attempt, keeps_to_pieces, pins) = (None, false, BTreeSet::new());
        Self { session, tenant, shard, attempt, fenced: false, keeps_to_pieces, pins }
    }
}

impl Jobs {
    /// No jobs.
    pub fn new() -> Self {
        Self { active: BTreeMap::new(), next: 1 }
    }

    /// Begins a job.
    pub fn activate(&mut self, job: ActiveJob) -> JobId {
        let id = JobId(self.next);
        self.next += 1;
        self.active.insert(id, job);
        id
    }

    /// Tells a job to stop.
    pub fn fence_one(&mut self, id: JobId) {
        if let Some(job) = self.active.get_mut(&id) {
            job.fenced = true;
        }
    }

    /// Tells the jobs that `chosen` selects to stop.
    pub fn fence(&mut self, chosen: impl Fn(&ActiveJob) -> bool) {
        for job in self.active.values_mut().filter(|job| chosen(job)) {
            job.fenced = true;
        }
    }

    /// How many the tenant has.
    #[cfg(test)]
    pub fn of_tenant(&self, tenant: TenantId) -> usize {
        self.active.values().filter(|job| job.tenant == tenant).count()
    }

    /// Whether a job works on the store.
    pub fn use_store(&self, store: StoreId) -> bool {
        self.active.values().any(|job| job.shard.store == store)
    }
}
