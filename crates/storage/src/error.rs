//! The crate's error: what failed, on which object, and what the caller must do.

use forebay_base::{DecodeError, ErrorKind};
use std::fmt;
use std::io;

/// Result of a storage operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation on storage failed. Cheap to clone: all waiters of one group get the same.
///
/// | kind | the caller must |
/// |---|---|
/// | `Invalid` | change the call |
/// | `NotFound`, `AlreadyExists` | take it as an answer |
/// | `Busy` | try again later; this attempt did nothing, but an earlier one within the same call may have |
/// | `Unavailable`, `TimedOut`, `Io` | try again, knowing that a write may have taken effect ([`Error::is_undecided`]) |
/// | `Full` | make room; reads continue, and what was refused can be tried again |
/// | `AccessDenied` | correct credentials or permissions |
/// | `Fenced` | stop: another writer took over |
/// | `Corrupt` | restore what is named |
/// | `Closed` | open again: a sync failed, and what it covered may be lost |
/// | `Unsupported` | use a build or a back end that can |
#[derive(Debug, Clone, thiserror::Error)]
pub struct Error {
    kind: ErrorKind,
    operation: &'static str,
    object: String,
    detail: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, operation, object, detail } = self;
        write!(f, "{operation} of {object}: {kind}: {detail}")
    }
}

impl Error {
    /// An error of `kind` while `operation` was done on `object`.
    pub fn new(kind: ErrorKind, operation: &'static str, object: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind, operation, object: object.into(), detail: detail.into() }
    }

    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The object, file or log that the error concerns.
    #[must_use]
    pub fn object(&self) -> &str {
        &self.object
    }

    /// What happened, without what was being done.
    pub(crate) fn cause(&self) -> String {
        format!("{}: {}", self.kind, self.detail)
    }

    /// Whether this operation failed.
    pub(crate) fn is_of(&self, operation: &str) -> bool {
        self.operation == operation
    }

    /// Whether the same call may succeed later with nothing changed by the caller.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self.kind, ErrorKind::Busy | ErrorKind::Unavailable | ErrorKind::TimedOut)
    }

    /// Whether a write that failed with this error may have taken effect, or may later.
    #[must_use]
    pub const fn is_undecided(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::TimedOut | ErrorKind::Io)
    }

    /// The same failure as `kind`, with a note of what it means.
    pub(crate) fn meaning(self, kind: ErrorKind, note: &str) -> Self {
        Self { kind, detail: format!("{note}: {}", self.detail), ..self }
    }

    /// The error for a back end that this build does not have.
    pub(crate) fn not_built(url: &str, feature: &str) -> Self {
        let detail = format!("this build does not have it: build with the feature `{feature}` of forebay-storage");
        Self::new(ErrorKind::Unsupported, "open", url, detail)
    }

    pub(crate) fn corrupt(object: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, "read", object, detail)
    }

    /// `Unsupported` for what a newer build wrote, else `Corrupt`.
    pub(crate) fn decode(object: impl Into<String>, cause: &DecodeError) -> Self {
        Self::new(cause.kind(), "read", object, cause.to_string())
    }

    pub(crate) fn io(operation: &'static str, object: impl Into<String>, cause: &io::Error) -> Self {
        Self::new(ErrorKind::of_file(cause.kind()), operation, object, cause.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_object() {
        let error = Error::new(ErrorKind::Full, "put", "table/7", "no space is left");
        assert_eq!(error.to_string(), "put of table/7: full: no space is left");
        assert!(!error.is_transient() && !error.is_undecided());
    }
}
