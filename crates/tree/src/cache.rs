//! Inner nodes as clients remember them.
//!
//! What is remembered may be out of date, and is never wrong: it was the content of a node at one
//! moment, and a leaf that is not frozen is the right one for its range, whatever has become of the
//! inner nodes above it. So an operation that finds its leaf frozen, or gone, reads the leaf's parent
//! anew and need not start at the root.

use crate::key::{Separator, prefix_of};
use crate::layout::INNER_SLOTS;
use crate::word::Child;
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
    /// Of these without the first, the last of each whole [`BLOCK`]: what a search looks at first.
    pivots: [u64; PIVOTS],
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
        Self { node, level, low, high, words, pivots: [0; PIVOTS], separators, children, slots }.with_pivots()
    }

    fn with_pivots(mut self) -> Self {
        let blocks = self.words.get(1..).unwrap_or_default().chunks_exact(BLOCK);
        let lasts = blocks.filter_map(|block| block.last().copied());
        self.pivots.iter_mut().zip(lasts).for_each(|(pivot, last)| *pivot = last);
        self
    }

    pub fn len(&self) -> usize {
        self.children.len()
    }

    /// Whether it has so few children that it should merge with a neighbour.
    pub fn is_small(&self) -> bool {
        self.len() <= INNER_SLOTS / 6
    }

    /// Whether it covers all keys.
    pub fn is_root(&self) -> bool {
        self.low.is_lowest() && self.high.is_none()
    }

    /// Which child covers a key of the node's range.
    #[inline]
    pub fn route(&self, prefix: u64, key: &[u8]) -> usize {
        if self.separators.is_empty() {
            if key.len() >= 8 { self.count(|word| word <= prefix) } else { self.count(|word| word < prefix) }
        } else {
            let rest = self.separators.get(1..).unwrap_or_default();
            rest.partition_point(|separator| separator.compare(prefix, key).is_le())
        }
    }

    /// How many separators but the first are below a bound.
    #[inline]
    fn count(&self, is_below: impl Fn(u64) -> bool) -> usize {
        let rest = self.words.get(1..).unwrap_or_default();
        let pivots = self.pivots.get(..rest.len() / BLOCK).unwrap_or(&self.pivots);
        let whole = BLOCK * pivots.iter().filter(|&&pivot| is_below(pivot)).count();
        whole + rest.iter().skip(whole).take(BLOCK).filter(|&&word| is_below(word)).count()
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

    /// The same node with another child in a place. What is remembered of the other children stays true:
    /// the range of a child does not change while it lives.
    fn with_child(&self, index: usize, child: Child) -> Option<Self> {
        let mut node = self.copy();
        *node.children.get_mut(index)? = child;
        Some(node)
    }

    /// The same node with one child more, behind a place.
    fn with_entry_behind(&self, index: usize, entry: &Entry) -> Option<Self> {
        if index >= self.len() || self.separators.is_empty() && entry.separator.length() != 8 {
            return None;
        }
        let (mut node, at) = (self.copy(), index + 1);
        if self.separators.is_empty() {
            node.words.insert(at, entry.separator.prefix());
        } else {
            node.separators.insert(at, entry.separator.clone());
        }
        node.children.insert(at, entry.child);
        node.slots.insert(at, entry.slot as u8);
        Some(node.with_pivots())
    }

    /// The same node without a child that became part of the one before it.
    fn without(&self, index: usize) -> Option<Self> {
        if index == 0 || index >= self.len() {
            return None;
        }
        let mut node = self.copy();
        if self.separators.is_empty() {
            node.words.remove(index);
        } else {
            node.separators.remove(index);
        }
        node.children.remove(index);
        node.slots.remove(index);
        Some(node.with_pivots())
    }

    fn copy(&self) -> Self {
        Self {
            low: self.low.clone(),
            high: self.high.clone(),
            words: self.words.clone(),
            separators: self.separators.clone(),
            children: self.children.clone(),
            slots: self.slots.clone(),
            ..*self
        }
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

/// How many of ascending words are below a bound: first by blocks, then in the one where it is, so that no
/// load waits for more than one other.
#[inline]
fn count_first(words: &[u64], is_below: impl Fn(u64) -> bool) -> usize {
    let count = |words: &[u64]| words.iter().filter(|&&word| is_below(word)).count();
    let whole = words.chunks_exact(BLOCK).filter(|block| block.last().is_some_and(|&last| is_below(last))).count();
    let rest = words.get(whole * BLOCK..).unwrap_or_default();
    whole * BLOCK + count(rest.get(..BLOCK).unwrap_or(rest))
}

/// Words that a search looks at together.
const BLOCK: usize = 16;
/// Whole blocks of an inner node's separators.
const PIVOTS: usize = (INNER_SLOTS - 1) / BLOCK;

/// Nodes of a piece at most.
const PIECE: usize = 512;

/// Some nodes of a level, that follow each other.
#[derive(Debug, Default)]
struct Piece {
    /// The first words of their lower bounds.
    lows: Vec<u64>,
    /// Those of their upper bounds; the highest word where there is none.
    highs: Vec<u64>,
    nodes: Vec<Arc<CachedNode>>,
}

/// The nodes of a level in order. They do not overlap; there may be gaps between them.
#[derive(Debug, Default)]
struct Level {
    pieces: Vec<Piece>,
}

/// A node's piece, and its place there.
type Position = (usize, usize);

impl Piece {
    /// How many nodes begin at a key or before it.
    #[inline]
    fn count_up_to(&self, prefix: u64, key: &[u8]) -> usize {
        let count = count_first(&self.lows, |low| low <= prefix);
        if self.lows.get(count.wrapping_sub(1)).is_none_or(|&last| last < prefix) {
            return count;
        }
        // The last of them begin with the same eight bytes as the key.
        let below = count_first(&self.lows, |low| low < prefix);
        let same = self.nodes.get(below..count).unwrap_or_default();
        below + same.partition_point(|node| node.low.compare(prefix, key).is_le())
    }

    #[inline]
    fn begins_up_to(&self, prefix: u64, key: &[u8]) -> bool {
        let first = self.lows.first().copied().unwrap_or(u64::MAX);
        first < prefix
            || first == prefix && self.nodes.first().is_some_and(|node| node.low.compare(prefix, key).is_le())
    }
}

impl Level {
    /// The last node that begins at a key or before it.
    #[inline]
    fn position(&self, prefix: u64, key: &[u8]) -> Option<Position> {
        let piece = self.pieces.partition_point(|piece| piece.begins_up_to(prefix, key)).checked_sub(1)?;
        Some((piece, self.pieces.get(piece)?.count_up_to(prefix, key).checked_sub(1)?))
    }

    /// The node that covers a key.
    #[inline]
    fn covering(&self, prefix: u64, key: &[u8]) -> Option<&Arc<CachedNode>> {
        let (piece, index) = self.position(prefix, key)?;
        let piece = self.pieces.get(piece)?;
        let node = piece.nodes.get(index)?;
        let is_below = piece.highs.get(index).is_some_and(|&high| prefix < high);
        (is_below || node.covers(prefix, key)).then_some(node)
    }

    #[inline]
    fn at(&self, (piece, index): Position) -> Option<&Arc<CachedNode>> {
        self.pieces.get(piece)?.nodes.get(index)
    }

    /// The place behind another one; the first if there is none.
    fn behind(&self, position: Option<Position>) -> Option<Position> {
        let next = match position {
            None => (0, 0),
            Some((piece, index)) if index + 1 < self.pieces.get(piece)?.nodes.len() => (piece, index + 1),
            Some((piece, _)) => (piece + 1, 0),
        };
        self.at(next).map(|_| next)
    }

    /// The first node that overlaps a range.
    fn overlapping(&self, low: &Separator, high: Option<&Separator>) -> Option<Position> {
        let bytes = low.to_vec();
        let before = self.position(low.prefix(), &bytes);
        if let Some(found) = before
            && self.at(found).is_some_and(|node| node.low == *low || node.covers(low.prefix(), &bytes))
        {
            return Some(found);
        }
        let next = self.behind(before)?;
        self.at(next).filter(|node| high.is_none_or(|high| node.low < *high)).map(|_| next)
    }

    fn remove(&mut self, (piece, index): Position) -> Option<Arc<CachedNode>> {
        let nodes = self.pieces.get_mut(piece)?;
        nodes.lows.remove(index);
        nodes.highs.remove(index);
        let node = nodes.nodes.remove(index);
        if nodes.nodes.is_empty() {
            self.pieces.remove(piece);
        }
        Some(node)
    }

    /// Puts a node in its place. None that is there overlaps it.
    fn insert(&mut self, node: Arc<CachedNode>) {
        let (piece, index) = match self.position(node.low.prefix(), &node.low.to_vec()) {
            Some((piece, index)) => (piece, index + 1),
            None => (0, 0),
        };
        if self.pieces.is_empty() {
            self.pieces.push(Piece::default());
        }
        let Some(nodes) = self.pieces.get_mut(piece) else { return };
        nodes.lows.insert(index, node.low.prefix());
        nodes.highs.insert(index, node.high.as_ref().map_or(u64::MAX, Separator::prefix));
        nodes.nodes.insert(index, node);
        if nodes.nodes.len() > PIECE {
            let half = PIECE / 2;
            let (lows, highs) = (nodes.lows.split_off(half), nodes.highs.split_off(half));
            let upper = Piece { lows, highs, nodes: nodes.nodes.split_off(half) };
            self.pieces.insert(piece + 1, upper);
        }
    }
}

/// The inner nodes that the clients of a process share.
#[derive(Debug)]
pub struct Cache {
    /// From the leaves' parents up.
    levels: Vec<Level>,
    bytes: usize,
    budget: usize,
    /// Behind this node of the lowest level is the next one to go.
    hand: Separator,
}

/// What became of a child.
#[derive(Debug)]
pub enum Change<'a> {
    /// It is another one now.
    Replaced(Child),
    /// It is two.
    Split(Child, &'a Entry),
    /// It became part of the one before it.
    Merged,
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
        self.levels.get(usize::from(level).checked_sub(1)?)?.covering(prefix, key)
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
            self.levels.resize_with(place + 1, Level::default);
        }
        self.forget(node.level, &node.low, node.high.as_ref());
        self.bytes += node.bytes();
        if let Some(level) = self.levels.get_mut(place) {
            level.insert(node);
        }
        self.shrink();
    }

    /// Forgets the nodes of a level that overlap a range.
    pub fn forget(&mut self, level: u8, low: &Separator, high: Option<&Separator>) {
        let Some(level) = self.levels.get_mut(usize::from(level).saturating_sub(1)) else { return };
        while let Some(node) = level.overlapping(low, high).and_then(|found| level.remove(found)) {
            self.bytes -= node.bytes();
        }
    }

    /// Takes note of what became of a child of a node that was remembered: what else is remembered of the
    /// node stays. Forgets the node when something else is remembered in its place.
    pub fn change(&mut self, parent: &CachedNode, old: Child, change: Change<'_>) {
        let level = usize::from(parent.level).saturating_sub(1);
        if let Some(level) = self.levels.get_mut(level)
            && let Some((piece, index)) = level.position(parent.low.prefix(), &parent.low.to_vec())
            && let Some(place) = level.pieces.get_mut(piece).and_then(|piece| piece.nodes.get_mut(index))
            && place.node == parent.node
            && let Some(at) = place.children.iter().position(|child| *child == old)
            && let Some(new) = match change {
                Change::Replaced(child) => place.with_child(at, child),
                Change::Split(child, entry) => {
                    place.with_child(at, child).and_then(|node| node.with_entry_behind(at, entry))
                }
                Change::Merged => place.without(at),
            }
        {
            self.bytes = self.bytes + new.bytes() - place.bytes();
            *place = Arc::new(new);
            self.shrink();
        } else {
            self.forget(parent.level, &parent.low, parent.high.as_ref());
        }
    }

    /// Forgets nodes until the budget is kept: leaves' parents in turn, then what is above.
    fn shrink(&mut self) {
        while self.bytes > self.budget {
            let Some(level) = self.levels.iter_mut().find(|level| !level.pieces.is_empty()) else { return };
            let hand = level.position(self.hand.prefix(), &self.hand.to_vec());
            let next = level.behind(hand).or_else(|| level.behind(None));
            let Some(node) = next.and_then(|next| level.remove(next)) else { return };
            self.bytes -= node.bytes();
            self.hand = node.low.clone();
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

    #[test]
    fn many_nodes_are_found_as_in_a_list() {
        let mut random = forebay_env::Random::seeded(3);
        let mut cache = Cache::new(1 << 30);
        let mut bounds: Vec<u64> = (0..20_000).map(|_| random.word() >> 32).chain([0, 1, 2]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut starts: Vec<usize> = (0..bounds.len() - 1).step_by(INNER_SLOTS / 3).collect();
        random.shuffle(&mut starts);
        for &start in &starts {
            let separators: Vec<[u8; 8]> =
                bounds.iter().skip(start).take(INNER_SLOTS / 3).map(|word| word.to_be_bytes()).collect();
            let separators: Vec<&[u8]> = separators.iter().map(|bytes| &bytes[..]).collect();
            let high = bounds.get(start + INNER_SLOTS / 3).map(|word| word.to_be_bytes());
            cache.insert(node(1, separators[0], high.as_ref().map(|high| &high[..]), &separators));
        }
        for _ in 0..20_000 {
            let key = random.word() >> 32;
            let place = bounds.partition_point(|bound| *bound <= key) - 1;
            assert_eq!(find(&cache, &key.to_be_bytes()), Some(place as u64 % (INNER_SLOTS as u64 / 3)), "{key}");
        }
    }
}
