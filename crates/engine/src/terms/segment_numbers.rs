//! How segments are numbered.

/// Numbers reserved for the segments of one job. They begin at a multiple of this, so segment numbers show whether the
/// same job made two segments.
pub(crate) const NUMBERS_OF_A_JOB: u64 = 1 << 16;
