//! Threads, one of which runs at a time. A seed decides which one, so that a run can be repeated.

use forebay_env::Random;
use forebay_env::sync::lock;
use std::cell::Cell;
use std::sync::{Condvar, Mutex, PoisonError};

thread_local! {
    /// The number of this thread.
    static OWN: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Longest time that a thread is kept from running, in turns of others.
const LONGEST_SLEEP: u64 = 600;

/// See the module.
#[derive(Debug)]
pub(crate) struct Turns {
    state: Mutex<State>,
    changed: Vec<Condvar>,
}

#[derive(Debug)]
struct State {
    random: Random,
    /// Threads that have not ended, each with the turn before which it does not run.
    living: Vec<(usize, u64)>,
    running: Option<usize>,
    turn: u64,
}

/// Ends a thread's turns, also when it panics.
struct Leaving<'a>(&'a Turns, usize);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.living.retain(|(thread, _)| *thread != self.1);
        self.0.choose(&mut state);
        OWN.set(None);
    }
}

impl Turns {
    pub(crate) fn new(seed: u64, threads: usize) -> Self {
        let state = State { random: Random::seeded(seed), living: Vec::new(), running: None, turn: 0 };
        Self { state: Mutex::new(state), changed: (0..threads).map(|_| Condvar::new()).collect() }
    }

    /// Runs `body` on each of the threads, with its number. Returns when all have ended; `None` for those
    /// that panicked.
    pub(crate) fn run<T: Send>(&self, body: impl Fn(usize) -> T + Sync) -> Vec<Option<T>> {
        lock(&self.state).living = (0..self.changed.len()).map(|thread| (thread, 0)).collect();
        let mut state = lock(&self.state);
        self.choose(&mut state);
        drop(state);
        forebay_env::thread::run_all((0..=self.changed.len()).collect(), |place| {
            // The caller's own thread has the place 0, and only waits.
            let thread = place.checked_sub(1)?;
            let _leaving = Leaving(self, thread);
            OWN.set(Some(thread));
            self.wait(thread);
            Some(body(thread))
        })
        .into_iter()
        .skip(1)
        .map(Option::flatten)
        .collect()
    }

    /// May let another thread run. Does nothing on threads that do not take turns.
    pub(crate) fn pass(&self) {
        let Some(own) = OWN.get() else { return };
        let mut state = lock(&self.state);
        state.turn += 1;
        if state.random.one_in(1, 200) {
            let sleep = state.random.below(LONGEST_SLEEP);
            let until = state.turn + sleep;
            state.living.iter_mut().filter(|(thread, _)| *thread == own).for_each(|(_, wake)| *wake = until);
        } else if state.random.one_in(1, 3) {
            return;
        }
        self.choose(&mut state);
        let stays = state.running == Some(own);
        drop(state);
        if !stays {
            self.wait(own);
        }
    }

    fn choose(&self, state: &mut State) {
        let turn = state.turn;
        let awake = state.living.iter().filter(|(_, wake)| *wake <= turn).count() as u64;
        let next = if awake > 0 {
            let pick = state.random.below(awake) as usize;
            state.living.iter().filter(|(_, wake)| *wake <= turn).nth(pick)
        } else {
            state.living.iter().min_by_key(|(_, wake)| *wake)
        };
        state.running = next.map(|(thread, _)| *thread);
        if let Some(changed) = state.running.and_then(|thread| self.changed.get(thread)) {
            changed.notify_one();
        }
    }

    fn wait(&self, thread: usize) {
        let Some(changed) = self.changed.get(thread) else { return };
        let mut state = lock(&self.state);
        while state.running != Some(thread) {
            state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_runs_at_a_time_and_the_order_hangs_on_the_seed() {
        let order = |seed| {
            let turns = Turns::new(seed, 4);
            let order = Mutex::new(Vec::new());
            let ended = turns.run(|thread| {
                for _ in 0..50 {
                    lock(&order).push(thread);
                    turns.pass();
                }
                assert!(thread != 2, "one panics");
            });
            assert_eq!(ended, [Some(()), Some(()), None, Some(())]);
            order.into_inner().unwrap()
        };
        let first = order(7);
        assert_eq!(first.len(), 200);
        assert_eq!(first, order(7));
        assert_ne!(first, order(8));
    }
}
