//! Runs a phase: threads that start together, their latencies, and the store's counts.

use crate::histogram::{Latencies, LatencyMicros};
use crate::report::{Curves, Measured, OperationReport, PhaseReport};
use crate::{Error, Figures, StoreError};
use forebay_env::sync::lock;
use forebay_env::{Clock, Nanos, cpu, thread};
use forebay_fabric::LinkModel;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Interval between progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Operations between two updates of a thread's public count.
const PROGRESS_STRIDE: u64 = 256;
/// Shortest pause of threads that keep to a rate: calls come in small groups.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// Longest pause of such threads, before they look whether they are to stop.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// With [`Timing::Sampled`], one call in this many is timed.
const SAMPLE_STRIDE: u32 = 64;
/// Quantiles of a latency curve: the shares of calls that are not slower.
const CURVE: [f64; 13] = [0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999, 1.0];

/// Which calls are timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Timing {
    /// All calls: the clock is read once per call.
    #[default]
    Each,
    /// One call in 64: the cost of `db_bench` without a histogram.
    Sampled,
}

/// The current activity, reported several times a second.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The phase.
    pub name: &'a str,
    /// Operations done so far.
    pub done: u64,
    /// Operations planned.
    pub planned: u64,
    /// Seconds since the phase began.
    pub seconds: f64,
}

/// The state that all phases of a run share.
pub struct Run<'a> {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The network to model, if any.
    pub model: Option<LinkModel>,
    /// Called several times a second while a phase runs.
    pub progress: &'a mut dyn FnMut(Progress<'_>),
}

impl std::fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").field("model", &self.model).finish_non_exhaustive()
    }
}

/// Kinds of calls that are timed separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Get,
    MultiGet,
    Put,
    Batch,
    Delete,
    Seek,
    Next,
    Insert,
    Update,
    ReadModifyWrite,
    Scan,
    Step,
}

impl Call {
    const ALL: [Self; 12] = [
        Self::Get,
        Self::MultiGet,
        Self::Put,
        Self::Batch,
        Self::Delete,
        Self::Seek,
        Self::Next,
        Self::Insert,
        Self::Update,
        Self::ReadModifyWrite,
        Self::Scan,
        Self::Step,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::MultiGet => "multiget",
            Self::Put => "put",
            Self::Batch => "batch",
            Self::Delete => "delete",
            Self::Seek => "seek",
            Self::Next => "next",
            Self::Insert => "insert",
            Self::Update => "update",
            Self::ReadModifyWrite => "read-modify-write",
            Self::Scan => "scan",
            Self::Step => "step",
        }
    }
}

/// A thread of a phase.
#[derive(Debug)]
pub(crate) struct Worker {
    /// Its number, from 0.
    pub index: usize,
    /// Number of operations done.
    pub operations: u64,
    /// Number of keys found.
    pub found: u64,
    clock: Arc<dyn Clock>,
    started: Nanos,
    last: Nanos,
    /// Calls until the next timed one; zero when each is timed.
    untimed: u32,
    calls: [u64; Call::ALL.len()],
    latencies: [Option<Latencies>; Call::ALL.len()],
    /// Whether the thread works beside the others until they are done, and is not counted.
    is_background: bool,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Set when a thread failed: the others stop.
    stop: AtomicBool,
    done: AtomicU64,
    /// Threads that are counted and not done.
    left: AtomicUsize,
}

/// Counts a thread as done, also when it panics. Otherwise the background thread would continue for ever.
struct Leaves(Arc<Shared>);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.left.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Worker {
    /// Whether another thread failed; in the background also whether all others are done.
    #[inline]
    pub fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed) || self.is_background && self.shared.left.load(Ordering::Relaxed) == 0
    }

    /// Whether this thread works beside those that are counted.
    pub const fn is_background(&self) -> bool {
        self.is_background
    }

    /// Records the end of a call that did `operations` operations.
    ///
    /// # Errors
    /// When memory is short for a histogram.
    #[inline]
    pub fn finish(&mut self, call: Call, operations: u64) -> Result<(), Error> {
        self.calls[call as usize] += 1;
        if self.is_timed() {
            let now = self.clock.now();
            let latency = now.saturating_sub(self.last);
            self.last = now;
            match &mut self.latencies[call as usize] {
                Some(latencies) => latencies.record(latency),
                none => none.insert(Latencies::new()?).record(latency),
            }
        }
        let before = self.operations;
        self.operations += operations;
        let strides = self.operations / PROGRESS_STRIDE - before / PROGRESS_STRIDE;
        if strides > 0 && !self.is_background {
            self.shared.done.fetch_add(strides * PROGRESS_STRIDE, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether the call that ends now is timed. With sampling, the previous call reads the clock.
    #[inline]
    fn is_timed(&mut self) -> bool {
        match self.untimed {
            0 => true,
            1 => {
                self.untimed = SAMPLE_STRIDE;
                true
            }
            left => {
                self.untimed = left - 1;
                if left == 2 {
                    self.begin();
                }
                false
            }
        }
    }

    /// Waits until the call with this number, from 0, is due at `per_second` calls a second, or the thread is to stop.
    /// The pause is not part of the call's latency. A thread that the store has made late catches up.
    pub fn keep_rate(&mut self, per_second: Option<f64>, number: u64) {
        let Some(per_second) = per_second else { return };
        let due = self.started.saturating_add((number as f64 / per_second * 1e9) as Nanos);
        while !self.stopped() {
            let early = Duration::from_nanos(due.saturating_sub(self.clock.now()));
            if early < SHORTEST_PAUSE {
                break;
            }
            self.clock.sleep(early.min(LONGEST_PAUSE));
        }
        self.begin();
    }

    /// Starts the next call's latency now: work since the last call is not part of it.
    #[inline]
    pub fn begin(&mut self) {
        self.last = self.clock.now();
    }
}

/// The result of a thread.
struct Finished {
    worker: Worker,
    started: Nanos,
    ended: Nanos,
    cpu_seconds: f64,
}

/// A phase to run.
#[derive(Debug)]
pub(crate) struct Phase {
    pub name: String,
    pub threads: usize,
    /// Whether there is an additional thread, which works until these are done.
    pub has_background: bool,
    /// Operations of all threads together.
    pub planned: u64,
    /// Whether the number of found keys is reported.
    pub tells_found: bool,
    /// Which calls are timed.
    pub timing: Timing,
}

impl Phase {
    const fn all_threads(&self) -> usize {
        self.threads + self.has_background as usize
    }
}

/// Reads what a store has counted.
pub(crate) type ReadFigures<'a> = &'a dyn Fn() -> Result<Figures, StoreError>;

/// Runs `body` on each thread of the phase.
///
/// # Errors
/// The error of the first thread that failed; the others stop.
pub(crate) fn run_phase<S: Clone + Send + Sync + 'static>(
    store: &S,
    figures: ReadFigures<'_>,
    run: &mut Run<'_>,
    phase: Phase,
    body: impl Fn(&S, &mut Worker) -> Result<(), Error> + Send + Sync + 'static,
) -> Result<PhaseReport, Error> {
    let before = figures().map_err(Error::store("reading statistics"))?;
    let cpu_before = cpu::process_nanos();
    let shared = Arc::new(Shared {
        stop: AtomicBool::new(false),
        done: AtomicU64::new(0),
        left: AtomicUsize::new(phase.threads),
    });
    let results = start(store, &run.clock, &phase, &shared, Arc::new(body))?;
    let (threads, throughput) = collect(&results, run, &phase, &shared)?;
    let process_cpu_seconds = seconds(cpu::process_nanos().saturating_sub(cpu_before));
    let after = figures().map_err(Error::store("reading statistics"))?;
    let mut measured = summarize(phase, threads, process_cpu_seconds)?;
    measured.curves.throughput = throughput;
    Ok(PhaseReport::new(measured, &before, &after, run.model.as_ref()))
}

fn start<S: Clone + Send + Sync + 'static>(
    store: &S,
    clock: &Arc<dyn Clock>,
    phase: &Phase,
    shared: &Arc<Shared>,
    body: Arc<impl Fn(&S, &mut Worker) -> Result<(), Error> + Send + Sync + 'static>,
) -> Result<Receiver<Result<Finished, Error>>, Error> {
    let (sender, results) = channel();
    let gate = Arc::new(Gate::default());
    for index in 0..phase.all_threads() {
        let is_background = index >= phase.threads;
        let (store, clock, shared) = (store.clone(), Arc::clone(clock), Arc::clone(shared));
        let (body, gate_here, sender) = (Arc::clone(&body), Arc::clone(&gate), sender.clone());
        let timing = phase.timing;
        let spawned = thread::spawn(format!("{}-{index}", phase.name), move || {
            if !gate_here.pass() {
                return;
            }
            let leaves = (!is_background).then(|| Leaves(Arc::clone(&shared)));
            let result = work((index, is_background), &store, clock, timing, Arc::clone(&shared), &*body);
            if result.is_err() {
                shared.stop.store(true, Ordering::Relaxed);
            }
            drop(leaves);
            // Whoever has all results may drop what the handles are of.
            drop(store);
            // The receiver is gone only when the run was given up.
            let _ = sender.send(result);
        });
        if let Err(cause) = spawned {
            gate.open(false);
            return Err(Error::io("starting a thread", cause));
        }
    }
    gate.open(true);
    Ok(results)
}

/// A gate where threads wait until all have started.
#[derive(Debug, Default)]
struct Gate {
    /// Whether to continue, once that is known.
    open: Mutex<Option<bool>>,
    changed: Condvar,
}

impl Gate {
    fn open(&self, go_on: bool) {
        *lock(&self.open) = Some(go_on);
        self.changed.notify_all();
    }

    /// Waits. Returns whether to continue.
    fn pass(&self) -> bool {
        let mut open = lock(&self.open);
        loop {
            match *open {
                Some(go_on) => return go_on,
                None => open = self.changed.wait(open).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

fn work<S>(
    (index, is_background): (usize, bool),
    store: &S,
    clock: Arc<dyn Clock>,
    timing: Timing,
    shared: Arc<Shared>,
    body: &impl Fn(&S, &mut Worker) -> Result<(), Error>,
) -> Result<Finished, Error> {
    let cpu_before = cpu::thread_nanos();
    let started = clock.now();
    let latencies = [const { None }; Call::ALL.len()];
    let untimed = if timing == Timing::Each { 0 } else { SAMPLE_STRIDE };
    let calls = [0; Call::ALL.len()];
    let mut worker = Worker {
        index,
        operations: 0,
        found: 0,
        clock,
        started,
        last: started,
        untimed,
        calls,
        latencies,
        is_background,
        shared,
    };
    body(store, &mut worker)?;
    let ended = worker.clock.now();
    Ok(Finished { worker, started, ended, cpu_seconds: seconds(cpu::thread_nanos().saturating_sub(cpu_before)) })
}

/// Operations done, with the seconds since the phase began.
type Throughput = Vec<(f64, u64)>;

/// Waits for all threads, and reports progress meanwhile.
fn collect(
    results: &Receiver<Result<Finished, Error>>,
    run: &mut Run<'_>,
    phase: &Phase,
    shared: &Shared,
) -> Result<(Vec<Finished>, Throughput), Error> {
    let began = run.clock.now();
    let mut throughput = vec![(0.0, 0)];
    let mut finished = Vec::new();
    let mut failure = None;
    for _ in 0..phase.all_threads() {
        loop {
            match results.recv_timeout(PROGRESS_INTERVAL) {
                Ok(Ok(thread)) => finished.push(thread),
                Ok(Err(cause)) => failure = failure.or(Some(cause)),
                Err(RecvTimeoutError::Disconnected) => return Err(Error::Thread(phase.name.clone())),
                Err(RecvTimeoutError::Timeout) => {
                    let done = shared.done.load(Ordering::Relaxed);
                    let elapsed = seconds(run.clock.now().saturating_sub(began));
                    throughput.push((elapsed, done));
                    (run.progress)(Progress { name: &phase.name, done, planned: phase.planned, seconds: elapsed });
                    continue;
                }
            }
            break;
        }
    }
    finished.retain(|thread: &Finished| !thread.worker.is_background);
    let done = finished.iter().map(|thread| thread.worker.operations).sum();
    throughput.push((seconds(run.clock.now().saturating_sub(began)), done));
    failure.map_or(Ok((finished, throughput)), Err)
}

fn summarize(phase: Phase, threads: Vec<Finished>, process_cpu_seconds: f64) -> Result<Measured, Error> {
    let mut all = Latencies::new()?;
    let mut by_operation = Vec::new();
    for call in Call::ALL {
        let mut of_call: Option<Latencies> = None;
        for latencies in threads.iter().filter_map(|thread| thread.worker.latencies[call as usize].as_ref()) {
            match &mut of_call {
                Some(merged) => merged.merge(latencies)?,
                none => *none = Some(latencies.clone()),
            }
        }
        let calls: u64 = threads.iter().map(|thread| thread.worker.calls[call as usize]).sum();
        if calls > 0 {
            let latency_us = match &of_call {
                Some(latencies) => latencies.summary(),
                None => LatencyMicros::default(),
            };
            by_operation.push(OperationReport { operation: call.name().to_owned(), calls, latency_us });
        }
        if let Some(latencies) = of_call {
            all.merge(&latencies)?;
        }
    }
    if by_operation.len() == 1 {
        by_operation.clear();
    }
    let started = threads.iter().map(|thread| thread.started).min().unwrap_or(0);
    let ended = threads.iter().map(|thread| thread.ended).max().unwrap_or(0);
    let found = threads.iter().map(|thread| thread.worker.found).sum();
    Ok(Measured {
        name: phase.name,
        operations: threads.iter().map(|thread| thread.worker.operations).sum(),
        found: phase.tells_found.then_some(found),
        seconds: seconds(ended.saturating_sub(started)),
        latency_us: all.summary(),
        curves: Curves {
            throughput: Vec::new(),
            latency: CURVE.iter().map(|&share| (share, all.quantile_us(share))).collect(),
        },
        by_operation,
        process_cpu_seconds,
        foreground_cpu_seconds: threads.iter().map(|thread| thread.cpu_seconds).sum(),
        threads: phase.threads,
    })
}

fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / 1e9
}
