//! What works when no memory is left.

use crate::common::{Nodes, word};
use forebay_base::ErrorKind;
use forebay_memory_client::Purpose;
use forebay_tree::{Range, TreeClient, TreeOptions, Verb};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Consecutive failed inserts before the tree counts as full.
const MANY: usize = 100;

/// Inserts keys until none has room any more. Returns those that were inserted.
fn fill(client: &mut TreeClient, mut key: impl FnMut(u64) -> Vec<u8>, value: &[u8], refusals: usize) -> Vec<Vec<u8>> {
    let (mut there, mut refused) = (Vec::new(), 0);
    for number in 0.. {
        let key = key(number);
        match client.insert(&key, value) {
            Ok(is_new) => {
                assert!(is_new);
                there.push(key);
                refused = 0;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                refused += 1;
                if refused == refusals {
                    break;
                }
            }
        }
    }
    there
}

/// Keys that are not in the order of their numbers.
fn scrambled(number: u64) -> Vec<u8> {
    word(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_vec()
}

#[test]
fn deletes_give_back_what_they_displaced() {
    let nodes = Nodes::start(1, 8 << 20);
    let options = TreeOptions { batch_bytes: 1, ..TreeOptions::default() };
    let mut client = nodes.create(options).client().unwrap();
    let keys = fill(&mut client, |number| word(number).to_vec(), &[7; 40], 1);
    // Few keys of each leaf, so that no leaves merge.
    for key in keys.iter().step_by(10).take(500) {
        assert!(client.delete(key).unwrap());
    }
}

#[test]
fn a_full_tree_is_read_and_deleted_from() {
    type Name = fn(u64) -> Vec<u8>;
    let long: Name = |number| [b"a key with a long separator ", &scrambled(number)[..]].concat();
    let cases: [(u32, Name, &[u8]); 4] =
        [(1, scrambled, b"x"), (1, |number| word(number).to_vec(), b"x"), (2, scrambled, b"12345678"), (1, long, b"x")];
    for (case, (count, name, value)) in cases.into_iter().enumerate() {
        let nodes = Nodes::start(count, 4 << 20);
        let mut client = nodes.create(TreeOptions::default()).client().unwrap();
        let there = fill(&mut client, name, value, MANY);
        println!("case {case}: {} keys", there.len());
        for key in &there {
            assert_eq!(client.get(key).unwrap().as_deref(), Some(value), "case {case}");
        }
        for keys in there.chunks(500) {
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            assert!(client.multi_get(&keys).unwrap().iter().all(Option::is_some));
        }
        assert_eq!(client.verify().unwrap().keys, there.len() as u64, "case {case}");
        for backward in [false, true] {
            let found = client.scan(Range { backward, ..Range::all() }).unwrap();
            assert_eq!(found.len(), there.len(), "case {case}");
        }
        // All keys of a range, so that leaves merge.
        let mut sorted = there.clone();
        sorted.sort();
        let (low, high) = sorted.split_at(there.len() / 2);
        for key in low {
            assert!(client.delete(key).unwrap(), "case {case}");
        }
        (0..4).for_each(|_| client.reclaim().unwrap());
        // Memory belongs to a size for ever, so not all of them find room again.
        let again = there.iter().filter(|key| *key < &high[0]);
        let again = again.filter(|key| client.insert(key, value).is_ok_and(|is_new| is_new)).count();
        println!("case {case}: {again} of {} keys once more", low.len());
        assert!(again >= low.len() / 2, "case {case}: {again} of {}", low.len());
        assert_eq!(client.verify().unwrap().keys, (high.len() + again) as u64, "case {case}");
        for key in high {
            assert!(client.delete(key).unwrap(), "case {case}");
        }
    }
}

/// A client dies while it freezes a leaf. Then memory runs out, so nobody can replace the leaf.
#[test]
fn what_was_left_frozen_is_read_where_no_memory_is_left() {
    let low = |number: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1).to_be_bytes().to_vec();
    let high = |number: u64| word(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63).to_vec();
    for (stop, value) in [(3, &b"12345678"[..]), (40, b"12345678"), (40, b"x"), (40, &[7; 40])] {
        let nodes = Nodes::start(1, 4 << 20);
        let mut client = nodes.create(TreeOptions::default()).client().unwrap();
        let mut there: Vec<Vec<u8>> = (0..2000).flat_map(|number| [low(number), high(number)]).collect();
        there.iter().for_each(|key| assert!(client.insert(key, value).unwrap()));
        let mut dying = nodes.open().client().unwrap();
        let swaps = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&swaps);
        dying.set_hook(Some(Box::new(move |verb| {
            verb != Verb::CompareSwap || count.fetch_add(1, Ordering::Relaxed) < stop
        })));
        for number in 2000.. {
            swaps.store(0, Ordering::Relaxed);
            match dying.insert(&low(number), value) {
                Ok(_) => there.push(low(number)),
                Err(_) => break,
            }
        }
        there.extend(fill(&mut client, |number| high(2000 + number), value, MANY));
        for key in &there {
            assert_eq!(client.get(key).unwrap().as_deref(), Some(value), "{stop}");
        }
        for keys in there.chunks(500) {
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            assert!(client.multi_get(&keys).unwrap().iter().all(Option::is_some));
        }
        there.sort();
        for backward in [false, true] {
            let mut found = client.scan(Range { backward, ..Range::all() }).unwrap();
            if backward {
                found.reverse();
            }
            assert!(found.iter().map(|(key, _)| key).eq(&there), "{stop}");
            assert!(found.iter().all(|(_, found)| found == value));
        }
    }
}

/// Blocks of the longest size share their shelf with those that no extent holds.
#[test]
fn what_no_extent_holds_is_refused() {
    let nodes = Nodes::start(1, 64 << 20);
    let tree = nodes.create(TreeOptions::default());
    let mut client = tree.client().unwrap();
    let longest = vec![7u8; tree.most_bytes() as usize];
    assert!(client.insert(&word(1), &longest).unwrap());
    assert_eq!(client.get(&word(1)).unwrap().as_ref(), Some(&longest));
    assert!(client.delete(&word(1)).unwrap());
    let longer = [&longest[..], b"x"].concat();
    // In one of these rounds, the block of the deleted value is there to be used.
    for _ in 0..5 {
        client.reclaim().unwrap();
        let refused = client.put(&word(1), &longer).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        assert!(refused.to_string().contains(&tree.most_bytes().to_string()), "{refused}");
    }
    assert_eq!(client.bulk_load([(word(1), &longer)]).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(client.get(&word(1)).unwrap(), None);
}

/// A node may have more extents than a tree can address.
#[test]
fn a_tree_leaves_extents_to_others_that_it_cannot_address() {
    const EXTENT_BYTES: u64 = 128 << 10;
    const ADDRESSED: u32 = 1 << 14;
    let nodes = Nodes::with_extents(1, 20_000 * EXTENT_BYTES, EXTENT_BYTES);
    let mut client = nodes.create(TreeOptions::default()).client().unwrap();
    let sessions = nodes.sessions();
    while sessions[0].lease(128, Purpose::Flush).unwrap().iter().all(|extent| extent.0 < ADDRESSED - 1) {}
    fill(&mut client, |number| word(number).to_vec(), &[7; 40], MANY);
    let refused = client.insert(b"a long key", &[7; 4000]).unwrap_err();
    assert!(refused.kind() == ErrorKind::Full && refused.to_string().contains("16384"), "{refused}");
    // Extents that it returned need to be cleaned: they lack to others.
    for number in 0..MANY {
        let key = [b"a long key ", &word(number as u64)[..]].concat();
        assert!(client.insert(&key, &[7; 4000]).is_err_and(|error| error.kind() == ErrorKind::Full));
    }
    let cleaned = sessions[0].node_statistics().unwrap().recycling_extents;
    assert!(cleaned < MANY as u64 / 2, "{cleaned}");
}

#[test]
fn long_values_that_were_replaced_are_free_for_all() {
    const LENGTH: usize = 500_000;
    let nodes = Nodes::start(1, 64 << 20);
    let mut client = nodes.create(TreeOptions::default()).client().unwrap();
    for number in 0..20u8 {
        client.put(&word(1), &vec![number; LENGTH]).unwrap();
    }
    let memory = client.memory().unwrap();
    assert!(memory.live_bytes() <= 4 * LENGTH as u64, "{memory:?}");
}
