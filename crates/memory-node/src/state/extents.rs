//! Extents: their places, the holders of keys to them, and how they become free again.
//!
//! ```text
//!            lease                 adopt
//!   Free ───────────► Leased ───────────────► Adopted
//!    ▲ ▲                │ return, lapse          │ release, drop
//!    │ │                └───────────┬────────────┘
//!    │ └── zeroed ── Dirty ◄── Revoking ◄── Retired ◄──┐
//!    │                 │   keys gone,   readers passed  │ emptied
//!    │               zeroed  no job reads              │
//!    └── a job needs more   ▼                            │
//!                    Kept ───────────────────────────► Jobs
//! ```
//!
//! # Invariants
//! - An extent is in exactly one place, and the counts by place match the extents.
//! - An extent is zeroed before it is leased, adopted or written: it comes from `Free` or `Kept`, and gets there only
//!   through `Dirty`, or untouched.
//! - An extent that is free, kept or dirty has no holder, and no job reads it.
//! - An extent belongs to a tenant from when it is given out until it is free or kept again, and the counts of the tenants
//!   match their extents.
//! - A session holds what it leases, and a store what its shards adopted and what their jobs made. These are also counted.

use super::resources::TenantId;
use forebay_env::HashMap;
use forebay_fabric::Rights;
use forebay_proto::{ExtentId, SessionId, ShardKey, StoreId};
use std::collections::BTreeSet;

/// The place of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Anybody may get it.
    Free,
    /// A session leases it.
    Leased(SessionId),
    /// A shard has adopted it.
    Adopted(ShardKey),
    /// The node keeps it for jobs; nothing is in it.
    Kept,
    /// Outputs of a shard's jobs are in it.
    Jobs(ShardKey),
    /// Freed in this reading epoch. A session that was reading it then may still read it.
    Retired(u64),
    /// No new key to it is given. Some keys are not revoked yet, or a job reads it.
    Revoking,
    /// Waits to be filled with zeros.
    Dirty,
}

impl Place {
    /// The shard whose memory it is.
    pub fn shard(self) -> Option<ShardKey> {
        match self {
            Self::Adopted(shard) | Self::Jobs(shard) => Some(shard),
            _ => None,
        }
    }
}

/// A session that has a key to an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// The session; it may have ended.
    pub session: SessionId,
    /// What the key allows.
    pub rights: Rights,
    /// Whether the key is being revoked.
    pub revoking: bool,
}

/// An extent.
#[derive(Debug)]
pub struct Extent {
    place: Place,
    tenant: Option<TenantId>,
    /// Sessions with keys.
    pub holders: Vec<Holder>,
    /// Number of jobs that read or write it at this moment.
    pub pins: u32,
    /// Whether it was given out since it was zeroed.
    pub touched: bool,
}

impl Extent {
    /// Its place.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The tenant that it belongs to, unless it is free or kept.
    pub fn tenant(&self) -> Option<TenantId> {
        self.tenant
    }

    /// Whether the session has a key to it.
    pub fn is_held_by(&self, session: SessionId) -> bool {
        self.holders.iter().any(|holder| holder.session == session)
    }

    /// The session's entry as a holder of a key to it.
    pub fn holder(&mut self, session: SessionId) -> Option<&mut Holder> {
        self.holders.iter_mut().find(|holder| holder.session == session)
    }
}

/// Numbers of extents by place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "named as the places are")]
pub struct Counts {
    pub free: u64,
    pub leased: u64,
    pub adopted: u64,
    pub kept: u64,
    pub jobs: u64,
    pub recycling: u64,
}

impl Counts {
    /// The number that are neither free nor kept.
    pub fn given_out(&self) -> u64 {
        self.leased + self.adopted + self.jobs + self.recycling
    }

    fn of(&mut self, place: Place) -> &mut u64 {
        match place {
            Place::Free => &mut self.free,
            Place::Leased(_) => &mut self.leased,
            Place::Adopted(_) => &mut self.adopted,
            Place::Kept => &mut self.kept,
            Place::Jobs(_) => &mut self.jobs,
            Place::Retired(_) | Place::Revoking | Place::Dirty => &mut self.recycling,
        }
    }
}

/// All extents of a node.
#[derive(Debug)]
pub struct Extents {
    all: Vec<Extent>,
    free: BTreeSet<ExtentId>,
    kept: BTreeSet<ExtentId>,
    recycling: BTreeSet<ExtentId>,
    counts: Counts,
    by_tenant: HashMap<TenantId, Counts>,
    by_session: HashMap<SessionId, u64>,
    by_store: HashMap<StoreId, u64>,
}

/// Counts one more, or one less, for `key`.
fn count<K: Eq + std::hash::Hash>(counts: &mut HashMap<K, u64>, key: K, is_more: bool) {
    let before = counts.get(&key).copied().unwrap_or(0);
    match if is_more { before + 1 } else { before.saturating_sub(1) } {
        0 => drop(counts.remove(&key)),
        count => drop(counts.insert(key, count)),
    }
}

impl Extents {
    /// `count` extents, of which the last `kept` are kept for jobs.
    pub fn new(count: u32, kept: u32) -> Self {
        let mut extents = Self {
            all: Vec::with_capacity(count as usize),
            free: BTreeSet::new(),
            kept: BTreeSet::new(),
            recycling: BTreeSet::new(),
            counts: Counts::default(),
            by_tenant: HashMap::default(),
            by_session: HashMap::default(),
            by_store: HashMap::default(),
        };
        for index in 0..count {
            let place = if index < count.saturating_sub(kept) { Place::Free } else { Place::Kept };
            extents.all.push(Extent { place, tenant: None, holders: Vec::new(), pins: 0, touched: false });
            extents.enter(ExtentId(index), place);
        }
        extents
    }

    /// The number of extents.
    pub fn len(&self) -> u32 {
        self.all.len() as u32
    }

    /// Numbers by place.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Counts by place of the tenant's extents.
    pub fn of_tenant(&self, tenant: TenantId) -> Counts {
        self.by_tenant.get(&tenant).copied().unwrap_or_default()
    }

    /// How many extents the session leases.
    pub fn of_session(&self, session: SessionId) -> u64 {
        self.by_session.get(&session).copied().unwrap_or(0)
    }

    /// How many extents the store's shards hold.
    pub fn of_store(&self, store: StoreId) -> u64 {
        self.by_store.get(&store).copied().unwrap_or(0)
    }

    /// The extent.
    pub fn get(&self, id: ExtentId) -> Option<&Extent> {
        self.all.get(id.0 as usize)
    }

    /// The extent.
    pub fn get_mut(&mut self, id: ExtentId) -> Option<&mut Extent> {
        self.all.get_mut(id.0 as usize)
    }

    /// The place of the extent.
    pub fn place(&self, id: ExtentId) -> Option<Place> {
        self.get(id).map(Extent::place)
    }

    /// All extents.
    pub fn iter(&self) -> impl Iterator<Item = (ExtentId, &Extent)> {
        let all = (0..).map(ExtentId).zip(&self.all);
        #[cfg(test)]
        let all = all.inspect(|_| VISITED.set(VISITED.get() + 1));
        all
    }

    /// The extents that `wanted` selects.
    pub fn select(&self, wanted: impl Fn(&Extent) -> bool) -> Vec<ExtentId> {
        self.iter().filter(|(_, extent)| wanted(extent)).map(|(id, _)| id).collect()
    }

    /// Extents of the tenant that are freed but not yet free.
    pub fn recycling(&self, tenant: TenantId) -> Vec<ExtentId> {
        let mine = |id: &&ExtentId| self.get(**id).is_some_and(|extent| extent.tenant == Some(tenant));
        self.recycling.iter().filter(mine).copied().collect()
    }

    /// The first free extent.
    pub fn first_free(&self) -> Option<ExtentId> {
        self.free.first().copied()
    }

    /// The first kept extent.
    pub fn first_kept(&self) -> Option<ExtentId> {
        self.kept.first().copied()
    }

    /// Gives an extent to a tenant.
    pub fn give_out(&mut self, id: ExtentId, place: Place, tenant: TenantId) {
        self.move_to(id, place, Some(tenant));
    }

    /// Takes back an empty extent. Returns the tenant that it belonged to.
    pub fn take_back(&mut self, id: ExtentId, place: Place) -> Option<TenantId> {
        let tenant = self.get(id).and_then(Extent::tenant);
        self.move_to(id, place, None);
        tenant
    }

    /// Moves an extent; its tenant stays the same.
    pub fn set(&mut self, id: ExtentId, place: Place) {
        let tenant = self.get(id).and_then(Extent::tenant);
        self.move_to(id, place, tenant);
    }

    fn move_to(&mut self, id: ExtentId, place: Place, tenant: Option<TenantId>) {
        let Some(extent) = self.all.get_mut(id.0 as usize) else { return };
        let before = std::mem::replace(&mut extent.place, place);
        let owner_before = std::mem::replace(&mut extent.tenant, tenant);
        *self.counts.of(before) -= 1;
        self.count_holder(before, false);
        if let Some(counts) = owner_before.and_then(|tenant| self.by_tenant.get_mut(&tenant)) {
            *counts.of(before) -= 1;
        }
        if let Some(tenant) = tenant {
            *self.by_tenant.entry(tenant).or_default().of(place) += 1;
        }
        if owner_before != tenant {
            self.by_tenant.retain(|_, counts| *counts != Counts::default());
        }
        for set in [&mut self.free, &mut self.kept, &mut self.recycling] {
            set.remove(&id);
        }
        self.enter(id, place);
    }

    /// Counts an extent for its session or store, or stops counting it.
    fn count_holder(&mut self, place: Place, is_more: bool) {
        match place {
            Place::Leased(session) => count(&mut self.by_session, session, is_more),
            Place::Adopted(shard) | Place::Jobs(shard) => count(&mut self.by_store, shard.store, is_more),
            Place::Free | Place::Kept | Place::Retired(_) | Place::Revoking | Place::Dirty => {}
        }
    }

    fn enter(&mut self, id: ExtentId, place: Place) {
        *self.counts.of(place) += 1;
        self.count_holder(place, true);
        match place {
            Place::Free => &mut self.free,
            Place::Kept => &mut self.kept,
            Place::Retired(_) | Place::Revoking | Place::Dirty => &mut self.recycling,
            Place::Leased(_) | Place::Adopted(_) | Place::Jobs(_) => return,
        }
        .insert(id);
    }
}

#[cfg(test)]
thread_local! {
    /// Extents that were looked at one after another.
    pub static VISITED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
