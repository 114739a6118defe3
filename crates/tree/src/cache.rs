//! The cache of inner nodes.
//!
//! A cached node may be out of date, but is never wrong: it was the content of a node at one moment. A
//! leaf that is not frozen is the right one for its range, whatever has happened to the inner nodes above
//! it. So an operation that finds its leaf frozen, or gone, reads the leaf's parent again and need not
//! start at the root.

use crate::cached_node::{CachedNode, Entry, Table};
use crate::key::{Key, Separator, prefix_of};
use crate::word::Child;
use std::sync::Arc;

/// Counts how many of the ascending words are below a bound. First searches by blocks, then within the
/// block of the bound, so that no load waits for more than one other.
#[inline]
fn count_first(words: &[u64], is_below: impl Fn(u64) -> bool) -> usize {
    let count = |words: &[u64]| words.iter().filter(|&&word| is_below(word)).count();
    let whole = words.chunks_exact(BLOCK).filter(|block| block.last().is_some_and(|&last| is_below(last))).count();
    let rest = words.get(whole * BLOCK..).unwrap_or_default();
    whole * BLOCK + count(rest.get(..BLOCK).unwrap_or(rest))
}

/// Number of words that a search examines together.
const BLOCK: usize = 16;
/// Most nodes of a piece.
const PIECE: usize = 128;

/// Some consecutive nodes of a level.
#[derive(Debug, Clone, Default)]
struct Piece {
    /// The first words of their lower bounds.
    lows: Vec<u64>,
    /// The first words of their upper bounds; the highest word where there is none.
    highs: Vec<u64>,
    /// Their children.
    tables: Vec<Table>,
    nodes: Vec<Arc<CachedNode>>,
}

/// The nodes of a level, in order. They do not overlap, but may have gaps between them.
#[derive(Debug, Clone, Default)]
struct Level {
    /// The first word of each piece.
    firsts: Vec<u64>,
    pieces: Vec<Piece>,
}

/// The index of a node's piece, and of the node in it.
type Position = (usize, usize);

impl Piece {
    /// The number of nodes that begin at a key or before it.
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

    fn begins_up_to(&self, prefix: u64, key: &[u8]) -> bool {
        self.nodes.first().is_some_and(|node| node.low.compare(prefix, key).is_le())
    }
}

impl Level {
    /// The last node that begins at a key or before it.
    #[inline]
    fn position(&self, prefix: u64, key: &[u8]) -> Option<Position> {
        let mut piece = count_first(&self.firsts, |first| first <= prefix).checked_sub(1)?;
        if self.firsts.get(piece) == Some(&prefix) {
            piece = self.pieces.partition_point(|piece| piece.begins_up_to(prefix, key)).checked_sub(1)?;
        }
        Some((piece, self.pieces.get(piece)?.count_up_to(prefix, key).checked_sub(1)?))
    }

    /// The node that covers a key.
    #[inline]
    fn covering(&self, prefix: u64, key: &[u8]) -> Option<&Arc<CachedNode>> {
        let (piece, index) = self.covering_position(prefix, key)?;
        piece.nodes.get(index)
    }

    #[inline]
    fn covering_position(&self, prefix: u64, key: &[u8]) -> Option<(&Piece, usize)> {
        let (piece, index) = self.position(prefix, key)?;
        let piece = self.pieces.get(piece)?;
        let is_below = piece.highs.get(index).is_some_and(|&high| prefix < high);
        (is_below || piece.nodes.get(index)?.covers(prefix, key)).then_some((piece, index))
    }

    /// The child that covers a key.
    #[inline]
    fn child(&self, prefix: u64, key: &[u8]) -> Option<Child> {
        let (piece, index) = self.covering_position(prefix, key)?;
        if let Some(child) = piece.tables.get(index)?.child_below(prefix) {
            return Some(child);
        }
        let node = piece.nodes.get(index)?;
        node.child(node.route(prefix, key))
    }

    #[inline]
    fn at(&self, (piece, index): Position) -> Option<&Arc<CachedNode>> {
        self.pieces.get(piece)?.nodes.get(index)
    }

    /// The position after another one; without one, the first.
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

    fn remove(&mut self, (at, index): Position) -> Option<Arc<CachedNode>> {
        let piece = self.pieces.get_mut(at)?;
        piece.lows.remove(index);
        piece.highs.remove(index);
        piece.tables.remove(index);
        let node = piece.nodes.remove(index);
        if piece.nodes.is_empty() {
            self.pieces.remove(at);
            self.firsts.remove(at);
        } else {
            self.note_first(at);
        }
        Some(node)
    }

    /// Inserts a node at its place. It overlaps no other node there.
    fn insert(&mut self, node: Arc<CachedNode>) {
        let (at, index) = match self.position(node.low.prefix(), &node.low.to_vec()) {
            Some((at, index)) => (at, index + 1),
            None => (0, 0),
        };
        if self.pieces.is_empty() {
            self.pieces.push(Piece::default());
            self.firsts.push(0);
        }
        let Some(piece) = self.pieces.get_mut(at) else { return };
        piece.lows.insert(index, node.low.prefix());
        piece.highs.insert(index, node.high.as_ref().map_or(u64::MAX, Separator::prefix));
        piece.tables.insert(index, node.table());
        piece.nodes.insert(index, node);
        if piece.nodes.len() > PIECE {
            let half = PIECE / 2;
            let (lows, highs) = (piece.lows.split_off(half), piece.highs.split_off(half));
            let upper = Piece { lows, highs, tables: piece.tables.split_off(half), nodes: piece.nodes.split_off(half) };
            self.pieces.insert(at + 1, upper);
            self.firsts.insert(at + 1, 0);
            self.note_first(at + 1);
        }
        self.note_first(at);
    }

    /// Replaces a node by another of the same range. Returns the replaced one.
    fn exchange(&mut self, (piece, index): Position, node: Arc<CachedNode>) -> Option<Arc<CachedNode>> {
        let piece = self.pieces.get_mut(piece)?;
        *piece.tables.get_mut(index)? = node.table();
        Some(std::mem::replace(piece.nodes.get_mut(index)?, node))
    }

    fn note_first(&mut self, piece: usize) {
        let low = self.pieces.get(piece).and_then(|piece| piece.lows.first());
        if let (Some(first), Some(&low)) = (self.firsts.get_mut(piece), low) {
            *first = low;
        }
    }
}

/// The inner nodes that the clients of a process share.
#[derive(Debug, Clone)]
pub struct Cache {
    /// The levels, from the leaves' parents up.
    levels: Vec<Level>,
    bytes: usize,
    budget: usize,
    /// The next node to be forgotten follows this one in the lowest level.
    hand: Separator,
}

/// What happened to a child.
#[derive(Debug)]
pub enum Change<'a> {
    /// It was replaced by another one.
    Replaced(Child),
    /// It was split in two.
    Split(Child, &'a Entry),
    /// It became part of the child before it.
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
        self.levels.first()?.child(prefix, key)
    }

    /// The leaves that cover keys, where they are known. Cache misses overlap: each step of the search is made
    /// for all keys before the next step, which waits for the lines that it loaded.
    pub fn leaves(&self, keys: &[Key<'_>]) -> Vec<Option<Child>> {
        let Some(level) = self.levels.first() else { return vec![None; keys.len()] };
        let table = |key: &Key<'_>| {
            let prefix = prefix_of(key.bytes);
            let (piece, index) = level.covering_position(prefix, key.bytes)?;
            Some((prefix, piece.tables.get(index)?))
        };
        let tables: Vec<_> = keys.iter().map(table).collect();
        let block = |found: &Option<(u64, &Table)>| found.map_or(0, |(prefix, table)| table.block(prefix));
        let blocks: Vec<usize> = tables.iter().map(block).collect();
        let child = |(found, block): (Option<(u64, &Table)>, usize)| {
            let (prefix, table) = found?;
            table.child_in(block, prefix)
        };
        let mut leaves: Vec<Option<Child>> = tables.into_iter().zip(blocks).map(child).collect();
        for (leaf, key) in leaves.iter_mut().zip(keys).filter(|(leaf, _)| leaf.is_none()) {
            *leaf = level.child(prefix_of(key.bytes), key.bytes);
        }
        leaves
    }

    /// Inserts a node in place of all that overlap it.
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

    /// Records what happened to a child of a cached node; the rest of the node stays. Forgets the node if
    /// something else is cached in its place.
    pub fn change(&mut self, parent: &CachedNode, old: Child, change: Change<'_>) {
        if let Some(level) = self.levels.get_mut(usize::from(parent.level).saturating_sub(1))
            && let Some(position) = level.position(parent.low.prefix(), &parent.low.to_vec())
            && let Some(known) = level.at(position)
            && known.node == parent.node
            && let Some(at) = known.index_of(old)
            && let Some(new) = match change {
                Change::Replaced(child) => known.with_child(at, child, None),
                Change::Split(child, entry) => known.with_child(at, child, Some(entry)),
                Change::Merged => known.without(at),
            }
        {
            self.bytes += new.bytes();
            if let Some(old) = level.exchange(position, Arc::new(new)) {
                self.bytes -= old.bytes();
            }
            self.shrink();
        } else {
            self.forget(parent.level, &parent.low, parent.high.as_ref());
        }
    }

    /// Forgets nodes until the budget is kept: leaves' parents in turn, then higher nodes.
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
    use crate::layout::INNER_SLOTS;
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
            let bytes = key.to_be_bytes();
            assert_eq!(find(&cache, &bytes), Some(place as u64 % (INNER_SLOTS as u64 / 3)), "{key}");
            let next = (key + 1).to_be_bytes();
            let leaves = cache.leaves(&[Key::new(&bytes), Key::new(&next)]);
            assert_eq!(leaves, [cache.leaf(key, &bytes), cache.leaf(key + 1, &next)]);
        }
    }
}
