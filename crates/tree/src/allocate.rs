//! Taking memory from the nodes.

use crate::class::{Block, CHUNK_BYTES, Class, chunks_in};
use crate::layout::NO_GENERATION;
use crate::memory::{CURSOR_OFFSET, EXTENTS_OFFSET, MAX_EXTENTS};
use crate::planted::{Bug, planted};
use crate::word::Address;
use crate::{Error, TreeClient};
use forebay_env::sync::lock;
use forebay_memory_client::Error as MemoryError;
use std::sync::Arc;

/// Number of unreachable blocks that are retired together.
const UNREACHABLE: usize = 32;

/// Chunks of an extent, more than any has, from which on the cursor is put back to the extent's end.
const MANY_CHUNKS: u64 = 1 << 20;

impl Drop for TreeClient {
    /// Retires the remaining unreachable blocks. The last client of a process hands over all its blocks. If that
    /// fails, they are lost as if the process had died.
    fn drop(&mut self) {
        let is_last = self.tree().remove_client();
        let _ = self.retire_all().and_then(|()| if is_last { self.hand_over_stock() } else { Ok(()) });
    }
}

impl TreeClient {
    /// Takes a block at a node, or at another one if that has no memory.
    pub(crate) fn allocate(&mut self, node: usize, class: Class) -> Result<Block, Error> {
        let reserved = self.reserved.iter().enumerate().filter(|(_, block)| block.class == class);
        let block = match reserved.max_by_key(|(_, block)| block.at.node() == node) {
            Some((index, _)) => self.reserved.swap_remove(index),
            None => self.take_near(node, class)?,
        };
        self.loading.iter_mut().for_each(|taken| taken.push(block));
        Ok(block)
    }

    /// Takes the blocks that a change of structure is about to need. Otherwise the change could run out of memory
    /// midway, and what it has frozen would stay frozen. Unused blocks are given back when the operation ends.
    pub(crate) fn reserve(&mut self, needs: impl IntoIterator<Item = (usize, Class)>) -> Result<(), Error> {
        let mut taken = Vec::new();
        let reserved = needs.into_iter().try_for_each(|(node, class)| {
            taken.push(self.allocate(node, class)?);
            Ok(())
        });
        self.reserved.append(&mut taken);
        reserved
    }

    fn take_near(&mut self, node: usize, class: Class) -> Result<Block, Error> {
        let nodes = self.tree().memory.nodes.len();
        let mut taken = self.take_block(node, class);
        for next in 1..nodes {
            if !taken.as_ref().is_err_and(Error::is_full) {
                break;
            }
            taken = self.take_block((node + next) % nodes, class);
        }
        taken
    }

    fn take_block(&mut self, node: usize, class: Class) -> Result<Block, Error> {
        let tree = Arc::clone(self.tree());
        let memory = tree.memory.node(node)?;
        let class = class.rounded(chunks_in(memory.client.extent_bytes()).saturating_sub(1));
        let mut has_advanced = false;
        loop {
            if let Some(block) = memory.take(class) {
                return Ok(block);
            }
            match self.refill(node, class) {
                Err(error) if error.is_full() && !has_advanced => {
                    has_advanced = true;
                    self.hand_over(node, true)?;
                    self.advance(node)?;
                }
                refilled => refilled?,
            }
        }
    }

    /// Takes consecutive whole chunks by moving the cursor.
    pub(crate) fn take_chunks(&mut self, node: usize, chunks: u64) -> Result<Address, Error> {
        let tree = Arc::clone(self.tree());
        let memory = tree.memory.node(node)?;
        let in_extent = chunks_in(memory.client.extent_bytes());
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
            match self.next_extent(node, index) {
                Err(error) if error.is_full() => {
                    // Nobody got these chunks, so shorter blocks may still have those that the extent has left.
                    let mut found = self.compare_swap(node, cursor_at, cursor.wrapping_add(chunks), cursor)?;
                    // Where clients fail at once, only the last one takes its chunks back. The others' must not add up to
                    // another index.
                    while found >> 32 == index && found & 0xffff_ffff >= MANY_CHUNKS {
                        found = self.compare_swap(node, cursor_at, found, index << 32 | in_extent)?;
                    }
                    return Err(error);
                }
                moved => moved?,
            }
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
        let full = || MemoryError::Full(format!("a tree has at most {MAX_EXTENTS} extents at a node"));
        let mut place = index + 1;
        // What follows the list is no list.
        if place >= MAX_EXTENTS {
            return Err(full().into());
        }
        if self.listed_extent(node, place)?.is_none() {
            // The loser of a race for the place takes the next place: a shared extent is never lost.
            let word = u64::from(memory.lease(&*tree.options.clock)?.0) + 1;
            loop {
                if place >= MAX_EXTENTS {
                    return Err(full().into());
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

    /// Queues a block that cannot be reached any more, to be retired.
    pub(crate) fn retire(&mut self, block: Block) -> Result<(), Error> {
        if planted(Bug::ReuseTooEarly) {
            return self.give_back(block);
        }
        self.unreachable.push(block);
        self.untidy = self.untidy || self.unreachable.len() >= UNREACHABLE;
        Ok(())
    }

    /// Retires the blocks that cannot be reached any more. First wipes the generations of nodes, all in one batch.
    fn retire_all(&mut self) -> Result<(), Error> {
        self.free_displaced()?;
        let tree = Arc::clone(self.tree());
        let geometry = &tree.memory.cut.geometry;
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
            tree.memory.node(block.at.node())?.retire(block);
        }
        Ok(())
    }

    /// Gives back a block that nobody else ever knew.
    pub(crate) fn give_back(&mut self, block: Block) -> Result<(), Error> {
        let tree = self.tree();
        tree.memory.node(block.at.node())?.give_back(block, &tree.memory.cut);
        Ok(())
    }

    /// Retires and hands over blocks if there are many. Only between operations.
    pub(crate) fn tidy(&mut self) -> Result<(), Error> {
        self.retire_all().map_err(|error| self.judged(error))?;
        self.within_read(Self::hand_over_full)
    }

    /// Retires and hands over all blocks that it can, and asks the readers how far they are. So blocks that nobody
    /// reads come nearer to reuse. It takes three calls, with every other session renewed in between, until retired
    /// blocks are free.
    ///
    /// # Errors
    /// [`Error`].
    pub fn reclaim(&mut self) -> Result<(), Error> {
        self.retire_all().map_err(|error| self.judged(error))?;
        self.within_read(|client| {
            for node in 0..client.tree().memory.nodes.len() {
                client.hand_over(node, true)?;
                client.advance(node)?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verb;
    use crate::tests::tree;

    #[test]
    fn a_tree_with_the_most_extents_takes_no_more() {
        let (_node, session, tree) = tree();
        let mut client = tree.client().unwrap();
        let used_up = (MAX_EXTENTS - 1) << 32 | 16;
        client.write_words(0, tree.memory.superblock(0, CURSOR_OFFSET).unwrap(), &[used_up]).unwrap();
        let allocated = || session.node_statistics().unwrap().allocated_bytes;
        let before = allocated();
        for _ in 0..3 {
            assert!(client.take_chunks(0, 1).is_err_and(|error| error.is_full()));
        }
        assert_eq!((client.cursor(0).unwrap().0, allocated()), (MAX_EXTENTS - 1, before));
    }

    #[test]
    fn a_block_that_finds_no_room_leaves_what_is_there_to_shorter_ones() {
        let (_node, _session, tree) = tree();
        let mut client = tree.client().unwrap();
        while client.take_chunks(0, 9).is_ok() {}
        // The last extent has seven of its 16 chunks left.
        client.take_chunks(0, 7).unwrap();
        for _ in 0..3 {
            assert!(client.take_chunks(0, 1).is_err_and(|error| error.is_full()));
        }
        let at = tree.memory.superblock(0, CURSOR_OFFSET).unwrap();
        assert_eq!(client.read_word(0, at).unwrap() & 0xffff_ffff, 16);
    }

    #[test]
    fn a_cursor_that_finds_no_room_for_long_stays_in_its_extent() {
        let (_node, _session, tree) = tree();
        let mut client = tree.client().unwrap();
        while client.take_chunks(0, 1).is_ok() {}
        let at = tree.memory.superblock(0, CURSOR_OFFSET).unwrap();
        let end = client.read_word(0, at).unwrap();
        // Other clients have failed at once very often.
        client.write_words(0, at, &[end | 0xffff_ff00]).unwrap();
        // Another one fails while this client asks the node.
        let (mut other, mut has_failed) = (tree.client().unwrap(), false);
        client.set_hook(Some(Box::new(move |verb| {
            if verb == Verb::CompareSwap && !has_failed {
                has_failed = true;
                other.fetch_add(0, at, 1).unwrap();
            }
            true
        })));
        for _ in 0..3 {
            assert!(client.take_chunks(0, 1).is_err_and(|error| error.is_full()));
        }
        assert_eq!(client.read_word(0, at).unwrap(), end);
    }

    #[test]
    fn an_extent_that_cannot_be_shared_goes_back() {
        let (_node, session, tree) = tree();
        let memory = tree.memory.node(0).unwrap();
        session.drop_store(memory.store.id()).unwrap();
        assert!(memory.lease(&*tree.options.clock).is_err());
        assert_eq!(session.node_statistics().unwrap().leased_extents, 0);
    }
}
