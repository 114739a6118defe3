//! Which way records are gone through.

/// Which way a scan goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the smallest key on.
    Forward,
    /// From the largest key on.
    Backward,
}
