//! The store for asynchronous code (feature `async`): no call blocks the thread that polls it.
//!
//! ```
//! # fn main() -> Result<(), forebay::Error> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path();
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! use forebay::AsyncStore;
//!
//! let store = AsyncStore::open(path).await?;
//! store.put(b"key", b"value").await?;
//! assert_eq!(store.get(b"key").await?.as_deref(), Some(&b"value"[..]));
//! store.close().await
//! # })
//! # }
//! ```
//!
//! Calls run on the threads of a pool, from the crate `blocking`. The pool has as many threads as there are calls in
//! progress, up to 500, and none when there are no calls. So any runtime will do. Writes that wait for the same sync
//! share it, as writes of threads do. A call goes to another thread and back, which takes longer than a read from
//! memory: for many small reads use [`multi_get`](AsyncStore::multi_get), a stream, or [`run`](AsyncStore::run), which
//! makes any number of calls of a [`Store`] at once.
//!
//! To drop the future of a call is to give the call up. A call that has not begun is not made. A call that has begun
//! runs to its end, and then the caller does not know whether a write was made, as when a reply is lost.

use crate::{DirectoryOptions, Entries, Error, Snapshot, Store, WriteBatch, WriteOptions};
use blocking::{Unblock, unblock};
use bytes::Bytes;
use futures_core::Stream;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// How many entries a stream reads ahead.
const READ_AHEAD: usize = 64;

/// A [`Store`] for asynchronous code. Clones are the same store.
///
/// When the last one is dropped, the pool closes the store, and nobody learns of errors: await [`close`](Self::close) first.
#[derive(Debug, Clone)]
pub struct AsyncStore(Shared);

/// The store, which is `Some` until this is dropped.
#[derive(Debug, Clone)]
struct Shared(Option<Arc<Store>>);

impl Drop for Shared {
    fn drop(&mut self) {
        // Dropping the last clone closes the store, which takes time.
        if let Some(store) = self.0.take().and_then(Arc::into_inner) {
            unblock(move || drop(store)).detach();
        }
    }
}

impl From<Store> for AsyncStore {
    fn from(store: Store) -> Self {
        Self(Shared(Some(Arc::new(store))))
    }
}

impl AsyncStore {
    /// As [`Store::open`]. To get a store of another kind, convert a [`Store`].
    ///
    /// # Errors
    /// Those of [`Store::open`].
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        // A future that is dropped once the store is open drops what this returns, and only an `AsyncStore` is then closed by
        // the pool.
        unblock(move || Store::open(path).map(Self::from)).await
    }

    /// As [`Store::open_with`].
    ///
    /// # Errors
    /// Those of [`Store::open_with`].
    pub async fn open_with(path: impl AsRef<Path>, options: DirectoryOptions) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        unblock(move || Store::open_with(path, options).map(Self::from)).await
    }

    /// Runs `body` with the store on a thread of the pool.
    ///
    /// # Errors
    /// Those of `body`.
    pub async fn run<T, E>(&self, body: impl FnOnce(&Store) -> Result<T, E> + Send + 'static) -> Result<T, Error>
    where
        T: Send + 'static,
        E: Into<Error> + Send + 'static,
    {
        let closed = || Error::Below { kind: crate::ErrorKind::Closed, message: "the store was dropped".to_owned() };
        let store = self.0.clone();
        unblock(move || store.0.as_deref().map_or_else(|| Err(closed()), |store| body(store).map_err(Into::into))).await
    }

    /// Returns a stream of what an iterator over the store gives. A thread of the pool reads up to 64 items ahead, however
    /// long they are. To hold only a few very long values at a time, iterate within [`run`](Self::run).
    ///
    /// ```
    /// # fn main() -> Result<(), forebay::Error> {
    /// # let store = forebay::AsyncStore::from(forebay::Store::embedded(64 << 20, forebay::Options::default())?);
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// use futures_util::TryStreamExt;
    ///
    /// store.put(b"a", b"1").await?;
    /// store.put(b"b", b"2").await?;
    /// let downwards = store.stream(|store| Ok(store.range("a"..)?.rev())).await?;
    /// let keys: Vec<_> = downwards.map_ok(|(key, _)| key).try_collect().await?;
    /// assert_eq!(keys, ["b", "a"]);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of `iterate`. The stream gives the iterator's errors.
    pub async fn stream<I>(
        &self,
        iterate: impl FnOnce(&Store) -> Result<I, Error> + Send + 'static,
    ) -> Result<AsyncEntries<I>, Error>
    where
        I: Iterator<Item: Send> + Send + 'static,
    {
        let iterator = self.run(move |store| iterate(store).map(|iterator| Pooled(Some(iterator)))).await?;
        Ok(AsyncEntries(Unblock::with_capacity(READ_AHEAD, iterator)))
    }

    /// As [`Db::get`](crate::Db::get).
    ///
    /// # Errors
    /// Those of `Db::get`.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        let key = key.as_ref().to_owned();
        self.run(move |store| store.get(&key)).await
    }

    /// As [`Db::get_at`](crate::Db::get_at).
    ///
    /// # Errors
    /// Those of `Db::get_at`.
    pub async fn get_at(&self, key: impl AsRef<[u8]>, snapshot: &Arc<Snapshot>) -> Result<Option<Vec<u8>>, Error> {
        let (key, snapshot) = (key.as_ref().to_owned(), Arc::clone(snapshot));
        self.run(move |store| store.get_at(&key, &snapshot)).await
    }

    /// As [`Db::multi_get`](crate::Db::multi_get).
    ///
    /// # Errors
    /// Those of `Db::multi_get`.
    pub async fn multi_get(&self, keys: impl IntoIterator<Item: AsRef<[u8]>>) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let keys: Vec<_> = keys.into_iter().map(|key| key.as_ref().to_owned()).collect();
        self.run(move |store| store.multi_get(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>())).await
    }

    /// As [`Db::put`](crate::Db::put).
    ///
    /// # Errors
    /// Those of `Db::put`.
    pub async fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.put_with(key, value, WriteOptions::default()).await
    }

    /// As [`Db::put_with`](crate::Db::put_with).
    ///
    /// # Errors
    /// Those of `Db::put_with`.
    pub async fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: WriteOptions,
    ) -> Result<(), Error> {
        let (key, value) = (key.as_ref().to_owned(), value.as_ref().to_owned());
        self.run(move |store| store.put_with(&key, &value, &options)).await
    }

    /// As [`Db::delete`](crate::Db::delete).
    ///
    /// # Errors
    /// Those of `Db::delete`.
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        let key = key.as_ref().to_owned();
        self.run(move |store| store.delete(&key)).await
    }

    /// As [`Db::write`](crate::Db::write).
    ///
    /// # Errors
    /// Those of `Db::write`.
    pub async fn write(&self, batch: WriteBatch) -> Result<(), Error> {
        self.write_with(batch, WriteOptions::default()).await
    }

    /// As [`Db::write_with`](crate::Db::write_with).
    ///
    /// # Errors
    /// Those of `Db::write_with`.
    pub async fn write_with(&self, batch: WriteBatch, options: WriteOptions) -> Result<(), Error> {
        self.run(move |store| store.write_with(&batch, &options)).await
    }

    /// As [`Db::snapshot`](crate::Db::snapshot).
    ///
    /// # Errors
    /// None; every call has this result type.
    pub async fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        self.run(|store| Ok::<_, Error>(Arc::new(store.snapshot()))).await
    }

    /// Keys and values within a range, as of now: see [`Store::range`].
    ///
    /// # Errors
    /// Those of `Store::range`.
    pub async fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<AsyncEntries, Error> {
        let bytes = |bound: Bound<&K>| bound.map(|key| Bytes::copy_from_slice(key.as_ref()));
        let range = (bytes(range.start_bound()), bytes(range.end_bound()));
        self.stream(move |store| store.range(range)).await
    }

    /// Keys that start with `prefix` and their values, as of now: see [`Store::prefix`].
    ///
    /// # Errors
    /// Those of `Store::prefix`.
    pub async fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<AsyncEntries, Error> {
        let prefix = prefix.as_ref().to_owned();
        self.stream(move |store| store.prefix(prefix)).await
    }

    /// As [`Db::sync`](crate::Db::sync).
    ///
    /// # Errors
    /// Those of `Db::sync`.
    pub async fn sync(&self) -> Result<(), Error> {
        self.run(|store| store.sync()).await
    }

    /// As [`Db::flush`](crate::Db::flush).
    ///
    /// # Errors
    /// Those of `Db::flush`.
    pub async fn flush(&self) -> Result<(), Error> {
        self.run(|store| store.flush()).await
    }

    /// As [`Store::close`].
    ///
    /// # Errors
    /// Those of `Store::close`.
    pub async fn close(&self) -> Result<(), Error> {
        self.run(Store::close).await
    }
}

/// A stream of keys and values: see [`AsyncStore::stream`]. It keeps the memory of everything that it reads, but it does
/// not keep the store open.
#[derive(Debug)]
pub struct AsyncEntries<I: Send + 'static = Entries>(Unblock<Pooled<I>>);

/// An iterator that the pool drops, because a drop may wait for reads that are on their way. It is `Some` until then.
#[derive(Debug)]
struct Pooled<I: Send + 'static>(Option<I>);

impl<I: Send + 'static> Drop for Pooled<I> {
    fn drop(&mut self) {
        if let Some(iterator) = self.0.take() {
            unblock(move || drop(iterator)).detach();
        }
    }
}

impl<I: Iterator + Send + 'static> Iterator for Pooled<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.0.as_mut()?.next()
    }
}

impl<I: Iterator<Item: Send> + Send + 'static> Stream for AsyncEntries<I> {
    type Item = I::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<I::Item>> {
        Pin::new(&mut self.0).poll_next(context)
    }
}

#[cfg(test)]
mod tests;
