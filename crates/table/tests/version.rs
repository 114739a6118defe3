//! Version edits and versions: golden bytes, replay, and each invariant with a version that breaks it.
//!
//! Pins the format of `docs/formats/version-edit.md`.

use forebay_base::{InternalKey, KeyOrder, Kind, SegmentId, SequenceNumber, Tag};
use forebay_env::Random;
use forebay_table::{
    Creation, EditLog, Error, ImageAddress, IndexEntry, LogPart, Placement, RecordAddress, SegmentInfo, SegmentKind,
    ShardIdentity, TableBuilder, TableId, TableMetadata, TableOptions, Version, VersionEdit, VersionError,
};
use proptest::prelude::*;
use std::sync::Arc;

fn identity() -> ShardIdentity {
    ShardIdentity {
        store: 7,
        shard: 1,
        key_order: KeyOrder::Bytewise,
        merge_operator: String::new(),
        lower: Some(b"a".to_vec()),
        upper: None,
    }
}

fn memory(extent: u32) -> Vec<Placement> {
    vec![Placement::Memory { node: 1, incarnation: 9, extent, offset: 0 }]
}

/// A table of two keys, with its segments: records in `2 * id - 1`, image in `2 * id`.
fn table(id: u64, keys: [&str; 2], sequences: [u64; 2]) -> (TableMetadata, Vec<(SegmentId, SegmentInfo)>) {
    let (records, image) = (SegmentId(2 * id - 1), SegmentId(2 * id));
    let mut builder = TableBuilder::new(TableOptions::default(), Creation { job: id, attempt: 1, level: 0 });
    let ordinal = builder.segment(records, false).unwrap();
    for (i, (key, sequence)) in keys.into_iter().zip(sequences).enumerate() {
        let tag = Tag::new(SequenceNumber(sequence), Kind::Put, false);
        builder
            .add(&IndexEntry {
                key: InternalKey { user_key: key.as_bytes(), tag },
                address: RecordAddress { ordinal, offset_units: 3 * i as u64 },
                length: 14 + key.len() as u32,
                expiry_ms: None,
            })
            .unwrap();
    }
    let built = builder.finish().unwrap();
    let length = built.image.len() as u64;
    let metadata = TableMetadata {
        id: TableId(id),
        image: ImageAddress { segment: image, length, tail_offset: built.tail_offset },
        properties: Arc::new(built.properties),
    };
    let segments = vec![
        (records, SegmentInfo::new(SegmentKind::MemtableBlock, 64, memory(id as u32))),
        (image, SegmentInfo::new(SegmentKind::TableImage, length, memory(100 + id as u32))),
    ];
    (metadata, segments)
}

fn adding(level: u8, tables: &[(u64, [&str; 2], [u64; 2])]) -> VersionEdit {
    let mut edit = VersionEdit {
        next_table: Some(100),
        next_segment: Some(200),
        last_sequence: Some(SequenceNumber(1_000)),
        ..VersionEdit::default()
    };
    for (id, keys, sequences) in tables {
        let (metadata, segments) = table(*id, *keys, *sequences);
        edit.added_tables.push((level, metadata));
        edit.added_segments.extend(segments);
    }
    edit
}

fn first() -> VersionEdit {
    VersionEdit { identity: Some(identity()), epoch: Some(3), next_job: Some(5), ..VersionEdit::default() }
}

#[test]
fn golden_bytes() {
    let edit = VersionEdit {
        durable_sequence: Some(SequenceNumber(4)),
        added_segments: vec![(SegmentId(3), SegmentInfo::new(SegmentKind::Run, 64, memory(2)))],
        removed_segments: vec![SegmentId(300)],
        removed_tables: vec![(1, TableId(6))],
        ..first()
    };
    let mut out = Vec::new();
    edit.encode(&mut out).unwrap();
    let expected: &[u8] = &[
        b'F', b'B', b'v', b'e', 1, 0, 0, 0, 113, 0, 0, 0, // frame
        2, 38, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, // identity
        8, b'b', b'y', b't', b'e', b'w', b'i', b's', b'e', 0, 1, 1, b'a', 0, //
        4, 8, 3, 0, 0, 0, 0, 0, 0, 0, // epoch
        10, 8, 5, 0, 0, 0, 0, 0, 0, 0, // next job
        14, 8, 4, 0, 0, 0, 0, 0, 0, 0, // durable sequence
        16, 33, 3, 64, 2, 0, 1, 0, 1, 25, 1, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        20, 2, 0xac, 2, // removed segment
        24, 2, 1, 6, // removed table
    ];
    assert_eq!(&out[..out.len() - 4], expected, "{out:?}");
    assert_eq!(VersionEdit::decode(&out), Ok(edit));
}

#[test]
fn a_moved_bound_stays() {
    let edit = VersionEdit { first_key: Some(b"m".to_vec()), ..VersionEdit::default() };
    let mut out = Vec::new();
    edit.encode(&mut out).unwrap();
    assert_eq!(&out[..out.len() - 4], [b'F', b'B', b'v', b'e', 1, 0, 0, 0, 4, 0, 0, 0, 26, 2, 1, b'm'], "{out:?}");
    assert_eq!(VersionEdit::decode(&out), Ok(edit.clone()));
    let version = Version::replay([first(), edit, adding(1, &[(1, ["a", "z"], [1, 2])])]).unwrap();
    assert_eq!(version.first_key(), Some(&b"m"[..]), "tables may reach beyond it");
    assert_eq!(Version::replay([version.to_edit()]).unwrap(), version);
}

fn starting_log(id: u64, last: Option<u64>) -> VersionEdit {
    VersionEdit {
        next_segment: Some(200),
        added_segments: vec![(SegmentId(id), SegmentInfo::new(SegmentKind::MemtableBlock, 64, memory(id as u32)))],
        log_parts: vec![LogPart { segment: SegmentId(id), last: last.map(SequenceNumber) }],
        ..VersionEdit::default()
    }
}

#[test]
fn golden_bytes_of_log_parts() {
    let part = |id, last: Option<u64>| LogPart { segment: SegmentId(id), last: last.map(SequenceNumber) };
    let edit = VersionEdit {
        log_parts: vec![part(3, None), part(300, Some(7))],
        ended_log_parts: vec![SegmentId(2)],
        ..VersionEdit::default()
    };
    let mut out = Vec::new();
    edit.encode(&mut out).unwrap();
    let expected: &[u8] = &[
        b'F', b'B', b'v', b'e', 1, 0, 0, 0, 20, 0, 0, 0, // frame
        28, 2, 3, 0, // a part that may grow
        28, 11, 0xac, 2, 1, 7, 0, 0, 0, 0, 0, 0, 0, // one that ends at 7
        30, 1, 2, // one that ended
    ];
    assert_eq!(&out[..out.len() - 4], expected, "{out:?}");
    assert_eq!(VersionEdit::decode(&out), Ok(edit));
}

#[test]
fn golden_bytes_of_an_expiry() {
    let edit = VersionEdit { expired_before_ms: Some(0x0102), ..VersionEdit::default() };
    let mut out = Vec::new();
    edit.encode(&mut out).unwrap();
    let expected: &[u8] = &[b'F', b'B', b'v', b'e', 1, 0, 0, 0, 10, 0, 0, 0, 32, 8, 2, 1, 0, 0, 0, 0, 0, 0];
    assert_eq!(&out[..out.len() - 4], expected, "{out:?}");
    assert_eq!(VersionEdit::decode(&out), Ok(edit));
}

#[test]
fn the_latest_expiry_counts() {
    let expired = |time_ms| VersionEdit { expired_before_ms: Some(time_ms), ..VersionEdit::default() };
    let version = Version::replay([first(), expired(9), expired(7)]).unwrap();
    assert_eq!(version.expired_before_ms(), 9);
    assert_eq!(Version::replay([version.to_edit()]).unwrap(), version);
    assert_eq!(Version::replay([first()]).unwrap().to_edit().expired_before_ms, None);
}

#[test]
fn parts_of_the_log_come_end_and_go() {
    let version = Version::replay([first(), starting_log(50, None), starting_log(51, None)]).unwrap();
    let parts = |version: &Version| version.log_parts().map(|part| (part.segment.0, part.last)).collect::<Vec<_>>();
    assert_eq!(parts(&version), [(50, None), (51, None)]);
    let none = VersionEdit::default();
    let end = |id, last| VersionEdit {
        log_parts: vec![LogPart { segment: SegmentId(id), last: Some(SequenceNumber(last)) }],
        ..none.clone()
    };
    let version = version.apply(&end(50, 9)).unwrap();
    assert_eq!(parts(&version), [(50, Some(SequenceNumber(9))), (51, None)]);
    assert_eq!(Version::replay([version.to_edit()]).unwrap(), version);
    assert!(version.apply(&end(50, 10)).is_err(), "an end is not moved");
    assert!(version.apply(&end(52, 10)).is_err(), "there is no such segment");
    assert!(version.apply(&VersionEdit { ended_log_parts: vec![SegmentId(52)], ..none.clone() }).is_err());
    // A flush whose table names the segment keeps it; another one releases it.
    let mut flush = adding(0, &[(1, ["a", "c"], [1, 2])]);
    flush.ended_log_parts = vec![SegmentId(50)];
    version.remove_unreferenced(&mut flush).unwrap();
    assert_eq!(flush.removed_segments, [SegmentId(50)]);
    let version = version.apply(&flush).unwrap();
    assert_eq!(parts(&version), [(51, None)]);
    assert!(version.segment(SegmentId(50)).is_none());
}

#[test]
fn an_edit_with_tables_round_trips() {
    let edit = adding(0, &[(1, ["a", "c"], [1, 2]), (2, ["b", "d"], [3, 4])]);
    let mut out = Vec::new();
    edit.encode(&mut out).unwrap();
    assert_eq!(VersionEdit::decode(&out), Ok(edit));
    for at in 0..out.len() {
        let mut bad = out.clone();
        bad[at] ^= 0x20;
        assert!(VersionEdit::decode(&bad).is_err(), "byte {at}");
    }
}

#[test]
fn a_log_is_cut_at_the_first_bad_edit() {
    let mut log = Vec::new();
    let mut ends = vec![0];
    for edit in [first(), adding(0, &[(1, ["a", "b"], [1, 2])]), adding(1, &[(2, ["c", "d"], [1, 2])])] {
        edit.encode(&mut log).unwrap();
        ends.push(log.len());
    }
    for cut in 0..=log.len() {
        let mut edits = EditLog::new(&log[..cut]);
        let count = edits.by_ref().count();
        assert_eq!(count, ends.iter().filter(|end| **end <= cut).count() - 1, "cut at {cut}");
        assert_eq!(edits.valid_bytes(), ends[count]);
        assert_eq!(edits.end().is_none(), ends.contains(&cut));
    }
    // Unwritten memory after the log is zero and not an edit.
    log.extend_from_slice(&[0; 64]);
    let mut edits = EditLog::new(&log);
    assert_eq!(Version::replay(edits.by_ref()).unwrap().levels().len(), 2);
    assert_eq!(edits.valid_bytes(), ends[3]);
}

#[test]
fn tables_come_and_go() {
    let empty = Version::empty(identity());
    let one = empty.apply(&adding(0, &[(1, ["a", "c"], [1, 2]), (2, ["b", "d"], [3, 4])])).unwrap();
    assert_eq!(one.level(0).iter().map(|table| table.id.0).collect::<Vec<_>>(), [2, 1]);
    let mut edit = adding(1, &[(3, ["a", "d"], [1, 4])]);
    edit.removed_tables = vec![(0, TableId(1)), (0, TableId(2))];
    // Table 3 keeps the records of table 1.
    let kept = one.level(0)[1].properties.segments[0];
    let mut properties = (*edit.added_tables[0].1.properties).clone();
    properties.segments.push(kept);
    edit.added_tables[0].1.properties = Arc::new(properties);
    one.remove_unreferenced(&mut edit).unwrap();
    assert_eq!(edit.removed_segments, [SegmentId(2), SegmentId(3), SegmentId(4)]);
    let two = one.apply(&edit).unwrap();
    assert_eq!(one.level(0).len(), 2, "the version before stays");
    assert_eq!(two.segments().keys().map(|id| id.0).collect::<Vec<_>>(), [1, 5, 6]);
    assert_eq!(two.find(1, b"b").unwrap().id, TableId(3));
    assert!(two.find(1, b"e").is_none() && two.find(5, b"b").is_none());
    assert_eq!(two.overlapping(1, Some(b"d"), None).count(), 1);
    assert_eq!(Version::replay([two.to_edit()]).unwrap(), two);

    let (id, info) = (SegmentId(1), two.segment(SegmentId(1)).unwrap().as_ref().clone());
    let moved = SegmentInfo { placements: memory(77), ..info.clone() };
    let edit = VersionEdit { moved_segments: vec![(id, moved)], ..VersionEdit::default() };
    let three = two.apply(&edit).unwrap();
    assert_eq!(three.segment(id).unwrap().placements, memory(77));
    let changed = SegmentInfo { length: info.length + 1, ..info };
    let edit = VersionEdit { moved_segments: vec![(id, changed)], ..VersionEdit::default() };
    assert!(matches!(two.apply(&edit), Err(VersionError::Misfit(_))));
}

#[test]
fn edits_that_do_not_fit_are_refused() {
    let base = Version::empty(identity()).apply(&first()).unwrap();
    let base = base.apply(&adding(1, &[(1, ["a", "c"], [1, 2])])).unwrap();
    let none = VersionEdit::default();
    let another = ShardIdentity { shard: 2, ..identity() };
    let cases = [
        ("another shard", VersionEdit { identity: Some(another), ..none.clone() }),
        ("a number goes back", VersionEdit { next_segment: Some(1), ..none.clone() }),
        ("a sequence goes back", VersionEdit { last_sequence: Some(SequenceNumber(1)), ..none.clone() }),
        ("a table that is not there", VersionEdit { removed_tables: vec![(1, TableId(9))], ..none.clone() }),
        ("a table of another level", VersionEdit { removed_tables: vec![(0, TableId(1))], ..none.clone() }),
        ("a segment that is needed", VersionEdit { removed_segments: vec![SegmentId(1)], ..none.clone() }),
        ("a segment that is not there", VersionEdit { removed_segments: vec![SegmentId(50)], ..none.clone() }),
        ("a segment twice", VersionEdit { added_segments: table(1, ["x", "y"], [1, 2]).1, ..none.clone() }),
        ("no segments", VersionEdit { added_segments: vec![], ..adding(2, &[(2, ["x", "y"], [1, 2])]) }),
        ("a level too deep", adding(16, &[(2, ["x", "y"], [1, 2])])),
    ];
    for (name, edit) in cases {
        let error = base.apply(&edit).unwrap_err();
        assert!(matches!(error, VersionError::Misfit(_)), "{name}: {error}");
    }
    let error = base.apply(&VersionEdit { epoch: Some(2), ..none }).unwrap_err();
    assert_eq!(Error::from(error).kind(), forebay_base::ErrorKind::Fenced);
}

#[test]
fn each_invariant_is_checked() {
    let overlapping = [(1, ["a", "c"], [1, 2]), (2, ["c", "d"], [3, 4])];
    let mut short = adding(1, &[(1, ["a", "c"], [1, 2])]);
    short.added_segments[0].1.length = 8;
    let mut kind = adding(1, &[(1, ["a", "c"], [1, 2])]);
    kind.added_segments[1].1.kind = SegmentKind::Run;
    let mut unreferenced = adding(1, &[(1, ["a", "c"], [1, 2])]);
    unreferenced.added_segments.extend(table(5, ["x", "y"], [1, 2]).1);
    let mut twice = adding(0, &[(1, ["a", "c"], [1, 2])]);
    twice.added_tables.push((1, twice.added_tables[0].1.clone()));
    let cases = [
        (1, "overlapping sequences in level 0", adding(0, &[(1, ["a", "c"], [1, 9]), (2, ["b", "d"], [3, 4])])),
        (2, "overlapping keys", adding(1, &overlapping)),
        (3, "a segment that is too short", short),
        (3, "an image that is a run", kind),
        (4, "a segment that no table names", unreferenced),
        (5, "a table twice", twice),
        (5, "a table's number", VersionEdit { next_table: Some(1), ..adding(1, &[(1, ["a", "c"], [1, 2])]) }),
        (5, "a segment's number", VersionEdit { next_segment: Some(2), ..adding(1, &[(1, ["a", "c"], [1, 2])]) }),
        (6, "keys out of the shard", adding(1, &[(1, ["A", "c"], [1, 2])])),
        (6, "sequences", VersionEdit { last_sequence: None, ..adding(1, &[(1, ["a", "c"], [1, 2])]) }),
    ];
    let mut run = starting_log(50, None);
    run.added_segments[0].1.kind = SegmentKind::Run;
    let cases = cases.into_iter().chain([(7, "a log in a run", run)]);
    for (expected, name, edit) in cases {
        let named = VersionEdit { identity: Some(identity()), ..edit };
        match Version::replay([named]) {
            Err(VersionError::Broken { number, .. }) => assert_eq!(number, expected, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    /// For any edits, replaying their log gives the same version, and so does the version's own edit, and the one edit that
    /// leads there from an earlier version.
    #[test]
    fn replay_is_faithful(seed: u64) {
        let mut random = Random::seeded(seed);
        let mut version = Version::empty(identity());
        let mut log = Vec::new();
        first().encode(&mut log).unwrap();
        version = version.apply(&first()).unwrap();
        let mut earlier = version.clone();
        let mut id = 0;
        for step in 0..12u64 {
            id += 1;
            let sequences = [2 * step + 1, 2 * step + 2];
            let mut edit = adding(0, &[(id, ["a", "z"], sequences)]);
            if version.level(0).len() > 3 && random.one_in(1, 2) {
                edit.removed_tables.extend(version.level(0).iter().map(|table| (0, table.id)));
            }
            if random.one_in(1, 2) {
                let log = starting_log(100 + step, None);
                edit.added_segments.extend(log.added_segments);
                edit.log_parts.extend(log.log_parts);
            } else {
                let ended = version.log_parts().next().map(|part| part.segment);
                edit.ended_log_parts.extend(ended);
            }
            version.remove_unreferenced(&mut edit).unwrap();
            edit.encode(&mut log).unwrap();
            version = version.apply(&edit).unwrap();
            // Tables change their level as they stand, and segments their place.
            if let Some(table) = version.level(0).last().filter(|_| random.one_in(1, 3)).cloned() {
                let moved = table.segments().next().unwrap();
                let info = SegmentInfo { placements: memory(step as u32), ..(**version.segment(moved).unwrap()).clone() };
                let edit = VersionEdit {
                    removed_tables: vec![(0, table.id)],
                    added_tables: vec![(step as u8 + 1, table.as_ref().clone())],
                    moved_segments: vec![(moved, info)],
                    first_key: random.one_in(1, 2).then(|| vec![step as u8]),
                    expired_before_ms: random.one_in(1, 2).then_some(step),
                    ..VersionEdit::default()
                };
                edit.encode(&mut log).unwrap();
                version = version.apply(&edit).unwrap();
            }
            prop_assert_eq!(&earlier.apply(&earlier.edit_to(&version)).unwrap(), &version);
            if random.one_in(1, 3) {
                earlier = version.clone();
            }
        }
        prop_assert_eq!(&Version::replay(EditLog::new(&log)).unwrap(), &version);
        prop_assert_eq!(&Version::replay([version.to_edit()]).unwrap(), &version);
    }

    #[test]
    fn any_bytes_decode_without_panic(bytes: Vec<u8>) {
        let _ = VersionEdit::decode(&bytes);
        prop_assert_eq!(EditLog::new(&bytes).count(), 0);
    }
}
