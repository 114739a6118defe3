//! The state's part of scheduling.
//!
//! A session is a party. It takes its letters at its next [`Exchange`]; nothing is sent unasked. Tenants do not see
//! each other, so each has a scheduler of its own.

use super::desks::Desks;
use super::resources::{Resource, TenantId};
use super::tenants::{Figures, Tenant};
use super::{Answer, Refusal, State};
use forebay_env::Nanos;
use forebay_fabric::NodeIdentity;
use forebay_offload::{Letter, Load, Term};
use forebay_proto::calls::Exchange;
use forebay_proto::replies::{Exchanged, NodeLoad};
use forebay_proto::{Message, Rest};

/// Jobs that may wait for each thread of the node before its threads count as full.
const WAITING_PER_THREAD: u32 = 2;

impl State {
    /// Gives letters to the scheduler, and takes those for the session.
    pub(super) fn exchange(&mut self, now: Nanos, tenant: TenantId, call: &Exchange) -> Result<Answer, Refusal> {
        let term = self.desks.term().ok_or(Refusal::NoScheduler)?;
        let letters = Letter::decode_all(&call.letters.0).map_err(Refusal::Letters)?;
        let own = self.load();
        self.desks.know((self.settings.node, self.settings.incarnation), (own.threads > 0).then_some(own));
        self.desks.receive(now, tenant, call.session, &letters);
        let letters = self.desks.take(tenant, call.session);
        Ok(Answer::Reply(Exchanged { term: term.0, letters: Rest(letters) }.encode()))
    }

    /// Makes the node schedule in this term from now on, or not at all. It forgets what it knew of another term:
    /// sessions say again what they want.
    pub fn schedule(&mut self, term: Option<Term>) {
        if term != self.desks.term() {
            self.desks = Desks::new(term, self.settings.placement);
        }
    }

    /// Notes how busy the threads of another node are, or that this is unknown.
    pub fn know(&mut self, node: NodeIdentity, load: Option<Load>) {
        self.desks.know((node.node, node.incarnation), load);
    }

    /// How busy the node's own threads are, as the tenant may see it.
    pub(super) fn load_for(&self, tenant: TenantId) -> NodeLoad {
        let all = self.load();
        let own = self.tenants.get(tenant).filter(|_| !self.administers(tenant)).map(|tenant| &tenant.figures);
        let count = |jobs: u64| u32::try_from(jobs).unwrap_or(u32::MAX);
        NodeLoad {
            running_jobs: own.map_or(all.active_threads, |own| count(own.running_jobs)),
            job_threads: all.threads,
            queued_jobs: own.map_or(all.pending, |own| count(own.queued_jobs)),
            most_queued_jobs: all.queue_limit,
        }
    }

    /// Number of calls and jobs that wait for their turn.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        let of = |tenant: &Tenant| tenant.used.of(Resource::Calls).saturating_add(tenant.figures.queued_jobs);
        let sum: u64 = self.tenants.iter().map(|(_, tenant)| of(tenant)).sum();
        u32::try_from(sum).unwrap_or(u32::MAX)
    }

    /// How busy the node's own threads are.
    fn load(&self) -> Load {
        let sum = |figure: fn(&Figures) -> u64| {
            let sum: u64 = self.tenants.iter().map(|(_, tenant)| figure(&tenant.figures)).sum();
            u32::try_from(sum).unwrap_or(u32::MAX)
        };
        Load {
            active_threads: sum(|figures| figures.running_jobs),
            threads: self.settings.job_threads,
            pending: sum(|figures| figures.queued_jobs),
            queue_limit: self.settings.job_threads.saturating_mul(WAITING_PER_THREAD),
            ..Load::default()
        }
    }
}
