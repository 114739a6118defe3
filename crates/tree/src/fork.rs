//! For tests that try every schedule: processes that can begin again where they were, and an account of all
//! blocks. Only with the feature `planted`: two processes with the same free blocks would destroy a tree.

use crate::layout::inner_slots;
use crate::memory::{CHUNK_BYTES, CURSOR_OFFSET, Class};
use crate::replace::separator_block;
use crate::word::{Address, Child, UNIT_BYTES, Value};
use crate::{Error, Tree, TreeClient};

/// A block's class, and its address.
pub type BlockName = (u64, u64);

/// The blocks that a process has: free, or retired.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stock {
    /// One by one.
    pub blocks: Vec<BlockName>,
    /// What is left of chunks: the first block, how many there are, and how many units each has.
    pub begun: Vec<(BlockName, u64, u64)>,
}

impl Stock {
    /// All of them, one by one.
    #[must_use]
    pub fn names(&self) -> Vec<BlockName> {
        let begun = self
            .begun
            .iter()
            .flat_map(|&((class, first), left, units)| (0..left).map(move |index| (class, first + index * units)));
        self.blocks.iter().copied().chain(begun).collect()
    }
}

impl Tree {
    /// What this process has; not what its clients are about to retire.
    #[must_use]
    pub fn stock(&self) -> Stock {
        let mut stock = Stock::default();
        self.memory.nodes.iter().for_each(|node| node.count_stock(&self.memory.geometry, &mut stock));
        stock
    }
}

impl TreeClient {
    /// Takes a chunk of each class that a small tree needs, so that no operation has to.
    ///
    /// # Errors
    /// Of kind `Full`.
    pub fn stock_up(&mut self) -> Result<(), Error> {
        let most = self.tree().memory.geometry.most_buckets + 2;
        let leaves = (crate::layout::MIN_BUCKETS..=most).map(Class::Leaf);
        for class in leaves.chain([Class::Inner, Class::Staging, Class::Block(0)]) {
            let block = self.allocate(0, class)?;
            self.give_back(block)?;
        }
        Ok(())
    }

    /// All blocks of all chunks that anybody took.
    ///
    /// # Errors
    /// Of kind `Corrupt` when a chunk is not of any class.
    pub fn all_blocks(&mut self) -> Result<Vec<BlockName>, Error> {
        let tree = std::sync::Arc::clone(self.tree());
        let mut all = Vec::new();
        for (node, memory) in tree.memory.nodes.iter().enumerate() {
            let cursor = self.read_word(node, tree.memory.superblock(node, CURSOR_OFFSET)?)?;
            let in_extent = memory.client.extent_bytes() / CHUNK_BYTES;
            for index in 0..=cursor >> 32 {
                let Some(extent) = self.listed_extent(node, index)? else { continue };
                let end = if index == cursor >> 32 { (cursor & 0xffff_ffff).min(in_extent) } else { in_extent };
                // The first chunk of the first extent is the superblock.
                let mut chunk = u64::from(index == 0);
                while chunk < end {
                    let at =
                        Address::new(node, extent, chunk * CHUNK_BYTES).ok_or_else(|| Error::corrupt("a chunk"))?;
                    let number = self.read_word(node, tree.memory.resolve(at, 0)?)?;
                    if number == 0 {
                        // Its client died before it said so, or it was too little for a large block.
                        chunk += 1;
                        continue;
                    }
                    let class = Class::from_number(number).ok_or_else(|| Error::corrupt("a chunk of no class"))?;
                    let units = class.bytes(&tree.memory.geometry) / UNIT_BYTES;
                    let (count, chunks) = match class {
                        Class::Large(chunks) => (1, chunks),
                        _ => ((CHUNK_BYTES / UNIT_BYTES - 1) / units, 1),
                    };
                    all.extend((0..count).map(|block| (number, at.bits() + 1 + block * units)));
                    chunk += chunks;
                }
            }
        }
        all.sort_unstable();
        Ok(all)
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
