//! Errors of the engine.

use forebay_base::ErrorKind;
use std::sync::Arc;

/// The result of a call of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. [`Error::kind`] says what the caller must do. Cheap to clone, because a
/// failure of background work goes to every caller that it concerns.
#[derive(Debug, Clone)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    is_published: bool,
}

impl Error {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None, is_published: false }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    pub(crate) fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    pub(crate) fn closed() -> Self {
        Self::new(ErrorKind::Closed, "the database is closed")
    }

    /// A thread that does this (`reads a log`) panicked, which is a bug.
    pub(crate) fn panicked(what: &str) -> Self {
        Self::new(ErrorKind::Io, format!("a thread that {what} panicked, which is a bug: report it"))
    }

    /// The system refused a thread.
    pub(crate) fn no_thread(error: &std::io::Error) -> Self {
        Self::new(ErrorKind::Io, format!("starting a thread: {error}"))
    }

    fn from_source(kind: ErrorKind, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { kind, message: source.to_string(), source: Some(Arc::new(source)), is_published: false }
    }

    /// Whether the write that failed is visible all the same: it was not made durable, and it may survive. Of any other write that
    /// failed nothing is visible.
    #[must_use]
    pub const fn is_published(&self) -> bool {
        self.is_published
    }

    /// The same error, for a write that is visible.
    pub(crate) const fn of_published(mut self) -> Self {
        self.is_published = true;
        self
    }

    /// Whether storage failed, and not the memory nodes or the fabric.
    #[must_use]
    pub fn is_of_storage(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.is::<forebay_storage::Error>())
    }

    /// A register of memory nodes did not take what was to be written.
    pub(crate) fn of_register(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: Some(Arc::new(OfRegister)), is_published: false }
    }

    /// Whether the register of copies failed, in memory nodes or in storage, and not a node that holds the copies.
    pub(crate) fn is_of_register(&self) -> bool {
        self.is_of_storage() || self.source.as_ref().is_some_and(|source| source.is::<OfRegister>())
    }

    /// Whether memory nodes had no memory. Full storage is something else: memory that comes back does not help, and
    /// work that needs less memory does not either.
    pub(crate) fn is_of_full_memory(&self) -> bool {
        self.kind == ErrorKind::Full && !self.is_of_register()
    }

    /// A member of a shard was to be read, and has no copy of `what`.
    pub(crate) fn not_held(what: impl std::fmt::Display, node: impl std::fmt::Display) -> Self {
        let message = format!("{what} has no copy at {node}");
        Self { message, ..Self::from_source(ErrorKind::Unavailable, NotHeld) }
    }

    /// Whether a member had no copy: another one may have it.
    pub(crate) fn is_not_held(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.is::<NotHeld>())
    }

    /// Whether the one that was asked is not there, or does not answer: another one may.
    pub(crate) const fn is_out_of_reach(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::TimedOut)
    }

    /// The same error with a note of what was being done.
    pub(crate) fn during(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// The same error with what followed from it.
    pub(crate) fn and(mut self, what: &str) -> Self {
        self.message = format!("{}; {what}", self.message);
        self
    }
}

/// The cause of [`Error::of_register`].
#[derive(Debug, thiserror::Error)]
#[error("too few memory nodes took it")]
struct OfRegister;

/// The cause of [`Error::not_held`].
#[derive(Debug, thiserror::Error)]
#[error("the member has joined since")]
struct NotHeld;

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl From<forebay_fabric::Error> for Error {
    fn from(error: forebay_fabric::Error) -> Self {
        Self::from_source(error.kind(), error)
    }
}

impl From<forebay_memory_client::Error> for Error {
    fn from(error: forebay_memory_client::Error) -> Self {
        Self::from_source(error.kind(), error)
    }
}

impl From<forebay_memtable::MemtableError> for Error {
    fn from(error: forebay_memtable::MemtableError) -> Self {
        Self::from_source(error.kind(), error)
    }
}

impl From<forebay_memtable::IndexError> for Error {
    fn from(error: forebay_memtable::IndexError) -> Self {
        Self::from_source(error.kind(), error)
    }
}

impl From<forebay_table::Error> for Error {
    fn from(error: forebay_table::Error) -> Self {
        Self::from_source(error.kind(), error)
    }
}

impl From<forebay_storage::Error> for Error {
    fn from(error: forebay_storage::Error) -> Self {
        Self::from_source(error.kind(), error)
    }
}

impl From<forebay_base::RecordError> for Error {
    fn from(error: forebay_base::RecordError) -> Self {
        Self::from_source(ErrorKind::Corrupt, error)
    }
}
