//! Why a call is refused.

use forebay_base::ErrorKind;
use forebay_proto::{Epoch, ExtentId, ExtentRange, PROTOCOL_VERSION, SessionId, ShardKey, StoreId, Text};

/// Why a call is refused. Nothing was done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The session lapsed, was closed, or is another link's.
    #[error("{0} is not open on this link: it lapsed or was closed, and what no shard adopted was freed")]
    NoSession(SessionId),
    /// The link has a session.
    #[error("this link has a session already")]
    SecondSession,
    /// The client speaks another version.
    #[error("the client speaks version {0} of the protocol, the node version {PROTOCOL_VERSION}")]
    Protocol(u16),
    /// There are too many of something.
    #[error("the node has its most {0} already")]
    TooMany(&'static str),
    /// No memory is left.
    #[error("no memory is left: {free} extents are free, of which {headroom} are kept for garbage collection")]
    Full {
        /// Free extents.
        free: u64,
        /// Of these, those that only garbage collection gets.
        headroom: u64,
    },
    /// The tenant's quota is used up.
    #[error("the tenant's quota of {0} extents is used up")]
    Quota(u64),
    /// Memory is about to become free.
    #[error("no memory is free, but {0} extents are being cleaned: try again soon")]
    Recycling(u64),
    /// The extent is not what the call takes it for.
    #[error("{extent} {what}")]
    Extent {
        /// The extent.
        extent: ExtentId,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The extent's earlier holder has not let go.
    #[error("{0} is held by an earlier owner that has not let go yet")]
    Held(ExtentId),
    /// The range is not an output of this shard's jobs.
    #[error("{0} is no output of this shard's jobs")]
    Range(ExtentRange),
    /// The name is not allowed.
    #[error("{0:?} is no name for a store: use 1 to 128 letters, digits, '.', '_' and '-'")]
    Name(String),
    /// The shard is shared: nobody owns it.
    #[error("{0} is shared by all sessions that opened the store: nobody can own it")]
    Shared(ShardKey),
    /// There is such a store.
    #[error("there is a store named {0} already")]
    StoreExists(Text),
    /// There is no such store.
    #[error("there is no store named {0}")]
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
    /// The job is not to go on.
    #[error("the job's session or shard epoch ended")]
    JobFenced,
    /// The same attempt runs.
    #[error("attempt {0} runs already")]
    AttemptRuns(u64),
    /// A job's access leaves what it may touch.
    #[error("{0} is not memory that the job may touch")]
    OutOfBounds(ExtentRange),
    /// An allocation that no extent can hold.
    #[error("{length} bytes do not fit into an extent of {extent_bytes}")]
    TooLong {
        /// What was asked for, bytes.
        length: u64,
        /// What is possible, bytes.
        extent_bytes: u64,
    },
}

impl Refusal {
    /// What the caller must do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSession(_) | Self::Fenced { .. } | Self::JobFenced => ErrorKind::Fenced,
            Self::SecondSession | Self::StoreExists(_) => ErrorKind::AlreadyExists,
            Self::Protocol(_) => ErrorKind::Unsupported,
            Self::TooMany(_) | Self::Full { .. } | Self::Quota(_) => ErrorKind::Full,
            Self::Recycling(_) | Self::Held(_) | Self::StoreInUse(_) | Self::Owned(_) | Self::AttemptRuns(_) => {
                ErrorKind::Busy
            }
            Self::Extent { .. } | Self::Range(_) | Self::Name(_) | Self::NotOpen(_) | Self::Shared(_) => {
                ErrorKind::Invalid
            }
            Self::TooLong { .. } | Self::OutOfBounds(_) => ErrorKind::Invalid,
            Self::NoStore(_) | Self::NoShard(_) => ErrorKind::NotFound,
        }
    }
}
