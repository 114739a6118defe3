//! Chains of operands: one record takes the place of several.
//!
//! The merge passes the operands of one key and stripe here, newest first, until the chain ends. What the operator makes of
//! them is written as a new record under the newest operand's number: nobody who can read at all sees less than that.
//!
//! | the chain ends | the new record |
//! |---|---|
//! | with a value that does not expire | the value, with the operands applied |
//! | where the key was deleted or has expired, or where nothing older can be | the value that the operands have alone |
//! | with a value that will expire | one operand: what it applies to depends on when it is read |
//! | otherwise: older links may be elsewhere | one operand |
//!
//! If the operator cannot do it, or the new record would be longer than a table may be, the chain stays as it is.

use super::input::Io;
use super::output::Output;
use super::retention::Retention;
use super::sources::Sources;
use super::{CompactionJob, GatherRead};
use crate::entry::{IndexEntry, RecordAddress};
use crate::error::{Error, RecordMismatch, Result};
use crate::operator::MergeOperator;
use forebay_base::record::pad;
use forebay_base::{InternalKey, Kind, LogicalAddress, Record, Tag};
use std::cell::RefCell;
use std::sync::Arc;

/// Reads whose bytes are held at once. A longer chain is merged in parts, if the operator combines operands.
const HELD_READS: usize = 16;

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
    /// There is no value. The last link says so; it may have to be kept.
    Nothing { is_kept: bool },
    /// Not here: the last link is an operand.
    Open,
}

/// The links of one chain so far; none outside of one.
#[derive(Debug, Default)]
pub(super) struct Chain {
    operator: Option<Arc<dyn MergeOperator>>,
    key: Vec<u8>,
    links: Vec<Linked>,
}

/// What takes the place of a chain.
struct Made {
    kind: Kind,
    value: Vec<u8>,
}

impl Chain {
    /// No chain, of a job with this operator.
    pub fn new(operator: Option<Arc<dyn MergeOperator>>) -> Self {
        Self { operator, ..Self::default() }
    }

    /// Adds a link.
    pub fn add(&mut self, input: usize, entry: &IndexEntry<'_>, address: LogicalAddress) {
        if self.links.is_empty() {
            self.key.clear();
            self.key.extend_from_slice(entry.key.user_key);
        }
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
        let last = if end == End::Open { None } else { links.pop() };
        let made = self.merged(&links, last, end, retention, target)?;
        // What the last link says is part of a value that was made.
        let is_last_kept = match (&made, end) {
            (Some(made), _) if made.kind == Kind::Put => false,
            (_, End::Nothing { is_kept }) => is_kept,
            (_, End::Value | End::Open) => true,
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
        };
        if !is_whole && operands.len() == 1 {
            return Ok(None);
        }
        let Some(values) = self.values(operands, &**operator, target)? else { return Ok(None) };
        let made = if is_whole {
            let value = last.filter(|_| end == End::Value).map(|value| self.read(&[value], target)).transpose()?;
            let base = value.as_ref().and_then(|value| value.iter().next());
            let operands: Vec<&[u8]> = values.iter().flat_map(Values::iter).collect();
            operator.full(&self.key, base, &operands).map(|value| Made { kind: Kind::Put, value })
        } else {
            let all = values.iter().flat_map(Values::iter).map(<[u8]>::to_vec).collect();
            self.combined(&**operator, all).map(|value| Made { kind: Kind::Merge, value })
        };
        let fits = |made: &Made| {
            let length = Record::encoded_length(self.key.len(), made.value.len(), false) as u64;
            length <= target.job.limits.table_bytes && made.value.len() <= forebay_base::MAX_VALUE_BYTES
        };
        Ok(made.filter(fits))
    }

    /// The operands' bytes, oldest first: as they are, or of a long chain one for each part of it. `None` when that cannot
    /// be.
    fn values(
        &self,
        operands: &[Linked],
        operator: &dyn MergeOperator,
        target: &mut Target<'_, '_, '_>,
    ) -> Result<Option<Vec<Values>>> {
        let most_bytes = (target.job.limits.read_bytes as usize).saturating_mul(HELD_READS);
        let mut parts = Vec::new();
        let mut rest = operands;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().rev().take_while(|link| {
                bytes += pad(link.length as usize);
                bytes <= most_bytes
            });
            let (before, part) = rest.split_at(rest.len() - fits.count().max(1));
            let values = self.read(part, target)?;
            if part.len() == operands.len() {
                return Ok(Some(vec![values]));
            }
            let all = values.iter().map(<[u8]>::to_vec).collect();
            let Some(combined) = self.combined(operator, all) else { return Ok(None) };
            parts.push(Values::one(combined));
            rest = before;
        }
        Ok(Some(parts))
    }

    /// One operand for several, of which neighbours are combined until one is left.
    fn combined(&self, operator: &dyn MergeOperator, mut operands: Vec<Vec<u8>>) -> Option<Vec<u8>> {
        while operands.len() > 1 {
            let pairs = operands.chunks(2).map(|pair| match pair {
                [older, newer] => operator.partial(&self.key, older, newer),
                one => one.first().cloned(),
            });
            operands = pairs.collect::<Option<_>>()?;
        }
        operands.pop()
    }

    /// Reads the values of links, which are newest first.
    fn read(&self, links: &[Linked], target: &mut Target<'_, '_, '_>) -> Result<Values> {
        let (mut reads, mut destination) = (Vec::with_capacity(links.len()), 0);
        for link in links {
            let length = pad(link.length as usize);
            reads.push(GatherRead { address: link.address, length, destination });
            destination += length;
        }
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
    fn one(bytes: Vec<u8>) -> Self {
        let values = vec![(0, bytes.len())];
        Self { bytes, values }
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.values.iter().map(|(start, end)| self.bytes.get(*start..*end).unwrap_or_default())
    }
}
