//! Errors of a tree.

use forebay_base::ErrorKind;

/// Why an operation on a tree failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The memory node refused, or is gone, or the session at it ended. Whether an operation that
    /// writes took effect is unknown.
    #[error(transparent)]
    Memory(#[from] forebay_memory_client::Error),
    /// The fabric failed. Whether an operation that writes took effect is unknown.
    #[error(transparent)]
    Fabric(#[from] forebay_fabric::Error),
    /// An argument or an option is wrong; the text says what would be right.
    #[error("{0}")]
    Invalid(String),
    /// Remote memory does not contain what a client of this version wrote there.
    #[error("the tree is corrupt: {0}")]
    Corrupt(String),
    /// The tree of this name is being created: try later. If its creator died, [`Tree::destroy`](crate::Tree::destroy)
    /// frees the name.
    #[error("the tree {0} is being created; if its creator died, destroy it")]
    Unfinished(String),
    /// Other clients kept changing the same place: try later.
    #[error("the operation gave way to others {0} times")]
    Contended(u32),
    /// A test stopped the client here.
    #[error("the client was stopped by its test")]
    Stopped,
}

impl Error {
    /// What the caller must do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Memory(cause) => cause.kind(),
            Self::Fabric(cause) => cause.kind(),
            Self::Invalid(_) => ErrorKind::Invalid,
            Self::Corrupt(_) => ErrorKind::Corrupt,
            Self::Unfinished(_) | Self::Contended(_) => ErrorKind::Busy,
            Self::Stopped => ErrorKind::Closed,
        }
    }

    /// Whether no memory is left, as the node says or this process knows.
    pub(crate) fn is_full(&self) -> bool {
        self.kind() == ErrorKind::Full
    }

    /// Whether callers take it that a write with this error has done nothing.
    pub(crate) fn says_undone(&self) -> bool {
        matches!(self.kind(), ErrorKind::Full | ErrorKind::Invalid | ErrorKind::Busy | ErrorKind::Corrupt)
    }

    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt(what.into())
    }
}
