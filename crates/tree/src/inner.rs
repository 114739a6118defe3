//! Replacing and merging inner nodes.
//!
//! A full inner node is [frozen](crate::freeze) and replaced by one or two nodes without dead entries, like a leaf. An
//! inner node with few children merges with a neighbour, as leaves do. The right one's child word is marked in their
//! parent, and both are frozen. Then the left one's child word is swapped for a node whose header decides about the
//! mark. If both fit into one node, that node is the union, and the mark becomes a dead entry. If they grew meanwhile
//! and do not fit, that node is a copy of the left one that refuses, and the mark becomes a copy of the right one.
//! While a node or its right neighbour is marked, a client that would replace the node completes the merge instead.
//! What a frozen node holds above its upper bound in the parent belongs to its right half, which was entered already. A
//! root with one child is replaced by that child.
//!
//! The right half of a split takes over the blocks of its long separators, and frees them as its children merge. If the
//! client that entered it died, the frozen node still names them. So before a right half is entered, the frozen node's
//! slots for them are marked as *given*. Whoever finds the right half in the parent reads none of them. The first one is
//! not given: it is the lower bound of the node in the right half's place, so it stays until that node merges with the
//! left one, which ends the split. It tells that the right half was entered: then it is the left half's upper bound.

use crate::cache::Change;
use crate::cached_node::{CachedNode, Entry};
use crate::class::{Block, Class};
use crate::key::{Separator, prefix_of};
use crate::layout::{
    Control, HEADER_BYTES, INNER_SLOTS, InnerSlot, inner_image, inner_level, inner_merged, inner_slot_offset,
    inner_slots, word_at,
};
use crate::memory::ROOT_OFFSET;
use crate::planted::{Bug, planted};
use crate::replace::{Entered, Place, separator_block, separator_class};
use crate::word::Child;
use crate::{Error, TreeClient};
use std::sync::Arc;

/// Most children of a new inner node, so that it can take some more.
const INNER_FILL: usize = INNER_SLOTS * 2 / 3;

/// Most children of a union.
const MOST_TOGETHER: usize = INNER_SLOTS * 5 / 6;

/// A child and its separator.
type Member = (Separator, InnerSlot);

/// What was in a frozen inner node.
struct Members {
    list: Vec<Member>,
    /// The slot of each in the node.
    slots: Vec<usize>,
    /// Whether it held more, which belongs to its right half and is already in the parent.
    was_split: bool,
}

impl TreeClient {
    /// Replaces a full or frozen inner node, or completes the merge that it is part of.
    pub(crate) fn replace_inner(&mut self, key: &[u8], level: u8, node: Child) -> Result<(), Error> {
        // Somebody else may have replaced it long ago.
        self.tree().cache_write().forget_at(level, key);
        let Some(parent) = self.inner(key, level + 1, true)? else { return self.replace_root(level, node) };
        let place = Place::new(&parent, parent.route(prefix_of(key), key))?;
        if place.child.plain() != node {
            return Ok(());
        }
        if place.child.is_merging() {
            self.finish_inner_merge(&place.before_mark()?, &place)?;
        } else if let Some(right) = place.mark_behind() {
            self.finish_inner_merge(&place, &right)?;
        } else if !self.reserve_inner(&place)? {
            self.replace_inner(&place.parent.low.to_vec(), place.parent.level, place.parent.node)?;
        } else if let Some(members) = self.freeze_members(node, place.upper().as_ref())? {
            self.publish_inner(&place, &members)?;
        }
        Ok(())
    }

    /// Takes the blocks of the node or nodes that are about to replace an inner node. False when its parent has no
    /// room for one more.
    fn reserve_inner(&mut self, place: &Place) -> Result<bool, Error> {
        let members = self.see_members(place.child, place.upper().as_ref())?;
        let Some((separator, _)) = members.right().first() else {
            return self.reserve_nodes(1).map(|()| true);
        };
        let parent = place.parent.node.address();
        let header = self.read_all(&[(parent, HEADER_BYTES + 8)])?;
        if header.first().is_some_and(|header| Control(word_at(header, HEADER_BYTES)).reserved() >= INNER_SLOTS) {
            return Ok(false);
        }
        self.reserve(separator_class(separator.length()).map(|class| (parent.node(), class)))?;
        self.reserve_nodes(2).map(|()| true)
    }

    /// Takes the blocks of `count` inner nodes.
    fn reserve_nodes(&mut self, count: usize) -> Result<(), Error> {
        let tree = Arc::clone(self.tree());
        self.reserve((0..count).map(|behind| (tree.upcoming_node(behind), Class::Inner)))
    }

    /// Freezes an inner node. Returns its members below a bound, in order; `None` when the node is gone.
    fn freeze_members(&mut self, node: Child, upper: Option<&Separator>) -> Result<Option<Members>, Error> {
        match self.freeze_inner(node)? {
            Some(bytes) => self.members(&bytes, upper).map(Some),
            None => Ok(None),
        }
    }

    /// The members below a bound of an inner node that is not frozen yet, in order; none when the node is gone.
    fn see_members(&mut self, node: Child, upper: Option<&Separator>) -> Result<Members, Error> {
        let bytes = self.read_inner(node)?;
        match inner_level(&bytes, node) {
            Some(_) => self.members(&bytes, upper),
            None => Ok(Members { list: Vec::new(), slots: Vec::new(), was_split: false }),
        }
    }

    /// The members below a bound in an inner node's bytes, in order.
    fn members(&mut self, bytes: &[u8], upper: Option<&Separator>) -> Result<Members, Error> {
        let slots: Vec<InnerSlot> = inner_slots(bytes).collect();
        let (entries, was_split) = self.entries_below(bytes, upper)?;
        let member = |entry: Entry| {
            let slot = slots.get(entry.slot)?.own();
            Some(((entry.separator, InnerSlot { child: entry.child, ..slot }), entry.slot))
        };
        let (list, slots) = entries.into_iter().filter_map(member).unzip();
        Ok(Members { list, slots, was_split })
    }

    /// Puts one or two inner nodes with these members in the place of the old one.
    fn publish_inner(&mut self, place: &Place, members: &Members) -> Result<(), Error> {
        let level = place.parent.level - 1;
        let (left, right) = members.list.split_at(members.middle());
        let mut entered = None;
        if let Some((separator, _)) = right.first() {
            let (block, child) = self.write_inner(level, right, Child::EMPTY)?;
            self.give_separators(place.child, members)?;
            match self.enter(place, separator, child, None)? {
                Entered::Done(slot) => entered = Some(Entry { separator: separator.clone(), child, slot }),
                Entered::Exists => self.give_back(block)?,
                Entered::Changed => return self.give_back(block),
                Entered::Full => {
                    self.give_back(block)?;
                    let low = place.parent.low.to_vec();
                    return self.replace_inner(&low, place.parent.level, place.parent.node);
                }
            }
        }
        // If another client entered the right half, the cache may not know it.
        let is_whole = right.is_empty() && !members.was_split;
        let change = |child| match &entered {
            Some(entry) => Some(Change::Split(child, entry)),
            None => is_whole.then_some(Change::Replaced(child)),
        };
        self.swing_inner(place, left, Child::EMPTY, change).map(drop)
    }

    /// Marks the long separators of a frozen node's right half, except the first, as given to the right half. All clients
    /// that do so write the same words.
    fn give_separators(&mut self, node: Child, members: &Members) -> Result<(), Error> {
        if planted(Bug::KeepSeparators) {
            return Ok(());
        }
        let at = node.address();
        let mut posted = Vec::new();
        for ((_, slot), &number) in members.list.iter().zip(&members.slots).skip(members.middle() + 1) {
            if separator_block(slot.rest).is_some() {
                let to = self.tree().memory.resolve(at, inner_slot_offset(number) + 8)?;
                posted.push(self.verbs.post_write(at.node(), to, &slot.given().rest.to_le_bytes())?);
            }
        }
        posted.into_iter().try_for_each(|posted| self.verbs.done(posted))
    }

    /// Writes an inner node and swaps the child word of a place to it, which retires the old node.
    /// Returns whether this client did so.
    fn swing_inner<'a>(
        &mut self,
        place: &Place,
        members: &[Member],
        merged: Child,
        change: impl FnOnce(Child) -> Option<Change<'a>>,
    ) -> Result<bool, Error> {
        let (block, child) = self.write_inner(place.parent.level - 1, members, merged)?;
        let done = self.swing(place, child, None, change(child))?;
        if done {
            self.retire_inner(place.child.plain())?
        } else {
            self.give_back(block)?
        }
        Ok(done)
    }

    fn retire_inner(&mut self, node: Child) -> Result<(), Error> {
        self.retire(Block { class: Class::Inner, at: node.address(), generation: node.generation() })
    }

    fn replace_root(&mut self, level: u8, node: Child) -> Result<(), Error> {
        if self.root(true)? != (node, level) {
            return Ok(());
        }
        self.reserve_root(level, node)?;
        let Some(members) = self.freeze_members(node, None)? else { return Ok(()) };
        let (left, right) = members.list.split_at(members.middle());
        let mut written = Vec::new();
        let new = match (left, right) {
            ([(_, only)], []) if level > 1 => only.child,
            (_, []) => {
                let (block, child) = self.write_inner(level, left, Child::EMPTY)?;
                written.push(block);
                child
            }
            (_, [(separator, first), ..]) => {
                let (lower, low) = self.write_inner(level, left, Child::EMPTY)?;
                let (upper, high) = self.write_inner(level, right, Child::EMPTY)?;
                // A long separator gets a block of its own: each slot's separator ends with the slot.
                let rest = self.separator_rest(lower.at.node(), separator)?;
                let below = left.first().map_or(InnerSlot { prefix: 0, rest: 0, child: low }, |(_, slot)| *slot);
                let members = [
                    (Separator::default(), InnerSlot { child: low, ..below }),
                    (separator.clone(), InnerSlot { child: high, rest, ..*first }),
                ];
                let (block, root) = self.write_inner(level + 1, &members, Child::EMPTY)?;
                written.extend([lower, upper, block]);
                written.extend(separator_block(rest));
                root
            }
        };
        if self.swing_root(node, new)? {
            self.retire_inner(node)?;
        } else {
            written.into_iter().try_for_each(|block| self.give_back(block))?;
        }
        self.tree().cache_write().forget_at(level, b"");
        Ok(())
    }

    /// Takes the blocks of the node or nodes that are about to replace a root.
    fn reserve_root(&mut self, level: u8, node: Child) -> Result<(), Error> {
        let members = self.see_members(node, None)?;
        let Some((separator, _)) = members.right().first() else {
            return self.reserve_nodes(match members.list.len() {
                0 => 0,
                // An only child takes the place of the root, unless it is a leaf.
                1 => usize::from(level == 1),
                _ => 1,
            });
        };
        self.reserve(separator_class(separator.length()).map(|class| (self.tree().upcoming_node(0), class)))?;
        self.reserve_nodes(3)
    }

    /// Merges an inner node that has few children with a neighbour, if the neighbour also has few or the
    /// node has only one. Then continues with the level above. Returns whether anything changed.
    pub(crate) fn merge_inner(&mut self, key: &[u8], node: &CachedNode) -> Result<bool, Error> {
        // What covers all keys may be the only child of the root, if the client that made it so has died.
        if node.covers_all() && self.root(false)?.0 == node.node {
            if node.len() == 1 && node.level > 1 {
                self.replace_root(node.level, node.node)?;
                return Ok(true);
            }
            return Ok(false);
        }
        let Some(mut parent) = self.inner(key, node.level + 1, true)? else { return Ok(false) };
        if parent.len() < 2 {
            if !self.merge_inner(key, &parent)? {
                return Ok(false);
            }
            // Now the node has a neighbour, or is the root.
            match self.inner(key, node.level + 1, true)? {
                Some(other) if other.len() > 1 => parent = other,
                _ => return Ok(true),
            }
        }
        let index = parent.route(prefix_of(key), key);
        let left = if index + 1 < parent.len() { index } else { index - 1 };
        let (left, right) = (Place::new(&parent, left)?, Place::new(&parent, left + 1)?);
        if left.child.is_merging() || right.child.is_merging() {
            return Ok(false);
        }
        let counts = (self.count_children(left.child)?, self.count_children(right.child)?);
        let (Some((a, named)), Some((b, _))) = counts else { return Ok(false) };
        // As for leaves: a mark would count as decided.
        if named.thawed() == right.child {
            return Ok(false);
        }
        if a + b > INNER_FILL / 2 && (a > 1 && b > 1 || a + b > MOST_TOGETHER) {
            return Ok(false);
        }
        // The union, or two copies.
        match self.reserve_nodes(2) {
            Err(error) if error.is_full() => return Ok(false),
            reserved => reserved?,
        }
        let marked = right.marked();
        if self.swing(&right, marked.child, None, Some(Change::Replaced(marked.child)))? {
            self.finish_inner_merge(&left, &marked)?;
        }
        if let Some(parent) = self.inner(key, node.level + 1, true)?
            && parent.is_small()
        {
            self.merge_inner(key, &parent)?;
        }
        Ok(true)
    }

    /// Number of children of an inner node, and the node that its header decides about; `None` when it is gone.
    fn count_children(&mut self, node: Child) -> Result<Option<(usize, Child)>, Error> {
        let bytes = self.read_inner(node)?;
        let live = inner_slots(&bytes).filter(|slot| slot.child.is_live()).count();
        Ok(inner_merged(&bytes, node).map(|named| (live, named)))
    }

    /// Completes the merge of a marked inner node into its left neighbour.
    fn finish_inner_merge(&mut self, left: &Place, marked: &Place) -> Result<(), Error> {
        if self.resolve_inner_mark(left, marked)? {
            return Ok(());
        }
        if left.child.is_merging() {
            return self.finish_inner_merge(&left.before_mark()?, left);
        }
        // The marked node's own header may decide about a mark beside it.
        if let Some(next) = marked.mark_behind() {
            self.resolve_inner_mark(marked, &next)?;
        }
        let Some(upper) = self.settle_marked(left, marked)? else { return Ok(()) };
        let right = marked.child.plain();
        self.reserve_nodes(2)?;
        let Some(mut members) = self.freeze_members(left.child, Some(&marked.low()))? else { return Ok(()) };
        let Some(more) = self.freeze_members(right, upper.as_ref())? else { return Ok(()) };
        let decision = if members.list.len() + more.list.len() <= MOST_TOGETHER {
            members.list.extend(more.list);
            right
        } else {
            right.frozen()
        };
        // The cache may not know what was entered before the mark.
        if self.swing_inner(left, &members.list, decision, |_| None)? {
            self.end_inner_mark(marked, decision, upper.as_ref())?;
        }
        Ok(())
    }

    /// Ends a mark if its left neighbour's header decides about it. Returns whether it does.
    fn resolve_inner_mark(&mut self, left: &Place, marked: &Place) -> Result<bool, Error> {
        let header = self.read_all(&[(left.child.address(), HEADER_BYTES + 8)])?;
        let decision = header.first().and_then(|bytes| inner_merged(bytes, left.child.plain()));
        let Some(decision) = decision.filter(|decision| decision.thawed() == marked.child.plain()) else {
            return Ok(false);
        };
        self.end_inner_mark(marked, decision, marked.upper().as_ref())?;
        Ok(true)
    }

    /// Ends a mark: its node is part of its left neighbour, or is copied when that refused it.
    fn end_inner_mark(&mut self, marked: &Place, decision: Child, upper: Option<&Separator>) -> Result<(), Error> {
        let right = marked.child.plain();
        if decision.is_frozen() {
            let Some(members) = self.freeze_members(right, upper)? else { return Ok(()) };
            self.swing_inner(marked, &members.list, Child::EMPTY, |_| None)?;
        } else if self.kill(marked)? {
            self.retire_inner(right)?;
        }
        Ok(())
    }

    fn write_inner(&mut self, level: u8, members: &[Member], merged: Child) -> Result<(Block, Child), Error> {
        let slots: Vec<InnerSlot> = members.iter().map(|(_, slot)| *slot).collect();
        let node = self.tree().next_node();
        let block = self.allocate(node, Class::Inner)?;
        self.write_block(block.at, &inner_image(level, block.generation, merged, &slots))?;
        Ok((block, Child::new(block.at, 0, block.generation)))
    }

    pub(crate) fn swing_root(&mut self, old: Child, new: Child) -> Result<bool, Error> {
        let at = self.tree().memory.superblock(0, ROOT_OFFSET)?;
        let done = self.compare_swap(0, at, old.0, new.0)? == old.0;
        self.root(true)?;
        Ok(done)
    }
}

impl Members {
    /// The members of the right node, if there is one.
    fn right(&self) -> &[Member] {
        self.list.get(self.middle()..).unwrap_or_default()
    }

    /// How many members the left node gets: all if there are few, or if their right half is already in the
    /// parent. A merging child stays beside its left neighbour.
    fn middle(&self) -> usize {
        let count = self.list.len();
        if self.was_split || count <= INNER_FILL {
            return count;
        }
        let may_begin = |(_, slot): &Member| !slot.child.is_merging();
        (count / 2..count).find(|&at| self.list.get(at).is_some_and(may_begin)).unwrap_or(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::dying::insert_until_split;
    use crate::tests::{session, start};
    use crate::{Tree, TreeOptions, Verb};
    use forebay_env::sync::{Mutex, lock};

    fn small() -> TreeOptions {
        TreeOptions { slots: 3, most_buckets: 3, fill_percent: 60, ..TreeOptions::default() }
    }

    #[test]
    fn a_root_above_one_leaf_stays_as_it_is_where_no_memory_is_left() {
        let (_node, connector) = start(64 << 20);
        let tree = Tree::create(&[session(&connector)], "tree", small()).unwrap();
        let mut client = tree.client().unwrap();
        let (root, level) = client.root(true).unwrap();
        while client.take_chunks(0, 1).is_ok() {}
        while client.allocate(0, Class::Inner).is_ok() {}
        let replaced = client.within_read(|client| client.replace_root(level, root));
        assert!(replaced.is_err_and(|error| error.is_full()));
        assert!(inner_slots(&client.read_inner(root).unwrap()).all(|slot| !slot.child.is_frozen()));
    }

    /// A client dies after it merged the two children of the root.
    #[test]
    fn a_root_with_one_child_is_replaced_although_nobody_is_left_to_do_so() {
        let (_node, connector) = start(64 << 20);
        let tree = Tree::create(&[session(&connector)], "tree", small()).unwrap();
        let mut client = tree.client().unwrap();
        let key = |number: u64| number.to_be_bytes();
        // One leaf more than are loaded into an inner node.
        let keys = 91 * tree.memory.cut.geometry.most_keys() as u64;
        client.bulk_load((0..keys).map(|number| (key(number), b"12345678"))).unwrap();
        let root = client.inner(b"", 2, true).unwrap().unwrap();
        assert_eq!(root.len(), 2);
        let (left, right) = (Place::new(&root, 0).unwrap(), Place::new(&root, 1).unwrap());
        let merged = client.within_read(|client| {
            let marked = right.marked();
            assert!(client.swing(&right, marked.child, None, None)?);
            client.finish_inner_merge(&left, &marked)
        });
        assert_eq!(merged, Ok(()));
        assert_eq!(client.verify().unwrap().height, 2);
        (0..keys).for_each(|number| assert!(client.delete(&key(number)).unwrap()));
        let empty = client.verify().unwrap();
        assert_eq!((empty.keys, empty.inner_nodes, empty.height), (0, 1, 1));
    }

    /// A client dies after it entered the right half of an inner node. Another process completes the split. Right
    /// before its last swap, a second thread puts the parent into the cache as it was before the split. Right after
    /// that swap, the second thread reads.
    #[test]
    fn a_parent_that_is_cached_late_hides_no_right_half() {
        let (_node, connector) = start(64 << 20);
        let tree = Tree::create(&[session(&connector)], "tree", small()).unwrap();
        let mut client = tree.client().unwrap();
        let key = |number: u64| number.to_be_bytes();
        client.bulk_load((0..1_000).map(|number| (key(number), b"12345678"))).unwrap();
        assert!(client.get(&key(999)).unwrap().is_some());
        let before = tree.cache_read().node(2, 999, &key(999)).cloned().unwrap();
        let other = Tree::open(&[session(&connector)], "tree", small()).unwrap();
        let mut dying = other.client().unwrap();
        let keys = insert_until_split(&mut dying, key, 1_000, true);
        tree.clear_cache();
        // No other swap comes before that of the child word.
        let block = client.allocate(0, Class::Inner).unwrap();
        client.give_back(block).unwrap();
        let (mut reader, cached) = (tree.client().unwrap(), Arc::clone(&tree));
        let missing = Arc::new(Mutex::new(None));
        let (found, mut has_swapped) = (Arc::clone(&missing), false);
        client.set_hook(Some(Box::new(move |verb| {
            if verb == Verb::CompareSwap && !has_swapped {
                cached.cache_write().insert(Arc::clone(&before));
                has_swapped = true;
            } else if has_swapped && lock(&found).is_none() {
                let absent = (0..keys).filter(|&number| reader.get(&key(number)).unwrap().is_none()).count();
                *lock(&found) = Some(absent);
            }
            true
        })));
        assert!(client.get(&key(999)).unwrap().is_some());
        assert_eq!(*lock(&missing), Some(0));
    }
}
