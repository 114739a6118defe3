//! The script that runs, for those who wait for it or end it.

use forebay_env::sync::{Condvar, Mutex, MutexGuard, lock};
use forebay_env::{Clock, Nanos};
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

/// How long those who cannot go on wait before they look again.
const LOOK: Duration = Duration::from_millis(1);

/// Why a script is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// A client asked for it.
    Killed,
    /// It takes too long for a place where others cannot be told so.
    TooLong,
    /// The server stops.
    Stopping,
}

impl Ending {
    const fn number(self) -> u8 {
        match self {
            Self::Killed => 1,
            Self::TooLong => 2,
            Self::Stopping => 3,
        }
    }

    /// The text of the script's error.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Killed => "Script killed by user with SCRIPT KILL...",
            Self::TooLong => "the script took too long for a transaction",
            Self::Stopping => "the server stops",
        }
    }
}

/// A script that runs.
#[derive(Debug, Clone, Copy)]
pub struct Running {
    /// It is busy from then on.
    pub busy_at: Nanos,
    /// Whether it ends when it is busy.
    pub ends_when_busy: bool,
}

/// The script that runs, if one does: there is never more than one.
#[derive(Debug)]
pub struct Progress {
    clock: Arc<dyn Clock>,
    running: Mutex<Option<Running>>,
    ended: Condvar,
    is_stopping: AtomicBool,
    ending: AtomicU8,
}

impl Progress {
    /// No script runs.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            running: Mutex::new(None),
            ended: Condvar::new(),
            is_stopping: AtomicBool::new(false),
            ending: AtomicU8::new(0),
        }
    }

    /// A script begins. It has ended when this is dropped.
    pub fn begin(&self, running: Running) -> Begun<'_> {
        self.ending.store(0, Ordering::Relaxed);
        *lock(&self.running) = Some(running);
        Begun(self)
    }

    /// Whether a script runs.
    pub fn is_running(&self) -> bool {
        lock(&self.running).is_some()
    }

    fn is_busy(&self, running: &MutexGuard<'_, Option<Running>>) -> bool {
        running.as_ref().is_some_and(|running| self.clock.now() >= running.busy_at)
    }

    /// Waits a moment for whoever holds all keys, and says whether that is a script that is busy.
    pub fn wait(&self) -> bool {
        let running = lock(&self.running);
        if self.is_busy(&running) {
            return true;
        }
        drop(self.ended.wait_timeout(running, LOOK).unwrap_or_else(PoisonError::into_inner));
        false
    }

    /// Ends the script that runs, and those to come when the server stops.
    pub fn end(&self, ending: Ending) {
        if ending == Ending::Stopping {
            self.is_stopping.store(true, Ordering::Relaxed);
        }
        self.ending.store(ending.number(), Ordering::Relaxed);
    }

    /// Why the script is to end, if it is. Scripts ask for it as they run.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        if self.is_stopping.load(Ordering::Relaxed) {
            return Some(Ending::Stopping);
        }
        let asked = self.ending.load(Ordering::Relaxed);
        if asked == Ending::Killed.number() {
            return Some(Ending::Killed);
        }
        if asked == Ending::TooLong.number() {
            return Some(Ending::TooLong);
        }
        let running = lock(&self.running);
        let is_late = self.is_busy(&running) && running.as_ref().is_some_and(|running| running.ends_when_busy);
        if is_late {
            self.ending.store(Ending::TooLong.number(), Ordering::Relaxed);
        }
        is_late.then_some(Ending::TooLong)
    }
}

/// A script that runs until this is dropped.
#[derive(Debug)]
pub struct Begun<'p>(&'p Progress);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        *lock(&self.0.running) = None;
        self.0.ended.notify_all();
    }
}
