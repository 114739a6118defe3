//! The network, the memory nodes, the process that has the database open, and the work done while somebody waits for
//! the network.

use crate::calls::Calls;
use crate::checkpoints::{Checkpoints, Contents, any_name};
use crate::clock::DayClock;
use crate::damage::Damage;
use crate::draw::{Drawn, NAME};
use crate::habits::Habits;
use crate::journal::opened_at;
use crate::model::Model;
use crate::neighbour::Neighbour;
use crate::store::Store;
use crate::swarm::Event;
use crate::workers::{WorkerStrike, Workers};
use forebay_base::ErrorKind;
use forebay_engine::{Db, Error, Options, StoredDatabase};
use forebay_env::sync::{Mutex, lock};
use forebay_env::{Clock, Nanos, Random};
use forebay_fabric::sim::{Order, SimNetwork, SimOptions};
use forebay_fabric::{Link, NodeIdentity};
use forebay_memory_client::{ClientOptions, MemoryClient};
use forebay_memory_node::MemoryNode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often to ask for a new link or session while the network loses messages.
const TRIES: usize = 200;
/// How often a process renews its sessions: three times per lease of the node, as [`MemoryClient`] does on its own
/// thread.
const RENEWAL: Duration = Duration::from_millis(3300);
/// How long a call may take. Shorter than a renewal: a renewal whose reply is lost delays those at other nodes, which
/// separate threads would make meanwhile.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a second process tries to take the database over before it gives up.
const TAKEOVER_TRIES: usize = 3;

/// The activity on the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Running {
    /// A call: while it waits, a step of background work may run.
    Call,
    /// A step of background work: while it waits, a call may run.
    Step,
    /// One inside the other, or neither: only the nodes work while it waits.
    Inner,
}

/// How often one activity ran inside another.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Nested {
    pub(crate) steps: u64,
    pub(crate) calls: u64,
}

/// A fault that strikes a process while it waits for the network, or between two operations of its storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strike {
    /// It is killed.
    Kill,
    /// Another process takes its database over, and it lives on.
    TakeOver,
    /// It lives on, but a memory node is lost with everything that it held, if the database survives that.
    LoseNode,
    /// It lives on, but loses its link to a memory node.
    CutOff,
}

/// A process that has the database open.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) db: Db,
    /// The sequence numbers at which the shards were opened.
    pub(crate) found: Vec<u64>,
    links: Vec<Arc<dyn Link>>,
    clients: Vec<Arc<MemoryClient>>,
    lives: Vec<NodeIdentity>,
    /// Its handle on the storage.
    pub(crate) store: Option<Store>,
    /// The end of its log was cut because it was damaged. That end may have been acknowledged.
    pub(crate) may_lack_a_group: bool,
}

impl Process {
    pub(crate) fn kill(&self) {
        self.links.iter().for_each(|link| link.close());
        self.store.iter().for_each(Store::end);
    }

    /// Whether it knows the same memory nodes, in the same lives.
    pub(crate) fn has_nodes_of(&self, other: &Self) -> bool {
        self.lives == other.lives
    }

    pub(crate) fn clients(&self) -> &[Arc<MemoryClient>] {
        &self.clients
    }
}

/// The name of a database that begins with a checkpoint.
const CLONE: &str = "clone";
/// A worker does something at one of this many waits, on average.
const WORK: u64 = 8;
/// Maximum number of calls inside one step.
const CALLS_INSIDE_STEP: u32 = 200;
/// Maximum number of steps that settle a database.
const MOST_STEPS: u32 = 2000;

struct Inside {
    random: Random,
    running: Running,
    nested: Nested,
    /// Calls that may still be made inside the current step. The step may wait long for something lost, and meanwhile
    /// nobody flushes what the calls write.
    calls_left: u32,
    process: Option<Process>,
    /// The sessions of the process that is opening the database. Opening may wait for as long as a lease.
    opening: Vec<Arc<MemoryClient>>,
    /// The next strike, the number of waits before it, and whether only those of steps count.
    armed: Option<(Strike, u64, bool)>,
    /// The strike that happened.
    struck: Option<Strike>,
    /// The process that took the database over.
    successor: Option<Process>,
    /// Time of the next renewal of sessions; never while a renewal runs.
    next_renewal: Nanos,
    may_be_fenced: Arc<AtomicBool>,
    is_alone: Arc<AtomicBool>,
    /// The worker that is working sleeps.
    a_worker_sleeps: bool,
    /// Nodes that may still be lost. A database whose nodes are its register does not survive more.
    losses_left: u32,
    /// Nodes that were lost deliberately, although the process needed them.
    losses: u64,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) network: SimNetwork,
    nodes: Arc<Vec<Mutex<Option<MemoryNode>>>>,
    inside: Arc<Mutex<Inside>>,
    calls: Arc<Mutex<Option<Calls>>>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) neighbour: Option<Arc<Neighbour>>,
    drawn: Arc<Drawn>,
    store: Option<Store>,
    /// The databases' clock.
    pub(crate) clock: Arc<DayClock>,
    pub(crate) damage: Arc<Damage>,
    pub(crate) checkpoints: Arc<Checkpoints>,
}

/// The time of day at which runs begin, in milliseconds since 1970.
const FIRST_DAY_MS: u64 = 1_000_000_000;

impl Stage {
    pub(crate) fn new(seed: u64, drawn: Drawn) -> Self {
        let store = Store::new(drawn.kept);
        Self::with(seed, drawn, (store, Checkpoints::default()), FIRST_DAY_MS)
    }

    /// Returns a stage on a storage with its contents, checkpoints included, at a time of day.
    pub(crate) fn with(
        seed: u64,
        drawn: Drawn,
        (store, checkpoints): (Option<Store>, Checkpoints),
        time_ms: u64,
    ) -> Self {
        let mut random = Random::seeded(seed);
        let options = SimOptions {
            order: [Order::Total, Order::Writes, Order::None][random.below(3) as usize],
            line_bytes: [8, 64][random.below(2) as usize],
            single_lines: [4, 16, 128][random.below(3) as usize],
            faults: drawn.faults,
            ..SimOptions::default()
        };
        let network = SimNetwork::new(seed, options);
        let inside = Inside {
            random,
            running: Running::Inner,
            nested: Nested::default(),
            calls_left: 0,
            process: None,
            opening: Vec::new(),
            armed: None,
            struck: None,
            successor: None,
            next_renewal: 0,
            may_be_fenced: Arc::default(),
            is_alone: Arc::default(),
            a_worker_sleeps: false,
            losses_left: drawn.survivable_losses(),
            losses: 0,
        };
        let reached = store.as_ref().filter(|_| drawn.kept.is_stored()).map(Store::handle);
        let workers = Workers::new(network.clone(), 1..drawn.nodes + 1, reached, drawn.workers, CALL_TIMEOUT);
        let clock = Arc::new(DayClock::new(network.clock(), time_ms));
        let neighbour = drawn.has_neighbour.then(|| {
            let random = Random::seeded(seed.wrapping_add(1));
            Arc::new(Neighbour::new(network.clone(), drawn.habits.swarm, random, CALL_TIMEOUT))
        });
        let damage = Damage::new(&drawn, Random::seeded(seed.wrapping_add(2)));
        let stage = Self {
            network,
            nodes: Arc::new((0..drawn.nodes).map(|_| Mutex::default()).collect()),
            inside: Arc::new(Mutex::new(inside)),
            calls: Arc::default(),
            workers: Arc::new(workers),
            neighbour,
            store,
            clock,
            damage: Arc::new(damage),
            checkpoints: Arc::new(checkpoints),
            drawn: Arc::new(drawn),
        };
        stage.start_nodes();
        let hooked = stage.clone();
        stage.network.set_progress_hook(move || hooked.work_while_waiting());
        stage
    }

    /// Ends everything: nobody works any more while somebody waits. Until this call the network holds this stage.
    pub(crate) fn leave(&self) {
        self.network.clear_progress_hook();
        self.forget();
    }

    #[cfg(test)]
    pub(crate) fn weak_nodes(&self) -> std::sync::Weak<Vec<Mutex<Option<MemoryNode>>>> {
        Arc::downgrade(&self.nodes)
    }

    fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        (1..).take(self.nodes.len())
    }

    /// Starts the nodes that are not running, with empty memory.
    fn start_nodes(&self) {
        for (node, number) in self.nodes.iter().zip(1..) {
            if self.network.running(number).is_some() {
                continue;
            }
            drop(lock(node).take());
            let options = forebay_memory_node::Options {
                clock: self.network.clock(),
                extent_bytes: Some(self.drawn.extent_bytes),
                threads: self.drawn.node_threads,
                ..forebay_memory_node::Options::with_memory(self.drawn.memory_bytes)
            };
            let started = (0..TRIES).find_map(|_| {
                let listener = self.network.listen(number).ok()?;
                MemoryNode::new(Box::new(listener), options.clone()).ok()
            });
            *lock(node) = Some(started.expect("a node starts"));
        }
    }

    /// Starts all nodes. A lost node has lost part of a database that does not outlive it, so the others are restarted too.
    pub(crate) fn start_again(&self) {
        if self.numbers().any(|number| self.network.running(number).is_none()) {
            if !self.drawn.kept.outlives_nodes() {
                self.crash_nodes();
            }
            self.start_nodes();
        }
    }

    /// The storage loses power, and with it the workers.
    pub(crate) fn lose_power(&self, random: &mut Random) {
        self.workers.kill_all();
        self.store.iter().for_each(|store| store.lose_power(random));
    }

    /// Returns the storage, on a handle of its own.
    pub(crate) fn store(&self) -> Option<Store> {
        self.store.as_ref().map(Store::handle)
    }

    /// Crashes a node; everything that it held is lost.
    pub(crate) fn crash_node(&self) {
        let number = 1 + lock(&self.inside).random.below(self.nodes.len() as u64) as u32;
        // While one copy is damaged, the other copies are needed.
        self.network.crash(self.damage.node().map_or(number, |life| life.node));
    }

    /// Crashes all nodes.
    pub(crate) fn crash_nodes(&self) {
        self.numbers().for_each(|number| self.network.crash(number));
    }

    /// Whether each node that `process` knows still lives the same life.
    pub(crate) fn lives_on(&self, process: &Process) -> bool {
        process.lives.iter().all(|life| self.network.running(life.node) == Some(*life))
    }

    /// Opens the database in a separate process.
    pub(crate) fn open(&self) -> Process {
        let takeover = lock(&self.inside).random.one_in(1, 2);
        self.start_again();
        let mut opened = self.try_open(takeover);
        for _ in 0..TRIES {
            if opened.is_ok() {
                break;
            }
            if let Some(store) = &self.store {
                self.end_damage_if_it_was_met(store, opened.as_ref().err());
            }
            self.start_again();
            opened = self.try_open(takeover);
        }
        let process = opened.unwrap_or_else(|error| panic!("the database does not open: {error}"));
        self.set_process(&process);
        process
    }

    pub(crate) fn set_process(&self, process: &Process) {
        lock(&self.inside).process = Some(process.clone());
    }

    fn try_open(&self, takeover: bool) -> Result<Process, Error> {
        let opened = self.open_once(takeover, Db::open);
        if let Err(error) = &opened {
            assert!(self.is_explained(error), "opening: {}: {error}", error.kind());
        }
        opened
    }

    /// Whether the faults of the run explain that a process could not open something. Nothing explains a panic, which
    /// opening passes on as an error.
    fn is_explained(&self, error: &Error) -> bool {
        if error.to_string().contains("panicked, which is a bug") {
            return false;
        }
        let mut explained = vec![ErrorKind::Unavailable, ErrorKind::TimedOut, ErrorKind::Busy, ErrorKind::Fenced];
        if self.drawn.habits.may_be_full {
            explained.push(ErrorKind::Full);
        }
        if self.drawn.habits.storage_fails {
            // An opening that met a failed sync may need the folder again, which is closed from then on.
            explained.extend([ErrorKind::Full, ErrorKind::Io, ErrorKind::Closed]);
        }
        explained.contains(&error.kind()) || self.damage.explains(error.kind())
    }

    /// Reads some checkpoint in another process, while the owner continues.
    pub(crate) fn read_some_checkpoint(&self) -> bool {
        let name = any_name(&mut lock(&self.inside).random);
        self.read_checkpoint(name)
    }

    /// Reads a checkpoint in another process, while the owner continues. Returns false when a fault of the run kept the
    /// process from reading a checkpoint that exists.
    pub(crate) fn read_checkpoint(&self, name: &str) -> bool {
        let before = self.enter(Running::Call);
        let read = self.contents_of(name);
        self.enter(before);
        match read {
            Ok(found) => self.checkpoints.expect(name, self.drawn.habits.order, &found),
            Err(error) if self.checkpoints.is_sure(name) => {
                // The first commit of an earlier clone, whose put timed out, may arrive when that clone has been dropped.
                let is_late = self.drawn.habits.storage_fails && error.kind() == ErrorKind::AlreadyExists;
                let is_explained = self.is_explained(&error) || is_late || error.kind() == ErrorKind::Closed;
                assert!(is_explained, "reading the checkpoint {name:?}: {}: {error}", error.kind());
                return false;
            }
            Err(_) => {}
        }
        true
    }

    fn contents_of(&self, name: &str) -> Result<Contents, Error> {
        let (is_clone, is_compacted, is_killed) = {
            let random = &mut lock(&self.inside).random;
            (random.one_in(1, 4), random.one_in(1, 2), random.one_in(1, 4))
        };
        // There may be no room for a second database.
        let is_clone = is_clone && !self.drawn.habits.may_be_full;
        let open = |clients: &[Arc<MemoryClient>], options: Options| match is_clone {
            true => self.open_clone(clients, options, name),
            false => Db::open_checkpoint(clients, options, name),
        };
        let reader = self.open_once(false, open)?;
        let others = std::mem::replace(&mut lock(&self.inside).opening, reader.clients.clone());
        let compacted = if is_clone && is_compacted { reader.db.compact_range(None, None) } else { Ok(()) };
        let read = compacted.and_then(|()| contents(&reader.db));
        if is_killed {
            reader.kill();
        }
        // What the reader has found does not depend on how it ends.
        let _ = reader.db.close();
        if is_clone {
            self.drop_clone(&reader);
        }
        reader.kill();
        lock(&self.inside).opening = others;
        read
    }

    /// Drops the previous clone, and begins a new one with a checkpoint.
    fn open_clone(&self, clients: &[Arc<MemoryClient>], options: Options, name: &str) -> Result<Db, Error> {
        let storage = options.storage.as_ref().expect("checkpoints are in storage");
        match Db::destroy_stored(storage, clients, CLONE) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => self.checkpoints.note_clone(true),
        }
        Db::clone_checkpoint(storage, NAME, name, CLONE)?;
        Db::open(clients, Options { name: Some(CLONE.to_owned()), create_if_missing: false, ..options })
    }

    /// Drops the clone, with the links of a process. Returns whether it is gone.
    pub(crate) fn drop_clone(&self, process: &Process) -> bool {
        let storage = process.store.as_ref().expect("checkpoints are in storage").storage(0);
        let dropped = Db::destroy_stored(&storage, process.clients(), CLONE);
        let is_gone = dropped.map_or_else(|error| error.kind() == ErrorKind::NotFound, |()| true);
        self.checkpoints.note_clone(!is_gone);
        is_gone
    }

    /// Ends damage in storage that made an opening fail, so that the database opens. The error must name the damaged
    /// object. A verification finds the damage, unless a late commit no longer needs the object: then the database opens
    /// as it is.
    fn end_damage_if_it_was_met(&self, store: &Store, error: Option<&Error>) {
        let Some(error) = error.filter(|error| matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported))
        else {
            return;
        };
        self.damage.expect_named(error);
        let storage = store.handle().storage(0);
        if self.drawn.kept.is_stored() && self.damage.is_at_rest() {
            let looked = StoredDatabase::new(&storage, NAME);
            let verified = looked.and_then(|looked| looked.verify(&mut |_| ()));
            if verified.is_ok_and(|report| report.problems.is_empty()) {
                return;
            }
        }
        self.damage.end(Some(store));
    }

    /// Damages something if it is time. Called while somebody waits and nothing runs for a memory node.
    fn let_rot(&self) {
        if !self.damage.is_due() {
            return;
        }
        let Some(process) = lock(&self.inside).process.clone() else { return };
        if self.damage.chooses_storage() {
            return self.store.iter().for_each(|store| self.damage.damage_storage(store, process.store.as_ref()));
        }
        let which = lock(&self.inside).random.below(self.nodes.len() as u64) as usize;
        let is_whole = process.links.iter().all(|link| link.is_alive()) && self.lives_on(&process);
        let (Some(node), Some(life)) = (self.nodes.get(which), self.network.running(which as u32 + 1)) else { return };
        // Nodes that are joining have less than the others.
        if is_whole && process.db.missing_copies() == 0 {
            lock(node).iter().for_each(|node| self.damage.damage_node(node, life));
        }
    }

    /// A link to a node, and a session.
    fn connect(&self, number: u32) -> Result<(Arc<dyn Link>, Arc<MemoryClient>), forebay_memory_client::Error> {
        let link = self.network.connect(number)? as Arc<dyn Link>;
        let options = ClientOptions {
            renew: false,
            clock: self.network.clock(),
            timeout: CALL_TIMEOUT,
            ..ClientOptions::default()
        };
        let client = MemoryClient::connect(Arc::clone(&link), "simulated", options)?;
        Ok((link, client))
    }

    /// Looks at the nodes that are there, over sessions that own nothing.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&[Arc<MemoryClient>]) -> Result<T, Error>) -> Result<T, Error> {
        let connected: Vec<_> = self.numbers().filter_map(|number| self.connect(number).ok()).collect();
        let clients: Vec<_> = connected.iter().map(|(_, client)| Arc::clone(client)).collect();
        let looked = look(&clients);
        connected.iter().for_each(|(link, _)| link.close());
        looked
    }

    /// Starts nodes that were lost, and adds them to the database, which makes copies there.
    pub(crate) fn bring_nodes_back(&self, process: &mut Process) {
        self.start_nodes();
        for number in self.numbers() {
            let is_known = self.network.running(number).is_none_or(|life| process.lives.contains(&life));
            let Some((link, client)) = (!is_known).then(|| self.connect(number).ok()).flatten() else { continue };
            if let Err(error) = process.db.add_memory_node(&client) {
                let explained = [ErrorKind::Unavailable, ErrorKind::TimedOut, ErrorKind::Fenced, ErrorKind::Closed];
                assert!(explained.contains(&error.kind()), "adding a memory node: {}: {error}", error.kind());
                link.close();
                continue;
            }
            let is_there = |life: &NodeIdentity| self.network.running(life.node) == Some(*life);
            process.clients.retain(|client| is_there(&client.node()));
            process.lives.retain(is_there);
            process.lives.push(client.node());
            process.clients.push(client);
            process.links.push(link);
        }
        self.set_process(process);
    }

    /// Loses a node, if the database survives that. All its copies must exist: a loss that the process has not noticed
    /// counts too. Its register must survive the loss. The process must not be cut off from a node either: it may just
    /// then be recording in the register that only the node that answered is left, and that node must not be lost.
    fn lose_node(&self, process: &Process) {
        let is_linked = process.links.iter().all(|link| link.is_alive());
        let has_all = is_linked && process.db.missing_copies() == 0 && self.lives_on(process);
        let mut inside = lock(&self.inside);
        if !has_all || inside.losses_left == 0 {
            return;
        }
        (inside.losses_left, inside.losses) = (inside.losses_left - 1, inside.losses + 1);
        drop(inside);
        self.crash_node();
    }

    /// Nodes that were lost although the process that had the database open needed them.
    pub(crate) fn losses(&self) -> u64 {
        lock(&self.inside).losses
    }

    /// Begins a process that opens the database with `open`.
    fn open_once(
        &self,
        takeover: bool,
        open: impl FnOnce(&[Arc<MemoryClient>], Options) -> Result<Db, Error>,
    ) -> Result<Process, Error> {
        let others = lock(&self.inside).opening.clone();
        let opened = self.open_renewed(takeover, open);
        // A session that ends waits for its node, and must find the lock free.
        let clients = std::mem::replace(&mut lock(&self.inside).opening, others);
        drop(clients);
        opened
    }

    /// The same. The sessions are in `opening`, each from its beginning: the next one may take longer than a lease.
    fn open_renewed(
        &self,
        takeover: bool,
        open: impl FnOnce(&[Arc<MemoryClient>], Options) -> Result<Db, Error>,
    ) -> Result<Process, Error> {
        let mut links: Vec<Arc<dyn Link>> = Vec::new();
        let mut clients = Vec::new();
        for number in self.numbers() {
            let (link, client) = self.connect(number)?;
            lock(&self.inside).opening.push(Arc::clone(&client));
            clients.push(client);
            links.push(link);
        }
        let lives = clients.iter().map(|client| client.node()).collect();
        let store = self.store();
        let nonce = {
            let mut inside = lock(&self.inside);
            let swarm = self.drawn.habits.swarm;
            if self.drawn.habits.storage_fails && swarm.happens(Event::StorageFaultOfOpening, &mut inside.random) {
                store.iter().for_each(|store| store.fail_soon(&mut inside.random));
            }
            inside.random.word()
        };
        if self.drawn.rots {
            self.store.iter().for_each(|of| self.damage.damage_opening(of, store.as_ref()));
        }
        let storage = store.as_ref().map(|store| store.storage(nonce));
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let (storage, register) = if self.drawn.kept.is_stored() { (storage, None) } else { (None, storage) };
        let options = Options { takeover, clock, storage, register, ..self.drawn.engine.clone() };
        let db = open(&clients, options)?;
        let found = opened_at(&db);
        let is_cut = db.recovery().is_some_and(|recovery| !recovery.cuts.is_empty());
        let may_lack_a_group = is_cut && self.damage.may_take_a_group();
        Ok(Process { found, db, links, clients, lives, store, may_lack_a_group })
    }

    /// Forgets the process: nothing of it runs any more while somebody waits.
    pub(crate) fn forget(&self) {
        let process = lock(&self.inside).process.take();
        drop(process);
    }

    /// Schedules a strike on the process after some more waits: any waits, or only those of steps, which commit.
    pub(crate) fn arm(&self, strike: Strike, waits: u64, only_of_steps: bool) {
        lock(&self.inside).armed = Some((strike, waits, only_of_steps));
    }

    /// Cancels a strike that is scheduled and has not come.
    pub(crate) fn disarm(&self) {
        lock(&self.inside).armed = None;
    }

    /// Schedules a strike on the process after some more operations of its storage. Returns false when it has none.
    pub(crate) fn arm_in_storage(&self, strike: Strike, operations: u64) -> bool {
        let store = lock(&self.inside).process.as_ref().and_then(|process| process.store.clone());
        let Some(store) = store else { return false };
        let stage = self.clone();
        store.interrupt_after(operations, move || stage.strike_inside(strike));
        true
    }

    /// Strikes while something of the process is on the stack.
    fn strike_inside(&self, strike: Strike) {
        let before = self.enter(Running::Inner);
        self.strike(strike);
        self.enter(before);
    }

    /// Whether another process took the database over since the last call.
    pub(crate) fn has_successor(&self) -> bool {
        lock(&self.inside).successor.is_some()
    }

    /// The strike since the last call, and the process that took over.
    pub(crate) fn take_struck(&self) -> Option<(Strike, Option<Process>)> {
        let mut inside = lock(&self.inside);
        let struck = inside.struck.take()?;
        Some((struck, inside.successor.take()))
    }

    /// Strikes now.
    pub(crate) fn strike(&self, strike: Strike) {
        let process = {
            let inside = lock(&self.inside);
            inside.process.clone().filter(|_| inside.struck.is_none())
        };
        let Some(process) = process else { return };
        let successor = match strike {
            Strike::LoseNode => return self.lose_node(&process),
            // The other copies are needed.
            Strike::CutOff if self.damage.node().is_some() => return,
            Strike::CutOff => {
                let which = lock(&self.inside).random.below(process.links.len() as u64) as usize;
                return process.links.get(which).iter().for_each(|link| link.close());
            }
            Strike::Kill => {
                process.kill();
                None
            }
            Strike::TakeOver => {
                lock(&self.inside).may_be_fenced.store(true, Ordering::Relaxed);
                let successor = (0..TAKEOVER_TRIES).find_map(|_| self.try_open(true).ok());
                if successor.is_none() {
                    process.kill();
                }
                successor
            }
        };
        let struck = if successor.is_some() { Strike::TakeOver } else { Strike::Kill };
        let mut inside = lock(&self.inside);
        (inside.struck, inside.successor) = (Some(struck), successor);
    }

    /// Lets leases run out, and checks that then none of the nodes' memory is in use.
    pub(crate) fn expect_nothing_in_use(&self) {
        self.network.settle();
        for (node, number) in self.nodes.iter().zip(1..) {
            let mut node = lock(node);
            let Some(node) = node.as_mut().filter(|_| self.network.running(number).is_some()) else { continue };
            for _ in 0..8 {
                self.network.clock().sleep(Duration::from_secs(3));
                while node.step(Duration::ZERO).unwrap_or(false) {}
            }
            let figures = node.statistics();
            let used =
                figures.leased_extents + figures.adopted_extents + figures.job_extents + figures.recycling_extents;
            assert_eq!((used, figures.sessions, figures.job_bytes), (0, 0, 0), "memory is left in use: {figures:?}");
        }
    }

    pub(crate) fn nested(&self) -> Nested {
        lock(&self.inside).nested
    }

    /// Returns calls on a database that was opened with the contents of `model`.
    pub(crate) fn new_calls(&self, random: Random, habits: Habits, db: &Db, model: Model) -> Calls {
        Calls::new(random, habits, db, &self.clock, (&self.damage, &self.checkpoints), model)
    }

    /// Replaces the calls, and returns the earlier ones.
    pub(crate) fn set_calls(&self, calls: Calls) -> Option<Calls> {
        let mut inside = lock(&self.inside);
        inside.may_be_fenced = Arc::clone(&calls.may_be_fenced);
        inside.is_alone = Arc::clone(&calls.is_alone);
        drop(inside);
        lock(&self.calls).replace(calls)
    }

    /// Runs `body` with all calls, as a call.
    pub(crate) fn call<T>(&self, body: impl FnOnce(&mut Calls) -> T) -> T {
        let before = self.enter(Running::Call);
        let result = body(lock(&self.calls).as_mut().expect("a database is open"));
        self.enter(before);
        result
    }

    /// Runs a step of background work. Returns false when there was nothing to do.
    pub(crate) fn step(&self, db: &Db) -> bool {
        self.step_among_calls(db, CALLS_INSIDE_STEP)
    }

    /// Runs steps until there is nothing to do, or until [`MOST_STEPS`]: a log without an interval can always be shipped.
    /// Nobody makes calls meanwhile, because calls may write more than a step handles.
    pub(crate) fn settle(&self, db: &Db) {
        let _settled = (0..MOST_STEPS).all(|_| self.step_among_calls(db, 0));
    }

    fn step_among_calls(&self, db: &Db, calls: u32) -> bool {
        let before = self.enter(Running::Step);
        lock(&self.inside).calls_left = calls;
        let done = db.run_background_step();
        self.enter(before);
        done
    }

    fn enter(&self, running: Running) -> Running {
        std::mem::replace(&mut lock(&self.inside).running, running)
    }

    /// Renews the sessions when it is time, no matter who waits. A step inside a call may wait longer than a lease for a job
    /// whose reply is lost.
    fn renew_sessions(&self) {
        let mut inside = lock(&self.inside);
        if self.network.clock().now() < inside.next_renewal {
            return;
        }
        inside.next_renewal = Nanos::MAX;
        let running = std::mem::replace(&mut inside.running, Running::Inner);
        let processes = [inside.process.clone(), inside.successor.clone()];
        let opening = inside.opening.clone();
        let a_worker_sleeps = inside.a_worker_sleeps;
        drop(inside);
        let workers = self.workers.clients(a_worker_sleeps);
        let neighbour = self.neighbour.as_ref().and_then(|neighbour| neighbour.client());
        for client in
            processes.iter().flatten().flat_map(Process::clients).chain(&opening).chain(&workers).chain(&neighbour)
        {
            // A failure that ends a session is remembered by its client. After any other failure, the next renewal
            // tries again.
            let _ = client.renew();
        }
        let mut inside = lock(&self.inside);
        inside.running = running;
        inside.next_renewal = self.network.clock().now() + RENEWAL.as_nanos() as Nanos;
    }

    /// Lets the nodes do their work. Returns whether all of them could: code that runs on behalf of a node does not wait for
    /// that node.
    fn step_nodes(&self) -> bool {
        let mut all = true;
        for node in self.nodes.iter() {
            match node.try_lock() {
                // A crashed node can no longer serve.
                Ok(mut node) => drop(node.as_mut().map(|node| node.step(Duration::ZERO))),
                Err(_) => all = false,
            }
        }
        all
    }

    /// Lets a worker do something. If one is already working, it may be struck.
    fn let_workers_work(&self) {
        let mut inside = lock(&self.inside);
        // A renewal of sessions stands for a separate thread, which waits for no worker.
        if inside.a_worker_sleeps || inside.next_renewal == Nanos::MAX {
            return;
        }
        match self.workers.strike(&self.drawn.habits.swarm, &mut inside.random) {
            Some(WorkerStrike::Kill) => self.workers.kill(),
            Some(WorkerStrike::Stop(time)) => {
                inside.a_worker_sleeps = true;
                drop(inside);
                for _ in 0..time.as_secs() {
                    self.network.clock().sleep(Duration::from_secs(1));
                    self.step_nodes();
                    self.renew_sessions();
                }
                lock(&self.inside).a_worker_sleeps = false;
            }
            None if inside.random.one_in(1, WORK) => {
                let which = inside.random.below(self.workers.count()) as usize;
                let running = std::mem::replace(&mut inside.running, Running::Inner);
                drop(inside);
                self.workers.work(which);
                self.enter(running);
            }
            None => {}
        }
    }

    /// Does the work of others while somebody waits for the network.
    fn work_while_waiting(&self) {
        let is_outside = self.step_nodes();
        self.renew_sessions();
        if self.workers.count() > 0 && is_outside {
            self.let_workers_work();
        }
        if is_outside && let Some(neighbour) = &self.neighbour {
            let running = self.enter(Running::Inner);
            neighbour.act();
            self.enter(running);
        }
        if is_outside {
            self.let_rot();
        }
        let mut inside = lock(&self.inside);
        let running = inside.running;
        if running == Running::Inner {
            return;
        }
        if let Some(strike) = inside.due() {
            drop(inside);
            return self.strike_inside(strike);
        }
        let event = match running {
            Running::Call if self.drawn.calls_hold_locks() => return,
            Running::Call => Event::StepInsideCall,
            Running::Step if self.drawn.calls_inside && inside.calls_left > 0 => Event::CallInsideStep,
            _ => return,
        };
        let is_alone = inside.is_alone.load(Ordering::Relaxed);
        if is_alone || !self.drawn.habits.swarm.happens(event, &mut inside.random) {
            return;
        }
        let Some(db) = inside.process.as_ref().map(|process| process.db.clone()) else { return };
        inside.running = Running::Inner;
        match running {
            Running::Call => inside.nested.steps += 1,
            _ => {
                inside.nested.calls += 1;
                inside.calls_left -= 1;
            }
        }
        drop(inside);
        match running {
            Running::Call => {
                db.run_background_step();
            }
            _ => lock(&self.calls).as_mut().expect("a database is open").short_call(&db),
        }
        self.enter(running);
    }
}

/// Reads all of a database, and one of its keys by itself.
fn contents(db: &Db) -> Result<Contents, Error> {
    let (mut iterator, mut entries) = (db.iter()?, Vec::new());
    iterator.seek_to_first()?;
    while iterator.valid() {
        entries.push((iterator.key().to_vec(), iterator.value().to_vec()));
        iterator.next()?;
    }
    if let Some((key, value)) = entries.get(entries.len() / 2) {
        assert_eq!(db.get(key)?.as_ref(), Some(value), "key {key:?} of a checkpoint");
    }
    Ok(Contents { entries, time_ms: db.time_ms() })
}

impl Inside {
    /// The strike that is due now, if any.
    fn due(&mut self) -> Option<Strike> {
        let (strike, waits, only_of_steps) = self.armed?;
        if only_of_steps && self.running != Running::Step {
            return None;
        }
        self.armed = (waits > 0).then(|| (strike, waits - 1, only_of_steps));
        (waits == 0).then_some(strike)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::draw;

    #[test]
    fn sessions_outlive_a_step_inside_of_a_call_that_waits_long() {
        let stage = Stage::new(1, Drawn { faults: Default::default(), ..draw(&mut Random::seeded(1)) });
        let process = stage.open();
        let running = stage.enter(Running::Inner);
        for _ in 0..600 {
            stage.network.clock().sleep(Duration::from_millis(100));
            stage.work_while_waiting();
        }
        stage.enter(running);
        process.clients().iter().for_each(|client| client.renew().expect("the session lives on"));
        stage.leave();
    }
}
