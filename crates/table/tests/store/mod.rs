//! A store of segments in memory with a model beside it.

use forebay_base::record::pad;
use forebay_base::{InternalKey, KeyOrder, Kind, LogicalAddress, Record, RecordHeader, SegmentId, SequenceNumber, Tag};
use forebay_env::Random;
use forebay_table::job::{
    AllocatedSegment, Clustering, CompactionJob, CompactionResult, Flush, FlushJob, GatherRead, Held, JobIdentity,
    JobInput, JobIo, JobLimits, LocatedEntry, RecordStretch, SizeClasses, run_compaction,
};
use forebay_table::{
    BlockIterator, BuiltTable, CachedTable, Error, ImageAddress, PointIndexOptions, RangeTombstone, Result,
    SegmentInfo, SegmentKind, ShardIdentity, TableId, TableMetadata, TableOptions, Version, VersionEdit, key_hash,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

struct Written {
    key: Vec<u8>,
    tag: Tag,
    value: Vec<u8>,
    expiry_ms: Option<u64>,
    offset: u64,
    length: u32,
}

pub struct Store {
    order: KeyOrder,
    segments: BTreeMap<SegmentId, Vec<u8>>,
    next_segment: u64,
    sequence: u64,
    version: Version,
    snapshots: Vec<SequenceNumber>,
    memtable: Vec<u8>,
    written: Vec<Written>,
    /// Every write ever made: the model.
    history: Vec<(Vec<u8>, Tag, Vec<u8>)>,
    pub cancelled: bool,
    /// Bytes of the longest free piece of memory.
    pub longest_piece: u64,
    pub reads_gathered: usize,
    /// The most bytes that were gathered at once.
    pub most_gathered: usize,
    /// Lengths of the reads of images, in bytes.
    pub reads: Vec<usize>,
    /// The most that jobs held.
    pub most_held: Held,
    /// Bytes that tails in a result may still take.
    pub tail_bytes: u64,
    /// The most that a job may hold, in bytes.
    pub may_hold: u64,
}

fn io(message: &'static str) -> Error {
    Error::Io { kind: forebay_base::ErrorKind::Io, message: message.to_owned() }
}

impl JobIo for Store {
    fn read(&mut self, segment: SegmentId, offset: u64, into: &mut [u8]) -> Result<()> {
        self.reads.push(into.len());
        let bytes = self.segments.get(&segment).ok_or(io("no such segment"))?;
        let start = offset as usize;
        into.copy_from_slice(bytes.get(start..start + into.len()).ok_or(io("out of bounds"))?);
        Ok(())
    }

    fn gather(&mut self, reads: &[GatherRead], into: &mut [u8]) -> Result<()> {
        self.reads_gathered += reads.len();
        self.most_gathered = self.most_gathered.max(into.len());
        for read in reads {
            let bytes = self.segments.get(&read.address.segment).ok_or(io("no such segment"))?;
            let start = read.address.offset as usize;
            let from = bytes.get(start..start + read.length).ok_or(io("out of bounds"))?;
            into[read.destination..][..read.length].copy_from_slice(from);
        }
        Ok(())
    }

    fn longest_piece(&mut self, wanted: u64) -> u64 {
        self.longest_piece.min(wanted)
    }

    fn allocate(&mut self, _: SegmentKind, length: u64) -> Result<AllocatedSegment> {
        let id = SegmentId(self.next_segment);
        self.next_segment += 1;
        self.segments.insert(id, vec![0xee; length as usize]);
        Ok(AllocatedSegment { id, placements: Vec::new() })
    }

    fn write(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) -> Result<()> {
        let target = self.segments.get_mut(&segment).ok_or(io("no such segment"))?;
        target[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn hold(&mut self, held: Held) -> Result<()> {
        if held.bytes() > self.most_held.bytes() {
            self.most_held = held;
        }
        match held.bytes() <= self.may_hold {
            true => Ok(()),
            false => Err(Error::Io { kind: forebay_base::ErrorKind::Unsupported, message: "too much".to_owned() }),
        }
    }

    fn takes_tail(&mut self, bytes: u64) -> bool {
        let left = self.tail_bytes.checked_sub(bytes);
        self.tail_bytes = left.unwrap_or(self.tail_bytes);
        left.is_some()
    }

    fn cancelled(&self) -> bool {
        self.cancelled
    }
}

pub fn options(order: KeyOrder) -> TableOptions {
    TableOptions {
        key_order: order,
        block_bytes: 300,
        restart_interval: 4,
        point_index: PointIndexOptions { fingerprint_bits: 6, load: 4 },
    }
}

fn identity(job: u64) -> JobIdentity {
    JobIdentity { store: 1, shard: 2, epoch: 3, job, attempt: 1 }
}

/// A job over all tables of a store, with level 1 as the last level.
pub fn job_of(store: &Store, clustering: Clustering) -> CompactionJob {
    store.job(clustering, 1, true)
}

impl Store {
    pub fn new(order: KeyOrder) -> Self {
        let shard = ShardIdentity {
            store: 1,
            shard: 2,
            key_order: order,
            merge_operator: String::new(),
            lower: None,
            upper: None,
        };
        Self {
            order,
            segments: BTreeMap::new(),
            next_segment: 1,
            sequence: 0,
            version: Version::empty(shard),
            snapshots: Vec::new(),
            memtable: Vec::new(),
            written: Vec::new(),
            history: Vec::new(),
            cancelled: false,
            longest_piece: u64::MAX,
            reads_gathered: 0,
            most_gathered: 0,
            reads: Vec::new(),
            most_held: Held::default(),
            tail_bytes: u64::MAX,
            may_hold: u64::MAX,
        }
    }

    /// A store with two tables of level 0 and no range deletions.
    pub fn filled(seed: u64, writes: u64) -> Self {
        let mut random = Random::seeded(seed);
        let mut store = Self::new(KeyOrder::Bytewise);
        for _ in 0..2 {
            for _ in 0..writes {
                let key = format!("key{:04}", random.below(50 + writes));
                let value = vec![7; random.below(90) as usize];
                if random.one_in(1, 8) { store.delete(key.as_bytes()) } else { store.put(key.as_bytes(), &value) }
            }
            store.flush();
        }
        store
    }

    pub fn bytes(&self, segment: SegmentId) -> &[u8] {
        &self.segments[&segment]
    }

    pub fn flip(&mut self, segment: SegmentId, at: usize) {
        self.segments.get_mut(&segment).unwrap()[at] ^= 0x04;
    }

    /// Swaps the first two records of `length` bytes.
    pub fn swap_records(&mut self, segment: SegmentId, length: usize) {
        self.segments.get_mut(&segment).unwrap()[..2 * length].rotate_left(length);
    }

    /// Changes bytes of an image's first index block and corrects its checksum.
    pub fn change_first_block(&mut self, image: ImageAddress, changes: &[(usize, u8)]) {
        let bytes = self.segments.get_mut(&image.segment).unwrap();
        let cached = CachedTable::parse(&bytes[image.tail_offset as usize..]).unwrap();
        let end = cached.sparse_index().block(0).unwrap().length as usize - 4;
        for (at, byte) in changes {
            bytes[at % end] = *byte;
        }
        let crc = forebay_base::checksum(&bytes[..end]);
        bytes[end..end + 4].copy_from_slice(&crc.to_le_bytes());
    }

    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.write(key, Kind::Put, value, None);
    }

    pub fn delete(&mut self, key: &[u8]) {
        self.write(key, Kind::Delete, &[], None);
    }

    pub fn write(&mut self, key: &[u8], kind: Kind, value: &[u8], expiry_ms: Option<u64>) {
        self.sequence += 1;
        let tag = Tag::new(SequenceNumber(self.sequence), kind, expiry_ms.is_some());
        let offset = self.memtable.len();
        Record { tag, expiry_ms, key, value }.encode(&mut self.memtable);
        let length = RecordHeader::decode(&self.memtable[offset..]).unwrap().length() as u32;
        let (key, value) = (key.to_vec(), value.to_vec());
        self.history.push((key.clone(), tag, value.clone()));
        self.written.push(Written { key, tag, value, expiry_ms, offset: offset as u64, length });
    }

    /// Random writes to few keys, flushed to level 0.
    pub fn write_memtable(&mut self, random: &mut Random, writes: u64) {
        for _ in 0..writes {
            let key = format!("key{:02}", random.below(40)).into_bytes();
            match random.below(40) {
                0 => {
                    let mut ends = [key, format!("key{:02}", random.below(40)).into_bytes()];
                    ends.sort_by(|a, b| self.order.compare(a, b));
                    if ends[0] != ends[1] {
                        self.write(&ends[0], Kind::RangeDelete, &ends[1], None);
                    }
                }
                1..10 => self.delete(&key),
                _ => {
                    let mut value = vec![0; random.below(60) as usize];
                    random.fill(&mut value);
                    self.put(&key, &value);
                }
            }
        }
        self.flush();
    }

    pub fn take_snapshot(&mut self) {
        self.snapshots.push(SequenceNumber(self.sequence));
    }

    pub fn drop_snapshot(&mut self, random: &mut Random) {
        if !self.snapshots.is_empty() {
            self.snapshots.remove(random.below(self.snapshots.len() as u64) as usize);
        }
    }

    pub fn flush(&mut self) {
        let block = SegmentId(self.next_segment);
        self.next_segment += 1;
        let (bytes, mut written) = (std::mem::take(&mut self.memtable), std::mem::take(&mut self.written));
        let key = |w: &Written| (w.key.clone(), w.tag);
        let order = self.order;
        written.sort_by(|a, b| {
            let (a, b) = (key(a), key(b));
            order.compare_internal(InternalKey { user_key: &a.0, tag: a.1 }, InternalKey { user_key: &b.0, tag: b.1 })
        });
        let mut tombstones: Vec<_> = written
            .iter()
            .filter(|w| w.tag.kind() == Kind::RangeDelete)
            .map(|w| RangeTombstone { start: w.key.clone(), end: w.value.clone(), tag: w.tag })
            .collect();
        let starts = |a: &RangeTombstone, b: &RangeTombstone| order.compare(&a.start, &b.start);
        tombstones.sort_by(|a, b| starts(a, b).then_with(|| a.tag.sequence().cmp(&b.tag.sequence())));
        let job = FlushJob {
            identity: identity(self.version.next_job()),
            snapshots: self.snapshots.clone(),
            options: options(order),
        };
        let mut flush = Flush::new(&job, tombstones).unwrap();
        for w in written.iter().filter(|w| w.tag.kind() != Kind::RangeDelete) {
            let key = InternalKey { user_key: &w.key, tag: w.tag };
            let address = LogicalAddress { segment: block, offset: w.offset };
            flush.add(&LocatedEntry { key, address, length: w.length, expiry_ms: w.expiry_ms }).unwrap();
        }
        let (table, length) = (flush.finish().unwrap().table, bytes.len() as u64);
        self.segments.insert(block, bytes);
        self.expect_flushed_elsewhere(&job, block, &written, table.as_ref());
        let Some(table) = table else {
            self.segments.remove(&block);
            return;
        };
        let block_info = SegmentInfo::new(SegmentKind::MemtableBlock, length, Vec::new());
        let length = table.image.len() as u64;
        let image = self.allocate(SegmentKind::TableImage, length).unwrap().id;
        self.write_image(image, &table.image);
        let mut edit = self.edit();
        if table.properties.segments.iter().any(|segment| segment.id == block) {
            edit.added_segments.push((block, block_info));
        }
        edit.added_segments.push((image, SegmentInfo::new(SegmentKind::TableImage, length, Vec::new())));
        let metadata = TableMetadata {
            id: TableId(self.version.next_table()),
            image: ImageAddress { segment: image, length, tail_offset: table.tail_offset },
            properties: Arc::new(table.properties),
        };
        edit.added_tables.push((0, metadata));
        edit.next_table = Some(self.version.next_table() + 1);
        self.version = self.version.apply(&edit).unwrap();
    }

    /// `count` records without padding, in a segment, and the job that flushes them.
    pub fn records_to_flush(&mut self, count: u64) -> (SegmentId, CompactionJob) {
        (0..count).for_each(|number| self.put(format!("key{:02}", number % 40).as_bytes(), b"value"));
        self.written.clear();
        let (block, bytes) = (SegmentId(self.next_segment), std::mem::take(&mut self.memtable));
        self.next_segment += 1;
        let length = bytes.len() as u64;
        self.segments.insert(block, bytes);
        let info = SegmentInfo::new(SegmentKind::MemtableBlock, length, Vec::new());
        let job = CompactionJob {
            inputs: Vec::new(),
            stretches: vec![RecordStretch { segment: block, offset: 0, length }],
            segments: BTreeMap::from([(block, info)]),
            ..self.job(Clustering::None, 0, false)
        };
        (block, job)
    }

    /// A job whose input is the same records makes the same table, unless it merges operands.
    fn expect_flushed_elsewhere(
        &mut self,
        flush: &FlushJob,
        block: SegmentId,
        written: &[Written],
        table: Option<&BuiltTable>,
    ) {
        if written.iter().any(|w| w.tag.kind() == Kind::Merge) {
            return;
        }
        let length = self.segments[&block].len() as u64;
        let mut starts: Vec<_> = written.iter().map(|w| w.offset).collect();
        starts.sort_unstable();
        let middle = starts[starts.len() / 2];
        let stretch = |offset, end| RecordStretch { segment: block, offset, length: end - offset };
        let info = SegmentInfo::new(SegmentKind::MemtableBlock, length, Vec::new());
        let job = CompactionJob {
            identity: flush.identity,
            inputs: Vec::new(),
            stretches: vec![stretch(middle, length), stretch(0, middle)],
            segments: BTreeMap::from([(block, info)]),
            snapshots: flush.snapshots.clone(),
            limits: JobLimits { read_bytes: 64, ..JobLimits::default() },
            options: flush.options,
            ..self.job(Clustering::None, 0, false)
        };
        let mut bytes = Vec::new();
        job.encode(&mut bytes).unwrap();
        assert_eq!(CompactionJob::decode(&bytes).as_ref(), Ok(&job));
        let before = (self.next_segment, self.reads.len(), self.most_held, self.tail_bytes, self.may_hold);
        self.may_hold = u64::MAX;
        let made = run_compaction(&job, self).unwrap();
        let images: Vec<_> = made.tables.iter().map(|made| self.segments[&made.image.segment].clone()).collect();
        assert!(images == table.map(|table| table.image.clone()).into_iter().collect::<Vec<_>>(), "another table");
        made.segments.iter().for_each(|(id, _)| drop(self.segments.remove(id)));
        self.reads.truncate(before.1);
        (self.next_segment, _, self.most_held, self.tail_bytes, self.may_hold) = before;
    }

    fn write_image(&mut self, segment: SegmentId, bytes: &[u8]) {
        JobIo::write(self, segment, 0, bytes).unwrap();
    }

    fn edit(&self) -> VersionEdit {
        VersionEdit {
            next_segment: Some(self.next_segment),
            next_job: Some(self.version.next_job() + 1),
            last_sequence: Some(SequenceNumber(self.sequence)),
            ..VersionEdit::default()
        }
    }

    fn job(&self, clustering: Clustering, output_level: u8, is_bottommost: bool) -> CompactionJob {
        let levels = self.version.levels().iter().enumerate().take(usize::from(output_level) + 1);
        let inputs: Vec<_> = levels
            .flat_map(|(level, tables)| {
                tables.iter().map(move |table| JobInput { level: level as u8, table: table.as_ref().clone() })
            })
            .collect();
        let ids: BTreeSet<_> = inputs.iter().flat_map(|input| input.table.segments().collect::<Vec<_>>()).collect();
        CompactionJob {
            identity: identity(self.version.next_job()),
            merge_operator: String::new(),
            inputs,
            stretches: Vec::new(),
            segments: ids.into_iter().map(|id| (id, self.version.segment(id).unwrap().as_ref().clone())).collect(),
            output_level,
            is_bottommost,
            snapshots: self.snapshots.clone(),
            tombstones: Vec::new(),
            limits: JobLimits::default(),
            options: options(self.order),
            clustering,
            size_classes: SizeClasses::NONE,
            vacated: BTreeSet::new(),
            lower: None,
            upper: None,
            expire_before_ms: 0,
            output_segments: 0..0,
            replica: None,
        }
    }

    /// Compacts all of level 0 and 1 into level 1, or everything into level 2.
    pub fn compact(&mut self, clustering: Clustering, to_bottom: bool, random: &mut Random) {
        let level = if to_bottom { 2 } else { 1 };
        let mut job = self.job(clustering, level, to_bottom);
        if job.inputs.is_empty() {
            return;
        }
        job.limits.table_bytes = 200 + random.below(3_000);
        job.limits.read_bytes = 100 + random.below(2_000) as u32;
        let result = run_compaction(&job, self).unwrap();
        let (outputs, most) = (result.segments.len() as u64, job.most_outputs());
        assert!(outputs <= most || self.longest_piece < u64::MAX, "{outputs} segments, at most {most} were expected");
        self.install(&job, &result, level);
    }

    pub fn install(&mut self, job: &CompactionJob, result: &CompactionResult, level: u8) {
        let mut edit = self.edit();
        edit.removed_tables = job.inputs.iter().map(|input| (input.level, input.table.id)).collect();
        edit.added_segments = result.segments.clone();
        let mut next = self.version.next_table();
        for table in &result.tables {
            edit.added_tables.push((level, table.metadata(TableId(next))));
            next += 1;
        }
        edit.next_table = Some(next);
        self.version.remove_unreferenced(&mut edit).unwrap();
        let mut log = Vec::new();
        edit.encode(&mut log).unwrap();
        self.version = self.version.apply(&VersionEdit::decode(&log).unwrap()).unwrap();
        for id in &edit.removed_segments {
            self.segments.remove(id);
        }
    }

    /// Compares reads of every key at every snapshot with the model, through the point indexes and
    /// through the index blocks.
    pub fn check(&mut self, seed: u64) {
        self.version.check().unwrap();
        let tables: Vec<(CachedTable, Arc<TableMetadata>)> = self
            .version
            .levels()
            .iter()
            .flatten()
            .map(|table| {
                let tail = &self.segments[&table.image.segment][table.image.tail_offset as usize..];
                (CachedTable::parse(tail).unwrap(), Arc::clone(table))
            })
            .collect();
        let mut snapshots = self.snapshots.clone();
        snapshots.push(SequenceNumber(self.sequence));
        let keys: BTreeSet<_> = self.history.iter().map(|(key, ..)| key.clone()).collect();
        for snapshot in snapshots {
            for key in &keys {
                let expected = self.expected(key, snapshot);
                let name = String::from_utf8_lossy(key);
                assert_eq!(self.get(&tables, key, snapshot), expected, "seed {seed}: {name} at {snapshot:?}");
                assert_eq!(self.scan(&tables, key, snapshot), expected, "seed {seed}: {name} at {snapshot:?}");
            }
        }
    }

    fn expected(&self, key: &[u8], snapshot: SequenceNumber) -> Option<Vec<u8>> {
        let visible = self.history.iter().rev().filter(|(_, tag, _)| tag.sequence() <= snapshot);
        for (start, tag, value) in visible {
            match tag.kind() {
                Kind::RangeDelete => {
                    let range = RangeTombstone { start: start.clone(), end: value.clone(), tag: *tag };
                    if range.contains(self.order, key) {
                        return None;
                    }
                }
                Kind::Delete if start == key => return None,
                Kind::Put if start == key => return Some(value.clone()),
                _ => {}
            }
        }
        None
    }

    fn get(
        &self,
        tables: &[(CachedTable, Arc<TableMetadata>)],
        key: &[u8],
        snapshot: SequenceNumber,
    ) -> Option<Vec<u8>> {
        let hash = key_hash(key);
        let found = tables.iter().flat_map(|(cached, _)| cached.point_index().unwrap().candidates(hash)).filter_map(
            |candidate| {
                let bytes = &self.segments[&candidate.address.segment][candidate.address.offset as usize..];
                assert!(candidate.read_length as usize <= bytes.len(), "a read past the segment's end");
                let record = Record::decode(&bytes[..candidate.read_length as usize]).unwrap();
                (record.key == key && record.tag.sequence() <= snapshot).then(|| (record.tag, record.value.to_vec()))
            },
        );
        self.resolve(tables, key, snapshot, found.max_by_key(|(tag, _)| *tag))
    }

    fn scan(
        &self,
        tables: &[(CachedTable, Arc<TableMetadata>)],
        key: &[u8],
        snapshot: SequenceNumber,
    ) -> Option<Vec<u8>> {
        let target = InternalKey { user_key: key, tag: Tag::seek(snapshot) };
        let found = tables.iter().filter_map(|(cached, table)| {
            let index = cached.sparse_index().seek(self.order, target);
            let block = cached.sparse_index().block(index)?;
            let image = &self.segments[&table.image.segment];
            let mut iterator = BlockIterator::new(&image[block.offset as usize..][..block.length as usize]).unwrap();
            iterator.seek(self.order, target).unwrap();
            let entry = iterator.entry().filter(|entry| entry.key.user_key == key)?;
            let (_, address) = table.properties.locate(&entry).unwrap();
            let bytes = &self.segments[&address.segment][address.offset as usize..];
            assert!(pad(entry.length as usize) <= bytes.len());
            let record = Record::decode(&bytes[..entry.length as usize]).unwrap();
            assert_eq!((record.key, record.tag), (key, entry.key.tag));
            Some((record.tag, record.value.to_vec()))
        });
        self.resolve(tables, key, snapshot, found.max_by_key(|(tag, _)| *tag))
    }

    /// The meaning of a key's newest visible version under the tables' range deletions.
    fn resolve(
        &self,
        tables: &[(CachedTable, Arc<TableMetadata>)],
        key: &[u8],
        snapshot: SequenceNumber,
        newest: Option<(Tag, Vec<u8>)>,
    ) -> Option<Vec<u8>> {
        let (tag, value) = newest?;
        let hidden = tables
            .iter()
            .flat_map(|(cached, _)| cached.range_deletions())
            .any(|range| range.tag > tag && range.tag.sequence() <= snapshot && range.contains(self.order, key));
        (tag.kind() == Kind::Put && !hidden).then_some(value)
    }
}
