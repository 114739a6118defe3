//! Entries of a table's index, and the places of their records.
//!
//! An entry is an internal key with the address and the length of its record. Inside an image the
//! address names the segment by its **ordinal** in the table's segment list, and the offset in
//! **units** of eight bytes, at which records are aligned. How an entry is stored: `coding`.
//!
//! Purpose and golden test: `docs/formats/table.md`.

use crate::error::{Error, Result};
use forebay_base::coding::varint_length;
use forebay_base::record::{ALIGNMENT, MAX_HEADER_BYTES, pad};
use forebay_base::{DecodeError, InternalKey, KeyOrder, MAX_KEY_BYTES, MAX_VALUE_BYTES, Reader, Tag, Writer};
use std::cmp::Ordering;

/// Bytes of one unit of an offset.
pub const UNIT_BYTES: u64 = ALIGNMENT as u64;
/// Longest record without padding, in bytes.
pub const MAX_RECORD_BYTES: usize = MAX_HEADER_BYTES + MAX_KEY_BYTES + MAX_VALUE_BYTES;
/// Largest offset in units: a segment ends before 2^53 bytes.
pub const MAX_OFFSET_UNITS: u64 = 1 << 50;

const _: () = assert!(UNIT_BYTES == 8 && MAX_RECORD_BYTES < u32::MAX as usize);

/// The place of an entry's record, relative to its table's segment list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecordAddress {
    /// Position of the segment in the table's segment list.
    pub ordinal: u32,
    /// Offset in the segment in units of eight bytes.
    pub offset_units: u64,
}

/// One entry of a table's index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry<'a> {
    /// User key, sequence number and kind.
    pub key: InternalKey<'a>,
    /// The place of the record.
    pub address: RecordAddress,
    /// Length of the record in bytes, without padding.
    pub length: u32,
    /// Milliseconds since 1970 after which the record counts as deleted.
    pub expiry_ms: Option<u64>,
}

impl IndexEntry<'_> {
    /// Bytes that the record takes in its segment, with padding.
    #[must_use]
    pub const fn padded_length(&self) -> u64 {
        pad(self.length as usize) as u64
    }

    /// Length of the record's value in bytes, computed from the lengths of record and key. `None` when no record can
    /// have these lengths.
    #[inline]
    #[must_use]
    pub fn value_length(&self) -> Option<u32> {
        let key = self.key.user_key.len();
        let expiry = if self.key.tag.has_expiry() { 8 } else { 0 };
        let rest = (self.length as usize).checked_sub(12 + varint_length(key as u64) + expiry + key)?;
        (1..=4).find_map(|size| {
            let value = rest.checked_sub(size)?;
            (varint_length(value as u64) == size && value <= MAX_VALUE_BYTES).then_some(value as u32)
        })
    }

    /// Checks the preconditions of the codec.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.key.user_key.len() > MAX_KEY_BYTES {
            return Err(Error::Invalid("the key is longer than 64 KiB"));
        }
        if self.address.offset_units >= MAX_OFFSET_UNITS {
            return Err(Error::Invalid("the record's offset is past the largest segment"));
        }
        if self.key.tag.has_expiry() != self.expiry_ms.is_some() || Tag::from_word(self.key.tag.word()).is_none() {
            return Err(Error::Invalid("the entry's tag is no record's"));
        }
        match self.value_length() {
            Some(_) => Ok(()),
            None => Err(Error::Invalid("the record's length does not fit its key")),
        }
    }
}

/// An entry without its user key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryTail {
    pub tag: Tag,
    pub address: RecordAddress,
    pub length: u32,
    pub expiry_ms: Option<u64>,
}

impl EntryTail {
    /// The rest of an entry.
    #[inline]
    pub const fn of(entry: &IndexEntry<'_>) -> Self {
        let IndexEntry { key, address, length, expiry_ms } = *entry;
        Self { tag: key.tag, address, length, expiry_ms }
    }

    /// The entry of this user key.
    #[inline]
    pub const fn entry(self, user_key: &[u8]) -> IndexEntry<'_> {
        let Self { tag, address, length, expiry_ms } = self;
        IndexEntry { key: InternalKey { user_key, tag }, address, length, expiry_ms }
    }
}

/// An internal key that owns its user key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedKey {
    /// The key as given by the user.
    pub user_key: Vec<u8>,
    /// Sequence number and kind; [`Tag::MAX`] makes it a bound before every entry of the key.
    pub tag: Tag,
}

impl OwnedKey {
    /// The key, borrowed.
    #[must_use]
    pub fn as_key(&self) -> InternalKey<'_> {
        InternalKey { user_key: &self.user_key, tag: self.tag }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_prefixed(&self.user_key);
        out.put_u64(self.tag.word());
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        let user_key = reader.prefixed()?;
        if user_key.len() > MAX_KEY_BYTES {
            return Err(DecodeError::BadValue { what: "key length", found: user_key.len() as u64 });
        }
        let tag = read_bound_tag(reader)?;
        Ok(Self { user_key: user_key.to_vec(), tag })
    }
}

impl From<InternalKey<'_>> for OwnedKey {
    fn from(key: InternalKey<'_>) -> Self {
        Self { user_key: key.user_key.to_vec(), tag: key.tag }
    }
}

/// Reads a record's tag or [`Tag::MAX`].
pub(crate) fn read_bound_tag(reader: &mut Reader<'_>) -> std::result::Result<Tag, DecodeError> {
    let word = reader.u64()?;
    if word == Tag::MAX.word() {
        return Ok(Tag::MAX);
    }
    Tag::from_word(word).ok_or(DecodeError::BadValue { what: "tag", found: word })
}

/// A range deletion: removes every key from `start` (included) to `end` (excluded) that is older than `tag`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeTombstone {
    /// The first key removed.
    pub start: Vec<u8>,
    /// The first key not removed.
    pub end: Vec<u8>,
    /// Sequence number and kind.
    pub tag: Tag,
}

impl RangeTombstone {
    /// Whether the tombstone's range contains `user_key`.
    #[must_use]
    pub fn contains(&self, order: KeyOrder, user_key: &[u8]) -> bool {
        order.compare(&self.start, user_key) != Ordering::Greater
            && order.compare(user_key, &self.end) == Ordering::Less
    }

    /// The part of the tombstone in `[lower, upper)`. An absent bound is no bound.
    #[must_use]
    pub fn clipped(&self, order: KeyOrder, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Option<Self> {
        let start = match lower {
            Some(lower) if order.compare(lower, &self.start) == Ordering::Greater => lower,
            _ => &self.start,
        };
        let end = match upper {
            Some(upper) if order.compare(upper, &self.end) == Ordering::Less => upper,
            _ => &self.end,
        };
        (order.compare(start, end) == Ordering::Less).then(|| Self {
            start: start.to_vec(),
            end: end.to_vec(),
            tag: self.tag,
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_prefixed(&self.start);
        out.put_prefixed(&self.end);
        out.put_u64(self.tag.word());
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        let (start, end) = (reader.prefixed()?.to_vec(), reader.prefixed()?.to_vec());
        for key in [&start, &end] {
            if key.len() > MAX_KEY_BYTES {
                return Err(DecodeError::BadValue { what: "key length", found: key.len() as u64 });
            }
        }
        let word = reader.u64()?;
        let tag = Tag::from_word(word).ok_or(DecodeError::BadValue { what: "tag", found: word })?;
        Ok(Self { start, end, tag })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::{Kind, Record, RecordHeader, SequenceNumber};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lengths_determine_the_value(key in prop::collection::vec(any::<u8>(), 0..300), value in 0usize..40_000,
                                       expiry: Option<u64>) {
            let tag = Tag::new(SequenceNumber(9), Kind::Put, expiry.is_some());
            let record = Record { tag, expiry_ms: expiry, key: &key, value: &vec![0; value] };
            let mut out = Vec::new();
            record.encode(&mut out);
            let length = RecordHeader::decode(&out).unwrap().length() as u32;
            let address = RecordAddress { ordinal: 0, offset_units: 0 };
            let entry = IndexEntry { key: InternalKey { user_key: &key, tag }, address, length, expiry_ms: expiry };
            prop_assert_eq!(entry.value_length(), Some(value as u32));
            prop_assert!(entry.check().is_ok());
        }
    }

    #[test]
    fn tombstones_are_clipped() {
        let tag = Tag::new(SequenceNumber(1), Kind::RangeDelete, false);
        let whole = RangeTombstone { start: b"b".to_vec(), end: b"f".to_vec(), tag };
        let order = KeyOrder::Bytewise;
        assert!(whole.contains(order, b"b") && !whole.contains(order, b"f"));
        let part = whole.clipped(order, Some(b"c"), Some(b"z")).unwrap();
        assert_eq!((part.start.as_slice(), part.end.as_slice()), (b"c".as_slice(), b"f".as_slice()));
        assert_eq!(whole.clipped(order, Some(b"f"), None), None);
        assert_eq!(whole.clipped(order, None, Some(b"b")), None);
    }
}
