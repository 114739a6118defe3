//! Threads that write through memtable switches while others read.

#![cfg(not(any(loom, shuttle)))]

use forebay_base::{KeyOrder, Kind, Record, SequenceNumber};
use forebay_memtable::{HeapMemory, Memtable, MemtableOptions, Publication, Reservation, Reserved, Switch};
use std::sync::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

const CAPACITY_BYTES: usize = if cfg!(miri) { 1 << 10 } else { 64 << 10 };
const WRITES: u64 = if cfg!(miri) { 8 } else { 5_000 };
const WRITERS: u64 = 3;
const BATCH: u64 = 3;

/// A small shard: the current memtable, all memtables, the published number.
struct Shard {
    switch: Switch<Memtable>,
    all: Mutex<Vec<Arc<Memtable>>>,
    publication: Publication,
}

fn memtable(base: SequenceNumber) -> Arc<Memtable> {
    let options = MemtableOptions {
        order: KeyOrder::Bytewise,
        base,
        capacity_bytes: CAPACITY_BYTES,
        piece_bytes: CAPACITY_BYTES / 8,
    };
    Arc::new(Memtable::new(options, Box::new(HeapMemory::new(CAPACITY_BYTES))).unwrap())
}

impl Shard {
    fn new() -> Self {
        let first = memtable(SequenceNumber(0));
        let all = Mutex::new(vec![Arc::clone(&first)]);
        Self { switch: Switch::new(first), all, publication: Publication::new(SequenceNumber(0), 64) }
    }

    /// Writes a batch of records with the same value.
    fn write(&self, keys: [u64; BATCH as usize], value: u64) -> SequenceNumber {
        let bytes = BATCH * Record::encoded_length(8, 8, false) as u64;
        loop {
            let current = self.switch.load();
            match current.reserve(BATCH, bytes).unwrap() {
                Reserved::Fits(reservation) => return self.insert(reservation, keys, value),
                Reserved::Crossed(end) => {
                    let next = memtable(SequenceNumber(current.base().0 + end.count));
                    let Ok(Reserved::Fits(reservation)) = next.reserve(BATCH, bytes) else { panic!("it is empty") };
                    self.all.lock().unwrap().push(Arc::clone(&next));
                    drop(current);
                    self.switch.replace(Arc::clone(&next));
                    return self.insert(reservation, keys, value);
                }
                Reserved::Full => current.wait_replaced(),
            }
        }
    }

    fn insert(&self, mut reservation: Reservation<'_>, keys: [u64; BATCH as usize], value: u64) -> SequenceNumber {
        let (first, last) = (reservation.next_sequence(), reservation.last_sequence());
        for key in keys {
            reservation.insert(Kind::Put, &key.to_be_bytes(), &value.to_le_bytes(), None).unwrap();
        }
        self.publication.publish(first, last);
        self.publication.wait_published(last);
        last
    }

    fn read(&self, key: u64, snapshot: SequenceNumber) -> Option<u64> {
        let all = self.all.lock().unwrap().clone();
        all.iter().rev().find_map(|memtable| {
            let found = memtable.get(&key.to_be_bytes(), snapshot).unwrap()?;
            Some(u64::from_le_bytes(found.record.value.try_into().unwrap()))
        })
    }
}

/// Published records are in the memtables' logs, in the order of their numbers, and end with a
/// batch.
fn check_logs(shard: &Shard) {
    let published = shard.publication.published();
    let mut sequence = 0;
    for memtable in shard.all.lock().unwrap().clone() {
        let inserted = memtable.inserted(published).unwrap();
        let mut bytes = memtable.inserted_prefix().get(..inserted.bytes as usize).unwrap();
        let mut goes_on = false;
        while !bytes.is_empty() {
            let record = Record::decode(bytes).unwrap();
            sequence += 1;
            assert_eq!(record.tag.sequence().0, sequence, "records lie in the order of their numbers");
            goes_on = record.tag.goes_on();
            assert_eq!(goes_on, !sequence.is_multiple_of(BATCH));
            bytes = &bytes[Record::encoded_length(record.key.len(), record.value.len(), false)..];
        }
        assert!(!goes_on, "the log ends within a batch");
    }
    assert_eq!(sequence, published.0);
}

#[test]
fn threads_write_whole_batches_and_dense_numbers() {
    let shard = Shard::new();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let shard = &shard;
                scope.spawn(move || {
                    for i in 1..=WRITES {
                        let value = i * WRITERS + writer;
                        // All writers share keys 0, 1, 2, so a batch is whole if they agree.
                        let last = shard.write([0, 1, 2], value);
                        let seen = shard.read(0, last);
                        assert_eq!(seen, Some(value), "a writer sees its own write");
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                let snapshot = shard.publication.published();
                let values = [0, 1, 2].map(|key| shard.read(key, snapshot));
                assert!(values.iter().all(|value| *value == values[0]), "half a batch at {snapshot:?}: {values:?}");
                std::thread::yield_now();
            }
        });
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                check_logs(&shard);
                std::thread::yield_now();
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        stop.store(true, SeqCst);
    });

    assert_eq!(shard.publication.published().0, WRITERS * WRITES * BATCH);
    check_logs(&shard);
    shard.switch.load().end_early();
    let mut base = 0;
    for memtable in shard.all.into_inner().unwrap() {
        assert_eq!(memtable.base().0, base);
        assert!(memtable.is_complete());
        base = memtable.last_sequence().unwrap().0;
        let mut sequence = memtable.base().0;
        let mut bytes = memtable.filled_prefix();
        while !bytes.is_empty() {
            let record = Record::decode(bytes).unwrap();
            sequence += 1;
            assert_eq!(record.tag.sequence().0, sequence, "records lie in the order of their numbers");
            bytes = &bytes[Record::encoded_length(record.key.len(), record.value.len(), false)..];
        }
        assert_eq!(sequence, base);
    }
    assert_eq!(base, WRITERS * WRITES * BATCH);
}

#[test]
fn threads_insert_into_one_index() {
    let options = MemtableOptions {
        order: KeyOrder::Bytewise,
        base: SequenceNumber(0),
        capacity_bytes: if cfg!(miri) { 4 << 10 } else { 4 << 20 },
        piece_bytes: 4096,
    };
    let memtable = Memtable::new(options, Box::new(HeapMemory::new(options.capacity_bytes))).unwrap();
    let each = if cfg!(miri) { 15 } else { 20_000u64 };
    std::thread::scope(|scope| {
        for writer in 0..3u64 {
            let memtable = &memtable;
            scope.spawn(move || {
                let mut random = forebay_env::Random::seeded(writer);
                for i in 0..each {
                    // Neighbours, so that splices collide, and far keys.
                    let key = if i % 2 == 0 { i * 3 + writer } else { random.word() };
                    let bytes = Record::encoded_length(8, 0, false) as u64;
                    let Ok(Reserved::Fits(mut reservation)) = memtable.reserve(1, bytes) else {
                        panic!("room is left")
                    };
                    reservation.insert(Kind::Put, &key.to_be_bytes(), b"", None).unwrap();
                    if i % 64 == 0 {
                        assert!(memtable.get(&key.to_be_bytes(), SequenceNumber::MAX).unwrap().is_some());
                    }
                }
            });
        }
    });
    let mut cursor = memtable.cursor();
    cursor.seek_to_first().unwrap();
    let mut last: Option<Vec<u8>> = None;
    let mut count = 0;
    while let Some(found) = cursor.record().unwrap() {
        assert!(last.as_deref().is_none_or(|last| last <= found.record.key));
        last = Some(found.record.key.to_vec());
        count += 1;
        cursor.next().unwrap();
    }
    assert_eq!(count, 3 * each);
}
