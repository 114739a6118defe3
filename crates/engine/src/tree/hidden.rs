//! Tables that a newer range deletion hides as a whole: they can go without being merged with it.
//!
//! ```text
//!   level 1        [====== range deletion, number 90 ======)
//!   level 2   [ 3..7 ]  [ 12..40 ]  [ 5..89 ]  [ 60..95 ]  [ 8..20 ]
//!                        hidden      hidden     one record    ends
//!              begins                           is newer      behind it
//!              before it
//! ```
//!
//! Everything that is older than the deletion lies below it, so the deletion stays at least until the tables are gone. It
//! also hides what the range deletions of those tables hid.

use forebay_base::{KeyOrder, SequenceNumber, Tag};
use forebay_table::{OwnedKey, RangeTombstone, TableId, TableMetadata, Version};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A table and the range deletion that hides it.
#[derive(Debug, Clone)]
pub(crate) struct HiddenTable {
    pub(crate) level: u8,
    pub(crate) table: Arc<TableMetadata>,
    /// The deletion's number; of several deletions, the smallest number.
    by: SequenceNumber,
}

impl HiddenTable {
    /// Whether somebody sees records of the table: a reader at one of these numbers, which ascend.
    pub(crate) fn is_seen(&self, pinned: &[SequenceNumber]) -> bool {
        let oldest = self.table.properties.smallest_sequence;
        let first = pinned.partition_point(|number| *number < oldest);
        pinned.get(first).is_some_and(|number| *number < self.by)
    }
}

/// The tables of a version that these range deletions, which are all of the version's, hide as a whole.
pub(crate) fn hidden<'a>(version: &Version, deletions: impl Iterator<Item = &'a RangeTombstone>) -> Vec<HiddenTable> {
    let order = version.identity().key_order;
    let mut found = BTreeMap::<TableId, HiddenTable>::new();
    for deletion in joined(order, deletions) {
        let number = deletion.tag.sequence();
        for (level, tables) in (0..).zip(version.levels()) {
            // The tables of level 0 are in order of time.
            let begins_before =
                |table: &Arc<TableMetadata>| order.compare(&table.properties.smallest.user_key, deletion.start).is_lt();
            let first = if level == 0 { 0 } else { tables.partition_point(begins_before) };
            let covered = |table: &&Arc<TableMetadata>| {
                !begins_before(table) && ends_within(order, &table.properties.largest, deletion.end)
            };
            let within = tables.iter().skip(first);
            // In the other levels, those behind a table that is not covered are not covered either.
            let within = within.take_while(|table| level == 0 || covered(table)).filter(covered);
            for table in within.filter(|table| table.properties.largest_sequence < number) {
                let hidden = || HiddenTable { level, table: Arc::clone(table), by: number };
                let hidden = found.entry(table.id).or_insert_with(hidden);
                hidden.by = hidden.by.min(number);
            }
        }
    }
    found.into_values().collect()
}

/// A range deletion that may be in several pieces.
#[derive(Debug, PartialEq, Eq)]
struct Joined<'a> {
    start: &'a [u8],
    end: &'a [u8],
    tag: Tag,
}

/// Joins the pieces in which tables hold range deletions: a deletion is cut where tables are.
fn joined<'a>(order: KeyOrder, deletions: impl Iterator<Item = &'a RangeTombstone>) -> Vec<Joined<'a>> {
    let mut pieces: Vec<_> = deletions.collect();
    pieces.sort_by(|a, b| a.tag.cmp(&b.tag).then_with(|| order.compare(&a.start, &b.start)));
    let mut joined: Vec<Joined<'a>> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match joined.last_mut() {
            Some(last) if last.tag == piece.tag && order.compare(&piece.start, last.end).is_le() => {
                if order.compare(last.end, &piece.end).is_lt() {
                    last.end = &piece.end;
                }
            }
            _ => joined.push(Joined { start: &piece.start, end: &piece.end, tag: piece.tag }),
        }
    }
    joined
}

/// Whether a table with this largest key has only keys before `end`.
fn ends_within(order: KeyOrder, largest: &OwnedKey, end: &[u8]) -> bool {
    match order.compare(&largest.user_key, end) {
        Ordering::Less => true,
        // The end of one of its range deletions.
        Ordering::Equal => largest.tag == Tag::MAX,
        Ordering::Greater => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::Kind;

    fn deletion(start: &str, end: &str, number: u64) -> RangeTombstone {
        let tag = Tag::new(SequenceNumber(number), Kind::RangeDelete, false);
        RangeTombstone { start: start.into(), end: end.into(), tag }
    }

    #[test]
    fn pieces_of_one_deletion_are_joined_and_others_are_not() {
        let pieces = [("m", "p", 9), ("a", "c", 9), ("c", "e", 9), ("c", "d", 9), ("e", "m", 8), ("x", "z", 9)];
        let pieces = pieces.map(|(start, end, number)| deletion(start, end, number));
        let joined = joined(KeyOrder::Bytewise, pieces.iter());
        let found: Vec<_> = joined.iter().map(|of| (of.start, of.end, of.tag.sequence().0)).collect();
        let expected: [(&[u8], &[u8], u64); 4] = [(b"e", b"m", 8), (b"a", b"e", 9), (b"m", b"p", 9), (b"x", b"z", 9)];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_end_of_a_range_deletion_is_not_a_key() {
        let ends = |key: &str, tag| ends_within(KeyOrder::Bytewise, &OwnedKey { user_key: key.into(), tag }, b"m");
        let of_key = Tag::new(SequenceNumber(1), Kind::Put, false);
        assert!(ends("l", of_key) && ends("m", Tag::MAX));
        assert!(!ends("m", of_key) && !ends("n", Tag::MAX));
    }
}
