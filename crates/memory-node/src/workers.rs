//! Work that must not hold up the node's loop.
//!
//! *Upkeep* zeroes freed extents in slices and pulls arguments that are too long for a message;
//! *jobs* run on threads of their own. Without threads (simulation) the node's step does a bit of
//! both. A job that is short runs at once, where its request was taken in: it must not wait behind long ones.

use crate::core::{CallError, Called, Core, count};
use crate::job::{JobRegistry, PinnedMemory};
use crate::state::Job;
use forebay_base::ErrorKind;
use forebay_env::sync::lock;
use forebay_fabric::{EndpointId, Peer, rpc};
use forebay_proto::replies::JobDone;
use forebay_proto::{Message, Procedure, Request, Rest};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Most requests whose arguments wait to be pulled.
const MAX_PULLS: usize = 256;
/// How long a worker sleeps before it looks around by itself.
const PATIENCE: Duration = Duration::from_millis(100);

/// A request and where its reply goes.
pub(crate) struct Caller {
    pub peer: Arc<dyn Peer>,
    pub endpoint: EndpointId,
    pub request: rpc::Request,
}

impl Caller {
    /// Replies. A caller that is gone is none of the node's trouble: its link's end is an event.
    pub fn reply(&self, result: Result<&[u8], (ErrorKind, &str)>) {
        if let Err(error) = self.request.reply(&*self.peer, self.endpoint, result) {
            tracing::debug!(peer = self.peer.id().0, %error, "a reply could not be delivered");
        }
    }
}

#[derive(Default)]
struct Queues {
    pulls: VecDeque<Caller>,
    jobs: VecDeque<(Caller, Job)>,
    stopping: bool,
}

/// The queues of work and what works on them.
pub(crate) struct Workers {
    core: Arc<Core>,
    registry: JobRegistry,
    most_jobs: usize,
    /// Threads that run jobs; none when the node is stepped.
    job_threads: usize,
    queues: Mutex<Queues>,
    arrived: Condvar,
}

impl Workers {
    pub fn new(core: Arc<Core>, registry: JobRegistry, most_jobs: usize, job_threads: usize) -> Self {
        Self { core, registry, most_jobs, job_threads, queues: Mutex::default(), arrived: Condvar::new() }
    }

    /// Wakes whoever sleeps: there is something to do.
    pub fn wake(&self) {
        // Taking the lock orders this after a sleeper's check: it cannot miss the wake-up.
        drop(lock(&self.queues));
        self.arrived.notify_all();
    }

    pub fn stop(&self) {
        lock(&self.queues).stopping = true;
        self.arrived.notify_all();
    }

    /// Takes a request in.
    pub fn accept(&self, caller: Caller) {
        if !caller.request.is_by_reference() {
            return self.serve(&caller);
        }
        let mut queues = lock(&self.queues);
        if queues.pulls.len() >= MAX_PULLS {
            drop(queues);
            return caller.reply(Err((ErrorKind::Busy, "too many requests with long arguments wait")));
        }
        queues.pulls.push_back(caller);
        drop(queues);
        self.arrived.notify_all();
    }

    /// Decides a request, which may become a job.
    fn serve(&self, caller: &Caller) {
        count(&self.core.counters.calls);
        let result = match self.call(caller) {
            Ok(Called::Reply(bytes)) => return caller.reply(Ok(&bytes)),
            Ok(Called::Job(mut job)) => {
                // A result travels behind the version byte of its message.
                job.most_result_bytes = caller.request.most_result_bytes().saturating_sub(1);
                match self.registry.is_short(job.kind) {
                    true => {
                        self.run(caller, &job, 1);
                        Ok(())
                    }
                    false => self.queue_job(caller, job),
                }
            }
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            count(&self.core.counters.refused_calls);
            caller.reply(Err((error.kind, &error.message)));
        }
        if self.core.has_zeroing() {
            self.wake();
        }
    }

    fn call(&self, caller: &Caller) -> Result<Called, CallError> {
        let refuse = |kind, message: String| CallError { kind, message };
        let number = caller.request.procedure;
        let procedure = Procedure::from_number(number)
            .ok_or_else(|| refuse(ErrorKind::Unsupported, format!("there is no procedure {number}")))?;
        let arguments = caller.request.arguments(&*caller.peer, caller.endpoint).map_err(|error| {
            if error.kind() == ErrorKind::TimedOut {
                // One that does not answer must not hold up the others a second time.
                tracing::warn!(peer = caller.peer.id().0, "the link is closed: its arguments cannot be pulled");
                caller.peer.close();
            }
            refuse(ErrorKind::Invalid, format!("pulling the arguments: {error}"))
        })?;
        let request = Request::decode(procedure, &arguments)
            .map_err(|error| refuse(ErrorKind::Invalid, format!("{}: {error}", procedure.name())))?;
        self.core.call(&caller.peer, request)
    }

    fn queue_job(&self, caller: &Caller, job: Job) -> Result<(), CallError> {
        let mut queues = lock(&self.queues);
        if queues.jobs.len() >= self.most_jobs {
            drop(queues);
            self.core.job_ended(job.id, false);
            let message = "the node's queue of jobs is full".into();
            return Err(CallError { kind: ErrorKind::Busy, message });
        }
        let caller =
            Caller { peer: Arc::clone(&caller.peer), endpoint: caller.endpoint, request: caller.request.clone() };
        queues.jobs.push_back((caller, job));
        drop(queues);
        count(&self.core.counters.queued_jobs);
        self.arrived.notify_all();
        Ok(())
    }

    /// Does a bit of upkeep. False when there is nothing to do.
    pub fn upkeep(&self) -> bool {
        let pull = lock(&self.queues).pulls.pop_front();
        if let Some(caller) = &pull {
            self.serve(caller);
        }
        self.core.zero_slice() || pull.is_some()
    }

    /// Runs a job. False when none waits.
    pub fn run_job(&self) -> bool {
        let Some((caller, job)) = lock(&self.queues).jobs.pop_front() else { return false };
        let counters = &self.core.counters;
        counters.queued_jobs.fetch_sub(1, Ordering::Relaxed);
        count(&counters.running_jobs);
        let running = counters.running_jobs.load(Ordering::Relaxed) as usize;
        let threads = (1 + self.job_threads).saturating_sub(running).max(1);
        self.run(&caller, &job, threads);
        counters.running_jobs.fetch_sub(1, Ordering::Relaxed);
        if self.core.has_zeroing() {
            self.wake();
        }
        true
    }

    /// Runs a job on this thread and up to `threads - 1` others, and replies.
    fn run(&self, caller: &Caller, job: &Job, threads: usize) {
        let counters = &self.core.counters;
        let result = self.registry.run(job, &PinnedMemory::new(&self.core, job.id, threads));
        let is_fenced = self.core.with_state(|state| !state.job_may_go_on(job.id));
        let counts = self.core.job_ended(job.id, result.is_ok());
        count(if counts { &counters.completed_jobs } else { &counters.failed_jobs });
        match result {
            Ok(result) if counts => caller.reply(Ok(&JobDone { result: Rest(result) }.encode())),
            _ if lock(&self.queues).stopping => caller.reply(Err((ErrorKind::Unavailable, "the node stops"))),
            Err(error) if !is_fenced => {
                tracing::warn!(shard = %job.shard, attempt = job.attempt, kind = job.kind, %error, "a job failed");
                caller.reply(Err((error.kind, &error.message)));
            }
            Ok(_) | Err(_) => caller.reply(Err((ErrorKind::Fenced, "the job's session or shard epoch ended"))),
        }
    }

    /// The body of a thread that does upkeep.
    pub fn upkeep_thread(&self) {
        self.thread(|workers| workers.upkeep(), |queues, core| !queues.pulls.is_empty() || core.has_zeroing());
    }

    /// The body of a thread that runs jobs.
    pub fn job_thread(&self) {
        self.thread(|workers| workers.run_job(), |queues, _| !queues.jobs.is_empty());
    }

    fn thread(&self, work: impl Fn(&Self) -> bool, waits: impl Fn(&Queues, &Core) -> bool) {
        let mut cpu = ThreadTime::default();
        loop {
            while !lock(&self.queues).stopping && work(self) {
                cpu.report(&self.core.counters.cpu_nanos);
            }
            cpu.report(&self.core.counters.cpu_nanos);
            let queues = lock(&self.queues);
            if queues.stopping {
                return;
            }
            if !waits(&queues, &self.core) {
                drop(self.arrived.wait_timeout(queues, PATIENCE).unwrap_or_else(PoisonError::into_inner));
            }
        }
    }
}

/// Adds a thread's processor time to a sum.
#[derive(Default)]
pub(crate) struct ThreadTime(u64);

impl ThreadTime {
    pub fn report(&mut self, sum: &AtomicU64) {
        let now = forebay_env::cpu::thread_nanos();
        sum.fetch_add(now.saturating_sub(self.0), Ordering::Relaxed);
        self.0 = now;
    }
}
