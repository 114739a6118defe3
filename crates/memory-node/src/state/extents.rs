//! Extents: where each is, who holds keys to it, and how it comes back.
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
//! - An extent is in exactly one place, and the counts by place are those of the extents.
//! - Whoever leases, adopts or writes an extent gets it zeroed: it comes from `Free` or `Kept`,
//!   and gets there only over `Dirty`, or untouched.
//! - An extent that is free, kept or dirty has no holder, and no job reads it.

use forebay_fabric::Rights;
use forebay_proto::{ExtentId, SessionId, ShardKey};
use std::collections::BTreeSet;

/// Where an extent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Anybody may have it.
    Free,
    /// A session has it.
    Leased(SessionId),
    /// A shard has it.
    Adopted(ShardKey),
    /// The node keeps it for jobs; nothing is in it.
    Kept,
    /// Outputs of a shard's jobs are in it.
    Jobs(ShardKey),
    /// Freed in this reading epoch; whoever read it then may still read it.
    Retired(u64),
    /// No key to it is given any more; some are not yet revoked, or a job reads it.
    Revoking,
    /// To be filled with zeros.
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
    /// The key is being revoked.
    pub revoking: bool,
}

/// An extent.
#[derive(Debug)]
pub struct Extent {
    place: Place,
    /// Sessions with keys.
    pub holders: Vec<Holder>,
    /// Jobs that read or write it at this moment.
    pub pins: u32,
    /// It was given out since it was zeroed.
    pub touched: bool,
}

impl Extent {
    /// Where it is.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The session's hold on it.
    pub fn holder(&mut self, session: SessionId) -> Option<&mut Holder> {
        self.holders.iter_mut().find(|holder| holder.session == session)
    }
}

/// Extents by place.
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
        };
        for index in 0..count {
            let place = if index < count.saturating_sub(kept) { Place::Free } else { Place::Kept };
            extents.all.push(Extent { place, holders: Vec::new(), pins: 0, touched: false });
            extents.enter(ExtentId(index), place);
        }
        extents
    }

    /// How many there are.
    pub fn len(&self) -> u32 {
        self.all.len() as u32
    }

    /// Counts by place.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The extent.
    pub fn get(&self, id: ExtentId) -> Option<&Extent> {
        self.all.get(id.0 as usize)
    }

    /// The extent.
    pub fn get_mut(&mut self, id: ExtentId) -> Option<&mut Extent> {
        self.all.get_mut(id.0 as usize)
    }

    /// Where the extent is.
    pub fn place(&self, id: ExtentId) -> Option<Place> {
        self.get(id).map(Extent::place)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (ExtentId, &Extent)> {
        (0..).map(ExtentId).zip(&self.all)
    }

    /// Those that `wanted` chooses.
    pub fn select(&self, wanted: impl Fn(&Extent) -> bool) -> Vec<ExtentId> {
        self.iter().filter(|(_, extent)| wanted(extent)).map(|(id, _)| id).collect()
    }

    /// Extents that are freed but not yet free.
    pub fn recycling(&self) -> Vec<ExtentId> {
        self.recycling.iter().copied().collect()
    }

    /// The first free extent.
    pub fn first_free(&self) -> Option<ExtentId> {
        self.free.first().copied()
    }

    /// The first kept extent.
    pub fn first_kept(&self) -> Option<ExtentId> {
        self.kept.first().copied()
    }

    /// Moves an extent.
    pub fn set(&mut self, id: ExtentId, place: Place) {
        let Some(extent) = self.all.get_mut(id.0 as usize) else { return };
        let before = std::mem::replace(&mut extent.place, place);
        *self.counts.of(before) -= 1;
        for set in [&mut self.free, &mut self.kept, &mut self.recycling] {
            set.remove(&id);
        }
        self.enter(id, place);
    }

    fn enter(&mut self, id: ExtentId, place: Place) {
        *self.counts.of(place) += 1;
        match place {
            Place::Free => &mut self.free,
            Place::Kept => &mut self.kept,
            Place::Retired(_) | Place::Revoking | Place::Dirty => &mut self.recycling,
            Place::Leased(_) | Place::Adopted(_) | Place::Jobs(_) => return,
        }
        .insert(id);
    }
}
