//! How a command ends.

/// Why a command ended without success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A check failed, or could not be run.
    Failed(String),
    /// The command line is wrong.
    Usage(String),
}

pub(crate) type Outcome = Result<(), Failure>;
