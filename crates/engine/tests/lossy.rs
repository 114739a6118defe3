//! A database over a network that loses completions, breaks endpoints and delays operations in
//! flight. The link lives on, so calls continue over other endpoints, and no read returns wrong
//! data.

use crate::common::small_options;
use forebay_base::ErrorKind;
use forebay_engine::{Db, Error, Options};
use forebay_env::Random;
use forebay_fabric::sim::{Faults, Order, SimNetwork, SimOptions, Time};
use forebay_memory_client::{ClientOptions, MemoryClient};
use forebay_memory_node::{Handle, MemoryNode};
use std::collections::BTreeMap;
use std::time::Duration;

fn start(seed: u64, faults: Faults, memory_bytes: u64, options: Options) -> (SimNetwork, Handle, Db) {
    let order = [Order::Total, Order::Writes, Order::None][seed as usize % 3];
    let network = SimNetwork::new(seed, SimOptions { order, faults, time: Time::Real, ..SimOptions::default() });
    let node_options = forebay_memory_node::Options::with_memory(memory_bytes);
    let node = MemoryNode::start(Box::new(network.listen(1).unwrap()), node_options).unwrap();
    // Connecting and opening may fail: the test is about an open database.
    let open = |_| {
        let client = MemoryClient::connect(network.connect(1).unwrap(), "lossy", ClientOptions::default()).ok()?;
        answered(Db::open(&[client], options.clone()), seed)
    };
    let db = (0..100).find_map(open).expect("one of 100 opens");
    (network, node, db)
}

fn options() -> Options {
    Options { fabric_timeout: Duration::from_millis(100), ..small_options() }
}

/// The answer of a call, if there was one. Any failure must come from the network.
fn answered<T>(result: Result<T, Error>, seed: u64) -> Option<T> {
    match result {
        Ok(answer) => Some(answer),
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut), "seed {seed}: {error}");
            None
        }
    }
}

#[test]
fn broken_endpoints_are_replaced() {
    let (mut calls, mut failures) = (0, 0);
    for seed in 0..6 {
        println!("seed {seed}");
        let faults = Faults { lose_completion: 200, break_endpoint: 2000, ..Faults::default() };
        let (_network, _node, db) = start(seed, faults, 64 << 20, options());
        let mut random = Random::seeded(seed);
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for i in 0..3000u64 {
            let key = format!("{:04}", random.below(500)).into_bytes();
            let mut value = vec![0; random.below(200) as usize];
            random.fill(&mut value);
            db.put(&key, &value).unwrap_or_else(|error| panic!("seed {seed}, put {i}: {error}"));
            model.insert(key, value);
            let keys: Vec<_> = (0..8).map(|_| format!("{:04}", random.below(600)).into_bytes()).collect();
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let expected: Vec<_> = keys.iter().map(|&key| model.get(key).cloned()).collect();
            calls += 2;
            match answered(db.get(keys[0]), seed) {
                Some(found) => assert_eq!(found, expected[0], "seed {seed}"),
                None => failures += 1,
            }
            match answered(db.multi_get(&keys), seed) {
                Some(found) => assert_eq!(found, expected, "seed {seed}"),
                None => failures += 1,
            }
        }
        for (key, value) in &model {
            let found = (0..100).find_map(|_| answered(db.get(key), seed)).expect("one of 100 reads");
            assert_eq!(found.as_ref(), Some(value), "seed {seed}");
        }
        let _ = answered(db.close(), seed);
    }
    println!("{failures} of {calls} calls failed");
    assert!(failures * 1000 <= calls, "{failures} of {calls} calls failed");
}
