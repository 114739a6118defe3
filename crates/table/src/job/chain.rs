//! Chains of operands: one record takes the place of several.
//!
//! The merge passes the operands of one key and stripe here, newest first, until the chain ends. What the operator makes of
//! them is written as a new record under the newest operand's number: every reader that sees any of them sees the newest.
//!
//! | the chain ends | the new record |
//! |---|---|
//! | with a value that does not expire | the value, with the operands applied |
//! | where the key was deleted or has expired, or where nothing older can exist | the value that the operands make by
//! themselves |
//! | with a value that will expire | one operand: what it applies to depends on when it is read |
//! | otherwise: older links may be elsewhere | one operand |
//!
//! If the operator cannot combine them, or the new record would be longer than a table or a value may be, the chain stays
//! unchanged.
//!
//! A part of a long chain is treated as a chain of its own, so what a job holds does not grow with the chain. Each part
//! except the oldest becomes one operand, and later compactions combine those operands.

use super::input::Io;
use super::output::Output;
use super::retention::Retention;
use super::sources::Sources;
use super::{CompactionJob, GatherRead, JobLimits};
use crate::entry::{IndexEntry, RecordAddress};
use crate::error::{Error, RecordMismatch, Result};
use crate::operator::MergeOperator;
use forebay_base::record::pad;
use forebay_base::{InternalKey, Kind, LogicalAddress, MAX_VALUE_BYTES, Record, Tag};
use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

/// Most bytes of a part of a chain, in reads.
const HELD_READS: usize = 16;
/// Most links of a part of a chain.
const MOST_LINKS: usize = 1 << 16;
/// Bytes that a link takes while a chain is merged, without its record.
const LINK_BYTES: usize = size_of::<Linked>() + size_of::<GatherRead>() + 3 * size_of::<Cow<'_, [u8]>>();

/// Where entries go.
pub(super) struct Target<'t, 'j, 'io> {
    pub job: &'j CompactionJob,
    pub io: &'t RefCell<Io<'io>>,
    pub sources: Sources,
    pub output: Output<'j>,
}

impl Target<'_, '_, '_> {
    /// Adds an entry of an input, whose record is at `address`.
    #[inline]
    pub fn put(&mut self, input: usize, entry: &IndexEntry<'_>, address: LogicalAddress) -> Result<()> {
        let source = self.sources.get_mut(input, entry.address.ordinal)?;
        if source.is_gathered(self.job.size_classes.of(entry)) {
            source.moved_bytes += entry.padded_length();
            self.output.gather(self.io, entry, address)
        } else {
            self.output.keep(self.io, entry, source)
        }
    }

    /// Leaves out an entry of an input.
    #[inline]
    pub fn drop(&mut self, input: usize, entry: &IndexEntry<'_>) -> Result<()> {
        self.sources.get_mut(input, entry.address.ordinal)?.dropped_bytes += entry.padded_length();
        Ok(())
    }
}

/// An entry of an input without its key.
#[derive(Debug, Clone, Copy)]
struct Linked {
    input: usize,
    tag: Tag,
    place: RecordAddress,
    address: LogicalAddress,
    length: u32,
    expiry_ms: Option<u64>,
}

impl Linked {
    const fn entry<'k>(&self, user_key: &'k [u8]) -> IndexEntry<'k> {
        let key = InternalKey { user_key, tag: self.tag };
        IndexEntry { key, address: self.place, length: self.length, expiry_ms: self.expiry_ms }
    }
}

/// How a chain ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// With a value, the last link.
    Value,
    /// There is no value, as the last link says. That link may have to be kept.
    Nothing { is_kept: bool },
    /// Not here: the last link is an operand.
    Open,
    /// Not here, because this is only a part: older links follow.
    Part,
}

/// The links so far of one chain, or of a part of one; none outside a chain.
#[derive(Debug)]
pub(super) struct Chain {
    operator: Option<Arc<dyn MergeOperator>>,
    /// Most bytes of records in a part that has more than two links.
    most_bytes: usize,
    key: Vec<u8>,
    links: Vec<Linked>,
    /// Bytes of the links' records.
    bytes: usize,
}

/// The record that replaces a chain.
struct Made {
    kind: Kind,
    value: Vec<u8>,
}

/// The result of combining operands.
enum Combined {
    One(Vec<u8>),
    /// The operator does not combine them.
    Apart,
    /// An intermediate result was longer than a value may be.
    TooLong,
}

impl Chain {
    /// An empty chain for a job with this operator and these limits.
    pub fn new(operator: Option<Arc<dyn MergeOperator>>, limits: &JobLimits) -> Self {
        let most_bytes = (limits.read_bytes as usize).saturating_mul(HELD_READS).min(MAX_VALUE_BYTES);
        Self { operator, most_bytes, key: Vec::new(), links: Vec::new(), bytes: 0 }
    }

    /// Whether an operand begins another part. A part takes at least two operands, so any two have
    /// a chance to become one.
    #[inline]
    pub fn is_full_for(&self, entry: &IndexEntry<'_>) -> bool {
        let is_long = self.bytes.saturating_add(pad(entry.length as usize)) > self.most_bytes;
        self.links.len() >= MOST_LINKS || self.links.len() >= 2 && is_long
    }

    /// Adds a link.
    pub fn add(&mut self, input: usize, entry: &IndexEntry<'_>, address: LogicalAddress) {
        if self.links.is_empty() {
            self.key.clear();
            self.key.extend_from_slice(entry.key.user_key);
        }
        self.bytes = self.bytes.saturating_add(pad(entry.length as usize));
        let (tag, place) = (entry.key.tag, entry.address);
        self.links.push(Linked { input, tag, place, address, length: entry.length, expiry_ms: entry.expiry_ms });
    }

    /// Ends the chain, if there is one.
    #[inline]
    pub fn end(&mut self, end: End, retention: &Retention, target: &mut Target<'_, '_, '_>) -> Result<()> {
        if self.links.is_empty() { Ok(()) } else { self.write(end, retention, target) }
    }

    #[cold]
    fn write(&mut self, end: End, retention: &Retention, target: &mut Target<'_, '_, '_>) -> Result<()> {
        let mut links = std::mem::take(&mut self.links);
        self.bytes = 0;
        let last = if matches!(end, End::Open | End::Part) { None } else { links.pop() };
        let made = self.merged(&links, last, end, retention, target)?;
        // If a value was made, it includes what the last link says.
        let is_last_kept = match (&made, end) {
            (Some(made), _) if made.kind == Kind::Put => false,
            (_, End::Nothing { is_kept }) => is_kept,
            (_, End::Value | End::Open | End::Part) => true,
        };
        match (&made, links.first()) {
            (Some(made), Some(newest)) => {
                let tag = Tag::new(newest.tag.sequence(), made.kind, false);
                let record = Record { tag, expiry_ms: None, key: &self.key, value: &made.value };
                target.output.put(target.io, &record)?;
                links.iter().try_for_each(|link| target.drop(link.input, &link.entry(&self.key)))?;
            }
            _ => links.iter().try_for_each(|link| target.put(link.input, &link.entry(&self.key), link.address))?,
        }
        if let Some(last) = last {
            let entry = last.entry(&self.key);
            if is_last_kept { target.put(last.input, &entry, last.address) } else { target.drop(last.input, &entry) }?;
        }
        links.clear();
        self.links = links;
        Ok(())
    }

    /// The record for a chain of these operands.
    fn merged(
        &self,
        operands: &[Linked],
        last: Option<Linked>,
        end: End,
        retention: &Retention,
        target: &mut Target<'_, '_, '_>,
    ) -> Result<Option<Made>> {
        let missing = || Error::Inconsistent { what: "a table", detail: "it has operands without a merge operator" };
        let operator = self.operator.as_ref().ok_or_else(missing)?;
        let oldest = operands.last().ok_or_else(missing)?;
        let is_whole = match end {
            End::Value => last.is_some_and(|value| value.expiry_ms.is_none()),
            End::Nothing { .. } => true,
            End::Open => retention.is_spent(oldest.tag),
            End::Part => false,
        };
        if !is_whole && operands.len() == 1 {
            return Ok(None);
        }
        let operands = self.read(operands, target)?;
        let combined = self.combined(&**operator, &operands);
        let full = |operands: &[&[u8]], target: &mut Target<'_, '_, '_>| {
            let value = last.filter(|_| end == End::Value).map(|value| self.read(&[value], target)).transpose()?;
            let base = value.as_ref().and_then(|value| value.iter().next());
            Ok::<_, Error>(operator.full(&self.key, base, operands).map(|value| Made { kind: Kind::Put, value }))
        };
        let made = match combined {
            Combined::One(operand) if is_whole => full(&[&operand], target)?,
            Combined::One(value) => Some(Made { kind: Kind::Merge, value }),
            Combined::Apart if is_whole => full(&operands.iter().collect::<Vec<_>>(), target)?,
            Combined::Apart | Combined::TooLong => None,
        };
        let fits = |made: &Made| {
            let length = Record::encoded_length(self.key.len(), made.value.len(), false) as u64;
            length <= target.job.limits.table_bytes && made.value.len() <= MAX_VALUE_BYTES
        };
        Ok(made.filter(fits))
    }

    /// Combines neighbours until one operand is left.
    fn combined(&self, operator: &dyn MergeOperator, operands: &Values) -> Combined {
        let mut operands: Vec<_> = operands.iter().map(Cow::Borrowed).collect();
        while operands.len() > 1 {
            let (mut fewer, mut bytes) = (Vec::with_capacity(operands.len().div_ceil(2)), 0usize);
            for pair in operands.chunks(2) {
                let one = match pair {
                    [older, newer] => operator.partial(&self.key, older, newer).map(Cow::Owned),
                    one => one.first().cloned(),
                };
                let Some(one) = one else { return Combined::Apart };
                bytes = bytes.saturating_add(one.len());
                if bytes > MAX_VALUE_BYTES {
                    return Combined::TooLong;
                }
                fewer.push(one);
            }
            operands = fewer;
        }
        operands.pop().map_or(Combined::Apart, |one| Combined::One(one.into_owned()))
    }

    /// Reads the values of links, which are newest first.
    fn read(&self, links: &[Linked], target: &mut Target<'_, '_, '_>) -> Result<Values> {
        let (mut reads, mut destination) = (Vec::with_capacity(links.len()), 0);
        for link in links {
            let length = pad(link.length as usize);
            reads.push(GatherRead { address: link.address, length, destination });
            destination += length;
        }
        // The records, and twice their results: the combined operands, and the operands that they
        // were combined from.
        let held = destination.saturating_mul(3).saturating_add(links.len().saturating_mul(LINK_BYTES));
        target.output.hold(&mut target.io.borrow_mut(), held as u64)?;
        let mut bytes = vec![0; destination];
        target.io.borrow_mut().gather(&reads, &mut bytes)?;
        let mut values = Vec::with_capacity(links.len());
        for (read, link) in reads.iter().zip(links).rev() {
            let bad = |cause| Error::BadRecord { address: link.address, cause };
            let record = bytes.get(read.destination..).unwrap_or_default();
            let record = Record::decode(record).map_err(|error| bad(error.into()))?;
            if record.tag != link.tag {
                return Err(bad(RecordMismatch::Tag));
            }
            if record.key != self.key {
                return Err(bad(RecordMismatch::Key));
            }
            let end = read.destination + record.length();
            values.push((end - record.value.len(), end));
        }
        Ok(Values { bytes, values })
    }
}

/// Values, oldest first.
struct Values {
    bytes: Vec<u8>,
    values: Vec<(usize, usize)>,
}

impl Values {
    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.values.iter().map(|(start, end)| self.bytes.get(*start..*end).unwrap_or_default())
    }
}
