//! Batches that cross shards whose logs are in memory, while processes are killed.

use super::copied::register;
use super::model::contents;
use super::process::Process;
use super::{Cluster, small_options};
use forebay_engine::{Db, Durability, Error, Options, ShardBounds, Storage, WriteBatch};
use forebay_fabric::Link;
use forebay_fabric::sim::{SimNetwork, SimOptions, Time};
use forebay_memory_client::{ClientOptions, MemoryClient};
use forebay_memory_node::{Handle, MemoryNode};
use std::sync::Arc;

const SHARDS: usize = 3;

/// Options of a database of three shards without background work.
pub fn options(copies: usize, register: &Storage) -> Options {
    let bounds = ["k1", "k2"].map(|key| key.as_bytes().to_vec());
    Options {
        name: Some("db".to_owned()),
        // The earlier process is dead.
        takeover: true,
        shards: SHARDS,
        shard_bounds: ShardBounds::Given(bounds.to_vec()),
        durability: Durability::Memory { copies },
        register: (copies > 1).then(|| register.clone()),
        background_threads: 0,
        ..small_options()
    }
}

/// A key of a shard.
pub fn key(shard: usize, name: &str) -> Vec<u8> {
    format!("k{shard}{name}").into_bytes()
}

/// What was written, and which part was acknowledged.
#[derive(Default)]
struct Written {
    /// Batches, each with its shards. Each sets a key of its own to its name.
    batches: Vec<(String, Vec<usize>)>,
    acknowledged: Vec<(Vec<u8>, String)>,
}

impl Written {
    /// Writes to these shards, as one batch.
    fn write(&mut self, db: &Db, shards: &[usize]) -> Result<(), Error> {
        let name = format!("{:04}", self.batches.len());
        self.batches.push((name.clone(), shards.to_vec()));
        let mut batch = WriteBatch::new();
        for shard in shards {
            batch.put(&key(*shard, &name), name.as_bytes());
        }
        db.write(&batch)?;
        self.acknowledged.extend(shards.iter().map(|shard| (key(*shard, &name), name.clone())));
        Ok(())
    }

    /// Each batch is there as a whole or not at all. If it was acknowledged, it is there.
    fn check(&self, db: &Db, context: &str) {
        let found = contents(db);
        for (name, shards) in &self.batches {
            let there = shards.iter().filter(|shard| found.contains_key(&key(**shard, name))).count();
            assert!(there == 0 || there == shards.len(), "{context}: {there} of {} parts of {name}", shards.len());
        }
        for (key, value) in &self.acknowledged {
            let found = found.get(key).map(|found| String::from_utf8_lossy(found));
            assert_eq!(found.as_deref(), Some(&value[..]), "{context}: {}", String::from_utf8_lossy(key));
        }
    }

    /// What one life of a process writes.
    fn live(&mut self, db: &Db) -> Result<(), Error> {
        self.write(db, &[0, 1, 2])?;
        self.write(db, &[1])?;
        self.write(db, &[0, 2])
    }
}

pub fn start(network: &SimNetwork, node: u32) -> Handle {
    let options = forebay_memory_node::Options {
        extent_bytes: Some(128 << 10),
        ..forebay_memory_node::Options::with_memory(32 << 20)
    };
    MemoryNode::start(Box::new(network.listen(node).unwrap()), options).unwrap()
}

/// Links to all nodes, with their clients.
pub fn connect(network: &SimNetwork, nodes: u32) -> (Vec<Arc<dyn Link>>, Vec<Arc<MemoryClient>>) {
    let links: Vec<Arc<dyn Link>> = (1..=nodes).map(|node| network.connect(node).unwrap() as Arc<dyn Link>).collect();
    let options = ClientOptions { renew: false, ..ClientOptions::default() };
    let client = |link: &Arc<dyn Link>| MemoryClient::connect(Arc::clone(link), "owner", options.clone()).unwrap();
    let clients = links.iter().map(client).collect();
    (links, clients)
}

/// The process is killed after the first step of the network, then after the second, and so on, in the middle of every
/// shipment to every shard.
pub fn killed_after_each_step(copies: usize) {
    let network = SimNetwork::new(copies as u64, SimOptions { time: Time::Real, ..SimOptions::default() });
    let nodes = copies as u32;
    let _nodes: Vec<_> = (1..=nodes).map(|node| start(&network, node)).collect();
    let register = register();
    let mut written = Written::default();
    let mut steps = 0;
    loop {
        let context = format!("{copies} copies, killed after {steps} steps");
        let (links, clients) = connect(&network, nodes);
        let db = Db::open(&clients, options(copies, &register)).unwrap();
        written.check(&db, &context);
        let (due, of) = (network.steps() + steps, network.clone());
        network.set_progress_hook(move || {
            if of.steps() >= due {
                links.iter().for_each(|link| link.close());
            }
        });
        let lived = written.live(&db);
        network.set_progress_hook(|| ());
        drop((db, clients));
        steps += 1;
        if lived.is_ok() {
            break;
        }
    }
    println!("{copies} copies: {steps} steps");
    assert!(steps > 20, "{steps} steps");
    let (_links, clients) = connect(&network, nodes);
    written.check(&Db::open(&clients, options(copies, &register)).unwrap(), "at last");
}

/// Three nodes, each with a shard. The process loses the second node. `then` is what it does after a batch that
/// therefore fails.
fn half_lost(then: impl Fn(&mut Written, &Db)) {
    let nodes: Vec<_> = (0..SHARDS).map(|_| Cluster::start(32 << 20)).collect();
    let register = register();
    let mut written = Written::default();
    let process = Process::start(&nodes);
    let db = process.open(options(1, &register));
    written.live(&db).unwrap();
    process.links[1].close();
    written.write(&db, &[0, 1]).unwrap_err();
    then(&mut written, &db);
    process.kill(db);
    let process = Process::start(&nodes);
    written.check(&process.open(options(1, &register)), "half lost");
}

/// What follows half a batch is not acknowledged.
pub fn written_behind_half_a_batch() {
    half_lost(|written, db| {
        let _ = written.write(db, &[0]);
        let _ = written.write(db, &[0, 2]);
        let _ = written.write(db, &[2]);
    });
}

/// Half a batch does not reach a table.
pub fn flushed_with_half_a_batch() {
    half_lost(|_, db| {
        let _ = db.flush();
    });
}
