//! A shared value that is replaced occasionally and loaded constantly: a shard's current memtable, or the set of its
//! memtables.
//!
//! Loading takes no lock and writes only one line that no other thread writes at that time: a hazard slot, in which the
//! reader announces the value that it uses. A thread that replaces a value keeps the old one until no slot names it. (A
//! reference count would also work, but all threads would write its line twice for each operation.)
//!
//! Slots come in groups. A reader that finds all slots in use adds a group and goes on: no load waits for another one,
//! however long readers keep their values. Groups stay until the switch is dropped.
//!
//! The kernel of the write path:
//!
//! ```text
//!   loop   memtable = switch.load()
//!          memtable.reserve(…)
//!            Fits      insert; publish; done
//!            Crossed   make the next memtable, based at the final count; reserve in it first, so
//!                      that this writer gets on; switch.replace(next); insert; publish; done
//!            Full      memtable.wait_replaced(); again
//! ```
//!
//! # Who owns what
//!
//! | thing | states | who changes it |
//! |---|---|---|
//! | slot | null → value → (another value →) null | null → value: any reader, by compare-and-swap; then only that reader until null |
//! | group of slots | own → linked → freed | own → linked: the reader that made it, by compare-and-swap; → freed: the switch's drop |
//! | value | current → retired → dropped | current → retired: `replace`; → dropped: `reclaim`, under the lock |
//!
//! # Invariants
//!
//! 1. A reader uses a value only after three steps: it has put the value into its slot, executed a sequentially
//!    consistent fence, and then seen that the value is still current.
//! 2. A value is dropped only after three steps: it stopped being current, then came a sequentially consistent fence,
//!    then no slot was seen to hold it. One of the two fences is first. If it is the reader's, the reclaimer sees the
//!    slot. If it is the reclaimer's, the reader sees that the value is not current.
//! 3. A slot is cleared with release after the last use, and the reclaimer's load acquires. So uses happen before the
//!    drop, also when the slot has moved on to another value. The next reader claims it by a compare-and-swap, which
//!    continues the release sequence. What that reader stores later follows its fence, which acquires what the claim
//!    read.
//! 4. A value's address is not reused while a slot names it, so comparing addresses suffices.
//! 5. A group of slots is linked before the fence of a reader that has a slot of it, and stays linked. So a reclaimer
//!    whose fence comes after the reader's finds the slot.

use crate::padded::Padded;
use crate::planted::{Bug, planted};
use forebay_env::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    fence,
};
use forebay_env::sync::{Arc, Mutex, lock, relax};
use std::cell::Cell;
use std::fmt;
use std::ops::Deref;
use std::ptr;
use std::{array, iter};

/// Slots of a group. Few under the model checkers and Miri, so that they see several groups.
const SLOTS: usize = if cfg!(any(loom, shuttle, miri)) { 2 } else { 64 };

/// See the module.
pub struct Switch<T> {
    current: Padded<AtomicPtr<Arc<T>>>,
    slots: Box<Slots<T>>,
    retired: Mutex<Vec<Retired<T>>>,
}

/// A group of slots, and the groups that were added because all its slots were in use.
struct Slots<T> {
    slots: [Padded<AtomicPtr<Arc<T>>>; SLOTS],
    /// The next group, or null.
    next: AtomicPtr<Self>,
}

/// A value that is no longer current. The list that contains it owns it.
struct Retired<T>(*mut Arc<T>);

// SAFETY: it owns an `Arc<T>`, which may be sent if `T` may be shared and sent.
unsafe impl<T: Send + Sync> Send for Retired<T> {}

/// A loaded value, which stays alive while the guard does. Hold it only briefly: it occupies a slot and keeps the
/// value's memory. Clone the `Arc` to keep the value longer.
#[must_use]
pub struct Guard<'s, T> {
    switch: &'s Switch<T>,
    slot: &'s AtomicPtr<Arc<T>>,
    value: *mut Arc<T>,
}

impl<T: Send + Sync> Switch<T> {
    /// A switch whose current value is `value`.
    #[must_use]
    pub fn new(value: Arc<T>) -> Self {
        Self {
            current: Padded(AtomicPtr::new(Box::into_raw(Box::new(value)))),
            slots: Slots::new(),
            retired: Mutex::new(Vec::new()),
        }
    }

    /// The current value. Waits for no other thread.
    #[inline]
    pub fn load(&self) -> Guard<'_, T> {
        // Relaxed: not used before it is checked below.
        let mut value = self.current.0.load(Relaxed);
        let slot = self.claim(value);
        loop {
            if !planted(Bug::UnfencedHazard) {
                // Pairs with the fence in `reclaim` (invariants 2, 5).
                fence(SeqCst);
            }
            // Acquire: pairs with the release in `replace`, so that the value's contents are visible.
            let now = self.current.0.load(Acquire);
            if planted(Bug::UncheckedHazard) {
                return Guard { switch: self, slot, value };
            }
            if now == value {
                // `now`: `value` may have been loaded for an earlier value at the same address.
                return Guard { switch: self, slot, value: now };
            }
            value = now;
            slot.store(value, Release);
        }
    }

    /// Takes a free slot and puts `value` into it.
    #[inline]
    fn claim(&self, value: *mut Arc<T>) -> &AtomicPtr<Arc<T>> {
        let hint = slot_hint();
        let slot = self.slots.at(hint);
        if try_claim(slot, value) { slot } else { self.slots.claim(hint, value) }
    }

    /// Makes `value` the current one and returns the previous one, which is dropped when nobody uses it any more.
    pub fn replace(&self, value: Arc<T>) -> Arc<T> {
        let new = Box::into_raw(Box::new(value));
        let old = {
            let mut retired = lock(&self.retired);
            // Release: pairs with `load`. Acquire: other threads wrote the target of `old`.
            let old = self.current.0.swap(new, AcqRel);
            retired.push(Retired(old));
            // SAFETY: `old` was current until now, and nobody drops what is retired without the
            // lock, which is held.
            unsafe { &*old }.clone()
        };
        self.reclaim();
        old
    }

    /// Drops replaced values that no guard uses. `replace` does so too. Call this where the memory of the last replaced
    /// value should not wait for the next replacement.
    pub fn reclaim(&self) {
        let mut unused = Vec::new();
        {
            let mut retired = lock(&self.retired);
            // Pairs with the fence in `load` (invariants 2, 5).
            fence(SeqCst);
            let seen = if planted(Bug::ForgottenSlots) { SLOTS } else { usize::MAX };
            retired.retain(|value| {
                // Acquire: pairs with the release of the guard's drop (invariant 3).
                let used = self.slots.iter().take(seen).any(|slot| slot.load(Acquire) == value.0);
                if !used {
                    unused.push(value.0);
                }
                used
            });
        }
        for value in unused {
            // SAFETY: made by `Box::into_raw`; no longer current, not in the list, in no slot, and
            // so (invariant 2) nobody uses it or will.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

impl<T> Slots<T> {
    /// Free slots.
    fn new() -> Box<Self> {
        let slots = array::from_fn(|_| Padded(AtomicPtr::new(ptr::null_mut())));
        Box::new(Self { slots, next: AtomicPtr::new(ptr::null_mut()) })
    }

    /// Slot `index`, counted round this group.
    #[inline]
    fn at(&self, index: usize) -> &AtomicPtr<Arc<T>> {
        &self.slots[index % SLOTS].0
    }

    /// The slots of this group and of all that follow.
    fn iter(&self) -> impl Iterator<Item = &AtomicPtr<Arc<T>>> {
        iter::successors(Some(self), |group| group.next()).flat_map(|group| &group.slots).map(|slot| &slot.0)
    }

    /// Takes a free slot, from `hint` on, and puts `value` into it. Adds slots when none is free.
    #[cold]
    fn claim(&self, hint: usize, value: *mut Arc<T>) -> &AtomicPtr<Arc<T>> {
        let mut group = self;
        loop {
            for slot in (hint..hint + SLOTS).map(|index| group.at(index)) {
                // Relaxed: `try_claim` looks again. A compare-and-swap that fails would also take the line from the
                // slot's user.
                if slot.load(Relaxed).is_null() && try_claim(slot, value) {
                    return slot;
                }
            }
            group = group.next().unwrap_or_else(|| group.extend());
        }
    }

    /// The next group.
    fn next(&self) -> Option<&Self> {
        // Acquire: pairs with the release in `extend`, so that the group's contents are visible.
        let next = self.next.load(Acquire);
        // SAFETY: null, or made by `Box::into_raw` and linked. Linked groups are freed only when this one is dropped.
        unsafe { next.as_ref() }
    }

    /// Links another group after this one, unless another thread does so first. Returns the next group.
    fn extend(&self) -> &Self {
        let own = Box::into_raw(Self::new());
        // Release: pairs with the acquiring loads here and in `next`.
        match self.next.compare_exchange(ptr::null_mut(), own, Release, Acquire) {
            // SAFETY: made above and linked. Linked groups are freed only when this one is dropped.
            Ok(_) => unsafe { &*own },
            Err(next) => {
                // SAFETY: made above and not linked, so nobody else knows it.
                drop(unsafe { Box::from_raw(own) });
                // SAFETY: linked by another thread, as above.
                unsafe { &*next }
            }
        }
    }
}

/// Puts `value` into a slot if the slot is free.
#[inline]
fn try_claim<T>(slot: &AtomicPtr<Arc<T>>, value: *mut Arc<T>) -> bool {
    // Release: continues the release sequence of the slot's last user (invariant 3).
    slot.compare_exchange(ptr::null_mut(), value, Release, Relaxed).is_ok()
}

impl<T> Guard<'_, T> {
    /// Whether another value has become current.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        // Acquire: events that led to the replacement are visible. Addresses are unique (invariant 4).
        self.switch.current.0.load(Acquire) != self.value
    }

    /// Waits until another value is current.
    pub fn wait_replaced(&self) {
        let mut round = 0;
        while !self.is_replaced() {
            relax(&mut round);
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = Arc<T>;

    #[inline]
    fn deref(&self) -> &Arc<T> {
        // SAFETY: protected by the slot from before it was seen to be current (invariants 1, 2).
        unsafe { &*self.value }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the acquiring load in `reclaim` (invariant 3).
        let order = if planted(Bug::RelaxedClear) { Relaxed } else { Release };
        self.slot.store(ptr::null_mut(), order);
    }
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        let next = self.next.load(Relaxed);
        if !next.is_null() {
            // SAFETY: made by `Box::into_raw`, owned by this group, and no guard is left, since guards
            // borrow the switch.
            drop(unsafe { Box::from_raw(next) });
        }
    }
}

impl<T> Drop for Switch<T> {
    fn drop(&mut self) {
        let retired = std::mem::take(&mut *lock(&self.retired));
        for value in retired.into_iter().map(|value| value.0).chain([self.current.0.load(Relaxed)]) {
            // SAFETY: made by `Box::into_raw`, owned by the switch, and no guard is left, since
            // guards borrow the switch.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

impl<T: Send + Sync + fmt::Debug> fmt::Debug for Switch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Switch").field(&**self.load()).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for Guard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&**self).finish()
    }
}

/// The index at which this thread starts to look for a free slot, so that threads rarely collide.
fn slot_hint() -> usize {
    static THREADS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    std::thread_local! {
        static HINT: Cell<Option<usize>> = const { Cell::new(None) };
    }
    HINT.get().unwrap_or_else(|| {
        let hint = THREADS.fetch_add(1, Relaxed);
        HINT.set(Some(hint));
        hint
    })
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;

    /// Counts its drops.
    struct Counted<'a>(u64, &'a AtomicUsize);

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.1.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn a_value_lives_as_long_as_its_guards() {
        let drops = AtomicUsize::new(0);
        let dropped = || drops.load(Relaxed);
        let switch = Switch::new(Arc::new(Counted(1, &drops)));
        let first = switch.load();
        assert!(!first.is_replaced());
        drop(switch.replace(Arc::new(Counted(2, &drops))));
        assert!(first.is_replaced());
        let second = switch.load();
        assert_eq!((first.0, second.0, dropped()), (1, 2, 0));
        drop(first);
        switch.reclaim();
        assert_eq!(dropped(), 1);
        let kept = Arc::clone(&second);
        drop(second);
        drop(switch);
        assert_eq!((dropped(), kept.0), (1, 2));
        drop(kept);
        assert_eq!(dropped(), 2);
    }

    #[test]
    fn more_threads_than_replacements() {
        let rounds = if cfg!(miri) { 5 } else { 3_000 };
        let drops = AtomicUsize::new(0);
        let switch = Switch::new(Arc::new(Counted(0, &drops)));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut last = 0;
                    while last < rounds {
                        let now = switch.load().0;
                        assert!(now >= last);
                        last = now;
                        std::thread::yield_now();
                    }
                });
            }
            for i in 1..=rounds {
                switch.replace(Arc::new(Counted(i, &drops)));
            }
        });
        switch.reclaim();
        assert_eq!(drops.load(Relaxed) as u64, rounds);
    }

    #[test]
    fn more_guards_than_slots() {
        const GUARDS: usize = 3 * SLOTS + 1;
        let drops = AtomicUsize::new(0);
        let switch = Switch::new(Arc::new(Counted(0, &drops)));
        let mut next = 0;
        let mut hold = || -> Vec<_> {
            let load = |_| {
                let guard = switch.load();
                assert!(!guard.is_replaced());
                next += 1;
                drop(switch.replace(Arc::new(Counted(next, &drops))));
                assert!(guard.is_replaced());
                guard
            };
            (0..GUARDS).map(load).collect()
        };
        let held = hold();
        assert_eq!(drops.load(Relaxed), 0);
        assert!(held.iter().map(|guard| guard.0).eq(0..GUARDS as u64));
        let (kept, dropped): (Vec<_>, Vec<_>) = held.into_iter().partition(|guard| guard.0 % 2 == 0);
        let dropped_count = dropped.len();
        drop(dropped);
        switch.reclaim();
        assert_eq!(drops.load(Relaxed), dropped_count);
        assert!(kept.iter().map(|guard| guard.0).eq((0..GUARDS as u64).step_by(2)));
        drop(kept);
        drop(hold());
        switch.reclaim();
        assert_eq!(drops.load(Relaxed), 2 * GUARDS);
        assert_eq!(switch.slots.iter().count(), 4 * SLOTS, "slots are used again");
    }

    #[test]
    fn more_threads_than_slots_load_at_once() {
        const THREADS: usize = 2 * SLOTS + 1;
        let drops = AtomicUsize::new(0);
        let switch = Switch::new(Arc::new(Counted(0, &drops)));
        // Each thread keeps its value until all of them have one.
        let all = Barrier::new(THREADS + 1);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let guard = switch.load();
                    all.wait();
                    guard.wait_replaced();
                    let seen = (guard.0, drops.load(Relaxed));
                    all.wait();
                    assert_eq!(seen, (0, 0));
                });
            }
            all.wait();
            drop(switch.replace(Arc::new(Counted(1, &drops))));
            all.wait();
        });
        switch.reclaim();
        assert_eq!((drops.load(Relaxed), switch.load().0), (1, 1));
    }
}
