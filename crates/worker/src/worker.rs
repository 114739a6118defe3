//! The threads of a worker, and a worker without threads.
//!
//! One thread talks to the scheduler: at intervals, and at once when there is something to say. It runs the decider. The
//! other threads take attempts from a queue. Without threads, the caller does all of this in turn.

use crate::Error;
use crate::attempt;
use crate::stored::Reached;
use crate::throughput::{Throughput, rate};
use forebay_env::sync::lock;
use forebay_env::thread::{JoinHandle, spawn};
use forebay_env::{Clock, SystemClock};
use forebay_fabric::{EndpointOptions, NodeIdentity, Traffic};
use forebay_memory_client::{MemoryClient, Reach};
use forebay_offload::{Attempt, Executor, JobName, Letter, Outcome, Package, Reason, StorageAccess, Task};
use forebay_storage::{BlockCacheOptions, SignedAccess, Storage};
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Most letters that wait for the scheduler. The oldest are dropped first: a receiver that misses a letter has time
/// limits.
const MOST_LETTERS: usize = 256;

/// Options of a worker.
#[derive(Debug, Clone)]
pub struct Options {
    /// Threads that run jobs.
    pub threads: u32,
    /// Jobs that may wait for one of them.
    pub queue_limit: u32,
    /// How often the worker talks to the scheduler.
    pub interval: Duration,
    /// How long an operation may take.
    pub timeout: Duration,
    /// The storage of databases whose jobs need one, with rights to all of it.
    pub storage: Option<Storage>,
    /// Access to names in storage that the owner of a job has signed. Where it can, the worker uses these, and not its
    /// own rights.
    pub signed: Option<SignedAccess>,
    /// The cache of blocks that its jobs read from storage.
    pub block_cache: BlockCacheOptions,
    /// For threads that are lent and have work of their own: how many of them do that work now.
    pub occupied: Option<Occupied>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: 1,
            queue_limit: 1,
            interval: Duration::from_millis(10),
            timeout: Duration::from_secs(5),
            storage: None,
            signed: None,
            block_cache: BlockCacheOptions::default(),
            occupied: None,
            clock: SystemClock::shared(),
        }
    }
}

/// How many threads are not available for jobs now.
#[derive(Clone)]
pub struct Occupied(Arc<dyn Fn() -> u32 + Send + Sync>);

impl Occupied {
    /// Takes the number from `count`, whenever it is asked.
    pub fn by(count: impl Fn() -> u32 + Send + Sync + 'static) -> Self {
        Self(Arc::new(count))
    }
}

impl std::fmt::Debug for Occupied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Occupied").field(&(self.0)()).finish()
    }
}

/// What a worker has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Attempts that went well.
    pub completed: u64,
    /// Attempts that failed, or were stopped.
    pub failed: u64,
    /// Bytes read by jobs.
    pub read_bytes: u64,
    /// Bytes written by jobs.
    pub written_bytes: u64,
}

/// An attempt that waits for a thread.
struct Waiting {
    name: JobName,
    attempt: Attempt,
    package: Package,
    stop: Arc<AtomicBool>,
}

/// An attempt that has ended.
type Ended = (JobName, Attempt, Result<Outcome, Reason>);

#[derive(Default)]
struct Queues {
    waiting: VecDeque<Waiting>,
    ended: Vec<Ended>,
    stopping: bool,
}

#[derive(Default)]
struct Counters {
    completed: AtomicU64,
    failed: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    /// Bytes a second that the fastest attempt wrote.
    fastest: AtomicU64,
}

struct Shared {
    nodes: Vec<Reach>,
    scheduler: Arc<Reach>,
    storage: Option<Reached>,
    options: Options,
    queues: Mutex<Queues>,
    /// Signals that there is something to run.
    work: Condvar,
    /// Signals that there is something to say.
    news: Condvar,
    counters: Counters,
    /// Whether the scheduler has answered.
    is_known: AtomicBool,
}

/// A running worker. It ends when it is dropped.
pub struct Worker {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("statistics", &self.statistics()).finish_non_exhaustive()
    }
}

impl Worker {
    /// Starts a worker for jobs whose memory is in `nodes`, placed by the scheduler at `scheduler`.
    ///
    /// # Errors
    /// [`Error::Thread`], [`Error::Storage`].
    pub fn start(nodes: Vec<Reach>, scheduler: Arc<Reach>, options: Options) -> Result<Self, Error> {
        let threads = options.threads.max(1);
        let mut worker = Self { shared: Shared::new(nodes, scheduler, options)?, threads: Vec::new() };
        for index in 0..=threads {
            let shared = Arc::clone(&worker.shared);
            let thread = match index {
                0 => spawn("worker", move || Talk::new(shared).run()),
                _ => spawn(format!("worker-job-{index}"), move || shared.run_jobs()),
            };
            worker.threads.push(thread.map_err(|error| Error::Thread(error.to_string()))?);
        }
        Ok(worker)
    }

    /// Returns what the worker has done.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.shared.statistics()
    }

    /// Whether a scheduler knows the worker.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.shared.is_known.load(Ordering::Relaxed)
    }

    /// Whether the worker runs. Only an error of its own makes it stop by itself.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.threads.iter().any(JoinHandle::is_finished)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        {
            let mut queues = lock(&self.shared.queues);
            queues.stopping = true;
            queues.waiting.clear();
        }
        self.shared.work.notify_all();
        self.shared.news.notify_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the worker ended by a panic");
            }
        }
    }
}

/// A worker without threads: it works when it is told to.
pub struct SteppedWorker {
    talk: Talk,
}

impl std::fmt::Debug for SteppedWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SteppedWorker").field("statistics", &self.statistics()).finish_non_exhaustive()
    }
}

impl SteppedWorker {
    /// Makes a worker as [`Worker::start`] does. Only its cache of blocks has threads, as many as its options say.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub fn new(nodes: Vec<Reach>, scheduler: Arc<Reach>, options: Options) -> Result<Self, Error> {
        Ok(Self { talk: Talk::new(Shared::new(nodes, scheduler, options)?) })
    }

    /// Talks to the scheduler, and runs the attempts that it was given.
    pub fn step(&mut self) {
        self.talk.turn();
        let next = || lock(&self.talk.shared.queues).waiting.pop_front();
        while let Some(waiting) = next() {
            self.talk.shared.run(waiting);
        }
        let ended = std::mem::take(&mut lock(&self.talk.shared.queues).ended);
        self.talk.end(ended);
    }

    /// Returns what the worker has done.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.talk.shared.statistics()
    }
}

impl Shared {
    fn new(nodes: Vec<Reach>, scheduler: Arc<Reach>, options: Options) -> Result<Arc<Self>, Error> {
        let storage = Reached::new(options.storage.clone(), options.signed.clone(), options.block_cache)?;
        Ok(Arc::new(Self {
            nodes,
            scheduler,
            storage,
            options,
            queues: Mutex::default(),
            work: Condvar::new(),
            news: Condvar::new(),
            counters: Counters::default(),
            is_known: AtomicBool::new(false),
        }))
    }

    fn statistics(&self) -> Statistics {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { completed, failed, read_bytes, written_bytes, .. } = &self.counters;
        Statistics {
            completed: get(completed),
            failed: get(failed),
            read_bytes: get(read_bytes),
            written_bytes: get(written_bytes),
        }
    }

    /// The body of a thread that runs jobs.
    fn run_jobs(&self) {
        loop {
            let waiting = {
                let mut queues = lock(&self.queues);
                loop {
                    if queues.stopping {
                        return;
                    }
                    match queues.waiting.pop_front() {
                        Some(waiting) => break waiting,
                        None => queues = self.work.wait(queues).unwrap_or_else(PoisonError::into_inner),
                    }
                }
            };
            self.run(waiting);
            self.news.notify_all();
        }
    }

    /// Runs an attempt.
    fn run(&self, waiting: Waiting) {
        let Waiting { name, attempt, package, stop } = waiting;
        let _traced = tracing::debug_span!(target: "forebay_trace", "job", kind = i64::from(package.kind)).entered();
        let began = self.options.clock.now();
        // A job that panics fails alone: the thread continues. What the job shares with others is behind locks, and
        // whole between any two statements.
        let made = catch_unwind(AssertUnwindSafe(|| self.attempt(attempt, &package, &stop)));
        let made = made.unwrap_or(Err(Error::Panicked));
        let took = self.options.clock.now().saturating_sub(began);
        let counters = &self.counters;
        match &made {
            Ok(outcome) => {
                counters.completed.fetch_add(1, Ordering::Relaxed);
                counters.read_bytes.fetch_add(outcome.read_bytes, Ordering::Relaxed);
                counters.written_bytes.fetch_add(outcome.written_bytes, Ordering::Relaxed);
                counters.fastest.fetch_max(rate(outcome.written_bytes, took), Ordering::Relaxed);
            }
            Err(error) => {
                counters.failed.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(?name, %attempt, %error, "an attempt failed");
            }
        }
        lock(&self.queues).ended.push((name, attempt, made.map_err(|_| Reason::Failed)));
    }

    fn attempt(&self, attempt: Attempt, package: &Package, stop: &AtomicBool) -> Result<Outcome, Error> {
        let here = NodeIdentity { node: package.ticket.node, incarnation: package.ticket.incarnation };
        let mut failure = Error::Unsupported(format!("{here} is none of the nodes that this worker knows"));
        for node in &self.nodes {
            match node.client() {
                Ok(client) if client.node() == here => {
                    let endpoint = EndpointOptions {
                        traffic: Traffic::Background,
                        timeout: self.options.timeout,
                        clock: Arc::clone(&self.options.clock),
                    };
                    return attempt::run(&client, endpoint, attempt, package, self.storage.as_ref(), stop);
                }
                Ok(_) => {}
                Err(error) => failure = error.into(),
            }
        }
        Err(failure)
    }
}

/// The side that talks to the scheduler.
struct Talk {
    shared: Arc<Shared>,
    executor: Executor,
    letters: VecDeque<Letter>,
    /// Flags that tell running attempts to stop.
    stops: BTreeMap<(JobName, Attempt), Arc<AtomicBool>>,
    throughput: Throughput,
    /// Whether the scheduler could not be reached last time.
    is_lost: bool,
}

impl Talk {
    fn new(shared: Arc<Shared>) -> Self {
        let executor = Executor::new(shared.options.threads.max(1), shared.options.queue_limit);
        Self {
            shared,
            executor,
            letters: VecDeque::new(),
            stops: BTreeMap::new(),
            throughput: Throughput::default(),
            is_lost: false,
        }
    }

    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        loop {
            self.turn();
            let mut queues = lock(&shared.queues);
            if queues.ended.is_empty() && self.letters.is_empty() && !queues.stopping || self.is_lost {
                let interval = shared.options.interval;
                (queues, _) = shared.news.wait_timeout(queues, interval).unwrap_or_else(PoisonError::into_inner);
            }
            let stopping = queues.stopping;
            let ended = std::mem::take(&mut queues.ended);
            drop(queues);
            if stopping {
                return self.stop_all();
            }
            self.end(ended);
        }
    }

    /// Talks to the scheduler, if it can be reached.
    fn turn(&mut self) {
        let scheduler = self.shared.scheduler.client().map_err(Error::from);
        match scheduler.and_then(|client| self.exchange(&client)) {
            Ok(()) => {
                if std::mem::take(&mut self.is_lost) {
                    tracing::info!("the scheduler is reached");
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_lost, true) {
                    tracing::warn!(%error, "the scheduler is not reached");
                }
            }
        }
    }

    /// Takes note of attempts that have ended.
    fn end(&mut self, ended: Vec<Ended>) {
        for (name, attempt, made) in ended {
            self.stops.remove(&(name, attempt));
            self.executor.done(name, attempt, made);
        }
        self.act();
    }

    /// Sends the letters that wait, and does what the replies say.
    fn exchange(&mut self, client: &Arc<MemoryClient>) -> Result<(), Error> {
        let written = self.shared.counters.written_bytes.load(Ordering::Relaxed);
        self.throughput.look(self.shared.options.clock.now(), written);
        let fastest = self.shared.counters.fastest.load(Ordering::Relaxed);
        let bandwidth = self.throughput.bandwidth(self.shared.options.threads.max(1), fastest);
        if let Some(Occupied(count)) = &self.shared.options.occupied {
            self.executor.occupy(count());
        }
        let storage = self.shared.storage.as_ref().map_or_else(StorageAccess::default, Reached::access);
        let beat = self.executor.beat(self.throughput.per_second, bandwidth, storage);
        let beat = Letter::Beat(beat);
        let letters: Vec<_> = std::iter::once(beat).chain(self.letters.iter().cloned()).collect();
        // A node that does not answer may no longer schedule; then another one does.
        let exchanged = client.exchange(&letters).inspect_err(|_| self.shared.scheduler.forget(client));
        let (term, received) = exchanged?;
        self.letters.clear();
        self.shared.is_known.store(true, Ordering::Relaxed);
        self.executor.meet(term);
        for letter in received {
            if let Letter::Message(message) = letter {
                self.executor.receive(&message);
            }
        }
        self.act();
        Ok(())
    }

    fn act(&mut self) {
        for task in self.executor.take_tasks() {
            match task {
                Task::Send(message) => {
                    if self.letters.len() >= MOST_LETTERS {
                        self.letters.pop_front();
                    }
                    self.letters.push_back(Letter::Message(message));
                }
                Task::Run { name, attempt, package } => {
                    let stop = Arc::new(AtomicBool::new(false));
                    self.stops.insert((name, attempt), Arc::clone(&stop));
                    lock(&self.shared.queues).waiting.push_back(Waiting { name, attempt, package, stop });
                    self.shared.work.notify_one();
                }
                Task::Stop(name, attempt) => {
                    if let Some(stop) = self.stops.get(&(name, attempt)) {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
    }

    fn stop_all(&self) {
        self.stops.values().for_each(|stop| stop.store(true, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_offload::{Span, StorageNeed, Term, Ticket};

    #[test]
    fn a_job_that_panics_fails_and_nothing_else_does() {
        let scheduler = Arc::new(Reach::new(|| panic!("nobody asks the scheduler")));
        let nodes = vec![Reach::new(|| panic!("a bug of the job"))];
        let shared = Shared::new(nodes, scheduler, Options::default()).unwrap();
        let name = JobName { database: 1, shard: 0, epoch: 1, job: 1 };
        let attempt = Attempt { term: Term(1), number: 1 };
        let package = Package {
            kind: 16,
            storage: StorageNeed::None,
            ticket: Ticket { node: 1, incarnation: 1, job: 1, secret: 1 },
            arguments: Span::default(),
            memory_bytes: 1,
            storage_bytes: 0,
        };
        shared.run(Waiting { name, attempt, package, stop: Arc::default() });
        let failed: Ended = (name, attempt, Err(Reason::Failed));
        assert_eq!(lock(&shared.queues).ended, [failed]);
        assert_eq!(shared.statistics().failed, 1);
    }
}
