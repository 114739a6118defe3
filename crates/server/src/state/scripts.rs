//! Scripts: the machine, what runs on it, and what is to be carried out.
//!
//! ```text
//!   a connection sends EVAL ─► a job; the connection waits ─► the thread of scripts ─► the reply lets it go on
//! ```
//!
//! So connections are served while a script runs: they get an error once it is busy, also those with a job, and can end it.
//!
//! Other commands that turn out to take long become jobs of the same thread. They reserve their keys and no others
//! (`keyspace::locks`), so connections are served meanwhile. Those that need one of these keys are held until the job is done.
//!
//! Keys that go to another server (`execute::migrations`) are reserved for moments by other threads. So whoever reserves keys, or runs a
//! script in a thread of its own, has the turn.

use crate::keyspace::locks::Locks;
use crate::script::machine::{Machine, UseOfMemory};
use crate::script::progress::Progress;
use crate::state::clients::Client;
use crate::state::jobs::Jobs;
use forebay_env::Clock;
use forebay_env::sync::{Mutex, MutexGuard, lock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Scripts. See the module.
#[derive(Debug)]
pub struct Scripts {
    /// The script that runs.
    pub progress: Arc<Progress>,
    machine: Mutex<Option<Machine>>,
    /// What the thread of scripts is to carry out.
    pub jobs: Jobs,
    turn: Mutex<()>,
    /// Somebody could not carry out the commands of those who wait for keys, because of a script.
    missed: AtomicBool,
    /// Clients whose commands are held until the keys are free that a job has reserved.
    held: Mutex<Vec<Arc<Client>>>,
    /// What the machine knows of libraries may not be what the store has.
    doubted: AtomicBool,
    /// What the machine held when somebody last looked, for those who cannot have it.
    use_of_memory: Mutex<UseOfMemory>,
    /// Numbers of libraries and functions, for those who cannot have the machine.
    counts: (AtomicUsize, AtomicUsize),
}

impl Scripts {
    /// Nothing to do.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            progress: Arc::new(Progress::new(clock)),
            machine: Mutex::new(None),
            jobs: Jobs::default(),
            turn: Mutex::default(),
            missed: AtomicBool::new(false),
            held: Mutex::default(),
            doubted: AtomicBool::new(false),
            use_of_memory: Mutex::default(),
            counts: Default::default(),
        }
    }

    /// The right to reserve keys, and to run scripts in a thread of their own. Only one thread has it. The caller has nothing locked.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.turn)
    }

    /// The machine, which does not exist before it is needed. The caller has keys locked.
    pub fn machine(&self) -> MutexGuard<'_, Option<Machine>> {
        self.without_doubt(lock(&self.machine))
    }

    /// The machine, unless somebody has it. The caller has no keys locked.
    pub fn try_machine(&self) -> Option<MutexGuard<'_, Option<Machine>>> {
        self.machine.try_lock().ok().map(|machine| self.without_doubt(machine))
    }

    /// What the machine holds; while somebody has it, what it held before.
    pub fn use_of_memory(&self) -> UseOfMemory {
        let mut known = lock(&self.use_of_memory);
        if let Ok(machine) = self.machine.try_lock() {
            *known = machine.as_ref().map(Machine::use_of_memory).unwrap_or_default();
        }
        *known
    }

    fn without_doubt<'m>(&self, mut machine: MutexGuard<'m, Option<Machine>>) -> MutexGuard<'m, Option<Machine>> {
        if self.doubted.swap(false, Ordering::Acquire)
            && let Some(machine) = &mut *machine
        {
            machine.functions = None;
        }
        machine
    }

    /// What was changed was not kept: libraries are read again. Pairs with whoever takes the machine.
    pub fn doubt(&self) {
        self.doubted.store(true, Ordering::Release);
    }

    /// The numbers of libraries and functions have changed.
    pub fn set_counts(&self, (libraries, functions): (usize, usize)) {
        self.counts.0.store(libraries, Ordering::Relaxed);
        self.counts.1.store(functions, Ordering::Relaxed);
    }

    /// The numbers of libraries and functions, once they were read.
    pub fn counts(&self) -> (usize, usize) {
        (self.counts.0.load(Ordering::Relaxed), self.counts.1.load(Ordering::Relaxed))
    }

    /// Ends the script that runs; there are no more jobs.
    pub fn stop(&self) {
        self.progress.end(crate::script::progress::Ending::Stopping);
        self.jobs.stop();
    }

    /// A client's command is held until whoever has the turn is done. False when nobody has reserved keys: then nobody may come to let
    /// it go on.
    pub fn hold(&self, client: &Arc<Client>, locks: &Locks) -> bool {
        let mut held = lock(&self.held);
        let is_reserved = locks.is_reserved();
        if is_reserved {
            held.push(Arc::clone(client));
        }
        is_reserved
    }

    /// A job is done, whose keys are not reserved any more: lets the clients go on that were held.
    pub fn release(&self) {
        lock(&self.held).drain(..).for_each(|client| client.release());
    }

    /// Those who wait for keys must be looked at when the job that runs has ended. False when it keeps nobody from keys: then nobody
    /// may come to do so.
    pub fn miss(&self, locks: &Locks) -> bool {
        self.missed.store(true, Ordering::Release);
        self.progress.is_running() || locks.is_reserved()
    }

    /// Whether they must, which is forgotten. Pairs with [`Scripts::miss`]. Called after each job.
    pub fn take_missed(&self) -> bool {
        self.missed.swap(false, Ordering::Acquire)
    }
}
