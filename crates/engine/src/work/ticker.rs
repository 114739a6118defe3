//! Ships the log of a database whose writes reach storage once in a while.

use crate::durable::storage_log::StorageLog;
use crate::terms::{Error, Result};
use forebay_base::ErrorKind;
use forebay_env::sync::{Condvar, Mutex, lock};
use forebay_env::thread::{JoinHandle, spawn};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// A thread that ships at intervals until it is stopped.
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
    /// Ships all that is published every `interval`.
    ///
    /// # Errors
    /// `Io` when the system cannot start a thread.
    pub(crate) fn start(log: Arc<StorageLog>, interval: Duration) -> Result<Self> {
        let stop = Arc::new(Stop::default());
        let seen = Arc::clone(&stop);
        let run = move || {
            while seen.sleep(interval) {
                // Who writes next is told.
                if let Err(error) = log.ship_now() {
                    tracing::debug!(%error, "shipping the log");
                }
            }
        };
        let thread = spawn("forebay-log", run);
        let thread = thread.map_err(|error| Error::new(ErrorKind::Io, format!("starting a thread: {error}")))?;
        Ok(Self { stop, thread: Mutex::new(Some(thread)) })
    }

    /// Stops the thread after its current work.
    pub(crate) fn stop(&self) {
        *lock(&self.stop.stopped) = true;
        self.stop.changed.notify_all();
        let thread = lock(&self.thread).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that ships the log panicked");
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
