//! The speed of a client over shared memory. Run it in a release build, alone: `cargo test --release -p
//! forebay-tree --test tree speed -- --ignored --nocapture`. Figures are processor time of the client's
//! thread, which stays comparable on a busy machine. The node commits its memory, as `forebay
//! memory-node` does by default.

use crate::common::word;
use forebay_env::{Random, cpu};
use forebay_fabric::shm;
use forebay_memory_client::{ClientOptions, MemoryClient};
use forebay_memory_node::{MemoryNode, Options};
use forebay_tree::{Range, Tree, TreeOptions};

#[test]
#[ignore = "measures"]
fn operations_a_second() {
    let keys: u64 = std::env::var("FOREBAY_KEYS").ok().and_then(|keys| keys.parse().ok()).unwrap_or(1_000_000);
    let path = std::env::temp_dir().join(format!("forebay-speed-{}", std::process::id()));
    let listener = shm::listen(&path, 1).unwrap();
    let memory = Options { threads: 0, commit: true, ..Options::with_memory(keys * 80 + (256 << 20)) };
    let _node = MemoryNode::start(Box::new(listener), memory).unwrap();
    let options = ClientOptions { foreign_reads: true, ..ClientOptions::default() };
    let session = MemoryClient::connect(shm::connect(&path).unwrap(), "speed", options).unwrap();
    let tree = Tree::create(&[session], "tree", TreeOptions::default()).unwrap();
    let mut client = tree.client().unwrap();
    let key = |number: u64| word(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut order: Vec<u64> = (0..keys).collect();
    Random::seeded(1).shuffle(&mut order);
    let measure = |name: &str, each: u64, operation: &mut dyn FnMut(&[u64])| {
        let before = cpu::thread_nanos();
        order.chunks_exact(each as usize).for_each(operation);
        let nanos = (cpu::thread_nanos() - before) as f64 / keys as f64;
        println!("{name}: {nanos:.0} ns, {:.2} million a second", 1000.0 / nanos);
    };
    measure("insert", 1, &mut |at| assert!(client.insert(&key(at[0]), &word(at[0])).unwrap()));
    let mut value = Vec::new();
    measure("get", 1, &mut |at| assert!(client.get_into(&key(at[0]), &mut value).unwrap()));
    measure("update", 1, &mut |at| assert!(client.update(&key(at[0]), &word(at[0] + 1)).unwrap()));
    measure("multi_get of 32, a key", 32, &mut |at| {
        let keys: Vec<[u8; 8]> = at.iter().map(|&number| key(number)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        assert!(client.multi_get(&keys).unwrap().iter().all(Option::is_some));
    });
    measure("scan of 100, a key", 100, &mut |at| {
        client.scan_with(Range::starting_at(&key(at[0]), 100), |_, _| {}).unwrap();
    });
    measure("delete", 1, &mut |at| assert!(client.delete(&key(at[0])).unwrap()));
}
