//! A compaction that somebody asked for: everything in a range goes down to the last level, and every
//! table there ends up with one run.
//!
//! It goes level by level, and table by table in key order, so that it needs memory for only a few tables at a time.
//! Only the tables of level 0 go together: they overlap, and an older one must not stay above a newer one. On the way
//! down only indexes are merged. In the last level each table is rewritten once, so a record is moved once.
//!
//! A shard at rest asks for the same by itself: see [`settling`](crate::plan::settling).
//!
//! If a step fails, for example because memory is short, that step is repeated, and the steps before it are not.
//! Otherwise this would never end: without room a table of the last level gets several runs, so it would never count as
//! done.

use crate::plan::picker::{Pick, Picker, begins_behind};
use crate::plan::tiers::Tier;
use crate::terms::options::CompactionStyle;
use forebay_base::record::is_expired;
use forebay_base::{KeyOrder, Tag};
use forebay_table::job::{Clustering, Residents};
use forebay_table::{OwnedKey, TableMetadata};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A compaction that somebody asked for: everything in the range goes down to the last level.
#[derive(Debug, Clone, Default)]
pub(crate) struct ManualCompaction {
    pub(crate) lower: Option<Vec<u8>>,
    pub(crate) upper: Option<Vec<u8>>,
    /// The level whose tables are next.
    pub(crate) level: usize,
    /// Where that level is done: up to the end of the last table that was taken.
    pub(crate) cursor: Option<OwnedKey>,
    /// What expired before this time, in milliseconds since 1970, goes too.
    pub(crate) expire_before_ms: u64,
    /// Nobody asked: the shard settles.
    pub(crate) is_unasked: bool,
}

impl ManualCompaction {
    /// Goes back to the state `before` a step that was not done, unless it is at an earlier point already.
    pub(crate) fn go_back(&mut self, order: KeyOrder, before: Self) {
        let cursor_is_earlier = || match (&before.cursor, &self.cursor) {
            (None, _) => true,
            (Some(before), Some(now)) => order.compare_internal(before.as_key(), now.as_key()).is_lt(),
            (Some(_), None) => false,
        };
        if before.level < self.level || before.level == self.level && cursor_is_earlier() {
            *self = before;
        }
    }
}

/// What a manual compaction does next.
pub(crate) enum Step {
    Do(Pick),
    /// Something else has to end first.
    Wait,
    Done,
}

/// Returns the next step. The compaction notes how far it is.
pub(crate) fn next(picker: &Picker<'_>, manual: &mut ManualCompaction) -> Step {
    let Some(deepest) = picker.deepest() else {
        // The compaction that emptied the tree may still hold its tables.
        return if picker.busy.is_empty() { Step::Done } else { Step::Wait };
    };
    let deepest = deepest.max(1);
    while manual.level <= deepest {
        if let Some(pick) = next_in_level(picker, manual, deepest) {
            if !picker.is_free(&pick) {
                return Step::Wait;
            }
            manual.cursor = match manual.level {
                0 => Some(OwnedKey { user_key: Vec::new(), tag: Tag::MAX }),
                _ => pick.inputs.first().map(|(_, table)| table.properties.largest.clone()),
            };
            return Step::Do(pick);
        }
        if is_at_work(picker, manual) {
            return Step::Wait;
        }
        manual.level += 1;
        manual.cursor = None;
    }
    Step::Done
}

fn next_in_level(picker: &Picker<'_>, manual: &ManualCompaction, deepest: usize) -> Option<Pick> {
    let level = manual.level;
    let tables = picker.version.level(level);
    if level == 0 {
        let is_due = manual.cursor.is_none() && tables.iter().any(|table| in_range(table, manual));
        return is_due.then(|| down(picker, 0, tables.to_vec(), deepest));
    }
    let order = picker.version.identity().key_order;
    let is_next = |table: &&Arc<TableMetadata>| {
        manual.cursor.as_ref().is_none_or(|end| begins_behind(order, table, end))
            && in_range(table, manual)
            && (level < deepest || !is_finished(picker, table, manual.expire_before_ms))
    };
    let table = tables.iter().find(is_next)?;
    let clustering = match picker.options.compaction_style {
        CompactionStyle::Unclustered => Clustering::None,
        CompactionStyle::Clustered | CompactionStyle::Classic => Clustering::Gather(Residents::Rewrite),
    };
    Some(match level < deepest {
        true => down(picker, level, vec![Arc::clone(table)], deepest),
        false => picker.rewrite_as(level, table, clustering, BTreeSet::new()),
    })
}

/// Whether a table of the last level is finished. Deletions have nothing to hide there, but may have come while
/// something was below them: a table of nothing else goes. What has expired also goes, and operands become values.
/// Shadowed entries came while a snapshot needed them. If one still does, they stay, and the table is rewritten all the
/// same.
fn is_finished(picker: &Picker<'_>, table: &TableMetadata, expire_before_ms: u64) -> bool {
    let properties = &table.properties;
    let is_passing = properties.deletions > 0 || properties.range_deletions > 0 || properties.merges > 0;
    if properties.shadowed > 0 || is_expired(properties.oldest_expiry_ms, expire_before_ms) {
        return false;
    }
    let is_one_run = || matches!(&properties.segments[..], [run] if run.is_run && run.gap_bytes() == 0);
    match picker.options.compaction_style {
        CompactionStyle::Unclustered => !properties.segments.is_empty(),
        _ => !is_passing && is_one_run() && !is_shared(picker, table),
    }
}

/// Whether the table's first run also serves another table.
fn is_shared(picker: &Picker<'_>, table: &TableMetadata) -> bool {
    table.properties.segments.iter().any(|used| {
        let length = picker.version.segment(used.id).map_or(0, |info| info.length);
        used.live_bytes < length
    })
}

/// A step towards the last level. If that level is in storage, records are brought into key order on the way, because
/// what leaves memory is rewritten in any case.
fn down(picker: &Picker<'_>, level: usize, tables: Vec<Arc<TableMetadata>>, deepest: usize) -> Pick {
    let comes_to_storage = level + 1 == deepest && picker.tier_of(deepest) == Tier::Storage;
    match picker.options.compaction_style {
        CompactionStyle::Clustered if comes_to_storage => {
            picker.build_as(level, tables, Clustering::Gather(Residents::Rewrite))
        }
        CompactionStyle::Clustered => picker.build_as(level, tables, Clustering::None),
        CompactionStyle::Unclustered | CompactionStyle::Classic => picker.build(level, tables),
    }
}

fn in_range(table: &TableMetadata, manual: &ManualCompaction) -> bool {
    table.properties.overlaps(manual.lower.as_deref(), manual.upper.as_deref())
}

/// Whether a compaction works on something in the range. If the version no longer has a compaction's tables, it has
/// installed its outputs, but it may still hold the tables.
fn is_at_work(picker: &Picker<'_>, manual: &ManualCompaction) -> bool {
    let find = |id| picker.version.levels().iter().flatten().find(|table| table.id == id);
    picker.busy.iter().any(|id| find(*id).is_none_or(|table| in_range(table, manual)))
}
