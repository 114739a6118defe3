//! Asking the processor for memory before it is needed.
//!
//! It does not wait: what is done between this and the use is done while the lines are on their way. Where there is
//! no such instruction, nothing happens.

/// Cache lines that a call of [`prefetch`] asks for at most.
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

/// Asks for the cache line at `address`, which may be any: nothing is read that a program can see.
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

/// Asks for the line at `address`, which is looked at once: what is copied from there does not stay in the caches.
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
