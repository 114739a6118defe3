//! The cost of operations, as the fabric counts it.

use crate::common::{Nodes, word};
use forebay_env::Random;
use forebay_fabric::Counts;
use forebay_tree::{Range, TreeClient, TreeOptions, Verb};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const KEYS: u64 = 40_000;

fn counted(client: &mut TreeClient, operation: impl FnOnce(&mut TreeClient)) -> Counts {
    let before = client.counts();
    operation(client);
    client.counts() - before
}

/// Keys that are not in the order of their numbers.
fn scrambled(number: u64) -> [u8; 8] {
    word(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn loaded(nodes: &Nodes, options: TreeOptions, key: fn(u64) -> [u8; 8]) -> TreeClient {
    let mut client = nodes.create(options).client().unwrap();
    let mut order: Vec<u64> = (0..KEYS).collect();
    Random::seeded(1).shuffle(&mut order);
    for number in order {
        assert!(client.insert(&key(number), &word(number)).unwrap());
    }
    for number in 0..KEYS {
        assert_eq!(client.get(&key(number)).unwrap(), Some(word(number).to_vec()));
    }
    client
}

#[test]
fn operations_take_the_round_trips_that_are_promised() {
    let nodes = Nodes::start(1, 256 << 20);
    let mut client = loaded(&nodes, TreeOptions::default(), scrambled);
    let mut random = Random::seeded(2);
    let mut sums = [Counts::default(); 4];
    for step in 0..1000 {
        let number = random.below(KEYS);
        let key = scrambled(number);
        sums[0] += counted(&mut client, |client| assert!(client.get(&key).unwrap().is_some()));
        sums[1] += counted(&mut client, |client| assert!(client.update(&key, &word(KEYS + step)).unwrap()));
        sums[2] += counted(&mut client, |client| assert!(client.put(&key, &word(number)).unwrap()));
    }
    let same = counted(&mut client, |client| assert!(client.put(&scrambled(3), &word(3)).unwrap()));
    println!("a put of the value that is there: {} round trips", same.round_trips);
    assert_eq!(sums.map(|sum| sum.round_trips), [1000, 2000, 2000, 0]);
    assert_eq!(sums[0].reads, 1000);
    assert_eq!(sums[0].bytes_read, 248_000);
    // Absent keys cost the same.
    let absent = counted(&mut client, |client| assert_eq!(client.get(&scrambled(KEYS + 1)).unwrap(), None));
    assert_eq!((absent.round_trips, absent.bytes_read), (1, 248));
    // Deletes and inserts: most take two; some replace a leaf.
    let (mut deletes, mut inserts) = (Vec::new(), Vec::new());
    for number in 0..1000 {
        let key = scrambled(number * 7);
        deletes.push(counted(&mut client, |client| assert!(client.delete(&key).unwrap())).round_trips);
        let new = scrambled(KEYS + 10 + number);
        inserts.push(counted(&mut client, |client| assert!(client.insert(&new, b"12345678").unwrap())).round_trips);
    }
    let of_two = |counts: &[u64]| counts.iter().filter(|&&count| count == 2).count();
    println!("of 1000: {} deletes and {} inserts took two round trips", of_two(&deletes), of_two(&inserts));
    println!("on average {} and {}", deletes.iter().sum::<u64>(), inserts.iter().sum::<u64>());
    assert!(of_two(&deletes) >= 990 && deletes.iter().all(|&count| count >= 2));
    assert!(of_two(&inserts) >= 900 && inserts.iter().all(|&count| count >= 2));
    // A key that was deleted comes back in two.
    assert_eq!(
        counted(&mut client, |client| assert!(client.insert(&scrambled(7), b"12345678").unwrap())).round_trips,
        2
    );
}

#[test]
fn memory_for_a_key() {
    for (name, options, remote, local, read) in [
        ("default", TreeOptions::default(), 26.0, 0.5, 248),
        ("dense", TreeOptions { fill_percent: 75, ..TreeOptions::default() }, 24.0, 0.5, 248),
        ("small reads", TreeOptions::small_reads(), 28.0, 0.5, 152),
    ] {
        for key in [word, scrambled] {
            let nodes = Nodes::start(1, 256 << 20);
            let mut client = loaded(&nodes, options.clone(), key);
            let statistics = client.verify().unwrap();
            let remote_bytes = statistics.bytes() as f64 / KEYS as f64;
            let cached = client.tree().cached_bytes() as f64 / KEYS as f64;
            let get = counted(&mut client, |client| assert!(client.get(&key(5)).unwrap().is_some()));
            println!(
                "{name}: {remote_bytes:.1} bytes a key remote, {cached:.2} cached, {} a get, {:.1} keys a leaf",
                get.bytes_read,
                KEYS as f64 / statistics.leaves as f64
            );
            assert!(remote_bytes <= remote && cached <= local && get.bytes_read == read, "{statistics:?}");
            let fill = statistics.keys as f64 / statistics.slots as f64;
            assert!(fill >= 0.5, "{fill}");
        }
    }
}

#[test]
fn leaves_are_full_whatever_the_keys() {
    let mixed = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    type Name<'a> = &'a dyn Fn(u64) -> Vec<u8>;
    let kinds: [(&str, Name<'_>, u64); 4] = [
        ("dense", &|number| word(number).to_vec(), 1),
        ("random", &|number| scrambled(number).to_vec(), 1),
        ("e-mail", &|number| format!("{:x}.{number}@example.org", mixed(number)).into_bytes(), 2),
        ("url", &|number| format!("https://www.example.com/articles/{number}/index.html").into_bytes(), 2),
    ];
    let mut fills = Vec::new();
    for (name, key, round_trips) in kinds {
        let nodes = Nodes::start(1, 256 << 20);
        let mut client = nodes.create(TreeOptions::default()).client().unwrap();
        let mut order: Vec<u64> = (0..10_000).collect();
        Random::seeded(1).shuffle(&mut order);
        for &number in &order {
            assert!(client.insert(&key(number), b"12345678").unwrap());
        }
        let statistics = client.verify().unwrap();
        let fill = statistics.keys as f64 / statistics.slots as f64;
        println!("{name}: fill {fill:.2}, {:.2} bytes cached a key", client.tree().cached_bytes() as f64 / 10_000.0);
        assert_eq!(statistics.keys, 10_000);
        assert!(fill >= 0.5);
        fills.push(fill);
        // A record is one more read.
        let get = counted(&mut client, |client| assert!(client.get(&key(77)).unwrap().is_some()));
        assert_eq!(get.round_trips, round_trips);
        let keys: Vec<Vec<u8>> = (0..100).map(key).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let get = counted(&mut client, |client| {
            assert!(client.multi_get(&keys).unwrap().iter().all(|value| value.as_deref() == Some(b"12345678")));
        });
        assert_eq!(get.doorbells, round_trips, "all of several keys in one batch");
    }
    let average = fills.iter().sum::<f64>() / fills.len() as f64;
    assert!(average >= 0.70, "{average}");
}

/// A leaf is replaced, and a key is found in it, without the values of other keys.
#[test]
fn long_values_are_read_by_those_who_want_them() {
    const LENGTH: usize = 40_000;
    let nodes = Nodes::start(1, 256 << 20);
    let mut client = nodes.create(TreeOptions::default()).client().unwrap();
    let key = |number: u64| format!("a long key, number {number:03}").into_bytes();
    let value = vec![7; LENGTH];
    let inserts = counted(&mut client, |client| {
        (0..200).for_each(|number| assert!(client.insert(&key(number), &value).unwrap()));
    });
    let put = counted(&mut client, |client| assert!(client.put(&key(3), &value).unwrap()));
    let delete = counted(&mut client, |client| assert!(client.delete(&key(4)).unwrap()));
    let scan = counted(&mut client, |client| {
        let found = client.scan(Range::starting_at(&key(10), 1)).unwrap();
        assert_eq!(found, [(key(10), value.clone())]);
    });
    println!("bytes read: {} {} {} {}", inserts.bytes_read, put.bytes_read, delete.bytes_read, scan.bytes_read);
    assert!(inserts.bytes_read <= 2_000_000 && put.bytes_read.max(delete.bytes_read) <= LENGTH as u64 / 2);
    assert!(scan.bytes_read <= 2 * LENGTH as u64 + 20_000);
}

#[test]
fn values_beyond_a_budget_are_not_read() {
    const LENGTH: usize = 40_000;
    let nodes = Nodes::start(1, 256 << 20);
    let mut client = nodes.create(TreeOptions::default()).client().unwrap();
    let long = vec![7; LENGTH];
    for number in 0..100 {
        assert!(client.insert(&word(number), &long).unwrap());
        assert!(client.insert(&word(100 + number), b"short").unwrap());
    }
    let keys: Vec<[u8; 8]> = (0..200).map(word).collect();
    let mut keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let all = client.multi_get(&keys).unwrap();
    assert!(all[..100].iter().all(|value| value.as_ref() == Some(&long)));
    assert!(all[100..].iter().all(|value| value.as_deref() == Some(b"short")));
    for (budget, count) in [(usize::MAX, 200), (10 * (LENGTH + 100), 10), (3 * LENGTH, 2), (LENGTH - 1, 1), (0, 1)] {
        let cost = counted(&mut client, |client| {
            assert!(client.multi_get_within(&keys, budget).unwrap() == all[..count], "{budget}");
        });
        // The buckets and the first bytes of all blocks, and whole blocks within the budget.
        let most = 200 * 1024 + count.min(100) * (LENGTH + 100);
        assert!(cost.bytes_read <= most as u64, "{budget}: {cost:?}");
    }
    // Short values, which are in their slots, do not count.
    keys.reverse();
    let found = client.multi_get_within(&keys, 0).unwrap();
    assert_eq!(found, vec![Some(b"short".to_vec()); 100]);
    assert_eq!(client.multi_get_within(&keys, 5 * (LENGTH + 100)).unwrap().len(), 105);
    // Nothing is answered behind a first value that is too long, not even that a key has none.
    let behind = [0, 1000, 100].map(word);
    let behind: Vec<&[u8]> = behind.iter().map(|key| &key[..]).collect();
    for (budget, count) in [(0, 1), (LENGTH - 1, 1), (LENGTH + 100, 3)] {
        assert_eq!(client.multi_get_within(&behind, budget).unwrap().len(), count, "{budget}");
    }
}

/// A scan holds a few long values at a time.
#[test]
fn a_scan_reads_long_values_by_and_by() {
    let nodes = Nodes::start(1, 64 << 20);
    let mut client = nodes.create(TreeOptions::default()).client().unwrap();
    let value = vec![7u8; 600_000];
    (0..20).for_each(|number| assert!(client.insert(&word(number), &value).unwrap()));
    assert_eq!(client.verify().unwrap().leaves, 1);
    let reads = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&reads);
    client.set_hook(Some(Box::new(move |verb| {
        count.fetch_add(u64::from(verb == Verb::Read), Ordering::Relaxed);
        true
    })));
    let mut before = Vec::new();
    let visit = |_: &[u8], found: &[u8]| {
        assert!(found == value);
        before.push(reads.load(Ordering::Relaxed));
    };
    assert_eq!(client.scan_with(Range::all(), visit).unwrap(), 20);
    assert!(before[19] - before[0] >= 10, "{before:?}");
    // Values behind the end of a scan are not read, wherever it ends.
    for (backward, count) in [(false, 1), (true, 1), (false, 9), (true, 20)] {
        let mut found = 0;
        let cost = counted(&mut client, |client| {
            let visit = |_: &[u8], _: &[u8]| {
                found += 1;
                found < count
            };
            assert_eq!(client.scan_while(Range { backward, ..Range::all() }, visit).unwrap(), count);
        });
        assert!(cost.bytes_read <= ((count + 7) * 600_000 + 100_000) as u64, "{count}: {cost:?}");
    }
}

/// A block that is used again was pushed and popped with 61 others: 5 round trips for all of them.
#[test]
fn free_blocks_cost_few_round_trips() {
    const KEYS: u64 = 2_000;
    const UPDATES: u64 = 60_000;
    let nodes = Nodes::start(1, 256 << 20);
    let mut client = nodes.create(TreeOptions::default()).client().unwrap();
    for number in 0..KEYS {
        assert!(client.insert(&scrambled(number), &[7; 40]).unwrap());
        assert!(client.get(&scrambled(number)).unwrap().is_some());
    }
    let mut value = [0; 40];
    let counts = counted(&mut client, |client| {
        for step in 0..UPDATES {
            value[..8].copy_from_slice(&word(step));
            assert!(client.update(&scrambled(step % KEYS), &value).unwrap());
        }
    });
    let extra = counts.round_trips as f64 / UPDATES as f64 - 2.0;
    let memory = client.memory().unwrap();
    println!("{extra:.3} extra round trips an update; {memory:?}");
    assert!(extra <= 0.12, "{extra}");
    // Three rounds of a MiB each, and what is in use.
    assert!(memory.used_bytes <= 6 << 20 && memory.live_bytes() <= 1 << 20, "{memory:?}");
}

/// A tree shrinks to a leaf when everything is deleted, in any order, and its memory is used again.
#[test]
fn a_tree_that_is_emptied_is_small() {
    for (options, keys) in [(crate::common::small(), 12_000), (TreeOptions::default(), 40_000)] {
        let nodes = Nodes::start(1, 256 << 20);
        let mut client = nodes.create(options).client().unwrap();
        let mut allocated = Vec::new();
        for round in 0..4 {
            let mut order: Vec<u64> = (0..keys).collect();
            order.iter().for_each(|&number| assert!(client.insert(&word(number), &word(round)).unwrap()));
            let full = client.verify().unwrap();
            assert!(full.height > 1 && full.keys == keys);
            match round {
                0 => {}
                1 => order.reverse(),
                _ => Random::seeded(round).shuffle(&mut order),
            }
            order.iter().for_each(|number| assert!(client.delete(&word(*number)).unwrap()));
            let empty = client.verify().unwrap();
            println!("round {round}: {} bytes of {}, {empty:?}", empty.bytes(), full.bytes());
            assert!(empty.keys == 0 && empty.unsettled == 0 && empty.bytes() <= 20_000, "{empty:?}");
            (0..3).for_each(|_| client.reclaim().unwrap());
            allocated.push(nodes.sessions()[0].node_statistics().unwrap().allocated_bytes);
        }
        println!("{allocated:?} bytes allocated");
        // Deletion in random order may take one more extent, once.
        assert!(allocated[3] <= allocated[2] && allocated[3] <= allocated[0] + (1 << 20), "{allocated:?}");
    }
}

/// Inner nodes merge and split while others use them, and wherever a client stops others complete it.
#[test]
fn inner_nodes_come_and_go_while_clients_stop() {
    const KEYS: u64 = 900;
    for stop in 0..60u64 {
        let nodes = Nodes::start(1, 64 << 20);
        let tree = nodes.create(crate::common::small());
        let mut client = tree.client().unwrap();
        (0..KEYS).for_each(|number| assert!(client.insert(&word(number), b"12345678").unwrap()));
        assert!(client.verify().unwrap().height > 1);
        let mut dying = nodes.open().client().unwrap();
        let threads: Vec<_> = (0..2u64)
            .map(|thread| {
                let tree = nodes.open();
                let run = move || {
                    let mut client = tree.client().unwrap();
                    for number in (0..KEYS).filter(|number| number % 3 == thread) {
                        assert!(client.delete(&word(number)).unwrap());
                    }
                };
                forebay_env::thread::spawn("client", run).unwrap()
            })
            .collect();
        let mut left = 300 + stop * 173;
        dying.set_hook(Some(Box::new(move |_| {
            left = left.saturating_sub(1);
            left > 0
        })));
        for number in (0..KEYS).filter(|number| number % 3 == 2) {
            if dying.delete(&word(number)).is_err() {
                break;
            }
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        for number in 0..KEYS {
            let _ = client.delete(&word(number)).unwrap();
        }
        let empty = client.verify().unwrap();
        assert!(empty.keys == 0 && empty.leaves <= 20, "stop {stop}: {empty:?}");
        for number in 0..KEYS {
            assert!(client.insert(&word(number), b"12345678").unwrap(), "stop {stop}");
        }
        assert_eq!(client.verify().unwrap().keys, KEYS, "stop {stop}");
    }
}

/// A cache too small for the inner nodes costs reads and changes no answer.
#[test]
fn small_caches_give_the_same_answers() {
    for cache_bytes in [0, 2_000, 10_000] {
        let nodes = Nodes::start(1, 64 << 20);
        let mut client = nodes.create(TreeOptions { cache_bytes, ..crate::common::small() }).client().unwrap();
        for number in 0..2_000 {
            assert!(client.insert(&scrambled(number), &word(number)).unwrap());
            assert!(client.tree().cached_bytes() <= cache_bytes);
        }
        let all = client.scan(Range::all()).unwrap();
        assert!(all.len() == 2_000 && all.is_sorted());
        for number in 0..2_000 {
            assert_eq!(client.get(&scrambled(number)).unwrap(), Some(word(number).to_vec()));
            assert!(client.delete(&scrambled(number)).unwrap());
        }
        assert_eq!(client.verify().unwrap().keys, 0);
    }
}

/// Leaves are spread over the nodes, and a scan asks each node once for a batch of them.
#[test]
fn scans_over_several_nodes_are_grouped() {
    const NODES: u64 = 3;
    let nodes = Nodes::start(NODES as u32, 64 << 20);
    let mut client = loaded(&nodes, TreeOptions::default(), scrambled);
    let sessions = nodes.sessions();
    let allocated = sessions.iter().map(|session| session.node_statistics().unwrap().allocated_bytes);
    let allocated: Vec<u64> = allocated.collect();
    assert!(allocated.iter().max() <= allocated.iter().min().map(|least| least * 2).as_ref(), "{allocated:?}");
    let mut sum = Counts::default();
    for number in 0..50 {
        let from = word(number << 57);
        sum +=
            counted(&mut client, |client| assert_eq!(client.scan(Range::starting_at(&from, 200)).unwrap().len(), 200));
    }
    println!("a scan of 200: {} reads, {} doorbells", sum.reads as f64 / 50.0, sum.doorbells as f64 / 50.0);
    assert!(sum.doorbells <= 50 * 2 * NODES && sum.reads > sum.doorbells);
}

#[test]
fn a_scan_of_a_hundred() {
    for key in [word, scrambled] {
        let nodes = Nodes::start(1, 256 << 20);
        let mut client = loaded(&nodes, TreeOptions::default(), key);
        let mut random = Random::seeded(3);
        let mut sum = Counts::default();
        for _ in 0..500 {
            let from = key(random.below(KEYS));
            sum += counted(&mut client, |client| {
                client.scan(Range::starting_at(&from, 100)).unwrap();
            });
        }
        let (trips, bytes) = (sum.round_trips as f64 / 500.0, sum.bytes_read as f64 / 500.0 / 1600.0);
        println!("a scan of 100: {trips:.2} round trips, {bytes:.2} times the payload");
        assert!(trips <= 2.0 && bytes <= 3.0);
    }
}

/// Runs `other` before the first swap of `operation`.
fn overtaken(
    client: &mut TreeClient,
    other: impl FnOnce() + Send + 'static,
    operation: impl FnOnce(&mut TreeClient),
) -> Counts {
    let mut other = Some(other);
    client.set_hook(Some(Box::new(move |verb| {
        if verb == Verb::CompareSwap
            && let Some(other) = other.take()
        {
            other();
        }
        true
    })));
    let counts = counted(client, operation);
    client.set_hook(None);
    counts
}

#[test]
fn a_write_that_lost_to_a_blind_one_stands_before_it() {
    let nodes = Nodes::start(1, 64 << 20);
    let tree = nodes.create(TreeOptions::default());
    let other = || nodes.open().client().unwrap();
    let key = word(1);
    for value in [&b"12345678"[..], b"a value that is out of place"] {
        let mut client = tree.client().unwrap();
        // There is memory for the value.
        client.put(&key, value).unwrap();
        client.put(&key, b"before..").unwrap();
        // The client has not lost lately: it starts again.
        let mut second = other();
        let put = move || assert!(second.put(&word(1), b"blind...").unwrap());
        let counts = overtaken(&mut client, put, |client| assert!(client.put(&key, value).unwrap()));
        assert_eq!(round_trips(&counts), 3.0);
        assert_eq!(client.get(&key).unwrap().unwrap(), value);
        // The client has lost lately: it knows that nobody depends on the value.
        client.put(&key, b"before..").unwrap();
        let mut second = other();
        let put = move || assert!(second.put(&word(1), b"blind...").unwrap());
        let counts = overtaken(&mut client, put, |client| assert!(client.update(&key, value).unwrap()));
        assert_eq!(round_trips(&counts), 2.0);
        assert_eq!(client.get(&key).unwrap().unwrap(), b"blind...");
        // A delete that overtakes it found its value.
        let mut second = other();
        let delete = move || assert!(second.delete(&word(1)).unwrap());
        overtaken(&mut client, delete, |client| assert!(client.update(&key, value).unwrap()));
        assert_eq!(client.get(&key).unwrap(), None);
    }
    // A conditional swap would not have been done after it.
    let mut client = tree.client().unwrap();
    client.put(&key, b"first...").unwrap();
    let mut second = other();
    let put = move || assert!(second.put(&word(1), b"blind...").unwrap());
    overtaken(&mut client, put, |client| assert!(client.put(&key, b"second..").unwrap()));
    client.put(&key, b"before..").unwrap();
    let mut second = other();
    let swap = move || assert!(second.compare_and_set(&word(1), b"before..", b"after...").unwrap());
    let counts = overtaken(&mut client, swap, |client| assert!(client.put(&key, b"last....").unwrap()));
    assert_eq!(round_trips(&counts), 3.0);
    assert_eq!(client.get(&key).unwrap().unwrap(), b"last....");
    client.verify().unwrap();
}

/// Round trips of updates that were hooked: a hook gives each operation a doorbell of its own. A round trip
/// is one read of a bucket, or one swap with the read of the bucket's mark that may follow it.
fn round_trips(counts: &Counts) -> f64 {
    let buckets = (counts.bytes_read - 8 * counts.atomics - 8 * counts.reads) as f64 / 240.0;
    buckets + counts.atomics as f64
}

/// Sixteen clients that yield before each operation, so that others come between a read and its swap.
#[test]
fn contention_costs_few_round_trips() {
    const KEYS: u64 = 300_000;
    let nodes = Nodes::start(1, 256 << 20);
    let tree = nodes.create(TreeOptions::default());
    let mut client = tree.client().unwrap();
    client.bulk_load((0..KEYS).map(|number| (word(number), word(number)))).unwrap();
    for number in 0..KEYS {
        client.get(&word(number)).unwrap();
    }
    let weights: Vec<f64> = (1..=KEYS).map(|rank| (rank as f64).powf(-0.99)).collect();
    let mut bounds = Vec::new();
    weights.iter().fold(0.0, |sum, weight| {
        bounds.push(sum + weight);
        sum + weight
    });
    let threads: Vec<_> = (0..16u64)
        .map(|thread| {
            let (tree, bounds) = (tree.clone(), bounds.clone());
            let run = move || {
                let mut client = tree.client().unwrap();
                let mut random = Random::seeded(thread);
                // The hook does not stop the client, but yields at each of its operations.
                client.set_hook(Some(Box::new(|_| {
                    std::thread::yield_now();
                    true
                })));
                let before = client.counts();
                for step in 0..1000u64 {
                    let at = random.unit() * bounds.last().unwrap();
                    let rank = bounds.partition_point(|bound| *bound < at) as u64;
                    assert!(client.update(&word(rank), &word(step << 8 | thread)).unwrap());
                }
                client.counts() - before
            };
            forebay_env::thread::spawn("client", run).unwrap()
        })
        .collect();
    let mut sum = Counts::default();
    threads.into_iter().for_each(|thread| sum += thread.join().unwrap());
    let extra = round_trips(&sum) / 16_000.0 - 2.0;
    println!("{extra:.3} extra round trips an update");
    assert!(extra <= 0.05);
}
