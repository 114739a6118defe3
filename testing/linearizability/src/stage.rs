//! The network, the memory node, sessions, and trees of several processes.

use crate::turns::Turns;
use forebay_env::Random;
use forebay_env::sync::{Mutex, lock};
use forebay_fabric::sim::{Faults, Order, SimNetwork, SimOptions};
use forebay_memory_client::{ClientOptions, MemoryClient};
use forebay_memory_node::{MemoryNode, Options};
use forebay_tree::{Error, Tree, TreeOptions};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// Memory of the node, bytes.
const MEMORY_BYTES: u64 = 64 << 20;
/// How often something that the network loses is tried again.
const TRIES: usize = 100;
/// Sessions do not lapse: virtual time passes fast.
const LEASE: Duration = Duration::from_secs(1_000_000);
/// How long a one-sided operation may take where completions are lost.
const TIMEOUT: Duration = Duration::from_millis(50);

thread_local! {
    /// Whether this thread is working for the node.
    static SERVING: Cell<bool> = const { Cell::new(false) };
}

/// How the network and the trees of a seed are made.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) network: SimOptions,
    pub(crate) extent_bytes: u64,
    /// Processes, each with a session and a tree of its own.
    pub(crate) processes: usize,
    pub(crate) slots: usize,
    pub(crate) most_buckets: usize,
    pub(crate) fill_percent: usize,
    pub(crate) cache_bytes: usize,
    /// Bytes of free blocks that are handed over together.
    pub(crate) batch_bytes: usize,
}

impl Plan {
    pub(crate) fn new(random: &mut Random, clients: usize) -> Self {
        let faults = match random.below(2) {
            0 => Faults::default(),
            _ => Faults { lose_completion: 600, break_endpoint: 200, ..Faults::default() },
        };
        let network = SimOptions {
            order: [Order::Total, Order::Writes, Order::None][random.below(3) as usize],
            line_bytes: [8, 8, 64][random.below(3) as usize],
            steps_per_poll: [1, 4, 16][random.below(3) as usize],
            faults,
            ..SimOptions::default()
        };
        let (slots, most_buckets, fill_percent) =
            [(3, 3, 60), (2, 2, 60), (2, 4, 50), (4, 2, 50)][random.below(4) as usize];
        // Threads of one process would wait for each other without a turn while its tree leases
        // extents. Large extents avoid that.
        let (processes, extent_bytes) =
            if random.one_in(1, 2) { (clients, 1 << 20) } else { (clients.div_ceil(2), 8 << 20) };
        let cache_bytes = if random.one_in(1, 8) { 0 } else { 1 << 20 };
        let batch_bytes = [1, 256, 512, 2048][random.below(4) as usize];
        Self { network, extent_bytes, processes, slots, most_buckets, fill_percent, cache_bytes, batch_bytes }
    }

    /// Whether operations may fail.
    pub(crate) fn has_faults(&self) -> bool {
        self.network.faults.lose_completion > 0
    }

    fn options(&self) -> TreeOptions {
        let timeout = if self.has_faults() { TIMEOUT } else { LEASE };
        let &Self { slots, most_buckets, fill_percent, cache_bytes, batch_bytes, .. } = self;
        TreeOptions { slots, most_buckets, fill_percent, cache_bytes, batch_bytes, timeout, ..TreeOptions::default() }
    }
}

/// See the module.
pub(crate) struct Stage {
    pub(crate) network: SimNetwork,
    pub(crate) turns: Arc<Turns>,
    /// The processes, and last one for the observer.
    processes: Vec<Mutex<Process>>,
    options: TreeOptions,
    name: String,
}

/// What a process has.
#[derive(Debug, Clone)]
struct Process {
    session: Arc<MemoryClient>,
    tree: Arc<Tree>,
}

impl Stage {
    /// # Errors
    /// Why there is no tree.
    pub(crate) fn new(seed: u64, plan: &Plan, clients: usize) -> Result<Self, String> {
        let network = SimNetwork::new(seed, plan.network);
        let turns = Arc::new(Turns::new(seed, clients));
        let listener = network.listen(1).map_err(|error| error.to_string())?;
        let options = Options {
            extent_bytes: Some(plan.extent_bytes),
            threads: 0,
            clock: network.clock(),
            lease: LEASE,
            ..Options::with_memory(MEMORY_BYTES)
        };
        let node = Mutex::new(MemoryNode::new(Box::new(listener), options).map_err(|error| error.to_string())?);
        let passing = Arc::clone(&turns);
        network.set_progress_hook(move || {
            if SERVING.get() {
                return;
            }
            SERVING.set(true);
            // A node that cannot serve shows in operations that fail.
            let _ = lock(&node).step(Duration::ZERO);
            SERVING.set(false);
            passing.pass();
        });
        let (options, mut tries) = (plan.options(), 0);
        let (name, first) = repeated(|| {
            tries += 1;
            let name = format!("tree-{tries}");
            let session = session(&network)?;
            let tree = Tree::create(std::slice::from_ref(&session), &name, options.clone()).map_err(text)?;
            Ok((name, Process { session, tree }))
        })?;
        let mut stage = Self { network, turns, processes: vec![Mutex::new(first)], options, name };
        for _ in 0..plan.processes {
            let process = stage.process()?;
            stage.processes.push(Mutex::new(process));
        }
        Ok(stage)
    }

    /// Starts a process.
    fn process(&self) -> Result<Process, String> {
        repeated(|| {
            let session = session(&self.network)?;
            let tree = Tree::open(std::slice::from_ref(&session), &self.name, self.options.clone()).map_err(text)?;
            Ok(Process { session, tree })
        })
    }

    /// Starts a client's process anew. The session of the old one ends with its last client.
    pub(crate) fn restart(&self, client: usize) -> Result<(), String> {
        let process = self.process()?;
        let before = std::mem::replace(&mut *lock(self.place(client)), process);
        drop(before);
        Ok(())
    }

    fn place(&self, client: usize) -> &Mutex<Process> {
        &self.processes[client % (self.processes.len() - 1)]
    }

    /// The tree of a client's process.
    pub(crate) fn tree(&self, client: usize) -> Arc<Tree> {
        Arc::clone(&lock(self.place(client)).tree)
    }

    /// The observer's tree.
    pub(crate) fn observer(&self) -> Arc<Tree> {
        Arc::clone(&lock(&self.processes[self.processes.len() - 1]).tree)
    }

    pub(crate) fn sessions(&self) -> Vec<Arc<MemoryClient>> {
        self.processes.iter().map(|process| Arc::clone(&lock(process).session)).collect()
    }
}

fn text(error: Error) -> String {
    error.to_string()
}

fn session(network: &SimNetwork) -> Result<Arc<MemoryClient>, String> {
    repeated(|| {
        let options = ClientOptions {
            foreign_reads: true,
            renew: false,
            clock: network.clock(),
            timeout: Duration::from_millis(500),
            ..ClientOptions::default()
        };
        let link = network.connect(1).map_err(|error| error.to_string())?;
        MemoryClient::connect(link, "client", options).map_err(|error| error.to_string())
    })
}

/// Retries what the network loses.
pub(crate) fn repeated<T>(mut attempt: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let mut result = attempt();
    for _ in 0..TRIES {
        if result.is_ok() {
            break;
        }
        result = attempt();
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_that_is_dropped_frees_its_node() {
        let mut random = Random::seeded(5);
        let stage = Stage::new(5, &Plan::new(&mut random, 2), 2).unwrap();
        stage.restart(0).unwrap();
        // The network's hook holds the node and this, and both are freed with the hook.
        let hooked = Arc::downgrade(&stage.turns);
        assert!(hooked.strong_count() > 1);
        drop(stage);
        assert!(hooked.upgrade().is_none(), "the network and its node hold each other");
    }
}
