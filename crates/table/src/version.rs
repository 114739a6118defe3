//! Versions: the tables and segments of a shard at a moment. Pure data; an edit makes the next one.
//!
//! Invariants, each a predicate of [`Version::check`]:
//!
//! 1. Level 0 is ordered newest first, and its tables' sequence numbers do not overlap.
//! 2. Every other level is ordered by key, and its tables do not overlap.
//! 3. Every segment that a table names is in the segment map, of the right kind and long enough.
//! 4. Every segment of the map is named by a table, or holds a part of the log.
//! 5. A table is in one level once; its number and its segments' are below the next ones.
//! 6. A table's keys are in the shard's bounds and in its order, its sequence numbers not above the last.
//! 7. A part of the log is in a segment of the map that holds a memtable's block.

use crate::entry::UNIT_BYTES;
use crate::error::VersionError;
use crate::segments::{SegmentInfo, SegmentKind};
use crate::version_edit::{LogPart, ShardIdentity, TableId, TableMetadata, VersionEdit};
use forebay_base::{KeyOrder, SegmentId, SequenceNumber, Tag};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of levels of a version.
pub const MAX_LEVELS: usize = 16;

/// A segment of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionSegment {
    /// What the segment is.
    pub info: Arc<SegmentInfo>,
    /// Number of tables of the version that name it, and one more if it holds a part of the log.
    pub references: u32,
}

/// The tables and segments of a shard at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    identity: Arc<ShardIdentity>,
    epoch: u64,
    next_table: u64,
    next_segment: u64,
    next_job: u64,
    last_sequence: SequenceNumber,
    durable_sequence: SequenceNumber,
    levels: Vec<Vec<Arc<TableMetadata>>>,
    segments: BTreeMap<SegmentId, VersionSegment>,
    first_key: Option<Arc<[u8]>>,
    /// The segments that hold parts of the log, with the last number that counts where that is known.
    log_parts: BTreeMap<SegmentId, Option<SequenceNumber>>,
    expired_before_ms: u64,
}

type Check = Result<(), VersionError>;
/// Level and number of a table.
type TablePlace = (u8, TableId);

impl Version {
    /// The version of a shard without tables. Numbers start at 1.
    #[must_use]
    pub fn empty(identity: ShardIdentity) -> Self {
        Self {
            identity: Arc::new(identity),
            epoch: 0,
            next_table: 1,
            next_segment: 1,
            next_job: 1,
            last_sequence: SequenceNumber::ZERO,
            durable_sequence: SequenceNumber::ZERO,
            levels: Vec::new(),
            segments: BTreeMap::new(),
            first_key: None,
            log_parts: BTreeMap::new(),
            expired_before_ms: 0,
        }
    }

    /// The version that results from a log of edits, checked.
    ///
    /// # Errors
    /// [`VersionError`]; the first edit names the shard.
    pub fn replay(edits: impl IntoIterator<Item = VersionEdit>) -> Result<Self, VersionError> {
        let mut edits = edits.into_iter();
        let missing = || VersionError::Misfit("the first edit does not name the shard".to_owned());
        let first = edits.next().ok_or_else(missing)?;
        let identity = first.identity.clone().ok_or_else(missing)?;
        let mut version = Self::empty(identity);
        version.change(&first)?;
        for edit in edits {
            version.change(&edit)?;
        }
        version.check()?;
        Ok(version)
    }

    /// The shard of the version.
    #[must_use]
    pub fn identity(&self) -> &ShardIdentity {
        &self.identity
    }

    /// The epoch of the owner that wrote the last edit.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Compactions have dropped what had expired before this time, in milliseconds since 1970; zero if none has.
    #[must_use]
    pub const fn expired_before_ms(&self) -> u64 {
        self.expired_before_ms
    }

    /// The next table's number.
    #[must_use]
    pub const fn next_table(&self) -> u64 {
        self.next_table
    }

    /// The next segment's number.
    #[must_use]
    pub const fn next_segment(&self) -> u64 {
        self.next_segment
    }

    /// The next job's number.
    #[must_use]
    pub const fn next_job(&self) -> u64 {
        self.next_job
    }

    /// The largest sequence number in the tables.
    #[must_use]
    pub const fn last_sequence(&self) -> SequenceNumber {
        self.last_sequence
    }

    /// The sequence number up to which everything is as durable as the shard promises.
    #[must_use]
    pub const fn durable_sequence(&self) -> SequenceNumber {
        self.durable_sequence
    }

    /// The first key that the shard owns since its bound moved; `None` when it never did.
    #[must_use]
    pub fn first_key(&self) -> Option<&[u8]> {
        self.first_key.as_deref()
    }

    /// The levels: level 0 newest first, the others in key order. Levels may be empty.
    #[must_use]
    pub fn levels(&self) -> &[Vec<Arc<TableMetadata>>] {
        &self.levels
    }

    /// The tables of a level; none if there is no such level.
    #[must_use]
    pub fn level(&self, level: usize) -> &[Arc<TableMetadata>] {
        self.levels.get(level).map_or(&[], Vec::as_slice)
    }

    /// The segment map.
    #[must_use]
    pub const fn segments(&self) -> &BTreeMap<SegmentId, VersionSegment> {
        &self.segments
    }

    /// The segment with this id.
    #[must_use]
    pub fn segment(&self, id: SegmentId) -> Option<&Arc<SegmentInfo>> {
        Some(&self.segments.get(&id)?.info)
    }

    /// The table of a level above 0 that may hold `user_key`.
    #[must_use]
    pub fn find(&self, level: usize, user_key: &[u8]) -> Option<&Arc<TableMetadata>> {
        let order = self.identity.key_order;
        let tables = self.level(level);
        let index = tables
            .partition_point(|table| order.compare(&table.properties.smallest.user_key, user_key) != Ordering::Greater);
        tables.get(index.checked_sub(1)?).filter(|table| table.properties.may_contain(user_key))
    }

    /// The tables of a level that may hold keys in `[lower, upper)`. An absent bound is no bound.
    pub fn overlapping<'a>(
        &'a self,
        level: usize,
        lower: Option<&'a [u8]>,
        upper: Option<&'a [u8]>,
    ) -> impl Iterator<Item = &'a Arc<TableMetadata>> {
        self.level(level).iter().filter(move |table| table.properties.overlaps(lower, upper))
    }

    /// The version after `edit`. This version does not change.
    ///
    /// # Errors
    /// [`VersionError`]. Invariants are checked in debug builds only; [`Version::check`] does so always.
    pub fn apply(&self, edit: &VersionEdit) -> Result<Self, VersionError> {
        let mut next = self.clone();
        next.change(edit)?;
        if cfg!(debug_assertions) {
            next.check()?;
        }
        Ok(next)
    }

    /// Adds to `edit` the removal of the segments that no table names after it.
    ///
    /// # Errors
    /// [`VersionError`].
    pub fn remove_unreferenced(&self, edit: &mut VersionEdit) -> Result<(), VersionError> {
        let mut next = self.clone();
        next.change(edit)?;
        let unreferenced = next.segments.iter().filter(|(_, segment)| segment.references == 0);
        edit.removed_segments.extend(unreferenced.map(|(id, _)| *id));
        Ok(())
    }

    /// The edit that leads from an empty version to this one.
    #[must_use]
    pub fn to_edit(&self) -> VersionEdit {
        let tables = self.levels.iter().enumerate();
        VersionEdit {
            identity: Some(self.identity.as_ref().clone()),
            epoch: Some(self.epoch),
            next_table: Some(self.next_table),
            next_segment: Some(self.next_segment),
            next_job: Some(self.next_job),
            last_sequence: Some(self.last_sequence),
            durable_sequence: Some(self.durable_sequence),
            added_segments: self.segments.iter().map(|(id, s)| (*id, s.info.as_ref().clone())).collect(),
            added_tables: tables
                .flat_map(|(level, tables)| tables.iter().map(move |table| (level as u8, table.as_ref().clone())))
                .collect(),
            first_key: self.first_key.as_deref().map(<[u8]>::to_vec),
            log_parts: self.log_parts().collect(),
            expired_before_ms: Some(self.expired_before_ms).filter(|time_ms| *time_ms > 0),
            ..VersionEdit::default()
        }
    }

    /// The edit that leads from this version to a later one of the same shard, whatever came in between.
    #[must_use]
    pub fn edit_to(&self, after: &Self) -> VersionEdit {
        let (before, now) = (self.tables_by_place(), after.tables_by_place());
        let of_segment = |(id, segment): (&SegmentId, &VersionSegment)| (*id, segment.info.as_ref().clone());
        let differs = |(id, segment): &(&SegmentId, &VersionSegment)| {
            self.segment(**id).is_some_and(|info| !Arc::ptr_eq(info, &segment.info) && *info != segment.info)
        };
        let is_new = |(id, _): &(&SegmentId, &VersionSegment)| !self.segments.contains_key(id);
        let log_part = |part: &LogPart| self.log_parts.get(&part.segment) != Some(&part.last);
        let is_gone = |id: &&TablePlace| !now.contains_key(*id);
        VersionEdit {
            identity: None,
            epoch: Some(after.epoch),
            next_table: Some(after.next_table),
            next_segment: Some(after.next_segment),
            next_job: Some(after.next_job),
            last_sequence: Some(after.last_sequence),
            durable_sequence: Some(after.durable_sequence),
            added_segments: after.segments.iter().filter(is_new).map(of_segment).collect(),
            moved_segments: after.segments.iter().filter(differs).map(of_segment).collect(),
            removed_segments: self.segments.keys().filter(|id| !after.segments.contains_key(id)).copied().collect(),
            added_tables: now
                .iter()
                .filter(|(place, _)| !before.contains_key(place))
                .map(|((level, _), table)| (*level, table.as_ref().clone()))
                .collect(),
            removed_tables: before.keys().filter(is_gone).copied().collect(),
            first_key: after.first_key.as_deref().filter(|key| self.first_key() != Some(*key)).map(<[u8]>::to_vec),
            log_parts: after.log_parts().filter(log_part).collect(),
            ended_log_parts: self.log_parts.keys().filter(|id| !after.log_parts.contains_key(id)).copied().collect(),
            expired_before_ms: Some(after.expired_before_ms).filter(|time_ms| *time_ms > self.expired_before_ms),
        }
    }

    fn tables_by_place(&self) -> BTreeMap<TablePlace, &Arc<TableMetadata>> {
        let levels = self.levels.iter().zip(0..);
        levels.flat_map(|(tables, level)| tables.iter().map(move |table| ((level, table.id), table))).collect()
    }

    /// The segments that hold parts of the log of writes, not in the order of their numbers.
    pub fn log_parts(&self) -> impl Iterator<Item = LogPart> {
        self.log_parts.iter().map(|(&segment, &last)| LogPart { segment, last })
    }

    fn change(&mut self, edit: &VersionEdit) -> Check {
        self.change_numbers(edit)?;
        // Compactions may be installed in another order than the one in which they took the time.
        self.expired_before_ms = self.expired_before_ms.max(edit.expired_before_ms.unwrap_or(0));
        if let Some(key) = &edit.first_key {
            self.first_key = Some(key.as_slice().into());
        }
        for (id, info) in &edit.added_segments {
            let segment = VersionSegment { info: Arc::new(info.clone()), references: 0 };
            require(self.segments.insert(*id, segment).is_none(), || format!("{id} is there already"))?;
        }
        for (id, info) in &edit.moved_segments {
            let segment = self.segments.get_mut(id).ok_or_else(|| misfit(format!("{id} is moved, but not there")))?;
            let same = segment.info.kind == info.kind
                && segment.info.length == info.length
                && segment.info.record_format == info.record_format;
            require(same, || format!("{id} is moved and changed"))?;
            segment.info = Arc::new(info.clone());
        }
        for (level, id) in &edit.removed_tables {
            self.remove_table(*level, *id)?;
        }
        let mut levels: BTreeMap<u8, Vec<Arc<TableMetadata>>> = BTreeMap::new();
        for (level, table) in &edit.added_tables {
            require(usize::from(*level) < MAX_LEVELS, || format!("there is no level {level}"))?;
            for id in table.segments() {
                let segment = self.segments.get_mut(&id);
                segment.ok_or_else(|| misfit(format!("{} names {id}, which is not there", table.id)))?.references += 1;
            }
            levels.entry(*level).or_default().push(Arc::new(table.clone()));
        }
        for (level, tables) in levels {
            self.add_tables(usize::from(level), tables);
        }
        self.change_log_parts(edit)?;
        for id in &edit.removed_segments {
            let segment = self.segments.remove(id).ok_or_else(|| misfit(format!("{id} is removed, but not there")))?;
            require(segment.references == 0, || format!("{id} is removed, but named {} times", segment.references))?;
        }
        Ok(())
    }

    fn change_log_parts(&mut self, edit: &VersionEdit) -> Check {
        for LogPart { segment: id, last } in &edit.log_parts {
            let segment = self.segments.get_mut(id);
            let segment = segment.ok_or_else(|| misfit(format!("{id} holds a part of the log, but is not there")))?;
            match self.log_parts.insert(*id, *last) {
                None => segment.references += 1,
                Some(before) => require(before.is_none() || before == *last, || {
                    format!("the part of the log in {id} ends at {before:?}, and then at {last:?}")
                })?,
            }
        }
        for id in &edit.ended_log_parts {
            require(self.log_parts.remove(id).is_some(), || format!("{id} holds no part of the log that could end"))?;
            if let Some(segment) = self.segments.get_mut(id) {
                segment.references -= 1;
            }
        }
        Ok(())
    }

    fn change_numbers(&mut self, edit: &VersionEdit) -> Check {
        if let Some(identity) = &edit.identity {
            require(*identity == *self.identity, || "it is of another shard".to_owned())?;
        }
        if let Some(epoch) = edit.epoch {
            if epoch < self.epoch {
                return Err(VersionError::Fenced { current: self.epoch, found: epoch });
            }
            self.epoch = epoch;
        }
        let numbers = [
            ("the next table", &mut self.next_table, edit.next_table),
            ("the next segment", &mut self.next_segment, edit.next_segment),
            ("the next job", &mut self.next_job, edit.next_job),
            ("the last sequence number", &mut self.last_sequence.0, edit.last_sequence.map(|s| s.0)),
            ("the durable sequence number", &mut self.durable_sequence.0, edit.durable_sequence.map(|s| s.0)),
        ];
        for (name, current, new) in numbers {
            let new = new.unwrap_or(*current);
            require(new >= *current, || format!("{name} goes back from {current} to {new}"))?;
            *current = new;
        }
        Ok(())
    }

    fn remove_table(&mut self, level: u8, id: TableId) -> Check {
        let missing = || misfit(format!("{id} is removed, but not in level {level}"));
        let tables = self.levels.get_mut(usize::from(level)).ok_or_else(missing)?;
        let index = tables.iter().position(|table| table.id == id).ok_or_else(missing)?;
        for segment in tables.remove(index).segments() {
            if let Some(segment) = self.segments.get_mut(&segment) {
                segment.references -= 1;
            }
        }
        Ok(())
    }

    fn add_tables(&mut self, level: usize, tables: Vec<Arc<TableMetadata>>) {
        if self.levels.len() <= level {
            self.levels.resize_with(level + 1, Vec::new);
        }
        let order = self.identity.key_order;
        let Some(all) = self.levels.get_mut(level) else { return };
        all.extend(tables);
        if level == 0 {
            all.sort_by_key(|table| Reverse((table.properties.largest_sequence, table.id)));
        } else {
            all.sort_by(|a, b| order.compare_internal(a.properties.smallest.as_key(), b.properties.smallest.as_key()));
        }
    }

    /// Checks the invariants of the module's list.
    ///
    /// # Errors
    /// [`VersionError::Broken`] for the first that does not hold.
    pub fn check(&self) -> Check {
        self.check_level_zero()?;
        self.check_levels()?;
        self.check_segments()?;
        self.check_numbers()?;
        self.check_tables()
    }

    fn check_level_zero(&self) -> Check {
        for (newer, older) in pairs(self.level(0)) {
            holds(1, newer.properties.smallest_sequence > older.properties.largest_sequence, || {
                format!("{} is not newer than {}", newer.id, older.id)
            })?;
        }
        Ok(())
    }

    fn check_levels(&self) -> Check {
        for tables in self.levels.iter().skip(1) {
            for (left, right) in pairs(tables) {
                holds(2, self.is_before(left, right), || format!("{} and {} overlap", left.id, right.id))?;
            }
        }
        Ok(())
    }

    fn is_before(&self, left: &TableMetadata, right: &TableMetadata) -> bool {
        let (largest, smallest) = (&left.properties.largest, &right.properties.smallest);
        match self.identity.key_order.compare(&largest.user_key, &smallest.user_key) {
            Ordering::Less => true,
            Ordering::Equal => largest.tag == Tag::MAX,
            Ordering::Greater => false,
        }
    }

    fn check_segments(&self) -> Check {
        let mut references: BTreeMap<SegmentId, u32> = BTreeMap::new();
        for table in self.levels.iter().flatten() {
            for id in table.segments() {
                *references.entry(id).or_default() += 1;
            }
            self.check_placed(table.image.segment, table.image.length, true, table.id)?;
            for segment in &table.properties.segments {
                let end = (segment.first_unit + segment.span_units).saturating_mul(UNIT_BYTES);
                self.check_placed(segment.id, end, false, table.id)?;
            }
        }
        for id in self.log_parts.keys() {
            *references.entry(*id).or_default() += 1;
            let is_block = self.segment(*id).is_some_and(|info| info.kind == SegmentKind::MemtableBlock);
            holds(7, is_block, || format!("{id} holds a part of the log and is no memtable's block"))?;
        }
        for (id, segment) in &self.segments {
            let counted = references.get(id).copied().unwrap_or(0);
            holds(4, counted > 0, || format!("no table names {id}"))?;
            holds(4, counted == segment.references, || format!("{id} is named {counted} times"))?;
        }
        Ok(())
    }

    fn check_placed(&self, id: SegmentId, end: u64, is_image: bool, table: TableId) -> Check {
        let segment = self.segment(id);
        let fits = segment.is_some_and(|info| info.length >= end && is_image == (info.kind == SegmentKind::TableImage));
        holds(3, fits, || format!("{table} names {end} bytes of {id}, which is {segment:?}"))
    }

    fn check_numbers(&self) -> Check {
        let mut ids = BTreeSet::new();
        for table in self.levels.iter().flatten() {
            holds(5, ids.insert(table.id), || format!("{} is there twice", table.id))?;
            holds(5, table.id.0 < self.next_table, || format!("{} is not below {}", table.id, self.next_table))?;
        }
        let last = self.segments.last_key_value().map(|(id, _)| *id);
        let below = last.is_none_or(|id| id.0 < self.next_segment);
        holds(5, below, || format!("{last:?} is not below {}", self.next_segment))
    }

    fn check_tables(&self) -> Check {
        let order = self.identity.key_order;
        for table in self.levels.iter().flatten() {
            let properties = &table.properties;
            holds(6, properties.key_order == order, || format!("{} has another key order", table.id))?;
            holds(6, is_within(order, table, &self.identity), || format!("{} leaves the shard's bounds", table.id))?;
            holds(6, properties.largest_sequence <= self.last_sequence, || {
                format!("{} is newer than the last sequence number", table.id)
            })?;
        }
        Ok(())
    }
}

fn is_within(order: KeyOrder, table: &TableMetadata, shard: &ShardIdentity) -> bool {
    let properties = &table.properties;
    let starts = |lower: &Vec<u8>| order.compare(lower, &properties.smallest.user_key) != Ordering::Greater;
    let ends = |upper: &Vec<u8>| match order.compare(&properties.largest.user_key, upper) {
        Ordering::Less => true,
        Ordering::Equal => properties.largest.tag == Tag::MAX,
        Ordering::Greater => false,
    };
    shard.lower.as_ref().is_none_or(starts) && shard.upper.as_ref().is_none_or(ends)
}

fn pairs(tables: &[Arc<TableMetadata>]) -> impl Iterator<Item = (&TableMetadata, &TableMetadata)> {
    tables.iter().zip(tables.iter().skip(1)).map(|(a, b)| (a.as_ref(), b.as_ref()))
}

fn holds(number: u8, condition: bool, detail: impl FnOnce() -> String) -> Check {
    if condition { Ok(()) } else { Err(VersionError::Broken { number, detail: detail() }) }
}

fn require(condition: bool, detail: impl FnOnce() -> String) -> Check {
    if condition { Ok(()) } else { Err(misfit(detail())) }
}

fn misfit(detail: String) -> VersionError {
    VersionError::Misfit(detail)
}
