//! Threads.

use crate::sync::{Mutex, lock};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
pub use std::thread::JoinHandle;

std::thread_local! {
    static TURN: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Returns the calling thread's turn, which spreads threads over several of a kind, such as copies of data. Threads that
/// ask get consecutive numbers, each always the same.
#[inline]
pub fn turn() -> usize {
    TURN.get().unwrap_or_else(next_turn)
}

#[cold]
fn next_turn() -> usize {
    static TURNS: AtomicUsize = AtomicUsize::new(0);
    let turn = TURNS.fetch_add(1, Ordering::Relaxed);
    set_turn(turn);
    turn
}

/// Gives the calling thread this turn: for simulations and tests, which must do the same in each run.
pub fn set_turn(turn: usize) {
    TURN.set(Some(turn));
}

/// Runs `work` on every item, each on a thread of its own. The first item runs on the caller's thread, as do items for
/// which the operating system starts no thread. Returns the results in order when all have ended; `None` for one that
/// panicked.
pub fn run_all<I: Send, T: Send>(items: Vec<I>, work: impl Fn(I) -> T + Sync) -> Vec<Option<T>> {
    run_all_with(items, work, std::thread::Builder::new)
}

fn run_all_with<I: Send, T: Send>(
    items: Vec<I>,
    work: impl Fn(I) -> T + Sync,
    builder: impl Fn() -> std::thread::Builder,
) -> Vec<Option<T>> {
    // A thread that fails to start leaves its item here.
    let items: Vec<_> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
    let run = |item: &Mutex<Option<I>>| {
        let item = lock(item).take();
        item.map(&work)
    };
    std::thread::scope(|scope| {
        let run = &run;
        let caught = |item: &Mutex<Option<I>>| catch_unwind(AssertUnwindSafe(|| run(item))).ok().flatten();
        let started: Vec<_> = items
            .iter()
            .enumerate()
            .map(|(at, item)| (at > 0).then(|| builder().spawn_scoped(scope, move || run(item)).ok()).flatten())
            .collect();
        let here: Vec<_> =
            started.iter().zip(&items).map(|(thread, item)| thread.is_none().then(|| caught(item))).collect();
        let results = started.into_iter().zip(here);
        results.map(|(thread, here)| thread.map_or(here, |thread| thread.join().ok()).flatten()).collect()
    })
}

/// Runs `watch` on a thread of its own beside `body`, and returns what `body` returns when both have ended.
pub fn beside<T>(watch: impl FnOnce() + Send, body: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        scope.spawn(watch);
        body()
    })
}

/// Starts a named thread.
///
/// # Errors
/// When the operating system refuses.
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.into()).spawn(body)
}

/// Makes the calling thread give way to the machine's other threads. Where processors are short, it gets a third of the time
/// that one of them gets. For work that nobody waits for.
pub fn give_way() {
    const STEPS: i32 = 5;
    // Where this is not possible, the work is done nevertheless.
    #[cfg(not(miri))]
    let _ = rustix::process::nice(STEPS);
}

/// Runs `body` on `threads` threads at once, and returns what each made.
///
/// # Panics
/// When one of them panics.
pub fn side_by_side<T: Send>(threads: usize, body: impl Fn() -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(&body)).collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_take_turns() {
        let turns = side_by_side(4, || (turn(), turn()));
        assert!(turns.iter().all(|(first, again)| first == again));
        let different: std::collections::BTreeSet<_> = turns.iter().collect();
        assert_eq!(different.len(), 4);
        set_turn(7);
        assert_eq!(turn(), 7);
    }

    #[test]
    fn what_gets_no_thread_is_run_all_the_same() {
        assert_eq!(run_all(Vec::new(), |item: u32| item), []);
        let small = std::thread::Builder::new;
        // No address space has room for such a stack.
        let impossible = || std::thread::Builder::new().stack_size(usize::MAX >> 4);
        for results in [
            run_all_with(vec![1, 2, 3], |item| 2 * item, small),
            run_all_with(vec![1, 2, 3], |item| 2 * item, impossible),
        ] {
            assert_eq!(results, [Some(2), Some(4), Some(6)]);
        }
    }

    #[test]
    fn an_item_that_panics_has_no_result_whichever_it_is() {
        for bad in [1, 2] {
            let results = run_all(vec![1, 2, 3], |item| if item == bad { panic!("as told") } else { item });
            assert_eq!(results, [1, 2, 3].map(|item| (item != bad).then_some(item)));
        }
    }
}
