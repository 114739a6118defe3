//! The keys that an iterator covers.
//!
//! A bound is a place between entries, given as an internal key: before or after all entries of a
//! user key. So one kind of bound serves `lower`, `upper` and `prefix` in both key orders.

use crate::terms::routing::{KeyRange, Routing};
use forebay_base::{InternalKey, KeyOrder, Kind, SequenceNumber, Tag};
use forebay_table::{Direction, OwnedKey, SparseIndex};
use std::cmp::Ordering;
use std::ops::Range;

/// The place before all entries of `user_key`.
pub(crate) const fn before(user_key: &[u8]) -> InternalKey<'_> {
    InternalKey { user_key, tag: Tag::MAX }
}

/// The place after all entries of `user_key`: no write has the number zero.
pub(crate) const fn after(user_key: &[u8]) -> InternalKey<'_> {
    InternalKey { user_key, tag: Tag::new(SequenceNumber::ZERO, Kind::Delete, false) }
}

/// The places between which an iterator's entries lie. An absent place is no bound.
#[derive(Debug)]
pub(crate) struct Bounds {
    order: KeyOrder,
    lower: Option<OwnedKey>,
    upper: Option<OwnedKey>,
}

impl Bounds {
    /// The bounds of `keys` and of a prefix.
    pub(crate) fn new(order: KeyOrder, keys: KeyRange<'_>, prefix: Option<&[u8]>) -> Self {
        let end = prefix.and_then(behind_prefix);
        // All keys with the prefix lie from `prefix` up to `end`, bytewise.
        let (first, last) = match order {
            KeyOrder::Bytewise => (prefix.map(before), end.as_deref().map(before)),
            KeyOrder::ReverseBytewise => (end.as_deref().map(after), prefix.map(after)),
        };
        let lower = further(order, Direction::Forward, keys.lower.map(before), first);
        let upper = further(order, Direction::Backward, keys.upper.map(before), last);
        Self { order, lower: lower.map(OwnedKey::from), upper: upper.map(OwnedKey::from) }
    }

    /// The intersection of these bounds with those of a shard.
    pub(crate) fn within(&self, keys: KeyRange<'_>) -> Self {
        let (lower, upper) = (self.lower.as_ref().map(OwnedKey::as_key), self.upper.as_ref().map(OwnedKey::as_key));
        let lower = further(self.order, Direction::Forward, lower, keys.lower.map(before));
        let upper = further(self.order, Direction::Backward, upper, keys.upper.map(before));
        Self { order: self.order, lower: lower.map(OwnedKey::from), upper: upper.map(OwnedKey::from) }
    }

    /// The shards that may hold entries within the bounds. Never empty.
    pub(crate) fn shards(&self, routing: &Routing) -> Range<usize> {
        let lower = self.lower.as_ref().map(|lower| lower.as_key().user_key);
        let upper = self.upper.as_ref().map(OwnedKey::as_key);
        match upper {
            // A place after all entries of a key: the key's owner is the last shard.
            Some(upper) if upper.tag != Tag::MAX => {
                let first = lower.map_or(0, |lower| routing.owner(lower));
                first..routing.owner(upper.user_key).max(first) + 1
            }
            upper => routing.owners(KeyRange { lower, upper: upper.map(|upper| upper.user_key) }),
        }
    }

    pub(crate) const fn order(&self) -> KeyOrder {
        self.order
    }

    /// Where an iteration in `direction` starts: at `target`, or else as early as the bounds allow.
    pub(crate) fn start<'k>(
        &'k self,
        direction: Direction,
        target: Option<InternalKey<'k>>,
    ) -> Option<InternalKey<'k>> {
        let bound = match direction {
            Direction::Forward => &self.lower,
            Direction::Backward => &self.upper,
        };
        further(self.order, direction, target, bound.as_ref().map(OwnedKey::as_key))
    }

    /// Whether `key` lies beyond the bounds for an iteration in `direction`.
    #[inline]
    pub(crate) fn is_left(&self, direction: Direction, key: InternalKey<'_>) -> bool {
        match direction {
            Direction::Forward => !self.ends_after(key),
            Direction::Backward => !self.starts_before(key),
        }
    }

    fn starts_before(&self, key: InternalKey<'_>) -> bool {
        self.lower.as_ref().is_none_or(|lower| self.order.compare_internal(lower.as_key(), key) != Ordering::Greater)
    }

    fn ends_after(&self, key: InternalKey<'_>) -> bool {
        self.upper.as_ref().is_none_or(|upper| self.order.compare_internal(key, upper.as_key()) == Ordering::Less)
    }

    /// Whether entries from `smallest` to `largest` may lie within the bounds.
    pub(crate) fn overlap(&self, smallest: InternalKey<'_>, largest: InternalKey<'_>) -> bool {
        self.ends_after(smallest) && self.starts_before(largest)
    }

    /// The index blocks that may hold entries within the bounds.
    pub(crate) fn blocks(&self, index: &SparseIndex) -> Range<usize> {
        let seek = |bound: &OwnedKey| index.seek(self.order, bound.as_key());
        let start = self.lower.as_ref().map_or(0, seek);
        let end = self.upper.as_ref().map_or(usize::MAX, |upper| seek(upper).saturating_add(1));
        start..end.min(index.block_count()).max(start)
    }
}

/// The one of two starting places that is further on in `direction`.
fn further<'k>(
    order: KeyOrder,
    direction: Direction,
    a: Option<InternalKey<'k>>,
    b: Option<InternalKey<'k>>,
) -> Option<InternalKey<'k>> {
    let (Some(left), Some(right)) = (a, b) else { return a.or(b) };
    let is_later = order.compare_internal(left, right) == Ordering::Greater;
    Some(if is_later == (direction == Direction::Forward) { left } else { right })
}

/// The first key, bytewise, after all keys that start with `prefix`; `None` if there is none.
fn behind_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut end = prefix.get(..=kept)?.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::SequenceNumber;
    use proptest::prelude::*;

    fn entry(user_key: &[u8]) -> InternalKey<'_> {
        InternalKey { user_key, tag: Tag::new(SequenceNumber(7), Kind::Put, false) }
    }

    proptest! {
        #[test]
        fn bounds_and_prefix_select_keys_in_both_orders(
            key in prop::collection::vec(253u8..=255, 0..5),
            prefix in prop::option::of(prop::collection::vec(253u8..=255, 0..4)),
            lower in prop::option::of(prop::collection::vec(253u8..=255, 0..4)),
            upper in prop::option::of(prop::collection::vec(253u8..=255, 0..4)),
            reverse: bool,
        ) {
            let order = if reverse { KeyOrder::ReverseBytewise } else { KeyOrder::Bytewise };
            let keys = KeyRange { lower: lower.as_deref(), upper: upper.as_deref() };
            let bounds = Bounds::new(order, keys, prefix.as_deref());
            let expected = prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix))
                && lower.as_ref().is_none_or(|lower| order.compare(lower, &key).is_le())
                && upper.as_ref().is_none_or(|upper| order.compare(&key, upper).is_lt());
            prop_assert_eq!(bounds.overlap(entry(&key), entry(&key)), expected);
            let left = bounds.is_left(Direction::Forward, entry(&key)) || bounds.is_left(Direction::Backward, entry(&key));
            prop_assert_eq!(left, !expected);
        }
    }

    #[test]
    fn an_iteration_starts_within_the_bounds() {
        let keys = KeyRange { lower: Some(b"c"), upper: Some(b"f") };
        let bounds = Bounds::new(KeyOrder::Bytewise, keys, None);
        let start =
            |direction, key: &'static [u8]| bounds.start(direction, Some(before(key))).map(|key| key.user_key.to_vec());
        assert_eq!(start(Direction::Forward, b"a").unwrap(), b"c");
        assert_eq!(start(Direction::Forward, b"d").unwrap(), b"d");
        assert_eq!(start(Direction::Backward, b"z").unwrap(), b"f");
        assert_eq!(start(Direction::Backward, b"d").unwrap(), b"d");
        assert_eq!(bounds.start(Direction::Forward, None), Some(before(b"c")));
    }
}
