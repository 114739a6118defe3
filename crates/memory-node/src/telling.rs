//! What the log is told of that happens again and again.

/// Whether the `count`th occurrence of something gets a line in the log, which nobody can fill by doing wrong often.
pub(crate) const fn is_told(count: u64) -> bool {
    count <= 8 || count.is_power_of_two()
}
