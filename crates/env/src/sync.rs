//! Synchronisation primitives that a model checker can replace: the standard library's, loom's
//! under `--cfg loom`, shuttle's under `--cfg shuttle`.
//!
//! Lock-free code takes its atomics from here and nowhere else.

#[cfg(loom)]
pub use loom::{
    hint,
    sync::{Arc, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, atomic},
    thread,
};

#[cfg(all(shuttle, not(loom)))]
pub use shuttle::{
    hint,
    sync::{Arc, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, atomic},
    thread,
};

#[cfg(not(any(loom, shuttle)))]
pub use std::{
    hint,
    sync::{Arc, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, atomic},
    thread,
};

/// Locks `mutex`, even if a thread panicked while it held the mutex: the data that Forebay guards
/// by a mutex is whole between any two statements that may panic.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Gives way while waiting for another thread: a hint to the core for the first few rounds, then
/// to the scheduler. With few cores, the thread that is waited for may not be running.
#[inline]
pub fn relax(round: &mut u32) {
    #[cfg(any(loom, shuttle))]
    thread::yield_now();
    #[cfg(not(any(loom, shuttle)))]
    if *round < 64 {
        hint::spin_loop();
    } else {
        thread::yield_now();
    }
    *round = round.saturating_add(1);
}
