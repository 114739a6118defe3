//! The threads that flush and compact.
//!
//! Each thread looks for the most urgent work, does it without the lock, and looks again. Memtables
//! are flushed one at a time, oldest first, so level 0 stays in order; one compaction runs beside
//! that.

use crate::picker::{self, Pick};
use crate::shard::{Shard, State, View};
use crate::version::LiveVersion;
use crate::{Error, Result};
use forebay_base::{ErrorKind, SequenceNumber};
use forebay_env::thread::JoinHandle;
use forebay_proto::calls::MAX_RANGES;
use std::sync::Arc;

/// Something to do.
enum Task {
    Flush(Arc<crate::memory::Buffer>),
    Compact(Arc<LiveVersion>, Pick),
}

/// Starts the threads.
///
/// # Errors
/// `Io` when the system refuses.
pub(crate) fn start(shard: &Arc<Shard>) -> Result<Vec<JoinHandle<()>>> {
    (0..shard.options.background_threads)
        .map(|i| {
            let shard = Arc::clone(shard);
            forebay_env::thread::spawn(format!("forebay-bg-{i}"), move || run(&shard))
                .map_err(|error| Error::new(ErrorKind::Io, format!("starting a background thread: {error}")))
        })
        .collect()
}

fn run(shard: &Shard) {
    let mut state = shard.lock();
    loop {
        if state.closing {
            return;
        }
        let Some(task) = shard.next_task(&mut state) else {
            if shard.watch_is_due() {
                drop(state);
                shard.watch_owner();
                state = shard.lock();
            }
            if shard.remote.has_frees() {
                drop(state);
                shard.remote.send_frees(1);
                // What happened meanwhile is to be looked at before anybody sleeps.
                state = shard.lock();
            } else {
                state = shard.wait(state);
            }
            continue;
        };
        drop(state);
        let result = shard.carry_out(&task);
        shard.remote.send_frees(MAX_RANGES);
        state = shard.lock();
        match task {
            Task::Flush(_) => state.flushing = false,
            Task::Compact(..) => state.compacting = false,
        }
        if let Err(error) = result {
            // A step of a manual compaction may be what failed: it is taken again.
            if let Some(manual) = &mut state.manual {
                manual.level = 0;
            }
            drop(state);
            shard.failed(error);
            state = shard.lock();
        }
        shard.notify();
    }
}

impl Shard {
    fn next_task(&self, state: &mut State) -> Option<Task> {
        if state.failure.is_some() || self.options.clock.now() < state.retry_at {
            return None;
        }
        let view = Arc::clone(&self.view.load());
        // When the memory node is full, a compaction may make the room that a flush needs.
        if state.full.is_some() {
            return self.next_compaction(&view, state).or_else(|| self.next_flush(&view, state));
        }
        self.next_flush(&view, state).or_else(|| self.next_compaction(&view, state))
    }

    fn next_flush(&self, view: &View, state: &mut State) -> Option<Task> {
        if state.flushing {
            return None;
        }
        let oldest = view.sealed.last()?;
        state.flushing = true;
        Some(Task::Flush(Arc::clone(oldest)))
    }

    fn next_compaction(&self, view: &View, state: &mut State) -> Option<Task> {
        if state.compacting {
            return None;
        }
        let version = &view.version.version;
        let pick = match &mut state.manual {
            Some(manual) => {
                let pick = picker::pick_manual(version, &self.options, manual);
                if pick.is_none() {
                    state.manual = None;
                    self.notify();
                }
                pick
            }
            None => None,
        };
        let pick = pick.or_else(|| picker::pick(version, &self.options, &mut state.cursors, state.full.is_some()))?;
        state.compacting = true;
        Some(Task::Compact(Arc::clone(&view.version), pick))
    }

    fn carry_out(&self, task: &Task) -> Result<()> {
        match task {
            Task::Flush(buffer) => self.flush(buffer).map_err(|error| error.during("flushing a memtable")),
            Task::Compact(version, pick) => self.compact(version, pick).map_err(|error| error.during("compacting")),
        }
    }

    /// Whether nothing is left to be flushed or compacted.
    fn is_idle(&self, state: &State, what: Idle) -> bool {
        let view = Arc::clone(&self.view.load());
        match what {
            Idle::FlushedUpTo(number) => view.sealed.iter().all(|buffer| buffer.memtable.base() >= number),
            Idle::Quiet => {
                view.sealed.is_empty()
                    && !state.flushing
                    && !state.compacting
                    && state.manual.is_none()
                    && picker::pick(&view.version.version, &self.options, &mut state.cursors.clone(), false).is_none()
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
            if let Some(failure) = state.failure.as_ref().or(state.full.as_ref()) {
                return Err(failure.clone());
            }
            if state.closing {
                return Err(Error::closed());
            }
            if self.is_idle(&state, what) {
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
