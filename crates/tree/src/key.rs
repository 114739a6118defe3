//! Keys and separators: their order, the word by which a leaf finds a key, and the key's bucket. See
//! `docs/formats/tree.md`.

use std::cmp::Ordering;

/// Number of hash functions of leaves: a leaf's generation says which one it uses.
pub const SEEDS: u32 = 8;
/// Longest key, bytes.
pub const MAX_KEY_BYTES: usize = 4096;

/// A key with its word: the key itself if it has 8 bytes, else its hash.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    pub bytes: &'a [u8],
    pub word: u64,
    /// Whether the word is a hash: then key and value are together in a record.
    pub is_long: bool,
}

impl<'a> Key<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        match <[u8; 8]>::try_from(bytes) {
            Ok(word) => Self { bytes, word: u64::from_be_bytes(word), is_long: false },
            Err(_) => Self { bytes, word: xxhash_rust::xxh3::xxh3_64(bytes), is_long: true },
        }
    }
}

/// Mixes a key word: the part of finding its bucket that is the same for all leaves.
#[inline]
pub fn mixed(word: u64) -> u64 {
    let mixed = (word ^ (word >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// The bucket of a [`mixed`] key word in a leaf of `buckets` buckets. The generation modulo [`SEEDS`] is
/// the leaf's hash function.
#[inline]
pub fn bucket_of(mixed: u64, buckets: usize, generation: u32) -> usize {
    let seed = u64::from(generation % SEEDS + 1).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let hash = (mixed ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (((hash >> 32) * buckets as u64) >> 32) as usize
}

/// The first eight bytes of a key as a number, padded with zeros: ordered like the keys, except for
/// ties.
#[inline]
pub fn prefix_of(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let mut padded = [0; 8];
    if let Some(place) = padded.get_mut(..bytes.len()) {
        place.copy_from_slice(bytes);
    }
    u64::from_be_bytes(padded)
}

/// The lower bound of a child's range: the empty one is below all keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Separator {
    prefix: u64,
    length: u32,
    /// All bytes, when there are more than eight.
    long: Option<Box<[u8]>>,
}

impl Separator {
    pub fn new(bytes: &[u8]) -> Self {
        let long = (bytes.len() > 8).then(|| bytes.into());
        Self { prefix: prefix_of(bytes), length: bytes.len() as u32, long }
    }

    /// A separator of at most 8 bytes from its parts.
    pub fn short(prefix: u64, length: u32) -> Self {
        Self { prefix, length: length.min(8), long: None }
    }

    /// The shortest separator that is above `below` and not above `key`.
    pub fn between(below: &[u8], key: &[u8]) -> Self {
        if key.len() <= 8 {
            return Self::new(key);
        }
        let common = below.iter().zip(key).take_while(|(a, b)| a == b).count();
        Self::new(key.get(..=common).unwrap_or(key))
    }

    /// As [`Separator::between`], for two keys.
    pub fn between_keys(below: &Self, key: &Self) -> Self {
        match &key.long {
            Some(long) => Self::between(below.bytes(&mut [0; 8]), long),
            None => key.clone(),
        }
    }

    pub fn prefix(&self) -> u64 {
        self.prefix
    }

    pub fn length(&self) -> u32 {
        self.length
    }

    pub fn is_lowest(&self) -> bool {
        self.length == 0
    }

    /// The bytes; uses `buffer` if there are at most eight.
    pub fn bytes<'a>(&'a self, buffer: &'a mut [u8; 8]) -> &'a [u8] {
        match &self.long {
            Some(long) => long,
            None => {
                *buffer = self.prefix.to_be_bytes();
                buffer.get(..self.length as usize).unwrap_or_default()
            }
        }
    }

    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes(&mut [0; 8]).to_vec()
    }

    /// Compares the separator with a key.
    #[inline]
    pub fn compare(&self, prefix: u64, key: &[u8]) -> Ordering {
        self.prefix.cmp(&prefix).then_with(|| match (&self.long, key.len()) {
            // Equal prefixes of at most 8 bytes differ in zeros at the end.
            (None, 0..=8) => (self.length as usize).cmp(&key.len()),
            _ => self.bytes(&mut [0; 8]).cmp(key),
        })
    }

    /// Bytes of memory beyond the struct itself.
    pub fn extra_bytes(&self) -> usize {
        self.long.as_ref().map_or(0, |long| long.len() + 16)
    }
}

impl PartialOrd for Separator {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Separator {
    fn cmp(&self, other: &Self) -> Ordering {
        self.prefix.cmp(&other.prefix).then_with(|| match (&self.long, &other.long) {
            (None, None) => self.length.cmp(&other.length),
            _ => self.bytes(&mut [0; 8]).cmp(other.bytes(&mut [0; 8])),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_and_separators() {
        assert!(!Key::new(&[0; 8]).is_long && Key::new(&[0; 7]).is_long && Key::new(b"").is_long);
        assert_eq!(Key::new(&7u64.to_be_bytes()).word, 7);
        assert_eq!(Separator::between(b"http://a/1", b"http://a/2x").to_vec(), b"http://a/2");
        assert_eq!(Separator::between(b"abc", b"abcdefghijk").to_vec(), b"abcd");
        assert_eq!(Separator::between(b"", b"abcdefghijk").to_vec(), b"a");
    }

    proptest! {
        #[test]
        fn separators_are_ordered_as_their_bytes(
            a in proptest::collection::vec(0..3u8, 0..12),
            b in proptest::collection::vec(0..3u8, 0..12),
        ) {
            let (x, y) = (Separator::new(&a), Separator::new(&b));
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
            prop_assert_eq!(x.compare(prefix_of(&b), &b), a.cmp(&b));
            prop_assert_eq!(x.to_vec(), a.clone());
            if a < b {
                let between = Separator::between(&a, &b);
                prop_assert!(x < between && between <= y);
            }
        }

        #[test]
        fn buckets_are_in_range(word in any::<u64>(), buckets in 1..16usize, generation in any::<u32>()) {
            prop_assert!(bucket_of(mixed(word), buckets, generation) < buckets);
        }
    }
}
