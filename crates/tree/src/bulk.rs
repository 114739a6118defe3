//! Loading sorted input into an empty tree: leaves and inner nodes are written bottom-up, and one
//! compare-and-swap of the root makes them the tree. If the tree is not empty by then, or the input is
//! refused, they are given back.

use crate::class::{Block, Class};
use crate::freeze::Item;
use crate::key::{Key, MAX_KEY_BYTES, Separator, prefix_of};
use crate::layout::{INNER_SLOTS, InnerSlot, decode_block, inner_image};
use crate::word::{Address, Child, ValueWord};
use crate::{Error, TreeClient};

/// Children of a loaded inner node: some slots stay free.
const CHILDREN: usize = INNER_SLOTS * 3 / 4;

/// A client while it loads. If the input panics, what the client takes later is not of that load.
struct Load<'c>(&'c mut TreeClient);

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.0.loading = None;
    }
}

impl TreeClient {
    /// Loads keys in ascending order into the tree, which must be empty and used by nobody else yet.
    /// Returns how many there were.
    ///
    /// # Errors
    /// Of kind `Invalid` when the keys do not ascend, one is too long with its value, or the tree is not empty: then
    /// nothing was loaded.
    pub fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        sorted: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64, Error> {
        self.reading(|client| {
            let load = Load(client);
            let loaded = load.0.load_sorted(sorted.into_iter());
            let taken = load.0.loading.take().unwrap_or_default();
            drop(load);
            // Operations that are still under way may land in a block.
            if loaded.is_err() && !client.verbs.left_something() {
                taken.into_iter().try_for_each(|block| client.give_back(block))?;
            }
            loaded
        })
    }

    fn load_sorted<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        sorted: impl Iterator<Item = (K, V)>,
    ) -> Result<u64, Error> {
        let not_empty = || Error::Invalid("a tree is loaded while it is empty".into());
        // This may complete what others have begun. The nodes that it makes are the tree's, not the load's.
        let parent = self.inner(b"", 1, true)?.filter(|parent| parent.len() == 1).ok_or_else(not_empty)?;
        let (root, leaf) = (parent.node, parent.child(0).ok_or_else(not_empty)?);
        if self.root(true)? != (root, 1)
            || self.read_leaf(leaf)?.is_none_or(|bytes| self.live_slots(&bytes, leaf).next().is_some())
        {
            return Err(not_empty());
        }
        self.loading = Some(Vec::new());
        let most_keys = self.tree().memory.cut.geometry.most_keys();
        let mut count = 0;
        let mut items: Vec<Item> = Vec::with_capacity(most_keys);
        let mut leaves: Vec<InnerSlot> = Vec::new();
        let mut low = Separator::default();
        for (key, value) in sorted {
            let key = key.as_ref();
            if items.last().is_some_and(|last| last.key.compare(prefix_of(key), key).is_ge())
                || key.len() > MAX_KEY_BYTES
            {
                return Err(Error::Invalid("keys to be loaded ascend and have at most 4 KiB".into()));
            }
            if items.len() == most_keys {
                let next = Separator::between_keys(&items[most_keys - 1].key, &Separator::new(key));
                leaves.push(self.load_leaf(&low, &items)?);
                items.clear();
                low = next;
            }
            items.push(self.load_item(key, value.as_ref())?);
            count += 1;
        }
        leaves.push(self.load_leaf(&low, &items)?);
        let mut level = 1;
        let mut nodes = self.load_level(level, &leaves)?;
        while nodes.len() > 1 {
            level += 1;
            nodes = self.load_level(level, &nodes)?;
        }
        let Some(new) = nodes.first() else { return Err(not_empty()) };
        // From here on, others may know any block that is taken.
        let taken = self.loading.take().unwrap_or_default();
        self.freeze_inner(root)?;
        let empty = match self.see_leaf(leaf, root, None)? {
            Some(seen) => self.freeze_leaf(seen)?,
            None => None,
        };
        if empty.is_none_or(|contents| !contents.items.is_empty()) || !self.swing_root(root, new.child)? {
            taken.into_iter().try_for_each(|block| self.give_back(block))?;
            return Err(not_empty());
        }
        self.tree().clear_cache();
        let class = Class::Leaf(leaf.buckets());
        self.retire(Block { class, at: leaf.address(), generation: leaf.generation() })?;
        self.retire(Block { class: Class::Inner, at: root.address(), generation: root.generation() })?;
        Ok(count)
    }

    fn load_item(&mut self, key: &[u8], value: &[u8]) -> Result<Item, Error> {
        let key = Key::new(key);
        let value = match ValueWord::of(value).filter(|_| !key.is_long) {
            Some(word) => word,
            None => {
                let image = self.value_image(&key, value)?;
                let node = self.tree().next_node();
                let block = self.allocate(node, Class::of_block(image.len()))?;
                self.write_block(block.at, &image)?;
                if key.is_long { ValueWord::record(block.at) } else { ValueWord::block(block.at) }
            }
        };
        Ok(Item { key: Separator::new(key.bytes), word: key.word, value })
    }

    fn load_leaf(&mut self, low: &Separator, items: &[Item]) -> Result<InnerSlot, Error> {
        let node = self.tree().next_node();
        let (_, child, written) = self.post_leaf(node, items, Child::EMPTY)?;
        self.verbs.done(written)?;
        Ok(InnerSlot { prefix: low.prefix(), rest: self.separator_rest(node, low)?, child })
    }

    /// The second word of a slot whose separator equals that of another slot: each slot has a block of
    /// its own.
    fn copy_separator(&mut self, node: usize, rest: u64) -> Result<u64, Error> {
        let block = self.read_blocks(&[Address::from_bits(rest)])?.into_iter().next().unwrap_or_default();
        self.separator_rest(node, &Separator::new(decode_block(&block)?.0))
    }

    fn load_level(&mut self, level: u8, children: &[InnerSlot]) -> Result<Vec<InnerSlot>, Error> {
        let mut nodes = Vec::with_capacity(children.len() / CHILDREN + 1);
        for children in children.chunks(CHILDREN) {
            let node = self.tree().next_node();
            let block = self.allocate(node, Class::Inner)?;
            self.write_block(block.at, &inner_image(level, block.generation, Child::EMPTY, children))?;
            let child = Child::new(block.at, 0, block.generation);
            let Some(&first) = children.first() else { continue };
            let rest = match (first.separator_length(), first.rest) {
                (0..=8, rest) => rest,
                _ => self.copy_separator(node, first.rest)?,
            };
            nodes.push(InnerSlot { child, rest, ..first });
        }
        Ok(nodes)
    }
}
