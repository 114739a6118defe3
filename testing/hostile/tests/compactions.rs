//! Compactions near the data that a hostile tenant asks for: of memory that is not its own, of more than exists, of the same
//! thing twice.

use forebay_base::{ErrorKind, InternalKey, Kind, LogicalAddress, Record, SegmentId, SequenceNumber, Tag};
use forebay_env::Random;
use forebay_fabric::{EndpointOptions, tcp};
use forebay_hostile::arena::Arena;
use forebay_memory_client::{ClientOptions, Error, ExtentId, ExtentRange, MemoryClient, Purpose, ShardHandle, ShardId};
use forebay_proto::job_kind;
use forebay_table::job::{
    Clustering, CompactionJob, CompactionResult, Flush, FlushJob, JobIdentity, JobInput, JobLimits, LocatedEntry,
    RecordStretch, Replica, Residents, SizeClasses,
};
use forebay_table::{
    CachedTable, ImageAddress, Placement, SegmentInfo, SegmentKind, TableId, TableMetadata, TableOptions,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// No session lapses, however slow the machine.
const LONG: Duration = Duration::from_secs(120);
const IMAGE: SegmentId = SegmentId(1);
const RECORDS: SegmentId = SegmentId(2);
const ENTRIES: u64 = 100;
/// Where the records of the entries are in the extent, one after the other. The table claims that they are further apart.
const RECORDS_AT: u64 = 1 << 20;
const RECORD_BYTES: u64 = 24;
const EXTENT_BYTES: u64 = 2 << 20;

/// The hostile tenant, with a shard that has one table of deletions in an extent of its own.
struct Attacker {
    shard: ShardHandle,
    extent: ExtentId,
    job: CompactionJob,
    attempt: u64,
}

impl Attacker {
    fn new(arena: &Arena) -> Self {
        let link = tcp::connect(arena.address(), tcp::Options::default()).unwrap();
        let options = ClientOptions { timeout: LONG, ..ClientOptions::default() };
        let client = MemoryClient::connect(link, "hostile", options).unwrap();
        let shard = client.create_private_store().unwrap().acquire_shard(ShardId(0), false).unwrap();
        let extent = client.lease(1, Purpose::Flush).unwrap()[0];
        let job = job_of(&client, &shard, extent);
        Self { shard, extent, job, attempt: 0 }
    }

    /// Asks for a compaction, and returns the outputs.
    fn ask(&mut self, job: &CompactionJob) -> Result<Vec<ExtentRange>, ErrorKind> {
        self.attempt += 1;
        let mut arguments = Vec::new();
        job.encode(&mut arguments).unwrap();
        let result = self.shard.submit_job(self.attempt, job_kind::COMPACTION, &arguments, LONG);
        let result = result.map_err(|error| error.kind())?;
        let result = CompactionResult::decode(&result).unwrap();
        let range = |info: &SegmentInfo| match info.placements[..] {
            // Outputs are at whole pages.
            [Placement::Memory { extent, offset, .. }] => {
                ExtentRange { extent: ExtentId(extent), offset, length: info.length.next_multiple_of(4096) }
            }
            ref other => panic!("{other:?}"),
        };
        Ok(result.segments.iter().map(|(_, info)| range(info)).collect())
    }

    fn ask_changed(&mut self, change: impl FnOnce(&mut CompactionJob)) -> Result<Vec<ExtentRange>, ErrorKind> {
        let mut job = self.job.clone();
        change(&mut job);
        self.ask(&job)
    }

    fn refused(&mut self, what: &str, change: impl FnOnce(&mut CompactionJob)) {
        let answer = self.ask_changed(change);
        assert!(
            matches!(answer, Err(ErrorKind::Invalid | ErrorKind::Corrupt | ErrorKind::Unsupported)),
            "{what}: {answer:?}"
        );
    }
}

/// A valid compaction of a table of deletions, whose image is written into the extent.
fn job_of(client: &Arc<MemoryClient>, shard: &ShardHandle, extent: ExtentId) -> CompactionJob {
    let identity = JobIdentity {
        store: shard.key().store.0.into(),
        shard: shard.key().shard.0.into(),
        epoch: shard.epoch().0,
        job: 7,
        attempt: 1,
    };
    let flush = FlushJob { identity, snapshots: Vec::new(), options: TableOptions::default() };
    let mut flush = Flush::new(&flush, Vec::new()).unwrap();
    for number in 0..ENTRIES {
        let (key, tag) = (number.to_be_bytes(), Tag::new(SequenceNumber(number + 1), Kind::Delete, false));
        let address = LogicalAddress { segment: RECORDS, offset: number * 64 };
        let key = InternalKey { user_key: &key, tag };
        flush.add(&LocatedEntry { key, address, length: 40, expiry_ms: None }).unwrap();
    }
    let built = flush.finish().unwrap().table.unwrap();
    let mut endpoint = client.link().endpoint(EndpointOptions::default()).unwrap();
    endpoint.write(client.resolve(extent, 0).unwrap(), &built.image).unwrap();
    let mut records = Vec::new();
    for number in 0..ENTRIES {
        Record::delete(SequenceNumber(number + 1), &number.to_be_bytes()).encode(&mut records);
    }
    assert_eq!(records.len() as u64, ENTRIES * RECORD_BYTES);
    endpoint.write(client.resolve(extent, RECORDS_AT).unwrap(), &records).unwrap();
    let length = built.image.len() as u64;
    let image = ImageAddress { segment: IMAGE, length, tail_offset: built.tail_offset };
    let properties = Arc::clone(CachedTable::parse(built.tail()).unwrap().properties());
    let (node, incarnation) = (client.node().node, client.node().incarnation);
    let place = |offset| vec![Placement::Memory { node, incarnation, extent: extent.0, offset }];
    CompactionJob {
        identity,
        merge_operator: String::new(),
        inputs: vec![JobInput { level: 0, table: TableMetadata { id: TableId(1), image, properties } }],
        stretches: Vec::new(),
        segments: BTreeMap::from([
            (IMAGE, SegmentInfo::new(SegmentKind::TableImage, length, place(0))),
            (RECORDS, SegmentInfo::new(SegmentKind::MemtableBlock, ENTRIES * 64, place(RECORDS_AT))),
        ]),
        output_level: 1,
        is_bottommost: false,
        snapshots: Vec::new(),
        tombstones: Vec::new(),
        limits: JobLimits::default(),
        options: TableOptions::default(),
        clustering: Clustering::None,
        size_classes: SizeClasses::NONE,
        vacated: BTreeSet::new(),
        lower: None,
        upper: None,
        expire_before_ms: 0,
        output_segments: 100..200,
        replica: None,
    }
}

/// Moves a segment elsewhere, and claims that it has this length.
fn move_to(job: &mut CompactionJob, segment: SegmentId, to: (u32, u64), bytes: u64) {
    let info = job.segments.get_mut(&segment).unwrap();
    info.length = bytes;
    let [Placement::Memory { extent, offset, .. }] = &mut info.placements[..] else { panic!("in memory") };
    (*extent, *offset) = to;
}

/// Checks that nothing is left of failed jobs.
fn check_nothing_left(arena: &Arena) {
    arena.use_it();
    arena.check();
    assert_eq!((arena.figures("hostile").ranges, arena.figures("hostile").jobs), (0, 0));
}

#[test]
fn compactions_of_what_is_anothers() {
    let arena = Arena::start(LONG);
    // The honest one also has an output of a job.
    let kept = arena.shard.store(1, &[7; 5000], LONG).unwrap();
    let mut attacker = Attacker::new(&arena);
    let own = attacker.extent.0;
    let image_bytes = attacker.job.segments[&IMAGE].length;
    for extent in (0..=arena.victim.extents()).chain([u32::MAX]).filter(|&extent| extent != own) {
        for (segment, bytes) in [(IMAGE, image_bytes), (RECORDS, ENTRIES * 64)] {
            for clustering in [Clustering::None, Clustering::Gather(Residents::Rewrite)] {
                let asked = attacker.ask_changed(|job| {
                    move_to(job, segment, (extent, 0), bytes);
                    job.clustering = clustering;
                });
                assert_eq!(asked, Err(ErrorKind::Invalid), "{segment} in extent {extent}");
            }
        }
    }
    let (theirs, epoch) = (arena.shard.key(), arena.shard.epoch());
    attacker.refused("another one's shard", |job| {
        (job.identity.store, job.identity.shard) = (theirs.store.0.into(), theirs.shard.0.into());
        job.identity.epoch = epoch.0;
    });
    attacker.refused("another epoch", |job| job.identity.epoch += 1);
    // Nobody can get or free another tenant's outputs.
    for range in [kept, ExtentRange { length: 4096, ..kept }, ExtentRange { offset: 0, length: EXTENT_BYTES, ..kept }] {
        assert_eq!(attacker.shard.adopt_ranges(&[range]).map_err(|error| error.kind()), Err(ErrorKind::Invalid));
        assert_eq!(attacker.shard.free_ranges(&[range]).map_err(|error| error.kind()), Err(ErrorKind::Invalid));
    }
    check_nothing_left(&arena);
    arena.shard.free_ranges(&[kept]).unwrap();
}

#[test]
fn compactions_whose_lengths_overflow() {
    let arena = Arena::start(LONG);
    let mut attacker = Attacker::new(&arena);
    let own = attacker.extent.0;
    let places = [
        (0, EXTENT_BYTES + 1),
        (EXTENT_BYTES, 1),
        (EXTENT_BYTES - 1, 2),
        (1, u64::MAX),
        (u64::MAX, 1),
        (u64::MAX, u64::MAX),
        (1 << 63, 1 << 63),
    ];
    for (offset, bytes) in places {
        for segment in [IMAGE, RECORDS] {
            attacker.refused(&format!("{segment} at {offset}, {bytes} bytes"), |job| {
                move_to(job, segment, (own, offset), bytes);
                if segment == IMAGE {
                    job.inputs[0].table.image.length = bytes;
                }
            });
        }
    }
    for tail_offset in [1 << 40, u64::MAX] {
        attacker.refused("a tail beyond the image", |job| job.inputs[0].table.image.tail_offset = tail_offset);
    }
    attacker.refused("numbers of inputs", |job| job.output_segments = 0..u64::MAX);
    attacker.refused("no numbers", |job| job.output_segments = u64::MAX..u64::MAX);
    attacker.refused("all blocks at once", |job| job.options.block_bytes = u32::MAX);
    attacker.refused("all reads at once", |job| job.limits.read_bytes = u32::MAX);
    // The result is within the hostile one's quota, whatever the limits are.
    for limits in [
        JobLimits { table_bytes: u64::MAX, table_entries: u64::MAX, output_bytes: u64::MAX, read_bytes: 64 << 20 },
        JobLimits { table_bytes: 1, table_entries: 1, output_bytes: u64::MAX, read_bytes: 1 },
    ] {
        for replica in [None, Some(Replica { parts: u8::MAX, has_tails: true })] {
            let asked = attacker.ask_changed(|job| {
                job.limits = limits;
                job.output_segments = u64::MAX - 300..u64::MAX;
                job.replica = replica;
            });
            attacker.shard.free_ranges(&asked.unwrap_or_default()).unwrap();
        }
    }
    assert_eq!(attacker.ask_changed(|job| job.limits.output_bytes = 0), Err(ErrorKind::Full));
    check_nothing_left(&arena);
}

#[test]
fn compactions_of_the_same_thing_twice() {
    let arena = Arena::start(LONG);
    let mut attacker = Attacker::new(&arena);
    let own = attacker.extent.0;
    let job = attacker.job.clone();
    // Its segments overlap, and a table is an input several times.
    let image_bytes = job.segments[&IMAGE].length;
    for times in 1..4 {
        for offset in [0, 64] {
            let asked = attacker.ask_changed(|job| {
                move_to(job, RECORDS, (own, offset), image_bytes);
                let input = job.inputs[0].clone();
                job.inputs.extend(std::iter::repeat_n(input, times));
                job.clustering = Clustering::Gather(Residents::Rewrite);
            });
            attacker.shard.free_ranges(&asked.unwrap_or_default()).unwrap();
        }
    }
    check_nothing_left(&arena);
    // The same job gives outputs with the same numbers, each in separate memory.
    let (first, second) = (attacker.ask(&job).unwrap(), attacker.ask(&job).unwrap());
    assert!(!first.is_empty() && first.iter().all(|range| !second.contains(range)), "{first:?} {second:?}");
    let adopted =
        |attacker: &Attacker, ranges: &[ExtentRange]| attacker.shard.adopt_ranges(ranges).map_err(|error| error.kind());
    let freed =
        |attacker: &Attacker, ranges: &[ExtentRange]| attacker.shard.free_ranges(ranges).map_err(|error| error.kind());
    let twice = [&first[..], &first].concat();
    assert_eq!(adopted(&attacker, &twice), Err(ErrorKind::Invalid));
    assert_eq!(freed(&attacker, &twice), Err(ErrorKind::Invalid));
    let both = [&first[..], &second].concat();
    assert_eq!(adopted(&attacker, &both), Ok(()));
    assert_eq!(freed(&attacker, &both), Ok(()));
    assert_eq!(freed(&attacker, &first), Err(ErrorKind::Invalid));
    assert_eq!(adopted(&attacker, &second), Err(ErrorKind::Invalid));
    check_nothing_left(&arena);
}

/// Records as the input: only whole ones, in the tenant's own memory.
#[test]
fn flushes_of_what_is_no_record() {
    let arena = Arena::start(LONG);
    let mut attacker = Attacker::new(&arena);
    let own = attacker.extent.0;
    let whole = ENTRIES * RECORD_BYTES;
    let flush = |job: &mut CompactionJob, stretches: &[(u64, u64)]| {
        let stretch = |&(offset, length): &(u64, u64)| RecordStretch { segment: RECORDS, offset, length };
        (job.inputs, job.output_level) = (Vec::new(), 0);
        job.stretches = stretches.iter().map(stretch).collect();
    };
    let each: Vec<_> = (0..ENTRIES).rev().map(|number| (number * RECORD_BYTES, RECORD_BYTES)).collect();
    // In any order; duplicates count once.
    let apart = [(RECORD_BYTES, whole - RECORD_BYTES), (0, RECORD_BYTES)];
    for stretches in [&[(0, whole)][..], &apart, &each, &[(0, whole), (0, RECORD_BYTES)]] {
        let asked = attacker.ask_changed(|job| flush(job, stretches)).unwrap();
        assert_eq!(asked.len(), 1);
        attacker.shard.free_ranges(&asked).unwrap();
    }
    for (what, stretches) in [
        ("no stretch", &[][..]),
        ("a part of a record", &[(0, whole - 8)]),
        ("the middle of a record", &[(8, whole - 8)]),
        ("no whole unit", &[(1, RECORD_BYTES)]),
        ("what was never written", &[(0, whole), (whole, RECORD_BYTES)]),
        ("beyond the segment", &[(0, ENTRIES * 64 + 8)]),
        ("overflow", &[(u64::MAX - 7, 16)]),
        ("all there is", &[(0, u64::MAX)]),
    ] {
        attacker.refused(what, |job| flush(job, stretches));
    }
    attacker.refused("a table, too", |job| {
        let inputs = job.inputs.clone();
        flush(job, &[(0, whole)]);
        job.inputs = inputs;
    });
    attacker.refused("below level 0", |job| {
        flush(job, &[(0, whole)]);
        job.output_level = 1;
    });
    attacker.refused("an image", |job| {
        flush(job, &[(0, 64)]);
        move_to(job, RECORDS, (own, 0), 64);
    });
    for extent in (0..=arena.victim.extents()).chain([u32::MAX]).filter(|&extent| extent != own) {
        attacker.refused("another one's memory", |job| {
            flush(job, &[(0, whole)]);
            move_to(job, RECORDS, (extent, 0), whole);
        });
    }
    check_nothing_left(&arena);
}

/// Whatever is asked for, the result is within the limits, and the honest one continues.
#[test]
fn compactions_at_random() {
    let arena = Arena::start(LONG);
    let mut attacker = Attacker::new(&arena);
    let mut random = Random::seeded(61);
    let mut succeeded = 0;
    for round in 0..300 {
        let mut number = || match random.below(5) {
            0 => random.below(8),
            1 => random.below(EXTENT_BYTES),
            2 => 1 << random.below(64),
            3 => u64::MAX - random.below(8),
            _ => random.word(),
        };
        let (what, a, b, c) = (number() % 8, number(), number(), number());
        let asked = attacker.ask_changed(|job| match what {
            0 => move_to(job, IMAGE, (a as u32, b), c),
            1 => move_to(job, RECORDS, (a as u32, b), c),
            2 => (job.inputs[0].table.image.length, job.inputs[0].table.image.tail_offset) = (a, b),
            3 => (job.limits.table_bytes, job.limits.table_entries, job.limits.output_bytes) = (a, b, c),
            4 => job.output_segments = a.min(b)..a.max(b),
            5 => (job.options.block_bytes, job.options.restart_interval) = (a as u32, b as u32),
            6 => (job.identity.store, job.identity.shard, job.identity.epoch) = (a.into(), b, c),
            _ => job.replica = Some(Replica { parts: a as u8, has_tails: b.is_multiple_of(2) }),
        });
        if let Ok(outputs) = asked {
            succeeded += 1;
            attacker.shard.free_ranges(&outputs).unwrap();
        }
        if round % 50 == 0 {
            check_nothing_left(&arena);
        }
    }
    assert!(succeeded > 0, "none of them was possible");
    check_nothing_left(&arena);
}

/// When the asking tenant's session ends in the middle of its jobs, no other session ends.
#[test]
fn compactions_of_who_leaves() {
    let arena = Arena::start(LONG);
    for _ in 0..5 {
        let mut attacker = Attacker::new(&arena);
        let job = attacker.job.clone();
        attacker.ask(&job).unwrap();
        let client: Arc<MemoryClient> = Arc::clone(attacker.shard.client());
        client.end();
        let late: Result<Vec<u8>, Error> = attacker.shard.submit_job(99, job_kind::COMPACTION, b"", LONG);
        assert!(late.is_err());
        arena.use_it();
    }
    forebay_hostile::arena::eventually("all of it comes back", || {
        let figures = arena.figures("hostile");
        (figures.extents, figures.ranges, figures.jobs, figures.stores) == (0, 0, 0, 0)
    });
    arena.check();
}
