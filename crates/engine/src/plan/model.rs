//! A tree for tests of planning. It knows its records by key, and compactions have their real effects on it, without
//! the bytes. So tests know what lives, and need not draw at random what a compaction finds dead.

use crate::plan::picker::{Pick, Work};
use crate::plan::room::Room;
use crate::plan::tiers::{Tier, is_stored};
use crate::terms::Options;
use crate::terms::options::CompactionStyle;
use crate::terms::segment_numbers::NUMBERS_OF_A_JOB;
use forebay_base::{KeyOrder, SegmentId, SequenceNumber, Tag};
use forebay_env::{HashMap, Random};
use forebay_table::job::{Clustering, LEAST_PIECE_BYTES, Residents, SizeClasses};
use forebay_table::{
    Creation, ImageAddress, OwnedKey, Placement, SegmentInfo, SegmentKind, SegmentUse, TableId, TableMetadata,
    TableProperties, Version, VersionEdit,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Bytes of a small, a medium and a large record.
pub(crate) const SIZES: [u64; 3] = [48, 200, 2000];
/// Bytes of an index: for each entry, and at least.
const INDEX_BYTES: [u64; 2] = [24, 100];
const EXTENTS: u64 = 8;
/// Keys of a range deletion, at most.
const RANGE_KEYS: u64 = 20;

/// A record, and where it is stored.
#[derive(Debug, Clone, Copy)]
struct Record {
    key: u64,
    sequence: u64,
    /// Which of the sizes it has.
    size: usize,
    is_deletion: bool,
    segment: SegmentId,
    offset: u64,
}

/// A deletion of keys, both included.
#[derive(Debug, Clone, Copy)]
struct RangeDeletion {
    start: u64,
    end: u64,
    sequence: u64,
}

/// The contents of a table, by key.
#[derive(Debug, Clone, Default)]
struct Contents {
    records: Vec<Record>,
    ranges: Vec<RangeDeletion>,
}

#[derive(Debug, Clone)]
pub(crate) struct Tree {
    pub(crate) random: Random,
    pub(crate) options: Options,
    pub(crate) version: Version,
    pub(crate) room: Room,
    /// How many keys there are.
    pub(crate) keys: u64,
    /// How many of a hundred records delete.
    pub(crate) deletions_percent: u64,
    contents: HashMap<TableId, Contents>,
    /// Bytes of each key's newest record, of those that have a value.
    newest: BTreeMap<u64, u64>,
    /// Where the next segments are placed.
    tier: Tier,
    next: u64,
    sequence: u64,
}

impl Record {
    const fn bytes(&self) -> u64 {
        SIZES[self.size]
    }
}

impl RangeDeletion {
    const fn hides(&self, record: &Record) -> bool {
        self.start <= record.key && record.key <= self.end && record.sequence < self.sequence
    }

    /// The part of the deletion between two keys, both included.
    fn clipped(&self, from: u64, to: u64) -> Option<Self> {
        let part = Self { start: self.start.max(from), end: self.end.min(to), ..*self };
        (part.start <= part.end).then_some(part)
    }
}

/// The key that a table's bound stands for.
fn key_of(bound: &[u8]) -> u64 {
    String::from_utf8_lossy(bound).parse().unwrap()
}

impl Contents {
    fn bytes(&self) -> u64 {
        self.records.iter().map(Record::bytes).sum()
    }

    /// The contents from one key on, before another.
    fn clipped(&self, from: u64, end: u64) -> Self {
        let records = self.records.iter().filter(|record| (from..end).contains(&record.key)).copied().collect();
        let ranges = self.ranges.iter().filter_map(|range| range.clipped(from, end.saturating_sub(1))).collect();
        Self { records, ranges }
    }

    /// The newest record of each key, without hidden ones.
    fn sorted(mut self) -> Self {
        self.records.sort_unstable_by_key(|record| (record.key, Reverse(record.sequence)));
        self.records.dedup_by_key(|record| record.key);
        self.records.retain(|record| !self.ranges.iter().any(|range| range.hides(record)));
        self
    }

    fn properties(&self, creation: Creation, kind_of: impl Fn(SegmentId) -> SegmentKind) -> TableProperties {
        let records = || self.records.iter();
        let bound =
            |key: u64| OwnedKey { user_key: format!("{key:06}").into_bytes(), tag: Tag::seek(SequenceNumber(1)) };
        let (ends, sequences): (Vec<_>, Vec<_>) = records()
            .map(|record| ([record.key; 2], record.sequence))
            .chain(self.ranges.iter().map(|range| ([range.start, range.end], range.sequence)))
            .unzip();
        let mut uses = BTreeMap::<SegmentId, (SegmentUse, u64, u64)>::new();
        for record in records() {
            let used = SegmentUse::new(record.segment, kind_of(record.segment) == SegmentKind::Run);
            let (used, start, end) = uses.entry(record.segment).or_insert((used, u64::MAX, 0));
            used.entries += 1;
            used.live_bytes += record.bytes();
            (*start, *end) = ((*start).min(record.offset), (*end).max(record.offset + record.bytes()));
        }
        let spanned = |(used, start, end): (SegmentUse, u64, u64)| SegmentUse {
            first_unit: start / 8,
            span_units: (end - start) / 8,
            ..used
        };
        let deletions = records().filter(|record| record.is_deletion).count() as u64;
        TableProperties {
            key_order: KeyOrder::Bytewise,
            creation,
            smallest: bound(ends.iter().map(|[start, _]| *start).min().unwrap()),
            largest: bound(ends.iter().map(|[_, end]| *end).max().unwrap()),
            smallest_sequence: SequenceNumber(*sequences.iter().min().unwrap()),
            largest_sequence: SequenceNumber(*sequences.iter().max().unwrap()),
            deletions,
            puts: self.records.len() as u64 - deletions,
            range_deletions: self.ranges.len() as u64,
            merges: 0,
            key_bytes: 1,
            value_bytes: 1,
            record_bytes: self.bytes(),
            oldest_expiry_ms: None,
            shadowed: 0,
            segments: uses.into_values().map(spanned).collect(),
        }
    }
}

impl Tree {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::seeded(seed);
        let mut of = |choices: [u64; 3]| choices[random.below(3) as usize];
        let options = Options {
            write_buffer_bytes: of([4096, 16 << 10, 16 << 10]) as usize,
            target_table_bytes: of([8 << 10, 16 << 10, 32 << 10]),
            level0_compaction_trigger: of([1, 2, 4]) as usize,
            level1_bytes: of([20 << 10, 64 << 10, 64 << 10]),
            level_size_multiplier: of([2, 4, 10]),
            levels: of([2, 3, 7]) as usize,
            last_level_runs: of([1, 2, 8]) as usize,
            unclustered_percent: of([0, 25, 100]),
            dead_percent: of([5, 25, 100]),
            storage_from_level: [None, Some(1), Some(3)][of([0, 1, 2]) as usize],
            compaction_style: [CompactionStyle::Clustered, CompactionStyle::Unclustered, CompactionStyle::Classic]
                [of([0, 0, 1]) as usize + usize::from(seed.is_multiple_of(8))],
            ..Options::default()
        };
        let identity = crate::tree::version::identity(&options, 1, 0);
        Self {
            random,
            options,
            version: Version::empty(identity),
            room: Room::default(),
            keys: 1000,
            deletions_percent: 5,
            contents: HashMap::default(),
            newest: BTreeMap::new(),
            tier: Tier::Memory,
            next: 1,
            sequence: 1,
        }
    }

    /// Opens the database with another number of levels: more, or fewer than have tables.
    pub(crate) fn reopen(&mut self) {
        self.options.levels = 2 + self.random.below(6) as usize;
    }

    /// Bytes of the records that a reader sees, and of their index entries.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.newest.values().map(|bytes| bytes + INDEX_BYTES[0]).sum()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// A new segment.
    fn segment(&mut self, number: u64, kind: SegmentKind, length: u64, edit: &mut VersionEdit) -> SegmentId {
        let id = SegmentId(number);
        let placement = match self.tier {
            Tier::Storage => Placement::Storage { object: number.to_string() },
            Tier::Memory => {
                Placement::Memory { node: 1, incarnation: 1, extent: self.random.below(EXTENTS) as u32, offset: 0 }
            }
        };
        edit.added_segments.push((id, SegmentInfo::new(kind, length, vec![placement])));
        id
    }

    fn add(&mut self, level: u8, contents: Contents, edit: &mut VersionEdit) {
        let id = self.number();
        let entries = contents.records.len() + contents.ranges.len();
        let length = INDEX_BYTES[1] + INDEX_BYTES[0] * entries as u64;
        let number = self.number();
        let segment = self.segment(number, SegmentKind::TableImage, length, edit);
        let image = ImageAddress { segment, length, tail_offset: 10 };
        let added: HashMap<_, _> = edit.added_segments.iter().map(|(id, info)| (*id, info.kind)).collect();
        let kind_of = |id| added.get(&id).copied().unwrap_or_else(|| self.version.segment(id).unwrap().kind);
        let properties = contents.properties(Creation { job: id, attempt: 1, level }, kind_of);
        self.contents.insert(TableId(id), contents);
        edit.added_tables.push((level, TableMetadata { id: TableId(id), image, properties: properties.into() }));
    }

    fn apply(&mut self, mut edit: VersionEdit) {
        let next = self.next + 1;
        edit.next_segment = Some(next * NUMBERS_OF_A_JOB);
        (edit.next_table, edit.last_sequence) = (Some(next), Some(SequenceNumber(self.sequence)));
        self.version.remove_unreferenced(&mut edit).unwrap();
        self.version = self.version.apply(&edit).unwrap();
        for (_, table) in &edit.removed_tables {
            if !edit.added_tables.iter().any(|(_, added)| added.id == *table) {
                self.contents.remove(table);
            }
        }
    }

    /// Flushes a memtable.
    pub(crate) fn flush(&mut self) {
        let most = if self.random.one_in(1, 2) { [100, 100, 0] } else { [40, 40, 10] };
        self.flush_at_most(most);
    }

    /// Flushes a memtable with at most this many records of each size, and one more, with keys of some range.
    pub(crate) fn flush_at_most(&mut self, most: [u64; 3]) {
        let mut sizes: Vec<_> = (0..SIZES.len())
            .flat_map(|size| std::iter::repeat_n(size, self.random.below(most[size] + 1) as usize))
            .chain([1])
            .collect();
        self.random.shuffle(&mut sizes);
        let (a, b) = (self.random.below(self.keys), self.random.below(self.keys));
        let (first, last) = (a.min(b), a.max(b));
        let mut edit = VersionEdit::default();
        let (number, mut contents, mut offset) = (self.number(), Contents::default(), 0);
        for size in sizes {
            let is_deletion = self.random.below(100) < self.deletions_percent;
            let size = if is_deletion { 0 } else { size };
            let (key, sequence) = (first + self.random.below(last - first + 1), self.sequence());
            let record = Record { key, sequence, size, is_deletion, segment: SegmentId(number), offset };
            offset += record.bytes();
            contents.records.push(record);
            if is_deletion {
                self.newest.remove(&key);
            } else {
                self.newest.insert(key, record.bytes());
            }
        }
        if self.random.one_in(self.deletions_percent, 100) {
            let start = self.random.below(self.keys);
            let range = RangeDeletion { start, end: start + self.random.below(RANGE_KEYS), sequence: self.sequence() };
            contents.ranges.push(range);
            self.newest.retain(|key, _| !(range.start..=range.end).contains(key));
        }
        self.segment(number, SegmentKind::MemtableBlock, offset, &mut edit);
        self.add(0, contents.sorted(), &mut edit);
        self.apply(edit);
    }

    /// Does a compaction.
    pub(crate) fn compact(&mut self, pick: &Pick) {
        self.tier = pick.tier;
        let first = self.next;
        let goes_up = |(level, _): &(u8, _)| *level > pick.output_level;
        assert!(!pick.inputs.iter().any(goes_up), "newer tables may lie above it: {pick:?}");
        let mut edit = VersionEdit { removed_tables: pick.replaced().collect(), ..VersionEdit::default() };
        match &pick.work {
            Work::Drop => {}
            Work::Move => {
                let moved = pick.inputs.iter().map(|(_, table)| (pick.output_level, table.as_ref().clone()));
                edit.added_tables = moved.collect();
            }
            Work::Merge { is_bottommost, .. } => {
                assert!(pick.output_level > 0 || !is_bottommost, "older tables of level 0 lie under it: {pick:?}");
                let merged = self.merged(pick, *is_bottommost);
                let outputs = if pick.output_level > 0 { self.cut(merged) } else { vec![merged] };
                for output in outputs {
                    if !output.records.is_empty() || !output.ranges.is_empty() {
                        let gathered = self.gathered(output, pick, &mut edit);
                        self.add(pick.output_level, gathered, &mut edit);
                    }
                }
            }
        }
        self.apply(edit);
        self.tier = Tier::Memory;
        if pick.tier == Tier::Storage {
            let level = self.version.level(usize::from(pick.output_level));
            let made = level.iter().filter(|table| pick.inputs.iter().all(|(_, input)| input.id != table.id));
            assert!(made.filter(|table| table.id.0 >= first).all(|table| is_stored(&self.version, table)), "{pick:?}");
        }
    }

    /// All that the inputs have and that goes down, less what is dead.
    fn merged(&self, pick: &Pick, is_bottommost: bool) -> Contents {
        let key = |bound: &Option<Vec<u8>>, none| bound.as_deref().map_or(none, key_of);
        let (from, end) = (key(&pick.part.lower, 0), key(&pick.part.upper, u64::MAX));
        let inputs = || pick.inputs.iter().map(|(_, table)| self.contents[&table.id].clipped(from, end));
        let records = inputs().flat_map(|contents| contents.records).collect();
        let ranges = inputs().flat_map(|contents| contents.ranges).collect();
        let mut merged = Contents { records, ranges }.sorted();
        if is_bottommost {
            merged.records.retain(|record| !record.is_deletion);
            merged.ranges.clear();
        }
        merged
    }

    /// Cuts contents in halves until they have the wanted size.
    fn cut(&self, contents: Contents) -> Vec<Contents> {
        let middle = contents.records.len() / 2;
        if contents.bytes() <= self.options.target_table_bytes * 3 / 2 || middle == 0 {
            return vec![contents];
        }
        let (first, second) = contents.records.split_at(middle);
        let last = first[middle - 1].key;
        let part = |records: &[Record], from, to| Contents {
            records: records.to_vec(),
            ranges: contents.ranges.iter().filter_map(|range| range.clipped(from, to)).collect(),
        };
        let halves = [part(first, 0, last), part(second, last + 1, u64::MAX)];
        halves.into_iter().flat_map(|half| self.cut(half)).collect()
    }

    /// Returns the contents with what is gathered in runs.
    fn gathered(&mut self, mut contents: Contents, pick: &Pick, edit: &mut VersionEdit) -> Contents {
        let Work::Merge { clustering, vacated, .. } = &pick.work else { return contents };
        let has_classes = pick.size_classes(&self.options) != SizeClasses::NONE;
        let leaves = |record: &&mut Record| {
            let all = *clustering == Clustering::Gather(Residents::Rewrite) || vacated.contains(&record.segment);
            let is_run = || self.version.segment(record.segment).unwrap().kind == SegmentKind::Run;
            let newcomers = *clustering == Clustering::Gather(Residents::Keep) && !is_run();
            let small = has_classes && (*clustering == Clustering::None || newcomers);
            [all || small || newcomers, all || newcomers, all || newcomers && !has_classes][record.size]
        };
        let mut run: Vec<_> = contents.records.iter_mut().filter(leaves).collect();
        let first = self.number() * NUMBERS_OF_A_JOB;
        let mut left = run.as_mut_slice();
        for number in first.. {
            if left.is_empty() {
                break;
            }
            // As much as there is memory for in one piece: all of it, or less when room is short.
            let is_short = !self.room.is_plenty() && self.random.one_in(1, 2);
            let longest = if is_short { LEAST_PIECE_BYTES } else { u64::MAX };
            let (mut length, mut count) = (0, 0);
            while let Some(record) = left.get_mut(count).filter(|record| length + record.bytes() <= longest) {
                (record.segment, record.offset) = (SegmentId(number), length);
                length += record.bytes();
                count += 1;
            }
            self.segment(number, SegmentKind::Run, length, edit);
            left = &mut left[count..];
        }
        contents
    }
}
