//! Keys of the engine: where each key of a client, and each of its elements, is.
//!
//! Described in `docs/formats/redis-keys.md`. Numbers in keys are big-endian, so that the engine's bytewise order is
//! their order.
//!
//! ```text
//!   area   what follows                                               value
//!   ─────  ─────────────────────────────────────────────────────────  ──────────────────────────────────
//!    01    name                                                       a record of the server itself; `jrn` and
//!                                                                     `jrr`: see `records::journal`
//!    02    space 1 │ hash 8 │ key                                     header of the key (see `header`)
//!    03    space 1 │ expires 8 │ key                                  nothing
//!    04    space 1 │ id 8 │ element                                   element of a collection
//!
//!   element of  ────────────────────────────────────────────────────  ──────────────────────────────────
//!    hash        hash 8 │ field                                       the field's value
//!    set         hash 8 │ member                                      nothing
//!    list        position 8                                           the element
//!    sorted set  00 │ hash 8 │ member                                 score 8 (see `score_bytes`)
//!    sorted set  01 │ score 8 │ member                                nothing
//!    stream      see `streams`
//! ```
//!
//! - **space**: a database. Which number of `SELECT` is which space is a record of the server, so that `SWAPDB`
//!   exchanges two numbers, and `FLUSHDB` is a few range deletions.
//! - **hash**: XXH3 of what follows, with the store's random seed. Headers, fields and members are in the order of
//!   their hashes. So the cursor of `SCAN` and its like is a place in this order, the first 53 bits of a hash, and the
//!   server keeps nothing for it: an element that exists throughout a scan is found once. Elements that share these bits
//!   come in one step.
//! - **expires**: milliseconds since 1970. Keys that expire first come first.
//! - **id**: each life of a collection has another id, so that nothing of a former life is visible. Ids are assigned in
//!   ascending order and never reused.
//! - **position**: of a list's element, a signed number with its sign bit inverted. Positions are contiguous.
//! - **score**: a floating-point number whose order is that of its bytes: the sign bit inverted, or all bits when it
//!   is negative. There is one zero.

use bytes::{BufMut, Bytes, BytesMut};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const SERVER: u8 = 1;
const HEADERS: u8 = 2;
const EXPIRIES: u8 = 3;
const ELEMENTS: u8 = 4;

/// Bytes before a client's key in the key of a header, and in that of an expiry.
pub const HEADER_PREFIX_BYTES: usize = 10;
/// Bytes before an element in its key.
pub const ELEMENT_PREFIX_BYTES: usize = 10;
/// Bytes of a hash or a score.
pub const WORD_BYTES: usize = 8;
/// Bytes of an engine's key that are reserved for what comes before a client's key, field or member.
const RESERVED_KEY_BYTES: usize = 64;

/// Number of databases.
pub const DATABASES: usize = 16;

/// A database, by the number in the keys.
pub type Space = u8;

/// A range of the engine's keys: first one, and the first one that is no longer in it.
pub type Range = (Bytes, Bytes);

/// Makes the engine's keys of one store.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    seed: u64,
}

impl Layout {
    /// The keys of a store with this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The seed of hashes, which clients do not know.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// The place of a key, a field or a member in its order.
    #[must_use]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        xxh3_64_with_seed(bytes, self.seed)
    }

    /// The header of a client's key.
    #[must_use]
    pub fn header(&self, space: Space, key: &[u8]) -> Bytes {
        header_at(space, self.hash(key), key)
    }

    /// A field of a hash, or a member of a set.
    #[must_use]
    pub fn hashed_element(&self, space: Space, id: u64, element: &[u8]) -> Bytes {
        let mut bytes = element_prefix(space, id, WORD_BYTES + element.len());
        bytes.put_u64(self.hash(element));
        bytes.put_slice(element);
        bytes.freeze()
    }

    /// A member of a sorted set, which leads to its score.
    #[must_use]
    pub fn member(&self, space: Space, id: u64, member: &[u8]) -> Bytes {
        let mut bytes = element_prefix(space, id, 1 + WORD_BYTES + member.len());
        bytes.put_u8(0);
        bytes.put_u64(self.hash(member));
        bytes.put_slice(member);
        bytes.freeze()
    }
}

/// The header of a client's key whose hash is known.
#[must_use]
pub fn header_at(space: Space, hash: u64, key: &[u8]) -> Bytes {
    key_of(HEADERS, space, hash, key)
}

/// Returns bounds that divide the keys of a new store between this many shards: evenly, as long as it holds strings of
/// the first database. Other keys go to the last shard at first, and to the others as bounds move.
#[must_use]
pub fn shard_bounds(shards: usize) -> Vec<Vec<u8>> {
    let shards = shards as u128;
    let first = |shard: u128| u64::try_from((shard << u64::BITS) / shards);
    (1..shards).filter_map(|shard| first(shard).ok()).map(|hash| header_at(0, hash, &[]).to_vec()).collect()
}

fn key_of(area: u8, space: Space, word: u64, rest: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(HEADER_PREFIX_BYTES + rest.len());
    bytes.put_u8(area);
    bytes.put_u8(space);
    bytes.put_u64(word);
    bytes.put_slice(rest);
    bytes.freeze()
}

pub(super) fn element_prefix(space: Space, id: u64, more: usize) -> BytesMut {
    let mut bytes = BytesMut::with_capacity(ELEMENT_PREFIX_BYTES + more);
    bytes.put_u8(ELEMENTS);
    bytes.put_u8(space);
    bytes.put_u64(id);
    bytes
}

/// Returns the longest key, field or member of a client, in bytes, if an engine's key has at most `of_engine` bytes.
#[must_use]
pub const fn max_key_bytes(of_engine: usize) -> usize {
    of_engine.saturating_sub(RESERVED_KEY_BYTES)
}

/// A record of the server itself.
#[must_use]
pub fn server_record(name: &str) -> Bytes {
    let mut bytes = BytesMut::with_capacity(1 + name.len());
    bytes.put_u8(SERVER);
    bytes.put_slice(name.as_bytes());
    bytes.freeze()
}

/// The entry of a key that expires.
#[must_use]
pub fn expiry(space: Space, expires_ms: u64, key: &[u8]) -> Bytes {
    key_of(EXPIRIES, space, expires_ms, key)
}

/// The element of a list at a position.
#[must_use]
pub fn list_element(space: Space, id: u64, position: i64) -> Bytes {
    let mut bytes = element_prefix(space, id, WORD_BYTES);
    bytes.put_u64(position as u64 ^ 1 << 63);
    bytes.freeze()
}

/// A member of a sorted set in the order of scores.
#[must_use]
pub fn scored(space: Space, id: u64, score: f64, member: &[u8]) -> Bytes {
    let mut bytes = element_prefix(space, id, 1 + WORD_BYTES + member.len());
    bytes.put_u8(1);
    bytes.put_u64(score_word(score));
    bytes.put_slice(member);
    bytes.freeze()
}

/// The value of a member: its score.
#[must_use]
pub fn score_bytes(score: f64) -> [u8; WORD_BYTES] {
    score_word(score).to_be_bytes()
}

/// The score in a word of [`score_bytes`] or of a key.
#[must_use]
pub fn score_of(bytes: &[u8]) -> Option<f64> {
    let word = u64::from_be_bytes(bytes.get(..WORD_BYTES)?.try_into().ok()?);
    let bits = if word >> 63 == 1 { word ^ 1 << 63 } else { !word };
    Some(f64::from_bits(bits))
}

fn score_word(score: f64) -> u64 {
    // There is only one zero.
    let bits = if score == 0.0 { 0 } else { score.to_bits() };
    if bits >> 63 == 0 { bits ^ 1 << 63 } else { !bits }
}

/// All headers of a space from a hash on.
#[must_use]
pub fn headers_from(space: Space, hash: u64) -> Range {
    (key_of(HEADERS, space, hash, &[]), Bytes::copy_from_slice(&[HEADERS, space + 1]))
}

/// All entries of keys of a space that expire before a time.
#[must_use]
pub fn expiries_before(space: Space, now_ms: u64) -> Range {
    (Bytes::copy_from_slice(&[EXPIRIES, space]), key_of(EXPIRIES, space, now_ms, &[]))
}

/// All of a space, in the order in which it must be deleted.
#[must_use]
pub fn space(space: Space) -> [Range; 3] {
    let area = |area: u8| (Bytes::copy_from_slice(&[area, space]), Bytes::copy_from_slice(&[area, space + 1]));
    [area(HEADERS), area(EXPIRIES), area(ELEMENTS)]
}

/// All elements of a collection.
#[must_use]
pub fn elements(space: Space, id: u64) -> Range {
    (element_prefix(space, id, 0).freeze(), element_prefix(space, id.saturating_add(1), 0).freeze())
}

/// The elements of a hash or a set from a hash on.
#[must_use]
pub fn elements_from(space: Space, id: u64, hash: u64) -> Range {
    let mut from = element_prefix(space, id, WORD_BYTES);
    from.put_u64(hash);
    (from.freeze(), elements(space, id).1)
}

/// The members of a sorted set from a hash on.
#[must_use]
pub fn members_from(space: Space, id: u64, hash: u64) -> Range {
    let mut from = element_prefix(space, id, 1 + WORD_BYTES);
    from.put_u8(0);
    from.put_u64(hash);
    let mut to = element_prefix(space, id, 1);
    to.put_u8(1);
    (from.freeze(), to.freeze())
}

/// The members of a sorted set in the order of their scores.
#[must_use]
pub fn all_scored(space: Space, id: u64) -> Range {
    let mut from = element_prefix(space, id, 1);
    from.put_u8(1);
    (from.freeze(), elements(space, id).1)
}

/// Returns where the members with a score begin among those of a sorted set, or where they end.
#[must_use]
pub fn scored_bound(space: Space, id: u64, score: f64, is_end: bool) -> Bytes {
    let mut bytes = element_prefix(space, id, 1 + WORD_BYTES);
    bytes.put_u8(1);
    // No score has the largest word.
    bytes.put_u64(score_word(score).saturating_add(u64::from(is_end)));
    bytes.freeze()
}

/// The smallest key that is larger than this one.
#[must_use]
pub fn after(key: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(key.len() + 1);
    bytes.put_slice(key);
    bytes.put_u8(0);
    bytes.freeze()
}

/// The word at a place of a key.
#[must_use]
pub fn word_at(key: &[u8], at: usize) -> u64 {
    let word = key.get(at..).and_then(|rest| rest.first_chunk::<WORD_BYTES>());
    word.map_or(0, |word| u64::from_be_bytes(*word))
}

/// The client's key in the key of a header or an expiry.
#[must_use]
pub fn client_key(key: &[u8]) -> &[u8] {
    key.get(HEADER_PREFIX_BYTES..).unwrap_or_default()
}

/// The hash in the key of a header.
#[must_use]
pub fn header_hash(key: &[u8]) -> u64 {
    word_at(key, 2)
}

/// The field or member in the key of an element of a hash or a set.
#[must_use]
pub fn hashed_part(key: &[u8]) -> &[u8] {
    key.get(ELEMENT_PREFIX_BYTES + WORD_BYTES..).unwrap_or_default()
}

/// The hash in the key of an element of a hash or a set.
#[must_use]
pub fn hashed_part_hash(key: &[u8]) -> u64 {
    word_at(key, ELEMENT_PREFIX_BYTES)
}

/// The member in a key of a sorted set's element.
#[must_use]
pub fn member_part(key: &[u8]) -> &[u8] {
    key.get(ELEMENT_PREFIX_BYTES + 1 + WORD_BYTES..).unwrap_or_default()
}

/// The hash in the key of a sorted set's member.
#[must_use]
pub fn member_hash(key: &[u8]) -> u64 {
    word_at(key, ELEMENT_PREFIX_BYTES + 1)
}

/// The score in the key of a sorted set's element.
#[must_use]
pub fn scored_part(key: &[u8]) -> f64 {
    key.get(ELEMENT_PREFIX_BYTES + 1..).and_then(score_of).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn golden_bytes_of_keys() {
        let layout = Layout::new(1);
        for (key, expected) in [
            (server_record("store"), "0173746f7265"),
            (layout.header(3, b"k"), "0203fe24b3698b5c3c0e6b"),
            (expiry(3, 0x0102, b"k"), "030300000000000001026b"),
            (layout.hashed_element(3, 7, b"k"), "04030000000000000007fe24b3698b5c3c0e6b"),
            (list_element(3, 7, -1), "040300000000000000077fffffffffffffff"),
            (list_element(3, 7, 1), "040300000000000000078000000000000001"),
            (layout.member(3, 7, b"k"), "0403000000000000000700fe24b3698b5c3c0e6b"),
            (scored(3, 7, 1.0, b"k"), "0403000000000000000701bff00000000000006b"),
            (scored(3, 7, -1.0, b"k"), "0403000000000000000701400fffffffffffff6b"),
        ] {
            assert_eq!(hex(&key), expected);
        }
    }

    #[test]
    fn shards_have_as_many_strings() {
        assert!(shard_bounds(1).is_empty());
        for shards in [2, 3, 16] {
            let bounds = shard_bounds(shards);
            assert!(bounds.len() == shards - 1 && bounds.is_sorted());
            let mut counts = vec![0; shards];
            for number in 0..shards * 1000 {
                let header = Layout::new(5).header(0, format!("key {number}").as_bytes());
                counts[bounds.partition_point(|bound| bound[..] <= header[..])] += 1;
            }
            assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn parts_come_back() {
        let layout = Layout::new(9);
        let header = layout.header(0, b"key");
        assert_eq!((client_key(&header), header_hash(&header)), (&b"key"[..], layout.hash(b"key")));
        let field = layout.hashed_element(0, 5, b"field");
        assert_eq!((hashed_part(&field), hashed_part_hash(&field)), (&b"field"[..], layout.hash(b"field")));
        let member = layout.member(0, 5, b"m");
        assert_eq!((member_part(&member), member_hash(&member)), (&b"m"[..], layout.hash(b"m")));
        let ranked = scored(0, 5, -2.5, b"m");
        assert_eq!((member_part(&ranked), scored_part(&ranked)), (&b"m"[..], -2.5));
        let (from, to) = elements(0, 5);
        for key in [field, member, ranked, list_element(0, 5, i64::MIN), list_element(0, 5, i64::MAX)] {
            assert!(from <= key && key < to);
        }
    }

    proptest! {
        #[test]
        fn scores_are_in_order(a: f64, b: f64) {
            prop_assume!(!a.is_nan() && !b.is_nan());
            prop_assert_eq!(score_bytes(a).partial_cmp(&score_bytes(b)), a.partial_cmp(&b));
            prop_assert_eq!(score_of(&score_bytes(a)), Some(a));
        }
    }
}
