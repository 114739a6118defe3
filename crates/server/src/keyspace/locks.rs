//! Who may touch which keys at the same time.
//!
//! A run of commands locks the stripes of all its keys before it reads the first one, in ascending order, and lets
//! them go when what it wrote is in the store. So runs never wait for each other in a circle, and what a command
//! reads does not change before it has written. Stripes are shared by runs that only read. What concerns keys that
//! are not named (`FLUSHALL`, `SWAPDB`) locks everything.

use forebay_env::sync::{RwLock, RwLockReadGuard};
use std::sync::{PoisonError, RwLockWriteGuard};

const STRIPES: usize = 1024;

/// The locks of a server's keys.
#[derive(Debug)]
pub struct Locks {
    all: RwLock<()>,
    stripes: Vec<RwLock<()>>,
}

/// Keys that are locked until this is dropped.
#[derive(Debug)]
pub struct Locked<'a> {
    _stripes: Vec<Stripe<'a>>,
    _all: All<'a>,
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

impl Default for Locks {
    fn default() -> Self {
        Self { all: RwLock::new(()), stripes: (0..STRIPES).map(|_| RwLock::new(())).collect() }
    }
}

impl Locks {
    /// The stripe of a key with this hash.
    #[must_use]
    pub const fn stripe(hash: u64) -> usize {
        (hash >> 54) as usize % STRIPES
    }

    /// Locks these stripes, to read or also to write.
    pub fn lock(&self, stripes: &mut Vec<usize>, writes: bool) -> Locked<'_> {
        stripes.sort_unstable();
        stripes.dedup();
        let all = All::Shared(self.all.read().unwrap_or_else(PoisonError::into_inner));
        let mut locked = Vec::with_capacity(stripes.len());
        for lock in stripes.iter().filter_map(|&stripe| self.stripes.get(stripe)) {
            locked.push(if writes {
                Stripe::Own(lock.write().unwrap_or_else(PoisonError::into_inner))
            } else {
                Stripe::Shared(lock.read().unwrap_or_else(PoisonError::into_inner))
            });
        }
        Locked { _stripes: locked, _all: all }
    }

    /// Locks all keys.
    pub fn lock_all(&self) -> Locked<'_> {
        Locked { _stripes: Vec::new(), _all: All::Own(self.all.write().unwrap_or_else(PoisonError::into_inner)) }
    }
}
