//! What a process has open, and what a fork leaves behind. For bindings: programs in other languages fork, and end, as they like.
//!
//! A fork copies the memory of a process, and one of its threads. So the child has its parent's databases as they stood at
//! that moment, with locks that nobody releases and without the threads that work on them. If it used one, two processes
//! would write one log. Therefore what a process opens is [`Owned`]. The child says that it was [`forked`]; from then on, what the
//! parent has opened is of no use to it, and does not end in it.
//!
//! A process that ends without closing its databases calls [`sync_open`].

use crate::{Error, Store};
use forebay_base::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak, mpsc};
use std::time::Duration;

/// How long [`sync_open`] waits for the storage at most.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The first of a line of processes, each of which the one before has forked.
static FIRST: Process = Process::new();

/// A process, as it knows itself: a fork copies it, and the child leaves the copy behind.
#[derive(Debug)]
struct Process {
    /// Whether this process is a child of the one that is meant here.
    is_left: AtomicBool,
    stores: Mutex<Vec<Weak<Store>>>,
    child: OnceLock<Box<Self>>,
}

impl Process {
    const fn new() -> Self {
        Self { is_left: AtomicBool::new(false), stores: Mutex::new(Vec::new()), child: OnceLock::new() }
    }

    /// This process.
    fn current() -> &'static Self {
        let mut process = &FIRST;
        while process.is_left() {
            process = process.child.get_or_init(|| Box::new(Self::new()));
        }
        process
    }

    #[inline]
    fn is_left(&self) -> bool {
        // Only a fork changes it, and then there is one thread.
        self.is_left.load(Ordering::Relaxed)
    }

    fn stores(&self) -> MutexGuard<'_, Vec<Weak<Store>>> {
        self.stores.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says that this process was forked: what its parent has opened is not its own. To be called in the child, by the thread that
/// forked, before it does anything else. It takes no lock and allocates nothing, so `pthread_atfork` may call it.
pub fn forked() {
    let mut process = &FIRST;
    while process.is_left.swap(true, Ordering::Relaxed) {
        let Some(child) = process.child.get() else { return };
        process = child;
    }
}

/// What one process may use: a store, or what belongs to one. In a process that was [`forked`] later, nobody gets at it, and
/// dropping it forgets it.
#[derive(Debug, Clone)]
pub struct Owned<T> {
    owner: &'static Process,
    /// `None` once it was taken out.
    value: Option<T>,
}

impl<T> Owned<T> {
    /// What this process may use.
    pub fn new(value: T) -> Self {
        Self { owner: Process::current(), value: Some(value) }
    }

    /// What it is.
    ///
    /// # Errors
    /// `Invalid` in a process that was forked later.
    #[inline]
    pub fn get(&self) -> Result<&T, Error> {
        self.value.as_ref().filter(|_| !self.owner.is_left()).ok_or_else(left)
    }

    /// What it is, to change it.
    ///
    /// # Errors
    /// As [`Owned::get`].
    pub fn get_mut(&mut self) -> Result<&mut T, Error> {
        self.value.as_mut().filter(|_| !self.owner.is_left()).ok_or_else(left)
    }

    /// Takes it out.
    ///
    /// # Errors
    /// As [`Owned::get`]; then it is forgotten.
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

/// Has [`sync_open`] sync `store`, as long as it is there and in this process.
pub fn remember(store: &Arc<Store>) {
    let mut stores = Process::current().stores();
    stores.retain(|store| store.strong_count() > 0);
    stores.push(Arc::downgrade(store));
}

/// Syncs the stores that this process has opened, [`remember`]s and has not closed. To be called when the process ends. Other
/// threads may go on using the stores meanwhile. Waits for at most [`PATIENCE`]: nobody knows what other threads wait for.
///
/// # Errors
/// The first error of the storage; `TimedOut`; `Io` when there is no thread to do it. What was written since the last sync may
/// then be lost.
pub fn sync_open() -> Result<(), Error> {
    let stores: Vec<_> = Process::current().stores().iter().filter_map(Weak::upgrade).collect();
    if stores.is_empty() {
        return Ok(());
    }
    let (done, ended) = mpsc::channel();
    let sync = move || {
        let failures = forebay_env::thread::run_all(stores, |store| store.sync().err());
        // One that was closed has synced, and one without a name has nothing to sync to.
        let is_loss = |kind| !matches!(kind, ErrorKind::Closed | ErrorKind::Invalid);
        let failure = failures.into_iter().flatten().flatten().find(|error| is_loss(error.kind()));
        // Nobody is there who waits any more, or takes it.
        let _ = done.send(failure.map_or(Ok(()), |error| Err(Error::from(error))));
    };
    let below = |kind, message| Error::Below { kind, message };
    forebay_env::thread::spawn("forebay-exit", sync)
        .map_err(|cause| below(ErrorKind::Io, format!("starting a thread that syncs: {cause}")))?;
    ended.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let message = format!("what is open was not synced within {PATIENCE:?}: its last writes may be lost");
        Err(below(ErrorKind::TimedOut, message))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DirectoryOptions;
    use forebay_engine::{Durability, Options, Syncing};

    /// Forks are told to all of a process, so this is one test.
    #[test]
    fn what_is_open_is_synced_and_left_behind_by_a_fork() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let durability = Durability::Storage(Syncing::Interval(Duration::from_secs(3600)));
            let database = Options { durability, ..Options::default() };
            let options = DirectoryOptions { memory_bytes: 64 << 20, database };
            let store = Arc::new(Store::open_with(folder.path().join(name), options).unwrap());
            remember(&store);
            store
        };
        let (one, closed) = (open("one"), open("closed"));
        drop(open("dropped"));
        closed.close().unwrap();
        one.put(b"key", b"value").unwrap();
        let syncs = || one.statistics().storage.syncs;
        let before = syncs();
        sync_open().unwrap();
        let after = syncs();
        assert!(after > before);

        let (mut owned, mut second) = (Owned::new(Arc::clone(&one)), Owned::new(0));
        assert_eq!(owned.get().unwrap().get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        *second.get_mut().unwrap() += 1;
        assert_eq!(second.into_inner().unwrap(), 1);
        // Two forks, and nothing was opened between them.
        forked();
        forked();
        for refused in [owned.get().err(), owned.get_mut().err(), owned.clone().into_inner().err()] {
            let refused = refused.unwrap();
            assert_eq!(refused.kind(), ErrorKind::Invalid);
            assert!(refused.to_string().contains("before a fork"), "{refused}");
        }
        one.put(b"key", b"other").unwrap();
        sync_open().unwrap();
        assert_eq!(syncs(), after, "it is the parent's");
        let holders = Arc::strong_count(&one);
        drop(owned);
        assert_eq!(Arc::strong_count(&one), holders, "it is forgotten");

        let own = Owned::new(open("own"));
        own.get().unwrap().put(b"key", b"value").unwrap();
        let before = own.get().unwrap().statistics().storage.syncs;
        sync_open().unwrap();
        assert!(own.get().unwrap().statistics().storage.syncs > before);
        forked();
        assert!(own.get().is_err());
    }
}
