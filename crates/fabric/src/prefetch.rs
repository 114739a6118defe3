//! Asking the processor for memory before it is needed.
//!
//! A prefetch does not wait: the program works on while the lines are on their way. Where the processor has no such
//! instruction, nothing happens.

/// Most cache lines that a call of [`prefetch`] asks for.
const MOST_LINES: usize = 8;
/// A cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// Asks for `bytes`, or the first eight cache lines of them.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    for offset in (0..bytes.len()).step_by(LINE_BYTES).take(MOST_LINES).chain(bytes.len().checked_sub(1)) {
        prefetch_line(bytes.as_ptr().wrapping_add(offset));
    }
}

/// Asks for the cache line at `address`, which may be any address: nothing is read that a program can see.
#[inline]
pub fn prefetch_line(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which touches nothing whatever the address is.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Asks for the line at `address`, which is read only once: the source of a copy does not stay in the caches.
#[inline]
pub(crate) fn prefetch_once(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which touches nothing whatever the address is.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_NTA }>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
