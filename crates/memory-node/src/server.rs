//! The node's loop: events of the fabric in, replies out.

use crate::core::{Core, count};
use crate::workers::{Caller, ThreadTime, Workers};
use crate::{Error, Options};
use forebay_env::HashMap;
use forebay_env::sync::lock;
use forebay_env::thread::{JoinHandle, spawn};
use forebay_fabric::{Event, Listener, NodeIdentity, Peer, PeerId, rpc};
use forebay_proto::replies::Statistics;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long the loop sleeps when nothing happens.
const IDLE: Duration = Duration::from_millis(20);
/// The same while keys are being revoked.
const IMPATIENT: Duration = Duration::from_millis(1);
/// Events handled before time is looked at.
const EVENTS_PER_TICK: u32 = 64;
/// Messages that are no requests before a link is closed.
const MAX_MALFORMED: u32 = 16;

/// A memory node.
///
/// [`MemoryNode::start`] runs it on threads. [`MemoryNode::new`] and [`MemoryNode::step`] run it on
/// the caller's, for simulation.
pub struct MemoryNode {
    listener: Box<dyn Listener>,
    core: Arc<Core>,
    workers: Arc<Workers>,
    threads: Vec<JoinHandle<()>>,
    malformed: HashMap<PeerId, u32>,
    since_tick: u32,
    cpu: ThreadTime,
}

impl std::fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryNode").field("address", &self.listener.address()).finish_non_exhaustive()
    }
}

impl MemoryNode {
    /// A node without threads: the caller calls [`MemoryNode::step`].
    ///
    /// # Errors
    /// [`Error::Options`]; [`Error::Fabric`] when there is no memory to register.
    pub fn new(listener: Box<dyn Listener>, options: Options) -> Result<Self, Error> {
        Self::with_job_threads(listener, options, 0)
    }

    fn with_job_threads(listener: Box<dyn Listener>, options: Options, job_threads: usize) -> Result<Self, Error> {
        let settings = options.settings(listener.identity())?;
        let fabric = |what| move |cause| Error::Fabric { what, cause };
        let core = Core::new(&*listener, settings, Arc::clone(&options.clock), options.whole_process)
            .map_err(fabric("registering memory"))?;
        if options.commit {
            core.commit().map_err(fabric("touching memory"))?;
        }
        let core = Arc::new(core);
        let workers = Arc::new(Workers::new(Arc::clone(&core), options.jobs, options.queued_jobs, job_threads));
        Ok(Self {
            listener,
            core,
            workers,
            threads: Vec::new(),
            malformed: HashMap::default(),
            since_tick: 0,
            cpu: ThreadTime::default(),
        })
    }

    /// Starts a node on threads of its own: one for the loop, one for upkeep, and
    /// [`Options::threads`] for jobs.
    ///
    /// # Errors
    /// As [`MemoryNode::new`]; [`Error::Thread`].
    pub fn start(listener: Box<dyn Listener>, options: Options) -> Result<Handle, Error> {
        let threads = options.threads;
        let mut node = Self::with_job_threads(listener, options, threads)?;
        let (address, identity) = (node.listener.address(), node.listener.identity());
        let core = Arc::clone(&node.core);
        let stop = Arc::new(AtomicBool::new(false));
        node.spawn_workers(threads)?;
        let flag = Arc::clone(&stop);
        let thread = spawn("memory-node", move || node.run(&flag)).map_err(|e| Error::Thread(e.to_string()))?;
        let statistics = core.statistics();
        tracing::info!(
            address,
            incarnation = identity.incarnation,
            extents = statistics.extents,
            extent_bytes = statistics.extent_bytes,
            headroom_extents = statistics.headroom_extents,
            kept_extents = statistics.kept_extents,
            "the memory node serves"
        );
        Ok(Handle { address, identity, core, stop, thread: Mutex::new(Some(thread)) })
    }

    fn spawn_workers(&mut self, jobs: usize) -> Result<(), Error> {
        for index in 0..=jobs {
            let workers = Arc::clone(&self.workers);
            let thread = match index {
                0 => spawn("memory-node-upkeep", move || workers.upkeep_thread()),
                _ => spawn(format!("memory-node-job-{index}"), move || workers.job_thread()),
            };
            self.threads.push(thread.map_err(|e| Error::Thread(e.to_string()))?);
        }
        Ok(())
    }

    fn run(mut self, stop: &AtomicBool) -> Result<(), Error> {
        // Pairs with the store in `Handle::request_stop`; nothing else is ordered by it.
        while !stop.load(Ordering::Relaxed) {
            self.step(if self.core.is_revoking() { IMPATIENT } else { IDLE })?;
        }
        Ok(())
    }

    /// Handles the next event, waiting for it for at most `limit`, and lets time pass. Without
    /// threads, also does a bit of upkeep and runs a job. Returns whether anything was done.
    ///
    /// # Errors
    /// [`Error::Fabric`] when the node can serve no more.
    pub fn step(&mut self, limit: Duration) -> Result<bool, Error> {
        let event = self.listener.next(limit).map_err(|cause| Error::Fabric { what: "serving", cause })?;
        let mut busy = event.is_some();
        self.since_tick += 1;
        if let Some(event) = event {
            self.handle(event);
        }
        if !busy || self.since_tick >= EVENTS_PER_TICK {
            self.since_tick = 0;
            self.core.tick();
            // Without threads it is the caller's processor time, whatever that does besides.
            if !self.threads.is_empty() {
                self.cpu.report(&self.core.counters.cpu_nanos);
            }
            if self.core.has_zeroing() {
                self.workers.wake();
            }
        }
        if self.threads.is_empty() {
            busy |= self.workers.upkeep();
            busy |= self.workers.run_job();
        }
        Ok(busy)
    }

    /// The node's figures.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.core.statistics()
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Joined(peer) => tracing::info!(peer = peer.id().0, "a link was opened"),
            Event::Message { peer, endpoint, bytes } => match rpc::Request::decode(&bytes) {
                Ok(request) => self.workers.accept(Caller { peer, endpoint, request }),
                Err(error) => self.malformed(&*peer, &error),
            },
            Event::Left { peer, cause } => {
                tracing::info!(peer = peer.0, %cause, "a link ended");
                self.malformed.remove(&peer);
                self.core.link_ended(peer);
                self.workers.wake();
            }
        }
    }

    /// A message that is no request cannot be answered. Who sends many is not one of ours.
    fn malformed(&mut self, peer: &dyn Peer, error: &forebay_base::DecodeError) {
        count(&self.core.counters.malformed_messages);
        let strikes = self.malformed.entry(peer.id()).or_default();
        *strikes += 1;
        tracing::warn!(peer = peer.id().0, %error, "a message that is no request");
        if *strikes >= MAX_MALFORMED {
            tracing::warn!(peer = peer.id().0, "the link is closed: too many messages that are no requests");
            peer.close();
        }
    }
}

impl Drop for MemoryNode {
    fn drop(&mut self) {
        self.workers.stop();
        self.core.with_state(crate::state::State::stop_jobs);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the memory node ended by a panic");
            }
        }
    }
}

/// A running node. Dropping it shuts the node down.
#[derive(Debug)]
pub struct Handle {
    address: String,
    identity: NodeIdentity,
    core: Arc<Core>,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<Result<(), Error>>>>,
}

impl Handle {
    /// The address that links are opened with.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Which node it is.
    #[must_use]
    pub fn identity(&self) -> NodeIdentity {
        self.identity
    }

    /// The node's figures.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.core.statistics()
    }

    /// False when the node has stopped, by itself or because it was told to.
    #[must_use]
    pub fn is_running(&self) -> bool {
        lock(&self.thread).as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Stops the node: jobs are told to stop, links end, memory is given back. Returns when that is
    /// done.
    ///
    /// # Errors
    /// Why the node had stopped by itself, if it had.
    pub fn shutdown(&self) -> Result<(), Error> {
        self.stop.store(true, Ordering::Relaxed);
        match lock(&self.thread).take() {
            Some(thread) => thread.join().unwrap_or(Err(Error::Panicked)),
            None => Ok(()),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Err(error) = self.shutdown() {
            tracing::error!(%error, "the memory node stopped");
        }
    }
}
