//! Tables against a sorted map: what was built is found, and damage never goes unnoticed.
//!
//! Pins the format of `docs/formats/table.md`.

use forebay_base::{InternalKey, KeyOrder, Kind, LogicalAddress, SegmentId, SequenceNumber, Tag};
use forebay_table::{
    BlockIterator, BuiltTable, CachedTable, Creation, IndexEntry, RangeTombstone, RecordAddress, TableBuilder,
    TableOptions, key_hash,
};
use proptest::prelude::*;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};

/// Maps key and sequence number to the place of the record: segment, unit, value length.
type Model = BTreeMap<(Vec<u8>, Reverse<u64>), (u64, u64, usize)>;

fn length(key: &[u8], value: usize) -> u32 {
    let varint = |n: usize| forebay_base::coding::varint_length(n as u64);
    (12 + varint(key.len()) + varint(value) + key.len() + value) as u32
}

fn build(model: &Model, block_bytes: u32) -> BuiltTable {
    let options = TableOptions { block_bytes, restart_interval: 3, ..TableOptions::default() };
    let mut builder = TableBuilder::new(options, Creation { job: 1, attempt: 2, level: 3 });
    for ((key, Reverse(sequence)), (segment, unit, value)) in model {
        let ordinal = builder.segment(SegmentId(*segment), false).unwrap();
        let tag = Tag::new(SequenceNumber(*sequence), Kind::Put, false);
        builder
            .add(&IndexEntry {
                key: InternalKey { user_key: key, tag },
                address: RecordAddress { ordinal, offset_units: *unit },
                length: length(key, *value),
                expiry_ms: None,
            })
            .unwrap();
    }
    builder.finish().unwrap()
}

fn block<'a>(table: &'a BuiltTable, cached: &CachedTable, index: usize) -> BlockIterator<&'a [u8]> {
    let block = cached.sparse_index().block(index).unwrap();
    BlockIterator::new(&table.image[block.offset as usize..][..block.length as usize]).unwrap()
}

fn models() -> impl Strategy<Value = Model> {
    let key = (prop::collection::vec(97u8..101, 0..8), (1u64..200).prop_map(Reverse));
    let place = (1u64..5, 0u64..1 << 20, 0usize..3_000);
    prop::collection::btree_map(key, place, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_table_holds_what_was_added(model in models(), block_bytes in 40u32..600, probes: Vec<(u8, u64)>) {
        let table = build(&model, block_bytes);
        let cached = CachedTable::parse(table.tail()).unwrap();
        let order = KeyOrder::Bytewise;
        let properties = cached.properties();
        prop_assert_eq!(properties.as_ref(), &table.properties);
        prop_assert_eq!(properties.entries(), model.len() as u64);
        let keys: BTreeSet<_> = model.keys().map(|(key, _)| key).collect();
        prop_assert_eq!(properties.shadowed, (model.len() - keys.len()) as u64);
        prop_assert_eq!(&properties.smallest.user_key, &model.first_key_value().unwrap().0.0);
        prop_assert_eq!(&properties.largest.user_key, &model.last_key_value().unwrap().0.0);
        let value_bytes: usize = model.values().map(|place| place.2).sum();
        prop_assert_eq!(properties.value_bytes, value_bytes as u64);

        // All index blocks in sequence equal the model.
        let mut walked = model.iter();
        for index in 0..cached.sparse_index().block_count() {
            let mut block = block(&table, &cached, index);
            block.seek_to_first().unwrap();
            while let Some(entry) = block.entry() {
                let ((key, Reverse(sequence)), (segment, unit, value)) = walked.next().unwrap();
                prop_assert_eq!(entry.key.user_key, key.as_slice());
                prop_assert_eq!(entry.key.tag.sequence().0, *sequence);
                prop_assert_eq!(properties.segment(entry.address.ordinal).unwrap().id.0, *segment);
                prop_assert_eq!(entry.address.offset_units, *unit);
                prop_assert_eq!(entry.value_length(), Some(*value as u32));
                block.advance().unwrap();
            }
        }
        prop_assert!(walked.next().is_none());

        // The point index finds every version, newest first; the sparse index finds the block.
        for ((key, Reverse(sequence)), (segment, unit, value)) in &model {
            let address = LogicalAddress { segment: SegmentId(*segment), offset: unit * 8 };
            let length = length(key, *value);
            let found = cached.point_index().unwrap().candidates(key_hash(key)).find(|candidate| candidate.address == address).unwrap();
            prop_assert!(found.read_length >= length && (found.read_length - length) * 32 <= length);
            let target = InternalKey { user_key: key, tag: Tag::new(SequenceNumber(*sequence), Kind::Put, false) };
            let mut block = block(&table, &cached, cached.sparse_index().seek(order, target));
            block.seek(order, target).unwrap();
            prop_assert_eq!(block.entry().unwrap().key, target);
        }

        // Seeking to any key is a lower bound of the model.
        for (byte, sequence) in probes {
            let key = vec![byte; 2];
            let target = InternalKey { user_key: &key, tag: Tag::seek(SequenceNumber(sequence >> 8)) };
            let expected = model.keys().find(|(key, Reverse(sequence))| {
                let tag = Tag::new(SequenceNumber(*sequence), Kind::Put, false);
                order.compare_internal(InternalKey { user_key: key, tag }, target) != Ordering::Less
            });
            let index = cached.sparse_index().seek(order, target);
            let found = (index < cached.sparse_index().block_count()).then(|| {
                let mut block = block(&table, &cached, index);
                block.seek(order, target).unwrap();
                let key = block.entry().unwrap().key;
                (key.user_key.to_vec(), Reverse(key.tag.sequence().0))
            });
            prop_assert_eq!(found.as_ref(), expected);
        }
    }

    #[test]
    fn any_tail_is_refused_without_panic(bytes: Vec<u8>) {
        prop_assert!(CachedTable::parse(&bytes).is_err());
    }
}

fn sample() -> (Model, BuiltTable) {
    let model: Model = (0..40u64)
        .map(|i| ((format!("key{i:04}").into_bytes(), Reverse(i + 1)), (1 + i % 2, i * 10, 20 + i as usize)))
        .collect();
    let table = build(&model, 200);
    (model, table)
}

#[test]
fn every_flipped_byte_and_every_cut_is_found() {
    let (_, table) = sample();
    let cached = CachedTable::parse(table.tail()).unwrap();
    for at in 0..table.image.len() {
        let mut bad = table.image.clone();
        bad[at] ^= 1 << (at % 8);
        let tail = CachedTable::parse(&bad[table.tail_offset as usize..]);
        let blocks = (0..cached.sparse_index().block_count()).map(|index| {
            let block = cached.sparse_index().block(index).unwrap();
            BlockIterator::new(&bad[block.offset as usize..][..block.length as usize]).map(|_| ())
        });
        assert!(tail.is_err() || blocks.into_iter().any(|block| block.is_err()), "byte {at} of {}", bad.len());
    }
    for cut in 0..table.tail().len() {
        assert!(CachedTable::parse(&table.tail()[..cut]).is_err(), "cut at {cut}");
        assert!(cut == 0 || CachedTable::parse(&table.tail()[cut..]).is_err(), "starts at {cut}");
    }
}

#[test]
fn golden_image() {
    let (_, table) = sample();
    let footer = &table.image[table.image.len() - 32..];
    assert_eq!((table.image.len(), table.tail_offset), (1078, 482));
    assert_eq!(&footer[..24], [54, 4, 0, 0, 0, 0, 0, 0, 84, 2, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(&footer[28..], b"FBtf");
    assert_eq!(forebay_base::checksum(&table.image), 1_125_202_612);
}

/// The same table, as it was written when index blocks had version 1.
#[test]
fn an_image_of_version_1_is_read() {
    let image = include_bytes!("images/version-1.image");
    assert_eq!((image.len(), forebay_base::checksum(image)), (1120, 4_102_952_684));
    let (_, table) = sample();
    let cached = CachedTable::parse(&image[524..]).unwrap();
    assert_eq!(cached.properties().as_ref(), &table.properties);
    let old = BuiltTable { image: image.to_vec(), tail_offset: 524, properties: table.properties.clone() };
    assert_eq!(walk(&old), walk(&table));
}

/// All entries of a table: key, number, ordinal, unit, length.
fn walk(table: &BuiltTable) -> Vec<(Vec<u8>, u64, u32, u64, u32)> {
    let cached = CachedTable::parse(table.tail()).unwrap();
    let mut found = Vec::new();
    for index in 0..cached.sparse_index().block_count() {
        let mut block = block(table, &cached, index);
        block.seek_to_first().unwrap();
        while let Some(IndexEntry { key, address, length, .. }) = block.entry() {
            let RecordAddress { ordinal, offset_units } = address;
            found.push((key.user_key.to_vec(), key.tag.sequence().0, ordinal, offset_units, length));
            block.advance().unwrap();
        }
    }
    found
}

#[test]
fn entries_out_of_order_are_refused() {
    let mut builder = TableBuilder::new(TableOptions::default(), Creation::default());
    let ordinal = builder.segment(SegmentId(1), false).unwrap();
    let entry = |key: &'static [u8], sequence, kind| IndexEntry {
        key: InternalKey { user_key: key, tag: Tag::new(SequenceNumber(sequence), kind, false) },
        address: RecordAddress { ordinal, offset_units: 0 },
        length: 15,
        expiry_ms: None,
    };
    builder.add(&entry(b"b", 5, Kind::Put)).unwrap();
    assert!(builder.add(&entry(b"b", 5, Kind::Put)).is_err());
    assert!(builder.add(&entry(b"b", 6, Kind::Put)).is_err());
    assert!(builder.add(&entry(b"a", 1, Kind::Put)).is_err());
    assert!(builder.add(&entry(b"c", 1, Kind::RangeDelete)).is_err());
    assert!(builder.add(&IndexEntry { length: 13, ..entry(b"c", 1, Kind::Put) }).is_err());
    let unlisted = RecordAddress { ordinal: 7, offset_units: 0 };
    assert!(builder.add(&IndexEntry { address: unlisted, ..entry(b"c", 1, Kind::Put) }).is_err());
    builder.add(&entry(b"b", 4, Kind::Delete)).unwrap();
    assert_eq!(builder.entries(), 2);
    assert!(TableBuilder::new(TableOptions::default(), Creation::default()).finish().is_err());
}

#[test]
fn range_deletions_are_carried() {
    let mut builder = TableBuilder::new(TableOptions::default(), Creation::default());
    let tag = Tag::new(SequenceNumber(9), Kind::RangeDelete, false);
    let tombstone = RangeTombstone { start: b"b".to_vec(), end: b"d".to_vec(), tag };
    builder.add_range_deletion(tombstone.clone()).unwrap();
    let table = builder.finish().unwrap();
    let cached = CachedTable::parse(table.tail()).unwrap();
    assert_eq!(cached.range_deletions(), [tombstone]);
    assert!(cached.properties().may_contain(b"c") && !cached.properties().may_contain(b"d"));
    assert_eq!(cached.point_index().unwrap().candidates(key_hash(b"c")).count(), 0);
}
