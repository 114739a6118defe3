//! What is done once in a while, by a thread of its own.

use crate::terms::{Error, Result};
use forebay_base::ErrorKind;
use forebay_env::sync::{Condvar, Mutex, lock};
use forebay_env::thread::{JoinHandle, spawn};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// A thread that does something at intervals until it is stopped.
#[derive(Debug)]
pub(crate) struct Ticker {
    stop: Arc<Stop>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Ticker {
    /// Calls `tick` every `interval`, in a thread of this name.
    ///
    /// # Errors
    /// `Io` when the system cannot start a thread.
    pub(crate) fn start(name: &str, interval: Duration, tick: impl Fn() + Send + 'static) -> Result<Self> {
        let stop = Arc::new(Stop::default());
        let seen = Arc::clone(&stop);
        let run = move || {
            while seen.sleep(interval) {
                tick();
            }
        };
        let thread = spawn(name.to_owned(), run);
        let thread = thread.map_err(|error| Error::new(ErrorKind::Io, format!("starting a thread: {error}")))?;
        Ok(Self { stop, thread: Mutex::new(Some(thread)) })
    }

    /// Stops the thread after its current work.
    pub(crate) fn stop(&self) {
        *lock(&self.stop.stopped) = true;
        self.stop.changed.notify_all();
        let thread = lock(&self.thread).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("a thread that works at intervals panicked");
        }
    }
}

impl Stop {
    /// Sleeps; returns whether to go on.
    fn sleep(&self, pause: Duration) -> bool {
        let stopped = lock(&self.stopped);
        if *stopped {
            return false;
        }
        !*self.changed.wait_timeout(stopped, pause).unwrap_or_else(PoisonError::into_inner).0
    }
}
