//! What a database must hold: a sorted map, and the same in the past for each snapshot.

use forebay_base::KeyOrder;
use std::collections::BTreeMap;
use std::ops::Bound;

/// A sorted map in the order of its keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model(BTreeMap<Vec<u8>, Vec<u8>>);

impl Model {
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.0.insert(key.to_vec(), value.to_vec());
    }

    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.0.remove(key);
    }

    /// Removes the keys from `from` up to (not with) `to`, in `order`.
    pub(crate) fn delete_range(&mut self, from: &[u8], to: &[u8], order: KeyOrder) {
        let (low, high) = match order {
            KeyOrder::Bytewise => (Bound::Included(from), Bound::Excluded(to)),
            KeyOrder::ReverseBytewise => (Bound::Excluded(to), Bound::Included(from)),
        };
        if from != to {
            let doomed: Vec<Vec<u8>> = self.0.range::<[u8], _>((low, high)).map(|(key, _)| key.clone()).collect();
            doomed.iter().for_each(|key| self.delete(key));
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Vec<u8>> {
        self.0.get(key)
    }

    /// At most `limit` entries from `start` on, in `order`.
    pub(crate) fn from(&self, start: &[u8], order: KeyOrder, limit: usize) -> Vec<(&[u8], &[u8])> {
        match order {
            KeyOrder::Bytewise => self
                .0
                .range::<[u8], _>((Bound::Included(start), Bound::Unbounded))
                .take(limit)
                .map(|(key, value)| (&key[..], &value[..]))
                .collect(),
            KeyOrder::ReverseBytewise => self
                .0
                .range::<[u8], _>((Bound::Unbounded, Bound::Included(start)))
                .rev()
                .take(limit)
                .map(|(key, value)| (&key[..], &value[..]))
                .collect(),
        }
    }

    /// At most `limit` entries before and with `start`, backwards, in `order`.
    pub(crate) fn back_from(&self, start: &[u8], order: KeyOrder, limit: usize) -> Vec<(&[u8], &[u8])> {
        match order {
            KeyOrder::Bytewise => self.from(start, KeyOrder::ReverseBytewise, limit),
            KeyOrder::ReverseBytewise => self.from(start, KeyOrder::Bytewise, limit),
        }
    }

    /// All entries in `order`.
    pub(crate) fn entries(&self, order: KeyOrder) -> Vec<(&[u8], &[u8])> {
        let mut entries: Vec<_> = self.0.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        if order == KeyOrder::ReverseBytewise {
            entries.reverse();
        }
        entries
    }
}
