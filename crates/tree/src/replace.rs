//! Replacing nodes: growing, splitting and merging. One compare-and-swap decides each change.
//!
//! A node's structure never changes. The node is [frozen](crate::freeze), new nodes with its content are written, and the
//! child word in its parent is swapped for the new node's. Where a node becomes two, the right one is first entered into
//! the parent under its separator, which the content alone determines. From then on the right range belongs to the right
//! node, and the rest of the range still leads to the frozen node. A client that meets a frozen node does the missing
//! steps, so nothing waits for a client that died.
//!
//! A merge begins by marking the right one of two neighbours in the parent. From then on nothing is entered between the
//! two. Both are frozen, and the left one's child word is swapped for a leaf whose header decides about the mark.
//! Usually this leaf is the union and names the marked leaf. Then the mark becomes a dead entry. If the leaves grew
//! meanwhile and a union would be too large, it is a copy of the left leaf that refuses the marked leaf. Then the mark
//! becomes a copy of the marked leaf.
//!
//! The header names that leaf for as long as its own leaf lives, and generations repeat. So two leaves of which the left
//! one names the right one do not merge.
//!
//! Inner nodes split and merge in the same way, see [`inner`](crate::inner).
//!
//! The blocks for all of this are taken before anything is marked or frozen. So if no memory is left, a node stays
//! unchanged.
//!
//! While a node is frozen, its right half may already have been entered and be in use. What the frozen node holds above
//! its upper bound in the parent no longer belongs to it.

use crate::cache::Change;
use crate::cached_node::{CachedNode, Entry};
use crate::class::{Block, Class};
use crate::freeze::{Contents, Item, SeenLeaf, SlotWords, cut, staging_class};
use crate::key::{Separator, prefix_of};
use crate::layout::{
    BLOCK_HEADER_BYTES, Control, HEADER_BYTES, INNER_SLOTS, InnerSlot, Shape, block_image, inner_level,
    inner_slot_offset, inner_slots, leaf_merged, separator_length, word_at,
};
use crate::planted::{Bug, planted};
use crate::verbs::Posted;
use crate::word::{Address, Child, ValueWord};
use crate::{Error, TreeClient};
use std::sync::Arc;

/// The result of entering a separator.
#[derive(Debug, PartialEq, Eq)]
pub enum Entered {
    /// It is in this slot.
    Done(usize),
    /// It exists: another client did the same.
    Exists,
    /// The parent changed meanwhile.
    Changed,
    /// The parent has no slot left.
    Full,
}

/// The place of a node in its parent.
#[derive(Debug, Clone)]
pub struct Place {
    pub parent: Arc<CachedNode>,
    pub index: usize,
    pub child: Child,
    slot: usize,
}

impl Place {
    pub fn new(parent: &Arc<CachedNode>, index: usize) -> Result<Self, Error> {
        let missing = || Error::corrupt("a child that its parent does not have");
        let child = parent.child(index).ok_or_else(missing)?;
        let slot = parent.slot(index).ok_or_else(missing)?;
        Ok(Self { parent: Arc::clone(parent), index, child, slot })
    }

    /// The same place, with its child marked as merging with the child before it.
    pub fn marked(&self) -> Self {
        Self { child: self.child.merging(), ..self.clone() }
    }

    /// The lower bound of the child's range.
    pub fn low(&self) -> Separator {
        self.parent.separator(self.index)
    }

    /// The upper bound of the child's range.
    pub fn upper(&self) -> Option<Separator> {
        self.parent.upper(self.index)
    }

    /// The place before this one, whose child is marked.
    pub fn before_mark(&self) -> Result<Self, Error> {
        let before = self.index.checked_sub(1).ok_or_else(|| Error::corrupt("the first child of a node is merging"))?;
        Self::new(&self.parent, before)
    }

    /// The place after this one, if its child is marked.
    pub fn mark_behind(&self) -> Option<Self> {
        Self::new(&self.parent, self.index + 1).ok().filter(|next| next.child.is_merging())
    }

    /// Offset of the child word in the parent.
    fn offset(&self) -> usize {
        inner_slot_offset(self.slot) + 16
    }
}

impl TreeClient {
    /// Makes sure that the leaf of a key is no longer `leaf`, which is frozen, gone, full, or merging. A
    /// `patient` caller only checks whether another client did so.
    pub(crate) fn settle(&mut self, key: &[u8], leaf: Child, patient: bool) -> Result<(), Error> {
        let parent = self.inner(key, 1, true)?.ok_or_else(|| Error::corrupt("a tree without a root"))?;
        let index = parent.route(prefix_of(key), key);
        let place = Place::new(&parent, index)?;
        if place.child != leaf && !place.child.is_merging() || patient {
            return Ok(());
        }
        self.replace_leaf(&place)
    }

    /// Replaces a leaf that is full and was not frozen when it was read: its parent comes from the cache, and is
    /// only checked to be still a node.
    pub(crate) fn replace_full(&mut self, key: &[u8], leaf: Child) -> Result<(), Error> {
        let prefix = prefix_of(key);
        let parent = self.tree().cache_read().node(1, prefix, key).cloned();
        if let Some(parent) = parent {
            let place = Place::new(&parent, parent.route(prefix, key))?;
            let right = parent.child(place.index + 1);
            if place.child == leaf && right.is_none_or(|right| !right.is_merging()) {
                // A leaf's header decides about the mark beside it: only a client that sees the mark may replace the
                // leaf.
                if let Some(seen) = self.see_leaf(leaf, parent.node, place.upper())?.filter(|seen| !seen.names_a_mark) {
                    return self.replace_seen(&place, seen);
                }
                self.tree().cache_write().forget_at(1, key);
            }
        }
        self.settle(key, leaf, false)
    }

    /// Replaces a leaf by one or two new leaves of normal fill.
    fn replace_leaf(&mut self, place: &Place) -> Result<(), Error> {
        if place.child.is_merging() {
            return self.finish_merge(&place.before_mark()?, place);
        }
        if let Some(right) = place.mark_behind() {
            return self.finish_merge(place, &right);
        }
        match self.see_leaf(place.child, place.parent.node, place.upper())? {
            Some(seen) => self.replace_seen(place, seen),
            None => Ok(()),
        }
    }

    /// As [`TreeClient::replace_leaf`], for a leaf that was read and has no mark beside it.
    fn replace_seen(&mut self, place: &Place, seen: SeenLeaf) -> Result<(), Error> {
        if !self.reserve_leaves(place, &seen)? {
            return self.replace_inner(&place.parent.low.to_vec(), place.parent.level, place.parent.node);
        }
        let Some(mut contents) = self.freeze_leaf(seen)? else { return Ok(()) };
        let was_split = cut(&mut contents.items, place.upper().as_ref());
        self.publish(place, contents, was_split)
    }

    /// Takes the blocks of the leaf or leaves that are about to replace a leaf. False when its parent has no room for
    /// one more.
    fn reserve_leaves(&mut self, place: &Place, seen: &SeenLeaf) -> Result<bool, Error> {
        let mut items = seen.items.clone();
        let was_split = cut(&mut items, place.upper().as_ref());
        let (middle, separator) = self.divide(&mut items, was_split);
        let (left, right) = items.split_at_checked(middle).unwrap_or((&items, &[]));
        let node = seen.leaf.address().node();
        let mut needs = vec![(node, self.leaf_class(words(left))?)];
        needs.extend(staging_class(seen.items.iter().map(|item| item.value)).map(|class| (node, class)));
        if let Some(separator) = separator {
            if !seen.has_parent_room {
                return Ok(false);
            }
            needs.push((self.tree().upcoming_node(0), self.leaf_class(words(right))?));
            needs.extend(separator_class(separator.length()).map(|class| (place.parent.node.address().node(), class)));
        }
        self.reserve(needs)?;
        Ok(true)
    }

    /// Takes the blocks of the union of two leaves with these live slots, or of their copies if they do not fit into
    /// one.
    fn reserve_union(
        &mut self,
        (left, a): (Child, &[SlotWords]),
        (right, b): (Child, &[SlotWords]),
    ) -> Result<(), Error> {
        let words = |slots: &[SlotWords]| slots.iter().map(|(word, _)| *word).collect::<Vec<_>>();
        let both = [words(a), words(b)].concat();
        let (left, right) = (left.address().node(), right.address().node());
        let mut needs = Vec::new();
        for (node, slots) in [(left, a), (right, b)] {
            needs.extend(staging_class(slots.iter().map(|(_, value)| *value)).map(|class| (node, class)));
        }
        if self.make_one(a.len(), both.iter().copied()) {
            needs.push((left, self.leaf_class(both.iter().copied())?));
        } else {
            let (a, b) = both.split_at(a.len());
            needs.push((left, self.leaf_class(a.iter().copied())?));
            needs.push((right, self.leaf_class(b.iter().copied())?));
        }
        self.reserve(needs)
    }

    /// Whether keys make one leaf and not two.
    fn fits(&self, words: impl Iterator<Item = u64>) -> bool {
        let geometry = self.tree().memory.cut.geometry;
        geometry.shape_for(words, geometry.most_buckets).is_some()
    }

    /// Whether the keys of two leaves make one leaf; the left one has `left` keys. If one of the leaves is empty, a new
    /// leaf also holds what the other held.
    fn make_one(&self, left: usize, words: impl ExactSizeIterator<Item = u64>) -> bool {
        left == 0 || left == words.len() || self.fits(words)
    }

    /// Brings the items of the left leaf to the front. Returns their number, and the separator of the others, if there
    /// are any. If the leaf `was_split`, its right half is already in the parent.
    fn divide(&self, items: &mut [Item], was_split: bool) -> (usize, Option<Separator>) {
        let count = items.len();
        let middle = if was_split || self.fits(words(items)) { count } else { count / 2 };
        (middle, divide(items, middle))
    }

    /// Writes the leaf or leaves that these contents make, and puts them in the place of the old one. If it
    /// `was_split`, its right half is already in the parent.
    fn publish(&mut self, place: &Place, contents: Contents, was_split: bool) -> Result<(), Error> {
        let Contents { mut items, staging } = contents;
        let (middle, separator) = self.divide(&mut items, was_split);
        let (left, right) = items.split_at_checked(middle).unwrap_or((&items, &[]));
        let mut entered = None;
        if let Some(separator) = separator {
            let node = self.tree().next_node();
            let (block, child, written) = self.post_leaf(node, right, Child::EMPTY)?;
            if planted(Bug::SwingBeforeEntering) {
                self.verbs.done(written)?;
                let (_, left, written) = self.post_leaf(node, left, Child::EMPTY)?;
                self.swing(place, left, Some(written), None)?;
                return self.enter(&Place { child: left, ..place.clone() }, &separator, child, None).map(drop);
            }
            match self.enter(place, &separator, child, Some(written))? {
                Entered::Done(slot) => entered = Some(Entry { separator, child, slot }),
                Entered::Exists => self.give_back(block)?,
                Entered::Changed => return self.give_back(block),
                Entered::Full => {
                    self.give_back(block)?;
                    let key = place.parent.low.to_vec();
                    return self.replace_inner(&key, place.parent.level, place.parent.node);
                }
            }
        }
        // If another client entered the right half, the cache may not know it.
        let is_whole = right.is_empty() && !was_split;
        let change = |child| match &entered {
            Some(entry) => Some(Change::Split(child, entry)),
            None => is_whole.then_some(Change::Replaced(child)),
        };
        self.swing_leaf(place, left, Child::EMPTY, &staging, change).map(drop)
    }

    /// Writes a leaf and swaps the child word of a place to it, which retires the old leaf and its staging blocks. Returns
    /// whether this client did so.
    fn swing_leaf<'a>(
        &mut self,
        place: &Place,
        items: &[Item],
        merged: Child,
        staging: &[Address],
        change: impl FnOnce(Child) -> Option<Change<'a>>,
    ) -> Result<bool, Error> {
        let (block, child, written) = self.post_leaf(place.child.address().node(), items, merged)?;
        if !self.swing(place, child, Some(written), change(child))? {
            self.give_back(block)?;
            return Ok(false);
        }
        self.retire_leaf(place.child.plain())?;
        for &at in staging {
            self.retire(Block { class: Class::Staging, at, generation: 1 })?;
        }
        Ok(true)
    }

    fn retire_leaf(&mut self, leaf: Child) -> Result<(), Error> {
        self.retire(Block { class: Class::Leaf(leaf.buckets()), at: leaf.address(), generation: leaf.generation() })
    }

    /// The shape of a new leaf with these keys.
    fn shape(&self, words: impl Iterator<Item = u64> + Clone) -> Result<Shape, Error> {
        let geometry = &self.tree().memory.cut.geometry;
        geometry
            .shape_for(words.clone(), crate::layout::MAX_BUCKETS)
            .or_else(|| geometry.shape_that_holds(words))
            .ok_or_else(|| Error::corrupt("more keys of one bucket than a leaf can hold"))
    }

    fn leaf_class(&self, words: impl Iterator<Item = u64> + Clone) -> Result<Class, Error> {
        Ok(Class::Leaf(self.shape(words)?.buckets))
    }

    /// Posts the write of a new leaf. Its buckets may be full if hashes are unlucky. The block stays as it was taken: only
    /// a leaf that becomes known to others uses up the generations that its seed skips.
    pub(crate) fn post_leaf(
        &mut self,
        node: usize,
        items: &[Item],
        merged: Child,
    ) -> Result<(Block, Child, Posted), Error> {
        let geometry = self.tree().memory.cut.geometry;
        let Shape { buckets, seed, .. } = self.shape(words(items))?;
        let block = self.allocate(node, Class::Leaf(buckets))?;
        let generation = block.seeded(seed).generation;
        let entries = items.iter().map(|item| (item.word, item.value));
        let image = geometry.leaf_image(buckets, generation, merged.0, entries);
        let to = self.tree().memory.resolve(block.at, 0)?;
        let written = self.verbs.post_write(block.at.node(), to, &image)?;
        Ok((block, Child::new(block.at, buckets, generation), written))
    }

    /// Swaps the child word of a place, once what it names is `written`. Returns whether the old word was the expected
    /// one.
    pub(crate) fn swing(
        &mut self,
        place: &Place,
        new: Child,
        written: Option<Posted>,
        change: Option<Change<'_>>,
    ) -> Result<bool, Error> {
        let parent = place.parent.node.address();
        let at = self.tree().memory.resolve(parent, place.offset())?;
        let mut pending = None;
        match written {
            Some(posted) if posted.node() == parent.node() => {
                self.verbs.then(parent.node())?;
                pending = Some(posted);
            }
            Some(posted) => self.verbs.done(posted)?,
            None => {}
        }
        let swapped = self.verbs.post_swap(parent.node(), at, place.child.0, new.0)?;
        if let Some(posted) = pending {
            self.verbs.done(posted)?;
        }
        let won = self.verbs.word(swapped)? == place.child.0;
        let mut cache = self.tree().cache_write();
        match change.filter(|_| won) {
            Some(change) => cache.change(&place.parent, place.child, change),
            None => cache.forget(place.parent.level, &place.parent.low, place.parent.high.as_ref()),
        }
        Ok(won)
    }

    /// Enters a child into the parent of a place under a separator, unless it exists there. The place must still hold
    /// its child: then the split is not complete, and no dead entry with that separator belongs to this split.
    ///
    /// Slots are used in the order of their numbers: a slot counts only when all earlier slots are used, or spent so
    /// that they never will be. So of several clients that enter one separator, the one with the lowest slot succeeds
    /// and all others see its entry.
    pub(crate) fn enter(
        &mut self,
        place: &Place,
        separator: &Separator,
        child: Child,
        written: Option<Posted>,
    ) -> Result<Entered, Error> {
        let rest = self.separator_rest(place.parent.node.address().node(), separator)?;
        let entered = self.enter_slot(place, separator, rest, child, written)?;
        if !matches!(entered, Entered::Done(_))
            && let Some(block) = separator_block(rest)
        {
            self.give_back(block)?;
        }
        Ok(entered)
    }

    /// As [`TreeClient::enter`], with the second word of the slot.
    fn enter_slot(
        &mut self,
        place: &Place,
        separator: &Separator,
        rest: u64,
        child: Child,
        mut written: Option<Posted>,
    ) -> Result<Entered, Error> {
        let tree = Arc::clone(self.tree());
        let parent = place.parent.node;
        let (node, control) = (parent.address().node(), tree.memory.resolve(parent.address(), HEADER_BYTES)?);
        let child_at = |slot: usize| tree.memory.resolve(parent.address(), inner_slot_offset(slot) + 16);
        let mut reserved = None;
        let mut attempt = 0;
        loop {
            let added = match reserved {
                Some(_) => None,
                None => Some(self.verbs.post_add(node, control, 1)?),
            };
            self.verbs.then(node)?;
            let bytes = self.read_inner(parent)?;
            if let Some(written) = written.take() {
                self.verbs.done(written)?;
            }
            let slot = match (added, reserved) {
                (Some(added), _) => Control(self.verbs.word(added)?).reserved(),
                (None, slot) => slot.unwrap_or(INNER_SLOTS),
            };
            reserved = Some(slot);
            let slots: Vec<InnerSlot> = inner_slots(&bytes).collect();
            let anchor = slots.get(place.slot).map(|slot| slot.child);
            let frozen = slots.iter().any(|slot| slot.child.is_frozen());
            if inner_level(&bytes, parent).is_none() || frozen || anchor != Some(place.child) {
                return Ok(Entered::Changed);
            }
            let pending: Vec<usize> = (0..slot.min(INNER_SLOTS))
                .filter(|&at| slots.get(at).is_some_and(|s| s.child == Child::EMPTY))
                .collect();
            if !pending.is_empty() && !planted(Bug::EnterPastPending) {
                for slot in pending {
                    self.compare_swap(node, child_at(slot)?, Child::EMPTY.0, Child::SPENT.0)?;
                }
                Self::again(&mut attempt)?;
                continue;
            }
            if slot >= INNER_SLOTS {
                return Ok(Entered::Full);
            }
            let entries = self.entries(&bytes)?;
            let next = entries.iter().position(|entry| entry.slot == place.slot).and_then(|at| entries.get(at + 1));
            let is_new = entries.iter().all(|entry| entry.separator != *separator);
            if is_new && next.is_some_and(|next| next.child.is_merging()) {
                // The right neighbour was marked meanwhile.
                return Ok(Entered::Changed);
            }
            if !is_new {
                self.compare_swap(node, child_at(slot)?, Child::EMPTY.0, Child::SPENT.0)?;
                return Ok(Entered::Exists);
            }
            let at = tree.memory.resolve(parent.address(), inner_slot_offset(slot))?;
            let image: Vec<u8> = [separator.prefix(), rest].iter().flat_map(|word| word.to_le_bytes()).collect();
            let written = self.verbs.post_write(node, at, &image)?;
            self.verbs.then(node)?;
            let swapped = self.verbs.post_swap(node, child_at(slot)?, Child::EMPTY.0, child.0)?;
            self.verbs.done(written)?;
            match Child(self.verbs.word(swapped)?) {
                Child::EMPTY => return Ok(Entered::Done(slot)),
                found if found.is_frozen() => return Ok(Entered::Changed),
                _ => reserved = None,
            }
            Self::again(&mut attempt)?;
        }
    }

    /// The second word of a separator's slot; writes a block for a long one.
    pub(crate) fn separator_rest(&mut self, node: usize, separator: &Separator) -> Result<u64, Error> {
        let length = u64::from(separator.length()) << 48;
        let Some(class) = separator_class(separator.length()) else { return Ok(length) };
        let image = block_image(&separator.to_vec(), b"");
        let block = self.allocate(node, class)?;
        self.write_block(block.at, &image)?;
        Ok(length | block.at.bits())
    }

    /// Merges a leaf with its right neighbour if both are small.
    pub(crate) fn merge_if_small(&mut self, key: &[u8], leaf: Child) -> Result<(), Error> {
        let Some(mut parent) = self.inner(key, 1, true)? else { return Ok(()) };
        if parent.is_small() && self.merge_inner(key, &parent)? {
            let Some(other) = self.inner(key, 1, true)? else { return Ok(()) };
            parent = other;
        }
        let index = parent.route(prefix_of(key), key);
        if parent.child(index) != Some(leaf) || parent.len() < 2 {
            return Ok(());
        }
        let left = if index + 1 < parent.len() { index } else { index - 1 };
        let (left, right) = (Place::new(&parent, left)?, Place::new(&parent, left + 1)?);
        if left.child.is_merging() || right.child.is_merging() {
            return Ok(());
        }
        let (bytes, more) = (self.read_leaf(left.child)?, self.read_leaf(right.child)?);
        let (Some(bytes), Some(more)) = (bytes, more) else { return Ok(()) };
        // An earlier leaf may have had the name of the right one: its mark would count as decided.
        if leaf_merged(&bytes, left.child).is_some_and(|named| named.thawed() == right.child) {
            return Ok(());
        }
        let live: Vec<SlotWords> = self.live_in_place(&bytes, left.child).collect();
        let more: Vec<SlotWords> = self.live_in_place(&more, right.child).collect();
        let (a, b) = (live.len(), more.len());
        let geometry = self.tree().memory.cut.geometry;
        // The union is at most half full, unless one of the two is empty and would stay for ever.
        if a + b > geometry.most_keys() / 2 && a > 0 && b > 0 {
            return Ok(());
        }
        match self.reserve_union((left.child, &live), (right.child, &more)) {
            // They stay as they are.
            Err(error) if error.is_full() => return Ok(()),
            reserved => reserved?,
        }
        let marked = right.marked();
        let change = Change::Replaced(marked.child);
        if self.swing(&right, marked.child, None, Some(change))? { self.finish_merge(&left, &marked) } else { Ok(()) }
    }

    /// The live slots of a leaf's bytes.
    pub(crate) fn live_slots<'a>(
        &self,
        bytes: &'a [u8],
        leaf: Child,
    ) -> impl Iterator<Item = (u64, ValueWord)> + use<'a> {
        let geometry = self.tree().memory.cut.geometry;
        (0..leaf.buckets())
            .filter_map(move |bucket| bytes.get(geometry.bucket_offset(bucket)..)?.get(..geometry.bucket_bytes()))
            .flat_map(|bucket| crate::layout::Bucket::new(bucket).slots())
            .filter(|(_, value)| value.is_live())
    }

    /// Completes the merge of a marked leaf into its left neighbour.
    fn finish_merge(&mut self, left: &Place, marked: &Place) -> Result<(), Error> {
        if self.resolve_mark(left, marked)? {
            return Ok(());
        }
        if left.child.is_merging() {
            return self.replace_leaf(left);
        }
        // The marked leaf's own header may decide about a mark beside it.
        if let Some(next) = marked.mark_behind() {
            self.resolve_mark(marked, &next)?;
        }
        let Some(upper) = self.settle_marked(left, marked)? else { return Ok(()) };
        let right = marked.child.plain();
        let parent = left.parent.node;
        let seen = self.see_leaf(left.child, parent, Some(marked.low()))?;
        let (Some(seen), Some(more)) = (seen, self.see_leaf(right, parent, upper.clone())?) else { return Ok(()) };
        self.reserve_union((left.child, &seen.live()), (right, &more.live()))?;
        let frozen = (self.freeze_leaf(seen)?, self.freeze_leaf(more)?);
        let (Some(mut contents), Some(mut more)) = frozen else { return Ok(()) };
        // Both may have been about to be split: what is already entered no longer belongs to them.
        cut(&mut contents.items, Some(&marked.low()));
        cut(&mut more.items, upper.as_ref());
        let count = contents.items.len();
        contents.items.append(&mut more.items);
        let decision = if self.make_one(count, words(&contents.items)) {
            contents.staging.append(&mut more.staging);
            contents.staging.sort_unstable();
            contents.staging.dedup();
            right
        } else {
            contents.items.truncate(count);
            right.frozen()
        };
        let Contents { items, staging } = contents;
        if self.swing_leaf(left, &items, decision, &staging, |_| None)? {
            self.end_mark(marked, decision, upper.as_ref())?;
        }
        Ok(())
    }

    /// Ends a mark if its left neighbour's header decides about it. Returns whether it does.
    fn resolve_mark(&mut self, left: &Place, marked: &Place) -> Result<bool, Error> {
        let header = self.read_all(&[(left.child.address(), HEADER_BYTES)])?;
        let decision = header.first().and_then(|bytes| leaf_merged(bytes, left.child));
        let Some(decision) = decision.filter(|decision| decision.thawed() == marked.child.plain()) else {
            return Ok(false);
        };
        self.end_mark(marked, decision, marked.parent.upper(marked.index).as_ref())?;
        Ok(true)
    }

    /// Ends a mark: its leaf is part of its left neighbour, or is copied when that refused it.
    fn end_mark(&mut self, marked: &Place, decision: Child, upper: Option<&Separator>) -> Result<(), Error> {
        let right = marked.child.plain();
        if decision.is_frozen() {
            let Some(seen) = self.see_leaf(right, marked.parent.node, upper.cloned())? else { return Ok(()) };
            let Some(mut contents) = self.freeze_leaf(seen)? else { return Ok(()) };
            cut(&mut contents.items, upper);
            let Contents { items, staging } = contents;
            self.swing_leaf(marked, &items, Child::EMPTY, &staging, |_| None)?;
        } else if self.kill(marked)? {
            self.retire_leaf(right)?;
        }
        Ok(())
    }

    /// Swaps a mark for a dead entry, whose separator nobody reads any more. Returns whether this client did so.
    pub(crate) fn kill(&mut self, marked: &Place) -> Result<bool, Error> {
        if !self.swing(marked, Child::DEAD, None, Some(Change::Merged))? {
            return Ok(false);
        }
        if marked.low().length() > 8 {
            let parent = marked.parent.node.address();
            let rest = self.tree().memory.resolve(parent, marked.offset() - 8)?;
            let rest = self.read_word(parent.node(), rest)?;
            separator_block(rest).map_or(Ok(()), |block| self.retire(block))?;
        }
        Ok(true)
    }

    /// Waits until no entry is on its way into the range of two neighbours, the right one of which is marked.
    /// Does so by spending reserved slots: later reservations see the mark. Returns the upper bound of the
    /// marked node; `None` when the two are no longer neighbours.
    pub(crate) fn settle_marked(&mut self, left: &Place, marked: &Place) -> Result<Option<Option<Separator>>, Error> {
        let tree = Arc::clone(self.tree());
        let parent = left.parent.node;
        let mut attempt = 0;
        loop {
            let bytes = self.read_inner(parent)?;
            if inner_level(&bytes, parent).is_none() || inner_slots(&bytes).any(|slot| slot.child.is_frozen()) {
                return Ok(None);
            }
            let entries = self.entries(&bytes)?;
            let at = entries.iter().position(|entry| entry.slot == left.slot && entry.child == left.child);
            let next = at.and_then(|at| entries.get(at + 1));
            if next.is_none_or(|next| next.slot != marked.slot || next.child != marked.child) {
                return Ok(None);
            }
            let reserved = Control(word_at(&bytes, HEADER_BYTES)).reserved().min(INNER_SLOTS);
            let pending: Vec<usize> = inner_slots(&bytes)
                .take(reserved)
                .enumerate()
                .filter(|(_, slot)| slot.child == Child::EMPTY)
                .map(|(slot, _)| slot)
                .collect();
            if pending.is_empty() || planted(Bug::MergePastPending) {
                let upper = at.and_then(|at| entries.get(at + 2)).map(|entry| entry.separator.clone());
                return Ok(Some(upper.or_else(|| left.parent.high.clone())));
            }
            for slot in pending {
                let at = tree.memory.resolve(parent.address(), inner_slot_offset(slot) + 16)?;
                self.compare_swap(parent.address().node(), at, Child::EMPTY.0, Child::SPENT.0)?;
            }
            Self::again(&mut attempt)?;
        }
    }
}

/// The block of a separator that does not fit into its slot, from the slot's second word, which holds its
/// length. No two slots share a block.
pub(crate) fn separator_block(rest: u64) -> Option<Block> {
    let class = separator_class(separator_length(rest))?;
    Some(Block { class, at: Address::from_bits(rest), generation: 1 })
}

/// The class of the block of a separator of this length, if it does not fit into its slot.
pub(crate) fn separator_class(length: u32) -> Option<Class> {
    (length > 8).then(|| Class::of_block(BLOCK_HEADER_BYTES + length as usize))
}

/// The key words of items.
fn words(items: &[Item]) -> impl ExactSizeIterator<Item = u64> + Clone {
    items.iter().map(|item| item.word)
}

/// Brings the `middle` lowest items to the front. Returns the separator before the others; `None` when
/// one side is empty.
fn divide(items: &mut [Item], middle: usize) -> Option<Separator> {
    if middle == 0 || middle >= items.len() {
        return None;
    }
    let (left, first, _) = items.select_nth_unstable_by(middle, |a, b| a.key.cmp(&b.key));
    let below = left.iter().max_by(|a, b| a.key.cmp(&b.key))?;
    Some(Separator::between_keys(&below.key, &first.key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;
    use crate::tests::{session, start, tree};
    use crate::word::Value;
    use crate::{Tree, TreeOptions, Verb};
    use std::collections::BTreeSet;

    #[test]
    fn a_leaf_that_nobody_got_to_know_uses_up_no_generations() {
        let (_node, _session, tree) = tree();
        let mut client = tree.client().unwrap();
        let (mut blocks, mut children) = (BTreeSet::new(), BTreeSet::new());
        for round in 0..64u64 {
            let item = |number: u64| {
                let word = round << 8 | number;
                Item { key: Separator::new(&word.to_be_bytes()), word, value: ValueWord(word + 100) }
            };
            let items: Vec<Item> = (0..8).map(item).collect();
            let (block, child, written) = client.post_leaf(0, &items, Child::EMPTY).unwrap();
            client.verbs.done(written).unwrap();
            client.give_back(block).unwrap();
            blocks.insert((block.at.bits(), block.generation));
            children.insert(child.generation());
        }
        assert_eq!(blocks.len(), 1);
        assert!(children.len() > 1, "the leaves have several seeds: {children:?}");
    }

    /// A client dies after it entered the right half of a leaf. What the right half frees is used again, and the split is
    /// completed while somebody writes there.
    #[test]
    fn a_split_is_completed_although_records_of_its_right_half_were_freed() {
        let (_node, _session, tree) = tree();
        let mut client = tree.client().unwrap();
        let key = |number: u8| format!("key {number}").into_bytes();
        (0..8).for_each(|number| assert!(client.insert(&key(number), b"first").unwrap()));
        let parent = client.inner(b"", 1, true).unwrap().unwrap();
        let place = Place::new(&parent, 0).unwrap();
        let entered = client.within_read(|client| {
            let seen = client.see_leaf(place.child, parent.node, None)?.ok_or(Error::Stopped)?;
            let mut items = client.freeze_leaf(seen)?.ok_or(Error::Stopped)?.items;
            let separator = divide(&mut items, 4).ok_or(Error::Stopped)?;
            let right = items.split_off(4);
            let (_, child, written) = client.post_leaf(0, &right, Child::EMPTY)?;
            assert!(matches!(client.enter(&place, &separator, child, Some(written))?, Entered::Done(_)));
            Ok(right)
        });
        let record = |item: &Item| match item.value.value() {
            Some(Value::Record(at)) => (item.word, at),
            other => panic!("{other:?}"),
        };
        let records: Vec<(u64, Address)> = entered.unwrap().iter().map(record).collect();
        (4..8).for_each(|number| assert!(client.put(&key(number), b"again").unwrap()));
        // The old records are free after some rounds, and are taken after all blocks that this process has.
        let (other, mut used, mut rounds) = (block_image(b"another key", b"value"), Address::default(), 0);
        while client.within_read(|client| client.read_keys(&records)).is_ok() {
            rounds += 1;
            assert!(rounds < 400, "no record is used again");
            client.reclaim().unwrap();
            used = client.allocate(0, Class::of_block(other.len())).unwrap().at;
            client.write_block(used, &other).unwrap();
        }
        // And somebody is just writing there once more.
        let third = block_image(b"another key", b"third");
        client.write_block(used, &third[..BLOCK_HEADER_BYTES]).unwrap();
        let (mut writer, mut reads) = (tree.client().unwrap(), 0_u32);
        client.set_hook(Some(Box::new(move |verb| {
            reads += u32::from(verb == Verb::Read);
            if reads == 50 {
                writer.write_block(used, &third).unwrap();
            }
            true
        })));
        for number in 0..8 {
            let expected = if number < 4 { b"first" } else { b"again" };
            assert_eq!(client.get(&key(number)).unwrap().as_deref(), Some(&expected[..]), "{number}");
        }
        assert_eq!(client.verify().unwrap().keys, 8);
    }

    /// A leaf was the union with one whose memory was used again until its generation repeated, right of it.
    #[test]
    fn a_leaf_with_the_name_of_an_earlier_one_is_not_taken_for_merged() {
        let (_node, connector) = start(16 << 20);
        let small = TreeOptions { slots: 3, most_buckets: 3, fill_percent: 60, ..TreeOptions::default() };
        let tree = Tree::create(&[session(&connector)], "tree", small).unwrap();
        let mut client = tree.client().unwrap();
        client.bulk_load((0..60_u64).map(|number| (number.to_be_bytes(), b"12345678"))).unwrap();
        let parent = client.inner(b"", 1, true).unwrap().unwrap();
        let (left, right) = (parent.child(0).unwrap(), parent.child(1).unwrap());
        let merged = tree.memory.resolve(left.address(), 8).unwrap();
        client.write_words(0, merged, &[right.0]).unwrap();
        let of_left = |client: &mut TreeClient, number: u64| client.leaf(&Key::new(&number.to_be_bytes())) == Ok(left);
        let count = (0..60).filter(|&number| of_left(&mut client, number)).count() as u64;
        assert!((1..59).contains(&count));
        for number in 0..count {
            assert_eq!(client.delete(&number.to_be_bytes()), Ok(true));
        }
        for number in count..60 {
            assert!(client.get(&number.to_be_bytes()).unwrap().is_some(), "{number}");
        }
    }
}
