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
        /// What was tried.
        what: &'static str,
        /// The store's answer.
        cause: StoreError,
    },
    /// A read gave something else than what was written.
    #[error("verification of {what} failed at key number {key}: {found}")]
    Verification {
        /// Which operation.
        what: &'static str,
        /// The key's number.
        key: u64,
        /// What was wrong.
        found: String,
    },
    /// A scan gave keys that are out of order or no keys of the workload.
    #[error("verification of {what} failed: {found}")]
    Scan {
        /// Which operation.
        what: &'static str,
        /// What was wrong.
        found: String,
    },
    /// A line of a trace cannot be understood.
    #[error("{path}, line {line}: {cause}")]
    Trace {
        /// The file.
        path: String,
        /// Line, from 1.
        line: u64,
        /// What is wrong, and what would be right.
        cause: String,
    },
    /// A setting is wrong.
    #[error("{0}")]
    Invalid(String),
    /// The operating system refused.
    #[error("{what}: {cause}")]
    Io {
        /// What was tried.
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
