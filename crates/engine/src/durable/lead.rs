//! Group commit: of all who wait for the same thing, one does it for all.
//!
//! Whoever comes first is the *leader*. Whoever comes meanwhile waits, and the next leader does for all of them what the
//! first one did not. Nobody has to be woken between a write and its round trip.

use crate::terms::Result;
use forebay_env::sync::{Condvar, Mutex, MutexGuard, lock};
use std::sync::PoisonError;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Lead {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Whether somebody leads.
    leads: bool,
    /// Threads that wait for the end of a lead. To wake nobody would cost a system call too.
    waiting: usize,
}

/// Ends the lead of whoever leads, also when that fails.
struct Leader<'a>(&'a Lead);

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.leads = false;
        let waiting = state.waiting;
        drop(state);
        if waiting > 0 {
            self.0.ended.notify_all();
        }
    }
}

impl Lead {
    /// Returns when `is_reached`. Until then leads, with `step`, or waits for who does, and calls `waits` first.
    ///
    /// # Errors
    /// Those of a step that this call led.
    pub(crate) fn reach(
        &self,
        is_reached: impl Fn() -> bool,
        waits: impl Fn(),
        step: impl Fn() -> Result<()>,
    ) -> Result<()> {
        while !is_reached() {
            let mut state = lock(&self.state);
            if state.leads {
                waits();
                drop(self.wait(state));
                continue;
            }
            state.leads = true;
            drop(state);
            let _leader = Leader(self);
            step()?;
        }
        Ok(())
    }

    /// Runs `body` while nobody else leads.
    pub(crate) fn alone<T>(&self, body: impl FnOnce() -> T) -> T {
        let mut state = lock(&self.state);
        while state.leads {
            state = self.wait(state);
        }
        state.leads = true;
        drop(state);
        let _leader = Leader(self);
        body()
    }

    fn wait<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.waiting += 1;
        let mut state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state
    }
}
