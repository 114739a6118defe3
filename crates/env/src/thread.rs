//! Threads.

pub use std::thread::JoinHandle;

/// Runs `work` on every item, each on a thread of its own but the first, which runs on the caller's.
/// Returns the results in order when all have ended; `None` for one that panicked.
pub fn run_all<I: Send, T: Send>(items: Vec<I>, work: impl Fn(I) -> T + Sync) -> Vec<Option<T>> {
    let mut items = items.into_iter();
    let Some(first) = items.next() else { return Vec::new() };
    std::thread::scope(|scope| {
        let work = &work;
        let others: Vec<_> = items.map(|item| scope.spawn(move || work(item))).collect();
        let first = Some(work(first));
        std::iter::once(first).chain(others.into_iter().map(|other| other.join().ok())).collect()
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

/// Has the calling thread give way to others of the machine, where processors are short: it gets a third of what one of them
/// gets. For work that nobody waits for.
pub fn give_way() {
    const STEPS: i32 = 5;
    // Where this is not possible, the work is done all the same.
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
