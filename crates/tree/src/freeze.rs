//! Freezing a node: the first part of every structure change.
//!
//! Each word that an operation may compare and swap is swapped for its frozen form. A value of eight
//! bytes leaves no room for that, so it is first written to a staging block, and its word becomes the
//! block's address. From then on nobody changes the word again, so whoever finds a node partly frozen
//! can freeze the rest: the content of a node whose words are all frozen is the same for everybody.

use crate::key::Key;
use crate::layout::{
    Control, INNER_SLOTS, MAX_BUCKETS, decode_block, inner_slot_offset, leaf_merged, put_word, word_at,
};
use crate::memory::{Block, Class};
use crate::planted::{Bug, planted};
use crate::word::{Address, Child, Value, ValueWord};
use crate::{Error, TreeClient};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A key and its value word, as it was before it was frozen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub key: Vec<u8>,
    pub word: u64,
    pub value: ValueWord,
}

/// What was in a frozen leaf, in key order.
#[derive(Debug)]
pub struct Contents {
    pub items: Vec<Item>,
    /// The staging blocks that its words name.
    pub staging: Vec<Address>,
}

impl TreeClient {
    /// The offsets of a leaf's value words.
    fn value_offsets(&self, leaf: Child) -> Vec<usize> {
        let geometry = self.tree().memory.geometry;
        (0..leaf.buckets())
            .flat_map(|bucket| (0..geometry.slots).map(move |slot| geometry.slot_offset(bucket, slot) + 8))
            .collect()
    }

    /// Reads a whole leaf; `None` when it is one no more.
    pub(crate) fn read_leaf(&mut self, leaf: Child) -> Result<Option<Vec<u8>>, Error> {
        let geometry = self.tree().memory.geometry;
        let read = self.read_all(&[(leaf.address(), geometry.leaf_bytes(leaf.buckets()))])?;
        Ok(read.into_iter().next().filter(|bytes| self.is_leaf(bytes, leaf)))
    }

    /// Whether the bytes are those of this leaf, in every bucket.
    pub(crate) fn is_leaf(&self, bytes: &[u8], leaf: Child) -> bool {
        let geometry = self.tree().memory.geometry;
        let generation =
            |bucket| Control(word_at(bytes, geometry.bucket_offset(bucket))).generation() == leaf.generation();
        leaf_merged(bytes, leaf).is_some() && (0..leaf.buckets()).all(generation)
    }

    /// Freezes a leaf and returns what was in it; `None` when it was replaced and is gone.
    pub(crate) fn freeze_leaf(&mut self, leaf: Child) -> Result<Option<Contents>, Error> {
        let offsets = self.value_offsets(leaf);
        let Some(mut bytes) = self.read_leaf(leaf)? else { return Ok(None) };
        let mut staging: Option<(Block, Vec<u8>)> = None;
        let mut used = false;
        loop {
            let thawed: Vec<(usize, usize, ValueWord)> = offsets
                .iter()
                .enumerate()
                .map(|(index, &at)| (index, at, ValueWord(word_at(&bytes, at))))
                .filter(|(.., word)| !word.is_frozen())
                .collect();
            if thawed.is_empty() || planted(Bug::CopyWithoutFreezing) {
                break;
            }
            let full: Vec<_> = thawed.iter().filter(|(.., word)| word.frozen().is_none()).copied().collect();
            if !full.is_empty() && staging.is_none() {
                let block = self.allocate(leaf.address().node(), Class::Staging)?;
                staging = Some((block, vec![0; MAX_BUCKETS * self.tree().memory.geometry.slots * 8]));
            }
            let mut written = None;
            let late = planted(Bug::StageTooLate);
            if let Some((block, values)) = staging.as_mut().filter(|_| !full.is_empty() && !late) {
                full.iter().for_each(|&(index, _, word)| put_word(values, index * 8, word.0));
                let to = self.tree().memory.resolve(block.at, 0)?;
                let length = offsets.len() * 8;
                let values = values.get(..length).unwrap_or_default();
                written = Some(self.verbs.post_write(block.at.node(), to, values)?);
                self.verbs.then(block.at.node())?;
            }
            let mut posted = Vec::with_capacity(thawed.len());
            for (_, at, word) in thawed {
                let staged = staging.as_ref().map(|(block, _)| ValueWord::staged(block.at));
                let Some(frozen) = word.frozen().or(staged) else { continue };
                let remote = self.tree().memory.resolve(leaf.address(), at)?;
                posted.push((at, word, frozen, self.verbs.post_swap(leaf.address().node(), remote, word.0, frozen.0)?));
            }
            if let Some((block, values)) = staging.as_mut().filter(|_| !full.is_empty() && late) {
                full.iter().for_each(|&(index, _, word)| put_word(values, index * 8, word.0));
                let to = self.tree().memory.resolve(block.at, 0)?;
                written = Some(self.verbs.post_write(block.at.node(), to, values)?);
            }
            if let Some(written) = written {
                self.verbs.done(written)?;
            }
            for (at, word, frozen, posted) in posted {
                let found = self.verbs.word(posted)?;
                let won = found == word.0;
                used |= won && word.frozen().is_none();
                put_word(&mut bytes, at, if won { frozen.0 } else { found });
            }
        }
        let own = staging.as_ref().filter(|_| used).map(|(block, values)| (block.at, values.clone()));
        if let Some((block, _)) = staging.filter(|_| !used) {
            self.give_back(block)?;
        }
        // Every word is final now, and so is every key word of a live slot.
        let Some(bytes) = self.read_leaf(leaf)? else { return Ok(None) };
        self.contents(leaf, &bytes, own).map(Some)
    }

    /// What is in the bytes of a leaf that is frozen.
    fn contents(&mut self, leaf: Child, bytes: &[u8], own: Option<(Address, Vec<u8>)>) -> Result<Contents, Error> {
        let words: Vec<(u64, ValueWord)> = self
            .value_offsets(leaf)
            .into_iter()
            .map(|at| (word_at(bytes, at - 8), ValueWord(word_at(bytes, at))))
            .collect();
        let mut staged: BTreeSet<Address> = BTreeSet::new();
        for (_, value) in &words {
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
        let mut items = Vec::with_capacity(words.len());
        let mut records = Vec::new();
        for (index, &(word, value)) in words.iter().enumerate() {
            if !value.is_live() {
                continue;
            }
            let value = match value.value() {
                Some(Value::Full(word)) if planted(Bug::CopyWithoutFreezing) => ValueWord(word),
                Some(Value::Staged(at)) => ValueWord(values.get(&at).map_or(0, |values| word_at(values, index * 8))),
                Some(Value::Short(..)) => ValueWord(value.0 & !(1 << 47)),
                Some(Value::Block(at)) => ValueWord::block(at),
                Some(Value::Record(at)) => {
                    records.push((items.len(), at));
                    ValueWord::record(at)
                }
                _ => return Err(Error::corrupt(format!("the value word {:016x} in a frozen leaf", value.0))),
            };
            items.push(Item { key: word.to_be_bytes().to_vec(), word, value });
        }
        let blocks = self.read_blocks(&records.iter().map(|&(_, at)| at).collect::<Vec<_>>())?;
        for ((index, _), block) in records.into_iter().zip(blocks) {
            if let Some(item) = items.get_mut(index) {
                item.key = decode_block(&block)?.0.to_vec();
                item.word = Key::new(&item.key).word;
            }
        }
        items.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(Contents { items, staging })
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
