//! Group commit: of several threads that wait for durability, one makes the next step for all.

use super::frame::Position;
use crate::error::{Error, Result};
use forebay_base::ErrorKind;
use forebay_env::sync::{Condvar, Mutex, MutexGuard, lock};

/// How far a log is durable, and whether a thread is making more of it durable.
#[derive(Debug, Default)]
pub(super) struct Group {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    durable: Position,
    is_led: bool,
    /// Number of failed steps, and the error of the last one.
    failures: u64,
    error: Option<Error>,
    /// A step panicked. Nobody knows what it has done, so no other step is made.
    has_panicked: bool,
    steps: u64,
    waits: u64,
}

impl Group {
    pub fn durable(&self) -> Position {
        lock(&self.state).durable
    }

    /// Number of steps made, and of calls that waited for another thread's step.
    pub fn counts(&self) -> (u64, u64) {
        let state = lock(&self.state);
        (state.steps, state.waits)
    }

    /// Returns when the log is durable up to `position`, which was appended. `step` makes more of it durable (if it can,
    /// all that was appended before) and returns up to where. One thread at a time calls it. When it fails, all waiting
    /// threads fail. When it panics, they and all later calls fail.
    pub fn reach(&self, position: Position, step: impl Fn() -> Result<Position>) -> Result<()> {
        let mut state = lock(&self.state);
        let failures = state.failures;
        let mut has_waited = false;
        loop {
            if state.durable >= position {
                return Ok(());
            }
            if (state.has_panicked || state.failures != failures)
                && let Some(error) = &state.error
            {
                return Err(error.clone());
            }
            if state.is_led {
                state.waits += u64::from(!std::mem::replace(&mut has_waited, true));
                state = self.wait(state);
                continue;
            }
            state.is_led = true;
            drop(state);
            let mut leader = Leader { group: self, reached: None };
            leader.reached = Some(step());
            drop(leader);
            state = lock(&self.state);
        }
    }

    /// Why no step is made any more: one panicked.
    pub fn failure(&self) -> Option<Error> {
        let state = lock(&self.state);
        state.error.clone().filter(|_| state.has_panicked)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The thread that makes a step. Those who wait for it are told, even if it panics.
struct Leader<'a> {
    group: &'a Group,
    reached: Option<Result<Position>>,
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.group.state);
        state.is_led = false;
        state.steps += 1;
        state.has_panicked = self.reached.is_none();
        let reached = self.reached.take().unwrap_or_else(|| {
            let detail = "the thread that made it durable panicked, which is a bug: report it, and begin another log";
            Err(Error::new(ErrorKind::Io, "sync", "the log", detail))
        });
        match reached {
            Ok(reached) => state.durable = state.durable.max(reached),
            Err(error) => {
                state.failures += 1;
                state.error = Some(error);
            }
        }
        self.group.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn all_waiters_share_the_next_step() {
        const WAITERS: u64 = 16;
        let (group, steps, appended) = (Group::default(), AtomicU64::new(0), AtomicU64::new(0));
        let barrier = Barrier::new(WAITERS as usize);
        std::thread::scope(|scope| {
            for _ in 0..WAITERS {
                scope.spawn(|| {
                    let position = appended.fetch_add(1, Ordering::SeqCst) + 1;
                    barrier.wait();
                    let step = || {
                        steps.fetch_add(1, Ordering::SeqCst);
                        Ok(appended.load(Ordering::SeqCst))
                    };
                    group.reach(position, step).unwrap();
                });
            }
        });
        assert_eq!((steps.into_inner(), group.durable()), (1, WAITERS));
    }

    #[test]
    fn a_failed_step_fails_its_waiters_and_the_next_call_tries_again() {
        let group = Group::default();
        let failed = group.reach(1, || Err(Error::new(ErrorKind::Unavailable, "put", "log/1", "gone")));
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Unavailable);
        group.reach(1, || Ok(1)).unwrap();
        group.reach(1, || unreachable!("it is durable")).unwrap();
    }

    #[test]
    fn a_step_that_panics_fails_its_waiters_and_all_later_calls() {
        let group = Group::default();
        group.reach(1, || Ok(1)).unwrap();
        let (is_led, may_panic) = (Barrier::new(2), Barrier::new(2));
        let kinds = std::thread::scope(|scope| {
            let leader = scope.spawn(|| {
                group.reach(2, || {
                    is_led.wait();
                    may_panic.wait();
                    panic!("planted");
                })
            });
            is_led.wait();
            let waiter = scope.spawn(|| group.reach(2, || unreachable!("no other step is made")));
            while group.counts().1 == 0 {
                std::thread::yield_now();
            }
            may_panic.wait();
            assert!(leader.join().is_err());
            let later = group.reach(2, || unreachable!("no other step is made"));
            [waiter.join().unwrap(), later].map(|result| result.unwrap_err().kind())
        });
        assert_eq!((kinds, group.durable()), ([ErrorKind::Io; 2], 1));
        assert!(group.failure().is_some_and(|error| error.to_string().contains("panicked")));
        group.reach(1, || unreachable!("it is durable")).unwrap();
    }
}
