//! Properties of a table: what is known about it without its index.
//!
//! ```text
//!  frame "FBpr" (see `frame`), fields:
//!  1 key order      u8
//!  2 creation       u64 job, u32 attempt, u8 level that the table was written for
//!  3 bounds         smallest key, largest key: user key after its length (varint), u64 tag
//!  4 sequences      u64 smallest, u64 largest
//!  5 counts         varints: deletions, puts, range deletions, merge operands
//!  6 bytes          varints: user keys, values, records with padding
//!  7 oldest expiry  u64 milliseconds since 1970; absent if no entry expires
//!  8 segments       varint count, then for each, in order of ordinals:
//!                   varint segment id, u8 flags (bit 0: run), varint entries, varint live bytes
//!                   (records with padding), varint first unit, varint units spanned
//!  9 shadowed       varint: entries with the user key of the entry before them; optional, absent if there are none
//! ```
//!
//! All fields except 7 and 9 are always present, each once. All except 9 are mandatory. Older builds do not write field 9,
//! not even where a table's image has it: without it, nothing is known about shadowed entries.
//!
//! Purpose and golden test: `docs/formats/table.md`.

use crate::entry::{IndexEntry, MAX_OFFSET_UNITS, OwnedKey, RangeTombstone, UNIT_BYTES};
use crate::error::{Context, Error, Result};
use crate::frame::{FrameKind, Need, for_each_field, put_field, read_count};
use crate::point_index::SegmentSpan;
use forebay_base::{DecodeError, KeyOrder, Kind, LogicalAddress, Reader, SegmentId, SequenceNumber, Tag, Writer};
use std::cmp::Ordering;

const FRAME: FrameKind = FrameKind { what: "table properties", magic: *b"FBpr", version: 1 };
const RUN_FLAG: u8 = 1;
/// Minimum bytes of a segment in the list.
const LEAST_SEGMENT_BYTES: usize = 6;

/// The job that wrote a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Creation {
    /// The job's number within its shard.
    pub job: u64,
    /// The attempt at the job.
    pub attempt: u32,
    /// The level that the table was written for.
    pub level: u8,
}

/// A segment that holds records of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentUse {
    /// The segment.
    pub id: SegmentId,
    /// Whether the segment is a run that was gathered for a table (clustered): the table's records in it are in key
    /// order. A segment that a flush wrote in one piece ([`SegmentKind::Run`](crate::SegmentKind::Run)) is also in key
    /// order, but is no such run: a flush's records go to many tables of the next levels.
    pub is_run: bool,
    /// Number of the table's entries whose records are in the segment.
    pub entries: u64,
    /// Bytes of those records, with padding.
    pub live_bytes: u64,
    /// Unit of eight bytes at which the first of them starts.
    pub first_unit: u64,
    /// Units from there to the end of the last of them.
    pub span_units: u64,
}

impl SegmentUse {
    /// A use without entries.
    #[must_use]
    pub const fn new(id: SegmentId, is_run: bool) -> Self {
        Self { id, is_run, entries: 0, live_bytes: 0, first_unit: 0, span_units: 0 }
    }

    /// The span, for the point index.
    #[must_use]
    pub const fn span(&self) -> SegmentSpan {
        SegmentSpan { id: self.id, first_unit: self.first_unit, span_units: self.span_units }
    }

    /// Bytes of the segment in the span that belong to no entry of the table.
    #[must_use]
    pub const fn gap_bytes(&self) -> u64 {
        (self.span_units * UNIT_BYTES).saturating_sub(self.live_bytes)
    }

    fn add(&mut self, entry: &IndexEntry<'_>) {
        let start = entry.address.offset_units;
        let end = start + entry.padded_length() / UNIT_BYTES;
        if self.entries == 0 {
            self.first_unit = start;
        }
        let last_end = (self.first_unit + self.span_units).max(end);
        self.first_unit = self.first_unit.min(start);
        self.span_units = last_end - self.first_unit;
        self.entries += 1;
        self.live_bytes += entry.padded_length();
    }
}

/// The properties of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableProperties {
    /// Order of the user keys.
    pub key_order: KeyOrder,
    /// The job that wrote the table.
    pub creation: Creation,
    /// The first key, range deletions included.
    pub smallest: OwnedKey,
    /// The last key. A tag of [`Tag::MAX`] is the end of a range deletion: the table holds only
    /// keys before it.
    pub largest: OwnedKey,
    /// The smallest sequence number.
    pub smallest_sequence: SequenceNumber,
    /// The largest sequence number.
    pub largest_sequence: SequenceNumber,
    /// Number of entries that remove a key.
    pub deletions: u64,
    /// Number of entries that set a key.
    pub puts: u64,
    /// Number of range deletions; they do not count as entries.
    pub range_deletions: u64,
    /// Number of merge operands.
    pub merges: u64,
    /// Bytes of all user keys.
    pub key_bytes: u64,
    /// Bytes of all values.
    pub value_bytes: u64,
    /// Bytes of all records that the table references, with padding.
    pub record_bytes: u64,
    /// The earliest expiry of an entry, in milliseconds since 1970.
    pub oldest_expiry_ms: Option<u64>,
    /// Number of entries that a newer entry of the same key in the table shadows: only a snapshot, or a merge, may need
    /// them. Zero if an older build made the table, or wrote these properties again.
    pub shadowed: u64,
    /// The segments that hold the records, by ordinal.
    pub segments: Vec<SegmentUse>,
}

impl TableProperties {
    /// Number of entries.
    #[must_use]
    pub const fn entries(&self) -> u64 {
        self.puts.saturating_add(self.deletions).saturating_add(self.merges)
    }

    /// Whether these may be the properties of the same table. Older builds leave out the number of shadowed entries where
    /// they write properties again, in a manifest or in a job. So these numbers are not compared.
    #[must_use]
    pub fn agrees_with(&self, other: &Self) -> bool {
        *self == Self { shadowed: self.shadowed, ..other.clone() }
    }

    /// The segment with this ordinal.
    ///
    /// # Errors
    /// [`Error::Inconsistent`] when there is none.
    #[inline]
    pub fn segment(&self, ordinal: u32) -> Result<&SegmentUse> {
        let missing = Error::Inconsistent { what: "an index entry", detail: "its segment is not in the table's list" };
        self.segments.get(ordinal as usize).ok_or(missing)
    }

    /// The segment and the address of an entry's record, which must end within the span that the
    /// table references.
    ///
    /// # Errors
    /// [`Error::Inconsistent`] when it does not.
    #[inline]
    pub fn locate(&self, entry: &IndexEntry<'_>) -> Result<(&SegmentUse, LogicalAddress)> {
        let segment = self.segment(entry.address.ordinal)?;
        let start = entry.address.offset_units;
        let end = start + entry.padded_length() / UNIT_BYTES;
        if start < segment.first_unit || end > segment.first_unit + segment.span_units {
            return Err(Error::Inconsistent { what: "an index entry", detail: "its record is outside of the span" });
        }
        Ok((segment, LogicalAddress { segment: segment.id, offset: start * UNIT_BYTES }))
    }

    /// Whether the table may have an entry or a range deletion for `user_key`.
    #[must_use]
    pub fn may_contain(&self, user_key: &[u8]) -> bool {
        self.key_order.compare(&self.smallest.user_key, user_key) != Ordering::Greater && self.ends_behind(user_key)
    }

    /// Whether the table may have an entry or a range deletion for a key in `[lower, upper)`. An
    /// absent bound is no bound.
    #[must_use]
    pub fn overlaps(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> bool {
        let starts_before = |upper: &[u8]| self.key_order.compare(&self.smallest.user_key, upper) == Ordering::Less;
        upper.is_none_or(starts_before) && lower.is_none_or(|lower| self.ends_behind(lower))
    }

    /// Whether the table may have an entry or a range deletion for `user_key` or a later key.
    #[must_use]
    pub fn ends_behind(&self, user_key: &[u8]) -> bool {
        match self.key_order.compare(user_key, &self.largest.user_key) {
            Ordering::Less => true,
            Ordering::Equal => self.largest.tag != Tag::MAX,
            Ordering::Greater => false,
        }
    }

    /// Appends the properties to `out`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when they are larger than 4 GiB.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        FRAME.encode(out, |body| self.encode_fields(body))
    }

    fn encode_fields(&self, body: &mut Vec<u8>) {
        let mut put = |number, value: &dyn Fn(&mut Vec<u8>)| put_field(body, number, Need::Mandatory, value);
        put(1, &|out| out.put_u8(self.key_order as u8));
        put(2, &|out| {
            out.put_u64(self.creation.job);
            out.put_u32(self.creation.attempt);
            out.put_u8(self.creation.level);
        });
        put(3, &|out| {
            self.smallest.encode(out);
            self.largest.encode(out);
        });
        put(4, &|out| {
            out.put_u64(self.smallest_sequence.0);
            out.put_u64(self.largest_sequence.0);
        });
        put(5, &|out| {
            for count in [self.deletions, self.puts, self.range_deletions, self.merges] {
                out.put_varint(count);
            }
        });
        put(6, &|out| {
            for bytes in [self.key_bytes, self.value_bytes, self.record_bytes] {
                out.put_varint(bytes);
            }
        });
        if let Some(expiry) = self.oldest_expiry_ms {
            put(7, &|out| out.put_u64(expiry));
        }
        put(8, &|out| {
            out.put_varint(self.segments.len() as u64);
            for segment in &self.segments {
                out.put_varint(segment.id.0);
                out.put_u8(if segment.is_run { RUN_FLAG } else { 0 });
                for number in [segment.entries, segment.live_bytes, segment.first_unit, segment.span_units] {
                    out.put_varint(number);
                }
            }
        });
        if self.shadowed > 0 {
            put_field(body, 9, Need::Optional, |value| value.put_varint(self.shadowed));
        }
    }

    /// Decodes properties.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Inconsistent`] or [`Error::Unknown`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let body = FRAME.decode(bytes)?;
        let empty = OwnedKey { user_key: Vec::new(), tag: Tag::MAX };
        let mut properties = Self {
            key_order: KeyOrder::Bytewise,
            creation: Creation::default(),
            smallest: empty.clone(),
            largest: empty,
            smallest_sequence: SequenceNumber::ZERO,
            largest_sequence: SequenceNumber::ZERO,
            deletions: 0,
            puts: 0,
            range_deletions: 0,
            merges: 0,
            key_bytes: 0,
            value_bytes: 0,
            record_bytes: 0,
            oldest_expiry_ms: None,
            shadowed: 0,
            segments: Vec::new(),
        };
        let mut seen = 0u32;
        for_each_field(body, FRAME.what, |number, value| {
            if !(1..=9).contains(&number) {
                return Ok(false);
            }
            seen |= 1 << number;
            properties.decode_field(number, value).context(FRAME.what)?;
            Ok(true)
        })?;
        if seen | 1 << 7 | 1 << 9 != 0b11_1111_1110 {
            return Err(Error::Inconsistent { what: FRAME.what, detail: "a field is missing" });
        }
        if properties.smallest_sequence > properties.largest_sequence {
            return Err(Error::Inconsistent { what: FRAME.what, detail: "the sequence numbers are out of order" });
        }
        let order = properties.key_order;
        if order.compare_internal(properties.smallest.as_key(), properties.largest.as_key()) == Ordering::Greater {
            return Err(Error::Inconsistent { what: FRAME.what, detail: "the smallest key is behind the largest" });
        }
        Ok(properties)
    }

    fn decode_field(&mut self, number: u64, value: &mut Reader<'_>) -> std::result::Result<(), DecodeError> {
        match number {
            1 => self.key_order = read_key_order(value)?,
            2 => self.creation = Creation { job: value.u64()?, attempt: value.u32()?, level: value.u8()? },
            3 => {
                self.smallest = OwnedKey::decode(value)?;
                self.largest = OwnedKey::decode(value)?;
            }
            4 => {
                self.smallest_sequence = read_sequence(value)?;
                self.largest_sequence = read_sequence(value)?;
            }
            5 => {
                self.deletions = value.varint64()?;
                self.puts = value.varint64()?;
                self.range_deletions = value.varint64()?;
                self.merges = value.varint64()?;
            }
            6 => {
                self.key_bytes = value.varint64()?;
                self.value_bytes = value.varint64()?;
                self.record_bytes = value.varint64()?;
            }
            7 => self.oldest_expiry_ms = Some(value.u64()?),
            9 => self.shadowed = value.varint64()?,
            _ => {
                let count = read_count(value, LEAST_SEGMENT_BYTES)?;
                self.segments = (0..count).map(|_| decode_segment_use(value)).collect::<std::result::Result<_, _>>()?;
            }
        }
        Ok(())
    }
}

fn decode_segment_use(value: &mut Reader<'_>) -> std::result::Result<SegmentUse, DecodeError> {
    let id = SegmentId(value.varint64()?);
    let flags = value.u8()?;
    if flags & !RUN_FLAG != 0 {
        return Err(DecodeError::BadValue { what: "flags of a segment", found: flags.into() });
    }
    let (entries, live_bytes) = (value.varint64()?, value.varint64()?);
    let (first_unit, span_units) = (value.varint64()?, value.varint64()?);
    if first_unit >= MAX_OFFSET_UNITS || span_units > MAX_OFFSET_UNITS - first_unit {
        return Err(DecodeError::BadValue { what: "span of a segment", found: span_units });
    }
    Ok(SegmentUse { id, is_run: flags & RUN_FLAG != 0, entries, live_bytes, first_unit, span_units })
}

pub(crate) fn read_key_order(value: &mut Reader<'_>) -> std::result::Result<KeyOrder, DecodeError> {
    let number = value.u8()?;
    KeyOrder::from_number(number).ok_or(DecodeError::BadValue { what: "key order", found: number.into() })
}

pub(crate) fn read_sequence(value: &mut Reader<'_>) -> std::result::Result<SequenceNumber, DecodeError> {
    let number = value.u64()?;
    if number > SequenceNumber::MAX.0 {
        return Err(DecodeError::BadValue { what: "sequence number", found: number });
    }
    Ok(SequenceNumber(number))
}

/// Collects properties while entries are added in order.
#[derive(Debug)]
pub(crate) struct PropertiesBuilder {
    properties: TableProperties,
    has_keys: bool,
}

impl PropertiesBuilder {
    pub fn new(key_order: KeyOrder, creation: Creation) -> Self {
        let empty = OwnedKey { user_key: Vec::new(), tag: Tag::MAX };
        let properties = TableProperties {
            key_order,
            creation,
            smallest: empty.clone(),
            largest: empty,
            smallest_sequence: SequenceNumber::MAX,
            largest_sequence: SequenceNumber::ZERO,
            deletions: 0,
            puts: 0,
            range_deletions: 0,
            merges: 0,
            key_bytes: 0,
            value_bytes: 0,
            record_bytes: 0,
            oldest_expiry_ms: None,
            shadowed: 0,
            segments: Vec::new(),
        };
        Self { properties, has_keys: false }
    }

    pub const fn properties(&self) -> &TableProperties {
        &self.properties
    }

    pub const fn segments_mut(&mut self) -> &mut Vec<SegmentUse> {
        &mut self.properties.segments
    }

    /// Counts an entry whose segment is listed. A shadowed one has the user key of the entry before it.
    pub fn add(&mut self, entry: &IndexEntry<'_>, is_shadowed: bool) {
        let properties = &mut self.properties;
        match entry.key.tag.kind() {
            Kind::Delete => properties.deletions += 1,
            Kind::Merge => properties.merges += 1,
            Kind::Put | Kind::RangeDelete | Kind::Nothing | Kind::Crossing => properties.puts += 1,
        }
        properties.key_bytes += entry.key.user_key.len() as u64;
        properties.value_bytes += entry.value_length().unwrap_or(0) as u64;
        properties.record_bytes += entry.padded_length();
        properties.shadowed += u64::from(is_shadowed);
        if let Some(expiry) = entry.expiry_ms {
            properties.oldest_expiry_ms = Some(properties.oldest_expiry_ms.map_or(expiry, |oldest| oldest.min(expiry)));
        }
        if let Some(segment) = properties.segments.get_mut(entry.address.ordinal as usize) {
            segment.add(entry);
        }
        self.cover_sequence(entry.key.tag);
        if !self.has_keys {
            self.properties.smallest = entry.key.into();
        }
        self.has_keys = true;
    }

    fn cover_sequence(&mut self, tag: Tag) {
        let properties = &mut self.properties;
        properties.smallest_sequence = properties.smallest_sequence.min(tag.sequence());
        properties.largest_sequence = properties.largest_sequence.max(tag.sequence());
    }

    /// The properties of a table with this last entry and these range deletions.
    pub fn finish(mut self, last: Option<OwnedKey>, tombstones: &[RangeTombstone]) -> TableProperties {
        if let Some(last) = last {
            self.properties.largest = last;
        }
        for tombstone in tombstones {
            self.cover_sequence(tombstone.tag);
            let order = self.properties.key_order;
            let start = OwnedKey { user_key: tombstone.start.clone(), tag: tombstone.tag };
            let end = OwnedKey { user_key: tombstone.end.clone(), tag: Tag::MAX };
            let (smallest, largest) = (&mut self.properties.smallest, &mut self.properties.largest);
            if !self.has_keys || order.compare_internal(start.as_key(), smallest.as_key()) == Ordering::Less {
                *smallest = start;
            }
            if !self.has_keys || order.compare_internal(end.as_key(), largest.as_key()) == Ordering::Greater {
                *largest = end;
            }
            self.has_keys = true;
        }
        self.properties.range_deletions = tombstones.len() as u64;
        self.properties
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::RecordAddress;
    use forebay_base::InternalKey;
    use proptest::prelude::*;

    fn sample() -> TableProperties {
        let mut builder = PropertiesBuilder::new(KeyOrder::Bytewise, Creation { job: 5, attempt: 2, level: 1 });
        builder.segments_mut().push(SegmentUse::new(SegmentId(9), true));
        for (key, sequence, offset_units) in [(b"a", 4, 20), (b"b", 3, 10)] {
            let tag = Tag::new(SequenceNumber(sequence), Kind::Put, false);
            let key = InternalKey { user_key: key, tag };
            let address = RecordAddress { ordinal: 0, offset_units };
            builder.add(&IndexEntry { key, address, length: 17, expiry_ms: None }, false);
        }
        let last = OwnedKey { user_key: b"b".to_vec(), tag: Tag::new(SequenceNumber(3), Kind::Put, false) };
        builder.finish(Some(last), &[])
    }

    #[test]
    fn golden_bytes() {
        let mut out = Vec::new();
        sample().encode(&mut out).unwrap();
        let expected: &[u8] = &[
            b'F', b'B', b'p', b'r', 1, 0, 0, 0, 78, 0, 0, 0, // frame
            2, 1, 0, // key order
            4, 13, 5, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, // creation
            6, 20, 1, b'a', 1, 4, 0, 0, 0, 0, 0, 0, 1, b'b', 1, 3, 0, 0, 0, 0, 0, 0, // bounds
            8, 16, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, // sequences
            10, 4, 0, 2, 0, 0, // counts
            12, 3, 2, 4, 48, // bytes
            16, 7, 1, 9, 1, 2, 48, 10, 13, // segments
        ];
        assert_eq!(&out[..out.len() - 4], expected, "{out:?}");
        assert_eq!(TableProperties::decode(&out), Ok(sample()));
    }

    /// Only an optional field at the end tells of shadowed entries, so older builds read the rest.
    #[test]
    fn golden_bytes_of_shadowed_entries() {
        let shadowed = TableProperties { shadowed: 300, ..sample() };
        let (mut without, mut with) = (Vec::new(), Vec::new());
        sample().encode_fields(&mut without);
        shadowed.encode_fields(&mut with);
        assert_eq!(with.strip_prefix(&without[..]), Some(&[19, 2, 0xac, 2][..]));
        let mut out = Vec::new();
        shadowed.encode(&mut out).unwrap();
        assert_eq!(TableProperties::decode(&out).as_ref(), Ok(&shadowed));
        // An older build leaves out that field, and nothing else.
        assert!(shadowed.agrees_with(&sample()) && sample().agrees_with(&shadowed));
        assert!(!shadowed.agrees_with(&TableProperties { puts: 3, ..sample() }));
    }

    #[test]
    fn a_missing_field_is_found() {
        let mut out = Vec::new();
        FRAME.encode(&mut out, |body| put_field(body, 1, Need::Mandatory, |value| value.put_u8(0))).unwrap();
        assert!(matches!(TableProperties::decode(&out), Err(Error::Inconsistent { .. })));
    }

    #[test]
    fn bounds_cover_range_deletions() {
        let tag = Tag::new(SequenceNumber(8), Kind::RangeDelete, false);
        let tombstone = RangeTombstone { start: b"c".to_vec(), end: b"f".to_vec(), tag };
        let builder = PropertiesBuilder::new(KeyOrder::Bytewise, Creation::default());
        let properties = builder.finish(None, std::slice::from_ref(&tombstone));
        assert!(properties.may_contain(b"c") && properties.may_contain(b"ee") && !properties.may_contain(b"f"));
        assert!(!properties.overlaps(Some(b"f"), None) && !properties.overlaps(None, Some(b"c")));
        assert!(properties.overlaps(Some(b"e"), Some(b"ea")));
    }

    proptest! {
        #[test]
        fn any_fields_decode_without_panic(changes in prop::collection::vec((0usize..80, any::<u8>()), 1..6)) {
            let mut body = Vec::new();
            sample().encode_fields(&mut body);
            for (at, byte) in changes {
                let length = body.len();
                body[at % length] = byte;
            }
            let mut out = Vec::new();
            FRAME.encode(&mut out, |bytes| bytes.extend_from_slice(&body)).unwrap();
            let _ = TableProperties::decode(&out);
        }
    }
}
