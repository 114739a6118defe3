//! Errors of a memory client.

use forebay_base::{DecodeError, ErrorKind};
use forebay_proto::ExtentId;
use forebay_proto::ranges::RangeError;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The fabric failed, or the node refused. A refusal is a
    /// [`Remote`](forebay_fabric::Error::Remote) error with the node's kind and text.
    #[error(transparent)]
    Fabric(#[from] forebay_fabric::Error),
    /// The session lapsed: the node took back what no shard had adopted.
    #[error("the session at {node} lapsed: {cause}")]
    Lapsed {
        /// The node.
        node: String,
        /// How the lapse was noticed.
        cause: String,
    },
    /// The node, or the connection to it, is gone.
    #[error("the memory node is gone: {0}")]
    Lost(String),
    /// The node cannot be reached.
    #[error("{message}")]
    Unreachable {
        /// What the caller must do.
        kind: ErrorKind,
        /// What happened.
        message: String,
    },
    /// The node's reply is invalid.
    #[error("the memory node's reply cannot be understood: {0}")]
    Reply(#[from] DecodeError),
    /// No memory is left at the node.
    #[error("the memory node has no memory left: {0}")]
    Full(String),
    /// An allocation that no extent can hold.
    #[error("an allocation of {length} bytes: at most {extent_bytes} bytes, an extent, are possible")]
    TooLong {
        /// The requested length in bytes.
        length: u64,
        /// The possible length in bytes.
        extent_bytes: u64,
    },
    /// There is no key to the extent: map it first.
    #[error("{0} is not mapped in this session")]
    NotMapped(ExtentId),
    /// A range was freed twice, or does not belong to this allocator.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// An argument is invalid; the text says what would be valid.
    #[error("{0}")]
    Invalid(String),
    /// The operating system could not start a thread.
    #[error("starting a thread: {0}")]
    Thread(String),
}

impl Error {
    /// Whether the node refused a call and so did nothing. After any other failure of a call, the node may have done
    /// what was asked, or may do it later.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Fabric(forebay_fabric::Error::Remote { .. }))
    }

    /// What the caller must do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Fabric(cause) => cause.kind(),
            Self::Unreachable { kind, .. } => *kind,
            Self::Lapsed { .. } => ErrorKind::Fenced,
            Self::Lost(_) | Self::Reply(_) => ErrorKind::Unavailable,
            Self::Full(_) => ErrorKind::Full,
            Self::TooLong { .. } | Self::NotMapped(_) | Self::Range(_) | Self::Invalid(_) => ErrorKind::Invalid,
            Self::Thread(_) => ErrorKind::Io,
        }
    }
}
