//! The ordered index of a memtable: a B+-tree from internal keys to records that many threads fill and read at once
//! (optimistic lock coupling; `docs/decisions/0014`).
//!
//! Nodes (`node`) live in an array and refer to each other by number. A slot carries the first twelve bytes of its key.
//! They decide most comparisons without a look at the record, which would be a cache miss. Nodes and slots are only
//! ever added.
//!
//! # An insert
//!
//! ```text
//!   descend to the leaf:  at each node take a snapshot, see that the parent is unchanged, search,
//!                         see that the node is unchanged; a full inner node on the way is split
//!   leaf full:            lock parent and leaf, split, start again
//!   else:                 lock the leaf if it is unchanged, shift, insert, unlock
//! ```
//!
//! The snapshot detects changes by other threads, and the insert starts again. No latch is held while a record is
//! written or compared. A thread that holds a latch never waits for another one: taking a latch fails when the node has
//! changed or is locked.
//!
//! # Invariants
//!
//! 1. A node is reached only from a parent (or previous leaf, or root word) that was unchanged after the node's
//!    snapshot was taken. So at the time of the snapshot the node held exactly the keys of its separators' range.
//! 2. A record is read only if its slot was in an unchanged node. The inserter wrote the record before the slot, and
//!    the snapshot acquires from the inserter.
//! 3. Except for the first leaf, no leaf is empty. Leaves except the last, and inner nodes except those on the right
//!    edge, are at least half full, so `nodes_for` bounds the number of nodes. At the right edge a split moves nothing,
//!    so ascending keys leave full nodes.
//! 4. No two slots of leaves have the same internal key (sequence numbers are unique).

use crate::error::IndexError;
use crate::node::{Arena, NONE, Node, SLOTS, Snapshot, lower, payload, upper};
use crate::planted::{Bug, planted};
use crate::target::{Edge, Stop, Target, Visit, retry};
use forebay_base::record::MIN_RECORD_BYTES;
use forebay_base::{InternalKey, KeyOrder};
use forebay_env::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};

pub use crate::records::Records;

/// Number of nodes that can hold all records of a block of `capacity_bytes` (invariant 3).
pub(crate) const fn nodes_for(capacity_bytes: usize) -> usize {
    let records = capacity_bytes / MIN_RECORD_BYTES;
    let leaves = records / (SLOTS / 2) + 2;
    // Each inner level has fewer nodes than the level below divided by half a node's children.
    let inner = if SLOTS > 6 { leaves / (SLOTS / 2 - 1) * 2 } else { leaves * 2 };
    leaves + inner + MAX_HEIGHT
}

/// More levels than possible: each level at least halves the number of nodes.
const MAX_HEIGHT: usize = 32;

/// See the module.
#[derive(Debug)]
pub struct Index {
    arena: Arena,
    /// Number of the root and, in the upper half, the number of inner levels above the leaves.
    root: AtomicU64,
    order: KeyOrder,
}

impl Index {
    /// An empty index with room for `nodes` nodes, at least one.
    ///
    /// # Errors
    /// [`IndexError::Full`] without room for a node.
    pub fn new(order: KeyOrder, nodes: usize) -> Result<Self, IndexError> {
        let arena = Arena::new(nodes);
        let root = Self::first_leaf(&arena)?;
        Ok(Self { arena, root: AtomicU64::new(payload(0, root)), order })
    }

    fn first_leaf(arena: &Arena) -> Result<u32, IndexError> {
        let root = arena.allocate()?;
        arena.get(root)?.start(NONE, 0);
        Ok(root)
    }

    /// An index without memory, into which nothing can be inserted.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn without_memory(order: KeyOrder) -> Self {
        Self { arena: Arena::empty(), root: AtomicU64::new(payload(0, NONE)), order }
    }

    /// Empties the index and keeps the memory.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn clear(&mut self) -> Result<(), IndexError> {
        self.arena.clear();
        *self.root.get_mut() = payload(0, Self::first_leaf(&self.arena)?);
        Ok(())
    }

    /// Order of the keys.
    #[must_use]
    pub const fn order(&self) -> KeyOrder {
        self.order
    }

    /// Bytes that the nodes take.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.arena.used() * size_of::<Node>()
    }

    /// Inserts a slot for the record at `record` times 8 bytes, which has the internal key `key`. The record's bytes
    /// must be written.
    ///
    /// # Errors
    /// [`IndexError::Full`]; other errors only if memory was overwritten.
    #[inline]
    pub fn insert<R: Records>(&self, records: R, key: InternalKey<'_>, record: u32) -> Result<(), IndexError> {
        let target = Target::new(self.order, key);
        retry(|| self.try_insert(records, &target, record))
    }

    fn try_insert<R: Records>(&self, records: R, target: &Target<'_>, record: u32) -> Result<(), Stop> {
        let mut path = Path { parent: None, at: self.root()?, on_right_edge: true };
        while path.at.level > 0 {
            if path.at.snapshot.is_full() {
                self.split_inner(&path)?;
                return Err(Stop::Changed);
            }
            let child = path.at.rank(records, target, Edge::After)?;
            let below = self.child(path.at, child)?;
            path.on_right_edge &= child == path.at.snapshot.count();
            path.parent = Some((path.at, child));
            path.at = below;
        }
        let at = path.at;
        let slot = at.rank(records, target, Edge::Before)?;
        let count = at.snapshot.count();
        let value = payload(target.tail, record);
        if at.snapshot.is_full() {
            if slot == count && path.on_right_edge {
                return self.append_leaf(&path, target, record);
            }
            self.split_leaf(&path)?;
            return Err(Stop::Changed);
        }
        if !at.node.lock(at.snapshot) {
            return Err(Stop::Changed);
        }
        at.node.insert(slot, count, target.prefix, value);
        at.node.unlock(at.snapshot, count + 1);
        Ok(())
    }

    /// The root, with a snapshot from a time when it was the root.
    #[inline]
    pub(crate) fn root(&self) -> Result<Visit<'_>, Stop> {
        // Acquire: pairs with the release in `insert_above`.
        let word = self.root.load(Acquire);
        let node = self.arena.get(lower(word))?;
        let visit = Visit { number: lower(word), node, snapshot: node.snapshot(), level: upper(word) };
        if self.root.load(Acquire) == word { Ok(visit) } else { Err(Stop::Changed) }
    }

    /// Child `i` of an inner node, with a snapshot from a time when it was that child.
    #[inline]
    pub(crate) fn child(&self, of: Visit<'_>, i: usize) -> Result<Visit<'_>, Stop> {
        let number = of.node.child(i);
        of.check()?;
        let node = self.arena.get(number)?;
        node.prefetch();
        let visit = Visit { number, node, snapshot: node.snapshot(), level: of.level - 1 };
        of.check()?;
        Ok(visit)
    }

    /// The leaf after a leaf, with a snapshot from a time when it was the next one.
    pub(crate) fn next_leaf(&self, of: Visit<'_>) -> Result<Option<Visit<'_>>, Stop> {
        let number = of.node.link();
        of.check()?;
        if number == NONE {
            return Ok(None);
        }
        let node = self.arena.get(number)?;
        let visit = Visit { number, node, snapshot: node.snapshot(), level: 0 };
        of.check()?;
        Ok(Some(visit))
    }

    pub(crate) fn visit(&self, number: u32, snapshot: Snapshot) -> Result<Visit<'_>, IndexError> {
        Ok(Visit { number, node: self.arena.get(number)?, snapshot, level: 0 })
    }

    /// Locks a node and its parent.
    fn lock_with_parent<'a>(&'a self, path: &Path<'a>) -> Result<Locked<'a>, Stop> {
        if let Some((parent, _)) = path.parent
            && !parent.node.lock(parent.snapshot)
        {
            return Err(Stop::Changed);
        }
        let locked = path.at.node.lock(path.at.snapshot);
        // There is no parent. A thread that makes another root changes this node, so this node is still
        // the root.
        if !locked {
            if let Some((parent, _)) = path.parent {
                parent.node.unlock_unchanged(parent.snapshot);
            }
            return Err(Stop::Changed);
        }
        // A root that splits needs two nodes.
        let allocated = self.arena.allocate().and_then(|right| match path.parent {
            Some(_) => Ok((right, None)),
            None => Ok((right, Some(self.arena.allocate()?))),
        });
        let (right, root) = allocated.inspect_err(|_| {
            path.at.node.unlock_unchanged(path.at.snapshot);
            if let Some((parent, _)) = path.parent {
                parent.node.unlock_unchanged(parent.snapshot);
            }
        })?;
        Ok(Locked { right, right_node: self.arena.get(right)?, root })
    }

    /// Inserts a new node above a split node, and unlocks that level.
    fn insert_above(&self, path: &Path<'_>, locked: &Locked<'_>, prefix: u64, separator: u32) -> Result<(), Stop> {
        let value = payload(separator, locked.right);
        match (path.parent, locked.root) {
            (Some((parent, child)), _) => {
                let count = parent.snapshot.count();
                parent.node.insert(child, count, prefix, value);
                parent.node.unlock(parent.snapshot, count + 1);
            }
            (None, Some(number)) => {
                let root = self.arena.get(number)?;
                root.start(path.at.number, 1);
                root.set(0, prefix, value);
                // Pairs with `root`.
                self.root.store(payload(path.at.level + 1, number), Release);
            }
            (None, None) => {}
        }
        Ok(())
    }

    /// Moves the upper half of a full leaf into a new one.
    #[cold]
    fn split_leaf(&self, path: &Path<'_>) -> Result<(), Stop> {
        let locked = self.lock_with_parent(path)?;
        let (node, right) = (path.at.node, locked.right_node);
        let (count, middle) = (path.at.snapshot.count(), path.at.snapshot.count() / 2);
        for slot in middle..count {
            right.set(slot - middle, node.prefix(slot), node.payload(slot));
        }
        right.start(node.link(), count - middle);
        if !planted(Bug::UnlinkedLeaf) {
            node.set_link(locked.right);
        }
        let above = self.insert_above(path, &locked, node.prefix(middle), lower(node.payload(middle)));
        node.unlock(path.at.snapshot, middle);
        above
    }

    /// Puts the first slot that does not fit into a full last leaf into a new leaf.
    #[cold]
    fn append_leaf(&self, path: &Path<'_>, target: &Target<'_>, record: u32) -> Result<(), Stop> {
        let locked = self.lock_with_parent(path)?;
        locked.right_node.set(0, target.prefix, payload(target.tail, record));
        locked.right_node.start(NONE, 1);
        path.at.node.set_link(locked.right);
        let above = self.insert_above(path, &locked, target.prefix, record);
        path.at.node.unlock(path.at.snapshot, path.at.snapshot.count());
        above
    }

    /// Moves the upper half of a full inner node into a new one, except one separator, which moves up.
    #[cold]
    fn split_inner(&self, path: &Path<'_>) -> Result<(), Stop> {
        let locked = self.lock_with_parent(path)?;
        let (node, right) = (path.at.node, locked.right_node);
        let count = path.at.snapshot.count();
        let middle = if path.on_right_edge { count - 1 } else { count / 2 };
        let up = node.payload(middle);
        for slot in middle + 1..count {
            right.set(slot - middle - 1, node.prefix(slot), node.payload(slot));
        }
        right.start(lower(up), count - middle - 1);
        let above = self.insert_above(path, &locked, node.prefix(middle), upper(up));
        node.unlock(path.at.snapshot, middle);
        above
    }
}

/// The position of an insert.
struct Path<'a> {
    /// The node above, which is not full, and the index of the child `at` in it.
    parent: Option<(Visit<'a>, usize)>,
    at: Visit<'a>,
    /// Whether no key lies beyond those of this node.
    on_right_edge: bool,
}

/// The new nodes of a split, whose old nodes are locked.
struct Locked<'a> {
    right: u32,
    right_node: &'a Node,
    /// A new root, when the old one is split.
    root: Option<u32>,
}
