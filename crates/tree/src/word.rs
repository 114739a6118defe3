//! The words that operations compare and swap: a leaf slot's value word, an inner slot's child word. See
//! `docs/formats/tree.md`.
//!
//! ```text
//! address       node 4 | extent 14 | unit 26                     44 bits; a unit is 64 bytes
//!
//! value word    any 64 bits whose upper 16 are not ESCAPE        a value of 8 bytes
//!               ESCAPE 16 | frozen 1 | kind 3 | payload 44       everything else
//!                 0 empty      the slot was never used
//!                 1 dead       deleted; the key's next insert revives the slot
//!                 2 spent      never to be used: poisoned while empty, or its record was deleted
//!                 3 short      a value of 0 to 5 bytes: length 4 | bytes 40
//!                 4 block      address of the value; the slot's key word is the key
//!                 5 record     address of key and value; the slot's key word is the key's hash
//!                 6 staged     frozen only: address of a staging block that holds the value
//!
//! child word    generation 14 | merging 1 | frozen 1 | buckets 4 | address 44
//!                 buckets 0: an inner node; else a leaf, whose generation says its hash function
//!                 address 0: no child: generation 0 empty, 1 dead, 2 spent
//! ```
//!
//! A value of 8 bytes whose upper bits happen to be ESCAPE goes into a block.

use crate::key::{bucket_of, mixed};
use forebay_memory_client::ExtentId;

/// Bytes of the unit that addresses count.
pub const UNIT_BYTES: u64 = 64;
/// Most memory nodes of a tree.
pub const MAX_NODES: usize = 16;
/// Extents of a node that a tree can use: their numbers are below this.
pub const MAX_EXTENT: u32 = 1 << 14;

const ADDRESS_BITS: u32 = 44;
const ADDRESS_MASK: u64 = (1 << ADDRESS_BITS) - 1;
const ESCAPE: u64 = 0xfba5;
const FROZEN: u64 = 1 << 47;

/// A place in the memory of a tree's nodes, in units of 64 bytes. The zero address belongs to the
/// superblock, never to a node or block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Address(u64);

impl Address {
    /// The address of `offset` bytes, a multiple of 64, in an extent.
    pub fn new(node: usize, extent: ExtentId, offset: u64) -> Option<Self> {
        let unit = offset / UNIT_BYTES;
        let fits = node < MAX_NODES && extent.0 < MAX_EXTENT && unit < 1 << 26 && offset.is_multiple_of(UNIT_BYTES);
        fits.then_some(Self((node as u64) << 40 | u64::from(extent.0) << 26 | unit))
    }

    /// From the lower 44 bits of a word.
    pub const fn from_bits(word: u64) -> Self {
        Self(word & ADDRESS_MASK)
    }

    pub const fn bits(self) -> u64 {
        self.0
    }

    pub const fn node(self) -> usize {
        (self.0 >> 40) as usize
    }

    pub const fn extent(self) -> ExtentId {
        ExtentId((self.0 >> 26) as u32 & (MAX_EXTENT - 1))
    }

    /// Bytes from the start of the extent.
    pub const fn offset(self) -> u64 {
        (self.0 & ((1 << 26) - 1)) * UNIT_BYTES
    }
}

/// The meaning of a value word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    Empty,
    Dead,
    Spent,
    /// Eight bytes.
    Full(u64),
    /// Length and bytes.
    Short(usize, [u8; 5]),
    Block(Address),
    Record(Address),
    Staged(Address),
}

/// A leaf slot's value word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueWord(pub u64);

impl ValueWord {
    pub const EMPTY: Self = Self::special(0, 0);
    pub const DEAD: Self = Self::special(1, 0);
    pub const SPENT: Self = Self::special(2, 0);

    const fn special(kind: u64, payload: u64) -> Self {
        Self(ESCAPE << 48 | kind << ADDRESS_BITS | payload)
    }

    pub const fn block(at: Address) -> Self {
        Self::special(4, at.bits())
    }

    pub const fn record(at: Address) -> Self {
        Self::special(5, at.bits())
    }

    pub const fn staged(at: Address) -> Self {
        Self(Self::special(6, at.bits()).0 | FROZEN)
    }

    /// The word of a value that fits into one.
    #[inline]
    pub fn of(value: &[u8]) -> Option<Self> {
        if let Ok(bytes) = <[u8; 8]>::try_from(value) {
            let word = u64::from_le_bytes(bytes);
            return (word >> 48 != ESCAPE).then_some(Self(word));
        }
        if value.len() > 5 {
            return None;
        }
        let bytes = value.iter().rev().fold(0, |bytes, &byte| bytes << 8 | u64::from(byte));
        Some(Self::special(3, (value.len() as u64) << 40 | bytes))
    }

    const fn is_special(self) -> bool {
        self.0 >> 48 == ESCAPE
    }

    pub const fn is_frozen(self) -> bool {
        self.is_special() && self.0 & FROZEN != 0
    }

    /// The same word frozen; `None` for a value of 8 bytes, which has to be staged.
    pub const fn frozen(self) -> Option<Self> {
        if self.is_special() { Some(Self(self.0 | FROZEN)) } else { None }
    }

    /// The same word not frozen.
    pub const fn thawed(self) -> Self {
        if self.is_special() { Self(self.0 & !FROZEN) } else { self }
    }

    /// Its meaning, frozen or not; `None` for a word that nobody writes.
    #[inline]
    pub fn value(self) -> Option<Value> {
        if !self.is_special() {
            return Some(Value::Full(self.0));
        }
        let at = Address::from_bits(self.0);
        Some(match self.0 >> ADDRESS_BITS & 7 {
            0 => Value::Empty,
            1 => Value::Dead,
            2 => Value::Spent,
            3 => {
                let length = (self.0 >> 40 & 15) as usize;
                let [a, b, c, d, e, ..] = self.0.to_le_bytes();
                return (length <= 5).then_some(Value::Short(length, [a, b, c, d, e]));
            }
            4 => Value::Block(at),
            5 => Value::Record(at),
            6 if self.0 & FROZEN != 0 => Value::Staged(at),
            _ => return None,
        })
    }

    /// Whether there is a value: neither empty nor dead nor spent.
    pub fn is_live(self) -> bool {
        !self.is_special() || self.0 >> ADDRESS_BITS & 7 > 2
    }

    /// Whether its slot's key has been written: neither empty nor spent.
    pub fn is_used(self) -> bool {
        !self.is_special() || !matches!(self.0 >> ADDRESS_BITS & 7, 0 | 2)
    }

    /// Whether it belongs to a record: then the key word is a hash.
    pub fn is_record(self) -> bool {
        self.0 & !FROZEN & !ADDRESS_MASK == Self::special(5, 0).0
    }
}

/// An inner slot's child word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Child(pub u64);

/// Generations go from 1 to this and then start again.
pub const MAX_GENERATION: u32 = (1 << 14) - 2;

impl Child {
    pub const EMPTY: Self = Self(0);
    pub const DEAD: Self = Self(1 << 50);
    pub const SPENT: Self = Self(2 << 50);
    const FROZEN: u64 = 1 << 48;
    const MERGING: u64 = 1 << 49;

    /// A leaf of 1 to 15 buckets, or an inner node with 0.
    pub const fn new(address: Address, buckets: usize, generation: u32) -> Self {
        Self((generation as u64) << 50 | (buckets as u64) << 44 | address.bits())
    }

    pub const fn address(self) -> Address {
        Address::from_bits(self.0)
    }

    pub const fn buckets(self) -> usize {
        (self.0 >> 44 & 15) as usize
    }

    pub const fn is_leaf(self) -> bool {
        self.buckets() > 0
    }

    pub const fn generation(self) -> u32 {
        (self.0 >> 50) as u32
    }

    /// The bucket of a key word in this leaf.
    #[inline]
    pub fn bucket_of(self, word: u64) -> usize {
        bucket_of(mixed(word), self.buckets(), self.generation())
    }

    /// Whether it names a child.
    pub const fn is_live(self) -> bool {
        self.0 & ADDRESS_MASK != 0
    }

    pub const fn is_frozen(self) -> bool {
        self.0 & Self::FROZEN != 0
    }

    pub const fn frozen(self) -> Self {
        Self(self.0 | Self::FROZEN)
    }

    pub const fn thawed(self) -> Self {
        Self(self.0 & !Self::FROZEN)
    }

    pub const fn is_merging(self) -> bool {
        self.0 & Self::MERGING != 0
    }

    pub const fn merging(self) -> Self {
        Self(self.0 | Self::MERGING)
    }

    /// The child itself: neither frozen nor merging.
    pub const fn plain(self) -> Self {
        Self(self.0 & !Self::FROZEN & !Self::MERGING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_words() {
        let at = Address::new(3, ExtentId(5), 7 * 64).unwrap();
        assert_eq!(at.bits(), 0x300_1400_0007);
        assert_eq!((at.node(), at.extent(), at.offset()), (3, ExtentId(5), 448));
        assert_eq!(ValueWord::EMPTY.0, 0xfba5_0000_0000_0000);
        assert_eq!(ValueWord::DEAD.frozen().unwrap().0, 0xfba5_9000_0000_0000);
        assert_eq!(ValueWord::of(b"").unwrap().0, 0xfba5_3000_0000_0000);
        assert_eq!(ValueWord::of(b"ab").unwrap().0, 0xfba5_3200_0000_6261);
        assert_eq!(ValueWord::record(at).0, 0xfba5_5300_1400_0007);
        assert_eq!(ValueWord::staged(at).0, 0xfba5_e300_1400_0007);
        assert_eq!(Child::new(at, 4, 9).0, 9 << 50 | 0x4300_1400_0007);
        assert_eq!(Child::new(at, 4, 9).merging().frozen().plain(), Child::new(at, 4, 9));
    }

    #[test]
    fn values_come_back() {
        for length in 0..=5 {
            let value: Vec<u8> = (1..=length as u8).map(|i| i | 0x80).collect();
            let word = ValueWord::of(&value).unwrap();
            for word in [word, word.frozen().unwrap()] {
                let Some(Value::Short(found, bytes)) = word.value() else { panic!("{word:?}") };
                assert_eq!(&bytes[..found], value);
                assert!(word.is_live() && !word.is_record());
            }
        }
        assert_eq!(ValueWord::of(&7u64.to_le_bytes()), Some(ValueWord(7)));
        assert_eq!(ValueWord::of(&ValueWord::EMPTY.0.to_le_bytes()), None);
        assert_eq!(ValueWord::of(&[0; 6]), None);
        assert!(!ValueWord::EMPTY.is_live() && !ValueWord::SPENT.frozen().unwrap().is_live());
        assert!(!Child::DEAD.is_live() && !Child::SPENT.frozen().is_live() && !Child::EMPTY.is_live());
    }

    #[test]
    fn any_word_is_understood_or_refused() {
        let mut random = forebay_env::Random::seeded(1);
        for _ in 0..100_000 {
            let word = random.word() & (u64::MAX >> 16) | if random.one_in(1, 2) { ESCAPE << 48 } else { 0 };
            let _ = ValueWord(word).value();
        }
    }
}
