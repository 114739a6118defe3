//! Keyspaces: named sets of keys of one database (`docs/formats/keyspaces.md`).
//!
//! A keyspace has a number, which is never used again, and its keys begin with it:
//!
//! ```text
//!  key      u24 big-endian   number of the keyspace, from 1 on
//!           u8               zero
//!                            the user's key
//!
//!  catalogue, which is keyspace 0
//!  "f"                 →  u8 format, 1
//!  "i"                 →  u32 number of the next keyspace
//!  "n", name           →  u32 number of the keyspace with this name
//!  "d", u32            →  empty: the keyspace with this number was dropped, and may have been written to since
//!  "r", client         →  entry of the table of requests (`docs/formats/requests.md`)
//! ```
//!
//! Integers are little-endian, except the number at the front. No key has a byte other than zero after the number. So a
//! range that deletes a keyspace has ends that are no keys, in either order of keys.
//!
//! All of these are ordinary keys and values: they are flushed, moved and recovered like others. Changes of the
//! catalogue are conditional batches, so two changes do not mix.
//!
//! # After a crash
//!
//! Each shard loses what it has neither flushed nor logged, independently of the others. A keyspace's keys may be in a
//! different shard from the catalogue, and the catalogue in several. So what later steps build on is made durable
//! first, as far as the database can make it so:
//!
//! | before | this is durable |
//! |---|---|
//! | a number gets a name | the next number is a later one, and nothing is left of an earlier keyspace with this number
//! |
//! | somebody gets the new keyspace | its name |
//! | a dropped number is forgotten | the deletion of its range |

use crate::api::db::Db;
use crate::api::db_iterator::IterOptions;
use crate::api::keyspace::{Keyspace, PREFIX_BYTES};
use crate::api::requests::Requests;
use crate::terms::planted::{Bug, planted};
use crate::terms::{Error, Result};
use crate::write::batch::WriteBatch;
use forebay_base::{ErrorKind, KeyOrder, Reader};

/// The catalogue's number.
const CATALOGUE: u32 = 0;
const FORMAT: u8 = 1;
/// The kind of the catalogue's key that holds the format.
const FORMAT_KIND: u8 = b'f';
/// Numbers have 24 bits.
const MAX_NUMBER: u32 = (1 << 24) - 1;
/// Maximum length of a name in bytes.
const MAX_NAME_BYTES: usize = 255;
/// How many ranges one batch deletes.
const MAX_RANGES: usize = 1000;

/// The keyspaces of a database. All keys of such a database are in keyspaces. Cheap to clone.
///
/// Keys of a keyspace are adjacent. So divide a database with several shards within keyspaces ([`Keyspace::key`],
/// [`ShardBounds::Given`](crate::ShardBounds::Given)), or let bounds move by themselves
/// ([`Options::rebalance_interval`](crate::Options::rebalance_interval)).
#[derive(Debug, Clone)]
pub struct Keyspaces {
    db: Db,
}

/// What the keys of the keyspace with this number begin with.
fn prefix_of(number: u32) -> [u8; PREFIX_BYTES] {
    let [_, high, middle, low] = number.to_be_bytes();
    [high, middle, low, 0]
}

/// The range of all keys of a keyspace, in an order. Its ends are no keys.
fn range_of(number: u32, order: KeyOrder) -> (Vec<u8>, Vec<u8>) {
    let [high, middle, low, _] = prefix_of(number);
    let (below, above) = (vec![high, middle, low], vec![high, middle, low, 1]);
    match order {
        KeyOrder::Bytewise => (below, above),
        KeyOrder::ReverseBytewise => (above, below),
    }
}

fn catalogue_key(kind: u8, rest: &[u8]) -> Vec<u8> {
    [&prefix_of(CATALOGUE)[..], &[kind], rest].concat()
}

fn format_key() -> Vec<u8> {
    catalogue_key(FORMAT_KIND, &[])
}

fn name_key(name: &str) -> Vec<u8> {
    catalogue_key(b'n', name.as_bytes())
}

fn drop_key(number: u32) -> Vec<u8> {
    catalogue_key(b'd', &number.to_le_bytes())
}

fn number_in(value: &[u8]) -> Result<u32> {
    let mut reader = Reader::new(value);
    let number = reader.u32().and_then(|number| reader.finish().map(|()| number));
    number.map_err(|error| damaged(&format!("a number: {error}")))
}

fn damaged(what: &str) -> Error {
    Error::corrupt(format!("the catalogue of keyspaces is damaged: {what}"))
}

fn missing(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no keyspace \"{name}\""))
}

/// Whether an error says that somebody else changed the catalogue meanwhile.
fn is_conflict(result: &Result<()>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Conflict)
}

impl Keyspaces {
    /// Checks that a keyspace may have this name.
    ///
    /// # Errors
    /// `Invalid`; the message says what a name is.
    pub fn check_name(name: &str) -> Result<()> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_allowed) {
            return Err(Error::invalid(format!(
                "\"{}\" is no name of a keyspace: use 1 to {MAX_NAME_BYTES} letters, digits, '.', '_' and '-'",
                name.escape_default()
            )));
        }
        Ok(())
    }

    /// Whether a database has keyspaces. A caller that writes raw keys to such a database, not through a [`Keyspace`],
    /// must know which numbers they begin with.
    ///
    /// # Errors
    /// As for reads.
    pub fn exist_in(db: &Db) -> Result<bool> {
        Ok(db.get(&format_key())?.is_some())
    }

    /// Whether a database that has this raw key has keyspaces.
    #[must_use]
    pub fn are_marked_by(key: &[u8]) -> bool {
        // A load asks this of each key.
        key.strip_prefix(&prefix_of(CATALOGUE)) == Some(&[FORMAT_KIND])
    }

    /// Opens the keyspaces of a database that is empty or already has keyspaces. Finishes what drops of earlier
    /// processes have left, unless the database is open for reading only.
    ///
    /// # Errors
    /// `Invalid` when the database has keys that are in no keyspace; `Unsupported` when a newer build made it; `Corrupt`;
    /// as for reads and writes.
    pub fn open(db: &Db) -> Result<Self> {
        let keyspaces = Self { db: db.clone() };
        let format_key = format_key();
        match db.get(&format_key)?.as_deref() {
            Some([FORMAT]) => {}
            Some([format]) => {
                let message = format!("keyspaces of format {format}, and this build knows {FORMAT}: use a newer one");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            Some(_) => return Err(damaged("its format")),
            None => {
                let mut keys = db.iter()?;
                keys.seek_to_first()?;
                if keys.valid() {
                    return Err(Error::invalid(
                        "the database has keys that are in no keyspace: use it without keyspaces, or begin with an empty one",
                    ));
                }
                if db.is_read_only() {
                    return Ok(keyspaces);
                }
                let mut batch = WriteBatch::new();
                batch.put(&format_key, &[FORMAT]).require_absent(&format_key);
                let begun = db.write_durably(&batch);
                if !is_conflict(&begun) {
                    begun?;
                }
            }
        }
        if !db.is_read_only() {
            keyspaces.finish_drops()?;
        }
        Ok(keyspaces)
    }

    /// Deletes what was written to keyspaces after they were dropped. Keyspaces that this process has dropped are left
    /// to the next process, because callers that hold one may still write to it.
    fn finish_drops(&self) -> Result<()> {
        let mut left = Vec::new();
        for number in self.dropped()? {
            if self.was_dropped_before(number)? {
                left.push(number);
            }
        }
        for numbers in left.chunks(MAX_RANGES) {
            let (mut ranges, mut records) = (WriteBatch::new(), WriteBatch::new());
            for number in numbers {
                let (from, to) = range_of(*number, self.db.key_order());
                ranges.delete_range(&from, &to);
                records.delete(&drop_key(*number));
            }
            self.db.write_durably(&ranges)?;
            self.db.write(&records)?;
        }
        Ok(())
    }

    /// Whether a keyspace was dropped before the database was opened. Then nobody in this process holds it.
    fn was_dropped_before(&self, number: u32) -> Result<bool> {
        let Some(entry) = self.db.get_entry(&drop_key(number))? else { return Ok(false) };
        let opened_at = self.db.opened_at().get(entry.stamp.shard as usize).copied();
        Ok(opened_at.is_some_and(|opened_at| entry.stamp.sequence <= opened_at))
    }

    /// The numbers of keyspaces that were dropped, as far as the catalogue still has them.
    fn dropped(&self) -> Result<Vec<u32>> {
        let kind = catalogue_key(b'd', &[]);
        let mut entries = self.db.iter_with(&IterOptions { prefix: Some(&kind), ..IterOptions::default() })?;
        entries.seek_to_first()?;
        let mut numbers = Vec::new();
        while entries.valid() {
            numbers.push(number_in(entries.key().get(kind.len()..).unwrap_or_default())?);
            entries.next()?;
        }
        Ok(numbers)
    }

    /// The database.
    #[must_use]
    pub const fn db(&self) -> &Db {
        &self.db
    }

    /// The table of clients' requests, which no keyspace shows. It is part of the catalogue. So in a database of
    /// several shards, a request that writes to other shards crosses shards ([`Requests::under`] offers a choice).
    #[must_use]
    pub fn requests(&self) -> Requests {
        Requests::under(&self.db, &catalogue_key(b'r', &[]))
    }

    /// Creates a keyspace. When this returns, the keyspace is as durable as the database can make it, whatever
    /// [`Options::durability`](crate::Options::durability) says: it survives what its keys survive. So it costs two
    /// writes that wait for the log. They also bring to the log earlier writes that are neither there nor in tables. In
    /// a database without a name, neither write waits.
    ///
    /// # Errors
    /// `AlreadyExists`; `Invalid` for a name that is empty, longer than 255 bytes, or has other characters than letters,
    /// digits, `.`, `_`, `-`; `Full` after 16,777,215 keyspaces; as for reads and writes.
    pub fn create(&self, name: &str) -> Result<Keyspace> {
        Self::check_name(name)?;
        let name_key = name_key(name);
        let taken = || Error::new(ErrorKind::AlreadyExists, format!("there is a keyspace \"{name}\" already"));
        if self.db.get(&name_key)?.is_some() {
            return Err(taken());
        }
        let number = self.take_number()?;
        let mut batch = WriteBatch::new();
        batch.put(&name_key, &number.to_le_bytes()).require_absent(&name_key);
        let created = self.db.write_durably(&batch);
        if is_conflict(&created) {
            return Err(taken());
        }
        created.map(|()| Keyspace::new(&self.db, name, prefix_of(number)))
    }

    /// Takes a number that nobody else gets, with a range that is empty.
    fn take_number(&self) -> Result<u32> {
        let next_key = catalogue_key(b'i', &[]);
        loop {
            let mut batch = WriteBatch::new();
            let number = match self.db.get_entry(&next_key)? {
                Some(entry) => {
                    batch.require_stamp(&next_key, entry.stamp);
                    number_in(&entry.value)?
                }
                None => {
                    batch.require_absent(&next_key);
                    CATALOGUE + 1
                }
            };
            if number > MAX_NUMBER {
                return Err(Error::new(ErrorKind::Full, "no number is left for a keyspace"));
            }
            let next = if planted(Bug::ReuseKeyspaces) { number } else { number + 1 };
            let taken = self.db.write_durably(batch.put(&next_key, &next.to_le_bytes()));
            if is_conflict(&taken) {
                continue;
            }
            taken?;
            if self.empty(number)? {
                return Ok(number);
            }
        }
    }

    /// Deletes what the range of a new number holds. It is left of a keyspace whose name was lost after others could
    /// see it, or of one created by a build that did not make it durable. Returns whether the range is empty. If a
    /// keyspace has the number, for example because somebody wrote to the catalogue, the range is not empty and keeps
    /// its contents.
    fn empty(&self, number: u32) -> Result<bool> {
        let prefix = prefix_of(number);
        let mut keys = self.db.iter_with(&IterOptions { prefix: Some(&prefix), ..IterOptions::default() })?;
        keys.seek_to_first()?;
        if !keys.valid() {
            return Ok(true);
        }
        if self.named()?.iter().any(|(_, taken)| *taken == number) {
            return Ok(false);
        }
        let (from, to) = range_of(number, self.db.key_order());
        self.db.write_durably(WriteBatch::new().delete_range(&from, &to)).map(|()| true)
    }

    /// The keyspace with this name.
    ///
    /// # Errors
    /// `NotFound`; as for reads.
    pub fn get(&self, name: &str) -> Result<Keyspace> {
        let number = self.db.get(&name_key(name))?.ok_or_else(|| missing(name))?;
        Ok(Keyspace::new(&self.db, name, prefix_of(number_in(&number)?)))
    }

    /// The names of all keyspaces, ascending.
    ///
    /// # Errors
    /// As for reads.
    pub fn list(&self) -> Result<Vec<String>> {
        let mut names: Vec<_> = self.named()?.into_iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// All names, with their numbers.
    fn named(&self) -> Result<Vec<(String, u32)>> {
        let kind = name_key("");
        let mut entries = self.db.iter_with(&IterOptions { prefix: Some(&kind), ..IterOptions::default() })?;
        entries.seek_to_first()?;
        let mut named = Vec::new();
        while entries.valid() {
            let name = entries.key().get(kind.len()..).unwrap_or_default().to_vec();
            let name = String::from_utf8(name).map_err(|_| damaged("a name"))?;
            named.push((name, number_in(entries.value())?));
            entries.next()?;
        }
        Ok(named)
    }

    /// Drops a keyspace and all its keys. Costs a few records, however many keys there are. Snapshots and iterators
    /// still see them. What others write later, through a [`Keyspace`] that they hold, is not seen; the next process
    /// that opens the keyspaces deletes it.
    ///
    /// # Errors
    /// `NotFound`; as for reads and writes.
    pub fn drop(&self, name: &str) -> Result<()> {
        let name_key = name_key(name);
        loop {
            let entry = self.db.get_entry(&name_key)?.ok_or_else(|| missing(name))?;
            let number = number_in(&entry.value)?;
            let (from, to) = range_of(number, self.db.key_order());
            let mut batch = WriteBatch::new();
            batch.delete(&name_key).require_stamp(&name_key, entry.stamp);
            batch.put(&drop_key(number), &[]).delete_range(&from, &to);
            let dropped = self.db.write(&batch);
            if !is_conflict(&dropped) {
                return dropped;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_keys() {
        assert_eq!(prefix_of(0x0001_0203), [1, 2, 3, 0]);
        assert_eq!(name_key("a"), [0, 0, 0, 0, b'n', b'a']);
        assert_eq!(drop_key(7), [0, 0, 0, 0, b'd', 7, 0, 0, 0]);
        assert_eq!(number_in(&[7, 0, 0, 0]).unwrap(), 7);
        assert_eq!(number_in(&[7, 0, 0]).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(number_in(&[7, 0, 0, 0, 0]).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn a_range_holds_a_keyspace_and_nothing_else() {
        for order in [KeyOrder::Bytewise, KeyOrder::ReverseBytewise] {
            let (from, to) = range_of(5, order);
            for number in 0..10 {
                for key in [&b""[..], b"\0", b"key", &[0xff; 100]] {
                    let key = [&prefix_of(number)[..], key].concat();
                    let is_in = order.compare(&from, &key).is_lt() && order.compare(&key, &to).is_lt();
                    assert_eq!(is_in, number == 5, "{order:?} {key:?}");
                }
            }
        }
    }

    #[test]
    fn names() {
        for name in ["a", "A-1_b.c", &"x".repeat(255)] {
            assert!(Keyspaces::check_name(name).is_ok(), "{name}");
        }
        for name in ["", "a b", "ä", "a/b", &"x".repeat(256)] {
            assert_eq!(Keyspaces::check_name(name).unwrap_err().kind(), ErrorKind::Invalid, "{name}");
        }
    }
}
