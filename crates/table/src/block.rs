//! Index blocks: sorted entries without their shared prefixes.
//!
//! ```text
//!  entry     varint   bytes of the user key shared with the entry before, zero at a restart
//!            varint   bytes of the user key that follow
//!                     those bytes, then the rest of the entry (see `entry`)
//!  …
//!  restarts  u32 × r  offsets of the entries that share nothing, ascending, the first is 0
//!            u32      r, at least 1
//!            u32      CRC32C of all that precedes
//! ```
//!
//! A block is verified once, when a [`BlockIterator`] takes it. The iterator is total: if the checksum is right but the
//! entries are not, it returns an error.
//!
//! Purpose and golden test: `docs/formats/table.md`.

use crate::entry::{EntryTail, IndexEntry};
use crate::error::{Context, Error, Result};
use forebay_base::{DecodeError, InternalKey, KeyOrder, MAX_KEY_BYTES, Reader, Writer, checksum};
use std::cmp::Ordering;

const WHAT: &str = "an index block";
/// Bytes after the restarts.
const TRAILER_BYTES: usize = 8;

/// Builds index blocks, one after another.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    entries: u32,
    restart_interval: u32,
}

impl BlockBuilder {
    /// A builder that stores every `restart_interval`-th key whole.
    pub fn new(restart_interval: u32) -> Self {
        Self { bytes: Vec::new(), restarts: Vec::new(), entries: 0, restart_interval: restart_interval.max(1) }
    }

    /// Whether no entry was added since the last [`BlockBuilder::finish`].
    pub const fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Bytes of the block if it ended now.
    pub const fn size_bytes(&self) -> usize {
        self.bytes.len() + 4 * self.restarts.len() + TRAILER_BYTES
    }

    /// Appends an entry, which sorts after the last one and shares `shared` bytes of its user key with it.
    #[inline]
    pub fn add(&mut self, entry: &IndexEntry<'_>, shared: usize) {
        let shared = if self.entries.is_multiple_of(self.restart_interval) {
            self.restarts.push(self.bytes.len() as u32);
            0
        } else {
            shared
        };
        let suffix = &entry.key.user_key[shared..];
        self.bytes.put_varint(shared as u64);
        self.bytes.put_varint(suffix.len() as u64);
        self.bytes.extend_from_slice(suffix);
        entry.encode_tail(&mut self.bytes);
        self.entries += 1;
    }

    /// Appends the block to `out` and starts the next one. Returns the block's length in bytes.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> u32 {
        for &restart in &self.restarts {
            self.bytes.put_u32(restart);
        }
        self.bytes.put_u32(self.restarts.len() as u32);
        let crc = checksum(&self.bytes);
        self.bytes.put_u32(crc);
        out.extend_from_slice(&self.bytes);
        let length = self.bytes.len() as u32;
        self.bytes.clear();
        self.restarts.clear();
        self.entries = 0;
        length
    }
}

/// Number of bytes that two keys have in common at their start.
#[inline]
pub(crate) fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    let mut shared = 0;
    for (left, right) in words {
        let difference = u64::from_le_bytes(*left) ^ u64::from_le_bytes(*right);
        if difference != 0 {
            return shared + (difference.trailing_zeros() / 8) as usize;
        }
        shared += 8;
    }
    let rest = a.get(shared..).unwrap_or_default().iter().zip(b.get(shared..).unwrap_or_default());
    shared + rest.take_while(|(left, right)| left == right).count()
}

/// Iterates over one index block in both directions. It is at an entry or at none.
#[derive(Debug)]
pub struct BlockIterator<B> {
    bytes: B,
    entries_end: usize,
    restart_count: usize,
    /// Offsets where the current entry starts and ends.
    start: usize,
    end: usize,
    key: Vec<u8>,
    current: Option<EntryTail>,
}

impl<B: AsRef<[u8]>> BlockIterator<B> {
    /// An iterator over the block `bytes`, at no entry.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn new(bytes: B) -> Result<Self> {
        let (entries_end, restart_count) = verify(bytes.as_ref()).context(WHAT)?;
        Ok(Self { bytes, entries_end, restart_count, start: 0, end: 0, key: Vec::new(), current: None })
    }

    /// Switches to another block, keeping the key's buffer. Returns the previous block.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn replace(&mut self, bytes: B) -> Result<B> {
        let (entries_end, restart_count) = verify(bytes.as_ref()).context(WHAT)?;
        self.entries_end = entries_end;
        self.restart_count = restart_count;
        self.start = 0;
        self.end = 0;
        self.current = None;
        Ok(std::mem::replace(&mut self.bytes, bytes))
    }

    /// The current entry.
    #[inline]
    #[must_use]
    pub fn entry(&self) -> Option<IndexEntry<'_>> {
        self.current.map(|tail| tail.entry(&self.key))
    }

    /// Goes to the first entry.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.decode_at(0)
    }

    /// Goes to the last entry.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.scan_to_end_before(self.entries_end, self.restart_count.saturating_sub(1))
    }

    /// Goes to the next entry, or to none after the last. Without a current entry, nothing happens.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    #[inline]
    pub fn advance(&mut self) -> Result<()> {
        if self.current.is_none() {
            return Ok(());
        }
        self.decode_at(self.end)
    }

    /// Goes to the previous entry, or to none before the first. Without a current entry, nothing happens.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn retreat(&mut self) -> Result<()> {
        if self.current.is_none() {
            return Ok(());
        }
        let target = self.start;
        if target == 0 {
            self.current = None;
            return Ok(());
        }
        let restart = self.partition_restarts(|offset, _| Ok(offset < target))?;
        self.scan_to_end_before(target, restart.saturating_sub(1))
    }

    /// Goes to the first entry that does not sort before `target`, or to none.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn seek(&mut self, order: KeyOrder, target: InternalKey<'_>) -> Result<()> {
        let restart = self.partition_restarts(|offset, iterator| {
            iterator.decode_at(offset)?;
            Ok(iterator.compare(order, target) == Some(Ordering::Less))
        })?;
        self.decode_at(self.restart(restart.saturating_sub(1))?)?;
        while self.compare(order, target) == Some(Ordering::Less) {
            self.advance()?;
        }
        Ok(())
    }

    /// Goes to the last entry that does not sort after `target`, or to none.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn seek_for_prev(&mut self, order: KeyOrder, target: InternalKey<'_>) -> Result<()> {
        self.seek(order, target)?;
        match self.compare(order, target) {
            Some(Ordering::Equal) => Ok(()),
            Some(_) => self.retreat(),
            None => self.seek_to_last(),
        }
    }

    /// Compares the current entry with `target`.
    fn compare(&self, order: KeyOrder, target: InternalKey<'_>) -> Option<Ordering> {
        Some(order.compare_internal(self.entry()?.key, target))
    }

    /// Number of restarts for which `before` holds; it holds for a prefix of them.
    fn partition_restarts(&mut self, mut before: impl FnMut(usize, &mut Self) -> Result<bool>) -> Result<usize> {
        let (mut low, mut high) = (0, self.restart_count);
        while low < high {
            let middle = low + (high - low) / 2;
            let offset = self.restart(middle)?;
            if before(offset, self)? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Offset of a restart's entry.
    fn restart(&self, index: usize) -> Result<usize> {
        let at = self.entries_end + 4 * index;
        let mut reader = Reader::new(self.bytes.as_ref().get(at..).unwrap_or_default());
        Ok(reader.u32().context(WHAT)? as usize)
    }

    /// Goes to the entry that ends at `target`, starting at a restart.
    fn scan_to_end_before(&mut self, target: usize, restart: usize) -> Result<()> {
        self.decode_at(self.restart(restart)?)?;
        while self.end < target && self.current.is_some() {
            self.advance()?;
        }
        if self.end == target {
            return Ok(());
        }
        self.current = None;
        Err(Error::Inconsistent { what: WHAT, detail: "a restart points between entries" })
    }

    /// Decodes the entry at `offset`. Its shared prefix is in `key`, because the caller comes from the previous entry
    /// or from a restart.
    #[inline]
    fn decode_at(&mut self, offset: usize) -> Result<()> {
        self.current = None;
        if offset == self.entries_end {
            return Ok(());
        }
        let bytes = self.bytes.as_ref().get(offset..self.entries_end).unwrap_or_default();
        let mut reader = Reader::new(bytes);
        let tail = decode_entry(&mut reader, &mut self.key).context(WHAT)?;
        self.start = offset;
        self.end = offset + reader.offset();
        self.current = Some(tail);
        Ok(())
    }
}

/// Decodes the entry at the reader, whose shared prefix is in `key`.
#[inline]
pub(crate) fn decode_entry(reader: &mut Reader<'_>, key: &mut Vec<u8>) -> std::result::Result<EntryTail, DecodeError> {
    let shared = reader.varint32()? as usize;
    let suffix = reader.prefixed()?;
    if shared > key.len() || shared + suffix.len() > MAX_KEY_BYTES {
        return Err(DecodeError::BadValue { what: "shared prefix", found: shared as u64 });
    }
    key.truncate(shared);
    key.extend_from_slice(suffix);
    EntryTail::decode(reader)
}

/// Verifies a block. Returns the end of its entries and the number of restarts.
pub(crate) fn verify(bytes: &[u8]) -> std::result::Result<(usize, usize), DecodeError> {
    let truncated = DecodeError::Truncated { offset: 0, needed: TRAILER_BYTES, left: bytes.len() };
    let (covered, crc) = bytes.split_last_chunk::<4>().ok_or_else(|| truncated.clone())?;
    let (expected, found) = (u32::from_le_bytes(*crc), checksum(covered));
    if found != expected {
        return Err(DecodeError::BadChecksum { what: WHAT, expected, found });
    }
    let (rest, count) = covered.split_last_chunk::<4>().ok_or(truncated)?;
    let count = u32::from_le_bytes(*count) as usize;
    match count.checked_mul(4).and_then(|size| rest.len().checked_sub(size)) {
        Some(entries_end) if count > 0 && entries_end > 0 => Ok((entries_end, count)),
        _ => Err(DecodeError::BadValue { what: "number of restarts", found: count as u64 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::RecordAddress;
    use forebay_base::{Kind, SequenceNumber, Tag};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn entry(user_key: &[u8], sequence: u64) -> IndexEntry<'_> {
        let tag = Tag::new(SequenceNumber(sequence), Kind::Put, false);
        IndexEntry {
            key: InternalKey { user_key, tag },
            address: RecordAddress { ordinal: 0, offset_units: sequence },
            length: 14 + user_key.len() as u32,
            expiry_ms: None,
        }
    }

    fn block(keys: &[(Vec<u8>, u64)], interval: u32) -> Vec<u8> {
        let mut builder = BlockBuilder::new(interval);
        let mut last: &[u8] = &[];
        for (key, sequence) in keys {
            builder.add(&entry(key, *sequence), shared_bytes(last, key));
            last = key;
        }
        let mut out = Vec::new();
        assert_eq!(builder.size_bytes(), builder.finish(&mut out) as usize);
        out
    }

    #[test]
    fn golden_bytes() {
        let keys = [(b"apple".to_vec(), 1), (b"apply".to_vec(), 2)];
        assert_eq!(
            block(&keys, 16),
            [
                0, 5, b'a', b'p', b'p', b'l', b'e', 0x81, 2, 0, 1, 19, 4, 1, b'y', 0x81, 4, 0, 2, 19, 0, 0, 0, 0, 1, 0,
                0, 0, 0xed, 0x93, 0xbb, 0xe5
            ]
        );
    }

    proptest! {
        #[test]
        fn shared_bytes_are_counted(shared in prop::collection::vec(any::<u8>(), 0..30), a: Vec<u8>, b: Vec<u8>) {
            let (a, b) = ([&shared[..], &a[..]].concat(), [&shared[..], &b[..]].concat());
            prop_assert_eq!(shared_bytes(&a, &b), a.iter().zip(&b).take_while(|(a, b)| a == b).count());
        }

        #[test]
        fn moves_like_a_sorted_set(
            keys in prop::collection::btree_set((prop::collection::vec(97u8..100, 0..6), 1u64..4), 1..80),
            probes in prop::collection::vec((prop::collection::vec(97u8..101, 0..6), 0u64..5), 1..20),
            interval in 1u32..6,
        ) {
            let order = KeyOrder::Bytewise;
            // Newest first within a key.
            let keys: BTreeSet<_> = keys.into_iter().map(|(key, s)| (key, std::cmp::Reverse(s))).collect();
            let list: Vec<_> = keys.into_iter().map(|(key, s)| (key, s.0)).collect();
            let mut iterator = BlockIterator::new(block(&list, interval)).unwrap();
            let at = |i: usize| list.get(i).map(|(key, s)| entry(key, *s));
            for (key, sequence) in probes {
                let target = entry(&key, sequence).key;
                let lower = list.iter()
                    .position(|(k, s)| order.compare_internal(entry(k, *s).key, target) != Ordering::Less)
                    .unwrap_or(list.len());
                iterator.seek(order, target).unwrap();
                prop_assert_eq!(iterator.entry(), at(lower));
                iterator.advance().unwrap();
                prop_assert_eq!(iterator.entry(), at(lower + 1));
                iterator.seek_for_prev(order, target).unwrap();
                let found = at(lower).is_some_and(|e| e.key == target);
                let last = if found { Some(lower) } else { lower.checked_sub(1) };
                prop_assert_eq!(iterator.entry(), last.and_then(at));
                iterator.retreat().unwrap();
                prop_assert_eq!(iterator.entry(), last.and_then(|i| i.checked_sub(1)).and_then(at));
            }
            iterator.seek_to_last().unwrap();
            for i in (0..list.len()).rev() {
                prop_assert_eq!(iterator.entry(), at(i));
                iterator.retreat().unwrap();
            }
            prop_assert_eq!(iterator.entry(), None);
        }

        #[test]
        fn any_bytes_with_a_right_checksum_are_walked_without_panic(mut bytes in prop::collection::vec(0u8..20, 0..60),
                                                                     restarts in 0u32..4) {
            bytes.put_u32(restarts);
            let crc = checksum(&bytes);
            bytes.put_u32(crc);
            if let Ok(mut iterator) = BlockIterator::new(&bytes) {
                let _ = iterator.seek_to_last();
                let _ = iterator.retreat();
                let _ = iterator.seek(KeyOrder::Bytewise, entry(b"k", 1).key);
                let _ = iterator.seek_for_prev(KeyOrder::Bytewise, entry(b"k", 1).key);
                let _ = iterator.seek_to_first();
                for _ in 0..100 {
                    let _ = iterator.advance();
                }
            }
            let _ = BlockIterator::new(bytes.split_last().map(|(_, rest)| rest.to_vec()).unwrap_or_default());
        }
    }
}
