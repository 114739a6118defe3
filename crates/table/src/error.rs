//! Errors of tables, versions and jobs.

use forebay_base::{DecodeError, ErrorKind, LogicalAddress, RecordError};
use thiserror::Error;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a table, a version edit or a job could not be built, read or run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// The bytes read are not the bytes written.
    #[error("{what} is damaged: {cause}")]
    Damaged {
        /// The decoded structure.
        what: &'static str,
        /// What is wrong with it.
        cause: DecodeError,
    },
    /// The bytes are sound on their own but contradict each other or their place.
    #[error("{what} is inconsistent: {detail}")]
    Inconsistent {
        /// The decoded structure.
        what: &'static str,
        /// The contradiction.
        detail: &'static str,
    },
    /// A format version, flag or mandatory field that this build does not know.
    #[error("{what} uses {feature} {number}, which this build does not know")]
    Unknown {
        /// The decoded structure.
        what: &'static str,
        /// The kind of the unknown item.
        feature: &'static str,
        /// Its number.
        number: u64,
    },
    /// The record at an address is not the one that the index names.
    #[error("the record at {address} is not the one that the index names: {cause}")]
    BadRecord {
        /// The address of the record.
        address: LogicalAddress,
        /// What is wrong with it.
        cause: RecordMismatch,
    },
    /// The call is wrong.
    #[error("{0}")]
    Invalid(&'static str),
    /// A job would write more than its budget allows.
    #[error("the job needs {needed} bytes of output, its budget is {budget} bytes")]
    OverBudget {
        /// Total bytes requested.
        needed: u64,
        /// Bytes allowed.
        budget: u64,
    },
    /// This process knows no operator of this name.
    #[error("the merge operator {0:?} is not known here: register it under this name where the database is opened")]
    UnknownOperator(String),
    /// A built-in operator has this name.
    #[error(
        "the merge operator {0:?} is built in, and memory nodes and workers run that one: register yours under another name"
    )]
    BuiltInOperator(String),
    /// The owner of the job asked it to stop.
    #[error("the job was cancelled")]
    Cancelled,
    /// A job's input or output failed.
    #[error("{message}")]
    Io {
        /// The action that the caller must take.
        kind: ErrorKind,
        /// The failed action.
        message: String,
    },
    /// A version edit does not fit its version.
    #[error(transparent)]
    Version(#[from] VersionError),
}

/// Why an edit does not fit its version, or a version is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum VersionError {
    /// The edit changes something unchangeable, or names something that does not exist.
    #[error("the edit does not fit: {0}")]
    Misfit(String),
    /// The edit carries an older epoch.
    #[error("the edit has epoch {found}, the version has {current}")]
    Fenced {
        /// The version's epoch.
        current: u64,
        /// The edit's epoch.
        found: u64,
    },
    /// An invariant does not hold.
    #[error("invariant {number} of versions does not hold: {detail}")]
    Broken {
        /// Number of the invariant in the list of [`version`](crate::version).
        number: u8,
        /// The violation.
        detail: String,
    },
}

impl VersionError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Fenced { .. } => ErrorKind::Fenced,
            Self::Misfit(_) | Self::Broken { .. } => ErrorKind::Corrupt,
        }
    }
}

/// How a record differs from its index entry.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecordMismatch {
    /// It is not a record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Its sequence number, kind or expiry differs.
    #[error("its tag or expiry is another")]
    Tag,
    /// Its key differs.
    #[error("its key is another")]
    Key,
    /// Its length differs.
    #[error("its length is another")]
    Length,
}

impl Error {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Damaged { .. } | Self::Inconsistent { .. } | Self::BadRecord { .. } => ErrorKind::Corrupt,
            Self::Unknown { .. } | Self::UnknownOperator(_) => ErrorKind::Unsupported,
            Self::Invalid(_) | Self::BuiltInOperator(_) => ErrorKind::Invalid,
            Self::OverBudget { .. } => ErrorKind::Full,
            Self::Cancelled => ErrorKind::Closed,
            Self::Io { kind, .. } => *kind,
            Self::Version(error) => error.kind(),
        }
    }
}

/// Adds the name of the decoded structure to errors about damaged bytes.
pub(crate) trait Context<T> {
    fn context(self, what: &'static str) -> Result<T>;
}

impl<T> Context<T> for std::result::Result<T, DecodeError> {
    fn context(self, what: &'static str) -> Result<T> {
        self.map_err(|cause| match cause {
            DecodeError::Unknown { what, feature, number } => Error::Unknown { what, feature, number },
            cause => Error::Damaged { what, cause },
        })
    }
}
