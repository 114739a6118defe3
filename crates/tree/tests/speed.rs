//! How fast a client is over shared memory. Run it in a release build, alone:
//! `cargo test --release -p forebay-tree --test speed -- --ignored --nocapture`. Figures are processor
//! time of this process, which is what remains comparable on a machine that is busy.

mod common;

use common::word;
use forebay_env::{Random, cpu};
use forebay_memory_client::{ClientOptions, MemoryClient};
use forebay_memory_node::{MemoryNode, Options};
use forebay_tree::{Tree, TreeOptions};

#[test]
#[ignore = "measures"]
fn operations_a_second() {
    let keys: u64 = std::env::var("FOREBAY_KEYS").ok().and_then(|keys| keys.parse().ok()).unwrap_or(1_000_000);
    let (listener, connector) = forebay_fabric::inprocess::listen(1).unwrap();
    let memory = Options { threads: 0, ..Options::with_memory(keys * 120 + (256 << 20)) };
    let _node = MemoryNode::start(Box::new(listener), memory).unwrap();
    let options = ClientOptions { foreign_reads: true, ..ClientOptions::default() };
    let session = MemoryClient::connect(connector.connect().unwrap(), "speed", options).unwrap();
    let tree = Tree::create(&[session], "tree", TreeOptions::default()).unwrap();
    let mut client = tree.client().unwrap();
    let key = |number: u64| word(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut order: Vec<u64> = (0..keys).collect();
    Random::seeded(1).shuffle(&mut order);
    let measure = |name: &str, operation: &mut dyn FnMut(u64)| {
        let before = cpu::process_nanos();
        order.iter().for_each(|&number| operation(number));
        let nanos = (cpu::process_nanos() - before) as f64 / keys as f64;
        println!("{name}: {nanos:.0} ns, {:.2} million a second", 1000.0 / nanos);
    };
    measure("insert", &mut |number| assert!(client.insert(&key(number), &word(number)).unwrap()));
    let mut value = Vec::new();
    measure("get", &mut |number| assert!(client.get_into(&key(number), &mut value).unwrap()));
    measure("update", &mut |number| assert!(client.update(&key(number), &word(number + 1)).unwrap()));
}
