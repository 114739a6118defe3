//! Prints the cost of inserts and lookups of 20 B keys with 400 B values, in nanoseconds of
//! processor time. Other work on the machine disturbs processor time less than elapsed time.

use forebay_base::{KeyOrder, Kind, Record, SequenceNumber};
use forebay_env::Random;
use forebay_memtable::{BlockMemory, HeapMemory, Memtable, MemtableError, MemtableOptions, Publication, Reserved};
use std::ptr::NonNull;
use std::sync::Arc;

const RECORDS: u64 = 150_000;
const ROUNDS: u64 = 6;
const KEY_BYTES: usize = 20;
const VALUE: [u8; 400] = [b'v'; 400];

type Key = [u8; KEY_BYTES];

/// Memory that successive memtables reuse, as with a pool.
struct Reused(Arc<HeapMemory>);

// SAFETY: as `HeapMemory`; a round's memtable is dropped before the next one is made.
unsafe impl BlockMemory for Reused {
    fn base(&self) -> NonNull<u8> {
        self.0.base()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// Nanoseconds that the process has been on a core.
fn processor_nanos() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanos = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    nanos.sum()
}

/// One thread's share of the keys.
fn insert(memtable: &Memtable, publication: &Publication, keys: &[Key]) -> Result<(), MemtableError> {
    let bytes = Record::encoded_length(KEY_BYTES, VALUE.len(), false) as u64;
    for key in keys {
        let Reserved::Fits(mut reservation) = memtable.reserve(1, bytes)? else { return Ok(()) };
        let at = reservation.insert(Kind::Put, key, &VALUE, None)?;
        publication.publish(at.sequence, at.sequence);
        publication.wait_published(at.sequence);
    }
    Ok(())
}

fn main() -> Result<(), MemtableError> {
    let capacity_bytes = RECORDS as usize * Record::encoded_length(KEY_BYTES, VALUE.len(), false);
    let memory = Arc::new(HeapMemory::new(capacity_bytes));
    let options = MemtableOptions {
        order: KeyOrder::Bytewise,
        base: SequenceNumber(0),
        capacity_bytes,
        piece_bytes: MemtableOptions::DEFAULT_PIECE_BYTES,
    };
    for order in ["random", "random", "sequential", "one prefix"] {
        let mut random = Random::seeded(7);
        let mut keys = vec![[b'0'; KEY_BYTES]; RECORDS as usize];
        for (i, key) in (0u64..).zip(&mut keys) {
            // Like db_bench's keys: a big-endian number, padded with zeros.
            let number = if order == "sequential" { i } else { random.below(RECORDS * 10) };
            let at = if order == "one prefix" { KEY_BYTES - 8 } else { 0 };
            key[at..at + 8].copy_from_slice(&number.to_be_bytes());
        }
        let (mut inserting, mut getting, mut index_bytes) = (0, 0, 0);
        for _ in 0..ROUNDS {
            let memtable = Memtable::new(options, Box::new(Reused(Arc::clone(&memory))))?;
            let publication = Publication::new(SequenceNumber(0), Publication::DEFAULT_SLOTS);
            let start = processor_nanos();
            insert(&memtable, &publication, &keys)?;
            let between = processor_nanos();
            for key in &keys {
                std::hint::black_box(memtable.get(key, publication.published())?);
            }
            inserting += between - start;
            getting += processor_nanos() - between;
            index_bytes = memtable.index_bytes();
        }
        println!(
            "{order:10}: {} ns an insert, {} ns a lookup, {:.1} B of index a record",
            inserting / (RECORDS * ROUNDS),
            getting / (RECORDS * ROUNDS),
            index_bytes as f64 / RECORDS as f64,
        );
    }
    Ok(())
}
