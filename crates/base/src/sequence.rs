//! Sequence numbers and kinds of entries.

/// Order of writes in a shard. 56 bits; zero is before every write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SequenceNumber(pub u64);

impl SequenceNumber {
    /// Before every write.
    pub const ZERO: Self = Self(0);
    /// The largest sequence number.
    pub const MAX: Self = Self((1 << 56) - 1);

    /// The number `count` later; `None` past [`SequenceNumber::MAX`].
    #[must_use]
    pub const fn checked_add(self, count: u64) -> Option<Self> {
        match self.0.checked_add(count) {
            Some(sum) if sum <= Self::MAX.0 => Some(Self(sum)),
            _ => None,
        }
    }
}

/// What an entry does to its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Removes the key.
    Delete = 0,
    /// Sets the key's value.
    Put = 1,
    /// Removes all keys from the key (included) to the value (excluded).
    RangeDelete = 2,
    /// An operand. The database's merge operator makes the value from it and older entries of the key.
    Merge = 3,
    /// Does nothing to any key. It takes the numbers and the bytes of a write that was reserved and then abandoned, so
    /// that numbers stay dense.
    Nothing = 4,
    /// Does nothing to any key. Its value says which shards its batch crosses ([`CrossingMark`](crate::CrossingMark)).
    Crossing = 5,
}

impl Kind {
    /// The kind with this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Delete,
            1 => Self::Put,
            2 => Self::RangeDelete,
            3 => Self::Merge,
            4 => Self::Nothing,
            5 => Self::Crossing,
            _ => return None,
        })
    }

    /// Whether records of this kind are in no index, because they do nothing to any key.
    #[must_use]
    pub const fn is_void(self) -> bool {
        matches!(self, Self::Nothing | Self::Crossing)
    }
}

/// Sequence number and kind in one word: `sequence << 8 | flags << 4 | kind`.
///
/// ```text
///   63                        8 7     4 3    0
///  ┌───────────────────────────┬───────┬──────┐
///  │ sequence number           │ flags │ kind │
///  └───────────────────────────┴───────┴──────┘
///    flags: bit 4 the record has an expiry; bit 5 its batch continues with the next number; bits 6 and 7 zero
/// ```
///
/// Tags of one key order by sequence number, newest last; see [`crate::order`]. The tag is a field of
/// the record (`docs/formats/record.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(u64);

impl Tag {
    const EXPIRY: u64 = 1 << 4;
    const GOES_ON: u64 = 1 << 5;
    /// Sorts before every entry of the same key.
    pub const MAX: Self = Self(u64::MAX);

    /// The tag of `sequence` and `kind`, with an expiry or without.
    #[must_use]
    pub const fn new(sequence: SequenceNumber, kind: Kind, has_expiry: bool) -> Self {
        Self(sequence.0 << 8 | if has_expiry { Self::EXPIRY } else { 0 } | kind as u64)
    }

    /// This tag, for a record whose batch continues with the next number. A log that ends with such a record ends
    /// inside a batch.
    #[must_use]
    pub const fn going_on(self) -> Self {
        Self(self.0 | Self::GOES_ON)
    }

    /// The tag that sorts before every entry that `snapshot` sees and after every entry that it
    /// does not see.
    #[must_use]
    pub const fn seek(snapshot: SequenceNumber) -> Self {
        Self(snapshot.0 << 8 | 0xff)
    }

    /// Decodes a tag.
    #[must_use]
    pub const fn from_word(word: u64) -> Option<Self> {
        if word & 0xc0 != 0 || Kind::from_number((word & 0xf) as u8).is_none() {
            return None;
        }
        Some(Self(word))
    }

    /// The tag as a word.
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The sequence number.
    #[must_use]
    pub const fn sequence(self) -> SequenceNumber {
        SequenceNumber(self.0 >> 8)
    }

    /// The kind; a tag made by [`Tag::seek`] or [`Tag::MAX`] has none and answers `Merge`.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match Kind::from_number((self.0 & 0xf) as u8) {
            Some(kind) => kind,
            None => Kind::Merge,
        }
    }

    /// Whether the record has an expiry.
    #[must_use]
    pub const fn has_expiry(self) -> bool {
        self.0 & Self::EXPIRY != 0
    }

    /// Whether the record's batch continues with the next number.
    #[must_use]
    pub const fn goes_on(self) -> bool {
        self.0 & Self::GOES_ON != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_golden_word() {
        assert_eq!(Tag::new(SequenceNumber(0x0102_0304), Kind::Put, false).word(), 0x01_0203_0401);
        assert_eq!(Tag::new(SequenceNumber(5), Kind::RangeDelete, true).word(), 0x512);
        assert_eq!(Tag::new(SequenceNumber(5), Kind::Put, false).going_on().word(), 0x521);
        assert!(Tag::from_word(0x521).is_some_and(|tag| tag.goes_on() && tag.kind() == Kind::Put));
        assert_eq!(Tag::from_word(0x540), None);
        assert_eq!(Tag::new(SequenceNumber(5), Kind::Merge, false).word(), 0x503);
        assert_eq!(Tag::from_word(0x504).map(Tag::kind), Some(Kind::Nothing));
        assert_eq!(Tag::from_word(0x505).map(Tag::kind), Some(Kind::Crossing));
        assert_eq!(Tag::from_word(0x506), None);
    }

    #[test]
    fn seek_separates_visible_from_invisible() {
        let seek = Tag::seek(SequenceNumber(7));
        assert!(seek > Tag::new(SequenceNumber(7), Kind::Merge, true).going_on());
        assert!(seek < Tag::new(SequenceNumber(8), Kind::Delete, false));
    }
}
