//! Iteration in the manner of Rust: ranges go in, an [`Iterator`] comes out.

use crate::{Error, Store};
use bytes::{Bytes, BytesMut};
use forebay_base::KeyOrder;
use forebay_engine::{Db, DbIterator, IterOptions, Snapshot};
use std::cmp::Ordering;
use std::iter::FusedIterator;
use std::ops::{Bound, RangeBounds};

impl Store {
    /// Returns all keys and values in order, as of now.
    ///
    /// ```
    /// # fn main() -> Result<(), forebay::Error> {
    /// # let store = forebay::Store::embedded(64 << 20, forebay::Options::default())?;
    /// store.put(b"a", b"1")?;
    /// store.put(b"b", b"2")?;
    /// for entry in store.entries()? {
    ///     let (key, value) = entry?;
    ///     println!("{key:?} = {value:?}");
    /// }
    /// assert_eq!(store.entries()?.count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unavailable` when a memory node is gone; `Closed`. The iterator gives the errors of reading, and ends at one.
    pub fn entries(&self) -> Result<Entries, Error> {
        self.range::<&[u8]>(..)
    }

    /// Returns keys and values within a range, in the database's order, as of now. A range that ends before it starts
    /// is empty.
    ///
    /// ```
    /// # fn main() -> Result<(), forebay::Error> {
    /// # let store = forebay::Store::embedded(64 << 20, forebay::Options::default())?;
    /// for key in ["apple", "banana", "cherry", "date"] {
    ///     store.put(key.as_bytes(), b"")?;
    /// }
    /// let keys = |entries: forebay::Entries| entries.map(|entry| Ok(entry?.0)).collect::<Result<Vec<_>, forebay::Error>>();
    /// assert_eq!(keys(store.range("b".."d")?)?, ["banana", "cherry"]);
    /// assert_eq!(keys(store.range("banana"..="date")?)?, ["banana", "cherry", "date"]);
    ///
    /// // From the other end, and from both.
    /// let last = store.range("b"..)?.next_back().transpose()?.map(|(key, _)| key);
    /// assert_eq!(last.as_deref(), Some(&b"date"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`Store::entries`].
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Entries, Error> {
        // Both ends of the iterator read at one moment.
        self.range_at(range, &self.snapshot())
    }

    /// As [`Store::range`], but as of a snapshot.
    ///
    /// # Errors
    /// See [`Store::entries`]; `Invalid` for a snapshot of another database.
    pub fn range_at<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>, snapshot: &Snapshot) -> Result<Entries, Error> {
        let bytes = |bound: Bound<&K>| bound.map(|key| Bytes::copy_from_slice(key.as_ref()));
        Entries::new(self, bytes(range.start_bound()), bytes(range.end_bound()), None, snapshot)
    }

    /// Returns keys that start with `prefix` and their values, in order, as of now.
    ///
    /// ```
    /// # fn main() -> Result<(), forebay::Error> {
    /// # let store = forebay::Store::embedded(64 << 20, forebay::Options::default())?;
    /// for key in ["user:1", "user:2", "visit:1"] {
    ///     store.put(key.as_bytes(), b"")?;
    /// }
    /// assert_eq!(store.prefix("user:")?.count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`Store::entries`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Entries, Error> {
        Entries::new(self, Bound::Unbounded, Bound::Unbounded, Some(prefix.as_ref()), &self.snapshot())
    }
}

/// Keys and values of a [`Store`] in order, from both ends, as of one moment. Key and value of an entry share one
/// allocation, and are cheap to clone. The iteration ends at an error.
///
/// The iterator keeps the memory of everything it iterates over. For reading without a copy, use [`Db::iter`].
#[derive(Debug)]
pub struct Entries {
    front: End,
    back: End,
    order: KeyOrder,
    start: Bound<Bytes>,
    end: Bound<Bytes>,
    is_over: bool,
}

/// One end of an iteration.
#[derive(Debug)]
struct End {
    iterator: DbIterator,
    /// The last key that this end gave.
    given: Option<Bytes>,
}

impl Entries {
    fn new(
        db: &Db,
        start: Bound<Bytes>,
        end: Bound<Bytes>,
        prefix: Option<&[u8]>,
        snapshot: &Snapshot,
    ) -> Result<Self, Error> {
        let order = db.key_order();
        let is_over = is_empty(order, &start, &end);
        // The engine's bounds include the first key and exclude the last: surplus keys that it returns are left out
        // here.
        let lower = match &start {
            Bound::Included(key) | Bound::Excluded(key) if !is_over => Some(&key[..]),
            _ => None,
        };
        let upper = match &end {
            Bound::Excluded(key) if !is_over => Some(&key[..]),
            _ => None,
        };
        let options = IterOptions { lower, upper, prefix, snapshot: Some(snapshot) };
        let end_of = || Ok::<_, Error>(End { iterator: db.iter_with(&options)?, given: None });
        Ok(Self { front: end_of()?, back: end_of()?, order, start, end, is_over })
    }

    fn is_inside(&self, key: &[u8]) -> bool {
        let is_after_start = match &self.start {
            Bound::Excluded(start) => self.order.compare(key, start) == Ordering::Greater,
            // The engine's bound.
            Bound::Included(_) | Bound::Unbounded => true,
        };
        let is_before_end = match &self.end {
            Bound::Included(end) => self.order.compare(key, end) != Ordering::Greater,
            Bound::Excluded(_) | Bound::Unbounded => true,
        };
        is_after_start && is_before_end
    }

    fn forward(&mut self) -> Result<Option<(Bytes, Bytes)>, Error> {
        let End { iterator, given } = &mut self.front;
        if given.is_some() {
            iterator.next()?;
        } else {
            iterator.seek_to_first()?;
            if let Bound::Excluded(start) = &self.start
                && iterator.valid()
                && iterator.key() == start
            {
                iterator.next()?;
            }
        }
        let iterator = &self.front.iterator;
        let is_met = self.back.given.as_ref().is_some_and(|given| self.order.compare(iterator.key(), given).is_ge());
        if !iterator.valid() || is_met || !self.is_inside(iterator.key()) {
            return Ok(None);
        }
        let entry = entry(iterator);
        self.front.given = Some(entry.0.clone());
        Ok(Some(entry))
    }

    fn backward(&mut self) -> Result<Option<(Bytes, Bytes)>, Error> {
        let End { iterator, given } = &mut self.back;
        match (&self.end, &given) {
            (_, Some(_)) => iterator.prev()?,
            (Bound::Included(end), None) => iterator.seek_for_prev(end)?,
            (_, None) => iterator.seek_to_last()?,
        }
        let iterator = &self.back.iterator;
        let is_met = self.front.given.as_ref().is_some_and(|given| self.order.compare(iterator.key(), given).is_le());
        if !iterator.valid() || is_met || !self.is_inside(iterator.key()) {
            return Ok(None);
        }
        let entry = entry(iterator);
        self.back.given = Some(entry.0.clone());
        Ok(Some(entry))
    }

    fn step(
        &mut self,
        step: impl FnOnce(&mut Self) -> Result<Option<(Bytes, Bytes)>, Error>,
    ) -> Option<Result<(Bytes, Bytes), Error>> {
        if self.is_over {
            return None;
        }
        let entry = step(self).transpose();
        self.is_over = !matches!(entry, Some(Ok(_)));
        entry
    }
}

impl Iterator for Entries {
    type Item = Result<(Bytes, Bytes), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(Self::forward)
    }
}

impl DoubleEndedIterator for Entries {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Self::backward)
    }
}

impl FusedIterator for Entries {}

/// Whether no key is within the bounds, so that the engine need not be asked.
fn is_empty(order: KeyOrder, start: &Bound<Bytes>, end: &Bound<Bytes>) -> bool {
    match (start, end) {
        (Bound::Included(start), Bound::Included(end)) => order.compare(start, end).is_gt(),
        (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => {
            order.compare(start, end).is_ge()
        }
        _ => false,
    }
}

/// A copy of the current entry.
fn entry(iterator: &DbIterator) -> (Bytes, Bytes) {
    let (key, value) = (iterator.key(), iterator.value());
    let mut both = BytesMut::with_capacity(key.len() + value.len());
    both.extend_from_slice(key);
    both.extend_from_slice(value);
    let value = both.split_off(key.len());
    (both.freeze(), value.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_engine::{Options, ShardBounds};

    type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

    /// A store with the keys "a" to "z", each with itself as its value, in three shards.
    fn letters(key_order: KeyOrder) -> Store {
        let mut bounds = vec![b"h".to_vec(), b"p".to_vec()];
        bounds.sort_by(|a, b| key_order.compare(a, b));
        let options = Options { key_order, shards: 3, shard_bounds: ShardBounds::Given(bounds), ..Options::default() };
        let store = Store::embedded(128 << 20, options).unwrap();
        (b'a'..=b'z').for_each(|key| store.put(&[key], &[key]).unwrap());
        store
    }

    /// All bounds with these keys: some in the store, some between its keys, some outside.
    fn all_bounds() -> Vec<Bounds> {
        let keys: [&[u8]; 7] = [b"", b"a", b"a0", b"g", b"h", b"z", b"zz"];
        let one = || {
            let included = keys.iter().map(|key| Bound::Included(key.to_vec()));
            let excluded = keys.iter().map(|key| Bound::Excluded(key.to_vec()));
            included.chain(excluded).chain([Bound::Unbounded])
        };
        one().flat_map(|start| one().map(move |end| (start.clone(), end))).collect()
    }

    /// Whether a key is within bounds, by their definition.
    fn is_within(order: KeyOrder, bounds: &Bounds, key: &[u8]) -> bool {
        let after = match &bounds.0 {
            Bound::Included(start) => order.compare(key, start).is_ge(),
            Bound::Excluded(start) => order.compare(key, start).is_gt(),
            Bound::Unbounded => true,
        };
        let before = match &bounds.1 {
            Bound::Included(end) => order.compare(key, end).is_le(),
            Bound::Excluded(end) => order.compare(key, end).is_lt(),
            Bound::Unbounded => true,
        };
        after && before
    }

    fn text(entries: impl Iterator<Item = Result<(Bytes, Bytes), Error>>) -> String {
        let keys = entries.map(|entry| {
            let (key, value) = entry.unwrap();
            assert_eq!(key, value);
            char::from(key[0])
        });
        keys.collect()
    }

    #[test]
    fn all_ranges_forward_backward_and_from_both_ends() {
        for order in [KeyOrder::Bytewise, KeyOrder::ReverseBytewise] {
            let store = letters(order);
            let mut keys: Vec<u8> = (b'a'..=b'z').collect();
            keys.sort_by(|a, b| order.compare(&[*a], &[*b]));
            for bounds in all_bounds() {
                let within = keys.iter().filter(|key| is_within(order, &bounds, &[**key]));
                let expected: String = within.map(|key| char::from(*key)).collect();
                let range = || store.range(bounds.clone()).unwrap();
                assert_eq!(text(range()), expected, "{order:?} {bounds:?}");
                let reversed: String = expected.chars().rev().collect();
                assert_eq!(text(range().rev()), reversed, "{order:?} {bounds:?}");
                let (mut both, mut from_front, mut from_back) = (range(), String::new(), String::new());
                loop {
                    let (front, back) = (both.next(), both.next_back());
                    from_front.push_str(&text(front.into_iter()));
                    from_back.insert_str(0, &text(back.into_iter()));
                    if from_front.len() + from_back.len() == expected.len() {
                        break;
                    }
                }
                assert_eq!(from_front + &from_back, expected, "{order:?} {bounds:?}");
                assert!(both.next().is_none() && both.next_back().is_none());
            }
        }
    }

    #[test]
    fn both_ends_read_at_one_moment() {
        let store = letters(KeyOrder::Bytewise);
        let snapshot = store.snapshot();
        let mut entries = store.range("x"..).unwrap();
        store.delete(b"x").unwrap();
        store.put(b"zz", b"zz").unwrap();
        assert_eq!(text(entries.next_back().into_iter()), "z");
        assert_eq!(text(entries), "xy");
        assert_eq!(text(store.range_at("x".., &snapshot).unwrap()), "xyz");
        assert_eq!(store.prefix("z").unwrap().count(), 2);
        assert_eq!(store.prefix("z").unwrap().rev().count(), 2);
        assert_eq!(store.prefix("none").unwrap().count(), 0);
    }

    #[test]
    fn an_error_ends_the_iteration() {
        let store = letters(KeyOrder::Bytewise);
        let mut entries = store.entries().unwrap();
        store.close().unwrap();
        // What was read before a database was closed may still be given.
        while let Some(Ok(_)) = entries.next() {}
        assert!(entries.next().is_none() && entries.next_back().is_none());
        assert!(store.entries().is_err() || store.entries().unwrap().count() <= 26);
    }
}
