//! Golden bytes of a compaction's arguments and result. Other tests pin the table inside; these pin the fields around
//! it.
//!
//! Pins the format of `docs/formats/compaction-job.md`.

use forebay_base::{Kind, SegmentId, SequenceNumber, Tag};
use forebay_table::job::{
    Clustering, CompactionJob, CompactionResult, DeadBytes, JobCounters, JobIdentity, JobInput, JobLimits, OutputTable,
    RecordStretch, Replica, Residents, SizeClasses,
};
use forebay_table::{
    Creation, ImageAddress, OwnedKey, Placement, RangeTombstone, SegmentInfo, SegmentKind, TableId, TableMetadata,
    TableOptions, TableProperties,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const IDENTITY: JobIdentity = JobIdentity { store: 1, shard: 2, epoch: 3, job: 4, attempt: 5 };
const IMAGE: ImageAddress = ImageAddress { segment: SegmentId(9), length: 500, tail_offset: 200 };

fn properties() -> TableProperties {
    let tag = Tag::new(SequenceNumber(6), Kind::Put, false);
    TableProperties {
        key_order: TableOptions::default().key_order,
        creation: Creation { job: 4, attempt: 5, level: 1 },
        smallest: OwnedKey { user_key: b"a".to_vec(), tag },
        largest: OwnedKey { user_key: b"b".to_vec(), tag },
        smallest_sequence: SequenceNumber(6),
        largest_sequence: SequenceNumber(6),
        deletions: 0,
        puts: 2,
        range_deletions: 0,
        merges: 0,
        key_bytes: 2,
        value_bytes: 0,
        record_bytes: 32,
        oldest_expiry_ms: None,
        shadowed: 0,
        segments: Vec::new(),
    }
}

fn info() -> SegmentInfo {
    let placement = Placement::Memory { node: 1, incarnation: 2, extent: 3, offset: 4 };
    SegmentInfo::new(SegmentKind::TableImage, 500, vec![placement])
}

/// Splits an encoded structure at the properties, which start with their magic. Returns what comes before and after
/// them, without the last checksum.
fn around_properties(bytes: &[u8]) -> (&[u8], &[u8]) {
    let mut properties_bytes = Vec::new();
    properties().encode(&mut properties_bytes).unwrap();
    let at = bytes.windows(4).position(|window| window == b"FBpr").unwrap();
    let end = at + properties_bytes.len();
    assert_eq!(&bytes[at..end], properties_bytes);
    (&bytes[..at], &bytes[end..bytes.len() - 4])
}

#[test]
fn golden_arguments() {
    let table = TableMetadata { id: TableId(7), image: IMAGE, properties: Arc::new(properties()) };
    let tag = Tag::new(SequenceNumber(8), Kind::RangeDelete, false);
    let job = CompactionJob {
        identity: IDENTITY,
        merge_operator: String::new(),
        inputs: vec![JobInput { level: 0, table }],
        stretches: Vec::new(),
        segments: BTreeMap::from([(SegmentId(9), info())]),
        output_level: 1,
        is_bottommost: true,
        snapshots: vec![SequenceNumber(5)],
        tombstones: vec![RangeTombstone { start: b"a".to_vec(), end: b"b".to_vec(), tag }],
        limits: JobLimits { table_bytes: 64, table_entries: 65, output_bytes: 66, read_bytes: 67 },
        options: TableOptions::default(),
        clustering: Clustering::Gather(Residents::Rewrite),
        size_classes: SizeClasses { medium_from_bytes: 70, large_from_bytes: 80 },
        vacated: BTreeSet::from([SegmentId(9)]),
        lower: None,
        upper: Some(b"z".to_vec()),
        expire_before_ms: 99,
        output_segments: 300..301,
        replica: Some(Replica { parts: 2, has_tails: true }),
    };
    let mut bytes = Vec::new();
    job.encode(&mut bytes).unwrap();
    let (before, after) = around_properties(&bytes);
    let expected_before: &[u8] = &[
        70, 66, 99, 106, 2, 0, 0, 0, 50, 1, 0, 0, 2, 44, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0,
        0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 4, 10, 8, 98, 121, 116, 101, 119, 105,
        115, 101, 0, 6, 96, 0, 7, 9, 244, 3, 200, 1, 88,
    ];
    let expected_after: &[u8] = &[
        8, 34, 9, 244, 3, 3, 0, 0, 0, 1, 25, 1, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0,
        10, 2, 1, 1, 12, 9, 1, 5, 0, 0, 0, 0, 0, 0, 0, 14, 12, 1, 97, 1, 98, 2, 8, 0, 0, 0, 0, 0, 0, 16, 28, 64, 0, 0,
        0, 0, 0, 0, 0, 65, 0, 0, 0, 0, 0, 0, 0, 66, 0, 0, 0, 0, 0, 0, 0, 67, 0, 0, 0, 18, 10, 0, 16, 0, 0, 16, 0, 0, 0,
        12, 8, 20, 2, 1, 1, 22, 4, 0, 1, 1, 122, 24, 8, 99, 0, 0, 0, 0, 0, 0, 0, 26, 4, 172, 2, 173, 2, 28, 8, 70, 0,
        0, 0, 80, 0, 0, 0, 30, 1, 9, 32, 2, 2, 1,
    ];
    assert_eq!(before, expected_before);
    assert_eq!(after, expected_after);
    assert_eq!(CompactionJob::decode(&bytes).as_ref(), Ok(&job));
    // In a flush, the records come last, before the checksum.
    let stretches = vec![RecordStretch { segment: SegmentId(9), offset: 8, length: 24 }];
    let flush = CompactionJob { inputs: Vec::new(), stretches, output_level: 0, upper: None, ..job };
    bytes.clear();
    flush.encode(&mut bytes).unwrap();
    assert_eq!(bytes[bytes.len() - 9..bytes.len() - 4], [34, 3, 9, 8, 24]);
    assert_eq!(CompactionJob::decode(&bytes), Ok(flush));
}

#[test]
fn golden_result() {
    let result = CompactionResult {
        identity: IDENTITY,
        tables: vec![OutputTable { image: IMAGE, properties: Arc::new(properties()), tail: vec![0xaa, 0xbb] }],
        segments: vec![(SegmentId(9), info())],
        dead: vec![DeadBytes { segment: SegmentId(3), dropped_bytes: 40, moved_bytes: 300 }],
        counters: JobCounters { entries_in: 3, entries_out: 2, bytes_read: 600, bytes_written: 500, gathers: 1 },
        checksums: vec![0x0a0b_0c0d],
    };
    let mut bytes = Vec::new();
    result.encode(&mut bytes).unwrap();
    let (before, after) = around_properties(&bytes);
    let expected_before: &[u8] = &[
        70, 66, 99, 114, 1, 0, 0, 0, 202, 0, 0, 0, 2, 44, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0,
        0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 4, 97, 9, 244, 3, 200, 1, 88,
    ];
    let expected_after: &[u8] = &[
        2, 170, 187, 6, 34, 9, 244, 3, 3, 0, 0, 0, 1, 25, 1, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0,
        0, 0, 0, 0, 0, 8, 4, 3, 40, 172, 2, 10, 7, 3, 2, 216, 4, 244, 3, 1, 12, 4, 13, 12, 11, 10,
    ];
    assert_eq!(before, expected_before);
    assert_eq!(after, expected_after);
    assert_eq!(CompactionResult::decode(&bytes), Ok(result));
}
