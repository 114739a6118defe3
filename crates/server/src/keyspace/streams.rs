//! Streams: their ids, and the keys and values of what belongs to one.
//!
//! Described in `docs/formats/redis-keys.md`. All of it is under the id of the stream's life, like the elements of other
//! collections (`layout`). Numbers in keys are big-endian, those in values little-endian.
//!
//! ```text
//!   what follows area, space and id                          value
//!   ───────────────────────────────────────────────────────  ──────────────────────────────────────────────────────
//!    00 │ ms 8 │ sequence 8                                   entry: words, each length 4 │ bytes
//!    01 │ name of a group                                     group: number 8 │ ms 8 │ sequence 8 │ read 8 │ pending 8
//!    02 │ group 8 │ ms 8 │ sequence 8                         pending entry: consumer 8 │ at 8 │ deliveries 8 │ name
//!    03 │ group 8 │ name of a consumer                        consumer: number 8 │ seen 8 │ pending 8
//!    04 │ group 8 │ consumer 8 │ ms 8 │ sequence 8            nothing: a pending entry of a consumer
//! ```
//!
//! - **words**: fields and their values, in turn.
//! - **group**, **consumer**: numbers, assigned like ids of collections, so that entries of a removed group or consumer
//!   are never visible.
//! - **read**: how many entries the group has read, or all bits when that is not known. The id before it is that of the
//!   latest delivered entry.
//! - **at**, **seen**: milliseconds since 1970.
//! - **pending**: the number of entries that are delivered and not acknowledged, so that nobody has to count them.

use crate::keyspace::failure::{Failure, Outcome};
use crate::keyspace::layout::{ELEMENT_PREFIX_BYTES, Range, Space, after, element_prefix};
use bytes::{Buf, BufMut, Bytes, BytesMut};

const ENTRIES: u8 = 0;
const GROUPS: u8 = 1;
const PENDING: u8 = 2;
const CONSUMERS: u8 = 3;
const OWN_PENDING: u8 = 4;
const UNKNOWN: u64 = u64::MAX;
/// Bytes of an id in a key.
const ID_BYTES: usize = 16;

/// The id of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct StreamId {
    /// Milliseconds since 1970, or what the client says.
    pub ms: u64,
    /// The order within a millisecond.
    pub sequence: u64,
}

impl StreamId {
    /// Before all entries.
    pub const LEAST: Self = Self { ms: 0, sequence: 0 };
    /// After all entries.
    pub const MOST: Self = Self { ms: u64::MAX, sequence: u64::MAX };

    /// The next id; `None` after the last one.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        match self.sequence.checked_add(1) {
            Some(sequence) => Some(Self { sequence, ..self }),
            None => Some(Self { ms: self.ms.checked_add(1)?, sequence: 0 }),
        }
    }

    /// The id before; `None` before the first one.
    #[must_use]
    pub fn previous(self) -> Option<Self> {
        match self.sequence.checked_sub(1) {
            Some(sequence) => Some(Self { sequence, ..self }),
            None => Some(Self { ms: self.ms.checked_sub(1)?, sequence: u64::MAX }),
        }
    }

    /// The id at the end of a key.
    #[must_use]
    pub fn of_key(key: &[u8]) -> Self {
        let mut bytes = key.last_chunk::<ID_BYTES>().map_or(&[][..], |bytes| &bytes[..]);
        Self { ms: bytes.try_get_u64().unwrap_or(0), sequence: bytes.try_get_u64().unwrap_or(0) }
    }
}

impl std::fmt::Display for StreamId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.ms, self.sequence)
    }
}

/// Keys of what belongs to one stream.
#[derive(Debug, Clone, Copy)]
pub struct StreamKeys {
    /// The database.
    pub space: Space,
    /// The id of the stream's life.
    pub id: u64,
}

impl StreamKeys {
    fn key(self, part: u8, numbers: &[u64], name: &[u8]) -> Bytes {
        let mut bytes = element_prefix(self.space, self.id, 1 + 8 * numbers.len() + name.len());
        bytes.put_u8(part);
        numbers.iter().for_each(|&number| bytes.put_u64(number));
        bytes.put_slice(name);
        bytes.freeze()
    }

    /// Returns all keys that begin with this part and these numbers.
    fn all(self, part: u8, numbers: &[u64]) -> Range {
        let end = match numbers {
            [] => self.key(part + 1, &[], &[]),
            // Numbers are never the largest possible.
            [rest @ .., last] => self.key(part, &[rest, &[last.saturating_add(1)]].concat(), &[]),
        };
        (self.key(part, numbers, &[]), end)
    }

    fn between(self, part: u8, numbers: &[u64], from: StreamId, to: StreamId) -> Range {
        let key = |id: StreamId| self.key(part, &[numbers, &[id.ms, id.sequence]].concat(), &[]);
        (key(from), after(&key(to)))
    }

    /// An entry.
    #[must_use]
    pub fn entry(self, id: StreamId) -> Bytes {
        self.key(ENTRIES, &[id.ms, id.sequence], &[])
    }

    /// The entries from one id to another.
    #[must_use]
    pub fn entries(self, from: StreamId, to: StreamId) -> Range {
        self.between(ENTRIES, &[], from, to)
    }

    /// A group.
    #[must_use]
    pub fn group(self, name: &[u8]) -> Bytes {
        self.key(GROUPS, &[], name)
    }

    /// All groups.
    #[must_use]
    pub fn groups(self) -> Range {
        self.all(GROUPS, &[])
    }

    /// A pending entry of a group.
    #[must_use]
    pub fn pending(self, group: u64, id: StreamId) -> Bytes {
        self.key(PENDING, &[group, id.ms, id.sequence], &[])
    }

    /// The pending entries of a group from one id to another.
    #[must_use]
    pub fn all_pending(self, group: u64, from: StreamId, to: StreamId) -> Range {
        self.between(PENDING, &[group], from, to)
    }

    /// A consumer of a group.
    #[must_use]
    pub fn consumer(self, group: u64, name: &[u8]) -> Bytes {
        self.key(CONSUMERS, &[group], name)
    }

    /// All consumers of a group.
    #[must_use]
    pub fn consumers(self, group: u64) -> Range {
        self.all(CONSUMERS, &[group])
    }

    /// A pending entry of a consumer.
    #[must_use]
    pub fn own_pending(self, group: u64, consumer: u64, id: StreamId) -> Bytes {
        self.key(OWN_PENDING, &[group, consumer, id.ms, id.sequence], &[])
    }

    /// The pending entries of a consumer from one id to another.
    #[must_use]
    pub fn all_own_pending(self, group: u64, consumer: u64, from: StreamId, to: StreamId) -> Range {
        self.between(OWN_PENDING, &[group, consumer], from, to)
    }

    /// All of a group, except the group itself.
    #[must_use]
    pub fn of_group(self, group: u64) -> [Range; 3] {
        [PENDING, CONSUMERS, OWN_PENDING].map(|part| self.all(part, &[group]))
    }
}

/// The name in the key of a group.
#[must_use]
pub fn group_name(key: &[u8]) -> &[u8] {
    key.get(ELEMENT_PREFIX_BYTES + 1..).unwrap_or_default()
}

/// The name in the key of a consumer.
#[must_use]
pub fn consumer_name(key: &[u8]) -> &[u8] {
    key.get(ELEMENT_PREFIX_BYTES + 9..).unwrap_or_default()
}

fn damaged() -> Failure {
    Failure::damaged("a record of a stream is cut")
}

fn number(bytes: &mut impl Buf) -> Outcome<u64> {
    bytes.try_get_u64_le().map_err(|_| damaged())
}

/// The value of an entry with these words.
#[must_use]
pub fn encode_entry(words: &[&[u8]]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(words.iter().map(|word| 4 + word.len()).sum());
    for word in words {
        bytes.put_u32_le(word.len() as u32);
        bytes.put_slice(word);
    }
    bytes.freeze()
}

/// The words of an entry.
///
/// # Errors
/// When it is damaged.
pub fn decode_entry(mut bytes: Bytes) -> Outcome<Vec<Bytes>> {
    let mut words = Vec::new();
    while !bytes.is_empty() {
        let length = bytes.try_get_u32_le().map_err(|_| damaged())? as usize;
        if length > bytes.len() {
            return Err(damaged());
        }
        words.push(bytes.split_to(length));
    }
    Ok(words)
}

/// What is kept about a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// Its number.
    pub number: u64,
    /// The latest entry that was delivered.
    pub last: StreamId,
    /// How many entries it has read, if that is known.
    pub read: Option<u64>,
    /// How many entries are pending.
    pub pending: u64,
}

impl Group {
    /// The value.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let read = self.read.unwrap_or(UNKNOWN);
        numbers(&[self.number, self.last.ms, self.last.sequence, read, self.pending], &[])
    }

    /// The group in a value.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn decode(mut bytes: &[u8]) -> Outcome<Self> {
        let own = number(&mut bytes)?;
        let last = StreamId { ms: number(&mut bytes)?, sequence: number(&mut bytes)? };
        let read = Some(number(&mut bytes)?).filter(|&read| read != UNKNOWN);
        Ok(Self { number: own, last, read, pending: number(&mut bytes)? })
    }
}

/// What is kept about a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Consumer {
    /// Its number.
    pub number: u64,
    /// When it last asked for something.
    pub seen_ms: u64,
    /// How many entries are pending.
    pub pending: u64,
}

impl Consumer {
    /// The value.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        numbers(&[self.number, self.seen_ms, self.pending], &[])
    }

    /// The consumer in a value.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn decode(mut bytes: &[u8]) -> Outcome<Self> {
        let bytes = &mut bytes;
        Ok(Self { number: number(bytes)?, seen_ms: number(bytes)?, pending: number(bytes)? })
    }
}

/// What is kept about an entry that was delivered and not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The number of the consumer.
    pub consumer: u64,
    /// When it was last delivered.
    pub at_ms: u64,
    /// How often it was delivered.
    pub deliveries: u64,
    /// The consumer's name.
    pub name: Bytes,
}

impl Pending {
    /// The value.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        numbers(&[self.consumer, self.at_ms, self.deliveries], &self.name)
    }

    /// The pending entry in a value.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn decode(mut bytes: &[u8]) -> Outcome<Self> {
        let (consumer, at_ms, deliveries) = (number(&mut bytes)?, number(&mut bytes)?, number(&mut bytes)?);
        Ok(Self { consumer, at_ms, deliveries, name: Bytes::copy_from_slice(bytes) })
    }

    /// Returns how long ago it was last delivered.
    #[must_use]
    pub const fn idle_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.at_ms)
    }
}

fn numbers(numbers: &[u64], rest: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(8 * numbers.len() + rest.len());
    numbers.iter().for_each(|&number| bytes.put_u64_le(number));
    bytes.put_slice(rest);
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn golden_bytes_of_streams() {
        let keys = StreamKeys { space: 3, id: 7 };
        let id = StreamId { ms: 1, sequence: 2 };
        let prefix = "04030000000000000007";
        let one_two = "00000000000000010000000000000002";
        for (key, expected) in [
            (keys.entry(id), format!("{prefix}00{one_two}")),
            (keys.group(b"g"), format!("{prefix}0167")),
            (keys.pending(8, id), format!("{prefix}020000000000000008{one_two}")),
            (keys.consumer(8, b"c"), format!("{prefix}03000000000000000863")),
            (keys.own_pending(8, 9, id), format!("{prefix}0400000000000000080000000000000009{one_two}")),
            (encode_entry(&[b"f", b"vw"]), "0100000066020000007677".into()),
            (
                Group { number: 8, last: id, read: None, pending: 3 }.encode(),
                "080000000000000001000000000000000200000000000000ffffffffffffffff0300000000000000".into(),
            ),
            (
                Consumer { number: 9, seen_ms: 4, pending: 3 }.encode(),
                "090000000000000004000000000000000300000000000000".into(),
            ),
            (
                Pending { consumer: 9, at_ms: 4, deliveries: 5, name: Bytes::from_static(b"c") }.encode(),
                "09000000000000000400000000000000050000000000000063".into(),
            ),
        ] {
            assert_eq!(hex(&key), expected);
        }
    }

    #[test]
    fn ids_have_neighbours() {
        let id = |ms, sequence| StreamId { ms, sequence };
        assert_eq!(id(1, u64::MAX).next(), Some(id(2, 0)));
        assert_eq!(id(2, 0).previous(), Some(id(1, u64::MAX)));
        assert_eq!((StreamId::MOST.next(), StreamId::LEAST.previous()), (None, None));
        assert_eq!(StreamId::of_key(&StreamKeys { space: 0, id: 1 }.entry(id(5, 6))), id(5, 6));
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_record_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(group) = Group::decode(&bytes) {
                prop_assert_eq!(&group.encode()[..], &bytes[..40]);
            }
            if let Ok(consumer) = Consumer::decode(&bytes) {
                prop_assert_eq!(&consumer.encode()[..], &bytes[..24]);
            }
            if let Ok(pending) = Pending::decode(&bytes) {
                prop_assert_eq!(&pending.encode()[..], &bytes[..]);
            }
            let bytes = Bytes::from(bytes);
            if let Ok(words) = decode_entry(bytes.clone()) {
                let words: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
                prop_assert_eq!(encode_entry(&words), bytes);
            }
        }
    }
}
