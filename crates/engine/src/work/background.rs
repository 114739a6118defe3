//! The threads that flush and compact, shared by all shards.
//!
//! ```text
//!   loop   a flush of any shard, else a compaction of any shard, else sleep until the bell rings
//! ```
//!
//! Each look for work begins at another shard, so that none is left out. A shard's memtables are flushed by one flush
//! at a time, oldest first, so its level 0 stays in order. Compactions that share no table run beside that and beside
//! each other. If there are several threads, compactions leave one to flushes. If a shard's memory node is full, its
//! compactions run first: they may make the room that its flush needs.
//!
//! A shard that failed has no more work; the others continue. So it is if its work panics, for example in a merge
//! operator of the program: the thread goes on.
//!
//! Logs have a thread of their own. It makes parts of logs in memory ahead: a writer that finds no part ready waits for
//! it, and flushes and compactions take longer than a part lasts. It also brings tables to storage, which then need no
//! log.

use crate::plan::planner::{Command, Compaction, Planner};
use crate::terms::{Error, Result};
use crate::tree::buffer::Buffer;
use crate::tree::version::LiveVersion;
use crate::work::bell::Bell;
use crate::work::common::Common;
use crate::work::shard::Shard;
use forebay_base::{ErrorKind, SequenceNumber};
use forebay_env::sync::{Mutex, lock};
use forebay_env::thread::JoinHandle;
use forebay_proto::calls::MAX_RANGES;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The threads of a database.
#[derive(Debug)]
pub(crate) struct Background {
    crew: Arc<Crew>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What the threads share.
#[derive(Debug)]
struct Crew {
    shards: Arc<[Arc<Shard>]>,
    common: Arc<Common>,
    stopped: AtomicBool,
    /// Where the next look begins.
    turn: AtomicUsize,
    compactions: AtomicUsize,
    max_compactions: usize,
    /// Threads that flush or compact now.
    working: AtomicUsize,
}

/// Something to do, with what it is done to.
enum Task {
    Flush(Vec<Arc<Buffer>>),
    Compact(Arc<LiveVersion>, Compaction),
}

impl Task {
    /// The task's span in a trace. Its numbers are signed, as those of OpenTelemetry are.
    fn span(&self) -> tracing::Span {
        match self {
            Self::Flush(buffers) => {
                tracing::debug_span!(target: "forebay_trace", "flush", memtables = buffers.len() as i64)
            }
            Self::Compact(_, compaction) => {
                let (level, tables) = (compaction.pick.output_level as i64, compaction.pick.inputs.len() as i64);
                tracing::debug_span!(target: "forebay_trace", "compaction", level, tables)
            }
        }
    }
}

/// In which order work is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    Flushes,
    Compactions,
    /// Flushes of shards whose memory node is full.
    FlushesWhenFull,
}

impl Round {
    const ALL: [Self; 3] = [Self::Flushes, Self::Compactions, Self::FlushesWhenFull];
}

impl Background {
    /// Starts `threads` threads for the shards, which share `common`.
    ///
    /// # Errors
    /// `Io` when the system refuses.
    pub(crate) fn start(shards: Arc<[Arc<Shard>]>, common: Arc<Common>, threads: usize) -> Result<Self> {
        let crew = Arc::new(Crew {
            shards,
            common,
            stopped: AtomicBool::new(false),
            turn: AtomicUsize::new(0),
            compactions: AtomicUsize::new(0),
            max_compactions: threads.saturating_sub(1).max(1),
            working: AtomicUsize::new(0),
        });
        let background = Self { crew: Arc::clone(&crew), threads: Mutex::default() };
        for i in 0..threads {
            background.add(format!("forebay-bg-{i}"), Crew::run)?;
        }
        if threads > 0 && crew.shards.iter().any(|shard| shard.tends_log()) {
            background.add("forebay-tend".to_owned(), Crew::tend_logs)?;
        }
        Ok(background)
    }

    /// Starts a thread. When that fails, all of them end.
    fn add(&self, name: String, run: fn(&Crew)) -> Result<()> {
        let crew = Arc::clone(&self.crew);
        match forebay_env::thread::spawn(name, move || run(&crew)) {
            Ok(thread) => lock(&self.threads).push(thread),
            Err(error) => {
                self.stop();
                return Err(Error::new(ErrorKind::Io, format!("starting a background thread: {error}")));
            }
        }
        Ok(())
    }

    /// Threads that flush or compact now.
    pub(crate) fn working(&self) -> usize {
        self.crew.working.load(Ordering::Relaxed)
    }

    /// Ends the threads, each after its current work.
    pub(crate) fn stop(&self) {
        self.crew.stopped.store(true, Ordering::Relaxed);
        self.crew.common.bell.ring();
        self.crew.common.log_bell.ring();
        for thread in lock(&self.threads).drain(..) {
            if thread.join().is_err() {
                tracing::error!("a background thread panicked");
            }
        }
    }
}

impl Crew {
    fn run(&self) {
        self.step_when_rung(&self.common.bell, || {
            let Some((shard, task)) = self.next_task() else { return self.keep_house() };
            let is_compaction = matches!(task, Task::Compact(..));
            self.working.fetch_add(1, Ordering::Relaxed);
            shard.work_on(task);
            self.working.fetch_sub(1, Ordering::Relaxed);
            if is_compaction {
                self.compactions.fetch_sub(1, Ordering::Relaxed);
                self.common.bell.ring();
            }
            true
        });
    }

    fn tend_logs(&self) {
        if self.shards.iter().all(|shard| shard.lags()) {
            // Nobody waits for tables to reach storage.
            forebay_env::thread::give_way();
        }
        self.step_when_rung(&self.common.log_bell, || self.shards.iter().filter(|shard| shard.tend_log()).count() > 0);
    }

    /// Steps until all is stopped, and sleeps after a step that found nothing to do.
    fn step_when_rung(&self, bell: &Bell, step: impl Fn() -> bool) {
        loop {
            let rings = bell.rings();
            if self.stopped.load(Ordering::Relaxed) {
                return;
            }
            if !step() {
                bell.sleep(rings);
            }
        }
    }

    fn next_task(&self) -> Option<(&Shard, Task)> {
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % self.shards.len().max(1);
        let (head, tail) = self.shards.split_at(first);
        let in_turn = || tail.iter().chain(head);
        Round::ALL.into_iter().find_map(|round| {
            if round == Round::Compactions {
                return self.next_compaction(in_turn());
            }
            in_turn().find_map(|shard| Some((&**shard, shard.next_task(round)?)))
        })
    }

    fn next_compaction<'a>(&self, mut shards: impl Iterator<Item = &'a Arc<Shard>>) -> Option<(&'a Shard, Task)> {
        if self.compactions.fetch_add(1, Ordering::Relaxed) < self.max_compactions
            && let Some(found) = shards.find_map(|shard| Some((&**shard, shard.next_task(Round::Compactions)?)))
        {
            return Some(found);
        }
        self.compactions.fetch_sub(1, Ordering::Relaxed);
        None
    }

    /// As [`Shard::keep_house`], for all shards.
    fn keep_house(&self) -> bool {
        self.shards.iter().filter(|shard| shard.keep_house()).count() > 0
    }
}

/// Ends the work on a shard when its thread panics, so that nobody waits for what never ends.
struct FailsWithPanic<'a>(&'a Shard);

impl Drop for FailsWithPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed(panicked());
        }
    }
}

fn panicked() -> Error {
    Error::panicked("flushes or compacts")
}

/// Ends a step of a database without threads, even when the step panics.
struct StepEnds<'a>(&'a AtomicBool);

impl Drop for StepEnds<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Shard {
    /// Does what is most urgent in this shard, if anything. For databases without threads. False when there was nothing
    /// to do.
    pub(crate) fn background_step(&self) -> bool {
        if self.common.bell.stepping.swap(true, Ordering::Relaxed) {
            return false;
        }
        let _ends = StepEnds(&self.common.bell.stepping);
        self.step()
    }

    fn step(&self) -> bool {
        match Round::ALL.into_iter().find_map(|round| self.next_task(round)) {
            Some(task) => {
                self.work_on(task);
                true
            }
            None => self.keep_house(),
        }
    }

    /// Does occasional work beside flushes and compactions: asks whether another process took the shard over, sends
    /// frees that wait to be sent, deletes logs that are not needed, checks whether the memory node has room again,
    /// tends the log, and makes memory for memtables ahead. False when nothing was due.
    fn keep_house(&self) -> bool {
        let watches = self.watch_is_due();
        if watches {
            self.watch_owner();
        }
        let has_no_threads = self.tree.options.background_threads == 0;
        let mends = has_no_threads && self.mend();
        let frees = self.tree.remote.has_frees();
        if frees {
            self.tree.remote.send_frees(1);
        }
        let deletes = self.delete_logs();
        self.watch_room();
        let tends = has_no_threads && self.tend_log();
        let shortens = self.shorten_log();
        let allocates = self.tree.prepare_memtable();
        watches || mends || frees || deletes || tends || shortens || allocates
    }

    fn next_task(&self, round: Round) -> Option<Task> {
        let mut state = self.lock();
        if self.tree.is_closed() {
            return None;
        }
        let view = Arc::clone(&self.tree.view.load());
        let was_asked = state.is_asked();
        let command = self.with_scene(&view, |scene, ledger| match round {
            Round::Flushes => state.next_flush(scene, false),
            Round::Compactions => state.next_compaction(scene, ledger),
            Round::FlushesWhenFull => state.next_flush(scene, true),
        });
        if was_asked && !state.is_asked() {
            self.notify();
        }
        Some(match command? {
            Command::Flush { memtables } => {
                let oldest = view.sealed.len().saturating_sub(memtables);
                Task::Flush(view.sealed.get(oldest..).unwrap_or_default().to_vec())
            }
            Command::Compact(compaction) => Task::Compact(Arc::clone(&view.version), compaction),
        })
    }

    fn work_on(&self, task: Task) {
        let _told = FailsWithPanic(self);
        let _traced = task.span().entered();
        let mut taken = 0;
        // What a task names is freed before anybody hears that it is done.
        let (result, compacted) = match task {
            Task::Flush(buffers) => {
                (self.caught(|| self.flush(&buffers)).map_err(|error| error.during("flushing memtables")), None)
            }
            Task::Compact(version, mut compaction) => {
                let start = self.tree.options.clock.now();
                let compacted = self.caught(|| self.compact(version, &compaction.pick, &mut compaction.reservation));
                taken = compacted.as_ref().copied().unwrap_or(0);
                if compacted.is_ok() && compaction.pick.merges_level0() {
                    self.pace.compacted(self.tree.options.clock.now().saturating_sub(start));
                }
                (compacted.map(drop).map_err(|error| error.during("compacting")), Some(compaction))
            }
        };
        self.tree.view.reclaim();
        self.tree.remote.send_frees(MAX_RANGES);
        let failed = result.as_ref().err();
        // Nobody waits for settling: a shard that finds no room for it is fine as it is.
        let is_full = failed.is_some_and(|error| error.kind() == ErrorKind::Full);
        let is_in_vain = is_full && compacted.as_ref().is_some_and(Compaction::settles);
        let mut state = self.lock();
        match compacted {
            None => state.flushed(failed.is_some_and(Error::is_of_full_memory), self.tree.options.clock.now()),
            Some(compaction) => {
                self.common.ledger().end(self.holder, compaction.reservation, taken);
                state.compacted(compaction, failed, self.tree.options.key_order);
            }
        }
        drop(state);
        match result {
            Err(error) if is_in_vain => tracing::debug!(%error, "the shard does not settle"),
            Err(error) => self.failed(error),
            Ok(()) => {}
        }
        self.measure_room();
        self.notify();
    }

    /// Does work. If it panics in a thread of the database, that is an error: what was reserved for it is given back,
    /// and the thread, which may be the only one, goes on with other shards.
    fn caught<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        match self.tree.options.background_threads {
            0 => work(),
            _ => catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(panicked())),
        }
    }

    /// Whether nothing is left to be flushed or compacted.
    fn is_idle(&self, state: &Planner, what: Idle) -> bool {
        let view = Arc::clone(&self.tree.view.load());
        match what {
            Idle::FlushedUpTo(number) => view.sealed.iter().all(|buffer| buffer.memtable.base() >= number),
            Idle::Quiet => self.with_scene(&view, |scene, _| state.is_quiet(scene)),
        }
    }

    /// Waits until there is nothing left to do.
    ///
    /// # Errors
    /// The failure of background work; `Full` when it waits for memory; `Closed`.
    pub(crate) fn wait_idle(&self, what: Idle) -> Result<()> {
        let mut state = self.lock();
        loop {
            match what {
                Idle::FlushedUpTo(_) => self.check_running(&state)?,
                Idle::Quiet => self.check_compacting(&state)?,
            }
            if self.is_idle(&state, what) {
                // What the last change replaced must not wait for the next change.
                self.tree.view.reclaim();
                return Ok(());
            }
            state = self.wait(state);
        }
    }
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idle {
    /// No sealed memtable holds this number or an earlier one. This does not wait for what others keep writing.
    FlushedUpTo(SequenceNumber),
    /// Nothing is left to be compacted either.
    Quiet,
}
