//! An inner node in the cache.
//!
//! A search loads as few dependent cache lines as possible. It compares only the first words of
//! separators, examines the first word of each block before it looks into one block, and finds the
//! child beside its separator. It compares whole separators only where first words are the same.

use crate::key::Separator;
use crate::layout::INNER_SLOTS;
use crate::word::Child;
use std::sync::Arc;

/// Number of routes that a search examines together.
const BLOCK: usize = 8;
/// Blocks of a node except the first.
const PIVOTS: usize = INNER_SLOTS.div_ceil(BLOCK) - 1;

/// A child and the first word of its separator.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    pub low: u64,
    pub child: Child,
}

/// A node's children, laid out for a search.
#[derive(Debug, Clone)]
pub struct Table {
    /// The first words of the first route of each block except the first; the highest word where there
    /// is none.
    pivots: [u64; PIVOTS],
    routes: Arc<[Route]>,
}

/// An inner node at one moment.
#[derive(Debug)]
pub struct CachedNode {
    pub node: Child,
    pub level: u8,
    /// The lower bound of its range.
    pub low: Separator,
    /// The upper bound of its range.
    pub high: Option<Separator>,
    routes: Arc<[Route]>,
    /// All separators, if any except the first has a length other than eight bytes.
    separators: Vec<Separator>,
    slots: Vec<u8>,
}

/// A child in an inner node.
#[derive(Debug, Clone)]
pub struct Entry {
    pub separator: Separator,
    pub child: Child,
    /// Its slot in the node.
    pub slot: usize,
}

impl Table {
    /// The last child whose separator's first word is below that of a key. `None` when there is none, or
    /// when the next child's word equals the key's: then [`CachedNode::route`] decides.
    #[inline]
    pub fn child_below(&self, prefix: u64) -> Option<Child> {
        self.child_in(self.block(prefix), prefix)
    }

    /// The block where a search continues.
    #[inline]
    pub fn block(&self, prefix: u64) -> usize {
        self.pivots.iter().filter(|&&pivot| pivot <= prefix).count()
    }

    /// As [`Table::child_below`], in its block.
    #[inline]
    pub fn child_in(&self, block: usize, prefix: u64) -> Option<Child> {
        let rest = self.routes.get(block * BLOCK..).unwrap_or_default();
        let rest = if block < PIVOTS { rest.get(..BLOCK).unwrap_or(rest) } else { rest };
        let in_block = rest.iter().filter(|route| route.low <= prefix).count();
        let last = rest.get(in_block.checked_sub(1)?)?;
        (last.low < prefix).then_some(last.child)
    }
}

impl CachedNode {
    /// A node with these entries, in order.
    pub fn new(node: Child, level: u8, low: Separator, high: Option<Separator>, entries: Vec<Entry>) -> Self {
        let all_eight = entries.iter().skip(1).all(|entry| entry.separator.length() == 8);
        let routes = entries.iter().map(Entry::route).collect();
        let slots = entries.iter().map(|entry| entry.slot as u8).collect();
        let separators =
            if all_eight { Vec::new() } else { entries.into_iter().map(|entry| entry.separator).collect() };
        Self { node, level, low, high, routes, separators, slots }
    }

    /// Its children, laid out for a search.
    pub fn table(&self) -> Table {
        let mut pivots = [u64::MAX; PIVOTS];
        let firsts = self.routes.iter().step_by(BLOCK).skip(1);
        pivots.iter_mut().zip(firsts).for_each(|(pivot, first)| *pivot = first.low);
        Table { pivots, routes: Arc::clone(&self.routes) }
    }

    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether it has so few children that it should merge with a neighbour.
    pub fn is_small(&self) -> bool {
        self.len() <= INNER_SLOTS / 6
    }

    /// Whether it covers all keys.
    pub fn covers_all(&self) -> bool {
        self.low.is_lowest() && self.high.is_none()
    }

    /// The index of the child that covers a key of the node's range.
    pub fn route(&self, prefix: u64, key: &[u8]) -> usize {
        let below = self.routes.partition_point(|route| route.low < prefix);
        let same = self.routes.get(below..).unwrap_or_default().iter().take_while(|route| route.low == prefix).count();
        let begun = if self.separators.is_empty() {
            // A separator of eight bytes, and the very first one, begin at the key or before it.
            if key.len() >= 8 { same } else { same.min(usize::from(below == 0)) }
        } else {
            let same = self.separators.get(below..below + same).unwrap_or_default();
            same.partition_point(|separator| separator.compare(prefix, key).is_le())
        };
        (below + begun).saturating_sub(1)
    }

    pub fn child(&self, index: usize) -> Option<Child> {
        self.routes.get(index).map(|route| route.child)
    }

    /// The index of a child.
    pub fn index_of(&self, child: Child) -> Option<usize> {
        self.routes.iter().position(|route| route.child == child)
    }

    pub fn slot(&self, index: usize) -> Option<usize> {
        self.slots.get(index).map(|&slot| slot.into())
    }

    /// The lower bound of a child's range.
    pub fn separator(&self, index: usize) -> Separator {
        match (index, self.separators.get(index), self.routes.get(index)) {
            (0, ..) => self.low.clone(),
            (_, Some(separator), _) => separator.clone(),
            (_, None, Some(route)) => Separator::short(route.low, 8),
            _ => Separator::default(),
        }
    }

    /// The upper bound of a child's range.
    pub fn upper(&self, index: usize) -> Option<Separator> {
        if index + 1 < self.len() { Some(self.separator(index + 1)) } else { self.high.clone() }
    }

    /// The same node with another child at an index, and perhaps one more after it. The other children
    /// stay valid: the range of a child does not change while it lives.
    pub fn with_child(&self, index: usize, child: Child, behind: Option<&Entry>) -> Option<Self> {
        if behind.is_some_and(|entry| self.separators.is_empty() && entry.separator.length() != 8) {
            return None;
        }
        let mut routes = self.routes.to_vec();
        routes.get_mut(index)?.child = child;
        let (mut separators, mut slots) = (self.separators.clone(), self.slots.clone());
        if let Some(entry) = behind {
            routes.insert(index + 1, entry.route());
            slots.insert(index + 1, entry.slot as u8);
            if !separators.is_empty() {
                separators.insert(index + 1, entry.separator.clone());
            }
        }
        Some(self.with(routes, separators, slots))
    }

    /// The same node without a child that became part of the child before it.
    pub fn without(&self, index: usize) -> Option<Self> {
        if index == 0 || index >= self.len() {
            return None;
        }
        let (mut routes, mut separators, mut slots) =
            (self.routes.to_vec(), self.separators.clone(), self.slots.clone());
        routes.remove(index);
        slots.remove(index);
        if !separators.is_empty() {
            separators.remove(index);
        }
        Some(self.with(routes, separators, slots))
    }

    fn with(&self, routes: Vec<Route>, separators: Vec<Separator>, slots: Vec<u8>) -> Self {
        let (low, high) = (self.low.clone(), self.high.clone());
        Self { low, high, routes: routes.into(), separators, slots, ..*self }
    }

    pub fn covers(&self, prefix: u64, key: &[u8]) -> bool {
        self.high.as_ref().is_none_or(|high| high.compare(prefix, key).is_gt())
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        // The struct and its table, the counts of both, and its place in a piece.
        let own = size_of::<Self>() + size_of::<Table>() + 32 + 2 * size_of::<u64>() + size_of::<Arc<Self>>();
        let separators: usize = self.separators.iter().map(|s| size_of::<Separator>() + s.extra_bytes()).sum();
        let bounds = 2 * self.low.extra_bytes() + self.high.as_ref().map_or(0, Separator::extra_bytes);
        own + separators + bounds + self.routes.len() * size_of::<Route>() + self.slots.len()
    }
}

impl Entry {
    fn route(&self) -> Route {
        Route { low: self.separator.prefix(), child: self.child }
    }
}
