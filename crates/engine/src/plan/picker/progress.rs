//! Picking comes to an end: what makes a compaction due is gone once that compaction is done.
//!
//! The picker meets random trees; of a compaction only what picks look at is made. Without room some find none.

use super::*;
use forebay_base::{SequenceNumber, Tag};
use forebay_env::{HashMap, Random};
use forebay_table::job::LEAST_PIECE_BYTES;
use forebay_table::{Creation, ImageAddress, OwnedKey, SegmentKind, TableProperties, VersionEdit};

const SEEDS: u64 = 30;
const FLUSHES: u64 = 60;
/// Far more than any tree of these sizes needs.
const MOST_PICKS: usize = 1500;
const KEYS: u64 = 1000;
/// Bytes of a small, a medium and a large record.
const SIZES: [u64; 3] = [48, 200, 2000];
const EXTENTS: u64 = 8;

/// Records of a table in one segment: how many small, medium and large ones.
#[derive(Debug, Clone)]
struct Part {
    id: SegmentId,
    is_run: bool,
    span_bytes: u64,
    entries: [u64; 3],
}

impl Part {
    fn count(&self) -> u64 {
        self.entries.iter().sum()
    }

    fn bytes(&self) -> u64 {
        self.entries.iter().zip(SIZES).map(|(entries, bytes)| entries * bytes).sum()
    }

    fn segment_use(&self) -> SegmentUse {
        let (entries, live_bytes, span_units) = (self.count(), self.bytes(), self.span_bytes / 8);
        SegmentUse { entries, live_bytes, span_units, ..SegmentUse::new(self.id, self.is_run) }
    }
}

/// A table that is to be: its bounds, and where its records lie.
#[derive(Debug, Clone)]
struct Draft {
    smallest: u64,
    largest: u64,
    sequences: (u64, u64),
    range_deletions: u64,
    parts: Vec<Part>,
}

pub(crate) struct Tree {
    pub(crate) random: Random,
    pub(crate) options: Options,
    pub(crate) version: Version,
    cursors: Cursors,
    crossings: HashMap<TableId, u32>,
    parts: HashMap<TableId, Vec<Part>>,
    pub(crate) room: Room,
    /// Where the segments that are made next lie.
    tier: Tier,
    /// Most of what a merge of several tables finds to be dead.
    pub(crate) dying_percent: u64,
    /// Tables whose compaction found no room.
    too_large: BTreeSet<TableId>,
    next: u64,
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
            cursors: Cursors::default(),
            crossings: HashMap::default(),
            parts: HashMap::default(),
            room: Room::default(),
            tier: Tier::Memory,
            dying_percent: 20,
            too_large: BTreeSet::new(),
            next: 1,
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A new segment.
    fn segment(&mut self, kind: SegmentKind, length: u64, edit: &mut VersionEdit) -> SegmentId {
        let number = self.number();
        self.segment_with(number, kind, length, edit)
    }

    fn segment_with(&mut self, number: u64, kind: SegmentKind, length: u64, edit: &mut VersionEdit) -> SegmentId {
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

    fn add(&mut self, level: u8, draft: Draft, edit: &mut VersionEdit) {
        let id = self.number();
        let length = 100 + 24 * draft.parts.iter().map(Part::count).sum::<u64>();
        let segment = self.segment(SegmentKind::TableImage, length, edit);
        let image = ImageAddress { segment, length, tail_offset: 10 };
        let bound =
            |key: u64| OwnedKey { user_key: format!("{key:03}").into_bytes(), tag: Tag::seek(SequenceNumber(1)) };
        let properties = TableProperties {
            key_order: KeyOrder::Bytewise,
            creation: Creation { job: id, attempt: 1, level },
            smallest: bound(draft.smallest),
            largest: bound(draft.largest),
            smallest_sequence: SequenceNumber(draft.sequences.0),
            largest_sequence: SequenceNumber(draft.sequences.1),
            deletions: 0,
            puts: draft.parts.iter().map(Part::count).sum(),
            range_deletions: draft.range_deletions,
            merges: 0,
            key_bytes: 1,
            value_bytes: 1,
            record_bytes: draft.parts.iter().map(Part::bytes).sum(),
            oldest_expiry_ms: None,
            segments: draft.parts.iter().map(Part::segment_use).collect(),
        };
        self.parts.insert(TableId(id), draft.parts);
        edit.added_tables.push((level, TableMetadata { id: TableId(id), image, properties: properties.into() }));
    }

    fn apply(&mut self, mut edit: VersionEdit) {
        let next = self.next + 1;
        edit.next_segment = Some(next * NUMBERS_OF_A_JOB);
        (edit.next_table, edit.last_sequence) = (Some(next), Some(SequenceNumber(next)));
        self.version.remove_unreferenced(&mut edit).unwrap();
        self.version = self.version.apply(&edit).unwrap();
    }

    fn flush(&mut self) {
        let most = if self.random.one_in(1, 2) { [100, 100, 0] } else { [40, 40, 10] };
        self.flush_at_most(most);
    }

    /// Flushes at most so many records of each size, and one more.
    pub(crate) fn flush_at_most(&mut self, most: [u64; 3]) {
        let mut edit = VersionEdit::default();
        let entries = most.map(|most| self.random.below(most + 1));
        let mut part = Part { id: SegmentId(0), is_run: false, span_bytes: 0, entries };
        part.entries[1] += 1;
        part.span_bytes = part.bytes();
        let length = part.span_bytes + 8 * self.random.below(40);
        part.id = self.segment(SegmentKind::MemtableBlock, length, &mut edit);
        let (a, b) = (self.random.below(KEYS), self.random.below(KEYS));
        let range_deletions = u64::from(self.random.one_in(1, 8));
        let sequence = self.number();
        let sequences = (sequence, sequence);
        let draft = Draft { smallest: a.min(b), largest: a.max(b), sequences, range_deletions, parts: vec![part] };
        self.add(0, draft, &mut edit);
        self.apply(edit);
        self.cursors.begin_moves();
    }

    fn pick(&mut self) -> Option<Pick> {
        let crossings = |table| self.crossings.get(&table).copied().unwrap_or(0);
        Picker::new(&self.version, &self.options, &self.too_large, &crossings, self.room).pick(&mut self.cursors)
    }

    pub(crate) fn compact(&mut self, pick: &Pick) {
        self.tier = pick.tier;
        let first = self.next;
        let mut edit = VersionEdit {
            removed_tables: pick.inputs.iter().map(|(level, table)| (*level, table.id)).collect(),
            ..VersionEdit::default()
        };
        match &pick.work {
            Work::Move => {
                let moved = pick.inputs.iter().map(|(_, table)| (pick.output_level, table.as_ref().clone()));
                edit.added_tables = moved.collect();
            }
            Work::Merge { is_bottommost, .. } => {
                let draft = self.merged(pick, *is_bottommost);
                let drafts = if pick.output_level > 0 { self.cut(draft) } else { vec![draft] };
                for draft in drafts {
                    let draft = self.gathered(draft, pick, &mut edit);
                    if !draft.parts.is_empty() {
                        self.add(pick.output_level, draft, &mut edit);
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

    /// All that the inputs have, less what is found to be dead.
    fn merged(&mut self, pick: &Pick, is_bottommost: bool) -> Draft {
        let key = |key: &OwnedKey| std::str::from_utf8(&key.user_key).unwrap().parse::<u64>().unwrap();
        let tables = || pick.inputs.iter().map(|(_, table)| &table.properties);
        let mut parts = BTreeMap::<SegmentId, Part>::new();
        for (_, table) in &pick.inputs {
            for part in &self.parts[&table.id] {
                let sum = parts.entry(part.id).or_insert(Part { entries: [0; 3], ..part.clone() });
                sum.span_bytes = sum.span_bytes.max(part.span_bytes);
                for (sum, entries) in sum.entries.iter_mut().zip(part.entries) {
                    let dying =
                        if pick.inputs.len() > 1 { entries * self.random.below(self.dying_percent) / 100 } else { 0 };
                    *sum += entries - dying;
                }
            }
        }
        Draft {
            smallest: tables().map(|properties| key(&properties.smallest)).min().unwrap(),
            largest: tables().map(|properties| key(&properties.largest)).max().unwrap(),
            sequences: (
                tables().map(|properties| properties.smallest_sequence.0).min().unwrap(),
                tables().map(|properties| properties.largest_sequence.0).max().unwrap(),
            ),
            range_deletions: if is_bottommost {
                0
            } else {
                tables().map(|properties| properties.range_deletions).max().unwrap_or(0)
            },
            parts: parts.into_values().filter(|part| part.count() > 0).collect(),
        }
    }

    /// In halves until they have the wanted size.
    fn cut(&self, draft: Draft) -> Vec<Draft> {
        let bytes: u64 = draft.parts.iter().map(Part::bytes).sum();
        if bytes <= self.options.target_table_bytes * 3 / 2 || draft.smallest == draft.largest {
            return vec![draft];
        }
        let middle = u64::midpoint(draft.smallest, draft.largest);
        let (mut first, mut second) = (draft.clone(), draft);
        (first.largest, second.smallest) = (middle, middle + 1);
        for (first, second) in first.parts.iter_mut().zip(&mut second.parts) {
            first.entries = first.entries.map(|entries| entries / 2);
            second.entries = second.entries.map(|entries| entries - entries / 2);
        }
        first.parts.retain(|part| part.count() > 0);
        [first, second].into_iter().flat_map(|part| self.cut(part)).collect()
    }

    /// With a run of what is gathered.
    fn gathered(&mut self, mut draft: Draft, pick: &Pick, edit: &mut VersionEdit) -> Draft {
        let Work::Merge { clustering, vacated, .. } = &pick.work else { return draft };
        let has_classes = pick.size_classes(&self.options) != SizeClasses::NONE;
        let mut run = Part { id: SegmentId(0), is_run: true, span_bytes: 0, entries: [0; 3] };
        for part in &mut draft.parts {
            let all = *clustering == Clustering::Gather(Residents::Rewrite) || vacated.contains(&part.id);
            let newcomers = *clustering == Clustering::Gather(Residents::Keep) && !part.is_run;
            let small = has_classes && (*clustering == Clustering::None || newcomers);
            let leaves = [all || small || newcomers, all || newcomers, all || newcomers && !has_classes];
            for ((here, there), leaves) in part.entries.iter_mut().zip(&mut run.entries).zip(leaves) {
                if leaves {
                    *there += std::mem::take(here);
                }
            }
        }
        draft.parts.retain(|part| part.count() > 0);
        let first = self.number() * NUMBERS_OF_A_JOB;
        for number in first.. {
            if run.count() == 0 {
                break;
            }
            let mut piece = self.cut_off(&mut run);
            piece.span_bytes = piece.bytes();
            piece.id = self.segment_with(number, SegmentKind::Run, piece.span_bytes, edit);
            draft.parts.push(piece);
        }
        draft
    }

    /// As much of a run as there is memory for in one piece: all of it, or less when room is short.
    fn cut_off(&mut self, run: &mut Part) -> Part {
        let mut piece = Part { entries: [0; 3], ..run.clone() };
        let is_short = !self.room.is_plenty() && self.random.one_in(1, 2);
        let longest = if is_short { LEAST_PIECE_BYTES } else { u64::MAX };
        for (size, bytes) in SIZES.into_iter().enumerate() {
            let fit = run.entries[size].min((longest - piece.bytes()) / bytes);
            piece.entries[size] = fit;
            run.entries[size] -= fit;
        }
        piece
    }

    /// Compacts until nothing is due.
    fn settle(&mut self, seed: u64) -> usize {
        for picks in 0..MOST_PICKS {
            let Some(pick) = self.pick() else { return picks };
            // What merges neighbours has its memory held for it.
            if self.room.is_none() && pick.output_level > 0 && self.random.one_in(1, 4) {
                self.too_large.extend(pick.chosen());
            } else {
                self.compact(&pick);
                self.too_large.clear();
            }
        }
        panic!("seed {seed}: {:?} with room {:?} goes on and on", self.pick(), self.room);
    }
}

#[test]
fn picking_comes_to_an_end() {
    let mut most = 0;
    for seed in 0..SEEDS {
        let mut tree = Tree::new(seed);
        for _ in 0..FLUSHES {
            tree.flush();
            let memtables = if tree.random.one_in(1, 2) { 100 } else { tree.random.below(10) };
            let scratch_bytes = tree.random.below(1 << 20);
            tree.room = Room { memtables, scratch_bytes, extent_bytes: 64 << 10, is_wanted: tree.random.one_in(1, 2) };
            for table in tree.version.levels().iter().skip(1).flatten() {
                *tree.crossings.entry(table.id).or_default() += tree.random.below(4) as u32 / 3;
            }
            most = most.max(tree.settle(seed));
        }
    }
    assert!(most > 10, "{most}");
}
