//! Threads at once, over one node.

use crate::common::history::{Action, History};
use crate::common::{Nodes, small, word};
use forebay_env::Random;
use forebay_env::thread::spawn;
use forebay_tree::{Range, Tree};

#[test]
fn histories_of_eight_clients_are_explained() {
    for seed in 0..6 {
        let nodes = Nodes::start(1 + (seed % 2) as u32, 64 << 20);
        nodes.create(small());
        let history = History::default();
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let tree = Tree::open(&nodes.sessions(), "tree", small()).unwrap();
                let history = history.clone();
                let run = move || {
                    let mut random = Random::seeded(seed * 100 + thread);
                    let mut client = tree.client().unwrap();
                    let keys: Vec<Vec<u8>> = (0..40u64).map(|number| word(number * 3).to_vec()).collect();
                    for step in 0..150 {
                        let key = &keys[random.below(40) as usize];
                        let value = word(random.below(3)).to_vec();
                        let action = match random.below(9) {
                            0 => Action::Get,
                            1 => Action::Put(value),
                            2..5 => Action::Insert(value),
                            5 => Action::Swap(word(random.below(3)).to_vec(), value),
                            6 => Action::Update(value),
                            _ => Action::Delete,
                        };
                        history.run(&mut client, key, action).unwrap();
                        if step % 50 == 0 {
                            let begin = history.now();
                            let found = client.scan(Range::all()).unwrap();
                            history.scanned(&keys, &found, begin);
                            client.reclaim().unwrap();
                        }
                    }
                };
                spawn("client", run).unwrap()
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        nodes.open().client().unwrap().verify().unwrap();
        if let Some(unexplained) = history.unexplained() {
            panic!("seed {seed}: {unexplained}");
        }
    }
}

#[test]
fn each_client_reads_its_own_writes() {
    let nodes = Nodes::start(1, 256 << 20);
    nodes.create(small());
    let threads: Vec<_> = (0..4u64)
        .map(|thread| {
            let tree = Tree::open(&nodes.sessions(), "tree", small()).unwrap();
            let run = move || {
                let mut client = tree.client().unwrap();
                let mut random = Random::seeded(thread);
                let mut own = std::collections::BTreeMap::new();
                for step in 0..6000u64 {
                    let key = word(random.below(3000) * 4 + thread);
                    if random.one_in(1, 3) {
                        assert_eq!(client.delete(&key).unwrap(), own.remove(&key).is_some());
                    } else {
                        assert_eq!(client.put(&key, &word(step)).unwrap(), own.insert(key, step).is_some());
                    }
                    let key = word(random.below(3000) * 4 + thread);
                    assert_eq!(client.get(&key).unwrap(), own.get(&key).map(|step| word(*step).to_vec()));
                }
                own.len() as u64
            };
            spawn("client", run).unwrap()
        })
        .collect();
    let keys: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    let statistics = nodes.open().client().unwrap().verify().unwrap();
    assert_eq!((statistics.keys, statistics.unsettled), (keys, 0));
}
