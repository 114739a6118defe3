//! The crate's error: what the caller must do, and where in the dump the error is.

use forebay::ErrorKind;
use std::fmt;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a dump could not be written or loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    is_of_lost_reader: bool,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), is_of_lost_reader: false }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    pub(crate) fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    pub(crate) fn io(what: impl fmt::Display, cause: &std::io::Error) -> Self {
        let is_of_lost_reader = cause.kind() == std::io::ErrorKind::BrokenPipe;
        Self { is_of_lost_reader, ..Self::new(ErrorKind::of_file(cause.kind()), format!("{what}: {cause}")) }
    }

    /// Returns the same error, with the place where it was found.
    pub(crate) fn at(self, place: impl fmt::Display) -> Self {
        Self { message: format!("{place}: {}", self.message), ..self }
    }

    /// Returns the same error, with its consequence.
    pub(crate) fn and(self, what: impl fmt::Display) -> Self {
        Self { message: format!("{}; {what}", self.message), ..self }
    }

    /// Whether the reader of the output is gone.
    #[must_use]
    pub const fn is_of_lost_reader(&self) -> bool {
        self.is_of_lost_reader
    }

    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<forebay::EngineError> for Error {
    fn from(error: forebay::EngineError) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}
