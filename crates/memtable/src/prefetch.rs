//! Prefetching of memory.

#[cfg(not(any(loom, shuttle)))]
pub(crate) use forebay_fabric::prefetch_line as prefetch;

/// The model checkers build without the fabric, and gain nothing from prefetching.
#[cfg(any(loom, shuttle))]
pub(crate) fn prefetch(_address: *const u8) {}
