//! Errors on their way to C: a line of text that begins with LevelDB's class of errors, and a number.

use forebay::{EngineError, Error, ErrorKind, Options};
use std::cell::Cell;

thread_local! {
    /// The number of the last error of this thread.
    static LAST: Cell<u8> = const { Cell::new(0) };
}

/// Why a call failed.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    kind: ErrorKind,
    class: &'static str,
    message: String,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, class: class(kind), message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    pub(crate) const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Turns this into an error of opening a database. LevelDB reports a database that exists or is missing against the
    /// options as a wrong argument. If the options do not forbid it, something else was missing. The cause stays: a part of
    /// the database may be missing, or another one may exist.
    pub(crate) fn of_opening(mut self, name: &str, options: &Options) -> Self {
        let why = match self.kind {
            ErrorKind::NotFound if !options.create_if_missing => "does not exist (create_if_missing is false)",
            ErrorKind::AlreadyExists if options.error_if_exists => "exists (error_if_exists is true)",
            _ => return self,
        };
        self.class = class(ErrorKind::Invalid);
        self.message = format!("{name}: {why}: {}", self.message);
        self
    }

    /// Makes this the last error of the thread.
    pub(crate) fn remember(&self) {
        LAST.set(self.kind.code());
    }

    /// The text for C, which has no zero byte inside.
    pub(crate) fn text(&self) -> String {
        format!("{}: {}", self.class, self.message).replace('\0', "\u{fffd}")
    }
}

/// The number of the last error of this thread; 0 before the first.
pub(crate) fn last() -> u8 {
    LAST.get()
}

/// LevelDB's name for the class that an error belongs to. It has five.
const fn class(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "NotFound",
        ErrorKind::Corrupt => "Corruption",
        ErrorKind::Unsupported => "Not implemented",
        ErrorKind::Invalid | ErrorKind::AlreadyExists => "Invalid argument",
        _ => "IO error",
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_names_the_option_that_forbids_it() {
        let of = |kind, create_if_missing, error_if_exists| {
            let options = Options { create_if_missing, error_if_exists, ..Options::default() };
            Failure::new(kind, "the cause").of_opening("name", &options).text()
        };
        let missing = "Invalid argument: name: does not exist (create_if_missing is false): the cause";
        let there = "Invalid argument: name: exists (error_if_exists is true): the cause";
        assert_eq!(of(ErrorKind::NotFound, false, false), missing);
        assert_eq!(of(ErrorKind::NotFound, true, true), "NotFound: the cause");
        assert_eq!(of(ErrorKind::AlreadyExists, true, true), there);
        assert_eq!(of(ErrorKind::AlreadyExists, false, false), "Invalid argument: the cause");
        assert_eq!(of(ErrorKind::Io, false, true), "IO error: the cause");
    }
}
