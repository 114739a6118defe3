//! Copies that go past the caches.
//!
//! A flush copies more than the caches hold, and nobody reads all of it soon. Ordinary stores read each line before they
//! write it, and push out of the caches what others use; these do neither. They are stores of one aligned word each, so
//! words are not torn, but the processor does not keep them in order with others: that is restored before the copy and
//! behind it.

use crate::words::{part_in, part_out, ragged};
use std::sync::atomic::{AtomicU64, Ordering};

/// Copies between memory that others may read and write, past the caches: the lines that are written are not read
/// before, and take no place in a cache.
///
/// # Safety
/// The aligned words that hold the `length` bytes at `from`, and those at `to`, must be valid, the latter writable;
/// this process must only access them as atomic words; and both lie alike within them: `from % 8 == to % 8`.
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    // As in `copy_in`, also for the stores that pass the caches.
    settle();
    std::sync::atomic::fence(Ordering::Release);
    let front = ragged(to.addr(), length);
    // SAFETY: all offsets stay below `length`; words are read and written where both are aligned, and a part never
    // crosses the end of its word.
    unsafe {
        let part = |at: usize, length: usize| {
            let mut bytes = [0; 8];
            part_out(from.add(at), bytes.as_mut_ptr(), length);
            part_in(bytes.as_ptr(), to.add(at), length);
        };
        let word = |at: usize| (*from.add(at).cast::<AtomicU64>()).load(Ordering::Relaxed);
        if front > 0 {
            part(0, front);
        }
        let mut at = front;
        while at + 64 <= length {
            let words: [u64; 8] = std::array::from_fn(|i| word(at + 8 * i));
            for (i, word) in words.into_iter().enumerate() {
                store_past_caches(to.add(at + 8 * i).cast(), word);
            }
            at += 64;
        }
        while at + 8 <= length {
            store_past_caches(to.add(at).cast(), word(at));
            at += 8;
        }
        if at < length {
            part(at, length - at);
        }
    }
    // As in `copy_out`; and whoever is told that the copy is done sees all of it.
    std::sync::atomic::fence(Ordering::Acquire);
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
        (*to.cast::<AtomicU64>()).store(word, Ordering::Relaxed);
    }
}

/// Orders stores that go past the caches with those before and behind them.
#[inline]
fn settle() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: it touches nothing.
    unsafe {
        std::arch::asm!("sfence", options(nostack, preserves_flags));
    }
}
