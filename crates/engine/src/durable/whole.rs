//! Which bytes of a segment's copies are damaged, as the bytes themselves tell.
//!
//! ```text
//!   copy 0   [ record ][ record ][ ✗✗✗✗✗✗ ][ record ] 0 0 0
//!   copy 1   [ record ][ ✗✗✗✗✗✗ ][ record ][ record ] 0 0 0
//!   whole    [ record ][ record ][ record ][ record ]          each from a copy where it verifies
//! ```
//!
//! Records and index blocks carry checksums, and so do the parts of an image's tail. So what is whole in one copy can
//! be told without any other copy. It is what all of them should hold, because copies have the same bytes. A copy is
//! damaged where another one verifies and it does not. Where none verifies, nobody can tell what should be there. Zeros
//! after the last record were never written.
//!
//! Two copies that both verify are both left as they are.

use forebay_base::RecordHeader;
use forebay_base::record::{ALIGNMENT, MAX_HEADER_BYTES};
use forebay_table::image::tail_offset;
use forebay_table::{BlockIterator, CachedTable};
use std::ops::Range;

/// Bytes that are damaged in at least one copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Where, from the start of what was looked at.
    pub(crate) at: Range<usize>,
    /// The copies, by their places among those that were given.
    pub(crate) copies: Vec<usize>,
    /// What should be there, if a copy has it.
    pub(crate) whole: Option<Vec<u8>>,
}

/// Finds damaged records in a piece of the copies of a segment that holds records one after the other. Returns how many
/// bytes were judged: a record that continues after the piece is not judged unless the piece `is_last`.
pub(crate) fn records(copies: &[&[u8]], is_last: bool) -> (usize, Vec<Damage>) {
    let length = copies.iter().map(|copy| copy.len()).min().unwrap_or(0);
    let mut found = Vec::new();
    // Where no copy has a record since.
    let mut lost_from = None;
    let mut at = 0;
    while at < length {
        if let Some((copy, end)) = copies.iter().find_map(|copy| Some((*copy, record_end(copy, at, length)?))) {
            end_lost(copies, lost_from.take(), at, &mut found);
            if copies.iter().any(|other| other.get(at..end) != copy.get(at..end)) {
                found.extend(differing(copies, at, end, length));
            }
            at = end;
            continue;
        }
        let goes_on = copies.iter().any(|copy| may_go_on(copy, at, length));
        if !is_last && goes_on {
            end_lost(copies, lost_from, at, &mut found);
            return (at, found);
        }
        lost_from.get_or_insert(at);
        at = at.saturating_add(ALIGNMENT).min(length);
    }
    end_lost(copies, lost_from, length, &mut found);
    (length, found)
}

/// Where the record at a place in a copy ends; `None` when none there verifies.
fn record_end(copy: &[u8], at: usize, length: usize) -> Option<usize> {
    let rest = copy.get(at..length)?;
    let header = RecordHeader::decode(rest).ok()?;
    let end = at.checked_add(header.padded_length()).filter(|end| *end <= length)?;
    header.verify(rest).ok().map(|()| end)
}

/// What is damaged of a record that verifies in one copy, where it ends at `end`, and that other copies do not have.
fn differing(copies: &[&[u8]], at: usize, end: usize, length: usize) -> Option<Damage> {
    let verifies = |copy: &&[u8]| record_end(copy, at, length) == Some(end);
    // As it was written: with zeros after it.
    let whole = copies.iter().find(|copy| verifies(copy)).and_then(|copy| {
        let mut bytes = copy.get(at..end)?.to_vec();
        let header = RecordHeader::decode(&bytes).ok()?;
        bytes.get_mut(header.length()..)?.fill(0);
        Some((header.length(), bytes))
    });
    let (unpadded, whole) = whole?;
    let record = |copy: &[u8]| copy.get(at..at.checked_add(unpadded)?).map(<[u8]>::to_vec);
    let is_damaged = |copy: &[u8]| match record_end(copy, at, length) {
        // Of two records that verify, none is damaged, unless it is the padding.
        Some(_) => record(copy).as_deref() == whole.get(..unpadded) && copy.get(at..end) != Some(whole.as_slice()),
        None => true,
    };
    let damaged: Vec<_> = (0..copies.len()).filter(|&of| copies.get(of).is_some_and(|copy| is_damaged(copy))).collect();
    (!damaged.is_empty()).then_some(Damage { at: at..end, copies: damaged, whole: Some(whole) })
}

/// Whether a copy may have a record at a place that continues after what is there.
fn may_go_on(copy: &[u8], at: usize, length: usize) -> bool {
    let Some(rest) = copy.get(at..length) else { return false };
    match RecordHeader::decode(rest) {
        Ok(header) => header.padded_length() > rest.len(),
        Err(_) => rest.len() < MAX_HEADER_BYTES && rest.iter().any(|byte| *byte != 0),
    }
}

/// Notes bytes where no copy has anything that verifies, unless they were never written.
fn end_lost(copies: &[&[u8]], from: Option<usize>, to: usize, found: &mut Vec<Damage>) {
    let Some(from) = from else { return };
    let is_written = |copy: &&[u8]| copy.get(from..to).unwrap_or_default().iter().any(|byte| *byte != 0);
    let damaged: Vec<_> = (0..copies.len()).filter(|&number| copies.get(number).is_some_and(is_written)).collect();
    if !damaged.is_empty() {
        found.push(Damage { at: from..to, copies: damaged, whole: None });
    }
}

/// Finds what is damaged of the copies of a table's image.
pub(crate) fn image(copies: &[&[u8]]) -> Vec<Damage> {
    let mut found = Vec::new();
    let parse = |copy: &&[u8]| {
        let offset = tail_offset(copy)?;
        Some((offset, copy.len(), CachedTable::parse(copy.get(offset..)?).ok()?))
    };
    let Some((offset, length, table)) = copies.iter().find_map(parse) else {
        let all = 0..copies.iter().map(|copy| copy.len()).max().unwrap_or(0);
        found.push(Damage { at: all, copies: (0..copies.len()).collect(), whole: None });
        return found;
    };
    add_unit(copies, offset..length, |copy| parse(&copy).is_some(), &mut found);
    for block in (0..).map_while(|number| table.sparse_index().block(number)) {
        let (Ok(start), Ok(length)) = (usize::try_from(block.offset), usize::try_from(block.length)) else { break };
        let range = start..start.saturating_add(length);
        let verifies = |copy: &[u8]| copy.get(range.clone()).is_some_and(|bytes| BlockIterator::new(bytes).is_ok());
        add_unit(copies, range.clone(), verifies, &mut found);
    }
    found
}

/// Notes which copies of a unit, which carries checksums over all of it, do not verify.
fn add_unit(copies: &[&[u8]], at: Range<usize>, verifies: impl Fn(&[u8]) -> bool, found: &mut Vec<Damage>) {
    let (whole, damaged): (Vec<_>, Vec<_>) =
        (0..copies.len()).partition(|&of| copies.get(of).is_some_and(|copy| verifies(copy)));
    if !damaged.is_empty() {
        let whole = whole.first().and_then(|&of| copies.get(of)?.get(at.clone())).map(<[u8]>::to_vec);
        found.push(Damage { at, copies: damaged, whole });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::{Record, SequenceNumber};
    use proptest::prelude::*;

    /// Five records of 40 bytes, the last four of them padding, and bytes that were never written.
    fn block() -> Vec<u8> {
        let mut bytes = Vec::new();
        (1..=5).for_each(|number| Record::put(SequenceNumber(number), b"key", &[7; 19]).encode(&mut bytes));
        assert_eq!(bytes.len(), 5 * 40);
        bytes.resize(300, 0);
        bytes
    }

    fn flipped(offset: usize) -> Vec<u8> {
        let mut bytes = block();
        bytes[offset] ^= 4;
        bytes
    }

    #[test]
    fn what_one_copy_has_whole_another_one_can_get() {
        let whole = block();
        assert_eq!(records(&[&whole, &whole], true), (300, vec![]));
        let found = records(&[&flipped(90), &flipped(130)], true);
        let damage =
            |at: Range<usize>, copy| Damage { whole: Some(whole[at.clone()].to_vec()), at, copies: vec![copy] };
        assert_eq!(found, (300, vec![damage(80..120, 0), damage(120..160, 1)]));
        // Of both: nobody knows what was there, and the records continue after it.
        let (_, found) = records(&[&flipped(90), &flipped(91), &flipped(10)], true);
        assert_eq!(found, vec![damage(0..40, 2), damage(80..120, 0).with(1)]);
        let (_, found) = records(&[&flipped(90), &flipped(91)], true);
        assert_eq!(found, vec![Damage { at: 80..120, copies: vec![0, 1], whole: None }]);
        // Where nothing was written, and in the padding.
        assert_eq!(records(&[&flipped(250), &whole], true).1, [Damage { at: 200..300, copies: vec![0], whole: None }]);
        assert_eq!(records(&[&flipped(38), &whole], true).1, [damage(0..40, 0)]);
    }

    impl Damage {
        fn with(mut self, copy: usize) -> Self {
            self.copies.push(copy);
            self
        }
    }

    #[test]
    fn a_record_that_goes_on_is_left_for_the_next_piece() {
        let whole = block();
        for (end, judged) in [(40, 40), (41, 40), (52, 40), (79, 40), (80, 80), (210, 210)] {
            assert_eq!(records(&[&whole[..end], &flipped(260)[..end]], false), (judged, vec![]), "{end}");
        }
        // The record at the end is damaged in one copy, and whole in the other.
        let (judged, found) = records(&[&flipped(50)[..80], &whole[..80]], false);
        assert_eq!((judged, found.len()), (80, 1));
    }

    proptest! {
        #[test]
        fn one_flipped_bit_of_one_copy_is_always_mended(bit in 0..200 * 8_usize, which in 0..2_usize) {
            let mut copies = [block(), block()];
            copies[which][bit / 8] ^= 1 << (bit % 8);
            let (_, found) = records(&[&copies[0], &copies[1]], true);
            prop_assert_eq!(found.len(), 1);
            let damage = &found[0];
            prop_assert_eq!(&damage.copies, &vec![which]);
            copies[which][damage.at.clone()].copy_from_slice(damage.whole.as_ref().unwrap());
            prop_assert_eq!(&copies[which], &block());
        }

        #[test]
        fn any_bytes_are_looked_at_without_panic(one: Vec<u8>, other: Vec<u8>, is_last: bool) {
            let (judged, _) = records(&[&one, &other], is_last);
            prop_assert!(judged <= one.len().min(other.len()));
            let _ = image(&[&one, &other]);
        }
    }
}
