//! Checks the tables and segments of a version: that all bytes can be read, that indexes are in order and complete, and that
//! every entry finds its record.
//!
//! Damage does not end the check: everything else is also checked. A table counts its bad entries and names the first.

use crate::inspect::report::Report;
use crate::inspect::source::Segments;
use crate::terms::{Error, Result};
use forebay_base::{InternalKey, KeyOrder, Record, SegmentId};
use forebay_table::{
    BlockIterator, CachedTable, IndexEntry, PointIndex, SparseIndex, TableMetadata, TableProperties, Version, key_hash,
};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Bytes of a segment that are read together.
const PIECE_BYTES: u64 = 256 << 10;

/// What was checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) tables: u64,
    pub(crate) entries: u64,
    pub(crate) segments: u64,
    pub(crate) bytes: u64,
}

/// Checks a version of the shard that `about` names: those segments for whose names `is_new`, and the tables whose
/// image is one of them. `progress` is told of bytes that were read.
pub(crate) fn shard(
    about: &str,
    version: &Version,
    segments: &dyn Segments,
    is_new: &mut dyn FnMut(String) -> bool,
    report: &mut Report,
    progress: &mut dyn FnMut(u64),
) -> Tally {
    let mut tally = Tally::default();
    let new: BTreeMap<_, _> = version.segments().iter().filter(|(id, _)| is_new(segments.name(**id))).collect();
    for (id, entry) in &new {
        tally.segments += 1;
        if let Err(error) = all_of(segments, **id, entry.info.length, &mut tally, progress) {
            report.problem(segments.name(**id), error.kind(), format!("{about}, {id}: {error}"));
        }
    }
    let levels = version.levels().iter().zip(0_usize..);
    let tables = levels.flat_map(|(tables, level)| tables.iter().map(move |table| (level, table)));
    for (level, table) in tables.filter(|(_, table)| new.contains_key(&table.image.segment)) {
        tally.tables += 1;
        let order = version.identity().key_order;
        match Checked::of(table, order, segments) {
            Ok(checked) => {
                tally.entries += checked.entries;
                if let Some((key, error)) = checked.first_bad {
                    let (bad, all) = (checked.bad, checked.entries);
                    let detail = format!(
                        "{about}, level {level}, {}: {bad} of {all} entries are bad, the first of key {}: {error}",
                        table.id,
                        key.escape_ascii()
                    );
                    report.problem(segments.name(table.image.segment), error.kind(), detail);
                }
            }
            Err(error) => {
                let detail = format!("{about}, level {level}, {}: {error}", table.id);
                report.problem(segments.name(table.image.segment), error.kind(), detail);
            }
        }
    }
    tally
}

/// Reads all of a segment. Continues after damage, and returns the first.
fn all_of(
    segments: &dyn Segments,
    id: SegmentId,
    length: u64,
    tally: &mut Tally,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let mut result = Ok(());
    let mut offset = 0;
    while offset < length {
        let piece = PIECE_BYTES.min(length - offset);
        let read = segments.read(id, offset, piece).map(drop);
        result = result.and(read);
        offset += piece;
        tally.bytes += piece;
        progress(piece);
    }
    result
}

/// A table that could be read.
struct Checked {
    entries: u64,
    bad: u64,
    first_bad: Option<(Vec<u8>, Error)>,
}

impl Checked {
    fn of(table: &TableMetadata, order: KeyOrder, segments: &dyn Segments) -> Result<Self> {
        let (image, cached) = read_image(table, segments)?;
        let properties = cached.properties();
        if !properties.agrees_with(&table.properties) {
            return Err(Error::corrupt("its image is another table's"));
        }
        let point_index = cached.point_index().ok_or_else(|| Error::corrupt("it has no point index"))?;
        let mut checked = Self { entries: 0, bad: 0, first_bad: None };
        let mut last: Option<(Vec<u8>, IndexEntry<'static>)> = None;
        for_each_entry(&image, cached.sparse_index(), |entry| {
            checked.entries += 1;
            let before = last.as_ref().map(|(key, last)| InternalKey { user_key: key, tag: last.key.tag });
            let is_in_order = before.is_none_or(|before| order.compare_internal(before, entry.key) == Ordering::Less);
            let found = if is_in_order {
                check_entry(entry, properties, point_index, segments)
            } else {
                Err(Error::corrupt("it is not in the order of keys"))
            };
            if let Err(error) = found {
                checked.bad += 1;
                checked.first_bad.get_or_insert_with(|| (entry.key.user_key.to_vec(), error));
            }
            let key = InternalKey { user_key: &[], tag: entry.key.tag };
            last = Some((entry.key.user_key.to_vec(), IndexEntry { key, ..*entry }));
            Ok(())
        })?;
        if checked.entries != properties.entries() {
            let (found, said) = (checked.entries, properties.entries());
            return Err(Error::corrupt(format!("its index has {found} entries, and its properties say {said}")));
        }
        Ok(checked)
    }
}

/// Reads the image of a table.
///
/// # Errors
/// `Corrupt`; those of the segment.
pub(crate) fn read_image(table: &TableMetadata, segments: &dyn Segments) -> Result<(Vec<u8>, CachedTable)> {
    let image = segments.read(table.image.segment, 0, table.image.length)?;
    let tail = usize::try_from(table.image.tail_offset).ok().and_then(|offset| image.get(offset..));
    let tail = tail.ok_or_else(|| Error::corrupt("its tail lies outside of its image"))?;
    let cached = CachedTable::parse(tail)?;
    Ok((image, cached))
}

/// Calls `each` with the entries of an image's index blocks in order.
///
/// # Errors
/// `Corrupt` for a damaged block; those of `each`.
pub(crate) fn for_each_entry(
    image: &[u8],
    blocks: &SparseIndex,
    mut each: impl FnMut(&IndexEntry<'_>) -> Result<()>,
) -> Result<()> {
    (0..).map_while(|number| for_each_entry_of(image, blocks, number, &mut each)).collect()
}

/// Calls `each` with the entries of one of an image's index blocks in order. `None` when there is no such block.
///
/// # Errors
/// As [`for_each_entry`].
pub(crate) fn for_each_entry_of(
    image: &[u8],
    blocks: &SparseIndex,
    number: usize,
    mut each: impl FnMut(&IndexEntry<'_>) -> Result<()>,
) -> Option<Result<()>> {
    let block = blocks.block(number)?;
    let mut visit = || {
        let end = block.offset.checked_add(block.length.into());
        let range = usize::try_from(block.offset).ok().zip(end.and_then(|end| usize::try_from(end).ok()));
        let bytes = range.and_then(|(start, end)| image.get(start..end));
        let bytes = bytes.ok_or_else(|| Error::corrupt(format!("index block {number} lies outside of the image")))?;
        let during = |error: forebay_table::Error| Error::from(error).during(&format!("index block {number}"));
        let mut entries = BlockIterator::new(bytes).map_err(during)?;
        entries.seek_to_first().map_err(during)?;
        while let Some(entry) = entries.entry() {
            each(&entry)?;
            entries.advance().map_err(during)?;
        }
        Ok(())
    };
    Some(visit())
}

/// Reads the record that an entry names, and checks that it is the right one, and that the point index leads to it.
fn check_entry(
    entry: &IndexEntry<'_>,
    properties: &TableProperties,
    point_index: &PointIndex,
    segments: &dyn Segments,
) -> Result<()> {
    let (_, address) = properties.locate(entry)?;
    let bytes = segments.read(address.segment, address.offset, entry.length.into())?;
    let record = Record::decode(&bytes)?;
    let is_named = record.key == entry.key.user_key
        && record.tag == entry.key.tag
        && record.expiry_ms == entry.expiry_ms
        && record.length() == entry.length as usize;
    if !is_named {
        return Err(Error::corrupt(format!("the record at {address} is not the one that the index names")));
    }
    let mut candidates = point_index.candidates(key_hash(record.key));
    if !candidates.any(|candidate| candidate.address == address) {
        return Err(Error::corrupt("the point index does not lead to it"));
    }
    Ok(())
}
