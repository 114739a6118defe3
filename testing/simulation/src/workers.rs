//! Workers: processes that run jobs of the database, each with sessions of its own, while somebody waits.
//!
//! If the database is in storage, each worker has its own handle on the storage, which ends with the worker. So an
//! output that a worker had begun stays half written, and an output that it puts late arrives when nobody waits for it
//! any more.
//!
//! A worker is struck in the middle of its work. Either it is killed, and another one takes its place. Or it sleeps for
//! so long that its jobs are given to others and its sessions lapse, and then continues as if nothing had happened.

use crate::store::Store;
use crate::swarm::{Event, Swarm};
use forebay_env::Random;
use forebay_env::sync::{Mutex, lock};
use forebay_fabric::Link;
use forebay_fabric::sim::SimNetwork;
use forebay_memory_client::{ClientOptions, MemoryClient, Reach};
use forebay_storage::BlockCacheOptions;
use forebay_worker::{Options, SteppedWorker};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

type Sessions = Arc<Mutex<Vec<(Arc<dyn Link>, Arc<MemoryClient>)>>>;

/// What strikes a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerStrike {
    Kill,
    /// It sleeps for this long.
    Stop(Duration),
}

struct Actor {
    /// Locked while the worker is on the stack.
    worker: Mutex<Option<SteppedWorker>>,
    /// The worker's handle on the storage.
    store: Mutex<Option<Store>>,
    sessions: Sessions,
    is_killed: AtomicBool,
}

impl Actor {
    /// Ends the worker: nothing that it does has an effect any more. The next time, another one begins in its place.
    fn end(&self) {
        self.is_killed.store(true, Ordering::Relaxed);
        lock(&self.store).iter().for_each(Store::end);
        lock(&self.sessions).drain(..).for_each(|(link, _)| link.close());
    }
}

/// See the module.
pub(crate) struct Workers {
    network: SimNetwork,
    nodes: Range<u32>,
    store: Option<Store>,
    call_timeout: Duration,
    actors: Vec<Actor>,
    /// The worker that is working, if any.
    busy: Mutex<Option<usize>>,
    starts: AtomicU64,
    kills: AtomicU64,
}

impl Workers {
    /// Returns this many workers for the databases on these nodes and in this storage. Their calls may take up to the
    /// given time.
    pub(crate) fn new(
        network: SimNetwork,
        nodes: Range<u32>,
        store: Option<Store>,
        count: u32,
        call_timeout: Duration,
    ) -> Self {
        let actor = |_| Actor {
            worker: Mutex::default(),
            store: Mutex::default(),
            sessions: Arc::default(),
            is_killed: AtomicBool::new(false),
        };
        let actors = (0..count).map(actor).collect();
        let (starts, kills) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { network, nodes, store, call_timeout, actors, busy: Mutex::default(), starts, kills }
    }

    /// Makes a worker do something, unless one is already working.
    pub(crate) fn work(&self, which: usize) {
        let Some(actor) = self.actors.get(which) else { return };
        if lock(&self.busy).is_some() {
            return;
        }
        *lock(&self.busy) = Some(which);
        let mut worker = lock(&actor.worker);
        if actor.is_killed.swap(false, Ordering::Relaxed) {
            drop(worker.take());
        }
        worker.get_or_insert_with(|| self.start(actor)).step();
        drop(worker);
        lock(&actor.sessions).retain(|(_, client)| client.check().is_ok());
        *lock(&self.busy) = None;
    }

    /// Returns the number of workers.
    pub(crate) fn count(&self) -> u64 {
        self.actors.len() as u64
    }

    /// Draws what strikes the worker that is waiting for the network now, if anything does.
    pub(crate) fn strike(&self, swarm: &Swarm, random: &mut Random) -> Option<WorkerStrike> {
        if lock(&self.busy).is_none() || !swarm.happens(Event::WorkerStrike, random) {
            return None;
        }
        match random.one_in(1, 2) {
            true => Some(WorkerStrike::Stop(Duration::from_secs(1 + random.below(12)))),
            false => Some(WorkerStrike::Kill),
        }
    }

    /// Kills the worker that is waiting.
    pub(crate) fn kill(&self) {
        let Some(actor) = lock(&self.busy).and_then(|which| self.actors.get(which)) else { return };
        self.kills.fetch_add(1, Ordering::Relaxed);
        actor.end();
    }

    /// Kills all workers. None may be on the stack.
    pub(crate) fn kill_all(&self) {
        self.kills.fetch_add(self.count(), Ordering::Relaxed);
        self.actors.iter().for_each(Actor::end);
    }

    /// Returns the workers' sessions; if `one_sleeps`, without those of the worker that sleeps.
    pub(crate) fn clients(&self, one_sleeps: bool) -> Vec<Arc<MemoryClient>> {
        let asleep = lock(&self.busy).filter(|_| one_sleeps);
        let awake = self.actors.iter().enumerate().filter(|(which, _)| Some(*which) != asleep);
        let mut clients = Vec::new();
        for (_, actor) in awake {
            clients.extend(lock(&actor.sessions).iter().map(|(_, client)| Arc::clone(client)));
        }
        clients
    }

    /// Ends all workers. Returns how many were killed before.
    pub(crate) fn leave(&self) -> u64 {
        for actor in &self.actors {
            drop(lock(&actor.worker).take());
            actor.end();
        }
        self.kills.load(Ordering::Relaxed)
    }

    fn start(&self, actor: &Actor) -> SteppedWorker {
        let nodes = self.nodes.clone().map(|number| self.reach(number, &actor.sessions)).collect();
        let scheduler = Arc::new(self.reach(self.nodes.start, &actor.sessions));
        let store = self.store.as_ref().map(Store::handle);
        let nonce = self.starts.fetch_add(1, Ordering::Relaxed);
        let options = Options {
            timeout: Duration::from_millis(100),
            clock: self.network.clock(),
            storage: store.as_ref().map(|store| store.storage(nonce)),
            block_cache: BlockCacheOptions { threads: 0, ..BlockCacheOptions::default() },
            ..Options::default()
        };
        *lock(&actor.store) = store;
        SteppedWorker::new(nodes, scheduler, options).expect("no thread is started")
    }

    fn reach(&self, number: u32, sessions: &Sessions) -> Reach {
        let (network, sessions, timeout) = (self.network.clone(), Arc::clone(sessions), self.call_timeout);
        Reach::new(move || {
            let link = network.connect(number).map_err(forebay_memory_client::Error::from)?;
            let options = ClientOptions { renew: false, clock: network.clock(), timeout, ..ClientOptions::default() };
            let client = MemoryClient::connect(Arc::clone(&link) as Arc<dyn Link>, "worker", options)?;
            lock(&sessions).push((link, Arc::clone(&client)));
            Ok(client)
        })
    }
}
