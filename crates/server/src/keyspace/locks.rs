//! Who may touch which keys at the same time.
//!
//! A run of commands locks the stripes of all its keys before it reads the first one, in ascending order, and lets
//! them go when what it wrote is in the store. So runs never wait for each other in a circle, and what a command
//! reads does not change before it has written. Stripes are shared by runs that only read. What concerns keys that
//! are not named (`FLUSHALL`, `SWAPDB`), and scripts, lock everything.
//!
//! A script may hold its lock for long. So nobody waits for who has locked everything, but asks again
//! ([`Locks::try_lock`]); whoever locks everything waits for those only who hold stripes, which is short.

use forebay_env::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
use std::sync::{PoisonError, RwLockWriteGuard, TryLockError};

/// Stripes of a server with several threads, in 768 KiB. Two runs of 64 keys share one of them in 6 of 100 cases, and one of a
/// thousand nearly always.
const STRIPES: usize = 1 << 16;
/// Stripes of a server with one thread, in 12 KiB, which its core's cache holds: there it meets nobody but the thread of scripts,
/// which locks everything.
const STRIPES_OF_ONE: usize = 1 << 10;

/// The locks of a server's keys.
#[derive(Debug)]
pub struct Locks {
    /// Held by who has locked everything, or is about to.
    whole: Mutex<()>,
    all: RwLock<()>,
    stripes: Vec<RwLock<()>>,
}

/// Keys that are locked until this is dropped.
#[derive(Debug)]
pub struct Locked<'a> {
    _stripes: Vec<Stripe<'a>>,
    _all: Option<All<'a>>,
    _whole: Option<MutexGuard<'a, ()>>,
}

#[derive(Debug)]
enum Stripe<'a> {
    Shared(#[allow(dead_code, reason = "holds the lock")] RwLockReadGuard<'a, ()>),
    Own(#[allow(dead_code, reason = "holds the lock")] RwLockWriteGuard<'a, ()>),
}

#[derive(Debug)]
enum All<'a> {
    Shared(#[allow(dead_code, reason = "holds the lock")] RwLockReadGuard<'a, ()>),
    Own(#[allow(dead_code, reason = "holds the lock")] RwLockWriteGuard<'a, ()>),
}

impl Locks {
    /// The locks of a server whose connections are served by so many threads.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let stripes = if threads > 1 { STRIPES } else { STRIPES_OF_ONE };
        let stripes = (0..stripes).map(|_| RwLock::new(())).collect();
        Self { whole: Mutex::new(()), all: RwLock::new(()), stripes }
    }

    /// The stripe of a key with this hash.
    #[must_use]
    pub fn stripe(&self, hash: u64) -> usize {
        // Their number is a power of two.
        (hash >> 48) as usize & (self.stripes.len() - 1)
    }

    /// Locks these stripes, to read or also to write; `None` while somebody has locked everything.
    pub fn try_lock(&self, stripes: &mut Vec<usize>, writes: bool) -> Option<Locked<'_>> {
        stripes.sort_unstable();
        stripes.dedup();
        let all = match self.all.try_read() {
            Ok(all) => all,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let mut locked = Vec::with_capacity(stripes.len());
        for lock in stripes.iter().filter_map(|&stripe| self.stripes.get(stripe)) {
            locked.push(if writes {
                Stripe::Own(lock.write().unwrap_or_else(PoisonError::into_inner))
            } else {
                Stripe::Shared(lock.read().unwrap_or_else(PoisonError::into_inner))
            });
        }
        Some(Locked { _stripes: locked, _all: Some(All::Shared(all)), _whole: None })
    }

    /// Locks all keys; `None` while somebody else has.
    pub fn try_lock_all(&self) -> Option<Locked<'_>> {
        let whole = match self.whole.try_lock() {
            Ok(whole) => whole,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let all = All::Own(self.all.write().unwrap_or_else(PoisonError::into_inner));
        Some(Locked { _stripes: Vec::new(), _all: Some(all), _whole: Some(whole) })
    }
}

impl Locked<'_> {
    /// Nothing is locked: no key is touched.
    #[must_use]
    pub const fn nothing() -> Self {
        Self { _stripes: Vec::new(), _all: None, _whole: None }
    }
}
