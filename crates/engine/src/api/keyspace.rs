//! One keyspace: a database's calls, on keys that begin with its number.

use crate::api::db::Db;
use crate::api::db_iterator::{DbIterator, IterOptions};
use crate::api::snapshot::Snapshot;
use crate::terms::{Entry, Result, Stamp};
use crate::write::batch::WriteBatch;
use std::sync::Arc;

/// Bytes at the front of each key of a keyspace.
pub(crate) const PREFIX_BYTES: usize = 4;

/// A named set of keys of a database ([`Keyspaces`](crate::Keyspaces)). Its keys are independent of those of other
/// keyspaces, and up to 4 bytes shorter than 64 KiB. A batch may write to several ([`WriteBatch::within`]), and a snapshot of
/// the database is one of all keyspaces. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Keyspace {
    db: Db,
    name: Arc<str>,
    prefix: [u8; PREFIX_BYTES],
}

impl Keyspace {
    /// The keyspace whose keys begin with `prefix`.
    pub(crate) fn new(db: &Db, name: &str, prefix: [u8; PREFIX_BYTES]) -> Self {
        Self { db: db.clone(), name: name.into(), prefix }
    }

    /// The name by which the keyspace was created or found.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The database.
    #[must_use]
    pub const fn db(&self) -> &Db {
        &self.db
    }

    /// The database's key for a key of the keyspace, to place a bound between shards.
    #[must_use]
    pub fn key(&self, key: &[u8]) -> Vec<u8> {
        [&self.prefix[..], key].concat()
    }

    /// As [`Db::put`].
    ///
    /// # Errors
    /// See [`Db::put`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.db.put(&self.key(key), value)
    }

    /// As [`Db::put_expiring`].
    ///
    /// # Errors
    /// See [`Db::put`].
    pub fn put_expiring(&self, key: &[u8], value: &[u8], expiry_ms: u64) -> Result<()> {
        self.db.put_expiring(&self.key(key), value, expiry_ms)
    }

    /// As [`Db::merge`].
    ///
    /// # Errors
    /// See [`Db::merge`].
    pub fn merge(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        self.db.merge(&self.key(key), operand)
    }

    /// As [`Db::delete`].
    ///
    /// # Errors
    /// See [`Db::put`].
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.db.delete(&self.key(key))
    }

    /// As [`Db::delete_range`].
    ///
    /// # Errors
    /// See [`Db::delete_range`].
    pub fn delete_range(&self, from: &[u8], to: &[u8]) -> Result<()> {
        self.db.delete_range(&self.key(from), &self.key(to))
    }

    /// As [`Db::get`].
    ///
    /// # Errors
    /// See [`Db::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.db.get(&self.key(key))
    }

    /// As [`Db::get_at`].
    ///
    /// # Errors
    /// See [`Db::get`].
    pub fn get_at(&self, key: &[u8], snapshot: &Snapshot) -> Result<Option<Vec<u8>>> {
        self.db.get_at(&self.key(key), snapshot)
    }

    /// As [`Db::get_with`].
    ///
    /// # Errors
    /// See [`Db::get`].
    pub fn get_with<T>(
        &self,
        key: &[u8],
        snapshot: Option<&Snapshot>,
        found: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        self.db.get_with(&self.key(key), snapshot, found)
    }

    /// As [`Db::get_entry`].
    ///
    /// # Errors
    /// See [`Db::get`].
    pub fn get_entry(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.db.get_entry(&self.key(key))
    }

    /// As [`Db::get_entry_at`].
    ///
    /// # Errors
    /// See [`Db::get`].
    pub fn get_entry_at(&self, key: &[u8], snapshot: &Snapshot) -> Result<Option<Entry>> {
        self.db.get_entry_at(&self.key(key), snapshot)
    }

    /// As [`Db::multi_get`].
    ///
    /// # Errors
    /// See [`Db::get`].
    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let keys: Vec<_> = keys.iter().map(|key| self.key(key)).collect();
        self.db.multi_get(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    /// As [`Db::iter_with`], over keys of the keyspace.
    ///
    /// # Errors
    /// See [`Db::iter`].
    pub fn iter_with(&self, options: &IterOptions<'_>) -> Result<KeyspaceIterator> {
        let (lower, upper) = (options.lower.map(|key| self.key(key)), options.upper.map(|key| self.key(key)));
        let prefix = self.key(options.prefix.unwrap_or_default());
        let (lower, upper) = (lower.as_deref(), upper.as_deref());
        let inner =
            self.db.iter_with(&IterOptions { lower, upper, prefix: Some(&prefix), snapshot: options.snapshot })?;
        Ok(KeyspaceIterator { inner, prefix: self.prefix })
    }

    /// An iterator over all keys of the keyspace as of now.
    ///
    /// # Errors
    /// See [`Db::iter`].
    pub fn iter(&self) -> Result<KeyspaceIterator> {
        self.iter_with(&IterOptions::default())
    }
}

/// Iterates over the keys of a keyspace. As [`DbIterator`].
#[derive(Debug)]
pub struct KeyspaceIterator {
    inner: DbIterator,
    prefix: [u8; PREFIX_BYTES],
}

impl KeyspaceIterator {
    fn full(&self, key: &[u8]) -> Vec<u8> {
        [&self.prefix[..], key].concat()
    }

    /// Goes to the first key.
    ///
    /// # Errors
    /// See [`DbIterator::seek_to_first`].
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.inner.seek_to_first()
    }

    /// Goes to the last key.
    ///
    /// # Errors
    /// See [`DbIterator::seek_to_first`].
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.inner.seek_to_last()
    }

    /// Goes to the first key that is not before `key`.
    ///
    /// # Errors
    /// See [`DbIterator::seek_to_first`].
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.inner.seek(&self.full(key))
    }

    /// Goes to the last key that is not after `key`.
    ///
    /// # Errors
    /// See [`DbIterator::seek_to_first`].
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.inner.seek_for_prev(&self.full(key))
    }

    /// Whether the iterator is at a key.
    #[inline]
    #[must_use]
    pub fn valid(&self) -> bool {
        self.inner.valid()
    }

    /// The current key, as the keyspace's users know it; empty when there is no position.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.inner.key().get(PREFIX_BYTES..).unwrap_or_default()
    }

    /// The current value; empty when there is no position.
    #[inline]
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.inner.value()
    }

    /// When the current key expires.
    #[must_use]
    pub fn expiry_ms(&self) -> Option<u64> {
        self.inner.expiry_ms()
    }

    /// Goes to the next key.
    ///
    /// # Errors
    /// See [`DbIterator::next`].
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        self.inner.next()
    }

    /// Goes to the previous key.
    ///
    /// # Errors
    /// See [`DbIterator::prev`].
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        self.inner.prev()
    }
}

impl WriteBatch {
    /// Adds writes and conditions on keys of a keyspace.
    pub fn within<'b>(&'b mut self, keyspace: &'b Keyspace) -> KeyspaceBatch<'b> {
        KeyspaceBatch { batch: self, keyspace }
    }
}

/// Adds writes and conditions on a keyspace to a batch ([`WriteBatch::within`]). Its calls are those of [`WriteBatch`].
#[derive(Debug)]
pub struct KeyspaceBatch<'b> {
    batch: &'b mut WriteBatch,
    keyspace: &'b Keyspace,
}

impl KeyspaceBatch<'_> {
    /// As [`WriteBatch::put`].
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> &mut Self {
        self.batch.put(&self.keyspace.key(key), value);
        self
    }

    /// As [`WriteBatch::put_expiring`].
    pub fn put_expiring(&mut self, key: &[u8], value: &[u8], expiry_ms: u64) -> &mut Self {
        self.batch.put_expiring(&self.keyspace.key(key), value, expiry_ms);
        self
    }

    /// As [`WriteBatch::merge`].
    pub fn merge(&mut self, key: &[u8], operand: &[u8]) -> &mut Self {
        self.batch.merge(&self.keyspace.key(key), operand);
        self
    }

    /// As [`WriteBatch::delete`].
    pub fn delete(&mut self, key: &[u8]) -> &mut Self {
        self.batch.delete(&self.keyspace.key(key));
        self
    }

    /// As [`WriteBatch::delete_range`].
    pub fn delete_range(&mut self, from: &[u8], to: &[u8]) -> &mut Self {
        self.batch.delete_range(&self.keyspace.key(from), &self.keyspace.key(to));
        self
    }

    /// As [`WriteBatch::require_absent`].
    pub fn require_absent(&mut self, key: &[u8]) -> &mut Self {
        self.batch.require_absent(&self.keyspace.key(key));
        self
    }

    /// As [`WriteBatch::require_present`].
    pub fn require_present(&mut self, key: &[u8]) -> &mut Self {
        self.batch.require_present(&self.keyspace.key(key));
        self
    }

    /// As [`WriteBatch::require_stamp`].
    pub fn require_stamp(&mut self, key: &[u8], stamp: Stamp) -> &mut Self {
        self.batch.require_stamp(&self.keyspace.key(key), stamp);
        self
    }

    /// As [`WriteBatch::require_unchanged`].
    pub fn require_unchanged(&mut self, key: &[u8], snapshot: &Snapshot) -> &mut Self {
        self.batch.require_unchanged(&self.keyspace.key(key), snapshot);
        self
    }
}
