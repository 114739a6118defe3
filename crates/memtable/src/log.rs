//! The log of a memtable: a slot for each record, in the order of their numbers, and chains of slots whose keys have
//! the same hash.
//!
//! A writer only appends here: its number determines its slot, and adding the slot to a chain is one compare-and-swap.
//! Lookups follow the chain of their key. Order among keys is made later, and only when a reader needs it
//! ([`crate::memtable`]).
//!
//! ```text
//!  slot   u64  prefix: key bytes 0 … 7
//!         u64  payload: key bytes 8 … 11, record + 1; zero while the slot is not in use
//!         u32  hash: upper half of the key's hash
//!         u32  next: name of the slot after this one in its chain, 0 at the end
//! ```
//!
//! A slot's **name** is its ordinal plus 1, which is its record's number minus the memtable's base. A record's name is
//! its offset divided by 8.
//!
//! # Who writes what
//!
//! | word | by | readers |
//! |---|---|---|
//! | prefix, hash, payload of a slot | the one writer of its record, before anything leads to the slot; the payload last | after an acquiring load that leads to the slot, or of its payload |
//! | head of a chain, next of a slot in a chain | the writer that adds a slot there, by compare-and-swap (release) | acquire |
//!
//! # Invariants
//!
//! 1. A chain's names descend. A slot goes after those with higher names, which only concurrent writers can have added.
//!    Slots are never removed, so a place in a chain can be lost only to another slot added there.
//! 2. A record is written before its slot's payload, and the payload before the slot is in a chain. So the chain of a
//!    key holds all its records up to any published number, and the first of them that a snapshot covers is the newest.

use crate::error::IndexError;
use crate::node::{lower, payload, upper};
use crate::planted::{Bug, planted};
use crate::prefetch::prefetch;
use forebay_base::record::MIN_RECORD_BYTES;
use forebay_env::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Maximum number of slots of a chain that a lookup visits. Beyond that (many versions, an old snapshot), a search of
/// the ordered index is faster.
const MAX_STEPS: usize = if cfg!(any(loom, shuttle, miri)) { 4 } else { 64 };
/// Bytes of a block for each chain.
const BYTES_A_CHAIN: usize = 256;
/// The end of a chain.
const END: u32 = 0;
/// Marks in a payload a record that nobody should find. Offsets of records, divided by 8, are far below this bit.
const VOID: u32 = 1 << 31;

/// See the module.
#[derive(Debug)]
struct Slot {
    prefix: AtomicU64,
    payload: AtomicU64,
    hash: AtomicU32,
    next: AtomicU32,
}

const _: () = assert!(cfg!(any(loom, shuttle)) || size_of::<Slot>() == 24);

/// A listed record, with the bytes that decide most comparisons of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// Key bytes 0 … 7 as a number in the order of keys.
    pub prefix: u64,
    /// Key bytes 8 … 11 likewise.
    pub tail: u32,
    /// The record's offset, divided by 8.
    pub record: u32,
}

/// The answer of a chain for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The newest covered record.
    Record(u32),
    /// There is no record.
    Absent,
    /// The chain is too long to answer.
    TooLong,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Log {
    slots: Box<[Slot]>,
    /// The number of heads is a power of two.
    heads: Box<[AtomicU32]>,
}

/// Zeroed slots, which the system commits when they are first touched.
#[cfg(not(any(loom, shuttle)))]
fn zeroed(count: usize) -> Box<[Slot]> {
    // SAFETY: a slot is atomic integers, for which zero bytes are valid.
    unsafe { Box::new_zeroed_slice(count).assume_init() }
}

#[cfg(any(loom, shuttle))]
fn zeroed(count: usize) -> Box<[Slot]> {
    let slot = |_| Slot {
        prefix: AtomicU64::new(0),
        payload: AtomicU64::new(0),
        hash: AtomicU32::new(0),
        next: AtomicU32::new(END),
    };
    (0..count).map(slot).collect()
}

impl Log {
    /// An empty log for the records of a block of `capacity_bytes`.
    #[must_use]
    pub fn new(capacity_bytes: usize) -> Self {
        let chains = (capacity_bytes / BYTES_A_CHAIN).next_power_of_two();
        Self {
            slots: zeroed(capacity_bytes / MIN_RECORD_BYTES),
            heads: (0..chains).map(|_| AtomicU32::new(END)).collect(),
        }
    }

    /// Empties a log of which at most the first `count` slots were used.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn clear(&mut self, count: usize) {
        let count = count.min(self.slots.len());
        for slot in &mut self.slots[..count] {
            *slot.payload.get_mut() = 0;
        }
        for head in &mut self.heads {
            *head.get_mut() = END;
        }
    }

    /// Bytes that the chains and `count` slots take.
    pub(crate) fn used_bytes(&self, count: usize) -> usize {
        count.min(self.slots.len()) * size_of::<Slot>() + size_of_val(&*self.heads)
    }

    #[inline]
    fn slot(&self, name: u32) -> Result<&Slot, IndexError> {
        let at = (name as usize).wrapping_sub(1);
        self.slots.get(at).ok_or(IndexError::BadLink { node: name })
    }

    #[inline]
    fn head(&self, hash: u64) -> Result<&AtomicU32, IndexError> {
        let at = hash as usize & self.heads.len().wrapping_sub(1);
        self.heads.get(at).ok_or(IndexError::BadLink { node: END })
    }

    /// Prefetches the memory for listing a key with this hash, so that the memory arrives while the record is written.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Ok(head) = self.head(hash) {
            prefetch(std::ptr::from_ref(head).cast());
        }
    }

    /// After [`Log::prefetch`]: prefetches the slot of the newest record that is listed there.
    #[inline]
    pub(crate) fn prefetch_newest(&self, hash: u64) {
        // Relaxed: what is prefetched is not read here.
        if let Ok(head) = self.head(hash)
            && let Ok(slot) = self.slot(head.load(Relaxed))
        {
            prefetch(std::ptr::from_ref(slot).cast());
        }
    }

    /// After [`Log::prefetch_newest`]: the newest record that is listed there, if it probably has a key with this hash.
    /// A hint of what to prefetch, which may be wrong.
    #[inline]
    pub(crate) fn newest(&self, hash: u64) -> Option<u32> {
        // Relaxed here and below: a hint that nothing depends on.
        let slot = self.slot(self.head(hash).ok()?.load(Relaxed)).ok()?;
        let is_alike = slot.hash.load(Relaxed) == (hash >> 32) as u32;
        is_alike.then(|| lower(slot.payload.load(Relaxed)).wrapping_sub(1))
    }

    /// Lists a written record of a key with this hash. Called once for each ordinal.
    ///
    /// # Errors
    /// [`IndexError::Full`] for an ordinal that the block has no room for.
    #[inline]
    pub fn add(&self, ordinal: u32, hash: u64, listed: Listed) -> Result<(), IndexError> {
        let name = ordinal + 1;
        let slot = self.slot(name).map_err(|_| IndexError::Full(self.slots.len()))?;
        slot.prefix.store(listed.prefix, Relaxed);
        slot.hash.store((hash >> 32) as u32, Relaxed);
        // Release: pairs with `listed`.
        slot.payload.store(payload(listed.tail, listed.record + 1), Release);
        let mut before = self.head(hash)?;
        loop {
            // Acquire: a thread that reaches the later slots through this one must see them too; the release below
            // passes them on.
            let after = before.load(Acquire);
            if after > name && !planted(Bug::UnorderedChain) {
                before = &self.slot(after)?.next;
                continue;
            }
            slot.next.store(after, Relaxed);
            let order = if planted(Bug::RelaxedChain) { Relaxed } else { Release };
            if before.compare_exchange(after, name, order, Relaxed).is_ok() {
                return Ok(());
            }
        }
    }

    /// Notes that nobody should find the record of an ordinal. Called in place of [`Log::add`].
    ///
    /// # Errors
    /// As [`Log::add`].
    pub fn add_void(&self, ordinal: u32, record: u32) -> Result<(), IndexError> {
        let slot = self.slot(ordinal + 1).map_err(|_| IndexError::Full(self.slots.len()))?;
        // Release: pairs with `record`.
        slot.payload.store(payload(0, VOID | (record + 1)), Release);
        Ok(())
    }

    /// The record of an ordinal, listed or void, once it is written.
    #[inline]
    #[must_use]
    pub fn record(&self, ordinal: usize) -> Option<u32> {
        // Acquire: pairs with `add` and `add_void`.
        (lower(self.slots.get(ordinal)?.payload.load(Acquire)) & !VOID).checked_sub(1)
    }

    /// The record of ordinal `ordinal`, if it is listed.
    #[inline]
    #[must_use]
    pub fn listed(&self, ordinal: usize) -> Option<Listed> {
        let slot = self.slots.get(ordinal)?;
        // Acquire: pairs with `add`.
        let payload = slot.payload.load(Acquire);
        let record = lower(payload).checked_sub(1).filter(|record| record & VOID == 0)?;
        Some(Listed { prefix: slot.prefix.load(Relaxed), tail: upper(payload), record })
    }

    /// Asks a chain for the newest record for which `is_key` holds, among those with names up to `newest`. A number up
    /// to the published one, minus the base, is such a name.
    ///
    /// # Errors
    /// Errors of `is_key`; [`IndexError::BadLink`] if memory was overwritten.
    #[inline]
    pub fn find(
        &self,
        hash: u64,
        newest: u64,
        mut is_key: impl FnMut(u32) -> Result<bool, IndexError>,
    ) -> Result<Answer, IndexError> {
        let mut at = self.head(hash)?;
        for _ in 0..MAX_STEPS {
            // Acquire: pairs with `add`.
            let name = at.load(Acquire);
            if name == END {
                return Ok(Answer::Absent);
            }
            let slot = self.slot(name)?;
            if u64::from(name) <= newest && slot.hash.load(Relaxed) == (hash >> 32) as u32 {
                let record = lower(slot.payload.load(Relaxed)).wrapping_sub(1);
                if is_key(record)? {
                    return Ok(Answer::Record(record));
                }
            }
            at = &slot.next;
        }
        Ok(Answer::TooLong)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn listed(record: u32) -> Listed {
        Listed { prefix: 5, tail: 6, record }
    }

    /// All slots in one chain, of one hash.
    fn chained(ordinals: &[u32]) -> Log {
        let log = Log::new(16 * 16);
        for ordinal in ordinals {
            log.add(*ordinal, 7, listed(10 * ordinal)).unwrap();
        }
        log
    }

    #[test]
    fn a_chain_is_in_order_whatever_the_order_of_writers() {
        for ordinals in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]] {
            let log = chained(&ordinals);
            let find = |newest| log.find(7, newest, |_| Ok(true)).unwrap();
            assert_eq!(find(0), Answer::Absent);
            for newest in 1..=3 {
                assert_eq!(find(u64::from(newest)), Answer::Record(10 * (newest - 1)), "{ordinals:?}");
            }
            assert_eq!(find(u64::MAX), Answer::Record(20));
            assert_eq!(log.find(7 + (1 << 32), 3, |_| Ok(true)).unwrap(), Answer::Absent, "another hash");
            assert_eq!(log.find(7, 3, |record| Ok(record == 10)).unwrap(), Answer::Record(10));
        }
    }

    #[test]
    fn a_long_chain_is_given_up() {
        let steps = MAX_STEPS as u32;
        let log = Log::new(16 * (MAX_STEPS + 1));
        (0..=steps).for_each(|ordinal| log.add(ordinal, 0, listed(ordinal)).unwrap());
        assert_eq!(log.find(0, u64::MAX, |record| Ok(record == 1)).unwrap(), Answer::Record(1));
        assert_eq!(log.find(0, u64::MAX, |record| Ok(record == 0)).unwrap(), Answer::TooLong);
        assert_eq!(log.add(steps + 1, 0, listed(0)), Err(IndexError::Full(MAX_STEPS + 1)));
    }

    #[test]
    fn a_void_is_passed_over() {
        let log = chained(&[0, 2]);
        assert_eq!(log.record(1), None);
        log.add_void(1, 10).unwrap();
        assert_eq!((log.record(1), log.listed(1), log.record(2)), (Some(10), None, Some(20)));
        assert_eq!(log.find(7, 2, |_| Ok(true)).unwrap(), Answer::Record(0));
        assert_eq!(log.add_void(99, 0), Err(IndexError::Full(16)));
    }

    #[test]
    fn a_cleared_log_is_empty() {
        let mut log = chained(&[0, 1]);
        assert_eq!(log.listed(1), Some(listed(10)));
        log.clear(2);
        assert!(log.listed(0).is_none() && log.listed(1).is_none());
        assert_eq!(log.find(7, u64::MAX, |_| Ok(true)).unwrap(), Answer::Absent);
        log.add(0, 7, listed(3)).unwrap();
        assert_eq!(log.find(7, u64::MAX, |record| Ok(record != 3)).unwrap(), Answer::Absent);
    }
}
