//! Why a call is refused.

use super::resources::Resource;
use forebay_base::{DecodeError, ErrorKind};
use forebay_proto::{Epoch, ExtentId, ExtentRange, PROTOCOL_VERSION, SessionId, ShardKey, StoreId, Text, attempt};

/// Why a call is refused. Nothing was done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The session lapsed, was closed, or belongs to another link.
    #[error("{0} is not open on this link: it lapsed or was closed, and what no shard adopted was freed")]
    NoSession(SessionId),
    /// The link has a session.
    #[error("this link has a session already")]
    SecondSession,
    /// The client speaks another version.
    #[error("the client speaks version {0} of the protocol, the node version {PROTOCOL_VERSION}")]
    Protocol(u16),
    /// There are too many of something, counted over all tenants or in a session.
    #[error("there are {most} {what}, which is the most")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The maximum.
        most: usize,
    },
    /// No memory is left.
    #[error("no memory is left: {free} extents are free, of which {headroom} are kept for garbage collection")]
    Full {
        /// Free extents.
        free: u64,
        /// Of these, those that only garbage collection gets.
        headroom: u64,
    },
    /// The tenant has reached its limit of something.
    #[error("tenant {tenant} has its most {}: {most}; {asked} more asked for: {}", resource.name(), remedy(*resource))]
    Limit {
        /// The tenant.
        tenant: Text,
        /// Of what.
        resource: Resource,
        /// The limit.
        most: u64,
        /// How many more were asked for.
        asked: u64,
    },
    /// The tenant owes the reserve its share, or has nothing to collect.
    #[error("tenant {tenant} has its share of the memory kept for garbage collection and jobs: {share} extents")]
    Reserve {
        /// The tenant.
        tenant: Text,
        /// Its share, extents.
        share: u64,
    },
    /// The link is not open, or was closed by the node.
    #[error("the link is not open")]
    NoLink,
    /// The session names a tenant to which its link does not belong.
    #[error("this link is of tenant {is}, not of the one that the session names: name none, or prove to be of it")]
    OtherTenant {
        /// The link's tenant.
        is: Text,
    },
    /// Only tenants that administer the node may ask.
    #[error("tenant {0} has no right to administer the node")]
    NotAdministrator(Text),
    /// The tenant may not use stores and memory.
    #[error("tenant {0} has no right to data")]
    NoData(Text),
    /// Memory is about to become free.
    #[error("no memory is free, but {0} extents are being cleaned: try again soon")]
    Recycling(u64),
    /// The extent is not in the state that the call expects.
    #[error("{extent} {what}")]
    Extent {
        /// The extent.
        extent: ExtentId,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The extent's earlier holder has not released it.
    #[error(
        "{extent} is held by {by}, an earlier owner that has not let go: if its process is stopped, let it go on or kill it"
    )]
    Held {
        /// The extent.
        extent: ExtentId,
        /// The session that holds it. The node's log has its name.
        by: SessionId,
    },
    /// A job that wrote the range has lost its keys and may still write.
    #[error("{0} is being written by a job that has not let go yet")]
    Written(ExtentRange),
    /// The range is not an output of this shard's jobs.
    #[error("{0} is no output of this shard's jobs")]
    Range(ExtentRange),
    /// The name is not allowed.
    #[error("{0:?} is no name for a store: use 1 to 128 letters, digits, '.', '_' and '-'")]
    Name(String),
    /// The shard is shared: nobody owns it.
    #[error("{0} is shared by all sessions that opened the store: nobody can own it")]
    Shared(ShardKey),
    /// Such a store exists already.
    #[error("there is a store named {:?} already", .0.as_str())]
    StoreExists(Text),
    /// There is no such store.
    #[error("there is no store named {:?}", .0.as_str())]
    NoStore(Text),
    /// The session has not opened the store.
    #[error("{0} is not open in this session")]
    NotOpen(StoreId),
    /// The store is in use.
    #[error("{0} is in use by another session or by a job")]
    StoreInUse(StoreId),
    /// The shard does not exist.
    #[error("there is no {0}")]
    NoShard(ShardKey),
    /// Another session owns the shard.
    #[error("{0} is owned by another session")]
    Owned(ShardKey),
    /// The shard's root is not what the caller has seen.
    #[error("the root of {0} was replaced since it was read")]
    Replaced(ShardKey),
    /// The caller is not the shard's owner at that epoch.
    #[error("{shard} is not this session's at {epoch}: the present one is {present}")]
    Fenced {
        /// The shard.
        shard: ShardKey,
        /// The caller's epoch.
        epoch: Epoch,
        /// The shard's epoch.
        present: Epoch,
    },
    /// The job must not continue.
    #[error("the job's session or shard epoch ended")]
    JobFenced,
    /// No scheduler runs here.
    #[error("nobody schedules here now")]
    NoScheduler,
    /// The bytes for the scheduler are not letters.
    #[error("letters to the scheduler: {0}")]
    Letters(DecodeError),
    /// The same attempt is already running.
    #[error("attempt {} runs already", attempt::shown(*.0))]
    AttemptRuns(u64),
    /// A job's access is outside the memory that it may touch.
    #[error("{0} is not memory that the job may touch")]
    OutOfBounds(ExtentRange),
    /// An allocation that no extent can hold.
    #[error("{length} bytes do not fit into an extent of {extent_bytes}")]
    TooLong {
        /// The requested length in bytes.
        length: u64,
        /// The possible length in bytes.
        extent_bytes: u64,
    },
}

/// What can be done about a limit.
fn remedy(resource: Resource) -> String {
    match resource.setting() {
        None => "try again when less waits".to_owned(),
        Some(setting) => format!("let go of some, or have the node's operator raise {setting:?} of this tenant"),
    }
}

impl Refusal {
    /// Whether a limit was reached.
    #[must_use]
    pub fn is_limit(&self) -> bool {
        matches!(self, Self::TooMany { .. } | Self::Limit { .. } | Self::Reserve { .. })
    }

    /// Whether the caller may not have what it asked for.
    #[must_use]
    pub fn is_denial(&self) -> bool {
        matches!(self, Self::OtherTenant { .. } | Self::NotAdministrator(_) | Self::NoData(_))
    }

    /// What the caller must do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSession(_) | Self::Fenced { .. } | Self::JobFenced => ErrorKind::Fenced,
            Self::SecondSession | Self::StoreExists(_) => ErrorKind::AlreadyExists,
            Self::Protocol(_) => ErrorKind::Unsupported,
            Self::Limit {
                resource: Resource::Endpoints | Resource::Jobs | Resource::Calls | Resource::Bytes, ..
            } => ErrorKind::Busy,
            Self::TooMany { .. } | Self::Full { .. } | Self::Limit { .. } | Self::Reserve { .. } => ErrorKind::Full,
            Self::OtherTenant { .. } | Self::NotAdministrator(_) | Self::NoData(_) => ErrorKind::AccessDenied,
            Self::NoLink => ErrorKind::Closed,
            Self::NoScheduler => ErrorKind::Unavailable,
            Self::Recycling(_) | Self::Held { .. } | Self::Written(_) => ErrorKind::Busy,
            Self::StoreInUse(_) | Self::Owned(_) | Self::AttemptRuns(_) => ErrorKind::Busy,
            Self::Extent { .. } | Self::Range(_) | Self::Name(_) | Self::NotOpen(_) | Self::Shared(_) => {
                ErrorKind::Invalid
            }
            Self::TooLong { .. } | Self::OutOfBounds(_) | Self::Letters(_) => ErrorKind::Invalid,
            Self::NoStore(_) | Self::NoShard(_) => ErrorKind::NotFound,
            Self::Replaced(_) => ErrorKind::Conflict,
        }
    }
}
