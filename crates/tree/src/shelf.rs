//! The layout of the words and lists through which processes hand free blocks to each other. All words are
//! little-endian. See `docs/formats/tree.md`; the protocol is in [`stacks`](crate::stacks).
//!
//! ```text
//! superblock  24  round       reading epoch + 1, or 0 . 56 | 0 . 6 | number 0 to 2 . 2
//!           1024  shelves     one for each class, 32 bytes:
//!                             0, 8, 16  tops of its stacks: address of the uppermost list, or 0
//!                                   24  claim: next block 20 | address of the chunk that is being cut up 44
//!
//! list         0  address of the list below it, or 0
//!              8  CRC32C of what follows 32 | class 16 | blocks 16
//!             16  blocks, each: generation 20 | address 44
//! ```

use crate::Error;
use crate::class::{Block, Class, LIST_BYTES, LIST_HEADER_BYTES, MOST_IN_BATCH, SHELVES};
use crate::layout::{put_word, word_at};
use crate::word::Address;
use forebay_base::checksum;

/// Offset of the round in a superblock.
pub const ROUND_OFFSET: u64 = 24;
/// Offset of the shelves.
pub const SHELVES_OFFSET: u64 = 1024;
/// Stacks of a class.
pub const STACKS: usize = 3;
/// Bytes of a shelf.
pub const SHELF_BYTES: usize = 8 * STACKS + 8;
const _: () = assert!(SHELVES_OFFSET + (SHELVES * SHELF_BYTES) as u64 == 4096);

/// Offset of a class's shelf in a superblock.
pub fn shelf_offset(class: Class) -> u64 {
    SHELVES_OFFSET + (class.shelf() * SHELF_BYTES) as u64
}

/// Offset of the top of one of a class's stacks.
pub fn top_offset(class: Class, stack: usize) -> u64 {
    shelf_offset(class) + 8 * stack as u64
}

/// Offset of a class's claim.
pub fn claim_offset(class: Class) -> u64 {
    top_offset(class, STACKS)
}

/// Which stack takes and which gives, and whether the epoch of old readers is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    number: usize,
    /// Blocks retired in earlier rounds were retired in this reading epoch or before.
    pub ended: Option<u64>,
}

impl Round {
    pub fn decode(word: u64) -> Result<Self, Error> {
        let (number, ended) = ((word & 0xff) as usize, word >> 8);
        if number >= STACKS {
            return Err(Error::corrupt(format!("the round {word:016x}")));
        }
        Ok(Self { number, ended: ended.checked_sub(1) })
    }

    pub fn word(self) -> u64 {
        self.ended.map_or(0, |ended| ended + 1) << 8 | self.number as u64
    }

    /// The stack that retired blocks go to.
    pub const fn taking(self) -> usize {
        self.number
    }

    /// The stack whose blocks nobody reads any more: they were pushed at least two rounds ago.
    pub const fn giving(self) -> usize {
        (self.number + 1) % STACKS
    }

    /// The same round, once the epoch of earlier retired blocks is known.
    pub const fn with_ended(self, ended: u64) -> Self {
        Self { ended: Some(ended), ..self }
    }

    /// The round after this one.
    pub const fn next(self) -> Self {
        Self { number: (self.number + 1) % STACKS, ended: None }
    }
}

/// How far a class's chunk has been divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The chunk; address zero where there is none.
    pub chunk: Address,
    pub next: u64,
}

impl Claim {
    pub const fn from_word(word: u64) -> Self {
        Self { chunk: Address::from_bits(word), next: word >> 44 }
    }

    pub const fn word(self) -> u64 {
        self.next << 44 | self.chunk.bits()
    }
}

/// Free blocks of a class that are handed over together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    pub class: Class,
    /// Address of the list below, or 0.
    pub below: u64,
    pub blocks: Vec<Block>,
}

/// The lower 16 bits of a class's number, in which the classes of one shelf differ.
fn short_number(class: Class) -> u64 {
    class.number() & 0xffff
}

/// The class of a list's blocks, from its bytes.
pub fn class_of_list(bytes: &[u8]) -> Option<Class> {
    Class::from_number(word_at(bytes, 8) >> 32 & 0xffff)
}

impl Batch {
    /// Bytes of a list of `blocks` blocks.
    pub const fn bytes(blocks: usize) -> usize {
        LIST_HEADER_BYTES + 8 * blocks
    }

    /// The bytes of its list. A batch has at most [`MOST_IN_BATCH`] blocks.
    pub fn image(&self) -> Vec<u8> {
        let count = self.blocks.len().min(MOST_IN_BATCH);
        let mut image = vec![0; Self::bytes(count)];
        put_word(&mut image, 0, self.below);
        put_word(&mut image, 8, (count as u64) << 48 | short_number(self.class) << 32);
        for (at, block) in (LIST_HEADER_BYTES..).step_by(8).zip(&self.blocks) {
            put_word(&mut image, at, block.entry());
        }
        let crc = checksum(image.get(12..).unwrap_or_default());
        let counted = word_at(&image, 8) | u64::from(crc);
        put_word(&mut image, 8, counted);
        image
    }

    /// The batch of a list of a class.
    pub fn decode(bytes: &[u8], class: Class) -> Result<Self, Error> {
        let counted = word_at(bytes, 8);
        let (number, count) = (counted >> 32 & 0xffff, (counted >> 48) as usize);
        let body = bytes.get(12..Self::bytes(count)).filter(|_| number == short_number(class) && count > 0);
        let body = body.ok_or_else(|| Error::corrupt(format!("a list of {count} free blocks of class {number}")))?;
        let (expected, found) = (counted as u32, checksum(body));
        if found != expected {
            let what = "the checksum of a list of free blocks";
            return Err(Error::corrupt(format!("{what} is {found:08x} and not {expected:08x}")));
        }
        let entries = bytes.get(LIST_HEADER_BYTES..Self::bytes(count)).unwrap_or_default().chunks_exact(8);
        let blocks = entries.map(|entry| Block::from_entry(word_at(entry, 0), class)).collect::<Result<_, _>>()?;
        Ok(Self { class, below: word_at(bytes, 0), blocks })
    }
}

const _: () = assert!(Batch::bytes(MOST_IN_BATCH) == LIST_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    fn block(unit: u64, generation: u32) -> Block {
        Block { class: Class::Leaf(3), at: Address::from_bits(unit), generation }
    }

    #[test]
    fn golden_list() {
        let batch = Batch { class: Class::Leaf(3), below: 0x1234, blocks: vec![block(0x501, 7), block(0x502, 1)] };
        let image = batch.image();
        let words: Vec<u64> = (0..image.len()).step_by(8).map(|at| word_at(&image, at)).collect();
        assert_eq!(words, [0x1234, 0x0002_0003_4fa0_1296, 7 << 44 | 0x501, 1 << 44 | 0x502]);
        assert_eq!(Batch::decode(&image, Class::Leaf(3)), Ok(batch));
        assert!(Batch::decode(&image, Class::Leaf(4)).is_err());
        for at in 8..image.len() {
            let mut rotten = image.clone();
            rotten[at] ^= 4;
            assert!(Batch::decode(&rotten, Class::Leaf(3)).is_err(), "byte {at}");
            assert!(Batch::decode(&image[..at], Class::Leaf(3)).is_err());
        }
    }

    #[test]
    fn any_bytes_are_understood_or_refused() {
        let mut random = forebay_env::Random::seeded(3);
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..random.below(80)).map(|_| random.below(256) as u8).collect();
            let _ = Batch::decode(&bytes, Class::Inner);
            let _ = Round::decode(random.word());
        }
    }

    #[test]
    fn golden_words_of_shelves() {
        let round = Round::decode(0).unwrap();
        assert_eq!((round.taking(), round.giving(), round.ended), (0, 1, None));
        let ended = round.next().with_ended(0x41);
        assert_eq!(ended.word(), 0x4201);
        assert_eq!(Round::decode(0x4201), Ok(ended));
        assert_eq!((ended.taking(), ended.giving(), ended.next().word()), (1, 2, 2));
        assert_eq!(ended.next().next().word(), 0);
        assert!(Round::decode(3).is_err() && Round::decode(0x4203).is_err());
        let claim = Claim { chunk: Address::from_bits(0x400), next: 9 };
        assert_eq!(claim.word(), 9 << 44 | 0x400);
        assert_eq!(Claim::from_word(claim.word()), claim);
        assert_eq!(shelf_offset(Class::Leaf(1)), 1056);
        assert_eq!((top_offset(Class::Inner, 2), claim_offset(Class::Inner)), (1552, 1560));
    }
}
