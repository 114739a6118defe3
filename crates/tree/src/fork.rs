//! For tests that try every schedule: processes that can begin again from where they were, and an account of all
//! blocks. Only with the feature `planted`, because two processes with the same free blocks would destroy a tree.

use crate::class::{BlockName, CHUNK_BYTES, Class, chunks_in};
use crate::layout::inner_slots;
use crate::replace::separator_block;
use crate::word::{Address, Child, Value};
use crate::{Error, Tree, TreeClient};

impl Tree {
    /// Makes the readers of all nodes answer this from now on: the reading epoch that ended, and the oldest in
    /// which anybody reads.
    #[must_use]
    pub fn with_readers(self: std::sync::Arc<Self>, answer: (u64, u64)) -> std::sync::Arc<Self> {
        let tree = self.fork();
        tree.memory.nodes.iter().for_each(|node| node.answer_for_readers(answer));
        tree
    }

    /// For a class: how many blocks are handed over together, and how many a chunk has.
    #[must_use]
    pub fn class_sizes(&self, class: u64) -> Option<(usize, usize)> {
        let class = Class::from_number(class)?;
        Some((self.memory.cut.in_batch(class), class.in_chunk(&self.memory.cut.geometry) as usize))
    }

    /// The blocks that this process has, without those that its clients are about to retire.
    #[must_use]
    pub fn stock(&self) -> Vec<BlockName> {
        self.memory.nodes.iter().flat_map(|node| node.stock()).collect()
    }
}

impl TreeClient {
    /// Takes a batch of each class that a small tree needs, so that no operation has to take one.
    ///
    /// # Errors
    /// Of kind `Full`.
    pub fn stock_up(&mut self) -> Result<(), Error> {
        let most = self.tree().memory.cut.geometry.most_buckets + 2;
        let leaves = (crate::layout::MIN_BUCKETS..=most).map(Class::Leaf);
        for class in leaves.chain([Class::Inner, Class::Staging, Class::List, Class::Block(0)]) {
            let block = self.allocate(0, class)?;
            self.give_back(block)?;
        }
        Ok(())
    }

    /// Gets a batch of a class for the process, even if it has some.
    ///
    /// # Errors
    /// [`Error`].
    pub fn take_batch(&mut self, class: u64) -> Result<(), Error> {
        let class = Class::from_number(class).ok_or_else(|| Error::Invalid("no class".into()))?;
        self.within_read(|client| client.refill(0, class))
    }

    /// Hands over a batch of a class from the process's stock.
    ///
    /// # Errors
    /// [`Error`].
    pub fn give_batch(&mut self, class: u64) -> Result<(), Error> {
        let class = Class::from_number(class).ok_or_else(|| Error::Invalid("no class".into()))?;
        let tree = std::sync::Arc::clone(self.tree());
        let blocks = tree.memory.node(0)?.take_of(class, tree.memory.cut.in_batch(class));
        self.within_read(|client| {
            let list = client.take_list(0)?;
            client.push(list, blocks)
        })
    }

    /// Begins the next round if the readers have passed.
    ///
    /// # Errors
    /// [`Error`].
    pub fn begin_round(&mut self) -> Result<(), Error> {
        self.within_read(|client| client.advance(0))
    }

    /// All blocks of all chunks that were ever taken.
    ///
    /// # Errors
    /// Of kind `Corrupt` when a chunk is not of any class.
    pub fn all_blocks(&mut self) -> Result<Vec<BlockName>, Error> {
        let tree = std::sync::Arc::clone(self.tree());
        let mut all = Vec::new();
        for (node, memory) in tree.memory.nodes.iter().enumerate() {
            let (last, next) = self.cursor(node)?;
            let in_extent = chunks_in(memory.client.extent_bytes());
            for index in 0..=last {
                let Some(extent) = self.listed_extent(node, index)? else { continue };
                let end = if index == last { next } else { in_extent };
                // The first chunk of the first extent is the superblock.
                let mut chunk = u64::from(index == 0);
                while chunk < end {
                    let at =
                        Address::new(node, extent, chunk * CHUNK_BYTES).ok_or_else(|| Error::corrupt("a chunk"))?;
                    let number = self.read_word(node, tree.memory.resolve(at, 0)?)?;
                    if number == 0 {
                        // The client died before it wrote the class, or the chunk was left over
                        // because it was too small for a large block.
                        chunk += 1;
                        continue;
                    }
                    let class = Class::from_number(number).ok_or_else(|| Error::corrupt("a chunk of no class"))?;
                    let geometry = &tree.memory.cut.geometry;
                    let blocks = (0..class.in_chunk(geometry)).map(|block| class.block_of_chunk(at, block, geometry));
                    all.extend(blocks.map(|block| block.name()));
                    chunk += if let Class::Large(chunks) = class { chunks } else { 1 };
                }
            }
        }
        all.sort_unstable();
        Ok(all)
    }

    /// All blocks that any process may take: on stacks, and in chunks that are being divided.
    ///
    /// # Errors
    /// Of kind `Corrupt` when a list of free blocks is not one.
    pub fn shared_blocks(&mut self) -> Result<Vec<BlockName>, Error> {
        let mut found = Vec::new();
        for node in 0..self.tree().memory.nodes.len() {
            self.free_blocks(node, |block| found.push(block.name()))?;
        }
        found.sort_unstable();
        Ok(found)
    }

    /// All blocks that can be reached from the root of a tree that nobody is changing.
    ///
    /// # Errors
    /// Of kind `Corrupt` when a node is not what its parent says.
    pub fn reachable(&mut self) -> Result<Vec<BlockName>, Error> {
        let (root, _) = self.root(true)?;
        let mut found = Vec::new();
        let mut open = vec![root];
        while let Some(child) = open.pop() {
            let class = if child.is_leaf() { Class::Leaf(child.buckets()) } else { Class::Inner };
            found.push((class.number(), child.address().bits()));
            if child.is_leaf() {
                self.reachable_of_leaf(child, &mut found)?;
                continue;
            }
            let bytes = self.read_inner(child)?;
            for slot in inner_slots(&bytes).filter(|slot| slot.child.is_live()) {
                let separator = separator_block(slot.rest);
                found.extend(separator.map(|block| (block.class.number(), block.at.bits())));
                open.push(slot.child.plain());
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    fn reachable_of_leaf(&mut self, leaf: Child, found: &mut Vec<BlockName>) -> Result<(), Error> {
        let bytes = self.read_leaf(leaf)?.ok_or_else(|| Error::corrupt("a leaf that is gone in its parent"))?;
        let values: Vec<_> = self.live_slots(&bytes, leaf).map(|(_, value)| value).collect();
        for value in values {
            if let Some(Value::Block(at) | Value::Record(at)) = value.value() {
                found.push((self.class_of(at)?.number(), at.bits()));
            }
        }
        Ok(())
    }
}
