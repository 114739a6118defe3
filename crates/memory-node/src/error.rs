//! Errors of a memory node.

use forebay_base::ErrorKind;

/// Why a memory node cannot start, or stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option is wrong; says what would be right.
    #[error("{0}")]
    Options(String),
    /// The fabric failed.
    #[error("{what}: {cause}")]
    Fabric {
        /// What was tried.
        what: &'static str,
        /// The fabric's error.
        cause: forebay_fabric::Error,
    },
    /// The operating system gave no thread.
    #[error("starting a thread: {0}")]
    Thread(String),
    /// The node's thread ended by a panic.
    #[error("the node's thread ended by a panic")]
    Panicked,
}

impl Error {
    /// What the caller must do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Options(_) => ErrorKind::Invalid,
            Self::Fabric { cause, .. } => cause.kind(),
            Self::Thread(_) => ErrorKind::Io,
            Self::Panicked => ErrorKind::Unavailable,
        }
    }
}
