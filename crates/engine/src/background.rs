//! The threads that flush and compact, shared by all shards.
//!
//! ```text
//!   loop   a flush of any shard, else a compaction of any shard, else sleep until the bell rings
//! ```
//!
//! Each look begins at another shard, so that none is left out. Of a shard, memtables are flushed by one
//! flush at a time, oldest first, so its level 0 stays in order; compactions that share no table run beside
//! that and beside each other. Where there are several threads, compactions leave one to flushes. A shard whose memory node is full has
//! its compactions done first: they may make the room that its flush needs.
//!
//! A shard that failed has no more work; the others go on.

use crate::flush::joined;
use crate::manual::Step;
use crate::memory::Buffer;
use crate::picker::{Cursors, Pick, Picker};
use crate::room::PATIENCE_NANOS;
use crate::shard::{ManualCompaction, RETRY_PAUSE, Shard, State, View};
use crate::version::LiveVersion;
use crate::{Error, Result};
use forebay_base::{ErrorKind, KeyOrder, SequenceNumber};
use forebay_env::sync::{Condvar, Mutex, lock};
use forebay_env::thread::JoinHandle;
use forebay_proto::calls::MAX_RANGES;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Longest sleep without a look for work.
const NAP: Duration = Duration::from_millis(100);

/// Rings when there may be work.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rings: Mutex<u64>,
    rung: Condvar,
    /// Without threads: a step is under way, and what it waits for may have somebody ask for another.
    stepping: AtomicBool,
}

impl Bell {
    /// Whether a step is under way, in a database without threads.
    pub(crate) fn is_stepping(&self) -> bool {
        self.stepping.load(Ordering::Relaxed)
    }

    /// Says that there may be work.
    pub(crate) fn ring(&self) {
        *lock(&self.rings) += 1;
        self.rung.notify_all();
    }

    /// How often it rang: to be asked before looking for work.
    fn rings(&self) -> u64 {
        *lock(&self.rings)
    }

    /// Sleeps, unless it rang since; not for long.
    fn sleep(&self, seen: u64) {
        let rings = lock(&self.rings);
        if *rings == seen {
            drop(self.rung.wait_timeout(rings, NAP).unwrap_or_else(PoisonError::into_inner));
        }
    }
}

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
    bell: Arc<Bell>,
    stopped: AtomicBool,
    /// Where the next look begins.
    turn: AtomicUsize,
    compactions: AtomicUsize,
    max_compactions: usize,
}

/// Something to do.
enum Task {
    Flush(Vec<Arc<Buffer>>),
    Compact { version: Arc<LiveVersion>, pick: Pick, step_of: Option<StepOf> },
}

/// The compaction that somebody asked for and that a task is a step of: its number, and how it stood before.
struct StepOf {
    number: u64,
    before: ManualCompaction,
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
    /// Starts `threads` threads for the shards, which ring `bell`.
    ///
    /// # Errors
    /// `Io` when the system refuses.
    pub(crate) fn start(shards: Arc<[Arc<Shard>]>, bell: Arc<Bell>, threads: usize) -> Result<Self> {
        let crew = Arc::new(Crew {
            shards,
            bell,
            stopped: AtomicBool::new(false),
            turn: AtomicUsize::new(0),
            compactions: AtomicUsize::new(0),
            max_compactions: threads.saturating_sub(1).max(1),
        });
        let background = Self { crew: Arc::clone(&crew), threads: Mutex::default() };
        for i in 0..threads {
            let crew = Arc::clone(&crew);
            match forebay_env::thread::spawn(format!("forebay-bg-{i}"), move || crew.run()) {
                Ok(thread) => lock(&background.threads).push(thread),
                Err(error) => {
                    background.stop();
                    return Err(Error::new(ErrorKind::Io, format!("starting a background thread: {error}")));
                }
            }
        }
        Ok(background)
    }

    /// Ends the threads, each after what it does now.
    pub(crate) fn stop(&self) {
        self.crew.stopped.store(true, Ordering::Relaxed);
        self.crew.bell.ring();
        for thread in lock(&self.threads).drain(..) {
            if thread.join().is_err() {
                tracing::error!("a background thread panicked");
            }
        }
    }
}

impl Crew {
    fn run(&self) {
        loop {
            let rings = self.bell.rings();
            if self.stopped.load(Ordering::Relaxed) {
                return;
            }
            if let Some((shard, task)) = self.next_task() {
                let is_compaction = matches!(task, Task::Compact { .. });
                shard.work_on(task);
                if is_compaction {
                    self.compactions.fetch_sub(1, Ordering::Relaxed);
                    self.bell.ring();
                }
            } else if !self.keep_house() {
                self.bell.sleep(rings);
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

/// Ends the work on a shard that panics: nobody is to wait for what it never ends.
struct FailsWithPanic<'a>(&'a Shard);

impl Drop for FailsWithPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0
                .failed(Error::new(ErrorKind::Corrupt, "background work panicked: close the database, and report it"));
        }
    }
}

/// Ends a step of a database without threads, also when what runs beside it panics.
struct StepEnds<'a>(&'a AtomicBool);

impl Drop for StepEnds<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl State {
    fn begin_compaction(&mut self, pick: &Pick) {
        self.compactions += 1;
        self.output_bytes += pick.output_bytes();
        self.busy.extend(pick.inputs.iter().map(|(_, table)| table.id));
    }

    fn end_compaction(&mut self, pick: &Pick) {
        self.compactions -= 1;
        self.output_bytes -= pick.output_bytes();
        for (_, table) in &pick.inputs {
            self.busy.remove(&table.id);
        }
    }

    /// Has a step that was not done be taken again, if the compaction that it belongs to still goes on.
    fn take_again(&mut self, order: KeyOrder, step_of: Option<StepOf>) {
        if let (Some(manual), Some(StepOf { number, before })) = (&mut self.manual, step_of)
            && number == self.manuals
        {
            manual.go_back(order, before);
        }
    }
}

impl Shard {
    /// Does what is most urgent in this shard, if anything: for databases without threads. False when
    /// there was nothing to do.
    pub(crate) fn background_step(&self) -> bool {
        if self.bell.stepping.swap(true, Ordering::Relaxed) {
            return false;
        }
        let _ends = StepEnds(&self.bell.stepping);
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

    /// What is to be done now and then beside flushes and compactions: asks whether another process
    /// took the shard over, sends frees that wait to be sent, looks whether the memory node has room again, and
    /// makes memory for memtables ahead. False when nothing was due.
    fn keep_house(&self) -> bool {
        let watches = self.watch_is_due();
        if watches {
            self.watch_owner();
        }
        let frees = self.remote.has_frees();
        if frees {
            self.remote.send_frees(1);
        }
        if self.is_room_short() {
            self.measure_room();
        }
        let prepares = self.prepare_memtable();
        watches || frees || prepares
    }

    fn next_task(&self, round: Round) -> Option<Task> {
        let mut state = self.lock();
        if state.closing || state.failure.is_some() || self.options.clock.now() < state.retry_at {
            return None;
        }
        let is_full = state.full.is_some();
        let view = Arc::clone(&self.view.load());
        match round {
            Round::Flushes if is_full => None,
            Round::FlushesWhenFull if !is_full => None,
            Round::FlushesWhenFull if state.flush_again_at.is_some_and(|at| self.options.clock.now() < at) => None,
            Round::Flushes | Round::FlushesWhenFull => self.next_flush(&view, &mut state),
            Round::Compactions => self.next_compaction(&view, &mut state),
        }
    }

    fn next_flush(&self, view: &View, state: &mut State) -> Option<Task> {
        if state.flushing {
            return None;
        }
        // Short of memory each is flushed by itself.
        let most_bytes =
            if state.room.is_plenty() && state.full.is_none() { self.options.target_table_bytes } else { 0 };
        let buffers = joined(&view.sealed, most_bytes);
        if buffers.is_empty() {
            return None;
        }
        state.flushing = true;
        Some(Task::Flush(buffers.to_vec()))
    }

    fn next_compaction(&self, view: &View, state: &mut State) -> Option<Task> {
        let crossings = |table| view.version.crossings(table);
        let is_hopeless = |state: &mut State| {
            if state.is_short() && state.compactions == 0 {
                let now = self.options.clock.now();
                let since = *state.hopeless_since.get_or_insert(now);
                // What found no room may find some now: readers have let go of theirs, perhaps. It is hopeless still,
                // until something has succeeded.
                if now.saturating_sub(since) >= PATIENCE_NANOS && now >= state.large_from {
                    state.too_large.clear();
                    state.large_from = now.saturating_add(PATIENCE_NANOS);
                }
            }
        };
        let busy = state.busy.union(&state.too_large).copied().collect();
        let room = state.room_for_compactions();
        let picker = Picker::new(&view.version.version, &self.options, &busy, &crossings, room);
        // What somebody asked for comes first, but without room what may make some: a step of the other may need a lot.
        let pick = |state: &mut State| Some((self.pick(&picker, &mut state.cursors)?, None));
        let picked = match room.is_none() {
            true => pick(state).or_else(|| self.next_step(&picker, state)),
            false => self.next_step(&picker, state).or_else(|| pick(state)),
        };
        let Some((pick, step_of)) = picked else {
            is_hopeless(state);
            return None;
        };
        // Beside others only what there is room for; alone it may try.
        let bytes = pick.output_bytes();
        if state.compactions > 0 && state.output_bytes.saturating_add(bytes) > room.scratch_bytes {
            state.take_again(self.options.key_order, step_of);
            return None;
        }
        state.room.take_outputs(bytes, self.options.write_buffer_bytes as u64);
        state.begin_compaction(&pick);
        Some(Task::Compact { version: Arc::clone(&view.version), pick, step_of })
    }

    /// The next step of the compaction that somebody asked for, if one goes on and can.
    fn next_step(&self, picker: &Picker<'_>, state: &mut State) -> Option<(Pick, Option<StepOf>)> {
        let manual = state.manual.as_mut()?;
        let before = manual.clone();
        match picker.pick_manual(manual) {
            Step::Do(step) => Some((step, Some(StepOf { number: state.manuals, before }))),
            Step::Wait => None,
            Step::Done => {
                state.manual = None;
                self.notify();
                None
            }
        }
    }

    fn work_on(&self, task: Task) {
        let _told = FailsWithPanic(self);
        // What a task names is freed before anybody hears that it is done.
        let (result, compacted) = match task {
            Task::Flush(buffers) => (self.flush(&buffers).map_err(|error| error.during("flushing memtables")), None),
            Task::Compact { version, pick, step_of } => {
                let start = self.options.clock.now();
                let compacted = self.compact(version, &pick);
                if compacted.is_ok() && pick.inputs.iter().any(|(level, _)| *level == 0) {
                    self.pace.compacted(self.options.clock.now().saturating_sub(start));
                }
                (compacted.map_err(|error| error.during("compacting")), Some((pick, step_of)))
            }
        };
        self.view.reclaim();
        self.remote.send_frees(MAX_RANGES);
        let mut state = self.lock();
        let is_full = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Full);
        match compacted {
            None => {
                state.flushing = false;
                if is_full {
                    state.flush_again_at = Some(self.options.clock.now().saturating_add(RETRY_PAUSE));
                }
            }
            Some((pick, step_of)) => {
                state.end_compaction(&pick);
                if is_full {
                    state.too_large.extend(pick.chosen());
                }
                if result.is_err() {
                    state.take_again(self.options.key_order, step_of);
                }
            }
        }
        drop(state);
        if let Err(error) = result {
            self.failed(error);
        }
        self.measure_room();
        self.notify();
    }

    /// What to compact without being asked: nothing during a bulk load, unless memory is short.
    fn pick(&self, picker: &Picker<'_>, cursors: &mut Cursors) -> Option<Pick> {
        if self.options.bulk_load && !picker.room.is_none() {
            return None;
        }
        picker.pick(cursors)
    }

    /// Whether nothing is left to be flushed or compacted.
    fn is_idle(&self, state: &State, what: Idle) -> bool {
        let view = Arc::clone(&self.view.load());
        match what {
            Idle::FlushedUpTo(number) => view.sealed.iter().all(|buffer| buffer.memtable.base() >= number),
            Idle::Quiet => {
                view.sealed.is_empty()
                    && !state.flushing
                    && state.compactions == 0
                    && state.manual.is_none()
                    && self
                        .pick(
                            &Picker::new(
                                &view.version.version,
                                &self.options,
                                &state.busy,
                                &|table| view.version.crossings(table),
                                state.room_for_compactions(),
                            ),
                            &mut state.cursors.clone(),
                        )
                        .is_none()
            }
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
                // What the last change replaced is not to wait for the next one.
                self.view.reclaim();
                return Ok(());
            }
            state = self.wait(state);
        }
    }
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idle {
    /// No sealed memtable holds this number or an earlier one: it need not wait for what others go on
    /// writing.
    FlushedUpTo(SequenceNumber),
    /// Nothing is left to be compacted either.
    Quiet,
}
