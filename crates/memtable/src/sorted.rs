//! The records of a complete memtable in order, for a flush, which sorts them when it starts.
//!
//! Sorting costs a tenth of inserting each record at its place in the ordered index, and nobody waits for it. A record
//! is represented by a word of 128 bits: its key's first twelve bytes, which decide most comparisons, and the
//! complement of its offset. So among equal keys the newest comes first.

use crate::block::{Published, RecordRef};
use crate::error::IndexError;
use crate::log::Listed;
use crate::records::Records;
use forebay_base::KeyOrder;

/// Number of records ahead to prefetch, because records are stored in the order of writing.
const AHEAD: usize = 12;
/// Bytes to prefetch of each record's start: the header and a short key may be on two lines.
const HEAD_BYTES: usize = 64;
/// Most bytes to prefetch of a record that is copied: the processor detects by itself that a longer copy continues.
const MAX_AHEAD_BYTES: usize = 1 << 10;

const KEY_SHIFT: u32 = u32::BITS;

/// A record as a number that sorts like its key's first twelve bytes, newer ones first.
pub(crate) const fn word(listed: Listed) -> u128 {
    (listed.prefix as u128) << 64 | (listed.tail as u128) << KEY_SHIFT | !listed.record as u128
}

/// The record of a word.
pub(crate) const fn record_of(word: u128) -> u32 {
    !(word as u32)
}

/// First eight bytes of a word's key.
pub(crate) const fn prefix_of(word: u128) -> u64 {
    (word >> 64) as u64
}

/// Sorts words by the internal keys of their records.
pub(crate) fn sort<R: Records>(words: &mut [u128], order: KeyOrder, records: R) -> Result<(), IndexError> {
    words.sort_unstable();
    let mut keys = Vec::new();
    for group in words.chunk_by_mut(|a, b| a >> KEY_SHIFT == b >> KEY_SHIFT) {
        if group.len() == 1 {
            continue;
        }
        keys.clear();
        for word in &*group {
            keys.push((records.key_at(record_of(*word))?, *word));
        }
        keys.sort_by(|(a, _), (b, _)| order.compare_internal(*a, *b));
        for (word, (_, sorted)) in group.iter_mut().zip(&keys) {
            *word = *sorted;
        }
    }
    Ok(())
}

/// The records of a complete memtable, in order of their internal keys.
#[derive(Debug)]
pub struct SortedRecords<'m> {
    words: Vec<u128>,
    next: usize,
    records: Published<'m>,
    /// Bytes to prefetch of each record.
    ahead_bytes: usize,
}

impl<'m> SortedRecords<'m> {
    pub(crate) const fn new(words: Vec<u128>, records: Published<'m>) -> Self {
        Self { words, next: 0, records, ahead_bytes: HEAD_BYTES }
    }

    /// For a caller that copies the records and does not only read their heads: prefetches the mean length from
    /// each, if all together have `block_bytes`.
    #[must_use]
    pub fn to_copy(mut self, block_bytes: usize) -> Self {
        let mean_bytes = block_bytes.div_ceil(self.words.len().max(1));
        self.ahead_bytes = mean_bytes.clamp(HEAD_BYTES, MAX_AHEAD_BYTES);
        self
    }
}

impl<'m> Iterator for SortedRecords<'m> {
    type Item = Result<RecordRef<'m>, IndexError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let word = *self.words.get(self.next)?;
        if let Some(ahead) = self.words.get(self.next + AHEAD) {
            self.records.prefetch(record_of(*ahead), self.ahead_bytes);
        }
        self.next += 1;
        Some(self.records.record(record_of(word)))
    }
}
