//! Errors of workloads.

use crate::StoreError;
use forebay_base::ErrorKind;

/// Why a workload ended early.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store refused or failed.
    #[error("{what}: {cause}")]
    Store {
        /// The attempted action.
        what: &'static str,
        /// The store's answer.
        cause: StoreError,
    },
    /// A read returned something other than what was written.
    #[error("verification of {what} failed at key number {key}: {found}")]
    Verification {
        /// The operation.
        what: &'static str,
        /// The key's number.
        key: u64,
        /// The deviation.
        found: String,
    },
    /// A scan returned keys out of order or keys that do not belong to the workload.
    #[error("verification of {what} failed: {found}")]
    Scan {
        /// The operation.
        what: &'static str,
        /// The deviation.
        found: String,
    },
    /// A line of a trace is invalid.
    #[error("{path}, line {line}: {cause}")]
    Trace {
        /// The file.
        path: String,
        /// Number of the line, from 1.
        line: u64,
        /// The fault, and what would be valid.
        cause: String,
    },
    /// A setting is wrong.
    #[error("{0}")]
    Invalid(String),
    /// The operating system refused.
    #[error("{what}: {cause}")]
    Io {
        /// The attempted action.
        what: String,
        /// The operating system's answer.
        cause: String,
    },
    /// A thread of the workload ended without a result.
    #[error("a thread of {0} ended without a result")]
    Thread(String),
}

impl Error {
    /// What the caller must do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Store { cause, .. } => cause.kind,
            Self::Verification { .. } | Self::Scan { .. } => ErrorKind::Corrupt,
            Self::Trace { .. } | Self::Invalid(_) => ErrorKind::Invalid,
            Self::Io { .. } | Self::Thread(_) => ErrorKind::Io,
        }
    }

    /// A failure of the store while it did `what`.
    pub(crate) fn store(what: &'static str) -> impl Fn(StoreError) -> Self {
        move |cause| Self::Store { what, cause }
    }

    /// An operating system error while trying `what`.
    pub(crate) fn io(what: impl Into<String>, cause: impl std::fmt::Display) -> Self {
        Self::Io { what: what.into(), cause: cause.to_string() }
    }
}
