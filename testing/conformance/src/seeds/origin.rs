//! When an operation was posted, and by whom.

/// A moment: how many posts and completions there were before.
pub type Moment = u64;

/// The endpoint that posted an operation, and the operation's number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The endpoint, of all that were ever opened in the run.
    pub endpoint: u32,
    /// Counted up with each of its operations.
    pub sequence: u64,
}
