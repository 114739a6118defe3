//! Every interleaving of two or three threads over the lock-free kernels, and planted bugs that
//! the checker must find.
//!
//! The model's main thread only starts and joins threads. loom does not explore that a new thread runs before the next
//! step of the main thread (a planted bug that was not found revealed this).
//!
//! `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p forebay-memtable --test loom`

#![cfg(loom)]

use forebay_base::{InternalKey, KeyOrder, Kind, Record, SequenceNumber, Tag};
use forebay_memtable::index::{Index, Records};
use forebay_memtable::log::{Answer, Listed, Log};
use forebay_memtable::planted::{Bug, plant};
use forebay_memtable::reservation::{Extent, Outcome, Reservations};
use forebay_memtable::{HeapMemory, IndexError, Memtable, MemtableOptions, Publication, Reserved, Switch};
use loom::sync::Arc;
use loom::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use loom::thread;
use std::ptr;

/// Explores all interleavings with at most this many forced switches. With three threads, all interleavings would take
/// hours, and bugs of such kernels show with two or three switches.
fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

// ---- publication ----------------------------------------------------------------------------

/// Writers of `ranges` insert (a relaxed store stands for the insert) and publish. A reader checks that everything
/// published is inserted. In the end everything is published.
fn publication(slots: usize, ranges: &'static [(u64, u64)], write: fn(&Publication, &AtomicU64, (u64, u64))) {
    let publication = Arc::new(Publication::new(SequenceNumber(0), slots));
    let inserted: Arc<Vec<AtomicU64>> = Arc::new(ranges.iter().map(|_| AtomicU64::new(0)).collect());
    let writers = (0..ranges.len()).map(|i| {
        let (publication, inserted) = (Arc::clone(&publication), Arc::clone(&inserted));
        thread::spawn(move || write(&publication, &inserted[i], ranges[i]))
    });
    let mut threads: Vec<_> = writers.collect();
    threads.push({
        let (publication, inserted) = (Arc::clone(&publication), Arc::clone(&inserted));
        thread::spawn(move || {
            let published = publication.published().0;
            for (insert, (_, last)) in inserted.iter().zip(ranges) {
                assert!(published < *last || insert.load(Relaxed) == 1, "{last} is published and not inserted");
            }
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
    let last = ranges.iter().map(|range| range.1).max().unwrap();
    assert_eq!(publication.published().0, last, "everything finished is published");
}

fn insert_and_publish(publication: &Publication, inserted: &AtomicU64, (first, last): (u64, u64)) {
    inserted.store(1, Relaxed);
    publication.publish(SequenceNumber(first), SequenceNumber(last));
}

#[test]
fn everything_finished_is_published() {
    model(3, || publication(4, &[(1, 1), (2, 3)], insert_and_publish));
    model(2, || publication(4, &[(1, 1), (2, 3), (4, 4)], insert_and_publish));
}

#[test]
fn a_writer_a_ring_ahead_waits() {
    model(3, || publication(1, &[(1, 1), (2, 2)], insert_and_publish));
    model(1, || publication(2, &[(1, 1), (2, 3), (4, 4)], insert_and_publish));
}

#[test]
fn a_caller_that_waits_goes_on() {
    model(3, || {
        publication(4, &[(1, 1), (2, 2)], |publication, inserted, range| {
            insert_and_publish(publication, inserted, range);
            publication.wait_published(SequenceNumber(range.1));
        });
    });
}

#[test]
#[should_panic(expected = "is published and not inserted")]
fn planted_publish_maximum() {
    let _planting = plant(Bug::PublishMaximum);
    model(2, || publication(4, &[(1, 1), (2, 2)], insert_and_publish));
}

#[test]
#[should_panic(expected = "everything finished is published")]
fn planted_publish_without_fence() {
    let _planting = plant(Bug::PublishWithoutFence);
    model(2, || publication(4, &[(1, 1), (2, 2)], insert_and_publish));
}

/// The caller's part of the contract: mark the reservation only after the insert.
#[test]
#[should_panic(expected = "is published and not inserted")]
fn planted_publish_before_write() {
    model(2, || {
        publication(4, &[(1, 1)], |publication, inserted, (first, last)| {
            publication.publish(SequenceNumber(first), SequenceNumber(last));
            inserted.store(1, Relaxed);
        });
    });
}

// ---- reservation and switch -----------------------------------------------------------------

/// A memtable reduced to its reservations: capacity for two records of 16 bytes.
struct Table {
    base: u64,
    reservations: Reservations,
}

impl Table {
    fn new(base: u64) -> Self {
        Self { base, reservations: Reservations::new(32).unwrap() }
    }
}

/// Takes one sequence number through the kernel of the write path.
fn write(switch: &Switch<Table>, installed: &AtomicU64) -> u64 {
    loop {
        let current = switch.load();
        match current.reservations.reserve(1, 16).unwrap() {
            Outcome::Fits(before) => return current.base + before.count + 1,
            Outcome::Crossed(end) => {
                assert_eq!(end, Extent { count: 2, bytes: 32 }, "the end is where the capacity was crossed");
                let next = Table::new(current.base + end.count);
                let Ok(Outcome::Fits(before)) = next.reservations.reserve(1, 16) else { panic!("it is empty") };
                let sequence = next.base + before.count + 1;
                drop(current);
                switch.replace(Arc::new(next));
                installed.fetch_add(1, Relaxed);
                return sequence;
            }
            Outcome::Full => current.wait_replaced(),
        }
    }
}

/// Threads take `each` numbers; the numbers are dense and each memtable has one successor.
fn switching(threads: usize, each: usize) {
    let first = Table::new(0);
    assert_eq!(first.reservations.reserve(1, 16), Ok(Outcome::Fits(Extent::default())));
    let switch = Arc::new(Switch::new(Arc::new(first)));
    let installed = Arc::new(AtomicU64::new(0));
    let run = {
        let (switch, installed) = (Arc::clone(&switch), Arc::clone(&installed));
        move || (0..each).map(|_| write(&switch, &installed)).collect::<Vec<_>>()
    };
    let threads: Vec<_> = (0..threads).map(|_| thread::spawn(run.clone())).collect();
    let mut numbers: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    numbers.sort_unstable();
    let expected: Vec<_> = (2..).take(numbers.len()).collect();
    assert_eq!(numbers, expected, "numbers are dense");
    assert_eq!(installed.load(Relaxed), numbers.len() as u64 / 2, "each memtable has one successor");
}

#[test]
fn numbers_are_dense_across_a_switch() {
    model(3, || switching(2, 1));
    model(2, || switching(2, 2));
    model(1, || switching(3, 1));
}

#[test]
#[should_panic(expected = "the end is where the capacity was crossed")]
fn planted_everyone_crosses() {
    let _planting = plant(Bug::EveryoneCrosses);
    model(2, || switching(3, 1));
}

/// Slots of a group of the switch, under loom.
const SLOTS: usize = 2;

/// What is known of a value, outside the value: with a planted bug, an access to it would touch freed memory.
#[derive(Clone)]
struct Watch {
    uses: Arc<AtomicU64>,
    dropped: Arc<AtomicBool>,
    uses_before_drop: Arc<AtomicU64>,
}

impl Watch {
    fn new() -> Self {
        let (uses, uses_before_drop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        Self { uses, dropped: Arc::new(AtomicBool::new(false)), uses_before_drop }
    }

    fn is_dropped(&self) -> bool {
        self.dropped.load(Acquire)
    }
}

/// Reports its drop.
struct Watched(Watch);

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.uses_before_drop.store(self.0.uses.load(Relaxed), Relaxed);
        self.0.dropped.store(true, Release);
    }
}

/// Readers load a value while another thread replaces it, and while `guards` hold an earlier value. A held value is not
/// dropped; other values are, after their uses.
fn loaded_values_are_alive(guards: usize, readers: usize) {
    let (earlier, watch, never) = (Watch::new(), Watch::new(), Watch::new());
    let switch = Arc::new(Switch::new(Arc::new(Watched(earlier.clone()))));
    let guards: Vec<_> = (0..guards).map(|_| switch.load()).collect();
    drop(switch.replace(Arc::new(Watched(watch.clone()))));
    let first = ptr::from_ref::<Arc<Watched>>(&switch.load()).addr();
    let replacer = {
        let (switch, never) = (Arc::clone(&switch), never.clone());
        thread::spawn(move || drop(switch.replace(Arc::new(Watched(never)))))
    };
    let readers = (0..readers).map(|_| {
        let (switch, watch) = (Arc::clone(&switch), watch.clone());
        thread::spawn(move || {
            let guard = switch.load();
            let holds_first = ptr::from_ref::<Arc<Watched>>(&guard).addr() == first;
            let check = || assert!(!holds_first || !watch.is_dropped(), "a value outlives its uses");
            check();
            if holds_first {
                watch.uses.fetch_add(1, Relaxed);
            }
            check();
        })
    });
    let threads: Vec<_> = readers.chain([replacer]).collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(earlier.is_dropped(), guards.is_empty());
    drop(guards);
    switch.reclaim();
    assert!(earlier.is_dropped() && watch.is_dropped(), "a replaced value was kept");
    assert_eq!(watch.uses_before_drop.load(Relaxed), watch.uses.load(Relaxed), "a value outlives its uses");
    assert!(!never.is_dropped());
}

#[test]
fn a_loaded_value_is_not_dropped() {
    model(3, || loaded_values_are_alive(0, 1));
    model(2, || loaded_values_are_alive(0, 2));
}

#[test]
fn more_loads_than_slots_go_on() {
    model(3, || loaded_values_are_alive(SLOTS, 1));
    model(2, || loaded_values_are_alive(SLOTS - 1, 2));
    model(2, || loaded_values_are_alive(SLOTS, 2));
}

#[test]
#[should_panic(expected = "a value outlives its uses")]
fn planted_unchecked_hazard() {
    let _planting = plant(Bug::UncheckedHazard);
    model(3, || loaded_values_are_alive(0, 1));
}

#[test]
#[should_panic(expected = "a value outlives its uses")]
fn planted_unfenced_hazard() {
    let _planting = plant(Bug::UnfencedHazard);
    model(3, || loaded_values_are_alive(0, 1));
}

#[test]
#[should_panic(expected = "a value outlives its uses")]
fn planted_relaxed_clear() {
    let _planting = plant(Bug::RelaxedClear);
    model(3, || loaded_values_are_alive(0, 1));
}

#[test]
#[should_panic(expected = "a value outlives its uses")]
fn planted_forgotten_slots() {
    let _planting = plant(Bug::ForgottenSlots);
    model(3, || loaded_values_are_alive(SLOTS, 1));
}

// ---- listing in the log ---------------------------------------------------------------------

/// A log whose records are flags, all in one chain.
struct Listing {
    log: Log,
    flags: Vec<AtomicBool>,
}

impl Listing {
    fn add(&self, ordinal: u32) {
        self.flags[ordinal as usize].store(true, Relaxed);
        self.log.add(ordinal, 0, Listed { prefix: 1, tail: 2, record: ordinal }).unwrap();
    }

    fn newest(&self, newest: u32) -> Answer {
        let is_written = |record: u32| {
            let is_written = self.flags.get(record as usize).is_some_and(|flag| flag.load(Relaxed));
            assert!(is_written, "a record is reached before it is written");
            Ok(true)
        };
        self.log.find(0, newest.into(), is_written).unwrap()
    }
}

/// Each thread lists its records and finds them. Another thread looks for the newest record and at the listed ones.
fn listing(adds: &'static [&'static [u32]], reads: bool) {
    let count: usize = adds.iter().map(|ordinals| ordinals.len()).sum();
    let flags = (0..count).map(|_| AtomicBool::new(false)).collect();
    let listing = Arc::new(Listing { log: Log::new(16 * count), flags });
    let adders = adds.iter().map(|ordinals| {
        let listing = Arc::clone(&listing);
        thread::spawn(move || {
            for ordinal in *ordinals {
                listing.add(*ordinal);
                assert_eq!(listing.newest(ordinal + 1), Answer::Record(*ordinal), "a chain is in order");
            }
        })
    });
    let mut threads: Vec<_> = adders.collect();
    if reads {
        let listing = Arc::clone(&listing);
        threads.push(thread::spawn(move || {
            let _ = listing.newest(u32::MAX);
            for ordinal in 0..count {
                if listing.log.listed(ordinal).is_some() {
                    assert!(listing.flags[ordinal].load(Relaxed), "a record is reached before it is written");
                }
            }
        }));
    }
    for thread in threads {
        thread.join().unwrap();
    }
    for ordinal in 0..count as u32 {
        assert_eq!(listing.newest(ordinal + 1), Answer::Record(ordinal), "a chain is in order");
    }
}

#[test]
fn writers_share_a_chain() {
    model(3, || listing(&[&[0], &[1]], false));
    model(3, || listing(&[&[0, 2], &[1]], false));
    model(2, || listing(&[&[0], &[1], &[2]], false));
}

#[test]
fn a_reader_of_a_chain_sees_written_records() {
    model(3, || listing(&[&[0, 1]], true));
    model(2, || listing(&[&[0], &[1]], true));
}

#[test]
#[should_panic(expected = "a chain is in order")]
fn planted_unordered_chain() {
    let _planting = plant(Bug::UnorderedChain);
    model(2, || listing(&[&[0], &[1]], false));
}

#[test]
#[should_panic(expected = "a record is reached before it is written")]
fn planted_relaxed_chain() {
    let _planting = plant(Bug::RelaxedChain);
    model(2, || listing(&[&[0]], true));
}

/// A writer adds records while other threads need order. Everything published before is there, in order.
fn ordering(readers: usize) {
    let options =
        MemtableOptions { order: KeyOrder::Bytewise, base: SequenceNumber(0), capacity_bytes: 4 * 16, piece_bytes: 64 };
    let memtable = Arc::new(Memtable::new(options, Box::new(HeapMemory::new(64))).unwrap());
    let insert = |memtable: &Memtable, key: &[u8]| {
        let Reserved::Fits(mut reservation) = memtable.reserve(1, 16).unwrap() else { panic!("it fits") };
        reservation.insert(Kind::Put, key, b"", None).unwrap();
    };
    insert(&memtable, b"b");
    let writer = {
        let memtable = Arc::clone(&memtable);
        thread::spawn(move || insert(&memtable, b"a"))
    };
    let readers = (0..readers).map(|_| {
        let memtable = Arc::clone(&memtable);
        thread::spawn(move || {
            let mut cursor = memtable.cursor();
            cursor.seek_to_first().unwrap();
            let mut keys = Vec::new();
            while let Some(found) = cursor.record().unwrap() {
                keys.push(found.record.key);
                cursor.next().unwrap();
            }
            assert!(keys == [b"b"] || keys == [b"a", b"b"], "{keys:?}");
        })
    });
    let threads: Vec<_> = std::iter::once(writer).chain(readers.collect::<Vec<_>>()).collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let mut cursor = memtable.cursor();
    cursor.seek_to_last().unwrap();
    assert_eq!(cursor.record().unwrap().map(|found| found.record.key), Some(&b"b"[..]));
    cursor.prev().unwrap();
    assert_eq!(cursor.record().unwrap().map(|found| found.record.key), Some(&b"a"[..]));
}

#[test]
fn those_who_want_order_share_the_work() {
    model(2, || ordering(1));
    model(1, || ordering(2));
}

/// Two writers add records while another thread ships inserted records. It sees their bytes.
fn shipping() {
    let options =
        MemtableOptions { order: KeyOrder::Bytewise, base: SequenceNumber(0), capacity_bytes: 2 * 16, piece_bytes: 32 };
    let memtable = Arc::new(Memtable::new(options, Box::new(HeapMemory::new(32))).unwrap());
    let writers = [b"a", b"b"].map(|key| {
        let memtable = Arc::clone(&memtable);
        thread::spawn(move || {
            let Reserved::Fits(mut reservation) = memtable.reserve(1, 16).unwrap() else { panic!("it fits") };
            reservation.insert(Kind::Put, key, b"", None).unwrap();
        })
    });
    let shipper = {
        let memtable = Arc::clone(&memtable);
        thread::spawn(move || {
            for _ in 0..2 {
                let inserted = memtable.inserted(SequenceNumber(2)).unwrap();
                let bytes = memtable.inserted_prefix();
                assert_eq!(bytes.len() as u64, inserted.bytes);
                for (record, number) in bytes.chunks(16).zip(1..) {
                    assert_eq!(Record::decode(record).unwrap().tag.sequence().0, number);
                }
            }
        })
    };
    for thread in writers.into_iter().chain([shipper]) {
        thread.join().unwrap();
    }
    assert_eq!(memtable.inserted(SequenceNumber(2)).unwrap().count, 2);
}

#[test]
fn a_shipper_sees_the_bytes_of_inserted_records() {
    model(2, shipping);
}

// ---- inserting into the index ---------------------------------------------------------------

/// Records whose bytes are a flag: a thread that reads a key must see that it was written.
struct Flags(Vec<AtomicBool>);

/// Keys that share their first twelve bytes, so that comparing them reads the record. A node has three slots here.
const KEYS: [&[u8]; 5] =
    [b"a long prefix 0", b"a long prefix 1", b"a long prefix 2", b"a long prefix 3", b"a long prefix 4"];

impl Flags {
    fn key(record: u32) -> InternalKey<'static> {
        let tag = Tag::new(SequenceNumber(u64::from(record) + 1), Kind::Put, false);
        InternalKey { user_key: KEYS[record as usize], tag }
    }
}

impl Records for &Flags {
    fn key_at(&self, record: u32) -> Result<InternalKey<'_>, IndexError> {
        assert!(self.0[record as usize].load(Relaxed), "a record is reached before it is written");
        Ok(Flags::key(record))
    }
}

struct Filled {
    index: Index,
    flags: Flags,
}

impl Filled {
    fn new() -> Self {
        let flags = Flags(KEYS.iter().map(|_| AtomicBool::new(false)).collect());
        Self { index: Index::new(KeyOrder::Bytewise, 4).unwrap(), flags }
    }

    fn insert(&self, record: u32) {
        self.flags.0[record as usize].store(true, Relaxed);
        self.index.insert(&self.flags, Flags::key(record), record).unwrap();
    }

    fn all(&self) -> Vec<u32> {
        let mut cursor = self.index.cursor(&self.flags);
        cursor.seek_to_first().unwrap();
        let mut all = Vec::new();
        while let Some(record) = cursor.record() {
            assert!(self.flags.0[record as usize].load(Relaxed), "a record is reached before it is written");
            all.push(record);
            cursor.next().unwrap();
        }
        all
    }

    fn finds(&self, record: u32) -> bool {
        self.index.seek(&self.flags, Flags::key(record)).unwrap() == Some(record)
    }
}

/// Each thread inserts its records; one thread reads if `reads`.
fn inserting(inserts: &'static [&'static [u32]], present: &'static [u32], reads: bool) {
    let filled = Arc::new(Filled::new());
    for record in present {
        filled.insert(*record);
    }
    let inserters = inserts.iter().map(|records| {
        let filled = Arc::clone(&filled);
        thread::spawn(move || {
            for record in *records {
                filled.insert(*record);
                assert!(filled.finds(*record), "an inserter finds its record");
            }
        })
    });
    let mut threads: Vec<_> = inserters.collect();
    if reads {
        let filled = Arc::clone(&filled);
        threads.push(thread::spawn(move || {
            let seen = filled.all();
            assert!(seen.is_sorted(), "{seen:?}");
            assert!(present.iter().all(|record| seen.contains(record)), "a reader misses a record");
        }));
    }
    for thread in threads {
        thread.join().unwrap();
    }
    let mut expected: Vec<_> = inserts.concat();
    expected.extend(present);
    expected.sort_unstable();
    assert_eq!(filled.all(), expected, "all are there, in order");
    assert!(expected.iter().all(|record| filled.finds(*record)));
}

#[test]
fn two_writers_share_a_leaf() {
    model(2, || inserting(&[&[1], &[2]], &[], false));
    model(2, || inserting(&[&[2], &[0]], &[1], false));
}

#[test]
fn a_leaf_splits_under_writers() {
    // The first writer finds a full leaf, which is the root.
    model(2, || inserting(&[&[1], &[3]], &[0, 2, 4], false));
    // Beyond its end.
    model(2, || inserting(&[&[3], &[4]], &[0, 1, 2], false));
}

#[test]
fn a_reader_sees_whole_nodes() {
    model(2, || inserting(&[&[0, 1]], &[2], true));
    model(2, || inserting(&[&[1]], &[0, 2, 4], true));
}

#[test]
#[should_panic(expected = "a record is reached before it is written")]
fn planted_relaxed_latch() {
    let _planting = plant(Bug::RelaxedLatch);
    model(2, || inserting(&[&[2, 1]], &[], true));
}

#[test]
#[should_panic]
fn planted_unchecked_snapshot() {
    let _planting = plant(Bug::UncheckedSnapshot);
    model(2, || inserting(&[&[1]], &[0, 2, 4], true));
}

#[test]
#[should_panic]
fn planted_skipped_latch() {
    let _planting = plant(Bug::SkippedLatch);
    model(2, || inserting(&[&[1], &[2]], &[], false));
}

#[test]
#[should_panic(expected = "all are there, in order")]
fn planted_unlinked_leaf() {
    let _planting = plant(Bug::UnlinkedLeaf);
    model(2, || inserting(&[&[1], &[3]], &[0, 2, 4], false));
}
