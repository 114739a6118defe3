//! Pins the format of `docs/formats/point-index.md`, and measures it.

use super::*;
use crate::entry::MAX_RECORD_BYTES;
use forebay_base::Writer;
use forebay_env::Random;
use proptest::prelude::*;

fn span(id: u64, first_unit: u64, span_units: u64) -> SegmentSpan {
    SegmentSpan { id: SegmentId(id), first_unit, span_units }
}

fn built(spans: &[SegmentSpan], entries: &[PointEntry]) -> Vec<u8> {
    let mut image = Vec::new();
    build(&mut image, spans, entries, PointIndexOptions::default()).unwrap();
    image
}

#[test]
fn golden_bytes() {
    let entries = [
        PointEntry { hash: 0x8000_0000_0000_0abc, offset_units: 3, ordinal: 0, length: 40 },
        PointEntry { hash: 0x1000_0000_0000_0def, offset_units: 8, ordinal: 0, length: 41 },
    ];
    let image = built(&[span(7, 3, 11)], &entries);
    let expected: &[u8] = &[
        b'F', b'B', b'p', b'i', 1, 0, 0, 0, 69, 0, 0, 0, // frame
        2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 40, 0, 0, 0, 12, 4, 1, 26, 0, 0, 0, 0, // head
        7, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 0, // span
        0, 0, 0, 0, 2, 0, 0, 0, // bucket positions
        0xbc, 0x0a, 0xde, 0xbb, 2, // entries: 17 bits each
        0, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(&image[..image.len() - 4], expected, "{image:02x?}");
}

/// Entries of random keys, laid out one after another over `segments` segments of 64 MiB.
fn table(keys: u64, segments: u64, lengths: impl Fn(&mut Random) -> u32) -> (Vec<SegmentSpan>, Vec<PointEntry>) {
    let mut random = Random::seeded(42);
    let units = (64 << 20) / UNIT_BYTES;
    let spans: Vec<_> = (0..segments).map(|id| span(id + 1, 0, units)).collect();
    let entries = (0..keys)
        .map(|key| PointEntry {
            hash: key_hash(format!("{key:020}").as_bytes()),
            offset_units: random.below(units - 1_000),
            ordinal: (key % segments) as u32,
            length: lengths(&mut random),
        })
        .collect();
    (spans, entries)
}

#[test]
fn bytes_a_key_and_false_positives() {
    for (segments, mixed, most_bytes) in [(1, false, 5.0), (1, true, 6.0), (64, false, 6.0), (64, true, 7.0)] {
        let lengths = |random: &mut Random| if mixed { 50 + random.below(8_000) as u32 } else { 435 };
        let (spans, entries) = table(150_000, segments, lengths);
        let image = built(&spans, &entries);
        let bytes_a_key = image.len() as f64 / entries.len() as f64;
        println!("{segments} segments, mixed {mixed}: {bytes_a_key:.2} bytes a key");
        assert!(bytes_a_key <= most_bytes && bytes_a_key <= 8.0, "{bytes_a_key} bytes a key");

        let index = PointIndex::parse(&image).unwrap();
        let in_memory = index.size_bytes() as f64 / entries.len() as f64;
        println!("{segments} segments, mixed {mixed}: {in_memory:.2} bytes a key in memory");
        assert!(in_memory <= bytes_a_key - 0.3, "{in_memory} bytes a key in memory");
        for entry in &entries {
            let address =
                LogicalAddress { segment: spans[entry.ordinal as usize].id, offset: entry.offset_units * UNIT_BYTES };
            let found = index.candidates(entry.hash).find(|candidate| candidate.address == address).unwrap();
            assert!(found.read_length >= entry.length);
            assert!((found.read_length - entry.length) * 32 <= entry.length);
            assert!(mixed || found.read_length == entry.length);
        }
        let absent = 200_000u64;
        let false_positives: usize =
            (0..absent).map(|key| index.candidates(key_hash(format!("absent{key}").as_bytes())).count()).sum();
        let rate = false_positives as f64 / absent as f64;
        println!("{segments} segments: false positives {:.3} %", rate * 100.0);
        assert!(rate < 0.0025, "false positive rate {rate}");
    }
}

#[test]
fn versions_of_a_key_come_newest_first() {
    let hash = key_hash(b"key");
    let entries: Vec<_> =
        (0..5).map(|i| PointEntry { hash, offset_units: 50 - 10 * i, ordinal: 0, length: 80 }).collect();
    let index = PointIndex::parse(&built(&[span(1, 10, 50)], &entries)).unwrap();
    let offsets: Vec<_> = index.candidates(hash).map(|candidate| candidate.address.offset / 8).collect();
    assert_eq!(offsets, [50, 40, 30, 20, 10]);
}

#[test]
fn reads_end_with_the_span() {
    let entries = [
        PointEntry { hash: 1, offset_units: 0, ordinal: 0, length: 16 },
        PointEntry { hash: u64::MAX, offset_units: 2, ordinal: 0, length: 1_000_001 },
    ];
    let index = PointIndex::parse(&built(&[span(1, 0, 2 + 125_001)], &entries)).unwrap();
    let candidate = index.candidates(u64::MAX).next().unwrap();
    assert!((1_000_001..=1_000_008).contains(&candidate.read_length), "{candidate:?}");
}

#[test]
fn an_empty_index_answers_absent() {
    let index = PointIndex::parse(&built(&[], &[])).unwrap();
    assert_eq!(index.candidates(key_hash(b"key")).count(), 0);
}

#[test]
fn damage_is_found() {
    let (spans, entries) = table(40, 3, |_| 100);
    let good = built(&spans, &entries);
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert!(PointIndex::parse(&bad).is_err(), "byte {at}");
        assert!(PointIndex::parse(&good[..at]).is_err(), "cut at {at}");
    }
}

/// Entries of no bits take no bytes, so a short image could have billions, each a candidate for every key.
#[test]
fn entries_without_fingerprints_are_refused() {
    let mut body = Vec::new();
    [u32::MAX, 1, 1, 40].into_iter().for_each(|number| body.put_u32(number));
    body.extend_from_slice(&[0, 0, 0, 26, 0, 0, 0, 0]);
    [7, 0, 5].into_iter().for_each(|number| body.put_u64(number));
    [0, u32::MAX].into_iter().for_each(|position| body.put_u32(position));
    body.extend_from_slice(&[0; PADDING_BYTES]);
    let mut image = Vec::new();
    FRAME.encode(&mut image, |out| out.extend_from_slice(&body)).unwrap();
    assert!(matches!(PointIndex::parse(&image), Err(Error::Damaged { .. })));
}

proptest! {
    /// A wrong image with a right checksum causes no panic, whatever the answer.
    #[test]
    fn any_body_is_probed_without_panic(changes in prop::collection::vec((0usize..400, any::<u8>()), 0..8), hash: u64) {
        let (spans, entries) = table(30, 2, |random| 16 + random.below(MAX_RECORD_BYTES as u64 - 16) as u32);
        let image = built(&spans, &entries);
        let mut body = FRAME.decode(&image).unwrap().to_vec();
        for (at, byte) in changes {
            let length = body.len();
            body[at % length] = byte;
        }
        let mut changed = Vec::new();
        FRAME.encode(&mut changed, |out| out.extend_from_slice(&body)).unwrap();
        if let Ok(index) = PointIndex::parse(&changed) {
            let _ = index.candidates(hash).count();
        }
    }
}
