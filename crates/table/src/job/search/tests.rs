//! Tests of searches, among them the bytes of `docs/formats/search.md`.

use super::*;
use crate::builder::{BuiltTable, TableBuilder, TableOptions};
use crate::entry::IndexEntry;
use crate::properties::Creation;
use forebay_base::{ErrorKind, Kind, Record, SegmentId};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Memory with one extent for each thing in it.
#[derive(Default)]
pub(in crate::job) struct Memory {
    pub(in crate::job) extents: BTreeMap<u32, Vec<u8>>,
    reads: u64,
}

impl SearchIo for Memory {
    fn read(&mut self, place: SearchPlace, into: &mut [u8]) -> Result<()> {
        self.reads += 1;
        let foreign = || Error::Io { kind: ErrorKind::Invalid, message: format!("{place:?} is not yours") };
        let extent = self.extents.get(&place.extent).ok_or_else(foreign)?;
        let start = usize::try_from(place.offset).ok().filter(|start| *start <= extent.len()).ok_or_else(foreign)?;
        into.copy_from_slice(extent[start..].get(..into.len()).ok_or_else(foreign)?);
        Ok(())
    }
}

/// A key, its number, and its value, if it is not deleted.
pub(in crate::job) type Written<'a> = (&'a [u8], u64, Option<&'a [u8]>);

pub(in crate::job) struct Tables {
    pub(in crate::job) memory: Memory,
    pub(in crate::job) job: SearchJob,
    pub(in crate::job) tables: Vec<BuiltTable>,
}

impl Tables {
    pub(in crate::job) fn new() -> Self {
        let job = SearchJob { key_order: KeyOrder::Bytewise, inline_bytes: 100, tables: Vec::new(), keys: Vec::new() };
        Self { memory: Memory::default(), job, tables: Vec::new() }
    }

    /// Adds a table of these records, in key order, after 64 bytes that do not belong to it.
    pub(in crate::job) fn add(&mut self, records: &[Written<'_>]) {
        let number = self.job.tables.len() as u32;
        let options = TableOptions { block_bytes: 64, ..TableOptions::default() };
        let mut builder = TableBuilder::new(options, Creation::default());
        let ordinal = builder.segment(SegmentId(number.into()), false).unwrap();
        let mut block = vec![0xee; 64];
        for &(key, sequence, value) in records {
            let sequence = SequenceNumber(sequence);
            let record = value.map_or(Record::delete(sequence, key), |value| Record::put(sequence, key, value));
            let offset_units = (block.len() as u64 - 64) / UNIT_BYTES;
            record.encode(&mut block);
            let key = InternalKey { user_key: key, tag: record.tag };
            let address = RecordAddress { ordinal, offset_units };
            let length = record.length() as u32;
            builder.add(&IndexEntry { key, address, length, expiry_ms: None }).unwrap();
        }
        let table = builder.finish().unwrap();
        let place = |extent| SearchPlace { extent, offset: 64 };
        self.memory.extents.insert(2 * number, [&[0xee; 64], table.image.as_slice()].concat());
        self.memory.extents.insert(2 * number + 1, block);
        self.job.tables.push(SearchedTable { image: place(2 * number), segments: vec![place(2 * number + 1)] });
        self.tables.push(table);
    }

    /// Asks for a key in all tables, the last one first.
    fn ask(&mut self, key: &[u8], number: u64) {
        let number = SequenceNumber(number);
        let target = InternalKey { user_key: key, tag: Tag::seek(number) };
        let block_of = |(table, built): (u32, &BuiltTable)| {
            let cached = crate::CachedTable::parse(built.tail()).unwrap();
            let sparse = cached.sparse_index();
            let block = sparse.block(sparse.seek(KeyOrder::Bytewise, target))?;
            Some(SearchedBlock { table, block })
        };
        let blocks = (0..self.tables.len() as u32).zip(&self.tables).rev().filter_map(block_of).collect();
        self.job.keys.push(SearchedKey { user_key: key.to_vec(), number, blocks });
    }

    /// Runs the search that was asked for, through its encoding.
    fn run(&mut self, most_bytes: usize) -> Result<SearchResult> {
        let mut arguments = Vec::new();
        self.job.encode(&mut arguments);
        let job = SearchJob::decode(&arguments)?;
        assert_eq!(job, self.job);
        let result = run_search(&job, &mut self.memory, most_bytes)?;
        let mut bytes = Vec::new();
        result.encode(&mut bytes);
        assert!(bytes.len() <= most_bytes);
        assert_eq!(SearchResult::decode(&bytes, job.keys.len())?, result);
        Ok(result)
    }
}

/// What was found: the table's place in the order of the search, and the value.
fn value(hit: &Option<SearchHit>) -> Option<(u32, Kind, Vec<u8>)> {
    let hit = hit.as_ref()?;
    let record = Record::decode(hit.record.as_ref().unwrap()).unwrap();
    assert_eq!((record.tag, record.length()), (hit.tag, hit.length as usize));
    Some((hit.block, hit.tag.kind(), record.value.to_vec()))
}

fn sample() -> Tables {
    let mut tables = Tables::new();
    tables.add(&[(b"a", 1, Some(b"old")), (b"b", 2, Some(&[7; 200])), (b"c", 3, Some(b"c"))]);
    tables.add(&[(b"a", 9, Some(b"new")), (b"a", 8, Some(b"middle")), (b"d", 7, None)]);
    tables
}

#[test]
fn the_newest_visible_record_is_found_over_all_tables() {
    let mut tables = sample();
    for (key, number) in [(b"a", 100), (b"a", 8), (b"a", 7), (b"a", 0), (b"c", 100), (b"d", 100), (b"e", 100)] {
        tables.ask(key, number);
    }
    let result = tables.run(1 << 10).unwrap();
    let found: Vec<_> = result.hits.iter().map(value).collect();
    let put = |block, value: &[u8]| Some((block, Kind::Put, value.to_vec()));
    let deleted = Some((0, Kind::Delete, Vec::new()));
    assert_eq!(found, [put(0, b"new"), put(0, b"middle"), put(1, b"old"), None, put(1, b"c"), deleted, None]);
}

#[test]
fn a_long_record_is_answered_by_its_address() {
    let mut tables = sample();
    tables.ask(b"b", 100);
    tables.ask(b"c", 100);
    let result = tables.run(1 << 10).unwrap();
    let long = result.hits[0].clone().unwrap();
    assert!(long.record.is_none() && long.length > 200 && long.tag.sequence() == SequenceNumber(2));
    let mut record = vec![0; long.length as usize];
    let segment = tables.job.tables[0].segments[long.address.ordinal as usize];
    tables.memory.read(segment.behind(long.address.offset_units * UNIT_BYTES).unwrap(), &mut record).unwrap();
    assert_eq!(Record::decode(&record).unwrap().value, [7; 200]);
    assert!(value(&result.hits[1]).is_some());
    // A record without room is also answered by its address. A search without room for the
    // addresses is refused.
    let short = tables.run(3 * MAX_HIT_BYTES).unwrap();
    assert!(short.hits.iter().flatten().all(|hit| hit.record.is_none()));
    assert_eq!(tables.run(3 * MAX_HIT_BYTES - 1).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_result_is_no_longer_than_2_mib_whatever_its_reader_has_room_for() {
    let mut tables = Tables::new();
    let long = vec![7; MAX_RESULT_BYTES / 2];
    tables.add(&[(b"a", 1, Some(&long[..]))]);
    tables.job.inline_bytes = u32::MAX;
    (0..4).for_each(|_| tables.ask(b"a", 100));
    let result = tables.run(usize::MAX).unwrap();
    let has_record: Vec<bool> = result.hits.iter().flatten().map(|hit| hit.record.is_some()).collect();
    assert_eq!(has_record, [true, false, false, false]);
}

#[test]
fn a_search_ends_at_the_table_that_has_the_key() {
    let mut tables = sample();
    tables.ask(b"a", 100);
    tables.run(1 << 10).unwrap();
    assert_eq!(tables.memory.reads, 2, "one block and the record");
}

#[test]
fn every_flipped_bit_of_a_block_is_found() {
    let mut tables = sample();
    tables.ask(b"a", 100);
    let block = tables.job.keys[0].blocks[0].block;
    for bit in 0..8 * block.length as usize {
        let flip = |memory: &mut Memory| memory.extents.get_mut(&2).unwrap()[64 + bit / 8] ^= 1 << (bit % 8);
        flip(&mut tables.memory);
        assert_eq!(tables.run(1 << 10).unwrap_err().kind(), ErrorKind::Corrupt, "bit {bit}");
        flip(&mut tables.memory);
    }
}

#[test]
fn what_the_search_may_not_read_is_refused() {
    let mut tables = sample();
    tables.ask(b"a", 100);
    let good = tables.job.clone();
    let mut refused = |change: fn(&mut SearchJob), kind| {
        tables.job = good.clone();
        change(&mut tables.job);
        assert_eq!(run_search(&tables.job, &mut tables.memory, 1 << 10).unwrap_err().kind(), kind);
    };
    refused(|job| job.tables[1].image.extent = 99, ErrorKind::Invalid);
    refused(|job| job.tables[1].image.offset = u64::MAX, ErrorKind::Invalid);
    refused(|job| job.keys[0].blocks[0].block.offset = u64::MAX, ErrorKind::Corrupt);
    refused(|job| job.keys[0].blocks[0].table = 7, ErrorKind::Corrupt);
    refused(|job| job.tables[1].segments.clear(), ErrorKind::Corrupt);
    refused(|job| job.tables[1].segments[0].extent = 99, ErrorKind::Invalid);
}

#[test]
fn more_than_allowed_is_refused() {
    let mut tables = sample();
    let refused = |job: &SearchJob| {
        let mut bytes = Vec::new();
        job.encode(&mut bytes);
        SearchJob::decode(&bytes).unwrap_err().kind() == ErrorKind::Corrupt
    };
    tables.ask(b"a", 100);
    let key = tables.job.keys[0].clone();
    tables.job.keys = vec![key.clone(); MAX_SEARCHED_KEYS + 1];
    assert!(refused(&tables.job));
    tables.job.keys = vec![key];
    tables.job.keys[0].blocks[0].block.length = MAX_SEARCHED_BYTES as u32 + 1;
    assert!(refused(&tables.job));
    tables.job.keys[0].blocks[0] = SearchedBlock { table: 2, block: BlockAddress { offset: 0, length: 1 } };
    assert!(refused(&tables.job));
}

#[test]
fn golden_search() {
    let place = |extent, offset| SearchPlace { extent, offset };
    let block = BlockAddress { offset: 0x1000, length: 0xfff };
    let job = SearchJob {
        key_order: KeyOrder::Bytewise,
        inline_bytes: 0x200,
        tables: vec![SearchedTable { image: place(1, 0x40), segments: vec![place(2, 0), place(3, 0x80)] }],
        keys: vec![SearchedKey {
            user_key: b"key".to_vec(),
            number: SequenceNumber(300),
            blocks: vec![SearchedBlock { table: 0, block }],
        }],
    };
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut arguments = Vec::new();
    job.encode(&mut arguments);
    assert_eq!(hex(&arguments), "0100800401014002020003800101036b6579ac0201008020ff1f");
    let mut record = Vec::new();
    let written = Record::put(SequenceNumber(5), b"key", b"v");
    written.encode(&mut record);
    record.truncate(written.length());
    let hit = SearchHit {
        block: 0,
        tag: written.tag,
        address: RecordAddress { ordinal: 1, offset_units: 0x10 },
        length: written.length() as u32,
        record: Some(record),
    };
    let long = SearchHit { length: 0x1234, record: None, ..hit.clone() };
    let result = SearchResult { waiting: 2, hits: vec![Some(hit), None, Some(long)] };
    let mut bytes = Vec::new();
    result.encode(&mut bytes);
    assert_eq!(hex(&bytes), "010201810a0110120187cfd64e010500000000000003016b6579760001810a0110b42400");
}

proptest! {
    #[test]
    fn any_bytes_decode_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), keys in 0usize..5) {
        if let Ok(job) = SearchJob::decode(&bytes) {
            let mut again = Vec::new();
            job.encode(&mut again);
            prop_assert_eq!(&again, &bytes);
            let _ = run_search(&job, &mut Memory::default(), 1 << 10);
        }
        let _ = SearchResult::decode(&bytes, keys);
    }

    #[test]
    fn any_change_of_the_arguments_gives_an_answer_or_an_error(at in 0usize..60, to: u8) {
        let mut tables = sample();
        tables.ask(b"a", 100);
        let mut arguments = Vec::new();
        tables.job.encode(&mut arguments);
        if let Some(byte) = arguments.get_mut(at) {
            *byte = to;
        }
        if let Ok(job) = SearchJob::decode(&arguments) {
            let _ = run_search(&job, &mut tables.memory, 1 << 10);
        }
    }
}
