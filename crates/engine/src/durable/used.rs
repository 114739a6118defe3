//! Which bytes of segments are used: the others may be anything.
//!
//! A job's output may have more memory than it wrote, and the rest holds what was there before. A table says in which
//! span of a segment its records are. A part of the log has records from its start on.

use crate::remote::segment::Segment;
use crate::tree::version::Change;
use forebay_base::SegmentId;
use forebay_env::{HashMap, HashSet};
use forebay_table::entry::UNIT_BYTES;
use forebay_table::{SegmentKind, TableProperties, Version};
use std::ops::Range;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Used {
    spans: HashMap<SegmentId, Vec<Range<u64>>>,
    log_parts: HashSet<SegmentId>,
}

impl Used {
    /// What versions use.
    pub(crate) fn by<'v>(versions: impl IntoIterator<Item = &'v Version>) -> Self {
        let mut used = Self::default();
        for version in versions {
            version.levels().iter().flatten().for_each(|table| used.add_table(&table.properties));
            used.log_parts.extend(version.log_parts().map(|part| part.segment));
        }
        used
    }

    /// What a change's tables use of what it adds.
    pub(crate) fn by_change(change: &Change) -> Self {
        let mut used = Self::default();
        change.tables.iter().for_each(|table| used.add_table(table.properties()));
        used
    }

    fn add_table(&mut self, properties: &TableProperties) {
        for part in &properties.segments {
            let start = part.first_unit.saturating_mul(UNIT_BYTES);
            let end = start.saturating_add(part.span_units.saturating_mul(UNIT_BYTES));
            self.spans.entry(part.id).or_default().push(start..end);
        }
    }

    /// Whether a segment is a part of the log.
    pub(crate) fn is_log(&self, id: SegmentId) -> bool {
        self.log_parts.contains(&id)
    }

    /// Whether it matters that bytes of a segment are damaged; `is_mendable` if another copy has them whole.
    pub(crate) fn matters(&self, segment: &Segment, at: &Range<u64>, is_mendable: bool) -> bool {
        let is_in_span = || {
            let spans = self.spans.get(&segment.id()).map(Vec::as_slice).unwrap_or_default();
            spans.iter().any(|span| span.start < at.end && at.start < span.end)
        };
        // A log ends where its writer did, even in the middle of a record.
        segment.info().kind == SegmentKind::TableImage || is_mendable && self.is_log(segment.id()) || is_in_span()
    }
}
