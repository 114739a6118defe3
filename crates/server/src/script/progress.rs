//! The running script, for threads that wait for it or end it.

use bytes::Bytes;
use forebay_env::sync::{Condvar, Mutex, MutexGuard, lock};
use forebay_env::{Clock, Nanos};
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

/// How long threads that cannot continue wait before they look again.
const LOOK: Duration = Duration::from_millis(1);

/// Why a script must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// A client asked for it.
    Killed,
    /// It takes too long where other clients cannot be told that it is busy.
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
}

/// What is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A script.
    Script,
    /// A function of a library.
    Function,
    /// A library is loaded.
    Library,
}

impl Kind {
    /// Returns the error for clients that cannot continue.
    #[must_use]
    pub const fn busy(self) -> &'static str {
        match self {
            Self::Script => "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            Self::Function | Self::Library => {
                "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE."
            }
        }
    }

    /// Returns the error of the script that must end.
    const fn text(self, ending: Ending) -> &'static str {
        match (ending, self) {
            (Ending::Killed, Self::Script) => "Script killed by user with SCRIPT KILL...",
            (Ending::Killed, _) => "Script killed by user with FUNCTION KILL...",
            (Ending::TooLong, Self::Library) => "FUNCTION LOAD timeout",
            (Ending::TooLong, _) => "the script took too long for a transaction",
            (Ending::Stopping, _) => "the server stops",
        }
    }
}

/// A script, or its like, that runs.
#[derive(Debug, Clone)]
pub struct Running {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// The request that runs it.
    pub request: Vec<Bytes>,
    /// When it began.
    pub began_at: Nanos,
    /// When it begins to count as busy.
    pub busy_at: Nanos,
    /// Whether it must end once it is busy.
    pub ends_when_busy: bool,
}

/// The running script, if there is one: there is never more than one.
#[derive(Debug)]
pub struct Progress {
    clock: Arc<dyn Clock>,
    running: Mutex<Option<Running>>,
    ended: Condvar,
    is_stopping: AtomicBool,
    ending: AtomicU8,
}

impl Progress {
    /// Begins with no script.
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

    /// Records that a script begins. It has ended when the returned value is dropped.
    pub fn begin(&self, running: Running) -> Begun<'_> {
        let mut now = lock(&self.running);
        self.ending.store(0, Ordering::Relaxed);
        *now = Some(running);
        drop(now);
        Begun(self)
    }

    /// Whether something is running. A thread that ends it sees what was done before this call.
    pub fn is_running(&self) -> bool {
        lock(&self.running).is_some()
    }

    /// Returns what is running, and for how long, in nanoseconds.
    pub fn running(&self) -> Option<(Running, Nanos)> {
        let running = lock(&self.running).clone()?;
        let took = self.clock.now().saturating_sub(running.began_at);
        Some((running, took))
    }

    fn busy_in<'r>(&self, running: &'r MutexGuard<'_, Option<Running>>) -> Option<&'r Running> {
        running.as_ref().filter(|running| self.clock.now() >= running.busy_at)
    }

    /// Returns the kind of what is running, if it is busy.
    pub fn busy(&self) -> Option<Kind> {
        self.busy_in(&lock(&self.running)).map(|running| running.kind)
    }

    /// Waits a moment for the holder of all keys. If that is something busy, returns its kind.
    pub fn wait(&self) -> Option<Kind> {
        let running = lock(&self.running);
        let busy = self.busy_in(&running).map(|running| running.kind);
        if busy.is_none() {
            drop(self.ended.wait_timeout(running, LOOK).unwrap_or_else(PoisonError::into_inner));
        }
        busy
    }

    /// Ends what is running, if it is of one of these kinds. What begins later is not ended.
    ///
    /// # Errors
    /// What is running instead, if anything is.
    pub fn kill(&self, kinds: &[Kind]) -> Result<(), Option<Kind>> {
        // With the lock, so that nothing else begins before the running script is told.
        let running = lock(&self.running);
        match running.as_ref().map(|running| running.kind) {
            Some(kind) if kinds.contains(&kind) => {
                self.ending.store(Ending::Killed.number(), Ordering::Relaxed);
                Ok(())
            }
            other => Err(other),
        }
    }

    /// Ends the running script, and later ones, because the server stops.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Returns the error of the running script, if it must end. Scripts check this as they run.
    #[must_use]
    pub fn ending(&self) -> Option<&'static str> {
        let running = lock(&self.running);
        let kind = running.as_ref().map_or(Kind::Script, |running| running.kind);
        let asked = self.ending.load(Ordering::Relaxed);
        let asked = [Ending::Killed, Ending::TooLong].into_iter().find(|ending| ending.number() == asked);
        let is_late = || self.busy_in(&running).is_some_and(|running| running.ends_when_busy);
        let ending = if self.is_stopping.load(Ordering::Relaxed) {
            Ending::Stopping
        } else if let Some(asked) = asked {
            asked
        } else if is_late() {
            self.ending.store(Ending::TooLong.number(), Ordering::Relaxed);
            Ending::TooLong
        } else {
            return None;
        };
        Some(kind.text(ending))
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

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_env::ManualClock;

    fn running(kind: Kind) -> Running {
        let (name, request) = (String::new(), Vec::new());
        Running { kind, name, request, began_at: 0, busy_at: Nanos::MAX, ends_when_busy: false }
    }

    #[test]
    fn only_what_runs_is_ended() {
        let progress = Progress::new(Arc::new(ManualClock::new()));
        assert_eq!(progress.kill(&[Kind::Script]), Err(None));
        let script = progress.begin(running(Kind::Script));
        assert_eq!((progress.ending(), progress.kill(&[Kind::Function])), (None, Err(Some(Kind::Script))));
        assert_eq!(progress.ending(), None);
        assert_eq!(progress.kill(&[Kind::Script, Kind::Library]), Ok(()));
        assert_eq!(progress.ending(), Some(Kind::Script.text(Ending::Killed)));
        drop(script);
        // Its target has ended, and the next one begins.
        assert_eq!(progress.kill(&[Kind::Script]), Err(None));
        let _next = progress.begin(running(Kind::Script));
        assert_eq!(progress.ending(), None);
        progress.stop();
        assert_eq!(progress.ending(), Some(Kind::Script.text(Ending::Stopping)));
    }
}
