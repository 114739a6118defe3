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
//! Everything that is older than the deletion lies below it, so the deletion stays at least until the tables are gone.
//! It also hides what those tables hid (`docs/decisions/0092`).

use forebay_base::{KeyOrder, SequenceNumber, Tag};
use forebay_table::{OwnedKey, RangeTombstone, TableMetadata, Version};
use std::cmp::Ordering;
use std::collections::BTreeSet;
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
    let deletions = joined(order, deletions);
    let levels = (0..).zip(version.levels());
    levels.flat_map(|(level, tables)| hidden_in_level(order, level, tables, &deletions)).collect()
}

/// The tables of a level that these range deletions hide as a whole. The deletions come in the order of their numbers.
/// So the first that hides a table has the smallest number, and later ones pass over the table: many deletions, each
/// over nearly everything, cost little more than one.
fn hidden_in_level(
    order: KeyOrder,
    level: u8,
    tables: &[Arc<TableMetadata>],
    deletions: &[Joined<'_>],
) -> Vec<HiddenTable> {
    let (mut found, mut left) = (Vec::new(), (0..tables.len()).collect::<BTreeSet<_>>());
    for deletion in deletions {
        let number = deletion.tag.sequence();
        let begins_before =
            |table: &Arc<TableMetadata>| order.compare(&table.properties.smallest.user_key, deletion.start).is_lt();
        let mut from = match level {
            // Newest first.
            0 => tables.partition_point(|table| table.properties.largest_sequence >= number),
            _ => tables.partition_point(begins_before),
        };
        while let Some(&at) = left.range(from..).next()
            && let Some(table) = tables.get(at)
        {
            let is_covered = !begins_before(table) && ends_within(order, &table.properties.largest, deletion.end);
            if level > 0 && !is_covered {
                // Those behind it are not covered either.
                break;
            }
            if is_covered && table.properties.largest_sequence < number {
                found.push(HiddenTable { level, table: Arc::clone(table), by: number });
                left.remove(&at);
            }
            from = at + 1;
        }
    }
    found
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
    use forebay_base::{Kind, SegmentId};
    use forebay_env::Random;
    use forebay_table::{Creation, ImageAddress, TableId, TableProperties};

    fn deletion(start: &str, end: &str, number: u64) -> RangeTombstone {
        let tag = Tag::new(SequenceNumber(number), Kind::RangeDelete, false);
        RangeTombstone { start: start.into(), end: end.into(), tag }
    }

    /// A table with entries from one of these keys to the other, and of these numbers.
    fn table(id: u64, [smallest, largest]: [&str; 2], [oldest, newest]: [u64; 2]) -> Arc<TableMetadata> {
        let bound = |key: &str, number| {
            let tag = Tag::new(SequenceNumber(number), Kind::Put, false);
            OwnedKey { user_key: key.into(), tag }
        };
        let properties = TableProperties {
            key_order: KeyOrder::Bytewise,
            creation: Creation::default(),
            smallest: bound(smallest, newest),
            largest: bound(largest, oldest),
            smallest_sequence: SequenceNumber(oldest),
            largest_sequence: SequenceNumber(newest),
            deletions: 0,
            puts: 2,
            range_deletions: 0,
            merges: 0,
            key_bytes: 2,
            value_bytes: 0,
            record_bytes: 48,
            oldest_expiry_ms: None,
            shadowed: 0,
            segments: Vec::new(),
        };
        let image = ImageAddress { segment: SegmentId(id), length: 100, tail_offset: 10 };
        Arc::new(TableMetadata { id: TableId(id), image, properties: properties.into() })
    }

    /// The tables that are hidden, each with the number of the deletion.
    fn found(level: u8, tables: &[Arc<TableMetadata>], deletions: &[Joined<'_>]) -> Vec<(u64, u64)> {
        let found = hidden_in_level(KeyOrder::Bytewise, level, tables, deletions);
        let mut found: Vec<_> = found.iter().map(|of| (of.table.id.0, of.by.0)).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn a_table_is_hidden_by_the_oldest_deletion_that_is_newer_and_covers_it() {
        let tables = [
            table(1, ["a", "c"], [3, 7]),
            table(2, ["d", "e"], [12, 40]),
            table(3, ["f", "g"], [5, 89]),
            table(4, ["h", "i"], [60, 95]),
            table(5, ["q", "r"], [8, 20]),
        ];
        let deletions = [("b", "k", 50), ("b", "p", 90), ("b", "r", 92), ("a", "z", 95)];
        let deletions = deletions.map(|(start, end, number)| deletion(start, end, number));
        let deletions = joined(KeyOrder::Bytewise, deletions.iter());
        assert_eq!(found(1, &tables, &deletions), [(1, 95), (2, 50), (3, 90), (5, 95)]);
    }

    #[test]
    fn a_reader_sees_a_table_from_its_oldest_number_to_that_of_the_deletion() {
        let hidden = HiddenTable { level: 1, table: table(1, ["a", "b"], [5, 9]), by: SequenceNumber(20) };
        let is_seen = |numbers: &[u64]| {
            let numbers: Vec<_> = numbers.iter().map(|&number| SequenceNumber(number)).collect();
            hidden.is_seen(&numbers)
        };
        assert!(!is_seen(&[]) && !is_seen(&[1, 4]) && !is_seen(&[4, 20, 30]));
        assert!(is_seen(&[5]) && is_seen(&[4, 7, 30]) && is_seen(&[1, 19]));
    }

    #[test]
    fn tables_that_are_passed_over_change_nothing() {
        let key = |number: u64| format!("{number:03}");
        for seed in 0..300 {
            let mut random = Random::seeded(seed);
            let level = random.below(2) as u8;
            let tables = (0..random.below(20)).map(|id| {
                // In level 0 tables overlap, and the newest comes first.
                let first = if level == 0 { random.below(40) } else { 2 * id };
                let last = first + random.below(if level == 0 { 10 } else { 2 });
                let newest = if level == 0 { 60 - 3 * id } else { 1 + random.below(60) };
                table(id, [&key(first), &key(last)], [newest, newest])
            });
            let tables: Vec<_> = tables.collect();
            let deletions = (1..=random.below(12)).map(|number| {
                let start = random.below(40);
                deletion(&key(start), &key(start + 1 + random.below(30)), 5 * number)
            });
            let deletions: Vec<_> = deletions.collect();
            let deletions = joined(KeyOrder::Bytewise, deletions.iter());
            let hides = |of: &Joined<'_>, table: &TableMetadata| {
                let properties = &table.properties;
                of.start <= &properties.smallest.user_key[..]
                    && ends_within(KeyOrder::Bytewise, &properties.largest, of.end)
                    && properties.largest_sequence < of.tag.sequence()
            };
            let by = |table: &TableMetadata| {
                let numbers = deletions.iter().filter(|of| hides(of, table)).map(|of| of.tag.sequence().0);
                numbers.min()
            };
            let expected: Vec<_> = tables.iter().filter_map(|table| Some((table.id.0, by(table)?))).collect();
            assert_eq!(found(level, &tables, &deletions), expected, "seed {seed}");
        }
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
