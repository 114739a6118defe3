//! The network, the memory node, the database, and who works while somebody waits for the network.

use crate::calls::Calls;
use forebay_engine::{Db, Error, Options};
use forebay_env::Random;
use forebay_env::sync::{Mutex, lock};
use forebay_fabric::sim::{Faults, Order, SimNetwork, SimOptions};
use forebay_memory_client::{ClientOptions, MemoryClient};
use forebay_memory_node::MemoryNode;
use std::sync::Arc;
use std::time::Duration;

const NODE: u32 = 1;
/// Memory of the node, bytes.
const MEMORY_BYTES: u64 = 32 << 20;
/// How often a new link or session is asked for while the network loses what is sent.
const TRIES: usize = 200;

/// What is on the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Running {
    /// A call: where it waits, a step of background work may run.
    Call,
    /// A step of background work: where it waits, a call may run.
    Step,
    /// One inside of the other, or neither: only the node works while it waits.
    Inner,
}

/// How often something ran inside of something else.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Nested {
    pub(crate) steps: u64,
    pub(crate) calls: u64,
}

struct Inside {
    random: Random,
    running: Running,
    nested: Nested,
    db: Option<Db>,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) network: SimNetwork,
    node: Arc<Mutex<Option<MemoryNode>>>,
    inside: Arc<Mutex<Inside>>,
    calls: Arc<Mutex<Calls>>,
    /// Whether calls may run inside of steps.
    calls_inside: bool,
}

impl Stage {
    pub(crate) fn new(seed: u64, calls: Calls, calls_inside: bool, faults: Faults) -> Self {
        let mut random = Random::seeded(seed);
        let options = SimOptions {
            order: [Order::Total, Order::Writes, Order::None][random.below(3) as usize],
            line_bytes: [8, 64][random.below(2) as usize],
            faults,
            ..SimOptions::default()
        };
        let network = SimNetwork::new(seed, options);
        let inside = Inside { random, running: Running::Inner, nested: Nested::default(), db: None };
        let stage = Self {
            network,
            node: Arc::default(),
            inside: Arc::new(Mutex::new(inside)),
            calls: Arc::new(Mutex::new(calls)),
            calls_inside,
        };
        stage.start_node();
        let hooked = stage.clone();
        stage.network.set_progress_hook(move || hooked.work_while_waiting());
        stage
    }

    /// Starts the node, or starts it again with empty memory.
    pub(crate) fn start_node(&self) {
        drop(lock(&self.node).take());
        let options = forebay_memory_node::Options {
            clock: self.network.clock(),
            ..forebay_memory_node::Options::with_memory(MEMORY_BYTES)
        };
        let node = (0..TRIES).find_map(|_| {
            let listener = self.network.listen(NODE).ok()?;
            MemoryNode::new(Box::new(listener), options.clone()).ok()
        });
        *lock(&self.node) = Some(node.expect("a node starts"));
    }

    /// Ends the node's life, and whatever it held.
    pub(crate) fn crash_node(&self) {
        self.network.crash(NODE);
    }

    pub(crate) fn node_runs(&self) -> bool {
        self.network.running(NODE).is_some()
    }

    /// Opens a database in a session of its own.
    pub(crate) fn open(&self, options: &Options) -> Result<Db, Error> {
        let mut opened = self.try_open(options);
        for _ in 0..TRIES {
            if opened.is_ok() {
                break;
            }
            if !self.node_runs() {
                self.start_node();
            }
            opened = self.try_open(options);
        }
        if let Ok(db) = &opened {
            lock(&self.inside).db = Some(db.clone());
        }
        opened
    }

    fn try_open(&self, options: &Options) -> Result<Db, Error> {
        let link = self.network.connect(NODE).map_err(forebay_memory_client::Error::from)?;
        let client = ClientOptions { renew: false, clock: self.network.clock(), ..ClientOptions::default() };
        Db::open(&[MemoryClient::connect(link, "simulated", client)?], options.clone())
    }

    /// Forgets the database: nothing of it runs any more while somebody waits.
    pub(crate) fn forget(&self) {
        drop(lock(&self.inside).db.take());
    }

    /// Lets leases run out, and checks that nothing of the node's memory is in use then.
    pub(crate) fn expect_nothing_in_use(&self) {
        self.network.settle();
        let mut node = lock(&self.node);
        let Some(node) = node.as_mut().filter(|_| self.node_runs()) else { return };
        for _ in 0..8 {
            self.network.clock().sleep(Duration::from_secs(3));
            while node.step(Duration::ZERO).unwrap_or(false) {}
        }
        let figures = node.statistics();
        let used = figures.leased_extents + figures.adopted_extents + figures.job_extents + figures.recycling_extents;
        assert_eq!((used, figures.sessions, figures.job_bytes), (0, 0, 0), "memory is left in use: {figures:?}");
    }

    pub(crate) fn nested(&self) -> Nested {
        lock(&self.inside).nested
    }

    /// Runs `body` with all calls, as a call.
    pub(crate) fn call<T>(&self, body: impl FnOnce(&mut Calls) -> T) -> T {
        let before = self.enter(Running::Call);
        let result = body(&mut lock(&self.calls));
        self.enter(before);
        result
    }

    /// Runs a step of background work. False when there was nothing to do.
    pub(crate) fn step(&self, db: &Db) -> bool {
        let before = self.enter(Running::Step);
        let done = db.run_background_step();
        self.enter(before);
        done
    }

    fn enter(&self, running: Running) -> Running {
        std::mem::replace(&mut lock(&self.inside).running, running)
    }

    /// Somebody waits for the network.
    fn work_while_waiting(&self) {
        // Whoever works for the node does not wait for it.
        if let Ok(mut node) = self.node.try_lock()
            && let Some(node) = node.as_mut()
        {
            // A node that was crashed can serve no more.
            let _ = node.step(Duration::ZERO);
        }
        let mut inside = lock(&self.inside);
        let running = inside.running;
        let chance = match running {
            Running::Call => 16,
            Running::Step if self.calls_inside => 2,
            _ => return,
        };
        let Some(db) = inside.db.clone().filter(|_| inside.random.one_in(1, chance)) else { return };
        inside.running = Running::Inner;
        match running {
            Running::Call => inside.nested.steps += 1,
            _ => inside.nested.calls += 1,
        }
        drop(inside);
        match running {
            Running::Call => {
                db.run_background_step();
            }
            _ => lock(&self.calls).short_call(&db),
        }
        self.enter(running);
    }
}
