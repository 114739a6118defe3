//! The key-value block (O3-LSM 4.2; dLSM IV): contiguous memory that many writers fill with records at disjoint
//! reserved ranges. Readers read it where records are published.
//!
//! # Who owns which bytes
//!
//! | bytes | state | writer | readers |
//! |---|---|---|---|
//! | beyond every reservation | anything | nobody | nobody |
//! | of a reservation, record not yet listed | being written | the reservation's holder | nobody |
//! | of a listed record | immutable | nobody, ever | everybody |
//!
//! # Invariants
//!
//! 1. Reservations are disjoint (one fetch-and-add hands them out, [`crate::reservation`]).
//! 2. A record's bytes are written before it is listed (release, [`crate::log`]). A thread reads them only after
//!    acquiring loads that led to its slot, or that saw their piece complete (`pieces`).
//! 3. A shared reference never covers bytes of another record, which may be unwritten: a reader first determines a
//!    record's size from a copy of its header.

use crate::error::{IndexError, MemtableError};
use crate::prefetch::prefetch;
use crate::records::Records;
use forebay_base::record::{ALIGNMENT, MIN_RECORD_BYTES, pad};
use forebay_base::{DecodeError, InternalKey, Record, RecordError, RecordHeader};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Memory for a block, for instance registered with a fabric.
///
/// # Safety
/// From the creation of a block until the value is dropped, [`base`](Self::base) and [`len`](Self::len) do not change.
/// `len` bytes from `base` are initialised, valid for reads and writes of this process, and written only by the block.
/// Peers may be granted reads.
pub unsafe trait BlockMemory: Send + Sync {
    /// The first byte; a multiple of 8.
    fn base(&self) -> NonNull<u8>;
    /// Length in bytes.
    fn len(&self) -> usize;
    /// Whether there is no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Zeroed memory from the process's heap, committed by the system when it is first touched.
pub struct HeapMemory(Box<[AtomicU64]>);

impl HeapMemory {
    /// At least `length_bytes` of memory.
    #[must_use]
    pub fn new(length_bytes: usize) -> Self {
        let words = Box::new_zeroed_slice(length_bytes.div_ceil(size_of::<u64>()));
        // SAFETY: zero bytes are a valid `AtomicU64`.
        Self(unsafe { words.assume_init() })
    }
}

// SAFETY: the box owns initialised words for as long as `self` lives and never reallocates;
// atomics have interior mutability, so writing through a pointer made of a shared reference is
// allowed; the field is private and nothing else touches the words.
unsafe impl BlockMemory for HeapMemory {
    fn base(&self) -> NonNull<u8> {
        NonNull::from(&*self.0).cast()
    }

    fn len(&self) -> usize {
        size_of_val(&*self.0)
    }
}

/// A record at its place in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordRef<'m> {
    /// The record, borrowing from the block.
    pub record: Record<'m>,
    /// Bytes from the block's start to the record's.
    pub offset: u64,
    /// Length of the record with padding, in bytes.
    pub padded_length: u32,
}

/// See the module.
pub(crate) struct Block {
    base: NonNull<u8>,
    capacity: usize,
    memory: Box<dyn BlockMemory>,
}

// SAFETY: the block owns its memory, which is `Send`; `base` is that memory's address.
unsafe impl Send for Block {}
// SAFETY: shared use goes through `unsafe` methods whose contracts keep writers disjoint and
// readers after publication; see the table of the module.
unsafe impl Sync for Block {}

impl Block {
    pub(crate) fn new(memory: Box<dyn BlockMemory>, capacity: usize) -> Result<Self, MemtableError> {
        let base = memory.base();
        if !base.as_ptr().addr().is_multiple_of(ALIGNMENT) {
            return Err(MemtableError::Misaligned);
        }
        if capacity == 0 || !capacity.is_multiple_of(ALIGNMENT) || capacity > memory.len() {
            return Err(MemtableError::BadCapacity { capacity, memory: memory.len() });
        }
        Ok(Self { base, capacity, memory })
    }

    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn memory(&self) -> &dyn BlockMemory {
        &*self.memory
    }

    /// Writes `record`, in full, at `offset`.
    ///
    /// # Safety
    /// The record's padded length from `offset` on lies within the capacity and within a
    /// reservation of the caller, and no record was listed there.
    #[inline]
    pub(crate) unsafe fn write(&self, offset: usize, record: &Record<'_>) {
        let length = pad(record.length());
        // SAFETY: the record's padded length, which the caller vouches for; the bytes are initialised, and
        // nobody else reads or writes there (invariants 1 and 2).
        let bytes: &mut [u8] = unsafe { NonNull::slice_from_raw_parts(self.base.add(offset), length).as_mut() };
        record.encode_into(bytes);
    }

    /// The record at `offset`. Its checksum is not verified, because it never left this process.
    ///
    /// # Safety
    /// A record was written at `offset`, and that write happened before this call.
    #[inline]
    pub(crate) unsafe fn record(&self, offset: usize) -> Result<RecordRef<'_>, IndexError> {
        let bad = IndexError::BadRecord { offset: offset as u64 };
        // SAFETY: the caller's contract.
        let header = unsafe { self.header(offset) }.ok_or(bad)?;
        let length = header.length();
        if offset.checked_add(length).is_none_or(|end| end > self.capacity) {
            return Err(bad);
        }
        // SAFETY: the record covers `length` bytes within the capacity, and is immutable since it
        // was listed (invariant 2); `self` keeps the memory alive.
        let bytes: &[u8] = unsafe { NonNull::slice_from_raw_parts(self.base.add(offset), length).as_ref() };
        let (key, value) = bytes[header.key_offset..].split_at(header.key_length);
        Ok(RecordRef {
            record: Record { tag: header.tag, expiry_ms: header.expiry_ms, key, value },
            offset: offset as u64,
            padded_length: header.padded_length() as u32,
        })
    }

    /// Decodes a header from a copy of the record's first 16 bytes, which every record has. Copies 24 or 32 bytes only
    /// if the header turned out to be longer than the copy, because then the record is at least that long.
    ///
    /// # Safety
    /// As for [`Block::record`].
    #[inline]
    unsafe fn header(&self, offset: usize) -> Option<RecordHeader> {
        let mut copy = [0; 32];
        for length in [MIN_RECORD_BYTES, MIN_RECORD_BYTES + ALIGNMENT, MIN_RECORD_BYTES + 2 * ALIGNMENT] {
            if offset.checked_add(length)? > self.capacity {
                return None;
            }
            // SAFETY: within the capacity, and part of the record by the reasoning above.
            unsafe { self.base.add(offset).copy_to_nonoverlapping(NonNull::from(&mut copy).cast(), length) };
            match RecordHeader::decode(&copy[..length]) {
                Ok(header) => return Some(header),
                Err(RecordError::Decode(DecodeError::Truncated { .. })) => {}
                Err(_) => return None,
            }
        }
        None
    }

    /// The first `length` bytes.
    ///
    /// # Safety
    /// They lie within the capacity, and all records there were written before this call.
    pub(crate) unsafe fn prefix(&self, length: usize) -> &[u8] {
        // SAFETY: the caller's contract; such bytes are immutable.
        unsafe { NonNull::slice_from_raw_parts(self.base, length).as_ref() }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

/// The listed records of a block, for the index to look up their keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Published<'m>(&'m Block);

impl<'m> Published<'m> {
    /// # Safety
    /// Every offset passed to this is that of a record that the caller wrote itself, or that acquiring loads found in
    /// the log or in the ordered index.
    pub(crate) const unsafe fn new(block: &'m Block) -> Self {
        Self(block)
    }

    /// The record whose offset is `record` times 8.
    #[inline]
    pub(crate) fn record(&self, record: u32) -> Result<RecordRef<'m>, IndexError> {
        // SAFETY: promised when `self` was made.
        unsafe { self.0.record(record as usize * ALIGNMENT) }
    }

    /// Prefetches the lines of the first `length` bytes of a record. Does nothing if there are none.
    #[inline]
    pub(crate) fn prefetch(&self, record: u32, length: usize) {
        let start = self.0.base.as_ptr().wrapping_add(record as usize * ALIGNMENT);
        let last = length.saturating_sub(1);
        (0..last).step_by(64).chain([last]).for_each(|at| prefetch(start.wrapping_add(at)));
    }
}

impl Records for Published<'_> {
    #[inline]
    fn key_at(&self, record: u32) -> Result<InternalKey<'_>, IndexError> {
        let found = self.record(record)?.record;
        Ok(InternalKey { user_key: found.key, tag: found.tag })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::{Kind, SequenceNumber, Tag};

    #[test]
    fn records_of_every_header_length_are_read_back() {
        let long = vec![7; 20_000];
        let cases: [(&[u8], &[u8], Option<u64>); 6] = [
            (b"", b"", None),
            (b"k", b"", Some(9)),
            (b"key", b"value", None),
            (b"key", &long, Some(u64::MAX)),
            (&long, b"v", None),
            (&long, &long, Some(1)),
        ];
        let block = Block::new(Box::new(HeapMemory::new(1 << 18)), 1 << 18).unwrap();
        let mut offset = 0;
        let mut expected = Vec::new();
        for (i, (key, value, expiry_ms)) in cases.into_iter().enumerate() {
            let tag = Tag::new(SequenceNumber(i as u64 + 1), Kind::Put, expiry_ms.is_some());
            let record = Record { tag, expiry_ms, key, value };
            // SAFETY: one thread, ascending offsets, far below the capacity.
            unsafe { block.write(offset, &record) };
            // SAFETY: written one line above.
            let found = unsafe { block.record(offset) }.unwrap();
            assert_eq!(found.record, record);
            record.encode(&mut expected);
            offset += found.padded_length as usize;
        }
        // SAFETY: all written above.
        assert_eq!(unsafe { block.prefix(offset) }, expected);
    }

    #[test]
    fn bad_memory_is_refused() {
        let error = |capacity| Block::new(Box::new(HeapMemory::new(64)), capacity).unwrap_err();
        assert_eq!(error(72), MemtableError::BadCapacity { capacity: 72, memory: 64 });
        assert_eq!(error(0), MemtableError::BadCapacity { capacity: 0, memory: 64 });
        assert_eq!(error(63), MemtableError::BadCapacity { capacity: 63, memory: 64 });
    }
}
