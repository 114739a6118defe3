//! Collection: what is picked because records are dead, or because memory is short.

use super::{Cursors, MOST_TRIES, Part, Pick, Picker, Work, begins_behind};
use crate::plan::space::allocated;
use crate::plan::tiers::Tier;
use forebay_base::SegmentId;
use forebay_proto::ranges::GRANULARITY_BYTES;
use forebay_table::job::{Clustering, LEAST_PIECE_BYTES};
use forebay_table::{Placement, SegmentInfo, TableMetadata};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Collection starts at this part of the limit of dead bytes, in percent.
const EARLY_PERCENT: u64 = 88;
/// The same when memory is short.
const EARLY_PERCENT_WHEN_SHORT: u64 = 75;
/// Percent of dead bytes when the memory node is full: collecting less would free too little for its work.
const FULL_DEAD_PERCENT: u64 = 6;
/// Percent of an extent up to which it is sparse.
const SPARSE_PERCENT: u64 = 75;

impl Picker<'_> {
    /// Percent of dead bytes from which collection starts.
    fn most_dead_percent(&self) -> u64 {
        let early = if self.room.is_plenty() { EARLY_PERCENT } else { EARLY_PERCENT_WHEN_SHORT };
        self.options.dead_percent * early / 100
    }

    /// How much is dead, as a part of what is allowed.
    pub(super) fn garbage_score(&self) -> f64 {
        let most = self.most_dead_percent();
        let percent = self.room.scale(FULL_DEAD_PERCENT.min(most), most);
        let slack = self.room.scale(0, self.options.write_buffer_bytes as u64);
        let most_bytes = self.space.live_bytes() / 100 * percent + slack;
        self.space.dead_bytes() as f64 / (most_bytes + 1) as f64
    }

    /// When dead bytes exceed their share: a step that empties the segment that is cheapest to empty, at the highest level
    /// that has tables which name it.
    pub(super) fn pick_garbage(&self) -> Option<Pick> {
        if self.garbage_score() < 1.0 {
            return None;
        }
        // When memory is short, tables leave every run of which this much is dead.
        let most = self.most_dead_percent();
        let of_run = self.room.scale(FULL_DEAD_PERCENT.min(most), self.left_percent);
        let deepest = self.deepest()?;
        let most_bytes = if self.room.is_none() { self.room.scratch_bytes / 4 } else { u64::MAX };
        let victims = self.space.cheapest(most_bytes);
        if self.room.is_none() && self.move_takes(|id| victims.contains(id)) > self.space.allocated_bytes(&victims) {
            return None;
        }
        victims.iter().take(MOST_TRIES).find_map(|&deadest| {
            let names = |table: &&Arc<TableMetadata>| table.properties.segments.iter().any(|used| used.id == deadest);
            let level = (0..=deepest).find(|&level| self.version.level(level).iter().any(|table| names(&table)))?;
            if level == 0 {
                return self.pick_level0();
            }
            let free = |table: &&Arc<TableMetadata>| names(table) && !self.busy.contains(&table.id);
            let tables = self.version.level(level).iter().filter(free).take(MOST_TRIES);
            let mut picks = tables.map(|table| {
                if self.room.is_none() {
                    self.move_out(level, table, |id| victims.contains(id))
                } else if level == deepest {
                    self.rewrite(level, table, self.past_limit(table, of_run, Some(deadest)))
                } else {
                    self.build(level, vec![Arc::clone(table)])
                }
            });
            picks.find(|pick| self.is_free(pick))
        })
    }

    /// What it takes to move the live records of these segments out of all of their tables: for each table a run, which
    /// takes a page at least, and the images in these segments.
    fn move_takes(&self, is_moved: impl Fn(&SegmentId) -> bool) -> u64 {
        let of_table = |table: &Arc<TableMetadata>| {
            let moved = table.properties.segments.iter().filter(|used| is_moved(&used.id));
            let image = if is_moved(&table.image.segment) { table.image.length } else { 0 };
            allocated(image) + allocated(moved.map(|used| used.live_bytes).sum())
        };
        self.version.levels().iter().flatten().map(of_table).sum()
    }

    /// When memory is short: the table whose short segments waste most by the rounding of their memory. They are
    /// joined. Each time, records take less memory, so this ends.
    pub(super) fn pick_short(&self) -> Option<Pick> {
        let levels = self.version.levels().iter().enumerate().skip(1);
        let tables = levels.flat_map(|(level, tables)| tables.iter().map(move |table| (level, table)));
        let free = tables.filter(|(_, table)| !self.busy.contains(&table.id));
        let joined = free.filter_map(|(level, table)| {
            let (won, segments) = self.space.to_join(&table.properties.segments, LEAST_PIECE_BYTES)?;
            Some((won, level, table, segments))
        });
        let (_, level, table, segments) = joined.max_by_key(|(won, ..)| *won)?;
        Some(self.rewrite_as(level, table, Clustering::None, segments))
    }

    /// A table of the last level with something in a sparse extent, which moves out of it. There is one pass over the
    /// tables for each extent: what is placed there again stays.
    pub(super) fn pick_sparse(&self, cursors: &mut Cursors) -> Option<Pick> {
        let is_due = self.room.is_none() || self.room.is_wanted;
        if !is_due || self.room.extent_bytes == 0 {
            return None;
        }
        // Tables of level 0 hide one another: none of them is rewritten alone.
        let level = self.deepest().filter(|level| *level > 0)?;
        let mut used = BTreeMap::<u32, u64>::new();
        for segment in self.version.segments().values() {
            if let Some(extent) = extent_of(&segment.info) {
                *used.entry(extent).or_default() += allocated(segment.info.length);
            }
        }
        // Work for another shard must not take this shard's room.
        let spare = if self.room.is_none() { u64::MAX } else { self.room.scratch_bytes / 4 };
        let is_sparse = |bytes: &u64| *bytes <= (self.room.extent_bytes / 100 * SPARSE_PERCENT).min(spare);
        let mut sparse: Vec<_> = used.into_iter().map(|(extent, bytes)| (bytes, extent)).collect();
        sparse.retain(|(bytes, _)| is_sparse(bytes));
        sparse.sort_unstable();
        sparse.into_iter().take(MOST_TRIES).find_map(|(bytes, extent)| {
            let lies_there =
                |id: &SegmentId| self.version.segment(*id).and_then(|info| extent_of(info)) == Some(extent);
            if self.move_takes(lies_there) > bytes {
                return None;
            }
            let order = self.version.identity().key_order;
            let cursor = cursors.extents.get(&extent);
            let is_next = |table: &&Arc<TableMetadata>| {
                !self.busy.contains(&table.id) && cursor.is_none_or(|end| begins_behind(order, table, end))
            };
            let mut tables = self.version.level(level).iter().filter(is_next);
            let table = tables.find(|table| table.segments().any(|id| lies_there(&id)))?;
            cursors.extents.insert(extent, table.properties.largest.clone());
            Some(self.move_out(level, table, lies_there))
        })
    }

    /// Without room: what is above the last level, lowest level first, because it is nearest to what it hides.
    pub(super) fn pick_anything(&self, cursors: &mut Cursors) -> Option<Pick> {
        let deepest = self.deepest().filter(|_| self.room.is_none())?;
        (0..deepest).rev().find_map(|level| self.pick_level(level, cursors))
    }

    /// Without room, as a last resort: adjacent tables of level 0 that take less memory as one. A page for its index,
    /// and one for records, are held for this (see `room`). Each time there are fewer tables, so this ends.
    pub(super) fn pick_neighbours(&self) -> Option<Pick> {
        if !self.room.is_none() {
            return None;
        }
        let (mut groups, mut sum) = (vec![Vec::new()], 0);
        for table in self.version.level(0) {
            let is_busy = self.busy.contains(&table.id);
            if is_busy || sum + table.image.length > GRANULARITY_BYTES {
                groups.push(Vec::new());
                sum = 0;
            }
            if let Some(group) = groups.last_mut().filter(|_| !is_busy) {
                group.push(Arc::clone(table));
                sum += table.image.length;
            }
        }
        let several = groups.into_iter().filter(|group| group.len() > 1);
        let (_, pick) = several.filter_map(|group| self.join(group)).max_by_key(|(won, _)| *won)?;
        Some(pick)
    }

    /// Merges neighbours of level 0 into one table, with their short segments as one run of at most a page. Returns how
    /// much less memory that takes, if any.
    fn join(&self, tables: Vec<Arc<TableMetadata>>) -> Option<(u64, Pick)> {
        let images = || tables.iter().map(|table| table.image.length);
        let segments = tables.iter().flat_map(|table| &table.properties.segments);
        let (won, vacated) = self.space.to_join(segments, GRANULARITY_BYTES).unwrap_or_default();
        let images = images().map(allocated).sum::<u64>().checked_sub(allocated(images().sum()))?;
        let work = Work::Merge { is_bottommost: false, clustering: Clustering::None, vacated };
        let inputs = tables.into_iter().map(|table| (0, table)).collect();
        let pick =
            Pick { inputs, output_level: 0, tier: Tier::Memory, work, leaves_small: true, part: Part::default() };
        (won + images > 0).then_some((won + images, pick))
    }

    /// A compaction of a table into itself that moves what lives in some of its segments, and brings nothing else into
    /// key order. It takes short segments along: their records fill the last page of the new run.
    fn move_out(&self, level: usize, table: &Arc<TableMetadata>, is_moved: impl Fn(&SegmentId) -> bool) -> Pick {
        let segments = &table.properties.segments;
        let vacated = segments.iter().map(|used| used.id).filter(is_moved).collect();
        self.rewrite_as(level, table, Clustering::None, self.space.filled(segments, vacated))
    }
}

/// The extent that a segment is in.
fn extent_of(info: &SegmentInfo) -> Option<u32> {
    match info.placements.first()? {
        Placement::Memory { extent, .. } => Some(*extent),
        Placement::Storage { .. } => None,
    }
}
