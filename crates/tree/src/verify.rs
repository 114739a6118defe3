//! Walking the whole tree and checking every invariant.

use crate::class::Class;
use crate::key::{Key, Separator};
use crate::layout::{decode_block, inner_level, inner_slots, word_at};
use crate::word::{Address, Child, Value, ValueWord};
use crate::{Error, TreeClient};
use std::collections::BTreeSet;

/// What a walk over the tree found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeStatistics {
    /// Keys.
    pub keys: u64,
    /// Leaves.
    pub leaves: u64,
    /// Inner nodes.
    pub inner_nodes: u64,
    /// Levels of inner nodes.
    pub height: u8,
    /// Slots of all leaves.
    pub slots: u64,
    /// Slots that stay empty until their leaf is replaced.
    pub dead_slots: u64,
    /// Bytes of remote memory that leaves take.
    pub leaf_bytes: u64,
    /// Bytes of remote memory that inner nodes and their separators take.
    pub inner_bytes: u64,
    /// Bytes of remote memory that values and records take, which do not fit into slots.
    pub block_bytes: u64,
    /// Nodes whose replacement has begun but is not complete.
    pub unsettled: u64,
}

impl TreeStatistics {
    /// Bytes of remote memory in all.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.leaf_bytes + self.inner_bytes + self.block_bytes
    }
}

/// A node to be visited: what its parent says of it.
struct Visit {
    node: Child,
    level: Option<u8>,
    low: Separator,
    high: Option<Separator>,
}

impl TreeClient {
    /// Walks over the whole tree, checks every invariant, and returns statistics. The tree may be in
    /// use: a replacement that is under way is completed first, and then visited.
    ///
    /// # Errors
    /// Of kind `Corrupt` when an invariant does not hold.
    pub fn verify(&mut self) -> Result<TreeStatistics, Error> {
        let mut statistics = TreeStatistics::default();
        let mut next = Some(Vec::new());
        while !self.reading(|client| client.count_inner(&mut statistics))? {}
        while let Some(key) = next.take() {
            next = self.reading(|client| client.verify_leaves(&key, &mut statistics))?;
        }
        Ok(statistics)
    }

    /// Counts and checks the inner nodes. False when a merge of inner nodes had to be completed first.
    fn count_inner(&mut self, statistics: &mut TreeStatistics) -> Result<bool, Error> {
        let (root, height) = self.root(true)?;
        *statistics = TreeStatistics { height, ..TreeStatistics::default() };
        let mut open = vec![Visit { node: root, level: None, low: Separator::default(), high: None }];
        while let Some(Visit { node, level, low, high }) = open.pop() {
            let bytes = self.read_inner(node)?;
            let Some(found) = inner_level(&bytes, node) else {
                // Replaced since its parent was read.
                statistics.unsettled += 1;
                continue;
            };
            if level.is_some_and(|level| level != found) {
                return Err(Error::corrupt(format!("an inner node of level {found} where {level:?} is expected")));
            }
            statistics.inner_nodes += 1;
            statistics.inner_bytes += Class::Inner.bytes(&self.tree().memory.cut.geometry);
            statistics.unsettled += u64::from(inner_slots(&bytes).any(|slot| slot.child.is_frozen()));
            let (entries, _) = self.entries_below(&bytes, high.as_ref())?;
            if entries.first().is_none_or(|first| first.separator != low) {
                return Err(Error::corrupt("an inner node's first separator is not its lower bound"));
            }
            if let Some(marked) = entries.iter().find(|entry| found > 1 && entry.child.is_merging()) {
                self.replace_inner(&marked.separator.to_vec(), found - 1, marked.child.plain())?;
                return Ok(false);
            }
            for (index, entry) in entries.iter().enumerate() {
                let upper = entries.get(index + 1).map(|next| next.separator.clone()).or_else(|| high.clone());
                if upper.as_ref().is_some_and(|upper| *upper <= entry.separator) {
                    return Err(Error::corrupt("separators that do not ascend"));
                }
                if entry.child.is_leaf() != (found == 1) {
                    return Err(Error::corrupt("a leaf that is not on the lowest level"));
                }
                if entry.separator.length() > 8 {
                    let class = Class::of_block(16 + entry.separator.length() as usize);
                    statistics.inner_bytes += class.bytes(&self.tree().memory.cut.geometry);
                }
                if found > 1 {
                    let (low, node) = (entry.separator.clone(), entry.child.plain());
                    open.push(Visit { node, level: Some(found - 1), low, high: upper });
                }
            }
        }
        Ok(true)
    }

    /// Checks the leaves of the inner node that covers a key. Returns where the next one begins.
    fn verify_leaves(&mut self, key: &[u8], statistics: &mut TreeStatistics) -> Result<Option<Vec<u8>>, Error> {
        let mut attempt = 0;
        let mut from = Separator::new(key);
        'parent: loop {
            let parent = self.inner(&from.to_vec(), 1, true)?.ok_or_else(|| Error::corrupt("a tree without a root"))?;
            for index in 0..parent.len() {
                let (low, high) = (parent.separator(index), parent.upper(index));
                // The leaf at `from` may have become part of its left neighbour, which was counted.
                if high.as_ref().is_some_and(|high| *high <= from) {
                    continue;
                }
                let Some(leaf) = parent.child(index) else { break };
                // A leaf whose right neighbour is merging may already include that neighbour.
                let (leaf, at) = match parent.child(index + 1).filter(|next| next.is_merging()) {
                    Some(next) => (next, parent.separator(index + 1)),
                    None => (leaf, low.clone()),
                };
                let bytes = self.read_leaf(leaf)?.filter(|bytes| !leaf.is_merging() && self.is_thawed(bytes, leaf));
                let Some(bytes) = bytes else {
                    statistics.unsettled += 1;
                    self.settle(&at.to_vec(), leaf, false)?;
                    Self::again(&mut attempt)?;
                    from = low;
                    continue 'parent;
                };
                self.verify_leaf(leaf, &bytes, (&low, high.as_ref()), &from, statistics)?;
            }
            return Ok(parent.high.as_ref().map(Separator::to_vec));
        }
    }

    /// Checks a leaf and counts its keys from a bound on.
    fn verify_leaf(
        &mut self,
        leaf: Child,
        bytes: &[u8],
        (low, high): (&Separator, Option<&Separator>),
        from: &Separator,
        statistics: &mut TreeStatistics,
    ) -> Result<(), Error> {
        let geometry = self.tree().memory.cut.geometry;
        if low >= from {
            statistics.leaves += 1;
            statistics.leaf_bytes += Class::Leaf(leaf.buckets()).bytes(&geometry);
            statistics.slots += (leaf.buckets() * geometry.slots) as u64;
        }
        let mut keys: BTreeSet<Vec<u8>> = BTreeSet::new();
        for bucket in 0..leaf.buckets() {
            for slot in 0..geometry.slots {
                let at = geometry.slot_offset(bucket, slot);
                let (word, value) = (word_at(bytes, at), ValueWord(word_at(bytes, at + 8)));
                let key = match value.value() {
                    None => return Err(Error::corrupt(format!("the value word {:016x}", value.0))),
                    Some(Value::Empty) => continue,
                    Some(Value::Dead | Value::Spent) => {
                        statistics.dead_slots += 1;
                        continue;
                    }
                    Some(Value::Record(block)) => self.verify_block(block, statistics)?,
                    Some(Value::Block(block)) => {
                        self.verify_block(block, statistics)?;
                        word.to_be_bytes().to_vec()
                    }
                    Some(_) => word.to_be_bytes().to_vec(),
                };
                if Key::new(&key).word != word || leaf.bucket_of(word) != bucket {
                    return Err(Error::corrupt(format!("the key {key:?} in bucket {bucket} of {}", leaf.buckets())));
                }
                let separator = Separator::new(&key);
                if separator < *low || high.is_some_and(|high| separator >= *high) {
                    return Err(Error::corrupt(format!("the key {key:?} in a leaf of {low:?} to {high:?}")));
                }
                if !keys.insert(key.clone()) {
                    return Err(Error::corrupt(format!("the key {key:?} twice in a leaf")));
                }
                statistics.keys += u64::from(separator >= *from);
            }
        }
        Ok(())
    }

    /// Checks a block; returns its key.
    fn verify_block(&mut self, at: Address, statistics: &mut TreeStatistics) -> Result<Vec<u8>, Error> {
        let read = self.read_blocks(&[at])?;
        let bytes = read.first().map_or(&[][..], Vec::as_slice);
        let key = decode_block(bytes)?.0.to_vec();
        statistics.block_bytes += self.class_of(at)?.bytes(&self.tree().memory.cut.geometry);
        Ok(key)
    }
}
