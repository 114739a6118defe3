//! The index blocks of a table, read ahead in either direction, in pieces of whole blocks.

use crate::scan::read_ahead::{MAX_PIECE_BYTES, ReadAhead};
use crate::scan::scan_endpoint::SharedEndpoint;
use crate::terms::{Error, Result};
use crate::tree::table::Table;
use forebay_fabric::Slot;
use forebay_table::{Direction, SparseIndex};
use std::ops::Range;
use std::sync::Arc;

/// See the module.
pub(crate) struct IndexReader {
    table: Arc<Table>,
    ahead: ReadAhead,
    /// Where in the image the piece begins.
    start: u64,
    piece: Option<Slot>,
}

impl IndexReader {
    /// Returns a reader of blocks of `table`, which starts at the end of the range where `direction` begins. The first
    /// piece has `first_bytes`, and at least one block.
    ///
    /// # Errors
    /// `Corrupt` when there are no such blocks.
    pub(crate) fn new(
        table: Arc<Table>,
        endpoint: SharedEndpoint,
        direction: Direction,
        blocks: &Range<usize>,
        first_bytes: u64,
    ) -> Result<Self> {
        let index = table.cached().sparse_index();
        let last = index.block(blocks.end.wrapping_sub(1)).ok_or_else(|| unknown_block(&table))?;
        let first = index.block(blocks.start).ok_or_else(|| unknown_block(&table))?;
        let range = first.offset..last.offset + u64::from(last.length);
        let image = Arc::clone(table.image());
        let ahead = ReadAhead::new(image, endpoint, direction, range.clone(), &range, first_bytes, MAX_PIECE_BYTES);
        Ok(Self { table, ahead, start: 0, piece: None })
    }

    /// Returns how many bytes were wanted of the last piece.
    pub(crate) const fn last_bytes(&self) -> u64 {
        self.ahead.last_bytes()
    }

    /// Copies `block` into `into`. Blocks are asked for in the reader's direction.
    ///
    /// # Errors
    /// Those of the fabric; `Corrupt` when there is no such block, or it was passed.
    pub(crate) fn read(&mut self, block: usize, into: &mut Vec<u8>) -> Result<()> {
        let address = self.table.cached().sparse_index().block(block).ok_or_else(|| unknown_block(&self.table))?;
        loop {
            let bytes = address.offset.checked_sub(self.start).and_then(|at| {
                let at = at as usize;
                self.piece.as_ref()?.get(at..at.checked_add(address.length as usize)?)
            });
            if let Some(bytes) = bytes {
                into.clear();
                into.extend_from_slice(bytes);
                return Ok(());
            }
            self.next_piece()?;
        }
    }

    fn next_piece(&mut self) -> Result<()> {
        self.give_back();
        let (index, direction) = (self.table.cached().sparse_index(), self.ahead.direction());
        let next = self.ahead.next(|piece| whole_blocks(index, direction, piece))?;
        let (start, piece) = next.ok_or_else(|| unknown_block(&self.table))?;
        (self.start, self.piece) = (start, Some(piece));
        Ok(())
    }

    fn give_back(&mut self) {
        if let Some(slot) = self.piece.take() {
            self.ahead.release(slot);
        }
    }
}

impl Drop for IndexReader {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Returns the blocks that are wholly within `piece`, and at least one: the block at the piece's near end, where a
/// block begins or ends.
fn whole_blocks(index: &SparseIndex, direction: Direction, piece: Range<u64>) -> Range<u64> {
    let start_of = |block| index.block(block).map_or(index.blocks_bytes(), |block| block.offset);
    match direction {
        Direction::Forward => {
            let end = start_of(index.block_at(piece.end));
            let first = start_of(index.block_at(piece.start) + 1);
            piece.start..end.max(first)
        }
        Direction::Backward => {
            let cut = index.block_at(piece.start);
            let start = if start_of(cut) == piece.start { piece.start } else { start_of(cut + 1) };
            let last = start_of(index.block_at(piece.end.saturating_sub(1)));
            start.min(last)..piece.end
        }
    }
}

fn unknown_block(table: &Table) -> Error {
    Error::corrupt(format!("table {} has no such index block", table.id().0))
}
