//! Freezing a node: the first part of every structure change.
//!
//! Each word that an operation may compare and swap is swapped for its frozen form. A value of eight
//! bytes leaves no room for that, so it is first written to a staging block, and its word becomes the
//! block's address. From then on nobody changes the word again. So any client that finds a node partly
//! frozen can freeze the rest: the content of a node whose words are all frozen is the same for
//! everybody.

use crate::class::{Block, Class};
use crate::key::{Separator, prefix_of};
use crate::layout::{
    Control, HEADER_BYTES, INNER_SLOTS, MAX_BUCKETS, inner_level, inner_slot_offset, leaf_merged, put_word, word_at,
};
use crate::planted::{Bug, planted};
use crate::verbs::Posted;
use crate::word::{Address, Child, Value, ValueWord};
use crate::{Error, TreeClient};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A key and its value word before it was frozen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The key's bytes, in a form that compares quickly and needs no allocation up to eight bytes.
    pub key: Separator,
    pub word: u64,
    pub value: ValueWord,
}

/// A leaf that is about to be frozen, as it was read.
#[derive(Debug)]
pub struct SeenLeaf {
    pub leaf: Child,
    words: Vec<SlotWords>,
    /// What was in it, in no order, without keys that were just being written.
    pub items: Vec<Item>,
    is_torn: bool,
    /// Whether its header decides about a mark beside it.
    pub names_a_mark: bool,
    /// Whether its parent has a free slot.
    pub has_parent_room: bool,
    /// Its upper bound.
    upper: Option<Separator>,
}

/// A leaf that is being replaced, as it was before it was frozen.
#[derive(Debug)]
pub struct LeafBefore {
    pub bytes: Vec<u8>,
    /// Its upper bound.
    pub high: Option<Separator>,
}

/// What was in a frozen leaf, in no order.
#[derive(Debug)]
pub struct Contents {
    pub items: Vec<Item>,
    /// The staging blocks that its words name.
    pub staging: Vec<Address>,
}

impl SeenLeaf {
    /// Its live slots.
    pub fn live(&self) -> Vec<SlotWords> {
        self.items.iter().map(|item| (item.word, item.value)).collect()
    }
}

/// Removes what is not below a bound. Returns whether there was anything to remove.
pub fn cut(items: &mut Vec<Item>, upper: Option<&Separator>) -> bool {
    let count = items.len();
    items.retain(|item| upper.is_none_or(|upper| *upper > item.key));
    items.len() < count
}

/// The class of the block that a leaf with these values needs before it is frozen, if it needs one.
pub fn staging_class(mut values: impl Iterator<Item = ValueWord>) -> Option<Class> {
    values.any(|value| value.frozen().is_none()).then_some(Class::Staging)
}

/// A staging block of this client, and what is in it.
struct Staging {
    block: Block,
    values: Vec<u8>,
    /// Whether some word of the leaf names it.
    used: bool,
}

/// A leaf's slot: key word and value word.
pub type SlotWords = (u64, ValueWord);

impl TreeClient {
    /// Offset of the value word of a leaf's slot.
    fn value_offset(&self, index: usize) -> usize {
        let geometry = &self.tree().memory.cut.geometry;
        geometry.slot_offset(index / geometry.slots, index % geometry.slots) + 8
    }

    /// The slots of a leaf's bytes.
    fn slot_words(&self, bytes: &[u8], leaf: Child) -> Vec<SlotWords> {
        let geometry = &self.tree().memory.cut.geometry;
        (0..leaf.buckets() * geometry.slots)
            .map(|index| self.value_offset(index))
            .map(|at| (word_at(bytes, at - 8), ValueWord(word_at(bytes, at))))
            .collect()
    }

    /// Reads a whole leaf; `None` when it is no longer a leaf.
    pub(crate) fn read_leaf(&mut self, leaf: Child) -> Result<Option<Vec<u8>>, Error> {
        let geometry = self.tree().memory.cut.geometry;
        let read = self.read_all(&[(leaf.address(), geometry.leaf_bytes(leaf.buckets()))])?;
        Ok(read.into_iter().next().filter(|bytes| self.is_leaf(bytes, leaf)))
    }

    /// Whether the bytes belong to this leaf, in every bucket.
    pub(crate) fn is_leaf(&self, bytes: &[u8], leaf: Child) -> bool {
        let geometry = self.tree().memory.cut.geometry;
        let generation =
            |bucket| Control(word_at(bytes, geometry.bucket_offset(bucket))).generation() == leaf.generation();
        leaf_merged(bytes, leaf).is_some() && (0..leaf.buckets()).all(generation)
    }

    /// Reads a leaf that is about to be frozen and ends at `upper`; `None` when it was replaced and is gone, or its parent
    /// is gone.
    pub(crate) fn see_leaf(
        &mut self,
        leaf: Child,
        parent: Child,
        upper: Option<Separator>,
    ) -> Result<Option<SeenLeaf>, Error> {
        let leaf_bytes = self.tree().memory.cut.geometry.leaf_bytes(leaf.buckets());
        let pieces = [(leaf.address(), leaf_bytes), (parent.address(), HEADER_BYTES + 8)];
        let mut read = self.read_all(&pieces)?.into_iter();
        let Some(bytes) = read.next().filter(|bytes| self.is_leaf(bytes, leaf)) else { return Ok(None) };
        let Some(header) = read.next().filter(|header| inner_level(header, parent).is_some()) else { return Ok(None) };
        let words = self.slot_words(&bytes, leaf);
        let in_place: Vec<SlotWords> = self.live_in_place(&bytes, leaf).collect();
        let is_frozen = words.iter().all(|(_, value)| value.is_frozen());
        let items = self.items(&in_place, upper.as_ref().filter(|_| is_frozen))?;
        let is_torn = words.iter().filter(|(_, value)| value.is_live()).count() > items.len();
        let names_a_mark = leaf_merged(&bytes, leaf).is_some_and(Child::is_live);
        let has_parent_room = Control(word_at(&header, HEADER_BYTES)).reserved() < INNER_SLOTS;
        Ok(Some(SeenLeaf { leaf, words, items, is_torn, names_a_mark, has_parent_room, upper }))
    }

    /// Freezes a leaf and returns what was in it; `None` when it was replaced and is gone.
    pub(crate) fn freeze_leaf(&mut self, seen: SeenLeaf) -> Result<Option<Contents>, Error> {
        let SeenLeaf { leaf, mut words, items, is_torn, upper, .. } = seen;
        if planted(Bug::CopyWithoutFreezing) {
            return Ok(Some(Contents { items, staging: Vec::new() }));
        }
        let mut staging = None;
        let is_ours = self.freeze_words(leaf, &mut words, &mut staging)?;
        let own = match staging {
            Some(Staging { block, used: false, .. }) => {
                self.give_back(block)?;
                None
            }
            staging => staging.map(|Staging { block, values, .. }| (block.at, values)),
        };
        // If every swap found what had been read, that was the content of the leaf, except a key word
        // that was read before it was written.
        if is_ours && !is_torn {
            return Ok(Some(Contents { items, staging: own.into_iter().map(|(at, _)| at).collect() }));
        }
        // Every word is final now, and so is every key word of a live slot.
        let Some(bytes) = self.read_leaf(leaf)? else { return Ok(None) };
        self.contents(leaf, &bytes, own, upper.as_ref()).map(Some)
    }

    /// Freezes the words of a leaf. `words` are as they were read, and are updated to what they become.
    /// Returns whether this client froze all of them, and found all of them as they were read.
    fn freeze_words(
        &mut self,
        leaf: Child,
        words: &mut [SlotWords],
        staging: &mut Option<Staging>,
    ) -> Result<bool, Error> {
        let node = leaf.address().node();
        let base = self.tree().memory.resolve(leaf.address(), 0)?;
        let mut is_ours = true;
        let mut is_first = true;
        loop {
            let is_full = |(_, value): &SlotWords| value.frozen().is_none();
            let any_full = words.iter().any(is_full);
            if any_full && staging.is_none() {
                let block = self.allocate(node, Class::Staging)?;
                let values = vec![0; MAX_BUCKETS * self.tree().memory.cut.geometry.slots * 8];
                *staging = Some(Staging { block, values, used: false });
            }
            let late = planted(Bug::StageTooLate);
            let mut written = if any_full && !late { self.stage(words, staging)? } else { None };
            // A fence would delay only the first swap.
            if let Some(written) = written.take_if(|written| !self.verbs.is_ordered() || written.node() != node) {
                self.verbs.done(written)?;
            }
            let mut posted: Vec<(usize, ValueWord, Posted)> = Vec::with_capacity(words.len());
            for (index, &(_, value)) in words.iter().enumerate().filter(|(_, (_, value))| !value.is_frozen()) {
                let staged = staging.as_ref().map(|staging| ValueWord::staged(staging.block.at));
                let Some(frozen) = value.frozen().or(staged) else { continue };
                let at = base.add(self.value_offset(index) as u64);
                posted.push((index, frozen, self.verbs.post_swap(node, at, value.0, frozen.0)?));
            }
            if any_full && late {
                written = self.stage(words, staging)?;
            }
            is_ours &= !is_first || posted.len() == words.len();
            is_first = false;
            if let Some(written) = written {
                self.verbs.done(written)?;
            }
            if posted.is_empty() {
                return Ok(is_ours);
            }
            for (index, frozen, posted) in posted {
                let found = self.verbs.word(posted)?;
                let Some((_, value)) = words.get_mut(index) else { continue };
                let won = found == value.0;
                is_ours &= won;
                if let Some(staging) = staging.as_mut().filter(|_| won && value.frozen().is_none()) {
                    staging.used = true;
                }
                *value = if won { frozen } else { ValueWord(found) };
            }
            if is_ours {
                return Ok(true);
            }
        }
    }

    /// Posts the write of the values of eight bytes to the staging block.
    fn stage(&mut self, words: &[SlotWords], staging: &mut Option<Staging>) -> Result<Option<Posted>, Error> {
        let Some(Staging { block, values, .. }) = staging else { return Ok(None) };
        for (index, (_, value)) in words.iter().enumerate() {
            if value.frozen().is_none() {
                put_word(values, index * 8, value.0);
            }
        }
        let to = self.tree().memory.resolve(block.at, 0)?;
        let values = values.get(..words.len() * 8).unwrap_or_default();
        Ok(Some(self.verbs.post_write(block.at.node(), to, values)?))
    }

    /// The contents of a frozen leaf that ends at `upper`, from its bytes.
    fn contents(
        &mut self,
        leaf: Child,
        bytes: &[u8],
        own: Option<(Address, Vec<u8>)>,
        upper: Option<&Separator>,
    ) -> Result<Contents, Error> {
        let mut words = self.slot_words(bytes, leaf);
        if let Some((_, value)) = words.iter().find(|(_, value)| value.frozen().is_none()) {
            return Err(Error::corrupt(format!("the value word {:016x} in a frozen leaf", value.0)));
        }
        let staging = self.thaw(&mut words, own)?;
        Ok(Contents { items: self.items(&words, upper)?, staging })
    }

    /// A leaf as it was before it was frozen; `None` when it is no longer in its parent, or is merging. For
    /// readers, when there is no memory to replace the leaf.
    pub(crate) fn leaf_before_freezing(&mut self, key: &[u8], leaf: Child) -> Result<Option<LeafBefore>, Error> {
        let Some(mut bytes) = self.read_leaf(leaf)? else { return Ok(None) };
        let mut words = self.slot_words(&bytes, leaf);
        self.thaw(&mut words, None)?;
        for (index, (_, value)) in words.iter().enumerate() {
            put_word(&mut bytes, self.value_offset(index), value.0);
        }
        // A frozen word is the key's value as long as the leaf is in its parent, so the parent is read last.
        let parent = self.inner(key, 1, true)?.ok_or_else(|| Error::corrupt("a tree without a root"))?;
        let index = parent.route(prefix_of(key), key);
        let is_there = !leaf.is_merging() && parent.child(index) == Some(leaf);
        Ok(is_there.then(|| LeafBefore { bytes, high: parent.upper(index) }))
    }

    /// Restores frozen words to their earlier form. Returns the staging blocks that they name; one may be
    /// `own`.
    fn thaw(&mut self, words: &mut [SlotWords], own: Option<(Address, Vec<u8>)>) -> Result<Vec<Address>, Error> {
        let mut staged: BTreeSet<Address> = BTreeSet::new();
        for (_, value) in words.iter() {
            if let Some(Value::Staged(at)) = value.value() {
                staged.insert(at);
            }
        }
        let staging: Vec<Address> = staged.iter().copied().collect();
        let mut values: BTreeMap<Address, Vec<u8>> = own.into_iter().collect();
        let missing: Vec<(Address, usize)> =
            staging.iter().filter(|at| !values.contains_key(at)).map(|&at| (at, words.len() * 8)).collect();
        let read = self.read_all(&missing)?;
        values.extend(missing.iter().map(|&(at, _)| at).zip(read));
        for (index, (_, value)) in words.iter_mut().enumerate() {
            *value = match value.value() {
                Some(Value::Staged(at)) => ValueWord(values.get(&at).map_or(0, |values| word_at(values, index * 8))),
                Some(_) => value.thawed(),
                None => return Err(Error::corrupt(format!("the value word {:016x} in a leaf", value.0))),
            };
        }
        Ok(staging)
    }

    /// The items of slots. If all words of their leaf are frozen, `upper` is its upper bound: the right half of a split
    /// may have been entered long ago by a client that died, and its records freed since. Their items get the bound as
    /// their key, so they are [`cut`] with those of the right half that are still there.
    fn items(&mut self, words: &[SlotWords], upper: Option<&Separator>) -> Result<Vec<Item>, Error> {
        let mut items = Vec::with_capacity(words.len());
        let mut records = Vec::new();
        for &(word, value) in words.iter().filter(|(_, value)| value.is_live()) {
            if let Some(Value::Record(at)) = value.value() {
                records.push((items.len(), (word, at)));
            }
            items.push(Item { key: Separator::short(word, 8), word, value });
        }
        if records.is_empty() {
            return Ok(items);
        }
        let places: Vec<(u64, Address)> = records.iter().map(|&(_, record)| record).collect();
        let keys: Vec<Separator> = match upper {
            None => self.read_keys(&places)?.iter().map(|key| Separator::new(key)).collect(),
            Some(upper) => {
                let keys = self.read_keys_left(&places)?;
                keys.iter().map(|key| key.as_deref().map_or_else(|| upper.clone(), Separator::new)).collect()
            }
        };
        for ((index, _), key) in records.into_iter().zip(keys) {
            if let Some(item) = items.get_mut(index) {
                item.key = key;
            }
        }
        Ok(items)
    }

    /// Freezes an inner node and returns its bytes; `None` when it was replaced and is gone.
    pub(crate) fn freeze_inner(&mut self, node: Child) -> Result<Option<Vec<u8>>, Error> {
        let tree = Arc::clone(self.tree());
        let at = node.address().node();
        let mut bytes = self.read_inner(node)?;
        loop {
            if crate::layout::inner_level(&bytes, node).is_none() {
                return Ok(None);
            }
            let mut posted = Vec::new();
            for slot in 0..INNER_SLOTS {
                let offset = inner_slot_offset(slot) + 16;
                let child = Child(word_at(&bytes, offset));
                if !child.is_frozen() {
                    let remote = tree.memory.resolve(node.address(), offset)?;
                    posted.push(self.verbs.post_swap(at, remote, child.0, child.frozen().0)?);
                }
            }
            if posted.is_empty() {
                return Ok(Some(bytes));
            }
            for posted in posted {
                self.verbs.word(posted)?;
            }
            bytes = self.read_inner(node)?;
        }
    }
}
