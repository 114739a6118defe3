//! Who may touch which keys at the same time.
//!
//! A run of commands locks the stripes of all its keys in ascending order before it reads the first key. It releases
//! them when its writes are in the store. So runs never deadlock, and what a command reads does not change before it
//! has written. Runs that only read share stripes. Scripts, and commands on keys that they do not name (`FLUSHALL`,
//! `SWAPDB`), lock everything.
//!
//! A script may hold its lock for long, and so may a command on many elements. So nobody waits for these locks:
//!
//! ```text
//!   everything is locked ─► NotLocked::Whole: ask again
//!   keys are reserved ────► NotLocked::Reserved: ask again when the reservation has ended; others' keys are free
//! ```
//!
//! A thread that reserves keys locks everything for the moment in which the reservation begins. So a thread that has
//! locked stripes has seen the reservation, and needs no other lock to stay away from its keys. There is at most one
//! reservation. It is for keys, not for stripes: otherwise other keys of a stripe would also be kept for long.

use forebay_env::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, lock};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLockWriteGuard, TryLockError};

/// Stripes of a server with several threads, in 768 KiB. Two runs of 64 keys share a stripe in 6 of 100 cases, and runs
/// of a thousand keys nearly always.
const STRIPES: usize = 1 << 16;
/// Stripes of a server with one thread, in 12 KiB, which its core's cache holds. This thread meets only the thread of
/// scripts, which locks everything or reserves a few keys.
const STRIPES_OF_ONE: usize = 1 << 10;

/// The locks of a server's keys.
#[derive(Debug)]
pub struct Locks {
    /// Held by the thread that has locked everything, or is about to.
    whole: Mutex<()>,
    all: RwLock<()>,
    stripes: Vec<RwLock<()>>,
    /// Read without the lock by threads that have `all`: a reservation begins while none has.
    is_reserved: AtomicBool,
    reservation: Mutex<Option<Reservation>>,
}

/// Keys that a thread works on for long.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reservation {
    /// The hashes of its keys.
    pub keys: BTreeSet<u64>,
    /// Whether the work changes the keys.
    pub writes: bool,
    /// Whether the work also reads keys that are not named, so that nobody may change any key.
    pub reads_others: bool,
}

impl Reservation {
    /// Whether the reservation keeps others, who read or also write, from keys with these hashes.
    fn keeps_from(&self, mut hashes: impl Iterator<Item = u64>, writes: bool) -> bool {
        (writes || self.writes) && hashes.any(|hash| (writes && self.reads_others) || self.keys.contains(&hash))
    }
}

/// Why keys could not be locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotLocked {
    /// Another thread has locked everything, or is about to.
    Whole,
    /// Some of the keys are reserved.
    Reserved,
}

/// Keys that are locked until this is dropped.
#[derive(Debug)]
pub struct Locked<'a> {
    _stripes: Vec<Stripe<'a>>,
    _all: Option<All<'a>>,
    _whole: Option<MutexGuard<'a, ()>>,
    _reserved: Option<Reserved<'a>>,
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

/// A reservation that ends when this is dropped.
#[derive(Debug)]
struct Reserved<'a>(&'a Locks);

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut reservation = lock(&self.0.reservation);
        *reservation = None;
        // Pairs with `try_lock`: a thread that sees the end also sees what was done meanwhile, such as marks that were
        // left.
        self.0.is_reserved.store(false, Ordering::Release);
    }
}

impl Locks {
    /// Makes the locks of a server with this many threads for connections.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let stripes = if threads > 1 { STRIPES } else { STRIPES_OF_ONE };
        let stripes = (0..stripes).map(|_| RwLock::new(())).collect();
        let (is_reserved, reservation) = (AtomicBool::new(false), Mutex::new(None));
        Self { whole: Mutex::new(()), all: RwLock::new(()), stripes, is_reserved, reservation }
    }

    /// The stripe of a key with this hash.
    fn stripe(&self, hash: u64) -> usize {
        // The number of stripes is a power of two.
        (hash >> 48) as usize & (self.stripes.len() - 1)
    }

    /// Locks the keys with these hashes, to read or also to write.
    ///
    /// # Errors
    /// See [`NotLocked`].
    pub fn try_lock(&self, hashes: impl Iterator<Item = u64> + Clone, writes: bool) -> Result<Locked<'_>, NotLocked> {
        let mut stripes: Vec<usize> = hashes.clone().map(|hash| self.stripe(hash)).collect();
        stripes.sort_unstable();
        stripes.dedup();
        let all = match self.all.try_read() {
            Ok(all) => all,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(NotLocked::Whole),
        };
        // A reservation begins while nobody has `all`, whose lock makes it visible. Its end pairs with this.
        if self.is_reserved.load(Ordering::Acquire)
            && lock(&self.reservation).as_ref().is_some_and(|reserved| reserved.keeps_from(hashes, writes))
        {
            return Err(NotLocked::Reserved);
        }
        let mut locked = Vec::with_capacity(stripes.len());
        for lock in stripes.iter().filter_map(|&stripe| self.stripes.get(stripe)) {
            locked.push(if writes {
                Stripe::Own(lock.write().unwrap_or_else(PoisonError::into_inner))
            } else {
                Stripe::Shared(lock.read().unwrap_or_else(PoisonError::into_inner))
            });
        }
        Ok(Locked { _stripes: locked, _all: Some(All::Shared(all)), ..Locked::nothing() })
    }

    /// Locks all keys.
    ///
    /// # Errors
    /// See [`NotLocked`].
    pub fn try_lock_all(&self) -> Result<Locked<'_>, NotLocked> {
        let whole = match self.whole.try_lock() {
            Ok(whole) => whole,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(NotLocked::Whole),
        };
        // Nobody reserves keys without `whole`.
        if self.is_reserved() {
            return Err(NotLocked::Reserved);
        }
        let all = All::Own(self.all.write().unwrap_or_else(PoisonError::into_inner));
        Ok(Locked { _all: Some(all), _whole: Some(whole), ..Locked::nothing() })
    }

    /// Reserves keys for work that takes long.
    ///
    /// # Errors
    /// See [`NotLocked`].
    pub fn try_reserve(&self, reservation: Reservation) -> Result<Locked<'_>, NotLocked> {
        // Threads that have locked stripes release them soon, and threads that come later see the reservation.
        let _everything = self.try_lock_all()?;
        let mut reserved = lock(&self.reservation);
        *reserved = Some(reservation);
        self.is_reserved.store(true, Ordering::Relaxed);
        Ok(Locked { _reserved: Some(Reserved(self)), ..Locked::nothing() })
    }

    /// Whether a key with this hash is reserved, so that nobody else may change it now.
    #[must_use]
    pub fn keeps(&self, hash: u64) -> bool {
        lock(&self.reservation).as_ref().is_some_and(|reserved| reserved.keeps_from(std::iter::once(hash), true))
    }

    /// Whether keys are reserved.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        lock(&self.reservation).is_some()
    }
}

impl Locked<'_> {
    /// Locks nothing, for work that touches no key.
    #[must_use]
    pub const fn nothing() -> Self {
        Self { _stripes: Vec::new(), _all: None, _whole: None, _reserved: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_keeps_others_from_its_keys_alone() {
        let locks = Locks::new(1);
        let may = |keys: &[u64], writes| locks.try_lock(keys.iter().copied(), writes).map(|_| ());
        let reserve = |writes, reads_others| {
            let keys = BTreeSet::from([3, 5]);
            locks.try_reserve(Reservation { keys, writes, reads_others }).unwrap()
        };
        let kept = Err(NotLocked::Reserved);
        for (writes, reads_others, read, write, write_other) in [
            (true, false, kept, kept, Ok(())),
            (false, false, Ok(()), kept, Ok(())),
            (false, true, Ok(()), kept, kept),
            (true, true, kept, kept, kept),
        ] {
            let reserved = reserve(writes, reads_others);
            assert_eq!([may(&[3], false), may(&[5, 9], false)], [read; 2]);
            assert_eq!([may(&[5], true), may(&[1, 3], true)], [write; 2]);
            assert_eq!([may(&[4], true), may(&[7, 6], true)], [write_other; 2]);
            // A run that names no key changes none.
            assert_eq!([may(&[4], false), may(&[], false), may(&[], true)], [Ok(()); 3]);
            assert_eq!(locks.try_lock_all().map(|_| ()), kept);
            assert_eq!(locks.try_reserve(Reservation::default()).map(|_| ()), kept);
            drop(reserved);
            assert_eq!([may(&[3], true), locks.try_lock_all().map(|_| ())], [Ok(()); 2]);
        }
        let _all = locks.try_lock_all().unwrap();
        assert_eq!(
            [may(&[3], false), locks.try_reserve(Reservation::default()).map(|_| ())],
            [Err(NotLocked::Whole); 2]
        );
    }
}
