//! Writes that become visible together.

use crate::room::Need;
use crate::{Error, Result};
use forebay_base::{KeyOrder, Kind, MAX_KEY_BYTES, MAX_VALUE_BYTES, Record};

/// Largest batch: the sum of its records, in bytes.
pub const MAX_BATCH_BYTES: u64 = 256 << 20;

/// Writes that become visible together, in the order in which they were added.
#[derive(Debug, Clone, Default)]
pub struct WriteBatch {
    bytes: Vec<u8>,
    operations: Vec<Operation>,
    record_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Operation {
    kind: Kind,
    key_bytes: u32,
    value_bytes: u32,
}

impl WriteBatch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds: set `key` to `value`.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> &mut Self {
        self.add(Kind::Put, key, value)
    }

    /// Adds: remove `key`.
    pub fn delete(&mut self, key: &[u8]) -> &mut Self {
        self.add(Kind::Delete, key, &[])
    }

    /// Adds: remove all keys from `from` up to (not with) `to`, in the database's order. Equal ones
    /// say nothing; that `to` is not before `from` is checked when the batch is written.
    pub fn delete_range(&mut self, from: &[u8], to: &[u8]) -> &mut Self {
        if from == to { self } else { self.add(Kind::RangeDelete, from, to) }
    }

    fn add(&mut self, kind: Kind, key: &[u8], value: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        // Longer ones are refused when the batch is written.
        let bound = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        self.operations.push(Operation { kind, key_bytes: bound(key.len()), value_bytes: bound(value.len()) });
        self.record_bytes =
            self.record_bytes.saturating_add(Record::encoded_length(key.len(), value.len(), false) as u64);
        self
    }

    /// Number of writes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Removes all writes and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.operations.clear();
        self.record_bytes = 0;
    }

    /// Bytes that the records will take.
    #[must_use]
    pub fn record_bytes(&self) -> u64 {
        self.record_bytes
    }

    /// The writes, in order. Fails at one whose length is beyond all limits.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Result<Write<'_>>> {
        let mut rest = &self.bytes[..];
        self.operations.iter().map(move |operation| {
            let too_long = || Error::invalid("a key or value has 4 GiB or more: split it");
            let (key, tail) = rest.split_at_checked(operation.key_bytes as usize).ok_or_else(too_long)?;
            let (value, tail) = tail.split_at_checked(operation.value_bytes as usize).ok_or_else(too_long)?;
            rest = tail;
            Ok(Write { kind: operation.kind, key, value })
        })
    }

    /// Checks the length against what a memory node can hold in one piece.
    pub(crate) fn check_bytes(&self, max_bytes: u64) -> Result<()> {
        check_bytes(self.record_bytes, max_bytes)
    }
}

/// A write of a batch. The value of a range deletion is its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write<'a> {
    pub(crate) kind: Kind,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

/// What the write path takes: one write without a batch's memory, or a batch.
pub(crate) trait Writes {
    /// Number of records.
    fn count(&self) -> u64;
    /// Bytes of the records.
    fn record_bytes(&self) -> u64;
    /// Hands each write to `sink`, in order, until it fails.
    fn for_each(&self, sink: impl FnMut(Kind, &[u8], &[u8]) -> Result<()>) -> Result<()>;

    /// Whether nothing but deletions is written. Looks at each write.
    fn frees(&self) -> bool {
        let only_deletes = |kind, _: &[u8], _: &[u8]| match kind {
            Kind::Delete | Kind::RangeDelete => Ok(()),
            _ => Err(Error::invalid("it writes something")),
        };
        self.for_each(only_deletes).is_ok()
    }

    /// What is needed of a memtable.
    fn need(&self) -> Need {
        Need { bytes: self.record_bytes(), frees: self.frees() }
    }

    /// Checks keys, values and the sum against the limits. `max_bytes` is what the memory node can
    /// hold in one piece.
    fn check(&self, order: KeyOrder, max_bytes: u64) -> Result<()> {
        self.for_each(|kind, key, value| match kind {
            Kind::RangeDelete => check_range(order, key, value),
            _ => check_lengths(key.len(), value.len()),
        })?;
        check_bytes(self.record_bytes(), max_bytes)
    }
}

/// Checks the bytes of the records of one write to a shard.
pub(crate) fn check_bytes(bytes: u64, max_bytes: u64) -> Result<()> {
    let limit = max_bytes.min(MAX_BATCH_BYTES);
    if bytes > limit {
        return Err(Error::invalid(format!(
            "{bytes} bytes of records in one write, at most {limit} are possible: split it, or use a memory node \
             with larger extents"
        )));
    }
    Ok(())
}

fn check_range(order: KeyOrder, from: &[u8], to: &[u8]) -> Result<()> {
    check_lengths(from.len().max(to.len()), 0)?;
    if order.compare(from, to).is_ge() {
        return Err(Error::invalid(format!(
            "the range ends before it starts in the {} order: exchange its ends",
            order.name()
        )));
    }
    Ok(())
}

fn check_lengths(key_bytes: usize, value_bytes: usize) -> Result<()> {
    if key_bytes > MAX_KEY_BYTES {
        return Err(Error::invalid(format!("the key has {key_bytes} bytes, at most {MAX_KEY_BYTES} are allowed")));
    }
    if value_bytes > MAX_VALUE_BYTES {
        return Err(Error::invalid(format!(
            "the value has {value_bytes} bytes, at most {MAX_VALUE_BYTES} are allowed: split it"
        )));
    }
    Ok(())
}

impl Writes for WriteBatch {
    fn count(&self) -> u64 {
        self.operations.len() as u64
    }

    fn record_bytes(&self) -> u64 {
        self.record_bytes
    }

    fn for_each(&self, mut sink: impl FnMut(Kind, &[u8], &[u8]) -> Result<()>) -> Result<()> {
        self.iter().try_for_each(|write| {
            let write = write?;
            sink(write.kind, write.key, write.value)
        })
    }
}

/// A single write.
pub(crate) struct One<'a> {
    pub(crate) kind: Kind,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl Writes for One<'_> {
    fn count(&self) -> u64 {
        1
    }

    fn record_bytes(&self) -> u64 {
        Record::encoded_length(self.key.len(), self.value.len(), false) as u64
    }

    fn for_each(&self, mut sink: impl FnMut(Kind, &[u8], &[u8]) -> Result<()>) -> Result<()> {
        sink(self.kind, self.key, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_frees_if_it_only_deletes() {
        let mut batch = WriteBatch::new();
        batch.delete(b"a").delete_range(b"a", b"b");
        assert!(batch.frees());
        batch.put(b"a", b"");
        assert!(!batch.frees() && batch.need().bytes == batch.record_bytes());
    }

    #[test]
    fn a_batch_keeps_what_was_added() {
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").delete(b"bb").put(b"", b"");
        let mut seen = Vec::new();
        batch
            .for_each(|kind, key, value| {
                seen.push((kind, key.to_vec(), value.to_vec()));
                Ok(())
            })
            .unwrap();
        assert_eq!(
            seen,
            [
                (Kind::Put, b"a".to_vec(), b"1".to_vec()),
                (Kind::Delete, b"bb".to_vec(), vec![]),
                (Kind::Put, vec![], vec![])
            ]
        );
        assert_eq!(batch.record_bytes(), 16 + 16 + 16);
        let order = KeyOrder::Bytewise;
        assert!(batch.check(order, 48).is_ok() && batch.check(order, 47).is_err());
        batch.put(&vec![0; MAX_KEY_BYTES + 1], b"");
        assert!(batch.check(order, u64::MAX).unwrap_err().to_string().contains("65537"));
        batch.clear();
        batch.delete_range(b"a", b"a");
        assert!(batch.is_empty());
        batch.delete_range(b"a", b"b");
        assert!(batch.check(order, 100).is_ok());
        assert!(batch.check(KeyOrder::ReverseBytewise, 100).unwrap_err().to_string().contains("reverse-bytewise"));
        batch.clear();
        assert!(batch.is_empty() && batch.record_bytes() == 0);
    }
}
