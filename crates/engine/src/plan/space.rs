//! How much of each segment lives.
//!
//! A segment's **dead bytes** are those of its length that no table of the version references: records
//! that a compaction dropped or gathered elsewhere. They are counted from the tables' properties, so
//! they are right at every version and need not be stored; what is shadowed but was not compared yet
//! counts as live.
//!
//! A short segment also takes the bytes by which its memory is rounded up. So where memory is short, a table's short
//! segments are joined: see [`Space::to_join`] and [`Space::filled`].

use crate::plan::tiers::is_in_memory;
use forebay_base::SegmentId;
use forebay_env::HashMap;
use forebay_proto::ranges::GRANULARITY_BYTES;
use forebay_table::job::LEAST_PIECE_BYTES;
use forebay_table::{SegmentKind, SegmentUse, Version};
use std::collections::BTreeSet;

/// Dead and live bytes of a version's records.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// Length and live bytes of each segment of records.
    segments: HashMap<SegmentId, (u64, u64)>,
    live_bytes: u64,
    length_bytes: u64,
}

impl Space {
    pub(crate) fn of(version: &Version) -> Self {
        Self::counted(version, |_| true)
    }

    /// The same for what is in memory.
    pub(crate) fn in_memory(version: &Version) -> Self {
        Self::counted(version, |id| is_in_memory(version, id))
    }

    fn counted(version: &Version, is_counted: impl Fn(SegmentId) -> bool) -> Self {
        let of_records = |kind| kind != SegmentKind::TableImage;
        let mut space = Self::default();
        // The log needs its parts, however little of them tables name.
        let logged: BTreeSet<_> = version.log_parts().map(|part| part.segment).collect();
        let counted = |id, kind| of_records(kind) && is_counted(id) && !logged.contains(&id);
        for (id, segment) in version.segments().iter().filter(|(id, segment)| counted(**id, segment.info.kind)) {
            space.segments.insert(*id, (segment.info.length, 0));
            space.length_bytes += segment.info.length;
        }
        for used in version.levels().iter().flatten().flat_map(|table| &table.properties.segments) {
            if let Some((_, live)) = space.segments.get_mut(&used.id) {
                *live += used.live_bytes;
                space.live_bytes += used.live_bytes;
            }
        }
        space
    }

    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    pub(crate) fn dead_bytes(&self) -> u64 {
        self.length_bytes.saturating_sub(self.live_bytes)
    }

    /// Memory that these segments of records take.
    pub(crate) fn allocated_bytes(&self, ids: &[SegmentId]) -> u64 {
        ids.iter().filter_map(|id| self.segments.get(id)).map(|(length, _)| allocated(*length)).sum()
    }

    /// Short segments of a table, or of several that are merged, that take less memory as one run of at most
    /// `most_bytes`, and how much less. No other table names them, so they are freed. The run fits into a piece of
    /// memory that there always is, so it stays one run.
    pub(crate) fn to_join<'s>(
        &self,
        segments: impl IntoIterator<Item = &'s SegmentUse>,
        most_bytes: u64,
    ) -> Option<(u64, BTreeSet<SegmentId>)> {
        let mut joined = BTreeSet::new();
        let (moved, freed) = self.join(segments, most_bytes, &mut joined);
        let won = freed.checked_sub(allocated(moved)).filter(|won| *won > 0)?;
        Some((won, joined))
    }

    /// The `vacated` segments of a table, with those of its short ones that fit into the rounding of their run's
    /// memory. The run takes no more memory for them, and their own memory is freed.
    pub(crate) fn filled(&self, segments: &[SegmentUse], mut vacated: BTreeSet<SegmentId>) -> BTreeSet<SegmentId> {
        let is_moved = |used: &&SegmentUse| vacated.contains(&used.id);
        let moved: u64 = segments.iter().filter(is_moved).map(|used| used.live_bytes).sum();
        // A longer run is cut in pieces, each of which is rounded up.
        if moved <= LEAST_PIECE_BYTES {
            self.join(segments, allocated(moved) - moved, &mut vacated);
        }
        vacated
    }

    /// Adds a table's short segments that no other table names, shortest first, as many as `most_bytes` hold. Returns
    /// their live bytes, and the memory that they take.
    fn join<'s>(
        &self,
        segments: impl IntoIterator<Item = &'s SegmentUse>,
        most_bytes: u64,
        joined: &mut BTreeSet<SegmentId>,
    ) -> (u64, u64) {
        let own = |used: &SegmentUse| {
            let (length, live) = self.segments.get(&used.id).copied().unwrap_or_default();
            let is_short = used.live_bytes == live && live <= most_bytes && !joined.contains(&used.id);
            is_short.then_some((live, length, used.id))
        };
        let mut own: Vec<_> = segments.into_iter().filter_map(own).collect();
        own.sort_unstable();
        let (mut moved, mut freed) = (0, 0);
        for (live, length, id) in own {
            if moved + live > most_bytes {
                break;
            }
            moved += live;
            freed += allocated(length);
            joined.insert(id);
        }
        (moved, freed)
    }

    /// Whether more than `percent` of the segment is dead.
    pub(crate) fn is_past(&self, id: SegmentId, percent: u64) -> bool {
        let (length, live) = self.segments.get(&id).copied().unwrap_or_default();
        is_past(length.saturating_sub(live), length, percent)
    }

    /// The percentage such that freeing all segments of which more is dead brings the dead bytes to `most_bytes` or
    /// less; 100 when they are that few already.
    pub(crate) fn percent_to(&self, most_bytes: u64) -> u64 {
        let mut dead_bytes = [0u64; 101];
        for (length, live) in self.segments.values() {
            let dead = length.saturating_sub(*live);
            if let Some(bytes) = dead_bytes.get_mut((dead * 100 / (*length).max(1)) as usize) {
                *bytes += dead;
            }
        }
        let (mut percent, mut left) = (100, self.dead_bytes());
        for bytes in dead_bytes.iter().skip(1).rev() {
            if left <= most_bytes {
                break;
            }
            left = left.saturating_sub(*bytes);
            percent -= 1;
        }
        percent
    }

    /// Segments with dead bytes, those with the smallest live part first, until what lives in them comes to
    /// `most_bytes`; at least one, if there is any. As records leave them, they come first even more, so they are
    /// chosen again until they are free.
    pub(crate) fn cheapest(&self, most_bytes: u64) -> Vec<SegmentId> {
        let part = |(id, &(length, live)): (&SegmentId, &(u64, u64))| (live * 1000 / length.max(1), *id, live);
        let mut parts: Vec<_> = self.segments.iter().filter(|(_, (length, live))| live < length).map(part).collect();
        parts.sort_unstable();
        let mut sum = 0u64;
        let is_within = |(_, _, live): &(u64, SegmentId, u64)| {
            let is_first = sum == 0;
            sum = sum.saturating_add(live.max(&1).to_owned());
            is_first || sum <= most_bytes
        };
        parts.into_iter().take_while(is_within).map(|(_, id, _)| id).collect()
    }
}

/// Memory that a segment of `length` bytes takes.
pub(crate) const fn allocated(length: u64) -> u64 {
    length.next_multiple_of(GRANULARITY_BYTES)
}

/// Whether more than `percent` of the run is dead, as far as one table's part of it goes.
pub(crate) fn is_run_past(used: &SegmentUse, percent: u64) -> bool {
    is_past(used.gap_bytes(), used.gap_bytes().saturating_add(used.live_bytes), percent)
}

fn is_past(dead: u64, whole: u64, percent: u64) -> bool {
    u128::from(dead) * 100 > u128::from(whole) * u128::from(percent)
}
