//! Writes that become visible together.

use crate::plan::planner::Need;
use crate::terms::{Error, Options, Result, Stamp};
use crate::write::condition::{Condition, Demand};
use forebay_base::{ErrorKind, KeyOrder, Kind, MAX_KEY_BYTES, MAX_VALUE_BYTES, Record};
use std::fmt;
use std::sync::Arc;

/// Maximum size of a batch: the sum of its records in bytes.
pub const MAX_BATCH_BYTES: u64 = 256 << 20;

/// Writes that become visible together, in the order in which they were added, and conditions under which they are
/// written.
#[derive(Debug, Clone, Default)]
pub struct WriteBatch {
    bytes: Vec<u8>,
    operations: Vec<Operation>,
    record_bytes: u64,
    /// Whether there are operands of merges.
    merges: bool,
    conditions: Vec<Condition>,
    /// The moments that conditions name: each with the identity of its database, and what keeps the moment.
    moments: Vec<(usize, Arc<dyn fmt::Debug + Send + Sync>)>,
}

#[derive(Debug, Clone, Copy)]
struct Operation {
    kind: Kind,
    key_bytes: u32,
    value_bytes: u32,
    expiry_ms: Option<u64>,
}

impl WriteBatch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a write that sets `key` to `value`.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> &mut Self {
        self.set(key, value, None)
    }

    /// Adds a write that sets `key` to `value` until `expiry_ms`, in milliseconds since 1970. Then the key counts as
    /// deleted. See [`Db::put_expiring`](crate::Db::put_expiring).
    pub fn put_expiring(&mut self, key: &[u8], value: &[u8], expiry_ms: u64) -> &mut Self {
        self.set(key, value, Some(expiry_ms))
    }

    /// Adds a write that removes `key`.
    pub fn delete(&mut self, key: &[u8]) -> &mut Self {
        self.add(Write { kind: Kind::Delete, key, value: &[], expiry_ms: None })
    }

    /// Adds an operand to `key`. The database's merge operator makes the value from operands
    /// ([`Db::merge`](crate::Db::merge)).
    pub fn merge(&mut self, key: &[u8], operand: &[u8]) -> &mut Self {
        self.add(Write { kind: Kind::Merge, key, value: operand, expiry_ms: None })
    }

    /// Adds a write that removes all keys from `from` (included) to `to` (excluded), in the
    /// database's order. Does nothing if both are equal. That `to` is not before `from` is checked
    /// when the batch is written.
    pub fn delete_range(&mut self, from: &[u8], to: &[u8]) -> &mut Self {
        let deletion = Write { kind: Kind::RangeDelete, key: from, value: to, expiry_ms: None };
        if from == to { self } else { self.add(deletion) }
    }

    /// The batch is written only if `key` has no value. If it has one, nothing is written, and the error is of kind
    /// [`Conflict`](forebay_base::ErrorKind::Conflict). This and all other conditions are checked at the one moment at
    /// which the batch becomes part of the order of writes, no matter who else writes meanwhile.
    pub fn require_absent(&mut self, key: &[u8]) -> &mut Self {
        self.require(key, Demand::Absent)
    }

    /// The same, if `key` has a value.
    pub fn require_present(&mut self, key: &[u8]) -> &mut Self {
        self.require(key, Demand::Present)
    }

    /// The same, if the write that `stamp` names gave `key` its present value
    /// ([`Db::get_entry`](crate::Db::get_entry)). When a bound between shards has moved, the condition may fail
    /// although nobody wrote the key.
    pub fn require_stamp(&mut self, key: &[u8], stamp: Stamp) -> &mut Self {
        self.require(key, Demand::Stamp(stamp))
    }

    pub(crate) fn require(&mut self, key: &[u8], demand: Demand) -> &mut Self {
        self.conditions.push(Condition { key: key.to_vec(), demand });
        self
    }

    /// Keeps a moment of a database that a condition names, as long as the batch has the condition.
    pub(crate) fn hold(&mut self, database: usize, moment: Arc<dyn fmt::Debug + Send + Sync>) {
        self.moments.push((database, moment));
    }

    /// Whether the batch has conditions.
    #[must_use]
    pub fn is_conditional(&self) -> bool {
        !self.conditions.is_empty()
    }

    pub(crate) fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// The identities of the databases whose moments conditions name.
    pub(crate) fn databases(&self) -> impl Iterator<Item = usize> {
        self.moments.iter().map(|(database, _)| *database)
    }

    /// Adds a write that sets `key` to `value`, for ever or until `expiry_ms`.
    pub(crate) fn set(&mut self, key: &[u8], value: &[u8], expiry_ms: Option<u64>) -> &mut Self {
        self.add(Write { kind: Kind::Put, key, value, expiry_ms })
    }

    pub(crate) fn add(&mut self, write: Write<'_>) -> &mut Self {
        let Write { kind, key, value, expiry_ms } = write;
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        // Longer keys and values are refused when the batch is read.
        let bound = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let (key_bytes, value_bytes) = (bound(key.len()), bound(value.len()));
        self.operations.push(Operation { kind, key_bytes, value_bytes, expiry_ms });
        self.record_bytes = self.record_bytes.saturating_add(write.encoded_length() as u64);
        self.merges |= kind == Kind::Merge;
        self
    }

    /// Adds the writes and conditions of another batch after those of this one.
    pub fn append(&mut self, other: &Self) -> &mut Self {
        self.bytes.extend_from_slice(&other.bytes);
        self.operations.extend_from_slice(&other.operations);
        self.conditions.extend_from_slice(&other.conditions);
        self.moments.extend_from_slice(&other.moments);
        self.record_bytes = self.record_bytes.saturating_add(other.record_bytes);
        self.merges |= other.merges;
        self
    }

    /// The writes, in the order in which they were added.
    ///
    /// # Errors
    /// `Invalid` at a key or value of 4 GiB or more, which no database takes; the iteration is of no use after it.
    pub fn writes(&self) -> impl Iterator<Item = Result<BatchWrite<'_>>> {
        self.iter().map(|write| {
            let Write { kind, key, value, expiry_ms } = write?;
            match kind {
                Kind::Put => Ok(BatchWrite::Put { key, value, expiry_ms }),
                Kind::Delete => Ok(BatchWrite::Delete { key }),
                Kind::Merge => Ok(BatchWrite::Merge { key, operand: value }),
                Kind::RangeDelete => Ok(BatchWrite::DeleteRange { from: key, to: value }),
                other => Err(Error::new(ErrorKind::Unsupported, format!("no batch holds a record of kind {other:?}"))),
            }
        })
    }

    /// Number of writes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether the batch has no writes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Removes all writes and conditions, and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.operations.clear();
        self.conditions.clear();
        self.moments.clear();
        self.record_bytes = 0;
        self.merges = false;
    }

    /// Checks operands against the database's merge operator.
    ///
    /// # Errors
    /// `Invalid` when the database takes none, or not these.
    #[inline]
    pub(crate) fn check_operands(&self, options: &Options) -> Result<()> {
        if !self.merges {
            return Ok(());
        }
        let operands = self.iter().filter(|write| write.as_ref().map_or(true, |write| write.kind == Kind::Merge));
        operands.into_iter().try_for_each(|write| check_operand(options, write?.value))
    }

    /// Bytes that the records will take.
    #[must_use]
    pub fn record_bytes(&self) -> u64 {
        self.record_bytes
    }

    /// The writes, in order. Fails at a write whose length exceeds all limits.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Result<Write<'_>>> {
        let mut rest = &self.bytes[..];
        self.operations.iter().map(move |operation| {
            let too_long = || Error::invalid("a key or value has 4 GiB or more: split it");
            // The length that stands for all longer ones.
            if operation.key_bytes.max(operation.value_bytes) == u32::MAX {
                return Err(too_long());
            }
            let (key, tail) = rest.split_at_checked(operation.key_bytes as usize).ok_or_else(too_long)?;
            let (value, tail) = tail.split_at_checked(operation.value_bytes as usize).ok_or_else(too_long)?;
            rest = tail;
            Ok(Write { kind: operation.kind, key, value, expiry_ms: operation.expiry_ms })
        })
    }

    /// Checks the length against the largest piece that a memory node can hold.
    pub(crate) fn check_bytes(&self, max_bytes: u64) -> Result<()> {
        check_bytes(self.record_bytes, max_bytes)
    }
}

/// A write of a batch, as its owner sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchWrite<'a> {
    /// Sets a key.
    Put {
        /// The key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// Until when, in milliseconds since 1970; `None` for ever.
        expiry_ms: Option<u64>,
    },
    /// Removes a key.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// Adds an operand to a key.
    Merge {
        /// The key.
        key: &'a [u8],
        /// The operand.
        operand: &'a [u8],
    },
    /// Removes a range of keys.
    DeleteRange {
        /// The first key.
        from: &'a [u8],
        /// The first key that stays.
        to: &'a [u8],
    },
}

/// A write of a batch. For a range deletion, the value is its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write<'a> {
    pub(crate) kind: Kind,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    /// Milliseconds since 1970.
    pub(crate) expiry_ms: Option<u64>,
}

impl<'a> Write<'a> {
    /// The write that a record has.
    pub(crate) const fn of(record: &Record<'a>) -> Self {
        Self { kind: record.tag.kind(), key: record.key, value: record.value, expiry_ms: record.expiry_ms }
    }

    /// Bytes of the record.
    #[inline]
    pub(crate) const fn encoded_length(&self) -> usize {
        Record::encoded_length(self.key.len(), self.value.len(), self.expiry_ms.is_some())
    }
}

/// Input of the write path: one write, which needs no batch memory, or a batch.
pub(crate) trait Writes {
    /// Number of records.
    fn count(&self) -> u64;
    /// Bytes of the records.
    fn record_bytes(&self) -> u64;
    /// Passes each write to `sink`, in order, until `sink` fails.
    fn for_each(&self, sink: impl FnMut(Write<'_>) -> Result<()>) -> Result<()>;

    /// Whether there are only deletions, and records that do nothing. Looks at each write.
    fn frees(&self) -> bool {
        let only_deletes = |write: Write<'_>| match write.kind {
            Kind::Delete | Kind::RangeDelete | Kind::Crossing | Kind::Nothing => Ok(()),
            _ => Err(Error::invalid("it writes something")),
        };
        self.for_each(only_deletes).is_ok()
    }

    /// What the writes need from a memtable.
    fn need(&self) -> Need {
        Need { bytes: self.record_bytes(), frees: self.frees() }
    }

    /// Checks keys, values and the sum against the limits. `max_bytes` is the largest piece that
    /// the memory node can hold.
    fn check(&self, order: KeyOrder, max_bytes: u64) -> Result<()> {
        self.for_each(|write| match write.kind {
            Kind::RangeDelete => check_range(order, write.key, write.value),
            _ => check_lengths(write.key.len(), write.value.len()),
        })?;
        check_bytes(self.record_bytes(), max_bytes)
    }
}

/// Checks the record bytes of one write to a shard.
pub(crate) fn check_bytes(bytes: u64, max_bytes: u64) -> Result<()> {
    let limit = max_bytes.min(MAX_BATCH_BYTES);
    if bytes <= limit {
        return Ok(());
    }
    // Extents grow with the memory.
    let or_raise = match limit < MAX_BATCH_BYTES {
        true => ", or raise the memory (memory_bytes, --local-memory-size, that of the memory nodes)",
        false => "",
    };
    Err(Error::invalid(format!(
        "{bytes} bytes of records in one write, at most {limit} are possible: split it{or_raise}"
    )))
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

/// Checks an operand of a merge.
///
/// # Errors
/// As [`WriteBatch::check_operands`].
pub(crate) fn check_operand(options: &Options, operand: &[u8]) -> Result<()> {
    let Some(name) = &options.merge_operator else {
        return Err(Error::invalid(
            "the database has no merge operator: create it with one, by Options::merge_operator",
        ));
    };
    if options.merge_operators.get(name)?.takes(operand) {
        return Ok(());
    }
    let bytes = operand.len();
    Err(Error::invalid(format!("the merge operator {name:?} takes other operands than this one, of {bytes} bytes")))
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

    fn for_each(&self, mut sink: impl FnMut(Write<'_>) -> Result<()>) -> Result<()> {
        self.iter().try_for_each(|write| sink(write?))
    }
}

/// A single write, which needs no batch.
impl Writes for Write<'_> {
    fn count(&self) -> u64 {
        1
    }

    fn record_bytes(&self) -> u64 {
        self.encoded_length() as u64
    }

    fn for_each(&self, mut sink: impl FnMut(Write<'_>) -> Result<()>) -> Result<()> {
        sink(*self)
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
    fn a_batch_tells_its_writes_and_takes_those_of_another() {
        let (mut batch, mut other) = (WriteBatch::new(), WriteBatch::new());
        batch.put(b"a", b"1");
        other.delete(b"b").delete_range(b"c", b"d");
        let sum = batch.record_bytes() + other.record_bytes();
        other.require_absent(b"e");
        batch.append(&other).append(&WriteBatch::new());
        assert!(batch.is_conditional());
        let writes: Vec<_> = batch.writes().map(Result::unwrap).collect();
        let expected = [
            BatchWrite::Put { key: b"a", value: b"1", expiry_ms: None },
            BatchWrite::Delete { key: b"b" },
            BatchWrite::DeleteRange { from: b"c", to: b"d" },
        ];
        assert_eq!((writes.as_slice(), batch.record_bytes(), batch.len()), (&expected[..], sum, 3));
    }

    #[test]
    #[cfg_attr(miri, ignore = "memory that is not touched takes room there")]
    fn what_is_too_long_for_a_batch_is_not_shown_in_part() {
        for (key_bytes, value_bytes) in [(u32::MAX, 0), (0, u32::MAX)] {
            let operation = Operation { kind: Kind::Put, key_bytes, value_bytes, expiry_ms: None };
            let batch = WriteBatch { bytes: vec![0; 4 << 30], operations: vec![operation], ..WriteBatch::default() };
            assert_eq!(batch.writes().next().unwrap().unwrap_err().kind(), ErrorKind::Invalid);
        }
    }

    #[test]
    fn a_batch_keeps_what_was_added() {
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").delete(b"bb").put(b"", b"");
        let mut seen = Vec::new();
        batch
            .for_each(|write| {
                seen.push((write.kind, write.key.to_vec(), write.value.to_vec()));
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
        assert!(batch.check(order, 48).is_ok());
        let refused = batch.check(order, 47).unwrap_err().to_string();
        assert!(
            refused.contains("at most 47 are possible: split it, or raise the memory (memory_bytes, --local"),
            "{refused}"
        );
        let refused = check_bytes(MAX_BATCH_BYTES + 1, u64::MAX).unwrap_err().to_string();
        assert!(refused.ends_with("split it"), "no memory is large enough: {refused}");
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
