//! Forks: what a child takes over from its parent, and leaves behind.

use crate::Error;
use forebay_base::ErrorKind;
use forebay_engine::Error as EngineError;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// What a process syncs when it ends.
pub(crate) trait Syncs: Send + Sync {
    /// Makes what was written durable.
    fn sync_now(&self) -> Result<(), EngineError>;
}

/// The first in a line of processes, each forked by the one before.
static FIRST: Process = Process::new();

/// A process, as it knows itself: a fork copies it, and the child leaves the copy behind.
#[derive(Debug)]
pub(crate) struct Process {
    /// Whether the running process is a child of the process that this value describes.
    is_left: AtomicBool,
    stores: Mutex<Vec<Weak<dyn Syncs>>>,
    /// Files that a fork must not keep open, until they are closed.
    files: Mutex<Vec<Weak<OwnFile>>>,
    child: OnceLock<Box<Self>>,
}

impl Process {
    const fn new() -> Self {
        Self {
            is_left: AtomicBool::new(false),
            stores: Mutex::new(Vec::new()),
            files: Mutex::new(Vec::new()),
            child: OnceLock::new(),
        }
    }

    /// This process.
    pub(crate) fn current() -> &'static Self {
        let mut process = &FIRST;
        while process.is_left() {
            process = process.child.get_or_init(|| Box::new(Self::new()));
        }
        process
    }

    #[inline]
    fn is_left(&self) -> bool {
        // Only a fork changes the flag, and the child has one thread then.
        self.is_left.load(Ordering::Relaxed)
    }

    pub(crate) fn stores(&self) -> MutexGuard<'_, Vec<Weak<dyn Syncs>>> {
        self.stores.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the files that the process has, without waiting for locks. A thread that held the list or a file at the
    /// moment of the fork does not exist in the child, so what it held stays open.
    fn close_files(&self) {
        let Ok(files) = self.files.try_lock() else { return };
        for file in files.iter().filter_map(Weak::upgrade) {
            drop(file.0.try_lock().ok().and_then(|mut file| file.take()));
        }
    }
}

/// A file that belongs to one process: a child that was [`forked`] closes its copy.
#[derive(Debug)]
pub(crate) struct OwnFile(Mutex<Option<File>>);

impl OwnFile {
    /// A file of this process.
    pub(crate) fn new(file: File) -> Arc<Self> {
        let own = Arc::new(Self(Mutex::new(Some(file))));
        let mut files = Process::current().files.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|file| file.strong_count() > 0);
        files.push(Arc::downgrade(&own));
        own
    }

    /// Takes the file out, if nobody has taken it yet.
    pub(crate) fn take(&self) -> Option<File> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Records that this process was forked, so that what its parent has opened is not its own. Call it in the child, on
/// the thread that forked, before anything else. It waits for no lock and allocates nothing, so `pthread_atfork` may
/// call it.
pub fn forked() {
    let mut process = &FIRST;
    while process.is_left.swap(true, Ordering::Relaxed) {
        let Some(child) = process.child.get() else { return };
        process = child;
    }
    process.close_files();
}

/// A value that one process may use: a store, or what belongs to one. In a process that was [`forked`] later, the value
/// cannot be reached, and dropping it forgets it.
#[derive(Debug, Clone)]
pub struct Owned<T> {
    owner: &'static Process,
    /// `None` once the value was taken out.
    value: Option<T>,
}

impl<T> Owned<T> {
    /// Wraps a value that this process may use.
    pub fn new(value: T) -> Self {
        Self { owner: Process::current(), value: Some(value) }
    }

    /// Returns the value.
    ///
    /// # Errors
    /// `Invalid` in a process that was forked later.
    #[inline]
    pub fn get(&self) -> Result<&T, Error> {
        self.value.as_ref().filter(|_| !self.owner.is_left()).ok_or_else(left)
    }

    /// Returns the value, to change it.
    ///
    /// # Errors
    /// As [`Owned::get`].
    pub fn get_mut(&mut self) -> Result<&mut T, Error> {
        self.value.as_mut().filter(|_| !self.owner.is_left()).ok_or_else(left)
    }

    /// Takes the value out.
    ///
    /// # Errors
    /// As [`Owned::get`]; then the value is forgotten.
    pub fn into_inner(mut self) -> Result<T, Error> {
        self.get()?;
        self.value.take().ok_or_else(left)
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.owner.is_left() {
            std::mem::forget(self.value.take());
        }
    }
}

#[cold]
fn left() -> Error {
    let message = "the database was opened before a fork: open it in the process that uses it";
    Error::Below { kind: ErrorKind::Invalid, message: message.to_owned() }
}
