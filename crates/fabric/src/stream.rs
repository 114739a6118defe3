//! Copies that bypass the caches.
//!
//! A flush copies more than the caches hold, and nobody reads all of it soon. Ordinary stores read each line before they
//! write it, and evict from the caches what others use; these stores do neither. Each stores one aligned word, so words
//! are not torn, but the processor does not keep them in order with other stores. Fences before and after the copy
//! restore the order.

use crate::words::copy_across;
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use crate::words::store_word;

/// Copies between memory that others may read and write, and bypasses the caches: the lines written are not read first,
/// and take no place in a cache.
///
/// # Safety
/// The aligned words that hold the `length` bytes at `from`, and those at `to`, must be valid, the latter writable;
/// this process must only access them as atomic words; and both lie alike within them: `from % 8 == to % 8`.
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    settle();
    // SAFETY: the caller's contract; the words that are stored to are those of the copy.
    unsafe { copy_across(from, to, length, |to, word| store_past_caches(to, word)) };
    // A thread that is told that the copy is done sees all of it.
    settle();
}

/// Stores a word without bringing its line into a cache. Other stores may pass it until [`settle`].
///
/// # Safety
/// `to` must be aligned, valid for writes, and only be accessed atomically by this process.
#[inline]
unsafe fn store_past_caches(to: *mut u64, word: u64) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: it does what a relaxed store of the word does, which the caller allows; like that it is never torn.
    unsafe {
        std::arch::asm!("movnti [{to}], {word}", to = in(reg) to, word = in(reg) word, options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller's contract.
    unsafe {
        store_word(to, word);
    }
}

/// Orders stores that bypass the caches with the stores before and after them.
#[inline]
fn settle() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: it touches nothing.
    unsafe {
        std::arch::asm!("sfence", options(nostack, preserves_flags));
    }
}
