//! The character of a seed's calls.

use crate::operands::Operator;
use crate::swarm::Swarm;
use forebay_base::KeyOrder;
use forebay_engine::{Durability, Syncing};

/// The character of the calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Habits {
    pub(crate) order: KeyOrder,
    /// Number of different keys.
    pub(crate) keys: u64,
    /// Maximum bytes of most values.
    pub(crate) value_bytes: u64,
    /// Bytes of one value in 50.
    pub(crate) large_value_bytes: u64,
    /// The database has a name, so its contents may outlive its process.
    pub(crate) is_named: bool,
    /// The memory node may be full.
    pub(crate) may_be_full: bool,
    /// What writes survive unless they say otherwise.
    pub(crate) durability: Durability,
    /// Operations of the storage fail.
    pub(crate) storage_fails: bool,
    /// The operator that turns operands into values.
    pub(crate) operator: Option<Operator>,
    /// How often each kind of call is made, and how often rare events happen.
    pub(crate) swarm: Swarm,
}

impl Habits {
    pub(crate) const fn has_storage(&self) -> bool {
        matches!(self.durability, Durability::Storage(_))
    }

    /// Whether each shard has a log in memory, which has a write before the write returns.
    pub(crate) const fn has_copies(&self) -> bool {
        matches!(self.durability, Durability::Memory { .. })
    }

    /// Whether a write that fails may have had an effect: it could not be made durable.
    pub(crate) const fn may_fail_late(&self) -> bool {
        self.has_storage() || self.has_copies()
    }

    /// Whether a log leads the tables, so that all shards are recovered to one moment.
    pub(crate) const fn has_one_end(&self) -> bool {
        matches!(self.durability, Durability::Storage(Syncing::Sync | Syncing::Interval(_)))
    }
}
