//! The records of a complete memtable in order, as a flush wants them: sorted when it asks.
//!
//! Sorting costs a tenth of what it costs to insert each record into the ordered index at its place,
//! and nobody waits for it. A word of 128 bits stands for a record: its key's first twelve bytes, which
//! decide most comparisons, and the complement of its offset, so that of equal ones the newest comes first.

use crate::block::{Published, RecordRef};
use crate::error::IndexError;
use crate::index::Records;
use crate::log::Listed;
use forebay_base::KeyOrder;

/// Records ahead at which memory is asked for: they lie in the order in which they were written.
const AHEAD: usize = 12;
/// Bytes of a record's start that are asked for: header and a short key may lie on two lines.
const HEAD_BYTES: usize = 64;

const KEY_SHIFT: u32 = u32::BITS;

/// A record as a number that sorts as its key's first twelve bytes do, newer ones first.
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
}

impl<'m> SortedRecords<'m> {
    pub(crate) const fn new(words: Vec<u128>, records: Published<'m>) -> Self {
        Self { words, next: 0, records }
    }
}

impl<'m> Iterator for SortedRecords<'m> {
    type Item = Result<RecordRef<'m>, IndexError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let word = *self.words.get(self.next)?;
        if let Some(ahead) = self.words.get(self.next + AHEAD) {
            self.records.prefetch(record_of(*ahead), HEAD_BYTES);
        }
        self.next += 1;
        Some(self.records.record(record_of(word)))
    }
}
