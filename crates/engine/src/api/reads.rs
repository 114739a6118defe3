//! Reads of keys.

use crate::api::db::Db;
use crate::api::snapshot::Snapshot;
use crate::terms::{Entry, Result, Stamp};

impl Db {
    /// The value of `key`; `None` when it has none.
    ///
    /// # Errors
    /// `Unavailable` when the memory node is gone; `Corrupt` when a checksum does not match; `Closed`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_with(key, None, <[u8]>::to_vec)
    }

    /// The value of `key` as of a snapshot.
    ///
    /// # Errors
    /// See [`Db::get`].
    pub fn get_at(&self, key: &[u8], snapshot: &Snapshot) -> Result<Option<Vec<u8>>> {
        self.get_with(key, Some(snapshot), <[u8]>::to_vec)
    }

    /// Passes the value of `key`, as of a snapshot or now, to `found` without copying it. `found` should be short, and
    /// must not call the database: while it runs, it holds scarce resources that the read needs.
    ///
    /// # Errors
    /// See [`Db::get`].
    pub fn get_with<T>(
        &self,
        key: &[u8],
        snapshot: Option<&Snapshot>,
        found: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        let moment = snapshot.map(|snapshot| snapshot.moment_of(self.router())).transpose()?;
        self.router().get(key, moment, |_, record| found(record.value))
    }

    /// The value of `key` with its stamp and its expiry; `None` when it has none.
    ///
    /// # Errors
    /// See [`Db::get`].
    pub fn get_entry(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.entry(key, None)
    }

    /// The same as of a snapshot.
    ///
    /// # Errors
    /// See [`Db::get`].
    pub fn get_entry_at(&self, key: &[u8], snapshot: &Snapshot) -> Result<Option<Entry>> {
        self.entry(key, Some(snapshot))
    }

    fn entry(&self, key: &[u8], snapshot: Option<&Snapshot>) -> Result<Option<Entry>> {
        let moment = snapshot.map(|snapshot| snapshot.moment_of(self.router())).transpose()?;
        self.router().get(key, moment, |shard, record| Entry {
            value: record.value.to_vec(),
            stamp: Stamp { shard: shard as u32, sequence: record.tag.sequence() },
            expiry_ms: record.expiry_ms,
        })
    }

    /// The values of `keys`, all as of the same moment, in few round trips.
    ///
    /// # Errors
    /// See [`Db::get`].
    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.multi_get_within(keys, usize::MAX)
    }

    /// The values of the first of `keys`, all as of the same moment: of as many keys as have values of at most
    /// `budget_bytes` together, and at least of the first key. Nothing is read for other keys, beyond what it takes to
    /// know the lengths of their records.
    ///
    /// Records count, which are slightly longer than values. A deletion, an expired value, or a record of another key
    /// that has to be read counts, too. So a call may answer fewer keys than would fit.
    ///
    /// # Errors
    /// See [`Db::get`].
    pub fn multi_get_within(&self, keys: &[&[u8]], budget_bytes: usize) -> Result<Vec<Option<Vec<u8>>>> {
        self.router().multi_get(keys, None, budget_bytes)
    }

    /// The values of `keys` as of a snapshot.
    ///
    /// # Errors
    /// See [`Db::get`].
    pub fn multi_get_at(&self, keys: &[&[u8]], snapshot: &Snapshot) -> Result<Vec<Option<Vec<u8>>>> {
        self.router().multi_get(keys, Some(snapshot.moment_of(self.router())?), usize::MAX)
    }
}
