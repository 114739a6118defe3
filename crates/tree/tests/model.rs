//! A tree does what a `BTreeMap` does.

use crate::common::{Nodes, small, word};
use forebay_env::Random;
use forebay_tree::{Range, Tree, TreeClient, TreeOptions};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(random: &mut Random, keys: u64) -> Vec<u8> {
    let number = random.below(keys);
    match number % 4 {
        0 | 1 => word(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_vec(),
        2 => word(number).to_vec(),
        _ => format!("http://example.org/a/long/common/prefix/{number}").into_bytes(),
    }
}

fn value(random: &mut Random) -> Vec<u8> {
    let length = match random.below(10) {
        0..5 => 8,
        5 => random.below(6),
        6 => random.below(40),
        7 => 600 + random.below(600),
        8 if random.one_in(1, 20) => 70_000,
        _ => 8,
    };
    let mut bytes = vec![0; length as usize];
    random.fill(&mut bytes);
    bytes
}

fn step(client: &mut TreeClient, model: &mut Model, random: &mut Random, keys: u64) {
    let (key, value) = (key(random, keys), value(random));
    match random.below(12) {
        0..3 => assert_eq!(client.put(&key, &value).unwrap(), model.insert(key, value).is_some()),
        3..5 => {
            let is_new = !model.contains_key(&key);
            assert_eq!(client.insert(&key, &value).unwrap(), is_new);
            if is_new {
                model.insert(key, value);
            }
        }
        5 => {
            assert_eq!(client.update(&key, &value).unwrap(), model.contains_key(&key));
            if let Some(place) = model.get_mut(&key) {
                *place = value;
            }
        }
        6..9 => assert_eq!(client.delete(&key).unwrap(), model.remove(&key).is_some()),
        9 => {
            let expected = match model.get(&key) {
                Some(value) if random.one_in(1, 2) => value.clone(),
                _ => b"another".to_vec(),
            };
            let is_same = model.get(&key) == Some(&expected);
            assert_eq!(client.compare_and_set(&key, &expected, &value).unwrap(), is_same);
            if is_same {
                model.insert(key, value);
            }
        }
        10 => assert_eq!(client.get(&key).unwrap().as_ref(), model.get(&key)),
        _ => scan(client, model, random, &key),
    }
}

fn scan(client: &mut TreeClient, model: &Model, random: &mut Random, key: &[u8]) {
    let limit = random.below(40) as usize;
    let bound = |random: &mut Random, key| match random.below(3) {
        0 => Bound::Included(key),
        1 => Bound::Excluded(key),
        _ => Bound::Unbounded,
    };
    let (from, to) = (bound(random, key), Bound::Unbounded);
    let backward = random.one_in(1, 2);
    let (from, to) = if backward { (Bound::Unbounded, from) } else { (from, to) };
    let range = Range { from, to, backward, limit };
    let inside = model.range::<[u8], _>((from, to)).map(|(key, value)| (key.clone(), value.clone()));
    let expected: Vec<_> = if backward { inside.rev().take(limit).collect() } else { inside.take(limit).collect() };
    assert_eq!(client.scan(range).unwrap(), expected);
}

fn check(client: &mut TreeClient, model: &Model) {
    let statistics = client.verify().unwrap();
    assert_eq!(statistics.keys, model.len() as u64);
    let all: Vec<_> = model.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    assert_eq!(client.scan(Range::all()).unwrap(), all);
    assert_eq!(client.count().unwrap(), model.len() as u64);
}

fn run(tree: &Arc<Tree>, seed: u64, steps: u64, keys: u64) -> Model {
    println!("seed {seed}");
    let (mut random, mut model) = (Random::seeded(seed), Model::new());
    let mut client = tree.client().unwrap();
    for _ in 0..steps {
        step(&mut client, &mut model, &mut random, keys);
    }
    check(&mut client, &model);
    model
}

#[test]
fn any_operations_small_leaves() {
    for seed in 0..8 {
        let nodes = Nodes::start(1, 128 << 20);
        let tree = nodes.create(small());
        let mut model = run(&tree, seed, 6000, 100 << (2 * (seed % 4)));
        // Everything goes, and the tree shrinks.
        let mut client = nodes.open().client().unwrap();
        check(&mut client, &model);
        for key in model.keys() {
            assert!(client.delete(key).unwrap());
        }
        model.clear();
        check(&mut client, &model);
        assert!(client.verify().unwrap().leaves < 100);
    }
}

#[test]
fn any_operations_default_leaves_two_nodes() {
    let nodes = Nodes::start(2, 128 << 20);
    run(&nodes.create(TreeOptions::default()), 1, 20_000, 10_000);
}

#[test]
fn a_cache_of_no_bytes_changes_nothing() {
    let nodes = Nodes::start(1, 64 << 20);
    let tree = nodes.create(TreeOptions { cache_bytes: 0, ..small() });
    run(&tree, 3, 3000, 500);
    assert_eq!(tree.cached_bytes(), 0);
}

#[test]
fn sorted_input_is_loaded_and_a_used_tree_refuses() {
    let nodes = Nodes::start(1, 128 << 20);
    let tree = nodes.create(TreeOptions::default());
    let mut client = tree.client().unwrap();
    let entries = (0..50_000u64).map(|number| (word(number * 3), word(number)));
    assert_eq!(client.bulk_load(entries.clone()).unwrap(), 50_000);
    let model: Model = entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    check(&mut client, &model);
    assert!(client.bulk_load([(b"a", b"b")]).is_err());
    assert!(client.put(&word(1), b"x").is_ok());
    drop(client);
    tree.drop_tree().unwrap();
    assert!(Tree::open(&nodes.sessions(), "tree", TreeOptions::default()).is_err());
}

#[test]
fn many_keys_by_several_in_one_call() {
    let nodes = Nodes::start(1, 64 << 20);
    let mut client = nodes.create(small()).client().unwrap();
    for number in 0..500u64 {
        client.insert(&word(number), format!("value {number}").as_bytes()).unwrap();
    }
    let keys: Vec<[u8; 8]> = (0..600).map(word).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    for (number, value) in client.multi_get(&keys).unwrap().into_iter().enumerate() {
        assert_eq!(value, (number < 500).then(|| format!("value {number}").into_bytes()));
    }
}
