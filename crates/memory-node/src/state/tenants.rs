//! Tenants: who uses the node, what they have of it, and what they may have.
//!
//! Everything that a peer can make the node remember is counted here for the tenant of its link. It is counted before
//! it is created, and given back when it is gone. A tenant's extents are counted in `extents`.
//!
//! # The reserve
//! The headroom and the extents kept for jobs are the *reserve*. A tenant that takes an extent from it owes one, and
//! repays with its next extent that becomes free. A tenant owes at most its share and its limit of memory. For garbage
//! collection it owes no more than it has otherwise, because that is what it may collect. What it owes comes on top of
//! its limit: otherwise a tenant at its limit could not collect. All together owe at most the reserve, so a tenant
//! within its limit gets its own memory whatever others owe.

use super::endpoints::Endpoints;
use super::refusal::Refusal;
use super::resources::{Amounts, Resource, TenantId};
use super::retired::Retired;
use crate::tenants::{Identity, Limits, MAX_TENANTS, TenantRights, TenantsOptions};
use forebay_env::HashMap;
use forebay_proto::Text;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most bytes of arguments and results that are kept for a tenant at a time: two of the longest arguments.
const MAX_KEPT_BYTES: u64 = 2 * forebay_fabric::rpc::MAX_ARGUMENT_BYTES as u64;

/// Default for a tenant's endpoints: with its links, three quarters of the connections of a node over TCP.
const MOST_ENDPOINTS: u64 = 512;

/// Counts of a tenant's life, for the node's operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Calls answered, refusals included.
    pub calls: u64,
    /// Calls refused.
    pub refused_calls: u64,
    /// Messages that could not be understood.
    pub malformed_messages: u64,
    /// Refusals because a limit was reached.
    pub limited: u64,
    /// Refusals because a session named another tenant than its own.
    pub denied: u64,
    /// Sessions that lapsed.
    pub lapsed_sessions: u64,
    /// Links that the node closed.
    pub closed_links: u64,
    /// Jobs that ended well.
    pub completed_jobs: u64,
    /// Jobs that failed or were fenced.
    pub failed_jobs: u64,
    /// Jobs that wait for a thread.
    pub queued_jobs: u64,
    /// Jobs that run.
    pub running_jobs: u64,
    /// Bytes of arguments and results.
    pub moved_bytes: u64,
    /// Time that calls and jobs took, nanoseconds.
    pub busy_nanos: u64,
}

/// A tenant.
#[derive(Debug)]
pub struct Tenant {
    /// Its name.
    pub name: Text,
    /// The weight of its share of the node's time.
    pub weight: u32,
    /// What it may do.
    pub rights: TenantRights,
    /// Whether it was configured, and not made for an identity that came.
    known: bool,
    /// What it may have.
    pub limits: Amounts,
    /// What it has, except extents and endpoints.
    pub used: Amounts,
    /// Its endpoints.
    pub endpoints: Arc<Endpoints>,
    /// What was counted.
    pub figures: Figures,
    /// Its reading epoch, which advances as its sessions free memory.
    pub reading_epoch: u64,
    /// Outputs that were freed and may still be read.
    pub retired: Retired,
}

impl Tenant {
    /// Whether it is the tenant of those who need not prove who they are.
    fn is_trusted(&self) -> bool {
        self.name.as_str() == Identity::anonymous().as_str()
    }

    /// Sets its limits.
    fn limit(&mut self, limits: Amounts) {
        self.endpoints.bound(limits.of(Resource::Endpoints));
        self.limits = limits;
    }
}

/// All tenants.
#[derive(Debug)]
pub struct Tenants {
    all: BTreeMap<TenantId, Tenant>,
    by_name: HashMap<Text, TenantId>,
    by_identity: HashMap<Box<str>, TenantId>,
    others: Limits,
    extents: u64,
    extent_bytes: u64,
    /// Extents that all of them owe the reserve.
    owed: u64,
    next: u32,
}

impl Tenants {
    /// The configured tenants of a node with this memory.
    pub fn new(options: &TenantsOptions, extents: u64, extent_bytes: u64) -> Self {
        let mut tenants = Self {
            all: BTreeMap::new(),
            by_name: HashMap::default(),
            by_identity: HashMap::default(),
            others: Limits::default(),
            extents,
            extent_bytes,
            owed: 0,
            next: 1,
        };
        tenants.configure(options);
        tenants
    }

    /// Applies other limits, and perhaps other tenants, from now on. A tenant that has more than it may keeps it,
    /// and gets no more.
    pub fn configure(&mut self, options: &TenantsOptions) {
        self.others = options.others;
        self.by_identity.clear();
        let mut others: BTreeSet<TenantId> = self.all.keys().copied().collect();
        for wanted in &options.known {
            let id = self.named(&Text::new(wanted.name.as_str()).unwrap_or_default());
            others.remove(&id);
            let limits = self.amounts(&wanted.limits, self.extents, MOST_ENDPOINTS);
            if let Some(tenant) = self.all.get_mut(&id) {
                tenant.known = true;
                tenant.limit(limits);
                tenant.weight = wanted.weight.max(1);
                tenant.rights = wanted.rights;
            }
            self.by_identity.extend(wanted.identities.iter().map(|identity| (identity.as_str().into(), id)));
        }
        others.into_iter().for_each(|id| self.treat_as_other(id));
    }

    /// Gives a tenant that is not configured the limits and rights of such tenants.
    fn treat_as_other(&mut self, id: TenantId) {
        let is_trusted = self.get(id).is_some_and(Tenant::is_trusted);
        let (extents, endpoints) = match is_trusted {
            true => (self.extents, u64::MAX),
            false => (self.extents.div_ceil(2), MOST_ENDPOINTS),
        };
        let limits = self.amounts(&self.others, extents, endpoints);
        if let Some(tenant) = self.all.get_mut(&id) {
            tenant.known = false;
            tenant.limit(limits);
            tenant.weight = 1;
            // Where nobody must prove anything, all may look.
            tenant.rights = TenantRights { data: true, administer: is_trusted };
        }
    }

    /// The tenant of an identity, made if need be. If there are the most tenants, those that have nothing left make
    /// room; `has_memory` says who has extents.
    pub fn of(&mut self, identity: &Identity, has_memory: impl Fn(TenantId) -> bool) -> Result<TenantId, Refusal> {
        let name = match self.find(identity) {
            Ok(id) => return Ok(id),
            Err(name) => name,
        };
        if self.all.len() >= MAX_TENANTS {
            self.forget_idle(has_memory);
        }
        if self.all.len() >= MAX_TENANTS {
            return Err(Refusal::TooMany { what: "tenants of the node", most: MAX_TENANTS });
        }
        let id = self.named(&name);
        self.treat_as_other(id);
        Ok(id)
    }

    /// Forgets the tenants that have nothing left, except those that are configured.
    fn forget_idle(&mut self, has_memory: impl Fn(TenantId) -> bool) {
        let has_nothing = |tenant: &Tenant| tenant.used == Amounts::default() && tenant.retired.is_empty();
        let Self { all, by_name, .. } = self;
        for (_, tenant) in all.extract_if(.., |id, tenant| !tenant.known && has_nothing(tenant) && !has_memory(*id)) {
            by_name.remove(&tenant.name);
        }
    }

    /// Whether the identity is the tenant's.
    pub fn is_of(&self, id: TenantId, identity: &Identity) -> bool {
        self.find(identity) == Ok(id)
    }

    /// The tenant of an identity, or the name of the tenant to be made. A listed identity belongs to the tenant
    /// that lists it. Any other identity is a tenant by itself, and those who need not prove theirs are one tenant
    /// together.
    fn find(&self, identity: &Identity) -> Result<TenantId, Text> {
        let anonymous = Identity::anonymous();
        let listed = |identity: &Identity| self.by_identity.get(identity.as_str()).copied();
        let (listed, name) = match identity.is_proven() {
            true => (listed(identity), identity),
            false => (listed(identity).or_else(|| listed(&anonymous)), &anonymous),
        };
        let name = Text::new(name.as_str()).unwrap_or_default();
        listed.or_else(|| self.by_name.get(&name).copied()).ok_or(name)
    }

    fn named(&mut self, name: &Text) -> TenantId {
        if let Some(&id) = self.by_name.get(name) {
            return id;
        }
        let id = TenantId(self.next);
        self.next += 1;
        let tenant = Tenant {
            name: name.clone(),
            weight: 1,
            rights: TenantRights::default(),
            known: false,
            limits: Amounts::default(),
            used: Amounts::default(),
            endpoints: Arc::new(Endpoints::new(name.clone())),
            figures: Figures::default(),
            reading_epoch: 1,
            retired: Retired::default(),
        };
        self.all.insert(id, tenant);
        self.by_name.insert(name.clone(), id);
        id
    }

    /// The amounts for these limits, with `extents` and `endpoints` where the limits name none.
    fn amounts(&self, limits: &Limits, extents: u64, endpoints: u64) -> Amounts {
        let mut amounts = Amounts::default();
        for (resource, amount) in [
            (Resource::Extents, limits.memory_bytes.map_or(extents, |bytes| bytes / self.extent_bytes.max(1))),
            // The share of the reserve depends on the other tenants present.
            (Resource::Reserve, u64::MAX),
            (Resource::Links, limits.links.unwrap_or(256)),
            (Resource::Endpoints, limits.endpoints.unwrap_or(endpoints)),
            (Resource::Sessions, limits.sessions.unwrap_or(256)),
            (Resource::Stores, limits.stores.unwrap_or(1024)),
            (Resource::Shards, limits.shards.unwrap_or(4096)),
            (Resource::Keys, limits.keys.unwrap_or(1 << 18)),
            (Resource::Ranges, limits.ranges.unwrap_or(1 << 18)),
            (Resource::Jobs, limits.jobs.unwrap_or(64)),
            (Resource::Calls, limits.calls.unwrap_or(1024)),
            (Resource::Bytes, MAX_KEPT_BYTES),
        ] {
            *amounts.of_mut(resource) = amount;
        }
        amounts
    }

    /// The tenant.
    pub fn get(&self, id: TenantId) -> Option<&Tenant> {
        self.all.get(&id)
    }

    /// The tenant.
    pub fn get_mut(&mut self, id: TenantId) -> Option<&mut Tenant> {
        self.all.get_mut(&id)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (TenantId, &Tenant)> {
        self.all.iter().map(|(&id, tenant)| (id, tenant))
    }

    /// Most extents that a tenant may owe of a reserve of `reserve`: an equal share among those who have sessions
    /// and those who are listed. A tenant that is not listed leaves a share for another one, which may come later.
    pub fn share_of(&self, reserve: u64, id: TenantId) -> u64 {
        let has_share = |tenant: &&Tenant| {
            tenant.used.of(Resource::Sessions) > 0 || tenant.known && tenant.limits.of(Resource::Extents) > 0
        };
        let shares = self.all.values().filter(has_share).count() as u64;
        let is_stranger = self.get(id).is_some_and(|tenant| !tenant.known && !tenant.is_trusted());
        reserve.div_ceil((shares + u64::from(is_stranger)).max(1))
    }

    /// Extents that all of them owe the reserve.
    pub fn owed(&self) -> u64 {
        self.owed
    }

    /// How much more of a resource (not extents) the tenant may have.
    pub fn left(&self, id: TenantId, resource: Resource) -> u64 {
        let left = |tenant: &Tenant| tenant.limits.of(resource).saturating_sub(tenant.used.of(resource));
        self.get(id).map_or(0, left)
    }

    /// Checks that the tenant may have `more` of a resource that is counted here.
    pub fn check(&self, id: TenantId, resource: Resource, more: u64) -> Result<(), Refusal> {
        if self.left(id, resource) < more {
            return Err(self.limit(id, resource, more));
        }
        Ok(())
    }

    /// The refusal for a limit that the tenant has reached when it asked for `asked` more.
    pub fn limit(&self, id: TenantId, resource: Resource, asked: u64) -> Refusal {
        let (tenant, most) =
            self.get(id).map(|tenant| (tenant.name.clone(), tenant.limits.of(resource))).unwrap_or_default();
        Refusal::Limit { tenant, resource, most, asked }
    }

    /// Counts `more` of the resource for the tenant.
    pub fn take(&mut self, id: TenantId, resource: Resource, more: u64) {
        if let Some(tenant) = self.all.get_mut(&id) {
            *tenant.used.of_mut(resource) += more;
            self.owed += if resource == Resource::Reserve { more } else { 0 };
        }
    }

    /// Counts `less` of the resource off the tenant's amount.
    pub fn give(&mut self, id: TenantId, resource: Resource, less: u64) {
        if let Some(tenant) = self.all.get_mut(&id) {
            let used = tenant.used.of_mut(resource);
            debug_assert!(*used >= less, "{} given back twice", resource.name());
            let less = less.min(*used);
            *used -= less;
            self.owed -= if resource == Resource::Reserve { less } else { 0 };
        }
    }
}
