//! Why an attempt, or a call, failed.

use forebay_base::ErrorKind;

/// Why an attempt, or a call, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A memory node refused, or is gone.
    #[error(transparent)]
    Node(#[from] forebay_memory_client::Error),
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] forebay_fabric::Error),
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] forebay_storage::Error),
    /// The job failed.
    #[error(transparent)]
    Job(#[from] forebay_table::Error),
    /// The job is not one that this worker can run.
    #[error("{0}")]
    Unsupported(String),
    /// What was read is not what was written.
    #[error("{0}")]
    Corrupt(String),
    /// The job panicked.
    #[error("the job panicked, which is an error of this worker")]
    Panicked,
    /// The operating system could not start a thread.
    #[error("starting a thread: {0}")]
    Thread(String),
}

impl Error {
    /// Returns what the caller must do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Node(error) => error.kind(),
            Self::Fabric(error) => error.kind(),
            Self::Job(error) => error.kind(),
            Self::Storage(error) => error.kind(),
            Self::Unsupported(_) => ErrorKind::Unsupported,
            Self::Corrupt(_) => ErrorKind::Corrupt,
            Self::Panicked | Self::Thread(_) => ErrorKind::Io,
        }
    }
}
