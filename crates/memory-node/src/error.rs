//! Errors of a memory node.

use forebay_base::ErrorKind;

/// Why a memory node cannot start, or why it stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option is invalid; the text says what would be valid.
    #[error("{0}")]
    Options(String),
    /// The fabric failed.
    #[error("{what}: {cause}")]
    Fabric {
        /// The attempted action.
        what: &'static str,
        /// The fabric's error.
        cause: forebay_fabric::Error,
    },
    /// The operating system could not start a thread.
    #[error("starting a thread: {0}")]
    Thread(String),
    /// A thread of the node ended by a panic.
    #[error("a thread of the node ended by a panic")]
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
