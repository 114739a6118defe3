//! Work that must not hold up the node's loop.
//!
//! *Upkeep* zeroes freed extents in slices and runs the jobs that take milliseconds; *long jobs* run on threads of their
//! own. Both wait in turns, by tenant and link ([`forebay_fabric::turns`]). Without threads (simulation) the node's step
//! does some of both. A job that takes microseconds runs at once, where its request was received.

use crate::core::{CallError, Core, Kept};
use crate::job::{JobError, Pace, PinnedMemory};
use crate::registry::JobRegistry;
use crate::state::{Figures, Job, TenantId, Waiting};
use crate::telling::is_told;
use forebay_base::ErrorKind;
use forebay_env::sync::lock;
use forebay_env::sync::thread::yield_now;
use forebay_env::thread::give_way;
use forebay_fabric::{EndpointId, Peer, Place, rpc, turns};
use forebay_proto::replies::JobDone;
use forebay_proto::{Message, Rest, attempt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long a worker sleeps before it looks around by itself.
const PATIENCE: Duration = Duration::from_millis(100);
/// What a job is charged when it begins, nanoseconds, so that others come first meanwhile.
const ADVANCE: u64 = 1_000_000;

/// Whose turn it is: a link of a tenant.
pub(crate) type Turn = turns::Turn<TenantId>;
/// Work that waits for the turn of its tenant and link.
pub(crate) type Turns<T> = turns::Turns<TenantId, T>;

/// A request and where its reply goes.
#[derive(Debug)]
pub(crate) struct Caller {
    pub peer: Arc<dyn Peer>,
    pub endpoint: EndpointId,
    pub request: rpc::Request,
    pub waiting: Waiting,
    /// The request's share of its sender's room, until it is served.
    pub place: Place,
}

impl Caller {
    /// Whose turn it is.
    pub fn turn(&self) -> Turn {
        Turn { party: self.waiting.tenant, link: self.peer.id().0 }
    }

    /// Replies. The node ignores a caller that is gone: the end of its link is an event.
    pub fn reply(&self, result: Result<&[u8], (ErrorKind, &str)>) {
        if let Err(error) = self.request.reply(&*self.peer, self.endpoint, result) {
            tracing::debug!(peer = self.peer.id().0, %error, "a reply could not be delivered");
        }
    }
}

/// A job that waits for a thread.
#[derive(Debug)]
struct QueuedJob {
    caller: Caller,
    job: Job,
    /// Accounts for its arguments until it has run.
    _kept: Option<Kept>,
}

/// A result that its caller has not taken.
#[derive(Debug)]
struct Untaken {
    peer: Arc<dyn Peer>,
    endpoint: EndpointId,
    /// Accounts for the result until it is taken.
    _kept: Kept,
}

#[derive(Debug, Default)]
struct Queues {
    soon: Turns<QueuedJob>,
    long: Turns<QueuedJob>,
    /// Changes whenever there may be something to do.
    arrivals: u64,
    stopping: bool,
}

impl Queues {
    fn of(&mut self, pace: Pace) -> &mut Turns<QueuedJob> {
        match pace {
            Pace::Long => &mut self.long,
            Pace::AtOnce | Pace::Soon => &mut self.soon,
        }
    }
}

/// The queues of work and the threads that process them.
pub(crate) struct Workers {
    core: Arc<Core>,
    registry: JobRegistry,
    /// Number of threads that run jobs; zero when the node is stepped.
    job_threads: usize,
    running: AtomicU64,
    /// Results that their callers have not taken yet.
    untaken: Mutex<Vec<Untaken>>,
    queues: Mutex<Queues>,
    arrived: Condvar,
}

impl Workers {
    pub fn new(core: Arc<Core>, registry: JobRegistry, job_threads: usize) -> Self {
        let running = AtomicU64::new(0);
        Self {
            core,
            registry,
            job_threads,
            running,
            untaken: Mutex::default(),
            queues: Mutex::default(),
            arrived: Condvar::new(),
        }
    }

    /// Wakes sleeping threads: there is work.
    pub fn wake(&self) {
        lock(&self.queues).arrivals += 1;
        self.arrived.notify_all();
    }

    pub fn stop(&self) {
        lock(&self.queues).stopping = true;
        self.arrived.notify_all();
    }

    /// Accepts a job: runs it now if it takes microseconds, otherwise queues it.
    pub fn accept(&self, caller: Caller, job: Job, kept: Option<Kept>) {
        let pace = self.registry.pace(&job);
        if pace == Pace::AtOnce {
            return self.run(&caller, &job, 1);
        }
        let tenant = caller.waiting.tenant;
        // A job counts as queued before a thread can take it, because that thread ends the count.
        self.core.with_state(|state| state.count(tenant, |figures| figures.queued_jobs += 1));
        let mut queues = lock(&self.queues);
        let (turn, weight) = (caller.turn(), caller.waiting.weight);
        queues.of(pace).push(turn, weight, QueuedJob { caller, job, _kept: kept });
        queues.arrivals += 1;
        drop(queues);
        self.arrived.notify_all();
    }

    /// Handles the end of a link: its waiting jobs are fenced, and nobody waits for them.
    pub fn link_ended(&self, turn: Turn) {
        let waited = {
            let mut queues = lock(&self.queues);
            let mut waited = queues.soon.forget(turn);
            waited.append(&mut queues.long.forget(turn));
            waited
        };
        for queued in &waited {
            self.core.with_state(|state| {
                state.job_ended(queued.job.id, false);
                state.count(turn.party, |figures| {
                    figures.queued_jobs -= 1;
                    figures.failed_jobs += 1;
                });
            });
        }
        self.wake();
    }

    /// Does a bit of upkeep. Returns false when there is nothing to do.
    pub fn upkeep(&self) -> bool {
        let ran = self.run_next(Pace::Soon);
        self.core.zero_slice() || ran
    }

    /// Runs a long job. False when none waits.
    pub fn run_job(&self) -> bool {
        self.run_next(Pace::Long)
    }

    fn run_next(&self, pace: Pace) -> bool {
        lock(&self.untaken).retain(|it| it.peer.is_alive() && it.peer.unsent(it.endpoint) > 0);
        let next = {
            let mut queues = lock(&self.queues);
            let turns = queues.of(pace);
            let may_run = |turn: Turn| self.core.with_state(|state| state.keeps_no_excess(turn.party));
            let next = turns.next(|turn, queued| has_room(&queued.caller) && may_run(turn));
            next.inspect(|(turn, _)| turns.charge(*turn, ADVANCE))
        };
        let Some((turn, queued)) = next else { return false };
        let count = |add: fn(&mut Figures)| self.core.with_state(|state| state.count(turn.party, add));
        count(|figures| {
            figures.queued_jobs -= 1;
            figures.running_jobs += 1;
        });
        let running = self.running.fetch_add(1, Ordering::Relaxed) as usize + 1;
        let threads = match pace {
            Pace::Long => (1 + self.job_threads).saturating_sub(running).max(1),
            Pace::AtOnce | Pace::Soon => 1,
        };
        let began = self.core.now();
        self.run(&queued.caller, &queued.job, threads);
        let took = self.core.now().saturating_sub(began);
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.core.with_state(|state| {
            state.count(turn.party, |figures| {
                figures.running_jobs -= 1;
                figures.busy_nanos += took;
            });
        });
        lock(&self.queues).of(pace).charge(turn, took.saturating_sub(ADVANCE));
        if self.core.has_zeroing() {
            self.wake();
        }
        true
    }

    /// Runs a job on this thread and up to `threads - 1` others, and replies.
    fn run(&self, caller: &Caller, job: &Job, threads: usize) {
        let memory = PinnedMemory::new(&self.core, job.id, threads);
        // A job that panics fails only its caller: the thread continues. What the job shares with others is behind
        // locks, and whole between any two statements.
        let result = catch_unwind(AssertUnwindSafe(|| self.registry.run(job, &memory)))
            .unwrap_or_else(|_| Err(JobError::new(ErrorKind::Io, "the job panicked, which is an error of the node")));
        let mut failed = 0;
        let (is_fenced, counts) = self.core.with_state(|state| {
            let is_fenced = !state.job_may_go_on(job.id);
            let counts = state.job_ended(job.id, result.is_ok());
            let moved = job.arguments.len() + result.as_ref().map_or(0, Vec::len);
            state.count(job.tenant, |figures| {
                *(if counts { &mut figures.completed_jobs } else { &mut figures.failed_jobs }) += 1;
                figures.moved_bytes += moved as u64;
                failed = figures.failed_jobs;
            });
            (is_fenced, counts)
        });
        match result {
            Ok(result) if counts => {
                let bytes = result.len() as u64;
                caller.reply(Ok(&JobDone { result: Rest(result) }.encode()));
                if !has_room(caller) {
                    let _kept = self.core.keep_result(job.tenant, bytes);
                    let (peer, endpoint) = (Arc::clone(&caller.peer), caller.endpoint);
                    lock(&self.untaken).push(Untaken { peer, endpoint, _kept });
                }
            }
            _ if lock(&self.queues).stopping => caller.reply(Err((ErrorKind::Unavailable, "the node stops"))),
            Err(error) if !is_fenced => {
                if is_told(failed) {
                    let (Job { shard, kind, .. }, attempt) = (job, attempt::shown(job.attempt));
                    tracing::warn!(%shard, attempt, kind, failed, error = ?error.message, "a job failed");
                }
                caller.reply(Err((error.kind, &error.message)));
            }
            Ok(_) | Err(_) => caller.reply(Err((ErrorKind::Fenced, "the job's session or shard epoch ended"))),
        }
    }

    /// The body of a thread that does upkeep.
    pub fn upkeep_thread(&self) {
        self.thread(Self::upkeep);
    }

    /// The body of a thread that runs long jobs.
    pub fn job_thread(&self) {
        self.thread(Self::run_job);
    }

    /// Works for as long as there is work. The thread gives way to those that answer calls, and where the node shares a
    /// process with its user, also to the user.
    fn thread(&self, work: impl Fn(&Self) -> bool) {
        give_way();
        let mut cpu = ThreadTime::default();
        loop {
            let seen = lock(&self.queues).arrivals;
            while !lock(&self.queues).stopping && work(self) {
                cpu.report(&self.core.cpu_nanos);
                yield_now();
            }
            cpu.report(&self.core.cpu_nanos);
            let queues = lock(&self.queues);
            if queues.stopping {
                return;
            }
            if queues.arrivals == seen {
                drop(self.arrived.wait_timeout(queues, PATIENCE).unwrap_or_else(PoisonError::into_inner));
            }
        }
    }
}

/// Bytes of replies that an endpoint may leave unread and still have its next call served. A tenant may have hundreds of
/// endpoints.
const MOST_UNSENT_BYTES: usize = 64 << 10;

/// Whether the caller takes its replies.
pub(crate) fn has_room(caller: &Caller) -> bool {
    caller.peer.unsent(caller.endpoint) < MOST_UNSENT_BYTES
}

/// Refuses a call.
pub(crate) fn refuse(core: &Core, caller: &Caller, error: &CallError) {
    core.count(caller.peer.id(), |figures| {
        figures.calls += 1;
        figures.refused_calls += 1;
    });
    caller.reply(Err((error.kind, &error.message)));
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
