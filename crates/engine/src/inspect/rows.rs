//! Rows of what versions, table images and records say, wherever these are stored.

use crate::inspect::check::for_each_entry;
use crate::inspect::records;
use crate::inspect::remains::Remains;
use crate::inspect::report::{Cell, Report, Section};
use crate::remote::objects::object_of;
use forebay_base::{ErrorKind, Kind, Record};
use forebay_table::{CachedTable, Placement, SegmentKind, TableMetadata, TableProperties, Version};

const SHARDS: &[&str] =
    &["shard", "tables", "segments", "last_sequence", "next_table", "next_segment", "next_job", "first_key"];
const TABLES: &[&str] = &[
    "shard",
    "level",
    "table",
    "entries",
    "range_deletions",
    "record_bytes",
    "smallest",
    "largest",
    "first_sequence",
    "last_sequence",
    "job",
    "image",
];
const SEGMENTS: &[&str] = &["shard", "segment", "kind", "bytes", "tables", "in_memory", "object"];
const PROPERTIES: &[&str] = &[
    "entries",
    "puts",
    "deletions",
    "range_deletions",
    "shadowed",
    "record_bytes",
    "smallest",
    "largest",
    "job",
    "level",
];
const USES: &[&str] = &["ordinal", "segment", "run", "entries", "live_bytes"];
const ENTRIES: &[&str] = &["key", "sequence", "kind", "segment", "offset", "bytes", "expiry_ms"];
const RECORDS: &[&str] = &["offset", "key", "sequence", "kind", "value_bytes", "expiry_ms"];

/// Shows the versions of shards, each with its number.
pub(crate) fn show_versions<'v>(versions: impl IntoIterator<Item = (u64, &'v Version)>, report: &mut Report) {
    let mut shards = Section::new("shards", SHARDS);
    let mut tables = Section::new("tables", TABLES);
    let mut segments = Section::new("segments", SEGMENTS);
    for (shard, version) in versions {
        shards.rows.push(vec![
            shard.into(),
            version.levels().iter().map(Vec::len).sum::<usize>().into(),
            version.segments().len().into(),
            version.last_sequence().0.into(),
            version.next_table().into(),
            version.next_segment().into(),
            version.next_job().into(),
            version.first_key().into(),
        ]);
        for (found, level) in version.levels().iter().zip(0_u64..) {
            tables.rows.extend(found.iter().map(|table| table_row(shard, level, table)));
        }
        for (id, entry) in version.segments() {
            let in_memory = entry.info.placements.iter().any(|place| matches!(place, Placement::Memory { .. }));
            segments.rows.push(vec![
                shard.into(),
                (*id).into(),
                segment_kind(entry.info.kind).into(),
                entry.info.length.into(),
                u64::from(entry.references).into(),
                yes_or_no(in_memory).into(),
                object_of(&entry.info.placements).into(),
            ]);
        }
    }
    report.sections.extend([shards, tables, segments]);
}

fn table_row(shard: u64, level: u64, table: &TableMetadata) -> Vec<Cell> {
    let properties = &table.properties;
    vec![
        shard.into(),
        level.into(),
        table.id.0.into(),
        properties.entries().into(),
        properties.range_deletions.into(),
        properties.record_bytes.into(),
        properties.smallest.user_key.as_slice().into(),
        properties.largest.user_key.as_slice().into(),
        properties.smallest_sequence.0.into(),
        properties.largest_sequence.0.into(),
        properties.creation.job.into(),
        table.image.segment.into(),
    ]
}

/// Shows what a table says of itself.
pub(crate) fn show_properties(properties: &TableProperties, report: &mut Report) {
    let mut section = Section::new("properties", PROPERTIES);
    section.rows.push(vec![
        properties.entries().into(),
        properties.puts.into(),
        properties.deletions.into(),
        properties.range_deletions.into(),
        properties.shadowed.into(),
        properties.record_bytes.into(),
        properties.smallest.user_key.as_slice().into(),
        properties.largest.user_key.as_slice().into(),
        properties.creation.job.into(),
        u64::from(properties.creation.level).into(),
    ]);
    let mut uses = Section::new("segments", USES);
    for (used, ordinal) in properties.segments.iter().zip(0_u64..) {
        uses.rows.push(vec![
            ordinal.into(),
            used.id.into(),
            yes_or_no(used.is_run).into(),
            used.entries.into(),
            used.live_bytes.into(),
        ]);
    }
    report.sections.extend([section, uses]);
}

/// Shows the entries of the image that an object, or a segment, should be.
pub(crate) fn show_image(remains: &Remains, limit: usize, object: &str, report: &mut Report) {
    match remains.table() {
        Some(Ok(cached)) => show_entries(remains, &cached, limit, object, report),
        Some(Err(error)) => {
            report.problem(object, error.kind(), format!("the image of the table cannot be read: {error}"));
        }
        None => report.problem(object, ErrorKind::Corrupt, "the image of the table cannot be read"),
    }
}

/// Shows the table whose image an object, or a segment, is, or the records that are found in it.
pub(crate) fn show_contents(remains: &Remains, limit: usize, object: &str, report: &mut Report) {
    if let Some(Ok(cached)) = remains.table() {
        show_properties(cached.properties(), report);
        show_entries(remains, &cached, limit, object, report);
        return;
    }
    let mut section = Section::new("records", RECORDS);
    for (range, record) in records::find(&remains.bytes) {
        let Record { tag, expiry_ms, key, value } = record;
        section.rows.push(vec![
            range.start.into(),
            key.into(),
            tag.sequence().0.into(),
            kind_name(tag.kind()).into(),
            value.len().into(),
            expiry_ms.into(),
        ]);
    }
    push_limited(section, limit, report);
}

fn show_entries(remains: &Remains, cached: &CachedTable, limit: usize, object: &str, report: &mut Report) {
    let mut section = Section::new("entries", ENTRIES);
    let shown = for_each_entry(&remains.bytes, cached.sparse_index(), |entry| {
        let place = cached.properties().locate(entry).map(|(_, address)| address);
        let place = place.ok();
        section.rows.push(vec![
            entry.key.user_key.into(),
            entry.key.tag.sequence().0.into(),
            kind_name(entry.key.tag.kind()).into(),
            place.map(|place| place.segment).into(),
            place.map(|place| place.offset).into(),
            u64::from(entry.length).into(),
            entry.expiry_ms.into(),
        ]);
        Ok(())
    });
    if let Err(error) = shown {
        report.problem(object, error.kind(), error);
    }
    push_limited(section, limit, report);
}

/// Adds a list that ends after `limit` rows, which is noted.
pub(crate) fn push_limited(mut section: Section, limit: usize, report: &mut Report) {
    let all = section.rows.len();
    if all > limit {
        section.rows.truncate(limit);
        report.note(section.name, format!("{limit} of {all} rows are shown: --limit says how many"));
    }
    report.sections.push(section);
}

pub(crate) const fn yes_or_no(is_so: bool) -> &'static str {
    if is_so { "yes" } else { "no" }
}

const fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Delete => "delete",
        Kind::Put => "put",
        Kind::RangeDelete => "range delete",
        Kind::Merge => "merge",
        Kind::Nothing => "nothing",
        Kind::Crossing => "crossing",
    }
}

/// What a segment holds.
pub(crate) const fn segment_kind(kind: SegmentKind) -> &'static str {
    match kind {
        SegmentKind::MemtableBlock => "block of a memtable",
        SegmentKind::Run => "run",
        SegmentKind::TableImage => "image",
    }
}
