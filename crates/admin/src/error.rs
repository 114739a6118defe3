//! Errors of a listener for operators, and of a process that asks one.

use forebay::ErrorKind;
use std::fmt::{Display, Formatter};

/// Why a listener could not start, or did not answer. [`Error::kind`] says what the caller must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

impl Error {
    /// Returns what the caller must do.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    pub(crate) fn io(what: impl Display) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self { kind: ErrorKind::Io, message: format!("{what}: {error}") }
    }

    pub(crate) fn unavailable(address: &str, why: impl Display) -> Self {
        Self { kind: ErrorKind::Unavailable, message: format!("{address}: {why}") }
    }

    pub(crate) fn corrupt(address: &str, why: impl Display) -> Self {
        Self {
            kind: ErrorKind::Corrupt,
            message: format!("{address} answers with something else than a status: {why}"),
        }
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
