//! Scripts: the machine, what runs on it, and the jobs for it.
//!
//! ```text
//!   a connection sends EVAL ─► a job; the connection waits ─► the thread of scripts ─► the reply lets it continue
//! ```
//!
//! So connections are served while a script runs. Once it is busy, they get an error, even those with a job, and can end
//! it.
//!
//! Other commands that turn out to take long become jobs of the same thread. They reserve only their own keys
//! (`keyspace::locks`), so connections are served meanwhile. Commands that need one of these keys are held until the
//! job is done.
//!
//! Other threads reserve, for moments, keys that move to another server (`execute::migrations`). So a thread that
//! reserves keys, or runs a script in a thread of its own, must have the turn.

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
    /// The running script.
    pub progress: Arc<Progress>,
    machine: Mutex<Option<Machine>>,
    /// The jobs of the thread of scripts.
    pub jobs: Jobs,
    turn: Mutex<()>,
    /// Whether commands that wait for keys could not be carried out because of a script.
    missed: AtomicBool,
    /// Clients whose commands are held until the keys that a job has reserved are free.
    held: Mutex<Vec<Arc<Client>>>,
    /// Whether the machine's libraries may differ from those in the store.
    doubted: AtomicBool,
    /// What the machine held when it was last looked at, for threads that cannot get it now.
    use_of_memory: Mutex<UseOfMemory>,
    /// Numbers of libraries and functions, for threads that cannot get the machine now.
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

    /// Takes the turn: the right to reserve keys, and to run scripts in a thread of their own. Only one thread has it.
    /// The caller has nothing locked.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.turn)
    }

    /// Returns the machine, which does not exist before it is needed. The caller has keys locked.
    pub fn machine(&self) -> MutexGuard<'_, Option<Machine>> {
        self.without_doubt(lock(&self.machine))
    }

    /// Returns the machine, unless another thread has it. The caller has no keys locked.
    pub fn try_machine(&self) -> Option<MutexGuard<'_, Option<Machine>>> {
        self.machine.try_lock().ok().map(|machine| self.without_doubt(machine))
    }

    /// Returns what the machine holds; while another thread has it, what it held before.
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
            // The libraries are loaded again. If memory is short for this, that fails and says why.
            let _ = machine.collect_much();
        }
        machine
    }

    /// Says that changes of libraries were not kept, so that they are read again. Pairs with taking the machine.
    pub fn doubt(&self) {
        self.doubted.store(true, Ordering::Release);
    }

    /// Sets the numbers of libraries and functions.
    pub fn set_counts(&self, (libraries, functions): (usize, usize)) {
        self.counts.0.store(libraries, Ordering::Relaxed);
        self.counts.1.store(functions, Ordering::Relaxed);
    }

    /// Returns the numbers of libraries and functions, once they were read.
    pub fn counts(&self) -> (usize, usize) {
        (self.counts.0.load(Ordering::Relaxed), self.counts.1.load(Ordering::Relaxed))
    }

    /// Ends the running script, and accepts no more jobs.
    pub fn stop(&self) {
        self.progress.stop();
        self.jobs.stop();
    }

    /// Holds a client's command until the thread that has the turn is done. Returns false when no keys are reserved:
    /// then nobody may come to let the command continue.
    pub fn hold(&self, client: &Arc<Client>, locks: &Locks) -> bool {
        let mut held = lock(&self.held);
        let is_reserved = locks.is_reserved();
        if is_reserved {
            held.push(Arc::clone(client));
        }
        is_reserved
    }

    /// Lets the held clients continue. Called when a job is done and its keys are no longer reserved.
    pub fn release(&self) {
        lock(&self.held).drain(..).for_each(|client| client.release());
    }

    /// Records that commands that wait for keys must be tried again when the running job has ended. Returns false when
    /// no job keeps others from keys: then nobody may come to try them.
    pub fn miss(&self, locks: &Locks) -> bool {
        self.missed.store(true, Ordering::Release);
        self.progress.is_running() || locks.is_reserved()
    }

    /// Returns whether they must, and forgets it. Pairs with [`Scripts::miss`]. Called after each job.
    pub fn take_missed(&self) -> bool {
        self.missed.swap(false, Ordering::Acquire)
    }
}
