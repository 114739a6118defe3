//! Which of many occurrences of one event the log mentions.

/// Whether the `count`th occurrence of something gets a line in the log. So nobody can fill the log by repeating an
/// error.
pub(crate) const fn is_told(count: u64) -> bool {
    count <= 8 || count.is_power_of_two()
}
