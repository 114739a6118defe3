//! A memory node and its clients on one thread, over the simulated back end. A waiting client runs
//! the node.

use forebay_base::ErrorKind;
use forebay_env::Random;
use forebay_env::sync::{Mutex, lock};
use forebay_fabric::sim::{Faults, Order, SimNetwork, SimOptions};
use forebay_fabric::{EndpointOptions, RevocationMode};
use forebay_memory_client::{
    AllocatorOptions, ClientOptions, Error, ExtentRange, MemoryClient, Purpose, ShardId, SubAllocator,
};
use forebay_memory_node::{MemoryNode, Options};
use std::sync::Arc;
use std::time::Duration;

const SHARD: ShardId = ShardId(0);

type Shared = Arc<Mutex<Option<MemoryNode>>>;

fn start(network: &SimNetwork) -> MemoryNode {
    let listener = network.listen(1).unwrap();
    let options = Options { extent_bytes: Some(64 << 10), clock: network.clock(), ..Options::with_memory(1 << 20) };
    MemoryNode::new(Box::new(listener), options).unwrap()
}

fn serve(network: &SimNetwork, node: &Shared) {
    let node = Arc::clone(node);
    network.set_progress_hook(move || {
        if let Ok(mut node) = node.try_lock()
            && let Some(node) = node.as_mut()
        {
            node.step(Duration::ZERO).expect("the node serves");
        }
    });
}

fn connect(network: &SimNetwork, name: &str) -> Result<Arc<MemoryClient>, Error> {
    let options = ClientOptions { renew: false, clock: network.clock(), ..ClientOptions::default() };
    MemoryClient::connect(network.connect(1)?, name, options)
}

/// Allocates, writes, reads back and frees at random.
fn work(allocator: &SubAllocator, random: &mut Random, steps: usize) -> Vec<(ExtentRange, Vec<u8>)> {
    let client = allocator.client();
    let mut endpoint = client.link().endpoint(EndpointOptions::default()).unwrap();
    let mut held: Vec<(ExtentRange, Vec<u8>)> = Vec::new();
    for _ in 0..steps {
        if held.len() < 6 && random.one_in(2, 3) {
            let mut bytes = vec![0; 1 + random.below(20_000) as usize];
            random.fill(&mut bytes);
            let range = allocator.allocate(bytes.len() as u64).unwrap();
            endpoint.write(allocator.resolve(range).unwrap(), &bytes).unwrap();
            held.push((range, bytes));
        } else if !held.is_empty() {
            let (range, bytes) = held.swap_remove(random.below(held.len() as u64) as usize);
            let mut found = vec![0; bytes.len()];
            endpoint.read(allocator.resolve(range).unwrap(), &mut found).unwrap();
            assert!(found == bytes, "{range} was changed");
            allocator.free(range).unwrap();
            allocator.give_back_spare().unwrap();
        }
    }
    held
}

fn scenario(seed: u64) {
    let mut random = Random::seeded(seed);
    let options = SimOptions {
        order: [Order::Total, Order::Writes, Order::None][random.below(3) as usize],
        revocation: [RevocationMode::Enforced, RevocationMode::Cooperative][random.below(2) as usize],
        line_bytes: [8, 64][random.below(2) as usize],
        ..SimOptions::default()
    };
    let network = SimNetwork::new(seed, options);
    let node: Shared = Arc::new(Mutex::new(Some(start(&network))));
    serve(&network, &node);

    let first = connect(&network, "first").unwrap();
    let store = first.create_store("db", b"").unwrap();
    let shard = store.acquire_shard(SHARD, false).unwrap();
    let allocator = SubAllocator::new(Arc::clone(&first), Some(shard.clone()), AllocatorOptions::default());
    let held = work(&allocator, &mut random, 60);
    let live: Vec<ExtentRange> = held.iter().map(|(range, _)| *range).collect();
    allocator.adopt(&live).unwrap();
    first.renew().unwrap();

    // Another session takes over and finds everything unchanged.
    let second = connect(&network, "second").unwrap();
    let store = second.open_store("db").unwrap();
    let taken = store.acquire_shard(SHARD, true).unwrap();
    let restored = SubAllocator::restore(&store, taken, &live, AllocatorOptions::default()).unwrap();
    assert_eq!(shard.set_root(b"late").unwrap_err().kind(), ErrorKind::Fenced);
    let mut endpoint = second.link().endpoint(EndpointOptions::default()).unwrap();
    for (range, bytes) in held {
        let mut found = vec![0; bytes.len()];
        endpoint.read(restored.resolve(range).unwrap(), &mut found).unwrap();
        assert!(found == bytes, "{range} was changed");
        restored.free(range).unwrap();
    }
    work(&restored, &mut random, 40);

    // The node dies. Every session notices, and nobody trusts anything from its earlier life.
    let stale = restored.allocate(4096).unwrap();
    network.crash(1);
    drop(lock(&node).take());
    let error = second.node_statistics().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(restored.resolve(stale).unwrap_err().kind(), ErrorKind::Unavailable);
    *lock(&node) = Some(start(&network));
    let third = connect(&network, "third").unwrap();
    assert_ne!(third.node().incarnation, second.node().incarnation);
    assert_eq!(third.open_store("db").unwrap_err().kind(), ErrorKind::NotFound);
    let allocator = SubAllocator::new(third, None, AllocatorOptions::default());
    work(&allocator, &mut random, 40);
}

#[test]
fn takeover_and_restart_on_one_thread() {
    for seed in 0..30 {
        let result = std::panic::catch_unwind(|| scenario(seed));
        assert!(result.is_ok(), "seed {seed} failed: run scenario({seed})");
    }
}

/// Calls over a network that loses completions, breaks endpoints and ends links. Each call ends
/// with an answer or a typed error. When all sessions are gone, only adopted memory is missing.
fn lossy(seed: u64) {
    let mut random = Random::seeded(seed);
    let faults = Faults { lose_completion: 10_000, break_endpoint: 20_000, close_link: 5_000, crash_node: 0 };
    let network = SimNetwork::new(seed, SimOptions { faults, ..SimOptions::default() });
    let node: Shared = Arc::new(Mutex::new(Some(start(&network))));
    serve(&network, &node);
    let mut client: Option<Arc<MemoryClient>> = None;
    let (mut answered, mut failed) = (0, 0);
    for _ in 0..150 {
        let Some(alive) = client.clone().filter(|client| client.check().is_ok()) else {
            client = connect(&network, "lossy").ok();
            continue;
        };
        let result = match random.below(4) {
            0 => alive.renew(),
            1 => alive.lease(2, Purpose::Flush).and_then(|leased| alive.return_extents(&leased)),
            2 => alive.lease(1, Purpose::Flush).map(drop),
            _ => alive.open_store("db").or_else(|_| alive.create_store("db", b"")).and_then(|store| {
                let shard = store.acquire_shard(SHARD, true)?;
                shard.set_root(b"root")?;
                let leased = alive.lease(1, Purpose::Flush)?;
                shard.adopt(&leased)?;
                shard.release_extents(&leased)
            }),
        };
        match result {
            Ok(()) => answered += 1,
            Err(error) => {
                failed += 1;
                let expected = [ErrorKind::Unavailable, ErrorKind::TimedOut, ErrorKind::Full, ErrorKind::Busy];
                // The store may exist because the reply to its creation was lost.
                let lost_reply = error.kind() == ErrorKind::AlreadyExists;
                let lapsed = matches!(error, Error::Lapsed { .. });
                assert!(lapsed || lost_reply || expected.contains(&error.kind()), "{error}");
            }
        }
    }
    assert!(answered > 0 && failed > 0, "{answered} answered, {failed} failed");
    drop(client);
    network.settle();
    let mut node = lock(&node);
    let node = node.as_mut().expect("a node");
    // Leases run out where no link's end is reported.
    for _ in 0..8 {
        network.clock().sleep(Duration::from_secs(3));
        while node.step(Duration::ZERO).expect("the node serves") {}
    }
    let figures = node.statistics();
    assert_eq!((figures.sessions, figures.leased_extents, figures.recycling_extents), (0, 0, 0));
    assert_eq!(figures.free_extents + figures.kept_extents + figures.adopted_extents, figures.extents);
}

#[test]
fn a_lossy_network_loses_no_memory() {
    for seed in 0..20 {
        let result = std::panic::catch_unwind(|| lossy(seed));
        assert!(result.is_ok(), "seed {seed} failed: run lossy({seed})");
    }
}
