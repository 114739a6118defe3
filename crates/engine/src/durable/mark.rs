//! How far a part of the log was shipped, as the part itself says.
//!
//! ```text
//!   part   [ record ][ record ][ record ▸ used │ zeros … │ mark ]
//!
//!   mark   0  4  number of the last record that was shipped there, its low half
//!          4  4  CRC32C of the part's segment (8 bytes), and of that number (8 bytes)
//! ```
//!
//! Both are little-endian, in one word that is never torn, at the end of the part. Each group replaces the mark, in the
//! same doorbell as its records and after them. So a reader that finds a mark also finds the records, unless something
//! has damaged them. So the end of a log can be told from damage, which matters where there is no other copy. A mark
//! that does not verify says nothing: it was never written, or is itself damaged. A late mark that replaces a newer one
//! says less than was shipped. See `docs/formats/log-mark.md`.

use forebay_base::{SegmentId, SequenceNumber, checksum};

/// Bytes of a mark.
pub(crate) const BYTES: u64 = 8;

/// Where the mark of a part of `part_bytes` is, and where the room for its records ends.
pub(crate) const fn place(part_bytes: u64) -> u64 {
    part_bytes.saturating_sub(BYTES) / BYTES * BYTES
}

/// The mark of a part whose last record has this number.
pub(crate) fn encode(part: SegmentId, last: SequenceNumber) -> u64 {
    let mut bytes = [0; 16];
    let (segment, number) = bytes.split_at_mut(8);
    segment.copy_from_slice(&part.0.to_le_bytes());
    number.copy_from_slice(&last.0.to_le_bytes());
    u64::from(checksum(&bytes)) << 32 | u64::from(last.0 as u32)
}

/// What a mark says, if it verifies. The number is less than 2³¹ away from `near`.
pub(crate) fn decode(mark: u64, part: SegmentId, near: SequenceNumber) -> Option<SequenceNumber> {
    let beyond = (mark as u32).wrapping_sub(near.0 as u32).cast_signed();
    let last = SequenceNumber(near.0.checked_add_signed(i64::from(beyond))?);
    (encode(part, last) == mark).then_some(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_mark() {
        let mark = encode(SegmentId(7), SequenceNumber(0x1_0203_0405));
        assert_eq!(mark.to_le_bytes(), [5, 4, 3, 2, 83, 210, 150, 195]);
    }

    #[test]
    fn a_mark_is_the_last_word_of_its_part() {
        assert_eq!([0, 7, 8, 15, 16, 4099].map(place), [0, 0, 0, 0, 8, 4088]);
    }

    #[test]
    fn what_was_never_written_is_no_mark() {
        for part in 0..1000 {
            assert_eq!(decode(0, SegmentId(part), SequenceNumber::ZERO), None);
        }
    }

    proptest! {
        #[test]
        fn a_mark_says_the_number_and_with_any_bit_flipped_nothing(
            part: u64, last in 0..1_u64 << 56, beyond in -(1_i64 << 31) + 1..1 << 31, bit in 0..64_u32
        ) {
            let (part, near) = (SegmentId(part), SequenceNumber(last.saturating_add_signed(beyond)));
            let mark = encode(part, SequenceNumber(last));
            prop_assert_eq!(decode(mark, part, near), Some(SequenceNumber(last)));
            prop_assert_eq!(decode(mark ^ 1 << bit, part, near), None);
            prop_assert_eq!(decode(mark, SegmentId(part.0 ^ 1), near), None);
        }
    }
}
