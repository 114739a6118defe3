//! The node's figures: an administrator sees all of them, a tenant's databases only the tenant's part.

use super::tenants::{Figures, Tenant};
use super::{Answer, Refusal, Resource, State, TenantId};
use crate::tenants::TenantRights;
use forebay_proto::Text;
use forebay_proto::replies::{Statistics, TenantFigures};

/// Tenants per page: this many fit into a reply buffer of 64 KiB.
const TENANTS_IN_PAGE: usize = 64;

impl State {
    /// The figures of the whole node, as far as the state knows them.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let counts = self.extents.counts();
        let outputs = self.outputs.bytes();
        let (stores, shards) = self.directory.len();
        let extent_bytes = self.settings.extent_bytes;
        let sum = |figure: fn(&Figures) -> u64| self.tenants.iter().map(|(_, tenant)| figure(&tenant.figures)).sum();
        Statistics {
            extents: u64::from(self.extents.len()),
            extent_bytes,
            free_extents: counts.free,
            headroom_extents: u64::from(self.settings.headroom_extents),
            leased_extents: counts.leased,
            adopted_extents: counts.adopted,
            kept_extents: counts.kept,
            job_extents: counts.jobs,
            recycling_extents: counts.recycling,
            allocated_bytes: (counts.leased + counts.adopted) * extent_bytes + outputs.all,
            live_bytes: counts.adopted * extent_bytes + outputs.all - outputs.pending,
            job_bytes: outputs.all,
            sessions: self.sessions.len() as u64,
            stores: stores as u64,
            shards: shards as u64,
            owned_shards: self.directory.iter().filter(|(_, shard)| shard.owner.is_some()).count() as u64,
            reading_epoch: self.tenants.iter().map(|(_, tenant)| tenant.reading_epoch).max().unwrap_or(1),
            calls: sum(|figures| figures.calls),
            refused_calls: sum(|figures| figures.refused_calls),
            malformed_messages: sum(|figures| figures.malformed_messages),
            lapsed_sessions: sum(|figures| figures.lapsed_sessions),
            queued_jobs: sum(|figures| figures.queued_jobs),
            running_jobs: sum(|figures| figures.running_jobs),
            completed_jobs: sum(|figures| figures.completed_jobs),
            failed_jobs: sum(|figures| figures.failed_jobs),
            cpu_us: 0,
            uptime_ms: 0,
        }
    }

    /// Whether the tenant may see the figures of all.
    #[must_use]
    pub fn administers(&self, tenant: TenantId) -> bool {
        self.tenants.get(tenant).is_some_and(|tenant| tenant.rights.administer)
    }

    /// The figures that the tenant may see. A tenant that uses data gets its own figures, even if it administers the node,
    /// because its databases plan with what they could have. A tenant that only administers the node gets all.
    pub(super) fn statistics_for(&self, tenant: TenantId) -> Answer {
        let rights = self.tenants.get(tenant).map_or_else(TenantRights::default, |tenant| tenant.rights);
        let figures = if rights.data { self.figures_for(tenant) } else { self.visible_figures(tenant) };
        Answer::Statistics { figures: Box::new(figures), node_time: rights.administer }
    }

    /// The figures of the whole node for an administrator; for others, their own.
    pub(super) fn visible_figures(&self, tenant: TenantId) -> Statistics {
        if self.administers(tenant) { self.statistics() } else { self.figures_for(tenant) }
    }

    /// The tenant's figures: those of the node as if nobody else used it. Memory that the tenant could have counts as
    /// free. Each job of a database asks for them, so they cost no more if others have many shards: shards without
    /// outputs are not looked at.
    pub(super) fn figures_for(&self, tenant: TenantId) -> Statistics {
        let Some(of) = self.tenants.get(tenant) else { return self.statistics() };
        let (all, counts) = (self.extents.counts(), self.extents.of_tenant(tenant));
        let extent_bytes = self.settings.extent_bytes;
        let is_own = |store| self.directory.get(store).is_some_and(|store| store.tenant == tenant);
        let outputs = self.outputs.bytes_of(|shard| is_own(shard.store));
        // What the tenant may still have of its own and of the reserve, as if that were everything. The reserve's part
        // counts as headroom, and within that, what the node has kept for jobs.
        let lent = self.left_of_reserve(tenant);
        let left = self.left_of_memory(tenant) + lent;
        let kept = all.kept.min(lent);
        let figures = &of.figures;
        Statistics {
            extents: u64::from(self.extents.len()).min(of.limits.of(Resource::Extents)),
            extent_bytes,
            free_extents: all.free.min(left - kept),
            headroom_extents: u64::from(self.settings.headroom_extents).min(self.share_of_reserve(tenant)),
            kept_extents: kept,
            leased_extents: counts.leased,
            adopted_extents: counts.adopted,
            job_extents: counts.jobs,
            recycling_extents: counts.recycling,
            allocated_bytes: (counts.leased + counts.adopted) * extent_bytes + outputs.all,
            live_bytes: counts.adopted * extent_bytes + outputs.all - outputs.pending,
            job_bytes: outputs.all,
            sessions: of.used.of(Resource::Sessions),
            stores: of.used.of(Resource::Stores),
            shards: of.used.of(Resource::Shards),
            owned_shards: self.directory.shards_of_tenant(tenant).filter(|(_, shard)| shard.owner.is_some()).count()
                as u64,
            reading_epoch: of.reading_epoch,
            calls: figures.calls,
            refused_calls: figures.refused_calls,
            malformed_messages: figures.malformed_messages,
            lapsed_sessions: figures.lapsed_sessions,
            queued_jobs: figures.queued_jobs,
            running_jobs: figures.running_jobs,
            completed_jobs: figures.completed_jobs,
            failed_jobs: figures.failed_jobs,
            cpu_us: figures.busy_nanos / 1000,
            uptime_ms: 0,
        }
    }

    /// The figures of all tenants, in the order in which they came.
    #[must_use]
    pub fn all_tenants(&self) -> Vec<TenantFigures> {
        self.tenants.iter().map(|(id, tenant)| self.figures_of(id, tenant)).collect()
    }

    fn figures_of(&self, id: TenantId, tenant: &Tenant) -> TenantFigures {
        let Tenant { figures, used, limits, .. } = tenant;
        let endpoints = tenant.endpoints.count();
        TenantFigures {
            name: tenant.name.clone(),
            weight: tenant.weight,
            extents: self.extents.of_tenant(id).given_out(),
            most_extents: limits.of(Resource::Extents),
            reserve_extents: used.of(Resource::Reserve),
            links: used.of(Resource::Links),
            endpoints: endpoints.used,
            most_endpoints: endpoints.most,
            sessions: used.of(Resource::Sessions),
            stores: used.of(Resource::Stores),
            shards: used.of(Resource::Shards),
            keys: used.of(Resource::Keys),
            ranges: used.of(Resource::Ranges),
            jobs: used.of(Resource::Jobs),
            waiting_calls: used.of(Resource::Calls),
            calls: figures.calls,
            refused_calls: figures.refused_calls,
            limited_calls: figures.limited + endpoints.refused,
            denied_calls: figures.denied,
            malformed_messages: figures.malformed_messages,
            lapsed_sessions: figures.lapsed_sessions,
            closed_links: figures.closed_links,
            completed_jobs: figures.completed_jobs,
            failed_jobs: figures.failed_jobs,
            moved_bytes: figures.moved_bytes,
            busy_us: figures.busy_nanos / 1000,
        }
    }

    pub(super) fn list_tenants(&self, tenant: TenantId, after: &Text) -> Result<Answer, Refusal> {
        if !self.administers(tenant) {
            let name = self.tenants.get(tenant).map(|tenant| tenant.name.clone()).unwrap_or_default();
            return Err(Refusal::NotAdministrator(name));
        }
        let mut tenants: Vec<_> = self.tenants.iter().filter(|(_, tenant)| tenant.name > *after).collect();
        tenants.sort_unstable_by(|(_, one), (_, other)| one.name.cmp(&other.name));
        let more = tenants.len() > TENANTS_IN_PAGE;
        tenants.truncate(TENANTS_IN_PAGE);
        let tenants = tenants.into_iter().map(|(id, tenant)| self.figures_of(id, tenant)).collect();
        Ok(Answer::Tenants { tenants, more })
    }
}
