//! Every operation, in every size, alone and in batches.

use crate::{Fixture, case_list};
use forebay_env::Random;
use forebay_fabric::{Counts, Error, Outcome, Rights, Word, WorkId};

case_list![
    fresh_memory_is_zero,
    every_size_comes_back,
    largest_operation,
    atomics_do_what_they_say,
    sealed_ranges_are_written,
    sealed_ranges_are_written_at_once_or_posted,
    ten_thousand_in_flight,
    waits_in_any_order,
    dropped_with_operations_in_flight,
    nothing_to_wait_for,
];

/// Sizes at and around words, lines, pages and the pieces that back ends copy at a time.
const SIZES: &[usize] = &[0, 1, 7, 8, 9, 63, 64, 65, 511, 512, 4095, 4096, 4097, 65_536, 1 << 20];
const MAX_TESTED_BYTES: usize = 32 << 20;

fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Random::seeded(seed).fill(&mut bytes);
    bytes
}

fn fresh_memory_is_zero(fixture: &Fixture) {
    let (connection, _region, key) = fixture.granted(1 << 20, Rights::READ);
    let mut bytes = vec![1; 1 << 20];
    connection.endpoint().read(key.at(0), &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
}

fn every_size_comes_back(fixture: &Fixture) {
    let (connection, region, key) = fixture.granted(2 << 20, Rights::ALL);
    let mut endpoint = connection.endpoint();
    for (i, &size) in SIZES.iter().enumerate() {
        for offset in [0, 1, 8, 61, 4096, 4099] {
            let bytes = pattern(size, i as u64);
            let around = offset.max(16) - 16..offset + size + 16;
            let mut before = vec![0; around.len()];
            region.read(around.start as u64, &mut before).unwrap();
            endpoint.write(key.at(offset as u64), &bytes).unwrap();
            let mut back = vec![0; size];
            endpoint.read(key.at(offset as u64), &mut back).unwrap();
            assert!(back == bytes, "{size} bytes at {offset} come back changed");
            let mut after = vec![0; around.len()];
            region.read(around.start as u64, &mut after).unwrap();
            let front = offset - around.start;
            before[front..front + size].copy_from_slice(&bytes);
            assert!(before == after, "{size} bytes at {offset} changed what is beside them");
        }
    }
}

fn largest_operation(fixture: &Fixture) {
    let limit = fixture.capabilities().max_operation_bytes;
    let size = limit.min(MAX_TESTED_BYTES);
    let (connection, _region, key) = fixture.granted(size.next_multiple_of(4096), Rights::ALL);
    let mut endpoint = connection.endpoint();
    let bytes = pattern(size, 1);
    endpoint.write(key.at(0), &bytes).unwrap();
    let mut back = vec![0; size];
    endpoint.read(key.at(0), &mut back).unwrap();
    assert!(back == bytes, "{size} bytes come back changed");
    let slot = endpoint.slot(limit + 1).unwrap();
    let error = endpoint.post_read(key.at(0), slot).unwrap_err();
    assert_eq!(error, Error::TooLarge { length: limit as u64 + 1, limit: limit as u64 });
    let slot = endpoint.slot(limit + 1).unwrap();
    assert!(matches!(endpoint.post_write(key.at(0), slot), Err(Error::TooLarge { .. })));
    endpoint.read(key.at(0), &mut back[..8]).expect("a refused post breaks nothing");
}

fn atomics_do_what_they_say(fixture: &Fixture) {
    let (connection, region, key) = fixture.granted(4096, Rights::ALL);
    let mut endpoint = connection.endpoint();
    for offset in [0, 8, 64, 4088] {
        let at = key.at(offset);
        assert_eq!(endpoint.fetch_add(at, 5), Ok(0));
        assert_eq!(endpoint.fetch_add(at, u64::MAX), Ok(5));
        assert_eq!(endpoint.compare_swap(at, 4, u64::MAX), Ok(4));
        assert_eq!(endpoint.compare_swap(at, 4, 7), Ok(u64::MAX));
        assert_eq!(endpoint.fetch_add(at, 2), Ok(u64::MAX));
        let mut word = [0; 8];
        endpoint.read(at, &mut word).unwrap();
        assert_eq!(u64::from_le_bytes(word), 1);
        endpoint.write(at, &9u64.to_le_bytes()).unwrap();
        assert_eq!(endpoint.compare_swap(at, 9, 10), Ok(9));
        assert_eq!(region.load(offset), Ok(10));
    }
}

fn sealed_ranges_are_written(fixture: &Fixture) {
    let (connection, _region, key) = fixture.granted(1 << 20, Rights::ALL);
    let mut endpoint = connection.endpoint();
    let block = connection.link.allocate(1 << 20).unwrap();
    let bytes = pattern(1 << 20, 3);
    block.write(0, &bytes).unwrap();
    let ranges = [(0, 8), (8, 4096), (4105, 100), (8192, 500_000), (600_000, (1 << 20) - 600_000)];
    for (offset, length) in ranges {
        endpoint.post_write_sealed(key.at(offset), &block, offset, length).unwrap();
    }
    for _ in ranges {
        assert!(matches!(endpoint.wait().unwrap().result, Ok(Outcome::Done(None))));
    }
    for (offset, length) in ranges {
        let mut back = vec![0; length];
        endpoint.read(key.at(offset), &mut back).unwrap();
        assert!(back == bytes[offset as usize..][..length], "{length} bytes at {offset}");
    }
    for (offset, length) in [(1 << 20, 8), (u64::MAX, 8), (0, (1 << 20) + 8)] {
        let refused = endpoint.post_write_sealed(key.at(0), &block, offset, length);
        assert!(matches!(refused, Err(Error::OutOfBounds { .. })), "{refused:?}");
    }
}

/// A write at once counts like a post and a wait.
fn sealed_ranges_are_written_at_once_or_posted(fixture: &Fixture) {
    let (connection, region, key) = fixture.granted(1 << 20, Rights::ALL);
    let mut endpoint = connection.endpoint();
    let block = connection.link.allocate(1 << 20).unwrap();
    let bytes = pattern(1 << 20, 5);
    block.write(0, &bytes).unwrap();
    let at_once = endpoint.write_at_once(key.at(0), &block, 0, 8, None).unwrap();
    for (offset, length) in [(8, 8), (16, 424), (445, 100), (8192, 500_000), (600_000, (1 << 20) - 600_000)] {
        let before = endpoint.counts().read_all();
        let word = Word { at: key.at(0), value: offset << 32 | length as u64 };
        let written = endpoint.write_at_once(key.at(offset), &block, offset, length, Some(word)).unwrap();
        assert_eq!(written, at_once);
        if !written {
            let mut slot = endpoint.slot(8).unwrap();
            slot.copy_from_slice(&word.value.to_le_bytes());
            endpoint.post_write_sealed(key.at(offset), &block, offset, length).unwrap();
            endpoint.post_write(word.at, slot).unwrap();
            endpoint.wait_all(|_, outcome| if let Outcome::Done(slot) = outcome { slot } else { None }).unwrap();
        }
        let counted = endpoint.counts().read_all() - before;
        let bytes_written = length as u64 + 8;
        assert_eq!(counted, Counts { round_trips: 1, doorbells: 1, writes: 2, bytes_written, ..Counts::default() });
        let mut there = [0; 8];
        region.read(0, &mut there).unwrap();
        assert_eq!(u64::from_le_bytes(there), word.value);
        let mut there = vec![0; length];
        region.read(offset, &mut there).unwrap();
        assert!(there == bytes[offset as usize..][..length], "{length} bytes at {offset}");
    }
    // While something is outstanding, the write has to be posted.
    let id = endpoint.post_write_sealed(key.at(0), &block, 16, 8).unwrap();
    assert_eq!(endpoint.write_at_once(key.at(0), &block, 0, 8, None), Ok(false));
    endpoint.wait_for(id).unwrap();
    for (offset, length) in [(1 << 20, 8), (u64::MAX, 8), (0, (1 << 20) + 8)] {
        let refused = endpoint.write_at_once(key.at(0), &block, offset, length, None);
        assert!(matches!(refused, Err(Error::OutOfBounds { .. })), "{refused:?}");
    }
    let misaligned = Word { at: key.at(4), value: 1 };
    let refused = endpoint.write_at_once(key.at(0), &block, 0, 8, Some(misaligned));
    assert_eq!(refused, Err(Error::Misaligned { offset: 4 }));
    assert!(endpoint.failure().is_none());
}

fn ten_thousand_in_flight(fixture: &Fixture) {
    const COUNT: u64 = 10_000;
    let (connection, _region, key) = fixture.granted(128 << 10, Rights::ALL);
    let mut endpoint = connection.endpoint();
    for doorbell_every in [1, 16, COUNT] {
        for i in 0..COUNT {
            let mut slot = endpoint.slot(8).unwrap();
            slot.copy_from_slice(&(i ^ doorbell_every << 32).to_le_bytes());
            endpoint.post_write(key.at(8 * i), slot).unwrap();
            if i % doorbell_every == 0 {
                endpoint.flush();
            }
        }
        assert_eq!(endpoint.outstanding(), COUNT as usize);
        for _ in 0..COUNT {
            let completion = endpoint.wait().unwrap();
            let Ok(Outcome::Done(Some(slot))) = completion.result else { panic!("{completion:?}") };
            endpoint.release(slot);
        }
        let first = endpoint.slot(8).unwrap();
        let first = endpoint.post_read(key.at(0), first).unwrap();
        for i in 1..COUNT {
            let slot = endpoint.slot(8).unwrap();
            assert_eq!(endpoint.post_read(key.at(8 * i), slot).unwrap(), WorkId(first.0 + i));
        }
        let mut seen = vec![false; COUNT as usize];
        for _ in 0..COUNT {
            let completion = endpoint.wait().unwrap();
            let Ok(Outcome::Read(slot)) = completion.result else { panic!("{completion:?}") };
            let i = completion.id.0 - first.0;
            assert_eq!(*slot, (i ^ doorbell_every << 32).to_le_bytes());
            assert!(!std::mem::replace(&mut seen[i as usize], true), "operation {i} completed twice");
            endpoint.release(slot);
        }
        assert_eq!(endpoint.outstanding(), 0);
        assert!(endpoint.poll().is_none());
    }
}

fn waits_in_any_order(fixture: &Fixture) {
    let (connection, region, key) = fixture.granted(4096, Rights::ALL);
    for i in 0..64 {
        region.store(8 * i, 1000 + i).unwrap();
    }
    let mut endpoint = connection.endpoint();
    let mut ids = Vec::new();
    for i in 0..64 {
        let slot = endpoint.slot(8).unwrap();
        ids.push((i, endpoint.post_read(key.at(8 * i), slot).unwrap()));
    }
    Random::seeded(1).shuffle(&mut ids);
    for (i, id) in ids {
        let Outcome::Read(slot) = endpoint.wait_for(id).unwrap() else { panic!("no read") };
        assert_eq!(*slot, (1000 + i).to_le_bytes());
    }
    assert_eq!(endpoint.outstanding(), 0);
}

fn dropped_with_operations_in_flight(fixture: &Fixture) {
    let (connection, _region, key) = fixture.granted(1 << 20, Rights::ALL);
    for round in 0..50u64 {
        let mut endpoint = connection.endpoint();
        for i in 0..200 {
            let slot = endpoint.slot(4096).unwrap();
            if i % 2 == 0 {
                endpoint.post_write(key.at(4096 * (i % 256)), slot).unwrap();
            } else {
                endpoint.post_read(key.at(4096 * (i % 256)), slot).unwrap();
            }
        }
        if round % 2 == 0 {
            endpoint.flush();
        }
    }
    let mut endpoint = connection.endpoint();
    endpoint.fetch_add(key.at(0), 1).expect("other endpoints go on");
}

fn nothing_to_wait_for(fixture: &Fixture) {
    let (connection, _region, key) = fixture.granted(4096, Rights::ALL);
    let mut endpoint = connection.endpoint();
    assert!(matches!(endpoint.wait(), Err(Error::Invalid(_))));
    assert!(endpoint.poll().is_none());
    endpoint.flush();
    endpoint.write(key.at(0), &[1]).unwrap();
    assert!(matches!(endpoint.wait(), Err(Error::Invalid(_))));
}
