//! The whole write path, memtable and all, under sampled schedules with switches in the middle.
//!
//! `RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle cargo test -p forebay-memtable --test shuttle`

#![cfg(shuttle)]

use forebay_base::{KeyOrder, Kind, Record, SequenceNumber};
use forebay_memtable::planted::{Bug, plant};
use forebay_memtable::{HeapMemory, Memtable, MemtableOptions, Publication, Reservation, Reserved, Switch};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;

const SCHEDULES: usize = 2_000;
const BATCH: u64 = 2;
/// Each writer has its own keys, so that nothing hides an unfinished batch. All keys share one prefix.
const KEYS: [[&[u8]; BATCH as usize]; WRITERS as usize] =
    [[b"same prefix a", b"same prefix d"], [b"same prefix b", b"same prefix e"], [b"same prefix c", b"same prefix f"]];
/// Three batches fit.
const CAPACITY_BYTES: usize = 3 * BATCH as usize * Record::encoded_length(13, 8, false);
const WRITERS: u64 = 3;
const WRITES: u64 = 3;

struct Shard {
    switch: Switch<Memtable>,
    all: Mutex<Vec<Arc<Memtable>>>,
    publication: Publication,
}

fn memtable(base: SequenceNumber) -> Arc<Memtable> {
    let options = MemtableOptions { order: KeyOrder::Bytewise, base, capacity_bytes: CAPACITY_BYTES, piece_bytes: 64 };
    Arc::new(Memtable::new(options, Box::new(HeapMemory::new(CAPACITY_BYTES))).unwrap())
}

impl Shard {
    fn new() -> Self {
        let first = memtable(SequenceNumber(0));
        let all = Mutex::new(vec![Arc::clone(&first)]);
        Self { switch: Switch::new(first), all, publication: Publication::new(SequenceNumber(0), 4) }
    }

    fn write(&self, writer: usize, value: u64) -> SequenceNumber {
        let bytes = (CAPACITY_BYTES / 3) as u64;
        loop {
            let current = self.switch.load();
            match current.reserve(BATCH, bytes).unwrap() {
                Reserved::Fits(reservation) => return self.insert(reservation, writer, value),
                Reserved::Crossed(end) => {
                    let next = memtable(SequenceNumber(current.base().0 + end.count));
                    let Ok(Reserved::Fits(reservation)) = next.reserve(BATCH, bytes) else { panic!("it is empty") };
                    let last = self.all.lock().unwrap().last().cloned();
                    assert!(last.is_some_and(|last| Arc::ptr_eq(&last, &current)), "each memtable has one successor");
                    self.all.lock().unwrap().push(Arc::clone(&next));
                    drop(current);
                    self.switch.replace(Arc::clone(&next));
                    return self.insert(reservation, writer, value);
                }
                Reserved::Full => current.wait_replaced(),
            }
        }
    }

    fn insert(&self, mut reservation: Reservation<'_>, writer: usize, value: u64) -> SequenceNumber {
        let (first, last) = (reservation.next_sequence(), reservation.last_sequence());
        for key in KEYS[writer] {
            reservation.insert(Kind::Put, key, &value.to_le_bytes(), None).unwrap();
        }
        self.publication.publish(first, last);
        self.publication.wait_published(last);
        last
    }

    fn read(&self, key: &[u8], snapshot: SequenceNumber) -> Option<u64> {
        let all = self.all.lock().unwrap().clone();
        all.iter().rev().find_map(|memtable| {
            let found = memtable.get(key, snapshot).unwrap()?;
            Some(u64::from_le_bytes(found.record.value.try_into().unwrap()))
        })
    }
}

/// Everything that `snapshot` covers occurs once, in the cursors' order.
fn check_order(shard: &Shard, snapshot: SequenceNumber) {
    let all = shard.all.lock().unwrap().clone();
    let mut seen = 0;
    for memtable in all {
        let mut cursor = memtable.cursor();
        cursor.seek_to_first().unwrap();
        let mut last: Option<(Vec<u8>, std::cmp::Reverse<u64>)> = None;
        while let Some(found) = cursor.record().unwrap() {
            let at = (found.record.key.to_vec(), std::cmp::Reverse(found.record.tag.sequence().0));
            assert!(last.is_none_or(|last| last < at), "records are in order");
            seen += u64::from(found.record.tag.sequence() <= snapshot);
            last = Some(at);
            cursor.next().unwrap();
        }
    }
    assert_eq!(seen, snapshot.0, "a cursor comes to all records");
}

fn write_path() {
    let shard = Arc::new(Shard::new());
    let writers: Vec<_> = (0..KEYS.len())
        .map(|writer| {
            let shard = Arc::clone(&shard);
            thread::spawn(move || {
                for value in 1..=WRITES {
                    let last = shard.write(writer, value);
                    assert_eq!(shard.read(KEYS[writer][0], last), Some(value), "a writer sees its own write");
                }
            })
        })
        .collect();
    for _ in 0..2 {
        let snapshot = shard.publication.published();
        for keys in KEYS {
            let values = keys.map(|key| shard.read(key, snapshot));
            assert_eq!(values[0], values[1], "half a batch at {snapshot:?}");
        }
        check_order(&shard, snapshot);
        // Complete bytes are records, in the order of their numbers.
        let all = shard.all.lock().unwrap().clone();
        for memtable in all {
            let complete = memtable.is_complete();
            let mut bytes = memtable.filled_prefix();
            let mut sequence = memtable.base().0;
            while let Ok(record) = Record::decode(bytes) {
                sequence += 1;
                assert_eq!(record.tag.sequence().0, sequence);
                bytes = &bytes[Record::encoded_length(record.key.len(), record.value.len(), false).min(bytes.len())..];
            }
            assert!(!complete || memtable.last_sequence() == Some(SequenceNumber(sequence)));
            // Published records are in the log, which ends with a batch.
            let inserted = memtable.inserted(snapshot).unwrap();
            let most = snapshot.0.saturating_sub(memtable.base().0);
            assert!(
                inserted.count >= most.min(memtable.last_sequence().map_or(most, |last| last.0 - memtable.base().0))
            );
            let bytes = &memtable.inserted_prefix()[..inserted.bytes as usize];
            assert!(bytes.is_empty() || bytes.len() >= 16);
        }
        thread::yield_now();
    }
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(shard.publication.published().0, WRITERS * WRITES * BATCH);
    check_order(&shard, shard.publication.published());
    shard.switch.load().end_early();
    let all = shard.all.lock().unwrap();
    assert!(all.iter().all(|memtable| memtable.is_complete()));
    assert_eq!(all.last().unwrap().last_sequence(), Some(shard.publication.published()));
    assert_eq!(all.len() as u64, (WRITERS * WRITES).div_ceil(3));
}

#[test]
fn batches_are_whole_across_switches() {
    shuttle::check_random(write_path, SCHEDULES);
    shuttle::check_pct(write_path, SCHEDULES, 3);
}

#[test]
fn whoever_finds_a_memtable_full_learns_its_end() {
    let body = || {
        let memtable = memtable(SequenceNumber(10));
        let threads = (0..WRITERS).map(|_| {
            let memtable = Arc::clone(&memtable);
            thread::spawn(move || {
                if let Reserved::Fits(_) = memtable.reserve(BATCH, CAPACITY_BYTES as u64).unwrap() {
                    let _ = memtable.end_early();
                }
                assert_eq!(memtable.wait_last_sequence(), SequenceNumber(10 + BATCH));
            })
        });
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    };
    shuttle::check_random(body, SCHEDULES);
}

/// A conditional write against one that takes no lock. The condition is that nobody has written key `a`; the write is to
/// key `b`. It is judged once everything before its number is inserted, or, if `early`, before it has a number.
fn conditional_write(early: bool) {
    let capacity_bytes = 4 * Record::encoded_length(1, 8, false);
    let options =
        MemtableOptions { order: KeyOrder::Bytewise, base: SequenceNumber(0), capacity_bytes, piece_bytes: 64 };
    let memtable = Arc::new(Memtable::new(options, Box::new(HeapMemory::new(capacity_bytes))).unwrap());
    let publication = Arc::new(Publication::new(SequenceNumber(0), 4));
    let reserve = |memtable: &Memtable, insert: &dyn Fn(&mut Reservation<'_>)| {
        let bytes = Record::encoded_length(1, 8, false) as u64;
        let Ok(Reserved::Fits(mut reservation)) = memtable.reserve(1, bytes) else { panic!("there is room") };
        insert(&mut reservation);
        reservation.last_sequence()
    };
    let put = |key: &'static [u8], kind| {
        move |reservation: &mut Reservation<'_>| {
            reservation.insert(kind, key, &[7; 8], None).unwrap();
        }
    };
    let writer = {
        let (memtable, publication) = (Arc::clone(&memtable), Arc::clone(&publication));
        thread::spawn(move || {
            let number = reserve(&memtable, &put(b"a", Kind::Put));
            publication.publish(number, number);
            publication.wait_published(number);
            number
        })
    };
    let looked = memtable.get(b"a", publication.published()).unwrap().is_none();
    let number = reserve(&memtable, &|reservation| {
        let before = SequenceNumber(reservation.next_sequence().0 - 1);
        publication.wait_published(before);
        let holds = if early { looked } else { memtable.get(b"a", before).unwrap().is_none() };
        put(b"b", if holds { Kind::Put } else { Kind::Nothing })(reservation);
    });
    publication.publish(number, number);
    publication.wait_published(number);
    let writer = writer.join().unwrap();
    let is_written = memtable.get(b"b", SequenceNumber(2)).unwrap().is_some();
    assert_eq!(is_written, number < writer, "it is written exactly if it comes before the other write");
}

#[test]
fn conditions_are_judged_in_the_order_of_writes() {
    shuttle::check_random(|| conditional_write(false), SCHEDULES);
    shuttle::check_pct(|| conditional_write(false), SCHEDULES, 3);
}

#[test]
#[should_panic]
fn conditions_that_are_judged_early_are_found() {
    shuttle::check_random(|| conditional_write(true), SCHEDULES);
}

// The planted bugs show in several ways. The same body passes without them, above.

#[test]
#[should_panic]
fn planted_link_before_write() {
    let _planting = plant(Bug::LinkBeforeWrite);
    shuttle::check_random(write_path, SCHEDULES);
}

#[test]
#[should_panic]
fn planted_publish_maximum() {
    let _planting = plant(Bug::PublishMaximum);
    // A writer must stand still for long between two steps, which random schedules hardly ever let it do.
    shuttle::check_pct(write_path, SCHEDULES, 3);
}

#[test]
#[should_panic]
fn planted_unlinked_leaf() {
    let _planting = plant(Bug::UnlinkedLeaf);
    shuttle::check_random(write_path, SCHEDULES);
}

#[test]
#[should_panic]
fn planted_everyone_crosses() {
    let _planting = plant(Bug::EveryoneCrosses);
    shuttle::check_random(write_path, SCHEDULES);
}
