//! The layout of nodes and blocks in remote memory. All words are little-endian. See
//! `docs/formats/tree.md`.
//!
//! ```text
//! leaf        0  MAGIC 16 | level 8 = 0 | buckets 8 | generation 32
//!             8  child word of the leaf that was merged into this one, or 0
//!            16  buckets, each:  control word, then slots of (key word, value word)
//!
//! inner       0  MAGIC 16 | level 8 | 0 8 | generation 32
//!             8  child word of the node that was merged into this one, or 0
//!            16  control word
//!            24  slots, each:    prefix 64 | separator's length 16 . given 1 . 0 3 . address 44 | child word
//!
//! control     generation 32 | conditional 1 | reserved slots 31   what is above the slots is of no account
//!
//! staging     value words, one a slot of the leaf
//!
//! block       0  CRC32C of what follows 32 | key's length 32 | value's length 32 | 0 32
//!            16  key, value
//! ```
//!
//! The separator of a slot that is *given* belongs to the right half of the frozen node.
//!
//! A node whose control words have the generation [`NO_GENERATION`] is no longer a node.
//!
//! Only aligned words are atomic: a read returns a set of words, each of which was there at some moment of
//! the read. An empty slot of a leaf has a key word that belongs to another bucket, so a reader never takes
//! it for its key.

use crate::key::{Key, MAX_KEY_BYTES, SEEDS, bucket_of, mixed};
use crate::planted::{Bug, planted};
use crate::word::{Child, ValueWord};
use crate::{Error, word::UNIT_BYTES};
use forebay_base::checksum;

/// First two bytes of a node.
const MAGIC: u64 = 0x7472;
/// Start of a node's buckets or of its control word.
pub const HEADER_BYTES: usize = 16;
/// Slots of an inner node.
pub const INNER_SLOTS: usize = 120;
/// Bytes of an inner slot.
pub const INNER_SLOT_BYTES: usize = 24;
/// Bytes of an inner node.
pub const INNER_BYTES: usize = HEADER_BYTES + 8 + INNER_SLOTS * INNER_SLOT_BYTES;
/// Most slots of a bucket.
pub const MAX_SLOTS: usize = 15;
/// Most buckets of a leaf, even one made by merges or unlucky hashes.
pub const MAX_BUCKETS: usize = 15;
/// Fewest buckets of a leaf: with only one, no key word would belong to another bucket.
pub const MIN_BUCKETS: usize = 2;
/// The generation of memory that holds no node.
pub const NO_GENERATION: u32 = u32::MAX;
/// Bytes of a block before its key.
pub const BLOCK_HEADER_BYTES: usize = 16;

/// The word at `at` bytes; zero beyond the end.
#[inline]
pub fn word_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
}

#[inline]
pub fn put_word(bytes: &mut [u8], at: usize, word: u64) {
    if let Some(place) = bytes.get_mut(at..at + 8) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

fn header(level: u8, buckets: usize, generation: u32) -> u64 {
    MAGIC | u64::from(level) << 16 | (buckets as u64) << 24 | u64::from(generation) << 32
}

/// A control word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control(pub u64);

impl Control {
    const CONDITIONAL: u64 = 1 << 31;

    pub const fn new(generation: u32, reserved: usize) -> Self {
        Self((generation as u64) << 32 | reserved as u64)
    }

    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Number of reserved slots; may exceed the number of slots.
    pub const fn reserved(self) -> usize {
        (self.0 & (Self::CONDITIONAL - 1)) as usize
    }

    pub const fn with_reserved(self, reserved: usize) -> Self {
        Self(self.0 & !(Self::CONDITIONAL - 1) | reserved as u64)
    }

    /// Whether a value of the bucket was, or is about to be, swapped on condition of its old value.
    pub const fn is_conditional(self) -> bool {
        self.0 & Self::CONDITIONAL != 0
    }

    pub const fn conditional(self) -> Self {
        Self(self.0 | Self::CONDITIONAL)
    }
}

/// The geometry of leaves. All clients of a tree agree on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Slots of a bucket.
    pub slots: usize,
    /// Buckets of a leaf before it is split.
    pub most_buckets: usize,
    /// Maximum fill of a new leaf, percent.
    pub fill_percent: usize,
}

/// How a leaf's keys are spread. It is a function of the keys, so all clients that make the leaf
/// agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub buckets: usize,
    /// The leaf's generation is this modulo [`SEEDS`].
    pub seed: u32,
    /// Keys of the fullest bucket.
    fullest: usize,
}

impl Shape {
    /// The shape with the hash function whose fullest bucket has the fewest of these mixed key words.
    fn most_even(words: &[u64], buckets: usize) -> Self {
        let fullest = |seed: u32| {
            let mut counts = [0; MAX_BUCKETS];
            words.iter().for_each(|&word| counts[bucket_of(word, buckets, seed)] += 1);
            counts.into_iter().max().unwrap_or(0)
        };
        let shapes = (0..SEEDS).map(|seed| Self { buckets, seed, fullest: fullest(seed) });
        shapes.min_by_key(|shape| shape.fullest).unwrap_or(Self { buckets, seed: 0, fullest: words.len() })
    }
}

impl Geometry {
    pub const fn bucket_bytes(&self) -> usize {
        8 + 16 * self.slots
    }

    pub const fn leaf_bytes(&self, buckets: usize) -> usize {
        HEADER_BYTES + buckets * self.bucket_bytes()
    }

    pub const fn bucket_offset(&self, bucket: usize) -> usize {
        HEADER_BYTES + bucket * self.bucket_bytes()
    }

    /// Offset of a slot's key word in the leaf; its value word follows.
    pub const fn slot_offset(&self, bucket: usize, slot: usize) -> usize {
        self.bucket_offset(bucket) + 8 + 16 * slot
    }

    /// Keys that a new leaf with the most buckets holds.
    pub const fn most_keys(&self) -> usize {
        self.slots * self.most_buckets * self.fill_percent / 100
    }

    /// The shape of a new leaf for these key words, such that each bucket has a free slot; `None` when
    /// there are too many, or too many for one bucket.
    pub fn shape_for(&self, words: impl Iterator<Item = u64>, limit: usize) -> Option<Shape> {
        let mixed: Vec<u64> = words.map(mixed).collect();
        let fewest = (mixed.len() * 100).div_ceil(self.slots * self.fill_percent).max(MIN_BUCKETS);
        if fewest > limit {
            return None;
        }
        (fewest..=MAX_BUCKETS).map(|buckets| Shape::most_even(&mixed, buckets)).find(|shape| shape.fullest < self.slots)
    }

    /// The shape of a leaf that holds these key words, though some of its buckets may be full.
    pub fn shape_that_holds(&self, words: impl Iterator<Item = u64>) -> Option<Shape> {
        let mixed: Vec<u64> = words.map(mixed).collect();
        let shapes = (MIN_BUCKETS..=MAX_BUCKETS).map(|buckets| Shape::most_even(&mixed, buckets));
        shapes.min_by_key(|shape| shape.fullest).filter(|shape| shape.fullest <= self.slots)
    }

    /// The image of a new leaf. The entries must fit, according to [`Geometry::shape_for`].
    pub fn leaf_image(
        &self,
        buckets: usize,
        generation: u32,
        merged: u64,
        entries: impl Iterator<Item = (u64, ValueWord)>,
    ) -> Vec<u8> {
        let mut image = vec![0; self.leaf_bytes(buckets)];
        put_word(&mut image, 0, header(0, buckets, generation));
        put_word(&mut image, 8, merged);
        let mut counts = [0; MAX_BUCKETS];
        for (key, value) in entries {
            let bucket = bucket_of(mixed(key), buckets, generation);
            let at = self.slot_offset(bucket, counts[bucket]);
            put_word(&mut image, at, key);
            put_word(&mut image, at + 8, value.0);
            counts[bucket] += 1;
        }
        for (bucket, &count) in counts.iter().enumerate().take(buckets) {
            let is_other = |&word: &u64| bucket_of(mixed(word), buckets, generation) != bucket;
            let filler = (0..u64::MAX).find(is_other).unwrap_or_default();
            put_word(&mut image, self.bucket_offset(bucket), Control::new(generation, count).0);
            for slot in count..self.slots {
                let at = self.slot_offset(bucket, slot);
                put_word(&mut image, at, filler);
                put_word(&mut image, at + 8, ValueWord::EMPTY.0);
            }
        }
        image
    }
}

/// Offset of a key word's bucket in a leaf.
#[inline]
pub fn bucket_offset_of(geometry: &Geometry, leaf: Child, word: u64) -> usize {
    geometry.bucket_offset(leaf.bucket_of(word))
}

/// The merged word in a leaf's header, if the bytes belong to this leaf.
pub fn leaf_merged(bytes: &[u8], leaf: Child) -> Option<Child> {
    (word_at(bytes, 0) == header(0, leaf.buckets(), leaf.generation())).then(|| Child(word_at(bytes, 8)))
}

/// The level of an inner node, if the bytes belong to that node.
pub fn inner_level(bytes: &[u8], node: Child) -> Option<u8> {
    let level = (word_at(bytes, 0) >> 16) as u8;
    let control = Control(word_at(bytes, HEADER_BYTES));
    let same = word_at(bytes, 0) == header(level, 0, node.generation()) && control.generation() == node.generation();
    (same && level > 0).then_some(level)
}

/// An inner node's merged word, if the bytes belong to that node.
pub fn inner_merged(bytes: &[u8], node: Child) -> Option<Child> {
    inner_level(bytes, node).map(|_| Child(word_at(bytes, 8)))
}

/// Where a key is in a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The bucket belongs to another generation.
    Stale,
    /// In this slot, live or dead, not frozen.
    At(usize, ValueWord),
    /// Nowhere, and the leaf was the right one while it was read.
    Nowhere,
    /// The leaf is being replaced.
    Frozen,
}

/// A bucket as it was read.
#[derive(Debug, Clone, Copy)]
pub struct Bucket<'a> {
    bytes: &'a [u8],
}

impl<'a> Bucket<'a> {
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    #[inline]
    pub fn control(&self) -> Control {
        Control(word_at(self.bytes, 0))
    }

    /// The slots.
    #[inline]
    pub fn slots(&self) -> impl Iterator<Item = (u64, ValueWord)> + use<'a> {
        let slots = self.bytes.get(8..).unwrap_or_default();
        slots.chunks_exact(16).map(|slot| (word_at(slot, 0), ValueWord(word_at(slot, 8))))
    }

    /// Finds a key. A long key is found by its hash; then the record decides. Slots before `from`
    /// are skipped.
    #[inline]
    pub fn find(&self, key: &Key<'_>, generation: u32, from: usize) -> Found {
        if self.control().generation() != generation && !planted(Bug::MissingGeneration) {
            return Found::Stale;
        }
        let mut any_thawed = false;
        for (slot, (word, value)) in self.slots().enumerate() {
            if word == key.word && slot >= from {
                // An eight-byte key never has a record, and only such a key leaves a dead slot.
                let is_dead = value == ValueWord::DEAD;
                let is_candidate = if key.is_long { value.is_record() } else { value.is_live() && !value.is_record() };
                if is_candidate && value.is_frozen() {
                    return Found::Frozen;
                }
                if is_candidate || is_dead && !key.is_long {
                    return Found::At(slot, value);
                }
            }
            any_thawed |= !value.is_frozen();
        }
        // One word that is not frozen shows that the leaf had not been replaced while it was read.
        if any_thawed || planted(Bug::TrustFrozen) { Found::Nowhere } else { Found::Frozen }
    }
}

/// A slot of an inner node: its separator's length and address, or its bytes, and its child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InnerSlot {
    pub prefix: u64,
    pub rest: u64,
    pub child: Child,
}

impl InnerSlot {
    const GIVEN: u64 = 1 << 47;

    pub const fn separator_length(&self) -> u32 {
        separator_length(self.rest)
    }

    /// Whether its separator's block belongs to the right half of the node, and may be free.
    pub const fn is_given(&self) -> bool {
        self.rest & Self::GIVEN != 0
    }

    pub const fn given(self) -> Self {
        Self { rest: self.rest | Self::GIVEN, ..self }
    }

    /// The slot of a copy, which owns its separator.
    pub const fn own(self) -> Self {
        Self { rest: self.rest & !Self::GIVEN, ..self }
    }
}

/// The length of a separator, from the second word of its slot.
pub const fn separator_length(rest: u64) -> u32 {
    (rest >> 48) as u32
}

/// The slots of an inner node.
pub fn inner_slots(bytes: &[u8]) -> impl Iterator<Item = InnerSlot> {
    let slots = bytes.get(HEADER_BYTES + 8..).unwrap_or_default();
    slots.chunks_exact(INNER_SLOT_BYTES).map(|slot| InnerSlot {
        prefix: word_at(slot, 0),
        rest: word_at(slot, 8),
        child: Child(word_at(slot, 16)),
    })
}

/// Offset of a slot in an inner node; its child word is 16 bytes further.
pub const fn inner_slot_offset(slot: usize) -> usize {
    HEADER_BYTES + 8 + slot * INNER_SLOT_BYTES
}

/// The image of a new inner node of at most [`INNER_SLOTS`] entries.
pub fn inner_image(level: u8, generation: u32, merged: Child, entries: &[InnerSlot]) -> Vec<u8> {
    let mut image = vec![0; INNER_BYTES];
    put_word(&mut image, 0, header(level, 0, generation));
    put_word(&mut image, 8, merged.0);
    put_word(&mut image, HEADER_BYTES, Control::new(generation, entries.len()).0);
    for (slot, entry) in entries.iter().enumerate().take(INNER_SLOTS) {
        let at = inner_slot_offset(slot);
        put_word(&mut image, at, entry.prefix);
        put_word(&mut image, at + 8, entry.rest);
        put_word(&mut image, at + 16, entry.child.0);
    }
    image
}

/// The bytes of a block.
pub fn block_image(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut image = Vec::with_capacity(BLOCK_HEADER_BYTES + key.len() + value.len());
    image.extend_from_slice(&[0; 4]);
    image.extend_from_slice(&(key.len() as u32).to_le_bytes());
    image.extend_from_slice(&(value.len() as u32).to_le_bytes());
    image.extend_from_slice(&[0; 4]);
    image.extend_from_slice(key);
    image.extend_from_slice(value);
    let crc = checksum(image.get(4..).unwrap_or_default());
    if let Some(place) = image.get_mut(..4) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
    image
}

/// Length of a whole block, from its first bytes.
pub fn block_length(first: &[u8]) -> Result<usize, Error> {
    let (crc_and_key, value) = (word_at(first, 0), word_at(first, 8));
    let length = BLOCK_HEADER_BYTES as u64 + (crc_and_key >> 32) + (value & 0xffff_ffff);
    usize::try_from(length).map_err(|_| Error::corrupt("a block is longer than memory"))
}

/// Length of a block up to the end of its key, from its first bytes.
pub fn key_end(first: &[u8]) -> Result<usize, Error> {
    let length = (word_at(first, 0) >> 32) as usize;
    if length > MAX_KEY_BYTES {
        return Err(Error::corrupt(format!("a block with a key of {length} bytes")));
    }
    Ok(BLOCK_HEADER_BYTES + length)
}

/// A block's key and value.
pub fn decode_block(bytes: &[u8]) -> Result<(&[u8], &[u8]), Error> {
    let short = || Error::corrupt("a block is cut off");
    let body = bytes.get(4..).ok_or_else(short)?;
    let expected = word_at(bytes, 0) as u32;
    let found = checksum(body);
    if found != expected {
        return Err(Error::corrupt(format!("a block's checksum is {found:08x} and not {expected:08x}")));
    }
    let key_length = (word_at(bytes, 0) >> 32) as usize;
    bytes.get(BLOCK_HEADER_BYTES..).and_then(|rest| rest.split_at_checked(key_length)).ok_or_else(short)
}

/// Bytes rounded up to whole units.
pub const fn rounded(bytes: usize) -> usize {
    bytes.div_ceil(UNIT_BYTES as usize) * UNIT_BYTES as usize
}

const _: () = assert!(INNER_BYTES == 2904 && rounded(INNER_BYTES) == 2944);

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry = Geometry { slots: 15, most_buckets: 8, fill_percent: 67 };

    #[test]
    fn control_words() {
        let control = Control::new(7, 3);
        assert_eq!((control.0, control.conditional().0), (7 << 32 | 3, 7 << 32 | 1 << 31 | 3));
        assert_eq!((control.conditional().reserved(), control.conditional().generation()), (3, 7));
        assert_eq!(control.conditional().with_reserved(9), Control::new(7, 9).conditional());
        assert!(!control.is_conditional() && control.conditional().is_conditional());
    }

    #[test]
    fn sizes() {
        assert_eq!(GEOMETRY.bucket_bytes(), 248);
        assert_eq!(rounded(GEOMETRY.leaf_bytes(2)), 512);
        assert_eq!(GEOMETRY.most_keys(), 80);
        assert_eq!(GEOMETRY.slot_offset(1, 2), 16 + 248 + 8 + 32);
    }

    #[test]
    fn golden_leaf() {
        let geometry = Geometry { slots: 2, most_buckets: 2, fill_percent: 50 };
        let image = geometry.leaf_image(2, 7, 9, [(1, ValueWord(5))].into_iter());
        let words: Vec<u64> = (0..image.len()).step_by(8).map(|at| word_at(&image, at)).collect();
        let bucket = bucket_of(mixed(1), 2, 7);
        assert_eq!(words[..2], [0x0000_0007_0200_7472, 9]);
        assert_eq!(words[2 + bucket * 5..][..3], [7 << 32 | 1, 1, 5]);
        assert_eq!(words[2 + (1 - bucket) * 5], 7 << 32);
        assert_eq!(words.iter().filter(|&&word| word == ValueWord::EMPTY.0).count(), 3);
        assert_eq!(leaf_merged(&image, Child::new(Default::default(), 2, 7)), Some(Child(9)));
        assert_eq!(leaf_merged(&image, Child::new(Default::default(), 2, 8)), None);
    }

    #[test]
    fn golden_block() {
        let image = block_image(b"key", b"value");
        assert_eq!(image.len(), 24);
        assert_eq!(image[4..16], [3, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(word_at(&image, 0) as u32, 0xb521d422);
        assert_eq!(block_length(&image[..16]), Ok(24));
        assert_eq!(key_end(&image[..16]), Ok(19));
        assert!(key_end(&[0xff; 16]).is_err());
        assert_eq!(decode_block(&image), Ok((&b"key"[..], &b"value"[..])));
        for at in 0..image.len() {
            let mut rotten = image.clone();
            rotten[at] ^= 4;
            assert!(decode_block(&rotten).is_err());
            assert!(decode_block(&image[..at]).is_err());
        }
    }

    #[test]
    fn inner_nodes_come_back() {
        let child = Child::new(crate::word::Address::from_bits(5), 3, 1);
        let entries = [InnerSlot { prefix: 1, rest: 8 << 48, child }, InnerSlot { prefix: 2, rest: 8 << 48, child }];
        let image = inner_image(1, 4, Child(9), &entries);
        assert_eq!(word_at(&image, 0), 0x0000_0004_0001_7472);
        assert_eq!(inner_level(&image, Child::new(Default::default(), 0, 4)), Some(1));
        assert_eq!(inner_level(&image, Child::new(Default::default(), 0, 5)), None);
        assert_eq!(inner_merged(&image, Child::new(Default::default(), 0, 4)), Some(Child(9)));
        let slots: Vec<InnerSlot> = inner_slots(&image).collect();
        assert_eq!(slots.len(), INNER_SLOTS);
        assert_eq!(slots[..2], entries);
        assert_eq!(slots[2].child, Child::EMPTY);
        assert_eq!(entries[0].separator_length(), 8);
        let given = InnerSlot { prefix: 0, rest: 9 << 48 | 5, child }.given();
        assert_eq!((given.rest, given.separator_length()), (0x0009_8000_0000_0005, 9));
        assert_eq!(crate::word::Address::from_bits(given.rest), child.address());
        assert!(given.is_given() && !given.own().is_given());
    }

    #[test]
    fn a_key_is_found_in_its_bucket_only() {
        let keys: Vec<u64> = (0..40).collect();
        let Shape { buckets, seed, .. } = GEOMETRY.shape_for(keys.iter().copied(), 8).unwrap();
        let generation = seed + SEEDS;
        let leaf = Child::new(Default::default(), buckets, generation);
        let image = GEOMETRY.leaf_image(buckets, generation, 0, keys.iter().map(|&key| (key, ValueWord(key + 100))));
        for &key in &keys {
            let bytes = key.to_be_bytes();
            let at = bucket_offset_of(&GEOMETRY, leaf, key);
            let bucket = Bucket::new(&image[at..at + GEOMETRY.bucket_bytes()]);
            let Found::At(_, value) = bucket.find(&Key::new(&bytes), generation, 0) else { panic!("{key}") };
            assert_eq!(value, ValueWord(key + 100));
            assert_eq!(bucket.find(&Key::new(&bytes), generation + 1, 0), Found::Stale);
        }
        let absent = 1000u64.to_be_bytes();
        let at = bucket_offset_of(&GEOMETRY, leaf, 1000);
        let bucket = Bucket::new(&image[at..at + GEOMETRY.bucket_bytes()]);
        assert_eq!(bucket.find(&Key::new(&absent), generation, 0), Found::Nowhere);
    }
}
