//! The point index maps a key's hash to the place of its record.
//!
//! It is an immutable hash table over all entries of a table except range deletions, built once by the writer of the
//! table and cached at compute nodes. It contains no keys: it returns candidates, and the reader of a candidate's
//! record verifies key and sequence number.
//!
//! ```text
//!  frame "FBpi" (see `frame`), body:
//!  u32   number of entries n
//!  u32   number of buckets b, at least 1
//!  u32   number of segments s
//!  u32   smallest length code of the table
//!  u8    bits of a fingerprint        f   (at least 4, default 12)
//!  u8    bits of a location           l   (as many as the table needs)
//!  u8    bits of a length code        c   (as many as the table needs)
//!  u8    mantissa bits of the length codes (see `length_code`)
//!  u32   zero
//!  24 bytes × s   u64 segment id, u64 first unit, u64 units spanned
//!  u32 × (b + 1)  position of each bucket's first entry, and n
//!  bits           n entries of f + l + c bits, at most 57, least significant bit first
//!  8 zero bytes   so that an entry is loaded as one word
//! ```
//!
//! An entry is `fingerprint | location << f | length << (f + l)`. The location counts units of eight
//! bytes in the concatenation of the spans of the table's segments, so 23 bits cover 64 MiB. The
//! length is a code above the table's smallest: records of one size take no bits.
//!
//! A key's bucket comes from the high bits of its hash (`hash * b >> 64`), its fingerprint from the low bits. Within a
//! bucket, entries keep the order in which they were given: a key's versions newest first.
//!
//! **Cost.** A lookup touches one line of bucket positions and one or two of entries. **Size**:
//! `(f + l + c) / 8 + 4 / load` bytes per key. For 435 B records of one size in 64 MiB: (12 + 23 + 0) / 8 + 0.5 = 4.9.
//! With lengths of 8 bits in 64 segments of 64 MiB: (12 + 29 + 8) / 8 + 0.5 = 6.6. In a compute node's memory, where
//! bucket positions are packed (see `buckets`), a third of a byte less. **False positives**: an absent key meets about
//! `load` entries, each of which matches by chance with probability 2^-f: `load / 2^f` = 8 / 4096 = 0.2 % per table.
//!
//! Purpose and golden test: `docs/formats/point-index.md`.

mod bits;
mod buckets;
mod build;
pub mod length_code;

pub(crate) use build::PointEntry;
pub use build::PointIndexOptions;
pub(crate) use build::build;

use crate::entry::{MAX_OFFSET_UNITS, UNIT_BYTES};
use crate::error::{Context, Error, Result};
use crate::frame::FrameKind;
use buckets::Buckets;
use forebay_base::{DecodeError, LogicalAddress, Reader, SegmentId};
use length_code::LengthCoding;
use std::ops::Range;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

pub(crate) const FRAME: FrameKind = FrameKind { what: "a point index", magic: *b"FBpi", version: 1 };
const SPAN_BYTES: usize = 24;
/// Maximum bits of an entry: it is loaded as one word from any bit of a byte.
pub(crate) const MAX_ENTRY_BITS: u32 = 57;
/// Fewest bits of a fingerprint, also where an entry needs its bits for other things.
const FEWEST_FINGERPRINT_BITS: u32 = 4;
/// Zero bytes after the entries.
const PADDING_BYTES: usize = 8;

/// Hash of a user key, the same for every point index: xxh3, 64 bits.
#[inline]
#[must_use]
pub fn key_hash(user_key: &[u8]) -> u64 {
    xxh3_64(user_key)
}

/// A place where a record of the requested key may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// The record's address.
    pub address: LogicalAddress,
    /// Bytes to read: the record's length or up to 3.2 % more, never past the span of its segment
    /// that the table references.
    pub read_length: u32,
}

/// The part of a segment that holds a table's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentSpan {
    /// The segment.
    pub id: SegmentId,
    /// Unit at which the first record starts.
    pub first_unit: u64,
    /// Units from there to the end of the last record.
    pub span_units: u64,
}

#[derive(Debug, Clone, Copy)]
struct PlacedSpan {
    span: SegmentSpan,
    /// Total units of the spans before this one.
    base_units: u64,
}

/// Widths of an entry's parts in bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryShape {
    pub fingerprint_bits: u32,
    pub location_bits: u32,
    pub length_bits: u32,
}

impl EntryShape {
    pub const fn total_bits(self) -> u32 {
        self.fingerprint_bits + self.location_bits + self.length_bits
    }

    pub const fn pack(self, fingerprint: u64, location: u64, length: u64) -> u64 {
        fingerprint | location << self.fingerprint_bits | length << (self.fingerprint_bits + self.location_bits)
    }

    pub const fn fingerprint(self, hash: u64) -> u64 {
        hash & bits::mask(self.fingerprint_bits)
    }
}

pub(crate) fn bucket(hash: u64, bucket_count: u32) -> u32 {
    ((u128::from(hash) * u128::from(bucket_count)) >> 64) as u32
}

/// Iterator over the candidates for a key, the newest version of a key first.
#[derive(Debug, Clone)]
pub struct Candidates<'a> {
    index: &'a PointIndex,
    fingerprint: u64,
    next: u32,
    end: u32,
}

impl Iterator for Candidates<'_> {
    type Item = Candidate;

    #[inline]
    fn next(&mut self) -> Option<Candidate> {
        let shape = self.index.shape;
        while self.next < self.end {
            let entry = bits::load(&self.index.entries, self.next, shape.total_bits())?;
            self.next += 1;
            if entry & bits::mask(shape.fingerprint_bits) == self.fingerprint {
                return self.index.candidate(entry);
            }
        }
        None
    }
}

/// A verified point index as a compute node keeps it: the contents of its image, with the positions of its buckets in a
/// third of the bytes (see `buckets`).
#[derive(Debug, Clone)]
pub struct PointIndex {
    entry_count: u32,
    bucket_count: u32,
    shape: EntryShape,
    coding: LengthCoding,
    spans: Vec<PlacedSpan>,
    buckets: Buckets,
    /// The entries and the bytes after them.
    entries: Arc<[u8]>,
}

impl PointIndex {
    /// Verifies an image, both its checksum and the consistency of its parts, and keeps its contents.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Inconsistent`] or [`Error::Unknown`].
    pub fn parse(image: &[u8]) -> Result<Self> {
        let body = FRAME.decode(image)?;
        Self::parse_body(body).context(FRAME.what)
    }

    fn parse_body(body: &[u8]) -> std::result::Result<Self, DecodeError> {
        let bad = |what, found| DecodeError::BadValue { what, found };
        let mut reader = Reader::new(body);
        let entry_count = reader.u32()?;
        let bucket_count = reader.u32()?;
        let span_count = reader.u32()?;
        let smallest_code = reader.u32()?;
        let [fingerprint_bits, location_bits, length_bits, mantissa_bits] =
            [reader.u8()?, reader.u8()?, reader.u8()?, reader.u8()?].map(u32::from);
        let reserved = reader.u32()?;
        let shape = EntryShape { fingerprint_bits, location_bits, length_bits };
        // Entries without bits would be as many as the head says, and candidates for every key.
        let has_shape = fingerprint_bits >= FEWEST_FINGERPRINT_BITS && shape.total_bits() <= MAX_ENTRY_BITS;
        if bucket_count == 0 || reserved != 0 || !has_shape {
            return Err(bad("shape of a point index", shape.total_bits().into()));
        }
        let coding = LengthCoding::new(mantissa_bits, smallest_code)
            .ok_or(bad("mantissa bits of a length code", mantissa_bits.into()))?;
        if span_count as usize > reader.remaining() / SPAN_BYTES {
            return Err(bad("number of segments", span_count.into()));
        }
        let mut spans = Vec::with_capacity(span_count as usize);
        let mut base_units = 0u64;
        for _ in 0..span_count {
            let span =
                SegmentSpan { id: SegmentId(reader.u64()?), first_unit: reader.u64()?, span_units: reader.u64()? };
            if span.first_unit >= MAX_OFFSET_UNITS || span.span_units > MAX_OFFSET_UNITS - span.first_unit {
                return Err(bad("span of a segment", span.span_units));
            }
            spans.push(PlacedSpan { span, base_units });
            base_units = base_units.checked_add(span.span_units).ok_or(bad("span of a segment", span.span_units))?;
        }
        let positions_bytes = 4 * (u64::from(bucket_count) + 1);
        let entries_bytes = (u64::from(entry_count) * u64::from(shape.total_bits())).div_ceil(8);
        if reader.remaining() as u64 != positions_bytes + entries_bytes + PADDING_BYTES as u64 {
            return Err(bad("length of a point index", reader.remaining() as u64));
        }
        let buckets = Buckets::new(reader.bytes(positions_bytes as usize)?);
        let entries = reader.rest().into();
        Ok(Self { entry_count, bucket_count, shape, coding, spans, buckets, entries })
    }

    /// Number of entries.
    #[must_use]
    pub const fn entry_count(&self) -> u32 {
        self.entry_count
    }

    /// Bytes that the index takes in memory.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.entries.len() + self.buckets.size_bytes() + size_of_val(self.spans.as_slice())
    }

    /// The bytes that [`PointIndex::candidates`] reads first for this hash, for callers that prefetch them during other
    /// work.
    #[inline]
    #[must_use]
    pub fn bucket_bytes(&self, hash: u64) -> &[u8] {
        self.buckets.line(bucket(hash, self.bucket_count))
    }

    /// The bytes that [`PointIndex::candidates`] reads next.
    #[inline]
    #[must_use]
    pub fn entries_bytes(&self, hash: u64) -> &[u8] {
        let Range { start, end } = self.buckets.entries(bucket(hash, self.bucket_count));
        let byte = |entry: u32| (u64::from(entry) * u64::from(self.shape.total_bits()) / 8) as usize;
        self.entries.get(byte(start)..byte(end) + 1).unwrap_or_default()
    }

    /// The candidates for the key with this hash, see [`key_hash`].
    #[inline]
    pub fn candidates(&self, hash: u64) -> Candidates<'_> {
        let Range { start, end } = self.buckets.entries(bucket(hash, self.bucket_count));
        Candidates {
            index: self,
            fingerprint: self.shape.fingerprint(hash),
            next: start,
            end: end.min(self.entry_count),
        }
    }

    #[inline]
    fn candidate(&self, entry: u64) -> Option<Candidate> {
        let shape = self.shape;
        let location = entry >> shape.fingerprint_bits & bits::mask(shape.location_bits);
        let code = entry >> (shape.fingerprint_bits + shape.location_bits);
        let index = self.spans.partition_point(|placed| placed.base_units <= location).checked_sub(1)?;
        let PlacedSpan { span, base_units } = self.spans.get(index)?;
        let within = location - base_units;
        let left_bytes = span.span_units.checked_sub(within)?.saturating_mul(UNIT_BYTES);
        let read_length = u64::from(self.coding.decode(code)?).min(left_bytes) as u32;
        let offset = (span.first_unit + within) * UNIT_BYTES;
        Some(Candidate { address: LogicalAddress { segment: span.id, offset }, read_length })
    }
}

/// Refuses a table that cannot be indexed.
pub(crate) const TOO_LARGE: Error = Error::Invalid("the table's segments span too much for a point index");

#[cfg(test)]
mod tests;
