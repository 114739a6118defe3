//! The record: one write, self-describing.
//!
//! A record has the same bytes in a memtable's block, in remote memory and in storage. So flush and replication
//! copy it unchanged, and a reader can verify it alone.
//!
//! ```text
//!  offset  size  field
//!  0       4     CRC32C of bytes 4 … end (without padding)
//!  4       8     tag: sequence number, flags, kind (see `sequence::Tag`)
//!  12      1–3   key length, varint, at most 65,536
//!  …       1–4   value length, varint, at most 64 MiB
//!  …       8     expiry, milliseconds since 1970, only if the tag says so
//!  …             key
//!  …             value
//!  …       0–7   padding with zeros up to a multiple of 8
//! ```
//!
//! All integers are little-endian. A record starts at a multiple of 8. A tag of zero with a checksum of zero is
//! not a record: unwritten memory is zero. Format version 1; a change of this layout needs a new version in the
//! segment map's entries of the segments that use it. Summary and limits: `docs/formats/record.md`.

use crate::coding::{DecodeError, MAX_VARINT_BYTES, Reader, encode_varint, varint_length};
use crate::sequence::{Kind, SequenceNumber, Tag};
use crate::{MAX_KEY_BYTES, MAX_VALUE_BYTES, checksum, checksum_append};
use thiserror::Error;

/// Records start at multiples of this many bytes.
pub const ALIGNMENT: usize = 8;
/// Bytes before the lengths.
const FIXED_BYTES: usize = 12;
/// The longest header: fixed part, two lengths, expiry.
pub const MAX_HEADER_BYTES: usize = FIXED_BYTES + 3 + 4 + 8;
/// The shortest record with padding.
pub const MIN_RECORD_BYTES: usize = 16;

const _: () = assert!(MAX_KEY_BYTES < 1 << 21 && MAX_VALUE_BYTES < 1 << 28);

/// Why bytes are not a record.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecordError {
    /// The bytes cannot be decoded, or the checksum does not match.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The tag has an unknown kind or flag.
    #[error("the tag {0:#018x} has an unknown kind or flag")]
    BadTag(u64),
}

/// A decoded record, borrowing from the bytes that it was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Sequence number and kind.
    pub tag: Tag,
    /// Milliseconds since 1970 after which the record counts as deleted.
    pub expiry_ms: Option<u64>,
    /// The user key.
    pub key: &'a [u8],
    /// The value; empty for a deletion, the end key for a range deletion, the operand of a merge.
    pub value: &'a [u8],
}

/// The contents of a record's header, available before the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// Sequence number and kind.
    pub tag: Tag,
    /// Bytes from the record's start to its key.
    pub key_offset: usize,
    /// Length of the key in bytes.
    pub key_length: usize,
    /// Length of the value in bytes.
    pub value_length: usize,
    /// The expiry, if any.
    pub expiry_ms: Option<u64>,
    checksum: u32,
}

impl RecordHeader {
    /// Decodes the header at the front of `bytes`, which may be longer or end anywhere after the header. Checks the
    /// lengths against the limits, but not the checksum.
    ///
    /// # Errors
    /// [`RecordError`].
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        match Self::decode_usual(bytes) {
            Some(header) => Ok(header),
            None => Self::decode_any(bytes),
        }
    }

    /// Decodes the usual header: a key below 128 bytes, a value below 16 KiB, no expiry. `None` for any other header,
    /// and for fewer than 16 bytes.
    #[inline]
    fn decode_usual(bytes: &[u8]) -> Option<Self> {
        let head = u128::from_le_bytes(*bytes.first_chunk()?);
        let [key_length, low, high, _] = ((head >> 96) as u32).to_le_bytes();
        let (value_length, key_offset) = match (low, high) {
            (..0x80, _) => (usize::from(low), FIXED_BYTES + 2),
            (_, 1..0x80) => (usize::from(low & 0x7f) | usize::from(high) << 7, FIXED_BYTES + 3),
            _ => return None,
        };
        let tag = Tag::from_word((head >> 32) as u64).filter(|tag| !tag.has_expiry() && key_length < 0x80)?;
        let key_length = key_length.into();
        Some(Self { tag, key_offset, key_length, value_length, expiry_ms: None, checksum: head as u32 })
    }

    #[cold]
    fn decode_any(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::new(bytes);
        let checksum = reader.u32()?;
        let word = reader.u64()?;
        let tag = Tag::from_word(word).ok_or(RecordError::BadTag(word))?;
        let key_length = reader.varint32()? as usize;
        let value_length = reader.varint32()? as usize;
        if key_length > MAX_KEY_BYTES {
            return Err(DecodeError::BadValue { what: "key length", found: key_length as u64 }.into());
        }
        if value_length > MAX_VALUE_BYTES {
            return Err(DecodeError::BadValue { what: "value length", found: value_length as u64 }.into());
        }
        let expiry_ms = if tag.has_expiry() { Some(reader.u64()?) } else { None };
        Ok(Self { tag, key_offset: reader.offset(), key_length, value_length, expiry_ms, checksum })
    }

    /// Length of the record in bytes, without padding.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.key_offset + self.key_length + self.value_length
    }

    /// Length of the record in bytes, with padding.
    #[inline]
    #[must_use]
    pub const fn padded_length(&self) -> usize {
        pad(self.length())
    }

    /// Verifies the checksum of the record at the front of `bytes`, which has this header.
    ///
    /// # Errors
    /// [`RecordError`], also when `bytes` ends before the record does.
    #[inline]
    pub fn verify(&self, bytes: &[u8]) -> Result<(), RecordError> {
        let length = self.length();
        let short =
            DecodeError::Truncated { offset: 4, needed: length.saturating_sub(4), left: bytes.len().saturating_sub(4) };
        let found = checksum(bytes.get(4..length).ok_or(short)?);
        if found != self.checksum {
            return Err(DecodeError::BadChecksum { what: "record", expected: self.checksum, found }.into());
        }
        Ok(())
    }
}

/// Iterates over the consecutive records in `bytes`: where each begins, and its header. Nothing is verified, and the last
/// record may be cut off. Ends after the first error.
pub fn headers(bytes: &[u8]) -> impl Iterator<Item = Result<(usize, RecordHeader), RecordError>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at;
        let rest = bytes.get(start..).filter(|rest| !rest.is_empty())?;
        let header = RecordHeader::decode(rest);
        at = header.as_ref().map_or(bytes.len(), |header| start.saturating_add(header.padded_length()));
        Some(header.map(|header| (start, header)))
    })
}

/// Whether a record with this expiry counts as deleted at `now_ms`, both in milliseconds since 1970.
#[inline]
#[must_use]
pub const fn is_expired(expiry_ms: Option<u64>, now_ms: u64) -> bool {
    matches!(expiry_ms, Some(expiry_ms) if expiry_ms < now_ms)
}

/// `length` rounded up to a multiple of [`ALIGNMENT`].
#[must_use]
pub const fn pad(length: usize) -> usize {
    length.next_multiple_of(ALIGNMENT)
}

impl<'a> Record<'a> {
    /// A record that sets `key` to `value`.
    #[must_use]
    pub const fn put(sequence: SequenceNumber, key: &'a [u8], value: &'a [u8]) -> Self {
        Self { tag: Tag::new(sequence, Kind::Put, false), expiry_ms: None, key, value }
    }

    /// A record that removes `key`.
    #[must_use]
    pub const fn delete(sequence: SequenceNumber, key: &'a [u8]) -> Self {
        Self { tag: Tag::new(sequence, Kind::Delete, false), expiry_ms: None, key, value: &[] }
    }

    /// Length in bytes of a record with these lengths, with padding. The caller checks the limits on keys and values.
    #[inline]
    #[must_use]
    pub const fn encoded_length(key_length: usize, value_length: usize, has_expiry: bool) -> usize {
        let lengths = varint_length(key_length as u64) + varint_length(value_length as u64);
        let expiry = if has_expiry { 8 } else { 0 };
        pad(FIXED_BYTES + lengths + expiry + key_length + value_length)
    }

    /// Length of the record in bytes, without padding.
    #[inline]
    #[must_use]
    pub const fn length(&self) -> usize {
        let lengths = varint_length(self.key.len() as u64) + varint_length(self.value.len() as u64);
        let expiry = if self.tag.has_expiry() { 8 } else { 0 };
        FIXED_BYTES + lengths + expiry + self.key.len() + self.value.len()
    }

    /// Passes the record's parts to `sink` in order, each with its offset from the record's start. The parts together
    /// are exactly [`Record::encoded_length`] bytes. So a record can be written into shared memory without an
    /// intermediate copy.
    #[inline]
    pub fn write_parts(&self, mut sink: impl FnMut(usize, &[u8])) {
        let mut header = [0u8; MAX_HEADER_BYTES];
        header[4..12].copy_from_slice(&self.tag.word().to_le_bytes());
        let mut at = FIXED_BYTES;
        let mut scratch = [0; MAX_VARINT_BYTES];
        for length in [self.key.len(), self.value.len()] {
            let n = encode_varint(length as u64, &mut scratch);
            header[at..at + n].copy_from_slice(&scratch[..n]);
            at += n;
        }
        if self.tag.has_expiry() {
            header[at..at + 8].copy_from_slice(&self.expiry_ms.unwrap_or(0).to_le_bytes());
            at += 8;
        }
        let mut crc = checksum(&header[4..at]);
        crc = checksum_append(crc, self.key);
        crc = checksum_append(crc, self.value);
        header[..4].copy_from_slice(&crc.to_le_bytes());
        let length = at + self.key.len() + self.value.len();
        sink(0, &header[..at]);
        sink(at, self.key);
        sink(at + self.key.len(), self.value);
        sink(length, &[0; ALIGNMENT][..pad(length) - length]);
    }

    /// Writes the record, padded, to `out`, which has that length. One checksum over the written bytes costs half as
    /// much as three over the parts.
    ///
    /// # Panics
    /// When `out` has another length than [`Record::encoded_length`].
    #[inline]
    pub fn encode_into(&self, out: &mut [u8]) {
        let (header, body) = out.split_at_mut(self.length() - self.key.len() - self.value.len());
        header[4..FIXED_BYTES].copy_from_slice(&self.tag.word().to_le_bytes());
        let mut at = FIXED_BYTES;
        for length in [self.key.len(), self.value.len()] {
            let mut scratch = [0; MAX_VARINT_BYTES];
            let n = encode_varint(length as u64, &mut scratch);
            header[at..at + n].copy_from_slice(&scratch[..n]);
            at += n;
        }
        if self.tag.has_expiry() {
            header[at..].copy_from_slice(&self.expiry_ms.unwrap_or(0).to_le_bytes());
        }
        let (key, rest) = body.split_at_mut(self.key.len());
        let (value, padding) = rest.split_at_mut(self.value.len());
        key.copy_from_slice(self.key);
        value.copy_from_slice(self.value);
        padding.copy_from_slice(&[0; ALIGNMENT][..pad(self.length()) - self.length()]);
        let crc = checksum(&out[4..self.length()]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Appends the record, padded, to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.write_parts(|_, bytes| out.extend_from_slice(bytes));
    }

    /// Decodes and verifies the record at the front of `bytes`, which may be longer.
    ///
    /// # Errors
    /// [`RecordError`], also when `bytes` ends before the record does.
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let (record, header) = Self::decode_unverified(bytes)?;
        header.verify(bytes)?;
        Ok(record)
    }

    /// Decodes the record at the front of `bytes` without verifying its checksum, for bytes that never left this
    /// process.
    ///
    /// # Errors
    /// [`RecordError`].
    #[inline]
    pub fn decode_unverified(bytes: &'a [u8]) -> Result<(Self, RecordHeader), RecordError> {
        let header = RecordHeader::decode(bytes)?;
        let mut reader = Reader::new(bytes);
        reader.bytes(header.key_offset)?;
        let key = reader.bytes(header.key_length)?;
        let value = reader.bytes(header.value_length)?;
        Ok((Self { tag: header.tag, expiry_ms: header.expiry_ms, key, value }, header))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let mut out = Vec::new();
        Record::put(SequenceNumber(0x0a0b), b"key", b"value").encode(&mut out);
        assert_eq!(
            out,
            [
                0x75, 0x33, 0x41, 0xac, 1, 0x0b, 0x0a, 0, 0, 0, 0, 0, 3, 5, b'k', b'e', b'y', b'v', b'a', b'l', b'u',
                b'e', 0, 0
            ]
        );
        out.clear();
        let tag = Tag::new(SequenceNumber(0x0a0b), Kind::Merge, false);
        Record { tag, expiry_ms: None, key: b"key", value: &1i64.to_le_bytes() }.encode(&mut out);
        assert_eq!(
            out[4..],
            [3, 0x0b, 0x0a, 0, 0, 0, 0, 0, 3, 8, b'k', b'e', b'y', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        out.clear();
        Record::delete(SequenceNumber(1), b"").encode(&mut out);
        assert_eq!(out.len(), MIN_RECORD_BYTES);
    }

    #[test]
    fn records_are_found_one_behind_the_other() {
        let mut out = Vec::new();
        for number in 1..=3 {
            Record::put(SequenceNumber(number), b"key", &[7; 20]).encode(&mut out);
        }
        fn found(bytes: &[u8]) -> Vec<Option<(usize, u64)>> {
            headers(bytes).map(|found| found.ok().map(|(at, header)| (at, header.tag.sequence().0))).collect()
        }
        assert_eq!(found(&out), [Some((0, 1)), Some((40, 2)), Some((80, 3))]);
        // The last record first has a header, then none.
        assert_eq!(found(&out[..100]), [Some((0, 1)), Some((40, 2)), Some((80, 3))]);
        assert_eq!(found(&out[..85]), [Some((0, 1)), Some((40, 2)), None]);
        out[44..52].fill(0xff);
        assert_eq!(found(&out), [Some((0, 1)), None]);
        assert!(found(&[]).is_empty());
    }

    #[test]
    fn zeros_are_no_record() {
        assert!(Record::decode(&[0; 64]).is_err());
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let mut out = Vec::new();
        Record::put(SequenceNumber(77), b"some key", b"some value").encode(&mut out);
        let length = RecordHeader::decode(&out).unwrap().length();
        for bit in 0..length * 8 {
            let mut bad = out.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::decode(&bad).is_err(), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn records_round_trip(sequence in 0u64..1 << 56, key: Vec<u8>, value: Vec<u8>, expiry: Option<u64>) {
            let tag = Tag::new(SequenceNumber(sequence), Kind::Put, expiry.is_some());
            let record = Record { tag, expiry_ms: expiry, key: &key, value: &value };
            let mut out = Vec::new();
            record.encode(&mut out);
            prop_assert_eq!(out.len(), Record::encoded_length(key.len(), value.len(), expiry.is_some()));
            let mut written = vec![0xee; out.len()];
            record.encode_into(&mut written);
            prop_assert_eq!(&written, &out);
            prop_assert_eq!(Record::decode(&out).unwrap(), record);
            prop_assert_eq!(record.length(), RecordHeader::decode(&out).unwrap().length());
            prop_assert_eq!(RecordHeader::decode(&out).unwrap(), RecordHeader::decode_any(&out).unwrap());
            for cut in 0..RecordHeader::decode(&out).unwrap().length() {
                prop_assert!(Record::decode(&out[..cut]).is_err());
            }
        }

        #[test]
        fn any_bytes_decode_without_panic(bytes: Vec<u8>) {
            let _ = Record::decode(&bytes);
        }

        #[test]
        fn any_header_decodes_the_same_way(
            tag: [u8; 8], key: u8, value in prop::array::uniform4(prop::sample::select(vec![0u8, 1, 0x7f, 0x80, 0x81, 0xff])),
            rest: Vec<u8>,
        ) {
            let lengths = [&[key][..], &value].concat();
            let plain = [tag[0] & 0x13, tag[1]];
            for kind in [&tag[..2], &plain] {
                let bytes = [&[1, 2, 3, 4], kind, &tag[2..], &lengths, &rest].concat();
                prop_assert_eq!(RecordHeader::decode(&bytes), RecordHeader::decode_any(&bytes));
            }
        }
    }
}
