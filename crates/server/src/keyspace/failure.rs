//! Why a command failed.

use forebay::ErrorKind;
use std::borrow::Cow;

/// Why a command failed: the text of its error reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    text: Cow<'static, str>,
    kind: ErrorKind,
    reach: Reach,
}

/// How much failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// One command failed.
    Command,
    /// All of the run failed, usually because the store did.
    Run,
    /// All of the run failed, because it is too large for one batch, its replies are too long, or something that it
    /// would write is too long for the store. Nothing was written.
    Batch,
    /// All of the run failed, because one of its commands takes long. Nothing was written.
    Long,
}

/// The result of a command.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// The key's value is of another type than the command is for.
    pub const WRONG_TYPE: Self = Self::text("WRONGTYPE Operation against a key holding the wrong kind of value");
    /// The arguments are not what the command takes.
    pub const SYNTAX: Self = Self::text("ERR syntax error");
    /// An argument is no integer of 64 bits.
    pub const NOT_INTEGER: Self = Self::text("ERR value is not an integer or out of range");
    /// An argument is no floating-point number.
    pub const NOT_FLOAT: Self = Self::text("ERR value is not a valid float");
    /// The key that must exist does not.
    pub const NO_SUCH_KEY: Self = Self::text("ERR no such key");
    /// An index is out of range.
    pub const OUT_OF_RANGE: Self = Self::text("ERR index out of range");

    /// A run's replies would be longer than they may be.
    pub const REPLY_TOO_LONG: Self = Self {
        text: Cow::Borrowed("ERR too much is replied at once: at most 512 MiB"),
        kind: ErrorKind::Io,
        reach: Reach::Batch,
    };

    /// A command takes more steps than it may in the thread where it was begun. Clients do not see this failure.
    pub const LONG: Self = Self {
        text: Cow::Borrowed("ERR the command takes too long to be carried out here"),
        kind: ErrorKind::Io,
        reach: Reach::Long,
    };

    /// A failure with this text, which begins with a code in capitals.
    #[must_use]
    pub const fn text(text: &'static str) -> Self {
        Self { text: Cow::Borrowed(text), kind: ErrorKind::Io, reach: Reach::Command }
    }

    /// A failure with this text, which begins with a code in capitals.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self { text: Cow::Owned(text), kind: ErrorKind::Io, reach: Reach::Command }
    }

    /// A failure that takes back all of the run.
    #[must_use]
    pub fn of_run(text: String) -> Self {
        Self { reach: Reach::Run, ..Self::new(text) }
    }

    /// A failure that takes back all of the run, which is too large for one batch, or has something that is too long.
    #[must_use]
    pub fn of_batch(text: String) -> Self {
        Self { reach: Reach::Batch, ..Self::new(text) }
    }

    /// The failure of a run that writes more than one batch may hold, which takes back all of the run.
    #[must_use]
    pub fn too_much_written() -> Self {
        Self::of_batch(format!("ERR too much is written at once: at most {} MiB", forebay::MAX_BATCH_BYTES >> 20))
    }

    /// What the store holds cannot be understood.
    #[must_use]
    pub fn damaged(what: &'static str) -> Self {
        Self::of_run(format!("ERR storage: {what}"))
    }

    /// The failure of a run whose writes are in the store, but not durable.
    #[must_use]
    pub fn of_durability(error: &forebay::Error) -> Self {
        let text = format!("ERR storage failed, and the write may have taken effect: {error}");
        Self { kind: error.kind(), ..Self::of_run(text) }
    }

    /// Whether all of the run failed, usually because the store did, and not one command.
    #[must_use]
    pub const fn is_of_store(&self) -> bool {
        !matches!(self.reach, Reach::Command)
    }

    /// Whether the run failed because it, or something in it, is too large: fewer commands may succeed.
    #[must_use]
    pub const fn is_of_batch(&self) -> bool {
        matches!(self.reach, Reach::Batch)
    }

    /// Whether the run failed because one of its commands takes long: it must be carried out in another thread.
    #[must_use]
    pub const fn is_of_length(&self) -> bool {
        matches!(self.reach, Reach::Long)
    }

    /// What the operator of the server must do: the kind of the database's error, or else `Io`.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The text of the reply.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.text
    }
}

impl From<forebay::Error> for Failure {
    fn from(error: forebay::Error) -> Self {
        let failure = match error.kind() {
            ErrorKind::Full if error.is_of_storage() => Self::of_run(format!("ERR storage is full: {error}")),
            ErrorKind::Full => Self::of_run("OOM command not allowed when used memory > 'maxmemory'.".into()),
            ErrorKind::Invalid => Self::of_batch(format!("ERR storage: {error}")),
            _ => Self::of_run(format!("ERR storage: {error}")),
        };
        Self { kind: error.kind(), ..failure }
    }
}
