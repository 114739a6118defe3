//! The ends of a level's tables, side by side. A search for the table that may hold a key reads a few cache lines that
//! stay near, and no tables, each of which would take several cache misses.
//!
//! ```text
//!  shared    common prefix of all first and last keys of the level
//!  first     a word per table: the next eight bytes of its smallest key (`KeyOrder::prefix`)
//!  last      the same of its largest key
//! ```
//!
//! Equal words decide nothing: then the keys themselves are compared.

use forebay_base::KeyOrder;
use std::cmp::Ordering;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    order: KeyOrder,
    shared: Vec<u8>,
    first: Vec<u64>,
    last: Vec<u64>,
}

/// The tables that the fences describe, by their places.
pub(crate) trait Tables {
    /// Whether a table may have an entry for `user_key` or for a later key.
    fn ends_behind(&self, at: usize, user_key: &[u8]) -> bool;
    /// Whether a table may have an entry for `user_key`.
    fn may_contain(&self, at: usize, user_key: &[u8]) -> bool;
}

impl Fences {
    /// Fences of tables with these smallest and largest keys. The tables are in key order and do not overlap.
    pub(crate) fn of(order: KeyOrder, ends: &[[&[u8]; 2]]) -> Self {
        let mut all = ends.iter().flatten();
        let mut shared: &[u8] = all.next().copied().unwrap_or_default();
        for key in all {
            let equal = shared.iter().zip(*key).take_while(|(a, b)| a == b).count();
            shared = shared.get(..equal).unwrap_or_default();
        }
        let word = |key: &[u8]| order.prefix(key.get(shared.len()..).unwrap_or_default());
        let first = ends.iter().map(|[first, _]| word(first)).collect();
        let last = ends.iter().map(|[_, last]| word(last)).collect();
        Self { order, shared: shared.to_vec(), first, last }
    }

    /// The place of the one table that may hold `user_key`.
    #[inline]
    pub(crate) fn find(&self, tables: &impl Tables, user_key: &[u8]) -> Option<usize> {
        let rest = match self.shared.as_slice() {
            // Comparing no bytes would take longest. An empty vector has no memory, libc loads from there under a mask,
            // and processors are slow at that where no page is mapped.
            [] => user_key,
            shared => match user_key.strip_prefix(shared) {
                Some(rest) => rest,
                None => return self.find_by_key(tables, user_key),
            },
        };
        let word = self.order.prefix(rest);
        let mut at = self.last.partition_point(|&last| last < word);
        while *self.last.get(at)? == word && !tables.ends_behind(at, user_key) {
            at += 1;
        }
        match self.first.get(at)?.cmp(&word) {
            Ordering::Less => Some(at),
            Ordering::Equal => tables.may_contain(at, user_key).then_some(at),
            Ordering::Greater => None,
        }
    }

    /// The same for a key that does not share the common prefix.
    #[cold]
    fn find_by_key(&self, tables: &impl Tables, user_key: &[u8]) -> Option<usize> {
        let at = (0..self.last.len()).find(|&at| tables.ends_behind(at, user_key))?;
        tables.may_contain(at, user_key).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Tables that hold their smallest and largest keys and everything between.
    struct Ends<'a>(KeyOrder, &'a [[&'a [u8]; 2]]);

    impl Tables for Ends<'_> {
        fn ends_behind(&self, at: usize, user_key: &[u8]) -> bool {
            self.0.compare(user_key, self.1[at][1]).is_le()
        }

        fn may_contain(&self, at: usize, user_key: &[u8]) -> bool {
            self.0.compare(self.1[at][0], user_key).is_le() && self.ends_behind(at, user_key)
        }
    }

    #[test]
    fn a_level_without_tables_holds_nothing() {
        let tables = Ends(KeyOrder::Bytewise, &[]);
        assert_eq!(Fences::of(tables.0, tables.1).find(&tables, b"key"), None);
        assert_eq!(Fences::default().find(&tables, b""), None);
    }

    proptest! {
        /// Keys of few letters and up to three words, so that much is shared and many words are equal.
        #[test]
        fn the_same_table_is_found_as_by_keys(
            mut keys in prop::collection::btree_set("(aaaaaaaa|b|\u{0}){0,3}[ab\u{0}]{0,3}", 1..24),
            shared in "[ab]{0,12}",
            asked in prop::collection::vec("(aaaaaaaa|b|\u{0}){0,3}[ab\u{0}]{0,3}", 0..24),
            reversed: bool,
        ) {
            if keys.len() % 2 == 1 {
                keys.pop_last();
            }
            let order = if reversed { KeyOrder::ReverseBytewise } else { KeyOrder::Bytewise };
            let with_shared = |key: &String| [shared.as_bytes(), key.as_bytes()].concat();
            let mut keys: Vec<_> = keys.iter().map(with_shared).collect();
            keys.sort_by(|a, b| order.compare(a, b));
            let ends: Vec<_> = keys.chunks_exact(2).map(|ends| [ends[0].as_slice(), ends[1].as_slice()]).collect();
            let tables = Ends(order, &ends);
            let fences = Fences::of(order, &ends);
            let others = asked.iter().map(|key| key.clone().into_bytes());
            for key in asked.iter().map(with_shared).chain(others).chain(keys.iter().cloned()) {
                let expected = (0..ends.len()).find(|&at| tables.may_contain(at, &key));
                prop_assert_eq!(fences.find(&tables, &key), expected, "{:?} in {:?}", key, ends);
            }
        }
    }
}
