//! An index as bytes, which the receiver searches. A memory node that holds a memtable's block may answer lookups from
//! it (O3-LSM 4.4).
//!
//! A memtable that takes no more inserts needs no tree. The image is the prefixes and offsets of its records, in order,
//! and a search is a binary search.
//!
//! ```text
//!  offset     size   field
//!  0          4      CRC32C of bytes 4 … end
//!  4          2      format version, 2
//!  6          1      key order (`KeyOrder`)
//!  7          1      zero
//!  8          4      number of records, n
//!  12         4      zero
//!  16         8 × n  prefixes of the keys (`KeyOrder::prefix`), ascending
//!  16 + 8n    4 × n  offsets of the records in the block, divided by 8
//! ```
//!
//! All integers are little-endian. Nothing follows the offsets. The checksum detects damage, not malice: a search
//! visits no more slots than there are and checks every offset. A result can be trusted only as far as the record,
//! which carries its own checksum.

use crate::error::{IndexError, MemtableError};
use crate::records::Records;
use forebay_base::record::ALIGNMENT;
use forebay_base::{DecodeError, InternalKey, KeyOrder, Reader, Record, SequenceNumber, Tag, Writer, checksum};
use std::cmp::Ordering;

const VERSION: u16 = 2;
const HEADER_BYTES: usize = 16;
const PREFIX_BYTES: usize = size_of::<u64>();
const RECORD_BYTES: usize = size_of::<u32>();

/// Encodes slots that are in order: the prefix of a key, and its record's offset divided by 8.
pub(crate) fn encode(order: KeyOrder, slots: impl Iterator<Item = (u64, u32)>) -> Vec<u8> {
    let (mut prefixes, mut offsets) = (Vec::new(), Vec::new());
    for (prefix, record) in slots {
        prefixes.put_u64(prefix);
        offsets.put_u32(record);
    }
    let mut out = Vec::with_capacity(HEADER_BYTES + prefixes.len() + offsets.len());
    out.put_u32(0);
    out.put_u16(VERSION);
    out.put_u8(order as u8);
    out.put_u8(0);
    out.put_u32((offsets.len() / RECORD_BYTES) as u32);
    out.put_u32(0);
    out.extend_from_slice(&prefixes);
    out.extend_from_slice(&offsets);
    let sum = checksum(&out[4..]);
    out[..4].copy_from_slice(&sum.to_le_bytes());
    out
}

/// An index from outside this process. Its bytes must not change while it is in use.
#[derive(Debug, Clone, Copy)]
pub struct IndexImage<'a> {
    prefixes: &'a [u8],
    offsets: &'a [u8],
    order: KeyOrder,
}

fn check(what: &'static str, found: u64, holds: bool) -> Result<(), DecodeError> {
    if holds { Ok(()) } else { Err(DecodeError::BadValue { what, found }) }
}

impl<'a> IndexImage<'a> {
    /// Checks checksum, version and lengths.
    ///
    /// # Errors
    /// [`MemtableError::Image`].
    pub fn decode(bytes: &'a [u8]) -> Result<Self, MemtableError> {
        let mut reader = Reader::new(bytes);
        let expected = reader.u32()?;
        let found = checksum(bytes.get(4..).unwrap_or_default());
        if expected != found {
            return Err(DecodeError::BadChecksum { what: "index image", expected, found }.into());
        }
        let version = reader.u16()?;
        check("index image version", version.into(), version == VERSION)?;
        let number = reader.u8()?;
        let order = KeyOrder::from_number(number)
            .ok_or(DecodeError::BadValue { what: "index image key order", found: number.into() })?;
        let zero = reader.u8()?;
        check("index image padding", zero.into(), zero == 0)?;
        let count = reader.u32()? as usize;
        let zero = reader.u32()?;
        check("index image padding", zero.into(), zero == 0)?;
        let prefixes = reader.bytes(count.saturating_mul(PREFIX_BYTES))?;
        let offsets = reader.bytes(count.saturating_mul(RECORD_BYTES))?;
        reader.finish()?;
        Ok(Self { prefixes, offsets, order })
    }

    /// Order of the keys.
    #[must_use]
    pub const fn order(&self) -> KeyOrder {
        self.order
    }

    /// Number of records.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.offsets.len() / RECORD_BYTES
    }

    /// Whether there are no records.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// A cursor over the records of `block`, without a position.
    #[must_use]
    pub const fn cursor(self, block: BlockBytes<'a>) -> ImageCursor<'a> {
        ImageCursor { image: self, block, slot: None }
    }

    /// The newest record of `key` in `block` that `snapshot` covers, of any kind, and its offset in bytes. The record's
    /// checksum is verified.
    ///
    /// # Errors
    /// [`IndexError`] when the image or the block is damaged.
    pub fn get(
        self,
        block: BlockBytes<'a>,
        key: &[u8],
        snapshot: SequenceNumber,
    ) -> Result<Option<(u64, Record<'a>)>, IndexError> {
        let slot = self.rank(block, InternalKey { user_key: key, tag: Tag::seek(snapshot) }, false)?;
        let Some(record) = self.record(slot) else { return Ok(None) };
        let offset = u64::from(record) * ALIGNMENT as u64;
        let record = Record::decode(block.from(offset)).map_err(|_| IndexError::BadRecord { offset })?;
        Ok((record.key == key).then_some((offset, record)))
    }

    /// Number of slots before `key`; with `or_equal`, also those equal to it.
    fn rank(&self, block: BlockBytes<'_>, key: InternalKey<'_>, or_equal: bool) -> Result<usize, IndexError> {
        let prefix = self.order.prefix(key.user_key);
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            let (Some(found), Some(record)) = (self.prefix(middle), self.record(middle)) else { break };
            let order = match found.cmp(&prefix) {
                Ordering::Equal => self.order.compare_internal(block.key_at(record)?, key),
                decided => decided,
            };
            if order == Ordering::Less || or_equal && order == Ordering::Equal {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    fn prefix(&self, slot: usize) -> Option<u64> {
        self.prefixes.get(slot * PREFIX_BYTES..)?.first_chunk().map(|prefix| u64::from_le_bytes(*prefix))
    }

    fn record(&self, slot: usize) -> Option<u32> {
        self.offsets.get(slot * RECORD_BYTES..)?.first_chunk().map(|record| u32::from_le_bytes(*record))
    }
}

/// A place in an image, or no position.
#[derive(Debug, Clone)]
pub struct ImageCursor<'a> {
    image: IndexImage<'a>,
    block: BlockBytes<'a>,
    slot: Option<usize>,
}

impl ImageCursor<'_> {
    fn go(&mut self, slot: Option<usize>) {
        self.slot = slot.filter(|slot| *slot < self.image.len());
    }

    /// Goes to the first record.
    pub fn seek_to_first(&mut self) {
        self.go(Some(0));
    }

    /// Goes to the last record.
    pub fn seek_to_last(&mut self) {
        self.go(self.image.len().checked_sub(1));
    }

    /// Goes to the first record whose key is not before `key`.
    ///
    /// # Errors
    /// [`IndexError`] when the image or the block is damaged; the cursor then has no position.
    pub fn seek(&mut self, key: InternalKey<'_>) -> Result<(), IndexError> {
        self.slot = None;
        let rank = self.image.rank(self.block, key, false)?;
        self.go(Some(rank));
        Ok(())
    }

    /// Goes to the last record whose key is not after `key`.
    ///
    /// # Errors
    /// See [`seek`](Self::seek).
    pub fn seek_for_prev(&mut self, key: InternalKey<'_>) -> Result<(), IndexError> {
        self.slot = None;
        let rank = self.image.rank(self.block, key, true)?;
        self.go(rank.checked_sub(1));
        Ok(())
    }

    /// Goes one record forward. There is no position after the last record; without a position, nothing happens.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) {
        self.go(self.slot.map(|slot| slot + 1));
    }

    /// Goes one record back. There is no position before the first record; without a position, nothing happens.
    pub fn prev(&mut self) {
        self.go(self.slot.and_then(|slot| slot.checked_sub(1)));
    }

    /// Offset, divided by 8, of the current record; `None` without a position.
    #[must_use]
    pub fn record(&self) -> Option<u32> {
        self.slot.and_then(|slot| self.image.record(slot))
    }
}

/// The bytes of a block from outside this process. They must not change while they are in use.
#[derive(Debug, Clone, Copy)]
pub struct BlockBytes<'a>(pub &'a [u8]);

impl<'a> BlockBytes<'a> {
    fn from(self, offset: u64) -> &'a [u8] {
        usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..)).unwrap_or_default()
    }
}

impl Records for BlockBytes<'_> {
    fn key_at(&self, record: u32) -> Result<InternalKey<'_>, IndexError> {
        let offset = u64::from(record) * ALIGNMENT as u64;
        let (found, _) = Record::decode_unverified(self.from(offset)).map_err(|_| IndexError::BadRecord { offset })?;
        Ok(InternalKey { user_key: found.key, tag: found.tag })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One slot, for the key "key". Its record is at the start of the block.
    #[rustfmt::skip]
    const GOLDEN: [u8; 28] = [
        0xd0, 0x32, 0xca, 0x48, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, // checksum, version, order, records
        0, 0, 0, 0, 0, b'y', b'e', b'k', // prefix
        0, 0, 0, 0, // offset
    ];

    /// An image with these slots.
    fn image_of(prefixes: &[u64], offsets: &[u32]) -> Vec<u8> {
        let mut out = GOLDEN[..HEADER_BYTES].to_vec();
        out[8..12].copy_from_slice(&(offsets.len() as u32).to_le_bytes());
        prefixes.iter().for_each(|prefix| out.put_u64(*prefix));
        offsets.iter().for_each(|offset| out.put_u32(*offset));
        let sum = checksum(&out[4..]);
        out[..4].copy_from_slice(&sum.to_le_bytes());
        out
    }

    fn one_record() -> Vec<u8> {
        let mut block = Vec::new();
        Record::put(SequenceNumber(1), b"key", b"value").encode(&mut block);
        block
    }

    #[test]
    fn golden_bytes() {
        let block = one_record();
        let block = BlockBytes(&block);
        let order = KeyOrder::Bytewise;
        assert_eq!(encode(order, std::iter::once((order.prefix(b"key"), 0))), GOLDEN);
        let image = IndexImage::decode(&GOLDEN).unwrap();
        let (offset, record) = image.get(block, b"key", SequenceNumber(1)).unwrap().unwrap();
        assert_eq!((offset, record.value), (0, &b"value"[..]));
        assert_eq!(image.get(block, b"key", SequenceNumber(0)), Ok(None));
        assert_eq!(image.get(block, b"kez", SequenceNumber(1)), Ok(None));
    }

    #[test]
    fn wild_offsets_end_in_errors() {
        let block = one_record();
        let bytes = image_of(&[0x6b65_7900_0000_0000; 2], &[0, 1 << 20]);
        let image = IndexImage::decode(&bytes).unwrap();
        let found = image.get(BlockBytes(&block), b"key", SequenceNumber(1));
        assert_eq!(found, Err(IndexError::BadRecord { offset: 8 << 20 }));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        for bit in (0..GOLDEN.len() * 8).step_by(if cfg!(miri) { 97 } else { 1 }) {
            let mut bad = GOLDEN;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(IndexImage::decode(&bad).is_err(), "bit {bit}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn any_bytes_decode_without_panic(bytes: Vec<u8>) {
            let _ = IndexImage::decode(&bytes);
        }

        /// Slots in any order that mostly point to some place, over a block with records.
        #[test]
        fn any_slots_are_searched_without_panic(
            slots in prop::collection::vec(
                (prop_oneof![any::<u64>(), Just(0x6b65_7900_0000_0000)], prop_oneof![0u32..8, any::<u32>()]),
                0..20,
            ),
            key: Vec<u8>,
        ) {
            let mut block = one_record();
            Record::delete(SequenceNumber(2), b"key").encode(&mut block);
            let (prefixes, offsets): (Vec<_>, Vec<_>) = slots.into_iter().unzip();
            let bytes = image_of(&prefixes, &offsets);
            let image = IndexImage::decode(&bytes).unwrap();
            for key in [&key[..], b"key"] {
                let _ = image.get(BlockBytes(&block), key, SequenceNumber::MAX);
            }
            let mut cursor = image.cursor(BlockBytes(&block));
            let _ = cursor.seek_for_prev(InternalKey { user_key: &key, tag: Tag::MAX });
            cursor.prev();
            cursor.seek_to_first();
            let mut steps = 0;
            while cursor.record().is_some() {
                cursor.next();
                steps += 1;
            }
            prop_assert_eq!(steps, offsets.len());
        }
    }
}
