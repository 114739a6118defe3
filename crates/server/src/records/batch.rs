//! Changes that are written together.

use crate::records::changes::{Change, Changes};
use forebay::WriteBatch;

/// Changes that are written together, in the order in which they were added. A batch is for the engine that it was made
/// for ([`Records::batch`](crate::records::store::Records::batch)).
#[derive(Debug)]
pub enum Batch {
    /// For an LSM database.
    Lsm(WriteBatch),
    /// For a shared tree.
    Tree(Changes),
}

impl Batch {
    /// Sets a key.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        match self {
            Self::Lsm(batch) => _ = batch.put(key, value),
            Self::Tree(changes) => changes.add(Change::Put(key, value)),
        }
    }

    /// Removes a key.
    pub fn delete(&mut self, key: &[u8]) {
        match self {
            Self::Lsm(batch) => _ = batch.delete(key),
            Self::Tree(changes) => changes.add(Change::Delete(key)),
        }
    }

    /// Removes the keys from `from` on, and before `to`.
    pub fn delete_range(&mut self, from: &[u8], to: &[u8]) {
        match self {
            Self::Lsm(batch) => _ = batch.delete_range(from, to),
            Self::Tree(changes) => changes.add(Change::DeleteRange(from, to)),
        }
    }

    /// Whether nothing is written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Lsm(batch) => batch.is_empty(),
            Self::Tree(changes) => changes.count() == 0,
        }
    }
}
