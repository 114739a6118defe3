//! Near-data compactions requested by an untrusted client.

use forebay_base::{ErrorKind, SegmentId};
use forebay_env::Random;
use forebay_fabric::{EndpointOptions, inprocess};
use forebay_memory_client::{ClientOptions, ExtentId, MemoryClient, Purpose, ShardHandle, ShardId};
use forebay_memory_node::{Handle, MemoryNode, Options};
use forebay_proto::job_kind;
use forebay_table::job::{
    Clustering, CompactionJob, CompactionResult, Flush, FlushJob, JobIdentity, JobInput, JobLimits, LocatedEntry,
    SizeClasses,
};
use forebay_table::{
    CachedTable, ImageAddress, Placement, SegmentInfo, SegmentKind, TableId, TableMetadata, TableOptions,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);
const IMAGE: SegmentId = SegmentId(1);
const BLOCK: SegmentId = SegmentId(2);

/// A shard with one table of deletions, whose image is in `extent`.
struct Fixture {
    node: Handle,
    connector: inprocess::Connector,
    client: Arc<MemoryClient>,
    shard: ShardHandle,
    extent: ExtentId,
    job: CompactionJob,
}

fn connect(connector: &inprocess::Connector) -> Arc<MemoryClient> {
    MemoryClient::connect(connector.connect().unwrap(), "test", ClientOptions::default()).unwrap()
}

fn fixture() -> Fixture {
    let (listener, connector) = inprocess::listen(1).unwrap();
    let options = Options { extent_bytes: Some(256 << 10), ..Options::with_memory(8 << 20) };
    let node = MemoryNode::start(Box::new(listener), options).unwrap();
    let client = connect(&connector);
    let shard = client.create_private_store().unwrap().acquire_shard(ShardId(0), false).unwrap();
    let extent = client.lease(1, Purpose::Flush).unwrap()[0];
    let identity = JobIdentity {
        store: shard.key().store.0.into(),
        shard: shard.key().shard.0.into(),
        epoch: shard.epoch().0,
        job: 7,
        attempt: 1,
    };
    let flush = FlushJob { identity, snapshots: Vec::new(), options: TableOptions::default() };
    let mut flush = Flush::new(&flush, Vec::new()).unwrap();
    for i in 0..100u64 {
        let (key, tag) = (
            i.to_be_bytes(),
            forebay_base::Tag::new(forebay_base::SequenceNumber(i + 1), forebay_base::Kind::Delete, false),
        );
        let address = forebay_base::LogicalAddress { segment: BLOCK, offset: i * 64 };
        let key = forebay_base::InternalKey { user_key: &key, tag };
        flush.add(&LocatedEntry { key, address, length: 40, expiry_ms: None }).unwrap();
    }
    let built = flush.finish().unwrap().table.unwrap();
    let mut endpoint = client.link().endpoint(EndpointOptions::default()).unwrap();
    endpoint.write(client.resolve(extent, 0).unwrap(), &built.image).unwrap();
    let length = built.image.len() as u64;
    let image = ImageAddress { segment: IMAGE, length, tail_offset: built.tail_offset };
    let properties = Arc::clone(CachedTable::parse(built.tail()).unwrap().properties());
    let table = TableMetadata { id: TableId(1), image, properties };
    let place = |offset| {
        let (node, incarnation) = (client.node().node, client.node().incarnation);
        vec![Placement::Memory { node, incarnation, extent: extent.0, offset }]
    };
    let segments = BTreeMap::from([
        (IMAGE, SegmentInfo::new(SegmentKind::TableImage, length, place(0))),
        (BLOCK, SegmentInfo::new(SegmentKind::MemtableBlock, 6400, place(128 << 10))),
    ]);
    let job = CompactionJob {
        identity,
        merge_operator: String::new(),
        inputs: vec![JobInput { level: 0, table }],
        stretches: Vec::new(),
        segments,
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
    };
    Fixture { node, connector, client, shard, extent, job }
}

impl Fixture {
    fn submit(&self, job: &CompactionJob) -> Result<Vec<u8>, forebay_memory_client::Error> {
        let mut arguments = Vec::new();
        job.encode(&mut arguments).unwrap();
        self.shard.submit_job(1, job_kind::COMPACTION, &arguments, LIMIT)
    }

    fn refused(&self, change: impl FnOnce(&mut CompactionJob)) -> ErrorKind {
        let mut job = self.job.clone();
        change(&mut job);
        self.submit(&job).unwrap_err().kind()
    }
}

fn set_place(job: &mut CompactionJob, change: impl FnOnce(&mut u32, &mut u64, &mut u32, &mut u64)) {
    let info = job.segments.get_mut(&IMAGE).unwrap();
    let Placement::Memory { node, incarnation, extent, offset } = &mut info.placements[0] else { panic!("in memory") };
    change(node, incarnation, extent, offset);
}

#[test]
fn a_compaction_writes_into_the_nodes_own_part() {
    let fixture = fixture();
    let result = CompactionResult::decode(&fixture.submit(&fixture.job).unwrap()).unwrap();
    assert_eq!(result.identity, fixture.job.identity);
    assert_eq!((result.counters.entries_in, result.counters.entries_out), (100, 100));
    let (id, info) = &result.segments[0];
    assert_eq!((*id, result.tables[0].image.segment), (SegmentId(100), SegmentId(100)));
    let Placement::Memory { extent, .. } = info.placements[0] else { panic!("in memory") };
    assert_ne!(extent, fixture.extent.0);
    fixture.shard.map(&[ExtentId(extent)]).unwrap();
    let cached = CachedTable::parse(&result.tables[0].tail).unwrap();
    assert_eq!(cached.properties().deletions, 100);
    assert_eq!(fixture.node.statistics().job_bytes, info.length.next_multiple_of(4096));
}

#[test]
fn what_is_not_the_shards_is_refused() {
    let fixture = fixture();
    let other = connect(&fixture.connector);
    let foreign = other.lease(1, Purpose::Flush).unwrap()[0];
    assert_eq!(fixture.refused(|job| set_place(job, |_, _, extent, _| *extent = foreign.0)), ErrorKind::Invalid);
    assert_eq!(fixture.refused(|job| set_place(job, |_, _, extent, _| *extent = u32::MAX)), ErrorKind::Invalid);
    assert_eq!(fixture.refused(|job| set_place(job, |_, _, _, offset| *offset = 256 << 10)), ErrorKind::Invalid);
    assert_eq!(fixture.refused(|job| set_place(job, |_, _, _, offset| *offset = u64::MAX)), ErrorKind::Invalid);
    // Another node, or an earlier life of this one: the segment may be available elsewhere.
    assert_eq!(fixture.refused(|job| set_place(job, |node, _, _, _| *node += 1)), ErrorKind::Unsupported);
    assert_eq!(fixture.refused(|job| set_place(job, |_, life, _, _| *life ^= 1)), ErrorKind::Unsupported);
    // Buffer sizes are limited by the existing data.
    for length in [257 << 10, 1 << 40, u64::MAX] {
        let refused = fixture.refused(|job| {
            job.segments.get_mut(&IMAGE).unwrap().length = length;
            job.inputs[0].table.image.length = length;
        });
        assert_eq!(refused, ErrorKind::Invalid, "{length}");
    }
    assert_eq!(fixture.refused(|job| job.identity.epoch += 1), ErrorKind::Invalid);
    assert_eq!(fixture.refused(|job| job.identity.store += 1), ErrorKind::Invalid);
    assert_eq!(fixture.refused(|job| job.identity.shard = u64::MAX), ErrorKind::Invalid);
    assert_eq!(fixture.refused(|job| job.output_segments = 0..0), ErrorKind::Invalid);
    assert_eq!(fixture.refused(|job| job.output_segments = 1..10), ErrorKind::Invalid);
    assert_eq!(fixture.refused(|job| job.limits.output_bytes = 1), ErrorKind::Full);
    // A stale epoch.
    let stale = fixture.shard.clone();
    fixture.shard.clone().release().unwrap();
    let mut arguments = Vec::new();
    fixture.job.encode(&mut arguments).unwrap();
    let error = stale.submit_job(2, job_kind::COMPACTION, &arguments, LIMIT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    assert_eq!((fixture.node.statistics().job_bytes, fixture.node.statistics().completed_jobs), (0, 0));
    drop(fixture.client);
}

#[test]
fn damaged_arguments_are_refused() {
    let fixture = fixture();
    let mut arguments = Vec::new();
    fixture.job.encode(&mut arguments).unwrap();
    let seed = 42;
    println!("seed {seed}");
    let mut random = Random::seeded(seed);
    for attempt in 0..2000 {
        let mut damaged = arguments.clone();
        match random.below(3) {
            0 => damaged.truncate(random.below(arguments.len() as u64) as usize),
            1 => random.fill(&mut damaged[8..]),
            _ => damaged[random.below(arguments.len() as u64) as usize] ^= 1 + random.below(255) as u8,
        }
        // Half of the time the checksum is corrected, so that the code after the check is reached.
        if attempt % 2 == 0 && damaged.len() > 12 {
            let end = damaged.len() - 4;
            let crc = forebay_base::checksum(&damaged[..end]);
            damaged[end..].copy_from_slice(&crc.to_le_bytes());
        }
        let _ = fixture.shard.submit_job(attempt, job_kind::COMPACTION, &damaged, LIMIT);
    }
    assert!(fixture.node.is_running());
    fixture.submit(&fixture.job).unwrap();
}

/// A job gets a bounded part of the node's own memory, which no limit of a tenant covers. A job that needs more is left
/// to its owner.
#[test]
fn a_job_that_wants_much_of_the_nodes_own_memory_is_refused() {
    let fixture = fixture();
    let numbers = |count: u64| (0..count).map(forebay_base::SequenceNumber).collect();
    assert_eq!(fixture.refused(|job| job.snapshots = numbers(300_000)), ErrorKind::Unsupported);
    let many = |job: &mut CompactionJob, count| job.inputs = vec![job.inputs[0].clone(); count];
    assert_eq!(fixture.refused(|job| many(job, 15_000)), ErrorKind::Unsupported);
    assert_eq!((fixture.node.statistics().job_bytes, fixture.node.statistics().completed_jobs), (0, 0));
    // Other jobs get what they need.
    let mut job = fixture.job.clone();
    job.snapshots = numbers(1000);
    fixture.submit(&job).unwrap();
    many(&mut job, 100);
    fixture.shard.submit_job(2, job_kind::COMPACTION, &encoded(&job), LIMIT).unwrap();
}

fn encoded(job: &CompactionJob) -> Vec<u8> {
    let mut arguments = Vec::new();
    job.encode(&mut arguments).unwrap();
    arguments
}
