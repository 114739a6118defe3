//! Index blocks: sorted entries without their shared prefixes.
//!
//! ```text
//!  u8        version, 2; a block of version 1 has none, and begins with the zero of its first entry
//!  entry     what sets it apart from the entry before (see `coding`); at a restart, it shares nothing. A restart is
//!            followed by at most 63 entries before the next one
//!  …
//!  restarts  u32 × r  offsets in the block of the entries at restarts, ascending; the first is that of the first entry
//!            u32      r, at least 1
//!            u32      CRC32C of all that precedes
//! ```
//!
//! A block is verified once, when a [`BlockIterator`] takes it. The iterator is total: if the checksum is right but the
//! entries are not, it returns an error.
//!
//! Purpose and golden test: `docs/formats/table.md`.

use crate::coding::{Coding, ORIGIN, encode};
use crate::entry::{EntryTail, IndexEntry};
use crate::error::{Context, Error, Result};
use forebay_base::{DecodeError, InternalKey, KeyOrder, Reader, Writer, checksum};
use std::cmp::Ordering;
use std::ops::Range;

const WHAT: &str = "an index block";
/// Most entries from one restart to the next. A seek compares as many keys, and with prefixes in common each may be as long as
/// the block.
const MAX_RUN_ENTRIES: u32 = 64;
/// Bytes after the restarts.
const TRAILER_BYTES: usize = 8;
/// The version of the blocks that are written.
const VERSION: u8 = 2;
/// The first byte of a block of version 1: its first entry shares nothing.
const NO_VERSION: u8 = 0;

/// Builds index blocks, one after another.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    entries: u32,
    restart_interval: u32,
    /// The last entry, without its user key.
    last: EntryTail,
}

impl BlockBuilder {
    /// A builder that stores every `restart_interval`-th key whole, and no fewer than every 64th.
    pub fn new(restart_interval: u32) -> Self {
        let restart_interval = restart_interval.clamp(1, MAX_RUN_ENTRIES);
        Self { bytes: vec![VERSION], restarts: Vec::new(), entries: 0, restart_interval, last: ORIGIN }
    }

    /// Whether no entry was added since the last [`BlockBuilder::finish`].
    pub const fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Bytes of the block if it ended now.
    pub const fn size_bytes(&self) -> usize {
        self.bytes.len() + 4 * self.restarts.len() + TRAILER_BYTES
    }

    /// Appends an entry, which sorts after the last one. It shares `shared` bytes of its user key with the last
    /// entry's user key, `last_key`.
    #[inline]
    pub fn add(&mut self, entry: &IndexEntry<'_>, shared: usize, last_key: &[u8]) {
        let shared = if self.entries.is_multiple_of(self.restart_interval) {
            self.restarts.push(self.bytes.len() as u32);
            0
        } else {
            shared
        };
        encode(entry, shared, last_key, &self.last, &mut self.bytes);
        self.last = EntryTail::of(entry);
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
        self.bytes.truncate(1);
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
    layout: Layout,
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
        let layout = Layout::verify(bytes.as_ref()).context(WHAT)?;
        Ok(Self { bytes, layout, start: 0, end: 0, key: Vec::new(), current: None })
    }

    /// Switches to another block, keeping the key's buffer. Returns the previous block.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn replace(&mut self, bytes: B) -> Result<B> {
        self.layout = Layout::verify(bytes.as_ref()).context(WHAT)?;
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
        self.decode_whole(self.layout.entries.start)
    }

    /// Goes to the last entry.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.scan_to_end_before(self.layout.entries.end, self.layout.restarts.saturating_sub(1))
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
        if target == self.layout.entries.start {
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
            iterator.decode_whole(offset)?;
            Ok(iterator.compare(order, target) == Some(Ordering::Less))
        })?;
        self.decode_whole(self.restart(restart.saturating_sub(1))?)?;
        // The last entry that may be passed is followed by a restart that is not before the target.
        for _ in 0..=MAX_RUN_ENTRIES {
            if self.compare(order, target) != Some(Ordering::Less) {
                return Ok(());
            }
            self.advance()?;
        }
        self.lost()
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
        let (mut low, mut high) = (0, self.layout.restarts);
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
        let at = self.layout.entries.end + 4 * index;
        let mut reader = Reader::new(self.bytes.as_ref().get(at..).unwrap_or_default());
        Ok(reader.u32().context(WHAT)? as usize)
    }

    /// Goes to the entry that ends at `target`, starting at a restart.
    fn scan_to_end_before(&mut self, target: usize, restart: usize) -> Result<()> {
        self.decode_whole(self.restart(restart)?)?;
        for _ in 0..MAX_RUN_ENTRIES {
            if self.end >= target || self.current.is_none() {
                break;
            }
            self.advance()?;
        }
        if self.end == target { Ok(()) } else { self.lost() }
    }

    /// Goes to no entry, because the one that was looked for does not follow its restart.
    fn lost(&mut self) -> Result<()> {
        self.current = None;
        Err(Error::Inconsistent { what: WHAT, detail: "a restart points between entries, or too many follow it" })
    }

    /// Decodes the entry at `offset`, which depends on no other.
    fn decode_whole(&mut self, offset: usize) -> Result<()> {
        self.key.clear();
        self.current = None;
        self.decode_at(offset)
    }

    /// Decodes the entry at `offset`, which follows the current one.
    #[inline]
    fn decode_at(&mut self, offset: usize) -> Result<()> {
        let before = self.current.take();
        if offset == self.layout.entries.end {
            return Ok(());
        }
        let bytes = self.bytes.as_ref().get(offset..self.layout.entries.end).unwrap_or_default();
        let mut reader = Reader::new(bytes);
        let tail = self.layout.coding.decode(&mut reader, &mut self.key, before.as_ref()).context(WHAT)?;
        self.start = offset;
        self.end = offset + reader.offset();
        self.current = Some(tail);
        Ok(())
    }
}

/// The parts of a block.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub coding: Coding,
    /// The bytes of the entries, which are not empty.
    pub entries: Range<usize>,
    /// Number of restarts, at least one.
    restarts: usize,
}

impl Layout {
    /// Verifies a block.
    pub fn verify(bytes: &[u8]) -> std::result::Result<Self, DecodeError> {
        let truncated = DecodeError::Truncated { offset: 0, needed: TRAILER_BYTES, left: bytes.len() };
        let (covered, crc) = bytes.split_last_chunk::<4>().ok_or_else(|| truncated.clone())?;
        let (expected, found) = (u32::from_le_bytes(*crc), checksum(covered));
        if found != expected {
            return Err(DecodeError::BadChecksum { what: WHAT, expected, found });
        }
        let (rest, count) = covered.split_last_chunk::<4>().ok_or_else(|| truncated.clone())?;
        let (coding, start) = match *rest.first().ok_or(truncated)? {
            NO_VERSION => (Coding::V1, 0),
            VERSION => (Coding::V2, 1),
            found => return Err(DecodeError::Unknown { what: WHAT, feature: "version", number: found.into() }),
        };
        let restarts = u32::from_le_bytes(*count) as usize;
        match restarts.checked_mul(4).and_then(|size| rest.len().checked_sub(size)) {
            Some(end) if restarts > 0 && end > start => Ok(Self { coding, entries: start..end, restarts }),
            _ => Err(DecodeError::BadValue { what: "number of restarts", found: restarts as u64 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::RecordAddress;
    use forebay_base::{Kind, SequenceNumber, Tag};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// An entry in which all but the key comes from the number.
    fn entry(user_key: &[u8], sequence: u64) -> IndexEntry<'_> {
        let expiry_ms = (sequence == 3).then_some(7);
        let tag = Tag::new(SequenceNumber(sequence), Kind::Put, expiry_ms.is_some());
        IndexEntry {
            key: InternalKey { user_key, tag },
            address: RecordAddress { ordinal: sequence as u32 / 2, offset_units: sequence },
            length: 14 + user_key.len() as u32 + if sequence == 3 { 8 } else { 0 },
            expiry_ms,
        }
    }

    fn block(keys: &[(Vec<u8>, u64)], interval: u32) -> Vec<u8> {
        let mut builder = BlockBuilder::new(interval);
        let mut last: &[u8] = &[];
        for (key, sequence) in keys {
            builder.add(&entry(key, *sequence), shared_bytes(last, key), last);
            last = key;
        }
        let mut out = Vec::new();
        assert_eq!(builder.size_bytes(), builder.finish(&mut out) as usize);
        out
    }

    const GOLDEN_KEYS: [(&[u8], u64); 3] = [(b"apple", 1), (b"apply", 2), (b"applying", 3)];

    #[test]
    fn golden_bytes() {
        let keys = GOLDEN_KEYS.map(|(key, sequence)| (key.to_vec(), sequence));
        assert_eq!(
            block(&keys, 16),
            [
                2, 165, 0, b'a', b'p', b'p', b'l', b'e', 2, 1, 19, 51, 4, b'y', 2, 1, 2, 100, 5, b'i', b'n', b'g', 17,
                2, 3, 30, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0x8e, 0x56, 0x00, 0x0e
            ]
        );
    }

    #[test]
    fn a_block_of_version_1_is_read() {
        let bytes = [
            0, 5, b'a', b'p', b'p', b'l', b'e', 0x81, 2, 0, 1, 19, 4, 1, b'y', 0x81, 4, 1, 2, 19, 5, 3, b'i', b'n',
            b'g', 0x91, 6, 1, 3, 30, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0,
        ];
        let bytes = [&bytes[..], &checksum(&bytes).to_le_bytes()].concat();
        let mut iterator = BlockIterator::new(bytes).unwrap();
        iterator.seek_to_first().unwrap();
        for (key, sequence) in GOLDEN_KEYS {
            assert_eq!(iterator.entry(), Some(entry(key, sequence)));
            iterator.advance().unwrap();
        }
        assert_eq!(iterator.entry(), None);
        iterator.seek(KeyOrder::Bytewise, entry(b"apply", 2).key).unwrap();
        iterator.retreat().unwrap();
        assert_eq!(iterator.entry(), Some(entry(b"apple", 1)));
        iterator.retreat().unwrap();
        assert_eq!(iterator.entry(), None);
    }

    #[test]
    fn a_block_of_a_later_version_is_refused() {
        let bytes = [3, 0, 0, 0, 0, 1, 0, 0, 0];
        let bytes = [&bytes[..], &checksum(&bytes).to_le_bytes()].concat();
        let error = BlockIterator::new(bytes).unwrap_err();
        assert_eq!(error, Error::Unknown { what: WHAT, feature: "version", number: 3 });
    }

    #[test]
    fn a_restart_that_depends_on_another_entry_is_refused() {
        let mut bytes = vec![VERSION];
        for shared in [0, 1] {
            encode(&entry(b"kk", 1), shared, b"kk", &ORIGIN, &mut bytes);
        }
        let second = bytes.len() as u32 - 5;
        [1, second, 2].iter().for_each(|number| bytes.put_u32(*number));
        let crc = checksum(&bytes);
        bytes.put_u32(crc);
        let mut iterator = BlockIterator::new(bytes).unwrap();
        iterator.seek_to_first().unwrap();
        iterator.advance().unwrap();
        assert_eq!(
            (iterator.entry().map(|entry| entry.key.user_key), iterator.start),
            (Some(&b"kk"[..]), second as usize)
        );
        assert!(matches!(iterator.seek_to_last(), Err(Error::Damaged { .. })));
    }

    /// Otherwise, 4 MiB of short entries whose keys share 64 KiB took a seek tens of gigabytes to compare.
    #[test]
    fn a_run_has_at_most_64_entries() {
        let keys: Vec<_> = (0..200u8).map(|at| (vec![b'k', at], 1)).collect();
        let written = block(&keys, u32::MAX);
        let mut iterator = BlockIterator::new(written).unwrap();
        assert_eq!(iterator.layout.restarts, 4);
        for (key, _) in &keys {
            iterator.seek(KeyOrder::Bytewise, entry(key, 1).key).unwrap();
            assert_eq!(iterator.entry(), Some(entry(key, 1)));
        }
        for (key, _) in keys.iter().rev() {
            assert_eq!(iterator.entry(), Some(entry(key, 1)));
            iterator.retreat().unwrap();
        }

        let mut bytes = vec![VERSION];
        for (at, (key, _)) in keys.iter().enumerate() {
            let before = at.checked_sub(1).map(|before| entry(&keys[before].0, 1));
            let (key_before, tail) = before.as_ref().map_or((&[][..], ORIGIN), |e| (e.key.user_key, EntryTail::of(e)));
            encode(&entry(key, 1), at.min(1), key_before, &tail, &mut bytes);
        }
        [1, 1].iter().for_each(|number| bytes.put_u32(*number));
        let crc = checksum(&bytes);
        bytes.put_u32(crc);
        let mut iterator = BlockIterator::new(bytes).unwrap();
        iterator.seek(KeyOrder::Bytewise, entry(&keys[64].0, 1).key).unwrap();
        assert_eq!(iterator.entry(), Some(entry(&keys[64].0, 1)));
        assert!(matches!(
            iterator.seek(KeyOrder::Bytewise, entry(&keys[66].0, 1).key),
            Err(Error::Inconsistent { .. })
        ));
        assert!(matches!(iterator.seek_to_last(), Err(Error::Inconsistent { .. })));
        assert_eq!(iterator.entry(), None);
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
        fn any_bytes_with_a_right_checksum_are_walked_without_panic(
            version in prop::sample::select(&[NO_VERSION, VERSION]),
            mut bytes in prop::collection::vec(prop_oneof![0u8..20, any::<u8>()], 0..60),
            restarts in 0u32..4,
        ) {
            bytes.insert(0, version);
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
