//! Work at intervals, by a thread of its own.

use crate::terms::{Error, Result};
use crate::work::bell::Bell;
use forebay_env::sync::{Mutex, lock};
use forebay_env::thread::{JoinHandle, spawn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A thread that does something at intervals, and whenever its bell rings, until it is stopped.
#[derive(Debug)]
pub(crate) struct Ticker {
    stopped: Arc<AtomicBool>,
    bell: Arc<Bell>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Ticker {
    /// Calls `tick` every `interval`, and when `bell` rings, in a thread of this name.
    ///
    /// # Errors
    /// `Io` when the system cannot start a thread.
    pub(crate) fn start(
        name: &str,
        interval: Duration,
        bell: &Arc<Bell>,
        tick: impl Fn() + Send + 'static,
    ) -> Result<Self> {
        let (stopped, bell) = (Arc::<AtomicBool>::default(), Arc::clone(bell));
        let (is_over, rung) = (Arc::clone(&stopped), Arc::clone(&bell));
        let mut rings = bell.rings();
        let run = move || {
            loop {
                rung.sleep_up_to(rings, interval);
                rings = rung.rings();
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                tick();
            }
        };
        let thread = spawn(name.to_owned(), run);
        let thread = thread.map_err(|error| Error::no_thread(&error))?;
        Ok(Self { stopped, bell, thread: Mutex::new(Some(thread)) })
    }

    /// Tells the thread to end after its current work, and does not wait for that.
    pub(crate) fn leave(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.bell.ring();
    }

    /// Stops the thread after its current work.
    pub(crate) fn stop(&self) {
        self.leave();
        let thread = lock(&self.thread).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("a thread that works at intervals panicked");
        }
    }
}
