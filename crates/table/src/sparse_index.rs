//! The sparse index: the last key of each index block. A compute node caches it for scans.
//!
//! ```text
//!  frame "FBsx" (see `frame`), body:
//!  u32                number of blocks
//!  24 bytes × blocks  u64 offset of the block in the image
//!                     u32 length of the block in bytes
//!                     u32 end of the block's last user key in the keys that follow
//!                     u64 tag of the block's last entry
//!                     (blocks and keys follow each other without gaps)
//!  bytes              last user keys
//! ```
//!
//! Purpose and golden test: `docs/formats/table.md`.

use crate::entry::{OwnedKey, read_bound_tag};
use crate::error::{Context, Error, Result};
use crate::frame::{FrameKind, HEADER_BYTES};
use forebay_base::{InternalKey, KeyOrder, Reader, Tag, Writer};
use std::cmp::Ordering;
use std::sync::Arc;

const FRAME: FrameKind = FrameKind { what: "a sparse index", magic: *b"FBsx", version: 1 };
const SLOT_BYTES: usize = 24;
const SLOTS_AT: usize = HEADER_BYTES + 4;

/// The place of an index block in its table's image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockAddress {
    /// Bytes from the image's start.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

/// Collects the blocks of a table.
#[derive(Debug, Default)]
pub(crate) struct SparseIndexBuilder {
    slots: Vec<u8>,
    keys: Vec<u8>,
    count: u32,
}

impl SparseIndexBuilder {
    pub fn add(&mut self, block: BlockAddress, last: &OwnedKey) -> Result<()> {
        self.keys.extend_from_slice(&last.user_key);
        let keys_end = u32::try_from(self.keys.len()).map_err(|_| Error::Invalid("the table has too many keys"))?;
        self.slots.put_u64(block.offset);
        self.slots.put_u32(block.length);
        self.slots.put_u32(keys_end);
        self.slots.put_u64(last.tag.word());
        self.count += 1;
        Ok(())
    }

    /// Bytes that it holds.
    pub const fn held_bytes(&self) -> u64 {
        (self.slots.len() + self.keys.len()) as u64
    }

    pub fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        FRAME.encode(out, |body| {
            body.put_u32(self.count);
            body.extend_from_slice(&self.slots);
            body.extend_from_slice(&self.keys);
        })
    }
}

/// A verified sparse index.
#[derive(Debug, Clone)]
pub struct SparseIndex {
    image: Arc<[u8]>,
    count: usize,
    keys_at: usize,
}

struct Slot {
    block: BlockAddress,
    keys_end: usize,
    tag: Tag,
}

impl SparseIndex {
    /// Verifies an image.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Inconsistent`] or [`Error::Unknown`].
    pub fn parse(image: Arc<[u8]>) -> Result<Self> {
        let body = FRAME.decode(&image)?;
        let count = Reader::new(body).u32().context(FRAME.what)? as usize;
        let slots = count.checked_mul(SLOT_BYTES).filter(|size| *size <= body.len() - 4);
        let slots =
            slots.ok_or(Error::Inconsistent { what: FRAME.what, detail: "it has fewer blocks than it says" })?;
        let (keys_at, keys_bytes) = (SLOTS_AT + slots, body.len() - 4 - slots);
        let index = Self { image, count, keys_at };
        let (mut offset, mut key) = (0, 0);
        for i in 0..count {
            let slot = index.slot(i).ok_or(Error::Inconsistent { what: FRAME.what, detail: "a tag is no tag" })?;
            if slot.block.offset != offset || slot.block.length == 0 || slot.keys_end < key {
                return Err(Error::Inconsistent { what: FRAME.what, detail: "its blocks do not follow each other" });
            }
            offset += u64::from(slot.block.length);
            key = slot.keys_end;
        }
        if key != keys_bytes {
            return Err(Error::Inconsistent { what: FRAME.what, detail: "its keys end elsewhere" });
        }
        Ok(index)
    }

    /// Number of index blocks.
    #[must_use]
    pub const fn block_count(&self) -> usize {
        self.count
    }

    /// Bytes that the index takes in memory.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.image.len()
    }

    /// Length of all blocks in bytes.
    #[must_use]
    pub fn blocks_bytes(&self) -> u64 {
        self.block(self.count.wrapping_sub(1)).map_or(0, |block| block.offset + u64::from(block.length))
    }

    /// The address of block `index`.
    #[must_use]
    pub fn block(&self, index: usize) -> Option<BlockAddress> {
        Some(self.slot(index)?.block)
    }

    /// The block that holds the image's byte at `offset`; the number of blocks when the byte comes after them.
    #[must_use]
    pub fn block_at(&self, offset: u64) -> usize {
        let ends_before = |block: BlockAddress| block.offset + u64::from(block.length) <= offset;
        self.first_not(|index| self.block(index).is_some_and(ends_before))
    }

    /// The last key of block `index`.
    #[must_use]
    pub fn last_key(&self, index: usize) -> Option<InternalKey<'_>> {
        let slot = self.slot(index)?;
        let start = index.checked_sub(1).and_then(|before| self.slot(before)).map_or(0, |before| before.keys_end);
        let user_key = self.image.get(self.keys_at + start..self.keys_at + slot.keys_end)?;
        Some(InternalKey { user_key, tag: slot.tag })
    }

    /// The first block that may hold an entry that does not sort before `target`; the number of blocks when there is
    /// none. An entry before `target` is in this block or in the previous one.
    #[must_use]
    pub fn seek(&self, order: KeyOrder, target: InternalKey<'_>) -> usize {
        let is_before = |last| order.compare_internal(last, target) == Ordering::Less;
        self.first_not(|index| self.last_key(index).is_some_and(is_before))
    }

    /// The first block that is not `passed`. All blocks before it are passed, and none after it is.
    fn first_not(&self, passed: impl Fn(usize) -> bool) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if passed(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The blocks that may hold entries of user keys in `[lower, upper)`. An absent bound is no bound.
    #[must_use]
    pub fn range(&self, order: KeyOrder, lower: Option<&[u8]>, upper: Option<&[u8]>) -> std::ops::Range<usize> {
        let bound = |user_key| self.seek(order, InternalKey { user_key, tag: Tag::MAX });
        let start = lower.map_or(0, bound);
        let end = upper.map_or(self.count, |upper| (bound(upper) + 1).min(self.count));
        start..end.max(start)
    }

    fn slot(&self, index: usize) -> Option<Slot> {
        if index >= self.count {
            return None;
        }
        let at = SLOTS_AT + index * SLOT_BYTES;
        let mut reader = Reader::new(self.image.get(at..at + SLOT_BYTES)?);
        let block = BlockAddress { offset: reader.u64().ok()?, length: reader.u32().ok()? };
        let keys_end = reader.u32().ok()? as usize;
        Some(Slot { block, keys_end, tag: read_bound_tag(&mut reader).ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::{Kind, SequenceNumber};
    use proptest::prelude::*;

    fn sample() -> Vec<u8> {
        let mut builder = SparseIndexBuilder::default();
        for (i, key) in [b"bb", b"dd", b"ff"].into_iter().enumerate() {
            let tag = Tag::new(SequenceNumber(i as u64 + 1), Kind::Put, false);
            let last = OwnedKey { user_key: key.to_vec(), tag };
            builder.add(BlockAddress { offset: i as u64 * 100, length: 100 }, &last).unwrap();
        }
        let mut out = Vec::new();
        builder.encode(&mut out).unwrap();
        out
    }

    #[test]
    fn golden_bytes() {
        let image = sample();
        assert_eq!(image.len(), 12 + 4 + 3 * 24 + 6 + 4);
        assert_eq!(&image[..20], [b'F', b'B', b's', b'x', 1, 0, 0, 0, 82, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&image[40..64], [100, 0, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0, 4, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn finds_the_block() {
        let index = SparseIndex::parse(sample().into()).unwrap();
        let seek = |key: &[u8]| index.seek(KeyOrder::Bytewise, InternalKey { user_key: key, tag: Tag::MAX });
        assert_eq!([seek(b""), seek(b"bb"), seek(b"bc"), seek(b"dd"), seek(b"ff"), seek(b"fg")], [0, 0, 1, 1, 2, 3]);
        assert_eq!(index.range(KeyOrder::Bytewise, Some(b"c"), Some(b"d")), 1..2);
        assert_eq!(index.range(KeyOrder::Bytewise, None, None), 0..3);
        assert_eq!(index.blocks_bytes(), 300);
        assert_eq!([0, 99, 100, 299, 300, u64::MAX].map(|offset| index.block_at(offset)), [0, 0, 1, 2, 3, 3]);
    }

    #[test]
    fn damage_is_found() {
        let good = sample();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(SparseIndex::parse(bad.into()).is_err(), "byte {at}");
            assert!(SparseIndex::parse(good[..at].into()).is_err(), "cut at {at}");
        }
    }

    proptest! {
        #[test]
        fn any_body_is_parsed_without_panic(bytes in prop::collection::vec(0u8..8, 0..120)) {
            let mut image = Vec::new();
            FRAME.encode(&mut image, |body| body.extend_from_slice(&bytes)).unwrap();
            if let Ok(index) = SparseIndex::parse(image.into()) {
                let _ = index.seek(KeyOrder::Bytewise, InternalKey { user_key: b"a", tag: Tag::MAX });
            }
        }
    }
}
