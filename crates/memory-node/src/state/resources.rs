//! The resources that are counted by tenant.

/// A tenant's number in a node's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u32);

/// What is counted by tenant and bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(usize)]
pub enum Resource {
    /// Extents, from when they are given out until they are free again.
    Extents,
    /// Extents owed to the reserve.
    Reserve,
    /// Links.
    Links,
    /// Endpoints, over all links.
    Endpoints,
    /// Sessions.
    Sessions,
    /// Stores.
    Stores,
    /// Shards.
    Shards,
    /// Keys to extents.
    Keys,
    /// Outputs of jobs.
    Ranges,
    /// Jobs that wait or run.
    Jobs,
    /// Calls that wait for their turn.
    Calls,
    /// Bytes of arguments that were pulled or are being pulled, and of results that nobody has taken yet.
    Bytes,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Extents,
        Self::Reserve,
        Self::Links,
        Self::Endpoints,
        Self::Sessions,
        Self::Stores,
        Self::Shards,
        Self::Keys,
        Self::Ranges,
        Self::Jobs,
        Self::Calls,
        Self::Bytes,
    ];

    /// Its name in errors and figures.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Extents => "extents",
            Self::Reserve => "extents of the reserve",
            Self::Links => "links",
            Self::Endpoints => "endpoints",
            Self::Sessions => "sessions",
            Self::Stores => "stores",
            Self::Shards => "shards",
            Self::Keys => "keys to extents",
            Self::Ranges => "outputs of jobs",
            Self::Jobs => "jobs",
            Self::Calls => "waiting calls",
            Self::Bytes => "bytes of arguments and results",
        }
    }

    /// The setting of [`Limits`](crate::tenants::Limits) that says how much of it a tenant may have.
    #[must_use]
    pub const fn setting(self) -> Option<&'static str> {
        Some(match self {
            Self::Extents => "memory",
            Self::Links => "links",
            Self::Endpoints => "endpoints",
            Self::Sessions => "sessions",
            Self::Stores => "stores",
            Self::Shards => "shards",
            Self::Keys => "keys",
            Self::Ranges => "ranges",
            Self::Jobs => "jobs",
            Self::Calls => "calls",
            Self::Reserve | Self::Bytes => return None,
        })
    }
}

/// An amount of each resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amounts([u64; Resource::ALL.len()]);

impl Amounts {
    /// The amount of this resource.
    #[must_use]
    pub const fn of(&self, resource: Resource) -> u64 {
        self.0[resource as usize]
    }

    pub(super) const fn of_mut(&mut self, resource: Resource) -> &mut u64 {
        &mut self.0[resource as usize]
    }
}
