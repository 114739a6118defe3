//! Which shard a key belongs to.
//!
//! ```text
//!   bounds            b0        b1        b2
//!   shards     [  0   )[   1    )[   2    )[   3 …
//! ```
//!
//! Shard `i` owns the keys from bound `i - 1` (included) to bound `i` (excluded), in the database's order. If there are
//! fewer bounds, the last shards own nothing. The first eight bytes of each bound are kept separately as a number, so a
//! search mostly compares numbers in one or two cache lines.

use crate::terms::{Error, Result};
use forebay_base::{KeyOrder, MAX_KEY_BYTES};
use std::ops::Range;

/// Bounds between shards. See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Routing {
    order: KeyOrder,
    prefixes: Vec<u64>,
    bounds: Vec<Vec<u8>>,
}

/// A range of keys, lower end included, upper end excluded. An absent end is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct KeyRange<'a> {
    pub(crate) lower: Option<&'a [u8]>,
    pub(crate) upper: Option<&'a [u8]>,
}

impl Routing {
    /// Checks bounds for `shards` shards.
    ///
    /// # Errors
    /// `Invalid` when they do not ascend, or when there are too many or one is too long.
    pub(crate) fn new(order: KeyOrder, shards: usize, bounds: Vec<Vec<u8>>) -> Result<Self> {
        if bounds.len() >= shards.max(1) {
            return Err(Error::invalid(format!(
                "{} bounds between {shards} shards: at most {} are possible",
                bounds.len(),
                shards.saturating_sub(1)
            )));
        }
        if let Some(long) = bounds.iter().find(|bound| bound.len() > MAX_KEY_BYTES) {
            let length = long.len();
            return Err(Error::invalid(format!(
                "a bound between shards has {length} bytes, at most {MAX_KEY_BYTES} are allowed"
            )));
        }
        if !bounds.is_sorted_by(|a, b| order.compare(a, b).is_lt()) {
            return Err(Error::invalid(format!(
                "the bounds between shards must ascend in the {} order, each only once",
                order.name()
            )));
        }
        Ok(Self { order, prefixes: bounds.iter().map(|bound| prefix(order, bound)).collect(), bounds })
    }

    /// Bounds that divide the values of the first two bytes evenly.
    pub(crate) fn uniform(order: KeyOrder, shards: usize) -> Vec<Vec<u8>> {
        let bound = |i: usize| (((i << 16) / shards.max(1)) as u16).to_be_bytes().to_vec();
        let mut bounds: Vec<_> = (1..shards).map(bound).collect();
        if order == KeyOrder::ReverseBytewise {
            bounds.reverse();
        }
        bounds
    }

    pub(crate) fn order(&self) -> KeyOrder {
        self.order
    }

    /// The same routing with another bound between shard `at` and the next one, where there may have been none.
    ///
    /// # Errors
    /// `Invalid` when one of the shards does not exist or owns nothing to divide; as [`Routing::new`].
    pub(crate) fn with_bound(&self, shards: usize, at: usize, bound: Vec<u8>) -> Result<Self> {
        let mut bounds = self.bounds.clone();
        let count = bounds.len();
        match bounds.get_mut(at) {
            Some(old) => *old = bound,
            None if at == count => bounds.push(bound),
            None => return Err(Error::invalid(format!("shard {at} owns no keys: there is no bound behind it"))),
        }
        Self::new(self.order, shards, bounds)
    }

    pub(crate) fn bounds(&self) -> &[Vec<u8>] {
        &self.bounds
    }

    /// The shard that owns `key`.
    #[inline]
    pub(crate) fn owner(&self, key: &[u8]) -> usize {
        let mine = prefix(self.order, key);
        let mut at = self.prefixes.partition_point(|&prefix| prefix < mine);
        while self.prefixes.get(at) == Some(&mine)
            && self.bounds.get(at).is_some_and(|bound| self.order.compare(bound, key).is_le())
        {
            at += 1;
        }
        at
    }

    /// The keys of a shard; `None` when it owns none.
    pub(crate) fn range(&self, shard: usize) -> Option<KeyRange<'_>> {
        let bound = |at: usize| self.bounds.get(at).map(Vec::as_slice);
        let lower = shard.checked_sub(1).map(bound);
        match lower {
            Some(None) => None,
            lower => Some(KeyRange { lower: lower.flatten(), upper: bound(shard) }),
        }
    }

    /// The shards that own keys of a range. Never empty.
    pub(crate) fn owners(&self, keys: KeyRange<'_>) -> Range<usize> {
        let first = keys.lower.map_or(0, |lower| self.owner(lower));
        // The last bound before `upper` is where the last shard begins.
        let last = keys.upper.map_or(self.bounds.len(), |upper| {
            self.bounds.partition_point(|bound| self.order.compare(bound, upper).is_lt())
        });
        first..last.max(first) + 1
    }
}

impl<'a> KeyRange<'a> {
    pub(crate) const fn is_everything(&self) -> bool {
        self.lower.is_none() && self.upper.is_none()
    }

    pub(crate) fn contains(self, order: KeyOrder, key: &[u8]) -> bool {
        self.lower.is_none_or(|lower| order.compare(lower, key).is_le())
            && self.upper.is_none_or(|upper| order.compare(key, upper).is_lt())
    }

    /// The keys in both ranges; `None` when there are none.
    pub(crate) fn intersection(self, order: KeyOrder, other: Self) -> Option<Self> {
        let later = |a: &'a [u8], b: &'a [u8]| if order.compare(a, b).is_lt() { b } else { a };
        let earlier = |a: &'a [u8], b: &'a [u8]| if order.compare(a, b).is_lt() { a } else { b };
        let lower = either(self.lower, other.lower, later);
        let upper = either(self.upper, other.upper, earlier);
        let is_empty = lower.zip(upper).is_some_and(|(lower, upper)| order.compare(lower, upper).is_ge());
        (!is_empty).then_some(Self { lower, upper })
    }
}

fn either<'a>(
    a: Option<&'a [u8]>,
    b: Option<&'a [u8]>,
    both: impl Fn(&'a [u8], &'a [u8]) -> &'a [u8],
) -> Option<&'a [u8]> {
    match (a, b) {
        (Some(a), Some(b)) => Some(both(a, b)),
        (a, b) => a.or(b),
    }
}

/// The first eight bytes of a key as a number that ascends in `order`. If two numbers are equal, compare the keys.
#[inline]
fn prefix(order: KeyOrder, key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = key.len().min(8);
    if let (Some(to), Some(from)) = (bytes.get_mut(..length), key.get(..length)) {
        to.copy_from_slice(from);
    }
    match order {
        KeyOrder::Bytewise => u64::from_be_bytes(bytes),
        KeyOrder::ReverseBytewise => !u64::from_be_bytes(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn routing(order: KeyOrder, mut bounds: Vec<Vec<u8>>) -> Routing {
        bounds.sort_by(|a, b| order.compare(a, b));
        bounds.dedup();
        Routing::new(order, bounds.len() + 3, bounds).unwrap()
    }

    fn short_key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0u8, 1, 255]), 0..11)
    }

    proptest! {
        #[test]
        fn a_key_is_in_the_range_of_its_owner_only(
            bounds in prop::collection::vec(short_key(), 0..8), key in short_key(), other in short_key(), reverse: bool,
        ) {
            let order = if reverse { KeyOrder::ReverseBytewise } else { KeyOrder::Bytewise };
            let routing = routing(order, bounds);
            let owner = routing.owner(&key);
            for shard in 0..routing.bounds().len() + 3 {
                let is_in = routing.range(shard).is_some_and(|range| range.contains(order, &key));
                prop_assert_eq!(is_in, shard == owner);
            }
            let (lower, upper) = if order.compare(&key, &other).is_le() { (&key, &other) } else { (&other, &key) };
            let keys = KeyRange { lower: Some(lower), upper: Some(upper) };
            let owners = routing.owners(keys);
            prop_assert!(owners.contains(&routing.owner(lower)));
            for shard in 0..=routing.bounds().len() {
                let range = routing.range(shard).unwrap();
                let overlaps = lower != upper && range.intersection(order, keys).is_some();
                prop_assert!(!overlaps || owners.contains(&shard));
                prop_assert!(overlaps || !owners.contains(&shard) || lower == upper);
            }
        }
    }

    #[test]
    fn bounds_are_checked() {
        let new = |shards, bounds: &[&[u8]]| {
            Routing::new(KeyOrder::Bytewise, shards, bounds.iter().map(|bound| bound.to_vec()).collect())
        };
        assert!(new(3, &[b"a", b"b"]).is_ok() && new(3, &[]).is_ok());
        assert!(new(2, &[b"a", b"b"]).is_err() && new(3, &[b"b", b"a"]).is_err() && new(3, &[b"a", b"a"]).is_err());
        assert!(new(2, &[&[0; MAX_KEY_BYTES + 1]]).is_err());
    }

    #[test]
    fn uniform_bounds_divide_evenly() {
        for order in [KeyOrder::Bytewise, KeyOrder::ReverseBytewise] {
            for shards in [1, 2, 3, 8, 256] {
                let routing = Routing::new(order, shards, Routing::uniform(order, shards)).unwrap();
                let mut counts = vec![0; shards];
                (0..=u16::MAX).for_each(|key| counts[routing.owner(&key.to_be_bytes())] += 1);
                let most = counts.iter().max().unwrap();
                assert!(counts.iter().all(|count| most - count <= 2), "{counts:?}");
            }
        }
    }
}
