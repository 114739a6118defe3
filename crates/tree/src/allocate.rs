//! Taking memory from the nodes.

use crate::layout::NO_GENERATION;
use crate::memory::{Block, CHUNK_BYTES, CURSOR_OFFSET, Class, EXTENTS_OFFSET, MAX_EXTENTS};
use crate::planted::{Bug, planted};
use crate::word::Address;
use crate::{Error, TreeClient};
use forebay_env::sync::lock;
use forebay_memory_client::Error as MemoryError;
use std::sync::Arc;

/// Retired bytes after which the readers are asked how far they are.
const RECLAIM_BYTES: u64 = 1 << 20;
/// Unreachable blocks that are retired together.
const UNREACHABLE: usize = 32;

impl Drop for TreeClient {
    /// Retires what it has not yet. Where that fails, it is lost as if the process had died.
    fn drop(&mut self) {
        let _ = self.free_displaced().and_then(|()| self.retire_unreachable());
    }
}

impl TreeClient {
    /// Takes a block at a node.
    pub(crate) fn allocate(&mut self, node: usize, class: Class) -> Result<Block, Error> {
        let block = self.take_block(node, class)?;
        self.loading.iter_mut().for_each(|taken| taken.push(block));
        Ok(block)
    }

    fn take_block(&mut self, node: usize, class: Class) -> Result<Block, Error> {
        let tree = Arc::clone(self.tree());
        let geometry = &tree.memory.geometry;
        let memory = tree.memory.node(node)?;
        loop {
            if let Some(block) = memory.take(class, geometry) {
                return Ok(block);
            }
            let chunks = if let Class::Large(chunks) = class { chunks } else { 1 };
            let at = match self.take_chunks(node, chunks) {
                Err(Error::Memory(MemoryError::Full(_) | MemoryError::Fabric(_))) if memory.retired_bytes() > 0 => {
                    memory.reclaim()?;
                    match memory.take(class, geometry) {
                        Some(block) => return Ok(block),
                        None => self.take_chunks(node, chunks)?,
                    }
                }
                taken => taken?,
            };
            let session = memory.client.session().0;
            self.write_words(node, tree.memory.resolve(at, 0)?, &[class.number(), session])?;
            memory.add_chunks(class, at, geometry);
        }
    }

    /// Takes whole chunks, that follow each other, by moving the cursor.
    fn take_chunks(&mut self, node: usize, chunks: u64) -> Result<Address, Error> {
        let tree = Arc::clone(self.tree());
        let memory = tree.memory.node(node)?;
        let in_extent = memory.client.extent_bytes() / CHUNK_BYTES;
        if chunks >= in_extent {
            return Err(Error::Invalid(format!("a value of {chunks} chunks of {CHUNK_BYTES} bytes: too large")));
        }
        let cursor_at = tree.memory.superblock(node, CURSOR_OFFSET)?;
        loop {
            let cursor = self.fetch_add(node, cursor_at, chunks)?;
            let (index, chunk) = (cursor >> 32, cursor & 0xffff_ffff);
            if chunk + chunks <= in_extent {
                let extent = self.listed_extent(node, index)?;
                let extent = extent.ok_or_else(|| Error::corrupt("the cursor is at an extent that is not listed"))?;
                return Address::new(node, extent, chunk * CHUNK_BYTES)
                    .ok_or_else(|| Error::Invalid(format!("{extent} is beyond what a tree can address")));
            }
            self.next_extent(node, index)?;
        }
    }

    /// Moves the cursor from an extent that is used up to the next one, which is leased if need be.
    fn next_extent(&mut self, node: usize, index: u64) -> Result<(), Error> {
        let tree = Arc::clone(self.tree());
        let memory = tree.memory.node(node)?;
        let _growing = lock(&memory.growing);
        let cursor_at = tree.memory.superblock(node, CURSOR_OFFSET)?;
        let cursor = self.read_word(node, cursor_at)?;
        if cursor >> 32 != index {
            return Ok(());
        }
        if self.listed_extent(node, index + 1)?.is_none() {
            // Who loses the race for the place takes the next one: a shared extent is never lost.
            let word = u64::from(memory.lease(&*tree.options.clock)?.0) + 1;
            let mut place = index + 1;
            loop {
                if place >= MAX_EXTENTS {
                    return Err(MemoryError::Full(format!("a tree has at most {MAX_EXTENTS} extents at a node")).into());
                }
                let at = tree.memory.superblock(node, EXTENTS_OFFSET + place * 8)?;
                if self.compare_swap(node, at, 0, word)? == 0 {
                    break;
                }
                place += 1;
            }
        }
        let mut found = cursor;
        while found >> 32 == index {
            let seen = self.compare_swap(node, cursor_at, found, (index + 1) << 32)?;
            if seen == found {
                break;
            }
            found = seen;
        }
        Ok(())
    }

    /// Remembers to retire a block that cannot be reached any more.
    pub(crate) fn retire(&mut self, block: Block) -> Result<(), Error> {
        if planted(Bug::ReuseTooEarly) {
            return self.give_back(Block { generation: block.generation.saturating_sub(1), ..block });
        }
        self.unreachable.push(block);
        self.untidy = self.untidy || self.unreachable.len() >= UNREACHABLE;
        Ok(())
    }

    /// Retires what cannot be reached any more: wipes the generations of nodes first, all in one batch.
    fn retire_unreachable(&mut self) -> Result<(), Error> {
        let tree = Arc::clone(self.tree());
        let geometry = &tree.memory.geometry;
        let word = (u64::from(NO_GENERATION) << 32).to_le_bytes();
        let blocks = std::mem::take(&mut self.unreachable);
        let mut posted = Vec::new();
        for block in &blocks {
            let controls = match block.class {
                Class::Leaf(buckets) => buckets,
                Class::Inner => 1,
                _ => 0,
            };
            for control in 0..controls {
                let to = tree.memory.resolve(block.at, geometry.bucket_offset(control))?;
                posted.push(self.verbs.post_write(block.at.node(), to, &word)?);
            }
        }
        posted.into_iter().try_for_each(|posted| self.verbs.done(posted))?;
        for block in blocks {
            tree.memory.node(block.at.node())?.retire(block, geometry);
        }
        Ok(())
    }

    /// Gives back a block that nobody else ever knew.
    pub(crate) fn give_back(&mut self, block: Block) -> Result<(), Error> {
        self.tree().memory.node(block.at.node())?.give_back(block);
        Ok(())
    }

    /// Asks the readers how far they are, where much was retired. Between operations only: this client
    /// reads during one.
    pub(crate) fn reclaim_if_much(&mut self) -> Result<(), Error> {
        self.free_displaced()?;
        self.retire_unreachable()?;
        for node in &self.tree().memory.nodes {
            if node.retired_bytes() >= RECLAIM_BYTES {
                node.reclaim()?;
            }
        }
        Ok(())
    }

    /// Asks the readers how far they are, and frees what nobody reads any more. It takes two calls, with
    /// every other session renewed in between, until what was retired is free.
    ///
    /// # Errors
    /// [`Error`].
    pub fn reclaim(&mut self) -> Result<(), Error> {
        self.free_displaced()?;
        self.retire_unreachable()?;
        for node in &self.tree().memory.nodes {
            node.reclaim()?;
        }
        Ok(())
    }
}
