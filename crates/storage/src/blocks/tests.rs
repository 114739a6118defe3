//! Block objects, and the requests that reading them takes.
//!
//! Pins the format of `docs/formats/block-object.md`.

use super::*;
use crate::error::{Error, Result};
use crate::name::ObjectName;
use crate::objects::{MemoryObjects, ObjectReader, ObjectStorage, PutMode, ReadRequest};
use bytes::Bytes;
use forebay_base::{ErrorKind, envelope_checksum};
use forebay_env::Nanos;
use forebay_env::sync::{Condvar, Mutex, lock};
use proptest::prelude::*;
use std::ops::Range;
use std::sync::Arc;

const IDENTITY: u64 = 0xf0_7e_ba_11;
const BLOCK_BYTES: u32 = MIN_BLOCK_BYTES;

const fn options(compression: Compression) -> BlockOptions {
    BlockOptions { block_bytes: BLOCK_BYTES, compression }
}

/// Bytes whose blocks alternately shrink and do not.
fn sample(length: usize) -> Vec<u8> {
    let noise = |i: usize| {
        let mixed = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ mixed >> 32).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56) as u8
    };
    (0..length).map(|i| if (i / BLOCK_BYTES as usize).is_multiple_of(2) { (i % 7) as u8 } else { noise(i) }).collect()
}

fn encoded(compression: Compression, about: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut encoder = BlockEncoder::new(options(compression), IDENTITY, about).unwrap();
    let mut out = Vec::new();
    bytes.chunks(700).for_each(|part| encoder.add(part, &mut out).unwrap());
    let directory = encoder.finish(&mut out).unwrap();
    assert_eq!(directory.object_bytes(), out.len() as u64);
    assert_eq!((directory.length(), directory.about().as_ref()), (bytes.len() as u64, about));
    out
}

/// An object in memory that records reads, and lets no read return while it is shut.
#[derive(Debug, Default)]
struct Watched {
    bytes: Vec<u8>,
    reads: Mutex<Vec<(u64, u64)>>,
    is_shut: Mutex<bool>,
    changed: Condvar,
    fails: Mutex<bool>,
    panics: Mutex<bool>,
}

impl Watched {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { bytes, ..Self::default() })
    }

    fn shut(&self, is_shut: bool) {
        *lock(&self.is_shut) = is_shut;
        self.changed.notify_all();
    }

    /// What was read since the last call.
    fn reads(&self) -> Vec<(u64, u64)> {
        std::mem::take(&mut lock(&self.reads))
    }

    fn wait_for_reads(&self, count: usize) {
        let mut reads = lock(&self.reads);
        while reads.len() < count {
            reads = self.changed.wait(reads).unwrap();
        }
    }
}

impl ObjectReader for Watched {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        lock(&self.reads).push((offset, offset + out.len() as u64));
        self.changed.notify_all();
        let mut is_shut = lock(&self.is_shut);
        while *is_shut {
            is_shut = self.changed.wait(is_shut).unwrap();
        }
        assert!(!*lock(&self.panics), "an injected panic");
        if *lock(&self.fails) {
            return Err(Error::new(ErrorKind::Unavailable, "read", "object", "an injected fault"));
        }
        out.copy_from_slice(&self.bytes[offset as usize..offset as usize + out.len()]);
        Ok(())
    }
}

fn cache(capacity_bytes: u64, threads: usize) -> BlockCache {
    BlockCache::new(BlockCacheOptions { capacity_bytes, threads, request_bytes: 8 * u64::from(BLOCK_BYTES) }).unwrap()
}

fn open(cache: &BlockCache, object: &Arc<Watched>) -> BlockObject {
    let length = object.bytes.len() as u64;
    let opened = cache.open(Arc::clone(object) as Arc<dyn ObjectReader>, "object", length, IDENTITY).unwrap();
    object.reads();
    opened
}

fn read(object: &BlockObject, range: Range<usize>) -> Vec<u8> {
    let mut out = vec![0; range.len()];
    object.read_at(range.start as u64, &mut out).unwrap();
    out
}

#[test]
fn golden_bytes() {
    let block = |number: u8, length: [u8; 2], payload: u8, codec: u8, bytes: &[u8], crc: [u8; 4]| {
        let mut block = vec![0x11, 0xba, 0x7e, 0xf0, 0, 0, 0, 0, number, 0, 0, 0, length[0], length[1], 0, 0];
        block.extend_from_slice(&[payload, 0, 0, 0, codec, 0, 0, 0]);
        block.extend_from_slice(bytes);
        block.extend_from_slice(&crc);
        block
    };
    let lz4 = [0x1f, b'a', 1, 0, 0xff, 0xff, 0xff, 0xe9, 0x60, b'a', b'a', b'a', b'a', b'a', b'a'];
    let blocks = [
        block(0, [0, 4], lz4.len() as u8, 1, &lz4, [0xad, 4, 0x74, 0x0a]),
        block(1, [3, 0], 3, 0, b"end", [0xfb, 0x42, 0x7f, 0x43]),
    ];
    let directory = [
        &b"FBBO"[..],
        &[1, 0, 0, 0, 0x11, 0xba, 0x7e, 0xf0, 0, 0, 0, 0, 3, 4, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0],
        b"hi",
        &[43, 0, 0, 0, 31, 0, 0, 0],
        &[0xd5, 0xe5, 0xb9, 0x7a],
    ]
    .concat();
    let footer = [&[50, 0, 0, 0][..], b"FBBE", &[0xe2, 0x44, 0x17, 0xdc]].concat();
    let found = encoded(Compression::Lz4, b"hi", &[&[b'a'; 1024][..], b"end"].concat());
    let expected = [&blocks[0][..], &blocks[1], &directory, &footer].concat();
    assert_eq!(found, expected);
}

#[test]
fn every_flipped_bit_is_found() {
    let bytes = sample(2 * BLOCK_BYTES as usize + 100);
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd { level: 3 }] {
        let good = encoded(compression, b"about", &bytes);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let (cache, bad) = (cache(0, 0), Watched::new(bad));
            let opened = cache.open(bad, "object", good.len() as u64, IDENTITY);
            let found = opened.and_then(|object| object.read_at(0, &mut vec![0; bytes.len()]));
            assert_eq!(found.unwrap_err().kind(), ErrorKind::Corrupt, "{compression}, bit {bit}");
        }
        for cut in 0..good.len() {
            let opened = cache(0, 0).open(Watched::new(good.clone()), "object", cut as u64, IDENTITY);
            assert_eq!(opened.unwrap_err().kind(), ErrorKind::Corrupt, "{compression}, cut at {cut}");
        }
        let other = cache(0, 0).open(Watched::new(good.clone()), "object", good.len() as u64, 7);
        assert_eq!(other.unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

/// A version or a flag of a newer build, with a right checksum, is no damage.
#[test]
fn what_a_newer_build_wrote_is_told_from_damage() {
    let good = encoded(Compression::Lz4, b"about", &sample(100));
    // Directory, checksum of it, and footer of 12 bytes.
    let directory = good.windows(4).rposition(|bytes| bytes == b"FBBO").unwrap();
    let crc = good.len() - 16;
    for at in [4, 6] {
        let mut newer = good.clone();
        newer[directory + at] ^= 2;
        let right = envelope_checksum(&newer[directory..crc]);
        newer[crc..crc + 4].copy_from_slice(&right.to_le_bytes());
        let length = newer.len() as u64;
        let error = cache(0, 0).open(Watched::new(newer), "object", length, IDENTITY).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("which this build does not know"), "{error}");
    }
}

#[test]
fn an_error_names_object_and_block() {
    let mut bytes = encoded(Compression::None, b"", &sample(3 * BLOCK_BYTES as usize));
    bytes[BLOCK_BYTES as usize + 100] ^= 1;
    let cache = cache(1 << 20, 0);
    let object = open(&cache, &Watched::new(bytes));
    let error = object.read_at(0, &mut [0; 2000]).unwrap_err();
    assert_eq!(error.object(), "object");
    assert!(error.to_string().contains("block 1 of the object is damaged"), "{error}");
    // Undamaged blocks are still read.
    assert_eq!(read(&object, 0..1024), sample(1024));
}

#[test]
fn a_read_brings_exactly_the_blocks_it_needs_with_one_request() {
    let bytes = sample(10 * BLOCK_BYTES as usize);
    let object = Watched::new(encoded(Compression::None, b"", &bytes));
    let cache = cache(1 << 20, 0);
    let opened = open(&cache, &object);
    let stored = u64::from(BLOCK_BYTES) + 28;
    assert_eq!(read(&opened, 2100..2200), bytes[2100..2200]);
    assert_eq!(object.reads(), [(2 * stored, 3 * stored)]);
    // Across a boundary; one side is in the cache.
    assert_eq!(read(&opened, 3000..3100), bytes[3000..3100]);
    assert_eq!(object.reads(), [(3 * stored, 4 * stored)]);
    assert_eq!(read(&opened, 2048..4096), bytes[2048..4096]);
    assert!(read(&opened, 7000..7000).is_empty());
    assert_eq!(object.reads(), []);
    // Around what is in the cache.
    assert_eq!(read(&opened, 1000..6000), bytes[1000..6000]);
    assert_eq!(object.reads(), [(0, 2 * stored), (4 * stored, 6 * stored)]);
    let counts = cache.counts();
    assert_eq!((counts.hits, counts.misses, counts.requests), (1 + 2 + 2, 1 + 1 + 4, 4));
    assert_eq!((counts.requested_bytes, counts.directory_requests), (6 * stored, 1));
    assert_eq!(counts.held_bytes, 6 * (1024 + 64));
    let beyond = opened.read_at(bytes.len() as u64 - 1, &mut [0; 2]);
    assert_eq!(beyond.unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn an_object_is_handed_out_as_it_is_stored_in_verified_pieces() {
    let piece_bytes = 3 * u64::from(BLOCK_BYTES);
    for length in [0, 100, 10 * BLOCK_BYTES as usize + 100] {
        let good = encoded(Compression::Lz4, b"about", &sample(length));
        let object = Watched::new(good.clone());
        let cache = cache(1 << 20, 0);
        let pieces = open(&cache, &object).stored(piece_bytes).collect::<Result<Vec<_>>>().unwrap();
        assert_eq!(pieces.concat(), good);
        assert!(pieces.iter().all(|piece| piece.len() as u64 <= piece_bytes));
        // Each byte of the blocks was read once.
        let reads = object.reads();
        assert_eq!(reads.len(), pieces.len() - 1);
        assert!(reads.windows(2).all(|pair| pair[0].1 == pair[1].0), "{reads:?}");
        assert_eq!(cache.counts().held_bytes, 0);
    }
    let good = encoded(Compression::Lz4, b"", &sample(10 * BLOCK_BYTES as usize));
    let blocks = good.len() - 36 - 10 * 4 - 4 - 12;
    for at in (0..blocks).step_by(7) {
        let mut bad = good.clone();
        bad[at] ^= 1;
        let read = open(&cache(0, 0), &Watched::new(bad)).stored(piece_bytes).collect::<Result<Vec<_>>>();
        assert_eq!(read.unwrap_err().kind(), ErrorKind::Corrupt, "byte {at}");
    }
}

#[test]
fn a_long_range_is_several_requests() {
    let bytes = sample(20 * BLOCK_BYTES as usize);
    for threads in [0, 3] {
        let object = Watched::new(encoded(Compression::None, b"", &bytes));
        let cache = cache(1 << 20, threads);
        let opened = open(&cache, &object);
        // Seven blocks of 1,052 bytes are less than 8 KiB.
        assert_eq!(read(&opened, 0..bytes.len()), bytes);
        let mut reads = object.reads();
        reads.sort_unstable();
        let stored = 1024 + 28;
        assert_eq!(reads, [(0, 7 * stored), (7 * stored, 14 * stored), (14 * stored, 20 * stored)]);
    }
}

#[test]
fn what_is_on_its_way_is_not_asked_for_again() {
    let bytes = sample(8 * BLOCK_BYTES as usize);
    let object = Watched::new(encoded(Compression::Lz4, b"", &bytes));
    // Also when nothing can be held.
    for capacity in [1 << 20, 0] {
        let cache = cache(capacity, 1);
        let opened = open(&cache, &object);
        object.shut(true);
        let mut asked = opened.ask(0..2048).unwrap();
        asked.begin();
        object.wait_for_reads(1);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..4).map(|_| scope.spawn(|| read(&opened, 100..2000))).collect();
            while cache.counts().joined < 8 {
                std::thread::yield_now();
            }
            object.shut(false);
            readers.into_iter().for_each(|reader| assert_eq!(reader.join().unwrap(), bytes[100..2000]));
        });
        let mut out = vec![0; 2048];
        asked.wait(&mut out).unwrap();
        assert_eq!(out, bytes[..2048]);
        assert_eq!((object.reads().len(), cache.counts().requests), (1, 1));
    }
}

#[test]
fn several_requests_are_in_flight() {
    let bytes = sample(64 * BLOCK_BYTES as usize);
    let object = Watched::new(encoded(Compression::None, b"", &bytes));
    let cache = cache(1 << 20, 3);
    let opened = open(&cache, &object);
    object.shut(true);
    let mut asked: Vec<_> = (0..5u64).map(|i| opened.ask(i * 4096..i * 4096 + 4096).unwrap()).collect();
    asked.iter_mut().for_each(Asked::begin);
    object.wait_for_reads(3);
    object.shut(false);
    for (i, asked) in asked.into_iter().enumerate() {
        let mut out = vec![0; 4096];
        asked.wait(&mut out).unwrap();
        assert_eq!(out, bytes[i * 4096..i * 4096 + 4096]);
    }
    assert_eq!(object.reads().len(), 5);
}

#[test]
fn what_nobody_wants_any_more_is_not_read() {
    let bytes = sample(8 * BLOCK_BYTES as usize);
    let object = Watched::new(encoded(Compression::None, b"", &bytes));
    let cache = cache(1 << 20, 0);
    let opened = open(&cache, &object);
    let (first, second) = (opened.ask(0..4096).unwrap(), opened.ask(2048..4096).unwrap());
    drop(first);
    let mut out = vec![0; 2048];
    second.wait(&mut out).unwrap();
    assert_eq!(out, bytes[2048..4096]);
    assert_eq!(object.reads().len(), 1);
    drop(opened.ask(4096..8192).unwrap());
    assert_eq!(object.reads().len(), 0);
    assert_eq!(read(&opened, 4096..8192), bytes[4096..8192]);
    assert_eq!(object.reads().len(), 1);
}

/// Two readers share one request, and a block that only one of them wants is damaged.
#[test]
fn a_damaged_block_fails_only_those_who_want_it() {
    let bytes = sample(4 * BLOCK_BYTES as usize);
    let mut stored = encoded(Compression::None, b"", &bytes);
    stored[BLOCK_BYTES as usize + 100] ^= 1;
    let (cache, object) = (cache(1 << 20, 0), Watched::new(stored));
    let opened = open(&cache, &object);
    let (whole, part) = (opened.ask(0..4096).unwrap(), opened.ask(2048..3072).unwrap());
    assert_eq!(whole.wait(&mut [0; 4096]).unwrap_err().kind(), ErrorKind::Corrupt);
    let mut out = vec![0; 1024];
    part.wait(&mut out).unwrap();
    assert_eq!(out, bytes[2048..3072]);
    // The cache has the others.
    assert_eq!(read(&opened, 3072..4096), bytes[3072..4096]);
    assert_eq!(object.reads().len(), 1);
    assert_eq!(opened.read_at(1024, &mut [0; 9]).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_request_that_failed_is_made_again() {
    let bytes = sample(4096);
    let object = Watched::new(encoded(Compression::Lz4, b"", &bytes));
    let cache = cache(1 << 20, 2);
    let opened = open(&cache, &object);
    *lock(&object.fails) = true;
    let failed = opened.read_at(0, &mut [0; 4096]);
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Unavailable);
    let mut asked = opened.ask(0..4096).unwrap();
    asked.begin();
    assert_eq!(asked.wait(&mut [0; 4096]).unwrap_err().kind(), ErrorKind::Unavailable);
    *lock(&object.fails) = false;
    assert_eq!(read(&opened, 0..4096), bytes);
}

#[test]
fn a_request_whose_thread_panicked_fails_and_is_made_again() {
    let bytes = sample(2048);
    let object = Watched::new(encoded(Compression::Lz4, b"", &bytes));
    let cache = cache(1 << 20, 0);
    let opened = open(&cache, &object);
    object.shut(true);
    *lock(&object.panics) = true;
    std::thread::scope(|scope| {
        let first = scope.spawn(|| read(&opened, 0..2048));
        object.wait_for_reads(1);
        let second = scope.spawn(|| opened.read_at(0, &mut [0; 2048]));
        while cache.counts().joined < 2 {
            std::thread::yield_now();
        }
        object.shut(false);
        assert!(first.join().is_err());
        assert_eq!(second.join().unwrap().unwrap_err().kind(), ErrorKind::Io);
    });
    *lock(&object.panics) = false;
    assert_eq!(read(&opened, 0..2048), bytes);
    assert_eq!(object.reads().len(), 2);
}

#[test]
fn a_thread_of_the_cache_outlives_a_read_that_panics() {
    let bytes = sample(2048);
    let object = Watched::new(encoded(Compression::Lz4, b"", &bytes));
    let cache = cache(1 << 20, 1);
    let opened = open(&cache, &object);
    let begun = || {
        let mut asked = opened.ask(0..2048).unwrap();
        asked.begin();
        asked
    };
    object.shut(true);
    *lock(&object.panics) = true;
    let asked = begun();
    object.wait_for_reads(1);
    object.shut(false);
    assert_eq!(asked.wait(&mut [0; 2048]).unwrap_err().kind(), ErrorKind::Io);
    *lock(&object.panics) = false;
    let asked = begun();
    // Nobody else reads.
    object.wait_for_reads(2);
    let mut out = vec![0; 2048];
    asked.wait(&mut out).unwrap();
    assert_eq!(out, bytes);
}

#[test]
fn the_budget_is_kept() {
    let bytes = sample(400 * BLOCK_BYTES as usize);
    let object = Watched::new(encoded(Compression::Lz4, b"", &bytes));
    for capacity in [0, 50 << 10, 1 << 20] {
        let cache = cache(capacity, 0);
        let opened = open(&cache, &object);
        for i in 0..800 {
            let at = i * 37 % 399 * 1024 + 500;
            assert_eq!(read(&opened, at..at + 700), bytes[at..at + 700]);
            assert!(cache.counts().held_bytes <= capacity);
        }
        assert!(cache.counts().held_bytes >= capacity.min(400 * 1088) / 2);
    }
}

#[test]
fn what_is_read_often_stays_while_a_scan_passes() {
    let bytes = sample(1000 * BLOCK_BYTES as usize);
    let object = Watched::new(encoded(Compression::None, b"", &bytes));
    let cache = cache(100 << 10, 0);
    let opened = open(&cache, &object);
    let often = 10;
    for _ in 0..5 {
        read(&opened, 0..often * 1024);
    }
    for i in often..1000 {
        read(&opened, i * 1024..i * 1024 + 1024);
    }
    object.reads();
    read(&opened, 0..often * 1024);
    assert_eq!(object.reads(), []);
}

#[test]
fn an_object_is_written_as_a_stream_and_opened_again() {
    let storage = MemoryObjects::new();
    let name = ObjectName::new("segment/1").unwrap();
    let bytes = sample(5 << 20);
    let mut writer =
        BlockWriter::new(storage.writer(&name).unwrap(), BlockOptions::default(), IDENTITY, b"about").unwrap();
    bytes.chunks(3_000_000).for_each(|part| writer.write(part).unwrap());
    let directory = writer.finish().unwrap();
    let size = storage.size(&name).unwrap();
    assert_eq!(directory.object_bytes(), size);
    let cache = cache(0, 0);
    let object = cache.open(storage.open(&name).unwrap(), name.as_str(), size, IDENTITY).unwrap();
    assert_eq!(object.directory(), &directory);
    assert_eq!(read(&object, 0..bytes.len()), bytes);
    let written = cache.open_as(storage.open(&name).unwrap(), name.as_str(), directory);
    assert_eq!((read(&written, 5000..9000), cache.counts().directory_requests), (bytes[5000..9000].to_vec(), 1));
    storage.put(&name, Bytes::from_static(b"something else"), PutMode::Replace).unwrap();
    let other = cache.open(storage.open(&name).unwrap(), name.as_str(), 14, IDENTITY);
    assert_eq!(other.unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_long_directory_takes_one_request_more() {
    let bytes = vec![0; 8000 * BLOCK_BYTES as usize];
    let encoded = encoded(Compression::Lz4, b"", &bytes);
    let cache = cache(0, 0);
    let object = open(&cache, &Watched::new(encoded));
    assert_eq!((object.directory().blocks(), cache.counts().directory_requests), (8000, 2));
    assert!(object.directory().memory_bytes() < 70_000);
}

#[test]
fn settings_that_are_not_allowed_are_refused() {
    let encoder = |block_bytes, about: usize| {
        let options = BlockOptions { block_bytes, ..BlockOptions::default() };
        BlockEncoder::new(options, 0, &vec![0; about])
    };
    for (block_bytes, about) in [(0, 0), (512, 0), (3000, 0), (2 << 20, 0), (1024, MAX_ABOUT_BYTES + 1)] {
        assert_eq!(encoder(block_bytes, about).unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert!(encoder(1024, MAX_ABOUT_BYTES).is_ok());
}

proptest! {
    #[test]
    fn reads_like_the_bytes_that_were_written(
        length in 0usize..20_000,
        capacity in prop::sample::select(vec![0u64, 5000, 1 << 20]),
        threads in 0usize..2,
        ranges in prop::collection::vec((0usize..20_000, 0usize..6000), 0..20),
    ) {
        let bytes = sample(length);
        let cache = cache(capacity, threads);
        let object = open(&cache, &Watched::new(encoded(Compression::Zstd { level: 1 }, b"x", &bytes)));
        let ranges: Vec<_> = ranges.iter().map(|(at, long)| {
            let start = at % (length + 1);
            start..(start + long).min(length)
        }).collect();
        for range in &ranges {
            prop_assert_eq!(&read(&object, range.clone())[..], &bytes[range.clone()]);
        }
        let mut outs: Vec<Vec<u8>> = ranges.iter().map(|range| vec![0; range.len()]).collect();
        let mut requests: Vec<_> = ranges.iter().zip(&mut outs)
            .map(|(range, out)| ReadRequest { offset: range.start as u64, out })
            .collect();
        object.read_many(&mut requests).unwrap();
        for (range, out) in ranges.into_iter().zip(outs) {
            prop_assert_eq!(&out[..], &bytes[range]);
        }
    }

    #[test]
    fn any_bytes_are_opened_without_panic(
        mut bytes in prop::collection::vec(0u8..20, 0..200), directory in 0u32..250, has_magic: bool,
    ) {
        use forebay_base::{Writer, checksum};
        if has_magic {
            let body = bytes.len().saturating_sub(directory as usize);
            let mut inner = b"FBBO".to_vec();
            inner.extend_from_slice(&bytes[body..]);
            let crc = envelope_checksum(&inner);
            inner.put_u32(crc);
            let mut footer = Vec::new();
            footer.put_u32(inner.len() as u32);
            footer.extend_from_slice(b"FBBE");
            let crc = checksum(&footer);
            footer.put_u32(crc);
            bytes.truncate(body);
            bytes.extend_from_slice(&inner);
            bytes.extend_from_slice(&footer);
        }
        let length = bytes.len() as u64;
        if let Ok(object) = cache(0, 0).open(Watched::new(bytes), "object", length, IDENTITY) {
            let _ = object.read_at(0, &mut [0; 10]);
        }
    }
}

/// A floor that keeps what it is given, and records what it was asked for.
#[derive(Debug, Default)]
struct Cellar {
    blocks: Mutex<std::collections::BTreeMap<(u64, u32), Vec<u8>>>,
    asked: Mutex<Vec<Range<u32>>>,
}

impl LowerFloor for Cellar {
    fn bring(&self, object: u64, blocks: Range<u32>, bytes: usize) -> Option<Vec<u8>> {
        lock(&self.asked).push(blocks.clone());
        let kept = lock(&self.blocks);
        let found = blocks.map(|block| kept.get(&(object, block)).cloned()).collect::<Option<Vec<_>>>()?.concat();
        assert_eq!(found.len(), bytes);
        Some(found)
    }

    fn keep(&self, object: u64, first: u32, lengths: &[u32], stored: &[u8], _: Nanos) {
        let mut rest = stored;
        for (block, &length) in (first..).zip(lengths) {
            let (bytes, after) = rest.split_at(length as usize);
            rest = after;
            lock(&self.blocks).insert((object, block), bytes.to_vec());
        }
    }

    fn now(&self) -> Nanos {
        0
    }

    fn let_go(&self) {
        lock(&self.blocks).clear();
    }

    fn held_bytes(&self) -> u64 {
        lock(&self.blocks).values().map(|bytes| bytes.len() as u64).sum()
    }
}

/// An object of twenty blocks, over a cache that holds none and a floor.
fn over_a_cellar() -> (Arc<Cellar>, Arc<Watched>, BlockCache, BlockObject, Vec<u8>) {
    let bytes = sample(20 * BLOCK_BYTES as usize);
    let object = Watched::new(encoded(Compression::Lz4, b"", &bytes));
    let cellar = Arc::<Cellar>::default();
    let options = BlockCacheOptions { capacity_bytes: 0, threads: 0, request_bytes: 1 << 20 };
    let cache = BlockCache::over(options, Some(Arc::clone(&cellar) as Arc<dyn LowerFloor>)).unwrap();
    let opened = open(&cache, &object);
    (cellar, object, cache, opened, bytes)
}

#[test]
fn what_the_floor_below_has_is_not_asked_of_the_storage() {
    let (cellar, object, cache, opened, bytes) = over_a_cellar();
    let border = 3 * BLOCK_BYTES as usize;
    for _ in 0..3 {
        assert_eq!(read(&opened, border - 5..border + 5), bytes[border - 5..border + 5]);
    }
    assert_eq!(object.reads().len(), 1);
    let counts = cache.counts();
    assert_eq!((counts.below_hits, counts.below_misses, counts.requests), (4, 2, 1));
    assert_eq!(counts.below_bytes, cellar.held_bytes());
    // A part is not enough.
    assert_eq!(read(&opened, border - 5..border + 5 + BLOCK_BYTES as usize).len(), 10 + BLOCK_BYTES as usize);
    assert_eq!(object.reads().len(), 1);
    cache.shrink_below();
    assert_eq!(read(&opened, border..border + 5), bytes[border..border + 5]);
    assert_eq!(object.reads().len(), 1);
}

#[test]
fn long_requests_pass_the_floor_below() {
    let (cellar, object, _cache, opened, bytes) = over_a_cellar();
    for _ in 0..2 {
        assert_eq!(read(&opened, 0..5 * BLOCK_BYTES as usize), bytes[..5 * BLOCK_BYTES as usize]);
    }
    assert_eq!(object.reads().len(), 2);
    assert!(lock(&cellar.asked).is_empty());
    assert_eq!(cellar.held_bytes(), 0);
}

#[test]
fn what_is_damaged_below_is_read_from_the_storage_again() {
    let (cellar, object, cache, opened, bytes) = over_a_cellar();
    assert_eq!(read(&opened, 0..9), bytes[..9]);
    let good = lock(&cellar.blocks).clone();
    for (name, kept) in &good {
        for bit in (0..kept.len() * 8).step_by(7) {
            let mut bad = kept.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            lock(&cellar.blocks).insert(*name, bad);
            object.reads();
            assert_eq!(read(&opened, 0..9), bytes[..9], "bit {bit}");
            assert_eq!(object.reads().len(), 1);
            assert_eq!(lock(&cellar.blocks)[name], *kept, "it is mended");
        }
    }
    assert_eq!(cache.counts().below_hits, 0);
}

/// A floor that needs the same block to return it, as when one thread does other work while it waits.
#[derive(Debug, Default)]
struct Winding {
    object: Mutex<Option<Arc<BlockObject>>>,
}

impl LowerFloor for Winding {
    fn bring(&self, _: u64, blocks: Range<u32>, _: usize) -> Option<Vec<u8>> {
        let object = lock(&self.object).take();
        if let Some(object) = object {
            read(&object, blocks.start as usize * BLOCK_BYTES as usize..blocks.end as usize * BLOCK_BYTES as usize);
        }
        None
    }

    fn keep(&self, _: u64, _: u32, _: &[u32], _: &[u8], _: Nanos) {}

    fn now(&self) -> Nanos {
        0
    }

    fn let_go(&self) {}

    fn held_bytes(&self) -> u64 {
        0
    }
}

#[test]
fn whoever_asks_the_floor_below_holds_nobody_up() {
    let bytes = sample(4 * BLOCK_BYTES as usize);
    let object = Watched::new(encoded(Compression::Lz4, b"", &bytes));
    let winding = Arc::<Winding>::default();
    let options = BlockCacheOptions { capacity_bytes: 1 << 20, threads: 0, request_bytes: 1 << 20 };
    let cache = BlockCache::over(options, Some(Arc::clone(&winding) as Arc<dyn LowerFloor>)).unwrap();
    let opened = Arc::new(open(&cache, &object));
    *lock(&winding.object) = Some(Arc::clone(&opened));
    assert_eq!(read(&opened, 0..9), bytes[..9]);
    assert_eq!(object.reads().len(), 1);
    let counts = cache.counts();
    assert_eq!((counts.misses, counts.joined, counts.requests, counts.below_misses), (1, 1, 1, 1));
}
