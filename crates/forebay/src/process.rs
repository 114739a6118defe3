//! What a process has open, and what a fork leaves behind. For bindings: programs in other languages fork and end at
//! any time.
//!
//! A fork copies the memory of a process, and one of its threads. So the child has its parent's databases as they were at
//! that moment, with locks that nobody releases and without the threads that work on them. If the child used a database,
//! two processes would write one log. Therefore what a process opens is [`Owned`]. The child says that it was [`forked`];
//! from then on, it can neither use nor close what the parent has opened. The locks of the directories also stay the
//! parent's: the child closes its copies of their files, so that the system releases the locks when the parent ends,
//! however it ends.
//!
//! A process that ends without closing its databases calls [`sync_open`].

pub use crate::fork::{Owned, forked};
use crate::fork::{Process, Syncs};
use crate::{Error, Store};
use forebay_base::ErrorKind;
use forebay_engine::Error as EngineError;
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

/// The longest time that [`sync_open`] waits for the storage.
pub const PATIENCE: Duration = Duration::from_secs(30);

impl Syncs for Store {
    fn sync_now(&self) -> Result<(), EngineError> {
        self.sync()
    }
}

/// Registers `store` for [`sync_open`], as long as the store exists and belongs to this process.
pub fn remember(store: &Arc<Store>) {
    let store: Weak<Store> = Arc::downgrade(store);
    let mut stores = Process::current().stores();
    stores.retain(|store| store.strong_count() > 0);
    stores.push(store);
}

/// Syncs the stores that this process has opened, [`remember`]s and has not closed. Call it when the process ends. Other
/// threads may continue to use the stores meanwhile. It waits for at most [`PATIENCE`], as nobody knows what other
/// threads wait for.
///
/// # Errors
/// The first error of the storage; `TimedOut`; `Io` when no thread can be started, or one panics. Writes since the last
/// sync may then be lost.
pub fn sync_open() -> Result<(), Error> {
    let stores: Vec<_> = Process::current().stores().iter().filter_map(Weak::upgrade).collect();
    if stores.is_empty() {
        return Ok(());
    }
    let (done, ended) = mpsc::channel();
    let below = |kind, message| Error::Below { kind, message };
    let sync = move || {
        let synced = forebay_env::thread::run_all(stores, |store| store.sync_now().map_err(Error::from));
        let bug = "a thread that syncs panicked, which is a bug: report it";
        let panicked = || Err(below(ErrorKind::Io, bug.to_owned()));
        let mut failures = synced.into_iter().filter_map(|synced| synced.unwrap_or_else(panicked).err());
        // A store that was closed has synced, and a store without a name has nothing to sync to.
        let is_loss = |kind| !matches!(kind, ErrorKind::Closed | ErrorKind::Invalid);
        let failure = failures.find(|error| is_loss(error.kind()));
        // The receiver takes the result, or no longer waits.
        let _ = done.send(failure.map_or(Ok(()), Err));
    };
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

    /// Something that a bug keeps from being synced.
    struct Faulty;

    impl Syncs for Faulty {
        fn sync_now(&self) -> Result<(), EngineError> {
            panic!("as told")
        }
    }

    /// A fork concerns everything in a process, so this is one test.
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
        let faulty: Arc<dyn Syncs> = Arc::new(Faulty);
        Process::current().stores().push(Arc::downgrade(&faulty));
        assert_eq!(sync_open().unwrap_err().kind(), ErrorKind::Io);
        drop(faulty);
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
        // Two forks, with nothing opened between them.
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

        // As in the child of a fork, whose copy of the lock would outlive its parent.
        drop(open("one"));

        let own = Owned::new(open("own"));
        own.get().unwrap().put(b"key", b"value").unwrap();
        let before = own.get().unwrap().statistics().storage.syncs;
        sync_open().unwrap();
        assert!(own.get().unwrap().statistics().storage.syncs > before);
        forked();
        assert!(own.get().is_err());
    }
}
