//! `CLIENT PAUSE`: commands wait for a while.
//!
//! A client whose command is held is not read further. Its thread looks again when the pause is over, or when a client
//! ends it.

use crate::state::clients::Client;
use forebay_env::Nanos;
use forebay_env::sync::{Mutex, lock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether commands wait, which ones, and for how long.
#[derive(Debug, Default)]
pub struct Pause {
    /// Read without the lock, as there is hardly ever a pause.
    is_on: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    until: Nanos,
    is_of_all: bool,
    held: Vec<Arc<Client>>,
}

impl Pause {
    /// Makes commands wait until a time: all commands, or those that write. An existing pause that lasts longer
    /// continues.
    pub fn begin(&self, now: Nanos, until: Nanos, is_of_all: bool) {
        let mut state = lock(&self.state);
        let goes_on = self.is_on() && now < state.until;
        state.is_of_all = is_of_all || (goes_on && state.is_of_all);
        state.until = if goes_on { until.max(state.until) } else { until };
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Whether there may be a pause.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Returns until when a command of a client must wait.
    pub fn hold(&self, client: &Arc<Client>, writes: bool, now: Nanos) -> Option<Nanos> {
        let mut state = lock(&self.state);
        // The pause may have been ended since the caller saw it.
        if !self.is_on() || now >= state.until {
            self.is_on.store(false, Ordering::Relaxed);
            state.held.clear();
            return None;
        }
        if !state.is_of_all && !writes {
            return None;
        }
        state.held.push(Arc::clone(client));
        Some(state.until)
    }

    /// Ends the pause.
    pub fn end(&self) {
        let mut state = lock(&self.state);
        self.is_on.store(false, Ordering::Relaxed);
        state.held.drain(..).for_each(|client| client.release());
    }
}
