//! A client that dies in the middle of an inner node's split. The unit tests of the crate use it, too.

use super::{TreeClient, Verb};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Inserts the keys of the numbers from `next` on until an inner node is split. Then the client dies right before it
/// reserves a slot for the right half, or, if it `enters`, right after it entered that. Returns the number of the key
/// that is not there.
pub fn insert_until_split<K: AsRef<[u8]>>(
    dying: &mut TreeClient,
    key: impl Fn(u64) -> K,
    mut next: u64,
    enters: bool,
) -> u64 {
    // Only an inner node has this many words to freeze. Then a slot of its parent is reserved, the next swap enters
    // the right half, and the one after that would complete the split.
    let swaps = Arc::new(AtomicU64::new(0));
    let (count, mut reserved, mut entered) = (Arc::clone(&swaps), false, false);
    dying.set_hook(Some(Box::new(move |verb| {
        match verb {
            Verb::CompareSwap if entered => return false,
            Verb::CompareSwap if reserved => entered = true,
            Verb::CompareSwap => {
                count.fetch_add(1, Ordering::Relaxed);
            }
            Verb::FetchAdd => reserved = count.load(Ordering::Relaxed) >= 100,
            Verb::Read | Verb::Write => {}
        }
        enters || !reserved
    })));
    while dying.insert(key(next).as_ref(), b"12345678").is_ok() {
        swaps.store(0, Ordering::Relaxed);
        next += 1;
    }
    next
}
