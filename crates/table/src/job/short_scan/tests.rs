//! Tests of short scans, among them the bytes of `docs/formats/search.md`.

use super::super::search::tests::{Memory, Tables, Written};
use super::*;
use crate::sparse_index::BlockAddress;
use forebay_base::{ErrorKind, Record};
use proptest::prelude::*;

/// A scan over all of the tables. Each is a source that names this many of its blocks.
fn scan(tables: &Tables, from: &[u8], number: u64, most_entries: u32, blocks: usize) -> ShortScanJob {
    let number = SequenceNumber(number);
    let target = InternalKey { user_key: from, tag: Tag::seek(number) };
    let source = |(table, built): (u32, &crate::BuiltTable)| {
        let cached = crate::CachedTable::parse(built.tail()).unwrap();
        let sparse = cached.sparse_index();
        let first = sparse.seek(KeyOrder::Bytewise, target);
        let all: Vec<_> = (first..sparse.block_count()).filter_map(|block| sparse.block(block)).collect();
        let named = all.iter().take(blocks).map(|&block| SearchedBlock { table, block });
        ScannedSource { blocks: named.collect(), goes_on: all.len() > blocks }
    };
    ShortScanJob {
        key_order: KeyOrder::Bytewise,
        inline_bytes: 100,
        most_entries,
        from: from.to_vec(),
        number,
        tables: tables.job.tables.clone(),
        sources: (0..tables.tables.len() as u32).zip(&tables.tables).map(source).collect(),
    }
}

/// Runs the scan through its encoding. Returns the keys and values that it finds, and whether
/// nothing follows.
fn run(tables: &mut Tables, job: &ShortScanJob, most_bytes: usize) -> (Vec<(Vec<u8>, usize)>, bool) {
    let mut arguments = Vec::new();
    job.encode(&mut arguments);
    assert_eq!(ShortScanJob::decode(&arguments).as_ref(), Ok(job));
    let result = run_short_scan(job, &mut tables.memory, most_bytes).unwrap();
    let mut bytes = Vec::new();
    result.encode(&mut bytes);
    assert!(bytes.len() <= most_bytes);
    assert_eq!(ShortScanResult::decode(&bytes).as_ref(), Ok(&result));
    let entry = |entry: &ScannedEntry| match &entry.body {
        ScannedBody::Record(bytes) => {
            let record = Record::decode(bytes).unwrap();
            assert_eq!((record.tag, record.length()), (entry.tag, entry.length as usize));
            (record.key.to_vec(), record.value.len())
        }
        ScannedBody::Key { user_key, .. } => (user_key.clone(), entry.length as usize),
    };
    (result.entries.iter().map(entry).collect(), result.is_whole)
}

fn sample() -> Tables {
    let mut tables = Tables::new();
    tables.add(&[(b"a", 1, Some(b"old")), (b"b", 2, Some(&[7; 200])), (b"c", 3, Some(b"c")), (b"f", 4, Some(b"ff"))]);
    tables.add(&[(b"a", 9, Some(b"newest")), (b"a", 8, Some(b"newer")), (b"c", 7, None), (b"d", 10, Some(b"dddd"))]);
    tables
}

#[test]
fn the_newest_visible_values_come_in_order() {
    let mut tables = sample();
    let mut all = |from: &[u8], number, most| {
        let job = scan(&tables, from, number, most, 100);
        run(&mut tables, &job, 1 << 10)
    };
    let found = |keys: &[(&[u8], usize)]| keys.iter().map(|&(key, length)| (key.to_vec(), length)).collect::<Vec<_>>();
    let (entries, is_whole) = all(b"", 100, 10);
    let [a, (b, length), d, f] = &entries[..] else { panic!("{entries:?}") };
    assert!(is_whole && b == b"b" && *length > 200, "a long record is named by its key");
    assert_eq!([a, d, f].map(Clone::clone).to_vec(), found(&[(b"a", 6), (b"d", 4), (b"f", 2)]));
    assert_eq!(all(b"c", 6, 10), (found(&[(b"c", 1), (b"f", 2)]), true));
    assert_eq!(all(b"a", 8, 1), (found(&[(b"a", 5)]), false));
    assert_eq!(all(b"g", 100, 10), (Vec::new(), true));
    assert_eq!(all(b"a", 100, 0), (Vec::new(), false));
}

#[test]
fn an_answer_ends_where_the_blocks_of_a_source_do() {
    let mut tables = Tables::new();
    let keys: Vec<_> = (0..100u8).map(|i| [b'k', i]).collect();
    let even: Vec<Written<'_>> = keys.iter().step_by(2).map(|key| (&key[..], 5, Some(&b"even"[..]))).collect();
    let odd: Vec<Written<'_>> = keys.iter().skip(1).step_by(2).map(|key| (&key[..], 6, Some(&b"odd"[..]))).collect();
    tables.add(&even);
    tables.add(&odd);
    let mut from = keys[10].to_vec();
    let mut seen = Vec::new();
    loop {
        let job = scan(&tables, &from, 100, 1000, 2);
        let (entries, is_whole) = run(&mut tables, &job, 1 << 20);
        seen.extend(entries.into_iter().map(|(key, _)| key));
        if is_whole {
            break;
        }
        from = seen.last().unwrap().clone();
        from.push(0);
    }
    assert!(seen.iter().eq(&keys[10..]), "{seen:?}");
    // Nor is the result longer than the room for it.
    let job = scan(&tables, &keys[0], 100, 1000, 100);
    let (short, is_whole) = run(&mut tables, &job, 500);
    assert!(!is_whole && short.len() < 10 && !short.is_empty());
    assert_eq!(run_short_scan(&job, &mut tables.memory, 10).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_result_is_no_longer_than_2_mib_whatever_its_reader_has_room_for() {
    let mut tables = Tables::new();
    let long = vec![7; MAX_RESULT_BYTES / 2];
    let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
    tables.add(&keys.map(|key| (key, 1, Some(&long[..]))));
    let all = ShortScanJob { inline_bytes: u32::MAX, ..scan(&tables, b"a", 100, 10, 100) };
    let (entries, is_whole) = run(&mut tables, &all, usize::MAX);
    assert_eq!((entries.len(), is_whole), (1, false));
}

#[test]
fn a_scan_passes_over_no_more_keys_than_16_mib() {
    let mut tables = Tables::new();
    let keys: Vec<_> = (0..300u16).map(|at| [&[7; 64_000][..], &at.to_be_bytes()].concat()).collect();
    let deleted: Vec<Written<'_>> = keys.iter().map(|key| (&key[..], 1, None)).collect();
    tables.add(&deleted[..200]);
    let job = scan(&tables, b"", 100, 10, 1000);
    let result = run_short_scan(&job, &mut tables.memory, 1 << 10).unwrap();
    assert_eq!((result.entries.len(), result.is_whole), (0, true));
    tables.add(&deleted[200..]);
    let job = scan(&tables, b"", 100, 10, 1000);
    let result = run_short_scan(&job, &mut tables.memory, 1 << 10).unwrap();
    assert_eq!((result.entries.len(), result.is_whole), (0, false));
}

#[test]
fn a_record_without_room_is_not_read() {
    let mut tables = sample();
    let mut job = scan(&tables, b"a", 100, 0, 100);
    job.tables.iter_mut().for_each(|table| table.segments.clear());
    assert_eq!(run(&mut tables, &job, 1 << 10), (Vec::new(), false));
}

#[test]
fn damage_and_foreign_memory_are_errors() {
    let mut tables = sample();
    let good = scan(&tables, b"a", 100, 10, 100);
    let mut foreign = good.clone();
    foreign.tables[0].image.extent = 99;
    assert_eq!(run_short_scan(&foreign, &mut tables.memory, 1 << 10).unwrap_err().kind(), ErrorKind::Invalid);
    let mut missing = good.clone();
    missing.tables[1].segments.clear();
    assert_eq!(run_short_scan(&missing, &mut tables.memory, 1 << 10).unwrap_err().kind(), ErrorKind::Corrupt);
    tables.memory.extents.get_mut(&0).unwrap()[70] ^= 1;
    assert_eq!(run_short_scan(&good, &mut tables.memory, 1 << 10).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn golden_short_scan() {
    let tables = sample();
    let mut job = scan(&tables, b"key", 300, 16, 0);
    let block = BlockAddress { offset: 0x1000, length: 0xfff };
    job.sources[1].blocks.push(SearchedBlock { table: 1, block });
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut arguments = Vec::new();
    job.encode(&mut arguments);
    assert_eq!(hex(&arguments), "01006410036b6579ac0202004001014002400103400200000001018020ff1f");
    let written = Record::put(SequenceNumber(5), b"key", b"v");
    let mut record = Vec::new();
    written.encode(&mut record);
    record.truncate(written.length());
    let address = RecordAddress { ordinal: 1, offset_units: 0x10 };
    let length = written.length() as u32;
    let entry = ScannedEntry { table: 1, tag: written.tag, address, length, body: ScannedBody::Record(record) };
    let tag = Tag::new(SequenceNumber(6), Kind::Put, true);
    let body = ScannedBody::Key { user_key: b"long".to_vec(), expiry_ms: Some(0x1234) };
    let long = ScannedEntry { tag, length: 0x4000, body, ..entry.clone() };
    let result = ShortScanResult { waiting: 2, is_whole: true, entries: vec![entry, long] };
    let mut bytes = Vec::new();
    result.encode(&mut bytes);
    assert_eq!(
        hex(&bytes),
        "0102010201810a0110120187cfd64e010500000000000003016b65797601910c011080800100046c6f6e673412000000000000"
    );
}

proptest! {
    #[test]
    fn any_bytes_decode_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(job) = ShortScanJob::decode(&bytes) {
            let mut again = Vec::new();
            job.encode(&mut again);
            prop_assert_eq!(&again, &bytes);
            let _ = run_short_scan(&job, &mut Memory::default(), 1 << 10);
        }
        let _ = ShortScanResult::decode(&bytes);
    }

    #[test]
    fn any_change_of_the_arguments_gives_an_answer_or_an_error(at in 0usize..80, to: u8) {
        let mut tables = sample();
        let mut arguments = Vec::new();
        scan(&tables, b"a", 100, 10, 100).encode(&mut arguments);
        if let Some(byte) = arguments.get_mut(at) {
            *byte = to;
        }
        if let Ok(job) = ShortScanJob::decode(&arguments) {
            let _ = run_short_scan(&job, &mut tables.memory, 1 << 10);
        }
    }
}
