//! Prints how many records a second one thread, and two, insert: 20 B random keys, 400 B values.

use forebay_base::{KeyOrder, Kind, Record, SequenceNumber};
use forebay_env::{Clock, Random, SystemClock};
use forebay_memtable::{HeapMemory, Memtable, MemtableError, MemtableOptions, Publication, Reserved};

const RECORDS: u64 = 150_000;
const KEY_BYTES: usize = 20;
const VALUE: [u8; 400] = [b'v'; 400];

fn memtable() -> Result<Memtable, MemtableError> {
    let capacity_bytes = RECORDS as usize * Record::encoded_length(KEY_BYTES, VALUE.len(), false);
    let options = MemtableOptions {
        order: KeyOrder::Bytewise,
        base: SequenceNumber(0),
        capacity_bytes,
        piece_bytes: MemtableOptions::DEFAULT_PIECE_BYTES,
        seed: 1,
    };
    let memory = HeapMemory::new(capacity_bytes);
    Memtable::new(options, Box::new(memory))
}

/// One thread's share of the keys.
fn insert(memtable: &Memtable, publication: &Publication, keys: &[[u8; KEY_BYTES]]) -> Result<(), MemtableError> {
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
    let clock = SystemClock::new();
    for (order, threads) in [("random", 1), ("random", 1), ("sequential", 1), ("random", 2)] {
        let mut random = Random::seeded(7);
        let mut keys = vec![[b'0'; KEY_BYTES]; RECORDS as usize];
        for (i, key) in (0u64..).zip(&mut keys) {
            // As db_bench's keys: a big-endian number, filled up with zeros.
            let number = if order == "random" { random.below(RECORDS * 10) } else { i };
            key[..8].copy_from_slice(&number.to_be_bytes());
        }
        let memtable = memtable()?;
        let publication = Publication::new(SequenceNumber(0), Publication::DEFAULT_SLOTS);
        let start = clock.now();
        std::thread::scope(|scope| {
            let shares = keys.chunks(keys.len().div_ceil(threads));
            let inserters: Vec<_> =
                shares.map(|share| scope.spawn(|| insert(&memtable, &publication, share))).collect();
            inserters.into_iter().try_for_each(|inserter| inserter.join().unwrap_or(Ok(())))
        })?;
        let seconds = (clock.now() - start) as f64 / 1e9;
        println!(
            "{order:10} {threads} thread(s): {:.2} M inserts/s, {:.0} ns each, index {:.1} B a record",
            RECORDS as f64 / seconds / 1e6,
            seconds * 1e9 / RECORDS as f64,
            memtable.index().used_bytes() as f64 / RECORDS as f64,
        );
        let mut hits = 0;
        let start = clock.now();
        for key in &keys {
            hits += usize::from(memtable.get(key, publication.published())?.is_some());
        }
        let nanos = clock.now() - start;
        println!("           get: {:.0} ns each, {hits} of {RECORDS} found", nanos as f64 / RECORDS as f64);
    }
    Ok(())
}
