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
//! - A session holds what it leases, and a store what its shards adopted and what their jobs made. These are also listed,
//!   as are the extents to which a session has keys.

use super::resources::TenantId;
use forebay_env::HashMap;
use forebay_fabric::Rights;
use forebay_proto::{ExtentId, SessionId, ShardKey, StoreId};
use std::collections::BTreeSet;
use std::hash::Hash;

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
    /// Sessions with keys; changed by [`Extents::add_holder`] and [`Extents::remove_holder`].
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

/// Extents by those who have them.
type Index<K> = HashMap<K, BTreeSet<ExtentId>>;

/// All extents of a node. They are listed by those who have them, so the end of one passes over no extents of others.
#[derive(Debug)]
pub struct Extents {
    all: Vec<Extent>,
    free: BTreeSet<ExtentId>,
    kept: BTreeSet<ExtentId>,
    counts: Counts,
    by_tenant: HashMap<TenantId, Counts>,
    /// Freed and not yet free.
    recycling: Index<TenantId>,
    /// Leased by sessions.
    leased: Index<SessionId>,
    /// Memory of stores' shards.
    of_stores: Index<StoreId>,
    /// Those to which sessions have keys.
    held: Index<SessionId>,
}

/// Adds an extent to a set, or removes it.
fn put(extents: &mut BTreeSet<ExtentId>, id: ExtentId, comes: bool) {
    if comes {
        extents.insert(id);
    } else {
        extents.remove(&id);
    }
}

/// Adds an extent to those of `key`, or removes it.
fn note<K: Copy + Eq + Hash>(index: &mut Index<K>, key: K, id: ExtentId, comes: bool) {
    let extents = index.entry(key).or_default();
    put(extents, id, comes);
    if extents.is_empty() {
        index.remove(&key);
    }
}

/// The extents of `key`, in ascending order.
fn listed<K: Eq + Hash>(index: &Index<K>, key: K) -> Vec<ExtentId> {
    let extents: Vec<ExtentId> = index.get(&key).into_iter().flatten().copied().collect();
    #[cfg(test)]
    VISITED.set(VISITED.get() + extents.len());
    extents
}

/// The number of extents of `key`.
fn number<K: Eq + Hash>(index: &Index<K>, key: K) -> u64 {
    index.get(&key).map_or(0, |extents| extents.len() as u64)
}

impl Extents {
    /// `count` extents, of which the last `kept` are kept for jobs.
    pub fn new(count: u32, kept: u32) -> Self {
        let mut extents = Self {
            all: Vec::with_capacity(count as usize),
            free: BTreeSet::new(),
            kept: BTreeSet::new(),
            counts: Counts::default(),
            by_tenant: HashMap::default(),
            recycling: HashMap::default(),
            leased: HashMap::default(),
            of_stores: HashMap::default(),
            held: HashMap::default(),
        };
        for index in 0..count {
            let place = if index < count.saturating_sub(kept) { Place::Free } else { Place::Kept };
            extents.all.push(Extent { place, tenant: None, holders: Vec::new(), pins: 0, touched: false });
            extents.count(ExtentId(index), place, None, true);
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
        number(&self.leased, session)
    }

    /// How many extents the store's shards hold.
    pub fn of_store(&self, store: StoreId) -> u64 {
        number(&self.of_stores, store)
    }

    /// The extents that the session leases.
    pub fn leased_by(&self, session: SessionId) -> Vec<ExtentId> {
        listed(&self.leased, session)
    }

    /// The extents that the store's shards hold.
    pub fn in_store(&self, store: StoreId) -> Vec<ExtentId> {
        listed(&self.of_stores, store)
    }

    /// The extents to which the session has keys.
    pub fn held_by(&self, session: SessionId) -> Vec<ExtentId> {
        listed(&self.held, session)
    }

    /// Adds a key to an extent.
    pub fn add_holder(&mut self, id: ExtentId, holder: Holder) {
        if let Some(extent) = self.all.get_mut(id.0 as usize) {
            extent.holders.push(holder);
            note(&mut self.held, holder.session, id, true);
        }
    }

    /// Removes the session's key to an extent. False when it has none.
    pub fn remove_holder(&mut self, id: ExtentId, session: SessionId) -> bool {
        let Some(extent) = self.all.get_mut(id.0 as usize) else { return false };
        let before = extent.holders.len();
        extent.holders.retain(|holder| holder.session != session);
        let is_gone = extent.holders.len() < before;
        if is_gone {
            note(&mut self.held, session, id, false);
        }
        is_gone
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
    #[cfg(test)]
    pub fn select(&self, wanted: impl Fn(&Extent) -> bool) -> Vec<ExtentId> {
        self.iter().filter(|(_, extent)| wanted(extent)).map(|(id, _)| id).collect()
    }

    /// Extents of the tenant that are freed but not yet free.
    pub fn recycling(&self, tenant: TenantId) -> Vec<ExtentId> {
        listed(&self.recycling, tenant)
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
        let place_before = std::mem::replace(&mut extent.place, place);
        let tenant_before = std::mem::replace(&mut extent.tenant, tenant);
        self.count(id, place_before, tenant_before, false);
        self.count(id, place, tenant, true);
    }

    /// Counts an extent that comes to a place, or leaves it.
    fn count(&mut self, id: ExtentId, place: Place, tenant: Option<TenantId>, comes: bool) {
        let change = |count: &mut u64| if comes { *count += 1 } else { *count -= 1 };
        change(self.counts.of(place));
        if let Some(tenant) = tenant {
            let counts = self.by_tenant.entry(tenant).or_default();
            change(counts.of(place));
            if *counts == Counts::default() {
                self.by_tenant.remove(&tenant);
            }
        }
        match place {
            Place::Free => put(&mut self.free, id, comes),
            Place::Kept => put(&mut self.kept, id, comes),
            Place::Leased(session) => note(&mut self.leased, session, id, comes),
            Place::Adopted(shard) | Place::Jobs(shard) => note(&mut self.of_stores, shard.store, id, comes),
            Place::Retired(_) | Place::Revoking | Place::Dirty => {
                if let Some(tenant) = tenant {
                    note(&mut self.recycling, tenant, id, comes);
                }
            }
        }
    }
}

#[cfg(test)]
thread_local! {
    /// Extents that were looked at one after another.
    pub static VISITED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
