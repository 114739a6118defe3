//! A value on a cache line of its own.

/// Keeps what many threads write from sharing a line (two, with adjacent-line prefetch) with
/// anything else.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);
