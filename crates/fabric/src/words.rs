//! Copying between private memory and memory that others may write at the same time.
//!
//! Shared memory is touched only through aligned 8-byte atomic words (relaxed). A ragged front or end is part of a
//! word: it is read with the whole word, and written by compare and swap. So an aligned word is never torn, and the
//! bytes beside those written stay. No access is a data race within this process; atomic accesses of different sizes to
//! the same bytes would be one. What another process does to shared pages is outside the language's model; the
//! machine's model is the same. The private side of a copy is ordinary memory.

use crate::prefetch::prefetch_once;
use std::sync::atomic::{AtomicU64, Ordering};

/// How far ahead a long copy prefetches lines. The processor's own prefetching ends with each page of 4 KiB.
const AHEAD_BYTES: usize = 8 << 10;

/// Bytes before the next multiple of 8.
#[inline]
pub(crate) fn ragged(address: usize, length: usize) -> usize {
    (address.wrapping_neg() & 7).min(length)
}

/// Copies from memory that others may write.
///
/// # Safety
/// The aligned words that hold the `length` bytes at `shared` must be valid, and this process must only
/// access them as atomic words; `private` must be valid for writes of `length` bytes and not overlap.
#[inline]
pub(crate) unsafe fn copy_out(shared: *const u8, private: *mut u8, length: usize) {
    let front = ragged(shared.addr(), length);
    // SAFETY: all offsets stay below `length`; words are read where `shared` is aligned, and a part
    // never crosses the end of its word.
    unsafe {
        if front > 0 {
            part_out(shared, private, front);
        }
        let mut at = front;
        let word = |at: usize| (*shared.add(at).cast::<AtomicU64>()).load(Ordering::Relaxed);
        let eight_words = |at: usize| {
            let words = [
                word(at),
                word(at + 8),
                word(at + 16),
                word(at + 24),
                word(at + 32),
                word(at + 40),
                word(at + 48),
                word(at + 56),
            ];
            private.add(at).cast::<[u64; 8]>().write_unaligned(words);
        };
        while at + AHEAD_BYTES < length {
            prefetch_once(shared.add(at + AHEAD_BYTES));
            eight_words(at);
            at += 64;
        }
        while at + 64 <= length {
            eight_words(at);
            at += 64;
        }
        while at + 8 <= length {
            private.add(at).cast::<u64>().write_unaligned(word(at));
            at += 8;
        }
        if at < length {
            part_out(shared.add(at), private.add(at), length - at);
        }
    }
    // Pairs with the release fence of `copy_in`: a thread that reads a word that a copy wrote, and
    // acts on it, also sees what was written before that copy.
    std::sync::atomic::fence(Ordering::Acquire);
}

/// Copies a part of a word out.
///
/// # Safety
/// As [`copy_out`]; the part lies within one aligned word.
#[inline]
pub(crate) unsafe fn part_out(shared: *const u8, private: *mut u8, length: usize) {
    let skipped = shared.addr() & 7;
    // SAFETY: the word that holds the part, and as many of its bytes as follow `skipped`.
    unsafe {
        let word = (*shared.sub(skipped).cast::<AtomicU64>()).load(Ordering::Relaxed).to_ne_bytes();
        private.copy_from_nonoverlapping(word.as_ptr().add(skipped), length);
    }
}

/// Copies into memory that others may read and write.
///
/// # Safety
/// The aligned words that hold the `length` bytes at `shared` must be valid and writable, and this
/// process must only access them as atomic words; `private` must be valid for reads of `length` bytes
/// and not overlap.
#[inline]
pub(crate) unsafe fn copy_in(private: *const u8, shared: *mut u8, length: usize) {
    // Pairs with the acquire fence of `copy_out`.
    std::sync::atomic::fence(Ordering::Release);
    let front = ragged(shared.addr(), length);
    // SAFETY: all offsets stay below `length`; words are written where `shared` is aligned, and a
    // part never crosses the end of its word.
    unsafe {
        if front > 0 {
            part_in(private, shared, front);
        }
        let mut at = front;
        let put = |at: usize, word: u64| (*shared.add(at).cast::<AtomicU64>()).store(word, Ordering::Relaxed);
        while at + 64 <= length {
            let words = private.add(at).cast::<[u64; 8]>().read_unaligned();
            for (i, word) in words.into_iter().enumerate() {
                put(at + 8 * i, word);
            }
            at += 64;
        }
        while at + 8 <= length {
            put(at, private.add(at).cast::<u64>().read_unaligned());
            at += 8;
        }
        if at < length {
            part_in(private.add(at), shared.add(at), length - at);
        }
    }
}

/// Copies between memory where others may read and write both sides, with `store` for each whole word that is
/// written.
///
/// # Safety
/// The aligned words that hold the `length` bytes at `from`, and those at `to`, must be valid, the latter writable;
/// this process must only access them as atomic words; both lie alike within them: `from % 8 == to % 8`; and `store`
/// stores to the aligned, writable word that it is given, and to nothing else.
#[inline]
pub(crate) unsafe fn copy_across(from: *const u8, to: *mut u8, length: usize, store: impl Fn(*mut u64, u64)) {
    // As in `copy_in`.
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
                store(to.add(at + 8 * i).cast(), word);
            }
            at += 64;
        }
        while at + 8 <= length {
            store(to.add(at).cast(), word(at));
            at += 8;
        }
        if at < length {
            part(at, length - at);
        }
    }
    // As in `copy_out`.
    std::sync::atomic::fence(Ordering::Acquire);
}

/// Stores a word that others may read.
///
/// # Safety
/// `to` must be aligned, valid for writes, and only be accessed atomically by this process.
#[inline]
pub(crate) unsafe fn store_word(to: *mut u64, word: u64) {
    // SAFETY: the caller's contract.
    unsafe { (*to.cast::<AtomicU64>()).store(word, Ordering::Relaxed) };
}

/// Copies a part of a word in. The other bytes of the word stay, or become what another thread or
/// process makes them meanwhile.
///
/// # Safety
/// As [`copy_in`]; the part lies within one aligned word.
#[inline]
pub(crate) unsafe fn part_in(private: *const u8, shared: *mut u8, length: usize) {
    let skipped = shared.addr() & 7;
    // SAFETY: the word that holds the part.
    let word = unsafe { &*shared.sub(skipped).cast::<AtomicU64>() };
    let mut before = word.load(Ordering::Relaxed);
    loop {
        let mut bytes = before.to_ne_bytes();
        // SAFETY: as many bytes as follow `skipped`.
        unsafe { bytes.as_mut_ptr().add(skipped).copy_from_nonoverlapping(private, length) };
        let after = u64::from_ne_bytes(bytes);
        match word.compare_exchange_weak(before, after, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => before = now,
        }
    }
}
