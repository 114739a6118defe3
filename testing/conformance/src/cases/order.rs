//! Which effects become visible, to whom, and when.

use crate::fixture::eventually;
use crate::{Fixture, case_list};
use forebay_fabric::{Endpoint, Outcome, RemoteAddress, Rights, WorkId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

case_list![
    operations_of_an_endpoint_take_effect_in_order,
    a_completed_write_is_visible_to_other_endpoints,
    a_message_makes_earlier_writes_visible_to_the_node,
    what_the_node_stores_is_visible,
    words_are_never_torn,
];

fn post_write(endpoint: &mut Endpoint, to: RemoteAddress, value: u64) -> WorkId {
    let mut slot = endpoint.slot(8).unwrap();
    slot.copy_from_slice(&value.to_le_bytes());
    endpoint.post_write(to, slot).unwrap()
}

fn post_read(endpoint: &mut Endpoint, from: RemoteAddress) -> WorkId {
    let slot = endpoint.slot(8).unwrap();
    endpoint.post_read(from, slot).unwrap()
}

fn word_of(outcome: Outcome) -> u64 {
    match outcome {
        Outcome::Read(slot) => u64::from_le_bytes(*slot.first_chunk().unwrap()),
        Outcome::Word(word) => word,
        Outcome::Done(_) => panic!("a write gives no word"),
    }
}

fn operations_of_an_endpoint_take_effect_in_order(fixture: &Fixture) {
    let (connection, _region, key) = fixture.granted(4096, Rights::ALL);
    let mut endpoint = connection.endpoint();
    let fenced = !endpoint.capabilities().ordered;
    for round in 0..200u64 {
        let at = key.at(8 * (round % 500));
        let base = round << 16;
        let mut expected = Vec::new();
        for i in 0..8 {
            let fence = |endpoint: &mut Endpoint| {
                if fenced {
                    endpoint.fence();
                }
            };
            fence(&mut endpoint);
            post_write(&mut endpoint, at, base + 100 * i);
            fence(&mut endpoint);
            expected.push((post_read(&mut endpoint, at), base + 100 * i));
            fence(&mut endpoint);
            expected.push((endpoint.post_fetch_add(at, 3).unwrap(), base + 100 * i));
            fence(&mut endpoint);
            let swap = endpoint.post_compare_swap(at, base + 100 * i + 3, base + 100 * i + 5).unwrap();
            expected.push((swap, base + 100 * i + 3));
            fence(&mut endpoint);
            expected.push((post_read(&mut endpoint, at), base + 100 * i + 5));
        }
        for (id, value) in expected {
            assert_eq!(word_of(endpoint.wait_for(id).unwrap()), value, "round {round}");
        }
        while endpoint.outstanding() > 0 {
            endpoint.wait().unwrap();
        }
    }
}

fn a_completed_write_is_visible_to_other_endpoints(fixture: &Fixture) {
    let (connection, region, key) = fixture.granted(4096, Rights::ALL);
    let other = fixture.connect();
    let other_key = other.peer.grant(&region, 0, 4096, Rights::ALL).unwrap();
    let mut writer = connection.endpoint();
    let mut readers = [(connection.endpoint(), key), (other.endpoint(), other_key)];
    for i in 1..500u64 {
        let at = 8 * (i % 64);
        writer.write(key.at(at), &i.to_le_bytes()).unwrap();
        for (reader, key) in &mut readers {
            let mut word = [0; 8];
            reader.read(key.at(at), &mut word).unwrap();
            assert_eq!(u64::from_le_bytes(word), i);
            assert_eq!(reader.fetch_add(key.at(at), 0), Ok(i));
        }
    }
}

fn a_message_makes_earlier_writes_visible_to_the_node(fixture: &Fixture) {
    let (connection, region, key) = fixture.granted(64 << 10, Rights::ALL);
    let wrong = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&wrong);
    // In the node's thread: only the message tells it to look.
    fixture.on_message(move |message| {
        let value = message.bytes[0];
        let mut bytes = vec![0; 4096];
        region.read(u64::from(value) * 16, &mut bytes).unwrap();
        if bytes.iter().any(|byte| *byte != value) {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let mut endpoint = connection.endpoint();
    for value in 1..=200u8 {
        let to = key.at(u64::from(value) * 16);
        let mut slot = endpoint.slot(4096).unwrap();
        slot.fill(value);
        let write = endpoint.post_write(to, slot).unwrap();
        if !endpoint.capabilities().ordered || value % 2 == 0 {
            endpoint.wait_for(write).unwrap();
        }
        let message = endpoint.post_message(&[value]).unwrap();
        endpoint.wait_for(message).unwrap();
        // The next write overlaps: the node must have looked.
        assert_eq!(fixture.messages(1).len(), 1);
    }
    assert_eq!(wrong.load(Ordering::SeqCst), 0, "messages came before what was written ahead of them");
}

fn what_the_node_stores_is_visible(fixture: &Fixture) {
    let (connection, region, key) = fixture.granted(4096, Rights::ALL);
    let mut endpoint = connection.endpoint();
    for i in 1..200u64 {
        region.store(8, i).unwrap();
        let mut word = [0; 8];
        endpoint.read(key.at(8), &mut word).unwrap();
        assert_eq!(u64::from_le_bytes(word), i);
    }
}

/// A writer alternates between two patterns; every word that anybody reads is one or the other.
fn words_are_never_torn(fixture: &Fixture) {
    const PATTERNS: [u8; 2] = [0x5a, 0xc3];
    let (connection, region, key) = fixture.granted(12288, Rights::ALL);
    region.write(0, &[PATTERNS[0]; 12288]).unwrap();
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let whole = |words: &[u8]| {
        words.chunks_exact(8).all(|word| PATTERNS.iter().any(|pattern| word.iter().all(|byte| byte == pattern)))
    };
    std::thread::scope(|scope| {
        let (connection, stop, rounds, region) = (&connection, &stop, &rounds, &region);
        scope.spawn(move || {
            let mut endpoint = connection.endpoint();
            while !stop.load(Ordering::Relaxed) {
                let round = rounds.fetch_add(1, Ordering::Relaxed);
                for i in 0..4u64 {
                    let mut slot = endpoint.slot(2048).unwrap();
                    slot.fill(PATTERNS[(round % 2) as usize]);
                    endpoint.post_write(key.at(8 * (i % 2) + 2048 * i), slot).unwrap();
                }
                while endpoint.outstanding() > 0 {
                    endpoint.wait().unwrap().result.unwrap();
                }
            }
        });
        let reads = scope.spawn(move || {
            let mut endpoint = connection.endpoint();
            for round in 0u64.. {
                let mut bytes = [0; 4096];
                endpoint.read(key.at(8 * (round % 512)), &mut bytes).unwrap();
                assert!(whole(&bytes), "a torn word in a one-sided read");
                if round >= 1000 && rounds.load(Ordering::Relaxed) >= 100 {
                    break;
                }
            }
        });
        let mut bytes = [0; 4096];
        eventually("the reader's end", || {
            region.read(0, &mut bytes).unwrap();
            assert!(whole(&bytes), "a torn word seen by the node");
            reads.is_finished()
        });
        stop.store(true, Ordering::Relaxed);
    });
}
