//! A thread's client: finding the leaf of a key, and the words and blocks of remote memory.

use crate::cached_node::{CachedNode, Entry};
use crate::class::{Block, CHUNK_BYTES, CHUNK_HEADER_BYTES, Class};
use crate::key::{Key, SEEDS, Separator, prefix_of};
use crate::layout::{
    BLOCK_HEADER_BYTES, INNER_BYTES, InnerSlot, block_length, decode_block, inner_level, inner_slots, key_end,
};
use crate::memory::ROOT_OFFSET;
use crate::verbs::{Hook, Posted, Verbs};
use crate::word::{Address, Child, MAX_GENERATION};
use crate::{Error, Tree};
use forebay_base::ErrorKind;
use forebay_env::HashMap;
use forebay_env::sync::relax;
use forebay_fabric::{Counts, RemoteAddress};
use forebay_memory_client::Reader;
use std::sync::Arc;

/// Times that an operation starts over before it gives up.
const PATIENCE: u32 = 100_000;
/// Times that a block is read again that somebody may be writing, before it counts as damaged.
const TORN_READS: u32 = 10_000;
/// Bytes that are read first of a block whose length is unknown.
const FIRST_READ_BYTES: u64 = 512;
/// Displaced blocks whose classes are looked up together.
const DISPLACED: usize = 64;
/// Number of new reading epochs of a node after which a cache is dropped. So no generation repeats while a child
/// word is cached: memory is used again at most once per epoch of its node, and skips generations until one has
/// the right seed.
const CACHE_EPOCHS: u64 = 1024;
const _: () = assert!(CACHE_EPOCHS * (SEEDS as u64 + 4) < MAX_GENERATION as u64);

/// A thread's client of a tree.
#[derive(Debug)]
pub struct TreeClient {
    tree: Arc<Tree>,
    pub(crate) verbs: Verbs,
    readers: Vec<Reader>,
    /// The last puts, one bit each: whether the put found its key absent.
    pub(crate) absent: u8,
    /// The last swaps of values, one bit each: whether the swap was lost to another client.
    pub(crate) lost: u32,
    /// Displaced blocks whose class is unknown.
    displaced: Vec<Address>,
    /// Blocks to be retired.
    pub(crate) unreachable: Vec<Block>,
    /// Blocks that were taken for a change of structure before it began.
    pub(crate) reserved: Vec<Block>,
    /// While a tree is loaded: the blocks taken for it, which nobody else knows.
    pub(crate) loading: Option<Vec<Block>>,
    classes: HashMap<u64, Class>,
    pub(crate) untidy: bool,
    /// Whether the last change left its bucket without a live slot.
    pub(crate) bucket_emptied: bool,
}

/// The result of reading an inner node.
enum Loaded {
    Node(Arc<CachedNode>),
    /// It is being replaced.
    Frozen,
    /// It is no longer a node, or is another one.
    Gone,
}

impl TreeClient {
    pub(crate) fn new(tree: Arc<Tree>, verbs: Verbs, readers: Vec<Reader>) -> Self {
        tree.add_client();
        Self {
            tree,
            verbs,
            readers,
            absent: 0,
            lost: 0,
            displaced: Vec::new(),
            unreachable: Vec::new(),
            reserved: Vec::new(),
            loading: None,
            classes: HashMap::default(),
            untidy: false,
            bucket_emptied: false,
        }
    }

    /// The tree.
    #[must_use]
    pub fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// What this client's endpoints have counted.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        self.verbs.endpoints().iter().for_each(|endpoint| sum += endpoint.counts().read_all());
        sum
    }

    /// For tests: calls `hook` before each one-sided operation. If the hook returns false, the client stops as if its
    /// process had died there: this call and all later ones fail until there is another hook.
    pub fn set_hook(&mut self, hook: Option<Hook>) {
        self.verbs.set_hook(hook);
    }

    /// Runs an operation as a read of memory that others may free, and tidies up afterwards.
    #[inline]
    pub(crate) fn reading<T>(&mut self, operation: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let result = self.within_read(operation);
        if self.untidy && result.is_ok() {
            self.untidy = false;
            self.tidy()?;
        }
        result
    }

    /// Runs an operation as a read of memory that others may free.
    #[inline]
    pub(crate) fn within_read<T>(&mut self, operation: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        for (node, reader) in self.readers.iter().enumerate() {
            let epoch = reader.begin();
            if self.tree.is_cache_old(node, epoch, CACHE_EPOCHS) {
                self.tree.clear_cache();
            }
        }
        let result = operation(self);
        if result.is_err() {
            self.verbs.settle();
        }
        while let Some(block) = self.reserved.pop() {
            let _ = self.give_back(block);
        }
        // A posted operation that is not known to have ended may land as long as the session lives. Until the session
        // ends, no memory that it may hit is used again.
        match result.is_err() && self.verbs.left_something() {
            true => self.readers.iter().for_each(Reader::abandon),
            false => self.readers.iter().for_each(Reader::end),
        }
        result.map_err(|error| self.judged(error))
    }

    /// The meaning of a failure. A key that opens nothing was revoked because its session ended, and the node confirms
    /// that.
    #[cold]
    pub(crate) fn judged(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::AccessDenied {
            return error;
        }
        let mut renewals = self.tree.memory.nodes.iter().filter_map(|node| node.client.renew().err());
        renewals.find(|ended| ended.kind() == ErrorKind::Fenced).map_or(error, Error::from)
    }

    /// Counts a restart of an operation, and yields now and then.
    pub(crate) fn again(attempt: &mut u32) -> Result<(), Error> {
        *attempt += 1;
        if *attempt > PATIENCE {
            return Err(Error::Contended(PATIENCE));
        }
        if *attempt > 2 {
            relax(&mut attempt.saturating_mul(16));
        }
        Ok(())
    }

    pub(crate) fn read_word(&mut self, node: usize, at: RemoteAddress) -> Result<u64, Error> {
        let posted = self.verbs.post_read(node, at, 8)?;
        let slot = self.verbs.bytes(posted)?;
        let word = crate::layout::word_at(&slot, 0);
        self.verbs.release(node, slot);
        Ok(word)
    }

    pub(crate) fn write_words(&mut self, node: usize, at: RemoteAddress, words: &[u64]) -> Result<(), Error> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let posted = self.verbs.post_write(node, at, &bytes)?;
        self.verbs.done(posted)
    }

    pub(crate) fn compare_swap(
        &mut self,
        node: usize,
        at: RemoteAddress,
        expected: u64,
        new: u64,
    ) -> Result<u64, Error> {
        let posted = self.verbs.post_swap(node, at, expected, new)?;
        self.verbs.word(posted)
    }

    pub(crate) fn fetch_add(&mut self, node: usize, at: RemoteAddress, delta: u64) -> Result<u64, Error> {
        let posted = self.verbs.post_add(node, at, delta)?;
        self.verbs.word(posted)
    }

    /// Writes a whole block, and waits.
    pub(crate) fn write_block(&mut self, at: Address, image: &[u8]) -> Result<(), Error> {
        let to = self.tree.memory.resolve(at, 0)?;
        let posted = self.verbs.post_write(at.node(), to, image)?;
        self.verbs.done(posted)
    }

    /// Reads pieces of memory in one batch.
    pub(crate) fn read_all(&mut self, pieces: &[(Address, usize)]) -> Result<Vec<Vec<u8>>, Error> {
        let mut posted: Vec<Posted> = Vec::with_capacity(pieces.len());
        for &(at, length) in pieces {
            let from = self.tree.memory.resolve(at, 0)?;
            posted.push(self.verbs.post_read(at.node(), from, length)?);
        }
        let mut read = Vec::with_capacity(pieces.len());
        for (posted, (at, _)) in posted.into_iter().zip(pieces) {
            let slot = self.verbs.bytes(posted)?;
            read.push(slot.to_vec());
            self.verbs.release(at.node(), slot);
        }
        Ok(read)
    }

    /// Reads whole blocks in one batch, or two when some are long.
    pub(crate) fn read_blocks(&mut self, blocks: &[Address]) -> Result<Vec<Vec<u8>>, Error> {
        self.read_up_to(blocks, block_length)
    }

    /// Reads the keys of records like [`TreeClient::read_blocks`], without the values. Each is checked by the key word
    /// of its slot.
    pub(crate) fn read_keys(&mut self, records: &[(u64, Address)]) -> Result<Vec<Vec<u8>>, Error> {
        let other = || Error::corrupt("a record with another key than its slot says");
        self.read_own_keys(records)?.into_iter().map(|key| key.ok_or_else(other)).collect()
    }

    /// As [`TreeClient::read_keys`], but `None` for a record that was freed: in its place is another block, which is whole.
    pub(crate) fn read_keys_left(&mut self, records: &[(u64, Address)]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let keys = self.read_own_keys(records)?;
        for (_, &(_, at)) in keys.iter().zip(records).filter(|(key, _)| key.is_none()) {
            self.await_whole(at)?;
        }
        Ok(keys)
    }

    /// Reads the keys of records; `None` for one that is not the key of its slot.
    fn read_own_keys(&mut self, records: &[(u64, Address)]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let blocks: Vec<Address> = records.iter().map(|&(_, at)| at).collect();
        let mut keys = Vec::with_capacity(records.len());
        for (mut key, &(word, _)) in self.read_up_to(&blocks, key_end)?.into_iter().zip(records) {
            key.drain(..BLOCK_HEADER_BYTES.min(key.len()));
            let is_its = Key::new(&key).word == word;
            keys.push(is_its.then_some(key));
        }
        Ok(keys)
    }

    /// Waits until a block is whole. It was freed before this read began, so others may be writing there.
    fn await_whole(&mut self, at: Address) -> Result<(), Error> {
        let mut attempt = 0;
        loop {
            let read = self.read_blocks(&[at]);
            let whole = read.and_then(|read| read.iter().try_for_each(|block| decode_block(block).map(drop)));
            match whole {
                Err(error) if error.kind() == ErrorKind::Corrupt && attempt < TORN_READS => Self::again(&mut attempt)?,
                whole => return whole,
            }
        }
    }

    /// Reads blocks up to where their first bytes say that they `end`.
    fn read_up_to(
        &mut self,
        blocks: &[Address],
        end: impl Fn(&[u8]) -> Result<usize, Error>,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let mut read = self.read_first(blocks)?;
        self.read_rest(&mut read, blocks, end)?;
        Ok(read)
    }

    /// Reads the first bytes of blocks in one batch.
    pub(crate) fn read_first(&mut self, blocks: &[Address]) -> Result<Vec<Vec<u8>>, Error> {
        // Not beyond the chunk, which may be the extent's last.
        let first = |at: &Address| (*at, (CHUNK_BYTES - at.offset() % CHUNK_BYTES).min(FIRST_READ_BYTES) as usize);
        self.read_all(&blocks.iter().map(first).collect::<Vec<_>>())
    }

    /// Reads the rest of blocks up to where their first bytes say that they `end`, in one batch.
    pub(crate) fn read_rest(
        &mut self,
        read: &mut [Vec<u8>],
        blocks: &[Address],
        end: impl Fn(&[u8]) -> Result<usize, Error>,
    ) -> Result<(), Error> {
        let mut longer = Vec::new();
        for (index, (bytes, &at)) in read.iter_mut().zip(blocks).enumerate() {
            let length = end(bytes.as_slice())?;
            if length > bytes.len() {
                let extent_bytes = self.tree.memory.node(at.node())?.client.extent_bytes();
                if at.offset() + length as u64 > extent_bytes {
                    return Err(Error::corrupt("a block is longer than its extent"));
                }
                longer.push((index, (at, length)));
            }
            bytes.truncate(length.max(BLOCK_HEADER_BYTES));
        }
        if !longer.is_empty() {
            let pieces: Vec<_> = longer.iter().map(|&(_, piece)| piece).collect();
            for ((index, _), bytes) in longer.into_iter().zip(self.read_all(&pieces)?) {
                if let Some(place) = read.get_mut(index) {
                    *place = bytes;
                }
            }
        }
        Ok(())
    }

    /// The leaf that covers a key, and its bucket there. It may be merging.
    #[inline]
    pub(crate) fn leaf(&mut self, key: &Key<'_>) -> Result<Child, Error> {
        let prefix = prefix_of(key.bytes);
        let known = self.tree.cache_read().leaf(prefix, key.bytes);
        match known {
            Some(leaf) => Ok(leaf),
            None => {
                let node = self.inner(key.bytes, 1, false)?.ok_or_else(|| Error::corrupt("a tree without a root"))?;
                node.child(node.route(prefix, key.bytes))
                    .ok_or_else(|| Error::corrupt("an inner node without children"))
            }
        }
    }

    /// The inner node of a level that covers a key: from the cache, or, if `fresh`, as it is now and
    /// not frozen. `None` when the tree is not that high.
    pub(crate) fn inner(&mut self, key: &[u8], level: u8, fresh: bool) -> Result<Option<Arc<CachedNode>>, Error> {
        let prefix = prefix_of(key);
        let mut attempt = 0;
        loop {
            let known = self.tree.cache_read().node(level, prefix, key).cloned();
            if let Some(known) = known {
                if !fresh {
                    return Ok(Some(known));
                }
                match self.load(known.node, level, known.low.clone(), known.high.clone())? {
                    Loaded::Node(node) => return Ok(Some(node)),
                    Loaded::Frozen | Loaded::Gone => self.tree.cache_write().forget_at(level, key),
                }
            }
            let (root, top) = self.root(attempt > 0)?;
            let mut is_near_mark = false;
            let (node, low, high) = if top < level {
                if attempt == 0 {
                    Self::again(&mut attempt)?;
                    continue;
                }
                return Ok(None);
            } else if top == level {
                (root, Separator::default(), None)
            } else {
                let Some(parent) = self.inner(key, level + 1, attempt > 0)? else {
                    Self::again(&mut attempt)?;
                    continue;
                };
                let index = parent.route(prefix, key);
                let child = parent.child(index).ok_or_else(|| Error::corrupt("an inner node without children"))?;
                is_near_mark = child.is_merging() || parent.child(index + 1).is_some_and(Child::is_merging);
                (child.plain(), parent.separator(index), parent.upper(index))
            };
            match self.load(node, level, low, high)? {
                Loaded::Node(node) => return Ok(Some(node)),
                // The node is frozen, or is a union whose range its parent does not show yet.
                Loaded::Frozen if attempt > 1 => self.replace_inner(key, level, node)?,
                Loaded::Gone if attempt > 1 && is_near_mark => self.replace_inner(key, level, node)?,
                Loaded::Frozen | Loaded::Gone => {}
            }
            Self::again(&mut attempt)?;
        }
    }

    /// The root and its level; read anew if `fresh`.
    pub(crate) fn root(&mut self, fresh: bool) -> Result<(Child, u8), Error> {
        if let Some(known) = self.tree.known_root()
            && !fresh
        {
            return Ok(known);
        }
        let mut attempt = 0;
        loop {
            let root = Child(self.read_word(0, self.tree.memory.superblock(0, ROOT_OFFSET)?)?);
            if !root.is_live() || root.is_leaf() {
                return Err(Error::corrupt("the superblock names no root"));
            }
            let bytes = self.read_all(&[(root.address(), 24)])?;
            if let Some(level) = bytes.first().and_then(|bytes| inner_level(bytes, root)) {
                self.tree.set_root(root, level);
                return Ok((root, level));
            }
            Self::again(&mut attempt)?;
        }
    }

    /// Reads an inner node repeatedly until two reads agree. Words never return to an earlier value,
    /// so what was read was the node's content at the moment between the two reads.
    pub(crate) fn read_inner(&mut self, node: Child) -> Result<Vec<u8>, Error> {
        let from = self.tree.memory.resolve(node.address(), 0)?;
        let at = node.address().node();
        let mut attempt = 0;
        loop {
            let first = self.verbs.post_read(at, from, INNER_BYTES)?;
            self.verbs.then(at)?;
            let second = self.verbs.post_read(at, from, INNER_BYTES)?;
            let (first, second) = (self.verbs.bytes(first)?, self.verbs.bytes(second)?);
            let bytes = (*first == *second).then(|| first.to_vec());
            self.verbs.release(at, first);
            self.verbs.release(at, second);
            if let Some(bytes) = bytes {
                return Ok(bytes);
            }
            Self::again(&mut attempt)?;
        }
    }

    /// The live entries of an inner node, in order. For a node that may be frozen, see [`TreeClient::entries_below`].
    pub(crate) fn entries(&mut self, bytes: &[u8]) -> Result<Vec<Entry>, Error> {
        self.entries_of(&live_slots(bytes))
    }

    /// The live entries below `upper` of an inner node that may be frozen and ended there during this read, in order.
    /// And whether there are others.
    ///
    /// If the right half of the node had been entered by then, `upper` is its first separator. That block is still there,
    /// and the other long separators of the right half are given: their blocks may have been freed before this read, so
    /// they are left out. Otherwise a block that is given was still there, and stays there for this read.
    pub(crate) fn entries_below(
        &mut self,
        bytes: &[u8],
        upper: Option<&Separator>,
    ) -> Result<(Vec<Entry>, bool), Error> {
        let live = live_slots(bytes);
        let own: Vec<_> = live.iter().filter(|(_, slot)| !slot.is_given()).copied().collect();
        let mut entries = self.entries_of(&own)?;
        let was_split = upper.is_some_and(|upper| entries.iter().any(|entry| entry.separator == *upper));
        if !was_split && own.len() < live.len() {
            entries = self.entries_of(&live)?;
        }
        entries.retain(|entry| upper.is_none_or(|upper| *upper > entry.separator));
        let has_others = entries.len() < live.len();
        Ok((entries, has_others))
    }

    /// The entries of live slots with their numbers, in order.
    fn entries_of(&mut self, live: &[(usize, InnerSlot)]) -> Result<Vec<Entry>, Error> {
        let long: Vec<Address> = live
            .iter()
            .filter(|(_, entry)| entry.separator_length() > 8)
            .map(|(_, entry)| Address::from_bits(entry.rest))
            .collect();
        let mut long = if long.is_empty() { Vec::new() } else { self.read_blocks(&long)? }.into_iter();
        let mut entries = Vec::with_capacity(live.len());
        for &(slot, entry) in live {
            let separator = match entry.separator_length() {
                length @ 0..=8 => Separator::short(entry.prefix, length),
                _ => Separator::new(decode_block(&long.next().unwrap_or_default())?.0),
            };
            entries.push(Entry { separator, child: entry.child.thawed(), slot });
        }
        entries.sort_by(|a, b| a.separator.cmp(&b.separator));
        Ok(entries)
    }

    /// Reads an inner node and caches it.
    fn load(&mut self, node: Child, level: u8, low: Separator, high: Option<Separator>) -> Result<Loaded, Error> {
        let bytes = self.read_inner(node)?;
        if inner_level(&bytes, node) != Some(level) {
            return Ok(Loaded::Gone);
        }
        if inner_slots(&bytes).any(|slot| slot.child.is_frozen()) {
            return Ok(Loaded::Frozen);
        }
        let entries = self.entries(&bytes)?;
        let Some(first) = entries.first() else { return Err(Error::corrupt("an inner node without children")) };
        let high_is_above = high.as_ref().is_none_or(|high| entries.last().is_some_and(|last| last.separator < *high));
        if first.separator != low || !high_is_above {
            // The bounds belong to another node that had this place: they come from a parent that is
            // gone.
            return Ok(Loaded::Gone);
        }
        let node = Arc::new(CachedNode::new(node, level, low, high, entries));
        self.tree.cache_write().insert(Arc::clone(&node));
        Ok(Loaded::Node(node))
    }

    /// Queues a block that this client displaced, to be freed.
    pub(crate) fn displace(&mut self, block: Address) {
        self.displaced.push(block);
        // A block that begins a chunk may be a long one, which others may need soon.
        let may_be_long = block.offset() % CHUNK_BYTES == CHUNK_HEADER_BYTES;
        self.untidy = self.untidy || may_be_long || self.displaced.len() >= DISPLACED;
    }

    /// Frees displaced blocks; their chunks say which class they have.
    pub(crate) fn free_displaced(&mut self) -> Result<(), Error> {
        while let Some(&at) = self.displaced.last() {
            let class = self.class_of(at)?;
            self.displaced.pop();
            self.retire(Block { class, at, generation: 1 })?;
        }
        Ok(())
    }

    pub(crate) fn class_of(&mut self, at: Address) -> Result<Class, Error> {
        let in_chunk = at.offset() % CHUNK_BYTES / crate::word::UNIT_BYTES;
        let chunk = at.bits() - in_chunk;
        if let Some(&class) = self.classes.get(&chunk) {
            return Ok(class);
        }
        let header = self.tree.memory.resolve(Address::from_bits(chunk), 0)?;
        let number = self.read_word(at.node(), header)?;
        let class = Class::from_number(number).ok_or_else(|| Error::corrupt(format!("a chunk of class {number}")))?;
        self.classes.insert(chunk, class);
        Ok(class)
    }
}

/// The live slots of an inner node, with their numbers.
fn live_slots(bytes: &[u8]) -> Vec<(usize, InnerSlot)> {
    inner_slots(bytes).enumerate().filter(|(_, slot)| slot.child.is_live()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TreeOptions;
    use crate::tests::{session_with, start};
    use forebay_memory_client::ClientOptions;

    /// A call that fails in the middle of a batch, for instance because no memory is left, still ends its read.
    #[test]
    fn a_call_that_fails_leaves_nothing_under_way() {
        let (_node, connector) = start(16 << 20);
        let session = session_with(&connector, ClientOptions { renew: false, ..ClientOptions::default() });
        let tree = Tree::create(&[Arc::clone(&session)], "tree", TreeOptions::default()).unwrap();
        let mut client = tree.client().unwrap();
        let failed: Result<(), Error> = client.within_read(|client| {
            let superblock = client.tree().memory.superblock(0, 0)?;
            let (_read, _added) = (client.verbs.post_read(0, superblock, 8)?, client.verbs.post_add(0, superblock, 0)?);
            Err(Error::Contended(1))
        });
        assert_eq!(failed, Err(Error::Contended(1)));
        assert!(!client.verbs.left_something());
        let (ended, _) = session.pass_readers().unwrap();
        let (_, oldest) = session.pass_readers().unwrap();
        assert!(oldest > ended, "a read of epoch {ended} is open in epoch {oldest}");
    }
}
