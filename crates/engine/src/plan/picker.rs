//! What to compact next: a pure function of a version.
//!
//! Leveled compaction. Level 0 is compacted when it has too many tables; a further level, when its
//! record bytes exceed its target, which grows by a factor from level to level. Tables with range
//! deletions go down too, once nothing else is due. Tables that a compaction works on are *busy*:
//! another one may run beside it if it shares no table with it.
//!
//! Tables that a newer range deletion hides as a whole are not picked here: the planner drops them before it picks
//! anything ([`Pick::drop_all`], `docs/decisions/0092`).
//!
//! # Where records go
//!
//! | compaction into | medium records ([`CompactionStyle::Clustered`]) |
//! |---|---|
//! | a level under which something overlaps | stay where they are: only indexes are merged |
//! | the last level of the range, while little of the tables is outside of runs, or while the level is about to be compacted itself | stay |
//! | the last level of the range otherwise | what is outside of runs is gathered into one run of the output table |
//!
//! So a record is gathered once, near the data, together with many others, and a record that is overwritten soon is
//! never gathered. Memtable segments die whole, oldest first. Small records are gathered by every compaction above the
//! last level; large ones stay where they were written.
//!
//! # What bounds it
//!
//! A table of the last level holds few runs, and little outside of them. A compaction into that level *vacates* the
//! excess: the smallest runs go into the new one, as many as together outweigh the next larger. A table that is past a
//! limit by itself is rewritten alone, and a scan that crosses a table lowers its limits.
//!
//! Dead bytes are bounded in total, not by segment: freeing a byte moves least where least lives. When dead bytes reach
//! the share that is aimed at, compactions that run anyway vacate the deadest segments, as many as bring them back to
//! that share. When they come near their limit, the tables that name such a segment go down a level, or are rewritten
//! in the last one.
//!
//! # Why it ends
//!
//! What makes a compaction due is gone once it is done, and only a write, a scan or a change of room brings it back. A
//! compaction does one of two things. It takes tables down a level, which happens to each entry only a few times. Or it
//! rewrites a table where it is. The new table then names none of the segments that the compaction vacated, and has no
//! more runs than it may. If records outside of runs made the compaction due, the new table has none of those. If
//! memory was short, it takes less memory. A compaction never leaves a segment partly dead that was not so before: it
//! moves only what it is due for ([`Pick::size_classes`]). `progress` tests this on random trees, and the simulation
//! bounds compactions by flushes.
//!
//! # When memory is short
//!
//! With less [`Room`], records are clustered as they come to the last level, so that memtable segments are free early,
//! and each segment's dead bytes are bounded. The limit of dead bytes sinks. Collection takes the segments of which
//! least lives, and comes when it is further behind than any level. Level 0 is compacted earlier, with only as many of
//! its oldest tables as leave room for their outputs. A level is due at its share of what the last one holds, so that
//! what it hides is bounded by what lives. No level is begun below the last one because of a few tables too many.
//!
//! Without room, records are no longer brought into key order. A compaction merges indexes, which takes next to nothing
//! and finds what is dead. Collection moves what lives in a few segments, which gives back more than it takes.
//! Everything that may free something is due: at last, all that is above the last level, because it may hide what is
//! there.
//!
//! Each segment's memory is rounded up, so a table's short segments are joined when room is short. Collection takes a
//! segment's records out of each of its tables. That alone would make as many short segments and take more memory than
//! it gives back. So when there is no room, a table also gives up its short segments, as many as fill its last page.
//! Nothing is moved that would take more than it gives back: a segment of which many tables each name a little stays
//! until less of it lives, or others are moved with it.
//!
//! Memory goes from jobs to flushes, and to other shards and databases, in whole extents. So the contents of the
//! sparsest extent are moved elsewhere when nothing better is to be done and a shard of the database has no room. For
//! another shard this happens only while the contents take no more than a quarter of what is free here.
//!
//! Deletions that were flushed without room leave small tables in level 0, which take two pages each. What they overlap
//! further down may be too much to merge with any of them. Then neighbours are merged where they are.
//!
//! Where records are small, one table of deletions may overlap all tables below, and their indexes may be more than
//! there is memory for. So a table goes down in parts (in level 0, the oldest table): up to a key, with the tables
//! below it up to that key. The table stays until its last part has gone down. Until then, what has gone down exists
//! twice, under the same numbers. Readers see it once, because nothing newer goes past it. Each part begins where the
//! previous one ended, so this ends. If the process ends first, the table begins anew (`docs/decisions/0069`).

mod collecting;

use crate::plan::room::Room;
use crate::plan::space::{Space, is_run_past};
use crate::plan::tiers::{Tier, Tiers, is_stored, records_in_memory};
use crate::terms::Options;
use crate::terms::options::CompactionStyle;
use crate::terms::segment_numbers::NUMBERS_OF_A_JOB;
use forebay_base::record::{MIN_RECORD_BYTES, pad};
use forebay_base::{KeyOrder, SegmentId, Tag};
use forebay_proto::ranges::GRANULARITY_BYTES;
use forebay_table::job::{Clustering, LEAST_PIECE_BYTES, PIECES_OF_RUN, Residents, SizeClasses};
use forebay_table::{OwnedKey, SegmentUse, TableId, TableMetadata, Version};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Percent of the limit of dead bytes that is aimed at: compactions that run anyway vacate enough to reach it.
const AIM_PERCENT: u64 = 80;
/// Tables of a level that are tried when others are busy.
const MOST_TRIES: usize = 8;

/// A compaction to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pick {
    /// Tables with their levels, newest first.
    pub(crate) inputs: Vec<(u8, Arc<TableMetadata>)>,
    pub(crate) output_level: u8,
    /// Where its outputs go.
    pub(crate) tier: Tier,
    pub(crate) work: Work,
    /// Small records also stay where they are: without room, only indexes are written.
    leaves_small: bool,
    /// If one table goes down in parts: its keys that go down now.
    pub(crate) part: Part,
}

/// The part of a table that goes down now. All earlier parts have gone down.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// The first key.
    pub(crate) lower: Option<Vec<u8>>,
    /// The first key after the part; `None` for the last part.
    pub(crate) upper: Option<Vec<u8>>,
}

impl Pick {
    /// These tables go as they are: nobody sees anything of them.
    pub(crate) fn drop_all(inputs: Vec<(u8, Arc<TableMetadata>)>) -> Self {
        let output_level = inputs.iter().map(|(level, _)| *level).max().unwrap_or(0);
        let (work, part) = (Work::Drop, Part::default());
        Self { inputs, output_level, tier: Tier::Memory, work, leaves_small: false, part }
    }

    /// The tables that were chosen, without those that they overlap in the output level.
    pub(crate) fn chosen(&self) -> impl Iterator<Item = TableId> + '_ {
        let first = self.inputs.first().map(|(level, _)| *level);
        self.inputs.iter().filter(move |(level, _)| Some(*level) == first).map(|(_, table)| table.id)
    }

    /// Whether it merges tables of level 0: writers are paced by how long that takes.
    pub(crate) fn merges_level0(&self) -> bool {
        self.work != Work::Drop && self.inputs.iter().any(|(level, _)| *level == 0)
    }

    /// The inputs that the compaction replaces. A table that goes down in parts stays until the last part. Until then,
    /// what has gone down exists twice, under the same numbers, and readers see it once.
    pub(crate) fn replaced(&self) -> impl Iterator<Item = (u8, TableId)> + '_ {
        let stays = self.part.upper.is_some();
        self.inputs.iter().skip(usize::from(stays)).map(|(level, table)| (*level, table.id))
    }

    /// Whether a smaller compaction can be done instead: fewer tables go down, or one in parts.
    pub(crate) fn has_parts(&self) -> bool {
        let goes_down = self.inputs.first().is_some_and(|(level, _)| *level < self.output_level);
        goes_down && self.inputs.len() > 2
    }

    /// An upper bound of the memory that the outputs take: all entries survive, and each segment is rounded up.
    pub(crate) fn output_bytes(&self, options: &Options) -> u64 {
        let Work::Merge { clustering, vacated, .. } = &self.work else { return 0 };
        if self.tier == Tier::Storage {
            return 0;
        }
        let small = match self.size_classes(options) {
            SizeClasses::NONE => 0,
            classes => pad(MIN_RECORD_BYTES + classes.medium_from_bytes as usize) as u64,
        };
        let is_gathered = |used: &SegmentUse| match clustering {
            Clustering::Gather(Residents::Rewrite) => true,
            Clustering::Gather(Residents::Keep) if !used.is_run => true,
            _ => vacated.contains(&used.id),
        };
        let leaves = |used: &SegmentUse| match is_gathered(used) {
            true => used.live_bytes,
            // Small records are gathered by every compaction, except residents that are kept.
            false if *clustering != Clustering::None => 0,
            false => used.live_bytes.min(used.entries.saturating_mul(small)),
        };
        let tables = || self.inputs.iter().map(|(_, table)| table);
        // About what operands and the values before them become: it is written anew.
        let merged = |table: &Arc<TableMetadata>| {
            let properties = &table.properties;
            let mean = properties.record_bytes / properties.entries().max(1);
            properties.merges.saturating_mul(2 * mean).min(properties.record_bytes)
        };
        let gathered: u64 = tables().flat_map(|table| &table.properties.segments).map(leaves).sum();
        let gathered = gathered + tables().map(merged).sum::<u64>();
        let records: u64 = tables().map(|table| table.properties.record_bytes).sum();
        let indexes: u64 = tables().map(|table| table.image.length).sum();
        let outputs = 1 + records / (options.target_table_bytes / 2).max(1);
        let piece = (options.target_table_bytes / PIECES_OF_RUN).max(LEAST_PIECE_BYTES);
        let pieces = if gathered == 0 { 0 } else { outputs + gathered / piece };
        gathered + indexes + indexes / 8 + (outputs + pieces) * GRANULARITY_BYTES
    }

    /// How records are treated by their size. A compaction that takes nothing down a level moves what it was picked
    /// for, and no other small records. Moving those out of a run that also holds others would leave the run dead in
    /// part, and its collection would do the same to the next run, for ever. At the bottom, merging indexes moves no
    /// small records either.
    pub(crate) fn size_classes(&self, options: &Options) -> SizeClasses {
        let goes_down = self.inputs.iter().any(|(level, _)| *level != self.output_level);
        let moves_small = match self.work {
            Work::Merge { clustering: Clustering::None, is_bottommost, .. } => goes_down && !is_bottommost,
            Work::Merge { .. } => true,
            Work::Move | Work::Drop => false,
        };
        let moves_small = moves_small && !self.leaves_small;
        // With `Unclustered` nothing moves but what is collected.
        let has_classes = moves_small && options.compaction_style == CompactionStyle::Clustered;
        if has_classes { options.size_classes } else { SizeClasses::NONE }
    }
}

/// How a compaction is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Work {
    /// Range deletions hide all that the tables hold: they go, and nothing comes instead.
    Drop,
    /// The tables move to another level as they are.
    Move,
    /// The tables are merged, and nothing of theirs is left in the segments to be vacated.
    Merge { is_bottommost: bool, clustering: Clustering, vacated: BTreeSet<SegmentId> },
}

impl Work {
    /// For logs.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Move => "move",
            Self::Merge { clustering: Clustering::None, .. } => "merge indexes",
            Self::Merge { clustering: Clustering::Gather(_), .. } => "gather records",
        }
    }
}

/// Where each level's compactions continue: after the last table that was compacted. And for each extent that is being
/// emptied, after the last table that left it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cursors {
    levels: Vec<Vec<u8>>,
    extents: BTreeMap<u32, OwnedKey>,
    /// The tables that go down in parts, each with its first key that has not gone down.
    parts: BTreeMap<TableId, Vec<u8>>,
}

impl Cursors {
    fn get(&self, level: usize) -> &[u8] {
        self.levels.get(level).map_or(&[], Vec::as_slice)
    }

    fn set(&mut self, level: usize, key: &[u8]) {
        while self.levels.len() <= level {
            self.levels.push(Vec::new());
        }
        if let Some(cursor) = self.levels.get_mut(level) {
            key.clone_into(cursor);
        }
    }

    /// Notes that a pick is done. If its table goes down in parts, the next part follows.
    pub(crate) fn done(&mut self, pick: &Pick) {
        if let (Some(upper), Some(table)) = (&pick.part.upper, pick.chosen().next()) {
            self.parts.insert(table, upper.clone());
        }
    }

    /// Notes that something was written: each extent may be emptied once more.
    pub(crate) fn begin_moves(&mut self) {
        self.extents.clear();
    }
}

/// Picks compactions of a version.
pub(crate) struct Picker<'a> {
    pub(crate) version: &'a Version,
    pub(crate) options: &'a Options,
    /// Tables that a compaction works on.
    pub(crate) busy: &'a BTreeSet<TableId>,
    /// How often scans crossed a table.
    pub(crate) crossings: &'a dyn Fn(TableId) -> u32,
    pub(crate) room: Room,
    tiers: Tiers,
    space: Space,
    /// Compactions into the last level vacate segments of which more than this percentage is dead.
    left_percent: u64,
}

impl<'a> Picker<'a> {
    pub(crate) fn new(
        version: &'a Version,
        options: &'a Options,
        busy: &'a BTreeSet<TableId>,
        crossings: &'a dyn Fn(TableId) -> u32,
        room: Room,
    ) -> Self {
        // When memory is short, what is dead in storage does not matter.
        let space = if room.is_plenty() { Space::of(version) } else { Space::in_memory(version) };
        let tiers = Tiers::new(options.storage_from_level);
        let has_storage = options.storage.is_some() || options.storage_from_level.is_some();
        let tiers = if has_storage && !room.is_plenty() { tiers.lowered(version) } else { tiers };
        let aim = space.live_bytes() / 100 * options.dead_percent * AIM_PERCENT / 100;
        let left_percent = match room.is_plenty() {
            true => space.percent_to(aim.max(options.write_buffer_bytes as u64)),
            false => options.dead_percent,
        };
        Self { version, options, busy, crossings, room, tiers, space, left_percent }
    }

    /// Whether no table of the pick is busy.
    pub(crate) fn is_free(&self, pick: &Pick) -> bool {
        !pick.inputs.iter().any(|(_, table)| self.busy.contains(&table.id))
    }

    /// The deepest level with tables.
    pub(crate) fn deepest(&self) -> Option<usize> {
        (0..self.version.levels().len()).rev().find(|&level| !self.version.level(level).is_empty())
    }

    /// Number of levels: that of the options, or more if deeper levels still have tables from larger options.
    fn levels(&self) -> usize {
        self.deepest().map_or(0, |deepest| deepest + 1).max(self.options.levels)
    }

    /// Record bytes at which `level`, from 1 on, is compacted. When memory is short, this is its share of what the last
    /// level holds. The last level is then compacted only once it is as large as the level below it would have to be.
    fn target_bytes(&self, level: usize) -> u64 {
        let power = |levels: usize| {
            self.options.level_size_multiplier.saturating_pow(u32::try_from(levels).unwrap_or(u32::MAX))
        };
        let target = self.options.level1_bytes.saturating_mul(power(level.saturating_sub(1)));
        match self.deepest() {
            Some(last) if level == last && !self.room.is_plenty() => target.saturating_mul(power(1)),
            Some(last) if level < last && !self.room.is_plenty() => {
                let share = self.level_bytes(last) / power(last - level);
                target.min(share.max(self.options.write_buffer_bytes as u64))
            }
            _ => target,
        }
    }

    fn level_bytes(&self, level: usize) -> u64 {
        self.version.level(level).iter().map(|table| table.properties.record_bytes).sum()
    }

    /// How full a level is, without what is on its way down.
    fn score(&self, level: usize) -> f64 {
        let free = self.version.level(level).iter().filter(|table| !self.busy.contains(&table.id));
        match level {
            0 => free.count() as f64 / self.room.scale(1, self.options.level0_compaction_trigger as u64) as f64,
            _ => free.map(|table| table.properties.record_bytes).sum::<u64>() as f64 / self.target_bytes(level) as f64,
        }
    }

    /// The most urgent compaction, if any is due and free. When memory is short, what may free memory is due earlier,
    /// and as much of it as there is memory for.
    pub(crate) fn pick(&self, cursors: &mut Cursors) -> Option<Pick> {
        if !cursors.parts.is_empty() {
            let tables: BTreeSet<_> = self.version.levels().iter().flatten().map(|table| table.id).collect();
            cursors.parts.retain(|table, _| tables.contains(table));
        }
        self.pick_whole(cursors).map(|pick| self.in_part(pick, cursors))
    }

    fn pick_whole(&self, cursors: &mut Cursors) -> Option<Pick> {
        let mut scores: Vec<_> = (0..self.levels() - 1).map(|level| (Some(level), self.score(level))).collect();
        if !self.room.is_plenty() {
            scores.push((None, self.garbage_score()));
        }
        scores.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let mut due = scores.into_iter().filter(|(_, score)| *score >= 1.0);
        let of_score = |level: Option<usize>, cursors: &mut Cursors| match level {
            Some(level) => self.pick_level(level, cursors),
            None => self.pick_garbage(),
        };
        due.find_map(|(level, _)| of_score(level, cursors))
            .or_else(|| self.pick_range_deletions())
            .or_else(|| self.pick_misplaced())
            .or_else(|| self.pick_overdue())
            .or_else(|| if self.room.is_plenty() { self.pick_garbage() } else { self.pick_short() })
            .or_else(|| self.pick_sparse(cursors))
            .or_else(|| self.pick_anything(cursors))
            .or_else(|| self.pick_neighbours())
    }

    /// The oldest tables of level 0: all, or as many as leave room for their outputs. One alone is tried in any case.
    fn pick_level0(&self) -> Option<Pick> {
        let tables = self.version.level(0);
        if tables.is_empty() || tables.iter().any(|table| self.busy.contains(&table.id)) {
            return None;
        }
        let halves = std::iter::successors(Some(tables.len()), |count| (*count > 1).then_some(count / 2));
        let mut picks = halves.map(|count| self.build(0, tables.iter().rev().take(count).rev().cloned().collect()));
        let share = if self.room.is_none() { 8 } else { 2 };
        let is_small = |pick: &Pick| pick.output_bytes(self.options) <= self.room.scratch_bytes / share;
        let first = picks.next()?;
        let pick = if self.room.is_plenty() || is_small(&first) { Some(first) } else { None };
        let pick = pick.or_else(|| picks.by_ref().find(is_small)).or_else(|| {
            let oldest = tables.last()?;
            Some(self.build(0, vec![Arc::clone(oldest)]))
        });
        pick.filter(|pick| self.is_free(pick))
    }

    fn pick_level(&self, level: usize, cursors: &mut Cursors) -> Option<Pick> {
        if level == 0 {
            return self.pick_level0();
        }
        let tables = self.version.level(level);
        let cursor = cursors.get(level);
        let order = self.version.identity().key_order;
        let behind = |table: &Arc<TableMetadata>| order.compare(&table.properties.smallest.user_key, cursor).is_gt();
        let first = tables.iter().position(behind).unwrap_or(0);
        let turns = tables.iter().skip(first).chain(tables.iter().take(first));
        let free = turns.filter(|table| !self.busy.contains(&table.id)).take(MOST_TRIES);
        let pick = free.map(|table| self.build(level, vec![Arc::clone(table)])).find(|pick| self.is_free(pick))?;
        if let Some((_, table)) = pick.inputs.first() {
            cursors.set(level, &table.properties.largest.user_key);
        }
        Some(pick)
    }

    /// A table with range deletions over something further down: what they hide is freed when they get
    /// there. Each gets a level further down, so this ends.
    fn pick_range_deletions(&self) -> Option<Pick> {
        let order = self.version.identity().key_order;
        let levels = self.version.levels().len();
        let is_above_some = |level: usize, table: &&Arc<TableMetadata>| {
            let hidden = range(order, std::iter::once(*table));
            let mut deeper = level + 1..levels;
            table.properties.range_deletions > 0 && deeper.any(|level| !self.overlapping(level, &hidden).is_empty())
        };
        (1..levels).find_map(|level| {
            let above = self.version.level(level).iter().filter(|table| is_above_some(level, table));
            let mut picks = above.map(|table| self.build(level, vec![Arc::clone(table)]));
            picks.find(|pick| self.is_free(pick))
        })
    }

    /// A table of a level in storage that has something in memory. Afterwards it has nothing there.
    fn pick_misplaced(&self) -> Option<Pick> {
        self.tiers.in_storage(self.version.levels().len()).find_map(|level| {
            let is_due =
                |table: &&Arc<TableMetadata>| !self.busy.contains(&table.id) && !is_stored(self.version, table);
            let table = self.version.level(level).iter().find(is_due)?;
            Some(self.rewrite_as(level, table, Clustering::None, BTreeSet::new()))
        })
    }

    /// A table of the last level that has too many runs, or too much outside of them.
    fn pick_overdue(&self) -> Option<Pick> {
        if self.options.compaction_style != CompactionStyle::Clustered || self.room.is_none() {
            return None;
        }
        let order = self.version.identity().key_order;
        (1..self.version.levels().len()).find_map(|level| {
            let comes_to_rest = self.comes_to_rest(level, 0);
            let is_due = |table: &&Arc<TableMetadata>| {
                let is_due = gatherings(table.properties.segments.iter()).len() > self.most_runs(table)
                    || self.room.is_plenty() && comes_to_rest && self.is_unclustered(&[table])
                    || !self.room.is_plenty() && self.has_dead_run(table);
                is_due && !self.busy.contains(&table.id) && self.is_last(level, &range(order, std::iter::once(*table)))
            };
            let table = self.version.level(level).iter().find(is_due)?;
            Some(self.rewrite(level, table, self.too_much(table, 0)))
        })
    }

    /// A compaction of a table of the last level into itself.
    fn rewrite(&self, level: usize, table: &Arc<TableMetadata>, vacated: BTreeSet<SegmentId>) -> Pick {
        let clustering = match self.options.compaction_style {
            CompactionStyle::Clustered if !self.room.is_plenty() || self.is_unclustered(&[table]) => {
                Clustering::Gather(Residents::Keep)
            }
            CompactionStyle::Clustered | CompactionStyle::Unclustered => Clustering::None,
            CompactionStyle::Classic => Clustering::Gather(Residents::Rewrite),
        };
        self.rewrite_as(level, table, clustering, vacated)
    }

    /// A compaction of a table into itself, below level 0.
    pub(crate) fn rewrite_as(
        &self,
        level: usize,
        table: &Arc<TableMetadata>,
        clustering: Clustering,
        vacated: BTreeSet<SegmentId>,
    ) -> Pick {
        let whole = range(self.version.identity().key_order, std::iter::once(table));
        let is_bottommost = self.is_last(level, &whole);
        let work = Work::Merge { is_bottommost, clustering, vacated };
        self.placed(vec![(level as u8, Arc::clone(table))], level, work)
    }

    /// A pick whose outputs go to the tier of their level. What goes to storage leaves memory.
    fn placed(&self, inputs: Vec<(u8, Arc<TableMetadata>)>, output: usize, mut work: Work) -> Pick {
        let tier = self.tier_of(output);
        if let Work::Merge { vacated, .. } = &mut work
            && tier == Tier::Storage
        {
            vacated.extend(inputs.iter().flat_map(|(_, table)| records_in_memory(self.version, table)));
        }
        let leaves_small = self.room.is_none() && tier == Tier::Memory;
        Pick { inputs, output_level: output as u8, tier, work, leaves_small, part: Part::default() }
    }

    /// A compaction of `tables` of `level` with what they overlap one level down.
    pub(crate) fn build(&self, level: usize, tables: Vec<Arc<TableMetadata>>) -> Pick {
        self.take_down(level, tables, |is_bottommost, output, tables, below| {
            let clustering = self.clustering(output, is_bottommost, tables, below);
            (clustering, self.to_vacate(is_bottommost, clustering, tables, below))
        })
    }

    /// The same with this clustering, without vacating any segment.
    pub(crate) fn build_as(&self, level: usize, tables: Vec<Arc<TableMetadata>>, clustering: Clustering) -> Pick {
        self.take_down(level, tables, |_, _, _, _| (clustering, BTreeSet::new()))
    }

    /// A compaction of tables with what they overlap one level down. `moves` says what is brought into key order and
    /// which segments are vacated, from: whether that is the last level of the range, the level, the tables, and what
    /// they overlap.
    fn take_down(
        &self,
        level: usize,
        tables: Vec<Arc<TableMetadata>>,
        moves: impl FnOnce(bool, usize, &[Arc<TableMetadata>], &[Arc<TableMetadata>]) -> (Clustering, BTreeSet<SegmentId>),
    ) -> Pick {
        let order = self.version.identity().key_order;
        let output = (level + 1).min(self.levels() - 1);
        let below = self.overlapping(output, &range(order, tables.iter()));
        // The tables below reach beyond those above, so their deletions may also hide what is deeper.
        let whole = range(order, tables.iter().chain(&below));
        let is_bottommost = self.is_last(output, &whole);
        let (clustering, vacated) = moves(is_bottommost, output, &tables, &below);
        // At the bottom range deletions have done their work: a merge drops them.
        let is_done = clustering == Clustering::None || tables.iter().all(|table| is_in_runs(table));
        let is_done = is_done && tables.iter().all(|table| table.properties.range_deletions == 0);
        let lies_there =
            self.tier_of(output) == Tier::Memory || tables.iter().all(|table| is_stored(self.version, table));
        let can_move = level > 0 && below.is_empty() && (is_done || !is_bottommost) && lies_there;
        let work = if can_move { Work::Move } else { Work::Merge { is_bottommost, clustering, vacated } };
        let with_level = |level: usize| move |table| (level as u8, table);
        let inputs =
            tables.into_iter().map(with_level(level)).chain(below.into_iter().map(with_level(output))).collect();
        self.placed(inputs, output, work)
    }

    /// As much of a pick as there is memory for, when memory is short: a table goes down in parts, each with the tables
    /// that it overlaps there. Not with operands, which would count twice meanwhile.
    fn in_part(&self, pick: Pick, cursors: &Cursors) -> Pick {
        let [(level, chosen), below @ ..] = &pick.inputs[..] else { return pick };
        let is_one = *level < pick.output_level && below.iter().all(|(level, _)| *level == pick.output_level);
        let has_operands = pick.inputs.iter().any(|(_, table)| table.properties.merges > 0);
        if self.room.is_plenty() || pick.tier == Tier::Storage || !is_one || has_operands {
            return pick;
        }
        let order = self.version.identity().key_order;
        let is_before = |(_, table): &(u8, Arc<TableMetadata>), key: &[u8]| !table.properties.ends_behind(key);
        let smallest = |(_, table): &(u8, Arc<TableMetadata>)| table.properties.smallest.user_key.clone();
        let lower = cursors.parts.get(&chosen.id);
        let behind = |key: &Vec<u8>| below.split_at(below.partition_point(|table| is_before(table, key))).1;
        // A part takes whole tables. If a table made meanwhile reaches across the part's start, the chosen table goes
        // down from its own start.
        let lower =
            lower.filter(|key| behind(key).first().is_none_or(|table| order.compare(&smallest(table), key).is_ge()));
        let left = lower.map_or(below, behind);
        let part = |count: usize| {
            let (down, upper) = (left.get(..count)?, left.get(count).map(smallest));
            // All versions of a key go down together.
            if let (Some(last), Some(upper)) = (down.last(), &upper)
                && !is_before(last, upper)
            {
                return None;
            }
            let inputs = std::iter::once((*level, Arc::clone(chosen))).chain(down.iter().cloned()).collect();
            let mut part = Pick { inputs, part: Part { lower: lower.cloned(), upper }, ..pick.clone() };
            if let Work::Merge { vacated, .. } = &mut part.work {
                let tables = || part.inputs.iter().map(|(_, table)| table);
                vacated.retain(|id| tables().any(|table| table.segments().any(|named| named == *id)));
            }
            Some(part)
        };
        // If none fits, the smallest part may still take less than its bound.
        let mut least = None;
        for part in (1..=left.len()).rev().filter_map(part) {
            if part.output_bytes(self.options) <= self.room.scratch_bytes {
                return part;
            }
            least = Some(part);
        }
        least.or_else(|| part(left.len())).unwrap_or(pick)
    }

    /// Where the tables of a level are stored.
    pub(crate) fn tier_of(&self, level: usize) -> Tier {
        self.tiers.of(level)
    }

    /// Which records are brought into key order when tables are merged into others of their output level.
    fn clustering(
        &self,
        output: usize,
        is_bottommost: bool,
        tables: &[Arc<TableMetadata>],
        residents: &[Arc<TableMetadata>],
    ) -> Clustering {
        let arriving = || tables.iter().map(|table| table.properties.record_bytes).sum();
        let is_due = || {
            let all: Vec<_> = tables.iter().chain(residents).collect();
            let is_late = self.comes_to_rest(output, arriving()) && self.is_unclustered(&all);
            !self.room.is_none() && (is_late || !self.room.is_plenty())
        };
        match self.options.compaction_style {
            CompactionStyle::Classic if !self.room.is_none() => Clustering::Gather(Residents::Rewrite),
            CompactionStyle::Clustered if is_bottommost && is_due() => Clustering::Gather(Residents::Keep),
            _ => Clustering::None,
        }
    }

    /// Whether tables stay in a level when this many more bytes come to it: it is then not about to be compacted.
    fn comes_to_rest(&self, level: usize, more_bytes: u64) -> bool {
        level + 1 >= self.levels() || self.level_bytes(level).saturating_add(more_bytes) <= self.target_bytes(level)
    }

    /// Whether too many of the tables' bytes are outside of runs. Large records do not count: they stay where they were
    /// written.
    fn is_unclustered(&self, tables: &[&Arc<TableMetadata>]) -> bool {
        let is_outside = |used: &&SegmentUse| !used.is_run && !self.is_of_large(used);
        let uses = tables.iter().flat_map(|table| &table.properties.segments);
        let outside: u64 = uses.filter(is_outside).map(|used| used.live_bytes).sum();
        let all: u64 = tables.iter().map(|table| table.properties.record_bytes).sum();
        let crossings = tables.iter().map(|table| u64::from((self.crossings)(table.id))).max().unwrap_or(0);
        outside > all / 100 * (self.options.unclustered_percent / (1 + crossings))
    }

    /// Whether the records are large ones: they stay where they were written.
    pub(crate) fn is_of_large(&self, used: &SegmentUse) -> bool {
        used.live_bytes >= used.entries.saturating_mul(u64::from(self.options.size_classes.large_from_bytes))
    }

    /// Which segments a merge of tables into others of their output level vacates.
    fn to_vacate(
        &self,
        is_bottommost: bool,
        clustering: Clustering,
        tables: &[Arc<TableMetadata>],
        residents: &[Arc<TableMetadata>],
    ) -> BTreeSet<SegmentId> {
        let mut vacated = BTreeSet::new();
        let is_plain = clustering == Clustering::None && self.room.is_none();
        if is_bottommost && !is_plain && clustering != Clustering::Gather(Residents::Rewrite) {
            let all = tables.iter().chain(residents);
            vacated.extend(all.flat_map(|table| self.past_limit(table, self.left_percent, None)));
            if self.options.compaction_style == CompactionStyle::Clustered {
                let more = usize::from(clustering != Clustering::None);
                vacated.extend(residents.iter().flat_map(|table| self.too_much(table, more)));
            }
        }
        vacated
    }

    /// Segments of a table of which more than `percent` is dead, and `always`.
    fn past_limit(&self, table: &TableMetadata, percent: u64, always: Option<SegmentId>) -> BTreeSet<SegmentId> {
        let is_past = |used: &&SegmentUse| {
            Some(used.id) == always || self.space.is_past(used.id, percent) || used.is_run && is_run_past(used, percent)
        };
        table.properties.segments.iter().filter(is_past).map(|used| used.id).collect()
    }

    fn has_dead_run(&self, table: &TableMetadata) -> bool {
        let past = self.past_limit(table, self.left_percent, None);
        table.properties.segments.iter().any(|used| used.is_run && past.contains(&used.id))
    }

    /// Runs that a table of the last level may have.
    fn most_runs(&self, table: &TableMetadata) -> usize {
        (self.options.last_level_runs / (1 + (self.crossings)(table.id) as usize)).max(1)
    }

    /// Runs that a table of the last level is to give up when `more` runs come to it.
    fn too_much(&self, table: &TableMetadata, more: usize) -> BTreeSet<SegmentId> {
        let mut vacated = self.past_limit(table, self.left_percent, None);
        let is_left = |used: &&SegmentUse| used.is_run && !vacated.contains(&used.id);
        let mut runs: Vec<_> = gatherings(table.properties.segments.iter().filter(is_left)).into_values().collect();
        let limit = self.most_runs(table);
        if runs.len() + more.max(usize::from(!vacated.is_empty())) > limit {
            runs.sort_unstable();
            let (mut sum, mut left) = (0, runs.len());
            for (taken, (live_bytes, pieces)) in runs.into_iter().enumerate() {
                // Together with the new run, this many may stay. One run alone would be gathered again and again.
                if left < limit && taken > 1 && live_bytes > sum {
                    break;
                }
                vacated.extend(pieces);
                sum += live_bytes;
                left -= 1;
            }
        }
        vacated
    }

    /// Whether nothing of the range is below what is written to `level`. Below a table of level 0 are older ones of
    /// level 0.
    fn is_last(&self, level: usize, whole: &Option<(&[u8], &[u8])>) -> bool {
        level > 0 && (level + 1..self.version.levels().len()).all(|level| self.overlapping(level, whole).is_empty())
    }

    /// The tables of a level that share keys with a range.
    fn overlapping(&self, level: usize, range: &Option<(&[u8], &[u8])>) -> Vec<Arc<TableMetadata>> {
        let order = self.version.identity().key_order;
        let Some((smallest, largest)) = *range else { return Vec::new() };
        let shares = |table: &&Arc<TableMetadata>| {
            order.compare(&table.properties.smallest.user_key, largest).is_le()
                && order.compare(&table.properties.largest.user_key, smallest).is_ge()
        };
        self.version.level(level).iter().filter(shares).cloned().collect()
    }
}

/// A table's runs, by the job that made them: their live bytes, and their pieces. What one job gathers is in key order
/// however many pieces of memory it took, so it counts as one run.
pub(crate) fn gatherings<'t>(segments: impl Iterator<Item = &'t SegmentUse>) -> BTreeMap<u64, (u64, Vec<SegmentId>)> {
    let mut runs = BTreeMap::<u64, (u64, Vec<SegmentId>)>::new();
    for used in segments.filter(|used| used.is_run) {
        let (live_bytes, pieces) = runs.entry(used.id.0 / NUMBERS_OF_A_JOB).or_default();
        *live_bytes += used.live_bytes;
        pieces.push(used.id);
    }
    runs
}

/// Whether all of a table's records are in runs.
fn is_in_runs(table: &TableMetadata) -> bool {
    table.properties.segments.iter().all(|used| used.is_run)
}

/// The smallest and the largest user key of tables.
fn range<'t>(order: KeyOrder, tables: impl Iterator<Item = &'t Arc<TableMetadata>>) -> Option<(&'t [u8], &'t [u8])> {
    let bounds = |table: &'t Arc<TableMetadata>| {
        (&table.properties.smallest.user_key[..], &table.properties.largest.user_key[..])
    };
    tables.map(bounds).reduce(|(smallest, largest), (first, last)| {
        let smallest = if order.compare(first, smallest).is_lt() { first } else { smallest };
        (smallest, if order.compare(last, largest).is_gt() { last } else { largest })
    })
}

/// Whether a table begins after the end of another one of its level. Where a range deletion continues in the next table,
/// both have the same key there.
pub(crate) fn begins_behind(order: KeyOrder, table: &TableMetadata, end: &OwnedKey) -> bool {
    match order.compare(&table.properties.smallest.user_key, &end.user_key) {
        Ordering::Less => false,
        Ordering::Equal => end.tag == Tag::MAX,
        Ordering::Greater => true,
    }
}

#[cfg(test)]
mod progress;
#[cfg(test)]
pub(crate) mod tests;
