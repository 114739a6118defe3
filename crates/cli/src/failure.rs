//! The result of a failed command: one line on standard error and an exit code
//! (`docs/reference/exit-codes.md`).

use forebay_base::ErrorKind;
use forebay_workload::StoreError;
use std::fmt::Display;

/// The progress of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Reading the command line.
    Arguments,
    /// Until the memory node is reached and the store is open.
    Start,
    /// Afterwards.
    Running,
}

/// Why a command failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The kind of the error.
    pub kind: ErrorKind,
    /// The progress of the command.
    pub stage: Stage,
    /// The line for standard error; none when it is empty.
    pub message: String,
}

impl Failure {
    /// A failure of the given kind.
    pub fn new(kind: ErrorKind, stage: Stage, message: impl Display) -> Self {
        Self { kind, stage, message: message.to_string() }
    }

    /// Returns the same failure, with `more` added to its message if it is of this kind.
    pub fn going_on(self, kind: ErrorKind, more: &str) -> Self {
        if self.kind == kind { Self { message: format!("{}{more}", self.message), ..self } } else { self }
    }

    /// The process's exit code.
    pub const fn code(&self) -> u8 {
        exit_code(self.kind, self.stage)
    }

    /// An invalid command line; the message says what would be valid.
    pub fn usage(message: impl Display) -> Self {
        Self::new(ErrorKind::Invalid, Stage::Arguments, message)
    }

    /// An error of a workload.
    pub fn workload(stage: Stage) -> impl Fn(forebay_workload::Error) -> Self {
        move |error| Self::new(error.kind(), stage, error)
    }

    /// A store that could not be closed: its buffered data is lost.
    pub fn closing(cause: StoreError) -> Self {
        Self::workload(Stage::Running)(forebay_workload::Error::Store { what: "closing the store", cause })
    }

    /// An error of the fabric.
    pub fn fabric(stage: Stage) -> impl Fn(forebay_fabric::Error) -> Self {
        move |error| Self::new(error.kind(), stage, error)
    }

    /// A failure without a message: the reader of standard output is gone, as `head` goes, and needs no message.
    pub const fn unheard() -> Self {
        Self { kind: ErrorKind::Io, stage: Stage::Running, message: String::new() }
    }

    /// An operating system error during `what`, which may be reading or writing a file.
    pub fn io(what: impl Display) -> impl Fn(std::io::Error) -> Self {
        move |cause| Self::new(ErrorKind::of_file(cause.kind()), Stage::Running, format_args!("{what}: {cause}"))
    }
}

/// The exit code of an error of this kind at this stage. This is the only table of them.
const fn exit_code(kind: ErrorKind, stage: Stage) -> u8 {
    match (kind, stage) {
        (ErrorKind::Invalid, Stage::Arguments | Stage::Start) => 2,
        (ErrorKind::Unavailable | ErrorKind::TimedOut, Stage::Arguments | Stage::Start) => 3,
        (ErrorKind::Unavailable | ErrorKind::TimedOut, Stage::Running) => 4,
        (ErrorKind::Full, _) => 5,
        (ErrorKind::Corrupt, _) => 6,
        (ErrorKind::Fenced, _) => 7,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_table() {
        let of = |kind| [Stage::Arguments, Stage::Start, Stage::Running].map(|stage| exit_code(kind, stage));
        assert_eq!(of(ErrorKind::Invalid), [2, 2, 1]);
        assert_eq!(of(ErrorKind::Unavailable), [3, 3, 4]);
        assert_eq!(of(ErrorKind::TimedOut), [3, 3, 4]);
        assert_eq!(of(ErrorKind::Full), [5; 3]);
        assert_eq!(of(ErrorKind::Corrupt), [6; 3]);
        assert_eq!(of(ErrorKind::Fenced), [7; 3]);
        for kind in [ErrorKind::NotFound, ErrorKind::AlreadyExists, ErrorKind::Busy, ErrorKind::AccessDenied] {
            assert_eq!(of(kind), [1; 3]);
        }
        for kind in [ErrorKind::Closed, ErrorKind::Io, ErrorKind::Unsupported] {
            assert_eq!(of(kind), [1; 3]);
        }
    }
}
