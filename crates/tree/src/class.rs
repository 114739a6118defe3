//! Sizes of blocks, and how many of one size are handed over together. See `docs/formats/tree.md`.

use crate::Error;
use crate::key::SEEDS;
use crate::layout::{Geometry, INNER_BYTES, MAX_BUCKETS, rounded};
use crate::word::{Address, MAX_GENERATION, UNIT_BYTES};

/// Bytes of a chunk.
pub const CHUNK_BYTES: u64 = 64 << 10;
/// Bytes of a chunk before its blocks.
pub const CHUNK_HEADER_BYTES: u64 = UNIT_BYTES;
/// Bytes of a list of free blocks.
pub const LIST_BYTES: usize = 512;
/// Bytes of a list before its entries.
pub const LIST_HEADER_BYTES: usize = 16;
/// Most blocks that are handed over together.
pub const MOST_IN_BATCH: usize = (LIST_BYTES - LIST_HEADER_BYTES) / 8;
/// Fewest lists that are handed over together: handing over a batch takes a list, and getting a batch retires one.
const FEWEST_LISTS: usize = 8;
/// Number of classes for which a superblock has room.
pub const SHELVES: usize = 96;
/// Most chunks of a block: an extent has at most `1 << 26` units.
const MOST_CHUNKS: u64 = 1 << 16;

/// The size and purpose of a block. A block never changes its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A leaf of this many buckets.
    Leaf(usize),
    Inner,
    /// Value words of a leaf that is being replaced.
    Staging,
    /// A list of free blocks.
    List,
    /// A block of `64 << n` bytes.
    Block(u32),
    /// A block of this many whole chunks.
    Large(u64),
}

impl Class {
    const BLOCKS: u32 = 10;

    /// The class of a block of this length.
    pub fn of_block(bytes: usize) -> Self {
        let power = bytes.div_ceil(64).next_power_of_two().trailing_zeros();
        if power < Self::BLOCKS {
            Self::Block(power)
        } else {
            Self::Large((bytes as u64 + CHUNK_HEADER_BYTES).div_ceil(CHUNK_BYTES))
        }
    }

    /// The class from which a block of this class is taken, where an extent has room for `most_chunks` chunks.
    /// Large blocks have few sizes, so that they can be used again.
    pub fn rounded(self, most_chunks: u64) -> Self {
        match self {
            Self::Large(chunks) => Self::Large(large_chunks(chunks).min(most_chunks).max(chunks)),
            class => class,
        }
    }

    pub fn bytes(self, geometry: &Geometry) -> u64 {
        match self {
            Self::Leaf(buckets) => rounded(geometry.leaf_bytes(buckets)) as u64,
            Self::Inner => rounded(INNER_BYTES) as u64,
            Self::Staging => rounded(MAX_BUCKETS * geometry.slots * 8) as u64,
            Self::List => LIST_BYTES as u64,
            Self::Block(power) => 64 << power,
            Self::Large(chunks) => chunks * CHUNK_BYTES,
        }
    }

    /// Its number in a chunk's header.
    pub fn number(self) -> u64 {
        match self {
            Self::Leaf(buckets) => buckets as u64,
            Self::Inner => 32,
            Self::Staging => 33,
            Self::List => 34,
            Self::Block(power) => 64 + u64::from(power),
            Self::Large(chunks) => 128 + chunks,
        }
    }

    /// The class with this number.
    pub fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            1..=15 => Self::Leaf(number as usize),
            32 => Self::Inner,
            33 => Self::Staging,
            34 => Self::List,
            64..74 => Self::Block(number as u32 - 64),
            129.. if number <= 128 + MOST_CHUNKS => Self::Large(number - 128),
            _ => return None,
        })
    }

    /// The index of the class's shelf in the superblock. Large blocks of nearly the same size share a
    /// shelf.
    pub fn shelf(self) -> usize {
        match self {
            Self::Leaf(buckets) => buckets,
            Self::Inner => 16,
            Self::Staging => 17,
            Self::List => 18,
            Self::Block(power) => 20 + power as usize,
            Self::Large(chunks) => 32 + large_size(chunks),
        }
    }

    /// Blocks of a chunk of this class.
    pub fn in_chunk(self, geometry: &Geometry) -> u64 {
        match self {
            Self::Large(_) => 1,
            _ => (CHUNK_BYTES - CHUNK_HEADER_BYTES) / self.bytes(geometry),
        }
    }

    /// The block with this number in a chunk of this class.
    pub fn block_of_chunk(self, chunk: Address, number: u64, geometry: &Geometry) -> Block {
        let units = (CHUNK_HEADER_BYTES + number * self.bytes(geometry)) / UNIT_BYTES;
        Block { class: self, at: Address::from_bits(chunk.bits() + units), generation: 1 }
    }
}

/// How memory is divided, and how much of it this process hands over together.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    pub geometry: Geometry,
    /// Bytes of a batch of free blocks, if it has more than one.
    pub batch_bytes: usize,
}

impl Cut {
    /// Free blocks of a class that are handed over together.
    pub fn in_batch(&self, class: Class) -> usize {
        let least = if class == Class::List { FEWEST_LISTS } else { 1 };
        ((self.batch_bytes as u64 / class.bytes(&self.geometry)) as usize).clamp(least, MOST_IN_BATCH)
    }
}

/// Chunks of an extent: those that have an address.
pub fn chunks_in(extent_bytes: u64) -> u64 {
    (extent_bytes / CHUNK_BYTES).min(MOST_CHUNKS)
}

/// The index of the large-block size for this many chunks. There is one size for each number up to 8 chunks, and
/// above that four sizes per doubling, so that at most a fifth is wasted.
fn large_size(chunks: u64) -> usize {
    let chunks = large_chunks(chunks.clamp(1, MOST_CHUNKS));
    if chunks < 8 {
        return chunks as usize;
    }
    let power = chunks.ilog2();
    8 + 4 * (power as usize - 3) + ((chunks >> (power - 2)) as usize - 4)
}

/// The chunks of the smallest size that has at least this many.
fn large_chunks(chunks: u64) -> u64 {
    let grain = 1 << chunks.ilog2().saturating_sub(2);
    if chunks < 8 { chunks } else { chunks.next_multiple_of(grain) }
}

/// A block's class and address.
#[cfg(feature = "planted")]
pub type BlockName = (u64, u64);

/// A block, free or in use, and its generation if it is a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    pub class: Class,
    pub at: Address,
    pub generation: u32,
}

impl Block {
    const GENERATION_BIT: u32 = 44;

    /// The block with the next of its generations that has this hash function.
    pub fn seeded(self, seed: u32) -> Self {
        let later = std::iter::successors(Some(self.generation), |&generation| Some(next_generation(generation)));
        let seeded = later.take(2 * SEEDS as usize).find(|generation| generation % SEEDS == seed);
        Self { generation: seeded.unwrap_or(self.generation), ..self }
    }

    /// Its class's number and its address.
    #[cfg(feature = "planted")]
    pub fn name(self) -> BlockName {
        (self.class.number(), self.at.bits())
    }

    /// The block with the generation of its next use.
    pub fn next(self) -> Self {
        Self { generation: next_generation(self.generation), ..self }
    }

    /// Its entry in a list of free blocks.
    pub fn entry(self) -> u64 {
        u64::from(self.generation) << Self::GENERATION_BIT | self.at.bits()
    }

    /// The block of an entry in a list of free blocks of a class.
    pub fn from_entry(entry: u64, class: Class) -> Result<Self, Error> {
        let generation = (entry >> Self::GENERATION_BIT) as u32;
        let at = Address::from_bits(entry);
        if generation == 0 || generation > MAX_GENERATION || at == Address::default() {
            return Err(Error::corrupt(format!("the entry {entry:016x} in a list of free blocks")));
        }
        Ok(Self { class, at, generation })
    }
}

/// The generation after this one.
pub const fn next_generation(generation: u32) -> u32 {
    if generation >= MAX_GENERATION { 1 } else { generation + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TreeOptions;
    use forebay_memory_client::ExtentId;
    use std::collections::BTreeMap;

    #[test]
    fn classes() {
        assert_eq!(Class::of_block(1), Class::Block(0));
        assert_eq!(Class::of_block(65), Class::Block(1));
        assert_eq!(Class::of_block(32 << 10), Class::Block(9));
        assert_eq!(Class::of_block((32 << 10) + 1), Class::Large(1));
        assert_eq!(Class::of_block(200_000), Class::Large(4));
        assert_eq!(Class::of_block(65_500), Class::Large(2));
        assert_eq!(Class::of_block(8 * 65_536).rounded(100), Class::Large(10));
        assert_eq!(Class::Large(9).rounded(9), Class::Large(9));
        assert_eq!(Class::Large(11).rounded(9), Class::Large(11));
        for number in 0..200 {
            assert!(Class::from_number(number).is_none_or(|class| class.number() == number));
        }
        assert_eq!(Class::from_number(u64::MAX), None);
    }

    #[test]
    fn each_size_has_a_shelf() {
        let large = (1..=MOST_CHUNKS).map(|chunks| Class::Large(large_chunks(chunks)));
        let nodes = (1..=MAX_BUCKETS).map(Class::Leaf).chain([Class::Inner, Class::Staging, Class::List]);
        let mut shelves: BTreeMap<usize, Class> = BTreeMap::new();
        for class in nodes.chain((0..Class::BLOCKS).map(Class::Block)).chain(large) {
            assert!(class.shelf() < SHELVES);
            assert_eq!(*shelves.entry(class.shelf()).or_insert(class), class);
        }
        for chunks in 1..=MOST_CHUNKS {
            let rounded = large_chunks(chunks);
            assert!(rounded >= chunks && (rounded - chunks) * 5 <= rounded, "{chunks} {rounded}");
            // A class that does not fit into an extent when rounded has the same shelf without
            // rounding.
            assert_eq!(Class::Large(chunks).shelf(), Class::Large(rounded).shelf());
        }
    }

    #[test]
    fn every_chunk_has_an_address() {
        for extent_bytes in [1 << 20, 4 << 30, 5 << 30, 64 << 30] {
            let last = (chunks_in(extent_bytes) - 1) * CHUNK_BYTES;
            assert!(Address::new(0, ExtentId(0), last).is_some(), "{extent_bytes}");
        }
    }

    #[test]
    fn batches() {
        let geometry = TreeOptions::default().geometry().unwrap();
        let cut = Cut { geometry, batch_bytes: 16 << 10 };
        let of = |class: Class| (cut.in_batch(class), class.in_chunk(&geometry));
        assert_eq!(of(Class::Leaf(2)), (32, 127));
        assert_eq!(of(Class::Leaf(8)), (8, 31));
        assert_eq!(of(Class::Inner), (5, 22));
        assert_eq!(of(Class::Block(0)), (62, 1023));
        assert_eq!(of(Class::Block(9)), (1, 1));
        assert_eq!(of(Class::Large(3)), (1, 1));
        let small = Cut { batch_bytes: 1, ..cut };
        assert_eq!((small.in_batch(Class::Leaf(2)), small.in_batch(Class::List)), (1, 8));
    }

    #[test]
    fn generations() {
        assert_eq!(next_generation(MAX_GENERATION), 1);
        for generation in (1..20).chain(MAX_GENERATION - 20..=MAX_GENERATION) {
            let block = Block { class: Class::Leaf(2), at: Address::from_bits(77), generation };
            assert_eq!(Block::from_entry(block.entry(), Class::Leaf(2)), Ok(block));
            for seed in 0..SEEDS {
                let block = block.seeded(seed);
                let steps = (block.generation + MAX_GENERATION - generation) % MAX_GENERATION;
                assert!(block.generation > 0 && block.generation % SEEDS == seed && steps < 2 * SEEDS, "{block:?}");
            }
        }
        assert!(Block::from_entry(77, Class::Inner).is_err());
        assert!(Block::from_entry(1 << 44, Class::Inner).is_err());
        assert!(Block::from_entry(u64::MAX, Class::Inner).is_err());
    }
}
