//! The use of a tree's memory.

use crate::class::{Block, CHUNK_BYTES, Class, LIST_BYTES, SHELVES, chunks_in};
use crate::layout::word_at;
use crate::memory::{CURSOR_OFFSET, EXTENTS_OFFSET};
use crate::shelf::{Batch, Claim, SHELF_BYTES, SHELVES_OFFSET, STACKS, class_of_list};
use crate::word::Address;
use crate::{Error, TreeClient};
use std::sync::Arc;

/// The use of a tree's memory at all its nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeMemory {
    /// Bytes that were ever used.
    pub used_bytes: u64,
    /// Of these, bytes that are free or retired, for any client to use.
    pub free_bytes: u64,
}

impl TreeMemory {
    /// Bytes of nodes, values and superblocks, of clients' own stocks, and of what was lost with clients that died.
    #[must_use]
    pub const fn live_bytes(&self) -> u64 {
        self.used_bytes.saturating_sub(self.free_bytes)
    }
}

impl TreeClient {
    /// Counts the memory of the tree. Reads the lists of all free blocks. Concurrent changes may or may not be
    /// counted.
    ///
    /// # Errors
    /// [`Error`].
    pub fn memory(&mut self) -> Result<TreeMemory, Error> {
        let tree = Arc::clone(self.tree());
        let mut sum = TreeMemory { used_bytes: self.used_bytes()?, free_bytes: 0 };
        for node in 0..tree.memory.nodes.len() {
            self.free_blocks(node, |block| sum.free_bytes += block.class.bytes(&tree.memory.cut.geometry))?;
        }
        Ok(sum)
    }

    /// Bytes of the tree's memory that were ever used, at all its nodes: one read for each.
    ///
    /// # Errors
    /// [`Error`].
    pub fn used_bytes(&mut self) -> Result<u64, Error> {
        let tree = Arc::clone(self.tree());
        let mut sum = 0;
        for (node, memory) in tree.memory.nodes.iter().enumerate() {
            let (index, chunk) = self.cursor(node)?;
            sum += index * memory.client.extent_bytes() + chunk * CHUNK_BYTES;
        }
        Ok(sum)
    }

    /// The place of the next chunk to be taken: the extent's index, and the chunk in it.
    pub(crate) fn cursor(&mut self, node: usize) -> Result<(u64, u64), Error> {
        let memory = &self.tree().memory;
        let in_extent = chunks_in(memory.node(node)?.client.extent_bytes());
        let at = memory.superblock(node, CURSOR_OFFSET)?;
        let cursor = self.read_word(node, at)?;
        Ok((cursor >> 32, (cursor & 0xffff_ffff).min(in_extent)))
    }

    /// Visits the blocks of a node that are on a stack, or in a chunk that is being cut up.
    pub(crate) fn free_blocks(&mut self, node: usize, mut visit: impl FnMut(Block)) -> Result<(), Error> {
        let tree = Arc::clone(self.tree());
        let geometry = &tree.memory.cut.geometry;
        self.within_read(|client| {
            let at = tree.memory.superblock(node, 0)?;
            let posted = client.verbs.post_read(node, at, EXTENTS_OFFSET as usize)?;
            let slot = client.verbs.bytes(posted)?;
            let superblock = slot.to_vec();
            client.verbs.release(node, slot);
            let shelves = superblock.get(SHELVES_OFFSET as usize..).unwrap_or_default();
            for shelf in shelves.chunks_exact(SHELF_BYTES).take(SHELVES) {
                let claim = Claim::from_word(word_at(shelf, 8 * STACKS));
                if claim.chunk != Address::default() {
                    let class = client.class_of(claim.chunk)?;
                    let left = claim.next..class.in_chunk(geometry);
                    left.for_each(|number| visit(class.block_of_chunk(claim.chunk, number, geometry)));
                }
                for stack in 0..STACKS {
                    client.stacked_blocks(word_at(shelf, 8 * stack), &mut visit)?;
                }
            }
            Ok(())
        })
    }

    fn stacked_blocks(&mut self, mut top: u64, visit: &mut impl FnMut(Block)) -> Result<(), Error> {
        while top != 0 {
            let at = Address::from_bits(top);
            let read = self.read_all(&[(at, LIST_BYTES)])?;
            let bytes = read.first().map_or(&[][..], Vec::as_slice);
            let class = class_of_list(bytes).ok_or_else(|| Error::corrupt("a list of free blocks of no class"))?;
            let batch = Batch::decode(bytes, class)?;
            batch.blocks.into_iter().for_each(&mut *visit);
            visit(Block { class: Class::List, at, generation: 1 });
            top = batch.below;
        }
        Ok(())
    }
}
