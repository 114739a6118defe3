//! The complete bytes of a block: a counter of bytes for each piece of the block.
//!
//! Reservations cover the block without a gap. Each record is counted once in every piece it
//! overlaps, with the bytes in that piece. So a piece is complete when its counter equals its
//! length, and the memtable is complete when the counters add up to its final bytes.
//!
//! # Invariants
//!
//! 1. A record is counted after its bytes are written and it is listed (release). So a thread that
//!    finds a piece complete (acquire) sees all of its records and their slots of the log.
//! 2. Counters only grow, and never beyond the bytes reserved in their piece.

use crate::reservation::Extent;
use forebay_env::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};

/// Counters of one block.
#[derive(Debug)]
pub(crate) struct Pieces {
    filled: Box<[AtomicU64]>,
    piece_bytes: u64,
    capacity_bytes: u64,
}

impl Pieces {
    pub(crate) fn new(capacity_bytes: u64, piece_bytes: u64) -> Self {
        let piece_bytes = piece_bytes.clamp(1, capacity_bytes.max(1));
        let filled = (0..capacity_bytes.div_ceil(piece_bytes)).map(|_| AtomicU64::new(0)).collect();
        Self { filled, piece_bytes, capacity_bytes }
    }

    /// Counts a record as complete.
    #[inline]
    pub(crate) fn add(&self, offset: u64, length: u64) {
        let mut at = offset;
        let end = offset + length;
        while at < end {
            let piece = at / self.piece_bytes;
            let piece_end = end.min((piece + 1) * self.piece_bytes);
            if let Some(filled) = self.filled.get(piece as usize) {
                // Pairs with the acquiring loads below. The addition continues the release sequence
                // of earlier additions, so a load of the sum acquires from all of them.
                filled.fetch_add(piece_end - at, Release);
            }
            at = piece_end;
        }
    }

    /// Whether all records up to the memtable's end are complete.
    pub(crate) fn all_filled(&self, end: Extent) -> bool {
        let filled: u64 = self.filled.iter().map(|piece| piece.load(Acquire)).sum();
        filled == end.bytes
    }

    /// Complete bytes from the start: whole pieces, and the last, shorter one if the end of the
    /// memtable is known.
    pub(crate) fn filled_prefix_bytes(&self, end: Option<Extent>) -> u64 {
        let end = end.map_or(self.capacity_bytes, |end| end.bytes);
        let mut prefix = 0;
        for piece in &self.filled {
            let length = self.piece_bytes.min(end - prefix);
            if length == 0 || piece.load(Acquire) != length {
                break;
            }
            prefix += length;
        }
        prefix
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn pieces_complete_in_any_order() {
        let pieces = Pieces::new(256, 64);
        pieces.add(56, 16);
        assert_eq!(pieces.filled_prefix_bytes(None), 0);
        pieces.add(72, 128);
        pieces.add(0, 40);
        assert_eq!(pieces.filled_prefix_bytes(None), 0);
        pieces.add(40, 16);
        assert_eq!(pieces.filled_prefix_bytes(None), 192);
        let end = Extent { count: 4, bytes: 200 };
        assert_eq!(pieces.filled_prefix_bytes(Some(end)), 200);
        assert!(pieces.all_filled(end));
        assert!(!pieces.all_filled(Extent { count: 5, bytes: 216 }));
    }

    #[test]
    fn an_empty_memtable_is_complete() {
        let pieces = Pieces::new(64, 1 << 20);
        assert!(pieces.all_filled(Extent::default()));
        assert_eq!(pieces.filled_prefix_bytes(Some(Extent::default())), 0);
    }
}
