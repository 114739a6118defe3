//! The nodes of the ordered index: an arena of B+-tree nodes that refer to each other by number.
//!
//! ```text
//!  word              a leaf                                  an inner node
//!  0                 latch: version (48 bits), number of slots in use (15 bits), locked (1 bit)
//!  1                 number of the next leaf, 0 at the end   number of child 0
//!  2 … 64            prefixes: key bytes 0 … 7               prefixes of the separators
//!  65 … 127          payloads: key bytes 8 … 11, record      payloads: record, child
//! ```
//!
//! A payload is two halves of 32 bits, upper half first. Prefixes and key bytes are big-endian, padded with zeros and
//! inverted for the reverse order, so that they compare as numbers. Slots are in order. A separator is the internal key
//! of a record. Child i of an inner node holds the keys from separator i - 1 (included) to separator i (excluded). Node
//! 0 is not used.
//!
//! # The latch
//!
//! | latch | who may write the node's other words | next state by |
//! |---|---|---|
//! | unlocked | nobody | compare-and-swap (acquire) by a writer: locked |
//! | locked | the one writer | store (release): unlocked, the version one higher if anything changed |
//!
//! Readers take no latch. A reader loads the latch (acquire; its [`Snapshot`]), reads words (relaxed), and then checks
//! that the latch is still the same ([`Node::is_unchanged`]). Only then does it act on the words: follow a child, look
//! at a record. A word of a later writer cannot slip in. That writer put a release fence between taking the latch and
//! writing, and the reader an acquire fence between reading and checking, so the check sees the latch taken.

use crate::error::IndexError;
use crate::planted::{Bug, planted};
use crate::prefetch::prefetch;
use forebay_env::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};
use forebay_env::sync::relax;

/// Slots of a node; one less than a power of two. Few under the model checkers and Miri, where every step is explored
/// or slow.
pub(crate) const SLOTS: usize = if cfg!(any(loom, shuttle, miri)) { 3 } else { 63 };
/// The number for "no node".
pub(crate) const NONE: u32 = 0;

const LOCKED: u64 = 1;
const COUNT_SHIFT: u32 = 1;
const COUNT_MASK: u64 = (1 << 15) - 1;
const ONE_VERSION: u64 = 1 << 16;

const _: () = assert!((SLOTS + 1).is_power_of_two() && SLOTS as u64 <= COUNT_MASK);

/// See the module.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Node {
    latch: AtomicU64,
    link: AtomicU64,
    prefixes: [AtomicU64; SLOTS],
    payloads: [AtomicU64; SLOTS],
}

const _: () = assert!(cfg!(any(loom, shuttle)) || size_of::<Node>() == 8 * (2 + 2 * SLOTS));

/// The value of an unlocked latch when it was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Snapshot(u64);

impl Snapshot {
    /// Number of slots in use.
    #[inline]
    pub(crate) const fn count(self) -> usize {
        (self.0 >> COUNT_SHIFT & COUNT_MASK) as usize
    }

    #[inline]
    pub(crate) const fn is_full(self) -> bool {
        self.count() >= SLOTS
    }

    /// The node's next latch after a change, with `count` slots in use.
    const fn next(self, count: usize) -> u64 {
        (self.0 & !(ONE_VERSION - 1)).wrapping_add(ONE_VERSION) | (count as u64) << COUNT_SHIFT
    }
}

/// Combines two halves into one word.
#[inline]
pub(crate) const fn payload(upper: u32, lower: u32) -> u64 {
    (upper as u64) << 32 | lower as u64
}

#[inline]
pub(crate) const fn upper(payload: u64) -> u32 {
    (payload >> 32) as u32
}

#[inline]
pub(crate) const fn lower(payload: u64) -> u32 {
    payload as u32
}

impl Node {
    #[cfg(any(loom, shuttle))]
    fn new() -> Self {
        Self {
            latch: AtomicU64::new(0),
            link: AtomicU64::new(0),
            prefixes: std::array::from_fn(|_| AtomicU64::new(0)),
            payloads: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Waits until the latch is free.
    #[inline]
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut round = 0;
        loop {
            // Acquire: pairs with the release by which a writer unlocks. Its writes, and the record that it wrote
            // before, are visible.
            let word = self.latch.load(if planted(Bug::RelaxedLatch) { Relaxed } else { Acquire });
            if word & LOCKED == 0 {
                return Snapshot(word);
            }
            relax(&mut round);
        }
    }

    /// Whether the words read since `snapshot` belong together.
    #[inline]
    pub(crate) fn is_unchanged(&self, snapshot: Snapshot) -> bool {
        // Pairs with the fence in `lock`.
        fence(Acquire);
        self.latch.load(Relaxed) == snapshot.0 || planted(Bug::UncheckedSnapshot)
    }

    /// Takes the latch if the node has not changed since `snapshot`.
    #[inline]
    pub(crate) fn lock(&self, snapshot: Snapshot) -> bool {
        if planted(Bug::SkippedLatch) {
            return true;
        }
        let taken = self.latch.compare_exchange(snapshot.0, snapshot.0 | LOCKED, Acquire, Relaxed).is_ok();
        // Pairs with the fence in `is_unchanged`.
        fence(Release);
        taken
    }

    /// Releases the latch after a change that left `count` slots in use.
    #[inline]
    pub(crate) fn unlock(&self, snapshot: Snapshot, count: usize) {
        self.latch.store(snapshot.next(count), Release);
    }

    /// Releases the latch when nothing was changed.
    pub(crate) fn unlock_unchanged(&self, snapshot: Snapshot) {
        self.latch.store(snapshot.0, Release);
    }

    /// Initialises a new node, which no other thread knows yet, with `count` slots in use.
    pub(crate) fn start(&self, link: u32, count: usize) {
        self.set_link(link);
        self.latch.store(Snapshot(0).next(count), Relaxed);
    }

    /// The next leaf, or child 0.
    #[inline]
    pub(crate) fn link(&self) -> u32 {
        self.link.load(Relaxed) as u32
    }

    pub(crate) fn set_link(&self, link: u32) {
        self.link.store(link.into(), Relaxed);
    }

    #[inline]
    pub(crate) fn prefix(&self, slot: usize) -> u64 {
        self.prefixes.get(slot).map_or(0, |prefix| prefix.load(Relaxed))
    }

    #[inline]
    pub(crate) fn payload(&self, slot: usize) -> u64 {
        self.payloads.get(slot).map_or(0, |payload| payload.load(Relaxed))
    }

    /// Child `i` of an inner node.
    #[inline]
    pub(crate) fn child(&self, i: usize) -> u32 {
        match i.checked_sub(1) {
            None => self.link(),
            Some(slot) => lower(self.payload(slot)),
        }
    }

    /// Number of the first `count` prefixes that are below `prefix`. The search has constant length, and no branch
    /// depends on the data.
    #[inline]
    pub(crate) fn prefixes_below(&self, count: usize, prefix: u64) -> usize {
        let mut below = 0;
        let mut step = SLOTS.div_ceil(2);
        while step > 0 {
            let at = below + step - 1;
            let is_below = at < count && self.prefix(at) < prefix;
            below += if is_below { step } else { 0 };
            step /= 2;
        }
        below
    }

    /// Writes a slot. The caller has the latch, or the node is new.
    #[inline]
    pub(crate) fn set(&self, slot: usize, prefix: u64, payload: u64) {
        if let (Some(prefixes), Some(payloads)) = (self.prefixes.get(slot), self.payloads.get(slot)) {
            prefixes.store(prefix, Relaxed);
            payloads.store(payload, Relaxed);
        }
    }

    /// Inserts a slot before slot `at` of `count`. The caller has the latch.
    #[inline]
    pub(crate) fn insert(&self, at: usize, count: usize, prefix: u64, payload: u64) {
        for slots in [&self.prefixes, &self.payloads] {
            for slot in (at..count.min(SLOTS - 1)).rev() {
                slots[slot + 1].store(slots[slot].load(Relaxed), Relaxed);
            }
        }
        self.set(at, prefix, payload);
    }

    /// Prefetches the lines that a search of this node reads.
    #[inline]
    pub(crate) fn prefetch(&self) {
        for line in 0..(8 * (2 + SLOTS)).div_ceil(64) {
            prefetch(std::ptr::from_ref(self).cast::<u8>().wrapping_add(64 * line));
        }
    }
}

/// Nodes, allocated one after another and never freed individually.
#[derive(Debug)]
pub(crate) struct Arena {
    nodes: Box<[Node]>,
    used: AtomicU32,
}

/// Zeroed nodes, which the system commits when they are first touched.
#[cfg(not(any(loom, shuttle)))]
fn zeroed(count: usize) -> Box<[Node]> {
    // SAFETY: a node is atomic integers, for which zero bytes are valid.
    unsafe { Box::new_zeroed_slice(count).assume_init() }
}

#[cfg(any(loom, shuttle))]
fn zeroed(count: usize) -> Box<[Node]> {
    (0..count).map(|_| Node::new()).collect()
}

impl Arena {
    /// Room for `nodes` nodes.
    pub(crate) fn new(nodes: usize) -> Self {
        Self { nodes: zeroed(nodes.saturating_add(1).min(u32::MAX as usize)), used: AtomicU32::new(1) }
    }

    /// The number of a new node. Relaxed: it only counts. Each caller is one of a few writers that hold a latch, so the
    /// count cannot wrap.
    pub(crate) fn allocate(&self) -> Result<u32, IndexError> {
        let number = self.used.fetch_add(1, Relaxed);
        if (number as usize) < self.nodes.len() {
            return Ok(number);
        }
        self.used.fetch_sub(1, Relaxed);
        Err(IndexError::Full(self.nodes.len().saturating_sub(1)))
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Result<&Node, IndexError> {
        self.nodes.get(number as usize).ok_or(IndexError::BadLink { node: number })
    }

    /// An arena without nodes and without memory.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn empty() -> Self {
        Self { nodes: Box::default(), used: AtomicU32::new(1) }
    }

    /// Takes all nodes back. Their contents stay: a node is initialised when it is allocated.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn clear(&mut self) {
        *self.used.get_mut() = 1;
    }

    /// Number of allocated nodes.
    pub(crate) fn used(&self) -> usize {
        (self.used.load(Relaxed) as usize - 1).min(self.nodes.len().saturating_sub(1))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_search_counts_what_is_below() {
        let arena = Arena::new(1);
        let node = arena.get(arena.allocate().unwrap()).unwrap();
        assert!(matches!(arena.allocate(), Err(IndexError::Full(1))));
        for count in 0..=SLOTS {
            for prefix in 0..=2 * count as u64 {
                assert_eq!(node.prefixes_below(count, prefix) as u64, prefix.div_ceil(2), "{prefix} of {count}");
            }
            if count < SLOTS {
                node.insert(count, count, 2 * count as u64, 7);
            }
        }
    }

    #[test]
    fn a_change_is_noticed() {
        let arena = Arena::new(1);
        let node = arena.get(arena.allocate().unwrap()).unwrap();
        let before = node.snapshot();
        assert!(node.lock(before) && !node.lock(before));
        node.unlock_unchanged(before);
        assert!(node.is_unchanged(before) && node.lock(before));
        node.insert(0, 0, 1, 2);
        node.unlock(before, 1);
        assert!(!node.is_unchanged(before) && !node.lock(before));
        assert_eq!((before.count(), node.snapshot().count()), (0, 1));
    }
}
