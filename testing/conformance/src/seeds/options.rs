//! The options of a run, and its report.

use forebay_fabric::sim::Plant;

/// Options of a run.
#[derive(Debug, Clone, Copy)]
pub struct SeedOptions {
    /// Fewest operations to post.
    pub operations: u64,
    /// Bytes that land at once.
    pub line_bytes: usize,
    /// A planted bug, which the run should find.
    pub plant: Option<Plant>,
}

/// What a run did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SeedReport {
    /// Operations posted.
    pub operations: u64,
    /// Operations that ended with an error, or never.
    pub failed: u64,
    /// Grants revoked.
    pub revocations: u64,
    /// Lives of the node after the first.
    pub restarts: u64,
    /// Steps of the simulation.
    pub steps: u64,
    /// Hash of all steps.
    pub fingerprint: u64,
}
