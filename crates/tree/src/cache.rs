//! Inner nodes as clients remember them.
//!
//! What is remembered may be out of date, and is never wrong: it was the content of a node at one
//! moment, and a leaf that is not frozen is the right one for its range, whatever has become of the
//! inner nodes above it. So an operation that finds its leaf frozen, or gone, reads the leaf's parent
//! anew and need not start at the root.

use crate::key::{Separator, prefix_of};
use crate::word::Child;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// An inner node at one moment.
#[derive(Debug)]
pub struct CachedNode {
    pub node: Child,
    pub level: u8,
    /// What it covers, from here ...
    pub low: Separator,
    /// ... up to here.
    pub high: Option<Separator>,
    /// Of separators that all have eight bytes, their words; the first one is `low`.
    words: Vec<u64>,
    /// All separators, if any but the first has another length.
    separators: Vec<Separator>,
    children: Vec<Child>,
    slots: Vec<u8>,
}

/// A child in an inner node.
#[derive(Debug, Clone)]
pub struct Entry {
    pub separator: Separator,
    pub child: Child,
    /// The slot where the node has it.
    pub slot: usize,
}

impl CachedNode {
    /// A node with these entries, in order.
    pub fn new(node: Child, level: u8, low: Separator, high: Option<Separator>, entries: Vec<Entry>) -> Self {
        let all_eight = entries.iter().skip(1).all(|entry| entry.separator.length() == 8);
        let children = entries.iter().map(|entry| entry.child).collect();
        let slots = entries.iter().map(|entry| entry.slot as u8).collect();
        let (words, separators) = if all_eight {
            (entries.iter().map(|entry| entry.separator.prefix()).collect(), Vec::new())
        } else {
            (Vec::new(), entries.into_iter().map(|entry| entry.separator).collect())
        };
        Self { node, level, low, high, words, separators, children, slots }
    }

    pub fn len(&self) -> usize {
        self.children.len()
    }

    /// Which child covers a key of the node's range.
    #[inline]
    pub fn route(&self, prefix: u64, key: &[u8]) -> usize {
        if self.separators.is_empty() {
            let rest = self.words.get(1..).unwrap_or_default();
            rest.partition_point(|&word| word < prefix || word == prefix && key.len() >= 8)
        } else {
            let rest = self.separators.get(1..).unwrap_or_default();
            rest.partition_point(|separator| separator.compare(prefix, key).is_le())
        }
    }

    #[inline]
    pub fn child(&self, index: usize) -> Option<Child> {
        self.children.get(index).copied()
    }

    pub fn slot(&self, index: usize) -> Option<usize> {
        self.slots.get(index).map(|&slot| slot.into())
    }

    /// The lower bound of a child's range.
    pub fn separator(&self, index: usize) -> Separator {
        match (index, self.separators.get(index), self.words.get(index)) {
            (0, ..) => self.low.clone(),
            (_, Some(separator), _) => separator.clone(),
            (_, None, Some(&word)) => Separator::short(word, 8),
            _ => Separator::default(),
        }
    }

    /// The upper bound of a child's range.
    pub fn upper(&self, index: usize) -> Option<Separator> {
        if index + 1 < self.len() { Some(self.separator(index + 1)) } else { self.high.clone() }
    }

    fn covers(&self, prefix: u64, key: &[u8]) -> bool {
        self.high.as_ref().is_none_or(|high| high.compare(prefix, key).is_gt())
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        // The struct, its counts, and its place in a map.
        let own = size_of::<Self>() + 16 + size_of::<Separator>() + size_of::<Arc<Self>>();
        let separators: usize = self.separators.iter().map(|s| size_of::<Separator>() + s.extra_bytes()).sum();
        let bounds = 2 * self.low.extra_bytes() + self.high.as_ref().map_or(0, Separator::extra_bytes);
        own + self.words.len() * 8 + separators + bounds + self.children.len() * 8 + self.slots.len()
    }
}

/// The inner nodes that the clients of a process share.
#[derive(Debug)]
pub struct Cache {
    /// By level, from the leaves' parents up.
    levels: Vec<BTreeMap<Separator, Arc<CachedNode>>>,
    bytes: usize,
    budget: usize,
    /// Behind this node of the lowest level is the next one to go.
    hand: Separator,
}

impl Cache {
    pub fn new(budget: usize) -> Self {
        Self { levels: Vec::new(), bytes: 0, budget, hand: Separator::default() }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn clear(&mut self) {
        self.levels.clear();
        self.bytes = 0;
    }

    /// The node of a level that covers a key.
    #[inline]
    pub fn node(&self, level: u8, prefix: u64, key: &[u8]) -> Option<&Arc<CachedNode>> {
        let nodes = self.levels.get(usize::from(level).checked_sub(1)?)?;
        let bound = if key.len() == 8 { Separator::short(prefix, 8) } else { Separator::new(key) };
        let (_, node) = nodes.range((Bound::Unbounded, Bound::Included(&bound))).next_back()?;
        node.covers(prefix, key).then_some(node)
    }

    /// The leaf that covers a key.
    #[inline]
    pub fn leaf(&self, prefix: u64, key: &[u8]) -> Option<Child> {
        let node = self.node(1, prefix, key)?;
        node.child(node.route(prefix, key))
    }

    /// Remembers a node instead of all that overlap it.
    pub fn insert(&mut self, node: Arc<CachedNode>) {
        let place = usize::from(node.level).saturating_sub(1);
        if self.levels.len() <= place {
            self.levels.resize_with(place + 1, BTreeMap::new);
        }
        self.forget(node.level, &node.low, node.high.as_ref());
        self.bytes += node.bytes();
        if let Some(nodes) = self.levels.get_mut(place) {
            nodes.insert(node.low.clone(), node);
        }
        self.shrink();
    }

    /// Forgets the nodes of a level that overlap a range.
    pub fn forget(&mut self, level: u8, low: &Separator, high: Option<&Separator>) {
        let Some(nodes) = self.levels.get_mut(usize::from(level).saturating_sub(1)) else { return };
        let before = nodes.range((Bound::Unbounded, Bound::Excluded(low))).next_back();
        let mut overlapping: Vec<Separator> = before
            .filter(|(_, node)| node.high.as_ref().is_none_or(|high| high > low))
            .map(|(low, _)| low.clone())
            .into_iter()
            .collect();
        let behind = high.map_or(Bound::Unbounded, Bound::Excluded);
        if high.is_none_or(|high| high > low) {
            overlapping.extend(nodes.range((Bound::Included(low), behind)).map(|(low, _)| low.clone()));
        }
        for low in overlapping {
            if let Some(node) = nodes.remove(&low) {
                self.bytes -= node.bytes();
            }
        }
    }

    /// Forgets nodes until the budget is kept: leaves' parents in turn, then what is above.
    fn shrink(&mut self) {
        while self.bytes > self.budget {
            let Some(nodes) = self.levels.iter_mut().find(|nodes| !nodes.is_empty()) else { return };
            let next = nodes.range((Bound::Excluded(&self.hand), Bound::Unbounded)).next();
            let Some(low) = next.or_else(|| nodes.iter().next()).map(|(low, _)| low.clone()) else { return };
            if let Some(node) = nodes.remove(&low) {
                self.bytes -= node.bytes();
            }
            self.hand = low;
        }
    }

    /// Forgets the node of a level that covers a key.
    pub fn forget_at(&mut self, level: u8, key: &[u8]) {
        if let Some(node) = self.node(level, prefix_of(key), key).cloned() {
            self.forget(level, &node.low, node.high.as_ref());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::Address;

    fn node(level: u8, low: &[u8], high: Option<&[u8]>, separators: &[&[u8]]) -> Arc<CachedNode> {
        let entry = |(slot, bytes): (usize, &&[u8])| Entry {
            separator: Separator::new(bytes),
            child: Child::new(Address::from_bits(slot as u64 + 1), 2, 1),
            slot,
        };
        let entries = separators.iter().enumerate().map(entry).collect();
        let high = high.map(Separator::new);
        Arc::new(CachedNode::new(Child::default_node(), level, Separator::new(low), high, entries))
    }

    impl Child {
        fn default_node() -> Self {
            Self::new(Address::from_bits(99), 0, 1)
        }
    }

    fn find(cache: &Cache, key: &[u8]) -> Option<u64> {
        cache.leaf(prefix_of(key), key).map(|child| child.address().bits() - 1)
    }

    #[test]
    fn keys_are_routed_by_their_separators() {
        for separators in [[&b""[..], b"cccccccc", b"eeeeeeee"], [&b""[..], b"cccccccc", b"eeeeeeeee"]] {
            let mut cache = Cache::new(1 << 20);
            cache.insert(node(1, b"", Some(b"m"), &separators));
            assert_eq!(find(&cache, b""), Some(0));
            assert_eq!(find(&cache, b"ccccccc"), Some(0));
            assert_eq!(find(&cache, b"cccccccc"), Some(1));
            assert_eq!(find(&cache, b"cccccccc\0"), Some(1));
            assert_eq!(find(&cache, b"eeeeeeeeee"), Some(2));
            assert_eq!(find(&cache, b"m"), None);
        }
    }

    #[test]
    fn newer_nodes_replace_what_they_overlap_and_the_budget_is_kept() {
        let mut cache = Cache::new(1 << 20);
        cache.insert(node(1, b"", None, &[b"", b"f"]));
        cache.insert(node(1, b"f", None, &[b"f", b"g"]));
        assert_eq!(find(&cache, b"a"), None);
        assert_eq!(find(&cache, b"h"), Some(1));
        cache.insert(node(1, b"", Some(b"f"), &[b"", b"b"]));
        assert_eq!(find(&cache, b"c"), Some(1));
        let bytes = cache.bytes();
        cache.budget = bytes - 1;
        cache.shrink();
        assert!(cache.bytes() <= bytes / 2 + 1);
        cache.clear();
        assert_eq!((cache.bytes(), find(&cache, b"c")), (0, None));
    }
}
