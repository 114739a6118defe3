//! How an index block stores an entry: as what sets it apart from the entry before.
//!
//! ```text
//!  size  field
//!  1     head: bit 0  the kind and the flags are those of the entry before
//!              bit 1  the length of the record is that of the entry before
//!              bit 2  the segment is that of the entry before
//!              bit 3  so is the segment, and the record begins where that of the entry before ends with its padding
//!              bit 4  the user key has the length of the key before, and its end; not if nothing is shared at its start
//!              bits 5 … 7  bytes of the user key that are stored; 7 for 7 and more
//!  1–3   bytes of the user key that are shared with the key before, at its start, varint
//!  0–3   how many more than 7 bytes are stored, varint, only if the head says 7
//!        those bytes: with bit 4 they replace as many of the key before, else they follow what is shared
//!  0–1   kind and flags, without bit 0
//!  1–10  sequence number less that of the entry before, varint: twice the difference, and one less than twice its
//!        negative if it is negative
//!  0–5   ordinal in the table's segment list, varint, without bits 2 and 3
//!  0–10  offset of the record in its segment in units of 8 bytes, varint, without bit 3
//!  0–5   length of the record in bytes without padding, varint, without bit 1
//!  0–8   expiry in milliseconds since 1970, only if the flags say so
//! ```
//!
//! An entry that shares nothing at its start does not depend on the entry before. For such an entry, the entry before
//! counts as a put with number 0, of length 0, at the start of the segment with ordinal 0.
//!
//! So an entry of a run, whose records are stored in the order of their keys, has no address, and no length if all records
//! have the same size.
//!
//! **Version 1**, which is still read but no longer written:
//!
//! ```text
//!  size  field
//!  1–3   bytes of the user key that are shared with the key before, varint
//!  1–3   bytes of the user key that follow, varint
//!        those bytes
//!  1–10  tag, varint: sequence number, flags, kind
//!  1–5   ordinal in the table's segment list, varint
//!  1–10  offset of the record in its segment in units of 8 bytes, varint
//!  1–5   length of the record in bytes without padding, varint
//!  8     expiry in milliseconds since 1970, only if the tag says so
//! ```
//!
//! Purpose and golden test: `docs/formats/table.md`.

use crate::entry::{EntryTail, IndexEntry, MAX_OFFSET_UNITS, MAX_RECORD_BYTES, RecordAddress, UNIT_BYTES};
use forebay_base::coding::{MAX_VARINT_BYTES, encode_varint};
use forebay_base::record::pad;
use forebay_base::{DecodeError, Kind, MAX_KEY_BYTES, Reader, SequenceNumber, Tag, Writer};

const SAME_KIND: u8 = 1;
const SAME_LENGTH: u8 = 1 << 1;
const SAME_SEGMENT: u8 = 1 << 2;
const FOLLOWS: u8 = 1 << 3;
const SAME_END: u8 = 1 << 4;
/// The first bit of a head that holds the number of stored bytes of a key, and the largest value there.
const STORED_SHIFT: u32 = 5;
const MANY: usize = 7;

/// Maximum bytes after a user key: kind and flags, four integers of variable length, and an expiry.
const MAX_TAIL_BYTES: usize = 1 + 4 * MAX_VARINT_BYTES + 8;
/// Bits of a tag below the sequence number.
const SEQUENCE_SHIFT: u32 = 8;

/// How the entries of a block are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    /// Each entry by itself, except its key.
    V1,
    /// Relative to the entry before.
    V2,
}

/// The entry before an entry that depends on none.
pub(crate) const ORIGIN: EntryTail = EntryTail {
    tag: Tag::new(SequenceNumber(0), Kind::Put, false),
    address: RecordAddress { ordinal: 0, offset_units: 0 },
    length: 0,
    expiry_ms: None,
};

impl Coding {
    /// Decodes the entry at the reader. `key` and `before` are the user key and the rest of the entry before; without one,
    /// the key is empty.
    #[inline]
    pub fn decode(
        self,
        reader: &mut Reader<'_>,
        key: &mut Vec<u8>,
        before: Option<&EntryTail>,
    ) -> Result<EntryTail, DecodeError> {
        match self {
            Self::V1 => decode_v1(reader, key),
            Self::V2 => decode_v2(reader, key, before),
        }
    }
}

/// Appends an entry in version 2. Its user key shares the first `shared` bytes with `key_before`, the key of the entry
/// `before`. With none shared, it does not depend on them.
#[inline]
pub(crate) fn encode(entry: &IndexEntry<'_>, shared: usize, key_before: &[u8], before: &EntryTail, out: &mut Vec<u8>) {
    let before = if shared == 0 { &ORIGIN } else { before };
    let (tag, address) = (entry.key.tag, entry.address);
    let key = entry.key.user_key;
    let mut head = 0;
    let mut stored = key.get(shared..).unwrap_or_default();
    if shared > 0 && key.len() == key_before.len() {
        head |= SAME_END;
        let differs = stored.iter().zip(key_before.get(shared..).unwrap_or_default()).rposition(|(a, b)| a != b);
        stored = stored.get(..differs.map_or(0, |last| last + 1)).unwrap_or_default();
    }

    let mut tail = Tail { bytes: [0; MAX_TAIL_BYTES], length: 0 };
    if kind_of(tag) == kind_of(before.tag) {
        head |= SAME_KIND;
    } else {
        tail.put([kind_of(tag)]);
    }
    tail.put_varint(zigzag(tag.sequence().0.wrapping_sub(before.tag.sequence().0)));
    if address == behind(before) {
        head |= FOLLOWS;
    } else {
        if address.ordinal == before.address.ordinal {
            head |= SAME_SEGMENT;
        } else {
            tail.put_varint(address.ordinal.into());
        }
        tail.put_varint(address.offset_units);
    }
    if entry.length == before.length {
        head |= SAME_LENGTH;
    } else {
        tail.put_varint(entry.length.into());
    }
    if let Some(expiry) = entry.expiry_ms {
        tail.put(expiry.to_le_bytes());
    }

    out.put_u8(head | (stored.len().min(MANY) as u8) << STORED_SHIFT);
    out.put_varint(shared as u64);
    if let Some(more) = stored.len().checked_sub(MANY) {
        out.put_varint(more as u64);
    }
    out.extend_from_slice(stored);
    out.extend_from_slice(tail.bytes.get(..tail.length).unwrap_or_default());
}

/// What follows a user key, collected to be appended at once.
struct Tail {
    bytes: [u8; MAX_TAIL_BYTES],
    length: usize,
}

impl Tail {
    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        if let Some(room) = self.bytes.get_mut(self.length..).and_then(<[u8]>::first_chunk_mut) {
            *room = bytes;
            self.length += N;
        }
    }

    #[inline]
    fn put_varint(&mut self, number: u64) {
        if let Some(room) = self.bytes.get_mut(self.length..).and_then(<[u8]>::first_chunk_mut) {
            self.length += encode_varint(number, room);
        }
    }
}

#[inline]
fn decode_v2(reader: &mut Reader<'_>, key: &mut Vec<u8>, before: Option<&EntryTail>) -> Result<EntryTail, DecodeError> {
    let head = reader.u8()?;
    let has = |bit: u8| head & bit != 0;
    let shared = reader.varint32()? as usize;
    let mut length = usize::from(head >> STORED_SHIFT);
    if length == MANY {
        length = length.saturating_add(reader.varint32()? as usize);
    }
    let stored = reader.bytes(length)?;
    if has(SAME_END) {
        // An entry that shares nothing depends on no key.
        let rest = key.get_mut(shared..).filter(|_| shared > 0);
        let replaced = rest.and_then(|rest| rest.get_mut(..length)).ok_or_else(|| bad_share(shared))?;
        replaced.copy_from_slice(stored);
    } else {
        extend_shared(key, shared, stored)?;
    }

    let before = before.filter(|_| shared > 0).unwrap_or(&ORIGIN);
    let kind = if has(SAME_KIND) { kind_of(before.tag) } else { reader.u8()? };
    let sequence = before.tag.sequence().0.wrapping_add(unzigzag(reader.varint64()?));
    if sequence > SequenceNumber::MAX.0 {
        return Err(DecodeError::BadValue { what: "sequence number", found: sequence });
    }
    let tag = decode_tag(sequence << SEQUENCE_SHIFT | u64::from(kind))?;
    let address = if has(FOLLOWS) {
        behind(before)
    } else {
        let ordinal = if has(SAME_SEGMENT) { before.address.ordinal } else { reader.varint32()? };
        RecordAddress { ordinal, offset_units: reader.varint64()? }
    };
    let length = if has(SAME_LENGTH) { before.length } else { reader.varint32()? };
    finish(reader, tag, address, length)
}

#[inline]
fn decode_v1(reader: &mut Reader<'_>, key: &mut Vec<u8>) -> Result<EntryTail, DecodeError> {
    let shared = reader.varint32()? as usize;
    let suffix = reader.prefixed()?;
    extend_shared(key, shared, suffix)?;
    let tag = decode_tag(reader.varint64()?)?;
    let address = RecordAddress { ordinal: reader.varint32()?, offset_units: reader.varint64()? };
    let length = reader.varint32()?;
    finish(reader, tag, address, length)
}

/// Checks a place, and reads the expiry.
#[inline]
fn finish(reader: &mut Reader<'_>, tag: Tag, address: RecordAddress, length: u32) -> Result<EntryTail, DecodeError> {
    if address.offset_units >= MAX_OFFSET_UNITS {
        return Err(DecodeError::BadValue { what: "record offset", found: address.offset_units });
    }
    if length as usize > MAX_RECORD_BYTES {
        return Err(DecodeError::BadValue { what: "record length", found: length.into() });
    }
    let expiry_ms = if tag.has_expiry() { Some(reader.u64()?) } else { None };
    Ok(EntryTail { tag, address, length, expiry_ms })
}

/// Cuts the key after the shared bytes, and appends the rest.
#[inline]
fn extend_shared(key: &mut Vec<u8>, shared: usize, rest: &[u8]) -> Result<(), DecodeError> {
    if shared > key.len() || shared + rest.len() > MAX_KEY_BYTES {
        return Err(bad_share(shared));
    }
    key.truncate(shared);
    key.extend_from_slice(rest);
    Ok(())
}

#[cold]
const fn bad_share(shared: usize) -> DecodeError {
    DecodeError::BadValue { what: "shared prefix", found: shared as u64 }
}

#[inline]
fn decode_tag(word: u64) -> Result<Tag, DecodeError> {
    Tag::from_word(word).ok_or(DecodeError::BadValue { what: "tag", found: word })
}

/// Kind and flags of a tag.
const fn kind_of(tag: Tag) -> u8 {
    tag.word() as u8
}

/// The start of the record that follows the record of `entry`.
#[inline]
const fn behind(entry: &EntryTail) -> RecordAddress {
    let RecordAddress { ordinal, offset_units } = entry.address;
    RecordAddress { ordinal, offset_units: offset_units + pad(entry.length as usize) as u64 / UNIT_BYTES }
}

/// Encodes a small difference of either sign as a small number.
const fn zigzag(difference: u64) -> u64 {
    difference << 1 ^ ((difference as i64) >> 63) as u64
}

const fn unzigzag(number: u64) -> u64 {
    number >> 1 ^ (number & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::shared_bytes;
    use forebay_base::InternalKey;
    use proptest::prelude::*;

    /// Encodes entries one after the other, and returns the length of each.
    fn encode_all(entries: &[IndexEntry<'_>], out: &mut Vec<u8>) -> Vec<usize> {
        let (mut key, mut last) = (&[][..], ORIGIN);
        let mut lengths = Vec::new();
        for entry in entries {
            let start = out.len();
            encode(entry, shared_bytes(key, entry.key.user_key), key, &last, out);
            (key, last) = (entry.key.user_key, EntryTail::of(entry));
            lengths.push(out.len() - start);
        }
        lengths
    }

    /// Keys of 20 bytes that differ in the middle, and records of 440 bytes in their order.
    #[test]
    fn an_entry_of_a_run_takes_the_bytes_that_differ() {
        let keys: Vec<_> = (500u64..510).map(|i| [&i.to_be_bytes()[..], &[b'0'; 12]].concat()).collect();
        let of = |(i, key): (usize, &'static [u8])| {
            let tag = Tag::new(SequenceNumber(1_000_000 + 200_000 * (i as u64 % 2)), Kind::Put, false);
            let address = RecordAddress { ordinal: 0, offset_units: 55 * i as u64 };
            IndexEntry { key: InternalKey { user_key: key, tag }, address, length: 435, expiry_ms: None }
        };
        let entries: Vec<_> = keys.iter().map(|key| &*key.clone().leak()).enumerate().map(of).collect();
        let lengths = encode_all(&entries, &mut Vec::new());
        // The head, the byte for what is shared, a byte of the key, and three of the number.
        assert_eq!(lengths[0], 2 + 1 + 20 + 3 + 2);
        assert_eq!(lengths[1..], [6; 9]);
    }

    /// Otherwise a reader that begins at such an entry would find another key than one that comes from the entry before.
    #[test]
    fn an_entry_that_shares_nothing_keeps_no_end() {
        let head = SAME_KIND | SAME_LENGTH | FOLLOWS | SAME_END;
        for bytes in [&[head, 0, 2][..], &[head | 1 << STORED_SHIFT, 0, b'x', 2]] {
            for key in [&b""[..], b"key"] {
                let error = Coding::V2.decode(&mut Reader::new(bytes), &mut key.to_vec(), None).unwrap_err();
                assert_eq!(error, bad_share(0));
            }
        }
    }

    #[test]
    fn differences_keep_their_value() {
        for difference in [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1] {
            assert_eq!(unzigzag(zigzag(difference)), difference);
        }
        assert_eq!([0, 1, 2].map(|number| unzigzag(number) as i64), [0, -1, 1]);
    }

    proptest! {
        #[test]
        fn entries_come_back(
            list in prop::collection::vec(
                (
                    prop_oneof![
                        prop::collection::vec(97u8..99, 0..30),
                        prop::collection::vec(97u8..99, 5),
                        any::<u16>().prop_map(|middle| [&b"key"[..], &middle.to_be_bytes()[..], b"end"].concat()),
                    ],
                    prop_oneof![0u64..5, 0..=SequenceNumber::MAX.0],
                    prop::sample::select(&[Kind::Put, Kind::Put, Kind::Delete]),
                    prop::option::of((0u32..3, prop_oneof![0u64..5, 0..MAX_OFFSET_UNITS - (1 << 30)])),
                    prop_oneof![Just(60u32), 0..=MAX_RECORD_BYTES as u32],
                    prop::option::weighted(0.1, any::<u64>()),
                    any::<bool>(),
                ),
                1..40,
            ),
        ) {
            let mut last = ORIGIN;
            let entries: Vec<_> = list
                .iter()
                .map(|(user_key, sequence, kind, place, length, expiry_ms, goes_on)| {
                    let tag = Tag::new(SequenceNumber(*sequence), *kind, expiry_ms.is_some());
                    let tag = if *goes_on { tag.going_on() } else { tag };
                    // Without a place of its own, its record follows the last one.
                    let address = place.map_or(behind(&last), |(ordinal, offset_units)| RecordAddress { ordinal, offset_units });
                    let entry = IndexEntry {
                        key: InternalKey { user_key, tag }, address, length: *length, expiry_ms: *expiry_ms,
                    };
                    last = EntryTail::of(&entry);
                    entry
                })
                .collect();
            let mut bytes = Vec::new();
            encode_all(&entries, &mut bytes);
            let mut reader = Reader::new(&bytes);
            let (mut key, mut before) = (Vec::new(), None);
            for entry in entries {
                let tail = Coding::V2.decode(&mut reader, &mut key, before.as_ref()).unwrap();
                prop_assert_eq!(tail.entry(&key), entry);
                before = Some(tail);
            }
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn any_bytes_are_decoded_without_panic(bytes: Vec<u8>, mut key in prop::collection::vec(any::<u8>(), 0..40),
                                               sequence: u64, length: u32, offset_units in 0..MAX_OFFSET_UNITS) {
            let tag = Tag::new(SequenceNumber(sequence >> 8), Kind::Put, false);
            let before = EntryTail {
                tag, address: RecordAddress { ordinal: 1, offset_units }, length, expiry_ms: None,
            };
            for coding in [Coding::V1, Coding::V2] {
                if let Ok(tail) = coding.decode(&mut Reader::new(&bytes), &mut key, Some(&before)) {
                    prop_assert!(tail.address.offset_units < MAX_OFFSET_UNITS);
                    prop_assert!(key.len() <= MAX_KEY_BYTES && tail.tag.sequence() <= SequenceNumber::MAX);
                }
            }
        }
    }
}
