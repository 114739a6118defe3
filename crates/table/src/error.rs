//! What can go wrong with tables, versions and jobs.

use crate::version::VersionError;
use forebay_base::{DecodeError, ErrorKind, LogicalAddress, RecordError};
use thiserror::Error;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a table, a version edit or a job could not be built, read or run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// Bytes are not what was written.
    #[error("{what} is damaged: {cause}")]
    Damaged {
        /// What was decoded.
        what: &'static str,
        /// What is wrong with it.
        cause: DecodeError,
    },
    /// The bytes are sound on their own but contradict each other or their place.
    #[error("{what} is inconsistent: {detail}")]
    Inconsistent {
        /// What was decoded.
        what: &'static str,
        /// The contradiction.
        detail: &'static str,
    },
    /// A format version, flag or mandatory field that this build does not know.
    #[error("{what} uses {feature} {number}, which this build does not know")]
    Unknown {
        /// What was decoded.
        what: &'static str,
        /// What sort of thing is unknown.
        feature: &'static str,
        /// Its number.
        number: u64,
    },
    /// The record at an address is not the one that the index names.
    #[error("the record at {address} is not the one that the index names: {cause}")]
    BadRecord {
        /// Where the record should be.
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
        /// Bytes asked for in all.
        needed: u64,
        /// Bytes allowed.
        budget: u64,
    },
    /// The owner of the job asked it to stop.
    #[error("the job was cancelled")]
    Cancelled,
    /// A job's input or output failed.
    #[error("{message}")]
    Io {
        /// What the caller must do.
        kind: ErrorKind,
        /// What failed.
        message: String,
    },
    /// A version edit does not fit its version.
    #[error(transparent)]
    Version(#[from] VersionError),
}

/// How a record differs from its index entry.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecordMismatch {
    /// It is no record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Its sequence number, kind or expiry is another.
    #[error("its tag or expiry is another")]
    Tag,
    /// Its key is another.
    #[error("its key is another")]
    Key,
    /// Its length is another.
    #[error("its length is another")]
    Length,
}

impl Error {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Damaged { .. } | Self::Inconsistent { .. } | Self::BadRecord { .. } => ErrorKind::Corrupt,
            Self::Unknown { .. } => ErrorKind::Unsupported,
            Self::Invalid(_) => ErrorKind::Invalid,
            Self::OverBudget { .. } => ErrorKind::Full,
            Self::Cancelled => ErrorKind::Closed,
            Self::Io { kind, .. } => *kind,
            Self::Version(error) => error.kind(),
        }
    }
}

/// Names what was being decoded when bytes turned out to be damaged.
pub(crate) trait Context<T> {
    fn context(self, what: &'static str) -> Result<T>;
}

impl<T> Context<T> for std::result::Result<T, DecodeError> {
    fn context(self, what: &'static str) -> Result<T> {
        self.map_err(|cause| Error::Damaged { what, cause })
    }
}
