//! Changes of records as bytes: the form of a batch of the shared tree, and of its journal.
//!
//! Described in `docs/formats/redis-journal.md`.
//!
//! ```text
//!   change   offset  size
//!            0       1     1 put, 2 delete, 3 delete a range
//!            1       4     length of the key, or of the first key of the range
//!            5       4     length of the value, or of the key that ends the range; 0 for a deletion
//!            9       …     the one, and the other
//! ```
//!
//! Numbers are little-endian. Changes follow each other, and are made in this order. To make all of them again in this
//! order changes nothing.

use bytes::{Buf, BufMut};
use forebay::{Error, ErrorKind};

const PUT: u8 = 1;
const DELETE: u8 = 2;
const DELETE_RANGE: u8 = 3;

/// A change of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// Sets a key.
    Put(&'a [u8], &'a [u8]),
    /// Removes a key.
    Delete(&'a [u8]),
    /// Removes the keys from the first on, and before the second.
    DeleteRange(&'a [u8], &'a [u8]),
}

/// Changes, one after another.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    bytes: Vec<u8>,
    count: usize,
    puts: usize,
    longest_key: usize,
    longest_record: usize,
}

impl Changes {
    /// Adds a change.
    pub fn add(&mut self, change: Change<'_>) {
        let (kind, first, second): (_, _, &[u8]) = match change {
            Change::Put(key, value) => (PUT, key, value),
            Change::Delete(key) => (DELETE, key, &[]),
            Change::DeleteRange(from, to) => (DELETE_RANGE, from, to),
        };
        self.count += 1;
        if kind != DELETE_RANGE {
            self.longest_key = self.longest_key.max(first.len());
        }
        if kind == PUT {
            self.puts += 1;
            self.longest_record = self.longest_record.max(first.len() + second.len());
        }
        // No batch is so long that a length would overflow: see `MAX_BATCH_BYTES`.
        self.bytes.put_u8(kind);
        self.bytes.put_u32_le(first.len() as u32);
        self.bytes.put_u32_le(second.len() as u32);
        self.bytes.put_slice(first);
        self.bytes.put_slice(second);
    }

    /// Number of changes.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Whether no key is put.
    #[must_use]
    pub const fn only_removes(&self) -> bool {
        self.puts == 0
    }

    /// Length of the longest key that is put or deleted.
    #[must_use]
    pub const fn longest_key(&self) -> usize {
        self.longest_key
    }

    /// Returns the bytes of the longest key and value, added up, of a single put.
    #[must_use]
    pub const fn longest_record(&self) -> usize {
        self.longest_record
    }

    /// Returns all changes, as bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The error when remote memory does not hold what a server has written there.
pub(super) fn damaged(what: &str) -> Error {
    Error::Below { kind: ErrorKind::Corrupt, message: format!("{what} is damaged, or a newer build wrote it") }
}

/// Returns the changes that bytes hold, in order.
///
/// # Errors
/// `Corrupt` for bytes that are no change, which ends the iteration.
pub fn read(mut bytes: &[u8]) -> impl Iterator<Item = Result<Change<'_>, Error>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let change = take(&mut bytes);
        if change.is_none() {
            bytes = &[];
        }
        Some(change.ok_or_else(|| damaged("a change of records")))
    })
}

fn take<'a>(bytes: &mut &'a [u8]) -> Option<Change<'a>> {
    let (mut head, rest) = bytes.split_at_checked(9)?;
    let kind = head.get_u8();
    let (first, second) = (head.get_u32_le() as usize, head.get_u32_le() as usize);
    let (first, rest) = rest.split_at_checked(first)?;
    let (second, rest) = rest.split_at_checked(second)?;
    *bytes = rest;
    match kind {
        PUT => Some(Change::Put(first, second)),
        DELETE if second.is_empty() => Some(Change::Delete(first)),
        DELETE_RANGE => Some(Change::DeleteRange(first, second)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes_of_changes() {
        let mut changes = Changes::default();
        let all = [Change::Put(b"k", b"value"), Change::Delete(b"key"), Change::DeleteRange(b"a", b"bc")];
        all.iter().for_each(|change| changes.add(*change));
        let hex: String = changes.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "0101000000050000006b76616c75650203000000000000006b65790301000000020000006162\
             63"
        );
        assert_eq!(read(changes.bytes()).collect::<Result<Vec<_>, _>>().unwrap(), all);
        assert_eq!((changes.count(), changes.longest_key(), changes.longest_record()), (3, 3, 6));
        assert!(!changes.only_removes());
        for length in 1..changes.bytes().len() {
            let whole = [15, 27].contains(&length);
            assert_eq!(read(&changes.bytes()[..length]).all(|change| change.is_ok()), whole, "{length}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end(bytes: Vec<u8>) {
            let read: Vec<_> = read(&bytes).collect();
            prop_assert!(read.len() <= bytes.len());
            prop_assert!(read.iter().rev().skip(1).all(Result::is_ok));
        }
    }
}
