//! A value with a cache line of its own.

/// Separates a value that many threads write from everything else on its cache line (two lines,
/// with adjacent-line prefetch).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);
