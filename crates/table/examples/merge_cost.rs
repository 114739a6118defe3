//! Prints the cost of a compaction in nanoseconds of processor time per entry: four tables of level 0 with a level 1 of
//! the same size, once with records left in place and once with records gathered into runs.
//!
//! `cargo run --release -p forebay-table --example merge_cost [entries of a table]`

use forebay_base::record::pad;
use forebay_base::{InternalKey, Kind, LogicalAddress, Record, SegmentId, SequenceNumber, Tag};
use forebay_env::Random;
use forebay_table::job::{
    AllocatedSegment, Clustering, CompactionJob, CompactionResult, Flush, FlushJob, GatherRead, JobIdentity, JobInput,
    JobIo, JobLimits, LocatedEntry, Residents, SizeClasses, run_compaction,
};
use forebay_table::{
    CachedTable, Error, ImageAddress, Result, SegmentInfo, SegmentKind, TableId, TableMetadata, TableOptions,
};
use std::collections::{BTreeMap, BTreeSet};

const IDENTITY: JobIdentity = JobIdentity { store: 0, shard: 0, epoch: 0, job: 1, attempt: 1 };
const VALUE: [u8; 400] = [7; 400];

/// Segments in this process's memory.
#[derive(Default)]
struct Memory {
    segments: BTreeMap<SegmentId, (SegmentKind, Vec<u8>)>,
    next: u64,
}

impl Memory {
    fn add(&mut self, kind: SegmentKind, bytes: Vec<u8>) -> SegmentId {
        self.next += 1;
        self.segments.insert(SegmentId(self.next), (kind, bytes));
        SegmentId(self.next)
    }

    fn part(&self, segment: SegmentId, offset: u64, length: usize) -> Result<&[u8]> {
        let (_, bytes) = self.segments.get(&segment).ok_or(Error::Invalid("no such segment"))?;
        let start = offset as usize;
        bytes.get(start..start + length).ok_or(Error::Invalid("a read leaves its segment"))
    }
}

impl JobIo for Memory {
    fn read(&mut self, segment: SegmentId, offset: u64, into: &mut [u8]) -> Result<()> {
        into.copy_from_slice(self.part(segment, offset, into.len())?);
        Ok(())
    }

    fn gather(&mut self, reads: &[GatherRead], into: &mut [u8]) -> Result<()> {
        for read in reads {
            let part = self.part(read.address.segment, read.address.offset, read.length)?;
            into[read.destination..read.destination + read.length].copy_from_slice(part);
        }
        Ok(())
    }

    fn longest_piece(&mut self, wanted: u64) -> u64 {
        wanted
    }

    fn allocate(&mut self, kind: SegmentKind, length: u64) -> Result<AllocatedSegment> {
        Ok(AllocatedSegment { id: self.add(kind, vec![0; length as usize]), placements: Vec::new() })
    }

    fn write(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) -> Result<()> {
        let (_, into) = self.segments.get_mut(&segment).ok_or(Error::Invalid("no such segment"))?;
        into[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn cancelled(&self) -> bool {
        false
    }
}

/// A table of level 0 over a block of records with random keys.
fn flush(memory: &mut Memory, random: &mut Random, entries: u64, base: u64) -> TableMetadata {
    let mut block = Vec::new();
    let mut located = Vec::new();
    for i in 0..entries {
        let key = format!("{:020}", random.below(100_000_000)).into_bytes();
        let offset = block.len() as u64;
        Record::put(SequenceNumber(base + i), &key, &VALUE).encode(&mut block);
        located.push((key, Tag::new(SequenceNumber(base + i), Kind::Put, false), offset));
    }
    located.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    let record_bytes = Record::put(SequenceNumber(1), &located[0].0, &VALUE).length();
    assert_eq!(block.len() % pad(record_bytes), 0);
    let segment = memory.add(SegmentKind::MemtableBlock, block);
    let job = FlushJob { identity: IDENTITY, snapshots: Vec::new(), options: TableOptions::default() };
    let mut flush = Flush::new(&job, Vec::new()).expect("a flush");
    for (key, tag, offset) in &located {
        let key = InternalKey { user_key: key, tag: *tag };
        let address = LogicalAddress { segment, offset: *offset };
        let entry = LocatedEntry { key, address, length: record_bytes as u32, expiry_ms: None };
        flush.add(&entry).expect("an entry in order");
    }
    let table = flush.finish().expect("a table").table.expect("not empty");
    let cached = CachedTable::parse(table.tail()).expect("a tail");
    let length = table.image.len() as u64;
    let image = memory.add(SegmentKind::TableImage, table.image);
    let image = ImageAddress { segment: image, length, tail_offset: table.tail_offset };
    TableMetadata { id: TableId(base), image, properties: cached.properties().clone() }
}

fn compact(memory: &mut Memory, inputs: Vec<JobInput>, clustering: Clustering) -> (CompactionResult, u64) {
    let info = |(id, (kind, bytes)): (&SegmentId, &(SegmentKind, Vec<u8>))| {
        (*id, SegmentInfo::new(*kind, bytes.len() as u64, Vec::new()))
    };
    let job = CompactionJob {
        identity: IDENTITY,
        merge_operator: String::new(),
        inputs,
        stretches: Vec::new(),
        segments: memory.segments.iter().map(info).collect(),
        output_level: 1,
        is_bottommost: true,
        snapshots: Vec::new(),
        tombstones: Vec::new(),
        limits: JobLimits::default(),
        options: TableOptions::default(),
        clustering,
        size_classes: SizeClasses::NONE,
        vacated: BTreeSet::new(),
        lower: None,
        upper: None,
        expire_before_ms: 0,
        output_segments: 0..0,
        replica: None,
    };
    let start = forebay_env::cpu::thread_nanos();
    let result = run_compaction(&job, memory).expect("a compaction");
    let nanos = forebay_env::cpu::thread_nanos() - start;
    (result, nanos)
}

fn report(what: &str, result: &CompactionResult, nanos: u64) {
    let counters = result.counters;
    let index: u64 = result.tables.iter().map(|table| table.image.length).sum();
    println!(
        "{what}: {:.0} ns an entry ({} entries in, {} out, {:.1} B of index an entry, {:.1} B of it cached)",
        nanos as f64 / counters.entries_in as f64,
        counters.entries_in,
        counters.entries_out,
        index as f64 / counters.entries_out as f64,
        result.tables.iter().map(|table| table.tail.len()).sum::<usize>() as f64 / counters.entries_out as f64,
    );
}

fn main() {
    let entries = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(150_000);
    let mut memory = Memory::default();
    let mut random = Random::seeded(1);
    let mut level0 = |memory: &mut Memory, round: u64| -> Vec<JobInput> {
        let tables = (0..4).map(|i| flush(memory, &mut random, entries, 1 + (round * 4 + 3 - i) * entries));
        tables.map(|table| JobInput { level: 0, table }).collect()
    };
    for round in 0..3 {
        memory.segments.clear();
        let first = level0(&mut memory, 2 * round);
        let (made, nanos) = compact(&mut memory, first, Clustering::None);
        report("4 tables, records stay", &made, nanos);
        let mut inputs = level0(&mut memory, 2 * round + 1);
        let below = made.tables.iter().zip(0..).map(|(table, i)| table.metadata(TableId(i)));
        inputs.extend(below.map(|table| JobInput { level: 1, table }));
        let (made, nanos) = compact(&mut memory, inputs.clone(), Clustering::None);
        report("4 tables and a level below, records stay", &made, nanos);
        let (made, nanos) = compact(&mut memory, inputs, Clustering::Gather(Residents::Rewrite));
        report("4 tables and a level below, records gathered", &made, nanos);
    }
}
