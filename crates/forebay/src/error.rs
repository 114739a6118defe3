//! Errors of this crate: those of the layers below, and errors about addresses.

use forebay_base::ErrorKind;

/// Why a call failed. [`Error::kind`] says what the caller must do.
#[derive(Debug, Clone)]
pub enum Error {
    /// An address is invalid.
    Address(String),
    /// The database failed.
    Engine(forebay_engine::Error),
    /// A database was dropped, but memory nodes that were not reached may still have a part of it. The text names these
    /// nodes.
    Left(String),
    /// The layers below failed before there was a database.
    Below {
        /// The action that the caller must take.
        kind: ErrorKind,
        /// The failed action.
        message: String,
    },
}

impl Error {
    /// Returns what the caller must do.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Address(_) => ErrorKind::Invalid,
            Self::Left(_) => ErrorKind::Unavailable,
            Self::Engine(error) => error.kind(),
            Self::Below { kind, .. } => *kind,
        }
    }

    /// Whether the failed write is visible all the same: it was not made durable, and it may survive. Any other failed
    /// write is not visible at all.
    #[must_use]
    pub const fn is_published(&self) -> bool {
        matches!(self, Self::Engine(error) if error.is_published())
    }

    /// Whether storage failed, and not the memory nodes or the fabric.
    #[must_use]
    pub fn is_of_storage(&self) -> bool {
        matches!(self, Self::Engine(error) if error.is_of_storage())
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(message) | Self::Left(message) | Self::Below { message, .. } => f.write_str(message),
            Self::Engine(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Engine(error) => Some(error),
            Self::Address(_) | Self::Left(_) | Self::Below { .. } => None,
        }
    }
}

impl From<forebay_engine::Error> for Error {
    fn from(error: forebay_engine::Error) -> Self {
        Self::Engine(error)
    }
}

macro_rules! from_below {
    ($($error:ty),*) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::Below { kind: error.kind(), message: error.to_string() }
            }
        }
    )*};
}

from_below!(forebay_fabric::Error, forebay_memory_client::Error, forebay_memory_node::Error, forebay_tree::Error);
