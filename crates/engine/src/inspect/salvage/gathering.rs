//! What is found of a shard: entries of tables, and records where tables cannot be read.

use super::{Found, FoundAt, Part, Source};
use crate::inspect::check::for_each_entry_of;
use crate::inspect::records;
use crate::inspect::remains::Remains;
use crate::inspect::report::Report;
use crate::terms::Result;
use forebay_base::{Kind, LogicalAddress, Record, SegmentId};
use forebay_env::HashSet;
use forebay_storage::BlockObject;
use forebay_table::entry::UNIT_BYTES;
use forebay_table::{CachedTable, IndexEntry, PointIndex, RangeTombstone, SegmentUse, TableProperties, key_hash};
use std::ops::Range;
use std::sync::Arc;

/// The bytes of a segment between which the records of a table are.
const fn span_of(used: &SegmentUse) -> Range<u64> {
    let start = used.first_unit.saturating_mul(UNIT_BYTES);
    start..start.saturating_add(used.span_units.saturating_mul(UNIT_BYTES))
}

impl Part {
    /// Notes a record.
    pub(super) fn take(&mut self, record: &Record<'_>, source: Source, place: FoundAt) {
        match record.tag.kind() {
            Kind::Nothing | Kind::Crossing => {}
            Kind::RangeDelete => {
                let (start, end) = (record.key.to_vec(), record.value.to_vec());
                self.deletions.push(RangeTombstone { start, end, tag: record.tag });
            }
            Kind::Put | Kind::Delete | Kind::Merge => {
                self.found.push(Found { key: record.key.to_vec(), tag: record.tag, source, place });
            }
        }
    }

    /// Takes the range deletions of a table, and its entries as far as its index can be read.
    ///
    /// # Errors
    /// That of the first block of the index that cannot be read.
    pub(super) fn take_table(
        &mut self,
        cached: &CachedTable,
        image: &Remains,
        find: &dyn Fn(SegmentId) -> Option<Arc<str>>,
    ) -> Result<()> {
        self.deletions.extend_from_slice(cached.range_deletions());
        let properties = cached.properties();
        let mut take = |entry: &IndexEntry<'_>| {
            let (_, address) = properties.locate(entry)?;
            let place = match find(address.segment) {
                Some(name) => FoundAt::Object { name, offset: address.offset, length: entry.length },
                None => FoundAt::Gone(address.segment),
            };
            let (key, tag) = (entry.key.user_key.to_vec(), entry.key.tag);
            self.found.push(Found { key, tag, source: Source::Table, place });
            Ok(())
        };
        let blocks =
            (0..).map_while(|number| for_each_entry_of(&image.bytes, cached.sparse_index(), number, &mut take));
        blocks.fold(Ok(()), Result::and)
    }

    /// Searches the segments of a table whose index is damaged for what it held, beside the entries that were `taken`
    /// and those that other tables have. Returns how many objects were searched, and what is left, in words.
    pub(super) fn search_table(
        &mut self,
        properties: &Arc<TableProperties>,
        cached: Option<&CachedTable>,
        taken: Range<usize>,
        find: &dyn Fn(SegmentId) -> Option<Arc<str>>,
        report: &mut Report,
    ) -> (u64, String) {
        let index = cached.and_then(CachedTable::point_index);
        let mut entries = taken.len() as u64;
        let (mut objects, mut is_whole, mut deletions) = (0, true, 0);
        for used in &properties.segments {
            let remains = find(used.id).and_then(|name| Some((self.remains(&name, report)?, name)));
            let Some((remains, name)) = remains else {
                is_whole = false;
                continue;
            };
            objects += 1;
            let span = span_of(used);
            let has_span = remains.has(&span);
            is_whole &= has_span;
            let (its_own, known) = self.known(&name, &taken);
            let mut its = Vec::new();
            for (range, record) in records::find(&remains.bytes) {
                self.searched.push(record.tag.sequence());
                let (offset, length) = (range.start as u64, range.len() as u32);
                let place = FoundAt::Object { name: Arc::clone(&name), offset, length };
                let numbers = properties.smallest_sequence..=properties.largest_sequence;
                let may_be_its = numbers.contains(&record.tag.sequence()) && properties.may_contain(record.key);
                deletions += u64::from(may_be_its && record.tag.kind() == Kind::RangeDelete);
                let is_named = || {
                    let address = LogicalAddress { segment: used.id, offset };
                    let names = |index: &PointIndex| {
                        index.candidates(key_hash(record.key)).any(|candidate| candidate.address == address)
                    };
                    index.is_none_or(names)
                };
                let is_entry = matches!(record.tag.kind(), Kind::Put | Kind::Delete | Kind::Merge);
                if is_entry && may_be_its && span.contains(&offset) && is_named() {
                    if !known.contains(&offset) {
                        its.push((record, place));
                    }
                } else if matches!(record.tag.kind(), Kind::Delete | Kind::RangeDelete) {
                    // A deletion counts, whichever table it is of.
                    self.take(&record, Source::Search { has_newest: false }, place);
                }
            }
            entries += its.len() as u64;
            let is_all = has_span && its_own + its.len() as u64 == used.entries;
            let is_exact = index.is_some() || used.gap_bytes() == 0 || is_all;
            // A flush drops what is overwritten in the same memtable, and nothing else.
            let has_newest = has_span && properties.creation.level == 0;
            let source = if is_exact { Source::Table } else { Source::Search { has_newest } };
            its.into_iter().for_each(|(record, place)| self.take(&record, source, place));
        }
        let has_entries = is_whole || index.is_some() && entries == properties.entries();
        let is_flush = is_whole && properties.creation.level == 0;
        let has_deletions = cached.is_some() || properties.range_deletions == if is_flush { deletions } else { 0 };
        self.lacks_entries |= !has_entries;
        if !has_entries || !has_deletions {
            self.incomplete.push(Arc::clone(properties));
        }
        let mut left = format!("{objects} of its segments are searched, and of its {} entries", properties.entries());
        left += &if has_entries { " all are found".to_owned() } else { format!(" {entries} at most are found") };
        if !has_deletions {
            left += &format!(
                "; its {} range deletions are lost: what they deleted may come back",
                properties.range_deletions
            );
        }
        (objects, left)
    }

    /// Where in an object the records are that tables are known to have, and how many of them are among the entries
    /// that were `taken`.
    fn known(&self, object: &Arc<str>, taken: &Range<usize>) -> (u64, HashSet<u64>) {
        let mut its_own = 0;
        let place = |(at, found): (usize, &Found)| match &found.place {
            FoundAt::Object { name, offset, .. } if found.source == Source::Table && Arc::ptr_eq(name, object) => {
                its_own += u64::from(taken.contains(&at));
                Some(*offset)
            }
            _ => None,
        };
        let known = self.found.iter().enumerate().filter_map(place).collect();
        (its_own, known)
    }

    /// Searches an object to which no image leads for records.
    pub(super) fn search(&mut self, name: &Arc<str>, report: &mut Report) {
        let Some(remains) = self.remains(name, report) else { return };
        for (range, record) in records::find(&remains.bytes) {
            let (offset, length) = (range.start as u64, range.len() as u32);
            let place = FoundAt::Object { name: Arc::clone(name), offset, length };
            self.take(&record, Source::Search { has_newest: false }, place);
        }
    }

    /// Opens an object; `None` when that cannot be done, which is a problem the first time.
    pub(super) fn object(&mut self, name: &Arc<str>, report: &mut Report) -> Option<Arc<BlockObject>> {
        if let Some(open) = self.open.get(name) {
            return open.clone();
        }
        let opened = match self.objects.open_unknown(name) {
            Ok(opened) => Some(Arc::new(opened)),
            Err(error) => {
                report.problem(name.as_ref(), error.kind(), error);
                None
            }
        };
        self.open.insert(Arc::clone(name), opened.clone());
        opened
    }

    /// Opens all objects with records that were found. What cannot be opened is a problem.
    pub(super) fn open_all(&mut self, report: &mut Report) {
        let names = self.found.iter().filter_map(|found| match &found.place {
            FoundAt::Object { name, .. } => Some(Arc::clone(name)),
            FoundAt::Log(_) | FoundAt::Gone(_) => None,
        });
        let names: HashSet<_> = names.collect();
        for name in &names {
            self.object(name, report);
        }
    }

    pub(super) fn remains(&mut self, name: &Arc<str>, report: &mut Report) -> Option<Remains> {
        let remains = Remains::read(&*self.object(name, report)?);
        if let Some((first, error)) = remains.holes.first() {
            let (blocks, offset) = (remains.holes.len(), first.start);
            let detail = format!("{blocks} blocks cannot be read, the first at byte {offset}: {error}");
            report.problem(name.as_ref(), error.kind(), detail);
        }
        Some(remains)
    }

    /// Whether an object's last bytes are those of an image.
    pub(super) fn ends_like_an_image(&mut self, name: &Arc<str>, report: &mut Report) -> bool {
        let Some(object) = self.object(name, report) else { return false };
        let length = object.directory().length();
        let mut end = [0; 4];
        let Some(offset) = length.checked_sub(end.len() as u64) else { return false };
        object.read_at(offset, &mut end).is_ok() && forebay_table::image::ends_image(&end)
    }
}
