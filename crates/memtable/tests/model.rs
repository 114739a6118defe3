//! The memtable against an ordered map.

#![cfg(not(any(loom, shuttle)))]

use forebay_base::{InternalKey, KeyOrder, Kind, Record, SequenceNumber, Tag};
use forebay_memtable::{
    BlockBytes, HeapMemory, ImageCursor, IndexImage, Memtable, MemtableOptions, RecordRef, Reserved,
};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BTreeMap;

const BASE: u64 = 1000;

/// A record in the model, besides its key.
#[derive(Debug, Clone)]
struct Write {
    kind: Kind,
    key: Vec<u8>,
    value: Vec<u8>,
    expiry_ms: Option<u64>,
}

impl Write {
    fn length(&self) -> usize {
        Record::encoded_length(self.key.len(), self.value.len(), self.expiry_ms.is_some())
    }
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    // Few bytes and common prefixes, so that keys collide and prefixes decide nothing.
    prop_oneof![
        prop::collection::vec(0u8..3, 0..4),
        prop::collection::vec(0u8..2, 0..5).prop_map(|tail| [b"a common prefix".as_slice(), &tail].concat()),
        prop::collection::vec(any::<u8>(), 0..40),
    ]
}

fn writes() -> impl Strategy<Value = Vec<Vec<Write>>> {
    let kind = prop_oneof![6 => Just(Kind::Put), 2 => Just(Kind::Delete), 1 => Just(Kind::Nothing)];
    let write = (
        kind,
        keys(),
        prop::collection::vec(any::<u8>(), 0..if cfg!(miri) { 10 } else { 300 }),
        prop::option::weighted(0.1, any::<u64>()),
    )
        .prop_map(|(kind, key, value, expiry_ms)| {
            let value = if kind == Kind::Delete { Vec::new() } else { value };
            Write { kind, key, value, expiry_ms }
        });
    prop::collection::vec(prop::collection::vec(write, 1..6), if cfg!(miri) { 1..4 } else { 0..60 })
}

/// User key and sequence number, newest first.
type ModelKey = (Vec<u8>, Reverse<u64>);
type Model = BTreeMap<ModelKey, Write>;
type Entry<'a> = (&'a ModelKey, &'a Write);

fn memtable(order: KeyOrder, capacity_bytes: usize, piece_bytes: usize) -> Memtable {
    let options = MemtableOptions { order, base: SequenceNumber(BASE), capacity_bytes, piece_bytes };
    Memtable::new(options, Box::new(HeapMemory::new(capacity_bytes))).unwrap()
}

/// Inserts batches until one does not fit; returns the model and the encoded bytes.
fn fill(memtable: &Memtable, batches: &[Vec<Write>]) -> (Model, Vec<u8>, u64) {
    let (mut model, mut bytes, mut count) = (Model::new(), Vec::new(), 0);
    for batch in batches {
        let length: usize = batch.iter().map(Write::length).sum();
        let mut reservation = match memtable.reserve(batch.len() as u64, length as u64).unwrap() {
            Reserved::Fits(reservation) => reservation,
            Reserved::Crossed(end) => {
                assert_eq!(end.bytes as usize, bytes.len());
                assert_eq!(end.count, count);
                break;
            }
            Reserved::Full => panic!("full without a crossing"),
        };
        for (left, write) in batch.iter().enumerate().map(|(at, write)| (batch.len() - at, write)) {
            let at = reservation.insert(write.kind, &write.key, &write.value, write.expiry_ms).unwrap();
            count += 1;
            assert_eq!(at.sequence.0, BASE + count);
            assert_eq!(at.offset as usize, bytes.len());
            let tag = Tag::new(at.sequence, write.kind, write.expiry_ms.is_some());
            let tag = if left > 1 { tag.going_on() } else { tag };
            Record { tag, expiry_ms: write.expiry_ms, key: &write.key, value: &write.value }.encode(&mut bytes);
            // Nobody finds a record that does nothing.
            if write.kind != Kind::Nothing {
                model.insert((write.key.clone(), Reverse(at.sequence.0)), write.clone());
            }
        }
        assert_eq!(reservation.records_left(), 0);
    }
    (model, bytes, count)
}

fn same(found: Option<RecordRef<'_>>, expected: Option<Entry<'_>>) {
    let found = found.map(|found| found.record);
    let found = found.map(|r| (r.key.to_vec(), r.tag.sequence().0, r.tag.kind(), r.value.to_vec(), r.expiry_ms));
    let expected = expected.map(|((key, sequence), w)| (key.clone(), sequence.0, w.kind, w.value.clone(), w.expiry_ms));
    assert_eq!(found, expected);
}

fn in_order(model: &Model, order: KeyOrder) -> Vec<Entry<'_>> {
    let mut all: Vec<_> = model.iter().collect();
    all.sort_by(|(a, _), (b, _)| order.compare(&a.0, &b.0).then(a.1.cmp(&b.1)));
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    #[test]
    fn a_memtable_is_an_ordered_map(
        batches in writes(),
        reverse: bool,
        probes in prop::collection::vec((keys(), 0u64..200), if cfg!(miri) { 2 } else { 20 }),
        capacity in 200usize..if cfg!(miri) { 400 } else { 20_000 },
        piece in 1usize..5_000,
    ) {
        let order = if reverse { KeyOrder::ReverseBytewise } else { KeyOrder::Bytewise };
        let memtable = memtable(order, capacity.next_multiple_of(8), piece);
        let (model, bytes, count) = fill(&memtable, &batches);
        let all = in_order(&model, order);

        let prefix = memtable.filled_prefix();
        prop_assert!(bytes.starts_with(prefix));
        prop_assert!(memtable.end().is_some() || bytes.len() - prefix.len() < piece.max(1));
        memtable.end_early();
        prop_assert!(memtable.is_complete());
        prop_assert_eq!(memtable.filled_prefix(), &bytes[..]);
        prop_assert_eq!(memtable.last_sequence().unwrap().0, BASE + count);
        let sorted: Vec<_> = memtable.sorted().unwrap().unwrap().map(Result::unwrap).collect();
        prop_assert_eq!(sorted.len(), all.len());
        for (found, expected) in sorted.into_iter().zip(&all) {
            same(Some(found), Some(*expected));
        }
        let image = memtable.index_image().unwrap().unwrap();
        let image = IndexImage::decode(&image).unwrap();

        for (key, snapshot) in probes.iter().cloned().chain(all.iter().map(|(k, _)| (k.0.clone(), k.1.0 - BASE))) {
            let snapshot = SequenceNumber(BASE + snapshot);
            let expected = all.iter().find(|(k, _)| k.0 == key && k.1.0 <= snapshot.0).copied();
            same(memtable.get(&key, snapshot).unwrap(), expected);
            let remote = image.get(BlockBytes(&bytes), &key, snapshot).unwrap();
            prop_assert_eq!(remote.map(|(_, r)| r.tag), memtable.get(&key, snapshot).unwrap().map(|r| r.record.tag));

            let target = InternalKey { user_key: &key, tag: Tag::seek(snapshot) };
            let before = |k: &ModelKey| {
                order.compare(&k.0, &key).then(snapshot.0.cmp(&k.1.0)).is_lt() || k.0 == key && k.1.0 > snapshot.0
            };
            let split = all.iter().position(|(k, _)| !before(k)).unwrap_or(all.len());
            let mut cursor = memtable.cursor();
            cursor.seek(target).unwrap();
            same(cursor.record().unwrap(), all.get(split).copied());
            cursor.next().unwrap();
            same(cursor.record().unwrap(), all.get(split + 1).copied());
            cursor.seek_for_prev(target).unwrap();
            same(cursor.record().unwrap(), split.checked_sub(1).map(|i| all[i]));
            cursor.prev().unwrap();
            same(cursor.record().unwrap(), split.checked_sub(2).map(|i| all[i]));
            let mut remote = image.cursor(BlockBytes(&bytes));
            let at = |remote: &ImageCursor<'_>| {
                remote.record().map(|record| Record::decode(&bytes[record as usize * 8..]).unwrap().tag.sequence().0)
            };
            remote.seek(target).unwrap();
            prop_assert_eq!(at(&remote), all.get(split).map(|(k, _)| k.1.0));
            remote.seek_for_prev(target).unwrap();
            prop_assert_eq!(at(&remote), split.checked_sub(1).map(|i| all[i].0.1.0));
        }

        let mut cursor = memtable.cursor();
        let mut remote = image.cursor(BlockBytes(&bytes));
        cursor.seek_to_first().unwrap();
        remote.seek_to_first();
        for entry in &all {
            let found = cursor.record().unwrap().unwrap();
            prop_assert_eq!(remote.record().map(|record| u64::from(record) * 8), Some(found.offset));
            same(Some(found), Some(*entry));
            cursor.next().unwrap();
            remote.next();
        }
        prop_assert_eq!(remote.record(), None);
        prop_assert!(cursor.record().unwrap().is_none());
        cursor.seek_to_last().unwrap();
        for entry in all.iter().rev() {
            same(cursor.record().unwrap(), Some(*entry));
            cursor.prev().unwrap();
        }
        prop_assert!(cursor.record().unwrap().is_none());
    }
}

#[test]
fn an_empty_memtable() {
    let memtable = memtable(KeyOrder::Bytewise, 64, 64);
    assert!(memtable.get(b"", SequenceNumber::MAX).unwrap().is_none());
    let mut cursor = memtable.cursor();
    cursor.seek_to_last().unwrap();
    assert!(cursor.record().unwrap().is_none());
    assert!(!memtable.is_complete());
    assert_eq!(memtable.end_early().unwrap().count, 0);
    assert!(memtable.is_complete());
    assert_eq!(memtable.last_sequence(), Some(memtable.base()));
    assert!(matches!(memtable.reserve(1, 16), Ok(Reserved::Full)));
    assert_eq!(memtable.end_early(), None);
}

#[test]
fn inserts_must_add_up_to_the_reservation() {
    use forebay_memtable::MemtableError::{NotReserved, TooLong};
    let memtable = memtable(KeyOrder::Bytewise, 4096, 64);
    let Ok(Reserved::Fits(mut reservation)) = memtable.reserve(2, 64) else { panic!("empty") };
    let too_long = vec![0; (64 << 10) + 1];
    let mut insert = |key: &[u8], value: &[u8]| reservation.insert(Kind::Put, key, value, None).map(|at| at.offset);
    assert_eq!(insert(&too_long, b""), Err(TooLong { key: too_long.len(), value: 0 }));
    assert_eq!(insert(b"k", &[0; 100]), Err(NotReserved { length: 120, left: 64 }));
    assert_eq!(insert(b"k", b""), Ok(0));
    assert_eq!(insert(b"k", b""), Err(NotReserved { length: 16, left: 48 }));
    assert_eq!(insert(b"k", &[0; 30]), Ok(16));
    assert_eq!(insert(b"k", b""), Err(NotReserved { length: 16, left: 0 }));
    assert_eq!(reservation.next_sequence().0, BASE + 3);
}

#[test]
fn a_log_has_no_gap_and_ends_with_a_batch() {
    let memtable = memtable(KeyOrder::Bytewise, 4096, 4096);
    let reserve = |count| match memtable.reserve(count, count * 16).unwrap() {
        Reserved::Fits(reservation) => reservation,
        _ => panic!("it fits"),
    };
    let inserted = |limit| memtable.inserted(SequenceNumber(BASE + limit)).map(|to| (to.count, to.bytes)).unwrap();
    let (mut first, mut second, mut third) = (reserve(1), reserve(2), reserve(1));
    let insert = |reservation: &mut forebay_memtable::Reservation<'_>| {
        reservation.insert(Kind::Put, b"k", b"", None).unwrap();
    };
    insert(&mut third);
    insert(&mut second);
    assert_eq!(inserted(4), (0, 0));
    assert_eq!(memtable.inserted_prefix(), b"");
    insert(&mut first);
    assert_eq!(inserted(0), (0, 0));
    assert_eq!(inserted(1), (1, 16));
    assert_eq!(memtable.inserted_prefix().len(), 16);
    assert_eq!(inserted(4), (2, 32), "the second batch is there in part");
    insert(&mut second);
    assert_eq!(inserted(100), (4, 64));
    assert_eq!(inserted(1), (4, 64), "what was found once stays found");
    let goes_on = memtable.inserted_prefix().chunks(16).map(|record| Record::decode(record).unwrap().tag.goes_on());
    assert_eq!(goes_on.collect::<Vec<_>>(), [false, true, false, false]);
}

#[test]
fn ten_thousand_random_keys() {
    let count: u64 = if cfg!(miri) { 30 } else { 10_000 };
    let mut random = forebay_env::Random::seeded(9);
    let memtable = memtable(KeyOrder::Bytewise, count as usize * 64, 1 << 12);
    let mut model = BTreeMap::new();
    for i in 1..=count {
        let key = random.word().to_be_bytes();
        let bytes = Record::encoded_length(8, 8, false) as u64;
        let Ok(Reserved::Fits(mut reservation)) = memtable.reserve(1, bytes) else { panic!("room was left") };
        reservation.insert(Kind::Put, &key, &i.to_le_bytes(), None).unwrap();
        model.insert(key, i);
    }
    let unordered = memtable.index_bytes();
    let mut cursor = memtable.cursor();
    cursor.seek_to_first().unwrap();
    for (key, i) in &model {
        let record = cursor.record().unwrap().unwrap().record;
        assert_eq!((record.key, record.value), (&key[..], &i.to_le_bytes()[..]));
        assert_eq!(memtable.get(key, SequenceNumber::MAX).unwrap().unwrap().record, record);
        cursor.next().unwrap();
    }
    let ordered = memtable.index_bytes() - unordered;
    assert!(cfg!(miri) || unordered < 10_000 * 27, "{unordered} bytes of log for {count} records");
    assert!(cfg!(miri) || ordered < 10_000 * 18, "{ordered} bytes of ordered index for {count} records");
}

#[test]
fn many_versions_are_found_at_old_and_new_snapshots() {
    let count: u64 = if cfg!(miri) { 12 } else { 300 };
    let memtable = memtable(KeyOrder::Bytewise, count as usize * 2 * 32, 1 << 12);
    for i in 0..count {
        for key in [b"hot", b"too"] {
            let Ok(Reserved::Fits(mut reservation)) = memtable.reserve(1, 24) else { panic!("room was left") };
            reservation.insert(Kind::Put, key, &i.to_le_bytes()[..5], None).unwrap();
        }
        // Records written later must be found where the ordered index was made before.
        for version in [0, i / 2, i] {
            for (at, key) in [b"hot", b"too"].into_iter().enumerate() {
                let sequence = SequenceNumber(BASE + 2 * version + at as u64 + 1);
                let found = memtable.get(key, sequence).unwrap().unwrap();
                assert_eq!((found.record.tag.sequence(), found.record.key), (sequence, &key[..]));
            }
        }
        assert!(memtable.get(b"hot", SequenceNumber(BASE)).unwrap().is_none());
    }
}

#[test]
fn memory_is_used_again_and_nothing_is_left_in_it() {
    use forebay_memtable::BlockPool;
    let pool = BlockPool::new(4096);
    for round in 0u64..4 {
        let options = MemtableOptions {
            order: KeyOrder::Bytewise,
            base: SequenceNumber(round * 1000),
            capacity_bytes: 4096,
            piece_bytes: 1024,
        };
        let memtable = Memtable::of_pool(options, Box::new(HeapMemory::new(4096)), pool.lookups()).unwrap();
        // The first of each pair belongs to an earlier round.
        for (key, is_new) in [(round.wrapping_sub(1), false), (round, true)] {
            for i in 0..if is_new { 20u64 } else { 0 } {
                let Ok(Reserved::Fits(mut reservation)) = memtable.reserve(1, 32) else { panic!("it fits") };
                reservation.insert(Kind::Put, &[key.to_be_bytes(), i.to_be_bytes()].concat(), b"", None).unwrap();
            }
            for i in 0..20u64 {
                let found = memtable.get(&[key.to_be_bytes(), i.to_be_bytes()].concat(), SequenceNumber::MAX).unwrap();
                assert_eq!(found.is_some(), is_new);
            }
        }
        // Some rounds leave an ordered index, some an open memtable.
        if round % 2 == 0 {
            let mut cursor = memtable.cursor();
            cursor.seek_to_first().unwrap();
            let mut seen = 0;
            while let Some(found) = cursor.record().unwrap() {
                assert_eq!(found.record.key[..8], round.to_be_bytes());
                seen += 1;
                cursor.next().unwrap();
            }
            assert_eq!(seen, 20);
            memtable.end_early().unwrap();
            assert_eq!(memtable.sorted().unwrap().unwrap().count(), 20);
        }
    }
}
