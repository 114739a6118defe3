use super::*;
use crate::{ErrorKind, Options};
use forebay_engine::{Durability, Syncing};
use forebay_env::sync::{Mutex, lock};
use forebay_env::{Clock, Nanos, SystemClock};
use futures_util::future::{join, join_all, poll_immediate};
use futures_util::{StreamExt, TryStreamExt};
use std::future::Future;
use std::sync::mpsc;
use std::task::{Wake, Waker};
use std::thread::ThreadId;
use std::time::Duration;

/// Runs a future on a runtime of one thread: a call that blocked the thread would hold up everything.
fn on_one_thread<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn in_memory() -> AsyncStore {
    Store::embedded(64 << 20, Options::default()).unwrap().into()
}

fn options(syncing: Syncing) -> DirectoryOptions {
    let database = Options { durability: Durability::Storage(syncing), ..Options::default() };
    DirectoryOptions { memory_bytes: 64 << 20, database }
}

#[test]
fn calls_do_what_those_of_a_store_do() {
    on_one_thread(async {
        let store = in_memory();
        store.put("a", "1").await.unwrap();
        let before = store.snapshot().await.unwrap();
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"2").put(b"b", b"3").put(b"c", b"4");
        store.write(batch).await.unwrap();
        store.delete("c").await.unwrap();
        assert_eq!(store.get("a").await.unwrap().as_deref(), Some(&b"2"[..]));
        assert_eq!(store.get_at("a", &before).await.unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(store.multi_get(["b", "c"]).await.unwrap(), [Some(b"3".to_vec()), None]);
        store.flush().await.unwrap();
        let all: Vec<_> = store.range::<&str>(..).await.unwrap().try_collect().await.unwrap();
        assert_eq!(all, [("a", "2"), ("b", "3")].map(|(key, value)| (Bytes::from(key), Bytes::from(value))));
        assert_eq!(store.prefix("b").await.unwrap().count().await, 1);
        // Any other call, and its errors.
        let refused = store.run(|store| store.delete_range(b"b", b"a")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        let mut batch = WriteBatch::new();
        batch.require_absent(b"a").put(b"a", b"5");
        assert_eq!(store.write(batch).await.unwrap_err().kind(), ErrorKind::Conflict);
        store.close().await.unwrap();
        assert_eq!(store.get("a").await.unwrap_err().kind(), ErrorKind::Closed);
    });
}

#[test]
fn a_call_that_takes_long_holds_up_nobody() {
    on_one_thread(async {
        let store = in_memory();
        let (go_on, waits) = mpsc::channel();
        let long = store.run(move |_| Ok::<_, Error>(waits.recv().unwrap()));
        let other = async {
            store.put("key", "value").await.unwrap();
            go_on.send(7).unwrap();
        };
        assert_eq!(join(long, other).await.0.unwrap(), 7);
    });
}

#[test]
fn a_call_that_is_given_up_is_made_whole_or_not_at_all() {
    on_one_thread(async {
        let store = in_memory();
        drop(store.put("never", "begun"));
        let ((go_on, waits), (begins, begun), (ends, ended)) = (mpsc::channel(), mpsc::channel(), mpsc::channel());
        let mut put = Box::pin(store.run(move |store| {
            begins.send(()).unwrap();
            waits.recv().unwrap();
            store.put(b"begun", b"and made")?;
            ends.send(()).unwrap();
            Ok::<_, Error>(())
        }));
        assert!(poll_immediate(&mut put).await.is_none());
        begun.recv().unwrap();
        drop(put);
        go_on.send(()).unwrap();
        ended.recv().unwrap();
        assert_eq!(store.multi_get(["never", "begun"]).await.unwrap(), [None, Some(b"and made".to_vec())]);
    });
}

#[test]
fn many_calls_share_syncs() {
    const WRITES: u64 = 400;
    let folder = tempfile::tempdir().unwrap();
    on_one_thread(async {
        let store = AsyncStore::open_with(folder.path(), options(Syncing::Sync)).await.unwrap();
        let before = store.run(|store| Ok::<_, Error>(store.statistics().log.groups)).await.unwrap();
        let puts = (0..WRITES).map(|number| store.put(number.to_be_bytes(), "value"));
        join_all(puts).await.into_iter().for_each(|put| put.unwrap());
        let groups = store.run(|store| Ok::<_, Error>(store.statistics().log.groups)).await.unwrap() - before;
        assert!(groups < WRITES, "{groups} groups of {WRITES} writes");
        store.close().await.unwrap();
        let again = AsyncStore::open_with(folder.path(), options(Syncing::Sync)).await.unwrap();
        assert_eq!(again.range::<&str>(..).await.unwrap().count().await, WRITES as usize);
    });
}

#[test]
fn the_last_one_closes_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Store::open_with(folder.path(), options(Syncing::Interval(std::time::Duration::from_secs(1))));
    on_one_thread(async {
        let store = AsyncStore::from(open().unwrap());
        let clone = store.clone();
        store.put("key", "value").await.unwrap();
        drop(store);
        assert_eq!(clone.get("key").await.unwrap().as_deref(), Some(&b"value"[..]));
        assert_eq!(open().unwrap_err().kind(), ErrorKind::Busy);
    });
    let opened = (0..).find_map(|_| {
        std::thread::yield_now();
        open().ok()
    });
    assert_eq!(opened.unwrap().get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
}

/// A clock that remembers which threads have asked it.
#[derive(Debug, Default)]
struct Asked {
    clock: SystemClock,
    by: Mutex<Vec<ThreadId>>,
}

impl Clock for Asked {
    fn now(&self) -> Nanos {
        let (thread, mut by) = (std::thread::current().id(), lock(&self.by));
        if !by.contains(&thread) {
            by.push(thread);
        }
        self.clock.now()
    }

    fn wall_ms(&self) -> u64 {
        self.clock.wall_ms()
    }

    fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration);
    }
}

/// Says that a future can be polled again.
struct Says(mpsc::Sender<()>);

impl Wake for Says {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

#[test]
fn a_store_that_is_open_when_its_future_is_dropped_is_closed_by_the_pool() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::new(Asked::default()));
    let mut given = options(Syncing::Sync);
    given.database.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    let (says, said) = mpsc::channel();
    let waker = Waker::from(Arc::new(Says(says)));
    let mut opening = Box::pin(AsyncStore::open_with(folder.path(), given));
    {
        // Opening asks the clock, so it does not end before this does.
        let _held = lock(&clock.by);
        assert!(opening.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    said.recv().unwrap();
    lock(&clock.by).clear();
    drop(opening);
    // Closing ends a session, which asks the clock.
    assert!(!lock(&clock.by).contains(&std::thread::current().id()), "this thread closed the store");
    let opened = (0..).find_map(|_| {
        std::thread::yield_now();
        Store::open_with(folder.path(), options(Syncing::Sync)).ok()
    });
    assert!(opened.is_some());
}

/// Counts down, and says which thread drops it.
struct Countdown(u32, mpsc::Sender<ThreadId>);

impl Iterator for Countdown {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.0 = self.0.checked_sub(1)?;
        Some(self.0)
    }
}

impl Drop for Countdown {
    fn drop(&mut self) {
        let _ = self.1.send(std::thread::current().id());
    }
}

#[test]
fn what_a_stream_iterates_over_is_dropped_by_the_pool() {
    on_one_thread(async {
        let store = in_memory();
        // Before the first entry, in the middle, and at the end.
        for taken in [0, 1, 3] {
            let (dropped, by) = mpsc::channel();
            let mut stream = store.stream(move |_| Ok(Countdown(2, dropped))).await.unwrap();
            for _ in 0..taken {
                stream.next().await;
            }
            drop(stream);
            assert_ne!(by.recv().unwrap(), std::thread::current().id(), "after {taken}");
        }
    });
}
